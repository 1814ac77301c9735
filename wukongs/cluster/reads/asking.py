"""Asking: the questions of one execution to the other nodes, at one snapshot, and what of their answers is believed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from wukongs.cluster.reads import requests
from wukongs.cluster.reads.distant_terms import DistantReader
from wukongs.cluster.reads.requests import Read, SharePlan, StepsRun, wrong_answer
from wukongs.cluster.reads.traffic import Owners, Traffic, time_left_s
from wukongs.errors import DataError
from wukongs.query.limits import current
from wukongs.query.plans.plan_layout import ALL_NAMED, FROM_DIRECTORY
from wukongs.store.dtypes import IN, BoolArray, Int64Array
from wukongs.store.quads import Quads, joined, taken
from wukongs.wire.assignment import SHARD_COUNT, Assignment, shards_of
from wukongs.wire.packet_columns import column_of, count_of, ids_of
from wukongs.wire.packets import Packet

KEYS_PER_QUESTION = 1 << 17
Graphs = tuple[int, ...]
"""Ids of stored graphs, or ALL_NAMED."""
Triples = tuple[Int64Array, Int64Array, Int64Array]
"""Subjects, predicates, objects: int64[n] ids each."""


class Asking:
    """assignment: which node answers for what, for the whole of the execution; traffic: what it has asked so far."""

    def __init__(self, owners: Owners, assignment: Assignment, sn: int, texts: DistantReader | None = None) -> None:
        """texts: keeps those that come with answers."""
        self._owners = owners
        self._sn = sn
        self._texts = texts
        self.is_last = False
        """Whether what is found next is most likely the result, whose texts will be read."""
        self.assignment = assignment
        self.split = assignment.split_ids
        self.traffic = Traffic()
        self.others = assignment.others

    def triples(self, keys: Int64Array, direction: int, predicate: int | None, graphs: Graphs, spread: bool) -> Quads:
        """Return the triples of keys that others answer for. keys : int64[n], sorted; predicate: None for any; spread:
        they may stand with any node."""
        if len(apart := _apart(graphs)) > 1:
            return joined([self.triples(keys, direction, predicate, one, spread) for one in apart])
        step = requests.one_step(direction, predicate, False, len(graphs))
        found: list[Quads] = []
        for start in range(0, len(keys), KEYS_PER_QUESTION):
            some = keys[start : start + KEYS_PER_QUESTION]
            owners = self.assignment.of(some)
            asked = [(node, some if spread else some[owners == node]) for node in self.others]
            runs = [(node, self._run(step, graphs, (own,), len(own), node)) for node, own in asked if len(own)]
            found += self._quads(runs, direction, predicate, graphs)
        return joined(found)

    def all_triples(self, predicate: int | None, graphs: Graphs) -> Quads:
        """Return all triples of a predicate (None: of any) that others answer for."""
        if len(apart := _apart(graphs)) > 1:
            return joined([self.all_triples(predicate, one) for one in apart])
        step = requests.one_step(0, predicate, True, len(graphs))
        runs = [(node, self._run(step, graphs, (), 1, node)) for node in self.others]
        return joined(list(self._quads(runs, 0, predicate, graphs)))

    def has_any(self, predicate: int, graphs: Graphs) -> bool:
        """Tell whether another node has a triple of a predicate."""
        step = requests.one_step(0, predicate, True, len(graphs))
        runs = [(node, self.run_at(node, step, stored_rows(graphs), (), 1, rows_wanted=1)) for node in self.others]
        return any(length > 0 for _, length, _ in self.rows(runs))

    def graph_triples(self, graph: int, wanted: BoolArray) -> Iterator[Triples]:
        """Yield the triples of a graph that others answer for by their subjects, some at a time.

        wanted : bool[SHARD_COUNT]   Triples with subjects of other shards are left out."""
        for node in self.others:
            first, shards = 0, self.assignment.shards(node) & wanted
            while first < SHARD_COUNT and shards.any():
                fields = {"sn": self._sn, "graph": graph, "first": first, "timeout_s": time_left_s()}
                [(_, answer)] = self._ask([(node, Packet(requests.TRIPLES, fields, {"shards": shards}))])
                columns, after = requests.checked(node, answer, _triples)
                if after <= first or not shards[shards_of(columns[0])].all():
                    raise wrong_answer(node, "triples of other subjects than were asked for, or none")
                first = after
                yield columns

    def graphs_of(
        self, nodes: Int64Array, graphs: Int64Array, parts: Graphs, is_named: bool
    ) -> tuple[Int64Array, Int64Array]:
        """Return (place of the node, graph) for each of some graphs in which another node sees a triple of it."""
        fields = {"sn": self._sn, "named": is_named, "rows_max": current().rows_max, "timeout_s": time_left_s()}
        arrays = {"nodes": nodes, "graphs": graphs, "stored": stored_rows(parts).reshape(-1)}

        def read(answer: Packet) -> tuple[Int64Array, Int64Array]:
            rows = count_of(answer, "rows")
            places, names = ids_of(answer, "c0", rows), ids_of(answer, "c1", rows)
            if rows and places.max() >= len(nodes):
                raise DataError(f"{answer.kind}: more nodes than were asked for")
            return places, names

        found = self._ask_others(Packet(requests.NODES, fields, arrays), read)
        return np.concatenate([places for places, _ in found]), np.concatenate([names for _, names in found])

    def graph_names(self, among: Int64Array | None = None) -> Int64Array:
        """Return the ids of the graphs of which other nodes see a triple, sorted. among: of these alone."""
        arrays = {} if among is None else {"among": among}
        packet = Packet(requests.GRAPHS, {"sn": self._sn, "timeout_s": time_left_s()}, arrays)
        found = np.unique(np.concatenate(self._ask_others(packet, partial(ids_of, name="graphs"))))
        return found if among is None else np.intersect1d(found, among)  # a node of an earlier release gives all

    def changed(self, after_sn: int, predicates: Int64Array | None) -> tuple[Quads, Quads] | None:
        """Return the triples that others answer for by their subjects and that were inserted since an SN, and those
        that were deleted; None if that is too much. predicates: of these alone; None: of any."""
        fields = {"after": after_sn, "sn": self._sn, "timeout_s": time_left_s()}
        named = {} if predicates is None else {"predicates": predicates}
        questions = [
            (node, Packet(requests.CHANGED, fields, {"shards": self.assignment.shards(node), **named}))
            for node in self.others
        ]
        inserted, deleted = list[Quads](), list[Quads]()
        for node, answer in self._ask(questions):
            if answer.fields.get("is_long") is True:
                return None
            come, gone = requests.checked(node, answer, _changed)
            shards = self.assignment.shards(node)
            if not all(shards[shards_of(quads[1])].all() for quads in (come, gone)):
                raise wrong_answer(node, "changes of other subjects than were asked for")
            inserted.append(come)
            deleted.append(gone)
        current().keep(2 * 4 * 8 * sum(len(quads[0]) for quads in (*inserted, *deleted)))
        return joined(inserted), joined(deleted)

    def _ask_others(self, packet: Packet, read: Callable[[Packet], Read]) -> list[Read]:
        """Ask all other nodes the same."""
        answers = self._ask([(node, packet) for node in self.others])
        return [requests.checked(node, answer, read) for node, answer in answers]

    def rows(self, runs: Sequence[tuple[int, StepsRun]]) -> list[tuple[tuple[Int64Array, ...], int, list[int]]]:
        """Return the columns that steps make at some nodes, their length, and the rows after each step; long ones come
        in several answers."""
        limits = current()
        gathered: list[list[tuple[Int64Array, ...]]] = [[] for _ in runs]
        lengths = [0] * len(runs)
        step_rows: list[list[int]] = [[] for _ in runs]
        left = list(enumerate(runs))
        while left:
            answers = self._ask([(node, run.packet()) for _, (node, run) in left])
            again = []
            for (place, (node, run)), (_, answer) in zip(left, answers, strict=True):
                columns, rows, is_more, step_rows[place] = requests.checked(node, answer, partial(_columns, run=run))
                if self._texts is not None and "text" in answer.arrays:
                    requests.checked(node, answer, partial(self._texts.learn, asked=columns))
                lengths[place] += rows
                limits.check_rows(sum(lengths), "Start from fewer keys", "what other nodes give")
                limits.hold(8 * rows * len(columns), "what other nodes give")
                gathered[place].append(columns)
                if is_more:
                    again.append((place, (node, replace(run, skip=lengths[place]))))
            left = again
        return [
            (pages[0] if len(pages) == 1 else tuple(map(np.concatenate, zip(*pages, strict=True))), length, counts)
            for pages, length, counts in zip(gathered, lengths, step_rows, strict=True)
        ]

    def _run(
        self, steps: Int64Array, graphs: Graphs, columns: tuple[Int64Array, ...], length: int, node: int
    ) -> StepsRun:
        return self.run_at(node, steps, stored_rows(graphs), columns, length)

    def run_at(
        self,
        node: int,
        steps: Int64Array,
        stored: Int64Array,
        columns: tuple[Int64Array, ...],
        length: int,
        rows_wanted: int | None = None,
    ) -> StepsRun:
        """Return what a node is asked to run, for the shards that it answers for. rows_wanted: more are not needed."""
        plan = SharePlan(steps, stored, self.assignment.shards(node), self.split, len(columns))
        return self.run_of(plan, columns, length, rows_wanted)

    def run_of(
        self, plan: SharePlan, columns: tuple[Int64Array, ...], length: int, rows_wanted: int | None = None
    ) -> StepsRun:
        """Return a run of a plan over rows. rows_wanted: more are not needed."""
        if rows_wanted is not None and rows_wanted > requests.ROWS_PER_ANSWER:
            rows_wanted = None  # which rows are the first is open, and parts of an answer have to fit together
        with_texts = self.is_last and self._texts is not None
        return StepsRun(self._sn, plan, columns, length, current().rows_max, time_left_s(), rows_wanted, 0, with_texts)

    def _quads(
        self, runs: Sequence[tuple[int, StepsRun]], direction: int, predicate: int | None, graphs: Graphs
    ) -> Iterable[Quads]:
        """Ask for triples, as requests.one_step lays them out."""
        for (node, run), (columns, length, _) in zip(runs, self.rows(runs), strict=True):
            keys, values, names = columns[0], columns[-2], columns[-1]
            if run.columns and not np.isin(keys, run.columns[0]).all():
                raise wrong_answer(node, "triples of other keys than were asked for")
            if _is_hidden(graphs[0]):
                names = np.invert(names)
            if ALL_NAMED not in graphs and not np.isin(names, graphs).all():
                raise wrong_answer(node, "triples of other graphs than were asked for")
            predicates = columns[1] if predicate is None else np.full(length, predicate, np.int64)
            subjects, objects = (values, keys) if direction == IN else (keys, values)
            yield names, subjects, predicates, objects

    def _ask(self, asked: Sequence[tuple[int, Packet]]) -> list[tuple[int, Packet]]:
        with current().without_processor():
            answers = self._owners.ask(asked, self.traffic)
        return [(node, answer) for (node, _), answer in zip(asked, answers, strict=True)]


def _changed(answer: Packet) -> tuple[Quads, Quads]:
    """Read what was inserted and deleted. Raises DataError."""
    rows = count_of(answer, "rows", requests.CHANGED_MAX)
    graphs: Int64Array = column_of(answer, "c0", np.int64, rows)
    subjects, predicates, objects = (ids_of(answer, f"c{at}", rows) for at in range(1, 4))
    is_inserted = np.arange(rows) < count_of(answer, "inserted", rows)
    quads = graphs, subjects, predicates, objects
    return taken(quads, is_inserted), taken(quads, ~is_inserted)


def _triples(answer: Packet) -> tuple[Triples, int]:
    """Read (triples, the shard to go on from). Raises DataError."""
    rows = count_of(answer, "rows")
    columns = tuple(ids_of(answer, f"c{at}", rows) for at in range(3))
    return (columns[0], columns[1], columns[2]), count_of(answer, "next", SHARD_COUNT)


def _is_hidden(graph: int) -> bool:
    return graph < ALL_NAMED


def _apart(graphs: Graphs) -> list[Graphs]:
    """Return hidden graphs each alone: their triples are reported under the names of the graphs that they belong to."""
    others = tuple(graph for graph in graphs if not _is_hidden(graph))
    return [*([others] if others else []), *((graph,) for graph in graphs if _is_hidden(graph))]


def stored_rows(graphs: Graphs) -> Int64Array:
    """Return (graph, the name that its triples are reported under) of graphs, as StepsRun takes them. int64[n, 2]"""
    names = [(graph, FROM_DIRECTORY if graph == ALL_NAMED else max(graph, ~graph)) for graph in graphs]
    return np.array(names, np.int64).reshape(-1, 2)


def _columns(answer: Packet, run: StepsRun) -> tuple[tuple[Int64Array, ...], int, bool, list[int]]:
    """Read an answer to a run: (columns, length, whether there is more, rows after each step). Raises DataError."""
    rows = count_of(answer, "rows", run.rows_max)
    is_more = answer.fields.get("more") is True
    if is_more and not rows:
        raise DataError(f"{answer.kind}: nothing, and more to come")
    width, n_steps = run.plan.width, len(run.plan.steps)
    ids = ids_of(answer, "columns", width * rows)
    counts = answer.fields.get("counts")
    if not (isinstance(counts, list) and len(counts) == n_steps and all(map(partial(_is_count, run), counts))):
        raise DataError(f"{answer.kind}: counts = {counts!r}: expected {n_steps} of at most {run.rows_max}")
    return tuple(ids[at * rows : (at + 1) * rows] for at in range(width)), rows, is_more, counts


def _is_count(run: StepsRun, value: object) -> bool:
    return type(value) is int and 0 <= value <= run.rows_max
