"""A Kafka broker over TCP: the mock cluster of librdkafka, which keeps its messages in memory.

It has no transactions, no compaction and no control records; `make test-kafka` tries those on a real broker.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
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
        ("rd_kafka_mock_cluster_new", pointer, (pointer, number)),
        ("rd_kafka_mock_cluster_bootstraps", text, (pointer,)),
        ("rd_kafka_mock_topic_create", number, (pointer, text, number, number)),
        ("rd_kafka_mock_broker_set_down", number, (pointer, ctypes.c_int32)),
        ("rd_kafka_mock_broker_set_up", number, (pointer, ctypes.c_int32)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class _Cluster:
    """The cluster itself, in the process that it ends with: librdkafka may crash where it is freed."""

    def __init__(self) -> None:
        self._library = _library()
        reason = ctypes.create_string_buffer(512)
        handle = self._library.rd_kafka_new(0, self._library.rd_kafka_conf_new(), reason, len(reason))
        assert handle, reason.value
        self._cluster = self._library.rd_kafka_mock_cluster_new(handle, 1)
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def do(self, command: str, *arguments: str) -> int:
        if command == "create":
            topic, partitions = arguments
            return int(self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), int(partitions), 1))
        return int(getattr(self._library, f"rd_kafka_mock_broker_set_{command}")(self._cluster, 1))


class MockBroker:
    """A cluster of one broker, in a process of its own. Topics are made before they are written to."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.kafka.mock"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.bootstrap = self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _do(self, *words: str) -> None:
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        assert self._answer() == "0", words

    def create(self, topic: str, partitions: int, **config: str) -> None:
        assert not config, "the mock cluster has no settings of topics"
        self._do("create", topic, str(partitions))

    def drop(self, topic: str, partition: int) -> None:
        """Have the broker let go of the oldest messages of a partition, which it does past 5 MB; more come for that."""
        produce(self.bootstrap, topic, [(partition, b" " * 900_000, {})] * 7, **{"linger.ms": 0})

    def down(self) -> None:
        self._do("down")

    def up(self) -> None:
        self._do("up")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    """Serve until the input ends."""
    cluster = _Cluster()
    print(cluster.bootstrap, flush=True)
    for line in sys.stdin:
        print(cluster.do(*line.split()), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
