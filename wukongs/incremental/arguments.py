"""Arguments: the rows of terms that a view is bound to, each a query of its own, as triples that its plans read.

An argument has a number, which is never used again. Its triples are (number, a predicate for each column, the term), in
a hidden graph of batches that stand behind those of the stored graph. So an argument is found by its number or by a
term, as a triple is; a delta join explores from a changed triple to the arguments that it concerns, and from a new
argument to its rows; and arguments that were bound and unbound between two versions are a part of the change.
lifted.py puts the patterns of these triples into the query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wukongs.csparql.terms import Variable
from wukongs.incremental.versions import Change
from wukongs.incremental.zset import ZSet, summed
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.argument_rows import NUMBER
from wukongs.store.batch import Batch, build_batch, with_key_filter
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import Int64Array
from wukongs.store.hidden_graphs import ARGUMENTS_GRAPH
from wukongs.store.term_ids import decimal_parts, integer_ids

MERGED_RATIO = 2
"""A level is merged with the newer one if it has at most MERGED_RATIO times its triples."""
_Level = tuple[Batch, Batch | None]
"""Triples that were inserted, and triples of levels before it that were deleted."""


def _quads(rows: BindingTable) -> tuple[Int64Array, ...]:
    """Return the triples of arguments. rows: their numbers, then a column for each term."""
    numbers, *columns = rows.columns
    predicates = integer_ids(np.arange(len(columns), dtype=np.int64))
    graphs = np.full(len(numbers) * len(columns), ARGUMENTS_GRAPH)
    return graphs, np.tile(numbers, len(columns)), np.repeat(predicates, len(numbers)), np.concatenate(columns)


def _level(inserted: Sequence[Int64Array], deleted: Sequence[Int64Array]) -> _Level:
    gone = with_key_filter(build_batch(*deleted)) if len(deleted[0]) else None
    return with_key_filter(build_batch(*inserted)), gone


def _size(level: _Level) -> int:
    return len(level[0]) + (0 if level[1] is None else len(level[1]))


def _net(levels: Sequence[_Level]) -> tuple[list[Int64Array], list[Int64Array]]:
    """Return what some levels insert and delete together."""
    parts = [(batch, weight) for level in levels for batch, weight in zip(level, (1, -1), strict=True) if batch]
    columns = [batch.triples() for batch, _ in parts]
    weights = [np.full(len(batch), weight, np.int64) for batch, weight in parts]
    if not parts:
        return ([np.empty(0, np.int64)] * 4,) * 2
    quads = [np.concatenate(column) for column in zip(*columns, strict=True)]
    firsts, sums = summed(quads, np.concatenate(weights))
    inserted, deleted = ([column[firsts[sums == sign]] for column in quads] for sign in (1, -1))
    return inserted, deleted


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments that are bound at one version.

    hidden: the variables that stand for their terms, one for each column.
    version: how many times some were bound or unbound.
    count: how many are bound.
    next_number: of the next one that is bound."""

    hidden: tuple[Variable, ...]
    version: int = 0
    count: int = 0
    next_number: int = 0
    _levels: tuple[_Level, ...] = ()

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The columns of arguments as rows."""
        return (NUMBER, *self.hidden)

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for level in self._levels for batch in level if batch is not None)

    @staticmethod
    def restored(rows: BindingTable, version: int, next_number: int) -> Arguments:
        """Return the arguments of a version. rows: their numbers, then a column for each term."""
        found = Arguments(rows.variables[1:])
        if rows.length:
            found = found.plus(ZSet.of(rows))
        return replace(found, version=version, next_number=next_number)

    def over(self, stored: BatchSet) -> BatchSet:
        """Return a stored graph with the triples of the arguments behind it."""
        return stored.and_changes(self._levels)

    def rows(self) -> BindingTable:
        """Return all arguments, by rising numbers."""
        (_, numbers, predicates, terms), gone = _net(self._levels)
        assert not len(gone[0]), "an argument that was never bound"
        order = np.lexsort((decimal_parts(numbers)[0], decimal_parts(predicates)[0]))
        columns = terms[order].reshape(len(self.hidden), -1)
        own = numbers[order][: columns.shape[1]]
        return BindingTable(self.variables, (own, *columns), len(own))

    def numbered(self, terms: BindingTable) -> ZSet:
        """Return rows of terms as arguments with the next numbers, of weight 1."""
        numbers = integer_ids(np.arange(self.next_number, self.next_number + terms.length, dtype=np.int64))
        return ZSet.of(BindingTable(self.variables, (numbers, *terms.columns_of(self.hidden)), terms.length))

    def plus(self, change: ZSet) -> Arguments:
        """Return the next version. change: arguments that are bound (+1), with the next numbers, and unbound (-1)."""
        rows, is_bound = change.project(self.variables), change.weights > 0
        inserted, deleted = (_quads(rows.table.take(np.flatnonzero(chosen))) for chosen in (is_bound, ~is_bound))
        levels = [*self._levels, _level(inserted, deleted)]
        while len(levels) > 1 and _size(levels[-2]) <= MERGED_RATIO * _size(levels[-1]):
            merged = _level(*_net(levels[-2:]))
            levels[-2:] = [merged] if _size(merged) else []
        count = int(is_bound.sum())
        return Arguments(
            self.hidden,
            self.version + 1,
            self.count + 2 * count - len(change),
            self.next_number + count,
            tuple(level for level in levels if _size(level)),
        )


def with_arguments(change: Change, before: BatchSet, after: BatchSet, arguments: ZSet) -> Change:
    """Return a change of the stored graph together with one of the arguments. before, after: with their triples."""
    if not len(arguments):
        return change.beside(before, after, change.inserted, change.deleted)
    parts = []
    for stored, chosen in ((change.inserted, arguments.weights > 0), (change.deleted, arguments.weights < 0)):
        quads = _quads(arguments.table.take(np.flatnonzero(chosen)))
        added = (build_batch(*quads),) if len(quads[0]) else ()
        parts.append(BatchSet.of((*stored.batches, *added), True) if added else stored)
    return change.beside(before, after, *parts)
