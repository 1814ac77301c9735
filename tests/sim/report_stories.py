"""Stories of reports that are not whole. Each raises AssertionError."""

from __future__ import annotations

from functools import partial

from tests.sim.telling import outcome
from wukongs.protocol import gossip
from wukongs.protocol.actions import Send
from wukongs.protocol.control import Control, apply, genesis
from wukongs.protocol.messages import Gossip, Incarnation, Report
from wukongs.protocol.progress import Progress, has_caught_up, hear, lacking, settle
from wukongs.protocol.records import BEGINNING, DeclareStream, Entry, Membership, Position, Role

ONE = Incarnation(1, 0, 1)
AGAIN = Incarnation(1, 0, 2)
WHOLE = Report(ONE, 1, {"s": 4, "t": 4, "u": 4}, BEGINNING)


def _control(replica_count: int = 2) -> Control:
    control = genesis(3, replica_count, 3)
    for stream in "stu":
        control = apply(control, Entry(1, DeclareStream(stream, ("a",), 2), 0, ONE.voter))
    return control


def a_report_has_what_differs_from_the_last_whole_one() -> None:
    progress = hear(Progress(), [WHOLE])
    for counter, batch in ((2, 5), (3, 6)):
        made = Report(ONE, counter, {**WHOLE.vts, "s": batch}, BEGINNING)
        told = gossip.shortened(progress, made)
        assert (told.vts, told.since) == ({"s": batch}, 1)
        progress = hear(progress, [told])
        assert progress.latest[1] == made


def a_report_is_whole_again_when_most_has_changed() -> None:
    progress = hear(Progress(), [WHOLE])
    for vts in ({"s": 5, "t": 5, "u": 4}, {"s": 4, "t": 4}, {"s": 4, "t": 4, "v": 1}):
        made = Report(ONE, 2, vts, BEGINNING)
        assert gossip.shortened(progress, made) == made, vts
    made = Report(AGAIN, 1, WHOLE.vts, BEGINNING)
    assert gossip.shortened(progress, made) == made, "others may not know of its earlier life"


def a_report_without_its_whole_one_is_asked_for() -> None:
    newer, short = Report(ONE, 5, {"s": 5, "t": 5, "u": 5}, BEGINNING), Report(ONE, 6, {"s": 6}, BEGINNING, since=5)
    told, there = hear(Progress(), [newer, short]), hear(Progress(), [WHOLE])
    for before in (Progress(), there):
        after = hear(before, [short])
        assert after.latest == before.latest, "the entries that it leaves out are not known"
        (asked,) = gossip.answered(after, 2, Gossip((short,)))
        assert asked == Send(2, Gossip((), (1,)))
        (sent,) = gossip.answered(told, 0, asked.body)  # type: ignore[arg-type]
        assert isinstance(sent, Send)
        assert isinstance(sent.body, Gossip)
        assert hear(after, sent.body.reports).latest == told.latest
    assert gossip.answered(there, 2, Gossip((WHOLE,))) == [], "it is here already"


def a_report_builds_on_none_of_another_life() -> None:
    progress, short = hear(Progress(), [WHOLE]), Report(AGAIN, 2, {}, BEGINNING, since=1)
    assert hear(progress, [short]).latest == progress.latest
    assert lacking(progress, [short]) == [1]


def a_whole_report_is_told_once() -> None:
    progress, talk, told = hear(Progress(), [WHOLE]), gossip.Talk(), []
    for counter in range(2, 2 + 2 * gossip.FULL_TIMES):
        talk, actions = gossip.tell(talk, progress, 1, [0], 0)
        told += [one for action in actions for one in action.body.reports]  # type: ignore[union-attr]
        made = Report(ONE, counter, {**WHOLE.vts, "s": 4 + counter}, BEGINNING)
        progress = hear(progress, [gossip.shortened(progress, made)])
    assert [one.counter for one in told if not one.since] == [1]


def who_is_gone_holds_no_stream_back() -> None:
    control = _control()
    all_have = ({"s": 5, "t": 6}, {"s": 5, "t": 6}, {"s": 3})
    progress = hear(
        Progress(), [Report(Incarnation(node, 0, 1), 1, vts, BEGINNING) for node, vts in enumerate(all_have)]
    )
    progress = settle(progress, control)
    assert progress.stable == {"s": 3}
    control = apply(control, Entry(1, Membership(2, 0, Role.OUT)))
    assert settle(progress, control).stable == {"s": 5, "t": 6}


def who_has_come_in_says_it_before_it_counts_for_others_on_their_way() -> None:
    """Before that it waited for none, so what it had then is not all that can be exposed."""
    control = _control(replica_count=3)
    for role in (Role.OUT, Role.JOINING, Role.HOLDING, Role.IN):
        for node in (1, 2) if role is not Role.IN else (2,):
            control = apply(control, Entry(1, Membership(node, 0, role, control.member(node).since)))
    on_its_way, came = control.member(1), control.member(2).came

    def reports(required: Position) -> Progress:
        vts = {"s": 5, "t": 5, "u": 5}
        return hear(Progress(), [Report(Incarnation(node, 0, 1), 1, vts, required) for node in (0, 2)])

    assert on_its_way.held < came
    assert not has_caught_up(reports(on_its_way.held), control, 1, {"s": 5, "t": 5, "u": 5})
    assert has_caught_up(reports(came), control, 1, {"s": 5, "t": 5, "u": 5})


STORIES = (
    a_report_has_what_differs_from_the_last_whole_one,
    a_report_is_whole_again_when_most_has_changed,
    a_report_without_its_whole_one_is_asked_for,
    a_report_builds_on_none_of_another_life,
    a_whole_report_is_told_once,
    who_is_gone_holds_no_stream_back,
    who_has_come_in_says_it_before_it_counts_for_others_on_their_way,
)

failure = partial(outcome, STORIES)
