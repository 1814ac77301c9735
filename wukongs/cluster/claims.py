"""Claims: new terms are shown to the nodes that replicate their shards before anything with them is sealed, many at a
time: what nobody refuses is confirmed, and the log re-encodes the rest (wukongs/protocol/terms.py). So what a host
tells the protocol of has no unknown terms any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np

from wukongs.cluster.agreed_terms import AgreedTerms
from wukongs.cluster.host import Dropped, Host
from wukongs.cluster.members import left_s
from wukongs.cluster.node_store import NodeStore
from wukongs.errors import DataError, NodeUnavailable
from wukongs.protocol import events as ev
from wukongs.protocol.control import Control
from wukongs.protocol.membership import may_agree
from wukongs.protocol.records import ReEncode
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.encoded import TermTable
from wukongs.store.encoder import encode_texts
from wukongs.wire.assignment import shards_of
from wukongs.wire.packets import Packet, Peers

CLAIM = "claim"
RETRY_S = 0.02
_TYPES = ["int64", "int64", "uint8"]
ROUND_S = 10.0
TIMEOUT_S = 30.0


class Claims:
    """Of one node: asks for its own new terms, and answers others."""

    def __init__(self, host: Host, store: NodeStore, peers: Peers) -> None:
        self._host, self._store, self._peers = host, store, peers
        self._lock = threading.Lock()
        self._agreed = AgreedTerms()
        self._by_nodes: tuple[object, dict[int, BoolArray]] | None = None

    def settle(self, table: TermTable, timeout_s: float = TIMEOUT_S) -> int:
        """Return when every term is confirmed by all replicas of its shard, or re-encoded; return the view under which
        it was. ids of the table: the hashes, also where texts clash.

        Raises NodeUnavailable (no answer under one view within timeout_s seconds)."""
        deadline = time.monotonic() + timeout_s
        while True:
            control = self._host.node.control
            why = "nodes come and go"
            try:
                asked = self._agreed.unknown(table, control.view)
                round_ends = min(deadline, time.monotonic() + ROUND_S)
                refused = self._ask(asked, control, round_ends) if len(asked) else []
                if refused is not None and self._re_encoded(refused, control.view, deadline):
                    self._agreed.add(asked, control.view)
                    return control.view
            except NodeUnavailable as error:  # who does not answer is perhaps taken out before the deadline
                why = str(error)
            self._host.check()
            if time.monotonic() >= deadline:
                raise NodeUnavailable(
                    f"node {self._peers.me}: {len(table)} new terms could not be agreed on within {timeout_s:g} s: "
                    f"{why}"
                )
            time.sleep(RETRY_S)  # until all know of the same members

    def settle_texts(self, texts: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
        """As settle, of canonical forms."""
        self.settle(self._store.new_terms(encode_texts(texts, self._store.core.settings.hash_bits)), timeout_s)

    def keep(self, texts: Sequence[str]) -> Int64Array:
        """Make terms that stored triples are to hold known in the whole cluster; return their ids. int64[n]"""
        self.settle_texts(texts)
        return self._store.core.registry.keep_all(texts)

    def _re_encoded(self, texts: list[str], view: int, deadline: float) -> bool:
        """Let the log give refused texts ids of their own; return whether that was done under this view."""
        for text in texts:
            if text not in self._host.node.control.exceptions:
                try:
                    self._host.submit(ev.Submitted(ReEncode(text, view)), left_s(deadline))
                except Dropped:  # somebody else has asked for the same, or there is another view
                    continue
        control = self._host.node.control
        return control.view == view and all(text in control.exceptions for text in texts)

    def _ask(self, table: TermTable, control: Control, deadline: float) -> list[str] | None:
        """Return the texts that some replica refuses; None if one of them has another view than `control`."""
        view, shards = control.view, shards_of(table.ids)
        by_node = ((node, np.flatnonzero(claimed[shards])) for node, claimed in self._claimed_by_nodes(control).items())
        asked = [(node, rows) for node, rows in by_node if len(rows)]
        packets = [(node, _packet(table.take(rows), view)) for node, rows in asked]
        answers = self._peers.ask(packets, left_s(deadline))
        refused = np.zeros(len(table), np.bool_)
        for (_, rows), answer in zip(asked, answers, strict=True):
            if answer.fields.get("view") != view:
                return None
            refused[rows] |= ~_mask(answer, len(rows))
        return table.take(np.flatnonzero(refused)).texts()

    def _claimed_by_nodes(self, control: Control) -> dict[int, BoolArray]:
        """Return, for each node, which shards' terms it has to agree to. bool[1024]"""
        known = self._by_nodes
        if known is None or known[0] is not control.members:
            claimers = [control.claimers(shard) for shard in range(len(control.shards))]
            found = {
                node: np.array([node in nodes for nodes in claimers], np.bool_)
                for node in sorted(frozenset[int]().union(*claimers))
            }
            known = self._by_nodes = control.members, found
        return known[1]

    def answer(self, packet: Packet) -> Packet:
        """Handler of CLAIM: compare terms with what is held here under their hashes, and keep new ones."""
        node = self._host.node
        view = packet.fields.get("view")
        if view != node.control.view or not may_agree(node.control, node.stay, node.me):
            return Packet(CLAIM, {"view": None})
        table = _table(packet)
        with self._lock:
            equal = self._store.compare_terms(table)
        if view != self._host.node.control.view:
            # Who has come since has perhaps asked for the terms here before these were among them.
            return Packet(CLAIM, {"view": None})
        return Packet(CLAIM, {"view": view}, {"equal": equal})


def _packet(table: TermTable, view: int) -> Packet:
    return Packet(CLAIM, {"view": view}, {"ids": table.ids, "offsets": table.offsets, "text": table.text})


def _table(packet: Packet) -> TermTable:
    """Return the terms of a claim. Raises DataError: kernels go by these offsets."""
    ids, offsets, text = (packet.arrays.get(name) for name in ("ids", "offsets", "text"))
    is_typed = [None if array is None else array.dtype.name for array in (ids, offsets, text)] == _TYPES
    table = TermTable(ids, offsets, text)  # type: ignore[arg-type]
    if not is_typed or not table.is_divided or (table.ids <= 0).any():
        raise DataError(f"{CLAIM}: expected a text for each hash, found something else")
    return table


def _mask(answer: Packet, count: int) -> BoolArray:
    found = answer.arrays.get("equal")
    if found is None or found.dtype != np.bool_ or len(found) != count:
        raise NodeUnavailable(f"a node answered a claim of {count} terms with something else: is it of this version?")
    return found  # type: ignore[return-value]
