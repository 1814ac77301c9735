"""Standing: tells in the log which stream holds which queries and streams back, when it stands still for ten seconds.

A stream stands still while it closes nothing although another one has come further. It is told once, and again when it
has gone on in between and stands still anew. Queries are asked only about a stream that has stood that long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from wukongs.live.continuous import ContinuousQuery
from wukongs.live.core import Core
from wukongs.live.stream_state import StreamState

STANDS_S = 10.0
NAMES_MAX = 10
"""Names of queries and of streams in one message, each."""
log = logging.getLogger("wukongs")


@dataclass(slots=True)
class _Stand:
    """A stream that others have left behind: where, and since when. is_told: it holds somebody, and that was logged."""

    closed_ms: int | None
    is_started: bool
    since_s: float
    is_told: bool = False

    def is_of(self, state: StreamState) -> bool:
        return (self.closed_ms, self.is_started) == (state.closed_ms, state.is_started)


class Standing:
    """The streams of one engine that stand still. queries: the registered ones."""

    def __init__(self, core: Core, queries: Callable[[], Collection[ContinuousQuery]]) -> None:
        self._core, self._queries = core, queries
        self._stands: dict[str, _Stand] = {}

    def look(self, now_s: float) -> None:
        """Note who stands still, and tell who has done so for long. Called with the lock held."""
        running = [state for state in self._core.streams.values() if not (state.is_ended or state.is_made)]
        furthest = max((state.closed_ms for state in running if state.closed_ms is not None), default=None)
        behind = {
            state.iri: state
            for state in running
            if furthest is not None and ((cover_ms := state.cover_ms) is None or cover_ms < furthest)
        }
        self._stands = {name: stand for name, stand in self._stands.items() if name in behind}
        for name, state in behind.items():
            known = self._stands.get(name)
            if known is None or not known.is_of(state):
                self._stands[name] = _Stand(state.closed_ms, state.is_started, now_s)
            elif not known.is_told and now_s - known.since_s >= STANDS_S:
                known.is_told = self._tell(state, now_s - known.since_s)

    def _tell(self, state: StreamState, stood_s: float) -> bool:
        """Log whom a stream holds back; tell whether there is anybody."""
        queries = sorted(query.name for query in self._queries() if state.iri in query.times.waits_on())
        streams = self._held_streams(state)
        held = [f"{what} {_some(names)}" for what, names in (("queries", queries), ("streams", streams)) if names]
        if held:
            where = f"closed up to {state.closed_ms} ms" if state.is_started else "not begun"
            log.warning(
                "stream %s (%s) stands still for %.0f s and holds back %s: advance or close it, or declare it with an "
                "idle_timeout_ms",
                state.iri,
                where,
                stood_s,
                " and ".join(held),
            )
        return bool(held)

    def _held_streams(self, holder: StreamState) -> list[str]:
        """Return the streams with closed stream batches that wait for the clock of the stored graph, if this one holds
        it."""
        clock_ms, cover_ms = self._core.clock_ms(), holder.cover_ms
        if clock_ms is None or not holder.counts or cover_ms is None or cover_ms > clock_ms:
            return []
        waiting = ((state, state.next_join()) for state in self._core.streams.values())
        return sorted(
            state.iri for state, number in waiting if number is not None and number * state.batch_ms > clock_ms
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more
