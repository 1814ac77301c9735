"""Calls: the methods of an engine as clients call them by name, and the streams and queries that they have to remember.

Streams and queries belong to the engine, not to a client. A client that returns, or another one, goes on with a stream
that it declares with the same options, and with a query that it registers with the same text: it gets the windows that
wait. A client that has registered the query before, and still reads, gets all windows as well. Nobody can know at once
whether that client is there or has crashed.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from wukongs.errors import DataError, NodeUnavailable, StreamError
from wukongs.live.argument_tables import given_arguments, text_table
from wukongs.live.backend import RegisteredQuery, query_from
from wukongs.live.declarations import check_continuous, parse_registered, stream_options
from wukongs.live.engine_like import EngineLike
from wukongs.live.grants import ALL, Grant
from wukongs.live.injector import not_settled
from wukongs.live.query_group import bindings_table, bindings_text
from wukongs.live.query_source import QuerySource
from wukongs.live.stream import Stream, push_many
from wukongs.live.update_documents import check_loads
from wukongs.live.views.live_view import LiveView, is_view
from wukongs.live.views.options import ViewOptions
from wukongs.live.windows import makes_stream
from wukongs.query.limits import waiting
from wukongs.query.output.results import Result
from wukongs.query.terms.names import plain_iri
from wukongs.remote.columns import Outgoing
from wukongs.remote.feeds import AnyFeed, Feed
from wukongs.remote.kinds import ANSWER, BYTES, LOST, PART_BYTES, POLL_S
from wukongs.remote.sessions import Session
from wukongs.remote.uploads import Upload
from wukongs.remote.view_feeds import ViewFeed
from wukongs.settings import Settings
from wukongs.wire.packets import Array, Packet

HOLD_WAIT_S = 30.0
"""How long a node may take to come to a snapshot that another one has."""
Args = Mapping[str, Any]
Arrays = Mapping[str, Array]
Work = Callable[[], Packet]


class Shares(Protocol):
    """Shares of the stored graph: wukongs.cluster.graph_shares.GraphShares says it in full."""

    def hold(self, hold_s: float, at: int | None, wait_s: float = 0) -> int: ...
    def nodes(self) -> Mapping[int, Sequence[int]]: ...
    def read(self, graph: str | None, shards: Sequence[int], at: int, timeout_s: float | None) -> Result: ...


class InCluster(Protocol):
    """The facts of a node of a cluster that a service asks for, beside its engine."""

    @property
    def ingest_addresses(self) -> Sequence[str]:
        """Where pipelines find the nodes, in the order of their numbers."""

    @property
    def shares(self) -> Shares: ...

    def declared(self, name: str) -> Stream:
        """Return a stream that somebody has declared, at any node. Raises StreamError (unknown)."""

    def home_of(self, name: str, source: QuerySource | None, wait_s: float) -> str | None:
        """Return where clients find the node that runs a query with this source (None: any), None if that is this one,
        or if there is none. wait_s: so long it may be away. Raises NodeUnavailable (it is away)."""


_DATASET = ("default_graphs", "named_graphs")
_PLAIN = {
    "explain": ("text", "base", "analyze", "timeout_s", *_DATASET),
    "warnings": ("text", "base", *_DATASET),
    "update": ("text", "base", "timeout_s", *_DATASET),
    "graph_names": (),
    "streams": (),
    "stats": (),
    "kill": ("number",),
    "add_rules": ("source", "into"),
    "checkpoint": (),
    "backup": ("folder",),
    "drain": ("node", "to", "timeout_s"),
    "add_node": ("clients", "peers", "public_key", "timeout_s"),
    "remove_node": ("node", "timeout_s"),
}
"""Method -> its arguments; the answer is what it returns."""
_OF_QUERY = {
    "explain": ("analyze",),
    "replace": ("text", "base", "output"),
    "stats": (),
    "why": ("row",),
    "warnings": (),
    "pause": (),
    "resume": (),
    "close": (),
}
READS = frozenset(
    {"query", "query_many", "graph_share", "explain", "why", "query.explain", "query.why", "query.content"}
)
"""Calls that change nothing, may take long, and can be ended."""
_OF_LOAD = ("graph", "base", "format", "strict", "blank_scope", "timeout_s")
AWAY_S = 30.0
"""How long the home of a query may be away: until it is taken out, and another node has taken the query over."""
_READERS = "{} clients have registered this query, and each gets every window; one that crashed counts for a minute"
_DECLARED = (
    "stream_iri",
    "timing",
    "batch_ms",
    "into",
    "history_ms",
    "slice_bytes_max",
    "index",
    "lateness_ms",
    "on_late",
    "idle_timeout_ms",
    "idle_advance",
    "late",
    "retractions",
)


@dataclass(slots=True)
class _Declared:
    stream: Stream
    options: dict[str, Any]
    holders: set[str] = field(default_factory=set)
    """Tokens of sessions."""


@dataclass(slots=True)
class _Registered:
    query: RegisteredQuery
    owner: str | None = None
    """The token of the session that has registered it last; None once that has ended."""
    feed: Feed | None = None
    """By which that session reads the query's own cursor."""
    holders: set[str] = field(default_factory=set)
    """Tokens of the sessions that have registered it."""
    is_read_here: bool = False
    """Whether somebody else in this process reads the query's own cursor: the server of HTTP."""


class Calls:
    """All methods may be called from any thread."""

    def __init__(self, engine: EngineLike, settings: Settings, node: InCluster | None = None) -> None:
        self._engine = engine
        self._node = node
        self._settings = settings
        self._life = secrets.token_hex(8)
        """The name of the time since this object began: windows that were reported in it are not reported again."""
        self._lock = threading.RLock()
        self._declared: dict[str, _Declared] = {}
        self._registered: dict[str, _Registered] = {}
        self._own: dict[str, Callable[[Session, Args], Packet]] = {
            "query": self._query,
            "query_many": self._query_many,
            "graph_shares": self._graph_shares,
            "graph_share": self._graph_share,
            "hold_snapshot": self._hold_snapshot,
            "dump": self._dump,
            "restore": self._restore,
            "settle": self._settle,
            "stream": self._stream,
            "drop_stream": self._drop_stream,
            "register": self._register,
            "attach": self._attach,
            "queries": self._queries,
            "running": self._running,
            "rules": self._rules,
            "drop_rules": lambda session, args: _value(session.engine.drop_rules(*args["names"])),
            "resume_rules": lambda session, args: _value(session.engine.resume_rules(*args["names"])),
            "why": self._why_triple,
            "ingest_addresses": self._ingest_addresses,
            "stream.advance": self._advance,
            "stream.close": self._close_stream,
            "query.unread": self._unread,
            "query.leave": self._leave,
            "query.content": self._content,
            "query.bind": self._bind,
            "query.unbind": self._unbind,
        }

    def work(self, session: Session, method: str, args: Args, arrays: Arrays, upload: Upload | None) -> Work:
        """Return the function of a call. Raises DataError for an unknown method, AccessError."""
        session.grant.check(method)
        if upload is not None:
            return partial(self._load, session, args, upload)
        if method == "stream.push":
            return partial(self._push, session, args, arrays)
        if method == "push_many":
            return partial(self._push_many, session, args, arrays)
        if method == "apply":
            return partial(self._apply, session, args, arrays)
        if method in self._own:
            return partial(self._own[method], session, args)
        if method == "update" and session.grant != ALL:
            check_loads(str(args.get("text", "")), args.get("base"), self._settings)
        if method in _PLAIN:
            return partial(_called, getattr(session.engine, method), _PLAIN[method], args)
        of_query = method.removeprefix("query.")
        if of_query != method and of_query in _OF_QUERY:
            return partial(self._of_query, session, of_query, args)
        raise DataError(f"a client has called {method!r}, which no engine has: run the same version on both sides")

    def engine_for(self, grant: Grant) -> EngineLike:
        """Return the engine as it is for who has a grant."""
        return self._engine._seeing(grant.graphs)

    def forget(self, session: Session) -> None:
        """Note that a session has ended: others may go on with its streams and queries."""
        with self._lock:
            for declared in self._declared.values():
                declared.holders.discard(session.token)
            for registered in self._registered.values():
                registered.holders.discard(session.token)
                if registered.owner == session.token:
                    registered.owner = registered.feed = None

    # --- stored graph -------------------------------------------------------------------------------------------------

    def _query(self, session: Session, args: Args) -> Packet:
        names = ("text", "bindings", "base", "timeout_s", "at", "consistency", *_DATASET)
        options = {name: args[name] for name in names if name in args}
        return _sent(session, session.engine.query(**options))

    def _query_many(self, session: Session, args: Args) -> Packet:
        prepared = session.engine.prepare(**{name: args[name] for name in ("text", "base") if name in args})
        table = text_table(args.get("arguments", ""), "arguments")
        options = {name: args[name] for name in ("timeout_s", "at", "consistency") if name in args}
        return _sent(session, prepared.answer_many(table, **options))

    def _graph_shares(self, session: Session, args: Args) -> Packet:
        """Hold a snapshot, unless one node has all; tell where its shares lie."""
        shares = {} if self._node is None else self._node.shares.nodes()
        if self._node is None or len(shares) < 2:
            return _value(None)
        sn = self._node.shares.hold(args["hold_s"], args.get("at"))
        places = [[self._node.ingest_addresses[node], shards] for node, shards in shares.items()]
        return _value({"at": sn, "shares": places})

    def _hold_snapshot(self, session: Session, args: Args) -> Packet:
        return _value(self._shares().hold(args["hold_s"], args["at"], HOLD_WAIT_S))

    def _graph_share(self, session: Session, args: Args) -> Packet:
        options = {name: args[name] for name in ("graph", "shards", "at", "timeout_s")}
        return _sent(session, self._shares().read(**options))

    def _shares(self) -> Shares:
        if self._node is None:
            raise StreamError("this node is in no cluster, so no shares of the graph can be asked of it: query it")
        return self._node.shares

    def _apply(self, session: Session, args: Args, arrays: Arrays) -> Packet:
        tables = {name: _table(arrays, name) for name in ("inserts", "deletes") if name in arrays}
        return _value(session.engine.apply(**tables, timeout_s=args.get("timeout_s")))

    def _load(self, session: Session, args: Args, upload: Upload) -> Packet:
        options = {name: args[name] for name in _OF_LOAD if name in args}
        return _value(session.engine.load(upload, on_malformed=upload.report, **options))

    def _dump(self, session: Session, args: Args) -> Packet:
        """Write the graph to a file without a name, which the client then reads."""
        descriptor, name = tempfile.mkstemp(prefix="wukongs-dump-", suffix=".nt")
        try:
            options = {key: args[key] for key in ("consistency",) if key in args}
            count = session.engine.dump(name, args.get("graph"), **options)
            number = session.keep_file(os.open(name, os.O_RDONLY))
        finally:
            os.close(descriptor)
            Path(name).unlink()
        return _value({"count": count, "file": number})

    def _restore(self, session: Session, args: Args) -> Packet:
        """The queries belong to nobody yet: whoever registers the same goes on with them."""
        session.engine.restore(args["folder"])
        with self._lock:
            self._registered |= {query.name: _Registered(query) for query in session.engine.queries()}
        return _value(None)

    def read_file(self, session: Session, packet: Packet) -> Packet:
        start = packet.fields.get("start")
        with session.lock:  # a descriptor that is closed meanwhile may be another file's
            descriptor = session.files.get(packet.fields.get("file"))
            if descriptor is None or type(start) is not int or not 0 <= start < 1 << 62:
                return Packet(LOST)
            part = os.pread(descriptor, PART_BYTES, start)
        return Packet(BYTES, {}, {"bytes": np.frombuffer(part, np.uint8)})

    def release_file(self, session: Session, number: object) -> None:
        with session.lock:
            session.release_file(number)

    def _settle(self, session: Session, args: Args) -> Packet:
        """Wait in turns, so that a client that has gone is noticed."""
        timeout_s = args.get("timeout_s")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = POLL_S if deadline is None else deadline - time.monotonic()
            try:
                session.engine.settle(min(max(left, 0), POLL_S))
                return _value(None)
            except StreamError as error:
                if session.is_ended or (timeout_s is not None and left <= POLL_S):
                    raise not_settled(timeout_s, error.__cause__) from None

    def _ingest_addresses(self, session: Session, args: Args) -> Packet:
        """Return where pipelines find the nodes of a cluster; none: where this client has found this one."""
        return _value([] if self._node is None else list(self._node.ingest_addresses))

    # --- streams ------------------------------------------------------------------------------------------------------

    def _stream(self, session: Session, args: Args) -> Packet:
        options = {name: args[name] for name in _DECLARED if name in args}
        name = plain_iri(options["stream_iri"])
        if args.get("is_declared") is True:
            return self._handle(session, session.engine.declared(name))
        session.engine._check_seen(name, "declare")
        if not session.grant.may("declare") and name in session.engine.streams():
            found = session.engine.declared(name)
            given = {key: value for key, value in options.items() if key != "stream_iri"}
            if found.options == stream_options(self._settings, **given):
                return self._handle(session, found)
        session.grant.check("declare")
        is_again = args.get("is_again") is True
        with self._lock:
            known = self._declared.get(name)
            if known is not None and name not in session.engine.streams():
                known = None
            is_own = known is not None and session.token in known.holders and not is_again
            if known is None or is_own or known.options != options:
                with waiting(args.get("timeout_s")):
                    known = _Declared(self._declare(session, name, options, is_shared=not is_own), options)
                self._declared[name] = known
            known.holders.add(session.token)
            return self._handle(session, known.stream)

    def _handle(self, session: Session, stream: Stream) -> Packet:
        """Return how the client is to call a stream."""
        with session.lock:
            handle = session.streams.number_of(lambda one: one is stream) or session.streams.add(stream)
        return _value({"stream": handle, "iri": stream.iri, "batch_ms": stream.batch_ms, "takes": list(_DECLARED)})

    def _declare(self, session: Session, name: str, options: dict[str, Any], *, is_shared: bool) -> Stream:
        """Declare a stream; or return one that was declared with the same options, at another node of a cluster."""
        try:
            return session.engine.stream(**options)
        except StreamError:
            if self._node is None or not is_shared or name not in session.engine.streams():
                raise
            given = {key: value for key, value in options.items() if key != "stream_iri"}
            stream = self._node.declared(name)
            if stream.options != stream_options(self._settings, **given):
                raise
            return stream

    def _why_triple(self, session: Session, args: Args) -> Packet:
        found = session.engine.why(args["triple"], args.get("graph"), timeout_s=args.get("timeout_s"))
        return _value(None if found is None else found.as_json())

    def _rules(self, session: Session, args: Args) -> Packet:
        return _value([rule.as_json() for rule in session.engine.rules()])

    def _running(self, session: Session, args: Args) -> Packet:
        return _value([asdict(query) for query in session.engine.running()])

    def _drop_stream(self, session: Session, args: Args) -> Packet:
        session.engine.drop_stream(args["stream_iri"])
        with self._lock:
            self._declared.pop(args["stream_iri"], None)
        return _value(None)

    def _push(self, session: Session, args: Args, arrays: Arrays) -> Packet:
        stream, table = _stream_of(session, args), _table(arrays)
        session.engine._check_pushed(stream, table)
        return _value(stream.push_arrow(table, timeout_s=args.get("timeout_s")))

    def _push_many(self, session: Session, args: Args, arrays: Arrays) -> Packet:
        numbers = args.get("streams")
        if not isinstance(numbers, list):
            raise DataError(f"push_many: expected the numbers of streams, found {numbers!r:.100}")
        streams = [_stream_of(session, {"stream": number}) for number in numbers]
        tables = [
            (stream, _table({"table": arrays[name]}) if (name := f"table {at}") in arrays else None)
            for at, stream in enumerate(streams)
        ]
        for stream, table in tables:
            session.engine._check_pushed(stream, table)
        return _value(push_many(tables, args.get("advance_ms"), args.get("timeout_s")))

    def _advance(self, session: Session, args: Args) -> Packet:
        _stream_of(session, args).advance(args["timestamp_ms"], timeout_s=args.get("timeout_s"))
        return _value(None)

    def _close_stream(self, session: Session, args: Args) -> Packet:
        _stream_of(session, args).close()
        return _value(None)

    # --- queries ------------------------------------------------------------------------------------------------------

    def _register(self, session: Session, args: Args) -> Packet:
        source = QuerySource.of(args)
        source = source._replace(only=session.engine._registering_for(args.get("graphs"))._only)
        parsed = parse_registered(source)
        assert parsed.registration is not None
        if not parsed.dataset.windows:
            return _value(self._register_view(session, source, args, parsed.registration.name))
        if source.bindings is not None:
            source = source._replace(bindings=bindings_text(bindings_table(source.bindings)))
        check_continuous(parsed, source)
        ViewOptions(**{one: args[one] for one in ViewOptions._fields if one in args}).check_are_default()
        name = parsed.registration.name
        if (at := self._home_of(name, source)) is not None:
            return _value(self._elsewhere(name, at, is_stream=makes_stream(parsed)))
        is_again = args.get("is_again") is True
        with self._lock:
            known = self._registered.get(name)
            if is_again and args.get("life") == self._life:
                if known is None or known.query.source != source:
                    raise StreamError(f"query {name} was closed, and its name is no longer its own")
            elif (
                known is None
                or (session.token in known.holders and not is_again)
                or query_from([known.query], source) is None
            ):
                self._forget_closed()
                with waiting(args.get("timeout_s")):
                    known = self._register_anew(name, source, session, is_again=is_again)
                self._registered[name] = known
            # A client that registers it now may be one that crashed: it gets what waits, and a client that still reads
            # goes on beside it. One that only changes sessions takes nothing of another one.
            is_owner = not known.is_read_here and (not is_again or known.owner in (None, session.token))
            if is_owner and known.feed is not None and known.owner != session.token:
                known.feed.cede()
            told = self._described(session, known.query, args, is_owner=is_owner)
            feed = session.feeds.get(told["query"])
            if is_owner:
                assert isinstance(feed, Feed)
                known.owner, known.feed = session.token, feed
            elif feed is not None:
                assert isinstance(feed, Feed)
                feed.begin()  # others may confirm windows before this client asks for them
            known.holders.add(session.token)
            return _value({**told, "readers": len(known.holders)})

    def _register_view(self, session: Session, source: QuerySource, args: Args, name: str) -> dict[str, Any]:
        """Register a live view, or find it registered; return how the client is to call it. Raises StreamError."""
        options = {one: args[one] for one in ViewOptions._fields if one in args}
        into = options.get("into")
        if into is not None and into not in session.engine.streams():
            raise StreamError(
                f"into = {into!r}: there is no such stream. Into a stored graph a query is a rule: add_rules adds it"
            )
        if (at := self._home_of(name, source._replace(bindings=None))) is not None:
            return self._elsewhere(name, at, of_view=True)
        is_again = args.get("is_again") is True
        with self._lock:
            known = self._registered.get(name)
            is_own = known is not None and session.token in known.holders and not known.query.is_closed
            here = query_from(session.engine.queries(), source._replace(bindings=None)) if is_again else None
            if is_again and here is None and args.get("life") == self._life:
                raise StreamError(f"query {name} was closed, and its name is no longer its own")
            if here is not None and not isinstance(here, LiveView):
                raise NodeUnavailable(f"view {name} moves to another node: ask again")
            if here is not None:
                known = _Registered(here) if known is None or known.query is not here else known
            elif is_own or known is None or query_from([known.query], source) is None:
                known = self._register_new_view(session, source, options)
            elif not isinstance(known.query, LiveView) or not known.query.has_options(ViewOptions(**options)):
                raise StreamError(f"a query named {name} is registered already, with other options: close it first")
            self._registered[name] = known
            known.holders.add(session.token)
            told = self._described(session, known.query, args)
            return {**told, "readers": len(known.holders)}

    def _register_new_view(self, session: Session, source: QuerySource, options: Args) -> _Registered:
        fields = source._asdict()
        fields["graphs"] = fields.pop("only")
        if source.bindings is not None:
            fields["bindings"] = bindings_table(source.bindings, is_filled=False)
        try:
            return _Registered(session.engine.register(fields.pop("text"), None, **fields, **options))
        except StreamError:
            here = query_from(session.engine.queries(), source)
            known = None if here is None else self._registered.get(here.name)
            is_own = known is not None and session.token in known.holders
            if not isinstance(here, LiveView) or not here.has_options(ViewOptions(**options)) or is_own:
                raise
            return _Registered(here)

    def _register_anew(self, name: str, source: QuerySource, session: Session, *, is_again: bool) -> _Registered:
        """Register a query; or return it if it runs here by now: another face has registered it, or it was registered
        at another node. Raises StreamError (this client itself has registered it)."""
        try:
            fields = source._asdict()
            fields["graphs"] = fields.pop("only")
            if source.bindings is not None:
                fields["bindings"] = bindings_table(source.bindings)
            return _Registered(session.engine.register(fields.pop("text"), None, **fields))
        except StreamError:
            here, known = query_from(session.engine.queries(), source), self._registered.get(name)
            is_own = known is not None and session.token in known.holders and not is_again
            is_elsewhere = hasattr(here, "node") and not is_again  # registered there just now
            if here is None or is_own or is_elsewhere:
                raise
            return _Registered(here, is_read_here=here.cursor().is_asked)

    def _home_of(self, name: str, source: QuerySource | None = None, wait_s: float = AWAY_S) -> str | None:
        return None if self._node is None else self._node.home_of(name, source, wait_s)

    def _forget_closed(self) -> None:
        for name in [name for name, one in self._registered.items() if one.query.is_closed and one.owner is None]:
            del self._registered[name]

    def _attach(self, session: Session, args: Args) -> Packet:
        at = self._home_of(args["name"])
        found = next((query for query in session.engine.queries() if query.name == args["name"]), None)
        if found is None:
            raise StreamError(f"there is no query named {args['name']}: it was closed, or the node has begun anew")
        return _value(self._described(session, found, args, at=at))

    def _queries(self, session: Session, args: Args) -> Packet:
        found = [(query, self._home_of(query.name, None, 0)) for query in session.engine.queries()]
        return _value(
            [{**self._described(session, query, args, at=at), "text": query.source.text} for query, at in found]
        )

    def _described(
        self, session: Session, query: RegisteredQuery, args: Args, *, is_owner: bool = False, at: str | None = None
    ) -> dict[str, Any]:
        """Return how the client is to call a query. Each reader of a group has a number of its own for it. at: where it
        is to do that, if another node runs it."""
        if at is not None:
            return self._elsewhere(query.name, at, is_stream=query.is_stream, of_view=is_view(query))
        group = args.get("group")
        if isinstance(query, LiveView):
            return self._described_view(session, query, group, is_again=args.get("is_again") is True)
        cursor = None if group is None else query.cursor(group)  # it may have to be logged first
        with session.lock:
            known = session.feeds.number_of(
                lambda feed: feed.query is query and feed.group is None and (feed.is_owner or not is_owner)
            )
            if cursor is not None:
                known = session.feeds.add(Feed(query, group=group))
            elif known is None:
                is_taken = self._taken_before(args, is_owner=is_owner)
                after_ms = taken_ms if type(taken_ms := args.get("taken_ms")) is int and not is_owner else None
                known = session.feeds.add(Feed(query, is_taken, is_owner=is_owner, after_ms=after_ms))
        return {"query": known, "name": query.name, "is_stream": query.is_stream, "life": self._life}

    def _elsewhere(self, name: str, at: str, *, is_stream: bool = False, of_view: bool = False) -> dict[str, Any]:
        """Return how the client is to call a query that another node runs. at: its address."""
        return {"at": at, "name": name, "is_stream": is_stream, "is_view": of_view, "life": self._life}

    def _described_view(self, session: Session, view: LiveView, group: str | None, *, is_again: bool) -> dict[str, Any]:
        """Return how the client is to call a live view."""
        with session.lock:
            known = session.feeds.number_of(lambda feed: feed.query is view and feed.group is None)
            if known is None or group is not None:
                known = session.feeds.add(ViewFeed(view, group=group, is_again=is_again))
        return {"query": known, "name": view.name, "is_stream": False, "is_view": True, "life": self._life}

    def _content(self, session: Session, args: Args) -> Packet:
        view, timeout_s = _view_of(session, args), args.get("timeout_s")
        if args.get("at") is not None:
            return _sent(session, view.content(args["at"], timeout_s=timeout_s))
        found, position = view.content_with_position(timeout_s=timeout_s)
        answer = _sent(session, found)
        return replace(answer, fields={**answer.fields, "minor": position.minor})

    def _bind(self, session: Session, args: Args) -> Packet:
        return _value(_view_of(session, args).bind(given_arguments(args, "bind")).tolist())

    def _unbind(self, session: Session, args: Args) -> Packet:
        return _value(_view_of(session, args).unbind(given_arguments(args, "unbind")).tolist())

    def _taken_before(self, args: Args, *, is_owner: bool) -> Callable[[int], bool]:
        """Return a function that tells, by a window's end, whether the client had the window in an earlier session."""
        taken_ms = args.get("taken_ms")
        if type(taken_ms) is not int:
            return lambda _: False
        if is_owner and args.get("life") == self._life:  # only the window that was not confirmed comes again
            return lambda end_ms: end_ms == taken_ms
        return lambda end_ms: end_ms <= taken_ms

    def _of_query(self, session: Session, method: str, args: Args) -> Packet:
        query: Any = _feed_of(session, args).query
        if method == "replace":
            return _called(partial(session.engine._replace, query), _OF_QUERY[method], args)
        found = getattr(query, method)(**{name: args[name] for name in _OF_QUERY[method] if name in args})
        if method == "why" and not isinstance(found, str):
            found = found.as_json()
        with self._lock:
            known = self._registered.get(query.name)
            readers = len(known.holders) if known is not None and known.query is query else 0
        if method == "stats":
            found = {**found, "readers": readers}
        if method == "warnings" and readers > 1:
            found = (*found, _READERS.format(readers))
        return _value(found)

    def _leave(self, session: Session, args: Args) -> Packet:
        """End one reader of a group."""
        _feed_of(session, args)
        with session.lock:
            feed = session.feeds.remove(args.get("query"))
        if feed is not None:
            feed.end()
        return _value(None)

    def _unread(self, session: Session, args: Args) -> Packet:
        return _value(_feed_of(session, args).unread())


def _value(value: Any) -> Packet:
    return Packet(ANSWER, {"value": value})


def _sent(session: Session, result: Result) -> Packet:
    """Answer with the first rows of a result; it is kept for those that follow."""
    outgoing = Outgoing(result)
    arrays = outgoing.chunk(0)
    fields: dict[str, Any] = {"head": outgoing.head()}
    if result.width and len(arrays["column 0"]) < len(result):
        with session.lock:
            fields["result"] = session.results.add(outgoing)
    return Packet(ANSWER, fields, arrays)


def _called(method: Callable[..., Any], names: tuple[str, ...], args: Args) -> Packet:
    return _value(method(**{name: args[name] for name in names if name in args}))


def _stream_of(session: Session, args: Args) -> Stream:
    found = session.streams.get(args.get("stream"))
    if found is None:
        raise DataError(f"a client has named stream {args.get('stream')!r}, which it has not declared")
    return found


def _view_of(session: Session, args: Args) -> LiveView:
    view = _feed_of(session, args).query
    if not isinstance(view, LiveView):
        raise StreamError(f"query {view.name} has windows, and is no live view")
    return view


def _feed_of(session: Session, args: Args) -> AnyFeed:
    found = session.feeds.get(args.get("query"))
    if found is None:
        raise DataError(f"a client has named query {args.get('query')!r}, which it has not registered")
    return found


def _table(arrays: Arrays, name: str = "table") -> pa.Table:
    """Return the table that a client sends under a name. Raises DataError for bytes that are none."""
    content = arrays.get(name)
    without = "a push without a table" if name == "table" else f"{name} without a table"
    if content is None or content.dtype != np.uint8:
        raise DataError(f"{without}: expected an Arrow IPC stream")
    try:
        with pa.ipc.open_stream(pa.py_buffer(content)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        first_line = str(error).partition("\n")[0]
        raise DataError(f"{without}: expected an Arrow IPC stream, found: {first_line}") from None
    return table
