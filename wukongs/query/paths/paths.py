"""Property paths of arbitrary length, explored from the rows that are joined to them (SPARQL 1.1, sections 9 and 18.4).

The search walks through the pattern's graph alone, and a solution counts once however many walks there are. It starts
at the end that is bound (a constant, or a column of the rows): forward from the subject or backward from the object.
With both ends bound it starts from both sides (by meeting_kernels.py, if the path is links repeated), or from the side
with fewer nodes; with neither bound, from every node where a walk may begin. So its cost grows with the nodes that it
reaches, not with the size of the graph, unless both ends are free.

A path of no length leads from each node of the graph to itself; from a constant of the query, and a term that is put in
the place of a variable, also where the graph does not know it (`reaches_outside`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from wukongs.csparql.algebra import PathPattern, TermOrVariable
from wukongs.csparql.automaton import Automaton, Link
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.limits import Limits, current
from wukongs.query.mechanisms import Mechanism
from wukongs.query.operators import operators
from wukongs.query.paths import path_layout as layout
from wukongs.query.paths.circles import returning_nodes
from wukongs.query.paths.kept_paths import KeptPath, KeptPaths
from wukongs.query.paths.path_layout import Origins
from wukongs.query.paths.path_machine import (
    ANY_LINKS,
    PathPlan,
    excluded_ids,
    machine_of,
    pair_machines,
    reversed_links,
    source_of,
)
from wukongs.query.paths.path_search import EdgesExceeded, Search, distances, is_connected, keys_count, keys_of
from wukongs.query.plans.dataset import Dataset
from wukongs.query.rows import distinct_rows, numbered, put_together
from wukongs.store.dtypes import NO_MATCH, Int64Array
from wukongs.store.term_ids import integer_ids

PAIRS_MAX = 32
"""Up to so many pairs of bound ends are each searched from both sides. More pairs are searched together, from one
side."""
PAIRS_AN_END_MAX = 16
"""Where links are repeated, that is only done if there are so many pairs for each of the nodes on that side."""
PAIR_COST = 8
"""A search between two ends counts as so many rows of one from a single end."""
EDGES_A_NODE = 8
"""`?x path ?x` is searched from each node as long as this takes so many edges a node; then circles are sought in the
whole graph (circles.py)."""
_NO_GRAPH = 0
"""In the graph column of a search whose steps know their graph."""
_ANY_GRAPH = -1

Rows = npt.NDArray[np.int64]


@dataclass(slots=True)
class PathExplorer:
    """Evaluates one path pattern over one dataset. substituted: variables that all rows bind to a term that stands in
    their place, as EXISTS has it; kept: the paths that are kept from firing to firing. Raises QueryTimeout,
    BudgetExceeded."""

    plan: PathPlan
    dataset: Dataset
    terms: TermSpace
    limits: Limits
    substituted: Collection[Variable] = ()
    kept: KeptPaths | None = None
    pattern: PathPattern = field(init=False)
    _outside: bool = field(init=False)
    _automata: tuple[Automaton, Automaton] = field(init=False)

    def __post_init__(self) -> None:
        self.pattern, self._automata = self.plan.pattern, self.plan.automata
        self._outside = self.plan.reaches_outside(self.substituted)

    def explore(self, seeds: BindingTable, rows_wanted: int | None = None) -> BindingTable:
        """Join the pattern's solutions to rows that bind, in each row, all of the pattern's variables that they have.

        rows_wanted: more rows than these are not needed."""
        if seeds.length == 0:
            missing = [v for v in self.pattern.variables() if v not in seeds.variables]
            return BindingTable.empty((*seeds.variables, *missing))
        mark = self.limits.mark()
        try:
            return self._explored(seeds, rows_wanted)
        except EdgesExceeded:
            pass
        self.limits.back_to(mark, 0)  # here, where the search that failed is freed
        nodes, graphs = returning_nodes(self.pattern, self._automata[0], self.dataset, self.limits)
        graphs = np.full(len(nodes), _NO_GRAPH, np.int64) if graphs is None else graphs
        return self._joined(seeds, np.stack((nodes, nodes, graphs), axis=1))

    def _explored(self, seeds: BindingTable, rows_wanted: int | None) -> BindingTable:
        subjects, objects = self._known(self.pattern.subject, seeds), self._known(self.pattern.object, seeds)
        graphs = self._graphs(seeds)
        is_unit = not seeds.variables
        in_graph = self.pattern.graph in (self.pattern.subject, self.pattern.object)
        if not is_unit or in_graph or isinstance(self.pattern.length, Term):
            rows_wanted = None  # not every walk that is found becomes a row
        path = self._kept_path(subjects, objects) if rows_wanted is None else None
        if path is not None and (table := self._kept_ends(path, subjects, objects, graphs)) is not None:
            return table if is_unit and seeds.length == 1 else operators.join(seeds, table, self.limits.rows_max)
        if subjects is None and objects is None:
            found = self._from_everywhere(graphs, rows_wanted)
        elif subjects is None or objects is None:
            start = subjects if subjects is not None else objects
            assert start is not None
            found = self._from_one_end(start, graphs, int(subjects is None), rows_wanted)
        elif graphs[0] != _ANY_GRAPH and (lengths := self._lengths(subjects, objects, graphs)) is not None:
            if path is not None:
                path.searched(PAIR_COST * len(lengths))
            return self._linked(seeds, lengths)
        else:
            found = self._between(subjects, objects, graphs)
        if path is not None:
            path.searched(len(found))
        return self._joined(seeds, found)

    def _joined(self, seeds: BindingTable, found: Rows) -> BindingTable:
        table, is_unit = self._table(found), not seeds.variables and seeds.length == 1
        return table if is_unit else operators.join(seeds, table, self.limits.rows_max)

    # --- walks that are kept ------------------------------------------------------------------------------------------

    def _kept_path(self, subjects: Int64Array | None, objects: Int64Array | None) -> KeptPath | None:
        """Return the path whose walks may be kept: from all nodes, from those of the end that is known, or from a
        constant if both are."""
        if self.kept is None or not self.plan.is_kept or self.substituted or self.dataset.completion is not None:
            return None
        pattern = self.pattern
        if subjects is None or objects is None:
            return self.kept.of(pattern, int(subjects is None and objects is not None), subjects is objects)
        if len(subjects) <= PAIRS_MAX or not (isinstance(pattern.subject, Term) or isinstance(pattern.object, Term)):
            return None
        return self.kept.of(pattern, int(not isinstance(pattern.subject, Term)), is_everywhere=False)

    def _kept_ends(
        self, path: KeptPath, subjects: Int64Array | None, objects: Int64Array | None, graphs: Int64Array
    ) -> BindingTable | None:
        """Return the ends of the walks that are kept, None if they are to be searched."""
        pattern, changes = self.pattern, self.kept.changes if self.kept is not None else None
        is_nullable = self._automata[0].is_nullable
        if path.is_everywhere:
            links = self._automata[0].first_links()
            ends = path.ends(changes, self.dataset, self.limits, lambda: self._begin(links, graphs)[0], not is_nullable)
            if ends is not None and is_nullable:
                nodes = self._begin(ANY_LINKS, graphs)[0]
                ends = put_together((ends[0], nodes)), put_together((ends[1], nodes))
        else:
            known = subjects if path.way == 0 else objects
            assert known is not None, pattern
            ends = path.ends(changes, self.dataset, self.limits, lambda: self._starts_of(known))
        if ends is None:
            return None
        if path.moved_count and self.kept is not None:
            self.kept.used.add(Mechanism.PATHS)
        columns = zip((pattern.subject, pattern.object), ends if path.way == 0 else ends[::-1], strict=True)
        bound = {part: column for part, column in columns if isinstance(part, Variable)}
        return BindingTable(tuple(bound), tuple(bound.values()), len(ends[0]))

    def _starts_of(self, known: Int64Array) -> Int64Array:
        """Return the distinct nodes of an end at which a search can find something."""
        nodes = np.unique(known)
        rows, _ = self._starts(nodes, np.full(len(nodes), _NO_GRAPH, np.int64))
        return nodes[rows]

    # --- the rows -----------------------------------------------------------------------------------------------------

    def _known(self, end: TermOrVariable, seeds: BindingTable) -> Int64Array | None:
        """Return the ids of an end, one for each row; None if the search is to find it."""
        if isinstance(end, Term):
            return np.full(seeds.length, self._constant(end), np.int64)
        return seeds.column(end) if end in seeds.variables else None

    def _constant(self, term: Term) -> int:
        """Return the id of a constant. A constant may be an answer although no data has it; such a one gets an id with
        its text."""
        found = self.dataset.resolve(term)
        if not self._outside:
            return found
        if found != NO_MATCH:
            node, graph = np.array([found], np.int64), np.array([_ANY_GRAPH], np.int64)
            if len(self._graphs_of(node, graph, True)):
                return found
        return int(self.terms.ids([term.text])[0])

    def _graphs(self, seeds: BindingTable) -> Int64Array:
        """Return the graph to search in for each row, _ANY_GRAPH where the search is to find it."""
        graph = self.pattern.graph
        if not isinstance(graph, Variable):
            return np.full(seeds.length, _NO_GRAPH, np.int64)
        if graph in seeds.variables:
            return seeds.column(graph)
        return np.full(seeds.length, _ANY_GRAPH, np.int64)

    def _search(self, way: int) -> Search:
        return Search(source_of(self._automata[way].links(), self.pattern.graph, self.dataset), self.limits)

    def _graphs_of(self, nodes: Int64Array, graphs: Int64Array, only_one: bool) -> Rows:
        """Do the same as Search.graphs, for the pattern's graph."""
        search = Search(source_of(ANY_LINKS, self.pattern.graph, self.dataset), self.limits)
        found, completion = search.graphs(nodes, graphs, only_one), self.dataset.completion
        if completion is None:
            return found
        also = completion.graphs_of(nodes, graphs, self.pattern.graph, self.dataset)
        return distinct_rows(*np.concatenate((found, also)).T) if len(also) else found

    # --- where searches start -----------------------------------------------------------------------------------------

    def _starts(self, nodes: Int64Array, graphs: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return (row, graph) of each search that can find something from these nodes: distinct (node, graph)."""
        numbers = np.arange(len(nodes))
        is_open = bool(len(graphs)) and graphs[0] == _ANY_GRAPH
        if isinstance(self.pattern.graph, Variable) and self._outside:
            names = self.dataset.named_graphs()
            if is_open:
                return np.repeat(numbers, len(names)), np.tile(names, len(nodes))
            is_named = np.isin(graphs, names)
            return numbers[is_named], graphs[is_named]
        if is_open or (self._automata[0].is_nullable and not self._outside):
            found = self._graphs_of(nodes, graphs, not is_open)
            rows = found[:, 0]
            return rows, found[:, 1] if is_open else graphs[rows]
        return numbers, graphs

    def _from_one_end(self, nodes: Int64Array, graphs: Int64Array, way: int, rows_wanted: int | None) -> Rows:
        """Return (subject, object, graph) of every walk from a known end, the subject (way 0) or the object (way 1),
        and its length if the pattern has one."""
        starts = distinct_rows(nodes, graphs)
        rows, start_graphs = self._starts(starts[:, 0], starts[:, 1])
        start_nodes = starts[rows, 0]
        self._complete(way, start_nodes)
        origins = _origins(start_nodes, start_graphs)
        return self._walks(way, origins, rows_wanted)

    def _complete(self, way: int, nodes: Int64Array) -> None:
        """See that nothing is missing where a search from these nodes leads to."""
        if self.dataset.completion is not None:
            self.dataset.completion.follow(self._automata[way], nodes, self.pattern.graph, self.dataset)

    def _edges_max(self, pair_count: int) -> int | None:
        """Return how many edges searches between so many pairs may look at, before one walk over all edges is better.
        None: any number."""
        if not self.plan.returns or pair_count <= PAIRS_MAX or self.dataset.completion is not None:
            return None
        links = self._automata[0].first_links()
        source = source_of(links, self.pattern.graph, self.dataset)
        counts = (keys_count(source, step, excluded_ids(link, self.dataset)) for step, link in enumerate(links))
        return EDGES_A_NODE * sum(counts)

    def _walks(self, way: int, origins: Origins, rows_wanted: int | None = None, edges_max: int | None = None) -> Rows:
        machine, with_lengths = machine_of(self._automata[way], self.dataset), self.pattern.length is not None
        found = self._search(way).reached(machine, origins, rows_wanted, with_lengths, edges_max)
        self.limits.hold(8 * (found.shape[1] + 3) * len(found))  # the columns side by side, and two of them before
        starts, graphs = origins.rows[found[:, 0], layout.ORIGIN_NODE], origins.rows[found[:, 0], layout.ORIGIN_GRAPH]
        ends = (starts, found[:, 1]) if way == 0 else (found[:, 1], starts)
        return np.stack((*ends, graphs, *found.T[2:]), axis=1)

    def _from_everywhere(self, graphs: Int64Array, rows_wanted: int | None) -> Rows:
        found = self._automata[0]
        links = ANY_LINKS if found.is_nullable else found.first_links()
        if self.dataset.completion is not None:
            self.dataset.completion.list_links((*links, *found.links()), self.pattern.graph, self.dataset)
        nodes, node_graphs = self._begin(links, graphs)
        targets = nodes if self.pattern.subject == self.pattern.object else None
        edges_max = EDGES_A_NODE * len(nodes) if self.plan.returns else None
        return self._walks(0, _origins(nodes, node_graphs, targets), rows_wanted, edges_max)

    def _begin(self, links: Sequence[Link], graphs: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return each (node, graph) at which a walk may begin by one of some links."""
        source = source_of(links, self.pattern.graph, self.dataset)
        asked = np.unique(graphs)
        # One graph is looked up; of several, all nodes are listed and those of other graphs left out.
        graph = int(asked[0]) if len(asked) == 1 and isinstance(self.pattern.graph, Variable) else _ANY_GRAPH
        lists = [
            keys_of(source, step, excluded_ids(link, self.dataset), graph, self.limits)
            for step, link in enumerate(links)
        ]
        self.limits.hold(2 * 16 * sum(map(len, lists)))  # put together, and those of the graphs that are asked for
        keys = np.concatenate(lists)
        del lists
        if len(asked) > 1:
            keys = keys[np.isin(keys[:, 0], asked)]
        starts = distinct_rows(keys[:, 1], keys[:, 0])
        return starts[:, 0], starts[:, 1]

    # --- both ends known ----------------------------------------------------------------------------------------------

    def _linked(self, seeds: BindingTable, lengths: Int64Array) -> BindingTable:
        """Return the rows that have a walk. lengths: of a shortest one, -1 if there is none."""
        rows = np.flatnonzero(lengths >= 0)
        if self.pattern.length is None:
            return seeds.take(rows)
        return self._with_lengths(seeds.take(rows), lengths[rows])

    def _with_lengths(self, table: BindingTable, lengths: Int64Array) -> BindingTable:
        """Bind the pattern's length in each row, or keep the rows that have it."""
        length, ids = self.pattern.length, integer_ids(lengths)
        if isinstance(length, Variable) and length not in table.variables:
            return operators.with_column(table, length, ids)
        assert length is not None
        known = self.terms.ids([length.text])[0] if isinstance(length, Term) else table.column(length)
        return table.take(np.flatnonzero(ids == known))

    def _lengths(self, subjects: Int64Array, objects: Int64Array, graphs: Int64Array) -> Int64Array | None:
        """Return the number of links of a shortest walk for each (subject, object) in a known graph, -1 if there is
        none. None if the path does not repeat links, or if a search from one side is better for so many pairs."""
        if not self.plan.repeats_links:
            return None
        if len(subjects) > 1:
            places, firsts = numbered((subjects, objects, graphs), len(subjects))
            subjects, objects, graphs = subjects[firsts], objects[firsts], graphs[firsts]
            counts = len(np.unique(subjects)), len(np.unique(objects))
            if len(subjects) > max(PAIRS_MAX, PAIRS_AN_END_MAX * min(counts)):
                return None
        else:
            places, counts = np.zeros(1, np.int64), (1, 1)
        # What leads from one end on holds all walks to the other; the search from there finds these, if nothing else.
        way = int(counts[1] < counts[0])
        self._complete(way, (subjects, objects)[way])
        lengths = self._steps_between(subjects, objects, graphs)
        if self._automata[0].is_nullable:
            same = np.flatnonzero(subjects == objects)
            rows, _ = self._starts(subjects[same], graphs[same])
            lengths[same[rows]] = 0
        return lengths[places]

    def _steps_between(self, subjects: Int64Array, objects: Int64Array, graphs: Int64Array) -> Int64Array:
        """Return the least number of links, 1 at least, of a walk for each (subject, object), -1 where there is none;
        the path repeats links."""
        source, machines = self.plan.meeting(self.dataset)
        ends = _origins(subjects, graphs), _origins(objects, graphs)
        lengths = distances(source, machines, ends, self.limits, self._edges_max(len(subjects)))
        lengths[lengths == 0] = -1
        return lengths

    def _between(self, subjects: Int64Array, objects: Int64Array, graphs: Int64Array) -> Rows:
        asked = distinct_rows(subjects, graphs, objects)
        rows, start_graphs = self._starts(asked[:, 0], asked[:, 1])
        pairs = distinct_rows(asked[rows, 0], start_graphs, asked[rows, 2])
        way = int(len(np.unique(pairs[:, 2])) < len(np.unique(pairs[:, 0])))
        # What leads from one end on holds all walks to the other; the search from there finds these, if nothing else.
        self._complete(way, pairs[:, 2 * way])
        if len(pairs) <= PAIRS_MAX and self.pattern.length is None:
            return self._meeting(pairs)
        if way == 1:
            pairs = distinct_rows(pairs[:, 2], pairs[:, 1], pairs[:, 0])
        is_first = np.ones(len(pairs), np.bool_)
        is_first[1:] = (pairs[1:, :2] != pairs[:-1, :2]).any(axis=1)
        bounds = np.append(np.flatnonzero(is_first), len(pairs))
        starts = pairs[bounds[:-1]]
        origins = np.stack((starts[:, 0], starts[:, 1], bounds[:-1], bounds[1:]), axis=1)
        return self._walks(way, Origins(origins, pairs[:, 2].copy()), edges_max=self._edges_max(len(pairs)))

    def _meeting(self, pairs: Rows) -> Rows:
        """Keep the (subject, graph, object) between which there is a walk; return them as (subject, object, graph). A
        search may start from each of them (`_starts`)."""
        found = self._automata[0]
        if self.plan.repeats_links:  # perhaps so many times only, which the search below does not count
            subjects, graphs, objects = pairs.T
            kept = self._steps_between(subjects, objects, graphs) > 0
            if found.is_nullable:
                kept |= subjects == objects
            return pairs[kept][:, [0, 2, 1]]
        links = found.links()
        graph = self.pattern.graph
        sources = source_of(links, graph, self.dataset), source_of(reversed_links(links), graph, self.dataset)
        machines = pair_machines(found, self.dataset)
        connected = [
            is_connected(sources, machines, found.accepting, (subject, object_), in_graph, self.limits)
            for subject, in_graph, object_ in pairs.tolist()
        ]
        return pairs[np.array(connected, np.bool_)][:, [0, 2, 1]]

    # --- the result ---------------------------------------------------------------------------------------------------

    def _table(self, found: Rows) -> BindingTable:
        """Make a table of the variables of (subject, object, graph), and the length if it is asked for; where one
        stands twice, both must be equal."""
        pattern = self.pattern
        columns: dict[Variable, int] = {}
        keep = np.ones(len(found), np.bool_)
        for at, part in enumerate((pattern.subject, pattern.object, pattern.graph)):
            if not isinstance(part, Variable):
                continue
            if part in columns:
                keep &= found[:, columns[part]] == found[:, at]
            columns.setdefault(part, at)
        self.limits.hold((found.nbytes if not keep.all() else 0) + 8 * len(columns) * len(found))
        found = found[keep] if not keep.all() else found
        table = BindingTable(tuple(columns), tuple(found[:, at].copy() for at in columns.values()), len(found))
        return table if pattern.length is None else self._with_lengths(table, found[:, 3])


def _origins(nodes: Int64Array, graphs: Int64Array, targets: Int64Array | None = None) -> Origins:
    """Make an origin of each node and graph; targets: the one node that each looks for."""
    current().hold(8 * (layout.ORIGIN_WIDTH + (0 if targets is None else 2)) * len(nodes))
    rows = np.empty((len(nodes), layout.ORIGIN_WIDTH), np.int64)
    rows[:, layout.ORIGIN_NODE], rows[:, layout.ORIGIN_GRAPH] = nodes, graphs
    if targets is None:
        rows[:, layout.ORIGIN_TARGETS_FROM] = layout.ALL_NODES
        rows[:, layout.ORIGIN_TARGETS_TO] = layout.ALL_NODES
        return Origins(rows, np.empty(0, np.int64))
    rows[:, layout.ORIGIN_TARGETS_FROM] = np.arange(len(nodes))
    rows[:, layout.ORIGIN_TARGETS_TO] = np.arange(1, len(nodes) + 1)
    return Origins(rows, np.ascontiguousarray(targets))
