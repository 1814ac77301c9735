"""An engine that is served, and a client of it in the place of the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import wukongs
from tests.unit.remote.served import Wire, connected, served
from wukongs.remote.client import RemoteEngine


@pytest.fixture
def embedded() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as engine:
        yield engine


@pytest.fixture
def wire(embedded: wukongs.Engine) -> Iterator[Wire]:
    with served(embedded) as (_, wire):
        yield wire


@pytest.fixture
def engine(wire: Wire) -> Iterator[RemoteEngine]:
    with connected(wire) as client:
        yield client
