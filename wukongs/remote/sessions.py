"""Session: a node's state for one client: calls and their outcomes, open results, streams, queries. All bounded."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from wukongs.errors import BudgetExceeded, NodeUnavailable, WukongsError
from wukongs.live.engine_like import EngineLike
from wukongs.live.grants import ALL, Grant
from wukongs.live.stream import Stream
from wukongs.query.limits import Canceller
from wukongs.remote.columns import Outgoing
from wukongs.remote.feeds import AnyFeed
from wukongs.remote.kinds import BUSY, CALLS_MAX, FAILED, HANDLES_MAX, LOST, RESULTS_MAX, UNASKED_S, WORKING
from wukongs.remote.uploads import Upload
from wukongs.wire.answering import Reply
from wukongs.wire.packets import Packet
from wukongs.wire.refusals import refusal

T = TypeVar("T")
_PLAIN_ERRORS = (TypeError, ValueError)


def failed(error: BaseException) -> Packet:
    """Return the packet that tells an error: by name and with its parts, if it is a named one; TypeError and ValueError
    are told by name, too, since a wrong argument raises them."""
    if isinstance(error, _PLAIN_ERRORS):
        kind = next(kind.__name__ for kind in _PLAIN_ERRORS if isinstance(error, kind))
        return Packet(FAILED, {"error": kind, "message": str(error), "arguments": [str(error)]})
    return Packet(FAILED, refusal(error).fields)


class SessionCall:
    """A task that is done once, however often its outcome is asked for. is_read: it may be ended once nobody asks;
    client: the name of the client that it is for."""

    def __init__(self, upload: Upload | None = None, *, is_read: bool = False, client: str = "") -> None:
        self.upload, self._is_read = upload, is_read
        self.canceller = Canceller(client)
        self._lock = threading.Lock()
        self._outcome: Packet | None = None
        self._waiting: list[tuple[float, Reply]] = []
        """The replies that wait for the outcome, and until when (time.monotonic)."""
        self._asked_s = time.monotonic()
        """When somebody has waited for it last."""
        self.may_be_repeated = False
        """It is over since a node was away, or was dropped: when it is asked for again it is tried again."""

    def run(self, work: Callable[[], Packet]) -> None:
        try:
            with self.canceller:
                outcome = work()
        except Exception as error:
            if isinstance(error, NodeUnavailable):
                self.may_be_repeated = True
            outcome = failed(error)
        except BaseException as error:
            outcome = failed(error)
            raise
        finally:
            if self.upload is not None:
                self.upload.end()
            self._settle(outcome)

    def drop(self) -> None:
        """End a call that only reads, as Engine.kill ends queries: its client is gone. It is lost to those who wait for
        it; the same call is done anew if it comes again."""
        if self._is_read and self._settle(Packet(LOST)):
            self.may_be_repeated = True
            self.canceller.cancel()

    def _settle(self, outcome: Packet) -> bool:
        """Note the outcome and tell it; False: there is one already."""
        with self._lock:
            if self._outcome is not None:
                return False
            self._outcome, waiting = outcome, self._waiting
            self._waiting = []
        for _, reply in waiting:
            reply(outcome)
        return True

    def tell(self, reply: Reply, wait_s: float) -> None:
        """Reply with the outcome; or that the call is under way, once `look` finds that wait_s seconds have passed."""
        with self._lock:
            outcome = self._outcome
            if outcome is None and wait_s > 0:
                self._waiting.append((time.monotonic() + wait_s, reply))
                return
        reply(outcome or Packet(WORKING))

    def look(self, now_s: float) -> None:
        """Tell those who have waited for long enough that the call is under way; drop it if nobody does any more."""
        with self._lock:
            if self._waiting:
                self._asked_s = now_s
            late = [reply for until_s, reply in self._waiting if until_s <= now_s]
            self._waiting = [one for one in self._waiting if one[0] > now_s]
            is_left = now_s - self._asked_s > UNASKED_S
        for reply in late:
            reply(Packet(WORKING))
        if is_left:
            self.drop()


class Handles(Generic[T]):
    """Numbered things, at most so many."""

    def __init__(self, what: str, count_max: int) -> None:
        self._what, self._count_max = what, count_max
        self._things: dict[int, T] = {}
        self._last = 0

    def add(self, thing: T) -> int:
        if len(self._things) >= self._count_max:
            raise BudgetExceeded(f"this client has {len(self._things)} {self._what} open: close some, or connect anew")
        self._last += 1
        self._things[self._last] = thing
        return self._last

    def get(self, number: object) -> T | None:
        return self._things.get(number) if isinstance(number, int) else None

    def remove(self, number: object) -> T | None:
        return self._things.pop(number, None) if isinstance(number, int) else None

    def numbers(self) -> list[int]:
        return list(self._things)

    def values(self) -> list[T]:
        return list(self._things.values())

    def number_of(self, is_it: Callable[[T], bool]) -> int | None:
        """Return the number of the first thing that a test is true of."""
        return next((number for number, thing in self._things.items() if is_it(thing)), None)


class Session:
    """token: its name, which nobody can guess; client: the name that the client has given itself; engine: as it is for
    its grant."""

    def __init__(self, client: str, engine: EngineLike, grant: Grant = ALL) -> None:
        self.client, self.engine, self.grant = client, engine, grant
        self.token = secrets.token_hex(16)
        self.heard_s = time.monotonic()
        self.lock = threading.Lock()
        self.calls: dict[int, SessionCall] = {}
        self.results: Handles[Outgoing] = Handles("results", RESULTS_MAX)
        self.files: Handles[int] = Handles("files", RESULTS_MAX)
        """Descriptors."""
        self.streams: Handles[Stream] = Handles("streams", HANDLES_MAX)
        self.feeds: Handles[AnyFeed] = Handles("queries", HANDLES_MAX)
        self._done = 0
        """The client needs no call below it."""
        self._finished: set[int] = set()
        """Calls above it that it does not need either."""
        self.is_ended = False

    def call(
        self, number: int, done: int, finished: Iterable[int], start: Callable[[], SessionCall | None]
    ) -> SessionCall | Packet:
        """Return the call with this number, started now unless it was before, and no node was away.

        done, finished: the calls below, and these, are forgotten; but not that they were, so that none is begun again
        by a request that was long on its way."""
        with self.lock:
            if self.is_ended:
                return Packet(LOST)
            self._finished.update(finished)
            if done > self._done:
                self._done = done
                self._finished = {one for one in self._finished if one >= done}
            for old in [one for one in self.calls if one < self._done or one in self._finished]:
                del self.calls[old]
            known = self.calls.get(number)
            if known is not None and not known.may_be_repeated:
                return known
            if number < self._done or number in self._finished:
                return failed(WukongsError(f"call {number} was confirmed before: its outcome is not kept"))
            started = start() if known is not None or len(self.calls) < CALLS_MAX else None
            if started is None:
                return Packet(BUSY)
            self.calls[number] = started
            return started

    def cancel(self, number: int) -> None:
        """End a call as far as it can be ended: a load stops with nothing added, a query and an update end once they
        look at their limits; others go on and are forgotten."""
        with self.lock:
            call = self.calls.get(number)
        if call is None:
            return
        call.canceller.cancel()
        if call.upload is not None:
            call.upload.cancel(NodeUnavailable(f"{call.upload.name}: the client has cancelled the load"))

    def drop_reads(self) -> None:
        """End the calls that only read. Others go on: they may have changed something already."""
        with self.lock:
            calls = list(self.calls.values())
        for call in calls:
            call.drop()

    def keep_file(self, descriptor: int) -> int:
        """Keep a file for the client; return its number. Raises NodeUnavailable (the client has left), BudgetExceeded;
        the file is closed then."""
        try:
            with self.lock:
                if self.is_ended:
                    raise NodeUnavailable("the client has left")
                return self.files.add(descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def release_file(self, number: object) -> None:
        descriptor = self.files.remove(number)
        if descriptor is not None:
            os.close(descriptor)

    def end(self) -> None:
        """Free everything. Streams and queries that it declared stay."""
        with self.lock:
            if self.is_ended:
                return
            self.is_ended = True
            calls = list(self.calls.values())
        for call in calls:
            if call.upload is not None:
                call.upload.cancel(NodeUnavailable(f"{call.upload.name}: the client has left"))
        for feed in self.feeds.values():
            feed.end()
        for number in self.files.numbers():
            self.release_file(number)
