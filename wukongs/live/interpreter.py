"""How Python shares its lock among the threads of a process that fires, decodes and answers."""

from __future__ import annotations

import sys

SWITCH_INTERVAL_S = 50e-6


def take_turns_quickly() -> None:
    """Let a thread that waits for Python's lock ask for it soon: a question passes through several threads, and at
    Python's default of 5 ms a firing waits for decoding."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
