"""The descriptor of a batch: one row of int64 through which kernels reach its arrays by address.

A side (out or in) holds, for each directory row r, the sorted keys of that (graph, predicate), and per key its sorted
values: keys[key_starts[r]:key_starts[r + 1]], values[offsets[i]:offsets[i + 1]] for key i. A range of at least
FENCE_KEYS_MIN keys has a radix fence over the top bits of the uniform ids (DESIGN: key look-up).
"""

from __future__ import annotations

DIRECTORY_SIZE = 0
GRAPHS = 1
PREDICATES = 2
SIDES = 3
"""Where the out side starts; the in side follows SIDE_WIDTH later."""
SIDE_WIDTH = 7
KEY_STARTS = 0
KEYS = 1
OFFSETS = 2
VALUES = 3
FENCE_STARTS = 4
FENCE_SHIFTS = 5
FENCES = 6
VERTEX_COUNT = 17
VERTICES = 18
CODE_STARTS = 19
CODES = 20
CODE_BYTES = 21
VERTEX_FENCE_SHIFT = 22
VERTEX_FENCE = 23
TRIPLE_COUNT = 24
TIMES = 25
TOMBSTONES = 26
"""In a read of a trace (BatchSet): descriptors of the tombstones that may hide triples of this batch."""
TOMBSTONE_COUNT = 27
KEY_FILTER = 28
"""The address of the filter over its keys (key_filter_kernels.py), 0: it has none."""
DESCRIPTOR_WIDTH = 29

FENCE_KEYS_MIN = 32
FENCE_DENSE_MAX = 1 << 14
"""Ranges of up to so many keys have a bucket for every key or two; larger ones, which are most of a graph, for every
two to four (docs/decisions/0008-key-index.md)."""
NO_FENCE = -1
NOTHING_HIDDEN = 2**63 - 1
"""Larger than any id: it stands behind the last value or key that tombstones hide."""

# A window: int64[WINDOW_WIDTH], a row of a WindowTable. Its batches are neighbours in the table of descriptors.
WINDOW_FIRST = 0
"""The row of its first descriptor."""
WINDOW_COUNT = 1
WINDOW_OVERLAPS = 2
"""1: a triple may stand in several of the batches."""
WINDOW_HIDES = 3
"""1: tombstones hide triples of some batch."""
WINDOW_WIDTH = 4

# An access: int64[ACCESS_WIDTH]: one predicate of one graph in a window, from one side. Its probes are neighbours.
ACCESS_PREDICATE = 0
ACCESS_GRAPH = 1
ACCESS_DIRECTION = 2
ACCESS_FIRST = 3
"""The row of its first probe."""
ACCESS_COUNT = 4
"""How many batches have a triple of that kind; each has a probe."""
ACCESS_FILTER = 5
"""The address of its filter: the bit `key >> shift` is set for each key of the window. The shift; NO_FILTER: none."""
ACCESS_SHIFT = 6
ACCESS_WIDTH = 7
NO_FILTER = -1
FILTER_BITS = 16
"""A filter has so many bits as a power of two, at most; ids are uniform, so their top bits will do."""
FILTER_BITS_PER_KEY = 16
FILTER_BITS_PER_KEY_MIN = 4
"""A window with so many keys that a filter would have fewer goes without."""
FILTER_WORDS = (1 << FILTER_BITS) >> 6

# A probe: int64[PROBE_WIDTH], a cache line: all that a look-up of a key in one directory row of a batch begins with.
PROBE_BATCH = 0
"""The row of the batch's descriptor."""
PROBE_ROW = 1
"""The row of the batch's directory."""
PROBE_KEYS = 2
"""The address of the first key, and how many there are."""
PROBE_KEY_COUNT = 3
PROBE_OFFSETS = 4
"""The address of the first key's offset among the values of the side."""
PROBE_FENCE = 5
"""The address of the first fence entry, and the shift of a key that gives its place; NO_FENCE: there is none."""
PROBE_SHIFT = 6
PROBE_KEY_FILTER = 7
"""The KEY_FILTER of the batch."""
PROBE_WIDTH = 8

# The head of a WindowTable: where its tables lie, and how many rows they have.
HEAD_WINDOWS = 0
HEAD_WINDOW_COUNT = 1
HEAD_DESCRIPTORS = 2
HEAD_DESCRIPTOR_COUNT = 3
HEAD_ACCESSES = 4
HEAD_ACCESS_COUNT = 5
HEAD_PROBES = 6
HEAD_PROBE_COUNT = 7
HEAD_FILTERS = 8
"""int64[HEAD_ACCESS_COUNT, FILTER_WORDS]"""
HEAD_WIDTH = 9

# An entry of a Membership: int64[ENTRY_WIDTH].
ENTRY_SUBJECT = 0
ENTRY_OBJECT = 1
ENTRY_NEWEST = 2
"""The last stream batch with the tuple; NEVER: the entry is free."""
ENTRY_BEFORE = 3
"""The last one with it up to the epoch, if ENTRY_NEWEST is behind that; else it means nothing."""
ENTRY_WIDTH = 4
NEVER = -(1 << 62)

# The head of a Membership: int64[MEMBERSHIP_WIDTH].
MEMBERSHIP_ENTRIES = 0
"""The address of its entries, and how many there are."""
MEMBERSHIP_COUNT = 1
MEMBERSHIP_EPOCH = 2
MEMBERSHIP_AGAIN = 3
"""The address of int64[2, AGAIN_WORDS]: a bit for each tuple that has come again, and the same of a while ago."""
MEMBERSHIP_WAITING = 4
"""The address of the slices behind the epoch that are not noted yet, and how many there are."""
MEMBERSHIP_WAITING_COUNT = 5
MEMBERSHIP_WIDTH = 6
AGAIN_BITS = 14
AGAIN_WORDS = (1 << AGAIN_BITS) >> 6

# A slice that waits: int64[WAITING_WIDTH].
WAITING_DESCRIPTOR = 0
"""The address of its descriptor."""
WAITING_ROW = 1
"""The directory row of the predicate in it."""
WAITING_NUMBER = 2
WAITING_WIDTH = 3
