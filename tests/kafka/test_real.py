"""Things that only a real broker has: transactions, compaction, new partitions (`make test-kafka`)."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.kafka.conftest import IS_REAL, NewTopic
from tests.kafka.producing import produce
from tests.kafka.real import RealBroker
from tests.kafka.test_source import following, had, loaded, record, run, run_text
from tests.unit.adapters.conftest import Listen
from tests.unit.adapters.receiver import RecordingNode, StreamSettings
from tests.unit.wire.conftest import wait_until
from wukongs.adapters.feeds import kafka

pytestmark = pytest.mark.skipif(not IS_REAL, reason="needs a real broker: make test-kafka")


def test_aborted_transactions_leave_no_trace_and_open_ones_are_waited_for(
    broker: RealBroker, topic: NewTopic, listen: Listen, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    name = topic(2)
    node = RecordingNode(s=StreamSettings(100))
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 2})
    producer.init_transactions(30)

    def send(first: int, end: int) -> None:
        for one in range(first, end):
            producer.produce(name, record(one, one), partition=one % 2)
        producer.flush(20)

    with following(
        loaded(tmp_path, "[pipeline]\nrows_per_epoch = 7\n" + run_text(broker.bootstrap, name, "")), listen(node)
    ):
        for round in range(10):
            producer.begin_transaction()
            send(round * 20, round * 20 + 10)
            producer.commit_transaction()
            producer.begin_transaction()
            send(round * 20 + 10, round * 20 + 20)
            producer.abort_transaction()
        expected = Counter((one, str(one), '"1"') for one in range(200) if one % 20 < 10)
        wait_until(lambda: had(node) == expected, "all that was committed", timeout_s=60)
        producer.begin_transaction()
        send(500, 510)
        produce(broker.bootstrap, name, [(one % 2, record(one, one), {}) for one in range(510, 520)])
        time.sleep(1.0)
        assert had(node) == expected
        producer.commit_transaction()
        expected += Counter((one, str(one), '"1"') for one in range(500, 520))
        wait_until(lambda: had(node) == expected, "the last transaction", timeout_s=60)
    assert node.repeats == 0


def test_compacted_topics_have_gaps(broker: RealBroker, topic: NewTopic, listen: Listen, tmp_path: Path) -> None:
    name = topic(
        1,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.001",
        segment_ms="200",
        min_compaction_lag_ms="0",
        max_compaction_lag_ms="300",
    )
    options = kafka.KafkaOptions(broker.bootstrap, name)
    cursor = kafka._Cursor(options, 0)
    deadline, sent = time.monotonic() + 60, 0
    while True:  # until the broker has compacted something
        produce(
            broker.bootstrap, name, [(0, record(one, one), {"key": f"k{one % 3}"}) for one in range(sent, sent + 30)]
        )
        produce(broker.bootstrap, name, [(0, None, {"key": "gone"})])
        sent += 31
        time.sleep(1.0)
        kept = [one.offset() for one in cursor.read(0, sent)[0]]
        if len(kept) < sent / 2:
            break
        assert time.monotonic() < deadline, kept
    cursor.close()
    node = RecordingNode(s=StreamSettings(100))
    report = run(loaded(tmp_path, "[pipeline]\nrows_per_epoch = 11\n" + run_text(broker.bootstrap, name)), listen(node))
    found = had(node)
    assert max(found.values()) == 1
    assert len(found) < sent / 2
    assert (sent - 2, str(sent - 2), '"1"') in found
    assert (report.finished, report.set_aside, report.rows) == (True, 0, sent)


def test_new_partitions_are_told(
    broker: RealBroker, topic: NewTopic, listen: Listen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka.admin import NewPartitions

    monkeypatch.setattr(kafka, "PARTITIONS_S", 0.2)
    name, said = topic(1), list[str]()
    node = RecordingNode(s=StreamSettings(100))
    with following(loaded(tmp_path, run_text(broker.bootstrap, name, "")), listen(node), said.append):
        wait_until(lambda: any(kind == "open" for kind, *_ in node.events), "opened")
        broker.admin.create_partitions([NewPartitions(name, 3)])[name].result(20)
        wait_until(lambda: bool(said), "told", timeout_s=30)
        time.sleep(0.5)
    where = f"topic {name} at {broker.bootstrap}"
    assert said == [f"http://ex/s, {where} has 3 partitions now, 2 of them new: start again to read these, too"]


def test_a_topic_that_is_not_there_is_not_made(broker: RealBroker, listen: Listen, tmp_path: Path) -> None:
    from wukongs.errors import SettingsError

    with pytest.raises(SettingsError, match="Unknown topic"):
        run(loaded(tmp_path, run_text(broker.bootstrap, "never.made")), listen(RecordingNode(s=StreamSettings(100))))
    time.sleep(0.5)
    assert "never.made" not in broker.admin.list_topics(timeout=10).topics
