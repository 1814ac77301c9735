"""The window log: each cursor gets every window in order, or a gap in its place."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from wukongs.errors import GapError, QueryTimeout, WukongsError
from wukongs.live.window_log import LAST_MS, Come, Cursor, Gap, UnreadBudget, WindowLog
from wukongs.query.memory import STEP_BYTES, Kind, MemoryBudget, Reservation


def log_of(bytes_max: int = 1 << 20, budget: UnreadBudget | None = None, **options: Any) -> WindowLog:
    return WindowLog("q", budget or UnreadBudget(1 << 30), bytes_max, **options)


def rest(cursor: Cursor) -> list[Any]:
    """What a cursor still gives, gaps as tuples."""
    found: list[Any] = []
    while True:
        try:
            taken = cursor.take(0)
        except GapError as gap:
            taken = gap.from_ms, gap.to_ms, gap.count  # type: ignore[assignment]
        if taken is None:
            return found
        found.append(taken)


def window(name: str) -> Any:
    """Anything that is no error stands for a window here."""
    return name


def test_windows_come_out_in_order_and_then_none() -> None:
    log = log_of()
    cursor = log.cursor()
    for name in "abc":
        log.put(0, window(name))
    assert len(cursor) == 3
    assert list(cursor.read(0)) == ["a", "b", "c"]
    assert cursor.take(0) is None
    assert cursor.take(0.001) is None


def test_what_waits_is_read_after_the_close() -> None:
    log = log_of()
    cursor = log.cursor()
    log.put(0, window("a"))
    log.close()
    assert list(cursor.read(None)) == ["a"]
    assert cursor.take(None) is None


def test_a_wait_may_be_longer_than_the_system_knows() -> None:
    log = log_of()
    cursor = log.cursor()
    threading.Timer(0.1, log.put, (0, window("a"))).start()
    assert cursor.take(1e300) == "a"


def test_an_error_stands_in_its_place_and_reading_goes_on_after_it() -> None:
    log = log_of()
    cursor = log.cursor()
    log.put(0, window("a"))
    log.put(0, QueryTimeout("too long"))
    log.put(0, window("b"))
    read = cursor.read(0)
    assert next(read) == "a"
    with pytest.raises(WukongsError, match="too long"):
        next(read)
    assert list(cursor.read(0)) == ["b"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_waiting_reader_is_woken(ends: bool) -> None:
    log = log_of()
    cursor = log.cursor()
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(cursor.take(60)))
    reader.start()
    if ends:
        log.close()
    else:
        log.put(0, window("a"))
    reader.join(60)
    assert not reader.is_alive()
    assert found == [None if ends else "a"]


def test_a_reader_that_gives_up_in_an_event_loop_takes_no_window_and_leaves_no_thread() -> None:
    log = log_of()
    cursor = log.cursor()

    async def give_up() -> list[Any]:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(cursor.aread(None)), 0.01)
        log.put(0, window("a"))
        await asyncio.sleep(0.01)
        return [name async for name in cursor.aread(0.01)]

    found: list[Any] = []
    loop = threading.Thread(target=lambda: found.append(asyncio.run(give_up())), daemon=True)
    loop.start()
    loop.join(60)
    assert found == [["a"]]


@pytest.mark.parametrize("timeout_s", [None, 60])
def test_a_reader_in_an_event_loop_is_woken_by_windows_and_by_the_close(timeout_s: float | None) -> None:
    log = log_of()
    cursor = log.cursor()

    async def read() -> list[Any]:
        reading = asyncio.create_task(collect())
        for name in "ab":
            await asyncio.sleep(0.01)
            await asyncio.to_thread(log.put, 0, window(name))
        await asyncio.sleep(0.01)
        await asyncio.to_thread(log.close)
        return await asyncio.wait_for(reading, 60)

    async def collect() -> list[Any]:
        return [name async for name in cursor.aread(timeout_s)]

    assert asyncio.run(read()) == ["a", "b"]


def test_what_comes_after_a_window_that_is_not_confirmed_is_not_acknowledged_yet() -> None:
    acknowledged: list[int] = []
    log = log_of()
    cursor = log.cursor(None, lambda come: acknowledged.append(come.through_ms))
    for end_ms in (100, 200, 300):
        log.put(end_ms, window(str(end_ms)))
    first, second, third = (cursor.fetch(0) for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    cursor.confirm(second)
    assert acknowledged == [99]
    cursor.give_back(first)
    cursor.confirm(third)
    assert acknowledged == [99, 99]
    assert cursor.fetch(0) is first
    cursor.confirm(first)
    assert acknowledged == [99, 99, 300]


def test_a_window_that_is_given_back_waits_in_its_place() -> None:
    log = log_of()
    cursor = log.cursor()
    for end_ms in (100, 200, 300):
        log.put(end_ms, window(str(end_ms)))
    first, second = cursor.fetch(0), cursor.fetch(0)
    assert first is not None
    assert second is not None
    cursor.give_back(second)
    cursor.give_back(first)
    assert list(cursor.read(0)) == ["100", "200", "300"]


def test_a_reader_that_goes_away_leaves_its_window_to_the_next_confirmation() -> None:
    acknowledged: list[int] = []
    log = log_of()
    cursor = log.cursor(None, lambda come: acknowledged.append(come.through_ms))
    for end_ms in (100, 200):
        log.put(end_ms, window(str(end_ms)))
    reader = cursor.read(0)
    next(reader)
    reader.close()
    assert acknowledged == []
    assert list(cursor.read(0)) == ["200"]
    assert acknowledged == [200]


# --- several cursors, and bounds --------------------------------------------------------------------------------------


def filled(log: WindowLog, ends: range, size_bytes: int = 10) -> None:
    for end_ms in ends:
        log.put(end_ms, window(str(end_ms)), size_bytes)


def test_each_cursor_gets_every_window_and_a_new_one_begins_with_the_oldest_held() -> None:
    log = log_of()
    one, two = log.cursor(), log.cursor()
    filled(log, range(100, 500, 100))
    assert one.take(0) == two.take(0) == "100"
    assert one.take(0) == "200"
    late = log.cursor()
    assert rest(late) == rest(two) == ["200", "300", "400"]
    assert rest(one) == ["300", "400"]
    assert log.size_bytes == 0


def test_reading_a_window_looks_at_no_others_that_wait() -> None:
    class Counted(deque[Any]):
        looked = 0

        def __iter__(self) -> Iterator[Any]:
            for one in super().__iter__():
                self.looked += 1
                yield one

    log = log_of()
    cursor = log.cursor()
    cursor._waiting = counted = Counted()
    for end_ms in range(1000):
        log.put(end_ms, window("a"))
    assert len(rest(cursor)) == 1000
    assert counted.looked < 3000


def test_what_nobody_reads_any_more_is_not_held() -> None:
    log = log_of()
    one, two = log.cursor(), log.cursor()
    filled(log, range(100, 400, 100))
    assert rest(one) == ["100", "200", "300"]
    assert log.size_bytes == 30
    fetched = two.fetch(0)
    assert fetched is not None
    two.close()
    assert log.size_bytes == 0
    two.confirm(fetched)
    filled(log, range(400, 500, 100))
    assert log.size_bytes == 10


def test_a_full_log_drops_its_oldest_and_tells_the_gap_in_its_place() -> None:
    log = log_of(30)
    slow, fast = log.cursor(), log.cursor()
    filled(log, range(100, 300, 100))
    held = slow.fetch(0)
    assert held is not None
    for end_ms in range(300, 700, 100):
        filled(log, range(end_ms, end_ms + 1))
        rest(fast)
    assert (log.dropped_count, log.dropped_to_ms, log.size_bytes) == (3, 300, 30)
    slow.give_back(held)  # it was read when it was dropped, so it is there
    assert rest(slow) == ["100", (200, 300, 2), "400", "500", "600"]


def test_one_window_stays_however_large_it_is() -> None:
    log = log_of(30)
    cursor = log.cursor()
    log.put(100, window("a"), 1000)
    log.put(200, window("b"), 1000)
    assert rest(cursor) == [(100, 100, 1), "b"]


def test_the_largest_log_of_an_engine_makes_room() -> None:
    budget = UnreadBudget(100)
    logs = [log_of(1000, budget) for _ in range(3)]
    cursors = [log.cursor() for log in logs]
    filled(logs[0], range(100, 800, 100))
    filled(logs[1], range(100, 400, 100))
    assert budget.size_bytes == 100
    filled(logs[2], range(100, 200, 100), 20)
    assert budget.size_bytes <= 100
    assert rest(cursors[0]) == [(100, 300, 3), "400", "500", "600", "700"]
    assert rest(cursors[1]) == ["100", "200", "300"]
    assert rest(cursors[2]) == ["100"]
    logs[2].put(200, window("held"), 20)
    logs[2].close()  # no longer counted: it cannot grow
    assert budget.size_bytes == 0


def test_a_log_that_ends_rather_than_drops_says_so_once_it_is_full() -> None:
    told: list[str] = []

    def end(name: str) -> None:
        told.append(name)
        log.put(LAST_MS, WukongsError("full"))
        log.close()

    log = log_of(30, on_full=lambda: end("own"))
    cursor = log.cursor()
    filled(log, range(100, 500, 100))
    assert not told
    log.budget.end_full()
    log.budget.end_full()
    assert told == ["own"]
    assert [cursor.take(0) for _ in range(4)] == ["100", "200", "300", "400"]
    with pytest.raises(WukongsError, match="full"):
        cursor.take(0)
    assert cursor.is_ended()


def test_nothing_is_dropped_for_what_goes_with_a_log_that_ends() -> None:
    budget = UnreadBudget(100)
    full, other = log_of(budget=budget, on_full=lambda: full.close()), log_of(budget=budget)
    cursors = [log.cursor() for log in (full, other)]
    filled(full, range(100, 1000, 100))
    filled(other, range(100, 700, 100))
    budget.end_full()
    assert full.is_closed
    assert [len(cursor) for cursor in cursors] == [9, 6]
    assert budget.size_bytes == 60


def test_a_cursor_goes_on_where_it_stood_with_the_gap_that_it_was_not_told() -> None:
    come: list[Come] = []
    log = log_of(20)
    cursor = log.cursor(None, come.append)
    filled(log, range(100, 500, 100))
    assert come[-1] == Come(200, Gap(100, 200, 2))
    again = log_of(20)
    restored = again.cursor(come[-1], come.append)
    assert [restored.had(end_ms) for end_ms in (100, 200, 300)] == [True, True, False]
    filled(again, range(100, 500, 100))
    assert rest(restored) == [(100, 200, 2), "300", "400"]
    assert come[-1] == Come(400)
    assert len(cursor) == 3


def test_unread_windows_give_way_when_others_hold_the_memory() -> None:
    shared = MemoryBudget(10 * STEP_BYTES)
    budget = UnreadBudget(1 << 30, Reservation(shared, Kind.WINDOWS))
    log = log_of(1 << 30, budget)
    cursor = log.cursor()
    filled(log, range(100, 700, 100), STEP_BYTES)
    assert shared.stats()["held_bytes"] == {"unread windows": 6 * STEP_BYTES}
    query = Reservation(shared, Kind.QUERY)
    assert query.grow(2 * STEP_BYTES)
    assert not query.grow(2 * STEP_BYTES)
    update = Reservation(shared, Kind.UPDATE)
    assert update.grow(2 * STEP_BYTES)
    filled(log, range(700, 900, 100), STEP_BYTES)
    assert budget.size_bytes <= 7 * STEP_BYTES
    assert shared.reserved_bytes <= 10 * STEP_BYTES
    assert rest(cursor)[-2:] == ["700", "800"]
    log.close()
    assert shared.stats()["held_bytes"] == {"queries": 2 * STEP_BYTES, "updates": 2 * STEP_BYTES}
