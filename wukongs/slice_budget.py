"""The memory of a stream's slices: what goes when it is full, and what the queries that needed it are told.

A stream holds slices, their blocks and the texts of their transient terms within slice_bytes_max. When that is full,
what no registered window needs goes first, although history_ms promised it; then the oldest slices go although a window
needs them. Such a window is not reported: its reader gets a BudgetExceeded in its place, never a smaller answer.
"""

from __future__ import annotations

from csparql.algebra import StreamWindow
from store.block_index import copy_count
from wukongs.core import Core
from wukongs.errors import BudgetExceeded
from wukongs.stream_state import StreamState
from wukongs.windows import Interval


def collect(core: Core, state: StreamState, needed_after: int | None) -> None:
    """Drop the oldest slices of a stream until it is within its budget. Called with the lock held.

    needed_after: registered windows need the stream batches after this one; None: there is no such window.
    """
    while state.ring.size_bytes > state.slice_bytes_max and (oldest := state.ring.oldest_held) is not None:
        is_needed = needed_after is not None and oldest > needed_after
        if is_needed and oldest == state.ring.oldest:
            state.evicted_to = oldest
            state.evicted_count += 1
        core.drop_slices(state, oldest * state.batch_ms)


def evicted(query: str, at_ms: int, window: StreamWindow, span: Interval, state: StreamState) -> BudgetExceeded | None:
    """Return the error of a window that needs slices which have gone for want of room; None if it needs none."""
    if state.evicted_to is None or span.after >= state.evicted_to:
        return None
    kept_ms = max(0, (state.ring.closed_to or state.evicted_to) - state.evicted_to) * state.batch_ms
    return BudgetExceeded(
        f"query {query}, window ending at {at_ms} ms: stream {state.iri} keeps {kept_ms} ms of slices within "
        f"slice_bytes_max = {state.slice_bytes_max} bytes, and the window is {window.range_ms} ms wide. Raise "
        'slice_bytes_max (of Engine.stream, or WUKONGS_SLICE_BYTES_MAX), declare the stream with index="matching", or '
        "register a narrower window. Windows that fit again are reported"
    )


def expected_bytes(state: StreamState, batch_count: int) -> int:
    """Estimate what a window of this many stream batches would take by what the stream holds now; 0 if it is empty."""
    ring = state.ring
    if ring.oldest is None or ring.closed_to is None:
        return 0
    per_batch = ring.size_bytes / ring.copy_count / (ring.closed_to - ring.oldest + 1)
    return int(per_batch * batch_count * copy_count(batch_count))
