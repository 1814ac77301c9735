"""Bytewax as a peer: `python -m wukongs.bench.peers.bytewax_peer` speaks the JSON lines of README.md.

It says counts over one window: for each value of one variable of a single pattern, how many others there are, distinct
or not, and the first of them in an order. Each window is a dataflow: its triples are keyed by that value, folded by
Bytewax's own tumbling window in event time, and, if asked for the first ones, folded once more under one key.
Bytewax has no join with stored triples, and no query language: whatever else a query does would be Python of ours.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from wukongs.bench.peers import CannotSay, Rows
from wukongs.bench.peers.lines import answer_lines, split_triple
from wukongs.csparql import algebra
from wukongs.csparql.algebra import Node, TriplePattern
from wukongs.csparql.parser import parse_query
from wukongs.csparql.terms import XSD, Term, Variable

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
RANGE = timedelta(seconds=1)
BATCH = 1000
ALL = "all"
"""The one key under which the first ones of an order are found."""
Key = tuple[str, int]


@dataclass(slots=True)
class Counting:
    """Count, for each value at place `key` of the triples that match, those at place `counted`; the first `limit`."""

    graph: str
    wanted: tuple[str | None, str | None, str | None]
    key: int
    counted: int
    is_distinct: bool
    is_key_first: bool
    """Whether the key is the first column of a row, and the count the second."""
    order: tuple[tuple[bool, bool], ...] = ()
    """Each: whether it is by the count, whether it descends."""
    limit: int | None = None


def read_counting(text: str) -> Counting:
    """Raises CannotSay."""
    node: Any = parse_query(text).pattern
    order: tuple[tuple[algebra.Expression, bool], ...] = ()
    limit: int | None = None
    if isinstance(node, algebra.Slice) and not node.offset:
        node, limit = node.pattern, node.limit
    project = _expected(node, algebra.Project)
    node = project.pattern
    if isinstance(node, algebra.OrderBy):
        node, order = node.pattern, node.conditions
    extend = _expected(node, algebra.Extend)
    group = _expected(extend.pattern, algebra.Group)
    pattern = _only_pattern(group.pattern)
    aggregate = group.aggregates[0][1]
    if len(group.aggregates) != 1 or aggregate.name != "COUNT" or len(group.keys) != 1:
        raise CannotSay("other aggregates than one count for each value of one variable")
    places = [part.name if isinstance(part, Variable) else None for part in _parts(pattern)]
    key, count, counted = group.keys[0].name, extend.variable.name, aggregate.argument
    names = {key, *([counted.name] if isinstance(counted, Variable) else [])}
    if len(names) != 2 or {name for name in places if name} != names or len([name for name in places if name]) != 2:
        raise CannotSay("a pattern with other variables than the key and what is counted")
    columns = [variable.name for variable in project.variables]
    if sorted(columns) != sorted((key, count)) or extend.expression != group.aggregates[0][0]:
        raise CannotSay("other columns than the key and its count")
    by = [(getattr(expression, "name", None), is_descending) for expression, is_descending in order]
    if not {name for name, _ in by} <= {key, count} or (limit is not None and not by):
        raise CannotSay("an order by something else than the key and its count")
    assert isinstance(counted, Variable), counted
    return Counting(
        graph=_graph(pattern),
        wanted=tuple(part.text if isinstance(part, Term) else None for part in _parts(pattern)),  # type: ignore[arg-type]
        key=places.index(key),
        counted=places.index(counted.name),
        is_distinct=aggregate.distinct,
        is_key_first=columns[0] == key,
        order=tuple((name == count, is_descending) for name, is_descending in by),
        limit=limit,
    )


def _expected(node: Node, kind: type[Any]) -> Any:
    if isinstance(node, kind):
        return node
    raise CannotSay("other queries than counts for each value of one variable, over one window")


def _only_pattern(node: Node) -> TriplePattern:
    if isinstance(node, algebra.Bgp) and len(node.patterns) == 1:
        return node.patterns[0]
    raise CannotSay("joins")


def _parts(pattern: TriplePattern) -> tuple[Term | Variable, ...]:
    return (pattern.subject, pattern.predicate, pattern.object)


def _graph(pattern: TriplePattern) -> str:
    if isinstance(pattern.graph, Term):
        return pattern.graph.text[1:-1]
    raise CannotSay("stored triples")


def count(lines: list[str], asked: Counting) -> Rows:
    """Run one window through a dataflow."""
    import bytewax.operators as op
    import bytewax.operators.windowing as windowing
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, TestingSource, run_main

    def add(found: set[Any], triple: tuple[str, ...]) -> set[Any]:
        found.add(triple[asked.counted] if asked.is_distinct else triple)
        return found

    flow = Dataflow("window")
    triples = op.flat_map("parse", op.input("lines", flow, TestingSource(lines, BATCH)), _matching(asked))
    keyed = op.key_on("key", triples, lambda triple: triple[asked.key])
    counted = windowing.fold_window(
        "count",
        keyed,
        windowing.EventClock(lambda triple: BEGIN, timedelta(0), now_getter=lambda: BEGIN),
        windowing.TumblingWindower(RANGE, BEGIN),
        set,
        add,
        set.union,
    )
    pairs = op.map("size", counted.down, lambda item: (item[0], len(item[1][1])))
    if asked.limit is not None:
        keep = asked.limit
        under_one = op.key_on("together", pairs, lambda pair: ALL)
        best = op.fold_final("first", under_one, list, lambda found, pair: _first([*found, pair], asked.order, keep))
        pairs = op.flat_map("apart", best, lambda item: item[1])
    found: list[Key] = []
    op.output("rows", pairs, TestingSink(found))
    run_main(flow)
    rows = [(key, f'"{number}"^^<{XSD}integer>') for key, number in found]
    return [row if asked.is_key_first else row[::-1] for row in rows]


def _matching(asked: Counting) -> Any:
    def parse(line: str) -> Iterable[tuple[str, ...]]:
        triple = split_triple(line)
        matches = all(wanted is None or wanted == part for wanted, part in zip(asked.wanted, triple, strict=True))
        return [triple] if matches else []

    return parse


def _first(pairs: list[Key], order: tuple[tuple[bool, bool], ...], limit: int) -> list[Key]:
    """Return the first of some pairs in an order. Keys are compared by code points, without the end of a term."""
    for is_by_count, is_descending in reversed(order):
        if is_by_count:
            pairs.sort(key=lambda pair: pair[1], reverse=is_descending)
        else:
            pairs.sort(key=lambda pair: pair[0].rstrip('">'), reverse=is_descending)
    return pairs[:limit]


class Bytewax:
    def __init__(self) -> None:
        self._windows: dict[str, list[str]] = {}

    def load(self, path: Path) -> None:
        """Stored triples are not read: no query that it can say has any."""

    def window(self, graphs: Mapping[str, str]) -> None:
        self._windows = {name: [line for line in text.split("\n") if line] for name, text in graphs.items()}

    def select(self, text: str) -> Rows:
        asked = read_counting(text)
        return count(self._windows.get(asked.graph, []), asked)


def main() -> None:
    answer_lines("bytewax", importlib.metadata.version("bytewax"), Bytewax())


if __name__ == "__main__":
    main()
