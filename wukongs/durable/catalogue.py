"""The declared streams and registered queries of a data folder, as a checkpoint keeps them.

They stand in the manifest, under its checksum, as they were at the record of the log that recovery starts with; later
ones come from the log. Folders of manifest format 1 have them in SQLite, in catalogue.sqlite, as rows that say from
which record of the log on they hold, and until which. The next checkpoint takes that file away.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from wukongs.csparql.algebra import Output
from wukongs.errors import CorruptionError
from wukongs.live.query_source import UNREAD_BYTES_MAX, Unread

OLD_NAME = "catalogue.sqlite"
ABOUT_KEY = "definitions"


@dataclass(slots=True)
class Definition:
    """A stream (options) or a query (the fields of its QuerySource): declared by record lsn; dropped or closed by
    record until."""

    lsn: int
    name: str
    options: dict[str, Any] | None = None
    text: str = ""
    base: str | None = None
    until: int | None = None
    output: Output | None = None
    unread_bytes_max: int = UNREAD_BYTES_MAX
    unread: Unread = "drop"
    bindings: str | None = None
    only: list[str] | tuple[str, ...] | None = None


_FIELDS = {field.name: field.default for field in fields(Definition)}
"""The fields of a definition with their defaults."""


def definitions_at(definitions: Iterable[Definition], lsn: int) -> list[dict[str, Any]]:
    """Return those that were declared before record lsn and had not ended by then, in order, in JSON types, without
    the fields that have their defaults."""
    return [
        {name: value for name in _FIELDS if (value := getattr(each, name)) != _FIELDS[name]}
        for each in _holding(definitions, lsn)
    ]


def read_definitions(folder: Path, journal: Mapping[str, Any], lsn: int) -> list[Definition]:
    """Return the streams and queries that existed just before log record `lsn`, the one that recovery starts with.

    journal: what the manifest says of the log; empty before the first checkpoint. Raises CorruptionError (a catalogue
    of a folder of format 1 that is none)."""
    if ABOUT_KEY in journal:
        return [Definition(**each) for each in journal[ABOUT_KEY]]
    path = folder / OLD_NAME
    if not path.exists():
        return []
    return _holding(_read_old(path), lsn)


def remove_old(folder: Path) -> None:
    """Remove the catalogue of a folder of format 1; its place is in the manifest now."""
    for suffix in ("", "-wal", "-shm"):
        (folder / (OLD_NAME + suffix)).unlink(missing_ok=True)


def _holding(definitions: Iterable[Definition], lsn: int) -> list[Definition]:
    holding = (each for each in definitions if each.lsn < lsn and (each.until is None or each.until >= lsn))
    return sorted(holding, key=lambda each: each.lsn)


def _read_old(path: Path) -> list[Definition]:
    has_journal = path.with_name(path.name + "-wal").exists()  # left by a process that was killed: SQLite applies it
    mode = "mode=rw" if has_journal else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                return []  # the first write never ended
            streams = connection.execute("SELECT lsn, iri, options, until FROM streams").fetchall()
            queries = connection.execute("SELECT * FROM queries").fetchall()
        found = [Definition(row[0], row[1], json.loads(row[2]), until=row[3]) for row in streams]
        return found + [Definition(row[0], row[1], None, *row[2:]) for row in queries]
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:
        raise CorruptionError(f"expected the catalogue of streams and queries: {error}", str(path)) from error
