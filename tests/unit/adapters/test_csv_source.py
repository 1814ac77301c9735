"""CSV rows through a declared mapping: values, times, ranges; broken rows and mappings are named."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest

from tests.unit.adapters.helpers import SCOPE, read_all, triples_of
from wukongs.adapters.run_config import CsvSource
from wukongs.adapters.source import Rows
from wukongs.adapters.sources.csv_file import CsvFile, prepare_csv
from wukongs.adapters.sources.csv_mapping import load_mapping, time_of
from wukongs.adapters.sources.expressions import DivisionByZero, compile_expression, number
from wukongs.errors import DataError, SettingsError

XSD = "http://www.w3.org/2001/XMLSchema#"
VALUE = "<http://purl.oclc.org/NET/sao/hasValue>"
HEAD = """
columns = ["id", "when", "a", "b"]
observation = "http://ex/obs-{id}-"
"""
SUM = f"""
[[observation_of]]
property = "http://ex/prop"
value = "a + b"
datatype = "{XSD}int"
"""
PACED = "[time]\nevery_ms = 1000\n"


def _prepare(tmp_path: Path, rows: str | bytes, mapping: str) -> tuple[CsvFile, Rows]:
    (tmp_path / "map.toml").write_text(mapping, "utf-8")
    data = rows if isinstance(rows, bytes) else rows.encode()
    (tmp_path / "in.csv").write_bytes(b"id,when,a,b\n" + data)
    config = CsvSource(path=str(tmp_path / "in.csv"), mapping=str(tmp_path / "map.toml"), sensor="http://ex/sensor")
    source, index = prepare_csv(config, tmp_path)
    return source, read_all(source, index)


def _values(rows: Rows) -> list[str]:
    return [triple[2] for triple in triples_of(rows.encoded) if triple[1] == VALUE]


def test_rows_become_observations_one_a_second(tmp_path: Path) -> None:
    _, rows = _prepare(tmp_path, '1,x,2,3\n2,"with, comma",-4,1\r\n', HEAD + PACED + SUM)
    assert _values(rows) == [f'"5"^^<{XSD}int>', f'"-3"^^<{XSD}int>']
    assert rows.encoded.timestamps.tolist() == [0] * 4 + [1000] * 4
    assert rows.offsets.tolist() == [0] * 4 + [1] * 4
    assert triples_of(rows.encoded)[0][0].startswith("<http://ex/obs-1-")


def test_a_time_column_gives_event_time_and_backwards_rows_are_set_aside(tmp_path: Path) -> None:
    rows_text = "1,1970-01-01 00:00:01,1,1\n2,1970-01-01T00:00:03.5,1,1\n3,1970-01-01T00:00:02Z,1,1\n4,later,1,1\n"
    _, rows = _prepare(tmp_path, rows_text, HEAD + '[time]\ncolumn = "when"\n' + SUM)
    assert sorted(set(rows.encoded.timestamps.tolist())) == [1000, 3500]
    assert [(one.line, one.reason) for one in rows.backwards] == [(4, "its time 2000 ms is before 3500 ms")]
    assert [(one.line, one.reason) for one in rows.malformed] == [
        (5, "expected a date and time in when, found 'later'")
    ]


def test_a_start_time_skips_rows_and_counts_from_there(tmp_path: Path) -> None:
    text = "1,2014-01-01T00:00:00,1,1\n2,2014-01-02T00:00:00,5,1\n3,2014-01-03T00:00:00,6,1\n"
    mapping = HEAD + '[time]\ncolumn = "when"\nstart = "2014-01-01T12:00:00"\nevery_ms = 500\n' + SUM
    source, rows = _prepare(tmp_path, text, mapping)
    assert _values(rows) == [f'"6"^^<{XSD}int>', f'"7"^^<{XSD}int>']
    assert sorted(set(rows.encoded.timestamps.tolist())) == [0, 500]
    assert source.first_line == 3


def test_skipped_rows_leave_no_tuple_and_are_not_malformed(tmp_path: Path) -> None:
    mapping = HEAD + PACED + '[[skip]]\ncolumn = "a"\nvalues = ["NULL", ""]\n' + SUM
    _, rows = _prepare(tmp_path, "1,x,NULL,3\n2,x,,3\n3,x,1,1\n", mapping)
    assert rows.offsets.tolist() == [2] * 4
    assert not rows.malformed


def test_broken_rows_are_set_aside_with_line_column_and_text(tmp_path: Path) -> None:
    text = b'1,x,2,3\n2,x,2\n3,x,two,3\n4,x,nan,3\n5,\xff,2,3\n6,x,2.5,1\n7,"x,2,3\n8 ,x,1,1\n9,x,1,1'
    _, rows = _prepare(tmp_path, text, HEAD + PACED + SUM)
    assert _values(rows) == [f'"5"^^<{XSD}int>', f'"2"^^<{XSD}int>']
    found = {one.line: (one.column, one.reason) for one in rows.malformed}
    assert found[3] == (6, "expected 4 fields, found 3")
    assert found[4] == (5, "expected a number in a, found 'two'")
    assert found[5] == (5, "expected a number in a, found 'nan'")
    assert found[6] == (3, "expected UTF-8")
    assert found[7] == (1, "a + b = 3.5 is no integer")
    assert found[8][1].startswith("expected CSV")
    assert found[9] == (1, "its fields make no IRI: 'http://ex/obs-8 -'")
    assert rows.malformed[0].text == "2,x,2"
    assert rows.encoded.timestamps.tolist() == [0] * 4 + [8000] * 4


def test_division_by_zero_takes_the_declared_value_or_is_set_aside(tmp_path: Path) -> None:
    spec = '[[observation_of]]\nproperty = "http://ex/prop"\nvalue = "a / b"\n'
    _, rows = _prepare(tmp_path, "1,x,1,0\n2,x,1,4\n", HEAD + PACED + spec + "zero_divisor = -1\n")
    assert _values(rows) == [f'"-1.0"^^<{XSD}double>', f'"0.25"^^<{XSD}double>']
    _, rows = _prepare(tmp_path, "1,x,1,0\n2,x,1,4\n", HEAD + PACED + spec)
    assert [one.reason for one in rows.malformed] == ["a / b divides by 0"]


def test_a_lookup_gives_a_number_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "meta.csv").write_text("name,metres\nx,100\ny,long\n")
    mapping = HEAD + PACED + '[lookup.length]\nfile = "meta.csv"\nkey = "name"\nvalue = "metres"\nby = "when"\n'
    mapping += '[[observation_of]]\nproperty = "http://ex/prop"\nvalue = "length * 2"\n'
    _, rows = _prepare(tmp_path, "1,x,1,1\n2,y,1,1\n", mapping)
    assert _values(rows) == [f'"200.0"^^<{XSD}double>']
    assert [one.reason for one in rows.malformed] == ["no length is known for when = 'y'"]


def test_properties_come_from_the_repository_by_kind(tmp_path: Path) -> None:
    ssn, rdf = "http://purl.oclc.org/NET/ssnx/ssn#", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
    (tmp_path / "sensors.nt").write_text(
        f"<http://ex/sensor> <{ssn}observes> <http://ex/p1> .\n<http://ex/other> <{ssn}observes> <http://ex/p2> .\n"
        f"<http://ex/p1> <{rdf}type> <http://ex/Kind> .\n<http://ex/p2> <{rdf}type> <http://ex/Rare> .\n"
    )
    mapping = (
        'repository = "sensors.nt"\n' + HEAD + PACED + '[[observation_of]]\nkind = "http://ex/Kind"\nvalue = "a"\n'
    )
    _, rows = _prepare(tmp_path, "1,x,1,1\n", mapping)
    assert triples_of(rows.encoded)[2][2] == "<http://ex/p1>"
    with pytest.raises(
        SettingsError, match=r"sensor http://ex/sensor has no property of kind http://ex/Rare in .*List it"
    ):
        _prepare(tmp_path, "1,x,1,1\n", mapping.replace("Kind", "Rare"))


def test_ranges_agree_with_the_whole_and_sources_travel(tmp_path: Path) -> None:
    text = "".join(f"{row},x,{row},1\n" for row in range(50))
    source, whole = _prepare(tmp_path, text, HEAD + PACED + SUM)
    travelled = pickle.loads(pickle.dumps(source))
    _, index = prepare_csv(
        CsvSource(path=str(tmp_path / "in.csv"), mapping=str(tmp_path / "map.toml"), sensor="http://ex/sensor"),
        tmp_path,
    )
    parts = [travelled.read(index.range(first, first + 10), SCOPE, 62) for first in range(0, 50, 10)]
    assert [triple for one in parts for triple in triples_of(one.encoded)] == triples_of(whole.encoded)


def test_a_wrong_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(HEAD + PACED + SUM)
    (tmp_path / "in.csv").write_text("id,a,b\n1,2,3\n")
    config = CsvSource(path=str(tmp_path / "in.csv"), mapping=str(tmp_path / "map.toml"), sensor="http://ex/s")
    with pytest.raises(DataError, match=r"in\.csv, line 1: expected the header 'id,when,a,b', found 'id,a,b'"):
        prepare_csv(config, tmp_path)


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ("columns = []", "columns: expected the names of the columns, each once"),
        (HEAD + SUM, "time.every_ms: expected every_ms or the column of the event time, found neither"),
        (HEAD + "[time]\ncolumn = 'x'" + SUM, "time.column: expected one of the columns id, when, a, b, found 'x'"),
        (HEAD + "[time]\ncolumn = 'when'\nstart = 'noon'" + SUM, "time.start: expected an ISO date and time"),
        (HEAD + PACED, r"observation_of: expected at least one \[\[observation_of\]\], found none"),
        (HEAD + PACED + "[[observation_of]]\nvalue = 'a'", "kind: expected the kind of the observed property"),
        (
            HEAD + PACED + SUM.replace("a + b", "a + c"),
            r"value = 'a \+ c': expected one of the columns id, .*found 'c'",
        ),
        (HEAD + PACED + SUM.replace(XSD + "int", "int"), "datatype: expected xsd:double, int, integer or decimal"),
        (HEAD.replace("{id}", "{nobody}") + PACED + SUM, r"observation: expected an IRI with \{columns\}"),
        (HEAD.replace("{id}", "{id.__class__}") + PACED + SUM, r"observation: expected an IRI with \{columns\}"),
        (HEAD + PACED + "[[skip]]\ncolumn = 'z'\n" + SUM, r"skip\[0\].column: expected one of 'id'"),
        (
            HEAD + PACED + SUM + "[[observation_of.node]]\npredicate='http://ex/p'\nvalue='a'",
            "a value or a node, found both",
        ),
        (HEAD + PACED + SUM + "zero_divisor = 'x'", "zero_divisor: expected a number, found 'x'"),
    ],
)
def test_a_mapping_that_will_not_do_is_refused(tmp_path: Path, mapping: str, expected: str) -> None:
    (tmp_path / "map.toml").write_text(mapping)
    with pytest.raises(SettingsError, match=expected):
        load_mapping(tmp_path / "map.toml")


def test_a_lookup_without_its_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.csv").write_text("a,b\n1,2\n")
    lookup = '[lookup.x]\nfile = "meta.csv"\nkey = "name"\nvalue = "b"\nby = "a"\n'
    (tmp_path / "map.toml").write_text(HEAD + PACED + lookup + SUM)
    with pytest.raises(DataError, match=r"meta\.csv, line 1: expected the columns name and b"):
        load_mapping(tmp_path / "map.toml")


# --- expressions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", 7),
        ("a - b", 4),
        ("a - b - 1", 3),
        ("a + b * 2", 13),
        ("(a + b) * 2", 20),
        ("a / 2 / 7", 0.5),
        ("-a + -(b)", -10),
        ("max(a, b, 11)", 11),
        ("min(a, b) + 1.5", 4.5),
        ("max", 5),
    ],
)
def test_expressions_are_computed(text: str, expected: float) -> None:
    expression = compile_expression(text, dict.fromkeys(("a", "b", "max")), "value")
    for one in (expression, pickle.loads(pickle.dumps(expression))):
        assert one.evaluate({"a": 7, "b": 3, "max": 5}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", r"expected a column, a number or \(, found the end"),
        ("a b", "expected an operator, found 'b'"),
        ("a +", r"expected a column, a number or \(, found the end"),
        ("(a", r"expected '\)', found the end"),
        ("max(a", r"expected '\)', found the end"),
        ("a ** b", r"expected a column, a number or \(, found '\*'"),
        ("__import__('os')", "expected one of the columns a, b, found '__import__'|expected a column"),
        ("a.b", r"expected a column, a number, an operator.* found '\.b'"),
    ],
)
def test_texts_that_are_no_expressions_are_refused(text: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        compile_expression(text, dict.fromkeys(("a", "b")), "value")


def test_division_by_zero_is_told_apart() -> None:
    with pytest.raises(DivisionByZero):
        compile_expression("a / b", {"a": None, "b": None}, "value").evaluate({"a": 1, "b": 0.0})


def test_only_plain_finite_numbers_are_numbers() -> None:
    assert [number(text) for text in ("5", " -5 ", "5.5", ".5", "1e3", "007")] == [5, -5, 5.5, 0.5, 1000.0, 7]
    assert isinstance(number("5"), int)
    for text in ("", "nan", "inf", "1e999", "1_000", "0x10", "five", "1,5", "٣"):
        assert number(text) is None
    assert math.isclose(number("1.25") or 0, 1.25)


def test_times_are_utc_unless_they_say_otherwise() -> None:
    assert time_of("1970-01-01T00:00:01") == time_of("1970-01-01 00:00:01Z") == 1000
    assert time_of("1970-01-01T01:00:00+01:00") == 0
    assert time_of("yesterday") is None
