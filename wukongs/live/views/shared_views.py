"""SharedViews: quiet views of one shape as one tree of operators, with the constants of each as an argument.

Views whose texts differ in constants alone (live/query_shapes.py) are one query with arguments (incremental/lifted.py):
each view is an argument, and takes the rows of its number. So a change costs one delta join for a shape, however many
views there are of it. A view is here only while it is quiet: it has its own log, readers and errors, and moves by
itself as soon as something else than a change of the stored graph concerns it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from wukongs.csparql.terms import Term
from wukongs.errors import WukongsError
from wukongs.incremental.arguments import Arguments, with_arguments
from wukongs.incremental.interests import Interests, Key
from wukongs.incremental.lifted import Lifted, reserved_ids
from wukongs.incremental.lookups import keeps_any
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.view import View
from wukongs.incremental.zset import ZSet
from wukongs.live.core import Core
from wukongs.live.query_constants import constants_of
from wukongs.live.query_shapes import Shape, hole
from wukongs.live.reading import ids_of, terms_of
from wukongs.live.views.snapshots import Snapshot
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.answer import within
from wukongs.query.execution.argument_rows import NUMBER, BoundQuery
from wukongs.query.limits import Limits, limits_of, scheduled
from wukongs.query.memory import Kind
from wukongs.query.terms.query_terms import ConstantIds, DataTexts, QueryTerms
from wukongs.store.batch_set import EMPTY
from wukongs.store.dtypes import Int64Array
from wukongs.store.term_ids import decimal_parts, integer_ids

log = logging.getLogger("wukongs")
ALONE_MAX = 4
"""Up to this many views of a shape move by themselves: a few are quicker by plans with their constants."""
CONSTANTS_MAX = 16
"""Views with more constants move by themselves: in a tree of a shape, each part has a plan for each constant of all."""
COMPUTED_MIN = 1 << 14
"""Computed terms that the views of a shape may have before those that they need no more are forgotten."""
APART_S = 60.0
"""The time for which views that could not be moved together do not try it again."""


class SharingView(Protocol):
    """A view as it is moved together with others.

    name: by which it is registered.
    group: the views of its shape; None: it was not quiet yet."""

    name: str
    group: SharedViews[Any] | None

    @property
    def shape(self) -> Shape | None:
        """The text without its constants; None: it moves by itself."""

    @property
    def constant_ids(self) -> Mapping[Term, int]:
        """The ids of all constants of its text, reserved as long as it is registered."""

    def put_share(self, found: ZSet, terms: QueryTerms, before: Snapshot, to: Snapshot, taken_us: float) -> None:
        """Report what has changed in its content from one snapshot to another.

        found: rows of its variables, in their order, which have the names of the shape. Called with the engine's lock
        held."""


V = TypeVar("V", bound=SharingView)


def may_share(shape: Shape) -> bool:
    """Return whether views of a shape may move together."""
    return len(shape.constants) <= CONSTANTS_MAX


class SharedViews(Generic[V]):
    """The quiet views of one shape. Called with the engine's lock held, but for `advance`, which the thread calls that
    moves views.

    shape: theirs.
    is_shared: they move together; else each by itself, being few, or having no rule that serves all of them.
    members: the views, with their numbers; None: of one that has come since the last change.
    keys: of what they have to take, whichever of them it concerns: parts that are kept for all constants read it.
    left: numbers of views that have left since the last change, with the keys of what concerns them: as long as they
    are bound, the operators have to take what concerns them, too."""

    def __init__(self, core: Core, shape: Shape) -> None:
        self._core, self.shape = core, shape
        self.members: dict[V, int | None] = {}
        self.keys: tuple[Key, ...] = ()
        self.left: dict[int, tuple[Key, ...]] = {}
        self._new: dict[V, None] = {}
        """Members without a number."""
        self.is_shared = self._is_refused = False
        self._apart_until_s = 0.0
        """They could not be moved together, and do not try it again before (time.monotonic())."""
        self._known: dict[Term, int] = {}

    def add(self, view: V) -> bool:
        """Take one more view; return whether they are to move together from now on."""
        self.members[view] = self._new[view] = None
        are_enough = not self._is_refused and len(self.members) > ALONE_MAX
        if self.is_shared or not are_enough or self._apart_until_s > time.monotonic():
            return False
        self._lifted = Lifted(BoundQuery(self.shape.query, tuple(map(hole, range(len(self.shape.constants))))))
        known = {term: view.constant_ids[term] for term in constants_of(self.shape.query)}
        self._known = known | reserved_ids(len(self.shape.constants))  # each member has a reference to them
        self._begin()
        self._is_refused = self._view.takes_each
        self.is_shared = not self._is_refused
        return self.is_shared

    def remove(self, view: V, keys: tuple[Key, ...]) -> list[tuple[Key, ...]]:
        """Remove a view that has moved with others. keys: of what concerns it. Return the keys of views of which
        nothing is left here."""
        number = self.drop(view)
        if number is not None:
            del self._views[number]
            self.left[number] = keys
        elif self.members:
            return [keys]
        if self.members:
            return []
        gone = [self.keys, *self.left.values(), *([keys] if number is None else [])]
        self.is_shared, self.left = False, {}
        return gone

    def drop(self, view: V) -> int | None:
        """Remove a view that has moved by itself. Return its number."""
        self._new.pop(view, None)
        return self.members.pop(view, None)

    def part(self) -> None:
        """Move by themselves, for a while. Called when all views have left."""
        assert not self.members, self.members
        self._apart_until_s = time.monotonic() + APART_S

    def _begin(self) -> None:
        """Begin without arguments."""
        self._views: dict[int, V] = {}
        self._terms_of: dict[int, Int64Array] = {}
        """The arguments that are bound, by their numbers: the ids of the constants of a view."""
        self._arguments = Arguments(self._lifted.hidden)
        self._bound = ZSet.empty(self._arguments.variables)
        """The change of the arguments that the next move takes first."""
        self._make_view()
        self.keys = tuple(dict.fromkeys(Interests(tuple(self._lifted.free), self._view.evaluation).keys()))

    def _make_view(self) -> None:
        core, query = self._core, self._lifted.query
        evaluation = Evaluation(
            query.dataset, self._ids(), terms_of(core), Limits(), lifted=self._lifted, paths=core.paths
        )
        self._view, self._is_installed = View(query, evaluation, 0, EMPTY), False
        self._computed_max = COMPUTED_MIN
        self._keeps = keeps_any(self._view.top)
        """Some operator keeps something; where it is installed, that of all arguments."""

    def _ids(self) -> ConstantIds:
        return ConstantIds(ids_of(self._core), self._known)

    # --- a move -------------------------------------------------------------------------------------------------------

    def prepare(self) -> list[tuple[Key, ...]]:
        """Give numbers to the views that have come since the last change, and unbind those that have left; return the
        keys of these."""
        new, self._new = [*self._new], {}
        constants = [self._constants(view) for view in new]
        width = len(self.shape.constants)
        columns = np.array(constants, np.int64).reshape(len(new), width).T
        bound = self._arguments.numbered(BindingTable(self._lifted.hidden, tuple(columns), len(new)))
        numbers: Int64Array = decimal_parts(bound.table.column(NUMBER))[0]
        for view, number, ids in zip(new, numbers.tolist(), constants, strict=True):
            self.members[view], self._views[number], self._terms_of[number] = number, view, ids
        if self.left:
            gone = np.array([self._terms_of.pop(number) for number in self.left], np.int64).reshape(-1, width).T
            ids = integer_ids(np.array([*self.left], np.int64))
            bound = bound.plus(ZSet.of(BindingTable(self._arguments.variables, (ids, *gone), len(ids)), -1))
        left, self.left, self._bound = [*self.left.values()], {}, bound
        return left

    def _constants(self, view: V) -> Int64Array:
        assert view.shape is not None
        return np.array([view.constant_ids[term] for term in view.shape.constants], np.int64)

    def advance(self, before: Snapshot, to: Snapshot, change: Change | None, reader: DataTexts) -> Shares[V] | None:
        """Return what has changed in the contents of the views from one snapshot to another; None if it cannot be found
        for all at once: each is to find its own. change: of the stored graph; None: it is not known."""
        began_s = time.monotonic()
        limits = scheduled(limits_of(self._core.settings, None, kind=Kind.FIRING))
        try:
            with within(limits):
                found = self._moved(before, to, change, limits, reader)
        except WukongsError as error:
            log.debug("%d views of a shape move by themselves: %s", len(self.members), error)
        except Exception:
            log.exception("views of a shape have failed, and move by themselves")
        else:
            terms = self._view.evaluation.terms
            if terms.computed_count > self._computed_max:
                self._make_view()
            return Shares(self._views, found, terms, 1e6 * (time.monotonic() - began_s))
        return None

    def _moved(self, before: Snapshot, to: Snapshot, change: Change | None, limits: Limits, reader: DataTexts) -> ZSet:
        view = self._view
        evaluation = view.evaluation
        evaluation.resolve, evaluation.limits = self._ids(), limits
        evaluation.terms = evaluation.terms.renewed(reader)
        arguments = self._arguments.plus(self._bound) if len(self._bound) else self._arguments
        start, end = (arguments.over(one.stored) for one in (before, to))
        if self._keeps and not self._is_installed:
            view.sn, view.stored = before.sn, start
            view.install()
            self._is_installed = True
            self._computed_max = max(COMPUTED_MIN, 2 * evaluation.terms.computed_count)
        elif self._is_installed and len(self._bound):
            earlier = self._arguments.over(before.stored)
            view.sn, view.stored = before.sn, earlier
            view.advance(before.sn, with_arguments(Change(earlier, start, EMPTY, EMPTY), earlier, start, self._bound))
        self._arguments, self._bound = arguments, ZSet.empty(arguments.variables)
        view.sn, view.stored = before.sn, start
        try:
            if change is None:
                return view.advance_anew(to.sn, end)
            return view.advance(to.sn, change.beside(start, end, change.inserted, change.deleted))
        finally:
            view.stored = EMPTY  # those of old snapshots are to be freed

    # --- what they say of themselves ----------------------------------------------------------------------------------

    @property
    def arguments_count(self) -> int:
        """How many views the operators have the rows of."""
        return self._arguments.count

    @property
    def size_bytes(self) -> int:
        """The bytes that the operators and the arguments take."""
        return self._view.kept_bytes + self._arguments.size_bytes

    def explain(self, *, analyze: bool = False) -> str:
        """Return the operators as text, as View.explain."""
        return f"one of {len(self.members)} views of a shape\n{self._view.explain(analyze=analyze)}"


class Shares(Generic[V]):
    """The change of the contents of some views. terms: they have the texts of its rows; taken_us: how
    long it took, in microseconds."""

    def __init__(self, views: Mapping[int, V], found: ZSet, terms: QueryTerms, taken_us: float) -> None:
        self._views, self.terms, self.taken_us = views, terms, taken_us
        self._rows = list(_by_number(found))

    def put(self, before: Snapshot, to: Snapshot) -> None:
        """Have each of the views that are still there report its rows. Called with the engine's lock held."""
        for number, rows in self._rows:
            view = self._views.get(number)
            if view is not None:
                view.put_share(rows, self.terms, before, to, self.taken_us)


def _by_number(found: ZSet) -> Iterator[tuple[int, ZSet]]:
    """Yield the rows of each argument, without its number. found: NUMBER, then the columns of a view."""
    if not len(found):
        return
    assert found.variables[0] == NUMBER, found.variables
    numbers: Int64Array = decimal_parts(found.table.columns[0])[0]
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(order)]
    for first, last in pairwise(starts):
        places = order[first:last]
        columns = tuple(column[places] for column in found.table.columns[1:])
        rows = BindingTable(found.variables[1:], columns, last - first)
        yield int(ordered[first]), ZSet(rows, found.weights[places])
