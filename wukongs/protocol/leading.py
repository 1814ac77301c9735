"""A leader's work besides keeping the log. It appends the records that others ask for, if they are valid there. It
proposes what nobody else can: which nodes are out, which nodes vote, how far late streams and other clock groups are.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from zlib import crc32

from wukongs.protocol import log as raft
from wukongs.protocol import placement
from wukongs.protocol.actions import Action
from wukongs.protocol.control import Control, apply, is_valid
from wukongs.protocol.dropping import cuts
from wukongs.protocol.log import Log, LogRole
from wukongs.protocol.progress import Progress, knows
from wukongs.protocol.records import (
    LIVE,
    TICKED,
    AdvanceGroup,
    Entry,
    LateJoin,
    MoveQuery,
    Record,
    Role,
    Voter,
    Voters,
    Vts,
)
from wukongs.protocol.snapshots import late_batches, tick_for, tick_in

Outcome = tuple[Log, list[Action]]
MOVES_MAX = 256
"""Queries that move at one pulse: each record costs time in proportion to all of them."""


def admit(log: Log, control: Control, vts: Vts, records: Iterable[Record]) -> Outcome:
    """Append the records that are valid behind this leader's whole log. vts: its local one.

    A leader that is not IN appends no ticked records: nobody waits for its reports (snapshots.py)."""
    actions: list[Action] = []
    if not log.may_propose:
        return log, actions
    held = held_control(log, control)
    for record in records:
        tick = tick_for(held, vts) if isinstance(record, TICKED) else None
        entry = Entry(log.term, record, tick, None if tick is None else log.me)
        if is_valid(held, entry):
            held = apply(held, entry)
            log, more = raft.propose(log, record, tick)
            actions += more
    return log, actions


def held_control(log: Log, control: Control) -> Control:
    """Return the control state with the entries that are not committed yet."""
    return reduce(apply, log.behind(control.index), control)


def lead(log: Log, control: Control, progress: Progress, first: Iterable[Record], vts: Vts) -> Outcome:
    """Propose, once a pulse, the changes that this leader sees a need for. first: those that come before others: that
    the cluster is founded, and that silent nodes are out."""
    if log.standing is not LogRole.LEADER:
        return log, []
    groups = sorted({stream.group for stream in control.live_streams if stream.group != LIVE})
    records: list[Record] = [AdvanceGroup(group, tick_in(control, group, progress.stable)) for group in groups]
    records += late_joins(log, control, progress, vts)
    records += cuts(held_control(log, control), progress)
    records += moves(held_control(log, control), progress)
    records += placement.drained(control)
    log, actions = admit(log, control, vts, [*first, *records])
    log, more = _change_voters(log, control)
    return log, actions + more


def late_joins(log: Log, control: Control, progress: Progress, vts: Vts) -> list[LateJoin]:
    """Return what a leader can bring of late streams now: as far as its stable VTS has them, and its own ticks have
    come. A stream with a record in flight has to wait for that."""
    if not any(stream.is_late for stream in control.live_streams):
        return []
    held = held_control(log, control)
    found = late_batches(held, progress.stable, tick_for(held, vts))
    return [LateJoin(key, batch) for key, batch in found.items() if held.streams[key] == control.streams[key]]


def moves(control: Control, progress: Progress) -> list[MoveQuery]:
    """Return the records that bring queries whose homes are gone to nodes that are IN, each to the one with the highest
    hash of its number and the query's name."""
    synced = sorted(control.with_role(Role.IN))
    return [
        MoveQuery(
            name,
            (max(synced, key=lambda node: crc32(f"{node} {name}".encode())),),
            tuple(sorted(control.queries[name].nodes)),
            come_of(control, progress, name),
        )
        for name in sorted(control.homeless)[: MOVES_MAX if synced else 0]
    ]


def come_of(control: Control, progress: Progress, name: str) -> int:
    """Return the tick up to which readers have the windows of a query, by what its homes have last said: 0 if they have
    said nothing since it came to them, and nothing was known then."""
    query = control.queries[name]
    told = [_delivered(control, progress, node, query.placed) for node in query.nodes]
    return max(query.come or 0, min(told))


def _delivered(control: Control, progress: Progress, node: int, placed: int) -> int:
    """Return the tick up to which readers had the windows of a node's queries, by a life that knew a record."""
    member = control.member(node)
    for report in (progress.latest.get(node), progress.before.get(node)):
        has_begun_anew = report is None or (report.incarnation.disk >= member.disk and member.since > placed)
        if report is not None and report.delivered is not None and knows(report, placed) and not has_begun_anew:
            return report.delivered.tick
    return 0


def has_voters_to_change(log: Log, control: Control) -> bool:
    """Whether this leader is to propose other voters: until it has, one that is gone may be missing for a majority."""
    return _change_voters(log, control)[0] is not log


def _change_voters(log: Log, control: Control) -> Outcome:
    """Take out a voter whose disk is gone; let its node vote again when it is IN and has the log. A node that holds
    nothing gives its vote to one that does, but for this leader, which gives it up when it is one no more."""
    if not raft.may_change_voters(log):
        return log, []
    for voter in sorted(log.voters):
        if control.member(voter.node).disk != voter.disk and voter != log.me:
            return raft.propose(log, Voters(log.voters - {voter}))
    nodes, needed = {voter.node for voter in log.voters}, seats(log, control)
    for node in needed:
        new = Voter(node, control.member(node).disk)
        is_there = control.member(node).role is Role.IN and log.match.get(new, 0) >= log.commit
        if node not in nodes and is_there:
            return raft.propose(log, Voters(log.voters | {new}))
    for voter in sorted(log.voters):
        if voter.node not in needed and nodes.issuperset(needed) and voter != log.me:
            return raft.propose(log, Voters(log.voters - {voter}))
    return log, []


def seats(log: Log, control: Control) -> list[int]:
    """Return the nodes that are to vote: those that did at first, or in the place of one that holds nothing another."""
    first = [voter.node for voter in sorted(log.first_voters)]
    holding = [node for node in first if control.holds(node)]
    others = [node for node in sorted(control.members) if node not in first and control.holds(node)]
    return holding + others[: len(first) - len(holding)]
