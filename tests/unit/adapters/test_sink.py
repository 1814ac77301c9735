"""Rows of tasks into a stream: each exactly once, however often and in whatever order tasks are run again."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.clusters import PATIENT, cluster
from tests.unit.adapters.conftest import Listen
from tests.unit.adapters.receiver import RecordingNode, StreamSettings
from wukongs.adapters import sink
from wukongs.adapters.sink import Access, Sent, StreamWriter, close_batch, mark_of, next_batch, push_rows
from wukongs.engine import Engine
from wukongs.errors import DataError, StreamError, WukongsError
from wukongs.live.pieces import Piece
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.link import IngestLink

STREAM = "http://ex/s"
Row = tuple[str, str, str, int]


def _rows(first: int, count: int, step_ms: int = 10) -> list[Row]:
    return [
        (f"<http://ex/s{n}>", f"<http://ex/p{n % 3}>", f'"row {n}"', n * step_ms) for n in range(first, first + count)
    ]


def _table(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [[], [], [], []]
    names = ("subject", "predicate", "object")
    texts = {name: pa.array(column, pa.string()) for name, column in zip(names, columns, strict=False)}
    return pa.table({**texts, "time": pa.array(columns[3], pa.int64())})


def _writer(address: str, *, partitions: int = 2, epoch: int = 1, lag_ms: int = 0, name: str = "w") -> StreamWriter:
    return StreamWriter(Access((address,)), STREAM, name, partitions, epoch, lag_ms)


@pytest.fixture(autouse=True)
def _no_link_is_left() -> object:
    yield
    sink.forget_links()


def _held(node: RecordingNode) -> Counter[tuple[int, tuple[str, str, str]]]:
    return Counter(node.tuples[STREAM])


def _expected(rows: list[Row]) -> Counter[tuple[int, tuple[str, str, str]]]:
    return Counter((time, (s, p, o)) for s, p, o, time in rows)


def test_batches_of_two_tasks_arrive_once_and_close_their_time(listen: Listen) -> None:
    node = RecordingNode(s=StreamSettings(100))
    writer, all_rows = _writer(listen(node)), list[Row]()
    for batch in range(3):
        rows = _rows(batch * 100, 100)
        all_rows += rows
        sent = [push_rows(writer, task, batch, 7, _table(rows[task::2])) for task in range(2)]
        assert [one.rows for one in sent] == [50, 50]
        close_batch(writer, batch, 7, sent)
        newest = (batch * 100 + 99) * 10
        assert [event for event in node.events if event[0] == "close"][-2:] == [
            ("close", STREAM, "w/0", newest - 1),
            ("close", STREAM, "w/1", newest - 1),
        ]
    assert _held(node) == _expected(all_rows)


@pytest.mark.parametrize("seed", range(8))
def test_tasks_that_fail_anywhere_and_come_in_another_order_are_counted_once(
    listen: Listen, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Pieces fail before or after they were taken; the task is run again with its rows shuffled."""
    draw = random.Random(seed)
    monkeypatch.setattr(sink, "CHUNK_ROWS", 7)

    class Failing(RecordingNode):
        def inject(self, piece: Piece, /) -> None:
            if draw.random() < 0.1:
                raise RuntimeError("power cut before")
            super().inject(piece)
            if draw.random() < 0.1:
                raise RuntimeError("power cut behind")

    node = Failing(s=StreamSettings(100))
    address, all_rows, epoch = listen(node), list[Row](), 1
    for batch in range(4):
        rows = [(s, p, o, time // 20 * 20) for s, p, o, time in _rows(batch * 60, 60)]
        all_rows += rows
        sent: list[Sent | None] = [None, None, None]
        while (
            None in sent or draw.random() < 0.4
        ):  # also a batch that was done is run again, by a driver that was killed
            epoch += 1
            task = draw.randrange(3)
            part = rows[task::3]
            draw.shuffle(part)
            with suppress(WukongsError):  # the power cut: the node failed
                sent[task] = push_rows(_writer(address, partitions=3, epoch=epoch), task, batch, 5, _table(part))
        close_batch(_writer(address, partitions=3, epoch=epoch, lag_ms=20), batch, 5, [one for one in sent if one])
    assert _held(node) == _expected(all_rows)


def test_rows_that_have_changed_are_refused(listen: Listen) -> None:
    node = RecordingNode(s=StreamSettings(100))
    writer = _writer(listen(node))
    push_rows(writer, 0, 0, 7, _table(_rows(0, 20)))
    with pytest.raises(StreamError, match=r"batch 0 comes with 10 rows, and the nodes have 20 of it"):
        push_rows(writer, 0, 0, 7, _table(_rows(0, 10)))
    assert _held(node) == _expected(_rows(0, 20))


@pytest.mark.parametrize(("batch", "mark"), [(0, 7), (1, 7), (2, 9)])
def test_the_batches_of_another_checkpoint_are_refused(listen: Listen, batch: int, mark: int) -> None:
    writer = _writer(listen(RecordingNode(s=StreamSettings(100))))
    push_rows(writer, 0, 2, 7, _table(_rows(0, 20)))
    with pytest.raises(StreamError, match=r"batch 2 of another query or checkpoint.*batch_base = 3"):
        push_rows(writer, 0, batch, mark, _table(_rows(100, 20)))
    push_rows(writer, 0, 3, 9, _table(_rows(100, 20)))


def test_more_tasks_than_partitions_are_refused(listen: Listen) -> None:
    writer = _writer(listen(RecordingNode(s=StreamSettings(100))))
    with pytest.raises(StreamError, match="more than partitions = 2 Spark partitions"):
        push_rows(writer, 2, 0, 0, _table(_rows(0, 1)))
    assert push_rows(writer, 2, 0, 0, _table([])).rows == 0


def test_an_older_writer_is_locked_out(listen: Listen) -> None:
    address = listen(RecordingNode(s=StreamSettings(100)))
    push_rows(_writer(address, epoch=2), 0, 0, 0, _table(_rows(0, 5)))
    with pytest.raises(StreamError, match="locked out by the newer writer 2"):
        push_rows(_writer(address, epoch=1), 0, 1, 0, _table(_rows(5, 5)))


def test_the_next_batch_is_behind_the_last_one(listen: Listen) -> None:
    writer = _writer(listen(RecordingNode(s=StreamSettings(100))))
    assert next_batch(writer) == 0
    push_rows(writer, 1, 0, 0, _table(_rows(0, 5)))
    assert next_batch(writer) == 1
    push_rows(writer, 0, 4, mark_of("a query"), _table(_rows(5, 5)))
    assert next_batch(writer) == 5


def test_lines_of_text_give_the_same_as_columns(listen: Listen) -> None:
    """A value holds any number of lines, comments and empty ones among them."""
    rows = _rows(0, 60)
    texts = [
        "# a comment\r\n\n" + "\n".join(f"{s} {p} {o} ." for s, p, o, _ in rows[first : first + 3]) + "\n"
        for first in range(0, 60, 3)
    ]
    node = RecordingNode(s=StreamSettings(100))
    times = pa.array([datetime.fromtimestamp(first / 100, UTC) for first in range(0, 60, 3)], pa.timestamp("us", "UTC"))
    sent = push_rows(_writer(listen(node)), 0, 0, 0, pa.table({"value": texts, "time": times}))
    assert sent.rows == 60
    assert sent.newest_ms == 570
    expected = [(s, p, o, row // 3 * 30) for row, (s, p, o, _) in enumerate(rows)]
    assert _held(node) == _expected(expected)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (_table([("<http://ex/s>", "<http://ex/p>", "no term", 1)]), "column 'object'.*found 'no term'"),
        (pa.table({"value": ["<http://ex/s> ."], "time": [1]}), "column 'value': expected a predicate"),
        (pa.table({"value": pa.array([None], pa.string()), "time": [1]}), "column 'value': a value is missing"),
        (pa.table({"value": ["x"], "time": pa.array([None], pa.int64())}), "column 'time': a value is missing"),
    ],
)
def test_a_malformed_row_names_its_column(listen: Listen, table: pa.Table, message: str) -> None:
    with pytest.raises(DataError, match=message):
        push_rows(_writer(listen(RecordingNode(s=StreamSettings(100)))), 0, 0, 0, table)


def test_windows_of_an_engine_close_batch_by_batch() -> None:
    """A repeat of a batch that was closed changes nothing, and event time goes on with the batches that follow."""
    with Engine() as engine:
        engine.stream(STREAM, batch_ms=100)
        window = f"FROM STREAM <{STREAM}> [RANGE 1s STEP 1s]"
        query = engine.register(f"REGISTER QUERY q AS SELECT ?s {window} WHERE {{ ?s <http://ex/p1> ?o }}")
        writer = _writer(engine.listen(), partitions=3)
        counts = []
        for batch in (0, 0, 1, 1, 2):
            rows = _rows(batch * 100, 100)
            sent = [push_rows(writer, task, batch, 3, _table(rows[task::2])) for task in range(2)]
            close_batch(writer, batch, 3, sent)
            engine.settle(30)
            counts += [(one.end_ms, len(one)) for one in query.results(timeout_s=0)]
        sink.forget_links()
    assert [(end, rows) for end, rows in counts if end] == [(1000, 34), (2000, 33)]


@pytest.mark.slow
def test_a_cluster_gets_from_tasks_that_fail_what_an_engine_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links break between two pieces of a task, so that nodes have different numbers of its rows."""
    monkeypatch.setattr(sink, "CHUNK_ROWS", 7)
    text = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{STREAM}> [RANGE 1s STEP 1s] WHERE {{ ?s <http://ex/p1> ?o }}"

    def windows(engine: Engine, addresses: tuple[str, ...], seed: int | None) -> list[tuple[int, list[str]]]:
        draw = random.Random(seed)
        engine.stream(STREAM, batch_ms=100)
        query = engine.register(text)
        send = IngestLink.send

        def failing(link: IngestLink, piece: Piece) -> None:
            if seed is not None and draw.random() < 0.1:
                raise StreamError("the task was killed")
            send(link, piece)

        monkeypatch.setattr(IngestLink, "send", failing)
        for batch in range(3):
            rows, sent = _rows(batch * 100 + 1, 100), dict[int, Sent]()
            writer = StreamWriter(Access(addresses), STREAM, "w", 3, batch + 1, closes_newest=True)
            while len(sent) < 2:
                for task in range(2):
                    part = rows[task::2]
                    draw.shuffle(part)
                    with suppress(StreamError):
                        sent[task] = push_rows(writer, task, batch, 3, _table(part))
            close_batch(writer, batch, 3, list(sent.values()))
        sink.forget_links()
        engine.settle(30)
        return [(one.end_ms, sorted(map(str, one))) for one in query.results(timeout_s=0)]

    with Engine() as engine:
        expected = windows(engine, (engine.listen(),), None)
    assert [(end, len(rows)) for end, rows in expected] == [(1000, 34), (2000, 33), (3000, 33)]
    with cluster(2, silence_pulses_max=PATIENT) as nodes, ExitStack() as stack:
        sockets = [ClientSocket("tcp://127.0.0.1:*", {}, node.intake) for node in nodes]
        for socket in sockets:
            stack.callback(socket.close)
        assert windows(nodes[0].engine, tuple(socket.address for socket in sockets), 1) == expected
