"""Results that cross in chunks: the same in every shape, in messages of bounded size, each text once a chunk."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

import wukongs
from tests.unit.remote.served import Once, Wire, connected, served, silent
from wukongs.errors import DataError, NodeUnavailable
from wukongs.query.output.formats import GRAPH_FORMATS, ROW_FORMATS
from wukongs.query.output.results import Result
from wukongs.remote import columns, kinds
from wukongs.remote.client import RemoteEngine
from wukongs.remote.columns import Incoming, Outgoing
from wukongs.store.term_ids import is_literal_id, term_ids
from wukongs.wire.packets import Packet

DATA = """@prefix : <http://ex/> .
:a :p 1, 2.5, "short", "a literal that is too long for an id", "mit Umlaut äöü, lang genug"@de, true ;
   :q "2020-01-02"^^<http://www.w3.org/2001/XMLSchema#date> .
:b :p :a, _:blank . :c :p :b, 3 .
"""
QUERIES = [
    "SELECT * { ?s ?p ?o }",
    "SELECT ?s ?x { ?s ?p ?o OPTIONAL { ?o <http://ex/p> ?x } }",
    "SELECT (CONCAT(STR(?o), ' and a computed text') AS ?t) (1 + 1 AS ?n) ?none { ?s ?p ?o }",
    "SELECT * { }",
    "SELECT * { <http://ex/none> ?p ?o }",
    "ASK { ?s ?p ?o }",
    "ASK { <http://ex/none> ?p ?o }",
    "CONSTRUCT { ?o ?p ?s } { ?s ?p ?o }",
    "DESCRIBE <http://ex/a>",
]


def shapes(result: Result) -> list[object]:
    """Everything that can be asked of a result."""
    formats = GRAPH_FORMATS if result.is_graph else ROW_FORMATS
    given = [result.kind, result.vars, len(result), bool(result), result.boolean, result.snapshot, result.texts()]
    given += [result.arrow(), result.to_pandas().to_dict(), *(result.serialize(format) for format in formats)]
    return [*given, result.serialize("table"), list(result)]


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("cells", [1, 7, 1 << 12])
def test_a_result_is_the_same_on_both_sides(
    engine: RemoteEngine, embedded: wukongs.Engine, text: str, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_FIRST_CELLS", cells)
    monkeypatch.setattr(columns, "CHUNK_CELLS", 2 * cells)
    engine.load(io.BytesIO(DATA.encode()), format="ttl")
    here, there = engine.query(text), embedded.query(text)
    assert shapes(here) == shapes(there)
    if here.is_graph:
        assert set(here.graph()) == set(there.graph())


def test_messages_are_bounded_whatever_the_texts(
    engine: RemoteEngine, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "CHUNK_BYTES", 10_000)
    monkeypatch.setattr(columns, "CHUNK_CELLS", 1 << 10)
    lines = b"".join(b'<http://ex/s%d> <http://ex/p> "%s" .\n' % (n, b"%d" % n * (n % 400)) for n in range(2000))
    engine.load(io.BytesIO(lines), format="nt")
    sizes: list[int] = []
    wire.on_answer = lambda asked, answer: sizes.append(sum(array.nbytes for array in answer.arrays.values()))  # type: ignore
    result = engine.query("SELECT ?s ?o { ?s ?p ?o }")
    assert len(result) == len(set(result.texts())) == 2000
    assert len(sizes) > 100
    assert max(sizes) <= 10_000 + 8 * 3 * (1 << 10)
    assert wire.asked[-1] == kinds.RELEASE


def test_one_text_that_is_longer_than_a_chunk(engine: RemoteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "CHUNK_BYTES", 1000)
    long = "x" * 50_000
    engine.load(io.BytesIO(f'<http://ex/a> <http://ex/p> "{long}", "b" . '.encode() * 1), format="ttl")
    assert sorted(len(text or "") for (text,) in engine.query("SELECT ?o { ?s ?p ?o }").texts()) == [3, 50_002]


def test_each_side_holds_a_result_once(embedded: wukongs.Engine) -> None:
    """The columns of the client are made once, at their full length, and filled."""
    embedded.load(io.BytesIO(b"".join(b"<s:%d> <p:p> <o:%d> .\n" % (n, n % 10) for n in range(20_000))), format="nt")
    outgoing = Outgoing(embedded.query("SELECT * { ?s ?p ?o }"))
    incoming = Incoming(outgoing.head(), "there")
    incoming.add(outgoing.chunk(0))
    assert incoming._columns is not None
    before = [id(column) for column in incoming._columns]
    while not incoming.is_complete:
        incoming.add(outgoing.chunk(incoming.missing_from))
    assert [id(column) for column in incoming._columns] == before
    assert incoming.result().texts() == outgoing.result.texts()


def test_ids_of_all_inlined_types_are_told_from_others() -> None:
    xsd = "http://www.w3.org/2001/XMLSchema#"
    values = [("integer", "5"), ("double", "1.5e3"), ("decimal", "0.5"), ("float", "1.0"), ("boolean", "true")]
    values += [("date", "2020-01-02"), ("dateTime", "2020-01-02T03:04:05Z"), ("dateTime", "2020-01-02T03:04:05.1Z")]
    values += [("unsignedByte", "7"), ("int", "-7"), ("float", "1.5E3"), ("dateTime", "1990-01-02T03:04:05.123456Z")]
    ids = term_ids([f'"{lexical}"^^<{xsd}{name}>' for name, lexical in values] + ['"plain"'])
    assert (ids & 1 == 1).all()
    assert is_literal_id(ids).all()


def test_a_release_frees_the_node(engine: RemoteEngine, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_FIRST_CELLS", 1)
    released: list[Packet] = []

    def note(asked: Packet, answer: Packet) -> None:
        if asked.kind == kinds.RELEASE:
            released.append(wire.handlers[kinds.ROWS](Packet(kinds.ROWS, {**asked.fields, "start": 0})))

    wire.on_answer = note  # type: ignore[assignment]
    engine.load(io.BytesIO(DATA.encode()), format="ttl")
    engine.query("SELECT * { ?s ?p ?o }")
    assert [answer.kind for answer in released] == [kinds.LOST]


def _interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("hook", "error"),
    [
        (Once(kinds.ROWS, silent), None),  # the client asks again
        (Once(kinds.ROWS, _interrupted), KeyboardInterrupt),
        (lambda packet: Packet(kinds.NONE) if packet.kind == kinds.ROWS else None, DataError),
    ],
    ids=["silence", "ctrl-c", "lie"],
)
def test_an_error_between_two_chunks_frees_the_node(
    embedded: wukongs.Engine,
    monkeypatch: pytest.MonkeyPatch,
    hook: Callable[[Packet], Packet | None],
    error: type[BaseException] | None,
) -> None:
    monkeypatch.setattr(columns, "_FIRST_CELLS", 1)
    embedded.load(io.BytesIO(DATA.encode()), format="ttl")
    with served(embedded) as (service, wire), connected(wire) as client:
        wire.on_ask = hook
        with nullcontext() if error is None else pytest.raises(error):
            client.query("SELECT * { ?s ?p ?o }")
        (session,) = service._sessions.values()
        assert session.results.numbers() == []


def test_a_release_that_fails_says_nothing_over_the_first_error(
    engine: RemoteEngine, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_FIRST_CELLS", 1)
    engine.load(io.BytesIO(DATA.encode()), format="ttl")

    def lie_and_end(packet: Packet) -> Packet | None:
        if packet.kind == kinds.RELEASE:
            raise NodeUnavailable("it has ended")
        return Packet(kinds.NONE) if packet.kind == kinds.ROWS else None

    wire.on_ask = lie_and_end
    with pytest.raises(DataError, match="expected an answer 'rows', found 'none'"):
        engine.query("SELECT * { ?s ?p ?o }")


def test_a_dump_that_cannot_be_written_frees_the_node(embedded: wukongs.Engine, tmp_path: Path) -> None:
    embedded.load(io.BytesIO(DATA.encode()), format="ttl")
    with served(embedded) as (service, wire), connected(wire) as client:
        with pytest.raises(wukongs.StorageError):
            client.dump(tmp_path / "none" / "file.nt")
        (session,) = service._sessions.values()
        assert session.files.numbers() == []
