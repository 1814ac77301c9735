"""Health: whether the threads of a node move on that other nodes wait for. One that does not ends the node.

A node says by its pulses that it is there, and the protocol's thread sends them. Changes also wait for the thread of
the socket, for the workers and for the injector. If one of these hung while pulses went on, the node would answer
nothing, and all changes would wait for it.

A thread of its own looks at each part now and then. Only the time counts in which it came to look itself: that a
process was stopped, or the collector of garbage held all threads, is no fault of a part. Each part has its own limit,
longer than what it may have to do at once: a worker waits for other nodes, the injector fires a query. A part that is
busy for longer than silence_s cannot be told from one that hangs. One worker that hangs takes the place of one only.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wukongs.errors import NodeUnavailable

SOCKET_MIN_S = 1.0
"""Else half of silence_s: a node that hears nobody for silence_s begins to take the others out."""
WORKERS_S = 10.0
"""How long all workers may be at requests that wait for nobody, none of them being done."""
WAITING_WORKERS_S = 40.0
"""The same where requests wait for other nodes, for 30 s at the most."""
PROTOCOL_S = 30.0
"""The other nodes go on without this one sooner: it sends no pulses. It is time to start another one in its place."""
INJECTOR_S = 30.0
"""Beside the time that a query may take."""
LOOKS = 8
"""So often a part is looked at within the shortest limit."""

log = logging.getLogger("wukongs")


@dataclass(slots=True)
class Part:
    """moves: is called again and again, and tells whether the part has done something since, or has nothing to do;
    limit_s: how long it may not move. waited_s: how long it has not."""

    moves: Callable[[], bool]
    limit_s: float
    waited_s: float = field(default=0.0, init=False)


class Echo:
    """The moves of a thread that calls what it is given: whether it has called. call: hands it a function."""

    def __init__(self, call: Callable[[Callable[[], None]], object]) -> None:
        self._call = call
        self._is_called = threading.Event()
        self._is_called.set()

    def __call__(self) -> bool:
        if not self._is_called.is_set():
            return False
        self._is_called.clear()
        self._call(self._is_called.set)
        return True


class Advance:
    """The moves of threads with work: whether their count has changed. state: whether there is work that does not begin
    or end, and the count of what was done."""

    def __init__(self, state: Callable[[], tuple[bool, int]]) -> None:
        self._state = state
        self._count = -1

    def __call__(self) -> bool:
        is_at_work, count = self._state()
        before, self._count = self._count, count
        return not is_at_work or count != before


class Health:
    """parts: by their names; end: is called once with the error of the first that does not move in its time."""

    def __init__(self, number: int, parts: Mapping[str, Part], end: Callable[[NodeUnavailable], object]) -> None:
        self._number, self._parts, self._end = number, parts, end
        self._look_s = min(part.limit_s for part in parts.values()) / LOOKS
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wukongs-health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop looking. Closing twice is allowed."""
        self._is_closed.set()

    def look(self, passed_s: float) -> str | None:
        """Look at all parts. passed_s: since the last look. Return the name of one that has not moved in its time."""
        for name, part in self._parts.items():
            part.waited_s = 0.0 if part.moves() else part.waited_s + passed_s
            if part.waited_s > part.limit_s:
                return name
        return None

    def _run(self) -> None:
        looked_s = time.monotonic()
        while not self._is_closed.wait(self._look_s):
            now = time.monotonic()
            name = self.look(min(now - looked_s, 2 * self._look_s))
            looked_s = now
            if name is not None:
                waited_s = self._parts[name].waited_s
                error = NodeUnavailable(
                    f"node {self._number}: {name} has not moved for {waited_s:.3g} s: it ends, so that the others go "
                    "on without it. Start it again"
                )
                log.error("%s", error)
                self._end(error)
                return
