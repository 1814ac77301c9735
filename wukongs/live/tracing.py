"""Tracing: where a process tells what its firings and requests have done, and when. Nobody listens by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Fired:
    """A firing that is over. end_ms: of its last window; windows: how many these are; rows, snapshot: of its window,
    None if there is none; times are those of time.perf_counter: when it was due, began to run, had its rows, and had
    given them to its readers; error: the name of the error in the place of its window."""

    query: str
    end_ms: int
    windows: int
    rows: int | None
    snapshot: int | None
    due_s: float
    begun_s: float
    executed_s: float
    delivered_s: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Requested:
    """An HTTP request that is answered. Times as in Fired."""

    name: str
    method: str
    path: str
    status: int
    headers: Mapping[str, str]
    begun_s: float
    answered_s: float


class Traces(Protocol):
    """Called by the threads that do the work."""

    def fired(self, told: Fired) -> None: ...
    def requested(self, told: Requested) -> None: ...


class _Listening:
    """to: None: nobody listens."""

    to: Traces | None = None


LISTENING = _Listening()
