"""What a query chooses among equal rows is a function of the data: LIMIT below an order, MIN, MAX and GROUP_CONCAT give
the same rows to one-shot queries, in memory and by files, and to live views, however the data was stored."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import wukongs
from tests.spilling import in_small_pieces

EX = "http://ex/"
VALUES = ("1", "01", '"1.0"^^<http://www.w3.org/2001/XMLSchema#decimal>', "2", '"a"', '"a"@en', "<http://ex/n1>")
QUERIES = (
    "SELECT ?x ?v { ?x ?p ?v } ORDER BY ?v LIMIT 3",
    "SELECT ?x { ?x ?p ?v } ORDER BY DESC(?v) LIMIT 4 OFFSET 2",
    "SELECT ?v { ?x ?p ?v } ORDER BY ?p OFFSET 5",
    "SELECT DISTINCT ?x { ?x ?p ?v } ORDER BY ?v LIMIT 2",
    "SELECT DISTINCT ?x ?v { ?x ?p ?v } ORDER BY ?p OFFSET 3",
    "SELECT DISTINCT (STR(?v) AS ?t) { ?x ?p ?v } ORDER BY ?p LIMIT 2",
    "SELECT (STR(?v) AS ?t) { ?x ?p ?v OPTIONAL { ?v ?q ?w } } ORDER BY ?w LIMIT 3",
    "SELECT ?x ?y { { SELECT ?x { ?x ?p ?v } ORDER BY ?v LIMIT 2 } ?x ?q ?y } ORDER BY ?q LIMIT 3",
    "SELECT ?x (GROUP_CONCAT(?v) AS ?t) (MIN(?v) AS ?least) (MAX(?v) AS ?most) { ?x ?p ?v } GROUP BY ?x",
    "SELECT (GROUP_CONCAT(DISTINCT ?v; SEPARATOR='|') AS ?t) (SAMPLE(?v) AS ?one) { ?x ?p ?v }",
    "SELECT ?p (COUNT(*) AS ?n) { ?x ?p ?v } GROUP BY ?p ORDER BY ?n LIMIT 1",
)


def triples(rng: random.Random) -> list[str]:
    nodes = [f"<{EX}n{at}>" for at in range(5)]
    found = {f"{rng.choice(nodes)} <{EX}p{rng.randrange(3)}> {rng.choice(VALUES)} ." for _ in range(40)}
    return sorted(found)


def rows(result: Any) -> Counter[tuple[str | None, ...]]:
    return Counter(map(tuple, result.texts()))


@pytest.mark.parametrize("text", QUERIES)
def test_equal_rows_are_chosen_by_the_data_alone(text: str) -> None:
    for seed in range(3):
        rng = random.Random(seed)
        data, found = triples(rng), list[Counter[tuple[str | None, ...]]]()
        for size in (len(data), 7, 1):
            rng.shuffle(data)
            with wukongs.Engine() as engine:
                view: Any = engine.register(f"REGISTER QUERY v AS {text}", keep=True)
                for at in range(0, len(data), size):
                    engine.update(f"INSERT DATA {{ {' '.join(data[at : at + size])} }}")
                engine.settle(30)
                found += [rows(engine.query(text)), rows(view.content())]
                with in_small_pieces(rng.randint(1, 4), rng.choice((1, 2000))):
                    found.append(rows(engine.query(text)))
        assert all(one == found[0] for one in found), f"seed {seed}"
        assert found[0]


def test_a_page_follows_the_page_before() -> None:
    with wukongs.Engine() as engine:
        engine.update(f"INSERT DATA {{ {' '.join(triples(random.Random(7)))} }}")
        whole = engine.query("SELECT ?x ?p ?v { ?x ?p ?v } ORDER BY ?p LIMIT 1000").texts()
        pages = [
            row
            for at in range(0, len(whole), 3)
            for row in engine.query(f"SELECT ?x ?p ?v {{ ?x ?p ?v }} ORDER BY ?p LIMIT 3 OFFSET {at}").texts()
        ]
        assert pages == whole
