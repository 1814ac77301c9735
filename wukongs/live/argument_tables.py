"""Tables of arguments: a column for each variable that a query is given terms for, and a row for each time that it is
asked.

A table travels, and is kept, as one text: an Arrow IPC stream, compressed, in base64."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from wukongs.errors import DataError, SettingsError
from wukongs.query.terms.names import canonical
from wukongs.query.terms.python_terms import is_table
from wukongs.query.terms.rdf_terms import from_python
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoder import encode_term_column, plain_texts
from wukongs.store.term_registry import TermRegistry

if TYPE_CHECKING:
    import pyarrow

Arguments: TypeAlias = "pyarrow.Table | Sequence[Mapping[str, Any]]"
"""A column for each variable that the queries bind, of N-Triples strings or values, and a row for each query; or a
dictionary from variables to terms for each: N-Triples strings, Python values, terms of rdflib or pyoxigraph."""

SCOPE = b"bindings"
NUMBERS_END = 1 << 59
"""The numbers of arguments lie below: their ids are those of integers (store/term_ids.py)."""


def filled_table(arguments: Arguments, what: str) -> pyarrow.Table:
    """Return the same as argument_table. Raises also SettingsError for an empty one, and DataError for what is no term,
    naming row and column."""
    table = argument_table(arguments, what)
    if not table.num_rows:
        raise SettingsError(f"{what}: expected a table with a column and a row at least: each row is a query")
    for name, column in zip(table.column_names, table.columns, strict=True):
        encode_term_column(name, column, scope=SCOPE)
    return table


def argument_table(arguments: Arguments, what: str) -> pyarrow.Table:
    """Return arguments as a table: names without question marks, one chunk of strings a column. what: the parameter,
    for messages.

    Raises SettingsError (no columns, a name twice), DataError (naming row and column: a missing term)."""
    import pyarrow as pa

    from wukongs.query.terms.arrow_terms import as_ntriples, table_of

    if isinstance(arguments, Sequence) or not is_table(arguments):
        table = _table_of(arguments, what)
    else:
        table = table_of(arguments, what, ", or a list of dictionaries: variable -> term")
        try:
            table = as_ntriples(table, tuple(table.column_names))
        except DataError as error:
            raise DataError(f"{what}: {error}") from None
    names = [name.lstrip("?$") for name in table.column_names]
    if not names:
        raise SettingsError(f"{what}: expected a table with a column and a row at least: each row is a query")
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"{what}: column {name!r} is there twice")
    columns = []
    for name, column in zip(names, table.columns, strict=True):
        column = plain_texts(column)
        if column.null_count:
            row = column.is_valid().index(False).as_py()
            raise DataError(f"{what}: row {row}, column {name!r}: a value is missing (null): each query binds them all")
        columns.append(pa.array(column.combine_chunks(), pa.large_string()))
    return pa.table(columns, names)


def table_text(table: pyarrow.Table) -> str:
    """Return a table of arguments as one text, the same for equal tables."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def told_arguments(arguments: Any, call: str) -> dict[str, Any]:
    """Return what is to be bound or unbound (call) as JSON, for another process: {"table": text} or {"numbers": list}.

    Raises as argument_table; SettingsError (neither a table nor numbers)."""
    rows = [*arguments] if isinstance(arguments, Sequence) else []
    is_rows = call == "bind" or is_table(arguments) or any(isinstance(one, Mapping) for one in rows)
    if is_rows and (rows or not isinstance(arguments, Sequence)):
        return {"table": table_text(argument_table(arguments, call))}
    return {"numbers": argument_numbers(arguments).tolist()}


def argument_numbers(arguments: Any) -> Int64Array:
    """Return the numbers of arguments that are to be unbound. Raises SettingsError (something else), DataError (no
    argument has such a number)."""
    try:
        numbers = np.atleast_1d(np.asarray([*arguments] if isinstance(arguments, Collection) else arguments))
    except ValueError:  # lists of different lengths
        numbers = np.empty((0, 0))
    if numbers.ndim > 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
        raise SettingsError(f"unbind: expected numbers of arguments, or a table as for bind, found {arguments!r:.200}")
    if (lacking := numbers[(numbers < 0) | (numbers >= NUMBERS_END)]).size:
        raise DataError(f"unbind: no argument has the number {lacking[0]}")
    return numbers.astype(np.int64)


def given_arguments(told: Mapping[str, Any], call: str) -> Any:
    """Return what told_arguments has given. Raises DataError (it holds no table)."""
    return told.get("numbers", []) if told.get("table") is None else text_table(told["table"], call)


def text_table(text: str, what: str) -> pyarrow.Table:
    """Return the table that a text holds, whatever is in it. Raises DataError (it holds none)."""
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(base64.b64decode(text, validate=True)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError, binascii.Error) as error:
        first_line = str(error).partition("\n")[0]
        raise DataError(f"{what}: expected an Arrow IPC stream in base64, found: {first_line}") from None
    return table


def known_ids(
    registry: TermRegistry, name: str, column: pyarrow.ChunkedArray, taken: list[Int64Array] | None = None
) -> Int64Array:
    """Make the terms of a column known; return their ids.

    taken: gets the ids on which a reference was taken, which are to be released; None: the terms stay known for ever.
    Raises DataError (a term that is none)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_blank = pc.starts_with(column, "_:").to_numpy()
    encoded = encode_term_column(name, column.filter(pa.array(~is_blank)), scope=SCOPE, hash_bits=registry.hash_bits)
    confirmed, references = registry.confirm(encoded, None if taken is None else np.ones(len(encoded), np.bool_))
    blanks = [canonical(text) for text in column.filter(pa.array(is_blank)).to_pylist()]
    ids = np.empty(len(column), np.int64)
    ids[~is_blank] = confirmed.subjects
    if taken is None:
        ids[is_blank] = registry.keep_all(blanks)
    else:
        ids[is_blank], of_blanks = registry.reserve(blanks)
        taken += [references, of_blanks]
    return ids


def _table_of(rows: Sequence[Mapping[str, Any]], what: str) -> pyarrow.Table:
    import pyarrow as pa

    if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
        raise SettingsError(f"{what}: expected an Arrow table, or a list of dictionaries: variable -> term")
    names = dict.fromkeys(name for row in rows for name in row)
    columns = ([_text(row.get(name), what, at, name) for at, row in enumerate(rows)] for name in names)
    return pa.table([pa.array(column, pa.string()) for column in columns], list(map(str, names)))


def _text(term: Any, what: str, row: int, name: str) -> str | None:
    try:
        return None if term is None else from_python(term)
    except DataError as error:
        raise DataError(f"{what}: row {row}, column {name!r}: {error}") from None
