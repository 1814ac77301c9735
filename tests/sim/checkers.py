"""What must hold, seen from outside of the nodes: from what they did, said and answered, and from what was sent to
them.

Nothing here asks the protocol's own functions. The model keeps the accepted data in plain sets, in SN order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from tests.sim.clock import Clock
from tests.sim.data import Edge, StreamData, edges_of, hash16
from tests.sim.homes import NAME
from tests.sim.machine import Machine
from wukongs.protocol.records import (
    Change,
    DeclareStream,
    Drain,
    Drained,
    DropStream,
    EndStream,
    LateJoin,
    Membership,
    MoveQuery,
    ReEncode,
    RegisterQuery,
    RemoveNode,
    Role,
)


class Violation(Exception):
    """Something that must hold does not. nodes: whose story tells why."""

    def __init__(self, reason: str, nodes: Iterable[int]) -> None:
        super().__init__(reason)
        self.nodes = set(nodes)


class Checkers:
    """Fed by the simulator with everything that nodes do (`tell`) and clients see."""

    def __init__(self, streams: list[StreamData], hosts: list[Machine]) -> None:
        self.declared = streams
        self.streams: dict[str, StreamData] = {}
        self.clocks = [(0, Clock(self.streams))]
        """By the indexes of records, in order."""
        self.gone: set[str] = set()
        self.hosts = hosts
        self.entries: dict[int, tuple[Any, Any]] = {}
        self.roles: dict[int, tuple[Role, int]] = {}
        self.meaning: dict[Any, dict[str, int]] = {}
        self.stable: dict[int, dict[str, int]] = {}
        self.exposed: dict[int, Any] = {}
        self.highest: dict[str, int] = {}
        self.lost: dict[tuple[int, int], dict[str, int]] = {}
        self.reads: list[Any] = []
        self.acknowledged: list[Any] = []
        self.shards: tuple[tuple[int, ...], ...] = ()
        self.drains: dict[int, tuple[int, ...]] = {}
        self.removed: set[int] = set()
        self.had: dict[int, set[int]] = {}
        """The shards that each node has ever held."""
        self.exceptions: set[str] = set()
        self.placed: dict[str, list[tuple[Any, tuple[int, ...]]]] = {}
        """The homes of queries, and from which SN on."""
        self.taken: dict[str, set[int]] = {}

    def start(self) -> None:
        self.roles = {host.number: (host.control.member(host.number).role, 0) for host in self.hosts}
        self._place(self.hosts[0].control.shards)

    def _place(self, shards: Iterable[tuple[int, ...]]) -> None:
        self.shards = tuple(shards)
        for shard, nodes in enumerate(self.shards):
            for node in nodes:
                self.had.setdefault(node, set()).add(shard)

    def tell(self, node: int, kind: str, details: dict[str, Any]) -> None:
        if check := getattr(self, f"on_{kind}", None):
            check(node, **details)

    def on_boot(self, node: int, **_: Any) -> None:
        self.stable.pop(node, None)
        self.exposed.pop(node, None)

    def on_apply(self, node: int, index: int, entry: Any, sn: Any) -> None:
        is_news = index not in self.entries
        known = self.entries.setdefault(index, (entry, sn))
        if known != (entry, sn):
            raise Violation(f"node {node} has committed {entry} at {index}, another one {known[0]}", [node])
        log = self.hosts[node].disk.log
        base = log.control.index if log.control else 0
        if index > base and entry not in log.entries[index - base - 1 : index - base]:
            raise Violation(f"node {node} applies {entry} at {index}, which a crash would take back", [node])
        if is_news:
            self._on_news(index, entry.record, sn)

    def _on_news(self, index: int, record: Any, sn: Any) -> None:
        """Look at a record that is applied for the first time."""
        before = self._clock(index - 1)
        match record:
            case ReEncode(text=text):
                self.exceptions.add(text)
            case Membership():
                self._on_membership(record)
            case Drain(node=node, to=to):
                gone = self.drains.pop(node, ())
                shards = [tuple(one for one in nodes if one not in gone) for nodes in self.shards]
                mine = [shard for shard, nodes in enumerate(shards) if node in nodes]
                for place, shard in enumerate(mine):
                    shards[shard] += (to[place % len(to)],)
                self.drains[node] = to
                self._place(shards)
            case Drained(node=node):
                self._on_drained(node, self.drains.pop(node))
            case RemoveNode(node=node):
                if self.roles[node][0] is not Role.OUT or any(node in nodes for nodes in self.shards):
                    raise Violation(f"node {node} is removed, which is {self.roles[node][0]} of {self.shards}", [node])
                self.removed.add(node)
            case DeclareStream(stream=name, payload=options):
                data = next(data for data in self.declared if data.options == options)
                data.index = index
                data.key = name if name not in self.streams else f"{name} {index}"
                self.streams[data.key] = data
            case RegisterQuery(query=name, nodes=nodes) if name.startswith(NAME):
                self.placed[name], self.taken[name] = [(sn, nodes)], set()
            case MoveQuery(query=name, nodes=nodes) if name in self.placed:
                self.placed[name].append((sn, nodes))
                if any(self.roles[home][0] is Role.IN for home in self.placed[name][-2][1]):
                    raise Violation(f"{name} moves to {nodes}, and a home of it is in", nodes)
            case LateJoin(stream=key, batch=batch):
                self._check_join(before, key, batch, sn)
            case DropStream(stream=key) if not before.course(key).has_begun:
                self.gone.add(key)
                self.highest.pop(key, None)
            case EndStream(stream=key, is_cut=True):
                self.gone.add(key)
                self.highest.pop(key, None)
                for node, (role, disk) in self.roles.items():  # They begin their stay anew.
                    self.roles[node] = Role.JOINING if role is Role.HOLDING else role, disk
        self.clocks.append((index, before.after(record, sn)))

    def _clock(self, index: int) -> Clock:
        """Return the clock behind a place of the log."""
        return self.clocks[bisect_right(self.clocks, index, key=lambda clock: clock[0]) - 1][1]

    def _check_join(self, before: Clock, key: str, batch: int, sn: Any) -> None:
        """Check that a record brings more of a late stream, nothing that ends later, and what all replicas have."""
        if not before.is_late(key):
            raise Violation(f"{sn} brings {key} {batch}, which is not late", [])
        if before.shown_at(key, batch) is not None:
            raise Violation(f"{sn} brings {key} {batch}, which is shown already", [])
        data = self.streams[key]
        if data.first_tick + batch * data.batch_ticks > sn.tick:
            raise Violation(f"{sn} brings {key} {batch}, which ends later", [])
        for host in self.hosts:
            self._check_replica(host.number, {key: batch}, f"is an in-sync replica, but {sn} brings")

    def _on_membership(self, record: Membership) -> None:
        if record.node in self.removed:
            raise Violation(f"node {record.node} is {record.role}, and was removed", [record.node])
        self.roles[record.node] = record.role, record.disk
        if record.role is Role.IN:
            self._check_replica(record.node, self.highest, "becomes IN, but stable is")
            disk = self.hosts[record.node].disk
            if disk.is_partial and disk.generation == record.disk:
                raise Violation(f"node {record.node} becomes IN, and a crash would lose its disk", [record.node])
        for shard in self.shards if record.role is Role.OUT else ():
            if record.node in shard and not any(self.roles[node][0] is Role.IN for node in shard):
                raise Violation(f"node {record.node} goes, and no in-sync replica of {shard} stays", shard)

    def _on_drained(self, node: int, to: tuple[int, ...]) -> None:
        """Check that others are in sync in the place of a node that gives up its shards."""
        for nodes in self.shards:
            if node in nodes and not any(one in to and self.roles[one][0] is Role.IN for one in nodes):
                raise Violation(f"node {node} gives up a shard of {nodes}, and none of {to} is in sync", nodes)
        self._place(tuple(one for one in nodes if one != node) for nodes in self.shards)

    def on_stable(self, node: int, vts: dict[str, int]) -> None:
        vts = {stream: batch for stream, batch in vts.items() if stream not in self.gone}
        before = self.stable.get(node, {})
        for stream, batch in vts.items():
            if batch < before.get(stream, 0):
                raise Violation(f"node {node}: stable VTS of {stream} falls from {before[stream]} to {batch}", [node])
            self.highest[stream] = max(self.highest.get(stream, 0), batch)
            if batch > before.get(stream, 0):
                self._check_kept(node, stream, batch)
        self.stable[node] = dict(vts)
        for host in self.hosts:
            self._check_replica(host.number, vts, f"is an in-sync replica, but stable on node {node} is", node)

    def on_crash(self, node: int, loses_disk: bool, vts: dict[str, int]) -> None:
        """vts: what the disk had that is lost, if it is."""
        if loses_disk:
            self.lost[node, self.hosts[node].disk.generation - 1] = vts

    def _check_kept(self, node: int, stream: str, batch: int) -> None:
        """Check that each shard's part is on some disk, for sources may forget what is stable: on one of those that
        are members as far as this node knows the log. Until it knows of a loss, the lost disk counts for what it had:
        its reports were true, and one used a moment before the loss could not be told from one used now."""
        members = self.hosts[node].control.members
        for shard in self.hosts[node].control.shards:
            if not any(self._disk(replica, members[replica].disk).get(stream, 0) >= batch for replica in shard):
                raise Violation(f"stable on node {node} is {stream} {batch}, no disk of {shard} has it", [node, *shard])

    def _disk(self, node: int, generation: int) -> dict[str, int]:
        """Return what a disk has of each stream, or had when it was lost."""
        disk = self.hosts[node].disk
        return disk.vts if disk.generation == generation else self.lost.get((node, generation), {})

    def _check_replica(self, node: int, vts: dict[str, int], what: str, other: int | None = None) -> None:
        """Check that an in-sync replica that has its disk has all of a stable VTS."""
        role, disk = self.roles[node]
        host = self.hosts[node]
        if role is not Role.IN or host.disk.generation != disk:
            return
        for stream, batch in vts.items():
            if host.disk.vts.get(stream, 0) < batch:
                has = host.disk.vts.get(stream, 0)
                raise Violation(
                    f"node {node} {what} {stream} {batch}: it has {has}", {node, node if other is None else other}
                )

    def on_expose(self, node: int, sn: Any, vts: dict[str, int]) -> None:
        if node in self.exposed and sn <= self.exposed[node]:
            raise Violation(f"node {node} exposes {sn} after {self.exposed[node]}", [node])
        self.exposed[node] = sn
        self._check_meaning(node, sn, vts)
        self._check_clock(node, sn, vts)
        stable = self.stable.get(node, {})
        reached = self.hosts[node].node.progress.stable
        if any(batch > reached.get(stream, 0) for stream, batch in vts.items() if stream not in self.gone):
            raise Violation(f"node {node} exposes {sn} = {vts} beyond its stable VTS {stable}", [node])

    def _check_meaning(self, node: int, sn: Any, vts: dict[str, int]) -> None:
        known = self.meaning.setdefault(sn, dict(vts))
        if known != vts:
            raise Violation(f"{sn} means {vts} on node {node}, {known} on another one", [node])

    def _check_clock(self, node: int, sn: Any, vts: dict[str, int]) -> None:
        """Check that a node shows as much as its stable VTS allows, and that an SN means what the log says."""
        state = self.hosts[node].node
        clock = self._clock(state.control.index)
        if vts != (told := clock.vts(tuple(sn))):
            raise Violation(f"{sn} means {vts} on node {node}, by the log {told}", [node])
        if sn != state.exposed:
            return  # It went on to a later one at once.
        newest = clock.newest(state.progress.stable)
        if newest < tuple(state.control.floor):
            return  # It goes on from a control state, and does not know what SNs before that mean.
        if tuple(sn) != newest:
            raise Violation(f"node {node} exposes {sn}, but {dict(state.progress.stable)} has {newest}", [node])

    def on_fire(self, node: int, query: str, batch: int, sn: Any) -> None:
        """Check that a node fires only as the home of the time."""
        homes = [nodes for since, nodes in self.placed[query] if since <= sn]
        if not homes or homes[-1] != (node,):
            raise Violation(f"node {node} fires {query} {batch} at {sn}, its homes were {self.placed[query]}", [node])

    def on_take(self, node: int, query: str, after: int, batch: int) -> None:
        self.taken[query].update(self.declared[0].batches(after, batch))

    def _check_windows(self) -> None:
        """Check that readers have had every window from the registration of its query on."""
        clock = self.clocks[-1][1]
        for query, [(since, _), *_] in self.placed.items():
            data = self.declared[0]
            shown = {batch: clock.shown_at(data.key, batch) for batch in data.batches(0, data.last)}
            due = {batch for batch, sn in shown.items() if sn is not None and sn > tuple(since)}
            if missing := due - self.taken[query]:
                raise Violation(f"{query} has lost windows {sorted(missing)}: {self.placed[query]}", [])

    def on_seal(self, node: int, stream: str, after: int, batch: int, edges: dict[int, set[Edge]]) -> None:
        host, data = self.hosts[node], self.streams[stream]
        for number in sorted({*data.batches(after, batch), *edges}):
            mine = {e for e in data.edges(number) if host.mine(hash16(e[0])) or host.mine(hash16(e[2]))}
            found = edges.get(number, set())
            before = {e for e in found - mine if {host.shard(hash16(end)) for end in (e[0], e[2])} & self.had[node]}
            if found - before != mine or not after < number <= batch:
                told = f"seals {stream} {number} in {after + 1} to {batch}"
                raise Violation(f"node {node} {told} with {sorted(found)}, not {sorted(mine)}", [node])
            for text in {text for edge in found for text in edge} - self.exceptions:
                self._check_confirmed(node, text, f"seals {stream} {number}")

    def on_insert(self, node: int, stream: str, batch: int, offsets: dict[str, int]) -> None:
        """Check where sources would go on after a crash: behind all rows that are in, before all others."""
        data = self.streams[stream]
        for name, offset in offsets.items():
            mixed = name in data.out_of_order  # some rows behind it may be in as well: sources pass over these
            rows = [(number, row.offset) for row, number in data.arrivals(name)]
            if any((number <= batch) != (row < offset) and not (mixed and number <= batch) for number, row in rows):
                raise Violation(f"node {node} would go on with {stream} {name} at {offset} behind {batch}", [node])

    def _check_confirmed(self, node: int, text: str, what: str) -> None:
        """Check that every in-sync replica of a text's shard that has its disk holds this text under its hash."""
        for replica in self.hosts[node].control.shards[self.hosts[node].shard(hash16(text))]:
            host, (role, disk) = self.hosts[replica], self.roles[replica]
            if role is Role.IN and host.disk.generation == disk and host.disk.claims.get(hash16(text)) != text:
                held = host.disk.claims.get(hash16(text))
                raise Violation(f"node {node} {what} with {text}, but replica {replica} has {held}", [node, replica])

    def at_end(self, terms: list[str]) -> None:
        """Check what the whole run must add up to."""
        self._check_windows()
        model = Model(self.entries, self.streams, self.clocks[-1][1])
        for node, client, sn, vts, (outs, ins) in self.reads:
            self._check_meaning(node, sn, vts)
            wanted = model.at(sn)
            for side, found in (("out", outs), ("in", ins)):
                if found != wanted:
                    raise Violation(
                        f"{client} reads at {sn} on node {node}: {side}-edges lack {sorted(wanted - found)}, "
                        f"have {sorted(found - wanted)} too much",
                        [node],
                    )
        self._check_holders(model)
        for client, number, sn in self.acknowledged:
            if model.changes.get((client, number)) != sn:
                raise Violation(f"change {number} of {client} was acknowledged at {sn}, and is not there", [])
        if model.lost_update:
            raise Violation(f"an update has not seen the one before it: {model.lost_update}", [])

    def _check_holders(self, model: Model) -> None:
        """Check that every replica of a shard has all of it."""
        for host in self.hosts:
            sn = host.node.exposed
            shards = [shard for shard, nodes in enumerate(self.shards) if host.number in nodes]
            if not shards or sn is None:
                continue
            found = host.read(sn, host.control.vts_at(sn), shards)
            wanted = model.at(sn)
            for end, side in ((0, 0), (2, 1)):
                mine = {tuple(map(host.encode, edge)) for edge in wanted if host.shard(hash16(edge[end])) in shards}
                if found is None or found[side] != mine:
                    raise Violation(f"node {host.number} does not have all of its shards at {sn}", [host.number])


class Model:
    """All that was accepted, in one place: records in order, stream batches from the sources themselves. clock: behind
    the last record."""

    def __init__(self, entries: dict[int, Any], streams: dict[str, StreamData], clock: Clock) -> None:
        self.streams, self.clock = streams, clock
        self.changes: dict[Any, Any] = {}
        self.lost_update = ""
        self.timeline: list[Any] = []
        value = 0
        for index in sorted(entries):
            entry, sn = entries[index]
            match entry.record:
                case EndStream(stream=name, last_batch=batch, is_cut=False):
                    assert batch == streams[name].last, (name, batch)
                case Change(client=client, number=number, payload=payload, after=after):
                    gone, come = edges_of(payload)
                    if (client, number) in self.changes:
                        self.lost_update = f"{client} {number} twice"
                    self.changes[client, number] = sn
                    self.timeline.append((sn, set(gone), set(come)))
                    if after is not None:
                        value += 1
                        if [edge for edge in come if edge[0] == "counter"] != [("counter", "p0", f"n{value}")]:
                            self.lost_update = f"{client} {number}: {come}, expected n{value}"

    def _batches(self, stream: StreamData, sn: Any) -> list[tuple[Any, int]]:
        """Return the stream batches of an SN, each with the first SN that has it: of a stream that is gone, those that
        were visible when it went."""
        course = self.clock.course(stream.key)
        until = sn if course.gone_at is None or sn < course.gone_at else course.gone_at
        last = stream.last if course.last is None else course.last
        seen = ((self.clock.shown_at(stream.key, batch), batch) for batch in stream.batches(0, last))
        return [(since, batch) for since, batch in seen if since is not None and since <= until]

    def at(self, sn: Any) -> set[Edge]:
        """Return the edges at an SN: by SN order, a stream batch before the records behind its tick."""
        timeline = [entry for entry in self.timeline if entry[0] <= sn]
        for stream in self.streams.values():
            timeline += [(since, set(), stream.edges(batch)) for since, batch in self._batches(stream, sn)]
        found: set[Edge] = set()
        for _, gone, come in sorted(timeline, key=lambda entry: tuple(entry[0])):
            found = (found - gone) | come
        return found
