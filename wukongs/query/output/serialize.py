"""Results as text, in chunks of rows: the formats, the kinds of results they go with, and where the text goes.

A result is columns of ids. A chunk of rows becomes text, is handed on and forgotten, so that the memory that writing
takes does not depend on the number of rows. Per chunk and column each distinct term is rendered once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, BinaryIO, Protocol

from wukongs.csparql.terms import RDF
from wukongs.errors import SettingsError, StorageError
from wukongs.query.output.formats import ROW_FORMATS, check_format
from wukongs.query.output.row_formats import ask_text, row_format
from wukongs.query.output.row_text import Cell
from wukongs.query.output.table_cells import TRIPLE_COLUMNS, cell_writer, is_number
from wukongs.query.terms.names import path_text
from wukongs.query.terms.rdf_terms import split_literal, to_ntriples
from wukongs.query.terms.text_table import TableLayout
from wukongs.store.dtypes import Int64Array


class Table(Protocol):
    """A result to write, by the part of it that formats need: a Result is one."""

    kind: Any
    boolean: bool | None

    @property
    def shown(self) -> Any: ...

    @property
    def vars(self) -> list[str]: ...

    @property
    def is_graph(self) -> bool: ...

    def id_chunks(self) -> Iterator[tuple[list[Int64Array], int]]: ...

    def cell_chunks(self, cells: Sequence[Cell]) -> Iterator[tuple[list[list[str | None]], int]]: ...

    def batches(self) -> tuple[Any, Iterator[Any]]: ...


def serialize(result: Table, format: str, prefixes: Mapping[str, str] | None = None, width: int | None = None) -> str:
    """Return the result as text. prefixes shorten IRIs in ttl and table; width: columns of the terminal, for table.

    Raises: SettingsError (unknown format, or not one for this kind of result); DataError (text that XML cannot hold).
    """
    return "".join(text_chunks(result, format, prefixes, width))


def write(
    result: Table,
    format: str,
    destination: str | os.PathLike[str] | BinaryIO,
    prefixes: Mapping[str, str] | None = None,
    width: int | None = None,
) -> int:
    """Write the result, text in UTF-8, to a path or binary file object, in chunks; return how many bytes.

    Raises: as serialize; StorageError (a full disk, a path that cannot be written; the message says how much was
    written).
    """
    check_format(format, result.kind)
    chunks = byte_chunks(result, format, prefixes, width)
    if not hasattr(destination, "write"):
        destination = path_text("destination", destination)
    if not isinstance(destination, str | os.PathLike):
        name = str(getattr(destination, "name", "the file object"))
        return _write_chunks(chunks, destination, "standard output" if name == "<stdout>" else name)
    name = os.fspath(destination)
    try:
        file = open(destination, "wb")  # noqa: SIM115
    except OSError as error:
        raise StorageError(f"{name}: cannot be written: {error.strerror}; give another path") from error
    with file:
        return _write_chunks(chunks, file, name)


def text_chunks(
    result: Table, format: str, prefixes: Mapping[str, str] | None = None, width: int | None = None
) -> Iterator[str]:
    """Return an iterator over the parts of the text of serialize. Raises as serialize; SettingsError at once."""
    check_format(format, result.kind)
    if format == "arrow":
        raise SettingsError(
            "format = 'arrow' is no text: Result.arrow() gives a table, Result.batches() record batches"
        )
    if result.kind == "ask":
        return iter((ask_text(format, bool(result.boolean)),))
    if format == "table":
        return _table(result, cell_writer(prefixes or {}), width)
    if format == "ttl":
        return _turtle(result, prefixes or {})
    return (str(chunk, "utf-8") for chunk in _row_chunks(result, format))


def arrow_stream(result: Table) -> bytes:
    """Return Result.arrow() as the bytes of an Arrow IPC stream."""
    return b"".join(_arrow_chunks(result))


def byte_chunks(
    result: Table, format: str, prefixes: Mapping[str, str] | None = None, width: int | None = None
) -> Iterable[bytes]:
    """Return an iterator over the parts of what `write` writes; the format goes with the kind of the result."""
    if format == "arrow":
        return _arrow_chunks(result)
    if result.kind != "ask" and format in (*ROW_FORMATS, "nt"):
        return map(bytes, _row_chunks(result, format))
    return (text.encode() for text in text_chunks(result, format, prefixes, width))


def _row_chunks(result: Table, format: str) -> Iterator[bytes | memoryview]:
    """Write rows, or the triples of a graph, in UTF-8. format: json, xml, csv, tsv or nt."""
    rows = row_format(format, TRIPLE_COLUMNS if result.is_graph else tuple(result.vars))
    yield rows.head.encode()
    separator = b""
    for columns, count in result.id_chunks():
        if separator:
            yield separator
        yield rows.rows(columns, count, result.shown).data
        separator = rows.separator.encode()
    yield rows.tail.encode()


def _write_chunks(chunks: Iterable[bytes], file: BinaryIO, name: str) -> int:
    written = 0
    try:
        for chunk in chunks:
            file.write(chunk)
            written += len(chunk)
        file.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(
            f"{name}: {error.strerror or error}, after about {written} bytes: what was written is incomplete; "
            "make room or write elsewhere"
        ) from error
    except Exception as error:
        error.add_note(f"{name} is incomplete: about {written} bytes were written")
        raise
    return written


# --- Arrow ------------------------------------------------------------------------------------------------------------


def _arrow_chunks(result: Table) -> Iterator[bytes]:
    """Write an Arrow IPC stream; each part goes on as soon as it is written."""
    import pyarrow

    parts: list[bytes] = []
    schema, batches = result.batches()
    sink = pyarrow.PythonFile(_Parts(parts), mode="w")
    with pyarrow.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield b"".join(parts)
            parts.clear()
    yield b"".join(parts)


class _Parts:
    """A file object that only collects the texts written to it."""

    closed = False

    def __init__(self, parts: list[bytes]) -> None:
        self._parts = parts

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


# --- graphs and tables ------------------------------------------------------------------------------------------------


def _turtle(result: Table, prefixes: Mapping[str, str]) -> Iterator[str]:
    """Write the triples of a graph. Within a chunk, triples of one subject stand together."""
    short = shortener(prefixes)
    head = "".join(f"@prefix {prefix}: {to_ntriples(f'<{start}>')} .\n" for prefix, start in prefixes.items())
    yield head
    is_first = not head
    for columns, _ in result.cell_chunks((short, _verb(short), short)):
        by_subject: dict[str, dict[str, list[str]]] = {}
        for subject, predicate, object_ in zip(*columns, strict=True):
            by_subject.setdefault(str(subject), {}).setdefault(str(predicate), []).append(str(object_))
        body = "".join(
            f"\n{subject} "
            + " ;\n    ".join(f"{verb} {', '.join(objects)}" for verb, objects in verbs.items())
            + " .\n"
            for subject, verbs in by_subject.items()
        )
        yield body[1:] if is_first else body
        is_first = False


def _verb(short: Cell) -> Cell:
    return lambda text: "a" if text == f"<{RDF}type>" else short(text)


def _table(result: Table, cell: Cell, width: int | None) -> Iterator[str]:
    """Write an aligned table: the rows are rendered twice, once to measure the columns."""
    head = list(TRIPLE_COLUMNS) if result.is_graph else [f"?{name}" for name in result.vars]
    cells = [cell] * len(head)
    layout = TableLayout(head, is_number)
    for columns, _ in result.cell_chunks(cells):
        layout.measure(columns)
    lines = (layout.lines(columns, count) for columns, count in result.cell_chunks(cells))
    return chain((layout.head(width),), lines)


_LOCAL_NAME = re.compile("[A-Za-z_][A-Za-z0-9_-]*")


def shortener(prefixes: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function from a canonical text to Turtle, with a prefix where that leaves a plain local name."""
    longest_first = sorted(prefixes.items(), key=lambda item: -len(item[1]))

    def short_iri(iri: str) -> str | None:
        for prefix, start in longest_first:
            if start and iri.startswith(start) and _LOCAL_NAME.fullmatch(iri, len(start)):
                return f"{prefix}:{iri[len(start) :]}"
        return None

    def short(text: str) -> str:
        if text.startswith("<"):
            return short_iri(text[1:-1]) or to_ntriples(text)
        written = to_ntriples(text)
        datatype = split_literal(text)[1] if text.startswith('"') else None
        name = short_iri(datatype) if datatype is not None else None
        return written if name is None else written[: written.rindex('"^^<') + 3] + name

    return short
