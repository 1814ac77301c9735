"""Functions of strings on columns against the scalar evaluator, over terms of every kind, stored and computed.

Ids are the store's (short literals are in them, the rest in dictionaries) or those of a plain list.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.term_spaces import ListTermSpace
from wukongs.csparql.algebra import Call, Expression
from wukongs.csparql.terms import RDF, XSD, Term, Variable, literal
from wukongs.query.binding_table import BindingTable
from wukongs.query.expressions import text_column, text_expressions
from wukongs.query.expressions import text_functions as functions
from wukongs.query.expressions import text_truths as truths
from wukongs.query.expressions.expressions import evaluate, holds
from wukongs.query.expressions.scalar_evaluator import value_in
from wukongs.query.expressions.text_column import TextColumn
from wukongs.query.expressions.text_expressions import TERM_CALLS, TRUTH_CALLS
from wukongs.query.expressions.text_kernels import take_apart
from wukongs.query.terms import arrow_texts
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.query.terms.value_operators import effective_boolean_value
from wukongs.query.terms.values import text_of, value_of
from wukongs.store.dtypes import UNBOUND
from wukongs.store.term_registry import TermRegistry


@pytest.fixture(autouse=True, scope="module")
def _columns_of_any_length() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_expressions, "ROWS_MIN", 0)
        yield


X, Y = Variable("x"), Variable("y")

LETTERS = ["a", "B", "ß", "İ", "Σ", "ς", "ΟΔΟΣ", "é", "é", "😀", "ﬁ", "ǅ", "ͅ"]
PIECES = ("", *LETTERS, '"', "\\", "\n", "-", "@en", "^^<x>", ".", "\x00", " ")
LEXICALS = st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
TAGS = st.sampled_from(["en", "en-gb", "de", "x", "ar--rtl", "en--ltr"])
XSD_TYPES = ["integer", "double", "boolean", "dateTime", "int", "float", "decimal"]
DATATYPES = st.sampled_from([*(XSD + name for name in XSD_TYPES), "http://e/t", RDF + "XMLLiteral"])
NUMBERS = st.sampled_from(["1", "-7", "01", "2.50", "1e3", "true", "0.1234567890123456789", "NaN", "x"])
OTHERS = st.sampled_from(
    [*["<http://e/a>", "<http://e/é>", "<>", "<a>", "_:b0", "_:b1"], '(<a> <b> "a b"@en)', "(<a> <b> <c>)"]
)


def _tagged(pair: tuple[str, str]) -> str:
    return f'"{pair[0]}"@{pair[1]}'


def _typed(pair: tuple[str, str]) -> str:
    return literal(*pair).text


TERMS = st.one_of(
    LEXICALS.map(lambda lexical: literal(lexical).text),
    LEXICALS.map(lambda lexical: literal(lexical * 5).text),
    st.tuples(LEXICALS, TAGS).map(_tagged),
    st.tuples(LEXICALS, DATATYPES).map(_typed),
    st.tuples(NUMBERS, DATATYPES).map(_typed),
    OTHERS,
)
STRINGS = st.one_of(LEXICALS.map(lambda lexical: literal(lexical).text), st.tuples(LEXICALS, TAGS).map(_tagged))
ROWS = st.lists(st.tuples(*[st.one_of(TERMS, STRINGS, st.none())] * 2), max_size=12)
PATTERNS = st.sampled_from(["a", "^a", "a$", "^$", "", "[a-zß]+", "(a)(B)?", "(.)\\1", "[", "a|é", "\\.", "^.$"])
INTEGERS = st.sampled_from(
    [*(f'"{number}"^^<{XSD}integer>' for number in (0, 1, 2, -3, 10**20, -(10**20))), f'"1.5"^^<{XSD}decimal>', '"1"']
)


def _plain(text: str) -> Term:
    return literal(text)


def _calls(op: str, *arguments: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.tuples(*arguments).map(lambda found: Call(op, found))


def _deeper(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """Every function that runs on columns, with constants where it wants them and where it has to do without."""
    pattern, flags = PATTERNS.map(_plain), st.sampled_from(["", "i", "q", "z"]).map(_plain)
    by = st.sampled_from(["", "x", "$1$1", "$", "\\\\", "long " * 60]).map(_plain)
    number = INTEGERS.map(Term)
    unary = [op for op in sorted(TERM_CALLS | TRUTH_CALLS) if op.startswith(("IS", "HAS", "LANG", "STR"))]
    unary = [op for op in unary if op not in ("LANGMATCHES", "STRSTARTS", "STRENDS", "STRBEFORE", "STRAFTER")]
    unary += ["DATATYPE", "UCASE", "LCASE", "ENCODE_FOR_URI", "MD5", "SHA256", "!"]
    binary = ["CONTAINS", "STRSTARTS", "STRENDS", "STRBEFORE", "STRAFTER", "LANGMATCHES", "CONCAT", "&&", "||"]
    binary += ["=", "!=", "<", ">", "<=", ">="]
    return st.one_of(
        st.sampled_from(unary).flatmap(lambda op: _calls(op, parts)),
        st.sampled_from(binary).flatmap(lambda op: _calls(op, parts, parts)),
        _calls("CONCAT", parts, parts, parts),
        _calls("SUBSTR", parts, number),
        _calls("SUBSTR", parts, number, number),
        _calls("SUBSTR", parts, _calls("STRLEN", parts)),
        _calls("REGEX", parts, pattern),
        _calls("REGEX", parts, pattern, flags),
        _calls("REGEX", parts, parts),
        _calls("REPLACE", parts, pattern, by),
        _calls("REPLACE", parts, pattern, by, flags),
        _calls("IF", parts, parts, parts),
        _calls("IN", parts, parts, parts),
    )


LEAVES = st.one_of(st.sampled_from([X, X, X, Y]), st.one_of(STRINGS, STRINGS, TERMS).map(Term))
EXPRESSIONS = st.recursive(LEAVES, _deeper, max_leaves=6)


def check(expression: Expression, rows: Sequence[Sequence[str | None]]) -> None:
    """Compare columns, over both kinds of ids, with what the scalar evaluator says of each row."""
    solutions = [
        {variable: None if text is None else value_of(text) for variable, text in zip((X, Y), row, strict=True)}
        for row in rows
    ]
    values = [value_in(expression, solution) for solution in solutions]
    expected = [None if value is None else text_of(value) for value in values]
    wanted = [effective_boolean_value(value) is True for value in values]

    space = ListTermSpace()
    table = space.table("x y", rows)
    assert space.column(evaluate(expression, table, space)) == expected
    assert holds(expression, table, space).tolist() == wanted

    registry = TermRegistry()
    registry.keep_all(sorted({text for row in rows[::2] for text in row if text is not None}))
    terms = QueryTerms(registry, registry.snapshot_reader())
    columns = [
        np.array([UNBOUND if text is None else terms.ids([text])[0] for text in column], np.int64)
        for column in (zip(*rows, strict=True) if rows else ((), ()))
    ]
    table = BindingTable((X, Y), tuple(columns), len(rows))
    ids = evaluate(expression, table, terms)
    found = [None if item == UNBOUND else terms.texts(ids[row : row + 1])[0] for row, item in enumerate(ids.tolist())]
    assert found == expected
    assert holds(expression, table, terms).tolist() == wanted


@given(EXPRESSIONS, ROWS)
@fuzzed(500)
def test_any_expression(expression: Expression, rows: list[tuple[str | None, ...]]) -> None:
    check(expression, rows)


@pytest.mark.parametrize("op", ["CONTAINS", "STRSTARTS", "STRENDS", "STRBEFORE", "STRAFTER", "LANGMATCHES"])
def test_over_no_rows(op: str) -> None:
    check(Call(op, (X, X)), [])


@given(EXPRESSIONS, st.lists(st.tuples(STRINGS, STRINGS), max_size=12))
@fuzzed(300)
def test_any_expression_over_strings(expression: Expression, rows: list[tuple[str | None, ...]]) -> None:
    check(expression, rows)


ALL: list[str | None] = [
    *(f'"{lexical}"{tail}' for lexical in ("a", "", "ab") for tail in ("", "@en", "@fr", "@ar--rtl")),
    *('"B"', '"ß"', '"a longer text \U0001f600"', '"a"^^<http://e/t>', '"b"^^<http://e/t>'),
    *(f'"{lexical}"^^<{XSD}{name}>' for lexical in ("1", "01", "x") for name in ("integer", "boolean", "double")),
    *("<a>", "<b>", "_:a", "_:b", "(<a> <b> <c>)"),
    *(f'(<a> <b> "{lexical}"^^<{XSD}int>)' for lexical in ("1", "01")),
    None,
]
PAIRED = ["=", "!=", "<", ">", "<=", ">=", *truths.TESTS, *functions.BINARY, "CONCAT"]
WITH_PART = ["CONTAINS", "STRSTARTS", "STRENDS", "STRBEFORE", "STRAFTER", "REGEX", "LANGMATCHES"]


@pytest.mark.parametrize("op", PAIRED)
def test_all_pairs(op: str) -> None:
    """Both are variables, or one of them is a constant."""
    check(Call(op, (X, Y)), list(itertools.product(ALL, ALL)))
    rows = [(text, None) for text in ALL]
    for constant in ('"a"', '"a"@en', '""', "<a>", f'"1"^^<{XSD}integer>', '"a"^^<http://e/t>', "(<a> <b> <c>)"):
        check(Call(op, (X, Term(constant))), rows)
        check(Call(op, (Term(constant), X)), rows)


@pytest.mark.parametrize("op", sorted(TERM_CALLS | TRUTH_CALLS))
def test_one_argument_of_each_kind(op: str) -> None:
    more: dict[str, tuple[str, ...]] = {
        **dict.fromkeys(WITH_PART, ('"a"',)),
        "SUBSTR": (f'"2"^^<{XSD}integer>',),
        "REPLACE": ('"a"', '"$0b"'),
        "CONCAT": ('"a"@en',),
    }
    check(Call(op, (X, *map(Term, more.get(op, ())))), [(text, None) for text in ALL])


def test_parts_and_pieces_give_what_one_call_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f'"{"ab" * (number % 7)}{number}é"', f'"{number % 10}"@en') for number in range(100)]
    monkeypatch.setattr(arrow_texts, "PART_BYTES", 40)
    monkeypatch.setattr(text_column, "GATHERED_AT_ONCE", 9)
    for op in ("UCASE", "STRLEN", "MD5", "LCASE", "ENCODE_FOR_URI"):
        check(Call(op, (X,)), [*rows, (None, "_:b")])
    for op in ("CONTAINS", "STRBEFORE", "CONCAT", "REGEX", "="):
        check(Call(op, (X, Term('"b1"'))), rows)
        check(Call(op, (X, Call("STR", (Y,)))), rows)


@given(st.lists(st.one_of(TERMS, STRINGS), max_size=20))
@fuzzed(200)
def test_terms_come_apart_and_together(texts: list[str]) -> None:
    column = TextColumn.of_texts(texts)
    space = ListTermSpace()
    gathered = space.gather(space.ids(texts))
    for one, other in zip(take_apart(*gathered), take_apart.py_func(*gathered), strict=True):
        assert one.tolist() == other.tolist()
    assert column.texts() == texts
    values = [value_of(text) for text in texts]
    assert np.array(column.names)[column.tails].tolist() == [
        value.language or (value.datatype if text[-1] == ">" and value.is_literal else "")
        for value, text in zip(values, texts, strict=True)
    ]
    order = np.arange(len(texts))[::-1]
    assert column.take(order).texts() == texts[::-1]


@given(st.lists(st.one_of(TERMS, STRINGS), max_size=12, unique=True), st.integers(1, 3))
@fuzzed(100)
def test_computed_terms_are_gathered_among_those_of_the_data(texts: list[str], every: int) -> None:
    registry = TermRegistry()
    registry.keep_all(texts[::every])
    terms = QueryTerms(registry, registry.snapshot_reader())
    ids = terms.ids(texts)
    expected = ListTermSpace()
    for some in (ids, ids[::-1].copy(), ids[::every], ids[1::2].copy()):
        data, offsets = terms.gather(some)
        found, bounds = expected.gather(expected.ids(terms.texts(some)))
        assert (data.tobytes(), offsets.tolist()) == (found.tobytes(), bounds.tolist())
        assert data.flags.writeable
