"""Which tuples a read holds, against plain sets: with and without fences and key filters, under many tombstones."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.fuzz import SEED, scaled
from tests.quads import Quad, columns, spread
from wukongs.store import batch as batch_module
from wukongs.store import held_kernels
from wukongs.store import trace as trace_module
from wukongs.store.arrangement import Arrangement
from wukongs.store.dtypes import NO_MATCH
from wukongs.store.quads import is_held
from wukongs.store.trace import Trace

ENDS = [0, 1, 2**63 - 3]
"""Ids at the ends of fences."""


def random_quads(rng: random.Random, vertices: list[int], count: int) -> list[Quad]:
    """Some vertices have many edges, most have few."""
    found = []
    for _ in range(count):
        subject = vertices[int(len(vertices) * rng.random() ** 3)]
        graph, predicate = spread(-rng.randint(1, 2)), spread(-rng.randint(3, 5))
        found.append((graph, subject, predicate, rng.choice(vertices)))
    return found


@pytest.mark.parametrize("filtered_max", [0, 200, 1 << 24], ids=["no filters", "some", "all filtered"])
def test_layers_of_additions_and_tombstones_hold_what_sets_hold(
    filtered_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_module, "FILTERED_TRIPLES_MAX", filtered_max)
    monkeypatch.setattr(trace_module, "FUEL_MIN", 64)
    for seed in range(scaled(20)):
        _live(random.Random(((SEED or 0) << 16) + seed))


def _live(rng: random.Random) -> None:
    vertices = [*ENDS, *(spread(number) for number in range(rng.choice([5, 100, 3000])))]
    arrangement, model = Arrangement("g"), set[Quad]()
    arrangement.trace = Trace("g", rng.choice([0, 1, 12]))
    for sn in range(rng.randint(3, 12)):
        come = random_quads(rng, vertices, rng.choice([1, 40, 1000]))
        gone = random_quads(rng, vertices, rng.choice([0, 3]))
        gone += rng.sample(sorted(model), min(len(model), rng.choice([1, 30, 500])))
        changed = arrangement.apply(sn, columns(gone), columns(come))
        left = (model - set(gone)) | set(come)
        assert changed.counts == (len(model - left), len(left - model))
        model = left
        if rng.random() < 0.3:
            arrangement.trace.work(rng.choice([10, 1000, 1 << 20]))
        asked = random_quads(rng, vertices, rng.choice([1, held_kernels.PROBES_AT_A_TIME + 1, 500]))
        asked += rng.sample(sorted(model), min(len(model), 200)) + gone
        asked += [(end, end, end, end) for end in (NO_MATCH, *ENDS)]
        rng.shuffle(asked)
        read = arrangement.trace.read(sn)
        expected = [quad in model for quad in asked]
        assert is_held(read, columns(asked)).tolist() == expected
        may_hold = arrangement.filter_reader()(columns(asked))
        assert (may_hold | ~np.array(expected)).all(), "what is held passes the filter"
        assert len(read) == len(arrangement.trace) == len(model)
