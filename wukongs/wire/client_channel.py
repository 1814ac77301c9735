"""ClientChannel: a client's connection to one node."""

from __future__ import annotations

import itertools
import secrets

from wukongs.wire.asking import Asker, Question
from wukongs.wire.client_socket import PER_CLIENT_MAX
from wukongs.wire.codec import ASK, to_frames
from wukongs.wire.packets import Packet
from wukongs.wire.traffic import WireTraffic
from wukongs.wire.transport import Line, check_address
from wukongs.wire.trust import Keys


class ClientChannel:
    """Asks a node's ClientSocket; may be used by several threads, which wait for each other only beyond PER_CLIENT_MAX.

    It connects when it is asked, and again after the node was away. token: shown with each question, if
    the node asks for one; keys: needed where the address is not loopback.
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
        self._asker = Asker(lambda address: Line(address, keys), self.traffic, PER_CLIENT_MAX)

    def ask(self, packet: Packet, timeout_s: float) -> Packet:
        """Return the node's answer.

        Raises: NodeUnavailable (not reached, no answer within timeout_s seconds, connection lost); whatever error the
        node answers, by name; DataError (a packet that is too big, an answer that is none)."""
        sequence = next(self._sequences)
        frames = to_frames(packet, ASK, sequence, self._name, self._token)
        return self._asker.ask([Question(self.address, self.address, sequence, frames)], timeout_s)[0]

    def close(self) -> None:
        """Close the connections; may be called again. A caller that waits for an answer gets NodeUnavailable."""
        self._asker.close()
