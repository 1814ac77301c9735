"""store/ahead.py: the next item is made while the one before is used."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from wukongs.store.ahead import ahead


def test_all_items_come_in_their_order_whatever_they_are() -> None:
    assert list(ahead(iter([1, None, (), "x"]), "t")) == [1, None, (), "x"]
    assert list(ahead(iter([]), "t")) == []


def test_one_item_is_made_ahead_in_a_thread_of_its_own() -> None:
    made, threads = [threading.Event() for _ in range(3)], set[str]()

    def items() -> Iterator[int]:
        for number, event in enumerate(made):
            threads.add(threading.current_thread().name)
            event.set()
            yield number

    coming = ahead(items(), "t")
    assert next(coming) == 0
    assert made[1].wait(10)
    assert not made[2].is_set(), "no more than one"
    assert list(coming) == [1, 2]
    assert threads == {"t_0"}


def test_an_error_comes_behind_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("no more")

    coming = ahead(items(), "t")
    assert next(coming) == 1
    with pytest.raises(OSError, match="no more"):
        next(coming)
