"""The files of a run: LSBench's five streams at the paper's rates, with the six queries L1-L6, as `wukongs run` reads
them.

The tuples of a stream batch are those of the continuous benchmark's workload, which knows the answers. Their times are
spread over the stream batch, as those of a recording are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from wukongs.bench.continuous.firing import text_of
from wukongs.bench.continuous.workload import Workload, make_workload
from wukongs.bench.lsbench.data import IRI, TIMING
from wukongs.bench.lsbench.queries import QUERIES
from wukongs.bench.store.injection import BATCH_MS

ENGINES = ("spark", "local")


@dataclass(frozen=True, slots=True)
class Recording:
    """The workload and its files: the stored triples, and a timestamped file a stream, by its short name."""

    workload: Workload
    stored: Path
    streams: dict[str, Path]

    @property
    def batch_count(self) -> int:
        return len(self.workload.batches)

    @property
    def end_ms(self) -> int:
        return self.batch_count * BATCH_MS

    @property
    def tuple_count(self) -> int:
        return sum(len(stream) for batch in self.workload.batches for stream in batch.values())

    @property
    def user(self) -> str:
        """The constant of L1 to L3."""
        return self.workload.posters[0]

    def tuples_in(self, after_ms: int, until_ms: int) -> int:
        """Return how many tuples have times in (after_ms, until_ms], both ends of stream batches."""
        batches = self.workload.batches[after_ms // BATCH_MS : until_ms // BATCH_MS]
        return sum(len(stream) for batch in batches for stream in batch.values())


def record(folder: Path, stored_count: int, batch_count: int, divisor: float) -> Recording:
    """Write about so many stored triples, and stream batches at the paper's rates divided by `divisor`."""
    workload = make_workload(stored_count, batch_count, divisor)
    stored = folder / "stored.nt"
    stored.write_bytes(workload.data.stored)
    streams = {name: folder / f"{name}.nt" for name in workload.batches[0]}
    for name, path in streams.items():
        with path.open("wb") as file:
            for number, batch in enumerate(workload.batches):
                lines = batch[name].lines.splitlines()
                first = number * BATCH_MS + 1
                file.writelines(
                    b"%b %d\n" % (line, first + BATCH_MS * at // len(lines)) for at, line in enumerate(lines)
                )
    os.sync()  # what is still written to the disk would delay the first run
    return Recording(workload, stored, streams)


def write_run_file(path: Path, recording: Recording, pipeline: dict[str, str | float]) -> Path:
    """Write the run file with these keys under [pipeline]; return its path."""
    lines = ["[[stored]]", f'file = "{recording.stored}"']
    for name, file in recording.streams.items():
        lines += ["[[stream]]", f'iri = "{IRI[name]}"', f"batch_ms = {BATCH_MS}", "history_ms = 1000"]
        lines += [f"timing = {str(name in TIMING).lower()}"]
        lines += ["[stream.source]", 'kind = "timestamped"', f'path = "{file}"']
    for query in QUERIES:
        text = text_of(query, recording.user, query.name)
        lines += ["[[query]]", f'name = "{query.name}"', f'text = """{text}"""']
    lines += ["[pipeline]", *(f"{name} = {_toml(value)}" for name, value in pipeline.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _toml(value: str | float) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
