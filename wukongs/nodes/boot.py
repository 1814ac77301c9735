"""Which life of a node begins: the first one in its cluster, or one after its memory was lost.

Who has voted before and does not remember it must not vote again under the same name (wukongs/protocol/records.py,
Voter). A node in memory cannot know by itself whether it was there before, but the others do: it asks until a majority
of the cluster, itself included, has said which of its lives they have heard of. When all start for the first time, they
answer each other that they have heard of none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from wukongs.errors import DataError, NodeUnavailable, WukongsError
from wukongs.protocol.messages import Incarnation
from wukongs.wire.packets import Handler, Packet, Peers

HELLO = "hello"
ASK_S = 0.5
RETRY_S = 0.05


def new_boot() -> int:
    """Return a number for a life that begins now, higher than those of earlier ones."""
    return time.time_ns() // 1_000_000


def hello_handler(last_life: Callable[[int], Incarnation | None]) -> Handler:
    """Return the handler of HELLO. last_life: the newest incarnation of a node that this one has heard of."""

    def answer(packet: Packet) -> Packet:
        number = packet.fields.get("node")
        if type(number) is not int:
            raise DataError(f"{HELLO}: expected the number of a node, found {number!r}")
        known = last_life(number)
        return Packet(HELLO, {"disk": None if known is None else known.disk})

    return answer


def next_disk(peers: Peers, others: Sequence[int], timeout_s: float) -> int:
    """Return the disk generation of a life that begins now: 0 if nobody has heard of an earlier one.

    Raises NodeUnavailable (no majority answers within timeout_s seconds)."""
    deadline = time.monotonic() + timeout_s
    answers: dict[int, int] = {}
    needed = (len(others) + 1) // 2  # with this node itself, a majority
    while len(answers) < needed:
        if time.monotonic() >= deadline:
            raise NodeUnavailable(
                f"node {peers.me}: {len(answers)} of {len(others)} other nodes answered within {timeout_s:g} s, and "
                f"{needed} are needed: start them, and check the addresses in the node's config"
            )
        for node in others:
            if node not in answers:
                try:
                    (answer,) = peers.ask([(node, Packet(HELLO, {"node": peers.me}))], ASK_S)
                except WukongsError:
                    continue
                disk = answer.fields.get("disk")
                answers[node] = -1 if type(disk) is not int else disk
        time.sleep(RETRY_S)
    return 1 + max(answers.values(), default=-1)
