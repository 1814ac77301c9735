"""How long does an insert take while the trace merges, with eager, default and lazy fuel?

As figures 6e and 7e of shared arrangements: updates come in small seals to one writer. The time of an insert is
building its batch and sealing it, with all merging that falls on it, as CPU time of the thread, so that a busy machine
does not show. Then arrivals at the offered rate are laid over these times: one insert is served at a time, and waiting
counts. (Where the writer is busy for more than 100 %, waiting only says how long the run was.) Newness, which the
arrangement decides before, is no part of it.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from wukongs.bench.harness import Report
from wukongs.store.batch import build_batch
from wukongs.store.dtypes import Int64Array
from wukongs.store.fuel import UNLIMITED_FUEL
from wukongs.store.trace import FUEL_PER_ROW, Trace

Floats = npt.NDArray[np.float64]
RATE_PER_S = 1_000_000
SEAL_ROWS = 5_000
SEALS = 2_000
FUELS = {"eager": UNLIMITED_FUEL // (1 << 32), "default": FUEL_PER_ROW, "lazy": FUEL_PER_ROW // 4}
OBJECTS = 1 << 20
ROWS_PER_SUBJECT = 10
OWN_TIME = "Time of an insert"
WITH_WAITING = "The same with waiting, at the offered rate"
CURVE = (0.0, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.9975, 0.999, 0.9995, 1.0)
"""Quantiles of the plotted curve."""


def measure(found: Report, quick: bool) -> None:
    """Seal the same updates under each fuel."""
    seals, rows = (30, 200) if quick else (SEALS, SEAL_ROWS)
    about = {
        "rows": seals * rows,
        "rows of a seal": rows,
        "offered rows/s": RATE_PER_S,
        "clock": "CPU time of a thread",
    }
    found.data = {**found.data, **about}
    for name, fuel in FUELS.items():
        seal_all(fuel, 5, rows)  # compiles
        trace, sealed, service_s, batches = seal_all(fuel, seals, rows)
        check(found, name, trace, sealed)
        del trace
        waited_s = waiting_and_service(service_s, rows / RATE_PER_S)
        load = service_s.mean() * RATE_PER_S / rows
        for title, seconds in ((OWN_TIME, service_s), (WITH_WAITING, waited_s)):
            ms = {f"p{100 * q:g}": float(np.quantile(seconds * 1e3, q)) for q in CURVE}
            found.add(
                f"{title}, ms",
                {
                    "fuel": name,
                    "median": ms["p50"],
                    "p99": ms["p99"],
                    "p99.9": ms["p99.9"],
                    "max": ms["p100"],
                    "M rows/s": rows / service_s.mean() / 1e6,
                    "busy": f"{100 * load:.0f} %",
                    "batches, mean": float(batches.mean()),
                    "batches, max": int(batches.max()),
                },
            )
            found.add(f"{title}: quantiles, ms", {"fuel": name, **ms})
        for at in np.linspace(0, seals - 1, min(seals, 60)).astype(int):
            found.add("Live batches", {"fuel": name, "seals": int(at) + 1, "batches": int(batches[at])})


def updates(number: int, rows: int, objects: Int64Array) -> tuple[Int64Array, ...]:
    """Return the columns of seal `number`: new subjects, ten rows each, over four predicates; no row twice."""
    rng = np.random.default_rng(number)
    subjects = np.repeat(rng.integers(1, 1 << 62, -(-rows // ROWS_PER_SUBJECT), np.int64) << 1, ROWS_PER_SUBJECT)[:rows]
    predicates = (np.arange(1, 5, dtype=np.int64) << 60)[np.arange(rows) % 4]
    places = (rng.integers(0, OBJECTS) + np.arange(rows)) * 40_503 % OBJECTS  # all different
    return np.full(rows, 4, np.int64), subjects, predicates, objects[places]


def seal_all(fuel: int, seals: int, rows: int) -> tuple[Trace, list[tuple[int, int]], Floats, Int64Array]:
    """Seal all updates; return the trace, and of each seal its rows and their sum, its seconds of CPU time, and how
    many batches there were after it."""
    objects = np.random.default_rng(1).integers(1, 1 << 62, OBJECTS, np.int64) << 1
    trace = Trace("updates", fuel)
    sealed: list[tuple[int, int]] = []
    seconds, batches = np.empty(seals), np.empty(seals, np.int64)
    gc.collect()
    gc.disable()
    try:
        for number in range(seals):
            columns = updates(number, rows, objects)
            began = time.thread_time()
            trace.seal(number, build_batch(*columns))
            seconds[number] = time.thread_time() - began
            sealed.append((rows, int((columns[1] ^ columns[3]).sum(dtype=np.uint64))))
            batches[number] = trace.batch_count
    finally:
        gc.enable()
    return trace, sealed, seconds, batches


def check(found: Report, name: str, trace: Trace, sealed: list[tuple[int, int]]) -> None:
    """Compare what the trace holds with what was sealed: as many rows, with the same sum of subjects and objects."""
    held = trace.read(trace.upper).batches
    found.check(f"{name}: rows", sum(rows for rows, _ in sealed), sum(map(len, held)))
    total = sum(int((batch.triples()[1] ^ batch.triples()[3]).sum(dtype=np.uint64)) for batch in held)
    found.check(f"{name}: sum of all rows", sum(part for _, part in sealed) % 2**64, total % 2**64)


def waiting_and_service(service_s: Floats, interval_s: float) -> Floats:
    """Return how long each insert takes from its arrival on, when one arrives each interval_s and one is served at a
    time."""
    latency = np.empty(len(service_s))
    free_at_s = 0.0
    for i, seconds in enumerate(service_s):
        arrival_s = i * interval_s
        free_at_s = max(free_at_s, arrival_s) + seconds
        latency[i] = free_at_s - arrival_s
    return latency


def plot(found: Report, path: Path) -> None:
    """Draw the complementary CDF of insert times, and the live batches."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.2))
    for axes, title in ((left, OWN_TIME), (middle, WITH_WAITING)):
        for row in found.tables[f"{title}: quantiles, ms"]:
            shares = [max(1 - q, 1e-4) for q in CURVE]
            axes.plot([row[f"p{100 * q:g}"] for q in CURVE], shares, marker=".", label=row["fuel"])
        axes.set(xscale="log", yscale="log", xlabel="ms", ylabel="share of inserts that take longer", title=title)
    for name in FUELS:
        points = [p for p in found.tables["Live batches"] if p["fuel"] == name]
        right.plot([p["seals"] for p in points], [p["batches"] for p in points], label=name)
    right.set(xlabel="seals", ylabel="live batches", ylim=(0, None), title="Live batches")
    for axes in (left, middle, right):
        axes.grid(alpha=0.3, which="both")
        axes.legend(title="fuel")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
