"""Whether the life of a node that begins is its first one in the cluster: one after its memory was lost is refused.

Who has voted before and does not remember it must not vote again (wukongs/protocol/records.py, Voter), and what it held
is gone. A node in memory cannot know by itself whether it was there before, but the others do: it asks until a majority
of the cluster, itself included, has said that they have not heard of it. When all start for the first time, they say
that of each other. With the question goes what the node was told of the cluster, so that one of another is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from wukongs.errors import DataError, NodeUnavailable, SettingsError
from wukongs.protocol.messages import Incarnation
from wukongs.wire.packets import Handler, Packet, Peers

HELLO = "hello"
ASK_S = 0.5
RETRY_S = 0.05


def new_boot() -> int:
    """Return a number for a life that begins now, higher than those of earlier ones."""
    return time.time_ns() // 1_000_000


def hello_handler(last_life: Callable[[int], Incarnation | None], shape: str) -> Handler:
    """Return the handler of HELLO. last_life: the newest incarnation of a node that this one has heard of; shape: what
    all nodes of the cluster are told alike. Nodes of another shape are refused."""

    def answer(packet: Packet) -> Packet:
        number, asked = packet.fields.get("node"), packet.fields.get("shape")
        if type(number) is not int:
            raise DataError(f"{HELLO}: expected the number of a node, found {number!r}")
        if asked != shape:
            raise SettingsError(
                f"node {number} starts with {asked}, the nodes that are there have {shape}: write the same replicas, "
                "split_predicates, [[node]] list and hash_bits into the files of all nodes, and run one version"
            )
        known = last_life(number)
        return Packet(HELLO, {"disk": None if known is None else known.disk})

    return answer


def check_is_first_life(peers: Peers, others: Sequence[int], shape: str, timeout_s: float) -> None:
    """Return when a majority of the cluster has said that it has not heard of this node before.

    Raises NodeUnavailable (somebody has; no majority answers within timeout_s seconds), SettingsError (the others were
    told something else of the cluster)."""
    deadline = time.monotonic() + timeout_s
    answered: set[int] = set()
    needed = (len(others) + 1) // 2  # with this node itself, a majority
    while len(answered) < needed:
        if time.monotonic() >= deadline:
            raise NodeUnavailable(
                f"node {peers.me}: {len(answered)} of {len(others)} other nodes answered within {timeout_s:g} s, and "
                f"{needed} are needed: start them, and check the addresses in the node's config"
            )
        for node in others:
            if node not in answered:
                try:
                    (answer,) = peers.ask([(node, Packet(HELLO, {"node": peers.me, "shape": shape}))], ASK_S)
                except NodeUnavailable:
                    continue
                if answer.fields.get("disk") is not None:
                    raise NodeUnavailable(
                        f"node {peers.me} is in the cluster already, or was and has lost what it had in memory, as "
                        f"node {node} says: it cannot come back. The others go on without it if they hold all that it "
                        "held (replicas); else end all nodes, and start them anew"
                    )
                answered.add(node)
        time.sleep(RETRY_S)
