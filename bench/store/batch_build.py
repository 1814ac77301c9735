"""How many triples a second does one core turn into an indexed batch, both directions?

From columns of ids in any order to a batch with keys, offsets, values, fences and the vertex index. Random ids are the
hard case: ten triples a subject, any of sixteen predicates, any of the subjects as object. LSBench's are its stored
triples and streams in the order of the data, with other entities in each copy.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from wukongs.adapters.lsbench_people import NetworkSettings
from wukongs.bench.harness import Report, median_cpu_seconds
from wukongs.bench.kernels.batches import random_triples
from wukongs.bench.lsbench.data import find_folder, generate_lsbench, read_lsbench
from wukongs.bench.lsbench.ids import copies, stored_and_streams
from wukongs.store.batch import build_batch
from wukongs.store.dtypes import Int64Array

SIZES = (1_000, 10_000, 100_000, 1_000_000, 4_000_000)
TARGET = 4.0
TITLE = "build_batch"


def measure(found: Report, quick: bool) -> None:
    """Build batches of each shape and size."""
    rng = np.random.default_rng(4)
    folder = None if quick else find_folder(None)
    few = NetworkSettings(users=20, friends=4, duration_ms=300) if quick else None
    data = generate_lsbench(few) if folder is None else read_lsbench(folder)
    found.data = {**found.data, "LSBench": data.source, "clock": "CPU time of one thread"}
    parts = stored_and_streams(data).values()
    lsbench = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    for size in (10, 500) if quick else SIZES:
        add(found, "random", random_triples(size, rng))
        subjects, predicates, objects = copies(lsbench, size)  # type: ignore[arg-type]
        add(found, "LSBench", (np.full(size, 4, np.int64), subjects, predicates, objects))


def add(found: Report, shape: str, columns: tuple[Int64Array, ...]) -> None:
    """Check the batch of these columns (graphs, subjects, predicates, objects), and add its row."""
    size = len(columns[0])
    batch = build_batch(*columns)
    ordered = np.stack(columns[1:])[:, np.lexsort(columns[1:])]
    distinct = 1 + int((ordered[:, 1:] != ordered[:, :-1]).any(axis=0).sum())
    found.check(f"{shape}, {size:,} tuples: distinct triples", distinct, len(batch))
    seconds = median_cpu_seconds(partial(build_batch, *columns), 5 if size > 100_000 else 25)
    found.add(TITLE, {"ids": shape, "tuples": size, "ms": seconds * 1e3, "M tuples/s": size / seconds / 1e6})


def plot(found: Report, path: Path) -> None:
    """Draw the rate over the size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.5, 4.2))
    for shape in ("random", "LSBench"):
        rows = [row for row in found.tables[TITLE] if row["ids"] == shape]
        axes.plot([row["tuples"] for row in rows], [row["M tuples/s"] for row in rows], marker="o", label=shape)
    axes.axhline(TARGET, color="grey", linestyle=":", label="aim")
    axes.set(xscale="log", ylim=(0, None), xlabel="tuples", ylabel="M tuples/s, one core")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
