"""Runs a lowered plan: calls the kernel, gives it room, gathers its rows, and stops it in time.

A filter behind the plan is applied to some rows at a time. So a filter over the product of two lists holds the rows
that it keeps, and never all pairs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.memory import FREE_BYTES
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.query.plans.lowering import with_parts
from wukongs.query.plans.plan_kernels import run_plan, start_step
from wukongs.query.rows import pieces, put_together
from wukongs.store.dtypes import Int64Array

CHUNK_ROWS = 512
TABLE_CELLS = 1 << 23
"""The tables between the steps of a plan have about as many cells together: a plan of a thousand steps over a thousand
variables has few rows in each."""
OUT_ROWS = 4096
BLOCK_ROWS = 1 << 16
"""So many rows, or a few more, are filtered together."""
SPANS = 256
CHUNKS_PER_CALL = 1024
"""How often a call comes up for air: for Ctrl-C, time limits and budgets."""
FUEL = 32 * layout.FUEL_OF_CHUNK
"""How much a step looks at in a chunk, whether it matches or not."""
ADVICE = "Let its patterns share variables, or start from a constant"


@dataclass(slots=True)
class Workspace:
    """Buffers of one thread, kept from call to call; they grow as plans need."""

    tables: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    out: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    spans: Int64Array = field(default_factory=lambda: np.empty((0, SPANS, layout.SPAN_WIDTH), np.int64))
    value_spans: Int64Array = field(default_factory=lambda: np.empty((SPANS, layout.SPAN_WIDTH), np.int64))

    def tables_for(self, n_tables: int, width: int) -> Int64Array:
        rows = max(1, min(CHUNK_ROWS, TABLE_CELLS // max(1, n_tables * width)))
        size = n_tables * rows * width
        if len(self.tables) < size:
            self.tables = np.empty(size, np.int64)
        return self.tables[:size].reshape(n_tables, rows, width)

    def out_for(self, width: int) -> Int64Array:
        size = OUT_ROWS * width
        if len(self.out) < size:
            self.out = np.empty(size, np.int64)
        return self.out[:size].reshape(OUT_ROWS, width)

    def spans_for(self, n_steps: int) -> Int64Array:
        if len(self.spans) < n_steps:
            self.spans = np.empty((n_steps, *self.value_spans.shape), np.int64)
        return self.spans

    def grow_spans(self) -> None:
        size = 4 * len(self.value_spans)
        self.spans = np.empty((len(self.spans), size, layout.SPAN_WIDTH), np.int64)
        self.value_spans = np.empty((size, layout.SPAN_WIDTH), np.int64)


class PlanTables(NamedTuple):
    """The kernel's tables. steps : int64[n, STEP_WIDTH], which point at parts : int64[n_parts, PART_WIDTH], which point
    at descriptors."""

    steps: Int64Array
    parts: Int64Array
    descriptors: Int64Array
    default_graph: int


class _ThreadWorkspace(threading.local):
    def __init__(self) -> None:
        self.workspace = Workspace()


_OWN = _ThreadWorkspace()


def run(
    plan: LoweredPlan,
    seeds: BindingTable,
    dataset: Dataset,
    limits: Limits,
    rows_wanted: int | None = None,
    rows_of_steps: list[int] | None = None,
    keep: Callable[[BindingTable], BindingTable] | None = None,
) -> BindingTable:
    """Run a plan from the rows of `seeds` (whose variables are the plan's first) over a dataset.

    rows_wanted: stop once there are this many; rows_of_steps: how many rows each step made is appended to it; keep: a
    filter, applied to blocks of rows. It may not run plans itself: the buffers are in use.
    Raises QueryTimeout, BudgetExceeded.
    """
    if plan.is_void:
        if rows_of_steps is not None:
            rows_of_steps += [0] * len(plan.steps)
        return BindingTable.empty(plan.variables)
    tables = PlanTables(*with_parts(plan, dataset), dataset.descriptors, dataset.default_graph)
    if keep is not None:
        mark = limits.mark()
        chunks = _chunks(tables, seeds.columns, seeds.length, len(plan.variables), limits, OUT_ROWS, rows_of_steps)
        kept, rows = [BindingTable.empty(plan.variables)], 0
        for columns, total in _blocks(chunks, len(plan.variables), limits, rows_wanted):
            kept.append(keep(BindingTable(plan.variables, columns, total)))
            rows += kept[-1].length
            limits.back_to(mark, 8 * rows * len(plan.variables))
            limits.check_rows(rows, ADVICE, "a filtered graph pattern")
            if rows_wanted is not None and rows >= rows_wanted:
                break
        chunks.close()
        if len(kept) == 2:
            return kept[1]
        return BindingTable(
            plan.variables, tuple(map(put_together, zip(*(t.columns for t in kept), strict=True))), rows
        )
    columns, total = run_tables(
        tables, seeds.columns, seeds.length, len(plan.variables), limits, rows_wanted, rows_of_steps
    )
    return BindingTable(plan.variables, columns, total)


def run_in_pieces(
    plan: LoweredPlan, seeds: BindingTable, dataset: Dataset, limits: Limits, rows: int
) -> Iterator[BindingTable]:
    """Do the same as run, and yield about so many rows at a time, one table at least. Other plans may run meanwhile:
    the buffers are its own.

    A piece is held until the next one is asked for. Raises QueryTimeout, BudgetExceeded."""
    width, is_empty = len(plan.variables), True
    if not plan.is_void:
        tables = PlanTables(*with_parts(plan, dataset), dataset.descriptors, dataset.default_graph)
        mark = limits.mark()
        room = min(OUT_ROWS, rows)
        chunks = _chunks(tables, seeds.columns, seeds.length, width, limits, room, None, Workspace())
        for columns, total in _blocks(chunks, width, limits, None, rows):
            is_empty, cost = False, limits.mark() - mark
            yield BindingTable(plan.variables, columns, total)
            limits.give_back(cost)
            mark = limits.mark()
    if is_empty:
        yield BindingTable.empty(plan.variables)


def run_tables(
    tables: PlanTables,
    seeds: Sequence[Int64Array],
    length: int,
    width: int,
    limits: Limits,
    rows_wanted: int | None = None,
    rows_of_steps: list[int] | None = None,
) -> tuple[tuple[Int64Array, ...], int]:
    """Run steps from so many rows to columns, `width` of them; return also their length. Otherwise as run."""
    room = OUT_ROWS if rows_wanted is None else min(OUT_ROWS, max(1, rows_wanted))
    chunks = _chunks(tables, seeds, length, width, limits, room, rows_of_steps)
    gathered: list[Int64Array] = []
    total = 0
    for chunk in chunks:
        total += chunk.shape[1]
        limits.check_rows(total, ADVICE, "a basic graph pattern")
        gathered.append(chunk)
        if rows_wanted is not None and total >= rows_wanted:
            break
    chunks.close()
    return _columns(gathered, width, total, limits), total


def _chunks(
    tables: PlanTables,
    seeds: Sequence[Int64Array],
    length: int,
    width: int,
    limits: Limits,
    room: int,
    rows_of_steps: list[int] | None,
    workspace: Workspace | None = None,
) -> Generator[Int64Array]:
    """Run steps from so many rows; yield int64[width, n] with up to `room` rows at a time, at least once. workspace:
    None for that of the thread."""
    workspace = workspace or _OWN.workspace
    n, width = len(tables.steps), max(1, width)
    part_rows = np.empty(len(tables.parts), np.int64)
    limits.hold(8 * length * width)
    start = np.empty((length, width), np.int64)
    for first, last in pieces(length, limits):
        for at, column in enumerate(seeds):
            start[first:last, at] = column[first:last]
    between, out = workspace.tables_for(n - 1, width), workspace.out_for(width)[:room]
    if between.nbytes > FREE_BYTES:
        limits.hold(between.nbytes)
    state = np.zeros((n + 1, layout.STATE_WIDTH), np.int64)
    state[n, layout.FUEL] = FUEL
    start_step(state, 0, length)
    control = np.zeros(2, np.int64)
    total = 0
    status = layout.PAUSED
    try:
        while status != layout.DONE:
            control[1] = CHUNKS_PER_CALL
            status = run_plan(
                tables.steps,
                tables.parts,
                part_rows,
                tables.descriptors,
                tables.default_graph,
                start,
                between,
                out,
                state,
                workspace.spans_for(n),
                workspace.value_spans,
                control,
            )
            if status == layout.NEED_SPANS:
                workspace.grow_spans()
                state[:n, layout.HELD] = layout.NOT_STARTED
            elif status != layout.PAUSED:
                rows = int(state[n, layout.COUNT])
                state[n, layout.COUNT] = 0
                total += rows
                limits.hold(16 * rows * width)  # here, and in the columns of the result
                yield out[:rows].T.copy()
            limits.check()
    finally:
        if rows_of_steps is not None:
            rows_of_steps += [*state[: n - 1, layout.PASSED].tolist(), total]


def _blocks(
    chunks: Iterator[Int64Array], width: int, limits: Limits, rows_wanted: int | None, rows: int = BLOCK_ROWS
) -> Iterator[tuple[tuple[Int64Array, ...], int]]:
    """Put chunks together to blocks of so many rows: (columns, rows). If few rows are wanted, the first blocks are
    small."""
    size = rows if rows_wanted is None else OUT_ROWS
    gathered: list[Int64Array] = []
    total = 0
    for chunk in chunks:
        gathered.append(chunk)
        total += chunk.shape[1]
        if total >= size:
            yield _columns(gathered, width, total, limits), total
            gathered, total, size = [], 0, min(2 * size, rows)
    if total:
        yield _columns(gathered, width, total, limits), total


def _columns(gathered: list[Int64Array], width: int, total: int, limits: Limits) -> tuple[Int64Array, ...]:
    """Put the columns of some chunks together, column by column."""
    if len(gathered) == 1:
        return tuple(gathered[0][:width])
    columns = [np.empty(total, np.int64) for _ in range(width)]  # apart, so that one can be freed without others
    at = 0
    for number, chunk in enumerate(gathered):
        for column, values in zip(columns, chunk, strict=False):
            column[at : at + len(values)] = values
        at += chunk.shape[1]
        if number % 64 == 0:
            limits.check()
    return tuple(columns)
