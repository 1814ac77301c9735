"""Every question of bench/store at a tiny size: it checks its answers, reports, and draws. Speed is never asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wukongs.bench.__main__ import main
from wukongs.bench.store.run import questions

QUICK = ("batch_build",)


@pytest.mark.parametrize(
    "question", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in questions()]
)
def test_a_question_is_answered_with_figures_and_a_plot(question: str, tmp_path: Path) -> None:
    assert main(["store", "--only", question, "--quick", "--report", str(tmp_path)]) == 0
    found = json.loads((tmp_path / f"store-{question}.json").read_text())
    assert found["checks"]
    assert found["tables"]
    assert (tmp_path / f"store-{question}.png").stat().st_size > 0
