"""DurableJournal, the journal of an engine with a data folder: its log, and the checkpoints that cut it.

The folder holds the log (log/) and the checkpoint (store/checkpoint.py): the stored graph up to a snapshot number, its
dictionary, and `about`, the state that this module needs to go on, with streams and queries.

A checkpoint picks two bounds:

* the SN up to which the stored graph is written. It does not pass the oldest firing whose window nobody has taken yet:
  a handle at that SN keeps merges from taking the boundary away, so that the firing reads the same after a restart;
* the segment of the log with which recovery starts. Its head says how far every stream and query had come. The log from
  there on has everything that is needed and is not in the checkpoint: tuples that wait, or that are in slices which a
  recent, a registered or an unacknowledged window reads; loads that are not stored yet; firings that are not
  acknowledged. Earlier segments are deleted.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from wukongs.durable.backup import copy_folder
from wukongs.durable.catalogue import ABOUT_KEY, Definition, definitions_at, remove_old
from wukongs.durable.delivery import Delivery, Fired
from wukongs.durable.entries import written_entries
from wukongs.durable.loaded_files import FileState, LoadedFiles
from wukongs.durable.log_records import ACKNOWLEDGED, CHANGE, MARK, MESSAGE, POSITIONS, message_payload
from wukongs.errors import StorageError
from wukongs.live.core import Core
from wukongs.live.injector import Injector
from wukongs.live.joined_queries import JoinedQueries
from wukongs.live.journal import Change, NoDeliveries, ViewRecords
from wukongs.live.pieces import Chunk, Pushed, Told
from wukongs.live.query_source import QuerySource
from wukongs.live.usage import folder_usage
from wukongs.live.views.recovered_views import RecoveredViews
from wukongs.store.checkpoint import CheckpointStore
from wukongs.store.encoded import Encoded
from wukongs.store.trace import TraceEntry
from wukongs.store.wal import WriteAheadLog

VIEWS_KEY = "views"
WRITTEN_AT_ONCE_BYTES = 1 << 20
"""A chunk of a load that is as large is written before the next one comes: so they do not fill the memory."""
log = logging.getLogger("wukongs")


@dataclass(frozen=True, slots=True)
class SegmentMark:
    """A segment's head: its LSN, and the newest timestamp that each stream (by LSN) had brought before it, or the end
    of the last stream batch that carried a late tuple, if that is later."""

    lsn: int
    last_ms: dict[int, int | None]


@dataclass(slots=True)
class LoggedLoad:
    """A load or update, or late tuples, whose first record is lsn; stored at sn (None: not committed yet). last_lsn:
    the record that has committed it."""

    lsn: int
    sn: int | None = None
    last_lsn: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """The content of one checkpoint. sn: the SN up to which the entries go; start: the head of the first segment to
    keep."""

    sn: int
    entries: tuple[TraceEntry, ...]
    start: int
    about: dict[str, Any]
    views: Callable[[], list[dict[str, Any]]]
    """Says what the live views were then."""


class DurableJournal:
    """The Journal and the DataFolder of an engine; one per engine."""

    keeps_windows = False

    def __init__(
        self, core: Core, injector: Injector, joined: JoinedQueries, store: CheckpointStore, wal: WriteAheadLog
    ) -> None:
        self.store = store
        self.wal = wal
        self.about: dict[str, Any] = {}
        """The `about` of the manifest as it was opened, and the files that were loaded since."""
        self.definitions: dict[int, Definition] = {}
        """Streams and queries by LSN, also those that have ended since the log's start."""
        self.delivery = Delivery(core, self._firing_needs)
        self.views = RecoveredViews()
        self._views: ViewRecords | None = None
        self._core = core
        self._injector = injector
        self._joined = joined
        self._pending: deque[tuple[int, Callable[[], None]]] = deque()
        self._marks: deque[SegmentMark] = deque()
        self._loads: dict[int, LoggedLoad] = {}
        self._sealed: deque[LoggedLoad] = deque()
        """Other records that have changed the stored graph, pushes with late tuples and changes of rules, in order."""
        self._dropped_upper: dict[int, int] = {}
        """How far the stored graph had come when a stream (by LSN) was dropped: all that it had closed is before."""
        self.position: int | None = None
        """The LSN of the record that comes next, while the log is replayed."""
        self.checkpoint_sn = -1
        """Up to which the checkpoint in the folder has the stored graph."""
        self._turn = threading.Lock()
        self._bytes_at_checkpoint = 0
        self._checkpoint_count = 0
        self._wanted = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    # --- changes ------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        self.wal.check()
        settings = self._core.settings
        if self.wal.segment_bytes >= settings.log_segment_bytes:
            self.begin_segment()
        if self.wal.written_bytes - self._bytes_at_checkpoint >= settings.checkpoint_bytes:
            self._wanted.set()

    def note(self, message: Told | Pushed, then: Callable[[], None]) -> int:
        self._log_acknowledgements()
        lsn = self.wal.append(MESSAGE, message_payload(message), self._core.upper)
        self._pending.append((lsn, then))
        return lsn

    def note_chunks(self, number: int, chunks: Iterable[Encoded], goes: bool = False) -> None:
        for encoded in chunks:
            if len(encoded):
                payload = message_payload(Chunk(number, encoded, goes))
                with self._core.lock:
                    self.prepare()
                    lsn = self.wal.append(MESSAGE, payload, self._core.upper)
                    self.note_load(number, lsn)
                if sum(map(len, payload)) >= WRITTEN_AT_ONCE_BYTES:
                    self.wait(lsn)

    def note_load(self, number: int, lsn: int) -> None:
        """Note that a record holds a chunk of a load or update, also while the log is replayed."""
        self._loads.setdefault(number, LoggedLoad(lsn))

    def note_late(self, lsn: int, pushed: Pushed) -> None:
        """Note that a record may hold late tuples that are stored, also while the log is replayed."""
        if pushed.sn is not None:
            self._sealed.append(LoggedLoad(lsn, pushed.sn))

    def abandon(self, number: int) -> None:
        with self._core.lock:
            load = self._loads.get(number)
            if load is not None and load.sn is None:
                del self._loads[number]

    def commit(self, change: Change | Told | Pushed) -> int:
        self.prepare()
        self._log_acknowledgements()
        if isinstance(change, dict):
            lsn = self.wal.commit(CHANGE, [json.dumps(change).encode()], self._core.upper)
        else:
            lsn = self.wal.commit(MESSAGE, message_payload(change), self._core.upper)
            if isinstance(change, Pushed):
                self.note_late(lsn, change)
        self._apply()
        if isinstance(change, dict):
            self.define(lsn, change)
        return lsn

    def define(self, lsn: int, change: Change) -> None:
        """Note what a change declares, ends or loads. Called for each, also while the log is replayed."""
        if change["op"] == "stream":
            self.definitions[lsn] = Definition(lsn, change["stream"], change["options"])
        elif change["op"] == "drop":
            dropped = self._core.streams[change["stream"]].lsn
            self.definitions[dropped].until = lsn
            self._dropped_upper[dropped] = self._core.upper
        elif change["op"] == "register":
            self.definitions[lsn] = Definition(lsn, change["query"], **QuerySource.of(change)._asdict())
        elif change["op"] == "close":
            query_lsn = change["of"] if "of" in change else self._joined.find(change["query"]).lsn
            self.definitions[query_lsn].until = lsn
            self.delivery.forget(query_lsn)
        elif change["op"] == "cursor":
            self.delivery.restore({change["of"]: {change["group"]: change["come"]}})
        elif change["op"] in ("load", "update"):
            load = self._loads.setdefault(change["number"], LoggedLoad(lsn))
            load.sn, load.last_lsn = change["sn"], lsn
            if change.get("file") is not None:
                files = LoadedFiles(self.about)
                files.add(FileState(**change["file"]))
                self.about = files.into(self.about)
        elif change["op"] == "rules":
            self._sealed.append(LoggedLoad(lsn, change["sn"]))

    def abandon_unfinished_loads(self) -> None:
        """Forget the loads that had not been committed when the process ended."""
        self._loads = {number: load for number, load in self._loads.items() if load.sn is not None}

    def wait(self, lsn: int | None = None) -> None:
        self.wal.wait(self.wal.next_lsn - 1 if lsn is None else lsn)
        with self._core.lock:
            self._apply()

    def _apply(self) -> None:
        """Let everything hold that is safe now. Called with the lock held."""
        durable = self.wal.durable_lsn
        while self._pending and self._pending[0][0] <= durable:
            self._pending.popleft()[1]()

    # --- segments -----------------------------------------------------------------------------------------------------

    def begin_segment(self) -> None:
        """Begin a segment, with how far everything has come at its head. Called with the lock held."""
        self._core.finish_tick()
        self._log_acknowledgements()
        self.wal.wait(self.wal.next_lsn - 1)
        self._apply()
        self._write_head()

    def _write_head(self) -> None:
        core = self._core
        mark = {
            "hash_bits": core.settings.hash_bits,
            "tick_ms": core.settings.tick_ms,
            "upper": core.upper,
            "sealed_ms": core.sealed_ms,
            "clock_ms": core.progress.stands_ms,
            "load_count": core.load_count,
            "query_count": core.query_count,
            "outcomes": core.outcomes.as_json(),
            "rules": core.inference.ruleset.as_json(),
            "event_times": written_entries(core),
            "streams": {state.lsn: state.progress() for state in core.streams.values()},
            "queries": {
                query.lsn: query.progress()
                for query in self._injector.queries.values()
                if not self._joined.is_lead(query)
            },
            "joined": self._joined.progress(),
            "joined_remembered": self._joined.remembered(),
        }
        self.add_mark(self.wal.begin(MARK, [json.dumps(mark).encode()], core.upper), mark)

    def add_mark(self, lsn: int, mark: dict[str, Any]) -> None:
        """Note the head of a segment."""
        last_ms = {int(key): _needed_to_ms(progress) for key, progress in mark["streams"].items()}
        self._marks.append(SegmentMark(lsn, last_ms))

    # --- delivery -----------------------------------------------------------------------------------------------------

    def _firing_needs(self, is_stored: bool) -> int:
        """Return the record before which the log has to begin, for a firing to come again. is_stored: its query waits
        for the clock of the stored graph."""
        if self.position is None:
            return self.wal.next_lsn
        # Others may have fired earlier than the replay, which goes by the clock: heads behind the first may say so.
        return self.position if is_stored else self._marks[0].lsn + 1

    def _log_acknowledgements(self) -> None:
        news = self.delivery.take_news()
        if news:
            self.wal.append(ACKNOWLEDGED, [json.dumps(news).encode()], self._core.upper)
        if self._views is not None and (positions := self._views.take_news()):
            self.wal.append(POSITIONS, [json.dumps(positions).encode()], self._core.upper)

    # --- live views ---------------------------------------------------------------------------------------------------

    def keep_views(self, views: ViewRecords) -> None:
        self._views = views

    def note_positions(self, news: dict[int, Any]) -> int:
        if self._is_closed:
            return 0  # the last checkpoint has the reports, with their ends
        self.prepare()
        return self.wal.append(POSITIONS, [json.dumps(news).encode()], self._core.upper)

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a segment and the thread that makes checkpoints. Called once all is replayed."""
        with self._core.lock:
            self._write_head()  # what was acknowledged meanwhile has no segment yet: it is logged with what comes next
            about = {"start": self._marks[0].lsn, "next": self.wal.next_lsn, ABOUT_KEY: []}
        # Before the first checkpoint, too, a folder that has lost its log is told from a new one.
        self.store.begin(self._core.settings.hash_bits, {"journal": about})
        self._thread = threading.Thread(target=self._run, name="wukongs-checkpoints", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._is_closed:
                return
            if self.wal.written_bytes - self._bytes_at_checkpoint < self._core.settings.checkpoint_bytes:
                continue
            try:
                self.checkpoint()
            except StorageError as error:
                log.warning("no checkpoint, the log goes on: %s", error)
            except Exception:
                log.exception("no checkpoint, the log goes on")

    def checkpoint(self) -> None:
        with self._turn:
            self._checkpoint()

    def backup(self, target: Path) -> None:
        with self._turn:
            self._checkpoint()
            copy_folder(self.store.folder, target)

    def _checkpoint(self) -> None:
        with self._core.lock:
            self._injector.made.log_undecided()
            self.begin_segment()
            self._bytes_at_checkpoint = self.wal.written_bytes
            plan = self._plan()
        if plan is None:
            return
        plan.about["journal"][VIEWS_KEY] = plan.views()
        self.store.commit(plan.entries, plan.sn + 1, self._core.registry, plan.about)
        with contextlib.suppress(OSError):  # nobody reads it any more
            remove_old(self.store.folder)
        with self._core.lock:
            self.checkpoint_sn = plan.sn
            self._checkpoint_count += 1
            self._forget(plan)
        self.wal.trim(plan.start)

    def _plan(self) -> CheckpointPlan | None:
        core = self._core
        oldest, oldest_sn = self.delivery.oldest()
        trace = core.arrangement.trace
        sn = self.delivery.boundary(oldest_sn)
        if self._views is None:
            return None  # those that the folder has are not there yet
        if sn < self.checkpoint_sn:
            return None  # merged beyond what may be written now; the log has it
        entries = tuple(entry for entry in trace.entries() if entry.upper <= sn + 1)
        needed = self._needed_after_ms(sn)
        start = self._start(sn, needed, oldest)
        unread = self._joined.come_unread()
        lsns = self.definitions.keys() - {lsn for _, alike in unread for lsn in alike}
        about = {
            "sn": sn,
            "start": start,
            "next": self.wal.next_lsn,
            "after_ms": {lsn: ms for lsn, ms in needed.items() if ms is not None},
            "acknowledged": self.delivery.as_json(lsns),
            "acknowledged_alike": unread,
            "load_count": core.load_count,
            "query_count": core.query_count,
            ABOUT_KEY: definitions_at(self.definitions.values(), start),
        }
        return CheckpointPlan(sn, entries, start, {**self.about, "journal": about}, self._views.states())

    def _needed_after_ms(self, sn: int) -> dict[int, int | None]:
        """Return, per stream (its LSN), the time up to which its tuples are stored at or before an SN, and in no slice
        that is needed; None if there is no such time."""
        stored_ms = self._core.joined_to_ms(sn)
        found: dict[int, int | None] = {state.lsn: None for state in self._core.streams.values()}
        if stored_ms is None or self._core.late_sn > sn:
            return found  # or else tuples of any time may be stored after that
        needs = []
        for query in self._injector.queries.values():
            needs += [query.times.arrivals_needed_ms(), self.delivery.needs_ms(query.lsn)]
        for state, keep_after_ms in self._injector.keep_after_ms():
            # A stream batch that goes on after stored_ms is stored later, as a whole.
            bounds = [stored_ms // state.batch_ms * state.batch_ms, keep_after_ms]
            waiting_ms = state.waiting_from_ms()
            if waiting_ms is not None:
                bounds.append(waiting_ms)
            bounds.extend(need[state.iri] for need in needs if state.iri in need)
            found[state.lsn] = min(bounds)
        return found

    def _start(self, sn: int, needed: dict[int, int | None], oldest: Fired | None) -> int:
        """Return the head of the newest segment that has all that is not stored at an SN or is needed again."""
        loads = (*self._loads.values(), *self._sealed)
        limits = [load.lsn for load in loads if load.sn is None or load.sn > sn]
        if oldest is not None:
            limits.append(oldest.lsn)
        limit = min(limits, default=self._marks[-1].lsn + 1)
        # A load erases the event times of its triples, so replay needs all of its records or none.
        erasing = () if self._core.event_times is None else tuple(self._loads.values())

        def is_enough(mark: SegmentMark) -> bool:
            for lsn, last_ms in mark.last_ms.items():
                if lsn not in needed:
                    if self._dropped_upper[lsn] > sn + 1:
                        return False
                elif last_ms is not None and ((after_ms := needed[lsn]) is None or last_ms > after_ms):
                    return False
            return mark.lsn < limit and not any(load.lsn < mark.lsn < (load.last_lsn or 0) for load in erasing)

        return max((mark.lsn for mark in self._marks if is_enough(mark)), default=self._marks[0].lsn)

    def _forget(self, plan: CheckpointPlan) -> None:
        while self._marks[0].lsn < plan.start:
            self._marks.popleft()
        is_over = {
            number: load.sn is not None and load.sn <= plan.sn and (load.last_lsn or 0) < plan.start
            for number, load in self._loads.items()
        }
        self._loads = {number: load for number, load in self._loads.items() if not is_over[number]}
        while self._sealed and (self._sealed[0].sn or 0) <= plan.sn:
            self._sealed.popleft()
        for each in list(self.definitions.values()):
            if each.until is not None and each.until < plan.start:
                del self.definitions[each.lsn]
                self._dropped_upper.pop(each.lsn, None)
                self.delivery.come.pop(each.lsn, None)

    # --- the journal itself -------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        with self._core.lock:  # queries are registered and fire meanwhile
            oldest, _ = self.delivery.oldest()
        failure = self.wal.failure or self.wal.lack
        return {
            **folder_usage(self.store.folder),
            "lsn": self.wal.next_lsn - 1,
            "durable_lsn": self.wal.durable_lsn,
            "log_start_lsn": self._marks[0].lsn if self._marks else None,
            "log_bytes_written": self.wal.written_bytes,
            "log_syncs": self.wal.sync_count,
            "checkpoints": self._checkpoint_count,
            "checkpoint_sn": self.checkpoint_sn,
            "oldest_unacknowledged_ms": None if oldest is None else oldest.begin_ms,
            "failure": None if failure is None else str(failure),
        }

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()
        try:
            if self.wal.failure is None and self._core.failure is None:
                self.checkpoint()
        except StorageError as error:
            log.warning("no checkpoint at the end, the log has it all: %s", error)
        finally:
            self.wal.close()
            self.store.close()


def _needed_to_ms(progress: dict[str, Any]) -> int | None:
    """Return the time up to which a stream's tuples before a segment's head may still be needed; None: it has none."""
    last_ms: int | None = progress["last_ms"]
    carried_ms: int | None = progress.get("carried_ms")
    return last_ms if last_ms is None or carried_ms is None else max(last_ms, carried_ms)


class ReadOnlyJournal:
    """The Journal and the DataFolder of an engine whose folder this user may only read: it refuses to log anything.

    Windows are reported, since that changes nothing in the folder: the next engine reports them again."""

    delivery = NoDeliveries()
    keeps_windows = False

    def __init__(self, folder: Path, close: Callable[[], None], views: RecoveredViews) -> None:
        """close: gives the folder back."""
        self._folder = folder
        self._close = close
        self.views = views

    def _refuse(self) -> NoReturn:
        raise StorageError(
            f"{self._folder}: opened for reading only, since this user may not write to it: nothing can be added or "
            "changed. Open it as its owner, or a copy of it"
        )

    def prepare(self) -> None:
        self._refuse()

    def note(self, message: Told | Pushed, then: Callable[[], None]) -> int:
        self._refuse()

    def wait(self, lsn: int | None = None) -> None:
        pass

    def note_chunks(self, number: int, chunks: Iterable[Encoded], goes: bool = False) -> None:
        self._refuse()

    def abandon(self, number: int) -> None:
        pass

    def commit(self, change: Change | Told | Pushed) -> int:
        self._refuse()

    def checkpoint(self) -> None:
        self._refuse()

    def backup(self, target: Path) -> None:
        copy_folder(self._folder, target)

    def keep_views(self, views: ViewRecords) -> None:
        pass

    def note_positions(self, news: dict[int, Any]) -> int:
        return 0

    def stats(self) -> dict[str, Any]:
        return {"is_read_only": True}

    def close(self) -> None:
        self._close()
