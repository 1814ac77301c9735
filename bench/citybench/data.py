"""CityBench's data: sensors, cultural and library events, and the RDF streams that its queries read.

It is read from the folder that is named, else that of CITYBENCH_DATA, else ../shared/data/citybench beside a checkout.
Files are found by their names, at any depth, plain or gzipped: SensorRepository.n3, AarhusCulturalEvents.n3,
AarhusLibraryEvents.n3, trafficMetaData.csv and `<stream>.stream` as the benchmark ships them. `<stream>.tsv`, lines of
`t_ms<TAB>triple`, is read instead of a stream's rows where it is there. Where there is no folder, our own generator
makes a city.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from wukongs.bench.citybench.generate import City, generate_city
from wukongs.bench.citybench.observations import CT, SERVICE, SSN, read_observations
from wukongs.bench.experiments.feed import Feed, WindowQuery
from wukongs.bench.harness import ROOT
from wukongs.bench.lsbench.data import StreamData

QUERY_FOLDER = Path(__file__).parent / "queries"
SENSORS, CULTURE, LIBRARY = "SensorRepository.n3", "AarhusCulturalEvents.n3", "AarhusLibraryEvents.n3"
ROADS = "trafficMetaData.csv"
C_QUERIES = tuple(f"C{number}" for number in range(1, 12))
"""CityBench as Wukong+S executes it."""
Q_QUERIES = ("Q3", "Q4", "Q5", "Q7", "Q8", "Q10", "Q11", "Q12")
"""CityBench's own forms of them, where they are others, and its twelfth query."""
EXPECTED = {"C1": 9, "C3": 9, "C4": 297, "C5": 297, "C6": 9, "C7": 9, "C8": 9, "C10": 243, "C11": 9}
"""Rows of every window that counts, from the README of the data; a city that we make has as many."""
OVER_LIBRARY = ("Q8",)
"""Queries over the library's events, all others are over the cultural ones."""
FIRST_MS, LAST_MS, STEP_MS, RANGE_MS = 3000, 289_000, 1000, 3000
_ONLY_OF_WINDOWS = re.compile(r"(?m)^(?:#|FROM |REGISTER ).*\n")
_READ = re.compile(r"STREAM :(\w+)")


@dataclass(frozen=True)
class CityFiles:
    """A folder of CityBench's files."""

    folder: Path

    @cached_property
    def _paths(self) -> dict[str, Path]:
        """Each file by its name, without .gz; the one nearest to the top."""
        found = dict[str, Path]()
        for path in sorted(self.folder.rglob("*"), key=lambda path: (len(path.parts), path)):
            found.setdefault(path.name.removesuffix(".gz"), path)
        return found

    def path(self, name: str) -> Path:
        """Raises FileNotFoundError."""
        path = self._paths.get(name)
        if path is None:
            raise FileNotFoundError(f"{self.folder}: no file {name} or {name}.gz in it")
        return path

    def content(self, name: str) -> bytes:
        content = self.path(name).read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content

    def text(self, name: str) -> str:
        return self.content(name).decode("utf-8-sig")

    def triples(self, name: str) -> bytes:
        """Return a Turtle file as N-Triples."""
        import pyoxigraph

        triples = pyoxigraph.parse(self.content(name), format=pyoxigraph.RdfFormat.TURTLE, rename_blank_nodes=True)
        lines = pyoxigraph.serialize((quad.triple for quad in triples), format=pyoxigraph.RdfFormat.N_TRIPLES)
        assert lines is not None, name
        return lines

    def stream(self, name: str, sensors: bytes) -> StreamData:
        """Read a stream; its rows need what `sensors`, N-Triples, say of the properties that are observed."""
        if f"{name}.tsv" in self._paths:
            parts = [row.split(b"\t", 1) for row in self.content(f"{name}.tsv").splitlines()]
            return StreamData(
                b"".join(part[1] + b"\n" for part in parts), np.array([part[0] for part in parts], np.int64)
            )
        lengths = self.lengths if name.startswith("AarhusTraffic") else {}
        return read_observations(name, self.text(f"{name}.stream"), properties_of(sensors, name), lengths)

    @cached_property
    def lengths(self) -> dict[str, float]:
        """Metres of each road, by its REPORT_ID."""
        rows = csv.DictReader(self.text(ROADS).splitlines())
        return {row["REPORT_ID"]: float(row["DISTANCE_IN_METERS"]) for row in rows}


def properties_of(sensors: bytes, name: str) -> dict[str, str]:
    """Return the properties that a sensor observes, by kind. sensors: N-Triples of the repository."""
    text = sensors.decode()
    observed = re.findall(rf"(?m)^<{re.escape(SERVICE + name)}> <{re.escape(SSN)}observes> <([^<>]+)>", text)
    kinds = dict(re.findall(rf"(?m)^<([^<>]+)> <[^<>]+#type> <{re.escape(CT)}([^<>]+)>", text))
    return {kinds[one]: one for one in observed if one in kinds}


def find_folder(given: Path | None) -> Path | None:
    """Return the folder that was given, else that of CITYBENCH_DATA, else the shared one if it is there, else None."""
    if given is not None:
        return given
    if named := os.environ.get("CITYBENCH_DATA"):
        return Path(named)
    shared = ROOT.parent / "shared" / "data" / "citybench"
    return shared if shared.is_dir() else None


@cache
def query_texts() -> Mapping[str, str]:
    """Return the queries by name, in order."""
    names = (*C_QUERIES, *Q_QUERIES)
    return {name: (QUERY_FOLDER / f"{name}.rq").read_text(encoding="utf-8") for name in names}


def streams_of(names: Sequence[str]) -> list[str]:
    """Return the streams that some of the queries read, in the order in which they are named."""
    texts = query_texts()
    return list(dict.fromkeys(stream for name in names for stream in _READ.findall(texts[name])))


def read_city(folder: Path, last_ms: int = LAST_MS) -> City:
    """Read a folder, up to a time. Raises OSError, ValueError."""
    files = CityFiles(folder)
    sensors = files.triples(SENSORS)
    streams = {name: files.stream(name, sensors).up_to(last_ms) for name in streams_of((*C_QUERIES, *Q_QUERIES))}
    return City(sensors, files.triples(CULTURE), files.triples(LIBRARY), streams)


def make_city(last_ms: int = LAST_MS) -> City:
    """Make a city with our own generator."""
    return generate_city(last_ms // 1000, streams_of((*C_QUERIES, *Q_QUERIES)))


def feed_of(city: City, names: Sequence[str], last_ms: int) -> Feed:
    """Return the data of some queries as the experiments take it. All streams are timing data. Times are one
    millisecond later than they are given, so that windows hold what the README's [t - 3 s, t) do."""
    texts = query_texts()
    queries = [
        WindowQuery(
            name,
            texts[name],
            _ONLY_OF_WINDOWS.sub("", texts[name]),
            tuple(SERVICE + stream for stream in streams_of([name])),
        )
        for name in names
    ]
    streams: Mapping[str, StreamData] = {name: city.streams[name] for name in streams_of(names)}
    ends = range(FIRST_MS, last_ms + 1, STEP_MS)
    return Feed(
        stored=city.sensors + (city.library if set(names) & set(OVER_LIBRARY) else city.culture),
        streams={SERVICE + name: StreamData(stream.lines, stream.times + 1) for name, stream in streams.items()},
        timing=frozenset(SERVICE + name for name in streams),
        queries=tuple(queries),
        range_ms=RANGE_MS,
        step_ms=STEP_MS,
        batch_ms=STEP_MS,
        first_ms=FIRST_MS,
        last_ms=last_ms,
        expected={(name, end_ms): EXPECTED[name] for name in names if name in EXPECTED for end_ms in ends},
    )
