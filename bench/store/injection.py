"""The time of a stream batch from encoded columns to visible, over 10 M stored triples in 8 live batches.

LSBench's five streams at the paper's default rates go the engine's own way: StreamState.take and Core.seal. The cost of
each part is measured by wrapping it. Some work is left for the time after the firings: merging (Core.merge) and the
expiry of slices. It stands beside the total as `later`, since a stream batch takes both. Slices are built when they are
read: `slices read` is a window of each stream that is read at once. The dictionary (confirming the terms) and encoding
stand beside them. Every third stream batch comes stream by stream, the others together. Open
handles keep batches live at first; a third of the stream batches comes after they are closed.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from wukongs.bench.harness import Report, Row, summary
from wukongs.bench.kernels.batches import bytes_per_triple
from wukongs.bench.lsbench.data import (
    IRI,
    QUICK_DATA,
    TIMING,
    LsbenchData,
    find_folder,
    generate_lsbench,
    read_lsbench,
    rename_entities,
)
from wukongs.live.core import Core
from wukongs.live.injector import IDLE_FUEL
from wukongs.live.journal import NoJournal
from wukongs.live.pieces import timing_mask
from wukongs.live.stream_state import PUSH_PARTITION, StreamState
from wukongs.settings import Settings
from wukongs.store import arrangement
from wukongs.store.arrangement import Arrangement
from wukongs.store.batch import Batch, build_batch
from wukongs.store.block_index import BlockIndex
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.encoder import encode_ntriples
from wukongs.store.slice_ring import SliceRing
from wukongs.store.term_registry import TermRegistry
from wukongs.store.trace import Trace

STORED = 10_000_000
RATES = {"PO": 10_000, "PO-L": 86_000, "PH": 10_000, "PH-L": 7_500, "GPS": 20_000}
"""The paper's default rates, in tuples per second."""
PAPER_MS = {"PO": (0.75, 0.23), "PO-L": (2.20, 0.43), "PH": (0.67, 0.22), "PH-L": (0.37, 0.21), "GPS": (1.57, 0.34)}
"""Its table 6: injection of one stream batch, and how much of that is indexing."""
PAPER_MB = {"PO": (6.39, 2.96), "PO-L": (38.22, 0.60), "PH": (4.76, 1.89), "PH-L": (7.90, 0.51), "GPS": (5.45, 0.0)}
"""Its table 7: data and stream index of one minute."""
TARGET_MS = 4.0
BATCH_MS = 100
BATCHES_PER_MINUTE = 60_000 // BATCH_MS
WINDOW_BATCHES = 10
KEPT_BATCHES = 20
"""How many stream batches of slices are kept."""
LIVE_BATCHES = 8
"""At least so many stored batches are live while each of the first stream batches is kept apart by an open handle."""
HELD, FREE = "open", "closed"
PARTS: tuple[tuple[Any, str, str], ...] = (
    (SliceRing, "add", "slices"),
    (BlockIndex, "close", "blocks"),
    (Arrangement, "_mark_new", "newness"),
    (arrangement, "build_batch", "stored batch"),
    (Trace, "pay", "merge fuel"),
    (TermRegistry, "confirm", "dictionary"),
)
LATER = "later"
READ = "slices read"
SHOWN = ("slices", "blocks", "newness", "stored batch", "merge fuel", "other")
MEDIANS = "Injection of one stream batch of 100 ms, ms of CPU time (medians)"
TOGETHER = "All five streams in one stream batch, from encoded columns to visible, ms"
MEMORY = "Memory of one minute, MB"


def measure(found: Report, quick: bool) -> None:
    """Fill the tables. Full size takes about 80 s of CPU time and 4 GiB."""
    folder = None if quick else find_folder(None)
    data = generate_lsbench(QUICK_DATA if quick else None) if folder is None else read_lsbench(folder)
    found.data = {**found.data, **data.describe()}
    core = grow(found, data, 3000 if quick else STORED)
    bench_injection(found, data, core, 14 if quick else 160, 10 if quick else 20, 200 if quick else 1)


def grow(report: Report, data: LsbenchData, triple_count: int) -> Core:
    """Store copies of the network, entities renamed in each, without a file of them all."""
    core = Core(Settings(), NoJournal())
    columns: list[tuple[Int64Array, ...]] = []
    hashes: list[Int64Array] = []
    while sum(len(part) for part in hashes) < triple_count:
        encoded, _ = encode_ntriples(rename_entities(data.stored, len(hashes)), b"")
        encoded, _ = core.registry.confirm(encoded)
        columns.append((encoded.subjects, encoded.predicates, encoded.objects))
        hashes.append(mixed(encoded))
    subjects, predicates, objects = (np.concatenate(column) for column in zip(*columns, strict=True))
    graphs = np.full(len(subjects), core.default_graph, np.int64)
    core.arrangement.absorb(1, graphs, subjects, predicates, objects)
    report.check("stored triples at first", len(np.unique(np.concatenate(hashes))), len(core.arrangement))
    return core


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


@dataclass(slots=True)
class Stopwatch:
    """Milliseconds of CPU time of the parts of one injection, while it is entered, each without the parts within."""

    ms: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _within: float = 0.0
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Stopwatch:
        for owner, name, part in PARTS:
            self._stack.enter_context(patch.object(owner, name, self._timed(getattr(owner, name), part)))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            before, self._within = self._within, 0.0
            began = time.thread_time()
            try:
                return function(*arguments)
            finally:
                took = (time.thread_time() - began) * 1e3
                self.ms[part] += took - self._within
                self._within = before + took

        return timed


def inject(core: Core, states: dict[str, StreamState], encoded: dict[str, Encoded], number: int) -> dict[str, float]:
    """Inject one stream batch of some streams as the engine does; return the milliseconds of each part."""
    with Stopwatch() as watch:
        began, cpu_began = time.perf_counter(), time.thread_time()
        for name, columns in encoded.items():
            state = states[name]
            timing = timing_mask(columns, state.timing)
            confirmed, transient_ids = core.registry.confirm(columns, timing)
            state.take(confirmed, timing, transient_ids)
            state.complete(PUSH_PARTITION, number * BATCH_MS)
        core.progress.moved(core)
        core.slice(number * BATCH_MS, {})
        core.seal(number * BATCH_MS)
        cpu_ms, clock_ms = (time.thread_time() - cpu_began) * 1e3, (time.perf_counter() - began) * 1e3
    live = core.arrangement.trace.batch_count
    read_began = time.thread_time()
    for name in encoded:
        states[name].ring.window(number - WINDOW_BATCHES, number)
    later_began = time.thread_time()
    for name in encoded:
        core.drop_slices(states[name], (number - KEPT_BATCHES) * BATCH_MS)
    while core.merge(IDLE_FUEL):
        pass
    later_ms = (time.thread_time() - later_began) * 1e3
    parts = {**watch.ms, READ: (later_began - read_began) * 1e3}
    total = cpu_ms - parts["dictionary"]
    other = total - sum(parts.get(part, 0.0) for part in SHOWN)
    clock_ms -= parts["dictionary"]
    return {**parts, "other": other, "total": total, "clock": clock_ms, LATER: later_ms, "live": live}


@dataclass(frozen=True, slots=True)
class Injected:
    """Milliseconds of the parts of each stream batch that was injected alone, by stream, and of those of all five, by
    HELD and FREE; sizes: tuples of a stream batch; memory_mb: of a minute, by stream, `data` and `index`."""

    apart: dict[str, list[dict[str, float]]]
    together: dict[str, list[dict[str, float]]]
    sizes: dict[str, int]
    memory_mb: dict[str, dict[str, float]]

    def all_memory_mb(self) -> dict[str, float]:
        return {part: sum(one[part] for one in self.memory_mb.values()) for part in ("data", "index")}


def bench_injection(
    report: Report, data: LsbenchData, core: Core, batch_count: int, warm_up: int, divisor: int = 1
) -> Injected:
    """Add injection per stream and of all five into a core that has stored triples, and memory per minute.

    batch_count: stream batches, of which the first warm_up are not counted; divisor: of the rates."""
    before = len(core.arrangement)
    held_to = warm_up + batch_count * 2 // 3
    hashes = [mixed(batch) for batch in core.arrangement.trace.read(core.sn).batches]
    states = {name: declare(core, name) for name in RATES}
    sizes = {name: rate * BATCH_MS // 1000 // divisor for name, rate in RATES.items()}
    lines = {name: stream_lines(data, name, max(1, before // data.stored_count), sizes[name]) for name in RATES}
    apart: dict[str, list[dict[str, float]]] = {name: [] for name in RATES}
    together: dict[str, list[dict[str, float]]] = {HELD: [], FREE: []}
    batches: dict[str, list[Encoded]] = {name: [] for name in RATES}
    gc.collect()
    gc.disable()  # as harness.repeat: a full collection would fall on one of the samples
    with ExitStack() as handles:
        for number in range(1, batch_count + warm_up + 1):
            pieces = {name: next(lines[name], None) for name in RATES}
            if any(piece is None for piece in pieces.values()):
                break
            encoded, encode_ms = {}, {}
            for name, piece in pieces.items():
                began = time.thread_time()
                columns, _ = encode_ntriples(piece or b"", b"")
                encode_ms[name] = (time.thread_time() - began) * 1e3
                encoded[name] = replace(columns, timestamps=np.full(len(columns), number * BATCH_MS, np.int64))
                batches[name].append(encoded[name])
            if number % 3:
                parts = inject(core, states, encoded, number)
                if number > warm_up:
                    together[HELD if number <= held_to else FREE].append({**parts, "encode": sum(encode_ms.values())})
            else:
                for name in RATES:
                    parts = inject(core, states, {name: encoded[name]}, number)
                    if number > warm_up:
                        apart[name].append({**parts, "encode": encode_ms[name]})
            if number < LIVE_BATCHES:
                handles.enter_context(core.arrangement.open(core.sn, f"the benchmark, {number}"))
            if number == held_to:
                handles.close()
            if number in (warm_up + 1, warm_up + 2):
                expected = {name: len(np.unique(mixed(encoded[name]))) for name in RATES}
                slices = {name: sum(map(len, states[name].ring.window(number - 1, number).batches)) for name in RATES}
                report.check(f"stream batch {number}, tuples in the slice of each stream", expected, slices)
    gc.enable()
    stored = [mixed(chunk) for name in RATES if name not in TIMING for chunk in batches[name]]
    expected_count = len(np.unique(np.concatenate([*hashes, *stored])))
    report.check("stored triples after the streams were absorbed", expected_count, len(core.arrangement))
    fewest = min(parts["live"] for parts in together[HELD])
    report.check(f"at least {LIVE_BATCHES} live batches while handles are open", True, fewest >= LIVE_BATCHES)
    _add_times(report, apart, together, sizes, before)
    return Injected(apart, together, sizes, _add_memory(report, core, states, batches))


def declare(core: Core, name: str) -> StreamState:
    settings = core.settings
    state = StreamState(IRI[name], BATCH_MS, name in TIMING, core.default_graph, None, 60_000, settings)
    state.ring.index_windows(WINDOW_BATCHES)
    state.open_partition(PUSH_PARTITION)
    core.streams[IRI[name]] = state
    return state


def mixed(triples: Encoded | Batch) -> Int64Array:
    """Return a 64-bit mix of the three ids of each triple."""
    if isinstance(triples, Batch):
        _, subjects, predicates, objects = triples.triples()
    else:
        subjects, predicates, objects = triples.subjects, triples.predicates, triples.objects
    with np.errstate(over="ignore"):
        mix = subjects * 0x9E3779B97F4A7C1 + predicates
        return (mix ^ mix >> 29) * 0x3F58476D1CE4E5B + objects


def _medians(samples: list[dict[str, float]], parts: tuple[str, ...]) -> Row:
    return {part: summary([sample.get(part, 0.0) for sample in samples])["median"] for part in parts}


def _spread(samples: list[dict[str, float]], part: str) -> Row:
    found = summary([sample[part] for sample in samples])
    return {"total": found["median"], "total p99": found["p99"], "total max": found["max"]}


def _add_times(
    report: Report,
    apart: dict[str, list[dict[str, float]]],
    together: dict[str, list[dict[str, float]]],
    sizes: dict[str, int],
    before: int,
) -> None:
    beside = (READ, LATER, "dictionary", "encode")
    for name, samples in apart.items():
        row = {"stream": name, "tuples": sizes[name], **_medians(samples, SHOWN), **_spread(samples, "total")}
        inject_ms, index_ms = PAPER_MS[name]
        report.add(MEDIANS, {**row, **_medians(samples, beside), "paper total": inject_ms, "paper indexing": index_ms})
    paper = sum(inject_ms for inject_ms, _ in PAPER_MS.values())
    tuples = sum(sizes.values())
    for handles, samples in together.items():
        live = [int(parts["live"]) for parts in samples]
        about = {"handles": handles, "tuples": tuples, "stored at first": before, "samples": len(samples)}
        about["live batches"] = f"{min(live)}-{max(live)}"
        in_all = [sum(parts[part] for part in ("total", *beside)) for parts in samples]
        row = {"time": "CPU", **about, **_medians(samples, SHOWN), **_spread(samples, "total")}
        row |= {**_medians(samples, beside), "M tuples/s, all of it": tuples / float(np.mean(in_all)) / 1e3}
        report.add(TOGETHER, {**row, "target": TARGET_MS, "paper total": paper})
        report.add(TOGETHER, {"time": "by the clock", **about, **_spread(samples, "clock")})


def _add_memory(
    report: Report, core: Core, states: dict[str, StreamState], batches: dict[str, list[Encoded]]
) -> dict[str, dict[str, float]]:
    """Add what a minute of each stream takes: in slices (dropped as they age) and in the stored graph (for ever).
    Return the MB of what stays (of timing streams: of slices), and of the blocks."""
    memory_mb = {}
    filter_bytes = core.arrangement.filter_bytes / len(core.arrangement)
    for name, chunks in batches.items():
        kept = [states[name].ring.window(number - 1, number) for number in range(len(chunks) - 9, len(chunks) + 1)]
        slices = [batch for window in kept for batch in window.batches]
        blocks = states[name].ring.size_bytes / max(1, states[name].ring.slice_count)
        slice_bytes = sum(batch.size_bytes for batch in slices) / max(1, len(kept))
        slice_data, slice_index = _data_and_index(slices)
        row: Row = {"stream": name, "tuples": BATCHES_PER_MINUTE * len(chunks[-1])}
        minute = BATCHES_PER_MINUTE / 1e6
        row |= {"slices, data": slice_data / len(kept) * minute, "slices, index": slice_index / len(kept) * minute}
        row |= {"blocks (stream index)": (blocks - slice_bytes) * minute}
        if name not in TIMING:
            graphs = np.full(sum(map(len, chunks)), core.default_graph, np.int64)
            columns = (
                np.concatenate([getattr(c, part) for c in chunks]) for part in ("subjects", "predicates", "objects")
            )
            stored = build_batch(graphs, *columns)
            data, index = _data_and_index([stored])
            share = minute / len(chunks)
            index += filter_bytes * len(stored)
            row |= {"stored, data": data * share, "stored, index": index * share}
        kind = "slices" if name in TIMING else "stored"
        memory_mb[name] = {"data": row[f"{kind}, data"], "index": row["blocks (stream index)"]}
        paper_data, paper_index = PAPER_MB[name]
        report.add(MEMORY, {**row, "paper data": paper_data, "paper stream index": paper_index})
    report.notes.append(
        "Data: keys, offsets, values and times; index: fences, vertex index and, of stored triples, the newness filter "
        f"({filter_bytes:.2f} bytes a triple). Strings apart. Slices live {KEPT_BATCHES * BATCH_MS / 1000:g} s here."
    )
    return memory_mb


def _data_and_index(batches: list[Batch]) -> tuple[float, float]:
    """Return the bytes of the columns that hold triples, and of those that only find them."""
    data = index = 0.0
    for batch in batches:
        for name, share in bytes_per_triple(batch).items():
            if "fence" in name or name in ("vertices", "codes"):
                index += share * len(batch)
            elif name != "total":
                data += share * len(batch)
    return data, index


def plot(found: Report, path: Path) -> None:
    """Draw the parts of a stream batch, per stream and together, and memory per minute."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (times, memory) = pyplot.subplots(1, 2, figsize=(12, 4.5), width_ratios=(3, 2))
    rows = [*found.tables[MEDIANS], {**found.tables[TOGETHER][0], "stream": "all five"}]
    _stack(times, rows, SHOWN)
    at = np.arange(len(rows))
    times.plot(at, [row["total p99"] for row in rows], "kv", label="p99")
    times.plot(at, [row["paper total"] for row in rows], "r_", markersize=22, label="paper, table 6")
    times.axhline(TARGET_MS, color="grey", linestyle=":", label="target for all five")
    times.set_ylabel("ms of CPU time (medians)")
    times.set_title(f"one stream batch of {BATCH_MS} ms into {rows[-1]['stored at first'] / 1e6:.3g} M stored triples")
    columns = ("slices, data", "slices, index", "blocks (stream index)", "stored, data", "stored, index")
    _stack(memory, found.tables[MEMORY], columns)
    paper = [row["paper data"] + row["paper stream index"] for row in found.tables[MEMORY]]
    memory.plot(np.arange(len(paper)), paper, "r_", markersize=22, label="paper, table 7")
    memory.set_ylabel("MB of one minute")
    for axes in (times, memory):
        axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _stack(axes: Any, rows: list[Row], columns: tuple[str, ...]) -> None:
    at = np.arange(len(rows))
    floor = np.zeros(len(rows))
    for column in columns:
        heights = np.array([max(0.0, row.get(column) or 0.0) for row in rows])
        axes.bar(at, heights, 0.7, floor, label=column)
        floor += heights
    axes.set_xticks(at, [row["stream"] for row in rows])
