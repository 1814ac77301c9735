"""Nodes on loopback: they ask and tell each other, and what fails is named and counted."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import zmq

from tests.unit.wire.conftest import ANY_PORT, Nodes, echo, refused, wait_until
from wukongs.errors import BudgetExceeded, DataError, NodeUnavailable, SettingsError, WukongsError
from wukongs.wire.network import Network
from wukongs.wire.packets import Handler, Packet


def test_a_node_asks_all_others_and_itself_at_the_same_time(nodes: Nodes) -> None:
    networks = [
        nodes.start(n, {"sum": lambda p, n=n: Packet("sum", {"node": n, "sum": int(p.arrays["ids"].sum())})})  # type: ignore[misc]
        for n in range(4)
    ]
    nodes.join(*networks)
    asked = [(node, Packet("sum", {}, {"ids": np.arange(10 * node)})) for node in (3, 0, 1, 2, 1)]
    answers = networks[0].ask(asked, 20)
    assert [answer.fields for answer in answers] == [
        {"node": node, "sum": sum(range(10 * node))} for node in (3, 0, 1, 2, 1)
    ]
    assert networks[1].stats()["requests"] == 2


def test_arrays_cross_over_whatever_their_size(pair: tuple[Network, Network]) -> None:
    arrays = {"ids": np.arange(1 << 20), "codes": np.arange(3, dtype=np.int32), "is": np.ones(70_000, np.bool_)}
    (answer,) = pair[0].ask([(1, Packet("echo", {"text": "ä"}, arrays))], 20)
    assert answer.fields == {"text": "ä"}
    assert all(np.array_equal(answer.arrays[name], array) for name, array in arrays.items())


def test_many_threads_ask_at_once_and_each_gets_its_answer(pair: tuple[Network, Network]) -> None:
    wrong: list[object] = []

    def ask(thread: int) -> None:
        for number in range(50):
            packet = Packet("echo", {"n": [thread, number]}, {"ids": np.full(number, thread)})
            (answer,) = pair[0].ask([(1, packet)], 30)
            if answer.fields["n"] != [thread, number] or answer.arrays["ids"].tolist() != [thread] * number:
                wrong.append(answer)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pair[1].stats()["requests"] == 400


def test_an_error_is_raised_by_name_with_who_answered(nodes: Nodes) -> None:
    def fail(packet: Packet) -> Packet:
        raise BudgetExceeded("more than 10 rows")

    networks = nodes.start(0, {"rows": fail}), nodes.start(1, {"rows": fail})
    nodes.join(*networks)
    with pytest.raises(BudgetExceeded, match=r"^more than 10 rows$"):
        networks[0].ask([(0, Packet("rows"))], 20)
    with pytest.raises(BudgetExceeded) as caught:
        networks[0].ask([(1, Packet("rows"))], 20)
    assert str(caught.value) == "more than 10 rows"
    assert caught.value.__notes__ == [f"answered by node 1 ({networks[1].address})"]


def test_a_handler_that_fails_is_logged_counted_and_told(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    networks = nodes.start(0), nodes.start(1, {"rows": lambda packet: Packet("x", {"n": 1 // 0})})
    nodes.join(*networks)
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(WukongsError, match=r"the node failed: ZeroDivisionError.*See its log"),
    ):
        networks[0].ask([(1, Packet("rows"))], 20)
    assert "Traceback" in caplog.text
    assert networks[1].stats()["failed"] == 1


def test_an_answer_that_is_too_big_is_refused(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.wire.codec.MESSAGE_BYTES_MAX", 10_000)
    networks = nodes.start(0), nodes.start(1, {"rows": lambda packet: Packet("rows", {}, {"ids": np.arange(5000)})})
    nodes.join(*networks)
    with pytest.raises(DataError, match=r"packet 'rows': 1 arrays of 40000 bytes.*Send less at a time"):
        networks[0].ask([(1, Packet("rows"))], 20)


def test_a_kind_that_nobody_answers_is_refused(pair: tuple[Network, Network]) -> None:
    with pytest.raises(DataError, match="no requests of kind 'rows' are answered here"):
        pair[0].ask([(1, Packet("rows"))], 20)
    with pytest.raises(DataError, match="no requests of kind 'rows' are answered here"):
        pair[0].ask([(0, Packet("rows"))], 20)
    assert refused(pair[1], "unknown kind") == 1


def test_an_unknown_node_is_named(pair: tuple[Network, Network]) -> None:
    with pytest.raises(NodeUnavailable, match=r"node 7: not in this cluster, whose other nodes are \[1\]"):
        pair[0].ask([(7, Packet("echo"))], 20)


def test_no_answer_in_time_is_named_and_the_next_question_gets_its_own(nodes: Nodes) -> None:
    let_go = threading.Event()

    def slow(packet: Packet) -> Packet:
        assert let_go.wait(20)
        return Packet("slow")

    networks = nodes.start(0), nodes.start(1, {"slow": slow, "echo": echo})
    nodes.join(*networks)
    networks[0].ask([(1, Packet("echo"))], 20)  # they are connected, and know each other
    with pytest.raises(NodeUnavailable, match=r"node 1 .*: no answer within 0.2 s. Allow more time"):
        networks[0].ask([(1, Packet("slow"))], 0.2)
    let_go.set()
    assert networks[0].ask([(1, Packet("echo", {"n": 5}))], 20)[0].fields == {"n": 5}
    wait_until(lambda: networks[1].stats()["requests"] == 3, "all were answered")


def test_a_node_that_is_away_is_named(nodes: Nodes) -> None:
    network = nodes.start(0)
    gone = nodes.start(1)
    network.join({1: gone.address})
    gone.close()
    with pytest.raises(NodeUnavailable, match=r"node 1 .*: cannot be reached within 0.2 s. Check that it runs"):
        network.ask([(1, Packet("echo"))], 0.2)


def test_a_node_that_is_away_keeps_none_of_the_others_from_being_asked(nodes: Nodes) -> None:
    asked: list[int] = []

    def note(number: int) -> Handler:
        def noted(packet: Packet) -> Packet:
            asked.append(number)
            return packet

        return noted

    networks = [nodes.start(number, {"note": note(number), "echo": echo}) for number in range(4)]
    nodes.join(*networks)
    networks[0].ask([(number, Packet("echo")) for number in (1, 2, 3)], 20)
    networks[1].close()

    def is_away() -> bool:
        try:
            networks[0].ask([(1, Packet("echo"))], 0.01)
        except NodeUnavailable as error:
            return "cannot be reached" in str(error)
        return False

    wait_until(is_away, "its connection is known to be lost")
    wait_until(lambda: not networks[0].is_connected(1), "that to tell it something, too")
    networks[0]._peers[1].way._offered_again_s = 0.0  # a node that is away offers nothing, though it would be time
    with pytest.raises(NodeUnavailable, match=r"node 1 .*: cannot be reached within 0.2 s. Check that it runs"):
        networks[0].ask([(number, Packet("note")) for number in range(4)], 0.2)
    wait_until(lambda: sorted(asked) == [0, 2, 3], "all others were asked, and this node itself")
    assert len(networks[0].ask([(number, Packet("echo")) for number in (0, 2, 3)], 20)) == 3


def test_a_connection_that_is_lost_is_known_at_once(nodes: Nodes) -> None:
    """A peer that is killed: nothing more comes from it, and nobody waits for the deadline."""
    listening = zmq.Context.instance().socket(zmq.ROUTER)
    listening.setsockopt(zmq.LINGER, 0)
    port = listening.bind_to_random_port("tcp://127.0.0.1")
    network = nodes.start(0)
    network.join({1: f"tcp://127.0.0.1:{port}"})
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            network.ask([(1, Packet("echo"))], 60)
        except NodeUnavailable as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert listening.poll(20_000)
    listening.close()
    thread.join(20)
    assert [str(error).partition(": ")[2] for error in failed] == [
        "the connection was lost before the answer came. Ask again when it is back"
    ]


def test_a_restarted_node_is_found_again_and_its_earlier_life_is_not_heard(nodes: Nodes) -> None:
    asking, answering = nodes.start(0, {"echo": echo}), nodes.start(1, {"echo": echo}, boot=1)
    nodes.join(asking, answering)
    answering.ask([(0, Packet("echo"))], 20)
    asking.ask([(1, Packet("echo"))], 20)
    answering.close()
    again = nodes.start(1, {"echo": echo}, answering.address, boot=2)
    again.join({0: asking.address})
    with suppress(NodeUnavailable):  # that the connection was lost may be known only once somebody has used it
        asking.ask([(1, Packet("echo"))], 20)
    assert asking.ask([(1, Packet("echo", {"n": 1}))], 20)[0].fields == {"n": 1}
    assert again.ask([(0, Packet("echo", {"n": 2}))], 20)[0].fields == {"n": 2}
    earlier = nodes.start(1, boot=1)
    earlier.join({0: asking.address})
    with pytest.raises(NodeUnavailable, match=r"node 1 was started anew: this is an earlier life of it. End it"):
        earlier.ask([(0, Packet("echo"))], 20)
    assert again.ask([(0, Packet("echo", {"n": 3}))], 20)[0].fields == {"n": 3}


def test_a_node_that_moves_is_asked_at_its_new_address(nodes: Nodes) -> None:
    network, first = nodes.start(0), nodes.start(1, {"where": lambda packet: Packet("first")})
    nodes.join(network, first)
    assert network.ask([(1, Packet("where"))], 20)[0].kind == "first"
    second = nodes.start(1, {"where": lambda packet: Packet("second")})
    nodes.join(network, second)
    assert network.ask([(1, Packet("where"))], 20)[0].kind == "second"


def test_what_is_told_comes_in_order(nodes: Nodes) -> None:
    networks = nodes.start(0), nodes.start(1)
    nodes.join(*networks)
    wait_until(lambda: networks[0].send(1, Packet("n", {"n": -1})), "the connection is there")
    sent = [n for n in range(200) if networks[0].send(1, Packet("n", {"n": n}))]
    wait_until(lambda: len(nodes.told[1]) > len(sent), "all are told")
    assert [packet.fields["n"] for _, packet in nodes.told[1]] == [-1, *sent]
    assert {sender for sender, _ in nodes.told[1]} == {(0, 1, 1)}
    counts = networks[0].stats()
    assert counts["told_out"] == counts["messages_out"] >= len(sent) + 1
    assert counts["told_bytes_out"] == counts["bytes_out"] == networks[1].stats()["bytes_in"]


class _LateConnection:
    """A connection that is not there for the first message, and there for all later ones."""

    def __init__(self, line: Any) -> None:
        self.line, self.refused = line, 0

    def send(self, frames: list[Any]) -> bool:
        if not self.refused:
            self.refused += 1
            return False
        return bool(self.line.send(frames))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.line, name)


def test_nothing_is_sent_before_the_introduction(nodes: Nodes) -> None:
    networks = nodes.start(0), nodes.start(1)
    nodes.join(*networks)
    wait_until(lambda: networks[0].is_connected(1), "the connection is there")
    peer = networks[0]._peers[1]
    peer.tells = late = _LateConnection(peer.tells)  # type: ignore[assignment]
    sent = [n for n in range(5) if networks[0].send(1, Packet("n", {"n": n}))]
    assert (late.refused, sent) == (1, [1, 2, 3, 4])
    wait_until(lambda: len(nodes.told[1]) >= len(sent), "all are received")
    assert [packet.fields["n"] for _, packet in nodes.told[1]] == sent


def test_what_a_node_tells_itself_is_told_at_once(nodes: Nodes) -> None:
    network = nodes.start(0)
    assert network.send(0, Packet("n"))
    assert [packet.kind for _, packet in nodes.told[0]] == ["n"]


def test_what_a_node_tells_and_nobody_understands_is_counted_not_logged(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(sender: object, packet: Packet) -> None:
        raise DataError(f"expected a message, found {packet.kind}")

    teller, network = nodes.start(0), nodes.start(1)
    network._on_tell = refuse
    nodes.join(teller, network)
    wait_until(lambda: teller.send(1, Packet("nonsense")), "the connection is there")
    wait_until(lambda: refused(network, "malformed") >= 1, "it was counted")
    assert not [one for one in caplog.records if one.threadName == "wukongs-network-1"]


def test_what_cannot_be_told_is_dropped_and_counted(nodes: Nodes) -> None:
    network, gone = nodes.start(0), nodes.start(1)
    network.join({1: gone.address})
    gone.close()
    wait_until(lambda: not network.send(1, Packet("n")), "the connection is known to be gone")
    before = network.stats()["dropped"]
    assert [network.send(1, Packet("n")), network.send(5, Packet("n"))] == [False, False]
    assert network.stats()["dropped"] == before + 2


def test_telling_a_node_that_does_not_listen_ends_in_drops(nodes: Nodes) -> None:
    """Whoever takes nothing fills bounded queues, here and on the way, and then what is told is dropped."""
    listening = zmq.Context.instance().socket(zmq.ROUTER)
    listening.setsockopt(zmq.LINGER, 0)
    listening.setsockopt(zmq.RCVHWM, 10)
    port = listening.bind_to_random_port("tcp://127.0.0.1")
    network = nodes.start(0)
    network.join({1: f"tcp://127.0.0.1:{port}"})
    wait_until(lambda: network.send(1, Packet("n")), "the connection is there")
    packet = Packet("n", {}, {"filling": np.zeros(40_000, np.uint8)})
    wait_until(lambda: not network.send(1, packet), "the queue is full")
    listening.close()


def test_a_callback_that_fails_is_logged_and_the_next_one_is_called(caplog: pytest.LogCaptureFixture) -> None:
    told: list[int] = []

    def take(sender: object, packet: Packet) -> None:
        told.append(packet.fields["n"])
        assert packet.fields["n"] != 1

    nodes = Nodes()
    telling = nodes.start(0)
    from wukongs.protocol.messages import Incarnation

    hearing = Network(Incarnation(1, 1, 1), ANY_PORT, {}, take)
    nodes.all.append(hearing)
    nodes.join(telling, hearing)
    with caplog.at_level(logging.ERROR):
        for number in range(3):
            wait_until(lambda number=number: telling.send(1, Packet("n", {"n": number})), "it is told")  # type: ignore[misc]
        wait_until(lambda: len(told) == 3, "all three are told")
    assert "what node 0 told, 'n', could not be taken" in caplog.text
    assert hearing.stats()["failed"] == 1
    nodes.close()


def test_a_busy_node_says_so_and_counts(nodes: Nodes) -> None:
    let_go = threading.Event()

    def slow(packet: Packet) -> Packet:
        assert let_go.wait(20)
        return Packet("slow")

    networks = nodes.start(0), nodes.start(1, {"slow": slow}, workers_max=2, requests_max=3)
    nodes.join(*networks)
    ended: list[str] = []

    def ask() -> None:
        try:
            ended.append(networks[0].ask([(1, Packet("slow"))], 20)[0].kind)
        except NodeUnavailable as error:
            ended.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    wait_until(lambda: refused(networks[1], "busy") == 2, "two were refused")
    let_go.set()
    for thread in threads:
        thread.join(20)
    assert (
        sorted(ended)
        == ["slow"] * 3 + ["the node is busy: as many requests wait as may, or no thread can start. Ask again"] * 2
    )


def test_too_many_asks_at_once_wait_and_then_say_so(nodes: Nodes) -> None:
    let_go = threading.Event()

    def slow(packet: Packet) -> Packet:
        assert let_go.wait(20)
        return Packet("slow")

    networks = nodes.start(0, asks_max=1), nodes.start(1, {"slow": slow})
    nodes.join(*networks)
    first = threading.Thread(target=lambda: networks[0].ask([(1, Packet("slow"))], 20))
    first.start()
    wait_until(lambda: networks[1].stats()["messages_in"] == 2, "the first one asks, and has introduced itself")
    with pytest.raises(NodeUnavailable, match=r"not asked within 0.1 s, since 1 other questions wait for answers"):
        networks[0].ask([(1, Packet("slow"))], 0.1)
    let_go.set()
    first.join(20)


def test_requests_that_wait_for_each_other_do_not_take_the_workers_and_asks_that_they_wait_for(nodes: Nodes) -> None:
    """Node 0 asks node 1 to push, which feeds node 0, which claims of node 1; each has one worker, and asks once."""
    networks: list[Network] = []

    def asking(node: int, kind: str) -> Handler:
        return lambda packet: networks[node].ask([(1 - node, Packet(kind, packet.fields))], 20)[0]

    options: dict[str, Any] = {"workers_max": 1, "requests_max": 2, "asks_max": 1, "waits": (("feed",), ("push",))}
    networks.append(nodes.start(0, {"feed": asking(0, "claim")}, **options))
    networks.append(nodes.start(1, {"push": asking(1, "feed"), "claim": echo}, **options))
    nodes.join(*networks)
    (answer,) = networks[0].ask([(1, Packet("push", {"n": 7}))], 20)
    assert answer.fields == {"n": 7}


def test_closing_ends_what_waits(nodes: Nodes) -> None:
    let_go = threading.Event()

    def slow(packet: Packet) -> Packet:
        assert let_go.wait(20)
        return Packet("slow")

    networks = nodes.start(0), nodes.start(1, {"slow": slow})
    nodes.join(*networks)
    failed: list[str] = []

    def ask() -> None:
        try:
            networks[0].ask([(1, Packet("slow"))], 60)
        except NodeUnavailable as error:
            failed.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: networks[1].stats()["messages_in"] == 2, "it asks, and has introduced itself")
    networks[0].close()
    networks[0].close()
    thread.join(20)
    let_go.set()
    assert len(failed) == 1
    assert "this side was closed before the answer came" in failed[0]
    with pytest.raises(NodeUnavailable, match=r"not in this cluster|this side is closed"):
        networks[0].ask([(1, Packet("slow"))], 1)


def test_closing_ends_what_waits_for_a_connection(nodes: Nodes) -> None:
    network, gone = nodes.start(0), nodes.start(1)
    network.join({1: gone.address})
    gone.close()
    failed: list[str] = []

    def ask() -> None:
        try:
            network.ask([(1, Packet("echo"))], 60)
        except NodeUnavailable as error:
            failed.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    network.close()
    thread.join(20)
    assert len(failed) == 1
    assert "this side" in failed[0] or "not in this cluster" in failed[0]


def test_a_malformed_address_of_another_node_is_refused(nodes: Nodes) -> None:
    network = nodes.start(0)
    with pytest.raises(SettingsError, match=r"expected the form tcp://127.0.0.1:7411"):
        network.join({1: "tcp://127.0.0.1:1", 2: "somewhere"})
    with pytest.raises(NodeUnavailable, match=r"whose other nodes are \[\]"):
        network.ask([(1, Packet("echo"))], 1)


def test_a_taken_address_is_refused(nodes: Nodes) -> None:
    first = nodes.start(0)
    with pytest.raises(SettingsError, match="cannot be bound"):
        nodes.start(1, address=first.address)


def test_numbers_of_bytes_and_messages_are_those_that_went_over(pair: tuple[Network, Network]) -> None:
    pair[0].ask([(1, Packet("echo", {}, {"ids": np.arange(100)}))], 20)
    out, back = pair
    wait_until(lambda: out.stats()["messages_in"] == 2, "both answers are counted")
    assert out.stats()["bytes_out"] == back.stats()["bytes_in"]
    assert out.stats()["bytes_in"] == back.stats()["bytes_out"]
    assert int(out.stats()["bytes_out"]) > 800  # type: ignore[arg-type]
