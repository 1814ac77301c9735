"""Updates of the stored graph: what counts as deleted and inserted, and what merging leaves of it."""

from __future__ import annotations

import gc
import random
import weakref
from dataclasses import replace
from math import log2
from unittest.mock import create_autospec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.quads import Quad, assert_same_batch, batch_of, columns, quads_of, spread, unlisted_up_to
from wukongs.bench.store.named_graphs import PREDICATES, QUERIES, Graphs, rows_visited
from wukongs.csparql.algebra import TriplePattern
from wukongs.errors import CompactedError
from wukongs.store import trace as trace_module
from wukongs.store.arrangement import Arrangement
from wukongs.store.column_file import ColumnFile
from wukongs.store.fuel import UNLIMITED_FUEL
from wukongs.store.quads import only
from wukongs.store.tombstones import Difference, DifferenceMerge
from wukongs.store.trace import DIFFERENCE_COST, FUEL_PER_ROW, Trace

ONE = (spread(9), spread(1), spread(2), spread(3))
OTHER = (spread(9), spread(1), spread(2), spread(4))
NOTHING = columns([])


@pytest.fixture
def arrangement() -> Arrangement:
    """ONE, at SN 1."""
    found = Arrangement("g")
    found.absorb(1, *columns([ONE]))
    return found


def test_a_delete_of_what_is_not_there_changes_nothing(arrangement: Arrangement) -> None:
    assert arrangement.apply(2, columns([OTHER]), NOTHING).counts == (0, 0)
    assert arrangement.trace.batch_count == 1
    assert arrangement.trace.upper == 3
    assert Arrangement("empty").apply(1, columns([ONE]), NOTHING).counts == (0, 0)


def test_repeats_in_an_update_count_once(arrangement: Arrangement) -> None:
    assert arrangement.apply(2, columns([ONE, ONE]), columns([OTHER, OTHER])).counts == (1, 1)
    arrangement.trace.pay()  # for the merge that cancels ONE
    assert quads_of(*arrangement.trace.read(2).batches) == [OTHER]
    assert len(arrangement) == 1


def test_what_is_deleted_and_inserted_at_once_stays_or_comes(arrangement: Arrangement) -> None:
    assert arrangement.apply(2, columns([ONE, OTHER]), columns([ONE, OTHER])).counts == (0, 1)
    assert arrangement.trace.tombstone_count == 0
    assert len(arrangement) == 2


def test_what_was_deleted_is_new_again(arrangement: Arrangement) -> None:
    handle = arrangement.open(1, "test")
    arrangement.apply(2, columns([ONE]), NOTHING)
    assert arrangement.trace.tombstone_count == 1
    assert arrangement.absorb(3, *columns([ONE])) == 1
    assert arrangement.absorb(4, *columns([ONE])) == 0
    assert [len(arrangement.trace.read(sn)) for sn in (1, 3)] == [1, 1]
    handle.close()


def test_merging_leaves_no_tombstone_and_no_deleted_triple(arrangement: Arrangement) -> None:
    arrangement.apply(2, columns([ONE]), NOTHING)
    arrangement.trace.merge_all()
    assert arrangement.trace.tombstone_count == 0
    assert [len(batch) for batch in arrangement.trace.read(2).batches] == [0]
    with pytest.raises(CompactedError):
        arrangement.open(1, "too late")
    assert arrangement.absorb(3, *columns([ONE, OTHER])) == 2


def test_entries_are_logarithmic_in_the_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging keeps pace with deletions too."""
    monkeypatch.setattr(trace_module, "FUEL_MIN", 1)
    rng = random.Random(5)
    arrangement = Arrangement("g")
    arrangement.trace = Trace("g")
    seen: set[Quad] = set()
    changes = 0
    for number in range(400):
        gone = rng.sample(sorted(seen), min(len(seen), rng.choice([0, 1, 3, 40])))
        new = [
            (0, spread(rng.randrange(60)), spread(1), spread(rng.randrange(60))) for _ in range(rng.choice([1, 4, 50]))
        ]
        deleted, inserted = arrangement.apply(number + 1, columns(gone), columns(new)).counts
        seen = (seen - set(gone)) | set(new)
        changes += deleted + inserted
        assert len(arrangement) == len(seen)
        assert arrangement.trace.batch_count <= 4 + 2 * log2(changes + 1)


def test_entries_are_few_however_much_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long random runs in which most of what comes soon goes again, and comes again: merges cancel on both sides."""
    monkeypatch.setattr(trace_module, "FUEL_MIN", 1)
    rng = random.Random(7)
    trace = Trace("g")
    here: list[Quad] = []
    away = [(spread(n % 3), spread(n), spread(1), spread(n + 1)) for n in range(2000)]
    changes = 0
    for sn in range(1500):
        going, coming = (rng.choice([0, 1, 2, 30]) for _ in range(2))
        gone = [here.pop(rng.randrange(max(0, len(here) - 50), len(here))) for _ in range(min(going, len(here)))]
        new = [away.pop(rng.randrange(max(0, len(away) - 50), len(away))) for _ in range(min(coming, len(away)))]
        here += new
        away += gone
        changes += len(gone) + len(new)
        trace.seal(sn, batch_of(new), batch_of(gone))
        assert len(trace) == len(here)
        assert trace.batch_count <= 4 + 2 * log2(changes + 1)
        assert trace.merging_count <= 2 * changes
    assert trace.tombstone_count > 0, "nothing was merged with tombstones"
    assert sorted(here) == sorted(
        (graph, subject, predicate, object_)
        for graph in trace.read(trace.upper).graphs.tolist()
        for subjects, predicate, objects in trace.read(trace.upper).triples(graph)
        for subject, object_ in zip(subjects.tolist(), objects.tolist(), strict=True)
    )


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_merge_with_tombstones_ends_before_half_its_rows_are_sealed(share: float) -> None:
    """The trace pays enough where all four batches are copied, whatever the share that cancels."""
    quads = [(0, spread(n), spread(1), spread(n + 10_000)) for n in range(1600)]
    kept = int(400 * share)
    # Of 400 each: what both add and delete in turn, and what only one of them has.
    older = Difference(batch_of(quads[:400]), batch_of(quads[400:800]))
    newer = Difference(
        batch_of(quads[400 : 400 + kept] + quads[800 : 1200 - kept]),
        batch_of(quads[:kept] + quads[1200 : 1600 - kept]),
    )
    merge = DifferenceMerge(older, newer)
    used = UNLIMITED_FUEL - merge.work(UNLIMITED_FUEL)
    assert used <= DIFFERENCE_COST * FUEL_PER_ROW * 1600 // 2


def test_a_merge_with_tombstones_that_is_given_up_keeps_nothing() -> None:
    gc.disable()
    try:
        quads = [(0, spread(n), spread(1), spread(n + 1)) for n in range(100)]
        older, newer = Difference(batch_of(quads[:80]), None), Difference(batch_of(quads[80:]), batch_of(quads[:40]))
        merge = DifferenceMerge(older, newer)
        merge.work(100)
        gone = [weakref.ref(batch.out.values) for batch in (*older, *newer) if batch is not None]
        gone.append(weakref.ref(merge))
        del older, newer, merge
        assert [there() for there in gone] == [None] * 4
    finally:
        gc.enable()


def test_the_files_of_a_merge_are_verified_first() -> None:
    """All of it is read: what an entry has in a file is looked at before a merge, not after."""
    source = create_autospec(ColumnFile, instance=True)
    batches = [replace(batch_of([quad]), source=source) for quad in (ONE, OTHER, ONE)]
    DifferenceMerge(Difference(batches[0], None), Difference(batches[1], batches[2]))
    assert source.verify.call_count == 3


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_visits_as_many_directory_rows_in_many_graphs_as_in_few(query: str) -> None:
    for graph_count in (10, 200):
        graphs = Graphs(2000, graph_count)
        visited = rows_visited(TriplePattern(*QUERIES[query]), graphs.dataset(graphs.batch()))
        assert visited <= graphs.expected(query) + 2 * PREDICATES + 2, graph_count


@given(st.dictionaries(st.integers(0, 40), st.booleans(), max_size=40), st.sampled_from([0, 2**16]))
@fuzzed(60)
def test_some_of_a_batch_are_what_a_batch_of_them_is(wanted: dict[int, bool], unlisted: int) -> None:
    quads = {(spread(90), spread(n % 5), spread(n % 3), spread(n)): is_wanted for n, is_wanted in wanted.items()}
    with unlisted_up_to(unlisted, unlisted):
        batch = batch_of(list(quads))
        mask = [quads[quad] for quad in zip(*(column.tolist() for column in batch.triples()), strict=True)]
        some = only(batch, np.array(mask, np.bool_))
        assert_same_batch(some, batch_of([quad for quad, is_wanted in quads.items() if is_wanted]))
