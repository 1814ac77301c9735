"""Files -> runs: sorted, indexed batches of a file's triples, made by worker threads. The store is only read.

A worker encodes a piece of the file with the kernel that push uses. The caller takes the pieces in order, confirms
their terms and gathers their tuples. As soon as run_rows have come, a worker sorts and indexes them. Kernels release
the GIL, so the workers and the caller run at once.

The data in flight stay below about the plan's bytes, reckoned per row and byte of text. Runs handed out come on top.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from wukongs.store.batch import Batch, build_batch
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.encoded import Encoded, MalformedLine
from wukongs.store.merge import merge_batches
from wukongs.store.rdf_files import CHUNK_BYTES, EncodedPiece, Job, RdfReader, check_lines
from wukongs.store.term_registry import TermRegistry

RUN_ROWS_MAX = 1 << 22
MALFORMED_MAX = 1 << 16
"""Malformed lines with which a run ends too, so that they are never held all at once."""
BYTES_PER_ROW = 400
"""Bytes of a run in flight: 32 gathered, and two being built at 184 each."""
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
    """batch: the distinct tuples of a part of a file; read_count: their number with repeats; malformed: its lines that
    were set aside; stop, next_line: where the file goes on behind it; read_bytes: how much of the file was read by
    then."""

    batch: Batch
    read_count: int
    malformed: tuple[MalformedLine, ...]
    stop: int
    next_line: int
    read_bytes: int


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
    with ThreadPoolExecutor(plan.workers, "wukongs-load") as pool:
        building: deque[tuple[Future[Batch], int, tuple[MalformedLine, ...], int, int, int]] = deque()
        gathered: list[tuple[Int64Array, ...]] = []
        malformed: list[MalformedLine] = []
        rows, line, stop, read_bytes = 0, first_line, start, 0

        def build() -> None:
            nonlocal gathered, rows
            future = pool.submit(_build, gathered, graph)
            building.append((future, rows, tuple(malformed), stop, line, read_bytes))
            gathered, rows = [], 0
            malformed.clear()

        def set_aside(_: str, found: MalformedLine) -> None:
            malformed.append(found)

        try:
            for piece in _in_order(pool, reader.jobs(plan.chunk_bytes, start), 2 * plan.workers):
                check_lines(reader.name, piece, line, set_aside, strict)
                if on_piece is not None:
                    on_piece(piece.encoded)
                encoded, _ = registry.confirm(piece.encoded)
                line, stop, read_bytes = line + piece.line_count, piece.stop, piece.read_bytes
                gathered.append((encoded.graphs, encoded.subjects, encoded.predicates, encoded.objects))
                rows += len(encoded)
                if rows >= plan.run_rows or len(malformed) >= MALFORMED_MAX:
                    build()
                while building and (len(building) > 1 or building[0][0].done()):
                    yield _run(*building.popleft())
            if gathered or (start, first_line) == (stop, line):
                build()
            while building:
                yield _run(*building.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


def _in_order(pool: ThreadPoolExecutor, jobs: Iterable[Job], ahead: int) -> Iterator[EncodedPiece]:
    """Run jobs on a pool, at most `ahead` before the one whose result is wanted next."""
    pending: deque[Future[EncodedPiece]] = deque()
    for job in jobs:
        pending.append(pool.submit(job))
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _build(gathered: list[tuple[Int64Array, ...]], graph: int) -> Batch:
    columns = [np.concatenate(column) for column in zip(*gathered, strict=True)] or [np.empty(0, np.int64)] * 4
    gathered.clear()
    graphs, subjects, predicates, objects = columns
    return build_batch(np.where(graphs == UNBOUND, graph, graphs), subjects, predicates, objects)


def _run(future: Future[Batch], *about: Any) -> FilePart:
    return FilePart(future.result(), *about)


class RunStack:
    """Runs on their way to one batch: a run merges with the one before while that is at most twice as large, so each
    tuple is merged O(log n) times."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []

    def add(self, batch: Batch) -> None:
        """Put one more run to the others."""
        if len(batch):
            self._batches.append(batch)
        while len(self._batches) > 1 and len(self._batches[-2]) <= 2 * len(self._batches[-1]):
            self._merge_last()

    def to_batch(self) -> Batch:
        """Merge all to one batch: the union of the runs."""
        while len(self._batches) > 1:
            self._merge_last()
        empty = np.empty(0, np.int64)
        return self._batches[0] if self._batches else build_batch(empty, empty, empty, empty)

    def _merge_last(self) -> None:
        newer, older = self._batches.pop(), self._batches.pop()
        self._batches.append(merge_batches(older, newer))
