"""MadeStreams: the streams that registered queries make (REGISTER STREAM), for other queries of the same engine
(docs/decisions/0036-streams-made-by-queries.md).

* The triples of the firing at t are tuples with timestamp t. batch_ms is the producer's firing period.
* A firing is decided once it is reported, left out or has failed. The stream is closed up to the time up to which all
  firings of its producer are decided.
* A decision is in the log before anybody sees it: its tuples as `Pushed`, or a `Close` if it has none. Replay takes
  decisions from there. It repeats firings, too, but those of them that the log has decided bring nothing again.
* The stored graph may have moved on beyond the windows that a decision lets readers report, as after a pause. Then the
  decision waits until all that is due has fired, and a "join" record closes the stream: from it on readers know which
  snapshot they read, as they do of a late stream.

All tuples are timing, and the clock of the stored graph waits for no such stream. If the user has declared it before
its producer, its timeless tuples also join the stored graph, at the next SN.

A live view makes a stream of another name (register's into=): the triples that a period has inserted are tuples with
its end as timestamp, and those that it has deleted are retractions, if the stream has timeless ones.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from wukongs.errors import StorageError, StreamError
from wukongs.live.core import NOT_YET_MS, Core, take_piece
from wukongs.live.pieces import Close, Piece, Pushed, timing_mask
from wukongs.live.stream_state import FOREVER_MS, StreamState
from wukongs.live.windows import Watermark
from wukongs.query.output.results import WindowResult
from wukongs.query.output.view_report import ViewReport
from wukongs.store.dtypes import UNBOUND
from wukongs.store.encoded import NO_SIGNS, Encoded, TermCutter, signs, signs_of
from wukongs.store.encoder import encode_texts

PRODUCER = "made"
"""The source partition of all tuples of a stream that a query makes."""
MADE = "made"
"""The option of a stream that was declared for the first reader of what a query makes."""
Triples: TypeAlias = WindowResult | ViewReport
"""The triples of a firing, or of a period of a live view."""
log = logging.getLogger("wukongs")


class Producer(Protocol):
    """A registered query or a live view, which may make a stream. made: that stream, if it is there."""

    name: str
    made: Made | None

    @property
    def is_paused(self) -> bool: ...
    @property
    def makes(self) -> str | None:
        """The IRI of the stream that it makes, None: it makes none."""

    @property
    def is_firing(self) -> bool:
        """Whether a firing was picked and is not decided yet."""

    def reads(self, stream_iri: str) -> bool:
        """Tell whether one of its windows is over a stream."""

    def decided_ms(self) -> int | None:
        """Return the time up to which all firings are decided when nothing is due: FOREVER_MS if none comes any more,
        None if that cannot be told. Called with the lock held."""

    def settled_decided_ms(self) -> tuple[int | None, bool]:
        """Return the time up to which all firings will be decided once those that are due have been reported, None if
        that cannot be told, and whether none follows. Called with the lock held."""

    def settled_next_ms(self) -> int | None:
        """Return the time of the next firing, also if it will only be known once firings of other queries have been
        reported that are due; None if it depends on what follows. Called with the lock held."""


class Made(Protocol):
    """One stream that a query makes, as the query and its readers see it: a MadeStream, or on a cluster what brings it
    to the nodes (wukongs.cluster.made_feeds). failure: why it takes nothing more; is_full: its query has to wait;
    is_sending: the nodes do not have all of it yet."""

    state: StreamState
    producer: Producer | None
    failure: str | None

    @property
    def is_behind(self) -> bool: ...

    @property
    def is_full(self) -> bool: ...

    @property
    def is_sending(self) -> bool: ...

    @property
    def decided_to_ms(self) -> int: ...

    def settled_watermark(self) -> Watermark: ...

    def decide(self, at_ms: int, window: Triples | None, logged: Callable[[], object] | None = None) -> None: ...

    def begin_after(self, decided_ms: int | None) -> None: ...

    def goes_on_from(self, from_ms: int | None, is_stored: bool) -> int | None: ...

    def go_on(self) -> bool: ...

    def log_undecided(self) -> bool: ...

    def end(self) -> None: ...

    def leave(self) -> None: ...


class Feeds(Protocol):
    """The way of what queries make to the nodes of a cluster, in place of the log of an engine. elsewhere: what is
    known of the query of a stream that another node runs, in words; None: no node runs it."""

    def feed(self, stream_iri: str, wake: Callable[[], None]) -> Made: ...

    def elsewhere(self, stream_iri: str) -> str | None: ...


class MadeStream:
    """One stream that a query makes. producer: the query; None once it has ended. Called with the engine's lock held,
    except for decide."""

    def __init__(self, core: Core, state: StreamState, wake: Callable[[], None]) -> None:
        self.state = state
        self.producer: Producer | None = None
        self.failure: str | None = None
        self._core = core
        self._wake = wake
        self._undecided: deque[tuple[int, Triples | None]] = deque()
        """Firings, with what they have brought, whose decisions are not in the log yet."""
        self._join_ms: int | None = None
        """Decisions up to there are taken, and wait for a join record to close the stream."""
        self._cannot_log = False

    @property
    def is_full(self) -> bool:
        """Never: what finds no room is not taken."""
        return False

    @property
    def is_sending(self) -> bool:
        """Never: there is no other node."""
        return False

    @property
    def is_behind(self) -> bool:
        """Whether readers may come further by what is under way."""
        is_firing = self.producer is not None and self.producer.is_firing
        waits = bool(self._undecided) or self._join_ms is not None
        return is_firing or (waits and not self._cannot_log)

    def decide(self, at_ms: int, window: Triples | None, logged: Callable[[], object] | None = None) -> None:
        """Log what the firing at a time has brought, None: nothing, and let readers have it. Called by the thread that
        fires, or moves views, with or without the lock. Returns when the record is safe; if none can be written, go_on
        tries again. logged: of clusters."""
        core = self._core
        is_replay = core.replayed_to is not None
        encoded = None if is_replay else self._encoded(window, at_ms)
        lsn = 0
        with core.lock:
            if not self._is_open or self._is_decided(at_ms):
                return
            while self._undecided and self._is_decided(self._undecided[0][0]):
                self._undecided.popleft()
            is_kept = is_replay or bool(self._undecided)
            if not is_kept:
                try:
                    lsn = self._log(at_ms, encoded)
                except StorageError as error:
                    self._told(error)
                    is_kept = True
            if is_kept:
                self._undecided.append((at_ms, window))
            if self._join_ms is not None:
                self._wake()
        if lsn:
            core.journal.wait(lsn)

    def _encoded(self, window: Triples | None, at_ms: int) -> Encoded | None:
        """Return what a firing has brought as tuples; None if it is nothing."""
        return encoded_window(window, at_ms, self._core.settings.hash_bits, self.state.timing)

    @property
    def _is_open(self) -> bool:
        return not (self.state.is_ended or self.state.is_dropped)

    @property
    def decided_to_ms(self) -> int:
        """The time up to which readers have what firings have brought, or never get it."""
        known = (self.state.last_ms, self.state.stands_ms(PRODUCER), self._join_ms)
        return max((ms for ms in known if ms is not None), default=NOT_YET_MS) if self._is_open else FOREVER_MS

    def settled_watermark(self) -> Watermark:
        """Return the watermark of the stream once all firings that are due by now are decided."""
        state, producer = self.state, self.producer
        if not self._is_open:
            return Watermark.of_stream(state)
        first_ms, to_ms, is_over = state.first_ms, self.decided_to_ms, False
        if self._undecided:
            to_ms = max(to_ms, self._undecided[-1][0])
        if producer is not None and not producer.is_paused:
            decided_ms, is_over = producer.settled_decided_ms()
            first_due_ms = producer.settled_next_ms()
            if decided_ms is not None and first_ms is None and first_due_ms is not None:
                first_ms = first_due_ms if first_due_ms <= decided_ms else None
            if decided_ms is not None and first_ms is not None:
                to_ms = max(to_ms, state.floor(decided_ms))
        closed_ms = None if to_ms == NOT_YET_MS else to_ms
        if is_over:
            return Watermark(FOREVER_MS, closed_ms, first_ms)
        return Watermark(None if closed_ms is None else closed_ms + state.batch_ms - 1, closed_ms, first_ms)

    def _is_decided(self, at_ms: int) -> bool:
        return at_ms <= self.decided_to_ms

    def _is_late(self, at_ms: int) -> bool:
        """Tell whether the stored graph has moved on beyond the first window that readers may report if the stream is
        closed up to a time."""
        sealed_ms, closed_ms = self._core.sealed_ms, self.state.closed_ms
        first_ms = at_ms if closed_ms is None else closed_ms + self.state.batch_ms
        return self._join_ms is not None or (sealed_ms is not None and first_ms < sealed_ms)

    def _log(self, at_ms: int, encoded: Encoded | None) -> int:
        """Log and take a decision; return the record to wait for, 0: there is none. Raises StorageError."""
        if self._is_decided(at_ms):
            return 0
        state, journal, is_late = self.state, self._core.journal, self._is_late(at_ms)
        if encoded is not None and not self._has_room(at_ms, encoded):
            encoded = None
        if encoded is None and is_late:
            self._join_ms = at_ms
            return 0
        if encoded is None:
            journal.prepare()
            return self._close(at_ms)
        first = state.open_partition(PRODUCER).end_offset
        is_timing = timing_mask(encoded, state.timing)
        inserts = ~signs_of(encoded.goes, len(encoded))
        piece = Piece(state.iri, PRODUCER, 0, first, first + len(encoded), 0, 0, encoded, inserts)
        sn = None if is_timing.all() else self._core.next_sn
        pushed = Pushed(piece, None if is_late else at_ms, sn)
        if sn is not None:
            lsn = journal.commit(pushed)
            take_piece(self._core, state, inserted(piece))
            self.taken(pushed)
            return lsn
        journal.prepare()
        take_piece(self._core, state, piece)
        if not is_late:
            state.promise(PRODUCER, at_ms)
        return journal.note(pushed, lambda: self.taken(pushed))

    def _has_room(self, at_ms: int, encoded: Encoded) -> bool:
        """Tell whether tuples may wait; if not, log that windows of readers cannot be told. Raises StorageError."""
        try:
            self.state.check_room(len(encoded))
        except StreamError as error:
            number = at_ms // self.state.batch_ms
            self._core.journal.commit({"op": "refuse", "stream": self.state.iri, "stream_batch": number})
            self.state.refuse(number)
            log.warning("window ending at %d ms: its %d triples are not taken: %s", at_ms, len(encoded), error)
            return False
        return True

    def _close(self, to_ms: int) -> int:
        """Log that all firings up to a time are decided, of which the last ones have brought nothing; return the
        record, after journal.prepare()."""
        state = self.state
        state.promise(PRODUCER, to_ms)
        close = Close(state.iri, PRODUCER, 0, state.open_partition(PRODUCER).end_offset, to_ms)
        return self._core.journal.note(close, lambda: self._complete(to_ms))

    def taken(self, pushed: Pushed) -> None:
        """Close the stream up to what was taken, if no join does it, and let what is timeless join the stored graph,
        unless a checkpoint holds it already."""
        core, state, sn = self._core, self.state, pushed.sn
        state.begin_with(pushed.piece.encoded.timestamps)
        if sn is not None and sn < core.arrangement.trace.upper:
            core.pass_to(sn + 1)
        elif sn is not None:
            self._store(sn, pushed.piece.encoded)
        if pushed.stands_ms is None:
            self._join_ms = int(pushed.piece.encoded.timestamps[-1])
            self._wake()  # a view is not moved by the thread that lets the stream go on
        else:
            self._complete(pushed.stands_ms)

    def _store(self, sn: int, encoded: Encoded) -> None:
        """Have timeless tuples join the stored graph, and retractions delete."""
        core, state = self._core, self.state
        is_timeless, goes = ~timing_mask(encoded, state.timing), signs_of(encoded.goes, len(encoded))
        cutter = TermCutter(encoded)
        parts = [cutter.cut(np.flatnonzero(is_timeless & is_wanted)) for is_wanted in (goes, ~goes)]
        deleted, inserted = (core.registry.confirm(replace(part, goes=NO_SIGNS))[0] for part in parts)
        if len(deleted):
            core.apply(sn, [deleted], [inserted], state.into)
        else:
            core.absorb(sn, [inserted], state.into)

    def join(self, to: int, sn: int) -> None:
        """Carry out a join record: close the stream up to a stream batch, for readers of the snapshot that it makes."""
        self._core.join(self.state, to, sn)
        self._join_ms = None
        if to < FOREVER_MS // self.state.batch_ms:
            self._complete(to * self.state.batch_ms)

    def _complete(self, to_ms: int) -> None:
        if not self.state.is_dropped:
            self.state.complete(PRODUCER, to_ms)
            self._wake()

    def begin_after(self, decided_ms: int | None) -> None:
        """Let the stream begin with the firings after a time. Raises StorageError."""
        if decided_ms is not None:
            self._core.journal.prepare()
            self._core.journal.wait(self._close(self.state.floor(decided_ms)))

    def goes_on_from(self, from_ms: int | None, is_stored: bool) -> int | None:
        """Return from when another query of the same name counts: it leaves out nothing that was not decided, but a
        query that reads stored graphs (is_stored) does not go back. from_ms: from when it would count otherwise."""
        decided_ms = self.state.stands_ms(PRODUCER)
        if decided_ms is None:
            return from_ms
        return decided_ms if from_ms is None or not is_stored else max(decided_ms, from_ms)

    def go_on(self) -> bool:
        """Log what is not decided yet, when all that was due has fired; return whether there was anything."""
        if self._core.replayed_to is not None or not self._is_open:
            return False
        try:
            is_news = self._go_on()
        except StorageError as error:
            self._told(error)
            return False
        self._cannot_log = False
        return is_news

    def _told(self, error: StorageError) -> None:
        if not self._cannot_log:
            log.warning("stream %s, which a query makes, does not go on yet: %s", self.state.iri, error)
        self._cannot_log = True

    def log_undecided(self) -> bool:
        """Log the firings whose decisions are not in the log yet; return whether there was one. Raises StorageError."""
        if not self._undecided or not self._is_open:
            return False
        lsn = 0
        while self._undecided:
            at_ms, window = self._undecided[0]
            lsn = max(lsn, self._log(at_ms, self._encoded(window, at_ms)))
            self._undecided.popleft()
        if lsn:
            self._core.journal.wait(lsn)
        return True

    def _go_on(self) -> bool:
        state, journal, is_news = self.state, self._core.journal, self.log_undecided()
        decided_ms = None if self.producer is None else self.producer.decided_ms()
        if decided_ms == FOREVER_MS:
            self.end()
            return True
        if decided_ms is not None and state.is_started and not self._is_decided(to_ms := state.floor(decided_ms)):
            if self._is_late(to_ms):
                self._join_ms = to_ms
            else:
                journal.prepare()
                journal.wait(self._close(to_ms))
            is_news = True
        return self._join(self._join_ms) or is_news

    def _join(self, to_ms: int | None) -> bool:
        if to_ms is None:
            return False
        core, to = self._core, to_ms // self.state.batch_ms
        sn = core.next_sn
        core.journal.commit({"op": "join", "stream": self.state.iri, "to": to, "sn": sn})
        self.join(to, sn)
        return True

    def end(self) -> None:
        """End the stream: readers have the last windows. Raises StorageError."""
        state = self.state
        if not self._is_open:
            return
        self.log_undecided()
        self._join(self._join_ms)
        if state.closed_ms is not None and self._is_late(state.closed_ms):
            self._join(FOREVER_MS)
        self._core.journal.commit({"op": "end", "stream": state.iri})
        state.end()
        self._undecided.clear()
        self._core.progress.moved(self._core)
        self._wake()

    def leave(self) -> None:
        """Nothing: no query goes on elsewhere."""


class MadeStreams:
    """The streams of one engine that queries make, by their IRIs. queries: the registered ones. Called with the lock
    held."""

    def __init__(self, core: Core, queries: Mapping[str, Producer], wake: Callable[[], None]) -> None:
        self._core, self._queries, self._wake = core, queries, wake
        self._made: dict[str, Made] = {}
        self._feeds: Feeds | None = None

    def feed_by(self, feeds: Feeds) -> None:
        """Let a cluster take what queries make from now on."""
        self._feeds = feeds

    def get(self, stream_iri: str) -> Made | None:
        return self._made.get(stream_iri)

    def settled_watermark(self, state: StreamState) -> Watermark:
        """Return the watermark that a stream has once all firings that are due by now have been reported."""
        made = self._made.get(state.iri) if state.is_made else None
        return Watermark.of_stream(state) if made is None else made.settled_watermark()

    def settled_closed_ms(self, state: StreamState) -> int | None:
        """Return up to where a stream is closed then, None if nothing of it is."""
        return self.settled_watermark(state).closed_ms

    def add(self, state: StreamState) -> Made:
        """Let a stream that is declared be made by the query of its name, once that is there."""
        if not state.is_made:
            state.open_partition(PRODUCER)
            state.is_made = True
        made: Made = MadeStream(self._core, state, self._wake)
        if self._feeds is not None:
            made = self._feeds.feed(state.iri, self._wake)
        self._made[state.iri] = made
        producer = self._queries.get(state.iri)
        if producer is not None:
            self.attach(producer)
        return made

    def attach(self, query: Producer) -> None:
        """Let a query that was registered make its stream, if that is there for it."""
        made = None if query.makes is None else self._made.get(query.makes)
        if made is not None:
            made.producer, query.made = query, made

    def leave(self, query: Producer) -> None:
        """Let a query that has ended make its stream no more. The stream stays as it is, and another one goes on."""
        made = None if query.makes is None else self._made.get(query.makes)
        if made is not None and made.producer is query:
            made.producer = None

    def forget(self, stream_iri: str) -> None:
        """Forget a stream that was dropped."""
        made = self._made.pop(stream_iri, None)
        if made is not None and made.producer is not None:
            made.producer.made = None

    def readers_of(self, stream_iri: str) -> list[str]:
        """Name the registered queries that read a stream."""
        return sorted(name for name, query in self._queries.items() if query.reads(stream_iri))

    def drop_unread(self, stream_iri: str) -> None:
        """Drop a stream that no query makes any more and none reads, unless the user has declared it. Raises
        StorageError."""
        made = self._made.get(stream_iri)
        if self._feeds is not None:
            return  # a record drops it (QueryLog.drop_unread)
        if made is None or made.producer is not None or MADE not in made.state.options:
            return
        if not self.readers_of(stream_iri):
            self._core.journal.commit({"op": "drop", "stream": stream_iri})
            self._core.drop_stream(made.state)
            self.forget(stream_iri)

    @property
    def is_behind(self) -> bool:
        """Whether readers of one of them may come further by what is under way."""
        return any(made.is_behind for made in self._made.values())

    @property
    def is_sending(self) -> bool:
        """Whether the nodes of a cluster do not have yet what queries have made."""
        return self._feeds is not None and self.is_behind

    def log_undecided(self) -> None:
        """Log what queries have made and is not in the log yet: a checkpoint forgets what it was made of. Raises
        StorageError."""
        for made in self._made.values():
            made.log_undecided()

    def go_on(self) -> bool:
        """Let all go on, when everything due has fired; return whether there was anything to do."""
        is_news = False
        for made in list(self._made.values()):
            is_news |= made.go_on()
        return is_news

    def why(self, streams: Mapping[str, Any]) -> str:
        """Return, in words, which producers of streams are paused or have ended before their streams."""
        told = ""
        for name in streams:
            made = self._made.get(name)
            if made is None or made.state.is_ended:
                continue
            if made.failure is not None:
                told += f"; the query that makes {name} brings nothing more: {made.failure}"
            elif made.producer is None and self._feeds is not None and (far := self._feeds.elsewhere(name)) is not None:
                told += far
            elif made.producer is None:
                told += f"; the query that makes {name} has ended with an error, or is not registered yet: register it"
            elif made.producer.is_paused:
                told += f"; the query that makes {name} is paused"
        return told


def inserted(piece: Piece) -> Piece:
    """Return a piece without its retractions, which no window has."""
    encoded = piece.encoded
    if not len(encoded.goes):
        return piece
    encoded = TermCutter(encoded).cut(np.flatnonzero(~encoded.goes))
    return replace(piece, encoded=encoded, timing=np.ones(len(encoded), np.bool_))


def encoded_window(
    window: Triples | None, at_ms: int, hash_bits: int, timing: bool | tuple[str, ...]
) -> Encoded | None:
    """Return the triples of a window as tuples with its time, those that a view has deleted as retractions; None if
    there are none. Blank nodes stay the same. timing: of the stream; its timing tuples are not retracted."""
    if window is None or not len(window):
        return None
    columns = window.ids(0, len(window))
    distinct, places = np.unique(np.concatenate(columns), return_inverse=True)
    encoded = encode_texts(window.reader.texts(distinct), hash_bits)
    subjects, predicates, objects = np.split(encoded.subjects[places], 3)
    rows = len(subjects)
    encoded = replace(
        encoded,
        subjects=subjects,
        predicates=predicates,
        objects=objects,
        graphs=np.full(rows, UNBOUND),
        timestamps=np.full(rows, at_ms, np.int64),
        goes=signs(window.weights < 0) if isinstance(window, ViewReport) else NO_SIGNS,
    )
    if not len(encoded.goes):
        return encoded
    kept = np.flatnonzero(~(encoded.goes & timing_mask(encoded, timing)))
    return TermCutter(encoded).cut(kept) if len(kept) else None
