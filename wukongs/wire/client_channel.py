"""ClientChannel: a client's connection to one node."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from functools import partial

from wukongs.errors import WukongsError
from wukongs.wire.asking import Asker, Question
from wukongs.wire.client_socket import PER_CLIENT_MAX
from wukongs.wire.codec import ASK, to_frames
from wukongs.wire.direct import DIRECT, Offer, Way
from wukongs.wire.packets import Packet
from wukongs.wire.traffic import WireTraffic
from wukongs.wire.transport import Line, check_address
from wukongs.wire.trust import Keys

OFFER_S = 2.0
"""The time that a node is given to offer direct connections."""


class ClientChannel:
    """Asks a node's ClientSocket; may be used by several threads, which wait for each other only beyond PER_CLIENT_MAX.

    It connects when it is asked, and again after the node was away; directly, once the node has answered. token: shown
    with each question, if the node asks for one; keys: needed where the address is not loopback.
    Raises: SettingsError (a malformed address, or one that needs keys).
    """

    def __init__(self, address: str, token: str | None = None, keys: Keys | None = None) -> None:
        self.address = check_address(address, allow_remote=keys is not None)
        if keys is not None:
            keys.node_key(address)
        self._token = token
        self._name = secrets.token_hex(16)
        self._sequences = itertools.count(1)
        self.traffic = WireTraffic()
        self._keys, self._way = keys, Way(self._name, self._is_heard)
        self._lock = threading.Lock()
        self._hearing: Line | None = None
        """A connection that carries nothing: it tells whether the node is there while it is asked directly."""
        self._is_known = self._is_offered = self._is_closed = False
        self._asker = Asker(self.traffic, PER_CLIENT_MAX)

    def ask(self, packet: Packet, timeout_s: float) -> Packet:
        """Return the node's answer.

        Raises: NodeUnavailable (not reached, no answer within timeout_s seconds, connection lost); whatever error the
        node answers, by name; DataError (a packet that is too big, an answer that is none)."""
        begun_s = time.monotonic()
        if self._is_known and (not self._is_offered or self._way.needs_offer()):
            self._is_offered = True
            try:
                self._way.take(self._ask(None, Packet(DIRECT), min(timeout_s / 2, OFFER_S), begun_s), self.address)
                self._hear()
            except WukongsError:  # of an older version, or with much to do
                self._way.give_up()
        answer = self._ask(self._way.offer, packet, timeout_s, begun_s)
        self._is_known = True
        return answer

    def _ask(self, offer: Offer | None, packet: Packet, timeout_s: float, begun_s: float) -> Packet:
        sequence = next(self._sequences)
        address = self.address if offer is None else offer.address
        frames = to_frames(packet, ASK, sequence, self._name, self._token)
        connect = partial(self._way.connect, offer, partial(Line, self.address, self._keys))
        question = Question(self.address, address, connect, sequence, frames)
        return self._asker.ask([question], timeout_s, begun_s=begun_s)[0]

    def _hear(self) -> None:
        with self._lock:
            if self._hearing is None and not self._is_closed and self._way.offer is not None:
                self._hearing = Line(self.address, self._keys)

    def _is_heard(self) -> bool:
        with self._lock:
            return self._hearing is None or self._hearing.is_connected()

    def close(self) -> None:
        """Close the connections; may be called again. A caller that waits for an answer gets NodeUnavailable."""
        self._asker.close()
        with self._lock:
            self._is_closed = True
            if self._hearing is not None:
                self._hearing.close()
                self._hearing = None
