"""One simulated node: a disk, a store of edges, and the protocol between them. Stands for wukongs/node.py's sockets,
threads, log and arrangements, as plainly as possible.

A crash may come between any two actions of a step; what was saved before it stays, all else is gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.sim.agenda import Agenda, Network
from tests.sim.data import Edge, Id, IdEdge, edges_of, hash16
from wukongs.protocol import actions as act
from wukongs.protocol import events as ev
from wukongs.protocol.control import Control
from wukongs.protocol.messages import Incarnation, Message, State, Term
from wukongs.protocol.node import step
from wukongs.protocol.records import BEGINNING, Change, DropStream, EndStream, Role, Sn, Vts
from wukongs.protocol.sealing import position
from wukongs.protocol.snapshots import visible_at
from wukongs.protocol.state import Cluster, Kept, Node, boot
from wukongs.protocol.waiting import is_waited_for

PULSE = 10.0
"""While somebody waits for what a node says next; else Cluster.quiet_pulses times as long."""


class Crash(Exception):
    """The process is gone in the middle of a step."""


class SavedChange(NamedTuple):
    sn: Sn
    gone: frozenset[IdEdge]
    come: frozenset[IdEdge]
    key: tuple[str, int]


@dataclass
class Disk:
    """visible: the first SN of stream batches, as far as it is known; changes: by index of their records."""

    generation: int
    boots: int = 0
    term: int = 0
    vote: Any = None
    entries: tuple[Any, ...] = ()
    high: Any = BEGINNING
    control: Control | None = None
    voters: Any = frozenset()
    vts: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, Any] = field(default_factory=dict)
    batches: dict[tuple[str, int], tuple[frozenset[IdEdge], frozenset[IdEdge]]] = field(default_factory=dict)
    visible: dict[tuple[str, int], Sn] = field(default_factory=dict)
    changes: dict[int, SavedChange] = field(default_factory=dict)
    claims: dict[int, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)

    def kept(self) -> Kept:
        log = self.term, self.vote, self.entries, self.high, self.control, self.voters
        return Kept(*log, dict(self.vts), dict(self.offsets))


class Host:
    """number: the node's; tell: takes (node, kind, details) for the checkers and the story."""

    def __init__(
        self,
        number: int,
        cluster: Cluster,
        agenda: Agenda,
        network: Network,
        rng: random.Random,
        tell: Callable[..., None],
    ) -> None:
        self.number, self.cluster = number, cluster
        self.agenda, self.network, self.rng, self.tell = agenda, network, rng, tell
        self.peers: list[Host] = []
        self.disk = Disk(0)
        self.drift = rng.uniform(0.75, 1.3)
        self.crash_share = 0.0
        self.is_alive = False
        self.start()

    def start(self) -> None:
        self.disk.boots += 1
        self.is_alive = True
        self.me = Incarnation(self.number, self.disk.generation, self.disk.boots)
        self.node: Node = boot(self.cluster, self.me, self.disk.kept())
        self.known = set(self.disk.known)
        self.staged: dict[tuple[str, int], set[Edge]] = {}
        self.sn_of = {change.key: change.sn for change in self.disk.changes.values()}
        self.dropped: set[tuple[str, int]] = set()
        self.acks = 0
        self.free_at = 0.0
        self.pulsed = self.agenda.now
        self.tell(self.number, "boot", disk=self.me.disk, boot=self.me.boot)
        self.agenda.after(self.rng.uniform(0, PULSE), self._alive(self._pulse))

    def crash(self, loses_disk: bool = False) -> None:
        self.is_alive, vts = False, self.disk.vts
        if loses_disk:
            self.disk = Disk(self.disk.generation + 1)
        self.tell(self.number, "crash", loses_disk=loses_disk, vts=vts)

    @property
    def control(self) -> Control:
        return self.node.control

    def handle(self, event: ev.Event, edges: set[Edge] | None = None) -> None:
        """Let the protocol take in an event. edges: of a piece."""
        if not self.is_alive:
            return
        before = self.node
        self.node, actions = step(self.node, event)
        cut = self.rng.randint(0, len(actions)) if self.rng.random() < self.crash_share else None
        for place, action in enumerate(actions):
            if place == cut:
                self.crash()
                return
            self._do(action, event, edges)
        if self.node.progress.stable != before.progress.stable:
            self.tell(self.number, "stable", vts=self.node.progress.stable)

    def receive(self, message: Message) -> None:
        self.handle(ev.Received(message))

    def encode(self, text: str) -> Id:
        return hash16(text), self.control.exceptions.get(text, 0)

    def shard(self, hashed: int) -> int:
        return hashed * self.cluster.shard_count >> 16

    def mine(self, hashed: int, node: int | None = None) -> bool:
        return (self.number if node is None else node) in self.control.shards[self.shard(hashed)]

    def unknown(self, texts: set[str]) -> frozenset[Term]:
        new = {text for text in texts if text not in self.known and text not in self.control.exceptions}
        return frozenset(Term(text, self.shard(hash16(text))) for text in new)

    def offer(self, event: ev.Piece | ev.Marker, edges: set[Edge]) -> tuple[Incarnation, int, tuple[int, int, bool]]:
        """Take in what a source sends; return the acknowledgement, which has a number of its own."""
        mine = {edge for edge in edges if self.mine(hash16(edge[0])) or self.mine(hash16(edge[2]))}
        if isinstance(event, ev.Piece):
            texts = {text for edge in mine for text in edge}
            event = ev.Piece(
                **{name: getattr(event, name) for name in event.__slots__} | {"unknown": self.unknown(texts)}
            )
        self.handle(event, mine)
        self.acks += 1
        return self.me, self.acks, position(self.node.intakes.get(event.stream), event.partition)

    def read(self, sn: Sn, vts: Vts, index: int, shards: list[int]) -> Any:
        """Return the edges of some shards at an SN and the texts of their hashes; None while this node lacks part."""
        if not self.node.can_serve(vts, index):
            return None
        outs = self._fold(sn, 0, shards)
        ins = self._fold(sn, 1, shards)
        texts = {hashed: text for hashed, text in self.disk.claims.items() if self.shard(hashed) in shards}
        return outs, ins, texts

    def _fold(self, sn: Sn, side: int, shards: list[int]) -> set[IdEdge]:
        self._note_visible()
        timeline = [(change.sn, change.gone, change.come) for change in self.disk.changes.values()]
        for key, sides in self.disk.batches.items():
            if key in self.disk.visible:
                timeline.append((self.disk.visible[key], frozenset(), sides[side]))
        found: set[IdEdge] = set()
        for _, gone, come in sorted((one for one in timeline if one[0] <= sn), key=lambda one: one[0]):
            found = (found - gone) | come
        end = 0 if side == 0 else 2
        return {edge for edge in found if self.shard(edge[end][0]) in shards}

    def _note_visible(self) -> None:
        """Keep from which SN on stream batches are seen: the control state may forget it once it is long ago."""
        for key in self.disk.batches.keys() - self.disk.visible.keys():
            stream = self.control.streams.get(key[0])
            if stream is not None and (sn := visible_at(self.control, stream, key[1])) is not None:
                self.disk.visible[key] = sn

    def _alive(self, happens: Callable[[], None]) -> Callable[[], None]:
        """Return what happens only if this life of the node has not ended by then."""
        me = self.me
        return lambda: happens() if self.is_alive and self.me == me else None

    def _pulse(self) -> None:
        self.handle(ev.Settled(self.control.index))  # Changes are on disk as they are applied.
        elapsed = max(1, round((self.agenda.now - self.pulsed) / (PULSE * self.drift)))
        self.pulsed = self.agenda.now
        self.handle(ev.Pulse(self.rng.getrandbits(40), min(elapsed, self.cluster.quiet_pulses)))
        self.agenda.after(PULSE * self.drift * self.rng.uniform(0.9, 1.1), self._alive(self._look))

    def _look(self) -> None:
        """Pulse if anybody waits for that, or after some time anyhow."""
        waited = self.agenda.now - self.pulsed
        if waited >= PULSE * self.drift * self.cluster.quiet_pulses or is_waited_for(self.node):
            self._pulse()
        else:
            self.agenda.after(PULSE / 4, self._alive(self._look))

    def _later(self, happens: Callable[[], None]) -> None:
        """Let the disk do something, in the order in which it is asked."""
        self.free_at = max(self.free_at, self.agenda.now) + self.rng.uniform(0.1, 3)
        self.agenda.after(self.free_at - self.agenda.now, self._alive(happens))

    def _do(self, action: act.Action, event: ev.Event, edges: set[Edge] | None) -> None:
        match action:
            case act.Send(node=target, body=body):
                peer, message = self.peers[target], Message(self.me, body)
                self.network.send(self.number, target, lambda: peer.receive(message))
            case act.SaveVote(term=term, vote=vote):
                self.disk.term, self.disk.vote = term, vote
            case act.SaveEntries(after=after, entries=entries, high=high):
                base = self.disk.control.index if self.disk.control else 0
                self.disk.entries = self.disk.entries[: after - base] + entries
                self.disk.high = high
            case act.SaveControl():
                self._save_control(action)
            case act.TakePiece(stream=stream):
                assert isinstance(event, ev.Piece)
                self.staged.setdefault((stream, event.batch), set()).update(edges or ())
            case act.SealBatch():
                self._seal(action)
            case act.CompareTerms():
                self._later(lambda: self._compare(action))
            case act.Confirm(texts=texts):
                self.known |= texts
            case act.CollectState():
                self._later(lambda: self._collect(action))
            case act.InstallState():
                self._later(lambda: self._install(action))
            case act.Apply():
                self._apply(action)
            case act.Drop(record=Change(client=client, number=number)):
                self.dropped.add((client, number))
            case act.Expose(sn=sn, vts=vts):
                self._note_visible()
                self.tell(self.number, "expose", sn=sn, vts=vts)

    def _save_control(self, action: act.SaveControl) -> None:
        disk = self.disk
        disk.control, disk.voters, disk.entries, disk.high = action.control, action.voters, action.entries, action.high
        self.tell(self.number, "saved", index=action.control.index, is_jump=action.is_jump)
        if action.is_jump:
            for key in [key for key in disk.vts if not self.control.takes_in(key)]:
                disk.vts.pop(key)
                disk.offsets.pop(key)

    def _seal(self, action: act.SealBatch) -> None:
        stream, after, batch = action.stream, action.after, action.batch
        numbers = sorted(number for name, number in self.staged if name == stream and number <= batch)
        edges = {number: self.staged.pop((stream, number)) for number in numbers}
        self.tell(self.number, "seal", stream=stream, after=after, batch=batch, edges=edges)
        texts = {text for some in edges.values() for edge in some for text in edge}
        sides = {number: self._sides(some) for number, some in edges.items()}
        self._later(lambda: self._insert(action, sides, texts))

    def _sides(self, edges: set[Edge]) -> tuple[frozenset[IdEdge], frozenset[IdEdge]]:
        """Return the out-edges and the in-edges of this node's shards, encoded."""
        ids: dict[Edge, IdEdge] = {edge: tuple(self.encode(text) for text in edge) for edge in edges}  # type: ignore
        outs = frozenset(ids[edge] for edge in edges if self.mine(hash16(edge[0])))
        return outs, frozenset(ids[edge] for edge in edges if self.mine(hash16(edge[2])))

    def _insert(self, action: act.SealBatch, batches: dict[int, Any], texts: set[str]) -> None:
        stream = self.control.streams.get(action.stream)
        there = self.disk.vts.get(action.stream, 0)
        if stream is None or stream.gone is not None or not action.after <= there < action.batch:
            return
        self.disk.batches |= {(action.stream, number): sides for number, sides in batches.items() if number > there}
        self._note_visible()
        self.disk.vts[action.stream] = action.batch
        self.disk.offsets[action.stream] = action.offsets
        self.disk.known |= {text for text in texts if text not in self.control.exceptions}
        self.tell(self.number, "insert", stream=action.stream, batch=action.batch, offsets=action.offsets)
        self.handle(ev.Inserted(action.stream, action.batch))

    def _compare(self, action: act.CompareTerms) -> None:
        texts = sorted(action.texts)
        equal = frozenset(text for text in texts if self.disk.claims.setdefault(hash16(text), text) == text)
        self.handle(ev.TermsCompared(action.asker, action.view, equal, action.texts - equal))

    def _collect(self, action: act.CollectState) -> None:
        def theirs(hashed: int) -> bool:
            return self.mine(hashed, action.asker)

        batches = {
            key: (
                frozenset(edge for edge in outs if theirs(edge[0][0])),
                frozenset(edge for edge in ins if theirs(edge[2][0])),
            )
            for key, (outs, ins) in self.disk.batches.items()
        }
        claims = {hashed: text for hashed, text in self.disk.claims.items() if theirs(hashed)}
        known = {text for text in self.known if theirs(hash16(text))}
        state = action.state
        payload = (claims, known, batches, dict(self.disk.visible), dict(self.disk.changes))
        full = State(state.since, state.vts, state.offsets, state.is_in, payload)  # type: ignore[arg-type]
        self.handle(ev.StateCollected(action.asker, full))

    def _install(self, action: act.InstallState) -> None:
        synced = [state for node, state in sorted(action.states.items()) if state.is_in]
        donors = {
            shard: [
                state
                for node, state in sorted(action.states.items())
                if state.is_in and node in self.control.with_role(Role.IN) and node in nodes
            ]
            for shard, nodes in enumerate(self.control.shards)
            if self.number in nodes
        }
        claims = {hashed: text for hashed, text in self.disk.claims.items() if not donors[self.shard(hashed)]}
        for states in donors.values():
            for state in states:
                for hashed, text in state.payload[0].items():  # type: ignore[index]
                    if donors[self.shard(hashed)] is states:
                        claims.setdefault(hashed, text)
        for state in action.states.values():
            for text in sorted(state.payload[1]):  # type: ignore[index]
                if text not in self.control.exceptions:
                    claims.setdefault(hash16(text), text)
        self.disk.claims = claims
        live = {stream.key for stream in self.control.live_streams}
        for state in action.states.values():
            self.disk.changes = {**state.payload[4], **self.disk.changes}  # type: ignore[index]
        self.sn_of |= {change.key: change.sn for change in self.disk.changes.values()}
        if synced:  # What streams brought that are gone: nobody sends it any more.
            mine = self.disk.batches
            self.disk.batches = {key: sides for key, sides in mine.items() if key[0] in live}
            for key in sorted({key for state in synced for key in state.payload[2] if key[0] not in live}):  # type: ignore
                self.disk.batches[key] = mine.get(key, (frozenset(), frozenset()))
                self._take_over(*key, synced)
        for stream, batch in action.vts.items():
            if batch <= self.disk.vts.get(stream, 0):
                continue
            after = self.disk.vts.get(stream, 0)
            keys = {key for state in synced for key in state.payload[2]}  # type: ignore[index]
            for number in sorted(number for name, number in keys if name == stream and after < number <= batch):
                self._take_over(stream, number, synced)
            self.disk.vts[stream] = batch
            self.disk.offsets[stream] = action.offsets[stream]
            self.staged = {key: edges for key, edges in self.staged.items() if key[0] != stream}
        self.tell(self.number, "install", vts=action.vts, claims=len(claims))
        self.handle(ev.StateInstalled(action.since, action.vts, action.offsets))

    def _take_over(self, stream: str, number: int, states: list[State]) -> None:
        """Put what other nodes have of a stream batch on disk."""
        sides = [state.payload[2].get((stream, number), (frozenset(), frozenset())) for state in states]  # type: ignore
        mine = self.disk.batches.get((stream, number), (frozenset(), frozenset()))
        self.disk.batches[stream, number] = (
            mine[0].union(*(outs for outs, _ in sides)),
            mine[1].union(*(ins for _, ins in sides)),
        )
        seen = [sn for state in states if (sn := state.payload[3].get((stream, number))) is not None]  # type: ignore
        if seen:
            self.disk.visible.setdefault((stream, number), seen[0])

    def _forget_gone(self, key: str) -> None:
        """Drop what came of a stream beyond its end, once it is gone."""
        stream = self.control.streams[key]
        if stream.gone is None:
            return
        last = stream.last_batch or 0
        kept = self.disk.batches.items()
        self.disk.batches = {(name, number): sides for (name, number), sides in kept if name != key or number <= last}
        self.staged = {(name, number): edges for (name, number), edges in self.staged.items() if name != key}
        self.disk.vts.pop(key, None)
        self.disk.offsets.pop(key, None)

    def _apply(self, action: act.Apply) -> None:
        record = action.entry.record
        self.tell(self.number, "apply", index=action.index, entry=action.entry, sn=action.sn)
        if isinstance(record, EndStream | DropStream):
            self._forget_gone(record.stream)
        if not isinstance(record, Change):
            return
        assert action.sn is not None
        gone, come = edges_of(record.payload)
        encoded = [frozenset(tuple(map(self.encode, edge)) for edge in edges) for edges in (gone, come)]
        key = record.client, record.number
        self.disk.changes.setdefault(action.index, SavedChange(action.sn, *encoded, key))  # type: ignore[arg-type]
        self.sn_of[key] = action.sn
        for edge in (*gone, *come):
            for text in edge:
                if text not in self.control.exceptions:
                    self.known.add(text)
                    if self.mine(hash16(text)):
                        self.disk.claims.setdefault(hash16(text), text)
