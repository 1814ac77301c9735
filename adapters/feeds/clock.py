"""A clock (`kind = "clock"`): a tick each n ms of wall time, to join other streams with.

Row k is the tick at k * every_ms since 1970, so the rows that the nodes have say where a run goes on, and no tick comes
twice. Nothing is kept: a worker makes a tick from its number. Two things move the numbers against the ticks: a run that
begins at nodes with rows of ticks that are more than a day ahead (every_ms was smaller, or the clock was wrong), and a
clock that is set ahead by very many ticks. Ticks between two runs are left out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from wukongs.adapters.feeds.feed import NO_WAITS, Feed, FeedKind, Look, Opening
from wukongs.adapters.source import RowRange, Rows, SetAside, rows_of
from wukongs.errors import SettingsError
from wukongs.live.wall_clock import DAY_MS, wall_clock_ms
from wukongs.query.terms.names import graph_term
from wukongs.settings.toml_reader import TableReader

TICK = "urn:x-wukongs:tick"
DATE_TIME = "http://www.w3.org/2001/XMLSchema#dateTime"
_ABSOLUTE = re.compile(r"<[A-Za-z][A-Za-z0-9+.-]*:")
AT_ONCE_MAX = 100_000
"""So many ticks are made up for when a run was held up; of more, as after a clock was set ahead, only the last one."""


@dataclass(frozen=True, slots=True)
class ClockOptions:
    """every_ms: between two ticks; subject (None: the stream's IRI), predicate: of their triples, with brackets."""

    every_ms: int
    subject: str | None
    predicate: str


@dataclass(frozen=True)
class ClockSource:
    """The workers' side: a range says by its first_byte which tick its first row is."""

    partition: str
    subject: str
    predicate: str
    every_ms: int

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        """Make the ticks of a range. One that is not behind floor_ms, since the clock was set back, is set aside."""
        from wukongs.store.encoder import encode_ntriples

        count = rows.end_offset - rows.first_offset
        times = [(rows.first_byte + place) * self.every_ms for place in range(count)]
        text = "".join(self._line(time_ms) for time_ms in times)
        encoded, _ = encode_ntriples(text.encode(), scope, timestamps="suffix", hash_bits=hash_bits)

        def describe(row: int, column: int, reason: str) -> SetAside:
            line = self._line(times[row - rows.first_offset]).rstrip("\n")
            return SetAside(self.partition, row + 1, column, reason, line, row)

        offsets = np.arange(rows.first_offset, rows.end_offset, dtype=np.int64)
        return rows_of(encoded, offsets, [], rows.floor_ms, describe)

    def _line(self, time_ms: int) -> str:
        return f'{self.subject} {self.predicate} "{date_time(time_ms)}"^^<{DATE_TIME}> . {time_ms}\n'


def date_time(time_ms: int) -> str:
    """Return a time as an xsd:dateTime of UTC, in its canonical form: no zeros at the end of a fraction."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{time_ms % 1000:03}".rstrip("0")
    return f"{moment}{'.' if fraction else ''}{fraction}Z"


class ClockFeed:
    """The ticks up to now. Nothing comes at or before now any more, so nobody waits for the next one."""

    def __init__(
        self, stream: str, source: ClockSource, say: Callable[[str], None], now_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self.stream, self.waits = stream, NO_WAITS
        self.source: ClockSource = source
        self._say, self._now_ms = say, now_ms
        self._every_ms = source.every_ms
        self._starts: list[tuple[int, int]] = [(0, 0)]
        """From which row on rows are which ticks: (row, number of its tick), ascending."""
        self._end_row = 0

    def begin(self, row: int, had: Sequence[int] = ()) -> int:
        row = max((row, *had))
        following = self._tick() + 1
        if row <= following:  # row k is tick k
            if row:
                self._say(f"{self._name}: {following - row:,} ticks since the last run are left out")
            self._starts, row = [(0, 0)], following
        elif row - following <= DAY_MS // self._every_ms:  # the clock was set back since then
            last = date_time((row - 1) * self._every_ms)
            self._say(f"{self._name}: no ticks until {last}, the last one of an earlier run: the clock was set back")
        else:
            self._starts.append((row, following))
        self._end_row = row
        return row

    def look(self) -> Look:
        now_ms = self._now_ms()
        row, tick = self._starts[-1]
        now_tick = now_ms // self._every_ms
        end_row = max(self._end_row, row + now_tick - tick + 1)
        if (count := end_row - self._end_row) > AT_ONCE_MAX:
            self._say(f"{self._name}: the clock is ahead by {count:,} ticks: all but one are left out")
            self._starts.append((self._end_row, now_tick))
            end_row = self._end_row + 1
        self._end_row = end_row
        return Look(end_row, is_open=True, is_heard=True, complete_ms=now_ms)

    def ranges(self, first: int, end: int, floor_ms: int) -> Sequence[RowRange]:
        found = []
        while first < end:
            place = bisect_right(self._starts, first, key=lambda start: start[0]) - 1
            row, tick = self._starts[place]
            last = min([end, *(start[0] for start in self._starts[place + 1 : place + 2])])
            found.append(RowRange(first, last, tick + first - row, tick + last - row, floor_ms))
            first = last
        return found

    def release(self, row: int) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def _name(self) -> str:
        return f"{self.stream}, {self.source.partition}"

    def _tick(self) -> int:
        return self._now_ms() // self._every_ms


def _options(reader: TableReader) -> ClockOptions:
    return ClockOptions(
        every_ms=reader.integer("every_ms", 1000, low=1) or 0,
        subject=_iri(reader, "subject"),
        predicate=_iri(reader, "predicate") or f"<{TICK}>",
    )


def _iri(reader: TableReader, key: str) -> str | None:
    text = reader.optional_text(key)
    return None if text is None else graph_term(reader.checked(key, text, graph_term)).text


def _feeds(opening: Opening) -> list[Feed]:
    options: ClockOptions = opening.options
    subject = options.subject or f"<{opening.stream}>"
    for name, found in (("subject", subject), ("predicate", options.predicate)):
        if not _ABSOLUTE.match(found):
            raise SettingsError(
                f'stream {opening.stream}, source of kind "clock": {name} {found}: expected an absolute IRI, such as '
                "<http://example.org/clock>"
            )
    source = ClockSource(opening.name or "clock", subject, options.predicate, options.every_ms)
    return [ClockFeed(opening.stream, source, opening.say)]


KIND = FeedKind(options=_options, feeds=_feeds, has_messages=False)
