"""Snapshot numbers: which stream batches and control records an SN stands for. The same on every node.

An SN is (tick, minor), in this order. It stands for

* of each stream of the clock group LIVE that began before its tick: the stream batches that end at or before the tick;
* the ticked records at or before it: record i lies at (T(i), n), the n-th behind tick T(i), before the tick after;
* of each stream of another clock group: the stream batches up to the last AdvanceGroup among these records;
* of a stream that was dropped and is gone by then: its stream batches when it went; no vector timestamp names them.

So an SN's vector timestamp is a function of time and of the log, and nobody announces it (the paper's 4.3, with the
clock as the plan).

Why two nodes never mean different things by one SN. Both know the same records up to it, since the tick after T(i) is
exposed only where record i is known:

* Record i is appended by a leader L that is IN by the log before i, with T(i) >= the tick of L's own local VTS then,
  and >= every tick before in the log (`tick_for`).
* Let Z expose tick t, knowing the log up to p < i, and let b be the first ticked record after p. No record between p
  and b changes what tick a VTS gives, and T(b) <= T(i). It is enough that t <= T(b); b's leader be L from here on.
* If L is among those that Z waits for, Z has used a report of L. Reports made after L held b require index b of
  whoever uses them (`Log.high`: also if b was cut off at L later), so this one was made before, and L's VTS has not
  fallen since: t <= tick of that report <= T(b).
* If Z does not wait for L, L became HOLDING after p (had it left before p, it could not be IN at b). Then L became IN
  only with a VTS at or above whatever was exposed without waiting for it (membership.py), so again t <= T(b).
"""

from __future__ import annotations

from bisect import bisect_right

from wukongs.protocol.control import Control
from wukongs.protocol.records import LIVE, Sn, Vts


def tick_in(control: Control, group: str, vts: Vts) -> int:
    """Return the last tick of a clock group that a VTS covers for all streams that have begun.

    A stream that began at tick b counts from b + 1 on, and one that is complete holds nothing back. It never falls
    when the VTS rises."""
    members = [stream for stream in control.live_streams if stream.group == group and stream.began is not None]
    limits = [
        max(stream.began or 0, stream.end_of(vts.get(stream.key, 0)))
        for stream in members
        if stream.last_batch is None or vts.get(stream.key, 0) < stream.last_batch
    ]
    if limits:
        return min(limits)
    ends = [max((stream.began or 0) + 1, stream.end_of(stream.last_batch or 0)) for stream in members]
    latest = control.last_sn.tick if group == LIVE else control.groups.get(group, 0)
    return max([latest, *ends])


def tick_for(control: Control, vts: Vts) -> int:
    """Return the tick behind which a leader may append now. control: with all that its log holds; vts: its own."""
    return max(control.last_sn.tick, tick_in(control, LIVE, vts))


def stable_sn(control: Control, stable: Vts) -> Sn:
    """Return the newest SN that a stable VTS covers."""
    tick = tick_in(control, LIVE, stable)
    sn = sn_at(control, tick)
    for advance in reversed(control.advances):
        if advance.sn <= sn and not _covers(control, advance.group, advance.tick, stable):
            sn = Sn(advance.sn.tick, advance.sn.minor - 1)
    return sn


def sn_at(control: Control, tick: int) -> Sn:
    """Return the last SN that lies behind this tick and not behind a later one."""
    place = bisect_right(control.marks, tick, key=lambda mark: mark.sn.tick)
    last = control.marks[place - 1].sn if place else Sn(tick, 0)
    return last if last.tick == tick else Sn(tick, 0)


def _covers(control: Control, group: str, tick: int, vts: Vts) -> bool:
    streams = (stream for stream in control.live_streams if stream.group == group)
    return all(vts.get(stream.key, 0) >= stream.batch_at(tick) for stream in streams)
