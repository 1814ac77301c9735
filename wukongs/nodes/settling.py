"""Settling: waits until what all nodes have closed is visible on all of them, and all windows due are reported."""

from __future__ import annotations

import time
from typing import Any

from wukongs.errors import DataError
from wukongs.nodes.host import Host
from wukongs.nodes.node_store import NodeStore
from wukongs.protocol.records import Role
from wukongs.protocol.snapshots import Sn, stable_sn
from wukongs.wire.packets import Packet, Peers

CLOSED = "closed"
SETTLE = "settle"
FOREVER_S = 1e9
ASK_S = 30.0


class Settling:
    """Of one node: asks the others, and answers them."""

    def __init__(self, host: Host, store: NodeStore, peers: Peers) -> None:
        self._host, self._store, self._peers = host, store, peers

    def settle(self, timeout_s: float | None) -> None:
        """Raises NodeUnavailable (a node is away, or timeout_s passes first), StreamError (that of one node)."""
        left_s = FOREVER_S if timeout_s is None else timeout_s
        deadline = time.monotonic() + left_s
        members = sorted(self._host.node.control.with_role(Role.IN, Role.HOLDING))
        closed = [
            _vts(answer) for answer in self._peers.ask([(node, Packet(CLOSED)) for node in members], min(left_s, ASK_S))
        ]
        control = self._host.node.control
        vts = {stream: min(one.get(stream, 0) for one in closed) for stream in control.streams}
        sn = stable_sn(control, vts)
        left_s = max(0.001, deadline - time.monotonic())
        fields = {"tick": sn.tick, "minor": sn.minor, "timeout_s": left_s}
        self._peers.ask([(node, Packet(SETTLE, fields)) for node in members], left_s + 1)

    def handlers(self) -> dict[str, Any]:
        return {CLOSED: self._closed, SETTLE: self._settle}

    def _closed(self, _: Packet) -> Packet:
        return Packet(CLOSED, {"vts": dict(self._host.node.vts)})

    def _settle(self, packet: Packet) -> Packet:
        tick, minor, timeout_s = (packet.fields.get(name) for name in ("tick", "minor", "timeout_s"))
        if type(tick) is not int or type(minor) is not int or not isinstance(timeout_s, float | int):
            raise DataError(f"{SETTLE}: expected tick, minor and timeout_s, found {dict(packet.fields)!r}")
        deadline = time.monotonic() + timeout_s
        self._store.wait_for(Sn(tick, minor), timeout_s)
        self._store.injector.settle(max(0.001, deadline - time.monotonic()))
        return Packet(SETTLE)


def _vts(answer: Packet) -> dict[str, int]:
    found = answer.fields.get("vts")
    if not isinstance(found, dict) or not all(type(batch) is int for batch in found.values()):
        raise DataError(f"{CLOSED}: expected the last stream batch of each stream, found {found!r}")
    return found
