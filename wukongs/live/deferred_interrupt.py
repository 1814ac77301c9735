"""DeferredInterrupt: Ctrl-C waits until a piece of work of the main thread is done."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
from types import FrameType
from typing import Any

# Those of `signal` convert numbers to enums, which takes fifteen times as long.
_get, _set = _signal.getsignal, _signal.signal
_OTHERS = tuple(number for number in map(int, signal.valid_signals()) if number != signal.SIGINT and number < 32)


class DeferredInterrupt:
    """A block at whose end the handler of SIGINT is called if the signal has come meanwhile. Python calls handlers in
    the main thread, between any two steps, and they may raise an error."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._noted: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> bool:
        """Return whether no handler is called in the block: that is not so in the main thread if it has one for
        another signal."""
        if threading.current_thread() is not threading.main_thread():
            return True
        if any(callable(_get(number)) for number in _OTHERS):
            return False
        handler = _get(signal.SIGINT)
        if callable(handler):
            try:
                _set(signal.SIGINT, self._note)
            except ValueError:  # the main thread of an interpreter that handles no signals
                return True
            self._handler = handler
        return True

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            _set(signal.SIGINT, self._handler)
            if self._noted is not None:
                self._handler(*self._noted)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = number, frame
