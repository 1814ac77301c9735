"""Idleness on a cluster: a stream with idle_timeout_ms to which nothing is pushed for so long holds nobody back (the
rule: wukongs/live/idleness.py; docs/decisions/0035-lateness.md).

The writer of the stream decides it by the clock of its machine. The other nodes see markers that close stream batches,
as after an advance, so nothing in the protocol hangs on a clock. They also note that the stream is idle, since no other
idle stream follows it. Nothing goes wrong where a node knows that late: markers only ever promise more.

A partition of a pipeline closes itself. Where one is open, the stream is idle only as far as it follows that.
"""

from __future__ import annotations

import logging
import threading

from wukongs.cluster.host import Host
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.node_stream import NodeStream
from wukongs.cluster.pushing import Writers
from wukongs.cluster.writing import writer_of
from wukongs.errors import WukongsError
from wukongs.live.stream_state import PUSH_PARTITION
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
        may_be = False
        for stream in list(self._store.records.streams.values()):
            if stream.state.idle_timeout_ms is None or stream.state.is_dropped:
                continue
            may_be = True
            try:
                self._look_at(stream, stream.state.idle_timeout_ms / 1000)
            except WukongsError as error:
                log.warning("stream %s brings nothing, and cannot be made idle: %s", stream.state.iri, error)
                self._end.wait(TELL_S)
        return may_be

    def _look_at(self, stream: NodeStream, silent_s: float) -> None:
        node, name = self._host.node, stream.state.iri
        declared = node.control.streams.get(stream.key)
        is_over = declared is None or declared.is_dropped or declared.last_batch is not None
        if declared is None or is_over or not node.control.with_role(Role.IN) or writer_of(node, name) != node.me.node:
            return
        writer = self._writers.writer(name)
        intake = node.intakes.get(stream.key, StreamIntake())
        own = intake.partitions.get(PUSH_PARTITION, Partition())
        others = [intake.partitions.get(one, Partition()) for one in declared.partitions if one != PUSH_PARTITION]
        if own.is_ended:
            return
        if others:
            if PUSH_PARTITION not in declared.partitions:
                return
            if all(one.is_ended for one in others) and not own.offset:
                writer.finish(TELL_S)  # Nothing was ever pushed: the stream ends with its pipelines.
                return
            closed = [one.closed for one in others if not one.is_ended]
            time_ms = stream.end_ms(min(closed)) if closed else self._followed_ms(stream)
        else:
            time_ms = self._followed_ms(stream)
        newest_ms = stream.end_ms(own.reached) if own.ends else None
        to_ms = max((ms for ms in (time_ms, newest_ms) if ms is not None), default=None)
        if to_ms is not None or PUSH_PARTITION in declared.partitions:
            writer.let_idle(None if to_ms is None else stream.state.floor(to_ms), silent_s, TELL_S)

    def _followed_ms(self, follower: NodeStream) -> int | None:
        """Return up to where the slowest stream is closed of those that count and are not idle. None: there is none, or
        it has closed nothing."""
        node, streams = self._host.node, self._store.records.streams
        closed = []
        for declared in node.control.live_streams:
            stream = streams.get(declared.key)
            if stream is None or declared.key == follower.key or not _leads(declared) or stream.state.is_idle:
                continue
            intake = node.intakes.get(declared.key, StreamIntake())
            if intake.sealed:
                closed.append(stream.end_ms(intake.sealed))
        return min(closed, default=None)


def _leads(declared: DeclaredStream) -> bool:
    """Tell whether idle streams follow this one."""
    return declared.group == LIVE and declared.counts is not None and declared.last_batch is None
