"""Settling: waits until what all nodes have closed is visible on all of them, and all windows due are reported."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from wukongs.cluster.feeding import index_of
from wukongs.cluster.host import Host
from wukongs.cluster.intake import INSTALLED_S
from wukongs.cluster.members import ask_members, left_s, members_of
from wukongs.cluster.node_store import NodeStore
from wukongs.errors import DataError, NodeUnavailable, StreamError
from wukongs.protocol.followed import to_follow
from wukongs.protocol.records import Role, Sn, Vts
from wukongs.protocol.snapshots import late_batches, stable_sn, tick_for
from wukongs.protocol.state import Node
from wukongs.protocol.waiting import wanted_of_streams
from wukongs.wire.packet_columns import timeout_of
from wukongs.wire.packets import Packet, Peers

CLOSED = "closed"
SETTLE = "settle"
FOREVER_S = 1e9
ASK_S = 30.0
RECORD_S = 2.0
"""How long a node waits for the records of what it has taken in before it lets itself be asked again."""
TELL_S = 1.0
"""How much longer than the others who has asked them waits, to hear what holds them up."""


Made = tuple[str, int, int | None]
"""A stream that a query makes: its key, its last stream batch that all nodes have closed, and its end."""


class Settling:
    """The settling of one node: asks the others, and answers them."""

    def __init__(self, host: Host, store: NodeStore, peers: Peers) -> None:
        self._host, self._store, self._peers = host, store, peers

    def settle(self, timeout_s: float | None) -> None:
        """Raises NodeUnavailable (a node is away, or timeout_s passes first), StreamError (that of one node; called
        from on_result)."""
        if self._store.injector.is_on_result:
            raise StreamError("settle() called from on_result would wait for itself: call it from another thread")
        deadline = time.monotonic() + (FOREVER_S if timeout_s is None else timeout_s)
        before: list[Made] = []
        while before != (before := self._settle_all(deadline)):
            pass  # what queries have made meanwhile is to be read, too

    def _settle_all(self, deadline: float) -> list[Made]:
        """Settle what is closed now; return how far the streams are that queries make."""
        members = sorted(members_of(self._host))
        asked = dict.fromkeys(members, Packet(CLOSED))
        answers = ask_members(self._host, self._peers, asked, min(left_s(deadline), ASK_S))
        closed = [_vts(answer) for answer in answers.values()]
        self._host.wait_for_record(max(map(index_of, answers.values())), left_s(deadline))
        vts = {stream: min(one.get(stream, 0) for one in closed) for stream in self._host.node.control.streams}
        what = "the record that shows what a late stream has brought, or what follows by rules"
        node = self._host.wait_until(partial(_shows_all, vts), left_s(deadline), what)
        sn = stable_sn(node.control, vts)
        while True:
            seconds = min(left_s(deadline), ASK_S)  # nobody is kept busy for somebody who may be gone by then
            packet = Packet(SETTLE, {"tick": sn.tick, "minor": sn.minor, "timeout_s": seconds, "vts": vts})
            try:
                ask_members(self._host, self._peers, dict.fromkeys(members, packet), seconds + TELL_S)
                made = [one for one in node.control.live_streams if one.is_made]
                return [(one.key, vts.get(one.key, 0), one.last_batch) for one in made]
            except StreamError:
                if time.monotonic() >= deadline:
                    raise

    def handlers(self) -> dict[str, Any]:
        return {CLOSED: self._closed, SETTLE: self._settle}

    def _closed(self, _: Packet) -> Packet:
        self._host.wait_until_installed(INSTALLED_S)
        self._host.wait_for_what_it_had(RECORD_S)
        self._store.begin_views()
        # A pipeline waits for no record: until the log has it, no SN covers what it has brought. A stream that was
        # dropped holds the others back until the log says where it ended.
        what = "the record that a stream has begun, or has ended"
        node = self._host.wait_until(
            lambda node: (
                not wanted_of_streams(node) and not any(stream.is_dropped for stream in node.control.live_streams)
            ),
            RECORD_S,
            what,
        )
        return Packet(CLOSED, {"vts": dict(node.vts), "index": node.control.index})

    def _settle(self, packet: Packet) -> Packet:
        tick, minor, timeout_s = packet.fields.get("tick"), packet.fields.get("minor"), timeout_of(packet)
        if type(tick) is not int or type(minor) is not int:
            raise DataError(f"{SETTLE}: expected tick and minor, found {dict(packet.fields)!r}")
        if packet.fields.get("is_seen") and self._host.node.role is not Role.IN:
            raise NodeUnavailable(f"node {self._host.me.node} is not in sync: it answers no reads")
        deadline = time.monotonic() + timeout_s
        self._store.wait_for(Sn(tick, minor), timeout_s)
        if not packet.fields.get("is_seen"):
            self._store.wait_for_streams(_vts(packet), left_s(deadline))
            self._store.injector.settle(left_s(deadline))
            self._store.views.settle(left_s(deadline))
            self._store.injector.settle(left_s(deadline))  # what views have given the streams that they make
        return Packet(SETTLE)


def seen_packet(sn: Sn, timeout_s: float) -> Packet:
    """Return the question whether reads at an in-sync node see an SN, which is answered once they do."""
    return Packet(SETTLE, {"tick": sn.tick, "minor": sn.minor, "timeout_s": timeout_s, "is_seen": True})


def _shows_all(vts: Vts, node: Node) -> bool:
    control = node.control
    return not late_batches(control, vts, tick_for(control, vts)) and not to_follow(control, vts)


def _vts(answer: Packet) -> dict[str, int]:
    found = answer.fields.get("vts")
    if not isinstance(found, dict) or not all(type(batch) is int for batch in found.values()):
        raise DataError(f"{CLOSED}: expected the last stream batch of each stream, found {found!r}")
    return found
