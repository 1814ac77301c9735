"""SlicePuller, in bad moments: a stream waits for its own owners only, and what has come is there once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from tests.unit.cluster.wires import EX, STREAM, wired
from wukongs.cluster.node_store import MissingSlices
from wukongs.cluster.slices import SLICES, SlicePuller
from wukongs.errors import DataError, NodeUnavailable, StreamError, WukongsError
from wukongs.wire.assignment import SHARD_COUNT, Assignment
from wukongs.wire.packets import Packet

LONG_S = 60.0
S, T = MissingSlices("s", 1, 2), MissingSlices("t", 5, 5)


class Store:
    """What is missing until it has come."""

    def __init__(self, *missing: MissingSlices) -> None:
        self._missing = list(missing)
        self.added: list[tuple[MissingSlices, list[str]]] = []
        self.on_add: Callable[[], None] = lambda: None
        self.is_whole = threading.Event()
        self.lacks_slices = threading.Event()

    def missing_slices(self) -> list[MissingSlices]:
        return list(self._missing)

    def add_slices(self, missing: MissingSlices, answers: Sequence[Packet], mine: object) -> None:
        self.on_add()
        self.added.append((missing, [answer.kind for answer in answers]))
        self._missing.remove(missing)
        if not self._missing:
            self.is_whole.set()


class Peers:
    """Node 0 of three. away: nodes that do not answer; lacks: streams of which nobody has anything to answer."""

    me = 0

    def __init__(self) -> None:
        self.away: set[int] = set()
        self.lacks: set[str] = set()
        self.asked: list[tuple[int, str]] = []
        self.on_error: Callable[[], None] = lambda: None

    def ask(self, asked: Sequence[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
        self.asked += [(node, packet.fields["stream"]) for node, packet in asked]
        error: WukongsError | None = None
        if any(node in self.away for node, _ in asked):
            error = NodeUnavailable("a node is away")
        if any(packet.fields["stream"] in self.lacks for _, packet in asked):
            error = StreamError("not inserted yet")
        if error is not None:
            self.on_error()
            raise error
        return [Packet(f"from {node}") for node, _ in asked]


@contextmanager
def puller(
    store: Store, peers: Peers, assignment: Callable[[], Assignment], failed: list[BaseException] | None = None
) -> Iterator[SlicePuller]:
    fail = (lambda error: None) if failed is None else failed.append
    made = SlicePuller(store, peers, assignment, fail)  # type: ignore[arg-type]
    made.start()
    store.lacks_slices.set()
    try:
        yield made
    finally:
        made.close()


def owned_by(*owners: int) -> Assignment:
    """Shards owned by nodes in turn; node 0 reads."""
    return Assignment(np.resize(np.array(owners, np.int32), SHARD_COUNT), 0)


def test_when_an_owner_is_away_the_next_replica_is_asked_as_soon_as_it_is_the_owner() -> None:
    store, peers = Store(S), Peers()
    peers.away = {1}
    owners = [owned_by(0, 1)]
    peers.on_error = lambda: owners.append(owned_by(0, 2)) if len(peers.asked) == 3 else None
    with puller(store, peers, lambda: owners[-1]):
        assert store.is_whole.wait(LONG_S)
    assert [node for node, _ in peers.asked] == [1, 1, 1, 2]
    assert store.added == [(S, ["from 2"])]


def test_a_stream_does_not_wait_for_the_owners_of_another_one() -> None:
    store, peers = Store(S, T), Peers()
    peers.lacks = {"s"}
    peers.on_error = lambda: peers.lacks.clear() if (T, ["from 1"]) in store.added else None
    with puller(store, peers, lambda: owned_by(0, 1)):
        assert store.is_whole.wait(LONG_S)
    assert [missing for missing, _ in store.added] == [T, S]


def test_streams_are_asked_for_together() -> None:
    missing = [MissingSlices(name, 1, 2) for name in "abcdef"]
    store, peers = Store(*missing), Peers()
    asks: list[int] = []
    ask = peers.ask

    def counted(asked: Sequence[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
        asks.append(len(asked))
        return ask(asked, timeout_s)

    peers.ask = counted  # type: ignore[method-assign]
    with puller(store, peers, lambda: owned_by(0, 1, 2)):
        assert store.is_whole.wait(LONG_S)
    assert asks == [8, 4]
    assert store.added == [(one, ["from 1", "from 2"]) for one in missing]


def test_a_shard_that_nobody_holds_is_waited_for() -> None:
    store, peers, tries = Store(S), Peers(), [0]

    def assignment() -> Assignment:
        tries[0] += 1
        if tries[0] < 3:
            raise NodeUnavailable("shard 7 has no node left")
        return owned_by(0, 2)

    with puller(store, peers, assignment):
        assert store.is_whole.wait(LONG_S)
    assert store.added == [(S, ["from 2"])]


def test_what_cannot_be_put_together_ends_the_node() -> None:
    store, peers = Store(S), Peers()
    failed: list[BaseException] = []

    def break_down() -> None:
        raise AssertionError("rows before: -3")

    store.on_add = break_down
    with puller(store, peers, lambda: owned_by(0, 1), failed) as made:
        made._thread.join(LONG_S)
        assert not made._thread.is_alive()
    assert [str(error) for error in failed] == ["rows before: -3"]


def test_the_node_whose_windows_stand_still_ends() -> None:
    with wired(1) as wires:
        host = wires.nodes[0].host
        host.fail(AssertionError("rows before: -3"))
        host._thread.join(LONG_S)
        with pytest.raises(WukongsError, match="node 0 has failed: rows before: -3"):
            host.check()


def test_slices_that_come_twice_are_in_a_window_once() -> None:
    query = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{STREAM}> [RANGE 200ms STEP 200ms] WHERE {{ ?s <{EX}p> ?o }}"
    with wired(2) as wires:
        node = wires.nodes[0]
        add = node.store.add_slices

        def add_twice(missing: MissingSlices, answers: Sequence[Packet], mine: object) -> None:
            for _ in range(2):
                add(missing, answers, mine)  # type: ignore[arg-type]

        node.store.add_slices = add_twice  # type: ignore[method-assign, assignment]
        stream = node.engine.stream(STREAM, True, batch_ms=100)
        registered = node.engine.register(query)
        fault = wires.lose(SLICES, 1, count=3)
        stream.push([(f"<{EX}{name}>", f"<{EX}p>", f"<{EX}o>", time_ms) for name, time_ms in (("a", 50), ("b", 150))])
        stream.push([(f"<{EX}c>", f"<{EX}p>", f"<{EX}o>", 350)])
        stream.advance(1000)
        windows = registered.results(timeout_s=LONG_S)
        assert [sorted(str(row[0]) for row in next(windows)) for _ in range(2)] == [[f"{EX}a", f"{EX}b"], [f"{EX}c"]]
        assert fault.count == 0


def test_what_is_asked_in_another_way_is_refused() -> None:
    with wired(1) as wires:
        answer = wires.networks[0].handlers[SLICES]
        fields = {"stream": STREAM, "first": 1, "last": 2}
        shards = np.ones(SHARD_COUNT, np.bool_)
        for wrong in ({"stream": 1}, {"first": "1"}, {"last": None}):
            with pytest.raises(DataError, match="slices: expected stream, first, last and shards"):
                answer(Packet(SLICES, {**fields, **wrong}, {"shards": shards}))
        with pytest.raises(DataError, match=r"expected shards as bool\[1024\]"):
            answer(Packet(SLICES, fields, {"shards": shards[1:]}))
        with pytest.raises(StreamError, match=f"unknown stream {STREAM}"):
            answer(Packet(SLICES, fields, {"shards": shards}))
