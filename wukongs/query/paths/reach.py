"""Reach: to which nodes the walks of a path lead, kept once for all views of an engine that ask for it; likewise for
all queries with windows, whose firings read other versions.

An index is that of one path in one graph (decision 0124). It has a tree of walks for each origin that some user asks
from (wukongs/query/paths/forest.py), and stands at one SN. Whichever user is the first to move from there moves it;
what has changed is kept until all others have taken it. A user that asks for another span, or whose origins take too
much memory or work, is out of step: it evaluates both ends of its change anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from wukongs.csparql.algebra import GraphRef
from wukongs.csparql.automaton import Automaton, Link
from wukongs.errors import BudgetExceeded
from wukongs.query.limits import Limits
from wukongs.query.paths.forest import Forest, ForestExceeded, Pairs, Triples, Ways, no_pairs
from wukongs.query.paths.path_machine import excluded_ids, source_of
from wukongs.query.paths.path_search import keys_of
from wukongs.query.plans.dataset import Dataset
from wukongs.store.dtypes import BoolArray, Int64Array

BYTES_MAX = 1 << 28
"""The walks of one path may take so much."""
SEARCH_COST, WORK_MIN = 2, 1 << 14
"""A change may look at as much as planting has, or so much for each walk, and so much more."""
TURNED_FACTOR, TURNED_MIN = 8, 64
"""It is evaluated anew if more than so many triples have changed, and more than one in so many of the graph's."""
REFUSALS_MAX, FORGIVEN_CHANGES = 10, 64
"""After the n-th time that walks cannot be kept, they are not for 2 ** n changes, up to this n. One time is forgiven
for so many changes that were followed."""
FEW_ORIGINS = 8
LOGGED_MAX = 1 << 20
"""So many pairs that have changed are kept for users that lag."""


Ends = tuple[Int64Array, Int64Array]
"""Where walks begin, counted along the automaton, and where they end."""


class At(NamedTuple):
    """A version of the graph, and the limits of the execution under way.

    sn: its number; dataset: the stored graph there."""

    sn: int
    dataset: Dataset
    limits: Limits


class _Logged(NamedTuple):
    """A change of the index, from one SN to another."""

    after: int
    to: int
    pairs: Pairs


@dataclass(eq=False)
class PathUser:
    """One operator that asks for a path.

    is_everywhere: from all nodes at which a walk may begin.
    origins: else from these, with the number of its rows that ask from each.
    sn: up to which it has taken all changes; None: it is out of step."""

    is_everywhere: bool
    origins: dict[int, int] = field(default_factory=dict)
    sn: int | None = None
    reason: str = ""
    """Why it is out of step, in words."""
    _refused_for: int = 0
    _refusals: int = 0
    _followed: int = 0

    @property
    def may_join(self) -> bool:
        """Whether it is out of step, and not refused."""
        return self.sn is None and not self._refused_for

    def is_refused(self) -> bool:
        """Note a change that it has to follow; tell whether its walks are not to be kept."""
        self._refused_for = max(0, self._refused_for - 1)
        return self._refused_for > 0

    def forgive(self) -> None:
        """Note a change that was followed."""
        self._followed += 1
        self._refusals -= self._refusals > 0 and self._followed % FORGIVEN_CHANGES == 0

    def refuse(self, why: str) -> None:
        """Be out of step for some changes."""
        self.sn, self.reason = None, why
        self._refusals = min(self._refusals + 1, REFUSALS_MAX)
        self._refused_for = 1 << self._refusals

    def asks_from(self, nodes: Int64Array) -> BoolArray:
        """Mark those of some nodes that are its origins. bool[n]"""
        if self.is_everywhere:
            return np.ones(len(nodes), np.bool_)
        if len(self.origins) <= FEW_ORIGINS:
            return np.isin(nodes, [*self.origins])
        return np.fromiter(map(self.origins.__contains__, nodes.tolist()), np.bool_, len(nodes))


class PathIndex:
    """The walks of one path in one graph. found: its automaton from the origins on; graph: as the first user refers to
    it. Every call holds its lock."""

    def __init__(self, found: Automaton, graph: GraphRef) -> None:
        self._found, self._graph = found, graph
        self._lock = threading.Lock()
        self._users = WeakSet[PathUser]()
        self._forest: Forest | None = None
        self._sn = 0
        self._log: list[_Logged] = []
        self._planted_at = 0
        """The nodes that were looked at before the first change."""
        self._asked_first = 0
        """The origins when it was planted last."""
        self.moved_count = 0

    @property
    def size_bytes(self) -> int:
        forest = self._forest
        logged = sum(column.nbytes for one in list(self._log) for column in one.pairs)
        return logged + (0 if forest is None else forest.size_bytes)

    @property
    def walks_count(self) -> int:
        forest = self._forest
        return 0 if forest is None else len(forest)

    @property
    def looked_at(self) -> int:
        """Triples and entries that were looked at so far."""
        forest = self._forest
        return 0 if forest is None else forest.looked_at

    def share_bytes(self) -> int:
        """Return the bytes that it keeps for each of its users."""
        return self.size_bytes // max(1, len(self._users))

    def _in_step(self) -> list[PathUser]:
        return [user for user in self._users if user.sn is not None]

    def is_at(self, sn: int) -> bool:
        """Return whether it has walks at an SN."""
        return self._forest is not None and self._sn == sn

    def join(self, user: PathUser, at: At) -> None:
        """Keep the walks of a user's origins from a version on, if it can be: the user is in step then."""
        with self._lock:
            self._users.add(user)
            user.sn = None
            if self._sn > at.sn and self._in_step():
                user.reason = "others of its path are at a newer snapshot"
                return
            if self._sn != at.sn:  # those that lag are out of step
                self._forget()
                self._sn = at.sn
            self._guarded([user], at, lambda: self._plant(user, user.origins, at))

    def skip(self, user: PathUser, to: int) -> None:
        """Note that nothing that a user reads has changed up to an SN."""
        with self._lock:
            if user.sn is not None:
                if user.sn <= self._sn:
                    self._sn = max(self._sn, to)
                user.sn = to

    def change(self, user: PathUser, after: int, to: At, gone: Triples, come: Triples) -> Pairs | None:
        """Return the pairs that a change of the graph has inserted and deleted; None if the user is, or falls, out of
        step. gone, come: the triples of the path's links that were deleted and inserted; nothing was before, since the
        user's last change."""
        with self._lock:
            if user.sn is None:
                return None
            if self._sn < to.sn:
                if not user.sn <= self._sn <= after:
                    user.sn, user.reason = None, "others of its path are at another snapshot"
                    return None
                self._guarded(self._in_step(), to, lambda: self._move(to, gone, come))
                if user.sn is None:
                    return None
            return self._taken(user, to.sn)

    def ask(self, user: PathUser, nodes: Int64Array, at: At) -> None:
        """Keep the walks of further origins of a user, which has taken all changes up to a version."""
        with self._lock:
            if user.sn is None or not len(nodes):
                return
            if any(one.to > at.sn for one in self._log):
                user.sn, user.reason = None, "others of its path are ahead"
                return
            self._guarded([user], at, lambda: self._plant(user, nodes.tolist(), at))

    def ends(
        self, user: PathUser, limits: Limits, origins: Iterable[int] | None = None, *, with_own: bool = True
    ) -> Ends | None:
        """Return where walks begin and end, each pair once; None if the user is not at the index's SN. origins: those
        that are asked for, None: all; with_own: also the pairs of a node and itself."""
        with self._lock:
            if user.sn is None or user.sn != self._sn or self._forest is None:
                return None
            if user.is_everywhere:
                return self._forest.ends(None, limits, with_own)
            return self._forest.ends(user.origins if origins is None else origins, limits, with_own)

    def turned(self, dataset: Dataset, gone: Triples, come: Triples) -> str:
        """Say that a change is too large to be followed; "" if it is not."""
        limit = max(TURNED_MIN, dataset.source(self._graph).size // TURNED_FACTOR)
        return "much of the graph has changed at once" if len(gone[0]) + len(come[0]) > limit else ""

    # --- with the lock held -------------------------------------------------------------------------------------------

    def _guarded(self, concerned: Iterable[PathUser], at: At, work: Callable[[], None]) -> None:
        """Do something with the walks. If it takes too much, nothing is kept; those whom it concerns are refused."""
        mark = at.limits.mark()
        try:
            work()
            at.limits.back_to(mark, 0)
        except (ForestExceeded, BudgetExceeded) as error:  # evaluating it anew may need less
            at.limits.back_to(mark, 0)
            for user in concerned:
                user.refuse(str(error))
            self._forget()
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        self._forest, self._log = None, []
        for user in self._users:
            user.sn = None

    def _plant(self, user: PathUser, asked: Iterable[int], at: At) -> None:
        forest = self._forest
        if forest is None:
            forest = self._forest = Forest(self._found, min(BYTES_MAX, at.limits.bytes_max or BYTES_MAX))
            self._planted_at = 0
        nodes = self._begin(at) if user.is_everywhere else asked
        before = forest.looked_at
        forest.plant(forest.missing(nodes), self._ways(at), at.limits)
        self._planted_at += forest.looked_at - before
        self._asked_first = max(self._asked_first, forest.origin_count)
        user.sn = at.sn

    def _begin(self, at: At) -> list[int]:
        """Return the nodes at which a walk may begin."""
        links = self._found.first_links()
        source = source_of(links, self._graph, at.dataset)
        found = [
            keys_of(source, step, excluded_ids(link, at.dataset), -1, at.limits)[:, 1]
            for step, link in enumerate(links)
        ]
        nodes: list[int] = np.unique(np.concatenate(found)).tolist()
        return nodes

    def _ways(self, at: At) -> Callable[[], Ways]:
        return cache(lambda: Ways.of(self._found, self._graph, at.dataset))

    def _move(self, to: At, gone: Triples, come: Triples) -> None:
        forest, after = self._forest, self._sn
        assert forest is not None, "a user is in step"
        self._sn = to.sn
        if not len(gone[0]) + len(come[0]):
            return
        if reason := self.turned(to.dataset, gone, come):
            raise ForestExceeded(reason)
        ways = self._ways(to)
        looked_at_max = max(self._planted_at, SEARCH_COST * len(forest)) + WORK_MIN
        changed = [forest.change(gone, come, ways, to.limits, looked_at_max)]
        if any(user.is_everywhere for user in self._in_step()):
            begin = np.unique(
                np.concatenate([link_begins(link, come, to.dataset) for link in self._found.first_links()])
            )
            changed.append(forest.plant(forest.missing(begin.tolist()), ways, to.limits))
        pairs = Pairs(*map(np.concatenate, zip(*changed, strict=True)))
        if len(pairs.weights):
            self._log.append(_Logged(after, to.sn, pairs))
        self.moved_count += 1
        self._tidy(to)

    def _tidy(self, to: At) -> None:
        """Forget what nobody asks for."""
        forest, users = self._forest, self._in_step()
        assert forest is not None, "a user is in step"
        while len(self._log) > 1 and sum(len(one.pairs.weights) for one in self._log) > LOGGED_MAX:
            first = self._log.pop(0)
            for user in users:
                if user.sn is not None and user.sn < first.to:
                    user.sn, user.reason = None, "it lags"
        if forest.is_sparse:
            self._forget()
        elif any(user.is_everywhere for user in users):
            if forest.origin_count > 2 * self._asked_first + TURNED_MIN:
                forest.fell(forest.origins().difference(self._begin(to), *(user.origins for user in users)))
                self._asked_first = forest.origin_count
        elif forest.origin_count > 2 * sum(len(user.origins) for user in users) + TURNED_MIN:
            forest.fell(forest.origins().difference(*(user.origins for user in users)))

    def _taken(self, user: PathUser, to: int) -> Pairs | None:
        """Return what a user has not taken up to an SN."""
        assert user.sn is not None, "it is in step"
        wanted = [one for one in self._log if user.sn < one.to and one.after < to]
        if any(one.to > to for one in wanted):
            user.sn, user.reason = None, "others of its path are at another snapshot"
            return None
        user.sn = to
        user.forgive()
        oldest = min(one.sn for one in self._in_step() if one.sn is not None)
        self._log = [one for one in self._log if one.to > oldest]
        found = (
            no_pairs() if not wanted else Pairs(*map(np.concatenate, zip(*(one.pairs for one in wanted), strict=True)))
        )
        return found.take(np.flatnonzero(user.asks_from(found.origins)))


def link_begins(link: Link, triples: Triples, dataset: Dataset) -> Int64Array:
    """Return the nodes at which some triples begin that are of a link."""
    subjects, predicates, objects = triples
    fits = (
        ~np.isin(predicates, excluded_ids(link, dataset))
        if link.predicate is None
        else predicates == dataset.resolve(link.predicate)
    )
    return (subjects if link.direction == "out" else objects)[fits]


@dataclass(slots=True)
class PathIndexes:
    """The indexes of an engine's views, or of its queries with windows, each as long as some user has it."""

    _known: WeakValueDictionary[object, PathIndex] = field(default_factory=WeakValueDictionary)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, found: Automaton, names: tuple[object, ...], graph: GraphRef) -> PathIndex:
        """Return the index of an automaton in a graph. names: the stored graphs that are read as this one; graph: a
        reference to it."""
        key = found, names, graph
        with self._lock:
            index = self._known.get(key)
            if index is None:
                index = self._known[key] = PathIndex(found, graph)
            return index
