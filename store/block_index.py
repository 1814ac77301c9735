"""BlockIndex: slices merged into aligned blocks of 2, 4, 8, ... stream batches: the paper's stream index (4.2).

Block (level, j) stands for the stream batches j * 2**level ... (j + 1) * 2**level - 1; a slice is a block of level 0.

A slice waits as the columns that came until it is read for the first time, or a merge begins with it, or idle time
builds it. So no tick pays for the slices of streams that nobody reads then (docs/decisions/0045-slices-wait.md).

Invariants:

* a block is complete once its last stream batch is closed. From then on it is built, or under way, or absent because
  all its stream batches are empty. It is its only child itself when the other child is empty;
* while a block is under way, its children are read in its place. They are complete as well, so nothing is missed;
* a block of an odd level is *folded* once its parent has been merged from it: its data are dropped and its name stays.
  From then on its own children are read in its place. So a tuple is held in its slice, in one block of each even level,
  and in one of the highest;
* a block is built at the latest when as many stream batches as it is long have closed after it. The blocks of a level
  end 2**level stream batches apart, so at most one of each level is under way;
* `levels` is such that a block of the highest level is at most half as long as the widest window: when it is due,
  windows will still contain it whole for as long as it took.

**A window of n stream batches is read through at most 5 * log2(n) batches** (n >= 2; n at most the width that is
indexed, so 2**levels <= n / 2). Take a batch of level l < levels that is read. There are three cases. Its parent sticks
out of the window: this is so for one batch of a level at each end. Its parent is under way: there is one such parent,
with two children. Its parent is folded: the block above that parent is built and sticks out of the window, so the
parent is the one batch of its odd level at its end, and is read as two of the level below. That makes 4 of a level, and
one more of every two levels for each end. (A window that reaches up to now takes 4.5 * log2(n), since nothing is folded
at its newer end.) At most 3 batches are of the highest level, since n < 4 * 2**levels.

Merges are fuelled. Each stream batch that closes pays a share of every merge under way: the work that is left, divided
by the stream batches that are left. The merge that is due first gets all the shares together. They add up to the work
that every deadline needs, and working in order of deadlines meets all deadlines that can be met. So nothing is left
over when one comes. Children are due before their parents, or with them and of a lower level, so they are there when
the parent is begun. With n_rows a stream batch, a closing pays for about WORK_PER_ROW * n_rows values a level, whatever
the length of the blocks.

Two kinds of blocks come late: blocks of slices that were kept before they were indexed (a query with a wider window
came), and folded blocks of the level that has become the highest (such a query went). They are all due after 2**levels
further stream batches. Until then, or until idle time has built them, windows read them in smaller pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from wukongs.store.batch import Batch, build_batch
from wukongs.store.dtypes import WINDOW_GRAPH, Int64Array
from wukongs.store.fuel import UNLIMITED_FUEL
from wukongs.store.merge import Merge

WORK_PER_ROW = 4
"""The most values that merging a row writes: a value on each side, and a vertex code for each."""
SLICE_BYTES_MAX = 48
SLICE_BYTES_PER_TUPLE_MAX = 161
"""A slice of n tuples takes at most the first and n times the second, if each has a directory row of its own."""
Key = tuple[int, int]
Timed = tuple[Int64Array, Int64Array, Int64Array, Int64Array]
"""Subjects, predicates, objects, times in ms: int64[n] each, in any order, repeats allowed."""


def level_count(batch_count: int) -> int:
    """Return how many levels of blocks are needed for windows of up to this many stream batches."""
    return max(0, batch_count.bit_length() - 2)


def copy_count(batch_count: int) -> int:
    """Return how often a tuple is held for windows of up to this many stream batches: in its slice and in blocks."""
    return 1 + (level_count(batch_count) + 1) // 2


def _children(level: int, j: int) -> tuple[Key, Key]:
    return (level - 1, 2 * j), (level - 1, 2 * j + 1)


@dataclass(slots=True, order=True)
class BlockUnderWay:
    """A complete block that is not built. deadline: the stream batch whose closing finds it built; rows: at most."""

    deadline: int
    level: int
    j: int
    rows: int = field(compare=False)
    work_left: int = field(compare=False)
    merge: Merge | None = field(compare=False, default=None)

    @property
    def key(self) -> Key:
        return self.level, self.j

    @property
    def children(self) -> tuple[Key, Key]:
        return _children(self.level, self.j)


class BlockIndex:
    """The blocks of one stream. The owner serialises the calls."""

    def __init__(self) -> None:
        self.levels = 0
        self.size_bytes = 0
        """Bytes of all slices and blocks, each once, the most that slices that wait will take, and the most that merges
        under way have to write."""
        self._closed_to: int | None = None
        self.widest = 0
        """How many stream batches the windows have, at most, for which blocks are kept; 0: there are none."""
        self._waiting: dict[int, Timed] = {}
        """The slices that are not built, in order."""
        self._blocks: dict[Key, Batch] = {}
        self._owned_bytes: dict[Key, int] = {}
        """The bytes of the blocks that are not their only child."""
        self._in_order: list[deque[int]] = [deque()]
        """Per level, the numbers j of its blocks, built or under way."""
        self._unpaired: list[deque[int]] = [deque()]
        """Per level, those of them whose parent is not complete."""
        self._under_way: dict[Key, BlockUnderWay] = {}
        self._folded: set[Key] = set()
        self._by_deadline: list[BlockUnderWay] = []
        """A heap; blocks that are no longer in _under_way are skipped."""
        self._work_left: dict[int, int] = {}
        """Deadline -> work of the blocks that are due then."""

    @property
    def slice_numbers(self) -> deque[int]:
        """The stream batches that are held, in order; not to be changed."""
        return self._in_order[0]

    def slice(self, number: int) -> Batch:
        """Return the slice of a stream batch that is held."""
        found = self.slice_if_held(number)
        assert found is not None, number
        return found

    def slice_if_held(self, number: int) -> Batch | None:
        """Return the slice of a stream batch, None if it has no tuples or was dropped."""
        return self._block((0, number))

    def put(self, number: int, tuples: Timed, built: Batch | None = None) -> None:
        """Add the slice of a stream batch, later than all before. The tuples, at least one, are kept as they are.
        built: the slice, if it is built already."""
        self._in_order[0].append(number)
        self._unpaired[0].append(number)
        if built is not None:
            self._build((0, number), built, is_owned=True)
            return
        self._waiting[number] = tuples
        self.size_bytes += bytes_at_most(len(tuples[0]))

    def _block(self, key: Key) -> Batch | None:
        """Return a block if it is there; a slice that waits is built."""
        if self._waits(key):
            self._build(key, build_slice(self._take_out(key[1])), is_owned=True)
        return self._blocks.get(key)

    def build_slices(self) -> None:
        """Build all slices that wait: size_bytes says what they take then."""
        for number in list(self._waiting):
            self._block((0, number))

    def _take_out(self, number: int) -> Timed:
        tuples = self._waiting.pop(number)
        self.size_bytes -= bytes_at_most(len(tuples[0]))
        return tuples

    def _waits(self, key: Key) -> bool:
        level, number = key
        return level == 0 and number in self._waiting

    def _row_count(self, key: Key) -> int:
        """Return how many tuples a block has, at most."""
        return len(self._waiting[key[1]][0]) if self._waits(key) else len(self._blocks[key])

    def close(self, number: int) -> None:
        """Note that stream batches up to `number` are closed: pay for merges, and begin those of complete blocks."""
        if self._closed_to is not None:
            before, self._closed_to = self._closed_to, number
            shares = [
                -(-work * (number - before) // (deadline - before))
                for deadline, work in self._work_left.items()
                if deadline > number
            ]
            self._run(sum(shares), number)
        self._closed_to = number
        for level in range(self.levels):
            self._complete(level, number, number)

    def index_windows(self, batch_count: int) -> bool:
        """Keep blocks for windows of up to this many stream batches, also of the slices that are held; drop longer
        blocks. Return whether that made a difference."""
        self.widest = batch_count
        levels = level_count(batch_count)
        if levels < self.levels:
            for level in range(levels + 1, self.levels + 1):
                for j in self._in_order[level]:
                    self._remove((level, j))
            del self._in_order[levels + 1 :], self._unpaired[levels + 1 :]
            for j in self._in_order[levels]:
                if (levels, j) in self._folded and self._closed_to is not None:
                    self._folded.remove((levels, j))
                    self._begin((levels, j), self._held_children(levels, j), self._closed_to)
        elif levels > self.levels:
            top = self.levels
            self._in_order += [deque() for _ in range(top, levels)]
            self._unpaired[top:] = [deque(self._in_order[top]), *(deque() for _ in range(top, levels))]
            if self._closed_to is not None:
                due = self._closed_to + (1 << levels)
                waiting = {found.key for found in self._by_deadline if self._under_way.get(found.key) is found}
                for key in sorted(self._under_way.keys() - waiting):  # given up when no window was as wide
                    del self._under_way[key]
                    self._begin(key, self._held_children(*key), due)
                for level in range(top, levels):
                    self._complete(level, self._closed_to, due)
        is_changed, self.levels = levels != self.levels, levels
        return is_changed

    def work(self, fuel: int) -> bool:
        """Build a slice that waits; with none, go on with merges before they are paid for. Return whether there is more
        to do."""
        if self._waiting:
            self._block((0, next(iter(self._waiting))))
        elif self._closed_to is not None:
            self._run(fuel, self._closed_to)
        return bool(self._waiting or self._by_deadline)

    def drop(self, to: int) -> int | None:
        """Drop the stream batches up to `to` and every block that begins with one; return the last that was held."""
        last = None
        for level, numbers in enumerate(self._in_order):
            while numbers and numbers[0] << level <= to:
                j = numbers.popleft()
                self._remove((level, j))
                last = j if level == 0 else last
            unpaired = self._unpaired[level]
            while unpaired and unpaired[0] << level <= to:
                unpaired.popleft()
        return last

    def cover(self, start: int, end: int) -> Iterator[Batch]:
        """Yield the batches that hold the stream batches start ... end - 1; nothing from `start` on was dropped."""
        numbers = self.slice_numbers
        if numbers:
            start, end = max(start, numbers[0]), min(end, numbers[-1] + 1)
        while numbers and start < end:
            level = 0
            while level < self.levels and start % (2 << level) == 0 and start + (2 << level) <= end:
                level += 1
            while (key := (level, start >> level)) in self._under_way or key in self._folded:
                level -= 1
            block = self._block(key)
            if block is not None:
                yield block
            start += 1 << level

    def _complete(self, level: int, closed_to: int, due: int) -> None:
        """Take up the parents of a level's blocks that are complete by now; they are due at `due` at the earliest."""
        unpaired = self._unpaired[level]
        while unpaired and ((unpaired[0] >> 1) + 1) << (level + 1) <= closed_to + 1:
            parent = unpaired[0] >> 1
            keys = []
            while unpaired and unpaired[0] >> 1 == parent:
                keys.append((level, unpaired.popleft()))
            self._in_order[level + 1].append(parent)
            self._unpaired[level + 1].append(parent)
            self._begin((level + 1, parent), keys, due)

    def _held_children(self, level: int, j: int) -> list[Key]:
        return [
            child
            for child in _children(level, j)
            if child in self._blocks or self._waits(child) or child in self._under_way
        ]

    def _begin(self, key: Key, children: list[Key], due: int) -> None:
        level, j = key
        if len(children) == 1 and (only := self._block(children[0])) is not None:
            self._build(key, only, is_owned=False)
            return
        deadline, rows = max(due, (j + 2) * (1 << level) - 1), 0
        for child in children:
            if child in self._under_way:
                deadline = max(deadline, self._under_way[child].deadline)
                rows += self._under_way[child].rows
            else:
                rows += self._row_count(child)
        found = BlockUnderWay(deadline, level, j, rows, WORK_PER_ROW * rows if len(children) > 1 else 0)
        self._under_way[key] = found
        heappush(self._by_deadline, found)
        self._work_left[deadline] = self._work_left.get(deadline, 0) + found.work_left

    def _run(self, fuel: int, due_to: int) -> None:
        """Work in order of deadlines as far as the fuel goes. Blocks that are due up to `due_to` are built in any
        case."""
        heap = self._by_deadline
        while heap and (fuel > 0 or heap[0].deadline <= due_to):
            found = heap[0]
            if self._under_way.get(found.key) is not found:
                heappop(heap)
            elif found.deadline <= due_to:
                self._move(found, UNLIMITED_FUEL)
            else:
                fuel -= self._move(found, fuel)

    def _move(self, found: BlockUnderWay, fuel: int) -> int:
        """Go on with the block that is due first, and put it in place if it is built by then; return the fuel used."""
        children = found.children
        assert self._closed_to is not None, found
        is_useless = found.j << found.level <= self._closed_to - self.widest  # no window will have it whole
        if is_useless or any(child in self._under_way for child in children):
            heappop(self._by_deadline)
            self._spend(found, found.work_left)
            self._stop(found)  # stays under way, for its children to be read in its place
            return 0
        older, newer = (self._block(child) for child in children)
        if older is None or newer is None:
            only = older or newer
            assert only is not None, found
            self._forget(found)
            self._build(found.key, only, is_owned=False)
            return 0
        if found.merge is None:
            found.merge = Merge(older, newer)
            self.size_bytes += older.size_bytes + newer.size_bytes
        used = fuel - found.merge.work(fuel)
        self._spend(found, used)
        merged = found.merge.result
        if merged is not None:
            self._forget(found)
            self._build(found.key, merged, is_owned=True)
            if found.level % 2 == 0:
                for child in children:
                    self._remove(child)
                    self._folded.add(child)
        return used

    def _spend(self, found: BlockUnderWay, work: int) -> None:
        work = min(work, found.work_left)
        if work:
            found.work_left -= work
            self._work_left[found.deadline] -= work
            if not self._work_left[found.deadline]:
                del self._work_left[found.deadline]

    def _stop(self, found: BlockUnderWay) -> None:
        if found.merge is not None:
            self.size_bytes -= found.merge.a.size_bytes + found.merge.b.size_bytes
            found.merge = None

    def _forget(self, found: BlockUnderWay) -> None:
        del self._under_way[found.key]
        self._spend(found, found.work_left)
        self._stop(found)

    def _build(self, key: Key, batch: Batch, is_owned: bool) -> None:
        self._blocks[key] = batch
        if is_owned:
            self._owned_bytes[key] = batch.size_bytes
            self.size_bytes += batch.size_bytes

    def _remove(self, key: Key) -> None:
        found = self._under_way.get(key)
        if found is not None:
            self._forget(found)
        elif key in self._folded:
            self._folded.remove(key)
        elif self._waits(key):
            self._take_out(key[1])
        else:
            del self._blocks[key]
            self.size_bytes -= self._owned_bytes.pop(key, 0)


def build_slice(tuples: Timed) -> Batch:
    """Return the slice of some tuples."""
    return build_batch(np.full(len(tuples[0]), WINDOW_GRAPH, np.int64), *tuples)


def bytes_at_most(count: int) -> int:
    """Return how many bytes the slice of so many tuples takes at most."""
    return SLICE_BYTES_MAX + SLICE_BYTES_PER_TUPLE_MAX * count
