"""Rows of DataFrames through mappings, as Arrow tables: what they become, and errors that name their column."""

from __future__ import annotations

import pickle
import tomllib
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.oracles import mapping as oracle
from tests.unit.adapters.conftest import Listen
from tests.unit.adapters.receiver import RecordingNode, StreamSettings
from wukongs.adapters import sink
from wukongs.adapters.frame_mapping import frame_mapping
from wukongs.adapters.sink import Access, StreamWriter, push_rows
from wukongs.errors import DataError, SettingsError

XSD = "http://www.w3.org/2001/XMLSchema#"
AT = datetime(2026, 3, 2, 6, 0, 9, 678000, UTC)
AT_MS = int(AT.timestamp() * 1000)
MAPPING = 'subject = "http://ex/{id}"\n[time]\ncolumn = "at"\n[[triple]]\npredicate = "http://ex/p"\nvalue = "{v}"\n'
FRAME = {"id": [1], "v": ["x"], "at": pa.array([AT], pa.timestamp("us", "UTC"))}


def _lines(mapping: str, frame: dict[str, object], has_time: bool = True) -> list[tuple[str, int]]:
    table = pa.table(frame)
    made = frame_mapping(mapping, table.schema, has_time)
    travelled = pickle.loads(pickle.dumps(made))
    rows = travelled.rows(table.select(made.columns))
    return list(zip(rows["value"].to_pylist(), rows["time"].to_pylist(), strict=True))


def test_types_structs_and_lists() -> None:
    names = ["n", "d", "f", "yes", "day", "at", "local", "user.name", "user.at", "tags", "items[].sku", "kind"]
    mapping = 'subject = "http://ex/{id}"\n[time]\ncolumn = "at"\n'
    mapping += "".join(f'[[triple]]\npredicate = "http://ex/{name[0]}"\nvalue = "{{{name}}}"\n' for name in names)
    mapping += '[[triple]]\nsubject = "http://ex/{items[].sku}"\npredicate = "http://ex/price"\n'
    mapping += 'value = "{items[].price}"\ndatatype = "xsd:decimal"\n'
    frame = {
        "id": [7, 8],
        "n": pa.array([1, None], pa.int32()),
        "d": pa.array([Decimal("1.50"), None]),
        "f": [1.5, float("nan")],
        "yes": [True, None],
        "day": [date(2026, 1, 2), None],
        "at": pa.array([AT, AT], pa.timestamp("us", "Europe/Berlin")),
        "local": pa.array([AT.replace(tzinfo=None), None], pa.timestamp("us")),
        "user": [{"name": "Ann", "at": AT}, None],
        "tags": [["a", "b"], []],
        "items": [[{"sku": "x", "price": 1}, {"sku": "y", "price": None}], None],
        "kind": pa.array(["u", None]).dictionary_encode(),
        "not used": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
    }
    expected = [
        ("n", "1"),
        ("d", "1.50"),
        ("f", "1.5"),
        ("y", "true"),
        ("d", "2026-01-02"),
        ("a", "2026-03-02T06:00:09.678Z"),
        ("l", "2026-03-02T06:00:09.678"),
        ("u", "Ann"),
        ("u", "2026-03-02T06:00:09.678Z"),
        ("t", "a"),
        ("t", "b"),
        ("i", "x"),
        ("i", "y"),
        ("k", "u"),
    ]
    lines = [(f'<http://ex/7> <http://ex/{name}> "{text}" .', AT_MS) for name, text in expected]
    lines += [(f'<http://ex/x> <http://ex/price> "1"^^<{XSD}decimal> .', AT_MS)]
    lines += [
        ('<http://ex/8> <http://ex/f> "NaN" .', AT_MS),
        ('<http://ex/8> <http://ex/a> "2026-03-02T06:00:09.678Z" .', AT_MS),
    ]
    assert _lines(mapping, frame) == lines


def test_times_of_texts_zones_and_the_column_time() -> None:
    local = {**FRAME, "at": pa.array([AT.replace(tzinfo=None)], pa.timestamp("us"))}
    in_berlin = MAPPING.replace('"at"', '"at"\nzone = "Europe/Berlin"')
    assert [time for _, time in _lines(in_berlin, local)] == [AT_MS - 3_600_000]
    text = {**FRAME, "at": ["02.03.2026 06:00"]}
    own = MAPPING.replace('"at"', '"at"\nformat = "%d.%m.%Y %H:%M"')
    assert [time for _, time in _lines(own, text)] == [AT_MS // 60_000 * 60_000]
    without = MAPPING.replace('[time]\ncolumn = "at"\n', "")
    for times in (FRAME["at"], pa.array([AT_MS])):
        assert [time for _, time in _lines(without, {"id": [1], "v": ["x"], "time": times})] == [AT_MS]
    two = {name: [*values, *values] for name, values in {"id": [1], "v": ["x"]}.items()}
    early = {**two, "at": pa.array([AT, datetime(2026, 3, 2, tzinfo=UTC)], pa.timestamp("us", "UTC"))}
    started = MAPPING.replace('"at"', '"at"\nstart = "2026-03-02T03:00:00"')
    assert [time for _, time in _lines(started, early)] == [AT_MS]
    assert _lines(MAPPING, FRAME, has_time=False) == [('<http://ex/1> <http://ex/p> "x" .', 0)]
    assert _lines(MAPPING, {"id": [1], "v": ["x"]}, has_time=False) == [('<http://ex/1> <http://ex/p> "x" .', 0)]


def test_a_mapping_and_its_lookups_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "zones.csv").write_text("id,name\nz,North\n")
    mapping = (
        MAPPING.replace("{v}", "{zone}") + '[lookup.zone]\nfile = "zones.csv"\nkey = "id"\nvalue = "name"\nby = "v"\n'
    )
    (tmp_path / "m.toml").write_text(mapping)
    table = pa.table({**FRAME, "v": ["z"]})
    made = frame_mapping(str(tmp_path / "m.toml"), table.schema, has_time=True)
    (tmp_path / "zones.csv").unlink()  # as on another machine
    assert made.rows(table)["value"].to_pylist() == ['<http://ex/1> <http://ex/p> "North" .']


@pytest.mark.parametrize(
    ("mapping", "frame", "message"),
    [
        (
            MAPPING,
            {"id": [1], "value": ["x"], "at": FRAME["at"]},
            "option 'mapping', column 'v': the DataFrame has no such column, only id, value, at",
        ),
        (MAPPING.replace("{v}", "{vv}"), FRAME, "column 'vv': the DataFrame has no such column.* Did you mean 'v'"),
        (
            MAPPING,
            {**FRAME, "v": [{"x": 1}]},
            r"column v: expected values that have a text, found struct.* such as v\.x",
        ),
        (MAPPING, {**FRAME, "v": [[{"x": 1}]]}, r"column v\[\]: expected values that have a text.* such as v\[\]\.x"),
        (MAPPING, {**FRAME, "v": [[["x"]]]}, "column v: expected values that have a text, found list<"),
        (MAPPING.replace('[time]\ncolumn = "at"\n', ""), FRAME, r"expected a \[time\] .*, or a column 'time' of type"),
        (
            MAPPING.replace('column = "at"', "every_ms = 5"),
            FRAME,
            "time.every_ms: the rows of a DataFrame have no numbers",
        ),
        (MAPPING.replace("{v}", "{_row}"), FRAME, "{_row} and {_file} are of files"),
        (
            MAPPING + "[number.column.id]\ndecimal = ','\n",
            FRAME,
            r"column 'id': \[number.column\] is about texts.* int64",
        ),
        (
            MAPPING + "[tripel]\n",
            FRAME,
            "option 'mapping', line 7, tripel: expected one of the keys .* did you mean triple",
        ),
        ("no\ntoml", FRAME, "option 'mapping', line 1, column 3: expected TOML, found an error"),
        ("absent.toml", FRAME, "absent.toml: cannot be read"),
    ],
)
def test_mappings_that_do_not_go_with_a_frame(mapping: str, frame: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        _lines(mapping, frame)


def test_blank_nodes_and_doubled_columns_are_refused() -> None:
    blank = MAPPING.replace("http://ex/{id}", "_:b{id}")
    assert _lines(blank, FRAME) == [('_:b1 <http://ex/p> "x" .', AT_MS)]
    with pytest.raises(SettingsError, match="blank nodes cannot be written to the stored graph"):
        _lines(blank, FRAME, has_time=False)
    doubled = pa.Table.from_arrays(
        [pa.array([1]), pa.array(["x"]), pa.array(["y"]), FRAME["at"]], ["id", "v", "v", "at"]
    )
    with pytest.raises(SettingsError, match="column 'v': the DataFrame has several of this name"):
        frame_mapping(MAPPING, doubled.schema, has_time=True)


@pytest.mark.parametrize(
    ("mapping", "frame", "message"),
    [
        (
            MAPPING + 'datatype = "xsd:integer"\n',
            FRAME,
            "expected xsd:integer in v, found 'x', in the row id=1, v=x, at=2026-03-02",
        ),
        (
            MAPPING,
            {**FRAME, "at": pa.array([None], pa.timestamp("us"))},
            "expected a date and time in at, found nothing",
        ),
        (MAPPING + 'if_empty = "bad"\n', {**FRAME, "v": [""]}, "expected a value in v, found nothing"),
        (
            MAPPING.replace('[time]\ncolumn = "at"\n', ""),
            {"id": [1], "v": ["x"], "time": pa.array([None], pa.int64())},
            "column 'time': a value is missing",
        ),
    ],
)
def test_a_row_that_cannot_be_read_names_its_column(mapping: str, frame: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        _lines(mapping, frame)


def test_mapped_rows_go_into_a_stream(listen: Listen) -> None:
    node = RecordingNode(s=StreamSettings(100))
    address, count = listen(node), 500
    table = pa.table(
        {"id": range(count), "v": [f"a\n{n}" for n in range(count)], "at": [n % 7 * 50 for n in range(count)]}
    )
    mapping = MAPPING.replace('"at"', '"at"\nformat = "epoch_ms"')
    rows = frame_mapping(mapping, table.schema, has_time=True).rows(table)
    try:
        for order in (rows, rows.take(list(reversed(range(count))))):  # run again, in another order
            sent = push_rows(StreamWriter(Access((address,)), "http://ex/s", "w", 1, 1), 0, 0, 0, order)
        assert (sent.rows, sent.newest_ms) == (count, 300)
        bad = frame_mapping(MAPPING + 'language = "{v}"\n', pa.table(FRAME).schema, has_time=True)
        wrong = bad.rows(pa.table({**FRAME, "v": ["1en"]}))
        writer = StreamWriter(Access((address,)), "http://ex/s", "x", 1, 1, text_name="a triple of the mapping")
        with pytest.raises(DataError, match=r"a triple of the mapping: .* language tag, found .*1en"):
            push_rows(writer, 0, 0, 0, wrong)
    finally:
        sink.forget_links()
    assert Counter(node.tuples["http://ex/s"]) == Counter(
        (n % 7 * 50, (f"<http://ex/{n}>", "<http://ex/p>", f'"a\n{n}"')) for n in range(count)
    )


TEXTS = st.none() | st.text(st.sampled_from('ab "\\\n<>é_1'), max_size=4)


@fuzzed(200)
@given(
    st.lists(
        st.tuples(TEXTS, st.none() | st.lists(TEXTS, max_size=3), st.none() | st.integers(-5, 5), st.integers(0, 50)),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["", 'when = "user.name"\n', 'unless = { n = ["1", "2"] }\n']),
)
def test_random_frames_as_the_oracle_says(
    rows: list[tuple[str | None, list[str | None] | None, int | None, int]], condition: str
) -> None:
    text = 'subject = "http://ex/{user.name}"\n[time]\ncolumn = "t"\nformat = "epoch_ms"\n'
    for value in ("{n}", "{tags}", "{tags} of {user.name}"):
        text += f'[[triple]]\npredicate = "http://ex/p"\nvalue = "{value}"\n{condition}'
    mapping = tomllib.loads(text)
    expected = []
    for name, tags, number, time in rows:
        record: dict[str, oracle.Cell] = {"user.name": name, "tags": tags, "n": None if number is None else str(number)}
        found = oracle.triples(mapping, record)
        assert found is not None
        expected += [(line, time) for line in found]
    frame = {
        "user": pa.array([{"name": name} for name, _, _, _ in rows], pa.struct([("name", pa.string())])),
        "tags": pa.array([tags for _, tags, _, _ in rows], pa.list_(pa.string())),
        "n": pa.array([number for _, _, number, _ in rows], pa.int64()),
        "t": pa.array([time for _, _, _, time in rows], pa.int64()),
    }
    assert _lines(text, frame) == expected


def test_json_paths_of_rml_name_columns_and_fields(tmp_path: Path) -> None:
    """A type of Arrow gives the natural datatype; an iterator goes over the structs of a list."""
    (tmp_path / "m.ttl").write_text(
        '@prefix rml: <http://w3id.org/rml/> . <#M> rml:logicalSource [ rml:source "t" ; rml:referenceFormulation '
        'rml:JSONPath ; rml:iterator "$.items[*]" ] ; rml:subjectMap [ rml:template "http://ex/{$.sku}" ; '
        "rml:class <http://ex/C> ] ; rml:predicateObjectMap [ rml:predicate <http://ex/n> ; "
        'rml:objectMap [ rml:reference "$.n" ] ] .'
    )
    table = pa.table(
        {
            "items": [[{"sku": "a", "n": 1.5}, {"sku": "b", "n": None}], None, [{"sku": "c", "n": 2.0}]],
            "time": [1, 2, 3],
        }
    )
    rows = frame_mapping(str(tmp_path / "m.ttl"), table.schema, has_time=True).rows(table)
    double = "^^<http://www.w3.org/2001/XMLSchema#double>"
    a_type = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://ex/C> ."
    assert sorted(zip(rows["time"].to_pylist(), rows["value"].to_pylist(), strict=True)) == sorted(
        [
            (1, f"<http://ex/a> {a_type}"),
            (1, f'<http://ex/a> <http://ex/n> "1.5E0"{double} .'),
            (1, f"<http://ex/b> {a_type}"),
            (3, f"<http://ex/c> {a_type}"),
            (3, f'<http://ex/c> <http://ex/n> "2.0E0"{double} .'),
        ]
    )
