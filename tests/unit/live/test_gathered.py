"""Callbacks gather the work of the thread that fires, and hand it over together: soon, whatever that thread does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from wukongs.live.answering import Answering
from wukongs.live.callbacks import Callbacks

S = "http://ex/s"
SLOW_S = 1.5


@pytest.fixture
def callbacks() -> Iterator[Callbacks]:
    found = Callbacks()
    found.gather()
    yield found
    found.stop()


def test_it_waits_for_the_hand_over(callbacks: Callbacks) -> None:
    done: list[str] = []
    for number in range(3):
        callbacks.submit(lambda: done.append(threading.current_thread().name))
        assert callbacks.is_busy, number
    assert not done
    callbacks.hand_over()
    deadline_s = time.monotonic() + 10
    while callbacks.is_busy and time.monotonic() < deadline_s:
        time.sleep(0.001)
    assert done == ["wukongs-on-result"] * 3


def test_a_thread_takes_it_from_one_that_is_busy(callbacks: Callbacks) -> None:
    begun = threading.Event()
    callbacks.submit(begun.set)
    callbacks.watch()
    assert begun.wait(10), "this thread hands nothing over"


def test_other_threads_are_not_gathered(callbacks: Callbacks) -> None:
    begun = threading.Event()
    other = threading.Thread(target=callbacks.submit, args=(begun.set,))
    other.start()
    other.join()
    assert begun.wait(10)


@pytest.mark.parametrize("fails", [True, False])
def test_a_slow_query_does_not_hold_up_the_windows_of_others(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is quick at first, so nobody foresees it."""
    right, slow_from_ms = Answering.answer, 700

    def answer(self: Answering, firing: Any) -> Any:
        if self.name == "slow" and firing.at_ms >= slow_from_ms:
            time.sleep(SLOW_S)
            if fails:
                raise wukongs.QueryTimeout("too long")
        return right(self, firing)

    monkeypatch.setattr(Answering, "answer", answer)
    late_s: list[float] = []
    with wukongs.Engine() as engine:
        stream = engine.stream(S, batch_ms=100, timing=True)
        text = f"REGISTER QUERY %s AS SELECT ?s FROM STREAM <{S}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p %s }}"
        begun_s = [0.0]
        engine.register(text % ("quick", "?o"), lambda window: late_s.append(time.perf_counter() - begun_s[0]))
        engine.register(text % ("slow", "<http://ex/o>"), lambda window: None)
        for number in range(1, 9):
            stream.push([("<http://ex/a>", "<http://ex/p>", "<http://ex/o>", 100 * number - 50)])
            begun_s[0] = time.perf_counter()
            stream.advance(100 * number)
            engine.settle(60)
    assert len(late_s) == 8
    assert max(late_s[2:]) < SLOW_S / 2, "the first firings find and compile plans"
