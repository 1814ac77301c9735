"""A node whose threads hang ends, though it could go on to say that it is there; one that is busy does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import pytest

from tests.clusters import cluster
from wukongs.cluster import cluster_node
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.health import Advance, Echo, Health, Part
from wukongs.errors import NodeUnavailable, WukongsError
from wukongs.wire.packets import Packet

INSERT = "INSERT DATA { <http://ex/a> <http://ex/p> <http://ex/%d> }"
WAIT_S = 60


def never(error: object) -> None:
    raise AssertionError(error)


def test_a_part_that_does_not_move_is_named_after_its_time() -> None:
    asked = SimpleQueue[Callable[[], None]]()
    health = Health(1, {"quick": Part(lambda: True, 2.0), "slow": Part(Echo(asked.put), 2.0)}, never)
    assert health.look(1.0) is None
    asked.get()()  # it has moved
    for _ in range(3):
        assert health.look(1.0) is None
    assert health.look(1.0) == "slow"


def test_a_part_that_comes_late_counts_from_anew() -> None:
    asked = SimpleQueue[Callable[[], None]]()
    health = Health(1, {"slow": Part(Echo(asked.put), 2.0)}, never)
    for _ in range(5):
        for _ in range(3):
            assert health.look(1.0) is None
        asked.get()()


def test_work_that_is_done_is_a_move_and_so_is_none() -> None:
    state = [True, 0]
    moves = Advance(lambda: (bool(state[0]), state[1]))
    assert moves()
    assert not moves()
    state[1] += 1
    assert moves()
    assert not moves()
    state[0] = False
    assert moves()


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@contextmanager
def closing(gate: threading.Event) -> Iterator[None]:
    """Let what hangs go on before the nodes are closed, which wait for it."""
    try:
        yield
    finally:
        gate.set()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What hangs waits for this."""
    event = threading.Event()
    yield event
    event.set()


def hang_socket(node: ClusterNode, gate: threading.Event) -> None:
    node.network._on_tell = lambda *_: gate.wait(WAIT_S)  # type: ignore[assignment]


def hang_protocol(node: ClusterNode, gate: threading.Event) -> None:
    node.host.call(lambda: gate.wait(WAIT_S))


def hang_injector(node: ClusterNode, gate: threading.Event) -> None:
    node.store.injector._step = lambda: (None, gate.wait(WAIT_S))  # type: ignore[method-assign]


def hang_workers(node: ClusterNode, gate: threading.Event, count: int = 32) -> None:
    node.network._handlers["hang"] = lambda _: Packet("hang", {"n": gate.wait(WAIT_S)})  # type: ignore[index]
    for _ in range(count):
        node.network._workers[0].submit(lambda: node.network._answer_mine(Packet("hang")))


HANGING: dict[str, Callable[[ClusterNode, threading.Event], None]] = {
    "the thread of the socket": hang_socket,
    "the protocol's thread": hang_protocol,
    "each worker of level 0": hang_workers,
    "the injector": hang_injector,
}


@pytest.mark.parametrize(
    "part", [name if "socket" in name else pytest.param(name, marks=pytest.mark.slow) for name in HANGING]
)
def test_a_node_of_which_a_part_hangs_ends_and_the_others_go_on(part: str, gate: threading.Event) -> None:
    told: list[BaseException] = []
    with cluster(3, 2) as nodes, closing(gate):
        nodes[0].engine.update(INSERT % 1)
        for other, watched in nodes[
            1
        ].health_parts.items():  # others may wait for the one that hangs: it holds the lock
            watched.limit_s = min(watched.limit_s, 2.0) if other.startswith(part) else 2.0 * WAIT_S
        nodes[1].host.on_failure = told.append
        HANGING[part](nodes[1], gate)
        for number in range(2, 1000):
            if told:
                break
            try:  # the injector gets something to do
                nodes[0].engine.update(INSERT % number, timeout_s=0.5)
            except WukongsError:
                continue
        wait_until(lambda: told, "it has ended")
        assert str(told[0]).startswith(f"node 1: {part}")
        if part != "the injector":  # which holds the lock
            with pytest.raises(NodeUnavailable, match=part):
                nodes[1].engine.update(INSERT % 0)
        gate.set()
        nodes[1].close()  # as its process does
        nodes[0].engine.update(INSERT % 1001, timeout_s=WAIT_S)
        assert nodes[0].engine.stats()["members"]["1"] in ("out", "silent")


@pytest.mark.slow
def test_a_node_that_is_busy_goes_on(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_node, "WORKERS_S", 0.2)
    with cluster(2, 2, silence_pulses_max=50) as nodes, closing(gate):
        assert nodes[1].health_parts["each worker of level 0"].limit_s == 1.0
        limit_s = nodes[1].health_parts["each worker of level 0"].limit_s = 3.0
        hang_workers(nodes[1], gate, 31)
        begun_s, number = time.monotonic(), 0
        while time.monotonic() < begun_s + 2 * limit_s:
            time.sleep(0.1)
            nodes[0].engine.update(INSERT % number, timeout_s=WAIT_S)
            number += 1
        assert nodes[1].host.failure is None
        gate.set()
