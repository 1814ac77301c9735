"""Loading a file into a running engine: built beside the engine, and joined to the stored graph at one snapshot number.

The engine's lock is held to pick the snapshot that the file is compared with, and to seal. The load is compared with
the snapshot at which it began, while nothing waits. At sealing it is compared only with the batches that were stored
since, unless triples were deleted meanwhile. Long work under the lock, such as merging, goes in steps; between two
steps others get the lock.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from os import PathLike
from typing import IO, Any

from wukongs.csparql.terms import Term
from wukongs.errors import BudgetExceeded
from wukongs.live.core import Core, expect
from wukongs.live.injector import Injector
from wukongs.live.update import check_is_asked, known_sn
from wukongs.outcomes import asked
from wukongs.query.memory import FREE_BYTES, Kind, Reservation
from wukongs.store.bulk import BulkPlan, FilePart, InTurn, RunStack, read_runs
from wukongs.store.encoded import Encoded, MalformedLine
from wukongs.store.json_ld_text import Contexts
from wukongs.store.quads import NO_QUADS, without_held
from wukongs.store.rdf_files import RdfReader

log = logging.getLogger("wukongs")
MALFORMED_LOGGED_MAX = 10
BYTES_PER_FILE_BYTE = 32
"""Bytes in flight for each byte of a short file at the most: short lines make rows of BYTES_PER_ROW."""


def log_malformed(count: int, file: str, line: MalformedLine) -> None:
    """Log a line that was set aside, if it is one of the first ones. count: how many there are by now."""
    if count <= MALFORMED_LOGGED_MAX:
        place = f"{file}, line {line.line}, column {line.column}"
        log.warning("%s: %s; set aside: %s", place, line.reason, line.shown)


def open_file(
    core: Core,
    source: str | PathLike[str] | IO[bytes],
    base: str | None,
    format: str | None,
    blank_scope: str | None = None,
    contexts: Contexts | None = None,
    check: Callable[[Encoded], None] | None = None,
) -> tuple[int, RdfReader]:
    """Begin a load: return its number, and the open file, which the caller closes. contexts: beside those of
    the settings, and stronger; check: as RdfReader has it. Raises DataError."""
    with core.lock:
        core.check_is_open()
        core.load_count += 1
        number = core.load_count
    scope = f"load:{number}" if blank_scope is None else f"loads:{blank_scope}"
    known = Contexts(core.settings.contexts)
    known = known if contexts is None else known.merged(contexts)
    hash_bits = core.settings.hash_bits
    return number, RdfReader(source, format, base, scope.encode(), hash_bits=hash_bits, contexts=known, check=check)


def load(
    core: Core,
    injector: Injector,
    number: int,
    reader: RdfReader,
    graph: Term | None,
    *,
    strict: bool,
    on_run: Callable[[FilePart], None],
    file: dict[str, Any] | None = None,
) -> int:
    """Add the tuples of a file to the stored graph; return their SN. graph: that of tuples without one of their
    own (None: the default graph). on_run: called with each run. file: what the data folder remembers of the file
    once it is in.

    Raises DataError, StorageError, what on_run raises; then nothing was added."""
    with reserving(core, reader) as plan:
        return _load(core, injector, number, reader, graph, plan, strict=strict, on_run=on_run, file=file)


@contextlib.contextmanager
def reserving(core: Core, reader: RdfReader) -> Iterator[BulkPlan]:
    """Reserve the memory that a load takes in flight: load_bytes_max, but at most a quarter of the budget of this
    process, and of a short file what it needs. Called without a lock.

    Raises BudgetExceeded (others hold it for memory_wait_ms)."""
    settings, reservation = core.settings, Reservation(core.budget, Kind.LOAD)
    bytes_max = min(settings.load_bytes_max, max(FREE_BYTES, core.budget.bytes_max // 4))
    text_bytes = reader.text_bytes
    needed = bytes_max if text_bytes is None else min(bytes_max, BYTES_PER_FILE_BYTE * text_bytes)
    if needed > FREE_BYTES and not reservation.grow(needed, settings.memory_wait_ms / 1000):
        core.budget.note_refused()
        raise BudgetExceeded(
            f"{reader.name}: the load would take {needed} bytes, and memory_bytes_max = {core.budget.bytes_max} for "
            f"all together leaves no room (held: {core.budget.told()}): ask again when others have ended, load smaller "
            "files, or raise memory_bytes_max"
        )
    try:
        yield BulkPlan.of(bytes_max, settings.load_workers)
    finally:
        reservation.note(0)


def _load(
    core: Core,
    injector: Injector,
    number: int,
    reader: RdfReader,
    graph: Term | None,
    plan: BulkPlan,
    *,
    strict: bool,
    on_run: Callable[[FilePart], None],
    file: dict[str, Any] | None,
) -> int:
    name = None if graph is None else graph.name
    change: dict[str, Any] = {"op": "load", "number": number, "graph": name, "file": file}
    with core.lock:
        core.check_is_open()
        if (known_before := known_sn(core)) is not None:
            return known_before
        into = core.graph_id(graph)
        core.finish_tick()
        known = core.arrangement.open(core.sn, f"the load of {reader.name}")
    batch = None
    try:
        held, runs, read_count = known.read(), RunStack(), 0
        with contextlib.closing(InTurn("wukongs-merge-load")) as merging:
            for run in read_runs(
                reader,
                core.registry,
                into,
                plan,
                strict,
                on_piece=lambda each: core.journal.note_chunks(number, [each]),
            ):
                merging.add(partial(runs.add_run, run))
                read_count += run.read_count
                on_run(run)
            merging.finish()
        if not read_count:
            with core.lock:
                core.check_is_open()
                injector.catch_up()  # so that the SN does not hang on how far the engine has come
                return core.sn
        whole = runs.to_batch()
        batch = without_held(whole, held)
        expect(core, batch)
        core.merger.catch_up()
        with core.lock:
            core.check_is_open()
            injector.catch_up()
            check_is_asked(core)
            sn = core.next_sn
            core.journal.commit({**change, "sn": sn, "by": asked()})
            with core.storing(sn):
                core.revoke_old_handles()
                core.erase_event_times(whole.triples() if core.event_times is not None else NO_QUADS)
                batch = core.arrangement.absorb_batch(sn, batch, known, whole, fuel=0)
            core.note_outcome(asked(), {"": sn})
            core.note_pauses()
    except BaseException:
        core.journal.abandon(number)
        raise
    finally:
        with core.lock:
            known.close()
            if batch is not None:
                core.arrangement.give_up(batch)
    core.merger.owe(len(batch))
    return sn
