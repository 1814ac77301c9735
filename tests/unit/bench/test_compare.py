"""Two checkouts beside each other: which figures are compared, and how sure the ratios are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from wukongs.bench import compare as comparing
from wukongs.bench.__main__ import main
from wukongs.bench.compare import compare, confidence_of, figures, ratios

OTHER_MAIN = """
import json, sys
from pathlib import Path
name, folder = sys.argv[1], Path(sys.argv[sys.argv.index("--report") + 1])
if name == "wire":
    sys.exit("no data")
tables = {"Plans": [{"plan": "one step", "median us": 2.0, "rows": 7, "is right": True}]}
place = Path("answer")
place.write_text(place.read_text() + "1" if place.exists() else "1")
checks = [{"what": "rows", "value": len(place.read_text()) if name == "store" else 7}]
(folder / "kernels.json").write_text(json.dumps({"tables": tables, "checks": checks}))
"""


def report(us: float, rows: int = 7) -> dict[str, object]:
    return {"tables": {"Plans": [{"plan": "one step", "median us": us, "rows": rows, "is right": True}, {"us": us}]}}


def test_a_row_is_named_by_its_words_or_its_place() -> None:
    assert figures(report(2.0)) == {
        ("Plans", "one step", "median us"): 2.0,
        ("Plans", "one step", "rows"): 7.0,
        ("Plans", "row 2", "us"): 2.0,
    }


def test_ratios_are_taken_within_pairs() -> None:
    this = [figures(report(us)) for us in (1.0, 10.0, 100.0)]
    other = [figures(report(us)) for us in (2.0, 20.0, 400.0)]
    found = ratios(this, other)
    assert [key[2] for key in found] == ["median us", "us"], "rows never differ"
    ratio = found["Plans", "one step", "median us"]
    assert (ratio.this, ratio.other, ratio.ratio, ratio.low, ratio.high) == (10.0, 20.0, 0.5, 0.25, 0.5)


def test_an_interval_leaves_out_extremes_as_far_as_it_stays_sure() -> None:
    assert confidence_of(6, 0) == 1 - 2 / 64
    this = [{("t", "r", "us"): float(us)} for us in range(1, 21)]
    other = [{("t", "r", "us"): 1.0}] * 20
    ratio = ratios(this, other)["t", "r", "us"]
    assert (ratio.low, ratio.high) == (6.0, 15.0)  # 95.9 %, by the table of the sign test


def test_both_run_by_turns_and_one_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wukongs" / "bench").mkdir(parents=True)
    (tmp_path / "wukongs" / "__init__.py").touch()
    (tmp_path / "wukongs" / "bench" / "__init__.py").touch()
    (tmp_path / "wukongs" / "bench" / "__main__.py").write_text(OTHER_MAIN)
    monkeypatch.setattr(comparing, "ROOT", tmp_path)
    monkeypatch.setattr(comparing, "wait_until_idle", lambda _: True)  # it takes a second
    assert compare(tmp_path, "kernels", tmp_path / "out", rounds=3, idle_wait_s=0) == 0
    turns = [line.split(": ")[1] for line in capsys.readouterr().err.splitlines() if line.startswith("round")]
    assert turns == ["this", "other", "other", "this", "this", "other"]
    found = json.loads((tmp_path / "out" / "compare-kernels.json").read_text())
    assert found["data"]["rounds"] == 3
    assert found["tables"] == {}, "the figures never differ"
    assert found["checks"] == [{"what": "rows", "value": 7}]
    assert compare(tmp_path, "store", None, rounds=1, idle_wait_s=0) == 1
    assert re.search(r"compare-store: rows: expected \d+, found \d+\. No time is reported", capsys.readouterr().err)
    assert compare(tmp_path, "wire", None, rounds=1, idle_wait_s=0) == 1
    assert "-m wukongs.bench wire ended with 1: no data" in capsys.readouterr().err


def test_what_cannot_be_compared_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["kernels", "--against", str(tmp_path)])
    assert ended.value.code == 2
    assert "a checkout with wukongs/bench in it" in capsys.readouterr().err
