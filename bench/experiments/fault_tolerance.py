"""fault-tolerance (section 6.8 of the Wukong+S paper): what logs and checkpoints cost, and how long recovery takes.

The mix of L1-L3 (mix.py) runs in an engine in memory (`off`), in one with a data folder (`on`: what is acknowledged was
synced to the disk), and in one whose log is written, but synced once a second (`synced later`). They take turns, each
in an engine of its own, with the same queries and tuples. `push` is the call that takes the tuples of a firing, which
with a folder ends once they are safe; `throughput`, `latency` and `execution` are those of the experiment throughput.
Query `logging`, metric `a stream batch`, is how much longer the push of the same tuples takes with the folder.

`log` is what a tuple adds to the log, of all that was logged while streams flowed, and `syncs` how often it was synced
for one firing. Query `recovery`: copies of the folder, made while the engine runs, so as a crash leaves it, are opened.
`restart` ends when the engine is there; `first answer` with an answer from its stored graph. Checked: it has the
triples and the queries that it had.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import wukongs
from wukongs.bench.experiments.feed import Feed
from wukongs.bench.experiments.mix import QUICK_TICKS, SELECTIVE, TICKS, Found, firings_of, run_mix
from wukongs.bench.experiments.session import REFERENCE, Session, in_turn
from wukongs.bench.peers import WUKONGS
from wukongs.bench.record import say
from wukongs.errors import WukongsError

EXPERIMENT = "fault-tolerance"
WAYS: Mapping[str, Mapping[str, int]] = {"off": {}, "on": {}, "synced later": {"sync_interval_ms": 1000}}
LOGGING, RECOVERY = "logging", "recovery"
QUERIES = (*WAYS, LOGGING, RECOVERY)
REGISTERED, QUICK_REGISTERED = 1000, 40
COUNT = "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"


def run(session: Session, feed: Feed) -> None:
    """Measure all of it, if some is not done: one needs the others."""
    count = QUICK_REGISTERED if session.is_quick else REGISTERED
    here = session.with_case(registered=count)
    wanted = [query for query in QUERIES if session.wants(query)]
    if not any(here.open(EXPERIMENT, query, (WUKONGS,), here.case) for query in wanted):
        return
    firings = first_ms, last_ms = firings_of(session, feed, QUICK_TICKS if session.is_quick else TICKS)
    if last_ms <= first_ms:
        for query in wanted:
            why = feed.too_short or f"the streams are too short: {feed.last_ms} ms"
            session.record.skipped(EXPERIMENT, query, WUKONGS, here.case, why)
        return
    here.begin(f"{EXPERIMENT}: {count:,} registered queries; {', '.join(WAYS)} in turn")
    found: dict[str, list[Found]] = {way: [] for way in WAYS}
    logged: list[dict[str, float]] = []
    recovered = _Recovered()
    with TemporaryDirectory(prefix="wukongs-bench-") as name:
        for repetition in range(session.repeat):
            for way in in_turn(tuple(WAYS), repetition):
                folder = None if way == "off" else Path(name) / f"{way} {repetition}"

                def at_end(engine: wukongs.Engine, way: str = way, folder: Path | None = folder) -> None:
                    if folder is not None and way == "on":
                        logged.append(engine.stats()["durability"])
                        recovered.open_copy(engine, folder, Path(name) / "copy")

                say(f"  {way}, repetition {repetition + 1} of {session.repeat}")
                found[way].append(run_mix(here, feed, SELECTIVE, count, firings, folder, at_end, **WAYS[way]))
                if folder is not None:
                    shutil.rmtree(folder)
    _write_down(here, feed, wanted, found, logged, recovered, last_ms)


class _Recovered:
    """Seconds of opening copies of a folder. why: the first one that has not what it had."""

    def __init__(self) -> None:
        self.restart_s: list[float] = []
        self.first_answer_s: list[float] = []
        self.why = ""

    def open_copy(self, engine: wukongs.Engine, folder: Path, copy: Path) -> None:
        expected = engine.query(COUNT).texts(), len(engine.queries())
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("lock"))
        began = time.perf_counter()
        try:
            with wukongs.Engine(copy) as again:
                self.restart_s.append(time.perf_counter() - began)
                answer = again.query(COUNT).texts()
                self.first_answer_s.append(time.perf_counter() - began)
                if (got := (answer, len(again.queries()))) != expected:
                    self.why = self.why or f"answers otherwise: {expected} expected (triples, queries), {got} found"
        except WukongsError as error:
            self.why = self.why or f"failed: {error}"
        shutil.rmtree(copy)


def _write_down(
    session: Session,
    feed: Feed,
    wanted: list[str],
    found: Mapping[str, list[Found]],
    logged: list[dict[str, float]],
    recovered: _Recovered,
    last_ms: int,
) -> None:
    about: dict[str, Any] = {"checked": REFERENCE, "busy": session.busy()}
    wrong = next((one.why for runs in found.values() for one in runs if one.why), "")

    def write(query: str, metric: str, values: list[float], unit: str = "ms") -> None:
        session.record.measured(EXPERIMENT, query, WUKONGS, session.case, metric, values, unit=unit, **about)

    for query in wanted:
        why = wrong or (recovered.why if query == RECOVERY else "")
        if why:
            session.record.skipped(EXPERIMENT, query, WUKONGS, session.case, why)
        elif query in WAYS:
            runs = found[query]
            write(query, "latency", [one for each in runs for one in each.all_latency_ms])
            write(query, "execution", [one for each in runs for one in each.all_execution_ms])
            write(query, "push", [one for each in runs for one in each.push_ms])
            write(query, "throughput", [one for each in runs for one in each.throughput], "queries/s")
        elif query == LOGGING:
            pairs = zip(found["on"], found["off"], strict=True)
            more = [a - b for on, off in pairs for a, b in zip(on.push_ms, off.push_ms, strict=True)]
            tuples = sum(part.num_rows for _, parts in feed.pushes(0, last_ms) for part in parts.values())
            firings = last_ms // feed.step_ms
            write(query, "a stream batch", more)
            for metric, name, count in (("log", "log_bytes_written", tuples), ("syncs", "log_syncs", firings)):
                grown = [after[name] - run.before[name] for after, run in zip(logged, found["on"], strict=True)]
                write(query, metric, [one / count for one in grown], "bytes" if metric == "log" else "syncs")
        else:
            about["checked"] = "the engine that was copied"
            write(query, "restart", [one * 1e3 for one in recovered.restart_s])
            write(query, "first answer", [one * 1e3 for one in recovered.first_answer_s])
