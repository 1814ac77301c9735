"""Paths that are kept from firing to firing of one registered query (docs/decisions/0097-maintained-paths.md).

A path is first searched, as in any query. If that has found many rows, and all that has changed since the firing before
is known and is little, the next firing keeps the walks in a Forest, and those behind it follow the changes alone. Both
ways find the same rows. A path goes back to searching, for some firings, when its windows turn over, when a change
costs as much as a search, or when the walks take too much room.

Only the walks from those nodes are kept that are asked for: the one of a constant, those that the rows before bind, or
all at which a walk may begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from wukongs.csparql.algebra import GraphRef, Node, PathPattern, StreamWindow
from wukongs.csparql.automaton import Automaton, Link, automaton_of
from wukongs.csparql.paths import Inverse, Path, format_path
from wukongs.csparql.terms import Term
from wukongs.csparql.walk import parts_of
from wukongs.errors import BudgetExceeded
from wukongs.query.limits import Limits
from wukongs.query.mechanisms import Used
from wukongs.query.paths.forest import Forest, ForestExceeded, Triples, Ways
from wukongs.query.paths.path_machine import PathPlan, excluded_ids
from wukongs.query.plans.dataset import Dataset, Part
from wukongs.store.batch import Batch
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.quads import is_held
from wukongs.store.tombstone_kernels import visible_pairs

ROWS_MIN = 2000
"""A path is searched if the search finds fewer rows: that is as quick."""
TURNED_FACTOR, TURNED_MIN = 8, 64
"""It is searched if more than so many triples have changed, and more than one in so many of the graph's."""
SEARCH_COST, WORK_MIN = 2, 1 << 14
"""A change may look at as much as the first search has, or so much for each walk, and so much more."""
BYTES_MAX = 1 << 28
"""The walks of one path may take so much."""
REFUSALS_MAX, FORGIVEN_MOVES = 10, 64
"""After the n-th time that a path goes back to searching, it is searched for 2 ** n firings, up to this n. One time is
forgiven for so many moves."""

Ends = tuple[Int64Array, Int64Array]
"""Where walks begin, counted along the automaton, and where they end."""


@dataclass(frozen=True, slots=True)
class PathChanges:
    """Changes between two firings, all that there may be. mark, before: stand for this firing and the one before;
    come, gone: batches by window, those of the stored graph by None. A triple of `gone` may be
    there still, by another batch."""

    mark: object
    before: object
    come: Mapping[StreamWindow | None, Sequence[Batch]]
    gone: Mapping[StreamWindow | None, Sequence[Batch]]


def may_be_kept(node: Node) -> bool:
    """Tell whether a query has a path that may be kept."""
    return any(isinstance(part, PathPattern) and PathPlan(part).is_kept for part in parts_of(node))


class KeptPath:
    """One path from one of its ends, over one graph of a query's dataset. found: its automaton from there; way: 0 from
    its subject, 1 from its object; is_everywhere: it is asked from all nodes at which a walk may begin."""

    def __init__(self, found: Automaton, graph: GraphRef, way: int, is_everywhere: bool, told: str) -> None:
        self._found = found
        self._graph = graph
        self.way = way
        self.is_everywhere = is_everywhere
        self._told = told
        self._ids: tuple[int, ...] = ()
        self._forest: Forest | None = None
        self._stands_at: object = None
        """The mark of the firing of which the walks are."""
        self._first_looked_at = 0
        self._first_origins = 0
        self._is_wanted = False
        """Whether a search has found enough."""
        self._refused_for = 0
        self._refusals = 0
        self._reason = "it is asked for the first time"
        self.moved_count = 0

    @property
    def count(self) -> int:
        forest = self._forest
        return 0 if forest is None else len(forest)

    @property
    def size_bytes(self) -> int:
        forest = self._forest
        return 0 if forest is None else forest.size_bytes

    @property
    def is_wanted(self) -> bool:
        """Whether it is worth to know what changes."""
        return self._is_wanted or self._forest is not None

    def told(self) -> str:
        """Return what EXPLAIN says of it."""
        forest = self._forest
        if forest is None:
            return f"{self._told}: searched at each firing, since {self._reason}"
        return f"{self._told}: {len(forest)} walks are kept, and were moved on {self.moved_count} times"

    def searched(self, rows: int) -> None:
        """Note how much a search has found at a firing at which nothing was kept."""
        self._is_wanted = rows >= ROWS_MIN
        if not self._is_wanted:
            self._reason = f"a search finds fewer than {ROWS_MIN} rows"

    def ends(
        self,
        changes: PathChanges | None,
        dataset: Dataset,
        limits: Limits,
        starts: Callable[[], Int64Array],
        with_own: bool = True,
    ) -> Ends | None:
        """Return where walks begin and end; None: it is to be searched. starts: gives distinct nodes to begin from;
        with_own: as Forest.ends. Raises as Limits.check."""
        forest, self._forest = self._forest, None  # an error leaves nothing
        if changes is None:
            if self._is_wanted:
                self._reason = "it is not known what has changed"
            return None
        mark = limits.mark()
        try:
            moved = self._moved(forest, changes, dataset, limits, starts)
            if moved is None:
                return None
            forest, asked = moved
            found = forest.ends(asked, limits, with_own)
        except (ForestExceeded, BudgetExceeded) as error:  # a search may need less
            limits.back_to(mark, 0)
            self._refuse(str(error))
            return None
        self._forest, self._stands_at = forest, changes.mark
        return found

    def _moved(
        self,
        forest: Forest | None,
        changes: PathChanges,
        dataset: Dataset,
        limits: Limits,
        starts: Callable[[], Int64Array],
    ) -> tuple[Forest, list[int] | None] | None:
        """Return the walks as they are now, and the origins asked for. Raises ForestExceeded."""
        ids = tuple(dataset.resolve(term) for link in self._found.links() for term in link.terms())
        is_behind = self._stands_at not in (changes.mark, changes.before)
        if forest is not None and (is_behind or ids != self._ids or forest.is_sparse):
            forest = None
        if forest is None and (not self._is_wanted or self._is_refused()):
            return None
        source = dataset.source(self._graph)
        if not all(_names(part, dataset) for part in source.parts):
            self._reason = "it reads a view of a graph"
            return None
        self._ids = ids
        gone, come = self._changed(changes, dataset)
        if len(gone[0]) + len(come[0]) > max(TURNED_MIN, source.size // TURNED_FACTOR):
            raise ForestExceeded("much of the graph changes between two firings")
        ways = cache(lambda: Ways.of(self._found, self._graph, dataset))
        is_new = self._stands_at is not changes.mark
        if forest is not None and is_new:
            search = max(self._first_looked_at, SEARCH_COST * len(forest))
            forest.change(gone, come, ways, limits, search + WORK_MIN)
            self.moved_count += 1
            self._refusals -= self._refusals > 0 and self.moved_count % FORGIVEN_MOVES == 0
        if self.is_everywhere:
            if forest is None or forest.origin_count > 2 * self._first_origins + TURNED_MIN:
                return self._planted(starts(), ways, limits), None
            begin = np.unique(self._begin_of(come, dataset)).tolist()
            forest.plant(forest.missing(begin), ways, limits)
            return forest, None
        asked = np.unique(starts())
        if forest is None:
            return self._planted(asked, ways, limits), asked.tolist()
        nodes = asked.tolist()
        missing = forest.missing(nodes)
        if 2 * len(missing) > max(TURNED_MIN, len(nodes)):
            raise ForestExceeded("it is asked from other nodes at each firing")
        if is_new and forest.origin_count > 2 * len(nodes) + TURNED_MIN:
            forest.fell(forest.origins() - set(nodes))
        forest.plant(missing, ways, limits)
        return forest, nodes

    def _planted(self, nodes: Int64Array, ways: Callable[[], Ways], limits: Limits) -> Forest:
        """Search from all nodes, and keep the walks. Raises ForestExceeded."""
        forest = Forest(self._found, BYTES_MAX if limits.bytes_max is None else min(BYTES_MAX, limits.bytes_max))
        forest.plant(np.unique(nodes).tolist(), ways, limits)
        self._first_looked_at, self._first_origins, self.moved_count = forest.looked_at, forest.origin_count, 0
        return forest

    def _is_refused(self) -> bool:
        self._refused_for = max(0, self._refused_for - 1)
        return self._refused_for > 0

    def _refuse(self, why: str) -> None:
        self._reason = why
        self._refusals = min(self._refusals + 1, REFUSALS_MAX)
        self._refused_for = 1 << self._refusals

    # --- what has changed ---------------------------------------------------------------------------------------------

    def _changed(self, changes: PathChanges, dataset: Dataset) -> tuple[Triples, Triples]:
        """Return the triples of the links that the graph has lost, and those that it has and may not have had."""
        parts = dataset.source(self._graph).parts
        wanted = self._wanted(dataset)
        gone, come = list[Triples](), list[Triples]()
        for part in parts:
            for name in _names(part, dataset):
                gone += self._triples(changes.gone.get(name, ()), part.graph, wanted)
                found = _joined(self._triples(changes.come.get(name, ()), part.graph, wanted))
                come.append(found if name is not None else _taken(found, _is_in([part], found)))
        lost = _joined(gone)
        return _taken(lost, ~_is_in(parts, lost)), _joined(come)

    def _wanted(self, dataset: Dataset) -> list[int] | None:
        """Return the predicates of the links, None: any."""
        links = self._found.links()
        if any(link.predicate is None for link in links):
            return None
        return [dataset.resolve(link.predicate) for link in links if link.predicate is not None]

    @staticmethod
    def _triples(batches: Sequence[Batch], graph: int, wanted: list[int] | None) -> Iterator[Triples]:
        for batch in batches:
            rows = batch.graphs == graph
            if wanted is not None:
                rows &= np.logical_or.reduce([batch.predicates == one for one in wanted])
            for row in np.flatnonzero(rows).tolist():
                subjects, objects = visible_pairs(batch.descriptor, row)
                yield subjects, np.full(len(subjects), batch.predicates[row], np.int64), objects

    def _begin_of(self, come: Triples, dataset: Dataset) -> Int64Array:
        """Return the nodes at which walks may begin by triples that have come."""
        return np.concatenate([_begin_of(link, come, dataset) for link in self._found.first_links()])


def _begin_of(link: Link, come: Triples, dataset: Dataset) -> Int64Array:
    subjects, predicates, objects = come
    fits = (
        ~np.isin(predicates, excluded_ids(link, dataset))
        if link.predicate is None
        else predicates == dataset.resolve(link.predicate)
    )
    return (subjects if link.direction == "out" else objects)[fits]


def _names(part: Part, dataset: Dataset) -> list[StreamWindow | None]:
    """Return the windows that a part is read from, None: the stored graph."""
    if part.batches is dataset.stored:
        return [None]
    return [window for window, batches in dataset.windows.items() if batches is part.batches]


def _is_in(parts: Sequence[Part], triples: Triples) -> BoolArray:
    """Mark the triples that are in one of some parts. bool[n]"""
    subjects, predicates, objects = triples
    found = np.zeros(len(subjects), np.bool_)
    if len(subjects):
        for part in parts:
            found |= is_held(part.batches, (np.full(len(subjects), part.graph), subjects, predicates, objects))
    return found


def _joined(triples: Sequence[Triples] | Iterator[Triples]) -> Triples:
    none = (np.empty(0, np.int64),) * 3
    subjects, predicates, objects = (np.concatenate(column) for column in zip(none, *triples, strict=True))
    return subjects, predicates, objects


def _taken(triples: Triples, mask: BoolArray) -> Triples:
    subjects, predicates, objects = triples
    return subjects[mask], predicates[mask], objects[mask]


@dataclass(slots=True)
class KeptPaths:
    """The paths of one registered query. Used by the thread that fires; others may ask what is told of it."""

    changes: PathChanges | None = None
    """Those up to the firing that runs."""
    used: Used = field(default_factory=set)
    """The mechanisms that have taken part in the answer under way."""
    _known: dict[tuple[Path, GraphRef, int, bool], KeptPath] = field(default_factory=dict)

    def of(self, pattern: PathPattern, way: int, is_everywhere: bool) -> KeptPath:
        """Return the path of a pattern from its subject (way 0) or its object (way 1)."""
        key = pattern.path, pattern.graph, way, is_everywhere
        found = self._known.get(key)
        if found is None:
            automaton = automaton_of(Inverse(pattern.path) if way else pattern.path)
            ends = ("?x", "?y") if is_everywhere else (("<c>", "?y"), ("?x", "<c>"))[way]
            where = f"GRAPH {pattern.graph.text} " if isinstance(pattern.graph, Term) else ""
            told = f"path {where}{ends[0]} {format_path(pattern.path)} {ends[1]}"
            found = self._known[key] = KeptPath(automaton, pattern.graph, way, is_everywhere, told)
        return found

    @property
    def is_wanted(self) -> bool:
        """Whether it is worth to know what changes."""
        return any(path.is_wanted for path in self._known.values())

    def told(self) -> list[str]:
        """Return a line for each path that was asked for."""
        return [path.told() for path in list(self._known.values())]

    def stats(self) -> dict[str, int]:
        """Return counts and sizes (bytes)."""
        paths = list(self._known.values())
        return {
            "paths_kept": sum(path.count > 0 for path in paths),
            "walks_kept": sum(path.count for path in paths),
            "walks_bytes": sum(path.size_bytes for path in paths),
            "moves_of_paths": sum(path.moved_count for path in paths),
        }
