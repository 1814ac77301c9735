"""The engines that answer the same questions on the same data, behind one small interface.

wukongs itself is one of them, for questions that any engine can be asked. Times of a `select` are those from the text
of a query to its rows as N-Triples terms: each engine pays for writing its terms.
"""

from __future__ import annotations

import math
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from wukongs.csparql.terms import XSD
from wukongs.errors import DataError
from wukongs.query.terms.rdf_terms import from_ntriples, to_ntriples

Rows = list[tuple[str | None, ...]]
"""Rows of a SELECT: N-Triples terms in the order of its variables, None where one is not bound."""
WUKONGS = "wukongs"
_REALS = tuple(f"^^<{XSD}{name}>" for name in ("double", "float", "decimal"))
_INTEGERS = tuple(
    f"^^<{XSD}{name}>"
    for name in ("integer", "int", "long", "short", "byte", "unsignedInt", "unsignedLong", "nonNegativeInteger")
)
DIGITS = 11
"""Significant digits to which numbers are compared: engines write them, and add them, in their own ways."""


class Peer(Protocol):
    """One engine, from the moment it is made until it is closed. Each call may raise PeerFailed or TooSlow.

    select may also raise CannotSay: then the engine is asked further questions."""

    name: str
    version: str

    def load(self, ntriples: bytes) -> None:
        """Make these triples the default graph. It is called once."""

    def window(self, graphs: Mapping[str, bytes]) -> None:
        """Make these the named graphs, each the N-Triples of one window; others are gone."""

    def select(self, text: str) -> Rows:
        """Return the rows of a SELECT query of plain SPARQL."""

    def close(self) -> None:
        """End what was started."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How an engine is made, and which queries it has a part in."""

    make: Callable[[], Peer]
    """May raise PeerMissing."""
    abstains: Callable[[str], str] = lambda query: ""
    """Return why it is not asked the query of a name, empty if it is: then the query's data are not loaded into it."""


class CannotSay(Exception):
    """A query that an engine cannot express: which part of it, or why."""


class PeerMissing(Exception):
    """An engine that is not here: what is missing, and how to get it."""


class PeerFailed(Exception):
    """An engine that has ended, or answered what is no answer."""


class TooSlow(BaseException):
    """An engine took longer than allowed. It is no Exception, so that the interrupted code does not take it for its
    own."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Interrupt Python code in this (the main) thread after some seconds. Raises TooSlow."""
    if math.isinf(seconds):
        yield
        return

    def interrupt(_: int, __: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def as_ntriples(rows: Iterable[tuple[str | None, ...]]) -> Rows:
    """Return rows of canonical texts as N-Triples terms."""
    return [tuple(term if term is None else to_ntriples(term) for term in row) for row in rows]


def difference(expected: Rows, found: Rows, by: str) -> str | None:
    """Return how the rows of an engine differ from those that another one gives, None if they do not. They are compared
    as bags, numbers by value, blank nodes as if all were one. Integers are alike whichever type derived from
    xsd:integer they have: pyoxigraph does not keep it."""
    wanted, got = Counter(map(_comparable, expected)), Counter(map(_comparable, found))
    if wanted == got:
        return None
    told = f"answers otherwise: {len(expected)} rows expected ({by}), {len(found)} found"
    for rows, whose in ((wanted - got, "missing"), (got - wanted, "not expected")):
        if rows:
            first = " ".join(min(rows, key=str))
            return f"{told}; first difference, {whose}: {first if len(first) <= 300 else first[:300] + '...'}"
    raise AssertionError((wanted, got))


def _comparable(row: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(map(_comparable_term, row))


def _comparable_term(term: str | None) -> str:
    if term is None:
        return "UNDEF"
    if term.startswith("_:"):
        return "_:"
    try:
        term = from_ntriples(term)  # engines escape what others do not
    except DataError:
        return term
    lexical, _, datatype = term.rpartition("^^")
    try:
        if term.endswith(_INTEGERS):
            return f'"{int(lexical[1:-1])}"^^<{XSD}integer>'
        if term.endswith(_REALS):
            return f'"{float(lexical[1:-1]):.{DIGITS}g}"^^{datatype}'
    except ValueError:
        pass  # no number, whatever it says
    return term
