"""Stories of logs that are cut off, and of reports that travel, too rare to wait for a seed. Each raises
AssertionError."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tests.sim.stories import OUT, STREAM, hears, node_with
from tests.sim.telling import outcome
from wukongs.protocol import gossip
from wukongs.protocol.actions import CollectState, Expose, SaveControl, Send
from wukongs.protocol.control import apply, forget
from wukongs.protocol.events import HeldReads, Inserted, Marker, Pulse, Settled
from wukongs.protocol.messages import Appended, FetchState, Gossip, Incarnation, InstallControl, Report
from wukongs.protocol.node import step
from wukongs.protocol.progress import Progress, hear
from wukongs.protocol.records import BEGINNING, BeginStream, Change, DeclareStream, Entry, Membership, Role, Sn, Voter
from wukongs.protocol.state import Kept, Node, boot

LEADER = Incarnation(2, 0, 1)
RECORDS = [STREAM, BeginStream("s"), Change("client", 1, "", None, 0)]


def _long(records: list[Any], committed: dict[int, int]) -> Node:
    """Return node 0 with a log that is to be cut, and reports of how far the others have applied it."""
    node = node_with([*RECORDS, *records])
    node = replace(node, cluster=replace(node.cluster, log_entries_max=2))
    reports = [Report(Incarnation(one, 0, 1), 1, {}, BEGINNING, committed=index) for one, index in committed.items()]
    node, _ = hears(node, LEADER, Gossip(tuple(reports)))
    return node


def _cuts(node: Node) -> list[int]:
    """Let two pulses pass: the first chooses where to cut, if the log is long."""
    node, actions = step(node, Pulse(0))
    _, more = step(node, Pulse(0))
    return [action.control.index for action in [*actions, *more] if isinstance(action, SaveControl)]


def what_the_host_may_need_again_is_kept() -> None:
    node = _long([], {1: 3, 2: 3})
    assert _cuts(node) == [], "a restart would not find what the records did"
    early, _ = step(node, Settled(2))
    assert _cuts(early) == []
    late, _ = step(node, Settled(3))
    assert _cuts(late) == [3]


def what_a_member_lacks_is_kept() -> None:
    for committed in ({1: 2, 2: 3}, {2: 3}):
        node, _ = step(_long([], committed), Settled(3))
        assert _cuts(node) == [], "node 1 would never know what the record did"
    lost = _long([], {2: 3})
    lost, _ = hears(lost, LEADER, Gossip((Report(Incarnation(1, 1, 1), 1, {}, BEGINNING, committed=3),)))
    assert _cuts(step(lost, Settled(3))[0]) == [], "what another disk has applied is not what this one has"
    out, _ = step(_long([OUT], {2: 4}), Settled(4))
    assert _cuts(out) == [4], "who is OUT gets everything anew"


def _offer(node: Node, *records: Any) -> tuple[Node, list[Any], InstallControl]:
    """Let a leader offer its control state after these records."""
    control = node_with([]).control
    for record in [*RECORDS, *records]:
        control = apply(control, Entry(1, record, *((0, LEADER.voter) if record in RECORDS else ())))
    offer = InstallControl(1, control, frozenset({Voter(0, 0)}))
    return *hears(node, LEADER, offer), offer


def who_takes_part_does_not_skip_records() -> None:
    """Node 1 lacks what the records did that it would skip, and would answer readers."""
    node, actions, _ = _offer(node_with(RECORDS[:1], 1))
    assert (node.control.index, actions) == (1, [Send(2, Appended(1, True, 1))]), "the leader has what comes after"
    later = node_with(RECORDS[:1], 1)
    later, actions, _ = _offer(replace(later, log=replace(later.log, term=9)))
    assert actions == [Send(2, Appended(9, False, 0))], "a leader of an older term has to hear of this one"


def who_is_out_goes_on_from_a_control_state() -> None:
    node, actions, offer = _offer(node_with([], 1), OUT)
    assert (node.control, node.log.base, node.log.commit) == (offer.control, 4, 4)
    assert isinstance(actions[0], SaveControl)
    assert actions[0].is_jump
    assert actions[1] == Send(2, Appended(1, True, 4)), "on disk before anybody hears of it"


def who_knows_of_its_joining_by_a_control_state_asks_who_has_gone_as_far() -> None:
    joining = Membership(1, 0, Role.JOINING)
    node, _, _ = _offer(node_with([], 1), OUT, joining, Change("client", 2, "", None, 0))
    assert node.control.index == 6
    _, actions = step(node, Pulse(0))
    asked = [action.body for action in actions if isinstance(action, Send) and isinstance(action.body, FetchState)]
    assert asked[0] == FetchState(5, 6), "it skips record 6 as well"
    donor = node_with([*RECORDS, OUT, joining])
    _, told = hears(donor, Incarnation(1, 0, 1), asked[0])
    assert not any(isinstance(action, CollectState) for action in told), "this one has not applied record 6"


def nothing_is_exposed_before_what_was_forgotten() -> None:
    control = forget(node_with(RECORDS).control, Sn(7, 0))
    node = boot(node_with([]).cluster, Incarnation(0, 0, 2), Kept(control=control, term=1))
    for batch, is_exposed in ((6, False), (7, True)):
        reports = [Report(Incarnation(one, 0, 2), batch, {"s": batch}, BEGINNING) for one in range(3)]
        _, actions = hears(node, LEADER, Gossip(tuple(reports)))
        assert any(isinstance(action, Expose) for action in actions) == is_exposed


def what_readers_hold_is_not_forgotten() -> None:
    for held, floor in ((Sn(0, 1), Sn(0, 1)), (None, Sn(0, 3))):
        node, _ = step(_long([], {1: 3, 2: 3}), Settled(3))
        node, _ = step(node, HeldReads(held, None))
        for _ in range(4):
            node, _ = step(node, Pulse(0))
        assert (node.log.base, node.control.floor) == (3, floor)
        assert node.log.applied == node.control


def _told(talk: gossip.Talk, progress: Progress) -> tuple[gossip.Talk, set[int]]:
    talk, actions = gossip.tell(talk, progress, 0, [9], 0)
    bodies = [action.body for action in actions if isinstance(action, Send) and isinstance(action.body, Gossip)]
    return talk, {report.incarnation.node for body in bodies for report in body.reports}


def what_is_no_news_is_told_now_and_then() -> None:
    progress = hear(Progress(), [Report(Incarnation(node, 0, 1), 1, {}, BEGINNING) for node in range(3)])
    talk, told = _told(gossip.Talk(), progress)
    assert told == {0, 1, 2}
    talk, told = _told(talk, progress)
    assert told == set(), "it was told all this"
    progress = hear(progress, [Report(Incarnation(1, 0, 1), 2, {}, BEGINNING)])
    talk, told = _told(talk, progress)
    assert told == {1}
    for _ in range(gossip.FULL_TIMES - 3):
        talk, told = _told(talk, progress)
        assert told == set()
    talk, told = _told(talk, progress)
    assert told == {0, 1, 2}, "the first message may have been lost"


def of_too_much_news_a_part_is_told_and_the_own_first() -> None:
    count = gossip.REPORTS_MAX + 20
    progress = hear(Progress(), [Report(Incarnation(node, 0, 1), 1, {}, BEGINNING) for node in range(count)])
    for draw in (0, 100, count - 1):
        _, actions = gossip.tell(gossip.Talk(), progress, 3, [count], draw)
        (send,) = [action for action in actions if isinstance(action, Send)]
        assert isinstance(send.body, Gossip)
        assert len({report.incarnation.node for report in send.body.reports}) == gossip.REPORTS_MAX
        assert send.body.reports[0].incarnation.node == 3


def many_streams_cost_no_more_messages_than_one() -> None:
    others = [DeclareStream(f"s{number}", ("a",)) for number in range(20)]
    node = node_with([*others, *(BeginStream(one.stream) for one in others)])
    told = []
    for batch in range(1, gossip.EARLY_MAX + 3):
        for one in others:
            node, _ = step(node, Marker(one.stream, "a", 1, batch, 0))
            node, actions = step(node, Inserted(one.stream, batch))
            told.append(sum(isinstance(action, Send) for action in actions))
    assert told == ([0] * 19 + [2]) * gossip.EARLY_MAX + [0] * 40, "others wait for the last stream of each tick only"
    node, _ = step(node, Pulse(0))
    assert node.progress.latest[0].vts["s0"] == gossip.EARLY_MAX + 2


def who_has_nothing_new_to_say_still_says_that_it_lives() -> None:
    node = node_with([])
    made = []
    for _ in range(4 * gossip.REPORT_PULSES):
        node, _ = step(node, Pulse(0))
        made.append(node.progress.latest[0].counter)
    assert 4 <= len(set(made)) <= 5


STORIES = (
    what_the_host_may_need_again_is_kept,
    what_a_member_lacks_is_kept,
    who_takes_part_does_not_skip_records,
    who_is_out_goes_on_from_a_control_state,
    who_knows_of_its_joining_by_a_control_state_asks_who_has_gone_as_far,
    nothing_is_exposed_before_what_was_forgotten,
    what_readers_hold_is_not_forgotten,
    what_is_no_news_is_told_now_and_then,
    of_too_much_news_a_part_is_told_and_the_own_first,
    who_has_nothing_new_to_say_still_says_that_it_lives,
    many_streams_cost_no_more_messages_than_one,
)

failure = partial(outcome, STORIES)
