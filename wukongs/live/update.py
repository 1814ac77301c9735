"""Engine.update: a request of SPARQL Update as one change of the stored graph (docs/decisions/0012-updates.md).

* It reads one snapshot. Each of its operations also sees the changes of those before it. The request is stored at one
  SN, after that snapshot: all of it or, with an error, nothing.
* Updates are serial: one is under way at a time. Queries, streams and loads go on meanwhile: the engine's lock is held
  only to pick the snapshot and to store the change. Additions that are stored in between stay, also in a graph that the
  request clears: the request has not seen them, and so could not have copied them. Retractions of streams count, too.
* The change is logged, then its SN. So a visible update is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from wukongs.errors import StreamError
from wukongs.live.core import STEP_ROWS, Core, expect
from wukongs.live.injector import Injector
from wukongs.live.table_change import Change
from wukongs.live.update_request import UpdateRequest
from wukongs.outcomes import asked
from wukongs.query.limits import Limits
from wukongs.query.memory import Kind, Reservation
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.graph_change import GraphChange
from wukongs.store.quads import Quads, joined
from wukongs.store.term_registry import encode_quads


class Evaluated(NamedTuple):
    """number: of the request, among loads and updates; read_sn: the snapshot that was read."""

    number: int
    read_sn: int
    change: GraphChange


@contextmanager
def evaluated(
    core: Core, operations: Sequence[Change], limits: Limits, only: tuple[str, ...] | None = None
) -> Iterator[Evaluated]:
    """Evaluate the operations of a request over the newest snapshot, each also over what those before it change. The
    snapshot is held until the block ends; nothing is stored. only: as UpdateRequest has it. Raises as Engine.update."""
    with core.lock:
        core.check_is_open()
        core.load_count += 1
        number = core.load_count
        core.finish_tick()
        handle = core.arrangement.open(core.sn, f"update {number}", expires=False)
        request = UpdateRequest(core, handle, number, limits, only)
    staged: Reservation | None = None
    try:
        with limits:
            for place, operation in enumerate(operations, 1):
                request.run(place, operation)
            change = request.change
            staged = limits.hand_over(lambda: request.staged_bytes, Kind.UPDATE)  # until all of it is stored
        limits.check()
        yield Evaluated(number, handle.sn, change)
    finally:
        if staged is not None:
            staged.note(0)
        with core.lock:
            handle.close()


def known_sn(core: Core) -> int | None:
    """Return the SN of the load or update that this thread works for, if it was applied before. Called with the lock
    held."""
    found = core.outcomes.of(asked())
    return None if found is None else found.get("")


def check_is_asked(core: Core) -> None:
    """Raise StreamError if the change that this thread works for was applied meanwhile, or its client has given it up.
    Called with the lock held, before it is logged."""
    by = asked()
    if by is not None and core.outcomes.is_over(by):
        raise StreamError(f"change {by.number} of this client was done meanwhile, or given up: nothing was done again")


def cleared_names(
    change: GraphChange, default_graph: int, texts: Callable[[Int64Array], Sequence[str]]
) -> list[str | None]:
    """Return the names of the graphs that a change clears, as terms; None is the default graph. texts: those of ids."""
    if not len(change.cleared):
        return []
    names: list[str | None] = list(texts(change.cleared[change.cleared != default_graph]))
    return [None, *names] if default_graph in change.cleared else names


def update(
    core: Core,
    injector: Injector,
    operations: Sequence[Change],
    limits: Limits,
    only: tuple[str, ...] | None = None,
) -> int:
    """Apply a request; return its SN, which is one more snapshot unless it has no operation. Raises as Engine.update;
    nothing was applied then."""
    with core.update_turn:
        with core.lock:
            core.check_is_open()
            if (known := known_sn(core)) is not None:
                return known
            injector.catch_up()
            if not operations:
                return core.sn
        with evaluated(core, operations, limits, only) as request:
            return _store(core, injector, request, len(operations))


def _store(core: Core, injector: Injector, request: Evaluated, operation_count: int) -> int:
    number, read_sn, change = request
    come, _ = change.difference()
    try:
        core.journal.note_chunks(number, _encoded(core, change.gone), goes=True)
        core.journal.note_chunks(number, _encoded(core, change.come))
        if len(come) > STEP_ROWS:
            expect(core, come)
        core.merger.catch_up()
        with core.lock:
            core.check_is_open()
            injector.catch_up()
            check_is_asked(core)
            sn = core.next_sn
            difference, unseen = core.arrangement.beside(change, read_sn)
            core.journal.note_chunks(number, _encoded(core, unseen))
            cleared = cleared_names(change, core.default_graph, core.registry.texts)
            core.journal.commit({"op": "update", "number": number, "sn": sn, "cleared": cleared, "by": asked()})
            with core.storing(sn):
                core.revoke_old_handles()
                core.erase_event_times(joined([change.gone, change.come, unseen]), change.cleared.tolist())
                deleted, inserted = core.arrangement.apply_difference(sn, difference, change.come, fuel=0)
            core.note_outcome(asked(), {"": sn})
            core.note_pauses()
            counts = core.updated
            counts.requests += 1
            counts.operations += operation_count
            counts.deleted += deleted
            counts.inserted += inserted
    except BaseException:
        core.journal.abandon(number)
        raise
    finally:
        with core.lock:
            core.arrangement.give_up(come)
    core.merger.owe(deleted + inserted)
    return sn


def _encoded(core: Core, quads: Quads) -> Iterator[Encoded]:
    return encode_quads(core.registry, quads, core.default_graph)
