"""What is long under the engine's lock, in steps, between which others get it: for loads and updates of many rows."""

from __future__ import annotations

import time

from wukongs.live.core import Core
from wukongs.store.batch import Batch

STEP_ROWS = 1 << 16
"""Rows that the newness filter learns, and fuel for merges, in one step under the engine's lock: some milliseconds."""
PAUSE_S = 0.0002
"""Between two such steps; enough for a thread that waits for the lock to get it."""


def expect(core: Core, batch: Batch) -> None:
    """Let the newness filter know a batch that is to be sealed. Called without the lock."""
    while True:
        with core.lock:
            if core.arrangement.expect(batch, STEP_ROWS):
                return
        time.sleep(PAUSE_S)


def pay_for_merges(core: Core, row_count: int) -> None:
    """Pay what a seal of so many triples and tombstones owes for merges. Called without the lock."""
    trace, fuel = core.arrangement.trace, core.arrangement.trace.owed(row_count)
    while fuel > 0 and trace.is_merging():
        with core.lock:
            trace.work(STEP_ROWS)
        fuel -= STEP_ROWS
        if fuel > 0:
            time.sleep(PAUSE_S)
