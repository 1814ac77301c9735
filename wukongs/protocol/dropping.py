"""Dropping a stream: how it ends although its writers are gone, at a stream batch that all in-sync replicas have.

    DropStream --(each node: nothing of it is sealed here any more)--> frozen --(the leader: EndStream, is_cut)--> gone

* *Frozen.* A node that holds the DropStream record, committed or not, takes no piece and seals nothing of the stream.
  When it has applied the record, and inserted the stream batches sealed before, its reports say so; its VTS of the
  stream is final. It stays so through restarts: the record is on its disk.
* *Cut.* When all nodes that are IN by the leader's whole log have said so, it appends EndStream with the least of their
  VTSs. The stable VTS exceeds no such node's VTS, so nothing beyond the cut was ever exposed, nor will it be. All these
  nodes have everything up to the cut. So from this record on nobody waits for the stream, and exposed tuples stay. No
  SN changes its meaning: until here the stream held back the ticks beyond the cut.
* *Gone.* A node that is JOINING or HOLDING then begins the stay anew. It gets the stream's data from nodes that are IN
  and know the record, as nobody else sends them any more. So a node that becomes IN later has them as well.

A stream that has not begun is gone at once. A stream that a registered query reads is not dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

from wukongs.protocol.control import Control
from wukongs.protocol.followed import all_due
from wukongs.protocol.log import Log
from wukongs.protocol.progress import Progress
from wukongs.protocol.records import DropStream, EndStream, Role
from wukongs.protocol.sealing import StreamIntake


def takes_in(control: Control, log: Log, key: str) -> bool:
    """Whether a node may seal something of a stream: its log has it, and does not drop it further on."""
    in_flight = log.behind(control.index)
    return control.takes_in(key) and not any(entry.record == DropStream(key) for entry in in_flight)


def frozen(control: Control, intakes: Mapping[str, StreamIntake]) -> frozenset[str]:
    """Return the dropped streams of which this node has inserted all that it ever will."""
    dropped = (stream.key for stream in control.live_streams if stream.is_dropped)
    return frozenset(key for key in dropped if key not in intakes or intakes[key].inserted == intakes[key].sealed)


def cuts(held: Control, progress: Progress) -> list[EndStream]:
    """Return the ends of dropped streams that are known by now. held: the control state with the leader's whole log."""
    dropped = [stream.key for stream in held.live_streams if stream.is_dropped]
    if dropped:  # what can be shown of them is to be stored first
        due = {one.stream.key for group in all_due(held, progress.stable) for one in group}
        dropped = [key for key in dropped if key not in due]
    synced = sorted(held.with_role(Role.IN)) if dropped else []
    reports = [
        report
        for node in synced
        if (report := progress.latest.get(node)) and report.incarnation.disk == held.member(node).disk
    ]
    if not synced or len(reports) < len(synced):
        return []
    told = [key for key in dropped if all(key in report.frozen for report in reports)]
    return [EndStream(key, min(report.vts.get(key, 0) for report in reports), is_cut=True) for key in told]
