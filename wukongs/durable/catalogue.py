"""Catalogue: the declared streams and registered queries of a data folder, in SQLite, as of the last checkpoint.

Each row says from which record of the log on it holds, and until which: so whoever starts to read the log at record R
takes the rows with lsn < R that had not ended by then; later ones come from the log.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wukongs.csparql.algebra import Output
from wukongs.errors import CorruptionError, StorageError

NAME = "catalogue.sqlite"
_TABLES = {
    "streams": "CREATE TABLE streams (lsn INTEGER PRIMARY KEY, iri TEXT NOT NULL, options TEXT NOT NULL, "
    "until INTEGER)",
    "queries": "CREATE TABLE queries (lsn INTEGER PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL, base TEXT, "
    "until INTEGER, output TEXT)",
}


@dataclass(slots=True)
class Definition:
    """A stream (options) or a query (text, base, output): declared by record lsn; dropped or closed by record until."""

    lsn: int
    name: str
    options: dict[str, Any] | None = None
    text: str = ""
    base: str | None = None
    until: int | None = None
    output: Output | None = None


class Catalogue:
    """The file catalogue.sqlite of a data folder; open only while it is read or written."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def write(self, definitions: Iterable[Definition]) -> None:
        """Make these the content, in one transaction. Raises StorageError."""
        streams, queries = [], []
        for each in definitions:
            if each.options is not None:
                streams.append((each.lsn, each.name, json.dumps(each.options), each.until))
            else:
                queries.append((each.lsn, each.name, each.text, each.base, each.until, each.output))
        with self._opened() as connection, connection:
            connection.execute("BEGIN")
            for name, table in _TABLES.items():
                connection.execute(f"DROP TABLE IF EXISTS {name}")
                connection.execute(table)
            connection.executemany("INSERT INTO streams VALUES (?, ?, ?, ?)", streams)
            connection.executemany("INSERT INTO queries VALUES (?, ?, ?, ?, ?, ?)", queries)

    def read(self, lsn: int) -> list[Definition]:
        """Return what was declared before record lsn, and dropped neither before it, in order.

        Raises StorageError, CorruptionError (no file of ours)."""
        if not self.path.exists():
            return []
        with self._opened() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                return []  # the first write never ended
            streams = connection.execute("SELECT lsn, iri, options, until FROM streams").fetchall()
            queries = connection.execute("SELECT * FROM queries").fetchall()
        found = [Definition(row[0], row[1], json.loads(row[2]), until=row[3]) for row in streams]
        found += [Definition(row[0], row[1], None, *row[2:]) for row in queries]
        return sorted(
            (each for each in found if each.lsn < lsn and (each.until is None or each.until >= lsn)),
            key=lambda each: each.lsn,
        )

    @contextmanager
    def _opened(self) -> Any:
        try:
            with closing(sqlite3.connect(self.path)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                yield connection
        except sqlite3.OperationalError as error:
            raise StorageError(f"{self.path}: {error}. Make room on the disk, and open the folder again") from error
        except sqlite3.DatabaseError as error:
            raise CorruptionError(f"expected the catalogue of streams and queries: {error}", str(self.path)) from error
