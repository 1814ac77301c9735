"""NodeJournal: what a node tells the cluster of what is done to its registered queries.

The embedded engine's journal makes changes durable before they hold. A node in memory has nothing to write; but a query
that is closed here has to leave the majority log, so that its name is free on all nodes and nobody keeps slices for it.
"""

from __future__ import annotations

from wukongs.cluster.host import Host
from wukongs.live.journal import Change, Journal
from wukongs.live.pieces import Told
from wukongs.protocol import events as ev
from wukongs.protocol.records import DropQuery


class NodeJournal(Journal):
    """Of one node."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def commit(self, change: Change | Told) -> int:
        """Hand in that a query was closed. Nobody waits: it ends here at once, and the protocol says it again until it
        is in the log."""
        if isinstance(change, dict) and change["op"] == "close":
            known = self._host.node.control.queries.get(change["query"])
            if known is not None and known.nodes.keys() == {self._host.me.node}:
                self._host.post(ev.Submitted(DropQuery(change["query"], known.since)))
        return 0
