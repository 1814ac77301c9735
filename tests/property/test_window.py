"""Windows of random streams through the slice ring, against every tuple with its timestamp."""

from __future__ import annotations

import random
from math import log2

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.property.test_slice_ring import held
from tests.quads import spread
from wukongs.csparql.algebra import StreamWindow
from wukongs.live.stream_state import batch_number
from wukongs.live.windows import first_multiple, interval
from wukongs.store.slice_ring import SliceRing


@given(
    seed=st.integers(0, 2**32),
    batch_ms=st.sampled_from([1, 7, 100]),
    start_ms=st.sampled_from([-3000, -50, 0, 40, 10**9]),
    ranges=st.lists(st.integers(1, 24), min_size=1, max_size=3),
    steps=st.integers(1, 9),
    late=st.booleans(),
)
@fuzzed(60)
def test_every_window_holds_exactly_its_tuples(
    seed: int, batch_ms: int, start_ms: int, ranges: list[int], steps: int, late: bool
) -> None:
    """The tuples with timestamps in (t - range, t], for every t; late: the windows are indexed half-way."""
    rng = random.Random(seed)
    windows = [StreamWindow("s", count * batch_ms, steps * batch_ms, False) for count in ranges]
    end_ms = start_ms + 60 * batch_ms
    times = sorted(rng.randrange(start_ms, end_ms) for _ in range(rng.randrange(80)))
    tuples = [(spread(rng.randrange(9)), spread(50), spread(rng.randrange(3)), time) for time in times]
    ring = SliceRing()
    indexed = 1
    for number in range(batch_number(start_ms, batch_ms), batch_number(end_ms, batch_ms) + 1):
        if indexed == 1 and (not late or number * batch_ms > (start_ms + end_ms) // 2):
            indexed = max(ranges)
            ring.index_windows(indexed)
        own = [t for t in tuples if batch_number(t[3], batch_ms) == number]
        columns = np.array(own, np.int64).reshape(-1, 4).T.copy()
        ring.add(number, columns[0], columns[1], columns[2], columns[3], np.empty(0, np.int64))
        ring.close(number)
        at_ms = number * batch_ms
        for window in windows:
            span = interval(window, batch_ms, at_ms)
            assert span.end_ms == first_multiple(window.step_ms, at_ms - window.step_ms, is_strict=True) <= at_ms
            found = ring.window(span.after, span.to)
            expected = {t[:3]: t[3] for t in tuples if span.start_ms < t[3] <= span.end_ms}  # the newest time stays
            assert held(found) == expected
            if indexed > 1 and not late:
                assert len(found.batches) <= max(1, 5 * log2(window.range_ms // batch_ms))
