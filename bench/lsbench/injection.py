"""Load rate, and injection per stream batch at the paper's default rates into a large stored graph.

Injection is counted from encoded columns to visible: terms confirmed by the dictionary, slice and its merged blocks
(the stream index), newness, the batch of the stored graph, and the merge fuel that its rows pay. Encoding stands beside
it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import wukongs
from bench.harness import Report, repeat, summary
from bench.kernels.batches import bytes_per_triple
from bench.lsbench.data import IRI, TIMING, LsbenchData, rename_entities
from store.batch import build_batch
from store.dtypes import UNBOUND, Int64Array
from store.encoded import Encoded
from store.encoder import encode_ntriples
from store.lookup_kernels import mark_new
from store.rdf_files import read_rdf
from wukongs.core import Core
from wukongs.settings import Settings
from wukongs.stream_state import PUSH_PARTITION, StreamState

RATES = {"PO": 10_000, "PO-L": 86_000, "PH": 10_000, "PH-L": 7_500, "GPS": 20_000}
"""The paper's default rates, in tuples per second."""
PAPER_MS = {"PO": (0.75, 0.23), "PO-L": (2.20, 0.43), "PH": (0.67, 0.22), "PH-L": (0.37, 0.21), "GPS": (1.57, 0.34)}
"""Its table 6: injection of one stream batch, and how much of that is indexing."""
BATCH_MS = 100
WINDOW_BATCHES = 10
KEPT_BATCHES = 20
"""How many stream batches of slices are kept."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A core with the stored graph, and what it took: seconds."""

    core: Core
    triples: int
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
        expected = _count_distinct([encode_ntriples(lines, b"")[0]])
        counts: list[int] = []
        seconds = repeat(lambda: counts.append(_load(path)), repeats, 1)
        cpu = repeat(lambda: counts.append(_load(path)), 1, 0, time.thread_time)
        loaded = _load_in_phases(path)
    report.check(f"load of {count:,} lines, stored triples", expected, counts[-1])
    report.check(f"load of {count:,} lines in phases, stored triples", expected, loaded.triples)
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
    core = Core(Settings())
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
    return Loaded(core, len(core.arrangement), encode_s, confirm_s, absorb_s)


def stream_lines(data: LsbenchData, name: str, copies: int, size: int) -> Iterator[bytes]:
    """Yield the N-Triples of one stream batch of `size` tuples after the other; people of another copy of the stored
    triples in each. Likes of posts are invented, since the data has too few: any user, any post."""
    lines = data.streams[name].lines.splitlines(keepends=True)
    if name == "PO-L":
        rng = np.random.default_rng(1)
        likers = sorted({line.split(b" ", 1)[0] for line in lines})
        liked = sorted({line.split(b" ")[2] for line in lines})
        like = lines[0].split(b" ")[1]
        for number in range(1 << 30):
            chosen = rng.integers(0, len(likers), size).tolist(), rng.integers(0, len(liked), size).tolist()
            made = [b"%b %b %b .\n" % (likers[a], like, liked[b]) for a, b in zip(*chosen, strict=True)]
            yield rename_entities(b"".join(made), number % copies)
    for number, first in enumerate(range(0, len(lines) - size + 1, size)):
        yield rename_entities(b"".join(lines[first : first + size]), number % copies)


def bench_injection(
    report: Report, data: LsbenchData, loaded: Loaded, batch_count: int, warm_up: int, divisor: int = 1
) -> None:
    """Add injection per stream and of all five, over stored triples that are there. Even stream batches are taken apart
    by stream, odd ones go the engine's own way; the first warm_up of them are not counted. divisor: of the rates."""
    core = loaded.core
    before = len(core.arrangement)
    states = {name: _declare(core, name) for name in RATES}
    sizes = {name: rate * BATCH_MS // 1000 // divisor for name, rate in RATES.items()}
    lines = {name: stream_lines(data, name, max(1, before // data.stored_count), sizes[name]) for name in RATES}
    apart: dict[str, dict[str, list[float]]] = {name: {} for name in RATES}
    together: list[tuple[float, float]] = []
    encoding: list[float] = []
    batches: dict[str, list[Encoded]] = {name: [] for name in RATES}
    for number in range(1, batch_count + warm_up + 1):
        pieces = {name: next(lines[name], None) for name in RATES}
        if any(piece is None for piece in pieces.values()):
            break
        encoded, encode_ms = {}, {}
        for name, piece in pieces.items():
            assert piece is not None
            started = time.thread_time()
            columns, _ = encode_ntriples(piece, b"")
            encode_ms[name] = (time.thread_time() - started) * 1e3
            times = np.full(len(columns), number * BATCH_MS, np.int64)
            encoded[name] = replace(columns, timestamps=times)
            if name not in TIMING:
                batches[name].append(encoded[name])
        if number % 2:
            both_ms = _inject_together(core, states, encoded, number)
            if number > warm_up:
                together.append(both_ms)
                encoding.append(sum(encode_ms.values()))
        else:
            for name in RATES:
                phases = _inject_apart(core, states[name], encoded[name], number)
                if number > warm_up:
                    for phase, ms in {"encode": encode_ms[name], **phases}.items():
                        apart[name].setdefault(phase, []).append(ms)
            core.move_to(number * BATCH_MS)
        expected = {name: _count_distinct([encoded[name]]) for name in RATES}
        found = {name: sum(len(b) for b in states[name].ring.window(number - 1, number).batches) for name in RATES}
        if number in (warm_up + 1, warm_up + 2):
            report.check(f"stream batch {number}, tuples in the slice of each stream", expected, found)
    _check_stored(report, core, loaded, batches, data, before)
    _add_tables(report, core, apart, together, encoding, before, sizes)


def _declare(core: Core, name: str) -> StreamState:
    settings = core.settings
    state = StreamState(IRI[name], BATCH_MS, name in TIMING, (), core.default_graph, None, 60_000, settings)
    state.ring.index_windows(WINDOW_BATCHES)
    state.open_partition(PUSH_PARTITION)
    core.streams[IRI[name]] = state
    return state


def _inject_apart(core: Core, state: StreamState, encoded: Encoded, number: int) -> dict[str, float]:
    """Inject one stream batch of one stream; return the milliseconds of each phase."""
    marks = [time.thread_time()]
    timing = state.timing_mask(encoded.predicates)
    confirmed, transient_ids = core.registry.confirm(encoded, timing)
    marks.append(time.thread_time())
    state.ring.add(
        number,
        confirmed.subjects,
        confirmed.predicates,
        confirmed.objects,
        confirmed.timestamps,
        transient_ids,
    )
    marks.append(time.thread_time())
    state.ring.close(number)
    core.drop_slices(state, (number - KEPT_BATCHES) * BATCH_MS)
    marks.append(time.thread_time())
    if not timing.all():
        # Arrangement.absorb, step by step.
        trace = core.arrangement.trace
        graphs = np.where(confirmed.graphs == UNBOUND, state.into, confirmed.graphs)
        columns = (graphs, confirmed.subjects, confirmed.predicates, confirmed.objects)
        held = trace.read(trace.upper)
        new = mark_new(held.descriptors, graphs, confirmed.predicates, confirmed.subjects, confirmed.objects)
        marks.append(time.thread_time())
        batch = build_batch(*(column[new] for column in columns))
        marks.append(time.thread_time())
        trace.seal(trace.upper, batch)
        marks.append(time.thread_time())
    names = ("confirm", "slice", "blocks, expiry", "newness", "stored batch", "merge fuel")
    phases = {name: (stop - start) * 1e3 for name, start, stop in zip(names, marks, marks[1:], strict=False)}
    return {**phases, "total": (marks[-1] - marks[0]) * 1e3}


def _inject_together(
    core: Core, states: dict[str, StreamState], encoded: dict[str, Encoded], number: int
) -> tuple[float, float]:
    """Inject one stream batch of all streams as the engine does; return milliseconds of CPU time and by the clock."""
    began, cpu_began = time.perf_counter(), time.thread_time()
    for name, state in states.items():
        timing = state.timing_mask(encoded[name].predicates)
        confirmed, transient_ids = core.registry.confirm(encoded[name], timing)
        state.take(confirmed, timing, transient_ids)
        state.complete(PUSH_PARTITION, number * BATCH_MS)
    core.seal(number * BATCH_MS)
    for state in states.values():
        state.ring.close(number)
        core.drop_slices(state, (number - KEPT_BATCHES) * BATCH_MS)
    return (time.thread_time() - cpu_began) * 1e3, (time.perf_counter() - began) * 1e3


def _count_distinct(chunks: list[Encoded]) -> int:
    """Count distinct triples, told apart by a 64-bit mix of their three ids."""
    return len(np.unique(np.concatenate([_mixed(chunk) for chunk in chunks]))) if chunks else 0


def _mixed(chunk: Encoded) -> Int64Array:
    with np.errstate(over="ignore"):
        mixed = chunk.subjects * 0x9E3779B97F4A7C1 + chunk.predicates
        return (mixed ^ mixed >> 29) * 0x3F58476D1CE4E5B + chunk.objects


def _check_stored(
    report: Report, core: Core, loaded: Loaded, batches: dict[str, list[Encoded]], data: LsbenchData, before: int
) -> None:
    stored = encode_ntriples(data.copies_of_stored(max(before, 1)), b"")[0]
    chunks = [stored, *(chunk for kept in batches.values() for chunk in kept)]
    report.check("stored triples after the streams were absorbed", _count_distinct(chunks), len(core.arrangement))


def _add_tables(
    report: Report,
    core: Core,
    apart: dict[str, dict[str, list[float]]],
    together: list[tuple[float, float]],
    encoding: list[float],
    before: int,
    sizes: dict[str, int],
) -> None:
    title = f"Injection of one stream batch of {BATCH_MS} ms into {before:,} stored triples, ms of CPU time (medians)"
    for name, phases in apart.items():
        row: dict[str, object] = {"stream": name, "tuples": sizes[name]}
        row |= {phase: summary(samples)["median"] for phase, samples in phases.items()}
        inject, index = PAPER_MS[name]
        report.add(
            title,
            {**row, "total p99": summary(phases["total"])["p99"], "paper total": inject, "paper indexing": index},
        )
    cpu, wall = (summary(samples) for samples in zip(*together, strict=True))
    report.add(
        "All five streams in one stream batch, as the engine seals them, ms",
        {
            "tuples": sum(sizes.values()),
            "stream batches": cpu["count"],
            "CPU median": cpu["median"],
            "CPU p99": cpu["p99"],
            "clock median": wall["median"],
            "clock p99": wall["p99"],
            "encoding CPU median": summary(encoding)["median"],
            "paper": sum(inject for inject, _ in PAPER_MS.values()),
            "stored batches": core.arrangement.trace.batch_count,
        },
    )
