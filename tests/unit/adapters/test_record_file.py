"""Records through mappings: values, times, ranges, bad records; random ones against tests/oracles/mapping.py."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.oracles import mapping as oracle
from tests.unit.adapters.helpers import SCOPE, read_all
from wukongs.adapters.mapping.mapping import TimeMap, load_mapping
from wukongs.adapters.mapping.rml import load_rml
from wukongs.adapters.mapping.times import TimeFormat, time_of, times_of
from wukongs.adapters.run_config import RecordKind, RecordSource
from wukongs.adapters.source import Rows, SourceIndex
from wukongs.adapters.sources.record_file import RecordFile, prepare_records
from wukongs.errors import DataError, SettingsError

SIMPLE = """
subject = "http://ex/{id}"
[time]
every_ms = 1000
"""
VALUE = SIMPLE + '[[triple]]\npredicate = "http://ex/p"\nvalue = "{v}"\n'
XSD = "http://www.w3.org/2001/XMLSchema#"


def opened(
    folder: Path, data: str | bytes, mapping: str, kind: RecordKind = "csv", **constants: str
) -> tuple[RecordFile, SourceIndex]:
    (folder / "m.toml").write_text(mapping, "utf-8")
    path = folder / f"in.{kind}"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    source = RecordSource(
        kind=kind, paths=(str(path),), mapping=load_mapping(folder / "m.toml"), constants=tuple(constants.items())
    )
    return prepare_records(source, str(path), folder)


def lines_of(source: RecordFile, index: SourceIndex) -> list[str]:
    made = source.make(index.range(0, len(index)), SCOPE, 62)
    return made.text.tobytes().decode().split("\n")[:-1]


def lines(folder: Path, data: str | bytes, mapping: str, kind: RecordKind = "csv", **constants: str) -> list[str]:
    return lines_of(*opened(folder, data, mapping, kind, **constants))


def faults(folder: Path, data: str | bytes, mapping: str, kind: RecordKind = "csv") -> list[tuple[int, int, str]]:
    rows = read_all(*opened(folder, data, mapping, kind))
    return [(one.line, one.column, one.reason) for one in rows.malformed]


# --- terms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("triple", "row", "expected"),
    [
        ('value = "{v}"', "1,x y", '"x y"'),
        ('value = "{v} EUR {{}}"', "1,5", '"5 EUR {}"'),
        ('value = "{v}"', '1,"a ""b""\nc\\"', '"a \\"b\\"\\nc\\\\"'),
        ('value = "{v}"\nlanguage = "de-AT"', "1,x", '"x"@de-AT'),
        ('value = "x"\nlanguage = "{v}"', "1,en", '"x"@en'),
        ('value = "{v}"\ndatatype = "xsd:integer"', "1, 7 ", f'"7"^^<{XSD}integer>'),
        ('value = "{v}"\ndatatype = "http://ex/d"', "1,x", '"x"^^<http://ex/d>'),
        ('object = "http://ex/{v}"', "1,a b/ü%", "<http://ex/a%20b%2Fü%25>"),
        ('object = "http://ex/{+v}"', "1,a/b#c", "<http://ex/a/b#c>"),
        ('object = "{v}"', "1,http://x/y", "<http://x/y>"),
        ('object = "rdf:{v}"', "1,type", "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"),
        ('object = "_:n{v}"', "1,a b_", "_:na_20b_5F"),
        ('object = "http://ex/{_row}-{_file}"', "1,x", "<http://ex/0-in.csv>"),
    ],
)
def test_terms(triple: str, row: str, expected: str, tmp_path: Path) -> None:
    text = SIMPLE + f'[[triple]]\npredicate = "http://ex/p"\n{triple}\n'
    assert lines(tmp_path, f"id,v\n{row}\n", text) == [f"<http://ex/1> <http://ex/p> {expected} ."]


@pytest.mark.parametrize(
    ("triple", "row", "column", "reason"),
    [
        ('value = "{v}"\ndatatype = "xsd:integer"', "1,x", 3, "expected xsd:integer in v, found 'x'"),
        ('value = "{v}"\ndatatype = "xsd:decimal"', '1,"1,5"', 4, "expected xsd:decimal in v, found '1,5'"),
        ('value = "{v}"\ndatatype = "xsd:dateTime"', "1,today", 3, "expected xsd:dateTime in v, found 'today'"),
        ('value = "{v}"\nif_empty = "bad"', "1,", 3, "expected a value in v, found nothing"),
        ('object = "{v}"', "1,x y", 3, "expected an IRI in v, found 'x y'"),
        ('value = "{v}"', "1,2,3", 6, "expected 2 fields, found 3"),
        ('value = "{v}"', "1", 2, "expected 2 fields, found 1"),
        ('value = "{v}"', '1,"x', 3, "expected CSV, found a quote that is not closed"),
        ('value = "{v}"', '1,"x"y', 6, "expected the end of the field after a closing quote"),
    ],
)
def test_bad_records(triple: str, row: str, column: int, reason: str, tmp_path: Path) -> None:
    text = SIMPLE + f'[[triple]]\npredicate = "http://ex/p"\n{triple}\n'
    data = f"id,v\n0,7\n{row}\n\n2,8\n"
    if "object" in triple or "dateTime" in triple:
        data = f"id,v\n{row}\n"
        assert faults(tmp_path, data, text) == [(2, column, reason)]
        return
    assert faults(tmp_path, data, text) == [(3, column, reason)]
    source, index = opened(tmp_path, data, text)
    assert read_all(source, index).offsets.tolist() == [0, 3]


def test_a_language_that_is_none_and_a_bad_byte_make_a_bad_record(tmp_path: Path) -> None:
    text = SIMPLE + '[[triple]]\npredicate = "http://ex/p"\nvalue = "x"\nlanguage = "{v}"\n'
    ((line, _, reason),) = faults(tmp_path, "id,v\n1,en\n2,e n\n", text)
    assert (line, reason) == (3, "expected a language tag in v, found 'e n'")
    assert faults(tmp_path, b"id,v\n1,\xc3\xa4\xff\n", VALUE) == [(2, 5, "expected UTF-8")]


def test_conditions_lists_and_constants(tmp_path: Path) -> None:
    text = """
subject = "http://ex/{id}"
empty = ["", "NULL"]
unless = { status = ["test"] }
[time]
every_ms = 1
[split]
tags = ";"
[[triple]]
predicate = "http://ex/tag"
value = "{tags}{unit}"
when = "tags"
[[triple]]
predicate = "http://ex/free"
value = "yes"
when = { price = ["0", ""] }
"""
    data = "id,status,tags,price\n1,ok,a; b;,5\n2,test,a,0\n3,ok,NULL,NULL\n4,,x,0\n"
    assert lines(tmp_path, data, text, unit="!") == [
        '<http://ex/1> <http://ex/tag> "a!" .',
        '<http://ex/1> <http://ex/tag> "b!" .',
        '<http://ex/3> <http://ex/free> "yes" .',
        '<http://ex/4> <http://ex/tag> "x!" .',
        '<http://ex/4> <http://ex/free> "yes" .',
    ]


def test_a_record_that_does_not_pass_is_not_looked_at(tmp_path: Path) -> None:
    text = """
subject = "http://ex/{id}"
unless = { id = ["Total"] }
[time]
column = "t"
format = "epoch_ms"
[column.twice]
number = "v * 2"
[[triple]]
predicate = "http://ex/p"
value = "{twice}"
"""
    data = "id,t,v\n1,5,1\nTotal,,x\nTotal,3,x\n2,6,x\n"
    source, index = opened(tmp_path, data, text)
    rows = read_all(source, index)
    assert rows.offsets.tolist() == [0]
    assert [(one.line, one.reason) for one in rows.malformed] == [(5, "expected a number in v, found 'x'")]
    assert not rows.backwards


def test_a_json_list_of_one_time_is_the_time_and_others_are_bad(tmp_path: Path) -> None:
    text = 'subject = "http://ex/s"\n[time]\ncolumn = "at"\nformat = "epoch_ms"\n[[triple]]\n'
    text += 'predicate = "http://ex/p"\nvalue = "{v}"\n'
    times = ("[5]", "6", "[7, 8]", "[]", "[null]", "[9]")
    data = "\n".join(f'{{"at": {at}, "v": {number}}}' for number, at in enumerate(times))
    source, index = opened(tmp_path, data, text, "jsonl")
    assert read_all(source, index).encoded.timestamps.tolist() == [5, 6, 9]
    assert faults(tmp_path, data, text, "jsonl") == [
        (3, 1, "expected one value in at, found 2"),
        (4, 1, "expected a time as epoch_ms in at, found nothing"),
        (5, 1, "expected a time as epoch_ms in at, found nothing"),
    ]


def test_json_paths_lists_and_faults(tmp_path: Path) -> None:
    text = """
subject = "http://ex/{id}/{items[].sku}"
[time]
column = "at.time"
format = "epoch_ms"
[[triple]]
predicate = "http://ex/price"
value = "{items[].price}"
[[triple]]
subject = "http://ex/{id}"
predicate = "http://ex/ok"
value = "{ok}"
"""
    records = [
        '{"id": 1, "at": {"time": 5}, "items": [{"sku": "a", "price": 1.50}, {"sku": "b"}, {"sku": "", "price": 2}], '
        '"ok": true}',
        '{"id": 2, "at": {"time": 6}, "items": []}',
        "",
        '{"id": 3, "at": {"time": 7}',
        '["no object"]',
        '{"id": {"x": 1}, "at": {"time": 7}}',
        '{"id": "\\ud800", "at": {"time": 7}}',
        '{"id": 4, "at": {"time": NaN}}',
        '{"id": 5, "at": {}}',
    ]
    data = "\n".join(records)
    assert lines(tmp_path, data, text, "jsonl") == [
        '<http://ex/1/a> <http://ex/price> "1.50" .',
        '<http://ex/1> <http://ex/ok> "true" .',
    ]
    assert faults(tmp_path, data, text, "jsonl") == [
        (4, 28, "expected JSON (Expecting ',' delimiter)"),
        (5, 1, "expected a JSON object"),
        (6, 1, "expected a value in id, found an object: name one of its keys, as in id.key"),
        (7, 1, "expected characters in id, found half of a surrogate pair"),
        (8, 1, "expected JSON (NaN is no JSON)"),
        (9, 1, "expected a time as epoch_ms in at.time, found nothing"),
    ]


DOCUMENT = """{"meta": [[{"id": 9}], "]"],
  "rows": [
    {"id": 1, "v": "a,]"},
    {"id": 2,
     "v": "b"}, {"id": 3, "v": ["c", "d"]},
    {"id": 4, "v": {"e": 1}}
  ]
}
"""


def test_the_elements_of_a_document_are_records(tmp_path: Path) -> None:
    """Their lines and bytes are those of the document, and any range of them is read alone."""
    (tmp_path / "in.json").write_text(DOCUMENT)
    (tmp_path / "m.ttl").write_text(
        '@prefix rml: <http://w3id.org/rml/> . <#M> rml:logicalSource [ rml:source "in.json" ; '
        'rml:referenceFormulation rml:JSONPath ; rml:iterator "$.rows[*]" ] ; rml:subjectMap [ rml:template '
        '"http://ex/{$.id}" ] ; rml:predicateObjectMap [ rml:predicate <http://ex/p> ; '
        'rml:objectMap [ rml:reference "$.v" ] ] .'
    )
    mapping = replace(load_rml(str(tmp_path / "m.ttl"), ("in.json",)), time=TimeMap(None, every_ms=10))
    config = RecordSource(kind="json", paths=(str(tmp_path / "in.json"),), mapping=mapping)
    source, index = prepare_records(config, config.paths[0], tmp_path)
    assert len(index) == 4
    made = source.make(index.range(1, 4), SCOPE, 62)
    assert made.text.tobytes().decode().split("\n")[:-1] == [
        '<http://ex/2> <http://ex/p> "b" .',
        '<http://ex/3> <http://ex/p> "c" .',
        '<http://ex/3> <http://ex/p> "d" .',
    ]
    assert made.rows.tolist() == [1, 2, 2]
    (bad,) = made.reported().malformed
    assert (bad.line, bad.row, bad.text) == (6, 3, '{"id": 4, "v": {"e": 1}}')
    assert DOCUMENT.encode()[bad.byte :].startswith(b'{"id": 4')


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (
            '[{"id": 1, "v": "a"},\n {"id": 2, "v": 2.50}]',
            ['<http://ex/1> <http://ex/p> "a" .', '<http://ex/2> <http://ex/p> "2.50" .'],
        ),
        ('{"id": 1,\n "v": "a"}\n', ['<http://ex/1> <http://ex/p> "a" .']),
        ("[]", []),
        (b'\xef\xbb\xbf[ {"id": 1, "v": "a"} ]', ['<http://ex/1> <http://ex/p> "a" .']),
    ],
)
def test_documents_through_mappings_of_toml(data: str | bytes, found: list[str], tmp_path: Path) -> None:
    text = SIMPLE + '[[triple]]\npredicate = "http://ex/p"\nvalue = "{v}"\n'
    assert lines(tmp_path, data, text, "json") == found


def test_json_paths_of_rml_name_columns_of_parquet(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "on": [True, None], "items": [[{"n": 1}, {"n": 2}], []]})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=1)
    (tmp_path / "m.ttl").write_text(
        '@prefix rml: <http://w3id.org/rml/> . <#M> rml:logicalSource [ rml:source "in.parquet" ; '
        'rml:referenceFormulation rml:JSONPath ] ; rml:subjectMap [ rml:template "http://ex/{$.id}" ] ; '
        'rml:predicateObjectMap [ rml:predicate <http://ex/on> ; rml:objectMap [ rml:reference "$.on" ] ] , '
        '[ rml:predicate <http://ex/n> ; rml:objectMap [ rml:reference "$.items[*].n" ] ] .'
        '<#N> rml:logicalSource [ rml:source "in.parquet" ; rml:referenceFormulation rml:JSONPath ; '
        'rml:iterator "$.items[*]" ] ; rml:subjectMap [ rml:template "http://ex/n/{$.n}" ; rml:class <http://ex/N> ] .'
    )
    mapping = replace(load_rml(str(tmp_path / "m.ttl"), ("in.parquet",)), time=TimeMap(None, every_ms=10))
    config = RecordSource(kind="parquet", paths=(str(tmp_path / "in.parquet"),), mapping=mapping)
    a = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
    assert lines_of(*prepare_records(config, config.paths[0], tmp_path)) == [
        f'<http://ex/1> <http://ex/on> "true"^^<{XSD}boolean> .',
        f'<http://ex/1> <http://ex/n> "1"^^<{XSD}integer> .',
        f'<http://ex/1> <http://ex/n> "2"^^<{XSD}integer> .',
        f"<http://ex/n/1> {a} <http://ex/N> .",
        f"<http://ex/n/2> {a} <http://ex/N> .",
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('[{"id": 1},\n {"id": 2]', r"in\.json, line 2: expected a JSON document \(Expecting"),
        ("", r"in\.json, line 1: expected a JSON document \(Expecting value, column 1\)"),
        (b'[{"v": "a"},\n{"v": "\xff"}]', r"in\.json, line 2: expected a JSON document in UTF-8"),
    ],
)
def test_documents_that_are_none(data: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        lines(tmp_path, data, SIMPLE + '[[triple]]\npredicate = "http://ex/p"\nvalue = "{v}"\n', "json")


def test_parquet_types(tmp_path: Path) -> None:
    names = ["s", "i", "d", "f", "b", "day", "at", "list", "struct.x", "kind"]
    text = 'subject = "http://ex/{_row}"\n[time]\ncolumn = "at"\n'
    text += "".join(f'[[triple]]\npredicate = "http://ex/{name}"\nvalue = "{{{name}}}"\n' for name in names)
    table = pa.table(
        {
            "s": ["x", None],
            "i": pa.array([1, -2], pa.int32()),
            "d": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
            "f": [float("nan"), float("-inf")],
            "b": [True, False],
            "day": pa.array([datetime(2026, 1, 2).date()] * 2),
            "at": pa.array([datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)] * 2, pa.timestamp("us", "UTC")),
            "list": [["p", "q"], None],
            "struct": [{"x": 1}, {"x": None}],
            "kind": pa.array(["u", "v"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=1)
    source, index = opened(tmp_path, (tmp_path / "in.parquet").read_bytes(), text, "parquet")
    found = [line.removesuffix(" .").split("> ", 2)[1:] for line in lines_of(source, index)]
    values = [(name.removeprefix("<http://ex/"), text.strip('"')) for name, text in found]
    assert values == [
        ("s", "x"),
        ("i", "1"),
        ("d", "1.50"),
        ("f", "NaN"),
        ("b", "true"),
        ("day", "2026-01-02"),
        ("at", "2026-01-02T03:04:05.678Z"),
        ("list", "p"),
        ("list", "q"),
        ("struct.x", "1"),
        ("kind", "u"),
        ("i", "-2"),
        ("f", "-INF"),
        ("b", "false"),
        ("day", "2026-01-02"),
        ("at", "2026-01-02T03:04:05.678Z"),
        ("kind", "v"),
    ]
    assert index.times.tolist() == [1767323045678] * 2


# --- columns made of others -------------------------------------------------------------------------------------------


def test_numbers_are_computed_and_faults_named(tmp_path: Path) -> None:
    text = (
        SIMPLE
        + '[column.n]\nnumber = "{a b} / b"\ntype = "double"\n[[triple]]\npredicate = "http://ex/p"\nvalue = "{n}"\n'
    )
    data = "id,a b,b\n1,1,4\n2,1,0\n3,x,1\n4,,1\n"
    assert lines(tmp_path, data, text) == ['<http://ex/1> <http://ex/p> "0.25" .']
    assert faults(tmp_path, data, text) == [
        (3, 1, "{a b} / b divides by 0"),
        (4, 3, "expected a number in a b, found 'x'"),
    ]
    zero = text.replace('type = "double"', 'type = "double"\nzero_divisor = -1')
    assert lines(tmp_path, data, zero)[1] == '<http://ex/2> <http://ex/p> "-1.0" .'
    whole = text.replace("double", "integer")
    assert faults(tmp_path, "id,a b,b\n1,1,4\n2,8,4\n", whole) == [(2, 1, "{a b} / b = 0.25 is no integer")]


def test_numbers_that_python_does_not_hold_make_bad_records(tmp_path: Path) -> None:
    text = SIMPLE + '[column.n]\nnumber = "v * 10"\n[[triple]]\npredicate = "http://ex/p"\nvalue = "{n}"\n'
    digits = "9" * 5000
    data = f"id,v\n1,1e308\n2,{digits}\n3,5\n"
    for kind in ("", "integer", "decimal", "double"):
        mapping = text.replace("v * 10", f'v * 10"\ntype = "{kind}') if kind else text
        written = "50.0" if kind == "double" else "50"
        assert lines(tmp_path, data, mapping) == [f'<http://ex/3> <http://ex/p> "{written}" .']
        assert [reason for _, _, reason in faults(tmp_path, data, mapping)] == [
            "v * 10 is too large",
            f"expected a number in v, found {digits[:80]!r}",
        ]
    many = text.replace("v * 10", "v * v")
    assert faults(tmp_path, f"id,v\n1,{digits[:3000]}\n", many) == [(2, 1, "v * v is too large")]


def test_whole_numbers_stay_exact_as_decimals(tmp_path: Path) -> None:
    text = SIMPLE + '[column.n]\nnumber = "v + 1"\ntype = "decimal"\n[[triple]]\npredicate = "http://ex/p"\n'
    data = "id,v\n1,1700000000123456789\n2,1.5\n"
    assert lines(tmp_path, data, text + 'value = "{n}"\n') == [
        '<http://ex/1> <http://ex/p> "1700000000123456790" .',
        '<http://ex/2> <http://ex/p> "2.5" .',
    ]


def test_times_become_datetimes_of_utc(tmp_path: Path) -> None:
    text = SIMPLE + '[column.at]\ntime = "v"\nformat = "%d.%m.%Y %H:%M"\nzone = "Europe/Berlin"\n'
    text += '[[triple]]\npredicate = "http://ex/p"\nvalue = "{at}"\ndatatype = "xsd:dateTime"\n'
    assert lines(tmp_path, "id,v\n1,01.07.2026 10:00\n2,\n", text) == [
        f'<http://ex/1> <http://ex/p> "2026-07-01T08:00:00.000Z"^^<{XSD}dateTime> .'
    ]
    assert faults(tmp_path, "id,v\n1,soon\n", text) == [(2, 3, "expected a time as %d.%m.%Y %H:%M in v, found 'soon'")]


def test_lookups_in_csv_and_rdf(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("name,metres\nx,100\nx,7\n")
    with gzip.open(tmp_path / "zones.ttl.gz", "wt") as file:
        file.write('<http://z/1> <http://z/name> "North" .')
    text = SIMPLE + '[lookup.length]\nfile = "other.csv"\nkey = "name"\nvalue = "metres"\nby = "v"\n'
    text += '[lookup.zone]\nfile = "zones.ttl.gz"\nquery = "SELECT ?z ?n { ?z <http://z/name> ?n }"\nby = "z"\n'
    text += '[[triple]]\npredicate = "http://ex/p"\nvalue = "{length} {zone}"\n'
    assert lines(tmp_path, "id,v,z\n1,x,http://z/1\n2,y,http://z/1\n3,x,http://z/2\n", text) == [
        '<http://ex/1> <http://ex/p> "100 North" .'
    ]
    with pytest.raises(DataError, match=r"other\.csv, line 1: expected the columns name and m, found"):
        lines(tmp_path, "id,v,z\n1,x,y\n", text.replace("metres", "m"))
    with pytest.raises(DataError, match=r"zones\.ttl\.gz: expected a SELECT query of two variables"):
        lines(tmp_path, "id,v,z\n1,x,y\n", text.replace("?z ?n {", "?z {"))


@pytest.mark.parametrize("keys", ['key = "k"\nvalue = "v"', 'query = "SELECT ?k ?v { ?k ?p ?v }"'])
def test_a_damaged_lookup_is_named(keys: str, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress("".join(f"{one},{one * 7919 % 1000}\n" for one in range(3000)).encode()))
    packed[20] ^= 0xFF
    (tmp_path / "l.csv.gz").write_bytes(packed)
    text = VALUE + f'[lookup.w]\nfile = "l.csv.gz"\nby = "v"\n{keys}\n'
    with pytest.raises(DataError, match=r"l\.csv\.gz: cannot be read as (CSV|RDF) \(Error -3 while decompressing"):
        lines(tmp_path, "id,v\n1,2\n", text)


# --- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "format", "zone", "expected"),
    [
        ("1970-01-01T00:00:01", "iso", "UTC", 1000),
        ("1970-01-01 00:00:01.5", "iso", "UTC", 1500),
        ("1970-01-01T00:00:01.0009Z", "iso", "Europe/Berlin", 1000),
        ("1970-01-01T01:00:00+01:00", "iso", "UTC", 0),
        ("1970-01-01T01:00:00", "iso", "Europe/Berlin", 0),
        ("1970-01-02", "iso", "UTC", 86_400_000),
        ("1969-12-31T23:59:59.9995", "iso", "UTC", -1),
        ("2026-02-30T00:00:00", "iso", "UTC", None),
        # XSD 1.1 part 2, 3.3.7: 24:00:00 is the first instant of the next day, and no other time has the hour 24.
        ("1970-01-01T24:00:00Z", "iso", "UTC", 86_400_000),
        ("1969-12-31 24:00:00.000", "iso", "UTC", 0),
        ("1970-01-01T24:00:00+01:00", "iso", "UTC", 82_800_000),
        ("1970-01-01T24:00:00", "iso", "Europe/Berlin", 82_800_000),
        ("1970-01-01T24:00:01Z", "iso", "UTC", None),
        ("1970-01-01T24:00:00.5Z", "iso", "UTC", None),
        ("tomorrow", "iso", "UTC", None),
        ("1.0005", "epoch_s", "UTC", 1000),
        ("-1", "epoch_ms", "UTC", -1),
        ("1999", "epoch_us", "UTC", 1),
        ("1000000", "epoch_ns", "UTC", 1),
        ("1e3", "epoch_s", "UTC", None),
        ("99999999999999999999", "epoch_ms", "UTC", None),
        ("9" * 5000, "epoch_ms", "UTC", None),
        ("9999-12-31T23:59:59-05:00", "iso", "UTC", None),
        ("0001-01-01", "iso", "Asia/Tokyo", None),
        ("31/12/69 17", "%d/%m/%y %H", "UTC", -25_200_000),
        ("2026-10-25T02:30:00", "iso", "Europe/Berlin", 1792888200000),
    ],
)
def test_times(text: str, format: str, zone: str, expected: int | None, tmp_path: Path) -> None:
    assert time_of(text, TimeFormat(format, zone)) == expected
    mapping = f'subject = "http://ex/{{t}}"\n[time]\ncolumn = "t"\nformat = "{format}"\nzone = "{zone}"\n'
    mapping += '[[triple]]\npredicate = "http://ex/p"\nvalue = "x"\n'
    rows = read_all(*opened(tmp_path, f"t,u\n{text},\n", mapping))
    assert rows.encoded.timestamps.tolist() == ([] if expected is None else [expected])


@pytest.mark.parametrize("far", ["9999-12-31T23:59:59Z", "1900-01-01T00:00:00"])
def test_a_time_that_no_stream_takes_makes_a_bad_record(far: str, tmp_path: Path) -> None:
    """It is no end of the run, and makes none of the others late."""
    mapping = VALUE.replace("every_ms = 1000", 'column = "v"')
    source, index = opened(tmp_path, f"id,v\n1,2026-01-01T00:00:00\n2,{far}\n3,2026-01-02T00:00:00\n", mapping)
    rows = read_all(source, index)
    assert rows.offsets.tolist() == [0, 2]
    (one,) = rows.malformed
    assert one.reason == f"expected a date and time in 1935 to 2109 in v, found {far!r}"


def test_start_and_backwards(tmp_path: Path) -> None:
    text = VALUE.replace("every_ms = 1000", 'column = "v"\nstart = "1970-01-01T00:00:02"')
    data = "id,v\n1,1970-01-01T00:00:01\n2,1970-01-01T00:00:03\n3,1970-01-01T00:00:02\n4,later\n5,1970-01-01T00:00:03\n"
    source, index = opened(tmp_path, data, text)
    rows = read_all(source, index)
    assert rows.encoded.timestamps.tolist() == [3000, 3000]
    assert rows.offsets.tolist() == [0, 3]
    assert [(one.line, one.reason) for one in rows.backwards] == [(4, "its time 2000 ms is before 3000 ms")]
    assert [(one.line, one.reason) for one in rows.malformed] == [(5, "expected a date and time in v, found 'later'")]
    paced = text.replace("start", "every_ms = 500\nstart")
    assert read_all(*opened(tmp_path, data, paced)).encoded.timestamps.tolist() == [0, 500, 1000, 1500]


# --- numbers ----------------------------------------------------------------------------------------------------------

NUMBER = VALUE + 'datatype = "xsd:{kind}"\n[number]\n{marks}\n'


@pytest.mark.parametrize(
    ("marks", "kind", "cell", "expected"),
    [
        ("decimal = ','\nthousands = '.'", "decimal", "1.234,56", "1234.56"),
        ("decimal = ','\nthousands = '.'", "decimal", " -1.234.567,5 ", "-1234567.5"),
        ("decimal = ','\nthousands = '.'", "decimal", "1234,5", "1234.5"),
        ("decimal = ','\nthousands = '.'", "decimal", ",5", ".5"),
        ("decimal = ','\nthousands = '.'", "integer", "1.234", "1234"),
        ("decimal = ','\nthousands = '.'", "double", "1,5E-3", "1.5E-3"),
        ("decimal = ','\nthousands = '.'", "double", "-INF", "-INF"),
        ("decimal = ','\nthousands = '.'", "decimal", "1.5", None),
        ("decimal = ','\nthousands = '.'", "decimal", "1.234.56,7", None),
        ("decimal = ','\nthousands = '.'", "decimal", "1234.567,8", None),
        ("decimal = ','\nthousands = '.'", "decimal", "1,234.5", None),
        ("decimal = ','\nthousands = '.'", "integer", "1,5", None),
        ("decimal = ','\nthousands = '.'", "decimal", ",", None),
        ("decimal = ','", "decimal", "1.5", None),
        ("thousands = ','", "decimal", "1,234.5", "1234.5"),
        ('decimal = ","\nthousands = " \\u00a0\\u202f"', "decimal", "1\u202f234 567,8", "1234567.8"),
        ('thousands = "\'"', "decimal", "1'234.5", "1234.5"),
        ("decimal = ','\nthousands = '.'", "string", "1.234,56", "1.234,56"),
        ("decimal = ','\nthousands = '.'", "date", "2026-01-01", "2026-01-01"),
    ],
)
def test_numbers_are_read_by_their_marks(
    marks: str, kind: str, cell: str, expected: str | None, tmp_path: Path
) -> None:
    text = NUMBER.replace("{kind}", kind).replace("{marks}", marks)
    data = f'id,v\n1,"{cell}"\n'
    if expected is None:
        ((line, _, reason),) = faults(tmp_path, data, text)
        assert line == 2
        assert reason.startswith(f"expected xsd:{kind} with the decimal mark ','")
        assert reason.endswith(f" in v, found {cell!r}")
    else:
        assert lines(tmp_path, data, text) == [f'<http://ex/1> <http://ex/p> "{expected}"^^<{XSD}{kind}> .']


def test_marks_hold_for_expressions_and_not_for_texts(tmp_path: Path) -> None:
    text = """
subject = "http://ex/{id}"
unless = { v = "1.000,5" }
[time]
every_ms = 1
[number]
decimal = ","
thousands = "."
[number.column.usd]
thousands = ","
[column.sum]
number = "v + usd"
[[triple]]
predicate = "http://ex/sum"
value = "{sum}"
datatype = "xsd:double"
[[triple]]
predicate = "http://ex/as-written"
value = "{v}"
[[triple]]
predicate = "http://ex/{v}"
value = "{usd}"
datatype = "xsd:decimal"
"""
    data = 'id,v,usd\n1,"1.234,5","1,000.25"\n2,"1.000,5","1"\n3,"1.5","1"\n4,"1","1.000"\n5,"1.5",\n'
    assert lines(tmp_path, data, text) == [
        f'<http://ex/1> <http://ex/sum> "2234.75"^^<{XSD}double> .',
        '<http://ex/1> <http://ex/as-written> "1.234,5" .',
        f'<http://ex/1> <http://ex/1.234%2C5> "1000.25"^^<{XSD}decimal> .',
        f'<http://ex/4> <http://ex/sum> "2.0"^^<{XSD}double> .',
        '<http://ex/4> <http://ex/as-written> "1" .',
        f'<http://ex/4> <http://ex/1> "1.000"^^<{XSD}decimal> .',
        '<http://ex/5> <http://ex/as-written> "1.5" .',
    ]
    assert faults(tmp_path, data, text) == [
        (4, 4, "expected a number with the decimal mark ',' and '.' between thousands in v, found '1.5'")
    ]


def test_numbers_of_json_and_parquet_are_read_plainly_unless_their_column_is_named(tmp_path: Path) -> None:
    text = NUMBER.replace("{kind}", "decimal").replace("{marks}", "decimal = ','\nthousands = '.'")
    plain = [f'<http://ex/1> <http://ex/p> "1.234"^^<{XSD}decimal> .']
    assert lines(tmp_path, '{"id": 1, "v": 1.234}\n', text, "jsonl") == plain
    pq.write_table(pa.table({"id": ["1"], "v": pa.array([Decimal("1.234")])}), tmp_path / "a.parquet")
    assert lines(tmp_path, (tmp_path / "a.parquet").read_bytes(), text, "parquet") == plain
    named = text.replace("[number]", "[number.column.v]")
    assert lines(tmp_path, '{"id": 1, "v": "1.234,5"}\n', named, "jsonl") == [
        f'<http://ex/1> <http://ex/p> "1234.5"^^<{XSD}decimal> .'
    ]


MARKS = st.sampled_from([{"decimal": ","}, {"thousands": ","}, {"decimal": ",", "thousands": ". "}, {}])


@fuzzed(300)
@given(
    MARKS,
    MARKS,
    st.sampled_from(sorted(oracle.NUMBERS)),
    st.lists(st.text(st.sampled_from("0123., +-eE"), max_size=9), min_size=1, max_size=20),
)
def test_random_numbers_as_the_oracle_says(
    tmp_path_factory: pytest.TempPathFactory, whole: dict[str, str], own: dict[str, str], kind: str, cells: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("numbers")
    text = NUMBER.replace("{kind}", kind).replace("{marks}", "".join(f"{k} = {v!r}\n" for k, v in whole.items()))
    if own:
        text += "[number.column.v]\n" + "".join(f"{k} = {v!r}\n" for k, v in own.items())
    mapping = tomllib.loads(text)
    found = [oracle.triples(mapping, {"id": "1", "v": cell}) for cell in cells]
    data = "id,v\n" + "".join(f'1,"{cell}"\n' for cell in cells)
    source, index = opened(folder, data, text)
    made = source.make(index.range(0, len(index)), SCOPE, 62)
    assert made.text.tobytes().decode().split("\n")[:-1] == [line for lines in found if lines for line in lines]
    assert sorted(made.read.table.bad) == [row for row, lines in enumerate(found) if lines is None]


# --- files ------------------------------------------------------------------------------------------------------------


def test_byte_order_mark_line_ends_and_gzip(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbf"id",v\r\n1,"a\r\nb"\r\n\r\n2,c'
    expected = ['<http://ex/1> <http://ex/p> "a\\r\\nb" .', '<http://ex/2> <http://ex/p> "c" .']
    assert lines(tmp_path, data, VALUE) == expected
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(data))
    mapping = load_mapping(tmp_path / "m.toml")
    source = RecordSource(kind="csv", paths=(str(tmp_path / "in.csv.gz"),), mapping=mapping)
    assert lines_of(*prepare_records(source, source.paths[0], tmp_path)) == expected


def test_lines_of_bad_records_count_those_inside_of_fields(tmp_path: Path) -> None:
    text = VALUE + 'datatype = "xsd:integer"\n'
    assert [line for line, _, _ in faults(tmp_path, 'id,v\n"1\n\n",2\n3,x\n"4\n",y\n5,z\n', text)] == [5, 6, 8]


@pytest.mark.parametrize(
    ("data", "mapping", "error", "message"),
    [
        ("id,w\n", VALUE, SettingsError, r"m\.toml: expected a column 'v' in .*in\.csv, found id, w"),
        ("id,v,v\n", VALUE, SettingsError, "expected one column 'v' in"),
        (
            "",
            VALUE,
            DataError,
            r"in\.csv, line 1: expected a header with the names of the columns: found an empty line",
        ),
        ("\n1,2\n", VALUE, DataError, "found an empty line"),
        (b"id,\xff\n", VALUE, DataError, r"in\.csv, line 1: expected a header in UTF-8"),
        ('id,"v\n', VALUE, DataError, "expected a header .*: expected CSV, found a quote that is not closed"),
    ],
)
def test_headers(data: str | bytes, mapping: str, error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        opened(tmp_path, data, mapping)


LOOKUP = "file='m.toml'\nkey='k'\nvalue='w'\n"


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ("", r"triple: expected at least one \[\[triple\]\], found none"),
        (
            "[[triple]]\npredicate = 'a'\nobject = 'a'",
            "a subject here, or one for all triples at the top, found neither",
        ),
        (
            "subjct='http://x'\n[[triple]]\npredicate='a'\nobject='a'",
            "line 1, subjct: expected the key subject, found the unknown key 'subjct'",
        ),
        (
            "subject='http://x'\n[[triple]]\npredicate='_:x'\nvalue=''",
            "line 3, .*predicate: expected an IRI, found '_:x'",
        ),
        ("subject='http://x'\n[[triple]]\npredicate='a'", "an object .* or a value .*, found neither"),
        ("subject='http://x'\n[[triple]]\npredicate='a'\nvalue=5", "value: expected a text such as '{fare}', found 5"),
        (
            "subject='x/{a}'\n[[triple]]\npredicate='a'\nvalue=''",
            "expected an absolute IRI or a prefixed name, found 'x/{a}'",
        ),
        ("subject='{a}/x'\n[[triple]]\npredicate='a'\nvalue=''", r"write \{\+a\} if the cell begins it"),
        ("subject='_: '\n[[triple]]\npredicate='a'\nvalue=''", "expected `_:` and a label"),
        ("subject='http://x y'\n[[triple]]\npredicate='a'\nvalue=''", "expected an IRI, found ' ' in"),
        (VALUE + "when = 5", "when: expected the name of a column, or"),
        (VALUE + "if_empty = 'no'", "if_empty: expected one of 'skip', 'bad'"),
        (VALUE + "[column.x]\n", "column.x.number: expected number .* or time .*, found neither"),
        (VALUE + "[column.x]\nnumber='a +'\n", "number = 'a \\+': expected a column, a number or \\(, found the end"),
        (VALUE + "[column.v]\nnumber='v / 10'\n", "line .*column.v.number: .* that are made before it, found 'v'"),
        (VALUE + "[column.x]\ntime='y'\n[column.y]\nnumber='v'\n", "column.x.time: .* made before it, found 'y'"),
        (VALUE + f"[lookup.v]\n{LOOKUP}by='v'\n", "line .*lookup.v.by: .* that are made before it, found 'v'"),
        (VALUE + f"[lookup.x]\n{LOOKUP}by='y'\n[column.y]\nnumber='v'\n", "lookup.x.by: .* before it, found 'y'"),
        (
            VALUE.replace("every_ms = 1000", "column = 'x'") + "[column.x]\nnumber='v'\n",
            "line .*time.column: expected a column of the data, found 'x', which is made from others",
        ),
        (
            VALUE.replace("every_ms = 1000", "column = '_row'"),
            "time.column: expected a column of the data, found '_row'",
        ),
        (VALUE + "[lookup.x]\nfile='m.toml'\nby='v'\n", "lookup.x.query: expected key and value"),
        (VALUE + "[csv]\nheader = false\n", "csv.columns: expected the names of the columns"),
        (VALUE + "[number]\ndecimal = '.,'\n", "number.decimal: expected one character such as ','"),
        (VALUE + "[number]\nthousands = '.'\n", "number.thousands: expected other marks .* than the decimal mark '.'"),
        (VALUE + "[number]\nthousands = '0'\n", "number.thousands: expected marks such as"),
        (VALUE + "[number]\ndecimals = ','\n", "unknown key 'decimals'; did you mean decimal"),
        (VALUE + "[number.column.w]\ndecimal = ','\n", r"number.column.w: expected a column .* \(id, v\), found 'w'"),
        (VALUE + "[csv]\nquote = 'ab'\n", "csv.quote: expected one character, or none"),
        (VALUE.replace("every_ms = 1000", "start = '2026-01-01'\nevery_ms=1"), "time.start: expected an ISO date"),
        (VALUE.replace("every_ms = 1000", ""), "time.column: expected the column of the event time, or every_ms"),
        (
            VALUE.replace("[time]\nevery_ms = 1000", ""),
            r"m\.toml: expected a \[time\] \(when a record happens\), found none",
        ),
    ],
)
def test_mappings_that_are_refused(mapping: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        opened(tmp_path, "id,v\n", mapping)


def test_a_file_that_was_changed_is_named(tmp_path: Path) -> None:
    source, index = opened(tmp_path, "id,v\n1,2\n3,4\n", VALUE)
    (tmp_path / "in.csv").write_text("id,v\n1,2\n3,")
    with pytest.raises(DataError, match=r"in\.csv: expected 13 bytes, found 11"):
        read_all(source, index)
    (tmp_path / "in.csv").write_text("id,v\n1,233,4\n")
    with pytest.raises(DataError, match=r"in\.csv: this file was changed while it was replayed"):
        read_all(source, index)


# --- random records ---------------------------------------------------------------------------------------------------

CELLS = st.text(st.sampled_from('ab 1"\\,;\n\r{}<>%_ü\u20ac\U0001f600\x01é/'), max_size=5) | st.sampled_from(
    ["", "NULL", "7", " 8 ", "http://x/y", "en"]
)
COLUMNS = ("a", "b", "c d")
TEMPLATES = st.sampled_from(
    [
        "http://ex/{a}",
        "http://ex/{a}/{b}#x",
        "http://ex/{+b}",
        "{a}",
        "ex:{c d}",
        "_:x{a}",
        "_:{a}y{b}",
        "http://ex/k",
    ]
)


@st.composite
def mappings(draw: st.DrawFn) -> str:
    """The text of a mapping over the columns a, b and `c d`."""
    text = f'subject = "{draw(TEMPLATES)}"\n'
    if draw(st.booleans()):
        text += 'empty = ["", "NULL"]\n'
    if draw(st.booleans()):
        text += draw(st.sampled_from(['when = "a"\n', 'unless = { b = ["7", ""] }\n', 'when = { a = "7" }\n']))
    text += '[prefixes]\nex = "http://example.org/"\n[time]\nevery_ms = 10\n'
    if draw(st.booleans()):
        text += '[split]\n"c d" = ";"\n'
    for number in range(draw(st.integers(1, 3))):
        text += f'[[triple]]\npredicate = "http://ex/p{number}"\n'
        if draw(st.booleans()):
            text += f'object = "{draw(TEMPLATES)}"\n'
        else:
            text += f'value = "{draw(st.sampled_from(["{a}", "{c d}", "{b} {{{c d}}}", "k"]))}"\n'
            text += draw(st.sampled_from(["", 'datatype = "xsd:integer"\n', 'language = "en"\n']))
        text += draw(st.sampled_from(["", 'if_empty = "bad"\n', 'unless = "b"\n']))
    return text


@pytest.mark.slow
@fuzzed(400)
@given(mappings(), st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=8), st.randoms(use_true_random=False))
def test_random_records_as_the_oracle_says(
    tmp_path_factory: pytest.TempPathFactory, text: str, rows: list[tuple[str, ...]], random: Any
) -> None:
    folder = tmp_path_factory.mktemp("records")
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows)
    mapping = tomllib.loads(text)
    expected: list[tuple[int, str]] = []
    bad = []
    for place, row in enumerate(rows):
        record: dict[str, oracle.Cell] = dict(zip(COLUMNS, row, strict=True))
        if "split" in mapping and record["c d"] not in ("", *mapping.get("empty", [""])):
            record["c d"] = [part.strip() for part in str(record["c d"]).split(";")]
        found = oracle.triples(mapping, record)
        if found is None:
            bad.append(place)
        else:
            expected += [(place, line) for line in found]
    source, index = opened(folder, buffer.getvalue(), text)
    made = source.make(index.range(0, len(index)), SCOPE, 62)
    found_lines = made.text.tobytes().decode().split("\n")[:-1]
    assert list(zip(made.rows.tolist(), found_lines, strict=True)) == expected
    assert sorted(made.read.table.bad) == bad

    as_json = "".join(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in rows)
    of_json = opened(folder, as_json, text, "jsonl")
    assert lines_of(*of_json) == found_lines
    table = pa.table(
        {name: [row[place] for row in rows] for place, name in enumerate(COLUMNS)},
        pa.schema(dict.fromkeys(COLUMNS, pa.string())),
    )
    pq.write_table(table, folder / "in.parquet", row_group_size=3)
    assert lines_of(*opened(folder, (folder / "in.parquet").read_bytes(), text, "parquet")) == found_lines

    travelled = pickle.loads(pickle.dumps(source))
    bounds = sorted({0, len(index), *(random.randint(0, len(index)) for _ in range(2))})
    parts: list[Rows] = [travelled.read(index.range(first, end), SCOPE, 62) for first, end in pairwise(bounds)]
    whole = read_all(source, index)
    assert [one for part in parts for one in part.offsets.tolist()] == whole.offsets.tolist()
    assert [one for part in parts for one in part.malformed] == whole.malformed


@pytest.mark.nojit
@fuzzed(300)
@given(st.lists(st.lists(CELLS, min_size=1, max_size=3), max_size=6), st.booleans())
def test_fields_as_pythons_csv_reads_them(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], quote_all: bool
) -> None:
    from wukongs.adapters.mapping.mapping import Csv
    from wukongs.adapters.sources.csv_records import CsvRecords

    rows = [[*row, *[""] * (3 - len(row))] for row in rows]
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\r\n", quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL).writerows(rows)
    data = buffer.getvalue().encode()
    table, _ = CsvRecords(Csv(), COLUMNS).table(data, len(rows), COLUMNS, "in.csv")
    assert [list(cells) for cells in zip(*(table.names[name].to_pylist() for name in COLUMNS), strict=True)] == rows
    assert not table.bad


AUTUMN = 1_792_886_400_000
"""2026-10-25T00:00Z: clocks of Berlin go back from 03:00 to 02:00 at 01:00Z (tz database)."""
MINUTE = 60_000


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("format", ["iso", "%d.%m.%Y %H:%M"])
@pytest.mark.parametrize(
    ("ambiguous", "minutes"),
    [
        ("first", [-1, 0, 30, 59, 0, 30, 59, 120]),
        ("second", [-1, 60, 90, 119, 60, 90, 119, 120]),
        ("infer", [-1, 0, 30, 59, 60, 90, 119, 120]),
    ],
)
def test_hours_that_a_clock_change_repeats(
    tmp_path: Path, ambiguous: str, minutes: list[int], format: str, kind: str
) -> None:
    clock = ["01:59", "02:00", "02:30", "02:59", "02:00", "02:30", "02:59", "03:00"]
    texts = [f"2026-10-25T{one}:00" if format == "iso" else f"25.10.2026 {one}" for one in clock]
    (tmp_path / "m.toml").write_text(
        'subject = "http://ex/{n}"\n[[triple]]\npredicate = "http://ex/p"\nvalue = "x"\n'
        f'[time]\ncolumn = "t"\nformat = "{format}"\nzone = "Europe/Berlin"\nambiguous = "{ambiguous}"\n'
    )
    path = tmp_path / f"d.{kind}"
    if kind == "parquet":
        stamps = [datetime.strptime(one, format) for one in texts] if format != "iso" else texts
        pq.write_table(pa.table({"n": [str(n) for n in range(8)], "t": stamps}), path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps({"n": n, "t": text}) + "\n" for n, text in enumerate(texts)))
    else:
        path.write_text("n,t\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts)))
    config = RecordSource(kind=kind, paths=(str(path),), mapping=load_mapping(str(tmp_path / "m.toml")))  # type: ignore[arg-type]
    source, index = prepare_records(config, str(path), tmp_path)
    expected = [AUTUMN + one * MINUTE for one in minutes]
    assert index.times.tolist() == np.maximum.accumulate(expected).tolist()
    if ambiguous == "infer":  # in ranges of any length, as workers read them
        for size in (1, 3, 8):
            found = [source.read(index.range(at, min(at + size, 8)), SCOPE, 62) for at in range(0, 8, size)]
            assert [time for rows in found for time in rows.encoded.timestamps.tolist()] == expected


def test_what_is_ambiguous_is_inferred_within_the_lateness() -> None:
    format = TimeFormat("iso", "Europe/Berlin", "infer")
    cells = pa.array(["2026-10-25T02:30:00", "2026-10-25T02:28:00", "2026-10-25T02:10:00", None], pa.large_string())
    minutes = [(time - AUTUMN) // MINUTE for time in times_of(cells, format, lateness_ms=5 * MINUTE).tolist()[:3]]
    assert minutes == [30, 28, 70]
    spring = pa.array(["2026-03-29T02:30:00", "2026-03-29T02:10:00"], pa.large_string())  # an hour that is left out
    assert times_of(spring, format).tolist() == times_of(spring, TimeFormat("iso", "Europe/Berlin")).tolist()
    half_an_hour = TimeFormat("iso", "Australia/Lord_Howe", "infer")  # whose clocks go back by 30 minutes
    local = pa.array(["2026-04-05T01:45:00", "2026-04-05T01:30:00", "2026-04-05T02:00:00"], pa.large_string())
    first, second, third = times_of(local, half_an_hour).tolist()
    assert (second - first, third - second) == (15 * MINUTE, 30 * MINUTE)


def test_wrong_words_for_what_is_ambiguous_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"time\.ambiguous: expected one of 'first', 'second', 'infer', found 'last'"
    ):
        lines(tmp_path, "t\n1\n", 'subject = "http://ex/a"\n[time]\ncolumn = "t"\nambiguous = "last"\n')
    computed = '[column.u]\ntime = "t"\nambiguous = "infer"\n'
    with pytest.raises(SettingsError, match=r"column\.u\.ambiguous: expected first or second: only the event time"):
        lines(tmp_path, "t\n1\n", 'subject = "http://ex/a"\n[time]\ncolumn = "t"\n' + computed)


def test_zones_are_those_of_python(tmp_path: Path) -> None:
    moment = datetime(2026, 3, 29, 1, 59, tzinfo=UTC)
    assert time_of(moment.isoformat(), TimeFormat()) == int(moment.timestamp() * 1000)
