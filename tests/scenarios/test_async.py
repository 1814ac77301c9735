"""Coroutines ask an engine: they do not hold up the event loop, and a task that is cancelled ends its query."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import slow_filter
from tests.faces import Face

S = "http://ex/stream"
LONG = f"SELECT (COUNT(*) AS ?n) {{ VALUES ?x {{ 1 2 3 4 5 6 7 8 9 }} ?a ?p ?b . ?c ?q ?d {slow_filter('acx')} }}"


def fill(engine: Any) -> None:
    triples = " . ".join(f"<http://ex/{n}> <http://ex/p> {n}" for n in range(300))
    engine.update(f"INSERT DATA {{ {triples} }}")


def threads() -> int:
    return sum(one.name.startswith("wukongs-async") for one in threading.enumerate())


def until(is_so: Any, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(is_so())


def test_many_queries_at_the_same_time(face: Face) -> None:
    engine = face.open()

    async def main() -> None:
        async with engine as same:
            assert same is engine
            await engine.aupdate("INSERT DATA { <http://ex/a> <http://ex/p> 1, 2, 3 }")
            asked = [engine.aquery("SELECT ?o { ?s ?p ?o }", bindings={"o": n % 4}) for n in range(200)]
            counts = [len(result) for result in await asyncio.gather(*asked)]
            assert counts == [int(n % 4 > 0) for n in range(200)]
            with pytest.raises(wukongs.QuerySyntaxError):
                await engine.aquery("nonsense")
        with pytest.raises(wukongs.WukongsError, match="closed"):
            await engine.aquery("ASK {}")

    before = threads()
    asyncio.run(main())
    engine.close()
    assert until(lambda: threads() <= before)


@pytest.mark.slow_on("connect", "cluster-1", "cluster-3")
def test_a_cancelled_task_ends_its_query_and_nothing_waits_for_it(face: Face) -> None:
    engine = face.open()
    fill(engine)

    async def main() -> None:
        tasks = [asyncio.create_task(engine.aquery(LONG, timeout_s=0)) for _ in range(3)]
        beats = 0
        while len(engine.running()) < 3:
            await asyncio.sleep(0.01)
            beats += 1
        assert beats < 3000
        for task in tasks:
            task.cancel()
        began_s = time.monotonic()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        assert time.monotonic() - began_s < 30

    asyncio.run(main())
    assert until(lambda: engine.running() == [])
    assert bool(engine.query("ASK {}"))


@pytest.mark.faces("embedded")
def test_the_event_loop_goes_on_beside_a_query_and_close_ends_it(face: Face) -> None:
    async def main() -> None:
        async with wukongs.Engine() as engine:
            fill(engine)
            task = asyncio.create_task(engine.aquery(LONG, timeout_s=0))
            longest_s, last_s = 0.0, time.monotonic()
            for _ in range(40):
                await asyncio.sleep(0.01)
                longest_s, last_s = max(longest_s, time.monotonic() - last_s), time.monotonic()
            assert longest_s < 20
            assert not task.done()
        with pytest.raises(wukongs.QueryKilled):
            await task

    asyncio.run(main())
    assert until(lambda: threads() == 0)


def test_windows_come_to_async_for_and_a_cancelled_reader_leaves_no_thread(face: Face) -> None:
    engine = face.open()
    stream = engine.stream(S, batch_ms=100)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?o FROM STREAM <{S}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
    )
    stream.push([("<http://ex/a>", "<http://ex/p>", n, 100 * n) for n in range(1, 4)])
    stream.advance(300)
    found = list[int]()

    async def read() -> None:
        async for window in query.aresults():
            found.append(window.end_ms)

    async def main() -> None:
        task = asyncio.create_task(read())
        while len(found) < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [window.end_ms async for window in query.aresults(0.05)] == []
        stream.advance(400)
        engine.settle(60)
        later = query.aresults(60)
        assert (await anext(later)).end_ms == 400
        await later.aclose()

    began_s = time.monotonic()
    asyncio.run(main())  # it waits for the threads of the loop
    assert found == [100, 200, 300]
    assert time.monotonic() - began_s < 100
