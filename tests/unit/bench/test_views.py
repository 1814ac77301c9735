"""The benchmark of live views, at a tiny size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wukongs.bench.__main__ import main
from wukongs.bench.views.many import ARGUMENTS, MANY
from wukongs.bench.views.run import QUICK, TITLE, VIEWS


@pytest.mark.slow
def test_views_are_checked_and_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["views", "--quick", "--report", str(tmp_path)]) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "views.json").read_text(encoding="utf-8"))
    assert len(found["checks"]) == 2 * len(VIEWS)
    rows = found["tables"][TITLE]
    assert [row["view"] for row in rows] == [name for name in VIEWS for _ in QUICK.batches]
    assert all(row["change, p50"] > 0 for row in rows)


@pytest.mark.slow
def test_many_views_are_checked_and_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["views-many", "--quick", "--report", str(tmp_path)]) == 0, capsys.readouterr().err
    tables = json.loads((tmp_path / "views-many.json").read_text(encoding="utf-8"))["tables"]
    assert [row["views"] for row in tables[MANY]] == [200]
    assert [row["arguments"] for row in tables[ARGUMENTS]] == [500]
