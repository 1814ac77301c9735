"""Snapshot numbers: which stream batches and control records an SN stands for. The same on every node.

An SN is (tick, minor), in this order. It stands for

* of each stream of the clock group LIVE that counts from before its tick on: the stream batches that end at or before
  the tick;
* the ticked records at or before it: record i lies at (T(i), n), the n-th behind tick T(i), before the tick after;
* of each late stream: the stream batches up to the last LateJoin of it among these records;
* of each stream of another clock group: the stream batches up to the last AdvanceGroup among these records;
* of a stream that was dropped and is gone by then: its stream batches when it went; no vector timestamp names them.

So an SN's vector timestamp is a function of time and of the log, and nobody announces it (the paper's 4.3, with the
clock as the plan).

*The tick that a VTS covers* is the last one for which it has, of every stream that counts, each stream batch that ends
at or before the tick. So a stream whose next stream batch ends at e allows the ticks up to e - 1, and streams of
different batch_ticks do not hold each other back between their ends.

*A stream counts* from the record of its beginning (BeginStream) at tick b on: then all that ends by b + 1 is seen at
b + 1, and ticks wait for it. But where it has a stream batch that ended by b, it is *late*. Its source may be hours
behind, and ticks do not wait for it. LateJoin records show as much of it as the stable VTS has, each behind the tick of
its leader's own VTS. A LateJoin that brings the last stream batch that ends by its own tick T makes the stream count:
the snapshot of T has all of it that a tick T has, so ticks go on from there as if it had always counted.

* A LateJoin never brings what ends after its tick. So what an SN shows of a stream never falls where ticks take over.
* The leader proposes what its stable VTS has, and one LateJoin of a stream at a time. A record behind tick T holds back
  all later ticks where it is not covered (`stable_sn`), so a late stream must not bring one that some node has yet to
  insert. Every node that is waited for has it already; others only have to hear of that. The leader's local VTS would
  let a slow replica of a late stream hold back all streams.
* A LateJoin names no more than some stable VTS has, so no node that is IN lacks it, and a cut of the stream when it is
  dropped (dropping.py) is not below it.

*While there are rules* ticks wait for what follows, too. The tuples of a stream join the stored graph by changes
(followed.py), and a VTS counts as far as these have come. Changes are ticked records, so the next paragraph holds word
for word with such a VTS, both where a leader finds the tick of a record and where a node exposes one.

Why two nodes never mean different things by one SN. Both know the same records up to it, since the tick after T(i) is
exposed only where record i is known:

* Record i is appended by a leader L that is IN by the log before i, with T(i) >= the tick of L's own local VTS then,
  and >= every tick before in the log (`tick_for`).
* Let Z expose tick t, knowing the log up to p < i, and let b be the first ticked record after p. No record between p
  and b changes what tick a VTS gives, and T(b) <= T(i). It is enough that t <= T(b); b's leader be L from here on.
  (Streams begin, end, go and catch up by ticked records. Behind record i the tick is T(i) at least, so it never falls.)
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
    """Return the last tick of a clock group that a VTS covers for all streams that count, as far as what follows from
    their tuples is known."""
    return tick_due(control, group, followed_vts(control, vts))


def followed_vts(control: Control, vts: Vts) -> Vts:
    """Return a VTS as far as changes have stored what is to be stored of it, while there are rules."""
    if not control.rules:
        return vts
    stored = {key: stream.followed_to for key, stream in control.streams.items() if stream.stores}
    return {key: min(batch, stored.get(key, batch)) for key, batch in vts.items()}


def tick_due(control: Control, group: str, vts: Vts) -> int:
    """Return what tick_in does, though what follows may not be known.

    A stream that is complete holds nothing back; where all are, it is the greatest of their ends, and of those of what
    queries make, which come behind the streams that they read. It never falls when the VTS rises."""
    limits, ends = [], []
    for stream in control.streams.values():
        if (stream.counts is None and not stream.is_made) or stream.gone is not None:
            continue
        batch, last = vts.get(stream.key, 0), stream.last_batch
        if stream.group == group and stream.is_made:
            ends.append(stream.end_of(batch))
        if stream.group != group or stream.counts is None:
            continue
        if last is None or batch < last:
            limits.append(max(stream.counts, stream.cover_of(batch)))
        else:
            ends.append(max(stream.end_of(last), stream.counts + 1 if stream.joined < last else 0))
    if limits:
        return min(limits)
    latest = control.last_sn.tick if group == LIVE else control.groups.get(group, 0)
    return max([latest, *ends])


def tick_for(control: Control, vts: Vts) -> int:
    """Return the tick behind which a leader may append now. control: with all that its log holds; vts: its own."""
    return max(control.last_sn.tick, tick_in(control, LIVE, vts))


def late_batches(control: Control, vts: Vts, tick: int) -> dict[str, int]:
    """Return what a VTS has of late streams that no record has brought yet, and that one behind a tick may bring."""
    late = (stream for stream in control.live_streams if stream.is_late)
    known = followed_vts(control, vts)
    found = {stream.key: min(known.get(stream.key, 0), stream.batch_before(tick)) for stream in late}
    return {key: batch for key, batch in found.items() if batch > control.streams[key].joined}


def stable_sn(control: Control, stable: Vts) -> Sn:
    """Return the newest SN that a stable VTS covers."""
    tick = tick_in(control, LIVE, stable)
    sn = sn_at(control, tick)
    for advance in reversed(control.advances):
        if advance.sn <= sn and not _covers(control, advance.group, advance.tick, stable):
            sn = Sn(advance.sn.tick, advance.sn.minor - 1)
    there = {stream.key for stream in control.live_streams} if control.joins else set()
    for join in reversed(control.joins):
        if join.sn <= sn and join.stream in there and stable.get(join.stream, 0) < join.batch:
            sn = Sn(join.sn.tick, join.sn.minor - 1)
    return sn


def sn_at(control: Control, tick: int) -> Sn:
    """Return the last SN that lies behind this tick and not behind a later one."""
    place = bisect_right(control.marks, tick, key=lambda mark: mark.sn.tick)
    last = control.marks[place - 1].sn if place else Sn(tick, 0)
    return last if last.tick == tick else Sn(tick, 0)


def _covers(control: Control, group: str, tick: int, vts: Vts) -> bool:
    streams = (stream for stream in control.live_streams if stream.group == group)
    return all(vts.get(stream.key, 0) >= stream.batch_at(tick) for stream in streams)
