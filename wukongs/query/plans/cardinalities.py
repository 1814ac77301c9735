"""How large things are, for the planner: counted in the arrangements and windows of a dataset, or tried on a few."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wukongs.csparql.algebra import GraphRef, TriplePattern
from wukongs.csparql.cardinality import Direction
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans.dataset import Dataset, Part
from wukongs.query.plans.lowering import lower
from wukongs.query.plans.plan_layout import ALL_NAMED
from wukongs.query.plans.plan_runner import run
from wukongs.store.directory_kernels import count_graph, count_named_degree, count_named_edges, count_vertex_edges
from wukongs.store.dtypes import NO_MATCH, Int64Array
from wukongs.store.lookup_kernels import count_degree, count_distinct_keys, count_edges

NAMES_ASKED_MAX = 64
"""A constant's degree in any named graph, or under any predicate, is looked up in so many of the graphs and predicates
that know it. The others are taken to have the same."""
KEYS_SAMPLED_MAX = 32
"""So many keys of a predicate are looked up in other batches."""
ROWS_SAMPLED_MAX = 64
"""So many rows of a pattern are looked up: which of their values match another pattern."""
VALUES_MIN = 8
"""Fewer values tell nothing of the others, if there are any."""
NONE_COUNTS = 0.5
"""No value of a sample that matches is taken for half a one."""


class DatasetCardinalities:
    """Answers the planner from the arrangements and windows of a dataset (csparql.cardinality.Cardinalities)."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._counts: dict[tuple[GraphRef, Term | None], tuple[float, float, float]] = {}
        self._shares: dict[tuple[TriplePattern, Variable, TriplePattern], float | None] = {}

    def edges(self, graph: GraphRef, predicate: Term | None) -> float:
        return self._count(graph, predicate)[0]

    def keys(self, graph: GraphRef, predicate: Term | None, direction: Direction) -> float:
        return self._count(graph, predicate)[1 if direction == "out" else 2]

    def degree(self, graph: GraphRef, predicate: Term | None, direction: Direction, vertex: Term) -> float:
        side = 0 if direction == "out" else 1
        default, wanted = self._dataset.default_graph, self._dataset.resolve(vertex)
        label = None if predicate is None else self._dataset.resolve(predicate)
        total = 0.0
        if NO_MATCH in (wanted, label):
            return total
        for part in self._dataset.source(graph).parts:
            batches, share = self._dataset.sample(part)
            descriptors = batches.descriptors
            if label is None:
                held = count_vertex_edges(descriptors, part.graph, default, side, wanted, NAMES_ASKED_MAX)
            elif part.graph == ALL_NAMED:
                held = count_named_degree(descriptors, default, label, side, wanted, NAMES_ASKED_MAX)
            else:
                held = count_degree(descriptors, part.graph, label, side, wanted)
            total += held if share == 1 else self._scaled(held, wanted)
        return total

    def _scaled(self, held: float, vertex: int) -> float:
        """Return about how many triples a vertex has, of which this node holds so many. The node holds all of them if
        it answers for the vertex; else it holds those whose other end it answers for. Zero of a few says little."""
        completion = self._dataset.completion
        assert completion is not None
        if completion.answers_for(np.array([vertex], np.int64))[0]:
            return held
        return max(held, 1) / completion.answered

    def share(self, found: TriplePattern, variable: Variable, asked: TriplePattern) -> float | None:
        """Return the share among the first values that a scan meets. Ids are hashes, so these values are as good a
        sample of the oldest batch as any others."""
        key = found, variable, asked
        if key not in self._shares:
            self._shares[key] = self._sampled_share(*key)
        return self._shares[key]

    def _sampled_share(self, found: TriplePattern, variable: Variable, asked: TriplePattern) -> float | None:
        scan = PlanStep(found, "out" if found.subject == variable else "in", 1.0)
        scanned = self._run(scan, BindingTable.unit(), ROWS_SAMPLED_MAX)
        values = np.unique(scanned.column(variable))
        if self._dataset.completion is not None:
            values = values[self._dataset.completion.answers_for(values)]  # of others the matches may not be here
        is_all = scanned.length < ROWS_SAMPLED_MAX
        if not len(values) or (len(values) < VALUES_MIN and not is_all):
            return None
        kept = self._run(PlanStep(asked, "out", 1.0), BindingTable((variable,), (values,), len(values)))
        return max(len(np.unique(kept.column(variable))), NONE_COUNTS) / len(values)

    def _run(self, step: PlanStep, seeds: BindingTable, rows_wanted: int | None = None) -> BindingTable:
        return run(lower((step,), seeds.variables, self._dataset), seeds, self._dataset, Limits(), rows_wanted)

    def _count(self, graph: GraphRef, predicate: Term | None) -> tuple[float, float, float]:
        """Return (triples, out keys, in keys), summed over the parts of a graph."""
        found = self._counts.get((graph, predicate))
        if found is None:
            wanted = None if predicate is None else self._dataset.resolve(predicate)
            parts = self._dataset.source(graph).parts
            counts = [self._count_in(part, wanted) for part in parts]
            edges, keys_out, keys_in = (sum(each[at] for each in counts) for at in range(3))
            if predicate is None and self._dataset.clause.only is None:  # vertices are counted over all graphs
                # A subject counts once for each of its predicates, but has its place among the vertices only once.
                keys_out = min(keys_out, sum(self._vertices_in(part) for part in parts))
            found = self._counts[graph, predicate] = (float(edges), float(keys_out), float(keys_in))
        return found

    def _vertices_in(self, part: Part) -> float:
        batches, share = self._dataset.sample(part)
        return sum(batch.vertex_count() for batch in batches.batches) / share

    def _count_in(self, part: Part, predicate: int | None) -> Sequence[float]:
        batches, share = self._dataset.sample(part)
        counts = self._held_in(batches.descriptors, part, predicate)
        return counts if share == 1 else [count / share for count in counts]

    def _held_in(self, descriptors: Int64Array, part: Part, predicate: int | None) -> Sequence[float]:
        default = self._dataset.default_graph
        if predicate is None:
            found = count_graph(descriptors, part.graph, default)
        elif part.graph == ALL_NAMED:
            found = count_named_edges(descriptors, default, predicate)
        else:
            found = count_edges(descriptors, part.graph, predicate)
            if len(descriptors) > 1:
                # A user who posts is in many batches of a window, each post in one.
                keys = (
                    count_distinct_keys(descriptors, part.graph, predicate, side, KEYS_SAMPLED_MAX) for side in (0, 1)
                )
                return [float(found[0]), *keys]
        counts: list[float] = found.tolist()
        return counts
