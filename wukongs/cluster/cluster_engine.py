"""ClusterEngine: the methods of Engine, at one node of a cluster. Queries read the whole graph from here, whatever
other nodes hold of it. Changes go through the majority log, or to the writer of a stream."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from wukongs.cluster.changes import Changes
from wukongs.cluster.claims import Claims
from wukongs.cluster.counting import Counting
from wukongs.cluster.distant_query import DistantQuery
from wukongs.cluster.homes import closing_here, free_name
from wukongs.cluster.host import Dropped, Host
from wukongs.cluster.node_payloads import read_source
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.settling import Settling
from wukongs.cluster.times import first_tick_of, packed, unpacked
from wukongs.cluster.updating import evaluate
from wukongs.cluster.writing import ClusterStream, Writers
from wukongs.csparql.algebra import Output
from wukongs.csparql.parser_update import parse_update
from wukongs.engine import Engine
from wukongs.errors import CompactedError, NodeUnavailable, StorageError, StreamError
from wukongs.live.continuous import ContinuousQuery, QuerySource
from wukongs.live.declarations import check_windows, parse_continuous, stream_options
from wukongs.live.query_templates import constants_of
from wukongs.live.stream import Stream
from wukongs.live.windows import makes_stream
from wukongs.protocol import events as ev
from wukongs.protocol.control import Registered
from wukongs.protocol.records import DeclareStream, DropStream, MoveQuery, RegisterQuery, Sn
from wukongs.query.limits import limits_of
from wukongs.query.output.results import Result, WindowResult
from wukongs.query.plans.prepared import PreparedQueries
from wukongs.query.terms.names import graph_term
from wukongs.store.encoded import MalformedLine
from wukongs.store.rdf_files import read_rdf
from wukongs.wire.packets import Peers

if TYPE_CHECKING:
    from wukongs.wire.client_socket import ClientSocket

log = logging.getLogger("wukongs")
_OF_A_NODE = ("stored_triples", "stored_bytes", "stored_batches", "terms", "term_bytes", "handles")
RECORD_S = 30.0
"""How long a majority of the nodes may take to agree on a record."""
COMPACTED_MAX = 5
"""How often an update is evaluated whose snapshot was forgotten by some node before it was asked to hold it."""
SHOW_S = 2.0
"""How long a declaration, a load or an update waits for the other nodes to see it."""


class ClusterEngine(Engine):
    """May be used from any thread. Whoever made its parts ends them."""

    def __init__(
        self,
        host: Host,
        store: NodeStore,
        claims: Claims,
        changes: Changes,
        writers: Writers,
        settling: Settling,
        counting: Counting,
        peers: Peers,
        traffic: Callable[[], Mapping[str, Any]],
    ) -> None:
        """traffic: what has gone over the node's sockets to the others."""
        self._core, self._injector = store.core, store.injector
        self._prepared = PreparedQueries(self._core.settings.prepared_queries_max)
        self._sockets: list[ClientSocket] = []
        self._folder = None
        self._host, self._store, self._claims = host, store, claims
        self._changes, self._writers, self._settling = changes, writers, settling
        self._counting, self._peers, self._traffic = counting, peers, traffic
        self._distant: dict[str, DistantQuery] = {}
        self.ingest_addresses: tuple[str, ...] = ()
        """Where pipelines find the nodes, in the order of their numbers."""

    # --- stored graph -------------------------------------------------------------------------------------------------

    def load(
        self,
        source: str | PathLike[str] | BinaryIO,
        graph: str | None = None,
        base: str | None = None,
        format: str | None = None,
        *,
        strict: bool = False,
        on_malformed: Callable[[str, MalformedLine], object] | None = None,
    ) -> int:
        """Load a file as Engine.load does. The triples are divided among the nodes, and seen at one SN on all of them.
        Raises also NodeUnavailable (a node is away: nothing was added, unless the message says otherwise)."""
        core = self._core
        with core.lock:
            core.check_is_open()
            core.load_count += 1
            scope = f"load:{core.load_count}".encode()
        into = None if graph is None else graph_term(graph).text
        if into is not None:
            self._claims.settle_texts([into])
        hash_bits = core.settings.hash_bits
        chunks = read_rdf(
            source,
            format,
            base,
            scope,
            on_malformed=lambda file, line: self._set_aside(file, line, on_malformed),
            strict=strict,
            hash_bits=hash_bits,
        )
        return self._shown(self._changes.add(chunks, None if into is None else into[1:-1]))

    def update(self, text: str, base: str | None = None, timeout_s: float | None = None) -> int:
        """Apply a request as Engine.update does. It is evaluated here, and again if another update came first."""
        core = self._core
        limits = limits_of(core.settings, timeout_s or 0)
        operations = parse_update(text, base).operations
        core.check_is_open()
        if not operations:
            return core.sn
        sn: Sn | None = None
        forgotten = 0
        while sn is None:
            try:
                with self._injector.update_turn(), evaluate(core, operations, limits) as change:
                    after = self._host.node.control.last_update(unpacked(change.read_sn))
                    parts = change.gone, change.come, change.cleared
                    sn = self._changes.change(*parts, after, change.read_sn, len(operations))
            except Dropped:  # another update was first
                limits.check()
                self._store.wait_for(self._host.node.control.updates[-1].sn, RECORD_S)
            except CompactedError:  # a node has merged beyond what was read: it has just joined, or this took long
                limits.check()
                forgotten += 1
                if forgotten == COMPACTED_MAX:
                    raise
        return self._shown(sn)

    def _shown(self, sn: Sn) -> int:
        """Return an SN, packed, once clients of the other nodes read it too."""
        self._settling.show(sn, SHOW_S)
        return packed(sn)

    def query(
        self,
        text: str,
        bindings: Mapping[str, Any] | None = None,
        base: str | None = None,
        timeout_s: float | None = None,
        at: int | None = None,
    ) -> Result:
        """Answer a query as Engine.query does; again if a node was taken out meanwhile. Raises also NodeUnavailable (a
        node that holds needed triples is away)."""
        while True:
            view = self._host.node.control.view
            try:
                return super().query(text, bindings, base, timeout_s, at)
            except NodeUnavailable:
                if self._host.node.control.view == view:
                    raise

    # --- streams and registered queries -------------------------------------------------------------------------------

    def stream(
        self,
        stream_iri: str,
        timing: Sequence[str] | bool = (),
        batch_ms: int | None = None,
        into: str | None = None,
        history_ms: int | None = None,
        slice_bytes_max: int | None = None,
        index: Literal["all", "matching"] = "all",
    ) -> Stream:
        """Declare a stream as Engine.stream does, on all nodes."""
        self._core.check_is_open()
        name = graph_term(stream_iri).text[1:-1]
        options = stream_options(self._core.settings, timing, batch_ms, into, history_ms, slice_bytes_max, index)
        if options["into"] is not None:
            self._claims.settle_texts([options["into"]])
        first_tick = first_tick_of(options["batch_ms"])
        control = self._host.node.control
        before, payload = control.keys.get(name, ""), json.dumps(options)
        record = DeclareStream(name, (), options["batch_ms"], first_tick=first_tick, payload=payload, replaces=before)
        if control.takes_in(before) or not self._submit(record):
            raise StreamError(f"stream {name} is declared already: drop_stream it first to declare it anew")
        return self.declared(name)

    def declared(self, name: str) -> Stream:
        """Return a stream that somebody has declared. Raises StreamError (unknown)."""
        with self._core.lock:
            return ClusterStream(self._core, self._injector, self._core.stream(name), self._writers)

    def drop_stream(self, stream_iri: str) -> None:
        """Drop a stream as Engine.drop_stream does, on all nodes."""
        with self._core.lock:
            self._core.check_is_open()
            self._core.stream(stream_iri)
        self._wait_for_closed_queries()
        control = self._host.node.control
        key = control.key_of(stream_iri)
        readers = sorted(name for name, query in control.queries.items() if key in query.streams)
        if readers:
            raise StreamError(f"stream {stream_iri} is read by {', '.join(readers)}: close these first")
        if not self._submit(DropStream(key)):
            raise StreamError(f"stream {stream_iri} was dropped, or a query on it registered, at the same time")

    def register(
        self,
        text: str,
        on_result: Callable[[WindowResult], object] | None = None,
        base: str | None = None,
        output: Output | None = None,
    ) -> ContinuousQuery:
        """Register a query as Engine.register does. It runs on this node, which holds its windows whole from now on.

        If another node ran the query, with the same text, and was taken out since, this node takes it over: windows
        that ended meanwhile may be missing. Raises also NodeUnavailable (that node does not answer, and cannot be taken
        out)."""
        source = QuerySource(text, base, output)
        query = parse_continuous(source)
        assert query.registration is not None
        name = query.registration.name
        core = self._core
        with core.lock:
            core.check_is_open()
            check_windows(core, query, self._injector.queries)
        self._claims.settle_texts([term.text for term in constants_of(query)])
        control = self._host.node.control
        streams = tuple(sorted({control.key_of(window.stream) for window in query.dataset.windows}))
        payload, me = json.dumps(source._asdict()), self._host.me.node
        record: RegisterQuery | MoveQuery = RegisterQuery(name, streams, (me,), payload)
        left = free_name(self._host, self._store, name, payload)
        if left is not None:
            homes = tuple(sorted(left.nodes))
            record = MoveQuery(name, (me,), before=homes)
            log.warning("query %s goes on here; windows that ended since node %s went may be missing", name, homes)
        if not self._submit(record):
            raise StreamError(f"a query named {name} is registered already: close it first")
        registered = self._store.query(name)
        if registered is None:
            raise StreamError(f"query {name} was closed while it was being registered")
        if on_result is not None:
            with core.lock:
                registered.attach(on_result)
        return registered

    def _wait_for_closed_queries(self) -> None:
        """Wait until the log has heard of all queries that were closed here."""
        host, store = self._host, self._store
        host.wait_until(lambda node: not closing_here(node, store), RECORD_S, "the ends of queries")

    def _submit(self, record: DeclareStream | DropStream | RegisterQuery | MoveQuery) -> bool:
        """Hand in a record, and return once reads see it on all nodes that answer; False if it is no news."""
        try:
            sn = self._host.carry_out(ev.Submitted(record), RECORD_S)
        except Dropped:
            return False
        self._settling.show(sn, SHOW_S)
        return True

    def listen(self, address: str = "tcp://127.0.0.1:0") -> str:
        """Return where pipelines find the nodes: an address each, with commas between. They listen from their start."""
        return ",".join(self.ingest_addresses)

    def settle(self, timeout_s: float | None = None) -> None:
        """Wait until all stream batches that are closed on all nodes are visible, and all due windows reported, on all
        of them. Raises StreamError when timeout_s (seconds) passes first."""
        started_s = time.monotonic()
        try:
            self._settling.settle(timeout_s)
        except NodeUnavailable as error:
            if timeout_s is not None and time.monotonic() - started_s >= timeout_s:
                raise StreamError(f"not settled within timeout_s = {timeout_s:g}: {error}") from error
            raise

    # --- the engine itself --------------------------------------------------------------------------------------------

    def queries(self) -> list[ContinuousQuery | DistantQuery]:  # type: ignore[override]
        """Return the registered queries of the whole cluster. Those of other nodes are DistantQuery objects: they have
        the same methods, but no windows to read here."""
        host, found = self._host, list[ContinuousQuery | DistantQuery]()
        distant = dict[str, DistantQuery]()
        for name, registered in sorted(host.node.control.queries.items()):
            node = next((one for one in registered.nodes if one != host.me.node), host.me.node)
            here = self._store.query(name)
            if here is not None:
                found.append(here)
            elif node != host.me.node:
                known = self._distant.get(name)
                if known is None or (known.node, known.since) != (node, registered.since):
                    known = self._distant_query(name, node, registered)
                distant[name] = known
                if not known.is_closed:
                    found.append(known)
        self._distant = distant
        return found

    def _distant_query(self, name: str, node: int, registered: Registered) -> DistantQuery:
        source = read_source(registered.payload, name)
        addresses = self.ingest_addresses
        address = addresses[node] if node < len(addresses) else None
        is_stream = makes_stream(parse_continuous(source))
        return DistantQuery(self._peers, name, node, address, source, is_stream, registered.since)

    def stats(self) -> dict[str, Any]:
        """Return the counts of Engine.stats for the cluster: each thing counts once, however many nodes hold it
        (docs/api.md). node: this node's number; this_node: the facts of this node alone; silent_nodes: members that
        have not answered; counts that only they know are missing."""
        node = self._host.node
        counts, silent = self._counting.cluster()
        reads = counts.pop("reads_of_other_nodes", {})
        own = super().stats()
        return {
            **counts,
            "node": node.me.node,
            "leader": node.log.leader,
            "members": {str(number): member.role.value for number, member in node.control.members.items()},
            "registered": {name: list(query.nodes) for name, query in node.control.queries.items()},
            "silent_nodes": silent,
            "this_node": {
                **{name: own[name] for name in _OF_A_NODE},
                "role": node.role.value,
                "log_index": node.control.index,
                "refused": dict(node.refused),
                "store": dict(self._store.stats()),
                "reads_of_other_nodes": reads,
                "network": dict(self._traffic()),
            },
        }

    def own_stats(self) -> dict[str, Any]:
        """Return what Engine.stats says of this node alone, for those who count the cluster."""
        return super().stats()

    def checkpoint(self) -> None:
        raise StorageError(
            "the nodes of a cluster keep everything in memory so far: there is no data folder to write to"
        )

    def backup(self, folder: str | PathLike[str]) -> None:
        raise StorageError("the nodes of a cluster keep everything in memory so far: write graphs with dump()")

    def close(self) -> None:
        """Nothing: whoever runs the node ends it."""
