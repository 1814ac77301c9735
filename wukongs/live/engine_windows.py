"""EngineWindows: the windows of all registered queries of one engine, each read once a tick and written down once.

Queries with the same window share one `EngineWindow`. It holds what the window has at one time. If a compiled query
reads it, it also has a row in the table from which kernels lay out the parts of a plan (store/window_table.py). The
stored graph has a row there as well.

Only the thread that fires calls these methods, but for those of `now`, with the engine's lock held. It also runs the
compiled queries, so the table is never written while a kernel reads it. `leave` is for all threads: what nobody reads
any more is forgotten in `tidy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wukongs.csparql.algebra import StreamWindow
from wukongs.incremental.versions import Change
from wukongs.live.stream_state import StreamState
from wukongs.live.windows import Interval, interval
from wukongs.query.paths.reach import PathIndexes
from wukongs.query.plans.compiled import Windows, Workspace
from wukongs.query.programs.arena import Arena
from wukongs.store.arrangement import Arrangement
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.membership import Membership
from wukongs.store.trace import TraceEntry, Watcher
from wukongs.store.window_table import WindowTable

_NOTHING = Interval(0, 0, 0, 0)


@dataclass(slots=True, eq=False)
class EngineWindow:
    """A window of time over a stream, as it stands at at_ms. number: its row in the table, None: it has none yet;
    users: how many queries read it."""

    window: StreamWindow
    state: StreamState
    number: int | None = None
    users: int = 0
    at_ms: int | None = None
    span: Interval = _NOTHING
    batches: BatchSet = EMPTY
    _next: Interval = _NOTHING
    """Where it stands when it closes next, if that was foreseen."""

    def move(self, at_ms: int) -> Interval:
        """Stand at a time up to which everything is sealed; return what it holds then."""
        if at_ms != self.at_ms:
            self.at_ms, span, ring = at_ms, self._next, self.state.ring
            if not span.end_ms <= at_ms < span.end_ms + self.window.step_ms or span is _NOTHING:
                span = interval(self.window, self.state.batch_ms, at_ms)
            ring.close(span.to)
            self.span, self.batches = span, ring.window(span.after, span.to)
        return self.span

    def ahead(self) -> BatchSet | None:
        """Return what it has when it closes next, but for the last stream batch; None if that is not all that lacks."""
        if self.at_ms is None:
            return None
        self._next = span = interval(self.window, self.state.batch_ms, self.at_ms + self.window.step_ms)
        ring = self.state.ring
        return ring.window(span.after, span.to - 1) if ring.closed_to == span.to - 1 else None


@dataclass(slots=True, eq=False)
class StoredSince:
    """All that the stored graph was given since the firing before, for queries that fire with a step. number: its row
    in the table; sn, before: the snapshot numbers of this firing and of that one; entries: what was sealed in between,
    None if that is not known; watcher: has it kept; users: how many queries read it."""

    arrangement: Arrangement
    table: WindowTable
    number: int
    watcher: Watcher
    users: int = 0
    sn: int | None = None
    before: int | None = None
    entries: tuple[TraceEntry, ...] | None = None
    _largest: int = 0
    _reads: dict[int, BatchSet] = field(default_factory=dict)
    """The stored graph as it was read at the two firings, by their snapshot numbers."""
    _change: Change | None = None

    def move(self, sn: int) -> None:
        """Stand at the snapshot number of a firing."""
        if sn == self.sn:
            return
        self.before, self.sn, self.entries, self._change = self.sn, sn, None, None
        if self.before is not None and self.before < sn:
            self.entries = self.arrangement.trace.between(self.before, sn)
        batches = BatchSet.of(tuple([entry.batch for entry in self.entries or ()]), disjoint=True) or EMPTY
        if batches.count > self._largest:  # plans do not change whenever something has come or not
            self._largest = batches.count
            self.table.set(self.number, batches)
        else:
            self.table.foresee(self.number, batches)

    def read(self, sn: int) -> BatchSet:
        """Stand at the snapshot number of a firing that reads the whole stored graph; return that."""
        self.move(sn)
        known = self._reads.get(sn)
        if known is None:
            known = self.arrangement.trace.read(sn)
            self._reads = {one: read for one, read in self._reads.items() if one == self.before} | {sn: known}
        return known

    def read_again(self) -> None:
        """Read what is held again, so that batches that were merged are given back; nothing is held any more once the
        next change cannot be known."""
        trace = self.arrangement.trace
        if self.sn is not None and trace.between(self.sn, trace.upper) is None:
            self._reads = {}
        self._reads = {
            sn: trace.read(sn) if trace.readable_from(sn) == sn else read for sn, read in self._reads.items()
        }

    @property
    def change(self) -> Change | None:
        """The change since the firing before; None: it is not known."""
        if self._change is None and self.entries is not None and self.before in self._reads and self.sn in self._reads:
            self._change = Change.of(self._reads[self.before], self._reads[self.sn], self.entries)
        return self._change

    def has_come_after(self, sn: int, kinds: Iterable[tuple[int | None, int | None]]) -> bool:
        """Tell whether the entries have all triples of some predicates (None: any) and graphs that have come after a
        snapshot number, and none of those before."""
        if self.before is None or self.before > sn:
            return False
        earlier = [entry for entry in self.entries or () if entry.lower <= sn]
        return not any(entry.has_row(*kind) for entry in earlier for kind in kinds)

    def takes(self, kinds: Iterable[tuple[int | None, int]]) -> bool:
        """Tell whether triples of one of some predicates (None: any) and graphs were deleted, or may have been."""
        if self.entries is None:
            return True
        gone = [entry.tombstones for entry in self.entries if entry.tombstones is not None]
        return any(batch.has_row(*kind) for batch in gone for kind in kinds)


class EngineWindows:
    """arrangement: the stored graph; workspace, arena: the memory in which the thread that fires runs compiled queries
    and programs."""

    def __init__(self, arrangement: Arrangement) -> None:
        self.workspace = Workspace()
        self.arena = Arena()
        self.paths = PathIndexes()
        """The indexes of paths over the stored graph alone, as firings read it."""
        self._arrangement = arrangement
        self._table = WindowTable()
        self._stored = self._table.add()
        self._nothing = self._table.add()
        self._sn: int | None = None
        """The snapshot number at which the stored graph stands in the table."""
        now = WindowTable()
        self.now = Windows(now, now.add(), {})
        """The newest stored graph, in a table that one-shot queries alone read, with the engine's lock held."""
        self._known: dict[tuple[StreamState, int, int], EngineWindow] = {}
        self._memberships: dict[tuple[StreamState, int, int], Membership] = {}
        self._stored_since: dict[int, StoredSince] = {}

    def shared(self, window: StreamWindow, state: StreamState) -> EngineWindow:
        """Return the window that all queries share whose windows are equal to this one."""
        key = state, window.range_ms, window.step_ms
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = EngineWindow(window, state)
        found.users += 1
        return found

    def membership(self, state: StreamState, step_ms: int, predicate: int) -> Membership:
        """Return what knows the tuples of a predicate of a stream, for all queries that fire with a step."""
        key = state, step_ms, predicate
        found = self._memberships.get(key)
        if found is None:
            found = self._memberships[key] = Membership(predicate)
        found.users += 1
        return found

    def stored_since(self, step_ms: int) -> StoredSince:
        """Return what tells all queries that fire with a step what was stored since the firing before."""
        found = self._stored_since.get(step_ms)
        if found is None:
            found = StoredSince(self._arrangement, self._table, self._table.add(), self._arrangement.trace.watch())
            self._stored_since[step_ms] = found
        found.users += 1
        return found

    @staticmethod
    def leave(windows: Iterable[EngineWindow | Membership | StoredSince]) -> None:
        """Note that a query has gone. Called with the engine's lock held."""
        for window in windows:
            window.users -= 1

    def numbered(self, windows: Mapping[StreamWindow, EngineWindow], *, reads_stored: bool) -> Windows:
        """Return a query's windows by their rows in the table."""
        for window in windows.values():
            if window.number is None:
                window.number = self._table.add()
        numbers = {window: shared.number for window, shared in windows.items() if shared.number is not None}
        return Windows(self._table, self._stored if reads_stored else self._nothing, numbers)

    def write(self, windows: Iterable[EngineWindow], sn: int | None) -> None:
        """Write windows down as they stand, and the stored graph as of a snapshot number, if one is given."""
        for window in windows:
            if window.number is not None:
                self._table.set(window.number, window.batches)
        if sn is not None and sn != self._sn:
            self._table.set(self._stored, self._arrangement.trace.read(sn))
            self._sn = sn

    def write_now(self) -> None:
        """Write down the stored graph as of the newest snapshot."""
        trace = self._arrangement.trace
        self.now.table.set(self.now.stored, trace.read(trace.upper))

    def tidy_now(self) -> None:
        """Look at the newest stored graph again, if somebody has: batches that were merged go. For any thread, with the
        engine's lock held, as write_now."""
        if self.now.table.batches(self.now.stored).batches:
            self.write_now()

    def tidy(self) -> None:
        """Forget the windows that nobody reads, and look ahead again: batches that were merged go."""
        self.tidy_now()
        for key, window in list(self._known.items()):
            if not window.users:
                del self._known[key]
                if window.number is not None:
                    self._table.remove(window.number)
        for key in [key for key, membership in self._memberships.items() if not membership.users]:
            del self._memberships[key]
        for step_ms in [step_ms for step_ms, found in self._stored_since.items() if not found.users]:
            gone = self._stored_since.pop(step_ms)
            self._table.remove(gone.number)
            self._arrangement.trace.watchers.discard(gone.watcher)
        self.look_ahead()

    def look_ahead(self) -> None:
        """Write down what is there already of windows that close next, and of the stored graph: then only their last
        stream batch is left to write when they are read. Note the tuples that have waited for that."""
        for window in self._known.values():
            if window.number is not None and (ahead := window.ahead()) is not None:
                self._table.foresee(window.number, ahead)
        for membership in self._memberships.values():
            membership.note()
        for found in self._stored_since.values():
            found.watcher.sn = found.sn
            found.read_again()
        self._arrangement.trace.forget_sealed()
        if self._sn is not None and self._arrangement.trace.readable_from(self._sn) == self._sn:
            self._table.set(self._stored, self._arrangement.trace.read(self._sn))
