"""ISTREAM and DSTREAM queries that fire as one: each is compared with itself, from its first firing on."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.inside import core_of
from tests.scenarios.test_groups import begin, push, register
from wukongs.live import joined_queries

S = "http://e/s"


@pytest.fixture(autouse=True)
def _together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_queries, "ALONE_MAX", 0)


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as engine:
        yield engine


def text(output: str, user: str, window: str = "[RANGE 500ms STEP 100ms]") -> str:
    where = f"{{ <http://e/{user}> <http://e/p> ?o }}"
    return f"REGISTER {output} {user} AS SELECT ?o FROM STREAM <{S}> {window} WHERE {where}"


def tuples(*found: tuple[str, int]) -> list[tuple[Any, ...]]:
    """Return tuples that say of a user and a time that the user was there then."""
    return [(f"<http://e/{user}>", "<http://e/p>", f'"{time_ms}"', time_ms) for user, time_ms in found]


def read(query: Any) -> dict[int, list[str]]:
    """Return the rows of each window that waits, by its end; those without rows are left out."""
    found = {window.end_ms: sorted(o.strip('"') for (o,) in window.texts()) for window in query.results(timeout_s=0)}
    return {end_ms: rows for end_ms, rows in found.items() if rows}


@pytest.mark.parametrize("output", ["ISTREAM", "DSTREAM"])
def test_a_query_that_fires_later_is_compared_with_none_of_the_firings_before(
    engine: wukongs.Engine, output: str
) -> None:
    """The group has fired over windows that held the row of the later one."""
    stream = engine.stream(S, batch_ms=100, timing=True)
    stream.advance(-1001)
    first = engine.register(text(output, "first"))
    stream.push(tuples(("first", -450), ("later", -450), ("first", -50)))
    later = engine.register(text(output, "later"))
    stream.advance(1000)
    engine.settle(60)
    expected = {"ISTREAM": {-400: ["-450"], 0: ["-50"]}, "DSTREAM": {100: ["-450"], 500: ["-50"]}}
    assert read(first) == expected[output]
    assert read(later) == {"ISTREAM": {0: ["-450"]}, "DSTREAM": {100: ["-450"]}}[output]


@pytest.mark.parametrize("output", ["ISTREAM", "DSTREAM"])
def test_a_query_that_joins_while_windows_stay_the_same_has_its_first_window(
    engine: wukongs.Engine, output: str
) -> None:
    """Firings over windows that hold the same are done together, and the first firing of a query is none of them."""
    stream = engine.stream(S, batch_ms=100, timing=True)
    stream.advance(0)
    first = engine.register(text(output, "first", "[RANGE 10s STEP 100ms]"))
    stream.push(tuples(("first", 50), ("later", 50)))
    stream.advance(300)
    engine.settle(60)
    with core_of(engine).lock:
        stream.advance(2000)
        later = engine.register(text(output, "later", "[RANGE 10s STEP 100ms]"))
        stream.advance(4000)
    engine.settle(60)
    stream.advance(12_000)
    engine.settle(60)
    assert read(first) == {"ISTREAM": {100: ["50"]}, "DSTREAM": {10_100: ["50"]}}[output]
    assert read(later) == {"ISTREAM": {2100: ["50"]}, "DSTREAM": {10_100: ["50"]}}[output]


@pytest.mark.parametrize("output", ["ISTREAM", "DSTREAM"])
def test_a_query_that_leaves_takes_along_what_it_is_compared_with(engine: wukongs.Engine, output: str) -> None:
    stream = engine.stream(S, batch_ms=100, timing=True)
    stream.advance(0)
    queries = [engine.register(text(output, f"u{n}")) for n in range(3)]
    for at in range(10):
        stream.push(tuples(*((f"u{n}", at * 100 + 50) for n in range(at % 2, 3))))
        stream.advance(at * 100 + 100)
        engine.settle(60)
        if at == 3:
            queries[0].alone()
        if at == 6:
            queries[1].close()
    offset = 100 if output == "ISTREAM" else 600
    for n, times in ((0, range(0, 1000, 200)), (2, range(0, 1000, 100))):
        assert read(queries[n]) == {at + offset: [str(at + 50)] for at in times if at + offset <= 1000}


def test_parts_of_a_divided_group_are_compared_with_what_was_before_it() -> None:
    """The second firing of one query takes more than it may, so the group is halved until it is alone."""
    with wukongs.Engine(settings=wukongs.Settings(query_bytes_max=1 << 20)) as engine:
        stream = begin(engine)
        where = "{ <http://ex/u%d> <http://ex/knows> ?f . ?a <http://ex/posts> ?p }"
        queries = [register(engine, f"q{n}", where % n, output="ISTREAM") for n in range(12)]
        push(engine, stream, 100)
        many = "".join(f"<http://ex/u7> <http://ex/knows> <http://ex/z{n}> .\n" for n in range(60_000))
        engine.load(io.BytesIO(many.encode()), format="nt")
        push(engine, stream, 300, 100)
        for n, query in enumerate(queries):
            if n != 7:
                assert [len(window) for window in query.results(timeout_s=0)] == [30, 30, 30]
        first = queries[7].results(timeout_s=0)
        assert len(next(first)) == 30
        for _ in range(2):
            with pytest.raises(wukongs.BudgetExceeded):
                next(queries[7].results(timeout_s=0))


@pytest.mark.parametrize("output", ["ISTREAM", "DSTREAM"])
def test_a_query_with_too_many_rows_begins_anew_behind_its_error(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many are found, though few of them are reported. Others of the group go on."""
    found = []
    for alone_max in (0, 1 << 30):
        monkeypatch.setattr(joined_queries, "ALONE_MAX", alone_max)
        with wukongs.Engine(settings=wukongs.Settings(rows_max=3)) as engine:
            stream = engine.stream(S, batch_ms=100, timing=True)
            stream.advance(0)
            queries = [engine.register(text(output, f"u{n}")) for n in range(2)]
            for at in range(12):
                users = [0] * (at < 4) + [1] * (at % 3 == 0)
                stream.push(tuples(*((f"u{n}", at * 100 + 50) for n in users), ("other", at * 100 + 60)))
                stream.advance(at * 100 + 100)
                engine.settle(60)
            windows: list[list[Any]] = [[], []]
            for own, query in zip(windows, queries, strict=True):
                for _ in range(12):
                    try:
                        own += [sorted(window.texts()) for window in islice(query.results(timeout_s=0), 1)]
                    except wukongs.BudgetExceeded:
                        own.append("too many")
            found.append((windows, [[one.stats()[key] for key in ("errors", "windows", "rows")] for one in queries]))
    assert found[0] == found[1]
    assert found[0][0][0].count("too many") == 2


@pytest.mark.parametrize("ends", ["restart", "crash"])
@pytest.mark.parametrize("output", ["ISTREAM", "DSTREAM"])
def test_what_they_are_compared_with_is_there_after_a_restart(tmp_path: Path, output: str, ends: str) -> None:
    """All windows were read, so no firing of before is done again."""
    folder, found = tmp_path / "0", {"u0": {}, "u1": {}}
    for life in range(3):
        with wukongs.Engine(folder) as engine:
            stream = engine.stream(S, batch_ms=100, timing=True, history_ms=0)
            queries = {name: engine.register(text(output, name)) for name in found}
            assert all(isinstance(query, joined_queries.JoinedQuery) for query in queries.values())
            for at in range(life * 3, life * 3 + 3):
                stream.push(tuples(("u0", at * 100 + 50), ("u1", at * 100 + 60)))
                stream.advance(at * 100 + 100)
                engine.settle(60)
                for name, query in queries.items():
                    own = read(query)
                    assert not found[name].keys() & own.keys()
                    found[name] |= own
            stream.advance(life * 300 + 301)  # with it the acknowledgements are logged
            engine.checkpoint()
            if ends == "crash":
                folder = shutil.copytree(folder, tmp_path / str(life + 1))
    offset = 100 if output == "ISTREAM" else 600
    for number, name in enumerate(found):
        times = [at for at in range(0, 900, 100) if at + offset <= 900]
        assert found[name] == {at + offset: [str(at + 50 + 10 * number)] for at in times}


@pytest.mark.parametrize("ends", ["restart", "crash"])
@pytest.mark.parametrize("output", ["ISTREAM", "DSTREAM"])
def test_firings_are_compared_with_what_was_stored_before_a_restart(tmp_path: Path, output: str, ends: str) -> None:
    """A triple is inserted, and another one deleted, behind the last firing before the end. The checkpoint has what is
    stored since then, so that firing cannot be evaluated again."""
    folder, found = tmp_path / "0", [dict[int, list[str]](), dict[int, list[str]]()]
    for life in range(3):
        with wukongs.Engine(folder) as engine:
            stream = engine.stream(S, batch_ms=100, timing=True, history_ms=0)
            head = f"SELECT ?z FROM <urn:x-wukongs:default> FROM STREAM <{S}> [RANGE 1s STEP 200ms]"
            users = [f"<http://e/u{n}>" for n in range(2)]
            queries = [
                engine.register(
                    f"REGISTER {output} q{n} AS {head} WHERE {{ {user} <http://e/p> ?o . {user} <http://e/k> ?z }}"
                )
                for n, user in enumerate(users)
            ]
            if life == 0:
                stream.push(tuples(("u0", 50), ("u1", 60)))
            stream.advance(life * 400 + 400)
            engine.settle(60)
            for own, query in zip(found, queries, strict=True):
                own |= read(query)
            for user in users:
                before, after = (f'{user} <http://e/k> "{number}"' for number in (life - 1, life))
                engine.update(f"DELETE DATA {{ {before} }} ; INSERT DATA {{ {after} }}")
            stream.advance(life * 400 + 500)  # no firing, and the snapshot of the last one is held no more
            engine.settle(60)
            core = core_of(engine)
            with core.lock:
                while core.merge(1 << 20) or core.merge_further(1 << 20):
                    pass
            engine.checkpoint()
            if ends == "crash":
                folder = shutil.copytree(folder, tmp_path / str(life + 1))
    expected = {"ISTREAM": {600: ["0"], 1000: ["1"]}, "DSTREAM": {1000: ["0"], 1200: ["1"]}}[output]
    assert found == [expected, expected]
