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
"""The graph id in that batch's directory (negative: that of a hidden graph), ALL_NAMED, or NO_MATCH."""
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

# A compiled plan: int64[PLAN_HEAD], then its steps, then its sources. PARTS_FROM and PARTS_TO of a step count sources.
PLAN_STEPS = 0
PLAN_SOURCES = 1
PLAN_COLUMNS = 2
"""Columns of its tables, at least 1."""
PLAN_DEFAULT_GRAPH = 3
PLAN_CONDITIONS = 4
"""How many conditions the rows have to fulfil."""
PLAN_HEAD = 5

# A condition of a compiled plan: int64[CONDITION_WIDTH].
CONDITION_OP = 0
"""An OP constant of store/value_kernels.py, or IS_OTHER."""
CONDITION_LEFT = 1
"""The column that is compared."""
CONDITION_RIGHT = 2
"""The column that it is compared with, -1: a constant."""
CONDITION_TERM = 3
"""The id of the constant."""
CONDITION_WIDTH = 4
IS_OTHER = 6
"""The ids differ."""

# A source of a compiled plan: int64[SOURCE_WIDTH]: as a part, with a window in the place of a batch.
SOURCE_WINDOW = 0
SOURCE_GRAPH = 1
SOURCE_NAME = 2
SOURCE_ACCESS = 3
"""The access through which the step looks keys up, -1 if it does not go by one predicate of one graph."""
SOURCE_WIDTH = 4

# Where a step probes: int64[PROBED_WIDTH]: its probes from, to, and its filter (store/layout.py).
PROBED_FROM = 0
"""-1: the step looks at its parts."""
PROBED_TO = 1
PROBED_FILTER = 2
PROBED_SHIFT = 3
PROBED_WIDTH = 4

# A call of compiled plans: int64[CALL_WIDTH].
CALL_PLAN = 0
"""The address of the plan."""
CALL_WINDOWS = 1
"""The address of the head of a WindowTable."""
CALL_SPACE = 2
"""The address of a workspace of SPACE_CELLS int64."""
CALL_SEEDS = 3
"""The address of the rows to start from, all columns wide, and how many there are; 0 rows: one that binds nothing."""
CALL_SEED_COUNT = 4
CALL_OUT = 5
"""The address of room for rows, and how many fit."""
CALL_ROOM = 6
CALL_ROWS = 7
"""How many rows were written."""
CALL_GOES_ON = 8
"""1: the call goes on where the one before has stopped."""
CALL_WIDTH = 9

# A workspace: one block of int64, its sections in this order.
COMPILED_STEPS_MAX = 16
COMPILED_COLUMNS_MAX = 16
COMPILED_PARTS_MAX = 1024
COMPILED_SPANS = 256
COMPILED_CHUNK_ROWS = 512
COMPILED_CHUNKS = 1024
"""Chunks of a call before it pauses."""
COMPILED_FUEL = 32 * FUEL_OF_CHUNK
SPACE_STEPS = 0
SPACE_STATE = SPACE_STEPS + COMPILED_STEPS_MAX * STEP_WIDTH
SPACE_CONTROL = SPACE_STATE + (COMPILED_STEPS_MAX + 1) * STATE_WIDTH
SPACE_PROBED = SPACE_CONTROL + 2
SPACE_UNIT = SPACE_PROBED + COMPILED_STEPS_MAX * PROBED_WIDTH
SPACE_PART_ROWS = SPACE_UNIT + COMPILED_COLUMNS_MAX
SPACE_PARTS = SPACE_PART_ROWS + COMPILED_PARTS_MAX
SPACE_VALUE_SPANS = SPACE_PARTS + COMPILED_PARTS_MAX * PART_WIDTH
SPACE_SPANS = SPACE_VALUE_SPANS + COMPILED_SPANS * SPAN_WIDTH
SPACE_TABLES = SPACE_SPANS + COMPILED_STEPS_MAX * COMPILED_SPANS * SPAN_WIDTH
SPACE_CELLS = SPACE_TABLES + (COMPILED_STEPS_MAX - 1) * COMPILED_CHUNK_ROWS * COMPILED_COLUMNS_MAX

NO_ROOM = 5
"""Beside DONE and its like: a compiled plan has more parts than a workspace holds."""
NO_VERDICT = 6
"""The same: ids do not tell whether a row fulfils a condition, or there are more rows than fit at once."""

# A member of Deltas: int64[MEMBER_WIDTH]: a pattern in one window, whose tuples a Membership knows.
MEMBER_PATTERN = 0
MEMBER_SUBJECT_COLUMN = 1
"""The column of a match that has the subject; -1: it is MEMBER_SUBJECT. The same for the object."""
MEMBER_SUBJECT = 2
MEMBER_OBJECT_COLUMN = 3
MEMBER_OBJECT = 4
MEMBER_BATCH_MS = 5
MEMBER_RANGE_MS = 6
MEMBER_HEAD = 7
"""The address of the head of the Membership; 0: the pattern is matched in a stored graph."""
MEMBER_LAST_SUBJECT = 8
"""The tuple that was looked up last, and what was found: times_of of the Membership. Below 0: none was."""
MEMBER_LAST_OBJECT = 9
MEMBER_NEWEST = 10
"""In a stored graph: whether it is there, and whether it was there at the firing before."""
MEMBER_BEFORE = 11
MEMBER_WINDOWS = 12
"""For a stored graph: the address of the head of the WindowTable, the numbers of the stored graph and of what came
since the firing before, the predicate and the graph."""
MEMBER_STORED = 13
MEMBER_SINCE = 14
MEMBER_PREDICATE = 15
MEMBER_GRAPH = 16
MEMBER_IS_SURE = 17
"""1: the pattern is matched nowhere else."""
MEMBER_COMES = 18
"""1: triples of the predicate and the graph may have come since the firing before."""
MEMBER_AT_MS = 19
"""The firing."""
MEMBER_WIDTH = 20
