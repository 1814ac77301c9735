"""`wukongs run`: an engine in this process or a running node and its streams, as one TOML file says.

The streams are fed through local Spark, or read and sent by a thread of this process.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias

from wukongs.adapters.bad_records import SHOWN_MAX, BadRecords
from wukongs.adapters.display import Display, RunProgress, choose_display
from wukongs.adapters.milestones import passed
from wukongs.adapters.replay import PipelineReport, replay
from wukongs.adapters.run_config import QueryConfig, RunConfig, StreamConfig, load_run_config, notes_of
from wukongs.errors import AccessError, DataError, NodeUnavailable, SettingsError, StreamError
from wukongs.settings import take_turns_quickly

if TYPE_CHECKING:
    from wukongs.adapters.spark.session import StartingSession
    from wukongs.engine import Engine
    from wukongs.live.backend import RegisteredQuery
    from wukongs.remote.client import RemoteEngine
    from wukongs.remote.query import RemoteQuery

log = logging.getLogger("wukongs")
DRAWN_EVERY_S = 0.1
SETTLE_S = 5.0
"""So long an interrupted run waits for the engine to have done with what was sent."""
DONE, INTERRUPTED, TERMINATED = 0, 130, 143


Beside: TypeAlias = Callable[["Engine", Callable[[str], None]], AbstractContextManager[Callable[[], None]]]
"""Serves an engine while a run lasts, and says where. It gives a function that returns when nobody looks any more."""


def run(
    config_path: Path,
    plain: bool = False,
    rows_shown: int | None = None,
    connect: Callable[[], Engine | RemoteEngine] | None = None,
    is_local: bool = False,
    checkpoint: str | None = None,
    beside: Beside | None = None,
) -> int:
    """Run a configuration from its file; return the exit status. connect: to the node to use instead of an engine;
    is_local: without Spark, whatever the file says; checkpoint: the folder of Spark's offsets, to be kept; beside:
    serves the engine meanwhile.

    Raises SettingsError, DataError, StreamError, QuerySyntaxError, AccessError, NodeUnavailable, each naming what and
    where.
    """
    config = load_run_config(config_path)
    if not config.streams and not config.asks:
        raise SettingsError(f"{config.file}: expected at least one [[stream]] or [[ask]], found neither")
    if is_local:
        config = replace(config, pipeline=replace(config.pipeline, engine="local"))
    if connect is not None and not config.pipeline.spool:  # what the node keeps outlasts this run
        config = replace(config, pipeline=replace(config.pipeline, spool=str(config_path.with_suffix(".spool"))))
    if checkpoint is not None and config.pipeline.engine == "local":
        raise SettingsError("a checkpoint is kept by Spark: without it the nodes alone say where a run goes on")
    display = choose_display(plain, each_window=True, rows_shown=rows_shown)
    return run_config(config, display, connect, checkpoint, beside)


def run_config(
    config: RunConfig,
    display: Display,
    connect: Callable[[], Engine | RemoteEngine] | None = None,
    checkpoint: str | None = None,
    beside: Beside | None = None,
) -> int:
    """Load the stored data, ask, stream, ask again, and sum up; return the exit status. beside: is told the engine of a
    run without `connect` once its queries are registered, and what it gives is called when all is done.

    Ctrl-C (130) and SIGTERM (143) end the run after the epoch that is being sent, with the summary of what was done.

    Raises DataError after all this if more records of a file are bad than may be.

    Streams and queries are made known before the data is loaded, which may take long: so a mistake in them is said at
    once. At a running node the streams and the stored data stay; the queries end with the run, since nobody reads them
    then.
    """
    with _Termination() as termination:
        try:
            status = _run(config, display, connect, checkpoint, beside)
        except (KeyboardInterrupt, SystemError):  # numba makes a SystemError of what comes while it boxes a value
            if not termination.has_come:
                raise
            status = INTERRUPTED
        return TERMINATED if status == INTERRUPTED and termination.has_come else status


class _Termination:
    """Makes SIGTERM end this process as Ctrl-C does, as long as it is entered, and remembers that it came."""

    def __init__(self) -> None:
        self.has_come = False

    def __enter__(self) -> _Termination:
        self._is_heard = threading.current_thread() is threading.main_thread()
        if self._is_heard:
            self._before = signal.signal(signal.SIGTERM, self._come)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._is_heard:
            signal.signal(signal.SIGTERM, self._before)

    def _come(self, number: int, frame: FrameType | None) -> None:
        self.has_come = True
        raise KeyboardInterrupt


def _run(
    config: RunConfig,
    display: Display,
    connect: Callable[[], Engine | RemoteEngine] | None,
    checkpoint: str | None,
    beside: Beside | None,
) -> int:
    passed("imports")
    take_turns_quickly()
    starting = None
    if config.streams and config.pipeline.engine == "spark":  # it takes seconds: it starts while the engine is filled
        starting = _start_spark(config)
    with ExitStack() as stack:
        if starting is not None:
            stack.callback(starting.close)
        from wukongs.engine import Engine

        engine: Engine | RemoteEngine
        engine = Engine(settings=config.settings) if connect is None else connect()
        stack.enter_context(engine)
        if "stored_triples" not in engine.stats():
            raise AccessError(
                f"{config.file}: a run counts the whole stored graph, and its streams may change any of it; this token "
                "or key is for some graphs: ask for one without a list of graphs"
            )
        for note in notes_of(config.streams):
            display.note(note)
        queries = _declare(engine, config, display, stack)
        stay: Callable[[], None] | None = None
        if beside is not None and isinstance(engine, Engine):
            stay = stack.enter_context(beside(engine, display.phase))
        passed("streams and queries declared")
        _load(engine, config, display)
        progress = RunProgress(engine, queries)
        bad = BadRecords(config.pipeline.dead_letters, config.pipeline.bad_records_max, display.note)
        stack.callback(bad.close)
        _ask(engine, config, display, "before")
        passed("stored data loaded")
        feed = _Feed(config, bad, starting, checkpoint)
        status = _stream(engine, feed, display, progress) if config.streams else DONE
        if status == INTERRUPTED:
            display.phase("interrupted: what was done until then" if progress.report.triples else "interrupted")
        if progress.report.triples:
            _ask(engine, config, display, "after")
        if progress.report.triples or status == DONE:
            display.summary(progress, summary_lines(progress, config.pipeline.dead_letters))
        too_many = bad.past_rate(progress.report.partitions)
        if status == DONE and too_many is not None:
            raise too_many
        if status == DONE and stay is not None:
            stay()
    passed("end")
    return status


def _start_spark(config: RunConfig) -> StartingSession | None:
    """Begin to start Spark. Raises: SettingsError (no Java for it), which names the way without."""
    from wukongs.adapters.spark.session import start_early

    try:
        return start_early(config.pipeline.parallelism)
    except SettingsError as error:
        raise SettingsError(
            f'{error}. Without Java: `wukongs run --local`, or engine = "local" under [pipeline] in {config.file}'
        ) from None


def _declare(
    engine: Engine | RemoteEngine, config: RunConfig, display: Display, stack: ExitStack
) -> list[RegisteredQuery | RemoteQuery]:
    """Declare the streams and register the queries; an error of the engine is said with its place in the file."""
    for stream in config.streams:
        if stream.is_known:
            continue
        try:
            _declare_stream(engine, stream)
        except (DataError, SettingsError, StreamError) as error:
            raise SettingsError(f"{config.file}, [[stream]] {stream.iri}: {error}") from None
    queries: list[RegisteredQuery | RemoteQuery] = []
    for query in config.queries:
        try:
            registered = _registered(engine, query, display)
            stack.callback(registered.close)
            queries.append(registered)
        except StreamError as error:
            text = str(error)
            place = text.startswith("query, line ")  # of the text, which the engine knows by no other name
            where = text.removeprefix("query") if place else f", [[query]] {query.name}: {text}"
            raise StreamError(query.source + where) from None
    return queries


def _declare_stream(engine: Engine | RemoteEngine, stream: StreamConfig) -> None:
    """Declare a stream. With idle_advance its source follows the wall clock, and the engine's stream is no idle one:
    its time would run while data is loaded and Spark starts. One that the node has with the same options is used, too.

    Raises DataError, SettingsError, StreamError."""
    declare = partial(
        engine.stream,
        stream.iri,
        timing=stream.timing,
        batch_ms=stream.batch_ms,
        into=stream.into,
        history_ms=stream.history_ms,
        slice_bytes_max=stream.slice_bytes_max,
        index=stream.index,
        late=stream.late,
        retractions=stream.retractions,
    )
    if stream.idle_advance is None:
        declare(idle_timeout_ms=stream.idle_timeout_ms)
        return
    try:
        declare()
    except StreamError:
        declare(idle_timeout_ms=stream.idle_timeout_ms, idle_advance=stream.idle_advance)


def _registered(engine: Engine | RemoteEngine, query: QueryConfig, display: Display) -> RegisteredQuery | RemoteQuery:
    """Register a query, or go on with the windows of one that a run before has registered, which may be there still."""
    registered = engine.register(query.text, on_result=display.window, output=query.output)
    if (readers := getattr(registered, "readers", 1)) > 1:
        display.phase(
            f"query {registered.name}: {readers} clients have registered it, and each gets every window; one that "
            "crashed counts for a minute"
        )
    return registered


def summary_lines(progress: RunProgress, dead_letters: str = "") -> list[str]:
    """Say in a few lines what a run did, how the stored graph has grown by it, and what it set aside, and where."""
    report = progress.report
    lines = []
    if report.seconds:
        lines.append(
            f"{report.triples:,} tuples in {report.seconds:.1f} s ({progress.mean_rate()} on average); "
            f"{report.timing_triples:,} are timing: in windows only"
        )
    lines.append(f"stored triples: {progress.stored_before:,} before, {progress.stored():,} after")
    if report.set_aside:
        counts = f"{report.malformed:,} malformed, {report.backwards:,} late"
        where = f", written to {dead_letters}" if dead_letters else ""
        lines.append(f"{report.set_aside:,} rows set aside ({counts}){where}, such as:")
        lines += [f"  {one}" for one in (report.examples[:SHOWN_MAX] if dead_letters else report.examples)]
    return lines


def _load(engine: Engine | RemoteEngine, config: RunConfig, display: Display) -> None:
    for stored in config.stored:
        began_s = time.monotonic()
        before = engine.stats()["stored_triples"]
        contexts = dict(config.settings.contexts)
        engine.load(stored.file, graph=stored.graph, format=stored.format, contexts=contexts)
        count = engine.stats()["stored_triples"] - before
        name = Path(stored.file).name
        display.phase(f"loaded {name}: {count:,} new triples in {time.monotonic() - began_s:.1f} s")


def _ask(engine: Engine | RemoteEngine, config: RunConfig, display: Display, when: str) -> None:
    for ask in config.asks:
        display.asked(when, ask.name, engine.query(ask.text))


@dataclass(frozen=True, slots=True)
class _Feed:
    """The streams of a run, and what feeding them needs. starting: Spark, unless it is not used."""

    config: RunConfig
    bad: BadRecords
    starting: StartingSession | None
    checkpoint: str | None


def _stream(engine: Engine | RemoteEngine, feed: _Feed, display: Display, progress: RunProgress) -> int:
    """Run the pipeline to its end; return the exit status.

    It has a thread of its own: Ctrl-C in the middle of a call into the JVM would leave it half started, and noisy; in
    the middle of an epoch it would leave that half sent.
    """
    pipeline = _Pipeline(engine, feed, display, progress)
    is_local = feed.config.pipeline.engine == "local"
    display.phase("reading the sources ..." if is_local else "starting local Spark ...")
    display.start(progress)
    try:
        pipeline.start()
        while not pipeline.ended.wait(DRAWN_EVERY_S):
            display.update()
        if pipeline.error is not None:
            raise pipeline.error
        engine.settle()
        return DONE
    except KeyboardInterrupt:
        stopping = "stopping" if is_local else "stopping Spark, which may take some seconds"
        display.phase(f"interrupted: {stopping} ...")
        pipeline.end()
        with suppress(NodeUnavailable, StreamError):  # a firing takes longer: what is shown is then a little older
            engine.settle(SETTLE_S)
        return INTERRUPTED
    except BrokenPipeError:
        pipeline.end()
        raise
    finally:
        display.stop()


class _Pipeline(threading.Thread):
    """Sends all streams of a run, through local Spark or from here, until their end or until stop is set."""

    def __init__(self, engine: Engine | RemoteEngine, feed: _Feed, display: Display, progress: RunProgress) -> None:
        super().__init__(name="wukongs-pipeline", daemon=True)
        self.stop = threading.Event()
        self.ended = threading.Event()  # Thread.join is not to be trusted: interrupted once, it takes us for ended
        self.error: BaseException | None = None
        self._engine = engine
        self._feed, self._display, self._progress = feed, display, progress

    def end(self) -> None:
        """Stop, and wait until the epoch is sent, and Spark has gone."""
        self.stop.set()
        self.ended.wait()

    def run(self) -> None:
        try:
            self._progress.end(self._fed())
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()

    def _fed(self) -> PipelineReport:
        feed, config = self._feed, self._feed.config
        if config.pipeline.engine == "local":
            with self._engine.link() as link:
                return replay(
                    config.streams,
                    link,
                    config.pipeline,
                    stop=self.stop,
                    on_progress=self._on_progress,
                    on_bad=feed.bad.take,
                    say=self._display.note,
                )
        from wukongs.adapters.spark.pipeline import run_pipeline
        from wukongs.remote.client import RemoteEngine

        node = self._engine if isinstance(self._engine, RemoteEngine) else None
        return run_pipeline(
            config.streams,
            self._engine.listen().split(","),
            config.pipeline,
            starting=feed.starting,
            checkpoint=feed.checkpoint,
            token=None if node is None else node._token,
            keys=None if node is None else node._keys,
            stop=self.stop,
            on_progress=self._on_progress,
            on_bad=feed.bad.take,
            say=self._display.note,
        )

    def _on_progress(self, report: PipelineReport) -> None:
        if self._progress.note(report):
            self._display.phase("streaming")
