"""ForkJoin: a joint stage sent, with the rows that need it, to the nodes that can answer it; and whether that pays.

The bytes that would move are compared each time, for the rows that there are. In place: the keys that are not here yet,
and the triples that they have on average. By fork-join: the columns that the steps need, for every row, and the rows
that come back. A scan is asked of all nodes, each for its own shards; in place all its triples would have to come.
"""

from __future__ import annotations

import numpy as np

from wukongs.cluster.reads.asking import Graphs
from wukongs.cluster.reads.fetched_graph import FetchedGraph
from wukongs.cluster.reads.requests import StepsRun, new_columns, wrong_answer
from wukongs.cluster.reads.share_run import run_share
from wukongs.cluster.reads.stages import Stage
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_layout import ALL_NAMED
from wukongs.store.directory_kernels import count_graph, count_named_edges
from wukongs.store.dtypes import Int64Array
from wukongs.store.lookup_kernels import count_edges

TRIPLE_BYTES = 24
"""A fetched triple takes so much: key, value, graph."""
FEW = 64
"""So few rows are sent without counting bytes, unless their triples may be here by now."""
CHECK_SHARE = 0.5
"""The share of rows that are taken to pass a check."""


class ForkJoin:
    """One stage for some rows."""

    def __init__(self, stage: Stage, rows: BindingTable, graph: FetchedGraph, dataset: Dataset) -> None:
        self._stage = stage
        self._rows = rows
        self._graph = graph
        self._dataset = dataset

    # --- whether ------------------------------------------------------------------------------------------------------

    def is_better(self, rows_wanted: int | None = None) -> bool:
        """Whether less moves than in place; rows_wanted: more are not needed. Never where nothing would be fetched."""
        if not self.is_possible:
            return False
        if self._is_scan:
            is_listed = self._graph.is_listed(self._predicate(0), self._graphs(0))
            return self._rows.length == 1 and not is_listed and (rows_wanted is not None or self._scan_pays())
        if self._rows.length <= FEW and self._graph.has_fetched_nothing:
            return True
        return self._bytes_in_place() > self._bytes_forked()

    @property
    def is_here(self) -> bool:
        """Whether this node answers for the home of each row: nothing has to move."""
        if self._stage.home is None or self._is_scan:
            return False
        return bool(self._graph.answers_for(self._homes()).all())

    @property
    def is_possible(self) -> bool:
        """Whether each row can be sent to one node that can answer the steps for it, or to all for their own shards.
        Only this node knows the changes of an update so far."""
        return self._stage.home is not None and self._rows.length > 0 and self._graph.change is None

    @property
    def _is_scan(self) -> bool:
        return bool(self._stage.plan.steps[0, layout.KEY_KIND] == layout.NEW)

    def _graphs(self, number: int) -> Graphs:
        return self._stage.graphs[number]

    def _homes(self) -> Int64Array:
        """Return the home of each row."""
        assert self._stage.home is not None
        is_column, reference = self._stage.home
        return self._rows.columns[reference] if is_column else np.full(self._rows.length, reference, np.int64)

    def would_pay(self, rows: float) -> bool:
        """Whether the first step would move less by fork-join, from about so many rows with a home each."""
        if self._stage.home is None or self._graph.change is not None:
            return False
        if self._is_scan:
            return rows <= 1
        needed, made = len(self._stage.needed), new_columns(self._stage.plan.steps[0])
        forked = 8 * (1 + needed + self._growth(0) * (1 + needed + made))
        return 8 + TRIPLE_BYTES * self._degree(0) > forked

    def _bytes_in_place(self) -> float:
        total, homes = 0.0, self._homes()
        for number, step in enumerate(self._stage.plan.steps):
            direction, graphs = int(step[layout.DIRECTION]), self._graphs(number)
            missing = self._graph.missing(homes, direction, self._predicate(number), graphs)
            total += len(missing) * (8 + TRIPLE_BYTES * self._degree(number))
        return total

    def _bytes_forked(self) -> float:
        distant = self._rows.length - int(self._graph.answers_for(self._homes()).sum())
        rows = float(distant)
        for number in range(len(self._stage.plan.steps)):
            rows *= self._growth(number)
        needed, made = len(self._stage.needed), self._stage.made
        return 8 * (distant * (1 + needed) + rows * (1 + needed + made))

    def _scan_pays(self) -> bool:
        """Whether a scan, with the steps on what it finds, moves less by fork-join, if nothing was fetched yet."""
        distant = (1 - self._graph.answered) / self._graph.share
        edges, keys = (count * distant for count in self._counts(0))
        in_place, rows = 2 * TRIPLE_BYTES * edges, edges  # twice: they would be sorted and indexed here
        for number in range(1, len(self._stage.plan.steps)):
            in_place += keys * (8 + TRIPLE_BYTES * self._degree(number))
            rows *= self._growth(number)
        return 8 * (1 + self._stage.made) * rows <= in_place

    def _growth(self, number: int) -> float:
        """Return into how many rows a step turns one, on average."""
        is_check = self._stage.plan.steps[number, layout.VALUE_KIND] not in (layout.NEW, layout.SAME)
        return CHECK_SHARE if is_check else self._degree(number)

    def _degree(self, number: int) -> float:
        """Return how many triples a key of a step has on average, as far as this node holds them."""
        edges, keys = self._counts(number)
        return edges / max(keys, 1)

    def _counts(self, number: int) -> tuple[int, int]:
        """Return the triples that this node holds of a step's predicate, and their keys."""
        descriptors, default = self._graph.base.descriptors, self._dataset.default_graph
        predicate, side = self._predicate(number), 1 + int(self._stage.plan.steps[number, layout.DIRECTION])
        edges = keys = 0
        for graph in self._graphs(number):
            if predicate is None:
                found = count_graph(descriptors, graph, default)
            elif graph == ALL_NAMED:
                found = count_named_edges(descriptors, default, predicate)
            else:
                found = count_edges(descriptors, graph, predicate)
            edges, keys = edges + int(found[0]), keys + int(found[side])
        return edges, keys

    def _predicate(self, number: int) -> int | None:
        """Return the predicate of a step, None if it is bound by the rows or by the match."""
        step = self._stage.plan.steps[number]
        return int(step[layout.PREDICATE]) if step[layout.PREDICATE_KIND] == layout.CONSTANT else None

    # --- how ----------------------------------------------------------------------------------------------------------

    def run(
        self, limits: Limits, rows_wanted: int | None, counts: Int64Array
    ) -> tuple[BindingTable | None, list[BindingTable]]:
        """Return the rows that this node can answer itself, which are left to do (None for none), and what the others
        have become. counts: of rows after each step, added to."""
        graph, rows = self._graph, self._rows
        asking = graph.asking
        if self._is_scan:
            everything = np.arange(rows.length)
            shares = [(node, everything) for node in asking.others]
        else:
            owners = graph.assignment.of(self._homes())
            shares = [(node, np.flatnonzero(owners == node)) for node in asking.others]
        shares = [(node, some) for node, some in shares if len(some)]

        def run_at(node: int, some: Int64Array) -> StepsRun:
            columns = (some, *(rows.columns[column][some] for column in self._stage.needed))
            return asking.run_of(self._stage.plan_for(graph.assignment, node), columns, len(some), rows_wanted)

        found = asking.rows([(node, run_at(node, some)) for node, some in shares])
        here = None
        if self._is_scan:
            own_run = run_at(graph.assignment.me, everything)
            found.append(run_share(own_run, graph.base, self._dataset.default_graph, limits))
        else:
            own = np.flatnonzero(graph.answers_for(self._homes()))
            here = rows.take(own) if len(own) else None
        for (node, some), (columns, _, _) in zip(shares, found, strict=False):
            places = np.minimum(np.searchsorted(some, columns[0]), len(some) - 1)
            if not (some[places] == columns[0]).all():
                raise wrong_answer(node, "rows that it was not sent")
        tables = []
        for columns, length, step_rows in found:
            counts += step_rows
            tables.append(self._joined(columns, length))
        return here, tables

    def _joined(self, columns: tuple[Int64Array, ...], length: int) -> BindingTable:
        """Put what the steps have bound beside the rows that they were sent."""
        kept = self._rows.take(columns[0])
        new = columns[1 + len(self._stage.needed) :]
        return BindingTable(self._stage.plan.variables, (*kept.columns, *new), length)
