"""Changes of a cluster that are built ahead of their record: the same triples as an engine without other nodes has, and
nobody waits for the building but who asks for the change."""

from __future__ import annotations

import io
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.clusters import PATIENT, cluster, cut_off
from tests.fuzz import SEED, scaled
from tests.unit.cluster.test_changes import changes_of, chunk, until
from tests.unit.cluster.wires import EX, Wires, wired
from wukongs.cluster import building
from wukongs.cluster import changes as changes_module
from wukongs.store.bulk import build_run
from wukongs.store.encoded import Encoded

ALL = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "APART_ROWS", 1)
    monkeypatch.setattr(building, "RUN_ROWS", 40)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Runs are not put in order until this is set."""
    opened = threading.Event()

    def wait_and_build(*given: Any) -> Any:
        assert opened.wait(30)
        return build_run(*given)

    monkeypatch.setattr(building, "build_run", wait_and_build)
    yield opened
    opened.set()


def text_of(rng: random.Random, count: int) -> bytes:
    """N-Quads of a small world, with repeats."""
    lines = []
    for _ in range(count):
        graph = f" <{EX}g{rng.randrange(2)}>" if rng.random() < 0.2 else ""
        lines.append(f"<{EX}s{rng.randrange(30)}> <{EX}p{rng.randrange(3)}> <{EX}o{rng.randrange(9)}>{graph} .\n")
    return "".join(lines).encode()


def random_update(rng: random.Random) -> str:
    """Triples that go, come, or both; or a graph that is emptied, and filled again."""
    one, other, term = f"<{EX}p{rng.randrange(3)}>", f"<{EX}p{rng.randrange(3)}>", f"<{EX}o{rng.randrange(9)}>"
    graph = f"<{EX}g{rng.randrange(2)}>"
    return rng.choice(
        (
            f"DELETE WHERE {{ ?s {one} {term} }}",
            f"INSERT {{ ?o {other} ?s }} WHERE {{ ?s {one} ?o }}",
            f"DELETE {{ ?s {one} ?o }} INSERT {{ ?s {one} {term} }} WHERE {{ ?s {one} ?o }}",
            f"CLEAR GRAPH {graph}",
            f"CLEAR GRAPH {graph} ; INSERT {{ GRAPH {graph} {{ ?s {one} ?o }} }} WHERE {{ ?s {one} ?o }}",
            f"CLEAR DEFAULT ; INSERT {{ ?s {other} ?o }} WHERE {{ GRAPH {graph} {{ ?s ?p ?o }} }}",
        )
    )


def answers(engine: wukongs.Engine) -> list[tuple[str, ...]]:
    return sorted(tuple(str(term) for term in row) for row in engine.query(ALL))


def all_held(wires: Wires) -> list[str]:
    found = []
    for node in wires.nodes:
        with node.store.core.lock:
            found += [handle.owner for handle in node.store.core.arrangement.trace.handles()]
            found += ["expected"] * len(node.store.core.arrangement._expected)
    return [owner for owner in found if owner != "the cluster's readers"]


@pytest.mark.parametrize("number", range(scaled(3)))
def test_loads_between_updates_give_what_an_engine_alone_has(number: int) -> None:
    rng = random.Random(f"{SEED} {number}")
    with wired(2) as wires, wukongs.Engine() as alone:
        for _ in range(6):
            text, node = text_of(rng, rng.choice((3, 60, 200))), wires.nodes[rng.randrange(2)].engine
            graph = rng.choice((None, f"{EX}g0", f"{EX}g1"))
            for engine in (node, alone):
                engine.load(io.BytesIO(text), format="nq", graph=graph)
            update, node = random_update(rng), wires.nodes[rng.randrange(2)].engine
            for engine in (node, alone):
                engine.update(update)
            for one in wires.nodes:
                assert answers(one.engine) == answers(alone)
        assert not all_held(wires)


def begun(wires: Wires) -> threading.Thread:
    """A load of a hundred triples at the first node, which has come to all."""
    text = io.BytesIO(b"".join(lines(100)))
    loading = threading.Thread(target=wires.nodes[0].engine.load, args=(text,), kwargs={"format": "nt"})
    loading.start()
    until(lambda: all(len(node.store.staging) for node in wires.nodes))
    return loading


def test_while_a_load_is_built_updates_and_queries_go_on(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "APART_ROWS", 20)
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        loading = begun(wires)
        other.update(f"INSERT DATA {{ <{EX}x> <{EX}q> 1 }}")
        assert len(engine.query("SELECT * { ?s ?p ?o }")) == 1
        gate.set()
        loading.join()
        assert len(other.query("SELECT * { ?s ?p ?o }")) == 101
        assert not all_held(wires)


def test_what_comes_behind_the_record_of_a_load_waits_until_it_is_built(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_module, "BUILD_S", 0.0)
    monkeypatch.setattr(building, "APART_ROWS", 20)
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        loading = begun(wires)
        until(lambda: all(node.host.node.control.last_sn.minor > 0 for node in wires.nodes))
        later = threading.Thread(target=other.update, args=(f"INSERT DATA {{ <{EX}x> <{EX}q> 1 }}",))
        later.start()
        until(lambda: all(node.host.node.control.last_sn.minor > 1 for node in wires.nodes))
        assert len(engine.query("SELECT * { ?s ?p ?o }")) == 0
        assert later.is_alive()
        gate.set()
        loading.join()
        later.join()
        assert len(engine.query("SELECT * { ?s ?p ?o }")) == 101


def lines(count: int) -> Iterator[bytes]:
    for row in range(count):
        yield f"<{EX}s{row}> <{EX}p> <{EX}o{row % 7}> .\n".encode()


def test_an_update_that_is_overtaken_while_it_is_built_is_void_and_evaluated_again(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is small, and needs no building."""
    with wired(2) as wires:
        engine, other = (node.engine for node in wires.nodes)
        gate.set()
        engine.load(io.BytesIO(b"".join(lines(100))), format="nt")
        monkeypatch.setattr(building, "APART_ROWS", 20)
        waits, begun = threading.Event(), threading.Event()
        build = building.Building._build_update

        def slowly(*given: Any) -> Any:
            begun.set()
            assert waits.wait(30)
            return build(*given)

        monkeypatch.setattr(building.Building, "_build_update", slowly)
        text = f"DELETE {{ ?s <{EX}p> ?o }} INSERT {{ ?s <{EX}q> ?o }} WHERE {{ ?s <{EX}p> ?o }}"
        changing = threading.Thread(target=engine.update, args=(text,))
        changing.start()
        assert begun.wait(30)
        other.update(f"INSERT DATA {{ <{EX}late> <{EX}p> <{EX}late> }}")
        waits.set()
        changing.join()
        assert len(engine.query(f"SELECT * {{ ?s <{EX}q> ?o }}")) == 101, "it has seen the other one's triple"
        assert len(other.query(f"SELECT * {{ ?s <{EX}p> ?o }}")) == 0
        assert not all_held(wires)


@pytest.mark.parametrize("ends_in_building", [False, True])
def test_a_load_that_breaks_off_leaves_nothing(ends_in_building: bool, gate: threading.Event) -> None:
    """It ends while the runs are being built, or when they are."""

    def broken() -> Iterator[Encoded]:
        for number in range(8):
            yield chunk(f"x{number}-")
        if not ends_in_building:
            gate.set()
        raise ZeroDivisionError

    with wired(2) as wires:
        with pytest.raises(ZeroDivisionError):
            changes_of(wires).add(broken(), None)
        gate.set()
        until(lambda: not any(node.store.staging.size_bytes for node in wires.nodes))
        assert len(wires.nodes[0].engine.query("SELECT * { ?s ?p ?o }")) == 0
        until(lambda: not all_held(wires))


def test_a_share_that_was_finished_and_is_given_up_holds_nothing() -> None:
    with wired(1) as wires:
        store = wires.nodes[0].store
        store.stage("a", 0, chunk("a", 100), is_last=True, into=[None])
        store.wait_for_built("a", 10)
        assert all_held(wires) == ["a load", "expected"]
        store.unstage("a")
        assert not all_held(wires)


def test_what_other_nodes_had_kept_of_a_load_is_not_left_out() -> None:
    """A node that joins has had the second part itself."""
    with wired(1) as wires:
        store = wires.nodes[0].store
        store.stage("a", 0, chunk("b", 100), is_last=True, into=[None])
        store.wait_for_built("a", 10)
        with store.core.lock:
            store.staging.adopt("a", [(chunk("a", 50), False)])
            assert store.staging.finish("a") is None
        assert not all_held(wires)


def test_small_shares_and_updates_are_not_built_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "APART_ROWS", 50)
    begun: list[object] = []
    for name in ("_build_load", "_build_update"):
        monkeypatch.setattr(building.Building, name, lambda self, *given: begun.append(given))
    with wired(1) as wires:
        engine = wires.nodes[0].engine
        engine.load(io.BytesIO(b"".join(lines(30))), format="nt")
        engine.update(f"INSERT {{ ?s <{EX}q> 1 }} WHERE {{ ?s ?p ?o }}")
        assert not begun
        assert len(engine.query("SELECT * { ?s ?p ?o }")) == 60


def test_what_building_raises_is_raised_by_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise MemoryError("no room for a run")

    monkeypatch.setattr(building, "build_run", fails)
    with wired(1) as wires, pytest.raises(MemoryError, match="no room"):
        changes_of(wires).add([chunk("a", 100)], None)


def test_a_node_that_starts_again_builds_the_loads_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    seal: Callable[..., Any] = building.seal
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        nodes[0].engine.load(io.BytesIO(b"".join(lines(300))), format="nt")
        nodes[0].engine.update(f"DELETE WHERE {{ ?s <{EX}p> <{EX}o3> }}")
        cut_off(nodes)
    monkeypatch.setattr("wukongs.cluster.node_records.seal", lambda *given: (built.append(1), seal(*given)))
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        assert len(nodes[1].engine.query("SELECT * { ?s ?p ?o }")) == 300 - 43
    assert len(built) == 2
