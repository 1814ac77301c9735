"""The benchmark of a run's start, once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wukongs.bench.__main__ import main
from wukongs.bench.pipeline import run


@pytest.mark.slow
@pytest.mark.spark
def test_it_runs_and_passes_all_milestones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "--quick", "--report", str(tmp_path)]) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "pipeline.json").read_text(encoding="utf-8"))
    assert [row["milestone"] for row in found["tables"][run.PASSED]] == list(run.MILESTONES)
    assert all(row["median"] >= 0 for row in found["tables"][run.PARTS])
