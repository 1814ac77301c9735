"""Blocks: the windows of queries that fire as one (joined_queries.py), from which each takes its own part.

Used with the lock of the window logs held.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from wukongs.errors import WukongsError
from wukongs.live.stretch import Stretch
from wukongs.live.window_log import LAST_MS, WINDOW_BYTES, Gap, UnreadBudget
from wukongs.query.output.results import WindowResult
from wukongs.store.dtypes import Int64Array

MANY = 16
"""Requests for rows at which the places of the rows of all queries are computed."""


@dataclass(slots=True, eq=False)
class Block:
    """A window of all queries of a group, or the error or gap in its place. stretch: the firings, up to its end, for
    which it stands, None: one; numbers : int64[rows], rising, of the
    queries that its rows are for; left: queries that have not taken their part; taken: those that have, of a silent
    window; over: queries that have an error in its place, since they have more rows than they may, and how many."""

    end_ms: int
    item: WindowResult | WukongsError
    gap: Gap | None
    stretch: Stretch | None
    numbers: Int64Array
    left: int = 0
    taken: list[int] = field(default_factory=list)
    over: dict[int, int] = field(default_factory=dict)
    _asked: int = 0
    """Number of requests for rows."""
    _starts: list[int] | None = None
    """Where the rows of each query begin, once that was often."""

    @property
    def begin_ms(self) -> int:
        """The first firing that it stands for."""
        if self.stretch is not None:
            return self.stretch.first_ms
        return self.end_ms if self.gap is None else self.gap.from_ms

    @property
    def count(self) -> int:
        """How many windows of a query it stands for."""
        return 1 if self.stretch is None else self.stretch.count

    @property
    def size_bytes(self) -> int:
        return WINDOW_BYTES + (self.item.size_bytes if isinstance(self.item, WindowResult) else 0)

    def rows_of(self, number: int) -> tuple[int, int]:
        """Return where the rows of a query begin and end."""
        if self._starts is None:
            self._asked += 1
            if self._asked < MANY:
                lo = int(self.numbers.searchsorted(number))
                return lo, int(self.numbers.searchsorted(number, "right"))
            end = int(self.numbers[-1]) + 2 if len(self.numbers) else 1
            self._starts = self.numbers.searchsorted(np.arange(end)).tolist()
        starts = self._starts
        return (starts[number], starts[number + 1]) if number + 1 < len(starts) else (starts[-1], starts[-1])


class Watcher(Protocol):
    """A query for whose windows somebody waits."""

    def draw(self) -> None:
        """Take its part out of the newest block."""


class Blocks:
    """The blocks of a group by their place, from the oldest that somebody has not taken. A Holder of the budget.

    is_silent: windows without rows are not reported, so a block is kept only for queries that have rows in it."""

    ends_when_full = False

    def __init__(self, is_silent: bool, budget: UnreadBudget | None) -> None:
        """budget: None for blocks that are counted no more."""
        self.is_silent = is_silent
        self.end = 0
        """The place of the next block."""
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        """The firings of the first and the last block."""
        self.size_bytes = 0
        self.watched: dict[int, Watcher] = {}
        """Queries for whose windows somebody waits."""
        self.dropped: dict[int, Gap] = {}
        """Query -> the silent windows that it has lost."""
        self._held: dict[int, Block] = {}
        self._stretches = 0
        """Blocks that are held and stand for more than one window."""
        self._is_over = False
        self._budget = budget
        if budget is not None:
            budget.join(self)

    @property
    def count_held(self) -> int:
        return len(self._held)

    def untaken_ms(self) -> int | None:
        """Return the end of the oldest window, or error, that is held; None if there is none."""
        return next((block.begin_ms for block in self._held.values() if block.gap is None), None)

    def add(self, block: Block) -> None:
        if block.end_ms < LAST_MS:
            if self.first_ms is None:
                self.first_ms = block.begin_ms if block.gap is None else block.end_ms
            self.last_ms = block.end_ms
        if block.left:
            self._held[self.end] = block
            self._stretches += block.stretch is not None
            self._grow(block.size_bytes)
            if self._budget is not None:
                self._budget.make_room(self)
        self.end += 1

    def held_from(self, place: int) -> Iterator[tuple[int, Block]]:
        """Yield the blocks that are held from a place on, with their places."""
        oldest = next(iter(self._held), self.end)
        for at in range(max(place, oldest), self.end):
            block = self._held.get(at)
            if block is not None:
                yield at, block

    def at(self, place: int) -> Block | None:
        """Return a block that is held, None if none is there."""
        return self._held.get(place)

    def concerns(self, block: Block, number: int) -> bool:
        """Return whether a query has a part in a block."""
        if not self.is_silent or not isinstance(block.item, WindowResult):
            return True
        lo, hi = block.rows_of(number)
        return hi > lo or number in block.over

    def count_for(self, number: int, place: int, since_ms: int) -> int:
        """Return how many windows a query has to take from a place on. since_ms: its first firing."""
        if not self.is_silent and self._stretches == 0:  # all take all, in order
            places = range(max(place, next(iter(self._held), self.end)), self.end)
            return len(places) - bisect_left(places, since_ms, key=lambda at: self._held[at].end_ms)
        held = (block for _, block in self.held_from(place) if block.end_ms >= since_ms)
        return sum(block.count for block in held if self.concerns(block, number))

    def done(self, place: int, block: Block, number: int) -> None:
        """Note that a query has taken its part, which had begun by then."""
        block.left -= 1
        if self.is_silent:
            block.taken.append(number)
        if block.left <= 0:
            self._let_go(place)

    def _let_go(self, place: int) -> None:
        block = self._held.pop(place, None)
        if block is not None:
            self._stretches -= block.stretch is not None
            self._grow(-block.size_bytes)
            if self._is_over:
                self.end_here()

    def end_here(self) -> None:
        """Be counted no more once the last block is taken: none comes any more."""
        self._is_over = True
        if self._budget is not None and not self._held:
            self._budget.leave(self)

    def _grow(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        if self._budget is not None:
            self._budget.count(self, size_bytes)

    def drop_oldest(self) -> None:
        """Drop the oldest block, for the budget. Of silent windows note which queries lose one."""
        place, block = next(iter(self._held.items()))
        self._let_go(place)
        if self.is_silent:
            gap = Gap(block.begin_ms, block.end_ms, block.count)
            for number in np.setdiff1d([*block.numbers.tolist(), *block.over], block.taken).tolist():
                known = self.dropped.get(number)
                self.dropped[number] = gap if known is None else Gap.joined((known, gap))

    @staticmethod
    def end_full() -> None:
        raise AssertionError("blocks are dropped")

    def rest(self, number: int, place: int, since_ms: int) -> Blocks:
        """Return blocks that are one query's alone, with all that it has not taken, and count it no more here.
        since_ms: its first firing."""
        own = Blocks(self.is_silent, None)
        own.first_ms, own.last_ms, own.end = self.first_ms, self.last_ms, self.end
        if (gap := self.dropped.pop(number, None)) is not None:
            own.dropped[number] = gap
        for at, block in list(self.held_from(place)):
            if block.end_ms >= since_ms and self.concerns(block, number):
                own._held[at] = replace(block, left=1, taken=[])
                own._stretches += block.stretch is not None
                self.done(at, block, number)
        return own
