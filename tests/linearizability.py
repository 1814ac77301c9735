"""Whether a history of concurrent operations is linearizable: whether each operation may have happened at one moment
between its call and its return, so that the results follow from the operations in the order of these moments.

The search is that of Wing and Gong (1993) with the memory of Lowe (2017): it takes one operation after the other that
was called before all others that are left have returned, as long as the model allows its result, and goes back where
none is left. A set of taken operations that has led to a state once is not tried again from that state.

Objects are independent (Herlihy and Wing: a history is linearizable if the history of each object is), so each key is
searched alone. An operation whose outcome is not known may happen at any later moment, or never.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

State: TypeAlias = Hashable
Model: TypeAlias = Callable[[Any, str, Any, Any], tuple[bool, Any]]
"""(state, kind, argument, result) -> whether that result is right in that state, and the state behind it."""
STEPS_MAX = 2_000_000
"""A search that takes more steps is given up with an error: it says nothing."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a client. key: of the object; kind, argument, result: as its model reads them; called_s: before
    it was sent; returned_s: after its result was there, None if nothing is known of its outcome."""

    client: str
    key: str
    kind: str
    argument: Any
    result: Any
    called_s: float
    returned_s: float | None


def register(state: Any, kind: str, argument: Any, result: Any) -> tuple[bool, Any]:
    """A register: `write` puts a value into it, `read` returns the value, None at first."""
    if kind == "write":
        return True, argument
    return result == state, state


def counter(state: Any, kind: str, argument: Any, result: Any) -> tuple[bool, Any]:
    """A counter: `add` adds a number, `read` returns the sum, 0 at first."""
    value = state or 0
    if kind == "add":
        return True, value + argument
    return result == value, state


def growing_set(state: Any, kind: str, argument: Any, result: Any) -> tuple[bool, Any]:
    """A set: `insert` and `delete` take an element, `read` returns all of them."""
    elements: frozenset[Any] = state or frozenset()
    if kind == "insert":
        return True, elements | {argument}
    if kind == "delete":
        return True, elements - {argument}
    return frozenset(result) == elements, state


MODELS: Mapping[str, Model] = {"register": register, "counter": counter, "set": growing_set}
"""By the first part of a key, before its first colon."""


class TooLong(Exception):
    """A search has taken STEPS_MAX steps."""


def faults_of(history: Iterable[Operation]) -> dict[str, list[Operation]]:
    """Return the objects whose histories are not linearizable, each with its operations in order of their calls."""
    by_key = defaultdict[str, list[Operation]](list)
    for operation in history:
        by_key[operation.key].append(operation)
    found = {}
    for key, operations in sorted(by_key.items()):
        if not is_linearizable(operations, MODELS[key.partition(":")[0]]):
            found[key] = sorted(operations, key=lambda one: one.called_s)
    return found


def is_linearizable(operations: Sequence[Operation], model: Model, steps_max: int = STEPS_MAX) -> bool:
    """Whether the operations on one object are linearizable. Raises TooLong."""
    ordered = sorted((one for one in operations if _says_something(one)), key=lambda one: one.called_s)
    ends = [float("inf") if one.returned_s is None else one.returned_s for one in ordered]
    certain = sum(1 << at for at, end in enumerate(ends) if end != float("inf"))
    seen = set[tuple[int, Any]]()
    steps = 0
    # (taken operations as bits, state, the candidates that are left to be tried)
    stack: list[tuple[int, Any, list[int]]] = [(0, None, _candidates(ordered, ends, 0))]
    while stack:
        taken, state, candidates = stack[-1]
        if taken & certain == certain:
            return True
        if not candidates:
            stack.pop()
            continue
        at = candidates.pop()
        steps += 1
        if steps > steps_max:
            raise TooLong(f"{len(ordered)} operations on {ordered[0].key}: no order in {steps_max} steps")
        one = ordered[at]
        is_right, after = model(state, one.kind, one.argument, one.result)
        if is_right and (taken | 1 << at, after) not in seen:
            seen.add((taken | 1 << at, after))
            stack.append((taken | 1 << at, after, _candidates(ordered, ends, taken | 1 << at)))
    return not ordered


def _says_something(one: Operation) -> bool:
    """A read of which nothing was heard says nothing."""
    return one.kind != "read" or one.returned_s is not None


def _candidates(ordered: Sequence[Operation], ends: Sequence[float], taken: int) -> list[int]:
    """Return the operations that may come next, the earliest call last: those called before all others returned."""
    found, first_end = list[int](), float("inf")
    for at in range((~taken & (taken + 1)).bit_length() - 1, len(ordered)):  # from the first that is not taken
        if ordered[at].called_s > first_end:
            break
        if not taken >> at & 1:
            found.append(at)
            first_end = min(first_end, ends[at])
    return [at for at in reversed(found) if ordered[at].called_s <= first_end]


def write_history(path: Path, history: Iterable[Operation]) -> None:
    """Write a history as JSON, an operation a line, in order of the calls."""
    lines = (json.dumps(asdict(one), default=sorted) for one in sorted(history, key=lambda one: one.called_s))
    path.write_text("".join(f"{line}\n" for line in lines))


def read_history(path: Path) -> list[Operation]:
    """Return the history that write_history has written."""
    return [Operation(**json.loads(line)) for line in path.read_text().splitlines()]
