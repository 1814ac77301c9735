"""How much memory a process really holds."""

from __future__ import annotations

import os
from pathlib import Path


def resident_bytes(process: int | str = "self") -> int:
    """Return the resident memory of a process, by default this one, without pages that it shares with files."""
    fields = Path(f"/proc/{process}/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
