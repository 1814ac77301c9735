"""The benchmark of the wire runs, at a size that says nothing of times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wukongs.bench.__main__ import main
from wukongs.bench.wire import run


def test_it_runs_and_checks_its_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wire", "--quick", "--report", str(tmp_path)]) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "wire.json").read_text(encoding="utf-8"))
    assert len(found["checks"]) == 5
    assert {row["how"] for row in found["tables"][run.ONE]} == {run.POOLED, run.QUICK, "ZeroMQ alone"}
    assert all(row["median"] > 0 for row in found["tables"][run.ONE])
    assert all(row["a second"] > 0 for row in found["tables"][run.MANY])
