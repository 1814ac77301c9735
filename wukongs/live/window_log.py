"""WindowLog: the reported windows of one query, kept once and in order, and the cursors that read them.

* A window stays in the log until every cursor has done with it. A cursor is done with a window once its reader has
  confirmed it, or nobody will.
* A new cursor begins with the oldest window that the log holds.
* Each log is bounded in bytes, and so are all logs of an engine together. The oldest windows go first:
  those of this log, or of the log that holds the most. The newest window always stays.
* A cursor that has lost windows is told so in their place: by a GapError that stands for all of them. They were dropped
  unread, or never made because their slices were gone.
* Each cursor hands on how far it has come (`Come`), so that it can go on there after a restart.

Several readers may share a cursor: each window then goes to one of them.

Windows that are alike (wukongs.live.stretch) are one entry of the log. Each cursor has the rest of them that it has not
read as one entry, too, takes a window off it whenever one is asked for, and only then it is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeAlias

from wukongs.errors import GapError, StreamError, WukongsError
from wukongs.live.stretch import Stretch
from wukongs.query.limits import check_seconds
from wukongs.query.memory import STEP_BYTES, Reservation
from wukongs.query.output.results import WindowResult

OWN = ""
"""The name of a query's own cursor, beside those that its users have named."""
WINDOW_BYTES = 1024
"""A window takes about so much beside its columns."""
LAST_MS = 1 << 62
"""The end of an error that ends a query: it comes after all windows, and confirming it says nothing of them."""


class Gap(NamedTuple):
    """Windows that a cursor has lost: the ends of the first and the last, and how many there were; gone: how many of
    them were never made."""

    from_ms: int
    to_ms: int
    windows: int
    gone: int = 0

    @staticmethod
    def joined(gaps: Sequence[Gap]) -> Gap:
        """Return the gap that stands for some gaps."""
        return Gap(
            min(gap.from_ms for gap in gaps),
            max(gap.to_ms for gap in gaps),
            sum(gap.windows for gap in gaps),
            sum(gap.gone for gap in gaps),
        )


class Come(NamedTuple):
    """How far a cursor has come: up to a time its reader has had all windows; gap: those before it that are lost, and
    its reader has not been told."""

    through_ms: int
    gap: Gap | None = None

    def as_json(self) -> list[int]:
        return [self.through_ms, *(self.gap or ())]

    @staticmethod
    def of_json(told: Sequence[int]) -> Come:
        return Come(told[0], Gap(*told[1:]) if told[1:] else None)


class LazyWindow(ABC):
    """A window that is made when it is read."""

    __slots__ = ()

    @abstractmethod
    def make_window(self) -> WindowResult:
        """Return the window."""


Reported: TypeAlias = WindowResult | WukongsError | LazyWindow
"""The report of a firing: a window, or the error in its place."""


def window_of_report(reported: Reported) -> WindowResult | WukongsError:
    """Return a window, which is made now if it is lazy, or the error in its place."""
    return reported.make_window() if isinstance(reported, LazyWindow) else reported


@dataclass(slots=True, eq=False)
class LoggedWindow:
    """A window, or the error in its place. number: its place in the log; through_ms: the last firing after it for which
    nothing is reported; holders: cursors that have not done with it, each as often as it has parts of it. stretch: the
    firings for which it stands, the last at end_ms, None: it is one; whole: the entry of the log of which it is a
    part."""

    number: int
    end_ms: int
    reported: Reported
    through_ms: int
    size_bytes: int
    holders: int = 0
    gap: Gap | None = None
    stretch: Stretch | None = None
    whole: LoggedWindow | None = None

    @property
    def item(self) -> WindowResult | WukongsError:
        """The window, which is made now if it was not, or the error."""
        self.reported = found = window_of_report(self.reported)
        return found

    @property
    def window(self) -> WindowResult:
        found = self.item
        assert not isinstance(found, WukongsError)
        return found

    @property
    def begin_ms(self) -> int:
        """The end of the first window for which it stands."""
        return self.end_ms if self.stretch is None else self.stretch.first_ms

    @property
    def count(self) -> int:
        """The windows for which it stands."""
        return 1 if self.stretch is None else self.stretch.count

    @property
    def entry(self) -> LoggedWindow:
        """The entry of the log."""
        return self if self.whole is None else self.whole

    def part(self, stretch: Stretch) -> LoggedWindow:
        """Return a part of it: the windows of some of its firings."""
        through_ms = self.through_ms if stretch.last_ms == self.end_ms else stretch.last_ms
        return LoggedWindow(self.number, stretch.last_ms, self.item, through_ms, 0, stretch=stretch, whole=self.entry)

    def first(self) -> LoggedWindow:
        """Take the first window off it, and return it."""
        assert self.stretch is not None, self.number
        found = self.part(replace(self.stretch, last_ms=self.stretch.first_ms))
        found.made()
        self.stretch = self.stretch.after(self.stretch.first_ms)
        return found

    def made(self) -> None:
        """Have the window, if it is one."""
        if self.stretch is not None and self.stretch.first_ms == self.end_ms:
            if not isinstance(self.item, WukongsError):
                self.reported = self.stretch.window(self.item, self.end_ms)
            self.stretch = None


class Holder(Protocol):
    """Holds windows that are not read yet: a log, or the blocks of queries that fire as one. Its methods and fields are
    for the budget, with the lock held. ends_when_full: it rather ends than drops the oldest."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def count_held(self) -> int: ...
    @property
    def ends_when_full(self) -> bool: ...
    def drop_oldest(self) -> None: ...
    def end_full(self) -> None: ...


class Source(Protocol):
    """Brings windows to a log when somebody asks for them. Called with the lock held."""

    def draw(self) -> None:
        """Put all that is there into the log."""

    def watch(self, is_watched: bool) -> None:
        """Note whether somebody waits for windows: then they are to be put at once."""


class UnreadBudget:
    """The bytes that all window logs of an engine hold, and their common lock."""

    def __init__(self, results_bytes_max: int, reservation: Reservation | None = None) -> None:
        """reservation: of these bytes, in the budget that they share with queries and loads, if they do."""
        self.lock = threading.RLock()
        self.size_bytes = 0
        self._reservation = reservation
        self.failure: WukongsError | None = None
        """Why nobody may read, None: all may."""
        self.inline_thread: int | None = None
        """The thread that fires, while it calls an on_result itself."""
        self._bytes_max = results_bytes_max
        self._holders: set[Holder] = set()
        self._full: set[Holder] = set()
        """Those that rather end than drop windows, and have to."""

    def check_may_wait(self) -> None:
        """Raise StreamError in an on_result that the thread that fires has called itself."""
        if self.inline_thread == threading.get_ident():
            raise StreamError(
                "this waits for the thread that fires, which calls an on_result with inline=True: do it in another "
                "thread, or register the query without inline"
            )

    def join(self, holder: Holder) -> None:
        with self.lock:
            self._holders.add(holder)

    def leave(self, holder: Holder) -> None:
        """Count a holder no more: its query has ended, and it will not grow."""
        with self.lock:
            if holder in self._holders:
                self._holders.remove(holder)
                self._count(-holder.size_bytes)
                self._full.discard(holder)

    def count(self, holder: Holder, change_bytes: int) -> None:
        """Note that somebody holds so much more, or less. Called with the lock held."""
        if holder in self._holders:
            self._count(change_bytes)

    def _count(self, change_bytes: int) -> None:
        self.size_bytes += change_bytes
        if self._reservation is not None:
            steps = self.size_bytes // STEP_BYTES  # a few small windows take no lock
            self._reservation.note(steps * STEP_BYTES)

    @property
    def _most_bytes(self) -> int:
        """The bytes that all may hold now: so many as were given, or as others leave."""
        one = self._reservation
        if one is None:
            return self._bytes_max
        return min(self._bytes_max, one.size_max + STEP_BYTES)

    def make_room(self, newest: Holder) -> None:
        """Let those that hold the most drop windows until all fit; `end_full` ends those that rather end. newest: keeps
        its newest window. Called with the lock held."""
        if self.size_bytes < STEP_BYTES and self.size_bytes <= self._bytes_max:
            return
        most_bytes = self._most_bytes
        if self.size_bytes <= most_bytes:
            return
        ending_bytes = sum(one.size_bytes for one in self._full)
        if self.size_bytes - ending_bytes <= most_bytes:
            return
        enough = most_bytes - most_bytes // 64  # looking for the largest is rare so
        while self.size_bytes - ending_bytes > enough:
            spare = (one for one in self._holders if one not in self._full and one.count_held > (one is newest))
            largest = max(spare, key=lambda one: one.size_bytes, default=None)
            if largest is None:
                break
            if largest.ends_when_full:
                self.note_full(largest)
                ending_bytes += largest.size_bytes
            else:
                largest.drop_oldest()

    def note_full(self, holder: Holder) -> None:
        """Let `end_full` end a holder. Called with the lock held."""
        self._full.add(holder)

    def end_full(self) -> None:
        """End those that rather end than drop windows, and have to. That takes the engine's lock, so it is called
        without the lock of this budget."""
        while self._full:
            with self.lock:
                full, self._full = self._full, set()
            for one in full:
                one.end_full()


class WindowLog:
    """on_full: is called by UnreadBudget.end_full when the log is full and rather ends than drops windows; None:
    it drops.
    source: brings what is asked for, None: all windows are put as they come."""

    def __init__(
        self,
        query: str,
        budget: UnreadBudget,
        unread_bytes_max: int,
        on_full: Callable[[], None] | None = None,
        source: Source | None = None,
    ) -> None:
        self.query = query
        self.budget = budget
        self.changed = threading.Condition(budget.lock)
        self.size_bytes = 0
        self.is_closed = False
        self.dropped_count = 0
        self.dropped_to_ms: int | None = None
        """The end of the last window that has gone unread by some cursor."""
        self._bytes_max = unread_bytes_max
        self._on_full = on_full
        self._held: dict[int, LoggedWindow] = {}
        self._next = 0
        self._last_ms: int | None = None
        """The last firing."""
        self._gone_ms = -LAST_MS
        """The end of the last window that is not held any more."""
        self._cursors: list[Cursor] = []
        self._listeners: set[Callable[[], None]] = set()
        self._source = source
        self._waiting = 0
        """Threads that wait for a window."""
        budget.join(self)

    @property
    def count_held(self) -> int:
        return len(self._held)

    @property
    def ends_when_full(self) -> bool:
        return self._on_full is not None and not self.is_closed

    def cursor(self, come: Come | None = None, acknowledge: Callable[[Come], None] = lambda _: None) -> Cursor:
        """Return a new cursor. come: how far it had come before; acknowledge: is told how far it has come, with the
        lock held."""
        with self.changed:
            self.draw()
            cursor = Cursor(self, come, acknowledge)
            for window in self._held.values():
                cursor.add(window, self._begin_ms(window))
            self.add(cursor)
            return cursor

    def cursor_after(self, after_ms: int, step_ms: int) -> Cursor:
        """Return a new cursor for a reader that has the windows up to a time. It begins with a gap if later windows are
        not held any more. step_ms: between two windows."""
        with self.changed:
            self.draw()
            held_ms = min((self._begin_ms(entry) for entry in self._held.values()), default=LAST_MS)
            gone_ms = min(self._gone_ms, held_ms - step_ms)  # windows may have gone that are behind one that is held
            first_ms = min(after_ms + step_ms, gone_ms)
            gap = Gap(first_ms, gone_ms, (gone_ms - first_ms) // step_ms + 1) if gone_ms > after_ms else None
            return self.cursor(Come(after_ms, gap))

    def add(self, cursor: Cursor) -> None:
        """Have a cursor get windows from now on. Called with the lock held."""
        self._cursors.append(cursor)

    def come_of_new(self, had_ms: int) -> Come:
        """Return how far a cursor has come that is new. had_ms: windows up to there were read before a restart, and are
        not put again. Called with the lock held."""
        oldest = next(iter(self._held.values()), None)
        if oldest is not None:
            return Come(min(self._begin_ms(oldest), LAST_MS) - 1)
        return Come(had_ms if self._last_ms is None else max(had_ms, self._last_ms))

    def _begin_ms(self, entry: LoggedWindow) -> int:
        """Return the end of the first window of an entry with which some cursor has not done."""
        begins = (
            [] if entry.stretch is None else [ms for one in self._cursors if (ms := one.begin_ms(entry)) is not None]
        )
        return min(begins, default=entry.begin_ms)

    def put(
        self,
        end_ms: int,
        item: Reported,
        size_bytes: int = WINDOW_BYTES,
        stretch: Stretch | None = None,
    ) -> None:
        """Add the window with this end, or the error that stands in its place. stretch: the firings, up to this one, in
        whose places it stands as well."""
        with self.budget.lock:
            window = LoggedWindow(self._next, end_ms, item, end_ms, size_bytes, stretch=stretch)
            self._next += 1
            self._last_ms = self._last_ms if end_ms >= LAST_MS else end_ms
            for cursor in self._cursors:
                cursor.add(window)
            if window.holders:
                self._held[window.number] = window
                self._grow(size_bytes)
            elif end_ms < LAST_MS:
                self._gone_ms = end_ms
            self.tell()
            if end_ms >= LAST_MS:
                return  # an error that ends the query is small, and the last
            if self.size_bytes > self._bytes_max and self.ends_when_full:
                self.budget.note_full(self)
            while self.size_bytes > self._bytes_max and len(self._held) > 1 and not self.ends_when_full:
                self.drop_oldest()
            self.budget.make_room(self)

    def end_full(self) -> None:
        """End the query rather than drop windows. Called without the lock."""
        assert self._on_full is not None
        self._on_full()

    def _grow(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self.budget.count(self, size_bytes)

    def drop_oldest(self) -> None:
        """Let the oldest window go; the cursors that had not read it are told of a gap. Called with the lock held."""
        oldest = next(iter(self._held.values()))
        self.let_go(oldest)
        self.dropped_count += max([1, *(cursor.lose(oldest) for cursor in self._cursors)])
        self.dropped_to_ms = oldest.end_ms

    def let_go(self, window: LoggedWindow) -> None:
        """Hold a window no more. Called with the lock held."""
        if self._held.pop(window.number, None) is not None:
            self._grow(-window.size_bytes)
            if window.end_ms < LAST_MS:
                self._gone_ms = max(self._gone_ms, window.end_ms)

    def skip(self, end_ms: int) -> None:
        """Note that nothing is reported for the firing with this end: it counts as taken when all before it is."""
        with self.changed:
            self._last_ms = end_ms
            for cursor in self._cursors:
                cursor.skip(end_ms)

    def lose(self, first_ms: int, last_ms: int, step_ms: int) -> None:
        """Note that the windows with these ends, first and last included, are not made: their slices are gone."""
        with self.changed:
            number, self._next, self._last_ms = self._next, self._next + 1, last_ms
            for cursor in self._cursors:
                cursor.miss(number, first_ms, last_ms, step_ms)
            self.tell()

    def lack(self, gap: Gap) -> None:
        """Note that the source has dropped windows unread."""
        with self.changed:
            number, self._next, self._last_ms = self._next, self._next + 1, gap.to_ms
            self.dropped_count += gap.windows
            self.dropped_to_ms = gap.to_ms
            for cursor in self._cursors:
                cursor.lack(number, gap)
            self.tell()

    def draw(self) -> None:
        """Have the source bring what it has. Called with the lock held."""
        if self._source is not None:
            self._source.draw()

    def waiting(self) -> list[LoggedWindow]:
        """Return the windows with which some cursor has not done, each from the first such firing on."""
        with self.changed:
            self.draw()
            found = []
            for entry in self._held.values():
                begin_ms = self._begin_ms(entry)
                found.append(entry if entry.stretch is None else entry.part(entry.stretch.after(begin_ms - 1)))
            return found

    def untaken_ms(self, but: Cursor | None) -> int | None:
        """Return the end of the oldest window with which some cursor has not done, None if there is none. but: a cursor
        that does not matter."""
        with self.changed:
            found = (one.untaken_ms() for one in self._cursors if one is not but)
            return min((ms for ms in found if ms is not None), default=None)

    def detach(self) -> None:
        """Take what the source has, and nothing more: from now on windows are put. Called with the lock held."""
        self.draw()
        self._source = None

    def wait(self, timeout_s: float | None) -> None:
        """Wait for a window, or the end. Called with the lock held. Raises StreamError (check_may_wait)."""
        self.budget.check_may_wait()
        self._waiting += 1
        self._note_watch()
        try:
            self.changed.wait(None if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
        finally:
            self._waiting -= 1
            self._note_watch()

    def _note_watch(self) -> None:
        if self._source is not None:
            self._source.watch(bool(self._waiting or self._listeners))

    def remove(self, cursor: Cursor) -> None:
        """Forget a cursor. Called with the lock held."""
        if cursor in self._cursors:
            self._cursors.remove(cursor)

    def close(self) -> None:
        """Let readers end once they have read what waits."""
        with self.changed:
            self.is_closed = True
            self.budget.leave(self)
            self.tell()

    def tell(self) -> None:
        if self._waiting:
            self.changed.notify_all()
        for listener in self._listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a function called whenever a window comes, or the last one has; whoever brings it waits for that."""
        with self.changed:
            self._listeners.add(listener)
            self._note_watch()

    def unlisten(self, listener: Callable[[], None]) -> None:
        with self.changed:
            self._listeners.discard(listener)
            self._note_watch()


class Cursor:
    """One reader's way through a log, or that of several readers who divide its windows."""

    def __init__(self, log: WindowLog, come: Come | None, acknowledge: Callable[[Come], None]) -> None:
        self.log = log
        self._changed = log.changed
        self._acknowledge = acknowledge
        self._waiting: deque[LoggedWindow] = deque()
        """By number, gaps in the place of what is lost."""
        self._fetched: list[LoggedWindow] = []
        """Windows that were fetched and are not confirmed, also those that wait again."""
        self._last: LoggedWindow | None = None
        """The newest window, until it is confirmed."""
        self._through_ms = None if come is None else come.through_ms
        """Up to where windows were confirmed; acknowledged is what comes before all of those in _fetched."""
        self.is_asked = False
        """Whether somebody has asked for a window."""
        self.had_ms = -LAST_MS if self._through_ms is None else self._through_ms
        """Windows up to there were read before a restart, and are not read again."""
        if come is not None and come.gap is not None:
            self._waiting.append(self._told_of(-1, come.gap))

    def __len__(self) -> int:
        with self._changed:
            self.log.draw()
            return sum([one.count for one in self._waiting])

    @property
    def has_more(self) -> bool:
        """Whether something that was put waits to be read. Called with the lock held."""
        return bool(self._waiting)

    def untaken_ms(self) -> int | None:
        """Return the end of the oldest window that is not confirmed. Called with the lock held."""
        waiting = next((one.begin_ms for one in self._waiting if one.gap is None), None)
        known = (waiting, *(one.begin_ms for one in self._fetched if one.gap is None))
        return min((ms for ms in known if ms is not None), default=None)

    def had(self, end_ms: int) -> bool:
        """Tell whether a window was read before a restart."""
        return end_ms <= self.had_ms

    # --- called by the log, with the lock held ------------------------------------------------------------------------

    def add(self, window: LoggedWindow, begin_ms: int = -LAST_MS) -> None:
        """Have an entry of the log wait, from a window on."""
        if not self.had(window.end_ms):
            window.holders += 1
            if window.stretch is not None:
                window = window.part(window.stretch.after(max(self.had_ms, begin_ms - 1)))
                window.made()
            self._last = window
            self._waiting.append(window)

    def begin_ms(self, entry: LoggedWindow) -> int | None:
        """Return the end of the first window of an entry with which it has not done."""
        return min((one.begin_ms for one in (*self._waiting, *self._fetched) if one.entry is entry), default=None)

    def skip(self, end_ms: int) -> None:
        if self._last is not None:
            self._last.through_ms = end_ms
            if self._last.gap is not None:
                self._come_to(None)
        elif not self.had(end_ms):
            self._come_to(end_ms)

    def lose(self, entry: LoggedWindow) -> int:
        """Have a gap in the place of windows that go, unless they were fetched; return how many it loses."""
        place = next((n for n, one in enumerate(self._waiting) if one.number >= entry.number), None)
        lost = 0
        while place is not None and place < len(self._waiting) and self._waiting[place].entry is entry:
            count, length = self._waiting[place].count, len(self._waiting)
            self._lose(place)
            lost += count
            place += 1 + len(self._waiting) - length  # gaps may have become one
        return lost

    def _lose(self, place: int) -> None:
        window = self._waiting[place]
        gap = Gap(window.begin_ms, window.end_ms, window.count)
        self._waiting[place] = told = self._told_of(window.number, gap, window.through_ms)
        if self._last is window:
            self._last = told
        if window in self._fetched:  # it was given back
            self._fetched.remove(window)
        self._join(place + 1)
        self._join(place)
        self._come_to(told.through_ms)

    def miss(self, number: int, first_ms: int, last_ms: int, step_ms: int) -> None:
        """Have a gap, with a number of its own, in the place of windows that are not made, if they were not had."""
        if first_ms <= self.had_ms:
            first_ms = max(first_ms, (self.had_ms // step_ms + 1) * step_ms)
        if first_ms <= last_ms:
            count = (last_ms - first_ms) // step_ms + 1
            self.lack(number, Gap(first_ms, last_ms, count, count))

    def lack(self, number: int, gap: Gap) -> None:
        """Have a gap, with a number of its own."""
        self._last = self._told_of(number, gap)
        self._waiting.append(self._last)
        self._join(len(self._waiting) - 1)
        self._come_to(None)

    def _join(self, place: int) -> None:
        """Make one gap of what waits in a place and before it, if both are gaps and nothing between was fetched."""
        if not 0 < place < len(self._waiting):
            return
        before, after = self._waiting[place - 1], self._waiting[place]
        if before.gap is None or after.gap is None:
            return
        if any(before.gap.to_ms < one.end_ms < after.gap.from_ms for one in self._fetched if one.gap is None):
            return  # until that is confirmed, the cursor has come to the first of them
        del self._waiting[place - 1]
        told = self._told_of(after.number, Gap.joined((before.gap, after.gap)), after.through_ms)
        self._waiting[place - 1] = told
        if self._last is after:
            self._last = told

    def _told_of(self, number: int, gap: Gap, through_ms: int | None = None) -> LoggedWindow:
        error = GapError(self.log.query, *gap)
        return LoggedWindow(number, gap.to_ms, error, gap.to_ms if through_ms is None else through_ms, 0, gap=gap)

    def _come_to(self, through_ms: int | None) -> None:
        """Note that all up to a time was read, or is lost, and tell how far that brings the cursor: beyond gaps that
        come next, too."""
        if not self._fetched and through_ms is not None and not (self._waiting and self._waiting[0].gap is not None):
            if self._through_ms is None or through_ms > self._through_ms:
                self._through_ms = through_ms
            self._acknowledge(Come(self._through_ms))
            return
        told = list[Gap]()
        for one in self._waiting:
            if one.gap is None:  # what comes behind it comes later than what was confirmed
                break
            told.append(one.gap)
            through_ms = one.through_ms if through_ms is None else max(through_ms, one.through_ms)
        if through_ms is not None:
            self._through_ms = through_ms if self._through_ms is None else max(self._through_ms, through_ms)
        if self._through_ms is None:
            return
        earliest_ms = min((one.begin_ms for one in self._fetched if one.gap is None), default=None)
        come_ms = self._through_ms if earliest_ms is None else min(self._through_ms, earliest_ms - 1)
        told += [one.gap for one in self._fetched if one.gap is not None]
        before = [gap for gap in told if gap.to_ms <= come_ms]
        self._acknowledge(Come(come_ms, Gap.joined(before) if before else None))

    # --- reading ------------------------------------------------------------------------------------------------------

    def fetch(self, timeout_s: float | None, *, is_whole: bool = False) -> LoggedWindow | None:
        """Return the next window, or the error in its place, for `confirm` or `give_back`; None as take. is_whole: with
        all behind it that are alike, as they stand in the log."""
        deadline = None
        if timeout_s != 0 or isinstance(timeout_s, bool):
            check_seconds(timeout_s)
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            if self.log.budget.failure is not None:
                raise type(self.log.budget.failure)(str(self.log.budget.failure))
            self.is_asked = True
            self.log.draw()
            while not self._waiting:
                if self.log.is_closed or timeout_s == 0:
                    return None
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self.log.wait(left)
                self.log.draw()
            fetched = self._waiting[0]
            if fetched.stretch is None or is_whole:
                self._waiting.popleft()
            else:
                rest, fetched = fetched, fetched.first()
                rest.made()
                rest.entry.holders += 1
            if fetched not in self._fetched:
                self._fetched.append(fetched)
            return fetched

    def give_back(self, window: LoggedWindow) -> None:
        """Let a window that was fetched wait again, for whoever asks next."""
        with self._changed:
            if window in self._fetched:
                at = window.number, window.end_ms
                later = (place for place, one in enumerate(self._waiting) if (one.number, one.end_ms) > at)
                place = next(later, len(self._waiting))
                self._waiting.insert(place, window)
                if window.gap is not None:
                    self._fetched.remove(window)
                    self._join(place + 1)
                    self._join(place)
                self.log.tell()

    def fork(self) -> Cursor:
        """Return a new cursor, of which nothing is known after a restart, for what waits to be read by this one."""
        with self._changed:
            self.log.draw()
            other = Cursor(self.log, None, lambda _: None)
            other._through_ms, other.had_ms = self._through_ms, self.had_ms
            for one in self._waiting:
                if one.gap is None:
                    one.entry.holders += 1
                # A part of an entry shrinks as this cursor reads it.
                other._waiting.append(one if one.entry is one else replace(one, holders=0))
            self.log.add(other)
            return other

    def confirm(self, window: LoggedWindow) -> None:
        """Acknowledge a window that was fetched, once all that were fetched before it are confirmed as well."""
        with self._changed:
            self.abandon(window)
            self._come_to(window.through_ms if window.end_ms < LAST_MS else None)
            if self._last is window:
                self._last = None

    def abandon(self, window: LoggedWindow) -> None:
        """Note that nobody will confirm a window: it counts as taken when a later one does."""
        with self._changed:
            if window in self._fetched:
                self._fetched.remove(window)
                self._release(window)

    def _release(self, window: LoggedWindow) -> None:
        if window.gap is None:
            entry = window.entry
            entry.holders -= 1
            if not entry.holders:
                self.log.let_go(entry)

    def close(self) -> None:
        """Leave the log: what this cursor has not read is held for others only."""
        with self._changed:
            self.log.remove(self)
            for window in {id(one): one for one in (*self._waiting, *self._fetched)}.values():
                self._release(window)
            self._waiting.clear()
            self._fetched.clear()
            self._last = None

    def take(self, timeout_s: float | None) -> WindowResult | None:
        """Return the next window, which is acknowledged with that; None once closed and empty, or when timeout_s
        passes without one.

        Raises the WukongsError that a firing ended in, or GapError; the windows after it can still be read.
        """
        taken = self._take(timeout_s)
        if taken is None:
            return None
        self.confirm(taken)
        return taken.window

    def _take(self, timeout_s: float | None) -> LoggedWindow | None:
        """Do the same as take, without acknowledging the window."""
        taken = self.fetch(timeout_s)
        if taken is not None and isinstance(taken.item, WukongsError):
            self.confirm(taken)
            if taken.whole is not None:
                raise taken.item.with_traceback(None)  # it stands for many, and is raised for each
            raise taken.item
        return taken

    def read(self, timeout_s: float | None, *, is_shared: bool = False) -> Iterator[WindowResult]:
        """Iterate over windows until take() has none. is_shared: the last window waits for another reader if this one
        ends before it asks for the next."""
        while (taken := self._take(timeout_s)) is not None:
            try:
                yield taken.window
            except GeneratorExit:
                self._leave(taken, is_shared)
                raise
            self.confirm(taken)

    async def aread(self, timeout_s: float | None, *, is_shared: bool = False) -> AsyncIterator[WindowResult]:
        """Do the same as read, for `async for`. It waits in the event loop, not in a thread: a cancelled reader takes
        no window."""
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()

        def listener() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(arrived.set)

        self.log.listen(listener)
        try:
            check_seconds(timeout_s)
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            while True:
                arrived.clear()
                taken = self._take(0)
                if taken is not None:
                    try:
                        yield taken.window
                    except GeneratorExit:
                        self._leave(taken, is_shared)
                        raise
                    self.confirm(taken)
                    deadline = None if timeout_s is None else time.monotonic() + timeout_s
                    continue
                left = None if deadline is None else deadline - time.monotonic()
                if self.is_ended() or (left is not None and left <= 0):
                    return
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(arrived.wait(), left)
        finally:
            self.log.unlisten(listener)

    def _leave(self, window: LoggedWindow, is_shared: bool) -> None:
        if is_shared:
            self.give_back(window)
        else:
            self.abandon(window)

    def is_ended(self) -> bool:
        with self._changed:
            self.log.draw()
            return self.log.is_closed and not self._waiting
