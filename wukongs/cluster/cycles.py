"""Cycles by way of streams that live views of a cluster make: by the log, wherever views and queries stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from wukongs.cluster.node_payloads import HasPayload, maker, read_registration
from wukongs.csparql.algebra import Query
from wukongs.errors import WukongsError
from wukongs.live.stream_state import StreamState
from wukongs.live.views.cycles import Place, Step, check_no_cycle, graph, reads_of, steps_of
from wukongs.live.views.options import ViewOptions
from wukongs.live.windows import makes_stream
from wukongs.rules.program import Rule


@lru_cache(4096)
def step_of_payload(payload: str, name: str) -> Step | None:
    """Return a registered query as a maker of triples; None: it is none, or its node refuses it."""
    try:
        registration = read_registration(payload, name)
        view = registration.view
        if view is not None:
            return step_of(registration.parsed(), view) if view.into is not None else None
        query = maker(payload, name)
    except WukongsError:
        return None
    return None if query is None else step_of(query, None)


def step_of(query: Query, view: ViewOptions | None) -> Step | None:
    """Return a query as a maker of triples; None: it makes no stream. view: its options if it is a live view."""
    assert query.registration is not None
    name = query.registration.name
    if view is not None:
        is_maker = view.into is not None
        return Step(f"view {name}", reads_of(query), Place("stream", view.into or "")) if is_maker else None
    return Step(f"query {name}", reads_of(query), Place("stream", name)) if makes_stream(query) else None


def check_cycles(
    query: tuple[str, Step] | None,
    registered: Mapping[str, HasPayload],
    streams: Iterable[StreamState],
    rules: Iterable[Rule] = (),
) -> None:
    """Raise StreamError if a live view would read what is made of its own triples.

    query: the name of one that is about to be registered, or to have another text, and what it makes; None: the rules
    change. registered: the queries and views of the log, by name; streams: those that are declared; rules: all."""
    name, step = query or ("", None)
    known = [step_of_payload(one.payload, other) for other, one in registered.items() if other != name]
    makers = [one for one in (*known, step) if one is not None]
    views = [one for one in makers if one.what.startswith("view ")]
    if not views:
        return
    others = makers + steps_of(rules)
    for state in streams:
        if state.timing is not True:
            others.append(Step(f"stream {state.iri}", {Place("stream", state.iri)}, graph(state.into_iri)))
    for view in views:
        check_no_cycle(view, others)
