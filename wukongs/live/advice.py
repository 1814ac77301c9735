"""What a registered query may have got wrong: what its text shows (csparql/warnings.py), and what the data shows."""

from __future__ import annotations

from collections.abc import Iterator

from wukongs.csparql.algebra import Query
from wukongs.csparql.warnings import STORED, default_predicates, query_warnings
from wukongs.live.core import Core
from wukongs.live.stream_state import StreamState
from wukongs.query.plans.dataset import Resolve
from wukongs.store.dtypes import WINDOW_GRAPH
from wukongs.store.lookup_kernels import count_edges


def advice(core: Core, query: Query, resolve: Resolve) -> tuple[str, ...]:
    """Return a sentence for each thing, with its place. Called with the lock held."""
    return (*query_warnings(query), *_stored_only(core, query, resolve))


def _stored_only(core: Core, query: Query, resolve: Resolve) -> Iterator[str]:
    """Find patterns that only windows can match, although what they ask for has come as stored data only.

    Only what streams have brought can tell: nothing is said while one of them has brought nothing."""
    clause = query.dataset
    merged = [window for window in clause.windows if not window.named]
    states = [core.streams[window.stream] for window in merged]
    if not merged or clause.default_graphs or not all(state.ring.slice_count for state in states):
        return
    stored = core.arrangement.trace.read(core.sn)
    for predicate in default_predicates(query):
        wanted = resolve(predicate)
        is_stored = count_edges(stored.descriptors, core.default_graph, wanted)[0] > 0
        if is_stored and not any(_has_brought(state, wanted) for state in states):
            yield (
                f"line {merged[0].line}, column {merged[0].column}: patterns with {predicate} are matched in windows "
                f"only, and so far it has come in stored data only: add FROM {STORED} if that is meant"
            )


def _has_brought(state: StreamState, predicate: int) -> bool:
    ring = state.ring
    assert ring.oldest is not None, state.iri
    assert ring.closed_to is not None, state.iri
    held = ring.window(ring.oldest - 1, ring.closed_to)
    return bool(count_edges(held.descriptors, WINDOW_GRAPH, predicate)[0] > 0)
