"""PreparedQueries: a text that was asked before is not parsed again, and is answered from the data as it is now."""

from __future__ import annotations

import io
import threading

import pytest

from wukongs import Engine, QuerySyntaxError, Settings
from wukongs.query.execution.prepared import TEXT_CHARACTERS_MAX, PreparedQueries

TEXT = "SELECT ?o WHERE { <urn:a> <urn:p> ?o }"


def add(engine: Engine, *lines: str) -> None:
    engine.load(io.BytesIO("".join(f"{line} .\n" for line in lines).encode()), format="nt")


def ask(engine: Engine, text: str = TEXT, **more: object) -> set[tuple[str, ...]]:
    return {tuple(map(str, row)) for row in engine.query(text, **more)}  # type: ignore[arg-type]


def test_a_text_is_parsed_once_per_base() -> None:
    prepared = PreparedQueries(10)
    first = prepared.prepare("ASK { <a> ?p ?o }", "http://x/")
    assert prepared.prepare("ASK { <a> ?p ?o }", "http://x/") is first
    other = prepared.prepare("ASK { <a> ?p ?o }", "http://y/")
    assert other.query != first.query
    assert (len(prepared), prepared.hit_count) == (2, 1)


def test_the_least_recently_used_goes_first() -> None:
    prepared = PreparedQueries(2)
    one, two = prepared.prepare("ASK { <a> ?p 1 }", None), prepared.prepare("ASK { <a> ?p 2 }", None)
    assert prepared.prepare("ASK { <a> ?p 1 }", None) is one
    prepared.prepare("ASK { <a> ?p 3 }", None)
    assert prepared.prepare("ASK { <a> ?p 1 }", None) is one
    assert prepared.prepare("ASK { <a> ?p 2 }", None) is not two
    assert len(prepared) == 2


@pytest.mark.parametrize(("count_max", "blanks"), [(0, 0), (10, TEXT_CHARACTERS_MAX)])
def test_nothing_is_kept_without_room_nor_of_a_long_text(count_max: int, blanks: int) -> None:
    prepared = PreparedQueries(count_max)
    text = "ASK { ?s ?p ?o }" + " " * blanks
    assert prepared.prepare(text, None) is not prepared.prepare(text, None)
    assert len(prepared) == 0


def test_a_text_that_is_refused_is_refused_again() -> None:
    prepared = PreparedQueries(10)
    for _ in range(2):
        with pytest.raises(QuerySyntaxError):
            prepared.prepare("SELECT ?o WHERE { <urn:a> ", None)
    assert len(prepared) == 0


def test_constants_that_become_known_are_found() -> None:
    with Engine() as engine:
        assert ask(engine) == set()
        add(engine, "<urn:a> <urn:p> <urn:b>")
        assert ask(engine) == {("urn:b",)}
        assert engine.stats()["prepared_queries"] == {"kept": 1, "hits": 1}


def test_constants_that_get_another_id_are_found() -> None:
    """With ids of one bit, nearly every term that is loaded after the first question gets an id of its own."""
    with Engine(settings=Settings(hash_bits=1)) as engine:
        texts = [f"SELECT ?o WHERE {{ <urn:s{i}> <urn:p> ?o }}" for i in range(8)]
        assert all(ask(engine, text) == set() for text in texts)
        for i in range(8):
            add(engine, f"<urn:s{i}> <urn:p> <urn:o{i}>")
            expected = [{(f"urn:o{j}",)} if j <= i else set() for j in range(8)]
            assert [ask(engine, text) for text in texts] == expected


def test_a_graph_that_appears_is_found() -> None:
    text = "SELECT ?g WHERE { GRAPH ?g { ?s ?p ?o } }"
    with Engine() as engine:
        for number in range(3):
            assert ask(engine, text) == {(f"urn:g{i}",) for i in range(number)}
            engine.load(io.BytesIO(b"<urn:a> <urn:p> <urn:b> .\n"), format="nt", graph=f"urn:g{number}")


def test_bindings_come_after_the_text() -> None:
    text = "SELECT ?s ?o WHERE { ?s <urn:p> ?o }"
    with Engine() as engine:
        add(engine, "<urn:a> <urn:p> <urn:b>", "<urn:c> <urn:p> <urn:d>")
        for _ in range(2):
            assert ask(engine, text, bindings={"s": "<urn:a>"}) == {("urn:a", "urn:b")}
            assert ask(engine, text, bindings={"s": "<urn:c>"}) == {("urn:c", "urn:d")}
            assert len(ask(engine, text)) == 2


def test_threads_ask_the_same_text_while_data_come() -> None:
    """Each answer is that of some snapshot: so many objects as had been loaded between its begin and its end."""
    problems: list[str] = []
    loaded = [0]
    with Engine(settings=Settings(prepared_queries_max=1)) as engine:

        def read(text: str) -> None:
            while loaded[0] < 20:
                least = loaded[0]
                count = len(ask(engine, text))
                if not least <= count <= loaded[0] + 1:
                    problems.append(f"{count} rows, between {least} and {loaded[0] + 1} were loaded")

        threads = [threading.Thread(target=read, args=(TEXT + " " * (i % 2),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for number in range(20):
            add(engine, f"<urn:a> <urn:p> <urn:o{number}>")
            loaded[0] += 1
        for thread in threads:
            thread.join()
    assert problems == []
