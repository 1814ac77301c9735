"""Runs the kernels of a path search: gives them room, gathers their output, and stops them in time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from wukongs.errors import BudgetExceeded
from wukongs.query.limits import Limits, current
from wukongs.query.paths import path_layout as layout
from wukongs.query.paths.meeting_kernels import search_pairs
from wukongs.query.paths.node_kernels import fill_keys, find_graphs
from wukongs.query.paths.path_kernels import enter, fill_slots_again, search_paths
from wukongs.query.paths.path_layout import Machine, Origins, PathSource, Visited
from wukongs.query.plans.plan_layout import (
    CONSTANT,
    PREDICATE,
    PREDICATE_KIND,
    SPAN_HI,
    SPAN_LO,
    SPAN_PREDICATE,
    SPAN_WIDTH,
)
from wukongs.query.plans.span_kernels import collect_keys
from wukongs.query.rows import distinct_rows, filled, pieces
from wukongs.store.dtypes import Int64Array

EDGES_PER_CALL = 1 << 18
"""How many triples a call looks at before it comes up for air: for Ctrl-C, time limits and budgets."""
PAIR_EDGES_FIRST = 256
"""Two searches that are to meet take turns. Each first looks at so many triples, then at twice as many, and so on."""
PAIRS_FIRST = 64
MET_PAIRS_FIRST = 256
OUT_ROWS = 4096
SPANS = 64
_ROOM_BYTES = 8 * (layout.VISIT_WIDTH + 4)
"""The bytes that a pair's room takes: the pair, and four slots."""

Kernel = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64], Int64Array, Int64Array], int]
"""(out, spans, place, control) -> status"""


class EdgesExceeded(Exception):
    """A search has looked at more edges than it was allowed to: another way is better."""


class Search:
    """Pairs visited so far and the scratch of one search; both grow. Raises QueryTimeout, BudgetExceeded."""

    def __init__(self, source: PathSource, limits: Limits) -> None:
        self.source = source
        self.limits = limits
        self.visited = Visited(*_room(PAIRS_FIRST))
        self.spans = np.empty((SPANS, SPAN_WIDTH), np.int64)
        self.place = np.zeros(layout.PLACE_WIDTH, np.int64)
        self.place[layout.HEAD] = layout.NOT_STARTED
        self.place[layout.AT_TRIPLE] = layout.NOT_STARTED

    def reached(
        self,
        machine: Machine,
        origins: Origins,
        rows_wanted: int | None = None,
        with_lengths: bool = False,
        edges_max: int | None = None,
    ) -> npt.NDArray[np.int64]:
        """Return (number of the origin, node) for each node that an origin leads to, with_lengths: and the least number
        of links that lead there. int64[n, 2 or 3]

        rows_wanted: stop once there are so many. Raises also EdgesExceeded, after edges_max triples or some more."""

        def kernel(out: Int64Array, spans: Int64Array, place: Int64Array, control: Int64Array) -> int:
            return int(search_paths(self.source, machine, origins, self.visited, NOBODY, out, spans, place, control))

        return self._gathered(kernel, rows_wanted, 3 if with_lengths else 2, edges_max)

    def graphs(self, nodes: Int64Array, graphs: Int64Array, only_one: bool) -> npt.NDArray[np.int64]:
        """Return (number of the node, graph) for each graph that knows a node; graphs: the one to look in, or -1."""

        def kernel(out: Int64Array, spans: Int64Array, place: Int64Array, control: Int64Array) -> int:
            return int(find_graphs(self.source, nodes, graphs, only_one, out, spans, place, control))

        found = self._gathered(kernel, None, 2)
        return distinct_rows(found[:, 0], found[:, 1]) if len(found) else found

    def _gathered(
        self, kernel: Kernel, rows_wanted: int | None, width: int, edges_max: int | None = None
    ) -> npt.NDArray[np.int64]:
        out = np.empty((max(OUT_ROWS, 2 * len(self.spans)), width), np.int64)
        gathered: list[npt.NDArray[np.int64]] = []
        total = 0
        place, control = self.place, np.zeros(1, np.int64)
        status = layout.PAUSED
        while status != layout.DONE:
            control[layout.EDGES_LEFT] = EDGES_PER_CALL
            status = kernel(out, self.spans, place, control)
            self.limits.check()
            if edges_max is not None:
                edges_max = _edges_left(edges_max, status, control)
            self.make_room(status)
            if status == layout.NEED_SPANS and len(out) < 2 * len(self.spans):
                gathered.append(out[: place[layout.WRITTEN]].copy())
                place[layout.WRITTEN] = 0
                out = np.empty((2 * len(self.spans), width), np.int64)
            is_enough = rows_wanted is not None and total + place[layout.WRITTEN] >= rows_wanted
            if is_enough or status in (layout.FULL, layout.DONE):
                self.limits.hold(16 * width * int(place[layout.WRITTEN]))  # here, and in the whole
                gathered.append(out[: place[layout.WRITTEN]].copy())
                total += len(gathered[-1])
                place[layout.WRITTEN] = 0
                _check_rows(total, self.limits)
                if rows_wanted is not None and total >= rows_wanted:
                    break
        return np.concatenate(gathered)

    def make_room(self, status: int) -> None:
        """Grow the array that a kernel found too small."""
        if status == layout.NEED_SPANS:
            self.spans = np.empty((4 * len(self.spans), SPAN_WIDTH), np.int64)
        elif status == layout.NEED_ROOM:
            self.visited = _grown(self.visited, int(self.place[layout.TAIL]), self.limits)


def _edges_left(edges_max: int, status: int, control: Int64Array) -> int:
    """Return how many edges a search may still look at after a call. Raises EdgesExceeded."""
    edges_max -= EDGES_PER_CALL - int(control[layout.EDGES_LEFT])
    if edges_max < 0 and status != layout.DONE:
        raise EdgesExceeded
    return edges_max


def _check_rows(count: int, limits: Limits) -> None:
    if count > limits.rows_max:
        raise BudgetExceeded(
            f"a property path has more than rows_max = {limits.rows_max} solutions, or visits more nodes: "
            "bind one of its ends first, make it narrower, or raise rows_max"
        )


def _grown(visited: Visited, count: int, limits: Limits) -> Visited:
    """Return the first `count` pairs with room for more."""
    _check_rows(count, limits)
    before = len(visited.pairs)
    grown = Visited(*_room(4 * before))
    for start, stop in pieces(count, limits):
        grown.pairs[start:stop] = visited.pairs[start:stop]
    for start, stop in pieces(count, limits):
        fill_slots_again(grown, start, stop)
    limits.give_back(_ROOM_BYTES * before)
    return grown


def _room(capacity: int) -> tuple[npt.NDArray[np.int64], Int64Array]:
    current().hold(_ROOM_BYTES * capacity - 32 * capacity)
    return np.empty((capacity, layout.VISIT_WIDTH), np.int64), filled(4 * capacity, -1)


NOBODY = Visited(np.empty((0, layout.VISIT_WIDTH), np.int64), np.empty(0, np.int64))


def is_connected(
    sources: tuple[PathSource, PathSource],
    machines: tuple[Machine, Machine],
    accepting: tuple[bool, ...],
    ends: tuple[int, int],
    graph: int,
    limits: Limits,
) -> bool:
    """Tell whether a walk leads from one node to another within a graph: search from both, by turns, until they meet or
    one has seen everything. Cost: at most a few times that of a search from the cheaper end.

    sources, machines: forward and backward (path_machine.pair_machines). Raises QueryTimeout, BudgetExceeded."""
    searches = [Search(source, limits) for source in sources]
    origins = [Origins(np.array([[end, graph, layout.ALL_NODES, 0]], np.int64), np.empty(0, np.int64)) for end in ends]
    while len(searches[1].visited.pairs) < len(accepting):
        searches[1].make_room(layout.NEED_ROOM)
    for state, accepts in enumerate(accepting):
        if accepts:
            enter(searches[1].visited, ends[1], state, searches[1].place)
    searches[1].place[layout.HEAD] = 0
    nothing = np.empty((1, 2), np.int64)
    control = np.zeros(1, np.int64)
    turn, edges = 0, PAIR_EDGES_FIRST
    while True:
        search, others = searches[turn], searches[1 - turn]
        control[layout.EDGES_LEFT] = edges
        status = layout.NEED_ROOM
        while status in (layout.NEED_ROOM, layout.NEED_SPANS):
            status = search_paths(
                search.source,
                machines[turn],
                origins[turn],
                search.visited,
                others.visited,
                nothing,
                search.spans,
                search.place,
                control,
            )
            search.make_room(status)
        limits.check()
        if status in (layout.DONE, layout.MET):
            return bool(status == layout.MET)
        edges = min(edges + edges * turn, EDGES_PER_CALL)
        turn = 1 - turn


def distances(
    source: PathSource,
    machines: tuple[Machine, Machine],
    pairs: tuple[Origins, Origins],
    limits: Limits,
    edges_max: int | None = None,
) -> Int64Array:
    """Return the least number of links, at least one, that lead from one end of each pair to the other, 0 where there
    is no such walk (meeting_kernels.search_pairs). Raises QueryTimeout, BudgetExceeded; EdgesExceeded, after edges_max
    triples or some more."""
    visited = Visited(*_room(MET_PAIRS_FIRST)), Visited(*_room(MET_PAIRS_FIRST))
    found = np.empty(len(pairs[0].rows), np.int64)
    nothing, spans = np.empty((1, 2), np.int64), np.empty((SPANS, SPAN_WIDTH), np.int64)
    places = np.zeros((2, layout.PLACE_WIDTH), np.int64)
    places[:, layout.HEAD] = places[:, layout.AT_TRIPLE] = layout.NOT_STARTED
    control = np.zeros(layout.CONTROL_WIDTH, np.int64)
    status = layout.PAUSED
    while status != layout.DONE:
        control[layout.EDGES_LEFT] = EDGES_PER_CALL
        status = search_pairs(source, machines, pairs, visited, found, nothing, spans, places, control)
        limits.check()
        if edges_max is not None:
            edges_max = _edges_left(edges_max, status, control)
        if status == layout.NEED_SPANS:
            spans = np.empty((4 * len(spans), SPAN_WIDTH), np.int64)
        elif status == layout.NEED_ROOM:
            counts = places[:, layout.TAIL].tolist()
            if control[layout.SIDE] == 0:
                visited = _grown(visited[0], counts[0], limits), visited[1]
            else:
                visited = visited[0], _grown(visited[1], counts[1], limits)
    return found


def keys_of(source: PathSource, step: int, excluded: Int64Array, graph: int, limits: Limits) -> npt.NDArray[np.int64]:
    """Return (graph, node) for each node that a triple of a step begins at, in some order, perhaps more than once.

    excluded: predicates that the triples must not have; graph: -1 for any. int64[n, 2]"""
    row = source.steps[step]
    spans = _key_spans(source, step, excluded, graph)
    sizes = spans[:, SPAN_HI] - spans[:, SPAN_LO]
    total = int(sizes.sum())
    if total > limits.rows_max:
        raise BudgetExceeded(
            f"a property path would start from more than rows_max = {limits.rows_max} nodes: bind one of its "
            "ends first, or raise rows_max"
        )
    limits.hold(16 * total)
    out = np.empty((total, 2), np.int64)
    written = 0
    for span in spans:
        limits.check()
        first, last = int(span[SPAN_LO]), int(span[SPAN_HI])
        for start, stop in pieces(last - first, limits):
            span[SPAN_LO], span[SPAN_HI] = first + start, first + stop
            written = int(fill_keys(row, source.descriptors, span, out, written))
    return out[:written]


def keys_count(source: PathSource, step: int, excluded: Int64Array) -> int:
    """Return about how many nodes keys_of would list."""
    spans = _key_spans(source, step, excluded, -1)
    return int((spans[:, SPAN_HI] - spans[:, SPAN_LO]).sum())


def _key_spans(source: PathSource, step: int, excluded: Int64Array, graph: int) -> npt.NDArray[np.int64]:
    row = source.steps[step]
    predicate = int(row[PREDICATE]) if row[PREDICATE_KIND] == CONSTANT else -1
    spans = np.empty((SPANS, SPAN_WIDTH), np.int64)
    while True:
        m = collect_keys(
            row, source.parts, source.part_rows, source.descriptors, source.default_graph, predicate, graph, spans
        )
        if m >= 0:
            break
        spans = np.empty((4 * len(spans), SPAN_WIDTH), np.int64)
    spans = spans[:m]
    return spans[~np.isin(spans[:, SPAN_PREDICATE], excluded)]
