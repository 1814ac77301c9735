"""RemoteEngine: an engine in another process, with Engine's methods, arguments, results and errors."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, TypeAlias, cast

from wukongs.consistency import LATEST, Consistency, check_consistency
from wukongs.csparql.algebra import Output
from wukongs.csparql.parser import parse_query
from wukongs.csparql.tokens import check_text
from wukongs.errors import DataError, NodeUnavailable, SettingsError, WukongsError
from wukongs.live.argument_tables import Arguments, table_text
from wukongs.live.async_calls import AsyncCalls
from wukongs.live.bulk_load import log_malformed
from wukongs.live.export import check_dump_name
from wukongs.live.injector import not_settled
from wukongs.live.lateness import DROP, Late, OnLate, on_late_option
from wukongs.live.prepared_query import PreparedQuery, check_one_shot
from wukongs.live.query_group import bindings_text
from wukongs.live.query_source import UNREAD_BYTES_MAX, Unread
from wukongs.live.running import RunningQuery
from wukongs.live.stream import Pushable, Time, check_call, check_tables, named
from wukongs.live.table_change import TableChange
from wukongs.live.views.options import ViewOptions
from wukongs.live.wall_clock import IdleAdvance
from wukongs.query.limits import check_seconds
from wukongs.query.output.html import engine_html
from wukongs.query.output.results import Result, WindowResult
from wukongs.query.terms.names import given_terms, graph_names, path_text, plain_iri, triple_texts
from wukongs.query.terms.python_terms import from_library
from wukongs.query.terms.rdf_terms import from_python
from wukongs.remote.connection import SILENCE_S, Connection, Joined, SessionLost, answer_limit
from wukongs.remote.listening import Listener
from wukongs.remote.query import RemoteQuery, RemoteView
from wukongs.remote.receiving import receive_file, receive_result
from wukongs.remote.sending import SourceFile, parse_json_ld, send_file
from wukongs.remote.stream import RemoteStream, stream_bytes, table_bytes
from wukongs.rules.derivation import Derivation
from wukongs.rules.inference import InstalledRule, text_of
from wukongs.rules.sources import RuleSource, read_rules
from wukongs.store.encoded import MalformedLine
from wukongs.store.json_ld_text import Contexts
from wukongs.wire.client_channel import ClientChannel
from wukongs.wire.transport import check_address
from wukongs.wire.trust import read_keys

if TYPE_CHECKING:
    import pyarrow
    import rdflib

    from wukongs.remote.connection import Channel
    from wukongs.wire.link import IngestLink
    from wukongs.wire.trust import Keys

REPEATS_MAX = 3
"""How often a query is asked anew whose rows stopped coming."""
OnMalformed: TypeAlias = Callable[[str, MalformedLine], object]

log = logging.getLogger("wukongs")


def connect(
    addresses: str | Sequence[str],
    *,
    token: str | None = None,
    keys: tuple[str | PathLike[str], str | PathLike[str]] | None = None,
    silence_s: float = SILENCE_S,
) -> RemoteEngine:
    """Return a client of a node, or of one of several: the first that answers is used, and the next one when it has
    stopped.

    addresses: as "tcp://host:7411", several with commas between them, or a list; token: shown with each request, if the
    nodes ask for one; keys: files with this client's secret key and the nodes' public key (`wukongs keys`), needed for
    addresses that are not loopback; silence_s: seconds that a node may say nothing, even that it is still working, and
    that a node is looked for then. Raises SettingsError (an address or a file that will not do), NodeUnavailable."""
    given = addresses.split(",") if isinstance(addresses, str) else addresses
    stripped = [address.strip() for address in given]
    own = None if keys is None else read_keys(os.fspath(keys[0]), os.fspath(keys[1]))
    for address in stripped:
        if address:
            check_address(address, allow_remote=own is not None)
    return RemoteEngine(
        [address for address in stripped if address],
        lambda address: ClientChannel(address, token, own),
        silence_s=silence_s,
        token=token,
        keys=own,
    )


class GraphShares(NamedTuple):
    """The stored graph at an SN: each share is the address of the node that holds it, and the numbers of its shards."""

    at: int
    shares: tuple[tuple[str, tuple[int, ...]], ...]


class RemoteEngine:
    """A connection to a node; a context manager; thread-safe. Every method raises NodeUnavailable, too."""

    def __init__(
        self,
        addresses: Sequence[str],
        open_channel: Callable[[str], Channel],
        *,
        silence_s: float = SILENCE_S,
        token: str | None = None,
        keys: Keys | None = None,
    ) -> None:
        """addresses: of nodes, tried in turn; silence_s: how long one may say nothing; token, keys: for pipelines of
        this client, which have connections of their own."""
        self._token, self._keys = token, keys
        self._connection = Connection(addresses, open_channel, silence_s)
        self._connection.on_new_session = self._name_again
        self._using = threading.Lock()
        self._used: list[weakref.ref[RemoteStream | RemoteQuery]] = []
        """The streams and queries to name in a new session, in the order of their declaration."""
        self._streams: dict[str, RemoteStream] = {}
        """The streams that were declared by this object."""
        self._listener = Listener(self._connection)
        self._async_calls = AsyncCalls()
        self._malformed_count = 0
        try:
            self._connection.joined()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> RemoteEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> RemoteEngine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        return f"<RemoteEngine {', '.join(self._connection.addresses)}>"

    def _repr_html_(self) -> str:
        return engine_html(f"RemoteEngine {', '.join(self._connection.addresses)}", self.stats)

    # --- stored graph -------------------------------------------------------------------------------------------------

    def load(
        self,
        source: str | PathLike[str] | BinaryIO,
        graph: str | None = None,
        base: str | None = None,
        format: str | None = None,
        *,
        strict: bool = False,
        on_malformed: OnMalformed | None = None,
        blank_scope: str | None = None,
        contexts: Mapping[str, str | PathLike[str]] | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Do the same as Engine.load: this process reads the file, and the node takes it in parts as they come.
        contexts: files of this machine; with them JSON-LD is parsed here, and the node takes its quads."""
        source = path_text("source", source) if isinstance(source, str | PathLike) else source
        if contexts:
            parsed = parse_json_ld(source, base, format, Contexts.from_mapping(contexts))
            if parsed is not None:
                return self.load(parsed, graph, base, "nq", strict=strict, timeout_s=timeout_s)
        args: dict[str, Any] = {"graph": _text(graph), "base": _text(base), "format": _text(format), "strict": strict}
        args["timeout_s"] = timeout_s
        args |= {} if blank_scope is None else {"blank_scope": blank_scope}
        with SourceFile(source, base) as file:
            args |= {"name": file.name, "base": file.base}
            report = partial(self._malformed, on_malformed)
            answer, _ = self._connection.call(
                "load",
                args,
                is_write=True,
                is_known=True,
                limit_s=answer_limit(timeout_s),
                during=lambda joined, number: send_file(self._connection, joined, number, file, report),
            )
        return self._noted(answer.fields["value"])

    def graph_names(self) -> list[str]:
        """Do the same as Engine.graph_names."""
        return list(self._call("graph_names"))

    def graph(self, name: str | None = None) -> rdflib.Graph:
        """Do the same as Engine.graph; the triples come as those of a CONSTRUCT, which has the node's limits of
        memory."""
        pattern = "{ ?s ?p ?o }" if name is None else f"{{ GRAPH <{plain_iri(name)}> {{ ?s ?p ?o }} }}"
        return self.query(f"CONSTRUCT {{ ?s ?p ?o }} WHERE {pattern}", timeout_s=0).graph()

    def dump(self, path: str | PathLike[str], graph: str | None = None, *, consistency: Consistency = LATEST) -> int:
        """Do the same as Engine.dump, to a file of this machine; the node writes it to a temporary one first."""
        path = path_text("path", path)
        check_dump_name(path)
        for _ in range(REPEATS_MAX):
            answer, joined = self._connection.call("dump", {"graph": _text(graph), **_rule(consistency)})
            try:
                receive_file(self._connection, joined, answer.fields["value"]["file"], path)
            except SessionLost as lost:
                reason = str(lost)
                continue
            return int(answer.fields["value"]["count"])
        raise NodeUnavailable(f"the dump to {path} has stopped {REPEATS_MAX} times, at last: {reason}")

    def update(
        self,
        text: str,
        base: str | None = None,
        timeout_s: float | None = None,
        *,
        default_graphs: Sequence[str] = (),
        named_graphs: Sequence[str] = (),
    ) -> int:
        """Do the same as Engine.update; it counts once, however often it has to be sent. Raises OutcomeUnknown (no
        outcome was heard in time)."""
        dataset = _dataset(default_graphs, named_graphs)
        args = {"text": _query_text(text), "base": _text(base), "timeout_s": timeout_s, **dataset}
        return self._noted(self._call("update", args, is_write=True, is_known=True, limit_s=answer_limit(timeout_s)))

    async def aupdate(
        self,
        text: str,
        base: str | None = None,
        timeout_s: float | None = None,
        *,
        default_graphs: Sequence[str] = (),
        named_graphs: Sequence[str] = (),
    ) -> int:
        """Do the same as Engine.aupdate; the node hears of a task that is cancelled within two seconds."""
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
        """Do the same as Engine.apply, and once, as update."""
        change = TableChange.of(inserts, deletes)
        tables = {"inserts": change.inserts, "deletes": change.deletes}
        arrays = {name: stream_bytes(table) for name, table in tables.items() if table is not None}
        args, limit_s = {"timeout_s": timeout_s}, answer_limit(timeout_s)
        answer, _ = self._connection.call("apply", args, arrays, is_write=True, is_known=True, limit_s=limit_s)
        return self._noted(answer.fields["value"])

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
        """Do the same as Engine.query; the whole result is here when it returns."""
        texts = given_terms(bindings or {}, from_python)
        args = {"text": _query_text(text), "bindings": texts, "base": _text(base), "timeout_s": timeout_s, "at": at}
        args |= _dataset(default_graphs, named_graphs) | _rule(consistency)
        return self._result("query", args, timeout_s)

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
        """Do the same as Engine.aquery; the node hears of a task that is cancelled within two seconds."""
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
        """Do the same as Engine.warnings."""
        check_one_shot(parse_query(_query_text(text), _text(base)))
        args = {"text": text, "base": base, **_dataset(default_graphs, named_graphs)}
        return tuple(self._call("warnings", args))

    def prepare(self, text: str, base: str | None = None) -> PreparedQuery:
        """Do the same as Engine.prepare; each call is one request, and the node keeps the plans."""
        query = check_one_shot(parse_query(_query_text(text), _text(base)))

        def ask_many(table: pyarrow.Table, timeout_s: float | None, at: int | None, consistency: Consistency) -> Result:
            rows = table_text(table)
            args = {"text": text, "arguments": rows, "base": base, "timeout_s": timeout_s, "at": at}
            args |= _rule(consistency)
            return self._result("query_many", args, timeout_s)

        return PreparedQuery(query, partial(self.query, text, base=base), ask_many)

    def graph_shares(self, hold_s: float, at: int | None = None) -> GraphShares | None:
        """Return how the stored graph is divided among the nodes of a cluster, at the newest snapshot or at that of SN
        `at`, which this node holds for hold_s seconds. None: this node has all of it.

        Raises CompactedError (at)."""
        found = self._call("graph_shares", {"hold_s": hold_s, "at": at})
        if found is None:
            return None
        return GraphShares(found["at"], tuple((address, tuple(shards)) for address, shards in found["shares"]))

    def hold_snapshot(self, hold_s: float, at: int) -> None:
        """Let this node of a cluster hold a snapshot for hold_s seconds, once it has come to it.

        Raises StreamError (it does not come to it), CompactedError (it has merged beyond it)."""
        self._call("hold_snapshot", {"hold_s": hold_s, "at": at})

    def graph_share(self, graph: str | None, shards: Sequence[int], at: int, timeout_s: float | None = None) -> Result:
        """Return the triples of a graph (None: the default graph) in one share of it, as subject, predicate, object.

        Raises CompactedError (the snapshot was not held so long), StreamError, QueryTimeout, BudgetExceeded."""
        args = {"graph": _text(graph), "shards": list(shards), "at": at, "timeout_s": timeout_s}
        return self._result("graph_share", args, timeout_s)

    def _result(self, method: str, args: Mapping[str, Any], timeout_s: float | None) -> Result:
        for _ in range(REPEATS_MAX):
            limit_s = self._query_limit(timeout_s)
            answer, joined = self._connection.call(method, args, limit_s=limit_s)
            try:
                source = {"result": answer.fields.get("result")}
                result = receive_result(self._connection, joined, answer, source, args.get("text", ""))
                self._connection.note_sn(result.snapshot)
                return result
            except SessionLost as lost:
                reason = str(lost)
        raise NodeUnavailable(f"the rows of the query have stopped coming {REPEATS_MAX} times, at last: {reason}")

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
        """Do the same as Engine.explain."""
        args = {"text": _query_text(text), "base": _text(base), "analyze": analyze, "timeout_s": timeout_s}
        args |= _dataset(default_graphs, named_graphs)
        return str(self._call("explain", args, limit_s=self._query_limit(timeout_s)))

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
    ) -> RemoteStream:
        """Do the same as Engine.stream; a stream that another client has declared with the same options is shared with
        it. on_late: a path is one of the node's machine; a function is a SettingsError."""
        if callable(on_late):
            raise SettingsError(
                'on_late is a function, and the node cannot call it: give the path of a file there, or "count"'
            )
        options = {
            "stream_iri": plain_iri(stream_iri),
            "timing": list(map(str, timing)) if isinstance(timing, list | tuple | set | frozenset) else timing,
            "batch_ms": batch_ms,
            "into": _text(into),
            "history_ms": history_ms,
            "slice_bytes_max": slice_bytes_max,
            "index": index,
            "lateness_ms": lateness_ms,
            "on_late": on_late_option(on_late),
            "idle_timeout_ms": idle_timeout_ms,
            "idle_advance": idle_advance,
        } | ({} if late == DROP else {"late": late})
        options |= {} if retractions is None else {"retractions": retractions}
        stream = RemoteStream(self._connection, options, timeout_s)
        self._use(stream)
        self._streams[stream.iri] = stream
        return stream

    def declared(self, stream_iri: str) -> RemoteStream:
        """Do the same as Engine.declared."""
        return RemoteStream(self._connection, {"stream_iri": str(stream_iri), "is_declared": True})

    def push_many(
        self, tables: Mapping[str, Pushable], advance_ms: Time | None = None, *, timeout_s: float | None = None
    ) -> dict[str, int]:
        """Do the same as Engine.push_many, for streams that this client has declared; one request. Each
        stream's tuples count once, and it raises OutcomeUnknown, as RemoteStream.push."""
        check_tables(tables)
        streams, arrays = list[RemoteStream](), dict[str, Any]()
        for at, (name, pushed) in enumerate(tables.items()):
            stream = named(name, self._streams)
            streams.append(stream)
            content = table_bytes(stream.iri, pushed)
            if content is not None:
                arrays[f"table {at}"] = content

        time_ms = check_call([stream.iri for stream in streams], advance_ms)

        def args(joined: Joined) -> dict[str, Any]:
            numbers = [stream.number_in(joined) for stream in streams]
            return {"streams": numbers, "advance_ms": time_ms, "timeout_s": timeout_s}

        limit_s = answer_limit(timeout_s)
        answer, _ = self._connection.call("push_many", args, arrays, is_write=True, is_known=True, limit_s=limit_s)
        return dict(answer.fields["value"])

    def drop_stream(self, stream_iri: str) -> None:
        """Do the same as Engine.drop_stream."""
        name = plain_iri(stream_iri)
        self._call("drop_stream", {"stream_iri": name}, is_write=True)
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
    ) -> RemoteQuery:
        """See Engine.register. on_result is called by a thread of this process, so inline is refused. The query stays
        registered when this client leaves; whoever registers the same text then goes on with it.

        Of a live view, a RemoteView is returned. into: a stream; for a stored graph, add_rules adds a rule."""
        if inline:
            raise SettingsError("inline: the thread that fires is in the process of the engine: leave it out")
        options = ViewOptions(snapshot, every_ms, keep, None if into is None else plain_iri(into)).checked()
        args = {
            "text": _query_text(text),
            "base": _text(base),
            "output": output,
            "unread_bytes_max": unread_bytes_max,
            "unread": unread,
            "bindings": None if bindings is None else bindings_text(bindings, is_filled=False),
        } | ({} if graphs is None else {"graphs": graph_names("graphs", graphs)})
        args |= {name: one for name, one in options._asdict().items() if one != ViewOptions._field_defaults[name]}
        asked, limit_s = {**args, "timeout_s": timeout_s}, answer_limit(timeout_s)
        answer, joined = self._connection.call("register", asked, is_write=True, limit_s=limit_s)
        query = self._registered(joined, answer.fields["value"], ("register", args))
        query.find()
        self._use(query)
        if on_result is not None:
            query.errors = self._listener.add(query, on_result).errors
        return query

    def listen(self, address: str | None = None) -> str:
        """Return the address at which the node takes what pipelines send: where clients talk to it; of a cluster, those
        of all nodes with commas between. No socket is opened, so no address can be asked for: SettingsError."""
        if address is not None:
            raise SettingsError(
                f"address = {address!r}: a node opens its sockets as its own file says: leave the address out to learn "
                "where it takes what pipelines send"
            )
        answer, joined = self._connection.call("ingest_addresses", {})
        return ",".join(answer.fields["value"]) or joined.address

    def link(self) -> IngestLink:
        """Do the same as Engine.link: to all nodes, with the token and keys of this client."""
        from wukongs.wire.link import IngestLink

        return IngestLink(self.listen().split(","), token=self._token, keys=self._keys)

    def settle(self, timeout_s: float | None = None) -> None:
        """Do the same as Engine.settle; due windows were given to the on_result of this client, too."""
        check_seconds(timeout_s)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._call("settle", {"timeout_s": timeout_s}, limit_s=answer_limit(timeout_s))
        for listened in self._listener.live():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._listener.wait_for(listened, int(listened.query.call("unread")), left):
                raise not_settled(timeout_s)

    # --- the engine itself --------------------------------------------------------------------------------------------

    def queries(self) -> list[RemoteQuery]:
        """Return the registered queries, whoever has registered them. Each client gets every window of them."""
        answer, joined = self._connection.call("queries", {})
        return [self._registered(joined, one, ("attach", {"name": one["name"]})) for one in answer.fields["value"]]

    def _registered(
        self, joined: Joined, described: Mapping[str, Any], again: tuple[str, Mapping[str, Any]]
    ) -> RemoteQuery:
        """Return a query as the node describes it; a live view has the same calls, and reports for windows."""
        kind: Any = RemoteView if described.get("is_view") is True else RemoteQuery
        return cast("RemoteQuery", kind(self._connection, joined, described, again))

    def add_rules(self, source: RuleSource, *, into: str | None = None) -> tuple[str, ...]:
        """Do the same as Engine.add_rules. A file is read here."""
        text = "\n".join(map(text_of, read_rules(source)))
        return tuple(self._call("add_rules", {"source": text, "into": into}, is_write=True))

    def drop_rules(self, *names: str) -> int:
        """Do the same as Engine.drop_rules."""
        return self._noted(self._call("drop_rules", {"names": names}, is_write=True))

    def resume_rules(self, *names: str) -> int:
        """Do the same as Engine.resume_rules."""
        return self._noted(self._call("resume_rules", {"names": names}, is_write=True))

    def why(
        self, triple: Sequence[Any], graph: str | None = None, *, timeout_s: float | None = None
    ) -> Derivation | None:
        """Do the same as Engine.why."""
        args = {"triple": triple_texts(triple), "graph": graph, "timeout_s": timeout_s}
        found = self._call("why", args)
        return None if found is None else Derivation.of_json(found)

    def rules(self) -> list[InstalledRule]:
        """Do the same as Engine.rules."""
        return [InstalledRule.of_json(one) for one in self._call("rules")]

    def running(self) -> list[RunningQuery]:
        """Do the same as Engine.running."""
        return [RunningQuery(**one) for one in self._call("running")]

    def kill(self, number: int) -> None:
        """Do the same as Engine.kill."""
        self._call("kill", {"number": number})

    def streams(self) -> list[str]:
        """Do the same as Engine.streams."""
        return list(self._call("streams"))

    def stats(self) -> dict[str, Any]:
        """Do the same as Engine.stats."""
        return dict(self._call("stats"))

    def checkpoint(self) -> None:
        """Do the same as Engine.checkpoint."""
        self._call("checkpoint")

    def backup(self, folder: str | PathLike[str]) -> None:
        """Do the same as Engine.backup: to a folder of the node's machine."""
        self._call("backup", {"folder": path_text("folder", folder)}, is_write=True)

    def drain(self, node: int, to: Sequence[int] | None = None, timeout_s: float | None = None) -> None:
        """Do the same as Engine.drain."""
        told = {"node": node, "to": list(to) if isinstance(to, Sequence) else to, "timeout_s": timeout_s}
        self._call("drain", told, is_write=True)

    def add_node(self, clients: str, peers: str, public_key: str = "", timeout_s: float | None = None) -> int:
        """Do the same as Engine.add_node."""
        told = {"clients": clients, "peers": peers, "public_key": public_key, "timeout_s": timeout_s}
        return int(self._call("add_node", told, is_write=True))

    def remove_node(self, node: int, timeout_s: float | None = None) -> None:
        """Do the same as Engine.remove_node."""
        self._call("remove_node", {"node": node, "timeout_s": timeout_s}, is_write=True)

    def restore(self, folder: str | PathLike[str]) -> None:
        """Do the same as Engine.restore: from a folder of the node's machine."""
        self._call("restore", {"folder": path_text("folder", folder)}, is_write=True)

    def close(self) -> None:
        """Leave the node, which goes on: streams and registered queries stay. Closing twice is allowed. In a process
        that was forked since it does nothing."""
        if self._connection.is_disowned:
            return
        self._async_calls.end()
        self._connection.close()
        self._listener.join()

    # --- over the end of a session ---------------------------------------------------------------------------------

    def _use(self, thing: RemoteStream | RemoteQuery) -> None:
        with self._using:
            self._used = [*(used for used in self._used if used() is not None), weakref.ref(thing)]

    def _name_again(self, joined: Joined) -> None:
        """Name streams and queries to a new session at once, so that the next tuples meet them."""
        for thing in [used() for used in self._used]:
            if thing is not None:
                try:
                    thing.name_again(joined)
                except WukongsError as error:
                    log.warning("%r after a change of node: %s", thing, error)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        args: Mapping[str, Any] | None = None,
        *,
        is_write: bool = False,
        is_known: bool = False,
        limit_s: float | None = None,
    ) -> Any:
        answer, _ = self._connection.call(method, args or {}, is_write=is_write, is_known=is_known, limit_s=limit_s)
        return answer.fields.get("value")

    def _noted(self, sn: Any) -> int:
        """Return the SN of a change: this client reads nothing older from now on."""
        self._connection.note_sn(int(sn))
        return int(sn)

    def _query_limit(self, timeout_s: float | None) -> float | None:
        return answer_limit(self._connection.joined().query_timeout_s if timeout_s is None else timeout_s)

    def _malformed(self, on_malformed: OnMalformed | None, file: str, line: MalformedLine) -> None:
        if on_malformed is not None:
            on_malformed(file, line)
            return
        self._malformed_count += 1
        log_malformed(self._malformed_count, file, line)


def _query_text(text: str) -> str:
    check_text(text)
    return str(text)


def _rule(consistency: Consistency) -> dict[str, Any]:
    """Return the argument of a rule for reads; none for the usual one, as before there was another."""
    check_consistency(consistency)
    return {} if consistency == LATEST else {"consistency": consistency}


def _dataset(default_graphs: Sequence[str], named_graphs: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a dataset that is given beside a text; none, as before there were any, if it is not."""
    given = {"default_graphs": default_graphs, "named_graphs": named_graphs}
    checked = {name: list(graph_names(name, graphs)) for name, graphs in given.items()}
    return {name: graphs for name, graphs in checked.items() if graphs}


def _text(value: str | None) -> str | None:
    """Return a name as plain text: rdflib's are of types of their own. Raises DataError (another type)."""
    if value is not None and not isinstance(value, str) and from_library(value) is None:
        raise DataError(f"expected a name or an IRI as a str, found {value!r:.100} of type {type(value).__name__}")
    return None if value is None else str(value)
