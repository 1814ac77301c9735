"""Reach: what a node of a cluster reads by, beside its own store: the other nodes.

Who hosts a node gives its core one, `core.reach = Reach(core, peers, assignment)`, and lets the network answer by
`owner.handlers(core, wait_for_sn)`. From then on queries, firings and updates of this core read the
whole graph. A core without one (the embedded engine) holds it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from wukongs.cluster.reads.asking import Asking
from wukongs.cluster.reads.distant_terms import DistantIds, DistantReader
from wukongs.cluster.reads.divided_graph import DividedGraph
from wukongs.cluster.reads.traffic import Traffic, time_left_s
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import Int64Array
from wukongs.store.term_registry import TermReader
from wukongs.wire.assignment import Assignment
from wukongs.wire.packets import Packet, Peers

if TYPE_CHECKING:
    from wukongs.live.core import Core


class Reach:
    """peers: the other nodes; assignment: which node answers for which shard now. It is asked anew by each execution,
    perhaps with the core's lock held, and names this node for every shard of which this node is an in-sync replica.
    traffic: of all executions together; keep: how updates make new terms known for ever in the whole cluster (canonical
    forms -> ids); by default this node alone learns them, which is right only where no two texts have one hash."""

    def __init__(
        self,
        core: Core,
        peers: Peers,
        assignment: Callable[[], Assignment],
        keep: Callable[[Sequence[str]], Int64Array] | None = None,
    ) -> None:
        self._peers = peers
        self.assignment = assignment
        self.traffic = Traffic()
        self.ids = DistantIds(core.registry, self, keep or core.registry.keep_all)
        """By which ids the whole cluster knows texts."""

    def graph(self, own: BatchSet, sn: int) -> DividedGraph | None:
        """Return how one execution reads the whole graph as of an SN, None if this node holds it whole.

        own: what this node holds of it."""
        assignment = self.assignment()
        return None if assignment.is_local else DividedGraph(Asking(self, assignment, sn), own)

    def reader(self, own: TermReader) -> DistantReader:
        """Return what reads texts here, and asks others for those that are not."""
        return DistantReader(own, self)

    def ask(self, asked: Sequence[tuple[int, Packet]], traffic: Traffic | None = None) -> list[Packet]:
        """Ask other nodes at the same time, within the time that the execution has left; return their answers.

        traffic: that of the execution. Raises QueryTimeout, NodeUnavailable, and what a node answers by name."""
        answers = self._peers.ask(asked, time_left_s())
        for counted in (self.traffic, traffic):
            if counted is not None:
                counted.count((packet for _, packet in asked), answers)
        return answers
