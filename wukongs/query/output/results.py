"""Result: the answer of a query, as columns of term ids that become terms only when somebody asks.

Invariants:

* the columns never change; the reader gives the same text for an id as long as the result lives, because it holds the
  snapshot (and the slices) that the query read;
* rows are decoded in chunks, as they are asked for; each distinct id of a chunk is decoded once, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from os import PathLike
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias, TypeVar, cast, overload

import numpy as np

from wukongs.errors import DataError, SettingsError
from wukongs.query.limits import current
from wukongs.query.memory import Reservation
from wukongs.query.output.serialize import arrow_stream, serialize, write
from wukongs.query.rows import find_rows, number_rows, numbered
from wukongs.query.spill_files import let_pages_go
from wukongs.query.terms.decoding import Utf8Reader, terms_of_ids
from wukongs.query.terms.shown_texts import ShownTexts
from wukongs.store.dtypes import UNBOUND, BoolArray, Int64Array

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import rdflib
    from rdflib.term import IdentifiedNode
    from rdflib.term import Literal as RdfLiteral

    RdfTerm: TypeAlias = IdentifiedNode | RdfLiteral

Kind: TypeAlias = Literal["select", "ask", "construct", "describe"]
Triple: TypeAlias = tuple[str, str, str]
_Cell = TypeVar("_Cell")

_TIME_COLUMN = "timestamp_ms"
_TRIPLE_COLUMNS = ("subject", "predicate", "object")
_CHUNK_ROWS = 8192
_CHUNK_CELLS = 1 << 18
"""A chunk has at most as many cells, unless one row has more: answers may have thousands of columns."""
_MANY_ROWS = 1 << 17
"""Only results of more rows are in temporary files, or it does not matter that they are."""
_FEW_CELLS = 64
"""So many are told apart in Python: a kernel would take longer to be called."""


class Result:
    """The answer of one query at one snapshot.

    kind: select, ask, construct or describe; snapshot: the SN that was read. A select has rows: iterating gives tuples
    of rdflib terms, None where unbound. A construct has triples: iterating gives them, len counts them. An ask has
    boolean, which is also its truth; the others are true if they have a row. rdflib has no triple terms and no base
    directions (RDF 1.2): iterating over such terms raises DataError; arrow() and serialize() give them.
    """

    def __init__(
        self,
        kind: Kind,
        variables: tuple[str, ...],
        columns: tuple[Int64Array, ...],
        reader: Utf8Reader,
        snapshot: int,
        boolean: bool | None = None,
        length: int | None = None,
        *,
        text: str = "",
    ) -> None:
        """columns[i] : int64[n_rows], the ids of variables[i]; length: n_rows, needed only where there is no column.
        A graph has no variables but three columns, of its triples' subjects, predicates and objects, each triple once.
        text: of the query, whose prefixes shorten what a notebook shows.
        """
        width = len(_TRIPLE_COLUMNS if kind in ("construct", "describe") else variables)
        assert width == len(columns), (kind, variables, len(columns))
        rows = len(columns[0]) if columns else length or 0
        for column in columns:
            assert len(column) == rows, [len(column) for column in columns]
        self.kind: Kind = kind
        self.snapshot = snapshot
        self.boolean = boolean
        self._variables = variables
        self.reader = reader
        self._columns = columns
        self._rows = rows
        self._text = text
        self.reservation: Reservation | None = None
        """The reservation of its columns in the budget of this process, given back when the result is collected."""

    # --- rows ---------------------------------------------------------------------------------------------------------

    @property
    def vars(self) -> list[str]:
        """The names of the variables, in the order of the query, without question marks."""
        return list(self._variables)

    @property
    def shown(self) -> ShownTexts:
        """The reader of texts as answers show them, with the usual case of language tags; `reader` has ids' own."""
        return ShownTexts(self.reader)

    @property
    def is_graph(self) -> bool:
        return self.kind in ("construct", "describe")

    @property
    def width(self) -> int:
        """How many columns there are: of a graph three, of an ask none."""
        return len(self._columns)

    @property
    def size_bytes(self) -> int:
        """The bytes of its columns. Texts are not counted: they belong to the reader."""
        return sum([column.nbytes for column in self._columns])

    def __len__(self) -> int:
        return self._rows

    def __bool__(self) -> bool:
        return bool(self.boolean) if self.kind == "ask" else len(self) > 0

    def __iter__(self) -> Iterator[tuple[RdfTerm | None, ...]]:
        chunks = self._rows_of(partial(terms_of_ids, terms=self.shown))
        return chain.from_iterable(chunks)

    def texts(self) -> list[tuple[str | None, ...]]:
        """Return the rows (or triples) as canonical texts, None where unbound; language tags as in en-GB."""
        if self._rows * len(self._columns) <= _FEW_CELLS and self._columns:
            return list(zip(*_decoded(self._columns, self.shown.texts), strict=True))
        chunks = self._rows_of(self.shown.texts)
        return list(chain.from_iterable(chunks))

    def triples(self) -> list[Triple]:
        """Return the triples of a construct or describe as canonical texts; none for the other kinds."""
        return cast("list[Triple]", self.texts()) if self.is_graph else []

    def id_chunks(self) -> Iterator[tuple[list[Int64Array], int]]:
        """Iterate over chunks of rows (or triples) as (columns of ids, number of rows). `reader` knows their texts.

        Raises what the limits of the thread raise between two chunks: QueryTimeout, QueryKilled."""
        rows = max(1, min(_CHUNK_ROWS, _CHUNK_CELLS // max(1, self.width)))
        for start in range(0, self._rows, rows):
            current().check()
            stop = min(start + rows, self._rows)
            yield self.ids(start, stop), stop - start
            if self._rows > _MANY_ROWS:
                let_pages_go(self._columns)

    def ids(self, start: int, stop: int) -> list[Int64Array]:
        """Return the columns of ids of the rows (or triples) [start, stop)."""
        return [column[start:stop] for column in self._columns]

    def cell_chunks(self, cells: Sequence[Callable[[str], str]]) -> Iterator[tuple[list[list[str | None]], int]]:
        """Iterate over chunks of rows (or triples) as (columns of cells, number of rows), None where unbound.

        cells: one function a column, from a canonical text to the cell; called once per distinct term of a chunk."""
        for columns, count in self.id_chunks():
            yield [self._cells(cell, column) for cell, column in zip(cells, columns, strict=True)], count

    def _cells(self, cell: Callable[[str], str], column: Int64Array) -> list[str | None]:
        (made,) = _decoded([column], lambda ids: list(map(cell, self.shown.texts(ids))))
        return made

    def _rows_of(self, decode: Callable[[Int64Array], list[_Cell]]) -> Iterator[Iterable[tuple[_Cell | None, ...]]]:
        """Iterate over chunks of rows. decode: distinct ids -> what stands for them."""
        for columns, count in self.id_chunks():
            yield zip(*_decoded(columns, decode), strict=True) if columns else repeat((), count)

    # --- other shapes -------------------------------------------------------------------------------------------------

    def graph(self) -> rdflib.Graph:
        """Return the triples of a construct or describe as a new rdflib graph.

        Raises: TypeError (a select or an ask, which makes no graph); DataError (terms of RDF 1.2).
        """
        import rdflib

        if not self.is_graph:
            article = "an" if self.kind == "ask" else "a"
            raise TypeError(f"{article} {self.kind} result has no graph; only CONSTRUCT and DESCRIBE make one")
        graph = rdflib.Graph()
        for triple in self:
            graph.add(cast("tuple[RdfTerm, RdfTerm, RdfTerm]", triple))
        return graph

    def arrow(
        self, *, dictionary: bool = False, typed: bool | pyarrow.Schema = False, ids: bool = False
    ) -> pyarrow.Table:
        """Return an Arrow table: one column per variable, terms as strings of N-Triples, null where unbound. A graph
        has the columns subject, predicate and object, so that it can go back into `push_arrow`; an ask has one boolean
        column named `ask`.

        dictionary: the strings are dictionary-encoded, all columns with one dictionary, in which each distinct term is
        once. typed: columns of values. One whose terms are all integers is int64, and so on for other datatypes,
        strings and IRIs; one of which that is not true is dictionary-encoded N-Triples. The metadata of each field says
        what it holds, under `wukongs.terms`. A schema with fields for some or all columns says what these are to be,
        whatever the terms are. ids: columns of term ids (int64), for `terms`. docs/api.md has a table of types.

        Raises SettingsError (two of these at once, a field of the schema that is no column or has a type that no terms
        have), DataError (naming row and column: a term that does not fit the schema).
        """
        import pyarrow

        if not isinstance(typed, bool | pyarrow.Schema):
            raise SettingsError(f"typed = {typed!r}: expected True, False or a pyarrow.Schema")
        if not isinstance(dictionary, bool) or not isinstance(ids, bool):
            raise SettingsError(f"dictionary = {dictionary!r}, ids = {ids!r}: expected True or False")
        if dictionary + (typed is not False) + ids > 1:
            raise SettingsError("arrow: expected one of dictionary, typed and ids, found several")
        if self.kind == "ask":
            return pyarrow.table({"ask": [bool(self.boolean)]})
        if ids:
            columns = [pyarrow.array(column, mask=column == UNBOUND) for column in self._columns]
            return pyarrow.table(columns, self._names)
        if typed is not False:
            from wukongs.query.output.typed_columns import typed_table

            return typed_table(self._names, self._columns, self.shown, None if typed is True else typed)
        from wukongs.query.output.arrow_columns import dictionary_columns, string_columns

        if dictionary:
            return pyarrow.table(dictionary_columns(self._columns, self.shown), self._names)
        if len(self) <= _CHUNK_ROWS:
            return pyarrow.table(string_columns(self._columns, self.shown), self._names)
        schema, batches = Result.batches(self)
        return pyarrow.Table.from_batches(list(batches), schema)

    def terms(self, ids: pyarrow.Array | Sequence[int | None]) -> pyarrow.Array:
        """Return the terms of ids that `arrow(ids=True)` gave, as an Arrow array of N-Triples, null for null.

        Raises DataError for an id that is not in this result."""
        import pyarrow

        from wukongs.query.output.arrow_columns import string_columns

        try:
            given = ids if isinstance(ids, pyarrow.Array | pyarrow.ChunkedArray) else pyarrow.array(ids)
            asked = given.cast(pyarrow.int64()).fill_null(UNBOUND).to_numpy()
        except (pyarrow.ArrowException, TypeError, UnicodeError) as error:
            raise DataError(f"terms: expected term ids, a column of arrow(ids=True): {error}") from None
        known = _are_cells(asked, self._columns)
        if not known.all():
            raise DataError(f"terms: {asked[np.argmin(known)]} is not the id of a term in this result")
        return string_columns([asked], self.shown)[0]

    def batches(self) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
        """Return the schema of arrow(), and an iterator over its rows as record batches, made as they are asked for."""
        import pyarrow

        if self.kind == "ask":
            one = pyarrow.record_batch([pyarrow.array([bool(self.boolean)])], ["ask"])
            return one.schema, iter((one,))
        from wukongs.query.output.arrow_columns import string_columns

        schema = pyarrow.schema([(name, pyarrow.string()) for name in self._names])
        return schema, (
            pyarrow.record_batch(string_columns(columns, self.shown), schema=schema) for columns, _ in self.id_chunks()
        )

    @property
    def _names(self) -> tuple[str, ...]:
        return _TRIPLE_COLUMNS if self.is_graph else self._variables

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give batches() to whoever takes Arrow data, such as polars.DataFrame(result): the Arrow PyCapsule interface.

        A consumer that asks for another schema gets the columns cast to it, if that can be."""
        import pyarrow

        return pyarrow.RecordBatchReader.from_batches(*self.batches()).__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame of Python values: numbers, booleans, dates and times for literals that are such, strings
        for all others (an IRI without brackets, `_:label` for a blank node), None where unbound.

        A column of integers without gaps gets dtype int64, and so on; a column with gaps or of several kinds stays
        `object`, so that no integer turns into a float.
        """
        try:
            import pandas
        except ImportError:
            raise SettingsError(
                'to_pandas needs pandas, which is not installed: pip install "wukongs[pandas]", or take arrow()'
            ) from None

        from wukongs.query.terms.python_values import to_python

        if self.kind == "ask":
            return pandas.DataFrame({"ask": [bool(self.boolean)]})
        names, columns = self._text_columns()
        memo: dict[str, object] = {}
        series = []
        for texts in columns:
            memo.update((text, to_python(text)) for text in set(texts) if text is not None and text not in memo)
            values = [None if text is None else memo[text] for text in texts]
            one_kind = len({type(value) for value in values}) == 1
            column = pandas.Series(values, dtype=object)
            series.append(column.infer_objects() if one_kind else column)
        frame = pandas.concat(series, axis=1) if series else pandas.DataFrame(index=range(len(self)))
        frame.columns = pandas.Index(list(names), dtype=object)
        return frame

    def _text_columns(self) -> tuple[tuple[str, ...], list[list[str | None]]]:
        names = self._names
        columns: list[list[str | None]] = [[] for _ in names]
        for chunk, _ in self.id_chunks():
            for column, cells in zip(columns, _decoded(chunk, self.shown.texts), strict=True):
                column += cells
        return names, columns

    @overload
    def serialize(  # type: ignore[overload-overlap]
        self, format: Literal["arrow"], destination: None = None, *, prefixes: Mapping[str, str] | None = None
    ) -> bytes: ...

    @overload
    def serialize(
        self, format: str = "json", destination: None = None, *, prefixes: Mapping[str, str] | None = None
    ) -> str: ...

    @overload
    def serialize(
        self, format: str, destination: str | PathLike[str] | BinaryIO, *, prefixes: Mapping[str, str] | None = None
    ) -> None: ...

    def serialize(
        self,
        format: str = "json",
        destination: str | PathLike[str] | BinaryIO | None = None,
        *,
        prefixes: Mapping[str, str] | None = None,
    ) -> str | bytes | None:
        """Return the result as text: json, xml, csv or tsv of a select or ask, ttl or nt of a graph, table of any; or
        as an Arrow IPC stream in bytes: arrow.

        destination: a path or binary file object to write to instead, text in UTF-8, in chunks of rows: however many
        rows there are, their text is never in memory as a whole. prefixes: prefix -> IRI, to shorten IRIs in ttl and
        table. Raises: SettingsError (an unknown format, or one that does not go with this kind of result); DataError (a
        character that XML cannot hold); StorageError (a path that cannot be written, a full disk).
        """
        if destination is not None:
            write(self, format, destination, prefixes)
            return None
        return arrow_stream(self) if format == "arrow" else serialize(self, format, prefixes)

    def head(self, count: int) -> list[list[str | None]]:
        """Return the columns of the first rows (or triples) as canonical texts, None where unbound."""
        return _decoded(self.ids(0, min(count, self._rows)), self.shown.texts)

    def _repr_html_(self) -> str:
        from wukongs.query.output.html import ROWS_MAX, rows_table
        from wukongs.query.output.table_cells import declared_prefixes

        names, count = ((), 0) if self.kind == "ask" else (self._names, len(self))
        return rows_table(names, self.head(ROWS_MAX), count, self._summary(), declared_prefixes(self._text))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._summary()}, snapshot {self.snapshot}>"

    def _summary(self) -> str:
        if self.kind == "ask":
            return f"ask: {str(bool(self.boolean)).lower()}"
        if self.is_graph:
            return f"{self.kind}: {_counted(len(self), 'triple')}"
        names = " ".join(f"?{name}" for name in self._variables)
        return f"select {names}: {_counted(len(self), 'row')}" if names else f"select: {_counted(len(self), 'row')}"


class WindowResult(Result):
    """The report of one firing of a registered query.

    query: the registered name; windows: stream IRI (and IRI of a window with a name of its own) -> (start_ms, end_ms),
    each start exclusive and end inclusive; with several windows over one stream, the stream's IRI has the one that
    reaches back the farthest; end_ms: the time of the firing, so that (query, end_ms) names it; start_ms: where the
    earliest window begins; partial: a window reached back before the slices that are still held; is_stream: whether a
    REGISTER STREAM (or RSP-QL's CONSTRUCT) made it: its triples stand at end_ms; latency_us: from the moment the window
    could be closed until its columns were ready, in microseconds.
    """

    def __init__(
        self,
        kind: Kind,
        variables: tuple[str, ...],
        columns: tuple[Int64Array, ...],
        reader: Utf8Reader,
        snapshot: int,
        boolean: bool | None = None,
        length: int | None = None,
        *,
        query: str,
        start_ms: int,
        end_ms: int,
        windows: Mapping[str, tuple[int, int]],
        partial: bool,
        latency_us: float,
        is_stream: bool = False,
        text: str = "",
    ) -> None:
        super().__init__(kind, variables, columns, reader, snapshot, boolean, length, text=text)
        self.query = query
        self.start_ms = start_ms
        self.end_ms = end_ms
        self.windows = dict(windows)
        self.partial = partial
        self.latency_us = latency_us
        self.is_stream = is_stream

    def arrow(
        self, *, dictionary: bool = False, typed: bool | pyarrow.Schema = False, ids: bool = False
    ) -> pyarrow.Table:
        """Do the same as Result.arrow; the triples of a stream have timestamp_ms beside them, as `Stream.push_arrow`
        takes it."""
        import pyarrow

        table = super().arrow(dictionary=dictionary, typed=typed, ids=ids)
        if not self.is_stream:
            return table
        return table.append_column(_TIME_COLUMN, pyarrow.array([self.end_ms] * len(self), pyarrow.int64()))

    def batches(self) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
        """Do the same as Result.batches, with the columns of arrow()."""
        import pyarrow

        schema, batches = super().batches()
        if not self.is_stream:
            return schema, batches
        schema = schema.append(pyarrow.field(_TIME_COLUMN, pyarrow.int64()))
        return schema, (
            pyarrow.record_batch([*batch.columns, pyarrow.array([self.end_ms] * len(batch), pyarrow.int64())], schema)
            for batch in batches
        )

    def _summary(self) -> str:
        partial = ", partial" if self.partial else ""
        return f"{self.query} ({self.start_ms}, {self.end_ms}] ms{partial}, {super()._summary()}"


def _are_cells(ids: Int64Array, columns: Sequence[Int64Array]) -> BoolArray:
    """Tell of each id whether it is UNBOUND or stands in one of the columns. bool[n]"""
    numbers, firsts, slots = number_rows(ids.reshape(1, -1))
    is_known = ids[firsts] == UNBOUND
    for column in columns:
        found = find_rows(ids.reshape(1, -1), firsts, slots, column.reshape(1, -1))
        is_known[found[found >= 0]] = True
    known: BoolArray = is_known[numbers]
    return known


def _decoded(columns: Sequence[Int64Array], decode: Callable[[Int64Array], list[_Cell]]) -> list[list[_Cell | None]]:
    """Decode the ids of columns of one length: each distinct one once, all in one call; None for UNBOUND."""
    if not columns:
        return []
    length = len(columns[0])
    flat = np.concatenate(columns)
    cells: list[_Cell | None]
    if len(flat) <= _FEW_CELLS:
        numbers = flat.tolist()
        wanted = [number for number in dict.fromkeys(numbers) if number != UNBOUND]
        found: dict[int, _Cell | None] = {UNBOUND: None}
        if wanted:
            found.update(zip(wanted, decode(np.array(wanted, np.int64)), strict=True))
        cells = [found[number] for number in numbers]
    else:
        places, firsts = numbered([flat], len(flat))
        distinct = flat[firsts]
        bound = np.flatnonzero(distinct != UNBOUND)
        decoded = np.full(len(distinct), None, np.object_)
        if len(bound):
            decoded[bound] = decode(distinct if len(bound) == len(distinct) else distinct[bound])
        cells = decoded[places].tolist()
    return (
        [cells[start : start + length] for start in range(0, len(cells), length)] if length else [[] for _ in columns]
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
