"""Doubles and texts read, compared, ordered and added on columns, against the values that are decoded one by one."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.term_spaces import ListTermSpace
from wukongs.csparql.algebra import Aggregate, Call
from wukongs.csparql.terms import XSD, Term, Variable, literal
from wukongs.query.binding_table import BindingTable
from wukongs.query.expressions import frame, number_columns, text_expressions
from wukongs.query.expressions.exact_numbers import ExactNumbers, exact_ranks
from wukongs.query.expressions.expressions import evaluate
from wukongs.query.expressions.scalar_evaluator import value_in
from wukongs.query.expressions.text_column import TextColumn
from wukongs.query.expressions.text_numbers import doubles_of, doubles_of_ids, numbers_of_column
from wukongs.query.operators import text_order
from wukongs.query.operators.aggregates import group
from wukongs.query.operators.ordering import ranks_of, ranks_of_ids
from wukongs.query.operators.text_order import ranks_of_texts
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.query.terms.values import Kind, computed, number_lexical, text_of, to_float64, value_of
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.term_registry import TermRegistry


@pytest.fixture(autouse=True, scope="module")
def _columns_of_any_length() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_expressions, "ROWS_MIN", 0)
        patch.setattr(frame, "ROWS_MIN", 0)
        yield


X, KEY, RESULT = Variable("x"), Variable("key"), Variable("result")


def double(lexical: str) -> str:
    return literal(lexical, XSD + "double").text


BITS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("d", struct.pack("Q", bits))[0])
FINITE = st.one_of(BITS.filter(math.isfinite), st.floats(-200, 200), st.integers(-9, 9).map(float))
DIGITS = st.text("0123456789", min_size=1, max_size=40)
FORMS = st.one_of(
    st.tuples(st.sampled_from(["", "-", "+"]), DIGITS, st.sampled_from(["", ".", ".0"]), DIGITS).map("".join),
    st.tuples(DIGITS, st.sampled_from("eE"), st.integers(-400, 400).map(str)).map("".join),
    st.text("0123456789.-+eE", max_size=6),
    st.sampled_from(
        ["INF", "-INF", "+INF", "NaN", "inf", "nan", "Infinity", "1_0", " 1", "1 ", "0x1p3", "1e", ".", ".5", "5.", ""]
    ),
)
DOUBLES = st.one_of(FINITE.map(repr), FINITE.map(lambda number: number_lexical(Kind.DOUBLE, number))).map(double)
OTHERS = st.sampled_from(
    [
        double("x"),
        double("NaN"),
        double("INF"),
        *(literal("1", XSD + name).text for name in ("integer", "float")),
        '"1"',
        "<a>",
    ]
)


def space_of(texts: list[str | None]) -> tuple[QueryTerms, Int64Array]:
    """Return the terms of a store, some of which it has, and their ids."""
    registry = TermRegistry()
    registry.keep_all([text for text in texts[::2] if text is not None])
    terms = QueryTerms(registry, registry.snapshot_reader())
    return terms, np.array([UNBOUND if text is None else terms.ids([text])[0] for text in texts], np.int64)


def shown(column: Int64Array, terms: QueryTerms) -> list[str | None]:
    return [None if term == UNBOUND else terms.texts(np.array([term]))[0] for term in column.tolist()]


@given(st.lists(FORMS, max_size=12))
@fuzzed(400)
def test_forms_are_read_as_values_are(forms: list[str]) -> None:
    values, are_doubles = doubles_of(TextColumn.of_texts([double(form) for form in forms]))
    for form, number, is_double in zip(forms, values.tolist(), are_doubles.tolist(), strict=True):
        value = value_of(double(form))
        if is_double:
            assert value.kind == Kind.DOUBLE
            assert struct.pack("d", number) == struct.pack("d", value.data)  # type: ignore[arg-type]


@given(st.lists(st.tuples(FORMS, st.sampled_from(["integer", "decimal", "double"])), max_size=12))
@fuzzed(400)
def test_forms_of_integers_and_decimals_are_read_as_values_are(forms: list[tuple[str, str]]) -> None:
    texts = [literal(form, XSD + name).text for form, name in forms]
    numbers = numbers_of_column(TextColumn.of_texts(["<a>", "<b>", *texts])).take(np.arange(2, 2 + len(texts)))
    kinds = np.broadcast_to(np.asarray(numbers.kinds), len(texts))
    for text, number, kind in zip(texts, numbers.values.tolist(), kinds.tolist(), strict=True):
        value = value_of(text)
        if kind != number_columns.UNDECIDED:
            assert value.is_numeric
            assert number == to_float64(value.number)
            exact = value.kind == Kind.INTEGER and abs(value.number) < 2**53
            of_exact = number_columns.EXACT if exact else number_columns.ROUNDED
            assert kind == (number_columns.DOUBLE if value.kind == Kind.DOUBLE else of_exact)


WHOLE = st.one_of(
    st.integers(-(2**66), 2**66), st.integers(-(2**31), 2**31), st.sampled_from([2**59, 2**62, 2**63 - 1])
)


@given(
    st.lists(st.tuples(WHOLE, WHOLE, st.sampled_from(["", "+", "00"])), min_size=1, max_size=12), st.sampled_from("+-*")
)
@fuzzed(300)
def test_arithmetic_of_integers_of_any_size(rows: list[tuple[int, int, str]], op: str) -> None:
    first = [f'"{sign if one >= 0 else ""}{one}"^^<{XSD}integer>' for one, _, sign in rows]
    terms, ids = space_of([*first, *(f'"{other}"^^<{XSD}integer>' for _, other, _ in rows)])
    table = BindingTable((X, KEY), (ids[: len(rows)], ids[len(rows) :]), len(rows))
    found = shown(evaluate(Call(op, (X, KEY)), table, terms), terms)
    apply = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}[op]
    assert found == [f'"{apply(one, other)}"^^<{XSD}integer>' for one, other, _ in rows]


MEMBERS = [
    *(literal(str(number), XSD + "integer").text for number in (7, 2**53, 2**53 + 1, 2**62, 2**62 + 1, -(2**70))),
    *(literal(form, XSD + "integer").text for form in ("+7", "007", f"+{2**62}", "x")),
    *(
        literal(form, XSD + "decimal").text
        for form in ("7.0", "0.1", f"{2**62}.0", "0.1000000000000000055511151231257827")
    ),
    *(literal(form, XSD + "double").text for form in ("7", "0.1", "9007199254740992", "NaN", "4.611686018427388e18")),
    *(literal(form, XSD + "date").text for form in ("2020-01-01", "2020-01-01Z", "2020-06-01+14:00", "0000-01-01")),
    *(literal(form, XSD + "dateTime").text for form in ("2020-01-01T00:00:00", "2019-12-31T24:00:00Z", "x")),
    *('"7"', '"a longer text"', '"7"@en', "<a>", "_:b"),
]


@given(st.lists(st.sampled_from(MEMBERS), min_size=8, max_size=14), st.sampled_from(["IN", "NOTIN"]))
@fuzzed(150)
def test_long_lists_of_constants(constants: list[str], op: str) -> None:
    terms, ids = space_of([*MEMBERS, None])
    call = Call(op, (X, *map(Term, constants)))
    found = shown(evaluate(call, BindingTable((X,), (ids,), len(ids)), terms), terms)
    values = [value_in(call, {X: None if text is None else value_of(text)}) for text in [*MEMBERS, None]]
    assert found == [None if value is None else text_of(value) for value in values]


def test_usual_forms_are_read_and_odd_ones_beside_them_left() -> None:
    forms = ["1", "-1.5", "0.1234567890123456789", "1e5", "1.5E-10", "NaN", "INF", "x"]
    texts = [*map(double, forms), '"1"', "<a>", f'"1"^^<{XSD}float>']
    values, are_doubles = doubles_of(TextColumn.of_texts(texts))
    assert are_doubles.tolist() == [True] * 5 + [False] * 6
    assert values[:5].tolist() == [1.0, -1.5, 0.12345678901234568, 1e5, 1.5e-10]


@given(st.lists(st.one_of(DOUBLES, DOUBLES, DOUBLES, OTHERS), max_size=9, unique=True))
@fuzzed(200)
def test_columns_of_doubles(texts: list[str]) -> None:
    terms, ids = space_of(list(texts))
    found = doubles_of_ids(ids, terms)
    values = [value_of(text) for text in texts]
    if found is not None:
        assert [value.kind for value in values] == [Kind.DOUBLE] * len(values)
        assert found.tolist() == [value.data for value in values]
    else:
        assert not texts or any(
            text in (double("NaN"), double("INF")) or value.kind != Kind.DOUBLE
            for text, value in zip(texts, values, strict=True)
        )


def test_what_is_no_double_is_seen_behind_the_first_ones() -> None:
    texts = [double(f"0.{number:020}") for number in range(1, 40)]
    terms, ids = space_of([*texts, '"a text that is long enough"'])
    assert doubles_of_ids(ids, terms) is None
    assert doubles_of_ids(ids[:-1], terms) is not None
    assert doubles_of_ids(ids[:0], terms) is None


TEXTS = st.one_of(
    st.text(st.sampled_from("ab\0é\U0001f600"), max_size=20),
    st.tuples(st.just("the same beginning of all of them "), st.text("ab", max_size=12)).map("".join),
)


@given(st.lists(TEXTS, max_size=30, unique=True))
@fuzzed(300)
def test_texts_are_ordered_by_code_points(texts: list[str]) -> None:
    ranks = ranks_of_texts(pa.array(texts, pa.large_string()))
    assert ranks is not None
    order = sorted(range(len(texts)), key=texts.__getitem__)
    assert np.argsort(ranks).tolist() == order
    assert sorted(ranks.tolist()) == list(range(len(texts)))


def test_long_tables_of_texts_are_ordered_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{number * 7919 % 1009:b}" for number in range(1009)]
    monkeypatch.setattr(text_order, "PIECE_ROWS", 10)
    ranks = ranks_of_texts(pa.array(texts, pa.large_string()))
    assert ranks is not None
    assert [texts[place] for place in np.argsort(ranks)] == sorted(texts)


EXACT = st.one_of(
    st.integers(-(2**62), 2**62).map(lambda number: literal(str(number), XSD + "integer").text),
    st.integers(-9, 9).map(lambda number: literal(str(number), XSD + "int").text),
    st.decimals(-9, 9, places=2).map(lambda number: literal(str(number), XSD + "decimal").text),
    st.decimals(-9, 9, places=15).map(lambda number: literal(f"{number:f}", XSD + "decimal").text),
    st.sampled_from(["1", "1.0", "1.00", "-0.0", "0", "0.00"]).map(lambda form: literal(form, XSD + "decimal").text),
    st.sampled_from(["0.1000000000000001", "0.1000000000000002", "9007199254740991", "9007199254740990.9"]).map(
        lambda form: literal(form, XSD + "decimal").text
    ),
)
SMALL = st.one_of(
    st.integers(-99, 99).map(lambda number: literal(str(number), XSD + "integer").text),
    st.decimals(-9, 9, places=2).map(lambda number: literal(str(number), XSD + "decimal").text),
)
KINDS = (
    DOUBLES,
    EXACT,
    SMALL,
    st.one_of(DOUBLES, OTHERS),
    TEXTS.map(lambda text: f'"{text}"'),
    TEXTS.map(lambda text: f"<{text}>"),
)


@given(st.one_of(*(st.lists(kind, max_size=12, unique=True) for kind in KINDS)), st.booleans())
@fuzzed(300)
def test_ranks_of_ids_are_those_of_values(texts: list[str], with_unbound: bool) -> None:
    held: list[str | None] = [*texts, None] if with_unbound else [*texts]
    terms, ids = space_of(held)
    ranks = ranks_of_ids(ids, terms)
    expected = ranks_of([None if text is None else value_of(text) for text in held])
    assert np.unique(ranks, return_inverse=True)[1].tolist() == np.unique(expected, return_inverse=True)[1].tolist()


def test_texts_with_a_very_long_beginning_in_common_are_ordered_too() -> None:
    texts: list[str | None] = [f'"{"x" * 5000}{number}"' for number in (3, 1, 2)]
    terms, ids = space_of(texts)
    assert ranks_of_ids(ids, terms).tolist() == [2, 0, 1]


KEYS = st.sampled_from(["<a>", "<b>"])
ROWS = st.lists(st.tuples(KEYS, st.one_of(DOUBLES, DOUBLES, DOUBLES, OTHERS, st.none())), max_size=12)


@pytest.mark.parametrize("name", ["SUM", "AVG", "MIN", "MAX", "SAMPLE"])
@pytest.mark.parametrize("distinct", [False, True])
@given(st.one_of(ROWS, *(st.lists(st.tuples(KEYS, kind), max_size=12) for kind in (DOUBLES, EXACT, SMALL))))
@fuzzed(100)
def test_aggregates_over_the_store_are_those_over_single_values(
    name: str, distinct: bool, rows: list[tuple[str, str | None]]
) -> None:
    """The plain list of terms has no ids that carry values, so there everything is decoded one by one."""
    aggregates = [(RESULT, Aggregate(name, X, distinct))]
    space = ListTermSpace()
    expected = space.rows(group(space.table("key x", rows), [KEY], aggregates, space))
    terms, both = space_of([*(key for key, _ in rows), *(text for _, text in rows)])
    found = group(BindingTable((KEY, X), (both[: len(rows)], both[len(rows) :]), len(rows)), [KEY], aggregates, terms)
    columns = [shown(column, terms) for column in found.columns]
    assert list(zip(*columns, strict=True)) == expected


@pytest.mark.parametrize("op", ["=", "!=", "<", ">=", "+", "*", "/", "NEGATE", "ABS", f"<{XSD}integer>"])
@given(
    st.lists(st.one_of(DOUBLES, DOUBLES, OTHERS, st.none()), min_size=1, max_size=8),
    st.one_of(DOUBLES, OTHERS, st.just(f'"40.0"^^<{XSD}decimal>')),
)
@fuzzed(60)
def test_numbers_that_ids_do_not_carry(op: str, texts: list[str | None], constant: str) -> None:
    terms, ids = space_of(texts)
    arguments = (X, Term(constant)) if len(op) <= 2 else (X,)
    found = evaluate(Call(op, arguments), BindingTable((X,), (ids,), len(texts)), terms)
    values = [value_in(Call(op, arguments), {X: None if text is None else value_of(text)}) for text in texts]
    assert shown(found, terms) == [None if value is None else text_of(value) for value in values]


@given(st.one_of(BITS, FINITE))
@fuzzed(500)
def test_lexical_forms_of_doubles_have_the_shortest_digits(number: float) -> None:
    lexical = text_of(computed(Kind.DOUBLE, number)).split('"')[1]
    if not math.isfinite(number):
        assert lexical == ("NaN" if number != number else "INF" if number > 0 else "-INF")
        return
    mantissa, exponent = np.format_float_scientific(np.float64(number), unique=True, trim="0").split("e")
    assert lexical == f"{mantissa}E{int(exponent)}"


def test_integers_and_decimals_are_ordered_and_added_without_being_decoded() -> None:
    decimals = [literal(form, XSD + "decimal").text for form in ("1.0", "2.50", "-0.125", "0.0")]
    terms, ids = space_of([*decimals, f'"1"^^<{XSD}integer>', f'"7"^^<{XSD}int>'])
    ranks = exact_ranks(ids, terms)
    assert ranks is not None
    assert ranks.tolist() == [2, 3, 0, 1, 2, 4]
    numbers = ExactNumbers.of_ids(ids, len(ids), terms)
    assert numbers is not None
    sums = numbers.sums(np.arange(6), np.array([0, 4, 6]))
    assert [text_of(value) for value in sums] == [f'"3.375"^^<{XSD}decimal>', f'"8"^^<{XSD}integer>']


@pytest.mark.parametrize("texts", [['"a"'], [f'"1.5"^^<{XSD}double>'], ["<a>", f'"1"^^<{XSD}integer>'], []])
def test_other_terms_have_no_exact_numbers(texts: list[str | None]) -> None:
    terms, ids = space_of(texts)
    assert exact_ranks(ids, terms) is None
    assert ExactNumbers.of_ids(ids, len(ids), terms) is None


INTEGER_FORMS = st.one_of(
    st.integers(-(10**3), 10**3).map(str),
    st.integers(2**58, 2**65).map(str),
    st.tuples(st.sampled_from(["", "-", "+", "-0"]), DIGITS).map("".join),
)
DECIMAL_FORMS = st.one_of(
    INTEGER_FORMS,
    st.tuples(INTEGER_FORMS, st.just("."), st.text("0123456789", max_size=20)).map("".join),
    DIGITS.map(lambda digits: "." + digits),
)
EXACT_TERMS = st.one_of(
    INTEGER_FORMS.map(lambda form: (form, "integer")),
    DECIMAL_FORMS.map(lambda form: (form, "decimal")),
    st.integers(-(2**31), 2**31 - 1).map(lambda number: (str(number), "int")),
)


@given(st.lists(st.tuples(st.integers(0, 2), EXACT_TERMS), min_size=1, max_size=12), st.integers(1, 3))
@fuzzed(300)
def test_sums_of_integers_and_decimals_of_any_length(rows: list[tuple[int, tuple[str, str]]], times: int) -> None:
    """The same rows several times over, by groups, beside fractions."""
    rows = rows * times
    terms, ids = space_of([literal(form, XSD + name).text for _, (form, name) in rows])
    keys = terms.ids([f'"{key}"' for key, _ in rows])
    table = BindingTable((KEY, X), (keys, ids), len(rows))
    found = group(table, [KEY], [(RESULT, Aggregate("SUM", X))], terms)
    sums = dict(zip(terms.texts(found.columns[0]), terms.texts(found.columns[1]), strict=True))
    for key in {key for key, _ in rows}:
        own = [term for other, term in rows if other == key]
        total = sum(Fraction(form.rstrip(".") if form[-1:] == "." else form) for form, _ in own)
        value = value_of(sums[f'"{key}"'])
        assert Fraction(value.number) == total
        assert value.datatype == XSD + ("decimal" if any(name == "decimal" for _, name in own) else "integer")
        assert text_of(computed(value.kind, value.number)) == sums[f'"{key}"'], "canonical"
    assert ExactNumbers.of_ids(np.unique(ids), len(rows), terms) is not None


@given(st.lists(EXACT_TERMS, min_size=1, max_size=12, unique=True))
@fuzzed(300)
def test_ranks_of_integers_and_decimals_of_any_length(forms: list[tuple[str, str]]) -> None:
    terms, ids = space_of([literal(form, XSD + name).text for form, name in forms])
    numbers = [Fraction(form.rstrip(".")) for form, _ in forms]
    ranks = exact_ranks(ids, terms)
    assert ranks is not None
    assert ranks.tolist() == [sorted(set(numbers)).index(number) for number in numbers]


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("1.0", "integer"),
        ("abc", "integer"),
        ("1e3", "decimal"),
        (".", "decimal"),
        ("-", "integer"),
        ("", "decimal"),
        ("1.2.3", "decimal"),
        ("300", "byte"),
        (" 1", "integer"),
        ("9" * 200, "integer"),
    ],
)
def test_ill_typed_and_very_long_forms_are_left_to_others(form: str, name: str) -> None:
    others = [f'"{number}"^^<{XSD}integer>' for number in (1, 2**62, 2**64)]
    terms, ids = space_of([*others, literal(form, XSD + name).text])
    assert ExactNumbers.of_ids(ids, len(ids), terms) is None


def test_sums_that_an_int64_could_not_hold_are_exact() -> None:
    terms, ids = space_of([f'"{2**58}"^^<{XSD}integer>', f'"-{2**58 - 1}"^^<{XSD}integer>', f'"-0.5"^^<{XSD}decimal>'])
    for places in ([0] * 1000, [1] * 1000, [0, 1, 2] * 999):
        exact = ExactNumbers.of_ids(ids, len(places), terms)
        assert exact is not None
        (total,) = exact.sums(np.array(places), np.array([0, len(places)]))
        assert total.number == sum([2**58, 1 - 2**58, Decimal("-0.5")][place] for place in places)
