"""Columns of ids as Arrow arrays of values: numbers, truths, times, strings, IRIs.

* The terms of a column decide its type: if all are of one kind and all values fit into the Arrow type, it has that
  type. Otherwise it is N-Triples, dictionary-encoded, which holds every term. No value is ever rounded to fit, no
  ill-typed literal becomes a null.
* A schema given by the caller decides instead. A term that does not fit is then a DataError that names row and column.
* The key TERMS in the metadata of each field says what the column holds: the IRI of a datatype, IRI or N-TRIPLES. A
  schema that has come with one table is the same order for the next.

Values of inlined literals come from their ids. Only other literals are read from their texts, each distinct one once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.csparql.terms import XSD
from wukongs.errors import DataError, SettingsError
from wukongs.query.output import typed_columns_kernels as kernels
from wukongs.query.output.arrow_columns import dictionary_columns
from wukongs.query.rows import numbered
from wukongs.query.terms.arrow_terms import IRI, N_TRIPLES, TERMS
from wukongs.query.terms.arrow_texts import cuts
from wukongs.query.terms.decoding import Utf8Reader
from wukongs.query.terms.rdf_terms import to_ntriples
from wukongs.query.terms.temporal import EXACT, moment_of
from wukongs.query.terms.values import parse, to_float64
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.inline_kernels import (
    TYPE_BOOLEAN,
    TYPE_DATE,
    TYPE_DATE_TIME,
    TYPE_DECIMAL,
    TYPE_DERIVED,
    TYPE_DOUBLE,
    TYPE_FLOAT,
    TYPE_INTEGER,
    TYPE_STRING,
)
from wukongs.store.term_ids import DATATYPE_NAMES, DATATYPES, decimal_parts, numeric_values

_INT64 = (-(1 << 63), (1 << 63) - 1)
_INT32 = (-(1 << 31), (1 << 31) - 1)
_DIGITS_MAX = 38
_ROWS_BYTES_MAX = 1 << 30
"""An array of strings has at most so much text, or one text."""
_EPOCH_S = 719_162 * 86_400
"""1970-01-01 in seconds from 0001-01-01."""
_FLOAT = r"^([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?INF|NaN)$"


def _bits(*codes: int) -> int:
    return sum(1 << code for code in codes)


_HASHED, _NULL = _bits(kernels.CODE_HASHED), _bits(kernels.CODE_NULL)
_NONE: Int64Array = np.empty(0, np.int64)


class _Unfit(Exception):
    """A distinct term of a column has no value that fits. row: its place among them; expected: what would have."""

    def __init__(self, row: int, expected: str) -> None:
        self.row, self.expected = row, expected


def _names() -> list[str]:
    """Return the names of the datatypes by their codes."""
    return [DATATYPE_NAMES[start:stop].tobytes().decode() for start, stop in DATATYPES[:, :2].tolist()]


_NAMES = _names()


class _Cells:
    """The distinct terms of a column by their ids, and which of them stands in each row.

    places : int64[n_rows]; None if a row number is a term's number, which need not be distinct then: all are inlined.
    """

    def __init__(self, column: Int64Array, reader: Utf8Reader) -> None:
        self.ids, self.reader = np.ascontiguousarray(column), reader
        self.places: Int64Array | None = None
        with np.errstate(over="ignore"):
            self.codes, mask = kernels.id_codes(self.ids)
        if mask & _HASHED:
            self.places, firsts = numbered([self.ids], len(column))
            self.ids, self.codes = self.ids[firsts], self.codes[firsts]
        self.is_null: BoolArray | None = self.codes == kernels.CODE_NULL if mask & _NULL else None
        self.read = _NONE
        """The terms whose texts are at hand: those that are not inlined, and all plain strings."""
        self._hashed = _NONE
        self.longest = 0
        """The size of the longest body of these texts."""
        if mask & (_HASHED | _bits(TYPE_STRING)):
            self.read = np.flatnonzero((self.codes == kernels.CODE_HASHED) | (self.codes == TYPE_STRING))
            self._hashed = np.flatnonzero(self.codes[self.read] == kernels.CODE_HASHED)
            self._text, offsets = reader.gather(self.ids[self.read])
            codes, self._starts, self._stops, found = kernels.text_codes(self._text, offsets, DATATYPE_NAMES, DATATYPES)
            self.codes[self.read] = codes
            self.longest = int((self._stops - self._starts).max())
            mask |= found
        self.mask = int(mask) & ~(_HASHED | _NULL)

    @property
    def row_count(self) -> int:
        return len(self.ids) if self.places is None else len(self.places)

    def row_of(self, term: int) -> int:
        """Return the first row in which a distinct term stands."""
        return term if self.places is None else int(np.flatnonzero(self.places == term)[0])

    def lexical_forms(self) -> Iterator[tuple[int, str, str]]:
        """Iterate over the literals that are not inlined: (number of the term, lexical form, name of its datatype)."""
        for place in self._hashed.tolist():
            term = int(self.read[place])
            lexical = self._text[self._starts[place] : self._stops[place]].tobytes().decode()
            yield term, lexical, _NAMES[self.codes[term]]

    def values(self) -> Iterator[tuple[int, Any]]:
        """Iterate over the values of the literals that are not inlined, as terms/values.py has them: (number of the
        term, value). Raises _Unfit for an ill-typed one."""
        for term, lexical, name in self.lexical_forms():
            found = parse(lexical, name)
            if found is None:
                raise _Unfit(term, f"the lexical form of an xsd:{name}")
            yield term, found[1]

    def hashed_texts(self) -> tuple[Int64Array, pa.Array]:
        """Return the numbers of the terms that are not inlined, and their bodies."""
        return self.read[self._hashed], self._bodies(self._hashed, np.arange(len(self._hashed)), len(self._hashed))

    def bodies(self) -> pa.Array:
        """Return the bodies of all terms, null where unbound. All texts are at hand."""
        return _with_nulls(self._bodies(slice(None), self.read, len(self.ids)), self.is_null)

    def _bodies(self, chosen: Any, places: Int64Array, count: int) -> pa.Array:
        if not len(places):
            return pa.nulls(count, pa.large_string())
        text, offsets = kernels.put_bodies(self._text, self._starts[chosen], self._stops[chosen], places, count)
        return pa.LargeStringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def _with_nulls(array: pa.Array, is_null: BoolArray | None) -> pa.Array:
    return array if is_null is None else pc.if_else(pa.array(is_null), pa.scalar(None, array.type), array)


# --- arrays of the distinct terms -------------------------------------------------------------------------------------


def _integers(cells: _Cells) -> pa.Array:
    numbers, _ = decimal_parts(cells.ids)
    scales = np.zeros(len(numbers), np.int8)
    large = _put_exact(cells, numbers, scales)
    return _decimal_array(numbers, scales, large, cells) if large else pa.array(numbers, mask=cells.is_null)


def _decimals(cells: _Cells) -> pa.Array:
    numerators, scales = decimal_parts(cells.ids)
    np.maximum(scales, 0, out=scales)
    large = _put_exact(cells, numerators, scales)
    kernels.strip_zeros(numerators, scales)
    return _decimal_array(numerators, scales, large, cells)


_Exact = tuple[int, int]
"""Numerator and scale: the first over 10 to the second."""


def _put_exact(cells: _Cells, numerators: Int64Array, scales: npt.NDArray[np.int8]) -> dict[int, _Exact]:
    """Write the integers and decimals that are not inlined into these arrays; return those that do not fit there, by
    the number of the term."""
    large: dict[int, _Exact] = {}
    for term, number in cells.values():
        sign, digits, exponent = EXACT.normalize(Decimal(number)).as_tuple()
        assert isinstance(exponent, int), number
        if max(len(digits), -exponent, len(digits) + exponent) > _DIGITS_MAX:
            raise _Unfit(term, f"a number of at most {_DIGITS_MAX} digits")
        numerator = (-1 if sign else 1) * int("".join(map(str, digits))) * 10 ** max(exponent, 0)
        if _INT64[0] <= numerator <= _INT64[1]:
            numerators[term], scales[term] = numerator, max(-exponent, 0)
        else:
            large[term] = numerator, max(-exponent, 0)
    return large


def _decimal_array(
    numerators: Int64Array, scales: npt.NDArray[np.int8], large: dict[int, _Exact], cells: _Cells
) -> pa.Array:
    """Make decimals of one scale, the least that holds them all. large: numerator and scale of those terms that are
    not in the arrays."""
    count = len(numerators)
    scale = max(int(scales.max(initial=0)), *(scale for _, scale in large.values()), 0)
    fits, made = kernels.scaled(numerators, scales, scale)
    words = np.empty((count, 2), np.int64)
    words[:, 0], words[:, 1] = made, made >> 63
    if not fits or large:
        exact: list[_Exact] = list(zip(numerators.tolist(), scales.tolist(), strict=True))
        for term, number in large.items():
            exact[term] = number
        whole = [numerator * 10 ** (scale - own) for numerator, own in exact]
        for term, numerator in enumerate(whole):
            if abs(numerator) >= 10**_DIGITS_MAX:
                raise _Unfit(term, f"a number of at most {_DIGITS_MAX} digits, {scale} of them behind the dot")
        words = np.frombuffer(b"".join(number.to_bytes(16, "little", signed=True) for number in whole), np.int64)
    type_ = pa.decimal128(_DIGITS_MAX, scale)
    return _with_nulls(pa.Array.from_buffers(type_, count, [None, pa.py_buffer(words)]), cells.is_null)


def _floats(cells: _Cells, type_: pa.DataType) -> pa.Array:
    """Make floats or doubles, of literals of this type alone."""
    _, numbers = numeric_values(cells.ids)
    numbers = numbers.astype(type_.to_pandas_dtype())
    terms, texts = cells.hashed_texts()
    if len(terms):
        is_right = pc.match_substring_regex(texts, _FLOAT).to_numpy(zero_copy_only=False)
        if not is_right.all():
            raise _Unfit(int(terms[np.argmin(is_right)]), f"the lexical form of an xsd:{type_}")
        numbers[terms] = texts.cast(type_).to_numpy()
    return pa.array(numbers, mask=cells.is_null, from_pandas=False)


def _singles(cells: _Cells) -> pa.Array:
    return _floats(cells, pa.float32())


def _doubles(cells: _Cells) -> pa.Array:
    if cells.mask == 1 << TYPE_DOUBLE:
        return _floats(cells, pa.float64())
    _, numbers = numeric_values(cells.ids)
    for term, number in cells.values():
        numbers[term] = to_float64(number)
    return pa.array(numbers, mask=cells.is_null, from_pandas=False)


def _booleans(cells: _Cells) -> pa.Array:
    _, numbers = numeric_values(cells.ids)
    for term, value in cells.values():
        numbers[term] = value
    return pa.array(numbers == 1, mask=cells.is_null)


def _calendar(cells: _Cells) -> tuple[Int64Array, BoolArray]:
    """Return dateTimes as microseconds, dates as days, since 1970, and whether they have zones. int64[n], bool[n]"""
    with np.errstate(over="ignore"):
        values, is_zoned = kernels.calendar_values(cells.ids)
    for term, lexical, name in cells.lexical_forms():
        moment = moment_of(lexical, name)
        if moment is None:
            raise _Unfit(term, f"the lexical form of an xsd:{name}")
        if name == "date":
            value = (int(moment.instant()) + (moment.zone_s or 0) - _EPOCH_S) // 86_400
            fits, unit = _INT32[0] <= value <= _INT32[1], "a day in 32 bits"
        else:
            exact = EXACT.multiply(EXACT.subtract(Decimal(moment.instant()), Decimal(_EPOCH_S)), Decimal(1_000_000))
            value = int(exact)
            fits, unit = value == exact and _INT64[0] <= value <= _INT64[1], "whole microseconds in 64 bits"
        if not fits:
            raise _Unfit(term, f"{unit}, since 1970")
        values[term], is_zoned[term] = value, moment.zone_s is not None
    return values, is_zoned


def _dates(cells: _Cells) -> pa.Array:
    days, is_zoned = _calendar(cells)
    if is_zoned.any():
        raise _Unfit(int(np.argmax(is_zoned)), "a date without a zone")
    return pa.array(days.astype(np.int32), mask=cells.is_null).cast(pa.date32())


def _date_times(cells: _Cells) -> pa.Array:
    microseconds, is_zoned = _calendar(cells)
    is_bound = cells.codes != kernels.CODE_NULL
    if is_zoned.any() and not is_zoned[is_bound].all():
        raise _Unfit(int(np.flatnonzero(is_bound & ~is_zoned)[0]), "a dateTime with a zone, as others here")
    zone = "UTC" if is_zoned.any() else None
    return pa.array(microseconds, mask=cells.is_null).cast(pa.timestamp("us", zone))


def _nulls(cells: _Cells) -> pa.Array:
    return pa.nulls(len(cells.ids))


# --- kinds of columns -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    """A kind of column. name: of its datatype, for errors; accepts: the codes of its terms, a bit each; make: the array
    of the distinct terms. It raises _Unfit."""

    name: str
    accepts: int
    make: Callable[[_Cells], pa.Array]


_INTEGER_BITS = _bits(TYPE_INTEGER, *range(TYPE_DERIVED, len(DATATYPES)))
_NULLS = _Kind("an unbound cell", 0, _nulls)
_INTEGERS = _Kind("xsd:integer", _INTEGER_BITS, _integers)
_DECIMALS = _Kind("xsd:decimal", _bits(TYPE_DECIMAL), _decimals)
_DOUBLES = _Kind("xsd:double", _bits(TYPE_DOUBLE), _doubles)
_FLOATS = _Kind("xsd:float", _bits(TYPE_FLOAT), _singles)
_BOOLEANS = _Kind("xsd:boolean", _bits(TYPE_BOOLEAN), _booleans)
_DATE_TIMES = _Kind("xsd:dateTime", _bits(TYPE_DATE_TIME), _date_times)
_DATES = _Kind("xsd:date", _bits(TYPE_DATE), _dates)
_STRINGS = _Kind("xsd:string", _bits(TYPE_STRING), _Cells.bodies)
_IRIS = _Kind("an IRI or a blank node", _bits(kernels.CODE_IRI, kernels.CODE_BLANK), _Cells.bodies)
_KINDS = (_NULLS, _INTEGERS, _DECIMALS, _DOUBLES, _FLOATS, _BOOLEANS, _DATE_TIMES, _DATES, _STRINGS, _IRIS)
_EXACT = _Kind("xsd:decimal or an integer", _DECIMALS.accepts | _INTEGER_BITS, _decimals)
_NUMBERS = _Kind("a number", _EXACT.accepts | _bits(TYPE_DOUBLE, TYPE_FLOAT), _doubles)


def typed_table(
    names: Sequence[str], columns: Sequence[Int64Array], reader: Utf8Reader, schema: pa.Schema | None
) -> pa.Table:
    """Return a table of values. columns[i] : int64[n]; schema: fields for some or all of the names, None: of none.

    Raises SettingsError (a field that is no column, a type that no terms have), DataError (a term that does not fit its
    field)."""
    fields = {} if schema is None else {field.name: field for field in schema}
    unknown = [name for name in fields if name not in names]
    if unknown or len(fields) != len(schema or ()):
        found = f"?{unknown[0]}" if unknown else "a name twice"
        raise SettingsError(
            f"typed: expected a field for each of some of the columns {', '.join(names)}; found {found}"
        )
    made = [
        _inferred(name, column, reader) if name not in fields else _ordered(fields[name], column, reader)
        for name, column in zip(names, columns, strict=True)
    ]
    return pa.table([column for _, column in made], pa.schema([field for field, _ in made]))


def _inferred(name: str, column: Int64Array, reader: Utf8Reader) -> tuple[pa.Field, pa.ChunkedArray]:
    cells = _Cells(column, reader)
    kind = next((kind for kind in _KINDS if cells.mask & ~kind.accepts == 0), None)
    if kind is not None:
        try:
            rows = _rows(cells, kind)
        except _Unfit:
            pass
        else:
            return pa.field(name, rows.type, metadata=_terms_of(kind, cells)), rows
    (rows,) = dictionary_columns([column], reader)
    return pa.field(name, rows.type, metadata={TERMS: N_TRIPLES}), pa.chunked_array([rows])


def _terms_of(kind: _Kind, cells: _Cells) -> dict[bytes, bytes]:
    if kind is _NULLS:
        return {}
    if kind is _IRIS:
        return {TERMS: IRI}
    code = cells.mask.bit_length() - 1
    is_one = cells.mask == 1 << code
    return {TERMS: (XSD + (_NAMES[code] if is_one else "integer")).encode()}


def _ordered(field: pa.Field, column: Int64Array, reader: Utf8Reader) -> tuple[pa.Field, pa.ChunkedArray]:
    """Make the column that a field asks for."""
    kind, terms = _kind_of(field)
    if kind is None:
        (made,) = dictionary_columns([column], reader)
        rows = pa.chunked_array([made])
    else:
        cells = _Cells(column, reader)
        try:
            other = np.flatnonzero((kind.accepts >> cells.codes.astype(np.int64)) & 1 == 0)
            other = other[cells.codes[other] != kernels.CODE_NULL]
            if len(other):
                raise _Unfit(int(other[0]), kind.name)
            rows = _rows(cells, kind) if cells.mask else pa.chunked_array([pa.nulls(len(column), field.type)])
        except _Unfit as unfit:
            row = cells.row_of(unfit.row)
            term = to_ntriples(reader.texts(column[row : row + 1])[0])
            raise DataError(
                f"typed: column {field.name!r}, row {row}: expected {unfit.expected} for {field.type}, "
                f"found {term[:80]}"
            ) from None
    if pa.types.is_timestamp(field.type) and pa.types.is_timestamp(rows.type):
        zones = {True: "with", False: "without"}
        wanted, has = field.type.tz is not None, rows.type.tz is not None
        if wanted != has:
            row = rows.is_valid().index(True).as_py()
            raise DataError(
                f"typed: column {field.name!r}, row {row}: expected dateTimes {zones[wanted]} a zone for {field.type}, "
                f"found those {zones[has]} one"
            )
    if rows.null_count and not field.nullable:
        row = rows.is_null().index(True).as_py()
        raise DataError(f"typed: column {field.name!r}, row {row}: has unbound cells, but its field has no nulls")
    try:
        rows = _cast(rows, field.type)
    except pa.ArrowException as error:
        row = _first_unfit(rows, field.type)
        raise DataError(
            f"typed: column {field.name!r}, row {row}: a value does not fit {field.type}: {error}"
        ) from None
    return field.with_metadata({**(field.metadata or {}), **({TERMS: terms} if terms else {})}), rows


def _cast(rows: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Cast a column. Arrow multiplies decimals for a larger scale without a look at overflows; they are seen on the
    way back. Raises pa.ArrowException."""
    made = rows.cast(type_)
    if pa.types.is_decimal(type_) and made.type != rows.type and not made.cast(rows.type).equals(rows):
        raise pa.ArrowInvalid(f"it has more digits before the dot than {type_} has")
    return made


def _first_unfit(rows: pa.ChunkedArray, type_: pa.DataType) -> int:
    """Return the first row that cannot be cast to a type; there is one."""
    low, high = 0, len(rows)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _cast(rows.slice(low, middle - low), type_)
        except pa.ArrowException:
            high = middle
        else:
            low = middle
    return low


def _kind_of(field: pa.Field) -> tuple[_Kind | None, bytes]:
    """Return the kind of terms that a field asks for, None for all, and what its metadata is to say."""
    type_, terms = field.type, (field.metadata or {}).get(TERMS)
    is_dictionary = pa.types.is_dictionary(type_)
    held = type_.value_type if is_dictionary else type_
    if pa.types.is_string(held) or pa.types.is_large_string(held):
        default = N_TRIPLES if is_dictionary else XSD.encode() + b"string"
        terms = terms or default
        if terms in (N_TRIPLES, IRI):
            return (None if terms == N_TRIPLES else _IRIS), terms
        return _STRINGS, XSD.encode() + b"string"
    if pa.types.is_null(type_):
        return _NULLS, b""
    for is_it, kind, name in (
        (pa.types.is_integer, _INTEGERS, "integer"),
        (pa.types.is_float32, _FLOATS, "float"),
        (pa.types.is_float64, _NUMBERS, "double"),
        (pa.types.is_decimal128, _EXACT, "decimal"),
        (pa.types.is_boolean, _BOOLEANS, "boolean"),
        (pa.types.is_timestamp, _DATE_TIMES, "dateTime"),
        (pa.types.is_date32, _DATES, "date"),
    ):
        if is_it(type_):
            return kind, (XSD + name).encode()
    raise SettingsError(
        f"typed: field {field.name!r} has the type {type_}: expected int, uint, float32, float64, decimal128, bool, "
        "timestamp, date32, string, large_string or a dictionary of strings"
    )


def _rows(cells: _Cells, kind: _Kind) -> pa.ChunkedArray:
    """Return the rows of a column from the array of its distinct terms. Raises _Unfit."""
    terms = kind.make(cells)
    if not pa.types.is_large_string(terms.type):
        return pa.chunked_array([terms if cells.places is None else terms.take(pa.array(cells.places))])
    if kind is _IRIS:
        return pa.chunked_array([_encoded(cells, terms)])
    if cells.longest * cells.row_count <= _ROWS_BYTES_MAX:
        rows = terms if cells.places is None else terms.take(pa.array(cells.places))
        return pa.chunked_array([rows.cast(pa.string())])
    sizes = pc.binary_length(terms).fill_null(0).to_numpy()
    if cells.places is None:
        parts = [terms.slice(start, stop - start) for start, stop in cuts(sizes, _ROWS_BYTES_MAX)]
    else:
        parts = [
            terms.take(pa.array(cells.places[start:stop])) for start, stop in cuts(sizes[cells.places], _ROWS_BYTES_MAX)
        ]
    return pa.chunked_array([part.cast(pa.string()) for part in parts], pa.string())


def _encoded(cells: _Cells, terms: pa.Array) -> pa.DictionaryArray:
    assert cells.places is not None, "IRIs are never inlined"
    is_null = cells.is_null
    places, mask = cells.places, None
    if is_null is not None:
        mask = is_null[places]
        places = (np.cumsum(~is_null) - 1)[places]
        terms = terms.drop_null()
    if terms.nbytes <= _ROWS_BYTES_MAX:
        terms = terms.cast(pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32), mask=mask), terms)
