"""The files that a data folder has loaded, and how far: kept in the manifest's `about`."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wukongs.store.term_ids import xxh64

HEAD_BYTES = 1 << 16
ABOUT_KEY = "loads"


@dataclass(slots=True)
class FileState:
    """How far a file has come. path to graph say which one it is; scope: number of its blank nodes' scope; offset,
    line: where to go on; read, new: tuples; malformed: lines."""

    path: str
    size: int
    mtime_ns: int
    head: int
    graph: str | None
    scope: int
    offset: int = 0
    line: int = 1
    read: int = 0
    new: int = 0
    malformed: int = 0
    is_done: bool = False

    @staticmethod
    def of(source: object, graph: str | None, scope: int) -> FileState:
        """Return the state of a file that nothing was read of yet; a nameless one for what is no regular file, which
        is only read once. Raises OSError."""
        if not isinstance(source, Path) or not source.is_file():
            return FileState("-", 0, 0, 0, graph, scope)
        with source.open("rb") as file:
            found, head = os.fstat(file.fileno()), file.read(HEAD_BYTES)
        return FileState(str(source.resolve()), found.st_size, found.st_mtime_ns, xxh64(head), graph, scope)

    @property
    def is_named(self) -> bool:
        return self.path != "-"

    def is_same_file(self, other: FileState) -> bool:
        """Tell whether both name the same content for the same graph."""
        return all(
            getattr(self, name) == getattr(other, name) for name in ("path", "size", "mtime_ns", "head", "graph")
        )


class LoadedFiles:
    """The files of one data folder. scopes: how many scopes of blank nodes were given out."""

    def __init__(self, about: dict[str, Any]) -> None:
        """about: of the manifest."""
        loads = about.get(ABOUT_KEY, {"scopes": 0, "files": []})
        self.scopes: int = loads["scopes"]
        self._files = [FileState(**state) for state in loads["files"]]

    def known(self, path: Path, graph: str | None) -> FileState | None:
        """Return how far a file had come when it was loaded into this graph, None if it never was, or has changed."""
        now = FileState.of(path, graph, 0)
        return next((state for state in self._files if state.is_same_file(now)), None) if now.is_named else None

    def add(self, state: FileState) -> None:
        """Note a file, in place of what was known of its path and graph."""
        self._files = [old for old in self._files if (old.path, old.graph) != (state.path, state.graph)]
        self._files.append(state)

    def into(self, about: dict[str, Any]) -> dict[str, Any]:
        """Return `about` with these files."""
        return {**about, ABOUT_KEY: {"scopes": self.scopes, "files": [asdict(state) for state in self._files]}}
