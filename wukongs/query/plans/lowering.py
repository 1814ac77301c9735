"""From plan steps to the tables of the kernel: columns for variables, ids for constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wukongs.csparql.algebra import TermOrVariable, graph_variable
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.terms import Term, Variable
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.store.dtypes import NO_MATCH, Int64Array


def lower(plan: Sequence[PlanStep], seeds: Sequence[Variable], dataset: Dataset) -> LoweredPlan:
    """Number the columns (the seeds' first) and write each step as a row of operands.

    Constants get the ids by which the data knows them now. Lower again when a new term may have changed one.
    """
    columns = {variable: at for at, variable in enumerate(seeds)}
    steps = np.zeros((len(plan), layout.STEP_WIDTH), np.int64)
    for row, step in zip(steps, plan, strict=True):
        fresh: set[Variable] = set()

        def operand(part: TermOrVariable, fresh: set[Variable] = fresh) -> tuple[int, int]:
            if isinstance(part, Term):
                return layout.CONSTANT, dataset.resolve(part)
            if part in fresh:
                return layout.SAME, columns[part]
            if part in columns:
                return layout.BOUND, columns[part]
            fresh.add(part)
            columns[part] = len(columns)
            return layout.NEW, columns[part]

        pattern = step.pattern
        ends = (pattern.subject, pattern.object)
        is_bound = [isinstance(end, Term) or end in columns for end in ends]
        outward = step.direction == "out"
        if is_bound[0] != is_bound[1]:
            outward = is_bound[0]  # only the bound end can be looked up
        key, value = ends if outward else ends[::-1]
        row[layout.DIRECTION] = 0 if outward else 1
        row[layout.KEY_KIND], row[layout.KEY] = operand(key)
        row[layout.PREDICATE_KIND], row[layout.PREDICATE] = operand(pattern.predicate)
        row[layout.VALUE_KIND], row[layout.VALUE] = operand(value)
        graph = graph_variable(pattern.graph)
        row[layout.GRAPH_KIND], row[layout.GRAPH] = (layout.ANY, 0) if graph is None else operand(graph)
    kinds = steps[:, [layout.KEY_KIND, layout.PREDICATE_KIND, layout.VALUE_KIND]]
    ids = steps[:, [layout.KEY, layout.PREDICATE, layout.VALUE]]
    is_void = bool(((kinds == layout.CONSTANT) & (ids == NO_MATCH)).any())
    return LoweredPlan(steps, tuple(step.pattern.graph for step in plan), tuple(columns), is_void)


def with_parts(plan: LoweredPlan, dataset: Dataset) -> tuple[Int64Array, Int64Array]:
    """Return (steps, parts) for the kernel: the plan's steps pointed at the batches that the dataset has now. They are
    kept for the next dataset with the same number of batches: nobody may change them."""
    shapes = tuple(map(dataset.shape, plan.graphs))
    for known, steps, parts in plan.laid_out:
        if known == shapes:
            return steps, parts
    steps = plan.steps.copy()
    found: list[Int64Array] = []
    count = 0
    for row, graph, shape in zip(steps, plan.graphs, shapes, strict=True):
        # Steps that look at the same graph have parts of their own: the kernel notes directory rows beside them.
        found.append(dataset.parts(graph))
        row[layout.PARTS_FROM], row[layout.PARTS_TO] = count, count + len(found[-1])
        row[layout.UNION], row[layout.HIDING] = shape.united, shape.hiding
        count += len(found[-1])
    parts = np.concatenate(found) if found else np.empty((0, layout.PART_WIDTH), np.int64)
    plan.laid_out[:] = [(shapes, steps, parts)]
    return steps, parts
