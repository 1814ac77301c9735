"""Which life of a node begins: its first one in the cluster, or one after its memory was lost.

Who has voted before and does not remember it must not vote again (wukongs/protocol/records.py, Voter), and what it held
is gone. A node in memory cannot know by itself whether it was there before, but the others do: it asks until a majority
of the cluster, itself included, has answered. When all start for the first time, they say of each other that they have
not heard of it. With the question goes what the node was told of the cluster, so that one of another is refused.

Who was there before comes back with a new generation of its disk, if other nodes hold all that it held: it is another
voter, without a vote until it is in sync, and nothing that was said of what it had is taken for what it has now
(wukongs/protocol/membership.py). The generation is the time at which it starts, or one more than the newest that the
others know: no two lives have the same one, also if nobody who answers has heard of the life in between.
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
FIRST_DISK = 0


def new_boot() -> int:
    """Return a number for a life that begins now, higher than those of earlier ones."""
    return time.time_ns() // 1_000_000


def hello_handler(
    last_life: Callable[[int], Incarnation | None], shape: str, is_covered: Callable[[int], bool] = lambda _: False
) -> Handler:
    """Return the handler of HELLO. last_life: the newest incarnation of a node that this one has heard of; shape: what
    all nodes of the cluster are told alike; is_covered: whether others hold all that a node held. Nodes of another
    shape are refused."""

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
        disk = None if known is None else known.disk
        return Packet(HELLO, {"disk": disk, "is_covered": known is not None and is_covered(number)})

    return answer


def next_disk(peers: Peers, others: Sequence[int], shape: str, timeout_s: float) -> int:
    """Return the generation of this node's disk once a majority of the cluster has said what it knows of it: FIRST_DISK
    for a node that they have not heard of.

    Raises NodeUnavailable (it was there before, and nobody else holds what it held; no majority answers within
    timeout_s seconds), SettingsError (the others were told something else of the cluster)."""
    deadline = time.monotonic() + timeout_s
    known: dict[int, int | None] = {}
    needed = (len(others) + 1) // 2  # with this node itself, a majority
    while len(known) < needed:
        if time.monotonic() >= deadline:
            raise NodeUnavailable(
                f"node {peers.me}: {len(known)} of {len(others)} other nodes answered within {timeout_s:g} s, and "
                f"{needed} are needed: start them, and check the addresses in the node's config"
            )
        for node in others:
            if node not in known:
                try:
                    (answer,) = peers.ask([(node, Packet(HELLO, {"node": peers.me, "shape": shape}))], ASK_S)
                except NodeUnavailable:
                    continue
                known[node] = _disk_in(answer, peers.me, node)
        time.sleep(RETRY_S)
    disks = [disk for disk in known.values() if disk is not None]
    return max(new_boot(), max(disks) + 1) if disks else FIRST_DISK


def _disk_in(answer: Packet, me: int, node: int) -> int | None:
    disk = answer.fields.get("disk")
    if disk is None:
        return None
    if type(disk) is not int:
        raise DataError(f"{HELLO}: expected the generation of a disk, found {disk!r}")
    if not answer.fields.get("is_covered"):
        raise NodeUnavailable(
            f"node {me} is in the cluster already, or was and has lost what it had in memory, as node {node} says, and "
            "no other node holds all of that: it cannot come back. End all nodes, start them anew, with replicas = 2 "
            "or more if they are to stand this, and load again"
        )
    return disk
