"""Fixtures of the adapters' tests: a listening node, one Spark session for the whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.unit.adapters.receiver import RecordingNode
from wukongs.wire.client_socket import ClientSocket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Listen = Callable[[RecordingNode], str]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Let a node listen; returns its address. All sockets are closed at the end."""
    sockets: list[ClientSocket] = []

    def start(node: RecordingNode) -> str:
        sockets.append(ClientSocket("tcp://127.0.0.1:0", {}, node))
        return sockets[-1].address

    yield start
    for socket in sockets:
        socket.close()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from wukongs.adapters.spark.session import start_session, stop_session

    session = start_session()
    yield session
    stop_session(session)
