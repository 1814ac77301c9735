"""DeferredSignals: Ctrl-C, and other signals that Python code handles, wait until a piece of work is done."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
from types import FrameType
from typing import Any

_NUMBERS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
# Those of `signal` convert numbers to enums, which takes fifteen times as long.
_get, _set = _signal.getsignal, _signal.signal


class DeferredSignals:
    """A block in which no handler of a signal is called: those that came are handled at its end. A handler may raise
    an error between any two steps of the main thread; other threads handle none."""

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._noted: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _NUMBERS:
            handler = _get(number)
            if callable(handler):
                try:
                    _set(number, self._note)
                except ValueError:  # the main thread of an interpreter that handles no signals
                    return
                self._handlers[number] = handler

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            if _get(number) == self._note:
                _set(number, handler)
        for number, frame in self._noted:
            self._handlers[number](number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append((number, frame))
