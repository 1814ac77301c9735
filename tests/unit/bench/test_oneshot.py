"""The one-shot benchmark on tiny data: three systems with equal answers, estimates beside actual rows."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.oneshot import run
from bench.oneshot.estimates import q_error
from bench.oneshot.run import TookTooLong, interrupted_after

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


def test_what_takes_too_long_is_interrupted_and_nothing_stays_behind() -> None:
    def for_ever() -> bytes:
        while True:
            with contextlib.suppress(Exception):  # as a library may do
                time.sleep(0.01)

    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TookTooLong):
        interrupted_after(0.05, for_ever)
    assert interrupted_after(5, lambda: b"in time") == b"in time"
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_system_that_is_interrupted_has_no_ratio_and_the_table_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "RDFLIB_S_MAX", 1e-4)
    monkeypatch.setattr(run, "OTHER_QUERIES", ())
    assert main(["oneshot", "--quick", "--report", str(tmp_path)]) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "oneshot.json").read_text(encoding="utf-8"))
    *rows, mean = found["tables"][run.TIMES]
    assert {row["rdflib"] for row in rows} == {"over 0.0001 s"}
    assert all("rdflib / wukongs" not in row for row in (*rows, mean))
    assert any("is without S1, S2" in note for note in found["notes"])
