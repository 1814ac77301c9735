"""Plans as readable texts: every query of plans/ is rewritten, planned, explained, and its plans are executed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.oracles import operators
from tests.unit.csparql.counted_triples import CountedTriples, Triple
from tests.unit.csparql.evaluator import Dataset, evaluate, match_pattern, truth
from wukongs.csparql import explain, parse_query, rewrite
from wukongs.csparql.algebra import DEFAULT, Filter, GraphRef, Node
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.planner import plan_filtered
from wukongs.csparql.terms import iri
from wukongs.csparql.walk import map_children

PLANS = Path(__file__).parent / "plans"
QUERIES = sorted(PLANS.glob("*.rq"))


def network() -> dict[str, set[Triple]]:
    """Return graphs by name: 20 users who follow four others each, 60 posts with a hashtag each, and two windows."""

    def triple(subject: str, predicate: str, object_: str) -> Triple:
        return tuple(f"<http://example.org/{part}>" for part in (subject, predicate, object_))  # type: ignore[return-value]

    follows = {triple(f"u{user}", "fo", f"u{(user + step * step) % 20}") for user in range(20) for step in range(1, 5)}
    posts = {triple(f"u{post % 20}", "po", f"p{post}") for post in range(60)}
    tags = {triple(f"p{post}", "ht", f"t{post % 5}") for post in range(60)}
    likes = {triple(f"u{(post * 7) % 20}", "li", f"p{post}") for post in range(0, 60, 2)}
    new_posts = {triple(f"u{post % 6}", "po", f"p{post}") for post in range(60, 72)}
    new_tags = {triple(f"p{post}", "ht", f"t{post // 2 % 3}") for post in range(60, 72)}
    new_likes = {triple(f"u{(post * 3) % 20}", "li", f"p{post}") for post in range(60, 72)}
    named = {"X-Lab": follows | posts | tags | likes, "Tweet_Stream": new_posts | new_tags, "Like_Stream": new_likes}
    return {"": follows | posts} | {f"<http://example.org/{name}>": triples for name, triples in named.items()}


DATASET: Dataset = network()
GRAPHS: dict[GraphRef, list[Triple]] = {
    iri(name[1:-1]) if name else DEFAULT: sorted(triples) for name, triples in DATASET.items()
}
COUNTS = CountedTriples(GRAPHS)


def run(wanted: FilteredBgp) -> list[operators.Solution]:
    """Run a plan from nothing, step by step."""
    made = plan_filtered(wanted, frozenset(), COUNTS)
    rows: list[operators.Solution] = [{variable.name: term.text for variable, term in made.constants}]
    filters = [made.filters, *(step.filters for step in made.steps)]
    matches = [None, *(step.pattern for step in made.steps)]
    for pattern, conditions in zip(matches, filters, strict=True):
        if pattern is not None:
            rows = operators.join(rows, match_pattern(pattern, DATASET))
        for condition in conditions:
            rows = [row for row in rows if truth(condition, row, DATASET)]
    return rows


def test_there_are_queries() -> None:
    assert len(QUERIES) >= 6
    assert {path.stem for path in PLANS.glob("*.plan")} == {path.stem for path in QUERIES}


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_plan_text(path: Path, request: pytest.FixtureRequest) -> None:
    text = explain(rewrite(parse_query(path.read_text(encoding="utf-8"), source=path.name)), COUNTS)
    expected = path.with_suffix(".plan")
    if request.config.getoption("--update-golden"):
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_plans_give_what_their_patterns_say(path: Path) -> None:
    seen: list[FilteredBgp] = []

    def visit(node: Node) -> Node:
        found = FilteredBgp.of(node)
        if found is None:
            return map_children(node, visit)
        seen.append(found)
        return node

    visit(rewrite(parse_query(path.read_text(encoding="utf-8"))).pattern)
    assert seen
    for wanted in seen:
        rows = run(wanted)
        node: Node = wanted.bgp
        for condition in wanted.filters:
            node = Filter(condition, node)
        expected = evaluate(node, DATASET)
        assert Counter(frozenset(row.items()) for row in rows) == Counter(frozenset(row.items()) for row in expected)
        assert rows, "a plan that finds nothing shows nothing"
