"""Joint firings: the programs of queries that are due at one time, alike or not, run by one kernel call."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from wukongs.live.firing import Firing
from wukongs.query.programs.program import run_together

log = logging.getLogger("wukongs")
FIRINGS_MAX = 100
"""The firings that are picked under one hold of the engine's lock, and run by one call, at most."""


def run_jointly(firings: Sequence[Firing]) -> Sequence[Firing]:
    """Return firings at one time, which read one snapshot, with the rows that their programs have found: these come
    first, since they need not wait for others. All others find their answers alone. Called by the thread that fires."""
    found = [
        (one, program)
        for one in firings
        if (program := one.program) is not None
        and not (one.is_repeated or one.is_maintained)
        and program.may_run_together()
    ]
    if len(found) < 2:
        return firings
    began_s = time.perf_counter()
    try:
        results = run_together([program for _, program in found], found[0][0].reader)
    except Exception as error:
        # A mistake of ours, which each query reports if it meets it again.
        level = logging.DEBUG if isinstance(error, MemoryError) else logging.ERROR
        log.log(level, "%d programs could not be run together", len(found), exc_info=True)
        return firings
    share_us = (time.perf_counter() - began_s) * 1e6 / len(found)
    for (firing, _), rows in zip(found, results, strict=True):
        firing.rows, firing.joint_us = rows, share_us
    return sorted(firings, key=lambda one: one.rows is None)
