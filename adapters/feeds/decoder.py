"""Decoder: messages that came from anywhere become rows, by the formats and mappings that files have, too."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, repeat

import numpy as np
import pyarrow as pa

from wukongs.adapters.feeds.spool import NO_BOUND, Frame, starts_of
from wukongs.adapters.mapping.json_paths import is_json_path, key_of
from wukongs.adapters.mapping.mapping import FILE, MESSAGE_TIME, Csv
from wukongs.adapters.mapping.tables import Table
from wukongs.adapters.mapping.triples import Mapper
from wukongs.adapters.run_config import Format, RdfSource, RecordSource, TimestampedSource
from wukongs.adapters.source import IN_ORDER, NO_TIME, Lateness, Rows, SetAside, ahead_of_clock
from wukongs.adapters.sources.csv_records import CsvRecords
from wukongs.adapters.sources.json_records import JsonRecords
from wukongs.adapters.sources.mapped_rows import Place, Read, make_triples
from wukongs.adapters.sources.rdf_messages import MessageParser
from wukongs.adapters.sources.timestamped_file import scan, timestamped_rows
from wukongs.query.terms.arrow_texts import TEXT
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import TermCutter


@dataclass(frozen=True)
class Decoder:
    """Makes rows of the messages of one source partition.

    name: of the source in reports, where a message names no file; lateness: how far a row may lie behind the latest
    time; jump_max_ms: how far it may be ahead of when it came, where its frame does not decide that (0: any time)."""

    partition: str
    name: str
    format: Format
    lateness: Lateness = IN_ORDER
    jump_max_ms: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        return self.format.mapping.columns if isinstance(self.format, RecordSource) else ()

    @cached_property
    def _mapper(self) -> Mapper:
        assert isinstance(self.format, RecordSource), self.format
        return Mapper(self.format.mapping, {**dict(self.format.constants), FILE: self.partition})

    @cached_property
    def _parser(self) -> MessageParser:
        assert isinstance(self.format, RdfSource), self.format
        return MessageParser(self.partition, self.format, self.format.format or "ttl")

    def rows(self, frames: Sequence[Frame], floor_ms: int, scope: bytes, hash_bits: int) -> Rows:
        """Return the rows of frames that follow each other, all with the same columns. floor_ms: the latest time of all
        rows before."""
        from wukongs.store.encoder import encode_ntriples

        if not frames:
            return Rows(encode_ntriples(b"", scope, hash_bits=hash_bits)[0], np.zeros(0, np.int64), [], [], floor_ms)
        format, block = self.format, _Block(self.name, frames)
        first = block.first_row
        if isinstance(format, RecordSource):
            read = Read(self._table(block, format), first, block.place_of)
            latest = block.latest(self.jump_max_ms)
            made = make_triples(self._mapper, read, first, floor_ms, scope, hash_bits, self.lateness, latest)
            return made.reported()
        if isinstance(format, RdfSource):
            times = None if format.predicate else block.times()
            return self._parser.rows(
                block.messages(),
                times,
                block.numbers,
                floor_ms,
                block.place_of,
                scope,
                hash_bits,
                self.lateness,
                block.latest(self.jump_max_ms),
            )
        return self._timestamped(block, format, floor_ms, scope, hash_bits)

    def _timestamped(
        self, block: _Block, format: TimestampedSource, floor_ms: int, scope: bytes, hash_bits: int
    ) -> Rows:
        """Return the rows of lines. A message may hold several: then their message, which is a row, has the time of the
        first one, and all that is said of lines is said of it."""
        from wukongs.store.encoder import encode_ntriples

        data, message_starts = block.as_lines()
        starts, times = scan(np.frombuffer(data, np.uint8), 0, format.timestamps, graphs=True)
        encoded, bad_lines = encode_ntriples(
            data, scope, timestamps=format.timestamps, hash_bits=hash_bits, first_line=0
        )
        of_lines = np.searchsorted(message_starts, starts[:-1], side="right") - 1

        def describe(line: int, column: int, reason: str) -> SetAside:
            return block.place_of(int(of_lines[line])).set_aside(column, reason)

        timed = np.flatnonzero(times != NO_TIME)
        _, firsts, places = np.unique(of_lines[timed], return_index=True, return_inverse=True)
        of_messages = times[timed][firsts][places]
        others = np.flatnonzero(times[timed] != of_messages)
        of_others = [
            describe(line, 1, f"its time {times[line]} ms is not that of its message, {time_ms} ms")
            for line, time_ms in zip(timed[others].tolist(), of_messages[others].tolist(), strict=True)
        ]
        kept = times[timed] == of_messages
        latest = block.latest(self.jump_max_ms)
        if latest is not None:
            ahead = np.flatnonzero(kept & (times[timed] > latest[of_lines[timed]]))
            kept[ahead] = False
            of_others += [
                describe(line, 1, ahead_of_clock(times[line], latest[of_lines[line]])) for line in timed[ahead].tolist()
            ]
        if of_others:
            encoded = TermCutter(encoded).cut(np.flatnonzero(kept))
            times[timed[~kept]] = NO_TIME
        rows = timestamped_rows(encoded, bad_lines, times, 0, floor_ms, describe, self.lateness)
        return replace(rows, offsets=block.numbers[of_lines[rows.offsets]], malformed=[*rows.malformed, *of_others])

    def _table(self, block: _Block, format: RecordSource) -> Table:
        names = format.mapping.columns
        own = tuple(name for name in names if name not in block.cells and name != MESSAGE_TIME)
        if format.kind == "jsonl":
            mapping = format.mapping
            table = JsonRecords(is_lines=True).table(block.messages(), own, mapping.typed, mapping.iterators)
        else:
            csv = format.mapping.csv or Csv(delimiters="\t" if format.kind == "tsv" else ",")
            records = CsvRecords(csv, block.columns or csv.columns)
            table, _ = records.table(block.data, block.count, own, block.name, block.starts)
        table.numbers = block.numbers
        if MESSAGE_TIME in names:
            table.names[MESSAGE_TIME] = pa.array([str(time) for time in block.times()], TEXT)
        for name in names:
            beside = key_of(name) if format.kind == "jsonl" and is_json_path(name) else name
            if beside in block.cells:
                table.names[name] = pa.array(block.cells[beside], TEXT)
                table.types.pop(name, None)
        for name in set(own) - table.names.keys():  # of a file whose header does not have it
            table.names[name] = pa.nulls(block.count, TEXT)
        return table


class _Block:
    """Frames as one sequence of records."""

    def __init__(self, name: str, frames: Sequence[Frame]) -> None:
        self.name, self._frames = name, frames
        self.first_row = frames[0].first_row
        self.columns = frames[0].columns
        self.data = b"".join(frame.data for frame in frames)
        self.starts: Int64Array = starts_of(np.concatenate([frame.lengths for frame in frames]))
        self.count = len(self.starts) - 1
        self.numbers: Int64Array = np.concatenate([frame.numbers for frame in frames])
        names = {name for frame in frames for name in frame.cells}
        self.cells = {
            name: [text for frame in frames for text in frame.cells.get(name, [None] * len(frame.lengths))]
            for name in names
        }

    def messages(self) -> list[bytes]:
        return [self.data[begin:end] for begin, end in pairwise(self.starts.tolist())]

    def as_lines(self) -> tuple[bytes, Int64Array]:
        """Return the messages, each of which ends a line, and where each begins."""
        ends = self.starts[1:]
        lengths = np.diff(self.starts)
        if self.count and lengths.all() and (np.frombuffer(self.data, np.uint8)[ends - 1] == 10).all():
            return self.data, self.starts[:-1]
        ended = [one if one.endswith(b"\n") else one + b"\n" for one in self.messages()]
        return b"".join(ended), starts_of([len(one) for one in ended])[:-1]

    def times(self) -> list[int]:
        return [
            time
            for frame in self._frames
            for time in (repeat(frame.time_ms, len(frame.lengths)) if frame.times is None else frame.times.tolist())
        ]

    def latest(self, jump_max_ms: int) -> Int64Array | None:
        """Return the latest event time that each message may have, int64[n]; None where none is bounded. jump_max_ms:
        for frames that were not decided on when they came."""
        found = []
        for frame in self._frames:
            count = len(frame.lengths)
            if frame.latest_ms is not None or not jump_max_ms:
                found.append(np.full(count, NO_BOUND if frame.latest_ms is None else frame.latest_ms, np.int64))
            else:
                times = np.full(count, frame.time_ms, np.int64) if frame.times is None else frame.times
                found.append(np.where(times > 0, times + jump_max_ms, NO_BOUND))  # 0: of a broker that says none
        latest = np.concatenate(found)
        return None if (latest == NO_BOUND).all() else latest

    def place_of(self, row: int) -> Place:
        """Say where a record stands: in its file, or as which message it came."""
        number = int(self.numbers[row])
        at = bisect_right([frame.first_row for frame in self._frames], number) - 1
        frame = self._frames[at]
        begin, end = self.starts[row : row + 2].tolist()
        text = self.data[begin:end].decode("utf-8", "backslashreplace").rstrip("\r\n")
        if frame.rows is not None:
            return Place(f"{self.name}, offset {number}", 1, number, None, text)
        if not frame.file:
            return Place(self.name, number + 1, number, None, text)
        inside = begin - int(self.starts[frame.first_row - self.first_row])
        return Place(frame.file, frame.line + number - frame.first_row, number, frame.byte + inside, text)
