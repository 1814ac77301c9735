"""Snapshots: the versions of the stored graph at which views stand, each with one handle that all of them share."""

from __future__ import annotations

from dataclasses import dataclass

from wukongs.live.core import Core
from wukongs.store.batch_set import BatchSet
from wukongs.store.trace import Handle, Watcher


@dataclass(slots=True, eq=False)
class Snapshot:
    """One version. sn: its number; stored: the graph; users: how many hold it."""

    sn: int
    stored: BatchSet
    users: int
    handle: Handle


class Snapshots:
    """Called with the engine's lock held."""

    def __init__(self, core: Core) -> None:
        self._trace = core.arrangement.trace
        self._core = core
        self._held: dict[int, Snapshot] = {}
        self._watcher: Watcher | None = None

    def newest(self) -> Snapshot:
        """Hold the newest version; `release` gives it back."""
        sn = self._core.sn
        found = self._held.get(sn)
        if found is None:
            handle = self._core.arrangement.open(sn, "live views", expires=False)
            found = self._held[sn] = Snapshot(sn, handle.read(), 0, handle)
            if self._watcher is None:
                self._watcher = self._trace.watch(sn)
        return self.hold(found)

    def hold(self, snapshot: Snapshot) -> Snapshot:
        """Hold a version once more."""
        snapshot.users += 1
        return snapshot

    def release(self, snapshot: Snapshot) -> None:
        """Give a version back; merges may forget it once nobody holds it."""
        snapshot.users -= 1
        if snapshot.users:
            return
        snapshot.handle.close()
        del self._held[snapshot.sn]
        if self._watcher is None:
            return
        if self._held:
            self._watcher.sn = min(self._held)
            self._trace.forget_sealed()
        else:
            self._trace.watchers.discard(self._watcher)
            self._watcher = None
