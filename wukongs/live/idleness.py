"""Idleness: a stream with idle_timeout_ms that brings nothing for so long holds nobody back (docs/decisions/0035).

* It first closes the stream batch of its own newest tuple. From then on it is idle, until it is pushed to or advanced.
* An idle stream is closed as far as the slowest of the streams that count for the clock of the stored graph and are not
  idle (`OwnProgress.moved`). With none of these it stays. One that has never begun begins so.
* A tuple that comes at or before the time up to which it was closed like this is late (lateness.py), and no error.
* To enter and to leave this state are records of the log. In between, how far it is closed follows from the others, so
  replay has no need of a wall clock. Its time runs anew when a folder is opened.
"""

from __future__ import annotations

from typing import Any

from wukongs.live.core import Core
from wukongs.live.stream_state import StreamState


def left_s(state: StreamState, now_s: float) -> float:
    """Return in how many seconds a stream is to become idle if it brings nothing."""
    if state.idle_timeout_ms is None or state.is_idle or state.is_ended:
        return float("inf")
    return state.active_s + state.idle_timeout_ms / 1000 - now_s


def enter(core: Core, state: StreamState) -> None:
    """Make a stream idle. Called with the lock held. Raises StorageError."""
    _change(core, state, is_idle=True)


def be_active(core: Core, state: StreamState) -> None:
    """Note that somebody brings something: an idle stream is idle no more. Called with the lock held, before the stream
    is asked where it stands. Raises StorageError."""
    state.active_s = core.now_s()
    if state.is_idle and not state.is_ended:
        _change(core, state, is_idle=False)


def _change(core: Core, state: StreamState, *, is_idle: bool) -> None:
    change = {"op": "idle", "stream": state.iri, "is_idle": is_idle}
    core.journal.commit(change)
    apply(core, change)


def apply(core: Core, change: dict[str, Any]) -> None:
    """Carry out a record of the log. Called with the lock held, when all records before it hold."""
    state = core.streams[change["stream"]]
    state.is_idle = change["is_idle"]
    if state.is_idle and (end_ms := state.newest_end_ms) is not None:
        state.close_idle(end_ms)
    core.progress.moved(core)
