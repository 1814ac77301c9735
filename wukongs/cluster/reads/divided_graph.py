"""DividedGraph: the stored graph of one execution, of which this node holds a share: wukongs.query.plans.dataset.

*In place*: before a step is run, the triples that it will look up and that are not here are fetched. One question goes
to each node that answers for some of the missing keys, once per execution. The fetched triples become batches beside
the node's own, and the ordinary kernel runs over all of them. This is right because the batches are

* complete: a triple stands with the node that answers for its subject, and with the node that answers for its object
  unless its predicate is split. So a key's triples are here if this node answers for the key. Otherwise they are
  fetched from the node that does. The in-edges of a split predicate (or of any, which may be split) are fetched from
  all nodes, each for its own subjects.
* true: fetched triples are triples of the snapshot, as a node sees them. A triple may stand in several batches, and
  steps over them unite: it matches once.
* in order: the changes of an update that is not sealed come last, so that their tombstones hide fetched triples too.
  The tombstones of the node's own trace come before the fetched triples, and hide none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from wukongs.cluster.reads import closure
from wukongs.cluster.reads.asking import Graphs
from wukongs.cluster.reads.fetched_graph import PREDICATES_MAX, FetchedGraph
from wukongs.cluster.reads.fork_join import ForkJoin
from wukongs.cluster.reads.stages import Stage, stages_of, stored_graphs
from wukongs.csparql.algebra import GraphRef
from wukongs.csparql.automaton import Automaton, Link
from wukongs.csparql.explain import Moved
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans import plan_runner
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.query.plans.lowering import lower
from wukongs.query.rows import distinct_rows
from wukongs.store.dtypes import OUT, Int64Array
from wukongs.store.tombstones import Difference

ROWS_AT_A_TIME = 1 << 16
"""So many rows go through the steps of a plan together: what lies between steps is bounded by what these lead to."""
MADE, FETCHED, FORKED, REQUESTS = range(4)
"""Figures of each step: the rows that it has made, whether triples were fetched for it, whether it was sent to other
nodes; then the requests, rows and bytes that moved."""
FIGURES = 6


class DividedGraph(FetchedGraph):
    """A FetchedGraph that is a wukongs.query.plans.dataset.Completion."""

    _figures = np.zeros((0, FIGURES), np.int64)

    def with_change(self, change: Difference) -> DividedGraph:
        """Return the same graph, with another change on top; what one of them fetches both have."""
        other = DividedGraph(self.asking, self.base, change)
        other.share_fetched(self)
        return other

    @property
    def moved(self) -> list[Moved]:
        """The traffic of each step of the last run."""
        found = []
        for _, is_fetched, is_forked, *numbers in self._figures.tolist():
            ways = ("fork-join",) * is_forked + ("in place",) * is_fetched
            found.append(Moved(ways, *numbers))
        return found

    def way(self, dataset: Dataset, step: PlanStep, bound: frozenset[Variable], rows: float) -> str:
        """Return how a step would come to the triples of other nodes, from about so many rows that bind variables."""
        if not stored_graphs(step.pattern.graph, dataset):
            return "here"
        seeds = BindingTable.empty(tuple(bound))
        [stage, *_] = stages_of(lower((step,), seeds.variables, dataset), len(bound), dataset, self.assignment.split)
        if stage.home is not None and not stage.home[0] and self.answers_for(np.array([stage.home[1]], np.int64))[0]:
            return "here"
        return "fork-join" if ForkJoin(stage, seeds, self, dataset).would_pay(rows) else "in place"

    # --- plans --------------------------------------------------------------------------------------------------------

    def run(
        self,
        plan: LoweredPlan,
        seeds: BindingTable,
        dataset: Dataset,
        limits: Limits,
        rows_wanted: int | None = None,
        rows_of_steps: list[int] | None = None,
    ) -> BindingTable:
        """Run a plan as plan_runner.run does, over the whole graph."""
        if plan.is_void:
            return plan_runner.run(plan, seeds, dataset, limits, rows_wanted, rows_of_steps)
        figures = np.zeros((len(plan.steps), FIGURES), np.int64)
        self._figures = figures
        stages = stages_of(plan, len(seeds.variables), dataset, self.assignment.split)
        found = self._run(stages, seeds, dataset, limits, rows_wanted, figures)
        self.asking.is_last = False
        if rows_of_steps is not None:
            rows_of_steps += figures[:, MADE].tolist()
        return BindingTable(plan.variables, found.columns, found.length)

    def _run(
        self,
        stages: Sequence[Stage],
        seeds: BindingTable,
        dataset: Dataset,
        limits: Limits,
        rows_wanted: int | None,
        figures: npt.NDArray[np.int64],
    ) -> BindingTable:
        stage, rest = stages[0], stages[1:]
        n_steps = len(stage.plan.steps)
        found: list[BindingTable] = []
        length = 0
        for start in range(0, seeds.length, ROWS_AT_A_TIME):
            rows = seeds
            if seeds.length > ROWS_AT_A_TIME:
                rows = seeds.take(np.arange(start, min(start + ROWS_AT_A_TIME, seeds.length)))
            wanted = None if rows_wanted is None else rows_wanted - length
            self.asking.is_last = not rest
            table = self._stage(stage, rows, dataset, limits, None if rest else wanted, figures[:n_steps])
            if rest and table.length:
                table = self._run(rest, table, dataset, limits, wanted, figures[n_steps:])
            if table.length:
                found.append(table)
            length += table.length
            limits.check_rows(length, "Let its patterns share variables, or start from a constant", "a pattern")
            if rows_wanted is not None and length >= rows_wanted:
                break
        return put_together(stages[-1].plan.variables, found, limits)

    def _stage(
        self,
        stage: Stage,
        rows: BindingTable,
        dataset: Dataset,
        limits: Limits,
        rows_wanted: int | None,
        figures: npt.NDArray[np.int64],
    ) -> BindingTable:
        """Run the steps of a stage for some rows: with the nodes that can answer them, or here."""
        fork_join = ForkJoin(stage, rows, self, dataset)
        if fork_join.is_here:
            return self._here(stage, rows, dataset, limits, rows_wanted, figures)
        if fork_join.is_better(rows_wanted):
            before = self.asking.traffic.numbers()
            here, found = fork_join.run(limits, rows_wanted, figures[:, MADE])
            figures[:, FORKED] = 1
            figures[0, REQUESTS:] += self.asking.traffic.numbers() - before
            if here is not None:
                found.append(self._here(stage, here, dataset, limits, rows_wanted, figures))
            return put_together(stage.plan.variables, found, limits)
        return self._in_place(stage, rows, dataset, limits, rows_wanted, figures)

    def _here(
        self,
        stage: Stage,
        rows: BindingTable,
        dataset: Dataset,
        limits: Limits,
        rows_wanted: int | None,
        figures: npt.NDArray[np.int64],
    ) -> BindingTable:
        """Run a joint stage for rows whose homes this node answers for."""
        made: list[int] = []
        found = plan_runner.run(stage.plan, rows, dataset, limits, rows_wanted, made)
        figures[:, MADE] += made
        return found

    def _in_place(
        self,
        stage: Stage,
        rows: BindingTable,
        dataset: Dataset,
        limits: Limits,
        rows_wanted: int | None,
        figures: npt.NDArray[np.int64],
    ) -> BindingTable:
        """Fetch what each piece of a stage will look up, and run it here."""
        at = 0
        for piece in stage.pieces:
            for number, (step, graph) in enumerate(zip(piece.steps, piece.graphs, strict=True), at):
                before = self.asking.traffic.numbers()
                self._complete_step(step, rows, stored_graphs(graph, dataset), dataset)
                moved = self.asking.traffic.numbers() - before
                figures[number, REQUESTS:] += moved
                figures[number, FETCHED] |= moved[0] > 0
            made: list[int] = []
            wanted = rows_wanted if piece is stage.pieces[-1] else None
            rows = plan_runner.run(piece, rows, dataset, limits, wanted, made)
            figures[at : at + len(made), MADE] += made
            at += len(made)
        return rows

    def _complete_step(self, step: Int64Array, rows: BindingTable, graphs: Graphs, dataset: Dataset) -> None:
        """Fetch what one step will look up for some rows."""
        if not graphs:
            return

        def operand(kind_at: int, at: int) -> Int64Array | None:
            if step[kind_at] == layout.CONSTANT:
                return np.array([step[at]], np.int64)
            if step[kind_at] == layout.BOUND:
                return rows.columns[int(step[at])]
            return None

        keys, values = operand(layout.KEY_KIND, layout.KEY), operand(layout.VALUE_KIND, layout.VALUE)
        predicates = operand(layout.PREDICATE_KIND, layout.PREDICATE)
        direction = int(step[layout.DIRECTION])
        if keys is None:
            one = int(predicates[0]) if predicates is not None and len(predicates) == 1 else None
            self.fetch_all(one, graphs, dataset)
            return
        if values is not None:
            # One of the ends is enough. The subject is as good by whichever end the step starts, and never split.
            subjects, objects = np.broadcast_arrays(*((keys, values) if direction == OUT else (values, keys)))
            is_here = self.answers_for(subjects)
            if predicates is not None and not np.isin(predicates, self.asking.split).any():
                is_here |= self.answers_for(objects)
            keys, direction = subjects[~is_here], OUT
            if predicates is not None and len(predicates) > 1:
                predicates = predicates[~is_here] if len(predicates) == len(is_here) else predicates
        self._look_up(keys, direction, predicates, graphs, dataset)

    def _look_up(
        self, keys: Int64Array, direction: int, predicates: Int64Array | None, graphs: Graphs, dataset: Dataset
    ) -> None:
        if predicates is None:
            self.fetch(keys, direction, None, graphs, dataset)
            return
        names = np.unique(predicates)
        if len(names) > PREDICATES_MAX:
            self.fetch(keys, direction, None, graphs, dataset)
            return
        for name in names.tolist():
            some = keys if len(predicates) != len(keys) else keys[predicates == name]
            self.fetch(some, direction, name, graphs, dataset)

    # --- paths --------------------------------------------------------------------------------------------------------

    def follow(self, automaton: Automaton, nodes: Int64Array, graph: GraphRef, dataset: Dataset) -> None:
        """Complete all that a search along a path may meet from some nodes."""
        stored = stored_graphs(graph, dataset)
        if stored:
            closure.follow(automaton, nodes, graph, stored, self, dataset)

    def list_links(self, links: Iterable[Link], graph: GraphRef, dataset: Dataset) -> None:
        """Complete the triples of links, wherever they begin."""
        stored = stored_graphs(graph, dataset)
        for link in links:
            predicate = closure.predicate_of(link, dataset)
            if stored and (predicate is None or predicate >= 0):
                self.fetch_all(predicate, stored, dataset)

    def graphs_of(
        self, nodes: Int64Array, graphs: Int64Array, graph: GraphRef, dataset: Dataset
    ) -> npt.NDArray[np.int64]:
        """Return (number of the node, graph) for each stored graph in which another node sees a triple of it."""
        stored = stored_graphs(graph, dataset)
        known = np.flatnonzero(nodes >= 0)
        if not stored or not len(known):
            return np.empty((0, 2), np.int64)
        found = self.asking.graphs_of(nodes[known], graphs[known], stored, isinstance(graph, Variable))
        return distinct_rows(known[found[0]], found[1])


def put_together(variables: Sequence[Variable], tables: Sequence[BindingTable], limits: Limits) -> BindingTable:
    """Put the rows of tables with the same columns behind one another."""
    tables = [table for table in tables if table.length]
    if not tables:
        return BindingTable.empty(variables)
    if len(tables) == 1:
        return tables[0]
    length = sum(table.length for table in tables)
    limits.hold(8 * length * len(variables))
    columns = tuple(map(np.concatenate, zip(*(table.columns for table in tables), strict=True)))
    return BindingTable(tuple(variables), columns, length)
