"""Recovery gives an engine as it was: from the checkpoint, and the log replayed over it by the same seals and firings.

The log begins with how far streams and queries had come at its first record. From there on every record is applied when
the stored graph has come as far as it had when the record was made, so seals, loads and firings interleave as they did.
Tuples that are sealed at an SN of the checkpoint are in the trace already. Tuples that no slice needs any more are only
counted. Windows that were acknowledged are passed over; the others fire again, with the same rows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from wukongs.csparql.terms import Term
from wukongs.durable.backup import LOG_FOLDER, NODE_FILE
from wukongs.durable.catalogue import Definition, read_definitions
from wukongs.durable.durability import VIEWS_KEY, DurableJournal, ReadOnlyJournal
from wukongs.durable.entries import restore_entries
from wukongs.durable.log_records import ACKNOWLEDGED, CHANGE, MARK, MESSAGE, POSITIONS, message_in
from wukongs.errors import CorruptionError, SettingsError, StorageError
from wukongs.live.core import Core, columns_of, take_piece
from wukongs.live.declarations import declare_stream, parse_continuous, register_query
from wukongs.live.idleness import apply as apply_idleness
from wukongs.live.idleness import apply_wall
from wukongs.live.injector import Injector
from wukongs.live.joined_queries import JoinedQueries
from wukongs.live.joined_query import JoinedQuery
from wukongs.live.journal import DataFolder, NoJournal
from wukongs.live.lateness import sort_in
from wukongs.live.made_streams import MADE, MadeStream, inserted
from wukongs.live.pieces import Chunk, Close, Open, Piece, Pushed, Told
from wukongs.live.query_source import QuerySource
from wukongs.live.query_windows import counts_from
from wukongs.live.reporting import Remembered
from wukongs.live.rule_changes import replay as replay_rules
from wukongs.live.stream import store_late
from wukongs.live.stream_state import PUSH_PARTITION, StreamState, batch_number
from wukongs.live.views.recovered_views import OP as VIEW
from wukongs.live.views.recovered_views import RecoveredViews
from wukongs.live.window_log import OWN
from wukongs.outcomes import Asked, Outcomes
from wukongs.query.terms.names import graph_term
from wukongs.rules.inference import Ruleset
from wukongs.store.checkpoint import CheckpointStore
from wukongs.store.disk import Disk, storage_errors
from wukongs.store.encoded import Encoded, signs, signs_of
from wukongs.store.folder_lock import NAME as LOCK
from wukongs.store.manifest import NAME as MANIFEST
from wukongs.store.snapshot import tick_of
from wukongs.store.wal import Record, WriteAheadLog

log = logging.getLogger("wukongs")
_MOUNTED = "lost+found"
"""File systems have it, also empty ones."""


def has_data(folder: Path) -> bool:
    """Tell whether a folder is a data folder. Raises StorageError (this user may not look into it)."""
    with storage_errors(f"cannot open {folder}", "Have its owner let you read it"):
        return any((folder / name).exists() for name in (MANIFEST, LOG_FOLDER))


def check_is_ours(folder: Path) -> None:
    """Raise StorageError if a folder holds files and is no data folder: nothing is to be written among them."""
    with storage_errors(f"cannot open {folder}", "Have its owner let you read it"):
        if not folder.is_dir() or has_data(folder) or (folder / LOCK).exists():
            return
        found = sorted(
            path.name for path in folder.iterdir() if not path.name.startswith(".") and path.name != _MOUNTED
        )
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise StorageError(
            f"{folder}: is no data folder, and holds {found[0]}{more}: nothing was written. Name a data folder, an "
            "empty one, or one that is not there"
        )


def open_folder(
    folder: Path, core: Core, injector: Injector, joined: JoinedQueries, disk: Disk | None = None
) -> DataFolder:
    """Make an engine that is still empty what the folder holds, and durable from now on; one that only answers, if this
    user may only read the folder. Return it, to be closed.

    Raises StorageError (in use, no access, hash_bits), CorruptionError (an altered file)."""
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"data_dir = {str(folder)!r}: expected a folder, or a name that is free")
    store = CheckpointStore(folder, disk, may_only_read=has_data(folder))
    try:
        journal = _recover(store, core, injector, joined, disk)
        read_only = ReadOnlyJournal(folder, store.close, journal.views) if store.is_read_only else None
        if read_only is None:
            journal.start()
        else:
            core.journal = read_only
            log.warning("%s: this user may not write to it: opened for reading only", folder)
    except BaseException:
        store.close()
        raise
    opened = read_only or journal
    try:
        if core.streams:
            injector.start_with_news()
    except BaseException:
        opened.close()
        raise
    return opened


def read_folder(folder: Path, core: Core, injector: Injector, joined: JoinedQueries) -> RecoveredViews:
    """Make an engine that is still empty what the folder holds, but in memory from now on; return the live views, which
    it does not have. Raises as open_folder."""
    with CheckpointStore(folder, may_only_read=True) as store:
        journal = _recover(store, core, injector, joined)
    core.journal = NoJournal()
    return journal.views


def check_has_no_nodes(folder: Path) -> None:
    """Raise StorageError if a folder belongs to a node of a cluster."""
    if (folder / NODE_FILE).exists():
        raise StorageError(
            f"{folder}: it is the folder of a node of a cluster, and holds a part of the data: start it with `wukongs "
            "node` or `wukongs cluster --data-dir`, and ask the node"
        )


def _recover(
    store: CheckpointStore, core: Core, injector: Injector, joined: JoinedQueries, disk: Disk | None = None
) -> DurableJournal:
    check_has_no_nodes(store.folder)
    restored = store.open()
    wal = WriteAheadLog(store.folder / LOG_FOLDER, core.settings.sync_interval_ms, disk, store.is_read_only)
    journal = DurableJournal(core, injector, joined, store, wal)
    if restored is not None:
        restored.into(core.arrangement.trace, core.registry)
        journal.about = dict(restored.about)
        journal.checkpoint_sn = restored.upper - 1
    with core.lock:
        core.journal = journal
        _Replay(core, injector, joined, journal).run()
    return journal


def _by_lsn(found: dict[str, int]) -> dict[int, int]:
    return {int(lsn): value for lsn, value in found.items()}


class _Replay:
    """The state of one recovery."""

    def __init__(self, core: Core, injector: Injector, joined: JoinedQueries, journal: DurableJournal) -> None:
        self._core = core
        self._injector = injector
        self._joined = joined
        self._journal = journal
        about = self._about = journal.about.get("journal", {})
        self._after_ms = _by_lsn(about.get("after_ms", {}))
        """Per stream: tuples up to there are stored, and needed in no slice."""
        self._chunks: dict[tuple[int, bool], list[Encoded]] = {}
        """The chunks of loads and updates that are not committed yet, by number and by whether they go."""
        self._start = about.get("start", 1)
        self._synced = max(self._start, about.get("next", 1) - 1) if about else 0
        """The record up to which the log was safe when the checkpoint was made."""
        self._remembered: dict[int, list[Remembered]] = {}
        """Per query (its LSN): what its firings had to be compared with at the heads of the log's segments."""
        self._planned: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        """Per query (its LSN): the texts and pauses that the log has for it."""
        journal.delivery.restore(about.get("acknowledged", {}))
        for come, lsns in about.get("acknowledged_alike", ()):
            journal.delivery.restore({lsn: {OWN: come} for lsn in lsns})
        has_views = VIEWS_KEY in about
        journal.views = RecoveredViews(about.get(VIEWS_KEY, ()), about["next"] if has_views else 0)
        core.load_count, core.query_count = about.get("load_count", 0), about.get("query_count", 0)

    def run(self) -> None:
        """Replay the log. Called with the lock held."""
        core, journal = self._core, self._journal
        core.replayed_to = 0
        for record in journal.wal.read(self._start, self._synced):
            if record.kind == ACKNOWLEDGED:
                journal.delivery.restore(json.loads(bytes(record.payload)))
            elif record.kind == POSITIONS:
                journal.views.note_read(json.loads(bytes(record.payload)), record.lsn)
            elif record.kind == MARK:
                self._note_remembered(json.loads(bytes(record.payload)))
            elif record.kind == CHANGE:
                change = json.loads(bytes(record.payload))
                if change["op"] == "cursor":
                    journal.delivery.restore({change["of"]: {change["group"]: change["come"]}})
                elif change["op"] == VIEW:
                    self._take_view(change, record.lsn)
                elif change["op"] in ("pause", "replace") and "of" in change and record.lsn > self._start:
                    self._planned.setdefault(change["of"], []).append((record.lsn, change))
        journal.views.hold(core.arrangement.trace)
        for record in journal.wal.read(self._start, self._synced):
            journal.position = record.lsn
            if record.lsn > self._start:
                self._move_to(record.sn, is_change=record.kind == CHANGE)
            self._apply(record)
        journal.position = journal.wal.next_lsn
        self._injector.replay()
        journal.position = None
        journal.abandon_unfinished_loads()
        core.replayed_to = None

    def _take_view(self, change: dict[str, Any], lsn: int) -> None:
        try:
            self._journal.views.take_change(change, lsn)
        except KeyError:
            raise self._unknown(lsn, f"the change {change['what']!r} of a live view") from None

    def _note_remembered(self, mark: dict[str, Any]) -> None:
        for lsn, progress in mark["queries"].items():
            found = progress.get("remembered")
            if found is not None:
                self._remembered.setdefault(int(lsn), []).append(Remembered.from_json(found))
        for at_ms, lsns, rows in mark.get("joined_remembered", ()):
            for lsn in lsns:
                found = {"at_ms": at_ms, "extents": (), "rows": rows.get(str(lsn), ())}
                self._remembered.setdefault(lsn, []).append(Remembered.from_json(found))

    def _move_to(self, upper: int, *, is_change: bool) -> None:
        """Seal and fire up to where the stored graph stood. is_change: firings read otherwise after the record."""
        if upper == self._core.upper and is_change:
            self._injector.replay(upper)
        elif upper > self._core.upper:
            self._injector.replay(upper)
            time_ms = tick_of(upper - 1)
            if time_ms is not None:
                self._core.move_to(time_ms)
            self._core.pass_to(upper)

    def _apply(self, record: Record) -> None:
        if record.kind == MARK:
            self._apply_mark(record)
        elif record.kind == MESSAGE:
            message = message_in(record.payload)
            if isinstance(message, Chunk):
                self._keep(message, record.lsn)
            elif isinstance(message, Pushed):
                self._journal.note_late(record.lsn, message)
                made = self._injector.made.get(message.piece.stream)
                if not isinstance(made, MadeStream):
                    if message.sn is not None:  # all that was due had fired
                        self._move_to(record.sn, is_change=True)
                    self._take_call(message)
                else:
                    self._take(made.state, inserted(message.piece))
                    made.taken(message)
            else:
                self._apply_message(message)
        elif record.kind == CHANGE:
            change = json.loads(bytes(record.payload))
            if change["op"] not in _CHANGES:
                raise self._unknown(record.lsn, f"the change {change['op']!r}")
            self._journal.define(record.lsn, change)
            _CHANGES[change["op"]](self, change, record.lsn)
        elif record.kind not in (ACKNOWLEDGED, POSITIONS):
            raise self._unknown(record.lsn, f"kind {record.kind}")

    def _unknown(self, lsn: int, what: str) -> StorageError:
        return StorageError(
            f"{self._journal.wal.folder}: record {lsn} is of {what}, which this version of wukongs does not know. Open "
            "the folder with the version that wrote it, or a newer one"
        )

    # --- the head of a segment ----------------------------------------------------------------------------------------

    def _apply_mark(self, record: Record) -> None:
        mark = json.loads(bytes(record.payload))
        self._journal.add_mark(record.lsn, mark)
        if record.lsn > self._start:
            return
        self._check(mark)
        core = self._core
        found = read_definitions(self._journal.store.folder, self._about, record.lsn)
        for next_ms, from_ms, lsns in mark.get("joined", ()):
            progress = {"next_ms": next_ms, "from_ms": from_ms, "is_paused": False}
            mark["queries"] |= dict.fromkeys(map(str, lsns), progress)
        expected = sorted(int(lsn) for lsn in (*mark["streams"], *mark["queries"]))
        if [definition.lsn for definition in found] != expected:
            raise CorruptionError(
                f"expected the streams and queries that records {expected} of the log declared, found those of "
                f"{[definition.lsn for definition in found]}. Restore the folder from a backup",
                str(self._journal.store.folder),
            )
        for definition in found:
            # Closed or dropped further on in the log, which will say so.
            self._journal.definitions[definition.lsn] = replace(definition, until=None)
            self._restore(definition, mark)
        if mark.get("event_times") is not None:
            restore_entries(core, mark["event_times"])
        core.sealed_ms = mark["sealed_ms"]
        core.progress.stands_ms = mark.get("clock_ms", core.sealed_ms)  # logs of before do not say it
        core.progress.moved(core)
        if mark.get("rules"):
            core.inference.take(Ruleset.of_json(mark["rules"]))
        core.restore_outcomes(Outcomes.of_json(mark.get("outcomes", {})))
        core.pass_to(mark["upper"])
        core.load_count = max(core.load_count, mark["load_count"])
        core.query_count = max(core.query_count, mark["query_count"])

    def _check(self, mark: dict[str, Any]) -> None:
        settings = self._core.settings
        for name, ours, theirs in (
            ("hash_bits", settings.hash_bits, mark["hash_bits"]),
            ("tick_ms", settings.tick_ms, mark.get("tick_ms", 0)),
        ):
            if theirs != ours:
                raise StorageError(
                    f"{self._journal.wal.folder}: the log was written with {name} = {theirs}, and this engine has "
                    f"{ours}: open it with the settings that wrote it"
                )

    def _restore(self, definition: Definition, mark: dict[str, Any]) -> None:
        if definition.options is not None:
            state = self._declare(definition.name, definition.options, definition.lsn)
            state.restore_progress(mark["streams"][str(definition.lsn)])
            if state.is_made:
                self._injector.made.add(state)
            if state.last_ms is not None:
                state.ring.lost_to = batch_number(state.last_ms, state.batch_ms)
        else:
            progress = mark["queries"][str(definition.lsn)]
            source = QuerySource.of(progress.get("source", asdict(definition)))
            self._register(source, definition.lsn, progress.get("from_ms"), progress)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _keep(self, chunk: Chunk, lsn: int) -> None:
        """Keep a chunk until its load or update is committed."""
        self._core.load_count = max(self._core.load_count, chunk.number)
        self._journal.note_load(chunk.number, lsn)
        self._chunks.setdefault((chunk.number, chunk.goes), []).append(chunk.encoded)

    def _apply_message(self, message: Told) -> None:
        state = self._core.streams[message.stream]
        ledger = state.open_partition(message.partition)
        if isinstance(message, Piece):
            message = state.numbered(message)
            state.count_carried(message)
            self._take(state, message)
            self._core.note_outcome(message.by, {message.stream: len(message.encoded)})
            if message.partition == PUSH_PARTITION:
                state.complete(PUSH_PARTITION, int(message.encoded.timestamps[-1]) - 1)
        elif isinstance(message, Close):
            ledger.close(message)
            state.complete(message.partition, message.complete_ms)
        elif isinstance(message, Open):
            ledger.open(message.epoch)
        else:
            state.finish(message.partition)
        self._core.progress.moved(self._core)

    def _take(self, state: StreamState, piece: Piece) -> None:
        times, needed = piece.encoded.timestamps, np.ones(len(piece.encoded), np.bool_)
        # Event times are those of the head, and of all that has come since. A tuple that is carried is needed as long
        # as the stream batch that carries it.
        if state.lsn in self._after_ms and state.event_times is None:
            needed = state.waits_to_ms(times, piece.numbers) > self._after_ms[state.lsn]
        state.begin_with(times, piece.numbers)
        if needed.all():
            take_piece(self._core, state, piece)
        else:
            goes = signs_of(piece.encoded.goes, len(times))
            state.count(times[~needed], goes[~needed])
            state.ring.arrivals.skip(int((~needed & ~goes).sum()))
            lost_to = batch_number(int(times[~needed].max()), state.batch_ms)
            state.ring.lost_to = max(lost_to, state.ring.lost_to or lost_to)
            names = ("subjects", "predicates", "objects", "graphs", "timestamps")
            kept = {name: getattr(piece.encoded, name)[needed] for name in names} | {"goes": signs(goes[needed])}
            numbers = None if piece.numbers is None else piece.numbers[needed]
            encoded = replace(piece.encoded, **kept)
            rest = replace(piece, encoded=encoded, timing=piece.timing[needed], numbers=numbers)
            if needed.any():
                take_piece(self._core, state, rest)
            state.ledgers[piece.partition].taken(piece)

    def _take_call(self, pushed: Pushed) -> None:
        state = self._core.streams[pushed.piece.stream]
        state.open_partition(pushed.piece.partition)
        pushed = replace(pushed, piece=state.numbered(pushed.piece))
        call = sort_in(pushed, state.lateness_of(pushed.piece.partition), state.carry_rule)
        state.count_late(call, pushed.piece.timing)
        self._take(state, call.piece)
        taken_count = len(call.is_late) - int(call.is_late.sum())
        self._core.note_outcome(pushed.piece.by, {pushed.piece.stream: taken_count})
        store_late(self._core, state, pushed, call)
        if pushed.piece.partition == PUSH_PARTITION:
            state.complete(PUSH_PARTITION, call.complete_ms)
        self._core.progress.moved(self._core)

    # --- changes ------------------------------------------------------------------------------------------------------

    def _declare(self, stream_iri: str, options: dict[str, Any], lsn: int) -> StreamState:
        state = declare_stream(self._core, stream_iri, options, lsn)
        state.is_recovered = True
        after_ms = self._after_ms.get(lsn)
        if after_ms is not None:
            state.ring.dropped_to = after_ms // state.batch_ms
        return state

    def _register(
        self, source: QuerySource, lsn: int, from_ms: int | None, progress: Mapping[str, Any] | None = None
    ) -> None:
        """Register a query with others of its shape, or alone. progress: how far it had come when the log begins."""
        query, come = parse_continuous(source), self._journal.delivery.come.get(lsn, {})
        if lsn not in self._planned and (progress is None or _is_plain(progress)):
            next_ms = None if progress is None else progress["next_ms"]
            remembered = self._remembered.get(lsn, ())
            joined = self._joined.join(query, source, None, from_ms, lsn, come, next_ms, remembered)
            if joined is not None:
                self._remembered.pop(lsn, None)
                joined.is_recovered = True
                return
        registered = register_query(self._core, self._injector, query, None, source, lsn, from_ms)
        registered.is_recovered = True
        registered.restore_cursors(come)
        registered.changes.planned = self._planned.pop(lsn, registered.changes.planned)
        self._injector.schedule_changes(registered)
        registered.text.reporter.recorded = self._remembered.pop(lsn, [])
        if progress is not None:
            registered.restore_progress(progress)

    def _change_stream(self, change: dict[str, Any], lsn: int) -> None:
        state = self._declare(change["stream"], change["options"], lsn)
        if MADE in state.options:
            self._injector.made.add(state)

    def _change_drop(self, change: dict[str, Any], _: int) -> None:
        self._core.drop_stream(self._core.streams[change["stream"]])
        self._injector.made.forget(change["stream"])

    def _change_end(self, change: dict[str, Any], _: int) -> None:
        self._core.streams[change["stream"]].end()
        self._core.progress.moved(self._core)

    def _change_join(self, change: dict[str, Any], _: int) -> None:
        made = self._injector.made.get(change["stream"])
        if isinstance(made, MadeStream):
            made.join(change["to"], change["sn"])
            return
        self._core.join(self._core.streams[change["stream"]], change["to"], change["sn"])
        self._core.progress.moved(self._core)

    def _change_refuse(self, change: dict[str, Any], _: int) -> None:
        self._core.streams[change["stream"]].refuse(change["stream_batch"])

    def _change_idle(self, change: dict[str, Any], _: int) -> None:
        apply_idleness(self._core, change)

    def _change_wall(self, change: dict[str, Any], _: int) -> None:
        apply_wall(self._core, change)

    def _change_register(self, change: dict[str, Any], lsn: int) -> None:
        source = QuerySource.of(change)
        if change.get("makes"):
            self._injector.made.add(self._core.streams[change["query"]])
        if "from_ms" in change:
            self._register(source, lsn, change["from_ms"])
            return
        query, core = parse_continuous(source), self._core  # a log of before, which does not say it
        self._register(source, lsn, counts_from(core, query))

    def _change_cursor(self, change: dict[str, Any], _: int) -> None:
        """Do nothing: named cursors are there from the query's registration on, and have come at least as far."""

    def _change_view(self, change: dict[str, Any], _: int) -> None:
        """Have a stream be made by a view; the rest was read before."""
        if change["what"] == "register" and change["makes"]:
            self._injector.made.add(self._core.streams[change["state"]["options"]["into"]])

    def _change_close(self, change: dict[str, Any], _: int) -> None:
        self._joined.find(change["query"]).end()

    def _change_pause(self, change: dict[str, Any], lsn: int) -> None:
        query = self._joined.find(change["query"])
        if isinstance(query, JoinedQuery):
            query = query.alone()
        if "of" in change:
            query.changes.reach_record(lsn)
        else:  # the records of older versions do not say from when they count
            query.times.is_paused = change["is_paused"]

    def _change_replace(self, change: dict[str, Any], lsn: int) -> None:
        self._injector.queries[change["query"]].changes.reach_record(lsn)

    def _change_rules(self, change: dict[str, Any], _: int) -> None:
        replay_rules(self._core, Ruleset.of_json(change["rules"]), change["sn"])

    def _change_graph(self, change: dict[str, Any], _: int) -> None:
        """Store a load or an update, unless the checkpoint holds it."""
        core, sn, number = self._core, change["sn"], change["number"]
        core.note_outcome(Asked.of_json(change.get("by")), {"": sn})
        core.load_count = max(core.load_count, number)
        gone, come = (self._chunks.pop((number, goes), []) for goes in (True, False))
        if change["op"] == "load" and not come:
            return  # either stored, or without triples: then it has no SN of its own
        is_stored = sn < core.arrangement.trace.upper
        if is_stored and core.event_times is None:
            core.pass_to(sn + 1)
            return

        def confirmed(chunks: Iterable[Encoded]) -> list[Encoded]:
            return [core.registry.confirm(chunk)[0] for chunk in chunks]

        is_load = change["op"] == "load"
        into = core.default_graph
        if is_load:
            into = core.graph_id(None if change["graph"] is None else graph_term(change["graph"]))
        cleared = [core.graph_id(None if name is None else Term(name)) for name in change.get("cleared", ())]
        if is_stored:
            core.erase_event_times(columns_of(confirmed([*gone, *come]), into), cleared)
            core.pass_to(sn + 1)
        elif is_load:
            core.absorb(sn, confirmed(come), into)
        else:
            core.apply(sn, confirmed(gone), confirmed(come), core.default_graph, cleared)


def _is_plain(progress: Mapping[str, Any]) -> bool:
    """Tell whether a query stands where its text says, and so may fire with others."""
    return "from_ms" in progress and "source" not in progress and not progress["is_paused"]


_CHANGES: dict[str, Callable[[_Replay, dict[str, Any], int], None]] = {
    "stream": _Replay._change_stream,
    "drop": _Replay._change_drop,
    "end": _Replay._change_end,
    "idle": _Replay._change_idle,
    "wall": _Replay._change_wall,
    "refuse": _Replay._change_refuse,
    "join": _Replay._change_join,
    "register": _Replay._change_register,
    "close": _Replay._change_close,
    "cursor": _Replay._change_cursor,
    VIEW: _Replay._change_view,
    "pause": _Replay._change_pause,
    "replace": _Replay._change_replace,
    "load": _Replay._change_graph,
    "update": _Replay._change_graph,
    "rules": _Replay._change_rules,
}
