"""The bytes of a stored triple, column by column, and the bytes that merging adds.

LSBench's stored triples with all its streams absorbed, in stream batches; strings apart. Merged, each column of the one
batch is divided by its triples. While it grows, the batches under merge exist twice in part: the peak counts, after
each seal, the rows that merge times what a merged triple takes; the process's resident memory is read beside it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from wukongs.adapters.lsbench_people import NetworkSettings
from wukongs.bench.harness import Report
from wukongs.bench.kernels.batches import bytes_per_triple
from wukongs.bench.lsbench.data import find_folder, generate_lsbench, read_lsbench
from wukongs.bench.lsbench.ids import Columns, stored_and_streams
from wukongs.store.arrangement import Arrangement

SEAL_ROWS = 13_350
"""The tuples of LSBench's five streams in 100 ms, at the paper's default rates."""
AIM_BYTES = 36
COLUMNS = "Bytes a stored triple, merged"
PEAK = "While the streams are absorbed"


def measure(found: Report, quick: bool) -> None:
    """Absorb the data; add the bytes of each column, and the peak."""
    folder = None if quick else find_folder(None)
    few = NetworkSettings(users=20, friends=4, duration_ms=300) if quick else None
    data = generate_lsbench(few) if folder is None else read_lsbench(folder)
    found.data = {**found.data, **data.describe()}
    parts = stored_and_streams(data)
    del data
    rss_before = resident_bytes()
    arrangement, peak = absorb(parts)
    arrangement.trace.merge_all()
    batch = arrangement.trace.read(arrangement.trace.upper).batches[0]
    subjects, predicates, objects = (np.concatenate(column) for column in zip(*parts.values(), strict=True))
    ordered = np.stack((subjects, predicates, objects))[:, np.lexsort((subjects, predicates, objects))]
    distinct = 1 + int((ordered[:, 1:] != ordered[:, :-1]).any(axis=0).sum())
    found.check("stored triples", distinct, len(batch))
    columns = bytes_per_triple(batch)
    filter_bytes = arrangement.filter_bytes / len(batch)
    columns |= {"newness filter": filter_bytes, "total": columns.pop("total") + filter_bytes}
    found.notes.append(f"Aim: at most {AIM_BYTES} bytes in all.")
    found.notes.append("Pages that encoding has freed before are resident already: they are missing in `resident`.")
    for name, size in columns.items():
        found.add(COLUMNS, {"column": name, "bytes a triple": size, "MB": size * len(batch) / 1e6})
    merging_bytes = peak["rows merging"] * columns["total"]
    found.add(
        PEAK,
        {
            "triples": len(batch),
            "batches at most": peak["batches"],
            "MB of batches at the end, not merged": peak["bytes"] / 1e6,
            "rows merging, at most": peak["rows merging"],
            "MB more while they merge, at most": merging_bytes / 1e6,
            "bytes a triple then": (peak["bytes"] + merging_bytes) / len(batch),
            "resident MB more, at most": (peak["rss"] - rss_before) / 1e6,
        },
    )


def absorb(parts: dict[str, Columns]) -> tuple[Arrangement, dict[str, int]]:
    """Store what is stored, then all streams in small seals; return the arrangement and the peaks on the way."""
    arrangement = Arrangement("memory")
    trace = arrangement.trace
    peak = {"batches": 0, "bytes": 0, "rows merging": 0, "rss": 0}
    for name, columns in parts.items():
        step = len(columns[0]) if name == "stored" else SEAL_ROWS
        for first in range(0, len(columns[0]), max(1, step)):
            subjects, predicates, objects = (column[first : first + step] for column in columns)
            graphs = np.full(len(subjects), 4, np.int64)
            arrangement.absorb(trace.upper, graphs, subjects, predicates, objects)
            peak["batches"] = max(peak["batches"], trace.batch_count)
            peak["bytes"] = trace.size_bytes
            peak["rows merging"] = max(peak["rows merging"], trace.merging_count)
            peak["rss"] = max(peak["rss"], resident_bytes())
    return arrangement, peak


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def plot(found: Report, path: Path) -> None:
    """Draw the columns as one bar each, and the aim."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = [row for row in found.tables[COLUMNS] if row["column"] != "total"]
    total = next(row["bytes a triple"] for row in found.tables[COLUMNS] if row["column"] == "total")
    figure, axes = plt.subplots(figsize=(7, 4.2))
    axes.barh([row["column"] for row in rows][::-1], [row["bytes a triple"] for row in rows][::-1])
    axes.set(xlabel=f"bytes a stored triple; {total:.1f} in all, aim {AIM_BYTES}")
    axes.grid(alpha=0.3, axis="x")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
