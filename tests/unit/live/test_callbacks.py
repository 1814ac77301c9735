"""Callbacks: one thread as long as it gets on, others beside slow calls, and nothing that is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from wukongs.live import callbacks as module
from wukongs.live.callbacks import THREADS_MAX, Callbacks


@pytest.fixture
def callbacks() -> Iterator[Callbacks]:
    before = set(threading.enumerate())
    found = Callbacks()
    yield found
    found.stop()
    assert set(threading.enumerate()) <= before


def until(is_done: threading.Event) -> None:
    assert is_done.wait(60)


def test_all_is_done_and_in_order_while_nothing_is_slow(callbacks: Callbacks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 60.0)
    done: list[int] = []
    at_once, is_done = threading.Semaphore(1), threading.Event()

    def note(number: int) -> None:
        assert at_once.acquire(blocking=False), "two at once"
        done.append(number)
        at_once.release()

    for number in range(500):
        callbacks.submit(partial(note, number))
    callbacks.submit(is_done.set)
    until(is_done)
    assert done == list(range(500))


def test_a_slow_call_holds_nobody_up(callbacks: Callbacks) -> None:
    is_slow, goes_on, is_done = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        is_slow.set()
        until(goes_on)

    for _ in range(5):
        callbacks.submit(slow)
    until(is_slow)
    callbacks.submit(is_done.set)
    until(is_done)
    assert callbacks.is_busy
    goes_on.set()


def test_no_more_threads_than_allowed_begin(callbacks: Callbacks) -> None:
    goes_on, is_done, at_once = threading.Event(), threading.Event(), list[int]()

    def slow() -> None:
        at_once.append(threading.active_count())
        until(goes_on)

    for _ in range(2 * THREADS_MAX):
        callbacks.submit(slow)
    deadline = time.monotonic() + 60
    while len(at_once) < THREADS_MAX:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(at_once) == THREADS_MAX
    goes_on.set()
    callbacks.submit(is_done.set)
    until(is_done)


def test_threads_end_when_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_S", 0.01)
    before = set(threading.enumerate())
    callbacks, is_done = Callbacks(), threading.Event()
    callbacks.submit(is_done.set)
    until(is_done)
    deadline = time.monotonic() + 60
    while not set(threading.enumerate()) <= before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    is_again = threading.Event()
    callbacks.submit(is_again.set)
    until(is_again)
    callbacks.stop()


def test_idle_is_told_once_all_is_done() -> None:
    is_idle = threading.Event()
    callbacks = Callbacks(is_idle.set)
    callbacks.submit(lambda: None)
    until(is_idle)
    assert not callbacks.is_busy
    callbacks.stop()
    callbacks.submit(lambda: pytest.fail("nothing is begun after stop"))
    assert not callbacks.is_busy


def test_work_has_begun_when_the_caller_goes_on(callbacks: Callbacks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BEGIN_S", 60.0)
    monkeypatch.setattr(module, "PATIENCE_S", 60.0)  # no other thread begins the second one
    begun, goes_on = list[int](), threading.Event()

    def note(number: int) -> None:
        begun.append(number)
        until(goes_on)

    callbacks.let_begin()  # there is nothing to wait for
    callbacks.submit(partial(note, 0))
    callbacks.let_begin()
    callbacks.submit(partial(note, 1))
    assert 1 not in begun
    callbacks.let_begin()  # a thread is at work: it takes the next by itself
    goes_on.set()
