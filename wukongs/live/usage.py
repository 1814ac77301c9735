"""Sizes and counts of this process and of its data folder."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from wukongs.query.memory import MemoryBudget

_BEGAN_S = time.monotonic()
_STATM, _DESCRIPTORS = Path("/proc/self/statm"), Path("/proc/self/fd")


def process_usage(budget: MemoryBudget) -> dict[str, Any]:
    """Return sizes (bytes) and counts of this process. memory_bytes, open_files: of Linux only; memory: the figures of
    the budget of its queries and loads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    facts: dict[str, Any] = {
        "pid": os.getpid(),
        "up_s": round(time.monotonic() - _BEGAN_S, 3),
        "cpu_s": round(used.ru_utime + used.ru_stime, 3),
        "threads": threading.active_count(),
        "memory": budget.stats(),
    }
    with suppress(OSError, ValueError):
        facts["memory_bytes"] = int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError):
        facts["open_files"] = len(os.listdir(_DESCRIPTORS))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return facts if limit == resource.RLIM_INFINITY else {**facts, "open_files_max": limit}


def folder_usage(folder: Path) -> dict[str, int]:
    """Return what a data folder takes (bytes), its log alone, and what its disk has left. Files that go meanwhile are
    left out."""
    facts = {"folder_bytes": 0, "log_bytes": 0}
    for place, _, names in os.walk(folder):
        is_log = Path(place).relative_to(folder).parts[:1] == ("log",)
        for name in names:
            with suppress(OSError):
                found = os.lstat(os.path.join(place, name))
                size = found.st_blocks * 512 if stat.S_ISREG(found.st_mode) else 0
                facts["folder_bytes"] += size
                facts["log_bytes"] += size * is_log
    with suppress(OSError):
        facts["disk_free_bytes"] = shutil.disk_usage(folder).free
    return facts
