"""The pictures of the pipeline's figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wukongs.bench.harness import Report
from wukongs.bench.pipeline.data import ENGINES
from wukongs.bench.pipeline.processes import ENGINE, JVM, WORKERS
from wukongs.bench.pipeline.sink import SINK
from wukongs.bench.pipeline.streaming import CPU, GOALS_MS, RATE, ROWS_PER_EPOCH, Run


def draw(found: Report, paced: Mapping[str, Run], stalled: Mapping[tuple[str, str], Run], path: Path) -> None:
    """Draw how late windows are, rates beside their goals, where the CPU time goes, and what a stall leaves behind; all
    that was measured."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(16, 8.5), layout="constrained")
    _draw_delays(axes[0, 0], paced)
    _draw_rates(axes[0, 1], found)
    _draw_cpu(axes[0, 2], found)
    _draw_stalls(axes[1, 0], {name: run for name, run in stalled.items() if name[1] == "engine"}, "engine")
    _draw_stalls(axes[1, 1], {name: run for name, run in stalled.items() if name[1] == "readers"}, "readers")
    _draw_epochs(axes[1, 2], stalled)
    for one in axes.flat:
        one.set_visible(one.has_data())
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_delays(axes: Any, runs: Mapping[str, Run]) -> None:
    for engine, run in runs.items():
        delays = run.delays_ms(None, 0)
        axes.plot([end_ms / 1000 for end_ms, _ in delays], [delay for _, delay in delays], ".", ms=2, label=engine)
    for goal in GOALS_MS if runs else ():
        axes.axhline(goal, color="red", linestyle=":")
    axes.set(yscale="log", xlabel="event time, s", ylabel="ms from arrival to on_result")
    axes.set_title("each window at 133 K tuples/s; dotted: goals p50, p99", fontsize="medium")
    if runs:
        axes.legend()


def _draw_rates(axes: Any, found: Report) -> None:
    rows = [(f"{row['through']}", row["K tuples/s"], row["goal"]) for row in found.tables.get(RATE, [])]
    rows += [(f"DataFrame,\n{row['columns']}", row["K rows/s"], row["goal"]) for row in found.tables.get(SINK, [])]
    for at, (_, rate, goal) in enumerate(rows):
        axes.bar(at, rate, 0.6, color=f"C{at}")
        axes.plot(at, goal, "r_", markersize=40)
        axes.annotate(f"{rate:,.0f}", (at, rate), ha="center", va="bottom")
    axes.set_xticks(range(len(rows)), [name for name, _, _ in rows])
    axes.set(ylabel="K a second", ylim=(0, None))
    axes.set_title("as fast as it goes; red: goals", fontsize="medium")


def _draw_cpu(axes: Any, found: Report) -> None:
    rows = found.tables.get(CPU, [])
    below = [0.0] * len(rows)
    for kind in (JVM, WORKERS, ENGINE):
        cores = [row.get(kind, 0.0) for row in rows]
        axes.bar(range(len(rows)), cores, 0.6, bottom=below, label=kind)
        below = [one + other for one, other in zip(below, cores, strict=True)]
    axes.set_xticks(range(len(rows)), [f"{row['through']},\n{row['rates']}" for row in rows], fontsize="small")
    axes.set(ylabel="cores")
    axes.set_title("CPU of the processes (without Spark the engine also reads)", fontsize="medium")
    if rows:
        axes.legend()


def _draw_stalls(axes: Any, runs: Mapping[tuple[str, str], Run], stalled: str) -> None:
    for (engine, _), run in runs.items():
        delays = run.delays_ms(None, 0)
        axes.plot([end_ms / 1000 for end_ms, _ in delays], [delay for _, delay in delays], ".", ms=2, label=engine)
    axes.set(yscale="log", xlabel="event time, s", ylabel="ms from arrival to on_result")
    axes.set_title(f"each window, the {stalled} stopped meanwhile", fontsize="medium")
    if runs:
        axes.axhline(GOALS_MS[1], color="red", linestyle=":")
        axes.legend()


def _draw_epochs(axes: Any, stalled: Mapping[tuple[str, str], Run]) -> None:
    for number, ((engine, what), run) in enumerate(stalled.items()):
        epochs = run.notes.epochs
        marker = ("o", "s")[ENGINES.index(engine)]
        axes.plot(
            [end_ms / 1000 for _, end_ms, _ in epochs],
            [rows / 1000 for _, _, rows in epochs],
            marker,
            ms=3,
            color=f"C{number}",
            label=f"{engine}, {what} stopped",
        )
    axes.set(xlabel="event time of the epoch's end, s", ylabel="K rows of an epoch")
    axes.set_title("epochs around a stall; dotted: rows_per_epoch", fontsize="medium")
    if stalled:
        axes.axhline(ROWS_PER_EPOCH / 1000, color="red", linestyle=":")
        axes.legend(fontsize="small")
