"""Adding: nodes that nobody named when the cluster was founded come in, and nodes that hold nothing go
(docs/decisions/0076-pipelines-and-added-nodes.md).

The log says where an added node is. Its members meet it by that; before, they take nothing of it, so its process may be
started first: it waits. It is a spare one then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from wukongs.cluster.host import Dropped, Host
from wukongs.cluster.members import left_s
from wukongs.errors import NodeUnavailable, SettingsError
from wukongs.protocol import events as ev
from wukongs.protocol.control import Control
from wukongs.protocol.records import AddNode, RemoveNode, Role
from wukongs.wire.keys import is_key
from wukongs.wire.network import Network
from wukongs.wire.transport import check_address

ADD_S = 30.0


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
    """Keeps a node's connections at the nodes that are there. Called by one thread at a time."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._addresses: Mapping[int, str] = {}
        self._keys: Mapping[int, str] | None = None
        self._known: tuple[Mapping[int, AddNode], list[int]] | None = None

    def begin(self, addresses: Mapping[int, str], keys: Mapping[int, str] | None, control: Control) -> None:
        """addresses, keys: of the nodes that were named at the beginning, and of this one."""
        self._addresses, self._keys, self._known = addresses, keys, None
        self.meet(control)

    def meet(self, control: Control) -> None:
        """Meet the nodes that a control state knows, if they are others than before."""
        added, gate = control.added, self._network.gate
        keys = {number: one.public_key for number, one in added.items() if one.public_key}
        let_in = {key for number, key in keys.items() if not control.members[number].is_removed}
        if gate.pair is not None and not gate.allowed.issuperset(let_in):  # also when its files were read again
            self._network.use(replace(gate, allowed=gate.allowed | let_in))
        known = added, [number for number, member in control.members.items() if member.is_removed]
        if self._known is not None and self._known[0] is added and self._known[1] == known[1]:
            return
        self._known = known
        addresses = {number: one.peers for number, one in added.items()} | dict(self._addresses)
        if self._keys is not None:
            keys |= self._keys
        self._network.join({one: address for one, address in addresses.items() if one not in known[1]}, keys)
