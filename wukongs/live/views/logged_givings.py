"""LoggedGivings: what a live view puts into the stream that it makes, as the log of a cluster has it.

The log has each change before the stream gets it, also one without triples, as the stand of a reader of a reserved name
(NameReaders): so a node that has the view no more says nothing. The node that takes the view over knows what the stream
has, and gives the last change once more, which the stream's writer drops if it has it. A change is forgotten once the
sum of all changes is in the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from wukongs.errors import DataError

_WHOLE, _NONE, _CHANGE = "into whole", "into none", "into change {}"
TOGETHER_BYTES_MIN = 1 << 16
"""Changes of fewer bytes stay by themselves."""


class Giving(NamedTuple):
    """Triples that one period gives, or the sum of all up to it.

    number: of the change, from 1.
    end_ms: the end of the period; None: a sum.
    rows: its triples with their weights (written_rows); None: none."""

    number: int
    end_ms: int | None
    rows: str | None

    def text(self) -> str:
        return json.dumps(self)

    @staticmethod
    def read(text: str) -> Giving:
        """Raises DataError."""
        try:
            number, end_ms, rows = json.loads(text)
            is_sound = type(number) is int and type(end_ms) in (int, type(None)) and type(rows) in (str, type(None))
        except (ValueError, TypeError, RecursionError):
            is_sound = False
        if not is_sound:
            raise DataError(f"expected what a live view gives its stream, found {text[:100]!r}")
        return Giving(number, end_ms, rows)


class LoggedGivings:
    """The records of one view. stands: what the log has of the view's readers, by their names. Raises DataError."""

    def __init__(self, stands: Mapping[str, str]) -> None:
        self._found = {name: Giving.read(text) for name, text in stands.items() if is_giving(name)}

    @property
    def _whole(self) -> Giving:
        return self._found.get(_WHOLE, Giving(0, None, None))

    @property
    def _changes(self) -> list[Giving]:
        """Those that are in no sum, in order."""
        whole = self._whole
        return sorted(one for one in self._found.values() if one.end_ms is not None and one.number > whole.number)

    @property
    def is_begun(self) -> bool:
        """Whether the log has anything."""
        return bool(self._found)

    @property
    def last(self) -> Giving | None:
        """The last change, which the stream may not have got yet; None: there is none, or it has it."""
        changes = self._changes
        return changes[-1] if changes else None

    @property
    def rows(self) -> list[str]:
        """The triples that the stream has, the last change among them, as texts that are summed."""
        return [one.rows for one in (self._whole, *self._changes) if one.rows is not None]

    def begin(self, rows: str) -> tuple[str, str]:
        """Return the record, a reader and its stand, of what the stream is held to have though nobody has given it."""
        return self._noted(_WHOLE, Giving(0, None, rows))

    def next(self, end_ms: int, rows: str | None, whole: Callable[[], str]) -> list[tuple[str, str]]:
        """Return the records of one more change, in order, when the stream has those before. rows: None: the period has
        changed nothing; whole: returns the sum of those before."""
        changes, last = self._changes, self._whole.number
        last, found = (changes[-1].number if changes else last), list[tuple[str, str]]()
        size = sum(len(one.rows or "") for one in changes)
        if size > max(TOGETHER_BYTES_MIN, len(self._whole.rows or "")):
            found.append(self._noted(_WHOLE, Giving(last, None, whole())))
        name = _NONE if rows is None else self._free_name()
        return [*found, self._noted(name, Giving(last + 1, end_ms, rows))]

    def _free_name(self) -> str:
        """Return the first name whose change is in the sum."""
        at, number = 0, self._whole.number
        while (known := self._found.get(_CHANGE.format(at))) is not None and known.number > number:
            at += 1
        return _CHANGE.format(at)

    def _noted(self, name: str, giving: Giving) -> tuple[str, str]:
        self._found[name] = giving
        return name, giving.text()


def is_giving(reader: str) -> bool:
    """Return whether a stand is that of a stream."""
    return reader.startswith("into ")
