"""NodeCore: the state of a node's store, whose time is told from outside.

An embedded engine finds out itself which time is stable. Here the protocol exposes an SN, and the injector comes to it
in stages. The first is a tick: stream batches that end at or before it are sealed, and firings due by then fire. Then
come the records behind the tick, one by one. `shown` is how far the current stage shows streams; `reached` is how far
reads may see.

Loads, updates and ticks are sealed at exactly the SNs that the protocol has given them, which rise. So the trace of a
node is an ordinary one. It differs from an embedded engine's in one way: the stream batches of a stream that began late
become stored triples at the tick after that of its beginning, all at once, since they are visible from there on.
"""

from __future__ import annotations

import numpy as np

from wukongs.cluster.node_stream import NodeStream
from wukongs.cluster.node_terms import NodeRegistry
from wukongs.errors import NodeUnavailable, StreamError, WukongsError
from wukongs.live.core import FOREVER_MS, Core
from wukongs.live.stream_state import Columns
from wukongs.protocol.records import Sn
from wukongs.settings import Settings
from wukongs.store.snapshot import MINOR_BITS, TICK_MIN_MS, tick_sn

ZERO = Sn(0, 0)


def packed(sn: Sn) -> int:
    """Return an SN as the store has it."""
    return (sn.tick << MINOR_BITS) | sn.minor


def unpacked(sn: int) -> Sn:
    """Return an SN as the protocol has it."""
    return Sn(sn >> MINOR_BITS, sn & ((1 << MINOR_BITS) - 1))


class NodeCore(Core):
    """registry: a NodeRegistry; streams: NodeStreams whose declaration is exposed."""

    def __init__(self, settings: Settings) -> None:
        self.terms = NodeRegistry(settings.hash_bits)
        super().__init__(settings, self.terms)
        self.shown = 0
        """The tick that streams show."""
        self.reached = ZERO
        self._unsealed: dict[int, list[Columns]] = {}
        """SN -> stored triples that become visible there, of stream batches whose slices are sealed already."""

    @property
    def is_whole(self) -> bool:
        """Whether all that is shown is in the stored graph."""
        return not self._unsealed

    def stopped(self) -> WukongsError:
        """Return the error of Core.stopped, by the name of the failure."""
        if isinstance(self.failure, NodeUnavailable):
            return NodeUnavailable(str(self.failure))
        return super().stopped()

    def stream(self, stream_iri: str) -> NodeStream:
        """Return a declared stream, as Core.stream does."""
        state = super().stream(stream_iri)
        assert isinstance(state, NodeStream), type(state)
        return state

    def node_streams(self) -> list[NodeStream]:
        """Return the streams whose declaration is exposed."""
        return [self.stream(name) for name in self.streams]

    def show(self, tick: int) -> None:
        """Let streams show what a tick covers: what ends there can be sealed now."""
        self.shown = tick
        for state in self.node_streams():
            state.show(tick)

    def come_to(self, sn: Sn) -> None:
        """Let reads see an SN, of which everything is sealed."""
        if sn.tick and (self.sealed_ms is None or sn.tick > self.sealed_ms - TICK_MIN_MS):
            self.move_to(sn.tick + TICK_MIN_MS)
        self.pass_to(packed(sn) + 1)
        if sn > self.reached:
            self.reached = sn
            self.changed.notify_all()

    # --- as Core, in the time that is shown ---------------------------------------------------------------------------

    def stable_ms(self) -> int | None:
        """Return the time that is shown, FOREVER_MS if all streams that have begun have ended; None: no stream has."""
        begun = [state for state in self.node_streams() if state.began is not None and state.began < self.shown]
        if not begun:
            return None
        return FOREVER_MS if all(state.is_ended for state in begun) else self.shown + TICK_MIN_MS

    def next_batch_end(self) -> int | None:
        """Return the earliest end of a stream batch that may be sealed, as Core.next_batch_end does."""
        found = [(state.next_batch(), state.batch_ms) for state in self.streams.values()]
        return min((number * batch_ms for number, batch_ms in found if number is not None), default=None)

    def seal(self, end_ms: int) -> None:
        """Seal the stream batches of all streams that end at end_ms: slices, and what joins the stored graph."""
        for state in self.node_streams():
            number = state.next_batch()
            if number is not None and number * state.batch_ms == end_ms:
                sn = packed(Sn(state.visible_tick(number), 0))
                self._unsealed.setdefault(sn, []).append(state.seal(number))
        self.move_to(end_ms)

    def sn_of(self, end_ms: int) -> int:
        """Return the SN of a time, or the next one if it has passed."""
        return max(tick_sn(end_ms), self.upper)

    def sn_at(self, time_ms: int) -> int:
        """Return the SN that a firing at a time reads, as Core.sn_at does.

        The last firing of streams that have ended may come after their end, at a time that is never shown. It reads the
        newest SN that other nodes come to."""
        return min(tick_sn(time_ms), packed(max(self.reached, Sn(self.shown, 0))))

    def move_to(self, time_ms: int) -> None:
        """Note that everything up to a time is sealed. Firings may lie behind what is shown, the graph does not."""
        time_ms = min(time_ms, self.shown + TICK_MIN_MS)
        for sn in sorted(self._unsealed):
            if sn > tick_sn(time_ms):
                break
            graphs, subjects, predicates, objects = (
                np.concatenate(column) for column in zip(*self._unsealed.pop(sn), strict=True)
            )
            self.revoke_old_handles()
            self.arrangement.absorb(sn, graphs, subjects, predicates, objects)
            self.pass_to(sn + 1)
        super().move_to(time_ms)


def not_reached(sn: Sn, reached: Sn, timeout_s: float) -> StreamError:
    """Return the error of who has waited for an SN in vain."""
    return StreamError(
        f"SN {packed(sn)} cannot be read here within {timeout_s:g} s, this node stands at {packed(reached)}: a stream "
        "or another node holds it back; wait longer, or ask another node"
    )
