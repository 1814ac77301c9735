"""The pipeline: streams of a run configuration -> nodes, driven by one Spark streaming query."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wukongs.adapters.bad_records import BadRows, OnBadRows
from wukongs.adapters.push import PartitionSetup, PushStats
from wukongs.adapters.replay import OnProgress, PipelineReport, log, opened_plan, writer_epoch
from wukongs.adapters.run_config import PipelineConfig, StreamConfig
from wukongs.adapters.scratch import ScratchFolder
from wukongs.errors import SettingsError, StreamError, WukongsError
from wukongs.wire.link import IngestLink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from wukongs.adapters.spark.data_source import PipelinePlan
    from wukongs.adapters.spark.driver import PipelineDriver, Tally
    from wukongs.adapters.spark.session import StartingSession
    from wukongs.wire.trust import Keys

AHEAD_S = 1.0
"""With a speed, epochs reach so far beyond the replay's clock, and their tasks wait for it: what Spark does between two
epochs, which takes 100 ms and more, delays few stream batches."""
LOOK_S = 0.1
"""How often is looked whether the pipeline is to stop, and whether Spark still runs the query."""
TASKS_S = 5.0
"""A pipeline that stops waits at most this time for reports of the tasks under way."""

MARK = "wukongs-sources.json"
"""The file in a checkpoint's folder that says which source partitions it is of."""


def run_pipeline(
    streams: Sequence[StreamConfig],
    addresses: Sequence[str],
    config: PipelineConfig | None = None,
    *,
    session: SparkSession | None = None,
    starting: StartingSession | None = None,
    checkpoint: str | None = None,
    epoch: int | None = None,
    timeout_s: float = 60.0,
    token: str | None = None,
    keys: Keys | None = None,
    stop: threading.Event | None = None,
    on_progress: OnProgress | None = None,
    on_bad: OnBadRows | None = None,
    say: Callable[[str], None] = log.info,
) -> PipelineReport:
    """Send all rows of the streams' sources to the nodes; returns at their end, or soon after stop is set.

    session: a Spark session to use (start_session); without it and without an active one, one is started and stopped
    here. starting: a session that is being started for this pipeline, and is stopped by it. checkpoint: the folder of
    Spark's offsets, kept for these sources, a temporary one by default; the nodes decide where to begin. timeout_s: how
    long a node may be silent. token, keys: what the nodes ask for. on_progress is called with the report so far, from
    this thread, on_bad with the rows that are set aside: what it raises ends the pipeline. say: shows a line to the
    user, such as that a source was lost.

    Raises: SettingsError (no Java, a mapping, a checkpoint of other sources); DataError (a source); StreamError (a
    stream that a node does not know); NodeUnavailable; whatever error a node answered to a task."""
    from wukongs.adapters.spark.session import StartingSession, active_session

    config = config or PipelineConfig()
    stop = stop or threading.Event()
    with ScratchFolder("pipeline") as folder:
        if not streams:
            return PipelineReport(finished=True)
        (folder / "plain").mkdir()
        with IngestLink(addresses, timeout_s=timeout_s, token=token, keys=keys) as link:
            run_epoch = writer_epoch() if epoch is None else epoch
            planner = opened_plan(streams, link, config, folder / "plain", run_epoch, say, stop, AHEAD_S)
        found = session or (active_session() if starting is None else None)
        if found is None:
            starting = starting or StartingSession(config.parallelism)
        try:
            if checkpoint is not None:
                claim_checkpoint(Path(checkpoint), planner.setups)
            spark = found or _session_of(starting, stop)
            if spark is None:
                return PipelineReport()
            from wukongs.adapters.spark.data_source import PipelinePlan
            from wukongs.adapters.spark.driver import PipelineDriver

            settings = spark.sparkContext.getConf()
            host = settings.get("spark.driver.host", "127.0.0.1")
            driver = PipelineDriver(planner, config, host, settings.get("spark.driver.bindAddress", host))
            try:
                plan = PipelinePlan(
                    driver=driver.address,
                    addresses=tuple(addresses),
                    place=planner.opened[0].place,
                    setups=pickle.dumps(planner.setups),
                    timeout_s=timeout_s,
                    speed=config.speed,
                    token=token,
                    keys=keys,
                )
                offsets = str((folder if checkpoint is None else Path(checkpoint).absolute()) / "spark")
                return _run(spark, driver, plan, len(planner.setups), offsets, stop, on_progress, on_bad)
            finally:
                driver.close()
        except Exception as error:
            explained = error if starting is None else starting.explained(error)
            if explained is error:
                raise
            raise explained from None
        finally:
            planner.close()
            if found is None and starting is not None:
                starting.close()


def _session_of(starting: StartingSession | None, stop: threading.Event) -> SparkSession | None:
    """Wait for the session; None once stop is set."""
    assert starting is not None
    while not starting.is_up(LOOK_S):
        if stop.is_set():
            return None
    return None if stop.is_set() else starting.session()


def claim_checkpoint(folder: Path, setups: Sequence[PartitionSetup]) -> None:
    """Make a folder the checkpoint of these source partitions, or check that it is.

    Raises: SettingsError (the checkpoint of other sources, a folder with other files, a folder that cannot be made)."""
    mark, own = folder / MARK, [[one.stream, one.source.partition] for one in setups]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if mark.exists():
            found = json.loads(mark.read_text("utf-8"))
        elif any(folder.iterdir()):
            raise SettingsError(f"checkpoint {folder}: expected an empty folder or a checkpoint, found other files")
        else:
            fresh = mark.with_suffix(".new")
            fresh.write_text(json.dumps(own), "utf-8")
            fresh.replace(mark)
            return
    except (OSError, ValueError) as error:
        raise SettingsError(f"checkpoint {folder}: {error}. Give another folder, or delete this one") from None
    if found != own:
        raise SettingsError(
            f"checkpoint {folder}: it is of another run file, with the sources {found}; this one has {own}. "
            "Give each run file a folder of its own"
        )


def _run(
    spark: SparkSession,
    driver: PipelineDriver[Any],
    plan: PipelinePlan,
    partition_count: int,
    checkpoint: str,
    stop: threading.Event,
    on_progress: OnProgress | None,
    on_bad: OnBadRows | None,
) -> PipelineReport:
    from wukongs.adapters.spark.data_source import NAME, data_source_for
    from wukongs.adapters.spark.driver import Tally

    spark.dataSource.register(data_source_for(plan))
    writer = spark.readStream.format(NAME).load().writeStream.format("noop").option("checkpointLocation", checkpoint)
    tally = Tally(partition_count)
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        _follow(query, driver, tally, stop, on_progress, on_bad)
    finally:
        driver.release()
        deadline_s = time.monotonic() + TASKS_S
        while query.isActive and time.monotonic() < deadline_s and not driver.wait_for_tasks(LOOK_S):
            pass
        query.stop()
    for one in driver.news(0):
        if isinstance(one, PushStats):
            tally.count(one)
        elif isinstance(one, BadRows) and on_bad is not None:
            on_bad(one, tally.report.had_good(one))
    tally.stop_clock()
    if on_progress is not None:
        on_progress(tally.report)
    return tally.report


def _follow(
    query: StreamingQuery,
    driver: PipelineDriver[Any],
    tally: Tally,
    stop: threading.Event,
    on_progress: OnProgress | None,
    on_bad: OnBadRows | None,
) -> None:
    """Count reports until Spark has noted the last epoch, or stop is set. Raises: why the query has ended before."""
    error: WukongsError | None = None
    while not stop.is_set():
        has_ended = not query.isActive
        news = driver.news(0 if has_ended else LOOK_S)
        for one in news:
            if isinstance(one, PushStats):
                tally.count(one)
            elif isinstance(one, BadRows):
                if on_bad is not None:
                    on_bad(one, tally.report.had_good(one))
            elif isinstance(one, WukongsError):
                error = one
            else:
                return
        if news and on_progress is not None:
            on_progress(tally.report)
        if has_ended:
            if tally.report.finished:  # all is acknowledged, so it does not matter what Spark has not noted
                return
            raise error or _failure(query)


def _failure(query: StreamingQuery) -> WukongsError:
    cause = query.exception()
    text = str(cause) if cause else "Spark stopped the query without saying why"
    lines = [line for line in text.splitlines() if line.strip()]
    return StreamError(f"the pipeline failed: {' | '.join(lines[:1] + lines[-3:])[:1500]}. Start it again: it resumes")
