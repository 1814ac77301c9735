"""The cost of open handles: batches that cannot merge, and memory that old readers keep.

One handle stays open from the first hundredth of the run on, while the rest is sealed. Then readers at several SNs each
hold the batches that they first saw, and the memory is read as they close. At the end, after all the merging, every
reader is asked for its version again, and this is compared with the triples sealed up to its SN.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log2
from pathlib import Path

import numpy as np

from wukongs.bench.harness import Report
from wukongs.store.batch import Batch, build_batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import Int64Array
from wukongs.store.trace import Handle, Trace

SEALS = 100_000
ROWS = 10
READERS = 8
BATCHES = "Live batches by seals"
MEMORY = "Memory as readers close"


def measure(found: Report, quick: bool) -> None:
    """Count batches and bytes with no handle, one old one, and readers at several SNs."""
    seals = 400 if quick else SEALS
    found.data = {**found.data, "seals": seals, "rows of a seal": ROWS}
    run(found, "no handle", seals, range(0))
    run(found, "one handle", seals, range(seals // 100, seals, seals))
    some = seals // 4
    close_one_by_one(
        found,
        *run(found, f"{READERS} handles", some, range(some // READERS - 1, some, some // READERS)),
    )


def run(found: Report, name: str, seals: int, opened_at: range) -> tuple[Trace, list[tuple[Handle, BatchSet]]]:
    """Seal all, and open a handle after each of the seals opened_at. Returns each with the batches that it saw then."""
    trace = Trace("handles")
    handles: list[tuple[Handle, BatchSet]] = []
    sums = {-1: 0}
    most = 0
    for number in range(seals):
        columns = rows_of(number)
        sums[number] = sums[number - 1] + checksum(columns[1], columns[3])
        trace.seal(number, build_batch(*columns))
        most = max(most, trace.batch_count)
        if number in opened_at:
            handle = trace.open(number, f"reader {len(handles)}")
            handles.append((handle, handle.read()))
        if number % max(1, seals // 50) == 0 or number == seals - 1:
            row = {"handles": name, "seals": number + 1, "batches": trace.batch_count}
            found.check(f"{name}: rows after {number + 1} seals", (number + 1) * ROWS, len(trace))
            found.add(BATCHES, row)
    bound = (4 + 2 * int(log2(seals * ROWS))) * (1 + len(handles))
    found.check(f"{name}: O(log n) batches at any time", True, most <= bound)
    for handle, kept in handles:
        for read in (handle.read(), kept):
            found.check(f"{name}: rows at SN {handle.sn}", (handle.sn + 1) * ROWS, len(read))
            found.check(f"{name}: sum at SN {handle.sn}", sums[handle.sn] % 2**64, sum_of(read.batches))
    found.add("Most batches", {"handles": name, "seals": seals, "most": most, "last": trace.batch_count})
    return trace, handles


def close_one_by_one(found: Report, trace: Trace, handles: list[tuple[Handle, BatchSet]]) -> None:
    """Close readers, the newest first, letting merges go on; count the batches and bytes that are still held."""
    while True:
        trace.merge_all()
        held = {id(batch): batch for _, kept in handles for batch in kept.batches}
        held |= {id(batch): batch for batch in trace.read(trace.upper).batches}
        found.add(
            MEMORY,
            {
                "open readers": len(handles),
                "batches of the trace": trace.batch_count,
                "batches held": len(held),
                "MB held": sum(batch.size_bytes for batch in held.values()) / 1e6,
                "MB of the trace": trace.size_bytes / 1e6,
            },
        )
        if not handles:
            break
        handles.pop()[0].close()
    found.check("all readers closed: one batch", 1, len(held))


def rows_of(number: int) -> tuple[Int64Array, ...]:
    """Return the columns of seal `number`: one new subject with ten objects."""
    spread = np.int64(0x1E3779B97F4A7C14)
    subject = (np.int64(number + 1) * 2_654_435_761 % 2**31 << 32) | 2 * number
    objects = (np.arange(ROWS, dtype=np.int64) + 1) * (spread // (ROWS + 1)) & ~np.int64(1)
    return np.full(ROWS, 4, np.int64), np.full(ROWS, subject), np.full(ROWS, 8, np.int64), objects ^ (2 * number)


def checksum(subjects: Int64Array, objects: Int64Array) -> int:
    """Sum up tuples, so that one more or less shows."""
    return int((subjects.view(np.uint64) * np.uint64(3) + objects.view(np.uint64)).sum(dtype=np.uint64))


def sum_of(batches: Iterable[Batch]) -> int:
    """Sum up the tuples of batches."""
    total = 0
    for batch in batches:
        _, subjects, _, objects = batch.triples()
        total += checksum(subjects, objects)
    return total % 2**64


def plot(found: Report, path: Path) -> None:
    """Draw the batches over the seals, and the memory held over the open readers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    rows = found.tables[BATCHES]
    for name in dict.fromkeys(row["handles"] for row in rows):
        own = [row for row in rows if row["handles"] == name]
        left.plot([row["seals"] for row in own], [row["batches"] for row in own], label=name)
    left.set(title="Batches of the trace, by open handles", xlabel="seals", ylabel="live batches", ylim=(0, None))
    left.legend()
    memory = found.tables[MEMORY]
    for column in ("MB held", "MB of the trace"):
        right.plot([row["open readers"] for row in memory], [row[column] for row in memory], marker="o", label=column)
    right.invert_xaxis()
    right.set(title="Memory as readers close", xlabel="readers still open", ylabel="MB", ylim=(0, None))
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
