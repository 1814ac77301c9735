"""Load rate of N-Triples: the whole, and by phase."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import wukongs
from wukongs.bench.harness import Report, repeat, summary
from wukongs.bench.kernels.batches import bytes_per_triple
from wukongs.bench.lsbench.data import LsbenchData
from wukongs.bench.store.injection import mixed
from wukongs.live.core import Core
from wukongs.live.journal import NoJournal
from wukongs.settings import Settings
from wukongs.store.encoder import encode_ntriples
from wukongs.store.rdf_files import read_rdf


@dataclass(frozen=True, slots=True)
class Loaded:
    """A core with the stored graph, and what it took: seconds."""

    core: Core
    encode_s: float
    confirm_s: float
    absorb_s: float


def bench_load(report: Report, data: LsbenchData, triple_count: int, repeats: int) -> Loaded:
    """Add the load rate of an N-Triples file of at least triple_count lines; return the graph that it makes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stored.nt"
        lines = data.copies_of_stored(triple_count)
        path.write_bytes(lines)
        count = lines.count(b"\n")
        expected = len(np.unique(mixed(encode_ntriples(lines, b"")[0])))
        counts: list[int] = []
        seconds = repeat(lambda: counts.append(_load(path)), repeats, 1)
        cpu = repeat(lambda: counts.append(_load(path)), 1, 0, time.thread_time)
        loaded = _load_in_phases(path)
    report.check(f"load of {count:,} lines, stored triples", expected, counts[-1])
    report.check(f"load of {count:,} lines in phases, stored triples", expected, len(loaded.core.arrangement))
    total = summary(seconds)["median"]
    trace = loaded.core.arrangement.trace
    report.add(
        "Load, N-Triples file to query-ready",
        {
            "triples": count,
            "MB": len(lines) / 1e6,
            "seconds": total,
            "K triples/s": count / total / 1e3,
            "CPU seconds": cpu[0],
            "K triples/s of CPU": count / cpu[0] / 1e3,
            "of it encode s": loaded.encode_s,
            "confirm (dictionary) s": loaded.confirm_s,
            "absorb (batch) s": loaded.absorb_s,
        },
    )
    report.add(
        "Bytes per stored triple after the load",
        {**bytes_per_triple(trace.read(trace.upper).batches[0]), "terms": loaded.core.registry.size_bytes / count},
    )
    return loaded


def _load(path: Path) -> int:
    with wukongs.Engine() as engine:
        engine.load(path)
        return int(engine.stats()["stored_triples"])


def _load_in_phases(path: Path) -> Loaded:
    core = Core(Settings(), NoJournal())
    encode_s = confirm_s = 0.0
    columns = []
    chunks = read_rdf(path, scope=b"load:1", on_malformed=None, strict=True)
    while True:
        began = time.thread_time()
        chunk = next(chunks, None)
        encode_s += time.thread_time() - began
        if chunk is None:
            break
        began = time.thread_time()
        encoded, _ = core.registry.confirm(chunk, np.zeros(len(chunk), np.bool_))
        confirm_s += time.thread_time() - began
        columns.append((encoded.subjects, encoded.predicates, encoded.objects))
    began = time.thread_time()
    subjects, predicates, objects = (np.concatenate(column) for column in zip(*columns, strict=True))
    graphs = np.full(len(subjects), core.default_graph, np.int64)
    core.arrangement.absorb(1, graphs, subjects, predicates, objects)
    absorb_s = time.thread_time() - began
    return Loaded(core, encode_s, confirm_s, absorb_s)
