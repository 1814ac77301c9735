"""Connections: the TCP connections of a bound socket, so that strangers cannot take all descriptors or the memory.

ZeroMQ takes every connection, and reads what comes before the other side has shown who it is: a frame of up to
MAXMSGSIZE, and messages of any number of frames. It bounds the time of that only (HANDSHAKE_IVL). So:

* A connection has shaken hands once the node has sent more over it than it sends to anybody: after a handshake with the
  key, where there are keys. The system counts what the other side has acknowledged (TCP_INFO).
* Where there are keys, it is proven by that. Without keys, it is proven by its first message that is not refused, which
  names a token if the node wants one.
* One that has not shaken hands is shut once it has sent UNPROVEN_BYTES_MAX. One that is not proven is shut once it has
  sent FIRST_BYTES_MAX, the largest first message; so are those that have sent most, once all that are not proven have
  sent UNPROVEN_SUM_BYTES_MAX. All are looked at each LOOK_MS.
* Until a connection is proven, its side may send WINDOW_BYTES ahead of what was read (TCP_WINDOW_CLAMP). So little more
  arrives between two looks.
* At most UNPROVEN_MAX connections are not proven. For a new one, the oldest of them is shut.
* At most connections_max are open. Beyond that, the oldest that is not proven is shut, or else the new one.

ZeroMQ 1.0's protocol has no handshake: those connections are refused by the doorkeeper's being there (bound_socket.py).

The thread that asks is told of connections by ZeroMQ's events. ZeroMQ goes on only when no more than 1,000 events are
not taken: so there are never more connections than that of which nobody here knows. The connections themselves belong
to ZeroMQ; shutting one ends it over there. Systems other than Linux do not count: there only the time is bounded.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from wukongs.errors import NodeUnavailable
from wukongs.wire.descriptors import Lack, is_lack

HANDSHAKE_MS = 2000
"""A side that has not shown who it is by then is let go by ZeroMQ."""
UNPROVEN_MAX = 256
UNPROVEN_BYTES_MAX = 1 << 14
"""A handshake takes less than 1 KiB."""
FIRST_BYTES_MAX, UNPROVEN_SUM_BYTES_MAX = 1 << 26, 1 << 27
WINDOW_BYTES = 1 << 14
_ANY_WINDOW_BYTES = (1 << 31) - 1
LOOK_MS = 20
_SENT_TO_ANYBODY, _SENT_TO_ANYBODY_WITH_KEYS = 64, 260
"""Bytes: ZMTP's greeting; the greeting, CURVE's WELCOME, and an ERROR. With READY it is 301."""
_RESET = struct.pack("=ii", 1, 0)
"""The system keeps nothing of a connection that is closed, and tells the other side at once."""
_ACKNOWLEDGED, _RECEIVED = 120, 128
"""Where Linux has two 64-bit counts in its tcp_info (tcpi_bytes_acked, tcpi_bytes_received)."""
_IS_COUNTED = sys.platform == "linux"


class Counted(NamedTuple):
    """Bytes that have gone over a connection, each way."""

    acknowledged: int
    received: int


class Connections:
    """The connections of one bound socket. Used by one thread. shut: how many were shut here."""

    def __init__(self, has_keys: bool, connections_max: int) -> None:
        self._has_keys = has_keys
        self._sent_to_anybody = _SENT_TO_ANYBODY_WITH_KEYS if has_keys else _SENT_TO_ANYBODY
        self._connections_max = connections_max
        self._known: dict[int, Any] = {}
        """Descriptor -> address of the other side."""
        self._unproven: dict[int, None] = {}
        """Descriptors, those of the oldest connections first."""
        self._lack = Lack()
        self._looked_s = 0.0
        self.shut = 0

    def __len__(self) -> int:
        return len(self._known)

    @property
    def are_all_proven(self) -> bool:
        return not self._unproven

    def opened(self, descriptor: int) -> None:
        """Note a new connection; shut one if there are too many."""
        self._lack.end()
        self.closed(descriptor)  # that of an earlier connection
        if not _IS_COUNTED:
            return
        with suppress(OSError), borrowed(descriptor) as connection:
            self._known[descriptor] = connection.getpeername()
            self._unproven[descriptor] = None
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, WINDOW_BYTES)
        while self._unproven and (len(self._unproven) > UNPROVEN_MAX or len(self) > self._connections_max):
            oldest = next(iter(self._unproven))
            self._look_at(oldest)
            if oldest in self._unproven:
                self._shut(oldest)
        if len(self) > self._connections_max:
            self._shut(descriptor)

    def closed(self, descriptor: int) -> None:
        """Note the end of a connection."""
        self._known.pop(descriptor, None)
        self._unproven.pop(descriptor, None)

    def look(self) -> None:
        """Find out which connections are proven by now, and shut those that send too much before; now and then."""
        if self._unproven and time.monotonic() - self._looked_s >= LOOK_MS / 1000:
            sent = sorted((self._look_at(descriptor), descriptor) for descriptor in list(self._unproven))
            size = sum(one for one, _ in sent)
            while size > UNPROVEN_SUM_BYTES_MAX:
                one, descriptor = sent.pop()
                self._shut(descriptor)
                size -= one
            self._looked_s = time.monotonic()

    def proven(self, descriptor: int) -> None:
        """Note that a connection has shown that it may ask."""
        if descriptor not in self._unproven:
            return
        del self._unproven[descriptor]
        with suppress(OSError), borrowed(descriptor) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, _ANY_WINDOW_BYTES)

    def _look_at(self, descriptor: int) -> int:
        """Look at a connection that is not proven; return how many bytes it has sent, 0 if it is proven or shut."""
        try:
            with borrowed(descriptor) as connection:
                counted = counted_of(connection)
        except OSError:
            self.closed(descriptor)  # ZeroMQ says so soon
            return 0
        has_shaken_hands = counted.acknowledged > self._sent_to_anybody
        if has_shaken_hands and self._has_keys:
            self.proven(descriptor)
        elif counted.received > (FIRST_BYTES_MAX if has_shaken_hands else UNPROVEN_BYTES_MAX):
            self._shut(descriptor)
        else:
            return counted.received
        return 0

    def refused(self, number: int) -> None:
        """Take note of a connection that could not be accepted, and why (an errno). Room is made for a next one.

        Raises NodeUnavailable: there has been no descriptor for so long that nobody can connect here any more."""
        if not is_lack(number):
            return
        for descriptor in list(self._unproven):
            self._shut(descriptor)
        if self._lack.is_lasting():
            raise NodeUnavailable(
                "this process has no file descriptor left for one more connection: start it with a higher limit "
                "(ulimit -n)"
            )

    def _shut(self, descriptor: int) -> None:
        address = self._known[descriptor]
        self.closed(descriptor)
        with suppress(OSError), borrowed(descriptor) as connection:
            if connection.getpeername() == address:  # else it is another one by now
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                connection.shutdown(socket.SHUT_RDWR)
                self.shut += 1


@contextmanager
def borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Give a connection of ZeroMQ's as a socket."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=descriptor)
    try:
        yield connection
    finally:
        connection.detach()


def counted_of(connection: socket.socket) -> Counted:
    """Return what has gone over a connection so far. Raises OSError."""
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED + 8)
    if len(told) < _RECEIVED + 8:
        return Counted(sys.maxsize, 0)  # a Linux of before 4.1: it counts as proven
    return Counted(*struct.unpack_from("=QQ", told, _ACKNOWLEDGED))
