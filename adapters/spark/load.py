"""`wukongs load --spark MASTER`: Spark schedules parts of many files to the workers of a cluster, which load them.

A file in N-Triples or N-Quads is divided at line ends, any other file is one part. A worker sends its parts to one of
the nodes, which encodes them as it does each load; each part is one snapshot. The parts of a file share their blank
node labels. A part that is sent twice, since Spark runs the task of a lost worker again, adds nothing the second time.

Every worker has to see the files under the same paths.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from wukongs.adapters.sink import Access
from wukongs.errors import DataError, WukongsError
from wukongs.store.encoded import MalformedLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART_BYTES = 64 << 20
MALFORMED_TOLD_MAX = 1000
"""Malformed lines of a part that are told one by one; all are counted."""
_DIVIDED = (".nt", ".nq", ".ntriples", ".nquads")
_LINE_BYTES_READ = 1 << 16


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes [first, end) of a file, which begin and end at lines. name: for errors; scope: of blank nodes."""

    path: str
    name: str
    first: int
    end: int
    scope: str


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """The nodes into which parts are loaded, and the options of a load."""

    access: Access
    graph: str | None = None
    base: str | None = None
    format: str | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class PartLoaded:
    """A part, and how it went. refused: why nothing of it was added. sn: the snapshot that has it."""

    part: Part
    sn: int
    malformed_count: int
    malformed: tuple[tuple[str, MalformedLine], ...]
    refused: str | None = None


def parts_of(files: Sequence[str], format: str | None, part_bytes: int = PART_BYTES) -> list[Part]:
    """Divide files into parts of about so many bytes. Raises: DataError (a file that cannot be read)."""
    found: list[Part] = []
    for file in files:
        path, scope = os.path.abspath(file), uuid.uuid4().hex
        try:
            size = Path(path).stat().st_size
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror})", path) from None
        is_divided = format in ("nt", "nq") if format else path.endswith(_DIVIDED)
        if not is_divided or path.endswith((".gz", ".zst")) or size <= part_bytes:
            found.append(Part(path, file, 0, size, scope))
            continue
        with open(path, "rb") as opened:
            bounds = [0]
            for target in range(part_bytes, size, part_bytes):
                bound = _line_end(opened, target)
                if bound > bounds[-1]:
                    bounds.append(bound)
        bounds = bounds if bounds[-1] == size else [*bounds, size]
        found += [Part(path, f"{file}, from byte {first}", first, end, scope) for first, end in pairwise(bounds)]
    return found


def load_parts(
    session: SparkSession, parts: Sequence[Part], target: LoadTarget, on_loaded: Callable[[PartLoaded], None]
) -> None:
    """Let Spark load the parts; on_loaded is told of each once it is in, in the order of the parts.

    Raises: what a part was refused with, if target.strict; NodeUnavailable."""
    if not parts:
        return
    numbered = list(enumerate(parts))
    loaded = session.sparkContext.parallelize(numbered, len(numbered)).mapPartitions(
        lambda items: (load_part(number, part, target) for number, part in items)
    )
    for one in loaded.toLocalIterator(prefetchPartitions=True):
        on_loaded(one)


def load_part(number: int, part: Part, target: LoadTarget) -> PartLoaded:
    """Load a part from a worker: into the node whose turn it is, or the next one that answers."""
    addresses = target.access.addresses
    turn = number % len(addresses)
    access = replace(target.access, addresses=addresses[turn:] + addresses[:turn])
    malformed: list[tuple[str, MalformedLine]] = []
    count = 0

    def set_aside(_: str, line: MalformedLine) -> None:
        nonlocal count
        count += 1
        if len(malformed) < MALFORMED_TOLD_MAX:
            malformed.append((part.name, line))

    with access.connect() as node:
        try:
            with _PartFile(part) as file:
                sn = node.load(
                    file,  # type: ignore[arg-type]
                    target.graph,
                    target.base or Path(part.path).as_uri(),
                    target.format,
                    strict=target.strict,
                    on_malformed=set_aside,
                    blank_scope=part.scope,
                )
        except WukongsError as error:
            if target.strict or not isinstance(error, DataError):
                raise
            return PartLoaded(part, 0, count, tuple(malformed), " ".join(str(error).split()))
    return PartLoaded(part, sn, count, tuple(malformed))


class _PartFile(io.RawIOBase):
    """A part of a file as a binary file. Raises: DataError (the file is not there, for this worker)."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.name = part.path
        try:
            self._file = open(part.path, "rb")  # noqa: SIM115
        except OSError as error:
            raise DataError(
                f"cannot be read by a worker ({error.strerror}): every worker has to see the files under one path",
                part.path,
            ) from None
        self._first, self._end = part.first, part.end
        self._file.seek(self._first)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        left = self._end - self._file.tell()
        return self._file.read(left if size < 0 else min(size, left))

    def tell(self) -> int:
        return self._file.tell() - self._first

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: self._first, os.SEEK_CUR: self._file.tell(), os.SEEK_END: self._end}[whence]
        return self._file.seek(start + offset) - self._first

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _line_end(file: io.BufferedReader, target: int) -> int:
    """Return the byte behind the first line end from target on, or the end of the file."""
    file.seek(target - 1)
    while (piece := file.readline(_LINE_BYTES_READ)) and not piece.endswith(b"\n"):
        pass
    return file.tell()
