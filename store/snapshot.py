"""Snapshot numbers (SN): the scalar that names a stable vector timestamp, and the loads and updates after it.

An SN is `(tick, minor)` in one int64. A tick is an event time in ms, the same for all streams of a clock group, so SN
<-> vector timestamp is a pure function of time that no one has to announce (the paper's 4.3, scalarization, with the
clock as its plan). Minors number the loads and updates between two ticks. An engine that has seen no stream yet counts
1, 2, 3, ... A firing at time t reads the SN (t, 0): all timeless tuples up to t, and the loads committed before.
"""

from __future__ import annotations

MINOR_BITS = 20
TICK_MIN_MS = -(1 << 40)
"""The earliest event time that an SN can name (in 1935, with times counted from 1970)."""
TICK_MAX_MS = (1 << 42) - 1
"""The latest (in 2109)."""
EVENT_MIN_MS, EVENT_MAX_MS = TICK_MIN_MS + 86_400_000, TICK_MAX_MS - 86_400_000
"""Event times that a stream takes, if its stream batches are no longer than a day."""


def tick_sn(time_ms: int) -> int:
    """Return the SN (time_ms, 0). time_ms: event time in ms, from TICK_MIN_MS + 1 to TICK_MAX_MS."""
    return (time_ms - TICK_MIN_MS) << MINOR_BITS


def tick_of(sn: int) -> int | None:
    """Return the event time in ms that an SN stands at, None if no stream had a time yet."""
    tick = sn >> MINOR_BITS
    return tick + TICK_MIN_MS if tick else None
