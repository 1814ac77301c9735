"""BIND inside of groups that are joined, optional, united or subtracted, against pyoxigraph and the definitions: such a
group is explored from the rows around it wherever that gives the same answer."""

from __future__ import annotations

import io
import random

import pytest

import wukongs
from tests.fuzz import SEED, TIER, scaled
from tests.fuzzing.judge import Tally, World
from tests.fuzzing.trees import tree

VARIABLES = ("?x", "?y", "?z", "?d", "?e")
NODES = tuple(f"<http://e/n{n}>" for n in range(5))
PREDICATES = ("<http://e/p>", "<http://e/q>", "<http://e/v>")
WORLDS = 2 if TIER == "fast" else scaled(12)
QUERIES = 60 if TIER == "fast" else 150


class Groups:
    """Random groups; budget: how many more elements there may be; with_subqueries: among them."""

    def __init__(self, rng: random.Random, with_subqueries: bool = True) -> None:
        self.rng = rng
        self.budget = 9
        self.others = ("subquery",) if with_subqueries else ()

    def group(self, depth: int, first: str = "") -> str:
        """Make the inside of braces. BIND takes variables that the group has not mentioned so far."""
        rng, seen = self.rng, set[str]()
        parts = [first] if first else []
        for _ in range(rng.randint(1, 4)):
            self.budget -= 1
            kinds = ("triple", "triple", "bind", "bind", "filter", "union", "group", "optional", "minus")
            kind = rng.choice((*kinds, *self.others))
            if kind == "bind":
                free = [variable for variable in VARIABLES if variable not in seen and variable not in first]
                if free:
                    target = rng.choice(free)
                    parts.append(f"BIND({self.expression()} AS {target})")
                    seen.add(target)
            elif kind == "filter":
                parts.append(f"FILTER({self.expression()} {rng.choice(('=', '!=', '<'))} {self.expression()})")
            elif kind == "triple" or depth == 0 or self.budget < 0:
                ends = rng.choice(VARIABLES), rng.choice((*VARIABLES, *VARIABLES, rng.choice(NODES), "1"))
                parts.append(f"{ends[0]} {rng.choice(PREDICATES)} {ends[1]} .")
                seen.update(ends)
            else:
                inner = self.group(depth - 1)
                if kind == "subquery":
                    inner = self.subquery(inner)
                word = {"optional": "OPTIONAL ", "minus": "MINUS "}.get(kind, "")
                parts.append(f"{word}{{ {inner} }}")
                if kind == "union":
                    other = self.group(depth - 1)
                    parts[-1] += f" UNION {{ {other} }}"
                    inner += other
                if kind != "minus":
                    seen.update(variable for variable in VARIABLES if variable in inner)
        return " ".join(parts)

    def subquery(self, inner: str) -> str:
        rng = self.rng
        selected = rng.sample(VARIABLES, rng.randint(1, 3))
        free = [variable for variable in VARIABLES if variable not in inner and variable not in selected]
        if free and rng.random() < 0.4:
            selected.append(f"({self.expression()} AS {rng.choice(free)})")
        return f"SELECT {'DISTINCT ' * (rng.random() < 0.2)}{' '.join(selected)} {{ {inner} }}"

    def expression(self) -> str:
        rng, one = self.rng, self.rng.choice(VARIABLES)
        return rng.choice(
            (one, one, f"({one} + 1)", f"COALESCE({one}, 7)", f"IF(BOUND({one}), 1, {one})", "1", NODES[0])
        )


def random_world(rng: random.Random) -> World:
    triples = [(rng.choice(NODES), rng.choice(PREDICATES[:2]), rng.choice(NODES)) for _ in range(9)]
    numbers = [
        (node, PREDICATES[2], f'"{rng.randint(0, 2)}"^^<http://www.w3.org/2001/XMLSchema#integer>') for node in NODES
    ]
    return World({"": sorted({*triples, *numbers})})


@pytest.mark.parametrize("number", range(WORLDS))
def test_random_groups_with_bind(number: int) -> None:
    rng = random.Random(f"binds {'tests' if SEED is None else SEED}/{number}")
    world, tally = random_world(rng), Tally()
    try:
        for _ in range(QUERIES):
            values = rng.choice(
                ("", f"VALUES ?x {{ {NODES[0]} {NODES[1]} }}", "VALUES (?x ?d) { (UNDEF 1) (UNDEF 2) }")
            )
            text = f"SELECT * {{ {Groups(rng).group(2, values)} }}"
            found = world.judge(tree("query", "SELECT", text), tally, rng)
            assert found is None, f"{text}\n{world.quads}\n{found.reason}"
    finally:
        world.close()
    assert tally.queries == QUERIES
    assert tally.not_empty >= QUERIES // 4


@pytest.mark.parametrize(("asked", "rows"), [(":q 1", 5), (":q 2", 0)])
def test_bind_makes_what_a_subquery_beside_it_names_and_never_binds(asked: str, rows: int) -> None:
    """It is explored from the subquery on, which has the fewest matches."""
    lines = "".join(f"<http://e/n{n % 2}> <http://e/p> <http://e/n{n}> .\n" for n in range(9))
    lines += "<http://e/n0> <http://e/q> 1 .\n"
    where = (
        f"VALUES ?x {{ :n0 :n3 }} {{ SELECT ?x {{ {{ SELECT ?y {{ ?k {asked} }} }} {{ ?x :p ?d BIND(?x AS ?y) }} }} }}"
    )
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(lines.encode()), format="turtle")
        assert len(engine.query(f"PREFIX : <http://e/> SELECT * {{ {where} }}")) == rows


def test_a_subquery_that_shares_nothing_is_evaluated_once() -> None:
    """Explored from each of 2,000 rows it would be a product of four million, and then filtered."""
    lines = "".join(f"<http://e/n{n}> <http://e/p> {n} .\n" for n in range(2000))
    with wukongs.Engine(settings=wukongs.Settings(rows_max=10_000)) as engine:
        engine.load(io.BytesIO(lines.encode()), format="turtle")
        text = "SELECT * { ?x :p ?n { SELECT ?y { ?y :p ?m BIND(?m + 1 AS ?k) FILTER(?k = 7) } } }"
        assert len(engine.query(f"PREFIX : <http://e/> {text}")) == 2000


@pytest.mark.parametrize(
    "where",
    [
        "VALUES ?x { :n7 :n8 } { ?x :p ?y BIND(1 AS ?d) } UNION { ?y :p ?x BIND(2 AS ?d) }",
        "VALUES ?x { :n7 :n8 } { ?x :p ?y BIND(STR(?y) AS ?d) BIND(STRLEN(?d) AS ?e) FILTER(?e > 3) }",
        "VALUES ?x { :n7 :n8 } OPTIONAL { ?x :p ?y BIND(1 AS ?d) }",
        "VALUES ?x { :n7 :none } MINUS { ?x :p ?y BIND(1 AS ?d) }",
        ":n7 :p ?x { { ?x :p+ ?y BIND(?y AS ?far) } UNION { ?x :q ?y } }",
        "VALUES ?x { :n7 :n8 } { SELECT ?x ?d { ?x :p ?y BIND(STR(?y) AS ?d) } }",
        "VALUES ?x { :n7 :n8 } { SELECT ?x (STR(?y) AS ?d) { ?x :p ?y } }",
        "VALUES ?x { :n7 :n8 } OPTIONAL { SELECT ?x ?z { { SELECT ?x ?y { ?x :p ?y } } ?y :p ?z } }",
        "VALUES ?x { :n7 :none } MINUS { SELECT ?x { ?x :p ?y BIND(1 AS ?d) } }",
        "{ SELECT ?x { VALUES ?x { :n7 :n8 } } } { SELECT ?x ?d { ?x :p ?y BIND(1 AS ?d) } }",
        "VALUES ?x { :n7 :n8 } { SELECT ?x { ?x :p ?y BIND(1 AS ?d) } } UNION { SELECT ?x { ?x :p/:p ?y } }",
    ],
)
def test_a_group_with_bind_is_explored_from_the_rows(where: str) -> None:
    """On its own each group has 2,000 solutions, and the walks of the last one have millions."""
    lines = "".join(f"<http://e/n{n}> <http://e/p> <http://e/n{(n * 3 + 1) % 2000}> .\n" for n in range(2000))
    with wukongs.Engine(settings=wukongs.Settings(rows_max=1500)) as engine:
        engine.load(io.BytesIO(lines.encode()), format="nt")
        assert len(engine.query(f"PREFIX : <http://e/> SELECT * {{ {where} }}")) > 0
