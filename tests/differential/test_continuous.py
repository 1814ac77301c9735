"""Random streams, windows and registrations: every window that the Engine reports against the naive stream oracle."""

from __future__ import annotations

import pytest
from hypothesis import given

import wukongs
from tests.differential.scenario import Harness, Scenario, fuzz, scenarios

pytestmark = pytest.mark.nojit


@fuzz(50)
@given(scenarios())
def test_every_window_and_every_snapshot(scenario: Scenario) -> None:
    with wukongs.Engine() as engine:
        Harness(engine).run(scenario)
