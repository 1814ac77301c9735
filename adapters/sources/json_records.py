"""JSON lines as columns of text: an object a line; a value is named by its path (`user.name`, `items[].sku`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from wukongs.adapters.mapping.triples import Table
from wukongs.query.terms.arrow_texts import TEXT


@dataclass(frozen=True, slots=True)
class JsonRecords:
    """Reads records. Numbers are kept as they are written, true and false become words, null is an empty cell."""

    def table(self, lines: list[bytes], wanted: tuple[str, ...]) -> Table:
        """Read one object a line; blank lines are none."""
        paths = {name: name.replace("[]", "").split(".") for name in wanted}
        found: dict[str, list[Any]] = {name: [None] * len(lines) for name in wanted}
        bad: dict[int, tuple[int, str]] = {}
        blank = []
        for row, line in enumerate(lines):
            if not line.strip():
                blank.append(row)
                continue
            try:
                record = _parsed(line)
                for name, path in paths.items():
                    found[name][row] = _value_at(record, name, path)
            except _BadRecord as error:
                bad[row] = error.column, error.reason
        columns = {name: _column(values) for name, values in found.items()}
        return Table(len(lines), columns, bad, frozenset(blank), is_typed=True)


class _BadRecord(Exception):
    """A line that is no object, or has no text where one is wanted: the column (from 1), and why."""

    def __init__(self, column: int, reason: str) -> None:
        super().__init__(reason)
        self.column, self.reason = column, reason


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        text = line.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise _BadRecord(error.start + 1, "expected UTF-8") from None
    try:
        record = json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise _BadRecord(error.colno, f"expected JSON ({error.msg})") from None
    except (ValueError, RecursionError) as error:
        raise _BadRecord(1, f"expected JSON ({error})") from None
    if not isinstance(record, dict):
        raise _BadRecord(1, "expected a JSON object")
    return record


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _value_at(record: dict[str, Any], name: str, path: list[str]) -> Any:
    """Return a text, None, or a list of these."""
    if name in record:
        return _text(record[name], name)
    values: Any = record
    for step in path:
        if isinstance(values, list):
            values = [one.get(step) if isinstance(one, dict) else None for one in values]
        elif isinstance(values, dict):
            values = values.get(step)
        else:
            return None
    return _text(values, name)


def _text(value: Any, name: str) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _BadRecord(1, f"expected characters in {name}, found half of a surrogate pair") from None
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        values = [_text(one, name) for one in value]
        if any(isinstance(one, list) for one in values):
            raise _BadRecord(1, f"expected a value or a list of values in {name}, found a list of lists")
        return values
    raise _BadRecord(1, f"expected a value in {name}, found an object: name one of its keys, as in {name}.key")


def _column(values: list[Any]) -> pa.Array:
    if any(isinstance(one, list) for one in values):
        lists = [one if one is None or isinstance(one, list) else [one] for one in values]
        return pa.array(lists, pa.large_list(TEXT))
    return pa.array(values, TEXT)
