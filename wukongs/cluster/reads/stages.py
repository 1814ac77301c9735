"""Stages: the steps of a plan, cut at what one node can look up in one go.

In a *joint* stage all triples of a row's steps stand with one node: the one that answers for the row's *home*, the end
by which the steps find them. So the row can be sent there, and its results come back (fork-join). Other stages hold
windows, or triples that are spread over the nodes.

In place, a stage falls into pieces, each a call of the kernel. A new piece begins with a step that looks up, in the
stored graph, keys that earlier steps of the stage bind: these keys have to be known before their triples can be
fetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wukongs.cluster.reads.asking import Graphs, stored_rows
from wukongs.cluster.reads.requests import OPERANDS, SharePlan, new_columns
from wukongs.csparql.algebra import GraphRef
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.store.dtypes import NO_MATCH, OUT, Int64Array
from wukongs.wire.assignment import Assignment

PLANS_KEPT = 64
Home = tuple[bool, int]
"""(whether it is a column, the column or the id)"""


@dataclass(frozen=True, eq=False)
class Stage:
    """plan: its steps; bound: columns of the rows that it starts from; home: None if it is not joint; graphs: the
    stored ones that each step looks into."""

    plan: LoweredPlan
    pieces: tuple[LoweredPlan, ...]
    bound: int
    home: Home | None
    graphs: tuple[Graphs, ...]

    @cached_property
    def needed(self) -> list[int]:
        """The columns of the rows that the steps look at, in order."""
        used = {int(step[at]) for step in self.plan.steps for kind, at in OPERANDS if step[kind] == layout.BOUND}
        return sorted(column for column in used if column < self.bound)

    @cached_property
    def made(self) -> int:
        """How many columns the steps bind."""
        return new_columns(self.plan.steps)

    @cached_property
    def sent(self) -> tuple[Int64Array, Int64Array]:
        """The steps over what is sent to other nodes, (number of the row, the columns needed), and the graphs of each,
        as SharePlan has them."""
        new = range(self.bound, len(self.plan.variables))
        places = {column: place for place, column in enumerate([*self.needed, *new], 1)}
        steps = self.plan.steps.copy()
        stored: list[Int64Array] = []
        for step, graphs in zip(steps, self.graphs, strict=True):
            for kind, at in OPERANDS:
                if step[kind] in (layout.BOUND, layout.NEW, layout.SAME):
                    step[at] = places[int(step[at])]
            step[layout.PARTS_FROM] = sum(map(len, stored))
            step[layout.PARTS_TO] = step[layout.PARTS_FROM] + len(graphs)
            step[layout.UNION] = step[layout.HIDING] = 0
            stored.append(stored_rows(graphs))
        return steps, np.concatenate(stored)

    @cached_property
    def plans(self) -> dict[tuple[Assignment, int], SharePlan]:
        """The plans that nodes were asked to run, under some assignments."""
        return {}

    def plan_for(self, assignment: Assignment, node: int) -> SharePlan:
        """Return what a node is asked to run, for the shards that it answers for."""
        plan = self.plans.get((assignment, node))
        if plan is None:
            if len(self.plans) >= PLANS_KEPT:
                self.plans.clear()
            steps, stored = self.sent
            plan = SharePlan(steps, stored, assignment.shards(node), assignment.split_ids, 1 + len(self.needed))
            self.plans[assignment, node] = plan
        return plan


def stages_of(plan: LoweredPlan, bound: int, dataset: Dataset, split: frozenset[int]) -> list[Stage]:
    """Cut a plan that starts from so many columns. The last outcome is kept in the plan."""
    parts = [
        [(part.graph, part.batches is dataset.stored) for part in dataset.source(graph).parts] for graph in plan.graphs
    ]
    key = bound, split, parts
    for known, stages in plan.cut:
        if known == key:
            found: list[Stage] = stages
            return found
    plan.cut[:] = [(key, _stages_of(plan, bound, dataset, split))]
    made: list[Stage] = plan.cut[0][1]
    return made


def _stages_of(plan: LoweredPlan, bound: int, dataset: Dataset, split: frozenset[int]) -> list[Stage]:
    def stage(piece: LoweredPlan, pieces: Sequence[LoweredPlan], home: Home | None) -> Stage:
        graphs = tuple(stored_graphs(graph, dataset) for graph in piece.graphs)
        return Stage(piece, tuple(pieces), bound, home, graphs)

    homes = [home_of(step, graph, dataset, split) for step, graph in zip(plan.steps, plan.graphs, strict=True)]
    stages: list[Stage] = []
    start, columns = 0, bound
    for at, step in enumerate(plan.steps):
        columns += new_columns(step)
        if at + 1 < len(plan.steps) and homes[at + 1] == homes[at]:
            continue
        pieces = list(_cut(plan, start, at + 1, bound, dataset))
        if homes[at] is None:
            stages += [stage(piece, (piece,), None) for piece in pieces]
        else:
            stages.append(stage(_piece(plan, start, at + 1, columns), pieces, homes[at]))
        start, bound = at + 1, columns
    return stages


def home_of(step: Int64Array, graph: GraphRef, dataset: Dataset, split: frozenset[int]) -> Home | None:
    """Return the home of the rows of a step, None if no one node can answer it for a row."""
    if not all(part.batches is dataset.stored for part in dataset.source(graph).parts):
        return None
    graphs = stored_graphs(graph, dataset)
    if not graphs or min(graphs) < layout.ALL_NAMED:  # a hidden graph has the name of a view here alone
        return None
    is_constant = step[layout.PREDICATE_KIND] == layout.CONSTANT
    kind_at, at = layout.KEY_KIND, layout.KEY
    if step[layout.DIRECTION] != OUT and (not is_constant or int(step[layout.PREDICATE]) in split):
        if step[layout.KEY_KIND] != layout.NEW or not is_constant:
            return None
        kind_at, at = layout.VALUE_KIND, layout.VALUE
    return bool(step[kind_at] != layout.CONSTANT), int(step[at])


def stored_graphs(graph: GraphRef, dataset: Dataset) -> Graphs:
    """Return the stored graphs among what a graph reference stands for."""
    parts = dataset.source(graph).parts
    return tuple(part.graph for part in parts if part.batches is dataset.stored and part.graph != NO_MATCH)


def _cut(plan: LoweredPlan, start: int, stop: int, bound: int, dataset: Dataset) -> Iterator[LoweredPlan]:
    columns = bound
    for at in range(start, stop):
        step = plan.steps[at]
        operands = (
            (layout.KEY_KIND, layout.KEY),
            (layout.PREDICATE_KIND, layout.PREDICATE),
            (layout.VALUE_KIND, layout.VALUE),
        )
        looked_up = [int(step[reference]) for kind, reference in operands if step[kind] == layout.BOUND]
        if max(looked_up, default=-1) >= bound and stored_graphs(plan.graphs[at], dataset):
            yield _piece(plan, start, at, columns)
            start, bound = at, columns
        columns += new_columns(step)
    yield _piece(plan, start, stop, columns)


def _piece(plan: LoweredPlan, start: int, stop: int, columns: int) -> LoweredPlan:
    if start == 0 and stop == len(plan.steps):
        return plan
    return LoweredPlan(plan.steps[start:stop], plan.graphs[start:stop], plan.variables[:columns], False)
