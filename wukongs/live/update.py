"""Engine.update: a request of SPARQL Update as one change of the stored graph (docs/decisions/0012-updates.md).

* It reads one snapshot. Each of its operations also sees the changes of those before it. The request is stored at one
  SN, after that snapshot: all of it or, with an error, nothing.
* Updates are serial: one is under way at a time. Queries, streams and loads go on meanwhile: the engine's lock is held
  only to pick the snapshot and to store the change. In between only additions can be stored. They stay, also in a graph
  that the request clears: the request has not seen them, and so could not have copied them.
* The change is logged, then its SN. So a visible update is safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.updates import Operation
from wukongs.live.core import STEP_ROWS, Core, expect, pay_for_merges
from wukongs.live.injector import Injector
from wukongs.live.update_request import UpdateRequest
from wukongs.query.limits import Limits, limits_of
from wukongs.store.encoded import Encoded
from wukongs.store.graph_change import GraphChange
from wukongs.store.quads import Quads
from wukongs.store.term_registry import encode_quads
from wukongs.store.trace import Handle


def update(core: Core, injector: Injector, text: str, base: str | None, timeout_s: float | None) -> int:
    """Apply a request; return its SN, which is one more snapshot unless it has no operation. Raises as Engine.update;
    nothing was applied then."""
    limits = limits_of(core.settings, timeout_s or 0)
    operations = parse_update(text, base).operations
    with injector.update_turn():
        with core.lock:
            core.check_is_open()
            injector.catch_up()
            if not operations:
                return core.sn
            core.load_count += 1
            number = core.load_count
            handle = core.arrangement.open(core.sn, f"update {number}", expires=False)
        try:
            change = evaluated(core, handle, number, operations, limits)
            return _store(core, injector, handle, number, change, len(operations))
        finally:
            with core.lock:
                handle.close()


def evaluated(core: Core, handle: Handle, number: int, operations: Sequence[Operation], limits: Limits) -> GraphChange:
    """Return the changes of a request to the snapshot of a handle; nothing is stored. number: of the request, which
    names its blank nodes. Raises as Engine.update."""
    request = UpdateRequest(core, handle, number, limits)
    with limits:
        for place, operation in enumerate(operations, 1):
            request.run(place, operation)
        change = request.change
    limits.check()
    return change


def _store(
    core: Core, injector: Injector, handle: Handle, number: int, change: GraphChange, operation_count: int
) -> int:
    come, _ = change.difference()
    try:
        core.journal.note_chunks(number, _encoded(core, change.gone), goes=True)
        core.journal.note_chunks(number, _encoded(core, change.come))
        if len(come) > STEP_ROWS:
            expect(core, come)
        with core.lock:
            core.check_is_open()
            injector.catch_up()
            sn = core.next_sn
            difference, unseen = change.beside(core.arrangement.trace.batches_from(handle.sn + 1))
            core.journal.note_chunks(number, _encoded(core, unseen))
            record = {"op": "update", "number": number, "sn": sn, "cleared": _names(core, change)}
            core.journal.commit(record)
            core.revoke_old_handles()
            deleted, inserted = core.arrangement.apply_difference(sn, difference, fuel=0)
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
    pay_for_merges(core, deleted + inserted)
    return sn


def _encoded(core: Core, quads: Quads) -> Iterator[Encoded]:
    return encode_quads(core.registry, quads, core.default_graph)


def _names(core: Core, change: GraphChange) -> list[str | None]:
    """Return the names of the graphs that a change clears; None is the default graph."""
    if not len(change.cleared):
        return []
    names: list[str | None] = list(core.registry.texts(change.cleared[change.cleared != core.default_graph]))
    return [None, *names] if core.default_graph in change.cleared else names
