"""ViewState: a live view as the checkpoint and the log of a data folder have it, in JSON types."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from typing import Any

from wukongs.live.views.view_log import Position

OWN = "own"
CALLED = "on_result"
"""Names of the cursors that results() without a group and on_result have."""
Cursor = list[Any]
"""The position of a cursor, None if its next report is a reset, and the positions behind that its reader may have."""


def named(group: str) -> str:
    """Return the name of the cursor of a group."""
    return f"group {group}"


def is_named(cursor: str) -> bool:
    """Return whether a cursor is that of a group."""
    return cursor.startswith(named(""))


def digest(bindings: str | None) -> str | None:
    """Return what stands for the first table of arguments, by which a view is known when it is registered again."""
    return None if bindings is None else hashlib.sha256(bindings.encode()).hexdigest()


@dataclass(slots=True)
class ViewState:
    """of: the record that registered it.
    source: the fields of its QuerySource, without bindings; table: their digest; names: the columns of arguments.
    options: those of ViewOptions.
    at: the position where it stands; reports lead from reports_from to there.
    arguments: those that are bound there: version, next_number, and rows as text.
    bound: what was bound (a table as text) and unbound (numbers) behind, each with the version after it.
    given: what the stream has that it makes: {"at": position} the content there, {"rows": text}, or {}, nothing.
    giving: the ends of periods behind that may be in the stream, if this has taken them, and the positions there."""

    of: int
    name: str
    source: dict[str, Any]
    options: dict[str, Any]
    at: list[int]
    table: str | None = None
    names: list[str] | None = None
    cursors: dict[str, Cursor] = field(default_factory=dict)
    is_paused: bool = False
    reports_from: list[int] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    arguments: dict[str, Any] | None = None
    bound: list[list[Any]] = field(default_factory=list)
    given: dict[str, Any] | None = None
    giving: list[list[Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def position(self) -> Position:
        return Position(*self.at)

    def positions(self) -> set[Position]:
        """Return the positions where the view may have to go on, or to stop on its way."""
        found = {self.position}
        for at, handed in self.cursors.values():
            if at is not None:
                found |= {Position(*at), *(Position(*one) for one in handed)}
        if self.given is not None and "at" in self.given:
            found.add(Position(*self.given["at"]))
        return found | {Position(*position) for _, position in self.giving}

    def change(self, change: dict[str, Any]) -> None:
        """Take a record of the log. Raises KeyError for a change that is not known."""
        what = change["what"]
        if change.get("given") is not None:
            self.given, self.giving = change["given"], []
        if what in ("pause", "resume"):
            self.is_paused = what == "pause"
            self._begin_again()
        elif what == "replace":
            self.source |= {name: change[name] for name in ("text", "base", "output")}
            self._begin_again()
        elif what in ("bind", "unbind"):
            self.bound.append([change["version"], what, change["arguments"]])
        else:
            raise KeyError(what)

    def _begin_again(self) -> None:
        self.cursors, self.reports, self.reports_from = {name: [None, []] for name in self.cursors}, [], self.at

    def note_read(self, news: dict[str, Any]) -> None:
        """Take a record of how far readers and the stream have got."""
        self.cursors |= news.get("cursors", {})
        self.giving += news.get("giving", [])
