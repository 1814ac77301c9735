"""ClusterNode: one node of a cluster, put together: the protocol's host, the store, and the ways to the other nodes."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from wukongs.cluster.adding import Meeting, added_to
from wukongs.cluster.backups import CHECKPOINT, PART, Backups
from wukongs.cluster.boot import (
    FIRST_DISK,
    HELLO,
    KNOWS,
    LEASES,
    SAY_S,
    check_shape,
    claimed_twice,
    hello_handler,
    known_by,
    version_of,
)
from wukongs.cluster.changes import STAGE, Changes
from wukongs.cluster.checkpoints import Checkpoints
from wukongs.cluster.claims import CLAIM, Claims
from wukongs.cluster.cluster_backend import ClusterBackend
from wukongs.cluster.collecting import STATE
from wukongs.cluster.counting import COUNTS, Counting
from wukongs.cluster.deliveries import NodeDeliveries
from wukongs.cluster.distant_query import OF_QUERY, query_handler
from wukongs.cluster.donating import COLLECT, HALT, LEND, Donor
from wukongs.cluster.feeding import FEED
from wukongs.cluster.health import (
    INJECTOR_S,
    PROTOCOL_S,
    SOCKET_MIN_S,
    WAITING_WORKERS_S,
    WORKERS_S,
    Advance,
    Echo,
    Health,
    Part,
)
from wukongs.cluster.homes import Placing
from wukongs.cluster.host import PULSE_S, Host
from wukongs.cluster.idleness import IdleWatch
from wukongs.cluster.intake import Intake
from wukongs.cluster.joining import Joiner
from wukongs.cluster.leases import LEASE, ReadLeases
from wukongs.cluster.made_feeds import MadeFeeds
from wukongs.cluster.members import is_silent, left_s
from wukongs.cluster.node_disk import NodeDisk
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.pushing import PUSH, Writers
from wukongs.cluster.reads import owner
from wukongs.cluster.reads.reach import OwnersReach
from wukongs.cluster.reads.traffic import Owners
from wukongs.cluster.relaying import OF_CLIENT, Keeping, client_handler, open_client
from wukongs.cluster.resuming import resume, scanned
from wukongs.cluster.settling import CLOSED, SETTLE, Settling
from wukongs.cluster.slices import SLICES, SlicePuller
from wukongs.cluster.stream_following import TO_STORE, StreamFollowing
from wukongs.cluster.times import packed, unpacked
from wukongs.cluster.turns import HOLD, Turns
from wukongs.engine import engine_over
from wukongs.errors import DataError, NodeUnavailable, StreamError, WukongsError
from wukongs.live.embedded import stats_of
from wukongs.live.header import PROTOCOL_VERSION, SPOKEN
from wukongs.live.journal import NoJournal
from wukongs.protocol import leasing
from wukongs.protocol.control import Control, genesis
from wukongs.protocol.messages import Append, Appended, Body, Incarnation, Message, Vote
from wukongs.protocol.records import AddNode, Role, Voter, Voters, host_of
from wukongs.protocol.state import Cluster, Kept, Node
from wukongs.query.execution.prepared import PreparedQueries
from wukongs.remote.client import RemoteEngine
from wukongs.settings import Settings
from wukongs.wire.answering import Quick
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.network import Network
from wukongs.wire.packets import Handler, Packet
from wukongs.wire.protocol_codec import message_in, message_packet
from wukongs.wire.sharding import SPLIT_PREDICATES, ShardMap
from wukongs.wire.trust import Trust

log = logging.getLogger("wukongs")

SILENCE_PULSES_MAX = 100
"""A node that says nothing for two seconds is taken out, if others hold its shards."""
QUIET_PULSES = 8
"""A leader that nobody waits for says every 160 ms that it is there, other nodes every 320 ms."""
ELECTION_PULSES = 20
"""A voter that hears no leader for 400 to 800 ms stands for election."""

WAITS = (
    (FEED, STAGE, CLOSED, HALT, LEND, COLLECT, PART, CHECKPOINT, LEASE, *owner.ANSWERED),
    (PUSH, OF_QUERY, HOLD),
    (SETTLE,),
    (OF_CLIENT,),
)
"""Kinds of requests, from the lowest level that waits for others up.

Feeding a node waits for its claims, and for the data that it takes over. A turn waits for what the leader follows: that
stages and reads. Reading, staging and halting at an SN wait for the slices that the node needs. A push waits for the
feeds. A call of another node's query waits for its reads and records. Settling waits for firings, which read, and whose
callbacks may push. A client inside a node may ask for all of that, and waits for windows."""

KINDS = (*(kind for kinds in WAITS for kind in kinds), CLAIM, COUNTS, SLICES, STATE, TO_STORE)
"""All kinds of requests that a node answers, but HELLO."""


LEASE_SHARE, LEASE_MAX_S = 0.95, 10.0
"""A lease is this share of the time after which a silent node is taken out, and no longer than so many seconds. A
write waits for both of these where a node is lost, so a shorter lease would let none return earlier."""


def lease_ms(shape: ClusterShape, pulse_s: float) -> int:
    """Return how long a lease of the nodes of a cluster is."""
    return int(1000 * min(LEASE_SHARE * shape.silence_pulses_max * pulse_s, LEASE_MAX_S))


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """The settings that all nodes of a cluster share."""

    node_count: int
    replica_count: int = 1
    split: Sequence[str] = SPLIT_PREDICATES

    peers: Sequence[str] = ()
    """Where the nodes find each other, in the order of their numbers, if that is fixed."""

    silence_pulses_max: int = SILENCE_PULSES_MAX
    starting_pulses_max: int | None = None
    """None: the same."""

    spare_count: int = 0
    """So many of the nodes, the last ones, hold nothing at first."""

    replace_pulses_max: int | None = None
    """A spare node takes the place of one that is gone for longer; None: it does not by itself."""

    def told(self, settings: Settings) -> str:
        """Return what has to be the same on all nodes, in words."""
        return f"version {PROTOCOL_VERSION}, {self.told_of_data(settings)}, peers {list(self.peers)}"

    def told_of_data(self, settings: Settings) -> str:
        """Return what has to be the same whenever a data folder is opened, in words."""
        parts = {
            "nodes": self.node_count,
            "replicas": self.replica_count,
            **({"spares": self.spare_count} if self.spare_count else {}),
            "split_predicates": sorted(self.split),
            "hash_bits": settings.hash_bits,
        }
        return ", ".join(f"{name} {value}" for name, value in parts.items())

    @property
    def genesis(self) -> Control:
        """The control state before the first record."""
        return genesis(self.node_count, self.replica_count, SHARD_COUNT, self.spare_count)

    @property
    def cluster(self) -> Cluster:
        # A quiet leader counts the silence of a node from its next pulse on: that is not to be waited for on top.
        quiet_pulses = max(1, min(QUIET_PULSES, self.silence_pulses_max // 10))
        return Cluster(
            self.node_count,
            self.replica_count,
            silence_pulses_max=max(1, self.silence_pulses_max - quiet_pulses),
            starting_pulses_max=self.starting_pulses_max,
            election_pulses=ELECTION_PULSES,
            quiet_pulses=quiet_pulses,
            spare_count=self.spare_count,
            replace_pulses_max=self.replace_pulses_max,
            hosts=tuple(map(host_of, self.peers)),
        )


class ClusterNode:
    """engine: what clients of this node use. The node takes part from `start` on.

    Raises SettingsError (an address that cannot be bound)."""

    def __init__(
        self,
        me: Incarnation,
        shape: ClusterShape,
        address: str,
        settings: Settings,
        *,
        pulse_s: float = PULSE_S,
        trust: Trust | None = None,
        disk: NodeDisk | None = None,
    ) -> None:
        self.me = me
        self._shape = shape.told(settings)
        self._knows = {me.node: frozenset(KNOWS)}
        """The features (boot.KNOWS) of the nodes that have introduced themselves."""
        self._disk, self._recorded = disk, None if disk is None else scanned(disk, shape.genesis)
        shard_map = ShardMap.placed(shape.genesis.shards, shape.node_count, shape.split)
        store = self.store = NodeStore(settings, me.node, shard_map)
        # Loads and updates name new blank nodes by their number: no other node, and no other life of this one, has it.
        store.core.load_count = (me.boot << 10 | me.node) << 24
        recorded = self._recorded
        host = self.host = Host(
            replace(shape.cluster, lease_ms=lease_ms(shape, pulse_s)),
            me,
            store,
            self._tell,
            pulse_s,
            disk,
            Kept() if recorded is None else recorded.first,
            is_installed=shape.genesis.holds(me.node)
            and (me.disk == FIRST_DISK if recorded is None else not recorded.facts),
        )
        handlers = self._handlers = dict[str, Handler]()
        quick: dict[str, Quick] = {}
        network = self.network = Network(
            me,
            address,
            handlers,
            self._told,
            trust=trust,
            introduction={"shape": self._shape, "resumes": recorded is not None, "speaks": SPOKEN, "knows": KNOWS},
            admit=self._admit,
            open_kinds=(HELLO,),
            failed=host.fail,
            exhausted=self._exhausted,
            quick=quick,
            waits=WAITS,
        )
        claims = Claims(host, store, network)
        placing = Placing(host, store)
        self._reach = OwnersReach(store.terms, Owners(network, placing.now), claims.keep)
        self._puller = SlicePuller(store, network, placing.now, host.fail)
        self.intake = Intake(host, store, claims)
        self._joiner = Joiner(host, store, self.intake, network, has_folder=disk is not None)
        self._donor = Donor(host, store, self.intake)
        bytes_max = settings.checkpoint_bytes
        self.deliveries = None if disk is None else NodeDeliveries(disk)
        self.checkpoints: Checkpoints | None = None
        if disk is not None and self.deliveries is not None:
            store.core.journal = NoJournal(self.deliveries, self.deliveries.begin)
            self.checkpoints = Checkpoints(disk, store, self._donor, self.deliveries, bytes_max)
        self._changes = Changes(host, store, claims, network)
        writers = Writers(host, store, self.intake, network)
        store.injector.made.feed_by(MadeFeeds(host, store, writers))
        self._idle_watch = IdleWatch(host, store, writers)
        self.health_parts = self._parts(pulse_s * shape.silence_pulses_max, settings)
        self._health = Health(me.node, self.health_parts, host.end)
        settling = self._settling = Settling(host, store, network)
        prepared = PreparedQueries(settings.prepared_queries_max)
        leases = ReadLeases(host, store, network, self._knows_of)
        counting = self.counting = Counting(
            host, store, network, network.is_connected, partial(_facts_of, store, prepared, disk), network.stats
        )
        backups = self.backups = Backups(host, store, network, self.checkpoints)
        turns = Turns(host, network)
        self.backend = ClusterBackend(
            host,
            store,
            claims,
            self._changes,
            writers,
            settling,
            counting,
            backups,
            turns,
            network,
            network.stats,
            lambda node: self._knows.get(node, frozenset()),
            leases,
        )
        self._stream_following = StreamFollowing(
            host, store, self.backend.following, self._changes, turns, network, placing.now
        )
        self._meeting = Meeting(network, self._shape)
        self.keeping = Keeping(store.query)
        self.engine = engine_over(store.core, store.injector, prepared, self.backend)
        reads, quick_reads = owner.handlers(store.core, partial(self._wait_for_sn, is_asked=True))
        quick.update(quick_reads)
        handlers.update(  # they ask by the network that serves them
            {
                **reads,
                **settling.handlers(),
                **self._donor.handlers(),
                HELLO: hello_handler(
                    self._life_of,
                    self._shape,
                    self._is_covered_without,
                    self._is_heard,
                    self._is_out,
                    lambda: added_to(self.host.node.control),
                ),
                CLAIM: claims.answer,
                FEED: self.intake.answer,
                PUSH: writers.answer,
                SLICES: self._puller.answer,
                STAGE: self._changes.answer,
                TO_STORE: self._stream_following.answer,
                HOLD: turns.answer,
                COUNTS: counting.answer,
                PART: backups.answer_part,
                CHECKPOINT: backups.answer_checkpoint,
                LEASE: leases.answer,
                OF_QUERY: query_handler(store.query),
            }
        )

    @property
    def address(self) -> str:
        """Where the other nodes reach this one."""
        return self.network.address

    def start(
        self,
        addresses: Mapping[int, str],
        public_keys: Mapping[int, str] | None = None,
        added: Mapping[int, AddNode] = MappingProxyType({}),
    ) -> None:
        """Take part. addresses, public_keys (if there are keys): of all nodes, by their numbers; added: the nodes that
        were added meanwhile, as far as others have said so.

        Raises CorruptionError, StorageError (the data folder)."""
        if self._disk is not None:
            if self._recorded is not None and self.deliveries is not None:
                resume(self._disk, self._recorded, self.host, self.store, self.intake, self.deliveries)
            self._disk.begin()
        self._meeting.begin(addresses, public_keys, self.host.node.control, added)
        self.store.start(self._reach, self.backend)
        self._begin_views()
        self._puller.start()
        self._stream_following.start()
        on_pulse = [
            self._donor.pulse,
            self._changes.pulse,
            self.backups.pulse,
            self._meet,
            self._stream_following.pulse,
            self._begin_views,
        ]
        if self.deliveries is not None:
            on_pulse.append(self.deliveries.pulse)
        self.host.delegate(self._joiner.begin, on_pulse=on_pulse)
        if not self.host.is_installed:
            self._joiner.start()
        self.host.start()
        self._idle_watch.start()
        self._health.start()
        if self.checkpoints is not None:
            self.checkpoints.start()

    def serve_clients(self, handlers: Mapping[str, Handler]) -> None:
        """Answer the clients inside other nodes. handlers: of the service of this node."""
        self._handlers[OF_CLIENT] = client_handler(handlers, self.keeping.keep)

    def client(self, handlers: Mapping[str, Handler]) -> RemoteEngine:
        """Return a client inside this node, which asks it and the others; whoever asks closes it."""
        return open_client(self.network, handlers, lambda: self.backend.ingest_addresses)

    def _meet(self) -> None:
        self._meeting.pulse(self.host.node)

    def wait_until_ready(self, timeout_s: float, when_spare: Callable[[], object] = lambda: None) -> None:
        """Wait until the majority log works and reads may begin. A node that was there before waits until it is in sync
        again and votes: from then on another node may go. when_spare: is called if this node has to wait for a place.

        Raises NodeUnavailable."""
        deadline, is_new = time.monotonic() + timeout_s, False
        try:
            node = self._wait_until(
                lambda node: node.exposed is not None and node.control.life != "", deadline, "a majority of the nodes"
            )
            if node.is_spare:
                when_spare()
                what = "another node's place, which it is to take"
                node = self.host.wait_until(lambda node: not node.is_spare, left_s(deadline), what)
                is_new = True
            if self.me.disk or is_new:
                node = self._wait_until(
                    lambda node: node.role is Role.IN and _has_vote(node),
                    deadline,
                    "what it takes over of the other nodes",
                )
        except NodeUnavailable as error:
            said = [f"node {number} says: {refusal}" for number, refusal in sorted(self.network.refusals().items())]
            raise NodeUnavailable("; ".join([str(error), *said])) from error
        if self._recorded is not None:
            self._come_back(deadline)
        elif self.me.disk or is_new:
            assert node.exposed is not None, node.exposed
            self._wait_for_sn(packed(node.exposed), left_s(deadline))

    def _begin_views(self) -> None:
        if self.host.knows_what_it_had:
            self.store.begin_views()

    def _come_back(self, deadline: float) -> None:
        """Wait until everything is readable that was readable before this node was started again."""
        while True:
            try:
                return self._settling.settle(left_s(deadline))
            except (NodeUnavailable, StreamError) as error:  # others are perhaps still starting
                self.host.check()
                if left_s(deadline) <= SAY_S:
                    raise
                log.warning("node %d: %s", self.me.node, error)

    def _wait_until(self, holds: Callable[[Node], bool], deadline: float, what: str) -> Node:
        """Wait as Host.wait_until; say now and then that it does."""
        while (left := left_s(deadline)) > SAY_S:
            try:
                return self.host.wait_until(holds, SAY_S, what)
            except NodeUnavailable as error:
                self.host.check()
                log.warning("%s", error)
        return self.host.wait_until(holds, left, what)

    def close(self) -> None:
        """Stop. Closing twice is allowed."""
        self._health.close()
        self._idle_watch.close()
        self.keeping.close()
        if self.checkpoints is not None:
            self.checkpoints.close()
        self.host.close()
        self._joiner.close()
        self._puller.close()
        self.network.close()
        self._meeting.close()
        self.store.close()
        self._stream_following.close()
        if self._disk is not None:
            self._disk.close()

    def _parts(self, silence_s: float, settings: Settings) -> dict[str, Part]:
        """Return what this node's health is made of. silence_s: how long others wait for a word of it."""
        network, injector = self.network, self.store.injector

        def workers(level: int) -> Part:
            least_s = WAITING_WORKERS_S if level else WORKERS_S
            return Part(Advance(lambda: network.progress()[level]), max(silence_s, least_s))

        firing_s = settings.query_timeout_s + INJECTOR_S if settings.query_timeout_s > 0 else math.inf
        return {
            "the thread of the socket for other nodes": Part(Echo(network.call), max(SOCKET_MIN_S, silence_s / 2)),
            "the protocol's thread": Part(Echo(self.host.call), max(silence_s, PROTOCOL_S)),
            "the injector": Part(Advance(lambda: injector.progress), max(silence_s, firing_s)),
            **{f"each worker of level {level}": workers(level) for level in range(len(network.progress()))},
        }

    def _life_of(self, node: int) -> Incarnation | None:
        """Return the newest life of a node that this one has heard of."""
        state = self.host.node
        report = state.progress.latest.get(node)
        known = [state.heard.get(node), None if report is None else report.incarnation]
        if self._disk is not None and (disk := self._disk.met(node)) is not None:
            known.append(Incarnation(node, disk, 0))
        return max((life for life in known if life is not None), default=None)

    def _admit(self, life: Incarnation, known: Incarnation | None, introduction: Packet) -> None:
        """Note what another life of a node knows, or raise an error if it may not be let in after the one that was let
        in before."""
        self._check_life(life, known, introduction)
        self._knows = {**self._knows, life.node: known_by(introduction.fields)}

    def _check_life(self, life: Incarnation, known: Incarnation | None, introduction: Packet) -> None:
        """A life counts if the log has it, if there was none before, or if the one before is not heard any more."""
        version_of(life.node, introduction.fields)
        check_shape(life.node, introduction.fields.get("shape"), self._shape)
        state = self.host.node
        disk = state.control.member(life.node).disk
        if life.disk < disk:
            raise NodeUnavailable(f"node {life.node} was started anew: this is an earlier life of it. End it")
        if life.disk == disk and introduction.fields.get("resumes"):
            return  # it holds the folder of the earlier life, which is gone
        seen = state.watch.seen.get(life.node)
        is_new_to_the_log = known is not None and known.disk >= disk
        if is_new_to_the_log and seen is not None and seen[0] < life and not is_silent(state, life.node):
            raise claimed_twice(life.node)

    def _is_heard(self, node: int) -> bool:
        return not is_silent(self.host.node, node)

    def _is_out(self, voter: Voter) -> bool:
        return self.host.node.control.role_of(voter) is Role.OUT

    def _is_covered_without(self, node: int) -> bool:
        return self.host.node.control.is_covered_without(node)

    def _knows_of(self, node: int) -> frozenset[str] | None:
        """Return what a node knows, None if it has not introduced itself."""
        return self._knows.get(node)

    def _tell(self, node: int, body: Body) -> None:
        if isinstance(body, Append | Appended | Vote) and LEASES not in self._knows.get(node, ()):
            body = leasing.without(body)
        self.network.send(node, message_packet(Message(self.me, body)))

    def _told(self, sender: Incarnation, packet: Packet) -> None:
        message = message_in(packet)
        if message.sender != sender:
            raise DataError(f"a message of {message.sender} came from {sender}")
        self.host.receive(message)

    def _exhausted(self, kind: str, error: WukongsError) -> None:
        """End this node when it cannot do its part of a change any more: else it would go on to say that it is there,
        and all changes would wait for it. A read that found no memory is the reader's trouble."""
        if kind not in (*owner.ANSWERED, OF_QUERY, OF_CLIENT):
            self.host.fail(
                NodeUnavailable(f"node {self.me.node}: {error}: it ends, so that the others go on without it")
            )

    def _wait_for_sn(self, sn: int, timeout_s: float, is_asked: bool = False) -> None:
        """is_asked: another node reads here."""
        try:
            self.store.wait_for(unpacked(sn), timeout_s)
            if is_asked:
                self.store.check_holds(unpacked(sn))
        except Exception as error:
            raise NodeUnavailable(f"node {self.me.node} has not come to SN {sn}: {error}") from error


def _facts_of(store: NodeStore, prepared: PreparedQueries, disk: NodeDisk | None) -> dict[str, Any]:
    """Return counts and sizes of what a node holds and runs, as JSON."""
    with store.core.lock:
        views = store.views.registered()
    found = stats_of(store.joined, prepared, disk)
    return found | {"views": {view.name: view.stats() for view in views}} if views else found


def _has_vote(node: Node) -> bool:
    """Whether a node votes again, by a committed record; in a large cluster only some nodes ever do."""
    log = node.log
    if any(isinstance(entry.record, Voters) for entry in log.behind(log.commit)):
        return False
    return node.me.voter in log.voters or node.me.node not in {voter.node for voter in log.first_voters}
