"""Arrangement: newness is decided when an SN is sealed."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from tests.quads import batch_of, columns, quads_of, spread
from wukongs.errors import CompactedError
from wukongs.store import quads as quads_module
from wukongs.store.arrangement import Arrangement
from wukongs.store.quads import without_held

ONE = (spread(9), spread(1), spread(2), spread(3))
OTHER = (spread(9), spread(1), spread(2), spread(4))


def test_repeats_inside_and_across_absorbs_count_once() -> None:
    arrangement = Arrangement("g")
    assert arrangement.absorb(1, *columns([ONE, ONE])) == 1
    assert arrangement.absorb(2, *columns([ONE, OTHER, OTHER])) == 1
    assert arrangement.absorb(3, *columns([ONE, OTHER])) == 0
    assert arrangement.absorb(4, *columns([])) == 0
    assert len(arrangement) == 2
    assert arrangement.trace.upper == 5


def test_the_same_triple_in_another_graph_is_new() -> None:
    arrangement = Arrangement("g")
    arrangement.absorb(1, *columns([ONE]))
    assert arrangement.absorb(2, *columns([(spread(8), *ONE[1:])])) == 1


def test_new_triples_are_hardly_ever_looked_up_in_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuple that the filter does not know is new without a look into any batch; one that it knows is looked up."""
    looked_up = []
    real = quads_module.mark_held

    def counted(descriptors: Any, graphs: Any, *columns: Any) -> Any:
        looked_up.append(len(graphs))
        return real(descriptors, graphs, *columns)

    monkeypatch.setattr(quads_module, "mark_held", counted)
    arrangement = Arrangement("g")
    for sn in range(1, 41):
        quads = [(spread(9), spread(n), spread(2), spread(n + 1)) for n in range(sn * 1000, sn * 1000 + 1000)]
        assert arrangement.absorb(sn, *columns(quads)) == 1000
    assert sum(looked_up) < 0.03 * 40_000
    looked_up.clear()
    assert arrangement.absorb(41, *columns(quads)) == 0
    assert looked_up == [1000]
    assert arrangement.filter_bytes <= 3 * len(arrangement)


def test_what_entered_the_trace_elsewhere_is_known() -> None:
    arrangement = Arrangement("g")
    many = [(spread(9), spread(n), spread(2), spread(n + 1)) for n in range(100, 40_000)]
    arrangement.trace.seal(2, batch_of(many))
    arrangement.trace.seal(3, batch_of([ONE]))
    assert arrangement.absorb(4, *columns([ONE, OTHER, *many[:9]])) == 1
    assert arrangement.filter_bytes <= 1.6 * len(arrangement)


def test_an_old_handle_does_not_see_what_is_absorbed_later() -> None:
    arrangement = Arrangement("g")
    arrangement.absorb(1, *columns([ONE]))
    with arrangement.open(1, "reader") as handle:
        arrangement.absorb(2, *columns([OTHER]))
        arrangement.trace.merge_all()
        assert quads_of(*handle.read().batches) == [ONE]
    arrangement.trace.merge_all()
    with pytest.raises(CompactedError, match="'g' at SN 1: compacted up to SN 2"):
        arrangement.open(1, "reader")


def test_a_batch_built_beforehand_is_compared_with_what_came_since() -> None:
    arrangement = Arrangement("g")
    arrangement.absorb(1, *columns([ONE]))
    with arrangement.open(1, "load") as known:
        arrangement.absorb(2, *columns([OTHER]))
        third = (spread(9), spread(1), spread(2), spread(5))
        sealed = arrangement.absorb_batch(3, batch_of([OTHER, third]), known)
    assert quads_of(sealed) == [third]
    assert len(arrangement) == 3
    assert quads_of(arrangement.absorb_batch(4, batch_of([ONE, OTHER, third]))) == []
    assert arrangement.trace.upper == 5


@pytest.mark.parametrize("step", [1, 7, 64])
def test_a_batch_that_is_expected_in_steps_is_known_when_it_is_sealed(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The filter grows several times while it learns the batch and what others seal meanwhile."""
    monkeypatch.setattr("wukongs.store.tuple_filter.FIRST_TUPLES", 16)
    arrangement = Arrangement("g")
    quads = [(spread(9), spread(n), spread(2 + n % 3), spread(n)) for n in range(300)]
    batch, stored = batch_of(quads[::3]), set(quads[::3])
    with arrangement.open(0, "load") as known:
        sn = 1
        while not arrangement.expect(batch, step):
            others = quads[sn % 290 : sn % 290 + 10]
            arrangement.absorb(sn, *columns(others))
            stored |= set(others)
            sn += 1
        arrangement.absorb_batch(sn, batch, known)
    # One by one, those first that the filter learned first: it must not have lost them in growing.
    for quad in zip(*(column.tolist() for column in batch.triples()), strict=True):
        sn += 1
        assert arrangement.absorb(sn, *columns([quad])) == 0
    assert len(arrangement) == len(stored | set(quads[::3]))


def test_what_was_deleted_while_a_batch_was_built_comes_back_with_it() -> None:
    arrangement = Arrangement("g")
    arrangement.absorb(1, *columns([ONE]))
    with arrangement.open(1, "load") as known:
        whole = batch_of([ONE, OTHER])
        batch = without_held(whole, known.read())
        assert quads_of(batch) == [OTHER]
        arrangement.apply(2, columns([ONE]), columns([]))
        assert arrangement.expect(batch, 10)
        assert quads_of(arrangement.absorb_batch(3, batch, known, whole)) == sorted([ONE, OTHER])
    assert arrangement.absorb(4, *columns([ONE, OTHER])) == 0


def test_a_load_whose_handle_was_revoked_decides_newness_anew() -> None:
    """Without the handle merging may have forgotten what was deleted since the load began."""
    arrangement = Arrangement("g")
    arrangement.absorb(1, *columns([ONE]))
    known = arrangement.open(1, "load")
    whole = batch_of([ONE, OTHER])
    batch = without_held(whole, known.read())
    known.close()
    arrangement.apply(2, columns([ONE]), columns([]))
    arrangement.trace.merge_all()
    arrangement.absorb_batch(3, batch, known, whole)
    assert quads_of(*arrangement.trace.read(3).batches) == sorted([ONE, OTHER])


def test_a_load_that_is_given_up_is_let_go() -> None:
    arrangement = Arrangement("g")
    batch = batch_of([ONE, OTHER])
    assert arrangement.expect(batch, 10)
    arrangement.give_up(batch)
    gone = weakref.ref(batch)
    del batch
    gc.collect()
    assert gone() is None
    assert arrangement.absorb(1, *columns([ONE])) == 1


def test_what_came_since_is_looked_up_in_a_large_batch_not_the_other_way_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load is sealed with the engine's lock held."""
    looked_up = []
    real = quads_module.mark_held

    def counted(descriptors: Any, graphs: Any, *columns: Any) -> Any:
        looked_up.append(len(graphs))
        return real(descriptors, graphs, *columns)

    arrangement = Arrangement("g")
    arrangement.absorb(1, *columns([ONE]))
    large = batch_of((spread(9), spread(n), spread(2), spread(n + 1)) for n in range(100, 5000))
    with arrangement.open(1, "load") as known:
        arrangement.absorb(2, *columns([OTHER]))
        monkeypatch.setattr(quads_module, "mark_held", counted)
        assert arrangement.absorb_batch(3, large, known) is large
    assert looked_up == [1]
