"""SPARQL as Spark SQL over tables of triples (s, p, o), whose terms are texts of N-Triples.

Basic graph patterns over stored triples and windows, joins of them, OPTIONAL, UNION, MINUS, EXISTS, counts, DISTINCT,
ORDER BY and LIMIT can be said. Values cannot: a text that is a number would have to become one in each row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wukongs.bench.peers import CannotSay
from wukongs.csparql import algebra
from wukongs.csparql.algebra import DEFAULT, GraphRef, Node, Query, TriplePattern
from wukongs.csparql.terms import Term, Variable

STORED, NOTHING = "stored", "nothing"
"""The tables of the default graph, and of a graph that is not there."""


@dataclass(frozen=True, slots=True)
class _Relation:
    """names: the columns, in order; bound: those that are never null; counts: those that are numbers."""

    sql: str
    names: tuple[str, ...]
    bound: frozenset[str]
    counts: frozenset[str] = frozenset()


def to_sql(query: Query, tables: Mapping[str, str]) -> str:
    """Return a SELECT as SQL with a text in each column, in the order of its variables. Raises CannotSay.

    tables: those of named graphs, by IRI."""
    if query.form != "select":
        raise CannotSay(query.form.upper())
    found = _Translation(tables).of(query.pattern)
    integer = "http://www.w3.org/2001/XMLSchema#integer"
    columns = [
        f"concat('\"', {_name(name)}, '\"^^<{integer}>') AS {_name(name)}" if name in found.counts else _name(name)
        for name in found.names
    ]
    return f"SELECT {', '.join(columns)} FROM ({found.sql})"


class _Translation:
    def __init__(self, tables: Mapping[str, str]) -> None:
        self._tables = tables

    def of(self, node: Node) -> _Relation:
        if isinstance(node, algebra.Bgp):
            return self._matched(node.patterns)
        if isinstance(node, algebra.Join):
            return _joined("JOIN", self.of(node.left), self.of(node.right))
        if isinstance(node, algebra.LeftJoin) and node.condition is None:
            return _joined("LEFT JOIN", self.of(node.left), self.of(node.right))
        if isinstance(node, algebra.Minus):
            left, right = self.of(node.left), self.of(node.right)
            return _joined("LEFT ANTI JOIN", left, right) if {*left.names} & {*right.names} else left
        if isinstance(node, algebra.Filter) and isinstance(node.condition, algebra.Exists):
            how = "LEFT ANTI JOIN" if node.condition.negated else "LEFT SEMI JOIN"
            return _joined(how, self.of(node.pattern), self.of(node.condition.pattern))
        if isinstance(node, algebra.Union):
            return _united(self.of(node.left), self.of(node.right))
        if isinstance(node, algebra.Group):
            return self._grouped(node)
        if isinstance(node, algebra.Extend) and isinstance(node.expression, Variable):
            inner, old, new = self.of(node.pattern), node.expression.name, node.variable.name
            sql = f"SELECT *, {_name(old)} AS {_name(new)} FROM ({inner.sql})"
            added = frozenset((new,)) if old in inner.bound else frozenset[str]()
            counts = inner.counts | ({new} if old in inner.counts else frozenset())
            return _Relation(sql, (*inner.names, new), inner.bound | added, counts)
        if isinstance(node, algebra.Project):
            inner = self.of(node.pattern)
            names = tuple(variable.name for variable in node.variables)
            columns = ", ".join(_name(name) if name in inner.names else f"NULL AS {_name(name)}" for name in names)
            return _Relation(f"SELECT {columns} FROM ({inner.sql})", names, inner.bound & {*names}, inner.counts)
        if isinstance(node, algebra.Distinct | algebra.OrderBy | algebra.Slice):
            inner = self.of(node.pattern)
            if isinstance(node, algebra.Distinct):
                sql = f"SELECT DISTINCT * FROM ({inner.sql})"
            elif isinstance(node, algebra.Slice):
                limit = "" if node.limit is None else f" LIMIT {node.limit}"
                sql = f"SELECT * FROM ({inner.sql}){limit} OFFSET {node.offset}"
            else:
                sql = f"SELECT * FROM ({inner.sql}) ORDER BY {_order(node, inner)}"
            return _Relation(sql, inner.names, inner.bound, inner.counts)
        raise CannotSay(_told(node))

    def _matched(self, patterns: tuple[TriplePattern, ...]) -> _Relation:
        places: dict[str, str] = {}
        where = []
        for number, pattern in enumerate(patterns):
            for column, part in (("s", pattern.subject), ("p", pattern.predicate), ("o", pattern.object)):
                place = f"t{number}.{column}"
                if isinstance(part, Term):
                    where.append(f"{place} = {_text(part.text)}")
                elif part.name in places:
                    where.append(f"{place} = {places[part.name]}")
                else:
                    places[part.name] = place
        if not places:
            raise CannotSay("a pattern without variables")
        columns = ", ".join(f"{place} AS {_name(name)}" for name, place in places.items())
        tables = ", ".join(f"{self._table(pattern.graph)} t{number}" for number, pattern in enumerate(patterns))
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        return _Relation(f"SELECT {columns} FROM {tables}{condition}", tuple(places), frozenset(places))

    def _table(self, graph: GraphRef) -> str:
        if graph == DEFAULT:
            return STORED
        if isinstance(graph, Term):
            return self._tables.get(graph.text[1:-1], NOTHING)
        raise CannotSay("GRAPH with a variable")

    def _grouped(self, node: algebra.Group) -> _Relation:
        inner = self.of(node.pattern)
        keys, counts = tuple(key.name for key in node.keys), []
        columns = list(map(_name, keys))
        for variable, aggregate in node.aggregates:
            argument = aggregate.argument
            if aggregate.name != "COUNT" or not isinstance(argument, Variable | None):
                raise CannotSay(f"{aggregate.name} of values")
            if argument is None and aggregate.distinct:
                raise CannotSay("COUNT(DISTINCT *)")
            told = "*" if argument is None else f"{'DISTINCT ' * aggregate.distinct}{_name(argument.name)}"
            columns.append(f"COUNT({told}) AS {_name(variable.name)}")
            counts.append(variable.name)
        by = f" GROUP BY {', '.join(map(_name, keys))}" if keys else ""
        sql = f"SELECT {', '.join(columns)} FROM ({inner.sql}){by}"
        bound = (inner.bound & {*keys}) | {*counts}
        return _Relation(sql, (*keys, *counts), bound, frozenset(counts) | (inner.counts & {*keys}))


def _joined(how: str, left: _Relation, right: _Relation) -> _Relation:
    shared = [name for name in left.names if name in right.names]
    if not {*shared} <= left.bound & right.bound:
        raise CannotSay("a join over variables that may be unbound")
    if {*shared} & (left.counts | right.counts):
        raise CannotSay("a join over counts")
    on = " AND ".join(f"l.{_name(name)} = r.{_name(name)}" for name in shared) or "TRUE"
    is_filter = how not in ("JOIN", "LEFT JOIN")
    others = () if is_filter else tuple(name for name in right.names if name not in shared)
    columns = ", ".join(["l.*", *(f"r.{_name(name)}" for name in others)])
    sql = f"SELECT {columns} FROM ({left.sql}) l {how} ({right.sql}) r ON {on}"
    bound = left.bound | (right.bound if how == "JOIN" else frozenset())
    return _Relation(sql, (*left.names, *others), bound, left.counts | (right.counts & {*others}))


def _united(left: _Relation, right: _Relation) -> _Relation:
    if left.counts or right.counts:
        raise CannotSay("UNION with counts")
    names = tuple(dict.fromkeys((*left.names, *right.names)))
    parts = [
        f"SELECT {', '.join(_name(name) if name in one.names else f'NULL AS {_name(name)}' for name in names)} "
        f"FROM ({one.sql})"
        for one in (left, right)
    ]
    return _Relation(" UNION ALL ".join(parts), names, left.bound & right.bound)


def _order(node: algebra.OrderBy, inner: _Relation) -> str:
    """Return what is ordered by. Texts are compared by code points, without the end of an IRI or a literal, as SPARQL
    orders IRIs and plain strings."""
    told = []
    for expression, is_descending in node.conditions:
        if not isinstance(expression, Variable) or expression.name not in inner.names:
            raise CannotSay("ORDER BY an expression")
        name = _name(expression.name)
        by = name if expression.name in inner.counts else f"rtrim('\">', {name})"
        told.append(f"{by} {'DESC' if is_descending else 'ASC'} NULLS {'LAST' if is_descending else 'FIRST'}")
    return ", ".join(told)


def _told(node: Node) -> str:
    if isinstance(node, algebra.Filter):
        return "FILTER of values"
    if isinstance(node, algebra.Extend):
        return "an expression of values"
    return "OPTIONAL with FILTER" if isinstance(node, algebra.LeftJoin) else type(node).__name__


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(text: str) -> str:
    """Return a text as SQL has it; escapes of N-Triples that it needs there are written first."""
    if text.startswith('"'):
        end = text.rindex('"')
        inside = text[1:end].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        text = f'"{inside}{text[end:]}'
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
