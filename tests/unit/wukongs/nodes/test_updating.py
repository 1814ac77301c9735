"""Updates of a cluster: what one reads is held while it is evaluated, and let go whatever comes of it."""

from __future__ import annotations

import io
import threading

import pytest

from tests.unit.wukongs.nodes.wires import EX, Wires, wired
from wukongs.cluster import cluster_engine
from wukongs.cluster.changes import STAGE
from wukongs.errors import BudgetExceeded, QueryTimeout, UpdateError, WukongsError
from wukongs.settings import Settings

COUNT = 300


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
        evaluate, turns = cluster_engine.evaluate, [0]

        def overtaken(core: object, *arguments: object) -> object:
            found = evaluate(core, *arguments)  # type: ignore[arg-type]
            if core is engine._core and turns[0] < 2:
                turns[0] += 1
                thread = threading.Thread(target=other.update, args=(f"INSERT DATA {{ <{EX}x> <{EX}n> {turns[0]} }}",))
                thread.start()
                thread.join()
            return found

        monkeypatch.setattr(cluster_engine, "evaluate", overtaken)
        engine.update(f"INSERT {{ <{EX}y> <{EX}n> ?n }} WHERE {{ <{EX}x> <{EX}n> ?n }}")
        assert turns == [2]
        for node in wires.nodes:
            found = sorted(int(row[0]) for row in node.engine.query(f"SELECT ?n {{ <{EX}y> <{EX}n> ?n }}"))
            assert found == [1, 2], "it has read what overtook it"
        turns[0] = -1 << 20
        with pytest.raises(QueryTimeout):
            engine.update(f"INSERT {{ <{EX}z> <{EX}n> ?n }} WHERE {{ <{EX}x> <{EX}n> ?n }}", timeout_s=1.0)
        assert len(engine.query(f"SELECT ?n {{ <{EX}z> <{EX}n> ?n }}")) == 0
