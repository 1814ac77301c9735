"""Intake, in bad moments: what a writer sends is taken once and in order, or refused by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.cluster.wires import EX, STREAM, Wires, encoded, wired
from wukongs.cluster import intake as intake_module
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.feeding import FEED, Fed, feds_packet
from wukongs.cluster.intake import EPOCH_MAX, LockedOut, PartitionAt, standings_in
from wukongs.errors import DataError, NodeUnavailable, StreamError
from wukongs.live.pieces import Close, Finish, Open, Piece, timing_mask
from wukongs.store.encoded import TermTable
from wukongs.wire.packets import Packet

P = "p"
LONG_S = 60.0


def opened(wires: Wires, epoch: int = 1) -> ClusterNode:
    """The one node, with a stream whose partition P is open."""
    node = wires.nodes[0]
    node.engine.stream(STREAM, batch_ms=100)
    node.intake.open_partition(Open(STREAM, P, epoch))
    return node


def piece(first: int, *tuples: tuple[str, int], epoch: int = 1) -> Piece:
    rows = encoded(*tuples)
    number = -(-tuples[0][1] // 100)
    return Piece(STREAM, P, epoch, first, first + len(rows), 0, number, rows, timing_mask(rows, ()))


def close(end: int, complete_ms: int, epoch: int = 1) -> Close:
    return Close(STREAM, P, epoch, end, complete_ms)


def fed(*pieces: Piece, **said: Any) -> Fed:
    return Fed(STREAM, P, 1, pieces, **said)


def standing(node: ClusterNode) -> tuple[int, bool]:
    found = node.intake._standing(STREAM, P)
    return found.offset, found.is_ended


def stored(node: ClusterNode) -> list[str]:
    node.intake.finish_partition(Finish(STREAM, P, 1 << 40))
    node.engine.settle(LONG_S)
    found = node.engine.query(f"SELECT ?s {{ ?s <{EX}p> ?o }}")
    return sorted(str(row[0]).removeprefix(EX) for row in found)


@pytest.mark.parametrize("time_ms", [(1 << 42) - 1, (1 << 63) - 1])
def test_a_marker_beyond_all_times_is_refused_and_ends_no_node(time_ms: int) -> None:
    """A batch number of more than 64 bits would be in what the nodes report, and none could read that."""
    with wired(2) as wires:
        opened(wires)
        wires.nodes[1].intake.open_partition(Open(STREAM, P, 1))
        for node in wires.nodes:
            with pytest.raises(StreamError, match=f"timestamp {time_ms} ms is outside of what can be named"):
                node.intake.close_batches(close(0, time_ms))
            node.intake.close_batches(close(0, -time_ms))
            node.intake.inject(piece(0, ("a", 150)))
            node.intake.finish_partition(Finish(STREAM, P, 1))
        assert stored(wires.nodes[0]) == ["a"]


def test_a_repeated_piece_changes_nothing_and_a_gap_is_refused_by_name() -> None:
    with wired(1) as wires:
        node = opened(wires)
        for _ in range(2):
            node.intake.inject(piece(0, ("a", 150), ("b", 160)))
        assert standing(node) == (2, False)
        with pytest.raises(
            StreamError, match=r"rows 5 to 6 of stream batch 2 do not follow on what is here. Send again from row 2"
        ):
            node.intake.inject(piece(5, ("d", 170)))
        with pytest.raises(StreamError, match=r"rows 2 to 3 of stream batch 1 do not follow on what is here"):
            node.intake.inject(piece(2, ("d", 70)))
        node.intake.inject(piece(2, ("c", 250)))
        node.intake.close_batches(close(3, 1000))
        node.intake.close_batches(close(3, 900))
        with pytest.raises(
            StreamError, match=r"rows 3 to 4 are of stream batch 10, which is closed. Send what is later"
        ):
            node.intake.inject(piece(3, ("e", 1000)))
        assert stored(node) == ["a", "b", "c"]


def test_a_close_before_its_rows_moves_behind_them_once() -> None:
    """Rows that do not come were set aside by the writer."""
    with wired(1) as wires:
        node = opened(wires)
        node.intake.open_partition(Open(STREAM, "q", 1))  # the stream goes on when P is at its end
        for _ in range(2):
            node.intake.close_batches(close(7, 200))
            assert standing(node) == (7, False)
        node.intake.close_batches(close(9, 200))
        assert standing(node) == (9, False), "the stream batch is closed, but rows were set aside"
        node.intake.inject(piece(9, ("a", 250)))
        for _ in range(2):
            node.intake.finish_partition(Finish(STREAM, P, 1))
        assert standing(node) == (10, True)
        node.intake.close_batches(close(10, 5000))
        with pytest.raises(StreamError, match=r"rows 10 to 11"):
            node.intake.inject(piece(10, ("b", 6000)))
        node.intake.finish_partition(Finish(STREAM, "q", 1))
        assert stored(node) == ["a"]


def test_an_older_writer_is_locked_out_whatever_it_says() -> None:
    with wired(1) as wires:
        node = opened(wires, epoch=7)
        calls: list[Callable[[], object]] = [
            lambda: node.intake.open_partition(Open(STREAM, P, 6)),
            lambda: node.intake.inject(piece(0, ("a", 50), epoch=6)),
            lambda: node.intake.close_batches(close(0, 100, epoch=6)),
            lambda: node.intake.finish_partition(Finish(STREAM, P, 6)),
        ]
        for call in calls:
            with pytest.raises(StreamError, match="writer 6 is locked out by the newer writer 7"):
                call()
        assert (node.intake.newest_epoch(STREAM, P), standing(node)) == (7, (0, False))


def test_a_piece_is_not_called_taken_when_a_newer_writer_has_sent_other_rows_in_its_place() -> None:
    """The newer one comes between the look at who writes and the offer."""
    with wired(1) as wires:
        node = opened(wires)
        settle = node.intake._claims.settle

        def settle_late(*arguments: Any) -> int:
            view = settle(*arguments)
            node.intake._claims.settle = settle  # type: ignore[method-assign]
            node.intake.open_partition(Open(STREAM, P, 2))
            node.intake.inject(piece(0, ("b", 50), epoch=2))
            return view

        node.intake._claims.settle = settle_late  # type: ignore[method-assign]
        with pytest.raises(StreamError, match="writer 1 is locked out by the newer writer 2"):
            node.intake.inject(piece(0, ("a", 50)))
        assert stored(node) == ["b"]


def test_an_end_that_was_not_taken_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows have come behind it."""
    with wired(1) as wires:
        node = opened(wires)
        node.intake.inject(piece(0, ("a", 50)))
        monkeypatch.setattr(node.host, "take_in", lambda *_, **__: (2, 1 << 40, False))
        with pytest.raises(StreamError, match="does not follow on what is here: send again from row 1"):
            node.intake.finish_partition(Finish(STREAM, P, 1))


def test_terms_are_claimed_again_when_members_change_before_the_piece_is_taken() -> None:
    with wired(1) as wires:
        node = opened(wires)
        settle, ago, settled = node.intake._claims.settle, [0, 1], []

        def noted(tables: Sequence[TermTable], *arguments: Any) -> int:
            settled.append([table.texts() for table in tables])
            return settle(tables, *arguments) - ago.pop()

        node.intake._claims.settle = noted  # type: ignore[method-assign]
        node.intake.inject(piece(0, ("a", 50)))
        assert (len(settled), ago) == (2, [])
        assert settled[0] == settled[1]
        assert node.host.node.refused == {"a piece of another view": 1}
        assert stored(node) == ["a"]


def test_a_writer_that_says_nothing_of_itself_is_refused() -> None:
    with wired(1) as wires:
        node = opened(wires)
        for call in (
            lambda: node.intake.inject(replace(piece(0, ("a", 50)), partition="q")),
            lambda: node.intake.finish_partition(Finish(STREAM, "q", 1)),
        ):
            with pytest.raises(StreamError, match="partition 'q': no writer has opened it here"):
                call()


def test_a_stream_that_nobody_declares_is_refused_and_a_node_that_ends_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with wired(1) as wires:
        node = wires.nodes[0]
        with monkeypatch.context() as patched:
            patched.setattr(intake_module, "DECLARED_S", 0.01)
            with pytest.raises(StreamError, match=f"unknown stream {STREAM}: it has to be declared first"):
                node.intake.open_partition(Open(STREAM, P, 1))
        node.host.close()
        with pytest.raises(NodeUnavailable, match="node 0 is closing"):
            node.intake.open_partition(Open(STREAM, P, 1))


def test_a_partition_of_a_stream_that_has_ended_cannot_join() -> None:
    with wired(1) as wires:
        node = opened(wires)
        node.intake.inject(piece(0, ("a", 50)))
        assert stored(node) == ["a"]
        for is_shown, said in ((True, "is closed"), (False, "'late': it came too late to join, the stream has ended")):
            node.store.stream(STREAM).is_ended = is_shown
            with pytest.raises(StreamError, match=said):
                node.intake.open_partition(Open(STREAM, "late", 1))


def test_writers_of_streams_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    with wired(1) as wires:
        node = opened(wires)
        node.engine.drop_stream(STREAM)
        control = node.host.node.control
        node.engine.stream(EX + "t", batch_ms=100)
        gone = replace(node.host.node, control=replace(control, streams={}))
        monkeypatch.setattr(node.intake, "_host", SimpleNamespace(node=gone))
        node.intake._fence(EX + "t", P, 3)
        assert node.intake._epochs == {(EX + "t", P): 3}


def test_what_another_node_feeds_waits_for_the_log_and_is_answered_with_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake_module, "LOG_S", 0.02)
    with wired(1) as wires:
        opened(wires)
        feed = wires.networks[0].handlers[FEED]
        index = wires.nodes[0].host.node.control.index
        answer = feed(feds_packet([fed(piece(0, ("a", 50), ("b", 60)), end_offset=2, complete_ms=99)], index))
        (found,) = standings_in(answer, 1)
        assert isinstance(found, PartitionAt)
        assert (found.offset, found.is_ended) == (2, False)
        assert found.room > 1000
        (later,) = standings_in(feed(feds_packet([fed(piece(2, ("c", 850)))], index)), 1)
        assert isinstance(later, PartitionAt)
        assert later.closed == found.closed + 8, "nothing comes any more for what lies before rows that are here"
        again = standings_in(feed(feds_packet([fed()], index)), 1)
        assert again == [later], "who only says that it writes is told the same"
        with pytest.raises(NodeUnavailable, match=f"for record {index + 9} of the log"):
            feed(feds_packet([fed(end_offset=3, complete_ms=900)], index + 9))
        with pytest.raises(DataError, match="feed: index = None: expected an integer"):
            feed(Packet(FEED, {**feds_packet([fed()], index).fields, "index": None}))
        (ended,) = standings_in(feed(feds_packet([fed(end_offset=3, complete_ms=900, is_last=True)], index)), 1)
        assert isinstance(ended, PartitionAt)
        assert ended.is_ended


def test_of_several_streams_in_a_message_each_is_answered_for_itself() -> None:
    with wired(1) as wires:
        node = opened(wires)
        node.engine.stream(EX + "t", batch_ms=100)
        node.intake.open_partition(Open(EX + "t", P, 1))
        feed, index = wires.networks[0].handlers[FEED], node.host.node.control.index
        other = replace(piece(0, ("b", 50)), stream=EX + "t")
        told = [
            fed(piece(0, ("a", 50))),
            Fed(EX + "unknown", P, 1, end_offset=0, complete_ms=100),
            Fed(EX + "t", P, 1, [other], end_offset=1, complete_ms=99),
        ]
        for _ in range(2):  # what comes again counts once
            first, second, third = standings_in(feed(feds_packet(told, index)), 3)
            assert isinstance(first, PartitionAt)
            assert isinstance(second, StreamError)
            assert "unknown" in str(second)
            assert isinstance(third, PartitionAt)
            assert (first.offset, third.offset) == (1, 1)


def test_an_answer_that_says_something_else_is_refused() -> None:
    fields = PartitionAt(1, 2, False, 3)._asdict()
    assert standings_in(Packet(FEED, {"standings": [fields]}), 1) == [(1, 2, False, 3)]
    with pytest.raises(DataError, match="feed: expected 2 standings, found 1"):
        standings_in(Packet(FEED, {"standings": [fields]}), 2)
    for wrong in ({"offset": True}, {"closed": "2"}, {"is_ended": 0}, {"room": None}):
        with pytest.raises(DataError, match="feed: expected offset, closed, is_ended, room, found"):
            standings_in(Packet(FEED, {"standings": [{**fields, **wrong}]}), 1)


@pytest.mark.parametrize(
    ("newest", "is_taken"), [(7, True), (-1, False), (EPOCH_MAX, False), (7.0, False), (True, False), (None, False)]
)
def test_a_node_cannot_tell_of_an_epoch_that_no_later_writer_can_follow(newest: object, is_taken: bool) -> None:
    told = {"error": "StreamError", "message": "a newer writer has it", "newest": newest}
    (found,) = standings_in(Packet(FEED, {"standings": [told]}), 1)
    assert isinstance(found, StreamError)
    assert isinstance(found, LockedOut) == is_taken
