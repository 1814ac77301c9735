"""LiveView.why(row): the triples that a row rests on, asked again over these triples alone."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from tests.unit.incremental.queries import GRAPHS, QueryMaker, quads_text, random_triples, random_update
from wukongs.live.views.row_support import RowSupport
from wukongs.rules.derivation import Derivation

EX = "PREFIX : <http://ex/> "
RULE = EX + "RULE two: CONSTRUCT { ?x :r ?z } WHERE { ?x :p ?y . ?y :p ?z }"
ROWS_PER_VIEW = 4
NOT_FOLLOWED = re.compile(r"MINUS|EXISTS|LIMIT|SELECT.*SELECT|p\d>[+/|]|\)\*|SAMPLE")
"""Paths, subqueries and EXISTS have triples that are not named; LIMIT and SAMPLE choose among others over fewer
triples; MINUS takes away what fewer triples do not."""


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as found:
        found.update(EX + "INSERT DATA { :a :p :b . :b :p :c , :d . :c :n 3 . :d :n 4 . GRAPH :g { :a :q :b } }")
        yield found


def register(engine: wukongs.Engine, text: str, **options: Any) -> Any:
    return engine.register(f"{EX}REGISTER QUERY v AS {text}", **options)


def triples(support: RowSupport) -> set[tuple[str, ...]]:
    found = set()
    for part in support.parts:
        terms = [term.replace("http://ex/", "") for term in part.triple]
        found.add((*terms, *([part.graph] if part.graph else [])))
    return found


def leaves(parts: tuple[Derivation, ...]) -> Iterator[Derivation]:
    for part in parts:
        yield part
        yield from leaves(part.parts)


def test_a_row_rests_on_one_solution_and_the_rules_below(engine: wukongs.Engine) -> None:
    engine.add_rules(RULE)
    view = register(engine, "SELECT ?x ?n WHERE { ?x :r ?z . ?z :n ?n }")
    found = view.why({"n": 3})
    assert triples(found) == {("<a>", "<r>", "<c>"), ("<c>", "<n>", '"3"^^<http://www.w3.org/2001/XMLSchema#integer>')}
    assert (found.query, found.sn, found.more, found.is_partial) == ("v", view.sn, 0, False)
    assert str(found).splitlines()[1:4] == [
        "  <http://ex/a> <http://ex/r> <http://ex/c>   by rule two",
        "    <http://ex/a> <http://ex/p> <http://ex/b>   explicit",
        "    <http://ex/b> <http://ex/p> <http://ex/c>   explicit",
    ]
    for row in view.content():
        assert {*view.why(row).row} == {"x", "n"}


@pytest.mark.parametrize(
    ("text", "row", "expected"),
    [
        ("SELECT ?x (COUNT(*) AS ?n) WHERE { ?x :p ?y } GROUP BY ?x", {"n": 2}, {"bpc", "bpd"}),
        ("SELECT (COUNT(*) AS ?n) WHERE { ?x :p ?y } GROUP BY ?x HAVING (COUNT(*) > 1)", (2,), {"bpc", "bpd"}),
        ("SELECT (COUNT(*) AS ?n) WHERE { ?x :nothing ?y }", (0,), set()),
        ("SELECT ?x ?n WHERE { ?x :p ?y OPTIONAL { ?y :n ?n } }", {"n": None}, {"apb"}),
        ("SELECT ?x WHERE { ?x :p ?y . ?y :n ?n } ORDER BY DESC(?n) LIMIT 1", {}, {"bpd", "dn4"}),
        (
            "SELECT (CONCAT(STR(?x), '!') AS ?z) WHERE { GRAPH ?g { ?x :q ?y } }",
            ('"http://ex/a!"',),
            {"aqbhttp://ex/g"},
        ),
        ("ASK { ?x :q ?y }", None, None),
        ("ASK { GRAPH ?g { ?x :q ?y } }", {}, {"aqbhttp://ex/g"}),
        ("CONSTRUCT { ?y :back ?x } WHERE { ?x :p ?y }", {"object": "<http://ex/a>"}, {"apb"}),
    ],
)
def test_rows_of_all_kinds_of_queries(engine: wukongs.Engine, text: str, row: Any, expected: set[str] | None) -> None:
    view = register(engine, text)
    if expected is None:
        with pytest.raises(wukongs.DataError, match="view v has no row with no terms"):
            view.why({})
        return
    found = {"".join(re.sub(r"[<>\"]|\^\^.*", "", term) for term in triple) for triple in triples(view.why(row))}
    assert found == expected


def test_blank_nodes_of_a_template_are_followed_back(engine: wukongs.Engine) -> None:
    view = register(engine, "CONSTRUCT { ?x :to [ :is ?y ] } WHERE { ?x :p ?y }")
    for row in view.content():
        [part] = view.why(row).parts
        assert any(str(term) in part.triple[0] or str(term) in part.triple[2] for term in row)


def test_a_row_of_an_argument(engine: wukongs.Engine) -> None:
    bindings = [{"x": "<http://ex/b>"}, {"x": "<http://ex/a>"}]
    view = register(engine, "SELECT ?y WHERE { ?x :p ?y }", bindings=bindings)
    assert triples(view.why({"argument": 1, "y": "<http://ex/b>"})) == {("<a>", "<p>", "<b>")}
    assert all(len(view.why(row).parts) == 1 for row in view.content())
    with pytest.raises(wukongs.DataError, match=r"has no row with \?argument = \"1\".*, \?y = <http://ex/c>"):
        view.why({"argument": 1, "y": "<http://ex/c>"})
    view.unbind([1])
    engine.settle(30)
    with pytest.raises(wukongs.DataError, match="has no row with"):
        view.why({"argument": 1})
    with pytest.raises(wukongs.SettingsError, match="expected the number of an argument"):
        view.why({"y": "<http://ex/b>"})


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"x": "<http://ex/none>"}, r"view v has no row with \?x = <http://ex/none> at SN 1"),
        ({"x": "<http://ex/b>", "n": 4}, "has no row with"),
        ({"x": None}, r"has no row with \?x = unbound"),
        ({"w": "<http://ex/a>"}, "view v has no column 'w', but x, n"),
        (("<http://ex/a>",), "has the columns x, n, found"),
        ("ab", "has the columns x, n, found"),
        ({"x": "no term"}, r"\?x: expected a term"),
    ],
)
def test_what_is_no_row_of_the_content_is_refused_by_name(engine: wukongs.Engine, row: Any, error: str) -> None:
    view = register(engine, "SELECT ?x ?n WHERE { ?x :p ?y . ?y :n ?n } ORDER BY ?n LIMIT 1")
    assert view.why({"n": 3}).parts
    with pytest.raises(wukongs.WukongsError, match=error):
        view.why(row)
    view.pause()
    with pytest.raises(wukongs.StreamError, match="is paused"):
        view.why({"n": 3})


def ask_again(engine: wukongs.Engine, seed: int) -> int:
    """Ask the texts of random views over the triples alone that a row of theirs rests on; return how many rows."""
    rng, asked = random.Random(f"why {seed}"), 0
    graphs = {graph: set(random_triples(rng, 12)) for graph in GRAPHS}
    engine.update("INSERT DATA { " + " ".join(quads_text(graph, sorted(held)) for graph, held in graphs.items()) + " }")
    views = list[tuple[str, Any]]()
    while len(views) < 8:
        text = QueryMaker(rng).query()
        if NOT_FOLLOWED.search(text):
            continue
        try:
            views.append((text, engine.register(f"REGISTER QUERY v{seed}x{len(views)} AS {text}")))
        except wukongs.QuerySyntaxError:
            continue
    for _ in range(3):
        engine.update(random_update(rng, graphs))
    engine.settle(30)
    for text, view in views:
        rows = [*view.content().texts()]
        for row in rng.sample(rows, min(len(rows), ROWS_PER_VIEW)):
            support = view.why(row)
            assert not support.is_partial, (seed, text)
            if support.more:
                continue
            with wukongs.Engine() as other:
                for part in leaves(support.parts):
                    graph = f"<{part.graph}>" if part.graph else ""
                    other.update(f"INSERT DATA {{ {quads_text(graph, [part.triple])} }}")
                view_of_them: Any = other.register(f"REGISTER QUERY v AS {text}")
                assert row in view_of_them.content().texts(), f"seed {seed}: {text}\n{row}\n{support}"
            asked += 1
        view.close()
    return asked


def test_the_triples_of_a_row_are_enough_for_it(engine: wukongs.Engine) -> None:
    assert sum(ask_again(engine, seed) for seed in range(2)) > 12


@pytest.mark.slow
def test_the_triples_of_many_rows_are_enough_for_them(engine: wukongs.Engine) -> None:
    for seed in range(100, 125):
        ask_again(engine, seed)
