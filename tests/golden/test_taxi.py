"""The taxi example: fares by zone in ten-minute windows, computed here from the CSV file in plain Python."""

from __future__ import annotations

import csv
from collections import defaultdict
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.golden.run_output import run_wukongs
from wukongs import Engine
from wukongs.adapters.replay import replay
from wukongs.adapters.run_config import load_run_config
from wukongs.wire.link import IngestLink

TAXI = Path(__file__).resolve().parents[2] / "examples" / "taxi"
WINDOW_MS = 600_000
NAMES = {"4": "Alphabet City", "13": "Battery Park", "37": "Bushwick South", "61": "Crown Heights North"}
NAMES |= {"132": "JFK Airport", "138": "LaGuardia Airport"}


def expected_windows() -> dict[int, list[tuple[str, int, Decimal]]]:
    """End of window -> zone, trips and average fare, rounded half up; windows with nothing are left out."""
    found: dict[int, dict[str, list[Decimal]]] = defaultdict(lambda: defaultdict(list))
    with (TAXI / "trips.csv").open(newline="") as file:
        for record in csv.DictReader(file):
            local = datetime.strptime(record["Pickup"], "%m/%d/%Y %I:%M:%S %p")
            time_ms = round(local.replace(tzinfo=ZoneInfo("America/New_York")).timestamp() * 1000)
            if record["Fare"] not in ("", "N/A") and record["Payment"] != "no charge":
                found[-(-time_ms // WINDOW_MS) * WINDOW_MS][NAMES[record["Zone"]]].append(Decimal(record["Fare"]))
    return {
        end_ms: sorted(
            (zone, len(fares), (sum(fares, Decimal(0)) / len(fares) * 100 + Decimal("0.5")) // 1 / 100)
            for zone, fares in zones.items()
        )
        for end_ms, zones in found.items()
    }


def test_the_windows_of_the_example_in_process() -> None:
    config = load_run_config(TAXI / "taxi.toml")
    found: dict[int, list[tuple[str, int, Decimal]]] = {}
    with Engine() as engine:
        for stored in config.stored:
            engine.load(stored.file)
        for stream in config.streams:
            engine.stream(stream.iri, timing=stream.timing, batch_ms=stream.batch_ms)
        for query in config.queries:
            engine.register(
                query.text,
                on_result=lambda window: found.update({window.end_ms: [row(texts) for texts in window.texts()]}),
            )
        with IngestLink([engine.listen()]) as link:
            report = replay(config.streams, link)
        engine.settle()
    expected = expected_windows()
    assert len(expected) >= 12
    assert {end: rows for end, rows in found.items() if rows} == expected
    assert report.set_aside == 0


def row(texts: tuple[str | None, ...]) -> tuple[str, int, Decimal]:
    zone, trips, average = ((text or "").split('"')[1] for text in texts)
    return zone, int(trips), Decimal(average)


@pytest.mark.spark
@pytest.mark.slow
def test_the_windows_of_the_example_on_spark() -> None:
    output = run_wukongs(TAXI / "taxi.toml", "--rows", "100")
    found = {
        end_ms: sorted(row(texts) for texts in rows.elements())
        for (_, end_ms), rows in output.rows.items()
        if output.windows["fares", end_ms]
    }
    assert found == expected_windows()
