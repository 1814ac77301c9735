"""Writes messages to a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Sent = tuple[int, bytes | None, dict[str, Any]]
"""Partition, value, and what else Producer.produce takes: key, timestamp, headers."""


def produce(bootstrap: str, topic: str, messages: Sequence[Sent], **config: Any) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 2, **config})
    for partition, value, rest in messages:
        producer.produce(topic, value, partition=partition, **rest)
    assert producer.flush(20) == 0
