"""The side of a node that answers others: what its own trace holds at a snapshot, of the shards it answers for."""

from __future__ import annotations

from collections.abc import Callable

from wukongs.core import Core
from wukongs.wire.packets import Handler

WaitForSn = Callable[[int, float], None]
"""(sn, timeout_s): returns once this node's trace has come to an SN. Raises NodeUnavailable if that takes longer."""


def handlers(core: Core, wait_for_sn: WaitForSn) -> dict[str, Handler]:
    """Return what answers the reads of other nodes: kind of a packet -> its handler. They may be called from any
    thread, several at a time.

    read.run: steps of a plan from given rows; read.texts: ids to texts; read.resolve: texts to ids; read.graphs: names
    of graphs; read.nodes: the graphs that know some nodes."""
    raise NotImplementedError
