"""Bytes that come in parts, as lines: cut at line ends, the header taken off."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import BinaryIO

import numpy as np

from wukongs.adapters.feeds.feed import Inlet
from wukongs.adapters.mapping.mapping import Csv
from wukongs.adapters.source import text_start
from wukongs.adapters.sources.csv_records import read_header
from wukongs.errors import DataError

LINE_BYTES_MAX = 64 << 20


def opened(path: str | Path) -> BinaryIO:
    """Open a file to read what it holds, unpacked if it is a .gz."""
    return gzip.open(path, "rb") if str(path).endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


def header_in(csv: Csv, data: bytes, path: str) -> tuple[tuple[str, ...], int] | None:
    """Return the names of the columns and where the first record begins; None if the header is not whole yet.

    Raises: DataError (no header that can be read, or one that has a column of csv.columns twice)."""
    if csv.header and b"\n" not in data:
        return None
    names, first = read_header(csv, np.frombuffer(data, np.uint8), path)
    for name in csv.columns:
        if names.count(name) > 1:
            raise DataError(f"expected one column {name!r} in the header, found several", path, 1)
    return names, first


class LineCutter:
    """Takes the bytes of one connection in the order in which they come and puts whole lines into an inlet.

    csv: how the lines are written, if a header or the mapping names their columns; name: of the source in errors;
    is_file: it is a file, in which lines have their places."""

    def __init__(self, inlet: Inlet, csv: Csv | None, name: str, is_file: bool = False) -> None:
        self._inlet, self._csv, self._name = inlet, csv, name
        self._file = name if is_file else ""
        self._line, self._byte = 1, 0
        self._columns: tuple[str, ...] | None = None if csv is not None else ()
        self._rest = b""

    def take(self, data: bytes, is_end: bool = False) -> None:
        """Put the lines that end in data, and at the end what is left.

        Raises: DataError (no header, or a line without end)."""
        data = self._rest + data
        if not data:  # also of a connection that brought nothing, not even a header
            return
        if self._columns is None:
            assert self._csv is not None, self._name
            found = header_in(self._csv, data + b"\n" if is_end else data, self._name)
            if found is None:
                self._rest = data
                return
            self._columns, first = found
            data = self._behind(data, first)
        elif not self._byte:
            data = self._behind(data, text_start(data))
        end = len(data) if is_end else data.rfind(b"\n") + 1
        self._rest = data[end:]
        if len(self._rest) > LINE_BYTES_MAX:
            raise DataError(f"expected lines, found {len(self._rest):,} bytes without a line end", self._name)
        if end:
            self._inlet.lines(data[:end], file=self._file, line=self._line, byte=self._byte, columns=self._columns)
            self._behind(data, end)

    def _behind(self, data: bytes, size: int) -> bytes:
        """Go on behind so many bytes, and return the rest."""
        self._line += data.count(b"\n", 0, size)
        self._byte += size
        return data[size:]
