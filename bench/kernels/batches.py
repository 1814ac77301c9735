"""Look-ups, building, merging and bytes of batches."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wukongs.bench.harness import Report, median_cpu_seconds
from wukongs.bench.kernels.loop_kernels import count_found
from wukongs.bench.kernels.social import random_ids
from wukongs.store.batch import Batch, assemble, build_batch, make_side, make_vertex_index
from wukongs.store.dtypes import Int64Array
from wukongs.store.merge import merge_batches

PROBES = 1_000_000
PREDICATES = 16


def bench_find_key(report: Report, key_counts: tuple[int, ...], rng: np.random.Generator) -> None:
    """Add, per number of keys, the time of one look-up in random order: keys that are there, and keys that are not."""
    for count in key_counts:
        ids = random_ids(count + count // 4, rng)
        keys, absent = np.sort(ids[:count]), ids[count:]
        batch = _one_range(keys)
        probes = min(PROBES, 20 * count)
        hits, misses = rng.choice(keys, probes), rng.choice(absent, probes)
        report.check(f"find_key, {count:,} keys, found", probes, int(count_found(batch.descriptor, 0, 0, hits)))
        report.check(f"find_key, {count:,} keys, absent", 0, int(count_found(batch.descriptor, 0, 0, misses)))
        hit_s = median_cpu_seconds(partial(count_found, batch.descriptor, 0, 0, hits), 5)
        miss_s = median_cpu_seconds(partial(count_found, batch.descriptor, 0, 0, misses), 5)
        report.add(
            "find_key",
            {
                "keys": count,
                "hit ns": hit_s / probes * 1e9,
                "miss ns": miss_s / probes * 1e9,
                "fence MB": batch.out.fences.nbytes / 1e6,
            },
        )


def _one_range(keys: Int64Array) -> Batch:
    """Make a batch of one directory row with one value a key, without sorting it again."""
    starts = np.array([0, len(keys)], np.int64)
    offsets = np.arange(len(keys) + 1, dtype=np.int32)
    out = make_side(starts, keys, offsets, keys)
    nobody = np.array([2], np.int64)
    in_ = make_side(np.array([0, 1], np.int64), nobody, np.array([0, len(keys)], np.int32), keys)
    small = make_side(np.array([0, 1], np.int64), nobody, np.array([0, 1], np.int32), nobody)
    return assemble(nobody, nobody, out, in_, make_vertex_index(small, small), np.empty(0, np.int64))


def random_triples(count: int, rng: np.random.Generator) -> tuple[Int64Array, ...]:
    """Return graphs, subjects, predicates, objects: 10 triples a subject, objects drawn from as many terms."""
    terms = random_ids(max(8, count // 10), rng)
    predicates = random_ids(PREDICATES, rng)
    return (
        np.full(count, 4, np.int64),
        rng.choice(terms, count),
        rng.choice(predicates, count),
        rng.choice(terms, count),
    )


def bench_build(report: Report, sizes: tuple[int, ...], rng: np.random.Generator) -> None:
    """Add the rate of build_batch."""
    for size in sizes:
        columns = random_triples(size, rng)
        batch = build_batch(*columns)
        distinct = len(np.unique(np.stack(columns[1:], axis=1), axis=0)) if size <= 1_000_000 else len(batch)
        report.check(f"build_batch, {size:,} tuples, distinct triples", distinct, len(batch))
        seconds = median_cpu_seconds(partial(build_batch, *columns), 3 if size > 100_000 else 15)
        report.add("build_batch", {"tuples": size, "ms": seconds * 1e3, "M tuples/s": size / seconds / 1e6})


def bench_merge(report: Report, sizes: tuple[tuple[int, int], ...], rng: np.random.Generator) -> None:
    """Add the rate of merging an older and a newer batch."""
    for older, newer in sizes:
        columns = random_triples(older + newer, rng)
        a = build_batch(*(column[:older] for column in columns))
        b = build_batch(*(column[older:] for column in columns))
        merged = merge_batches(a, b)
        report.check(f"merge of {older:,} and {newer:,}, triples", len(build_batch(*columns)), len(merged))
        seconds = median_cpu_seconds(partial(merge_batches, a, b), 3)
        rows = len(a) + len(b)
        report.add("Merge", {"older": len(a), "newer": len(b), "ms": seconds * 1e3, "M rows/s": rows / seconds / 1e6})


def bytes_per_triple(batch: Batch) -> dict[str, float]:
    """Return what each column of a batch costs, in bytes per triple."""
    index = batch.vertex_index
    row: dict[str, Any] = {}
    for name, side in (("out", batch.out), ("in", batch.in_)):
        row |= {
            f"{name} keys": side.keys.nbytes,
            f"{name} offsets": side.offsets.nbytes,
            f"{name} values": side.values.nbytes,
            f"{name} fences": side.fences.nbytes,
        }
    row["vertices"] = index.vertices.nbytes + index.starts.nbytes
    row["codes"] = index.codes.nbytes
    row["vertex fence"] = index.fence.nbytes
    row["times"] = batch.times.nbytes
    row["total"] = batch.size_bytes
    return {name: value / max(1, len(batch)) for name, value in row.items()}
