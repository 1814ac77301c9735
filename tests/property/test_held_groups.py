"""Groups that are kept from firing to firing are those of all rows that there are, grouped anew."""

from __future__ import annotations

import random

import numpy as np
import pytest

import wukongs
from tests.fuzz import SEED, scaled
from wukongs.csparql.algebra import Aggregate
from wukongs.csparql.terms import Variable
from wukongs.live.reading import terms_of
from wukongs.query.binding_table import BindingTable
from wukongs.query.operators.aggregates import group
from wukongs.query.operators.held_groups import HeldGroups
from wukongs.query.plans.deltas import Moves
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import UNBOUND, Int64Array

XSD = "http://www.w3.org/2001/XMLSchema#"
EXACT = [
    *[f'"{number}"^^<{XSD}integer>' for number in (-70, -3, 0, 1, 2, 3, 99999)],
    *[f'"{number}"^^<{XSD}decimal>' for number in ("0.1", "1.0", "2.0", "-7.25", "0.00001")],
]
OTHERS = [
    "<http://e/n>",
    '"a"',
    '"a text that no id can hold"',
    f'"true"^^<{XSD}boolean>',
    f'"2020-01-01"^^<{XSD}date>',
]
DOUBLES = [f'"{number}"^^<{XSD}double>' for number in ("1.0E0", "-2.5E3", "1.0E-1")]
KEYS = [f"<http://e/k{number}>" for number in range(4)]
NAMES = (Variable("j"), Variable("k"), Variable("v"), Variable("w"))
MADE = [
    Aggregate("COUNT", None),
    *[Aggregate(name, Variable(v)) for name in ("COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE") for v in ("v", "w")],
    *[Aggregate(name, Variable("v"), distinct=True) for name in ("COUNT", "MIN", "MAX", "SAMPLE")],
]


def life(rng: random.Random, terms: QueryTerms) -> int:
    """Let rows come and go; return how often their groups were compared."""
    values = rng.choice([EXACT, EXACT[:7], [*EXACT, *OTHERS], OTHERS, [*DOUBLES, *OTHERS], [*EXACT, *DOUBLES]])
    made = rng.sample(MADE, rng.randint(1, 5))
    keys = rng.choice([[], [0], [0, 1]])
    named = [(Variable(f"x{number}"), aggregate) for number, aggregate in enumerate(made)]
    columns = [None if not isinstance(one.argument, Variable) else NAMES.index(one.argument) for one in made]
    groups = HeldGroups(keys, made, columns)
    rows: Int64Array = np.empty((0, 4), np.int64)
    for number in range(12):
        texts = [rng.choice(one) for _ in range(rng.choice([0, 1, 5, 40])) for one in (KEYS, KEYS, values, values)]
        came = terms.ids(texts).reshape(-1, 4)
        came[:, 3] = np.where(np.array([rng.random() < 0.1 for _ in came], np.bool_), UNBOUND, came[:, 3])
        goes = np.array([rng.random() < rng.choice([0.1, 0.5, 0.99]) for _ in rows], np.bool_)
        moves = Moves(came, rows[goes], is_anew=False)
        rows = np.concatenate((rows[~goes], came))
        if rng.random() < 0.1:
            moves = Moves(rows, rows[:0], is_anew=True)
        if not groups.move(moves, terms):
            assert values[-1] in DOUBLES or DOUBLES[0] in values, (values, made)
            return number
        table = BindingTable(NAMES, tuple(np.ascontiguousarray(rows.T)), len(rows))
        expected = group(table, [NAMES[key] for key in keys], named, terms)
        if not groups.count and not keys:
            assert not len(rows)
            continue
        found = groups.columns(terms)
        assert sorted(zip(*found, strict=True)) == sorted(zip(*expected.columns, strict=True)), (made, keys)
        assert groups.size_bytes >= 0
    return 12


@pytest.mark.nojit
def test_groups_are_those_of_the_rows() -> None:
    with wukongs.Engine() as engine:
        core = engine._core
        compared = 0
        for number in range(scaled(60)):
            rng = random.Random(((SEED or 0) << 16) + number)
            terms = terms_of(core, core.registry.snapshot_reader())
            compared += life(rng, terms)
        assert compared > 100


@pytest.mark.nojit
def test_sums_are_exact_beyond_the_digits_of_a_call() -> None:
    """Each call has few digits; all of them together have more than Python's decimals by default."""
    calls = [["3", "4"], ["40000000000000001"], ["0.0000000000001"], ["1"], ["0.0000000000002", "5"]]
    named = [(Variable(name), Aggregate(name, Variable("v"))) for name in ("SUM", "AVG")]
    groups = HeldGroups([0], [one for _, one in named], [1, 1])
    with wukongs.Engine() as engine:
        core = engine._core
        terms = terms_of(core, core.registry.snapshot_reader())
        rows: Int64Array = np.empty((0, 2), np.int64)
        for numbers in calls:
            texts = [f'"{one}"^^<{XSD}{"decimal" if "." in one else "integer"}>' for one in numbers]
            came = terms.ids([text for one in texts for text in (KEYS[0], one)]).reshape(-1, 2)
            rows = np.concatenate((rows, came))
            assert groups.move(Moves(came, rows[:0], is_anew=False), terms)
            table = BindingTable((Variable("k"), Variable("v")), tuple(np.ascontiguousarray(rows.T)), len(rows))
            expected = group(table, [Variable("k")], named, terms)
            assert [terms.texts(one) for one in groups.columns(terms)] == [terms.texts(one) for one in expected.columns]
