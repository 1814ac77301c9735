"""NamedReaders: where the named readers of live views stand, by the log of a cluster.

The log has a position of a reader before it gets the report that leads there, as the log of a data folder does. The
node of the view holds what these positions read, so all nodes keep it readable, and a node that takes the view over
goes on there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from wukongs.errors import CompactedError
from wukongs.live.core import Core
from wukongs.live.query_source import QuerySource
from wukongs.live.views.following_view import FollowingView
from wukongs.live.views.snapshots import Snapshot, Snapshots
from wukongs.live.views.view_state import Cursor, digest, is_named


class NamedReaders:
    """Called with the engine's lock held.

    views: of this engine, by name."""

    def __init__(self, core: Core, snapshots: Snapshots, views: Mapping[str, FollowingView]) -> None:
        self._core, self._snapshots, self._views = core, snapshots, views
        self._held: dict[tuple[int, str], tuple[list[Snapshot], list[Snapshot]]] = {}
        """By view and reader, the snapshots of its positions, and those of its positions before: these are given back
        once the log has others."""

    def log(self, news: Mapping[int, Any]) -> Callable[[], None]:
        """Have the log of the cluster say how far readers have got. Return what waits for it."""
        waits, query_log = list[Callable[[], None]](), self._core.query_log
        for of, each in news.items():
            view = next((view for view in self._views.values() if view.of == of), None)
            for name, written in each["cursors"].items():
                if view is not None and query_log is not None and is_named(name):
                    if not view.is_paused:
                        self._hold((of, name), written)
                    waits.append(query_log.note_reader(view.name, name, stand_text(view.source, written)))

        def wait() -> None:
            for one in waits:
                one()

        return wait

    def _hold(self, reader: tuple[int, str], written: Cursor) -> None:
        at, handed = written
        held = list[Snapshot]()
        for sn in {position[0] for position in ([] if at is None else [at, *handed])}:
            with suppress(CompactedError):
                held.append(self._snapshots.at(sn))
        before, older = self._held.get(reader, ([], []))
        self._held[reader] = held, before
        self._release(older)

    def bound_lag(self) -> None:
        """Give back what readers that are too far behind hold: after a move of their view they begin with a reset."""
        for reader, both in list(self._held.items()):
            if any(self._snapshots.lag(one, one.passed_at_s) is not None for held in both for one in held):
                self._forget(reader)

    def forget(self, of: int) -> None:
        """Forget the readers of a view that is paused, or does not stand here any more."""
        for reader in [one for one in self._held if one[0] == of]:
            self._forget(reader)

    def _forget(self, reader: tuple[int, str]) -> None:
        for held in self._held.pop(reader):
            self._release(held)

    def _release(self, held: Iterable[Snapshot]) -> None:
        for snapshot in held:
            self._snapshots.release(snapshot)


def stand_text(source: QuerySource, written: Cursor) -> str:
    """Return where a reader of a view stands as the log of a cluster has it. source: the text that it reads."""
    return json.dumps([_text_of(source), written])


def stand_of(text: str, source: QuerySource) -> Cursor | None:
    """Return where a reader stands; None: it read another text. Raises ValueError, TypeError."""
    of, (at, handed) = json.loads(text)
    return [at, handed] if of == _text_of(source) else None


def _text_of(source: QuerySource) -> str | None:
    return digest(json.dumps([source.text, source.base, source.output]))
