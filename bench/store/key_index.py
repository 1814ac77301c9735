"""Time and bytes of indexes that find a key, by size: a fence of 1, 2 or 4 keys a bucket, or a hash table.

The fences are read through find_key, on batches whose fences are made as each variant would. A table of positions has
entry numbers of 4 bytes, a table of pairs the keys too; they are at most half full. A batch with both a fence and a
table would take the bytes of both and the time of the table, so that is no variant of its own. Probes are random and
independent, as the rows of a plan step are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from wukongs.bench.harness import Report, median_cpu_seconds
from wukongs.bench.kernels.loop_kernels import count_found
from wukongs.bench.store.key_index_kernels import count_in_pairs, count_in_positions, fill_pairs
from wukongs.store.batch import Batch, Side, assemble, make_side, make_vertex_index
from wukongs.store.batch_kernels import fill_fences
from wukongs.store.dtypes import Int64Array
from wukongs.store.fuel import UNLIMITED_FUEL
from wukongs.store.slot_kernels import fill_slots

SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 50_000_000)
PROBES = 1_000_000
KEYS_PER_BUCKET = (1, 2, 4, 8)
TITLE = "Key look-up"


def measure(found: Report, quick: bool) -> None:
    """Look hits and misses up in every variant at every size."""
    rng = np.random.default_rng(8)
    few = np.arange(2, 2000, 2)
    fenced(few, 1), fill_slots(few, len(few), np.zeros(4096, np.int32)), fill_pairs(few, np.zeros((4096, 2), np.int64))
    for count in (100, 3_000) if quick else SIZES:
        keys = np.unique(rng.integers(1, 1 << 62, count, np.int64)) << 1
        probes = min(PROBES, 20 * count)
        hits = rng.choice(keys, probes)
        misses = hits + 1  # an odd number is no key, and lies where a key does
        for per_bucket in KEYS_PER_BUCKET:
            began = time.thread_time()
            batch, size = fenced(keys, per_bucket)
            built_s = time.thread_time() - began
            look_up = partial(count_found, batch.descriptor, 0, 0)
            add(found, f"fence, {per_bucket} keys a bucket", keys, size, built_s, look_up, hits, misses)
        slot_count = 1 << (2 * len(keys) - 1).bit_length()
        slots = np.zeros(slot_count, np.int32)
        built_s = seconds(partial(fill_slots, keys, len(keys), slots))
        look_up = partial(count_in_positions, keys, slots)
        add(found, "table of positions", keys, slots.nbytes, built_s, look_up, hits, misses)
        del slots, look_up
        pairs = np.zeros((slot_count, 2), np.int64)
        built_s = seconds(partial(fill_pairs, keys, pairs))
        add(found, "table of pairs", keys, pairs.nbytes, built_s, partial(count_in_pairs, pairs), hits, misses)
        del pairs


def seconds(build: Callable[[], object]) -> float:
    """Return the CPU time of building an index once."""
    began = time.thread_time()
    build()
    return time.thread_time() - began


def add(
    found: Report,
    index: str,
    keys: Int64Array,
    size: int,
    built_s: float,
    look_up: Callable[[Int64Array], int],
    hits: Int64Array,
    misses: Int64Array,
) -> None:
    """Check an index and add its row."""
    found.check(f"{index}, {len(keys):,} keys: found", len(hits), int(look_up(hits)))
    found.check(f"{index}, {len(keys):,} keys: absent", 0, int(look_up(misses)))
    found.add(
        TITLE,
        {
            "keys": len(keys),
            "index": index,
            "hit ns": median_cpu_seconds(partial(look_up, hits), 5) / len(hits) * 1e9,
            "miss ns": median_cpu_seconds(partial(look_up, misses), 5) / len(misses) * 1e9,
            "bytes a key": size / len(keys),
            "build ns a key": built_s / len(keys) * 1e9,
        },
    )


def fenced(keys: Int64Array, per_bucket: int) -> tuple[Batch, int]:
    """Make a batch of one directory row with these keys and a fence of about `per_bucket` keys a bucket; return it with
    the bytes of the fence."""
    starts = np.array([0, len(keys)], np.int64)
    bits = max(1, (len(keys) // per_bucket).bit_length() - 1)
    fence_starts, shifts = np.array([0, (1 << bits) + 1], np.int64), np.array([63 - bits], np.int64)
    fences = np.empty(fence_starts[1], np.int32)
    fill_fences(keys, starts, fence_starts, shifts, fences, np.zeros(3, np.int64), UNLIMITED_FUEL)
    offsets = np.arange(len(keys) + 1, dtype=np.int32)
    out = Side(starts, keys, offsets, keys, fence_starts, shifts, fences)
    nobody = np.array([2], np.int64)
    small = make_side(np.array([0, 1], np.int64), nobody, np.array([0, 1], np.int32), nobody)
    return assemble(nobody, nobody, out, small, make_vertex_index(small, small), np.empty(0, np.int64)), fences.nbytes


def plot(found: Report, path: Path) -> None:
    """Draw the time of a hit over the bytes a key, one line a size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    rows = found.tables[TITLE]
    for index in dict.fromkeys(row["index"] for row in rows):
        own = [row for row in rows if row["index"] == index]
        marker = "o" if index.startswith("fence") else "s"
        left.plot([row["keys"] for row in own], [row["hit ns"] for row in own], marker=marker, label=index)
        right.plot([row["bytes a key"] for row in own], [row["hit ns"] for row in own], marker, label=index)
    left.set(xscale="log", yscale="log", xlabel="keys", ylabel="hit, ns")
    right.set(xscale="log", yscale="log", xlabel="bytes a key", ylabel="hit, ns (one point a size)")
    for axes in (left, right):
        axes.grid(alpha=0.3, which="both")
    left.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
