"""Random DELETE and INSERT over random patterns, against pyoxigraph's: all quads must be the same afterwards.

Only patterns on which both agree as a query are taken, so that known classes of disagreement do not come in again; what
the other operations of SPARQL Update do is tested in tests/differential/test_update_requests.py.
"""

from __future__ import annotations

import random

import pyoxigraph

import wukongs
from tests.fuzzing import answers
from tests.fuzzing.graphs import EDGES, GRAPHS, NODES, OBJECTS, Data
from tests.fuzzing.judge import EVERYTHING, Open, Tally, World
from tests.fuzzing.patterns import VARIABLES, PatternMaker
from tests.fuzzing.queries import PREFIXES
from tests.fuzzing.trees import Tree, tree
from tests.oracles.values import Undefined


def random_update(rng: random.Random, data: Data) -> tuple[Tree, Tree]:
    """Make an update, and the query that asks its pattern."""
    maker = PatternMaker(rng, data, budget=4)
    group = maker.group(1)
    seen = [*dict.fromkeys(maker.bound), VARIABLES[0]]
    parts: list[str | Tree] = []
    kind = rng.choice(("DELETE", "INSERT", "BOTH"))
    if kind != "INSERT":
        parts += [tree("more", "DELETE", "DELETE {", _template(rng, seen, False), "}")]
    if kind != "DELETE":
        parts += [tree("more", "INSERT", "INSERT {", _template(rng, seen, True), "}")]
    return tree("update", "UPDATE", *parts, "WHERE", group), tree("query", "SELECT", "SELECT * WHERE", group)


def _template(rng: random.Random, seen: list[str], blank: bool) -> list[Tree]:
    quads = []
    for _ in range(rng.randint(1, 3)):
        ends = [rng.choice((*seen * 2, *NODES, *(["_:t"] if blank else []))) for _ in range(2)]
        triple = f"{ends[0]} {rng.choice((*EDGES, *OBJECTS, rng.choice(seen)))} {ends[1]} ."
        name = rng.choice((None, None, *GRAPHS, rng.choice(seen)))
        quads.append(tree("more", "", triple if name is None else f"GRAPH {name} {{ {triple} }}"))
    return quads


def disagreement(data: Data, rng: random.Random, tally: Tally) -> tuple[Tree, Open] | None:
    """Try one update."""
    world = World(data)
    try:
        update, query = random_update(rng, data)
        before = Tally()
        if world.judge(query, before) is not None or not before.verdicts["agreed"]:
            return None
        tally.verdicts["updates"] += 1
        text = PREFIXES + str(update)
        try:
            world.engine.update(text)
        except wukongs.WukongsError as error:
            return update, Open(f"the update fails: {type(error).__name__}: {error}")
        world.store.update(text)
        quads = [(g or "", *rest) for g, *rest in world.engine.query(EVERYTHING).texts()]
        ours = [tuple(answers.cell_of_text(part) if part else answers.UNBOUND for part in quad) for quad in quads]
        theirs = [_cells(quad) for quad in world.store]
        if answers.same(ours, theirs):
            return None
        return update, Open(f"an update\nengine {answers.shown(ours)}\npyoxigraph {answers.shown(theirs)}")
    except Undefined:  # more blank nodes that look alike than renamings should be tried
        return None
    finally:
        world.close()


def _cells(quad: pyoxigraph.Quad) -> tuple[answers.Cell, ...]:
    parts = (quad.graph_name, quad.subject, quad.predicate, quad.object)
    return tuple(
        answers.UNBOUND if isinstance(part, pyoxigraph.DefaultGraph) else answers.cell_of_oxigraph(part)
        for part in parts
    )
