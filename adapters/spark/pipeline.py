"""The pipeline: streams of a run configuration -> nodes, driven by one Spark streaming query."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wukongs.adapters.push import PushStats
from wukongs.adapters.replay import OnProgress, PipelineReport, plan_replay, writer_epoch
from wukongs.adapters.run_config import PipelineConfig, StreamConfig
from wukongs.errors import StreamError, WukongsError
from wukongs.wire.link import IngestLink, error_of
from wukongs.wire.messages import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from wukongs.adapters.spark.data_source import PipelinePlan

_POLL_S = 0.02


def run_pipeline(
    streams: Sequence[StreamConfig],
    addresses: Sequence[str],
    config: PipelineConfig | None = None,
    *,
    session: SparkSession | None = None,
    checkpoint: str | None = None,
    epoch: int | None = None,
    timeout_s: float = 60.0,
    stop: threading.Event | None = None,
    on_progress: OnProgress | None = None,
) -> PipelineReport:
    """Send all rows of the streams' sources to the nodes; returns at their end, or soon after stop is set.

    session: a Spark session to use (start_session); without it and without an active one, one is started and stopped
    here. checkpoint: the folder of Spark's offsets, a temporary one by default; where to begin is decided by the nodes.
    timeout_s: how long a node may be silent. on_progress is called with the report so far, from this thread.

    Raises: SettingsError (no Java, a mapping); DataError (a source); StreamError (a stream that a node does not know);
    NodeUnavailable; whatever error a node answered to a task."""
    from wukongs.adapters.sources import prepare
    from wukongs.adapters.spark.session import active_session, start_session, stop_session

    config = config or PipelineConfig()
    stop = stop or threading.Event()
    with tempfile.TemporaryDirectory(prefix="wukongs-pipeline-") as name:
        folder = Path(name)
        (folder / "plain").mkdir()
        (folder / "plan").mkdir()
        prepared = prepare(streams, folder / "plain")
        with IngestLink(addresses, timeout_s=timeout_s) as link:
            planner = plan_replay(prepared, link, config, writer_epoch() if epoch is None else epoch)
        found = session or active_session()
        spark = found or start_session(config.parallelism)
        try:
            if stop.is_set():  # meanwhile: starting Spark takes seconds
                return PipelineReport()
            from wukongs.adapters.spark.data_source import PipelinePlan, save_index

            for number, one in enumerate(prepared):
                save_index(folder / "plan", number, one.index)
            plan = PipelinePlan(
                folder=str(folder / "plan"),
                addresses=tuple(addresses),
                streams=tuple(one.stream for one in prepared),
                sources=tuple(one.source for one in prepared),
                opened=planner.opened,
                epoch=planner.epoch,
                config=config,
                timeout_s=timeout_s,
            )
            return _run(spark, plan, checkpoint or str(folder / "checkpoint"), stop, on_progress)
        finally:
            if found is None:
                stop_session(spark)


def _run(
    spark: SparkSession, plan: PipelinePlan, checkpoint: str, stop: threading.Event, on_progress: OnProgress | None
) -> PipelineReport:
    from wukongs.adapters.spark.data_source import NAME, data_source_for

    spark.dataSource.register(data_source_for(plan))
    writer = spark.readStream.format(NAME).load().writeStream.format("noop").option("checkpointLocation", checkpoint)
    watch = _Watch(Path(plan.folder), len(plan.sources))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        while not watch.report.finished and not stop.is_set():
            if watch.collect() and on_progress is not None:
                on_progress(watch.report)
            if not watch.report.finished and not query.isActive:
                watch.collect()
                raise watch.error() or _failure(query)
            stop.wait(_POLL_S)
        if watch.report.finished:
            _settle(query)
    finally:
        query.stop()
    watch.collect()
    watch.report.seconds = time.monotonic() - watch.began_s
    if on_progress is not None:
        on_progress(watch.report)
    return watch.report


def _settle(query: StreamingQuery) -> None:
    """Let Spark note the last epoch in its checkpoint; all is acknowledged by now, so a failure changes nothing."""
    deadline = time.monotonic() + 5
    while query.isActive and time.monotonic() < deadline:
        progress: Any = query.lastProgress
        sources = json.loads(progress.json)["sources"] if progress else []
        if any((source["endOffset"] or {}).get("finished") for source in sources):
            return
        time.sleep(_POLL_S)


def _failure(query: StreamingQuery) -> WukongsError:
    cause = query.exception()
    text = str(cause) if cause else "Spark stopped the query without saying why"
    lines = [line for line in text.splitlines() if line.strip()]
    return StreamError(f"the pipeline failed: {' | '.join(lines[:1] + lines[-3:])[:1500]}. Start it again: it resumes")


class _Watch:
    """Collects the reports that tasks leave in the plan's folder. A repeated task is counted once."""

    def __init__(self, folder: Path, partition_count: int) -> None:
        self.began_s = time.monotonic()
        self.report = PipelineReport()
        self._folder, self._partition_count = folder, partition_count
        self._counted: dict[tuple[str, str], tuple[int, int]] = {}
        self._finished: set[tuple[str, str]] = set()
        self._horizons: set[int] = set()
        self._error: WukongsError | None = None
        if partition_count == 0:
            self.report.finished = True

    def collect(self) -> bool:
        """Take what is there; tell whether there was anything."""
        names = sorted(path.name for path in self._folder.iterdir() if path.name.startswith(("done-", "error-")))
        for name in names:
            path = self._folder / name
            content = json.loads(path.read_text("utf-8"))
            path.unlink()
            if name.startswith("error-"):
                self._error = error_of(Refused(content["error"], content["message"]))
            else:
                self._count(PushStats.from_json(content))
        self.report.seconds = time.monotonic() - self.began_s
        return bool(names)

    def error(self) -> WukongsError | None:
        """The named error that a task has left, if any."""
        return self._error

    def _count(self, stats: PushStats) -> None:
        key, place = (stats.stream, stats.partition), (stats.complete_ms, stats.end_offset)
        if self._counted.get(key, (stats.complete_ms - 1, 0)) < place or (stats.finished and key not in self._finished):
            self.report.add(stats)
            self._counted[key] = place
        if stats.finished:
            self._finished.add(key)
        self._horizons.add(stats.complete_ms)
        self.report.epochs = len(self._horizons)
        self.report.finished = len(self._finished) == self._partition_count
