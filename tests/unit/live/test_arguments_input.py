"""The rows of terms that a windowed query is asked for: numbers, versions, references."""

from __future__ import annotations

import random

import numpy as np

import wukongs
from tests.inside import core_of
from wukongs.csparql.parser import parse_query
from wukongs.csparql.terms import Term, Variable
from wukongs.live.arguments_input import ArgumentsInput
from wukongs.store.term_ids import decimal_parts

QUERY = "SELECT ?o WHERE { ?a <http://e/p> ?b . ?b <http://e/q> ?o }"


def test_what_is_bound_and_unbound() -> None:
    """Against a dictionary. A number is not used again, and a reference is given back with its row."""
    rng = random.Random(5)
    with wukongs.Engine() as engine:
        core = core_of(engine)
        before = engine.stats()["terms"]
        held: dict[int, tuple[str, str]] = {}
        names = [f"<http://e/{n}>" for n in range(12)]
        first, _ = core.registry.reserve(["<http://e/0>"])
        shared = {Variable("a"): (Term("<http://e/0>"), int(first[0]))}
        arguments = ArgumentsInput(core, parse_query(QUERY), [Variable("a"), Variable("b")], shared)
        numbers = 0
        for _ in range(300):
            version = arguments.version
            if held and rng.random() < 0.48:
                number = rng.choice([*held])
                del held[number]
                arguments.unbind(number)
            else:
                row = (names[0] if rng.random() < 0.9 else rng.choice(names), rng.choice(names))
                ids, taken = core.registry.reserve(row)
                assert arguments.bind(ids[None], np.isin(ids, taken)[None]) == numbers
                held[numbers] = row
                numbers += 1
            assert arguments.version > version
            assert arguments.count == len(held)
            rows = arguments.rows
            if held:
                assert decimal_parts(rows._ids)[0].tolist() == [*held]
                is_shared = {a for a, _ in held.values()} == {names[0]}
                assert len(rows.bound.hidden) == (1 if is_shared else 2)
        arguments.close()
        core.registry.release(first)
        assert engine.stats()["terms"] == before
