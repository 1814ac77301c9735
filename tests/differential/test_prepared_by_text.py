"""Prepared queries against texts in which a term was written in the place of the variable, which pyoxigraph and the
definitions judge, too."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from tests.differential.test_binds import NODES, VARIABLES, Groups, random_world
from tests.fuzz import SEED, TIER, scaled
from tests.fuzzing.judge import Tally
from tests.fuzzing.trees import tree

ASKED = (*NODES, "<http://e/nowhere>")
WORLDS = 2 if TIER == "fast" else scaled(12)
QUERIES = 40


def written(body: str, variable: str, term: str) -> str | None:
    """Put a term in the place of a variable; None where no term can stand."""
    if re.search(rf"AS \{variable}\b", body):
        return None
    return body.replace(f"BOUND({variable})", "true").replace(variable, term)


@pytest.mark.parametrize("number", range(WORLDS))
def test_each_row_is_the_text_with_its_term(number: int) -> None:
    rng = random.Random(f"prepared by text {'tests' if SEED is None else SEED}/{number}")
    world, tally, compared = random_world(rng), Tally(), 0
    try:
        for _ in range(QUERIES):
            body = Groups(rng, with_subqueries=False).group(2)  # a term cannot stand in SELECT
            variable = rng.choice([variable for variable in VARIABLES if variable in body] or ["?none"])
            texts = {term: text for term in ASKED if (text := written(body, variable, term)) is not None}
            if variable == "?none" or not texts:
                continue
            prepared = world.engine.prepare(f"SELECT * {{ {body} }}")
            names = [name for name in prepared().vars if name != variable[1:]]
            found = prepared.many([{variable: term} for term in ASKED])
            rows = list(zip(found["argument"].to_pylist(), *(found[name].to_pylist() for name in names), strict=True))
            for place, term in enumerate(ASKED):
                query = tree(
                    "query", "SELECT", f"SELECT {' '.join(f'?{name}' for name in names) or '*'} {{ {texts[term]} }}"
                )
                opened = world.judge(query, tally, rng)
                assert opened is None, f"{query}\n{world.quads}\n{opened.reason}"
                expected = Counter(world.engine.query(str(query)).texts())
                one = prepared({variable: term})
                places = [one.vars.index(name) for name in names]
                assert Counter(tuple(row[at] for at in places) for row in one.texts()) == expected, (query, term)
                assert Counter(row[1:] for row in rows if row[0] == place) == expected, (query, term)
                compared += bool(expected)
    finally:
        world.close()
    assert compared > QUERIES // 4
