"""QueryGroup: a query for each row of a table, registered as one: one text, one plan, one due time, one log entry.

The table is kept as one text, `bindings` of the query's source: an Arrow IPC stream, compressed, in base64. So a record
of the log, a checkpoint and a client's call hold it as they hold the text of the query.

The terms of the table are made known together, and stay known until the query is closed, so their ids stay theirs. The
group keeps the ids in columns, and an index (wukongs/query/execution/argument_rows.py). It has no object for a row.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from wukongs.csparql.algebra import Query, Timestamp
from wukongs.csparql.functions import PER_ROW
from wukongs.csparql.scope import mentioned_variables
from wukongs.csparql.terms import Variable
from wukongs.csparql.walk import parts_of
from wukongs.errors import DataError, SettingsError, UnsupportedFeatureError
from wukongs.live.stream_state import FOREVER_MS
from wukongs.query.execution.argument_rows import ARGUMENT, ArgumentRows
from wukongs.query.execution.bindings import where_clause
from wukongs.query.terms.names import canonical
from wukongs.query.terms.rdf_terms import from_python
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoder import encode_term_column
from wukongs.store.term_registry import TermRegistry

if TYPE_CHECKING:
    import pyarrow

Bindings: TypeAlias = "pyarrow.Table | Sequence[Mapping[str, Any]]"
"""A column for each variable that the queries bind, of N-Triples strings, and a row for each query; or a dictionary
from variables to rdflib terms or N-Triples strings for each."""
_SCOPE = b"bindings"


def bindings_text(bindings: Bindings) -> str:
    """Return a table of bindings as one text, the same for equal tables.

    Raises SettingsError (no rows, no columns, a name twice), DataError (a term that is none, a missing one)."""
    import pyarrow as pa

    table = _checked(bindings if isinstance(bindings, pa.Table) else _table_of(bindings))
    for name, column in zip(table.column_names, table.columns, strict=True):
        encode_term_column(name, column, scope=_SCOPE)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def bindings_table(text: str) -> pyarrow.Table:
    """Return the table that a text holds. Raises DataError (it holds none), and as bindings_text."""
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(base64.b64decode(text, validate=True)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError, binascii.Error) as error:
        first_line = str(error).partition("\n")[0]
        raise DataError(f"bindings: expected an Arrow IPC stream in base64, found: {first_line}") from None
    return _checked(table)


def terms_of_bindings(text: str | None) -> list[str]:
    """Return the canonical forms of the terms of a table, each once; none without a table."""
    import pyarrow.compute as pc

    if text is None:
        return []
    columns = bindings_table(text).columns
    found = dict.fromkeys(term for column in columns for term in pc.unique(column).to_pylist())
    return [canonical(term) for term in found]


def _table_of(rows: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    import pyarrow as pa

    if isinstance(rows, str | bytes | Mapping) or not all(isinstance(row, Mapping) for row in rows):
        raise SettingsError("bindings: expected an Arrow table, or a list of dictionaries: variable -> term")
    names = dict.fromkeys(name for row in rows for name in row)
    columns = ([None if (term := row.get(name)) is None else from_python(term) for row in rows] for name in names)
    return pa.table([pa.array(column, pa.string()) for column in columns], list(map(str, names)))


def _checked(table: pyarrow.Table) -> pyarrow.Table:
    """Return the table in the form in which it is kept: names without question marks, one chunk of strings a column."""
    import pyarrow as pa

    names = [name.lstrip("?$") for name in table.column_names]
    if not names or not table.num_rows:
        raise SettingsError("bindings: expected a table with a column and a row at least: each row is a query")
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"bindings: column {name!r} is there twice")
    columns = []
    for name, column in zip(names, table.columns, strict=True):
        if column.null_count:
            row = column.is_valid().index(False).as_py()
            raise DataError(
                f"bindings: row {row}, column {name!r}: a value is missing (null): each query binds them all"
            )
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise DataError(f"bindings: column {name!r}: expected strings, found {kind}")
        columns.append(pa.array(column.cast(pa.large_string()).combine_chunks(), pa.large_string()))
    return pa.table(columns, names)


def check_group(query: Query, bindings: str) -> None:
    """Check that a query can be registered for each row of a table. Raises SettingsError, UnsupportedFeatureError
    (naming the part), DataError."""
    names = bindings_table(bindings).column_names
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
        op = getattr(part, "op", None)
        if isinstance(op, str) and op in PER_ROW:
            raise _unsupported(f"{op}()", "its values belong to one query: register each query alone")


def _unsupported(part: str, advice: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"{part} in queries with bindings", 1, 1, advice)


class QueryGroup:
    """The queries of one table."""

    def __init__(self, registry: TermRegistry, query: Query, bindings: str) -> None:
        """bindings: checked by check_group. Called with the engine's lock held."""
        table = bindings_table(bindings)
        columns: dict[Variable, Int64Array] = {}
        references = []
        for name, column in zip(table.column_names, table.columns, strict=True):
            columns[Variable(name)], taken = _known(registry, name, column)
            references += taken
        self.references = np.concatenate(references)
        """The ids on which references were taken: release them when the queries are closed."""
        self.rows = ArgumentRows(query, columns, table.num_rows)

    def told(self) -> str:
        """Return what EXPLAIN and why() say of it."""
        return (
            f"each firing answers {self.rows.length} queries together, one for each row of a table; plan and rows are "
            "those with the table's variables left free"
        )

    @staticmethod
    def had(at_ms: int) -> bool:
        """The queries of a table are read as one."""
        return False

    @staticmethod
    def alike_to_ms(at_ms: int) -> int:
        """They are always the same."""
        return FOREVER_MS

    @staticmethod
    def divide(at_ms: int) -> list[Any]:
        """The queries of a table are one: they fail together."""
        return []


def _known(registry: TermRegistry, name: str, column: pyarrow.ChunkedArray) -> tuple[Int64Array, list[Int64Array]]:
    """Make the terms of a column known; return their ids, and the ids on which a reference was taken."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_blank = pc.starts_with(column, "_:").to_numpy()
    encoded = encode_term_column(name, column.filter(pa.array(~is_blank)), scope=_SCOPE, hash_bits=registry.hash_bits)
    confirmed, taken = registry.confirm(encoded, np.ones(len(encoded), np.bool_))
    ids = np.empty(len(column), np.int64)
    ids[~is_blank] = confirmed.subjects
    blanks = column.filter(pa.array(is_blank)).to_pylist()
    ids[is_blank], of_blanks = registry.reserve([canonical(text) for text in blanks])
    return ids, [taken, of_blanks]
