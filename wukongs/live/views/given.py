"""Given: what a live view has put into the stream that it makes, whatever has happened to the view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wukongs.incremental.arranged import Arranged
from wukongs.incremental.templates import TRIPLE
from wukongs.incremental.zset import ZSet
from wukongs.live.views.logged_givings import LoggedGivings
from wukongs.live.views.view_log import Position
from wukongs.live.views.written_rows import written
from wukongs.query.terms.query_terms import QueryTerms


class MakesByPeriods:
    """The side of a live view that the stream asks which it makes (made_streams.Producer). The end of each period is
    decided by itself, and nothing else is known in advance."""

    is_firing = False
    """Updates do not wait for views; `settle` does."""

    def reads(self, stream_iri: str) -> bool:
        return False

    def decided_ms(self) -> int | None:
        return None

    def settled_decided_ms(self) -> tuple[int | None, bool]:
        return None, False

    def settled_next_ms(self) -> int | None:
        return None


@dataclass(slots=True)
class Given:
    """The sum of what periods have put into the stream is the content at the end of the last one. So a view that begins
    again (after a pause, an error, with another text, or too far behind) owes the stream what it has missed, until the
    period under way ends.

    begins_whole: the first period also gives the content of the moment when the view was registered.
    at: the view's position with the content that the stream has; None: what it has is no content of the view, or
    nothing yet.
    to: the end of the period that is being given, and the position there; None: none is.
    until: what changes up to this position is in the stream since before the engine was opened; None: the view has
    passed it.
    is_late: the stream stands at a later time than the last period, so that it got nothing.
    logged: what the log of a cluster has of it; None: the view is of an engine of one process."""

    begins_whole: bool
    at: Position | None = None
    until: Position | None = None
    to: tuple[int, Position] | None = None
    is_late: bool = False
    logged: LoggedGivings | None = None
    _kept: tuple[Arranged, QueryTerms] | None = None
    """Triples that the stream has, and the texts of their terms; None: the view was not built yet."""
    _owed: ZSet | None = None

    @property
    def rows(self) -> tuple[ZSet, QueryTerms] | None:
        """The triples that the stream has; None: not known before the view is built."""
        kept = self._kept
        return None if kept is None else (kept[0].rows().project(TRIPLE), kept[1])

    def restore(self, rows: ZSet, terms: QueryTerms) -> None:
        """Note what the stream has got before the engine was opened, or from another node."""
        self._kept = Arranged(TRIPLE).plus(rows), terms

    def written(self) -> dict[str, Any] | None:
        """Return what the stream has, as ViewState has it; None: it follows from where the view is built."""
        rows = self.rows
        return None if rows is None else {"rows": written(*rows)}

    def written_rows(self) -> str:
        """Return what the stream has as text, once that is known."""
        rows = self.rows
        assert rows is not None, "the view is built"
        return written(*rows)

    def begin_again(self, content: ZSet, terms: QueryTerms, at: Position) -> None:
        """Note the content of a view that was built anew, at a position."""
        if self._kept is None:
            self._kept = Arranged(TRIPLE) if self.begins_whole else Arranged(TRIPLE).plus(content), terms
            self.at = None if self.begins_whole else at
        self._pass(at)
        kept = self._take_terms(terms)
        self._owed = content.plus(kept.rows().negated()).project(TRIPLE).consolidated()

    def change(self, found: ZSet, terms: QueryTerms) -> ZSet:
        """Return what the period gives that ends now. found: what has changed in it since the view was built."""
        assert self._owed is not None
        self._take_terms(terms)
        return self._owed.plus(found).project(TRIPLE).consolidated()

    def owe(self, change: ZSet) -> None:
        """Note that a change is not in the stream yet: the next period gives it."""
        self._owed = change

    def give(self, change: ZSet, at: Position) -> None:
        """Note that a change is in the stream, which has the view's content at a position with it."""
        assert self._kept is not None
        self._kept, self._owed, self.at = (self._kept[0].plus(change), self._kept[1]), ZSet.empty(TRIPLE), at

    def stop(self, found: ZSet, terms: QueryTerms, at: Position) -> None:
        """Note what has changed up to a position where no period ends."""
        change = self.change(found, terms)
        if self.until is not None and at <= self.until:
            self.give(change, at)
        else:
            self.owe(change)
        self._pass(at)

    def _pass(self, at: Position) -> None:
        if self.until is not None and at >= self.until:
            self.until = None

    def _take_terms(self, terms: QueryTerms) -> Arranged:
        """Have ids of these terms; return the rows."""
        assert self._kept is not None
        rows, before = self._kept
        if not before.shares_ids(terms):
            rows = Arranged(TRIPLE).plus(rows.rows().renumbered(before, terms))
            if self._owed is not None:
                self._owed = self._owed.renumbered(before, terms)
        self._kept = rows, terms
        return rows

    @property
    def size_bytes(self) -> int:
        return 0 if self._kept is None else self._kept[0].size_bytes
