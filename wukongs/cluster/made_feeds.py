"""MadeFeeds: on a cluster, the home of a query brings the stream that it makes to the stream's writer
(docs/decisions/0036-streams-made-by-queries.md).

* Each stream has a queue of its own and a thread that sends it in order. So one that does not go on holds no other.
* A firing stays in the queue until all nodes have it. The writer drops what it has already, so it may be sent again.
* A full queue holds the firings of its query back; none is lost.
* A stream that takes nothing more (it was dropped) is told once, and its queue is given up.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from wukongs.cluster.host import Host
from wukongs.cluster.node_payloads import read_registration
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.node_stream import NodeStream
from wukongs.cluster.pushing import Writers
from wukongs.errors import NodeUnavailable, WukongsError
from wukongs.live.core import NOT_YET_MS, Core
from wukongs.live.made_streams import MADE, Producer, Triples, encoded_window
from wukongs.live.stream_state import FOREVER_MS
from wukongs.live.windows import Watermark
from wukongs.protocol.control import Control
from wukongs.protocol.records import Role

log = logging.getLogger("wukongs")
WAITING_MAX = 64
"""Firings that wait to be sent; the query that brings them is held back from there on."""
SEND_S = 10.0
RETRY_S = 0.1
REFUSED_MAX = 50
"""How often in a row a firing may be refused, for other reasons than a node that is away, before that counts as the
last word."""


class Decided(NamedTuple):
    """All firings up to a time, of which the last one brings something. at_ms: FOREVER_MS is the end of the stream;
    window: None: nothing came; is_before: that was before the stream was there, which begins behind it; logged: waits
    until the log has it, None: the log says nothing of it."""

    at_ms: int
    window: Triples | None = None
    is_before: bool = False
    logged: Callable[[], object] | None = None


class MadeFeed:
    """The stream of one query, at its home; on other nodes it has nothing to do. See wukongs.live.made_streams.Made.
    Called with the lock held, except for the thread's own part."""

    def __init__(self, core: Core, stream: NodeStream, writers: Writers, wake: Callable[[], None]) -> None:
        self.state = stream.state
        self.producer: Producer | None = None
        self.failure: str | None = None
        self._core, self._stream, self._writers, self._wake = core, stream, writers, wake
        self._waiting: deque[Decided] = deque()
        """The first of them is being sent."""
        self._waiting_bytes = 0
        self._taken_ms = NOT_YET_MS
        self._is_stalled = False
        self._thread: threading.Thread | None = None

    @property
    def is_behind(self) -> bool:
        """Whether readers may come further by what is under way."""
        is_firing = self.producer is not None and self.producer.is_firing
        return is_firing or (bool(self._waiting) and not self._is_stalled)

    @property
    def is_full(self) -> bool:
        """Whether no more firings may wait to be sent."""
        return len(self._waiting) >= WAITING_MAX or self._waiting_bytes > self._core.settings.queued_bytes_max

    @property
    def is_sending(self) -> bool:
        """Whether the nodes do not have yet what was decided last."""
        return bool(self._waiting)

    @property
    def _is_open(self) -> bool:
        return not (self.state.is_ended or self.state.is_dropped or self.failure or self._taken_ms == FOREVER_MS)

    @property
    def decided_to_ms(self) -> int:
        """The time up to which readers have what firings have brought, or get it, or never get it."""
        known = (self.state.closed_ms, self._stream.stands_ms, self._taken_ms)
        return max(ms for ms in known if ms is not None) if self._is_open else FOREVER_MS

    def decide(self, at_ms: int, window: Triples | None, logged: Callable[[], object] | None = None) -> None:
        """Send what the firing at a time has brought, None: nothing. Called by the thread that fires. logged: waits
        until the log has it, which is before the writer gets it; None: the log says nothing of it."""
        with self._core.lock:
            if self._is_open and at_ms > self.decided_to_ms:
                self._put(Decided(at_ms, window if window is not None and len(window) else None, logged=logged))

    def begin_after(self, decided_ms: int | None) -> None:
        """Let the stream begin with the firings after a time."""
        if decided_ms is not None and (to_ms := self.state.floor(decided_ms)) > self.decided_to_ms:
            self._put(Decided(to_ms, is_before=True))

    def settled_watermark(self) -> Watermark:
        """Return the watermark of the stream at this node: records of the log carry the changes of a cluster."""
        return Watermark.of_stream(self.state)

    def goes_on_from(self, from_ms: int | None, is_stored: bool) -> int | None:
        """Do as MadeStream.goes_on_from."""
        known = [ms for ms in (self.state.closed_ms, self._stream.stands_ms) if ms is not None]
        decided_ms = max(known, default=None)
        if decided_ms is None:
            return from_ms
        return decided_ms if from_ms is None or not is_stored else max(decided_ms, from_ms)

    def go_on(self) -> bool:
        """Send up to when all firings are decided, when all that was due has fired; return whether that is news."""
        if self.producer is None or not self._is_open:
            return False
        decided_ms = self.producer.decided_ms()
        if decided_ms == FOREVER_MS:
            self.end()
            return True
        if decided_ms is None or self.decided_to_ms == NOT_YET_MS:
            return False
        to_ms = self.state.floor(decided_ms)
        if to_ms <= self.decided_to_ms:
            return False
        self._put(Decided(to_ms))
        return True

    def log_undecided(self) -> bool:
        """Nothing: nodes have no checkpoints."""
        return False

    def end(self) -> None:
        """End the stream behind what waits: readers have the last windows."""
        if self._is_open:
            self._put(Decided(FOREVER_MS))

    def leave(self) -> None:
        """Send nothing more, since the query goes on at another node, which gives again what the log has."""
        self._waiting.clear()
        self._waiting_bytes, self._taken_ms, self._is_stalled, self.producer = 0, NOT_YET_MS, False, None

    def _put(self, decided: Decided) -> None:
        self._taken_ms = decided.at_ms
        last = self._waiting[-1] if len(self._waiting) > 1 else None
        if last is not None and last.window is None and last.logged is None and decided.at_ms != FOREVER_MS:
            self._waiting.pop()  # the next one says the same, and that it is not the first thing is known
        self._waiting.append(decided)
        self._waiting_bytes += 0 if decided.window is None else decided.window.size_bytes
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"wukongs-made {self.state.iri}", daemon=True)
            self._thread.start()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        refused = 0
        while True:
            with self._core.lock:
                is_over = self._core.is_closed or self._core.failure is not None or self.state.is_dropped
                if is_over or self.failure is not None:
                    self._waiting.clear()
                if not self._waiting:
                    self._thread, self._waiting_bytes = None, 0
                    self._tell()
                    return
                decided = self._waiting[0]
            try:
                self._send(decided)
            except NodeUnavailable as error:
                refused = 0
                self._stall(error)
            except WukongsError as error:
                refused += 1
                self._stall(error)
                if refused >= REFUSED_MAX or self.state.is_dropped or self.state.is_ended:
                    self._fail(error)
            except BaseException as error:
                log.exception("stream %s, which a query makes, has failed", self.state.iri)
                self._fail(error)
            else:
                refused = 0
                with self._core.lock:
                    was_full, self._is_stalled = self.is_full, False
                    if self._waiting and self._waiting[0] is decided:
                        self._waiting.popleft()
                        self._waiting_bytes -= 0 if decided.window is None else decided.window.size_bytes
                    if was_full:
                        self._wake()

    def _send(self, decided: Decided) -> None:
        if decided.at_ms == FOREVER_MS:
            self._writers.finish(self.state.iri, SEND_S)
            return
        if decided.logged is not None:
            decided.logged()
        encoded = encoded_window(decided.window, decided.at_ms, self._core.settings.hash_bits, self.state.timing)
        first_ms = decided.at_ms + 1 if decided.is_before else decided.at_ms
        self._writers.decide(self.state.iri, decided.at_ms, encoded, first_ms, SEND_S)

    def _stall(self, error: WukongsError) -> None:
        with self._core.lock:
            if not self._is_stalled and not self.state.is_dropped:
                log.warning("stream %s, which a query makes, does not go on yet: %s", self.state.iri, error)
            self._is_stalled = True
            self._tell()
            if not (self._core.is_closed or self.state.is_dropped):
                self._core.changed.wait(RETRY_S)

    def _fail(self, error: BaseException) -> None:
        with self._core.lock:
            if not self.state.is_dropped:
                self.failure = str(error)
                log.error("stream %s, which a query makes, takes nothing more: %s", self.state.iri, error)
            self._waiting.clear()

    def _tell(self) -> None:
        self._core.changed.notify_all()
        self._wake()
        if self._core.observer is not None:
            self._core.observer.wake()  # a view that makes it goes on


class MadeFeeds:
    """The streams that queries make, at one node of a cluster: wukongs.live.made_streams.Feeds."""

    def __init__(self, host: Host, store: NodeStore, writers: Writers) -> None:
        self._host, self._store, self._writers = host, store, writers

    def feed(self, stream_iri: str, wake: Callable[[], None]) -> MadeFeed:
        """Return the feed of a stream whose declaration is exposed."""
        return MadeFeed(self._store.core, self._store.exposure.streams[stream_iri], self._writers, wake)

    def elsewhere(self, stream_iri: str) -> str | None:
        """Return, in words, why the query of a stream brings nothing if it runs on another node: nothing known is an
        empty text. None: no node runs it."""
        registered = self._host.node.control.queries.get(stream_iri)
        if registered is None or self._host.me.node in registered.nodes:
            return None
        if not registered.nodes.keys() & self._host.node.control.with_role(Role.IN):
            return None
        is_paused = read_registration(registered.payload, stream_iri).is_paused
        return f"; the query that makes {stream_iri} is paused" if is_paused else ""


def is_declared_for_readers(control: Control, stream_iri: str) -> bool:
    """Tell whether a stream was declared for the first reader of what a query makes, and not by the user."""
    stream = control.stream_named(stream_iri)
    return stream is not None and not stream.is_dropped and stream.is_made and MADE in json.loads(stream.payload)
