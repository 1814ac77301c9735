"""Vector timestamps: the reports that nodes pass on, and the stable VTS that follows from them.

The stable VTS is the element-wise minimum over the reports of all nodes that are HOLDING or IN. Invariants, and why:

* *It never falls*: where the minimum is lower, which is so when a node joins, the old value is kept.
* *It never exceeds the local VTS of a node that is IN*. A report says what is inserted, and on disk, so a node's VTS
  never falls, however old the report is. A node that joins is waited for from its HOLDING record k on, by all who know
  k. A node that does not know k uses reports that do not require k, each made before its node held k. So a tick that it
  exposes without waiting lies at or below the VTS that each IN node had when it came to hold k, and at or below every
  later report. The joining node becomes IN when it has come as far as such reports of all IN nodes say
  (`has_caught_up`). Of a node that became IN after k, only reports that know of that count: what it said as HOLDING
  bounds nothing that was exposed without waiting for it.
* *A node that exposes a tick knows all records before it* (snapshots.py): a report is used only where the log is
  committed up to the position that it requires. Without a majority, an entry in flight holds ticks back; with no entry
  in flight, streams go on.
* *A shard without a replica stops everything*: reads would miss its part.

Reports travel by gossip (gossip.py): each node passes on the newest ones of all to a few others each pulse, so one node
sends as many messages in a cluster of 1,000 as in one of 10. Most reports are not whole: they have what differs from a
whole one before (`Report.since`). Such a report is only taken together with that very one, and is then exactly what its
node said; else it counts for nothing, and is asked for. So a lost report means delay, and nothing else.

The stable VTS is brought up to date for the streams that have risen in some report (`settle`). Only where other nodes
are waited for than before, all streams are looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from msgspec import structs

from wukongs.protocol.control import Control, DeclaredStream
from wukongs.protocol.messages import Report
from wukongs.protocol.records import Role, Sn, Vts


@dataclass(frozen=True, slots=True)
class Progress:
    """latest: the newest report of each node, made whole; whole: the newest one that came whole; short: the newest one
    as what differs from that. usable: for each node, the newest one whose required position was committed here when it
    was looked at. waiting: for each node, the next to become usable: it is not replaced by newer ones, which require
    more and more while the log grows. arrived, begun: the times at which the newest and the newest whole report of each
    node came, by `clock`, which counts reports; news: how many of them had another VTS, or froze a stream. refused:
    reports of earlier incarnations; before: of a node that has begun anew, the last report that said what readers had.

    stable: without streams that are at 0; counted: the reports from which it follows, by node, {} if it was not told
    from all that are waited for; streams: those of the control state at that time."""

    latest: Mapping[int, Report] = field(default_factory=dict)
    short: Mapping[int, Report] = field(default_factory=dict)
    whole: Mapping[int, Report] = field(default_factory=dict)
    usable: Mapping[int, Report] = field(default_factory=dict)
    waiting: Mapping[int, Report] = field(default_factory=dict)
    stable: Vts = field(default_factory=dict)
    arrived: Mapping[int, int] = field(default_factory=dict)
    begun: Mapping[int, int] = field(default_factory=dict)
    clock: int = 0
    news: int = 0
    refused: int = 0
    before: Mapping[int, Report] = field(default_factory=dict)
    counted: Mapping[int, Report] = field(default_factory=dict)
    streams: Mapping[str, DeclaredStream] = field(default_factory=dict)


def hear(progress: Progress, reports: Iterable[Report]) -> Progress:
    """Take in reports, whether they are newer than the known ones or not. One that is not whole is passed over if the
    whole one that it builds on is not here (`lacking`)."""
    latest, short, whole = dict[int, Report](), dict[int, Report](), dict[int, Report]()
    before = dict[int, Report]()
    changed, refused = progress.news, progress.refused
    for report in reports:
        node = report.incarnation.node
        known = latest.get(node, progress.latest.get(node))
        if not _is_newer(report, known):
            refused += known is not None and report.incarnation < known.incarnation
            continue
        if not report.since:
            made, whole[node] = report, report
            report = structs.replace(report, vts={}, since=report.counter)
        else:
            base = whole.get(node, progress.whole.get(node))
            if base is None or (base.incarnation, base.counter) != (report.incarnation, report.since):
                continue
            made = structs.replace(report, vts={**base.vts, **report.vts}, since=0)
        latest[node], short[node] = made, report
        if known is not None and known.delivered is not None and known.incarnation != made.incarnation:
            before[node] = known
        changed += known is None or (made.vts, made.frozen) != (known.vts, known.frozen)
    if latest:
        clock = progress.clock + 1
        return replace(
            progress,
            latest={**progress.latest, **latest},
            short={**progress.short, **short},
            whole={**progress.whole, **whole},
            arrived={**progress.arrived, **dict.fromkeys(latest, clock)},
            begun={**progress.begun, **dict.fromkeys(whole, clock)},
            clock=clock,
            news=changed,
            refused=refused,
            before={**progress.before, **before} if before else progress.before,
        )
    return progress if refused == progress.refused else replace(progress, refused=refused)


def lacking(progress: Progress, reports: Iterable[Report]) -> list[int]:
    """Return the nodes of whose reports one was passed over, although it is newer than the known ones."""
    nodes = {one.incarnation.node for one in reports if _is_newer(one, progress.latest.get(one.incarnation.node))}
    return sorted(nodes)


def _is_newer(report: Report, known: Report | None) -> bool:
    return known is None or (report.incarnation, report.counter) > (known.incarnation, known.counter)


def settle(progress: Progress, control: Control) -> Progress:
    """Use the reports that may be used now, and raise the stable VTS as far as they allow."""
    usable, waiting, committed = dict(progress.usable), dict(progress.waiting), control.position
    for node, latest in progress.latest.items():
        if latest.required <= committed:
            usable[node] = latest
            waiting.pop(node, None)
        elif waiting.setdefault(node, latest).required <= committed:
            usable[node] = waiting.pop(node)
    stable = progress.stable
    if control.streams is not progress.streams:  # Some may be gone.
        stable = {key: batch for key, batch in stable.items() if _is_live(control, key)}
    counted = _counted(usable, control) or {}
    if counted.keys() == progress.counted.keys():
        risen = [key for node, report in counted.items() for key in _risen(report.vts, progress.counted[node].vts)]
        if control.streams is not progress.streams:
            risen += [key for key in control.streams if key not in progress.streams]
    else:
        risen = [key for report in counted.values() for key in report.vts]
    if counted:
        streams = [key for key in dict.fromkeys(risen) if _is_live(control, key)]
        stable = _raised(stable, counted.values(), streams)
    return replace(progress, usable=usable, waiting=waiting, stable=stable, counted=counted, streams=control.streams)


def _is_live(control: Control, key: str) -> bool:
    return key in control.streams and control.streams[key].gone is None


def _risen(vts: Vts, before: Vts) -> list[str]:
    """Return the streams that have more by a vector timestamp than by the one before."""
    return [] if vts is before else [key for key, batch in vts.items() if batch > before.get(key, 0)]


def _counted(usable: Mapping[int, Report], control: Control) -> dict[int, Report] | None:
    """Return the reports of all nodes that are waited for, None if some are missing or a shard has no such node."""
    waited_for = control.with_role(Role.HOLDING, Role.IN)
    if not all(waited_for.intersection(nodes) for nodes in control.replica_sets):
        return None
    reports = {node: report for node in waited_for if (report := usable.get(node)) and _is_members(report, control)}
    return reports if len(reports) == len(waited_for) else None


def _raised(before: Vts, reports: Collection[Report], streams: Iterable[str]) -> Vts:
    """Return a stable VTS, brought up to date for some streams. It does not fall behind the one before."""
    lowest = {stream: min(report.vts.get(stream, 0) for report in reports) for stream in streams}
    higher = {stream: batch for stream, batch in lowest.items() if batch > before.get(stream, 0)}
    return {**before, **higher} if higher else before


def has_caught_up(progress: Progress, control: Control, node: int, vts: Vts) -> bool:
    """Whether a HOLDING node with this local VTS has all that can have been exposed without waiting for it."""
    held = control.member(node).held
    others = control.with_role(Role.IN) - {node}
    reports = [
        report
        for other in others
        if (report := progress.latest.get(other))
        and report.required >= max(held, control.member(other).came)
        and _is_members(report, control)
    ]
    return len(reports) == len(others) and all(
        vts.get(stream.key, 0) >= min((report.vts.get(stream.key, 0) for report in reports), default=0)
        for stream in control.live_streams
    )


def _is_members(report: Report, control: Control) -> bool:
    """Whether a report is of the disk that has the role, not of one that is lost."""
    return report.incarnation.disk == control.member(report.incarnation.node).disk


def knows(report: Report, index: int) -> bool:
    """Whether what a report says of the queries of its node counts those that came to it by a record."""
    return report.delivered is not None and report.delivered.known >= index


class HeldAnywhere(NamedTuple):
    """What readers need of all nodes.

    oldest_sn: the oldest SN at which readers are or may begin on any node that takes part.
    oldest_firing: the oldest firing that they hold.
    stands: all SNs at which live views and their readers stand.
    None: there is none, or a node that is IN was not heard yet, since this one was started."""

    oldest_sn: Sn | None
    oldest_firing: int | None
    stands: frozenset[Sn] | None


def held_anywhere(progress: Progress, control: Control) -> HeldAnywhere:
    """Return what readers on any node that takes part need.

    Merging and expiry stay behind them. A silent node's hold ends when it is taken out of the members, but lasts until
    other nodes hold what its queries need."""
    if not control.with_role(Role.IN) <= progress.latest.keys():
        return HeldAnywhere(None, None, None)
    found = [progress.latest[node] for node in control.members if node in progress.latest]
    reports = [report for report in found if control.role_of(report.incarnation.voter) is not Role.OUT]
    synced = control.with_role(Role.IN)
    if control.homeless or any(
        one.incarnation.node in synced and control.moved and not knows(one, control.moved) for one in reports
    ):
        reports = [*found, *progress.before.values()]
    sns = [report.oldest_sn for report in reports if report.oldest_sn is not None]
    firings = [report.oldest_firing for report in reports if report.oldest_firing is not None]
    stands = frozenset[Sn]().union(*(report.stands for report in reports))
    return HeldAnywhere(min(sns, default=None), min(firings, default=None), stands)
