"""Functions of strings that give terms, on whole columns. Each row gets the answer of wukongs/query/functions/.

Arrow's kernels are used where they do exactly what SPARQL wants: lengths and parts by code points, REPLACE by RE2 as in
patterns.py. Arrow maps case where all is ASCII. Elsewhere Python does, since Arrow maps each character to one (no SS
for ß, and no final sigma). The rest is a loop over plain texts.

Columns that stand for one constant have one row; so all functions take columns of n rows or of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.csparql.terms import RDF, XSD
from wukongs.query.expressions.text_column import (
    IRI,
    NOTHING,
    STRING,
    TAGGED,
    TYPED,
    TextColumn,
    are_compatible,
    broadcast,
    pairs,
    rows_together,
)
from wukongs.query.functions.patterns import replaced
from wukongs.query.functions.strings import DIGESTS, digest_of, lower_case, upper_case, uri_encoded
from wukongs.query.limits import current
from wukongs.query.terms.arrow_texts import TEXT, byte_lengths, cuts, in_parts, taken, to_numpy
from wukongs.query.terms.values import Kind, Value, value_of
from wukongs.store.canonical import shown_tag
from wukongs.store.dtypes import BoolArray, Int64Array


def _with_kinds(kind: int, valid: BoolArray, lexical: pa.LargeStringArray) -> TextColumn:
    """Return terms of one kind that has no tail; errors where not valid."""
    return TextColumn(np.where(valid, kind, NOTHING).astype(np.uint8), lexical, np.zeros(len(valid), np.int64))


def _mapped(change: Callable[[str], str], array: pa.LargeStringArray) -> pa.LargeStringArray:
    return in_parts(lambda part: pa.array(list(map(change, part.to_pylist())), TEXT), array)


def _str(column: TextColumn) -> TextColumn:
    return _with_kinds(STRING, np.isin(column.kinds, (STRING, TAGGED, TYPED, IRI)), column.lexical)


def _tag_part(place: int) -> Callable[[TextColumn], TextColumn]:
    """Make LANG and LANGDIR: the part before, or behind, the two hyphens."""

    def apply(column: TextColumn) -> TextColumn:
        parts = pa.array([shown_tag(name).partition("--")[place] for name in column.names], TEXT)
        tails = np.where(column.kinds == TAGGED, column.tails, 0)
        return _with_kinds(STRING, np.isin(column.kinds, (STRING, TAGGED, TYPED)), parts.take(pa.array(tails)))

    return apply


def _datatype(column: TextColumn) -> TextColumn:
    of_tags = [RDF + ("dirLangString" if "--" in name else "langString") for name in column.names]
    known = pa.array([XSD + "string", *of_tags, *column.names], TEXT)
    places = np.select(
        [column.kinds == TAGGED, column.kinds == TYPED], [1 + column.tails, 1 + len(column.names) + column.tails], 0
    )
    return _with_kinds(IRI, np.isin(column.kinds, (STRING, TAGGED, TYPED)), known.take(pa.array(places)))


def _case(by_arrow: Callable[..., pa.Array], change: Callable[[str], str]) -> Callable[[TextColumn], TextColumn]:
    def some(part: pa.LargeStringArray) -> pa.LargeStringArray:
        is_ascii = pc.all(pc.string_is_ascii(part)).as_py() is not False
        return by_arrow(part) if is_ascii else pa.array(list(map(change, part.to_pylist())), TEXT)

    return lambda column: column.like(in_parts(some, column.lexical))


def _digest(algorithm: str) -> Callable[[TextColumn], TextColumn]:
    def digest(held: str) -> str:
        return digest_of(held, algorithm)

    return lambda column: _with_kinds(STRING, column.kinds == STRING, _mapped(digest, column.lexical))


def _encode_for_uri(column: TextColumn) -> TextColumn:
    return _with_kinds(STRING, column.is_text, _mapped(uri_encoded, column.lexical))


def lengths(column: TextColumn) -> Int64Array:
    """Return how many characters (code points) the lexical forms have."""
    found: Int64Array = to_numpy(in_parts(pc.utf8_length, column.lexical))
    return found


def _strlen(column: TextColumn) -> TextColumn:
    kinds = np.where(column.is_text, TYPED, NOTHING).astype(np.uint8)
    lexical = pa.array(lengths(column)).cast(TEXT)
    return TextColumn(kinds, lexical, np.ones(len(column), np.int64), ("", XSD + "integer"))


UNARY: dict[str, Callable[[TextColumn], TextColumn]] = {
    "STR": _str,
    "LANG": _tag_part(0),
    "LANGDIR": _tag_part(2),
    "DATATYPE": _datatype,
    "STRLEN": _strlen,
    "UCASE": _case(pc.ascii_upper, upper_case),
    "LCASE": _case(pc.ascii_lower, lower_case),
    "ENCODE_FOR_URI": _encode_for_uri,
    **{name: _digest(name.lower()) for name in DIGESTS},
}
"""Functions of one column that give terms."""


def _before(held: str, part: str) -> str | None:
    before, found, _ = held.partition(part) if part else ("", "found", "")
    return before if found else None


def _after(held: str, part: str) -> str | None:
    _, found, after = held.partition(part) if part else ("", "found", held)
    return after if found else None


def _cut(part_of: Callable[[str, str], str | None]) -> Callable[[TextColumn, TextColumn], TextColumn]:
    """Make STRBEFORE and STRAFTER: a part keeps the tag; where nothing is found, there is an empty simple string."""

    def apply(first: TextColumn, second: TextColumn) -> TextColumn:
        valid = are_compatible(first, second)
        held = [part_of(*pair) for pair in current().polled(pairs(first, second))]
        lexical = pa.array([part or "" for part in held], TEXT)
        whole = broadcast(first, len(held)).like(lexical)
        is_found = np.array([part is not None for part in held], np.bool_)
        kinds = np.where(valid, np.where(is_found, whole.kinds, STRING), NOTHING).astype(np.uint8)
        return TextColumn(kinds, lexical, np.where(is_found, whole.tails, 0), whole.names)

    return apply


BINARY: dict[str, Callable[[TextColumn, TextColumn], TextColumn]] = {
    "STRBEFORE": _cut(_before),
    "STRAFTER": _cut(_after),
}
"""Functions of two columns that give terms."""


def concat(columns: Sequence[TextColumn]) -> TextColumn:
    """CONCAT of one or more columns: tagged where all arguments have one tag."""
    first, length, limits = columns[0], rows_together(columns), current()
    valid, are_alike = np.ones(length, np.bool_), np.ones(length, np.bool_)
    for column in columns:
        valid &= column.is_text
        are_alike &= (column.kinds == TAGGED) & (column.tails_in(first) == first.tails)
    held = [broadcast(column, length).lexical for column in columns]
    limits.hold(sum(array.nbytes for array in held), "CONCAT")
    parts = []
    empty = pa.scalar("", TEXT)  # not when this module is loaded: pyarrow's first value loads pandas
    for start, stop in cuts(np.sum([byte_lengths(array) for array in held], axis=0)):
        parts.append(pc.binary_join_element_wise(*(array.slice(start, stop - start) for array in held), empty))
    lexical = pa.concat_arrays([pa.array([], TEXT), *parts])
    kinds = np.where(valid, np.where(are_alike, TAGGED, STRING), NOTHING).astype(np.uint8)
    return TextColumn(kinds, lexical, np.where(are_alike, first.tails, 0), first.names)


def substr(column: TextColumn, start: Value, length: Value | None) -> TextColumn:
    """SUBSTR with a constant start and length: the characters at positions p, start <= p < start + length."""
    if start.kind != Kind.INTEGER or (length is not None and length.kind != Kind.INTEGER):
        return _with_kinds(STRING, np.zeros(len(column), np.bool_), column.lexical)
    first = int(start.number) - 1
    begin, most = max(first, 0), int(np.iinfo(np.int64).max)
    end = most if length is None else max(first + int(length.number), 0)
    if begin >= min(end, most):
        return column.like(pa.array([""] * len(column), TEXT))
    stop = end if end < most else None
    return column.like(in_parts(lambda part: pc.utf8_slice_codeunits(part, start=begin, stop=stop), column.lexical))


def replace(column: TextColumn, constants: Sequence[str | None]) -> TextColumn:
    """REPLACE with a constant pattern, replacement and, if given, flags; None for one that is no simple string."""
    nowhere = _with_kinds(STRING, np.zeros(len(column), np.bool_), column.lexical)
    if any(constant is None for constant in constants):
        return nowhere
    held = np.flatnonzero(column.is_text)
    changed = replaced(column.take(held).lexical, *(str(constant) for constant in constants)) if len(held) else None
    if changed is None:
        return nowhere
    places = np.zeros(len(column), np.int64)
    places[held] = np.arange(len(held))
    return column.like(taken(changed, places))


def constants_of(texts: Sequence[str]) -> list[str | None]:
    """Return the characters of constants that are simple strings, None for any other."""
    values = [value_of(text) for text in texts]
    return [str(value.data) if value.kind == Kind.STRING else None for value in values]
