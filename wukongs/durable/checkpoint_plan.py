"""What a checkpoint is planned from, and the plan: the heads of the log's segments, loads, and what is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wukongs.store.trace import Entry


@dataclass(frozen=True, slots=True)
class Mark:
    """A segment's head: its LSN, and the newest timestamp that each stream (by LSN) had brought before it."""

    lsn: int
    last_ms: dict[int, int | None]


@dataclass(slots=True)
class Load:
    """A load or update whose first record is lsn; stored at sn (None: not committed yet)."""

    lsn: int
    sn: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What one checkpoint writes. sn: up to which the entries go; start: the head of the first segment to keep."""

    sn: int
    entries: tuple[Entry, ...]
    start: int
    about: dict[str, Any]
