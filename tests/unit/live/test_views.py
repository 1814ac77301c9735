"""Views in windows and in writes: continuous queries read them, and nothing writes them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_helpers import windows
from tests.inferred import infer
from wukongs import Engine
from wukongs.errors import DataError, SettingsError
from wukongs.query.plans import deltas

INFERRED, EXPLICIT = "urn:x-wukongs:inferred", "urn:x-wukongs:explicit"
VIEWS = [INFERRED, EXPLICIT, f"{INFERRED}:http://ex/g", f"{EXPLICIT}:http://ex/g"]
REFUSED = r"cannot be written: .*Write to"


def _triple(subject: str, object_: str, predicate: str = "in") -> tuple[str, str, str]:
    return f"<http://ex/{subject}>", f"<http://ex/{predicate}>", f"<http://ex/{object_}>"


@pytest.mark.parametrize("rows_min", [0, 1e9])
@pytest.mark.parametrize("graph", [None, "http://ex/g"])
def test_windows_beside_views(graph: str | None, rows_min: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is inferred changes between two firings, so kept batches and matches would be those of before."""
    monkeypatch.setattr(deltas, "ROWS_MIN", rows_min)
    end = "" if graph is None else f":{graph}"
    queries: dict[str, Any] = {}
    with Engine() as engine:
        stream = engine.stream("http://ex/s", batch_ms=100, timing=True)
        for name, clause, pattern in (
            ("inferred", f"FROM <{INFERRED}{end}>", "?n :in ?room"),
            ("explicit", f"FROM <{EXPLICIT}{end}>", "?n :in ?room"),
            ("named", f"FROM NAMED <{EXPLICIT}{end}>", f"GRAPH <{EXPLICIT}{end}> {{ ?n :in ?room }}"),
            ("any", f"FROM NAMED <{EXPLICIT}{end}> FROM NAMED <{INFERRED}{end}>", "GRAPH ?g { ?n :in ?room }"),
        ):
            queries[name] = engine.register(
                f"PREFIX : <http://ex/> REGISTER QUERY {name} AS SELECT ?room {clause} "
                f"FROM STREAM <http://ex/s> [RANGE 300ms STEP 100ms] WHERE {{ ?t :at ?n . {pattern} }}"
            )
        stated, inferred = {"a"}, set[str]()
        into = "{}" if graph is None else f"GRAPH <{graph}> {{{{ {{}} }}}}"
        engine.update(f"INSERT DATA {{ {into.format(' '.join(_triple('n', 'a')))} }}")
        expected: dict[str, dict[int, list[str]]] = {name: {} for name in queries}
        for at, (come, gone) in enumerate((("b", ""), ("", ""), ("c", "b"), ("b", ""), ("", "c")), 1):
            infer(engine, [_triple("n", one) for one in come], [_triple("n", one) for one in gone], graph)
            inferred = inferred - set(gone) | set(come)
            stream.push([(f"<http://ex/t{at}>", "<http://ex/at>", "<http://ex/n>", 100 * at)])
            stream.advance(100 * at)
            engine.settle(60)
            count = min(at, 3)
            for name, held in (("inferred", inferred), ("explicit", stated), ("named", stated)):
                expected[name][100 * at] = sorted([*held] * count)
            expected["any"][100 * at] = sorted([*stated, *inferred] * count)
        assert {name: windows(query) for name, query in queries.items()} == expected


UPDATES = [
    "INSERT DATA {{ GRAPH <{}> {{ :a :p :b }} }}",
    "DELETE DATA {{ GRAPH <{}> {{ :a :p :b }} }}",
    "INSERT {{ GRAPH <{}> {{ ?s :p ?o }} }} WHERE {{ ?s :in ?o }}",
    "DELETE {{ GRAPH <{}> {{ ?s :p ?o }} }} WHERE {{ ?s :in ?o }}",
    "DELETE WHERE {{ GRAPH <{}> {{ ?s :p ?o }} }}",
    "WITH <{}> DELETE {{ ?s :p ?o }} WHERE {{ ?s :p ?o }}",
    "INSERT {{ GRAPH ?g {{ :a :p :b }} }} WHERE {{ BIND(<{}> AS ?g) }}",
    "DELETE {{ GRAPH ?g {{ ?s ?p ?o }} }} WHERE {{ VALUES ?g {{ <{}> }} ?s ?p ?o }}",
    "CLEAR GRAPH <{}>",
    "CLEAR SILENT GRAPH <{}>",
    "DROP GRAPH <{}>",
    "DROP SILENT GRAPH <{}>",
    "CREATE GRAPH <{}>",
    "COPY DEFAULT TO <{}>",
    "MOVE DEFAULT TO <{}>",
    "ADD DEFAULT TO <{}>",
    "MOVE <{}> TO :g3",
    "LOAD <file:///nowhere.nt> INTO GRAPH <{}>",
    "LOAD SILENT <file:///nowhere.nt> INTO GRAPH <{}>",
]


@pytest.fixture
def filled() -> Engine:
    engine = Engine()
    engine.update(
        "INSERT DATA { <http://ex/n> <http://ex/in> <http://ex/a> GRAPH <http://ex/g> { <http://ex/n> <http://ex/in> "
        "<http://ex/c> } }"
    )
    infer(engine, [_triple("n", "b")])
    infer(engine, [_triple("n", "d")], graph="http://ex/g")
    return engine


def _texts(engine: Engine, name: str | None) -> list[str]:
    pattern = "?s ?p ?o" if name is None else f"GRAPH <{name}> {{ ?s ?p ?o }}"
    found = engine.query(f"SELECT ?o {{ {pattern} }}").texts()
    return sorted(str(row[0]).removeprefix("<http://ex/").removesuffix(">") for row in found)


@pytest.mark.parametrize("text", UPDATES)
def test_an_update_of_a_view_is_refused(filled: Engine, text: str) -> None:
    with filled as engine:
        for view in VIEWS:
            with pytest.raises(DataError, match=f"<{view}> {REFUSED}"):
                engine.update(f"PREFIX : <http://ex/> INSERT DATA {{ :x :p :y }} ; {text.format(view)}")
        assert _texts(engine, None) == ["a", "b"]
        assert _texts(engine, INFERRED) == ["b"]


@pytest.mark.parametrize(("target", "left"), [("ALL", []), ("NAMED", ["a", "b"])])
@pytest.mark.parametrize("verb", ["CLEAR", "DROP"])
def test_hidden_graphs_stay_where_all_graphs_go(filled: Engine, verb: str, target: str, left: list[str]) -> None:
    with filled as engine:
        engine.update(f"{verb} {target}")
        assert _texts(engine, None) == left
        assert engine.graph_names() == []
        assert _texts(engine, INFERRED) == ["b"], "rules let it go"


def test_a_view_is_copied(filled: Engine) -> None:
    with filled as engine:
        engine.update(f"COPY <{INFERRED}:http://ex/g> TO <http://ex/1> ; ADD <{EXPLICIT}> TO <http://ex/1>")
        assert _texts(engine, "http://ex/1") == ["a", "d"]
        engine.update(f"ADD <{INFERRED}:http://ex/nowhere> TO <http://ex/2>")
        assert _texts(engine, "http://ex/2") == []
        engine.update(f"INSERT {{ GRAPH <http://ex/3> {{ ?s ?p ?o }} }} USING <{EXPLICIT}> WHERE {{ ?s ?p ?o }}")
        assert _texts(engine, "http://ex/3") == ["a"]


LINES = b"<http://ex/x> <http://ex/p> <http://ex/y> .\n"


def _apply(engine: Engine, view: str) -> None:
    cells = {name: [f"<http://ex/{name}>"] for name in ("subject", "predicate", "object")}
    engine.apply(deletes=pa.table({**cells, "graph": [f"<{view}>"]}))


def _push(engine: Engine, view: str) -> None:
    stream = engine.stream("http://ex/s", batch_ms=100)
    cells = {name: [f"<http://ex/{name}>"] for name in ("subject", "predicate", "object")}
    stream.push_arrow(pa.table({**cells, "timestamp_ms": [1], "graph": [f"<{view}>"]}))


WRITES: list[Callable[[Engine, str], object]] = [
    lambda engine, view: engine.load(io.BytesIO(LINES), view, format="nt"),
    lambda engine, view: engine.load(io.BytesIO(LINES + LINES.replace(b" .", f" <{view}> .".encode())), format="nq"),
    lambda engine, view: engine.load(io.BytesIO(f"<{view}> {{ <x:x> <x:p> 1 }}".encode()), format="trig"),
    lambda engine, view: engine.stream("http://ex/s", into=view),
    _push,
    _apply,
]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_write_of_a_view_is_refused(filled: Engine, write: Callable[[Engine, str], object], view: str) -> None:
    with filled as engine:
        with pytest.raises((DataError, SettingsError), match=f"<{view}> {REFUSED}"):
            write(engine, view)
        assert _texts(engine, None) == ["a", "b"]


def test_load_names_a_document_with_a_view(filled: Engine, tmp_path: Path) -> None:
    (tmp_path / "a.nq").write_bytes(LINES.replace(b" .", f" <{INFERRED}> .".encode()))
    with filled as engine, pytest.raises(DataError, match=f"a.nq: <{INFERRED}> {REFUSED}"):
        engine.update(f"LOAD <{(tmp_path / 'a.nq').as_uri()}>")
