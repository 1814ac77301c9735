"""Stream files of the LSBench generator: `.nt` with prefixed names, one triple a line, and `.ts` with its times.

The `.nt` begins with @prefix lines, then line i belongs to line i of the `.ts`. Literals may hold spaces: a line is
split at its first two spaces. The predicate `a` is rdf:type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wukongs.adapters.run_config import LsbenchSource
from wukongs.adapters.source import (
    NO_TIME,
    RowRange,
    Rows,
    SetAside,
    SourceIndex,
    changed,
    plain_copy,
    read_bytes,
    rows_of,
    running_max,
)
from wukongs.adapters.sources import rows_kernels as kernels
from wukongs.adapters.sources.line_starts import map_file, readonly, row_starts
from wukongs.adapters.sources.timestamped_file import RowText
from wukongs.errors import DataError
from wukongs.store.dtypes import Int64Array, UInt8Array

RDF_TYPE = b"<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_PREFIX_LINE = re.compile(rb"@prefix\s+(?P<name>[\w.-]*):\s*<(?P<iri>[^<>\s]*)>\s*\.\s*\r?\n?")
_REASONS = {
    kernels.BAD_FIELDS: "expected subject, predicate and object, parted by single spaces",
    kernels.BAD_PREFIX: "expected a name with one of the file's prefixes",
    kernels.BAD_DOT: "expected ' .' at the end of the line",
    kernels.BAD_LITERAL: "this literal has no closing quote",
}


@dataclass(frozen=True, slots=True)
class LsbenchFile:
    """path, times_path: the files in messages; plain, plain_times: the files that are read. Row 0 is on line
    first_line."""

    path: str
    times_path: str
    plain: str
    plain_times: str
    prefixes: tuple[tuple[bytes, bytes], ...]
    first_line: int

    @property
    def partition(self) -> str:
        return Path(self.path).name

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        """Read and encode a range. Raises: DataError (the file is gone or was changed)."""
        from dataclasses import replace

        from wukongs.store.encoder import encode_ntriples

        data = read_bytes(self.plain, rows.first_byte, rows.end_byte)
        times = np.load(self.plain_times, mmap_mode="r")[rows.first_offset : rows.end_offset]
        starts = row_starts(data)
        row_count = len(starts) - 1
        if row_count != rows.end_offset - rows.first_offset:
            raise changed(self.path)
        expanded, status, places = expand(data, self.prefixes, row_count)
        describe = RowText(self.path, rows, self.first_line, data, starts)
        malformed = self._malformed(rows, data, status, places, np.asarray(times), describe)
        lines = np.flatnonzero(status == kernels.OK)
        encoded, bad_lines = encode_ntriples(expanded, scope, hash_bits=hash_bits, first_line=0)
        bad = [one.line for one in bad_lines]
        malformed += [describe(rows.first_offset + int(lines[one.line]), 1, one.reason) for one in bad_lines]
        good = np.delete(lines, bad)
        timed = np.asarray(times)[good]
        offsets = rows.first_offset + good
        encoded = replace(encoded, timestamps=np.array(timed, np.int64))
        if np.any(timed == NO_TIME):
            from wukongs.store.encoded import TermCutter

            kept = np.flatnonzero(timed != NO_TIME)
            encoded, offsets = TermCutter(encoded).cut(kept), offsets[kept]
        return rows_of(encoded, offsets, malformed, rows.floor_ms, describe)

    def _malformed(
        self,
        rows: RowRange,
        data: bytes,
        status: UInt8Array,
        places: Int64Array,
        times: Int64Array,
        describe: RowText,
    ) -> list[SetAside]:
        found = []
        for row in np.flatnonzero((status != kernels.OK) & (status != kernels.BLANK_ROW)).tolist():
            line_start = data.rfind(b"\n", 0, places[row]) + 1
            column = len(data[line_start : places[row]].decode("utf-8", "replace")) + 1
            found.append(describe(rows.first_offset + row, column, _REASONS[int(status[row])]))
        for row in np.flatnonzero((status == kernels.OK) & (times == NO_TIME)).tolist():
            line = rows.first_offset + row + 1
            found.append(describe(rows.first_offset + row, 1, f"{self.times_path}, line {line}: expected a time in ms"))
        return found


def expand(
    data: bytes, prefixes: tuple[tuple[bytes, bytes], ...], row_count: int
) -> tuple[bytes, UInt8Array, Int64Array]:
    """Return the good rows as N-Triples lines, the status of each row, and where the bad ones go wrong."""
    names, name_offsets = _joined([name for name, _ in prefixes])
    spaces, space_offsets = _joined([iri for _, iri in prefixes])
    longest = max((len(iri) for _, iri in prefixes), default=0)
    out = np.empty(len(data) + row_count * (4 * (longest + 4) + 16 + len(RDF_TYPE)), np.uint8)
    status, places = np.empty(row_count, np.uint8), np.empty(row_count, np.int64)
    written = kernels.expand_prefixed(
        readonly(np.frombuffer(data, np.uint8)),
        readonly(np.frombuffer(RDF_TYPE, np.uint8)),
        names,
        name_offsets,
        spaces,
        space_offsets,
        out,
        status,
        places,
    )
    return out[:written].tobytes(), status, places


def _joined(parts: list[bytes]) -> tuple[UInt8Array, Int64Array]:
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.array([len(part) for part in parts], np.int64), out=offsets[1:])
    return readonly(np.frombuffer(b"".join(parts), np.uint8)), offsets


def prepare_lsbench(config: LsbenchSource, folder: Path) -> tuple[LsbenchFile, SourceIndex]:
    """Open an LSBench stream and index its rows; .gz is unpacked into the folder.

    Raises: DataError (a file that cannot be read, or not one time per triple)."""
    plain = plain_copy(config.path, folder)
    data = map_file(plain, config.path)
    prefixes, first_line, first_byte = _read_prefixes(data)
    starts = row_starts(data, first_byte)
    count = len(starts) - 1
    text = map_file(plain_copy(config.times, folder), config.times)
    times = np.empty(int(kernels.count_rows(text, 0)), np.int64)
    kernels.read_integers(text, times)
    if len(times) != count:
        raise DataError(
            f"expected one time for each of the {count} triples of {config.path}, found {len(times)}", config.times
        )
    plain_times = folder / f"{len(list(folder.iterdir()))}-times.npy"
    np.save(plain_times, times)
    source = LsbenchFile(config.path, config.times, plain, str(plain_times), prefixes, first_line)
    return source, SourceIndex(running_max(times), starts)


def _read_prefixes(data: UInt8Array) -> tuple[tuple[tuple[bytes, bytes], ...], int, int]:
    """Return the prefixes of the leading lines, the number of the first line after them, and its byte."""
    prefixes: dict[bytes, bytes] = {}
    head = data[: 1 << 20].tobytes()
    line, at = 1, 0
    while match := _PREFIX_LINE.match(head, at):
        prefixes[match["name"]] = match["iri"]
        line, at = line + 1, match.end()
    return tuple(prefixes.items()), line, at
