"""CityBench's data: sensors and cultural events, and the eleven RDF streams that C1-C11 read.

It is read from the folder that is named, else that of CITYBENCH_DATA, else ../shared/data/citybench beside a checkout:
`stored/` with two Turtle files, `rdf_streams/` with lines of `t_ms<TAB>triple`. Where there is none, our own generator
makes a city.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wukongs.bench.citybench.generate import SERVICE, STREAMS, generate_city
from wukongs.bench.experiments.feed import Feed, WindowQuery
from wukongs.bench.harness import ROOT
from wukongs.bench.lsbench.data import StreamData

QUERY_FOLDER = Path(__file__).parent / "queries"
NAMESPACE = SERVICE
STORED = ("SensorRepository.n3.gz", "AarhusCulturalEvents.n3.gz")
EXPECTED = {"C1": 9, "C3": 9, "C4": 297, "C5": 297, "C6": 9, "C7": 9, "C8": 9, "C10": 243, "C11": 9}
"""Rows of every window that counts, from the README of the data; a city that we make has as many."""
FIRST_MS, LAST_MS, STEP_MS, RANGE_MS = 3000, 289_000, 1000, 3000
_ONLY_OF_WINDOWS = re.compile(r"(?m)^(?:#|FROM |REGISTER ).*\n")


@dataclass(frozen=True, slots=True)
class CityData:
    folder: Path
    stored: tuple[Path, ...]

    @staticmethod
    def of(folder: Path) -> CityData:
        return CityData(folder, tuple(folder / "stored" / name for name in STORED))

    def stream(self, name: str) -> StreamData:
        """Read a stream of `t_ms<TAB>triple` lines, up to LAST_MS."""
        rows = gzip.decompress((self.folder / "rdf_streams" / f"{name}.tsv.gz").read_bytes()).splitlines()
        parts = [row.split(b"\t", 1) for row in rows]
        times = np.array([part[0] for part in parts], np.int64)
        count = int(np.searchsorted(times, LAST_MS, side="right"))
        return StreamData(b"".join(part[1] + b"\n" for part in parts[:count]), times[:count])


def find_folder(given: Path | None) -> Path | None:
    """Return the folder that was given, else that of CITYBENCH_DATA, else the shared one if it is there, else None."""
    if given is not None:
        return given
    if named := os.environ.get("CITYBENCH_DATA"):
        return Path(named)
    shared = ROOT.parent / "shared" / "data" / "citybench"
    return shared if shared.is_dir() else None


def query_texts() -> dict[str, str]:
    """Return C1-C11, in order."""
    paths = sorted(QUERY_FOLDER.glob("C*.rq"), key=lambda path: int(path.stem[1:]))
    return {path.stem: path.read_text(encoding="utf-8") for path in paths}


def read_city(folder: Path, last_ms: int = LAST_MS) -> Feed:
    """Read a folder as the experiments take it. Raises OSError, ValueError."""
    import pyoxigraph

    city = CityData.of(folder)
    stored = []
    for path in city.stored:
        triples = pyoxigraph.parse(
            gzip.decompress(path.read_bytes()), format=pyoxigraph.RdfFormat.TURTLE, rename_blank_nodes=True
        )
        lines = pyoxigraph.serialize((quad.triple for quad in triples), format=pyoxigraph.RdfFormat.N_TRIPLES)
        assert lines is not None, path
        stored.append(lines)
    return feed_of(b"".join(stored), {name: city.stream(name) for name in STREAMS}, last_ms)


def make_city(last_ms: int = LAST_MS) -> Feed:
    """Make a city with our own generator, as the experiments take it."""
    return feed_of(*generate_city(last_ms // 1000), last_ms)


def feed_of(stored: bytes, streams: Mapping[str, StreamData], last_ms: int) -> Feed:
    """Return data as the experiments take it. All streams are timing data. Times are one millisecond later than they
    are given, so that windows hold what the README's [t - 3 s, t) do."""
    queries = []
    for name, text in query_texts().items():
        read = tuple(NAMESPACE + stream for stream in dict.fromkeys(re.findall(r"STREAM :(\w+)", text)))
        queries.append(WindowQuery(name, text, _ONLY_OF_WINDOWS.sub("", text), read))
    later = {NAMESPACE + name: StreamData(stream.lines, stream.times + 1) for name, stream in streams.items()}
    ends = range(FIRST_MS, last_ms + 1, STEP_MS)
    return Feed(
        stored=stored,
        streams=later,
        timing=frozenset(later),
        queries=tuple(queries),
        range_ms=RANGE_MS,
        step_ms=STEP_MS,
        batch_ms=STEP_MS,
        first_ms=FIRST_MS,
        last_ms=last_ms,
        expected={(name, end_ms): rows for name, rows in EXPECTED.items() for end_ms in ends},
    )
