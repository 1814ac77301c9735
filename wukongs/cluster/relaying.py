"""Relaying: a client inside a node, which asks its own node and the others as clients of other processes do.

It goes over the nodes' own connections, so it needs no token and no key of a client. The HTTP face of a node reads with
it the windows of queries that any node runs.

A reader who loses its node comes to another one a little later, and names the last window that it has. So the home of a
query keeps the last windows unread (Keeping) once somebody reads them through another node, or over HTTP: whoever
comes next begins with the oldest window that is held.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from wukongs.errors import DataError, NodeUnavailable
from wukongs.live.backend import RegisteredQuery
from wukongs.live.views.live_view import LiveView
from wukongs.live.window_log import Cursor, LoggedWindow
from wukongs.remote.client import RemoteEngine
from wukongs.remote.connection import Channel
from wukongs.remote.kinds import CALL
from wukongs.wire.packets import Handler, Packet, Peers

OF_CLIENT = "client"
"""The kind of a packet of a client that a node carries to another one."""
SILENCE_S = 4.0
"""So long a node may say nothing before the next one is asked."""
KEEP_S, KEPT_MAX, KEPT_BYTES_MAX = 10.0, 256, 4 << 20
"""So long the windows of a query are kept, so many at most, and so many bytes."""
_LOOK_S = 0.25


class Keeping:
    """Keeps the last windows of queries that run here: for each there is one more reader, which confirms them later.
    Queries that rather end than lose windows are left out: a window that is kept counts as unread."""

    def __init__(self, query_of: Callable[[str], RegisteredQuery | None]) -> None:
        """query_of: a query that runs here, by its name."""
        self._query_of = query_of
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self, name: str) -> None:
        """Keep the windows of a query from now on, if it runs here."""
        query = self._query_of(name)
        with self._lock:
            known = self._kept.get(name)
            is_known = known is not None and query is not None and known.cursor.log is query.log
            is_left_out = query is None or isinstance(query, LiveView) or query.log.ends_when_full
            if query is None or is_left_out or is_known or self._ended.is_set():
                return
            self._kept[name] = _Kept(query.log.cursor())
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="wukongs-keeping", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with self._lock:
                kept = list(self._kept.items())
            for name, one in kept:
                one.look(time.monotonic())
                if one.cursor.is_ended():
                    one.cursor.close()
                    with self._lock:
                        if self._kept.get(name) is one:
                            del self._kept[name]

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()


class _Kept:
    """The windows of one query that are kept."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._windows: deque[tuple[float, LoggedWindow]] = deque()
        self._bytes = 0

    def look(self, now_s: float) -> None:
        """Fetch the windows that have arrived, and drop those that are too old or too many."""
        while (window := self.cursor.fetch(0, is_whole=True)) is not None:
            self._windows.append((now_s, window))
            self._bytes += window.size_bytes
        while self._windows and (
            self._windows[0][0] < now_s - KEEP_S or len(self._windows) > KEPT_MAX or self._bytes > KEPT_BYTES_MAX
        ):
            _, window = self._windows.popleft()
            self._bytes -= window.size_bytes
            self.cursor.confirm(window)


class _OwnChannel:
    """Packets to the service of this process."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers

    def ask(self, packet: Packet, timeout_s: float) -> Packet:
        return self._handlers[packet.kind](packet)

    def close(self) -> None: ...


class _PeerChannel:
    """Packets to the service of another node. node_of: its number, None if there is no such node."""

    def __init__(self, peers: Peers, node_of: Callable[[], int | None], address: str) -> None:
        self._peers, self._node_of, self._address = peers, node_of, address

    def ask(self, packet: Packet, timeout_s: float) -> Packet:
        node = self._node_of()
        if node is None:
            raise NodeUnavailable(f"{self._address}: no node of this cluster is found there")
        carried = Packet(OF_CLIENT, {"kind": packet.kind, "fields": dict(packet.fields)}, packet.arrays)
        return _inner(self._peers.ask([(node, carried)], timeout_s)[0])

    def close(self) -> None: ...


def _inner(packet: Packet) -> Packet:
    """Return the packet that another one carries. Raises DataError."""
    kind, fields = packet.fields.get("kind"), packet.fields.get("fields")
    if not isinstance(kind, str) or not isinstance(fields, dict):
        raise DataError(f"packet '{packet.kind}': expected kind and fields, found {dict(packet.fields)!r:.200}")
    return Packet(kind, fields, packet.arrays)


def client_handler(handlers: Mapping[str, Handler], keep: Callable[[str], object]) -> Handler:
    """Return the handler of OF_CLIENT. handlers: of the service of this node; keep: is told the name of a query that
    another node will read."""

    def answer(packet: Packet) -> Packet:
        asked = _inner(packet)
        handler = handlers.get(asked.kind)
        if handler is None:
            raise DataError(f"packet '{packet.kind}': no question of clients is of kind {asked.kind!r:.99}")
        answered = handler(asked)
        args = asked.fields.get("args")
        if asked.kind == CALL and asked.fields.get("method") == "attach" and isinstance(args, dict):
            with suppress(TypeError):  # a name that is no text
                keep(args["name"])
        return Packet(OF_CLIENT, {"kind": answered.kind, "fields": dict(answered.fields)}, answered.arrays)

    return answer


def open_client(peers: Peers, handlers: Mapping[str, Handler], addresses: Callable[[], Sequence[str]]) -> RemoteEngine:
    """Return a client that asks this node first. addresses: where clients find the nodes, in the order of their
    numbers."""

    def open_channel(address: str) -> Channel:
        if address == own:
            return _OwnChannel(handlers)

        def node_of() -> int | None:
            known = addresses()
            return known.index(address) if address in known else None

        return _PeerChannel(peers, node_of, address)

    known = list(addresses())
    own = known[peers.me]
    return RemoteEngine([own, *(one for one in known if one != own)], open_channel, silence_s=SILENCE_S)
