"""PathWatch: what has changed, from firing to firing of one query, in the windows and stored graphs that its paths
read.

A window changes by the slices that it gains and loses; the slices of the firing before are held here, so that those
which it loses can still be read. The stored graph changes by what was sealed between the snapshots of two firings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from wukongs.csparql.algebra import StreamWindow
from wukongs.live.engine_windows import EngineWindows, StoredSince
from wukongs.live.stream_state import StreamState
from wukongs.live.windows import interval
from wukongs.query.paths.kept_paths import PathChanges
from wukongs.store.arrangement import Arrangement
from wukongs.store.batch import Batch

_NUMBERS = count(1)


class PathWatch:
    """Used with the engine's lock held. states: of the streams of the windows; since: keeps what is sealed as long as
    it may be asked for, None if no stored graph is read."""

    def __init__(
        self,
        windows: Iterable[StreamWindow],
        states: Mapping[str, StreamState],
        arrangement: Arrangement,
        since: StoredSince | None,
    ) -> None:
        self._windows = [(window, states[window.stream]) for window in windows]
        self._arrangement = arrangement
        self._since = since
        self._firing = 0
        """The number of the firing before, of all watches."""
        self._held: dict[StreamWindow, dict[int, Batch]] | None = None
        """The slices that each window had at the firing before, by stream batch; None: they are not known."""
        self._sn: int | None = None

    def stand(self, at_ms: int, sn: int | None) -> PathChanges | None:
        """Return what has changed since the firing before, None if that is not known. Called at each firing; the
        windows lack nothing. sn: at which the stored graph is read."""
        firing_before, self._firing = self._firing, next(_NUMBERS)
        before, sn_before, stored = self._held, self._sn, self._stored(sn)
        now: dict[StreamWindow, dict[int, Batch]] = {}
        spans = [(state.ring, interval(window, state.batch_ms, at_ms)) for window, state in self._windows]
        if any(ring.holds_carried(span.after, span.to) for ring, span in spans):
            self._held = None  # slices are not all that the windows hold
            return None
        for window, state in self._windows:
            span, known = interval(window, state.batch_ms, at_ms), {} if before is None else before[window]
            numbers = state.ring.numbers(span.after, span.to)
            now[window] = {one: known[one] if one in known else state.ring.slice(one) for one in numbers}
        self._held = now
        if before is None or stored is None:
            return None
        come: dict[StreamWindow | None, Sequence[Batch]] = {None: stored[0]}
        gone: dict[StreamWindow | None, Sequence[Batch]] = {None: stored[1]}
        for window, held in now.items():
            come[window] = [batch for number, batch in held.items() if number not in before[window]]
            gone[window] = [batch for number, batch in before[window].items() if number not in held]
        return PathChanges((firing_before, self._firing), (sn_before or 0, sn or 0), come, gone)

    def _stored(self, sn: int | None) -> tuple[list[Batch], list[Batch]] | None:
        """Return what has come into the stored graph and gone from it since the firing before."""
        before, self._sn = self._sn, sn
        if sn is None or self._since is None:
            return [], []
        self._since.move(sn)
        entries = None if before is None or before > sn else self._arrangement.trace.between(before, sn)
        if entries is None:
            return None
        return [entry.batch for entry in entries], [one.tombstones for one in entries if one.tombstones is not None]

    def close(self) -> None:
        """Watch no more."""
        if self._since is not None:
            EngineWindows.leave([self._since])
            self._since = None
