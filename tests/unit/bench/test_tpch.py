"""The 22 queries of TPC-H as live views: the sum of their reports beside SQL, while rows are inserted, deleted, and
inserted again."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import wukongs
from tests.tpch_rows import Asked, random_tables, rounded
from wukongs.bench.views.tpch.answers import Content, register
from wukongs.bench.views.tpch.tables import NUMBERS, Tables, texts, triples

SCALE = 0.001


def _check(seed: int, numbers: range, steps: int, orders: int) -> set[int]:
    """Insert nearly all rows, then change random ones; compare all views at first and after each step. Returns the
    queries whose answer has changed."""
    rng, tables = random.Random(seed), random_tables(seed, orders)
    places = [(name, place) for name, table in tables.items() for place in range(len(table))]
    live = {name: np.zeros(len(table), np.bool_) for name, table in tables.items()}
    asked = {number: texts(number, SCALE) for number in numbers}
    seen = {number: set[frozenset[object]]() for number in numbers}
    with wukongs.Engine() as engine:
        views = {number: Content(register(engine, number, text)) for number, (text, _) in asked.items()}
        for step in range(steps):
            count = (0, len(places))[step] if step < 2 else rng.choice((1, 2, 7, 40))
            drawn = rng.sample(places, min(count, len(places)))
            inserts = {(name, place) for name, place in drawn if not live[name][place] and rng.random() < 0.9}
            chosen = inserts | {(name, place) for name, place in drawn if live[name][place] and rng.random() < 0.3}
            engine.apply(_triples(tables, inserts), _triples(tables, chosen - inserts))
            for name, place in chosen:
                live[name][place] = not live[name][place]
            engine.settle(60)
            sqlite = Asked({name: table.filter(pa.array(live[name])) for name, table in tables.items()})
            for number, (_, sql) in asked.items():
                views[number].add(views[number].take())
                expected = sqlite.rows(sql)
                assert rounded(views[number].rows().elements()) == expected, (seed, step, number)
                seen[number].add(frozenset(expected.items()))
    return {number for number, answers in seen.items() if len(answers) > 1}


def _triples(tables: Tables, rows: set[tuple[str, int]]) -> pa.Table | None:
    found = [
        triples(name, table.take(places))
        for name, table in tables.items()
        if (places := sorted(place for one, place in rows if one == name))
    ]
    if not found:
        return None
    return pa.table([pa.concat_arrays(one) for one in zip(*found, strict=True)], ["subject", "predicate", "object"])


def test_views_follow_changed_rows() -> None:
    assert len(_check(2, NUMBERS, 3, 30)) > 12


@pytest.mark.slow
def test_views_follow_many_changed_rows() -> None:
    changed = set[int]().union(*(_check(seed, NUMBERS, 31, 60) for seed in range(4)))
    assert changed == set(NUMBERS)
