"""NodeInjector: the injector of a node. It comes to the exposed SNs in their order.

A stage is a tick or a record. At a tick, streams show the stream batches that it covers. They are sealed, and due
queries fire, as in an embedded engine, in order of time. Then come the records behind the tick. A stage waits for the
whole slices that it needs from other nodes. Nothing behind it is seen before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wukongs.cluster.node_core import ZERO, NodeCore
from wukongs.live.continuous import ContinuousQuery, Firing
from wukongs.live.injector import UPPER_MAX, Injector
from wukongs.protocol.records import Sn
from wukongs.store.snapshot import TICK_MIN_MS


@dataclass(frozen=True, slots=True)
class Due:
    """The effect of a committed record when its SN is exposed. Both functions are called with the lock held."""

    sn: Sn
    run: Callable[[], None]
    is_ready: Callable[[], bool]


class NodeInjector(Injector):
    """on_drop: called with the lock held when old slices go."""

    def __init__(self, core: NodeCore, on_drop: Callable[[], None]) -> None:
        super().__init__(core)
        self._node = core
        self._on_drop = on_drop
        self._due: deque[Due] = deque()
        self.exposed = ZERO
        self.limit: Sn | None = None
        """Nothing behind this SN is begun while it is set, so that a joining node can take over what is there."""

    def add_due(self, due: Due) -> None:
        """Add a record behind all before. Called with the lock held."""
        assert not self._due or due.sn > self._due[-1].sn, (due.sn, self._due[-1].sn)
        assert due.sn > self.exposed, (due.sn, self.exposed)
        self._due.append(due)

    def expose(self, sn: Sn) -> None:
        """Go on up to an SN. Called with the lock held."""
        self.exposed = max(sn, self.exposed)
        self.wake()

    def _step(self, upper: int = UPPER_MAX) -> tuple[Sequence[Firing], bool]:
        firings, is_done = super()._step(upper)
        return (firings, False) if not is_done else ((), not self._go_on())

    def _picked(self, query: ContinuousQuery) -> Sequence[Firing]:
        """Pick firings as Injector._picked does. Everything up to this time is sealed. Reads may see it before the
        firing asks other nodes: they may be in firings of the same stage, and ask this one. So a firing waits for
        earlier ones only."""
        core = self._node
        core.come_to(Sn(min(self._ready_ms - TICK_MIN_MS, core.shown), 0))
        return super()._picked(query)

    def _go_on(self) -> bool:
        """Begin the next stage, when there is nothing left to do in the one in hand; tell whether there is one."""
        core = self._node
        core.come_to(Sn(core.shown, 0))
        exposed = self.exposed if self.limit is None else min(self.exposed, self.limit)
        due = self._due[0] if self._due and self._due[0].sn <= exposed else None
        target = exposed.tick if due is None else due.sn.tick
        if target > core.shown:
            ready = min((state.ready_tick(target) for state in core.node_streams()), default=target)
            if ready > core.shown:
                core.show(ready)
                return True
            return False
        if due is None or not due.is_ready():
            return False
        self._due.popleft()
        due.run()
        core.come_to(due.sn)
        return True

    def _drop_slices(self) -> None:
        super()._drop_slices()
        self._on_drop()
