"""The wall clock of this machine, and how streams with idle_advance = "wall" follow it (docs/decisions/0113).

An idle stream of that kind is closed up to the last end of its stream batches <= wall clock - lateness_ms. While its
newest tuple differs from the wall clock by more than a day it stays: its times, or the clock, are then of another day,
and whatever came next would be late.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from wukongs.store.snapshot import TICK_MAX_MS, TICK_MIN_MS

IdleAdvance: TypeAlias = Literal["wall"]
WALL: IdleAdvance = "wall"
DAY_MS = 86_400_000


def wall_clock_ms() -> int:
    """Return the time by the clock of the machine, in ms since 1970."""
    return time.time_ns() // 1_000_000


def wall_end_ms(wall_ms: int, lateness_ms: int, batch_ms: int) -> int | None:
    """Return the last end of a stream batch at or before the wall clock less lateness_ms; None: no SN can name it."""
    end_ms = (wall_ms - lateness_ms) // batch_ms * batch_ms
    return end_ms if TICK_MIN_MS + batch_ms < end_ms <= TICK_MAX_MS - batch_ms else None


def is_of_another_day(newest_ms: int | None, wall_ms: int) -> bool:
    """Return whether a newest tuple differs from the wall clock by more than a day. None: there is no tuple."""
    return newest_ms is not None and abs(wall_ms - newest_ms) > DAY_MS


def hold_told(newest_ms: int, wall_ms: int) -> str:
    """Return, in words, why an idle stream does not follow the wall clock."""
    side = "behind" if newest_ms < wall_ms else "ahead of"
    return (
        f"its newest tuple, at {time_told(newest_ms)}, is more than a day {side} the wall clock: it does not follow "
        "that until newer tuples come"
    )


def time_told(time_ms: int) -> str:
    """Return a time in ms, and as a date in UTC if that has one."""
    try:
        date = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return f"{time_ms} ms ({date})"


@dataclass(slots=True)
class Rounds:
    """Says when the next round of advances by the wall clock is due: at most one per batch_ms of the streams in it.

    The rounds go by the stream with the shortest stream batches, so its ends are closed without delay."""

    _last: tuple[int, int, int] | None = None
    """batch_ms and lateness_ms of the stream that the last round went by, and the number of its stream batch."""

    def wait_ms(self, streams: Sequence[tuple[int, int]], wall_ms: int) -> int:
        """Return how many milliseconds there are until the next round: 0: it is due. streams: (batch_ms, lateness_ms)
        of each, at least one."""
        batch_ms, lateness_ms = min(streams)
        number = (wall_ms - lateness_ms) // batch_ms
        if self._last is None or self._last[:2] != (batch_ms, lateness_ms) or number > self._last[2]:
            return 0
        return min((self._last[2] + 1) * batch_ms + lateness_ms - wall_ms, batch_ms)

    def begin(self, streams: Sequence[tuple[int, int]], wall_ms: int) -> None:
        """Note that a round is made."""
        batch_ms, lateness_ms = min(streams)
        self._last = batch_ms, lateness_ms, (wall_ms - lateness_ms) // batch_ms
