"""Moment: the time of NOW() and the source of randomness, on which a query's answer depends apart from its data.

The values of RAND, UUID, STRUUID and BNODE are a function of seed, time and rows. A firing seeds its moment with its
query and window end, so that a repeated or late firing gives the same rows. A one-shot query draws its seed.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass, field
from decimal import Decimal
from uuid import UUID

from wukongs.csparql.terms import XSD, literal
from wukongs.query.terms.temporal import date_time_lexical, moment_at
from wukongs.query.terms.values import Kind, Value, computed, iri, string, value_of
from wukongs.store.terms import blank_node

_EPOCH_S = 719162 * 86400
"""1970-01-01 in seconds from 0001-01-01."""


@dataclass(slots=True)
class Moment:
    """One execution of one query. now_ms : since 1970 UTC; seed : at most 64 bytes."""

    now_ms: int
    seed: bytes
    _draws: int = field(default=0, init=False)
    _solutions: int = field(default=0, init=False)

    @staticmethod
    def of_now() -> Moment:
        """The moment of a one-shot query."""
        return Moment(time.time_ns() // 1_000_000, secrets.token_bytes(32))

    @staticmethod
    def of_firing(query: str, end_ms: int) -> Moment:
        """The moment of a registered query's firing for the window that ends then."""
        return Moment(end_ms, hashlib.blake2b(f"{query}@{end_ms}".encode()).digest())

    def now(self) -> Value:
        """Return the one dateTime of this execution, in UTC."""
        instant = Decimal(self.now_ms) / 1000 + _EPOCH_S
        return value_of(literal(date_time_lexical(moment_at(instant, 0)), XSD + "dateTime").text)

    def next_solutions(self) -> None:
        """Say that the next rows are other solutions: equal strings get other blank nodes from here on."""
        self._solutions += 1

    def next_draw(self) -> int:
        """Number one evaluation of an expression over a table; each has random values of its own."""
        self._draws += 1
        return self._draws

    def row(self, draw: int, number: int) -> RowSource:
        return RowSource(self, draw, number)

    def digest(self, *parts: object) -> bytes:
        """Return 16 bytes that look random and depend on the seed and on these parts."""
        return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=16, key=self.seed).digest()

    def blank_of(self, row: int, label: str) -> Value:
        """Return the blank node of a string in one solution."""
        return _blank(self.digest("label", self._solutions, row, label))


@dataclass(slots=True)
class RowSource:
    """Where an expression takes the random values of one row from, one after the other."""

    moment: Moment
    draw: int
    row: int
    _taken: int = field(default=0, init=False)

    def _bytes(self) -> bytes:
        self._taken += 1
        return self.moment.digest("draw", self.draw, self.row, self._taken)

    def number(self) -> Value:
        """A double from 0 to below 1."""
        return computed(Kind.DOUBLE, (int.from_bytes(self._bytes()[:8]) >> 11) * 2.0**-53)

    def uuid(self) -> Value:
        return iri(f"urn:uuid:{self._uuid()}")

    def uuid_text(self) -> Value:
        return string(str(self._uuid()))

    def _uuid(self) -> UUID:
        return UUID(bytes=self._bytes(), version=4)

    def blank(self, label: Value | None = None) -> Value | None:
        """A new blank node, or the one of a simple string in this solution."""
        if label is None:
            return _blank(self._bytes())
        return self.moment.blank_of(self.row, str(label.data)) if label.kind == Kind.STRING else None


def _blank(digest: bytes) -> Value:
    text = blank_node(b"function:bnode", digest.hex())
    return Value(Kind.BLANK, text, text)
