"""How busy the machine is: wait until it is idle, and weigh what others took of its cores while we measured.

Both are read from /proc. A system without it counts as idle.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

IDLE_SHARE = 0.05
"""The machine is idle while its cores are busy for less than this share of a second. A figure is marked if others took
more of the cores than that while it was measured."""


def wait_until_idle(timeout_s: float) -> bool:
    """Wait until the machine is idle; tell whether it is."""
    deadline = time.monotonic() + timeout_s
    is_told = False
    while (share := busy_share(1.0)) > IDLE_SHARE:
        if not is_told:
            print(f"waiting up to {timeout_s:g} s for an idle machine: {share:.0%} busy", file=sys.stderr, flush=True)
            is_told = True
        if time.monotonic() >= deadline:
            print(f"the machine is busy ({share:.0%}): what is measured now is marked", file=sys.stderr, flush=True)
            return False
    return True


def busy_share(seconds: float) -> float:
    """Return which share of the cores is busy for some seconds."""
    before = _processor_ticks()
    if before is None:
        return 0.0
    time.sleep(seconds)
    after = _processor_ticks()
    assert after is not None, before
    busy, idle = (end - start for start, end in zip(before, after, strict=True))
    return busy / max(1, busy + idle)


class OthersShare:
    """Which share of the cores others have taken since this was made. Our process and all that it started are ours."""

    def __init__(self) -> None:
        self._began = _processor_ticks(), _our_ticks()

    def __call__(self) -> float:
        before, ours_before = self._began
        after, ours_after = _processor_ticks(), _our_ticks()
        if before is None or after is None:
            return 0.0
        busy, idle = (end - start for start, end in zip(before, after, strict=True))
        return max(0.0, busy - (ours_after - ours_before)) / max(1, busy + idle)


def _processor_ticks() -> tuple[int, int] | None:
    """Return the ticks that all cores were busy and idle so far."""
    try:
        ticks = [int(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, idle


def _our_ticks() -> int:
    """Return the ticks that this process and its descendants took, those that have ended among them."""
    found: dict[int, tuple[int, int]] = {}
    try:
        names = [name for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return 0
    for name in names:
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except (OSError, UnicodeDecodeError):
            continue  # it has ended meanwhile
        found[int(name)] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in found.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks for pid, (_, ticks) in found.items() if pid in ours)
