"""The tables through which a conjunctive plan reaches its kernel: names for their columns and codes."""

from __future__ import annotations

# A step: int64[STEP_WIDTH]. An operand is a kind and a reference (an id for CONSTANT, else a column).
DIRECTION = 0
KEY_KIND = 1
KEY = 2
PREDICATE_KIND = 3
PREDICATE = 4
VALUE_KIND = 5
VALUE = 6
GRAPH_KIND = 7
GRAPH = 8
PARTS_FROM = 9
PARTS_TO = 10
UNION = 11
"""1: a triple may stand in several parts, and is to be matched once."""
HIDING = 12
"""1: tombstones hide triples of some part."""
STEP_WIDTH = 13

CONSTANT = 0
BOUND = 1
"""An earlier step has filled the column."""
NEW = 2
"""This step fills the column."""
SAME = 3
"""An earlier operand of this very match fills the column: the two must be equal."""
ANY = 4
"""Not asked for (only the graph)."""

# A part: int64[PART_WIDTH]: where a step looks.
PART_BATCH = 0
PART_GRAPH = 1
"""The graph id in that batch's directory, or ALL_NAMED."""
PART_NAME = 2
"""The graph id that a match reports (a window's stream), or FROM_DIRECTORY."""
PART_WIDTH = 3
ALL_NAMED = -1
FROM_DIRECTORY = -1

# What is known of a part before any row: its directory row, or one of these.
ABSENT = -1
SEARCH = -2

# A span: int64[SPAN_WIDTH]: values (or keys, in a scan) lo..hi of one side of a batch.
SPAN_GRAPH = 0
SPAN_PREDICATE = 1
SPAN_BATCH = 2
SPAN_LO = 3
SPAN_HI = 4
SPAN_ROW = 5
"""The directory row of that batch."""
SPAN_HIDDEN = 6
"""In a span of values: the next one that tombstones hide, NOTHING_HIDDEN if none is left."""
SPAN_WIDTH = 7

# The state of a step: int64[STATE_WIDTH]; one more row at the end is the plan's.
ROW = 0
"""The input row that is being matched."""
RUN = 1
"""The run of spans within that row."""
AT_KEY = 2
"""In a scan: the key position, or the key itself where runs are united."""
AT_VALUE = 3
"""The value position, or the last value itself where runs are united."""
FUEL = 4
"""Right behind AT_VALUE: how many triples the step may still look at in this chunk, whether they match or not. In the
last row of the state: the number with which each chunk begins, 0 for no bound."""
COUNT = 5
"""Rows in the input table of this step; in the last row of the state: rows in the output."""
HELD = 6
"""The spans of that row that the step's scratch holds, from before it stopped; NOT_STARTED: collect them."""
PASSED = 7
"""Rows that this step has handed to the next one, over all its chunks."""
STATE_WIDTH = 8
LEVEL = 0
"""In the last row of the state: the step that is being run."""
NOT_STARTED = -1

FUEL_OF_CHUNK = 512
"""So much fuel takes about as long as a chunk of rows."""

DONE = 0
FULL = 1
CANCELLED = 2
NEED_SPANS = 3
PAUSED = 4
