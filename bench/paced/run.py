"""Continuous queries from tuple to answer: LSBench's five streams at the paper's rates, by the clock.

The time from the last advance that a window waits for until its columns are ready comes first. Beside it stand
the time that firings take by themselves, how it grows with rates and with the windows, what streams cost one-shot
queries, and what a data folder costs. Answers of L1-L6 are compared with those that sets and dictionaries give.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory

from wukongs.bench.continuous.firing import SETTLE_TIMEOUT_S, Replay, Windows, check_windows, replaying, text_of
from wukongs.bench.continuous.probe import Probe
from wukongs.bench.continuous.workload import Workload, make_workload
from wukongs.bench.harness import Report, WrongAnswer, summary
from wukongs.bench.lsbench.data import IRI
from wukongs.bench.lsbench.queries import QUERIES
from wukongs.bench.scale.queries import one_shot_queries
from wukongs.bench.store.injection import BATCH_MS

STORED, FEW_STORED = 3_000_000, 300_000
IN_FOLDER = "data folder"
WAYS = ("in memory", IN_FOLDER)
BATCHES = 320
LATENCY = "L1-L6 in one engine: last advance to columns ready, microseconds"
EXECUTION = "L4-L6, each alone, at multiples of the paper's rates, microseconds"
RANGES = "One query alone, STEP 100 ms, a twentieth of the rates: a firing in microseconds"
ONE_SHOT = "S1-S6 while L1-L6 are fed, by turns with silence, microseconds"
FOLDER = "Stream batches as fast as they are taken, L1-L6 registered"
LARGE = ("L4", "L5", "L6")
RATES = (0.25, 1.0, 4.0)
RANGES_S, RANGE_DIVISOR = (1, 10, 60, 600), 20
CHECKED = 2
TURN_BATCHES, TURNS_TO_WARM_UP = 10, 2
GOALS_US = {"L1": 30, "L2": 15, "L3": 30, "L4": 100, "L5": 150, "L6": 200}
LATENCY_GOALS_US = (1000, 3000)
_PREFIXES = "PREFIX sioc: <http://rdfs.org/sioc/ns#> PREFIX sib: <http://www.ins.cwi.nl/sib/vocabulary/> "


def main(report: Path | None = None, quick: bool = False, stored_count: int | None = None) -> int:
    """Run the benchmark. stored_count: about so many stored triples; quick: tiny data.

    Returns the exit status: 1 for a wrong answer, after one line on standard error."""
    windows, warm_up, divisor = (4, 11, 50) if quick else (200, 30, 1)
    workload = make_workload(stored_count or (5_000 if quick else STORED), 60 if quick else BATCHES, divisor)
    results = Report("paced", workload.describe())
    try:
        for way in WAYS:
            bench_latency(results, workload, way, windows, warm_up)
        bench_execution(results, quick, windows, warm_up)
        bench_ranges(results, (1, 2) if quick else RANGES_S, quick, windows)
        bench_one_shot(results, workload, 2 if quick else 12, 0.3 if quick else 1.0)
        bench_folder(results, workload, 4 if quick else 30)
    except WrongAnswer as error:
        print(f"wukongs: bench paced: {error}", file=sys.stderr)
        return 1
    results.publish(report)
    if report is not None:
        plot(results, report / f"{results.name}.png")
    return 0


@contextmanager
def _replaying_in(way: str, workload: Workload) -> Iterator[Replay]:
    """Replay in memory, or in a data folder that goes with the engine."""
    with (
        TemporaryDirectory() as temporary,
        replaying(workload, Path(temporary) / "data" if way == IN_FOLDER else None) as replay,
    ):
        yield replay


def _paced(step: Callable[[], object], count: int) -> int:
    """Call a function each 100 ms; return how often it came too late for that."""
    began, late = time.perf_counter(), 0
    for number in range(count):
        left = began + number * BATCH_MS / 1000 - time.perf_counter()
        if left > 0:
            time.sleep(left)
        late += left < 0
        step()
    return late


def bench_latency(report: Report, workload: Workload, way: str, window_count: int, warm_up: int) -> None:
    """Add a row for each of L1-L6, which are registered together."""
    user = workload.posters[0]
    with _replaying_in(way, workload) as replay, Probe() as probe:
        windows = {query.name: Windows() for query in QUERIES}
        registered = {
            query.name: replay.engine.register(text_of(query, user, query.name), windows[query.name])
            for query in QUERIES
        }
        latency_us: dict[str, list[float]] = {query.name: [] for query in QUERIES}
        visible_us: list[float] = []

        def step() -> None:
            probe.clear()
            replay.step()
            visible_us.append(replay.since_advance_us(time.perf_counter()))
            for query in QUERIES:
                (times,) = probe.firings[query.name]
                latency_us[query.name].append(replay.since_advance_us(times.ended_s, query))

        _paced(step, warm_up)
        gc.collect()
        for times_us in (visible_us, *latency_us.values()):
            times_us.clear()
        late = _paced(step, window_count)
        stats = {name: query.stats() for name, query in registered.items()}
    for name, found in windows.items():
        check_windows(report, workload, name, user, found, CHECKED)
    for name, found_us in latency_us.items():
        of_all = summary(found_us)
        report.add(
            f"{LATENCY} ({way})",
            {
                "query": name,
                "latency p50": of_all["median"],
                "latency p99": of_all["p99"],
                "execution p50": stats[name]["execution_us_p50"],
                "execution p99": stats[name]["execution_us_p99"],
                "rows median": summary([len(window) for window in windows[name].windows[warm_up:]])["median"],
                "settled p50": summary(visible_us)["median"],
                "stream batches behind time": late,
            },
        )


def bench_execution(report: Report, quick: bool, window_count: int, warm_up: int) -> None:
    """Add a row for each of L4-L6 and each rate."""
    for rate in RATES:
        workload = make_workload(5_000 if quick else FEW_STORED, warm_up + window_count, (50 if quick else 1) / rate)
        user = workload.posters[0]
        for query in (one for one in QUERIES if one.name in LARGE):
            with replaying(workload) as replay, Probe() as probe:
                windows = Windows()
                registered = replay.engine.register(text_of(query, user, query.name), windows)
                for _ in range(warm_up + window_count):
                    replay.step()
                stats, took = registered.stats(), _took(probe, window_count)
            check_windows(report, workload, query.name, user, windows, CHECKED)
            row = {"query": query.name, "rate": rate, "execution p50": took["median"], "execution p99": took["p99"]}
            row |= {"rows": len(windows.windows[-1])}
            report.add(EXECUTION, {**row, "by deltas": stats.get("firings_by_deltas", 0)})


def _took(probe: Probe, count: int) -> dict[str, float]:
    """Return a summary of the newest firings of the only query, in microseconds."""
    return summary([times.firing_us for times in probe.all_times()[-count:]])


def _grouped(name: str, range_: str, variable: str = "?user", function: str = "COUNT(?post)") -> str:
    """Return the text of an aggregate over the posts."""
    return (
        f"REGISTER QUERY {name} AS {_PREFIXES} SELECT {variable} ({function} AS ?n) "
        f"FROM NAMED STREAM <{IRI['PO']}> [RANGE {range_} STEP 100ms] "
        f"WHERE {{ GRAPH <{IRI['PO']}> {{ ?user sioc:creator_of ?post . ?post sib:hashtag ?tag }} }} "
        f"GROUP BY {variable}"
    )


def bench_ranges(report: Report, ranges_s: Sequence[int], quick: bool, window_count: int) -> None:
    """Add a row for each query and RANGE. The stream batches of a minute come again and again."""
    distinct = 20 if quick else 600
    workload = make_workload(5_000, distinct, 50 if quick else RANGE_DIVISOR)
    texts = {
        query.name: query.register_text("{range}", "100ms", "u1", "p1") for query in QUERIES if query.name in LARGE
    }
    texts["GROUP BY"] = _grouped("g", "{range}")
    for name, text in texts.items():
        for range_s in ranges_s:
            with replaying(workload, history_ms=1000 * range_s) as replay, Probe() as probe:
                registered = replay.engine.register(text.replace("{range}", f"{range_s}s"))
                for _ in range(range_s * 1000 // BATCH_MS + window_count):
                    replay.step()
                stats, took = registered.stats(), _took(probe, window_count)
            report.check(f"{name}, RANGE {range_s} s: windows", True, took["count"] == window_count)
            row = {"query": name, "RANGE s": range_s, "execution p50": took["median"], "execution p99": took["p99"]}
            report.add(RANGES, {**row, "by deltas": stats.get("firings_by_deltas", 0)})


def bench_one_shot(report: Report, workload: Workload, turns: int, turn_s: float) -> None:
    """Add a row for each of S1-S6: asked while streams come and L1-L6 are registered, and while all is silent.

    The stored graph grows only while streams come, and answers with it. So each turn with streams is compared with the
    mean of the silent ones before and after it, and each turn counts once, however often it asks."""
    user = workload.posters[0]
    asked = one_shot_queries(int(user[1:]), 1)
    silent: dict[str, list[float]] = {name: [] for name in asked}
    fed: dict[str, list[float]] = {name: [] for name in asked}
    of_all: dict[str, list[float]] = {name: [] for name in asked}
    feed_count = max(1, int(turn_s * 1000 / BATCH_MS))
    with replaying(workload) as replay:
        for query in QUERIES:
            replay.engine.register(text_of(query, user, query.name), lambda window: None)

        def turn(medians: dict[str, list[float]]) -> dict[str, list[float]]:
            took: dict[str, list[float]] = {name: [] for name in asked}
            for name, text in asked.items():
                until = time.perf_counter() + turn_s / len(asked)
                while not took[name] or time.perf_counter() < until:
                    began = time.perf_counter()
                    replay.engine.query(text)
                    took[name].append((time.perf_counter() - began) * 1e6)
            for name, times in took.items():
                medians[name].append(summary(times)["median"])
            return took

        for text in asked.values():
            replay.engine.query(text)
        _paced(replay.step, feed_count)
        turn(silent)
        for _ in range(turns):
            feeder = threading.Thread(target=_paced, args=(replay.step, feed_count))
            feeder.start()
            for name, times in turn(fed).items():
                of_all[name] += times
            feeder.join()
            turn(silent)
    for name in asked:
        beside = [(before + after) / 2 for before, after in pairwise(silent[name])]
        slowed = summary([one / other for one, other in zip(fed[name], beside, strict=True)])
        row = {"query": name, "silence p50": summary(beside)["median"], "fed p50": summary(fed[name])["median"]}
        row |= {"fed p99": summary(of_all[name])["p99"], "slowed by %": 100 * (slowed["median"] - 1)}
        report.add(ONE_SHOT, row)


def bench_folder(report: Report, workload: Workload, turns: int) -> None:
    """Add a row for an engine in memory and one with a data folder. In turns each takes a few stream batches, one call
    after the other, and settles; the tables of the calls are made before."""
    user = workload.posters[0]
    tuples = sum(len(stream) for stream in workload.batches[0].values())
    with ExitStack() as stack:
        replays = {way: stack.enter_context(_replaying_in(way, workload)) for way in WAYS}
        windows = {(way, query.name): Windows() for way in WAYS for query in QUERIES}
        for way, query in product(WAYS, QUERIES):
            replays[way].engine.register(text_of(query, user, query.name), windows[way, query.name])
        took_ms: dict[str, list[float]] = {way: [] for way in WAYS}
        call_ms: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(turns):
            for way in (WAYS, WAYS[::-1])[turn % 2]:
                called, all_ms = _pushed_in_a_row(replays[way], TURN_BATCHES)
                if turn >= TURNS_TO_WARM_UP:
                    call_ms[way] += called
                    took_ms[way].append(all_ms / TURN_BATCHES)
    for (_, name), found_windows in windows.items():
        check_windows(report, workload, name, user, found_windows, CHECKED)
    for way in WAYS:
        found, calls = summary(took_ms[way]), summary(call_ms[way])
        row = {"way": way, "K tuples/s": tuples / found["median"], "stream batch p50 ms": found["median"]}
        row |= {"stream batch p99 ms": found["p99"], "push_many p50 ms": calls["median"]}
        report.add(FOLDER, {**row, "push_many p99 ms": calls["p99"]})


def _pushed_in_a_row(replay: Replay, count: int) -> tuple[list[float], float]:
    """Push some stream batches and settle; return the milliseconds of each call, and of all."""
    tables = [replay.next_tables() for _ in range(count)]
    called = []
    began = time.perf_counter()
    for end_ms, of_streams in tables:
        called.append(time.perf_counter())
        replay.engine.push_many(of_streams, end_ms)
    called.append(time.perf_counter())
    replay.engine.settle(SETTLE_TIMEOUT_S)
    of_each = [(after - before) * 1e3 for before, after in pairwise(called)]
    return of_each, (time.perf_counter() - began) * 1e3


def plot(found: Report, path: Path) -> None:
    """Draw latency and execution beside their goals, execution by rate, and by RANGE."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (latency, rates, ranges) = plt.subplots(1, 3, figsize=(15, 4), layout="constrained")
    for at, way in enumerate(WAYS):
        rows = found.tables[f"{LATENCY} ({way})"]
        for place, column in enumerate(("latency p50", "latency p99", "execution p50")):
            offset = (2 * place + at) * 0.14
            latency.bar(
                [n + offset for n in range(len(rows))], [row[column] for row in rows], 0.13, label=f"{column}, {way}"
            )
    for n, row in enumerate(rows):
        latency.plot(
            n + 0.63, GOALS_US[row["query"]], "r_", markersize=14, label="goal of execution" if n == 0 else None
        )
    for goal in LATENCY_GOALS_US:
        latency.axhline(goal, color="red", linestyle=":")
    latency.set_xticks([n + 0.35 for n in range(len(rows))], [row["query"] for row in rows])
    latency.set(yscale="log", ylabel="microseconds", title=f"{found.data['stored']:,} stored; dotted: goals p50, p99")
    for axes, table, column in ((rates, EXECUTION, "rate"), (ranges, RANGES, "RANGE s")):
        for name in dict.fromkeys(row["query"] for row in found.tables[table]):
            rows = [row for row in found.tables[table] if row["query"] == name]
            axes.plot([row[column] for row in rows], [row["execution p50"] for row in rows], "o-", label=name)
        axes.set(xscale="log", yscale="log", ylabel="execution p50, microseconds")
    rates.set(xlabel="times the paper's rates", title="1 s every 100 ms")
    ranges.set(xlabel="RANGE, seconds", title="STEP 100 ms, a twentieth of the rates")
    for each in (latency, rates, ranges):
        each.legend(fontsize="x-small", ncols=2)
    figure.savefig(path, dpi=120)
    plt.close(figure)
