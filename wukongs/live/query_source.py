"""QuerySource: what a query is registered with."""

from __future__ import annotations

from typing import NamedTuple

from wukongs.csparql.algebra import Output


class QuerySource(NamedTuple):
    """The text of a query, the base of its relative IRIs, and what its firings report."""

    text: str
    base: str | None = None
    output: Output | None = None
