"""docs/operations.md: each promise names a test that is there, and its commands are commands."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from wukongs.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "operations.md").read_text()
PROMISES = TEXT.partition("## What holds")[2]
NAMED = re.findall(r"^\|.*\| `([^`]*)` \|$", PROMISES, re.MULTILINE)


def names_in(path: Path) -> set[str]:
    return {one.name for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.FunctionDef)}


def test_each_promise_has_a_test() -> None:
    rows = [line for line in PROMISES.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) == len(NAMED) > 30
    assert len(set(NAMED)) == len(NAMED)


@pytest.mark.parametrize("named", NAMED)
def test_the_test_of_a_promise_is_there(named: str) -> None:
    path, _, name = named.partition(": ")
    assert name.startswith("test_")
    assert name in names_in(ROOT / path)


def test_commands_and_files_that_are_named_are_there() -> None:
    assert set(re.findall(r"`wukongs (\w+)", TEXT)) <= COMMANDS.keys()
    for path in re.findall(r"`(deploy/[^`]*)`|\]\(([^)]*)\)", TEXT):
        assert (ROOT / path[0]).exists() if path[0] else (ROOT / "docs" / path[1]).exists(), path
