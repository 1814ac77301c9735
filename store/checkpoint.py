"""CheckpointStore: the stored graph and its dictionary in a folder, as of the last commit.

    with CheckpointStore(folder) as store:
        restored = store.open()                       # None: nothing was committed yet
        if restored is not None:
            restored.into(trace, registry)            # both still empty
        ...
        with lock:
            entries, upper = trace.entries(), trace.upper
        store.commit(entries, upper, registry, {"any": "JSON"})

* A commit writes the batches and the dictionary's entries that are not in a file yet. Batches are immutable, so merges
  may go on meanwhile: an entry that was merged away is written as it was.
* Files are complete and on the disk before the manifest that names them is swapped in; those that the old manifest
  names go after that. So at any moment the folder holds the old state or the new one, whole.
* The dictionary's files are merged like the batches of a trace: a new one takes the last in as long as that is at most
  twice as large, so there are O(log n) of them and each entry is written O(log n) times.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wukongs.errors import CorruptionError, StorageError
from wukongs.store.batch import Batch, batch_of
from wukongs.store.column_file import ColumnFile
from wukongs.store.commit import KINDS, SUFFIX, Commit
from wukongs.store.dictionary import Dictionary
from wukongs.store.disk import Disk, storage_errors
from wukongs.store.encoded import TermTable
from wukongs.store.folder_lock import FolderLock
from wukongs.store.manifest import (
    NAME,
    TEMPORARY_NAME,
    EntryRecord,
    Manifest,
    TermsRecord,
    read_manifest,
    write_manifest,
)
from wukongs.store.term_registry import TermRegistry
from wukongs.store.trace import Trace, TraceEntry


@dataclass(frozen=True, slots=True, eq=False)
class Restored:
    """The content of a folder. The entries' batches lie in mapped files, and are verified when they are first read."""

    entries: tuple[TraceEntry, ...]
    upper: int
    hash_bits: int
    dictionary: Dictionary
    exceptions: tuple[tuple[int, str], ...]
    about: Mapping[str, Any]

    def into(self, trace: Trace, registry: TermRegistry) -> None:
        """Give all of it to a trace and a registry that are still empty.

        Raises StorageError if the registry's ids have another number of bits."""
        if registry.hash_bits != self.hash_bits:
            raise StorageError(
                f"the data folder was written with hash_bits = {self.hash_bits}, and the setting is "
                f"{registry.hash_bits}: ids would not be the same. Set hash_bits = {self.hash_bits}"
            )
        registry.restore(self.dictionary, self.exceptions)
        trace.restore(self.entries, self.upper)


class CheckpointStore:
    """One data folder. Thread-safe: commits take turns. Files whose names are not its own are left alone."""

    def __init__(self, folder: Path, disk: Disk | None = None, may_only_read: bool = False) -> None:
        """Make the folder if need be, and lock it. may_only_read: one that is not writable will do, see is_read_only.

        Raises StorageError (locked, no permission)."""
        self.folder = folder
        self._disk = disk or Disk()
        self._turn = threading.Lock()
        self._manifest: Manifest | None = None
        self._is_opened = False
        self._attempt = 0
        """The number of the last commit that was tried; never used again, so that no file is ever written twice."""
        self._names: weakref.WeakKeyDictionary[Batch, str] = weakref.WeakKeyDictionary()
        with storage_errors(f"cannot open {folder}", "Name a folder that this user may write to"):
            self._disk.make_folder(folder)
            self._folder_lock = FolderLock(folder, may_only_read)

    @property
    def is_read_only(self) -> bool:
        """Whether the folder is one that this user may only read."""
        return self._folder_lock.is_read_only

    def close(self) -> None:
        """Give the folder's lock back. Restored data stay readable; closing twice is allowed."""
        self._folder_lock.release()

    def __enter__(self) -> CheckpointStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Restored | None:
        """Return the state of the last commit, or what `begin` has noted, None if there is neither; remove the files of
        a commit that did not end.

        Raises CorruptionError (a file is missing, shortened or altered) and StorageError (another format, no access).
        """
        with self._turn, storage_errors(f"cannot read {self.folder}", "Mend the disk or the permissions, then retry"):
            self._is_opened = False
            self._manifest = read_manifest(self.folder)
            if self._manifest is None:
                self._check_is_new()
                self._is_opened = True
                return None
            self._attempt = self._manifest.number
            has_state = self._manifest.number or self._manifest.about
            restored = self._restore(self._manifest) if has_state else None
            if not self.is_read_only:
                self._sweep(self._manifest)
            self._is_opened = True
            return restored

    def _check_is_new(self) -> None:
        for kind in KINDS:
            for path in self.folder.glob(f"{kind}-*{SUFFIX}"):
                raise CorruptionError(
                    f"it is missing, and {path.name} is there. Restore the folder from a backup",
                    str(self.folder / NAME),
                )

    def _restore(self, manifest: Manifest) -> Restored:
        return Restored(
            tuple(self._restore_entry(record, manifest) for record in manifest.entries),
            manifest.upper,
            manifest.hash_bits,
            Dictionary.of(
                (self._read_terms(record, manifest) for record in manifest.terms),
                sum(record.stop - record.start for record in manifest.terms),
            ),
            manifest.exceptions,
            manifest.about,
        )

    def _restore_entry(self, record: EntryRecord, manifest: Manifest) -> TraceEntry:
        batch = self._restore_batch(record.batch, manifest)
        tombstones = None if record.tombstones is None else self._restore_batch(record.tombstones, manifest)
        return TraceEntry(batch, record.lower, record.upper, tombstones=tombstones)

    def _restore_batch(self, name: str, manifest: Manifest) -> Batch:
        source = ColumnFile(self.folder / name, manifest.files[name])
        batch = batch_of(source.columns, source)
        self._names[batch] = name
        return batch

    def _read_terms(self, record: TermsRecord, manifest: Manifest) -> TermTable:
        source = ColumnFile(self.folder / record.file, manifest.files[record.file])
        source.verify()
        return TermTable(**source.columns)

    def begin(self, hash_bits: int, about: Mapping[str, Any]) -> None:
        """Note `about` in a folder that has no manifest yet, so that what it tells of can be missed. Raises
        StorageError."""
        with self._turn, storage_errors(f"cannot write to {self.folder}", "Make room or mend the disk, then retry"):
            self._begin(hash_bits, about)

    def _begin(self, hash_bits: int, about: Mapping[str, Any]) -> Manifest:
        """Write a manifest of no commit, if there is none: from now on a folder without is known to have lost it.
        Return the one that is there."""
        if self._manifest is None:
            empty = Manifest(0, hash_bits, 0, {}, (), (), (), about)
            write_manifest(self._disk, self.folder, empty)
            self._disk.rename(self.folder / TEMPORARY_NAME, self.folder / NAME)
            self._disk.fsync_folder(self.folder)
            self._manifest = empty
        return self._manifest

    def commit(
        self, entries: Iterable[TraceEntry], upper: int, registry: TermRegistry, about: Mapping[str, Any]
    ) -> Manifest:
        """Write entries, the registry's persistent terms and `about` to the folder; return when all is on disk.

        entries, upper: of one trace at one moment, so taken under its owner's lock; this call needs no lock. about:
        of JSON types. Raises StorageError (disk full or failing): the folder then holds the last commit, or this one
        if only the disk's last confirmation is missing; either way another commit may be tried."""
        advice = "The last commit stands. Make room or mend the disk, then retry"
        with self._turn, storage_errors(f"cannot write to {self.folder}", advice):
            assert not self.is_read_only, f"{self.folder} is only read"
            assert self._is_opened, "open() tells what the folder holds; a commit takes its place"
            old = self._begin(registry.hash_bits, {})
            assert old.hash_bits == registry.hash_bits, (old.hash_bits, registry.hash_bits)
            self._attempt += 1
            commit = Commit(self._disk, self.folder, self._attempt, old, self._names)
            try:
                manifest = commit.write(entries, upper, registry, about)
            except Exception:
                commit.undo()
                raise
            self._disk.rename(self.folder / TEMPORARY_NAME, self.folder / NAME)
            self._manifest = manifest
            self._names.update(commit.names)
            self._disk.fsync_folder(self.folder)
            self._sweep(manifest)
            return manifest

    def _sweep(self, manifest: Manifest) -> None:
        """Remove files that the manifest does not name. A file that cannot be removed is left for the next time."""
        leftover = {path for kind in KINDS for path in self.folder.glob(f"{kind}-*{SUFFIX}")}
        leftover -= {self.folder / name for name in manifest.files}
        for path in [*sorted(leftover), self.folder / TEMPORARY_NAME]:
            with contextlib.suppress(OSError):
                self._disk.unlink(path)
