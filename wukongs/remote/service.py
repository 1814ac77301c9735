"""Service: answers calls of clients for an engine, or for a node that has an engine's methods.

A thread of the service does a client's call, once. A client that waits for it gets an answer within POLL_S, if only
that the call is under way. `kinds.py` has the questions and answers.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue

from wukongs.consistency import reading_from
from wukongs.errors import DataError, NodeUnavailable, WukongsError
from wukongs.live.engine_like import EngineLike
from wukongs.live.header import SPOKEN, version_with
from wukongs.outcomes import Asked, asking
from wukongs.remote.calls import READS, Calls, InCluster
from wukongs.remote.feeds import next_of
from wukongs.remote.kinds import (
    ANSWER,
    BYTES,
    CALL,
    CANCEL,
    CONNECT,
    CONNECTED,
    FAILED,
    LEAVE,
    LOST,
    MALFORMED,
    NONE,
    PART,
    POLL_S,
    RELEASE,
    ROWS,
    SESSIONS_MAX,
    SILENT_S,
    VERSION,
    WAIT,
    WINDOW,
)
from wukongs.remote.sessions import Session, SessionCall, failed
from wukongs.remote.uploads import Upload
from wukongs.remote.view_feeds import ViewFeed
from wukongs.settings import Settings
from wukongs.wire.answering import Quick, Reply
from wukongs.wire.packets import Handler, Packet
from wukongs.wire.workers import Workers

THREADS_MAX = 1024
"""Calls that are under way; the scheduler (query/scheduler.py) decides which of their queries run."""
WAITING_MAX = 64
CLIENT_LENGTH_MAX = 64
_SWEEP_S = 5.0
_END_S = 5.0

_TAKEN = Packet("taken")

log = logging.getLogger("wukongs")


class Service:
    """handlers: kind of packet -> the function that answers it, in any thread, within about POLL_S seconds; quick:
    those that take a packet without waiting, and reply from another thread."""

    def __init__(
        self,
        engine: EngineLike,
        settings: Settings,
        node: InCluster | None = None,
        *,
        life: Callable[[], str] = lambda: "",
        silent_s: float = SILENT_S,
    ) -> None:
        """node: the engine's, if it is one of a cluster; life: names the data, "": nobody compares it; silent_s: after
        so long without a word from its client a session ends."""
        self._settings = settings
        self._life = life
        self._silent_s = silent_s
        self._calls = Calls(engine, settings, node)
        self._workers = Workers("wukongs-client", THREADS_MAX, WAITING_MAX)
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._under_way: dict[int, SessionCall] = {}
        """Calls that somebody may wait for, by their identity."""
        self._stopped = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="wukongs-sessions", daemon=True)
        self._sweeper.start()

    @property
    def handlers(self) -> Mapping[str, Handler]:
        in_session: dict[str, Callable[[Session, Packet], Packet]] = {
            ROWS: self._rows,
            BYTES: self._calls.read_file,
            RELEASE: self._release,
            WINDOW: self._window,
            PART: self._part,
            CANCEL: self._cancel,
            LEAVE: self._leave,
        }
        return {
            CONNECT: _guarded(self._connect),
            **{kind: _guarded(partial(self._in_session, answer)) for kind, answer in in_session.items()},
            **{kind: _waited_for(take) for kind, take in self.quick.items()},
        }

    @property
    def quick(self) -> Mapping[str, Quick]:
        return {CALL: partial(self._taken, self._call), WAIT: partial(self._taken, self._wait)}

    def close(self) -> None:
        """End all sessions: calls that are under way end by themselves, loads with nothing added. Reads that take
        longer than _END_S are ended."""
        self._stopped.set()
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            self._end(session)
        self._workers.close(_END_S)
        for session in sessions:
            session.drop_reads()
        self._look(math.inf)

    @property
    def session_count(self) -> int:
        with self._lock:
            return len(self._sessions)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _connect(self, packet: Packet) -> Packet:
        version, client = packet.fields.get("version"), _text(packet, "client")
        if version != VERSION:
            raise DataError(
                f"this node speaks version {VERSION} of the protocol of clients, the client {version!r}: run the same "
                "version of wukongs on both sides"
            )
        told = packet.fields.get("speaks")
        if version_with(told) is None:
            raise DataError(
                f"this node speaks versions {list(SPOKEN)} of the messages of clients, the client {told!r:.99}: run a "
                "release on both sides that speaks one of the other's"
            )
        if not 0 < len(client) <= CLIENT_LENGTH_MAX:
            raise DataError(f"expected the name of a client, of 1 to {CLIENT_LENGTH_MAX} letters, found {client!r:.99}")
        with self._lock:
            if self._stopped.is_set():
                raise NodeUnavailable("this node stops")
            wanted = client, packet.grant
            known = next((one for one in self._sessions.values() if (one.client, one.grant) == wanted), None)
            if known is None and len(self._sessions) >= SESSIONS_MAX:
                raise NodeUnavailable(f"this node serves {SESSIONS_MAX} clients already: try another one, or later")
            session = known or Session(client, self._calls.engine_for(packet.grant), packet.grant)
            session.heard_s = time.monotonic()
            self._sessions[session.token] = session
        return Packet(
            CONNECTED,
            {
                "session": session.token,
                # Where outcomes of calls are known: in this session only.
                "memory": session.token,
                "life": self._life(),
                "speaks": SPOKEN,
                "query_timeout_s": self._settings.query_timeout_s,
            },
        )

    def _session(self, packet: Packet) -> Session | None:
        with self._lock:
            session = self._sessions.get(_text(packet, "session"))
            if session is None or session.grant != packet.grant or self._stopped.is_set():
                return None  # with another grant, its client connects anew
            session.heard_s = time.monotonic()
            return session

    def _in_session(self, answer: Callable[[Session, Packet], Packet], packet: Packet) -> Packet:
        session = self._session(packet)
        return Packet(LOST) if session is None else answer(session, packet)

    def _taken(self, take: Callable[[Session, Packet, Reply], None], packet: Packet, reply: Reply) -> bool:
        """Take a packet of a session; an error is the reply."""

        def taken(packet: Packet) -> Packet:
            session = self._session(packet)
            if session is None:
                return Packet(LOST)
            take(session, packet, reply)
            return _TAKEN

        found = _guarded(taken)(packet)
        if found is not _TAKEN:
            reply(found)
        return True

    def _leave(self, session: Session, packet: Packet) -> Packet:
        self._end(session)
        session.drop_reads()
        return Packet(ANSWER)

    def _end(self, session: Session) -> None:
        with self._lock:
            self._sessions.pop(session.token, None)
        session.end()
        self._calls.forget(session)

    def _sweep(self) -> None:
        swept_s = time.monotonic()
        while not self._stopped.wait(min(POLL_S / 8, self._silent_s)):
            now_s = time.monotonic()
            self._look(now_s)
            if now_s - swept_s < min(_SWEEP_S, self._silent_s):
                continue
            swept_s, oldest_s = now_s, now_s - self._silent_s
            with self._lock:
                silent = [session for session in self._sessions.values() if session.heard_s < oldest_s]
            for session in silent:
                log.info("a client was silent for %g s: its session ends", self._silent_s)
                try:
                    self._end(session)
                    session.drop_reads()
                except Exception:  # the sessions of others still have to end
                    log.exception("a session could not be ended well")

    # --- calls --------------------------------------------------------------------------------------------------------

    def _look(self, now_s: float) -> None:
        for call in list(self._under_way.values()):
            call.look(now_s)

    def _call(self, session: Session, packet: Packet, reply: Reply) -> None:
        method, args = _text(packet, "method"), packet.fields.get("args", {})
        if not isinstance(args, dict):
            raise DataError(f"call of {method}: expected arguments by name, found {args!r}")
        number, done = _integer(packet, "number"), _integer(packet, "done")
        finished, needed = _numbers(packet, "finished"), _numbers(packet, "needed")
        by = Asked(session.client, number, tuple(needed)) if needed else None
        told = _integer(packet, "told_sn") if "told_sn" in packet.fields else None

        def start() -> SessionCall | None:
            upload = Upload(str(args.get("name"))) if method == "load" else None
            call = SessionCall(upload, is_read=method in READS, client=session.client)
            work = self._calls.work(session, method, args, packet.arrays, call.upload)

            def asked() -> Packet:
                with asking(by), reading_from(told):
                    return work()

            def run() -> None:
                try:
                    call.run(asked)
                finally:
                    self._under_way.pop(id(call), None)

            self._under_way[id(call)] = call
            if self._workers.submit(run):
                return call
            del self._under_way[id(call)]
            return None

        call = session.call(number, done, finished, start)
        if isinstance(call, Packet):
            reply(call)
        else:
            call.tell(reply, POLL_S if call.upload is None else 0)

    def _wait(self, session: Session, packet: Packet, reply: Reply) -> None:
        call = session.calls.get(_integer(packet, "number"))
        if call is None:
            reply(Packet(LOST))
        else:
            call.tell(reply, POLL_S)

    def _cancel(self, session: Session, packet: Packet) -> Packet:
        session.cancel(_integer(packet, "number"))
        return Packet(ANSWER)

    def _part(self, session: Session, packet: Packet) -> Packet:
        call = session.calls.get(_integer(packet, "number"))
        if call is None or call.upload is None:
            return Packet(LOST)
        upload, part = call.upload, packet.arrays.get("bytes")
        first, untold = upload.untold(_integer(packet, "told"))
        if untold:
            # Only told here, nothing is taken: the client asks again once it has dealt with them.
            lines = [[file, line.line, line.column, line.reason, line.text] for file, line in untold]
            return Packet(MALFORMED, {"first": first, "lines": lines})
        if part is None:
            return Packet(upload.wait(POLL_S))
        is_last = packet.fields.get("is_last") is True
        return Packet(upload.put(_integer(packet, "index"), part.tobytes(), is_last, POLL_S))

    # --- results ------------------------------------------------------------------------------------------------------

    def _rows(self, session: Session, packet: Packet) -> Packet:
        start = _integer(packet, "start")
        if "query" in packet.fields:
            feed = session.feeds.get(packet.fields["query"])
            outgoing = feed.outgoing if feed is not None else None
        else:
            outgoing = session.results.get(packet.fields.get("result"))
        if outgoing is None:
            return Packet(LOST)
        if not 0 <= start < len(outgoing.result):
            raise DataError(f"rows from {start} on were asked of a result of {len(outgoing.result)}")
        return Packet(ROWS, {}, outgoing.chunk(start))

    def _release(self, session: Session, packet: Packet) -> Packet:
        session.results.remove(packet.fields.get("result"))
        self._calls.release_file(session, packet.fields.get("file"))
        return Packet(ANSWER)

    def _window(self, session: Session, packet: Packet) -> Packet:
        asked, wait_s = packet.fields.get("queries"), packet.fields.get("wait_s")
        if not isinstance(asked, list) or not all(_is_pair(one) for one in asked):
            raise DataError(f"packet '{packet.kind}': expected queries and what was taken of them, found {asked!r}")
        feeds = [(number, session.feeds.get(number), taken) for number, taken in asked]
        known = [(number, feed, taken) for number, feed, taken in feeds if feed is not None]
        if len(known) < len(feeds):
            return Packet(LOST)
        if wait_s is None:
            for _, feed, taken in known:
                feed.confirm(taken)
            return Packet(NONE)
        with_progress = packet.fields.get("progress", [])
        for number, feed, _ in known:
            if isinstance(feed, ViewFeed):
                feed.wants_progress = isinstance(with_progress, list) and number in with_progress
        is_time = isinstance(wait_s, int | float) and wait_s >= 0
        found = next_of({feed: taken for _, feed, taken in known}, min(float(wait_s), POLL_S) if is_time else 0.0)
        if found is None:
            return Packet(NONE, {"ended": [number for number, feed, _ in known if feed.is_ended]})
        feed, item = found
        told = {"query": next(number for number, one, _ in known if one is feed), "number": feed.number}
        if isinstance(item, WukongsError):
            return Packet(FAILED, {**failed(item).fields, **told, "end_ms": feed.told_ms})
        return Packet(WINDOW, {**told, "head": item.head()}, item.chunk(0))


def _is_pair(one: object) -> bool:
    return isinstance(one, list) and len(one) == 2 and all(type(part) is int and 0 <= part < 1 << 62 for part in one)


def _guarded(answer: Callable[[Packet], Packet]) -> Handler:
    """Tell an error as a packet of ours, so that an error of the node is not taken for one of the connection."""

    def handler(packet: Packet) -> Packet:
        try:
            return answer(packet)
        except Exception as error:
            if not isinstance(error, WukongsError):
                log.exception("a request of a client has failed")
            return failed(error)

    return handler


def _waited_for(take: Quick) -> Handler:
    """Return what waits for the reply."""

    def handler(packet: Packet) -> Packet:
        replies = SimpleQueue[Packet]()
        take(packet, replies.put)
        return replies.get()

    return handler


def _text(packet: Packet, name: str) -> str:
    value = packet.fields.get(name)
    if not isinstance(value, str):
        raise DataError(f"packet '{packet.kind}': expected {name} as a text, found {value!r}")
    return value


def _numbers(packet: Packet, name: str) -> list[int]:
    """Return numbers of calls."""
    found = packet.fields.get(name, [])
    if not isinstance(found, list) or not all(type(one) is int and 0 <= one < 1 << 62 for one in found):
        raise DataError(f"packet '{packet.kind}': expected {name} as numbers of calls, found {found!r:.100}")
    return found


def _integer(packet: Packet, name: str) -> int:
    value = packet.fields.get(name)
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise DataError(f"packet '{packet.kind}': expected {name} as an integer from 0 on, found {value!r}")
    return value
