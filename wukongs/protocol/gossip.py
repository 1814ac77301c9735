"""Gossip: how reports travel. Each pulse a node tells a few others, at random, what is news to them.

* A report is made when something in it has changed, or after REPORT_PULSES so that nobody takes this node for dead.
  Between two pulses it is made when a stream batch is inserted that others wait for (it raises the tick that this
  node's VTS covers), at most EARLY_MAX times: so many streams cost no more messages than one.
* A node pulses less often (waiting.py) while its own VTS has not changed. If it does not tell all nodes itself, no
  other node's VTS may have changed either (`has_news`). Nobody waits for other changes in a report.
* Reports are news to a node if they were heard since it was told the last time; so in a quiet cluster little is said.
  Now and then it is told everything, as messages get lost. A message carries REPORTS_MAX reports at most: the sender's
  own first, then others by chance. That bounds the traffic of a node in any cluster; the price is older reports.
* A report has what differs from the last whole one (`shortened`), and is whole where that is more than half of the
  streams. So it costs what has changed, however many streams there are. A whole report is told to a node once. A node
  that lacks one that a report builds on asks whoever has told it, which answers at once.
* Any order, loss and repetition are right (progress.py): a report only ever adds to what is known.

Bytes per pulse and node: at most GOSSIP_NODES * REPORTS_MAX * (size of a report), a report being about 150 bytes and 25
for each stream that has changed, as JSON (docs/decisions/0021-control-traffic.md has what was measured).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from wukongs.protocol.actions import Action, Send
from wukongs.protocol.messages import Gossip, Report
from wukongs.protocol.progress import Progress, hear, lacking
from wukongs.protocol.records import Vts

GOSSIP_NODES = 3
"""How many nodes are told at a time."""
REPORT_PULSES = 3
"""A report is made after so many pulses at the latest; of a node that nobody waits for each counts twice."""
FULL_TIMES = 10
"""Each so many times a node is told everything."""
EARLY_MAX = 4
"""Reports between two pulses."""
REPORTS_MAX = 256
"""Reports per message."""


@dataclass(frozen=True, slots=True)
class Talk:
    """The reports that a node has sent. told: per other node, how much of `Progress.arrived` it was told, and how
    often; quiet: pulses since the last report; early: reports made since the last pulse; passed_on: `Progress.news`
    when it last told."""

    told: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    quiet: int = 0
    early: int = 0
    passed_on: int = 0


def listeners(me: int, nodes: Sequence[int], draw: int) -> list[int]:
    """Return whom to tell, of these nodes. draw: a random integer >= 0."""
    others = [*(node for node in nodes if node > me), *(node for node in nodes if node < me)]
    if len(others) <= GOSSIP_NODES:
        return sorted(others)
    found = set()
    for _ in range(GOSSIP_NODES):
        draw, place = divmod(draw, len(others))
        found.add(others[place])
    return sorted(found)


def has_news(talk: Talk, progress: Progress, me: int, node_count: int, vts: Vts, frozen: frozenset[str]) -> bool:
    """Whether others wait for this node's next report. vts, frozen: those of that report."""
    last = progress.latest.get(me)
    if last is None or (last.vts, last.frozen) != (vts, frozen):
        return True
    return node_count - 1 > GOSSIP_NODES and progress.news > talk.passed_on


def pulse(talk: Talk, progress: Progress, report: Report, elapsed: int) -> tuple[Talk, Progress]:
    """Let a pulse pass: make a report if it is due. report: this node's, with any counter; elapsed: see Pulse."""
    last = progress.latest.get(report.incarnation.node)
    quiet = talk.quiet + min(elapsed, 2)
    is_due = last is None or quiet >= REPORT_PULSES or structs.replace(report, counter=last.counter) != last
    if not is_due:
        return replace(talk, quiet=quiet, early=0), progress
    return replace(talk, quiet=0, early=0), hear(progress, [shortened(progress, report)])


def early(talk: Talk, progress: Progress, report: Report) -> tuple[Talk, Progress]:
    """Make a report before the next pulse, if there were not too many."""
    if talk.early == EARLY_MAX:
        return talk, progress
    return replace(talk, early=talk.early + 1), hear(progress, [shortened(progress, report)])


def shortened(progress: Progress, report: Report) -> Report:
    """Return this node's report as it is told: whole, or as what differs from the last one that was whole."""
    base = progress.whole.get(report.incarnation.node)
    if base is None or base.incarnation != report.incarnation or not base.vts.keys() <= report.vts.keys():
        return report  # A stream that is gone could not be told.
    news = {stream: batch for stream, batch in report.vts.items() if base.vts.get(stream) != batch}
    if 2 * len(news) > len(report.vts):
        return report
    return structs.replace(report, vts=news, since=base.counter)


def tell(talk: Talk, progress: Progress, me: int, nodes: list[int], draw: int) -> tuple[Talk, list[Action]]:
    """Tell some nodes what is news to them."""
    told, actions = dict(talk.told), list[Action]()
    for node in nodes:
        known, times = told.get(node, (0, 0))
        after = known if times % FULL_TIMES else 0
        news = [other for other in progress.latest if progress.arrived[other] > after and other != node]
        if len(news) > REPORTS_MAX:
            first = draw % len(news)
            news = sorted(news[first:] + news[:first], key=lambda other: other != me)[:REPORTS_MAX]
        told[node] = progress.clock, times + 1
        if news:
            reports = [report for other in news for report in told_of(progress, other, known)]
            actions.append(Send(node, Gossip(tuple(reports))))
    return replace(talk, told=told, passed_on=progress.news), actions


def told_of(progress: Progress, node: int, known: int = 0) -> list[Report]:
    """Return what is told of a node to one that was told what had come by the time `known`: the newest report, after
    the whole one that it builds on if that is news."""
    whole, short = progress.whole[node], progress.short[node]
    if progress.begun[node] <= known:
        return [short]
    return [whole] if short.counter == whole.counter else [whole, short]


def answered(progress: Progress, sender: int, told: Gossip) -> list[Action]:
    """Answer what a node has told, after that was heard: ask for the whole reports that are missing, and send those
    that it asks for."""
    asked = lacking(progress, told.reports)
    actions: list[Action] = [Send(sender, Gossip((), tuple(asked)))] if asked else []
    reports = [report for node in told.lacks if node in progress.latest for report in told_of(progress, node)]
    return [*actions, Send(sender, Gossip(tuple(reports)))] if reports else actions
