"""ViewJournal: the records of live views in the log of a data folder.

Before a report is handed to a reader, the log says so. So a restart knows each position up to which a reader may have
kept a sum, though it has not acknowledged the report: the view stops there on its way, and no report leads across.
Acknowledgements wait for the next record."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from wukongs.live.core import Core
from wukongs.live.views.recovered_views import OP
from wukongs.live.views.view_log import Position, ViewCursor, ViewLog

NOTED_MAX = 64
"""Unread reports of a cursor, at most, that are noted together: in one record, with one wait for the disk."""
Log = Callable[[dict[int, Any]], Callable[[], object]]


class ViewJournal:
    """One for all views of an engine. Views are named by the record that registered them, `of`."""

    def __init__(self, core: Core, log: Log, release: Callable[[int], object] = lambda _: None) -> None:
        """log: logs positions; returns what waits until they are there. release: gives back what the positions of a
        view hold. Called with the engine's lock held."""
        self._core, self._log, self.release = core, log, release
        self._moved: dict[tuple[int, str], tuple[ViewLog, ViewCursor]] = {}
        self._lock = threading.Lock()

    def register(self, state: Mapping[str, Any], *, makes: bool) -> int:
        """Log a view that is about to be registered; return its record. state: the fields of its ViewState. makes: the
        stream that it makes had no maker. Called with the engine's lock held. Raises StorageError."""
        return self._core.journal.commit({"op": OP, "what": "register", "state": dict(state), "makes": makes})

    def change(self, of: int, what: str, **fields: Any) -> None:
        """Log a change of a view that is about to be made. Called with the engine's lock held. Raises StorageError."""
        self._core.journal.commit({"op": OP, "what": what, "of": of, **fields})

    def note(self, of: int, log: ViewLog, cursor: ViewCursor) -> None:
        """Note that a cursor of a view has moved: the next record is followed by its position, if it has a name."""
        if cursor.name:
            with self._lock:
                self._moved[of, cursor.name] = log, cursor

    def take_news(self) -> dict[int, Any]:
        """Return the positions of the cursors that have moved since the last call. Called with the engine's lock
        held."""
        if not self._moved:
            return {}
        with self._lock:
            moved, self._moved = self._moved, {}
        news = dict[int, Any]()
        for (of, name), (log, cursor) in moved.items():
            with log.changed:
                news.setdefault(of, {"cursors": {}})["cursors"][name] = _written(cursor)
        return news

    def forget(self, of: int) -> None:
        """Forget a view that is closed. Called with the engine's lock held."""
        self.release(of)
        with self._lock:
            self._moved = {key: moved for key, moved in self._moved.items() if key[0] != of}

    def hand_out(self, of: int, log: ViewLog, cursor: ViewCursor, end: Position) -> None:
        """Have the log say that a reader is about to get the report up to a position, or a reset. Called without locks.
        Raises StorageError."""
        with log.changed:
            is_known = not cursor.is_noted_begun if cursor.is_beginning else end in cursor.noted
            if is_known:
                return
            before = set(cursor.noted)
            if cursor.is_beginning:
                cursor.noted.clear()
            else:
                cursor.noted |= {end, *log.ends_behind(cursor, NOTED_MAX)}
        try:
            with self._core.lock:
                with log.changed:
                    written = _written(cursor)
                wait = self._log({of: {"cursors": {cursor.name: written}}})
            wait()
        except BaseException:
            with log.changed:
                cursor.noted = before
                cursor.is_noted_begun = True
            raise

    def note_begin(self, of: int, log: ViewLog, cursor: ViewCursor) -> None:
        """Have the log say where a new cursor begins. Called with the engine's lock held. Raises StorageError."""
        with log.changed:
            written = _written(cursor)
        if written[0] is not None:
            self._log({of: {"cursors": {cursor.name: written}}})

    def note_giving(self, of: int, end_ms: int, at: Position) -> None:
        """Log that the next decision of the stream that a view makes, at a time, is for the view's content at a
        position. Called with the engine's lock held. Raises StorageError."""
        self._log({of: {"giving": [[end_ms, list(at)]]}})


def _written(cursor: ViewCursor) -> list[Any]:
    """Return a cursor as it is about to be logged."""
    found = cursor.as_json()
    cursor.is_noted_begun = found[0] is not None
    return found
