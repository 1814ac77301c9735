"""Runs steps over one node's batches, and keeps of their matches those that the node is to answer for.

A node answers for a match by the shard of the end at which the triple is found, or of the subject if the predicate is
split. So the answers of all nodes together are the matches over the whole graph, each once, although a triple is stored
twice.
"""

from __future__ import annotations

import numpy as np

from wukongs.cluster.reads.requests import Operand, Segment, SharePlan, StepsRun, new_columns
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
    plan, columns, length = asked.plan, asked.columns, asked.length
    counts: list[int] = []
    for segment, tables in zip(plan.segments, _laid_out(plan, stored, default_graph), strict=True):
        steps = plan.steps[segment.first : segment.last]
        width = len(columns) + new_columns(steps)
        wanted = asked.rows_wanted if segment.last == len(plan.steps) else None
        if segment.before is not None:
            columns, length = _taken(columns, length, plan.shards[shards_of(_operand(segment.before, columns, length))])
        while True:
            made: list[int] = []
            found, count = run_tables(tables, columns, length, width, limits, wanted, made)
            if not segment.after:
                columns, length = found, count
                break
            is_kept = _is_answered(plan, steps[-1], found, count)
            if wanted is None or count < wanted or int(is_kept.sum()) >= (asked.rows_wanted or 0):
                columns, length = _taken(found, count, is_kept)
                made[-1] = length
                break
            wanted *= 4  # too few of them are this node's to answer
        counts += made
    return columns, length, counts


def laid_out_parts(parts: Int64Array, stored: BatchSet) -> Int64Array:
    """Return each part once for each batch, as the kernel wants them. int64[n, PART_WIDTH]"""
    count = len(stored.batches)
    made = np.empty((len(parts) * count, layout.PART_WIDTH), np.int64)
    made[:, layout.PART_BATCH] = np.tile(np.arange(count), len(parts))
    made[:, layout.PART_GRAPH] = np.repeat(parts[:, 0], count)
    made[:, layout.PART_NAME] = np.repeat(parts[:, 1], count)
    return made


def _laid_out(plan: SharePlan, stored: BatchSet, default_graph: int) -> list[PlanTables]:
    """Point the steps of each segment at their parts of the local batches. Kept until the batches change."""
    mark, tables = plan.laid_out
    if mark is not stored.mark:
        tables = [_tables(plan, segment, stored, default_graph) for segment in plan.segments]
        plan.laid_out = stored.mark, tables
    found: list[PlanTables] = tables
    return found


def _tables(plan: SharePlan, segment: Segment, stored: BatchSet, default_graph: int) -> PlanTables:
    steps = plan.steps[segment.first : segment.last].copy()
    made: list[Int64Array] = []
    for step in steps:
        parts = plan.stored[step[layout.PARTS_FROM] : step[layout.PARTS_TO]]
        made.append(laid_out_parts(parts, stored))
        step[layout.PARTS_FROM] = sum(map(len, made[:-1]))
        step[layout.PARTS_TO] = step[layout.PARTS_FROM] + len(made[-1])
        step[layout.UNION], step[layout.HIDING] = len(parts) > 1 or not stored.disjoint, bool(stored.tombstones)
    return PlanTables(steps, np.concatenate(made), stored.descriptors, default_graph)


def _operand(operand: Operand, columns: tuple[Int64Array, ...], length: int) -> Int64Array:
    kind, reference = operand
    return np.full(length, reference, np.int64) if kind == layout.CONSTANT else columns[reference]


def _taken(columns: tuple[Int64Array, ...], length: int, is_kept: BoolArray) -> tuple[tuple[Int64Array, ...], int]:
    if is_kept.all():
        return columns, length
    rows = np.flatnonzero(is_kept)
    return tuple(column[rows] for column in columns), len(rows)


def _is_answered(plan: SharePlan, step: Int64Array, columns: tuple[Int64Array, ...], length: int) -> BoolArray:
    """Tell which of a step's matches the node is to answer for. bool[length]"""

    def operand(kind_at: int, at: int) -> Int64Array:
        return _operand((int(step[kind_at]), int(step[at])), columns, length)

    deciding = operand(layout.KEY_KIND, layout.KEY)
    if step[layout.DIRECTION] == 1 and len(plan.split):
        is_split: BoolArray = np.isin(operand(layout.PREDICATE_KIND, layout.PREDICATE), plan.split)
        deciding = np.where(is_split, operand(layout.VALUE_KIND, layout.VALUE), deciding)
    answered: BoolArray = plan.shards[shards_of(deciding)]
    return answered
