"""Stories that break what is around the log, too rare to wait for a seed. Each raises AssertionError."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from tests.sim.telling import outcome
from wukongs.protocol import sealing
from wukongs.protocol.actions import AnswerClaim, AskClaim, CompareTerms, Drop, SealBatch, SettleClaim, TakePiece
from wukongs.protocol.control import Control, apply, genesis
from wukongs.protocol.dropping import cuts
from wukongs.protocol.events import (
    ClaimAnswered,
    ClaimBegun,
    ClaimGivenUp,
    ClaimReceived,
    ClaimUnanswered,
    HeldReads,
    Inserted,
    Marker,
    PieceOffered,
    Pulse,
    Received,
    Submitted,
    TermsCompared,
)
from wukongs.protocol.log import LogRole
from wukongs.protocol.membership import Stay
from wukongs.protocol.messages import (
    Body,
    Gossip,
    Incarnation,
    Message,
    Propose,
    Report,
    State,
)
from wukongs.protocol.node import step
from wukongs.protocol.progress import Progress, hear, settle
from wukongs.protocol.records import (
    BEGINNING,
    TICKED,
    AdvanceGroup,
    BeginStream,
    Change,
    DeclareStream,
    DropStream,
    EndStream,
    Entry,
    Membership,
    Position,
    ReEncode,
    Role,
    Voters,
)
from wukongs.protocol.snapshots import stable_sn
from wukongs.protocol.state import Cluster, Kept, Node, boot
from wukongs.protocol.waiting import wanted

TRIO = Cluster(node_count=3, replica_count=2, shard_count=3)


def node_with(records: list[Any], number: int = 0) -> Node:
    """Return a node of three that has committed these records."""
    node = boot(TRIO, Incarnation(number, 0, 1), Kept())
    leader = Incarnation(2, 0, 1).voter
    entries = [Entry(1, one, *((0, leader) if isinstance(one, TICKED) else ())) for one in records]
    control = genesis(3, 2, 3)
    for entry in entries:
        control = apply(control, entry)
    log = replace(node.log, entries=tuple(entries), commit=len(entries), term=1)
    return replace(node, log=log, control=control)


OUT = Membership(1, 0, Role.OUT)
JOINING = Membership(1, 0, Role.JOINING)
STREAM = DeclareStream("s", ("a",))


def hears(node: Node, sender: Incarnation, body: Body) -> tuple[Node, list[object]]:
    node, actions = step(node, Received(Message(sender, body)))
    return node, list(actions)


def _settled(actions: list[object]) -> bool:
    return any(isinstance(action, SettleClaim) for action in actions)


def an_answer_of_another_view_is_no_answer() -> None:
    node = node_with([STREAM, OUT])
    view = node.control.view
    node, actions = step(node, ClaimBegun(1, frozenset({0})))
    assert actions == [AskClaim(1, view, (0,))], "node 1 is out"
    node, actions = step(node, ClaimAnswered(1, view - 1, frozenset({0})))
    assert not _settled(actions), "an answer of an older view settles a claim"
    node, actions = step(node, ClaimAnswered(1, view, frozenset({0})))
    assert SettleClaim(1, view) in actions
    assert not node.claims


def who_learns_of_a_joining_node_tells_nobody_what_it_compared_before() -> None:
    before, after = node_with([OUT]), node_with([OUT, JOINING])
    view = before.control.view
    _, actions = step(before, ClaimReceived(7, view))
    assert actions == [CompareTerms(7, view)]
    _, actions = step(before, TermsCompared(7, view))
    assert actions == [AnswerClaim(7, view)]
    _, actions = step(after, TermsCompared(7, view))
    assert actions == [AnswerClaim(7, None)], "the asker would not ask the joining node"
    _, actions = step(after, ClaimReceived(7, view))
    assert actions == [AnswerClaim(7, None)]


def _reports(control: Control, disk: int) -> Progress:
    lives = (Incarnation(0, 0, 1), Incarnation(1, disk, 1), Incarnation(2, 0, 1))
    return settle(hear(Progress(), [Report(life, 1, {"s": 5}, BEGINNING) for life in lives]), control)


def a_report_of_a_lost_disk_says_nothing() -> None:
    control = genesis(3, 2, 3)
    roles = [Membership(1, 1, Role.JOINING), Membership(1, 1, Role.HOLDING, 2)]
    for record in (STREAM, *roles):
        ticked = (0, Incarnation(2, 0, 1).voter) if record is STREAM else ()
        control = apply(control, Entry(1, record, *ticked))
    assert control.members[1].role is Role.HOLDING
    assert _reports(control, 0).stable == {}, "the disk that has this is lost"
    assert _reports(control, 1).stable == {"s": 5}


def _hears_of(node: Node, entry: Entry) -> tuple[Node, list[Any]]:
    """Let a node commit one more entry, and take in something."""
    log = replace(node.log, entries=(*node.log.entries, entry), commit=node.log.commit + 1)
    return step(replace(node, log=log), HeldReads(None, None))


def a_claim_with_a_refused_text_waits_for_its_record() -> None:
    node, _ = step(node_with([STREAM]), ClaimBegun(1, frozenset({0})))
    node, actions = step(node, ClaimAnswered(1, 0, frozenset({0, 1}), frozenset({"x"})))
    assert not _settled(actions), "the hash of x is another text's"
    assert wanted(node) == [ReEncode("x", 0)]
    node, actions = _hears_of(node, Entry(1, ReEncode("x", 0)))
    assert SettleClaim(1, 0) in actions
    assert wanted(node) == []


def a_record_that_re_encodes_is_void_in_another_view() -> None:
    """Those who are asked by now have perhaps agreed to the text."""
    node = node_with([STREAM])
    for record in (OUT, ReEncode("x", 0)):
        node, _ = _hears_of(node, Entry(1, record))
    assert not node.control.exceptions, "x was refused by others than those who are asked now"
    node, _ = _hears_of(node, Entry(1, ReEncode("x", node.control.view)))
    assert dict(node.control.exceptions) == {"x": 1}


def a_claim_begins_anew_when_members_change() -> None:
    node, _ = step(node_with([STREAM, OUT]), ClaimBegun(1, frozenset({0, 1})))
    node, _ = step(node, ClaimAnswered(1, node.control.view, frozenset({0}), frozenset({"x"})))
    node, actions = _hears_of(node, Entry(1, JOINING))
    assert not _settled(actions)
    node, actions = step(node, Pulse(0))
    view = node.control.view
    assert AskClaim(1, view, (0, 1, 2)) in actions, "who joins is not asked, or who was asked before is not asked again"
    assert wanted(node) == [], "what was refused in another view is to be asked again"
    node, _ = step(node, ClaimAnswered(1, view, frozenset({0, 2})))
    node, actions = step(node, ClaimUnanswered(1, view, frozenset({1})))
    assert not _settled(actions)
    node, actions = step(node, Pulse(0))
    assert AskClaim(1, view, (1,)) in actions, "nobody asks again who has not answered"
    node, actions = step(node, ClaimAnswered(1, view, frozenset({1})))
    assert SettleClaim(1, view) in actions


def a_claim_that_is_given_up_is_forgotten() -> None:
    node, _ = step(node_with([STREAM]), ClaimBegun(1, frozenset({0})))
    node, _ = step(node, ClaimGivenUp(1))
    for late in (ClaimAnswered(1, 0, frozenset({0, 1})), ClaimUnanswered(1, 0, frozenset({0, 1}))):
        node, actions = step(node, late)
        assert (dict(node.claims), actions) == ({}, [])


def a_piece_is_taken_under_the_view_of_its_claim_only() -> None:
    """Nodes that have come since were not asked for its terms."""
    node = node_with([STREAM, OUT, JOINING])
    node, actions = step(node, PieceOffered("s", "a", 1, 1, 0, 1, node.control.view - 1, "rows"))
    assert actions == [], "its terms are perhaps refused by node 1"
    assert node.refused == {"a piece of another view": 1}
    node, actions = step(node, PieceOffered("s", "a", 1, 1, 0, 1, node.control.view, "rows"))
    assert [action.piece for action in actions if isinstance(action, TakePiece)] == ["rows"]


def who_would_not_be_asked_for_what_it_knows_claims_nothing() -> None:
    """A replica that lost its disk takes over what others know: not what a node knows that is out."""
    for node in (node_with([OUT], number=1), node_with([OUT, JOINING], number=1)):
        node, actions = step(node, ClaimBegun(1, frozenset({0})))
        assert actions == []
        node, actions = step(node, Pulse(0))
        assert not any(isinstance(action, AskClaim) for action in actions)
    node, actions = step(replace(node, stay=Stay(2, is_installed=True)), Pulse(0))
    assert AskClaim(1, 2, (0, 1)) in actions


def who_is_holding_is_waited_for() -> None:
    control = genesis(3, 2, 3)
    stream = Entry(1, STREAM, 0, Incarnation(2, 0, 1).voter)
    for entry in (stream, Entry(1, OUT), Entry(1, JOINING), Entry(1, Membership(1, 0, Role.HOLDING, 3))):
        control = apply(control, entry)
    behind = Report(Incarnation(1, 0, 1), 1, {"s": 2}, BEGINNING)
    ahead = [Report(Incarnation(node, 0, 1), 1, {"s": 5}, BEGINNING) for node in (0, 2)]
    assert settle(hear(Progress(), [behind, *ahead]), control).stable == {"s": 2}
    assert settle(hear(Progress(), ahead), control).stable == {}
    joining = replace(control, members={**control.members, 1: replace(control.members[1], role=Role.JOINING)})
    assert settle(hear(Progress(), ahead), joining).stable == {"s": 5}


def a_record_of_another_clock_group_waits_for_its_streams() -> None:
    control = genesis(3, 2, 3)
    records = (DeclareStream("r", ("a",), 1, "replay"), BeginStream("r"), AdvanceGroup("replay", 4))
    for record in records:
        control = apply(control, Entry(1, record, 0, Incarnation(2, 0, 1).voter))
    assert stable_sn(control, {"r": 3}) == (0, 2), "its stream batches are not stable here yet"
    assert stable_sn(control, {"r": 4}) == (0, 3)


def what_an_earlier_life_said_is_refused_and_counted() -> None:
    node = replace(node_with([OUT, JOINING], number=1), stay=Stay(2))
    node, _ = hears(node, Incarnation(2, 0, 2), Gossip(()))
    state = State(2, {}, {}, True, "")
    old, _ = hears(node, Incarnation(2, 0, 1), state)
    assert not old.stay.states, "an earlier life's word counts"
    assert old.refused == {"a message of an earlier incarnation": 1}
    new, _ = hears(node, Incarnation(2, 0, 2), state)
    assert new.stay.states.keys() == {2}


def a_writer_that_was_replaced_is_refused_and_counted() -> None:
    node = node_with([STREAM])
    node, _ = step(node, PieceOffered("s", "a", 2, 1, 0, 1))
    node, _ = step(node, PieceOffered("s", "a", 1, 1, 1, 2))
    node, _ = step(node, Marker("s", "a", 1, 1, 1))
    assert sealing.position(node.intakes["s"], "a") == (1, 0, False)
    assert node.refused == {"a refused piece": 1, "a refused marker": 1}


def what_comes_twice_counts_once() -> None:
    node = node_with([STREAM])
    for _ in range(2):
        node, _ = step(node, PieceOffered("s", "a", 1, 1, 0, 1))
    for _ in range(2):
        node, _ = step(node, Marker("s", "a", 1, 1, 1))
    for _ in range(2):
        node, _ = step(node, Inserted("s", 1))
    assert node.vts == {"s": 1}
    assert node.refused == {"a repeated piece": 1, "a repeated marker": 1}


def _sent(*events: PieceOffered | Marker) -> Node:
    node = node_with([STREAM])
    for event in events:
        node, _ = step(node, event)
    return node


def rows_of_a_stream_batch_that_was_left_do_not_come_later() -> None:
    """A source that falls back would bring rows of a stream batch that others may have sealed."""
    node = _sent(PieceOffered("s", "a", 1, 5, 0, 1), PieceOffered("s", "a", 1, 4, 1, 2))
    assert node.refused == {"a refused piece": 1}
    assert sealing.position(node.intakes["s"], "a") == (1, 0, False)


def a_marker_in_the_midst_of_a_stream_batch_leaves_its_rows_open() -> None:
    """Rows 1 and 2 of it were set aside; a restart may not pass row 0, nor may it pass them before row 0."""
    node = _sent(PieceOffered("s", "a", 1, 5, 0, 1), Marker("s", "a", 1, 4, 3, first_offset=1))
    assert sealing.position(node.intakes["s"], "a") == (3, 4, False)
    assert sealing.ends_of(node.intakes["s"], 4) == {"a": 0}
    assert sealing.ends_of(node.intakes["s"], 5) == {"a": 3}


def what_is_closed_stays_closed() -> None:
    node = _sent(Marker("s", "a", 1, 4, 0), PieceOffered("s", "a", 1, 4, 0, 1))
    assert node.refused == {"a refused piece": 1}
    node = _sent(Marker("s", "a", 1, 4, 0, is_last=True), PieceOffered("s", "a", 1, 5, 0, 1), Marker("s", "a", 1, 6, 0))
    assert node.refused == {"a refused piece": 1, "a refused marker": 1}


def rows_out_of_order_go_on_behind_what_is_missing() -> None:
    """Row 1 is of an earlier stream batch than row 0. When it is inserted, a restart may not pass row 0."""
    node = begun(*(PieceOffered("s", "a", 1, batch, row, row + 1, after=3) for row, batch in enumerate((6, 4, 5, 6))))
    assert not node.refused
    assert sealing.position(node.intakes["s"], "a") == (4, 0, False)
    node, actions = step(node, Marker("s", "a", 1, 5, 4))
    assert [action for action in actions if isinstance(action, SealBatch)] == [SealBatch("s", 0, 5, {"a": 0})]
    node, _ = step(node, PieceOffered("s", "a", 1, 7, 4, 5, after=3))
    node, _ = step(node, PieceOffered("s", "a", 1, 6, 5, 6, after=3))
    assert sealing.ends_of(node.intakes["s"], 6) == {"a": 4}, "row 5 is inserted with stream batch 6, row 4 is not"
    assert sealing.ends_of(node.intakes["s"], 7) == {"a": 6}


def rows_out_of_order_do_not_go_back_to_what_is_closed() -> None:
    node = _sent(PieceOffered("s", "a", 1, 6, 0, 1, after=3), Marker("s", "a", 1, 4, 1))
    node, _ = step(node, PieceOffered("s", "a", 1, 4, 1, 2, after=3))
    assert node.refused == {"a refused piece": 1}
    node, _ = step(node, PieceOffered("s", "a", 1, 5, 1, 2, after=3))
    assert sealing.position(node.intakes["s"], "a") == (2, 4, False)


def a_report_that_requires_more_is_not_used_yet() -> None:
    control = apply(genesis(3, 2, 3), Entry(1, STREAM, 0, Incarnation(2, 0, 1).voter))
    reports = [Report(Incarnation(node, 0, 1), 1, {"s": 5}, Position(1, 1)) for node in range(3)]
    ahead = structs.replace(reports[0], required=Position(1, 2))
    assert settle(hear(Progress(), [ahead, *reports[1:]]), control).stable == {}
    # The first report that has to wait is used when its time comes, although newer ones require still more.
    later = structs.replace(ahead, counter=2, required=Position(1, 9))
    progress = settle(hear(Progress(), [ahead, *reports[1:]]), control)
    progress = settle(hear(progress, [later]), replace(control, index=2))
    assert progress.stable == {"s": 5}


def what_can_never_be_in_the_log_is_handed_back() -> None:
    node = node_with([STREAM])
    _, actions = step(node, Submitted(STREAM))
    assert Drop(STREAM) in actions, "it is there already"
    late = Change("client", 1, "", 7, 0)
    _, actions = step(node, Submitted(late))
    assert Drop(late) in actions, "it has not seen the last update"


def what_only_leaders_propose_is_refused_from_others() -> None:
    node = node_with([STREAM])
    log = replace(node.log, standing=LogRole.LEADER, leader=0)
    node = replace(node, log=log)
    after, actions = hears(node, Incarnation(2, 0, 1), Propose((Voters(frozenset({Incarnation(2, 0, 1).voter})),)))
    assert (after.log, actions) == (log, [])
    assert after.refused == {"a proposal of what only leaders propose": 1}


def _dropping() -> tuple[Node, Node]:
    """Return a node that has sealed one stream batch of two when it comes to hold the drop, and when it applies it."""
    node = begun(PieceOffered("s", "a", 1, 1, 0, 1), Marker("s", "a", 1, 1, 1), PieceOffered("s", "a", 1, 2, 1, 2))
    entry = Entry(1, DropStream("s"), 0, Incarnation(2, 0, 1).voter)
    holding = replace(node, log=replace(node.log, entries=(*node.log.entries, entry)))
    return holding, replace(holding, log=replace(holding.log, commit=holding.log.last))


def begun(*events: PieceOffered | Marker) -> Node:
    node = node_with([STREAM, BeginStream("s")])
    for event in events:
        node, _ = step(node, event)
    return node


def nothing_is_sealed_of_a_stream_once_its_drop_is_held() -> None:
    """Committed or not: who has told that it is frozen has the record on disk, and knows that it counts again later
    only when it hears of a leader."""
    for node in _dropping():
        node, actions = step(node, Marker("s", "a", 1, 2, 2))
        assert not any(isinstance(action, SealBatch) for action in actions), "it has told others that it is frozen"
        assert node.refused == {"a marker of a dropped stream": 1}


def _frozen(node: Node) -> frozenset[str]:
    return node.progress.latest[0].frozen


def who_has_sealed_more_than_it_has_inserted_is_not_frozen_yet() -> None:
    holding, applying = _dropping()
    holding, _ = step(holding, Pulse(0))
    assert _frozen(holding) == set(), "the record may still be cut off"
    applying, _ = step(applying, Pulse(0))
    applying, _ = step(applying, Pulse(0))
    assert _frozen(applying) == set(), "stream batch 1 is still on its way to the disk"
    applying, _ = step(applying, Inserted("s", 1))
    assert (_frozen(applying), applying.vts) == ({"s"}, {"s": 1})


def a_dropped_stream_is_cut_where_all_in_sync_replicas_have_it() -> None:
    control = node_with([STREAM, BeginStream("s"), DropStream("s")]).control
    reports = [
        Report(Incarnation(node, 0, 1), 1, {"s": batch}, BEGINNING, frozen=frozenset({"s"}))
        for node, batch in enumerate((5, 3, 4))
    ]
    assert cuts(control, hear(Progress(), reports)) == [EndStream("s", 3, is_cut=True)]
    unsaid = [structs.replace(reports[0], frozen=frozenset()), *reports[1:]]
    assert cuts(control, hear(Progress(), unsaid)) == [], "node 0 may have more, and others, too"
    assert cuts(control, hear(Progress(), reports[1:])) == [], "node 0 has not said how far it is"
    lost = [structs.replace(reports[1], incarnation=Incarnation(1, 1, 1)), reports[0], reports[2]]
    assert cuts(control, hear(Progress(), lost)) == [], "another disk than the one that has the role"
    out = apply(control, Entry(1, OUT))
    assert cuts(out, hear(Progress(), reports)) == [EndStream("s", 4, is_cut=True)]


def a_dropped_stream_ends_where_time_is_when_it_goes() -> None:
    """Who exposes that SN shows of it what the tick covers; its replicas have more, which nobody saw."""
    control = node_with([STREAM, BeginStream("s"), DropStream("s")]).control
    gone = apply(control, Entry(1, EndStream("s", 9, is_cut=True), 4, Incarnation(2, 0, 1).voter))
    assert gone.streams["s"].last_batch == 4


def who_is_on_the_way_when_a_stream_goes_begins_anew() -> None:
    """Node 1 has installed what others had while the stream went on, and nobody would send it the rest."""
    control = node_with([STREAM, BeginStream("s"), OUT, JOINING, DropStream("s")]).control
    gone = apply(control, Entry(1, EndStream("s", 0, is_cut=True), 0, Incarnation(2, 0, 1).voter))
    assert gone.members[1].since == gone.view == 6, "the stay from before goes on"


def who_joins_agrees_to_nothing_before_it_has_what_others_agreed_to() -> None:
    node = node_with([OUT, JOINING], number=1)
    asks = ClaimReceived(7, node.control.view)
    _, actions = step(node, asks)
    assert actions == [AnswerClaim(7, None)], "another text may be in use under the hash"
    _, actions = step(replace(node, stay=Stay(2, is_installed=True)), asks)
    assert actions == [CompareTerms(7, asks.view)]


STORIES = (
    an_answer_of_another_view_is_no_answer,
    who_learns_of_a_joining_node_tells_nobody_what_it_compared_before,
    a_report_of_a_lost_disk_says_nothing,
    what_an_earlier_life_said_is_refused_and_counted,
    a_writer_that_was_replaced_is_refused_and_counted,
    what_comes_twice_counts_once,
    a_report_that_requires_more_is_not_used_yet,
    a_claim_begins_anew_when_members_change,
    what_can_never_be_in_the_log_is_handed_back,
    what_only_leaders_propose_is_refused_from_others,
    who_is_holding_is_waited_for,
    a_record_of_another_clock_group_waits_for_its_streams,
    a_claim_with_a_refused_text_waits_for_its_record,
    rows_of_a_stream_batch_that_was_left_do_not_come_later,
    a_marker_in_the_midst_of_a_stream_batch_leaves_its_rows_open,
    what_is_closed_stays_closed,
    nothing_is_sealed_of_a_stream_once_its_drop_is_held,
    who_has_sealed_more_than_it_has_inserted_is_not_frozen_yet,
    a_dropped_stream_is_cut_where_all_in_sync_replicas_have_it,
    a_dropped_stream_ends_where_time_is_when_it_goes,
    who_is_on_the_way_when_a_stream_goes_begins_anew,
    who_joins_agrees_to_nothing_before_it_has_what_others_agreed_to,
    a_record_that_re_encodes_is_void_in_another_view,
    a_piece_is_taken_under_the_view_of_its_claim_only,
    who_would_not_be_asked_for_what_it_knows_claims_nothing,
    a_claim_that_is_given_up_is_forgotten,
    rows_out_of_order_go_on_behind_what_is_missing,
    rows_out_of_order_do_not_go_back_to_what_is_closed,
)

failure = partial(outcome, STORIES)
