"""Subscribers share what is made for a window, and are sent no more at a time than leaves room for requests."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from wukongs.server import pace as pace_module
from wukongs.server.events import FORMS_MAX, Event
from wukongs.server.pace import PART_BYTES, TURN_BYTES, Pace


def test_a_turn_is_bounded_and_all_are_sent_everything() -> None:
    whole, count = bytes(range(256)) * (5 * PART_BYTES // 256), 40
    sent: list[list[bytes]] = [[] for _ in range(count)]
    turns = list[int]()

    async def subscriber(pace: Pace, number: int) -> None:
        async for part in pace.parts(whole):
            assert part.obj is whole, "it is not copied"
            sent[number].append(bytes(part))
            turns[-1] += len(part)

    async def run() -> None:
        pace = Pace()
        begin = pace._begin_turn

        def begin_turn() -> None:
            turns.append(0)
            begin()

        pace._begin_turn = begin_turn  # type: ignore[method-assign]
        turns.append(0)
        await asyncio.gather(*(subscriber(pace, number) for number in range(count)))

    asyncio.run(run())
    assert [b"".join(one) for one in sent] == [whole] * count
    assert max(turns) < TURN_BYTES + PART_BYTES + 1
    assert len(turns) >= count * len(whole) // (TURN_BYTES + PART_BYTES)


def test_those_that_wait_are_sent_in_order_and_those_that_leave_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace_module, "TURN_BYTES", 1)
    order = list[int]()

    async def take(pace: Pace, number: int) -> None:
        await pace.take(1)
        order.append(number)

    async def run() -> None:
        pace = Pace()
        tasks = [asyncio.ensure_future(take(pace, number)) for number in range(6)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    assert order == [0, 1, 3, 4, 5]


def test_a_form_of_a_window_is_made_once() -> None:
    made, threads = list[str](), set[int]()

    def make(form: str) -> bytes:
        made.append(form)
        threads.add(threading.get_ident())
        time.sleep(0.02)
        return form.encode()

    async def run() -> None:
        event = Event.of("window", 1, "{}")
        found = await asyncio.gather(*(event.made("arrow", lambda: make("arrow")) for _ in range(50)))
        assert found == [b"arrow"] * 50
        for number in range(10):  # a client may ask for as many as it likes
            await event.made(number, lambda number=number: make(str(number)))  # type: ignore[misc]
        assert len(event._made) == FORMS_MAX

    asyncio.run(run())
    assert made.count("arrow") == 1
    assert len(made) == 11
    assert threading.get_ident() not in threads
