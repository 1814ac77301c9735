"""Result.arrow(typed=True): each column beside a plain reading of its terms; schemas, and what does not fit them."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.oracles import typed_columns as oracle
from tests.oracles.typed_columns import Part
from tests.unit.query.result_rows import known
from wukongs import DataError, SettingsError
from wukongs.csparql.terms import XSD
from wukongs.query.output import typed_columns
from wukongs.query.output import typed_columns_kernels as kernels
from wukongs.query.output.typed_columns import N_TRIPLES, TERMS
from wukongs.query.terms.rdf_terms import to_ntriples
from wukongs.store.term_ids import term_ids

INTEGERS = ["0", "1", "-7", "123456", "+1", "01", "-0", "-007", str(2**59), str(-(2**63)), str(2**63 - 1)]
FLOATS = ["0", "-0", "1", "1.5", "-0.0", "1e0", "1.0E0", "-2.5E-10", "INF", "-INF", "+INF", "NaN", ".5", "5.", "+1.5"]
FLOATS += ["0.1", "0.30000000000000004", "1e400", "-1e400", "1e-400", "4.9e-324", "1.7976931348623157E308", "1E22"]
FLOATS += ["3.4028235E38", "3.4028236E38", "1.4E-45", "16777217", "1.00000017881393432617187499", "0007.50"]
RIGHT = {
    "integer": INTEGERS,
    "long": INTEGERS,
    "int": ["0", "12", "-2147483648", "2147483647", "+5", "007"],
    "byte": ["0", "-128", "127", "+1"],
    "unsignedByte": ["0", "255", "-0"],
    "unsignedLong": ["0", str(2**54), str(2**63 - 1)],
    "negativeInteger": ["-1", "-99"],
    "decimal": ["0", "1", "-1.50", "2.25", "0.0", "-0.0", "+1.5", ".5", "5.", "123456789.123456", "0.000001", "100"],
    "double": FLOATS,
    "float": FLOATS,
    "boolean": ["true", "false", "1", "0"],
    "date": ["1970-01-01", "2020-02-29", "0001-01-01", "9999-12-31", "-0004-02-29", "0000-02-29", "123456-07-08"],
    "dateTime": [
        "1970-01-01T00:00:00",
        "2020-02-29T23:59:59.999999",
        "2020-02-29T24:00:00",
        "1900-01-01T00:00:00.123456",
        "2020-01-01T00:00:00.5",
        "2020-01-01T00:00:00.25",
        "2020-01-01T00:00:00.1234",
        "2020-01-01T00:00:00.1234560000",
        "-0043-03-15T12:00:00",
        "290000-01-01T00:00:00",
    ],
    "string": ["", "a", "seven77", "a longer string", "é", '"quoted" \\ and\nlines', "1", "_:b", "<http://a>"],
    "iri": ["http://ex/a", "http://ex/b", "urn:x:é", "http://ex/a b"],
    "blank": ["b0", "s0123456789abcdefxb"],
}
RIGHT["zoned"] = [text + zone for text in RIGHT["dateTime"] for zone in ("Z", "+05:30", "-12:00", "+14:00", "+05:47")]
ODD = {
    "integer": [str(2**63), str(-(10**30)), str(10**38), "abc", "1.0", "", "1 ", "1e3", "٣", "+", "1" * 4000],
    "unsignedLong": [str(2**64 - 1), "-1", str(2**64)],
    "byte": ["128", "x"],
    "int": ["2147483648"],
    "negativeInteger": ["0"],
    "decimal": ["1e3", ".", "abc", "1" * 39, "0." + "1" * 39, "1." + "0" * 4000, "9" * 30 + ".5", "0." + "1" * 30],
    "double": ["inf", "nan", "Infinity", "1e", "e5", "0x10", "1_0", " 1", "1\n", ""],
    "float": ["inf", "1,5", "--1"],
    "boolean": ["TRUE", "yes", ""],
    "date": ["2020-13-40", "2021-02-29", "2020-01-01Z", "2020-01-01+05:00", "20-01-01", "6000000-01-01", "2020-1-1"],
    "dateTime": [
        "2020-01-01T25:00:00",
        "2020-01-01T24:00:01",
        "2020-01-01T00:00:60",
        "2020-01-01 00:00:00",
        "2020-01-01T00:00:00.1234567",
        "2020-01-01T00:00:00." + "0" * 40 + "1",
        "300000-01-01T00:00:00",
        "-300000-01-01T00:00:00",
        "2020-01-01T00:00:00+15:00",
    ],
    "iri": ["_:odd"],
    "language": ["text"],
    "time": ["12:00:00"],
    "gYear": ["2020"],
    "duration": ["P1D"],
    "http://ex/own": ["1"],
}


def part(kind: str, text: str) -> Part:
    return Part("dateTime" if kind == "zoned" else kind, text)


def random_column(draw: random.Random) -> list[Part | None]:
    """Draw a column: most often of one datatype, seldom with terms that spoil it; integers of several datatypes."""
    kinds = [draw.choice([*RIGHT])]
    if draw.random() < 0.2:
        kinds += draw.choices([*RIGHT, *ODD], k=2)
    if draw.random() < 0.2:
        kinds = draw.choices([kind for kind in RIGHT if kind in oracle.INTEGERS], k=3)
    pool = [part(kind, text) for kind in kinds for text in RIGHT.get(kind, [])]
    chosen = draw.choices(pool or [part("integer", "1")], k=draw.choice([0, 1, 2, 5, 40]))
    column: list[Part | None] = list(chosen)
    if draw.random() < 0.2:
        kind = draw.choice([kind for kind in kinds if kind in ODD] or [*ODD])
        column.append(part(kind, draw.choice(ODD[kind])))
    column += [None] * draw.choice([0, 0, 1, 3])
    draw.shuffle(column)
    return column


def check(column: list[Part | None], made: pa.ChunkedArray, field: pa.Field) -> None:
    texts = [None if cell is None else cell.canonical for cell in column]
    wanted = oracle.typed(column)
    if wanted is None:
        assert field.type == pa.dictionary(pa.int32(), pa.string())
        assert field.metadata == {TERMS: N_TRIPLES}
        assert made.to_pylist() == [None if text is None else to_ntriples(text) for text in texts]
        return
    assert field.type == wanted.type, texts
    assert (field.metadata or {}) == ({} if wanted.terms is None else {TERMS: wanted.terms.encode()})
    assert made.type == wanted.type
    assert plain(made) == [comparable(cell) for cell in wanted.cells], texts


def plain(made: pa.ChunkedArray) -> list[object]:
    if pa.types.is_timestamp(made.type) or pa.types.is_date32(made.type):
        return list(made.cast(pa.int64() if pa.types.is_timestamp(made.type) else pa.int32()).to_pylist())
    if pa.types.is_float32(made.type):
        return [comparable(None if cell is None else np.float32(cell)) for cell in made.to_pylist()]
    return [comparable(cell) for cell in made.to_pylist()]


def comparable(cell: object) -> object:
    if isinstance(cell, float | np.floating):
        return "NaN" if np.isnan(cell) else cell.hex() if isinstance(cell, float) else float(cell).hex()
    return Fraction(cell) if isinstance(cell, Decimal | Fraction) else cell


@pytest.mark.parametrize("seed", range(20))
def test_columns_have_the_values_of_a_plain_reading(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(60):
        column = random_column(draw)
        table = known("x", [[None if cell is None else cell.canonical] for cell in column]).arrow(typed=True)
        check(column, table["x"], table.schema.field("x"))


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in ODD.items() for text in texts])
def test_one_odd_term_alone_and_among_others(kind: str, text: str) -> None:
    for others in ([], [part(kind, text) for text in RIGHT.get(kind, [])], [part("zoned", RIGHT["zoned"][0])]):
        column: list[Part | None] = [*others, part(kind, text), None]
        table = known("x", [[None if cell is None else cell.canonical] for cell in column]).arrow(typed=True)
        check(column, table["x"], table.schema.field("x"))


def test_columns_are_typed_one_by_one_and_graphs_and_asks_too() -> None:
    integer, text = f'"5"^^<{XSD}integer>', '"some longer text"'
    table = known("a b c", [[integer, "<http://ex/a>", None], [None, "_:b", text]]).arrow(typed=True)
    assert table.to_pydict() == {
        "a": [5, None],
        "b": ["http://ex/a", "_:b"],
        "c": [None, "some longer text"],
    }
    graph = known("", [["<http://ex/a>", "<http://ex/p>", integer]], kind="construct").arrow(typed=True)
    assert graph.to_pydict() == {"subject": ["http://ex/a"], "predicate": ["http://ex/p"], "object": [5]}
    assert known("", [], kind="ask").arrow(typed=True).to_pydict() == {"ask": [True]}
    assert known("a b", []).arrow(typed=True).schema == pa.schema([("a", pa.null()), ("b", pa.null())])


# --- schemas ----------------------------------------------------------------------------------------------------------


def wanted(field_type: pa.DataType, texts: list[str | None], terms: bytes | None = None, nullable: bool = True) -> Any:
    """Return the column x as a schema asks for it."""
    field = pa.field("x", field_type, nullable, None if terms is None else {TERMS: terms})
    return known("x", [[text] for text in texts]).arrow(typed=pa.schema([field]))["x"]


def xsd(name: str, *lexicals: str) -> list[str | None]:
    return [f'"{lexical}"^^<{XSD}{name}>' for lexical in lexicals]


NUMBERS = [*xsd("integer", "2", str(2**60 + 1), "007"), *xsd("decimal", "0.1", "1.50"), *xsd("float", "0.1")]
NUMBERS += [*xsd("double", "INF", "1e0"), None]
FITTING: list[tuple[pa.DataType, list[str | None], list[object]]] = [
    (pa.int8(), [*xsd("integer", "1", "+127"), None], [1, 127, None]),
    (pa.uint64(), xsd("integer", str(2**64 - 1)), [2**64 - 1]),
    (pa.int64(), [None, None], [None, None]),
    (pa.float64(), NUMBERS, [2.0, float(2**60 + 1), 7.0, 0.1, 1.5, float(np.float32("0.1")), float("inf"), 1.0, None]),
    (pa.float32(), xsd("float", "0.1"), [float(np.float32("0.1"))]),
    (pa.decimal128(10, 3), [*xsd("decimal", "1.50"), *xsd("int", "7")], [Decimal("1.500"), Decimal("7.000")]),
    (pa.bool_(), xsd("boolean", "1", "false"), [True, False]),
    (pa.string(), ['"a"', '"text that is longer"', None], ["a", "text that is longer", None]),
    (pa.large_string(), ['"a"'], ["a"]),
    (pa.dictionary(pa.int32(), pa.string()), ['"a"', "<http://e/a>"], ['"a"', "<http://e/a>"]),
    (pa.dictionary(pa.int16(), pa.string()), [None], [None]),
    (pa.null(), [None], [None]),
]


@pytest.mark.parametrize(("field_type", "texts", "cells"), FITTING)
def test_a_schema_says_what_columns_are(field_type: pa.DataType, texts: list[str | None], cells: list[object]) -> None:
    made = wanted(field_type, texts)
    assert made.type == field_type
    assert made.to_pylist() == cells
    assert wanted(field_type, []).type == field_type


def test_a_schema_asks_for_iris_by_its_metadata() -> None:
    for field_type in (pa.string(), pa.dictionary(pa.int32(), pa.string())):
        made = wanted(field_type, ["<http://e/a>", "_:b", None, "<http://e/a>"], b"IRI")
        assert made.type == field_type
        assert made.to_pylist() == ["http://e/a", "_:b", None, "http://e/a"]
        assert wanted(field_type, ["<http://e/a>", '"a"'], N_TRIPLES).to_pylist() == ["<http://e/a>", '"a"']


TIMES = xsd("dateTime", "2020-01-01T00:00:01Z")
LOCAL = xsd("dateTime", "2020-01-01T00:00:01")
UNFIT: list[tuple[pa.DataType, list[str | None], str]] = [
    (pa.int8(), xsd("integer", "1", "128"), "row 1: a value does not fit int8"),
    (pa.uint8(), xsd("integer", "-1"), "row 0: a value does not fit uint8"),
    (pa.int64(), xsd("integer", "1", str(2**63)), "row 1: a value does not fit int64"),
    (pa.int64(), [*xsd("integer", "1"), None, *xsd("integer", "abc")], 'row 2.*lexical form.*found "abc"'),
    (pa.int64(), [*xsd("integer", "1"), *xsd("decimal", "1.0")], "row 1: expected xsd:integer for int64"),
    (pa.float64(), [*xsd("double", "1"), '"text"'], "row 1: expected a number"),
    (pa.float64(), xsd("double", "inf"), "row 0"),
    (pa.float32(), xsd("double", "1"), "row 0: expected xsd:float"),
    (pa.decimal128(5, 1), xsd("decimal", "1", "1.25", "2.75"), "row 1: a value does not fit decimal128"),
    (pa.decimal128(5, 2), xsd("decimal", "1", "999.99", "-1000", "2"), "row 2: a value does not fit decimal128"),
    (
        pa.decimal128(38, 38),
        [*xsd("decimal", ".5"), *xsd("integer", str(2**64))],
        "row 1: a value does not fit decimal",
    ),
    (pa.decimal128(38, 37), xsd("decimal", "9", "-6971115.5", "10"), "row 1: a value does not fit decimal128"),
    (pa.decimal128(5, 1), xsd("decimal", "0." + "1" * 39), "row 0: expected a number of at most 38 digits"),
    (pa.bool_(), xsd("integer", "1"), "row 0: expected xsd:boolean"),
    (pa.timestamp("us", "UTC"), [None, *LOCAL], "row 1: expected dateTimes with a zone"),
    (pa.timestamp("us"), TIMES, "row 0: expected dateTimes without a zone"),
    (pa.timestamp("us"), [*LOCAL, *TIMES], "row 0: expected a dateTime with a zone"),
    (pa.timestamp("s"), [*LOCAL * 9, *xsd("dateTime", "2020-01-01T00:00:01.5")], "row 9: a value does not fit"),
    (pa.timestamp("ns"), xsd("dateTime", "9999-01-01T00:00:00"), "a value does not fit"),
    (pa.date32(), xsd("date", "2020-01-01", "2020-01-01Z"), "row 1: expected a date without a zone"),
    (pa.string(), ["<http://e/a>"], "row 0: expected xsd:string"),
    (pa.null(), ["<http://e/a>"], "row 0: expected an unbound cell"),
]


@pytest.mark.parametrize(("field_type", "texts", "message"), UNFIT)
def test_what_does_not_fit_a_schema_is_named(field_type: pa.DataType, texts: list[str | None], message: str) -> None:
    with pytest.raises(DataError, match=rf"typed: column 'x'.*{message}"):
        wanted(field_type, texts)


def test_units_and_zones_of_timestamps_are_those_of_the_schema() -> None:
    assert wanted(pa.timestamp("ns", "Europe/Berlin"), TIMES).cast(pa.int64()).to_pylist() == [1577836801 * 10**9]
    assert wanted(pa.timestamp("s"), LOCAL).cast(pa.int64()).to_pylist() == [1577836801]


def test_unbound_cells_do_not_fit_a_field_without_nulls() -> None:
    with pytest.raises(DataError, match="row 1: has unbound cells"):
        wanted(pa.int64(), [*xsd("integer", "1"), None], nullable=False)
    assert wanted(pa.int64(), xsd("integer", "1"), nullable=False).to_pylist() == [1]


def test_the_schema_of_one_table_is_an_order_for_the_next() -> None:
    rows: list[list[str | None]] = [["<http://e/a>", '"x"@en', '"text"', None]]
    for number in (*xsd("int", "5"), *xsd("decimal", "1.5"), *xsd("date", "2020-01-01"), *TIMES, *LOCAL):
        first = known("a b c d", [[number, *rows[0][:3]]]).arrow(typed=True)
        again = known("a b c d", [[number, *rows[0][:3]]] * 2).arrow(typed=first.schema)
        assert again.schema == first.schema
        assert pa.concat_tables([first, again]).num_rows == 3
        assert known("a b c d", []).arrow(typed=first.schema).schema == first.schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("y", pa.int64())]), r"found \?y"),
        (pa.schema([("x", pa.int64()), ("x", pa.int64())]), "a name twice"),
        (pa.schema([("x", pa.list_(pa.int64()))]), "has the type list"),
        (pa.schema([("x", pa.float16())]), "has the type halffloat"),
        ({"x": pa.int64()}, "expected True, False or a pyarrow.Schema"),
    ],
)
def test_schemas_that_no_result_can_have_are_refused(schema: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        known("x", [['"a"']]).arrow(typed=schema)


def test_one_shape_at_a_time() -> None:
    result = known("x", [['"a"']])
    for options in (
        {"typed": True, "ids": True},
        {"dictionary": True, "ids": True},
        {"dictionary": True, "typed": True},
    ):
        with pytest.raises(SettingsError, match="one of dictionary, typed and ids"):
            result.arrow(**options)


# --- ids --------------------------------------------------------------------------------------------------------------


def test_ids_and_the_terms_behind_them() -> None:
    rows: list[list[str | None]] = [['"a"', "<http://e/a>"], [None, '"é\n"@en'], ['"a"', None]]
    result = known("x y", rows)
    table = result.arrow(ids=True)
    assert table.schema == pa.schema([("x", pa.int64()), ("y", pa.int64())])
    assert [column.null_count for column in table.columns] == [1, 1]
    assert table["x"][0] == table["x"][2]
    assert result.terms(table["x"]).to_pylist() == ['"a"', None, '"a"']
    assert result.terms(table["y"]).to_pylist() == ["<http://e/a>", r'"é\n"@en', None]
    assert result.terms([table["y"][0].as_py(), None]).to_pylist() == ["<http://e/a>", None]
    assert result.terms(np.array(table["y"][:2])).to_pylist() == ["<http://e/a>", r'"é\n"@en']
    assert result.terms([]).to_pylist() == []
    assert known("x", []).terms([None]).to_pylist() == [None]


@pytest.mark.parametrize("asked", [[2], [-2], [5], ["text"], 7, pa.array([1.5])])
def test_ids_of_other_results_are_refused(asked: Any) -> None:
    with pytest.raises(DataError, match="terms: "):
        known("x", [['"a"'], [None]]).terms(asked)


def test_long_columns_of_strings_are_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_columns, "_ROWS_BYTES_MAX", 100)
    for texts in ([f"text number {n}" for n in range(30)], ["é", "x" * 300, "short"] * 9, [str(n) for n in range(50)]):
        column: list[str | None] = [*texts, None, *texts]
        made = known("x", [[None if text is None else f'"{text}"'] for text in column]).arrow(typed=True)["x"]
        assert made.num_chunks > 1
        assert made.type == pa.string()
        assert made.to_pylist() == column


# --- kernels ----------------------------------------------------------------------------------------------------------


@pytest.mark.nojit
def test_kernels_equal_their_py_funcs() -> None:
    parts = [part(kind, text) for pools in (RIGHT, ODD) for kind, texts in pools.items() for text in texts[:12]]
    ids = np.append(term_ids([one.canonical for one in parts]), [-1, -2])
    with np.errstate(over="ignore"):
        for kernel in (kernels.id_codes, kernels.calendar_values):
            for found, expected in zip(kernel(ids), getattr(kernel, "py_func", kernel)(ids), strict=True):
                np.testing.assert_array_equal(found, expected)
    assert kernels.id_codes(ids)[0][-2:].tolist() == [kernels.CODE_NULL] * 2


# --- other libraries, through the PyCapsule interface -----------------------------------------------------------------

MIXED: list[list[str | None]] = [
    [f'"5"^^<{XSD}integer>', f'"2020-01-01T00:00:00.5Z"^^<{XSD}dateTime>', "<http://e/a>", f'"1.5"^^<{XSD}decimal>'],
    [f'"{2**60 + 1}"^^<{XSD}long>', None, "_:b", f'"-2.25"^^<{XSD}decimal>'],
]
VALUES = {
    "n": [5, 2**60 + 1],
    "at": [datetime.datetime(2020, 1, 1, 0, 0, 0, 500_000, datetime.UTC), None],
    "who": ["http://e/a", "_:b"],
    "price": [Decimal("1.5"), Decimal("-2.25")],
}


def test_polars_takes_results_and_typed_tables() -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    result = known("n at who price", MIXED)
    assert polars.DataFrame(result).to_dict(as_series=False) == result.arrow().to_pydict()
    frame = polars.DataFrame(result.arrow(typed=True))
    assert frame.to_dict(as_series=False) == VALUES
    assert frame.schema["n"] == polars.Int64
    assert frame.schema["at"] == polars.Datetime("us", "UTC")
    assert frame.schema["price"] == polars.Decimal(38, 2)
    assert polars.DataFrame(known("n", []).arrow(typed=True)).shape == (0, 1)


def test_pandas_takes_results_and_typed_tables() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install 'wukongs[pandas]'")
    result = known("n at who price", MIXED)
    frame = result.arrow(typed=True).to_pandas()
    assert frame["n"].dtype == np.int64
    assert str(frame["at"].dtype) == "datetime64[us, UTC]"
    assert {name: [None if cell is pandas.NaT else cell for cell in frame[name]] for name in frame} == VALUES
    if not hasattr(pandas.DataFrame, "from_arrow"):
        pytest.skip("this pandas has no DataFrame.from_arrow, which takes a PyCapsule stream")
    assert pandas.DataFrame.from_arrow(result.arrow(typed=True)).equals(frame)
    assert list(pandas.DataFrame.from_arrow(result)["who"]) == ["<http://e/a>", "_:b"]
