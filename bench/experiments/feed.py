"""A benchmark's data as the experiments take it: stored triples, streams, and queries over windows of them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import wukongs
from wukongs.bench.lsbench.data import StreamData

if TYPE_CHECKING:
    import pyarrow as pa

SETTLE_S = 600.0


@dataclass(frozen=True, slots=True)
class WindowQuery:
    """One continuous query. register_text: C-SPARQL; select_text: the same as plain SPARQL, windows as named graphs;
    streams: IRIs of those that it reads."""

    name: str
    register_text: str
    select_text: str
    streams: tuple[str, ...]


@dataclass(frozen=True)
class Feed:
    """stored: N-Triples, the default graph; streams: by IRI; timing: those that only live in windows.

    A firing is due every step_ms, and stream batches last batch_ms. Windows that end from first_ms to last_ms count:
    they are whole, and every stream that joins them has data up to there. expected: (query, end_ms) -> rows, where the
    data's own README states them. others: queries that are measured alone, and not among all that are registered."""

    stored: bytes
    streams: Mapping[str, StreamData]
    timing: frozenset[str]
    queries: tuple[WindowQuery, ...]
    range_ms: int
    step_ms: int
    batch_ms: int
    first_ms: int
    last_ms: int
    expected: Mapping[tuple[str, int], int] = field(default_factory=dict)
    others: tuple[WindowQuery, ...] = ()

    @cached_property
    def tables(self) -> dict[str, pa.Table]:
        """The columns that push_many takes, by stream."""
        return {name: stream.table() for name, stream in self.streams.items()}

    def pushes(
        self, first_ms: int, last_ms: int, only: tuple[str, ...] | None = None
    ) -> Iterator[tuple[int, dict[str, pa.Table]]]:
        """Yield (end_ms, the tuples of each stream in the step before it), from after first_ms up to last_ms.
        only: of these streams."""
        for end_ms in range(first_ms + self.step_ms, last_ms + 1, self.step_ms):
            parts = {}
            for name in only or self.streams:
                bounds = np.searchsorted(self.streams[name].times, (end_ms - self.step_ms, end_ms), side="right")
                start, stop = (0, bounds[1]) if end_ms == self.step_ms else bounds.tolist()
                if stop > start:
                    parts[name] = self.tables[name].slice(start, stop - start)
            yield end_ms, parts

    def window(self, query: WindowQuery, end_ms: int) -> dict[str, bytes]:
        """Return the N-Triples of the windows of a query that end at a time."""
        return {name: self.streams[name].between(end_ms - self.range_ms, end_ms) for name in query.streams}

    @contextmanager
    def engine(
        self,
        only: tuple[str, ...] | None = None,
        data_dir: Path | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Iterator[wukongs.Engine]:
        """Load the stored graph into an engine of its own, and declare the streams. only: these streams."""
        with wukongs.Engine(data_dir, settings=settings) as engine:
            engine.load(io.BytesIO(self.stored), format="nt")
            for name in only or self.streams:
                stream = engine.stream(
                    name, timing=name in self.timing, batch_ms=self.batch_ms, history_ms=self.range_ms
                )
                stream.advance(0)
            yield engine

    @property
    def too_short(self) -> str:
        """Why there is no whole window in it; empty where there is one."""
        if self.last_ms >= self.first_ms:
            return ""
        return f"the streams are too short: {self.last_ms} ms at this rate, {self.first_ms} ms for the first window"

    def tuples_per_s(self) -> float:
        """Return how many tuples a second of the replay has, of all streams."""
        counts = [np.searchsorted(stream.times, self.last_ms, side="right") for stream in self.streams.values()]
        return float(sum(counts)) * 1000 / self.last_ms
