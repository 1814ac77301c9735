"""A replay in this process, without Spark: the same plan and the same worker code (`wukongs run --local`)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wukongs.adapters.bad_records import BadRows, OnBadRows, PartitionCounts
from wukongs.adapters.epochs import P, Planner
from wukongs.adapters.planner import EpochPlanner
from wukongs.adapters.push import EXAMPLES_MAX, PushStats, push_item
from wukongs.adapters.run_config import PipelineConfig, StreamConfig
from wukongs.adapters.scratch import ScratchFolder
from wukongs.adapters.source import PreparedSource, SetAside
from wukongs.errors import DataError, SettingsError
from wukongs.wire.direct_link import DirectLink
from wukongs.wire.link import IngestLink
from wukongs.wire.messages import NO_CLOSE

log = logging.getLogger("wukongs")
WAIT_S = 60.0
"""So long a replay looks for nothing but its end when there is nothing to send."""
OnProgress = Callable[["PipelineReport"], None]


@dataclass(slots=True)
class PipelineReport:
    """The counts of a pipeline, in total, per stream and per source partition (stream, partition). finished: whether
    all sources are at their end."""

    rows: int = 0
    triples: int = 0
    timing_triples: int = 0
    malformed: int = 0
    backwards: int = 0
    pieces: int = 0
    sent_bytes: int = 0
    epochs: int = 0
    seconds: float = 0.0
    complete_ms: int | None = None
    finished: bool = False
    triples_by_stream: dict[str, int] = field(default_factory=dict)
    examples: list[SetAside] = field(default_factory=list)
    partitions: dict[tuple[str, str], PartitionCounts] = field(default_factory=dict)

    def add(self, stats: PushStats) -> None:
        """Count one pushed item."""
        for name in ("rows", "triples", "timing_triples", "malformed", "backwards", "pieces", "sent_bytes"):
            setattr(self, name, getattr(self, name) + getattr(stats, name))
        self.triples_by_stream[stats.stream] = self.triples_by_stream.get(stats.stream, 0) + stats.triples
        self.examples += stats.examples[: max(0, EXAMPLES_MAX - len(self.examples))]
        counts = self.partitions.setdefault((stats.stream, stats.partition), PartitionCounts())
        counts.good += stats.good_rows
        counts.bad += stats.malformed + stats.backwards
        counts.is_finished |= stats.finished
        counts.waiting = stats.waiting
        if self.complete_ms is None or stats.complete_ms > self.complete_ms:
            self.complete_ms = stats.complete_ms

    def had_good(self, part: BadRows) -> bool:
        """Whether the partition of bad rows has had good ones in the items that are counted."""
        counts = self.partitions.get((part.stream, part.partition))
        return counts is not None and counts.good > 0

    @property
    def waiting(self) -> int:
        """Rows of live sources that were there and not sent yet: how far the run lags behind."""
        return sum(counts.waiting for counts in self.partitions.values())

    @property
    def set_aside(self) -> int:
        """Rows that were not sent."""
        return self.malformed + self.backwards


def writer_epoch() -> int:
    """Return a fencing epoch that is newer than that of every writer before: wall-clock ms since 1970."""
    return time.time_ns() // 1_000_000


def opened_plan(
    streams: Sequence[StreamConfig],
    link: IngestLink | DirectLink,
    config: PipelineConfig,
    folder: Path,
    epoch: int,
    say: Callable[[str], None],
    stop: threading.Event,
    ahead_s: float = 0.0,
) -> Planner[Any]:
    """Open every source partition, here and at the nodes, and plan from where the nodes are. folder: for what is needed
    during this run only; say: shows a line to the user; stop: set when the run is to stop; ahead_s: how far beyond the
    clock of a replay epochs reach.

    Raises: DataError, SettingsError (a source); StreamError (an unknown stream, a newer writer); NodeUnavailable."""
    from wukongs.adapters.feeds.opening import open_feeds
    from wukongs.adapters.live_planner import LivePlanner
    from wukongs.adapters.sources import prepare

    if not any(stream.live_sources for stream in streams):
        return _plan_replay(prepare(streams, folder, say), link, config, epoch, ahead_s)
    feeds = open_feeds(streams, config, folder, say, stop)
    try:
        opened = [link.open(feed.stream, feed.source.partition, epoch) for feed in feeds]
        for feed, node in zip(feeds, opened, strict=True):
            rule = feed.waits.carry_rule
            if rule is not None and rule.batch_ms != node.batch_ms:
                raise SettingsError(
                    f"stream {feed.stream}: batch_ms = {rule.batch_ms}: expected {node.batch_ms}, as the stream was "
                    'declared, since late = "open"'
                )
        for feed, node in zip(feeds, opened, strict=True):
            is_new = node.last_close == NO_CLOSE and node.offsets in ((), (0,))
            if node.place is not None and node.closed_ms is not None and is_new:
                # Nodes may have closed the stream up to other times: later writers find this one.
                link.close_batches(feed.stream, feed.source.partition, epoch, 0, node.closed_ms)
        return LivePlanner(feeds, opened, epoch, config, say)
    except BaseException:
        for feed in feeds:
            feed.close()
        raise


def _plan_replay(
    prepared: Sequence[PreparedSource],
    link: IngestLink | DirectLink,
    config: PipelineConfig,
    epoch: int,
    ahead_s: float,
) -> EpochPlanner:
    opened = [link.open(one.stream, one.source.partition, epoch) for one in prepared]
    planner = EpochPlanner(prepared, opened, epoch, config, ahead_s)
    for setup, row, skipped in zip(planner.setups, planner.start.rows, planner.skipped, strict=True):
        if skipped:  # rows before start_ms: pass them, so that the pieces after them leave no gap
            link.close_batches(setup.stream, setup.source.partition, epoch, row, planner.start.horizon_ms)
    return planner


def replay(
    streams: Sequence[StreamConfig],
    link: IngestLink | DirectLink,
    config: PipelineConfig | None = None,
    *,
    epoch: int | None = None,
    stop: threading.Event | None = None,
    on_progress: OnProgress | None = None,
    on_bad: OnBadRows | None = None,
    say: Callable[[str], None] = log.info,
) -> PipelineReport:
    """Send all rows of the streams' sources, kept together by event time; returns at their end or once stop is set.

    on_progress is called with the report so far, on_bad with the rows that are set aside: what it raises ends the
    replay. say: shows a line to the user, such as that a source was lost.

    Raises: DataError, SettingsError (a source); StreamError, NodeUnavailable (a node)."""
    config = config or PipelineConfig()
    report, began = PipelineReport(), time.monotonic()
    stop = stop or threading.Event()
    with ScratchFolder("replay") as folder:
        run_epoch = writer_epoch() if epoch is None else epoch
        planner = opened_plan(streams, link, config, folder, run_epoch, say, stop)
        with closing(planner):
            position = planner.start
            while not position.finished and not stop.is_set():
                following = planner.follow(position, stop, WAIT_S)
                if following == position:
                    continue
                try:
                    _push_epoch(planner, position, following, link, report, on_bad)
                except DataError:
                    if stop.is_set():  # a source waited for what did not come: the next run goes on where the nodes are
                        break
                    raise
                position = following
                report.seconds, report.finished = time.monotonic() - began, position.finished
                if on_progress is not None:
                    on_progress(report)
    report.seconds = time.monotonic() - began
    return report


def _push_epoch(
    planner: Planner[P],
    start: P,
    end: P,
    link: IngestLink | DirectLink,
    report: PipelineReport,
    on_bad: OnBadRows | None,
) -> None:
    def take(part: BadRows) -> None:
        if on_bad is not None:
            on_bad(part, report.had_good(part))

    for item in planner.items(start, end):
        stats = push_item(item, link, take)
        planner.taken(stats)
        report.add(stats)
    report.epochs += 1
