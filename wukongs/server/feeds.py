"""Feeds: the windows of registered queries for any number of subscribers, each of whom gets all of them.

A feed reads its query's windows once, in a thread, and makes the text of each once; the last ones stay for subscribers
who come later or again. A subscriber is only a place in this list, so a slow one holds nothing up and costs nothing.
One who falls behind what is kept is told which windows it has lost, in their place.

A feed begins when its query is registered over HTTP, or first asked for, and ends with the query. It is used from the
event loop alone. Windows of a query that another node of the cluster runs come through a relay (relays.py); such a feed
goes on when the query moves, and ends when nobody has read it for a while.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from wukongs.cluster.distant_query import DistantQuery
from wukongs.errors import GapError, StreamError, WukongsError
from wukongs.live.backend import RegisteredQuery
from wukongs.live.declarations import parse_continuous
from wukongs.live.views.live_view import LiveView
from wukongs.live.window_log import LAST_MS, Cursor
from wukongs.live.windows import firing_step
from wukongs.query.limits import scheduler
from wukongs.query.output.results import WindowResult
from wukongs.server.events import (
    FETCHED_MAX,
    Event,
    FeedBounds,
    KeptEvents,
    Row,
    Subscribers,
    changes_json,
    window_json,
)
from wukongs.server.pace import Pace
from wukongs.server.relays import Relay, Relays
from wukongs.server.requests import Refused, details_of
from wukongs.server.view_feeds import ViewFeed
from wukongs.server.view_relays import RelayedView

log = logging.getLogger("wukongs")
THREADS = 4

_NO_LONGER = "windows are lost: they are no longer kept here; read faster, or reconnect sooner"
_NOT_HERE = "windows are lost, if there were any: this server has those behind them only; reconnect sooner"


class Feed:
    """The windows of one query. wants_changes: of the windows from when it is set, what has changed is told; relay:
    brings them, None: the query runs here; is_from_begin: it has all windows that the query has ever had."""

    def __init__(
        self,
        query: RegisteredQuery,
        cursor: Cursor,
        threads: ThreadPoolExecutor,
        bounds: FeedBounds,
        relay: Relay | None = None,
        *,
        is_from_begin: bool = False,
    ) -> None:
        self.query, self.relay = query, relay
        self.is_ended = False
        """Nothing more comes here: the query has ended, or, with is_cut, the server ends."""
        self.is_cut = False
        self.wants_changes = False
        self.subscribers = Subscribers()
        self._has_read = asyncio.Event()
        """The windows that waited when it began are here."""
        self._come_count = self._read_count = 0
        """How often windows have come, and how many of these times are read."""
        self._cursor, self._threads = cursor, threads
        self._kept = KeptEvents[int](bounds)
        self._lost_to: int | None = None
        """The id of the last event that is not kept any more."""
        self._is_from_begin = is_from_begin
        self._before: Counter[Row] | None = None
        self._read_to_ms = 0
        """The end of the last window or gap that was read."""
        self._arrived = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read(asyncio.get_running_loop()))

    async def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        def listener() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._note)

        self._cursor.log.listen(listener)
        try:
            while True:
                self._arrived.clear()
                come_count = self._come_count
                with scheduler().urgent():
                    events = await loop.run_in_executor(self._threads, self._fetched)
                if events and not self._kept.first and not self._kept.events and not self._is_from_begin:
                    self._lost_to = _before(self.query, events[0])
                for event in events:
                    if (lost_to := self._kept.add(event)) is not None:
                        self._lost_to = lost_to
                if self.relay is None or self.relay.has_come:
                    self._has_read.set()
                is_all = len(events) < FETCHED_MAX
                if events or (is_all and come_count > self._read_count):
                    self._read_count = come_count if is_all else self._read_count
                    self.subscribers.wake()
                if events:
                    continue
                if self._cursor.is_ended():
                    return
                await self._arrived.wait()
        finally:
            self._cursor.log.unlisten(listener)
            self.is_ended = True
            self._has_read.set()
            self.subscribers.wake()

    def _note(self) -> None:
        self._come_count += 1
        self._arrived.set()

    def _fetched(self) -> list[Event[int]]:
        """Read the windows that have come, in a thread."""
        events = list[Event[int]]()
        while len(events) < FETCHED_MAX and (taken := self._cursor.fetch(0)) is not None:
            self._cursor.confirm(taken)
            try:
                events.append(self._event(taken.end_ms, taken.item))
            except Exception as error:  # the windows behind it come all the same
                log.exception("query %s: the window ending at %d ms cannot be written", self.query.name, taken.end_ms)
                told = {**details_of(error), "end_ms": taken.end_ms}
                events.append(Event.of("error", taken.end_ms, json.dumps(told)))
        return events

    def _event(self, end_ms: int, item: WindowResult | WukongsError) -> Event[int]:
        if isinstance(item, WindowResult):
            self._read_to_ms, changes = end_ms, None
            if self.wants_changes:
                rows, before = Counter(item.texts()), self._before
                self._before = rows
                if before is not None:
                    changes = Event.of("changes", end_ms, changes_json(item, rows - before, before - rows))
            return Event.of("window", end_ms, window_json(item), item, changes)
        told = details_of(item)
        if isinstance(item, GapError):
            self._read_to_ms = item.to_ms
            told |= {"query": item.query, "from_ms": item.from_ms, "to_ms": item.to_ms, "count": item.count}
            return Event.of("gap", item.to_ms, json.dumps(told))
        if end_ms == LAST_MS:  # it has ended the query: windows of one that is registered anew come behind it
            end_ms = self._read_to_ms + 1
        return Event.of("error", end_ms, json.dumps({**told, "end_ms": end_ms}))

    @property
    def kept_count(self) -> int:
        return len(self._kept.events)

    @property
    def newest(self) -> int | None:
        """The id of the last event, None if there is none yet."""
        return self._kept.events[-1].id if self._kept.events else self._lost_to

    async def newest_by_now(self) -> int | None:
        """Return the same once all is read that has come by now."""
        await self._has_read.wait()
        come_count = self._come_count
        while self._read_count < come_count and not self.is_ended:
            await asyncio.wait((self.subscribers.changed,))
        return self.newest

    async def events(
        self, after: int | None, stranger: Callable[[], Refused | None], timeout_s: float | None = None
    ) -> AsyncGenerator[Event[int] | None, None]:
        """Iterate over the events behind an id (None: over all that are kept) until the query ends; None each time that
        timeout_s passes without one. stranger: tells why its reader may not read it, if so. Raises that."""
        with self.subscribers.one_more():
            async for event in self._events_after(after, stranger, timeout_s):
                yield event

    async def _events_after(
        self, after: int | None, stranger: Callable[[], Refused | None], timeout_s: float | None
    ) -> AsyncGenerator[Event[int] | None, None]:
        kept = self._kept
        place, last, check_count = kept.first if after is None else -1, after, -1
        while True:
            if check_count < self.subscribers.check_count:
                check_count = self.subscribers.check_count
                if (refused := stranger()) is not None:
                    raise refused
            if place < kept.first and (self._lost_to is not None or kept.events or self.is_ended):
                place = kept.first
                if self._lost_to is not None and (last is None or last < self._lost_to):
                    lost = self._lost(last)
                    last = lost.id
                    yield lost
                continue
            if 0 <= place < kept.first + len(kept.events):
                event = kept.events[place - kept.first]
                place += 1
                if last is None or event.id > last:
                    last = event.id
                    yield event
            elif self.is_ended:
                return
            else:
                come, _ = await asyncio.wait((self.subscribers.changed,), timeout=timeout_s)
                if not come:
                    yield None

    def _lost(self, after: int | None) -> Event[int]:
        assert self._lost_to is not None, "something is behind what is kept"
        told = {
            "title": "GapError",
            "detail": _NO_LONGER if self._kept.first else _NOT_HERE,
            "query": self.query.name,
            "after_ms": after,
            "to_ms": self._lost_to,
        }
        return Event.of("gap", self._lost_to, json.dumps(told))

    def end(self) -> None:
        """Have all who read it come to its end, though its query goes on."""
        self.is_cut = not self.is_ended
        self._reading.cancel()


class _Wanted:
    """Tells whether a feed is read, or was a while ago."""

    feed: Feed | None = None

    def __call__(self) -> bool:
        return self.feed is None or self.feed.subscribers.are_expected


def _before(query: RegisteredQuery, first: Event[int]) -> int | None:
    """Return the end of the firing before the first window that a feed has: what a subscriber lacks up to there was
    here before the feed. None: that cannot be told, since a query may report nothing for a firing."""
    try:
        parsed = parse_continuous(query.source)
    except WukongsError:
        return None
    registration, step_ms = parsed.registration, firing_step(parsed)
    if registration is None or registration.report or step_ms is None:
        return None
    begin_ms = json.loads(first.text).get("from_ms", first.id) if first.kind == "gap" else first.id
    return int(begin_ms) - step_ms


def _relayed(relays: Relays, query: DistantQuery) -> RelayedView:
    remote = relays.view(query.name)
    if remote is None:
        raise StreamError(f"view {query.name} is closed by now, and has no reports any more")
    begins_whole = query.view is not None and query.view.snapshot and query.source.output != "dstream"
    return RelayedView(remote, query.since, begins_whole=begins_whole)


class Feeds:
    """The feeds of a server. relays: bring the windows of other nodes' queries; None: there are no other nodes."""

    def __init__(self, bounds: FeedBounds, relays: Relays | None = None) -> None:
        self._bounds, self._relays = bounds, relays
        self.pace = Pace()
        self._feeds: dict[str, Feed] = {}
        self._view_feeds: dict[str, ViewFeed] = {}
        self._threads = ThreadPoolExecutor(THREADS, "wukongs-feed")
        self._beginners = ThreadPoolExecutor(THREADS, "wukongs-relays")
        self._beginning: dict[str, asyncio.Future[Feed]] = {}

    def of(self, query: RegisteredQuery, *, is_owner: bool = False, is_new: bool = False) -> Feed:
        """Return the feed of a query that runs here. is_owner: it reads what waits for Query.results, if it is new;
        is_new: the query has just been registered."""
        known = self._feeds.get(query.name)
        if known is not None and known.relay is not None and not known.is_ended:
            return known  # it has more windows than are held here: the query has moved
        if known is None or known.query.log is not query.log:
            if known is not None:
                known.end()
            cursor = query.cursor() if is_owner else query.log.cursor()
            known = Feed(query, cursor, self._threads, self._bounds, is_from_begin=is_new)
            self._feeds[query.name] = known
            if self._relays is not None:
                self._threads.submit(self._relays.keep, query.name)
            self._forget_ended()
        return known

    async def of_view(self, view: LiveView) -> ViewFeed:
        """Return the feed of a live view."""
        known = self._view_feeds.get(view.name)
        if known is None or known.query is not view or known.is_ended:
            begin = partial(view.new_cursor, needs_reset=False)
            cursor = await asyncio.get_running_loop().run_in_executor(self._threads, begin)
            other = self._view_feeds.get(view.name)
            if other is not known:  # another request was faster
                view.log.drop(cursor)
                return await self.of_view(view)
            if known is not None and isinstance(known.query, RelayedView):
                known.end()  # the view has moved here
            known = self._view_feeds[view.name] = ViewFeed(view, cursor, self._threads, self._bounds)
            for name, feed in list(self._view_feeds.items()):
                if feed.is_ended:
                    del self._view_feeds[name]
        known.subscribers.left_s = time.monotonic()
        return known

    async def relayed_view(self, query: DistantQuery) -> ViewFeed:
        """Return the feed of a live view that stands at another node. Raises NodeUnavailable, StreamError (closed)."""
        known, relays = self._view_feeds.get(query.name), self._relays
        assert relays is not None, "there are other nodes"
        if known is None or known.is_ended or getattr(known.query, "since", None) != query.since:
            begin = partial(_relayed, relays, query)
            view = await asyncio.get_running_loop().run_in_executor(self._beginners, begin)
            if self._view_feeds.get(query.name) is not known:  # another request was faster
                view.log.drop(view.cursor)
                return await self.relayed_view(query)
            known = self._view_feeds[query.name] = ViewFeed(view, view.cursor, self._threads, self._bounds)
        known.subscribers.left_s = time.monotonic()
        return known

    @property
    def _all(self) -> list[Feed | ViewFeed]:
        return [*self._feeds.values(), *self._view_feeds.values()]

    async def relayed(self, query: RegisteredQuery) -> Feed:
        """Return the feed of a query that another node runs. Raises NodeUnavailable, StreamError (it is closed)."""
        assert self._relays is not None, "there are other nodes"
        known = self._feeds.get(query.name)
        if known is not None and known.relay is not None and not known.is_ended:
            return known
        beginning = self._beginning.get(query.name)
        if beginning is None:
            beginning = self._beginning[query.name] = asyncio.ensure_future(self._begin(query, self._relays))
            beginning.add_done_callback(lambda _: self._beginning.pop(query.name))
        return await asyncio.shield(beginning)

    async def _begin(self, query: RegisteredQuery, relays: Relays) -> Feed:
        wanted = _Wanted()
        relay = await asyncio.get_running_loop().run_in_executor(self._beginners, relays.begin, query.name, wanted)
        if relay is None:
            raise StreamError(f"query {query.name} is closed by now, and has no windows any more")
        if (known := self._feeds.get(query.name)) is not None:
            known.end()
        feed = self._feeds[query.name] = Feed(query, relay.cursor, self._threads, self._bounds, relay)
        wanted.feed = feed
        self._forget_ended()
        return feed

    @property
    def has_others(self) -> bool:
        return self._relays is not None

    def _forget_ended(self) -> None:
        """Let go of the feeds of queries that are closed, or that nobody reads here any more."""
        for name, feed in list(self._feeds.items()):
            if feed.is_ended and (feed.query.is_closed or feed.relay is not None):
                del self._feeds[name]

    def check_readers(self) -> None:
        """Have all subscribers look whether they still may read."""
        for feed in self._all:
            feed.subscribers.check()

    def close(self) -> None:
        for feed in self._all:
            feed.end()
        for pool in (self._threads, self._beginners):
            pool.shutdown(wait=False, cancel_futures=True)

    @property
    def subscriber_count(self) -> int:
        return sum(feed.subscribers.count for feed in self._all)

    @property
    def kept_count(self) -> int:
        """How many windows and reports are kept, of all queries."""
        return sum(feed.kept_count for feed in self._all)
