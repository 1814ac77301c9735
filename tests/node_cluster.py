"""A cluster inside of one process: NodeStores, the protocol between them, and a network that delivers at once.

It stands for the sockets and threads of a node, as plainly as possible, and looks like an Engine to those who use it.
"""

from __future__ import annotations

import json
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np

import wukongs
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.node_stream import first_tick_of
from wukongs.live.continuous import QuerySource
from wukongs.live.declarations import parse_continuous, stream_options
from wukongs.live.pieces import Close, Piece, timing_mask
from wukongs.live.query_templates import constants_of
from wukongs.protocol import actions as act
from wukongs.protocol import events as ev
from wukongs.protocol.messages import Incarnation, Message
from wukongs.protocol.node import step
from wukongs.protocol.records import Change, DeclareStream, DropQuery, DropStream, MoveQuery, Record, RegisterQuery, Sn
from wukongs.protocol.state import Cluster as Shape
from wukongs.protocol.state import Kept, boot
from wukongs.query.terms.rdf_terms import from_python
from wukongs.settings import Settings
from wukongs.store.encoded import Encoded
from wukongs.store.encoder import encode_columns, encode_ntriples
from wukongs.wire.sharding import ShardMap, TermCutter, share_of, split_piece

WAIT_S = 60.0
ROUNDS_MAX = 400


class Host:
    """One node: its protocol, and its store."""

    def __init__(self, number: int, shape: Shape, settings: Settings, shard_map: ShardMap, send: Any) -> None:
        self.number = number
        self.node = boot(shape, Incarnation(number, 0, 1), Kept())
        self.missing = threading.Event()
        self.store = NodeStore(settings, number, shard_map, on_missing=self.missing.set)
        self._send = send
        self.applied: dict[Record, Sn | None] = {}
        self.indexes: dict[Record, int] = {}

    def handle(self, event: ev.Event, piece: Piece | None = None) -> None:
        self.node, actions = step(self.node, event)
        for action in actions:
            self._do(action, piece)

    def _do(self, action: act.Action, piece: Piece | None) -> None:
        match action:
            case act.Send(node=target, body=body):
                self._send(target, Message(self.node.me, body))
            case act.TakePiece():
                assert piece is not None
                self.store.take(piece)
            case act.SealBatch(stream=stream, batch=batch):
                self.store.seal(stream, batch)
                self.handle(ev.Inserted(stream, batch))
            case act.CompareTerms(asker=asker, view=view, texts=texts):
                self.handle(ev.TermsCompared(asker, view, *self.store.compare_texts(texts)))
            case act.Confirm(texts=texts):
                self.store.confirm(texts)
            case act.Apply(index=index, entry=entry, sn=sn):
                self.store.apply(index, entry.record, sn)
                self.applied[entry.record] = sn
                self.indexes[entry.record] = index
            case act.Expose(sn=sn, vts=vts):
                self.store.expose(sn, vts)
            case act.SaveVote() | act.SaveEntries():
                pass
            case _:
                raise AssertionError(action)


class Cluster:
    """replica_count: None for as many as nodes, so that every node has the whole graph."""

    def __init__(
        self, node_count: int, replica_count: int | None = None, *, seed: int = 1, settings: Settings | None = None
    ) -> None:
        self.settings = settings or Settings()
        replica_count = node_count if replica_count is None else replica_count
        self.shard_map = ShardMap.even(node_count, replica_count)
        self.rng = random.Random(seed)
        self._messages: deque[tuple[int, Message]] = deque()
        shape = Shape(node_count, replica_count)
        self.hosts = [
            Host(number, shape, self.settings, self.shard_map, lambda to, message: self._messages.append((to, message)))
            for number in range(node_count)
        ]
        self.home = 0
        """Where queries are registered."""
        self.reader = wukongs.Engine(settings=self.settings)
        self.reader._core, self.reader._injector = self.hosts[0].store.core, self.hosts[0].store.injector  # type: ignore[assignment]
        self.read_from = Sn(1 << 62, 0)
        """The oldest SN that a test reads at."""
        self.is_paused = False
        """Whether homes get no slices."""
        self._is_closed = False
        self._thread = threading.Thread(target=self._pull, daemon=True)
        self._thread.start()
        self.number = 0
        self.until(lambda: all(host.node.log.leader is not None for host in self.hosts))

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        for host in self.hosts:
            host.missing.set()
        self._thread.join()
        for host in self.hosts:
            host.store.close()

    # --- the network --------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        while self._messages:
            target, message = self._messages.popleft()
            self.hosts[target].handle(ev.Received(message))

    def pulse(self) -> None:
        for host in self.hosts:
            host.handle(ev.Pulse(self.rng.getrandbits(40)))
            self._deliver()

    def until(self, is_done: Callable[[], bool]) -> None:
        """Let time pass until something is so."""
        self._deliver()
        for _ in range(ROUNDS_MAX):
            if is_done():
                return
            self.pulse()
        raise AssertionError("it does not come")

    def settle(self, timeout_s: float | None = None) -> None:
        """Let everything be exposed that can be, everywhere, and be reported."""
        quiet = 0
        while quiet < 3:
            before = [(host.node.exposed, host.node.control.index, host.node.vts) for host in self.hosts]
            self.pulse()
            now = [(host.node.exposed, host.node.control.index, host.node.vts) for host in self.hosts]
            quiet = quiet + 1 if now == before and len({host.node.exposed for host in self.hosts}) == 1 else 0
        for host in self.hosts:
            if host.node.exposed is not None:
                host.store.wait_for(host.node.exposed, WAIT_S)
            host.store.injector.settle(WAIT_S)
        held = [host.store.held() for host in self.hosts]
        oldest_sn = min([self.read_from, *(one.oldest_sn for one in held)])
        for host in self.hosts:
            host.store.hold(oldest_sn, min(one.oldest_firing for one in held))

    def _pull(self) -> None:
        """Fetch the slices that homes lack, of each shard from one of its replicas."""
        nodes = self.shard_map.owners[np.arange(1024), np.arange(1024) // 7 % self.shard_map.owners.shape[1]]
        while not self._is_closed:
            for host in self.hosts:
                host.missing.wait(0.002)
                if host.missing.is_set() and not self._is_closed and not self.is_paused:
                    host.missing.clear()
                    for missing in host.store.missing_slices():
                        self.fetch(host, missing, nodes)

    def fetch(self, host: Host, missing: Any, nodes: Any) -> None:
        asked = (missing.stream, missing.first, missing.last)
        others = [other for other in self.hosts if other is not host]
        answers = [other.store.slice_share(*asked, nodes == other.number) for other in others]
        host.store.add_slices(missing, answers, nodes == host.number)

    # --- as an Engine -------------------------------------------------------------------------------------------------

    def propose(self, record: Record, unknown: frozenset[Any] = frozenset()) -> Sn:
        """Put a record into the log, and wait until it is exposed everywhere."""
        first = self.hosts[0]
        first.handle(ev.Submitted(record, unknown))

        def is_exposed() -> bool:
            found = next((r for r in first.applied if self._is_same(r, record)), None)
            sn = None if found is None else first.applied[found]
            return sn is not None and all(
                host.node.exposed is not None and host.node.exposed >= sn for host in self.hosts
            )

        self.until(is_exposed)
        sn = next(sn for r, sn in first.applied.items() if self._is_same(r, record))
        assert sn is not None
        for host in self.hosts:
            host.store.wait_for(sn, WAIT_S)
            refused = host.store.refused(next(at for r, at in host.indexes.items() if self._is_same(r, record)))
            if refused is not None:
                raise refused
        return sn

    @staticmethod
    def _is_same(one: Record, other: Record) -> bool:
        if isinstance(one, Change) and isinstance(other, Change):
            return (one.client, one.number) == (other.client, other.number)
        return one == other

    def stream(
        self,
        iri: str,
        timing: Sequence[str] | bool = (),
        batch_ms: int | None = None,
        into: str | None = None,
        history_ms: int | None = None,
        slice_bytes_max: int | None = None,
        index: str = "all",
        partitions: tuple[str, ...] = ("",),
    ) -> ClusterStream:
        options = stream_options(self.settings, timing, batch_ms, into, history_ms, slice_bytes_max, index)
        batch_ms = options["batch_ms"]
        payload, replaces = json.dumps(options), self.hosts[0].node.control.keys.get(iri, "")
        first_tick = first_tick_of(batch_ms)
        record = DeclareStream(iri, partitions, batch_ms, first_tick=first_tick, payload=payload, replaces=replaces)
        texts = [options["into"]] if into else []
        self.propose(record, self.hosts[0].store.unknown_texts(texts))
        return ClusterStream(self, self.hosts[0].store.key_of(iri), options)

    def drop_stream(self, name: str) -> None:
        key = self.hosts[0].store.key_of(name)
        self.propose(DropStream(key))
        self.until(lambda: all(host.node.control.streams[key].gone is not None for host in self.hosts))
        self.settle()

    def register(self, text: str, base: str | None = None, output: str | None = None) -> Any:
        self.settle()  # an Engine counts from what is stable
        query = parse_continuous(QuerySource(text, base, output))
        assert query.registration is not None
        name = query.registration.name
        store = self.hosts[0].store
        streams = tuple(sorted({store.key_of(window.stream) for window in query.dataset.windows}))
        payload = json.dumps({"text": text, "base": base, "output": output})
        unknown = store.unknown_texts([term.text for term in constants_of(query)])
        self.propose(RegisterQuery(name, streams, (self.home,), payload), unknown)
        return self.hosts[self.home].store.query(name)

    def drop_query(self, name: str) -> None:
        self.propose(DropQuery(name))

    def move_query(self, name: str, node: int) -> Any:
        self.propose(MoveQuery(name, (node,)))
        return self.hosts[node].store.query(name)

    def load(self, source: BinaryIO, graph: str | None = None, format: str = "nt") -> int:
        assert format == "nt", format
        self.number += 1
        scope = f"load:{self.number}".encode()
        encoded, malformed = encode_ntriples(source.read(), scope, hash_bits=self.settings.hash_bits)
        assert not malformed
        return self.change([encoded], graph=graph)

    def change(
        self,
        inserts: Sequence[Encoded] = (),
        deletes: Sequence[Encoded] = (),
        graph: str | None = None,
        cleared: Sequence[str | None] = (),
    ) -> int:
        """Load or update: return the SN."""
        self.settle()
        self.number += 1
        name = f"change {self.number}"
        chunks = [(chunk, True) for chunk in deletes] + [(chunk, False) for chunk in inserts]
        nothing, _ = encode_ntriples(b"", b"")
        chunks = chunks or [(nothing, False)]
        for host in self.hosts:
            for number, (chunk, goes) in enumerate(chunks):
                cut = TermCutter(chunk).cut(np.flatnonzero(share_of(chunk, self.shard_map, host.number)))
                is_last = number == len(chunks) - 1
                host.store.stage(name, number, cut, goes=goes, is_last=is_last)
                host.store.stage(name, number, cut, goes=goes, is_last=is_last)  # a repeat changes nothing
        store = self.hosts[0].store
        unknown = frozenset[Any]().union(*(store.unknown_terms(chunk) for chunk, _ in chunks))
        texts = [f"<{one}>" for one in {graph, *cleared} - {None}]
        unknown |= store.unknown_texts(texts)
        payload = json.dumps({"change": name, "graph": graph, "cleared": list(cleared), "operations": 1})
        record = Change("client", self.number, payload, None, self.hosts[0].node.control.view)
        sn = self.propose(record, unknown)
        return (sn.tick << 20) | sn.minor

    def query(self, text: str, **options: Any) -> Any:
        return self.reader.query(text, **options)


class ClusterStream:
    """The writers of a stream: one for each of its partitions."""

    def __init__(self, cluster: Cluster, key: str, options: dict[str, Any]) -> None:
        self.cluster, self.key, self.batch_ms = cluster, key, options["batch_ms"]
        timing = options["timing"]
        self._timing = timing if isinstance(timing, bool) else [text[1:-1] for text in timing]
        self._ends: dict[str, int] = {}

    def push(self, rows: Sequence[tuple[Any, Any, Any, int]], partition: str = "") -> None:
        columns = [[from_python(row[place]) for row in rows] for place in range(3)]
        self._push(encode_columns(*columns, np.array([row[3] for row in rows], np.int64), **self._encoding), partition)

    def push_arrow(self, table: Any) -> None:
        columns = [table.column(name) for name in ("subject", "predicate", "object", "timestamp_ms")]
        self._push(encode_columns(*columns, **self._encoding), "")

    @property
    def _encoding(self) -> dict[str, Any]:
        return {"scope": self.key.split()[0].encode(), "hash_bits": self.cluster.settings.hash_bits}

    def _push(self, encoded: Encoded, partition: str) -> None:
        times, cutter, lo = encoded.timestamps, TermCutter(encoded), 0
        while lo < len(times):
            number = -(-int(times[lo]) // self.batch_ms)
            hi = int(np.searchsorted(times, number * self.batch_ms, "right"))
            part = cutter.cut(np.arange(lo, hi))
            first = self._ends.get(partition, 0)
            timing = timing_mask(part, self._timing)
            piece = Piece(self.key, partition, 1, first, first + hi - lo, 0, number, part, timing)
            self.send(piece)
            self._ends[partition] = first + hi - lo
            lo = hi
        self.advance(int(times[-1]) - 1, partition)

    def send(self, piece: Piece) -> None:
        for node, share in split_piece(piece, self.cluster.shard_map):
            host = self.cluster.hosts[node]
            host.store.check(share)
            batch = host.store.protocol_batch(self.key, share.batch_number)
            unknown = host.store.unknown_terms(share.encoded)
            rows = (share.first_offset, share.end_offset)
            host.handle(ev.Piece(self.key, share.partition, 1, batch, *rows, unknown), share)
        self.cluster._deliver()

    def advance(self, complete_ms: int, partition: str = "", is_last: bool = False) -> None:
        end = self._ends.get(partition, 0)
        for host in self.cluster.hosts:
            batch = host.store.protocol_batch(self.key, complete_ms // self.batch_ms)
            before = host.node
            host.handle(ev.Marker(self.key, partition, 1, batch, end, is_last))
            if host.node.intakes != before.intakes:
                host.store.take_close(Close(self.key, partition, 1, end, complete_ms))
        self.cluster.until(
            lambda: all(host.node.control.streams[self.key].began is not None for host in self.cluster.hosts)
        )

    def close(self, complete_ms: int) -> None:
        """End the stream's one partition."""
        self.advance(complete_ms, is_last=True)
