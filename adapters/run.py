"""`wukongs run`: an engine in this process, its streams fed through local Spark, as one TOML file says."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

from adapters.display import Display, Progress, choose_display
from adapters.replay import PipelineReport
from wukongs.engine import Engine
from wukongs.run_config import RunConfig, load_run_config

log = logging.getLogger("wukongs")
SWITCH_INTERVAL_S = 50e-6
"""How long a thread may keep the interpreter while others wait: at the default of 5 ms a firing waits for decoding."""


def run(config_path: Path, plain: bool = False, rows_shown: int = 0) -> int:
    """Run a configuration from its file; return the exit status.

    Raises SettingsError, DataError, StreamError, QuerySyntaxError, NodeUnavailable, each naming what and where.
    """
    config = load_run_config(config_path)
    return run_config(config, choose_display(plain, each_window=True, rows_shown=rows_shown))


def run_config(config: RunConfig, display: Display) -> int:
    """Load the stored data, ask, stream, ask again, and sum up; return the exit status (130 after Ctrl-C)."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with Engine(settings=config.settings) as engine:
        _load(engine, config, display)
        for stream in config.streams:
            engine.stream(
                stream.iri,
                timing=stream.timing,
                batch_ms=stream.batch_ms,
                into=stream.into,
                history_ms=stream.history_ms,
            )
        queries = [engine.register(query.text, on_result=display.window) for query in config.queries]
        _ask(engine, config, display, "before")
        progress = Progress(engine, queries, PipelineReport(), time.monotonic())
        status = _stream(engine, config, display, progress) if config.streams else 0
        _ask(engine, config, display, "after")
        display.summary(progress, summary_lines(progress))
    return status


def summary_lines(progress: Progress) -> list[str]:
    """Say in a few lines what a run did, and what it set aside."""
    report = progress.report
    lines = [progress.state_line()]
    if report.seconds:
        lines.append(
            f"{report.triples:,} tuples ({report.timing_triples:,} timing) in {report.seconds:.1f} s, "
            f"{report.pieces:,} pieces, {report.epochs:,} epochs"
        )
    if report.set_aside:
        lines.append(
            f"{report.set_aside:,} rows set aside ({report.malformed:,} malformed, {report.backwards:,} late):"
        )
        lines += [f"  {one}" for one in report.examples]
    return lines


def _load(engine: Engine, config: RunConfig, display: Display) -> None:
    for stored in config.stored:
        began_s = time.monotonic()
        before = engine.stats()["stored_triples"]
        engine.load(stored.file, graph=stored.graph, format=stored.format)
        count = engine.stats()["stored_triples"] - before
        display.phase(f"loaded {stored.file}: {count:,} new triples in {time.monotonic() - began_s:.1f} s")


def _ask(engine: Engine, config: RunConfig, display: Display, when: str) -> None:
    for ask in config.asks:
        display.asked(when, ask.name, engine.query(ask.text))


def _stream(engine: Engine, config: RunConfig, display: Display, progress: Progress) -> int:
    from adapters.spark.pipeline import run_pipeline

    address = engine.listen()
    display.phase("starting local Spark ...")
    began = False

    def on_progress(report: PipelineReport) -> None:
        nonlocal began
        if not began:
            began = True
            progress.began_s = time.monotonic()
            display.phase("streaming")
        progress.report = report
        display.update()

    display.start(progress)
    try:
        progress.report = run_pipeline(config.streams, [address], config.pipeline, on_progress=on_progress)
        engine.settle()
        return 0
    except KeyboardInterrupt:
        display.phase("interrupted: summing up")
        return 130
    finally:
        display.stop()
