"""Paths that are kept from firing to firing of one registered query (docs/decisions/0097-maintained-paths.md).

A path is first searched, as in any query. If that has found many rows, and all that has changed since the firing before
is known and is little, the next firing keeps the walks in an index (reach.py), and those behind it follow the changes
alone. Both ways find the same rows. A path goes back to searching, for some firings, when its windows turn over, when a
change costs as much as a search, or when the walks take too much room. Queries share the index of a path over the
stored graph alone.

Only the walks from those nodes are kept that are asked for: the one of a constant, those that the rows before bind, or
all at which a walk may begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wukongs.csparql.algebra import GraphRef, Node, PathPattern, StreamWindow
from wukongs.csparql.automaton import Automaton, automaton_of
from wukongs.csparql.paths import Inverse, Path, format_path
from wukongs.csparql.terms import Term
from wukongs.csparql.walk import parts_of
from wukongs.errors import BudgetExceeded
from wukongs.query.limits import Limits
from wukongs.query.mechanisms import Used
from wukongs.query.paths.forest import Triples, no_triples
from wukongs.query.paths.path_machine import PathPlan
from wukongs.query.paths.reach import TURNED_MIN, At, Ends, PathIndex, PathIndexes, PathUser
from wukongs.query.plans.dataset import Dataset, Part
from wukongs.store.batch import Batch
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.quads import is_held
from wukongs.store.tombstone_kernels import visible_pairs

ROWS_MIN = 2000
"""A path is searched if the search finds fewer rows: that is as quick."""


@dataclass(frozen=True, slots=True)
class PathChanges:
    """Changes between two firings, all that there may be. firings: the numbers of the one before and of this one; sns:
    the snapshot numbers at which they read the stored graph; come, gone: batches by window, those of the stored graph
    by None. A triple of `gone` may be there still, by another batch."""

    firings: tuple[int, int]
    sns: tuple[int, int]
    come: Mapping[StreamWindow | None, Sequence[Batch]]
    gone: Mapping[StreamWindow | None, Sequence[Batch]]


def may_be_kept(node: Node) -> bool:
    """Tell whether a query has a path that may be kept."""
    return any(isinstance(part, PathPattern) and PathPlan(part).is_kept for part in parts_of(node))


class KeptPath:
    """One path from one of its ends, over one graph of a query's dataset: a user of an index (reach.py).

    found: its automaton from there; way: 0 from its subject, 1 from its object; is_everywhere: it is asked from all
    nodes at which a walk may begin; indexes: of paths over the stored graph, which queries share. A path over windows
    has an index of its own, in which firings are counted in the place of SNs."""

    def __init__(
        self, found: Automaton, graph: GraphRef, way: int, is_everywhere: bool, told: str, indexes: PathIndexes
    ) -> None:
        self._found = found
        self._graph = graph
        self.way = way
        self.is_everywhere = is_everywhere
        self._told = told
        self._indexes = indexes
        self._index: PathIndex | None = None
        self._names: tuple[object, ...] | None = None
        """The stored graphs that are read as one; None: windows are read, too."""
        self._user = PathUser(is_everywhere, reason="it is asked for the first time")
        self._is_wanted = False
        """Whether a search has found enough."""
        self.moved_count = 0

    @property
    def _kept(self) -> PathIndex | None:
        """The index, if it has the walks."""
        return None if self._user.sn is None else self._index

    @property
    def count(self) -> int:
        return 0 if self._kept is None else self._kept.walks_count

    @property
    def size_bytes(self) -> int:
        return 0 if self._kept is None else self._kept.share_bytes()

    @property
    def looked_at(self) -> int:
        """Triples and walks that were looked at so far."""
        return 0 if self._kept is None else self._kept.looked_at

    @property
    def is_wanted(self) -> bool:
        """Whether it is worth to know what changes."""
        return self._is_wanted or self._user.sn is not None

    def told(self) -> str:
        """Return what EXPLAIN says of it."""
        index = self._kept
        if index is None:
            return f"{self._told}: searched at each firing, since {self._user.reason}"
        return f"{self._told}: {index.walks_count} walks are kept, and were moved on {self.moved_count} times"

    def searched(self, rows: int) -> None:
        """Note how much a search has found at a firing at which nothing was kept."""
        self._is_wanted = rows >= ROWS_MIN
        if not self._is_wanted:
            self._user.reason = f"a search finds fewer than {ROWS_MIN} rows"

    def rest(self) -> None:
        """Keep no walks until a search has found enough again."""
        self._user.sn, self._index, self._is_wanted = None, None, False
        self._user.reason = "the rows around it were followed"

    def ends(
        self,
        changes: PathChanges | None,
        dataset: Dataset,
        limits: Limits,
        starts: Callable[[], Int64Array],
        with_own: bool = True,
    ) -> Ends | None:
        """Return where walks begin and end; None: it is to be searched. starts: gives distinct nodes to begin from;
        with_own: as PathIndex.ends. Raises as Limits.check."""
        user, mark = self._user, limits.mark()
        if changes is None:
            user.sn = None
            if self._is_wanted:
                user.reason = "it is not known what has changed"
            return None
        try:
            asked = self._moved(changes, dataset, limits, starts)
            if asked is None or self._index is None:
                return None
            return self._index.ends(user, limits, asked, with_own=with_own)
        except BudgetExceeded as error:  # a search may need less
            limits.back_to(mark, 0)
            user.refuse(str(error))
            return None
        except BaseException:
            user.sn = None
            raise

    def _moved(
        self, changes: PathChanges, dataset: Dataset, limits: Limits, starts: Callable[[], Int64Array]
    ) -> list[int] | None:
        """Have the walks as they are now; return the origins asked for. None: it is to be searched."""
        user, index = self._user, self._index_of(dataset)
        if index is None:
            return None
        before, now = changes.firings if self._names is None else changes.sns
        if user.sn not in (before, now):
            user.sn = None
        if user.sn is None and (not self._is_wanted or user.is_refused()):
            return None
        at, is_new = At(now, dataset, limits), user.sn != now
        gone, come = self._changed(changes, dataset) if is_new else (no_triples(), no_triples())
        if reason := index.turned(dataset, gone, come):
            user.refuse(reason)
            return None
        asked = [] if self.is_everywhere else np.unique(starts()).tolist()
        if user.sn is None:
            user.origins, self.moved_count = dict.fromkeys(asked, 1), 0
            index.join(user, at)
        else:
            if is_new:
                index.change(user, before, at, gone, come)
                self.moved_count += 1
            missing = [node for node in asked if node not in user.origins]
            if 2 * len(missing) > max(TURNED_MIN, len(asked)):
                user.refuse("it is asked from other nodes at each firing")
                return None
            if is_new and len(user.origins) > 2 * len(asked) + TURNED_MIN:
                user.origins = dict.fromkeys(asked, 1)
            user.origins.update(dict.fromkeys(missing, 1))
            index.ask(user, np.array(missing, np.int64), at)
        return None if user.sn is None else asked

    def _index_of(self, dataset: Dataset) -> PathIndex | None:
        """Return the index of the graph that is read; None if its changes are not known."""
        parts = dataset.source(self._graph).parts
        windows = [_names(part, dataset) for part in parts]
        if not all(windows):
            self._user.sn, self._user.reason = None, "it reads a view of a graph"
            return None
        is_stored = all(window == [None] for window in windows)
        names = tuple((part.graph, part.name) for part in parts) if is_stored else None
        if self._index is None or names != self._names:
            self._user.sn, self._names = None, names
            self._index = (
                PathIndex(self._found, self._graph)
                if names is None
                else self._indexes.of(self._found, names, self._graph)
            )
        return self._index

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
    subjects, predicates, objects = (np.concatenate(column) for column in zip(no_triples(), *triples, strict=True))
    return subjects, predicates, objects


def _taken(triples: Triples, mask: BoolArray) -> Triples:
    subjects, predicates, objects = triples
    return subjects[mask], predicates[mask], objects[mask]


@dataclass(slots=True)
class KeptPaths:
    """The paths of one registered query. Used by the thread that fires; others may ask what is told of it."""

    indexes: PathIndexes
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
            found = self._known[key] = KeptPath(automaton, pattern.graph, way, is_everywhere, told, self.indexes)
        return found

    @property
    def is_wanted(self) -> bool:
        """Whether it is worth to know what changes."""
        return any(path.is_wanted for path in self._known.values())

    def rest(self) -> None:
        """Keep no walks: the rows of the paths were found without them."""
        for path in self._known.values():
            path.rest()

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
