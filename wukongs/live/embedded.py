"""EmbeddedBackend: the backend of an engine of its own, in memory or with a data folder. It decides alone: under the
core's lock, each change is committed to the journal, then applied."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wukongs.csparql.algebra import Query
from wukongs.csparql.terms import Term
from wukongs.errors import SettingsError, StorageError, StreamError
from wukongs.live.backend import OnResult, RegisteredQuery
from wukongs.live.core import Core
from wukongs.live.declarations import (
    check_made,
    check_windows,
    declare_stream,
    made_of,
    register_query,
    serve_readers,
    was_pushed,
)
from wukongs.live.idleness import hold_of
from wukongs.live.injector import Injector
from wukongs.live.joined_queries import JoinedQueries
from wukongs.live.journal import DataFolder, HasStats
from wukongs.live.lateness import LateTuples, late_tuples_of
from wukongs.live.query_source import QuerySource
from wukongs.live.query_windows import counts_from
from wukongs.live.reading import open_snapshot
from wukongs.live.stream import CoreSink, Stream
from wukongs.live.table_change import Change
from wukongs.live.usage import process_usage
from wukongs.live.views.caller import OnReport
from wukongs.live.views.live_view import LiveView
from wukongs.live.views.options import ViewOptions
from wukongs.live.views.runner import Views
from wukongs.live.views.view_arguments import ViewArguments
from wukongs.live.views.view_streams import checked_stream
from wukongs.live.watch import Watch
from wukongs.live.windows import reads_stored
from wukongs.outcomes import asked
from wukongs.query.execution.prepared import PreparedQueries
from wukongs.query.limits import Limits, check_seconds
from wukongs.rules.changing_graph import Read
from wukongs.rules.derivation import Derivation
from wukongs.rules.inference import InstalledRule, Ruleset
from wukongs.store.encoded import Encoded

if TYPE_CHECKING:
    from wukongs.store.bulk import FilePart
    from wukongs.store.rdf_files import OnMalformed, RdfReader

log = logging.getLogger("wukongs")


class EmbeddedBackend:
    """See wukongs.live.backend.Backend. prepared: for the counts; folder: that of a durable engine."""

    view = 0
    ingest_addresses = None

    def __init__(
        self,
        core: Core,
        injector: Injector,
        joined: JoinedQueries,
        prepared: PreparedQueries,
        folder: DataFolder | None = None,
    ) -> None:
        self._core, self._injector, self._prepared, self._folder = core, injector, prepared, folder
        self._sink = CoreSink(core, injector)
        self.joined = joined
        self.watch = Watch(core, injector)
        self.recovered_rules = set[str]() if folder is None else {*core.inference.ruleset.rules}
        self._views = Views(core, injector.callbacks, injector.queries, folder)
        with core.lock:
            for state in core.streams.values():
                state.active_s = core.now_s()
        try:
            with core.lock:
                if folder is not None:
                    self._views.restore(folder, injector.made.get)
                if core.streams:
                    self.watch.start()
        except BaseException:
            self.close()
            raise

    def begin_read(self, limits: Limits) -> None:
        """Nothing: it has all that it has acknowledged."""

    def end_read(self, sn: int, limits: Limits) -> None:
        """Nothing: there is no other node."""

    def load(self, number: int, reader: RdfReader, graph: Term | None, on_malformed: OnMalformed | None) -> int:
        from wukongs.live.bulk_load import load

        def report(run: FilePart) -> None:
            if on_malformed is not None:
                for line in run.malformed:
                    on_malformed(reader.name, line)

        return load(self._core, self._injector, number, reader, graph, strict=on_malformed is None, on_run=report)

    def update(self, operations: Sequence[Change], limits: Limits, only: tuple[str, ...] | None = None) -> int:
        from wukongs.live.update import update

        return update(self._core, self._injector, operations, limits, only)

    def change_rules(self, change: Callable[[Ruleset], Ruleset]) -> int:
        from wukongs.live.rule_changes import change_rules

        def checked(ruleset: Ruleset) -> Ruleset:
            after = change(ruleset)
            self._views.check_rules(after.program.rules)
            return after

        return change_rules(self._core, self._injector, checked)

    def rules(self) -> list[InstalledRule]:
        with self._core.lock:
            return list(self._core.inference.ruleset.rules.values())

    def why(self, triple: Sequence[str], graph: str | None, limits: Limits) -> Derivation | None:
        core = self._core
        with core.lock:
            handle = open_snapshot(core, None, "why")
            read, plans = Read(handle.read()), core.inference.plans()
        try:
            return core.inference.why(plans, read, handle.sn, triple, graph, limits)
        finally:
            with core.lock:
                handle.close()

    def fill(self, number: int, chunks: Iterable[Encoded]) -> int:
        core, confirmed = self._core, list[Encoded]()
        try:
            for chunk in chunks:
                core.journal.note_chunks(number, [chunk])
                confirmed.append(core.registry.confirm(chunk)[0])
            with core.lock:
                core.check_is_open()
                self._injector.catch_up()
                core.load_count = max(core.load_count, number)
                sn = core.next_sn
                change = {"op": "load", "number": number, "graph": None, "file": None, "sn": sn, "by": asked()}
                core.journal.commit(change)
                core.note_outcome(asked(), {"": sn})
                with core.storing(sn):
                    core.absorb(sn, confirmed, core.default_graph)
        except BaseException:
            core.journal.abandon(number)
            raise
        return sn

    def declare(self, name: str, options: dict[str, Any], late: LateTuples) -> Stream:
        """A stream that was found in the data folder goes to whoever first declares it with the same options."""
        core = self._core
        with core.lock:
            core.check_is_open()
            state = core.streams.get(name)
            if state is None:
                maker = self._injector.queries.get(name)
                if maker is not None and maker.is_stream:
                    raise StreamError(f"stream {name} is made by a query: declare it before that is registered")
                lsn = core.journal.commit({"op": "stream", "stream": name, "options": options})
                state = declare_stream(core, name, options, lsn)
                self._injector.start()
                self.watch.start()
            elif state.is_recovered and state.options == options:
                state.is_recovered = False
            else:
                known = f", with {state.options} in the data folder" if state.is_recovered else ""
                raise StreamError(f"stream {name} is declared already{known}: drop_stream it first to declare it anew")
        return Stream(state, self._sink, core.settings.hash_bits, late)

    def declared(self, name: str) -> Stream:
        core = self._core
        with core.lock:
            core.check_is_open()
            state = core.stream(name)
        return Stream(state, self._sink, core.settings.hash_bits, late_tuples_of(name, state.options))

    def drop(self, stream_iri: str) -> None:
        core = self._core
        with core.lock:
            core.check_is_open()
            core.stream(stream_iri)
            self._injector.catch_up()
            state = core.stream(stream_iri)
            readers = [self.joined.named(name) for name in self._injector.made.readers_of(stream_iri)]
            if readers:
                raise StreamError(f"stream {stream_iri} is read by {', '.join(readers)}: close these first")
            if makers := [view.name for view in self._views.makers if view.makes == stream_iri]:
                raise StreamError(f"stream {stream_iri} is made by view {makers[0]}: close that one first")
            core.journal.commit({"op": "drop", "stream": stream_iri})
            core.drop_stream(state)
            self._injector.made.forget(stream_iri)
            self._injector.wake()

    def register(self, query: Query, source: QuerySource, on_result: OnResult | None) -> RegisteredQuery:
        """A query that was found in the data folder goes on for whoever first registers the same text."""
        assert query.registration is not None
        name = query.registration.name
        core = self._core
        with core.lock:
            core.check_is_open()
            if any(window.is_counted for window in query.dataset.windows):
                self._injector.catch_up(is_ahead=True)  # what it counts from does not depend on the threads
            if self._views.get(name) is not None:
                raise StreamError(f"a live view named {name} is registered already: close it first")
            known = self.joined.get(name)
            if known is not None and known.is_recovered and known.source == source:
                known.attach(on_result)
                return known
            if known is not None:
                other = " in the data folder with another text or other bindings" if known.is_recovered else ""
                raise StreamError(f"a query named {name} is registered already{other}: close it first")
            self._check_is_not_made(name, name)
            makes = check_made(core, partial(made_of, self._injector), query, was_pushed)
            self._views.check_query(query)
            serve_readers(core, self._injector, query)
            if self.joined.get(name) is not None:
                raise StreamError(f"a query named {name} was registered at the same time: close it first")
            check_windows(core, query)
            from_ms = counts_from(core, query, self._injector.made.settled_closed_ms)
            if (made := self._injector.made.get(name)) is not None:
                from_ms = made.goes_on_from(from_ms, reads_stored(query))
            change = {"op": "register", "query": name, **source._asdict(), "from_ms": from_ms, "makes": makes}
            lsn = core.journal.commit(change)
            if makes:
                self._injector.made.add(core.streams[name])
            try:
                if not makes:
                    joined = self.joined.join(query, source, on_result, from_ms, lsn)
                    if joined is not None:
                        return joined
                registered = register_query(core, self._injector, query, on_result, source, lsn, from_ms)
            except BaseException:  # no memory for its bindings, or an interrupt
                if self.joined.get(name) is None:
                    core.journal.commit({"op": "close", "query": name, "of": lsn})
                raise
            for warning in registered.warnings():
                log.warning("query %s, %s", name, warning)
            return registered

    def check_views(self, query: Query) -> None:
        """Nothing: each engine of its own has them."""

    def register_view(
        self, query: Query, source: QuerySource, options: ViewOptions, on_result: OnReport | None
    ) -> LiveView:
        """A view that was found in the data folder goes on for whoever first registers the same text, with the same
        options and the same first table."""
        assert query.registration is not None
        name = query.registration.name
        with self._core.lock:
            self._core.check_is_open()
            known = self._views.get(name)
            if known is not None and known.is_recovered:
                if not known.is_of(source, options):
                    raise StreamError(
                        f"a live view named {name} is in the data folder with another text, options or bindings: close "
                        "it first"
                    )
                known.is_recovered = False
                if on_result is not None:
                    known.call(on_result)
                return known
        arguments = None if source.bindings is None else ViewArguments.of(self._core, query, source.bindings)
        with self._core.lock:
            self._core.check_is_open()
            if self.joined.get(name) is not None or self._views.get(name) is not None:
                raise StreamError(f"a query named {name} is registered already: close it first")
            state = checked_stream(self._core, query, source.only, options, was_pushed)
            if state is not None:
                self._check_is_not_made(state.iri, name)
            is_first = state is not None and self._injector.made.get(state.iri) is None
            view = self._views.register(query, source, options, on_result, arguments, makes=is_first)
            if state is not None:
                if is_first:
                    self._injector.made.add(state)
                self._injector.made.attach(view)
            return view

    def _check_is_not_made(self, stream_iri: str, name: str) -> None:
        """Raise StreamError if a stream is made by another query than that of a name."""
        made = self._injector.made.get(stream_iri)
        maker = None if made is None else made.producer
        if maker is not None and maker.name != name:
            raise StreamError(f"stream {stream_iri} is made by query {maker.name}: close that one first")

    def settle(self, timeout_s: float | None) -> None:
        check_seconds(timeout_s)
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        left_s = timeout_s
        while True:
            self._injector.settle(left_s)
            if not len(self._views):
                return
            sn = self._core.sn
            self._views.settle(left_s)
            self._injector.settle(left_s)  # what on_result was called for, and streams that views make
            if self._core.sn == sn or not self._views.makers:
                return
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())

    def queries(self) -> list[RegisteredQuery]:
        with self._core.lock:
            return [*self.joined.registered()]

    def views(self) -> list[LiveView]:
        with self._core.lock:
            return self._views.registered()

    def stats(self) -> dict[str, Any]:
        found = stats_of(self.joined, self._prepared, self._folder)
        return found | {"views": {view.name: view.stats() for view in self.views()}} if len(self._views) else found

    def checkpoint(self) -> None:
        self._core.check_is_open()
        if self._folder is not None:
            self._folder.checkpoint()

    def backup(self, folder: Path) -> None:
        self._core.check_is_open()
        if self._folder is None:
            raise StorageError(
                "this engine is in memory: only one with a data_dir is backed up; dump() writes its graphs"
            )
        self._folder.backup(folder)

    def drain(self, node: int, to: Sequence[int] | None, timeout_s: float | None) -> None:
        raise SettingsError("this engine is no cluster: it has no nodes to drain")

    def add_node(self, clients: str, peers: str, public_key: str, timeout_s: float | None) -> int:
        raise SettingsError("this engine is no cluster: nodes cannot be added to it")

    def remove_node(self, node: int, timeout_s: float | None) -> None:
        raise SettingsError("this engine is no cluster: it has no nodes to remove")

    def close(self) -> None:
        self._core.unread.check_may_wait()
        with self._core.lock:
            self._core.is_closed = True
            registered = list(self._injector.queries.values())
        self._injector.stop()
        self._views.stop()
        self._core.merger.close()
        self.watch.stop()
        if self._folder is not None:
            self._folder.close()
        self._views.end()
        for query in registered:
            query.end()


def stats_of(joined: JoinedQueries, prepared: PreparedQueries, folder: HasStats | None = None) -> dict[str, Any]:
    """Return counts and sizes (bytes) of the stored graph, streams and queries of one engine or node, as JSON."""
    core = joined.core
    with core.lock:
        core.finish_tick()
        trace = core.arrangement.trace
        found = {
            "sn": core.sn,
            "sealed_ms": core.sealed_ms,
            "stored_triples": len(trace) - trace.read(trace.upper).hidden_count,
            "stored_bytes": trace.size_bytes + core.arrangement.filter_bytes,
            "stored_batches": trace.batch_count,
            "terms": len(core.registry.persistent) + len(core.registry.transient),
            "term_bytes": core.registry.size_bytes,
            "malformed_lines": core.malformed_count,
            "handles": [{"owner": h.owner, "sn": h.sn, "age_s": h.age_s} for h in trace.handles()],
            "held_back_by": core.held_back_by(),
            "streams": {
                state.iri: {
                    "tuples": state.tuple_count,
                    "closed_ms": state.closed_ms,
                    "slices": state.ring.slice_count,
                    "arrivals": len(state.ring.arrivals),
                    "slice_bytes": state.ring.size_bytes,
                    "slice_bytes_max": state.slice_bytes_max,
                    "slices_evicted": state.evicted_count,
                    "tuples_not_indexed": state.slice_filter.discarded_count if state.slice_filter else 0,
                    "waiting_bytes": state.waiting_bytes,
                    "late": state.all_late_count,
                    "dropped": state.dropped_count,
                    "carried": state.all_carried_count,
                    "passed_over": state.passed_over_count,
                    "is_idle": state.is_idle,
                    "idle_advance": state.idle_advance,
                    "idle_hold": hold_of(core, state),
                }
                for state in core.declared.values()
            },
            "inferred_triples": trace.read(trace.upper).hidden_count,
            "rules": {name: {"is_paused": rule.is_paused} for name, rule in core.inference.ruleset.rules.items()},
            "updates": asdict(core.updated),
            "queries": {query.name: query.stats() for query in joined.registered()},
            "prepared_queries": {"kept": len(prepared), "hits": prepared.hit_count},
        }
    if core.reach is not None:
        found["reads_of_other_nodes"] = core.reach.traffic.stats()
    # Last: counting windows lets go of those that there is no room for.
    return {**found, "durability": {} if folder is None else folder.stats(), "process": process_usage(core.budget)}
