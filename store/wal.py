"""WriteAheadLog: all input, in the order in which it was applied, in segment files that are only appended to.

A record is a header (checksum, payload size, LSN, the SN that the stored graph had reached, the LSN known synced when
it was appended, kind) and its payload. LSNs count records: 1, 2, 3, ... A segment file is named by the LSN of its first
record, its head, from which a recovery can start.

Invariants:

* the order of LSNs is the order of `append`; the owner appends under the lock under which it applies;
* `wait(lsn)` returns once everything up to lsn is written and synced: one write and one sync serve all waiting threads
  (group commit). Only one thread writes at a time; others may append meanwhile;
* a new segment begins only after all before it is synced, so only the last segment may end in a torn record. It is
  cut there, unless a later record or the checkpoint says that the torn one had been synced: then the file was altered,
  and this is an error. Nothing says so for the last group that was written: altered bytes there look like a torn write;
* a write that found the disk full, or was interrupted, is cut back to the last whole group, and tried again with the
  next one: writing goes on once there is room. After any other failure, above all of a sync, nothing is written any
  more: the content of the file and of the page cache is unknown then.
"""

from __future__ import annotations

import errno
import io
import os
import re
import struct
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn, TypeAlias

import numpy as np

from wukongs.errors import NOT_KNOWN, CorruptionError, StorageError
from wukongs.store.ahead import ahead
from wukongs.store.disk import Disk, storage_errors
from wukongs.store.dtypes import UInt8Array

FORMAT = 6
"""The format of the segments that are written. It counts what records may hold as well: 2 came with updates (0012),
windows that count triples, and results compared between firings; 3 with a message for the chunks of loads and updates;
 4 with pushes out of order (0035), cursors, and the times from which pauses and other texts of queries count (0034); 5
 with retractions (0065); 6 with live views (0124).
 A segment begins with it: builds that know only earlier ones refuse it."""
_MAGIC = re.compile(rb"WKLOG(\d{3})")
_HEADER = struct.Struct("<IIQQQB")
_RECORD_MAX = (1 << 32) - 1
RECORD_HEADER_BYTES = _HEADER.size
SEGMENT_HEAD_BYTES = 8
"""Where the first record of a segment begins."""
_CHECKED_FROM = 4
"""The checksum covers everything behind itself."""
_LSN_AT = 8
_GROUP_BYTES, _GROUP_RECORDS = 1 << 22, 1 << 10
"""So much is read ahead: more are not needed to hide what reading takes."""
_NAME = re.compile(r"(\d{20})\.log")

Payload: TypeAlias = Sequence[bytes | memoryview]


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One record, as it was appended. synced: the LSN up to which the log was known to be synced at that time."""

    lsn: int
    sn: int
    synced: int
    kind: int
    payload: memoryview


class _NotWritten(Exception):
    """A write that has failed and was taken back; __cause__ says why."""


class WriteAheadLog:
    """The log of one folder. First `read` to its end, then `begin` a segment; from then on `append` and `wait`."""

    def __init__(
        self, folder: Path, sync_interval_ms: int = 0, disk: Disk | None = None, is_read_only: bool = False
    ) -> None:
        """sync_interval_ms: 0 syncs for every group; n > 0 writes every group, but syncs at most once in n ms.
        Acknowledged records then survive the end of the process; all but those of the last n ms survive the end of the
        machine. is_read_only: the log is only read, and a torn end stays."""
        self.folder = folder
        self.written_bytes = 0
        """Bytes of all records appended since this object was made."""
        self.segment_bytes = 0
        """Bytes of the segment that is being written."""
        self.sync_count = 0
        self._disk = disk or Disk()
        self._sync_interval_s = sync_interval_ms / 1000
        self._changed = threading.Condition()
        self._buffer: list[bytes | memoryview] = []
        self._next_lsn = 1
        self._durable_lsn = 0
        self._checked_lsn = 0
        """Up to here the records were found to be whole."""
        self._synced_lsn = 0
        """Up to here the log outlives the machine, too; the same but for sync_interval_ms."""
        self._is_writing = False
        self._synced_at_s = 0.0
        self._file: BinaryIO | None = None
        self._file_bytes = 0
        """Bytes of the file up to the end of the last group that was written."""
        self._failure: BaseException | None = None
        self._lack: BaseException | None = None
        self._is_read_only = is_read_only
        if not folder.is_dir() and not is_read_only:
            with storage_errors(f"cannot make {folder}", "Make room, or name a folder that this user may write to"):
                self._disk.make_folder(folder)

    @property
    def next_lsn(self) -> int:
        return self._next_lsn

    @property
    def durable_lsn(self) -> int:
        """Everything up to here is safe."""
        return self._durable_lsn

    @property
    def failure(self) -> BaseException | None:
        """The error with which writing has ended, if it has."""
        return self._failure

    @property
    def lack(self) -> BaseException | None:
        """Why the last group is not written yet, if it is not: no room."""
        return self._lack

    def check(self) -> None:
        """Write the records that could not be written before. Raises StorageError if that fails, or if writing has
        ended."""
        with self._changed:
            self._check_failure()
            if self._lack is not None:
                self._wait(self._next_lsn - 1)
                self._lack = None

    def _check_failure(self) -> None:
        if self._failure is not None:
            self._raise(self._failure)

    def _raise(self, cause: BaseException) -> NoReturn:
        """Say that writing has failed, and whether it may go on."""
        reason = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        what = f"{self.folder}: the log cannot be written ({reason}): what was not acknowledged is not safe"
        if self._failure is None:
            raise StorageError(
                f"{what} yet. Queries are answered on; make room on the disk, and writing goes on"
            ) from cause
        raise StorageError(f"{what}. Queries are answered on; mend the disk and open the folder again") from cause

    # --- reading, before anything is written --------------------------------------------------------------------------

    def segments(self) -> list[int]:
        """Return the LSNs of the heads of all segments, in order."""
        if self._is_read_only and not self.folder.is_dir():
            return []
        return sorted(int(found[1]) for path in self.folder.iterdir() if (found := _NAME.fullmatch(path.name)))

    def path(self, head: int) -> Path:
        """Return the file of the segment with this head."""
        return self.folder / f"{head:020d}.log"

    def read(self, start: int, synced: int = 0) -> Iterator[Record]:
        """Yield the records from segment head `start` on, cut a torn end off, and see the rest to the disk: a process
        that was killed may not have synced it. Segments before `start` are not touched.

        synced: the record up to which the log was safe, as the checkpoint knows; 0: nothing is known.
        The log is read ahead of who takes the records. Raises CorruptionError (a segment is missing, or a record
        altered; names the file and the place), StorageError (of a format that is not known).
        """
        for records in ahead(self._groups(start, synced), "wukongs-log"):
            yield from records

    def _groups(self, start: int, synced: int) -> Iterator[list[Record]]:
        heads = [head for head in self.segments() if head >= start]
        if heads[:1] != [start] and (heads or start > 1 or synced):
            raise CorruptionError(f"segment {start} of the log is missing", str(self.path(start)))
        self._next_lsn = start
        for head in heads:
            if head != self._next_lsn:
                raise CorruptionError(
                    f"this segment begins with record {head}, but the one before it ends with {self._next_lsn - 1}: "
                    "a segment was removed or shortened",
                    str(self.path(head)),
                )
            group, size = list[Record](), 0
            for record in self._read_segment(head, head == heads[-1], synced):
                group.append(record)
                size += len(record.payload)
                if size > _GROUP_BYTES or len(group) == _GROUP_RECORDS:
                    yield group
                    group, size = [], 0
            yield group
        self._durable_lsn = self._synced_lsn = self._next_lsn - 1

    def _read_segment(self, head: int, is_last: bool, synced: int) -> Iterator[Record]:
        path = self.path(head)
        with path.open("rb") as file:
            end = os.fstat(file.fileno()).st_size
            at = self._check_format(path, file.read(SEGMENT_HEAD_BYTES), is_last and synced < head)
            while at > 0 and (record := self._next_record(file, end - at)) is not None and record.lsn == self._next_lsn:
                self._next_lsn += 1
                at += _HEADER.size + len(record.payload)
                yield record
        was_synced = is_last and self._next_lsn <= synced
        if 0 < at < end and (not is_last or was_synced or _was_synced(path, at, self._next_lsn)):
            raise CorruptionError(
                f"record {self._next_lsn} at byte {at} is altered: its checksum does not fit, and it was safe before",
                str(path),
            )
        if was_synced:
            raise CorruptionError(f"record {self._next_lsn} at byte {at} is missing: the file was shortened", str(path))
        if is_last:
            self._cut(path, at if self._next_lsn > head else 0, end)

    def _next_record(self, file: io.BufferedReader, left: int) -> Record | None:
        """Return the record at the place of a file, of which so many bytes are left, in an aligned buffer of its own;
        None as _record_at. A checksum is computed once, however often the log is read."""
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return None
        checksum, size, lsn, sn, synced, kind = _HEADER.unpack(head)
        if size > left - _HEADER.size:
            return None
        payload: UInt8Array = np.empty(size, np.uint8)
        if file.readinto(payload.data) < size:
            return None
        if lsn > self._checked_lsn:
            if zlib.crc32(payload.data, zlib.crc32(head[_CHECKED_FROM:])) != checksum:
                return None
            self._checked_lsn = lsn
        return Record(lsn, sn, synced, kind, payload.data)

    def _check_format(self, path: Path, begin: bytes, may_be_torn: bool) -> int:
        """Return where the first record of a segment is; 0: not even its format was written whole."""
        found = _MAGIC.fullmatch(begin)
        if found is None:
            if not may_be_torn or len(begin) >= SEGMENT_HEAD_BYTES:
                raise CorruptionError(f"expected a log segment, found {begin!r}", str(path))
            return 0
        if not 1 <= int(found[1]) <= FORMAT:
            raise StorageError(
                f"{path}: written in format {int(found[1])}, and this version of wukongs reads logs of format 1 to "
                f"{FORMAT}. Open the folder with the version that wrote it, or a newer one"
            )
        return SEGMENT_HEAD_BYTES

    def _cut(self, path: Path, size: int, found: int) -> None:
        if self._is_read_only:
            return
        if size == 0:
            self._disk.unlink(path)  # its head never was complete
        elif size < found:
            self._disk.truncate(path, size)
        else:
            self._disk.sync(path)

    # --- writing ------------------------------------------------------------------------------------------------------

    def begin(self, kind: int, payload: Payload, sn: int) -> int:
        """Sync everything, then begin a segment with this record as its head; return its LSN once it is safe.

        Raises StorageError; if the disk is full, the segment before goes on, and begin may be called again."""
        with self._changed:
            while self._is_writing:
                self._changed.wait()
            self._check_failure()
            if self._file is not None:
                self._commit(is_forced=True)
            assert not self._buffer, "the owner appends nothing while a segment begins"
            lsn, before = self._next_lsn, (self._file, self._file_bytes, self.segment_bytes, self.written_bytes)
            try:
                self._file, self._file_bytes = self._disk.create(self.path(lsn)), 0
                self.segment_bytes = 0
                self._buffer.append(b"WKLOG%03d" % FORMAT)
                self._append(kind, payload, sn)
                buffer, last = self._take_buffer()
                self._write(buffer, is_forced=True)
                self._disk.fsync_folder(self.folder)
            except BaseException as error:
                cause = error.__cause__ if isinstance(error, _NotWritten) else error
                assert cause is not None
                if cause is error and not _is_full(error):
                    self._failure = error
                else:
                    self._lack = cause
                    self._give_up_segment(lsn, *before)
                if not isinstance(cause, OSError):
                    raise cause from None
                self._raise(cause)
            if before[0] is not None:
                before[0].close()
            self._durable_lsn = self._synced_lsn = last
            self._lack = None
            return lsn

    def _give_up_segment(
        self, lsn: int, file: BinaryIO | None, file_bytes: int, segment_bytes: int, written_bytes: int
    ) -> None:
        """Go on with the segment before the one that could not begin. The file of the new segment must not come back
        after a power cut: its name would say that the segment before ended there."""
        begun, self._file, self._file_bytes = self._file, file, file_bytes
        self.segment_bytes, self.written_bytes = segment_bytes, written_bytes
        self._buffer, self._next_lsn = [], lsn
        if begun is not None and begun is not file:
            begun.close()
        try:
            self._disk.unlink(self.path(lsn))
            self._disk.fsync_folder(self.folder)
        except OSError as error:
            self._failure = error

    def append(self, kind: int, payload: Payload, sn: int) -> int:
        """Add a record; return its LSN, to wait for. sn: the SN that the stored graph has reached. Raises
        StorageError."""
        with self._changed:
            self._check_failure()
            return self._append(kind, payload, sn)

    def commit(self, kind: int, payload: Payload, sn: int) -> int:
        """Add a record; return its LSN once it, and all before it, is safe. The owner appends nothing meanwhile.

        Raises StorageError; the record then does not count, now or later, unless the log has failed for good. With an
        interrupt that comes when the record is safe already, it fails."""
        with self._changed:
            self._check_failure()
            before = len(self._buffer), self.segment_bytes, self.written_bytes
            lsn = self._append(kind, payload, sn)
            part_count = len(self._buffer) - before[0]
            try:
                self._wait(lsn)
            except BaseException as error:
                while self._is_writing:
                    self._changed.wait()
                if self._durable_lsn < lsn and self._failure is None:
                    assert self._next_lsn == lsn + 1, (self._next_lsn, lsn)
                    del self._buffer[-part_count:]
                    self._next_lsn = lsn
                    _, self.segment_bytes, self.written_bytes = before
                elif isinstance(error, StorageError):
                    error.outcome = NOT_KNOWN
                elif self._failure is None:
                    self._failure = error  # another thread has written the record, and nobody makes its change
                raise
            return lsn

    def _append(self, kind: int, payload: Payload, sn: int) -> int:
        size = sum(len(part) for part in payload)
        if size > _RECORD_MAX:
            raise StorageError(
                f"a change of {size} bytes: a record of the log has at most {_RECORD_MAX}. Nothing of it is applied: "
                "make several changes of it"
            )
        lsn = self._next_lsn
        rest = _HEADER.pack(0, size, lsn, sn, self._synced_lsn, kind)[_CHECKED_FROM:]
        checksum = zlib.crc32(rest)
        for part in payload:
            checksum = zlib.crc32(part, checksum)
        self._buffer += (checksum.to_bytes(4, "little"), rest, *payload)
        self._next_lsn = lsn + 1
        self.written_bytes += _HEADER.size + size
        self.segment_bytes += _HEADER.size + size
        return lsn

    def wait(self, lsn: int) -> None:
        """Return when everything up to lsn is safe. Raises StorageError if that has failed: it may become safe later,
        with the next write."""
        with self._changed:
            try:
                self._wait(lsn)
            except StorageError as error:
                error.outcome = NOT_KNOWN
                raise

    def force(self) -> int:
        """Write and sync everything so far, whatever sync_interval_ms says; return the last record that is safe then.

        Raises as wait."""
        with self._changed:
            while self._is_writing:
                self._changed.wait()
            self._check_failure()
            self._commit(is_forced=True)
            return self._durable_lsn

    def _wait(self, lsn: int) -> None:
        while self._durable_lsn < lsn:
            self._check_failure()
            if self._is_writing:
                self._changed.wait()
            else:
                self._commit()

    def _commit(self, is_forced: bool = False) -> None:
        """Write and sync what has been appended; lets go of the lock meanwhile. Called with it held, once."""
        self._is_writing = True
        buffer, last = self._take_buffer()
        self._changed.release()
        failure: BaseException | None = None
        is_synced = False
        try:
            is_synced = self._write(buffer, is_forced)
        except BaseException as error:
            failure = error
        self._changed.acquire()
        self._is_writing = False
        if failure is None:
            self._durable_lsn = last
            self._synced_lsn = last if is_synced else self._synced_lsn
            self._lack = None
        elif isinstance(failure, _NotWritten):
            self._buffer = buffer + self._buffer  # the next group has it first
            self._lack = failure = failure.__cause__
        else:
            self._failure = failure
        self._changed.notify_all()
        if failure is not None:
            if not isinstance(failure, OSError):
                raise failure
            self._raise(failure)

    def _take_buffer(self) -> tuple[list[bytes | memoryview], int]:
        buffer, self._buffer = self._buffer, []
        return buffer, self._next_lsn - 1

    def _write(self, buffer: list[bytes | memoryview], is_forced: bool) -> bool:
        """Append to the file, and sync it; return whether it was synced. Raises _NotWritten, with its cause, if the
        file is as it was before; after any other error its content is unknown.

        A sync that has failed is never tried again: the kernel may have marked the pages as clean, or dropped them, so
        that the next sync would succeed without them. One that was interrupted has not failed."""
        assert self._file is not None, "a log is written after begin()"
        before = self._file_bytes
        if buffer:
            try:
                whole = b"".join(buffer)
            except MemoryError as error:
                raise _NotWritten from error
            try:
                self._disk.write(self._file, whole)
            except BaseException as error:  # also an interrupt
                if isinstance(error, OSError) and not _is_full(error):
                    raise
                self._disk.cut_back(self._file, before)
                raise _NotWritten from error
            self._file_bytes += len(whole)
        now_s = time.monotonic()
        is_synced = is_forced or now_s - self._synced_at_s >= self._sync_interval_s
        if is_synced:
            try:
                self._disk.fsync(self._file)
            except KeyboardInterrupt as error:
                if isinstance(error.__context__, OSError):
                    raise
                self._disk.cut_back(self._file, before)
                self._file_bytes = before
                raise _NotWritten from error
            self._synced_at_s = now_s
            self.sync_count += 1
        return is_synced

    def trim(self, start: int) -> None:
        """Remove the segments that end before the segment head `start`."""
        for head in self.segments():
            if head < start:
                self._disk.unlink(self.path(head))

    def close(self) -> None:
        """Write and sync the rest; close the file. Never raises: nobody waits for these records."""
        with self._changed:
            while self._is_writing:
                self._changed.wait()
            file, self._file = self._file, None
            if file is None:
                return
            buffer, last = self._take_buffer()
            try:
                if self._failure is None:
                    self._disk.write(file, b"".join(buffer))
                    self._disk.fsync(file)
                    self._durable_lsn = last
                    self._failure = OSError("the log is closed")
            except OSError as error:
                self._failure = error
            finally:
                file.close()
                self._changed.notify_all()


def records_in(data: memoryview) -> Iterator[Record]:
    """Yield the records of some bytes of a segment, which hold whole records. Raises: CorruptionError."""
    at = 0
    while at < len(data):
        record = _record_at(data, at)
        if record is None:
            raise CorruptionError(f"record at byte {at} of {len(data)} is altered: its checksum does not fit")
        at += _HEADER.size + len(record.payload)
        yield record


def _is_full(error: BaseException) -> bool:
    """Tell whether a disk, a quota or the largest allowed file is full: the only failures that end by themselves."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _record_at(data: memoryview, at: int) -> Record | None:
    """Return the record at a place of a segment; None if no whole record with a right checksum stands there."""
    if len(data) - at < _HEADER.size:
        return None
    checksum, size, lsn, sn, synced, kind = _HEADER.unpack_from(data, at)
    end = at + _HEADER.size + size
    if end > len(data) or zlib.crc32(data[at + _CHECKED_FROM : end]) != checksum:
        return None
    return Record(lsn, sn, synced, kind, data[at + _HEADER.size : end])


def _was_synced(path: Path, at: int, lsn: int) -> bool:
    """Tell whether a record behind the broken one at `at` knows that this one, `lsn`, had been synced."""
    tail = memoryview(path.read_bytes())[at:]
    for shift in range(8):
        numbers = np.frombuffer(tail[shift : shift + (len(tail) - shift) // 8 * 8], np.uint64)
        likely = np.flatnonzero((numbers > lsn) & (numbers <= lsn + len(tail) // _HEADER.size))
        for place in (likely * 8 + shift - _LSN_AT).tolist():
            record = _record_at(tail, place) if place > 0 else None
            if record is not None and record.synced >= lsn:
                return True
    return False
