"""What format("wukongs") reads and refuses, without a JVM: options, columns, cells, windows over a restart."""

from __future__ import annotations

import pickle
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from tests.clusters import PATIENT, cluster
from tests.faces import served, served_node
from tests.inside import ingest_of
from wukongs.adapters.spark.cells import check_schema, typed_batch
from wukongs.adapters.spark.change_reader import BEFORE_ALL, ChangeReader
from wukongs.adapters.spark.frame_writers import columns_of
from wukongs.adapters.spark.options import READ, WRITE, Options
from wukongs.adapters.spark.query_reader import query_reader
from wukongs.adapters.spark.table_source import WukongsDataSource
from wukongs.adapters.spark.window_reader import BEFORE_ALL_MS, WindowReader, window_reader
from wukongs.engine import Engine
from wukongs.errors import DataError, SettingsError, StreamError
from wukongs.settings import Settings

STREAM = "http://ex/s"
QUERY = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{STREAM}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"
VIEW = "REGISTER QUERY v AS SELECT ?s WHERE { ?s <http://ex/p> ?o }"
TRIPLE_SCHEMA = "subject string, predicate string, object string"
XSD = "http://www.w3.org/2001/XMLSchema#"


def _schema(text: str) -> StructType:
    """Return a schema of `name type, ...`, which Spark reads in its JVM only."""
    from pyspark.sql import types

    kinds = {
        "string": types.StringType(),
        "long": types.LongType(),
        "double": types.DoubleType(),
        "boolean": types.BooleanType(),
        "timestamp": types.TimestampType(),
        "date": types.DateType(),
    }
    fields = [part.split() for part in text.split(", ")]
    return StructType([types.StructField(name, kinds[kind]) for name, kind in fields])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"adress": "tcp://127.0.0.1:1"}, "option 'adress': there is none of this name here"),
        ({}, "option 'address' is missing"),
        ({"address": "tcp://127.0.0.1:1", "key": "k"}, "'key' and 'node_key' go together"),
        ({"address": "tcp://10.0.0.1:1"}, "10.0.0.1"),
        ({"address": "tcp://127.0.0.1:1", "partitions": "0"}, "option 'partitions' = '0': expected an integer from 1"),
        ({"address": "tcp://127.0.0.1:1", "lag_ms": "soon"}, "option 'lag_ms' = 'soon': expected an integer from 0"),
        ({"address": "tcp://127.0.0.1:1", "advance": "never"}, "'never': expected 'newest' or 'all'"),
        ({"address": "tcp://127.0.0.1:1", "writer": "a/b"}, "expected a name without '/'"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Options(given, WRITE).stream_writer(STREAM)


def test_options_of_spark_and_of_any_case_are_let_through() -> None:
    options = Options({"checkpointLocation": "x", "ADDRESS": "tcp://127.0.0.1:1, tcp://127.0.0.1:2,"}, READ)
    assert options.access().addresses == ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")


def test_columns_that_are_written() -> None:
    assert columns_of(_schema("time long, value string, key string"), True) == ("value", "time")
    triple = "object string, subject string, predicate string"
    assert columns_of(_schema(f"{triple}, time timestamp"), True) == ("subject", "predicate", "object", "time")
    assert columns_of(_schema(f"{triple}, graph string"), False) == ("subject", "predicate", "object", "graph")
    with pytest.raises(SettingsError, match=r"column 'time': expected one of type timestamp.*no such column: value"):
        columns_of(_schema("value string"), True)
    with pytest.raises(SettingsError, match="column 'graph': expected type string, of N-Triples, found bigint"):
        columns_of(_schema(f"{triple}, graph long"), False)


def test_literals_are_read_as_values() -> None:
    texts = pa.table(
        {
            "s": ["<http://ex/a>", None],
            "n": [f'"7"^^<{XSD}integer>', None],
            "d": [f'"-INF"^^<{XSD}double>', f'"2"^^<{XSD}integer>'],
            "b": [f'"true"^^<{XSD}boolean>', f'"0"^^<{XSD}boolean>'],
            "t": [f'"2024-01-02T03:04:05.5+01:00"^^<{XSD}dateTime>', f'"2024-01-02T03:04:05"^^<{XSD}dateTime>'],
        }
    )
    rows = typed_batch(texts, _schema("t timestamp, n long, b boolean, d double, s string")).to_pylist()
    moments = [datetime(2024, 1, 2, 2, 4, 5, 500_000, UTC), datetime(2024, 1, 2, 3, 4, 5, 0, UTC)]
    assert [row["t"] for row in rows] == moments
    assert [(row["s"], row["n"], row["d"], row["b"]) for row in rows] == [
        ("<http://ex/a>", 7, float("-inf"), True),
        (None, None, 2.0, False),
    ]


@pytest.mark.parametrize("text", ['"x"', "<http://ex/a>", f'"1.5"^^<{XSD}decimal>', f'"{1 << 70}"^^<{XSD}integer>'])
def test_a_term_that_is_no_value_of_its_column_is_named(text: str) -> None:
    with pytest.raises(DataError, match="column 'n': expected a bigint, found"):
        typed_batch(pa.table({"n": [text]}), _schema("n long"))


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (f'"2026-01-01T24:00:00Z"^^<{XSD}dateTime>', "timestamp", datetime(2026, 1, 2, tzinfo=UTC)),
        (
            f'"2026-01-01T23:00:00.1234567-01:00"^^<{XSD}dateTime>',
            "timestamp",
            datetime(2026, 1, 2, 0, 0, 0, 123456, UTC),
        ),
        (f'"2026-01-01"^^<{XSD}date>', "timestamp", datetime(2026, 1, 1, tzinfo=UTC)),
        (f'"+INF"^^<{XSD}double>', "double", float("inf")),
        (f'"-.5e1"^^<{XSD}double>', "double", -5.0),
        (f'"+07"^^<{XSD}integer>', "long", 7),
        (f'"2026-01-01T24:00:01Z"^^<{XSD}dateTime>', "timestamp", None),
        (f'"20260101T000000Z"^^<{XSD}dateTime>', "timestamp", None),
        (f'"2026-W01-1T00:00:00Z"^^<{XSD}dateTime>', "timestamp", None),
        (f'"2026-01-01T00:00:00+15:00"^^<{XSD}dateTime>', "timestamp", None),
        (f'"1_0"^^<{XSD}integer>', "long", None),
        (f'"1_0.5"^^<{XSD}double>', "double", None),
        (f'"nan"^^<{XSD}double>', "double", None),
        ('"5"@en', "long", None),
    ],
)
def test_values_have_the_lexical_forms_of_xsd(text: str, kind: str, expected: object) -> None:
    """XSD 1.1 part 2: 3.3.4 (double), 3.3.7 (dateTime, with 24:00:00), 3.4.13 (integer)."""
    table = pa.table({"x": [text]})
    if expected is None:
        with pytest.raises(DataError, match="column 'x': expected a "):
            typed_batch(table, _schema(f"x {kind}"))
    else:
        assert typed_batch(table, _schema(f"x {kind}"))["x"].to_pylist() == [expected]


def test_schemas_are_those_of_the_query() -> None:
    def schema(**options: str) -> str:
        return WukongsDataSource(options).schema()

    assert schema(query="SELECT ?a ?b WHERE { ?a ?p ?b }") == "`a` string, `b` string"
    assert schema(query="ASK { ?a ?p ?b }") == "`ask` boolean"
    assert schema(graph="http://ex/g") == "`subject` string, `predicate` string, `object` string"
    assert schema(query=QUERY) == "`window_start` timestamp, `window_end` timestamp, `s` string"
    assert schema(query=VIEW) == "`s` string, `_change_type` string, `_commit_version` bigint"
    assert schema(query="REGISTER QUERY v AS ASK { ?s ?p ?o }").startswith("`ask` boolean, `_change_type` string")
    with pytest.raises(SettingsError, match="the columns of query q are not known"):
        schema(registered="q")
    with pytest.raises(SettingsError, match="expected one of the options 'query'"):
        schema(query="ASK {}", graph="http://ex/g")
    with pytest.raises(SettingsError, match="column 'd': expected type string, bigint"):
        check_schema(_schema("d date"))


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["default", "http://ex/g"])
def test_a_graph_of_a_cluster_is_a_partition_for_each_node_of_one_snapshot(graph: str) -> None:
    triples = [(f"<http://ex/s{n}>", "<http://ex/p>", f'"{n}"') for n in range(300)]
    lines = " ".join(f"{' '.join(triple)} ." for triple in triples)
    with cluster(2, silence_pulses_max=PATIENT) as nodes, ExitStack() as stack:
        addresses = tuple(stack.enter_context(served_node(node, Settings())) for node in nodes)
        for node in nodes:
            node.backend.ingest_addresses = addresses
        into = lines if graph == "default" else f"GRAPH <{graph}> {{ {lines} }}"
        nodes[0].engine.update(f"INSERT DATA {{ {into} }}")
        reader = query_reader({"address": addresses[1], "graph": graph}, _schema(TRIPLE_SCHEMA))
        parts = pickle.loads(pickle.dumps(reader.partitions()))
        assert [part.address for part in parts] == list(addresses)
        for number in range(100):
            nodes[number % 2].engine.update(f"DELETE WHERE {{ <http://ex/s{number}> ?p ?o }}")
            nodes[number % 2].engine.update(f"CLEAR {'DEFAULT' if graph == 'default' else f'GRAPH <{graph}>'}")
        found = [
            [tuple(row.values()) for batch in reader.read(part) for row in batch.to_pylist()]  # type: ignore[union-attr]
            for part in parts
        ]
        assert all(found)
        assert Counter(row for rows in found for row in rows) == Counter(triples)
        newer = query_reader({"address": addresses[1], "graph": graph}, _schema(TRIPLE_SCHEMA))
        assert not [row for part in newer.partitions() for row in newer.read(part)]


def _reader(address: str, **options: str) -> WindowReader:
    schema = _schema("window_end long, s string")
    reader = window_reader({"address": address, "registered": "q", **options}, schema)
    assert isinstance(reader, WindowReader)
    return reader


def _rows(reader: WindowReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, str]]:
    (partition,) = reader.partitions(start, end)
    return [tuple(row.values()) for batch in reader.read(partition) for row in batch.to_pylist()]


def _push(stream: Any, *seconds: int) -> None:
    for second in seconds:
        stream.push([(f"<http://ex/s{second}>", "<http://ex/p>", '"o"', second * 1000)])
    stream.advance(seconds[-1] * 1000)


def test_windows_come_again_after_a_restart_as_far_as_the_node_has_them() -> None:
    before = {"end_ms": BEFORE_ALL_MS}
    with Engine() as engine, served(engine, Settings(), ingest_of(engine)) as address:
        stream = engine.stream(STREAM, batch_ms=1000)
        query = engine.register(QUERY)
        first = _reader(address, windows_per_batch="2")
        assert first.latestOffset(before, None) == before
        _push(stream, 1, 2, 3)
        engine.settle(30)
        end = first.latestOffset(before, None)
        assert end == {"end_ms": 2000}
        rows = [(1000, "<http://ex/s1>"), (2000, "<http://ex/s2>")]
        assert _rows(first, before, end) == rows
        assert _rows(first, before, end) == rows
        first.commit(before)
        first.stop()

        second = _reader(address)
        assert _rows(second, before, end) == rows
        last = second.latestOffset(end, None)
        assert (last, _rows(second, end, last)) == ({"end_ms": 3000}, [(3000, "<http://ex/s3>")])
        second.commit(last)
        assert second.latestOffset(last, None) == last
        second.stop()

        assert len(list(query.results(timeout_s=0))) >= 3  # by the query's own cursor: confirmed, and gone
        _push(stream, 4)
        engine.settle(30)
        third = _reader(address)
        with pytest.raises(
            StreamError, match=r"windows up to 1000 ms were read before, and the oldest .* some between"
        ):
            third.latestOffset({"end_ms": 1000}, None)
        third.stop()
        fourth = _reader(address, on_gap="continue")
        assert fourth.latestOffset({"end_ms": 1000}, None) == {"end_ms": 4000}
        fourth.stop()


def _changes(address: str, **options: str) -> ChangeReader:
    schema = _schema("_commit_version long, _change_type string, s string")
    reader = WukongsDataSource({"address": address, **options}).streamReader(schema)
    assert isinstance(reader, ChangeReader)
    return reader


def _next(reader: ChangeReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """Read a micro-batch; return its end and its rows."""
    end = reader.latestOffset(start, None)
    (partition,) = reader.partitions(start, end)
    rows = [tuple(row.values()) for batch in reader.read(partition) for row in batch.to_pylist()]
    return end, sorted(rows)


def _update(engine: Engine, text: str) -> int:
    sn = engine.update(text)
    engine.settle(30)
    return sn


def test_changes_of_a_live_view_are_inserts_and_deletes() -> None:
    with Engine() as engine, served(engine, Settings(), ingest_of(engine)) as address:
        first = _update(engine, "INSERT DATA { <http://ex/a> <http://ex/p> 1, 2 . <http://ex/b> <http://ex/p> 1 }")
        reader = _changes(address, query=VIEW)
        start = reader.initialOffset()
        assert start == {"sn": BEFORE_ALL[0], "minor": BEFORE_ALL[1]}
        end, rows = _next(reader, start)
        assert end["sn"] == first
        assert rows == [(first, "insert", f"<http://ex/{name}>") for name in "aab"], "as often as the weight says"
        assert _next(reader, end) == (end, [])
        text = "DELETE DATA { <http://ex/a> <http://ex/p> 1, 2 } ; INSERT DATA { <http://ex/c> <http://ex/p> 1 }"
        second = _update(engine, text)
        last, rows = _next(reader, end)
        deleted = [(second, "delete", "<http://ex/a>")] * 2
        assert (last["sn"], rows) == (second, [*deleted, (second, "insert", "<http://ex/c>")])
        assert _next(reader, end) == (last, rows), "a micro-batch that Spark runs again"
        reader.commit(last)
        assert _next(reader, last) == (last, [])

        again = _changes(address, registered="v")
        with pytest.raises(StreamError, match=r"view v: it has begun again, .* Begin with a new checkpoint"):
            again.latestOffset(last, None)
        again.stop()
        (view,) = engine.queries()
        view.replace(VIEW.replace("?s <http://ex/p> ?o", "?o <http://ex/p> ?s"))
        engine.settle(30)
        with pytest.raises(StreamError, match="view v: it has begun again"):
            reader.latestOffset(last, None)
        reader.stop()


def test_changes_of_an_ask_and_wrong_options_of_a_view() -> None:
    with Engine() as engine, served(engine, Settings(), ingest_of(engine)) as address:
        ask = {"address": address, "query": "REGISTER QUERY v AS ASK { ?s ?p ?o }"}
        reader = WukongsDataSource(ask).streamReader(_schema("ask boolean, _change_type string"))
        assert isinstance(reader, ChangeReader)
        end, rows = _next(reader, reader.initialOffset())
        assert rows == []
        _update(engine, "INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
        assert _next(reader, end)[1] == [(True, "insert")]
        reader.stop()
        with pytest.raises(SettingsError, match="column '_commit_version': expected type bigint, found string"):
            WukongsDataSource(ask).streamReader(_schema("_commit_version string"))
        with pytest.raises(SettingsError, match="expected fail for a live view"):
            WukongsDataSource({**ask, "on_gap": "continue"}).streamReader(_schema("ask boolean"))
        engine.stream(STREAM, batch_ms=1000)
        engine.register(QUERY)
        with pytest.raises(StreamError, match="query q has windows, and is no live view"):
            _changes(address, registered="q").latestOffset({"sn": -1, "minor": 0}, None)
