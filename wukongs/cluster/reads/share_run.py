"""Runs steps over one node's batches, and keeps of their matches those that the node is to answer for.

A node answers for a match by the shard of the end at which the triple is found, or of the subject if the predicate is
split. So the answers of all nodes together are the matches over the whole graph, each once, although a triple is stored
twice.
"""

from __future__ import annotations

import numpy as np

from wukongs.cluster.reads.requests import StepsRun, new_columns
from wukongs.query.limits import Limits
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans.plan_runner import PlanTables, run_tables
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.wire.assignment import shards_of


def run_share(
    asked: StepsRun, stored: BatchSet, default_graph: int, limits: Limits
) -> tuple[tuple[Int64Array, ...], int, list[int]]:
    """Run steps; return (columns, their length, rows after each step). Raises QueryTimeout, BudgetExceeded."""
    columns, length = asked.columns, asked.length
    counts = []
    for number, step in enumerate(asked.steps):
        parts = asked.stored[step[layout.PARTS_FROM] : step[layout.PARTS_TO]]
        tables = _laid_out(step[np.newaxis].copy(), parts, stored, default_graph)
        width = len(columns) + new_columns(step)
        wanted = asked.rows_wanted if number == len(asked.steps) - 1 else None
        while True:
            found, count = run_tables(tables, columns, length, width, limits, wanted)
            kept = _answered(asked, step, found, count)
            if wanted is None or count < wanted or len(kept) >= (asked.rows_wanted or 0):
                break
            wanted *= 4  # too few of them are this node's to answer
        columns, length = tuple(column[kept] for column in found), len(kept)
        counts.append(length)
    return columns, length, counts


def laid_out_parts(parts: Int64Array, stored: BatchSet) -> Int64Array:
    """Return each part once for each batch, as the kernel wants them. int64[n, PART_WIDTH]"""
    count = len(stored.batches)
    made = np.empty((len(parts) * count, layout.PART_WIDTH), np.int64)
    made[:, layout.PART_BATCH] = np.tile(np.arange(count), len(parts))
    made[:, layout.PART_GRAPH] = np.repeat(parts[:, 0], count)
    made[:, layout.PART_NAME] = np.repeat(parts[:, 1], count)
    return made


def _laid_out(steps: Int64Array, parts: Int64Array, stored: BatchSet, default_graph: int) -> PlanTables:
    """Point one step at its parts of the local batches."""
    made = laid_out_parts(parts, stored)
    steps[0, layout.PARTS_FROM], steps[0, layout.PARTS_TO] = 0, len(made)
    steps[0, layout.UNION], steps[0, layout.HIDING] = len(parts) > 1 or not stored.disjoint, bool(stored.tombstones)
    return PlanTables(steps, made, stored.descriptors, default_graph)


def _answered(asked: StepsRun, step: Int64Array, columns: tuple[Int64Array, ...], length: int) -> Int64Array:
    """Return the rows of a step's matches that the node is to answer for."""

    def operand(kind_at: int, at: int) -> Int64Array:
        if step[kind_at] == layout.CONSTANT:
            return np.full(length, step[at], np.int64)
        return columns[int(step[at])]

    keys, values = operand(layout.KEY_KIND, layout.KEY), operand(layout.VALUE_KIND, layout.VALUE)
    deciding = keys
    if step[layout.DIRECTION] == 1 and len(asked.split):
        is_split: BoolArray = np.isin(operand(layout.PREDICATE_KIND, layout.PREDICATE), asked.split)
        deciding = np.where(is_split, values, keys)
    return np.flatnonzero(asked.shards[shards_of(deciding)])
