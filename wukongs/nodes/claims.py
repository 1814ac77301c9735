"""Claims: new terms are shown to the nodes that replicate their shards before anything with them is sealed, many at a
time: what nobody refuses is confirmed, and the log re-encodes the rest (wukongs/protocol/terms.py). So what a host
tells the protocol of has no unknown terms any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np

from store.dtypes import BoolArray, Int64Array
from store.encoded import TermTable
from store.quad_terms import encode_texts
from wukongs.errors import NodeUnavailable
from wukongs.nodes.host import Dropped, Host
from wukongs.nodes.node_store import NodeStore
from wukongs.protocol import events as ev
from wukongs.protocol.membership import may_agree
from wukongs.protocol.records import ReEncode
from wukongs.wire.assignment import shards_of
from wukongs.wire.packets import Packet, Peers

CLAIM = "claim"
RETRY_S = 0.02
TIMEOUT_S = 30.0


class Claims:
    """Of one node: asks for its own new terms, and answers others."""

    def __init__(self, host: Host, store: NodeStore, peers: Peers) -> None:
        self._host, self._store, self._peers = host, store, peers
        self._lock = threading.Lock()

    def settle(self, table: TermTable, timeout_s: float = TIMEOUT_S) -> int:
        """Return when every term is confirmed by all replicas of its shard, or re-encoded; return the view under which
        it was. ids of the table: the hashes, also where texts clash.

        Raises NodeUnavailable (no answer under one view within timeout_s seconds)."""
        deadline = time.monotonic() + timeout_s
        while True:
            control = self._host.node.control
            refused = self._ask(table, control.view, deadline) if len(table) else []
            if refused is not None and self._re_encoded(refused, control.view, deadline):
                return control.view
            if time.monotonic() >= deadline:
                raise NodeUnavailable(
                    f"node {self._peers.me}: {len(table)} new terms could not be agreed on within {timeout_s:g} s, "
                    "since nodes come and go: try again"
                )
            time.sleep(RETRY_S)  # until all know of the same members

    def settle_texts(self, texts: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
        """As settle, of canonical forms."""
        self.settle(self._store.new_terms(encode_texts(texts, self._store.core.settings.hash_bits)), timeout_s)

    def _re_encoded(self, texts: list[str], view: int, deadline: float) -> bool:
        """Let the log give refused texts ids of their own; return whether that was done under this view."""
        for text in texts:
            if text not in self._host.node.control.exceptions:
                try:
                    self._host.submit(ev.Submitted(ReEncode(text, view)), max(0.001, deadline - time.monotonic()))
                except Dropped:  # somebody else has asked for the same, or there is another view
                    continue
        control = self._host.node.control
        return control.view == view and all(text in control.exceptions for text in texts)

    def _ask(self, table: TermTable, view: int, deadline: float) -> list[str] | None:
        """Return the texts that some replica refuses; None if one of them has another view."""
        control = self._host.node.control
        shards = shards_of(table.ids)
        claimers = [control.claimers(shard) for shard in range(len(control.shards))]
        asked: list[tuple[int, Int64Array]] = []
        for node in sorted(frozenset().union(*claimers)):
            is_claimer = np.array([node in nodes for nodes in claimers], np.bool_)
            rows = np.flatnonzero(is_claimer[shards])
            if len(rows):
                asked.append((node, rows))
        packets = [(node, _packet(table.take(rows), view)) for node, rows in asked]
        answers = self._peers.ask(packets, max(0.001, deadline - time.monotonic()))
        refused = np.zeros(len(table), np.bool_)
        for (_, rows), answer in zip(asked, answers, strict=True):
            if answer.fields.get("view") != view:
                return None
            refused[rows] |= ~_mask(answer, len(rows))
        return table.take(np.flatnonzero(refused)).texts()

    def answer(self, packet: Packet) -> Packet:
        """Handler of CLAIM: compare terms with what is held here under their hashes, and keep new ones."""
        node = self._host.node
        view = packet.fields.get("view")
        if view != node.control.view or not may_agree(node.control, node.stay, node.me):
            return Packet(CLAIM, {"view": None})
        ids, offsets, text = (packet.arrays[name] for name in ("ids", "offsets", "text"))
        with self._lock:
            equal = self._store.compare_terms(TermTable(ids, offsets, text))  # type: ignore[arg-type]
        return Packet(CLAIM, {"view": view}, {"equal": equal})


def _packet(table: TermTable, view: int) -> Packet:
    return Packet(CLAIM, {"view": view}, {"ids": table.ids, "offsets": table.offsets, "text": table.text})


def _mask(answer: Packet, count: int) -> BoolArray:
    found = answer.arrays.get("equal")
    if found is None or found.dtype != np.bool_ or len(found) != count:
        raise NodeUnavailable(f"a node answered a claim of {count} terms with something else: is it of this version?")
    return found  # type: ignore[return-value]
