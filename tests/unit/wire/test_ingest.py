"""IngestService: pieces from a pipeline are taken once, in order, or refused by name and not applied."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import wukongs
from tests.engine_helpers import A, at, names, node, register_text, windows
from tests.inside import ingest_of
from wukongs.errors import StreamError, WukongsError
from wukongs.live.pieces import Close, Finish, Open, Piece
from wukongs.settings import Settings
from wukongs.store.encoder import encode_columns


class Pipe:
    """A pipeline of one partition, spoken to the service directly."""

    def __init__(self, engine: wukongs.Engine, partition: str = "p0", epoch: int = 1) -> None:
        self.engine = engine
        self.service = ingest_of(engine)
        self.partition = partition
        self.epoch = epoch
        self.opened = self.service.open_partition(Open(A, partition, epoch))

    def piece(
        self, first: int, rows: list[tuple[str, int]], epoch: int | None = None, number: int | None = None
    ) -> Piece:
        times = np.array([time for _, time in rows], np.int64)
        terms = [[node(name) for name, _ in rows], [node("p")] * len(rows), [node("o")] * len(rows)]
        encoded = encode_columns(*terms, times, scope=b"test", hash_bits=62)
        k = -(-rows[0][1] // self.opened.batch_ms) if number is None else number
        timing = np.zeros(len(rows), np.bool_)
        writer = self.epoch if epoch is None else epoch
        return Piece(A, self.partition, writer, first, first + len(rows), 0, k, encoded, timing)

    def inject(self, first: int, *rows: tuple[str, int]) -> None:
        self.service.inject(self.piece(first, list(rows)))

    def close(self, end_offset: int, complete_ms: int) -> None:
        self.service.close_batches(Close(A, self.partition, self.epoch, end_offset, complete_ms))

    def stored(self) -> list[str]:
        self.engine.settle(timeout_s=60)
        return names(self.engine.query("SELECT ?s { ?s ?p ?o }"))


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as engine:
        engine.stream(A, batch_ms=100, timing=["http://ex/t"], into="http://ex/g")
        yield engine


@pytest.fixture
def plain() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as engine:
        engine.stream(A, batch_ms=100)
        yield engine


def test_opening_tells_what_the_pipeline_needs(engine: wukongs.Engine) -> None:
    opened = Pipe(engine).opened
    assert (opened.batch_ms, opened.into, opened.timing) == (100, "http://ex/g", ("http://ex/t",))
    assert (opened.resume_offset, opened.hash_bits) == (0, 62)


def test_pieces_become_visible_when_their_batch_is_closed(plain: wukongs.Engine) -> None:
    query = plain.register(register_text("RANGE 100ms STEP 100ms"))
    pipe = Pipe(plain)
    pipe.inject(0, ("a", 10), ("b", 100))
    assert pipe.stored() == []
    pipe.close(2, 100)
    assert pipe.stored() == ["a", "b"]
    assert windows(query) == {100: ["a", "b"]}


def test_a_duplicate_piece_is_taken_once(plain: wukongs.Engine) -> None:
    pipe = Pipe(plain)
    for _ in range(2):
        pipe.inject(0, ("a", 10))
    pipe.inject(1, ("b", 20))
    pipe.inject(0, ("a", 10))
    pipe.close(2, 100)
    pipe.inject(1, ("b", 20))  # after its batch has closed, too
    assert pipe.stored() == ["a", "b"]
    assert plain.stats()["streams"][A]["tuples"] == 2


def test_a_gap_is_refused_and_says_where_to_go_on(plain: wukongs.Engine) -> None:
    pipe = Pipe(plain)
    pipe.inject(0, ("a", 10))
    with pytest.raises(StreamError, match=r"expected a piece that begins at row 1, found rows 2 to 3.*from row 1"):
        pipe.inject(2, ("c", 30))
    pipe.inject(1, ("b", 20))
    pipe.close(2, 100)
    assert pipe.stored() == ["a", "b"]


def test_an_overlap_is_refused(plain: wukongs.Engine) -> None:
    pipe = Pipe(plain)
    pipe.inject(0, ("a", 10), ("b", 20))
    with pytest.raises(StreamError, match="begins at row 2, found rows 1 to 3"):
        pipe.inject(1, ("b", 20), ("c", 30))


def test_an_older_writer_is_locked_out_of_everything(plain: wukongs.Engine) -> None:
    old = Pipe(plain, epoch=3)
    old.inject(0, ("a", 10))
    new = Pipe(plain, epoch=4)
    assert new.opened.resume_offset == 1
    late = "writer 3 is locked out by the newer writer 4"
    with pytest.raises(StreamError, match=late):
        old.inject(1, ("b", 20))
    with pytest.raises(StreamError, match=late):
        old.close(1, 100)
    with pytest.raises(StreamError, match=late):
        old.service.finish_partition(Finish(A, "p0", 3))
    with pytest.raises(StreamError, match=late):
        Pipe(plain, epoch=3)
    new.inject(1, ("c", 30))
    new.close(2, 100)
    assert new.stored() == ["a", "c"]


def test_closing_twice_changes_nothing(plain: wukongs.Engine) -> None:
    query = plain.register(register_text("RANGE 100ms STEP 100ms"))
    pipe = Pipe(plain)
    pipe.inject(0, ("a", 10))
    for _ in range(3):
        pipe.close(1, 100)
    pipe.close(1, 60)
    assert pipe.stored() == ["a"]
    assert windows(query) == {100: ["a"]}
    pipe.inject(1, ("b", 101))


def test_a_close_passes_rows_that_were_set_aside(plain: wukongs.Engine) -> None:
    pipe = Pipe(plain)
    pipe.inject(0, ("a", 10))
    pipe.close(5, 100)
    pipe.inject(5, ("b", 110))
    pipe.close(6, 200)
    assert pipe.stored() == ["a", "b"]


def test_a_tuple_behind_a_close_is_refused(plain: wukongs.Engine) -> None:
    pipe = Pipe(plain)
    pipe.inject(0, ("a", 10))
    pipe.close(1, 150)
    with pytest.raises(StreamError, match="a tuple at 150 ms came after everything up to 150 ms"):
        pipe.inject(1, ("b", 150))
    pipe.inject(1, ("b", 151))


def test_a_piece_cut_with_another_batch_length_is_refused(plain: wukongs.Engine) -> None:
    pipe = Pipe(plain)
    with pytest.raises(StreamError, match=r"do not belong to stream batch 3 \(200 to 300 ms\).*batch_ms = 100"):
        pipe.service.inject(pipe.piece(0, [("a", 10)], number=3))
    with pytest.raises(StreamError, match="timestamps from 10 to 110 ms do not belong to stream batch 1"):
        pipe.inject(0, ("a", 10), ("b", 110))
    pipe.inject(0, ("a", 10))  # the refused ones took no row


def test_an_unknown_stream_is_named(plain: wukongs.Engine) -> None:
    service = Pipe(plain).service
    piece = Pipe(plain).piece(0, [("a", 10)])
    elsewhere = Piece("http://ex/no", "p0", 1, 0, 1, 0, 1, piece.encoded, piece.timing)
    for call in (
        lambda: service.inject(elsewhere),
        lambda: service.open_partition(Open("http://ex/no", "p0", 1)),
        lambda: service.close_batches(Close("http://ex/no", "p0", 1, 0, 5)),
        lambda: service.finish_partition(Finish("http://ex/no", "p0", 1)),
    ):
        with pytest.raises(StreamError, match=r"unknown stream http://ex/no: .*Declared: http://ex/streamA"):
            call()


def test_a_partition_that_comes_late_does_not_break_the_engine(plain: wukongs.Engine) -> None:
    """A slice is closed for ever: what a new partition brings for it is refused, not lost without a word."""
    plain.register(register_text("RANGE 100ms STEP 100ms"))
    first = Pipe(plain)
    first.inject(0, ("a", 910))
    first.close(1, 1000)
    assert first.stored() == ["a"]
    late = Pipe(plain, "late")
    with pytest.raises(StreamError, match="timestamp 950 ms"):
        late.inject(0, ("b", 950))
    late.inject(0, ("c", 1010))
    late.close(1, 1100)
    first.close(1, 1100)
    assert first.stored() == ["a", "c"]


def test_a_partition_that_is_behind_may_still_bring_the_first_window(plain: wukongs.Engine) -> None:
    query = plain.register(register_text("RANGE 100ms STEP 100ms"))
    ahead, behind = Pipe(plain, "ahead"), Pipe(plain, "behind")
    ahead.close(0, 250)
    behind.close(0, 40)
    plain.settle(60)
    behind.inject(0, ("a", 60))
    behind.close(1, 300)
    ahead.close(0, 300)
    plain.settle(60)
    assert windows(query) == {100: ["a"], 200: [], 300: []}


def test_what_would_wait_too_long_is_refused_and_not_applied() -> None:
    with wukongs.Engine(settings=Settings(queued_bytes_max=1024)) as engine:
        engine.stream(A, batch_ms=100)
        pipe = Pipe(engine)
        terms = engine.stats()["terms"]
        rows = [(f"n{i}", 10) for i in range(25)]
        with pytest.raises(StreamError, match="queued_bytes_max = 1024"):
            pipe.inject(0, *rows)
        assert engine.stats()["terms"] == terms
        pipe.inject(0, *rows[:24])
        pipe.close(24, 100)
        assert len(pipe.stored()) == 24


def test_finishing_every_partition_ends_the_stream(plain: wukongs.Engine) -> None:
    query = plain.register(register_text("RANGE 200ms STEP 200ms"))
    pipes = [Pipe(plain, name) for name in ("p0", "p1")]
    pipes[0].inject(0, ("a", 10))
    pipes[1].inject(0, ("b", 250))
    for pipe in pipes:
        pipe.service.finish_partition(Finish(A, pipe.partition, 1))
        pipe.service.finish_partition(Finish(A, pipe.partition, 1))
    assert pipes[0].stored() == ["a", "b"]
    assert windows(query) == {200: ["a"], 400: ["b"]}
    pipes[0].inject(0, ("a", 10))  # a repeat is a repeat, also after the end
    with pytest.raises(StreamError, match="is closed"):
        pipes[0].inject(1, ("c", 500))


def test_a_close_at_a_time_that_is_none_is_refused(plain: wukongs.Engine) -> None:
    with pytest.raises(StreamError, match="outside of what can be named"):
        Pipe(plain).close(0, 10**15)


def test_a_closed_engine_takes_no_message(plain: wukongs.Engine) -> None:
    pipe = Pipe(plain)
    plain.close()
    with pytest.raises(WukongsError, match="closed"):
        pipe.inject(0, ("a", 10))


def test_a_pipeline_of_a_dropped_stream_does_not_hold_the_new_one(plain: wukongs.Engine) -> None:
    old = Pipe(plain)
    plain.drop_stream(A)
    stream = plain.stream(A, batch_ms=100)
    calls = (
        lambda: old.inject(0, ("a", 10)),
        lambda: old.close(0, 100),
        lambda: old.service.finish_partition(Finish(A, "p0", 1)),
    )
    for call in calls:
        with pytest.raises(StreamError, match="partition 'p0': no writer has opened it here"):
            call()
    stream.push([at("b", 10)])
    stream.advance(100)
    assert old.stored() == ["b"]
