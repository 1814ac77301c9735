"""The taxi example through a topic: its windows are those of the CSV file."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.golden.run_output import run_wukongs
from tests.golden.test_taxi import TAXI, expected_windows, row
from tests.kafka.conftest import Broker, NewTopic


@pytest.mark.parametrize(
    "options",
    [("--local",), pytest.param((), marks=[pytest.mark.slow, pytest.mark.spark])],
    ids=["local", "spark"],
)
def test_the_windows_of_the_example(
    broker: Broker, topic: NewTopic, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    name = topic(3)
    subprocess.run([sys.executable, str(TAXI / "to_kafka.py"), broker.bootstrap, name], check=True, timeout=60)
    monkeypatch.setenv("KAFKA", broker.bootstrap)
    monkeypatch.setenv("TAXI_TOPIC", name)
    output = run_wukongs(TAXI / "taxi-kafka.toml", "--rows", "100", *options)
    found = {
        end_ms: sorted(row(texts) for texts in rows.elements())
        for (_, end_ms), rows in output.rows.items()
        if output.windows["fares", end_ms]
    }
    assert found == expected_windows()
