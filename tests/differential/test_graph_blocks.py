"""GRAPH ?g { ... }: its variable is joined after the group, whatever the group does with it."""

from __future__ import annotations

import io
import random
from collections import Counter

import pytest

import wukongs
from tests.oracles import graph_blocks
from tests.oracles.graph_blocks import VARIABLES, Dataset, NoOpinion

DATA: Dataset = {
    "": set(),
    "<g:1>": {("<g:1>", "<p:1>", "<x:1>"), ("<x:2>", "<p:2>", "<g:1>")},
    "<g:2>": {("<x:1>", "<p:1>", "<g:1>"), ("<g:2>", "<p:2>", "<x:2>")},
    "<g:3>": {("<x:2>", "<p:2>", "<x:2>")},
}
ONE, TWO = ("triple", "?g", "<p:1>", "?a"), ("triple", "?b", "<p:2>", "?g")


def assert_same(pattern: graph_blocks.Pattern, dataset: Dataset) -> None:
    rows = graph_blocks.solutions(pattern, dataset)
    text = f"SELECT {' '.join(VARIABLES)} {{ {graph_blocks.render(pattern)} }}"
    quads = "".join(f"{s} {p} {o} {name} .\n" for name, triples in dataset.items() for s, p, o in triples)
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(quads.encode()), format="nq")
        try:
            found = Counter(map(tuple, engine.query(text).texts()))
        except wukongs.QuerySyntaxError:
            return
    assert found == Counter(tuple(row.get(name) for name in VARIABLES) for row in rows), (text, quads)


@pytest.mark.slow
@pytest.mark.parametrize(
    "inner",
    [
        (("optional", (ONE,)),),
        (("optional", (("group", (ONE,)),)), TWO),
        (("triple", "?b", "<p:2>", "?a"), ("optional", (ONE,))),
        (ONE, ("optional", (TWO,))),
        (("optional", (("optional", (ONE,)), TWO)),),
        (("union", (("optional", (ONE,)),), (TWO,)),),
        (("triple", "?b", "<p:2>", "?a"), ("filter", "BOUND", "?g", "?g")),
        (("triple", "?b", "<p:2>", "?a"), ("optional", (ONE, ("filter", "!=", "?b", "?g")))),
        (("optional", (TWO,)), ("bind", "?g", "?a")),
        (TWO, ("minus", (ONE,))),
        (("triple", "?b", "<p:2>", "?a"), ("minus", (ONE,))),
        (("triple", "?b", "<p:2>", "?a"), ("exists", "NOT ", (ONE,))),
        (("select", "", ("?g",), (TWO,)),),
        (("optional", (("select", "", ("?g",), (ONE,)),)),),
        (("select", "", ("?b",), (TWO,)), ("optional", (ONE,))),
        (("path", "?g", "?a"),),
        (("path", "<g:2>", "?g"),),
        (("graph", "?g", (("optional", (ONE,)),)),),
        (("optional", (("graph", "?g", (TWO,)),)),),
        (("optional", (("values", "?g", ("<g:1>", "<x:1>")),)),),
    ],
    ids=graph_blocks.render,
)
def test_the_variable_of_a_block_is_joined_after_it(inner: graph_blocks.Pattern) -> None:
    assert_same((("graph", "?g", inner),), DATA)
    assert_same((("triple", "?g", "<p:1>", "?b"), ("graph", "?g", inner)), {**DATA, "": DATA["<g:1>"]})


@pytest.mark.parametrize("seed", range(8))
def test_random_blocks(seed: int) -> None:
    for number in range(100):
        rng = random.Random(f"{seed} {number}")
        pattern, dataset = graph_blocks.random_pattern(rng), graph_blocks.random_dataset(rng)
        try:
            assert_same(pattern, dataset)
        except NoOpinion:
            continue
