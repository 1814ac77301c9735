"""Manifest: the list of a data folder's content, in one small file that is swapped at once.

The file is one line `wukongs data folder, format <version>, <XXH64 of the rest>` and a JSON object. It names every
file that belongs to the folder, with size and checksums, so a file that is not named is left over from a commit that
did not end, and may go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wukongs.errors import CorruptionError, StorageError
from wukongs.store.column_file import Fingerprint
from wukongs.store.disk import Disk
from wukongs.store.term_ids import xxh64

NAME = "MANIFEST"
TEMPORARY_NAME = "MANIFEST.new"
FORMAT_VERSION = 2
"""The format that is written. From 2 on, `about` has the streams and queries of an engine; builds that know 1 refuse
it."""
_FORMATS = ("1", "2")
_TITLE = "wukongs data folder, format"


@dataclass(frozen=True, slots=True)
class EntryRecord:
    """An entry of the trace: SNs [lower, upper), the files of its additions and of its tombstones (or None)."""

    lower: int
    upper: int
    batch: str
    tombstones: str | None


@dataclass(frozen=True, slots=True)
class TermsRecord:
    """The file with the dictionary's entries [start, stop)."""

    file: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """number: of the commit, 0 if there was none yet; exceptions: (id, canonical form), in order;
    about: the engine's own state, in JSON types.
    """

    number: int
    hash_bits: int
    upper: int
    files: Mapping[str, Fingerprint]
    entries: tuple[EntryRecord, ...]
    terms: tuple[TermsRecord, ...]
    exceptions: tuple[tuple[int, str], ...]
    about: Mapping[str, Any]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, the manifest apart."""
        return sum(fingerprint.size for fingerprint in self.files.values())

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        body = json.dumps(
            {
                "number": self.number,
                "hash_bits": self.hash_bits,
                "upper": self.upper,
                "files": {name: [found.size, found.sums.tobytes().hex()] for name, found in self.files.items()},
                "entries": [[entry.lower, entry.upper, entry.batch, entry.tombstones] for entry in self.entries],
                "terms": [[record.file, record.start, record.stop] for record in self.terms],
                "exceptions": self.exceptions,
                "about": self.about,
            }
        ).encode()
        return f"{_TITLE} {FORMAT_VERSION}, {xxh64(body):016x}\n".encode() + body

    @staticmethod
    def of(data: bytes, path: Path) -> Manifest:
        """Read a file's content. Raises CorruptionError; StorageError for a format of another version."""
        line, _, body = data.partition(b"\n")
        head, _, checksum = line.decode("ascii", "replace").rpartition(", ")
        title, _, version = head.rpartition(" ")
        if title != _TITLE or not version.isdigit():
            raise _altered(path)
        if version not in _FORMATS:
            raise StorageError(
                f"{path}: written in format {version}, and this version of wukongs reads formats "
                f"{' and '.join(_FORMATS)}. Open the folder with the version that wrote it, dump it and load the dump"
            )
        if checksum != f"{xxh64(body):016x}":
            raise _altered(path)
        found = json.loads(body)
        return Manifest(
            number=found["number"],
            hash_bits=found["hash_bits"],
            upper=found["upper"],
            files={
                name: Fingerprint(size, np.frombuffer(bytes.fromhex(sums), np.uint64))
                for name, (size, sums) in found["files"].items()
            },
            entries=tuple(EntryRecord(*entry) for entry in found["entries"]),
            terms=tuple(TermsRecord(*record) for record in found["terms"]),
            exceptions=tuple((term, text) for term, text in found["exceptions"]),
            about=found["about"],
        )


def _altered(path: Path) -> CorruptionError:
    return CorruptionError("it is not what was written. Restore the folder from a backup", str(path))


def read_manifest(folder: Path) -> Manifest | None:
    """Read a folder's manifest, None if there is none. Raises as Manifest.of, and OSError."""
    path = folder / NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return Manifest.of(data, path)


def write_manifest(disk: Disk, folder: Path, manifest: Manifest) -> None:
    """Write a manifest beside the one that counts, and see it to the disk; swap it in with `rename`. Raises OSError."""
    with disk.create(folder / TEMPORARY_NAME) as file:
        disk.write(file, manifest.to_bytes())
        disk.fsync(file)
