"""Time as the protocol counts it, and as everything else does. All conversions between the two are here.

| | the protocol | store, streams, users |
|---|---|---|
| event time | tick: from TICK_MIN_MS on, so none is negative | milliseconds since 1970 |
| snapshot number | Sn(tick, minor) | one integer (wukongs.store.snapshot) |
| stream batch | counted from DeclareStream.first_tick on, from 1 | ceil(timestamp_ms / batch_ms) |
"""

from __future__ import annotations

from wukongs.protocol.records import Sn
from wukongs.store.snapshot import MINOR_BITS, TICK_MIN_MS

ZERO = Sn(0, 0)


def packed(sn: Sn) -> int:
    """Return an SN as the store has it."""
    return (sn.tick << MINOR_BITS) | sn.minor


def unpacked(sn: int) -> Sn:
    """Return an SN as the protocol has it."""
    return Sn(sn >> MINOR_BITS, sn & ((1 << MINOR_BITS) - 1))


def ms_of(tick: int) -> int:
    """Return the event time of a tick."""
    return tick + TICK_MIN_MS


def tick_at(time_ms: int) -> int:
    """Return the tick of an event time, the first one for times that no tick can name."""
    return max(time_ms - TICK_MIN_MS, 0)


def first_tick_of(batch_ms: int) -> int:
    """Return the first tick at which a stream batch of this length ends, for DeclareStream: from there on the
    protocol's stream batches are whole ones."""
    return -TICK_MIN_MS % batch_ms


def batches_before(first_tick: int, batch_ms: int) -> int:
    """Return the number of the stream batch that ends at the first tick of a stream: a stream batch's number, less the
    protocol's number of it."""
    return ms_of(first_tick) // batch_ms
