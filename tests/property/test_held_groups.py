"""Groups that are kept from firing to firing are those of all rows that there are, grouped anew."""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np
import pytest

import wukongs
from tests.fuzz import SEED, scaled
from wukongs.csparql.algebra import Aggregate
from wukongs.csparql.terms import Variable
from wukongs.live.reading import terms_of
from wukongs.query.binding_table import BindingTable
from wukongs.query.operators import held_groups_kernels as kernels
from wukongs.query.operators.aggregates import group, mean_of
from wukongs.query.operators.held_groups import HeldGroups
from wukongs.query.plans.window_changes import Moves
from wukongs.query.terms import temporal
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.query.terms.values import Kind, computed, text_of
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.term_ids import integer_ids, is_inlined, text_ids

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
    *[Aggregate(name, Variable("v"), distinct=True) for name in ("COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE")],
    *[Aggregate(name, Variable("w"), distinct=True) for name in ("COUNT", "SUM", "AVG")],
    Aggregate("COUNT", None, distinct=True),
]


def columns_of(aggregate: Aggregate) -> tuple[int, ...]:
    if isinstance(aggregate.argument, Variable):
        return (NAMES.index(aggregate.argument),)
    return (0, 1, 2, 3) if aggregate.distinct else ()


def life(rng: random.Random, terms: QueryTerms) -> int:
    """Let rows come and go; return how often their groups were compared."""
    values = rng.choice([EXACT, EXACT[:7], [*EXACT, *OTHERS], OTHERS, [*DOUBLES, *OTHERS], [*EXACT, *DOUBLES]])
    made = rng.sample(MADE, rng.randint(1, 5))
    keys = rng.choice([[], [0], [0, 1]])
    named = [(Variable(f"x{number}"), aggregate) for number, aggregate in enumerate(made)]
    columns = [columns_of(one) for one in made]
    groups = HeldGroups(keys, made, columns)
    rows: Int64Array = np.empty((0, 4), np.int64)
    for number in range(12):
        texts = [rng.choice(one) for _ in range(rng.choice([0, 1, 5, 40])) for one in (KEYS, KEYS, values, values)]
        came = terms.ids(texts).reshape(-1, 4)
        came[:, 3] = np.where(np.array([rng.random() < 0.1 for _ in came], np.bool_), UNBOUND, came[:, 3])
        goes = np.array([rng.random() < rng.choice([0.1, 0.5, 0.99]) for _ in rows], np.bool_)
        moves = Moves(came, rows[goes], is_anew=number == 0, number=number)
        rows = np.concatenate((rows[~goes], came))
        if rng.random() < 0.1:
            moves = Moves(rows, rows[:0], is_anew=True, number=number)
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.nojit
def test_sums_are_exact_beyond_the_digits_of_a_call() -> None:
    """Each call has few digits; all of them together have more than Python's decimals by default."""
    calls = [["3", "4"], ["40000000000000001"], ["0.0000000000001"], ["1"], ["0.0000000000002", "5"]]
    named = [(Variable(name), Aggregate(name, Variable("v"))) for name in ("SUM", "AVG")]
    groups = HeldGroups([0], [one for _, one in named], [(1,), (1,)])
    with wukongs.Engine() as engine:
        core = engine._core
        terms = terms_of(core, core.registry.snapshot_reader())
        rows: Int64Array = np.empty((0, 2), np.int64)
        for at, numbers in enumerate(calls):
            texts = [f'"{one}"^^<{XSD}{"decimal" if "." in one else "integer"}>' for one in numbers]
            came = terms.ids([text for one in texts for text in (KEYS[0], one)]).reshape(-1, 2)
            rows = np.concatenate((rows, came))
            assert groups.move(Moves(came, rows[:0], is_anew=at == 0, number=at), terms)
            table = BindingTable((Variable("k"), Variable("v")), tuple(np.ascontiguousarray(rows.T)), len(rows))
            expected = group(table, [Variable("k")], named, terms)
            assert [terms.texts(one) for one in groups.columns(terms)] == [terms.texts(one) for one in expected.columns]


@pytest.mark.nojit
def test_what_is_kept_follows_what_is_there() -> None:
    """Many groups and terms come, go and come again: slots are used again, and room is given back."""
    named = [(Variable(f"x{number}"), one) for number, one in enumerate(MADE)]
    with wukongs.Engine() as engine:
        terms = terms_of(engine._core, engine._core.registry.snapshot_reader())
        for number in range(scaled(3)):
            rng = np.random.default_rng(((SEED or 0) << 16) + number)
            keys = [[], [0], [0, 1]][number % 3]
            groups = HeldGroups(keys, MADE, [columns_of(one) for one in MADE])
            rows: Int64Array = np.empty((0, 4), np.int64)
            pools = [integer_ids(np.arange(count)) for count in (90, 7, 60, 300)]
            sizes = []
            for at, wanted in enumerate((300, 4000, 4000, 30, 30, 0, 10, 700, 5, 5)):
                came = np.stack([rng.choice(pool, max(0, wanted - len(rows)) + 3) for pool in pools], axis=1)
                came[rng.random(len(came)) < 0.01, 3] = UNBOUND
                rows = rng.permutation(rows)
                goes = np.arange(len(rows)) < len(rows) + len(came) - wanted
                moves = Moves(came, rows[goes], is_anew=at == 0, number=at)
                rows = np.concatenate((rows[~goes], came))
                assert groups.move(moves, terms)
                sizes.append(groups.size_bytes)
                table = BindingTable(NAMES, tuple(np.ascontiguousarray(rows.T)), len(rows))
                expected = group(table, [NAMES[key] for key in keys], named, terms)
                found = groups.columns(terms)
                assert sorted(zip(*found, strict=True)) == sorted(zip(*expected.columns, strict=True)), keys
            assert sizes[-1] < max(sizes) / 4
            assert groups.count == (len(np.unique(rows[:, keys], axis=0)) if keys else 1)


@pytest.mark.nojit
def test_sums_and_means_have_the_ids_and_texts_of_decimals() -> None:
    """Kernels make them; Python's decimals are what they are compared with."""
    rng = random.Random(SEED or 0)
    for scale in range(23):
        totals = [rng.choice([1, -1]) * rng.randrange(10 ** rng.randint(0, 18)) for _ in range(scaled(40))]
        totals += [2**61, -(2**61), 10**18, 5**25, 3**38, 0]
        counts = [
            rng.choice([rng.randrange(1, 10**8), 2 ** rng.randrange(40), 5 ** rng.randrange(15), rng.randrange(1, 20)])
            for _ in totals
        ]
        exact = [computed(Kind.DECIMAL, temporal.EXACT.scaleb(Decimal(total), -scale)) for total in totals]
        means = [mean_of(total, count) for total, count in zip(exact, counts, strict=True)]
        slots, none = np.arange(len(totals)), np.zeros(len(totals), np.int64)
        held = np.array(totals), scale
        with np.errstate(over="ignore"):
            ids = [
                kernels.sum_ids(*held, none + 1, none, slots),
                kernels.mean_ids(*held, np.array(counts), none, slots),
            ]
        for found, values in zip(ids, (exact, means), strict=True):
            expected = text_ids([text_of(value).encode() for value in values if value is not None])
            assert (found == np.where(is_inlined(expected), expected, kernels.NOT_INLINED)).all()
        some = np.flatnonzero(held[0])
        texts = kernels.write_means(*held, np.array(counts), some).tobytes().decode().split()
        assert [f'"{text}"^^<{XSD}decimal>' for text in texts] == [text_of(means[at] or exact[0]) for at in some]
