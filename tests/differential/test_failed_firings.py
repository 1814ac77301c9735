"""Firings that fail in the middle. Nothing that is half done is taken for whole: the windows behind a failed one are
those that pyoxigraph finds, and ISTREAM and DSTREAM begin anew behind it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import wukongs
from tests.fuzz import SEED, TIER, first_and_slow, scaled
from tests.fuzzing import failures
from tests.fuzzing.continuous import MIXES, Tally, judged, lived
from wukongs.errors import BudgetExceeded, QueryTimeout
from wukongs.query.operators.held_groups import HeldGroups
from wukongs.query.plans import deltas
from wukongs.query.plans.deltas import Deltas

LIVES = 1 if TIER == "fast" else scaled(6)
SEED_TEXT = "tests" if SEED is None else str(SEED)
S = "http://e/s"
KEPT: dict[str, tuple[str, ...]] = {
    "bindings": ("deltas.py", "plans/compiled.py", "plan_memo.py", "plan_versions.py"),
    "changes": ("deltas.py", "held_groups.py", "counted.py", "maintained.py", "reporting.py"),
    "distinct": ("deltas.py", "incremental/counted.py", "maintained.py", "counted_rows.py"),
    "groups": ("held_groups.py", "counted_rows.py", "window_join.py", "maintained.py"),
    "executor": ("window_join.py", "maintained.py", "compiled_plans.py", "deltas.py"),
    "joins": (
        "incremental/operators.py",
        "incremental/counted.py",
        "lookups.py",
        "arranged.py",
        "window_join.py",
        "maintained.py",
    ),
    "paths": ("kept_paths.py", "reach.py", "forest.py"),
    "ranked": ("incremental/cuts.py", "incremental/counted.py", "incremental/groups.py", "maintained.py"),
    "stored": ("searched.py", "incremental/operators.py", "maintained.py"),
    "together": (
        "programs/program.py",
        "plans/compiled.py",
        "plan_memo.py",
        "plan_versions.py",
        "store/window_table.py",
    ),
    "compiled": ("programs/program.py", "plans/compiled.py", "store/window_table.py"),
    "program": ("programs/program.py", "programs/compile.py", "programs/memo.py", "plan_memo.py", "refusals.py"),
    "joined": ("argument_rows.py", "plan_memo.py", "query/rows.py", "reporting.py"),
    "twins": ("live/answer_cache.py", "live/answering.py"),
    "arguments": ("argument_rows.py", "plan_memo.py", "query/rows.py"),
}
"""The files in which errors are raised, for each mix: what it keeps."""


def disagreements(mix: str, files: tuple[str, ...], lines_max: int, number: int) -> tuple[list[str], list[str]]:
    """Live a life of failures; return what is wrong of it, and where errors were raised."""
    seed = f"{SEED_TEXT}/{number} {mix}"
    plan = MIXES[mix].make(random.Random(seed))
    with failures.failing(random.Random(seed), files, lines_max) as raised:
        found, _ = lived(plan)
    opened = judged(plan, found, Tally(), mix, fails=True)
    return [f"seed {seed}\n{each}\n{raised[-8:]}" for each in opened], raised


@pytest.mark.parametrize("mix", KEPT)
def test_an_error_in_what_is_kept_leaves_nothing_that_looks_whole(mix: str) -> None:
    places: Counter[str] = Counter()
    for number in range(LIVES):
        opened, raised = disagreements(mix, KEPT[mix], 120, number)
        assert not opened, "\n\n".join(opened)
        places.update(raised)
    assert places


@pytest.mark.parametrize("mix", first_and_slow(MIXES))
def test_an_error_anywhere_in_a_firing_leaves_nothing_that_looks_whole(mix: str) -> None:
    for number in range(LIVES):
        opened, raised = disagreements(mix, failures.ALL, 500, 1000 + number)
        assert not opened, "\n\n".join(opened)
        assert raised


def test_groups_that_have_missed_a_move_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The matches have moved on, and the groups have not, since the firing has failed in between."""
    monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
    move, calls = HeldGroups.move, Counter[str]()

    def fail_once(self: HeldGroups, *given: Any) -> bool:
        calls["move"] += 1
        if calls["move"] == 3:
            raise QueryTimeout("injected")
        return move(self, *given)

    monkeypatch.setattr(HeldGroups, "move", fail_once)
    counts: list[Any] = []
    with wukongs.Engine() as engine:
        stream = engine.stream(S, timing=True, batch_ms=100)
        query: Any = engine.register(
            f"REGISTER QUERY q AS SELECT (COUNT(*) AS ?n) FROM STREAM <{S}> [RANGE 500ms STEP 100ms] "
            "WHERE { ?a <http://e/p> ?b }"
        )
        for number in range(1, 10):
            stream.push([(f"<http://e/a{number}>", "<http://e/p>", "<http://e/b>", 100 * number)])
            stream.advance(100 * number)
            engine.settle(60)
            try:
                counts += [int(window.texts()[0][0].split('"')[1]) for window in query.results(timeout_s=0)]
            except QueryTimeout:
                counts.append(None)
    assert counts.count(None) == 1
    assert [count for count in counts if count is not None] == [
        count for count, wanted in zip([1, 2, 3, 4, 5, 5, 5, 5, 5], counts, strict=True) if wanted is not None
    ]


def test_matches_that_were_refused_are_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are tried again after some firings, and not as they stood when they were refused."""
    monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
    move, calls = Deltas.move, Counter[str]()

    def fail_once(self: Deltas, *given: Any) -> Any:
        calls["move"] += 1
        if calls["move"] == 4:
            raise BudgetExceeded("injected")
        return move(self, *given)

    monkeypatch.setattr(Deltas, "move", fail_once)
    with wukongs.Engine() as engine:
        stream = engine.stream(S, timing=True, batch_ms=100)
        query: Any = engine.register(
            f"REGISTER QUERY q AS SELECT ?a ?n FROM STREAM <{S}> [RANGE 500ms STEP 100ms] "
            "WHERE { ?a <http://e/p> ?b BIND(STRLEN(STR(?a)) AS ?n) }"
        )
        for number in range(1, 40):
            stream.push([(f"<http://e/a{number}>", "<http://e/p>", "<http://e/b>", 100 * number)])
            stream.advance(100 * number)
            engine.settle(60)
        found = [sorted(row[0] for row in window.texts()) for window in query.results(timeout_s=0)]
    expected = [[f"<http://e/a{one}>" for one in range(max(1, number - 4), number + 1)] for number in range(1, 40)]
    assert found == [sorted(rows) for rows in expected]
    assert calls["move"] > 10, "matches were not maintained again"
