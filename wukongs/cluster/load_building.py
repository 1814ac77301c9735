"""Building a node's share of a load while the rest of it is still being sent: threads sort and index what has come, and
compare it with what is stored. The record of the load then only has to seal it, so neither the protocol nor firings
wait for a large load. An engine without other nodes does the same with a file (live/bulk_load.py).

Small loads and updates are put in order when their record takes effect, and so are shares of which other nodes have
kept a part for this one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from wukongs.live.core import Core, expect
from wukongs.store.batch import Batch
from wukongs.store.bulk import RunStack, build_run
from wukongs.store.encoded import Encoded
from wukongs.store.quads import without_held
from wukongs.store.trace import Handle

RUN_ROWS = 1 << 22
"""A thread sorts so many rows at a time."""
APART_ROWS = 1 << 16
"""A share with fewer is not built ahead."""


@dataclass(frozen=True, slots=True)
class BuiltLoad:
    """whole: the triples of a share; batch: those that the graph did not hold at the SN of `known`."""

    batch: Batch
    whole: Batch
    known: Handle


class LoadBuilding:
    """The share of one load. Calls are serialised by the lock of `core`. graph: the id of the graph of tuples without
    one of their own; tell: is called, with the lock, once it is built."""

    def __init__(self, core: Core, pool: ThreadPoolExecutor, graph: int, tell: Callable[[], object]) -> None:
        self._core, self._pool, self._graph, self._tell = core, pool, graph, tell
        self._gathered: list[Encoded] = []
        self._row_count = 0
        self._runs: list[Future[Batch]] = []
        self._built: Future[BuiltLoad] | None = None
        self._is_given_up = False

    def add(self, chunk: Encoded) -> None:
        """Take in tuples whose terms were agreed on."""
        self._gathered.append(chunk)
        self._row_count += len(chunk)
        if self._row_count >= RUN_ROWS:
            self._begin_run()

    def finish(self) -> bool:
        """Begin to compare the share with what is stored: nothing more comes. Return whether it is built at all."""
        if not self._runs and self._row_count < APART_ROWS:
            return False
        if self._built is None:
            self._begin_run()
            self._built = self._pool.submit(self._compare, self._runs)
            self._built.add_done_callback(self._is_done)
        return True

    def is_built(self) -> bool:
        """Whether `built` returns at once."""
        return self._built is not None and self._built.done()

    def built(self, timeout_s: float | None = None) -> BuiltLoad:
        """Wait for it, without the lock. Raises what building has raised, TimeoutError."""
        assert self._built is not None, "it was not finished"
        return self._built.result(timeout_s)

    def give_up(self) -> None:
        """Let go of what was built, now or when it is."""
        self._is_given_up = True
        if self.is_built():
            self._let_go()

    def _begin_run(self) -> None:
        if self._gathered:
            gathered, self._gathered, self._row_count = self._gathered, [], 0
            self._runs.append(self._pool.submit(self._run, gathered))

    def _run(self, gathered: list[Encoded]) -> Batch:
        confirmed = (self._core.registry.confirm(chunk)[0] for chunk in gathered)
        return build_run([(one.graphs, one.subjects, one.predicates, one.objects) for one in confirmed], self._graph)

    def _compare(self, runs: list[Future[Batch]]) -> BuiltLoad:
        stack, core = RunStack(), self._core
        for run in runs:  # they were begun before
            stack.add(run.result())
        whole = stack.to_batch()
        with core.lock:
            known = core.arrangement.open(core.sn, "a load")
        batch = without_held(whole, known.read())
        expect(core, batch)
        core.merger.catch_up()
        return BuiltLoad(batch, whole, known)

    def _is_done(self, _: Future[BuiltLoad]) -> None:
        with self._core.lock:
            if self._is_given_up:
                self._let_go()
            self._tell()

    def _let_go(self) -> None:
        if self._built is not None and self._built.exception() is None:
            built, self._built = self._built.result(), None
            built.known.close()
            self._core.arrangement.give_up(built.batch)


def seal(core: Core, sn: int, built: BuiltLoad, later: Callable[[Callable[[], object]], object]) -> None:
    """Add the new triples of a load at a new snapshot number. later: has a function called without the lock, with which
    this is called."""
    core.revoke_old_handles()
    batch = core.arrangement.absorb_batch(sn, built.batch, built.known, built.whole, fuel=0)
    built.known.close()
    core.pass_to(sn + 1)
    later(lambda: core.merger.owe(len(batch)))
