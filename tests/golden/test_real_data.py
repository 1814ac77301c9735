"""LSBench and CityBench through the whole path, files to windows; sizes as the data's READMEs give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.run_output import run_wukongs

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DAY_MS = 86_400_000

LSBENCH_WINDOWS = {
    11: {"L1": 0, "L2": 0, "L3": 18, "L4": 568, "L4_distinct_posts": 28, "L5": 1673, "L6": 1033},
    26: {"L1": 2, "L2": 2, "L3": 87, "L4": 1500, "L4_distinct_posts": 124, "L5": 7115, "L6": 2500},
}
LSBENCH_ASKED = {"S1": (82, 364), "S2": (0, 6), "S3": (0, 1091), "S5": (38, 38), "S6": (0, 1101)}
CITYBENCH_WINDOWS = {"C1": 9, "C3": 9, "C4": 297, "C5": 297, "C6": 9, "C7": 9, "C8": 9, "C10": 243, "C11": 9}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.shared
@pytest.mark.parametrize("options", [(), ("--local",)], ids=["spark", "local"])
def test_lsbench(shared_data: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    monkeypatch.setenv("LSBENCH_DATA", str(shared_data / "lsbench"))
    found = run_wukongs(EXAMPLES / "lsbench.toml", *options)
    for day, sizes in LSBENCH_WINDOWS.items():
        assert {name: found.windows[name, day * DAY_MS] for name in sizes} == sizes
    assert {name: (found.asked[name, "before"], found.asked[name, "after"]) for name in LSBENCH_ASKED} == LSBENCH_ASKED


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.shared
@pytest.mark.parametrize("options", [(), ("--local",)], ids=["spark", "local"])
def test_citybench(shared_data: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    monkeypatch.setenv("CITYBENCH_DATA", str(shared_data / "citybench"))
    found = run_wukongs(EXAMPLES / "citybench.toml", *options)
    for name, size in CITYBENCH_WINDOWS.items():
        windows = {end_ms: found.windows[name, end_ms] for end_ms in range(2_000, 290_000, 1_000)}
        assert set(windows.values()) == {size}, name
    # Not in the README, but it follows from it: three observations of each of four properties, and of 99 events.
    assert found.windows["C2", 100_000] == 3**4
    assert found.windows["C9", 100_000] == 9 * 99
