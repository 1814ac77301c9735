"""Idleness: a stream with idle_timeout_ms that brings nothing for so long holds nobody back (docs/decisions/0035).

* It first closes the stream batch of its own newest tuple. From then on it is idle, until it is pushed to or advanced.
* An idle stream is closed as far as the slowest of the streams that count for the clock of the stored graph and are not
  idle (`OwnProgress.moved`). With none of these it stays. One that has never begun begins so.
* With idle_advance = "wall" it does neither. It follows the wall clock (wall_clock.py, docs/decisions/0113), begins so
  as well, and counts as a stream that is not idle. Where partitions of pipelines are open, it goes as far as the
  slowest of these, which decide themselves whether they are idle (adapters/live_planner.py).
* A tuple that comes at or before the time up to which it was closed like this is late (lateness.py), and no error.
* To enter and to leave this state are records of the log, as is each round of advances by the wall clock. In between,
  how far it is closed follows from the others, so replay has no need of a clock. Its time runs anew when a folder is
  opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wukongs.live.core import Core
from wukongs.live.stream_state import StreamState
from wukongs.live.wall_clock import Rounds, hold_told, is_of_another_day, wall_end_ms


def left_s(state: StreamState, now_s: float) -> float:
    """Return in how many seconds a stream is to become idle if it brings nothing."""
    if state.idle_timeout_ms is None or state.is_idle or state.is_ended:
        return float("inf")
    return _silent_in_s(state, now_s)


def _silent_in_s(state: StreamState, now_s: float) -> float:
    """Return in how many seconds a stream has brought nothing for its idle_timeout_ms."""
    assert state.idle_timeout_ms is not None, state.iri
    return state.active_s + state.idle_timeout_ms / 1000 - now_s


def enter(core: Core, state: StreamState) -> None:
    """Make a stream idle. Called with the lock held. Raises StorageError."""
    _change(core, state, is_idle=True)


def be_active(core: Core, state: StreamState) -> bool:
    """Note that somebody brings something: an idle stream is idle no more. Return whether it was: then others may come
    further. Called with the lock held, before the stream is asked where it stands. Raises StorageError."""
    state.active_s = core.now_s()
    if not state.is_idle or state.is_ended:
        return False
    _change(core, state, is_idle=False)
    return True


def _change(core: Core, state: StreamState, *, is_idle: bool) -> None:
    change = {"op": "idle", "stream": state.iri, "is_idle": is_idle}
    core.journal.commit(change)
    apply(core, change)


def apply(core: Core, change: dict[str, Any]) -> None:
    """Carry out a record of the log. Called with the lock held, when all records before it hold."""
    state = core.streams[change["stream"]]
    state.is_idle = change["is_idle"]
    if state.follows_others and (end_ms := state.newest_end_ms) is not None:
        state.close_idle(end_ms)
    core.progress.moved(core)


# --- the wall clock ---------------------------------------------------------------------------------------------------


def follow_wall_clock(core: Core, rounds: Rounds) -> tuple[float, bool]:
    """Close the streams that follow the wall clock as far as that, in one record, if a round is due. Return in how many
    seconds the next one is, and whether there was one. Called with the lock held. Raises StorageError."""
    now_s, wall_ms = core.now_s(), core.wall_ms()
    idle = [one for one in core.streams.values() if one.idle_advance is not None and one.is_idle and not one.is_ended]
    # Its time runs anew when a folder is opened: what has waited for that comes first.
    left = {one.iri: _silent_in_s(one, now_s) for one in idle}
    next_s = min((seconds for seconds in left.values() if seconds > 0), default=float("inf"))
    following = [one for one in idle if left[one.iri] <= 0 and hold_of(core, one) is None]
    if not following:
        return next_s, False
    grid = [(one.batch_ms, one.lateness_ms) for one in following]
    if (wait_ms := rounds.wait_ms(grid, wall_ms)) > 0:
        return min(next_s, wait_ms / 1000), False
    ends = {one.iri: _end_ms(one, wall_ms) for one in following}
    further = {
        one.iri: end_ms
        for one in following
        if (end_ms := ends[one.iri]) is not None and (one.closed_ms is None or end_ms > one.closed_ms)
    }
    if further:
        change = {"op": "wall", "closed_ms": further}
        core.journal.commit(change)
        apply_wall(core, change)
    rounds.begin(grid, wall_ms)
    return min(next_s, rounds.wait_ms(grid, wall_ms) / 1000), bool(further)


def _end_ms(state: StreamState, wall_ms: int) -> int | None:
    """Return up to where a stream is closed that follows the wall clock. None: it stays."""
    if not (of_pipelines := state.pipelines_ms):
        return wall_end_ms(wall_ms, state.lateness_ms, state.batch_ms)
    known = [ms for ms in of_pipelines if ms is not None]
    return state.floor(min(known)) if len(known) == len(of_pipelines) else None


def apply_wall(core: Core, change: dict[str, Any]) -> None:
    """Carry out a record of a round: up to where each of some streams is closed by the wall clock. Called with the lock
    held, when all records before it hold."""
    for name, end_ms in change["closed_ms"].items():
        core.streams[name].close_idle(end_ms)
    core.progress.moved(core)


def hold_of(core: Core, state: StreamState) -> str | None:
    """Return, in words, why a stream that is idle and would follow the wall clock does not; None: it does, or is none.
    Called with the lock held."""
    newest_ms, wall_ms = state.newest_ms, core.wall_ms()
    if state.idle_advance is None or not state.is_idle or state.is_ended or state.pipelines_ms:
        return None
    if not is_of_another_day(newest_ms, wall_ms):
        return None
    assert newest_ms is not None, state.iri
    return hold_told(newest_ms, wall_ms)


def idle_told(core: Core, states: Iterable[StreamState]) -> list[str]:
    """Return, a line each, which of some streams would follow the wall clock and do not. Called with the lock held."""
    return [f"stream {state.iri} is idle; {hold}" for state in states if (hold := hold_of(core, state)) is not None]
