"""Subscription: windows waiting to be read."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from wukongs.errors import QueryTimeout, WukongsError
from wukongs.live.subscription import Subscription


def window(name: str) -> Any:
    """Anything that is no error stands for a window here."""
    return name


def test_windows_come_out_in_order_and_then_none() -> None:
    subscription = Subscription(10)
    for name in "abc":
        subscription.put(0, window(name))
    assert len(subscription) == 3
    assert list(subscription.read(0)) == ["a", "b", "c"]
    assert subscription.take(0) is None
    assert subscription.take(0.001) is None


def test_the_oldest_go_where_there_are_too_many() -> None:
    subscription = Subscription(2)
    for name in "abcde":
        subscription.put(0, window(name))
    assert subscription.dropped_count == 3
    assert list(subscription.read(0)) == ["d", "e"]


def test_what_waits_is_read_after_the_close() -> None:
    subscription = Subscription(10)
    subscription.put(0, window("a"))
    subscription.close()
    assert list(subscription.read(None)) == ["a"]
    assert subscription.take(None) is None


def test_an_error_stands_in_its_place_and_reading_goes_on_after_it() -> None:
    subscription = Subscription(10)
    subscription.put(0, window("a"))
    subscription.put(0, QueryTimeout("too long"))
    subscription.put(0, window("b"))
    read = subscription.read(0)
    assert next(read) == "a"
    with pytest.raises(WukongsError, match="too long"):
        next(read)
    assert list(subscription.read(0)) == ["b"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_waiting_reader_is_woken(ends: bool) -> None:
    subscription = Subscription(10)
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(subscription.take(60)))
    reader.start()
    if ends:
        subscription.close()
    else:
        subscription.put(0, window("a"))
    reader.join(30)
    assert not reader.is_alive()
    assert found == [None if ends else "a"]


def test_a_reader_that_gives_up_in_an_event_loop_takes_no_window_and_leaves_no_thread() -> None:
    subscription = Subscription(10)

    async def give_up() -> list[Any]:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(subscription.aread(None)), 0.01)
        subscription.put(0, window("a"))
        await asyncio.sleep(0.01)
        return [name async for name in subscription.aread(0.01)]

    found: list[Any] = []
    loop = threading.Thread(target=lambda: found.append(asyncio.run(give_up())), daemon=True)
    loop.start()
    loop.join(30)
    assert found == [["a"]]


@pytest.mark.parametrize("timeout_s", [None, 60])
def test_a_reader_in_an_event_loop_is_woken_by_windows_and_by_the_close(timeout_s: float | None) -> None:
    subscription = Subscription(10)

    async def read() -> list[Any]:
        reading = asyncio.create_task(collect())
        for name in "ab":
            await asyncio.sleep(0.01)
            await asyncio.to_thread(subscription.put, 0, window(name))
        await asyncio.sleep(0.01)
        await asyncio.to_thread(subscription.close)
        return await asyncio.wait_for(reading, 30)

    async def collect() -> list[Any]:
        return [name async for name in subscription.aread(timeout_s)]

    assert asyncio.run(read()) == ["a", "b"]


def test_what_comes_after_a_window_that_is_not_confirmed_is_not_acknowledged_yet() -> None:
    acknowledged: list[int] = []
    subscription = Subscription(10, acknowledged.append)
    for end_ms in (100, 200, 300):
        subscription.put(end_ms, window(str(end_ms)))
    first, second, third = (subscription.fetch(0) for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    subscription.confirm(second)
    assert acknowledged == [99]
    subscription.give_back(first)
    subscription.confirm(third)
    assert acknowledged == [99, 99]
    assert subscription.fetch(0) is first
    subscription.confirm(first)
    assert acknowledged == [99, 99, 300]


def test_a_window_that_is_given_back_waits_in_its_place() -> None:
    subscription = Subscription(10)
    for end_ms in (100, 200, 300):
        subscription.put(end_ms, window(str(end_ms)))
    first, second = subscription.fetch(0), subscription.fetch(0)
    assert first is not None
    assert second is not None
    subscription.give_back(second)
    subscription.give_back(first)
    assert list(subscription.read(0)) == ["100", "200", "300"]


def test_a_reader_that_goes_away_leaves_its_window_to_the_next_confirmation() -> None:
    acknowledged: list[int] = []
    subscription = Subscription(10, acknowledged.append)
    for end_ms in (100, 200):
        subscription.put(end_ms, window(str(end_ms)))
    reader = subscription.read(0)
    next(reader)
    reader.close()
    assert acknowledged == []
    assert list(subscription.read(0)) == ["200"]
    assert acknowledged == [200]
