"""ClusterBackend: the backend of the engine at one node of a cluster. Changes go through the majority log, or to the
writer of a stream. Queries that this node runs are here; those of others are called over there."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wukongs.cluster.changes import Changes
from wukongs.cluster.claims import Claims
from wukongs.cluster.counting import Counting
from wukongs.cluster.distant_query import DistantQuery
from wukongs.cluster.homes import closing_here, free_name
from wukongs.cluster.host import Dropped, Host
from wukongs.cluster.node_payloads import Registration, read_registration
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.settling import Settling
from wukongs.cluster.times import first_tick_of, packed, unpacked
from wukongs.cluster.writing import ClusterSink, Writers
from wukongs.csparql.algebra import Output, Query
from wukongs.csparql.terms import Term
from wukongs.csparql.updates import Operation
from wukongs.errors import (
    CompactedError,
    NodeUnavailable,
    StorageError,
    StreamError,
)
from wukongs.live.backend import OnResult, RegisteredQuery
from wukongs.live.continuous import QuerySource, check_name, is_over
from wukongs.live.declarations import check_windows, parse_continuous
from wukongs.live.lateness import COUNT, LateTuples
from wukongs.live.query_group import terms_of_bindings
from wukongs.live.query_templates import constants_of
from wukongs.live.query_windows import counts_from
from wukongs.live.reading import terms_of
from wukongs.live.stream import Stream
from wukongs.live.update import cleared_names, evaluated
from wukongs.live.windows import makes_stream
from wukongs.protocol import events as ev
from wukongs.protocol.control import Registered
from wukongs.protocol.records import AlterQuery, DeclareStream, DropQuery, DropStream, MoveQuery, RegisterQuery, Sn
from wukongs.query.limits import Limits
from wukongs.store.rdf_files import RdfReader, read_in_order
from wukongs.store.term_registry import with_texts
from wukongs.wire.packets import Peers

if TYPE_CHECKING:
    from wukongs.store.rdf_files import OnMalformed

log = logging.getLogger("wukongs")
_OF_A_NODE = ("stored_triples", "stored_bytes", "stored_batches", "terms", "term_bytes", "handles")
RECORD_S = 30.0
"""How long a majority of the nodes may take to agree on a record."""
COMPACTED_MAX = 5
"""How often an update is evaluated whose snapshot was forgotten by some node before it was asked to hold it."""
SHOW_S = 2.0
"""How long a declaration, a load or an update waits for the other nodes to see it."""


class ClusterBackend:
    """See wukongs.live.backend.Backend. Methods raise also NodeUnavailable: a node is away, and then nothing was
    changed, unless the message says otherwise. It does not end its parts."""

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
        self._sink = ClusterSink(store.core, writers, lambda late, graph: self._shown(changes.add([late], graph)))
        self._host, self._store, self._claims = host, store, claims
        self._changes, self._settling = changes, settling
        self._counting, self._peers, self._traffic = counting, peers, traffic
        self._distant: dict[str, DistantQuery] = {}
        self.ingest_addresses: tuple[str, ...] = ()

    @property
    def view(self) -> int:
        return self._host.node.control.view

    # --- stored graph -------------------------------------------------------------------------------------------------

    def load(self, number: int, reader: RdfReader, graph: Term | None, on_malformed: OnMalformed | None) -> int:
        """The triples are divided among the nodes, and seen at one SN on all of them."""
        if graph is not None:
            self._claims.settle_texts([graph.text])
        chunks = read_in_order(reader, on_malformed, strict=on_malformed is None)
        return self._shown(self._changes.add(chunks, None if graph is None else graph.text[1:-1]))

    def update(self, operations: Sequence[Operation], limits: Limits) -> int:
        """A request is evaluated here, and again if another update came first."""
        core = self._core
        core.check_is_open()
        if not operations:
            return core.sn
        sn: Sn | None = None
        forgotten = 0
        while sn is None:
            try:
                with core.update_turn:
                    sn = self._evaluate_and_stage(operations, limits)
            except Dropped:  # another update was first
                limits.check()
                self._store.wait_for(self._host.node.control.updates[-1].sn, RECORD_S)
            except CompactedError:  # a node has merged beyond what was read: it has just joined, or this took long
                limits.check()
                forgotten += 1
                if forgotten == COMPACTED_MAX:
                    raise
        return self._shown(sn)

    def _evaluate_and_stage(self, operations: Sequence[Operation], limits: Limits) -> Sn:
        """The other nodes are asked to hold the snapshot, too, before this one lets go of it."""
        core = self._core
        with evaluated(core, operations, limits) as (_, read_sn, change):
            with limits:
                terms = terms_of(core)
                gone, come = (with_texts(quads, terms.gather) for quads in (change.gone, change.come))
                names = cleared_names(change, core.default_graph, terms.texts)
            cleared = [None if name is None else name[1:-1] for name in names]
            after = self._host.node.control.last_update(unpacked(read_sn))
            return self._changes.change(gone, come, cleared, after, read_sn, len(operations))

    def _shown(self, sn: Sn) -> int:
        """Return an SN, packed, once clients of the other nodes read it too."""
        self._settling.show(sn, SHOW_S)
        return packed(sn)

    # --- streams and registered queries -------------------------------------------------------------------------------

    def declare(self, name: str, options: dict[str, Any], late: LateTuples) -> Stream:
        self._core.check_is_open()
        if options["into"] is not None:
            self._claims.settle_texts([options["into"]])
        first_tick = first_tick_of(options["batch_ms"])
        control = self._host.node.control
        before, payload = control.keys.get(name, ""), json.dumps(options)
        record = DeclareStream(name, (), options["batch_ms"], first_tick=first_tick, payload=payload, replaces=before)
        if control.takes_in(before) or not self._submit(record):
            raise StreamError(f"stream {name} is declared already: drop_stream it first to declare it anew")
        return self._stream(name, late)

    def declared(self, name: str) -> Stream:
        """Return a stream that somebody has declared. Its late tuples are written at this node, if on_late is a path;
        a function is called at the node of its declaration only. Raises StreamError (unknown), SettingsError (the file
        of on_late cannot be written here)."""
        on_late = self._core.stream(name).options.get("on_late")
        return self._stream(name, LateTuples(name, on_late if isinstance(on_late, str) else COUNT))

    def _stream(self, name: str, late: LateTuples) -> Stream:
        with self._core.lock:
            return Stream(self._core.stream(name), self._sink, self._core.settings.hash_bits, late)

    def drop(self, stream_iri: str) -> None:
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

    def register(self, query: Query, source: QuerySource, on_result: OnResult | None) -> RegisteredQuery:
        """The query runs on this node, which holds its windows whole from now on.

        If another node ran the query, with the same text, and was taken out since, this node takes it over: windows
        that ended meanwhile may be missing."""
        assert query.registration is not None
        name = query.registration.name
        core = self._core
        with core.lock:
            core.check_is_open()
            if makes_stream(query) and name in core.streams:
                raise StreamError(
                    f"stream {name} is declared, and queries of a cluster do not make streams that are read there yet: "
                    "give the query another name"
                )
            check_windows(core, query, self._injector.queries)
            from_ms = counts_from(core, query, self._store.inserted_ms)
        self._claims.settle_texts([*(term.text for term in constants_of(query)), *terms_of_bindings(source.bindings)])
        me, payload = self._host.me.node, Registration(source, from_ms).payload()
        record: RegisterQuery | MoveQuery = RegisterQuery(name, self._keys_of(query), (me,), payload)
        left = free_name(self._host, self._store, name, source)
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

    def _keys_of(self, query: Query) -> tuple[str, ...]:
        """Return the keys of the streams of a query's windows, in order."""
        control = self._host.node.control
        return tuple(sorted({control.key_of(window.stream) for window in query.dataset.windows}))

    def replace_query(self, name: str, text: str, base: str | None, output: Output | None) -> None:
        """Each firing that is due when the record is carried out goes by the text before, at the node of the query."""

        def replaced(before: Registration) -> tuple[Registration, Query]:
            source = before.source._replace(text=text, base=base, output=output)
            query, core = parse_continuous(source), self._core
            check_name(query, name)
            with core.lock:
                core.check_is_open()
                check_windows(core, query, self._injector.queries)
                from_ms = counts_from(core, query, self._store.inserted_ms)
            self._claims.settle_texts([term.text for term in constants_of(query)])
            return before._replace(source=source, from_ms=from_ms), query

        self._alter(name, replaced)

    def pause_query(self, name: str, is_paused: bool) -> None:
        self._alter(name, lambda before: (before._replace(is_paused=is_paused), parse_continuous(before.source)))

    def _alter(self, name: str, altered: Callable[[Registration], tuple[Registration, Query]]) -> None:
        """Make a change of a query as it is by the log, and anew if another one came first."""
        known = first = self._host.node.control.queries.get(name)
        while known is not None and first is not None and known.since == first.since:
            after, query = altered(read_registration(known.payload, name))
            record = AlterQuery(name, self._keys_of(query), after.payload(), known.changes + 1, known.since)
            if self._submit(record):
                return
            known = self._host.node.control.queries.get(name)
        raise is_over(name)

    def _wait_for_closed_queries(self) -> None:
        """Wait until the log has heard of all queries that were closed here."""
        host, store = self._host, self._store
        host.wait_until(lambda node: not closing_here(node, store), RECORD_S, "the ends of queries")

    def _submit(self, record: DeclareStream | DropStream | RegisterQuery | MoveQuery | AlterQuery) -> bool:
        """Hand in a record, and return once reads see it on all nodes that answer; False if it is no news."""
        try:
            sn = self._host.carry_out(ev.Submitted(record), RECORD_S)
        except Dropped:
            return False
        self._settling.show(sn, SHOW_S)
        return True

    def close_query(self, name: str) -> None:
        """Hand in that a query of this node was closed, so that its name is free on all nodes and nobody keeps slices
        for it. Nobody waits: it ends here at once, and the protocol says it again until it is in the log."""
        known = self._host.node.control.queries.get(name)
        if known is not None and known.nodes.keys() == {self._host.me.node}:
            self._host.post(ev.Submitted(DropQuery(name, known.since)))

    def settle(self, timeout_s: float | None) -> None:
        """Waits for all nodes."""
        started_s = time.monotonic()
        try:
            self._settling.settle(timeout_s)
        except NodeUnavailable as error:
            if timeout_s is not None and time.monotonic() - started_s >= timeout_s:
                raise StreamError(f"not settled within timeout_s = {timeout_s:g}: {error}") from error
            raise

    # --- the engine itself --------------------------------------------------------------------------------------------

    def queries(self) -> list[RegisteredQuery]:
        """Return the registered queries of the whole cluster. Those of other nodes are DistantQuery objects: they have
        the same methods, but no windows to read here."""
        host, found = self._host, list[RegisteredQuery]()
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
                elif known.changes != registered.changes:
                    known.source, known.is_stream = _text_of(name, registered)
                    known.changes = registered.changes
                distant[name] = known
                if not known.is_closed:
                    found.append(known)
        self._distant = distant
        return found

    def _distant_query(self, name: str, node: int, registered: Registered) -> DistantQuery:
        source, is_stream = _text_of(name, registered)
        addresses = self.ingest_addresses
        address = addresses[node] if node < len(addresses) else None
        since, changes = registered.since, registered.changes
        return DistantQuery(self._peers, self, name, node, address, source, is_stream, since, changes)

    def stats(self) -> dict[str, Any]:
        """Return the counts of the cluster: each thing counts once, however many nodes hold it
        (docs/api.md). node: this node's number; this_node: the facts of this node alone; silent_nodes: members that
        have not answered; counts that only they know are missing."""
        node = self._host.node
        counts, silent = self._counting.cluster()
        reads = counts.pop("reads_of_other_nodes", {})
        own = self._counting.own()
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

    def checkpoint(self) -> None:
        raise StorageError(
            "the nodes of a cluster keep everything in memory so far: there is no data folder to write to"
        )

    def backup(self, folder: Path) -> None:
        raise StorageError("the nodes of a cluster keep everything in memory so far: write graphs with dump()")

    def close(self) -> None:
        """Nothing: whoever runs the node ends it."""


def _text_of(name: str, registered: Registered) -> tuple[QuerySource, bool]:
    """Return the text of a query, and whether it makes a stream."""
    source = read_registration(registered.payload, name).source
    return source, makes_stream(parse_continuous(source))
