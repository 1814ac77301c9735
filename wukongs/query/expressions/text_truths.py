"""Tests and comparisons of strings and terms on whole columns. Each row gets the answer of the scalar evaluator.

Arrow looks for substrings and compares by bytes, which for UTF-8 is by code points; RE2 matches regular expressions as
patterns.py has them. Answers that depend on the value of a typed literal are not known here.

Columns that stand for one constant have one row; so all functions take columns of n rows or of one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.csparql.terms import XSD
from wukongs.query.expressions.text_column import (
    BLANK,
    IRI,
    NOTHING,
    STRING,
    TAGGED,
    TRIPLE,
    TYPED,
    Spread,
    TextColumn,
    are_compatible,
    pairs,
)
from wukongs.query.expressions.text_kernels import ANYWHERE, AT_END, AT_START, find_parts
from wukongs.query.expressions.truth import Truth
from wukongs.query.functions.patterns import found_in
from wukongs.query.functions.strings import language_fits
from wukongs.query.limits import current
from wukongs.query.terms.arrow_texts import byte_lengths, bytes_of, cuts, in_parts, to_numpy
from wukongs.query.terms.values import INTEGER_BOUNDS
from wukongs.store.dtypes import BoolArray

SHORT_PART = 64
"""Characters; a longer text makes a large pattern."""
_NUMERIC = frozenset(f"{XSD}{name}" for name in (*INTEGER_BOUNDS, "decimal", "float", "double"))


def _by_arrow(test: Callable[..., pa.Array]) -> Callable[[pa.LargeStringArray, str], BoolArray]:
    def apply(texts: pa.LargeStringArray, part: str) -> BoolArray:
        found: BoolArray = to_numpy(in_parts(lambda some: test(some, pattern=part), texts))
        return found

    return apply


def _contains(texts: pa.LargeStringArray, part: str) -> BoolArray:
    """RE2 looks for a short literal several bytes at a time, Arrow's own search for one."""
    found = found_in(texts, part, "q") if len(part) <= SHORT_PART else None
    return _by_arrow(pc.match_substring)(texts, part) if found is None else found


def _part_test(
    constant_test: Callable[[pa.LargeStringArray, str], BoolArray], holds: Callable[[str, str], bool]
) -> Callable[[TextColumn, TextColumn], Truth]:
    def apply(first: TextColumn, second: TextColumn) -> Truth:
        valid = are_compatible(first, second)
        if len(second) == 1:
            return Truth.of(constant_test(first.lexical, second.lexical[0].as_py()), valid)
        found = [holds(*pair) for pair in current().polled(pairs(first, second))]
        return Truth.of(np.array(found, np.bool_), valid)

    return apply


_WHERE = {"CONTAINS": ANYWHERE, "STRSTARTS": AT_START, "STRENDS": AT_END}


def part_test(op: str, first: Spread, second: Spread) -> Truth | None:
    """Test each row's own pair of texts, which differ from row to row, for CONTAINS, STRSTARTS and STRENDS. None for
    other functions, and for long parts, which would take too long."""
    where = _WHERE.get(op)
    if where is None or first.places is None or second.places is None:
        return None
    sizes, part_sizes = byte_lengths(first.column.lexical), byte_lengths(second.column.lexical)
    if not len(part_sizes) or part_sizes.max() > SHORT_PART:
        return None
    one, other = first.column, second.column
    kinds, part_kinds = one.kinds[first.places], other.kinds[second.places]
    same_tag = (kinds == TAGGED) & (part_kinds == TAGGED)
    same_tag &= one.tails[first.places] == other.tails_in(one)[second.places]
    valid = one.is_text[first.places] & ((part_kinds == STRING) | same_tag)
    found = np.empty(len(valid), np.bool_)
    (text, text_offsets), (part, part_offsets) = bytes_of(one.lexical), bytes_of(other.lexical)
    text, part = text.copy(), part.copy()  # kernels are compiled for arrays that can be written
    for start, stop in cuts(sizes[first.places]):
        rows = slice(start, stop)
        places, part_places = first.places[rows], second.places[rows]
        find_parts(where, text, text_offsets, places, part, part_offsets, part_places, found[rows])
    return Truth.of(found, valid)


def _lang_matches(first: TextColumn, second: TextColumn) -> Truth:
    valid: BoolArray = (first.kinds == STRING) & (second.kinds == STRING)
    if len(second) != 1:
        return Truth.of(np.array([language_fits(*pair) for pair in pairs(first, second)], np.bool_), valid)
    wanted, tags = second.lexical[0].as_py(), first.lexical.dictionary_encode()
    fits = np.array([language_fits(tag, wanted) for tag in tags.dictionary.to_pylist()], np.bool_)
    return Truth.of(fits[to_numpy(tags.indices)] if len(first) else np.zeros(0, np.bool_), valid)


TESTS: dict[str, Callable[[TextColumn, TextColumn], Truth]] = {
    "CONTAINS": _part_test(_contains, str.__contains__),
    "STRSTARTS": _part_test(_by_arrow(pc.starts_with), str.startswith),
    "STRENDS": _part_test(_by_arrow(pc.ends_with), str.endswith),
    "LANGMATCHES": _lang_matches,
}
"""Functions of two columns that give a truth."""


def regex(column: TextColumn, pattern: str | None, flags: str | None) -> Truth:
    """REGEX with a constant pattern; None for a pattern or flags that are no simple strings."""
    held = np.flatnonzero(column.is_text)
    nowhere = np.zeros(len(column), np.bool_)
    if pattern is None or flags is None or not len(held):
        return Truth(nowhere, nowhere)
    found = found_in(column.lexical if len(held) == len(column) else column.take(held).lexical, pattern, flags)
    if found is None:
        return Truth(nowhere, nowhere)
    true, false = nowhere.copy(), nowhere.copy()
    true[held], false[held] = found, ~found
    return Truth(true, false)


def effective_truth(column: TextColumn) -> tuple[Truth, BoolArray]:
    """Return effective boolean values (17.2.2), and where they are known: not for TYPED terms."""
    is_long = to_numpy(pc.binary_length(column.lexical)) > 0
    return Truth.of(is_long, column.kinds == STRING), column.kinds != TYPED


_KINDS: dict[str, tuple[int, ...]] = {
    "ISIRI": (IRI,),
    "ISBLANK": (BLANK,),
    "ISLITERAL": (STRING, TAGGED, TYPED),
    "ISTRIPLE": (TRIPLE,),
    "HASLANG": (TAGGED,),
    "HASLANGDIR": (TAGGED,),
    "ISNUMERIC": (),
}
KIND_TESTS = _KINDS.keys()


def kind_test(op: str, column: TextColumn) -> tuple[Truth, BoolArray]:
    """Apply one of KIND_TESTS. Returns (truth, where it is known: ISNUMERIC depends on the lexical form)."""
    truths = np.isin(column.kinds, _KINDS[op])
    known: BoolArray = np.ones(len(column), np.bool_)
    if op == "HASLANGDIR":
        truths &= np.array(["--" in name for name in column.names], np.bool_)[column.tails]
    elif op == "ISNUMERIC":
        may_be = np.array([name in _NUMERIC for name in column.names], np.bool_)
        known = (column.kinds != TYPED) | ~may_be[column.tails]
    return Truth.of(truths, column.kinds != NOTHING), known


# --- comparisons ------------------------------------------------------------------------------------------------------

_COMPARED: dict[str, Callable[..., pa.Array]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    ">": pc.greater,
    "<=": pc.less_equal,
    ">=": pc.greater_equal,
}


def _operand(column: TextColumn, other: TextColumn) -> pa.LargeStringArray | pa.LargeStringScalar:
    """Return the arguments of a binary function of Arrow: a constant beside a column becomes a scalar."""
    return column.lexical if len(column) == len(other) or len(column) != 1 else column.lexical[0]


def compare_texts(op: str, first: TextColumn, second: TextColumn) -> tuple[Truth, BoolArray]:
    """Apply = != < > <= >=. Returns (truth, where it is known: not for two TYPED terms, and others by value).

    Simple strings compare by code points. IRIs, blank nodes and tagged strings equal the same term alone, and have no
    order. A TYPED term equals none of these (value_operators.py); whether it equals a simple string depends on
    whether its form is right."""
    one, other = first.kinds, second.kinds
    truths = to_numpy(_COMPARED[op](_operand(first, second), _operand(second, first)))
    are_there = (one != NOTHING) & (other != NOTHING)
    are_strings = (one == STRING) & (other == STRING)
    if op in ("=", "!="):
        same_kind = (one == other) & (first.tails == second.tails_in(first))
        truths = np.where(same_kind, truths, op == "!=")
        low, high = np.minimum(one, other), np.maximum(one, other)
        by_value = (one == other) & ((one == TYPED) | (one == TRIPLE)) | ((low == STRING) & (high == TYPED))
        return Truth.of(truths, are_there & ~by_value), ~(by_value & are_there)
    return Truth.of(truths, are_strings), ~((one == TYPED) & (other == TYPED))
