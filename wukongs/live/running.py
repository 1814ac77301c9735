"""RunningQueries: the one-shot queries that an engine is at, so that one that takes too long can be ended."""

from __future__ import annotations

import time
from dataclasses import dataclass

from wukongs.errors import StreamError
from wukongs.query.limits import Limits


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """number: by which it can be killed; text: how it begins; seconds: since it has begun; bytes: that it holds."""

    number: int
    text: str
    seconds: float
    bytes: int


class RunningQueries:
    """Used from any thread."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[str, float, Limits]] = {}

    def begin(self, number: int, text: str, limits: Limits) -> None:
        self._running[number] = text, time.monotonic(), limits

    def end(self, number: int) -> None:
        del self._running[number]

    def list(self) -> list[RunningQuery]:
        """Return those that run now, the oldest first."""
        now = time.monotonic()
        found = sorted(self._running.copy().items())
        return [RunningQuery(number, text, now - began_s, limits.held) for number, (text, began_s, limits) in found]

    def kill(self, number: int) -> None:
        """Have a query end with QueryKilled. Raises StreamError (none with this number runs)."""
        found = self._running.get(number) if isinstance(number, int) else None
        if found is None:
            running = ", ".join(map(str, sorted(self._running.copy()))) or "none"
            raise StreamError(
                f"query {number!r:.100} does not run here: it has ended, or never was. Running: {running}"
            )
        found[2].kill()
