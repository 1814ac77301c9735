"""How much memory a process really holds."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

import pyarrow as pa


def resident_bytes(process: int | str = "self") -> int:
    """Return the resident memory of a process, by default this one, without pages that it shares with files."""
    fields = Path(f"/proc/{process}/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


def status_bytes(name: str, process: int | str = "self") -> int:
    """Return a size of a process's memory as the system has it: VmRSS, VmHWM. Raises OSError (no such size)."""
    file = Path(f"/proc/{process}/status")
    for line in file.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in {file}")


def kept_bytes() -> int:
    """Return the same of this process, once what is free was given back to the system."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)
    return resident_bytes()
