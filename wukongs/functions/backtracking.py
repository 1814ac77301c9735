"""Patterns that need backtracking (back-references, long repetitions), matched in a process of their own.

Such a pattern can take for ever, Python's `re` cannot be told to stop, and it lets no other thread run meanwhile: so
that a query that is out of time can end, and the engine goes on, the work is done where it can be ended.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wukongs.limits import current

_WORKER = Path(__file__).with_name("backtracking_worker.py")
_POLL_S = 0.02
_idle: deque[subprocess.Popen[str]] = deque()
"""Processes that wait for the next request; as many as were asked at once."""


def search(pattern: str, texts: Sequence[str]) -> list[bool]:
    """Tell of each text whether a part of it matches. Raises QueryTimeout."""
    found: list[bool] = _ask(["search", pattern, list(texts)])
    return found


def spans(pattern: str, text: str) -> list[list[tuple[int, int]]]:
    """Return all matches, each as the (start, end) of its groups, the whole first; (-1, -1) for a group without part.

    Raises QueryTimeout."""
    return [[(start, end) for start, end in match] for match in _ask(["spans", pattern, text])]


def _ask(request: list[Any]) -> Any:
    limits = current()
    try:
        process = _idle.pop()
    except IndexError:
        command = [sys.executable, "-I", "-S", str(_WORKER)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        while not select.select([process.stdout], [], [], _POLL_S)[0]:
            limits.check()
        answer = json.loads(process.stdout.readline())
    except BaseException:
        process.kill()
        with contextlib.suppress(OSError):
            process.communicate()
        raise
    _idle.append(process)
    return answer
