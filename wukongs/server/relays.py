"""Relays: the windows of queries that other nodes of a cluster run, on their way to the feeds of this one.

A relay reads one query as a client does, at the node that runs it, and goes on at another one when the query moves
(decision 0072). Its windows wait in a log of this process, which its feed reads. One thread asks each node for the
windows of all its queries. All methods may be called from any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from wukongs.errors import GapError, NodeUnavailable, WukongsError
from wukongs.live.window_log import WINDOW_BYTES, Cursor, UnreadBudget, WindowLog
from wukongs.query.output.results import WindowResult
from wukongs.remote.client import RemoteEngine
from wukongs.remote.connection import Connection, Moved
from wukongs.remote.query import RemoteQuery, RemoteView, fetch_any

log = logging.getLogger("wukongs")
WAIT_S = 0.5
"""So long a relay that is new may wait for the question for the others."""
AGAIN_S = 0.5
"""So long after an error a node is asked again."""
LOG_BYTES_MAX = 64 << 20


class Node(Protocol):
    """The node whose HTTP face this is: wukongs.cluster.node.Inside says it in full."""

    def keep(self, name: str) -> None: ...
    def client(self) -> RemoteEngine: ...


@dataclass(slots=True, eq=False)
class Relay:
    """log: where its windows wait; cursor: its feed's, which is there before the first window comes (a log keeps only
    what some cursor is to read); is_wanted: whether somebody reads them; has_come: the windows that waited when it
    began are here."""

    query: RemoteQuery
    is_wanted: Callable[[], bool]
    log: WindowLog = field(init=False)
    cursor: Cursor = field(init=False)
    has_come: bool = False

    def __post_init__(self) -> None:
        self.log = WindowLog(self.query.name, UnreadBudget(LOG_BYTES_MAX), LOG_BYTES_MAX)
        self.cursor = self.log.cursor()

    def take(self, item: WindowResult | WukongsError) -> None:
        """Take the next window, or the error in its place."""
        match item:
            case WindowResult():
                self.log.put(item.end_ms, item, WINDOW_BYTES + item.size_bytes)
            case GapError():
                self.log.put(item.to_ms, item)
            case _:
                self.log.put((self.query.taken_ms or 0) + 1, item)  # behind what was read

    def note_come(self) -> None:
        if not self.has_come:
            self.has_come = True
            with self.log.changed:
                self.log.tell()


class Relays:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._lock = threading.Lock()
        self._client: RemoteEngine | None = None
        self._relays: list[Relay] = []
        """Those that were served last stand last."""
        self._threads: dict[Connection, threading.Thread] = {}
        self._ended = threading.Event()

    def keep(self, name: str) -> None:
        self._node.keep(name)

    def begin(self, name: str, is_wanted: Callable[[], bool]) -> Relay | None:
        """Return a new relay of a query of another node; None if there is no query of this name by now. Waits for that
        node. Raises NodeUnavailable."""
        with self._lock:
            if self._ended.is_set():
                raise NodeUnavailable("the server ends")
            client = self._client = self._client or self._node.client()
        query = next((one for one in client.queries() if one.name == name), None)
        if query is None:
            return None
        query.find()
        relay = Relay(query, is_wanted)
        with self._lock:
            self._relays.append(relay)
            self._let_run()
        return relay

    def view(self, name: str) -> RemoteView | None:
        """Return a live view that stands at another node, for one reader; None if there is none of this name by now.
        Raises NodeUnavailable."""
        with self._lock:
            if self._ended.is_set():
                raise NodeUnavailable("the server ends")
            client = self._client = self._client or self._node.client()
        found: Any = next((one for one in client.queries() if one.name == name), None)
        return found if isinstance(found, RemoteView) else None

    def _let_run(self) -> None:
        """Have a thread for each node that runs some of the queries. Called with the lock held."""
        for relay in self._relays:
            connection = relay.query.connection
            if connection not in self._threads and not self._ended.is_set():
                thread = threading.Thread(target=self._run, args=(connection,), name="wukongs-relay", daemon=True)
                self._threads[connection] = thread
                thread.start()

    def _run(self, connection: Connection) -> None:
        while (mine := self._those_of(connection)) is not None:
            try:
                named = [relay for relay in mine if self._is_named(relay, connection)]
                by_query = {relay.query: relay for relay in named}
                found = fetch_any(connection, list(by_query), WAIT_S) if named else None
            except NodeUnavailable as error:
                log.info("windows of other nodes: %s", error)
                self._ended.wait(AGAIN_S)
                continue
            except WukongsError as error:
                log.warning("windows of other nodes: %s", error)
                self._ended.wait(AGAIN_S)
                continue
            if found is None:
                for relay in named:
                    relay.note_come()
                continue
            relay = by_query[found[0]]
            relay.take(found[1])
            with self._lock:
                if relay in self._relays:
                    self._relays.remove(relay)
                    self._relays.append(relay)

    def _those_of(self, connection: Connection) -> list[Relay] | None:
        """Return the relays of one node; None once there are none: its thread ends."""
        with self._lock:
            for relay in [one for one in self._relays if one.query.is_over or not one.is_wanted()]:
                self._end(relay)
            self._let_run()
            mine = [one for one in self._relays if one.query.connection is connection]
            if mine and not self._ended.is_set():
                return mine
            del self._threads[connection]
            return None

    def _is_named(self, relay: Relay, connection: Connection) -> bool:
        """Have a query named to the session; one that is closed by now ends here, and the others go on."""
        try:
            relay.query.number_in(connection.joined())
        except Moved:
            return False
        except NodeUnavailable:
            raise
        except WukongsError as error:
            log.info("query %s: %s", relay.query.name, error)
            with self._lock:
                self._end(relay)
            return False
        return True

    def _end(self, relay: Relay) -> None:
        """Called with the lock held."""
        if relay in self._relays:
            self._relays.remove(relay)
        relay.log.close()

    def close(self) -> None:
        self._ended.set()
        with self._lock:
            client, threads = self._client, list(self._threads.values())
        if client is not None:
            client.close()
        for thread in threads:
            thread.join(WAIT_S * 4)
