"""Rows that a run sets aside: all of them in a file, the first ones shown at once, and whether there are too many.

The file of dead letters has one JSON object a line, and is made by the first row that is set aside. A run appends to it
and takes nothing away: a run that goes on where an earlier one stood does not meet the rows before again. `run` on each
line tells the runs apart.

Bad are rows that cannot be read (malformed) and those whose time runs backwards (late). Blank rows, comments and rows
that a mapping skips are no records. Too many are bad

* if the first FIRST_RECORDS of a source partition all are: the run stops at once;
* if more than bad_records_max of a partition's records are, at its end: the run ends, and then fails.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from wukongs.adapters.source import SetAside
from wukongs.errors import DataError, StorageError

FIRST_RECORDS = 1000
SHOWN_MAX = 5
COUNTED_EVERY_S = 5.0
LATE = "their times are before that of an earlier record"
OUT_OF_ORDER = (
    "`sort = true` of its source puts a file in order of time; lateness_ms of a source that goes on waits for them"
)
PART_ROWS = 500
PART_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class BadRows:
    """Some bad rows of one chunk of a source partition, few enough to travel: part number `part` of those of the chunk
    that begins with row first_offset. leading: how many of them come before every good row of their work item."""

    stream: str
    partition: str
    first_offset: int
    part: int
    leading: int
    rows: tuple[SetAside, ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "rows": [asdict(one) for one in self.rows]}

    @staticmethod
    def from_json(value: dict[str, Any]) -> BadRows:
        return BadRows(**{**value, "rows": tuple(SetAside(**one) for one in value["rows"])})


def bad_parts(
    stream: str, partition: str, first_offset: int, rows: Sequence[SetAside], first_good: int | None
) -> Iterator[BadRows]:
    """Divide the bad rows of a chunk. first_good: the first good row of the work item up to here, None: there is none.

    The parts are the same whenever the chunk is read again."""
    ordered = sorted(rows, key=lambda one: (one.line, one.column))
    start = number = 0
    while start < len(ordered):
        stop, characters = start, 0
        while stop < len(ordered) and stop - start < PART_ROWS and characters <= PART_CHARACTERS:
            characters += len(ordered[stop].text) + len(ordered[stop].reason)
            stop += 1
        part = tuple(ordered[start:stop])
        leading = sum(first_good is None or (one.row is not None and one.row < first_good) for one in part)
        yield BadRows(stream, partition, first_offset, number, leading, part)
        start, number = stop, number + 1


OnBadRows = Callable[[BadRows, bool], None]
"""Is told bad rows, and whether their partition has had good ones in an earlier work item."""


@dataclass(slots=True)
class PartitionCounts:
    """The records of a source partition in one run; is_finished: it is at its end; waiting: what it had beside, when it
    was looked at last."""

    good: int = 0
    bad: int = 0
    is_finished: bool = False
    waiting: int = 0


@dataclass(slots=True)
class _Taken:
    """A partition so far. place: of the last part, which a part that comes again does not exceed."""

    place: tuple[int, int] = (-1, -1)
    leading: int = 0
    example: SetAside | None = None
    reasons: Counter[str] = field(default_factory=Counter)


class BadRecords:
    """Takes the bad rows of one run, by one thread.

    path: the file of dead letters ("": none); share_max: bad_records_max; say: shows a line at once."""

    def __init__(
        self,
        path: str,
        share_max: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.count = 0
        self._share_max, self._say, self._clock = share_max, say, clock
        self._run = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._file: TextIO | None = None
        self._taken: dict[tuple[str, str], _Taken] = {}
        self._said_s = 0.0
        self._is_order_shown = False

    def take(self, part: BadRows, had_good: bool) -> None:
        """Write and show bad rows, once each; a part that comes again is passed over.

        Raises: DataError (the first records of this partition are all bad); StorageError (the file)."""
        taken = self._taken.setdefault((part.stream, part.partition), _Taken())
        place = part.first_offset, part.part
        if place <= taken.place:
            return
        taken.place = place
        self._write(part)
        self._show(part.rows)
        taken.example = taken.example or part.rows[0]
        taken.reasons.update(one.reason if one.time_ms is None else LATE for one in part.rows)
        taken.leading += 0 if had_good else part.leading
        if taken.leading >= FIRST_RECORDS and self._share_max < 1:
            raise self._unreadable(taken.example, taken)

    def past_rate(self, partitions: dict[tuple[str, str], PartitionCounts]) -> DataError | None:
        """Return the error of the partitions that are at their end and have more bad records than may be."""
        found = []
        for (stream, partition), counts in partitions.items():
            share = counts.bad / max(counts.good + counts.bad, 1)
            if counts.is_finished and share > self._share_max:
                most = self._most_frequent(self._taken.get((stream, partition), _Taken()))
                found.append(
                    f"{partition} (stream {stream}): {counts.bad:,} of {counts.good + counts.bad:,} records are bad "
                    f"({share:.1%}, bad_records_max is {self._share_max:.1%}){most}"
                )
        return DataError("; ".join(found) + self._where()) if found else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, part: BadRows) -> None:
        if not self.path:
            return
        lines = "".join(_line(self._run, part.stream, one) for one in part.rows)
        try:
            if self._file is None:
                self._file = self._open()
            self._file.write(lines)
            self._file.flush()
        except OSError as error:
            raise StorageError(
                f"{self.path}: the rows that are set aside cannot be written ({error.strerror}). Name another file by "
                "dead_letters under [pipeline]"
            ) from None

    def _open(self) -> TextIO:
        """Open the file to append to it, unless it is a file of something else."""
        path = Path(self.path)
        if path.exists() and not path.is_file() and not path.is_char_device():
            raise StorageError(f"{path}: expected a file for the rows that are set aside, found something else")
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as file:
                if file.read(8) != b'{"run": ':
                    raise StorageError(
                        f"{path}: expected a file of dead letters to append to, found one of something else. Name "
                        "another one by dead_letters under [pipeline]"
                    )
        return path.open("a", encoding="utf-8", errors="replace")

    def _show(self, rows: Sequence[SetAside]) -> None:
        """Show the first rows whole, then now and then how many there are."""
        for one in rows[: max(0, SHOWN_MAX - self.count)]:
            self._say(f"set aside: {one}")
        if not self._is_order_shown and any(one.time_ms is not None for one in rows):
            self._is_order_shown = True
            self._say(OUT_OF_ORDER)
        shown, self.count = min(self.count, SHOWN_MAX), self.count + len(rows)
        now = self._clock()
        if self.count > SHOWN_MAX and (shown < SHOWN_MAX or now - self._said_s >= COUNTED_EVERY_S):
            self._said_s = now
            self._say(f"{self.count:,} rows set aside so far{f', all in {self.path}' if self.path else ''}")

    def _unreadable(self, example: SetAside, taken: _Taken) -> DataError:
        return DataError(
            f"the first {taken.leading:,} records are all bad: nothing of it could be read. Check that the kind, the "
            f"mapping and the time under [[stream]] fit this file{self._most_frequent(taken)}. For example "
            f"{example}{self._where()}",
            example.file,
        )

    @staticmethod
    def _most_frequent(taken: _Taken) -> str:
        reasons = [f"{count:,} of them: {reason}" for reason, count in taken.reasons.most_common(3)]
        return f". Reasons: {'; '.join(reasons)}" if reasons else ""

    def _where(self) -> str:
        return f". All are in {self.path}" if self.path else ""


def _line(run: str, stream: str, one: SetAside) -> str:
    """Return one row as a line of the file; what is not known of it is left out."""
    fields = {
        "run": run,
        "kind": "malformed" if one.time_ms is None else "late",
        "reason": one.reason,
        "stream": stream,
        "file": one.file,
        "line": one.line,
        "column": one.column,
        "row": one.row,
        "byte": one.byte,
        "time_ms": one.time_ms,
        "text": one.text,
    }
    return json.dumps({name: value for name, value in fields.items() if value is not None}, ensure_ascii=False) + "\n"
