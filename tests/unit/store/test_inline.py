"""store/inline_kernels.py and unpack_kernels.py: which literals are inlined, and what they are worth."""

from __future__ import annotations

import math
import operator
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from tests.oracles.ntriples import XSD
from wukongs.store import inline_kernels, terms, unpack_kernels, value_kernels
from wukongs.store.term_ids import DATATYPE_NAMES, DATATYPES, compare_values, integer_ids
from wukongs.store.terms import decimal_parts, numeric_values, term_id, unpack

INLINED = {
    "double": "0.0 -0.0 1.0 -1.50 5 -0 0 123456789.25 9007199254740991 0.0000000000000000000001 900719925474099.1 "
    "1e0 1E0 0E0 0.0E0 -0.0E0 1.0E-7 1.5e-07 1e+05 2.50E+05 -9.99999999999999E22 1e-10 1e22 1E-22 "
    "1.00000000000000E36 1e5 0.0e+00 1E-8 9E-22",
    "decimal": "1.00 1.0 -3 0.10 9007199254740991",
    "float": "2.5 -7 0.1 562949953421311 1e0 1.401298E-10 -3.402823e+20 0.0E0 9.999999999999E22",
    "integer": "0 -1 7 576460752303423487 -576460752303423488 100",
    "boolean": "true false 1 0",
    "dateTime": "2014-08-11T11:00:00 2014-08-11T11:00:00Z 2014-08-11T11:00:00.000 2012-02-29T23:59:59.999-12:00 "
    "0001-01-01T00:00:00 9999-12-31T23:59:59.999+14:00 2014-01-01T00:00:00.1 9999-12-31T23:59:59.99+14:00 "
    "0001-01-01T00:00:00.00 1950-01-01T00:00:00.000000 2119-10-01T23:59:59.999999+14:00 2014-08-11T11:00:00.000001Z "
    "2000-02-29T00:00:00+00:00 2014-01-01T00:00:00-00:15",
    "date": "2014-02-28 2014-02-28Z 1600-02-29+05:45 0001-01-01 9999-12-31-12:00",
    "int": "2147483647 -2147483648",
    "long": "18014398509481983 -18014398509481984",
    "short": "32767 -32768",
    "byte": "127 -128",
    "nonNegativeInteger": "0 5",
    "positiveInteger": "1",
    "nonPositiveInteger": "0 -1",
    "negativeInteger": "-1",
    "unsignedLong": "0 18014398509481983",
    "unsignedInt": "4294967295",
    "unsignedShort": "65535",
    "unsignedByte": "255 0",
}
INLINED_STRINGS = ['""', '"a"', '"1234567"', '"\\"', '"""', '"\n\x00\x7f"', '"a^^<b>"', '"@en"', '"5"']
IN_DICTIONARY = {
    "double": "1e 1E+0 1E+5 1e-0 1e-00 1E-0 1E007 1e+100 01e0 0.5E0 00E0 0.00E0 12E0 12.5E3 1.E5 .5E5 +1E0 1E 1E+ E5 "
    "1.000000000000000E0 1E37 1e23 1.0E-23 1.23E-21 1D5 1.0e5x -E5 INF NaN "
    "+1.0 01.0 .5 5. -.5 - -. 1.0.0 "
    "9007199254740992 0.00000000000000000000001 1..0 1,0",
    "decimal": "+1.0 00 00.1 1.",
    "float": "1.0000000000000E0 562949953421312 -INF 1e-45",
    "integer": "01 +1 -0 576460752303423488 -576460752303423489 1.0 1e3 - abc 99999999999999999999999 ١",
    "boolean": "TRUE True 2 00 tru falsy truth",
    "dateTime": "2014-02-29T00:00:00 1900-02-29T00:00:00 2014-13-01T00:00:00 2014-00-01T00:00:00 2014-01-00T00:00:00 "
    "2014-01-01T24:00:00 2014-01-01T00:60:00 2014-01-01T00:00:60 0000-01-01T00:00:00 -0001-01-01T00:00:00 "
    "12014-01-01T00:00:00 2014-01-01T00:00:00-00:00 2014-01-01T00:00:00+14:15 2014-01-01T00:00:00-12:15 "
    "2014-01-01T00:00:00+01:10 2014-01-01T00:00:00.12345 2014-01-01T00:00:00.1234567 2014-01-01T00:00:00. "
    "1949-12-31T23:59:59.999999 2119-10-02T00:00:00.000000 2014-01-01T00:00:00.x 2014-01-01T00:00:00.1x "
    "2014-01-01T00:00 "
    "2014-01-01 00:00:00 2014-01-01T00:00:00z 2014-04-31T00:00:00 2014/01/01T00:00:00 2014-01-01T00:00:00ZZ",
    "date": "2014-02-29 2014-2-28 14-02-28 2014-02-30 2014-02-28+1:00 2014-02-28z",
    "int": "2147483648 -2147483649",
    "long": "18014398509481984 -18014398509481985",
    "byte": "128 -129",
    "positiveInteger": "0 -1",
    "nonPositiveInteger": "1 -0",
    "negativeInteger": "0",
    "unsignedLong": "-1",
    "unsignedByte": "256",
    "gYear": "2014",
    "doubl": "1.0",
    "doublee": "1.0",
}


def _all(table: dict[str, str]) -> list[str]:
    return [f'"{lexical}"^^<{XSD}{name}>' for name, forms in table.items() for lexical in forms.split(" ")]


@pytest.mark.nojit
def test_what_is_inlined_comes_back_to_the_letter() -> None:
    texts = [*_all(INLINED), *INLINED_STRINGS]
    ids = np.array([term_id(text) for text in texts])
    assert [text for text, term in zip(texts, ids, strict=True) if term & 1 == 0] == []
    assert len(set(ids.tolist())) == len(texts)
    data, offsets = unpack(ids)
    found = [data[start:stop].tobytes().decode() for start, stop in pairwise(offsets)]
    assert found == texts
    assert (ids > 0).all()


@pytest.mark.nojit
def test_every_other_form_goes_to_the_dictionary() -> None:
    texts = [
        *_all(IN_DICTIONARY),
        '"12345678"',
        '"é"',
        '"5"@en',
        '"5"^^<http://www.w3.org/2001/XMLSchema-integer>',
        "<http://x/1>",
    ]
    assert [text for text in texts if term_id(text) & 1] == []


NEAR_THE_MIDDLE = ["0.12507214397192", "0.36808080971241", "0.67497119307518", "0.0010408487287350", "6.8639075756073"]
NEAR_THE_MIDDLE += ["7.8942711353302", "0.0000019122156800222", "4.948190584538e+20"]
NEAR_THE_MIDDLE += ["6.105332588022E30", "6.172652038372e25", "7.361898439574E34"]


@pytest.mark.nojit
@pytest.mark.parametrize(
    ("lexical", "name", "kind", "value"),
    [
        ("7", "integer", terms.KIND_INTEGER, 7.0),
        ("-7", "byte", terms.KIND_INTEGER, -7.0),
        ("1.50", "decimal", terms.KIND_DECIMAL, 1.5),
        ("0.1", "float", terms.KIND_FLOAT, float(np.float32("0.1"))),
        ("0.1", "double", terms.KIND_DOUBLE, 0.1),
        ("1", "boolean", terms.KIND_BOOLEAN, 1.0),
        ("1.5E-3", "double", terms.KIND_DOUBLE, 0.0015),
        ("-9.99999999999999e22", "double", terms.KIND_DOUBLE, -9.99999999999999e22),
        ("1e+05", "float", terms.KIND_FLOAT, 1e5),
        ("1970-01-01T00:00:01.5Z", "dateTime", terms.KIND_DATE_TIME, 1500.0),
        ("1970-01-01T00:00:01.25+00:15", "dateTime", terms.KIND_DATE_TIME, 1250.0 - 900_000),
        ("1970-01-01T00:00:01.000001", "dateTime", terms.KIND_DATE_TIME_LOCAL, 1000.001),
        ("1969-12-31T23:59:59.999999Z", "dateTime", terms.KIND_DATE_TIME, -0.001),
        ("false", "boolean", terms.KIND_BOOLEAN, 0.0),
        ("1970-01-01T00:00:01.500Z", "dateTime", terms.KIND_DATE_TIME, 1500.0),
        ("1970-01-01T02:00:00+02:00", "dateTime", terms.KIND_DATE_TIME, 0.0),
        ("1969-12-31T23:59:59", "dateTime", terms.KIND_DATE_TIME_LOCAL, -1000.0),
        ("1970-01-02Z", "date", terms.KIND_DATE, 86_400_000.0),
        ("1970-01-01-01:00", "date", terms.KIND_DATE, 3_600_000.0),
        ("1970-01-01", "date", terms.KIND_DATE_LOCAL, 0.0),
    ],
)
def test_values(lexical: str, name: str, kind: int, value: float) -> None:
    kinds, values = numeric_values(np.array([term_id(f'"{lexical}"^^<{XSD}{name}>')]))
    assert (kinds[0], values[0]) == (kind, value)


@pytest.mark.nojit
def test_what_is_not_inlined_has_no_value() -> None:
    kinds, values = numeric_values(np.array([term_id("<http://x>"), -1, -2, term_id('"5"')]))
    assert kinds.tolist() == [terms.KIND_NONE] * 4
    assert np.isnan(values).all()
    assert decimal_parts(np.array([term_id("<http://x>"), -1, term_id('"5"')]))[1].tolist() == [-1, -1, -1]


@pytest.mark.nojit
def test_negative_zero_keeps_its_sign() -> None:
    _, values = numeric_values(np.array([term_id(f'"-0.0"^^<{XSD}double>')]))
    assert math.copysign(1, values[0]) == -1


@pytest.mark.nojit
@pytest.mark.parametrize("lexical", NEAR_THE_MIDDLE)
def test_a_float_is_rounded_once(lexical: str) -> None:
    """The double that is nearest to it lies midway between two floats, the number itself beside the middle."""
    for sign, factor in (("", 1), ("-", -1)):
        _, values = numeric_values(np.array([term_id(f'"{sign}{lexical}"^^<{XSD}float>')]))
        single, exact = np.float32(values[0]), factor * Fraction(lexical)
        assert float(single) == values[0]
        others = [Fraction(float(np.nextafter(single, np.float32(end)))) for end in (-np.inf, np.inf)]
        assert all(abs(Fraction(float(single)) - exact) < abs(other - exact) for other in others)


@pytest.mark.nojit
def test_decimal_parts_are_exact() -> None:
    ids = np.array([term_id(f'"{text}"^^<{XSD}decimal>') for text in ("-1.50", "3", "0.001")])
    more = [term_id(f'"{text}"^^<{XSD}double>') for text in ("1.5E3", "-2.5e-07", "1E22", "9.99E2")]
    numerators, scales = decimal_parts(np.array([*ids, *more]))
    found = list(zip(numerators.tolist(), scales.tolist(), strict=True))
    assert found == [(-150, 2), (3, 0), (1, 3), (1500, 0), (-25, 8), (0, -1), (999, 0)]


def test_ids_of_a_run_of_numbers_are_spread_evenly() -> None:
    """A shard is a range of the top bits: 64 of them should get about the same share of 64,000 consecutive numbers."""
    ids = np.array([term_id(f'"{number}"^^<{XSD}integer>') for number in range(64_000)])
    shares = np.bincount(ids >> 57, minlength=64)
    assert shares.min() > 800
    assert shares.max() < 1200


@pytest.mark.nojit
def test_kernels_equal_their_py_funcs() -> None:
    texts = _all(INLINED) + _all(IN_DICTIONARY)
    pack = getattr(inline_kernels.pack_literal, "py_func", inline_kernels.pack_literal)
    typed = getattr(inline_kernels.pack_typed, "py_func", inline_kernels.pack_typed)
    write = getattr(unpack_kernels.write_literal, "py_func", unpack_kernels.write_literal)
    values = getattr(value_kernels.numeric_values, "py_func", value_kernels.numeric_values)
    with np.errstate(over="ignore"):
        for text in texts:
            data = np.frombuffer(text.encode(), np.uint8)
            quote = text.encode().rindex(b'"')
            term = int(pack(data, 1, quote, quote + 4, len(data) - 1, DATATYPE_NAMES, DATATYPES))
            assert term == (term_id(text) if term_id(text) & 1 else -1), text
            code = inline_kernels.type_code(data, quote + 4, len(data) - 1, DATATYPE_NAMES, DATATYPES)
            assert int(typed(data, 1, quote, code, DATATYPES)) == term, text
            if term >= 0:
                out = np.zeros(unpack_kernels.LITERAL_SIZE_MAX, np.uint8)
                end = int(write(np.int64(term), out, np.int64(0), DATATYPE_NAMES, DATATYPES))
                assert out[:end].tobytes() == text.encode()
        ids = np.array([term_id(text) for text in texts])
        for found, expected in zip(values(ids), numeric_values(ids), strict=True):
            np.testing.assert_array_equal(found, expected)
        compare = getattr(value_kernels.compare_values, "py_func", value_kernels.compare_values)
        for first in ids[::7]:
            one, verdicts = np.array([first]), np.empty(len(ids), np.int8)
            compare(value_kernels.OP_LESS, one, ids, verdicts)
            np.testing.assert_array_equal(verdicts, compare_values("<", one, ids, len(ids)))


COMPARISONS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


@pytest.mark.nojit
def test_inlined_values_are_compared_where_float64_decides() -> None:
    integers = [f'"{number}"^^<{XSD}integer>' for number in (-3, 0, 2, 7, 2**53, 2**53 + 1)]
    decimals = [f'"{number}"^^<{XSD}decimal>' for number in ("-3.0", "0.1", "2.5", "7")]
    doubles = [f'"{number}"^^<{XSD}double>' for number in ("0.1", "-0.0", "7.0")]
    ids = np.array([term_id(text) for text in (*integers, *decimals, *doubles)])
    numbers = [Decimal(text[1 : text.rindex('"')]) for text in (*integers, *decimals, *doubles)]
    count = len(ids) - len(doubles)
    for op, expected in COMPARISONS.items():
        for at, (one, number) in enumerate(zip(ids, numbers, strict=True)):
            verdicts = compare_values(op, np.array([one]), ids, len(ids)).tolist()
            assert compare_values(op, np.full(len(ids), one), ids, len(ids)).tolist() == verdicts
            for other_at, (verdict, other) in enumerate(zip(verdicts, numbers, strict=True)):
                if at >= count or other_at >= count:  # with a double: as doubles
                    assert verdict == expected(float(number), float(other))
                elif verdict < 0:
                    assert float(number) == float(other)
                    assert at >= 4 or other_at >= 4, "two small integers are decided"
                else:
                    assert verdict == expected(number, other)
    assert compare_values("=", ids[:0], ids[:1], 0).tolist() == []


@pytest.mark.nojit
def test_date_times_are_compared_with_each_other_and_with_nothing_else() -> None:
    times = ("2020-01-01T00:00:00Z", "2020-01-01T02:00:00+01:00", "2020-01-01T00:00:00")
    ids = [term_id(f'"{time}"^^<{XSD}dateTime>') for time in times]
    others = [term_id(text) for text in (f'"1"^^<{XSD}integer>', f'"true"^^<{XSD}boolean>', "<http://x>", '"a"')]
    others += [term_id(f'"2020-01-01Z"^^<{XSD}date>'), term_id(f'"1.5"^^<{XSD}float>'), -1]
    column = np.array([*ids, *others])
    assert compare_values("<", column[:1], column, len(column)).tolist() == [0, 1, 0, *[-1] * 7]
    assert compare_values(">=", column, column[1:2], len(column)).tolist() == [0, 1, 0, *[-1] * 7]
    assert compare_values("=", column[2:3], column, len(column)).tolist() == [1, 0, 1, *[-1] * 7]
    assert compare_values("=", column[4:5], column, len(column)).tolist() == [-1] * len(column)


@pytest.mark.nojit
def test_dates_of_which_one_has_a_zone_are_compared_if_they_are_far_apart() -> None:
    dates = ("2020-01-02Z", "2020-01-02+14:00", "2020-01-02", "2020-01-03", "2020-01-01", "2020-01-02-12:00")
    column = np.array([term_id(f'"{date}"^^<{XSD}date>') for date in dates])
    assert compare_values("<", column[2:3], column, len(column)).tolist() == [-1, -1, 0, 1, 0, -1]
    assert compare_values("<", column[:1], column, len(column)).tolist() == [0, 0, -1, 1, 0, 1]
    assert compare_values("!=", column[4:5], column, len(column)).tolist() == [1, -1, 1, 1, 0, 1]


def test_ids_of_integers_are_those_of_their_texts() -> None:
    numbers = np.array([0, 7, 4095, 7])
    for some in (numbers, np.append(numbers, 2**54 - 1), numbers[:0]):
        assert integer_ids(some).tolist() == [term_id(f'"{number}"^^<{XSD}integer>') for number in some.tolist()]
