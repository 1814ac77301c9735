"""A Kafka broker in this process, over TCP: the mock cluster of librdkafka, which keeps its messages in memory.

It has no transactions, no compaction and no control records; `make test-kafka` tries those on a real broker.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from tests.kafka.producing import produce


@cache
def _library() -> ctypes.CDLL:
    """Return the very library that confluent_kafka has loaded."""
    import confluent_kafka.cimpl

    assert confluent_kafka.cimpl.__file__ is not None
    folder = Path(confluent_kafka.cimpl.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka*.so*"))))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, ()),
        ("rd_kafka_new", pointer, (number, pointer, text, ctypes.c_size_t)),
        ("rd_kafka_destroy_flags", None, (pointer, number)),
        ("rd_kafka_mock_cluster_new", pointer, (pointer, number)),
        ("rd_kafka_mock_cluster_destroy", None, (pointer,)),
        ("rd_kafka_mock_cluster_bootstraps", text, (pointer,)),
        ("rd_kafka_mock_topic_create", number, (pointer, text, number, number)),
        ("rd_kafka_mock_broker_set_down", number, (pointer, ctypes.c_int32)),
        ("rd_kafka_mock_broker_set_up", number, (pointer, ctypes.c_int32)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class MockBroker:
    """A cluster of one broker. Topics are made before they are written to."""

    def __init__(self) -> None:
        self._library = _library()
        reason = ctypes.create_string_buffer(512)
        self._handle = self._library.rd_kafka_new(0, self._library.rd_kafka_conf_new(), reason, len(reason))
        assert self._handle, reason.value
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._handle, 1)
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create(self, topic: str, partitions: int, **config: str) -> None:
        assert not config, "the mock cluster has no settings of topics"
        assert self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0

    def drop(self, topic: str, partition: int) -> None:
        """Have the broker let go of the oldest messages of a partition, which it does past 5 MB; more come for that."""
        produce(self.bootstrap, topic, [(partition, b" " * 900_000, {})] * 7, **{"linger.ms": 0})

    def down(self) -> None:
        assert self._library.rd_kafka_mock_broker_set_down(self._cluster, 1) == 0

    def up(self) -> None:
        assert self._library.rd_kafka_mock_broker_set_up(self._cluster, 1) == 0

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy_flags(self._handle, 4)
