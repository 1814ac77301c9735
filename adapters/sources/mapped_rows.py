"""Records through a mapping: what is read of a range becomes triples, and reports of the records set aside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from wukongs.adapters.mapping.tables import Table
from wukongs.adapters.mapping.triples import Mapper
from wukongs.adapters.source import IN_ORDER, NO_TIME, TEXT_MAX, Lateness, Rows, SetAside
from wukongs.store.dtypes import Int64Array, UInt8Array
from wukongs.store.encoded import Encoded

_LINE_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is found again: a file or source, the line in it (from 1), the row of the source partition, the
    byte if it is known; and its text."""

    file: str
    line: int
    row: int
    byte: int | None
    text: str

    def set_aside(self, column: int, reason: str, time_ms: int | None = None) -> SetAside:
        return SetAside(self.file, self.line, column, reason, self.text[:TEXT_MAX], self.row, self.byte, time_ms)


@dataclass(frozen=True, slots=True)
class Read:
    """The records of a range. place_of: of a row of the table."""

    table: Table
    first_offset: int
    place_of: Callable[[int], Place]


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """The triples of a range: as they are sent, and as N-Triples lines (uint8[n_bytes]).

    rows : int64[n_triples], the offset of each. backwards: row of the range, its time, and the earliest time that would
    have done. newest_ms: the latest time of all records up to the end; numbers: see Rows."""

    read: Read
    encoded: Encoded
    text: UInt8Array
    rows: Int64Array
    backwards: list[tuple[int, int, int]]
    newest_ms: int
    numbers: Int64Array | None = None

    def reported(self) -> Rows:
        """Return what was made, with a report of each record that was set aside."""
        place_of = self.read.place_of
        malformed = [place_of(row).set_aside(*fault) for row, fault in sorted(self.read.table.bad.items())]
        backwards = [
            place_of(row).set_aside(1, f"its time {time_ms} ms is before {earliest_ms} ms", time_ms)
            for row, time_ms, earliest_ms in self.backwards
        ]
        return Rows(self.encoded, self.rows, malformed, backwards, self.newest_ms, self.numbers)


def make_triples(
    mapper: Mapper,
    read: Read,
    first_row: int | Int64Array,
    floor_ms: int,
    scope: bytes,
    hash_bits: int,
    lateness: Lateness = IN_ORDER,
    bounds: Int64Array | None = None,
) -> Made:
    """Make the triples of what was read.

    first_row: the number of its first record, as {_row} says it, or int64[n_rows], those of all records; floor_ms: the
    latest time of all records before; lateness: how far a record may lie behind the latest time; bounds :
    int64[n_records], the latest time that each may have."""
    from wukongs.store.encoder import encode_ntriples

    table = read.table
    times = mapper.times(table, read.first_offset, floor_ms, lateness.lateness_ms, bounds)
    lines, wanted = mapper.lines(table, first_row, times)
    encoded, bad_lines = encode_ntriples(lines.text.data, scope, hash_bits=hash_bits, first_line=0)
    for one in bad_lines:  # an IRI or a language tag that is none
        table.blame(
            int(lines.rows[one.line]), None, f"makes no triple: {one.reason} in {one.text[:_LINE_SHOWN_MAX].rstrip()}"
        )
    latest = np.maximum(np.maximum.accumulate(times), floor_ms) if len(times) else times
    earliest = lateness.earliest_ms(latest)
    numbers = lateness.numbers(times, latest)
    is_late = (times < earliest) & (times != NO_TIME) & wanted
    is_late[[*table.bad, *table.blank]] = False
    backwards = [(row, int(times[row]), int(earliest[row])) for row in np.flatnonzero(is_late).tolist()]
    is_late[list(table.bad)] = True
    if bad_lines or backwards:
        lines = lines.cut(np.flatnonzero(~is_late[lines.rows]))
        encoded, _ = encode_ntriples(lines.text.data, scope, hash_bits=hash_bits, first_line=0)
    encoded = replace(encoded, timestamps=times[lines.rows])
    newest_ms = int(latest[-1]) if len(latest) else floor_ms
    rows = table.numbered(read.first_offset)[lines.rows]
    numbers = None if numbers is None else numbers[lines.rows]
    return Made(read, encoded, lines.text, rows, backwards, newest_ms, numbers)
