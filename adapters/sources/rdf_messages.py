"""RDF as messages: Turtle, TriG, N-Triples, N-Quads or JSON-LD, each message a small dataset with its time in it.

A message is a row. Its time is the literal that one predicate has in it. Blank nodes are scoped to their message: their
labels are made of the partition, the row and the order in which the message names them, so a replay makes the same.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyoxigraph as ox

from wukongs.adapters.mapping.templates import encoded_cell
from wukongs.adapters.mapping.times import time_of
from wukongs.adapters.run_config import MessageEnd, RdfSource
from wukongs.adapters.source import (
    IN_ORDER,
    NO_TIME,
    Lateness,
    RowRange,
    Rows,
    SetAside,
    SourceIndex,
    ahead_of_clock,
    changed,
    plain_copy,
    read_bytes,
    running_max,
    text_start,
)
from wukongs.adapters.sources.line_starts import line_at, map_file, row_starts
from wukongs.adapters.sources.mapped_rows import Place
from wukongs.adapters.sources.sorting import RowOrder, Say, order_of, say_nothing, sort_text
from wukongs.errors import DataError, SettingsError
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import utf8_fault
from wukongs.store.json_ld_text import Contexts
from wukongs.store.rdf_parser import parse_quads
from wukongs.store.snapshot import EVENT_MAX_MS, EVENT_MIN_MS

_ENDS: dict[str, MessageEnd] = {
    "ttl": "empty-line",
    "trig": "empty-line",
    "nt": "subject",
    "nq": "subject",
    "jsonld": "line",
}
"""The formats of messages, and where a message of each ends if the source does not say."""
_GAP = rb"(?:[ \t\r\n]|#[^\r\n]*)"
_VERSION = rb"version" + _GAP + rb"*(?:\"[^\"\r\n]*\"|'[^'\r\n]*')"
_DIRECTIVE = (
    rb"prefix" + _GAP + rb"+[^\s:#<>\"]*:" + _GAP + rb"*<[^<>\"\s]*>|base" + _GAP + rb"*<[^<>\"\s]*>|" + _VERSION
)
_PROLOGUES = {
    format: re.compile(
        _GAP + rb"*+(?:@(?:" + directive + rb")" + _GAP + rb"*\.|(?:" + directive + rb"))" + _GAP + rb"*+",
        re.IGNORECASE,
    )
    for formats, directive in ((("ttl", "trig"), _DIRECTIVE), (("nt", "nq"), _VERSION))
    for format in formats
}
"""A directive at the head of a file (Turtle 1.2, 6.5), with the gaps beside it."""
_PLACE = re.compile(
    r"^Parser error (?:at (?:line \d+ )?(?:between columns \d+ and \d+|column \d+)?"
    r"|between line \d+ column \d+ and line \d+ column \d+):? ?| \(line \d+\)$"
)


class _BadMessage(Exception):
    """A message that is set aside: line and column (from 1) in it, and why."""

    def __init__(self, line: int, column: int, reason: str) -> None:
        super().__init__(reason)
        self.line, self.column, self.reason = line, column, reason


@dataclass(frozen=True)
class MessageParser:
    """Makes rows of messages. partition: of their source; prologue: the prefixes at the head of a file, which hold for
    all of its messages; format: a name of _ENDS."""

    partition: str
    source: RdfSource
    format: str
    prologue: bytes = b""

    @cached_property
    def _scope(self) -> str:
        return encoded_cell("blank")[1](self.partition)

    def rows(
        self,
        messages: Sequence[bytes],
        times: Sequence[int] | None,
        numbers: Int64Array,
        floor_ms: int,
        place_of: Callable[[int], Place],
        scope: bytes,
        hash_bits: int,
        lateness: Lateness = IN_ORDER,
        bounds: Int64Array | None = None,
    ) -> Rows:
        """Parse and encode messages. numbers : int64[n_messages], ascending, the row of each; bounds :
        int64[n_messages], the latest time that each may have.

        times: of the messages, where they do not say it themselves; place_of: of a message by its number; lateness: how
        far one may lie behind the latest time."""
        from wukongs.store.encoder import encode_ntriples

        lines: list[str] = []
        of_lines: list[int] = []
        known = np.full(len(messages), NO_TIME, np.int64)
        bad: dict[int, _BadMessage] = {}
        latest = np.full(len(messages), NO_TIME, np.int64)
        newest, late = floor_ms, dict[int, tuple[int, int]]()
        for row, (data, number) in enumerate(zip(messages, numbers.tolist(), strict=True)):
            try:
                own = None if times is None else times[row]
                found, time = self.message(data, number, own, floor_ms=newest, lateness_ms=lateness.lateness_ms)
            except _BadMessage as fault:
                bad[row] = fault
                continue
            if bounds is not None and time > bounds[row]:
                bad[row] = _BadMessage(1, 1, ahead_of_clock(time, int(bounds[row])))
                continue
            latest[row] = max(newest, time)
            earliest_ms = int(lateness.earliest_ms(latest[row : row + 1])[0])
            if time < earliest_ms:
                late[row] = time, earliest_ms
                continue
            known[row] = time
            newest = max(newest, time)
            lines += found
            of_lines += [row] * len(found)
        text = "".join(lines)
        encoded, bad_lines = encode_ntriples(text.encode(), scope, hash_bits=hash_bits, first_line=0)
        if bad_lines:  # such as a relative IRI
            for one in bad_lines:
                bad.setdefault(of_lines[one.line], _BadMessage(1, 1, f"{one.reason} in {one.text[:200].rstrip()}"))
            kept = [place for place, row in enumerate(of_lines) if row not in bad]
            of_lines = [of_lines[place] for place in kept]
            text = "".join(lines[place] for place in kept)
            encoded, _ = encode_ntriples(text.encode(), scope, hash_bits=hash_bits, first_line=0)
        which = np.array(of_lines, np.int64)
        encoded = replace(encoded, timestamps=known[which])

        def set_aside(row: int, fault: _BadMessage, time_ms: int | None = None) -> SetAside:
            place = place_of(row)
            return replace(place, line=place.line + fault.line - 1).set_aside(fault.column, fault.reason, time_ms)

        malformed = [set_aside(row, fault) for row, fault in sorted(bad.items())]
        backwards = [
            set_aside(row, _BadMessage(1, 1, f"its time {time} ms is before {earliest} ms"), time)
            for row, (time, earliest) in late.items()
        ]
        held_by = lateness.numbers(known[which], latest[which])
        return Rows(encoded, numbers[which], malformed, backwards, newest, held_by)

    def message(
        self, data: bytes, row: int, time: int | None = None, floor_ms: int = NO_TIME, lateness_ms: int = 0
    ) -> tuple[list[str], int]:
        """Return the N-Quads lines of a message and its time, which it says itself if none is given. floor_ms: the
        latest time of all messages before; lateness_ms: how far one may lie behind it.

        Raises: _BadMessage."""
        quads = self._parsed(data)
        time = self._time(quads, floor_ms, lateness_ms) if time is None else time
        names: dict[str, str] = {}

        def written(term: object) -> str:
            if isinstance(term, ox.BlankNode):
                return names.setdefault(term.value, f"_:m{self._scope}r{row}n{len(names)}")
            if isinstance(term, ox.Triple):
                return f"<<( {written(term.subject)} {written(term.predicate)} {written(term.object)} )>>"
            return str(term)

        lines = []
        for quad in quads:
            terms = [written(quad.subject), written(quad.predicate), written(quad.object)]
            if not isinstance(quad.graph_name, ox.DefaultGraph):
                terms.append(written(quad.graph_name))
            lines.append(" ".join(terms) + " .\n")
        return lines, time

    def _parsed(self, data: bytes) -> list[ox.Quad]:
        if self.source.separator:  # it is the last line, if it is there
            data = re.split(rb"(?m)^\s*" + re.escape(self.source.separator.encode()) + rb"\s*$", data, maxsplit=1)[0]
        if fault := utf8_fault(data):
            before = data[: fault[0]].decode()
            raise _BadMessage(before.count("\n") + 1, len(before) - before.rfind("\n"), fault[1])
        text = io.BytesIO(self.prologue + data.rstrip())  # what ends too early does so on its own line
        try:
            return parse_quads(text, self.format, self.source.base, Contexts(self.source.contexts))
        except DataError as error:
            line = error.line - self.prologue.count(b"\n")
            raise _BadMessage(max(line, 1), 1, f"expected {self.format}: {error.message}") from None
        except SyntaxError as error:
            line = (error.lineno or 1) - self.prologue.count(b"\n")
            reason = _PLACE.sub("", str(error.msg))
            raise _BadMessage(max(line, 1), error.offset or 1, f"expected {self.format}: {reason}") from None
        except ValueError as error:
            raise _BadMessage(1, 1, f"expected {self.format}: {error}") from None

    def _time(self, quads: list[ox.Quad], floor_ms: int, lateness_ms: int) -> int:
        predicate = self.source.predicate
        of_time = [quad.object for quad in quads if quad.predicate.value == predicate]
        found = {term.value for term in of_time if isinstance(term, ox.Literal)}
        if len(found) != 1:
            what = "none" if not found else f"several: {', '.join(sorted(found))}"
            raise _BadMessage(1, 1, f"expected one time, by <{predicate}>, found {what}")
        (text,) = found
        time = time_of(text, self.source.time_format, floor_ms, lateness_ms)
        if time is None:
            raise _BadMessage(1, 1, f"expected {self.source.time_format} as <{predicate}>, found {text!r}")
        if not EVENT_MIN_MS <= time <= EVENT_MAX_MS:
            raise _BadMessage(1, 1, f"expected a time in 1935 to 2109 as <{predicate}>, found {text!r}")
        return time


@dataclass(frozen=True)
class RdfMessages:
    """path: the file in messages; plain: the file that is read.

    order : the places that the messages had before they were sorted; None if they are as in the file."""

    path: str
    plain: str
    parser: MessageParser
    order: RowOrder | None = None

    @property
    def partition(self) -> str:
        return self.parser.partition

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        """Read and encode a range. Raises: DataError (the file is gone or was changed)."""
        data = read_bytes(self.plain, rows.first_byte, rows.end_byte)
        if self.order is None:
            starts = _starts(data, 0, self.parser.source, self.parser.format)
        else:
            starts = np.append(self.order.starts(rows.first_offset, rows.end_offset) - rows.first_byte, len(data))
        if len(starts) - 1 != rows.end_offset - rows.first_offset:
            raise changed(self.path)
        messages = [data[begin:end] for begin, end in pairwise(starts.tolist())]

        @cache
        def line_starts() -> tuple[int, Int64Array]:
            return line_at(self.plain, rows.first_byte), row_starts(data)

        def place_of(row: int) -> Place:
            first, of_lines = line_starts()
            begin = int(starts[row])
            line, byte = first + int(np.searchsorted(of_lines, begin)), rows.first_byte + begin
            if self.order is not None:
                byte, line = self.order.place(rows.first_offset + row)
            text = messages[row].decode("utf-8", "backslashreplace").rstrip("\r\n")
            return Place(self.path, line, rows.first_offset + row, byte, text)

        numbers = np.arange(rows.first_offset, rows.end_offset, dtype=np.int64)
        return self.parser.rows(messages, None, numbers, rows.floor_ms, place_of, scope, hash_bits)


def prepare_rdf(config: RdfSource, path: str, folder: Path, say: Say = say_nothing) -> tuple[RdfMessages, SourceIndex]:
    """Open a file of messages and index them; .gz is unpacked into the folder.

    Raises: DataError (it cannot be read); SettingsError (a format that its name does not tell)."""
    ending = Path(path.removesuffix(".gz")).suffix.lower().removeprefix(".")
    format = config.format or {"json": "jsonld", "jsonl": "jsonld", "ntriples": "nt", "nquads": "nq"}.get(
        ending, ending
    )
    if format not in _ENDS:
        raise SettingsError(f"{path}: expected one of {', '.join(_ENDS)} at the end of its name: give `format`")
    plain = plain_copy(path, folder)
    array = map_file(plain, path)
    data = array.data
    first = text_start(data)
    prologue_end = first
    if format in _PROLOGUES:
        while match := _PROLOGUES[format].match(data, prologue_end):
            prologue_end = match.end()
    prologue = (
        bytes(data[first:prologue_end]) if format in ("ttl", "trig") else b""
    )  # VERSION is not the parser's there
    if prologue and not prologue.endswith((b"\n", b"\r")):
        prologue += b"\n"  # a message begins on its last line
    parser = MessageParser(Path(path).name, config, format, prologue)
    starts = _starts(data, prologue_end, config, format)
    times = np.full(len(starts) - 1, NO_TIME, np.int64)
    newest_ms = NO_TIME
    for row in range(len(times)):
        try:
            times[row] = parser.message(bytes(data[starts[row] : starts[row + 1]]), row, floor_ms=newest_ms)[1]
            newest_ms = max(newest_ms, int(times[row]))
        except _BadMessage:
            continue
    row_order = None
    if config.is_sorted and (order := order_of(times)) is not None:
        plain, starts, row_order = sort_text(array, starts, order, b"\n", path, folder, say)
        times = times[order]
    return RdfMessages(path, plain, parser, row_order), SourceIndex(running_max(times), starts)


def _starts(data: bytes | memoryview, first: int, source: RdfSource, format: str) -> Int64Array:
    """Return where each message of data[first:] begins, and the end. A message without content is none: it belongs to
    the one before it."""
    end = source.messages or _ENDS[format]
    separator = source.separator.encode()
    starts: list[int] = []
    is_open, subject = False, b""
    for begin, stop in pairwise(row_starts(data, first).tolist()):
        line = bytes(data[begin:stop]).strip()
        if (separator and line == separator) or (not separator and end == "empty-line" and not line):
            is_open = False
            continue
        if not line or line.startswith(b"#"):
            continue
        if not separator and end == "line":
            is_open = False
        elif not separator and end == "subject":
            is_open, subject = is_open and subject == line.split(None, 1)[0], line.split(None, 1)[0]
        if not is_open:
            starts.append(begin)
            is_open = True
    return np.array([*starts, len(data)] if starts else [len(data)], np.int64)
