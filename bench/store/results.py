"""How fast is a result written, by format, and what memory does that take?

One-shot queries over people with a name and an age; the rows go to a file object that counts and forgets. CPU time of
one thread; memory is the peak of the process while it writes, over what it held before.
"""

from __future__ import annotations

import io
import re
import time
from pathlib import Path
from typing import Any, BinaryIO, cast

from wukongs import Engine
from wukongs.bench.harness import Report

FORMATS = ("json", "xml", "csv", "tsv", "arrow", "table", "nt", "ttl")
_PATTERN = "{ ?p <http://ex/name> ?n ; <http://ex/age> ?a }"
_AGE = '"{0}"^^<http://www.w3.org/2001/XMLSchema#integer>'


class _Counting(io.RawIOBase):
    """A file that forgets what is written to it."""

    size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.size += len(data)
        return len(data)


def measure(found: Report, quick: bool) -> None:
    """Write the answer to one query in each format."""
    people = 2_000 if quick else 500_000
    person = f'<http://ex/person/{{0}}> <http://ex/name> "Name of {{0}}" ; <http://ex/age> {_AGE} .\n'
    with Engine() as engine:
        engine.load(io.BytesIO("".join(map(person.format, range(people))).encode()), format="ttl")
        for format in FORMATS:
            is_graph = format in ("nt", "ttl")
            result = engine.query(f"CONSTRUCT {_PATTERN} WHERE {_PATTERN}" if is_graph else f"SELECT * {_PATTERN}")
            rows = 2 * people if is_graph else people
            found.check(f"rows as {format}", rows, len(result))
            file = _Counting()
            before = _peak_bytes(reset=True)
            began = time.process_time()
            result.serialize(format, cast(BinaryIO, file))
            seconds = time.process_time() - began
            row = {"format": format, "rows": rows, "K rows/s": rows / seconds / 1e3, "MB of text": file.size / 1e6}
            found.add("writing", {**row, "MB of peak memory": (_peak_bytes() - before) / 1e6})


def _peak_bytes(reset: bool = False) -> int:
    """Return the most memory that this process has held, since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert peak is not None
    return int(peak[1]) * 1024


def plot(found: Report, path: Path) -> None:
    """Draw the rates."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = found.tables["writing"]
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    drawn = axes.barh([row["format"] for row in rows], [row["K rows/s"] for row in rows])
    axes.bar_label(drawn, fmt="%.0f", padding=3)
    axes.invert_yaxis()
    axes.set(xlabel="thousand rows/s (nt and ttl: triples/s)")
    figure.savefig(path, dpi=120)
    plt.close(figure)
