"""Epochs by event time: whole stream batches, bounded rows, no stream far ahead, the same plan every time."""

from __future__ import annotations

import threading
from itertools import pairwise
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from wukongs.adapters import planner as planner_module
from wukongs.adapters.epochs import balanced
from wukongs.adapters.planner import CHUNK_ROWS, EpochPlanner, ReplayClock, ReplayPosition
from wukongs.adapters.push import PushStats
from wukongs.adapters.run_config import PipelineConfig
from wukongs.adapters.source import PreparedSource, RowRange, Rows, SourceIndex
from wukongs.errors import StreamError
from wukongs.wire.messages import Opened


class NamedSource:
    def __init__(self, partition: str) -> None:
        self.partition = partition

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        raise AssertionError("the planner reads nothing")


def _planner(
    times: list[list[int]],
    config: PipelineConfig | None = None,
    batch_ms: tuple[int, ...] = (10, 10, 10),
    resume: tuple[int, ...] = (0, 0, 0),
    closed_ms: int | None = None,
) -> EpochPlanner:
    prepared, opened = [], []
    for number, one in enumerate(times):
        index = SourceIndex(np.array(one, np.int64), np.arange(len(one) + 1, dtype=np.int64) * 100)
        prepared.append(PreparedSource(f"http://ex/{number}", NamedSource(f"part-{number}"), index))
        opened.append(Opened(batch_ms[number], None, True, resume[number], 62, closed_ms))
    return EpochPlanner(prepared, opened, 1, config or PipelineConfig())


def _walk(planner: EpochPlanner) -> list[ReplayPosition]:
    positions = [planner.start]
    while not positions[-1].finished:
        positions.append(planner.next(positions[-1]))
        assert len(positions) < 1000
    return positions


def test_rows_of_what_is_closed_are_refused_before_anything_is_sent() -> None:
    message = r"stream http://ex/0, partition 'part-0': row 1 is of 30 ms, and the stream is closed up to 30 ms\. Begin"
    with pytest.raises(StreamError, match=message):
        _planner([[5, 30, 40]], resume=(1,), closed_ms=30)
    assert _planner([[5, 30, 40]], PipelineConfig(start_ms=30), closed_ms=30).start.rows == (2,)
    assert _planner([[5, 30]], resume=(2,), closed_ms=30).start.rows == (2,)


def test_an_epoch_ends_at_whole_stream_batches_of_all_streams() -> None:
    planner = _planner([[1, 5, 29], [3, 31, 65]], PipelineConfig(align_ms=30), batch_ms=(10, 15))
    assert [(one.horizon_ms, one.rows) for one in _walk(planner)] == [
        (0, (0, 0)),
        (30, (3, 1)),
        (60, (3, 2)),
        (90, (3, 3)),
    ]


def test_a_gap_in_event_time_is_jumped_over() -> None:
    positions = _walk(_planner([[1, 1_000_003], [2]], PipelineConfig(align_ms=10)))
    assert [one.horizon_ms for one in positions] == [0, 10, 1_000_010]


HOUR_MS = 3_600_000


def test_sparse_event_time_goes_by_rows_and_stream_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "BATCHES_PER_EPOCH", 100)
    times = [[row * HOUR_MS for row in range(1000)], [row * HOUR_MS + 7 for row in range(0, 1000, 4)]]
    one = _walk(_planner(times[:1], PipelineConfig(rows_per_epoch=500)))
    assert [position.rows[0] for position in one] == list(range(0, 1001, 100))
    two = _walk(_planner(times, PipelineConfig(rows_per_epoch=500)))
    assert [sum(position.rows) for position in two] == [*range(0, 1250, 100), 1250]
    few = _walk(_planner(times, PipelineConfig(rows_per_epoch=50)))
    assert len(few) - 1 == 25
    assert all(after.horizon_ms > before.horizon_ms for before, after in pairwise(few))


def test_rows_of_one_stream_batch_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "BATCHES_PER_EPOCH", 2)
    positions = _walk(_planner([[1, 2, 10, 11, 12, 500, 501, 503], [3, 15, 18]]))
    assert [one.rows for one in positions] == [(0, 0), (3, 1), (5, 3), (8, 3)]


def test_one_partition_has_nothing_to_be_aligned_with() -> None:
    config = PipelineConfig(align_ms=10)
    assert len(_walk(_planner([[row * 100 for row in range(50)]], config))) == 2
    assert len(_walk(_planner([[row * 100 for row in range(50)], []], config))) == 51


def test_rows_per_epoch_bound_an_epoch_but_a_step_is_never_divided() -> None:
    config = PipelineConfig(rows_per_epoch=3)
    positions = _walk(_planner([[1] * 8 + [11, 12, 21, 31, 32]], config))
    assert [one.rows[0] for one in positions] == [0, 8, 11, 13]


def test_items_say_what_every_partition_does_and_the_last_epoch_finishes() -> None:
    planner = _planner([[1, 2, 3], [25]], PipelineConfig(align_ms=20))
    start, middle, end = _walk(planner)
    first, idle = planner.items(start, middle)
    assert (first.first_offset, first.end_offset, first.complete_ms, first.finish) == (0, 3, 20, False)
    assert first.chunks == (RowRange(0, 3, 0, 300, -(1 << 62)),)
    assert (idle.chunks, idle.complete_ms) == ((), 20)
    assert [item.finish for item in planner.items(middle, end)] == [True, True]
    assert planner.items(end, end) == []
    assert planner.next(end) == end


def test_long_ranges_are_read_in_chunks_that_know_what_came_before() -> None:
    count = CHUNK_ROWS * 2 + 5
    planner = _planner([[7] * (count - 1) + [8]])
    (item,) = planner.items(planner.start, planner.next(planner.start))
    assert [(one.first_offset, one.end_offset) for one in item.chunks] == [
        (0, CHUNK_ROWS),
        (CHUNK_ROWS, 2 * CHUNK_ROWS),
        (2 * CHUNK_ROWS, count),
    ]
    assert [one.floor_ms for one in item.chunks] == [-(1 << 62), 7, 7]


def test_start_and_stop_choose_the_event_time() -> None:
    planner = _planner([[1, 5, 12, 18, 25]], PipelineConfig(start_ms=5, stop_ms=18))
    assert planner.start.rows == (2,)
    assert planner.skipped == (True,)
    assert _walk(planner)[-1].rows == (4,)


def test_it_begins_where_the_nodes_are() -> None:
    planner = _planner([[1, 5, 12], [2, 3]], resume=(2, 0))
    assert planner.start.rows == (2, 0)
    assert planner.skipped == (False, False)
    assert planner.resumed(ReplayPosition(10, (1, 1), False), ReplayPosition(20, (3, 2), True))[0] == ReplayPosition(
        10, (2, 0), False
    )
    assert planner.resumed(ReplayPosition(10, (0, 0), False), ReplayPosition(20, (1, 2), True))[0].rows == (1, 0)


def test_a_node_that_is_further_than_the_source_is_refused() -> None:
    with pytest.raises(StreamError, match=r"the node has 9 rows of it, the source only 2. Replay the file that was"):
        _planner([[1, 2]], resume=(9,))


def test_nothing_to_read_finishes_at_once() -> None:
    assert [one.finished for one in _walk(_planner([[], []]))] == [False, True]


def test_a_clock_holds_the_replay_back_and_idle_time_is_told_to_the_nodes() -> None:
    planner = _planner([[1, 500]], PipelineConfig(align_ms=1000))
    clock = ReplayClock(planner.start.horizon_ms, speed=2.0)
    assert clock.event_limit_ms(100.0) == 0
    assert planner.next(planner.start, 9) == planner.start
    first = planner.next(planner.start, clock.event_limit_ms(100.010))
    assert (first.horizon_ms, first.rows) == (20, (1,))
    idle = planner.next(first, clock.event_limit_ms(100.1))
    assert (idle.horizon_ms, idle.rows, idle.finished) == (200, (1,), False)
    assert planner.next(idle, clock.event_limit_ms(100.5)).finished
    assert ReplayClock(0, 0.0).event_limit_ms(5.0) is None


def test_positions_travel_as_json() -> None:
    position = ReplayPosition(5, (1, 2), True)
    assert ReplayPosition.from_json(position.to_json()) == position


@fuzzed(60)
@given(
    times=st.lists(st.lists(st.integers(-500, 2000), max_size=30).map(sorted), min_size=1, max_size=3),
    rows=st.integers(1, 20),
    span=st.integers(0, 300),
)
def test_every_row_is_sent_once_in_bounds_and_in_step(times: list[list[int]], rows: int, span: int) -> None:
    planner = _planner(times, PipelineConfig(rows_per_epoch=rows, align_ms=span), batch_ms=(10, 20, 10))
    step = 20 if len(times) > 1 else 10
    positions = _walk(planner)
    for before, after in pairwise(positions):
        sent = [one[a:b] for one, a, b in zip(times, before.rows, after.rows, strict=True)]
        flat = [time for one in sent for time in one]
        assert all(before.horizon_ms < time <= after.horizon_ms for time in flat)
        assert after.horizon_ms % step == 0
        if flat:
            assert not span or len(times) == 1 or max(flat) - min(flat) < span + step
            assert len(flat) <= rows or after.horizon_ms - min(flat) < step
    assert positions[-1].rows == tuple(map(len, times))


def test_tasks_are_balanced_by_rows_and_partitions_stay_whole() -> None:
    planner = _planner([[1] * 50, [1] * 30, [1] * 25])
    tasks = balanced(planner.items(planner.start, planner.next(planner.start)), 2)
    assert [[item.setup.source.partition for item in task] for task in tasks] == [["part-0"], ["part-1", "part-2"]]
    assert len(balanced(planner.items(planner.start, planner.next(planner.start)), 8)) == 3
    assert balanced([], 2) == []


def test_a_paced_epoch_stops_where_nothing_more_is_due_and_then_by_steps() -> None:
    planner = _planner([[5, 15, 25, 35, 45], [8, 38]])
    end = planner.next(planner.start, 40)
    stops = planner.stops(planner.start, end, now_ms=19, apart_ms=1)
    assert stops == [
        planner.start,
        ReplayPosition(10, (1, 1), False),
        ReplayPosition(20, (2, 1), False),
        ReplayPosition(30, (3, 1), False),
        ReplayPosition(40, (4, 2), False),
    ]
    assert planner.stops(planner.start, end, now_ms=29, apart_ms=25)[1:] == [stops[2], end]
    assert planner.stops(planner.start, end, now_ms=1 << 62, apart_ms=0) == [planner.start, end]
    assert planner.stops(stops[3], end, now_ms=-50, apart_ms=10) == [stops[3], end]


def test_a_repeated_epoch_stops_nowhere_before_what_the_nodes_have() -> None:
    planner = _planner([[5, 15, 25, 35]])
    start = ReplayPosition(0, (3,), False)
    end = ReplayPosition(40, (4,), True)
    assert [one.rows for one in planner.stops(start, end, now_ms=0, apart_ms=10)] == [(3,), (3,), (3,), (3,), (4,)]


@fuzzed(60)
@given(
    times=st.lists(st.lists(st.integers(0, 400), max_size=20).map(sorted), min_size=1, max_size=3),
    now_ms=st.integers(-50, 500),
    speed=st.sampled_from([0.1, 1.0, 4.5]),
    task_count=st.integers(1, 4),
)
def test_the_tasks_of_a_paced_epoch_send_what_the_epoch_holds(
    times: list[list[int]], now_ms: int, speed: float, task_count: int
) -> None:
    planner = _planner(times, PipelineConfig(speed=speed))
    end = planner.next(planner.start)
    stops = planner.stops(planner.start, end, now_ms, round(20 * speed))
    with patch.object(planner, "reached_ms", lambda: now_ms):
        tasks = planner.tasks(planner.start, end, task_count)
    assert sum(map(bool, tasks)) == len(tasks) <= task_count
    for whole in planner.items(planner.start, end):
        parts = [
            [item for item in task if item.setup is whole.setup]
            for task in tasks
            if any(item.setup is whole.setup for item in task)
        ]
        assert len(parts) == 1, "a partition belongs to one task"
        rows = [row for item in parts[0] for row in range(item.first_offset, item.end_offset)]
        assert rows == list(range(whole.first_offset, whole.end_offset))
        assert [item.complete_ms for item in parts[0]] == [one.horizon_ms for one in stops[1:]]
        assert [item.finish for item in parts[0]] == [False] * (len(stops) - 2) + [end.finished] * (len(stops) > 1)


def test_the_time_until_the_next_epoch_is_known() -> None:
    planner = _planner([[5, 250]])
    clock = ReplayClock(planner.start.horizon_ms, speed=2.0)
    assert planner.due_ms(planner.start) == 10
    assert clock.seconds_until(1000, 100.0) == pytest.approx(0.5)
    assert clock.seconds_until(1000, 100.3) == pytest.approx(0.2)
    assert clock.seconds_until(1000, 101.0) == 0
    assert planner.due_ms(ReplayPosition(300, (2,), False)) == 300
    assert ReplayClock(0, 0.0).seconds_until(1000, 5.0) == 0


def test_a_checkpoint_of_an_earlier_run_goes_on_where_the_nodes_are() -> None:
    planner = _planner([[1, 5, 12], [2, 3]], resume=(1, 0))
    for stale in (ReplayPosition(20, (3, 2), True), ReplayPosition(10, (0, 0), False)):
        assert planner.continued(stale, None) == planner.start
    repeated = ReplayPosition(10, (2, 2), False)
    assert planner.continued(repeated, repeated) == ReplayPosition(10, (2, 2), False)
    behind = ReplayPosition(10, (0, 2), False)
    assert planner.continued(behind, behind).rows == (1, 2)


def test_a_rate_begins_an_epoch_when_all_rows_before_it_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of our own: 1,000 rows at 100 a second take ten seconds, whatever their event times are."""
    planner = _planner([[row * row for row in range(500)], [7 * row for row in range(500)]], PipelineConfig(rate=100))
    now_s = 1000.0
    monkeypatch.setattr(planner_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    position, begun = planner.start, []
    while not position.finished:
        following = planner.follow(position, threading.Event(), 0.0)
        if following == position:
            now_s += 0.125
        else:
            assert sum(position.rows) <= 100 * (now_s - 1000.0) < sum(position.rows) + 13
            begun.append(sum(following.rows) - sum(position.rows))
            position = following
    assert sum(begun) == 1000
    assert max(begun) <= 25
    assert 9.5 <= now_s - 1000.0 <= 10.0


def test_a_rate_counts_from_when_the_first_rows_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark takes some seconds from the first plan to the first task: the rows of these seconds do not come at once."""
    planner = _planner([list(range(1000))], PipelineConfig(rate=100))
    now_s = 1000.0
    monkeypatch.setattr(planner_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    position = planner.follow(planner.start, threading.Event(), 0.0)
    sent = sum(position.rows)
    now_s = 1003.0
    for seconds in (0.1, 0.2):  # two reports, of which only the first one counts
        planner.taken(PushStats(seconds=seconds))
    while now_s < 1006.0:
        following = planner.follow(position, threading.Event(), 0.0)
        assert sum(position.rows) <= 100 * (now_s - 1002.9) + 25
        if following == position:
            now_s += 0.125
        position = following
    assert sent + 280 <= sum(position.rows) <= sent + 330
