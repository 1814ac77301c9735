"""Triples by iterations, as RML has them: a row has iterations; in each of them a term has any number of values.

An iteration makes one triple of each combination of a subject, a predicate, an object and a graph. A term of several
cells has one value of each combination of theirs. The datatype of a value stays with it.

Source: RML-Core, "The Output Dataset" (each combination), "Template" (the product of the values in it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.adapters.mapping.arrow_cells import without_empty
from wukongs.adapters.mapping.json_paths import is_json_path, parse_json_path
from wukongs.adapters.mapping.lookups import read_joined
from wukongs.adapters.mapping.mapping import ITERATION, XSD, Join, TripleMap
from wukongs.adapters.mapping.numbers import NumberFormat
from wukongs.adapters.mapping.tables import Table
from wukongs.adapters.mapping.templates import TermMap
from wukongs.adapters.mapping.terms import Rows, term_texts
from wukongs.errors import DataError
from wukongs.query.terms.arrow_texts import TEXT
from wukongs.store.dtypes import Int64Array

DEFAULT_GRAPHS = ("<http://w3id.org/rml/defaultGraph>", "<http://www.w3.org/ns/r2rml#defaultGraph>")
"""The graphs that stand for the default graph (RML-Core, "Assigning Triples to Named Graphs"; R2RML, section 9)."""

Cells = Callable[[str], pa.Array]
_EMPTY = pa.array([""], TEXT)


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """The values of one name: those of iteration i are texts[starts[i]:starts[i] + counts[i]].

    texts : large_string[n_values]
    types: the datatype's IRI of each value, of names that have types.
    starts, counts : int64[n_iterations]"""

    texts: pa.Array
    types: pa.Array | None
    starts: Int64Array
    counts: Int64Array


class Iterations:
    """The iterations of a table's rows under one iterator.

    rows : int64[n_iterations], ascending, the row of each."""

    def __init__(self, table: Table, iterator: str, cells: Cells) -> None:
        """cells: the column of a name, empty cells made null."""
        self._table, self._cells = table, cells
        self._depth = parse_json_path(iterator).count(None) if iterator else 0
        self._prefix = iterator
        per_row = table.iterations[iterator] if self._depth else np.ones(table.row_count, np.int64)
        self.rows: Int64Array = np.repeat(np.arange(table.row_count, dtype=np.int64), per_row)
        self._within: Int64Array = _places(per_row)
        self._known: dict[str, Values] = {}
        self._made: dict[TermMap, Made] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, name: str) -> Values:
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def make_texts(self, term: TermMap, rows: Rows, wanted: Int64Array) -> Made:
        """Return the texts that a term makes in wanted iterations."""
        if len(wanted) < len(self):
            return _make(term, self, rows, wanted)
        if term not in self._made:  # the subject of several triples is made once
            self._made[term] = _make(term, self, rows, wanted)
        return self._made[term]

    def _read(self, name: str) -> Values:
        if name == ITERATION:
            return _singles(pa.array(self._within).cast(TEXT))
        cells, types = self._cells(name), self._table.types.get(name)
        if not pa.types.is_large_list(cells.type):  # a cell of the row: each of its iterations has it
            return _singles(
                _taken(cells, self.rows), _taken(types, self.rows) if isinstance(types, pa.Array) else types
            )
        if not is_json_path(name):
            return _values(_taken(cells, self.rows), types if isinstance(types, str) else None)
        if isinstance(types, pa.Array):
            for _ in range(self._depth):
                types = types.flatten()
        for _ in range(self._depth):
            cells = cells.flatten()
        if len(cells) != len(self):
            raise DataError(f"expected one value of {name} per node of {self._prefix}, found {len(cells)}")
        return _values(cells, types)


def _singles(cells: pa.Array, types: pa.Array | str | None = None) -> Values:
    is_there = np.asarray(pc.is_valid(cells)).astype(np.int64)
    types = types if isinstance(types, pa.Array) else _repeated(types, len(cells))
    return Values(cells, types, np.arange(len(cells), dtype=np.int64), is_there)


def _values(cells: pa.Array, types: pa.Array | str | None) -> Values:
    """Return the values of iterations whose cells are texts or lists, of any depth, of them."""
    owners = np.arange(len(cells), dtype=np.int64)
    count = len(cells)
    while pa.types.is_large_list(cells.type):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(cells), 0)).astype(np.int64)
        owners, cells = np.repeat(owners, lengths), cells.flatten()
        types = types.flatten() if isinstance(types, pa.Array) and pa.types.is_large_list(types.type) else types
    is_there = pc.is_valid(cells)
    owners, cells = owners[np.asarray(is_there)], cells.filter(is_there)
    types = types.filter(is_there) if isinstance(types, pa.Array) else _repeated(types, len(cells))
    counts = np.bincount(owners, minlength=count).astype(np.int64)
    return Values(cells, types, _starts(counts), counts)


def _repeated(datatype: str | None, count: int) -> pa.Array | None:
    return None if datatype is None else pa.repeat(pa.scalar(datatype, TEXT), count)


def _starts(counts: Int64Array) -> Int64Array:
    return np.cumsum(counts) - counts


def _places(counts: Int64Array) -> Int64Array:
    """Return 0, 1, 2, ... for each of the counts, one after the other."""
    return np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(_starts(counts), counts)


class _Combinations:
    """Combinations that grow by one choice after another.

    owners : int64[n], ascending, the iteration of each; picks: the place of what was chosen, choice by choice."""

    def __init__(self, owners: Int64Array) -> None:
        self.owners, self.picks = owners, list[Int64Array]()

    def choose(self, starts: Int64Array, counts: Int64Array) -> None:
        """Make one combination of each of an iteration's entries, starts[i]:starts[i] + counts[i]."""
        own = counts[self.owners]
        first = starts[self.owners]
        if not (own == 1).all():
            self.picks = [np.repeat(one, own) for one in self.picks]
            self.owners = np.repeat(self.owners, own)
            first = np.repeat(first, own) + _places(own)
        self.picks.append(first)


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """The texts that a term makes: of iteration owners[k] is texts[k]. owners : int64[n], ascending."""

    texts: pa.Array
    owners: Int64Array


def _make(term: TermMap, iterations: Iterations, rows: Rows, wanted: Int64Array) -> Made:
    """Return what a term makes in wanted iterations."""
    combined = _Combinations(wanted)
    datatype, language = term.datatype, term.language
    parts = (term.template.names, datatype.names if datatype else (), language.names if language else ())
    for name in (name for part in parts for name in part):
        values = iterations.values(name)
        combined.choose(values.starts, values.counts)
    picks = iter(combined.picks)
    cells, of_datatype, of_language = (
        {name: _taken(iterations.values(name).texts, next(picks)) for name in part} for part in parts
    )
    of_rows = iterations.rows[combined.owners]
    every = np.ones(len(of_rows), bool)
    datatypes: pa.Array | pa.Scalar | None = None
    if term.is_natural:
        types = iterations.values(term.template.names[0]).types
        datatypes = pa.scalar(XSD + "string", TEXT) if types is None else _taken(types, combined.picks[0])
    elif datatype is not None and datatype.names:
        iris = term_texts(datatype, of_datatype, rows, of_rows, every)
        datatypes = pc.utf8_slice_codeunits(iris, 1, -1)
    texts = term_texts(term, cells, rows, of_rows, every, datatypes, of_language)
    if not isinstance(texts, pa.Array):
        texts = pa.repeat(texts, len(of_rows))
    return Made(texts, combined.owners)


def _taken(cells: pa.Array, places: Int64Array) -> pa.Array:
    if len(cells) == len(places) and (places == np.arange(len(places))).all():  # each once, the usual case
        return cells
    return cells.take(pa.array(places))


class Joined:
    """The subjects of another file's records, by the texts that a join compares."""

    def __init__(self, join: Join) -> None:
        """Raises: DataError (a file that cannot be read, or has a bad record)."""
        self._join = join
        table = read_joined(join)
        rows = _Plain(table)
        iterations = Iterations(table, join.iterator, lambda name: without_empty(table.names[name], _EMPTY))
        wanted = np.arange(len(iterations), dtype=np.int64)
        for name in join.names_there:
            wanted = wanted[iterations.values(name).counts[wanted] > 0]
        terms = (join.subject, *(theirs for _, theirs in join.conditions))
        made = [iterations.make_texts(term, rows, wanted) for term in terms]
        texts, _ = _product(made, wanted)
        if table.bad:
            row, (_, reason) = min(table.bad.items())
            raise DataError(f"the records of a join have to be good ones: {reason}", join.file, row + 1)
        keys = _keys(texts[1:])
        order = pc.sort_indices(keys) if len(keys) else pa.array([], pa.uint64())
        subjects, keys = texts[0].take(order), keys.take(order)
        self._subjects, self._keys = pc.unique(subjects), pc.unique(keys)
        self._numbers = np.asarray(pc.index_in(subjects, self._subjects)).astype(np.int64)
        places = pc.index_in(keys, self._keys)
        self._counts = np.bincount(np.asarray(places).astype(np.int64), minlength=len(self._keys)).astype(np.int64)

    def find_subjects(self, iterations: Iterations, rows: Rows, wanted: Int64Array) -> Made:
        """Return the subjects that go with wanted iterations, each once."""
        own = [iterations.make_texts(ours, rows, wanted) for ours, _ in self._join.conditions]
        texts, owners = _product(own, wanted)
        found = pc.index_in(_keys(texts), self._keys)
        is_found = np.asarray(pc.is_valid(found))
        places, owners = np.asarray(found.filter(pa.array(is_found))).astype(np.int64), owners[is_found]
        counts = self._counts[places]
        subjects = np.repeat(_starts(self._counts)[places], counts) + _places(counts)
        pairs = np.unique(np.stack([np.repeat(owners, counts), self._numbers[subjects]]), axis=1)
        return Made(_taken(self._subjects, pairs[1]), pairs[0])


class _Plain:
    """A table whose numbers are written plainly."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def number_format(self, name: str) -> NumberFormat | None:
        return None


def _keys(texts: Sequence[pa.Array]) -> pa.Array:
    """Return one text of each entry, equal where all of these are equal."""
    parts = [part for text in texts for part in (pc.utf8_length(text).cast(TEXT), text)]
    return pc.binary_join_element_wise(*parts, pa.scalar(" ", TEXT))


def _product(made: Sequence[Made], wanted: Int64Array) -> tuple[list[pa.Array], Int64Array]:
    """Return each combination of what several terms make in the same iteration, and its iteration."""
    combined = _Combinations(wanted)
    size = int(wanted[-1]) + 1 if len(wanted) else 0
    for one in made:
        counts = np.bincount(one.owners, minlength=size).astype(np.int64)
        combined.choose(_starts(counts), counts)
    return [_taken(one.texts, picks) for one, picks in zip(made, combined.picks, strict=True)], combined.owners


def iteration_lines(
    triple: TripleMap, iterations: Iterations, rows: Rows, joins: dict[Join, Joined]
) -> tuple[pa.Array, Int64Array]:
    """Return the lines of one triple map, and their rows."""
    wanted = np.arange(len(iterations), dtype=np.int64)
    for name in dict.fromkeys(name for term in triple.terms for name in term.names):
        wanted = wanted[iterations.values(name).counts[wanted] > 0]
    joined: Made | None = None
    if isinstance(triple.object, Join):
        joined = joins[triple.object].find_subjects(iterations, rows, wanted)
        wanted = np.unique(joined.owners)
    made = [iterations.make_texts(term, rows, wanted) if isinstance(term, TermMap) else joined for term in triple.terms]
    texts, owners = _product([one for one in made if one is not None], wanted)
    if triple.graph is not None:
        is_default = pc.is_in(texts[-1], pa.array(DEFAULT_GRAPHS, TEXT))
        *texts, object_, named = texts
        in_graph = pc.binary_join_element_wise(object_, named, pa.scalar(" ", TEXT))
        texts.append(pc.if_else(is_default, object_, in_graph))
    lines = pc.binary_join_element_wise(*texts, pa.scalar(".\n", TEXT), pa.scalar(" ", TEXT))
    return lines, iterations.rows[owners]
