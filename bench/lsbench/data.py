"""The LSBench data that the benchmarks run on: stored triples as N-Triples, streams as columns with event times.

It is read from a folder in the form that LSBench's generator writes (`<name>.nt[.gz]` with prefixed names,
`<name>.ts[.gz]` with one time per triple): the one that is named, else that of LSBENCH_DATA, else
../shared/data/lsbench beside a checkout. Where there is none, our own generator makes a network.
"""

from __future__ import annotations

import gzip
import os
import re
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wukongs.adapters.lsbench_generator import STREAM_NAMES, STREAM_NAMESPACE, generate_network
from wukongs.adapters.lsbench_people import NetworkSettings
from wukongs.adapters.sources.lsbench_file import expand
from wukongs.bench.harness import ROOT
from wukongs.store.dtypes import Int64Array

if TYPE_CHECKING:
    import pyarrow as pa

DAY_MS = 86_400_000
STORED = "mr0_sibdataset"
STREAMS = {
    "PO": "rdfPostStream",
    "PO-L": "rdfPostLikeStream",
    "PH": "rdfPhotoStream",
    "PH-L": "rdfPhotoLikeStream",
    "GPS": "gpsStream",
}
"""Short name, as in the paper -> how the generator's file is named."""
IRI = {name: STREAM_NAMESPACE + stream for name, stream in zip(STREAMS, STREAM_NAMES, strict=True)}
TIMING = ("GPS",)
"""Streams whose tuples only live in windows."""
QUICK_DATA = NetworkSettings(users=60, friends=8, duration_ms=2000, posts_per_s=40, photos_per_s=30, positions_per_s=20)
"""A tiny network, which only shows that everything runs."""
_PREFIX_LINE = re.compile(rb"@prefix\s+([\w.-]*):\s*<([^<>\s]*)>\s*\.\s*\n")
_ENTITY = re.compile(rb"(<http://www\.ins\.cwi\.nl/sib/(?!vocabulary)[^<>]*)>")


@dataclass(frozen=True)
class StreamData:
    """lines : the triples as N-Triples; times : int64[n], event time in ms, non-decreasing."""

    lines: bytes
    times: Int64Array

    def __len__(self) -> int:
        return len(self.times)

    @cached_property
    def _ends(self) -> Int64Array:
        """Where each line ends, after 0."""
        return np.concatenate([[0], np.flatnonzero(np.frombuffer(self.lines, np.uint8) == 10) + 1])

    def between(self, start_ms: int, end_ms: int) -> bytes:
        """Return the N-Triples with a time in (start_ms, end_ms]."""
        first, stop = np.searchsorted(self.times, (start_ms, end_ms), side="right").tolist()
        return self.lines[self._ends[first] : self._ends[stop]]

    def up_to(self, last_ms: int) -> StreamData:
        """Return the part with a time of at most last_ms."""
        count = int(np.searchsorted(self.times, last_ms, side="right"))
        return StreamData(self.lines[: self._ends[count]], self.times[:count])

    def table(self) -> pa.Table:
        """Return the columns that Stream.push_arrow takes."""
        import pyarrow as pa
        import pyarrow.compute as pc

        text = pa.array(self.lines[:-1].decode().split("\n") if len(self) else [], pa.string())
        parts = pc.split_pattern(pc.utf8_slice_codeunits(text, 0, -2), " ", max_splits=2).flatten()
        columns: list[Any] = [parts.take(pa.array(np.arange(at, 3 * len(self), 3))) for at in range(3)]
        return pa.table([*columns, pa.array(self.times)], ["subject", "predicate", "object", "timestamp_ms"])


@dataclass(frozen=True, slots=True)
class LsbenchData:
    """stored : N-Triples; streams : by the short names of STREAMS; source : where it is from, in words."""

    source: str
    stored: bytes
    streams: dict[str, StreamData]
    user: str
    """The user that L1 starts from."""
    person: str
    """The person that L2 and L3 start from."""

    @property
    def is_sample(self) -> bool:
        """Tell whether this is the 1,000-user sample, whose answer sizes are known."""
        return self.stored_count == 209_336 and len(self.streams["PO"]) == 155_186

    @property
    def stored_count(self) -> int:
        return self.stored.count(b"\n")

    def describe(self) -> dict[str, Any]:
        """Return counts of triples."""
        return {
            "source": self.source,
            "stored": self.stored_count,
            **{name: len(stream) for name, stream in self.streams.items()},
        }

    def copies_of_stored(self, triple_count: int) -> bytes:
        """Return the stored triples over and over, entities renamed in each copy, until there are this many."""
        count = -(-triple_count // self.stored_count)
        return b"".join(rename_entities(self.stored, number) for number in range(count))


def rename_entities(lines: bytes, number: int) -> bytes:
    """Return N-Triples lines with other names for people, posts and so on: those of copy `number` (0: as they are)."""
    return _ENTITY.sub(rb"\1x%d>" % number, lines) if number else lines


def find_folder(given: Path | None) -> Path | None:
    """Return the folder that was given, else that of LSBENCH_DATA, else the shared one if it is there, else None."""
    if given is not None:
        return given
    if named := os.environ.get("LSBENCH_DATA"):
        return Path(named)
    shared = ROOT.parent / "shared" / "data" / "lsbench"
    return shared if shared.is_dir() else None


def read_lsbench(folder: Path) -> LsbenchData:
    """Read all files of a folder. Raises FileNotFoundError (one is missing), ValueError (a line cannot be read)."""
    streams = {}
    for name, stem in STREAMS.items():
        path = _find(folder, stem, "nt")
        times = np.array(_read(_find(folder, stem, "ts")).split(), np.int64)
        lines = read_prefixed(path)
        if lines.count(b"\n") != len(times):
            raise ValueError(f"{path}: {lines.count(10)} triples, but {len(times)} times beside them")
        streams[name] = StreamData(lines, times)
    return LsbenchData(folder.name, read_prefixed(_find(folder, STORED, "nt")), streams, "u864", "p864")


def generate_lsbench(settings: NetworkSettings | None = None) -> LsbenchData:
    """Make a network with our own generator: each second of its event time is a simulated day here."""
    with tempfile.TemporaryDirectory() as folder:
        network = generate_network(folder, settings)
        streams = {}
        for name, stream in zip(STREAMS, STREAM_NAMES, strict=True):
            lines = Path(network.streams[stream]).read_bytes()
            times = np.array([line[line.rindex(b" ") + 1 :] for line in lines.splitlines()], np.int64)
            streams[name] = StreamData(re.sub(rb" -?\d+$", b"", lines, flags=re.MULTILINE), times * (DAY_MS // 1000))
        stored = Path(network.stored).read_bytes()
    busiest = network.busiest_user
    return LsbenchData("our generator", stored, streams, f"u{busiest}", f"p{busiest}")


def read_prefixed(path: Path) -> bytes:
    """Return a file of prefixed names as N-Triples. Raises ValueError (a line that cannot be read)."""
    data = _read(path)
    prefixes, at = [], 0
    while match := _PREFIX_LINE.match(data, at):
        prefixes.append((match[1], match[2]))
        at = match.end()
    rows = data[at:]
    expanded, status, _ = expand(rows, tuple(prefixes), rows.count(b"\n"))
    if status.any():
        raise ValueError(f"{path}: triple {int(np.flatnonzero(status)[0])} cannot be read")
    return expanded


def _find(folder: Path, stem: str, kind: str) -> Path:
    found = sorted(path for path in folder.iterdir() if re.fullmatch(rf"{stem}\w*\.{kind}(\.gz)?", path.name))
    if not found:
        raise FileNotFoundError(f"{folder}: no {stem}*.{kind} or {stem}*.{kind}.gz")
    return found[0]


def _read(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data
