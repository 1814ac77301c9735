"""The driver's side of the Spark pipeline, asked as Spark's processes ask it, without Spark."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from wukongs.adapters import planner as planner_module
from wukongs.adapters.bad_records import BadRows
from wukongs.adapters.planner import EpochPlanner, ReplayPosition
from wukongs.adapters.push import PushStats
from wukongs.adapters.run_config import PipelineConfig
from wukongs.adapters.source import PreparedSource, RowRange, Rows, SetAside, SourceIndex
from wukongs.adapters.spark import data_source
from wukongs.adapters.spark.driver import PipelineDriver, Settled, Tally, item_of
from wukongs.adapters.spark.driver_channel import DriverAddress, DriverChannel
from wukongs.errors import DataError, NodeUnavailable, StreamError
from wukongs.wire.client_channel import ClientChannel
from wukongs.wire.context import new_key_pair
from wukongs.wire.keys import KeyPair
from wukongs.wire.messages import Opened
from wukongs.wire.packets import Packet
from wukongs.wire.trust import Keys

STREAM = "http://ex/s"


@dataclass(frozen=True)
class Named:
    """A source that is never read."""

    partition: str

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        raise AssertionError


def _planner(config: PipelineConfig) -> EpochPlanner:
    index = SourceIndex(np.arange(0, 1000, 10, dtype=np.int64), np.arange(101, dtype=np.int64))
    prepared = [PreparedSource(STREAM, Named(name), index) for name in ("a", "b")]
    return EpochPlanner(prepared, [Opened(100, None, (), 0, 62)] * 2, 1, config, ahead_s=1.0)


def _listening(config: PipelineConfig) -> tuple[PipelineDriver, EpochPlanner]:
    planner = _planner(config)
    return PipelineDriver(planner, config, "127.0.0.1", "127.0.0.1"), planner


@pytest.fixture
def driver() -> Iterator[PipelineDriver]:
    found, _ = _listening(PipelineConfig(rows_per_epoch=40))
    with closing(found):
        yield found


@pytest.fixture
def channel(driver: PipelineDriver) -> Iterator[DriverChannel]:
    with closing(driver.address.connect(10.0)) as found:
        yield found


def _stats(**fields: Any) -> PushStats:
    return replace(PushStats(STREAM, "a", False, 10, 100, 10, 9), **fields)


def test_asking_for_epochs_gives_what_the_planner_plans(driver: PipelineDriver, channel: DriverChannel) -> None:
    planner = _planner(PipelineConfig(rows_per_epoch=40))
    position, rows = channel.start(), 0
    while not position["finished"]:
        following = channel.next(position)
        expected = planner.items(ReplayPosition.from_json(position), ReplayPosition.from_json(following))
        told = channel.tasks(position, following)
        tasks = [[item_of(fields, planner.setups) for fields in items] for items in told]
        assert len(tasks) == 2
        assert sorted((one for task in tasks for one in task), key=lambda one: one.setup.source.partition) == expected
        rows += sum(one.end_offset - one.first_offset for one in expected)
        position = following
    assert rows == 200
    assert driver.news(0) == []
    assert channel.next(position) == position
    [settled] = driver.news(0)
    assert isinstance(settled, Settled)


def test_an_epoch_of_an_earlier_run_goes_on_where_the_nodes_are() -> None:
    driver, planner = _listening(PipelineConfig(start_ms=500))
    with closing(driver), closing(driver.address.connect(10.0)) as channel:
        first, last = ReplayPosition(0, (0, 0), False).to_json(), ReplayPosition(1000, (100, 100), True).to_json()
        for _ in range(2):
            told = channel.tasks(first, last)
            tasks = [[item_of(fields, planner.setups) for fields in items] for items in told]
            assert [(one.first_offset, one.end_offset) for task in tasks for one in task] == [(51, 100)] * 2


def test_a_checkpoint_that_says_all_was_sent_does_not_keep_a_new_node_empty() -> None:
    """The last epoch ends where an earlier run has ended: Spark has to see another position, or it begins no epoch."""
    driver, planner = _listening(PipelineConfig())
    ended = {**ReplayPosition(1000, (100, 100), True).to_json(), "run": planner.epoch - 1}
    with closing(driver), closing(driver.address.connect(10.0)) as channel:
        following = channel.next(ended)
        assert ReplayPosition.from_json(following) == ReplayPosition.from_json(ended)
        assert following != ended
        told = channel.tasks(ended, following)
        items = [item_of(fields, planner.setups) for task in told for fields in task]
        assert [(one.first_offset, one.end_offset) for one in items] == [(0, 100)] * 2
        assert channel.next(following) == following


def test_an_answered_report_is_there_with_its_examples(driver: PipelineDriver, channel: DriverChannel) -> None:
    example = SetAside("a.nt", 3, 1, "expected a term, found nothing", "é")
    channel.report(_stats(malformed=1, examples=[example]))
    assert driver.news(0) == [_stats(malformed=1, examples=[example])]


def test_bad_rows_are_there_when_they_are_answered(driver: PipelineDriver, channel: DriverChannel) -> None:
    part = BadRows(
        STREAM, "a", 10, 2, 1, (SetAside("a.nt", 3, 1, "why", "é", 2, 40), SetAside("a.nt", 4, 1, "why", ""))
    )
    channel.report_bad(part)
    assert driver.news(0) == [part]


def test_a_file_may_have_a_name_that_is_no_utf_8(driver: PipelineDriver, channel: DriverChannel) -> None:
    channel.report(_stats(examples=[SetAside("\udcff.nt", 1, 1, "why", "text")]))
    channel.report_error(DataError("cannot be read", "\udcff.nt"))
    stats, error = driver.news(0)
    assert isinstance(stats, PushStats)
    assert stats.examples[0].file == "\ufffd\ufffd\ufffd.nt"
    assert isinstance(error, DataError)


def test_an_error_keeps_its_name_and_its_fields(driver: PipelineDriver, channel: DriverChannel) -> None:
    channel.report_error(DataError("cannot be read", "a.nt"))
    channel.report_error(StreamError("no such stream"))
    data_error, stream_error = driver.news(0)
    assert isinstance(data_error, DataError)
    assert data_error.args == DataError("cannot be read", "a.nt").args
    assert isinstance(stream_error, StreamError)
    assert str(stream_error) == "no such stream"


def test_a_driver_that_has_gone_is_named_and_needs_no_errors(driver: PipelineDriver) -> None:
    with closing(driver.address.connect(0.2)) as channel:
        driver.close()
        with pytest.raises(NodeUnavailable, match=driver.address.address):
            channel.report(_stats())
        channel.report_error(StreamError("nobody hears it"))


def test_who_has_not_the_pipelines_keys_is_not_heard(driver: PipelineDriver) -> None:
    stranger = Keys(KeyPair(*new_key_pair()), driver.address.keys.nodes)
    unknown = DriverAddress(driver.address.address, stranger)
    with closing(unknown.connect(0.5)) as channel, pytest.raises(NodeUnavailable):
        channel.report(_stats())
    with closing(ClientChannel(driver.address.address)) as bare, pytest.raises(NodeUnavailable):
        bare.ask(Packet("pipeline.start"), 0.5)
    assert driver.news(0) == []


def test_a_worker_keeps_no_connections_of_an_earlier_pipeline_on_the_same_port(driver: PipelineDriver) -> None:
    keys = [replace(driver.address.keys, own=KeyPair(*new_key_pair())) for _ in range(2)]
    first, second = (data_source.PipelinePlan(replace(driver.address, keys=one), (), None, b"", 1.0) for one in keys)
    try:
        of_first = data_source._connections(first)
        assert data_source._connections(first) is of_first
        assert data_source._connections(second) is not of_first
    finally:
        data_source._forget()


def test_an_epoch_is_ahead_of_the_replays_clock_and_the_next_one_waits_until_the_driver_releases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 50.0
    monkeypatch.setattr(planner_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    driver, _ = _listening(PipelineConfig(speed=0.2))
    with closing(driver), closing(driver.address.connect(10.0)) as channel:
        assert channel.reached_ms() == 1 << 62, "before the clock runs, an epoch of an earlier run waits for nothing"
        position = channel.next(channel.start())
        assert position["horizon_ms"] == 100, "a second ahead is a fifth of that in event time, in whole stream batches"
        assert channel.reached_ms() == -100, "the clock begins with the end of the stream batch before the first one"
        now_s += 0.4
        assert channel.reached_ms() == -20
        threading.Timer(0.01, driver.release).start()
        assert channel.next(position) == position


def test_tasks_are_told_where_to_wait_for_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "time", SimpleNamespace(monotonic=lambda: 50.0))
    driver, planner = _listening(PipelineConfig(speed=0.4))
    with closing(driver), closing(driver.address.connect(10.0)) as channel:
        start = channel.start()
        following = channel.next(start)
        assert following["horizon_ms"] == 300
        tasks = [[item_of(fields, planner.setups) for fields in told] for told in channel.tasks(start, following)]
        found = [[(one.complete_ms, one.first_offset, one.end_offset) for one in task] for task in tasks]
        assert found == [[(0, 0, 1), (100, 1, 11), (200, 11, 21), (300, 21, 31)]] * 2


def test_a_task_sends_each_item_when_the_clock_is_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, planner = _listening(PipelineConfig(speed=0.001))
    now_s, sent = 50.0, []

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr(data_source, "run_task_item", lambda _, item: sent.append((item.complete_ms, round(now_s))))
    with closing(driver), closing(driver.address.connect(10.0)) as channel:
        position = channel.start()
        channel.next(position)  # starts the clock, which stands still as far as this test can tell
        horizons = [position, *(ReplayPosition(ms, (ms // 10 + 1,) * 2, False).to_json() for ms in (100, 200, 300))]
        told = [channel.tasks(*pair)[0] for pair in pairwise(horizons)]
        plan = data_source.PipelinePlan(driver.address, (), None, pickle.dumps(planner.setups), 10.0, speed=0.001)
        monkeypatch.setattr(data_source, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now_s))
        items = [fields for one in told for fields in one]
        try:
            list(data_source.WukongsReader(plan).read(data_source.TaskPartition(items)))
        finally:
            data_source._forget()
    assert [(ms, at_s - 50) for ms, at_s in sent] == [(0, 100), (100, 200), (200, 300), (300, 400)]


def test_reports_are_waited_for(driver: PipelineDriver, channel: DriverChannel) -> None:
    thread = threading.Thread(target=channel.report, args=(_stats(),))
    thread.start()
    assert driver.news(10.0) == [_stats()]
    thread.join()
    assert driver.news(0.01) == []


def test_a_repeated_report_is_counted_once() -> None:
    tally = Tally(2)
    first, second = _stats(), _stats(partition="b", end_offset=7, rows=7, triples=7)
    last = _stats(finished=True, rows=0, triples=0)
    for one in (first, second, first, second, last, first, last):
        tally.count(one)
    assert (tally.report.triples, tally.report.rows, tally.report.epochs) == (16, 17, 2)
    assert not tally.report.finished
    tally.count(replace(second, finished=True, rows=0, triples=0))
    assert tally.report.finished
    assert tally.report.epochs == 2
