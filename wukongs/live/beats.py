"""Beats: the registered queries of one engine by when they are due.

A beat is all queries that have the same windows and fire equally often. They are due at the same times, and need the
same slices. So who is due is asked of each beat in place of each query, and so is what has to be kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from wukongs.live.continuous import ContinuousQuery


class Beat:
    """Queries by the time of their next firing; None: it is not known yet. Some queries are there, in any order."""

    def __init__(self, key: object) -> None:
        self.key = key
        self.waiting: dict[int | None, dict[ContinuousQuery, None]] = {}

    def put(self, query: ContinuousQuery, next_ms: int | None) -> None:
        self.waiting.setdefault(next_ms, {})[query] = None

    def take(self, query: ContinuousQuery, next_ms: int | None) -> None:
        queries = self.waiting[next_ms]
        del queries[query]
        if not queries:
            del self.waiting[next_ms]

    def due(self) -> int | None:
        """Return the time of the next firing if it is covered, None if not."""
        if None in self.waiting and next(iter(self.waiting[None])).times.next_firing() is not None:
            for query in list(self.waiting.get(None, ())):
                query.times.next_firing()
        first = self._first()
        return None if first is None else first.times.due()

    def reads_sn(self, at_ms: int) -> int:
        """Return the snapshot number that the firings at a time read once everything up to then is sealed; -1 if they
        read no stored graph."""
        first = self._first()
        return -1 if first is None else first.times.reads_sn(at_ms)

    @property
    def first_ms(self) -> int | None:
        """The earliest next firing that is known."""
        return min((ms for ms in self.waiting if ms is not None), default=None)

    def _first(self) -> ContinuousQuery | None:
        at_ms = self.first_ms
        return None if at_ms is None else next(iter(self.waiting[at_ms]))

    def earliest(self) -> Iterator[ContinuousQuery]:
        """Yield one of the queries that fire first, and one of those of which it is not known when they will."""
        if (first := self._first()) is not None:
            yield first
        if None in self.waiting:
            yield next(iter(self.waiting[None]))


class Beats:
    """Called with the engine's lock held."""

    def __init__(self) -> None:
        self._beats: dict[object, Beat] = {}
        self._stand: dict[ContinuousQuery, tuple[Beat, int | None]] = {}
        """Query -> its beat, and the time by which it stands there."""

    def __iter__(self) -> Iterator[Beat]:
        return iter(list(self._beats.values()))

    def add(self, query: ContinuousQuery) -> None:
        """Let a query be asked for."""
        query.times.next_firing()
        self._put(query)

    def _put(self, query: ContinuousQuery) -> None:
        beat = self._beats.get(query.text.beat)
        if beat is None:
            beat = self._beats[query.text.beat] = Beat(query.text.beat)
        query.text.beat = beat  # it is found by identity from now on
        beat.put(query, query.times.next_ms)
        self._stand[query] = beat, query.times.next_ms

    def remove(self, query: ContinuousQuery) -> None:
        """Forget a query."""
        beat, next_ms = self._stand.pop(query)
        beat.take(query, next_ms)
        if not beat.waiting:
            del self._beats[beat.key]

    def moved(self, query: ContinuousQuery) -> None:
        """Note that a query fires next at another time, or has other windows. One that was not added is nobody's."""
        stood = self._stand.get(query)
        if stood is None:
            return
        beat, before_ms = stood
        if beat is not query.text.beat:
            self.remove(query)
            self._put(query)
        elif query.times.next_ms != before_ms:
            beat.take(query, before_ms)
            beat.put(query, query.times.next_ms)
            self._stand[query] = beat, query.times.next_ms

    def advance(self, beat: Beat, queries: Collection[ContinuousQuery], from_ms: int, next_ms: int) -> None:
        """Note that queries of a beat, which were due at one time, fire next at another one."""
        waiting = beat.waiting[from_ms]
        for query in queries:
            del waiting[query]
        if not waiting:
            del beat.waiting[from_ms]
        beat.waiting.setdefault(next_ms, {}).update(dict.fromkeys(queries))
        self._stand.update(dict.fromkeys(queries, (beat, next_ms)))

    def earliest(self) -> Iterator[ContinuousQuery]:
        """Yield queries that say for all what is needed: of each beat those that fire first."""
        for beat in self:
            yield from beat.earliest()
