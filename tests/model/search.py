"""Breadth-first search of all states of a model: invariants, shortest counterexamples, and what stays reachable.

A model's states are hashable values. Its steps are all that may happen next; faults (loss, repetition, reordering,
crashes) are steps, or the absence of steps. States that differ by a symmetry alone are one: `canonical` picks one of
them.

Properties of the search, and why they hold:

* Every reachable state is looked at once, in order of its distance from the start, so the first violation has a
  shortest story.
* A story is told in one naming: the search keeps canonical states only, so the story is replayed from the start,
  taking at each point a step that leads to a state of the same class. There is one, as a symmetry maps steps to
  steps.
* `stuck` finds the states from which no goal can be reached, by going backwards from the goals over all edges.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)


class Model(Protocol[State]):
    """The model that a search explores."""

    def initial(self) -> State: ...

    def steps(self, state: State) -> Iterable[tuple[str, State]]:
        """List what may happen next: what a story calls it, and the state after it."""

    def canonical(self, state: State) -> State:
        """Pick one of the states that differ from this one by a symmetry."""

    def violation(self, state: State) -> str | None:
        """Name an invariant that does not hold in this state."""

    def step_violation(self, before: State, after: State) -> str | None:
        """Name an invariant that this step breaks, in one naming of nodes and streams."""


@dataclass(frozen=True, slots=True)
class Story(Generic[State]):
    """A shortest way to a state, and what is wrong there."""

    violation: str
    steps: tuple[str, ...]
    last: State

    def __str__(self) -> str:
        return "\n".join([f"violated: {self.violation}", *(f"{n:3}. {step}" for n, step in enumerate(self.steps, 1))])


@dataclass(slots=True)
class Explored(Generic[State]):
    """All reachable states (canonical, by distance), or as many as came before the first violation.

    `parents[n]` is the number of the state through which state n was reached first (its own for the start), `depth` the
    greatest distance.
    """

    numbers: dict[State, int]
    parents: array[int] = field(default_factory=lambda: array("I", [0]))
    step_count: int = 0
    depth: int = 0
    story: Story[State] | None = None

    @property
    def state_count(self) -> int:
        return len(self.numbers)


class TooManyStatesError(Exception):
    """The search met more states than it was told to expect: the instance is larger than its figures say."""


def explore(model: Model[State], states_max: int = 20_000_000) -> Explored[State]:
    """Visit every reachable state, up to the first violation.

    Raises
    ------
    TooManyStatesError  More than `states_max` states.
    """
    start = model.canonical(model.initial())
    found = Explored({start: 0})
    numbers, parents = found.numbers, found.parents
    wrong = model.violation(start)
    if wrong is not None:
        found.story = Story(wrong, (), start)
        return found
    layer = [start]
    while layer:
        following = []
        for state in layer:
            for _, raw in model.steps(state):
                found.step_count += 1
                after = model.canonical(raw)
                wrong = model.step_violation(state, raw)
                if after not in numbers:
                    parents.append(numbers[state])
                    numbers[after] = len(numbers)
                    following.append(after)
                    wrong = wrong or model.violation(after)
                if wrong is not None:
                    found.story = _replayed(model, [*_path(found, numbers[state]), after], wrong)
                    return found
        if len(numbers) > states_max:
            raise TooManyStatesError(f"{len(numbers)} states at depth {found.depth}, expected at most {states_max}")
        layer = following
        found.depth += bool(following)
    return found


def stuck(
    model: Model[State],
    found: Explored[State],
    goal: Callable[[State], bool],
    allowed: Callable[[str], bool] = lambda label: True,
) -> list[int]:
    """Number the states from which no goal can be reached by steps whose labels are `allowed`.

    Sweeps from the states found last to those found first, until nothing changes: most edges lead away from the start,
    so a few sweeps do.
    """
    states = list(found.numbers)
    live = bytearray(map(goal, states))
    waiting = [number for number in range(len(live) - 1, -1, -1) if not live[number]]
    ways = {number: _ways(model, found, states[number], allowed) for number in waiting}
    while waiting:
        left = []
        for number in waiting:
            if any(map(live.__getitem__, ways[number])):
                live[number] = 1
                del ways[number]
            else:
                left.append(number)
        if len(left) == len(waiting):
            break
        waiting = left
    return sorted(waiting)


def _ways(model: Model[State], found: Explored[State], state: State, allowed: Callable[[str], bool]) -> array[int]:
    return array("I", (found.numbers[model.canonical(after)] for label, after in model.steps(state) if allowed(label)))


def story_of(model: Model[State], found: Explored[State], number: int, title: str) -> Story[State]:
    """Tell how state `number` is reached."""
    return _replayed(model, _path(found, number), title)


def _path(found: Explored[State], number: int) -> list[State]:
    numbers = [number]
    while numbers[-1]:
        numbers.append(found.parents[numbers[-1]])
    wanted = set(numbers)
    states = {number: state for state, number in found.numbers.items() if number in wanted}
    return [states[number] for number in reversed(numbers)]


def _replayed(model: Model[State], path: list[State], wrong: str) -> Story[State]:
    """Tell a path of canonical states in one naming. A last step that only breaks a step's invariant ends there."""
    state = model.initial()
    told: list[str] = []
    for place, wanted in enumerate(path[1:], 1):
        label, state = _step_to(model, state, wanted, wrong if place == len(path) - 1 else None)
        told.append(label)
    return Story(wrong, tuple(told), state)


def _step_to(model: Model[State], state: State, wanted: State, wrong: str | None) -> tuple[str, State]:
    """Find a step to a state of the class of `wanted`; of several, one that breaks what is `wrong`."""
    fitting = [(label, after) for label, after in model.steps(state) if model.canonical(after) == wanted]
    breaking = [found for found in fitting if wrong in (model.step_violation(state, found[1]), model.violation(wanted))]
    return (breaking or fitting)[0]


def walk(model: Model[State], labels: Iterable[str]) -> Iterator[State]:
    """Take the steps so labelled, one after the other, from the start.

    Raises
    ------
    LookupError  A step is not possible there; says which ones are.
    """
    state = model.initial()
    for label in labels:
        steps = dict(model.steps(state))
        if label not in steps:
            raise LookupError(f"no step {label!r} here, only {sorted(steps)}")
        state = steps[label]
        yield state
