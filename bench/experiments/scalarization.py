"""scalarization (section 6.7 of the Wukong+S paper): what scalar snapshot numbers save, beside vectors of timestamps.

In the paper a key of the stored graph has, for each snapshot that is kept, its place and a timestamp of each stream; a
bounded scalar takes the place of the vector. In our store no key has either: a stored batch has one SN, and a snapshot
that is kept holds back the merging of batches. So `bounded` is measured: bytes of the stored graph, without strings,
after streams have come in steps of 100 ms, the newest `snapshots` of them kept by open handles. `not bounded` is that,
and what vectors would add, reckoned as the paper has them: keys x snapshots x streams x 8 bytes. A key is a subject, or
an object, with a predicate. `merged`, of `bounded`, is the size once no snapshot is kept and all batches are merged.

The same tuples come in each case: `streams` says to how many streams they are dealt. Those of timing streams are not
stored. Answers: each kept snapshot has the distinct triples that the data has up to its step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from wukongs.bench.experiments.feed import Feed
from wukongs.bench.experiments.session import Session
from wukongs.bench.lsbench.data import IRI, TIMING, LsbenchData
from wukongs.bench.lsbench.ids import Columns, stored_and_streams
from wukongs.bench.peers import WUKONGS
from wukongs.store.arrangement import Arrangement
from wukongs.store.dtypes import Int64Array

EXPERIMENT = "scalarization"
BOUNDED, NOT_BOUNDED = "bounded", "not bounded"
CASES = ((2, 2), (2, 3), (5, 2))
"""Streams, and snapshots that are kept, as in the paper."""
TIMESTAMP_BYTES = 8
GRAPH = 4


@dataclass(frozen=True, slots=True)
class _Found:
    """Bytes with the snapshots kept and without, and keys. why: the first wrong count."""

    kept_bytes: int
    merged_bytes: int
    keys: int
    why: str = ""


def run(session: Session, data: LsbenchData, feed: Feed) -> None:
    """Measure each case that is not done."""
    asked = [query for query in (BOUNDED, NOT_BOUNDED) if session.wants(query)]
    cases = [(streams, kept, session.with_case(streams=streams, snapshots=kept)) for streams, kept in CASES]
    cases = [one for one in cases if any(one[2].open(EXPERIMENT, query, (WUKONGS,), one[2].case) for query in asked)]
    if not cases:
        return
    session.begin(f"{EXPERIMENT}: storing {data.stored_count:,} triples and {feed.last_ms / 1000:g} s of streams")
    steps = list(_steps(data, feed))
    found = {kept: _absorb(steps, kept) for kept in sorted({kept for _, kept, _ in cases})}
    for streams, kept, here in cases:
        one = found[kept]
        about: dict[str, Any] = {"checked": "counts of distinct triples", "busy": session.busy()}
        for query in asked:
            key = (EXPERIMENT, query, WUKONGS, here.case)
            if one.why:
                session.record.skipped(*key, one.why)
                continue
            vectors = one.keys * kept * streams * TIMESTAMP_BYTES if query == NOT_BOUNDED else 0
            if query == BOUNDED:
                session.record.measured(*key, "keys", [one.keys], unit="keys", **about)
                session.record.measured(*key, "merged", [one.merged_bytes / 1e6], unit="MB", **about)
            session.record.measured(*key, "size", [(one.kept_bytes + vectors) / 1e6], unit="MB", **about)


def _steps(data: LsbenchData, feed: Feed) -> Iterator[Columns]:
    """Yield the stored triples, then those that join them in each step."""
    encoded = stored_and_streams(data)
    yield encoded["stored"]
    for end_ms in range(feed.step_ms, feed.last_ms + 1, feed.step_ms):
        parts: list[Columns] = []
        for name in data.streams:
            if name not in TIMING:
                first, stop = np.searchsorted(feed.streams[IRI[name]].times, (end_ms - feed.step_ms, end_ms), "right")
                subjects, predicates, objects = (column[first:stop] for column in encoded[name])
                parts.append((subjects, predicates, objects))
        subjects, predicates, objects = (np.concatenate(column) for column in zip(*parts, strict=True))
        yield subjects, predicates, objects


def _absorb(steps: list[Columns], kept: int) -> _Found:
    """Store all steps, the newest snapshots kept; measure, and count what each has."""
    arrangement = Arrangement("memory")
    trace = arrangement.trace
    handles: deque[tuple[int, Any]] = deque()
    for number, (subjects, predicates, objects) in enumerate(steps):
        sn = trace.upper
        graphs = np.full(len(subjects), GRAPH, np.int64)
        arrangement.absorb(sn, graphs, subjects, predicates, objects)
        handles.append((number, arrangement.open(sn, f"the benchmark, {number}")))
        if len(handles) > kept:
            handles.popleft()[1].close()
    size = trace.size_bytes + arrangement.filter_bytes
    why = ""
    for number, handle in handles:
        expected = _distinct(np.concatenate([_mix(columns) for columns in steps[: number + 1]]))
        found = sum(len(batch) for batch in handle.read().batches)
        if found != expected:
            why = why or f"answers otherwise: {expected} distinct triples expected at step {number}, {found} found"
        handle.close()
    trace.merge_all()
    return _Found(size, trace.size_bytes + arrangement.filter_bytes, _keys(steps), why)


def _keys(steps: list[Columns]) -> int:
    """Count subjects, and objects, with each of their predicates."""
    subjects, predicates, objects = (np.concatenate(column) for column in zip(*steps, strict=True))
    return _distinct(_mix((subjects, predicates, predicates))) + _distinct(_mix((objects, predicates, predicates)))


def _mix(columns: Columns) -> Int64Array:
    """Return a 64-bit mix of three ids."""
    subjects, predicates, objects = columns
    with np.errstate(over="ignore"):
        mix = subjects * 0x9E3779B97F4A7C1 + predicates
        return (mix ^ mix >> 29) * 0x3F58476D1CE4E5B + objects


def _distinct(mixes: Int64Array) -> int:
    return len(np.unique(mixes))
