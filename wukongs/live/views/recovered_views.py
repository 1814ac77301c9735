"""RecoveredViews: the live views that a data folder has, while its log is replayed.

They are read before the replay, so that the versions of the stored graph at which they have to go on stay readable:
what the replay seals is not merged over them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wukongs.errors import CompactedError
from wukongs.live.views.view_state import ViewState
from wukongs.store.trace import Handle, Trace, Watcher

OP = "view"
"""The op of changes of live views in the log."""


class RecoveredViews:
    """Called with the engine's lock held.

    states: by the records that registered them."""

    def __init__(self, states: Iterable[dict[str, Any]] = (), from_lsn: int = 0) -> None:
        """states: those of the checkpoint. from_lsn: it has what records before it say."""
        self.states = {each["of"]: ViewState(**each) for each in states}
        self._from_lsn = from_lsn
        self._handles: list[Handle] = []
        self._watcher: tuple[Trace, Watcher] | None = None

    def take_change(self, change: dict[str, Any], lsn: int) -> None:
        """Take a change of a view. Raises KeyError for one that is not known."""
        if lsn < self._from_lsn:
            return
        if change["what"] == "register":
            self.states[lsn] = ViewState(lsn, **change["state"])
        elif change["what"] == "close":
            self.states.pop(change["of"], None)
        elif change["of"] in self.states:
            self.states[change["of"]].change(change)

    def note_read(self, news: dict[str, Any], lsn: int) -> None:
        """Take a record of how far readers have got."""
        for of, each in news.items() if lsn >= self._from_lsn else ():
            if int(of) in self.states:
                self.states[int(of)].note_read(each)

    def hold(self, trace: Trace) -> None:
        """Keep the versions readable that views need, before the log is replayed."""
        sns = sorted({position.sn for state in self.states.values() for position in state.positions()})
        for sn in sns:
            try:
                self._handles.append(trace.open(sn, "live views", expires=False))
            except CompactedError:  # a view that needs it begins again
                continue
        if sns:
            self._watcher = trace, trace.watch(sns[0])

    def release(self) -> None:
        """Give the versions back, once the views hold what they need."""
        for handle in self._handles:
            handle.close()
        if self._watcher is not None:
            trace, watcher = self._watcher
            trace.watchers.discard(watcher)
        self._handles, self._watcher, self.states = [], None, {}
