"""Followed: what is to be stored of streams while there are rules, and in which order (decision 0096).

While there are rules, the tuples of streams join the stored graph by Change records, with what follows from them. Such
a record says up to which stream batches it has them (`Change.follows`). Ticks, and records that bring late streams,
wait for that: to tick_in a stream has come no further (snapshots.py). So

* a tick is exposed behind the record that has its tuples: that lies behind the tick before. All that reads the stored
  graph at the tick, firings too, sees tuples and conclusions together;
* the next ticked record lies behind no tick that is not followed. So between two changes nothing is stored, and one
  that has read the state after the last one has read all (`Change.read`);
* a node that does not know a change does not expose what it is about.

From the first rules on (`control._followed`) a stream goes on from what that SN shows of it. Stream batches that
changes have stored are noted for ever (`DeclaredStream.followed`): they do not join once more when the rules are gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from wukongs.protocol.control import Control, DeclaredStream
from wukongs.protocol.records import LIVE, Vts
from wukongs.protocol.snapshots import tick_due, tick_in


class Due(NamedTuple):
    """Stream batches after < k <= to that all nodes have, and that are to be followed next. is_late: they are all
    shown at the SN of one record; else each with the tick at which it ends."""

    stream: DeclaredStream
    after: int
    to: int
    is_late: bool


def to_follow(control: Control, vts: Vts, *, late_first: bool = True) -> list[Due]:
    """Return what is to be followed next of what a stable VTS has: late streams come first, or last."""
    late, counting, made = all_due(control, vts)
    return (late_first and late) or counting or made or late


def all_due(control: Control, vts: Vts) -> tuple[list[Due], list[Due], list[Due]]:
    """Return what is to be followed of late streams, of those that count, and of those that queries make."""
    if not control.rules:
        return [], [], []
    storing = [stream for stream in control.live_streams if stream.stores and stream.group == LIVE]
    now = max(control.last_sn.tick, tick_in(control, LIVE, vts))
    late = _due(((one, one.batch_before(now)) for one in storing if one.is_late), vts, is_late=True)
    tick = tick_due(control, LIVE, vts)
    if tick <= now:
        return late, [], []
    counting = ((one, one.batch_before(tick)) for one in storing if one.counts is not None)
    made = ((one, one.batch_before(tick)) for one in storing if one.is_made)
    return late, _due(counting, vts, is_late=False), _due(made, vts, is_late=False)


def _due(streams: Iterable[tuple[DeclaredStream, int]], vts: Vts, *, is_late: bool) -> list[Due]:
    found = []
    for stream, last in streams:
        ends = [last, vts.get(stream.key, 0), *([] if stream.last_batch is None else [stream.last_batch])]
        if min(ends) > stream.followed_to:
            found.append(Due(stream, stream.followed_to, min(ends), is_late))
    return found
