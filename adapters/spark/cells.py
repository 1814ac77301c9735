"""Terms as the cells of typed columns: N-Triples in a string column, the values of literals in the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from wukongs.errors import DataError, SettingsError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"(?:\^\^<[^>]*>|@[A-Za-z0-9-]+)?', re.DOTALL)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the columns as Spark wants them from Arrow."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def check_schema(schema: StructType, wanted: tuple[str, ...] | None = None) -> None:
    """Raises: SettingsError (a type that no term has; a column that there is not)."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if kind not in _READERS:
            raise SettingsError(f"column {field.name!r}: expected type {', '.join(_READERS)}, found {kind}")
        if wanted is not None and field.name not in wanted:
            raise SettingsError(f"column {field.name!r}: there is none of this name, only {', '.join(wanted)}")


def typed_batch(texts: pa.Table, schema: StructType) -> pa.Table:
    """Return the columns of a schema from those of texts, None where unbound.

    Raises: DataError (a term that is no value of its column's type; a column that is not there)."""
    import pyarrow as pa

    columns = []
    target = arrow_schema(schema)
    for field, arrow in zip(schema.fields, target, strict=True):
        if field.name not in texts.column_names:
            raise DataError(f"column {field.name!r}: there is none of this name, only {', '.join(texts.column_names)}")
        found = texts[field.name]
        if found.type == arrow.type or not pa.types.is_string(found.type):
            columns.append(found.cast(arrow.type))
            continue
        columns.append(_typed(found, field.name, field.dataType.simpleString(), arrow.type))
    return pa.table(columns, schema=target)


def _typed(column: pa.ChunkedArray, name: str, kind: str, arrow: pa.DataType) -> pa.Array:
    """Return the values of a column of texts; each distinct one is read once."""
    import pyarrow as pa

    encoded = column.combine_chunks().dictionary_encode()
    values = [_value(text, name, kind) for text in encoded.dictionary.to_pylist()]
    return pa.array(values, arrow).take(encoded.indices)


def _value(text: str, name: str, kind: str) -> Any:
    literal = _LITERAL.fullmatch(text)
    if literal is not None:
        try:
            return _READERS[kind](literal[1])
        except (ValueError, KeyError, OverflowError):
            pass
    raise DataError(f"column {name!r}: expected a {kind}, found {text[:200]}. Give the column another type, or string")


def _integer(text: str) -> int:
    found = int(text)
    if not -(1 << 63) <= found < 1 << 63:
        raise OverflowError(text)
    return found


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


_READERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "bigint": _integer,
    "int": _integer,
    "double": lambda text: float({"INF": "inf", "-INF": "-inf", "+INF": "inf"}.get(text, text)),
    "boolean": lambda text: _BOOLEANS[text],
    "timestamp": _moment,
}
