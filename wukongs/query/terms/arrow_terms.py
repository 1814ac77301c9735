"""Arrow columns of values as columns of N-Triples: what tables that are given hold.

The reverse of wukongs/query/output/typed_columns.py, but for lexical forms. Each distinct value is written once; the
rows become indices of a dictionary, which the encoder reads as they are.

| Arrow type                                         | terms                                                       |
|----------------------------------------------------|-------------------------------------------------------------|
| strings                                            | N-Triples; with the metadata `wukongs.terms`: see TERMS     |
| integers                                           | xsd:integer                                                 |
| float64; float32, float16                          | xsd:double; xsd:float                                       |
| bool                                               | xsd:boolean                                                 |
| decimals                                           | xsd:decimal                                                 |
| timestamps with a zone; without                    | xsd:dateTime in UTC; without a zone                         |
| dates; durations                                   | xsd:date; xsd:dayTimeDuration                               |
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.csparql.terms import XSD
from wukongs.errors import DataError, SettingsError
from wukongs.query.terms.python_terms import from_float32, from_value
from wukongs.store.encoder import is_text_type

TERMS = b"wukongs.terms"
"""The key of a field's metadata that says what strings are: IRI, the IRI of xsd:string for plain ones, or N_TRIPLES."""
IRI = b"IRI"
"""IRIs without brackets, blank nodes as `_:label`."""
N_TRIPLES = b"N-Triples"
_STRING = f"{XSD}string".encode()
_VALUES = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_duration,
)
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"))


def table_of(given: Any, what: str, others: str = "") -> pa.Table:
    """Return an Arrow table, or a data frame and the like that gives one. what: it is called in errors; others: that
    its caller takes.

    Raises SettingsError (it is none)."""
    if isinstance(given, pa.Table):
        return given
    if not hasattr(given, "__arrow_c_stream__") and not hasattr(given, "__arrow_c_array__"):
        raise SettingsError(
            f"{what}: expected an Arrow table, or a data frame of pandas (2.2 on) or polars{others}, found "
            f"{type(given).__name__}"
        )
    try:
        return pa.table(given)
    except (pa.ArrowException, TypeError) as error:
        raise SettingsError(f"{what}: expected a table, found {type(given).__name__}: {error}") from None


def as_ntriples(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Return a table with these columns, if it has them, as N-Triples. Raises DataError, naming the column."""
    for place, field in enumerate(table.schema):
        if field.name not in names:
            continue
        column, told = table.column(place), (field.metadata or {}).get(TERMS)
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if (is_text_type(kind) and told not in (IRI, _STRING)) or pa.types.is_null(kind):
            continue
        if not is_text_type(kind) and not any(is_of(kind) for is_of in _VALUES):
            raise DataError(
                f"column {field.name!r}: expected N-Triples strings, or integers, floats, booleans, decimals, dates, "
                f"timestamps or durations, found {kind}"
            )
        if not pa.types.is_dictionary(field.type):
            column = column.dictionary_encode()
        column = column.unify_dictionaries()
        indices = pa.chunked_array([chunk.indices for chunk in column.chunks], column.type.index_type)
        values = column.chunk(0).dictionary if column.num_chunks else pa.array([], kind)
        texts = _texts(values, field.name, told)
        chunks = [pa.DictionaryArray.from_arrays(chunk, texts, safe=False) for chunk in indices.chunks]
        made = pa.chunked_array(chunks, pa.dictionary(column.type.index_type, pa.large_string()))
        table = table.set_column(place, field.name, made)
    return table


def _texts(values: Any, name: str, told: bytes | None) -> pa.LargeStringArray:
    """Return values as N-Triples, null for null."""
    kind = values.type
    if is_text_type(kind):
        texts = values.cast(pa.large_string())
        return _iris(texts) if told == IRI else _strings(texts)
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        shown = pc.strftime(
            values if kind.tz is None else values.cast(pa.timestamp(kind.unit, "UTC")), "%Y-%m-%dT%H:%M:%S"
        )
        shown = [None if text is None else _trimmed(text) + zone for text in shown.to_pylist()]
        return _typed(shown, "dateTime")
    if pa.types.is_date(kind):
        return _typed(values.cast(pa.date32()).cast(pa.string()).to_pylist(), "date")
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        floats = np.asarray(values.cast(pa.float32()).to_numpy(zero_copy_only=False))
        return pa.array(
            [from_float32(value) for value in floats],
            pa.large_string(),
            mask=values.is_null().to_numpy(zero_copy_only=False),
        )
    if pa.types.is_duration(kind):
        try:
            values = values.cast(pa.duration("us"))
        except pa.ArrowInvalid as error:
            raise DataError(f"column {name!r}: expected durations in whole microseconds: {error}") from None
    return pa.array([from_value(value) for value in values.to_pylist()], pa.large_string())


def _typed(lexicals: list[str | None], datatype: str) -> pa.LargeStringArray:
    shown = (None if lexical is None else f'"{lexical}"^^<{XSD}{datatype}>' for lexical in lexicals)
    return pa.array(shown, pa.large_string())


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _iris(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    return pc.if_else(pc.starts_with(texts, "_:"), texts, _joined("<", texts, ">"))


def _strings(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    for plain, escaped in _ESCAPES:
        texts = pc.replace_substring(texts, plain, escaped)
    return _joined('"', texts, '"')


def _joined(*parts: Any) -> pa.LargeStringArray:
    columns = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in (*parts, "")]
    return pc.binary_join_element_wise(*columns)
