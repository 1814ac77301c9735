"""The payloads of control records for a node's store: JSON that another node has written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, get_args

from wukongs.cluster.times import ms_of
from wukongs.csparql.algebra import Query
from wukongs.errors import DataError, SettingsError, WukongsError
from wukongs.live.declarations import parse_continuous, parse_registered, stream_options
from wukongs.live.made_streams import MADE
from wukongs.live.query_source import QuerySource, Unread
from wukongs.live.views.options import ViewOptions, check_view
from wukongs.live.windows import makes_stream
from wukongs.protocol.records import LIVE, DeclareStream
from wukongs.rules.inference import Ruleset
from wukongs.settings import Settings

_OPTIONS = ("timing", "batch_ms", "into", "history_ms", "slice_bytes_max", "index")
_IF_GIVEN = ("lateness_ms", "on_late", "idle_timeout_ms", "idle_advance", "late", "retractions", MADE)


def _read(payload: str, what: str, names: Sequence[str], if_given: Sequence[str] = ()) -> dict[str, Any]:
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        raise DataError(f"{what}: expected a payload in JSON, found {payload[:60]!r}") from None
    if not isinstance(found, dict) or set(found) - set(if_given) != set(names):
        raise DataError(f"{what}: expected a payload with {', '.join(names)}, found {payload[:200]!r}")
    return found


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def read_options(settings: Settings, record: DeclareStream) -> dict[str, Any]:
    """Return the options of a stream: those of stream_options, which its coordinator has filled in.

    Raises DataError (a payload that says something else), SettingsError (an option)."""
    what = f"stream {record.stream}"
    found = _read(record.payload, what, _OPTIONS, _IF_GIVEN)
    timing = found["timing"]
    is_sound = isinstance(timing, bool) or (isinstance(timing, list) and all(isinstance(iri, str) for iri in timing))
    if not is_sound or not _is_text(found["into"]) or not isinstance(found["index"], str):
        raise DataError(f"{what}: expected options of a stream, found {record.payload[:200]!r}")
    is_made = found.pop(MADE, False)
    if is_made is not record.is_made:
        raise DataError(f"{what}: expected {MADE} as in its record, {record.is_made}, found {is_made!r}")
    is_called = found.get("on_late") is True  # a function of the node that has declared it
    options = stream_options(settings, **{**found, "on_late": None} if is_called else found)
    if is_called:
        options["on_late"] = True
    if is_made:
        options[MADE] = True
    batch_ms = options["batch_ms"]
    if record.batch_ticks != batch_ms or ms_of(record.first_tick) % batch_ms or record.group != LIVE:
        raise SettingsError(
            f"{what}: batch_ticks = {record.batch_ticks}, first_tick = {record.first_tick}, group = {record.group!r} "
            f"do not fit batch_ms = {batch_ms}: expected batch_ticks = batch_ms, a first_tick at the end of a stream "
            f"batch (first_tick_of), and group = {LIVE!r}"
        )
    return options


def declaration(name: str, batch_ms: int, first_tick: int, payload: str) -> DeclareStream:
    """Return the record that has declared a stream with this payload."""
    try:
        is_made = bool(json.loads(payload).get(MADE, False))
    except (ValueError, AttributeError, RecursionError):
        is_made = False  # read_options refuses it
    return DeclareStream(name, (), batch_ms, first_tick=first_tick, payload=payload, is_made=is_made)


class Registration(NamedTuple):
    """A query as the log has it. from_ms: the event time from which its text counts, if nothing has fired before; view:
    the options of a live view, None: it has windows."""

    source: QuerySource
    from_ms: int | None
    is_paused: bool = False
    view: ViewOptions | None = None

    @property
    def alone(self) -> QuerySource:
        """The source; of a live view without its first arguments, as readers name it."""
        return self.source if self.view is None else self.source._replace(bindings=None)

    def payload(self) -> str:
        """Return the payload of RegisterQuery and AlterQuery."""
        source = self.source._asdict()
        if self.source.only is None:
            del source["only"]  # nodes of releases without roles do not know it
        view = {} if self.view is None else {"view": self.view._asdict()}
        return json.dumps({**source, "from_ms": self.from_ms, "is_paused": self.is_paused, **view})

    def is_of(self, source: QuerySource, view: ViewOptions | None) -> bool:
        """Return whether it is what somebody would register anew."""
        return (self.source, self.view) == (source, view)

    def parsed(self) -> Query:
        """Return the query. Raises as parse_registered, and as check_continuous or check_view."""
        if self.view is None:
            return parse_continuous(self.source)
        query = parse_registered(self.source)
        check_view(query, self.source, self.view)
        return query


def read_registration(payload: str, name: str) -> Registration:
    """Return what a query is. Raises DataError."""
    names = (*(one for one in QuerySource._fields if one != "only"), "from_ms", "is_paused")
    found = _read(payload, f"query {name}", names, ("only", "view"))
    only = found.get("only")
    if only is not None and not (isinstance(only, list) and all(isinstance(one, str) for one in only)):
        raise DataError(f"query {name}: expected the IRIs of graphs in only, found {only!r:.100}")
    is_sound = isinstance(found["text"], str) and _is_text(found["base"]) and _is_text(found["output"])
    if not is_sound or type(found["unread_bytes_max"]) is not int or found["unread"] not in get_args(Unread):
        raise DataError(
            f"query {name}: expected text, base and output as texts, how much may be unread, found {payload[:200]!r}"
        )
    from_ms = found["from_ms"]
    if from_ms is not None and type(from_ms) is not int:
        raise DataError(f"query {name}: expected from_ms as milliseconds, found {from_ms!r}")
    if not isinstance(found["is_paused"], bool):
        raise DataError(f"query {name}: expected is_paused as true or false, found {found['is_paused']!r}")
    view = found.get("view")
    if view is not None and not (isinstance(view, dict) and view.keys() == {*ViewOptions._fields}):
        raise DataError(f"query {name}: expected the options of a live view, found {view!r:.200}")
    options = None if view is None else ViewOptions(**view).checked()
    return Registration(QuerySource.of(found), from_ms, found["is_paused"], options)


class ChangePayload(NamedTuple):
    """name: what a change was staged as; graph: that of its quads without one; cleared: the graphs that it empties
    first; None: the default graph; operations: how many an update has, 0: it is a load; is_whole: its quads are all
    that changes, with what follows by rules: those of hidden graphs are named by their views; late: its quads are late
    tuples of the stream with this name, with their times and signs, which go by event time."""

    name: str
    graph: str | None
    cleared: list[str | None]
    operations: int
    is_whole: bool = False
    late: str | None = None


def read_change(payload: str) -> ChangePayload:
    """Raises DataError."""
    found = _read(payload, "a change", ("change", "graph", "cleared", "operations"), ("is_whole", "late"))
    name, graph, cleared, late = found["change"], found["graph"], found["cleared"], found.get("late")
    if not isinstance(name, str) or not _is_text(graph) or not isinstance(cleared, list) or not _is_text(late):
        raise DataError(f"a change: expected change, graph and cleared, found {payload[:200]!r}")
    if not all(_is_text(one) for one in cleared):
        raise DataError(f"change {name}: expected the IRIs of graphs in cleared, found {cleared!r}")
    if type(found["operations"]) is not int:
        raise DataError(f"change {name}: expected how many operations it has, found {found['operations']!r}")
    return ChangePayload(name, graph, cleared, found["operations"], found.get("is_whole", False) is True, late)


@lru_cache(4)
def ruleset_of(rules: str) -> Ruleset:
    """Return the rules of a record (records.Change.rules)."""
    return Ruleset.of_json(json.loads(rules)) if rules else Ruleset.of(())


@lru_cache(4096)
def maker(payload: str, name: str) -> Query | None:
    """Return the query of a registration if it makes a stream. Raises WukongsError."""
    registration = read_registration(payload, name)
    source = registration.source
    if registration.view is not None or "construct" not in source.text.lower():
        return None
    query = parse_continuous(source)
    return query if makes_stream(query) else None


@lru_cache(4096)
def stream_of_view(payload: str, name: str) -> str | None:
    """Return the IRI of the stream that a live view makes; None: it makes none, or is a query with windows. Raises
    WukongsError."""
    view = read_registration(payload, name).view
    return None if view is None else view.into


def stream_made(payload: str, name: str) -> str | None:
    """Return the IRI of the stream that a query or live view makes; None: it makes none, or its node refuses it."""
    with suppress(WukongsError):
        return stream_of_view(payload, name) or (name if maker(payload, name) is not None else None)
    return None


class HasPayload(Protocol):
    """A registered query or live view. payload: its Registration as text."""

    @property
    def payload(self) -> str: ...


def maker_of(stream_iri: str, registered: Mapping[str, HasPayload]) -> str | None:
    """Return the name of the query or live view that makes a stream; None: there is none. registered: all, by name."""
    return next((name for name, one in registered.items() if stream_made(one.payload, name) == stream_iri), None)


def streams_read(payload: str, name: str) -> list[str]:
    """Return the streams that a query reads if it makes one, none if not. Raises as maker."""
    query = maker(payload, name)
    return [] if query is None else [window.stream for window in query.dataset.windows]
