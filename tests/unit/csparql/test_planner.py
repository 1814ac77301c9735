"""The planner: order, direction and estimates, over counted triples."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.unit.csparql.counted_triples import CountedTriples, Triple
from wukongs.csparql.algebra import DEFAULT, Bgp, GraphRef, TriplePattern
from wukongs.csparql.parser import parse_query
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.planner import EXACT_PATTERNS_MAX, plan_bgp
from wukongs.csparql.terms import RDF, Term, Variable, iri

NOTHING: frozenset[Variable] = frozenset()
WINDOW = iri("w")
TYPE = f"<{RDF}type>"


def social_triples() -> list[Triple]:
    """100 people who know 10 others each and like 5 of 1000 posts each; each post has one author; ten hashtags."""
    triples = []
    for person in range(100):
        triples += [(f"<u{person}>", "<knows>", f"<u{(person + 7 * step) % 100}>") for step in range(1, 11)]
        triples += [(f"<u{person}>", "<like>", f"<p{(person * 31 + step * 17) % 1000}>") for step in range(5)]
        triples += [(f"<u{person}>", "<account_of>", f"<person{person}>")]
    for post in range(1000):
        triples += [(f"<u{post % 100}>", "<creator_of>", f"<p{post}>"), (f"<p{post}>", "<tag>", f"<t{post % 10}>")]
        triples += [(f"<p{post}>", "<type>", "<Post>")]
    return triples


SOCIAL = social_triples()
COUNTS = CountedTriples({DEFAULT: SOCIAL, WINDOW: [("<u3>", "<creator_of>", "<p3>"), ("<u5>", "<creator_of>", "<p5>")]})


def bgp_of(group: str) -> Bgp:
    pattern = parse_query(f"ASK {{ {group} }}").pattern
    assert isinstance(pattern, Bgp)
    return pattern


def shown(steps: tuple[PlanStep, ...]) -> list[str]:
    """Show steps as predicate and direction."""
    return [f"{step.pattern.predicate!s} {step.direction}".replace("<", "").replace(">", "") for step in steps]


def plan(group: str, bound: frozenset[Variable] = NOTHING, rows: float = 1.0) -> tuple[PlanStep, ...]:
    return plan_bgp(bgp_of(group), bound, COUNTS, rows)


@pytest.mark.parametrize(
    ("group", "steps"),
    [
        ("?u <knows> <u1>", ["knows in"]),
        ("<u1> <knows> ?v", ["knows out"]),
        ("<u1> <knows> <u2>", ["knows out"]),
        ("?p <tag> ?t", ["tag in"]),
        ("?u <creator_of> ?p", ["creator_of out"]),
        ("?u <knows> ?f . ?u <account_of> <person7>", ["account_of in", "knows out"]),
        (
            "?f <creator_of> ?p . ?u <knows> ?f . ?u <account_of> <person7>",
            ["account_of in", "knows out", "creator_of out"],
        ),
        (
            "?p <type> <Post> . ?u <account_of> <person7> . ?u <creator_of> ?p",
            ["account_of in", "creator_of out", "type out"],
        ),
        ("?u <creator_of> ?p GRAPH <w> { ?u <creator_of> ?q }", ["creator_of out", "creator_of out"]),
        ("?u ?p ?o . <u1> <knows> ?u", ["knows out", "?p out"]),
        ("?u <knows> ?v . ?v <knows> ?u . ?u <account_of> <person1>", ["account_of in", "knows out", "knows out"]),
    ],
)
def test_order_and_direction(group: str, steps: list[str]) -> None:
    assert shown(plan(group)) == steps


def test_windows_and_stored_graphs_are_ordered_together() -> None:
    steps = plan("?u <knows> ?f GRAPH <w> { ?f <creator_of> ?p }")
    assert [str(step.pattern.graph) for step in steps] == ["<w>", "default"]
    assert [step.direction for step in steps] == ["out", "in"]


def test_a_check_explores_from_the_side_with_fewer() -> None:
    """A post has one tag and one type, while all posts are of that type and a hundred share a tag."""
    assert shown(plan("<p3> <type> <Post>")) == ["type out"]
    assert shown(plan("?p <tag> ?t", frozenset((Variable("p"), Variable("t"))))) == ["tag out"]
    assert shown(plan("?u <creator_of> ?p", frozenset((Variable("u"), Variable("p"))))) == ["creator_of in"]


def test_membership_is_checked_rather_than_expanded() -> None:
    """Friends of <u1> who like the post: the likers are few, so friendship is checked, not the other way round."""
    steps = plan("<u1> <knows> ?f . ?f <like> <p31>")
    assert shown(steps) == ["like in", "knows out"]
    assert steps[1].estimated_rows < steps[0].estimated_rows


def test_exact_degrees_and_averages() -> None:
    (step,) = plan("<u1> <knows> ?v")
    assert step.estimated_rows == 10
    steps = plan("<u1> <knows> ?v . ?v <creator_of> ?p")
    assert [step.estimated_rows for step in steps] == [10, 100]
    steps = plan("?p <tag> <t1> . ?p <type> <Post>")
    assert [step.estimated_rows for step in steps] == [100, 100]


def test_bound_variables_and_rows() -> None:
    (step,) = plan("?u <knows> ?v", frozenset((Variable("u"),)), 50.0)
    assert (step.direction, step.estimated_rows) == ("out", 500)
    (step,) = plan("?u <knows> ?v", frozenset((Variable("v"),)), 50.0)
    assert (step.direction, step.estimated_rows) == ("in", 500)
    (step,) = plan("?u <knows> ?v", frozenset((Variable("u"), Variable("v"))), 50.0)
    assert step.estimated_rows == pytest.approx(50 * 1000 / (100 * 100))


def test_products_come_last_and_small_sides_first() -> None:
    steps = plan("?x <tag> ?t . <u1> <knows> ?f . ?u <account_of> <person1> . ?u <like> ?l")
    assert shown(steps) == ["account_of in", "like out", "knows out", "tag in"]
    bound = frozenset((Variable("x"),))
    assert shown(plan("<u1> <account_of> ?y . ?x <tag> ?t", bound)) == ["tag out", "account_of out"]


def test_patterns_without_variables_come_first() -> None:
    assert shown(plan("?u <account_of> <person1> . <u1> <knows> <u8>"))[0] == "knows out"


def test_repeated_variable() -> None:
    counts = CountedTriples.of_default([(f"<a{i}>", "<p>", f"<a{j}>") for i in range(10) for j in range(10)])
    (step,) = plan_bgp(bgp_of("?x <p> ?x"), NOTHING, counts)
    assert step.estimated_rows == 10


def test_variables_for_predicate_and_graph() -> None:
    steps = plan("?u <account_of> <person1> . ?u ?p ?o . ?o ?p ?z")
    assert shown(steps)[0] == "account_of in"
    steps = plan("GRAPH ?g { ?u <creator_of> ?p } GRAPH ?g { ?p <tag> ?t } ?u <account_of> <person3>")
    assert len(steps) == 3
    assert steps[0].estimated_rows <= 2


def test_empty_ranges_still_give_a_sensible_order() -> None:
    """A window that is empty at registration counts as one edge, an unknown constant as next to none."""
    steps = plan("?u <knows> ?f GRAPH <empty> { ?f <like> ?p }")
    assert [str(step.pattern.graph) for step in steps] == ["<empty>", "default"]
    steps = plan("?u <knows> ?f . ?u <account_of> <nobody>")
    assert shown(steps) == ["account_of in", "knows out"]
    assert steps[0].estimated_rows < 1


def test_no_patterns() -> None:
    assert plan_bgp(Bgp(()), NOTHING, COUNTS) == ()


def test_more_patterns_than_the_exact_search_takes() -> None:
    group = "?v0 <account_of> <person1> . " + " . ".join(
        f"?v{i} <knows> ?v{i + 1}" for i in range(EXACT_PATTERNS_MAX + 4)
    )
    steps = plan(group)
    assert shown(steps) == ["account_of in"] + ["knows out"] * (EXACT_PATTERNS_MAX + 4)


def test_a_wide_star_is_planned() -> None:
    group = " . ".join(f"?v0 <knows> ?v{i}" for i in range(1, 41))
    steps = plan(group)
    assert {step.pattern for step in steps} == set(bgp_of(group).patterns)


def rows_by_execution(steps: tuple[PlanStep, ...], triples: list[Triple]) -> tuple[list[dict[str, str]], int]:
    """Run a plan naively; return its rows and how many rows all steps together produced."""
    rows: list[dict[str, str]] = [{}]
    produced = 0
    for step in steps:
        ends = (step.pattern.subject, step.pattern.predicate, step.pattern.object)
        following = []
        for row in rows:
            for triple in triples:
                extended = dict(row)
                for end, text in zip(ends, triple, strict=True):
                    if (end.text if isinstance(end, Term) else extended.setdefault(end.name, text)) != text:
                        break
                else:
                    following.append(extended)
        rows = following
        produced += len(rows)
    return rows, produced


@pytest.mark.parametrize("seed", range(20))
def test_any_order_gives_the_same_rows_and_the_planned_one_is_among_the_cheap(seed: int) -> None:
    rng = random.Random(seed)
    predicates = ["<p>", "<q>", "<r>"]
    triples = sorted(
        {(f"<a{rng.randint(0, 5)}>", rng.choice(predicates), f"<a{rng.randint(0, 3)}>") for _ in range(25)}
    )
    variables = [Variable(name) for name in "xyz"]
    ends: list[Term | Variable] = [*variables, Term("<a1>")]
    graph: GraphRef = DEFAULT
    patterns = [
        TriplePattern(rng.choice(ends), Term(rng.choice(predicates)), rng.choice(ends), graph) for _ in range(3)
    ]
    steps = plan_bgp(Bgp(tuple(patterns)), NOTHING, CountedTriples.of_default(triples))
    rows, produced = rows_by_execution(steps, triples)
    costs = []
    for order in itertools.permutations(steps):
        other_rows, other_produced = rows_by_execution(order, triples)
        assert sorted(map(sorted, map(dict.items, other_rows))) == sorted(map(sorted, map(dict.items, rows)))
        costs.append(other_produced)
    assert produced <= 4 * min(costs) + 8, (produced, costs)
    assert sorted(step.pattern.predicate.text for step in steps if isinstance(step.pattern.predicate, Term)) == sorted(
        pattern.predicate.text for pattern in patterns if isinstance(pattern.predicate, Term)
    )


def test_a_class_is_checked_first_only_where_it_spares_rows() -> None:
    """Every reading is of a place, and every fourth place a garage: classes do not depend on chance."""
    readings = [(f"<r{i}>", "<of>", f"<x{i % 8}>") for i in range(40)]
    readings += [(f"<r{i}>", "<value>", f'"{i}"') for i in range(40)]
    kinds = [(f"<x{i}>", TYPE, "<Place>") for i in range(8)] + [(f"<x{i}>", TYPE, "<Garage>") for i in range(0, 8, 4)]
    kinds += [(f"<other{i}>", TYPE, "<Thing>") for i in range(5000)]
    counts = CountedTriples({DEFAULT: readings + kinds})
    for kind, expected_rows, place in (("Place", 40, None), ("Garage", 10, 1), ("Thing", 0.5 / 8 * 40, 1)):
        bgp = bgp_of(f"?r <of> ?x ; <value> ?v . ?x a <{kind}>")
        steps = plan_bgp(bgp, NOTHING, counts)
        assert steps[-1].estimated_rows == pytest.approx(expected_rows)
        at = next(at for at, step in enumerate(steps) if step.pattern.object == iri(kind))
        assert place is None or at <= place, kind


def test_a_class_of_what_rows_bind_is_taken_to_be_theirs() -> None:
    counts = CountedTriples({DEFAULT: [(f"<x{i}>", TYPE, f"<C{i % 2}>") for i in range(1000)]})
    x = Variable("x")
    for rows, expected in ((10.0, 10.0), (5000.0, 500.0)):
        (step,) = plan_bgp(bgp_of("?x a <C1>"), frozenset((x,)), counts, rows)
        assert step.estimated_rows == pytest.approx(expected)
