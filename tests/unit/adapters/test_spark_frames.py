"""format("wukongs"): DataFrames to and from an engine that is served, as a user's Spark program has it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.clusters import PATIENT, cluster
from tests.faces import served, served_node
from tests.inside import core_of, ingest_of
from wukongs.engine import Engine
from wukongs.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STREAM = "http://ex/s"
QUERY = f"REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <{STREAM}> [RANGE 1s STEP 1s] WHERE {{ ?s <http://ex/p1> ?o }}"
TRIPLES = "subject string, predicate string, object string, time long"


@pytest.fixture
def frames(spark: SparkSession) -> SparkSession:
    from wukongs.adapters.spark import WukongsDataSource

    spark.dataSource.register(WukongsDataSource)
    return spark


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


@pytest.fixture
def address(engine: Engine) -> Iterator[str]:
    with served(engine, Settings(), ingest_of(engine)) as address:
        yield address


def _rows(first: int, count: int) -> list[tuple[str, str, str, int]]:
    return [(f"<http://ex/s{n}>", f"<http://ex/p{n % 3}>", f'"row {n}"', n * 10) for n in range(first, first + count)]


def _frame(spark: SparkSession, first: int, count: int, partitions: int = 2) -> DataFrame:
    return spark.createDataFrame(_rows(first, count), TRIPLES).repartition(partitions, "subject")


def _write(frame: DataFrame, address: str, **options: Any) -> None:
    said = {name: str(value) for name, value in {"stream": STREAM, **options}.items() if value is not None}
    frame.write.format("wukongs").options(address=address, **said).mode("append").save()


def _windows(engine: Engine, query: Any) -> list[tuple[int, int]]:
    engine.settle(30)
    return [(one.end_ms, len(one)) for one in query.results(timeout_s=0)]


def _failure(call: Any) -> str:
    with pytest.raises(Exception) as caught:  # of Spark's own classes
        call()
    return str(caught.value)


def test_frames_follow_each_other_in_a_stream(frames: SparkSession, engine: Engine, address: str) -> None:
    engine.stream(STREAM, batch_ms=100)
    query = engine.register(QUERY)
    _write(_frame(frames, 1, 100, 3), address)
    _write(_frame(frames, 101, 100, 2), address, advance="all")
    assert _windows(engine, query) == [(1000, 34), (2000, 33)]
    assert engine.stats()["streams"][STREAM]["tuples"] == 200


def test_a_numbered_frame_is_taken_once(frames: SparkSession, engine: Engine, address: str) -> None:
    engine.stream(STREAM, batch_ms=100)
    for first in (1, 1, 101, 101):
        _write(_frame(frames, first, 100), address, batch=first // 100, advance="all")
    assert engine.stats()["streams"][STREAM]["tuples"] == 200


def test_a_column_is_named_by_its_error(frames: SparkSession, engine: Engine, address: str) -> None:
    engine.stream(STREAM, batch_ms=100)
    frame = _frame(frames, 1, 3)
    for wrong, message in [
        (frame.drop("object"), "column 'object': expected one of type string, of N-Triples; the DataFrame has no such"),
        (
            frame.withColumn("predicate", frame.time),
            "column 'predicate': expected type string, of N-Triples, found bigint",
        ),
        (
            frame.withColumn("time", frame.subject),
            "column 'time': expected type timestamp, or bigint or int in ms, found",
        ),
    ]:
        assert message in _failure(lambda wrong=wrong: _write(wrong, address))
    assert "option 'strem'" in _failure(lambda: _write(frame, address, strem=1))
    assert "option 'address' is missing" in _failure(
        lambda: frame.write.format("wukongs").option("stream", STREAM).mode("append").save()
    )
    assert "only grow" in _failure(
        lambda: frame.write.format("wukongs").options(address=address, stream=STREAM).mode("overwrite").save()
    )
    assert "http://ex/other" in _failure(lambda: _write(frame, address, stream="http://ex/other"))


def _write_files(folder: Path, numbers: range) -> None:
    """Write one file of 100 rows each, of JSON lines, in the order of their names."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        lines = [
            json.dumps(dict(zip(("subject", "predicate", "object", "time"), row, strict=True)))
            for row in _rows(number * 100 + 1, 100)
        ]
        path = folder / f"{number:04}.json"
        path.write_text("\n".join(lines) + "\n", "utf-8")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark takes the oldest first


def _stream_files(spark: SparkSession, folder: Path, checkpoint: Path, address: str) -> Any:
    frame = spark.readStream.schema(TRIPLES).option("maxFilesPerTrigger", 1).json(str(folder))
    return (
        frame.writeStream.format("wukongs")
        .options(address=address, stream=STREAM, partitions="2")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def test_a_streaming_query_goes_on_from_its_checkpoint_and_repeats_nothing(
    frames: SparkSession, engine: Engine, address: str, tmp_path: Path
) -> None:
    engine.stream(STREAM, batch_ms=100)
    query = engine.register(QUERY)
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    _write_files(source, range(3))
    _stream_files(frames, source, checkpoint, address).awaitTermination()
    assert _windows(engine, query) == [(1000, 34), (2000, 33)]
    # As if the driver had been killed before it noted that the last micro-batch was done.
    for path in (checkpoint / "commits").iterdir():
        if path.name.lstrip(".").startswith("2"):
            path.unlink()
    _write_files(source, range(3, 5))
    _stream_files(frames, source, checkpoint, address).awaitTermination()
    assert engine.stats()["streams"][STREAM]["tuples"] == 500
    assert _windows(engine, query) == [(3000, 33), (4000, 34)]


def test_a_new_checkpoint_is_told_from_the_old_one(
    frames: SparkSession, engine: Engine, address: str, tmp_path: Path
) -> None:
    engine.stream(STREAM, batch_ms=100)
    _write_files(tmp_path / "in", range(2))
    _stream_files(frames, tmp_path / "in", tmp_path / "checkpoint", address).awaitTermination()
    again = _stream_files(frames, tmp_path / "in", tmp_path / "another", address)
    assert "of another query or checkpoint" in _failure(again.awaitTermination)
    assert engine.stats()["streams"][STREAM]["tuples"] == 200


def test_the_stored_graph_takes_frames(frames: SparkSession, engine: Engine, address: str) -> None:
    frame = _frame(frames, 0, 60).drop("time")
    for _ in range(2):
        _write(frame, address, stream=None, graph="http://ex/g")
    assert len(engine.query("SELECT ?s WHERE { GRAPH <http://ex/g> { ?s ?p ?o } }")) == 60
    text = frames.createDataFrame([("<http://ex/a> <http://ex/b> <http://ex/c> .",)], "value string")
    _write(text, address, stream=None)
    assert len(engine.query("SELECT ?s WHERE { ?s <http://ex/b> ?o }")) == 1
    blank = frames.createDataFrame([("_:b", "<http://ex/b>", "<http://ex/c>")], TRIPLES.rpartition(",")[0])
    assert "column 'subject': blank nodes" in _failure(lambda: _write(blank, address, stream=None))


MAPPING = """
subject = "http://ex/s{id}"
[time]
column = "at"
[number.column.price]
decimal = ","
[[triple]]
predicate = "http://ex/p{kind}"
value = "{user.name}"
[[triple]]
predicate = "http://ex/price"
value = "{price}"
datatype = "xsd:decimal"
[[triple]]
predicate = "http://ex/tag"
object = "http://ex/{tags}"
"""
MAPPED = "id long, kind int, at timestamp, user struct<name string, other binary>, price string, tags array<string>"


def _mapped_rows(first: int, count: int) -> list[tuple[Any, ...]]:
    return [
        (n, n % 3, datetime.fromtimestamp(n / 100, UTC), (f"row {n}", b""), f"{n},5", ["a", "b"] if n % 2 else None)
        for n in range(first, first + count)
    ]


def test_a_mapping_makes_triples_of_the_columns(
    frames: SparkSession, engine: Engine, address: str, tmp_path: Path
) -> None:
    (tmp_path / "m.toml").write_text(MAPPING, "utf-8")
    engine.stream(STREAM, batch_ms=100)
    query = engine.register(QUERY)
    frame = frames.createDataFrame(_mapped_rows(1, 200), MAPPED).repartition(2, "id")
    _write(frame, address, mapping=tmp_path / "m.toml", advance="all")
    assert _windows(engine, query) == [(1000, 34), (2000, 33)]
    assert engine.stats()["streams"][STREAM]["tuples"] == 200 * 2 + 100 * 2
    prices = "SELECT (SUM(?p) AS ?sum) WHERE { ?s <http://ex/price> ?p }"
    ((total,),) = engine.query(prices).texts()
    assert total == '"20200"^^<http://www.w3.org/2001/XMLSchema#decimal>'
    _write(frame, address, stream=None, mapping=MAPPING, graph="http://ex/g")
    assert len(engine.query("SELECT ?s WHERE { GRAPH <http://ex/g> { ?s ?p ?o } }")) == 600
    for wrong, message in [
        (frame.drop("price"), "column 'price': the DataFrame has no such column, only id, kind, at, user, user.name"),
        (frame.withColumn("user", frame.kind), "column 'user.name': the DataFrame has no such column"),
        (frame.withColumn("price", frame.kind), "column 'price': [number.column] is about texts"),
        (
            frame.withColumn("price", frame["user.name"]),
            "expected xsd:decimal with the decimal mark ',' in price, found 'row",
        ),
    ]:
        assert message in _failure(lambda wrong=wrong: _write(wrong, address, mapping=MAPPING))


def test_a_mapping_over_a_streaming_query_goes_on_from_its_checkpoint(
    frames: SparkSession, engine: Engine, address: str, tmp_path: Path
) -> None:
    engine.stream(STREAM, batch_ms=100)
    query = engine.register(QUERY)
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()

    def feed(first: int) -> None:
        lines = [
            json.dumps({"id": n, "kind": k, "at": at.isoformat(), "user": {"name": name}, "price": price, "tags": tags})
            for n, k, at, (name, _), price, tags in _mapped_rows(first, 100)
        ]
        (source / f"{first:04}.json").write_text("\n".join(lines), "utf-8")
        frame = frames.readStream.schema(MAPPED).json(str(source))
        writer = frame.repartition(2, "id").writeStream.format("wukongs")
        writer = writer.options(address=address, stream=STREAM, mapping=MAPPING, partitions="2", advance="all")
        running = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        running.awaitTermination()

    feed(1)
    for path in (checkpoint / "commits").iterdir():  # as if the driver had been killed before it noted the micro-batch
        path.unlink()
    feed(101)
    assert _windows(engine, query) == [(1000, 34), (2000, 33)]
    assert engine.stats()["streams"][STREAM]["tuples"] == 600


def _read(spark: SparkSession, address: str, schema: str | None = None, **options: Any) -> list[Any]:
    reader = spark.read.format("wukongs").options(address=address, **options)
    return sorted((reader if schema is None else reader.schema(schema)).load().collect(), key=str)


def test_a_query_is_a_frame(frames: SparkSession, engine: Engine, address: str) -> None:
    xsd = "http://www.w3.org/2001/XMLSchema#"
    engine.update(
        f"""PREFIX : <http://ex/> PREFIX xsd: <{xsd}>
        INSERT DATA {{ :a :n 1 ; :d 2.5e0 ; :b true ; :t "2024-01-02T03:04:05Z"^^xsd:dateTime . :b :n 22 .
                       GRAPH :g {{ :a :x "text"@en }} }}"""
    )
    text = "SELECT ?s ?n ?d WHERE { ?s <http://ex/n> ?n OPTIONAL { ?s <http://ex/d> ?d } }"
    assert [tuple(row) for row in _read(frames, address, query=text)] == [
        ("<http://ex/a>", f'"1"^^<{xsd}integer>', f'"2.5e0"^^<{xsd}double>'),
        ("<http://ex/b>", f'"22"^^<{xsd}integer>', None),
    ]
    typed = _read(frames, address, "s string, n long, d double", query=text)
    assert [tuple(row) for row in typed] == [("<http://ex/a>", 1, 2.5), ("<http://ex/b>", 22, None)]
    every = "SELECT ?b ?t WHERE { ?s <http://ex/b> ?b ; <http://ex/t> ?t }"
    ((is_true, moment),) = _read(frames, address, "b boolean, t timestamp", query=every)
    assert (is_true, moment.timestamp()) == (True, 1704164645)
    assert "column 's': expected a bigint, found <http://ex/" in _failure(
        lambda: _read(frames, address, "s long", query=text)
    )
    assert "column 'x': there is none of this name, only s, n, d" in _failure(
        lambda: _read(frames, address, "x string", query=text)
    )
    assert _read(frames, address, query="ASK { ?s ?p 22 }")[0].ask is True
    assert [tuple(row) for row in _read(frames, address, graph="http://ex/g")] == [
        ("<http://ex/a>", "<http://ex/x>", '"text"@en')
    ]
    snapshot = engine.query("ASK {}").snapshot
    with (core := core_of(engine)).lock:
        held = core.arrangement.open(snapshot, "a test", expires=False)  # else it may be merged away
    with held:
        engine.update("INSERT DATA { <http://ex/new> <http://ex/n> 3 }")
        assert len(_read(frames, address, graph="default", at=str(snapshot))) == 5
    assert len(_read(frames, address, graph="default")) == 6
    assert "expected one of the options 'query'" in _failure(lambda: _read(frames, address))


def test_a_graph_of_a_cluster_is_read_from_all_nodes(frames: SparkSession) -> None:
    triples = [(f"<http://ex/s{n}>", "<http://ex/p>", f'"{n}"') for n in range(2000)]
    with cluster(2, silence_pulses_max=PATIENT) as nodes, ExitStack() as stack:
        addresses = tuple(stack.enter_context(served_node(node, Settings())) for node in nodes)
        for node in nodes:
            node.backend.ingest_addresses = addresses
        lines = " ".join(f"{' '.join(triple)} ." for triple in triples)
        nodes[0].engine.update(f"INSERT DATA {{ {lines} }}")
        frame = frames.read.format("wukongs").options(address=addresses[0], graph="default").load()
        assert frame.rdd.getNumPartitions() == 2
        nodes[1].engine.update("DELETE WHERE { ?s ?p ?o }")
        assert sorted(tuple(row) for row in frame.collect()) == sorted(triples)
        assert _read(frames, addresses[0], graph="default") == []


def _follow(spark: SparkSession, address: str, folder: Path, schema: str | None = None, **options: Any) -> Any:
    reader = spark.readStream.format("wukongs").options(address=address, **options)
    frame = (reader if schema is None else reader.schema(schema)).load()
    writer = frame.writeStream.format("json").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def _seen(folder: Path, count: int, query: Any) -> list[dict[str, Any]]:
    """Wait for so many rows; return them in order."""
    deadline, found = time.monotonic() + 180, list[dict[str, Any]]()
    while time.monotonic() < deadline and len(found) < count:
        assert query.isActive, str(query.exception())[:3000]
        query.processAllAvailable() if found else time.sleep(0.2)
        # The files that Spark counts: one of a micro-batch that was run again is not among them.
        told = [path.read_text("utf-8") for path in (folder / "out" / "_spark_metadata").glob("[0-9]*")]
        files = {json.loads(line)["path"] for text in told for line in text.splitlines()[1:]}
        texts = [Path(path.removeprefix("file://")).read_text("utf-8") for path in files]
        found = [json.loads(line) for text in texts for line in text.splitlines()]
    return sorted(found, key=lambda row: (row.get("window_end", row.get("_commit_version")), row["s"]))


def test_windows_are_rows_and_come_once_over_a_restart(
    frames: SparkSession, engine: Engine, address: str, tmp_path: Path
) -> None:
    engine.stream(STREAM, batch_ms=100)
    follow = _follow(frames, address, tmp_path, query=QUERY)
    try:
        while not engine.queries():
            time.sleep(0.05)
        _write(_frame(frames, 1, 200), address, advance="all")
        rows = _seen(tmp_path, 67, follow)
    finally:
        follow.stop()
    assert [row["window_end"] for row in rows] == ["1970-01-01T00:00:01.000Z"] * 34 + ["1970-01-01T00:00:02.000Z"] * 33
    assert {row["window_start"] for row in rows} == {"1970-01-01T00:00:00.000Z", "1970-01-01T00:00:01.000Z"}
    # As if the driver had been killed before it noted its last micro-batch: Spark asks for the same windows again.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    follow = _follow(frames, address, tmp_path, query=QUERY)
    try:
        _write(_frame(frames, 201, 100), address, advance="all")
        rows = _seen(tmp_path, 100, follow)
    finally:
        follow.stop()
    names = [row["s"] for row in rows]
    assert sorted(names) == sorted(f"<http://ex/s{n}>" for n in range(1, 301) if n % 3 == 1)


def test_changes_of_a_live_view_are_rows(frames: SparkSession, engine: Engine, address: str, tmp_path: Path) -> None:
    first = engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    follow = _follow(frames, address, tmp_path, query="REGISTER QUERY v AS SELECT ?s WHERE { ?s <http://ex/p> ?o }")
    try:
        _seen(tmp_path, 1, follow)
        second = engine.update(
            "DELETE DATA { <http://ex/a> <http://ex/p> 1 } ; INSERT DATA { <http://ex/b> <http://ex/p> 1 }"
        )
        rows = _seen(tmp_path, 3, follow)
    finally:
        follow.stop()
    assert [(row["_commit_version"], row["_change_type"], row["s"]) for row in rows] == [
        (first, "insert", "<http://ex/a>"),
        (second, "delete", "<http://ex/a>"),
        (second, "insert", "<http://ex/b>"),
    ]


def test_windows_of_a_registered_query_have_the_types_that_are_asked_for(
    frames: SparkSession, engine: Engine, address: str, tmp_path: Path
) -> None:
    engine.stream(STREAM, batch_ms=100)
    window = f"FROM STREAM <{STREAM}> [RANGE 1s STEP 1s]"
    engine.register(f"REGISTER QUERY q AS SELECT ?s (COUNT(*) AS ?n) {window} WHERE {{ ?s ?p ?o }} GROUP BY ?s")
    assert "the columns of query q are not known" in _failure(
        lambda: frames.readStream.format("wukongs").options(address=address, registered="q").load()
    )
    follow = _follow(frames, address, tmp_path, "n long, s string, window_end long", registered="q")
    try:
        _write(_frame(frames, 1, 100), address, advance="all")
        rows = _seen(tmp_path, 100, follow)
    finally:
        follow.stop()
    assert {(row["n"], row["window_end"]) for row in rows} == {(1, 1000)}


def test_the_source_of_a_run_file_goes_into_a_stream(
    frames: SparkSession, engine: Engine, address: str, tmp_path: Path
) -> None:
    lines = [f"{s} {p} {o} . {time}" for s, p, o, time in _rows(1, 300)]
    (tmp_path / "rows.nt").write_text("\n".join([*lines[:100], "no triple", *lines[100:]]) + "\n", "utf-8")
    (tmp_path / "run.toml").write_text(
        f'[[stream]]\niri = "{STREAM}"\nbatch_ms = 100\nsource = {{ kind = "timestamped", path = "rows.nt" }}\n'
        "[pipeline]\nrows_per_epoch = 70\n",
        "utf-8",
    )
    engine.stream(STREAM, batch_ms=100)
    query = engine.register(QUERY)
    frame = frames.readStream.format("wukongs").option("runfile", str(tmp_path / "run.toml")).load()
    writer = frame.writeStream.format("wukongs").options(address=address, stream=STREAM, partitions="2")
    running = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        running.processAllAvailable()
        deadline = time.monotonic() + 60
        while engine.stats()["streams"][STREAM]["tuples"] < 300 and time.monotonic() < deadline:
            running.processAllAvailable()
    finally:
        running.stop()
    assert engine.stats()["streams"][STREAM]["tuples"] == 300
    assert _windows(engine, query)[:2] == [(1000, 34), (2000, 33)]
