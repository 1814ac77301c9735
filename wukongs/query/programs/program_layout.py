"""The numbers of a program: names for the columns of its head, tables and operations, and for their codes."""

from __future__ import annotations

# A program: int64[PROGRAM_HEAD], then its tables, then its operations.
PROGRAM_OPERATIONS = 0
PROGRAM_TABLES = 1
PROGRAM_ARENA = 2
"""Address of the arena, and its size in int64."""
PROGRAM_CELLS = 3
PROGRAM_USED = 4
"""Allocated cells."""
PROGRAM_AT = 5
"""The operation to begin with: 0, or the one that stopped."""
PROGRAM_EPOCH = 6
"""The current release epoch: entries of memos with an earlier one are invalid."""
PROGRAM_MISSED = 7
"""Number of missing keys, and their address: int64[n, keys of the memo]."""
PROGRAM_MISSED_AT = 8
PROGRAM_DICTIONARIES = 9
"""Address of the dictionaries of terms, int64[DICTIONARIES, DICTIONARY_WIDTH]."""
PROGRAM_RESULT = 10
"""The number of the table that is the result."""
PROGRAM_HEAD = 11

# What a run of many programs writes of each: int64[FOUND_WIDTH].
FOUND_STATUS = 0
"""DONE, or why there is no result."""
FOUND_FROM = 1
"""The cell of the arena at which the rows of the result begin."""
FOUND_ROWS = 2
FOUND_COLUMNS = 3
FOUND_WIDTH = 4

# A dictionary of terms (store/dictionary_kernels.py); without entries it has no arrays.
DICTIONARY_CHUNKS = 0
"""Address of the chunk table, and its rows."""
DICTIONARY_CHUNK_COUNT = 1
DICTIONARY_SLOTS = 2
"""Address of the slots, and how many there are."""
DICTIONARY_SLOT_COUNT = 3
DICTIONARY_NUMBER_BITS = 4
DICTIONARY_ENTRIES = 5
DICTIONARY_WIDTH = 6
DICTIONARIES = 3

# The entry of a term's text: int64[TEXT_WIDTH].
TEXT_CLASS = 0
TEXT_ADDRESS = 1
"""Address of the bytes that are compared first: those between the brackets of an IRI, or the quotes of a literal."""
TEXT_SIZE = 2
TEXT_TAIL = 3
"""Number of bytes behind these: of a literal the quote, and its language tag."""
TEXT_INLINED = 4
"""Here lie the bytes of an inlined string, in two cells."""
TEXT_WIDTH = 6

COMPARED_MAX = 1 << 24
"""Bytes of texts that one operation compares, roughly and at most: beyond it the program falls back."""

# Classes of terms in the order of ORDER BY.
CLASS_OTHER = -1
"""A literal with a datatype or a base direction, or a triple term."""
CLASS_UNBOUND = 0
CLASS_BLANK = 1
CLASS_IRI = 2
CLASS_STRING = 10
"""A string, with a language tag or without."""

# A table: int64[TABLE_WIDTH]. Its rows lie one after the other, int64[rows, columns].
TABLE_ADDRESS = 0
TABLE_ROWS = 1
TABLE_COLUMNS = 2
TABLE_WIDTH = 3

# An operation: int64[OPERATION_WIDTH].
OPERATION_CODE = 0
OPERATION_OUT = 1
"""The number of the table that it makes; FILTER and SEMIJOIN take rows out of it."""
OPERATION_LEFT = 2
"""The number of the table that it reads, -1 for none."""
OPERATION_RIGHT = 3
OPERATION_DATA = 4
"""The address of its parameters, and how many of them there are."""
OPERATION_COUNT = 5
OPERATION_MEMO = 6
"""The address of its memo."""
OPERATION_FLAG = 7
OPERATION_WIDTH = 8

EXPLORE = 0
"""Run a compiled plan from the rows of LEFT, or from one empty row. DATA: the call (plan_layout)."""
BESIDE = 1
"""Join LEFT with RIGHT on the row number of LEFT, in its order. DATA: picks. FLAG: the column of numbers of RIGHT.
Rows of LEFT without a partner stay."""
SEMIJOIN = 2
"""Keep the rows of OUT whose number, in the row of LEFT, is in RIGHT; COUNT 1: is not in RIGHT. FLAG: the column of
numbers of RIGHT."""
UNION = 3
"""The rows of LEFT, then those of RIGHT. DATA: picks of LEFT, then of RIGHT."""
PROJECT = 4
"""DATA: picks."""
FILTER = 5
"""Keep the rows of OUT that fulfil a condition. DATA: the condition (plan_layout), the entry of the string that it
compares with (TEXT_ADDRESS 0: none), the columns of the memo's key."""
EXTEND = 6
"""LEFT with one more column. DATA: the columns of the memo's key."""
GROUP = 7
"""DATA: number of keys, number of aggregates, columns of the keys; code and column of each aggregate. RIGHT: the table
that gets the number of the group of each row, -1 for none. The memo has the texts of computed terms."""
SORT = 8
"""DATA: number of conditions, number of tie columns, OFFSET, LIMIT (-1: none), the column of the part that a row is in
(-1: none); of each condition its column, 1 for descending; the tie columns. Parts come one after the other, and OFFSET
and LIMIT cut each of them. The memo has the texts of computed terms."""
JOIN = 9
"""LEFT joined with RIGHT. DATA: number of keys, number of checks; of each key (a variable that both sides bind in each
row) and check (one that a row may leave unbound) its two columns; of each column of OUT those of LEFT and RIGHT, -1 for
none. COUNT: the columns of OUT."""

EVALUATE = 10
"""Python makes OUT of LEFT."""

# A pick: int64[PICK_WIDTH]: where a cell of a row comes from.
PICK_COLUMN = 0
"""A column of LEFT; PICK_TERM; PICK_NUMBER; of BESIDE also PICK_RIGHT - column of RIGHT."""
PICK_VALUE = 1
"""The id that PICK_TERM gives, or PICK_RIGHT for a row without a partner; of a column of LEFT in BESIDE, 1 + the
column of RIGHT that binds it where LEFT does not, 0 for none."""
PICK_WIDTH = 2
PICK_TERM = -1
PICK_NUMBER = -2
"""The number of the row."""
PICK_RIGHT = -3

NO_COMPARISON = -1
"""The op of a condition that only the memo decides."""

# Aggregates.
COUNT_ROWS = 0
COUNT_TERMS = 1
COUNT_DISTINCT = 2
SUM = 3
MIN = 4
MAX = 5
SAMPLE = 6
HOSTED = 7
"""One that Python evaluates, and all aggregates beside it."""

# A memo: int64[MEMO_HEAD], then its slots, int64[MEMO_SLOTS, keys + 2]: the key, its epoch, the value.
MEMO_SLOTS = 0
"""A power of two."""
MEMO_KEYS = 1
MEMO_HEAD = 2
MEMO_FREE = -1
"""The epoch of a slot without a key."""
MEMO_PERMANENT = 0
"""The epoch of an entry that is always valid."""
UNKNOWN = -5
"""The value of a missing key."""

# Statuses of a run, in addition to DONE (plan_layout).
MEMO_MISS = 7
"""A memo lacks keys: insert their values, and run the program again; it resumes."""
FALL_BACK = 8
"""The arena is full, or the ids do not determine the result: the executor evaluates the query."""
HOST = 9
"""Python is to evaluate an operation over the rows of LEFT, and to write OUT: kernels cannot, or ids and texts do not
determine the result. Run the program again behind the operation."""
