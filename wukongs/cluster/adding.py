"""Adding: nodes that nobody named when the cluster was founded come in, and nodes that hold nothing go
(docs/decisions/0076-pipelines-and-added-nodes.md).

The log says where an added node is. Its members meet it by that; before, they take nothing of it, so its process may be
started first: it waits. It is a spare one then.

A node may lack the record: it was cut off, or paused, while the node was added. If the added node leads by then, nobody
else sends the log. So a node that has heard of no leader for a while asks nodes that it knows which ones were added.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from wukongs.cluster.boot import ask_for_added
from wukongs.cluster.host import Dropped, Host
from wukongs.cluster.members import left_s
from wukongs.errors import NodeUnavailable, SettingsError
from wukongs.protocol import events as ev
from wukongs.protocol.control import Control
from wukongs.protocol.records import AddNode, RemoveNode, Role
from wukongs.protocol.state import Node
from wukongs.wire.keys import is_key
from wukongs.wire.network import Network
from wukongs.wire.transport import check_address

ADD_S = 30.0
LEADERLESS_S = 5.0
"""How long a node hears of no leader before it asks which nodes were added; and before it asks again."""
ASKED_MAX = 8
"""How many nodes it asks at a time, one after the other."""


def add(host: Host, clients: str, peers: str, public_key: str, timeout_s: float | None) -> int:
    """Return the number of a node that is in the cluster from now on: see Engine.add_node.

    Raises SettingsError, NodeUnavailable."""
    for address in (clients, peers):
        check_address(address)
    if public_key and not is_key(public_key):
        raise SettingsError(f"public_key = {public_key!r}: expected 40 characters, as `wukongs keys` prints them")
    deadline = time.monotonic() + (ADD_S if timeout_s is None else timeout_s)
    while (number := _number_of(host.node.control, clients, peers, public_key)) is None:
        new = AddNode(len(host.node.control.members), peers, clients, public_key)
        with suppress(Dropped):  # another one has come to be the next
            host.submit(ev.Submitted(new), left_s(deadline))
        if time.monotonic() >= deadline:
            raise NodeUnavailable("other nodes are added all the time: nothing was changed")
    return number


def _number_of(control: Control, clients: str, peers: str, public_key: str) -> int | None:
    """Return the number of the node that was added with these, None if none was. Raises SettingsError."""
    for number, known in control.added.items():
        if known.peers == peers and number in control.nodes:
            if (known.clients, known.public_key) != (clients, public_key):
                raise SettingsError(f"peers = {peers!r}: node {number} is there, with clients {known.clients!r}")
            return number
    return None


def remove(host: Host, number: int, timeout_s: float | None) -> None:
    """Return when a node is there no more: see Engine.remove_node. Raises SettingsError, NodeUnavailable."""
    deadline = time.monotonic() + (ADD_S if timeout_s is None else timeout_s)
    control = host.node.control
    if number not in control.members:
        raise SettingsError(f"node {number}: the nodes are {control.nodes}")
    if control.members[number].is_removed:
        return
    if control.holds(number):
        raise SettingsError(f"node {number} holds shards: drain it first")
    host.wait_until(
        lambda node: node.control.members[number].role is Role.OUT,
        left_s(deadline),
        f"node {number} to be out: stop its process",
    )
    with suppress(Dropped):  # somebody else has done so, or it was given shards meanwhile
        host.submit(ev.Submitted(RemoveNode(number)), left_s(deadline))
    if not host.node.control.members[number].is_removed:
        raise NodeUnavailable(f"node {number} was given shards meanwhile. Nothing was changed")


def added_to(control: Control) -> list[AddNode]:
    """Return the nodes that were added and not removed."""
    return [one for number, one in control.added.items() if not control.members[number].is_removed]


class Meeting:
    """Keeps a node's connections at the nodes that are there. Its methods are called by one thread at a time.

    shape: what nodes of one cluster have in common (ClusterShape.told)."""

    def __init__(self, network: Network, shape: str) -> None:
        self._network, self._shape = network, shape
        self._addresses: Mapping[int, str] = {}
        self._keys: Mapping[int, str] | None = None
        self._learned: Mapping[int, AddNode] = {}
        """The nodes that were added as others have said, whether the log that is here has their records or not."""
        self._known: tuple[Mapping[int, AddNode], Mapping[int, AddNode], list[int]] | None = None
        self._led_s = time.monotonic()
        """When a leader was heard last, or others were asked."""
        self._asking: threading.Thread | None = None

    def begin(
        self,
        addresses: Mapping[int, str],
        keys: Mapping[int, str] | None,
        control: Control,
        added: Mapping[int, AddNode],
    ) -> None:
        """addresses, keys: of the nodes that were named at the beginning, and of this one; added: as others have
        said."""
        self._addresses, self._keys, self._known = addresses, keys, None
        self._learned = added
        self.meet(control)

    def pulse(self, node: Node) -> None:
        """Meet the nodes that were added; ask for them, in another thread, if this node hears of no leader."""
        self.meet(node.control)
        now, log = time.monotonic(), node.log
        if log.leader is not None and log.silence <= 2 * log.election_pulses:
            self._led_s = now
        elif now - self._led_s >= LEADERLESS_S and (self._asking is None or not self._asking.is_alive()):
            self._led_s = now
            others = [number for number in node.control.nodes if number != self._network.me]
            nodes = random.sample(others, min(len(others), ASKED_MAX))
            self._asking = threading.Thread(target=self._learn, args=(nodes,), name="wukongs-meeting", daemon=True)
            self._asking.start()

    def close(self) -> None:
        if self._asking is not None:
            self._asking.join()

    def _learn(self, nodes: Sequence[int]) -> None:
        found = ask_for_added(self._network, nodes, self._shape)
        if not found.items() <= self._learned.items():
            self._learned = {**self._learned, **found}

    def meet(self, control: Control) -> None:
        """Meet the nodes that a control state knows, if they are others than before."""
        learned, gate = self._learned, self._network.gate
        gone = [number for number, member in control.members.items() if member.is_removed]
        added = {**learned, **control.added}
        keys = {number: one.public_key for number, one in added.items() if one.public_key}
        let_in = {key for number, key in keys.items() if number not in gone}
        if gate.pair is not None and not gate.allowed.issuperset(let_in):  # also when its files were read again
            self._network.use(replace(gate, allowed=gate.allowed | let_in))
        known = self._known
        if known is not None and known[0] is control.added and known[1] is learned and known[2] == gone:
            return
        self._known = control.added, learned, gone
        addresses = {number: one.peers for number, one in added.items()} | dict(self._addresses)
        if self._keys is not None:
            keys |= self._keys
        self._network.join({one: address for one, address in addresses.items() if one not in gone}, keys)
