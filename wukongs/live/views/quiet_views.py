"""QuietViews: the live views that are complete at one snapshot, and move on together while no change concerns them.

A view that a change concerns is awake: it moves by itself, and is quiet again once it stands where the quiet ones do.
So a change costs what the views that it concerns cost, however many there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from wukongs.incremental.interests import Key
from wukongs.incremental.versions import TRIPLES_MAX, Change
from wukongs.live.views.snapshots import Snapshot, Snapshots
from wukongs.live.views.view_log import Position, ViewLog


class MovedView(Protocol):
    """A view as it is moved.

    name: by which it is registered.
    may_be_quiet: nothing has it move but a change that concerns it."""

    name: str

    @property
    def snapshot(self) -> Snapshot:
        """The one at which it stands, held."""

    @property
    def may_be_quiet(self) -> bool: ...

    def keys(self) -> Iterable[Key]:
        """Iterate over keys, of which a change that concerns it has a triple."""

    def begin_quiet(self, quiet: QuietViews[Any]) -> None:
        """Stand where the quiet views do from now on."""

    def end_quiet(self, snapshot: Snapshot) -> None:
        """Be awake, at a snapshot that is held for it."""


V = TypeVar("V", bound=MovedView)


class QuietViews(Generic[V]):
    """Called with the engine's lock held.

    snapshot: the one at which they stand, held once for all of them; None: there are none.
    awake: the other views, in the order in which they move.
    watched: logs of theirs whose readers wait for progress; guarded by the lock of the logs."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self.snapshot: Snapshot | None = None
        self.awake: dict[V, None] = {}
        self.watched: set[ViewLog] = set()
        self._keys: dict[V, tuple[Key, ...]] = {}
        self._by_key: defaultdict[Key, dict[V, None]] = defaultdict(dict)

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
        keys = self._keys[view] = tuple(dict.fromkeys(view.keys()))
        for key in keys:
            self._by_key[key][view] = None
        del self.awake[view]
        view.begin_quiet(self)
        self._snapshots.release(own)
        return True

    def give(self, view: V) -> None:
        """Have a view be awake, with a hold of its snapshot."""
        assert self.snapshot is not None
        for key in self._keys.pop(view):
            known = self._by_key[key]
            del known[view]
            if not known:
                del self._by_key[key]
        self.awake[view] = None
        view.end_quiet(self._snapshots.hold(self.snapshot))
        if not self._keys:
            self._snapshots.release(self.snapshot)
            self.snapshot = None

    def concerned(self, change: Change | None) -> list[V]:
        """Return the views that a change may concern. change: None: it is not known."""
        if change is None or change.count > TRIPLES_MAX:
            return list(self._keys)
        found = dict[V, None]()
        for key in _keys_of(change):
            if (views := self._by_key.get(key)) is not None:
                found |= views
        return list(found)

    def move(self, to: Snapshot) -> None:
        """Move to a later snapshot, which is held for them; no change up to there concerns one of them."""
        before = self.snapshot
        assert before is not None
        self.snapshot = to
        self._snapshots.release(before)
        for log in list(self.watched):
            log.note_progress()


def _keys_of(change: Change) -> Iterable[Key]:
    """Return the keys of all triples that were inserted or deleted."""
    found = {Key(None): None}
    for subject, predicate, object_ in zip(*(column.tolist() for column in change.quads[1:]), strict=True):
        for of in (None, predicate):
            found[Key(of)] = found[Key(of, "subject", subject)] = found[Key(of, "object", object_)] = None
    return found
