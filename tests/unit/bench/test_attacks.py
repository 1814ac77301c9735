"""The attacks run, those that take no long waits a few times each: nothing gets through, and a user is answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wukongs.bench.attacks import run

SLOW = ("heads that never end", "2 s", "at once", "packed")


@pytest.mark.slow
def test_attacks_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "HTTP", [one for one in run.HTTP if not any(part in one.what for part in SLOW)])
    assert run.main(tmp_path, quick=True) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "attacks.json").read_text(encoding="utf-8"))["tables"][run.TABLE]
    assert len(found) == len(run.HTTP) + len(run.NODE) > 14
    assert sum(row["answered"] for row in found) == 0


@pytest.mark.slow
def test_an_attack_that_gets_through_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "HTTP", [run.Attack("a user's own request", {403}, 1, run._asked())])
    assert run.main(tmp_path, quick=True) == 1
    assert "a user's own request: answered [200], expected [403]" in capsys.readouterr().err
