"""The stream that a live view makes: what it has to be."""

from __future__ import annotations

from collections.abc import Callable

from wukongs.csparql.algebra import Query
from wukongs.live.core import Core
from wukongs.live.declarations import check_can_make
from wukongs.live.seen_graphs import check_seen
from wukongs.live.stream_state import StreamState
from wukongs.live.views.options import ViewOptions
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI


def checked_stream(
    core: Core,
    query: Query,
    only: tuple[str, ...] | None,
    options: ViewOptions,
    is_written: Callable[[StreamState], bool],
) -> StreamState | None:
    """Return the stream that a view is to make; None: it makes none. only: as of QuerySource; is_written: tells whether
    somebody has pushed to a stream. Called with the lock held. Raises StreamError, AccessError."""
    assert query.registration is not None
    if options.into is None:
        return None
    state, every_ms = core.stream(options.into), options.every_ms or query.registration.computed_every_ms
    assert every_ms is not None, "is_rule has checked it"
    check_seen(state.iri, only, "push to")
    if state.timing is not True:
        check_seen(state.into_iri or DEFAULT_GRAPH_IRI, only, "push to")
    check_can_make(query.registration.name, every_ms, state, is_written)
    return state
