"""How the event time of LSBench's data is replayed: a day as a second, with the paper's windows of 1 s every 100 ms.

Streams stay aligned by event time: replayed each at a rate of its own, likes run ahead of what they like, and L5 and L6
measure empty joins. All five are pushed, whichever a query reads. A rate of 2 replays a day in half a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wukongs.bench.experiments.feed import Feed, WindowQuery
from wukongs.bench.lsbench.data import DAY_MS, IRI, TIMING, LsbenchData, StreamData
from wukongs.bench.lsbench.queries import OTHERS, QUERIES, BenchQuery

if TYPE_CHECKING:
    import pyarrow as pa

EXPECTED = {
    11: {"L1": 0, "L2": 0, "L3": 18, "L4": 568, "L5": 1673, "L6": 1033},
    26: {"L1": 2, "L2": 2, "L3": 87, "L4": 1500, "L5": 7115, "L6": 2500},
}
"""Rows of the windows that end with a day, from the README of the 1,000-user sample (user u864, person p864)."""


@dataclass(frozen=True, slots=True)
class Form:
    """How event time is replayed: divided by `divisor`; a day then lasts day_ms. range and step in ms."""

    name: str
    divisor: int
    batch_ms: int
    range_ms: int
    step_ms: int

    @property
    def day_ms(self) -> int:
        return DAY_MS // self.divisor


REPLAY = Form("1 day = 1 s, windows 1 s / 100 ms", 86_400, 100, 1000, 100)


@dataclass(slots=True)
class Replay:
    """The streams of the data, ready to push: tables by stream, and the bounds of their parts by push."""

    form: Form
    tables: dict[str, pa.Table]
    times: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]

    @staticmethod
    def of(data: LsbenchData, form: Form) -> Replay:
        import pyarrow as pa

        tables, times = {}, {}
        for name, stream in data.streams.items():
            times[name] = _replayed(stream, form.divisor)
            table = stream.table()
            at = table.column_names.index("timestamp_ms")
            tables[name] = table.set_column(at, "timestamp_ms", pa.array(times[name]))
        return Replay(form, tables, times)

    def pushes(self, last_day: int) -> Iterator[tuple[int, dict[str, pa.Table]]]:
        """Yield (time in ms, the tuples of each stream up to it that were not pushed yet), one firing apart."""
        done = dict.fromkeys(self.tables, 0)
        for end_ms in range(self.form.step_ms, last_day * self.form.day_ms + 1, self.form.step_ms):
            parts = {}
            for name, table in self.tables.items():
                stop = int(np.searchsorted(self.times[name], end_ms, side="right"))
                if stop > done[name]:
                    parts[name] = table.slice(done[name], stop - done[name])
                    done[name] = stop
            yield end_ms, parts


def _replayed(stream: StreamData, divisor: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the times of a stream in the replay. The window (t - r, t] that ends with a day has to hold the whole day,
    its first millisecond included."""
    return (stream.times / divisor).astype(np.int64) + 1


def feed_of(data: LsbenchData, rate: float = 1.0) -> Feed:
    """Return the data as the experiments take it. rate: 1 replays a day in one second."""
    divisor = REPLAY.divisor * rate
    streams = {IRI[name]: StreamData(stream.lines, _replayed(stream, divisor)) for name, stream in data.streams.items()}
    posts_last_ms = min(int(streams[IRI[name]].times[-1]) for name in data.streams if name not in TIMING)

    def over_windows(query: BenchQuery) -> WindowQuery:
        text = query.register_text(f"{REPLAY.range_ms}ms", f"{REPLAY.step_ms}ms", data.user, data.person)
        streams = tuple(IRI[name] for name in query.streams)
        return WindowQuery(query.name, text, query.select_text(data.user, data.person), streams)

    expected = (
        {(name, day * REPLAY.day_ms): rows for day, counts in EXPECTED.items() for name, rows in counts.items()}
        if data.is_sample and rate == 1.0
        else {}
    )
    return Feed(
        stored=data.stored,
        streams=streams,
        timing=frozenset(IRI[name] for name in TIMING),
        queries=tuple(map(over_windows, QUERIES)),
        others=tuple(map(over_windows, OTHERS)),
        range_ms=REPLAY.range_ms,
        step_ms=REPLAY.step_ms,
        batch_ms=REPLAY.batch_ms,
        first_ms=REPLAY.range_ms,
        last_ms=posts_last_ms // REPLAY.step_ms * REPLAY.step_ms,
        expected=expected,
    )
