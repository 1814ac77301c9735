"""The broker of these tests: the mock cluster of librdkafka; with WUKONGS_KAFKA=real (`make test-kafka`) another."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.kafka.mock import MockBroker
from tests.kafka.real import RealBroker
from tests.unit.adapters.conftest import listen

__all__ = ["listen"]
IS_REAL = os.environ.get("WUKONGS_KAFKA") == "real"
Broker = MockBroker | RealBroker
NewTopic = Callable[..., str]
_numbers = count()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    found: Broker = RealBroker() if IS_REAL else MockBroker()
    yield found
    found.close()


@pytest.fixture
def topic(broker: Broker) -> NewTopic:
    """Make a topic of so many partitions; returns its name."""

    def make(partitions: int, **config: str) -> str:
        name = f"t{next(_numbers)}"
        broker.create(name, partitions, **config)
        return name

    return make
