"""A mapping says which triples a row of a table makes, and when the row happens. It is a TOML file (docs/mappings.md).

    subject = "ex:trip/{id}"            # default of the triples below

    [prefixes]
    ex = "http://example.org/"

    [time]
    column = "pickup"

    [[triple]]
    predicate = "ex:fare"
    value = "{fare}"
    datatype = "xsd:decimal"

A cell is named by its column's header, a JSON value by its path. Nothing here reads data: `Lookup` files are opened by
lookups.py, rows by the sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypeVar, cast, get_args

from wukongs.adapters.mapping.expressions import Expression, Value, compile_expression
from wukongs.adapters.mapping.numbers import NumberFormat
from wukongs.adapters.mapping.templates import Kind, TermMap, constant_iri, parse_template, resource
from wukongs.adapters.mapping.times import Ambiguous, TimeFormat, time_of
from wukongs.settings.toml_reader import TableReader, read_toml

T = TypeVar("T")
XSD = "http://www.w3.org/2001/XMLSchema#"
PREFIXES = {
    "xsd": XSD,
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
}
ROW, FILE = "_row", "_file"
"""Names that every row has: its number in the file, from 0, and the file's name."""

ITERATION = "_iteration"
"""A name that rows of an RML mapping have: the number of the iteration in its row, from 0."""

MESSAGE_TIME = "_time"
"""A column that messages have, unlike files: when the message came, in ms since 1970."""

ISO = TimeFormat()
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")

IfEmpty = Literal["skip", "bad"]
NumberType = Literal["double", "integer", "decimal"]


@dataclass(frozen=True, slots=True)
class Condition:
    """A row passes if its cell is one of the values (None: if it is not empty), or, negated, if it does not."""

    column: str
    values: tuple[str, ...] | None
    is_negated: bool


@dataclass(frozen=True, slots=True)
class Join:
    """Makes the subjects that another file's records have: of those records whose texts are equal to ours.

    file: where the records are.
    kind: how they are written.
    iterator: JSON path of what a record's iterations are, of JSON.
    subject: the term that one of them makes.
    conditions: pairs of terms, ours and theirs, all of which have to be equal."""

    file: str
    kind: Literal["csv", "json"]
    iterator: str
    subject: TermMap
    conditions: tuple[tuple[TermMap, TermMap], ...]

    @property
    def kind_of_term(self) -> Kind:
        return self.subject.kind

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all cells that it reads of our records."""
        return tuple(name for own, _ in self.conditions for name in own.names)

    @property
    def names_there(self) -> tuple[str, ...]:
        """The names of all cells that it reads of the other file's records, each once."""
        names = [*self.subject.names, *(name for _, theirs in self.conditions for name in theirs.names)]
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class TripleMap:
    """One triple of each row that passes the conditions; of each element, where cells are lists.

    if_empty: whether an empty cell leaves the triple out, or makes the row a bad one.
    iterator: JSON path of the nodes for each of which terms are made; lists then combine, each element with each.
    "": of rows that have no such nodes. None: lists go side by side."""

    subject: TermMap
    predicate: TermMap
    object: TermMap | Join
    graph: TermMap | None = None
    conditions: tuple[Condition, ...] = ()
    if_empty: IfEmpty = "skip"
    iterator: str | None = None

    @property
    def terms(self) -> tuple[TermMap | Join, ...]:
        """Its terms in the order of an N-Quads line."""
        found = (self.subject, self.predicate, self.object)
        return found if self.graph is None else (*found, self.graph)


@dataclass(frozen=True, slots=True)
class TimeMap:
    """When a row happens: the time in a column, or row k at k * every_ms. start_ms: rows before it are left out; with
    every_ms they are not counted."""

    column: str | None
    format: TimeFormat = ISO
    start_ms: int | None = None
    every_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Computed:
    """A column of numbers by an expression, written as type says, or of xsd:dateTime by a time in another column.

    zero_divisor: the value where a division by 0 would be made (None: such a row is bad)."""

    name: str
    number: Expression | None = None
    type: NumberType | None = None
    zero_divisor: Value | None = None
    time: str | None = None
    format: TimeFormat = ISO


@dataclass(frozen=True, slots=True)
class Lookup:
    """A column that is looked up in another file, by one of ours: in a CSV file by the names of two columns, in an RDF
    file by a SELECT query of two variables. A key that is not there gives an empty cell."""

    name: str
    file: str
    by: str
    key: str | None = None
    value: str | None = None
    query: str | None = None


@dataclass(frozen=True, slots=True)
class Csv:
    """How a CSV file is written. Each character of delimiters ends a field. quote "": fields are not quoted.

    columns: the names of the columns, for files without a header; for live sources with one, those that are read."""

    delimiters: str = ","
    quote: str = '"'
    header: bool = True
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mapping:
    """Everything that a mapping says. empty: texts that stand for an empty cell; split: column -> what divides a cell
    into a list; csv: None for that of the file's kind; number: how numbers are written in cells that have no type;
    numbers: how they are in the cells of a column; records: JSON path of the nodes of a document that are its records
    (None: the elements of an array, or all of it); notes: what a user should know of it before it runs."""

    file: str
    triples: tuple[TripleMap, ...]
    time: TimeMap | None = None
    conditions: tuple[Condition, ...] = ()
    empty: tuple[str, ...] = ("",)
    split: tuple[tuple[str, str], ...] = ()
    computed: tuple[Computed, ...] = ()
    lookups: tuple[Lookup, ...] = ()
    csv: Csv | None = None
    number: NumberFormat | None = None
    numbers: tuple[tuple[str, NumberFormat], ...] = ()
    records: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def typed(self) -> frozenset[str]:
        """The columns whose texts have the datatypes that the source gives them."""
        terms = (term for triple in self.triples for term in triple.terms)
        return frozenset(term.names[0] for term in terms if isinstance(term, TermMap) and term.is_natural)

    @property
    def iterators(self) -> tuple[str, ...]:
        """The JSON paths of iterators, each once."""
        return tuple(dict.fromkeys(triple.iterator for triple in self.triples if triple.iterator))

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it reads, each once."""
        names: list[str] = [condition.column for condition in self.conditions]
        for triple in self.triples:
            names += [condition.column for condition in triple.conditions]
            names += [name for term in triple.terms for name in term.names]
        names += [lookup.by for lookup in self.lookups]
        for one in self.computed:
            names += one.number.columns if one.number is not None else [cast(str, one.time)]
        if self.time is not None and self.time.column is not None:
            names.append(self.time.column)
        return tuple(dict.fromkeys(names))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that it reads; constants of the source are among them."""
        made = self.made
        return tuple(name for name in self.names if name not in made)

    @property
    def made(self) -> frozenset[str]:
        """The columns that are not of the data."""
        names = [ROW, FILE, *(one.name for one in self.computed), *(one.name for one in self.lookups)]
        is_iterated = any(triple.iterator is not None for triple in self.triples)
        return frozenset([*names, ITERATION] if is_iterated else names)


def load_mapping(path: str | Path) -> Mapping:
    """Read a mapping from its own file. Raises: SettingsError (a key or value that will not do: where, and why)."""
    reader = read_toml(path)
    mapping = mapping_in(reader)
    reader.done()
    return mapping


def mapping_in(reader: TableReader) -> Mapping:
    """Read a mapping from a table. Raises: SettingsError."""
    own = reader.table("prefixes")
    prefixes = dict(PREFIXES)
    for name in own.names():
        prefixes[name] = own.text(name)
    subject = reader.optional_text("subject")
    if subject is None and (near := get_close_matches("subject", reader.names(), 1)):
        raise reader.error(near[0], "the key subject", f"the unknown key {near[0]!r}")
    graph = reader.optional_text("graph")
    computed = _computed(reader.table("column"))
    mapping = Mapping(
        file=reader.file,
        triples=reader.tables("triple", lambda one: _triple(one, prefixes, subject, graph)),
        time=time_in(reader, "time"),
        conditions=_conditions(reader),
        empty=reader.texts("empty") if reader.has("empty") else ("",),
        split=tuple(_texts_by_name(reader.table("split"))),
        computed=computed,
        lookups=_lookups(reader.table("lookup"), [one.name for one in computed]),
        csv=_csv(reader.table("csv")) if reader.has("csv") else None,
    )
    if not mapping.triples:
        raise reader.error("triple", "at least one [[triple]]", "none")
    check_time(reader, mapping.time, mapping.made)
    if not reader.has("number"):
        return mapping
    table = reader.table("number")
    numbers = _numbers(table.table("column"), mapping)
    mapping = replace(mapping, number=_number_format(table), numbers=numbers)
    table.done()
    return mapping


def check_time(reader: TableReader, time: TimeMap | None, made: Collection[str]) -> None:
    """Raise SettingsError for a time in a column that is not of the data: a time is read before others are made."""
    if time is not None and time.column in made:
        raise reader.error("time.column", "a column of the data", f"{time.column!r}, which is made from others")


def time_in(reader: TableReader, key: str) -> TimeMap | None:
    """Read a table that says when rows happen; None without it. Raises: SettingsError."""
    if not reader.has(key):
        return None
    table = reader.table(key)
    column = table.optional_text("column")
    format = time_format_in(table)
    start = table.optional_text("start")
    start_ms = None if start is None else time_of(start, replace(format, text="iso"))
    if start is not None and (start_ms is None or column is None):
        raise table.error("start", "an ISO date and time, and the column that it is compared with", repr(start))
    every_ms = table.integer("every_ms", None, low=1)
    if column is None and every_ms is None:
        raise table.error("column", "the column of the event time, or every_ms", "neither")
    table.done()
    return TimeMap(column, format, start_ms, every_ms)


def time_format_in(table: TableReader) -> TimeFormat:
    """Read the keys format, zone and ambiguous. Raises: SettingsError."""
    text = table.optional_text("format") or "iso"
    zone = table.optional_text("zone") or "UTC"
    _checked(table, "format", lambda: TimeFormat(text))
    _checked(table, "zone", lambda: TimeFormat(text, zone))
    ambiguous = cast(Ambiguous, table.choice("ambiguous", get_args(Ambiguous), "first"))
    return TimeFormat(text, zone, ambiguous)


def _checked(table: TableReader, key: str, make: Callable[[], T]) -> T:
    """Make a value of a key; an error is said with its place."""
    made: list[T] = []
    table.checked(key, "", lambda _: made.append(make()))
    return made[0]


def _triple(table: TableReader, prefixes: dict[str, str], subject: str | None, graph: str | None) -> TripleMap:
    subject = table.optional_text("subject") or subject
    if subject is None:
        raise table.error("subject", "a subject here, or one for all triples at the top", "neither")
    graph = table.optional_text("graph") or graph
    predicate = table.text("predicate")
    return TripleMap(
        subject=_checked(table, "subject", lambda: resource(subject, prefixes)),
        predicate=_predicate(table, predicate, prefixes),
        object=_object(table, prefixes),
        graph=None if graph is None else _checked(table, "graph", lambda: resource(graph, prefixes)),
        conditions=_conditions(table),
        if_empty="bad" if table.choice("if_empty", ("skip", "bad"), "skip") == "bad" else "skip",
    )


def _predicate(table: TableReader, text: str, prefixes: dict[str, str]) -> TermMap:
    term = _checked(table, "predicate", lambda: resource(text, prefixes))
    if term.kind != "iri":
        raise table.error("predicate", "an IRI", repr(text))
    return term


def _object(table: TableReader, prefixes: dict[str, str]) -> TermMap:
    object_, value = table.optional_text("object"), table.take("value")
    if (object_ is None) == (value is None):
        raise table.error(
            "object", "an object (an IRI or _:label) or a value (a literal)", "both" if value else "neither"
        )
    datatype, language = table.optional_text("datatype"), table.optional_text("language")
    if object_ is not None:
        if datatype or language:
            raise table.error("datatype", "a datatype or language of a value", "one of an object")
        return _checked(table, "object", lambda: resource(object_, prefixes))
    if not isinstance(value, str):
        raise table.error("value", "a text such as '{fare}'", repr(value))
    if datatype and language:
        raise table.error("language", "a datatype or a language", "both")
    iri = None
    if datatype:
        term = _checked(table, "datatype", lambda: resource(datatype, prefixes))
        if term.kind != "iri" or term.names:
            raise table.error("datatype", "an IRI", repr(datatype))
        iri = term.template.text
    template = _checked(table, "value", lambda: parse_template(value))
    spoken = None if language is None else _checked(table, "language", lambda: parse_template(language))
    if spoken is not None and not spoken.names and not _LANGUAGE.fullmatch(spoken.text):
        raise table.error("language", "a language tag such as en or de-AT, or a cell", repr(spoken.text))
    return TermMap("literal", template, None if iri is None else constant_iri(iri), spoken)


def _conditions(table: TableReader) -> tuple[Condition, ...]:
    """Read `when` and `unless`: the name of a column that is not empty, or a table of column = value or values."""
    found: list[Condition] = []
    for key, is_negated in (("when", False), ("unless", True)):
        value = table.take(key)
        if value is None:
            continue
        if isinstance(value, str) and value:
            found.append(Condition(value, None, is_negated))
            continue
        if not isinstance(value, dict) or not value:
            raise table.error(key, "the name of a column, or { column = [values] }", repr(value))
        for column, texts in value.items():
            texts = [texts] if isinstance(texts, str) else texts
            if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
                raise table.error(key, "texts that the cell may be", repr(texts))
            found.append(Condition(column, tuple(texts), is_negated))
    return tuple(found)


def _texts_by_name(table: TableReader) -> list[tuple[str, str]]:
    return [(name, table.text(name)) for name in table.names()]


def _computed(columns: TableReader) -> tuple[Computed, ...]:
    found = []
    names = columns.names()
    for at, name in enumerate(names):
        table = columns.table(name)
        text, time = table.optional_text("number"), table.optional_text("time")
        if (text is None) == (time is None):
            raise table.error("number", "number (an expression) or time (a column)", "both" if text else "neither")
        if time is not None:
            _check_is_before(table, "time", (time,), names[at:])
            format = time_format_in(table)
            if format.ambiguous == "infer":
                raise table.error("ambiguous", "first or second: only the event time follows an order", "'infer'")
            found.append(Computed(name, time=time, format=format))
        else:
            zero = table.take("zero_divisor")
            if zero is not None and type(zero) not in (int, float):
                raise table.error("zero_divisor", "a number", repr(zero))
            type_ = table.choice("type", ("", "double", "integer", "decimal"), "")
            expression = compile_expression(cast(str, text), f"{table.file}, column.{name}.number")
            _check_is_before(table, "number", expression.columns, names[at:])
            found.append(Computed(name, expression, cast(NumberType, type_) if type_ else None, zero))
        table.done()
    return tuple(found)


def _check_is_before(table: TableReader, key: str, columns: Collection[str], later: Collection[str]) -> None:
    """Raise SettingsError for a column that is made of itself, or of one that is made behind it."""
    for name in columns:
        if name in later:
            raise table.error(key, "columns of the data, or ones that are made before it", repr(name))


def _number_format(table: TableReader) -> NumberFormat | None:
    """Read the keys decimal and thousands; None without them."""
    if not (table.has("decimal") or table.has("thousands")):
        return None
    decimal, thousands = table.optional_text("decimal") or ".", table.optional_text("thousands") or ""
    _checked(table, "decimal", lambda: NumberFormat(decimal))
    return _checked(table, "thousands", lambda: NumberFormat(decimal, thousands))


def _numbers(columns: TableReader, mapping: Mapping) -> tuple[tuple[str, NumberFormat], ...]:
    known = (*mapping.columns, *(lookup.name for lookup in mapping.lookups))
    found = []
    for name in columns.names():
        if name not in known:
            raise columns.error(name, f"a column that the mapping reads ({', '.join(known)})", repr(name))
        table = columns.table(name)
        found.append((name, _number_format(table) or NumberFormat()))
        table.done()
    return tuple(found)


def _lookups(tables: TableReader, computed: Collection[str]) -> tuple[Lookup, ...]:
    """Read the lookups; they come before computed columns."""
    found = []
    names = tables.names()
    for at, name in enumerate(names):
        table = tables.table(name)
        lookup = Lookup(
            name=name,
            file=table.path("file"),
            by=table.text("by"),
            key=table.optional_text("key"),
            value=table.optional_text("value"),
            query=table.optional_text("query"),
        )
        if (lookup.query is None) != (lookup.key is not None and lookup.value is not None):
            raise table.error(
                "query", "key and value (columns of a CSV file), or a query of an RDF file", "not one of these"
            )
        _check_is_before(table, "by", (lookup.by,), (*names[at:], *computed))
        table.done()
        found.append(lookup)
    return tuple(found)


def _csv(table: TableReader) -> Csv:
    delimiters = table.optional_text("delimiter") or ","
    quote = table.take("quote")
    quote = '"' if quote is None else quote
    if not isinstance(quote, str) or len(quote) > 1 or not quote.isascii() or (quote in delimiters and quote):
        raise table.error("quote", "one character, or none", repr(quote))
    if not delimiters.isascii() or any(sign in "\r\n" for sign in delimiters):
        raise table.error("delimiter", "ASCII characters, each of which ends a field", repr(delimiters))
    header, columns = table.flag("header", True), table.texts("columns")
    if not header and not columns:
        raise table.error("columns", "the names of the columns, since there is no header", "none")
    if header and columns:
        raise table.error("columns", "no columns, since the header names them (or header = false)", repr(columns))
    if len(set(columns)) != len(columns):
        raise table.error("columns", "each name once", repr(columns))
    table.done()
    return Csv(delimiters, quote, header, columns)
