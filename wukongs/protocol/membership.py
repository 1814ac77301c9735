"""Membership: how a node leaves and comes back, so that no reader misses the data that it has, or reads data that it
lacks.

    OUT --(the node asks)--> JOINING --(it has terms and data)--> HOLDING --(it has all that is exposed)--> IN

Each arrow is a record of the log; the leader takes a silent node OUT if every shard of it has another in-sync replica,
else it is waited for. A node that lost its disk starts at JOINING with a new disk generation, whatever its role was.

* OUT. Nobody waits for it. Its host may fetch most of what it lacks before it asks to join (Node.is_fetching). By a
  record it says before that its earlier disk is lost: so nobody waits for its earlier life, or counts on its vote. A
  node that was drained says that too, though it has nothing to fetch: as long as it is heard, nobody takes it out.
* JOINING. From this record on, askers need its agreement to new terms. It asks all nodes that take part for their terms
  and data of its shards; they answer when they know the record themselves. With another in-sync replica for each of its
  shards it takes over their data; else (one replica, disk lost) sources send their rows again, from the beginning.
* HOLDING. The stable VTS waits for it. It is asked for late, so that the wait is short, and once a restart finds what
  the node has taken over: when it is IN the others may go, with their disks.
* IN. It has everything that was exposed without waiting for it (progress.py says why): it may be read, and the other
  replicas may go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from wukongs.protocol.actions import InstallState
from wukongs.protocol.control import Control, is_news
from wukongs.protocol.messages import Incarnation, Report, State
from wukongs.protocol.progress import Progress, has_caught_up, settle
from wukongs.protocol.records import Membership, Role, Vts

LAG_BATCHES_MAX = 2
"""A joining node that is no further behind than this asks to be waited for."""


@dataclass(frozen=True, slots=True)
class Stay:
    """The states that a joining node has been sent. since: the index of the record that made it JOINING; index: the
    nodes that answer must have applied the log up to here, since this node knows these records by a control state
    only. is_safe: whether a restart finds what is installed."""

    since: int = 0
    index: int = 0
    states: Mapping[int, State] = field(default_factory=dict)
    is_installing: bool = False
    is_installed: bool = False
    is_safe: bool = True


def to_fetch_from(stay: Stay, control: Control, me: Incarnation) -> set[int]:
    """Return the nodes whose state a joining node still needs."""
    return control.with_role(Role.JOINING, Role.HOLDING, Role.IN) - {me.node} - stay.states.keys()


def installable(stay: Stay, control: Control, me: Incarnation) -> InstallState | None:
    """Return the states to install, when all that take part have answered."""
    if stay.is_installing or stay.is_installed or to_fetch_from(stay, control, me):
        return None
    mine = [set(shard) for shard in control.shards if me.node in shard]
    synced = control.with_role(Role.IN) & {node for node, state in stay.states.items() if state.is_in}
    donors = sorted(node for node in synced if any(node in shard for shard in mine))
    vts: dict[str, int] = {}
    offsets: dict[str, Mapping[str, int]] = {}
    if mine and all(shard.intersection(donors) for shard in mine):
        for stream in control.live_streams:
            batch, least = min((stay.states[node].vts.get(stream.key, 0), node) for node in donors)
            if batch:
                vts[stream.key] = batch
                offsets[stream.key] = stay.states[least].offsets[stream.key]
    return InstallState(stay.since, stay.states, vts, offsets)


def may_agree(control: Control, stay: Stay, me: Incarnation) -> bool:
    """Whether this node may answer for terms: it has all terms that earlier replicas agreed to."""
    role = control.role_of(me.voter)
    return role in (Role.HOLDING, Role.IN) or (role is Role.JOINING and stay.is_installed)


def next_role(
    control: Control, progress: Progress, stay: Stay, me: Incarnation, vts: Vts, is_fetching: bool = False
) -> Membership | None:
    """Return the record that this node asks for, if it is ready for its next role. is_fetching: as Node has it."""
    member = control.member(me.node)
    match control.role_of(me.voter):
        case Role.OUT if is_fetching or (member.role is not Role.OUT and not control.holds(me.node)):
            found = Membership(me.node, me.disk, Role.OUT)
            return found if is_news(control, found) else None
        case Role.OUT:
            return Membership(me.node, me.disk, Role.JOINING) if control.holds(me.node) else None
        case Role.JOINING if stay.is_installed and stay.is_safe and _is_near(progress, control, vts):
            return Membership(me.node, me.disk, Role.HOLDING, member.since)
        case Role.HOLDING if stay.is_safe and has_caught_up(progress, control, me.node, vts):
            return Membership(me.node, me.disk, Role.IN, member.since)
    return None


def _is_near(progress: Progress, control: Control, vts: Vts) -> bool:
    stable = settle(progress, control).stable
    return all(vts.get(key, 0) + LAG_BATCHES_MAX >= batch for key, batch in stable.items())


@dataclass(frozen=True, slots=True)
class Watch:
    """An eye on the nodes: the last report of each, and the pulses since it came."""

    seen: Mapping[int, tuple[Incarnation, int, int]] = field(default_factory=dict)

    def silence_of(self, node: int) -> int:
        """Return the pulses since anything new was heard of a node, 0 for one that is not watched."""
        return self.seen[node][2] if node in self.seen else 0

    def overdue(self, pulses_max: int, starting_pulses_max: int) -> list[int]:
        """Return the nodes that were silent for longer than pulses_max, or than starting_pulses_max if nothing of their
        first life was heard yet: they may still be starting."""
        return [
            node
            for node, (life, counter, pulses) in sorted(self.seen.items())
            if pulses > (starting_pulses_max if not counter and not life.disk else pulses_max)
        ]


def watch(eye: Watch, latest: Mapping[int, Report], control: Control, me: Incarnation, elapsed: int) -> Watch:
    """Let a pulse pass. elapsed: as in events.Pulse."""
    seen = {}
    for node in control.nodes:
        if node == me.node:
            continue
        report = latest.get(node)
        newest = (report.incarnation, report.counter) if report else (Incarnation(node, 0, 0), 0)
        disk = control.member(node).disk
        if newest[0].disk < disk:  # its new life has asked to join: the silence was that of the one before
            newest = Incarnation(node, disk, 0), 0
        incarnation, counter, pulses = eye.seen.get(node, (*newest, 0))
        seen[node] = (*newest, pulses + elapsed if (incarnation, counter) == newest else 0)
    return replace(eye, seen=seen)


def silent(overdue: Iterable[int], control: Control) -> list[Membership]:
    """Return the records that take out nodes that were silent for too long (Watch.overdue)."""
    return [Membership(node, control.member(node).disk, Role.OUT, control.member(node).since) for node in overdue]
