"""The search for the cheapest order of patterns that hang together.

* Up to EXACT_PATTERNS_MAX patterns: dynamic programming over subsets, from small to large; for each subset the cheapest
  order that joins just these is kept. A greedy order comes first: an order that already costs as much is left out. At
  most n * 2^(n - 1) steps are estimated (5,120 for ten patterns). (The rows of a subset are estimated along its order,
  so that the cheapest way to a subset is nearly always, but not always, the beginning of the cheapest order.)
* More: greedily, from several first patterns; then each WINDOW_PATTERNS neighbours of that order are put in the best
  order among themselves, window after window. Beyond SEVERAL_STARTS_PATTERNS_MAX there is one first pattern, and each
  step looks at CHOICES_MAX patterns only, so that a text of thousands of patterns is planned in a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from math import inf
from operator import and_

from wukongs.csparql.estimates import Sizes, State, after, joined, rows_and_cost

EXACT_PATTERNS_MAX = 10
GREEDY_STARTS_MAX = 8
WINDOW_PATTERNS = 7
_WINDOW_STEP = 3
SEVERAL_STARTS_PATTERNS_MAX = 40
CHOICES_MAX = 40
_BOUNDED_PATTERNS_MIN = 5
"""Below so many patterns, a bound costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Order:
    """Numbers of patterns in an order, and the state after them."""

    order: tuple[int, ...]
    rows: float
    cost: float


@dataclass(slots=True)
class _Subset:
    """The cheapest way so far to join some patterns: `last` after the patterns that `before` has joined."""

    rows: float
    cost: float
    last: int
    before: _Subset | None
    state: State | None = None

    def reached(self, sizes: Sequence[Sizes]) -> State:
        """Return the state, worked out only for subsets that are gone on from."""
        if self.state is None:
            assert self.before is not None
            before = self.before.reached(sizes)
            self.state = joined(before, sizes[self.last], self.rows, self.cost)
        return self.state


def best_order(sizes: Sequence[Sizes], start: State) -> Order:
    """Return the order of patterns that costs least. sizes: of patterns that hang together; at least one."""
    if len(sizes) < _BOUNDED_PATTERNS_MIN:
        found = _exact_order(sizes, start, inf)
        assert found is not None, sizes
        return found
    firsts = _choices(sizes, range(len(sizes)), start.bound)
    firsts.sort(key=lambda index: rows_and_cost(start, sizes[index]))
    is_many = EXACT_PATTERNS_MAX < len(sizes) <= SEVERAL_STARTS_PATTERNS_MAX
    starts = firsts[: GREEDY_STARTS_MAX if is_many else 1]
    greedy = min((_greedy_order(sizes, start, first) for first in starts), key=lambda found: found.cost)
    if is_many:
        return min(greedy, _improved(sizes, start, greedy), key=lambda found: found.cost)
    if len(sizes) > EXACT_PATTERNS_MAX:
        return greedy
    return _exact_order(sizes, start, greedy.cost) or greedy


def _exact_order(sizes: Sequence[Sizes], start: State, cost_bound: float) -> Order | None:
    """Return the cheapest order, None if none costs less than cost_bound."""
    level = {0: _Subset(start.rows, start.cost, -1, None, start)}
    for size in range(1, len(sizes) + 1):
        is_last = size == len(sizes)
        following: dict[int, _Subset] = {}
        for done, subset in level.items():
            state = subset.reached(sizes)
            for index in _choices(sizes, [at for at in range(len(sizes)) if not done >> at & 1], state.bound):
                rows, cost = rows_and_cost(state, sizes[index])
                # Each step that is still to come probes with these rows at least.
                if cost + (0.0 if is_last else rows) >= cost_bound:
                    continue
                known = following.get(done | 1 << index)
                if known is None or cost < known.cost:
                    following[done | 1 << index] = _Subset(rows, cost, index, subset)
        level = following
    for best in level.values():
        return Order(tuple(_path(best)), best.rows, best.cost)
    return None


def _path(subset: _Subset) -> list[int]:
    order = []
    while subset.before is not None:
        order.append(subset.last)
        subset = subset.before
    return order[::-1]


def _greedy_order(sizes: Sequence[Sizes], start: State, first: int) -> Order:
    """From a given first pattern on, always take the one that leaves the fewest rows."""
    state = after(start, sizes[first])
    order = [first]
    left = [index for index in range(len(sizes)) if index != first]
    left.sort(key=lambda index: rows_and_cost(start, sizes[index]))
    while left:
        (rows, cost), index = min(
            (rows_and_cost(state, sizes[index]), index) for index in _choices(sizes, left, state.bound, CHOICES_MAX)
        )
        state = joined(state, sizes[index], rows, cost)
        order.append(index)
        left.remove(index)
    return Order(tuple(order), state.rows, state.cost)


def _improved(sizes: Sequence[Sizes], start: State, found: Order) -> Order:
    """Put neighbours into the best order among themselves, window after window."""
    order = list(found.order)
    for first in range(0, len(order) - WINDOW_PATTERNS + _WINDOW_STEP, _WINDOW_STEP):
        window = order[first : first + WINDOW_PATTERNS]
        if reduce(and_, (sizes[index].variables for index in window)):
            continue  # around one variable, the greedy order is the best
        before = _state_after(sizes, start, order[:first])
        cost_bound = _state_after(sizes, before, window).cost
        best = _exact_order([sizes[index] for index in window], before, cost_bound)
        if best is not None:
            order[first : first + WINDOW_PATTERNS] = [window[at] for at in best.order]
    state = _state_after(sizes, start, order)
    return Order(tuple(order), state.rows, state.cost)


def _state_after(sizes: Sequence[Sizes], state: State, order: Sequence[int]) -> State:
    for index in order:
        state = after(state, sizes[index])
    return state


def _choices(sizes: Sequence[Sizes], left: Sequence[int], bound: int, count_max: int | None = None) -> list[int]:
    """Return the remaining patterns that share a variable with the table, or all if none does; at most count_max."""
    joined_to = (index for index in left if sizes[index].variables & bound)
    return list(islice(joined_to, count_max)) or list(left[:count_max])
