"""PreparedQuery: one text that is asked many times, with other terms for its variables: one row at a time, or many.

Many rows are evaluated together (wukongs/query/execution/argument_rows.py): they are one table that the exploration
starts from, or an index that it asks. So ten thousand rows cost a few hundred times what one row costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from wukongs.consistency import LATEST, Consistency, check_consistency
from wukongs.csparql.algebra import Query
from wukongs.csparql.walk import per_row_function
from wukongs.errors import DataError, SettingsError, StreamError, UnsupportedFeatureError
from wukongs.live.argument_tables import SCOPE, Arguments, argument_table
from wukongs.live.core import Core
from wukongs.live.reading import reading
from wukongs.query.execution.argument_rows import ARGUMENT, ArgumentRows
from wukongs.query.execution.prepared import Prepared, bindable
from wukongs.query.limits import Limits
from wukongs.query.output.results import Result
from wukongs.query.spill_files import bytes_in_memory
from wukongs.query.terms.names import canonical
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.encoder import encode_term_column
from wukongs.store.term_ids import decimal_parts

if TYPE_CHECKING:
    import pyarrow

BATCH_ROWS = 10_000
_BLANK_OR_RELATIVE = "^(_:|<[^:/?#>]*[/?#>])"
"""Terms that are looked up by the text alone: a blank node under its reported label, an IRI without a scheme."""


class Ask(Protocol):
    """Engine.query says it in full. bindings: of variables that the query has."""

    def __call__(
        self, *, bindings: Mapping[str, Any], timeout_s: float | None, at: int | None, consistency: Consistency
    ) -> Result: ...


AskMany = Callable[["pyarrow.Table", "float | None", "int | None", Consistency], Result]
"""(arguments, timeout_s, at, consistency) -> the answers for all rows, with the column `argument` before the query's
own."""


class PreparedQuery:
    """A one-shot query with its plans. Engine.prepare makes one; any thread may ask it."""

    def __init__(self, query: Query, ask: Ask, ask_many: AskMany) -> None:
        self._names = bindable(query)
        self.variables = sorted(self._names)
        """The names of the variables that a call may give terms for."""
        self._query, self._ask, self._ask_many = query, ask, ask_many

    def __call__(
        self,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        timeout_s: float | None = None,
        at: int | None = None,
        consistency: Consistency = LATEST,
        **terms: Any,
    ) -> Result:
        """Answer the query with terms in the place of variables: prepared(x="<http://e/a>"). arguments: the same as a
        mapping, for a variable whose name is that of an option; terms: rdflib terms or N-Triples strings.

        Raises as Engine.query; SettingsError for a name that the query does not have, DataError for a term that is
        none."""
        first = arguments or {}
        if not isinstance(first, Mapping):
            raise SettingsError(f"arguments: expected a dictionary: variable -> term, found {type(first).__name__}")
        names = [str(name).lstrip("?$") for name in (*first, *terms)]
        given = dict(zip(names, (*first.values(), *terms.values()), strict=True))
        if len(given) < len(names):
            raise SettingsError(f"arguments: ?{max(names, key=names.count)} is given twice")
        self._check(given)
        check_consistency(consistency)
        return self._ask(bindings=given, timeout_s=timeout_s, at=at, consistency=consistency)

    def many(
        self,
        arguments: Arguments,
        *,
        timeout_s: float | None = None,
        at: int | None = None,
        typed: bool | pyarrow.Schema = False,
        consistency: Consistency = LATEST,
    ) -> pyarrow.Table:
        """Answer the query for each row of a table, all at one snapshot, as one Arrow table: the number of the row,
        from 0, in the column `argument` (int64), then the query's columns, dictionary-encoded strings of N-Triples,
        null where unbound. Rows rise by `argument`; those of one number are ordered as the query says. A row without
        an answer is not in it. arguments: an Arrow table of N-Triples strings with columns named like variables of the
        query, or a list of dictionaries; of no rows the answer has the same columns. typed: columns of values, as
        Result.arrow makes them. rows_max counts for each row, the other limits for all: `batches` asks for a part at a
        time.

        Raises as Engine.query; SettingsError (a column that is no variable, is there twice or is named `argument`),
        DataError (naming row and column: a term that is none, a missing one), UnsupportedFeatureError (not a SELECT, a
        function that draws a value for each row)."""
        return _as_arrow(self.answer_many(arguments, timeout_s=timeout_s, at=at, consistency=consistency), typed)

    def answer_many(
        self,
        arguments: Arguments,
        *,
        timeout_s: float | None = None,
        at: int | None = None,
        consistency: Consistency = LATEST,
    ) -> Result:
        """Do the same as many, as a Result with `argument` as its first variable."""
        check_consistency(consistency)
        return self._ask_many(self._checked(arguments), timeout_s, at, consistency)

    def batches(
        self,
        arguments: Arguments,
        *,
        rows: int = BATCH_ROWS,
        timeout_s: float | None = None,
        at: int | None = None,
        typed: bool | pyarrow.Schema = False,
        consistency: Consistency = LATEST,
    ) -> Iterator[pyarrow.Table]:
        """Iterate over what `many` returns, for so many rows of arguments at a time. Each part reads the newest
        snapshot when it is asked for, unless `at` is given; timeout_s counts for each. Raises as many, at once for
        arguments that are refused."""
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise SettingsError(
                f"rows = {rows!r}: expected how many rows of arguments to ask for at a time, at least 1"
            )
        check_consistency(consistency)
        table = self._checked(arguments)
        return (
            _as_arrow(self._ask_many(table.slice(start, rows), timeout_s, at, consistency), typed, start)
            for start in range(0, table.num_rows, rows)
        )

    def _checked(self, arguments: Arguments) -> pyarrow.Table:
        """Return the arguments as a table whose columns are variables of the query."""
        if self._query.form != "select":
            raise UnsupportedFeatureError(
                f"{self._query.form.upper()} for many rows of arguments", 1, 1, "ask for each row, or SELECT"
            )
        if ARGUMENT in self._query.variables:
            raise SettingsError(f"arguments: the query reports ?{ARGUMENT} itself: the row's number has this name")
        if (name := per_row_function(self._query.pattern)) is not None:
            raise UnsupportedFeatureError(f"{name}() for many rows of arguments", 1, 1, "ask for each row")
        if isinstance(arguments, list | tuple) and not arguments and self.variables:
            arguments = _no_rows(self.variables[0])
        table = argument_table(arguments, "arguments")
        self._check(table.column_names)
        return table

    def _check(self, names: Any) -> None:
        if not self._names.issuperset(names):
            unknown = [name for name in names if name not in self._names]
            known = ", ".join(f"?{name}" for name in self.variables) or "none"
            raise SettingsError(f"arguments: ?{unknown[0]} is no variable of the query, which has: {known}")


def _no_rows(name: str) -> pyarrow.Table:
    import pyarrow as pa

    return pa.table({name: pa.array([], pa.string())})


def check_one_shot(query: Query) -> Query:
    """Return a query that has no windows. Raises StreamError for another."""
    if query.registration is not None or query.dataset.windows:
        raise StreamError(
            "a query with REGISTER or FROM STREAM is continuous: give it to Engine.register; Engine.query answers "
            "once, over the stored graph"
        )
    return query


def ask_rows(
    core: Core, prepared: Prepared, table: pyarrow.Table, limits: Limits, owner: str, at: int | None
) -> Result:
    """Answer a query for each row of a table of arguments, as Result: the number of the row, then the query's columns.

    owner, at: as for reading.reading. Raises as PreparedQuery.many."""
    names = tuple(sorted(table.column_names))
    plans = prepared.bound(names)
    bound = plans.bound
    with reading(core, bound.query.dataset, limits, owner, at) as read, limits:
        columns = [_ids_of(table.column(name), name, read.terms, core.registry.hash_bits) for name in names]
        rows = ArgumentRows(bound, columns, table.num_rows)
        found = rows.answer(read.dataset, read.terms, limits, plans.memo)
        result = Result("select", rows.variables, found.columns, read.terms, read.sn, None, found.length)
        result.reservation = limits.hand_over(lambda: bytes_in_memory(found.columns))
    return result


def encoded_rows(table: pyarrow.Table, hash_bits: int) -> list[Encoded] | None:
    """Return the columns of arguments, sorted by name, as encoded tuples whose objects they are; None if one has blank
    nodes, relative IRIs, or what is no term."""
    columns = [_encoded(table.column(name), name, hash_bits) for name in sorted(table.column_names)]
    known = [column for column in columns if column is not None]
    return known if len(known) == len(columns) else None


def _encoded(column: pyarrow.ChunkedArray, name: str, hash_bits: int) -> Encoded | None:
    import pyarrow.compute as pc

    if not pc.any(pc.starts_with(column, "_:")).as_py():
        with suppress(DataError):
            return encode_term_column(name, column, scope=SCOPE, hash_bits=hash_bits)
    return None


def _ids_of(column: pyarrow.ChunkedArray, name: str, terms: QueryTerms, hash_bits: int) -> Int64Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = _encoded(column, name, hash_bits)
    if encoded is not None:
        return terms.ids_of(encoded, encoded.objects)[0]
    is_own = pc.fill_null(pc.match_substring_regex(column, _BLANK_OR_RELATIVE), False)
    rows = np.flatnonzero(is_own.to_numpy())
    others = pc.if_else(is_own, '""', column) if len(rows) else column
    encoded = encode_term_column(name, others, scope=SCOPE, hash_bits=hash_bits)
    ids = terms.ids_of(encoded, encoded.objects)[0]
    if len(rows):
        texts = []
        for row, text in zip(rows.tolist(), column.take(pa.array(rows)).to_pylist(), strict=True):
            try:
                texts.append(canonical(text))
            except DataError as error:
                raise DataError(f"row {row}, column {name!r}: {error}") from None
        ids[rows] = terms.ids(texts)
    return ids


def _as_arrow(result: Result, typed: bool | pyarrow.Schema, first: int = 0) -> pyarrow.Table:
    """Return the answers for rows of arguments from `first` on."""
    import pyarrow as pa

    argument, *columns = result.ids(0, len(result))
    numbers = pa.array(decimal_parts(argument)[0] + first)
    if not columns:
        return pa.table({ARGUMENT: numbers})
    if isinstance(typed, pa.Schema) and ARGUMENT in typed.names:  # that of a table from here
        typed = typed.remove(typed.get_field_index(ARGUMENT))
    own = Result("select", tuple(result.vars[1:]), tuple(columns), result.reader, result.snapshot)
    return own.arrow(dictionary=typed is False, typed=typed).add_column(0, ARGUMENT, numbers)
