"""The memory of a stream's slices: which slices go when it is full.

A stream holds slices, their blocks, arrivals that windows count, and the texts of their transient terms within
slice_bytes_max. When that is full, slices that no registered window needs go first, although history_ms promised them.
Then the oldest slices and arrivals go, although a window needs them. A window that has lost a part is reported as
partial; those that have lost all are not made, and told as a gap (QueryWindows.gone_to_ms).
"""

from __future__ import annotations

from wukongs.csparql.algebra import StreamWindow
from wukongs.errors import BudgetExceeded
from wukongs.live.core import Core
from wukongs.live.stream_state import StreamState
from wukongs.live.windows import Interval
from wukongs.store.block_index import copy_count

BYTES_PER_ARRIVAL = 100
"""An arrival takes 32 bytes, and about twice as many in the batch of the window that is read."""


def collect(core: Core, state: StreamState, needed_after: int | None) -> None:
    """Drop the oldest slices and arrivals of a stream until it is within its budget. Called with the lock held.

    needed_after: registered windows need the slices after this stream batch; None: there is no such window.
    """
    ring = state.ring
    ring.forget_ahead()  # what goes does not hang on what idle time has built
    ring.build_slices()
    while ring.size_bytes > state.slice_bytes_max and (oldest := ring.oldest_held) is not None:
        if ring.oldest is not None and (needed_after is None or ring.oldest <= needed_after):
            core.drop_slices(state, ring.oldest * state.batch_ms)
            continue
        if oldest in (ring.oldest, ring.arrivals.oldest):
            state.evicted_count += 1
        core.drop_slices(state, oldest * state.batch_ms)
        core.release(ring.evict_arrivals(oldest))


def refused(query: str, at_ms: int, span: Interval, state: StreamState) -> BudgetExceeded | None:
    """Return the error of a window that needs what a query had made and the stream had no room for."""
    if not any(span.after < last and first <= span.to for first, last in state.refused):
        return None
    return BudgetExceeded(
        f"query {query}, window ending at {at_ms} ms: stream {state.iri} has not taken all that its query "
        f"made, since more than queued_bytes_max = {state.settings.queued_bytes_max} bytes would have waited for other "
        "streams of its readers: advance or close these, or raise queued_bytes_max. Windows after that are reported"
    )


def expected_bytes(state: StreamState, window: StreamWindow) -> int:
    """Estimate what a window would take: of time, by what the stream holds now (0 if it is empty)."""
    if window.is_counted:
        return window.range_triples * BYTES_PER_ARRIVAL
    batch_count, ring = window.range_ms // state.batch_ms, state.ring
    if ring.oldest is None or ring.closed_to is None:
        return 0
    ring.build_slices()
    per_batch = ring.size_bytes / ring.copy_count / (ring.closed_to - ring.oldest + 1)
    return int(per_batch * batch_count * copy_count(batch_count))
