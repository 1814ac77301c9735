"""The steps of a node about leases (leases.py): it holds one, answers a leader's rounds, or grants them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

from msgspec import structs

from wukongs.protocol.actions import Action, Send
from wukongs.protocol.control import THE_FIRST, Control, apply
from wukongs.protocol.events import Event, LeaseAsked, Pulse, Received, SavedBefore
from wukongs.protocol.leases import DRIFT, Asked, Leases, Round
from wukongs.protocol.log import LogRole
from wukongs.protocol.messages import Append, Appended, Grant, Incarnation, Request, Vote
from wukongs.protocol.records import Membership, Record, Role, Sn
from wukongs.protocol.state import Node

ROUNDS_MAX = 32
"""Rounds that wait for answers. A round is shorter than the way to the voters and back where these are far away."""
RECENT_MS = 500
"""A node whose last request is older gets no faster pulses. A node that was to be taken out for longer ago may get
leases again."""


def begun(node: Node, now_ms: int) -> Node:
    """Return a node whose life begins now. One that has voted before does not remember what it has answered."""
    promised_ms = now_ms + node.cluster.lease_ms if node.log.term else 0
    return replace(node, leases=Leases(now_ms, now_ms, promised_ms=promised_ms))


def seeing(node: Node, reached: Sn) -> Node:
    """Return a node at which reads see an SN."""
    if not node.cluster.lease_ms or reached == node.leases.reached:
        return node
    return replace(node, leases=replace(node.leases, reached=reached))


# --- as a holder ------------------------------------------------------------------------------------------------------


def holds_until(node: Node) -> float:
    """Return until when, in milliseconds of its own clock, a node may answer reads."""
    if not node.cluster.lease_ms:
        return float("inf")
    if node.role is not Role.IN or not node.control.holds(node.me.node):
        return 0
    return float("inf") if _is_alone(node) else node.leases.until_ms


def _is_alone(node: Node) -> bool:
    """Whether there is no other node, and reads see all that this one's log held when it began to lead. A node that
    does not lead may have forgotten, over a restart, that others were added, and what was exposed."""
    leases = node.leases
    return node.control.nodes == [node.me.node] and leases.term > 0 and leases.reached >= leases.floor


def _hold(node: Node, asked_ms: int | None, lease_ms: int) -> Node:
    """Take a lease: the leader has granted a request of this life."""
    leases = node.leases
    if asked_ms is None or not leases.born_ms <= asked_ms <= leases.now_ms:
        return node
    until_ms = asked_ms + int(lease_ms * (1 - DRIFT))
    return replace(node, leases=replace(leases, until_ms=max(leases.until_ms, until_ms)))


# --- as a leader ------------------------------------------------------------------------------------------------------


def holders(node: Node, sn: Sn) -> set[int]:
    """Return the nodes that may hold a lease and have not exposed an SN, as far as this leader knows."""
    leases = node.leases
    found = {
        life.node
        for life, end_ms in leases.runs_out.items()
        if end_ms > leases.now_ms and leases.seen.get(life, THE_FIRST) < sn
    }
    if leases.now_ms < leases.earlier_ms:
        have_seen = {life.node for life, seen in leases.seen.items() if seen >= sn}
        found |= node.control.with_role(Role.IN) - have_seen
    return found


class LeaderSays(NamedTuple):
    """The answer of a leader to LeaseAsked. number, confirmed: of its rounds; newest: the SN of the last record in its
    log that has one; holders: as `holders` returns them."""

    term: int
    number: int
    confirmed: int
    newest: Sn
    holders: frozenset[int]

    def confirms(self, before: LeaderSays) -> bool:
        """Whether a majority has answered a round that this leader began behind an earlier answer."""
        return self.term == before.term and self.confirmed > before.number


def leader_says(node: Node, sn: Sn) -> LeaderSays | None:
    """Return what a node says of an SN behind LeaseAsked. None: it does not lead."""
    leases = node.leases
    if not leases.term:
        return None
    newest = node.control.last_sn
    return LeaderSays(leases.term, leases.number, leases.confirmed, newest, frozenset(holders(node, sn)))


@dataclass(slots=True)
class Newest:
    """The wait of a reader without a lease for the SN that misses nothing acknowledged. said: as Exposure has it."""

    said: LeaderSays | None = None
    sn: Sn | None = None

    def hear(self, said: LeaderSays | None) -> None:
        """Take in the answer of a leader."""
        before = self.said
        if before is not None and said is not None and said.confirms(before):
            self.sn = before.newest
        elif before is None or said is None or said.term != before.term:
            self.said = said


@dataclass(slots=True)
class Exposure:
    """The wait of a writer or reader until all holders of leases have exposed an SN.

    seen: nodes that have said themselves that they have; said: the last answer of a leader, which counts once a later
    round of the same term is confirmed; free: nodes that need not be waited for, by an answer that counts."""

    seen: set[int] = field(default_factory=set)
    said: LeaderSays | None = None
    free: set[int] = field(default_factory=set)

    def hear(self, said: LeaderSays | None, nodes: Iterable[int]) -> None:
        """Take in the answer of a leader. nodes: all of the cluster."""
        before, self.said = self.said, said
        if before is None or said is None:
            return
        if said.confirms(before):
            self.free.update(node for node in nodes if node not in before.holders)
        elif before.term == said.term and before.holders == said.holders:
            self.said = before

    def left(self, control: Control) -> set[int]:
        """Return the nodes that are still waited for. control: of a node that has applied the record of the SN."""
        return control.with_role(Role.IN) - self.seen - self.free


def held_back(node: Node, records: Iterable[Record]) -> tuple[Node, list[Record]]:
    """Return the records that need not wait for leases. Nodes that the others are about get no new leases meanwhile."""
    may_go, leaving_ms = list[Record](), dict(node.leases.leaving_ms)
    for record in records:
        if isinstance(record, Membership) and holds_back(node, record):
            leaving_ms[record.node] = node.leases.now_ms
        else:
            may_go.append(record)
    if leaving_ms != node.leases.leaving_ms:
        node = replace(node, leases=replace(node.leases, leaving_ms=leaving_ms))
    return node, may_go


def holds_back(node: Node, record: Membership) -> bool:
    """Whether a record about a node's role has to wait until the lease of that node has run out: the node is to be
    taken out, or begins anew with another disk, while an earlier life of it may still answer reads."""
    if not node.cluster.lease_ms or record.node == node.me.node:
        return False
    member = node.control.member(record.node)
    is_anew = record.disk > member.disk
    if not is_anew and (record.role is not Role.OUT or not node.control.holds(record.node)):
        return False
    leases = node.leases
    own = (end_ms for life, end_ms in leases.runs_out.items() if life.node == record.node and life.disk <= member.disk)
    return leases.now_ms < max(leases.earlier_ms, *own, 0)


def is_waited_for(node: Node) -> bool:
    """Whether somebody waits for this leader's next round: a writer, or a node that has asked and has no lease."""
    leases = node.leases
    if not node.cluster.lease_ms or node.log.standing is not LogRole.LEADER or leases.term != node.log.term:
        return False
    if leases.question >= leases.confirmed:
        return True
    synced = node.control.with_role(Role.IN)
    return any(
        life.node in synced
        and life != node.me
        and asked.heard_ms > leases.now_ms - RECENT_MS
        and leases.runs_out.get(life, 0) <= leases.now_ms
        for life, asked in leases.asked.items()
    )


def _lead(node: Node) -> Node:
    """Begin to lead, or to lead no more."""
    leases, log = node.leases, node.log
    leads = log.standing is LogRole.LEADER and log.may_propose
    if not leads:
        return node if not leases.term else replace(node, leases=_left(leases))
    if leases.term == log.term:
        return node
    leases = replace(
        _left(leases), term=log.term, earlier_ms=max(leases.earlier_ms, leases.promised_ms), floor=node.control.last_sn
    )
    return replace(node, leases=leases)


def _left(leases: Leases) -> Leases:
    """Return what stays of a leader's leases when it leads no more."""
    kept = leases.now_ms, leases.born_ms, leases.reached, leases.until_ms, leases.promised_ms, leases.earlier_ms
    return Leases(*kept)


def _begin_round(node: Node) -> Node:
    leases, me = node.leases, node.me
    node = _note_request(node, me, leases.now_ms, leases.reached)
    leases = node.leases
    begun = Round(leases.number + 1, leases.asked)
    leases = replace(
        leases,
        number=begun.number,
        rounds=(*leases.rounds[-ROUNDS_MAX + 1 :], begun),
        promised_ms=max(leases.promised_ms, leases.now_ms + node.cluster.lease_ms),
    )
    return _confirm(replace(node, leases=leases))


def _note_request(node: Node, life: Incarnation, asked_ms: int, seen: Sn) -> Node:
    leases, member = node.leases, node.control.member(life.node)
    first = leases.first
    if member.role is Role.IN and (life, member.came) not in first:
        first = {**{key: sn for key, sn in first.items() if key[0] != life}, (life, member.came): node.control.last_sn}
    return replace(
        node,
        leases=replace(
            leases,
            asked={**leases.asked, life: Asked(asked_ms, leases.now_ms)},
            seen={**leases.seen, life: max(seen, leases.seen.get(life, THE_FIRST))},
            first=first,
        ),
    )


def _confirm(node: Node) -> Node:
    """Grant the requests of the newest round that a majority has answered."""
    leases, log = node.leases, node.log
    answered = {**leases.answered, log.me: leases.number}
    numbers = sorted((answered.get(voter, 0) for voter in log.voters), reverse=True)
    confirmed = numbers[len(numbers) // 2]
    known = [one for one in leases.rounds if one.number <= confirmed]
    if confirmed <= leases.confirmed or not known:
        return node
    newest = known[-1]
    granted, runs_out = dict(leases.granted), dict(leases.runs_out)
    control = reduce(apply, log.behind(node.control.index), node.control)
    for life, asked in newest.asked.items():
        if asked.at_ms > granted.get(life, -1) and _may_hold(leases, control, life):
            granted[life] = asked.at_ms
            runs_out[life] = max(runs_out.get(life, 0), asked.heard_ms + node.cluster.lease_ms)
    rounds = tuple(one for one in leases.rounds if one.number > newest.number)
    leases = replace(leases, confirmed=newest.number, rounds=rounds, granted=granted, runs_out=runs_out)
    return _hold(replace(node, leases=leases), granted.get(node.me), node.cluster.lease_ms)


def _may_hold(leases: Leases, control: Control, life: Incarnation) -> bool:
    """Whether a node may get a lease. control: with all that the log of this leader holds."""
    if control.role_of(life.voter) is not Role.IN or not control.holds(life.node):
        return False
    if any(other.node == life.node and other > life for other in leases.asked):
        return False
    if leases.now_ms - leases.leaving_ms.get(life.node, -RECENT_MS) < RECENT_MS:
        return False
    first = leases.first.get((life, control.member(life.node).came))
    return first is not None and leases.seen[life] >= max(first, leases.floor)


# --- in a step --------------------------------------------------------------------------------------------------------


def note(node: Node, event: Event) -> Node:
    """Take in an event, behind everything else that the node does about it."""
    at_ms = event.at_ms if isinstance(event, Pulse | Received | LeaseAsked) else 0
    if at_ms > node.leases.now_ms:
        node = replace(node, leases=replace(node.leases, now_ms=at_ms))
    node = _lead(node)
    match event:
        case Pulse() if node.leases.term:
            node = _begin_round(node)
        case LeaseAsked(sn=sn) if node.leases.term:
            leases = node.leases
            node = replace(node, leases=replace(leases, floor=max(leases.floor, sn), question=leases.number))
        case SavedBefore():  # by an earlier life, which may have answered rounds
            promised_ms = node.leases.born_ms + node.cluster.lease_ms
            node = replace(node, leases=replace(node.leases, promised_ms=max(node.leases.promised_ms, promised_ms)))
        case Received(message=message):
            node = _note_message(node, message.sender, message.body)
    return node


def _note_message(node: Node, sender: Incarnation, body: object) -> Node:
    leases, log = node.leases, node.log
    if isinstance(body, Append) and body.term == log.term and body.grant is not None:
        promised_ms = max(leases.promised_ms, leases.now_ms + body.grant.lease_ms)
        node = replace(node, leases=replace(leases, promised_ms=promised_ms))
        return _hold(node, body.grant.asked_ms, body.grant.lease_ms)
    if isinstance(body, Vote) and body.term == log.term and body.is_granted:
        left_ms = node.cluster.lease_ms if body.left_ms is None else body.left_ms
        return replace(node, leases=replace(leases, earlier_ms=max(leases.earlier_ms, leases.now_ms + left_ms)))
    if isinstance(body, Appended) and body.term == log.term and body.request is not None and leases.term:
        if node.heard.get(sender.node) != sender:
            return node
        request, before = body.request, leases.answered.get(sender.voter, 0)
        leases = replace(leases, answered={**leases.answered, sender.voter: max(request.round, before)})
        return _confirm(_note_request(replace(node, leases=leases), sender, request.at_ms, request.seen))
    return node


def stamped(node: Node, event: Event, actions: Iterable[Action]) -> list[Action]:
    """Return the actions of a step with what its messages say of leases."""
    return [_stamped(node, event, one) if isinstance(one, Send) else one for one in actions]


def _stamped(node: Node, event: Event, sent: Send) -> Send:
    leases = node.leases
    match sent.body:
        case Append() if leases.term:
            life = node.heard.get(sent.node)
            asked_ms = None if life is None else leases.granted.get(life)
            grant = Grant(leases.number, node.cluster.lease_ms, asked_ms)
            return replace(sent, body=structs.replace(sent.body, grant=grant))
        case Appended() if isinstance(event, Received) and isinstance(event.message.body, Append):
            told = event.message.body.grant
            if told is not None:
                request = Request(told.round, leases.now_ms, leases.reached)
                return replace(sent, body=structs.replace(sent.body, request=request))
        case Vote(is_granted=True):
            left_ms = max(0, leases.promised_ms - leases.now_ms)
            return replace(sent, body=structs.replace(sent.body, left_ms=left_ms))
    return sent


def without(body: Append | Appended | Vote) -> Append | Appended | Vote:
    """Return a message as a node of a release without leases reads it."""
    if isinstance(body, Append):
        return structs.replace(body, grant=None)
    return structs.replace(body, request=None) if isinstance(body, Appended) else structs.replace(body, left_ms=None)
