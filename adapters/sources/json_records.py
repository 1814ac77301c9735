"""JSON as columns of text: an object a line, or the elements of a document. A value is named by its path, as TOML
mappings have it (`user.name`, `items[].sku`), or by its JSON path (`$.items[*].sku`)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from wukongs.adapters.mapping.json_cells import BadRecord, PathColumns, parse_json, text_of
from wukongs.adapters.mapping.json_paths import is_json_path, parse_json_path
from wukongs.adapters.mapping.tables import Table
from wukongs.adapters.source import text_start
from wukongs.errors import DataError
from wukongs.query.terms.arrow_texts import TEXT
from wukongs.store.dtypes import Int64Array

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}:,]|[^][{}:,"\s]+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class JsonRecords:
    """Reads records. Numbers are kept as they are written, true and false become words, null is an empty cell.

    within: the keys below which the array of a document stands whose elements are the records; JSON paths are those of
    the document. None: a record is read as it is.
    is_lines: whether records are lines or messages, which `$[*]` goes over as if they were elements of an array."""

    within: tuple[str, ...] | None = None
    is_lines: bool = False

    def table(
        self,
        lines: Sequence[bytes],
        wanted: tuple[str, ...],
        typed: Collection[str] = (),
        iterators: Sequence[str] = (),
    ) -> Table:
        """Read one object a line; blank lines are none. An array is one record, too, if only JSON paths are wanted.

        typed, iterators: as PathColumns has them."""
        plain = {name: name.replace("[]", "").split(".") for name in wanted if not is_json_path(name)}
        columns = PathColumns(len(lines), [name for name in wanted if is_json_path(name)], typed, iterators)
        found: dict[str, list[Any]] = {name: [None] * len(lines) for name in plain}
        bad: dict[int, tuple[int, str]] = {}
        blank = []
        for row, line in enumerate(lines):
            if not line.strip():
                blank.append(row)
                continue
            try:
                record = _parsed(line)
                if isinstance(record, dict):
                    for name, path in plain.items():
                        found[name][row] = _value_at(record, name, path)
                elif plain or not isinstance(record, list):
                    raise BadRecord(1, "expected a JSON object")
                columns.read(row, self._document(record), self.is_lines)
            except BadRecord as error:
                bad[row] = error.column, error.reason
        names = {name: _column(values) for name, values in found.items()}
        table = Table(len(lines), names, bad, frozenset(blank), is_typed=True)
        columns.fill(table)
        return table

    def _document(self, record: Any) -> Any:
        """Return the document that JSON paths are about."""
        if self.within is None:
            return record
        document: Any = [record]
        for key in reversed(self.within):
            document = {key: document}
        return document


def read_document(data: bytes, path: str, records: str | None) -> tuple[JsonRecords, Int64Array]:
    """Return how the records of a document are read, and the byte at which each begins, and the end.

    records: JSON path of the nodes that are records. If it is not that of all elements of one array, or there is no
    such array, the document is one record. None: the elements of an array are records, anything else is one.

    Raises: DataError (no JSON in UTF-8)."""
    first = text_start(data)
    try:
        json.loads(data[first:].decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, first + error.start) + 1
        raise DataError("expected a JSON document in UTF-8", path, line) from None
    except json.JSONDecodeError as error:
        raise DataError(f"expected a JSON document ({error.msg}, column {error.colno})", path, error.lineno) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"expected a JSON document ({error})", path) from None
    *keys, last = parse_json_path(records) if records else (None,)
    names = [key for key in keys if isinstance(key, str)]
    tokens = _TOKEN.finditer(data, first)
    if last is None and len(names) == len(keys) and _enter(tokens, names):
        starts = list(_element_starts(tokens))
        return JsonRecords(None if records is None else tuple(names)), np.array(starts, np.int64)
    return JsonRecords(), np.array([first, len(data)], np.int64)


def find_element_starts(data: bytes) -> Int64Array:
    """Return where each of the elements begins that follow each other in a piece of a document, and its end."""
    starts = list(_element_starts(_TOKEN.finditer(data)))
    starts[-1] = len(data)
    return np.array(starts, np.int64)


def split_elements(data: bytes, starts: Int64Array) -> list[bytes]:
    """Return the text of each element, without the comma behind it. Line ends are blanks: an element is a line."""
    pieces = (data[begin:end].rstrip().removesuffix(b",") for begin, end in pairwise(starts.tolist()))
    return [piece.replace(b"\n", b" ").replace(b"\r", b" ") for piece in pieces]


def _enter(tokens: Iterator[re.Match[bytes]], keys: list[str]) -> bool:
    """Read a document up to the beginning of the array below these keys; tell whether there is one."""
    for key in keys:
        if next(tokens)[0] != b"{":
            return False
        while True:
            name = next(tokens)[0]
            if name == b"}":
                return False
            next(tokens)  # the colon
            if json.loads(name) == key:
                break
            _skip(tokens)
            if next(tokens)[0] == b"}":
                return False
    return next(tokens)[0] == b"["


def _skip(tokens: Iterator[re.Match[bytes]]) -> re.Match[bytes]:
    """Read a value; return its last token."""
    token = next(tokens)
    depth = 0
    while True:
        depth += (token[0] in (b"[", b"{")) - (token[0] in (b"]", b"}"))
        if depth <= 0:
            return token
        token = next(tokens)


def _element_starts(tokens: Iterator[re.Match[bytes]]) -> Iterator[int]:
    """Yield where the elements of an array begin, and where the last one ends. tokens: behind its beginning."""
    end, depth, is_new = 0, 0, True
    for token in tokens:
        sign = token[0]
        if depth == 0 and sign == b",":
            is_new = True
            continue
        if depth == 0 and sign == b"]":
            end = end or token.start()
            break
        if is_new:
            yield token.start()
            is_new = False
        depth += (sign in (b"[", b"{")) - (sign in (b"]", b"}"))
        end = token.end()
    yield end


def _parsed(line: bytes) -> Any:
    try:
        text = line.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRecord(error.start + 1, "expected UTF-8") from None
    return parse_json(text)


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
    if not isinstance(value, list):
        return text_of(value, name)
    values = [_text(one, name) for one in value]
    if any(isinstance(one, list) for one in values):
        raise BadRecord(1, f"expected a value or a list of values in {name}, found a list of lists")
    return values


def _column(values: list[Any]) -> pa.Array:
    if any(isinstance(one, list) for one in values):
        lists = [one if one is None or isinstance(one, list) else [one] for one in values]
        return pa.array(lists, pa.large_list(TEXT))
    return pa.array(values, TEXT)
