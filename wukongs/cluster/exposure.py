"""Exposure: the Progress of a node. The protocol exposes an SN, and the injector comes to it in stages.

A stage is a tick or a record. At a tick, streams show the stream batches that it covers: these are sealed, and firings
due by then fire, in order of time, as in an embedded engine. Then come the records behind the tick, one by one. A stage
waits for the whole slices that it needs from other nodes. Nothing behind it is seen before. `shown_ms` is how far the
stage shows streams; `reached` is how far reads may see.

Loads, updates and ticks are sealed at exactly the SNs that the protocol has given them, which rise. So the trace of a
node is an ordinary one. Stream batches of a late stream become stored triples at the SN of the record
that brings them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wukongs.cluster.node_stream import NodeStream
from wukongs.cluster.times import ZERO, ms_of, packed, tick_at
from wukongs.errors import StreamError
from wukongs.live.core import Core
from wukongs.live.stream_state import FOREVER_MS
from wukongs.protocol.records import Sn


@dataclass(frozen=True, slots=True)
class Due:
    """The effect of a committed record when its SN is exposed. Both functions are called with the lock held."""

    sn: Sn
    run: Callable[[], None]
    is_ready: Callable[[], bool]


class Exposure:
    """wukongs.live.core.Progress of a node. Called with the lock held. drop_old: called when what fires has fired."""

    stands_ms: int | None = None

    def __init__(self, drop_old: Callable[[], None] = lambda: None) -> None:
        self._drop_old = drop_old
        self._due: deque[Due] = deque()
        self.streams: dict[str, NodeStream] = {}
        """The streams whose declaration is exposed, by their names in Core.streams."""
        self.shown = 0
        """The tick that streams show."""
        self.exposed = ZERO
        self.reached = ZERO
        self.limit: Sn | None = None
        """Nothing behind this SN is begun while it is set, so that a joining node can take over what is there."""

    # --- what the protocol says ---------------------------------------------------------------------------------------

    def add_due(self, due: Due) -> None:
        """Add a record behind all before."""
        assert not self._due or due.sn > self._due[-1].sn, (due.sn, self._due[-1].sn)
        assert due.sn > self.exposed, (due.sn, self.exposed)
        self._due.append(due)

    def expose(self, sn: Sn) -> None:
        """Go on up to an SN; the injector has to be woken."""
        self.exposed = max(sn, self.exposed)

    def show(self, tick: int) -> None:
        """Let streams show what a tick covers: what ends there can be sealed now."""
        self.shown = tick
        for stream in self.streams.values():
            stream.show(ms_of(tick))

    def come_to(self, core: Core, sn: Sn) -> None:
        """Let reads see an SN, of which everything is sealed."""
        if sn.tick and (core.sealed_ms is None or ms_of(sn.tick) > core.sealed_ms):
            core.move_to(ms_of(sn.tick))
        core.pass_to(packed(sn) + 1)
        if sn > self.reached:
            self.reached = sn
            core.changed.notify_all()

    # --- as Progress --------------------------------------------------------------------------------------------------

    def moved(self, core: Core) -> None:
        pass

    def clock_ms(self, core: Core) -> int | None:
        if not self.shown:
            return None
        counts = False
        for stream in self.streams.values():
            if stream.state.counts:
                if not stream.is_over:
                    return ms_of(self.shown)
                counts = True
        return FOREVER_MS if counts else None

    def settled_clock_ms(self, core: Core) -> int | None:
        return self.clock_ms(core)

    def exposed_ms(self) -> int:
        return ms_of(self.shown)

    def closed_ms(self, core: Core) -> Mapping[str, int | None]:
        """Return how far each stream is inserted here. Other nodes may have closed less of it: the clock says that."""
        return {
            one.state.iri: one.inserted_ms
            for one in self.streams.values()
            if one.began_ms is not None and one.last_batch is None
        }

    def is_behind(self, core: Core) -> bool:
        return False

    def before_firings(self, core: Core, at_ms: int) -> None:
        """Let reads see the time of the firings before these ask other nodes: those may be in firings of the same
        stage, and ask this one. So a firing waits for earlier ones only."""
        self.come_to(core, Sn(min(tick_at(at_ms), self.shown), 0))

    def go_on(self, core: Core) -> bool:
        """Begin the next stage."""
        self._drop_old()
        self.come_to(core, Sn(self.shown, 0))
        exposed = self.exposed if self.limit is None else min(self.exposed, self.limit)
        due = self._due[0] if self._due and self._due[0].sn <= exposed else None
        target = exposed.tick if due is None else due.sn.tick
        if target > self.shown:
            ready = min((tick_at(one.ready_ms(ms_of(target))) for one in self.streams.values()), default=target)
            if ready > self.shown:
                self.show(ready)
                return True
            return False
        if due is None or not due.is_ready():
            return False
        self._due.popleft()
        due.run()
        self.come_to(core, due.sn)
        return True


def not_reached(sn: Sn, reached: Sn, timeout_s: float) -> StreamError:
    """Return the error of a wait for an SN that did not come."""
    return StreamError(
        f"SN {packed(sn)} cannot be read here within {timeout_s:g} s, this node stands at {packed(reached)}: a stream "
        "or another node holds it back; wait longer, or ask another node"
    )
