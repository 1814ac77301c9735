"""The tables through which the search along a path reaches its kernel: names for their columns and codes."""

from __future__ import annotations

from typing import NamedTuple

from wukongs.store.dtypes import Int64Array

# An edge of the automaton: int64[EDGE_WIDTH]; those of a state lie together.
EDGE_STEP = 0
"""The step of the plan's kind (plan_layout.py) that finds the triples of its link."""
EDGE_STATE = 1
EDGE_EXCLUDED_FROM = 2
EDGE_EXCLUDED_TO = 3
"""Sorted ids of the predicates that the link must not have."""
EDGE_WIDTH = 4

# What becomes of a node that is visited in a state.
GOES_ON = 0
IS_RESULT = 1
ENDS = 2
"""A node that ENDS is visited once more in the last state, so that nodes that several states accept are reported
once."""

# An origin: int64[ORIGIN_WIDTH]: where a search starts.
ORIGIN_NODE = 0
ORIGIN_GRAPH = 1
"""The graph that the whole walk stays in, 0 where the steps know it."""
ORIGIN_TARGETS_FROM = 2
"""The sorted nodes that are looked for; ALL_NODES: all that are reached."""
ORIGIN_TARGETS_TO = 3
ORIGIN_WIDTH = 4
ALL_NODES = -1

# A visited pair: int64[VISIT_WIDTH], in the order of discovery.
VISIT_NODE = 0
VISIT_STATE = 1
VISIT_SLOT = 2
VISIT_WIDTH = 3

# Where a search stands: int64[PLACE_WIDTH].
ORIGIN = 0
HEAD = 1
"""The visited pair to go on from; NOT_STARTED before the origin is entered."""
TAIL = 2
"""Visited pairs of this origin."""
FOUND = 3
"""Results of this origin so far."""
WRITTEN = 4
"""Results in the output."""
AT_EDGE = 5
"""Within the pair at HEAD: the edge that is being followed,"""
AT_SPAN = 6
"""its span of triples,"""
AT_TRIPLE = 7
"""and where in that to go on; NOT_STARTED: at the beginning of the edge."""
LEVEL_END = 8
"""Pairs before it are DEPTH links away from the origin, or less far."""
DEPTH = 9
COST = 10
"""The cost of following the edges of the next level, for two searches that are to meet; NOT_STARTED if not known."""
PLACE_WIDTH = 11
NOT_STARTED = -1

EDGES_LEFT = 0
"""Column of the control: how many triples the search may still look at before it comes up for air."""
SIDE = 1
"""The one of two searches that goes on; NOT_STARTED between two levels."""
CONTROL_WIDTH = 2

DONE = 0
FULL = 1
NEED_ROOM = 2
NEED_SPANS = 3
PAUSED = 4
MET = 5


class PathSource(NamedTuple):
    """Where links are looked up: steps, parts and descriptors as run_plan takes them, part_rows resolved."""

    steps: Int64Array
    parts: Int64Array
    part_rows: Int64Array
    descriptors: Int64Array
    default_graph: int


class Machine(NamedTuple):
    """edge_starts : int64[n_states + 1]; edges : int64[n_edges, EDGE_WIDTH]; excluded : int64[...], sorted per edge;
    outcomes : int64[n_states], GOES_ON, IS_RESULT or ENDS. The last state is the one that ENDS leads to. steps_max: the
    most links of a walk, -1 if there may be any number."""

    edge_starts: Int64Array
    edges: Int64Array
    excluded: Int64Array
    outcomes: Int64Array
    steps_max: int


class Origins(NamedTuple):
    """rows : int64[n_origins, ORIGIN_WIDTH]; targets : int64[...], the sorted nodes that each looks for."""

    rows: Int64Array
    targets: Int64Array


class Visited(NamedTuple):
    """pairs : int64[capacity, VISIT_WIDTH]; slots : int64[power of two], the number of a pair, -1 where empty."""

    pairs: Int64Array
    slots: Int64Array
