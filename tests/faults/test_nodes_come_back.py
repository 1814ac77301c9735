"""A node of a cluster is closed and starts anew: it takes over what the others hold, and every other one may go then.

An embedded engine is told the same, and says what every node has to answer.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest

import wukongs
from tests.clusters import READY_S, cluster, start_again
from wukongs.cluster import joining
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.live.pieces import Piece
from wukongs.protocol.records import Role
from wukongs.settings import Settings
from wukongs.store.encoder import encode_columns
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.link import IngestLink
from wukongs.wire.packets import Packet

EX = "http://ex/"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
QUERY = f"""REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <{EX}s> [RANGE 400ms STEP 200ms] WHERE {{ ?s <{EX}p> ?o }}"""
ASKED = (
    "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }",
    f"SELECT ?s {{ ?s <{EX}l> <{EX}o3> }}",
    f"SELECT ?s ?c {{ ?s <{EX}l> ?o . ?s a ?c }}",
    f"SELECT ?a ?b {{ ?a <{EX}p> ?o . ?b <{EX}p> ?o }}",
)
WAIT_S = 60.0
T = TypeVar("T")


def lines(name: str, count: int) -> bytes:
    rows = [f"<{EX}{name}{row}> <{EX}l> <{EX}o{row % 7}> ." for row in range(count)]
    rows += [f"<{EX}{name}{row}> <{TYPE}> <{EX}C{row % 3}> ." for row in range(count)]
    return "\n".join(rows).encode()


def tuples(name: str, *times: int) -> list[tuple[str, str, str, int]]:
    return [(f"<{EX}{name}>", f"<{EX}p>", f"<{EX}o{time_ms}>", time_ms) for time_ms in times]


def in_time(call: Callable[[], T]) -> T:
    """Call until there is no NodeUnavailable any more."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return call()
        except wukongs.NodeUnavailable:
            assert time.monotonic() < deadline


class Told:
    """An embedded engine that is told all that the nodes are told."""

    def __init__(self, nodes: list[ClusterNode]) -> None:
        self.nodes = nodes
        self.embedded = wukongs.Engine(settings=nodes[0].store.core.settings)
        self.at_ms = 1000

    def tell(self, node: int, call: Callable[[wukongs.Engine], object]) -> None:
        in_time(lambda: call(self.nodes[node].engine))
        call(self.embedded)

    def load(self, node: int, name: str, count: int, graph: str | None = None) -> None:
        self.tell(node, lambda engine: engine.load(io.BytesIO(lines(name, count)), graph=graph, format="nt"))

    def update(self, node: int, text: str) -> None:
        self.tell(node, lambda engine: engine.update(text))

    def declare(self, node: int) -> None:
        self.nodes[node].engine.stream(EX + "s", batch_ms=100)
        self.stream = self.embedded.stream(EX + "s", batch_ms=100)

    def push(self, node: int, name: str, count: int = 3) -> None:
        times = [self.at_ms + 40 * place for place in range(count)]
        self.at_ms = times[-1] + 40
        in_time(lambda: self.nodes[node].backend.declared(EX + "s").push(tuples(name, *times)))
        self.stream.push(tuples(name, *times))

    def push_signed(self, node: int, *signed: tuple[str, str, int]) -> None:
        """Push (sign, name, time) of triples that differ in their names alone."""
        signs, names, times = map(list, zip(*signed, strict=True))
        alike = {"predicate": [f"<{EX}p>"] * len(names), "object": [f"<{EX}o>"] * len(names)}
        table = pa.table({"subject": [f"<{EX}{name}>" for name in names], **alike, "timestamp_ms": times, "op": signs})
        in_time(lambda: self.nodes[node].backend.declared(EX + "s").push_arrow(table))
        self.stream.push_arrow(table)

    def check(self, *numbers: int) -> None:
        """Compare what these nodes answer."""
        for engine in (self.nodes[numbers[0]].engine, self.embedded):
            in_time(lambda engine=engine: engine.settle(WAIT_S))  # type: ignore[misc]
        for asked in ASKED:
            expected = sorted(self.embedded.query(asked).texts(), key=str)
            for number in numbers:
                engine = self.nodes[number].engine
                found = in_time(lambda engine=engine, asked=asked: sorted(engine.query(asked).texts(), key=str))  # type: ignore[misc]
                assert found == expected, (number, asked)


@contextmanager
def told(node_count: int, replica_count: int, settings: Settings | None = None) -> Iterator[Told]:
    with cluster(node_count, replica_count, settings) as nodes:
        try:
            of = Told(nodes)
            with of.embedded:
                yield of
        finally:
            for node in nodes:
                node.close()


@pytest.mark.slow
@pytest.mark.parametrize("hash_bits", [62, 11])
def test_a_node_comes_back_and_then_every_other_one_may_go(hash_bits: int) -> None:
    with told(3, 2, Settings(hash_bits=hash_bits)) as of:
        nodes = of.nodes
        of.declare(0)
        of.load(2, "x", 60)
        of.load(1, "g", 20, EX + "graph")
        of.push(2, "a", 10)
        nodes[2].close()
        of.load(0, "y", 30)
        of.update(1, f"DELETE WHERE {{ <{EX}x1> ?p ?o }}")
        of.update(0, f"INSERT {{ ?s <{EX}m> ?o }} WHERE {{ ?s <{EX}l> ?o . ?s a <{EX}C1> }}")
        of.push(1, "b", 7)
        start_again(nodes, 2, replica_count=2)
        of.push(2, "c", 7)
        of.load(2, "z", 10)
        of.check(0, 1, 2)
        for gone, left in ((0, (1, 2)), (1, (2, 0))):
            nodes[gone].close()
            of.push(left[0], f"d{gone}", 5)
            of.update(left[0], f"DELETE WHERE {{ <{EX}y{gone}> ?p ?o }}")
            of.check(*left)
            start_again(nodes, gone, replica_count=2)
            of.push(gone, f"e{gone}", 5)
            of.check(0, 1, 2)


@pytest.mark.slow
def test_a_node_takes_over_retractions_that_wait() -> None:
    """Another stream holds the stored graph back: some wait as they came, others are inserted."""
    with told(3, 2) as of:
        nodes = of.nodes
        of.declare(0)
        nodes[0].engine.stream(EX + "behind", batch_ms=100).advance(1000)
        behind = of.embedded.stream(EX + "behind", batch_ms=100)
        behind.advance(1000)
        names = [f"n{number}" for number in range(40)]
        of.push_signed(1, *(("+", name, 990) for name in names))
        of.push_signed(1, *(("-", name, 1050) for name in names[::2]), *(("+", name, 1060) for name in names[::4]))
        of.push_signed(0, *(("-", name, 1150) for name in names[::3]))
        nodes[2].close()
        of.push_signed(0, *(("+", name, 1250) for name in names[::6]), *(("-", name, 1260) for name in names[::5]))
        start_again(nodes, 2, replica_count=2)
        nodes[0].close()
        for stream in (nodes[1].backend.declared(EX + "behind"), nodes[1].backend.declared(EX + "s")):
            in_time(lambda stream=stream: stream.advance(2000))  # type: ignore[misc]
        behind.advance(2000)
        of.stream.advance(2000)
        of.check(1, 2)
        assert 0 < len(of.embedded.query(ASKED[0])) < len(names)


@pytest.mark.slow
def test_two_nodes_come_back_at_once_and_then_two_others_may_go() -> None:
    """Each of them is a replica of shards of the other one, and neither can take them over from there."""
    with told(5, 3) as of:
        nodes = of.nodes
        of.declare(0)
        of.load(1, "x", 60)
        of.push(2, "a", 10)
        for gone in (3, 4):
            nodes[gone].close()
        of.load(0, "y", 30)
        of.push(1, "b", 7)
        for back in (3, 4):
            start_again(nodes, back, replica_count=3, wait_s=0)
        of.update(0, f"DELETE WHERE {{ <{EX}x1> ?p ?o }}")
        of.push(2, "c", 5)
        for back in (3, 4):
            nodes[back].wait_until_ready(READY_S)
        of.check(*range(5))
        for gone in (0, 1):
            nodes[gone].close()
        of.push(3, "d", 5)
        of.load(4, "z", 10)
        of.check(2, 3, 4)


@pytest.mark.slow
def test_everything_goes_on_while_a_node_joins() -> None:
    """Tuples, loads and updates at other nodes, in the middle of it; windows of a node that stays."""
    with told(3, 2) as of:
        nodes = of.nodes
        of.declare(1)
        query = nodes[1].engine.register(QUERY)
        alone = of.embedded.register(QUERY)
        of.load(0, "x", 40)
        of.push(0, "a", 4)
        nodes[2].close()
        of.push(1, "b", 4)
        is_over = threading.Event()
        failures: list[BaseException] = []

        def go_on() -> None:
            round_ = 0
            try:
                while not is_over.is_set() or round_ < 12:
                    of.push(round_ % 2, f"t{round_}", 3)
                    if round_ % 3 == 0:
                        of.load(1, f"l{round_}-", 4)
                    if round_ % 4 == 0:
                        of.update(0, f"DELETE WHERE {{ <{EX}x{round_}> ?p ?o }}")
                    round_ += 1
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=go_on)
        thread.start()
        start_again(nodes, 2, replica_count=2)
        is_over.set()
        thread.join(WAIT_S)
        assert not failures
        of.push(2, "c", 10)
        of.check(0, 1, 2)
        windows = [
            [(window.end_ms, sorted(window.texts())) for window in one.results(timeout_s=1)] for one in (query, alone)
        ]
        assert windows[0] == windows[1]
        assert len(windows[0]) > 5
        nodes[0].close()
        of.push(2, "d", 5)
        of.check(1, 2)


@pytest.mark.slow
def test_a_node_joins_while_only_one_of_its_donors_has_what_was_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One has closed and inserted stream batches that the other does not have: they come when all have them."""
    with told(3, 2) as of:
        nodes = of.nodes
        of.declare(0)
        of.load(0, "x", 20)
        of.push(0, "a", 10)
        nodes[2].close()
        of.push(1, "b", 10)
        may_go_on = threading.Event()
        feed = nodes[1].network._handlers["feed"]

        def late(packet: Packet) -> Packet:
            assert may_go_on.wait(WAIT_S)
            return feed(packet)

        monkeypatch.setitem(nodes[1].network._handlers, "feed", late)  # type: ignore[arg-type]
        before = dict(nodes[0].host.node.vts)
        pushing = threading.Thread(target=of.push, args=(0, "c", 20))
        pushing.start()
        nodes[0].host.wait_until(lambda node: dict(node.vts) != before, WAIT_S, "its part of the push")
        start_again(nodes, 2, replica_count=2, wait_s=0)
        nodes[2].host.wait_until(lambda node: dict(node.vts) == before, WAIT_S, "what both of its donors have")
        nodes[2].host.wait_until_installed(WAIT_S)
        assert dict(nodes[2].host.node.vts) == before
        may_go_on.set()
        pushing.join(WAIT_S)
        nodes[2].wait_until_ready(WAIT_S)
        of.push(2, "d", 5)
        of.check(0, 1, 2)
        nodes[0].close()
        of.check(1, 2)


@pytest.mark.slow
def test_queries_of_a_node_that_is_gone_run_on_elsewhere_and_stay_there() -> None:
    with told(3, 2) as of:
        nodes, names = of.nodes, ["q", "r"]
        of.declare(0)
        for name in names:
            nodes[2].engine.register(QUERY.replace("QUERY q", f"QUERY {name}"))
        of.push(0, "a", 10)
        nodes[2].close()
        nodes[0].host.wait_until(lambda node: node.control.moved and not node.control.homeless, WAIT_S, "their moves")
        start_again(nodes, 2, replica_count=2)
        begins_ms = of.at_ms
        of.push(1, "b", 20)
        of.check(0, 1, 2)
        for name in names:
            assert nodes[2].store.query(name) is None
            query = nodes[0].store.query(name) or nodes[1].store.query(name)
            assert query is not None
            windows = {window.end_ms: len(list(window)) for window in query.results(timeout_s=1)}
            whole = [end_ms for end_ms in windows if end_ms > begins_ms + 400]
            assert len(whole) >= 1
            assert all(windows[end_ms] == 10 for end_ms in whole), windows
        nodes[2].engine.settle(WAIT_S)
        query.close()
        in_time(lambda: nodes[2].engine.register(QUERY.replace("QUERY q", "QUERY r")))


@pytest.mark.slow
def test_a_pipeline_goes_on_with_a_node_that_is_back() -> None:
    with told(3, 2) as of, ExitStack() as stack:
        nodes = of.nodes
        of.declare(0)
        sockets = [ClientSocket("tcp://127.0.0.1:*", {}, node.intake) for node in nodes]
        addresses = [socket.address for socket in sockets]
        link = stack.enter_context(IngestLink(addresses, resend_s=0.5, timeout_s=WAIT_S))
        link.open(EX + "s", "p", 1)

        def send(batch: int, first: int) -> None:
            subjects, objects = [f"<{EX}b{batch}>"] * 4, [f"<{EX}o{row}>" for row in range(4)]
            encoded = encode_columns(subjects, [f"<{EX}p>"] * 4, objects, np.full(4, batch * 100 - 1), scope=b"")
            link.send(Piece(EX + "s", "p", 1, first, first + 4, 0, batch, encoded, np.zeros(4, np.bool_)))
            link.close_batches(EX + "s", "p", 1, first + 4, batch * 100)

        send(11, 0)
        sockets[2].close()
        nodes[2].close()
        sending = threading.Thread(target=send, args=(12, 4))
        sending.start()
        start_again(nodes, 2, replica_count=2)
        sockets[2] = ClientSocket(addresses[2], {}, nodes[2].intake)
        for socket in sockets:
            stack.callback(socket.close)
        sending.join(WAIT_S)
        send(13, 8)
        link.finish(EX + "s", "p", 1)
        for batch in (11, 12, 13):
            of.stream.push([(f"<{EX}b{batch}>", f"<{EX}p>", f"<{EX}o{row}>", batch * 100 - 1) for row in range(4)])
        of.stream.close()
        of.check(0, 1, 2)
        nodes[1].close()
        of.check(0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["state", "halt"])
def test_a_donor_that_goes_in_the_middle_of_it_is_replaced(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the node has joined, and when it has."""
    with told(4, 3) as of:
        nodes = of.nodes
        of.declare(0)
        of.load(0, "x", 60)
        of.push(0, "a", 5)
        nodes[3].close()
        of.push(1, "b", 5)
        donor = min(joining.donors_of(nodes[3].host.node))
        gave = threading.Event()
        give = nodes[donor].network._handlers[kind]

        def going(packet: object) -> object:
            gave.set()
            threading.Thread(target=nodes[donor].close).start()
            return give(packet)  # type: ignore[arg-type]

        monkeypatch.setitem(nodes[donor].network._handlers, kind, going)  # type: ignore[arg-type]
        start_again(nodes, 3, replica_count=3)
        assert gave.is_set()
        left = sorted({0, 1, 2, 3} - {donor})
        of.push(left[0], "c", 5)
        of.check(*left)


@pytest.mark.slow
def test_without_another_donor_a_node_that_joins_ends_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "AHEAD_S", 1.0)
    monkeypatch.setattr(joining, "GIVE_UP_S", 2.0)
    with told(3, 2) as of:
        nodes = of.nodes
        of.load(0, "x", 20)
        nodes[2].close()
        of.load(1, "y", 5)

        def failing(_: object) -> object:
            raise wukongs.NodeUnavailable("as if it was gone")

        monkeypatch.setitem(nodes[1].network._handlers, "state", failing)  # type: ignore[arg-type]
        node = start_again(nodes, 2, replica_count=2, wait_s=0)
        with pytest.raises(wukongs.NodeUnavailable, match="node 2 could not take over what the others hold: as if"):
            node.wait_until_ready(WAIT_S)
        nodes[0].host.wait_until(lambda one: one.control.members[2].role is Role.OUT, WAIT_S, "node 2 to be out")
        of.load(0, "z", 5)
        of.check(0, 1)
