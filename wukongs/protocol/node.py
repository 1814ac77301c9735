"""One node's protocol as a value: `step(node, event) -> (node, actions)`. No socket, clock, thread or disk inside.

A host has four duties. It gives events one at a time. It gives a Pulse every so often. It carries actions out in order,
and a save is safe before the actions behind it happen. After a crash it calls `boot` with the state on its disk.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial

from wukongs.protocol import asking, compaction, dropping, gossip, leasing, membership, placement, progress, sealing
from wukongs.protocol import log as raft
from wukongs.protocol.actions import (
    Action,
    Apply,
    CollectState,
    Drop,
    Expose,
    Send,
)
from wukongs.protocol.control import apply, is_current, is_news, is_valid
from wukongs.protocol.events import (
    ClaimAnswered,
    ClaimBegun,
    ClaimGivenUp,
    ClaimReceived,
    ClaimUnanswered,
    Event,
    Fetched,
    HeldReads,
    Inserted,
    LeaseAsked,
    Marker,
    PieceOffered,
    Pulse,
    Received,
    SavedBefore,
    Settled,
    StateCollected,
    StateInstalled,
    StateSafe,
    Submitted,
    TermsCompared,
)
from wukongs.protocol.feeding import offer_piece, seal, take_marker, to_seal
from wukongs.protocol.gossip import Talk
from wukongs.protocol.leading import admit, lead
from wukongs.protocol.membership import Stay
from wukongs.protocol.messages import (
    Append,
    Appended,
    Body,
    FetchState,
    Gossip,
    Incarnation,
    InstallControl,
    Propose,
    Report,
    RequestVote,
    State,
    Vote,
)
from wukongs.protocol.progress import Progress
from wukongs.protocol.records import (
    LIVE,
    Change,
    Drained,
    DropStream,
    EndStream,
    Founded,
    LateJoin,
    Nothing,
    Record,
    Role,
    Voters,
    record_key,
)
from wukongs.protocol.snapshots import stable_sn, tick_due
from wukongs.protocol.state import Node
from wukongs.protocol.waiting import proposable, re_encodings, wanted

Outcome = tuple[Node, list[Action]]


def step(node: Node, event: Event) -> Outcome:
    """Take in one event."""
    before = node
    handler: Callable[..., Outcome] = _HANDLERS[type(event)]
    node, actions = handler(node, event)
    node, more = _settle(before, node)
    actions += more
    if node.cluster.lease_ms:
        node = leasing.note(node, event)
        actions = leasing.stamped(node, event, actions)
    return node, actions


def _pulse(node: Node, event: Pulse) -> Outcome:
    log, actions = raft.pulse(node.log, event.draw, event.elapsed)
    watch = membership.watch(node.watch, node.progress.latest, node.control, node.me, event.elapsed)
    node = replace(node, log=log, watch=watch)
    node, more = _report(node, event.draw, partial(gossip.pulse, elapsed=event.elapsed))
    actions += more
    node, more = asking.ask(node)
    actions += more
    if node.role is Role.JOINING and not node.stay.is_installed:
        missing = sorted(membership.to_fetch_from(node.stay, node.control, node.me))
        actions += [Send(other, FetchState(node.stay.since, node.stay.index)) for other in missing]
    node, more = _propose(node, wanted(node))
    actions += more
    node, out = leasing.held_back(node, membership.silent(node.overdue, node.control))
    out += placement.replacements(node.control, *node.lost_and_heard, node.cluster.hosts)
    founded = [] if node.control.life else [Founded(f"{node.me.node}-{node.me.boot}")]
    log, more = lead(node.log, node.control, node.progress, [*founded, *out], node.vts)
    actions += more
    node, more = compaction.compact(replace(node, log=log))
    return node, actions + more


def _report(node: Node, draw: int, make: Callable[[Talk, Progress, Report], tuple[Talk, Progress]]) -> Outcome:
    """Make a report if it is due, and tell a few others what is news to them."""
    reading = node.reading
    report = Report(
        node.me,
        node.counter + 1,
        node.vts,
        node.log.high,
        node.exposed if reading.oldest_sn is None else reading.oldest_sn,
        reading.oldest_firing,
        reading.delivered,
        dropping.frozen(node.control, node.intakes),
        node.control.index,
        stands=reading.stands,
    )
    talk, heard = make(node.talk, node.progress, report)
    if make is gossip.early and heard is node.progress:
        return node, []
    nodes = gossip.listeners(node.me.node, node.control.nodes, draw)
    talk, actions = gossip.tell(talk, heard, node.me.node, nodes, draw)
    return replace(node, counter=node.counter + 1, talk=talk, progress=heard), actions


def _propose(node: Node, records: list[Record]) -> Outcome:
    if not records:
        return node, []
    if node.log.standing is raft.LogRole.LEADER:
        node, records = leasing.held_back(node, records)
        log, actions = admit(node.log, node.control, node.vts, records)
        return replace(node, log=log), actions
    if node.log.leader is None:
        return node, []
    return node, [Send(node.log.leader, Propose(tuple(records)))]


def _received(node: Node, event: Received) -> Outcome:
    sender, body = event.message.sender, event.message.body
    known = node.heard.get(sender.node)
    if node.control.member(sender.node).is_removed:
        return node.counting("a message of a node that was removed"), []
    if known is not None and sender < known:
        return node.counting("a message of an earlier incarnation"), []
    if known != sender:
        node = replace(node, heard={**node.heard, sender.node: sender})
    if isinstance(body, RequestVote | Vote | Append | Appended | InstallControl):
        may_jump = isinstance(body, InstallControl) and compaction.may_jump(node, body.control)
        log, actions = raft.receive(node.log, sender.voter, body, may_jump)
        node = replace(node, log=log)
        if isinstance(body, InstallControl) and log.base == body.control.index > node.control.index:
            node, more = _forget_done(compaction.installed(node, body), None)
            actions += more
        return node, actions
    return _answer(node, sender, body)


def _answer(node: Node, sender: Incarnation, body: Body) -> Outcome:
    match body:
        case Gossip(reports=reports):
            node = replace(node, progress=progress.hear(node.progress, reports))
            return node, gossip.answered(node.progress, sender.node, body)
        case Propose(records=records) if node.log.standing is raft.LogRole.LEADER:
            if any(_is_leaders_own(record) for record in records):
                return node.counting("a proposal of what only leaders propose"), []
            return _propose(node, list(records))
        case FetchState(since=since, index=index) if node.control.index >= max(since, index):
            offsets = {stream: intake.offsets for stream, intake in node.intakes.items()}
            state = State(since, node.vts, offsets, node.role is Role.IN, None)
            return node, [CollectState(sender.node, state)]
        case State(since=since) if since == node.stay.since and node.role is Role.JOINING:
            return replace(node, stay=replace(node.stay, states={**node.stay.states, sender.node: body})), []
    return node, []


def _is_leaders_own(record: Record) -> bool:
    is_own = isinstance(record, Nothing | Founded | Voters | LateJoin | Drained)
    return is_own or (isinstance(record, EndStream) and record.is_cut)


def _inserted(node: Node, event: Inserted) -> Outcome:
    if event.stream not in node.intakes:
        return node, []  # It is gone.
    intake = sealing.inserted(node.intakes[event.stream], event.batch)
    tick = tick_due(node.control, LIVE, node.vts)
    node = replace(node, intakes={**node.intakes, event.stream: intake})
    if tick_due(node.control, LIVE, node.vts) == tick:
        return node, []
    return _report(node, node.counter * 7919, gossip.early)


def _state_collected(node: Node, event: StateCollected) -> Outcome:
    return node, [Send(event.asker, event.state)]


def _state_installed(node: Node, event: StateInstalled) -> Outcome:
    """Go on from the installed state; as a member only if this stay has asked for it."""
    intakes = dict(node.intakes)
    for stream, batch in event.vts.items():
        old = intakes.get(stream)
        if old is None or old.inserted < batch:
            intakes[stream] = sealing.opened_at(batch, event.offsets[stream], old)
    node = replace(node, intakes=intakes)
    if event.since != node.stay.since:
        return node, []
    return replace(node, stay=replace(node.stay, is_installing=False, is_installed=True, is_safe=event.is_safe)), []


def _state_safe(node: Node, event: StateSafe) -> Outcome:
    if event.since != node.stay.since:
        return node, []
    node = replace(node, stay=replace(node.stay, is_safe=True))
    return _propose(node, wanted(node))


def _fetched(node: Node, _: Fetched) -> Outcome:
    node = replace(node, is_fetching=False)
    return _propose(node, wanted(node))


def _submitted(node: Node, event: Submitted) -> Outcome:
    if not _may_come(node, event.record):
        return node, [Drop(event.record)]
    if event.record not in node.pending:
        node = replace(node, pending=(*node.pending, event.record))
    return _propose(node, proposable(node))


def _claim_answered(node: Node, event: ClaimAnswered) -> Outcome:
    """Take in answers, and ask at once for the records that they call for."""
    node, actions = asking.answered(node, event)
    node, more = _propose(node, re_encodings(node) if event.refused else [])
    return node, actions + more


def _settled_at(node: Node, event: Settled) -> Outcome:
    return replace(node, settled=max(node.settled, event.index)), []


def _reading(node: Node, event: HeldReads) -> Outcome:
    return replace(node, reading=event), []


def _lease_asked(node: Node, _: LeaseAsked) -> Outcome:
    return node, []  # leasing.note


def _saved_before(node: Node, event: SavedBefore) -> Outcome:
    return replace(node, log=raft.as_saved(node.log, event.action)), []


def _settle(before: Node, node: Node) -> Outcome:
    """Draw the conclusions of a change: apply committed entries, seal whole stream batches, expose stable ticks."""
    node, actions = _apply(node)
    node, more = asking.conclude(before, node)
    actions += more
    if names := to_seal(before, node):
        node, more = seal(node, names)
        actions += more
    if node.role is Role.JOINING and (install := membership.installable(node.stay, node.control, node.me)):
        node = replace(node, stay=replace(node.stay, is_installing=True))
        actions.append(install)
    if node.progress is not before.progress or node.control is not before.control:
        node = replace(node, progress=progress.settle(node.progress, node.control))
        sn = stable_sn(node.control, node.progress.stable)
        if sn >= node.control.floor and (node.exposed is None or sn > node.exposed):
            node = replace(node, exposed=sn)
            actions.append(Expose(sn, node.control.vts_at(sn)))
    return node, actions


def _apply(node: Node) -> Outcome:
    actions: list[Action] = []
    before = node.control
    while node.control.index < node.log.commit:
        entry = node.log.at(node.control.index + 1)
        valid = is_valid(node.control, entry)
        node = replace(node, control=apply(node.control, entry))
        if not valid:
            continue
        actions.append(Apply(node.control.index, entry, None if entry.tick is None else node.control.last_sn))
        if node.role is Role.JOINING and node.control.member(node.me.node).since != node.stay.since:
            node = replace(node, stay=Stay(node.control.member(node.me.node).since))
        if isinstance(entry.record, EndStream | DropStream):
            node = _forget_gone(node, entry.record.stream)
    if node.control is not before:
        node = replace(node, log=replace(node.log, applied=node.control))
    if actions and node.pending:
        node, more = _forget_done(node, {record_key(one.entry.record) for one in actions if isinstance(one, Apply)})
        actions += more
    return node, actions


def _forget_gone(node: Node, key: str) -> Node:
    if node.control.streams[key].gone is None:
        return node
    return replace(node, intakes={name: intake for name, intake in node.intakes.items() if name != key})


def _forget_done(node: Node, applied: set[Hashable] | None) -> Outcome:
    """Drop the pending records that are in the log, or can never be. applied: by record_key; None: this is not known,
    and a change that may be applied is not called lost."""
    pending = tuple(record for record in node.pending if _may_come(node, record))
    gone = [record for record in node.pending if record not in pending]
    if applied is None:
        lost = [record for record in gone if not _may_be_applied(node, record)]
    else:
        lost = [record for record in gone if record_key(record) not in applied]
    return replace(node, pending=pending), [Drop(record) for record in lost]


def _may_be_applied(node: Node, record: Record) -> bool:
    return isinstance(record, Change) and node.control.outcomes.is_over(record.asked)


def _may_come(node: Node, record: Record) -> bool:
    """Whether a record can still be appended. A change is stamped with the view when it is proposed."""
    return is_current(node.control, record) if isinstance(record, Change) else is_news(node.control, record)


_HANDLERS: Mapping[type, Callable[..., Outcome]] = {
    Pulse: _pulse,
    Received: _received,
    PieceOffered: offer_piece,
    Marker: take_marker,
    Inserted: _inserted,
    ClaimBegun: asking.begin,
    ClaimAnswered: _claim_answered,
    ClaimUnanswered: asking.unanswered,
    ClaimGivenUp: asking.give_up,
    ClaimReceived: asking.received,
    TermsCompared: asking.compared,
    StateCollected: _state_collected,
    Fetched: _fetched,
    StateInstalled: _state_installed,
    StateSafe: _state_safe,
    Submitted: _submitted,
    Settled: _settled_at,
    HeldReads: _reading,
    LeaseAsked: _lease_asked,
    SavedBefore: _saved_before,
}
