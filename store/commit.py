"""Commit: the files that one commit adds to a data folder, up to the manifest that is to be swapped in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wukongs.store.batch import Batch
from wukongs.store.column_file import Columns, Fingerprint, write_columns
from wukongs.store.dictionary import Dictionary
from wukongs.store.disk import Disk
from wukongs.store.manifest import TEMPORARY_NAME, EntryRecord, Manifest, TermsRecord, write_manifest
from wukongs.store.term_registry import TermRegistry
from wukongs.store.trace import TraceEntry

KINDS = ("batch", "terms")
SUFFIX = ".arrow"
TERMS_MAX = 1 << 23
"""Entries of the dictionary in one file, so that writing takes a bounded copy of them."""
TEXT_BYTES_MAX = 1 << 30
"""Their text: a column has less than 2 ** 31 items."""


class Commit:
    """names: the files of the batches that this commit wrote."""

    def __init__(self, disk: Disk, folder: Path, number: int, old: Manifest, old_names: Mapping[Batch, str]) -> None:
        self.names: dict[Batch, str] = {}
        self._disk = disk
        self._folder = folder
        self._number = number
        self._old = old
        self._old_names = old_names
        self._begun: list[Path] = []
        self._written: dict[str, Fingerprint] = {}

    def write(
        self, entries: Iterable[TraceEntry], upper: int, registry: TermRegistry, about: Mapping[str, Any]
    ) -> Manifest:
        """Write the entries and terms that are in no file yet, and the manifest beside the old one; all is on the disk
        then.

        Raises OSError; call undo() after it."""
        # An entry needs its terms, and they their exceptions: what comes later here may hold more, never less.
        entry_records = tuple(map(self._write_entry, entries))
        term_records = self._write_terms(registry.persistent)
        used = [name for record in entry_records for name in (record.batch, record.tombstones) if name is not None]
        used += [record.file for record in term_records]
        known = {**self._old.files, **self._written}
        manifest = Manifest(
            self._number,
            registry.hash_bits,
            upper,
            {name: known[name] for name in used},
            entry_records,
            term_records,
            tuple(registry.exception_records(0)),
            about,
        )
        self._disk.fsync_folder(self._folder)
        self._begun.append(self._folder / TEMPORARY_NAME)
        write_manifest(self._disk, self._folder, manifest)
        return manifest

    def undo(self) -> None:
        """Remove all files that were written, whole or in part, so that others have the room."""
        for path in self._begun:
            with contextlib.suppress(OSError):
                self._disk.unlink(path)

    def _write_entry(self, entry: TraceEntry) -> EntryRecord:
        tombstones = None if entry.tombstones is None else self._batch_file(entry.tombstones)
        return EntryRecord(entry.lower, entry.upper, self._batch_file(entry.batch), tombstones)

    def _batch_file(self, batch: Batch) -> str:
        name = self._old_names.get(batch)
        if name is None or name not in self._old.files:  # a commit between may have left it out
            name = self.names[batch] = self._write_file("batch", batch.columns())
        return name

    def _write_terms(self, dictionary: Dictionary) -> tuple[TermsRecord, ...]:
        """Write the entries that are in no file yet, together with those of the last files while these are small."""
        records = list(self._old.terms)
        start, stop = records[-1].stop if records else 0, len(dictionary)
        if start == stop:
            return self._old.terms
        while records and self._is_smaller(records[-1], 2 * (stop - start)):
            start = records.pop().start
        while start < stop:
            end = dictionary.end_within(start, min(stop, start + TERMS_MAX), TEXT_BYTES_MAX)
            terms = dictionary.entries(start, end)
            columns: Columns = {"ids": terms.ids, "offsets": terms.offsets, "text": terms.text}
            records.append(TermsRecord(self._write_file("terms", columns), start, end))
            start = end
        return tuple(records)

    def _is_smaller(self, record: TermsRecord, count_max: int) -> bool:
        """Tell whether a file has at most this many entries, and room for as many as it has."""
        size = self._old.files[record.file].size
        return record.stop - record.start <= min(count_max, TERMS_MAX // 2) and size <= TEXT_BYTES_MAX // 2

    def _write_file(self, kind: str, columns: Columns) -> str:
        name = f"{kind}-{self._number:06}-{len(self._begun):02}{SUFFIX}"
        self._begun.append(self._folder / name)
        self._written[name] = write_columns(self._disk, self._folder / name, columns)
        return name
