"""Building a node's share of a load or update while its record is still to come: threads sort and index the rows, and
compare them with what is stored. The record then only has to seal it, so neither the protocol nor firings wait for a
large change. An engine without other nodes does the same (live/bulk_load.py, live/update.py).

Small changes are put in order when their record takes effect. So are shares of which other nodes have kept a part for
this one, and updates whose snapshot this node does not hold, after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from wukongs.live.core import Core, expect
from wukongs.query.terms.names import graph_term
from wukongs.store.batch import Batch
from wukongs.store.bulk import RunStack, build_run
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.graph_change import GraphChange
from wukongs.store.quads import joined, without_held
from wukongs.store.tombstones import Difference
from wukongs.store.trace import Handle

RUN_ROWS = 1 << 21
"""A thread sorts so many rows at a time."""
APART_ROWS = 1 << 16
"""A share with fewer rows, that clears no graph, is not built ahead."""


@dataclass(frozen=True, slots=True)
class BuiltLoad:
    """A share that only adds. whole: its triples; come: those that the graph did not hold at the SN of `known`."""

    come: Batch
    whole: Batch
    known: Handle

    def seal(self, core: Core, sn: int) -> Difference:
        come = core.arrangement.absorb_batch(sn, self.come, self.known, self.whole, fuel=0)
        self.known.close()
        return Difference(come, None)

    def close(self) -> None:
        self.known.close()


@dataclass(frozen=True, slots=True)
class BuiltUpdate:
    """A share of which triples go. change: as of the snapshot that the update has read; come: what it adds."""

    come: Batch
    change: GraphChange
    read_sn: int

    def seal(self, core: Core, sn: int) -> Difference:
        difference, _ = core.arrangement.beside(self.change, self.read_sn)
        core.arrangement.apply_difference(sn, difference, fuel=0)
        core.arrangement.give_up(self.come)
        return difference

    def close(self) -> None:
        pass


Built: TypeAlias = BuiltLoad | BuiltUpdate
Columns: TypeAlias = tuple[Int64Array, Int64Array, Int64Array, Int64Array]


class Building:
    """The share of one change. Calls are serialised by the lock of `core`. graph: the id of the graph of tuples without
    one of their own; tell: is called, with the lock, once it is built."""

    def __init__(self, core: Core, pool: ThreadPoolExecutor, graph: int, tell: Callable[[], object]) -> None:
        self._core, self._pool, self._graph, self._tell = core, pool, graph, tell
        self._coming: list[Encoded] = []
        self._going: list[Encoded] = []
        self._row_count = 0
        self._runs: list[Future[Batch]] = []
        self._run_count = self._run_rows = 0
        """How many of the chunks that come are in runs, and how many rows are."""
        self._built: Future[Built] | None = None
        self._is_given_up = False

    def add(self, chunk: Encoded, goes: bool) -> None:
        """Take in tuples whose terms were agreed on. goes: whether they go, before others come."""
        (self._going if goes else self._coming).append(chunk)
        self._row_count += len(chunk)
        if self._row_count - self._run_rows >= RUN_ROWS and not self._going:
            self._begin_run()

    def finish(self, read: Handle | None, cleared: Sequence[str | None]) -> bool:
        """Begin to compare the share, which has arrived, with what is stored. Return whether it is built at all.

        read, cleared: the snapshot that an update has read, and the graphs that it empties first (None: the default
        graph)."""
        if self._built is not None:
            return True
        if not cleared and self._row_count < APART_ROWS:
            return False
        if not (self._going or cleared):
            self._begin_run()
            self._built = self._pool.submit(self._build_load, self._runs)
        elif read is not None and read.is_open:
            graphs = [self._core.graph_id(None if one is None else graph_term(one)) for one in cleared]
            change = GraphChange(read.read())
            self._built = self._pool.submit(self._build_update, change, graphs, read.sn)
        else:
            return False
        self._built.add_done_callback(self._is_done)
        return True

    def is_built(self) -> bool:
        """Whether `built` returns at once."""
        return self._built is not None and self._built.done()

    def built(self, timeout_s: float | None = None) -> Built:
        """Wait for it, without the lock. Raises what building has raised, TimeoutError."""
        assert self._built is not None, "it was not finished"
        return self._built.result(timeout_s)

    def give_up(self) -> None:
        """Let go of what was built, now or when it is."""
        self._is_given_up = True
        if self.is_built():
            self._let_go()

    def _begin_run(self) -> None:
        coming = self._coming[self._run_count :]
        if coming:
            self._run_count, self._run_rows = len(self._coming), self._row_count
            self._runs.append(self._pool.submit(self._build_run, coming))

    def _build_run(self, coming: Sequence[Encoded]) -> Batch:
        confirmed = (self._core.registry.confirm(chunk)[0] for chunk in coming)
        return build_run([(one.graphs, one.subjects, one.predicates, one.objects) for one in confirmed], self._graph)

    def _build_load(self, runs: list[Future[Batch]]) -> Built:
        stack, core = RunStack(), self._core
        for run in runs:  # they were begun before
            stack.add(run.result())
        whole = stack.to_batch()
        with core.lock:
            known = core.arrangement.open(core.sn, "a load")
        come = without_held(whole, known.read())
        expect(core, come)
        core.merger.catch_up()
        return BuiltLoad(come, whole, known)

    def _build_update(self, change: GraphChange, cleared: Sequence[int], read_sn: int) -> Built:
        change.clear(cleared)
        change.delete(joined([self._columns(chunk) for chunk in self._going]))
        change.insert(joined([self._columns(chunk) for chunk in self._coming]))
        come, _ = change.difference()
        expect(self._core, come)
        self._core.merger.catch_up()
        return BuiltUpdate(come, change, read_sn)

    def _columns(self, chunk: Encoded) -> Columns:
        one = self._core.registry.confirm(chunk)[0]
        return np.where(one.graphs == UNBOUND, self._graph, one.graphs), one.subjects, one.predicates, one.objects

    def _is_done(self, _: Future[Built]) -> None:
        with self._core.lock:
            if self._is_given_up:
                self._let_go()
            self._tell()

    def _let_go(self) -> None:
        if self._built is not None and self._built.exception() is None:
            built, self._built = self._built.result(), None
            built.close()
            self._core.arrangement.give_up(built.come)


def seal(core: Core, sn: int, built: Built, later: Callable[[Callable[[], object]], object]) -> Difference:
    """Make a change that was built count at a new snapshot number; return what has changed. Called with the lock held.
    later: has a function called without it."""
    core.revoke_old_handles()
    difference = built.seal(core, sn)
    core.pass_to(sn + 1)
    count = sum(difference.counts)
    later(lambda: core.merger.owe(count))
    return difference
