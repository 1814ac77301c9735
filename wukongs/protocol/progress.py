"""Vector timestamps: the reports that nodes pass on, and the stable VTS that follows from them.

The stable VTS is the element-wise minimum over the reports of all nodes that are HOLDING or IN. Invariants, and why:

* *It never falls*: where the minimum is lower, which is so when a node joins, the old value is kept.
* *It never exceeds the local VTS of a node that is IN*. A report says what is inserted, and on disk, so a node's VTS
  never falls, however old the report is. A node that joins is waited for from its HOLDING record k on, by all who know
  k. A node that does not know k uses reports that do not require k, each made before its node held k. So a tick that it
  exposes without waiting lies at or below the VTS that each IN node had when it came to hold k, and at or below every
  later report. The joining node becomes IN when it has come as far as such reports of all IN nodes say
  (`has_caught_up`).
* *A node that exposes a tick knows all records before it* (snapshots.py): a report is used only where the log is
  committed up to the position that it requires. Without a majority, an entry in flight holds ticks back; with no entry
  in flight, streams go on.
* *A shard without a replica stops everything*: reads would miss its part.

Reports travel by gossip (gossip.py): each node passes on the newest ones of all to a few others each pulse, so one node
sends as many messages in a cluster of 1,000 as in one of 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from wukongs.protocol.control import Control
from wukongs.protocol.messages import Report
from wukongs.protocol.records import Role, Sn, Vts


@dataclass(frozen=True, slots=True)
class Progress:
    """latest: the newest report of each node. usable: for each node, the newest one whose required position was
    committed here when it was looked at. waiting: for each node, the next to become usable: it is not replaced by newer
    ones, which require more and more while the log grows. arrived: the time at which the newest report of each node
    came, by `clock`, which counts reports; news: how many of them had another VTS, or froze a stream. refused: reports
    of earlier incarnations."""

    latest: Mapping[int, Report] = field(default_factory=dict)
    usable: Mapping[int, Report] = field(default_factory=dict)
    waiting: Mapping[int, Report] = field(default_factory=dict)
    stable: Vts = field(default_factory=dict)
    arrived: Mapping[int, int] = field(default_factory=dict)
    clock: int = 0
    news: int = 0
    refused: int = 0


def hear(progress: Progress, reports: Iterable[Report]) -> Progress:
    """Take in reports, whether they are newer than the known ones or not."""
    news, changed, refused = {}, progress.news, progress.refused
    for report in reports:
        known = progress.latest.get(report.incarnation.node)
        if known is None or (report.incarnation, report.counter) > (known.incarnation, known.counter):
            news[report.incarnation.node] = report
            changed += known is None or (report.vts, report.frozen) != (known.vts, known.frozen)
        elif report.incarnation < known.incarnation:
            refused += 1
    if news:
        clock = progress.clock + 1
        arrived = {**progress.arrived, **dict.fromkeys(news, clock)}
        latest = {**progress.latest, **news}
        return replace(progress, latest=latest, refused=refused, arrived=arrived, clock=clock, news=changed)
    return progress if refused == progress.refused else replace(progress, refused=refused)


def settle(progress: Progress, control: Control) -> Progress:
    """Use the reports that may be used now, and raise the stable VTS as far as they allow."""
    usable, waiting, committed = dict(progress.usable), dict(progress.waiting), control.position
    for node, latest in progress.latest.items():
        if latest.required <= committed:
            usable[node] = latest
            waiting.pop(node, None)
        elif waiting.setdefault(node, latest).required <= committed:
            usable[node] = waiting.pop(node)
    stable = stable_vts(usable, progress.stable, control)
    return replace(progress, usable=usable, waiting=waiting, stable=progress.stable if stable is None else stable)


def stable_vts(usable: Mapping[int, Report], before: Vts, control: Control) -> Vts | None:
    """Return the stable VTS, None where it cannot be told. before: the one before, behind which it does not fall."""
    waited_for = control.with_role(Role.HOLDING, Role.IN)
    if not all(waited_for.intersection(nodes) for nodes in control.replica_sets):
        return None
    reports = [report for node in waited_for if (report := usable.get(node)) and _is_members(report, control)]
    if len(reports) < len(waited_for):
        return None
    streams = [stream.key for stream in control.live_streams]
    lowest = {stream: min(report.vts.get(stream, 0) for report in reports) for stream in streams}
    return {stream: max(batch, before.get(stream, 0)) for stream, batch in lowest.items()}


def has_caught_up(progress: Progress, control: Control, node: int, vts: Vts) -> bool:
    """Whether a HOLDING node with this local VTS has all that can have been exposed without waiting for it."""
    held = control.members[node].held
    others = control.with_role(Role.IN) - {node}
    reports = [
        report
        for other in others
        if (report := progress.latest.get(other)) and report.required >= held and _is_members(report, control)
    ]
    return len(reports) == len(others) and all(
        vts.get(stream.key, 0) >= min((report.vts.get(stream.key, 0) for report in reports), default=0)
        for stream in control.live_streams
    )


def _is_members(report: Report, control: Control) -> bool:
    """Whether a report is of the disk that has the role, not of one that is lost."""
    return report.incarnation.disk == control.members[report.incarnation.node].disk


def oldest_held(progress: Progress, control: Control) -> tuple[Sn | None, int | None]:
    """Return the oldest SN at which readers are or may begin on any node that takes part, and the oldest firing that
    they hold; None: there is none.

    Merging and expiry stay behind them. A silent node's hold ends when it is taken out of the members."""
    reports = [progress.latest[node] for node in control.members if node in progress.latest]
    reports = [report for report in reports if control.role_of(report.incarnation.voter) is not Role.OUT]
    sns = [report.oldest_sn for report in reports if report.oldest_sn is not None]
    firings = [report.oldest_firing for report in reports if report.oldest_firing is not None]
    return min(sns, default=None), min(firings, default=None)
