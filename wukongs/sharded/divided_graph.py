"""DividedGraph: the stored graph of one execution, of which this node holds a share: wukongs.plans.completion.

*In place*: before a step is run, what it will look up and this node does not hold is fetched: the triples of all keys
that miss, in one question to each node that answers for some of them, once per execution. They become batches beside
the node's own, and the ordinary kernel runs over all of them. Why that is right:

* complete: a triple stands with the node that answers for its subject, and with that for its object unless its
  predicate is split. So a key's triples are here if this node answers for the key; else they are fetched from who does,
  or, of a split predicate (or of any, which may be split) by their object, from all nodes, each for its own subjects.
* true: what is fetched are triples of the snapshot, as a node sees them. Together with the node's own a triple may
  stand in several batches, and steps over them unite: it matches once.
* what an update has changed so far, and is sealed nowhere, comes last, so that its tombstones hide fetched triples too;
  those of the node's own trace come before them, and hide none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from csparql.algebra import GraphRef
from csparql.automaton import Automaton, Link
from csparql.terms import Variable
from store.batch import Batch, build_batch
from store.batch_set import BatchSet
from store.dtypes import IN, NO_MATCH, OUT, BoolArray, Int64Array
from store.graph_change import GraphChange
from store.quads import Quads, graph_quads, joined
from store.tombstones import Difference
from wukongs.binding_table import BindingTable
from wukongs.limits import Limits, current
from wukongs.plans import plan_layout as layout
from wukongs.plans import plan_runner
from wukongs.plans.dataset import Dataset
from wukongs.plans.lowering import LoweredPlan
from wukongs.rows import distinct_rows
from wukongs.sharded import requests
from wukongs.sharded.asking import Asking, Graphs, Triples

ROWS_AT_A_TIME = 1 << 16
"""So many rows go through the steps of a plan together: what lies between steps is bounded by what these lead to."""
PREDICATES_MAX = 16
"""If rows bind more predicates than these, all triples of their keys are fetched."""


class DividedGraph:
    """Of one execution, at one SN. One thread at a time."""

    def __init__(self, asking: Asking, own: BatchSet, change: Difference | None = None) -> None:
        """own: what this node holds at the SN; change: of which nothing is sealed, read on top of all."""
        self._asking = asking
        self._assignment = asking.assignment
        self._change = change
        self._base = own
        self.share = max(float((self._assignment.nodes == self._assignment.me).mean()), 1e-3)
        self._fetched: list[Batch] = []
        self._known: dict[tuple[int, int | None, Graphs], Int64Array] = {}
        """By direction, predicate and graphs, the keys whose triples have been fetched, sorted."""
        self._listed: set[tuple[int | None, Graphs]] = set()
        """Predicates and graphs of which all triples have been fetched."""
        self._names: Int64Array | None = None

    @property
    def own(self) -> BatchSet:
        """What this node holds itself, with the change on top."""
        return self._base if self._change is None else self._read((), self._change)

    @property
    def stored(self) -> BatchSet:
        """What is here by now, with the change on top."""
        return self._read(tuple(self._fetched), self._change)

    def _read(self, fetched: tuple[Batch, ...], change: Difference | None) -> BatchSet:
        come, gone = change or (None, None)
        return self._base if not fetched and come is None else self._base.followed_by(fetched, come, gone)

    def with_change(self, change: Difference) -> DividedGraph:
        """Return the same graph, what is here by now included, with another change on top."""
        other = DividedGraph(self._asking, self._base, change)
        other._fetched, other._known, other._listed = self._fetched, self._known, self._listed
        return other

    def complete_graph(self, graph: int) -> None:
        """Fetch all triples of a graph."""
        self._list(None, (graph,), None)

    def snapshot_for(self, change: GraphChange) -> BatchSet:
        """Return what is here by now without a change, once it holds all that a change of it rests on."""
        (graphs, subjects, predicates, _), cleared = change.needs()
        for graph in cleared.tolist():
            self.complete_graph(graph)
        for graph, predicate in np.unique(np.stack((graphs, predicates), axis=1), axis=0).tolist():
            keys = subjects[(graphs == graph) & (predicates == predicate)]
            self._fetch_keys(keys, OUT, predicate, (graph,), None)
        return self._read(tuple(self._fetched), None)

    def answers_for(self, ids: Int64Array) -> BoolArray:
        """Tell of each id (>= 0) whether this node answers for it."""
        found: BoolArray = self._assignment.of(ids) == self._assignment.me
        return found

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
        """As plan_runner.run, over the whole graph."""
        if plan.is_void:
            return plan_runner.run(plan, seeds, dataset, limits, rows_wanted, rows_of_steps)
        counts = np.zeros(len(plan.steps), np.int64)
        found = self._run(
            list(self._cut(plan, len(seeds.variables), dataset)), seeds, dataset, limits, rows_wanted, counts
        )
        if rows_of_steps is not None:
            rows_of_steps += counts.tolist()
        return BindingTable(plan.variables, found.columns, found.length)

    def _cut(self, plan: LoweredPlan, bound: int, dataset: Dataset) -> Iterator[LoweredPlan]:
        """Cut a plan before each step that looks up, in the stored graph, what the steps since the last cut bind."""
        start, columns = 0, bound
        for at, (step, graph) in enumerate(zip(plan.steps, plan.graphs, strict=True)):
            looked_up = [int(step[layout.KEY])] if step[layout.KEY_KIND] == layout.BOUND else []
            if step[layout.PREDICATE_KIND] == layout.BOUND:
                looked_up.append(int(step[layout.PREDICATE]))
            if step[layout.VALUE_KIND] == layout.BOUND:
                looked_up.append(int(step[layout.VALUE]))
            if max(looked_up, default=-1) >= bound and _stored_graphs(graph, dataset):
                yield _piece(plan, start, at, columns)
                start, bound = at, columns
            columns += int((step[[kind for kind, _ in requests.OPERANDS]] == layout.NEW).sum())
        yield _piece(plan, start, len(plan.steps), columns)

    def _run(
        self,
        pieces: Sequence[LoweredPlan],
        seeds: BindingTable,
        dataset: Dataset,
        limits: Limits,
        rows_wanted: int | None,
        counts: Int64Array,
    ) -> BindingTable:
        piece, rest = pieces[0], pieces[1:]
        found: list[BindingTable] = []
        length = 0
        for start in range(0, seeds.length, ROWS_AT_A_TIME):
            rows = seeds
            if seeds.length > ROWS_AT_A_TIME:
                rows = seeds.take(np.arange(start, min(start + ROWS_AT_A_TIME, seeds.length)))
            for step, graph in zip(piece.steps, piece.graphs, strict=True):
                self._complete_step(step, rows, _stored_graphs(graph, dataset), dataset)
            wanted = None if rows_wanted is None else rows_wanted - length
            made: list[int] = []
            table = plan_runner.run(piece, rows, dataset, limits, None if rest else wanted, made)
            counts[: len(made)] += made
            if rest and table.length:
                table = self._run(rest, table, dataset, limits, wanted, counts[len(made) :])
            if table.length:
                found.append(table)
            length += table.length
            limits.check_rows(length, "Let its patterns share variables, or start from a constant", "a pattern")
            if rows_wanted is not None and length >= rows_wanted:
                break
        variables = pieces[-1].variables
        if not found:
            return BindingTable.empty(variables)
        if len(found) == 1:
            return found[0]
        limits.hold(8 * length * len(variables))
        columns = tuple(map(np.concatenate, zip(*(table.columns for table in found), strict=True)))
        return BindingTable(variables, columns, length)

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
            self._list(int(predicates[0]) if predicates is not None and len(predicates) == 1 else None, graphs, dataset)
            return
        if values is not None:
            # One of the ends is enough. The subject is as good by whichever end the step starts, and never split.
            subjects, objects = np.broadcast_arrays(*((keys, values) if direction == OUT else (values, keys)))
            is_here = self.answers_for(subjects)
            if predicates is not None and not np.isin(predicates, self._asking.split).any():
                is_here |= self.answers_for(objects)
            keys, direction = subjects[~is_here], OUT
            if predicates is not None and len(predicates) > 1:
                predicates = predicates[~is_here] if len(predicates) == len(is_here) else predicates
        self._look_up(keys, direction, predicates, graphs, dataset)

    def _look_up(
        self, keys: Int64Array, direction: int, predicates: Int64Array | None, graphs: Graphs, dataset: Dataset
    ) -> None:
        if predicates is None:
            self._fetch_keys(keys, direction, None, graphs, dataset)
            return
        names = np.unique(predicates)
        if len(names) > PREDICATES_MAX:
            self._fetch_keys(keys, direction, None, graphs, dataset)
            return
        for name in names.tolist():
            some = keys if len(predicates) != len(keys) else keys[predicates == name]
            self._fetch_keys(some, direction, name, graphs, dataset)

    # --- what is fetched ----------------------------------------------------------------------------------------------

    def _fetch_keys(
        self, keys: Int64Array, direction: int, predicate: int | None, graphs: Graphs, dataset: Dataset | None
    ) -> None:
        """Fetch the triples of those of some keys that are not here."""
        if not self._listed.isdisjoint(((predicate, graphs), (None, graphs))):
            return
        missing = np.unique(keys)
        missing = missing[missing >= 0]
        spread = direction == IN and (predicate is None or predicate in self._assignment.split)
        if not spread:
            missing = missing[~self.answers_for(missing)]
        for known in ((direction, predicate, graphs), (direction, None, graphs)):
            if len(missing) and known in self._known:
                missing = np.setdiff1d(missing, self._known[known], assume_unique=True)
        if len(missing):
            place = direction, predicate, graphs
            self._add(self._asking.triples(missing, direction, predicate, graphs, spread), dataset)
            known_keys = self._known.get(place)
            self._known[place] = missing if known_keys is None else np.union1d(known_keys, missing)

    def _list(self, predicate: int | None, graphs: Graphs, dataset: Dataset | None) -> None:
        """Fetch all triples of a predicate, or of all."""
        if self._listed.isdisjoint(((predicate, graphs), (None, graphs))):
            self._add(self._asking.all_triples(predicate, graphs), dataset)
            self._listed.add((predicate, graphs))

    def _add(self, quads: Quads, dataset: Dataset | None) -> None:
        """Put fetched triples beside those that are here."""
        if not len(quads[0]):
            return
        current().keep(2 * 4 * 8 * len(quads[0]))
        self._fetched.append(build_batch(*quads))
        while len(self._fetched) > 1 and len(self._fetched[-2]) <= 2 * len(self._fetched[-1]):
            last = [self._fetched.pop(), self._fetched.pop()]
            self._fetched.append(build_batch(*joined([batch.triples() for batch in last])))
        if dataset is not None:
            dataset.put_stored(self.stored)

    # --- paths --------------------------------------------------------------------------------------------------------

    def follow(self, automaton: Automaton, nodes: Int64Array, graph: GraphRef, dataset: Dataset) -> None:
        """Complete all that a search along a path may meet from some nodes: level by level, each pair of node and state
        once, in whatever graphs the search may walk."""
        stored = _stored_graphs(graph, dataset)
        if not stored:
            return
        seen = {0: np.unique(nodes[nodes >= 0])}
        frontier = dict(seen)
        while frontier:
            reached: dict[int, list[Int64Array]] = {}
            for state, some in frontier.items():
                for link, after in automaton.edges[state]:
                    reached.setdefault(after, []).append(self._ends(link, some, graph, stored, dataset))
            frontier = {}
            for state, ends in reached.items():
                before = seen.get(state, np.empty(0, np.int64))
                new = np.setdiff1d(np.concatenate(ends), before)
                if len(new):
                    current().hold(16 * len(new))
                    seen[state], frontier[state] = np.union1d(before, new), new

    def _ends(self, link: Link, nodes: Int64Array, graph: GraphRef, graphs: Graphs, dataset: Dataset) -> Int64Array:
        """Return where a link leads from some nodes, once that is complete."""
        step = _link_step(link, dataset)
        if step is None:
            return np.empty(0, np.int64)
        predicate = int(step[layout.PREDICATE]) if link.predicate is not None else None
        self._fetch_keys(nodes, int(step[layout.DIRECTION]), predicate, graphs, dataset)
        names = (Variable("n"), *([] if link.predicate is not None else [Variable("p")]), Variable("e"))
        plan = LoweredPlan(step[np.newaxis], (graph,), names, False)
        table = plan_runner.run(plan, BindingTable(names[:1], (nodes,), len(nodes)), dataset, current())
        ends = table.columns[-1]
        if link.excluded:
            excluded = np.array([dataset.resolve(term) for term in link.excluded], np.int64)
            ends = ends[~np.isin(table.columns[1], excluded)]
        return np.unique(ends)

    def list_links(self, links: Iterable[Link], graph: GraphRef, dataset: Dataset) -> None:
        """Complete the triples of links, wherever they begin."""
        stored = _stored_graphs(graph, dataset)
        for link in links:
            step = _link_step(link, dataset)
            if stored and step is not None:
                self._list(int(step[layout.PREDICATE]) if link.predicate is not None else None, stored, dataset)

    def graphs_of(
        self, nodes: Int64Array, graphs: Int64Array, graph: GraphRef, dataset: Dataset
    ) -> npt.NDArray[np.int64]:
        """Return (number of the node, graph) for each stored graph in which another node sees a triple of it."""
        stored = _stored_graphs(graph, dataset)
        known = np.flatnonzero(nodes >= 0)
        if not stored or not len(known):
            return np.empty((0, 2), np.int64)
        found = self._asking.graphs_of(nodes[known], graphs[known], stored, isinstance(graph, Variable))
        return distinct_rows(known[found[0]], found[1])

    # --- graphs -------------------------------------------------------------------------------------------------------

    def triples(self, graph: int) -> Iterator[Triples]:
        """Yield all triples of a graph, each once, some at a time."""
        for subjects, predicate, objects in self._base.triples(graph):
            rows = np.flatnonzero(self.answers_for(subjects))
            yield subjects[rows], np.full(len(rows), predicate, np.int64), objects[rows]
        yield from self._asking.graph_triples(graph)

    def graph_names(self) -> Int64Array:
        """Return the ids of all graphs with a stored triple, sorted."""
        if self._names is None:
            self._names = np.union1d(self._base.graphs, self._asking.graph_names())
            if self._change is not None:
                come, gone = self._change
                emptied = [] if gone is None else [name for name in gone.graphs.tolist() if self._is_emptied(name)]
                self._names = np.union1d(np.setdiff1d(self._names, emptied), come.graphs)
        return self._names

    def _is_emptied(self, graph: int) -> bool:
        """Whether nothing is left of a graph, before what the change adds."""
        assert self._change is not None
        assert self._change.tombstones is not None
        self.complete_graph(graph)
        count = len(graph_quads(self._read(tuple(self._fetched), None), graph)[0])
        return count == int((self._change.tombstones.triples()[0] == graph).sum())


def _stored_graphs(graph: GraphRef, dataset: Dataset) -> Graphs:
    """Return the stored graphs among what a graph reference stands for."""
    parts = dataset.source(graph).parts
    return tuple(part.graph for part in parts if part.batches is dataset.stored and part.graph != NO_MATCH)


def _piece(plan: LoweredPlan, start: int, stop: int, columns: int) -> LoweredPlan:
    if start == 0 and stop == len(plan.steps):
        return plan
    return LoweredPlan(plan.steps[start:stop], plan.graphs[start:stop], plan.variables[:columns], False)


def _link_step(link: Link, dataset: Dataset) -> Int64Array | None:
    """Return the step from a node to where a link leads, its columns node, perhaps predicate, and end; None if no data
    can have the predicate."""
    step = np.zeros(layout.STEP_WIDTH, np.int64)
    step[layout.DIRECTION] = OUT if link.direction == "out" else IN
    step[layout.KEY_KIND], step[layout.KEY] = layout.BOUND, 0
    step[layout.VALUE_KIND], step[layout.VALUE] = layout.NEW, 1
    step[layout.GRAPH_KIND] = layout.ANY
    if link.predicate is None:
        step[layout.PREDICATE_KIND], step[layout.PREDICATE] = layout.NEW, 1
        step[layout.VALUE] = 2
        return step
    step[layout.PREDICATE_KIND], step[layout.PREDICATE] = layout.CONSTANT, dataset.resolve(link.predicate)
    return step if step[layout.PREDICATE] >= 0 else None
