"""Updates of the stored graph: what counts as deleted and inserted, and what merging leaves of it."""

from __future__ import annotations

import random
from math import log2

import pytest

from bench.store.named_graphs import PREDICATES, QUERIES, Graphs, rows_visited
from csparql.algebra import TriplePattern
from store import trace as trace_module
from store.arrangement import Arrangement
from store.trace import Trace
from tests.quads import Quad, columns, quads_of, spread
from wukongs.errors import CompactedError

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
    assert arrangement.apply(2, columns([OTHER]), NOTHING) == (0, 0)
    assert arrangement.trace.batch_count == 1
    assert arrangement.trace.upper == 3
    assert Arrangement("empty").apply(1, columns([ONE]), NOTHING) == (0, 0)


def test_repeats_in_an_update_count_once(arrangement: Arrangement) -> None:
    assert arrangement.apply(2, columns([ONE, ONE]), columns([OTHER, OTHER])) == (1, 1)
    assert quads_of(*arrangement.trace.read(2).batches) == [OTHER]
    assert len(arrangement) == 1


def test_what_is_deleted_and_inserted_at_once_stays_or_comes(arrangement: Arrangement) -> None:
    assert arrangement.apply(2, columns([ONE, OTHER]), columns([ONE, OTHER])) == (0, 1)
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
        deleted, inserted = arrangement.apply(number + 1, columns(gone), columns(new))
        seen = (seen - set(gone)) | set(new)
        changes += deleted + inserted
        assert len(arrangement) == len(seen)
        assert arrangement.trace.batch_count <= 4 + 2 * log2(changes + 1)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_visits_as_many_directory_rows_in_many_graphs_as_in_few(query: str) -> None:
    for graph_count in (10, 200):
        graphs = Graphs(2000, graph_count)
        visited = rows_visited(TriplePattern(*QUERIES[query]), graphs.dataset(graphs.batch()))
        assert visited <= graphs.expected(query) + 2 * PREDICATES + 2, graph_count
