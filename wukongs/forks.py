"""Forks: what a process holds when it is forked is refused by name in the child, since it belongs to its parent.

A forked child has a copy of its parent's memory, and the same files and sockets, but of its threads only the one that
has forked. An engine would write to the log of its parent, a client would read the answers of its parent, and a lock
that another thread held would never be released. So each owner of such things is noted here, and disowned in a child.

Processes that begin anew (spawn, forkserver, subprocess) have nothing of this.
"""

from __future__ import annotations

import os
import threading
from typing import NoReturn, Protocol
from weakref import WeakSet

from wukongs.errors import ForkError


class Lock(Protocol):
    """A lock of threading."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


class Owner(Protocol):
    """An object that holds folders, sockets or threads."""

    @property
    def held_over_forks(self) -> tuple[Lock, ...]:
        """Locks that are acquired before each fork, so that no other thread holds them in the child. None of them is
        ever held for long."""

    def disown(self) -> None:
        """Refuse, in a child, all calls that need what the parent holds; none of them waits for a lock."""


class Disowned:
    """The lock of an owner in a child: whoever acquires it is refused. what: begins the sentence that says so."""

    def __init__(self, what: str) -> None:
        self._what = what

    def acquire(self, *_: object, **__: object) -> NoReturn:
        raise fork_error(self._what)

    __enter__ = wait = wait_for = notify = notify_all = acquire

    def __exit__(self, *_: object) -> None: ...

    def release(self) -> None: ...


def fork_error(what: str) -> ForkError:
    """Return the error of a call in a child. what: begins its sentence, and says what to do."""
    return ForkError(f"this process was forked from the one that {what}")


_owners: WeakSet[Owner] = WeakSet()
_forking = threading.local()


def note_owner(owner: Owner) -> None:
    """Have an object disowned in each child that is forked from now on, for as long as somebody holds it."""
    _owners.add(owner)


def _before() -> None:
    _forking.owners = list(_owners)
    _forking.locks = [lock for owner in _forking.owners for lock in owner.held_over_forks]
    for lock in _forking.locks:
        lock.acquire()


def _release() -> None:
    for lock in reversed(_forking.locks):
        lock.release()
    _forking.owners, _forking.locks = [], []


def _in_child() -> None:
    owners = _forking.owners
    _release()
    for owner in owners:
        owner.disown()


os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_in_child)
