"""A real Kafka broker, from its Maven artifacts (tools/kafka_broker.py), in a folder of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tools import kafka_broker

UP_S = 60.0


class RealBroker:
    def __init__(self) -> None:
        from confluent_kafka.admin import AdminClient

        self._folder = Path(tempfile.mkdtemp(prefix="wukongs-kafka-"))
        self._ports = _free_ports(2)
        self.bootstrap = f"127.0.0.1:{self._ports[0]}"
        self._process: subprocess.Popen[bytes] | None = None
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": "2"})
        self.up()

    def create(self, topic: str, partitions: int, **config: str) -> None:
        """Make a topic. config: its settings, with `_` for each `.`."""
        from confluent_kafka.admin import NewTopic

        settings = {name.replace("_", "."): value for name, value in config.items()}
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)
        self.admin.create_topics([wanted])[topic].result(20)
        deadline = time.monotonic() + UP_S
        while len(self.admin.list_topics(timeout=10).topics.get(topic, _None).partitions) < partitions:
            assert time.monotonic() < deadline, topic
            time.sleep(0.05)

    def drop(self, topic: str, partition: int) -> None:
        """Have the broker let go of all messages of a partition that are there."""
        from confluent_kafka import TopicPartition

        end = TopicPartition(topic, partition, -1)  # the high watermark
        self.admin.delete_records([end])[end].result(20)

    def down(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def up(self) -> None:
        self._process = kafka_broker.start(self._folder, *self._ports, auto_create_topics_enable="true")
        deadline = time.monotonic() + UP_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._ports[0]), 1).close()
                break
            except OSError:
                log = (self._folder / "broker.log").read_text("utf-8", "replace")
                assert self._process.poll() is None, log[-3000:]
                assert time.monotonic() < deadline, log[-3000:]
                time.sleep(0.1)

    def close(self) -> None:
        if self._process is not None:
            self.down()
        shutil.rmtree(self._folder, ignore_errors=True)


class _None:
    partitions: tuple[int, ...] = ()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
