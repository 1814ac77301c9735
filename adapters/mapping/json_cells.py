"""Values of JSON as cells: texts as they are written, and the datatype that each of them has.

A number without fraction and exponent is an xsd:integer, any other an xsd:double, true and false are booleans. Null is
no value. An array at the end of a path stands for its elements.

Source: RML-IO-Registry, "Natural RDF mapping of JSON values"; RFC 8259, section 6, for the parts of a number.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from wukongs.adapters.mapping.json_paths import count_nodes, parse_json_path, select_values
from wukongs.adapters.mapping.mapping import XSD
from wukongs.adapters.mapping.tables import Table
from wukongs.query.terms.arrow_texts import TEXT

_INTEGER, _DOUBLE, _BOOLEAN, _STRING = (XSD + name for name in ("integer", "double", "boolean", "string"))


class JsonInteger(str):
    """A number without fraction and exponent, as it is written."""


class JsonDouble(str):
    """Any other number, as it is written."""


class BadRecord(Exception):
    """A record that is no JSON, or has no text where one is wanted: the column (from 1), and why."""

    def __init__(self, column: int, reason: str) -> None:
        super().__init__(reason)
        self.column, self.reason = column, reason


def parse_json(text: str) -> Any:
    """Return the value of a text, numbers as they are written. Raises: BadRecord."""
    try:
        return json.loads(text, parse_int=JsonInteger, parse_float=JsonDouble, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise BadRecord(error.colno, f"expected JSON ({error.msg})") from None
    except (ValueError, RecursionError) as error:
        raise BadRecord(1, f"expected JSON ({error})") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def text_of(value: Any, name: str) -> str | None:
    """Return the text of a value that is no array. Raises: BadRecord (an object, half of a surrogate pair)."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadRecord(1, f"expected characters in {name}, found half of a surrogate pair") from None
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise BadRecord(1, f"expected a value in {name}, found an object: name one of its keys, as in {name}.key")


class PathColumns:
    """Columns of JSON paths, filled record by record.

    names: the paths; typed: those whose types are wanted, too; iterators: those whose nodes are counted."""

    def __init__(self, row_count: int, names: Sequence[str], typed: Collection[str], iterators: Sequence[str]) -> None:
        self._paths = {name: parse_json_path(name) for name in names}
        self._iterators = {name: parse_json_path(name) for name in iterators}
        self._texts: dict[str, list[Any]] = {name: [None] * row_count for name in names}
        self._types: dict[str, list[Any]] = {name: [None] * row_count for name in names if name in typed}
        self._counts = {name: np.zeros(row_count, np.int64) for name in iterators}

    def read(self, row: int, record: Any, is_line: bool = False) -> None:
        """Fill a row. is_line: an object is an element, too, of the array that all lines are: `$[*]` is each of them.

        Raises: BadRecord (then the row stays empty)."""
        within = [record] if is_line and isinstance(record, dict) else record
        found = []
        for name, path in self._paths.items():
            types = None
            if None in path:
                root = within if path[0] is None else record
                texts = select_values(root, path, partial(_texts, name=name))
                if name in self._types:
                    types = select_values(root, path, _types)
            else:  # one node, found once
                (node,) = select_values(record, path, _alone)
                texts = _texts(node, name)
                if name in self._types:
                    types = _types(node)
            found.append((name, texts, types))
        for name, texts, types in found:
            self._texts[name][row] = texts
            if types is not None:
                self._types[name][row] = types
        for name, path in self._iterators.items():
            self._counts[name][row] = count_nodes(within if path[0] is None else record, path)

    def fill(self, table: Table) -> None:
        """Give the columns to a table."""
        for name, path in self._paths.items():
            texts, types = self._texts[name], self._types.get(name)
            kind = _list_type(path.count(None) + 1)
            if None not in path and all(not one or len(one) == 1 for one in texts):  # no lists: the usual case
                texts, types, kind = _singles(texts), None if types is None else _singles(types), TEXT
            table.names[name] = pa.array(texts, kind)
            if types is not None:
                table.types[name] = pa.array(types, kind)
        table.iterations.update(self._counts)


def _singles(lists: list[Any]) -> list[str | None]:
    return [one[0] if one else None for one in lists]


def _list_type(depth: int) -> pa.DataType:
    kind = TEXT
    for _ in range(depth):
        kind = pa.large_list(kind)
    return kind


def _alone(node: Any) -> list[Any]:
    return [node]


def _texts(node: Any, name: str) -> list[str | None]:
    if isinstance(node, str) and node.isascii():
        return [node]
    if not isinstance(node, list):
        return [] if node is None else [text_of(node, name)]
    if any(isinstance(one, list) for one in node):
        raise BadRecord(1, f"expected a value or an array of values in {name}, found an array of arrays")
    return [text_of(one, name) for one in node if one is not None]


def _types(node: Any) -> list[str]:
    values = node if isinstance(node, list) else [node]
    return [_type(one) for one in values if one is not None]


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return _BOOLEAN
    return _INTEGER if isinstance(value, JsonInteger) else _DOUBLE if isinstance(value, JsonDouble) else _STRING
