"""Which life of a node begins: its first one in the cluster, or one after its memory was lost.

A node that has voted before and does not remember it must not vote again (wukongs/protocol/records.py, Voter), and the
data that it held is gone. A node in memory cannot know by itself whether it was there before, but the others do. It
asks until a majority of the cluster, itself included, has answered. When all start for the first time, none has heard
of any other. The question carries the node's settings of the cluster, so that a node of another cluster is refused.
The answers say which nodes were added since: one of them may lead, and a node whose log was lost takes nothing of nodes
that it does not know.

A node that was there before comes back with a new generation of its disk, if other nodes hold everything that it held.
It is another voter, without a vote until it is in sync. Reports about its old disk do not count for the new one
(wukongs/protocol/membership.py). The generation is the time at which it starts, or one more than the newest that the
others know. So no two lives have the same one, also if no node that answers has heard of the life in between.

A node with a data folder remembers: it goes on with the disk that it had, and holds the lock of its folder, so that no
earlier life of it runs. It asks as well, since the others may have taken it out meanwhile. Then its folder lacks what
came since, and it comes back as a node with an empty one. Nodes that are starting themselves answer by what their own
folders say, so that one whose folder was lost does not begin as a new one.

While the node's earlier life is still heard, the new one waits: the earlier one has just died, or it runs and the new
one was started by mistake. It waits as well while a node says that nobody else holds what this one held, since that
node may not know the last records. After HEARD_S the new one gives up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import ValidationError, convert, to_builtins

from wukongs.errors import DataError, NodeUnavailable, SettingsError, WukongsError
from wukongs.live.header import SPOKEN, version_with
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.records import AddNode, Voter
from wukongs.wire.packets import Handler, Packet, Peers

HELLO = "hello"
ASK_S = 0.5
RETRY_S = 0.05
HEARD_S = 10.0
"""How long a node that starts waits for its earlier life to fall silent, and for others to hold all that it held: who
answers may itself be starting, with a log that lacks the last records."""
SAY_S = 10.0
"""How often a node that starts says what it waits for."""
FIRST_DISK = 0

EVENT_TIMES = "event_times"
LEASES = "leases"
VIEWS = "views"
KNOWS = (EVENT_TIMES, LEASES, VIEWS)
"""The features that an earlier release lacks, of the same version of messages. Nodes name them when they introduce
themselves, and use one once all nodes have it. event_times: a node keeps event times of triples;
leases: it asks for leases, and answers the rounds of a leader (protocol/leases.py); views: it says what has changed
between two SNs, and takes live views over."""

log = logging.getLogger("wukongs")


def new_boot() -> int:
    """Return a number for a life that begins now, higher than those of earlier ones."""
    return time.time_ns() // 1_000_000


def check_shape(number: int, asked: object, shape: str) -> None:
    """Raise SettingsError if the configuration of a node has another shape of the cluster than the running nodes."""
    if asked != shape:
        raise SettingsError(
            f"node {number} starts with {asked}, the nodes that are there have {shape}: write the same replicas, "
            "split_predicates, [[node]] list and hash_bits into the files of all nodes, and run one version"
        )


def version_of(number: int, fields: Mapping[str, Any], spoken: tuple[int, int] = SPOKEN) -> int:
    """Return the version of messages that this node and another one use. fields: of what the other one has told.

    Raises: SettingsError (they have none in common)."""
    version = version_with(fields.get("speaks"), spoken)
    if version is None:
        raise SettingsError(
            f"node {number} speaks versions {fields.get('speaks')} of the messages between nodes, and this node "
            f"{list(spoken)}: upgrade all nodes to a release that speaks one version of each first"
        )
    return version


def known_by(fields: Mapping[str, Any]) -> frozenset[str]:
    """Return what a node knows (KNOWS), by the fields of its introduction. One of an earlier release says nothing."""
    told = fields.get("knows")
    return frozenset(one for one in told if isinstance(one, str)) if isinstance(told, list) else frozenset()


def claimed_twice(number: int) -> NodeUnavailable:
    """Return the error of a life of a node while another one is heard."""
    return NodeUnavailable(
        f"node {number} runs already: another process claims to be this node, and is not let in. End one of the two, "
        "or write another number into its file. After a crash, start it again once the others have noticed"
    )


def hello_handler(
    last_life: Callable[[int], Incarnation | None],
    shape: str,
    is_covered: Callable[[int], bool] = lambda _: False,
    is_heard: Callable[[int], bool] = lambda _: False,
    is_out: Callable[[Voter], bool] = lambda _: False,
    added: Callable[[], Iterable[AddNode]] = tuple,
) -> Handler:
    """Return the handler of HELLO. last_life: the newest incarnation of a node that this one has heard of; shape: the
    settings that all nodes of the cluster share; is_covered: whether others hold everything that a node held; is_heard:
    whether a node is still heard; is_out: whether a node was taken out, or has another disk by now; added: the nodes
    that were added and not removed. Nodes of another shape are refused."""

    def answer(packet: Packet) -> Packet:
        number, disk = packet.fields.get("node"), packet.fields.get("disk")
        if type(number) is not int or type(disk) not in (int, type(None)):
            raise DataError(f"{HELLO}: expected the number of a node and its disk, found {number!r}, {disk!r}")
        version_of(number, packet.fields)
        check_shape(number, packet.fields.get("shape"), shape)
        known = last_life(number)
        always = {"speaks": SPOKEN, "added": [to_builtins(one) for one in added()]}
        if known is None:
            nothing = {"disk": None, "is_covered": False, "is_heard": False, "is_out": False}
            return Packet(HELLO, {**nothing, **always})
        told = {**always, "disk": known.disk, "is_covered": is_covered(number), "is_heard": is_heard(number)}
        return Packet(HELLO, {**told, "is_out": type(disk) is int and is_out(Voter(number, disk))})

    return answer


def next_disk(
    peers: Peers,
    others: Sequence[int],
    shape: str,
    timeout_s: float,
    heard_s: float | None = None,
    mine: int | None = None,
    added: dict[int, AddNode] | None = None,
) -> int:
    """Return the generation of this node's disk once a majority of the cluster has said what it knows of this node:
    FIRST_DISK for a node that they have not heard of. heard_s: in the place of HEARD_S; mine: that of its data folder,
    which stays unless the node was taken out; None: it has none; added: gets the nodes that the others say were added.

    Raises NodeUnavailable (it was there before, and nobody else holds its data; another process is this node; no
    majority answers within timeout_s seconds), SettingsError (the others have other settings of the cluster, or no
    version of messages in common with this one)."""
    began = time.monotonic()
    known: dict[int, int | None] = {}
    question = _question(peers.me, shape, mine)
    is_out = False
    heard_by: set[int] = set()
    lost_by: set[int] = set()
    """Nodes by which nobody else holds all that this node held."""
    needed = (len(others) + 1) // 2  # with this node itself, a majority
    said_s = began
    while len(known) < needed or heard_by or lost_by:
        passed_s, wait_s = time.monotonic() - began, HEARD_S if heard_s is None else heard_s
        if time.monotonic() - said_s >= SAY_S and not heard_by | lost_by:
            said_s = time.monotonic()
            missing = ", ".join(str(node) for node in others if node not in known)
            log.warning(
                "node %d waits for %d of the nodes that do not answer: %s", peers.me, needed - len(known), missing
            )
        if heard_by and passed_s >= wait_s:
            raise claimed_twice(peers.me)
        if lost_by and passed_s >= wait_s:
            raise _lost(peers.me, min(lost_by))
        if passed_s >= timeout_s:
            raise NodeUnavailable(
                f"node {peers.me}: {len(known)} of {len(others)} other nodes answered within {timeout_s:g} s, and "
                f"{needed} are needed: start them, and check the addresses in the node's config"
            )
        for node in others:
            if node not in known:
                heard_by.discard(node)
                lost_by.discard(node)
                try:
                    (answer,) = peers.ask([(node, question)], ASK_S)
                except NodeUnavailable:
                    continue
                version_of(node, answer.fields)
                if added is not None:
                    added.update({one.node: one for one in _added_in(answer)})
                is_out |= answer.fields.get("is_out") is True
                is_new = mine is None or is_out
                disk = _disk_in(answer) if is_new else None
                if answer.fields.get("is_heard") and is_new:
                    heard_by.add(node)
                elif disk is not None and not answer.fields.get("is_covered"):
                    lost_by.add(node)
                else:
                    known[node] = disk
        time.sleep(RETRY_S)
    if mine is not None and not is_out:
        return mine
    disks = [disk for disk in (mine, *known.values()) if disk is not None]
    return max(new_boot(), max(disks) + 1) if disks else FIRST_DISK


def ask_for_added(peers: Peers, nodes: Iterable[int], shape: str) -> dict[int, AddNode]:
    """Return the nodes that were added to the cluster, as far as one of these nodes says so."""
    found = dict[int, AddNode]()
    for node in nodes:
        with suppress(WukongsError):
            (answer,) = peers.ask([(node, _question(peers.me, shape, None))], ASK_S)
            found |= {one.node: one for one in _added_in(answer)}
    return found


def _question(me: int, shape: str, disk: int | None) -> Packet:
    return Packet(HELLO, {"node": me, "shape": shape, "disk": disk, "speaks": SPOKEN})


def _added_in(answer: Packet) -> list[AddNode]:
    """Return the nodes that were added, as an answer says; none if it is of an earlier release."""
    try:
        return [convert(one, AddNode) for one in answer.fields.get("added", [])]
    except (TypeError, ValidationError) as error:
        found = answer.fields["added"]
        raise DataError(f"{HELLO}: expected the nodes that were added, found {found!r:.200}") from error


def _disk_in(answer: Packet) -> int | None:
    disk = answer.fields.get("disk")
    if disk is not None and type(disk) is not int:
        raise DataError(f"{HELLO}: expected the generation of a disk, found {disk!r}")
    return disk


def _lost(me: int, node: int) -> NodeUnavailable:
    return NodeUnavailable(
        f"node {me} is in the cluster already, or was and has lost what it had in memory, as node {node} says, and no "
        "other node holds all of that: it cannot come back. To be sure, start all nodes that do not run, with their "
        "data folders, and then this one once more. If it says the same, end all nodes, start them anew, with "
        "replicas = 2 or more if they are to stand this, and load again or restore a backup"
    )
