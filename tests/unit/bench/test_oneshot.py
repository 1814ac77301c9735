"""The one-shot benchmark on tiny data: three systems with equal answers, estimates beside actual rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.oneshot.estimates import q_error

pytestmark = pytest.mark.nojit


def test_a_quick_run_compares_answers_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["oneshot", "--quick", "--report", str(tmp_path)]) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "oneshot.json").read_text(encoding="utf-8"))
    times, estimates, parts = found["tables"].values()
    assert {"S1", "S6", "OPTIONAL", "geometric mean"} <= {row["query"] for row in times}
    assert {row["step"] for row in estimates if row["query"] == "S3"} == {1, 2, 3}
    assert {row["part"] for row in parts} >= {"parse (with tokens)", "plan", "all"}


def test_q_error_counts_both_ways_and_less_than_a_row_as_one() -> None:
    assert [q_error(10, 5), q_error(5, 10), q_error(0.01, 0), q_error(3, 0)] == [2, 2, 1, 3]
