"""Live sources against a plain model: lists of rows, a simulated clock and a strict node; kills at any point.

A row is late if its time is before the newest so far less lateness_ms, or not after what was declared complete. A row
that the node has is one that this rule lets in, once, and no such row is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.unit.adapters.helpers import triples_of
from wukongs.adapters import live_planner
from wukongs.adapters.feeds.feed import Feed, FileFeed, Look, Waits
from wukongs.adapters.live_planner import AHEAD_EPOCHS, LivePlanner, LivePosition
from wukongs.adapters.push import WorkItem, push_item
from wukongs.adapters.run_config import PipelineConfig
from wukongs.adapters.source import PreparedSource, RowRange, Rows, SetAside
from wukongs.adapters.sources.timestamped_file import prepare_timestamped
from wukongs.adapters.spark import driver as driver_module
from wukongs.adapters.spark.driver import PipelineDriver, item_of
from wukongs.live.pieces import Piece
from wukongs.live.wall_clock import DAY_MS
from wukongs.store.encoder import encode_ntriples
from wukongs.wire.messages import Opened

Row = tuple[int | None, int]
"""Its time (None: it cannot be read) and how many triples it gives."""
BATCH_MS = 10


class Killed(Exception):
    """The writer is gone."""


@dataclass(frozen=True, eq=False)
class ListSource:
    """Reads rows of a list; judges them by nothing but the range and lateness_ms, as workers do."""

    partition: str
    rows: list[Row]
    lateness_ms: int

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        newest, text, offsets = rows.floor_ms, "", list[int]()
        bad, late = list[SetAside](), list[SetAside]()
        for number in range(rows.first_offset, rows.end_offset):
            time_ms, count = self.rows[number]
            if time_ms is None:
                bad.append(SetAside(self.partition, number + 1, 1, "bad", "", number))
            elif time_ms < newest - self.lateness_ms:
                late.append(SetAside(self.partition, number + 1, 1, "late", "", number, time_ms=time_ms))
            else:
                newest = max(newest, time_ms)
                for one in range(count):
                    text += f'<http://ex/{number}> <http://ex/p> "{one}" . {time_ms}\n'
                    offsets.append(number)
        encoded, _ = encode_ntriples(text.encode(), scope, timestamps="suffix", hash_bits=hash_bits)
        return Rows(encoded, np.array(offsets, np.int64), bad, late, newest)


@dataclass(eq=False)
class ListFeed:
    """A feed of a list, of which as many rows are there as have arrived. It keeps them all. knows: it says up to when
    it is complete, as a clock does."""

    stream: str
    source: ListSource
    waits: Waits
    chunk_rows: int = 3
    arrived: int = 0
    is_open: bool = True
    is_heard: bool = True
    released: int = 0
    knows: bool = False

    def begin(self, row: int, had: Sequence[int] = ()) -> int:
        return row

    def look(self) -> Look:
        return Look(self.arrived, self.is_open, self.is_heard, self.known_ms if self.knows else None)

    @property
    def known_ms(self) -> int:
        """Just before the earliest row that is still to come."""
        return min((ms for ms, _ in self.source.rows[self.arrived :] if ms is not None), default=1000) - 1

    def ranges(self, first: int, end: int, floor_ms: int) -> Sequence[RowRange]:
        assert 0 <= first < end <= self.arrived
        starts = range(first, end, self.chunk_rows)
        return [RowRange(at, min(end, at + self.chunk_rows), 0, 0, floor_ms) for at in starts]

    def release(self, row: int) -> None:
        self.released = max(self.released, row)

    def close(self) -> None:
        pass


@dataclass
class Part:
    end: int = 0
    complete_ms: int | None = None
    epoch: int = 0
    is_finished: bool = False
    held: list[tuple[int, int]] = field(default_factory=list)
    """The row and the time of each triple, in order."""


class StrictNode:
    """A node and the link to it. Pieces tile the rows; repeats are dropped; nothing comes at or before what was
    declared complete. Once kill_in points are passed, one before and one after each call, the writer is killed."""

    sent_bytes = 0

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self.kill_in: int | None = None

    def open(self, stream: str, partition: str, epoch: int) -> Opened:
        part = self.parts.setdefault(partition, Part())
        part.epoch = epoch
        return Opened(BATCH_MS, None, True, part.end, 62, part.complete_ms)

    @contextmanager
    def _call(self, partition: str, epoch: int) -> Iterator[Part]:
        self._passed()
        part = self.parts[partition]
        assert epoch == part.epoch
        yield part
        self._passed()

    def _passed(self) -> None:
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                self.kill_in = None
                raise Killed

    def send(self, piece: Piece) -> None:
        with self._call(piece.partition, piece.epoch) as part:
            assert piece.first_offset < piece.end_offset
            if piece.end_offset <= part.end:
                return
            assert piece.first_offset == part.end, "pieces tile the rows"
            times = piece.encoded.timestamps.tolist()
            assert {-(-time_ms // BATCH_MS) for time_ms in times} == {piece.batch_number}
            assert part.complete_ms is None or min(times) > part.complete_ms
            rows = [int(subject.strip("<>").rpartition("/")[2]) for subject, _, _ in triples_of(piece.encoded)]
            assert all(piece.first_offset <= row < piece.end_offset for row in rows)
            part.held += zip(rows, times, strict=True)
            part.end = piece.end_offset

    def close_batches(
        self, stream: str, partition: str, epoch: int, end_offset: int, complete_ms: int, carried_count: int = 0
    ) -> None:
        with self._call(partition, epoch) as part:
            if end_offset >= part.end:
                part.end = end_offset
                part.complete_ms = complete_ms if part.complete_ms is None else max(part.complete_ms, complete_ms)

    def finish(self, stream: str, partition: str, epoch: int) -> None:
        with self._call(partition, epoch) as part:
            part.is_finished = True


@dataclass
class Model:
    """How a feed should have gone. expected: the rows that the rule lets in, with their times and triples; newest_ms:
    the newest row that this planner has had; known_ms: as workers can tell it, who do not see the time of a row without
    triples that does not exceed what makes all late that is complete; levels: (known_ms, end row) of each epoch;
    busy_s: when it last had something, or was cut off."""

    expected: dict[int, tuple[int, int]] = field(default_factory=dict)
    newest_ms: int | None = None
    known_ms: int | None = None
    levels: list[tuple[int | None, int]] = field(default_factory=list)
    busy_s: float = 0.0


class World:
    """Feeds, a node, a clock, and one planner after the other."""

    def __init__(self, feeds: list[ListFeed], config: PipelineConfig) -> None:
        self.feeds, self.config = feeds, config
        self.node, self.models = StrictNode(), [Model() for _ in feeds]
        self.now_s, self.epoch, self.wall_ms = 1000.0, 0, 0
        self.said: list[str] = []
        self.start_planner()

    def start_planner(self) -> None:
        self.epoch += 1
        opened = [self.node.open(feed.stream, feed.source.partition, self.epoch) for feed in self.feeds]
        for feed, model in zip(self.feeds, self.models, strict=True):
            end = self.part(feed).end
            model.expected = {row: one for row, one in model.expected.items() if row < end}
            model.newest_ms = model.known_ms = None
            model.levels, model.busy_s = [(None, end)], self.now_s
        with patch.object(live_planner, "time", SimpleNamespace(monotonic=lambda: self.now_s)):
            self.planner = LivePlanner(
                self.feeds, opened, self.epoch, self.config, self.said.append, lambda: self.wall_ms
            )
        self.position = self.planner.start

    def part(self, feed: Feed) -> Part:
        return self.node.parts[feed.source.partition]

    def plan(self) -> LivePosition:
        """Return where the next epoch ends, and check that it is as long as it may be."""
        far_ahead = self.far_ahead()
        for feed, model, count in zip(self.feeds, self.models, self.waiting, strict=True):
            if count or not feed.is_heard:
                model.busy_s = self.now_s
        end = self.planner.next(self.position, self.now_s)
        taken = [last - first for first, last in zip(self.position.rows, end.rows, strict=True)]
        assert min(taken) >= 0
        assert sum(taken) <= self.config.rows_per_epoch
        assert not any(is_far and count for is_far, count in zip(far_ahead, taken, strict=True))
        self._check_what_is_complete(end)
        return end

    def is_idle(self, place: int) -> bool:
        """Whether a feed may be taken as idle: it has had nothing for so long."""
        idle_ms = self.feeds[place].waits.idle_timeout_ms
        return idle_ms > 0 and self.now_s - self.models[place].busy_s >= idle_ms / 1000

    def follows_others(self, place: int) -> bool:
        return self.is_idle(place) and self.feeds[place].waits.idle_advance is None

    @property
    def waiting(self) -> list[int]:
        """How many rows of each feed are there and not planned."""
        return [feed.arrived - row for feed, row in zip(self.feeds, self.position.rows, strict=True)]

    def far_ahead(self) -> list[bool]:
        """Whether each feed is too far ahead of the slowest one that windows wait for."""
        waiting = self.waiting
        newest = [live_planner.NO_TIME if one.known_ms is None else one.known_ms for one in self.models]
        waited_for = [
            count > 0 or (feed.is_open and not feed.knows and not (feed.is_heard and feed.waits.idle_timeout_ms))
            for feed, count in zip(self.feeds, waiting, strict=True)
        ]
        slowest = min((ms for ms, is_one in zip(newest, waited_for, strict=True) if is_one), default=0)
        found = []
        for place, model in enumerate(self.models):
            if waiting[place] and newest[place] <= slowest:  # whatever comes, it gets ahead from here
                del model.levels[:-1]
            level = max((row for ms, row in model.levels if ms is None or ms <= slowest), default=model.levels[0][1])
            is_far = self.position.rows[place] - level >= AHEAD_EPOCHS * self.config.rows_per_epoch
            if self.config.align_ms and slowest > live_planner.NO_TIME:
                is_far = is_far or newest[place] - slowest > self.config.align_ms
            found.append(is_far and newest[place] > slowest)
        return found

    def _check_what_is_complete(self, end: LivePosition) -> None:
        """Nothing is declared for silence beyond a feed's own newest stream batch and the slowest that is not idle; or,
        if it follows the wall clock, beyond that less lateness_ms; or what it knows itself."""
        active = [
            self.part(feed).complete_ms
            for place, feed in enumerate(self.feeds)
            if not self.follows_others(place) and not end.ended[place]
        ]
        others = None if None in active else min((ms for ms in active if ms is not None), default=None)
        for place, model in enumerate(self.models):
            complete_ms = end.complete_ms[place]
            if complete_ms <= self.position.complete_ms[place]:
                continue
            feed = self.feeds[place]
            if feed.knows:
                assert end.rows[place] == feed.arrived
                assert complete_ms == feed.known_ms // BATCH_MS * BATCH_MS
                continue
            assert self.is_idle(place)
            if feed.waits.idle_advance is not None:
                assert complete_ms == (self.wall_ms - feed.waits.lateness_ms) // BATCH_MS * BATCH_MS
                continue
            own = None if model.known_ms is None else -(-model.known_ms // BATCH_MS) * BATCH_MS
            assert complete_ms in (own, others), (complete_ms, own, others)

    def push(self, items: list[WorkItem], report: Any = None) -> None:
        """Do the work of an epoch. A kill may come anywhere in it."""
        for item in items:
            self.judge(item)
            stats = push_item(item, self.node)  # type: ignore[arg-type]
            assert stats.sent_offset == self.part_of(item).end
            (report or self.planner.taken)(stats)
        for place, model in enumerate(self.models):
            model.levels.append((model.known_ms, self.end_of(place, items)))
        self.check_held()

    def end_of(self, place: int, items: list[WorkItem]) -> int:
        partition = self.feeds[place].source.partition
        ends = [one.end_offset for one in items if one.setup.source.partition == partition]
        return ends[0] if ends else self.models[place].levels[-1][1]

    def part_of(self, item: WorkItem) -> Part:
        return self.node.parts[item.setup.source.partition]

    def judge(self, item: WorkItem) -> None:
        """Apply the rule to the rows of an item."""
        place = next(at for at, one in enumerate(self.feeds) if one.source.partition == item.setup.source.partition)
        feed, model, closed = self.feeds[place], self.models[place], self.part_of(item).complete_ms
        for chunk in item.chunks:
            for row in range(chunk.first_offset, chunk.end_offset):
                time_ms, count = feed.source.rows[row]
                if time_ms is None:
                    continue
                is_behind = model.newest_ms is not None and time_ms < model.newest_ms - feed.waits.lateness_ms
                is_let_in = not is_behind and (closed is None or time_ms > closed)
                if is_let_in:
                    model.expected[row] = time_ms, count
                seen = [model.newest_ms, None if closed is None else closed + 1 + feed.waits.lateness_ms]
                if (is_let_in and count) or all(one is None or time_ms > one for one in seen):
                    model.known_ms = time_ms if model.known_ms is None else max(model.known_ms, time_ms)
                model.newest_ms = time_ms if model.newest_ms is None else max(model.newest_ms, time_ms)

    def check_held(self) -> None:
        for feed, model in zip(self.feeds, self.models, strict=True):
            part = self.part(feed)
            expected = [
                (row, ms) for row, (ms, count) in model.expected.items() if row < part.end for _ in range(count)
            ]
            assert sorted(part.held) == sorted(expected)
            assert feed.released <= part.end, "only what the node has is let go of"

    def forget(self) -> None:
        """Let the node lose everything."""
        self.node.parts.clear()
        for feed, model in zip(self.feeds, self.models, strict=True):
            feed.released = 0
            model.expected.clear()

    def step(self) -> bool:
        """Plan an epoch and push it; tell whether there was one."""
        end = self.plan()
        if end == self.position:
            return False
        items = self.planner.items(self.position, end)
        assert items == self.planner.items(self.position, end)
        assert items == self.planner.items(*(self.planner.position(one.to_json()) for one in (self.position, end)))
        try:
            self.push(items)
        except Killed:
            self.start_planner()
        else:
            self.position = end
        return True


ROWS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 100), st.integers(0, 2)),
        st.tuples(st.just(None), st.just(0)),
    ),
    max_size=25,
)


@st.composite
def feeds(draw: st.DrawFn) -> list[ListFeed]:
    found = []
    for place in range(draw(st.integers(1, 3))):
        rows = draw(ROWS)
        if draw(st.booleans()):  # nearly in order
            jitter = draw(st.integers(0, 30))
            known = sorted(time_ms for time_ms, _ in rows if time_ms is not None)
            times = iter([max(0, ms - (number * 7) % (jitter + 1)) for number, ms in enumerate(known)])
            rows = [(None if time_ms is None else next(times), count) for time_ms, count in rows]
        knows = draw(st.sampled_from([False, False, False, True]))
        waits = Waits(
            draw(st.sampled_from([0, 5, 40])),
            0 if knows else draw(st.sampled_from([0, 500, 2000])),
            idle_advance=draw(st.sampled_from([None, "wall"])),
        )
        name = f"part-{place}"
        source = ListSource(name, rows, waits.lateness_ms)
        found.append(ListFeed(f"http://ex/{place}", source, waits, draw(st.integers(1, 4)), knows=knows))
    return found


CONFIGS = st.builds(
    PipelineConfig, rows_per_epoch=st.integers(1, 8), align_ms=st.sampled_from([0, 0, 30]), parallelism=st.just(2)
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 2), st.integers(1, 10)),
        st.tuples(st.just("wait"), st.sampled_from([1, 300, 500, 2000])),
        st.tuples(st.sampled_from(["cut", "hear", "end"]), st.integers(0, 2)),
        st.tuples(st.just("kill"), st.integers(0, 8)),
        st.tuples(st.just("forget")),
        *[st.tuples(st.just("epoch"))] * 3,
    ),
    max_size=40,
)


def change(world: World, step: tuple[Any, ...]) -> None:
    """Let something happen to the feeds, the clock or the node."""
    kind = step[0]
    if kind == "wait":
        world.now_s += step[1] / 1000
        world.wall_ms += step[1] // 20
    elif kind == "kill":
        world.node.kill_in = step[1]
    elif kind in ("arrive", "cut", "hear", "end") and step[1] < len(world.feeds):
        feed = world.feeds[step[1]]
        if kind == "arrive" and feed.is_open:
            feed.arrived = min(len(feed.source.rows), feed.arrived + step[2])
        elif kind == "cut":
            feed.is_heard = False
        elif kind == "hear":
            feed.is_heard = True
        elif feed.is_open:
            feed.arrived, feed.is_open = len(feed.source.rows), kind != "end"


def complete(world: World, ends: bool) -> None:
    """Let all that is left arrive."""
    world.node.kill_in = None
    for feed in world.feeds:
        feed.arrived, feed.is_heard = len(feed.source.rows), True
        feed.is_open = feed.is_open and not ends


@fuzzed(400)
@given(feeds=feeds(), config=CONFIGS, steps=STEPS, ends=st.booleans())
def test_the_node_has_what_the_rule_lets_in(
    feeds: list[ListFeed], config: PipelineConfig, steps: list[tuple[Any, ...]], ends: bool
) -> None:
    world = World(feeds, config)
    for step in steps:
        if step[0] == "epoch":
            world.step()
        elif step[0] == "forget":
            world.forget()
            world.start_planner()
        else:
            change(world, step)
    complete(world, ends)
    still = 0
    for _ in range(400):
        still = 0 if world.step() else still + 1
        world.now_s += 2.5
        if still > 3:
            break
    assert still > 3, "it comes to rest"
    far_ahead, waiting = world.far_ahead(), world.waiting
    for place, count in enumerate(waiting):
        assert not count or far_ahead[place], "all rows are sent that nobody holds back"
    assert world.position.ended == tuple(
        not (feed.is_open or count) for feed, count in zip(feeds, waiting, strict=True)
    )
    is_idle = [world.is_idle(place) and not count for place, count in enumerate(waiting)]
    for place, (feed, model) in enumerate(zip(feeds, world.models, strict=True)):
        part = world.part(feed)
        assert part.is_finished or feed.is_open or waiting[place]
        if part.complete_ms is not None:
            assert part.end == world.position.rows[place]
        if feed.is_open and is_idle[place] and feed.waits.idle_advance is not None:
            followed_ms = (world.wall_ms - feed.waits.lateness_ms) // BATCH_MS * BATCH_MS
            assert part.complete_ms is not None
            assert part.complete_ms >= followed_ms
        elif feed.is_open and is_idle[place]:
            own = -1 if model.known_ms is None else -(-model.known_ms // BATCH_MS) * BATCH_MS
            assert own == -1 or (part.complete_ms is not None and part.complete_ms >= own)
    follows = [is_one and feed.waits.idle_advance is None for is_one, feed in zip(is_idle, feeds, strict=True)]
    active = [
        world.part(one).complete_ms for at, one in enumerate(feeds) if (one.is_open or waiting[at]) and not follows[at]
    ]
    if active and None not in active:
        for place, feed in enumerate(feeds):
            if feed.is_open and follows[place]:
                closed = world.part(feed).complete_ms
                assert closed is not None
                assert closed >= min(ms for ms in active if ms is not None), "it holds nobody back"


def world_of(*rows: list[Row], lateness_ms: int = 0, idle_ms: int = 500, **config: int) -> World:
    waits, found = Waits(lateness_ms, idle_ms), list[ListFeed]()
    for place, one in enumerate(rows):
        source = ListSource(f"part-{place}", one, lateness_ms)
        found.append(ListFeed(f"http://ex/{place}", source, waits))
    return World(found, PipelineConfig(**config))


@pytest.mark.parametrize("lateness_ms", [0, 50])
@pytest.mark.parametrize("last", [(None, 0), (3, 1)])
def test_rows_that_are_set_aside_move_no_silent_feed_on(last: Row, lateness_ms: int) -> None:
    world = world_of([(5, 1), last, last], lateness_ms=lateness_ms)
    [feed] = world.feeds
    for count in (1, 2, 3):
        feed.arrived = count
        while world.step():
            pass
        world.now_s += 1.0
        while world.step():
            pass
        assert world.part(feed).complete_ms == 10, "the end of the stream batch of its newest row"


def test_a_row_after_a_silence_moves_its_feed_on() -> None:
    """Its time lies between what is complete and what lateness_ms adds to that."""
    world = world_of([(5, 1), (14, 1)], lateness_ms=50)
    [feed] = world.feeds
    for count, complete_ms in ((1, 10), (2, 20)):
        feed.arrived = count
        for _ in range(2):
            while world.step():
                pass
            world.now_s += 1.0
        assert world.part(feed).complete_ms == complete_ms


def walled(*rows: list[Row], lateness_ms: int = 0) -> World:
    """Feeds that follow the wall clock after half a second."""
    world = world_of(*rows, lateness_ms=lateness_ms)
    for feed in world.feeds:
        feed.waits = Waits(lateness_ms, 500, idle_advance="wall")
    return world


def rest(world: World, wall_ms: int) -> list[int | None]:
    """Let a second pass, up to a time of the wall clock; return up to where the feeds are complete."""
    world.now_s += 1.0
    world.wall_ms = wall_ms
    while world.step():
        pass
    return [world.part(feed).complete_ms for feed in world.feeds]


def test_a_silent_feed_follows_the_wall_clock_less_lateness_ms() -> None:
    world = walled([(5, 1), (120, 1), (79, 1), (300, 1)], lateness_ms=40)
    [feed] = world.feeds
    feed.arrived = 1
    assert rest(world, 0) == [-36]
    assert rest(world, 129) == [80]
    assert rest(world, 129) == [80]
    assert rest(world, 60) == [80]
    feed.arrived = 3  # one within lateness_ms, and one that is late
    assert rest(world, 130) == [80]
    assert world.part(feed).held == [(0, 5), (1, 120)]
    assert rest(world, 200) == [160]


def test_others_follow_a_silent_feed_that_follows_the_wall_clock() -> None:
    world = walled([(5, 1)], [(5, 1)], [(5, 1)])
    world.feeds[1].waits = Waits(0, 500)
    for feed in world.feeds:
        feed.arrived = 1
    assert rest(world, 0) == [4, 4, 4]
    assert rest(world, 777) == [770, 770, 770]


def test_a_feed_that_never_had_a_row_begins_with_the_wall_clock() -> None:
    world = walled([])
    assert rest(world, 0) == [0]
    assert rest(world, 1234) == [1230]


def test_a_feed_that_is_cut_off_follows_no_clock() -> None:
    world = walled([(5, 1)])
    [feed] = world.feeds
    feed.arrived, feed.is_heard = 1, False
    rest(world, 0)
    assert rest(world, 500) == [4]
    feed.is_heard = True
    rest(world, 500)
    assert rest(world, 500) == [500]


def test_a_feed_of_another_day_stays_and_says_so_once() -> None:
    world = walled([(5, 1), (3 * DAY_MS, 1)])
    [feed] = world.feeds
    feed.arrived = 1
    rest(world, 0)
    for ms in (3 * DAY_MS, 3 * DAY_MS + 100):
        assert rest(world, ms) == [4]
    assert world.said == [
        "http://ex/0, part-0: silent; its newest tuple, at 5 ms (1970-01-01T00:00:00.005Z), is more than a day behind "
        "the wall clock: it does not follow that until newer tuples come"
    ]
    world.start_planner()  # what the node has stands for the rows of earlier runs
    assert rest(world, 3 * DAY_MS) == [4]
    feed.arrived = 2
    rest(world, 3 * DAY_MS)
    assert rest(world, 3 * DAY_MS + 55) == [3 * DAY_MS + 50]


def test_rows_of_a_file_that_are_not_after_what_is_closed_are_late(tmp_path: Path) -> None:
    path = tmp_path / "in.nt"
    path.write_text(
        "".join(f"<http://ex/{row}> <http://ex/p> <http://ex/o> . {ms}\n" for row, ms in enumerate((5, 30, 40)))
    )
    feed = FileFeed(PreparedSource("http://ex/s", *prepare_timestamped(str(path), "suffix", tmp_path)))
    node = StrictNode()
    node.parts["in.nt"] = Part(complete_ms=30)
    planner = LivePlanner([feed], [node.open("http://ex/s", "in.nt", 1)], 1, PipelineConfig())
    [item] = planner.items(planner.start, planner.next(planner.start, 0.0))
    stats = push_item(item, node)  # type: ignore[arg-type]
    assert (node.parts["in.nt"].held, stats.backwards, stats.finished) == ([(2, 40)], 2, True)


def test_epochs_without_rows_are_not_kept() -> None:
    world = world_of([(5, 1)], [(ms, 1) for ms in range(5, 2000, 10)], rows_per_epoch=10)
    silent, busy = world.feeds
    silent.arrived = 1
    for count in range(1, 200):
        busy.arrived = count
        world.now_s += 0.4
        while world.step():
            pass
    assert (world.part(silent).complete_ms or 0) > 1900
    assert len(world.planner._tracks[0].ends) <= 2


@pytest.mark.parametrize("had_rows", [True, False])
@pytest.mark.parametrize("idle_ms", [0, 500])
def test_a_feed_that_is_waited_for_bounds_how_far_others_go(idle_ms: int, had_rows: bool) -> None:
    """It is cut off, or never counts as idle. Others go on by themselves when it is heard again, or has a row."""
    world = world_of([(5, 1), (5000, 1)], [(ms, 1) for ms in range(5, 2000, 10)], idle_ms=idle_ms, rows_per_epoch=10)
    awaited, busy = world.feeds
    said = list[str]()
    world.planner._say = said.append
    if had_rows:
        awaited.arrived = 1
    while world.step():
        pass
    awaited.is_heard = not idle_ms
    busy.arrived = 190
    for _ in range(100):
        world.now_s += 1.0
        world.step()
    assert world.part(busy).end == AHEAD_EPOCHS * 10
    reason = "cut off from its source" if idle_ms else "silent, with idle_timeout_ms = 0"
    assert said == [f"http://ex/0, part-0: {reason}; the others are far ahead, and wait for it"]
    awaited.arrived, awaited.is_heard = 2, True
    for _ in range(100):
        world.now_s += 1.0
        world.step()
    assert world.part(busy).end == 190
    assert len(said) == 1


def test_a_feed_at_its_end_is_not_waited_for() -> None:
    world = world_of([(5, 1)], [(ms, 1) for ms in range(5, 2000, 10)], idle_ms=0, rows_per_epoch=10)
    done, busy = world.feeds
    done.arrived, done.is_open, busy.arrived = 1, False, 190
    while world.step():
        pass
    assert world.part(busy).end == 190


def test_nobody_is_aligned_with_a_feed_that_has_had_no_row() -> None:
    world = world_of([(500, 1)], [(ms, 1) for ms in range(5, 2000, 10)], idle_ms=0, rows_per_epoch=10, align_ms=10)
    _, busy = world.feeds
    busy.arrived = 190
    while world.step():
        pass
    assert world.part(busy).end == AHEAD_EPOCHS * 10


class Spark:
    """Spark's checkpoint: where each epoch ends is noted before its work is done, and that it is done after that. It
    asks the driver as the real one does; an epoch that is not done is done again by the next run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ends: list[dict[str, Any]] = []
        self.done_count = 0
        self.start_driver()

    def start_driver(self) -> None:
        self.driver = PipelineDriver(self.world.planner, self.world.config, "127.0.0.1", "127.0.0.1")
        self.channel = self.driver.address.connect(10.0)
        self.first = self.channel.start()

    def close(self) -> None:
        self.channel.close()
        self.driver.close()

    def restart(self) -> None:
        self.close()
        self.world.start_planner()
        self.start_driver()

    def put_back(self, count: int) -> None:
        """Put the checkpoint back to an older state."""
        kept = max(0, len(self.ends) - count)
        del self.ends[kept:]
        self.done_count = min(self.done_count, kept)

    def step(self) -> bool:
        """Do an epoch; tell whether there was one."""
        if self.done_count == len(self.ends):
            before = self.ends[-1] if self.ends else self.first
            following = self.channel.next(before)
            if following == before:
                return False
            self.ends.append(following)
        last = self.ends[-1]
        before = self.ends[-2] if len(self.ends) > 1 else self.first
        told = self.channel.tasks(before, last)
        assert told == self.channel.tasks(before, last), "the same epoch is planned the same again"
        items = [item_of(fields, self.world.planner.setups) for task in told for fields in task]
        try:
            self.world.push(items, self.channel.report)
        except Killed:
            self.restart()
        else:
            self.done_count = len(self.ends)
        return True


SPARK_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 2), st.integers(1, 10)),
        st.tuples(st.just("wait"), st.sampled_from([300, 2000])),
        st.tuples(st.just("end"), st.integers(0, 2)),
        st.tuples(st.just("kill"), st.integers(0, 8)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("put back"), st.integers(0, 3)),
        st.tuples(st.just("forget")),
        *[st.tuples(st.just("epoch"))] * 5,
    ),
    max_size=30,
)


@fuzzed(80)
@given(feeds=feeds(), config=CONFIGS, steps=SPARK_STEPS)
def test_a_checkpoint_of_spark_neither_loses_nor_repeats_a_row(
    feeds: list[ListFeed], config: PipelineConfig, steps: list[tuple[Any, ...]]
) -> None:
    world = World(feeds, config)
    now = SimpleNamespace(monotonic=lambda: world.now_s)
    with (
        patch.object(live_planner, "time", now),
        patch.object(driver_module, "WAIT_S_MAX", 0.0),
        closing(Spark(world)) as spark,
    ):
        for step in steps:
            if step[0] == "epoch":
                spark.step()
            elif step[0] in ("restart", "put back", "forget"):
                if step[0] == "put back":
                    spark.put_back(step[1])
                elif step[0] == "forget":
                    world.forget()
                spark.restart()
            else:
                change(world, step)
        complete(world, ends=True)
        still = 0
        while still < 3:
            still = 0 if spark.step() else still + 1
            world.now_s += 2.5
        assert spark.ends[-1]["finished"]
    for feed in feeds:
        part = world.part(feed)
        assert part.is_finished
        assert part.complete_ms is None or part.end == len(feed.source.rows)


def test_a_run_begins_at_the_newest_close_and_closes_nothing_before_what_some_node_has() -> None:
    """Nodes have 3 and 5 rows; the run before had closed 2. It is silent, and others are complete up to 500."""
    rows: list[Row] = [(95, 1), (97, 1), (250, 1), (180, 1), (300, 1), (310, 1)]
    feed = ListFeed("http://ex/s", ListSource("p", rows, 100), Waits(100, 500))
    other = ListFeed("http://ex/t", ListSource("q", [(600, 1)], 0), Waits(0, 0), arrived=1)
    opened = [
        Opened(BATCH_MS, None, True, 3, 62, None, last_close=(2, 120, 7), offsets=(3, 5)),
        Opened(BATCH_MS, None, True, 0, 62, 500, last_close=(0, None, 0), offsets=(0,)),
    ]
    planner = LivePlanner([feed, other], opened, 9, PipelineConfig())
    start = planner.start
    assert (start.rows, start.sent, start.carried) == ((2, 0), (2, 0), (7, 0))
    assert start.floors == (120 + 1 + 100, 501)
    assert planner.setups[0].cuts == (3, 5)
    feed.arrived = 4
    now_s = 1e9
    end = planner.next(start, now_s)
    [item, _] = planner.items(start, end)
    assert (item.first_offset, item.end_offset, item.carried_count, item.complete_ms) == (2, 4, 7, 120)
    assert planner.next(end, now_s + 1000) == end, "it is silent, and some node has row 4"
    feed.arrived = 5
    behind = planner.next(end, now_s + 1001)
    assert behind.rows == (5, 1)
    assert planner.next(behind, now_s + 3000).complete_ms[0] >= 500


def test_a_run_begins_where_the_nodes_are_if_they_do_not_have_all_before_the_newest_close() -> None:
    """A node has lost rows, or is of an earlier release."""
    feed = ListFeed("http://ex/s", ListSource("p", [(95, 1)], 0), Waits(0, 500))
    for last_close in ((2, 120, 7), None):
        opened = Opened(BATCH_MS, None, True, 1, 62, None, last_close=last_close, offsets=(1, 4))
        planner = LivePlanner([feed], [opened], 9, PipelineConfig())
        assert (planner.start.rows, planner.start.sent) == ((1,), (1,))
        assert planner.start.floors == (live_planner.NO_TIME,)
