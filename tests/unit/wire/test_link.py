"""The writer's link: back-pressure, resends, silence and refusals, with channels and a clock of our own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.unit.wire.pieces import STREAM, make_piece, many
from wukongs.errors import DataError, NodeUnavailable, SettingsError, StreamError, WukongsError
from wukongs.live.pieces import Close, Finish, Open, Piece
from wukongs.wire.link import IngestLink, _Peer, error_of
from wukongs.wire.messages import Ack, Frame, Message, Moved, Opened, Place, Refused, from_frames, to_frames
from wukongs.wire.sharding import ShardMap, split_piece

Answer = Callable[[Message, int], list[tuple[Message, int]]]


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class FakeNode:
    """Answers by a function; waiting for an answer that is not there lets time pass."""

    def __init__(self, address: str, clock: ManualClock, answer: Answer) -> None:
        self.address, self.clock, self.answer = address, clock, answer
        self.got: list[tuple[Message, int]] = []
        self.replies: list[list[Frame]] = []
        self.waits = 0

    def send(self, frames: Sequence[Frame], /) -> None:
        message, sequence = from_frames([bytes(frame) for frame in frames])
        self.got.append((message, sequence))
        self.replies += [to_frames(reply, number) for reply, number in self.answer(message, sequence)]

    def receive(self, timeout_s: float, /) -> list[Frame] | None:
        if self.replies:
            return self.replies.pop(0)
        self.clock.now_s += timeout_s
        self.waits += timeout_s > 0
        return None

    def close(self) -> None:
        self.got.append((Finish("closed", "", 0), 0))


def accept(message: Message, sequence: int) -> list[tuple[Message, int]]:
    if isinstance(message, Open):
        return [(Opened(100, None, ("http://ex/ga",), 4, 62), sequence)]
    return [(Ack(STREAM, "part-0", 0, 0), sequence)]


def _link(*answers: Answer, **options: float) -> tuple[IngestLink, list[FakeNode], ManualClock]:
    clock, waiting, nodes = ManualClock(), list(answers), []

    def channel(address: str) -> FakeNode:
        nodes.append(FakeNode(address, clock, waiting.pop(0)))
        return nodes[-1]

    addresses = [f"tcp://127.0.0.1:{7000 + number}" for number in range(len(answers))]
    link = IngestLink(addresses, channel=channel, clock=clock, **options)  # type: ignore[arg-type]
    return link, nodes, clock


def _kinds(node: FakeNode) -> list[type]:
    return [type(message) for message, _ in node.got]


def test_open_asks_every_node_and_begins_at_the_lowest_offset() -> None:
    def further(message: Message, sequence: int) -> list[tuple[Message, int]]:
        return [(Opened(100, None, ("http://ex/ga",), 9, 62, last_close=(4, 300, 2)), sequence)]

    link, nodes, _ = _link(accept, further)
    opened = Opened(100, None, ("http://ex/ga",), 4, 62, last_close=(4, 300, 2), offsets=(4, 9))
    assert link.open(STREAM, "part-0", 3) == opened
    assert [node.got[0][0] for node in nodes] == [Open(STREAM, "part-0", 3)] * 2


def test_nodes_that_disagree_are_refused() -> None:
    def other(message: Message, sequence: int) -> list[tuple[Message, int]]:
        return [(Opened(200, None, ("http://ex/ga",), 4, 62), sequence)]

    link, _, _ = _link(accept, other)
    with pytest.raises(StreamError, match=r"the nodes disagree on its settings.*Declare it once for all"):
        link.open(STREAM, "part-0", 3)


def _node(number: int, offset: int = 4, closed_ms: int | None = None, replicas: int = 2) -> Answer:
    place = Place(number, 3, replicas, ())
    opened = Opened(100, None, ("http://ex/ga",), offset, 62, closed_ms, place)
    return lambda message, sequence: (
        [(opened, sequence)] if isinstance(message, Open) else [(Ack(STREAM, "part-0", 0, 0), sequence)]
    )


def test_pieces_are_divided_as_the_cluster_says() -> None:
    link, nodes, _ = _link(_node(0), _node(1, closed_ms=500), _node(2, closed_ms=300))
    opened = link.open(STREAM, "part-0", 3)
    assert (opened.resume_offset, opened.closed_ms) == (4, 500)
    piece = make_piece(many(60))
    link.send(piece)
    expected = [share for _, share in split_piece(piece, ShardMap.even(3, 2, ()))]
    got = [message for node in nodes for message, _ in node.got if isinstance(message, Piece)]
    assert [one.places.tolist() for one in got] == [one.places.tolist() for one in expected]  # type: ignore[union-attr]


def test_rows_that_are_sent_again_may_be_of_closed_stream_batches() -> None:
    link, _, _ = _link(_node(0, closed_ms=500), _node(1, offset=3), _node(2))
    opened = link.open(STREAM, "part-0", 3)
    assert (opened.resume_offset, opened.closed_ms) == (3, None)


@pytest.mark.parametrize(
    "answers",
    [
        [_node(0), _node(1)],
        [_node(1), _node(0), _node(2)],
        [_node(0), _node(1), accept],
        [accept, _node(1), _node(2)],
        [_node(0), _node(1), _node(2, replicas=1)],
    ],
)
def test_addresses_that_are_not_those_of_the_cluster_are_refused(answers: list[Answer]) -> None:
    link, _, _ = _link(*answers)
    with pytest.raises(SettingsError, match=r"tcp://127.0.0.1:7001 is node [01] of 3.*Expected all nodes of one clust"):
        link.open(STREAM, "part-0", 3)


def test_every_node_gets_its_share_of_every_piece() -> None:
    link, nodes, _ = _link(accept, accept, accept)
    link.send(make_piece(many(60)))
    link.flush()
    shares = [message for node in nodes for message, _ in node.got]
    assert [one.piece for one in shares if isinstance(one, Piece)] == [0, 1, 2]
    assert sum(len(one.encoded) for one in shares if isinstance(one, Piece)) > 60


def test_close_waits_for_the_pieces_before_it() -> None:
    held: list[tuple[Message, int]] = []

    def late(message: Message, sequence: int) -> list[tuple[Message, int]]:
        if isinstance(message, Piece) and not held:
            held.append((Ack(STREAM, "part-0", 0, 0), sequence))
            return []
        return [*held, (Ack(STREAM, "part-0", 0, 0), sequence)]

    link, nodes, _ = _link(late, resend_s=1.0)
    link.send(make_piece())
    link.close_batches(STREAM, "part-0", 1, 1, 1000)
    assert _kinds(nodes[0]) == [Piece, Piece, Close]
    assert nodes[0].got[0][1] == nodes[0].got[1][1]


def test_what_is_not_answered_is_sent_again_ever_more_seldom() -> None:
    link, nodes, clock = _link(lambda message, sequence: [], resend_s=1.0, timeout_s=20.0)
    link.send(make_piece())
    with pytest.raises(
        NodeUnavailable, match=r"tcp://127.0.0.1:7000: no answer for 20.\d s, 1 messages unacknowledged"
    ):
        link.flush()
    assert _kinds(nodes[0]) == [Piece] * 5  # at 0, 1, 3, 7 and 15 s
    assert 20 <= clock.now_s < 21


def test_flush_has_a_time_limit_of_its_own() -> None:
    link, _, clock = _link(lambda message, sequence: [], timeout_s=1000.0)
    link.send(make_piece())
    with pytest.raises(NodeUnavailable, match="Check that the engine listens there; nothing is lost"):
        link.flush(timeout_s=2.0)
    assert 2 <= clock.now_s < 2.2


def test_a_node_that_answers_slowly_but_answers_is_not_given_up() -> None:
    held: list[int] = []

    def slow(message: Message, sequence: int) -> list[tuple[Message, int]]:
        held.append(sequence)
        return [] if len(held) < 4 else [(Ack(STREAM, "part-0", 0, 0), one) for one in dict.fromkeys(held)]

    link, _, clock = _link(slow, resend_s=1.0, timeout_s=10.0)
    link.send(make_piece())
    link.flush()
    assert 7 <= clock.now_s < 8


def test_unacknowledged_bytes_are_bounded() -> None:
    pending: list[int] = []

    def lagging(message: Message, sequence: int) -> list[tuple[Message, int]]:
        pending.append(sequence)
        return [(Ack(STREAM, "part-0", 0, 0), pending.pop(0))] if len(pending) > 3 else []

    size = sum(len(frame) for frame in to_frames(make_piece(many(50)), 1))
    link, nodes, _ = _link(lagging, window_bytes=int(2.5 * size), resend_s=0.2, timeout_s=50.0)
    for _ in range(2):
        link.send(make_piece(many(50)))
    assert nodes[0].waits == 0
    link.send(make_piece(many(50)))
    assert nodes[0].waits > 0


def test_a_piece_larger_than_the_window_still_goes() -> None:
    link, nodes, _ = _link(accept, window_bytes=10)
    link.send(make_piece(many(50)))
    link.send(make_piece(many(50)))
    link.flush()
    assert _kinds(nodes[0]) == [Piece, Piece]


def test_a_refusal_is_raised_under_its_name_with_the_address_and_ends_the_waiting() -> None:
    def refuse(message: Message, sequence: int) -> list[tuple[Message, int]]:
        return [(Refused("StreamError", "a tuple at 5 ms came after its close"), sequence)]

    link, _, _ = _link(refuse)
    with pytest.raises(StreamError, match=r"^tcp://127.0.0.1:7000: a tuple at 5 ms came after its close$"):
        link.send(make_piece())
    link.flush()


def test_a_node_that_cannot_read_the_message_is_heard() -> None:
    def refuse(message: Message, sequence: int) -> list[tuple[Message, int]]:
        return [(Refused("DataError", "message: expected protocol version 4, found 1"), 0)]

    link, _, _ = _link(refuse)
    with pytest.raises(DataError, match=r"^tcp://127.0.0.1:7000: message: expected protocol version 4, found 1$"):
        link.send(make_piece())


def test_every_error_class_comes_back_and_a_strange_one_keeps_its_name() -> None:
    assert isinstance(error_of(Refused("DataError", "torn")), DataError)
    strange = error_of(Refused("os.system", "rm"), "tcp://a")
    assert type(strange) is WukongsError
    assert str(strange) == "os.system: tcp://a: rm"
    parts = error_of(Refused("QuerySyntaxError", "expected x"))
    assert str(parts) == "QuerySyntaxError: expected x"


def test_repeated_and_foreign_answers_are_harmless_or_named() -> None:
    def twice(message: Message, sequence: int) -> list[tuple[Message, int]]:
        return accept(message, sequence) * 2

    link, _, _ = _link(twice)
    link.send(make_piece())
    link.flush()
    link.send(make_piece())
    link.flush()

    def odd(message: Message, sequence: int) -> list[tuple[Message, int]]:
        return [(Close("s", "p", 1, 1, 1), sequence)]

    link, _, _ = _link(odd)
    with pytest.raises(DataError, match="7000: expected an answer, found a message 'Close'"):
        link.send(make_piece())


def test_addresses_and_map_have_to_fit() -> None:
    with pytest.raises(SettingsError, match="expected the ingest address of every node"):
        IngestLink([])
    with pytest.raises(SettingsError, match="1 addresses for a cluster of 2 nodes"):
        IngestLink(["tcp://127.0.0.1:1"], place=Place(0, 2, 1, ()))


# --- a cluster whose members change -----------------------------------------------------------------------------------


class Member:
    """A node of a cluster of three: answers by what it knows of the log, and keeps the pieces that it takes."""

    def __init__(self, number: int) -> None:
        self.number, self.place = number, Place(number, 3, 1, ())
        self.pieces: dict[int, Piece] = {}
        self.closes: list[Close] = []
        self.refuses: Moved | Refused | None = None
        self.is_gone = False

    def knows(self, place: Place) -> None:
        self.place = replace(place, node=self.number)

    def __call__(self, message: Message, sequence: int) -> list[tuple[Message, int]]:
        if self.is_gone:
            return []
        if self.refuses is not None:
            return [(self.refuses, sequence)]
        if isinstance(message, Open):
            had = max((piece.end_offset for piece in self.pieces.values()), default=0)
            return [(Opened(100, None, ("http://ex/ga",), had, 62, None, self.place), sequence)]
        if isinstance(message, Piece):
            assert message.index is not None
            self.pieces[message.first_offset] = message
        elif isinstance(message, Close):
            self.closes.append(message)
        return [(Ack(STREAM, "part-0", 0, 0, self.place.index), sequence)]


def _pieces(count: int) -> list[Piece]:
    return [make_piece(many(20), first=20 * at, end=20 * at + 20, number=at + 1) for at in range(count)]


def _check_shares(pieces: Sequence[Piece], nodes: Sequence[Member], place: Place) -> None:
    for piece in pieces:
        shares = dict(split_piece(piece, ShardMap.of(place)))
        for node in place.members:
            got = nodes[node].pieces[piece.first_offset]
            assert got.places is not None
            assert set(shares[node].row_places().tolist()) <= set(got.places.tolist())


BEFORE, AFTER = (
    Place(0, 3, 1, (), index, tuple(sorted(holders)), tuple((holders[shard % 2],) for shard in range(1024)))
    for index, holders in ((5, (0, 1)), (9, (2, 1)))
)


@pytest.mark.parametrize("told_by", ["ack", "moved", "silence", "close"])
def test_pieces_go_to_the_members_of_now(told_by: str) -> None:
    nodes = [Member(number) for number in range(3)]
    nodes[2].refuses = Moved()
    for node in nodes:
        node.knows(BEFORE)
    link, _, _ = _link(*nodes, resend_s=1.0, timeout_s=20.0)
    pieces = _pieces(4)
    opened = link.open(STREAM, "part-0", 3)
    assert opened.place is not None
    assert opened.place.members == (0, 1)
    link.send(pieces[0])
    link.flush()
    for node in nodes:
        node.knows(AFTER)
    nodes[2].refuses = None
    if told_by == "moved":
        nodes[0].refuses = Moved()
    elif told_by == "silence":
        nodes[0].is_gone = True
    if told_by != "close":
        for piece in pieces[1:]:
            link.send(piece)
        link.flush()
        _check_shares(pieces[1:], nodes, AFTER)
        assert 0 not in nodes[2].pieces  # others had it before: it takes that over from them
    link.close_batches(STREAM, "part-0", 3, 80, 400)
    assert nodes[1].closes[-1:] == nodes[2].closes == [Close(STREAM, "part-0", 3, 80, 400)]


def test_nodes_that_were_added_are_met() -> None:
    nodes = [Member(number) for number in range(4)]
    grown = Place(0, 4, 1, (), 9, (1, 2, 3), tuple(((3, 1, 2)[shard % 3],) for shard in range(1024)), ("tcp://new:1",))
    link, fakes, _ = _link(*nodes[:3])
    fake = FakeNode("new", fakes[0].clock, nodes[3])
    link._connect = lambda address: _Peer(address, {"tcp://new:1": fake}[address])
    link.open(STREAM, "part-0", 3)
    link.send(_pieces(1)[0])
    for node in nodes:
        node.knows(grown)
    pieces = _pieces(3)[1:]
    for piece in pieces:
        link.send(piece)
    link.close_batches(STREAM, "part-0", 3, 60, 300)
    _check_shares(pieces, nodes, grown)
    assert nodes[3].closes == nodes[1].closes
    assert nodes[0].closes == []


def test_a_member_that_takes_nothing_is_reported_by_what_it_says() -> None:
    nodes = [Member(number) for number in range(3)]
    link, _, clock = _link(*nodes, resend_s=1.0, timeout_s=20.0)
    link.open(STREAM, "part-0", 3)
    nodes[1].refuses = Refused("NodeUnavailable", "node 1 is closing")
    link.send(make_piece())
    with pytest.raises(NodeUnavailable, match=r"tcp://127.0.0.1:7001: node 1 is closing"):
        link.flush()
    assert 20 <= clock.now_s < 22


def test_a_link_that_was_told_the_place_asks_only_when_it_has_changed() -> None:
    nodes, clock = [Member(number) for number in range(3)], ManualClock()
    fakes = [FakeNode(str(node.number), clock, node) for node in nodes]
    for node in nodes:
        node.knows(BEFORE)
    addresses = {f"tcp://127.0.0.1:{number}": fake for number, fake in enumerate(fakes)}
    link = IngestLink(list(addresses), place=BEFORE, channel=addresses.__getitem__, clock=clock)
    link.send(make_piece())
    link.flush()
    assert [_kinds(fake) for fake in fakes] == [[Piece], [Piece], []]
    for node in nodes:
        node.knows(AFTER)
    link.send(make_piece(first=1, end=2))
    link.flush()
    assert [_kinds(fake)[-1] for fake in fakes] == [Open, Piece, Piece]


def test_leaving_the_block_closes_the_channels() -> None:
    link, nodes, _ = _link(accept)
    with link:
        link.finish(STREAM, "part-0", 1)
    assert _kinds(nodes[0]) == [Finish, Finish]


def test_nobody_listening_is_reported_by_address() -> None:
    with IngestLink(["tcp://127.0.0.1:9"], timeout_s=0.3) as link, pytest.raises(NodeUnavailable, match=r"127.0.0.1:9"):
        link.open(STREAM, "part-0", 1)
