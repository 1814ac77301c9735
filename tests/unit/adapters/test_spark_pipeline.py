"""The Spark pipeline end to end, to a node that keeps what it gets."""

from __future__ import annotations

import os
import random
import signal
import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.clusters import PATIENT, cluster
from tests.engine_helpers import register_text
from tests.unit.adapters.conftest import Listen
from tests.unit.adapters.receiver import RecordingNode, StreamSettings
from tests.unit.cluster.test_late_pipelines import BATCH_MS, HISTORY_MS, RANGE_MS, A, sent_in_part, story
from tests.unit.cluster.test_lateness import filled
from tests.unit.cluster.test_pipelines import fed_cluster
from wukongs.adapters import sources
from wukongs.adapters.bad_records import PART_ROWS, BadRows
from wukongs.adapters.run_config import PipelineConfig, StreamConfig, TimestampedSource
from wukongs.adapters.source import PreparedSource, RowRange, Rows, StreamSource
from wukongs.adapters.spark.pipeline import run_pipeline
from wukongs.engine import Engine
from wukongs.errors import StreamError
from wukongs.wire.client_socket import ClientSocket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _write(folder: Path, name: str, count: int, step_ms: int) -> tuple[StreamConfig, list[tuple[int, tuple[str, ...]]]]:
    path = folder / f"{name}.nt"
    tuples = [
        (row * step_ms, (f"<http://ex/s{row}>", f"<http://ex/p{row % 3}>", f'"{name} {row}"')) for row in range(count)
    ]
    path.write_text("".join(f"{' '.join(triple)} . {time}\n" for time, triple in tuples), "utf-8")
    stream = StreamConfig(iri=f"http://ex/{name}", sources=(TimestampedSource(paths=(str(path),)),))
    return stream, tuples


@pytest.mark.slow
def test_two_streams_arrive_whole_in_order_and_kept_together(
    spark: SparkSession, listen: Listen, tmp_path: Path
) -> None:
    fast, fast_tuples = _write(tmp_path, "fast", 4000, 10)
    slow, slow_tuples = _write(tmp_path, "slow", 80, 500)
    node = RecordingNode(fast=StreamSettings(1000, ("http://ex/p1",)), slow=StreamSettings(500, timing=True))
    config = PipelineConfig(rows_per_epoch=1000, align_ms=10_000)

    report = run_pipeline([fast, slow], [listen(node)], config, session=spark)

    assert node.tuples["http://ex/fast"] == fast_tuples
    assert node.tuples["http://ex/slow"] == slow_tuples
    assert node.timing["http://ex/fast"] == [triple[1] == "<http://ex/p1>" for _, triple in fast_tuples]
    assert all(node.timing["http://ex/slow"])
    assert node.finished() == {"fast.nt", "slow.nt"}
    assert (report.triples, report.set_aside, report.finished) == (4080, 0, True)
    assert report.triples_by_stream == {"http://ex/fast": 4000, "http://ex/slow": 80}
    assert report.epochs >= 4
    latest = {"fast.nt": 0, "slow.nt": 0}
    for kind, _, partition, number in node.events:
        if kind == "close":
            latest[partition] = max(latest[partition], number)
            assert abs(latest["fast.nt"] - latest["slow.nt"]) <= 10_000


@pytest.mark.slow
def test_an_error_of_the_node_is_raised_under_its_name(spark: SparkSession, listen: Listen, tmp_path: Path) -> None:
    fast, _ = _write(tmp_path, "fast", 50, 10)

    class Refusing(RecordingNode):
        def inject(self, piece: object, /) -> None:
            raise StreamError("stream http://ex/fast holds 9 bytes that cannot be sealed yet. Close the other streams")

    with pytest.raises(StreamError, match="9 bytes that cannot be sealed"):
        run_pipeline([fast], [listen(Refusing(fast=StreamSettings()))], session=spark)


@pytest.mark.slow
def test_all_rows_that_are_set_aside_reach_the_driver(spark: SparkSession, listen: Listen, tmp_path: Path) -> None:
    fast, tuples = _write(tmp_path, "fast", 4000, 10)
    path = tmp_path / "fast.nt"
    lines = path.read_text().splitlines()
    path.write_text("".join("oops\n" if row % 2 else f"{line}\n" for row, line in enumerate(lines)))
    node = RecordingNode(fast=StreamSettings())
    taken: list[tuple[int, ...]] = []

    def take(part: BadRows, had_good: bool) -> None:
        taken.append(tuple(one.row or 0 for one in part.rows))
        assert had_good == (part.first_offset > 0)

    config = PipelineConfig(rows_per_epoch=1500)
    report = run_pipeline([fast], [listen(node)], config, session=spark, on_bad=take)
    assert [row for rows in taken for row in rows] == list(range(1, 4000, 2))
    assert max(map(len, taken)) <= PART_ROWS
    assert node.tuples["http://ex/fast"] == tuples[::2]
    counts = report.partitions["http://ex/fast", "fast.nt"]
    assert (counts.good, counts.bad, counts.is_finished) == (2000, 2000, True)


@pytest.mark.slow
def test_a_failed_task_is_retried_and_nothing_arrives_twice(
    spark: SparkSession, listen: Listen, tmp_path: Path
) -> None:
    fast, tuples = _write(tmp_path, "fast", 300, 10)

    class Forgetful(RecordingNode):
        """Takes the first piece, then claims once that it has failed."""

        failures = 1

        def inject(self, piece: object, /) -> None:
            super().inject(piece)  # type: ignore[arg-type]
            if self.failures:
                self.failures -= 1
                raise RuntimeError("power cut")

    node = Forgetful(fast=StreamSettings())
    report = run_pipeline([fast], [listen(node)], session=spark)
    assert node.tuples["http://ex/fast"] == tuples
    assert node.repeats >= 1
    assert report.triples == 300


@dataclass(frozen=True)
class Deadly:
    """A source whose third read kills the worker, once."""

    source: StreamSource
    folder: Path

    @property
    def partition(self) -> str:
        return self.source.partition

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        reads = len(list(self.folder.iterdir()))
        (self.folder / str(reads)).touch()
        if reads == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.source.read(rows, scope, hash_bits)


@pytest.mark.slow
def test_the_counts_stay_exact_when_a_worker_is_killed(
    spark: SparkSession, listen: Listen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task has both items of an epoch: it reports the first one again when it is run again."""
    fast, fast_tuples = _write(tmp_path, "fast", 300, 10)
    slow, slow_tuples = _write(tmp_path, "slow", 30, 100)
    (tmp_path / "reads").mkdir()
    prepare = sources.prepare

    def deadly(streams: list[StreamConfig], folder: Path, *say: Any) -> list[PreparedSource]:
        first, second = prepare(streams, folder, *say)
        return [first, replace(second, source=Deadly(second.source, tmp_path / "reads"))]

    monkeypatch.setattr(sources, "prepare", deadly)
    node = RecordingNode(fast=StreamSettings(100), slow=StreamSettings(100))
    config = PipelineConfig(rows_per_epoch=50, parallelism=1)
    report = run_pipeline([fast, slow], [listen(node)], config, session=spark)
    assert len(list((tmp_path / "reads").iterdir())) > 3
    assert node.repeats >= 1
    assert node.tuples["http://ex/fast"] == fast_tuples
    assert node.tuples["http://ex/slow"] == slow_tuples
    assert (report.rows, report.triples, report.finished) == (330, 330, True)
    assert report.triples_by_stream == {"http://ex/fast": 300, "http://ex/slow": 30}


@pytest.mark.slow
def test_it_stops_when_told_and_resumes_where_the_node_is(spark: SparkSession, listen: Listen, tmp_path: Path) -> None:
    fast, tuples = _write(tmp_path, "fast", 2000, 10)
    node = RecordingNode(fast=StreamSettings())
    address = listen(node)
    stop, checkpoint = threading.Event(), str(tmp_path / "checkpoint")
    config = PipelineConfig(speed=4.0, align_ms=1000)
    first = run_pipeline(
        [fast], [address], config, session=spark, stop=stop, checkpoint=checkpoint, on_progress=lambda _: stop.set()
    )
    assert not first.finished
    assert 0 < first.triples < 2000
    second = run_pipeline([fast], [address], session=spark, checkpoint=checkpoint)
    assert second.finished
    assert node.tuples["http://ex/fast"] == tuples
    assert second.triples < 2000


@pytest.mark.slow
def test_a_cluster_gets_from_spark_what_an_engine_gets(spark: SparkSession, tmp_path: Path) -> None:
    fast, _ = _write(tmp_path, "fast", 600, 10)
    window = f"FROM STREAM <{fast.iri}> [RANGE 1s STEP 1s]"
    text = f"REGISTER QUERY q AS SELECT ?s ?o {window} WHERE {{ ?s <http://ex/p1> ?o }}"

    def windows(engine: Engine) -> list[tuple[int, list[str]]]:
        engine.stream(fast.iri, batch_ms=100)
        query = engine.register(text)
        run_pipeline([fast], engine.listen().split(","), session=spark)
        engine.settle(30)
        return [(one.end_ms, sorted(map(str, one))) for one in query.results(timeout_s=0)]

    with Engine() as engine:
        expected = windows(engine)
    assert sum(len(rows) for _, rows in expected) == 200
    with cluster(2, silence_pulses_max=PATIENT) as nodes, ExitStack() as stack:
        sockets = [ClientSocket("tcp://127.0.0.1:*", {}, node.intake) for node in nodes]
        for socket in sockets:
            stack.callback(socket.close)
        nodes[0].backend.ingest_addresses = tuple(socket.address for socket in sockets)
        assert windows(nodes[0].engine) == expected


@pytest.mark.slow
@pytest.mark.parametrize("late", ["open", "drop"])
def test_late_rows_reach_a_cluster_through_spark_in_several_runs(
    spark: SparkSession, late: Any, tmp_path: Path
) -> None:
    """Runs with one checkpoint that are stopped, and others beside it, without Spark, that are cut off."""
    draw = random.Random(6)
    told = story(tmp_path, draw, late, ["one", "two"])
    with fed_cluster(2, 2) as (nodes, addresses):
        nodes[0].engine.stream(A, batch_ms=BATCH_MS, history_ms=HISTORY_MS, late=late, timing=True)
        query = nodes[-1].engine.register(register_text(f"RANGE {RANGE_MS}ms STEP {BATCH_MS}ms"))
        options: dict[str, Any] = {"session": spark, "checkpoint": str(tmp_path / "checkpoint")}
        for _ in range(2):
            stop = threading.Event()
            run_pipeline(
                told.config.streams,
                addresses,
                told.config.pipeline,
                stop=stop,
                on_progress=lambda _, stop=stop: stop.set(),
                **options,
            )
            assert sent_in_part(told, draw, addresses, 30)
        assert run_pipeline(told.config.streams, addresses, told.config.pipeline, **options).finished
        nodes[-1].engine.settle(30)
        assert filled(query) == told.windows()
        for node in nodes:
            assert node.engine.stats()["streams"][A]["carried"] == told.carried_count
