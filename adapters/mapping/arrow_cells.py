"""Columns of Arrow tables as cells of a mapping: texts, or lists of texts. A field of a struct is named by its path
(`user.name`), a field of the structs in a list so (`items[].sku`)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.adapters.mapping.json_paths import column_of, is_json_path
from wukongs.adapters.mapping.mapping import XSD
from wukongs.adapters.mapping.times import stamp_texts
from wukongs.errors import SettingsError
from wukongs.query.terms.arrow_texts import TEXT
from wukongs.store.dtypes import Int64Array

_LIST = "[]"


def columns_in(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Return the names of all columns and fields, and their types."""
    found: list[tuple[str, pa.DataType]] = []

    def add(prefix: str, fields: Iterable[pa.Field]) -> None:
        for field in fields:
            name = prefix + field.name
            found.append((name, field.type))
            if pa.types.is_struct(field.type):
                add(name + ".", field.type)
            elif _is_list(field.type) and pa.types.is_struct(field.type.value_type):
                add(f"{name}{_LIST}.", field.type.value_type)

    add("", schema)
    return found


def column_name(name: str, columns: Iterable[str]) -> str:
    """Return the column or field that a name stands for: that of a JSON path, unless a column is called so itself."""
    return column_of(name) if is_json_path(name) and name not in columns else name


def top_column(name: str, columns: Iterable[str]) -> str:
    """Return the column that holds what a name stands for."""
    name = column_name(name, columns)
    return name if name in columns else name.partition(".")[0].removesuffix(_LIST)


def cells_of(table: pa.Table, name: str, place: str, is_raw: bool = False) -> pa.Array:
    """Return the texts of a column or field, one entry a row. is_raw: timestamps are left as such.

    Raises: SettingsError (values that have no text)."""
    return _texts(_nested(table, name), name, place, is_raw)


def node_counts(table: pa.Table, iterator: str, place: str) -> Int64Array:
    """Return the number of elements that an iterator such as `$.items[*]` goes over in each row.

    Raises: SettingsError (an iterator over lists in lists)."""
    path = column_of(iterator)
    if path.count(_LIST) != 1 or not path.endswith(_LIST):
        raise SettingsError(f"{place}: expected an iterator over one list, found {iterator}")
    lengths = pc.list_value_length(_nested(table, path.removesuffix(_LIST)))
    return np.asarray(pc.fill_null(lengths, 0)).astype(np.int64)


def datatype_of(kind: pa.DataType) -> str:
    """Return the IRI of the datatype that values of a type of Arrow have."""
    while _is_list(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return XSD + "boolean"
    if pa.types.is_integer(kind):
        return XSD + "integer"
    return XSD + ("double" if pa.types.is_floating(kind) else "string")


def _nested(table: pa.Table, name: str) -> pa.Array:
    top = top_column(name, table.column_names)
    name = column_name(name, table.column_names)
    cells = table.column(top).combine_chunks()
    for step in name.removeprefix(top).removeprefix(_LIST).removeprefix(".").split(".") if name != top else ():
        cells = _field(cells, step.removesuffix(_LIST))
    return cells


def check_text(kind: pa.DataType, name: str, place: str) -> None:
    """Raises: SettingsError (a type whose values have no text)."""
    _texts(pa.nulls(0, kind), name, place, False)


def _field(cells: pa.Array, name: str) -> pa.Array:
    return lists_of(cells, _field(cells.flatten(), name)) if _is_list(cells.type) else pc.struct_field(cells, [name])


def lists_of(cells: pa.Array, values: pa.Array) -> pa.Array:
    """Return lists of other values, of the same lengths; a null is an empty list."""
    offsets = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(cells), 0)), out=offsets[1:])
    return pa.LargeListArray.from_arrays(pa.array(offsets), values)


def without_empty(cells: pa.Array, empty: pa.Array) -> pa.Array:
    """Return texts, or lists of texts of any depth, with null in place of those that stand for an empty cell."""
    if _is_list(cells.type):
        return lists_of(cells, without_empty(cells.flatten(), empty))
    is_empty = pc.is_in(cells, empty)
    return pc.if_else(is_empty, pa.scalar(None, TEXT), cells) if pc.any(is_empty).as_py() else cells


def _texts(cells: pa.Array, name: str, place: str, is_raw: bool) -> pa.Array:
    kind = cells.type
    if pa.types.is_dictionary(kind):
        return _texts(cells.dictionary_decode(), name, place, is_raw)
    if pa.types.is_timestamp(kind):
        return cells if is_raw else stamp_texts(cells)
    if _is_list(kind) and not _is_list(kind.value_type):
        return lists_of(cells, _texts(cells.flatten(), name + _LIST, place, False))
    if pa.types.is_floating(kind):
        texts = cells.cast(TEXT)
        for found, word in (("nan", "NaN"), ("inf", "INF"), ("-inf", "-INF")):
            texts = pc.if_else(pc.equal(texts, found), word, texts)
        return texts.cast(TEXT)
    try:
        return cells.cast(TEXT)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        advice = f"name one of its fields, such as {name}.{kind[0].name}" if pa.types.is_struct(kind) else str(error)
        raise SettingsError(
            f"{place}, column {name}: expected values that have a text, found {kind} ({advice})"
        ) from None


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
