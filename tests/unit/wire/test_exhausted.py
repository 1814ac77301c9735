"""Threads, memory and descriptors come to an end: a node sheds load with a named error, or ends, and serves again."""

from __future__ import annotations

import errno
import socket
import threading
import time
from typing import Any

import pytest
import zmq

from tests.unit.wire.conftest import ANY_PORT, Nodes, echo, wait_until
from tests.unit.wire.pieces import STREAM, make_piece, many
from tests.unit.wire.test_client_socket import Ingest
from wukongs.errors import BudgetExceeded, NodeUnavailable, WukongsError
from wukongs.wire import bound_socket, descriptors, ingesting, transport
from wukongs.wire import workers as workers_module
from wukongs.wire.client_channel import ClientChannel
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.link import IngestLink
from wukongs.wire.packets import Packet
from wukongs.wire.workers import Workers


class Threads:
    """Makes threads fail to start while there are none left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.are_left = True
        start = threading.Thread.start

        def maybe(thread: threading.Thread) -> None:
            if not self.are_left:
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", maybe)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(monkeypatch)


def test_a_thread_that_cannot_start_is_not_counted(threads: Threads) -> None:
    workers, done = Workers("test", 2, 10), list[int]()
    threads.are_left = False
    assert not any(workers.submit(lambda: done.append(-1)) for _ in range(50))
    threads.are_left = True
    for number in range(20):
        wait_until(lambda number=number: workers.submit(lambda: done.append(number)), "there is room")  # type: ignore[misc]
    wait_until(lambda: sorted(done) == list(range(20)), "all are done")
    assert workers.close(20)


def test_what_runs_takes_the_work_of_a_thread_that_cannot_start(threads: Threads) -> None:
    workers, done, may_go_on = Workers("test", 2, 10), list[int](), threading.Event()
    assert workers.submit(lambda: done.append(int(may_go_on.wait(20))))
    threads.are_left = False
    assert workers.submit(lambda: done.append(2))
    may_go_on.set()
    wait_until(lambda: done == [1, 2], "one thread has done both")
    assert workers.close(20)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_is_replaced() -> None:
    workers, done = Workers("test", 1, 10), threading.Event()

    def leave() -> None:
        raise SystemExit

    assert workers.submit(leave)
    wait_until(lambda: not workers._threads, "it has ended")
    assert workers.submit(done.set)
    assert done.wait(20)
    assert workers.close(20)


def test_threads_without_work_end_and_others_take_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "IDLE_S", 0.05)
    workers, done, may_go_on = Workers("test", 8, 100), list[int](), threading.Event()
    for round_ in range(2):
        for _ in range(8):
            assert workers.submit(lambda: done.append(int(may_go_on.wait(20))))
        assert len(workers._threads) == 8
        may_go_on.set()
        wait_until(lambda: len(workers._threads) == 1, "the other threads have ended")
        count = 8 * (round_ + 1)
        wait_until(lambda count=count: len(done) == count, "the last one has done its task")  # type: ignore[misc]
        assert done == [1] * count
        may_go_on.clear()
    assert workers.close(20)


def test_no_task_is_lost_where_threads_end_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "IDLE_S", 0.0001)
    workers, done = Workers("test", 3, 10_000), list[int]()
    for number in range(2000):
        assert workers.submit(lambda number=number: done.append(number))  # type: ignore[misc]
        if number % 7 == 0:
            time.sleep(0.0002)
    wait_until(lambda: len(done) == 2000, "all are done")
    assert sorted(done) == list(range(2000))
    assert workers.close(20)


def test_the_last_thread_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "IDLE_S", 0.01)
    workers, done = Workers("test", 4, 10), list[int]()
    for number in range(4):
        assert workers.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    wait_until(lambda: len(done) == 4, "all are done")
    wait_until(lambda: len(workers._threads) == 1, "the others have ended")
    time.sleep(0.1)
    assert workers.has_threads
    assert workers.close(20)


def test_a_request_that_finds_no_memory_or_no_thread_is_told(nodes: Nodes, threads: Threads) -> None:
    def fail(_: Packet) -> Packet:
        raise MemoryError

    told: list[tuple[str, str]] = []
    asker = nodes.start(0)
    nodes.join(asker, nodes.start(1, {"stage": fail}, exhausted=lambda kind, error: told.append((kind, str(error)))))
    threads.are_left = False
    with pytest.raises(NodeUnavailable, match="the node is busy"):
        asker.ask([(1, Packet("stage"))], 20)
    threads.are_left = True
    with pytest.raises(WukongsError, match="too little memory"):
        asker.ask([(1, Packet("stage"))], 20)
    assert told == [
        ("stage", "no thread can be started that would answer other nodes"),
        ("stage", "no memory is left to answer 'stage' of other nodes"),
    ]


def test_a_request_that_finds_no_descriptor_is_told(nodes: Nodes) -> None:
    def fail(_: Packet) -> Packet:
        raise OSError(errno.EMFILE, "Too many open files")

    told: list[tuple[str, str]] = []
    asker = nodes.start(0)
    nodes.join(asker, nodes.start(1, {"stage": fail}, exhausted=lambda kind, error: told.append((kind, str(error)))))
    with pytest.raises(NodeUnavailable, match="no file descriptors left"):
        asker.ask([(1, Packet("stage"))], 20)
    ((kind, said),) = told
    assert (kind, said[:45]) == ("stage", "no file descriptor is left to answer 'stage' ")


def test_a_node_that_can_open_no_connection_for_a_while_is_told(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    asker = nodes.start(0, exhausted=lambda kind, error: told.append((kind, str(error))))
    nodes.join(asker, nodes.start(1, {"echo": echo}))

    def none(*_: Any) -> Any:
        raise zmq.ZMQError(errno.EMFILE)

    def no_direct_one(*_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(descriptors, "LACK_S", 0.3)

    def ask_in_vain() -> None:
        with pytest.raises(NodeUnavailable, match="this process cannot open one more connection"):
            asker.ask([(1, Packet("echo"))], 20)

    with monkeypatch.context() as patched:
        patched.setattr(transport.context(), "socket", none, raising=False)
        patched.setattr(socket, "create_connection", no_direct_one)
        ask_in_vain()
        assert told == []
    assert asker.ask([(1, Packet("echo"))], 20)[0].kind == "echo"  # it has passed
    asker._askers[0].keep_only(set())
    with monkeypatch.context() as patched:
        patched.setattr(transport.context(), "socket", none, raising=False)
        patched.setattr(socket, "create_connection", no_direct_one)
        wait_until(lambda: bool([ask_in_vain(), told][1]), "it lasts")
    assert told[0][0] == ""


def test_a_node_without_threads_says_so_and_serves_again(nodes: Nodes, threads: Threads) -> None:
    networks = nodes.start(0), nodes.start(1, {"echo": echo})
    nodes.join(*networks)
    threads.are_left = False
    for _ in range(3):
        with pytest.raises(NodeUnavailable, match=r"the node is busy: .* or no thread can start. Ask again"):
            networks[0].ask([(1, Packet("echo"))], 20)
    threads.are_left = True
    assert networks[0].ask([(1, Packet("echo", {"n": 1}))], 20)[0].fields == {"n": 1}


NO_DESCRIPTORS = (OSError(errno.EMFILE, "Too many open files"), zmq.ZMQError(errno.EMFILE))


@pytest.mark.parametrize(
    ("error", "kind", "expected"),
    [
        (MemoryError(), BudgetExceeded, "the node has too little memory left for this request. Ask for less"),
        *((error, NodeUnavailable, r"the node has no file descriptors left \(.*ulimit -n") for error in NO_DESCRIPTORS),
    ],
)
def test_a_handler_that_lacks_something_refuses_by_name(
    nodes: Nodes, error: Exception, kind: type[WukongsError], expected: str
) -> None:
    def fail(_: Packet) -> Packet:
        raise error

    networks = nodes.start(0), nodes.start(1, {"rows": fail, "echo": echo}, workers_max=1, requests_max=2)
    nodes.join(*networks)
    for _ in range(3):
        with pytest.raises(kind, match=expected):
            networks[0].ask([(1, Packet("rows"))], 20)
    assert networks[0].ask([(1, Packet("echo", {"n": 1}))], 20)[0].fields == {"n": 1}


def test_a_client_that_cannot_connect_is_told_why_and_can_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = ClientSocket(ANY_PORT, {"echo": echo})
    channel = ClientChannel(clients.address)

    def none(*_: Any) -> Any:
        raise zmq.ZMQError(errno.EMFILE)

    with monkeypatch.context() as patched:
        patched.setattr(transport.context(), "socket", none, raising=False)
        with pytest.raises(NodeUnavailable, match=r"this process cannot open one more connection .*ulimit -n"):
            channel.ask(Packet("echo"), 20)
    assert channel.ask(Packet("echo", {"n": 1}), 20).fields == {"n": 1}
    channel.close()
    clients.close()


def test_what_is_told_waits_for_descriptors(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    networks = nodes.start(0), nodes.start(1)
    nodes.join(*networks)
    gone = networks[1]
    wait_until(lambda: networks[0].send(1, Packet("n")), "the connection is there")
    gone.close()
    wait_until(lambda: not networks[0].send(1, Packet("n")), "the connection is lost")

    def none(*_: Any) -> Any:
        raise NodeUnavailable("no descriptors")

    with monkeypatch.context() as patched:
        patched.setattr("wukongs.wire.network.Line", none)
        patched.setattr("wukongs.wire.network.RENEW_S", 0.0)
        for _ in range(3):
            assert not networks[0].send(1, Packet("n"))
    again = nodes.start(1, {}, gone.address, boot=2)
    again.join({0: networks[0].address})
    nodes.told[1].clear()
    wait_until(lambda: networks[0].send(1, Packet("n")) and bool(nodes.told[1]), "it is told")


def test_a_piece_that_there_is_no_memory_for_is_refused_and_the_next_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    ingest = Ingest()
    clients = ClientSocket(ANY_PORT, {}, ingest)
    read, is_full = ingesting.from_frames, threading.Event()

    def no_memory(frames: Any) -> Any:
        if is_full.is_set():
            raise MemoryError
        return read(frames)

    monkeypatch.setattr(ingesting, "from_frames", no_memory)
    link = IngestLink([clients.address])
    link.open(STREAM, "p0", 1)
    is_full.set()

    def send() -> None:
        link.send(make_piece(many(3)))
        link.flush(20)

    with pytest.raises(WukongsError, match="too little memory left for this request"):
        send()
    is_full.clear()
    link.close()
    link = IngestLink([clients.address])
    link.open(STREAM, "p0", 1)
    send()
    assert ingest.pieces == [3]
    link.close()
    clients.close()


def test_a_socket_that_fails_says_so_instead_of_staying_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[BaseException] = []
    is_told = threading.Event()

    def fail(error: BaseException) -> None:
        told.append(error)
        is_told.set()

    clients = ClientSocket(ANY_PORT, {"echo": echo}, failed=fail)

    def no_memory(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(bound_socket, "receive_framed", no_memory)
    channel = ClientChannel(clients.address)
    with pytest.raises(NodeUnavailable):
        channel.ask(Packet("echo"), 5)
    assert is_told.wait(20)
    assert isinstance(told[0], MemoryError)
    channel.close()
    clients.close()
