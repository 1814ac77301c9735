"""ViewFeed: the reports of a live view for any number of subscribers.

A feed reads its view once, by a cursor of its own, and makes the text of each report once. The newest reports are kept
for subscribers that connect again. A subscriber that has no place in them gets a reset, the whole content, which is
evaluated then; subscribers that need one at the same time share it.

Each report has a ReportId, and these increase. So a subscriber with an id that this feed has given goes on behind it if
nothing behind it was forgotten. A feed begins with its first subscriber, and ends with its view, or when nobody has
subscribed for IDLE_S: a view without readers costs nothing here. It is used from the event loop alone.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from wukongs.errors import StreamError, WukongsError
from wukongs.live.views.live_view import LiveView
from wukongs.live.views.view_log import Position, ViewCursor
from wukongs.query.limits import scheduler
from wukongs.query.output.report_text import report_json
from wukongs.query.output.view_report import ViewReport
from wukongs.server.events import FETCHED_MAX, Event, FeedBounds, KeptEvents, Subscribers
from wukongs.server.requests import Refused, details_of
from wukongs.server.view_relays import RelayedView
from wukongs.store.snapshot import tick_of

RETRY_MAX_S = 60.0
"""The longest time between two evaluations of a content that fails."""


class ReportId(NamedTuple):
    """The place behind a report, as subscribers name it.

    generation: how often the view had begun again, or failed, since the feed began.
    sn, minor: the position of the view.
    feed: a random name of the feed."""

    generation: int
    sn: int
    minor: int
    feed: str

    def __str__(self) -> str:
        return f"{self.sn}.{self.minor}.{self.generation}.{self.feed}"

    @staticmethod
    def read(name: str, given: str) -> ReportId:
        """Return the id that a text is. name: of the parameter. Raises Refused."""
        found = _ID.fullmatch(given)
        if found is None:
            raise Refused(400, f"{name} = {given!r:.100}: expected the id of a report, such as 17.0.0.9f2ce1a0, or now")
        sn, minor, generation = map(int, found.groups()[:3])
        return ReportId(generation, sn, minor, found[4])


_ID = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})\.([0-9]{1,19})\.([0-9a-f]{0,8})")
_NO_PLACE = ReportId(0, 0, 0, "")
"""The id of an error in the place of a reset: its subscriber still needs one."""


class ViewFeed:
    """The reports of one view."""

    def __init__(
        self, view: LiveView | RelayedView, cursor: ViewCursor, threads: ThreadPoolExecutor, bounds: FeedBounds
    ) -> None:
        """cursor: of its own, at the position of the view's log."""
        self.query = view
        self.is_ended = False
        """No report follows: the view is closed, or, with is_cut, the server ends."""
        self.is_cut = False
        self.subscribers = Subscribers()
        self._cursor, self._threads, self._bounds = cursor, threads, bounds
        self._kept = KeptEvents[ReportId](bounds)
        self._newest = self._lost_to = ReportId(0, *cursor.sn, secrets.token_hex(4))
        """Up to where all reports were read; and were forgotten."""
        self._failures = 0
        """Errors in a row that the view's reports ended in."""
        self._whole: asyncio.Future[Event[ReportId] | None] | None = None
        """The reset that is evaluated, or was last."""
        self._arrived = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read(asyncio.get_running_loop()))

    # --- reading the view ---------------------------------------------------------------------------------------------

    async def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        def listener() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._arrived.set)

        view_log = self.query.log
        view_log.listen(listener)
        try:
            while self.subscribers.are_expected:
                self._arrived.clear()
                with scheduler().urgent():
                    events, newest = await loop.run_in_executor(self._threads, self._fetched)
                for event in events:
                    self._lost_to = self._kept.add(event) or self._lost_to
                if self._newest < newest:
                    self._newest = newest
                    if self._whole is not None and self._whole.done():
                        self._whole = None
                    self.subscribers.wake()
                if len(events) == FETCHED_MAX or self._failures == 1:
                    continue
                if self._failures:
                    await asyncio.sleep(_retry_s(self._failures))
                    continue
                if view_log.is_closed:
                    return
                await self._arrived.wait()
        finally:
            view_log.unlisten(listener)
            view_log.drop(self._cursor)
            self.is_ended = True
            self.subscribers.wake()

    def _fetched(self) -> tuple[list[Event[ReportId]], ReportId]:
        """Read the next reports, in a thread. Return them, and the place up to which the view is complete."""
        view, cursor = self.query, self._cursor
        events, newest = list[Event[ReportId]](), self._newest
        while len(events) < FETCHED_MAX:
            try:
                report = view.next_report(cursor, 0.0, progress=True)
            except WukongsError as error:  # a reset follows
                self._failures += 1
                newest = newest._replace(generation=newest.generation + 1)
                events.append(_event_of_error(error, newest))
                break
            if report is None:
                break
            self._failures = 0
            generation = newest.generation + report.is_reset
            newest = ReportId(generation, report.snapshot, report.minor, newest.feed)
            view.log.move(cursor, Position(report.snapshot, report.minor))
            if not report.is_progress:
                events.append(_event_of(report, newest))
        return events, newest

    # --- subscribers --------------------------------------------------------------------------------------------------

    @property
    def kept_count(self) -> int:
        return len(self._kept.events)

    @property
    def newest(self) -> ReportId:
        """The place up to which all reports were read."""
        return self._newest

    async def newest_by_now(self) -> ReportId:
        """Return the same once the feed is where the view's log is now."""
        position, begun = self.query.log.sn, self._newest
        while not self.is_ended and self._newest[:1] == begun[:1] and self._newest[1:3] < position:
            await asyncio.wait((self.subscribers.changed,))
        return self._newest

    async def events(
        self,
        after: ReportId | None,
        stranger: Callable[[], Refused | None],
        timeout_s: float | None = None,
        *,
        progress: bool = False,
    ) -> AsyncGenerator[Event[ReportId] | None, None]:
        """Iterate over the reports behind a place until the view is closed; None each time that timeout_s passes
        without one.

        after: an id that this feed or another one has given; None: the subscriber begins as the view's readers do.
        progress: also report that nothing has changed up to a later SN.
        stranger: returns why its reader may not read it, if so. Raises that."""
        with self.subscribers.one_more():
            async for event in self._events_after(after, stranger, timeout_s, progress=progress):
                yield event

    async def _events_after(
        self,
        after: ReportId | None,
        stranger: Callable[[], Refused | None],
        timeout_s: float | None,
        *,
        progress: bool,
    ) -> AsyncGenerator[Event[ReportId] | None, None]:
        place = self._place_of(after)
        check_count, failures = -1, 0
        while True:
            if check_count < self.subscribers.check_count:
                check_count = self.subscribers.check_count
                if (refused := stranger()) is not None:
                    raise refused
            event: Event[ReportId] | None = None
            changed = self.subscribers.changed
            if place is None or place < self._lost_to:
                event = await self._reset()
                if event is not None and event.kind == "error":
                    yield event
                    failures += 1
                    await asyncio.sleep(_retry_s(failures))
                    continue
            elif (event := self._behind(place)) is None and progress and place < self._newest:
                event = self._progress(place)
            if event is not None:
                place = event.id
                yield event
            elif self.is_ended:
                return
            elif not (await asyncio.wait((changed,), timeout=timeout_s))[0]:
                yield None

    def _place_of(self, after: ReportId | None) -> ReportId | None:
        """Return the place of a subscriber that names an id. None: it needs a reset."""
        if after is None:
            return None if self.query.begins_whole else self._newest
        return after if after.feed == self._newest.feed and self._lost_to <= after else None

    def _behind(self, place: ReportId) -> Event[ReportId] | None:
        """Return the first event behind a place; None: there is none yet."""
        events = self._kept.events
        first = bisect_right(events, place, key=lambda event: event.id)
        return events[first] if first < len(events) else None

    def _progress(self, place: ReportId) -> Event[ReportId]:
        newest = self._newest
        time_ms = tick_of(newest.sn)
        facts = {"query": self.query.name, "after": place.sn, "snapshot": newest.sn, "time_ms": time_ms}
        facts |= {"minor": newest.minor} if newest.minor else {}
        return Event.of("progress", newest, json.dumps(facts))

    async def _reset(self) -> Event[ReportId] | None:
        """Return the whole content of the view, or the error of its evaluation.

        None: the view is paused or closed."""
        whole = self._whole
        if whole is None or (whole.done() and not self._is_current(whole)):
            whole = self._whole = asyncio.get_running_loop().run_in_executor(self._threads, self._evaluated)
        event = await asyncio.shield(whole)
        if event is not None and event.size_bytes > self._bounds.bytes_max and self._whole is whole:
            self._whole = None
        return event

    def _is_current(self, whole: asyncio.Future[Event[ReportId] | None]) -> bool:
        event = None if whole.cancelled() or whole.exception() is not None else whole.result()
        return event is not None and event.id >= self._newest

    def _evaluated(self) -> Event[ReportId] | None:
        """Evaluate the content, in a thread. Its place is of the generation before, so that a reset that the feed reads
        meanwhile follows it."""
        newest = self._newest
        try:
            report = self.query.reset()
        except WukongsError as error:
            if isinstance(error, StreamError) and (self.query.is_closed or self.query.is_paused):
                return None
            return _event_of_error(error, _NO_PLACE)
        return _event_of(report, newest._replace(sn=report.snapshot, minor=report.minor))

    def end(self) -> None:
        """End all subscriptions, though the view goes on."""
        self.is_cut = not self.is_ended
        self._reading.cancel()


def _event_of(report: ViewReport, place: ReportId) -> Event[ReportId]:
    return Event.of("reset" if report.is_reset else "change", place, report_json(report), report)


def _event_of_error(error: WukongsError, place: ReportId) -> Event[ReportId]:
    return Event.of("error", place, json.dumps(details_of(error)))


def _retry_s(failures: int) -> float:
    return float(min(RETRY_MAX_S, 2.0 ** (failures - 1)))
