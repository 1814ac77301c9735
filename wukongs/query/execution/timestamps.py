"""The value of a Timestamp node, by columns: the newest time of the tuples that a solution rests on."""

from __future__ import annotations

import numpy as np

from wukongs.csparql.algebra import TermOrVariable, Timestamp, TriplePattern
from wukongs.csparql.terms import XSD, Variable, literal
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.limits import current
from wukongs.query.plans.dataset import Dataset, Part
from wukongs.query.rows import pieces
from wukongs.store.dtypes import UNBOUND, WINDOW_GRAPH, Int64Array
from wukongs.store.lookup_kernels import raise_to_newest

NEVER_MS = -(1 << 63)
"""Before every time that a tuple can have."""


def stamp(node: Timestamp, table: BindingTable, dataset: Dataset, terms: TermSpace) -> BindingTable:
    """Bind a node's variable, an xsd:integer of milliseconds, in the solutions of its pattern."""
    newest = np.full(table.length, NEVER_MS, np.int64)
    for pattern in node.patterns:
        ends = pattern.subject, pattern.predicate, pattern.object
        subjects, predicates, objects = (_column(end, table, dataset) for end in ends)
        for part in _windows(node, pattern, dataset):
            rows = _rows_in(part, pattern, table)
            descriptors = part.batches.descriptors
            for start, stop in pieces(len(rows), current()):
                some = rows[start:stop]
                found = newest[some]
                raise_to_newest(descriptors, part.graph, subjects[some], predicates[some], objects[some], found)
                newest[some] = found
    for variable in node.times:
        newest = np.maximum(newest, _times_of(table.column(variable), terms))
    column = np.full(table.length, UNBOUND, np.int64)
    known = newest != NEVER_MS
    distinct, places = np.unique(newest[known], return_inverse=True)
    ids = terms.ids([literal(str(time), XSD + "integer").text for time in distinct.tolist()])
    column[known] = ids[places]
    return BindingTable((*table.variables, node.variable), (*table.columns, column), table.length)


def _windows(node: Timestamp, pattern: TriplePattern, dataset: Dataset) -> list[Part]:
    parts = dataset.window_parts() if node.everywhere else dataset.source(pattern.graph).parts
    return [part for part in parts if part.graph == WINDOW_GRAPH]


def _rows_in(part: Part, pattern: TriplePattern, table: BindingTable) -> Int64Array:
    """Return the rows whose solutions can rest on a tuple of this window: all, or those that GRAPH ?g binds to it."""
    if isinstance(pattern.graph, Variable):
        return np.flatnonzero(table.column(pattern.graph) == part.name)
    return np.arange(table.length)


def _column(part: TermOrVariable, table: BindingTable, dataset: Dataset) -> Int64Array:
    if isinstance(part, Variable):
        return table.column(part)
    return np.full(table.length, dataset.resolve(part), np.int64)


def _times_of(column: Int64Array, terms: TermSpace) -> Int64Array:
    """Return the times that a column of integers stands for, NEVER_MS where it is unbound."""
    distinct, places = np.unique(column, return_inverse=True)
    times = np.full(len(distinct), NEVER_MS, np.int64)
    bound = distinct != UNBOUND
    times[bound] = [int(text[1 : text.rindex('"')]) for text in terms.texts(distinct[bound])]
    return times[places]
