"""Updates of a cluster: what one reads is held while it is evaluated, and let go whatever comes of it."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import wukongs
from tests.clusters import PATIENT, cluster
from tests.unit.cluster.wires import EX, Wires, wired
from wukongs.cluster import cluster_backend
from wukongs.cluster.changes import STAGE, Changes
from wukongs.errors import BudgetExceeded, CompactedError, NodeUnavailable, QueryTimeout, UpdateError, WukongsError
from wukongs.live import update as update_module
from wukongs.live.stream import Stream
from wukongs.settings import Settings

COUNT = 300
_STORE = update_module._store


def loaded(wires: Wires) -> None:
    lines = "".join(f"<{EX}s{row}> <{EX}p> <{EX}o{row % 7}> .\n" for row in range(COUNT)).encode()
    wires.nodes[0].engine.load(io.BytesIO(lines), format="nt")


def held(wires: Wires) -> list[list[str]]:
    """Who holds an SN of each node."""
    found = []
    for node in wires.nodes:
        with node.store.core.lock:
            owners = [handle.owner for handle in node.store.core.arrangement.trace.handles()]
            found.append([owner for owner in owners if owner != "the cluster's readers"])
    return found


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"CREATE GRAPH <{EX}g> ; DROP GRAPH <{EX}none>", UpdateError),
        (f"INSERT {{ ?a <{EX}q> ?b }} WHERE {{ ?a <{EX}p> ?o . ?b <{EX}p> ?o }}", BudgetExceeded),
        (f"DELETE {{ ?s ?p ?o }} WHERE {{ ?s ?p ?o }} ; LOAD <{EX}none>", WukongsError),
    ],
)
def test_an_update_that_cannot_be_evaluated_holds_nothing_and_changes_nothing(
    text: str, kind: type[WukongsError]
) -> None:
    with wired(1, settings=Settings(rows_max=1000)) as wires:
        loaded(wires)
        engine, before = wires.nodes[0].engine, held(wires)
        wires.kinds()
        with pytest.raises(kind):
            engine.update(text)
        assert held(wires) == before
        assert STAGE not in {asked for asked, _ in wires.kinds()}, "nobody was told of it"
        assert len(engine.query("SELECT * { ?s ?p ?o }")) == COUNT


def test_an_update_that_is_overtaken_is_evaluated_again_within_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time, an update of the other node comes into the log first."""
    with wired(2) as wires:
        loaded(wires)
        engine, other = (node.engine for node in wires.nodes)
        evaluate, turns = cluster_backend.evaluated, [0]

        @contextmanager
        def overtaken(core: object, *arguments: object) -> Iterator[object]:
            with evaluate(core, *arguments) as found:  # type: ignore[arg-type]
                if core is engine._core and turns[0] < 2:
                    turns[0] += 1
                    text = f"INSERT DATA {{ <{EX}x> <{EX}n> {turns[0]} }}"
                    thread = threading.Thread(target=other.update, args=(text,))
                    thread.start()
                    thread.join()
                yield found

        monkeypatch.setattr(cluster_backend, "evaluated", overtaken)
        engine.update(f"INSERT {{ <{EX}y> <{EX}n> ?n }} WHERE {{ <{EX}x> <{EX}n> ?n }}")
        assert turns == [2]
        for node in wires.nodes:
            found = sorted(int(row[0]) for row in node.engine.query(f"SELECT ?n {{ <{EX}y> <{EX}n> ?n }}"))
            assert found == [1, 2], "it has read what overtook it"
        turns[0] = -1 << 20
        # The time may also end while the other node is asked, or while its record, a void one, is agreed on.
        with pytest.raises((QueryTimeout, NodeUnavailable)):
            engine.update(f"INSERT {{ <{EX}z> <{EX}n> ?n }} WHERE {{ <{EX}x> <{EX}n> ?n }}", timeout_s=1.0)
        assert len(engine.query(f"SELECT ?n {{ <{EX}z> <{EX}n> ?n }}")) == 0


CLEARING = {
    "CLEAR": f"CLEAR GRAPH <{EX}g>",
    "CLEAR ALL": "CLEAR ALL",
    "CLEAR and INSERT": f"""CLEAR GRAPH <{EX}g> ;
        INSERT DATA {{ GRAPH <{EX}g> {{ <{EX}a> <{EX}p> <{EX}o> . <{EX}n> <{EX}p> <{EX}o> }} }}""",
    "DROP": f"DROP GRAPH <{EX}g>",
    "COPY": f"COPY <{EX}h> TO <{EX}g>",
    "MOVE": f"MOVE <{EX}g> TO <{EX}h>",
    "DELETE DATA": f"DELETE DATA {{ GRAPH <{EX}g> {{ <{EX}a> <{EX}p> <{EX}o> . <{EX}between> <{EX}p> <{EX}o> }} }}",
    "DELETE WHERE": f"DELETE WHERE {{ GRAPH <{EX}g> {{ ?s <{EX}p> <{EX}o> }} }}",
}
CHOSEN = ("CLEAR", "DELETE WHERE")
"""Tried on three nodes by the fast tier, too."""
DUMP = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"


def in_graph(graph: str, *names: str) -> io.BytesIO:
    return io.BytesIO("".join(f"<{EX}{name}> <{EX}p> <{EX}o> <{EX}{graph}> .\n" for name in names).encode())


@pytest.mark.parametrize(
    ("text", "node_count", "replica_count"),
    [
        pytest.param(text, *shape, id=name, marks=pytest.mark.slow if shape[0] > 1 and name not in CHOSEN else [])
        for name, text in CLEARING.items()
        for shape in ((1, 1), (3, 2))
    ],
)
def test_an_update_removes_what_its_snapshot_had_and_nothing_that_came_since(
    monkeypatch: pytest.MonkeyPatch, text: str, node_count: int, replica_count: int
) -> None:
    """A load and a stream bring tuples between the snapshot that is read and the update's own; an engine says what is
    right."""

    def prepare(engine: wukongs.Engine) -> Stream:
        engine.load(in_graph("g", "a", "b", "c"), format="nq")
        engine.load(in_graph("h", "a", "d"), format="nq")
        engine.load(io.BytesIO(f"<{EX}x> <{EX}p> <{EX}o> .\n".encode()), format="nt")
        return engine.stream(EX + "s", batch_ms=100, into=EX + "g")

    def come_between(engine: wukongs.Engine, stream: Stream) -> None:
        engine.load(in_graph("g", "between", "a"), format="nq")
        stream.push([(f"<{EX}{name}>", f"<{EX}p>", f"<{EX}o>", 1050) for name in ("streamed", "b")])
        stream.advance(1200)
        engine.settle(60)

    with wukongs.Engine() as embedded:
        stream = prepare(embedded)
        is_over = []

        def store(*args: Any) -> Any:
            if not is_over:
                is_over.append(True)
                with monkeypatch.context() as other:
                    other.setattr(embedded._injector, "settle", lambda _: None)  # the update's turn is not over yet
                    come_between(embedded, stream)
            return _STORE(*args)

        monkeypatch.setattr(update_module, "_store", store)
        embedded.update(text)
        embedded.settle(60)
        expected = sorted(embedded.query(DUMP).texts(), key=str)
    with cluster(node_count, replica_count, silence_pulses_max=PATIENT) as nodes:
        engine, other = nodes[0].engine, nodes[-1].engine
        prepare(engine)
        before = Changes.change
        came = []

        def change(changes: Changes, *args: Any) -> Any:
            if not came:
                came.append(True)
                come_between(other, nodes[-1].backend.declared(EX + "s"))
            return before(changes, *args)

        monkeypatch.setattr(Changes, "change", change)
        engine.update(text)
        for node in nodes:
            node.engine.settle(60)
            assert sorted(node.engine.query(DUMP).texts(), key=str) == expected
            owners = {handle["owner"] for handle in node.engine.stats()["handles"]}
            assert not [owner for owner in owners if owner.startswith(("change", "update"))]
    assert came, "the update was not interrupted"


def test_an_update_whose_snapshot_was_forgotten_is_evaluated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with wired(2) as wires:
        loaded(wires)
        engine, store = wires.nodes[0].engine, wires.nodes[1].store
        hold_for, failed = store.hold_for, []

        def forgets(*args: Any) -> None:
            if len(failed) < fails:
                failed.append(args)
                raise CompactedError("compacted")
            hold_for(*args)

        monkeypatch.setattr(store, "hold_for", forgets)
        fails = 2
        engine.update(f"DELETE WHERE {{ <{EX}s1> ?p ?o }}")
        assert len(failed) == 2
        assert len(engine.query("SELECT * { ?s ?p ?o }")) == COUNT - 1
        fails = 1000
        with pytest.raises(CompactedError):
            engine.update(f"DELETE WHERE {{ <{EX}s2> ?p ?o }}")
        assert len(engine.query("SELECT * { ?s ?p ?o }")) == COUNT - 1
        assert [node.store.stats()["staged_changes"] for node in wires.nodes] == [0, 0]
