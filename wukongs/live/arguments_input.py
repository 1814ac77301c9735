"""ArgumentsInput: the rows of terms for which one registered query is asked, each as a query of its own.

A row has a number, which is never used again. The rows of a table that a query was registered with (query_group.py)
are such an input, and so are the constants of queries of one shape (joined_group.py). Live views have the same rows as
triples that their plans read, since they need them at two versions (wukongs/incremental/arguments.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from wukongs.csparql.algebra import Query
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.walk import replaced
from wukongs.live.core import Core
from wukongs.query.execution.argument_rows import ArgumentRows, BoundQuery
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.term_ids import integer_ids

ROOM = 16
"""Rows for which there is room at first."""
Array = TypeVar("Array", Int64Array, BoolArray)


def with_room(array: Array, count: int) -> Array:
    """Return an array with room for at least `count` rows; zeros are behind its own."""
    if count <= len(array):
        return array
    return np.concatenate([array, np.zeros((max(count, 2 * len(array)) - len(array), *array.shape[1:]), array.dtype)])


class ArgumentsInput:
    """The arguments of one query. Called with the engine's lock held, but for `rows`.

    version: how many times some were bound or unbound.
    end: the number of the next one that is bound."""

    def __init__(
        self, core: Core, query: Query, variables: Sequence[Variable], first: Mapping[Variable, tuple[Term, int]]
    ) -> None:
        """query: asked for each row; variables: of its WHERE clause, those that the rows bind; first: of some of them
        the term that the first row has, and its id. A variable with this term in all rows is put into the query, where
        it guides the plan."""
        self.version = self.end = 0
        self._core, self._query, self._variables, self._first = core, query, tuple(variables), dict(first)
        self._ids: Int64Array = np.zeros((ROOM, len(self._variables)), np.int64)
        self._is_taken: BoolArray = np.zeros(self._ids.shape, np.bool_)
        """Whether a reference was taken on a term's id."""
        self._is_bound: BoolArray = np.zeros(ROOM, np.bool_)
        self._held: list[Int64Array] = []
        """Other ids on which references were taken."""
        self._rows: ArgumentRows | None = None

    def bind(self, ids: Int64Array, is_taken: BoolArray | bool = False) -> int:
        """Bind rows; return the number of the first. The others have the next ones.

        ids : int64[rows, variables]. is_taken : bool[rows, variables], whether a reference was taken on an id, which is
        given back when the row is unbound."""
        first, self.end = self.end, self.end + len(ids)
        self._ids, self._is_taken = with_room(self._ids, self.end), with_room(self._is_taken, self.end)
        self._is_bound = with_room(self._is_bound, self.end)
        self._ids[first : self.end], self._is_taken[first : self.end] = ids, is_taken
        self._is_bound[first : self.end] = True
        self._changed()
        return first

    def unbind(self, number: int) -> None:
        """Unbind a row, and give back the references on its terms."""
        ids, is_taken = self.take_out(number)
        self._core.registry.release(ids[is_taken])

    def take_out(self, number: int) -> tuple[Int64Array, BoolArray]:
        """Unbind a row; return it as `bind` takes it, with the references."""
        ids, is_taken = self._ids[number].copy(), self._is_taken[number].copy()
        self._is_bound[number], self._is_taken[number] = False, False
        self._changed()
        return ids, is_taken

    def hold(self, references: Int64Array) -> None:
        """Take over references on ids, each for many rows, until `close`."""
        self._held.append(references)

    def close(self) -> None:
        """Give back all references."""
        self._core.registry.release(np.concatenate([*self._held, self._ids[self._is_taken]]))
        self._is_taken[:], self._held = False, []

    def _changed(self) -> None:
        self._rows, self.version = None, self.version + 1

    @property
    def count(self) -> int:
        """How many rows are bound."""
        return int(self._is_bound.sum())

    @property
    def rows(self) -> ArgumentRows:
        """The rows that are bound, as they are evaluated. From any thread."""
        with self._core.lock:
            if self._rows is None:
                numbers = np.flatnonzero(self._is_bound)
                if not len(numbers):
                    numbers = np.zeros(1, np.int64)  # all may have been unbound while the query fires
                ids = self._ids[numbers]
                fixed = {at: term for at, (term, id_) in self._firsts() if (ids[:, at] == id_).all()}
                if len(fixed) == len(self._variables):
                    fixed.popitem()
                query = self._query
                if fixed:
                    terms: dict[Variable, Term] = {self._variables[at]: term for at, term in fixed.items()}
                    query = replace(query, pattern=replaced(query.pattern, terms))
                left = [at for at in range(len(self._variables)) if at not in fixed]
                bound = BoundQuery(query, [self._variables[at] for at in left])
                columns = [np.ascontiguousarray(ids[:, at]) for at in left]
                self._rows = ArgumentRows(bound, columns, len(numbers), integer_ids(numbers))
            return self._rows

    def _firsts(self) -> list[tuple[int, tuple[Term, int]]]:
        return [(at, self._first[name]) for at, name in enumerate(self._variables) if name in self._first]
