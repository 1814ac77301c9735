"""The benchmark of the HTTP server runs, at a size that says nothing of times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wukongs.bench.__main__ import main
from wukongs.bench.http import heavy, idle, run


@pytest.mark.slow
def test_it_runs_and_no_window_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["http", "--quick", "--report", str(tmp_path)]) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "http.json").read_text(encoding="utf-8"))
    checks = {check["what"]: check["value"] for check in found["checks"]}
    assert checks["subscribers that got each window once, in order"] == 12
    assert checks["point queries that failed"] == 0
    assert [row["query"] for row in found["tables"][run.WINDOWS]] == ["L1", "L2", "L3"]
    assert all(row["median"] > 0 for row in found["tables"][run.POINTS])


@pytest.mark.slow
def test_light_readers_are_answered_beside_heavy_queries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["http-heavy", "--quick", "--report", str(tmp_path)]) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "http-heavy.json").read_text(encoding="utf-8"))
    assert {check["value"] for check in found["checks"]} == {0}
    assert [row["windows"] for row in found["tables"][heavy.WINDOWS]] == [30, 30]
    assert {row[""] for row in found["tables"][heavy.HEAVIES]} == {*heavy.KINDS}


@pytest.mark.slow
def test_connections_that_do_little_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["http-idle", "--quick", "--report", str(tmp_path)]) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "http-idle.json").read_text(encoding="utf-8"))
    assert [row["how many"] for row in found["tables"][idle.TIMES]] == [0, 0, 25, 25, 100, 100, 25, 25, 2, 2]
