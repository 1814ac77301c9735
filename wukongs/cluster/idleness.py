"""Idleness on a cluster: a stream with idle_timeout_ms to which nothing is pushed for so long holds nobody back (the
rule: wukongs/live/idleness.py; docs/decisions/0035-lateness.md).

The writer of the stream decides it by the clock of its machine. The other nodes see markers that close stream batches,
as after an advance, so nothing in the protocol hangs on a clock. They also note that the stream is idle, since no other
idle stream follows it. Nothing goes wrong where a node knows that late: markers only ever promise more.

A stream with idle_advance = "wall" follows the wall clock of its writer's machine, all of a round in one message.

A partition of a pipeline closes itself. Where one is open, the stream is idle only as far as it follows that.
"""

from __future__ import annotations

import logging
import threading

from wukongs.cluster.host import Host
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.node_stream import NodeStream
from wukongs.cluster.pushing import Writers
from wukongs.cluster.writing import StreamWriter, let_idle_together, writer_of
from wukongs.errors import WukongsError
from wukongs.live.stream_state import PUSH_PARTITION, StreamState
from wukongs.live.wall_clock import Rounds, is_of_another_day, wall_end_ms
from wukongs.protocol.control import DeclaredStream
from wukongs.protocol.records import LIVE, Role
from wukongs.protocol.sealing import Partition, StreamIntake

LOOK_EVERY_S = 0.05
"""How far an idle stream may lag behind those that it follows."""
NONE_S = 0.5
"""Until it is looked again where no stream may be idle."""
TELL_S = 2.0
"""How long the nodes may take to have what an idle stream says; it is said again later on."""
log = logging.getLogger("wukongs")


class IdleWatch:
    """Looks at the clock for the streams that this node writes. Its thread runs from `start` to `close`."""

    def __init__(self, host: Host, store: NodeStore, writers: Writers) -> None:
        self._host, self._store, self._writers = host, store, writers
        self._rounds = Rounds()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wukongs-idle", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread. Closing twice is allowed."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            wait_s = NONE_S
            while not self._end.wait(wait_s):
                wait_s = LOOK_EVERY_S if self.look() else NONE_S
        except Exception as error:
            log.exception("node %d: idle streams cannot be looked at", self._host.me.node)
            self._host.fail(error)

    def look(self) -> bool:
        """Let the streams be idle that are. Return whether there are any that may be."""
        streams = [stream for stream in list(self._store.records.streams.values()) if _may_be_idle(stream.state)]
        wall_ms, failed = self._store.core.wall_ms(), dict[str, WukongsError]()
        following = {stream for stream in streams if self._follows_wall_clock(stream, wall_ms)}
        grid = [(stream.state.batch_ms, stream.state.lateness_ms) for stream in following]
        is_round = not grid or self._rounds.wait_ms(grid, wall_ms) == 0
        calls = list[tuple[StreamWriter, int | None, float]]()
        for stream in streams:
            if stream in following and not is_round:
                continue
            try:
                calls += self._call_of(stream, wall_ms)
            except WukongsError as error:
                failed[stream.state.iri] = error
        told = let_idle_together(calls, TELL_S)
        if grid and is_round and any(stream.state.iri in told for stream in following):
            self._rounds.begin(grid, wall_ms)
        failed |= {name: failure for name, failure in told.items() if failure is not None}
        for name, failure in failed.items():
            log.warning("stream %s brings nothing, and cannot be made idle: %s", name, failure)
        if failed:
            self._end.wait(TELL_S)
        return bool(streams)

    def _follows_wall_clock(self, stream: NodeStream, wall_ms: int) -> bool:
        """Tell whether a stream of this node's is one of the rounds by the wall clock: it is idle already."""
        state = stream.state
        is_one = state.idle_advance is not None and state.is_idle and not state.is_ended
        return is_one and not is_of_another_day(state.newest_ms, wall_ms) and self._is_mine(stream)

    def _is_mine(self, stream: NodeStream) -> bool:
        node = self._host.node
        declared = node.control.streams.get(stream.key)
        is_over = declared is None or declared.is_dropped or declared.last_batch is not None
        has_writer = not is_over and bool(node.control.with_role(Role.IN))
        return has_writer and writer_of(node, stream.state.iri) == node.me.node

    def _call_of(self, stream: NodeStream, wall_ms: int) -> list[tuple[StreamWriter, int | None, float]]:
        """Return how a stream's writer at this node is to close it, if it brings nothing: none, or one call. Ends one
        of pipelines alone."""
        node, name = self._host.node, stream.state.iri
        declared = node.control.streams.get(stream.key)
        if declared is None or not self._is_mine(stream):
            return []
        writer = self._writers.writer(name)
        intake = node.intakes.get(stream.key, StreamIntake())
        own = intake.partitions.get(PUSH_PARTITION, Partition())
        others = [intake.partitions.get(one, Partition()) for one in declared.partitions if one != PUSH_PARTITION]
        if own.is_ended:
            return []
        time_ms = self._idle_to_ms(stream, own, wall_ms)
        if others:
            if PUSH_PARTITION not in declared.partitions:
                return []
            if all(one.is_ended for one in others) and not own.offset:
                writer.finish(TELL_S)  # Nothing was ever pushed: the stream ends with its pipelines.
                return []
            closed = [one.closed for one in others if not one.is_ended]
            if closed:
                time_ms = max(ms for ms in (stream.end_ms(min(closed)), _newest_ms(stream, own)) if ms is not None)
        if time_ms is None and PUSH_PARTITION not in declared.partitions:
            return []
        to_ms = None if time_ms is None else stream.state.floor(time_ms)
        assert stream.state.idle_timeout_ms is not None, name
        return [(writer, to_ms, stream.state.idle_timeout_ms / 1000)]

    def _idle_to_ms(self, stream: NodeStream, own: Partition, wall_ms: int) -> int | None:
        """Return up to where a stream is closed if it brings nothing. None: it stays."""
        state = stream.state
        if state.idle_advance is None:
            known = self._followed_ms(stream), _newest_ms(stream, own)
            return max((ms for ms in known if ms is not None), default=None)
        if is_of_another_day(state.newest_ms, wall_ms):
            return None
        return wall_end_ms(wall_ms, state.lateness_ms, state.batch_ms)

    def _followed_ms(self, follower: NodeStream) -> int | None:
        """Return up to where the slowest stream is closed of those that count and are not idle. None: there is none, or
        it has closed nothing."""
        node, streams = self._host.node, self._store.records.streams
        closed = []
        for declared in node.control.live_streams:
            stream = streams.get(declared.key)
            if stream is None or declared.key == follower.key or not _leads(declared) or stream.state.follows_others:
                continue
            intake = node.intakes.get(declared.key, StreamIntake())
            if intake.sealed:
                closed.append(stream.end_ms(intake.sealed))
        return min(closed, default=None)


def _may_be_idle(state: StreamState) -> bool:
    return state.idle_timeout_ms is not None and not state.is_dropped


def _newest_ms(stream: NodeStream, own: Partition) -> int | None:
    """Return the end of the newest stream batch that is pushed and not inserted yet, or is closed."""
    return stream.end_ms(own.reached) if own.ends else None


def _leads(declared: DeclaredStream) -> bool:
    """Tell whether idle streams follow this one."""
    return declared.group == LIVE and declared.counts is not None and declared.last_batch is None
