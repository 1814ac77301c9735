"""A worker's consumer over logs with gaps, in whatever portions messages come; a consumer that is told what to say."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from wukongs.adapters.feeds import kafka
from wukongs.errors import DataError


@dataclass(frozen=True)
class Said:
    """What a consumer hands out: a message, or an error at an offset."""

    at: int
    fault: int | None = None

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return None if self.fault is None else KafkaError(self.fault)


class Log:
    """A partition: the offsets that have messages, the first one that is not deleted, and the end."""

    def __init__(self, offsets: set[int], end: int, low: int = 0, portions: Iterator[int] | None = None) -> None:
        self.offsets, self.end, self.low = offsets, end, low
        self.portions = portions
        self.is_answering, self.is_mute = True, False
        self.answers_from_s, self.asked_count = inf, 0
        self.asked: list[int] = []
        self.passed_s = 0.0
        """The time of those that wait for an answer."""

    def consumer(self, settings: dict[str, str]) -> FakeConsumer:
        assert settings["enable.partition.eof"] == "true"
        return FakeConsumer(self)


class FakeConsumer:
    def __init__(self, log: Log) -> None:
        self._log, self._at, self._is_told, self._is_out = log, 0, False, False

    def assign(self, partitions: list[Any]) -> None:
        self._log.asked.append(partitions[0].offset)
        self._at, self._is_told, self._is_out = partitions[0].offset, False, False

    def consume(self, count: int, timeout_s: float) -> list[Said]:
        log, found = self._log, list[Said]()
        if not log.is_answering or log.is_mute or self._is_out:
            log.passed_s += timeout_s
            return []
        if self._at < log.low or self._at > log.end:
            self._is_out = True
            return [Said(self._at, KafkaError._AUTO_OFFSET_RESET)]
        limit = count if log.portions is None else min(count, next(log.portions))
        while len(found) < limit:
            if self._at == log.end:
                if not self._is_told:
                    self._is_told = True
                    found.append(Said(log.end, KafkaError._PARTITION_EOF))
                break
            if self._at in log.offsets:
                found.append(Said(self._at))
            self._at, self._is_told = self._at + 1, False
        return found

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        log = self._log
        log.asked_count += 1
        log.is_answering = log.is_answering or log.passed_s > log.answers_from_s
        if not log.is_answering:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return self._log.low, self._log.end

    def close(self) -> None:
        pass


Consumers = Callable[[Log], kafka._Cursor]


@pytest.fixture
def cursor_of(monkeypatch: pytest.MonkeyPatch) -> Consumers:
    return lambda log: _cursor(log, monkeypatch)


def _cursor(log: Log, monkeypatch: pytest.MonkeyPatch) -> kafka._Cursor:
    monkeypatch.setattr("confluent_kafka.Consumer", log.consumer)
    monkeypatch.setattr(kafka, "READ_S", 0.05)
    return kafka._Cursor(kafka.KafkaOptions("h:1", "t"), 0)


@fuzzed(60)
@given(data=st.data())
def test_ranges_of_a_log_with_gaps(data: st.DataObject) -> None:
    end = data.draw(st.integers(1, 40))
    offsets = data.draw(st.sets(st.integers(0, end - 1)))
    portions = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))

    def again() -> Iterator[int]:
        while True:
            yield from portions

    log = Log(offsets, end, portions=again())
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(kafka, "SKIPPED_MAX", 5)
        cursor = _cursor(log, monkeypatch)
        at = 0
        for _ in range(data.draw(st.integers(1, 8))):
            kind = data.draw(st.sampled_from(["next", "next", "again", "any", "grown"]))
            if kind == "grown":
                grown = log.end + data.draw(st.integers(1, 5))
                log.offsets |= data.draw(st.sets(st.integers(log.end, grown - 1)))
                log.end = grown
            first = at if kind == "next" else data.draw(st.integers(0, log.end))
            last = data.draw(st.integers(min(first, log.end), log.end))
            messages, lost = cursor.read(first, last)
            assert [one.offset() for one in messages] == [one for one in range(first, last) if one in log.offsets]
            assert lost == []
            at = last


def test_ranges_that_follow_each_other_are_one_question(cursor_of: Consumers) -> None:
    log = Log(set(range(100)) - {9, 10, 50}, 100)
    cursor = cursor_of(log)
    for first in range(0, 100, 10):
        cursor.read(first, first + 10)
    cursor.read(20, 30)
    assert log.asked == [0, 20]


@pytest.mark.parametrize(("low", "lost"), [(3, [(0, 3)]), (10, [(0, 10)]), (25, [(0, 10)])])
def test_deleted_offsets_are_told_and_passed(cursor_of: Consumers, low: int, lost: list[tuple[int, int]]) -> None:
    messages, found = cursor_of(Log(set(range(30)), 30, low)).read(0, 10)
    assert (found, [one.offset() for one in messages]) == (lost, list(range(low, 10)))


def test_what_is_not_there_any_more_or_does_not_come_is_named(cursor_of: Consumers) -> None:
    cursor = cursor_of(Log(set(range(5)), 5))
    with pytest.raises(DataError, match=r"topic t at h:1, partition 0: offsets 8 to 9 .*was it made anew"):
        cursor.read(8, 10)
    log = Log(set(range(5)), 5)
    log.is_mute = True
    with pytest.raises(DataError, match=r"partition 0: offsets 2 to 4 cannot be read \(the broker does not send them"):
        cursor_of(log).read(2, 5)


@pytest.mark.parametrize("low", [0, 3])
def test_a_broker_that_does_not_answer_is_waited_for_and_told_less_and_less(
    cursor_of: Consumers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, low: int
) -> None:
    log = Log(set(range(5)), 5, low)
    log.is_answering, log.answers_from_s = False, 1.0

    def sleep(seconds: float) -> None:
        log.passed_s += seconds

    monkeypatch.setattr(kafka, "time", SimpleNamespace(monotonic=lambda: log.passed_s, sleep=sleep))
    messages, _ = cursor_of(log).read(2, 5)
    assert [one.offset() for one in messages] == list(range(max(2, low), 5))
    lines = [one.getMessage() for one in caplog.records]
    assert 3 <= len(lines) <= 5 < log.asked_count, "after 1, 2, 4, 8 and 16 times READ_S"
    where = "topic t at h:1, partition 0"
    assert all(re.match(f"{where}: no answer .* for .* s; offsets 2 to 4 are waited for", one) for one in lines), lines


def test_a_run_that_is_stopped_waits_for_no_broker(cursor_of: Consumers) -> None:
    log, stop = Log(set(range(5)), 5), threading.Event()
    log.is_answering = False
    cursor = cursor_of(log)
    kafka.STOPS[cursor._options] = stop
    threading.Timer(0.3, stop.set).start()
    try:
        with pytest.raises(DataError, match="the run is stopped"):
            cursor.read(2, 5)
    finally:
        del kafka.STOPS[cursor._options]
