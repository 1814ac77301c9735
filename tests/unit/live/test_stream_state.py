"""StreamState: what waits, what is closed, and what is refused, without an engine around it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wukongs.errors import StreamError
from wukongs.live.stream_state import PUSH_PARTITION, StreamState, WholeSlice
from wukongs.settings import Settings
from wukongs.store.dtypes import UNBOUND
from wukongs.store.encoded import Encoded, TermTable
from wukongs.store.snapshot import TICK_MAX_MS, TICK_MIN_MS

NO_IDS = np.empty(0, np.int64)


def state_of(timing: bool | tuple[str, ...] = False, **settings: int) -> StreamState:
    """A stream of 100 ms stream batches that absorbs into graph 70."""
    return StreamState("http://ex/s", 100, timing, 70, None, 0, Settings(**settings))


def encoded(times: list[int], predicates: list[int] | None = None, graph: int = UNBOUND) -> Encoded:
    """Tuples whose subjects are 2, 4, 6, ..."""
    n = len(times)
    return Encoded(
        2 * np.arange(1, n + 1, dtype=np.int64),
        np.array(predicates or [10] * n, np.int64),
        np.full(n, 50, np.int64),
        np.full(n, graph, np.int64),
        np.array(times, np.int64),
        TermTable.empty(),
    )


def take(
    state: StreamState, times: list[int], partition: str = PUSH_PARTITION, transient: list[int] | None = None
) -> None:
    tuples = encoded(times)
    state.open_partition(partition)
    state.check_timestamps(tuples.timestamps, partition)
    state.begin_with(tuples.timestamps)
    state.take(tuples, np.full(len(tuples), state.timing), np.array(transient or [], np.int64))


def test_tuples_wait_in_their_stream_batches() -> None:
    state = state_of()
    take(state, [-150, -100, -99, 0, 1, 100, 101])
    state.complete(PUSH_PARTITION, 10_000)
    found = []
    while (number := state.next_join()) is not None:
        found.append((number, state.take_timeless(number).quads[1].tolist()))
    assert found == [(-1, [2, 4]), (0, [6, 8]), (1, [10, 12]), (2, [14])]
    assert state.waiting_bytes == 7 * 41, "they still wait for their slices"
    while (number := state.next_slice()) is not None:
        state.make_slice(number)
    assert state.waiting_bytes == 0
    assert state.tuple_count == 7


@pytest.mark.parametrize(("complete", "closed"), [(99, 0), (100, 100), (199, 100), (-1, -100), (-100, -100), (0, 0)])
def test_only_whole_stream_batches_close(complete: int, closed: int) -> None:
    state = state_of()
    state.open_partition(PUSH_PARTITION)
    state.complete(PUSH_PARTITION, complete)
    assert state.closed_ms == closed


def test_a_stream_batch_closes_when_all_partitions_have_passed_it() -> None:
    state = state_of()
    for partition in ("a", "b"):
        state.open_partition(partition)
    state.complete("a", 500)
    assert state.closed_ms is None
    state.complete("b", 250)
    assert state.closed_ms == 200
    state.complete("b", 100)  # said already: nothing goes back
    assert state.closed_ms == 200
    state.complete("b", 900)
    assert state.closed_ms == 500
    state.open_partition("c")
    state.complete("a", 900)
    assert state.closed_ms == 500, "the new one has not said anything yet"
    state.finish("c")
    assert state.closed_ms == 900
    assert not state.is_ended
    state.finish("a")
    state.finish("b")
    assert state.is_ended


def test_the_first_tuple_is_the_earliest_whichever_partition_sends_first() -> None:
    state = state_of()
    take(state, [1000], "a")
    take(state, [100], "b")
    take(state, [500], "c")
    assert state.first_ms == 100


def test_an_advance_begins_a_stream_too() -> None:
    state = state_of()
    state.open_partition(PUSH_PARTITION)
    assert not state.is_started
    state.complete(PUSH_PARTITION, 330)
    take(state, [400])
    assert state.first_ms == 330
    state.complete(PUSH_PARTITION, 500)
    assert state.first_ms == 330


def test_the_end_closes_the_last_stream_batch() -> None:
    state = state_of()
    take(state, [50, 350])
    state.complete(PUSH_PARTITION, 120)
    state.end()
    assert state.closed_ms == 400
    assert [state.next_slice(), state.next_join()] == [1, 1]


def test_an_end_without_tuples_goes_no_further_than_the_advance() -> None:
    state = state_of()
    state.open_partition(PUSH_PARTITION)
    state.complete(PUSH_PARTITION, 350)
    state.end()
    assert state.closed_ms == 300
    never = state_of()
    never.end()
    assert never.closed_ms is None
    assert never.next_slice() is None


def test_timeless_tuples_are_handed_on_with_their_graph() -> None:
    state = state_of(timing=("http://ex/timing",))
    tuples = encoded([1, 2, 3, 4], [10, 12, 12, 10])
    state.take(tuples, tuples.predicates == 10, NO_IDS)
    own = encoded([5, 6], [12, 10], graph=90)
    state.take(own, own.predicates == 10, NO_IDS)
    state.make_slice(1)
    graphs, subjects, predicates, objects = state.take_timeless(1).quads
    assert graphs.tolist() == [70, 70, 90]
    assert subjects.tolist() == [4, 6, 2]
    assert predicates.tolist() == [12, 12, 12]
    assert objects.tolist() == [50, 50, 50]
    assert len(state.ring) == 6, "the slice has all, timing and timeless"


def test_retractions_wait_for_the_stored_graph_alone() -> None:
    state = state_of(timing=("http://ex/timing",))
    signs = np.array([True, False, False, True, True, True])
    tuples = replace(encoded([10, 20, 110, 120, 210, 310], [12, 12, 10, 12, 12, 12]), goes=signs)
    state.take(tuples, tuples.predicates == 10, np.array([4, 6]), "b")
    state.take(replace(encoded([15]), goes=np.array([True])), np.array([False]), NO_IDS, "a")
    assert state.tuple_count == 2
    assert state.last_ms == 310
    assert state.waiting_ids().tolist() == [4, 6], "they go with the slice of the last tuple that has one"
    state.end()
    found, sizes = [], [state.waiting_bytes]
    while (number := state.next_slice()) is not None:
        state.make_slice(number)
        found.append(number)
    assert (found, len(state.ring)) == ([1, 2], 2)
    while (number := state.next_join()) is not None:
        timeless = state.take_timeless(number)
        times, goes, places = timeless.times.tolist(), timeless.goes.tolist(), timeless.places.tolist()
        found.append((number, timeless.end_ms, times, goes, places))  # type: ignore[arg-type]
        sizes.append(state.waiting_bytes)
    assert found[2:] == [
        (1, 100, [10, 20, 15], [True, False, True], [1, 1, 0]),
        (2, 200, [120], [True], [0]),
        (3, 300, [210], [True], [0]),
        (4, 400, [310], [True], [0]),
    ]
    assert sizes == [7 * 41, 4 * 41, 2 * 41, 41, 0]


def test_transient_ids_of_a_call_live_as_long_as_its_last_slice() -> None:
    state = state_of(timing=True)
    take(state, [50, 150, 250], transient=[4, 6])
    assert state.waiting_ids().tolist() == [4, 6]
    for number in (1, 2, 3):
        state.make_slice(number)
    assert state.ring.drop(2).tolist() == []
    assert state.ring.drop(3).tolist() == [4, 6]


# --- refused ----------------------------------------------------------------------------------------------------------


def refused(state: StreamState, times: list[int], partition: str = PUSH_PARTITION) -> str:
    with pytest.raises(StreamError) as caught:
        state.check_timestamps(np.array(times, np.int64), partition)
    assert state.tuple_count == 0 or state.waiting_bytes == 41 * state.tuple_count
    return str(caught.value)


def test_a_falling_timestamp_names_its_place() -> None:
    text = refused(state_of(), [1, 5, 5, 4])
    assert "falls from 5 to 4 ms at tuple 3 of the call" in text
    assert text.endswith("sort it by time, or declare the stream with lateness_ms or on_late")


def test_a_timestamp_that_was_declared_complete_is_refused() -> None:
    state = state_of()
    state.open_partition(PUSH_PARTITION)
    state.complete(PUSH_PARTITION, 149)
    assert "timestamp 149 ms at tuple 0" in refused(state, [149, 200])
    assert "already stands at 150 ms" in refused(state, [149, 200])
    state.check_timestamps(np.array([150]), PUSH_PARTITION)


def test_a_partition_that_comes_late_cannot_bring_what_is_closed() -> None:
    """Its stream batch is a slice already: the tuple would be lost, or a slice replaced."""
    state = state_of()
    take(state, [1050])
    state.complete(PUSH_PARTITION, 1049)
    state.open_partition("late")
    assert "already stands at 1001 ms" in refused(state, [1000], "late")
    state.check_timestamps(np.array([1001]), "late")


@pytest.mark.parametrize("time_ms", [TICK_MIN_MS, TICK_MIN_MS + 100, TICK_MAX_MS - 99, 2**62, -(2**62)])
def test_a_time_that_no_sn_can_name_is_refused(time_ms: int) -> None:
    assert f"timestamp {time_ms} ms is outside of what can be named" in refused(state_of(), [time_ms])
    assert "give milliseconds" in refused(state_of(), [time_ms])


def test_both_ends_of_a_call_are_checked() -> None:
    assert f"timestamp {2**60} ms" in refused(state_of(), [5, 2**60])


def test_a_closed_stream_takes_nothing_and_opens_nothing() -> None:
    state = state_of()
    state.end()
    assert refused(state, [5]) == "stream http://ex/s is closed: declare a new one to push more"
    with pytest.raises(StreamError, match="is closed"):
        state.open_partition("p")


def test_too_much_waiting_says_how_much_and_what_to_do() -> None:
    state = state_of(queued_bytes_max=1024)
    state.check_room(24)
    with pytest.raises(StreamError) as caught:
        state.check_room(25)
    assert "1025 bytes of unsealed stream batches would exceed queued_bytes_max = 1024" in str(caught.value)
    assert "held_back_by" in str(caught.value)
    take(state, list(range(1, 21)))
    with pytest.raises(StreamError, match="1025 bytes"):
        state.check_room(5)
    state.make_slice(1)
    with pytest.raises(StreamError, match="1025 bytes"):
        state.check_room(5)
    state.take_timeless(1)
    state.check_room(24)


def test_records_of_a_late_stream_are_forgotten_once_no_firing_reads_by_them() -> None:
    state = state_of()
    state.joins = [(2, 70), (5, 80), (9, 90)]
    assert [state.joined_at(ms) for ms in (0, 299, 300, 599, 600, 999, 1000)] == [70, 70, 80, 80, 90, 90, -1]
    state.forget_joins(299)
    assert len(state.joins) == 3
    state.forget_joins(300)
    assert state.joins == [(5, 80), (9, 90)]
    state.forget_joins(5000)
    assert state.joins == [(9, 90)]


def test_slices_that_were_expected_are_forgotten_with_their_numbers() -> None:
    """A node that is a home no more, and then one again, has none of those that it waited for before."""
    state = state_of()
    state.whole = {}
    state.expect(1, WholeSlice((NO_IDS, NO_IDS, NO_IDS, NO_IDS), NO_IDS, 0))
    state.closed_ms = 200
    assert state.next_slice() == 1
    state.expect_none()
    assert state.next_slice() is None
