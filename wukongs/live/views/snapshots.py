"""Snapshots: the versions of the stored graph at which views stand, each with one handle that all of them share."""

from __future__ import annotations

from dataclasses import dataclass

from wukongs.incremental.divided import Share
from wukongs.live.core import Core
from wukongs.store.batch_set import BatchSet
from wukongs.store.trace import Handle, Watcher


@dataclass(slots=True, eq=False)
class Snapshot:
    """One version.

    sn: its number.
    stored: the graph; on a cluster, the share of this node.
    users: how many hold it.
    sealed_count: triples and tombstones that were sealed up to it, by the trace's count.
    passed_at_s: when a newer version was sealed first, by the engine's clock; None: it is the newest."""

    sn: int
    stored: BatchSet
    users: int
    handle: Handle
    sealed_count: int
    passed_at_s: float | None = None


class Snapshots:
    """Called with the engine's lock held."""

    def __init__(self, core: Core) -> None:
        self._trace = core.arrangement.trace
        self._core = core
        self._held: dict[int, Snapshot] = {}
        self._watcher: Watcher | None = None

    @property
    def sns(self) -> list[int]:
        """The numbers of all versions that are held, in order."""
        return sorted(self._held)

    def newest(self) -> Snapshot:
        """Hold the newest version; `release` gives it back."""
        return self.at(self._core.sn)

    def at(self, sn: int) -> Snapshot:
        """Hold a version that can be read, as newest() does. A view that stands there is not behind before something
        more is stored. Raises CompactedError."""
        found = self._held.get(sn)
        if found is None:
            handle = self._core.arrangement.open(sn, "live views", expires=False)
            stored = handle.read() if self._core.reach is None else Share.at(sn, handle.read())
            found = self._held[sn] = Snapshot(sn, stored, 0, handle, self._trace.sealed_count)
            if self._watcher is None:
                self._watcher = self._trace.watch(sn)
            self._watcher.sn = min(self._held)
        return self.hold(found)

    def note_newer(self) -> bool:
        """Note when the stored graph has moved beyond held versions; return whether some view at one of them may be
        behind by view_lag_max."""
        for snapshot in self._held.values():
            if snapshot.passed_at_s is None and self._trace.sealed_count > snapshot.sealed_count:
                snapshot.passed_at_s = self._core.now_s()
        return any(self.lag(snapshot, snapshot.passed_at_s) is not None for snapshot in self._held.values())

    def lag(self, snapshot: Snapshot, since_s: float | None) -> str | None:
        """Say how a view that stands at a version is behind by view_lag_max; None: it is not.

        since_s: when it was complete last, by the engine's clock; None: it is complete."""
        settings, count = self._core.settings, self._trace.sealed_count - snapshot.sealed_count
        if 0 < settings.view_lag_max_rows < count:
            return f"{count} rows behind, more than view_lag_max_rows = {settings.view_lag_max_rows}"
        lag_s = 0.0 if since_s is None else self._core.now_s() - since_s
        if count and 0 < settings.view_lag_max_s < lag_s:
            return f"{lag_s:.0f} s behind, more than view_lag_max_s = {settings.view_lag_max_s}"
        return None

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
