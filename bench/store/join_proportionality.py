"""Does exploring from k keys cost O(k) against ten million stored keys?

As figures 6f and 7f of shared arrangements: one plan step, through the plan's own kernel and through run() with all of
its Python, from k seed rows that are all stored, k from one to a million. The other side of the join, the stored keys,
is as large in every row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from wukongs.bench.harness import Report, repeat, summary
from wukongs.bench.kernels.loop_kernels import run_group
from wukongs.bench.kernels.social import NAMESPACE, name_id
from wukongs.bench.kernels.steps import planned
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans.plan_runner import run
from wukongs.store.batch import build_batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI

KEYS = 10_000_000
SEEDS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
TITLE = "One plan step from k seeds"


def measure(found: Report, quick: bool) -> None:
    """Explore from k seeds, by k."""
    rng = np.random.default_rng(6)
    count = 2_000 if quick else KEYS
    keys = np.unique(rng.integers(1, 1 << 62, count, np.int64)) << 1
    count = len(keys)
    graphs = np.full(count, name_id(DEFAULT_GRAPH_IRI), np.int64)
    predicates = np.full(count, name_id("knows"), np.int64)
    # The value of keys[i] is keys[count - 1 - i]: so every match can be checked.
    stored = BatchSet.of((build_batch(graphs, keys, predicates, keys[::-1].copy()),), disjoint=True)
    prepared = planned(f"PREFIX : <{NAMESPACE}> SELECT * WHERE {{ ?user :knows ?friend }}", "user", stored)
    found.data = {**found.data, "stored keys": count, "clock": "CPU time of one thread"}
    for k in SEEDS:
        if k > count:
            break
        numbers = rng.integers(0, count, k)
        seeds = keys[numbers]
        table = BindingTable((prepared.seed,), (seeds,), k)
        explore = partial(run, prepared.plan, table, prepared.dataset, Limits())
        result = explore()
        found.check(f"{k:,} seeds: rows", k, result.length)
        matched = np.array_equal(result.columns[1], keys[count - 1 - numbers])
        found.check(f"{k:,} seeds: each with its own value", True, matched)
        found.check(f"{k:,} seeds: rows of the kernel", k, int(run_group(*prepared.arguments(seeds))))
        others = [keys[rng.integers(0, count, k)] for _ in range(200 if k <= 1000 else 5)]
        kernel_s = median_cpu_seconds_of([partial(run_group, *prepared.arguments(ids)) for ids in others])
        tables = [BindingTable((prepared.seed,), (ids,), k) for ids in others]
        run_s = median_cpu_seconds_of(
            [partial(run, prepared.plan, table, prepared.dataset, Limits()) for table in tables]
        )
        found.add(
            TITLE,
            {
                "k": k,
                "kernel us": kernel_s * 1e6,
                "kernel ns a seed": kernel_s / k * 1e9,
                "run() us": run_s * 1e6,
                "run() ns a seed": run_s / k * 1e9,
            },
        )


def median_cpu_seconds_of(calls: Sequence[Callable[[], object]]) -> float:
    """Return the median CPU time of calls that are each made once: with other seeds each, so that few seeds are found
    in the cache no more than many are."""
    rest = iter(calls)
    return summary(repeat(lambda: next(rest)(), len(calls), 0, time.thread_time))["median"]


def plot(found: Report, path: Path) -> None:
    """Draw the time over k, both on logarithmic scales, with a line of slope one."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = found.tables[TITLE]
    k = [row["k"] for row in rows]
    figure, axes = plt.subplots(figsize=(6.5, 4.2))
    axes.plot(k, [row["kernel us"] for row in rows], marker="o", label="kernel")
    axes.plot(k, [row["run() us"] for row in rows], marker="s", label="run()")
    last = rows[-1]
    axes.plot(k, [last["kernel ns a seed"] * value / 1e3 for value in k], linestyle=":", color="grey", label="O(k)")
    axes.set(xscale="log", yscale="log", xlabel="k, seed rows", ylabel="us")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
