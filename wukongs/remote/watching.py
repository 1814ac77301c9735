"""Watching: the windows and reports of several queries of other processes, in one thread."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from wukongs.errors import GapError, StreamError, WukongsError
from wukongs.query.output.results import WindowResult
from wukongs.query.output.view_report import ViewReport
from wukongs.remote.connection import Connection, Moved
from wukongs.remote.query import RemoteReader, fetch_any

WAIT_S = 0.25
"""So long one round of questions waits for a window."""


def watched(
    queries: Sequence[RemoteReader[Any]], timeout_s: float | None = None, count: int | None = None
) -> Iterator[WindowResult | ViewReport | GapError | None]:
    """Iterate over the windows and reports of queries as they come, and over gaps in them; None now and then between.
    It ends with the queries, after `count` windows or reports of each, or when nothing comes for timeout_s.

    Raises NodeUnavailable, and the error of a firing that failed."""
    left: dict[RemoteReader[Any], int | None] = dict.fromkeys(queries, count)
    last_s = time.monotonic()
    while left and (timeout_s is None or time.monotonic() - last_s < timeout_s):
        by_node: dict[Connection, list[RemoteReader[Any]]] = {}
        for query in left:
            by_node.setdefault(query.connection, []).append(query)
        wait_s = WAIT_S / len(by_node)
        found = [one for node, of_node in by_node.items() if (one := _next(node, of_node, wait_s)) is not None]
        for query, item in found:
            if isinstance(item, WindowResult | ViewReport):
                yield item
                number = left[query]
                left[query] = None if number is None else number - 1
                if number == 1:
                    query.confirm()
                    del left[query]
            elif isinstance(item, GapError):
                yield item
            else:
                raise item
            last_s = time.monotonic()  # that its reader takes long is no silence
        if not found:
            yield None
        for query in [query for query in left if query.is_over]:
            del left[query]


def _next(
    node: Connection, queries: Sequence[RemoteReader[Any]], wait_s: float
) -> tuple[RemoteReader[Any], WindowResult | ViewReport | WukongsError] | None:
    """Return the next window of one of the queries, or the error in its place; None if none comes within wait_s."""
    named = []
    for query in queries:
        try:
            query.number_in(node.joined())
        except Moved:  # to another node: it is asked there the next time
            continue
        except StreamError:  # it was closed while its node was away
            query.note_end()
            continue
        named.append(query)
    return fetch_any(node, named, wait_s) if named else None
