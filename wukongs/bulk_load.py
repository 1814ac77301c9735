"""Loading a file into a running engine: built beside the engine, and joined to the stored graph at one snapshot number.

The engine's lock is held to pick what is compared with, and to seal. Newness is decided against the snapshot at which
the load began, while nothing waits; at sealing only what was stored since then is looked at, unless triples
were deleted meanwhile. What is long under the lock, such as merging, goes in steps, between which others get it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from store.arrangement import without_held
from store.batch import Batch
from store.bulk import BulkPlan, RunStack, read_runs
from store.encoded import MalformedLine
from store.rdf_files import RdfReader
from wukongs.core import Core
from wukongs.injector import Injector

STEP_ROWS = 1 << 16
"""Rows that the newness filter learns, and fuel for merges, in one step under the engine's lock: some milliseconds."""
PAUSE_S = 0.0002
"""Between two such steps; enough for a thread that waits for the lock to get it."""


def load(
    core: Core,
    injector: Injector,
    reader: RdfReader,
    graph: int,
    on_malformed: Callable[[str, MalformedLine], None],
    strict: bool,
    number: int,
    graph_iri: str | None,
) -> int:
    """Add the tuples of a file to the stored graph; return their SN. graph, graph_iri: that of tuples without one of
    their own, its id and its name (None: the default graph); number: of the load, by which the journal knows it.

    Raises DataError, StorageError; then nothing was added."""
    plan = BulkPlan.of(core.settings.load_bytes_max, core.settings.load_workers)
    with core.lock:
        core.check_is_open()
        known = core.arrangement.open(core.sn, f"the load of {reader.name}")
    batch = None
    try:
        held, runs, read_count = known.read(), RunStack(), 0
        for run in read_runs(
            reader, core.registry, graph, plan, strict, on_piece=partial(core.journal.note_load, number)
        ):
            runs.add(run.batch)
            read_count += run.read_count
            for line in run.malformed:
                on_malformed(reader.name, line)
        if not read_count:
            return core.sn
        whole = runs.to_batch()
        batch = without_held(whole, held)
        is_expected = False
        while not is_expected:
            with core.lock:
                is_expected = core.arrangement.expect(batch, STEP_ROWS)
            time.sleep(PAUSE_S)
        with core.lock:
            core.check_is_open()
            injector.catch_up()
            sn = core.next_sn
            core.journal.commit({"op": "load", "number": number, "graph": graph_iri, "sn": sn})
            core.revoke_old_handles()
            batch = core.arrangement.absorb_batch(sn, batch, known, whole, fuel=0)
    except BaseException:
        core.journal.abandon_load(number)
        raise
    finally:
        with core.lock:
            known.close()
            if batch is not None:
                core.arrangement.give_up(batch)
    _pay_for_merges(core, batch)
    return sn


def _pay_for_merges(core: Core, batch: Batch) -> None:
    trace, fuel = core.arrangement.trace, core.arrangement.trace.owed(batch)
    while fuel > 0 and trace.is_merging():
        with core.lock:
            trace.work(STEP_ROWS)
        fuel -= STEP_ROWS
        time.sleep(PAUSE_S)
