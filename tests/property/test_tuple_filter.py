"""TupleFilter: no tuple that was added is ever forgotten, whatever it grows through; it is small and seldom wrong."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.quads import Quad, batch_of, columns, plain, spread
from wukongs.store import tuple_filter
from wukongs.store.batch import Batch
from wukongs.store.bloom_kernels import add_batch, meet_tuples
from wukongs.store.merge import merge_batches
from wukongs.store.tuple_filter import FUEL_PER_TUPLE, TupleFilter

STEPS = st.lists(st.tuples(st.sampled_from(["meet", "learn", "merge"]), st.integers(0, 60)), max_size=25)


def make_quads(start: int, count: int) -> list[Quad]:
    return [(spread(n % 2), spread(n // 4), spread(n % 3), spread(n % 7, n % 2)) for n in range(start, start + count)]


def order(quads: list[Quad]) -> tuple[np.ndarray, ...]:
    """The columns as the filter takes them: graphs, predicates, subjects, objects."""
    graphs, subjects, predicates, objects = columns(quads)
    return graphs, predicates, subjects, objects


def holds_all(lines: np.ndarray, quads: list[Quad]) -> bool:
    with np.errstate(over="ignore"):
        return bool(meet_tuples(lines.copy(), *order(quads)).all())


def check_steps(steps: list[tuple[str, int]], seed: int) -> None:
    """Meet tuples (seal them as a batch), learn foreign ones, merge: all that ever came is known after each step."""
    rng = random.Random(seed)
    found, held, known = TupleFilter(), list[Batch](), list[Quad]()
    for step, count in steps:
        if step == "merge":
            if len(held) > 1:
                at = rng.randrange(len(held) - 1)
                held[at : at + 2] = [merge_batches(held[at], held[at + 1])]
            continue
        fresh = make_quads(len(known), count)
        if step == "meet":
            again = rng.sample(known, min(len(known), 5))
            met = found.meet(tuple(held), *order([*again, *fresh, *fresh]))
            assert met[: len(again)].all(), "what is stored was said to be new"
            assert met[len(again) + count :].all(), "a repeat within the call"
        held.append(batch_of(fresh))
        if step == "learn":
            found.learn(tuple(held))
        known += fresh
        assert holds_all(found._lines, known)


@given(STEPS, st.integers(0, 2**32))
@fuzzed(60)
def test_nothing_is_forgotten(steps: list[tuple[str, int]], seed: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tuple_filter, "FIRST_TUPLES", 1)
        check_steps(steps, seed)


@pytest.mark.nojit
def test_nothing_is_forgotten_on_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuple_filter, "FIRST_TUPLES", 1)
    check_steps([("meet", 30), ("learn", 20), ("meet", 40), ("merge", 0), ("meet", 25), ("meet", 3)], 1)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 80))
@fuzzed(40)
def test_a_batch_is_added_in_steps_of_any_fuel(fuels: list[int], count: int) -> None:
    check_fuel(fuels, count)


@pytest.mark.nojit
def test_a_small_batch_is_added_in_steps() -> None:
    check_fuel([1, 3], 25)


def check_fuel(fuels: list[int], count: int) -> None:
    """In steps as at once as tuple by tuple: the same bits; compiled or not."""
    quads = make_quads(0, count)
    batch = batch_of(quads)
    stepwise, at_once, by_tuple, unjitted = (np.zeros(32, np.uint64) for _ in range(4))
    place, step = np.zeros(3, np.int64), 0
    with np.errstate(over="ignore"):
        while place[2] < len(batch):
            before = place[2]
            left = add_batch(stepwise, batch.descriptor, place, fuels[step % len(fuels)])
            assert left == fuels[step % len(fuels)] - (place[2] - before)
            assert place[2] > before
            step += 1
        add_batch(at_once, batch.descriptor, np.zeros(3, np.int64), 10**6)
        meet_tuples(by_tuple, *order(quads))
        plain(meet_tuples)(unjitted, *order(quads))
    assert stepwise.tolist() == at_once.tolist() == by_tuple.tolist() == unjitted.tolist()


def test_it_stays_small_and_seldom_wrong_while_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 to 1.5 bytes a triple but while growing, few strangers taken for known, and growing costs each call little."""
    steps: list[int] = []
    real = add_batch

    def counted(lines: np.ndarray, descriptor: np.ndarray, place: np.ndarray, fuel: int) -> int:
        left = int(real(lines, descriptor, place, fuel))
        steps[-1] += fuel - left
        return left

    monkeypatch.setattr(tuple_filter, "add_batch", counted)
    monkeypatch.setattr(tuple_filter, "FIRST_TUPLES", 1)
    found, held, size, total = TupleFilter(), list[Batch](), 500, 0
    strangers = 0
    growing = 0
    for number in range(120):
        quads = [(spread(1), spread(total + n), spread(2), spread(3 * (total + n))) for n in range(size)]
        steps.append(0)
        strangers += int(found.meet(tuple(held), *order(quads)).sum())
        assert steps[-1] <= FUEL_PER_TUPLE * size
        held.append(batch_of(quads))
        total += size
        if found._next is None:
            assert total <= found.size_bytes <= 1.5 * total + 64, number
        else:
            growing += 1
            assert found.size_bytes <= 3.2 * total
    assert strangers < 0.03 * total
    assert 0 < growing < 80

    # After a restart: one that has everything to learn, for as little a call.
    again = TupleFilter()
    again.learn(tuple(held))
    learning = 0
    while again._next is not None:
        steps.append(0)
        again.meet(tuple(held), *order(quads))
        assert steps[-1] <= FUEL_PER_TUPLE * size
        learning += size
    assert learning <= total / FUEL_PER_TUPLE + 2 * size
    assert not again.meet(tuple(held), *order([(spread(1), spread(total), spread(2), spread(5))])).any()
