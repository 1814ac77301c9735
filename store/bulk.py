"""Files -> runs: sorted, indexed batches of a file's triples, made by worker threads. The store is only read.

A worker encodes a piece of the file with the kernel that push uses. The caller takes the pieces in order, confirms
their terms and gathers their tuples. As soon as run_rows have come, a worker sorts and indexes them, and the run is
handed out meanwhile. Another thread takes the runs in, one after the other (`InTurn`). Kernels release the GIL, so all
of these run at once.

The data in flight stay below about the plan's bytes, reckoned per row and byte of text.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np

from wukongs.errors import DataError
from wukongs.store.batch import VALUES_MAX, Batch, build_batch
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.encoded import Encoded, MalformedLine
from wukongs.store.merge import listed, merge_runs
from wukongs.store.rdf_files import CHUNK_BYTES, EncodedPiece, Job, RdfReader, check_lines
from wukongs.store.term_registry import TermRegistry

RUN_ROWS_MAX = 1 << 22
MALFORMED_MAX = 1 << 16
"""Malformed lines with which a run ends too, so that they are never held all at once."""
BYTES_PER_ROW = 400
"""Bytes of a run in flight: 32 gathered, and two being built at 184 each."""
RUNS_AHEAD = 1
"""Runs that wait, or are being built, while one before them is taken in."""
BYTES_PER_TEXT_BYTE = 3
"""Bytes in flight for each byte of a piece's text, for each worker: the text and its outcome, and as much that waits
for its turn."""


@dataclass(frozen=True, slots=True)
class BulkPlan:
    """workers: threads; chunk_bytes: of text in a piece; run_rows: tuples in a run, at least."""

    workers: int
    chunk_bytes: int
    run_rows: int

    @staticmethod
    def of(bytes_max: int, workers: int = 0) -> BulkPlan:
        """Return the plan that keeps at most about bytes_max in flight; workers: 0 for one for each core."""
        workers = workers or os.cpu_count() or 1
        half = bytes_max // 2
        return BulkPlan(
            workers,
            min(CHUNK_BYTES, max(1 << 16, half // (BYTES_PER_TEXT_BYTE * workers))),
            min(RUN_ROWS_MAX, max(1 << 10, half // BYTES_PER_ROW)),
        )


@dataclass(frozen=True, slots=True)
class FilePart:
    """building: the distinct tuples of a part of a file, as soon as they are sorted; read_count: their number with
    repeats; malformed: its lines that were set aside; stop, next_line: where the file goes on behind it; read_bytes:
    how much of the file was read by then."""

    building: Future[Batch]
    read_count: int
    malformed: tuple[MalformedLine, ...]
    stop: int
    next_line: int
    read_bytes: int

    @property
    def batch(self) -> Batch:
        """Wait for the tuples, and return them."""
        return self.building.result()


def read_runs(
    reader: RdfReader,
    registry: TermRegistry,
    graph: int,
    plan: BulkPlan,
    strict: bool = False,
    start: int = 0,
    first_line: int = 1,
    on_piece: Callable[[Encoded], object] | None = None,
) -> Generator[FilePart]:
    """Read a file to its end and yield it in runs, in order; the last one says where it ends, and may be empty.

    graph: the graph of tuples without one of their own. strict: a malformed line is an error. start, first_line: the
    place to begin at, as a run gave it. on_piece: called with the tuples of each piece, in order, before their terms
    are confirmed. Terms are confirmed ahead of the runs that hold them. Raises DataError."""
    pool = ThreadPoolExecutor(plan.workers, "wukongs-load")
    gathered: list[tuple[Int64Array, ...]] = []
    malformed: list[MalformedLine] = []
    rows, line, stop, read_bytes = 0, first_line, start, 0

    def build() -> FilePart:
        nonlocal gathered, rows, malformed
        part = FilePart(pool.submit(build_run, gathered, graph), rows, tuple(malformed), stop, line, read_bytes)
        gathered, rows, malformed = [], 0, []
        return part

    def set_aside(_: str, found: MalformedLine) -> None:
        malformed.append(found)

    try:
        with contextlib.closing(_in_order(pool, reader.jobs(plan.chunk_bytes, start), 2 * plan.workers)) as pieces:
            for piece in pieces:
                check_lines(reader.name, piece, line, set_aside, strict)
                if on_piece is not None:
                    on_piece(piece.encoded)
                encoded, _ = registry.confirm(piece.encoded)
                line, stop, read_bytes = line + piece.line_count, piece.stop, piece.read_bytes
                gathered.append((encoded.graphs, encoded.subjects, encoded.predicates, encoded.objects))
                rows += len(encoded)
                if rows >= plan.run_rows or len(malformed) >= MALFORMED_MAX:
                    yield build()
            if gathered or (start, first_line) == (stop, line):
                yield build()
    finally:
        pool.shutdown(wait=False)  # the last runs may still be sorted


def _in_order(pool: ThreadPoolExecutor, jobs: Iterable[Job], ahead: int) -> Generator[EncodedPiece]:
    """Run jobs on a pool, at most `ahead` before the one whose result is wanted next. None runs on behind the end."""
    pending: deque[Future[EncodedPiece]] = deque()
    try:
        for job in jobs:
            pending.append(pool.submit(job))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        wait([job for job in pending if not job.cancel()])


def build_run(gathered: list[tuple[Int64Array, ...]], graph: int) -> Batch:
    """Return the distinct tuples of some columns (graphs, subjects, predicates, objects), and empty the list. graph: of
    tuples without one. A run that is to be a batch of a trace has to be listed first (store/merge.py)."""
    columns = [np.concatenate(column) for column in zip(*gathered, strict=True)] or [np.empty(0, np.int64)] * 4
    gathered.clear()
    graphs, subjects, predicates, objects = columns
    graphs = np.where(graphs == UNBOUND, graph, graphs)
    return build_batch(graphs, subjects, predicates, objects, lists_vertices=False)


class InTurn:
    """Calls that a thread of its own makes one after the other; none is made behind one that has failed."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, name)
        self._pending: deque[Future[None]] = deque()
        self._has_failed = False

    def add(self, call: Callable[[], object], ahead: int = RUNS_AHEAD) -> None:
        """Have one more call made; wait until no more than `ahead` are left. Raises what a call before has raised."""
        self._pending.append(self._pool.submit(self._make, call))
        self._wait(ahead)

    def finish(self) -> None:
        """Wait for all of them. Raises what one of them has raised."""
        self._wait(0)

    def _wait(self, ahead: int) -> None:
        while len(self._pending) > ahead:
            self._pending.popleft().result()

    def close(self) -> None:
        """Make no more calls; wait for the one that is being made."""
        self._pool.shutdown(cancel_futures=True)

    def _make(self, call: Callable[[], object]) -> None:
        if self._has_failed:
            return
        try:
            call()
        except BaseException:
            self._has_failed = True
            raise


class RunStack:
    """Runs on their way to one batch: a run merges with the one before while that is at most twice as large, so each
    tuple is merged O(log n) times. Only the whole gets a vertex index."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []

    def add_run(self, run: FilePart) -> None:
        """Put the tuples of one more run to the others."""
        self.add(run.batch)

    def add(self, batch: Batch) -> None:
        """Put one more batch to the others. Raises DataError: all of them are more than one batch holds."""
        if len(batch):
            self._batches.append(batch)
        while len(self._batches) > 1 and len(self._batches[-2]) <= 2 * len(self._batches[-1]):
            self._merge_last()

    def to_batch(self) -> Batch:
        """Merge all to one batch: the union of the runs."""
        while len(self._batches) > 1:
            self._merge_last()
        empty = np.empty(0, np.int64)
        return listed(self._batches[0]) if self._batches else build_batch(empty, empty, empty, empty)

    def _merge_last(self) -> None:
        newer, older = self._batches.pop(), self._batches.pop()
        if len(older) + len(newer) > VALUES_MAX:
            raise DataError(f"a load of more than {VALUES_MAX} tuples: divide the file, and load its parts")
        self._batches.append(merge_runs(older, newer))
