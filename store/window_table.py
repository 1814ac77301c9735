"""WindowTable: the windows of an engine as rows of numbers, from which kernels lay out the parts of a plan.

A window is written when its batches change, at most once a tick; however many queries read it, nothing else is done for
them. The stored graph is a window of this table, too.

Invariants:

* the descriptors of one window are neighbours; they are copies, so a kernel needs no other address than the head's;
* the head lies at one address for the table's life. The tables that it names are made anew as they grow;
* the batches of each window are held here, so that the addresses in their descriptors stay good;
* `version` changes when the size of a window has changed by SIZE_FACTOR since it was last noted, and only then: until
  then plans need not look at sizes; `changes` counts that for each window;
* an access stands for one predicate of one graph in a window, from one side. It has a probe for each of the window's
  batches with such triples, and probes are written together with the window. So a look-up of a key begins at one cache
  line, in place of a descriptor, a directory and the heads of three columns;
* an access to a window of few keys has a filter, too. Most keys that are looked up in a window are not there, and one
  bit says so;
* what may find no memory comes before what is noted. So after an error a window has what it had, and an access that
  could not be written is not known.

Nobody may change the table while a kernel reads it: the owner serialises.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.dtypes import Int64Array
from wukongs.store.layout import (
    ACCESS_FIRST,
    ACCESS_WIDTH,
    DESCRIPTOR_WIDTH,
    FILTER_WORDS,
    HEAD_ACCESS_COUNT,
    HEAD_ACCESSES,
    HEAD_DESCRIPTOR_COUNT,
    HEAD_DESCRIPTORS,
    HEAD_FILTERS,
    HEAD_PROBE_COUNT,
    HEAD_PROBES,
    HEAD_WIDTH,
    HEAD_WINDOW_COUNT,
    HEAD_WINDOWS,
    PROBE_WIDTH,
    WINDOW_WIDTH,
)
from wukongs.store.window_table_kernels import append_batch, write_probes, write_window

Kind = tuple[int, int, int]
"""Predicate, graph, direction."""
SIZE_FACTOR = 2
BATCHES_MIN = 8
"""A window has room for so many batches at first."""

_NONE = np.empty(0, np.int64)


class WindowTable:
    """Windows by number. head : int64[HEAD_WIDTH], for kernels."""

    def __init__(self) -> None:
        self.version = 0
        self.changes: list[int] = []
        self.head = np.zeros(HEAD_WIDTH, np.int64)
        self.address: int = self.head.ctypes.data
        self._batches: list[BatchSet] = []
        self._free: list[int] = []
        self._rooms: list[tuple[int, int]] = []
        """The place where the descriptors of each window begin, and for how many there is room."""
        self._noted: list[int] = []
        """The sizes at which `version` has last changed."""
        self._accesses: list[dict[Kind, int]] = []
        """The accesses of each window, by their kind."""
        self._wanted: list[Int64Array] = []
        """The numbers of the accesses of each window."""
        self._free_accesses: list[int] = []
        self._access_rooms: list[int] = []
        """For how many probes each access has room."""
        self._probes_used = 0
        self._access_rows: Int64Array = np.zeros((0, ACCESS_WIDTH), np.int64)
        self._filters: Int64Array = np.zeros((0, FILTER_WORDS), np.int64)
        self._probes: Int64Array = np.zeros((0, PROBE_WIDTH), np.int64)
        self._windows: Int64Array = np.zeros((0, WINDOW_WIDTH), np.int64)
        self._descriptors: Int64Array = np.zeros((0, DESCRIPTOR_WIDTH), np.int64)

    def add(self) -> int:
        """Make an empty window; return its number."""
        if self._free:
            return self._free.pop()
        number = len(self._batches)
        if number >= len(self._windows):
            grown = _grown(self._windows, number + 1)
            self.head[HEAD_WINDOWS], self.head[HEAD_WINDOW_COUNT] = grown.ctypes.data, len(grown)
            self._windows = grown
        self._rooms[number:] = [(0, 0)]
        self._noted[number:] = [0]
        self.changes[number:] = [0]
        self._accesses[number:] = [{}]
        self._wanted[number:] = [_NONE]
        self._batches.append(EMPTY)
        return number

    def remove(self, number: int) -> None:
        """Forget a window and the accesses to it; another one may get its number."""
        self.set(number, EMPTY)
        self._free_accesses += self._accesses[number].values()
        self._accesses[number] = {}
        self._wanted[number] = _NONE
        self._free.append(number)

    def batches(self, number: int) -> BatchSet:
        """Return what was last set."""
        return self._batches[number]

    def set(self, number: int, batches: BatchSet) -> None:
        """Say which batches a window has now. Cost: a copy of their descriptors, or of the last one if all others were
        written before."""
        self.foresee(number, batches)
        size, noted = max(1, batches.count), self._noted[number]
        if size > SIZE_FACTOR * noted or noted > SIZE_FACTOR * size:
            self._noted[number] = size
            self.changes[number] += 1
            self.version += 1

    def foresee(self, number: int, batches: BatchSet) -> None:
        """Write batches that a window will have, with others, when it is set next: its size is not looked at."""
        before = self._batches[number]
        if batches is before:
            return
        first, room = self._rooms[number]
        count, wanted = len(batches.batches), self._wanted[number]
        if batches.goes_on is before.mark and count <= room:
            append_batch(self.head, number, batches.batches[-1].descriptor, not batches.disjoint, wanted)
        else:
            descriptors, hides = batches.descriptors, bool(batches.tombstones)
            if count > room:
                first, room = self._make_room(count)
                self._make_room_for_probes(self._accesses[number].values(), room)
            write_window(self.head, number, first, descriptors, not batches.disjoint, hides, wanted)
            self._rooms[number] = first, room
        self._batches[number] = batches

    def access(self, number: int, predicate: int, graph: int, direction: int) -> int:
        """Return the number of the access to a window by a predicate of a graph, from one side; make it if need be."""
        known = self._accesses[number]
        kind = predicate, graph, direction
        found = known.get(kind)
        if found is None:
            found = self._new_access(kind)
            try:
                own: Int64Array = np.array([found], np.int64)
                wanted = np.concatenate((self._wanted[number], own))
                self._make_room_for_probes((found,), self._rooms[number][1])
                write_probes(self.head, number, own)
            except BaseException:
                self._free_accesses.append(found)
                raise
            known[kind], self._wanted[number] = found, wanted
        return found

    def _new_access(self, kind: Kind) -> int:
        if self._free_accesses:
            found = self._free_accesses.pop()
        else:
            found = len(self._access_rooms)
            if found >= len(self._access_rows):
                self._make_room_for_accesses(found + 1)
            self._access_rooms.append(0)
        self._access_rows[found, :ACCESS_FIRST] = kind
        return found

    def _make_room_for_accesses(self, count: int) -> None:
        """Make room for accesses and their filters, and write the filters of those that there are."""
        rows, before = _grown(self._access_rows, count), self._filters
        filters = np.zeros((len(rows), FILTER_WORDS), np.int64)
        self.head[HEAD_ACCESSES], self.head[HEAD_ACCESS_COUNT] = rows.ctypes.data, len(rows)
        self.head[HEAD_FILTERS] = filters.ctypes.data
        self._access_rows, self._filters = rows, filters
        for number, wanted in enumerate(self._wanted):
            write_probes(self.head, number, wanted)
        del before  # accesses have pointed there until now

    def _make_room_for_probes(self, accesses: Iterable[int], room: int) -> None:
        """Have room for so many probes of each of some accesses. They are to be written anew."""
        wanting = [access for access in accesses if self._access_rooms[access] < room]
        used = self._probes_used + room * len(wanting)
        if used > len(self._probes):
            grown = _grown(self._probes, used)
            self.head[HEAD_PROBES], self.head[HEAD_PROBE_COUNT] = grown.ctypes.data, len(grown)
            self._probes = grown
        for access in wanting:
            self._access_rooms[access], self._access_rows[access, ACCESS_FIRST] = room, self._probes_used
            self._probes_used += room

    def _make_room(self, count: int) -> tuple[int, int]:
        """Return a range of free descriptors for a window with so many. The range that it had is
        left: a window takes at most twice the room that it needs."""
        room = max(BATCHES_MIN, 2 * count)
        first = max((first + room for first, room in self._rooms), default=0)
        if first + room > len(self._descriptors):
            grown = _grown(self._descriptors, first + room)
            self.head[HEAD_DESCRIPTORS], self.head[HEAD_DESCRIPTOR_COUNT] = grown.ctypes.data, len(grown)
            self._descriptors = grown
        return first, room


def _grown(table: Int64Array, count: int) -> Int64Array:
    """Return a table with room for `count` rows and as many again, that begins with the same rows."""
    grown = np.zeros((max(BATCHES_MIN, 2 * count), table.shape[1]), np.int64)
    grown[: len(table)] = table
    return grown
