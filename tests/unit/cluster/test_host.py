"""Host, in bad moments: who waits for it is told what has become of it, and nothing goes on half done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tests.clusters import PATIENT, cluster
from tests.failing_disk import CountingDisk
from tests.unit.wire.conftest import wait_until
from wukongs.cluster import host as host_module
from wukongs.cluster.host import Disk, Dropped, Host
from wukongs.cluster.node_disk import NodeDisk, NodeFolder
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.times import first_tick_of
from wukongs.errors import DataError, NodeUnavailable, OutcomeUnknown, WukongsError
from wukongs.protocol import events as ev
from wukongs.protocol.messages import Gossip, Incarnation, Message
from wukongs.protocol.records import DeclareStream, OpenPartition
from wukongs.protocol.state import Cluster
from wukongs.settings import Settings
from wukongs.wire import bound_socket
from wukongs.wire.sharding import ShardMap

S = "http://ex/s"
SHORT_S, LONG_S = 0.02, 60.0
ME = Incarnation(0, 0, 1)
OPTIONS = '{"timing": [], "batch_ms": 100, "into": null, "history_ms": 1000, "slice_bytes_max": 4096, "index": "all"}'
DECLARED = DeclareStream(S, ("",), 100, first_tick=first_tick_of(100), payload=OPTIONS)
BATCH = 12_000_000_000


@contextmanager
def hosted(node_count: int = 1, is_started: bool = True, disk: Disk | None = None) -> Iterator[Host]:
    """A node that nobody else hears: one of several never has a majority."""
    store = NodeStore(Settings(), 0, ShardMap.even(node_count))
    host = Host(Cluster(node_count), ME, store, lambda *_: None, pulse_s=0.002, disk=disk)
    store.start()
    if is_started:
        host.start()
    try:
        yield host
    finally:
        host.close()
        store.close()


@dataclass
class Call:
    """A call in a thread of its own, and what it has come to."""

    function: Callable[[], object]
    outcome: object = None

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome = self.function()
        except BaseException as error:
            self.outcome = error

    def end(self) -> object:
        """Return its outcome. A call that nobody answers comes to none in time."""
        self._thread.join(LONG_S)
        assert not self._thread.is_alive(), "it waits in vain"
        return self.outcome


@contextmanager
def busy(host: Host) -> Iterator[None]:
    """Keep the protocol's thread busy."""
    begun, ends = threading.Event(), threading.Event()
    host._inbox.put(lambda: (begun.set(), ends.wait(LONG_S)))
    assert begun.wait(LONG_S)
    try:
        yield
    finally:
        ends.set()


def declare(host: Host) -> None:
    host.carry_out(ev.Submitted(DECLARED), LONG_S)


def offer(host: Host, end: int = 1, view: int | None = None, piece: object = None) -> object:
    return host.run(lambda: host.take_in(ev.PieceOffered(S, "", 1, BATCH, end - 1, end, view, piece)), 2 * LONG_S)


def wait_for_calls(host: Host, count: int) -> None:
    """Return when so many calls wait for the thread."""
    while host._inbox.qsize() < count:
        threading.Event().wait(0.001)


def test_calls_after_the_end_are_refused_by_name() -> None:
    with hosted() as host:
        declare(host)
        host.close()
        host.close()
        calls: list[Callable[[], object]] = [
            lambda: offer(host),
            lambda: host.submit(ev.Submitted(DECLARED), LONG_S),
            lambda: host.carry_out(ev.Submitted(DECLARED), LONG_S),
            lambda: host.wait_until(lambda _: False, LONG_S, "nothing"),
            host.check,
        ]
        for call in calls:
            with pytest.raises(NodeUnavailable, match="node 0 is closing"):
                call()
        waiting = host._inbox.qsize()
        host.receive(Message(Incarnation(1, 0, 1), Gossip(())))
        host.post(ev.Submitted(DECLARED))
        assert host._inbox.qsize() == waiting, "nobody takes them any more"


def test_who_waits_when_it_ends_is_told_at_once() -> None:
    with hosted(3) as host:
        calls = [
            Call(lambda: host.submit(ev.Submitted(DECLARED), 2 * LONG_S)),
            Call(lambda: host.wait_until(lambda _: False, 2 * LONG_S, "nothing")),
        ]
        host.wait_until(lambda node: bool(node.pending), LONG_S, "the record")
        host.close()
        assert [type(call.end()) for call in calls] == [OutcomeUnknown, NodeUnavailable]


def test_calls_that_the_thread_never_comes_to_are_told_so() -> None:
    with hosted() as host:
        declare(host)
        with busy(host):
            waiting = host._inbox.qsize()
            calls = [Call(lambda: offer(host)), Call(lambda: host.submit(ev.Submitted(DECLARED), 2 * LONG_S))]
            wait_for_calls(host, waiting + 2)
            host._is_closed = True
        closing = "node 0 is closing"
        assert [str(call.end()) for call in calls] == [closing, f"{closing}. It may still be done"]


def test_a_store_that_fails_while_a_piece_is_taken_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The piece's rows are kept, and the protocol does not know of them: sent again, they would be there twice."""
    told: list[BaseException] = []
    with hosted() as host:
        declare(host)
        host.on_failure = told.append

        def take(piece: object) -> None:
            raise MemoryError(f"no room for {piece}")

        monkeypatch.setattr(host._store, "take", take)
        with pytest.raises(WukongsError, match=r"node 0 has failed: no room for rows\. See its log"):
            offer(host, piece="rows")
        host._thread.join(LONG_S)
        assert [str(error) for error in told] == ["no room for rows"]
        with pytest.raises(WukongsError, match="node 0 has failed"):
            offer(host)
        with pytest.raises(WukongsError, match="no room for rows"):
            host._store.core.check_is_open()


def test_a_store_that_cannot_apply_a_record_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    with hosted() as host:
        host.wait_until(lambda node: node.exposed is not None, LONG_S, "the first SN")
        monkeypatch.setattr(host._store, "apply", lambda *_: (_ for _ in ()).throw(AssertionError("not in order")))
        failed = WukongsError("the store cannot even fail")
        monkeypatch.setattr(host._store, "fail", lambda _: (_ for _ in ()).throw(failed))
        told: list[BaseException] = []
        host.on_failure = told.append
        monkeypatch.setattr(threading, "excepthook", lambda _: None)
        with pytest.raises(WukongsError, match="node 0 has failed: not in order"):
            host.submit(ev.Submitted(DECLARED), LONG_S)
        host._thread.join(LONG_S)
        assert [str(error) for error in told] == ["not in order"], "whoever runs the node is told in any case"


def test_a_node_whose_store_has_failed_ends_so_that_others_answer_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails in the injector's thread fails reads, and nobody else hears of it."""
    with hosted() as host:
        host.wait_until(lambda node: node.exposed is not None, LONG_S, "the first SN")
        told: list[BaseException] = []
        host.on_failure = told.append
        injector = host._store.injector

        def fail(*_: object) -> None:
            raise AssertionError("a record that was never staged")

        monkeypatch.setattr(injector, "_step", fail)
        with host._store.core.lock:
            injector.wake()
        host._thread.join(LONG_S)
        assert [str(error) for error in told] == ["a record that was never staged"]
        with pytest.raises(WukongsError, match="node 0 has failed: a record that was never staged"):
            host.check()


def test_a_single_voter_applies_a_record_once_its_disk_has_it(tmp_path: Path) -> None:
    """It commits a record with its save. Other threads act on applied records and send their indexes to other nodes."""
    seen: list[tuple[bool, bool]] = []

    def is_applied(host: Host) -> tuple[bool, bool]:
        assert isinstance(host._store, NodeStore)
        return S in host._store.records.keys, S in host.node.control.keys

    class Watched(CountingDisk):
        """Notes at each sync of the log, once the declaration is in it, whether store and host have applied that."""

        is_declared = False

        def write(self, file: BinaryIO, data: Any) -> None:
            super().write(file, data)
            self.is_declared |= S.encode() in bytes(data)

        def fsync(self, file: BinaryIO) -> None:
            if self.is_declared:
                seen.append(is_applied(host))
            super().fsync(file)

    disk = NodeDisk(NodeFolder(tmp_path, 0, "one node", Watched()))
    disk.begin()
    try:
        with hosted(disk=disk) as host:
            declare(host)
            assert is_applied(host) == (True, True)
    finally:
        disk.close()
    assert seen[0] == (False, False)


def test_messages_beyond_what_may_wait_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "INBOX_MAX", 10)
    with hosted() as host:
        declare(host)
        with busy(host):
            for _ in range(15):
                host.receive(Message(Incarnation(0, 0, 0), Gossip(())))
            assert (host.dropped_messages, host._inbox.qsize()) == (5, 10)
            call = Call(lambda: offer(host))
            wait_for_calls(host, 11)
        assert call.end() == (1, 0, False), "what is asked here is not dropped"


def test_a_piece_is_not_taken_under_another_view_than_its_terms_were_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []
    with hosted() as host:
        declare(host)
        monkeypatch.setattr(host._store, "take", kept.append)
        view = host.node.control.view
        assert offer(host, view=view - 1, piece="rows") == (0, 0, False)
        assert host.node.refused == {"a piece of another view": 1}
        assert not kept
        assert offer(host, view=view, piece="rows") == (1, 0, False)
        assert offer(host, view=view, piece="again") == (1, 0, False)
        assert kept == ["rows"], "a repeated piece is not kept"
        assert offer(host, end=3, piece="later") == (1, 0, False)
        assert kept == ["rows"], "nor is one behind a gap"
        assert offer(host, end=2) == (2, 0, False)
        assert kept == ["rows"], "nor is anything of rows that the store has, or that were set aside"


def test_a_record_that_cannot_be_carried_out_is_refused_by_name() -> None:
    with hosted() as host:
        wrong = DeclareStream(S, ("",), 100, first_tick=first_tick_of(100), payload="{")
        with pytest.raises(DataError, match="expected a payload in JSON"):
            host.carry_out(ev.Submitted(wrong), LONG_S)


def test_of_those_who_ask_for_the_same_the_later_ones_are_told_that_it_is_no_news() -> None:
    with hosted() as host:
        declare(host)
        opened = ev.Submitted(OpenPartition(S, "other"))
        with busy(host):
            waiting = host._inbox.qsize()
            calls = [Call(lambda: host.submit(opened, LONG_S)) for _ in range(2)]
            wait_for_calls(host, waiting + 2)
        outcomes = [call.end() for call in calls]
        # One is applied as soon as it is handed in: a node that is alone agrees with itself.
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Applied", "Dropped"]
        with pytest.raises(Dropped, match="OpenPartition: superseded by another record of the log"):
            host.submit(opened, LONG_S)


def test_who_does_not_wait_any_more_is_forgotten() -> None:
    with hosted(3) as host:
        for _ in range(4):
            with pytest.raises(
                NodeUnavailable, match=rf"a majority of the cluster's 3 nodes did not answer within {SHORT_S} s"
            ):
                host.submit(ev.Submitted(DECLARED), SHORT_S)
        host.run(lambda: None, LONG_S)  # the thread has come to all of them
        assert [len(outcomes) for outcomes in host._waiting.values()] == [1]
        assert not host._outcomes


def test_waiting_ends_by_name() -> None:
    with hosted(3) as host:
        with pytest.raises(NodeUnavailable, match=rf"node 0: waited {SHORT_S} s for a miracle: is a node away\?"):
            host.wait_until(lambda _: False, SHORT_S, "a miracle")
        answers = iter([False, True])
        host.wait_until(lambda _: next(answers), 0.0, "it holds when the time has passed")
        with pytest.raises(NodeUnavailable, match="for record 7 of the log"):
            host.wait_for_record(7, SHORT_S)
        with busy(host), pytest.raises(NodeUnavailable, match=r"the node's protocol did not answer within 0\.02 s"):
            host.run(lambda: None, SHORT_S)


def test_a_node_whose_socket_fails_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> object:
        raise MemoryError

    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        told: list[BaseException] = []
        for node in nodes:
            node.host.on_failure = told.append
        monkeypatch.setattr(bound_socket, "receive_framed", no_memory)
        wait_until(lambda: bool(told), "the one that was told something first has ended")
        assert isinstance(told[0], MemoryError)
        with pytest.raises(WukongsError):
            next(node for node in nodes if node.host.failure is not None).engine.query("ASK { ?s ?p ?o }")
