"""The checker of linearizability accepts right histories and rejects wrong ones, as one that tries all orders does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.linearizability import (
    MODELS,
    Model,
    Operation,
    TooLong,
    faults_of,
    is_linearizable,
    read_history,
    write_history,
)

Told = tuple[str, Any, Any, float, float | None]
"""Kind, argument, result, called_s, returned_s."""


def history(key: str, *told: Told) -> list[Operation]:
    return [Operation(f"client {at}", key, *one) for at, one in enumerate(told)]


RIGHT: list[tuple[str, list[Told]]] = [
    ("register", []),
    ("register", [("read", None, None, 0, 1)]),
    ("register", [("write", 1, None, 0, 1), ("read", None, 1, 2, 3)]),
    ("register", [("write", 1, None, 0, 5), ("read", None, 1, 1, 2), ("read", None, 1, 3, 4)]),
    ("register", [("write", 1, None, 0, 5), ("read", None, None, 1, 2), ("read", None, 1, 3, 4)]),
    # its outcome is not known: it happens later, or never
    ("register", [("write", 1, None, 0, None), ("read", None, None, 1, 2), ("read", None, 1, 3, 4)]),
    ("register", [("write", 1, None, 0, None), ("read", None, None, 1, 2)]),
    ("register", [("write", 1, None, 0, 4), ("write", 2, None, 1, 3), ("read", None, 1, 5, 6)]),
    ("register", [("write", 1, None, 0, 1), ("read", None, None, 2, None)]),
    ("counter", [("add", 1, None, 0, 4), ("add", 2, None, 0, 4), ("read", None, 2, 1, 2), ("read", None, 3, 3, 5)]),
    ("counter", [("add", 1, None, 0, None), ("read", None, 0, 1, 2), ("read", None, 1, 3, 4)]),
    ("set", [("insert", "a", None, 0, 1), ("delete", "a", None, 2, 5), ("read", None, ["a"], 3, 4)]),
    ("set", [("insert", "a", None, 0, 9), ("insert", "b", None, 0, 9), ("read", None, ["b"], 1, 2)]),
]
WRONG: list[tuple[str, list[Told]]] = [
    # an acknowledged write is missed
    ("register", [("write", 1, None, 0, 1), ("read", None, None, 2, 3)]),
    # a reader goes back behind what another one has seen
    ("register", [("write", 1, None, 0, 9), ("read", None, 1, 1, 2), ("read", None, None, 3, 4)]),
    ("register", [("write", 1, None, 0, None), ("read", None, 1, 1, 2), ("read", None, None, 3, 4)]),
    ("register", [("write", 1, None, 0, 1), ("write", 2, None, 2, 3), ("read", None, 1, 4, 5)]),
    ("register", [("read", None, 1, 0, 1), ("write", 1, None, 2, 3)]),
    ("register", [("read", None, 7, 0, 1)]),
    # an increment is lost, counts twice, or comes before it was called
    ("counter", [("add", 1, None, 0, 1), ("add", 1, None, 0, 1), ("read", None, 1, 2, 3)]),
    ("counter", [("add", 1, None, 0, None), ("read", None, 2, 1, 2)]),
    ("counter", [("read", None, 1, 0, 1), ("add", 1, None, 2, 3)]),
    ("set", [("insert", "a", None, 0, 1), ("read", None, [], 2, 3)]),
    ("set", [("insert", "a", None, 0, 1), ("delete", "a", None, 2, 3), ("read", None, ["a"], 4, 5)]),
    # two readers see two inserts in different orders
    (
        "set",
        [
            ("insert", "a", None, 0, 9),
            ("insert", "b", None, 0, 9),
            ("read", None, ["a"], 1, 2),
            ("read", None, ["b"], 3, 4),
        ],
    ),
]


@pytest.mark.parametrize(("kind", "told"), RIGHT)
def test_a_right_history_is_accepted(kind: str, told: list[Told]) -> None:
    assert is_linearizable(history(kind, *told), MODELS[kind])


@pytest.mark.parametrize(("kind", "told"), WRONG)
def test_a_wrong_history_is_rejected(kind: str, told: list[Told]) -> None:
    assert not is_linearizable(history(kind, *told), MODELS[kind])


def by_all_orders(operations: Sequence[Operation], model: Model) -> bool:
    """Try each choice of the operations that are not known to have happened, in each order."""
    sure = [one for one in operations if one.returned_s is not None]
    unsure = [one for one in operations if one.returned_s is None and one.kind != "read"]
    for count in range(len(unsure) + 1):
        for chosen in itertools.combinations(unsure, count):
            if any(_is_right(order, model) for order in itertools.permutations([*sure, *chosen])):
                return True
    return False


def _is_right(order: Sequence[Operation], model: Model) -> bool:
    state = None
    for at, one in enumerate(order):
        if any(later.returned_s is not None and later.returned_s < one.called_s for later in order[at + 1 :]):
            return False
        is_right, state = model(state, one.kind, one.argument, one.result)
        if not is_right:
            return False
    return True


def drawn(rng: random.Random, kind: str) -> list[Operation]:
    told = list[Told]()
    for number in range(rng.randint(1, 6)):
        called = rng.randint(0, 8) + rng.random()
        returned = None if rng.random() < 0.2 else called + rng.choice((0.5, 2, 6))
        if rng.random() < 0.5:
            results = {
                "register": rng.choice((None, *range(number + 1))),
                "counter": rng.randint(0, 3),
                "set": sorted(rng.sample("abc", rng.randint(0, 2))),
            }
            told.append(("read", None, results[kind], called, returned))
        else:
            writes: dict[str, tuple[str, Any]] = {
                "register": ("write", number),
                "counter": ("add", 1),
                "set": (rng.choice(("insert", "insert", "delete")), rng.choice("abc")),
            }
            told.append((*writes[kind], None, called, returned))
    return history(kind, *told)


@pytest.mark.parametrize("kind", MODELS)
def test_it_agrees_with_one_that_tries_all_orders(kind: str) -> None:
    rng, found = random.Random(kind), {True: 0, False: 0}
    for _ in range(150):
        operations = drawn(rng, kind)
        wanted = by_all_orders(operations, MODELS[kind])
        assert is_linearizable(operations, MODELS[kind]) == wanted, operations
        found[wanted] += 1
    assert min(found.values()) > 20, found


def test_a_long_history_is_searched_quickly_and_one_stale_read_in_it_is_found() -> None:
    told: list[Told] = [("write", number, None, number, number + 1.5) for number in range(150)]
    told += [("read", None, number, number + 1.6, number + 1.7) for number in range(0, 150, 2)]
    told += [("write", -number, None, 100.2 + number / 100, None) for number in range(1, 6)]
    assert is_linearizable(history("register", *told), MODELS["register"])
    told.append(("read", None, 70, 120.1, 120.2))
    assert not is_linearizable(history("register", *told), MODELS["register"])


def test_keys_are_searched_apart_and_those_that_are_wrong_are_named() -> None:
    right, wrong = history("register:a", *RIGHT[2][1]), history("set:b", *WRONG[9][1])
    assert faults_of([*wrong, *right]) == {"set:b": wrong}
    assert not faults_of(right)


def test_a_search_that_takes_too_long_says_nothing() -> None:
    told: list[Told] = [("insert", number, None, 0, 99) for number in range(14)]
    told.append(("read", None, [77], 100, 101))
    with pytest.raises(TooLong, match="no order in 500 steps"):
        is_linearizable(history("set", *told), MODELS["set"], 500)


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    told = history("set:a", ("insert", "a", None, 1, 2), ("read", None, ["a"], 0, None))
    write_history(tmp_path / "history.jsonl", told)
    assert read_history(tmp_path / "history.jsonl") == sorted(told, key=lambda one: one.called_s)
