"""The writer of a stream, in bad moments: what is cut off is finished, or refused by name, and the stream goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from tests.unit.cluster.wires import EX, STREAM, Fault, Wires, encoded, until, wired
from wukongs.cluster import members, pushing, writing
from wukongs.cluster.claims import CLAIM
from wukongs.cluster.feeding import FEED, Fed, feds_packet
from wukongs.cluster.pushing import PUSH
from wukongs.cluster.writing import Held, Said, StreamWriter, take_together, writer_of
from wukongs.errors import DataError, NodeUnavailable, OutcomeUnknown, StreamError, WukongsError
from wukongs.live.pieces import Piece
from wukongs.live.stream_state import PUSH_PARTITION
from wukongs.outcomes import Asked
from wukongs.protocol.sealing import position
from wukongs.settings import Settings
from wukongs.wire.packets import Packet

SHORT_S = 0.05
LONG_S = 60.0


def declared(wires: Wires) -> None:
    wires.nodes[0].engine.stream(STREAM, batch_ms=100)


@contextmanager
def written() -> Iterator[tuple[Wires, StreamWriter]]:
    """Give two nodes with a stream of which both have a row, a, and its writer."""
    with wired(2) as wires:
        declared(wires)
        _, writer = wires.writer()
        writer.push(encoded(("a", 50)), LONG_S)
        yield wires, writer


def agreed(writer: StreamWriter, *tuples: tuple[str, int]) -> None:
    """Have the terms of tuples agreed on, which may take a while on a busy machine: then a short time is enough to tell
    the nodes that can be reached of the tuples."""
    writer._intake.agree([encoded(*tuples)], LONG_S)


def offsets(wires: Wires) -> list[int]:
    """How many rows each node has taken."""
    return [position(node.host.node.intakes.get(STREAM), PUSH_PARTITION)[0] for node in wires.nodes]


def check_stored(wires: Wires, names: Sequence[str]) -> None:
    """Check that all nodes show these tuples when the stream has come to an end."""
    wires.nodes[0].backend.declared(STREAM).close()
    wires.nodes[0].engine.settle(LONG_S)
    for node in wires.nodes:
        found = sorted(str(row[0]).removeprefix(EX) for row in node.engine.query(f"SELECT ?s {{ ?s <{EX}p> ?o }}"))
        assert found == sorted(names)


def other_writer(wires: Wires) -> StreamWriter:
    """A writer at the node that is not the writer: what it does when it comes to be it."""
    node, _ = wires.writer()
    other = next(one for one in wires.nodes if one is not node)
    return StreamWriter(STREAM, other.host, other.store, other.intake, other.network)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_done", [False, True])
def test_a_push_that_was_cut_off_is_finished_before_the_next(is_done: bool) -> None:
    with written() as (wires, writer):
        agreed(writer, ("b", 150), ("c", 250))
        fault = wires.lose(FEED, 1, is_done)
        with pytest.raises(NodeUnavailable, match="the connection was lost"):
            writer.push(encoded(("b", 150), ("c", 250)), SHORT_S)
        assert offsets(wires) == [3, 3 if is_done else 1]
        fault.count = 0
        writer.push(encoded(("d", 250)), LONG_S)
        assert offsets(wires) == [4, 4]
        check_stored(wires, "abcd")


def test_the_writer_has_the_terms_of_a_push_agreed_on_for_all_nodes() -> None:
    with wired(3) as wires:
        declared(wires)
        node, writer = wires.writer()
        writer.push(encoded(("a", 50)), LONG_S)
        wires.kinds()
        writer.push(encoded(*((f"b{number}", 150) for number in range(64))), LONG_S)
        assert {asker for asker, _, _ in wires.asked} == {node.me.node}
        others = [number for number in range(3) if number != node.me.node]
        assert sorted(wires.kinds()) == [*((CLAIM, number) for number in others), *((FEED, n) for n in range(3))]
        writer.push(encoded(("b1", 250)), LONG_S)
        assert sorted(wires.kinds()) == [(FEED, number) for number in range(3)]
        check_stored(wires, ["a", *(f"b{number}" for number in range(64))])  # what comes again counts once


def test_a_node_that_knows_of_other_members_asks_for_itself() -> None:
    with wired(2) as wires:
        declared(wires)
        node, writer = wires.writer()
        other = next(one for one in wires.nodes if one is not node)
        agree = writer._intake.agree
        views = [12345]
        with patch.object(writer._intake, "agree", lambda *told: views.pop() if told[0] and views else agree(*told)):
            writer.push(encoded(("a", 50), ("b", 51), ("c", 52)), LONG_S)
        assert {asker for asker, _, packet in wires.asked if packet.kind == CLAIM} == {node.me.node, other.me.node}
        check_stored(wires, "abc")


def test_a_packet_whose_view_is_none_is_refused() -> None:
    with wired(1) as wires, pytest.raises(DataError, match="feed: view = 'x': expected an integer"):
        wires.networks[0].handlers[FEED](feds_packet([Fed(STREAM, PUSH_PARTITION, 1)], 0, view="x"))  # type: ignore[arg-type]


def test_a_push_that_was_cut_off_and_is_said_again_counts_once() -> None:
    with wired(2) as wires:
        declared(wires)
        _, writer = wires.writer()
        agreed(writer, ("a", 50), ("b", 150))
        fault = wires.lose(FEED, 1)
        for _ in range(2):
            with pytest.raises(NodeUnavailable):
                writer.push(encoded(("a", 50), ("b", 150)), SHORT_S)
        fault.count = 0
        writer.push(encoded(("a", 50), ("b", 150)), LONG_S)
        assert offsets(wires) == [2, 2]
        check_stored(wires, "ab")


def tuples(*named: tuple[str, int]) -> list[tuple[str, str, str, int]]:
    return [(f"<{EX}{name}>", f"<{EX}p>", f"<{EX}o>", t) for name, t in named]


def streams_at(wires: Wires, counts: Mapping[int, int]) -> list[str]:
    """Declare streams, so many that each of these nodes writes."""
    found: dict[int, list[str]] = {node: [] for node in counts}
    for number in range(1000):
        name = f"{EX}n{number}"
        of_node = found.get(writer_of(wires.nodes[0].host.node, name))
        if of_node is not None and len(of_node) < counts[writer_of(wires.nodes[0].host.node, name)]:
            of_node.append(name)
    streams = [name for of_node in found.values() for name in of_node]
    for name in streams:
        wires.nodes[0].engine.stream(name, batch_ms=100)
    return streams


def began(wires: Wires, counts: Mapping[int, int]) -> list[str]:
    """Declare streams and let them count: each has a tuple, and has advanced to 100 ms."""
    streams = streams_at(wires, counts)
    wires.nodes[0].engine.push_many({name: tuples((f"first-{name[len(EX) :]}", 50)) for name in streams}, 100)
    wires.nodes[0].engine.settle(LONG_S)
    wires.kinds()
    return streams


def stands(wires: Wires) -> dict[str, tuple[int, int | None]]:
    """How many tuples each stream has, and up to when it is closed."""
    wires.nodes[0].engine.settle(LONG_S)
    streams = wires.nodes[0].engine.stats()["streams"]
    return {name: (one["tuples"], one["closed_ms"]) for name, one in streams.items()}


def subjects(wires: Wires) -> list[str]:
    found = wires.nodes[0].engine.query(f"SELECT ?s {{ ?s <{EX}p> ?o }}")
    return sorted(str(row[0]).removeprefix(EX) for row in found)


@pytest.mark.parametrize("node_count", [1, 2, 3])
def test_a_push_to_several_streams_is_one_message_to_each_writer_and_from_each_to_each_node(node_count: int) -> None:
    with wired(node_count) as wires:
        streams = began(wires, dict.fromkeys(range(node_count), 2))
        for at in range(1, 4):
            said = {name: tuples((f"a{at}-{name[len(EX) :]}", 100 * at + 50)) for name in streams}
            assert wires.nodes[0].engine.push_many(said, 100 * (at + 1)) == dict.fromkeys(streams, 1)
            asked = sorted(wires.kinds())
            nodes = range(node_count)
            pushes = [(PUSH, node) for node in nodes if node]
            feeds = [(FEED, node) for node in nodes for _ in nodes]
            assert [one for one in asked if one[0] != CLAIM] == sorted([*pushes, *feeds])
            assert len([one for one in asked if one[0] == CLAIM]) <= node_count * (node_count - 1)
        assert stands(wires) == dict.fromkeys(streams, (4, 400))
        assert len(subjects(wires)) == 4 * len(streams)


def test_no_stream_advances_before_all_of_the_call_have_begun() -> None:
    with wired(2) as wires:
        first, second, third = streams_at(wires, {0: 1, 1: 2})
        engine = wires.nodes[0].engine
        engine.push_many({first: tuples(("a", 50)), second: tuples(("b", 50)), third: None}, 1000)
        told = [fed for _, _, packet in wires.asked if packet.kind == FEED for fed in packet.fields["feds"]]
        advanced = [place for place, fed in enumerate(told) if fed.get("complete_ms") == 1000]
        rows = [place for place, fed in enumerate(told) if fed["piece_count"]]
        assert len(rows) == 4
        assert max(rows) < min(advanced)
        assert stands(wires) == {first: (1, 1000), second: (1, 1000), third: (0, 1000)}
        assert not any(one.is_late for one in wires.nodes[0].host.node.control.streams.values())


def test_a_push_to_several_streams_goes_in_parts_where_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "TOGETHER_BYTES_MAX", 200)
    monkeypatch.setattr(pushing, "TOGETHER_BYTES_MAX", 200)
    monkeypatch.setattr(writing, "TOGETHER_MAX", 2)
    with wired(2) as wires:
        streams = began(wires, {1: 3})
        said = {name: tuples(*((f"{name[len(EX) :]}-{t}", t) for t in range(150, 650, 100))) for name in streams}
        assert wires.nodes[0].engine.push_many(said, 700) == dict.fromkeys(streams, 5)
        assert [kind for kind in wires.kinds() if kind[0] == PUSH] == [(PUSH, 1)] * 3
        assert stands(wires) == dict.fromkeys(streams, (6, 700))
        assert len(subjects(wires)) == 18


def test_an_error_of_one_stream_names_it_and_those_that_were_taken() -> None:
    with wired(2) as wires:
        streams = began(wires, {0: 2, 1: 2})
        said = {name: tuples((f"a-{name[len(EX) :]}", 150)) for name in streams}
        said[streams[1]], said[streams[2]] = tuples(("late", 50)), tuples(("x", 190), ("y", 170))
        taken = f"The tuples of this call for {streams[0]}, {streams[3]} were taken"
        with pytest.raises(StreamError, match=f"^stream {streams[1]}: timestamp 50 ms") as told:
            wires.nodes[0].engine.push_many(said, 200)
        assert taken in str(told.value)
        assert f"Also: stream {streams[2]}" in str(told.value)
        left = dict.fromkeys(streams) | {name: tuples(("b", 150)) for name in streams[1:3]}
        assert wires.nodes[0].engine.push_many(left, 200) == {name: int(name in streams[1:3]) for name in streams}
        assert stands(wires) == dict.fromkeys(streams, (2, 200))


def test_a_writer_that_is_away_keeps_the_others_from_nothing() -> None:
    with wired(3) as wires:
        here, away, there = streams = began(wires, {0: 1, 1: 1, 2: 1})
        said = {name: tuples((f"a-{name[len(EX) :]}", 150)) for name in streams}
        fault = wires.lose(PUSH, 1)
        taken = f"the connection was lost. The tuples of this call for {here}, {there} were taken"
        with pytest.raises(NodeUnavailable, match=taken):
            wires.nodes[0].engine.push_many(said, 200)
        fault.count = 0
        assert wires.nodes[0].engine.push_many({here: None, away: said[away], there: None}, 200)[away] == 1
        assert stands(wires) == dict.fromkeys(streams, (2, 200))


@pytest.mark.parametrize("is_done", [False, True])
def test_a_push_to_several_streams_that_was_cut_off_and_is_said_again_counts_once(is_done: bool) -> None:
    with wired(2) as wires:
        streams = began(wires, {0: 2})
        said = {name: tuples((f"a-{name[len(EX) :]}", 150)) for name in streams}
        fault = wires.lose(FEED, 1, is_done)
        for _ in range(2):
            with patch.object(pushing, "PUSH_S", SHORT_S), pytest.raises(NodeUnavailable, match="Also: "):
                wires.nodes[0].engine.push_many(said, 200)
        fault.count = 0
        assert wires.nodes[0].engine.push_many(said, 300) == dict.fromkeys(streams, 1)
        assert stands(wires) == dict.fromkeys(streams, (2, 300))
        assert len(subjects(wires)) == 4


def test_a_node_that_refuses_one_stream_of_a_message_takes_the_others() -> None:
    with wired(2) as wires:
        first, second, third = streams = began(wires, {0: 3})
        said = {name: tuples((f"a-{name[len(EX) :]}", 150)) for name in streams}
        intake, refuses = wires.nodes[1].intake, [second]
        take_piece = intake._take_piece

        def refused(piece: Piece, view: int, notes: list[Packet] | None = None) -> None:
            if piece.stream in refuses:
                raise StreamError("not now")
            take_piece(piece, view, notes)

        with patch.object(intake, "_take_piece", refused):
            taken = f"others refuse it: not now.*The tuples of this call for {first}, {third} were taken"
            with pytest.raises(NodeUnavailable, match=taken):
                wires.nodes[0].engine.push_many(said, 200)
            refuses.clear()
            again = {first: None, second: said[second], third: None}
            assert wires.nodes[0].engine.push_many(again, 200) == {first: 0, second: 1, third: 0}
        assert stands(wires) == dict.fromkeys(streams, (2, 200))
        assert len(subjects(wires)) == 6


def test_calls_of_the_same_streams_in_other_orders_do_not_wait_for_each_other_for_ever() -> None:
    with wired(2) as wires:
        streams = began(wires, {0: 2, 1: 2})
        engine = wires.nodes[0].engine

        def push(names: Sequence[str]) -> None:
            for _ in range(20):
                engine.push_many({name: tuples((f"{name[len(EX) :]}", 1000)) for name in names})

        threads = [threading.Thread(target=push, args=(names,)) for names in (streams, streams[::-1], streams[1:])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(3 * LONG_S)
        assert not any(thread.is_alive() for thread in threads)
        engine.push_many(dict.fromkeys(streams), 1000)
        assert stands(wires) == {name: (41 if name == streams[0] else 61, 1000) for name in streams}


def test_an_advance_that_was_cut_off_counts_and_is_finished_before_the_next_push() -> None:
    with written() as (wires, writer):
        fault = wires.lose(FEED, 1)
        with pytest.raises(NodeUnavailable):
            writer.advance(1000, SHORT_S)
        fault.count = 0
        with pytest.raises(StreamError, match="timestamp 500 ms at tuple 0 of the call, but the stream already stands"):
            writer.push(encoded(("b", 500)), LONG_S)
        writer.push(encoded(("c", 1050)), LONG_S)
        assert offsets(wires) == [2, 2]
        check_stored(wires, "ac")


def test_an_end_that_was_cut_off_is_finished_and_nothing_comes_behind_it() -> None:
    with written() as (wires, writer):
        fault = wires.lose(FEED, 1)
        with pytest.raises(NodeUnavailable):
            writer.finish(SHORT_S)
        fault.count = 0
        with pytest.raises(StreamError, match=f"stream {STREAM} is closed: declare a new one to push more"):
            writer.push(encoded(("b", 150)), LONG_S)
        assert offsets(wires) == [1, 1]
        writer.finish(LONG_S)
        asked = len(wires.asked)
        writer.finish(LONG_S)
        assert len(wires.asked) == asked, "it has ended"
        with pytest.raises(StreamError, match="is closed"):
            writer.advance(2000, LONG_S)
        check_stored(wires, "a")


def test_an_end_that_one_node_refuses_is_finished_as_well() -> None:
    with written() as (wires, writer):
        wires.refuse(FEED, 1, StreamError("not now"), 1)
        with pytest.raises(NodeUnavailable, match=r"some nodes have .* others refuse it: not now"):
            writer.finish(LONG_S)
        with pytest.raises(StreamError, match="is closed"):
            writer.push(encoded(("b", 150)), LONG_S)
        assert [position(node.host.node.intakes[STREAM], "")[2] for node in wires.nodes] == [True, True]


def test_an_advance_beyond_all_times_is_refused_and_promises_nothing() -> None:
    with wired(2) as wires:
        stream = wires.nodes[0].engine.stream(STREAM, batch_ms=100)
        for time_ms in (1 << 42, 1 << 62, -1 << 62):
            with pytest.raises(StreamError, match=f"timestamp {time_ms} ms is outside of what can be named"):
                stream.advance(time_ms)
        assert stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", 50)]) == 1


def test_an_advance_backwards_says_nothing() -> None:
    with wired(2) as wires:
        declared(wires)
        _, writer = wires.writer()
        writer.advance(1000, LONG_S)
        wires.kinds()
        writer.advance(900, LONG_S)
        writer.advance(1000, LONG_S)
        assert wires.kinds() == []
        with pytest.raises(StreamError, match="timestamp 900 ms"):
            writer.push(encoded(("a", 900)), LONG_S)


def test_a_push_that_nobody_took_is_forgotten_and_one_that_some_took_is_not() -> None:
    refusal = StreamError("no room here")
    with wired(2) as wires:
        declared(wires)
        node, writer = wires.writer()
        other = 1 - node.me.node
        writer.push(encoded(("a", 50)), LONG_S)
        refused = wires.refuse(FEED, 0, refusal, 1), wires.refuse(FEED, 1, refusal, 1)
        with pytest.raises(StreamError, match="no room here"):
            writer.push(encoded(("b", 150)), LONG_S)
        assert [one.count for one in refused] == [0, 0]
        writer.push(encoded(("c", 150)), LONG_S)
        wires.refuse(FEED, other, refusal, 1)
        with pytest.raises(NodeUnavailable, match=r"some nodes have .* others refuse it: no room here"):
            writer.push(encoded(("d", 250)), LONG_S)
        writer.push(encoded(("e", 250)), LONG_S)
        check_stored(wires, "acde")


def test_the_next_writer_goes_on_behind_what_any_node_has_of_a_push() -> None:
    """The last one went when one node had both stream batches of its push, and the other none."""
    with wired(2) as wires:
        declared(wires)
        node, writer = wires.writer()
        writer.push(encoded(("a", 50)), LONG_S)
        shares = writer._shares(writer._told(writer._pieces(encoded(("b", 150), ("c", 750)))))
        wires.networks[0].handlers[FEED](feds_packet([shares[0]], 0))
        assert offsets(wires) == [3, 1]
        following = other_writer(wires)
        with pytest.raises(StreamError, match="timestamp 150 ms at tuple 0 of the call, but the stream already stands"):
            following.push(encoded(("b", 150), ("c", 750)), LONG_S)
        following.push(encoded(("d", 750)), LONG_S)
        assert offsets(wires) == [4, 4]
        following.finish(LONG_S)
        wires.nodes[0].engine.settle(LONG_S)
        for one in wires.nodes:
            assert f"{EX}d" in {str(row[0]) for row in one.engine.query(f"SELECT ?s {{ ?s <{EX}p> ?o }}")}
        assert node.host.failure is None


def push_of(
    writer: StreamWriter,
    number: int,
    *tuples: tuple[str, int],
    needed: tuple[int, ...] = (),
    timeout_s: float = LONG_S,
) -> list[int]:
    """Push what the client "me" has numbered; return the numbers of the late tuples."""
    said = Said(encoded(*tuples), None, Asked.of("me", number, needed))
    (outcome,) = take_together([(writer, said)], timeout_s)
    if isinstance(outcome, WukongsError):
        raise outcome
    return list(outcome)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("tuples", [[("b", 150)], [("b", 150), ("c", 750), ("d", 1250)]])
def test_the_next_writer_gives_a_push_that_some_nodes_have_to_the_others_when_it_is_said_again(
    place: int, tuples: list[tuple[str, int]]
) -> None:
    with written() as (wires, writer):
        push_of(writer, 1, ("y", 60))
        agreed(writer, *tuples)
        wires.lose(FEED, place, count=1 << 20)
        with pytest.raises(OutcomeUnknown):
            push_of(writer, 2, *tuples, timeout_s=SHORT_S)
        wires.faults.clear()
        following = other_writer(wires)
        counts = sorted(offsets(wires))
        assert counts == [2, 2 + len(tuples)], "one node has it"
        with pytest.raises(Held):
            following.push(encoded(("z", 1350)), LONG_S)
        assert push_of(following, 1, ("y", 60)) == [], "it is whole, and known"
        assert offsets(wires) in (counts, counts[::-1])
        for one in (following, other_writer(wires), following):
            assert push_of(one, 2, *tuples) == []
            assert offsets(wires) == [counts[1]] * 2
        following.push(encoded(("z", 1350)), LONG_S)
        check_stored(wires, ["a", "y", "z", *(name for name, _ in tuples)])


def test_a_push_that_is_not_said_again_is_never_known() -> None:
    with written() as (wires, writer):
        agreed(writer, ("b", 150))
        wires.lose(FEED, 1, count=1 << 20)
        with pytest.raises(OutcomeUnknown):
            push_of(writer, 1, ("b", 150), timeout_s=SHORT_S)
        wires.faults.clear()
        following = other_writer(wires)
        with pytest.raises(Held):
            push_of(following, 2, ("c", 250))
        following._torn_until = time.monotonic()  # its time is over
        push_of(following, 3, ("c", 250), needed=(1, 3))
        for one in (following, other_writer(wires)):
            with pytest.raises(OutcomeUnknown, match="in the middle of this push"):
                push_of(one, 1, ("b", 150), needed=(1, 3))


def test_a_push_that_no_node_has_is_taken_anew_and_one_that_was_refused_is_none() -> None:
    refusal = StreamError("no room here")
    with written() as (wires, writer):
        agreed(writer, ("b", 150))
        both = wires.lose(FEED, 0, count=1 << 20), wires.lose(FEED, 1, count=1 << 20)
        with pytest.raises(OutcomeUnknown):
            push_of(writer, 1, ("b", 150), timeout_s=SHORT_S)
        assert [fault.count for fault in both] != [0, 0]
        wires.faults.clear()
        following = other_writer(wires)
        assert push_of(following, 1, ("b", 150)) == []
        wires.refuse(FEED, 0, refusal, 1), wires.refuse(FEED, 1, refusal, 1)
        with pytest.raises(StreamError, match="no room here"):
            push_of(following, 2, ("c", 250))
        assert push_of(following, 3, ("d", 250)) == []
        assert push_of(other_writer(wires), 3, ("d", 250)) == []
        check_stored(wires, "abd")


def test_late_tuples_are_late_again_when_a_push_is_said_again() -> None:
    with wired(2) as wires:
        wires.nodes[0].engine.stream(STREAM, batch_ms=100, lateness_ms=100, on_late="count")
        _, writer = wires.writer()
        writer.push(encoded(("a", 1050)), LONG_S)
        tuples = [("b", 150), ("c", 2050), ("d", 250)]
        agreed(writer, ("c", 2050))  # those that are late are none of theirs
        wires.lose(FEED, 1, count=1 << 20)
        with pytest.raises(OutcomeUnknown):
            push_of(writer, 1, *tuples, timeout_s=SHORT_S)
        wires.faults.clear()
        following = other_writer(wires)
        assert [push_of(one, 1, *tuples) for one in (following, following, other_writer(wires))] == [[0, 2]] * 3
        assert offsets(wires) == [2, 2]


def test_the_next_writer_finishes_an_end_that_some_nodes_have() -> None:
    with written() as (wires, writer):
        wires.lose(FEED, 1, count=1 << 20)
        with pytest.raises(NodeUnavailable):
            writer.finish(SHORT_S)
        wires.faults.clear()
        following = other_writer(wires)
        with pytest.raises(StreamError, match="is closed"):
            following.push(encoded(("b", 150)), LONG_S)
        following.finish(LONG_S)
        assert [position(node.host.node.intakes[STREAM], "")[2] for node in wires.nodes] == [True, True]


def test_who_was_locked_out_in_a_push_comes_back_without_it() -> None:
    with written() as (wires, writer):
        agreed(writer, ("b", 150))
        fault = wires.lose(FEED, 1)
        with pytest.raises(NodeUnavailable):
            writer.push(encoded(("b", 150)), SHORT_S)
        fault.count = 0
        other_writer(wires).push(encoded(("c", 250)), LONG_S)
        assert offsets(wires) == [3, 3]
        writer.push(encoded(("d", 350)), LONG_S)
        assert offsets(wires) == [4, 4]


def test_an_old_writer_is_locked_out_by_the_next_one() -> None:
    with written() as (wires, writer):
        told = writer._told(writer._pieces(encoded(("b", 150))))
        other_writer(wires).push(encoded(("c", 150)), LONG_S)
        with pytest.raises(StreamError, match=r"writer \d+ is locked out by the newer writer \d+"):
            writer._send(writer._shares(told), time.monotonic() + LONG_S)
        assert offsets(wires) == [2, 2]


def test_a_push_without_room_on_one_node_is_refused_on_all() -> None:
    with wired(2, settings=Settings(queued_bytes_max=1024)) as wires:
        declared(wires)
        _, writer = wires.writer()
        wires.nodes[0].engine.stream(EX + "holds", batch_ms=100).advance(0)
        writer.push(encoded(("a", 50)), LONG_S)
        wires.kinds()
        with pytest.raises(StreamError, match=r"more tuples would exceed queued_bytes_max at node \d, which has room"):
            writer.push(encoded(*((f"b{i}", 150) for i in range(40))), LONG_S)
        assert offsets(wires) == [1, 1]
        writer.push(encoded(("c", 150)), LONG_S)
        assert offsets(wires) == [2, 2]


def test_pushes_of_two_clients_come_one_after_the_other_on_all_nodes() -> None:
    with written() as (wires, writer):
        second = threading.Thread(target=writer.push, args=(encoded(("c", 150), ("d", 150)), LONG_S))
        held: list[list[int]] = []

        def begin_second(node: int, packet: Packet) -> None:
            if packet.kind == FEED and not held:
                second.start()
                held.append(offsets(wires))

        wires.before = begin_second
        writer.push(encoded(("b", 150)), LONG_S)
        second.join()
        assert held == [[1, 1]]
        assert offsets(wires) == [4, 4]
        check_stored(wires, "abcd")


def test_who_waits_for_another_push_waits_no_longer_than_it_says() -> None:
    with wired(1) as wires:
        declared(wires)
        _, writer = wires.writer()
        told: list[WukongsError] = []

        def wait(call: object) -> None:
            try:
                call(SHORT_S)  # type: ignore[operator]
            except WukongsError as error:
                told.append(error)

        def hold(node: int, packet: Packet) -> None:
            if packet.kind == FEED and not told:
                calls = (
                    lambda timeout_s: writer.push(encoded(("b", 150)), timeout_s),
                    lambda timeout_s: writer.advance(1000, timeout_s),
                    writer.finish,
                )
                for call in calls:
                    thread = threading.Thread(target=wait, args=(call,))
                    thread.start()
                    thread.join()

        wires.before = hold
        writer.push(encoded(("a", 50)), LONG_S)
        assert len(told) == 3
        for error in told:
            assert isinstance(error, NodeUnavailable)
            assert f"stream {STREAM}: another call is under way, for longer than {SHORT_S} s" in str(error)
        writer.push(encoded(("c", 150)), LONG_S)
        check_stored(wires, "ac")


def test_who_is_not_the_writer_says_who_is() -> None:
    with wired(2) as wires:
        declared(wires)
        at, _ = wires.writer()
        other = wires.nodes[1 - at.me.node]
        other.backend._sink._writers.push(STREAM, encoded(("a", 50)), LONG_S)
        _, asked, packet = next(one for one in wires.asked if one[2].kind == PUSH)
        assert asked == at.me.node
        answer = wires.networks[other.me.node].handlers[PUSH](packet)
        assert (answer.fields, offsets(wires)) == ({"answers": [{"writer": at.me.node}]}, [1, 1])
        wires.faults.append(Fault(PUSH, at.me.node, answer))
        answer.fields["answers"][0]["writer"] = other.me.node
        with pytest.raises(NodeUnavailable, match=r"the nodes did not agree within 0.05 s who writes it"):
            other.backend._sink._writers.push(STREAM, encoded(("b", 150)), SHORT_S)
        with pytest.raises(DataError, match="push: timeout_s = 'long': expected a number of seconds"):
            wires.networks[at.me.node].handlers[PUSH](
                Packet(PUSH, {**packet.fields, "timeout_s": "long"}, packet.arrays)
            )
        assert offsets(wires) == [1, 1]


def test_writers_of_streams_that_are_gone_are_forgotten() -> None:
    with wired(1) as wires:
        engine = wires.nodes[0].engine
        for _ in range(3):
            engine.stream(STREAM, batch_ms=100).push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}o>", 50)])
            engine.drop_stream(STREAM)
        engine.stream(EX + "t", batch_ms=100).push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}o>", 50)])
        assert list(wires.nodes[0].backend._sink._writers._writers) == [EX + "t"]


def test_members_are_asked_again_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with wired(2) as wires:
        declared(wires)
        _, writer = wires.writer()
        wires.lose(FEED, 1, count=2)
        writer.push(encoded(("a", 50)), LONG_S)
        assert [node for kind, node in wires.kinds() if kind == FEED].count(1) >= 3
        agreed(writer, ("b", 150))
        monkeypatch.setattr(members, "ROUND_S", 0.001)
        wires.lose(FEED, 1)
        with pytest.raises(NodeUnavailable, match="node 1"):
            writer.push(encoded(("b", 150)), SHORT_S)


def test_a_writer_comes_behind_one_whose_clock_was_ahead_and_of_which_its_node_has_not_heard() -> None:
    with wired(2) as wires:
        stream = wires.nodes[0].engine.stream(STREAM, batch_ms=100)
        until(lambda: all(node.store.has_stream(STREAM) for node in wires.nodes))
        number = writer_of(wires.nodes[0].host.node, STREAM)
        ahead = time.time_ns() // 1_000_000 + 86_400_000
        wires.nodes[1 - number].intake.restore_epochs([(STREAM, PUSH_PARTITION, ahead)])
        stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", 50)])
        assert [node.intake.newest_epoch(STREAM, PUSH_PARTITION) for node in wires.nodes] == [ahead + 1] * 2
