"""ClusterBackend: the backend of the engine at one node of a cluster. Changes go through the majority log, or to the
writer of a stream. Queries that this node runs are here; those of others are called over there."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wukongs.cluster.adding import add, remove
from wukongs.cluster.backups import Backups
from wukongs.cluster.boot import EVENT_TIMES, VIEWS
from wukongs.cluster.changes import Changes
from wukongs.cluster.claims import Claims
from wukongs.cluster.counting import Counting
from wukongs.cluster.cycles import check_cycles, step_of
from wukongs.cluster.distant_query import DistantQuery
from wukongs.cluster.draining import drain
from wukongs.cluster.following import Following
from wukongs.cluster.graph_shares import GraphShares
from wukongs.cluster.homes import closing_here, free_name, is_left_here
from wukongs.cluster.host import Dropped, Host
from wukongs.cluster.leases import ReadLeases
from wukongs.cluster.made_feeds import is_declared_for_readers
from wukongs.cluster.members import is_silent, members_of
from wukongs.cluster.node_payloads import (
    Registration,
    maker,
    maker_of,
    read_registration,
    ruleset_of,
    stream_of_view,
    streams_read,
)
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.pushing import ClusterSink, Writers, come_and_gone
from wukongs.cluster.settling import Settling
from wukongs.cluster.times import first_tick_of, packed, unpacked
from wukongs.cluster.turns import Turns
from wukongs.consistency import told_sn
from wukongs.csparql.algebra import Output, Query
from wukongs.csparql.terms import Term, iri
from wukongs.errors import (
    NodeUnavailable,
    OutcomeUnknown,
    SettingsError,
    StreamError,
)
from wukongs.live.backend import OnResult, RegisteredQuery
from wukongs.live.declarations import (
    check_made,
    check_windows,
    make_stream,
    options_for_readers,
)
from wukongs.live.injector import not_settled
from wukongs.live.lateness import LateTuples, late_tuples_of
from wukongs.live.query_constants import constants_of
from wukongs.live.query_group import terms_of_bindings, terms_of_table
from wukongs.live.query_source import QuerySource, check_name, is_over
from wukongs.live.query_windows import counts_from
from wukongs.live.reading import ids_of, terms_of
from wukongs.live.stream import Stream
from wukongs.live.stream_state import StreamState
from wukongs.live.table_change import Change
from wukongs.live.update import cleared_names, evaluated
from wukongs.live.views.logged_arguments import LoggedArguments, are_many
from wukongs.live.views.options import check_view
from wukongs.live.views.view_streams import checked_stream
from wukongs.live.windows import check_window, firing_period, firing_step, makes_stream, reads_stored
from wukongs.protocol import events as ev
from wukongs.protocol.control import Registered
from wukongs.protocol.placement import on_one_machine
from wukongs.protocol.records import (
    AlterQuery,
    DeclareStream,
    DropQuery,
    DropStream,
    NameReaders,
    RegisterQuery,
    Role,
    Sn,
)
from wukongs.query.limits import Limits, current
from wukongs.rules.derivation import Derivation
from wukongs.rules.inference import Inference, InstalledRule, Ruleset
from wukongs.store.ahead import ahead
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.rdf_files import RdfReader, read_in_order
from wukongs.store.term_registry import with_texts
from wukongs.wire.packets import Peers

if TYPE_CHECKING:
    import pyarrow

    from wukongs.live.views.caller import OnReport
    from wukongs.live.views.live_view import LiveView
    from wukongs.live.views.options import ViewOptions
    from wukongs.store.rdf_files import OnMalformed

log = logging.getLogger("wukongs")
_OF_A_NODE = ("stored_triples", "stored_bytes", "stored_batches", "terms", "term_bytes", "handles")
RECORD_S = 30.0
"""How long a majority of the nodes may take to agree on a record."""
CATCH_UP_S = 10.0
"""How long the end of a query that makes a stream waits for the windows that are due."""
DROP_S = 5.0
"""How long the end of a query may take to be in the log, before the stream that it read is left as it is."""
SHOW_S = 2.0
"""How long a declaration waits for the other nodes to see it."""
HEARD_S = 5.0
"""How long the nodes of a cluster that starts may take to introduce themselves."""
POLL_S = 0.005
"""Interval at which a change of arguments looks whether the one before it is carried out."""
SILENT = "silent"
NO_NUMBERS = np.empty(0, np.int64)


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
        backups: Backups,
        turns: Turns,
        peers: Peers,
        traffic: Callable[[], Mapping[str, Any]],
        known_by: Callable[[int], Collection[str] | None],
        leases: ReadLeases,
    ) -> None:
        """traffic: what has gone over the node's sockets to the others; known_by: what a node knows (boot.KNOWS); None:
        it has not introduced itself."""
        self._known_by, self._leases, self.recovered_rules = known_by, leases, set[str]()
        self._core, self._injector = store.core, store.injector
        self._sink = ClusterSink(store.core, writers, self._store_late)
        self._host, self._store, self._claims = host, store, claims
        self._changes, self._settling = changes, settling
        self._counting, self._backups, self._peers, self._traffic = counting, backups, peers, traffic
        self._distant: dict[str, DistantQuery] = {}
        self._first_addresses: tuple[str, ...] = ()
        self.following = Following(host, store.core, changes, turns, lambda sn: store.wait_for(sn, RECORD_S))
        self.shares = GraphShares(host, store)

    @property
    def ingest_addresses(self) -> tuple[str, ...]:
        """Where clients find the nodes, in the order of their numbers: settable for those of the beginning."""
        return (*self._first_addresses, *(one.clients for _, one in sorted(self._host.node.control.added.items())))

    @ingest_addresses.setter
    def ingest_addresses(self, addresses: tuple[str, ...]) -> None:
        self._first_addresses = addresses

    @property
    def view(self) -> int:
        return self._host.node.control.view

    # --- stored graph -------------------------------------------------------------------------------------------------

    def load(self, number: int, reader: RdfReader, graph: Term | None, on_malformed: OnMalformed | None) -> int:
        """The triples are divided among the nodes, and seen at one SN on all of them."""
        if (known := self._changes.known()) is not None:
            return self._shown(known)
        if graph is not None:
            self._claims.settle_texts([graph.text])
        chunks = read_in_order(reader, on_malformed, strict=on_malformed is None)
        return self._added(ahead(chunks, "wukongs-load"), graph)

    def fill(self, number: int, chunks: Iterable[Encoded]) -> int:
        """New blank nodes of a cluster are named by numbers that no engine alone comes to."""
        return self._added(chunks, None)

    def _added(self, chunks: Iterable[Encoded], graph: Term | None) -> int:
        if self.following.has_rules:
            core = self._core
            into = core.default_graph if graph is None else ids_of(core).keep(graph.text)
            return self._shown(self.following.load(chunks, into, current()))
        try:
            return self._shown(self._changes.add(chunks, None if graph is None else graph.name))
        except Dropped as error:
            raise StreamError("nothing was loaded: rules were added meanwhile. Load it again") from error

    def _store_late(self, state: StreamState, late: Encoded) -> int:
        """Let late tuples of a stream join the stored graph."""
        core, graph = self._core, state.into_iri
        if (known := self._changes.known()) is not None:
            return self._shown(known)
        if state.event_times is not None:
            return self._shown(self._changes.add_late(late, graph, state.iri))
        come, gone = come_and_gone(late, graph)
        if self.following.has_rules:
            into = core.default_graph if graph is None else ids_of(core).keep(iri(graph).text)
            return self._shown(self.following.store_late(come, gone, into, current()))
        return self._shown(self._changes.add([come], graph, [gone]))

    def update(self, operations: Sequence[Change], limits: Limits, only: tuple[str, ...] | None = None) -> int:
        """A request is evaluated here, and again if another update came first."""
        core = self._core
        core.check_is_open()
        if not operations:
            return core.sn

        def once() -> Sn:
            with core.update_turn:
                return self._evaluate_and_stage(operations, limits, only)

        sn = self.following.repeated(once, limits)
        with limits:
            return self._shown(sn)

    def _evaluate_and_stage(
        self, operations: Sequence[Change], limits: Limits, only: tuple[str, ...] | None = None
    ) -> Sn:
        """The other nodes are asked to hold the snapshot, too, before this one lets go of it."""
        core = self._core
        with evaluated(core, operations, limits, only) as (_, read_sn, change):
            if self.following.has_rules:
                with limits:
                    return self.following.change(read_sn, change, len(operations))
            with limits:
                terms = terms_of(core)
                gone, come = (with_texts(quads, terms.gather) for quads in (change.gone, change.come))
                names = cleared_names(change, core.default_graph, terms.texts)
            cleared = [None if name is None else Term(name).name for name in names]
            after = self._host.node.control.last_update(unpacked(read_sn))
            with limits:
                return self._changes.change(gone, come, cleared, after, read_sn, len(operations))

    def _shown(self, sn: Sn) -> int:
        """Return an SN, packed, once all that hold leases have exposed it: no read misses it from then on.

        Raises OutcomeUnknown (others do not answer: it is in the log, and counts)."""
        try:
            self._leases.wait_until_exposed(sn, current().within(RECORD_S))
        except NodeUnavailable as error:
            raise OutcomeUnknown(f"{error}. The change is in the log, with SN {packed(sn)}, and counts") from error
        return packed(sn)

    def begin_read(self, limits: Limits) -> None:
        self._leases.begin_read(told_sn(), limits)

    def end_read(self, sn: int, limits: Limits) -> None:
        self._leases.end_read(sn, limits)

    # --- streams and registered queries -------------------------------------------------------------------------------

    def declare(self, name: str, options: dict[str, Any], late: LateTuples) -> Stream:
        self._core.check_is_open()
        if "retractions" in options:
            self._check_event_times(name)
        if options["into"] is not None:
            self._claims.settle_texts([options["into"]])
        control = self._host.node.control
        before = control.keys.get(name, "")
        known = control.queries.get(name)
        if known is not None and maker(known.payload, name) is not None:
            raise StreamError(f"stream {name} is made by a query: declare it before that is registered")
        record = _declaration(name, options, before)
        if control.takes_in(before) or not self._submit(record):
            if "retractions" in options:
                self._check_event_times(name)
            raise StreamError(f"stream {name} is declared already: drop_stream it first to declare it anew")
        return self._stream(name, late)

    def _check_event_times(self, name: str) -> None:
        """Raise SettingsError for a stream whose signs go by event time, if there are rules, or a node that does not
        keep event times."""
        where = f'stream {name}: retractions = "event_time"'
        if self.following.has_rules:
            raise SettingsError(
                f"{where}: expected no rules beside it on a cluster: remove these, leave the option out, so that a "
                "late sign acts when it comes, or use an engine of one process"
            )
        if (lacking := self._node_without(EVENT_TIMES)) is not None:
            raise SettingsError(
                f"{where}: node {lacking} is of an earlier release, which does not keep event times of triples, or "
                "was not heard yet: upgrade all nodes first, or leave the option out"
            )

    def declared(self, name: str) -> Stream:
        """Return a stream that somebody has declared. Its late tuples are written at this node, if on_late is a path;
        a function is called at the node of its declaration only. Raises StreamError (unknown), SettingsError (the file
        of on_late cannot be written here)."""
        return self._stream(name, late_tuples_of(name, self._core.stream(name).options))

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
        if (view := self._view_that_makes(stream_iri)) is not None:
            raise StreamError(f"stream {stream_iri} is made by view {view}: close that one first")
        if not self._submit(DropStream(key)):
            raise StreamError(f"stream {stream_iri} was dropped, or a query on it registered, at the same time")

    def register(self, query: Query, source: QuerySource, on_result: OnResult | None) -> RegisteredQuery:
        """The query runs on this node, which holds its windows whole from now on.

        If another node ran the query, with the same text, and was taken out since, and this node has taken it over, it
        goes on. Raises StreamError too if it runs elsewhere by now."""
        assert query.registration is not None
        name = query.registration.name
        core = self._core
        with core.lock:
            core.check_is_open()
        if is_left_here(self._store, name, source):
            return self._taken_over(name, on_result)
        self._serve_readers(query)
        if makes_stream(query):
            self._wait_for_closed_queries()
        with core.lock:
            makes = self._check_made(query)
            self._check_cycles(query, None)
            check_windows(core, query)
            from_ms = counts_from(core, query, self._store.inserted_ms)
            if (made := self._injector.made.get(name)) is not None:
                from_ms = made.goes_on_from(from_ms, reads_stored(query))
        self._claims.settle_texts([*(term.text for term in constants_of(query)), *terms_of_bindings(source.bindings)])
        me, payload = self._host.me.node, Registration(source, from_ms).payload()
        makes_key = self._host.node.control.key_of(name) if makes else ""
        if free_name(self._host, self._store, name, source):
            return self._taken_over(name, on_result)
        self._submit_new(RegisterQuery(name, self._keys_of(query), (me,), payload, makes_key))
        return self._taken_over(name, on_result)

    def _submit_new(self, record: RegisterQuery) -> None:
        """Hand in a query or live view of this node. Raises StreamError: its name is taken, or the log had another one
        first that goes not together with it."""
        try:
            is_news = self._submit(record)
        except StreamError:
            self.close_query(record.query)
            raise
        if not is_news:
            raise StreamError(f"a query named {record.query} is registered already: close it first")

    def _taken_over(self, name: str, on_result: OnResult | None) -> RegisteredQuery:
        """Return a query that runs here, for whoever has registered it."""
        registered = self._store.query(name)
        if registered is None:
            raise StreamError(f"query {name} was closed while it was being registered")
        with self._core.lock:
            registered.attach(on_result)
        return registered

    def _serve_readers(self, query: Query) -> None:
        """Declare the streams that queries make and that a query is the first to read, if nobody else does so now. The
        homes of these queries let them begin, with the firings from then on."""
        core = self._core
        for window in query.dataset.windows:
            name, control = window.stream, self._host.node.control
            if name not in control.queries or control.takes_in(control.key_of(name)):
                continue
            self._wait_for_closed_queries()
            control = self._host.node.control
            known = control.queries.get(name)
            made_by = None if known is None else maker(known.payload, name)
            if made_by is None:
                continue
            with core.lock:
                states = [core.stream(one.stream) for one in made_by.dataset.windows]
                options = options_for_readers(core.settings, firing_period(firing_step(made_by), states))
                check_window(window, make_stream(core, name, options, 0))
            if self._submit(_declaration(name, options, control.keys.get(name, ""), is_made=True)):
                with suppress(StreamError, NodeUnavailable):  # only a busy cluster shows it later than that
                    self._settling.settle(current().within(SHOW_S))  # its home says what it begins with

    def _check_made(self, query: Query) -> bool:
        """Do as check_made, over the queries and streams of the log. Called with the lock held."""
        control = self._host.node.control

        def made_of(stream_iri: str) -> list[str]:
            known = control.queries.get(stream_iri)
            return [] if known is None else streams_read(known.payload, stream_iri)

        assert query.registration is not None
        name = query.registration.name
        if makes_stream(query) and (view := self._view_that_makes(name)) is not None:
            raise StreamError(f"stream {name} is made by query {view}: close that one first")
        return check_made(self._core, made_of, query, self._is_written)

    def _is_written(self, state: StreamState) -> bool:
        """Return whether a stream has tuples, or a writer."""
        stream = self._host.node.control.stream_named(state.iri)
        return stream is not None and (bool(stream.partitions) or stream.began is not None)

    def _view_that_makes(self, stream_iri: str) -> str | None:
        """Return the name of the live view that makes a stream, wherever it stands; None: there is none."""
        queries = self._host.node.control.queries
        return next((name for name, one in queries.items() if stream_of_view(one.payload, name) == stream_iri), None)

    def _check_cycles(self, query: Query | None, view: ViewOptions | None, rules: Ruleset | None = None) -> None:
        """Raise StreamError if with one more query, or with other rules, a live view would read what is made of its own
        triples. view: the options of a live view; rules: None: those that hold now. Called with the lock held."""
        control, asked = self._host.node.control, None
        if query is not None:
            assert query.registration is not None
            step = step_of(query, view)
            if step is None:
                return
            asked = query.registration.name, step
        found = ruleset_of(control.rules) if rules is None else rules
        check_cycles(asked, control.queries, self._core.streams.values(), found.program.rules)

    def catch_up(self) -> None:
        with suppress(StreamError, NodeUnavailable):
            self._settling.settle(CATCH_UP_S)

    def drop_unread(self, streams: Collection[str]) -> None:
        host = self._host
        for name in streams:
            if not is_declared_for_readers(host.node.control, name):
                continue
            with suppress(NodeUnavailable):
                host.wait_until(lambda node: not closing_here(node, self._store), DROP_S, "the ends of queries")
                control = host.node.control
                key = control.key_of(name)
                is_read = any(key in query.streams for query in control.queries.values())
                if name not in control.queries and not is_read:
                    self._submit(DropStream(key))

    def _keys_of(self, query: Query) -> tuple[str, ...]:
        """Return the keys of the streams of a query's windows, in order."""
        control = self._host.node.control
        return tuple(sorted({control.key_of(window.stream) for window in query.dataset.windows}))

    def replace_query(self, name: str, text: str, base: str | None, output: Output | None) -> None:
        """The record comes after all that is closed by now: the node of the query carries it out when all firings that
        are due by then have been reported."""

        def replaced(before: Registration) -> tuple[Registration, Query]:
            source, core = before.source._replace(text=text, base=base, output=output), self._core
            query = before._replace(source=source).parsed()
            check_name(query, name)
            if before.view is not None:
                if query.dataset.windows:
                    raise StreamError(f"view {name}: the other text has a window: close the view, and register it")
                check_view(query, source, before.view)
                with self._core.lock:
                    self._check_cycles(query, before.view)
                self._claims.settle_texts([term.text for term in constants_of(query)])
                return before._replace(source=source), query
            self._serve_readers(query)
            with core.lock:
                core.check_is_open()
                if name not in core.streams or core.streams[name].is_made:
                    self._check_made(query)
                self._check_cycles(query, None)
                check_windows(core, query)
                from_ms = counts_from(core, query, self._store.inserted_ms)
            self._claims.settle_texts([term.text for term in constants_of(query)])
            return before._replace(source=source, from_ms=from_ms), query

        self._alter(name, replaced)

    def pause_query(self, name: str, is_paused: bool) -> None:
        self._alter(name, lambda before: (before._replace(is_paused=is_paused), before.parsed()))

    def _alter(self, name: str, altered: Callable[[Registration], tuple[Registration, Query]]) -> None:
        """Make a change of a query as it is by the log, and anew if another one came first. Its event time is that of
        its record, which comes after all that is closed on any node by now."""
        self.catch_up()
        known = first = self._host.node.control.queries.get(name)
        while known is not None and first is not None and known.since == first.since:
            after, query = altered(read_registration(known.payload, name))
            record = AlterQuery(name, self._keys_of(query), after.payload(), known.changes + 1, known.since)
            try:
                if self._submit(record):
                    return
            except StreamError:  # the log had another query first, with which this one would be a cycle
                self._take_back(name, record, known)
                raise
            known = self._host.node.control.queries.get(name)
        raise is_over(name)

    def change_arguments(
        self, name: str, terms: pyarrow.Table | None, change: Callable[[], tuple[str, Int64Array]]
    ) -> Int64Array:
        if terms is not None:
            self._claims.settle_texts(terms_of_table(terms))
        deadline_s = time.monotonic() + current().within(RECORD_S)
        known = first = self._host.node.control.queries.get(name)
        while known is not None and first is not None and known.since == first.since:
            with self._core.lock:
                found = self._store.records.homes.get(name)
                is_shown = found is not None and (found[0].payload, found[0].bound) == (known.payload, known.bound)
                bound, numbers = change() if is_shown else ("", NO_NUMBERS)
            if is_shown and not bound:
                return numbers
            if is_shown and self._submit(AlterQuery(name, (), "", known.changes + 1, known.since, bound)):
                self._put_together(name, known)
                return numbers
            if time.monotonic() > deadline_s:
                raise NodeUnavailable(f"view {name}: its arguments have changed all the time for {RECORD_S:.0f} s")
            time.sleep(POLL_S)
            known = self._host.node.control.queries.get(name)
        raise is_over(name)

    def _put_together(self, name: str, before: Registered) -> None:
        """Replace the changes of a view's arguments in the log by one text, if they have grown long."""
        known = self._host.node.control.queries.get(name)
        bindings = read_registration(before.payload, name).source.bindings
        if known is None or known.since != before.since or bindings is None or not are_many(bindings, known.bound):
            return
        whole = LoggedArguments.of(bindings, known.bound).text()
        record = AlterQuery(name, known.streams, known.payload, known.changes + 1, known.since, whole)
        with suppress(NodeUnavailable, OutcomeUnknown):  # a later change tries again
            self._submit(record)

    def _take_back(self, name: str, record: AlterQuery, before: Registered) -> None:
        """Let the log say again what a query was before a change that could not be made."""
        number = record.number + 1
        self._submit(AlterQuery(name, before.streams, before.payload, number, before.since))

    def _wait_for_closed_queries(self) -> None:
        """Wait until the log has heard of all queries that were closed here."""
        host, store = self._host, self._store
        seconds = current().within(RECORD_S)
        host.wait_until(lambda node: not closing_here(node, store), seconds, "the ends of queries")

    def _submit(self, record: DeclareStream | DropStream | RegisterQuery | AlterQuery) -> bool:
        """Hand in a record, and return once reads see it on all nodes that answer; False if it is no news."""
        try:
            sn = self._host.carry_out(ev.Submitted(record), current().within(RECORD_S))
        except Dropped:
            return False
        self._leases.show(sn, current().within(SHOW_S))
        return True

    def close_query(self, name: str) -> None:
        """Hand in that a query of this node was closed, so that its name is free on all nodes and nobody keeps slices
        for it. Nobody waits: it ends here at once, and the protocol says it again until it is in the log."""
        known = self._host.node.control.queries.get(name)
        if known is not None and known.nodes.keys() == {self._host.me.node}:
            self._host.post(ev.Submitted(DropQuery(name, known.since)))

    def name_readers(self, name: str, group: str) -> None:
        known = self._host.node.control.queries.get(name)
        if known is not None and group not in known.groups:
            self._host.post(ev.Submitted(NameReaders(name, group, known.since)))

    def note_reader(self, name: str, group: str, stands: str) -> Callable[[], None]:
        known = self._host.node.control.queries.get(name)
        is_here = known is not None and self._host.me.node in known.nodes
        if known is not None and is_here:
            self._host.post(ev.Submitted(_standing(name, known, group, stands)))

        def wait() -> None:
            now = self._host.node.control.queries.get(name)
            while known is not None and now is not None and now.since == known.since:  # else it is closed
                if not is_here or now.placed != known.placed:
                    raise NodeUnavailable(f"view {name} has moved to another node: read it there")
                if group in now.stands and now.stands[group][1] == stands:
                    return
                with suppress(Dropped):  # what was said before, and not heard of, has come first
                    self._host.submit(ev.Submitted(_standing(name, now, group, stands)), RECORD_S)
                    return
                now = self._host.node.control.queries.get(name)

        return wait

    def settle(self, timeout_s: float | None) -> None:
        """Waits for all nodes."""
        started_s = time.monotonic()
        try:
            self._settling.settle(timeout_s)
        except NodeUnavailable as error:
            if timeout_s is not None and time.monotonic() - started_s >= timeout_s:
                why = NodeUnavailable(f"{error}: {self._host.who_is_away()}")
                raise not_settled(timeout_s, why) from why
            raise

    # --- the engine itself --------------------------------------------------------------------------------------------

    def check_views(self, query: Query) -> None:
        if (lacking := self._node_without(VIEWS)) is not None:
            assert query.registration is not None
            raise StreamError(
                f"query {query.registration.name} has no FROM STREAM, so it is a live view, and node {lacking} is "
                "of an earlier release, which has none, or was not heard yet: upgrade all nodes first, or give the "
                "query a window"
            )

    def _node_without(self, feature: str) -> int | None:
        """Return a node that does not know a feature (boot.KNOWS), or does not introduce itself within HEARD_S; None:
        all know it."""

        def have_come(_: object) -> bool:
            return all(self._known_by(node) is not None for node in members_of(self._host))

        with suppress(NodeUnavailable):
            self._host.wait_until(have_come, current().within(HEARD_S), "the introductions of nodes")
        return next((one for one in sorted(members_of(self._host)) if feature not in (self._known_by(one) or ())), None)

    def register_view(
        self, query: Query, source: QuerySource, options: ViewOptions, on_result: OnReport | None
    ) -> LiveView:
        """The view stands at this node, which asks the others for what they hold. If another node had it, with the
        same text and options, and was taken out since, and this node has taken it over, it goes on."""
        assert query.registration is not None
        name, store = query.registration.name, self._store
        with self._core.lock:
            self._core.check_is_open()
        if not is_left_here(store, name, source, options) and not free_name(self._host, store, name, source, options):
            makes = self._stream_of_view(query, source, options)
            texts = [*(term.text for term in constants_of(query)), *terms_of_bindings(source.bindings)]
            self._claims.settle_texts(texts)
            payload = Registration(source, None, view=options).payload()
            store.records.new_views.add(name)
            try:
                self._submit_new(RegisterQuery(name, (), (self._host.me.node,), payload, makes))
            finally:
                store.records.new_views.discard(name)
        with self._core.lock:
            view = store.views.get(name)
            if view is None:
                raise StreamError(f"view {name} was closed while it was being registered")
            view.is_recovered = False
            if on_result is not None:
                view.call(on_result)
        return view

    def _stream_of_view(self, query: Query, source: QuerySource, options: ViewOptions) -> str:
        """Return the key of the stream that a view makes from now on; empty: it makes none, or another view has made
        it before. Raises StreamError, AccessError."""
        with self._core.lock:
            state = checked_stream(self._core, query, source.only, options, self._is_written)
            if state is None:
                return ""
            control, name = self._host.node.control, state.iri
            if (other := maker_of(name, control.queries)) is not None:
                raise StreamError(f"stream {name} is made by query {other}: close that one first")
            self._check_cycles(query, options)
            return "" if state.is_made else control.key_of(name)

    def views(self) -> list[LiveView]:
        """Return none: those of the whole cluster are among `queries`."""
        return []

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
                    known.source, known.is_stream, _ = _text_of(name, registered)
                    known.changes = registered.changes
                distant[name] = known
                if not known.is_closed:
                    found.append(known)
        self._distant = distant
        return found

    def home_of(self, name: str, source: QuerySource | None, wait_s: float) -> str | None:
        """Do as wukongs.remote.calls.InCluster.home_of."""
        host, deadline = self._host, time.monotonic() + wait_s
        while (known := (seen := host.node).control.queries.get(name)) is not None:
            if source is not None and read_registration(known.payload, name).alone != source:
                return None
            home = min(known.nodes)
            is_here, left_s = host.me.node in known.nodes, deadline - time.monotonic()
            is_away = seen.control.members[home].role is not Role.IN or is_silent(seen, home)
            if is_here and (left_s <= 0 or self._store.query(name) is not None):
                return None
            if not is_here and (wait_s <= 0 or not is_away):
                return self.ingest_addresses[home] if home < len(self.ingest_addresses) else None
            if left_s <= 0:
                raise NodeUnavailable(
                    f"query {name} is registered at node {home}, which does not answer, and no other node has taken it "
                    "over yet: ask again later, or start the node anew"
                )
            host.wait_until(lambda node, seen=seen: node is not seen, left_s, "a pulse")  # type: ignore[misc]
        return None

    def _distant_query(self, name: str, node: int, registered: Registered) -> DistantQuery:
        source, is_stream, view = _text_of(name, registered)
        addresses = self.ingest_addresses
        address = addresses[node] if node < len(addresses) else None
        since, changes = registered.since, registered.changes
        return DistantQuery(self._peers, self, name, node, address, source, is_stream, since, changes, view=view)

    def stats(self) -> dict[str, Any]:
        """Return the counts of the cluster: each thing counts once, however many nodes hold it
        (docs/api.md). node: this node's number; members: the role of each node, or SILENT while nothing is heard of it;
        taken_out: how often the others have gone on without a node of which nothing was heard, since this one began;
        on_one_machine: the nodes of shards that a machine alone holds, where there are several machines;
        this_node: the facts of this node alone; silent_nodes: members that have not answered; counts that only they
        know are missing."""
        node = self._host.node
        counts, silent = self._counting.cluster()
        unheard = {*silent, *node.silent_members}
        reads = counts.pop("reads_of_other_nodes", {})
        own = self._counting.own()
        return {
            **counts,
            "rules": {one.name: {"is_paused": one.is_paused} for one in self.rules()},
            "node": node.me.node,
            "leader": node.log.leader,
            "voters": sorted(voter.node for voter in node.log.voters),
            "members": {
                str(number): SILENT if number in unheard else member.role.value
                for number, member in node.control.members.items()
            },
            "taken_out": {str(number): count for number, count in sorted(self._host.taken_out.copy().items())},
            "on_one_machine": [list(nodes) for nodes in on_one_machine(node.control, node.machines)],
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
        """Let each node with a data folder make one. Raises StorageError, which names the nodes that have none."""
        self._core.check_is_open()
        self._backups.checkpoint()

    def backup(self, folder: Path) -> None:
        self._core.check_is_open()
        self._backups.write(folder)

    def add_node(self, clients: str, peers: str, public_key: str, timeout_s: float | None) -> int:
        return add(self._host, clients, peers, public_key, timeout_s)

    def remove_node(self, node: int, timeout_s: float | None) -> None:
        remove(self._host, node, timeout_s)

    def change_rules(self, change: Callable[[Ruleset], Ruleset]) -> int:
        self._core.check_is_open()
        self.begin_read(current())  # or a name that another node has dropped would still be taken here

        def checked(ruleset: Ruleset) -> Ruleset:
            after = change(ruleset)
            with self._core.lock:
                self._check_cycles(None, None, after)
            return after

        return self._shown(self.following.change_rules(checked, current()))

    def rules(self) -> list[InstalledRule]:
        return list(self.following.ruleset().rules.values())

    def inference(self) -> Inference:
        return self.following.inference()

    def why(self, triple: Sequence[str], graph: str | None, limits: Limits) -> Derivation | None:
        self._core.check_is_open()
        return self.following.why(triple, graph, limits)

    def drain(self, node: int, to: Sequence[int] | None, timeout_s: float | None) -> None:
        self._core.check_is_open()
        drain(self._host, node, to, timeout_s)

    def close(self) -> None:
        """Nothing: whoever runs the node ends it."""


def _declaration(name: str, options: Mapping[str, Any], before: str, *, is_made: bool = False) -> DeclareStream:
    batch_ms, payload = options["batch_ms"], json.dumps(options)
    first_tick = first_tick_of(batch_ms)
    return DeclareStream(name, (), batch_ms, first_tick=first_tick, payload=payload, replaces=before, is_made=is_made)


def _text_of(name: str, registered: Registered) -> tuple[QuerySource, bool, ViewOptions | None]:
    """Return the text of a query, without the arguments of a live view, whether it makes a stream, and the options of a
    live view."""
    registration = read_registration(registered.payload, name)
    is_stream = registration.view is None and makes_stream(registration.parsed())
    return registration.alone, is_stream, registration.view


def _standing(name: str, view: Registered, group: str, stands: str) -> NameReaders:
    """Return the record that says next where a named reader of a live view stands."""
    count, _ = view.stands.get(group, (0, ""))
    return NameReaders(name, group, view.since, stands, count + 1, view.placed)
