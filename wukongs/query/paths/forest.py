"""Forest: all walks of one path from some origins, kept while the graph changes (forest_kernels.py).

A change costs the entries that have it on the way to their roots, and those that it lets in, whatever the graph's size:

1. *Mark.* Entries whose link to the parent has gone are marked, and so are all below them in their trees.
2. *Adopt.* A marked entry to which a link leads from one that stands gets this for its parent, and stands, too; then
   those that it leads to do. By that order no walk rests on itself.
3. *Take out* those that are still marked.
4. *Add* those that links which have come lead to, and all behind them.

So a link that goes costs nothing if no entry has come by it, however many circles it is on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from wukongs.csparql.algebra import GraphRef
from wukongs.csparql.automaton import Automaton
from wukongs.query.limits import Limits
from wukongs.query.paths import forest_kernels as kernels
from wukongs.query.paths import path_layout as layout
from wukongs.query.paths.forest_kernels import Trees
from wukongs.query.paths.path_layout import Machine, PathSource
from wukongs.query.paths.path_machine import pair_machines, reversed_links, source_of
from wukongs.query.paths.path_search import EDGES_PER_CALL, SPANS
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_layout import SPAN_WIDTH
from wukongs.query.rows import distinct_rows, numbered
from wukongs.store.dtypes import Int32Array, Int64Array

ENTRIES_FIRST = 1024
SPARSE_FACTOR = 8
_ENTRY_BYTES = 8 + 4 * (kernels.ENTRY_WIDTH + 3)
"""The bytes of an entry with its slots and its place in the queue."""

_Moved = tuple[Int64Array, Int64Array, Int64Array, int]
"""The origins' numbers, states and nodes of entries, and what each counts for."""
Triples = tuple[Int64Array, Int64Array, Int64Array]
"""Subjects, predicates, objects: int64[n] each."""


class Pairs(NamedTuple):
    """Pairs that were inserted (+1) and deleted (-1): the origin, the node that it leads to, the weight; int64[n]
    each."""

    origins: Int64Array
    nodes: Int64Array
    weights: Int64Array

    def take(self, rows: Int64Array) -> Pairs:
        return Pairs(*(column[rows] for column in self))


def no_triples() -> Triples:
    none = np.empty(0, np.int64)
    return none, none, none


def no_pairs() -> Pairs:
    return Pairs(*(np.empty(0, np.int64) for _ in Pairs._fields))


class ForestExceeded(Exception):
    """A forest would take more memory or work than it may: to search is better."""


class Ways(NamedTuple):
    """The links of a path in one dataset, along the path and back."""

    along: tuple[PathSource, Machine]
    back: tuple[PathSource, Machine]

    @staticmethod
    def of(found: Automaton, graph: GraphRef, dataset: Dataset) -> Ways:
        links, machines = found.links(), pair_machines(found, dataset)
        back = source_of(reversed_links(links), graph, dataset), machines[1]
        return Ways((source_of(links, graph, dataset), machines[0]), back)


class Forest:
    """found: the automaton of the path, from its origins on; bytes_max: as much it may take. After ForestExceeded, or
    an error, it is worth nothing."""

    def __init__(self, found: Automaton, bytes_max: int) -> None:
        self._accepting = np.array(found.accepting, np.bool_)
        self._bytes_max = bytes_max
        self._trees = _empty(ENTRIES_FIRST)
        self._spans = np.empty((SPANS, SPAN_WIDTH), np.int64)
        self._numbers: dict[int, int] = {}
        self._origins = np.empty(0, np.int64)
        self._free: list[int] = []
        """Numbers that no origin has any more."""
        self.looked_at = 0
        """Triples, and entries, that were looked at so far."""
        self._looked_at_max: int | None = None

    def __len__(self) -> int:
        return int(self._trees.control[kernels.COUNT])

    @property
    def is_sparse(self) -> bool:
        """Whether most of its room is for walks that have gone: to make it anew is better."""
        used = int(self._trees.control[kernels.USED])
        return used > SPARSE_FACTOR * max(len(self), ENTRIES_FIRST)

    @property
    def origin_count(self) -> int:
        return len(self._numbers)

    @property
    def size_bytes(self) -> int:
        return sum(array.nbytes for array in self._trees) + 100 * len(self._numbers)

    def missing(self, nodes: Iterable[int]) -> list[int]:
        """Return those of some distinct nodes that are no origins."""
        return [node for node in nodes if node not in self._numbers]

    def plant(self, nodes: list[int], ways: Callable[[], Ways], limits: Limits) -> Pairs:
        """Add distinct nodes that are no origins yet; return the pairs that they begin. Raises ForestExceeded, and
        as Limits.check.

        ways: the links in the graph as it is now, asked for if there is any. Cost: that of a search from each."""
        if not nodes:
            return no_pairs()
        more = len(nodes) - len(self._free)
        if more > 0:
            first = len(self._origins)
            self._origins = np.concatenate((self._origins, np.empty(more, np.int64)))
            self._free += range(first, first + more)
        numbers = [self._free.pop() for _ in nodes]
        self._numbers.update(zip(nodes, numbers, strict=True))
        rows, found = np.array(nodes, np.int64), np.array(numbers, np.int64)
        self._origins[found] = rows
        self._begin()
        self._run(lambda: kernels.add_roots(self._trees, rows, found), limits)
        self._spread(ways(), limits)
        return self._pairs([self._moved(self._queued(), 1)])

    def change(
        self, gone: Triples, come: Triples, ways: Callable[[], Ways], limits: Limits, looked_at_max: int
    ) -> Pairs:
        """Follow a change of the graph; return the pairs that it has inserted and deleted. gone: triples that it may
        have lost; come: those that it has and may not have had; ways: as plant; looked_at_max: so many triples may be
        looked at. Raises as plant."""
        moved = list[_Moved]()
        if not len(gone[0]) + len(come[0]):
            return no_pairs()
        self._looked_at_max = self.looked_at + looked_at_max
        found = ways()
        (source, machine), (source_back, machine_back) = found
        control = self._trees.control
        if len(gone[0]):
            self._begin()
            self._run(lambda: kernels.mark_behind(source, machine, self._trees, *gone), limits)
            self._follow(found, kernels.MARKS, limits)
        if len(gone[0]) and control[kernels.TAIL]:
            marked = int(control[kernels.TAIL])
            restored = np.empty(marked, np.int32)
            self._begin()
            control[kernels.HEAD] = marked
            self._run(lambda: kernels.adopt(source_back, machine_back, self._trees, restored, self._spans), limits)
            control[kernels.HEAD] = 0
            self._follow(found, kernels.ADOPTS, limits, restored)
            control[kernels.HEAD] = marked
            queued = self._trees.queue[:marked]
            moved.append(self._moved(queued[self._trees.entries[queued, kernels.MARK] == 1], -1))
            kernels.take_out_marked(self._trees)
        if len(come[0]):
            self._begin()
            self._run(lambda: kernels.add_behind(source, machine, self._trees, *come), limits)
            self._spread(found, limits)
            moved.append(self._moved(self._queued(), 1))
        self._looked_at_max = None
        return self._pairs(moved)

    def _queued(self) -> Int32Array:
        return self._trees.queue[: self._trees.control[kernels.TAIL]]

    def _moved(self, entries: Int32Array, weight: int) -> _Moved:
        """Return what some entries stand for, but for those at which no walk may end."""
        rows = self._trees.entries[entries]
        places = np.flatnonzero(self._accepting[rows[:, kernels.STATE]])
        numbers, states = rows[places, kernels.ORIGIN], rows[places, kernels.STATE]
        return numbers.astype(np.int64), states.astype(np.int64), self._trees.nodes[entries[places]], weight

    def _pairs(self, moved: list[_Moved]) -> Pairs:
        """Return the pairs that entries have inserted (+1) and deleted (-1): a pair is there as long as one of its
        entries is. Cost: a look at each of these."""
        none = np.empty(0, np.int64)
        numbers, nodes = (np.concatenate((none, *(one[at] for one in moved))) for at in (0, 2))
        weights = np.concatenate((none, *(np.full(len(one[0]), one[3], np.int64) for one in moved)))
        if not len(weights):
            return no_pairs()
        places, firsts = numbered((numbers, nodes), len(numbers))
        more = np.bincount(places, weights, len(firsts)).astype(np.int64)
        numbers, nodes = numbers[firsts], nodes[firsts]
        now = np.zeros(len(nodes), np.int64)
        kernels.count_ends(self._trees, self._accepting, numbers, nodes, now)
        found = Pairs(self._origins[numbers], nodes, (now > 0).astype(np.int64) - (now - more > 0))
        return found.take(np.flatnonzero(found.weights))

    def fell(self, nodes: Iterable[int]) -> None:
        """Let nodes be no origins any more. Cost: a look at each entry."""
        leaves = np.zeros(len(self._origins), np.bool_)
        for node in nodes:
            number = self._numbers.pop(node)
            self._free.append(number)
            leaves[number] = True
        kernels.take_out_trees(self._trees, leaves)

    def origins(self) -> set[int]:
        return set(self._numbers)

    def ends(self, nodes: Iterable[int] | None, limits: Limits, with_own: bool = True) -> tuple[Int64Array, Int64Array]:
        """Return (origin, node) for each node that an origin leads to, once. nodes: the origins asked for, None: all;
        with_own: also those that lead from a node to itself. int64[n], int64[n]

        Cost: a look at each entry."""
        wanted = np.full(len(self._origins), nodes is None, np.bool_)
        if nodes is not None:
            wanted[[self._numbers[node] for node in nodes]] = True
        limits.hold(16 * len(self))
        starts, ends = np.empty(len(self), np.int64), np.empty(len(self), np.int64)
        m = int(kernels.write_ends(self._trees, self._accepting, wanted, self._origins, with_own, starts, ends))
        starts, ends = starts[:m], ends[:m]
        if self._accepting.sum() > 1:
            starts, ends = (np.ascontiguousarray(column) for column in distinct_rows(starts, ends).T)
        limits.check_rows(len(starts), "Bind one of the path's ends")
        return starts, ends

    def _begin(self) -> None:
        """Begin a round with an empty queue."""
        self._trees.control[[kernels.HEAD, kernels.TAIL, kernels.AT]] = 0

    def _spread(self, ways: Ways, limits: Limits) -> None:
        """Add all that the queued entries lead to."""
        self._follow(ways, kernels.ADDS, limits)

    def _follow(self, ways: Ways, what: int, limits: Limits, queue: np.ndarray | None = None) -> None:
        source, machine = ways.along

        def kernel() -> int:
            entries = self._trees.queue if queue is None else queue
            return int(kernels.follow_queue(source, machine, self._trees, entries, self._spans, what))

        self._run(kernel, limits)

    def _run(self, kernel: Callable[[], int], limits: Limits) -> None:
        ends_s = 0.0 if limits.deadline_s is None else (time.monotonic() + limits.deadline_s) / 2
        status = layout.PAUSED
        while status != layout.DONE:
            control = self._trees.control
            control[kernels.TRIPLES_LEFT] = EDGES_PER_CALL
            status = int(kernel())
            self.looked_at += EDGES_PER_CALL - int(control[kernels.TRIPLES_LEFT])
            limits.check()
            if limits.deadline_s is not None and time.monotonic() > ends_s:
                raise ForestExceeded("keeping its walks took half of the time that the query may take")
            if self._looked_at_max is not None and self.looked_at > self._looked_at_max:
                raise ForestExceeded("a change took as much as to search anew")
            if status == layout.NEED_SPANS:
                self._spans = np.empty((4 * len(self._spans), SPAN_WIDTH), np.int64)
            elif status == layout.NEED_ROOM:
                self._make_room()

    def _make_room(self) -> None:
        before = self._trees
        capacity = 2 * len(before.nodes)
        if capacity * _ENTRY_BYTES > self._bytes_max:
            raise ForestExceeded(f"more than {self._bytes_max} bytes would be kept")
        after, used = _empty(capacity), int(before.control[kernels.USED])
        after.nodes[:used], after.entries[:used] = before.nodes[:used], before.entries[:used]
        after.queue[: len(before.queue)] = before.queue
        after.control[:] = before.control
        kernels.file_again(after)
        self._trees = after


def _empty(capacity: int) -> Trees:
    control = np.zeros(kernels.FOREST_CONTROL_WIDTH, np.int64)
    control[kernels.FIRST_FREE] = kernels.NOTHING
    nodes, entries = np.empty(capacity, np.int64), np.empty((capacity, kernels.ENTRY_WIDTH), np.int32)
    slots = np.full(capacity, kernels.NOTHING, np.int32), np.full(capacity, kernels.NOTHING, np.int32)
    return Trees(nodes, entries, *slots, np.empty(capacity, np.int32), control)
