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


def test_the_caller_goes_on_when_quick_work_is_done(callbacks: Callbacks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 60.0)
    done = list[int]()
    callbacks.let_finish()  # there is nothing to wait for
    for number in range(50):
        callbacks.submit(partial(done.append, number))
    callbacks.let_finish()
    assert done == list(range(50))
    assert not callbacks.is_busy


def test_the_caller_goes_on_when_a_call_is_slow(callbacks: Callbacks, monkeypatch: pytest.MonkeyPatch) -> None:
    is_begun, goes_on = threading.Event(), threading.Event()

    def slow() -> None:
        is_begun.set()
        until(goes_on)

    callbacks.submit(slow)
    callbacks.let_finish()
    until(is_begun)
    monkeypatch.setattr(module, "_BEGIN_S", 60.0)
    monkeypatch.setattr(module, "PATIENCE_S", 60.0)  # it waits for the beginning alone
    callbacks.let_finish()  # a thread is at work
    goes_on.set()
    callbacks.submit(goes_on.set)
    callbacks.let_finish()


def test_a_thread_that_was_slow_leaves_the_rest_to_another_one(
    callbacks: Callbacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, is_begun, is_done = threading.Event(), threading.Event(), threading.Event()
    slow_threads, threads = set[int](), set[int]()

    def slow() -> None:
        slow_threads.add(threading.get_ident())
        until(goes_on)

    def note() -> None:
        threads.add(threading.get_ident())
        time.sleep(0.001)

    for work in (slow, is_begun.set, *[note] * 300, is_done.set):
        callbacks.submit(work)
    until(is_begun)  # by another thread, which works on; from now on none takes its place
    monkeypatch.setattr(module, "PATIENCE_S", 60.0)
    goes_on.set()
    until(is_done)
    assert threads
    assert not threads & slow_threads, "the thread that was slow went on beside another one"


def test_the_caller_does_not_wait_for_calls_that_are_not_quick(callbacks: Callbacks) -> None:
    for _ in range(500):
        callbacks.submit(partial(time.sleep, 0.001))
    begun_s = time.monotonic()
    callbacks.let_finish()
    assert time.monotonic() - begun_s < 0.3
    assert callbacks.is_busy


def test_work_that_fails_ends_no_thread(callbacks: Callbacks) -> None:
    def leave() -> None:
        raise SystemExit(1)

    is_done = threading.Event()
    callbacks.submit(leave)
    callbacks.submit(is_done.set)
    until(is_done)
    deadline = time.monotonic() + 60
    while callbacks.is_busy:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_work_does_not_wait_for_a_thread_that_tells_that_all_is_done() -> None:
    is_told, goes_on, is_done = threading.Event(), threading.Event(), threading.Event()

    def tell() -> None:
        is_told.set()
        until(goes_on)

    callbacks = Callbacks(tell)
    callbacks.submit(lambda: None)
    until(is_told)
    callbacks.submit(is_done.set)
    until(is_done)
    goes_on.set()
    callbacks.stop()
