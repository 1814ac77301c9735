"""Writers and a durable engine against the plain text of a source: each row once, whatever arrives in which order.

Messages: any range of rows by any writer's epoch, repeats of earlier messages, crashes in between. The model is the
number of rows that are safe, and the newest epoch. Links: writers behind a network that loses, repeats and reorders
what they send; they begin anew where the engine says, as pipelines do.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import wukongs
from tests.fuzz import fuzzed
from tests.inside import core_of, ingest_of
from wukongs.errors import NodeUnavailable, StreamError
from wukongs.live.header import Frame
from wukongs.live.pieces import Close, Finish, Open, Piece
from wukongs.store.encoder import encode_columns
from wukongs.wire.ingest_service import IngestService
from wukongs.wire.ingesting import Ingesting
from wukongs.wire.link import IngestLink
from wukongs.wire.traffic import WireTraffic

STREAM = "http://ex/s"
BATCH_MS, RANGE_MS, STEP_MS = 100, 300, 200
QUERY = f"""REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <{STREAM}> [RANGE {RANGE_MS}ms STEP {STEP_MS}ms]
WHERE {{ ?s <http://ex/p> ?o }}"""
PARTITIONS = ("left", "right")
OLDEST, NEWEST = 1, 5

Row = tuple[int, str | None]
"""Time in ms and the name of the subject; None: a row that is set aside, which makes no tuple."""
Source = dict[str, list[Row]]

STEPS_MS = st.sampled_from([0, 0, 1, 40, 100, 250])
ROWS = st.lists(st.tuples(STEPS_MS, st.sampled_from(["a", "b", "c", None])), max_size=12)


@st.composite
def sources(draw: st.DrawFn) -> Source:
    """Rows of both partitions in the order of their times."""
    found: Source = {}
    for name in PARTITIONS:
        steps = draw(ROWS)
        times = accumulate((step for step, _ in steps), initial=50)
        found[name] = [(time, subject) for time, (_, subject) in zip(list(times)[1:], steps, strict=True)]
    return found


def triple(partition: str, row: Row) -> tuple[str, str]:
    return f"<http://ex/{row[1]}>", f"<http://ex/{partition}{row[0] // 50}>"


def good(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row[1] is not None]


def number_of(row: Row) -> int:
    return -(-row[0] // BATCH_MS)


def complete_before(rows: list[Row], end: int) -> int:
    """Return up to when the rows before an offset are complete."""
    if end < len(rows):
        return rows[end][0] - 1
    return max(BATCH_MS, -(-rows[-1][0] // BATCH_MS) * BATCH_MS if rows else 0)


def piece_of(rows: list[Row], partition: str, epoch: int, first: int, end: int) -> Piece | None:
    """Make the piece of some rows, as far as they are of one stream batch; None if there is no tuple."""
    kept = good(rows[first:end])
    if not kept:
        return None
    beyond = [place for place in range(first, end) if rows[place][1] and number_of(rows[place]) > number_of(kept[0])]
    end = beyond[0] if beyond else end
    kept = good(rows[first:end])
    subjects, objects = zip(*(triple(partition, row) for row in kept), strict=True)
    times = np.array([time for time, _ in kept], np.int64)
    columns = list(subjects), ["<http://ex/p>"] * len(kept), list(objects)
    encoded = encode_columns(*columns, times, scope=STREAM.encode())
    return Piece(STREAM, partition, epoch, first, end, 0, number_of(kept[0]), encoded, np.zeros(len(kept), np.bool_))


def check(engine: wukongs.Engine, query: Any, source: Source) -> None:
    """Compare what the engine holds, and every window, with the source's rows."""
    engine.settle(60)
    tuples = [(row[0], triple(name, row)) for name, rows in source.items() for row in good(rows)]
    assert engine.stats()["streams"][STREAM]["tuples"] == len(tuples)
    stored = engine.query("SELECT ?s ?o { ?s <http://ex/p> ?o }")
    assert sorted(stored.texts()) == sorted({spo for _, spo in tuples})
    found = [(window.end_ms, sorted(window.texts())) for window in query.results(timeout_s=0)]
    assert [end for end, _ in found] == sorted({end for end, _ in found})
    last = max(complete_before(rows, len(rows)) for rows in source.values())
    for end in range(STEP_MS, last + 1, STEP_MS):
        expected = sorted({spo for time, spo in tuples if end - RANGE_MS < time <= end})
        assert dict(found).get(end, []) == expected, end
    assert all(rows == [] for end, rows in found if end >= last + RANGE_MS)


class Engines:
    """A durable engine that may crash: a copy of its folder, as it is, is opened in its place."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.lives = 0
        self.open()

    def open(self) -> None:
        self.engine = wukongs.Engine(self.folder / str(self.lives))
        self.engine.stream(STREAM, batch_ms=BATCH_MS)
        self.query = self.engine.register(QUERY)
        self.service = ingest_of(self.engine)

    def crash(self) -> None:
        old = self.folder / str(self.lives)
        self.lives += 1
        # No checkpoint meanwhile: a copy takes time, a crash does not.
        with core_of(self.engine).journal._turn:  # type: ignore[attr-defined]
            shutil.copytree(old, self.folder / str(self.lives))
        self.engine.close()
        self.open()

    def close(self) -> None:
        self.engine.close()
        shutil.rmtree(self.folder)


def send_the_rest(service: IngestService, source: Source, epoch: int, draw: random.Random) -> None:
    """Send all that is missing, in random cuts, and end the partitions, by the newest writer."""
    for name, rows in source.items():
        at = service.open_partition(Open(STREAM, name, epoch)).resume_offset
        while at < len(rows):
            piece = piece_of(rows, name, epoch, at, draw.randint(at + 1, len(rows)))
            if piece is not None:
                service.inject(piece)
                at = piece.end_offset
            elif not good(rows[at:]):
                break
        service.close_batches(Close(STREAM, name, epoch, len(rows), complete_before(rows, len(rows))))
    for name in source:
        service.finish_partition(Finish(STREAM, name, epoch))


class Messages(RuleBasedStateMachine):
    @initialize(source=sources())
    def begin(self, source: Source) -> None:
        self.source = source
        self.engines = Engines()
        self.safe = dict.fromkeys(PARTITIONS, 0)
        self.newest = dict.fromkeys(PARTITIONS, 0)
        self.sent: list[Piece | Close] = []
        for name in PARTITIONS:
            self.open(name, OLDEST)

    @rule(name=st.sampled_from(PARTITIONS), epoch=st.integers(OLDEST, NEWEST))
    def open(self, name: str, epoch: int) -> None:
        def call() -> None:
            opened = self.engines.service.open_partition(Open(STREAM, name, epoch))
            assert opened.resume_offset == self.safe[name]

        if self._is_let_in(name, epoch, call):
            self.newest[name] = epoch

    @rule(
        name=st.sampled_from(PARTITIONS),
        epoch=st.integers(0, 2),
        ahead=st.sampled_from([0, 0, 0, 0, 1, -1, 2, -3]),
        count=st.integers(1, 6),
    )
    def send(self, name: str, epoch: int, ahead: int, count: int) -> None:
        """Send some rows, from about where the engine stands, by the newest writer or one that is older."""
        rows, first = self.source[name], max(0, self.safe[name] + ahead)
        piece = piece_of(rows, name, max(OLDEST, self.newest[name] - epoch), first, min(len(rows), first + count))
        if piece is not None:
            self.sent.append(piece)
            self._deliver(piece)

    @rule(name=st.sampled_from(PARTITIONS), epoch=st.integers(0, 2), back=st.sampled_from([0, 0, 0, 1, 3]))
    def close(self, name: str, epoch: int, back: int) -> None:
        """Declare the rows complete that are safe, and those after them that make no tuples; or fewer rows, late."""
        rows, end = self.source[name], self.safe[name]
        while end < len(rows) and rows[end][1] is None:
            end += 1
        end = max(0, end - back)
        message = Close(STREAM, name, max(OLDEST, self.newest[name] - epoch), end, complete_before(rows, end))
        self.sent.append(message)
        self._deliver(message)

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Let something arrive once more, or something that was refused."""
        if self.sent:
            self._deliver(data.draw(st.sampled_from(self.sent)))

    @rule()
    def crash(self) -> None:
        self.engines.crash()

    def _deliver(self, message: Piece | Close) -> None:
        name, service = message.partition, self.engines.service
        if isinstance(message, Close):
            if self._is_let_in(name, message.epoch, lambda: service.close_batches(message)):
                self.safe[name] = max(self.safe[name], message.end_offset)
            return
        follows = message.end_offset <= self.safe[name] or message.first_offset == self.safe[name]
        if message.epoch >= self.newest[name] and not follows:
            with pytest.raises(StreamError, match=f"expected a piece that begins at row {self.safe[name]}, found"):
                service.inject(message)
        elif self._is_let_in(name, message.epoch, lambda: service.inject(message)):
            self.safe[name] = max(self.safe[name], message.end_offset)

    def _is_let_in(self, name: str, epoch: int, call: Callable[[], None]) -> bool:
        if epoch >= self.newest[name]:
            call()
            return True
        with pytest.raises(StreamError, match=f"writer {epoch} is locked out by the newer writer {self.newest[name]}"):
            call()
        return False

    def teardown(self) -> None:
        if hasattr(self, "engines"):
            try:
                send_the_rest(self.engines.service, self.source, NEWEST + 1, random.Random(len(self.sent)))
                check(self.engines.engine, self.engines.query, self.source)
            finally:
                self.engines.close()


def test_messages_in_any_order() -> None:
    run_state_machine_as_test(Messages, settings=fuzzed(32, steps=30))


class Replies:
    """Stands in for the node's socket: hands what a node answers to whoever waits for it."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[list[Frame]] = SimpleQueue()

    def post(self, _peer: bytes, frames: list[Frame]) -> None:
        self.queue.put([bytes(frame) for frame in frames])

    def wake(self) -> None:
        """Nobody sleeps."""


class Network:
    """Carries frames of one link to the engine and back. It loses, repeats and reorders them, by a seed."""

    def __init__(self, engines: Engines, draw: random.Random) -> None:
        self.draw, self.now_s = draw, 0.0
        self.replies = Replies()
        self.ingesting = Ingesting(engines.service, self.replies, WireTraffic())  # type: ignore[arg-type]
        self.under_way: list[list[Frame]] = []
        self.back: list[list[Frame]] = []

    def send(self, frames: Sequence[Frame], /) -> None:
        copies = self.draw.choice((0, 1, 1, 1, 1, 2))
        self.under_way += [[bytes(frame) for frame in frames]] * copies

    def receive(self, timeout_s: float, /) -> list[Frame] | None:
        self.now_s += timeout_s
        if self.under_way and self.draw.random() < 0.7:
            is_next = self.draw.random() < 0.8
            frames = self.under_way.pop(0 if is_next else self.draw.randrange(len(self.under_way)))
            self.ingesting.take(b"", frames)
            self.back.append(self.replies.queue.get(timeout=60))
        if self.back and self.draw.random() < 0.7:
            reply = self.back.pop(0)
            return reply if self.draw.random() < 0.9 else None
        return None

    def clock(self) -> float:
        return self.now_s

    def close(self) -> None:
        self.ingesting.close()


@dataclass
class Writer:
    """Sends both partitions by a link, in random cuts, and begins anew where the engine is after each refusal."""

    epoch: int
    source: Source
    link: IngestLink
    draw: random.Random
    is_locked_out: bool = False

    def __post_init__(self) -> None:
        self.at: dict[str, int] | None = None

    def step(self) -> None:
        """Do one more thing."""
        try:
            if self.at is None:
                self.at = {name: self.link.open(STREAM, name, self.epoch).resume_offset for name in PARTITIONS}
            name = self.draw.choice(PARTITIONS)
            rows, at = self.source[name], self.at[name]
            piece = piece_of(rows, name, self.epoch, at, min(len(rows), at + self.draw.randint(1, 5)))
            if piece is not None and self.draw.random() < 0.8:
                self.at[name] = piece.end_offset
                self.link.send(piece)
            else:
                self.link.close_batches(STREAM, name, self.epoch, at, complete_before(rows, at))
        except StreamError as error:
            self.is_locked_out |= "is locked out by the newer writer" in str(error)
            self.at = None
        except NodeUnavailable:
            self.at = None


@fuzzed(100)
@given(source=sources(), seed=st.integers(0, 1 << 32), count=st.integers(5, 60))
def test_writers_behind_a_network_that_loses_repeats_and_reorders(source: Source, seed: int, count: int) -> None:
    draw = random.Random(seed)
    engines = Engines()
    networks = [Network(engines, draw) for _ in range(3)]
    try:
        writers = []
        for epoch, network in enumerate(networks, OLDEST):
            link = IngestLink(["here"], channel=lambda _, to=network: to, clock=network.clock, resend_s=0.2)  # type: ignore[misc]
            writers.append(Writer(epoch, source, link, draw))
        newest = 0
        for _ in range(count):
            newest = min(len(writers) - 1, newest + (draw.random() < 0.1))
            draw.choice(writers[: newest + 1]).step()
            assert not writers[newest].is_locked_out
        send_the_rest(engines.service, source, NEWEST + 1, draw)
        for writer in writers:  # what they still do comes too late
            writer.at = writer.at or dict.fromkeys(PARTITIONS, 0)
            writer.step()
        check(engines.engine, engines.query, source)
    finally:
        for network in networks:
            network.close()
        engines.close()
