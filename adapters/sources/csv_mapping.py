"""The declared mapping from CSV rows to observations (CityBench's shape), read from a TOML file.

delimiters = ","            the characters that end a field; quotes are read when there is only one
header = true               whether the file begins with a line of column names
columns = ["a", "b"]        the columns; with a header, what it has to hold
observation = "http://...#TrafficObservation-{_id}"    the IRI, {column} replaced, a name-based UUID appended
repository = "sensors.nt"   where a sensor's properties stand: S ssn:observes P . P a kind
[time]                      column and start: begin at the first row at or after a time;
                            every_ms: one row every n ms, from 0. Without every_ms, the column is the event time (UTC)
[[skip]]                    column, values: rows that are left out
[lookup.NAME]               a number from another CSV file: file, key, value (its columns), by (the column of ours)
[[observation_of]]          kind or property, value and datatype, or [[observation_of.node]] for a blank node;
                            zero_divisor: the value where a division by 0 would be made; extra: predicate-IRI pairs
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from wukongs.adapters.sources.expressions import Expression, Value, compile_expression, number
from wukongs.errors import DataError, SettingsError
from wukongs.settings.toml_reader import TableReader, read_toml

XSD = "http://www.w3.org/2001/XMLSchema#"
SSN = "http://purl.oclc.org/NET/ssnx/ssn#"
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """A literal that is computed from a row: its predicate, expression and datatype IRI."""

    predicate: str
    value: Expression
    datatype: str
    zero_divisor: Value | None


@dataclass(frozen=True, slots=True)
class ObservationSpec:
    """One observation of a row: its property by IRI or by kind; values of its own, or of a blank node that it has."""

    kind: str | None
    property: str | None
    extra: tuple[tuple[str, str], ...]
    value: ValueSpec | None
    node: tuple[ValueSpec, ...]


@dataclass(frozen=True, slots=True)
class TimeSpec:
    """When a row happens: one row every every_ms from 0, or the time in a column; from the first row at start_ms on."""

    column: str | None
    start_ms: int | None
    every_ms: int | None


@dataclass(frozen=True, slots=True)
class CsvMapping:
    """A mapping as its file declares it; lookups: name -> (the column to look up, key -> number of the other file)."""

    file: str
    delimiters: str
    header: bool
    columns: tuple[str, ...]
    observation: str
    repository: str | None
    time: TimeSpec
    skip: tuple[tuple[str, tuple[str, ...]], ...]
    lookups: dict[str, tuple[str, dict[str, Value]]]
    observations: tuple[ObservationSpec, ...]


def load_mapping(path: str | Path) -> CsvMapping:
    """Read a mapping. Raises: SettingsError (a key or value that will not do), DataError (a lookup file)."""
    top = read_toml(path)
    columns = top.texts("columns")
    if not columns or len(set(columns)) != len(columns):
        raise top.error("columns", "the names of the columns, each once", repr(columns))
    lookups = _lookups(top.table("lookup"), columns)
    names = dict.fromkeys([*columns, *lookups])
    mapping = CsvMapping(
        file=top.file,
        delimiters=top.optional_text("delimiters") or ",",
        header=top.flag("header", True),
        columns=columns,
        observation=top.text("observation"),
        repository=top.optional_path("repository"),
        time=_time(top.table("time"), columns),
        skip=top.tables("skip", lambda reader: (_column(reader, "column", columns), reader.texts("values"))),
        lookups=lookups,
        observations=top.tables("observation_of", lambda reader: _observation(reader, names)),
    )
    top.done()
    if not mapping.observations:
        raise top.error("observation_of", "at least one [[observation_of]]", "none")
    _check_template(top, mapping)
    return mapping


def time_of(text: str) -> int | None:
    """Return the milliseconds since 1970 (UTC where no zone is given) of an ISO date and time, None if it is none."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def properties_of(mapping: CsvMapping, sensor: str) -> tuple[str, ...]:
    """Return the property IRI of each observation, from the mapping or else from the sensor repository.

    Raises: SettingsError (no repository, or no such property there); DataError (a repository that is no RDF)."""
    known: dict[str, str] = {}
    if any(one.property is None for one in mapping.observations):
        known = _observed_kinds(mapping, sensor)
    found = []
    for one in mapping.observations:
        iri = one.property or known.get(one.kind or "")
        if iri is None:
            raise SettingsError(
                f"{mapping.file}: sensor {sensor} has no property of kind {one.kind} in "
                f'{mapping.repository or "any repository"}. List it as property = "IRI", or give another sensor'
            )
        found.append(iri)
    return tuple(found)


def _observed_kinds(mapping: CsvMapping, sensor: str) -> dict[str, str]:
    """Return kind IRI -> property IRI of what a sensor observes."""
    if mapping.repository is None:
        return {}
    observed, kinds = _read_repository(mapping.repository)
    return {kind: iri for iri in sorted(observed.get(sensor, ())) for kind in kinds.get(iri, ())}


@lru_cache(maxsize=8)
def _read_repository(path: str) -> tuple[dict[str, set[str]], dict[str, list[str]]]:
    """Return sensor -> the properties that it observes, and resource -> its types."""
    import pyoxigraph

    name, data = Path(path).name, Path(path).read_bytes()
    if name.endswith(".gz"):
        import gzip

        name, data = name.removesuffix(".gz"), gzip.decompress(data)
    format_ = pyoxigraph.RdfFormat.from_extension(name.rpartition(".")[2]) or pyoxigraph.RdfFormat.TURTLE
    observed: dict[str, set[str]] = {}
    kinds: dict[str, list[str]] = {}
    try:
        for quad in pyoxigraph.parse(data, format=format_):
            predicate = quad.predicate.value
            if predicate == SSN + "observes":
                observed.setdefault(_name(quad.subject), set()).add(_name(quad.object))
            elif predicate == RDF_TYPE:
                kinds.setdefault(_name(quad.subject), []).append(_name(quad.object))
    except (SyntaxError, ValueError) as error:
        raise DataError(f"cannot be read as RDF ({error})", path) from None
    return observed, kinds


def _name(term: object) -> str:
    """Return an IRI (or a blank node's label) as text; something that no IRI equals for a triple term."""
    return str(getattr(term, "value", ""))


def _time(reader: TableReader, columns: tuple[str, ...]) -> TimeSpec:
    column = reader.optional_text("column")
    if column is not None and column not in columns:
        raise reader.error("column", "one of the columns " + ", ".join(columns), repr(column))
    start = reader.optional_text("start")
    start_ms = None if start is None else time_of(start)
    if start is not None and (start_ms is None or column is None):
        raise reader.error("start", "an ISO date and time, and the column that it is compared with", repr(start))
    every_ms = reader.integer("every_ms", None, low=1)
    if column is None and every_ms is None:
        raise reader.error("every_ms", "every_ms or the column of the event time", "neither")
    reader.done()
    return TimeSpec(column, start_ms, every_ms)


def _column(reader: TableReader, key: str, columns: tuple[str, ...]) -> str:
    return reader.choice(key, columns)


def _lookups(reader: TableReader, columns: tuple[str, ...]) -> dict[str, tuple[str, dict[str, Value]]]:
    lookups = {}
    for name in reader.names():
        table = reader.table(name)
        by = _column(table, "by", columns)
        lookups[name] = (by, _read_lookup(table.path("file"), table.text("key"), table.text("value")))
        table.done()
    reader.done()
    return lookups


def _read_lookup(path: str, key: str, value: str) -> dict[str, Value]:
    import gzip

    opener = gzip.open if path.endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            missing = {key, value} - set(rows.fieldnames or ())
            if missing:
                raise DataError(f"expected the columns {key} and {value}, found {rows.fieldnames}", path, 1)
            numbers = ((str(row[key]), number(str(row[value]))) for row in rows)
            return {name: found for name, found in numbers if found is not None}
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read as CSV ({error})", path) from None


def _observation(reader: TableReader, names: dict[str, object]) -> ObservationSpec:
    kind, iri = reader.optional_text("kind"), reader.optional_text("property")
    if kind is None and iri is None:
        raise reader.error("kind", "the kind of the observed property, or its IRI as property", "neither")
    pairs = reader.tables("extra", lambda one: (one.text("predicate"), one.text("object")))
    node = reader.tables("node", lambda one: _value(one, names, one.text("predicate")))
    has_value = reader.has("value")
    if has_value and node:
        raise reader.error("node", "a value or a node", "both")
    value = _value(reader, names, "http://purl.oclc.org/NET/sao/hasValue") if has_value else None
    return ObservationSpec(kind, iri, pairs, value, node)


def _value(reader: TableReader, names: dict[str, object], predicate: str) -> ValueSpec:
    expression = compile_expression(reader.text("value"), names, f"{reader.file}, value")
    datatype = reader.optional_text("datatype") or XSD + "double"
    if datatype not in (XSD + "double", XSD + "int", XSD + "integer", XSD + "decimal"):
        raise reader.error("datatype", "xsd:double, int, integer or decimal, as a whole IRI", repr(datatype))
    zero = reader.take("zero_divisor")
    if zero is not None and type(zero) not in (int, float):
        raise reader.error("zero_divisor", "a number", repr(zero))
    return ValueSpec(predicate, expression, datatype, zero)


def _check_template(top: TableReader, mapping: CsvMapping) -> None:
    try:
        iri = mapping.observation.format_map(dict.fromkeys(mapping.columns, "0"))
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        raise top.error("observation", "an IRI with {columns}", f"{mapping.observation!r} ({error!r})") from None
    if not iri.partition(":")[0].isalpha() or any(sign in iri for sign in '<>" {}|\\^`'):
        raise top.error("observation", "an IRI with {columns}", repr(mapping.observation))
