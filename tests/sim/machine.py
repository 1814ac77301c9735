"""One simulated node: the product's host (wukongs/cluster/host.py), without its thread, on a disk, a store of edges and
a network that are as plain as possible.

A crash may come between any two actions of a step. What was safe before it stays, perhaps also some of what was saved
after that, in order; all else is gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tests.sim.agenda import Agenda, Network
from tests.sim.data import Edge, Id, IdEdge, edges_of, hash16
from tests.sim.homes import Homes
from wukongs.cluster.host import Applied, Dropped, Errand, Host
from wukongs.protocol import actions as act
from wukongs.protocol import events as ev
from wukongs.protocol.control import THE_FIRST, Control, DeclaredStream, apply
from wukongs.protocol.messages import Body, Incarnation, Message, State
from wukongs.protocol.progress import HeldAnywhere
from wukongs.protocol.records import (
    LIVE,
    Change,
    Drained,
    DropStream,
    EndStream,
    MoveQuery,
    Record,
    RegisterQuery,
    Role,
    Sn,
    Vts,
)
from wukongs.protocol.sealing import position
from wukongs.protocol.state import Cluster, Kept, Node, with_saved
from wukongs.wire.packets import Packet

PULSE = 10.0
"""While somebody waits for what a node says next; else Cluster.quiet_pulses times as long."""


FETCHING = 5 * PULSE
"""How long a node that has lost its disk fetches before it asks to join."""
WRITING = 100.0
"""How long a node takes at most to write down what it has taken over."""
CLAIM_PATIENCE = 80.0
"""How long somebody waits for a claim."""


class Crash(Exception):
    """The process is gone in the middle of a step."""


class Rows(NamedTuple):
    """What is kept of a piece: its edges that have an end in a shard of the node."""

    stream: str
    batch: int
    edges: frozenset[Edge]


class SavedChange(NamedTuple):
    sn: Sn
    gone: frozenset[IdEdge]
    come: frozenset[IdEdge]
    key: tuple[str, int]


@dataclass
class Disk:
    """kept: of the protocol's log; visible: the first SN of stream batches, as far as it is known; changes: by index of
    their records; come: see homes.py; is_installed: whether it has what came before this generation of it, and what the
    records did that it has skipped; joined: the index of the record by which the stay began whose data it took over
    last; is_partial: whether these are not all written down yet, so that it is as good as lost if its node crashes."""

    generation: int
    boots: int = 0
    log: Kept = field(default_factory=Kept)
    vts: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, Any] = field(default_factory=dict)
    batches: dict[tuple[str, int], tuple[frozenset[IdEdge], frozenset[IdEdge]]] = field(default_factory=dict)
    visible: dict[tuple[str, int], Sn] = field(default_factory=dict)
    changes: dict[int, SavedChange] = field(default_factory=dict)
    come: dict[tuple[str, int], int] = field(default_factory=dict)
    is_installed: bool = True
    joined: int = 0
    is_partial: bool = False
    claims: dict[int, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)

    def kept(self) -> Kept:
        return replace(self.log, vts=dict(self.vts), offsets=dict(self.offsets))


@dataclass
class Held:
    """wukongs.cluster.host.Held."""

    oldest_sn: Sn | None
    oldest_firing: int | None
    delivered: int
    stands: tuple[Sn, ...] = ()


class Machine:
    """The computer of one node, on which the product's host runs: its disk, its store of edges, and its part of the
    network. number: the node's; tell: takes (node, kind, details) for the checkers and the story.

    It may crash at anything that the host asks of it."""

    is_lasting = True
    round_max = 1

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
        self.own = random.Random(f"readers {number} {rng.getstate()[1][:2]}")
        self.peers: list[Machine] = []
        self.disk = Disk(0, is_installed=number < cluster.node_count - cluster.spare_count)
        self.drift = rng.uniform(0.75, 1.3)
        self.crash_share = self.partial_share = 0.0
        self.clock_offset, self.clock_rate = 1000.0 * number, 1.0
        self.paused_until = 0.0
        self.is_alive = False
        self.start()

    def start(self) -> None:
        self.disk.boots += 1
        self.is_alive = True
        self.log, self.claims = self.disk.log, dict(self.disk.claims)
        self.unsafe: list[tuple[Kept, bool]] = []
        self.me = Incarnation(self.number, self.disk.generation, self.disk.boots)
        self.host = Host(
            self.cluster,
            self.me,
            self,
            self._send,
            PULSE * self.drift,
            disk=self,
            kept=self.disk.kept(),
            is_installed=self.disk.is_installed,
            draws=self.rng,
            clock=self.clock_s,
        )
        self.host.delegate(
            install=lambda action: self._later(lambda: self._install(action)),
            collect=lambda action: self._later(lambda: self._collect(action)),
        )
        if not self.disk.is_installed and self.node.role is Role.OUT:
            self.host.fetch_first()
            self.agenda.after(FETCHING, self.alive(lambda: self.handle(ev.Fetched())))
        self.stored: Control = self.log.control or self.cluster.genesis
        self.known = set(self.disk.known)
        self.staged: dict[tuple[str, int], set[Edge]] = {}
        self.homes = Homes(self)
        self.sn_of = {change.key: change.sn for change in self.disk.changes.values()}
        self.dropped: set[tuple[str, int]] = set()
        self.exposed: Sn | None = None
        self.left_at: Sn | None = None
        """What was exposed here when this node gave up its shards."""
        self.told: list[tuple[Sn, Vts]] = []
        self.fuse: int | None = None
        self.offered: set[ev.PieceOffered | ev.Marker] = set()
        self.acks = 0
        self.free_at = 0.0
        self.pulsed = self.agenda.now
        self.tell(self.number, "boot", disk=self.me.disk, boot=self.me.boot)
        self.agenda.after(self.rng.uniform(0, PULSE), self.alive(self._pulse))

    def clock_s(self) -> float:
        """The clock of leases: it runs at a rate of its own."""
        return (self.agenda.now + self.clock_offset) * self.clock_rate / 100

    @property
    def is_paused(self) -> bool:
        return self.paused_until > self.agenda.now

    def pause(self, duration: float) -> None:
        """Let the process stand still for a while: it hears what has come meanwhile when it goes on."""
        self.paused_until = self.agenda.now + duration

    def awake(self, happens: Callable[[], None]) -> Callable[[], None]:
        """Return what happens if this life of the node has not ended by then, and once it does not pause."""

        def happen() -> None:
            if self.is_paused:
                self.agenda.after(self.paused_until - self.agenda.now, life)
            else:
                happens()

        life = self.alive(happen)
        return life

    def crash(self, loses_disk: bool = False) -> None:
        self.is_alive, vts = False, self.disk.vts
        self._write(self.unsafe[: self.rng.randint(0, len(self.unsafe))])
        loses_disk |= self.disk.is_partial
        if loses_disk:
            self.disk = Disk(self.disk.generation + 1, is_installed=False)
        self.tell(self.number, "crash", loses_disk=loses_disk, vts=vts)

    @property
    def node(self) -> Node:
        return self.host.node

    @property
    def control(self) -> Control:
        return self.host.node.control

    @property
    def takes_part(self) -> bool:
        """Whether anybody is to wait for this node: it is no spare one, and there."""
        return not self.node.is_spare and not self.is_removed

    @property
    def is_removed(self) -> bool:
        """Whether others know that this node is there no more; it is perhaps told of that no more."""
        return any(peer.control.member(self.number).is_removed for peer in self.peers)

    def handle(self, event: ev.Event) -> None:
        """Let the host take in an event."""
        self._run(lambda: self.host.take(event))

    def _run(self, happens: Callable[[], object]) -> bool:
        """Let the host do something; return whether it has done it to the end."""
        if not self.is_alive:
            return False
        before = self.node
        self.fuse = self.rng.randint(0, 3) if self.rng.random() < self.crash_share else None
        try:
            happens()
        except Crash:
            self.told = []
            self.crash()
            return False
        self.fuse = None
        if self.node.progress.stable != before.progress.stable:
            self.tell(self.number, "stable", vts=self.node.progress.stable)
        told, self.told = self.told, []
        for sn, vts in told:
            self.tell(self.number, "expose", sn=sn, vts=vts)
            self.homes.expose(sn, vts)
        return True

    def _burn(self) -> None:
        """Crash, if it is time: between two things that a step asks for."""
        if self.fuse is not None:
            if self.fuse == 0:
                raise Crash
            self.fuse -= 1

    def receive(self, message: Message) -> None:
        if self.is_paused:
            self.agenda.after(self.paused_until - self.agenda.now, self.alive(lambda: self.receive(message)))
            return
        self.handle(ev.Received(message, self.host.now_ms()))

    def _send(self, target: int, body: Body) -> None:
        self._burn()
        peer, message = self.peers[target], Message(self.me, body)
        self.network.send(self.number, target, lambda: peer.receive(message))

    def encode(self, text: str) -> Id:
        return hash16(text), self.stored.exceptions.get(text, 0)

    def shard(self, hashed: int) -> int:
        return hashed * self.cluster.shard_count >> 16

    def mine(self, hashed: int, node: int | None = None) -> bool:
        return (self.number if node is None else node) in self.stored.shards[self.shard(hashed)]

    # --- claims -------------------------------------------------------------------------------------------------------

    def agree(
        self,
        texts: Iterable[str],
        then: Callable[[int | None], None],
        given_up: Callable[[], object] = lambda: None,
    ) -> None:
        """Have new texts agreed on; then: is called with the view under which they are, None if none is new; given_up:
        when it takes too long."""
        new = sorted({text for text in texts if text not in self.known and text not in self.control.exceptions})
        if not new:
            then(None)
            return

        is_settled = False

        def give_up() -> None:
            if not is_settled:
                given_up()
                self.handle(ev.ClaimGivenUp(number))

        def carry_out(errand: Errand | None) -> None:
            nonlocal is_settled
            self._burn()
            if isinstance(errand, act.AskClaim):
                for node in errand.nodes:
                    texts = [text for text in new if node in errand.shards[self.shard(hash16(text))]]
                    self._ask(errand, node, texts)
            elif isinstance(errand, act.SettleClaim):
                is_settled, view = True, errand.view
                self.known |= {text for text in new if text not in self.stored.exceptions}
                self.agenda.after(0, self.alive(lambda: then(view)))

        number = self.host.open_errand(carry_out)
        self.agenda.after(CLAIM_PATIENCE, self.alive(give_up))
        self.handle(ev.ClaimBegun(number, frozenset(self.shard(hash16(text)) for text in new)))

    def _ask(self, asked: act.AskClaim, node: int, texts: list[str]) -> None:
        """Show a node texts, and tell the host what it answers, or that it does not."""
        nodes, is_over, asker = frozenset({node}), False, self.me

        def ends(event: ev.Event) -> None:
            nonlocal is_over
            if not is_over and self.me == asker:  # a life hears nothing of what an earlier one asked
                is_over = True
                self.handle(event)

        def answered(view: int | None, refused: frozenset[str]) -> None:
            if view is None:
                ends(ev.ClaimUnanswered(asked.claim, asked.view, nodes))
            else:
                ends(ev.ClaimAnswered(asked.claim, view, nodes, refused))

        def answer(view: int | None, refused: frozenset[str]) -> None:
            self.network.send(node, self.number, lambda: answered(view, refused))

        peer = self.peers[node]
        self.network.send(self.number, node, lambda: peer.question(asked.view, texts, answer))
        late = self.alive(lambda: ends(ev.ClaimUnanswered(asked.claim, asked.view, nodes)))
        self.agenda.after(self.rng.uniform(20, 60), late)

    def question(self, view: int, texts: list[str], answer: Callable[[int | None, frozenset[str]], None]) -> None:
        """Take in what another node asks, or this one."""
        if not self.is_alive:
            return
        refused: frozenset[str] = frozenset()

        def compare(asked: act.CompareTerms) -> None:
            nonlocal refused
            claims = self.claims
            refused = frozenset(
                text
                for text in texts
                if text in self.stored.exceptions or claims.setdefault(hash16(text), text) != text
            )
            self.handle(ev.TermsCompared(asked.question, asked.view))

        def carry_out(errand: Errand | None) -> None:
            self._burn()
            if isinstance(errand, act.CompareTerms):
                self.agenda.after(self.rng.uniform(0.1, 3), self.alive(lambda: compare(errand)))
            elif isinstance(errand, act.AnswerClaim):
                answer(errand.view, refused)

        self.handle(ev.ClaimReceived(self.host.open_errand(carry_out), view))

    # --- what clients and sources ask ---------------------------------------------------------------------------------

    def submit(self, change: Change, texts: Iterable[str]) -> None:
        """Have a change's terms agreed on, and ask for its record."""

        def hand_in(_: int | None) -> None:
            outcome: Future[Applied] = Future()
            outcome.add_done_callback(decided)
            self._run(lambda: self.host.hand_in(ev.Submitted(change), outcome))

        def decided(outcome: Future[Applied]) -> None:
            if isinstance(outcome.exception(), Dropped):
                self.dropped.add((change.client, change.number))

        self.agree(texts, hand_in)

    def offer(
        self,
        event: ev.PieceOffered | ev.Marker,
        edges: Iterable[Edge],
        answer: Callable[[Incarnation, int, tuple[int, int, bool]], None],
        divided: Control,
    ) -> None:
        """Take in what a source sends, and acknowledge it; each acknowledgement has a number of its own. divided: the
        control state by which the source knows which edges this node is to have."""
        if not self.host.is_installed or event in self.offered or not self._may_take(divided):
            return  # It sends again.

        def goes_here(text: str) -> bool:
            return self.number in divided.shards[self.shard(hash16(text))]

        mine = frozenset(edge for edge in edges if goes_here(edge[0]) or goes_here(edge[2]))

        def take_in(view: int | None) -> None:
            self.offered.discard(event)
            made = event
            if isinstance(event, ev.PieceOffered):
                made = replace(event, view=view, piece=Rows(event.stream, event.batch, mine))
            if self._run(lambda: self.host.take_in(made)):
                self.acks += 1
                answer(self.me, self.acks, position(self.node.intakes.get(event.stream), event.partition))

        self.offered.add(event)
        self.agree({text for edge in mine for text in edge}, take_in, lambda: self.offered.discard(event))

    def _may_take(self, divided: Control) -> bool:
        """Whether this node knows all that was known where rows were divided, and the other way round its joining."""
        return max(self.control.member(self.number).since, self.disk.joined) <= divided.index <= self.control.index

    def read(self, sn: Sn, vts: Vts, shards: list[int]) -> Any:
        """Return the edges of some shards at an SN and the texts of their hashes; None while this node has not come to
        the SN."""
        streams = self.stored.streams
        if self.left_at is None or sn > self.left_at:
            for shard in shards:
                if self.number not in self.stored.shards[shard]:
                    return None
        has_all = (
            all(self.disk.vts.get(key, 0) >= batch for key, batch in vts.items() if streams[key].gone is None)
            if self.exposed is not None and self.exposed >= sn
            else False
        )
        if not has_all:
            return None
        outs = self._fold(sn, 0, shards)
        ins = self._fold(sn, 1, shards)
        texts = {hashed: text for hashed, text in self.claims.items() if self.shard(hashed) in shards}
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
            stream = self.stored.streams.get(key[0])
            if stream is not None and (sn := visible_at(self.stored, stream, key[1])) is not None:
                self.disk.visible[key] = sn

    def alive(self, happens: Callable[[], None]) -> Callable[[], None]:
        """Return what happens only if this life of the node has not ended by then."""
        me = self.me
        return lambda: happens() if self.is_alive and self.me == me else None

    def _pulse(self) -> None:
        passed, self.pulsed = self.agenda.now - self.pulsed, self.agenda.now
        if self._run(lambda: self.host.pulse(passed)):
            self.agenda.after(PULSE * self.drift * self.rng.uniform(0.9, 1.1), self.alive(self._look))

    def _look(self) -> None:
        """Pulse if it is time for that."""
        if self.is_paused:
            self.agenda.after(self.paused_until - self.agenda.now, self.alive(self._look))
        elif self.agenda.now - self.pulsed >= self.host.wait_s():
            self._pulse()
        else:
            self.agenda.after(PULSE / 4, self.alive(self._look))

    def _later(self, happens: Callable[[], None]) -> None:
        """Let the disk do something, in the order in which it is asked."""
        self.free_at = max(self.free_at, self.agenda.now) + self.rng.uniform(0.1, 3)
        self.agenda.after(self.free_at - self.agenda.now, self.alive(happens))

    # --- the host's disk ----------------------------------------------------------------------------------------------

    def taken(self, event: ev.PieceOffered | ev.Marker) -> None:
        pass  # Sources send rows again that were not inserted.

    def commit(self, index: int) -> None:
        pass

    def meet(self, node: int, disk: int) -> None:
        pass

    def add(self, packet: Packet, is_awaited: bool = True) -> None:
        raise AssertionError("no store of the simulator keeps anything so")

    def sync(self) -> None:
        self._burn()
        self._write(self.unsafe)
        self.unsafe, self.disk.claims = [], dict(self.claims)

    def _write(self, written: Sequence[tuple[Kept, bool]]) -> None:
        """Put what is not safe yet on the disk, up to some place in the order in which it was saved."""
        for log, is_jump in written:
            self.disk.log = log
            if is_jump:
                self.disk.is_installed = False
                for key in [key for key in self.disk.vts if log.control and not log.control.takes_in(key)]:
                    self.disk.vts.pop(key)
                    self.disk.offsets.pop(key)

    def settled(self, index: int) -> int:
        return index

    def save(self, action: act.SaveVote | act.SaveEntries | act.SaveControl) -> None:
        self._burn()
        is_jump = isinstance(action, act.SaveControl) and action.is_jump
        self.log = with_saved(self.log, action)
        self.unsafe.append((self.log, is_jump))
        if isinstance(action, act.SaveControl):
            self.tell(self.number, "saved", index=action.control.index, is_jump=is_jump)
            if is_jump:
                self.stored = action.control

    # --- the host's store ---------------------------------------------------------------------------------------------

    failure = None

    def take(self, piece: Rows) -> None:
        self._burn()
        self.staged.setdefault((piece.stream, piece.batch), set()).update(piece.edges)

    def seal(self, action: act.SealBatch) -> bool:
        self._burn()
        stream, after, batch = action.stream, action.after, action.batch
        numbers = sorted(number for name, number in self.staged if name == stream and number <= batch)
        edges = {number: self.staged.pop((stream, number)) for number in numbers}
        self.tell(self.number, "seal", stream=stream, after=after, batch=batch, edges=edges)
        texts = {text for some in edges.values() for edge in some for text in edge}
        sides = {number: self._sides(some) for number, some in edges.items()}
        self._later(lambda: self._insert(action, sides, texts))
        return False

    def expose(self, sn: Sn, vts: Vts) -> None:
        self._burn()
        self._note_visible()
        self.exposed = sn
        self.told.append((sn, vts))

    def stable(self, vts: Vts) -> None:
        pass

    def hold(self, held: HeldAnywhere) -> None:
        pass

    def held(self) -> Held:
        return Held(None, None, self.homes.delivered())

    @property
    def reached(self) -> Sn:
        return self.exposed or THE_FIRST

    def refused(self, index: int) -> None:
        return None

    def wait_for(self, sn: Sn, timeout_s: float) -> None:
        raise AssertionError("nobody waits in the simulator")

    def fail(self, error: BaseException) -> None:
        raise error

    def apply(self, index: int, record: Record, sn: Sn | None) -> None:
        self._burn()
        base = self.log.control.index if self.log.control else 0
        entry = self.log.entries[index - base - 1]
        assert entry.record == record, (entry, record)
        self.stored = apply(replace(self.stored, index=index - 1), entry)
        self.tell(self.number, "apply", index=index, entry=entry, sn=sn)
        if isinstance(record, EndStream | DropStream):
            self._forget_gone(record.stream)
        if isinstance(record, Drained) and record.node == self.number:
            self.left_at = self.exposed
        if isinstance(record, RegisterQuery | MoveQuery):
            self.homes.note()
        if isinstance(record, Change):
            assert sn is not None, record
            self._change(index, record, sn)

    def pass_over(self, record: Record) -> None:
        pass  # Changes are taken over by their indexes.

    def place(self, control: Control) -> None:
        if not self.host.is_installed and not control.holds(self.number):
            self.stored = control

    def _change(self, index: int, record: Change, sn: Sn) -> None:
        gone, come = edges_of(record.payload)
        encoded = [frozenset(tuple(map(self.encode, edge)) for edge in edges) for edges in (gone, come)]
        key = record.client, record.number
        self.disk.changes.setdefault(index, SavedChange(sn, *encoded, key))  # type: ignore[arg-type]
        self.sn_of[key] = sn
        for edge in (*gone, *come):
            for text in edge:
                if text not in self.stored.exceptions:
                    self.known.add(text)
                    if self.mine(hash16(text)):
                        self.claims.setdefault(hash16(text), text)

    def _sides(self, edges: set[Edge]) -> tuple[frozenset[IdEdge], frozenset[IdEdge]]:
        """Return the out-edges and the in-edges of this node's shards, encoded."""
        ids: dict[Edge, IdEdge] = {edge: tuple(self.encode(text) for text in edge) for edge in edges}  # type: ignore
        outs = frozenset(ids[edge] for edge in edges if self.mine(hash16(edge[0])))
        return outs, frozenset(ids[edge] for edge in edges if self.mine(hash16(edge[2])))

    def _insert(self, action: act.SealBatch, batches: dict[int, Any], texts: set[str]) -> None:
        stream = self.control.streams.get(action.stream)
        there = self.disk.vts.get(action.stream, 0)
        if stream is None or stream.gone is not None or there < action.after:
            return
        if action.batch <= there:  # an InstallState has brought it meanwhile, or a SealBatch that was under way then
            self.handle(ev.Inserted(action.stream, action.batch))
            return
        self.disk.batches |= {(action.stream, number): sides for number, sides in batches.items() if number > there}
        self._note_visible()
        self.disk.vts[action.stream] = action.batch
        self.disk.offsets[action.stream] = action.offsets
        self.disk.known |= {text for text in texts if text not in self.control.exceptions}
        self.tell(self.number, "insert", stream=action.stream, batch=action.batch, offsets=action.offsets)
        self.handle(ev.Inserted(action.stream, action.batch))

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
        claims = {hashed: text for hashed, text in self.claims.items() if theirs(hashed)}
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
        claims = {hashed: text for hashed, text in self.claims.items() if not donors[self.shard(hashed)]}
        for states in donors.values():
            for state in states:
                for hashed, text in state.payload[0].items():  # type: ignore[index]
                    if donors[self.shard(hashed)] is states:
                        claims.setdefault(hashed, text)
        for state in action.states.values():
            for text in sorted(state.payload[1]):  # type: ignore[index]
                if text not in self.control.exceptions:
                    claims.setdefault(hash16(text), text)
        self.claims, self.disk.claims = claims, dict(claims)
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
        self.disk.is_installed, self.disk.joined = True, action.since
        self.disk.is_partial = self.partial_share > 0 and self.own.random() < self.partial_share
        installed = ev.StateInstalled(action.since, action.vts, action.offsets, is_safe=not self.disk.is_partial)
        self._run(lambda: self.host.go_on(THE_FIRST, [installed]))
        if self.disk.is_partial:
            self.agenda.after(self.own.uniform(0, WRITING), self.alive(lambda: self._write_down(action.since)))

    def _write_down(self, since: int) -> None:
        if self.disk.joined == since:
            self.disk.is_partial = False
        self.handle(ev.StateSafe(since))

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
        stream = self.stored.streams[key]
        if stream.gone is None:
            return
        last = stream.last_batch or 0
        kept = self.disk.batches.items()
        self.disk.batches = {(name, number): sides for (name, number), sides in kept if name != key or number <= last}
        self.staged = {(name, number): edges for (name, number), edges in self.staged.items() if name != key}
        self.disk.vts.pop(key, None)
        self.disk.offsets.pop(key, None)


def visible_at(control: Control, stream: DeclaredStream, batch: int) -> Sn | None:
    """Return the first SN that has a stream batch, None if the log does not say yet."""
    joined = next((join.sn for join in control.joins if join.stream == stream.key and join.batch >= batch), None)
    if joined is not None or stream.counts is None:
        return joined
    tick = max(stream.end_of(batch), stream.counts + 1)
    if stream.group == LIVE:
        return Sn(tick, 0)
    return next(
        (advance.sn for advance in control.advances if advance.group == stream.group and advance.tick >= tick), None
    )
