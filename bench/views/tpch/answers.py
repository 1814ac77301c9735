"""Answers of views and of SQL as rows of the same values, so that they can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from wukongs.bench.views.tpch.tables import BASE

Value = Decimal | float | str | None
Rows = Counter[tuple[Value, ...]]
DIGITS = 12
"""Significant digits to which quotients are compared: DuckDB's are doubles, ours have as many digits as a decimal."""


def register(engine: Any, name: str, text: str) -> Any:
    """Register a query of SPARQL as a live view; return it."""
    prologue, word, rest = text.partition("SELECT")
    return engine.register(f"{prologue}REGISTER QUERY {name} AS {word}{rest}")


class Content:
    """The sum of the reports of a view."""

    def __init__(self, view: Any) -> None:
        self._view = view
        self._rows = Counter[tuple[str | None, ...]]()

    def take(self) -> list[Any]:
        """Return what was reported since. Raises WukongsError."""
        return list(self._view.results(timeout_s=0))

    def add(self, reports: Iterable[Any]) -> None:
        """Add reports to the sum."""
        for report in reports:
            if report.is_reset:
                self._rows.clear()
            for row, weight in zip(report.texts(), report.weights.tolist(), strict=True):
                self._rows[row] += weight

    def rows(self) -> Rows:
        """Return the content, which has no row with a weight below 0."""
        found = Rows()
        for row, weight in self._rows.items():
            assert weight >= 0, (row, weight)
            if weight:
                found[tuple(map(value, row))] += weight
        return found


def value(text: str | None) -> Value:
    """Return the value of a term of an answer: of a row's subject, its key."""
    if text is None:
        return None
    if text.startswith(f"<{BASE}"):
        return Decimal(text[1:-1].rpartition("/")[2])
    written, _, datatype = text.rpartition("^^")
    return Decimal(written[1:-1]) if datatype.endswith(("#decimal>", "#integer>")) else text.rpartition('"')[0][1:]


def of_sparql(rows: Iterable[Sequence[str | None]]) -> Rows:
    """Return the rows of an answer in texts of terms."""
    return Counter(tuple(map(value, row)) for row in rows)


def of_sql(rows: Iterable[Sequence[Any]]) -> Rows:
    """Return the rows of an answer of DuckDB."""
    return Counter(tuple(map(_value_of_sql, row)) for row in rows)


def _value_of_sql(cell: Any) -> Value:
    if isinstance(cell, int):
        return Decimal(cell)
    return cell if cell is None or isinstance(cell, Decimal | float) else str(cell)


def difference(ours: Rows, theirs: Rows) -> str | None:
    """Return how two answers differ, None if they do not. Decimals are compared exactly, to DIGITS where theirs are
    doubles."""
    is_double = {place for row in theirs for place, cell in enumerate(row) if isinstance(cell, float)}
    one, other = (_rounded(rows, is_double) for rows in (ours, theirs))
    if one == other:
        return None
    missing, more = ([*map(str, (left - right).items())][:2] for left, right in ((other, one), (one, other)))
    return f"{other.total()} rows expected, {one.total()} found; missing {missing}, not expected {more}"


def _rounded(rows: Rows, places: set[int]) -> Counter[tuple[Any, ...]]:
    def cell(place: int, one: Value) -> Any:
        return f"{float(one):.{DIGITS}g}" if place in places and isinstance(one, Decimal | float) else one

    found = Counter[tuple[Any, ...]]()
    for row, count in rows.items():
        found[tuple(cell(place, one) for place, one in enumerate(row))] += count
    return found
