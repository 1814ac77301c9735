"""Messages that a node must not take from its peers: each is counted by its reason, and nobody else notices."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
import zmq

from tests.unit.wire.conftest import Nodes, Raw, echo, refused, wait_until
from wukongs.errors import DataError, NodeUnavailable, SettingsError, WukongsError
from wukongs.live.header import Frame
from wukongs.protocol.messages import Incarnation
from wukongs.wire.codec import ANSWER, ASK, TELL, read_packet_header, to_frames
from wukongs.wire.network import Network
from wukongs.wire.packets import Packet
from wukongs.wire.refusals import error_in


def test_what_may_not_come_is_counted_by_its_reason_and_answered_if_at_all_by_an_error(
    pair: tuple[Network, Network],
) -> None:
    raw, node = Raw(pair[1].address), pair[1]
    sequences = itertools.count(1)

    def ask(sender: object, sequence: int, way: str = ASK, kind: str = "echo") -> list[Frame]:
        return to_frames(Packet(kind), way, sequence, sender)  # type: ignore[arg-type]

    mine = (0, 1, 1)
    raw.introduce(mine, next(sequences))
    silent = [
        ("malformed", [b"garbage"]),
        ("malformed", [b""]),
        ("wrong version", [b'{"wukongs":1}']),
        ("stranger", ask((5, 1, 1), next(sequences), TELL)),
        ("malformed", ask(mine, next(sequences), ANSWER)),
    ]
    for reason, frames in silent:
        before = refused(node, reason)
        raw.say(frames)
        wait_until(lambda reason=reason, before=before: refused(node, reason) == before + 1, f"{reason}: {frames}")  # type: ignore[misc]
    unknown = "node 1 does not know who asks. Ask again when all nodes know each other"
    told = [
        ("stranger", ask((5, 1, 1), next(sequences)), unknown),
        ("stranger", ask("client", next(sequences)), unknown),
        ("stranger", ask(None, next(sequences)), unknown),
        ("stranger", ask((1, 1, 1), next(sequences)), unknown),  # the node itself would not come this way
        ("malformed", [*ask(mine, 100), b"one frame too many"], "expected 0 frames of arrays, found 1"),
        ("unknown kind", ask(mine, 101, kind="eval"), "no requests of kind 'eval'"),
        ("replayed", ask(mine, 101), "packet 'echo': number 101 has come before"),
    ]
    for reason, frames, expected in told:
        before = refused(node, reason)
        raw.say(frames)
        header = read_packet_header(raw.hear())
        error = error_in(Packet(header.kind, header.fields))
        assert type(error) is (NodeUnavailable if reason == "stranger" else DataError)
        assert expected in str(error)
        assert refused(node, reason) == before + 1
    raw.close()
    assert pair[0].ask([(1, Packet("echo", {"n": 1}))], 20)[0].fields == {"n": 1}


def test_what_is_told_twice_is_taken_once(nodes: Nodes) -> None:
    networks = nodes.start(0), nodes.start(1)
    nodes.join(*networks)
    raw = Raw(networks[1].address)
    raw.introduce((0, 1, 1), 4)
    for sequence in (1, 2, 2, 3, 1):
        raw.say(to_frames(Packet("n", {"n": sequence}), TELL, sequence, (0, 1, 1)))
    wait_until(lambda: refused(networks[1], "replayed") == 2, "two were repeats")
    wait_until(lambda: len(nodes.told[1]) == 3, "three were told")
    assert [packet.fields["n"] for _, packet in nodes.told[1]] == [1, 2, 3]
    raw.close()


def test_a_message_that_is_too_big_is_counted_and_refused(nodes: Nodes) -> None:
    networks = nodes.start(0), nodes.start(1, {"echo": echo}, message_bytes_max=1000)
    nodes.join(*networks)
    with pytest.raises(DataError, match="expected at most 1000 bytes, found"):
        networks[0].ask([(1, Packet("echo", {}, {"ids": np.arange(1000)}))], 20)
    assert refused(networks[1], "oversized") == 1


def test_bools_that_are_none_are_refused_by_the_worker_too(pair: tuple[Network, Network]) -> None:
    frames = to_frames(Packet("echo", {}, {"is": np.array([True])}), ASK, 1, (0, 1, 1))
    raw = Raw(pair[1].address)
    raw.introduce((0, 1, 1), 5)
    raw.say([frames[0], b"\x02"])
    header = read_packet_header(raw.hear())
    assert "bools as bytes 0 and 1" in str(error_in(Packet(header.kind, header.fields)))
    assert refused(pair[1], "malformed") == 1
    raw.say([to_frames(Packet("n", {}, {"is": np.array([True])}), TELL, 2, (0, 1, 1))[0], b"\x07"])
    wait_until(lambda: refused(pair[1], "malformed") == 2, "it was counted")
    raw.close()


def test_a_liar_that_answers_something_else_is_refused(nodes: Nodes) -> None:
    listening = zmq.Context.instance().socket(zmq.ROUTER)
    listening.setsockopt(zmq.LINGER, 0)
    port = listening.bind_to_random_port("tcp://127.0.0.1")
    network = nodes.start(0)
    network.join({1: f"tcp://127.0.0.1:{port}"})
    answers = [to_frames(Packet("rows"), ANSWER, 77), to_frames(Packet("rows"), TELL, 2), [b"garbage"]]

    def lie() -> None:
        for answer in answers:
            listening.send_multipart([listening.recv_multipart()[0], *answer])

    liar = threading.Thread(target=lie)
    liar.start()
    for expected in ("expected the answer 1, found answer 77", "expected the answer 2, found tell 2", "JSON header"):
        with pytest.raises(DataError, match=expected):
            network.ask([(1, Packet("rows"))], 20)
    liar.join(20)
    listening.close()


def test_a_packet_of_a_newer_life_does_not_shut_a_node_out(nodes: Nodes) -> None:
    """A stranger, or a second process that was started by mistake, says that it is node 0, and is refused."""
    networks = nodes.start(0), nodes.start(1, {"echo": echo, "hello": echo}, open_kinds=("hello",))
    nodes.join(*networks)
    assert networks[0].ask([(1, Packet("echo"))], 20)[0].kind == "echo"
    raw, newer = Raw(networks[1].address), (0, 1 << 40, 1)
    raw.say(to_frames(Packet("n"), TELL, 1, newer))
    for frames in (to_frames(Packet("echo"), ASK, 2, newer), to_frames(Packet("eval"), ASK, 3, newer)):
        header = read_packet_header(raw.hear())
        error = error_in(Packet(header.kind, header.fields))
        assert isinstance(error, NodeUnavailable)
        assert "node 1 does not know this life of node 0: it has to introduce itself first" in str(error)
        raw.say(frames)
    raw.say(to_frames(Packet("hello"), ASK, 4, newer))  # any life may ask this, and it says nothing about lives
    assert [read_packet_header(raw.hear()).kind for _ in range(2)] == ["refused", "echo"]
    assert networks[0].ask([(1, Packet("echo", {"n": 1}))], 20)[0].fields == {"n": 1}
    assert networks[0].send(1, Packet("n", {"n": 2}))
    wait_until(lambda: [packet.fields for _, packet in nodes.told[1]] == [{"n": 2}], "node 0 is heard, nobody else")
    raw.close()


def test_a_life_that_may_not_be_let_in_is_told_why_and_the_one_before_is_heard(nodes: Nodes) -> None:
    def admit(life: Incarnation, known: Incarnation | None, introduction: Packet) -> None:
        if introduction.fields != {"shape": "ours"}:
            raise SettingsError("another cluster")
        if known is not None and not is_gone.is_set():
            raise NodeUnavailable("runs already")

    is_gone = threading.Event()
    hearing = nodes.start(1, {"echo": echo}, admit=admit)
    first, second, other = (
        nodes.start(0, boot=boot, introduction={"shape": shape})
        for boot, shape in ((1, "ours"), (2, "ours"), (3, "theirs"))
    )
    hearing.join({0: first.address})
    for network in (first, second, other):
        network.join({1: hearing.address})
    first.ask([(1, Packet("echo"))], 20)
    for network, expected in ((second, "runs already"), (other, "another cluster")):
        with pytest.raises(WukongsError, match=expected):
            network.ask([(1, Packet("echo"))], 20)
    assert first.ask([(1, Packet("echo", {"n": 1}))], 20)[0].fields == {"n": 1}
    wait_until(lambda: second.send(1, Packet("n")) and bool(second.refusals()), "who only tells hears it, too")
    assert str(second.refusals()[1]) == "runs already"
    is_gone.set()
    assert second.ask([(1, Packet("echo", {"n": 2}))], 20)[0].fields == {"n": 2}
    with pytest.raises(NodeUnavailable, match=r"node 0 was started anew: this is an earlier life of it. End it"):
        first.ask([(1, Packet("echo"))], 20)


def test_a_node_that_was_started_anew_is_introduced_to_again(nodes: Nodes) -> None:
    """The others do not notice that nobody there knows them: what they ask comes all the same, and what they tell."""
    asking, first = nodes.start(0), nodes.start(1, {"echo": echo})
    nodes.join(asking, first)
    asking.ask([(1, Packet("echo"))], 20)
    first.close()
    again = nodes.start(1, {"echo": echo}, first.address, boot=2)
    again.join({0: asking.address})
    nodes.told[1].clear()
    wait_until(lambda: asking.send(1, Packet("n")) and bool(nodes.told[1]), "it is told something")
    assert asking.ask([(1, Packet("echo", {"n": 1}))], 20)[0].fields == {"n": 1}
