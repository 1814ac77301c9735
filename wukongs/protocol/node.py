"""One node's protocol as a value: `step(node, event) -> (node, actions)`. No socket, clock, thread or disk inside.

What a host owes it: events one at a time; a Pulse every so often; actions carried out in order, where whatever is
saved is safe before the actions behind it happen; after a crash, `boot` with what its disk has kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from wukongs.protocol import log as raft
from wukongs.protocol import membership, progress, sealing, terms
from wukongs.protocol.actions import (
    Action,
    Apply,
    CollectState,
    CompareTerms,
    Confirm,
    Drop,
    Expose,
    SealBatch,
    Send,
    TakePiece,
)
from wukongs.protocol.control import apply, is_current, is_news, is_valid
from wukongs.protocol.events import (
    Event,
    Inserted,
    Marker,
    Piece,
    Pulse,
    Reading,
    Received,
    StateCollected,
    StateInstalled,
    Submitted,
    TermsCompared,
)
from wukongs.protocol.leading import admit, lead
from wukongs.protocol.membership import Stay
from wukongs.protocol.messages import (
    Append,
    Appended,
    Body,
    ClaimTerms,
    FetchState,
    Gossip,
    Incarnation,
    Propose,
    Report,
    RequestVote,
    State,
    Term,
    TermsClaimed,
    Vote,
)
from wukongs.protocol.records import (
    BeginStream,
    Change,
    EndStream,
    Membership,
    Nothing,
    Record,
    ReEncode,
    Role,
    Voters,
)
from wukongs.protocol.sealing import Intake, Verdict
from wukongs.protocol.snapshots import stable_sn, vts_at
from wukongs.protocol.state import Node

GOSSIP_NODES = 3
"""How many nodes a report is sent to at a time."""

Outcome = tuple[Node, list[Action]]


def step(node: Node, event: Event) -> Outcome:
    """Take in one event."""
    before = node
    handler: Callable[..., Outcome] = _HANDLERS[type(event)]
    node, actions = handler(node, event)
    node, more = _settle(before, node)
    return node, actions + more


def _pulse(node: Node, event: Pulse) -> Outcome:
    log, actions = raft.pulse(node.log, event.draw)
    node = replace(node, log=log, watch=membership.watch(node.watch, node.progress.latest, node.control, node.me))
    node, more = _report(node, event.draw)
    actions += more
    if membership.may_agree(node.control, node.stay, node.me):
        actions += _claims(node)
    if node.role is Role.JOINING and not node.stay.is_installed:
        missing = sorted(membership.to_fetch_from(node.stay, node.control, node.me))
        actions += [Send(other, FetchState(node.stay.since)) for other in missing]
    node, more = _propose(node, _wanted(node))
    actions += more
    out = membership.silent(node.watch, node.control, node.cluster.silence_pulses_max)
    log, more = lead(node.log, node.control, node.progress, out, node.vts)
    return replace(node, log=log), actions + more


def _report(node: Node, draw: int) -> Outcome:
    """Make a new report, and pass on all that are known to a few others."""
    counter = node.counter + 1
    reading = node.reading
    report = Report(node.me, counter, node.vts, node.log.high, reading.oldest_sn, reading.oldest_firing)
    node = replace(node, counter=counter, progress=progress.hear(node.progress, [report]))
    gossip = Gossip(tuple(node.progress.latest.values()))
    return node, [Send(other, gossip) for other in _some_others(node, draw)]


def _some_others(node: Node, draw: int) -> list[int]:
    others = node.cluster.node_count - 1
    if others <= GOSSIP_NODES:
        return [other for other in range(node.cluster.node_count) if other != node.me.node]
    found = []
    for _ in range(GOSSIP_NODES):
        draw, distance = divmod(draw, others)
        found.append((node.me.node + 1 + distance) % node.cluster.node_count)
    return sorted(set(found))


def _wanted(node: Node) -> list[Record]:
    """Return what this node asks the leader to append."""
    found: list[Record] = []
    for name, stream in node.control.streams.items():
        intake = node.intakes.get(name)
        if intake is None:
            continue
        last_batch = intake.last_batch(stream.partitions)
        if stream.began is None and any(one.offset or one.closed for one in intake.partitions.values()):
            found.append(BeginStream(name))
        elif stream.last_batch is None and last_batch is not None and last_batch == intake.inserted:
            found.append(EndStream(name, last_batch))
    found += [ReEncode(text, node.control.view) for text in sorted(node.terms.refused)]
    role = membership.next_role(node.control, node.progress, node.stay, node.me, node.vts)
    if role is not None and node.log.commit:
        found.append(role)
    return found + _confirmed(node)


def _confirmed(node: Node) -> list[Record]:
    """Return the pending records whose terms are confirmed. Nodes that are not IN coordinate none: nobody would ask
    them for the terms that they know."""
    if node.role is not Role.IN:
        return []
    records = [record for record, texts in node.pending.items() if not texts]
    return [replace(one, view=node.control.view) if isinstance(one, Change) else one for one in records]


def _propose(node: Node, records: list[Record]) -> Outcome:
    if not records:
        return node, []
    if node.log.standing is raft.Standing.LEADER:
        log, actions = admit(node.log, node.control, node.vts, records)
        return replace(node, log=log), actions
    if node.log.leader is None:
        return node, []
    return node, [Send(node.log.leader, Propose(tuple(records)))]


def _received(node: Node, event: Received) -> Outcome:
    sender, body = event.message.sender, event.message.body
    known = node.heard.get(sender.node)
    if known is not None and sender < known:
        return _count(node, "a message of an earlier incarnation"), []
    if known != sender:
        node = replace(node, heard={**node.heard, sender.node: sender})
    if isinstance(body, RequestVote | Vote | Append | Appended):
        log, actions = raft.receive(node.log, sender.voter, body)
        return replace(node, log=log), actions
    return _answer(node, sender, body)


def _answer(node: Node, sender: Incarnation, body: Body) -> Outcome:
    match body:
        case Gossip(reports=reports):
            return replace(node, progress=progress.hear(node.progress, reports)), []
        case Propose(records=records) if node.log.standing is raft.Standing.LEADER:
            if any(isinstance(record, Nothing | Voters) for record in records):
                return _count(node, "a proposal of what only leaders propose"), []
            return _propose(node, list(records))
        case ClaimTerms(view=view, texts=texts):
            if view != node.control.view or not membership.may_agree(node.control, node.stay, node.me):
                return node, []
            return node, [CompareTerms(sender.node, view, texts)]
        case TermsClaimed(view=view, equal=equal, clashing=clashing):
            return _terms_answered(node, sender.node, view, equal, clashing)
        case FetchState(since=since) if node.control.index >= since:
            offsets = {stream: intake.offsets for stream, intake in node.intakes.items()}
            state = State(since, node.vts, offsets, node.role is Role.IN, None)
            return node, [CollectState(sender.node, state)]
        case State(since=since) if since == node.stay.since and node.role is Role.JOINING:
            return replace(node, stay=replace(node.stay, states={**node.stay.states, sender.node: body})), []
    return node, []


def _terms_compared(node: Node, event: TermsCompared) -> Outcome:
    """Answer the asker; unless there is a new view by now, under which somebody may have come to join and asked this
    node for its terms before these were among them."""
    if event.view != node.control.view:
        return node, []
    if event.asker == node.me.node:
        return _terms_answered(node, event.asker, event.view, event.equal, event.clashing)
    return node, [Send(event.asker, TermsClaimed(event.view, event.equal, event.clashing))]


def _terms_answered(node: Node, replica: int, view: int, equal: frozenset[str], clashing: frozenset[str]) -> Outcome:
    found, confirmed = terms.answered(node.terms, replica, view, equal, clashing)
    node = _texts_settled(replace(node, terms=found), confirmed)
    return node, [Confirm(confirmed)] if confirmed else []


def _texts_settled(node: Node, texts: frozenset[str]) -> Node:
    """Let nobody wait for these texts any more."""
    if not texts:
        return node
    intakes = {stream: sealing.settle_terms(intake, texts) for stream, intake in node.intakes.items()}
    pending = {record: waiting - texts for record, waiting in node.pending.items()}
    return replace(node, terms=terms.settled(node.terms, texts), intakes=intakes, pending=pending)


def _claims(node: Node) -> list[Action]:
    asked = terms.requests(node.terms)
    view = node.control.view
    return [
        CompareTerms(other, view, texts) if other == node.me.node else Send(other, ClaimTerms(view, texts))
        for other, texts in asked.items()
    ]


def _piece(node: Node, piece: Piece) -> Outcome:
    if piece.stream not in node.control.streams:
        return _count(node, "a piece of an undeclared stream"), []
    piece = replace(piece, unknown=_not_re_encoded(node, piece.unknown))
    intake, verdict = sealing.take_piece(node.intakes.get(piece.stream, Intake()), piece)
    if verdict is not Verdict.TAKEN:
        return _count(node, f"a {verdict.value} piece"), []
    node = replace(node, intakes={**node.intakes, piece.stream: intake})
    node, actions = _ask(node, piece.unknown)
    return node, [TakePiece(piece.stream, piece.partition, piece.first_offset), *actions]


def _not_re_encoded(node: Node, unknown: frozenset[Term]) -> frozenset[Term]:
    """Return the terms that need confirmation: the log may have re-encoded one since the host looked."""
    return frozenset(term for term in unknown if term.text not in node.control.exceptions)


def _ask(node: Node, unknown: Iterable[Term]) -> Outcome:
    found = terms.ask(node.terms, unknown, node.control)
    if found is node.terms:
        return node, []
    node = replace(node, terms=found)
    return node, _claims(node) if membership.may_agree(node.control, node.stay, node.me) else []


def _marker(node: Node, marker: Marker) -> Outcome:
    if marker.stream not in node.control.streams:
        return _count(node, "a marker of an undeclared stream"), []
    intake, verdict = sealing.take_marker(node.intakes.get(marker.stream, Intake()), marker)
    if verdict is not Verdict.TAKEN:
        return _count(node, f"a {verdict.value} marker"), []
    return replace(node, intakes={**node.intakes, marker.stream: intake}), []


def _inserted(node: Node, event: Inserted) -> Outcome:
    intake = sealing.inserted(node.intakes[event.stream], event.batch)
    node = replace(node, intakes={**node.intakes, event.stream: intake})
    return _report(node, node.counter * 7919)


def _state_collected(node: Node, event: StateCollected) -> Outcome:
    return node, [Send(event.asker, event.state)]


def _state_installed(node: Node, event: StateInstalled) -> Outcome:
    """Go on from what was installed; as a member only if it is what this stay has asked for."""
    intakes = dict(node.intakes)
    for stream, batch in event.vts.items():
        old = intakes.get(stream)
        if old is None or old.inserted < batch:
            intakes[stream] = sealing.opened_at(batch, event.offsets[stream], old)
    node = replace(node, intakes=intakes)
    if event.since != node.stay.since:
        return node, []
    return replace(node, stay=replace(node.stay, is_installing=False, is_installed=True)), []


def _submitted(node: Node, event: Submitted) -> Outcome:
    if not _may_come(node, event.record):
        return node, [Drop(event.record)]
    unknown = _not_re_encoded(node, event.unknown)
    waiting = frozenset(term.text for term in unknown)
    node = replace(node, pending={**node.pending, event.record: waiting})
    node, actions = _ask(node, unknown)
    node, more = _propose(node, _confirmed(node))
    return node, actions + more


def _reading(node: Node, event: Reading) -> Outcome:
    return replace(node, reading=event), []


def _settle(before: Node, node: Node) -> Outcome:
    """Draw the conclusions of a change: apply what is committed, seal what is whole, expose what is stable."""
    node, actions = _apply(node)
    if node.intakes is not before.intakes or node.control is not before.control:
        node, more = _seal(node)
        actions += more
    if node.role is Role.JOINING and (install := membership.installable(node.stay, node.control, node.me)):
        node = replace(node, stay=replace(node.stay, is_installing=True))
        actions.append(install)
    if node.progress is not before.progress or node.control is not before.control:
        node = replace(node, progress=progress.settle(node.progress, node.control))
        sn = stable_sn(node.control, node.progress.stable)
        if node.exposed is None or sn > node.exposed:
            node = replace(node, exposed=sn)
            actions.append(Expose(sn, vts_at(node.control, sn)))
    return node, actions


def _apply(node: Node) -> Outcome:
    actions: list[Action] = []
    while node.control.index < node.log.commit:
        entry = node.log.entries[node.control.index]
        valid = is_valid(node.control, entry)
        node = replace(node, control=apply(node.control, entry))
        if not valid:
            continue
        index = node.control.index
        actions.append(Apply(index, entry, None if entry.tick is None else node.control.last_sn))
        if isinstance(entry.record, Membership):
            node = replace(node, terms=terms.view_changed(node.terms, node.control))
            if entry.record.role is Role.JOINING and entry.record.node == node.me.node:
                node = replace(node, stay=Stay(index))
        elif isinstance(entry.record, ReEncode):
            node = _texts_settled(node, frozenset({entry.record.text}))
    if actions and node.pending:
        node, more = _forget_done(node, {one.entry.record for one in actions if isinstance(one, Apply)})
        actions += more
    return node, actions


def _forget_done(node: Node, applied: set[Record]) -> Outcome:
    """Let go of the pending records that are in the log, or can never be."""
    pending = {record: texts for record, texts in node.pending.items() if _may_come(node, record)}
    gone = [record for record in node.pending if record not in pending]
    lost = [record for record in gone if record not in applied and not _is_applied_change(node, record)]
    return replace(node, pending=pending), [Drop(record) for record in lost]


def _is_applied_change(node: Node, record: Record) -> bool:
    return isinstance(record, Change) and record.number <= node.control.requests.get(record.client, 0)


def _may_come(node: Node, record: Record) -> bool:
    """Whether a record can still be appended. A change is stamped with the view when it is proposed."""
    return is_current(node.control, record) if isinstance(record, Change) else is_news(node.control, record)


def _seal(node: Node) -> Outcome:
    actions: list[Action] = []
    intakes = dict(node.intakes)
    for name, intake in node.intakes.items():
        if name not in node.control.streams:
            continue  # A node that has just started has to hear of its streams first.
        if (batch := sealing.sealable(intake, node.control.streams[name].partitions)) is not None:
            actions.append(SealBatch(name, intake.sealed, batch, sealing.ends_of(intake, batch)))
            intakes[name] = replace(intake, sealed=batch)
    return replace(node, intakes=intakes) if actions else node, actions


def _count(node: Node, reason: str) -> Node:
    return replace(node, refused={**node.refused, reason: node.refused.get(reason, 0) + 1})


_HANDLERS: Mapping[type, Callable[..., Outcome]] = {
    Pulse: _pulse,
    Received: _received,
    Piece: _piece,
    Marker: _marker,
    Inserted: _inserted,
    TermsCompared: _terms_compared,
    StateCollected: _state_collected,
    StateInstalled: _state_installed,
    Submitted: _submitted,
    Reading: _reading,
}
