"""The README's examples are run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def _block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_python_example_prints_what_the_text_says() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _block("python")], cwd=README.parent, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    *windows, last = done.stdout.splitlines()
    row = [("Logan", "Erik", "T-15")]
    assert windows == [f"{end}000 {row if end >= 806 else []}" for end in range(802, 811)]
    assert last == "1 like is stored now"


def test_the_query_example_is_the_file_that_it_names() -> None:
    assert _block("sparql") == (README.parent / "examples" / "qc.rq").read_text("utf-8")


def test_the_python_example_is_short() -> None:
    assert len(_block("python").strip().splitlines()) <= 16


def test_the_page_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 150
