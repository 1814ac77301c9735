"""RowSupport: the triples that a row of a live view rests on, for LiveView.why(row).

The query is evaluated with the terms of the row in the place of its variables, where it can be explored from them, at
the snapshot of the view. The first solution that gives the row, in canonical order, is its derivation; the row of a
group has all of the group's solutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wukongs.csparql.algebra import (
    Distinct,
    Exists,
    Extend,
    Filter,
    Group,
    Join,
    Node,
    OrderBy,
    PathPattern,
    PerGraph,
    Project,
    Query,
    Slice,
    TripleParts,
)
from wukongs.csparql.exploration_order import is_explorable
from wukongs.csparql.scope import possible_variables
from wukongs.csparql.terms import Variable
from wukongs.csparql.walk import parts_of
from wukongs.errors import DataError, SettingsError
from wukongs.incremental.templates import TRIPLE
from wukongs.incremental.versions import Evaluation, leaf
from wukongs.live.support import SHOWN_MAX, Fact, Facts, patterns_of
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.argument_rows import NUMBER
from wukongs.query.execution.exists import assigned_variables
from wukongs.query.execution.templates import fill_template
from wukongs.query.operators import operators as tables
from wukongs.query.operators.ordering import canonical
from wukongs.query.terms.names import given_terms
from wukongs.query.terms.rdf_terms import from_python
from wukongs.query.terms.shown_texts import shown
from wukongs.rules.derivation import INDENT, Derivation
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import UNBOUND, Int64Array

TRIPLE_NAMES = ("subject", "predicate", "object")
"""The names of the columns of a CONSTRUCT."""


@dataclass(frozen=True, slots=True)
class RowSupport:
    """Why a row is in the content of a view.

    query: the name of the view.
    row: N-Triples terms by the names of its columns; None: unbound.
    parts: the triples that it rests on, each with what it follows from by rules.
    sn: the snapshot that was read.
    more: of a group, solutions whose triples are not among the parts.
    is_partial: the query has paths, subqueries or EXISTS; triples that these have found are not among the parts."""

    query: str
    row: dict[str, str | None]
    parts: tuple[Derivation, ...] = field(repr=False)
    sn: int
    more: int = 0
    is_partial: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, which from_json reads."""
        parts = [part.as_json() for part in self.parts]
        told = {"query": self.query, "row": self.row, "sn": self.sn, "more": self.more, "is_partial": self.is_partial}
        return {**told, "parts": parts}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> RowSupport:
        parts = tuple(map(Derivation.of_json, found["parts"]))
        return RowSupport(found["query"], found["row"], parts, found["sn"], found["more"], found["is_partial"])

    def __str__(self) -> str:
        cells = [f"?{name} = {shown(term)}" for name, term in self.row.items() if term is not None]
        lines = [f"{', '.join(cells) or 'a row without terms'}   in {self.query} at SN {self.sn}"]
        lines += [f"{INDENT}{line}" for part in self.parts for line in str(part).splitlines()]
        if self.more:
            lines.append(f"{INDENT}and the triples of {self.more} more solutions")
        if self.is_partial:
            lines.append(f"{INDENT}and triples that paths, subqueries or EXISTS have found")
        if len(lines) == 1:
            lines.append(f"{INDENT}rests on no triple")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RowSearch:
    """Looks for the derivation of a row.

    query: that of the view; with hidden variables, if it has arguments.
    evaluation: of the query, within the limits of its execution.
    facts: over the dataset at the snapshot.
    stored: the stored graph there, as evaluations take it.
    scope: names the blank nodes of a template.
    argument: the number and the terms of the argument, one row; None: the view has none."""

    query: Query
    evaluation: Evaluation
    facts: Facts
    stored: BatchSet
    scope: str
    argument: BindingTable | None

    def find(self, ids: Mapping[str, int]) -> tuple[tuple[Derivation, ...], int] | None:
        """Return the triples that a row rests on, and how many solutions are left out; None: there is no such row.

        ids: of its terms by the names of columns, UNBOUND where it binds nothing. Raises QueryTimeout,
        BudgetExceeded."""
        of_triple = dict(zip(TRIPLE_NAMES, TRIPLE, strict=True)) if self.query.form == "construct" else {}
        row = {of_triple.get(name, Variable(name)): id_ for name, id_ in ids.items()}
        top, is_cut = _below_modifiers(self.query.pattern)
        group = _group_in(top)
        if is_cut:
            content = self._solutions(_unprojected(self.query.pattern), {})
            names = [variable for variable in content.variables if variable in possible_variables(top)]
            content = canonical(tables.project(content, names))
            content = content.take(_agreeing(content, row)[:1])
            if not content.length:
                return None
            row |= {variable: int(content.column(variable)[0]) for variable in names}
        if group is None:
            found = canonical(self._solutions(top, row if self.query.form == "select" else {}))
            solutions = found.take(self._giving(found, row)[:1])
        else:
            below = self._solutions(group.pattern, {key: id_ for key, id_ in row.items() if key in group.keys})
            known = leaf(below.variables)
            groups = self.evaluation.run_over(_with_below(top, group, known), self.stored, (known, below))
            groups = canonical(groups)
            solutions = groups.take(self._giving(groups, row)[:1])
        if not solutions.length:
            return None
        if group is not None:
            keys = {key: int(solutions.column(key)[0]) for key in group.keys}
            solutions = canonical(below.take(_agreeing(below, keys)))
        return self._parts(top if group is None else group.pattern, solutions)

    def _solutions(self, node: Node, row: Mapping[Variable, int]) -> BindingTable:
        """Return solutions of a part, those that give the row among them."""
        evaluation, argument = self.evaluation, self.argument
        made, possible = assigned_variables(node), possible_variables(node)
        seeds = {one: id_ for one, id_ in row.items() if one in possible and one not in made and id_ != UNBOUND}
        given = BindingTable(tuple(seeds), tuple(np.array([id_], np.int64) for id_ in seeds.values()), 1)
        if argument is not None:
            given = tables.join(given, argument)
        if seeds and is_explorable(node, given.variables):
            return evaluation.explored(node, given, self.stored)
        if argument is not None:
            return evaluation.run_given(node, self.stored, argument, NUMBER)
        return evaluation.run(node, self.stored)

    def _giving(self, found: BindingTable, row: Mapping[Variable, int]) -> Int64Array:
        """Return the numbers of the solutions that give a row, or a triple of the template."""
        if self.query.form != "construct":
            return _agreeing(found, row)
        places, triples = fill_template(self.query.template, found, self.evaluation.terms, self.scope, by_solution=True)
        return places[_agreeing(BindingTable(TRIPLE, tuple(triples), len(places)), row)]

    def _parts(self, node: Node, solutions: BindingTable) -> tuple[tuple[Derivation, ...], int]:
        found, patterns, number = dict[Fact, None](), list(patterns_of(node)), 0
        while number < solutions.length and len(found) < SHOWN_MAX:
            for pattern in patterns:
                found |= dict.fromkeys(fact for fact, _ in list(self.facts.instances(pattern, solutions, number))[:1])
            number += 1
        limits = self.evaluation.limits
        return tuple(self.facts.derivation(fact, limits) for fact in found), solutions.length - number


def given_row(row: Mapping[str, Any] | Sequence[Any], names: Sequence[str], view: str) -> dict[str, str | None]:
    """Return the canonical terms of a row by the names of its columns, None for one that is unbound.

    Raises DataError (a term that is none), SettingsError (other columns than `names`, or another number of them)."""
    if not isinstance(row, Mapping):
        if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != len(names):
            raise SettingsError(f"row: view {view} has the columns {', '.join(names) or 'of none'}, found {row!r:.200}")
        row = dict(zip(names, row, strict=True))
    bound = {name: from_python(term) if isinstance(term, int) else term for name, term in row.items()}
    given: dict[str, str | None] = dict(given_terms({name: one for name, one in bound.items() if one is not None}))
    given |= {str(name).lstrip("?$"): None for name, term in row.items() if term is None}
    if unknown := [name for name in given if name not in names]:
        raise SettingsError(f"row: view {view} has no column {unknown[0]!r}, but {', '.join(names) or 'none'}")
    return given


def told_row(row: Mapping[str, Any] | Sequence[Any]) -> dict[str, str | None] | list[str | None]:
    """Return a row that is asked for as JSON: canonical terms, None for one that is unbound. Raises DataError."""
    terms = dict(row) if isinstance(row, Mapping) else dict(enumerate(row))
    bound = given_terms({str(name): term for name, term in terms.items() if term is not None}, from_python)
    told = {str(name).lstrip("?$"): bound.get(str(name).lstrip("?$")) for name in terms}
    return told if isinstance(row, Mapping) else [*told.values()]


def no_such_row(row: Mapping[str, str | None], view: str, sn: int) -> DataError:
    """Return the error of a row that is not in the content."""
    cells = ", ".join(f"?{name} = {text or 'unbound'}" for name, text in row.items())
    return DataError(f"view {view} has no row with {cells or 'no terms'} at SN {sn}")


def is_partial(query: Query) -> bool:
    """Whether rows may rest on triples that no pattern names in the solutions."""
    top, _ = _below_modifiers(query.pattern)
    group = _group_in(top)
    inner = (PathPattern, TripleParts, Exists, PerGraph, Project, Group)
    return any(isinstance(part, inner) and part is not group for part in parts_of(top))


def _agreeing(table: BindingTable, row: Mapping[Variable, int]) -> Int64Array:
    """Return the numbers of the rows that are equal to a row in its variables."""
    kept = np.ones(table.length, np.bool_)
    for variable, id_ in row.items():
        kept &= table.column(variable) == id_
    return np.flatnonzero(kept)


def _below_modifiers(node: Node) -> tuple[Node, bool]:
    """Return the part below what orders, projects and cuts; and whether it is cut."""
    is_cut = False
    while isinstance(node, Project | Distinct | OrderBy | Slice):
        is_cut, node = is_cut or isinstance(node, Slice), node.pattern
    return node, is_cut


def _unprojected(node: Node) -> Node:
    """Return a query with all variables of the solutions that LIMIT leaves, where ORDER BY alone decides on these."""
    inner, parts = node, list[Project | Distinct | OrderBy | Slice]()
    while isinstance(inner, Project | Distinct | OrderBy | Slice):
        parts.append(inner)
        inner = inner.pattern
    if any(isinstance(part, Distinct) for part in parts) or not any(isinstance(part, OrderBy) for part in parts):
        return node
    for part in reversed(parts):
        if not isinstance(part, Project):
            inner = replace(part, pattern=inner)
    return inner


def _group_in(node: Node) -> Group | None:
    """Return the group of a query, if it has one: below HAVING, the SELECT clause and VALUES."""
    while isinstance(node, Extend | Filter | Join):
        node = node.left if isinstance(node, Join) else node.pattern
    return node if isinstance(node, Group) else None


def _with_below(node: Node, group: Group, known: Node) -> Node:
    """Return a part with other solutions below its group."""
    if node is group:
        return replace(group, pattern=known)
    if isinstance(node, Join):
        return replace(node, left=_with_below(node.left, group, known))
    return replace(node, pattern=_with_below(node.pattern, group, known))  # type: ignore[union-attr, arg-type]
