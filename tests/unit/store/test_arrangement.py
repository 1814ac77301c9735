"""Arrangement: newness is decided when an SN is sealed."""

from __future__ import annotations

import pytest

from store.arrangement import Arrangement
from tests.quads import columns, quads_of, spread
from wukongs.errors import CompactedError

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
