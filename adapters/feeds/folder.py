"""A folder that grows: files that are renamed into it, appended to, rotated, compressed (`kind = "folder"`).

Files are read in the order of their last change. A file is known by its number on the file system and by its first
bytes, so one that was renamed is read on, and one that took the place of another, or was cut, is read anew. The rest
of a file that has no line end counts as a line once the file has not changed for a while.

Rotation may copy a file and cut it then, or pack it and remove it then. A new file that holds all that was read of one
that was cut or is gone is its copy, and is read on. One that may still become such a copy waits until it has not
changed for a while: then it is a file of its own.
"""

from __future__ import annotations

import gzip
import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

from wukongs.adapters.feeds.feed import Inlet, Kind
from wukongs.adapters.feeds.lines import LINE_BYTES_MAX, header_in, opened
from wukongs.adapters.mapping.mapping import Csv
from wukongs.adapters.source import text_start
from wukongs.errors import DataError
from wukongs.settings.toml_reader import TableReader

LOOK_S = 0.1
READ_BYTES = 1 << 20
HEAD_BYTES = 1024
BEGUN = "begun"
CUT = ":cut"
"""Behind the key of a file: how far it was read when it was found cut, for the look that comes next."""
_UNREADABLE = (OSError, EOFError, zlib.error)


@dataclass(frozen=True, slots=True)
class FolderOptions:
    """pattern: of the names; follow: whether to wait for more at the end; from_end: leave out what is there when the
    folder is read for the first time; settle_ms: so long a file has to be unchanged before a last line without end
    counts."""

    path: str
    pattern: str = "*"
    follow: bool = True
    from_end: bool = False
    settle_ms: int = 2000


def _options(reader: TableReader) -> FolderOptions:
    path = reader.optional_place("path")
    if path is None or not Path(path).is_dir():
        raise reader.error("path", "a folder", "nothing" if path is None else f"{path}, which is none")
    return FolderOptions(
        path=path,
        pattern=reader.optional_text("pattern") or "*",
        follow=reader.flag("follow", True),
        from_end=reader.choice("start", ("beginning", "end"), "beginning") == "end",
        settle_ms=reader.integer("settle_ms", 2000) or 0,
    )


@dataclass(slots=True)
class _File:
    """A file as it was found now. key: of its entry in the state."""

    path: Path
    key: str
    size: int
    changed_s: float

    @property
    def is_packed(self) -> bool:
        return self.path.name.endswith(".gz")


@dataclass(slots=True)
class _Entry:
    """How far a file is read: byte of the unpacked file, line (from 1); head: a checksum of its first head_bytes bytes;
    whole: one of all that is read. seen: size and time of change when it was read to its end."""

    byte: int = 0
    line: int = 1
    head: int = 0
    head_bytes: int = 0
    columns: tuple[str, ...] = ()
    seen: tuple[int, float] = (-1, 0.0)
    whole: int = 0

    def to_state(self) -> list[Any]:
        return [self.byte, self.line, self.head, self.head_bytes, list(self.columns), list(self.seen), self.whole]

    @staticmethod
    def of(state: list[Any] | None) -> _Entry:
        if state is None:
            return _Entry()
        byte, line, head, head_bytes, columns, seen, *whole = state
        return _Entry(byte, line, head, head_bytes, tuple(columns), (seen[0], seen[1]), *whole)


class FolderReader:
    """Reads all files of a folder whose names fit. csv: of lines with a header of their own in each file."""

    def __init__(self, options: FolderOptions, csv: Csv | None) -> None:
        self._options, self._csv = options, csv
        self._told: set[str] = set()
        self._failed: set[tuple[str, int, float]] = set()
        """Files that could not be read as they were: key, size, time of change."""
        self._alike: dict[str, tuple[int, float, float]] = {}
        """New files that wait, since they may become copies: size and time of change, and since when they are so."""
        self._gone: set[str] = set()
        """Files that were missing at the last look, which may miss one that is renamed meanwhile."""

    def run(self, inlet: Inlet) -> None:
        if self._options.from_end and BEGUN not in inlet.state:
            inlet.lines(b"", {BEGUN: 1, **self._ends()})
        while not inlet.is_stopped:
            if not self.look(inlet):
                if not self._options.follow:
                    return
                inlet.wait(LOOK_S)

    def look(self, inlet: Inlet) -> bool:
        """Read what the files have more than at the last look; tell whether there was anything."""
        files = self._files(inlet)
        were_cut = [key for key in inlet.state if key.endswith(CUT)]
        held = self._take_up_copies(files, inlet)
        is_read = [self._read(one, inlet) for one in files if not (inlet.is_stopped or one.key in held)]
        if inlet.is_heard and not inlet.is_stopped:
            gone = inlet.state.keys() - {one.key for one in files} - {BEGUN}
            gone = {key for key in gone if not key.endswith(CUT)}
            dropped = (gone & self._gone) | (inlet.state.keys() & were_cut)  # a copy would have been there by now
            if dropped:
                inlet.lines(b"", dict.fromkeys(dropped))
            self._gone = gone
        return any(is_read)

    def _take_up_copies(self, files: Sequence[_File], inlet: Inlet) -> set[str]:
        """Let new files that are copies go on where their originals were. Return the keys of those that may become
        copies, and are not to be read yet."""
        present, held, heads = {one.key: one for one in files}, set[str](), dict[bytes, _File]()
        for file in files:
            if not file.size or _Entry.of(inlet.state.get(file.key)).byte:
                continue
            head = _begin_of(file.path, HEAD_BYTES)
            for key, entry in self._alike_in(inlet.state, head):
                original = present.get(key)
                if original is not None and self._is_as_read(original, entry):
                    if self._may_become(file, original):
                        held.add(file.key)
                elif (read := self._read_of_copy(file, entry)) is not None:
                    inlet.lines(b"", {file.key: read.to_state(), key: None})
                    inlet.say(f"{file.path.name} is a copy of a file that was read up to byte {read.byte:,}")
                    held.discard(file.key)
                    break
            if head and (other := heads.setdefault(head, file)) is not file and self._may_become(file, other):
                held.add(file.key)  # both are new: the next look knows how far the other one was read
        self._alike = {key: value for key, value in self._alike.items() if key in held}
        return held

    @staticmethod
    def _alike_in(state: Mapping[str, Any], head: bytes) -> list[tuple[str, _Entry]]:
        """Return the entries, the furthest first, of files that begin like a new one."""
        found, sums = [], dict[int, int]()
        for key, value in state.items():
            if key == BEGUN or not 0 < value[3] <= len(head):
                continue
            entry = _Entry.of(value)
            if entry.head_bytes not in sums:
                sums[entry.head_bytes] = zlib.crc32(head[: entry.head_bytes])
            if sums[entry.head_bytes] == entry.head:
                found.append((key, entry))
        return sorted(found, key=lambda one: -one[1].byte)

    def _is_as_read(self, file: _File, entry: _Entry) -> bool:
        """Tell whether a file still is the one that was read."""
        try:
            with opened(file.path) as content:
                return self._is_same(content, entry)
        except FileNotFoundError:
            return False
        except _UNREADABLE:
            return True

    def _may_become(self, file: _File, original: _File) -> bool:
        """Tell whether a file may be the beginning of a copy of another one, or one that is to be cut or removed."""
        is_longer = file.size > original.size and file.is_packed == original.is_packed
        if is_longer or not self._options.follow:
            return False
        begin = _begin_of(file.path, READ_BYTES)
        if _begin_of(original.path, len(begin)) != begin:
            return False
        size, changed_s, since_s = self._alike.get(file.key, (-1, 0.0, 0.0))
        if (size, changed_s) != (file.size, file.changed_s):
            since_s = monotonic()
            self._alike[file.key] = file.size, file.changed_s, since_s
        return monotonic() - since_s < self._options.settle_ms / 1000

    def _read_of_copy(self, file: _File, entry: _Entry) -> _Entry | None:
        """Return how far a file is read as a copy of one that was read so far; None if it is none."""
        read = _Entry(columns=entry.columns)
        try:
            with opened(file.path) as content:
                while data := content.read(min(READ_BYTES, entry.byte - read.byte)):
                    read = _behind(read, data)
        except _UNREADABLE:
            return None
        is_whole = read.byte == entry.byte and read.whole == entry.whole
        # one that waited as a copy, and is shorter: what came between the copy and the cut was read from the original
        return read if is_whole or (read.byte < entry.byte and file.key in self._alike) else None

    def _files(self, inlet: Inlet) -> list[_File]:
        """Return the files that are there, the one that was changed first in front."""
        found = []
        try:
            for entry in os.scandir(self._options.path):
                if entry.name.startswith(".") or not fnmatch(entry.name, self._options.pattern):
                    continue
                try:
                    if not entry.is_file():
                        continue
                    facts = entry.stat()
                except OSError:  # gone meanwhile
                    continue
                found.append(_File(Path(entry.path), _key(facts), facts.st_size, facts.st_mtime))
        except OSError as error:
            if inlet.is_heard:
                inlet.say(f"{self._options.path} cannot be read ({error.strerror}); it is waited for")
            inlet.is_heard = False
            return []
        inlet.is_heard = True
        return sorted(found, key=lambda one: (one.changed_s, one.path.name))

    def _ends(self) -> dict[str, Any]:
        """Return the state in which all that is there now, and can be read, is read."""
        found = {}
        for entry in os.scandir(self._options.path):
            with suppress(OSError, DataError):  # it is told of when it is read
                if not entry.name.startswith(".") and entry.is_file():
                    facts = entry.stat()
                    found[_key(facts)] = self._end_of(Path(entry.path), facts).to_state()
        return found

    def _end_of(self, path: Path, facts: os.stat_result) -> _Entry:
        read, rest = _Entry(), b""
        with opened(path) as file, suppress(EOFError, zlib.error, gzip.BadGzipFile):  # it is being packed
            while data := file.read(READ_BYTES):
                data = rest + data
                end = data.rfind(b"\n") + 1
                read, rest = _behind(read, data[:end]), data[end:]
        if self._csv is not None and self._csv.header:
            header = header_in(self._csv, _begin_of(path, READ_BYTES), str(path))
            read.columns = header[0] if header else ()
        read.seen = (facts.st_size, facts.st_mtime)
        return read

    def _read(self, file: _File, inlet: Inlet) -> bool:
        """Read what a file has more than before; tell whether it has, or has to be looked for under another name."""
        entry = _Entry.of(inlet.state.get(file.key))
        if entry.seen == (file.size, file.changed_s) and not self._is_to_settle(file, entry):
            return False
        if (file.key, file.size, file.changed_s) in self._failed:
            return False
        try:
            with opened(file.path) as content:
                if _key(os.fstat(content.fileno())) != file.key:  # another one has taken its place since the look
                    inlet.wait(LOOK_S)
                    return True
                if not self._is_same(content, entry):
                    inlet.lines(b"", {file.key + CUT: entry.to_state()})
                    entry = _Entry()
                found = False
                for data, before in self._parts(file, content, entry):
                    self._put(file, data, before, inlet)
                    found = found or bool(data)
                    if inlet.is_stopped:
                        return True
                return found
        except FileNotFoundError:  # renamed or deleted since the look
            inlet.wait(LOOK_S)
            return True
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self._tell(inlet, file, f"{file.path.name} cannot be unpacked ({error}); it is read on when it is changed")
        except OSError as error:
            self._tell(inlet, file, f"{file.path.name} cannot be read ({error.strerror or error})")
        except DataError as error:
            self._tell(inlet, file, f"{error}; it is passed over until it is changed")
        self._failed.add((file.key, file.size, file.changed_s))
        return False

    def _tell(self, inlet: Inlet, file: _File, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            inlet.say(text)

    def _is_to_settle(self, file: _File, entry: _Entry) -> bool:
        return entry.byte < file.size and not file.is_packed and self._is_settled(file)

    def _is_settled(self, file: _File) -> bool:
        is_old = time.time() - file.changed_s >= self._options.settle_ms / 1000
        return is_old or not self._options.follow or file.is_packed

    @staticmethod
    def _is_same(content: BinaryIO, entry: _Entry) -> bool:
        """Tell whether a file still begins as it did when it was read."""
        head = content.read(entry.head_bytes)
        return len(head) == entry.head_bytes and zlib.crc32(head) == entry.head and _size(content) >= entry.byte

    def _parts(self, file: _File, content: BinaryIO, entry: _Entry) -> Iterator[tuple[bytes, _Entry]]:
        """Yield whole lines, up to READ_BYTES or a line at once, each with the entry before it."""
        if entry.byte == 0 and self._csv is not None and self._csv.header:
            content.seek(0)
            head = content.read(READ_BYTES)
            found = header_in(self._csv, head, str(file.path))
            if found is None and head and self._is_settled(file):  # a header alone, or lines that end with a CR
                found = header_in(self._csv, head + b"\n", str(file.path))
            if found is None:
                return
            entry.columns, first = found
            content.seek(0)
            entry = _behind(entry, content.read(first))
        content.seek(entry.byte)
        rest = b""
        while data := content.read(READ_BYTES):
            data = rest + data
            end = data.rfind(b"\n") + 1
            data, rest = data[:end], data[end:]
            if len(rest) > LINE_BYTES_MAX:
                raise DataError(f"expected lines, found {len(rest):,} bytes without a line end", str(file.path))
            if data:
                yield data, entry
                entry = _behind(entry, data)
        if rest and self._is_settled(file):
            yield rest, entry
            entry = _behind(entry, rest)
        entry.seen = (file.size, file.changed_s)
        yield b"", entry

    def _put(self, file: _File, data: bytes, entry: _Entry, inlet: Inlet) -> None:
        after = _behind(entry, data)
        after.seen = entry.seen if not data else (-1, 0.0)
        skipped = 0 if entry.byte else text_start(data)
        inlet.lines(
            data[skipped:],
            {file.key: after.to_state()},
            file=str(file.path),
            line=entry.line,
            byte=entry.byte + skipped,
            columns=entry.columns,
        )


def _behind(entry: _Entry, data: bytes) -> _Entry:
    """Return the entry of a file behind these bytes of it."""
    head = data[: max(0, HEAD_BYTES - entry.head_bytes)] if entry.head_bytes == entry.byte else b""
    return _Entry(
        entry.byte + len(data),
        entry.line + data.count(b"\n"),
        zlib.crc32(head, entry.head),
        entry.head_bytes + len(head),
        entry.columns,
        whole=zlib.crc32(data, entry.whole),
    )


def _key(facts: os.stat_result) -> str:
    """Return how the state names a file: by its number on the file system."""
    return f"{facts.st_dev}:{facts.st_ino}"


def _begin_of(path: Path, size: int) -> bytes:
    """Return the first bytes of a file, unpacked; of one that is being packed what can be read."""
    found = bytearray()
    with suppress(*_UNREADABLE), opened(path) as content:
        while len(found) < size and (data := content.read(min(HEAD_BYTES, size - len(found)))):
            found += data
    return bytes(found)


def _size(content: BinaryIO) -> int:
    """Return how many bytes a file has; of a packed one that is found out by reading it, so it is not asked."""
    return os.fstat(content.fileno()).st_size if not isinstance(content, gzip.GzipFile) else 1 << 62


KIND = Kind(
    options=_options,
    reader=FolderReader,
    name=lambda options: Path(options.path).resolve().name,
    can_look=True,
    is_recording=lambda options: not options.follow,
)
