"""Draining: a spare node takes a node's place on a client's word (wukongs/protocol/placement.py)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from wukongs.cluster.host import Dropped, Host
from wukongs.cluster.members import is_silent, left_s
from wukongs.errors import NodeUnavailable, SettingsError
from wukongs.protocol import events as ev
from wukongs.protocol.leading import seats
from wukongs.protocol.log import voters_at
from wukongs.protocol.placement import best_first
from wukongs.protocol.records import Drain
from wukongs.protocol.state import Node

RECORD_S = 30.0
HEARD_S = 10.0
DRAIN_S = 3600.0
"""How long the spare nodes may take, unless the caller says otherwise."""


def drain(host: Host, number: int, to: Sequence[int] | None, timeout_s: float | None) -> None:
    """Return when a node holds no shards any more, and does not vote if it is not the log's leader: see Engine.drain.

    Raises SettingsError, NodeUnavailable."""
    deadline = time.monotonic() + (DRAIN_S if timeout_s is None else timeout_s)
    node = host.node
    if number not in node.control.members:
        raise SettingsError(f"node {number}: the nodes are 0 to {len(node.control.members) - 1}")
    if node.control.holds(number) and number not in node.control.drains:
        if to is None:
            with suppress(NodeUnavailable):  # one that has just been started is perhaps heard in a moment
                node = host.wait_until(_has_heard, min(left_s(deadline), HEARD_S), "a spare node")
        chosen = _spares(node, number, to)
        with suppress(Dropped):  # somebody else has done so, or a spare node was used meanwhile
            host.carry_out(ev.Submitted(Drain(number, chosen)), min(left_s(deadline), RECORD_S))
        if host.node.control.holds(number) and number not in host.node.control.drains:
            raise NodeUnavailable(f"node {number}: nodes {list(chosen)} are not spare any more. Nothing was changed")
    host.wait_until(
        lambda now: is_drained(now, number),
        left_s(deadline),
        f"the nodes that take the place of node {number}, which goes on by itself",
    )


def is_drained(node: Node, number: int) -> bool:
    """Whether a node holds nothing and the majority log needs it no more: another one votes in its place."""
    voting = {voter.node for voter in voters_at(node.log, node.log.commit)}
    has_heir = node.log.leader == number and voting.issuperset(seats(node.log, node.control))
    return not node.control.holds(number) and (number not in voting or has_heir)


def _has_heard(node: Node) -> bool:
    """Whether some spare node is heard, or there is none."""
    spares = [one for one in node.control.members if node.control.is_spare(one)]
    return not spares or any(not is_silent(node, one) for one in spares)


def _spares(node: Node, number: int, to: Sequence[int] | None) -> tuple[int, ...]:
    """Return who takes over. Raises NodeUnavailable, SettingsError."""
    spares = [one for one in sorted(node.control.members) if node.control.is_spare(one)]
    if to is None:
        heard = [one for one in spares if not is_silent(node, one)]
        if not heard:
            raise NodeUnavailable(
                f"node {number} cannot be drained: no spare node is heard (of {spares or 'none'}). Start one, or "
                "start a node anew that was drained before"
            )
        return (best_first(node.control, node.machines, number, heard)[0],)
    if not to or len(set(to)) != len(to) or not set(to) <= set(spares):
        raise SettingsError(f"to = {list(to)}: expected different spare nodes, of {spares or 'none'}")
    return tuple(to)
