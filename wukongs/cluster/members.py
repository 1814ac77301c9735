"""Asks those nodes that take part: who is taken out while it is asked is not waited for any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from wukongs.cluster.host import Host
from wukongs.errors import NodeUnavailable
from wukongs.protocol.control import Control
from wukongs.protocol.records import Role
from wukongs.protocol.state import Node
from wukongs.wire.packets import Packet, Peers

VIEW = "view"
"""The field of an answer that says which members its node knows: the index of the last record about them."""
RETRY_S = 0.05
ROUND_S = 0.5
"""A node that does not answer for longer is perhaps out by now. The next round is twice as long: it may be busy."""
SILENT_PULSES = 40
"""A node that reports nothing for longer is perhaps gone. Reports come with each pulse, of quiet nodes with each 16th,
by way of others, too; one may be late by a pause of the other node, as for its disk."""


def left_s(deadline: float) -> float:
    """Return the seconds until a time (of time.monotonic), a moment at least: what is there at once is still taken."""
    return max(0.001, deadline - time.monotonic())


def members_of(host: Host) -> set[int]:
    """Return the nodes that everybody waits for."""
    return host.node.control.with_role(Role.IN, Role.HOLDING, Role.JOINING)


def is_silent(node: Node, other: int) -> bool:
    """Tell whether nothing new was heard of another node for longer than usual."""
    return node.watch.silence_of(other) > SILENT_PULSES


def await_word(host: Host, other: int, timeout_s: float) -> None:
    """Return at once, unless a node is silent: then when it is heard again, or was taken out.

    Raises NodeUnavailable (neither within timeout_s seconds)."""

    def is_told(node: Node) -> bool:
        is_out = node.control.member(other).role is Role.OUT
        return other == node.me.node or is_out or not is_silent(node, other)

    if not is_told(host.node):
        host.wait_until(is_told, timeout_s, f"node {other}, of which nothing is heard")


def check_joined(node: Node, index: int) -> None:
    """Raise NodeUnavailable if shares were divided by who did not know yet that this node joins, or may be given other
    shards before: they are to come again. index: how far it knew the log."""
    if index < node.control.member(node.me.node).since:
        raise NodeUnavailable(f"node {node.me.node} has joined since this was divided: send it again")


def ask_members(
    host: Host,
    peers: Peers,
    asked: Mapping[int, Packet] | Callable[[Control], Mapping[int, Packet]],
    timeout_s: float,
) -> dict[int, Packet]:
    """Ask all member nodes at the same time, again and again until each has answered. A node that leaves the cluster
    meanwhile is skipped. A node of which nothing is heard is not asked before something is: a round would wait for it
    to its end, also when it is out by then. A question may come more than once.

    A node that has begun to join meanwhile is asked as well. A node whose answer shows that it knows of the new one
    (VIEW) may have given its data to the new one before this question came. So the new node gets the question from
    here. asked: of each node, or what says so by the nodes' shards and places of now, and may raise.

    Raises NodeUnavailable (one takes part and does not answer within timeout_s), and what a node answers by name."""
    deadline, round_s = time.monotonic() + timeout_s, ROUND_S
    while True:
        control = host.node.control
        packets = asked(control) if callable(asked) else asked
        nodes = sorted(control.with_role(Role.IN, Role.HOLDING, Role.JOINING) & packets.keys())
        silent = next((node for node in nodes if node != peers.me and is_silent(host.node, node)), None)
        if silent is not None:
            await_word(host, silent, left_s(deadline))
            continue
        try:
            answers = peers.ask([(node, packets[node]) for node in nodes], min(left_s(deadline), round_s))
            view = max([0, *(found for answer in answers if type(found := answer.fields.get(VIEW)) is int)])
            if view > host.node.control.view:
                host.wait_for_record(view, left_s(deadline))
            is_divided_so = not callable(asked) or host.node.control.shards is control.shards
            if is_divided_so and members_of(host) & packets.keys() <= set(nodes):
                return dict(zip(nodes, answers, strict=True))
            continue
        except NodeUnavailable:
            host.check()
            if time.monotonic() >= deadline:
                raise
        round_s *= 2
        time.sleep(min(RETRY_S, left_s(deadline)))
