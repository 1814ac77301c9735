"""The tiers of the tests: each test is in one, each number of examples follows them, each wrong variant is tried."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests import fuzz
from tests.model import dropping, membership, minors, progress, sealing
from tests.sim.test_simulator import test_a_wrong_variant_is_caught as each_wrong_variant
from tests.sim.wrong_logs import WRONG_LOGS
from tests.sim.wrong_variants import MUTANTS

TESTS = Path(fuzz.__file__).parent


def values_of(test: Callable[..., None]) -> list[Any]:
    """Return the values that a test is repeated for."""
    [mark] = (mark for mark in test.pytestmark if mark.name == "parametrize")  # type: ignore[attr-defined]
    return [value.values[0] if isinstance(value, type(pytest.param())) else value for value in mark.args[1]]


def test_each_test_is_in_a_tier_that_ci_runs(project_root: Path) -> None:
    commands = re.findall(r"^test(?:-ci)?: .*\n\t.* -m '(.*)'$", (project_root / "Makefile").read_text(), re.MULTILINE)
    assert commands == ["not slow", "(slow or examples) and not rare"]
    assert re.findall(r"^make .*", (project_root / ".ci" / "run").read_text(), re.MULTILINE) == [
        "make test",
        "make test-ci",
        "make faults-minutes MINUTES=5 SEED=1",
    ]


def test_every_number_of_examples_depends_on_the_tier() -> None:
    raw = [str(path) for path in TESTS.rglob("*.py") if "max_examples" in path.read_text() and path.name != "fuzz.py"]
    assert raw == [__file__]


@pytest.mark.parametrize(
    ("tier", "counts"),
    [
        ("fast", {1: 1, 6: 5, 100: 20}),
        ("ci", {1: 1, 6: 5, 100: 30}),
        ("all", {1: 5, 6: 30, 100: 500}),
    ],
)
def test_a_tier_has_its_share(monkeypatch: pytest.MonkeyPatch, tier: str, counts: dict[int, int]) -> None:
    monkeypatch.setattr(fuzz, "FACTOR", fuzz.FACTORS[tier])
    assert {count: fuzz.scaled(count) for count in counts} == counts


def test_only_the_fast_tier_repeats_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SEED", None)
    assert fuzz.fuzzed(10).derandomize
    monkeypatch.setattr(fuzz, "SEED", 5)
    assert not fuzz.fuzzed(10).derandomize
    assert fuzz.fuzzed(10).print_blob


FAILS = """
from hypothesis import given, strategies as st
from tests.fuzz import fuzzed

@fuzzed(3)
@given(st.integers())
def test_fails(number):
    print("drawn", number)
    assert False
"""


def run_pytest(folder: Path, project_root: Path, text: str, **environment: str) -> str:
    """Return what pytest prints of one test file, with the project's fixtures and summary."""
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "test_it.py"]
    path = os.pathsep.join([str(project_root), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


@pytest.mark.slow
def test_a_seed_repeats_what_failed_and_is_told(tmp_path: Path, project_root: Path) -> None:
    def run(seed: int) -> str:
        return run_pytest(tmp_path, project_root, FAILS, WUKONGS_TIER="ci", WUKONGS_SEED=str(seed))

    first, again, other = run(5), run(5), run(6)
    told = "repeat it: WUKONGS_TIER=ci WUKONGS_SEED=5 python -m pytest test_it.py::test_fails"
    assert told in first.splitlines()
    assert "@reproduce_failure(" in first
    drawn = [re.findall(r"^drawn .*", said, re.MULTILINE) for said in (first, again, other)]
    assert drawn[0] == drawn[1] != drawn[2]


WARNS_AND_FAILS = """
import warnings, pytest

@pytest.fixture
def warning_of_the_end():
    yield
    warnings.warn("from tearing down")

def test_fails(warning_of_the_end):
    assert False
"""


def test_a_failed_test_is_named_right_before_the_counts(tmp_path: Path, project_root: Path) -> None:
    lines = run_pytest(tmp_path, project_root, WARNS_AND_FAILS, WUKONGS_TIER="fast").splitlines()
    assert lines[-2] == "failed: test_it.py::test_fails"
    assert "1 failed, 1 warning" in lines[-1]


def test_every_wrong_variant_of_the_protocol_is_tried() -> None:
    assert values_of(each_wrong_variant) == list(MUTANTS)
    assert set(WRONG_LOGS) <= set(MUTANTS)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("model", [dropping, membership, minors, progress, sealing], ids=lambda model: model.__name__)
def test_every_rule_of_a_model_is_turned_round(model: Any) -> None:
    tests = (TESTS / "model" / "test_model.py").read_text("utf-8")
    named = {rule.name for rule in fields(model.Rules)}
    assert {name for name in named if not re.search(rf"\b{name}\b", tests)} == set()
