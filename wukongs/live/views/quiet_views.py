"""QuietViews: the live views that are complete at one snapshot, and move on together while no change concerns them.

A view that a change concerns is awake: it moves by itself, and is quiet again once it stands where the quiet ones do.
Views of one shape stay quiet, and are moved by one tree of operators (shared_views.py). So a change costs what the
shapes and the other views cost that it concerns, however many there are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from wukongs.csparql.algebra import Query
from wukongs.incremental.interests import End, Key
from wukongs.incremental.versions import TRIPLES_MAX, Change
from wukongs.live.core import Core
from wukongs.live.views.shared_views import SharedViews, SharingView
from wukongs.live.views.snapshots import Snapshot, Snapshots
from wukongs.live.views.view_log import Position, ViewLog
from wukongs.store.dtypes import Int64Array


class MovedView(SharingView, Protocol):
    """A view as it is moved.

    may_be_quiet: nothing has it move but a change that concerns it."""

    @property
    def snapshot(self) -> Snapshot:
        """The one at which it stands, held."""

    @property
    def may_be_quiet(self) -> bool: ...

    def keys(self) -> Iterable[Key]:
        """Iterate over keys, of which a change that concerns it has a triple."""

    def begin_quiet(self, quiet: QuietViews[Any]) -> None:
        """Stand where the quiet views do from now on."""

    def begin_shared(self) -> None:
        """Keep nothing: it moves with others of its shape."""

    def end_quiet(self, snapshot: Snapshot, *, is_shared: bool) -> None:
        """Be awake, at a snapshot that is held for it. is_shared: it has moved with others, and keeps nothing."""


V = TypeVar("V", bound=MovedView)


class QuietViews(Generic[V]):
    """Called with the engine's lock held.

    snapshot: the one at which they stand, held once for all of them; None: there are none.
    awake: the other views, in the order in which they move.
    watched: logs of theirs whose readers wait for progress; guarded by the lock of the logs."""

    def __init__(self, core: Core, snapshots: Snapshots) -> None:
        self._core, self._snapshots = core, snapshots
        self.snapshot: Snapshot | None = None
        self.awake: dict[V, None] = {}
        self.watched: set[ViewLog] = set()
        self._keys: dict[V, tuple[Key, ...]] = {}
        self._by_key: defaultdict[Key, dict[V | SharedViews[V], int]] = defaultdict(dict)
        """Which views a triple concerns; those that move together as one, with the number of views that have the
        key."""
        self._ends = Counter[str | None]()
        """The number of these keys, by their ends."""
        self._shapes: WeakValueDictionary[Query, SharedViews[V]] = WeakValueDictionary()
        """Those of all views that have been quiet."""

    def __len__(self) -> int:
        return len(self._keys)

    def is_behind(self, sn: int) -> bool:
        return self.snapshot is not None and self.snapshot.sn < sn

    def names(self) -> list[str]:
        return [view.name for view in self._keys]

    def position(self) -> Position:
        """Return where they stand. Also from threads without the lock."""
        snapshot = self.snapshot
        assert snapshot is not None, "a quiet view has a snapshot"
        return Position(snapshot.sn)

    def take(self, view: V) -> bool:
        """Take a view that is complete, and holds its snapshot; return whether it stands where the quiet ones do. Its
        hold is given back."""
        own = view.snapshot
        if self.snapshot is None:
            self.snapshot = self._snapshots.hold(own)
        elif self.snapshot is not own:
            return False
        self._keys[view] = tuple(dict.fromkeys(view.keys()))
        del self.awake[view]
        view.begin_quiet(self)
        self._snapshots.release(own)
        self._enter(view)
        return True

    def _enter(self, view: V) -> None:
        """Have changes find a view, or those of its shape."""
        keys, shape, group = self._keys[view], view.shape, view.group
        if shape is None:
            self._index(keys, view)
            return
        if group is None:
            group = self._shapes.get(shape.query)
            if group is None:
                group = self._shapes[shape.query] = SharedViews(self._core, shape)
            view.group = group
        if group.is_shared:
            group.add(view)
            self._index(keys, group)
            view.begin_shared()
        elif group.add(view):
            self._index(group.keys, group)
            for one in group.members:
                if one is not view:
                    self._unindex(self._keys[one], one)
                self._index(self._keys[one], group)
                one.begin_shared()
        else:
            self._index(keys, view)

    def _index(self, keys: Iterable[Key], holder: V | SharedViews[V]) -> None:
        for key in keys:
            known = self._by_key[key]
            self._ends[key.end] += not known
            known[holder] = known.get(holder, 0) + 1

    def _unindex(self, keys: Iterable[Key], holder: V | SharedViews[V]) -> None:
        for key in keys:
            known = self._by_key[key]
            known[holder] -= 1
            if not known[holder]:
                del known[holder]
            if not known:
                del self._by_key[key]
                self._ends[key.end] -= 1

    def give(self, view: V) -> None:
        """Have a view be awake, with a hold of its snapshot."""
        assert self.snapshot is not None
        shared, keys = self.shared(view), self._keys.pop(view)
        if shared is None:
            self._unindex(keys, view)
            if view.group is not None:
                view.group.drop(view)
        else:
            for left in shared.remove(view, keys):
                self._unindex(left, shared)
        self.awake[view] = None
        view.end_quiet(self._snapshots.hold(self.snapshot), is_shared=shared is not None)
        if not self._keys:
            self._snapshots.release(self.snapshot)
            self.snapshot = None

    def prepare(self, group: SharedViews[V]) -> None:
        """Have views that are about to move together take in those that have come, and let go those that have left."""
        for left in group.prepare():
            self._unindex(left, group)

    def part(self, group: SharedViews[V]) -> None:
        """Have views that could not be moved together move by themselves, for a while."""
        for view in list(group.members):
            self.give(view)
        group.part()

    def shared(self, view: V) -> SharedViews[V] | None:
        """Return the views with which a quiet one moves; None: it moves by itself."""
        group = view.group
        return group if group is not None and group.is_shared and view in group.members else None

    def concerned(self, change: Change | None) -> tuple[list[V], list[SharedViews[V]]]:
        """Return the views that a change may concern, and those that move together of which it may concern one.
        change: None: it is not known."""
        if change is None or change.count > TRIPLES_MAX:
            groups = [group for group in list(self._shapes.values()) if group.is_shared and group.members]
            return [view for view in self._keys if self.shared(view) is None], groups
        found = dict[V | SharedViews[V], int]()
        for key in _keys_of(change, self._ends):
            if (holders := self._by_key.get(key)) is not None:
                found |= holders
        groups = [one for one in found if isinstance(one, SharedViews)]
        return [one for one in found if not isinstance(one, SharedViews)], groups

    def move(self, to: Snapshot) -> None:
        """Move to a later snapshot, which is held for them; no change up to there concerns one of them."""
        before = self.snapshot
        assert before is not None
        self.snapshot = to
        self._snapshots.release(before)
        for log in list(self.watched):
            log.note_progress()


def _keys_of(change: Change, ends: Counter[str | None]) -> Iterator[Key]:
    """Iterate over the keys of all triples that were inserted or deleted. ends: the number of keys in use by their
    ends; keys of no other end are left out."""
    _, subjects, predicates, objects = change.quads
    yield Key(None)
    yield from map(Key, np.unique(predicates).tolist())
    of_ends: tuple[tuple[End, Int64Array], ...] = ("subject", subjects), ("object", objects)
    for end, terms in of_ends:
        if ends[end]:
            for predicate, term in dict.fromkeys(zip(predicates.tolist(), terms.tolist(), strict=True)):
                yield Key(predicate, end, term)
            for term in np.unique(terms).tolist():
                yield Key(None, end, term)
