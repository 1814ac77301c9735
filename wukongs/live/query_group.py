"""QueryGroup: a query for each row of a table, registered as one: one text, one plan, one due time, one log entry.

The table is kept as one text, `bindings` of the query's source: an Arrow IPC stream, compressed, in base64. So a record
of the log, a checkpoint and a client's call hold it as they hold the text of the query.

The terms of the table are made known together, and stay known until the query is closed, so their ids stay theirs. The
group keeps the ids (arguments_input.py), and an index (wukongs/query/execution/argument_rows.py). It has no object
for a row.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from wukongs.csparql.algebra import Query, Timestamp
from wukongs.csparql.scope import mentioned_variables
from wukongs.csparql.terms import Variable
from wukongs.csparql.walk import parts_of, per_row_function
from wukongs.errors import SettingsError, UnsupportedFeatureError
from wukongs.live.argument_tables import Arguments, argument_table, filled_table, known_ids, table_text, text_table
from wukongs.live.arguments_input import ArgumentsInput
from wukongs.live.core import Core
from wukongs.live.stream_state import FOREVER_MS
from wukongs.query.execution.answer import Answer
from wukongs.query.execution.argument_rows import ARGUMENT
from wukongs.query.execution.bindings import where_clause
from wukongs.query.terms.names import canonical
from wukongs.store.dtypes import Int64Array

if TYPE_CHECKING:
    import pyarrow


def bindings_text(bindings: Arguments, *, is_filled: bool = True) -> str:
    """Return a table of bindings as one text, the same for equal tables. is_filled: it has to have a row.

    Raises SettingsError (no rows, no columns, a name twice), DataError (a term that is none, a missing one)."""
    return table_text((filled_table if is_filled else argument_table)(bindings, "bindings"))


def bindings_table(text: str, *, is_filled: bool = True) -> pyarrow.Table:
    """Return the table that a text holds. Raises DataError (it holds none), and as bindings_text."""
    return (filled_table if is_filled else argument_table)(text_table(text, "bindings"), "bindings")


def terms_of_bindings(text: str | None) -> list[str]:
    """Return the canonical forms of the terms of a table, each once; none without a table."""
    return [] if text is None else terms_of_table(bindings_table(text, is_filled=False))


def terms_of_table(table: pyarrow.Table) -> list[str]:
    """Return the canonical forms of the terms of a table, each once."""
    import pyarrow.compute as pc

    found = dict.fromkeys(term for column in table.columns for term in pc.unique(column).to_pylist())
    return [canonical(term) for term in found]


def check_group(query: Query, bindings: str) -> None:
    """Check that a query can be registered for each row of a table. Raises SettingsError, UnsupportedFeatureError
    (naming the part), DataError."""
    check_arguments(query, bindings_table(bindings).column_names)


def check_arguments(query: Query, names: Collection[str]) -> None:
    """Check that a query can be asked for each row of a table with some columns. Raises SettingsError,
    UnsupportedFeatureError (naming the part)."""
    assert query.registration is not None
    where = where_clause(query)
    known = mentioned_variables(where)
    for name in names:
        if name == ARGUMENT:
            raise SettingsError(
                f"bindings: no column may have the name {ARGUMENT!r}: windows have the row's number there"
            )
        if Variable(name) not in known:
            raise SettingsError(
                f"bindings: column {name!r} is no variable in the WHERE clause of query {query.registration.name}"
            )
    if ARGUMENT in query.variables:
        raise SettingsError(f"bindings: the query reports ?{ARGUMENT} itself: windows have the row's number there")
    if query.form != "select" or query.registration.is_stream:
        form = "REGISTER STREAM" if query.registration.is_stream else query.form.upper()
        raise _unsupported(form, "register a SELECT query, or each query alone")
    for part in parts_of(query.pattern):
        if isinstance(part, Timestamp) and part.variable.name in names:
            raise _unsupported(f"?{part.variable.name}, which timestamp() makes,", "compare it in a FILTER")
    if (function := per_row_function(query.pattern)) is not None:
        raise _unsupported(f"{function}()", "its values belong to one query: register each query alone")


def _unsupported(part: str, advice: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"{part} in queries with bindings", 1, 1, advice)


class QueryGroup:
    """The queries of one table (query_text.Rows)."""

    def __init__(self, core: Core, query: Query, bindings: str) -> None:
        """bindings: checked by check_group. Called with the engine's lock held."""
        table = bindings_table(bindings)
        self.arguments = ArgumentsInput(core, query, [*map(Variable, table.column_names)], {})
        taken = list[Int64Array]()
        columns = [
            known_ids(core.registry, name, column, taken)
            for name, column in zip(table.column_names, table.columns, strict=True)
        ]
        self.arguments.bind(np.stack(columns, axis=1))
        self.arguments.hold(np.concatenate(taken))

    def told(self) -> str:
        """Return what EXPLAIN and why() say of it."""
        return (
            f"each firing answers {self.arguments.count} queries together, one for each row of a table; plan and rows "
            "are those with the table's variables left free"
        )

    @staticmethod
    def had(at_ms: int) -> bool:
        """The queries of a table are read as one."""
        return False

    @staticmethod
    def untaken_ms() -> None:
        """The windows of the queries of a table are held as one query's."""

    @staticmethod
    def alike_to_ms(at_ms: int) -> int:
        """They are always the same."""
        return FOREVER_MS

    @staticmethod
    def begins_at(at_ms: int) -> bool:
        """They are all asked from the first firing on."""
        return False

    @staticmethod
    def found(answer: Answer, at_ms: int) -> Answer:
        """All of it is theirs."""
        return answer

    @staticmethod
    def divide(at_ms: int) -> list[Any]:
        """The queries of a table are one: they fail together."""
        return []
