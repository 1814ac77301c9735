"""Reach: what a node of a cluster reads by, beside its own store: the other nodes.

Who hosts a node gives its core one, `core.reach = Reach(core, peers, assignment)`, and lets the network answer by
`wukongs.sharded.owner.handlers(core, wait_for_sn)`. From then on queries, firings and updates of this core read the
whole graph. A core without one (the embedded engine) holds it whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from wukongs.wire.assignment import Assignment
from wukongs.wire.packets import Peers


@dataclass(slots=True)
class Traffic:
    """What this node has asked of others for its reads: requests, rows and bytes of arrays in both directions."""

    requests: int = 0
    rows_sent: int = 0
    rows_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


@dataclass(slots=True)
class Reach:
    """peers: the other nodes; assignment: which node answers for which shard now: asked anew by each execution, with
    the core's lock held. It names this node for every shard of which this node is an in-sync replica."""

    peers: Peers
    assignment: Callable[[], Assignment]
    traffic: Traffic = field(default_factory=Traffic)
