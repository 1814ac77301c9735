"""Fixtures of the live engine's tests: its clock."""

from __future__ import annotations

import pytest

import wukongs
from tests.inside import ManualClock


@pytest.fixture
def clock(engine: wukongs.Engine) -> ManualClock:
    """The clock of the engine, which a test moves on."""
    return ManualClock(engine)
