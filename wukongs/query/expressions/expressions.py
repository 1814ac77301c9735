"""Evaluation of expressions over a binding table, by columns where possible, once per distinct argument otherwise.

The scalar evaluator (scalar_evaluator.py) defines every answer. Evaluation by columns gives the same:

* `&& || !` combine columns of three-valued truth, and IN and NOTIN are `=` under `||`, of many constants with sets
  (membership.py);
* `=` and `!=` of IRIs, blank nodes and strings compare ids; sameTerm compares ids of anything;
* comparisons of numbers and date-times that ids carry run in one kernel (store/value_kernels.py), all others of numbers
  and arithmetic in float64 where that is exact (number_columns.py), then with numerators of 64 bits (exact_columns.py);
* parts and casts of dates and times, and the time between two, come from ids (time_columns.py), and so do comparisons
  of dateTimes to which a constant dayTimeDuration is added;
* arithmetic and casts of constants and NOW() are done once, so `?t > NOW() - "PT5M"^^xsd:dayTimeDuration` compares ids;
* functions of strings, tests of kinds, and comparisons with what these give, run on columns of bytes
  (text_expressions.py), and so do comparisons of doubles that ids do not carry;
* IF chooses between columns of variables, constants and arithmetic;
* rows that none of these can decide go to the scalar evaluator, each distinct combination of ids once.

An expression that calls RAND, UUID, STRUUID or BNODE is evaluated for every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from wukongs.csparql.algebra import Call, Expression
from wukongs.csparql.functions import PER_ROW, calls_any
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.expressions import text_expressions, time_columns
from wukongs.query.expressions.exact_columns import OPS as EXACT_OPS
from wukongs.query.expressions.exact_columns import ExactColumn
from wukongs.query.expressions.frame import ANY_ID, STRING_ID, Frame, identity_of
from wukongs.query.expressions.membership import CONSTANTS_MIN, Elements
from wukongs.query.expressions.number_columns import (
    CHANGES,
    COMPARED,
    DOUBLE,
    EXACT,
    Numbers,
    changed,
    combine,
    compare_columns,
    negate,
    numbers_of,
    numbers_of_ids,
)
from wukongs.query.expressions.scalar_evaluator import ARITHMETIC, COMPARISONS, value_in, variables_of
from wukongs.query.expressions.truth import Truth
from wukongs.query.functions.casts import FUNCTIONS as CASTS
from wukongs.query.limits import CHARACTER_BYTES, ITEMS_PER_CHECK, OBJECT_BYTES, current
from wukongs.query.rows import numbered
from wukongs.query.terms.value_operators import effective_boolean_value
from wukongs.query.terms.values import FALSE, TRUE, Kind, Value, computed, text_of, value_of
from wukongs.store.dtypes import UNBOUND, BoolArray, Int64Array, UInt8Array
from wukongs.store.term_ids import compare_values, inlined_id, time_differences

LONG_TABLE, FEW_TIMES = 512, 4
"""If fewer than one in FEW_TIMES rows of a long table are asked for, only their terms are decoded."""
COMBINED_BYTES = 32
"""The bytes that arithmetic takes for each row: values, and what decides their kinds."""
LONG_TEXT = 1 << 16
"""Characters; after making one of more the clock is looked at."""
_NUMERIC = ARITHMETIC | CHANGES.keys() | {"NEGATE"}
_CONNECTIVES = frozenset(("&&", "||", "!", "IN", "NOTIN"))
_FOLDED = ARITHMETIC | {"NEGATE", "NOW"}
_MOMENT = Variable(".moment")
_TRUTH_VALUED = COMPARISONS | _CONNECTIVES | text_expressions.TRUTH_CALLS | {"BOUND", "SAMETERM"}


def evaluate(expression: Expression, table: BindingTable, terms: TermSpace) -> Int64Array:
    """Return the id of the expression's value in each row, UNBOUND where it is an error or unbound."""
    expression = _folded(expression, terms) if table.length else expression
    return _ids(expression, Frame(table, terms, _decoded_variables(expression)))


def holds(expression: Expression, table: BindingTable, terms: TermSpace) -> BoolArray:
    """Tell for each row whether the expression's effective boolean value is true; an error is not."""
    expression = _folded(expression, terms) if table.length else expression
    return _truth(expression, Frame(table, terms, _decoded_variables(expression))).true


def _folded(expression: Expression, terms: TermSpace) -> Expression:
    """Put values in the place of arithmetic and casts of constants and NOW(); those that are errors stay."""
    if not isinstance(expression, Call):
        return expression
    arguments = tuple(_folded(argument, terms) for argument in expression.arguments)
    if any(argument is not before for argument, before in zip(arguments, expression.arguments, strict=True)):
        expression = Call(expression.op, arguments)
    if not (expression.op in _FOLDED or expression.op in CASTS) or not all(isinstance(one, Term) for one in arguments):
        return expression
    value = value_in(expression, {}, terms.moment.row(0, 0))
    return expression if value is None else Term(text_of(value))


def _decoded_variables(expression: Expression) -> list[Variable]:
    """Return the variables whose values an expression looks at; under a columnar BOUND or sameTerm ids are enough."""
    if isinstance(expression, Call) and expression.op in ("&&", "||", "!"):
        parts = [_decoded_variables(argument) for argument in expression.arguments]
        return list(dict.fromkeys(variable for part in parts for variable in part))
    by_id = isinstance(expression, Call) and expression.op in ("BOUND", "SAMETERM")
    if by_id and isinstance(expression, Call) and not any(isinstance(part, Call) for part in expression.arguments):
        return []
    return sorted(variables_of(expression), key=lambda variable: variable.name)


# --- truth ------------------------------------------------------------------------------------------------------------


def _truth(expression: Expression, frame: Frame) -> Truth:
    """Return the effective boolean value of an expression in each row."""
    if isinstance(expression, Variable):
        return Truth.of_each([effective_boolean_value(value) for value in frame.values]).take(frame.places(expression))
    if not isinstance(expression, Call):
        return _scalar_truth(expression, frame)
    op, arguments = expression.op, expression.arguments
    if op in _CONNECTIVES:
        if op in ("IN", "NOTIN") and calls_any(arguments[0], PER_ROW):
            return _scalar_truth(expression, frame)  # which draws once, not once per element
        return _connective(op, arguments, frame)
    if op in COMPARISONS:
        return _comparison(op, arguments[0], arguments[1], frame)
    if op == "SAMETERM":
        left, right = (_ids(argument, frame) for argument in arguments)
        return Truth.of(left == right, (left != UNBOUND) & (right != UNBOUND))
    if op == "BOUND" and isinstance(arguments[0], Variable):
        is_bound = frame.table.column(arguments[0]) != UNBOUND
        return Truth(is_bound, ~is_bound)
    if op in text_expressions.TRUTH_CALLS or op in text_expressions.TERM_CALLS:
        return _text_truth(expression, frame)
    return _scalar_truth(expression, frame)


def _text_truth(expression: Call, frame: Frame) -> Truth:
    """Work a function of strings out on columns, where that can be done."""
    found = text_expressions.truth_of(expression, frame)
    if found is None:
        return _scalar_truth(expression, frame)
    truth, known = found
    return _settled(expression, truth, ~known, frame)


def _settled(expression: Expression, truth: Truth, is_open: BoolArray, frame: Frame) -> Truth:
    """Ask the scalar evaluator about the rows that are still open."""
    rows = np.flatnonzero(is_open)
    if not len(rows):
        return truth
    rest = _scalar_truth(expression, frame, rows)
    true, false = truth.true.copy(), truth.false.copy()
    true[rows], false[rows] = rest.true, rest.false
    return Truth(true, false)


def _scalar_truth(expression: Expression, frame: Frame, rows: Int64Array | None = None) -> Truth:
    values, places = _scalar_values(expression, frame, rows)
    return Truth.of_each([effective_boolean_value(value) for value in values]).take(places)


def _connective(op: str, arguments: tuple[Expression, ...], frame: Frame) -> Truth:
    if op == "!":
        return ~_truth(arguments[0], frame)
    if op in ("&&", "||"):
        left, right = (_truth(argument, frame) for argument in arguments)
        return left & right if op == "&&" else left | right
    found = _membership(arguments[0], arguments[1:], frame)
    return found if op == "IN" else ~found


def _membership(member: Expression, elements: Sequence[Expression], frame: Frame) -> Truth:
    is_long = len(elements) >= CONSTANTS_MIN
    if not isinstance(member, Variable) and (is_long or _is_of_time(member, frame)):
        (member, *elements), frame = _with_columns((member, *elements), [True, *[False] * len(elements)], frame)
    nowhere = np.zeros(frame.table.length, np.bool_)
    if not elements:
        return Truth(nowhere, _ids(member, frame) != UNBOUND)
    found = Truth(nowhere, ~nowhere)
    looked_up = Elements.of(elements) if is_long else None
    for element in elements if looked_up is None else looked_up.asked:
        found = found | _comparison("=", member, element, frame)
    if looked_up is None or not isinstance(member, Variable):
        return found
    is_equal = looked_up.contain(member, frame)
    return Truth(found.true | is_equal, found.false & ~is_equal)


def _comparison(op: str, left: Expression, right: Expression, frame: Frame) -> Truth:
    """Compare inlined values, then as float64s, by ids, as texts, then one by one; each way takes only rows that are
    open."""
    if _is_of_time(left, frame) or _is_of_time(right, frame):
        sides = (left, right)
        (left, right), frame = _with_columns(sides, [_is_of_time(side, frame) for side in sides], frame)
    truth, is_open = _compare_inlined(op, left, right, frame)
    for compare in (_compare_numbers, _compare_differences, _compare_shifted, _compare_ids, text_expressions.compare):
        if not is_open.any():
            return truth
        if found := compare(op, left, right, frame):
            decided = found[1] & is_open
            truth = Truth(truth.true | (found[0].true & decided), truth.false | (found[0].false & decided))
            is_open = is_open & ~decided
    return _settled(Call(op, (left, right)), truth, is_open, frame)


def _with_columns(
    expressions: Sequence[Expression], are_moved: Sequence[bool], frame: Frame
) -> tuple[list[Expression], Frame]:
    """Put the values of some expressions into columns: (expressions with variables in their place, their frame)."""
    held, table = list(expressions), frame.table
    variables, columns = list(table.variables), list(table.columns)
    for place in np.flatnonzero(are_moved).tolist():
        variables.append(Variable(f".column{len(variables)}"))
        columns.append(_ids(held[place], frame))
        held[place] = variables[-1]
    used = frozenset().union(*map(variables_of, held))
    table = BindingTable(tuple(variables), tuple(columns), table.length)
    return held, Frame(table, frame.terms, sorted(used, key=lambda variable: variable.name))


def _compare_inlined(op: str, left: Expression, right: Expression, frame: Frame) -> tuple[Truth, BoolArray]:
    """Compare inlined numbers, and inlined date-times that have a zone: (truth, where it is open)."""
    length = frame.table.length
    if frame.terms.inlines:
        first, second = _inlined_ids(left, frame), _inlined_ids(right, frame)
        if first is not None and second is not None:
            verdicts = compare_values(op, first, second, length)
            return Truth(verdicts == 1, verdicts == 0), verdicts == -1
    nowhere = np.zeros(length, np.bool_)
    return Truth(nowhere, nowhere), ~nowhere


def _inlined_ids(leaf: Expression, frame: Frame) -> Int64Array | None:
    """Return the ids of a variable or the one of a constant; None for a constant that is not inlined, and for calls."""
    if isinstance(leaf, Variable):
        return frame.table.column(leaf)
    return inlined_id(leaf.text) if isinstance(leaf, Term) else None


def _compare_differences(op: str, left: Expression, right: Expression, frame: Frame) -> tuple[Truth, BoolArray] | None:
    """Compare the time between two with another or with a constant: (truth, where it is decided), or None for other
    expressions."""
    one = time_columns.constant_micros(left) or _micros(left, frame)
    other = time_columns.constant_micros(right) or _micros(right, frame)
    if one is None or other is None:
        return None
    (first, is_known), (second, is_too) = one, other
    decided = np.broadcast_to(is_known & is_too, frame.table.length)
    return Truth.of(np.broadcast_to(COMPARED[op](first, second), frame.table.length), decided), decided


def _compare_shifted(op: str, left: Expression, right: Expression, frame: Frame) -> tuple[Truth, BoolArray] | None:
    """Compare dateTimes to which a constant dayTimeDuration may be added: (truth, where it is decided), or None for
    other expressions."""
    if not frame.terms.inlines or not (isinstance(left, Call) or isinstance(right, Call)):
        return None
    one, other = time_columns.shifted_leaf(left), time_columns.shifted_leaf(right)
    if one is None or other is None:
        return None
    micros, are_known = time_columns.date_time_differences(_ids(one[0], frame), _ids(other[0], frame))
    decided = np.broadcast_to(are_known, frame.table.length)
    return Truth.of(COMPARED[op](micros, other[1] - one[1]), decided), decided


def _micros(expression: Expression, frame: Frame) -> tuple[Int64Array, BoolArray] | None:
    """Return the microseconds between two dates or times in each row, and where they are known; None for other
    expressions."""
    ends = _ends(expression, frame)
    return None if ends is None else time_differences(*ends)


def _ends(expression: Expression, frame: Frame) -> list[Int64Array] | None:
    """Return the ids of both sides of a `-` that may stand between two dates or times; None for other expressions."""
    if not isinstance(expression, Call) or expression.op != "-" or not frame.terms.inlines:
        return None
    if any(
        isinstance(side, Call) and side.op != "NOW" and not _is_of_time(side, frame) for side in expression.arguments
    ):
        return None
    return [_ids(side, frame) for side in expression.arguments]


def _compare_numbers(op: str, left: Expression, right: Expression, frame: Frame) -> tuple[Truth, BoolArray] | None:
    """Compare as float64s: (truth, where it is decided), or None for expressions that are more than arithmetic."""
    if not ((first := _numbers(left, frame)) and (second := _numbers(right, frame))):
        return None
    truths, decided = compare_columns(op, first, second, frame.table.length)
    return Truth.of(truths, decided), decided


def _compare_ids(op: str, left: Expression, right: Expression, frame: Frame) -> tuple[Truth, BoolArray] | None:
    """Decide = or != of variables and constants by ids: (truth, decided), or None for other expressions."""
    if op not in ("=", "!=") or isinstance(left, Call) or isinstance(right, Call):
        return None
    first_ids, first = _ids(left, frame), _identity(left, frame)
    second_ids, second = _ids(right, frame), _identity(right, frame)
    decided = (np.maximum(first, second) == ANY_ID) | (np.minimum(first, second) == STRING_ID)
    is_bound = (first_ids != UNBOUND) & (second_ids != UNBOUND)
    truths = (first_ids == second_ids) == (op == "=")
    return Truth.of(truths, decided & is_bound), decided


def _identity(leaf: Expression, frame: Frame) -> UInt8Array:
    if isinstance(leaf, Variable):
        return frame.identity(leaf)
    assert isinstance(leaf, Term), leaf
    return np.full(frame.table.length, identity_of(value_of(leaf.text)), np.uint8)


# --- ids --------------------------------------------------------------------------------------------------------------


def _ids(expression: Expression, frame: Frame) -> Int64Array:
    """Return the id of an expression's value in each row."""
    if isinstance(expression, Variable):
        return frame.table.column(expression)
    if isinstance(expression, Term):
        return np.full(frame.table.length, frame.terms.ids([expression.text])[0], np.int64)
    assert isinstance(expression, Call), f"{expression} outside of a Group"
    if expression.op in _TRUTH_VALUED:
        truth = _truth(expression, frame)
        true_id, false_id = frame.terms.ids([text_of(TRUE), text_of(FALSE)])
        return np.where(truth.true, true_id, np.where(truth.false, false_id, UNBOUND))
    if expression.op == "IF" and all(map(_is_plain, expression.arguments[1:])):
        return _if_ids(expression.arguments, frame)
    if _is_of_time(expression, frame):
        return _time_ids(expression, frame)
    if expression.op in _NUMERIC:
        return _number_ids(expression, frame)
    if expression.op in text_expressions.TERM_CALLS and (found := text_expressions.term_column(expression, frame)):
        return _distinct_ids(found.column.texts(), frame)[found.places]
    return _scalar_ids(expression, frame)


def _is_of_time(expression: Expression, frame: Frame) -> TypeGuard[Call]:
    """Tell whether an expression is a function of one date or time that can be read off an id."""
    if not isinstance(expression, Call) or expression.op not in time_columns.CALLS:
        return False
    return len(expression.arguments) == 1 and frame.terms.inlines


def _time_ids(expression: Call, frame: Frame) -> Int64Array:
    """Read a part of dates and times off their ids; other rows go to the scalar evaluator."""
    argument = _ids(expression.arguments[0], frame)
    ids, is_open = time_columns.applied(expression.op, argument, frame.terms)
    rows = np.flatnonzero(is_open)
    if len(rows):
        table = BindingTable((_MOMENT,), (argument[rows],), len(rows))
        ids[rows] = _scalar_ids(Call(expression.op, (_MOMENT,)), Frame(table, frame.terms, [_MOMENT]))
    return ids


def _number_ids(expression: Call, frame: Frame) -> Int64Array:
    numbers = _numbers(expression, frame)
    if numbers is None:
        return _scalar_ids(expression, frame)
    length = frame.table.length
    current().hold(4 * 8 * length)  # ids, rows with a value and rows without, values
    values, kinds = np.broadcast_to(numbers.values, length), np.broadcast_to(np.uint8(numbers.kinds), length)
    is_open = (kinds != EXACT) & (kinds != DOUBLE)
    ids = np.empty(length, np.int64)
    done, rest = np.flatnonzero(~is_open), np.flatnonzero(is_open)
    if len(done):
        # By bits, since 0.0 and -0.0 are two terms.
        places, firsts = numbered([values[done].view(np.int64), kinds[done].astype(np.int64)], len(done))
        pairs = zip(values[done[firsts]].tolist(), kinds[done[firsts]].tolist(), strict=True)
        texts = [
            text_of(computed(Kind.DOUBLE, number) if kind == DOUBLE else computed(Kind.INTEGER, int(number)))
            for number, kind in pairs
        ]
        ids[done] = frame.terms.ids(texts)[places]
    if len(rest) and (exact := _exact(expression, frame, rest)) is not None:
        found, is_exact = exact.ids(frame.terms)
        ids[rest[is_exact]] = found[is_exact]
        rest = rest[~is_exact]
    if len(rest) and (ends := _ends(expression, frame)):
        ids[rest], is_open = time_columns.difference(ends[0][rest], ends[1][rest], frame.terms)
        rest = rest[is_open]
    if len(rest) and frame.terms.inlines and (leaf := time_columns.shifted_leaf(expression)):
        ids[rest], is_open = time_columns.shifted_date_times(_ids(leaf[0], frame)[rest], leaf[1], frame.terms)
        rest = rest[is_open]
    if len(rest):
        ids[rest] = _scalar_ids(expression, frame, rest)
    return ids


def _exact(expression: Expression, frame: Frame, rows: Int64Array) -> ExactColumn | None:
    """Return the exact numbers of an expression in some rows; None if ids carry no values, or it is more than + - and *
    of variables and constants."""
    if not frame.terms.inlines:
        return None
    if not isinstance(expression, Call):
        return ExactColumn.of_ids(_ids(expression, frame)[rows], frame.terms)
    if expression.op not in EXACT_OPS:
        return None
    columns = [_exact(argument, frame, rows) for argument in expression.arguments]
    known = [column for column in columns if column is not None]
    if len(known) < len(columns):
        return None
    current().hold(COMBINED_BYTES * len(rows))
    return known[0].negated() if expression.op == "NEGATE" else known[0].combined(expression.op, known[1])


def _is_plain(expression: Expression) -> bool:
    """Return whether an expression is a variable, a constant, or arithmetic of such."""
    if not isinstance(expression, Call):
        return True
    return expression.op in EXACT_OPS and all(map(_is_plain, expression.arguments))


def _if_ids(arguments: tuple[Expression, ...], frame: Frame) -> Int64Array:
    """Choose between two columns by a condition; an error in it is one of the whole."""
    truth = _truth(arguments[0], frame)
    first, second = (_ids(branch, frame) for branch in arguments[1:])
    return np.where(truth.true, first, np.where(truth.false, second, UNBOUND))


def _scalar_ids(expression: Expression, frame: Frame, rows: Int64Array | None = None) -> Int64Array:
    values, places = _scalar_values(expression, frame, rows)
    return _distinct_ids([None if value is None else text_of(value) for value in values], frame)[places]


def _distinct_ids(texts: Sequence[str | None], frame: Frame) -> Int64Array:
    """Return the ids of canonical forms, UNBOUND for an error."""
    known = [text for text in texts if text is not None]
    if len(known) == len(texts):
        return frame.terms.ids(known)
    ids = np.full(len(texts), UNBOUND, np.int64)
    ids[[text is not None for text in texts]] = frame.terms.ids(known)
    return ids


# --- numbers and single values ----------------------------------------------------------------------------------------


def _numbers(expression: Expression, frame: Frame) -> Numbers | None:
    """Return an expression's column of numbers; None if it calls more than numeric functions."""
    if isinstance(expression, Variable):
        return frame.numbers(expression)
    if isinstance(expression, Term):
        return numbers_of([value_of(expression.text)])
    if isinstance(expression, Call) and expression.op == "STRLEN":
        return text_expressions.lengths(expression.arguments[0], frame)
    if _is_of_time(expression, frame):
        return numbers_of_ids(_ids(expression, frame))
    if not isinstance(expression, Call) or expression.op not in _NUMERIC:
        return None
    columns = [
        frame.numbers(argument, with_texts=True) if isinstance(argument, Variable) else _numbers(argument, frame)
        for argument in expression.arguments
    ]
    known = [column for column in columns if column is not None]
    if len(known) < len(columns):
        return None
    if expression.op in CHANGES:
        return changed(expression.op, known[0]) if len(known) == 1 else None
    current().hold(COMBINED_BYTES * frame.table.length)
    return negate(known[0]) if expression.op == "NEGATE" else combine(expression.op, *known)


def _scalar_values(
    expression: Expression, frame: Frame, rows: Int64Array | None
) -> tuple[list[Value | None], Int64Array]:
    """Evaluate an expression once per distinct combination of its variables' ids, in some rows or in all.

    Returns
    -------
    values : list of Value or None      One for each combination.
    places : int64[n_rows]              The place of each row's combination in it."""
    used = sorted(variables_of(expression), key=lambda variable: variable.name)
    length = frame.table.length if rows is None else len(rows)
    numbers_of_rows = rows
    if rows is not None and FEW_TIMES * len(rows) < frame.table.length - LONG_TABLE and not frame.is_decoded:
        frame, rows = Frame(frame.table.take(rows), frame.terms, used), None
    columns = [frame.places(variable) if rows is None else frame.places(variable)[rows] for variable in used]
    moment = frame.terms.moment
    if calls_any(expression, PER_ROW):
        current().hold(OBJECT_BYTES * length)
        places = np.arange(length, dtype=np.int64)
        draw, numbers = moment.next_draw(), (places if numbers_of_rows is None else numbers_of_rows).tolist()
        sources = [moment.row(draw, number) for number in numbers]
    else:
        places, firsts = numbered(columns, length)
        columns = [column[firsts] for column in columns]
        sources = [moment.row(0, 0)] * len(firsts)
    current().hold(8 * (len(used) + 1) * len(sources))
    arguments = [[frame.values[place] for place in column.tolist()] for column in columns]
    solutions = zip(*arguments, strict=True) if used else [()] * len(sources)
    limits = current()
    values = []
    for number, (solution, source) in enumerate(zip(solutions, sources, strict=True)):
        if number % ITEMS_PER_CHECK == 0:
            limits.check()
        value = value_in(expression, dict(zip(used, solution, strict=True)), source)
        values.append(value)
        size = 0 if value is None else len(value.lexical)
        limits.hold(OBJECT_BYTES + CHARACTER_BYTES * size)
        if size > LONG_TEXT:
            limits.check()
    return values, places
