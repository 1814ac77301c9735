"""Descriptors: how many files and connections this process may have open at once, and what is needed of them."""

from __future__ import annotations

import errno
import resource
import time
from contextlib import suppress

from wukongs.errors import SettingsError

CONNECTIONS_MAX = 4096
"""The most connections of one bound socket."""
NEEDED = 512
"""With less, a process that listens would be without descriptors as soon as it works hard."""
PER_NODE = 64
"""Descriptors for the connections of a node with one other node, each way."""
WISHED = 1 << 16
LACK_S = 1.0
"""After so long without a descriptor for another connection, a process gives up."""
_OWN = 256
"""For files, memory maps, and the connections that a process opens itself."""


def make_room(other_nodes: int = 0, *, at_most: int = WISHED) -> None:
    """See to it that this process may open enough for listening, and for a cluster with so many other nodes: raise its
    soft limit to the hard one, but no higher than at_most.

    Raises SettingsError (the hard limit is too low)."""
    needed = NEEDED + 2 * PER_NODE * other_nodes
    soft, hard = (_at_most(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    wished = min(hard, max(at_most, needed))
    if soft < wished:
        with suppress(OSError, ValueError):  # the system's own limit is lower
            resource.setrlimit(resource.RLIMIT_NOFILE, (wished, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        soft, hard = (_at_most(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    if soft < needed:
        raise SettingsError(
            f"ulimit -n = {soft}: expected {needed} open files or more, for a process that listens"
            f"{f' and {other_nodes} other nodes' if other_nodes else ''}, and the hard limit is {hard}. Raise that "
            "(ulimit -Hn, LimitNOFILE of a systemd unit)"
        )


def is_lack(error: object) -> bool:
    """Tell whether an error, or an errno, says that this process or the machine has no descriptor left."""
    while isinstance(error, BaseException) and getattr(error, "errno", None) is None and error.__cause__ is not None:
        error = error.__cause__
    return getattr(error, "errno", error) in (errno.EMFILE, errno.ENFILE)


class Lack:
    """Tells a lack of descriptors that lasts from one that passes."""

    def __init__(self) -> None:
        self._began_s = self._last_s = -LACK_S

    def is_lasting(self) -> bool:
        """Note that there was none; tell whether that has been so for LACK_S."""
        now = time.monotonic()
        if now - self._last_s >= LACK_S:  # the one before has passed
            self._began_s = now
        self._last_s = now
        return now - self._began_s >= LACK_S

    def end(self) -> None:
        """Note that there was one."""
        self._last_s = -LACK_S


def connections_max() -> int:
    """Return how many connections a bound socket may have: two of them leave enough for all else."""
    soft = _at_most(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return max(1, min(CONNECTIONS_MAX, (soft - _OWN) // 2))


def _at_most(limit: int) -> int:
    """Return a limit as a number that can be compared: without one it is a large one."""
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit
