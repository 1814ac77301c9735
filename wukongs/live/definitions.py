"""Definitions: the streams, queries and rules of an engine or a cluster, to be set up at another one."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from wukongs.csparql.algebra import Query
from wukongs.errors import StreamError
from wukongs.live.backend import Backend
from wukongs.live.continuous import ContinuousQuery
from wukongs.live.declarations import parse_continuous, parse_registered
from wukongs.live.joined_query import JoinedQuery
from wukongs.live.lateness import COUNT, LateTuples
from wukongs.live.query_source import QuerySource
from wukongs.live.views.options import ViewOptions
from wukongs.rules.inference import InstalledRule, Ruleset

log = logging.getLogger("wukongs")


@dataclass(frozen=True, slots=True)
class Definitions:
    """streams: the options of each, as stream_options has made them, without streams that a query makes for its
    readers; queries: the source of each, and whether it is paused; rules: those over stored graphs; views: the source
    and the options of each live view, and whether it is paused."""

    streams: Mapping[str, dict[str, Any]]
    queries: Mapping[str, tuple[QuerySource, bool]]
    rules: Sequence[InstalledRule] = ()
    views: Sequence[tuple[QuerySource, ViewOptions, bool]] = ()

    def declare_at(self, backend: Backend) -> None:
        """Declare the streams and register the queries, as those that a data folder has: whoever first declares or
        registers the same goes on with them. Late tuples are only counted until then. Raises as Engine.stream,
        Engine.register and Engine.add_rules."""
        if self.rules:
            backend.change_rules(lambda _: Ruleset.of(self.rules))
        for name, options in self.streams.items():
            backend.declare(name, options, LateTuples(name, COUNT))
        for query, source, is_paused in self._in_order():
            registered = backend.register(query, source, None)
            if isinstance(registered, ContinuousQuery | JoinedQuery):
                registered.is_recovered = True
            if is_paused:
                registered.pause()
        for source, of_view, is_paused in self.views:
            query = parse_registered(source)
            try:
                backend.check_views(query)
                view = backend.register_view(query, source, of_view, None)
            except StreamError as error:
                log.warning("not restored: %s", error)
                continue
            view.is_recovered = True
            if is_paused:
                view.pause()

    def _in_order(self) -> Iterator[tuple[Query, QuerySource, bool]]:
        """Yield the queries; one that makes a stream comes before those that read it."""
        parsed = {name: parse_continuous(source) for name, (source, _) in self.queries.items()}
        reads = {
            name: [window.stream for window in query.dataset.windows if window.stream in parsed]
            for name, query in parsed.items()
        }
        for name in TopologicalSorter(reads).static_order():
            yield parsed[name], *self.queries[name]
