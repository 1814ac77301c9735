"""Traffic: counts of a node's messages, and of refusals by their reason. Counted from any thread."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from wukongs.live.header import Frame

REASONS = (
    "malformed",
    "oversized",
    "wrong version",
    "unknown kind",
    "stranger",
    "busy",
    "replayed",
)
"""Why a message was not taken."""

COUNTERS = (
    "messages_in",
    "messages_out",
    "bytes_in",
    "bytes_out",
    "requests",
    "introductions",
    "told",
    "told_out",
    "told_bytes_out",
    "ingested",
    "failed",
    "dropped",
    "undelivered",
)
"""Messages and bytes each way; requests answered, introductions of nodes that were let in and of clients that ask
directly, and packets told that were handled here; what this node told, which is among what went out; messages of
pipelines handled here; handlers that failed; tells that were dropped since a peer was away or its queue full; answers
that found nobody."""


class WireTraffic:
    """Counters that only rise. Units: messages, bytes, requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        with self._lock:
            self._counts[name] += count

    def sent(self, frames: Sequence[Frame]) -> None:
        with self._lock:
            self._counts["messages_out"] += 1
            self._counts["bytes_out"] += sum(map(len, frames))

    def told(self, frames: Sequence[Frame]) -> None:
        """Count a message that goes out and has no answer."""
        self.sent(frames)
        with self._lock:
            self._counts["told_out"] += 1
            self._counts["told_bytes_out"] += sum(map(len, frames))

    def received(self, frames: Sequence[Frame]) -> None:
        with self._lock:
            self._counts["messages_in"] += 1
            self._counts["bytes_in"] += sum(map(len, frames))

    def refused(self, reason: str) -> None:
        assert reason in REASONS, reason
        with self._lock:
            self._refused[reason] += 1

    def stats(self) -> dict[str, int | dict[str, int]]:
        """Return all COUNTERS, and how many were refused, by reason."""
        with self._lock:
            return {
                **{name: self._counts[name] for name in COUNTERS},
                "refused": {reason: self._refused[reason] for reason in REASONS},
            }
