"""Terms as the cells of typed columns: N-Triples in a string column, the values of literals in the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from wukongs.errors import DataError, SettingsError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"(?:\^\^<[^>]*>|(@[A-Za-z0-9-]+))?', re.DOTALL)
_INTEGER = re.compile(r"[-+]?[0-9]+")
_DOUBLE = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?INF|NaN")
_DATE_TIME = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:T(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2}(?:\.[0-9]+)?))?"
    r"(?P<zone>Z|[-+][0-9]{2}:[0-9]{2})?"
)
"""The lexical forms of XSD 1.1 part 2, which Python's own readers do not share."""
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
    if literal is not None and (literal[2] is None or kind == "string"):
        try:
            return _READERS[kind](literal[1])
        except (ValueError, KeyError, OverflowError):
            pass
    raise DataError(f"column {name!r}: expected a {kind}, found {text[:200]}. Give the column another type, or string")


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    found = int(text)
    if not -(1 << 63) <= found < 1 << 63:
        raise OverflowError(text)
    return found


def _double(text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise ValueError(text)
    return float({"INF": "inf", "-INF": "-inf", "+INF": "inf"}.get(text, text))


def _moment(text: str) -> datetime:
    """Return an xsd:dateTime or, at its midnight, an xsd:date; without a zone it is one of UTC. Digits behind the
    microsecond are cut off."""
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    hour, minute, second, zone = found["hour"] or "00", found["minute"] or "00", found["second"] or "00", found["zone"]
    is_end = hour == "24"  # of the day: 24:00:00 is 00:00:00 of the next one (3.3.7)
    if is_end and (minute + second).strip("0."):
        raise ValueError(text)
    time = datetime.fromisoformat(found["date"]).replace(
        hour=0 if is_end else int(hour),
        minute=int(minute),
        second=int(second[:2]),
        microsecond=int(second[3:9].ljust(6, "0")),
        tzinfo=UTC,
    )
    offset = timedelta(0) if zone in (None, "Z") else timedelta(hours=int(zone[1:3]), minutes=int(zone[4:]))
    if offset > timedelta(hours=14) or (zone or "")[4:] > "59":
        raise ValueError(text)
    return time + timedelta(is_end) + (offset if zone and zone[0] == "-" else -offset)


_READERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "bigint": _integer,
    "int": _integer,
    "double": _double,
    "boolean": lambda text: _BOOLEANS[text],
    "timestamp": _moment,
}
