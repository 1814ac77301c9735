"""Views against the same text evaluated from scratch at every SN: random graphs, changes and queries."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

import wukongs
from tests.unit.incremental.followed import Followed
from tests.unit.incremental.queries import GRAPHS, RULE, QueryMaker, quads_text, random_triples, random_update
from wukongs.incremental import cuts
from wukongs.incremental.cuts import Cut
from wukongs.incremental.operators import operators_of
from wukongs.query.paths.reach import PathIndexes

VIEWS, STEPS = 25, 8
OF_GRAPHS = {
    "delta join (named graphs)",
    "delta join (merged graphs)",
    "delta join (named and merged graphs)",
    "graph names",
    "per graph",
    "per graph (and others)",
}
"""The operators of views over several graphs, likewise."""
NAMES = {
    "delta join",
    "explored",
    "kept",
    "linear",
    "union",
    "join",
    "flag",
    "reduce",
    "top-k",
    "exists",
    "flag (with exists)",
    "groups",
}
"""The operators that a run has to have moved, by a change that was not empty."""


def follow(seed: int, moved: Counter[str] | None = None, *, of_graphs: bool = False, of_paths: bool = False) -> int:
    """Follow views over random changes; return how many reports were not empty. moved: counts the operators of views
    with such reports; of_graphs: views of GRAPH ?g and its like; of_paths: of paths, and some views lag. Raises
    AssertionError (a view's sum is not its text's answer)."""
    rng, reports = random.Random(seed), 0
    graphs = {graph: set(random_triples(rng, 14 if not graph else 6, of_terms=True)) for graph in GRAPHS}
    stored = " ".join(quads_text(graph, sorted(triples)) for graph, triples in graphs.items())
    few = patch.multiple(cuts, MARGIN=seed % 3, MARGIN_OF_EACH=seed % 3)  # the first rows of LIMIT are soon used up
    with few, wukongs.Engine() as engine:
        engine.update(f"INSERT DATA {{ {stored} }}")
        if of_graphs:
            engine.add_rules(RULE)
        views = list[tuple[str, Followed]]()
        paths = PathIndexes()
        while len(views) < VIEWS:
            text = QueryMaker(rng, of_graphs=of_graphs, of_paths=of_paths).query()
            try:
                views.append((text, Followed(engine, text, paths=paths)))
            except wukongs.QuerySyntaxError:  # a variable that BIND would bind again
                continue
        for step in range(STEPS):
            for _ in range(rng.choice((1, 2, 3) if of_graphs else (1, 1, 1, 3))):
                engine.update(random_update(rng, graphs, of_graphs=of_graphs, of_terms=True))
            for text, followed in views:
                if of_paths and rng.random() < 0.15:
                    continue  # it lags, and others of its paths are ahead
                report = followed.advance()
                assert 0 not in report.values(), f"seed {seed}, step {step}: {text}"
                if report:
                    reports += 1
                    if moved is not None:
                        moved.update(operator.kind for _, operator in operators_of(followed.view.top))
                asked = followed.asked()
                missing, extra = asked - followed.content, followed.content - asked
                assert missing == extra == Counter(), (
                    f"seed {seed}, step {step}: {text}\n{followed.view.explain()}\nmissing {missing}\nextra {extra}"
                )
        for _, followed in views:
            followed.close()
    return reports


def test_views_follow_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    moved, followed, right = Counter[str](), Counter[str](), Cut._lacking

    def lacking(self: Cut, *given: Any) -> Any:
        found = right(self, *given)
        followed["filled" if len(found) else "moved" if self._longer else "all"] += 1
        return found

    monkeypatch.setattr(Cut, "_lacking", lacking)
    assert sum(follow(seed, moved) for seed in (0, 1, 4, 9, 12, 25)) > 120
    assert {*moved} >= NAMES, moved
    assert followed["moved"] > 2, "first rows that are not all followed a change"
    assert followed["filled"] > 2, "and were looked for again"


def test_views_over_several_graphs_follow_their_text() -> None:
    moved = Counter[str]()
    assert follow(13, moved, of_graphs=True) + follow(15, moved, of_graphs=True) > 50
    assert {*moved} >= OF_GRAPHS, moved


def test_views_of_paths_follow_their_text() -> None:
    moved = Counter[str]()
    assert follow(0, moved, of_paths=True) > 20
    assert {*moved} >= {"iterate", "origins", "search", "search (from a constant)"}, moved


@pytest.mark.slow
def test_views_follow_their_text_for_many_seeds() -> None:
    for seed in range(1000, 1030):
        follow(seed)
        follow(seed, of_graphs=True)
        follow(seed, of_paths=True)
