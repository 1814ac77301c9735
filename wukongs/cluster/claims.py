"""Claims: carries out the protocol's actions about new terms (wukongs/protocol/claims.py). It shows tables of terms to
the nodes that replicate their shards, and compares the tables of others. Long work is done in the caller's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue

import numpy as np

from wukongs.cluster.host import Errand, Host
from wukongs.cluster.members import await_word, left_s
from wukongs.cluster.node_store import NodeStore
from wukongs.errors import DataError, NodeUnavailable
from wukongs.protocol import actions as act
from wukongs.protocol import events as ev
from wukongs.query.limits import current
from wukongs.store.dictionary import Dictionary
from wukongs.store.dictionary_write_kernels import EQUAL
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.encoded import TermTable
from wukongs.store.encoder import encode_texts
from wukongs.wire.assignment import shards_of
from wukongs.wire.packet_columns import count_of, term_arrays, terms_in
from wukongs.wire.packets import Packet, Peers

CLAIM, AGREED = "claim", "agreed"
FIRST_ROUND_S, ROUND_S = 0.5, 10.0
TIMEOUT_S = 30.0
AT_ONCE_MAX, AT_ONCE_BYTES_MAX = 1 << 10, 1 << 18
"""So many terms, with so many bytes of text, are compared in one turn of the protocol's thread."""
TERMS_MAX = 1 << 15
"""When more terms are remembered, all are forgotten."""
TABLE_MAX = 1 << 12
"""Larger tables, those of loads, are not remembered: most of their terms do not come again, and keeping them takes
longer than asking."""


class AgreedTerms:
    """The terms that were agreed on lately. A node does not ask for them again: most terms of a stream come again and
    again, and it holds only those of its own share.

    They are of one view of the members: an agreement under another view may be gone with a disk. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._view = -1
        self._terms = Dictionary()

    def unknown(self, table: TermTable, view: int) -> TermTable:
        """Return the terms that were not agreed on under this view, as far as is remembered. ids: the hashes."""
        with self._lock:
            if view != self._view or not len(self._terms) or not 0 < len(table) <= TABLE_MAX:
                return table
            return table.take(np.flatnonzero(self._terms.compare(table) != EQUAL))

    def add(self, table: TermTable, view: int) -> None:
        """Note that terms were agreed on. If several have one hash, only one is remembered: the log has the others."""
        if not 0 < len(table) <= TABLE_MAX:
            return
        _, firsts = np.unique(table.ids, return_index=True)
        with self._lock:
            if view != self._view or len(self._terms) > TERMS_MAX:
                self._view, self._terms = view, Dictionary()
            self._terms.add(table, firsts)


class Claims:
    """Asks other nodes to agree to new terms, and answers when they ask."""

    def __init__(self, host: Host, store: NodeStore, peers: Peers) -> None:
        self._host, self._store, self._peers = host, store, peers
        self._lock = threading.Lock()
        self._agreed = AgreedTerms()
        self._masks: tuple[object, dict[int, BoolArray]] = None, {}
        """Where claims were asked last; node -> the shards that it replicates there."""

    def settle(self, tables: Sequence[TermTable], timeout_s: float = TIMEOUT_S) -> int:
        """Return when every term is agreed on by all replicas of its shard, or re-encoded; return the view under which
        all of them are. ids of the tables: the hashes, also where texts clash.

        Raises NodeUnavailable (not under one view within timeout_s seconds, or by the deadline of what asks for it)."""
        timeout_s = current().within(timeout_s)
        deadline = time.monotonic() + timeout_s
        while True:
            view = self._host.node.control.view
            asked = [self._agreed.unknown(table, view) for table in tables]
            count = sum(map(len, asked))
            if not count:
                return view
            found = self._settle(TermTable.joined(asked), deadline, timeout_s)
            for table in asked:
                self._agreed.add(table, found)
            if found == view or count == sum(map(len, tables)):
                return found

    def settle_texts(self, texts: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
        """Do what `settle` does, for canonical forms."""
        self.settle([self._store.new_terms(encode_texts(texts, self._store.core.settings.hash_bits))], timeout_s)

    def keep(self, texts: Sequence[str]) -> Int64Array:
        """Make terms that stored triples are to hold known in the whole cluster; return their ids. int64[n]"""
        self.settle_texts(texts)
        return self._store.core.registry.keep_all(texts)

    def _settle(self, table: TermTable, deadline: float, timeout_s: float) -> int:
        """Have a claim settled; return the view under which it was."""
        errands: SimpleQueue[Errand | None] = SimpleQueue()
        shards, me = shards_of(table.ids), self._peers.me
        why, round_s = "nodes come and go", FIRST_ROUND_S

        def carry_out(errand: Errand | None) -> None:
            """In the protocol's thread: agree to a few terms at once, which saves turns."""
            if isinstance(errand, act.AskClaim) and me in errand.nodes:
                mine = np.flatnonzero(self._mask(errand, me)[shards])
                equal = self._compared_at_once(table.take(mine))
                if equal is not None:
                    refused = frozenset(table.take(mine[~equal]).texts())
                    self._host.follow(ev.ClaimAnswered(errand.claim, errand.view, frozenset({me}), refused))
                    errand = replace(errand, nodes=tuple(node for node in errand.nodes if node != me))
                    if not errand.nodes:
                        return
            errands.put(errand)

        with self._host.errand(carry_out) as claim:
            found = frozenset(np.flatnonzero(np.bincount(shards)).tolist())
            self._host.post(ev.ClaimBegun(claim, found))
            try:
                while (asked := self._next(errands, deadline)) is not None:
                    if isinstance(asked, act.SettleClaim):
                        return asked.view
                    assert isinstance(asked, act.AskClaim), asked
                    try:
                        for node in asked.nodes:  # An ask would wait for a dead one longer than it takes to be out.
                            await_word(self._host, node, left_s(deadline))
                        if asked.view < self._host.node.control.view:
                            continue  # Members have changed since: the protocol asks anew.
                        self._ask(asked, table, shards, min(left_s(deadline), round_s))
                    except NodeUnavailable as error:
                        why, round_s = str(error), min(2 * round_s, ROUND_S)
                        self._host.post(ev.ClaimUnanswered(claim, asked.view, frozenset(asked.nodes)))
                if self._is_with_the_log(claim):
                    why = "a majority of the nodes has not agreed to re-encode those of them whose hashes are taken"
                raise NodeUnavailable(
                    f"node {self._peers.me}: {len(table)} new terms could not be agreed on within {timeout_s:g} s: "
                    f"{why}"
                )
            except BaseException:
                self._host.post(ev.ClaimGivenUp(claim))
                raise

    def _next(self, errands: SimpleQueue[Errand | None], deadline: float) -> Errand | None:
        """Return what is to be done next, None if nothing comes in time. Raises as Host.check."""
        with suppress(Empty):
            found = errands.get(timeout=left_s(deadline))
            if found is None:
                self._host.check()
            return found
        return None

    def _is_with_the_log(self, claim: int) -> bool:
        found = self._host.node.claims.get(claim)
        return found is not None and not found.remaining

    def _ask(self, asked: act.AskClaim, table: TermTable, shards: Int64Array, timeout_s: float) -> None:
        """Carry out AskClaim. Raises NodeUnavailable (no answer within timeout_s)."""
        rows = [np.flatnonzero(self._mask(asked, node)[shards]) for node in asked.nodes]
        packets = [
            (node, _packet(table.take(of_node), asked.view)) for node, of_node in zip(asked.nodes, rows, strict=True)
        ]
        answers = self._peers.ask(packets, timeout_s)
        refused, silent = np.zeros(len(table), np.bool_), set[int]()
        for node, of_node, answer in zip(asked.nodes, rows, answers, strict=True):
            if answer.fields.get("view") == asked.view:
                refused[of_node] |= ~_equal(answer, len(of_node))
            else:
                silent.add(node)
        told = frozenset(asked.nodes) - silent
        texts = frozenset(table.take(np.flatnonzero(refused)).texts())
        if told:
            self._host.post(ev.ClaimAnswered(asked.claim, asked.view, told, texts))
        if silent:
            self._host.post(ev.ClaimUnanswered(asked.claim, asked.view, frozenset(silent)))

    def _compared_at_once(self, table: TermTable) -> BoolArray | None:
        """Compare terms in the protocol's thread; None if they are many or long, if others are compared now, or if it
        fails. Then the thread that waits compares them: an error is told there, and does not end the node."""
        is_much = len(table) > AT_ONCE_MAX or len(table.text) > AT_ONCE_BYTES_MAX
        if is_much or not self._lock.acquire(blocking=False):
            return None
        try:
            return self._compared(table)
        except Exception:
            return None
        finally:
            self._lock.release()

    def _compared(self, table: TermTable) -> BoolArray:
        """Compare terms with those that are stored, and write newly agreed ones to the disk."""
        before = len(self._store.claims)
        equal = self._store.compare_terms(table)
        if len(self._store.claims) > before:
            self._host.disk.add(Packet(AGREED, {}, term_arrays(table.take(np.flatnonzero(equal)))))
        return equal

    def _mask(self, asked: act.AskClaim, node: int) -> BoolArray:
        """Tell which shards a node replicates where a claim is asked."""
        known = self._masks
        if known[0] is not asked.shards:
            known = self._masks = asked.shards, {}
        if node not in known[1]:
            known[1][node] = np.array([node in nodes for nodes in asked.shards])
        return known[1][node]

    def answer(self, packet: Packet) -> Packet:
        """Handler of CLAIM: compare terms with what is held here under their hashes, and keep new ones."""
        view, table, deadline = count_of(packet, "view"), _table(packet), time.monotonic() + TIMEOUT_S
        errands: SimpleQueue[Errand | None] = SimpleQueue()
        found: list[BoolArray] = []

        def carry_out(errand: Errand | None) -> None:
            """In the protocol's thread: compare a few terms at once, which saves a turn."""
            equal = self._compared_at_once(table) if isinstance(errand, act.CompareTerms) else None
            if equal is None:
                errands.put(errand)
            else:
                found.append(equal)
                self._host.follow(ev.TermsCompared(question, view))

        with self._host.errand(carry_out) as question:
            self._host.post(ev.ClaimReceived(question, view))
            asked = self._next(errands, deadline)
            if isinstance(asked, act.CompareTerms):
                with self._lock:
                    found.append(self._compared(table))
                self._host.post(ev.TermsCompared(question, view))
                asked = self._next(errands, deadline)
        if isinstance(asked, act.AnswerClaim) and asked.view is not None:
            return Packet(CLAIM, {"view": asked.view}, {"equal": found[0]})
        return Packet(CLAIM, {"view": None})


def _packet(table: TermTable, view: int) -> Packet:
    return Packet(CLAIM, {"view": view}, term_arrays(table, ""))


def _table(packet: Packet) -> TermTable:
    """Return the terms of a claim. Raises DataError: kernels go by these offsets."""
    table = terms_in(packet, "")
    if (table.ids <= 0).any():
        raise DataError(f"{CLAIM}: expected hashes of terms, found {table.ids.min()}")
    return table


def _equal(answer: Packet, count: int) -> BoolArray:
    found = answer.arrays.get("equal")
    if found is None or found.dtype != np.bool_ or len(found) != count:
        raise NodeUnavailable(f"a node answered a claim of {count} terms with something else: is it of this version?")
    return found  # type: ignore[return-value]
