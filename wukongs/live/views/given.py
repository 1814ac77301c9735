"""Given: what a live view has put into the stream that it makes, whatever has happened to the view."""

from __future__ import annotations

from dataclasses import dataclass

from wukongs.incremental.arranged import Arranged
from wukongs.incremental.templates import TRIPLE
from wukongs.incremental.zset import ZSet
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

    begins_whole: the first period also gives the content of the moment when the view was registered."""

    begins_whole: bool
    _rows: Arranged | None = None
    """None: the view was not built yet."""
    _owed: ZSet | None = None
    _terms: QueryTerms | None = None

    def begin_again(self, content: ZSet, terms: QueryTerms) -> None:
        """Note the content of a view that was built anew."""
        if self._rows is None:
            self._rows = Arranged(TRIPLE) if self.begins_whole else Arranged(TRIPLE).plus(content)
        self._take_terms(terms)
        self._owed = content.plus(self._rows.rows().negated()).project(TRIPLE).consolidated()

    def change(self, found: ZSet, terms: QueryTerms) -> ZSet:
        """Return what the period gives that ends now. found: what has changed in it since the view was built."""
        assert self._owed is not None
        self._take_terms(terms)
        return self._owed.plus(found).project(TRIPLE).consolidated()

    def owe(self, change: ZSet) -> None:
        """Note that a change is not in the stream yet: the next period gives it."""
        self._owed = change

    def give(self, change: ZSet) -> None:
        """Note that a change is in the stream."""
        assert self._rows is not None
        self._rows, self._owed = self._rows.plus(change), ZSet.empty(TRIPLE)

    def _take_terms(self, terms: QueryTerms) -> None:
        """Have ids of these terms."""
        before, self._terms = self._terms, terms
        if before is None or self._rows is None or before.shares_ids(terms):
            return
        self._rows = Arranged(TRIPLE).plus(self._rows.rows().renumbered(before, terms))
        if self._owed is not None:
            self._owed = self._owed.renumbered(before, terms)

    @property
    def size_bytes(self) -> int:
        return 0 if self._rows is None else self._rows.size_bytes
