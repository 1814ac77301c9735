"""The side of a node that answers others: what its own trace holds at a snapshot, of the shards it answers for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from wukongs.cluster.reads.requests import (
    CHANGED,
    CHANGED_MAX,
    GRAPHS,
    KINDS,
    NODES,
    RESOLVE,
    ROWS_PER_ANSWER,
    RUN,
    TEXTS,
    TRIPLES,
    StepsRun,
    columns_packet,
    parts_in,
    rows_packet,
    shards_in,
)
from wukongs.cluster.reads.share_run import laid_out_parts, run_share
from wukongs.errors import BudgetExceeded, NodeUnavailable
from wukongs.incremental import versions
from wukongs.live.core import Core
from wukongs.query.limits import Limits
from wukongs.query.memory import budget_of
from wukongs.query.paths.path_machine import any_links_over
from wukongs.query.paths.path_search import Search
from wukongs.query.plans import plan_layout as layout
from wukongs.query.rows import stable_order
from wukongs.store.batch_set import BatchSet
from wukongs.store.dictionary import split_texts
from wukongs.store.dtypes import NO_MATCH, UNBOUND, BoolArray, Int64Array
from wukongs.store.quads import Quads, joined, taken
from wukongs.store.term_registry import distinct_terms
from wukongs.store.trace import TraceEntry
from wukongs.wire.answering import Quick, at_once
from wukongs.wire.assignment import SHARD_COUNT, shards_of
from wukongs.wire.packet_columns import column_of, count_of, ids_of, texts_in, timeout_of
from wukongs.wire.packets import Array, Handler, Packet

ANSWERED = (RUN, NODES, GRAPHS, TRIPLES, TEXTS, RESOLVE, CHANGED)
"""The kinds that `handlers` answers."""
WaitForSn = Callable[[int, float], None]
"""(sn, timeout_s): returns once this node's trace has come to an SN. Raises NodeUnavailable if that takes longer."""
TEXT_BYTES_PER_ANSWER = 1 << 26
"""Texts beyond so many bytes are left for the next question."""
QUICK_LENGTH, QUICK_ROWS, QUICK_TEXT_BYTES = 64, 1024, 1 << 13
"""So few rows or ids come to an answer at once, if it has no more than so many rows. Texts go with so many cells, as
far as they have so many bytes."""


def handlers(core: Core, wait_for_sn: WaitForSn) -> tuple[dict[str, Handler], dict[str, Quick]]:
    """Return the handlers of the reads of other nodes: kind of a packet -> its handler; and those that wait for nothing
    and give a short answer at once, or none. They may be called from any thread, several at a time, without the core's
    lock.

    Each raises DataError for a packet that is not what its kind says; those with an SN raise NodeUnavailable (not
    there within the asker's time), CompactedError, QueryTimeout and BudgetExceeded."""
    owner = Owner(core, wait_for_sn)
    return {
        RUN: owner.run,
        NODES: owner.graphs_of_nodes,
        GRAPHS: owner.graph_names,
        TRIPLES: owner.triples,
        TEXTS: owner.texts,
        RESOLVE: owner.resolve,
        CHANGED: owner.changed,
    }, {RUN: at_once(owner.run_quickly), TEXTS: at_once(owner.texts_quickly)}


class Owner:
    """One node's own trace and dictionaries, as others ask for them."""

    def __init__(self, core: Core, wait_for_sn: WaitForSn) -> None:
        self._core = core
        self._wait_for_sn = wait_for_sn

    def run(self, packet: Packet) -> Packet:
        """Run steps; see run_share."""
        asked = StepsRun.of(packet)
        limits = self._limits(asked.rows_max, asked.timeout_s)
        with self._read(asked.sn, asked.timeout_s) as stored, limits:
            columns, length, counts = run_share(asked, stored, self._core.default_graph, limits)
        if asked.rows_wanted is not None:
            length = min(length, asked.rows_wanted)
            columns = tuple(column[:length] for column in columns)
        if length <= ROWS_PER_ANSWER and not asked.skip:
            return rows_packet(columns, length, False, counts, self._texts_with(asked, columns, length))
        # A page of an order that is the same at each question, however batches have been merged in between.
        order = stable_order(columns)[asked.skip : asked.skip + ROWS_PER_ANSWER]
        more = asked.skip + len(order) < length
        return rows_packet([column[order] for column in columns], len(order), more, counts, {})

    def run_quickly(self, packet: Packet) -> Packet | None:
        """Do what run does, if that takes no longer than waking another thread. The lock is held meanwhile: taking it
        once more could take long."""
        asked = StepsRun.of(packet)
        if asked.length > QUICK_LENGTH or asked.rows_wanted is not None or asked.skip or _is_long(asked.plan.steps):
            return None
        core, limits = self._core, self._limits(min(asked.rows_max, QUICK_ROWS), asked.timeout_s)
        if not core.lock.acquire(blocking=False):
            return None
        try:
            with self._read(asked.sn, 0.0) as stored, limits:
                columns, length, counts = run_share(asked, stored, core.default_graph, limits)
        except (BudgetExceeded, NodeUnavailable):  # there are more rows, or the SN is not there yet
            return None
        finally:
            core.lock.release()
        return rows_packet(columns, length, False, counts, self._texts_with(asked, columns, length))

    def graphs_of_nodes(self, packet: Packet) -> Packet:
        """Tell, for each (node, graph or -1 for any), in which graphs of some parts the node stands."""
        nodes = ids_of(packet, "nodes")
        graphs: Int64Array = column_of(packet, "graphs", np.int64, len(nodes))
        parts, timeout_s = parts_in(packet), timeout_of(packet)
        limits = self._limits(count_of(packet, "rows_max"), timeout_s)
        with self._read(count_of(packet, "sn"), timeout_s) as stored, limits:
            source = any_links_over(
                bool(packet.fields.get("named")), laid_out_parts(parts, stored), stored, self._core.default_graph
            )
            found = Search(source, limits).graphs(nodes, graphs, False)
        return columns_packet(NODES, [found[:, 0].copy(), found[:, 1].copy()], rows=len(found))

    def graph_names(self, packet: Packet) -> Packet:
        """Name the graphs with a triple that this node sees; if the packet names some, of these alone."""
        with self._read(count_of(packet, "sn"), timeout_of(packet)) as stored:
            found = stored.graphs
        if "among" in packet.arrays:
            found = np.intersect1d(found, ids_of(packet, "among"))
        return Packet(GRAPHS, {}, {"graphs": found})

    def triples(self, packet: Packet) -> Packet:
        """Give the triples of a graph whose subjects are in some shards, from shard `first` on; `next`: the first
        shard that there was no room for."""
        graph, first, shards = count_of(packet, "graph"), count_of(packet, "first", SHARD_COUNT), shards_in(packet)
        shards = shards & (np.arange(SHARD_COUNT) >= first)
        limits = self._limits(self._core.settings.rows_max, timeout_of(packet))
        with self._read(count_of(packet, "sn"), timeout_of(packet)) as stored, limits:
            counts = np.zeros(SHARD_COUNT, np.int64)
            for subjects, _, _ in stored.triples(graph):
                limits.check()
                counts += np.bincount(shards_of(subjects), minlength=SHARD_COUNT)
            totals = np.cumsum(np.where(shards, counts, 0))
            fitting = int(np.searchsorted(totals, ROWS_PER_ANSWER, side="right"))
            stop = fitting if fitting == SHARD_COUNT or totals[max(fitting - 1, 0)] > 0 else fitting + 1
            shards[stop:] = False
            parts = []
            for subjects, predicate, objects in stored.triples(graph):
                limits.check()
                rows = np.flatnonzero(shards[shards_of(subjects)])
                parts.append((subjects[rows], np.full(len(rows), predicate, np.int64), objects[rows]))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.empty(0, np.int64)] * 3
        return columns_packet(TRIPLES, columns, rows=len(columns[0]), next=stop)

    def changed(self, packet: Packet) -> Packet:
        """Give the net change between two SNs of the triples whose subjects are in some shards, of some predicates if
        they are named: the first `inserted` rows were inserted, the others deleted. `is_long`: there are too many to be
        given."""
        after_sn, sn, shards = count_of(packet, "after"), count_of(packet, "sn"), shards_in(packet)
        predicates = column_of(packet, "predicates", np.int64) if "predicates" in packet.arrays else None
        self._wait_for_sn(sn, timeout_of(packet))
        core = self._core
        with core.lock:
            core.check_is_open()
            entries = core.arrangement.trace.merged_between(after_sn, sn)
        if (changed := changed_in(entries, shards, predicates)) is None:
            return Packet(CHANGED, {"is_long": True})
        inserted, deleted = changed
        quads = joined([inserted, deleted])
        return columns_packet(CHANGED, quads, rows=len(quads[0]), inserted=len(inserted[0]))

    def texts(self, packet: Packet) -> Packet:
        """Give the texts of those of the ids that this node knows, as many as one answer takes; `done`: how many of
        the ids it has come to."""
        arrays, done = self._texts(ids_of(packet, "ids"), TEXT_BYTES_PER_ANSWER)
        return Packet(TEXTS, {"done": done}, arrays)

    def texts_quickly(self, packet: Packet) -> Packet | None:
        """Do what texts does, for few of them, unless the lock has to be waited for."""
        if len(ids_of(packet, "ids")) > QUICK_LENGTH or not self._core.lock.acquire(blocking=False):
            return None
        try:
            return self.texts(packet)
        finally:
            self._core.lock.release()

    def resolve(self, packet: Packet) -> Packet:
        """Tell by which ids this node knows some texts: UNBOUND for one that it does not know, NO_MATCH for one whose
        id it knows as another's; and whether it knows them for ever."""
        texts = split_texts(*texts_in(packet, count_of(packet, "count")))
        registry = self._core.registry
        ids = registry.resolve_all(texts)
        bound = ids != NO_MATCH
        ids[bound] = np.where(registry.snapshot_reader().contains(ids[bound]), ids[bound], UNBOUND)
        lasting = registry.persistent.contains(np.maximum(ids, 0)) & (ids >= 0)
        return Packet(RESOLVE, {}, {"ids": ids, "lasting": lasting})

    def _texts_with(self, asked: StepsRun, columns: tuple[Int64Array, ...], length: int) -> Mapping[str, Array]:
        """Return the texts of what steps have found, if they are wanted and few."""
        new = columns[asked.plan.bound :]
        if not asked.with_texts or not length or not new or length * len(new) > QUICK_ROWS:
            return {}
        ids = distinct_terms(new)
        return self._texts(ids, QUICK_TEXT_BYTES)[0] if len(ids) else {}

    def _texts(self, ids: Int64Array, bytes_max: int) -> tuple[dict[str, Array], int]:
        """Return the texts of those of the ids that this node knows, as many as so many bytes hold, but one at least;
        and how many of the ids it has come to."""
        with self._core.lock:
            reader = self._core.registry.snapshot_reader()
        known = np.flatnonzero(reader.contains(ids))
        text, offsets = reader.gather(ids[known])
        fitting = max(1, int(np.searchsorted(offsets, bytes_max, side="right")) - 1)
        done = len(ids) if fitting >= len(known) else int(known[fitting])
        known = known[:fitting]
        return {"ids": ids[known], "text": text[: offsets[len(known)]], "offsets": offsets[: len(known) + 1]}, done

    # --- what all need ------------------------------------------------------------------------------------------------

    def _limits(self, rows_max: int, timeout_s: float) -> Limits:
        settings = self._core.settings
        rows = min(rows_max, settings.rows_max)
        budget = budget_of(settings.memory_bytes_max)  # it waits for nobody there: other nodes wait for this one
        return Limits(rows, time.monotonic() + timeout_s, timeout_s, settings.query_bytes_max, budget=budget)

    @contextmanager
    def _read(self, sn: int, timeout_s: float) -> Iterator[BatchSet]:
        """Give the batches of an SN, held meanwhile."""
        self._wait_for_sn(sn, timeout_s)
        core = self._core
        with core.lock:
            core.check_is_open()
            handle = core.arrangement.open(sn, "another node's query")
            stored = handle.read()
        try:
            yield stored
        finally:
            with core.lock:
                handle.close()


def _is_long(steps: Int64Array) -> bool:
    """Whether steps may look at many triples and make few rows of them."""
    return bool((steps[:, layout.KEY_KIND] == layout.NEW).any() or (steps == layout.SAME)[:, KINDS].any())


def changed_in(
    entries: Sequence[TraceEntry], shards: BoolArray, predicates: Int64Array | None
) -> tuple[Quads, Quads] | None:
    """Return the triples with subjects in some shards that entries of a trace insert, and those that they delete; None
    if they are more than CHANGED_MAX. predicates: of these alone; None: of any."""
    if versions.count_of(entries, predicates) > CHANGED_MAX:
        return None
    inserted, deleted = (taken(quads, shards[shards_of(quads[1])]) for quads in versions.net_of(entries, predicates))
    return inserted, deleted
