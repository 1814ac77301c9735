"""A look at the clock from long work on a text: tokens, patterns, rewrites, the automata of paths.

This room knows no executions. The module that does (query/limits.py) says once how a thread's own is asked.
"""

from __future__ import annotations

from collections.abc import Callable

_asked: list[Callable[[], None]] = []


def ask_at_looks(check: Callable[[], None]) -> None:
    """Have check() called at each look, in place of another one. It raises once the time of its thread is over."""
    _asked[:] = [check]


def look() -> None:
    """Raise what the execution of this thread raises once its time is over: QueryTimeout, QueryKilled."""
    for check in _asked:
        check()
