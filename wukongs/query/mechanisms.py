"""Mechanisms: the ways by which a firing of a registered query finds its answer, counted for each query.

A mechanism is used if the answer was made of what it gave. One that was entered and left again, since it was refused or
has failed, is not used. `stats()["found_by"]` of a query has the counts, and the fuzzer of continuous queries
(tests/fuzzing/continuous.py) fails if a mechanism is hardly ever used.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias


class Mechanism(StrEnum):
    """The name under which windows are counted that were found by a mechanism; several may take part in one."""

    PROGRAM = "program"
    """A kernel has run the whole query."""
    HOSTED = "program_parts"
    """The executor has evaluated parts of that query, which have no operation."""
    TOGETHER = "program_batch"
    """A kernel has run it in one call with other queries."""
    DIRECT = "direct"
    """The answer was reported as the program has found it, and a window is made of it when somebody reads."""
    EXECUTOR = "executor"
    """The executor has evaluated its algebra."""
    SLOW_LANE = "slow_lane"
    """It has done so beside the thread that fires."""
    BINDINGS_ANEW = "bindings_begun"
    """The matches of its patterns were found anew, and are maintained from here on."""
    BINDINGS = "maintained_bindings"
    """The matches of the firing before were changed by inserts and deletes."""
    SLICES = "maintained_slices"
    """The matches of a pattern over one window were inserted and deleted by its slices that have come and gone."""
    CHANGES = "reported_changes"
    """ISTREAM or DSTREAM was answered by inserted and deleted rows alone."""
    DISTINCT = "maintained_distinct"
    GROUPS = "maintained_groups"
    JOINS = "maintained_joins"
    """OPTIONAL, MINUS, EXISTS, UNION and joins of their parts have followed what has changed below them."""
    LIMITS = "maintained_limits"
    """The first rows of LIMIT have followed what has changed below them."""
    SEARCHED = "searched_paths"
    """Paths over stored graphs were searched from what has changed in windows beside them, or in these graphs."""
    PATHS = "maintained_paths"
    JOINED = "joined_queries"
    """It was asked as one of the queries of a shape."""
    ROWS_FIRST = "arguments_first"
    """For a table of arguments: the exploration has started from these."""
    ROWS_PROBED = "arguments_probed"
    """For a table of arguments: patterns were explored first, and the index of the table was asked."""
    CACHED = "cached_answer"
    """Another firing has found it, of this query or another one, over the same versions of its inputs."""


Used: TypeAlias = set[Mechanism]
"""The mechanisms that have taken part in one answer."""
