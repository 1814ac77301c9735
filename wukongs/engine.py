"""Engine: the embedded engine, in memory or durable: load, query, stream, register."""

from __future__ import annotations

import asyncio
import copy
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

from wukongs.consistency import LATEST, Consistency, check_consistency
from wukongs.csparql.algebra import DatasetClause, Output, Query
from wukongs.csparql.parser_rules import RULE_STREAM, ParsedRule
from wukongs.csparql.terms import iri
from wukongs.csparql.tokens import check_text
from wukongs.csparql.updates import using
from wukongs.errors import NodeUnavailable, RuleError, SettingsError, StorageError
from wukongs.live import export
from wukongs.live.argument_tables import Arguments
from wukongs.live.async_calls import AsyncCalls
from wukongs.live.backend import Backend, RegisteredQuery
from wukongs.live.callbacks import Inline
from wukongs.live.core import Core
from wukongs.live.declarations import check_continuous, parse_registered, stream_options
from wukongs.live.embedded import EmbeddedBackend
from wukongs.live.grants import DEFAULT_WORD, includes
from wukongs.live.injector import Injector
from wukongs.live.joined_queries import JoinedQueries
from wukongs.live.journal import DataFolder, NoJournal
from wukongs.live.lateness import Late, LateTuples, OnLate
from wukongs.live.prepared_query import PreparedQuery, ask_rows, check_one_shot
from wukongs.live.query_group import bindings_text
from wukongs.live.query_source import UNREAD_BYTES_MAX, QuerySource, Unread
from wukongs.live.reading import ask, dataset_of, explain_over
from wukongs.live.running import RunningQuery
from wukongs.live.seen_graphs import check_encoded, check_seen, graphs_of, seen_graphs
from wukongs.live.stored_reads import ROWS_MAX, StoredReads
from wukongs.live.stream import Pushable, Stream, Time, check_tables, named, push_many
from wukongs.live.table_change import TableChange
from wukongs.live.unknown_names import unknown_names
from wukongs.live.views.options import ViewOptions, check_view, is_rule
from wukongs.live.views.rule_query import RuleQuery
from wukongs.live.wall_clock import IdleAdvance
from wukongs.outcomes import asking
from wukongs.query.execution.prepared import Prepared, PreparedQueries, hold_parsed, while_read
from wukongs.query.execution.profile import Profile
from wukongs.query.limits import Limits, check_seconds, limits_of, scheduled, waiting
from wukongs.query.memory import Kind
from wukongs.query.output.html import engine_html
from wukongs.query.output.results import Result, WindowResult
from wukongs.query.plans.dataset import is_seen
from wukongs.query.terms.names import (
    given_terms,
    graph_names,
    graph_term,
    name_text,
    path_text,
    plain_iri,
    triple_texts,
    written_graph,
)
from wukongs.rules.derivation import Derivation
from wukongs.rules.inference import InstalledRule, Ruleset, standing_rule
from wukongs.rules.program import rules_of
from wukongs.rules.sources import RuleSource, read_all, read_rules
from wukongs.settings import Settings, settings_of
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI
from wukongs.store.encoded import MalformedLine

if TYPE_CHECKING:
    import pyarrow
    import rdflib

    from wukongs.wire.client_socket import ClientSocket
    from wukongs.wire.direct_link import DirectLink
    from wukongs.wire.ingest_service import IngestService
    from wukongs.wire.link import IngestLink


class Engine:
    """An engine inside this process; a context manager; thread-safe."""

    def __init__(
        self,
        data_dir: str | PathLike[str] | None = None,
        *,
        settings: Settings | Mapping[str, Any] | None = None,
        rules: RuleSource | Sequence[RuleSource] = (),
    ) -> None:
        """data_dir: the folder of a durable engine, made if need be (None: in memory). The effect of a method that has
        returned survives the end of the process and of the machine; streams, queries and windows not yet taken are
        there again. settings: the options, as Settings or a dictionary; by default those that the environment gives
        (WUKONGS_<NAME>). rules: sources as add_rules takes them; rules that the folder has are not added again.

        Raises RuleError, SettingsError, StorageError (in use, no access, hash_bits), CorruptionError (an altered file).
        """
        wanted = read_all([rules] if isinstance(rules, str | PathLike) else rules)
        core = Core(settings_of(settings), NoJournal())
        injector = Injector(core)
        prepared = PreparedQueries(core.settings.prepared_queries_max)
        joined = JoinedQueries(core, injector)
        folder: DataFolder | None = None
        if data_dir is not None:
            from wukongs.durable.recovery import open_folder

            folder = open_folder(Path(data_dir), core, injector, joined)
        self._put_together(core, injector, prepared, EmbeddedBackend(core, injector, joined, prepared, folder))
        try:
            self._add_rules(wanted, lambda ruleset, stored: ruleset.with_missing(stored))
        except BaseException:
            self.close()
            raise

    def _put_together(self, core: Core, injector: Injector, prepared: PreparedQueries, backend: Backend) -> None:
        self._core, self._injector, self._prepared, self._backend = core, injector, prepared, backend
        self._sockets: list[ClientSocket] = []
        self._async_calls = AsyncCalls()
        self._reads = StoredReads(core)
        self._streams: dict[str, Stream] = {}
        """The streams that were declared by this object."""
        core.budget.measure()  # beside what is stored by now
        self._listed: tuple[str, ...] | None = None
        """The graphs and streams that there are for who calls this object, sorted; None: all."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        core = self._core
        if core.is_disowned:
            return "<Engine of another process>"
        what = "closed" if core.is_closed else f"{len(core.declared)} streams, {len(self._backend.queries())} queries"
        return f"<Engine {what}>"

    def _repr_html_(self) -> str:
        return engine_html("Engine", self.stats)

    @property
    def settings(self) -> Settings:
        """The options that it was opened with."""
        return self._core.settings

    # --- for some graphs only -----------------------------------------------------------------------------------------

    def _seeing(self, graphs: Iterable[str] | None) -> Engine:
        """Return this engine as it is for who may see some graphs and streams only (None: all). Queries
        and updates read a dataset of these graphs alone; what names or changes another one is an AccessError, and the
        calls that list something leave it out. Calls that concern all graphs (Grant.check) are not refused here."""
        if graphs is None:
            return self
        view = copy.copy(self)
        view._listed = tuple(sorted(set(graphs) if self._listed is None else set(graphs).intersection(self._listed)))
        return view

    def _registering_for(self, graphs: Sequence[str] | None) -> Engine:
        """Return this engine as queries see it that are registered for some graphs and streams (None: for those that
        its caller sees). Raises AccessError (one that its caller does not see), SettingsError, DataError."""
        if graphs is None:
            return self
        names = [DEFAULT_GRAPH_IRI if name == DEFAULT_WORD else name for name in graph_names("graphs", graphs)]
        for name in names:
            check_seen(name, self._listed, "register a query for")
        return self._seeing(names)

    @property
    def _only(self) -> tuple[str, ...] | None:
        """The graphs that may be read and written: those of the list into which nothing is inferred from others."""
        return None if self._listed is None else seen_graphs(self._listed, tuple(self._backend.rules()))

    def _check_seen(self, name: str | None, verb: str) -> None:
        """Raise AccessError for a graph (None: the default graph) that is not seen."""
        check_seen(DEFAULT_GRAPH_IRI if name is None else name, self._only, verb)

    def _check_streams(self, query: Query, only: tuple[str, ...] | None) -> None:
        """Raise AccessError if a query to register reads a stream that is not seen."""
        for window in query.dataset.windows:
            if not self._sees_stream(window.stream, only):
                check_seen(window.stream, (), "read")

    def _check_pushed(self, stream: Stream, table: pyarrow.Table | None) -> None:
        """Raise AccessError if tuples for a stream would join a graph that is not seen."""
        if self._listed is None or table is None:
            return
        if stream.options["timing"] is not True:
            into = stream.options["into"]
            self._check_seen(None if into is None else plain_iri(into), "push to")
        if "graph" in table.column_names:
            for text in table.column("graph").unique().to_pylist():
                if text is not None:
                    self._check_seen(plain_iri(text), "push to")

    def _replace(
        self, query: RegisteredQuery, text: str, base: str | None = None, output: Output | None = None
    ) -> None:
        """Give a query another text, as ContinuousQuery.replace. It may read what its first text might read, and no
        other streams."""
        source = query.source._replace(text=text, base=base, output=output)
        self._check_streams(parse_registered(source), source.only)
        query.replace(text, base, output)

    def _sees_stream(self, name: str, only: Sequence[str] | None) -> bool:
        """Tell whether a stream may be read. One that a query makes is seen by who sees all that the query may read."""
        if only is None:
            return True
        return name in only if (maker := self._makers().get(name)) is None else includes(only, maker.source.only)

    def _makers(self) -> dict[str, RegisteredQuery]:
        """Return the queries that make streams, by the names of these."""
        return {one.name: one for one in self._backend.queries() if one.is_stream}

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
        blank_scope: str | None = None,
        contexts: Mapping[str, str | PathLike[str]] | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Add the triples of a file (path or binary file object) to the stored graph, as one more snapshot; return its
        SN. graph: IRI of the graph for triples without one of their own (default: the default graph). format: nt nq ttl
        trig n3 rdf jsonld, by default from the file's name; .gz and .zst are read as they are.

        A malformed line of nt or nq is set aside and reported to on_malformed(file, line) (by default, logged), or with
        strict raises. blank_scope: loads of one name share their blank node labels of nt and nq, as parts of a file do
        (default: each load has its own). contexts: files that stand for contexts of JSON-LD, by IRI, beside those of
        the settings: nothing is fetched. timeout_s: how long other nodes are waited for, all in all (default: a minute
        for each step). Raises DataError (file, line); then nothing of the file was added.
        """
        from wukongs.live.bulk_load import log_malformed, open_file
        from wukongs.store.json_ld_text import Contexts

        def set_aside(file: str, line: MalformedLine) -> None:
            self._core.malformed_count += 1
            if on_malformed is not None:
                on_malformed(file, line)
            else:
                log_malformed(self._core.malformed_count, file, line)

        if isinstance(source, str | PathLike):
            source = path_text("source", source)
        if blank_scope is not None:
            blank_scope = name_text("blank_scope", blank_scope)
        into = None if graph is None else written_graph(graph)
        given = None if contexts is None else Contexts.from_mapping(contexts)
        only, name = self._only, DEFAULT_GRAPH_IRI if into is None else into.name
        check = None if only is None else partial(check_encoded, only=only, into=name)
        number, reader = open_file(self._core, source, base, format, blank_scope, given, check)
        with reader, waiting(timeout_s):
            return self._backend.load(number, reader, into, None if strict else set_aside)

    def graph_names(self) -> list[str]:
        """Return the names of the stored named graphs: IRIs, and the labels of blank nodes, as answers have them.

        Each opens with graph(), dump() and load(), and as a graph of a query."""
        self._backend.begin_read(limits_of(self._core.settings, None))
        return [name for name in export.graph_names(self._core) if is_seen(name, self._only)]

    def graph(self, name: str | None = None) -> rdflib.Graph:
        """Return a stored graph (default: the default graph) as an rdflib.Graph of its own.

        Raises DataError for a term of RDF 1.2 that rdflib has not: dump writes it."""
        self._check_seen(None if name is None else plain_iri(name), "read")
        self._backend.begin_read(limits_of(self._core.settings, None))
        return export.as_rdflib(self._core, name)

    def dump(self, path: str | PathLike[str], graph: str | None = None, *, consistency: Consistency = LATEST) -> int:
        """Write a stored graph (default: the default graph) to a file as N-Triples; return how many triples.
        consistency: as query has it.

        Raises StorageError, and DataError for an extension of another format (.rdf, .jsonld, .gz ...), which the file
        would not be."""
        self._check_seen(None if graph is None else plain_iri(graph), "read")
        check_consistency(consistency)
        if consistency == LATEST:
            self._backend.begin_read(limits_of(self._core.settings, None))
        return export.dump(self._core, path_text("path", path), graph)

    def update(
        self,
        text: str,
        base: str | None = None,
        timeout_s: float | None = None,
        *,
        default_graphs: Sequence[str] = (),
        named_graphs: Sequence[str] = (),
    ) -> int:
        """Apply a SPARQL Update request, as one more snapshot; return its SN, once that is stable. All of it is applied
        or, with an error, nothing; its operations see what those before them in the request have changed. Updates are
        serial. base: what relative IRIs are resolved against, also those of files that LOAD names. timeout_s: None for
        no limit. default_graphs, named_graphs: IRIs, as if each operation said USING and USING NAMED.

        Raises QuerySyntaxError, UnsupportedFeatureError, UpdateError (a graph that is not there, or is there already;
        a dataset beside USING or WITH), DataError (LOAD: file, line), QueryTimeout, BudgetExceeded, StorageError."""
        from wukongs.csparql.parser_update import parse_update

        limits = limits_of(self._core.settings, timeout_s or 0, kind=Kind.UPDATE)
        check_text(text)
        with limits:
            hold_parsed(text, limits)
            request, dataset = parse_update(text, base), _dataset(default_graphs, named_graphs)
        request = request if dataset is None else using(request, dataset)
        return self._backend.update(request.operations, limits, self._only)

    async def aupdate(
        self,
        text: str,
        base: str | None = None,
        timeout_s: float | None = None,
        *,
        default_graphs: Sequence[str] = (),
        named_graphs: Sequence[str] = (),
    ) -> int:
        """Do the same as update, for `await`. A task that is cancelled ends the update, unless it was about to be
        applied: then it is applied, whole."""
        return await self._async_calls.do(
            partial(self.update, text, base, timeout_s, default_graphs=default_graphs, named_graphs=named_graphs)
        )

    def apply(
        self,
        inserts: pyarrow.Table | None = None,
        deletes: pyarrow.Table | None = None,
        *,
        timeout_s: float | None = None,
    ) -> int:
        """Let the triples of one table go, then those of another come, as one more snapshot; return its SN, once that
        is stable. It is an update: serial with others, all of it or nothing. A triple in both stays, or comes.

        Tables have the columns subject, predicate, object and, for triples of a named graph, graph: N-Triples strings,
        dictionary-encoded or not. Repeats, triples that are there already and some that are not there are allowed. A
        blank node is the one that a result has reported under its label, or a new one of this call. timeout_s: None for
        no limit.

        Raises SettingsError (no table), DataError (a column; row and column of what is no term or does not fit there),
        QueryTimeout, BudgetExceeded, StorageError."""
        operations = [] if inserts is deletes is None else [TableChange.of(inserts, deletes)]
        limits = limits_of(self._core.settings, timeout_s or 0, kind=Kind.UPDATE)
        return self._backend.update(operations, limits, self._only)

    # --- rules --------------------------------------------------------------------------------------------------------

    def add_rules(self, source: RuleSource, *, into: str | None = None) -> tuple[str, ...]:
        """Follow more rules from now on; return their names. All that follows from the stored graph is there at one
        more snapshot, and from then on together with each change.

        source: the name of a shipped set ("rdfs", "owl-rl"), the path of a rule file, or its text. into: IRI of the
        graph that the rules read and conclude into (default: the default graph). Raises RuleError (file, line; a name
        that is taken; a circle through NOT EXISTS or an aggregate; a rule that takes more than rules_timeout_s or
        rules_rows_max), StorageError. Nothing has changed then."""
        graph = None if into in (None, DEFAULT_GRAPH_IRI) else written_graph(into).name
        return self._add_rules(read_rules(source), lambda ruleset, stored: ruleset.with_rules(stored, graph), graph)

    def _add_rules(
        self,
        parsed: Sequence[ParsedRule],
        change: Callable[[Ruleset, Sequence[ParsedRule]], Ruleset],
        into: str | None = None,
        reads: str | None = None,
    ) -> tuple[str, ...]:
        """Add rules over stored graphs by a change of those that there are, then those over windows, which are
        registered as queries; none at all if one cannot be added. into, reads: as in InstalledRule."""
        stored = [one for one in parsed if one.standing is None]
        self._check_rules(stored, into, reads)
        before, standing, added = {rule.name for rule in self.rules()}, self._standing(), list[RegisteredQuery]()
        for one in parsed:
            if one.standing is not None and into is not None:
                raise one.error("no graph to conclude into", into, "what a rule over windows concludes is a stream")
            if one.name in before and (one.standing is None) == (one.name in standing):
                found = f"rule {one.name}, which is there already"
                raise one.error("a name that no other rule has", found, "drop that one first")
        if stored:
            self._backend.change_rules(lambda ruleset: change(ruleset, stored))
        try:
            for one in parsed:
                if one.standing is not None:
                    added.append(self.register(one.standing))
        except BaseException:
            for query in added:
                query.close()
            names = [one.name for one in stored if one.name not in before]
            if names:
                with asking(None):  # not the change that was asked for, which counts once
                    self._backend.change_rules(lambda ruleset: ruleset.without(names))
            raise
        return tuple(one.name for one in parsed)

    def _check_rules(self, stored: Sequence[ParsedRule], into: str | None, reads: str | None = None) -> None:
        """Raise AccessError if a rule is about a graph that is not seen; RuleError if a registered query would read
        what it concludes, and may not read what it concludes from."""
        seen, queries = self._only, [one for one in self._backend.queries() if one.source.only is not None]
        if seen is None and not queries:
            return
        for one in stored:
            for rule in rules_of(one, *(None if name is None else iri(name) for name in (into, reads))):
                graphs, graph = graphs_of(rule), DEFAULT_GRAPH_IRI if rule.into is None else rule.into.name
                for name in sorted(graphs):
                    check_seen(name, seen, "use in a rule")
                for query in queries:
                    only = query.source.only or ()
                    if graph in only and not graphs.issubset(only):
                        found = f"query {query.name}, which is registered for {', '.join(only)}"
                        told = "no registered query that may read what the rule concludes, but not all that it reads"
                        raise one.error(told, found, "close that one first")

    def _standing(self) -> dict[str, RegisteredQuery]:
        """Return the rules over windows, by name."""
        queries = self.queries()
        return {one.name.removeprefix(RULE_STREAM): one for one in queries if one.name.startswith(RULE_STREAM)}

    def drop_rules(self, *names: str) -> int:
        """Follow some rules no more: what they have concluded goes at one more snapshot, whose SN is returned. Raises
        RuleError (no such rule), StorageError."""
        return self._change_rules(names, Ruleset.without, lambda query: query.close())

    def resume_rules(self, *names: str) -> int:
        """Let rules go on that were paused, since they took too much; return the SN at which all follows again. Raises
        RuleError (no such rule; it takes too much again)."""
        return self._change_rules(names, Ruleset.resumed, lambda query: query.resume())

    def _change_rules(
        self,
        names: Sequence[str],
        change: Callable[[Ruleset, Sequence[str]], Ruleset],
        change_query: Callable[[RegisteredQuery], None],
    ) -> int:
        """Change rules over stored graphs by name, then the queries of those over windows; return the newest SN."""
        standing = self._standing()
        if self._listed is not None and (hidden := sorted({*names} - {one.name for one in self.rules()})):
            raise RuleError("the name of a rule", hidden[0], suggestion="rules() has those that there are")
        if stored := [name for name in names if name not in standing]:
            self._backend.change_rules(lambda ruleset: change(ruleset, stored))
        for name in names:
            if name in standing:
                change_query(standing[name])
        return self._core.sn

    def why(
        self, triple: Sequence[Any], graph: str | None = None, *, timeout_s: float | None = None
    ) -> Derivation | None:
        """Tell why a triple is there: that it is explicit, or the rule that gives it and the triples that this rests
        on, down to explicit ones. None: it is not there. print() shows it as a tree.

        triple: subject, predicate, object, each as Stream.push takes a term. graph: IRI (default: the default graph).
        Raises DataError (no triple), QueryTimeout, BudgetExceeded."""
        name = None if graph is None else graph_term(graph).name
        self._check_seen(name, "read")
        limits = limits_of(self._core.settings, timeout_s)
        self._backend.begin_read(limits)
        return self._backend.why(triple_texts(triple), name, limits)

    def rules(self) -> list[InstalledRule]:
        """Return the rules: those over stored graphs in the order in which they were added, then those over windows."""
        standing = [standing_rule(name, query.source.text) for name, query in self._standing().items()]
        return [*filter(self._sees_rule, self._backend.rules()), *standing]

    def _sees_rule(self, rule: InstalledRule) -> bool:
        only = self._only
        if only is None:
            return True
        found = Ruleset.of([replace(rule, error=None)]).program.rules
        return all(graphs_of(one).issubset(only) for one in found)

    # --- one-shot queries ---------------------------------------------------------------------------------------------

    def query(
        self,
        text: str,
        bindings: Mapping[str, Any] | None = None,
        base: str | None = None,
        timeout_s: float | None = None,
        at: int | None = None,
        *,
        default_graphs: Sequence[str] = (),
        named_graphs: Sequence[str] = (),
        consistency: Consistency = LATEST,
    ) -> Result:
        """Answer a one-shot query over the newest stable snapshot, or over that of SN `at`.

        timeout_s: how long it may run; None: query_timeout_s of the settings, 0: for ever. bindings: variable name ->
        term as Stream.push takes it, put in its place. default_graphs, named_graphs: IRIs, which take the place of
        what the query says with FROM and FROM NAMED. consistency: on a cluster, "local" reads what this node has,
        which may be old, also where it is cut off from the others. Raises QuerySyntaxError, UnsupportedFeatureError,
        QueryTimeout, BudgetExceeded, CompactedError (at), StreamError (a query with windows), NodeUnavailable (on a
        cluster: this node may have old data).
        """
        started_s = time.monotonic()
        check_consistency(consistency)
        with while_read(text, self._core.settings, timeout_s):
            prepared = self._one_shot(text, base, _dataset(default_graphs, named_graphs))
        terms = given_terms(bindings) if bindings else {}
        given = {name: term for name, term in terms.items() if name in prepared.variables}
        return self._answer(prepared, text, given, timeout_s, at, started_s, consistency)

    async def aquery(
        self,
        text: str,
        bindings: Mapping[str, Any] | None = None,
        base: str | None = None,
        timeout_s: float | None = None,
        at: int | None = None,
        *,
        default_graphs: Sequence[str] = (),
        named_graphs: Sequence[str] = (),
        consistency: Consistency = LATEST,
    ) -> Result:
        """Do the same as query, for `await`. A task that is cancelled ends the query."""
        graphs = {"default_graphs": default_graphs, "named_graphs": named_graphs}
        ask = partial(self.query, text, bindings, base, timeout_s, at, **graphs, consistency=consistency)
        return await self._async_calls.do(ask)

    def warnings(
        self,
        text: str,
        base: str | None = None,
        *,
        default_graphs: Sequence[str] = (),
        named_graphs: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Return likely mistakes of a one-shot query, a sentence each: variables that are asked for and that nothing
        binds, predicates that neither the stored graph nor a stream has, graphs that do not exist, each with the
        nearest one that is there. default_graphs, named_graphs: as query has them. Raises as query."""
        prepared = self._one_shot(text, base, _dataset(default_graphs, named_graphs))
        return (*prepared.warnings, *unknown_names(self._core, prepared.asked, prepared.unseen))

    def _answer(
        self,
        prepared: Prepared,
        text: str,
        given: Mapping[str, str],
        timeout_s: float | None,
        at: int | None,
        started_s: float,
        consistency: Consistency = LATEST,
    ) -> Result:
        """given: canonical terms of the query's variables."""
        check_seconds(timeout_s)
        query, memo, bound, names = prepared.query, prepared.memo, None, tuple(sorted(given))
        plans, terms = prepared.bound(names), [given[name] for name in names]
        if at is None and self._core.reach is None:
            with self._core.lock:
                limits = partial(limits_of, self._core.settings, timeout_s, started_s)
                if (result := self._reads.answer(plans, terms, text, limits)) is not None:
                    return result
        if given:
            query, memo, bound = plans.bound.query, plans.memo, partial(plans.bound.given, terms)
        owner = f"query {text[:40]!r}"
        return self._until_answered(
            lambda limits: ask(self._core, query, memo, limits, owner, at, given=bound, text=text)[0],
            timeout_s,
            started_s,
            is_latest=at is None and consistency == LATEST,
        )

    def prepare(self, text: str, base: str | None = None) -> PreparedQuery:
        """Return a one-shot query to be asked many times, with other terms for its variables: one row of terms by a
        call, many rows by PreparedQuery.many. Its plans are kept. Raises QuerySyntaxError, UnsupportedFeatureError,
        StreamError (a query with windows)."""
        prepared = self._one_shot(text, base)

        def ask_once(
            bindings: Mapping[str, Any], timeout_s: float | None, at: int | None, consistency: Consistency
        ) -> Result:
            started_s = time.monotonic()
            return self._answer(prepared, text, given_terms(bindings), timeout_s, at, started_s, consistency)

        def ask_many(table: pyarrow.Table, timeout_s: float | None, at: int | None, consistency: Consistency) -> Result:
            check_seconds(timeout_s)
            started_s, owner = time.monotonic(), f"query {text[:40]!r}, {table.num_rows} rows"
            if at is None and self._core.reach is None and table.column_names and 0 < table.num_rows <= ROWS_MAX:
                plans = prepared.bound(tuple(sorted(table.column_names)))
                own = partial(limits_of, self._core.settings, timeout_s, started_s)
                if (result := self._reads.answer_many(plans, table, own)) is not None:
                    return result
            return self._until_answered(
                lambda limits: ask_rows(self._core, prepared, table, limits, owner, at),
                timeout_s,
                started_s,
                is_latest=at is None and consistency == LATEST,
            )

        return PreparedQuery(prepared.query, ask_once, ask_many)

    def _until_answered(
        self, answer: Callable[[Limits], Result], timeout_s: float | None, started_s: float, *, is_latest: bool = True
    ) -> Result:
        """Answer a query, again if a node was taken out meanwhile: the others have what it held. is_latest: whether
        nothing acknowledged may be missing."""
        while True:
            view = self._backend.view
            try:
                limits = scheduled(limits_of(self._core.settings, timeout_s, started_s))
                if not is_latest:
                    return answer(limits)
                self._backend.begin_read(limits)
                result = answer(limits)
                self._backend.end_read(result.snapshot, limits)
                return result
            except NodeUnavailable:
                if self._backend.view == view:
                    raise
            started_s = time.monotonic()

    def explain(
        self,
        text: str,
        base: str | None = None,
        *,
        analyze: bool = False,
        timeout_s: float | None = None,
        default_graphs: Sequence[str] = (),
        named_graphs: Sequence[str] = (),
    ) -> str:
        """Return the plan of a one-shot query as text, with estimated rows.

        analyze: run the query too, and show the actual rows of each step, and rows and time of each operator with all
        below it; then timeout_s and the errors are those of query(). default_graphs, named_graphs: as query has
        them."""
        started_s = time.monotonic()
        with while_read(text, self._core.settings, timeout_s):
            prepared = self._one_shot(text, base, _dataset(default_graphs, named_graphs))
        core = self._core
        if analyze:
            limits = scheduled(limits_of(core.settings, timeout_s, started_s))
            profile = Profile()
            self._backend.begin_read(limits)
            _, dataset = ask(core, prepared.query, prepared.memo, limits, f"explain {text[:40]!r}", profile=profile)
            return explain_over(prepared.query, dataset, profile)
        with core.lock:
            core.check_is_open()
            core.finish_tick()
            stored = core.arrangement.trace.read(core.sn)
            dataset = dataset_of(core, prepared.query.dataset, stored, core.sn)
        return explain_over(prepared.query, dataset)

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
        lateness_ms: int = 0,
        on_late: OnLate = None,
        idle_timeout_ms: int | None = None,
        idle_advance: IdleAdvance | None = None,
        late: Late = "drop",
        retractions: Literal["event_time"] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Stream:
        """Declare a stream. timing: IRIs of the predicates whose tuples only live in windows, or True for all; into:
        IRI of the graph that the other tuples join (default: the default graph); batch_ms: length of a stream batch;
        history_ms: how long slices are kept at least; slice_bytes_max: what slices, their blocks and transient terms
        may take: when it is full, the oldest slices go, and windows that needed them are partial, or told as a gap
        (GapError) if they have lost all. index: "matching" keeps only tuples whose predicate a registered query can
        match in a window, so that a query registered later may get windows marked partial. lateness_ms: how far behind
        the newest tuple one may come and still be in its windows. on_late: is given the tuples that come later: a
        function that takes a table as push_arrow does, the path of a file that grows by lines of N-Quads, or "count",
        which is enough with a lateness_ms. Without either, a time that falls is a StreamError. idle_timeout_ms: a
        stream that brings nothing for so long, by the clock of the machine, closes what it has and follows the other
        streams, until it brings something again; what then comes behind them is late. idle_advance: "wall": while it is
        idle it follows the wall clock less lateness_ms instead, so that windows over its silence come; not while its
        newest tuple differs from the wall clock by more than a day. late: "open" lets a late tuple join the windows
        that contain its time and end after the watermark; "drop" leaves it out of all. retractions: "event_time"
        lets the newest tuple of each triple count in the stored graph, whenever it comes. A stream that was found in
        the data folder is returned to whoever first declares it with the same options. timeout_s: on a cluster, how
        long the other nodes may take (default: as long as each step may, 30 s). Raises StreamError (declared already),
        SettingsError.
        """
        name = plain_iri(stream_iri)
        options = stream_options(
            self._core.settings,
            timing,
            batch_ms,
            into,
            history_ms,
            slice_bytes_max,
            index,
            lateness_ms,
            on_late,
            idle_timeout_ms,
            idle_advance,
            late,
            retractions,
        )
        self._check_seen(name, "declare")
        if options["timing"] is not True:
            self._check_seen(None if options["into"] is None else plain_iri(options["into"]), "write")
        with waiting(timeout_s):
            declared = self._streams[name] = self._backend.declare(name, options, LateTuples(name, on_late))
        return declared

    def declared(self, stream_iri: str) -> Stream:
        """Return a declared stream, whoever has declared it. A function that was given as its on_late is called only
        for what is pushed by the object that its declaration has returned. Raises StreamError (unknown)."""
        name = plain_iri(stream_iri)
        if not self._sees_stream(name, self._only):
            check_seen(name, (), "use")
        known = self._streams.get(name)
        return self._backend.declared(name) if known is None else known

    def push_many(
        self, tables: Mapping[str, Pushable], advance_ms: Time | None = None, *, timeout_s: float | None = None
    ) -> dict[str, int]:
        """Add tuples to several streams, then let all of them advance to a time, in one call; return how many were
        added, by stream.

        tables: by the IRI of a stream, a table as Stream.push_arrow takes it, tuples as Stream.push does, or None: the
        stream only advances. advance_ms: as Stream.advance; None: they do not. timeout_s: as in Stream.push. Everything
        is checked before the first tuple is taken, and a durable engine waits for its log once. Raises as
        Stream.push_arrow and Stream.advance; StreamError for a stream that was not declared here. Nothing of the call
        was applied then. On a cluster each stream's writer judges its own: an error names the streams whose tuples were
        taken, which may have advanced."""
        check_tables(tables)
        calls = [(named(name, self._streams), pushed) for name, pushed in tables.items()]
        return push_many(calls, advance_ms, timeout_s)

    def drop_stream(self, stream_iri: str) -> None:
        """Forget a stream and its slices; what it added to the stored graph stays, and so does what it has closed by
        now; stream batches that are still open, or wait for other streams, are forgotten.

        Raises StreamError (unknown, or a registered query reads it)."""
        name = plain_iri(stream_iri)
        self._check_seen(name, "drop")
        self._backend.drop(name)
        self._streams.pop(name, None)

    def register(
        self,
        text: str,
        on_result: Callable[[WindowResult], object] | None = None,
        base: str | None = None,
        output: Output | None = None,
        *,
        unread_bytes_max: int = UNREAD_BYTES_MAX,
        unread: Unread = "drop",
        bindings: Arguments | None = None,
        graphs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        snapshot: bool = True,
        every_ms: int | None = None,
        keep: bool = False,
        into: str | None = None,
        inline: bool = False,
    ) -> RegisteredQuery:
        """Register a continuous query. on_result: called with each window, in order, by a thread of the engine. A slow
        one holds up nothing but its own query. inline: the thread that fires calls on_result itself, which is sooner by
        a change of threads; a slow one holds up all queries, and a push or advance that has closed a tick. It may not
        wait for the engine: settle, update, close and results raise StreamError there. Another thread calls it with
        windows that were reported before it was registered. output: "rstream" reports all rows of each firing,
        "istream" the rows that the firing before had not, "dstream" those that only the firing before had; default:
        what the text says, or else rstream. unread_bytes_max: what the query may hold in windows that some reader has
        not read yet. Beyond it, "drop" drops the oldest, which readers are told by a GapError in their place, and "end"
        ends the query with a BudgetExceeded behind its windows. A query that was found in the data folder goes on, with
        the windows that were not taken, for whoever first registers the same text.

        bindings: registers a SELECT query for each row of a table instead, as one, which fires and is closed as one:
        an Arrow table of N-Triples strings with columns named like variables of the query, or a list of dictionaries
        from variables to terms. The answer for a row is that of the query with these terms in the place of the
        variables. A window has the rows of all queries; its first variable, `argument`, is the number of the table's
        row, from 0. A query without rows is not in it. rows_max counts for each query, the other limits for all. Those
        of a live view may change (LiveView.bind, unbind), and its table may have no rows.

        graphs: IRIs of the graphs and streams that the query may read; "default" is the default graph. It then reads a
        dataset of these alone, and the holders of tokens and keys whose lists have all of them read its windows, too
        (docs/http.md). Default: what its registrant may read, which is all without a list.

        timeout_s: on a cluster, how long the other nodes may take (default: as long as each step may, 30 s).

        A query without a window is a live view: a LiveView is returned, whose results are reports of how its answer
        has changed, from snapshot to snapshot (docs/live-views.md). snapshot: a reader begins with the whole answer;
        False: with the changes after this moment. every_ms: a report holds the net change of a period, which ends at a
        multiple of event time (without streams, of wall time); default: as the text says by COMPUTED EVERY, or else
        each snapshot that changes the answer. keep: the answer is kept in memory, so that no part of it is evaluated
        anew for its readers. into: the IRI of a stored graph ("default": the default graph) that has the triples of a
        CONSTRUCT from now on, as conclusions of a rule of the query's name; or of a declared stream, which gets those
        that each period has inserted as tuples with the period's end as their time.

        Raises SettingsError (an option, a column that is no variable), QuerySyntaxError, DataError (a term or a missing
        one in bindings), UnsupportedFeatureError, StreamError (an unknown stream, a window that is no multiple of its
        stream's batch_ms, a name that is taken, a cycle by way of streams and graphs), RuleError (into: what no rule
        has), AccessError (a graph or stream that the registrant may not read).
        """
        only = self._registering_for(graphs)._only
        source = QuerySource(text, base, output, unread_bytes_max, unread, None, only)
        target = DEFAULT_GRAPH_IRI if into == DEFAULT_WORD else None if into is None else plain_iri(into)
        query, options = parse_registered(source), ViewOptions(snapshot, every_ms, keep, target)
        if inline:
            if on_result is None or not query.dataset.windows:
                raise SettingsError("inline: it is for the on_result of a query over windows: leave it out")
            on_result = Inline(on_result)
        if bindings is not None:
            source = source._replace(bindings=bindings_text(bindings, is_filled=bool(query.dataset.windows)))
        if not query.dataset.windows:
            check_view(query, source, options)
            self._backend.check_views(query)
            if is_rule(query, source, options, self._core.declared):
                return cast(
                    "RegisteredQuery", self._registering_for(graphs)._register_rule(query, source, options, on_result)
                )
            return cast("RegisteredQuery", self._backend.register_view(query, source, options, on_result))
        check_continuous(query, source)
        options.check_are_default()
        self._check_streams(query, source.only)
        with waiting(timeout_s):
            return self._backend.register(query, source, on_result)

    def _register_rule(
        self, query: Query, source: QuerySource, options: ViewOptions, on_result: Callable[..., object] | None
    ) -> RuleQuery:
        assert query.registration is not None
        if on_result is not None:
            raise SettingsError("on_result: a query into a stored graph is a rule, and reports nothing: leave it out")
        found = RuleQuery(self._backend, source, options, self._check_rules, query.registration.name)
        self._add_rules([found.parsed], lambda ruleset, _: found.added_to(ruleset), found.into, found.reads)
        return found

    def listen(self, address: str = "tcp://127.0.0.1:0") -> str:
        """Open the ingest socket for pipelines; return its address. Raises SettingsError (not loopback, in use)."""
        from wukongs.wire.client_socket import ClientSocket

        if self._backend.ingest_addresses is not None:
            return ",".join(self._backend.ingest_addresses)
        self._core.check_is_open()
        socket = ClientSocket(address, {}, self._ingest_handler())
        self._sockets.append(socket)
        return socket.address

    def link(self) -> DirectLink | IngestLink:
        """Return a link for a pipeline of this process: straight into this engine, or to all nodes of its cluster."""
        from wukongs.wire.direct_link import DirectLink
        from wukongs.wire.link import IngestLink

        if self._backend.ingest_addresses is not None:
            return IngestLink(self._backend.ingest_addresses)
        self._core.check_is_open()
        return DirectLink(self._ingest_handler())

    def _ingest_handler(self) -> IngestService:
        """Return what takes the messages of pipelines."""
        from wukongs.wire.ingest_service import IngestService

        return IngestService(self._core, self._injector)

    def settle(self, timeout_s: float | None = None) -> None:
        """Wait until all closed stream batches are visible and all due windows reported.

        Raises StreamError when timeout_s (seconds) passes first. On a cluster it says which nodes are missing."""
        self._backend.settle(timeout_s)

    # --- the engine itself --------------------------------------------------------------------------------------------

    def queries(self) -> list[RegisteredQuery]:
        """Return the registered queries, then the live views."""
        only, views = self._only, cast("Sequence[RegisteredQuery]", self._backend.views())
        return [one for one in (*self._backend.queries(), *views) if includes(only, one.source.only)]

    def running(self) -> list[RunningQuery]:
        """Return the one-shot queries that run now, the oldest first. Of a cluster: those of the node that is asked."""
        self._core.check_is_own()
        return self._core.running.list()

    def kill(self, number: int) -> None:
        """End a one-shot query, by its number of running(): it raises QueryKilled where it was asked, once it comes to
        look. Raises StreamError (no such query runs)."""
        self._core.check_is_own()
        self._core.running.kill(number)

    def streams(self) -> list[str]:
        """Return the IRIs of the declared streams."""
        with self._core.lock:
            found = list(self._core.declared)
        if (only := self._only) is None:
            return found
        made = {name: one.source.only for name, one in self._makers().items()}
        return [name for name in found if (includes(only, made[name]) if name in made else name in only)]

    def stats(self) -> dict[str, Any]:
        """Return counts and sizes (bytes) of the stored graph, streams and queries, and who holds whom."""
        found = self._backend.stats()
        if self._listed is None:
            return found
        streams, queries = self.streams(), [one.name for one in self.queries()]
        return {
            "sn": found["sn"],
            "streams": {name: counts for name, counts in found["streams"].items() if name in streams},
            "queries": {name: counts for name, counts in found["queries"].items() if name in queries},
        }

    def checkpoint(self) -> None:
        """Write what is stored to the data folder now, and cut the log; by itself that happens now and then, and at
        close(). In memory: nothing. Raises StorageError."""
        self._backend.checkpoint()

    def backup(self, folder: str | PathLike[str]) -> None:
        """Write a consistent copy of the data folder to another one, empty or not there: wukongs.restore opens it.
        Streams go on meanwhile.

        Of a cluster, the node that is asked writes the stored triples at one snapshot, with the streams and queries
        there are: a data folder of an engine of its own, which `restore` puts into a cluster of any size. Raises
        StorageError (an engine in memory, a folder with files, no room), NodeUnavailable."""
        self._backend.backup(Path(path_text("folder", folder)))

    def drain(self, node: int, to: Sequence[int] | None = None, timeout_s: float | None = None) -> None:
        """Let spare nodes of the cluster take a node's place (None: the first that is heard) while everything goes on;
        return when it holds nothing any more: it may be stopped then. Said again, it waits for what is under way.

        Raises SettingsError (an engine of its own, no such node), NodeUnavailable (no spare node; not within timeout_s
        seconds: it goes on)."""
        self._backend.drain(node, to, timeout_s)

    def add_node(self, clients: str, peers: str, public_key: str = "", timeout_s: float | None = None) -> int:
        """Let a node join the cluster that was not named in its files, as a spare one; return its number. clients,
        peers: where clients and the other nodes find it; public_key: its own, if nodes have keys of their own. Said
        again, it returns the same number.

        Raises SettingsError (an engine of its own, an address or key), NodeUnavailable (no majority within timeout_s
        seconds, None: 30)."""
        return self._backend.add_node(clients, peers, public_key, timeout_s)

    def remove_node(self, node: int, timeout_s: float | None = None) -> None:
        """Take a node off the cluster for good that was drained and stopped; its number is not used again.

        Raises SettingsError (an engine of its own, no such node, one that holds shards), NodeUnavailable (it still
        runs, or no majority agrees, after timeout_s seconds, None: 30)."""
        self._backend.remove_node(node, timeout_s)

    def restore(self, folder: str | PathLike[str]) -> None:
        """Fill this engine, or the cluster of this node, with the content of a data folder or of what backup has
        written: stored triples, streams and registered queries, which begin with what is pushed from now on. It has to
        be empty, and no engine may use the folder; a cluster may have any number of nodes. Raises StorageError (not
        empty, no such folder, in use, hash_bits), CorruptionError, NodeUnavailable."""
        from wukongs.durable.content import read_content

        folder = path_text("folder", folder)
        stats = self.stats()
        if stats.get("silent_nodes"):
            raise NodeUnavailable(f"nodes {stats['silent_nodes']} do not answer: all have to be there")
        held = {name: stats[name] for name in ("stored_triples", "streams", "queries") if stats[name]}
        if held:
            counts = {name: found if isinstance(found, int) else len(found) for name, found in held.items()}
            raise StorageError(
                f"cannot restore {os.fspath(folder)} into what is not empty, but has "
                + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
                + ": begin with a new one"
            )
        content = read_content(Path(folder), self._core.settings)
        with self._core.lock:
            number = self._core.load_count = max(self._core.load_count, content.load_count) + 1
        self._backend.fill(number, content.chunks())
        content.definitions.declare_at(self._backend)
        with self._core.lock:
            for state in self._core.streams.values():
                state.is_recovered = True

    def close(self) -> None:
        """Stop: queries end (what they reported can still be read), sockets close. Closing twice is allowed. In a data
        folder, queries stay registered, and windows that nobody has taken come again. It does nothing in a process that
        was forked from the one that has opened the engine."""
        if self._core.is_disowned:
            return
        for socket in self._sockets:
            socket.close()
        self._sockets.clear()
        self._async_calls.end()
        self._backend.close()

    def _one_shot(self, text: str, base: str | None, dataset: DatasetClause | None = None) -> Prepared:
        check_text(text, base)
        self._core.check_is_open()
        prepared = self._prepared.prepare(text, base, dataset, self._only)
        check_one_shot(prepared.query)
        return prepared


def _dataset(default_graphs: Sequence[str], named_graphs: Sequence[str]) -> DatasetClause | None:
    """Return a dataset that is given beside a text, None if none is. Raises DataError (a name that is no IRI)."""
    default, named = graph_names("default_graphs", default_graphs), graph_names("named_graphs", named_graphs)
    return DatasetClause(default, named) if default or named else None


def engine_over(core: Core, injector: Injector, prepared: PreparedQueries, backend: Backend) -> Engine:
    """Return the engine that a node of a cluster gives to its clients. It does not end its parts."""
    engine = Engine.__new__(Engine)
    engine._put_together(core, injector, prepared, backend)
    return engine


def restore(
    backup: str | PathLike[str],
    data_dir: str | PathLike[str] | None = None,
    *,
    settings: Settings | Mapping[str, Any] | None = None,
) -> Engine:
    """Open what Engine.backup wrote: a copy of it in data_dir (empty or not there), which leaves the backup as it is;
    without data_dir the engine goes on in the backup's own folder. Raises StorageError, CorruptionError."""
    from wukongs.durable.backup import copy_folder

    source = Path(backup)
    if not (source / "MANIFEST").is_file():
        raise StorageError(f"{source}: expected a folder that Engine.backup has written, found no MANIFEST in it")
    if data_dir is None:
        return Engine(source, settings=settings)
    copy_folder(source, Path(data_dir))
    return Engine(data_dir, settings=settings)
