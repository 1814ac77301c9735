"""Trace: the stored graph as a list of immutable batches over contiguous snapshot numbers (shared arrangements, 4.1).

Invariants:

* entries are in SN order and do not overlap; between them, and up to `upper`, nothing was stored;
* no triple is seen in two entries: newness is decided before a batch is sealed; deletions are tombstones in the second
  batch of their entry (store/tombstones.py);
* a read at SN s needs every entry to lie wholly at or before s, or wholly after it. So an entry that was merged over a
  boundary can no longer be read at that boundary. No merge takes a boundary away that an open handle stands on.

Merges are geometric: neighbours merge when the older is at most 1.5 times as large as the newer, older pairs first.
They are fuelled: each sealed row pays fuel_per_row to every merge under way, and no part of a merge is done without
fuel, so no insert waits for a large one. Sealed rows can be read at once: the seal only notes its debt. `pay` pays the
debt, in pieces if wished; the next seal pays the rest before it adds its entry. So right after a seal there is one
entry more than if every seal had paid itself, and never more than that.

*There are O(log n) entries with any positive fuel_per_row f.* A merged row costs at most c = 6 units (two values, at
most two codes, and fences; 3 to 4.5 as a rule), so at most m * c / f rows are sealed while a merge of m rows is under
way. Take the entries as groups: two entries that merge, or one that does not. Let S be the rows of a group and of all
groups behind it. At most m * c / f rows lie behind a merging group of m rows, so S falls by a factor of 1 + f / c
there. An idle entry has come out of a merge itself, or it is more than 1.5 times as large as the idle entry behind it,
or, if a merging group is behind it, more than 1.5 times as large as the older half of that group was when it was begun.
So every two groups take S down by a constant factor. The exception is a seal that is larger than the idle entries
before it: these go into it in one merge after the other.

*How much fuel is enough.* The total work does not depend on f, since each row is merged about log2(n / rows of a seal)
times at any pace. Only the number of merges under way depends on it, in proportion to c / f. With f = c every level
merges all the time. With f = 2 * c, FUEL_PER_ROW, a merge of m rows has ended before m / 2 more are sealed, in the
worst case too; a level idles half of the time, so that reads find fewer batches. bench/experiments/fuel has the
figures.

*When all is quiet*, merges go on though nobody owes anything (`merge_further`), and neighbours merge at other sizes:
the older may be QUIET_RATIO times as large as the newer. Such a merge copies at most QUIET_RATIO + 1 rows for each of
the newer entry, and all but the largest entries become one or two.

*Tombstones* count as rows: in seals, in merges and in the sizes that are compared. A row of a merge with tombstones is
copied once, if the other entry may cancel it, and is then merged if it is left. That is at most 2 * c units, so such a
merge is paid twice as much, and is under way for as many sealed rows as another. Rows that cancel make S smaller, and
the outcome of a merge is compared with both neighbours again. So there are O(log n) entries, where n counts the
additions and tombstones ever sealed.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from wukongs.errors import CompactedError
from wukongs.store.batch import VALUES_MAX, Batch, with_key_filter
from wukongs.store.batch_set import BatchSet
from wukongs.store.fuel import UNLIMITED_FUEL
from wukongs.store.merge import Merge
from wukongs.store.tombstones import Difference, DifferenceMerge

FUEL_PER_ROW = 12
NOTHING_KEPT = 1 << 63
SEALED_ROWS_MAX = 1 << 18
"""So many of the triples and tombstones that were sealed last are kept as they were sealed."""
DIFFERENCE_COST = 2
"""A row of a merge with tombstones costs so many times what a row of another does: copied once, then merged."""
FUEL_MIN = 4096
"""The least that a seal of few rows pays, so that small merges are not cut into calls that cost more than their
work."""
QUIET_RATIO = 8
QUIET_ROWS_MAX = 1 << 22
"""Merges that only quiet time begins have no larger results: until they end, their rows are there twice."""


@dataclass(slots=True, eq=False)
class TraceEntry:
    """A batch with the SNs of its oldest and newest triples: [lower, upper); tombstones: the triples of older entries
    that were deleted at these SNs, or None."""

    batch: Batch
    lower: int
    upper: int
    merging: bool = False
    tombstones: Batch | None = None
    size: int = field(init=False)
    """Triples and tombstones: each seal compares that of all entries."""

    def __post_init__(self) -> None:
        self.size = len(self.batch) + (len(self.tombstones) if self.tombstones is not None else 0)

    def __len__(self) -> int:
        return self.size

    def has_row(self, predicate: int | None, graph: int | None) -> bool:
        """Return whether it has a triple or a tombstone of a graph (None: of any) with a predicate (None: any)."""
        return any(batch is not None and batch.has_row(predicate, graph) for batch in (self.batch, self.tombstones))


@dataclass(slots=True, eq=False)
class Watcher:
    """One who asks what was sealed `between` two SNs.

    sn: nothing at or before this SN is asked for any more; None: nothing was asked for yet."""

    sn: int | None = None


@dataclass(slots=True, eq=False)
class MergeUnderWay:
    older: TraceEntry
    newer: TraceEntry
    merge: Merge | DifferenceMerge


class Handle:
    """A reader's lease on a trace at one SN, with an owner and an age; a context manager."""

    def __init__(self, trace: Trace, sn: int, owner: str, expires: bool = True, age_max_s: float = math.inf) -> None:
        self._trace = trace
        self.sn = sn
        self.owner = owner
        self.expires = expires
        self.age_max_s = age_max_s
        self.opened_at_s = time.monotonic()
        self.is_open = True

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.opened_at_s

    def read(self) -> BatchSet:
        """Return the batches of this handle's SN. Raises CompactedError once the handle is closed or revoked."""
        if not self.is_open:
            raise CompactedError(
                f"the handle of {self.owner} at SN {self.sn} is no longer open (closed, or past its maximum age): "
                "open a new one"
            )
        return self._trace.read(self.sn)

    def read_with(self, change: Difference) -> BatchSet:
        """Return the batches of read and, on top, a change that is not sealed: see Trace.read_with."""
        self.read()
        return self._trace.read_with(self.sn, change)

    def close(self) -> None:
        """Give the lease back; closing twice is allowed."""
        if self.is_open:
            self.is_open = False
            self._trace.release(self)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Trace:
    """One writer seals and merges; readers open handles. The owner serialises all calls, also of handles (one lock);
    not those of `work_apart`.

    fuel_per_row: values that each merge under way is moved on by for each row sealed, DIFFERENCE_COST times as many if
    there are tombstones in it; 0: only `work` merges.
    """

    def __init__(self, name: str, fuel_per_row: int = FUEL_PER_ROW) -> None:
        self.name = name
        self.upper = 0
        self.sealed_count = 0
        """Triples and tombstones sealed so far: of two moments, the difference is what was sealed between."""
        self._fuel_per_row = fuel_per_row
        self._entries: list[TraceEntry] = []
        self._merges: list[MergeUnderWay] = []
        self._working = threading.Lock()
        """Held by whoever moves merges on. Taken after the owner's lock, if both are."""
        self._handles: set[Handle] = set()
        self._kept_from = NOTHING_KEPT
        self._owed = 0
        """Fuel that the newest seal has still to pay to each merge under way."""
        self._newest: BatchSet | None = None
        self.watchers = set[Watcher]()
        """Entries are kept as sealed while there are some."""
        self._sealed: deque[TraceEntry] = deque()
        self._sealed_rows = 0
        self._sealed_from = 0
        """From this SN on they are all there."""

    def __len__(self) -> int:
        """The triples that are seen at the newest SN."""
        return sum(2 * len(entry.batch) - len(entry) for entry in self._entries)

    @property
    def tombstone_count(self) -> int:
        return sum(len(entry) - len(entry.batch) for entry in self._entries)

    @property
    def batch_count(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        batches = (batch for entry in self._entries for batch in (entry.batch, entry.tombstones))
        return sum(batch.size_bytes for batch in batches if batch is not None)

    @property
    def merging_count(self) -> int:
        """The triples and tombstones of all merges under way: until one ends, what it has written exists twice."""
        return sum(len(under_way.older) + len(under_way.newer) for under_way in self._merges)

    @property
    def since(self) -> int:
        """From this SN on every read is exact."""
        return max((entry.upper - 1 for entry in self._entries if entry.upper - 1 > entry.lower), default=0)

    def readable_from(self, sn: int) -> int:
        """Return the first SN at or after one that merging has not forgotten."""
        return max((one.upper - 1 for one in self._entries if one.lower <= sn < one.upper - 1), default=sn)

    def handles(self) -> Iterator[Handle]:
        """The open handles, oldest first."""
        yield from sorted(self._handles, key=lambda handle: handle.opened_at_s)

    def batches_from(self, sn: int) -> list[Batch]:
        """Return the batches with triples sealed at or after an SN; merging may have put earlier ones beside them."""
        return [entry.batch for entry in self._entries if entry.upper > sn]

    def has_deleted_from(self, sn: int) -> bool:
        """Tell whether triples were deleted at or after an SN. Earlier deletions may count, if merging has put them
        beside it."""
        return any(entry.tombstones is not None for entry in self._entries if entry.upper > sn)

    def seal(
        self,
        sn: int,
        batch: Batch,
        tombstones: Batch | None = None,
        fuel: int | None = None,
        first_sn: int | None = None,
    ) -> None:
        """Make a batch of new triples the content of SN sn, which must be at or after `upper`; note the fuel that it
        owes.

        tombstones: triples that are seen up to now, and from this SN on no more; none of them is in the batch.
        fuel: the debt, if it is another than the batch's own; for a writer that pays by calls of `work`.
        first_sn: the batch has come at this SN and on, and what lies between the two cannot be read any more.
        """
        first_sn = sn if first_sn is None else first_sn
        assert sn >= first_sn >= self.upper, (sn, first_sn, self.upper)
        self.pay()
        # All that may find no memory comes first: an error leaves the trace as it was.
        gone = with_key_filter(tombstones) if tombstones is not None and len(tombstones) else None
        entry = TraceEntry(with_key_filter(batch), first_sn, sn + 1, tombstones=gone)
        before, newest = self._newest, None
        if len(entry) and before is not None and not before.tombstones and entry.tombstones is None:
            newest = before.and_then(entry.batch, disjoint=True)
        self.upper = sn + 1
        if len(entry):
            assert self._entries or entry.tombstones is None, "nothing is stored that could be deleted"
            self._newest = newest
            self.sealed_count += len(entry)
            self._entries.append(entry)
            self._keep_as_sealed(entry)
            self._start_merges()
            self._owed = self.owed(len(entry)) if fuel is None else fuel

    def pay(self, fuel: int = UNLIMITED_FUEL) -> bool:
        """Pay the newest seal's debt, at most `fuel` to each merge under way; return whether more is owed."""
        paid = min(fuel, self._owed)
        self._owed -= paid
        if paid:
            self.work(paid)
        if not self._merges:
            self._owed = 0
        return self._owed > 0

    def merge_further(self, fuel: int) -> bool:
        """Move each merge under way on by `fuel`, though nobody owes it; with none, begin the newest that quiet time
        allows. Return whether there is more to do."""
        self.work(fuel)
        if any(under_way.merge.result is None for under_way in self._merges):
            return True
        for older, newer in reversed(self._pairs()):
            is_small = older.size <= QUIET_RATIO * newer.size and older.size + newer.size <= QUIET_ROWS_MAX
            if is_small and self._may_merge(older, newer):
                self._start(older, newer)
                return True
        return False

    def owed(self, row_count: int) -> int:
        """Return the fuel by which a seal of so many triples and tombstones pays for its merges."""
        return max(FUEL_MIN, self._fuel_per_row * row_count)

    def is_merging(self) -> bool:
        """Tell whether merges are under way."""
        return bool(self._merges)

    def entries(self) -> tuple[TraceEntry, ...]:
        """The entries as they are now, oldest first. A checkpoint writes them."""
        return tuple(self._entries)

    def touches(self, after_sn: int, predicate: int | None, graph: int | None) -> bool:
        """Return whether a triple of a graph (None: of any), with a predicate (None: any), may have been inserted or
        deleted behind an SN."""
        if after_sn + 1 >= self._sealed_from:
            sealed = takewhile(lambda entry: entry.upper > after_sn + 1, reversed(self._sealed))
            return any(entry.has_row(predicate, graph) for entry in sealed)
        behind = takewhile(lambda entry: entry.upper > after_sn + 1, reversed(self._entries))
        # An entry that was merged over the SN may have had triples that came before it and have gone since.
        return any(entry.lower <= after_sn or entry.has_row(predicate, graph) for entry in behind)

    def between(self, after_sn: int, sn: int) -> tuple[TraceEntry, ...] | None:
        """Return what was sealed at the SNs after_sn < s <= sn, in order, whatever was merged since; None if it is not
        kept: nobody watched, or it was much."""
        if after_sn + 1 < self._sealed_from:
            return None
        return tuple([entry for entry in self._sealed if after_sn < entry.lower <= sn])

    def merged_between(self, after_sn: int, sn: int) -> tuple[TraceEntry, ...]:
        """Return the entries of the SNs after_sn < s <= sn as they are merged by now. Raises CompactedError if merging
        has forgotten one of the two."""
        for one in (after_sn, sn):
            self._parts(one)
        return tuple([entry for entry in self._entries if after_sn < entry.lower and entry.upper <= sn + 1])

    def _keep_as_sealed(self, entry: TraceEntry) -> None:
        self._sealed.append(TraceEntry(entry.batch, entry.lower, entry.upper, tombstones=entry.tombstones))
        self._sealed_rows += len(entry)
        while self._sealed and (not self.watchers or self._sealed_rows > SEALED_ROWS_MAX):
            gone = self._sealed.popleft()
            self._sealed_rows -= len(gone)
            self._sealed_from = gone.upper

    def watch(self, sn: int | None = None) -> Watcher:
        """Add a watcher; `watchers.discard` removes it. sn: as the watcher has it."""
        watcher = Watcher(sn)
        self.watchers.add(watcher)
        return watcher

    def forget_sealed(self) -> None:
        """Forget what was sealed up to the SNs of all watchers."""
        to_sn = min((one.sn for one in self.watchers if one.sn is not None), default=-1)
        while self._sealed and self._sealed[0].upper <= to_sn + 1:
            gone = self._sealed.popleft()
            self._sealed_rows -= len(gone)
            self._sealed_from = gone.upper

    def restore(self, entries: Iterable[TraceEntry], upper: int) -> None:
        """Take the entries and the `upper` that another trace had; this one is still empty."""
        assert not self._entries, self.upper
        assert upper >= self.upper, (upper, self.upper)
        self._entries = list(entries)
        self.upper = self._sealed_from = upper
        self._newest = None

    def advance(self, upper: int) -> None:
        """Note that nothing more will be stored before SN `upper`."""
        self.upper = max(self.upper, upper)

    def open(self, sn: int, owner: str, expires: bool = True, age_max_s: float = math.inf) -> Handle:
        """Open a handle at an SN below `upper`. expires: whether `revoke` may take it; age_max_s: its own limit.

        Raises CompactedError if merging has forgotten the SN."""
        self.read(sn)
        handle = Handle(self, sn, owner, expires, age_max_s)
        self._handles.add(handle)
        return handle

    def keep_from(self, sn: int) -> None:
        """Keep every SN from this one on readable, besides those of open handles: an entry for each. It never falls."""
        self._kept_from = sn if self._kept_from == NOTHING_KEPT else max(sn, self._kept_from)

    def release(self, handle: Handle) -> None:
        """Forget a handle; merges that waited for it go on with the next seal."""
        self._handles.discard(handle)

    def revoke(self, age_max_s: float) -> int:
        """Close the handles that expire and are older; their next read raises CompactedError. Return how many."""
        old = [handle for handle in self._handles if handle.expires and handle.age_s > min(age_max_s, handle.age_max_s)]
        for handle in old:
            handle.close()
        return len(old)

    def read(self, sn: int) -> BatchSet:
        """Return the batches that hold the graph as of an SN. Raises CompactedError if merging has forgotten it."""
        is_newest = not self._entries or sn + 1 >= self._entries[-1].upper
        if is_newest and self._newest is not None:
            return self._newest
        batches, tombstones = self._parts(sn)
        found = BatchSet.of(tuple(batches), disjoint=True, tombstones=tombstones)
        if is_newest:
            self._newest = found
        return found

    def _parts(self, sn: int) -> tuple[list[Batch], list[Batch | None]]:
        """Return the batches of an SN, and what was deleted together with each. Raises as read."""
        batches: list[Batch] = []
        tombstones: list[Batch | None] = []
        for entry in self._entries:
            if entry.upper <= sn + 1:
                batches.append(entry.batch)
                tombstones.append(entry.tombstones)
            elif entry.lower <= sn:
                raise CompactedError(
                    f"cannot read '{self.name}' at SN {sn}: compacted up to SN {entry.upper - 1}. "
                    f"Read at SN >= {self.since}, or open the handle earlier to hold it."
                )
        return batches, tombstones

    def read_with(self, sn: int, change: Difference) -> BatchSet:
        """Return the same as `read` would if an unsealed change had followed on an SN. Raises as read."""
        batches, tombstones = self._parts(sn)
        return BatchSet.of((*batches, change.additions), disjoint=True, tombstones=[*tombstones, change.tombstones])

    def work(self, fuel: int) -> None:
        """Move every merge under way on by `fuel`, and put the finished ones in place."""
        self.work_apart(fuel)
        self.put_in_place()

    def work_apart(self, fuel: int) -> None:
        """Move every merge under way on by `fuel`. The one method that may be called without the owner's lock: readers
        and the writer see nothing of it before `put_in_place`. Raises the error of a merge that fails once all others
        have been moved on; it begins anew with the next call."""
        failed: Exception | None = None
        with self._working:
            for under_way in list(self._merges):
                is_double = isinstance(under_way.merge, DifferenceMerge)
                try:
                    under_way.merge.work(fuel * (DIFFERENCE_COST if is_double else 1))
                except Exception as error:
                    failed = failed or error
        if failed is not None:
            raise failed

    def put_in_place(self) -> bool:
        """Let the outcomes of finished merges take the place of the entries that they were made of. Return whether
        there were any."""
        is_changed = False
        for under_way in list(self._merges):
            result = under_way.merge.result
            if result is not None and not self._is_held_open(under_way.older, under_way.newer):
                self._replace(under_way, result)
                is_changed = True
        return is_changed

    def merge_all(self) -> None:
        """Merge as far as open handles allow: to one batch if there are none. Takes as long as it takes."""
        while True:
            for held in [m for m in self._merges if self._is_held_open(m.older, m.newer)]:
                held.older.merging = held.newer.merging = False
                self._merges.remove(held)  # it would keep both from their other neighbours
            count = self.batch_count
            self.work(UNLIMITED_FUEL)
            pair = next((pair for pair in self._pairs() if self._may_merge(*pair)), None)
            if pair is not None:
                self._start(*pair)
            elif self.batch_count == count:
                return  # else a merge that has ended may have started another

    def _pairs(self) -> list[tuple[TraceEntry, TraceEntry]]:
        return list(zip(self._entries, self._entries[1:], strict=False))

    def _may_merge(self, older: TraceEntry, newer: TraceEntry) -> bool:
        is_too_large = len(older) + len(newer) > VALUES_MAX
        return not (older.merging or newer.merging or is_too_large or self._is_held_open(older, newer))

    def _is_held_open(self, older: TraceEntry, newer: TraceEntry) -> bool:
        """Tell whether an open handle reads the older entry without the newer, or somebody may open one that does."""
        return newer.upper - 1 > self._kept_from or any(
            older.upper - 1 <= handle.sn < newer.upper - 1 for handle in self._handles
        )

    def _start_merges(self) -> None:
        for older, newer in self._pairs():
            if 2 * older.size <= 3 * newer.size and self._may_merge(older, newer):
                self._start(older, newer)

    def _start(self, older: TraceEntry, newer: TraceEntry) -> None:
        merge = (
            Merge(older.batch, newer.batch)
            if older.tombstones is None and newer.tombstones is None
            else DifferenceMerge(Difference(older.batch, older.tombstones), Difference(newer.batch, newer.tombstones))
        )
        self._merges.append(MergeUnderWay(older, newer, merge))
        older.merging = newer.merging = True

    def _replace(self, under_way: MergeUnderWay, result: Batch | Difference) -> None:
        at = self._entries.index(under_way.older)
        merged, tombstones = result if isinstance(result, Difference) else (result, None)
        assert at > 0 or tombstones is None, f"{tombstones and len(tombstones)} tombstones in the oldest entry"
        merged_entry = TraceEntry(merged, under_way.older.lower, under_way.newer.upper, tombstones=tombstones)
        self._entries[at : at + 2] = [merged_entry]
        self._merges.remove(under_way)
        self._newest = None
        self._start_merges()
