"""Stories of streams that begin behind the ticks, and catch up. Each raises AssertionError."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tests.sim.stories import STREAM, hears, node_with
from tests.sim.telling import outcome
from wukongs.protocol.actions import Expose
from wukongs.protocol.control import Control, apply, genesis, is_valid
from wukongs.protocol.events import Inserted, Marker, PieceOffered, Pulse
from wukongs.protocol.leading import late_joins
from wukongs.protocol.log import LogRole
from wukongs.protocol.messages import Gossip, Incarnation, Propose, Report
from wukongs.protocol.node import step
from wukongs.protocol.progress import Progress, hear, settle
from wukongs.protocol.records import BEGINNING, BeginStream, DeclareStream, EndStream, Entry, LateJoin, Sn
from wukongs.protocol.snapshots import stable_sn
from wukongs.protocol.state import Kept, Node, boot
from wukongs.protocol.waiting import is_waited_for, wanted

LEADER = Incarnation(2, 0, 1).voter
LATE = DeclareStream("late", ("a",), 2)
BEGUN: tuple[tuple[int, Any], ...] = ((0, STREAM), (0, LATE), (0, BeginStream("s")), (9, BeginStream("late")))


def _control(*records: tuple[int, Any]) -> Control:
    control = replace(genesis(3, 2, 3), life="one")
    for tick, record in records:
        control = apply(control, Entry(1, record, tick, LEADER))
    return control


def _progress(control: Control, *all_have: dict[str, int]) -> Progress:
    """Return the progress where these are the VTSs of the nodes."""
    reports = [Report(Incarnation(node, 0, 1), 1, vts, BEGINNING) for node, vts in enumerate(all_have)]
    return settle(hear(Progress(), reports), control)


def _leader(*records: tuple[int, Any]) -> Node:
    """Return node 0 as the leader behind these records."""
    node = node_with([])
    entries = tuple(Entry(1, record, tick, LEADER) for tick, record in records)
    others = {1: len(entries) + 1, 2: len(entries) + 1}
    log = replace(node.log, entries=entries, commit=len(entries), term=1, standing=LogRole.LEADER, leader=0)
    log = replace(log, next_index=others, match=dict.fromkeys(others, 0))
    return replace(node, log=log, control=_control(*records))


def who_has_the_first_rows_says_where_the_stream_begins() -> None:
    node = node_with([STREAM])
    node, _ = step(node, PieceOffered("s", "a", 1, 5, 0, 1))
    node, _ = step(node, Marker("s", "a", 1, 7, 1))
    assert wanted(node) == [BeginStream("s", 4)], "stream batches 5 to 7 may be behind the ticks"
    node = node_with([STREAM])
    node, _ = step(node, Marker("s", "a", 1, 7, 0))
    node, _ = step(node, Marker("s", "a", 1, 9, 0))
    assert wanted(node) == [BeginStream("s", 7)]
    node = node_with([STREAM])
    node, _ = step(node, PieceOffered("s", "a", 1, 5, 0, 1, after=2))
    node, _ = step(node, PieceOffered("s", "a", 1, 3, 1, 2, after=1))
    assert wanted(node) == [BeginStream("s", 2)], "rows of stream batches 3 and 4 may come yet"
    node = boot(node.cluster, Incarnation(0, 0, 2), Kept(vts={"s": 9}, offsets={"s": {"a": 3}}))
    assert wanted(replace(node, control=node_with([STREAM]).control)) == [BeginStream("s", 0)], "it may have had rows"


def a_stream_that_begins_with_what_is_to_come_is_not_late() -> None:
    for empty_to, is_late in ((3, True), (4, False), (8, False)):
        control = _control(*BEGUN[:3], (9, BeginStream("late", empty_to)))
        assert control.streams["late"].is_late == is_late, "stream batch 4 is the last that ends by tick 9"


def a_leader_brings_what_all_have_and_the_ticks_have_passed() -> None:
    leader = _leader(*BEGUN)
    for stable, vts, joins in (
        ({"s": 9}, {"s": 9, "late": 3}, []),
        ({"s": 9, "late": 3}, {"s": 9, "late": 3}, [LateJoin("late", 3)]),
        ({"s": 9, "late": 7}, {"s": 9, "late": 7}, [LateJoin("late", 4)]),
        ({"s": 9, "late": 7}, {"s": 12, "late": 7}, [LateJoin("late", 6)]),
    ):
        assert late_joins(leader.log, leader.control, _progress(leader.control, *[stable] * 3), vts) == joins


def a_late_stream_is_brought_by_one_record_at_a_time() -> None:
    leader = _leader(*BEGUN)
    has = {"s": 9, "late": 3}
    progress = _progress(leader.control, has, has, has)
    entry = Entry(1, LateJoin("late", 2), 9, LEADER)
    log = replace(leader.log, entries=(*leader.log.entries, entry))
    assert late_joins(log, leader.control, progress, has) == [], "stream batch 2 is on its way"
    control = apply(leader.control, entry)
    assert late_joins(replace(log, commit=log.last), control, progress, has) == [LateJoin("late", 3)]


def the_leaders_next_pulse_is_waited_for_while_there_is_more_to_bring() -> None:
    node = _leader(*BEGUN)
    has = {"s": 9, "late": 3}
    reports = tuple(Report(Incarnation(one, 0, 1), 1, has, BEGINNING) for one in (1, 2))
    node, _ = hears(node, Incarnation(2, 0, 1), Gossip(reports))
    for batch in range(1, 4):
        node, _ = step(node, Marker("late", "a", 1, batch, 0))
        node, _ = step(node, Inserted("late", batch))
    node, _ = step(node, Marker("s", "a", 1, 9, 0))
    node, _ = step(node, Inserted("s", 9))
    node, _ = step(node, Pulse(0))
    assert [entry.record for entry in node.log.entries[len(BEGUN) :]] == [LateJoin("late", 3)]
    done = apply(node.control, node.log.entries[-1])
    assert late_joins(node.log, done, node.progress, node.vts) == []
    assert is_waited_for(node), "the record is not committed yet"


def only_leaders_bring_late_streams() -> None:
    leader = _leader(*BEGUN)
    after, _ = hears(leader, Incarnation(2, 0, 1), Propose((LateJoin("late", 1),)))
    assert after.log == leader.log, "another node does not know what is stable here"
    assert after.refused == {"a proposal of what only leaders propose": 1}


def a_late_join_is_shown_where_all_that_it_names_is_known_to_be() -> None:
    """This node is the last to hear of it: the record comes before the reports of the others do."""
    node = node_with([])
    entries = tuple(Entry(1, record, tick, LEADER) for tick, record in (*BEGUN, (9, LateJoin("late", 3))))
    log = replace(node.log, entries=entries, commit=len(entries), term=1)
    node = replace(node, log=log)
    shown = []
    for counter, has in enumerate(({"s": 9, "late": 2}, {"s": 12, "late": 2}, {"s": 12, "late": 3}), 1):
        reports = [Report(Incarnation(one, 0, 1), counter, has, BEGINNING) for one in range(3)]
        node, actions = hears(node, Incarnation(2, 0, 1), Gossip(tuple(reports)))
        shown += [(action.sn, action.vts) for action in actions if isinstance(action, Expose)]
    assert shown == [(Sn(9, 1), {"s": 9}), (Sn(12, 0), {"s": 12, "late": 3})]


def a_late_stream_that_has_caught_up_holds_ticks_back_like_any_other() -> None:
    control = _control(*BEGUN, (11, LateJoin("late", 5)))
    assert stable_sn(control, {"s": 20, "late": 5}) == Sn(11, 1)
    assert stable_sn(control, {"s": 20, "late": 6}) == Sn(13, 0)


def nothing_is_brought_that_ends_later_than_the_record_lies() -> None:
    control = _control(*BEGUN)
    assert is_valid(control, Entry(1, LateJoin("late", 4), 9, LEADER))
    assert not is_valid(control, Entry(1, LateJoin("late", 5), 9, LEADER)), "ticks would take it back"


def a_late_stream_with_no_other_open_goes_up_to_its_end() -> None:
    """The other stream has ended at 9. Ticks stand still until the late one has come to them, and then go with it."""
    leader = _leader(*BEGUN, (9, EndStream("s", 9)))
    has = {"s": 9, "late": 8}
    progress = _progress(leader.control, has, has, has)
    assert stable_sn(leader.control, progress.stable).tick == 9
    (join,) = late_joins(leader.log, leader.control, progress, has)
    control = apply(leader.control, Entry(1, join, 9, LEADER))
    assert join == LateJoin("late", 4)
    assert stable_sn(control, progress.stable) == Sn(17, 0)
    assert control.vts_at(Sn(17, 0)) == has


STORIES = (
    who_has_the_first_rows_says_where_the_stream_begins,
    a_stream_that_begins_with_what_is_to_come_is_not_late,
    a_leader_brings_what_all_have_and_the_ticks_have_passed,
    a_late_stream_is_brought_by_one_record_at_a_time,
    the_leaders_next_pulse_is_waited_for_while_there_is_more_to_bring,
    only_leaders_bring_late_streams,
    a_late_join_is_shown_where_all_that_it_names_is_known_to_be,
    a_late_stream_that_has_caught_up_holds_ticks_back_like_any_other,
    nothing_is_brought_that_ends_later_than_the_record_lies,
    a_late_stream_with_no_other_open_goes_up_to_its_end,
)

failure = partial(outcome, STORIES)
