"""IN of many constants, which looks them up, against the scalar evaluator, which compares one with each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.property.test_expressions import NUMBERS, POOL, X, Y, Z, check_columns, check_store_ids
from wukongs.csparql.algebra import Call, Expression
from wukongs.csparql.terms import Term
from wukongs.query.expressions.membership import CONSTANTS_MIN

MEMBERS = [X, Call("+", (X, Term(NUMBERS[0]))), Call("STR", (X,)), Term(NUMBERS[7])]


@given(
    st.sampled_from(["IN", "NOTIN"]),
    st.sampled_from(MEMBERS),
    st.lists(st.sampled_from([*POOL, "_:b0"]).map(Term), min_size=CONSTANTS_MIN, max_size=24),
    st.sampled_from([(), (Y,), (Call("+", (Y, Z)),)]),
)
@fuzzed(150)
def test_membership_in_many_constants(
    op: str, member: Expression, constants: list[Term], others: tuple[Expression, ...]
) -> None:
    members = [*POOL, "_:b0", None]
    table_rows = [(text, members[-place], NUMBERS[place % 7]) for place, text in enumerate(members)]
    expression = Call(op, (member, *others, *constants))
    check_store_ids(expression, table_rows)
    if member == X:
        check_columns(expression, table_rows)
