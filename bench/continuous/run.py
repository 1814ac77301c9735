"""Continuous queries: what a firing of L1-L3 takes part by part, many at once, and registration."""

from __future__ import annotations

import sys
from pathlib import Path

from wukongs.bench.continuous.compiled import ALONE, ROUNDS, bench_compiled, bench_compiled_mix
from wukongs.bench.continuous.firing import DISTRIBUTION, ONCE, SHARES, SMALL, bench_firings, replaying
from wukongs.bench.continuous.many import MIXED, REGISTRATION, bench_mix, bench_mix_from_tables, bench_registration
from wukongs.bench.continuous.sharing import bench_sharing
from wukongs.bench.continuous.ticks import ROWS, bench_count, bench_operators, bench_ticks
from wukongs.bench.continuous.workload import make_workload
from wukongs.bench.harness import Report, WrongAnswer

STORED = 3_000_000
BATCHES, QUICK_BATCHES = 480, 140
"""Stream batches that are made. The data depend on it, so it stays the same when parts of the benchmark come or go."""
GOALS_US = {"L1": (10, 30, 10), "L2": (3, 15, 5), "L3": (30, 30, 10)}
"""Engine part, whole firing, engine part when warm (DESIGN, section 9)."""
FROM_TABLES = 300_000
"""Queries of the mix that are registered from tables."""
COMPILED = 3000
"""Queries of a call of compiled plans."""
SHARING = 2000
"""Queries that share kernel calls or fire as one."""
GROUP_BATCH = 1000
"""Tuples of a stream batch, a tenth of a window."""
MIXED_GOAL = 4_000_000


def main(report: Path | None = None, quick: bool = False, stored_count: int | None = None) -> int:
    """Run the benchmark. stored_count: about so many stored triples; quick: tiny data.

    Returns the exit status: 1 for a wrong answer, after one line on standard error."""
    windows, warm_up, queries = (4, 11, 20) if quick else (40, 15, 300)
    places = (1, 10, 30) if quick else (1, 10, 100, 1000, 10_000, 100_000)
    batch_count = QUICK_BATCHES if quick else BATCHES
    workload = make_workload(stored_count or (5_000 if quick else STORED), batch_count, 50 if quick else 1)
    assert batch_count > (2 * len(SMALL) + 2) * (warm_up + windows), batch_count
    results = Report("continuous", workload.describe())
    try:
        with replaying(workload) as replay:
            bench_firings(results, replay, windows, warm_up)
            bench_operators(results, replay, windows, warm_up)
            bench_ticks(results, replay, windows, warm_up, 50 if quick else 1)
            bench_mix(results, replay, queries, windows, warm_up)
            bench_mix_from_tables(results, replay, 100 if quick else FROM_TABLES, windows, warm_up)
            bench_compiled(results, replay, windows, warm_up)
            bench_compiled_mix(results, replay, 30 if quick else COMPILED, 3 if quick else ROUNDS)
            bench_registration(results, replay, places)
        bench_count(results, windows, warm_up, 1000 if quick else ROWS)
        bench_sharing(results, 30 if quick else SHARING, 20 if quick else GROUP_BATCH, windows)
    except WrongAnswer as error:
        print(f"wukongs: bench continuous: {error}", file=sys.stderr)
        return 1
    results.notes += [
        "Engine part: the time inside of the calls that run the plan; firing: picking its windows included; "
        "warm: the third run in a row over the same window, beside the others on the main thread.",
        "One engine, one injector thread; kernels are compiled and windows are full before the first sample.",
    ]
    results.publish(report)
    if report is not None:
        plot(results, report / "continuous.png")
    return 0


def plot(found: Report, path: Path) -> None:
    """Draw the parts of a firing beside the goals, their distribution, and the cost of registration."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(15, 4), layout="constrained", width_ratios=(3, 2, 2))
    times, shares, costs = axes
    columns = ("engine part p50", "firing p50", "engine part, warm", "firing, warm", "advance to callback p50")
    for at, column in enumerate(columns):
        drawn = times.bar([n + at * 0.16 for n in range(3)], [row[column] for row in found.tables[ONCE]], 0.15)
        drawn.set_label(column)
        times.bar_label(drawn, fmt="%.3g", fontsize=7)
    for number, row in enumerate(found.tables[ONCE]):
        for at, goal in enumerate(GOALS_US[row["query"]]):
            times.plot(number + at * 0.16, goal, "r_", markersize=14, label="goal" if number == at == 0 else None)
    times.set_xticks([n + 0.32 for n in range(3)], [row["query"] for row in found.tables[ONCE]])
    for number, row in enumerate(found.tables[ALONE]):
        for at, column in ((1, "engine p50"), (3, "all p50")):
            times.plot(
                number + (at // 2) * 0.16, row[column], "k*", label="compiled" if number == at - 1 == 0 else None
            )
    times.set(yscale="log", ylabel="microseconds (medians)", ylim=(0.3, 1e6))
    mixed = max(row["executions/s"] for row in found.tables[MIXED] if row["way"].startswith("registered"))
    times.set_title(
        f"{found.data['stored']:,} stored triples; mixed, registered: {mixed:,.0f}/s (goal {MIXED_GOAL:,}/s)",
        fontsize=9,
    )
    rows = found.tables[REGISTRATION]
    names = [row["query"].removeprefix("number ") for row in rows]
    costs.plot(names, [row["register ms"] for row in rows], "o-", label="register, ms")
    costs.plot(names, [row["close ms"] for row in rows], "s-", label="close, ms")
    costs.plot(names, [row["bytes a query"] / 1024 for row in rows], "^-", label="KB a query")
    costs.axhline(1.0, color="red", linestyle=":", label="goal: 1 ms, 1 KB")
    costs.set(yscale="log", ylim=(0.005, 5000), xlabel="number of the query")
    for row in found.tables[DISTRIBUTION]:
        style = "-" if row["time"] == "firing" else "--"
        shares.plot([row[f"{share} %"] for share in SHARES], SHARES, style, label=f"{row['query']}, {row['time']}")
    shares.set(xscale="log", xlim=(50, 200_000), xlabel="microseconds", ylabel="% of the windows", ylim=(0, 145))
    for each in axes:
        each.legend(fontsize="x-small", ncols=2, loc="upper center")
    figure.savefig(path, dpi=120)
    plt.close(figure)
