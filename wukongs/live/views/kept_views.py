"""Live views in the checkpoint of a data folder, and how they go on from there.

A view stands where the checkpoint has it, with the reports that its readers have not read, or at the first position of
a reader, if all of them are behind that. Its operators are evaluated there. It then moves by the changes of the stored
graph, with a stop at each position up to which a reader may have kept a sum. Where that cannot be, readers begin again
with a reset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from wukongs.errors import StorageError
from wukongs.incremental.arguments import Arguments
from wukongs.incremental.templates import TRIPLE
from wukongs.incremental.zset import ZSet
from wukongs.live.argument_tables import table_text
from wukongs.live.core import Core
from wukongs.live.declarations import parse_registered
from wukongs.live.made_streams import Made
from wukongs.live.query_source import QuerySource
from wukongs.live.reading import terms_of
from wukongs.live.views.given import Given
from wukongs.live.views.live_view import LiveView
from wukongs.live.views.options import ViewOptions
from wukongs.live.views.view_arguments import ViewArguments
from wukongs.live.views.view_log import LoggedReport, Position, ViewCursor
from wukongs.live.views.view_state import ViewState
from wukongs.live.views.written_rows import read, written
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.term_ids import decimal_parts
from wukongs.store.term_registry import TermRegistry

REPORTS_BYTES_MAX = 1 << 26
"""Unread reports of all views that one checkpoint holds. Readers of the others begin with a reset after a restart."""


def states_of(core: Core, views: Iterable[LiveView]) -> Callable[[], list[dict[str, Any]]]:
    """Return what says, without the lock, what some views are now, as ViewState has it. Called with the engine's
    lock held."""
    left, found = REPORTS_BYTES_MAX, list[Callable[[], dict[str, Any]]]()
    for view in views:
        with view.log.changed:
            has_room = view.log.size_bytes <= left
            found.append(_state_of(core, view, has_room=has_room))
            left -= view.log.size_bytes if has_room else 0
    return lambda: [written_state() for written_state in found]


def _state_of(core: Core, view: LiveView, *, has_room: bool) -> Callable[[], dict[str, Any]]:
    """Called with the log's lock held, too."""
    at, reports, own = view.position, view.log.reports, view.arguments
    cursors = {cursor.name: cursor.as_json() for cursor in view.log.cursors if cursor.name}
    if not has_room or view.is_paused:
        reports = []
        begun = {name for name, (sn, _) in cursors.items() if sn is not None and (view.is_paused or sn < list(at))}
        cursors |= {name: [None, []] for name in begun}
    starts = [sn for sn, _ in cursors.values() if sn is not None]
    state = ViewState(
        view.of,
        view.name,
        {name: value for name, value in view.source._asdict().items() if name != "bindings"},
        view.options._asdict(),
        list(at),
        view.table,
        None if own is None else list(own.names),
        cursors,
        view.is_paused,
        min([list(at), *starts]),
    )
    arguments, given = None if own is None else own.state(), view.given
    given_of = _given_of(view, given) if given is not None else None
    state.giving = [] if given is None or given.to is None else [[given.to[0], list(given.to[1])]]
    terms = terms_of(core)

    def as_json() -> dict[str, Any]:
        state.reports = [_written(report) for report in reports]
        if arguments is not None:
            state.arguments, state.bound = _written_arguments(*arguments, state.names or [], terms)
        state.given = None if given_of is None else given_of()
        return state.as_json()

    return as_json


def _given_of(view: LiveView, given: Given) -> Callable[[], dict[str, Any]]:
    """Return what writes what the stream has that a view makes."""
    held = set() if view.is_paused else {view.position.sn}
    if view.moves_to is not None:
        held.add(view.moves_to.sn)
    if given.until is not None:  # the position is held, as a stop of the view
        at = list(given.until)
        return lambda: {"at": at}
    if given.at is not None and given.at.sn in held:
        at = list(given.at)
        return lambda: {"at": at}
    rows = given.rows
    if rows is None:
        begins = {} if given.begins_whole else {"at": list(view.position)}
        return lambda: begins
    return lambda: {"rows": written(*rows)}


def _written(report: LoggedReport) -> dict[str, Any]:
    return {
        "after": list(report.after),
        "sn": list(report.sn),
        "time_ms": report.time_ms,
        "is_whole": report.is_whole,
        "rows": written(report.rows, report.terms),
    }


def _written_arguments(
    at: Arguments, changes: Iterable[tuple[int, ZSet]], names: list[str], terms: QueryTerms
) -> tuple[dict[str, Any], list[list[Any]]]:
    import pyarrow as pa

    base = {"version": at.version, "next_number": at.next_number, "rows": written(ZSet.of(at.rows()), terms)}
    bound = list[list[Any]]()
    for version, change in changes:
        numbers, *columns = change.table.columns
        if change.weights[0] > 0:
            texts = [pa.array(terms.texts(column), pa.large_string()) for column in columns]
            bound.append([version, "bind", table_text(pa.table(texts, names))])
        else:
            bound.append([version, "unbind", decimal_parts(numbers)[0].tolist()])
    return base, bound


def view_definition(core: Core, state: ViewState) -> tuple[QuerySource, ViewOptions, bool]:
    """Return the source of a view, with the arguments that are bound, and its options, for another engine, and whether
    it is paused. Called with the lock of the engine that has its terms."""
    source = QuerySource.of(state.source)
    if state.names is not None:
        import pyarrow as pa

        own = ViewArguments(core, parse_registered(source), state.names)
        restored_arguments(own, state, core.registry)
        columns = [
            pa.array(terms_of(core).texts(column), pa.large_string()) for column in own.newest.rows().columns[1:]
        ]
        source = source._replace(bindings=table_text(pa.table(columns, list(state.names))))
    return source, ViewOptions(**state.options), state.is_paused


# --- going on ---------------------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """How a view goes on.

    start: its position; None: the newest.
    stops: positions behind, in order.
    cursors: of its readers, by name."""

    start: Position | None
    stops: list[Position]
    cursors: list[ViewCursor]


def way_of(state: ViewState, can_stand: Callable[[Position], bool], given: Position | None, newest: Position) -> Way:
    """Return how a view goes on. can_stand: tells whether it can stand at a position. given: where the stream that it
    makes has its content; None: it needs no such position. Raises StorageError (given cannot be read)."""
    at, reports_from = state.position, Position(*(state.reports_from or state.at))
    if given is not None and not can_stand(given):
        raise StorageError(
            f"view {state.name}: SN {given.sn}, up to which its stream has what it makes, is not readable any more. "
            "Restore the folder from a backup"
        )

    def serves(position: Position) -> bool:
        return reports_from <= position and can_stand(at) if position < at else can_stand(position)

    cursors, needed = list[ViewCursor](), [] if given is None else [given]
    for name, (stood, handed) in state.cursors.items():
        ahead = {Position(*one) for one in handed}
        is_begun = stood is not None and not state.is_paused and all(map(serves, {Position(*stood), *ahead}))
        sn = Position(*stood) if is_begun else newest
        cursor = ViewCursor(sn, not is_begun, name, is_noted_begun=stood is not None)
        if is_begun:
            cursor.handed, cursor.noted = {*ahead}, {*ahead}
            needed += [sn, *ahead]
        cursors.append(cursor)
    assert given is None or given >= at, "the stream has what the view had where it stands, or more"
    first = min(needed, default=None)
    start = at if first is not None and first < at else first
    stops = sorted({position for position in needed if start is not None and position > start})
    return Way(start, stops, cursors)


def given_of(state: ViewState, made: Made | None) -> dict[str, Any] | None:
    """Return what the stream has that a view makes, as ViewState has it; None: the view makes none."""
    found = state.given
    for end_ms, position in state.giving:
        if made is not None and end_ms <= made.decided_to_ms and not made.state.has_refused(end_ms):
            found = {"at": position}
    return found


def restore_given(view: LiveView, given: Mapping[str, Any]) -> None:
    """Have a view know what the stream has that it makes. given: as ViewState has it."""
    begins_whole = "at" not in given
    until = None if begins_whole or view.is_paused else Position(*given["at"])
    view.given = Given(begins_whole, until=until)
    if "rows" in given:
        view.given.restore(read(given["rows"], TRIPLE, view.terms.ids), view.terms)


def restored_arguments(own: ViewArguments, state: ViewState, registry: TermRegistry) -> dict[int, Arguments]:
    """Take the arguments of a view; return them by versions."""
    base = Arguments(own.lifted.hidden)
    if state.arguments is not None:
        rows = read(state.arguments["rows"], base.variables, registry.keep_all).table
        base = Arguments.restored(rows, state.arguments["version"], state.arguments["next_number"])
    return own.restore(base, [(version, what, arguments) for version, what, arguments in state.bound])


def reports_of(view: LiveView, state: ViewState) -> list[LoggedReport]:
    """Return the unread reports of a view."""
    return [
        LoggedReport(
            view.operators_query,
            Position(*each["after"]),
            Position(*each["sn"]),
            read(each["rows"], view.row_variables, view.terms.ids),
            view.terms,
            each["time_ms"],
            each["is_whole"],
        )
        for each in state.reports
    ]
