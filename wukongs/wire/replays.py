"""Remembers which sequence numbers of a sender have come, so that a message that is sent twice is taken once.

Messages of one sender may overtake each other, since it asks over several connections, but not by OVERTAKEN_MAX.
"""

from __future__ import annotations

from collections import OrderedDict

from wukongs.protocol.messages import Incarnation

OVERTAKEN_MAX = 4096
CLIENTS_MAX = 4096


class Sequences:
    """The numbers that one sender has used. Bounded: numbers OVERTAKEN_MAX behind the highest count as used."""

    def __init__(self) -> None:
        self._highest = 0
        self._seen: set[int] = set()

    def is_new(self, sequence: int) -> bool:
        """Take a number; tell whether it has come for the first time."""
        if sequence <= self._highest - OVERTAKEN_MAX or sequence in self._seen:
            return False
        self._seen.add(sequence)
        self._highest = max(self._highest, sequence)
        if len(self._seen) > 2 * OVERTAKEN_MAX:
            self._seen = {one for one in self._seen if one > self._highest - OVERTAKEN_MAX}
        return True


class NodeReplays:
    """The life of each node that was let in, and the numbers that it has used. No packet lets a life in by itself."""

    def __init__(self) -> None:
        self._lives: dict[int, tuple[Incarnation, Sequences]] = {}

    def life_of(self, node: int) -> Incarnation | None:
        """Return the life of a node that was let in last."""
        known = self._lives.get(node)
        return None if known is None else known[0]

    def let_in(self, life: Incarnation) -> None:
        """Take the messages of this life of a node from now on, and of no other one."""
        if self.life_of(life.node) != life:
            self._lives[life.node] = life, Sequences()

    def is_new(self, sender: Incarnation, sequence: int) -> bool:
        """Take a number of a life that was let in; tell whether it has come for the first time."""
        life, sequences = self._lives[sender.node]
        assert life == sender, (life, sender)
        return sequences.is_new(sequence)


class ClientReplays:
    """The CLIENTS_MAX clients that were heard last, by the names that they gave themselves."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, Sequences] = OrderedDict()

    def is_new(self, client: str, sequence: int) -> bool:
        known = self._clients.setdefault(client, Sequences())
        self._clients.move_to_end(client)
        if len(self._clients) > CLIENTS_MAX:
            self._clients.popitem(last=False)
        return known.is_new(sequence)
