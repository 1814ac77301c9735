"""ViewArguments: the arguments that a live view is bound to now, and those at which it stands.

`bind` and `unbind` take effect between two snapshots: the view's next move, to a snapshot that was the newest then or
later, takes all of them that were called before. The terms are known from then on for ever, as those of stored triples
are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from wukongs.csparql.algebra import DatasetClause, Query
from wukongs.csparql.terms import Variable
from wukongs.errors import DataError, SettingsError
from wukongs.incremental.arguments import Arguments
from wukongs.incremental.lifted import Lifted, reserved_ids
from wukongs.incremental.versions import Evaluation
from wukongs.incremental.zset import ZSet
from wukongs.live.argument_tables import Arguments as Table
from wukongs.live.argument_tables import argument_numbers, argument_table, known_ids, text_table
from wukongs.live.core import Core
from wukongs.live.query_group import bindings_table
from wukongs.live.reading import ids_of, terms_of
from wukongs.live.views.logged_arguments import LoggedArguments, change_of
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.answer import Answer, within
from wukongs.query.execution.argument_rows import NUMBER, ArgumentRows, BoundQuery
from wukongs.query.limits import Limits, current, limits_of
from wukongs.query.operators import operators as tables
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.rows import numbered
from wukongs.query.terms.python_terms import is_table
from wukongs.query.terms.query_terms import ConstantIds, QueryTerms
from wukongs.store.batch_set import EMPTY
from wukongs.store.dtypes import Int64Array
from wukongs.store.term_ids import decimal_parts, integer_ids

if TYPE_CHECKING:
    import pyarrow

Numbers: TypeAlias = "Collection[int] | np.ndarray[Any, Any] | int"
"""Numbers of arguments, as bind returns them."""


class ViewArguments:
    """Called with the engine's lock held, but for `checked`, `rows`, `wanted`, `table`, `change_to` and
    `one`.

    names: the columns of each table.
    lifted: the query with their patterns.
    newest: all that were bound and not unbound.
    at: those at which the view stands."""

    def __init__(self, core: Core, query: Query, names: Iterable[str]) -> None:
        self._core, self.names = core, tuple(names)
        self.put_query(query)
        self.newest = self.at = Arguments(self.lifted.hidden)
        self._changes: list[tuple[int, ZSet]] = []
        """Versions after `at`, and what each has changed."""

    @staticmethod
    def of(core: Core, query: Query, bindings: str) -> ViewArguments:
        """Return the arguments of a new view. bindings: of its source, checked by check_view."""
        table = bindings_table(bindings, is_filled=False)
        found = ViewArguments(core, query, table.column_names)
        found.bind(found.rows(found.checked(table, "bindings")))
        found.stand_at(found.newest)
        return found

    @staticmethod
    def of_log(
        core: Core, query: Query, bindings: str, changes: Sequence[str], version: int | None
    ) -> tuple[ViewArguments, dict[int, Arguments]]:
        """Return the arguments of a view as the log of a cluster has them, and these at each version from one on, as
        far as the log has them by themselves. bindings, changes: as of LoggedArguments. version: None: the last one."""
        count, logged = len(changes), LoggedArguments.of(bindings, changes)
        if version is not None and version < logged.version:
            first = 1 if changes and change_of(changes[0]) is None else 0  # that is of several versions
            count = max(first, count - (logged.version - version))
            logged = LoggedArguments.of(bindings, changes[:count])
        found = ViewArguments(core, query, logged.table.column_names)
        terms = found.rows(logged.table)
        rows = BindingTable(found.newest.variables, (integer_ids(logged.numbers), *terms.columns), terms.length)
        behind = [change for text in changes[count:] if (change := change_of(text)) is not None]
        later = [(logged.version + at, *change) for at, change in enumerate(behind, 1)]
        versions = found.restore(Arguments.restored(rows, logged.version, logged.next_number), later)
        return found, versions

    def state(self) -> tuple[Arguments, list[tuple[int, ZSet]]]:
        """Return what was bound where the view stands, and what each later version has changed."""
        return self.at, [*self._changes]

    def restore(self, at: Arguments, bound: Iterable[tuple[int, str, Any]]) -> dict[int, Arguments]:
        """Take what the log of a data folder has: what was bound at one version, and what was bound (a table as text)
        and unbound (numbers) behind, each with the version after it. Return all versions from that one on."""
        self.newest = self.at = at
        versions = {at.version: at}
        for version, what, arguments in bound:
            if version <= at.version:
                continue
            self.take(what, arguments)
            assert self.newest.version == version, (self.newest.version, version)
            versions[version] = self.newest
        return versions

    def take(self, what: str, arguments: Any) -> None:
        """Take a change that a log has: what is bound (a table as text) or unbound (numbers). It has no limits: what is
        in the log holds."""
        if what == "bind":
            self.bind(self.rows(text_table(arguments, "bindings")))
        else:
            self.unbind(self.unbinding(self._numbers(arguments), Limits()))

    def put_query(self, query: Query) -> None:
        """Ask another query for each argument. query: checked by check_arguments."""
        self.lifted = Lifted(BoundQuery(query, tuple(map(Variable, self.names))))

    def ids(self) -> ConstantIds:
        """Return the ids of the query's constants."""
        return ConstantIds(ids_of(self._core), self._core.reserved | reserved_ids(len(self.names)))

    # --- binding ------------------------------------------------------------------------------------------------------

    def checked(self, arguments: Table, what: str) -> pyarrow.Table:
        """Return arguments as a table. what: the call, for messages.

        Raises SettingsError (other columns than those of the view), DataError (a term that is none, a missing one)."""
        import pyarrow as pa

        if isinstance(arguments, list | tuple) and not arguments:
            return pa.table([pa.array([], pa.large_string())] * len(self.names), list(self.names))
        table = argument_table(arguments, what)
        if {*table.column_names} != {*self.names}:
            expected, found = (", ".join(map(repr, sorted(names))) for names in (self.names, table.column_names))
            raise SettingsError(f"{what}: the view was registered with the columns {expected}, found {found}")
        return table

    def rows(self, table: pyarrow.Table) -> BindingTable:
        """Return a table of `checked` as rows of term ids. Raises DataError (a term that is none)."""
        columns = (known_ids(self._core.registry, name, table.column(name)) for name in self.names)
        return BindingTable(self.lifted.hidden, tuple(columns), table.num_rows)

    def bind(self, rows: BindingTable) -> Int64Array:
        """Bind arguments; return their numbers. rows: their terms, as `rows` returns them."""
        bound = self.newest.numbered(rows)
        return self._put(bound)

    def unbind(self, chosen: BindingTable) -> Int64Array:
        """Unbind arguments; return their numbers. chosen: as `unbinding` returns them."""
        return np.sort(self._put(ZSet.of(chosen, -1)))

    def unbinding(self, wanted: BindingTable, limits: Limits | None = None) -> BindingTable:
        """Return the arguments that are to be unbound. wanted: numbers, or rows of terms, each of which is the oldest
        equal one; limits: None: those of queries. Raises DataError for one that is not bound, QueryTimeout,
        BudgetExceeded."""
        places, firsts = numbered(wanted.columns, wanted.length)
        counts = np.bincount(places, minlength=len(firsts))
        asked = wanted.take(firsts)
        found = self._found(asked, limits or limits_of(self._core.settings, None))
        both = tables.union(asked, tables.project(found, wanted.variables))
        codes = numbered(both.columns, both.length)[0]
        rows_asked = np.empty(asked.length, np.int64)
        rows_asked[codes[: asked.length]] = np.arange(asked.length)
        own = rows_asked[codes[asked.length :]]
        order = np.lexsort((decimal_parts(found.column(NUMBER))[0], own))
        own = own[order]
        ranks = np.arange(len(own)) - np.searchsorted(own, own)
        missing = np.flatnonzero(np.bincount(own, minlength=asked.length) < counts)
        if len(missing):
            raise DataError(self._not_bound(asked, int(missing[0])))
        return tables.project(found.take(order[ranks < counts[own]]), self.newest.variables)

    def wanted(self, arguments: Table | Numbers) -> BindingTable:
        """Return what is to be unbound as rows of terms, or of numbers. Raises as read; SettingsError for anything
        else."""
        table = self.table(arguments)
        return self._numbers(cast("Numbers", arguments)) if table is None else self.rows(table)

    def table(self, arguments: Table | Numbers) -> pyarrow.Table | None:
        """Return what is to be unbound as a table, None if it is numbers. Raises as checked."""
        is_list = isinstance(arguments, list | tuple) and any(isinstance(one, Mapping) for one in arguments)
        if is_list or is_table(arguments):
            return self.checked(cast("Table", arguments), "unbind")
        return None

    def _numbers(self, numbers: Numbers) -> BindingTable:
        found = argument_numbers(numbers)
        return BindingTable((NUMBER,), (integer_ids(found),), len(found))

    def _found(self, asked: BindingTable, limits: Limits) -> BindingTable:
        """Return the arguments that are bound and have some numbers or terms."""
        evaluation = Evaluation(DatasetClause(), self.ids(), terms_of(self._core), limits)
        with within(limits):
            return evaluation.explored(self.lifted.arguments, asked, self.newest.over(EMPTY))

    def _not_bound(self, asked: BindingTable, row: int) -> str:
        if asked.variables == (NUMBER,):
            return f"unbind: no argument has the number {decimal_parts(asked.columns[0])[0][row]}, or it is there twice"
        texts = terms_of(self._core).texts(np.array([column[row] for column in asked.columns]))
        terms = ", ".join(f"?{name} = {text}" for name, text in zip(self.names, texts, strict=True))
        return f"unbind: no argument, or fewer than there are such rows, has {terms}"

    def _put(self, change: ZSet) -> Int64Array:
        numbers: Int64Array = decimal_parts(change.table.column(NUMBER))[0]
        if len(change):
            self.newest = self.newest.plus(change)
            self._changes.append((self.newest.version, change))
        return numbers

    # --- the view's moves ---------------------------------------------------------------------------------------------

    def change_to(self, arguments: Arguments) -> ZSet:
        """Return what was bound and unbound up to a later version."""
        nothing = ZSet.empty(self.newest.variables)
        changes = [change for version, change in list(self._changes) if version <= arguments.version]
        return nothing.plus(*changes).project(nothing.variables).consolidated()

    def stand_at(self, arguments: Arguments) -> None:
        """Note at which version the view stands."""
        self.at = arguments
        self._changes = [(version, change) for version, change in self._changes if version > arguments.version]

    def one(self, arguments: Arguments, number: int) -> BindingTable:
        """Return an argument of a version as one row; no row: it is not bound. number: its id. Called within limits."""
        evaluation = Evaluation(DatasetClause(), self.ids(), terms_of(self._core), current())
        asked = BindingTable((NUMBER,), (np.array([number], np.int64),), 1)
        return evaluation.explored(self.lifted.arguments, asked, arguments.over(EMPTY))


def answer_each(lifted: Lifted, arguments: Arguments, dataset: Dataset, terms: QueryTerms, limits: Limits) -> Answer:
    """Return the answers of a query for all arguments of a version: their numbers, then the columns of the query.

    Raises QueryTimeout, BudgetExceeded."""
    rows = arguments.rows()
    found = ArgumentRows(lifted.bound, rows.columns[1:], rows.length, rows.columns[0])
    return found.answer(dataset, terms, limits, PlanMemo())
