"""Updates as state machines: an arrangement that deletes and adds the same few tuples, at every SN that can be read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from tests.fuzz import fuzzed
from tests.oracles.updates import UpdateModel
from tests.property.test_batch import SHAPES
from tests.quads import (
    UNLISTED_SIZES,
    Quad,
    assert_same_batch,
    batch_of,
    columns,
    quads_of,
    spread,
    unlisted_up_to,
)
from wukongs.csparql.algebra import DEFAULT, DatasetClause, GraphRef, TriplePattern
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.terms import Term, Variable
from wukongs.errors import CompactedError
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans import plan_runner
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowering import lower
from wukongs.store import merge as merge_module
from wukongs.store import tombstones as tombstones_module
from wukongs.store import trace as trace_module
from wukongs.store.arrangement import Arrangement
from wukongs.store.batch import Batch
from wukongs.store.batch_kernels import FENCE_ENTRIES_PER_FUEL
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, NO_MATCH
from wukongs.store.fuel import Fuelled
from wukongs.store.held_kernels import mark_held
from wukongs.store.tombstones import Difference, DifferenceMerge, subtract_in_steps
from wukongs.store.trace import Handle, Trace

Result = TypeVar("Result")
GRAPHS = [spread(100), spread(101), spread(102)]
SUBJECTS = [spread(1), spread(2)]
PREDICATES = [spread(11), spread(12)]
OBJECTS = [spread(2), spread(3), spread(4, 1)]
UNIVERSE: list[Quad] = list(itertools.product(GRAPHS, SUBJECTS, PREDICATES, OBJECTS))
"""Small enough that the same tuple goes and comes again and again."""
QUADS = st.lists(st.sampled_from(UNIVERSE), max_size=5)
NAMES = {f"<{DEFAULT_GRAPH_IRI}>": GRAPHS[0]} | {f"<{number}>": number for quad in UNIVERSE for number in quad}
ENDS = (Variable("s"), Variable("p"), Variable("o"))
G = Variable("g")


def seen(read: BatchSet) -> list[Quad]:
    """The triples of a read, by its directory."""
    return sorted(
        (graph, subject, predicate, object_)
        for graph in GRAPHS
        for subjects, predicate, objects in read.triples(graph)
        for subject, object_ in zip(subjects.tolist(), objects.tolist(), strict=True)
    )


MERGED = DatasetClause(default_graphs=(str(GRAPHS[1]), str(GRAPHS[2])))


def matched(read: BatchSet, wanted: Quad, bound: tuple[bool, bool, bool], direction: str) -> list[Quad]:
    """The rows of a plan step in the default graph and in GRAPH ?g, with parts of a tuple bound."""
    return sorted(
        found for graph in (DEFAULT, G) for found in matched_in(DatasetClause(), graph, read, wanted, bound, direction)
    )


def matched_in(
    clause: DatasetClause,
    graph: GraphRef,
    read: BatchSet,
    wanted: Quad,
    bound: tuple[bool, bool, bool],
    direction: str,
) -> list[Quad]:
    """The rows of a plan step in a graph of a dataset; GRAPHS[0] stands for its default graph."""
    dataset = Dataset(clause, read, {}, lambda term: NAMES.get(term.text, NO_MATCH))
    parts = [Term(f"<{wanted[at + 1]}>") if bound[at] else variable for at, variable in enumerate(ENDS)]
    step = PlanStep(TriplePattern(*parts, graph), direction, 1.0)  # type: ignore[arg-type]
    rows = plan_runner.run(lower([step], (), dataset), BindingTable.unit(), dataset, Limits())
    values = {variable: column.tolist() for variable, column in zip(rows.variables, rows.columns, strict=True)}
    found: list[Quad] = []
    for row in range(rows.length):
        subject, predicate, object_ = (
            values[part][row] if isinstance(part, Variable) else int(part.text[1:-1]) for part in parts
        )
        found.append((values[G][row] if graph is G else GRAPHS[0], subject, predicate, object_))
    return sorted(found)


class UpdateMachine(RuleBasedStateMachine):
    """Merges get so little fuel that they are under way most of the time; handles stand in their way."""

    handles = Bundle("handles")
    fuel_per_row = 1

    def __init__(self) -> None:
        super().__init__()
        self.arrangement = Arrangement("g")
        self.arrangement.trace = Trace("g", self.fuel_per_row)
        self.model = UpdateModel()
        self.open_handles: dict[Handle, list[Quad]] = {}

    @rule(deletes=QUADS, inserts=QUADS, gap=st.sampled_from([0, 0, 2]))
    def apply(self, deletes: list[Quad], inserts: list[Quad], gap: int) -> None:
        sn = self.model.upper + gap
        changed = self.arrangement.apply(sn, columns(deletes), columns(inserts))
        assert changed.counts == self.model.apply(sn, deletes, inserts)

    @rule(quads=QUADS)
    def absorb(self, quads: list[Quad]) -> None:
        sn = self.model.upper
        assert self.arrangement.absorb(sn, *columns(quads)) == self.model.apply(sn, [], quads)[1]

    @rule(graph=st.sampled_from(GRAPHS))
    def clear(self, graph: int) -> None:
        gone = [quad for quad in UNIVERSE if quad[0] == graph]
        self.apply(gone, [], 0)

    @rule(target=handles, back=st.integers(0, 6))
    def open(self, back: int) -> Handle | None:
        if self.model.upper == 0:
            return None  # no SN has been sealed that a handle could stand at
        sn = max(0, self.model.upper - 1 - back)
        try:
            handle = self.arrangement.open(sn, "test")
        except CompactedError:
            return None
        self.open_handles[handle] = sorted(self.model.read(sn))
        return handle

    @rule(handle=consumes(handles))
    def close(self, handle: Handle | None) -> None:
        if handle is not None:
            handle.close()
            del self.open_handles[handle]

    @rule(fuel=st.sampled_from([1, 3, 17, 200]))
    def work(self, fuel: int) -> None:
        self.arrangement.trace.work(fuel)

    @rule()
    def merge_all(self) -> None:
        self.arrangement.trace.merge_all()
        if not self.open_handles:
            assert self.arrangement.trace.tombstone_count == 0

    @rule(
        wanted=st.sampled_from(UNIVERSE),
        bound=st.tuples(st.booleans(), st.booleans(), st.booleans()),
        direction=st.sampled_from(["out", "in"]),
    )
    def match(self, wanted: Quad, bound: tuple[bool, bool, bool], direction: str) -> None:
        expected = [
            quad
            for quad in sorted(self.model.read(self.model.upper))
            if all(quad[at + 1] == wanted[at + 1] for at in range(3) if bound[at])
        ]
        read = self.arrangement.trace.read(self.model.upper)
        assert matched(read, wanted, bound, direction) == expected
        merged = sorted({(GRAPHS[0], *quad[1:]) for quad in expected if quad[0] != GRAPHS[0]})
        assert matched_in(MERGED, DEFAULT, read, wanted, bound, direction) == merged

    @invariant()
    def open_handles_are_exact(self) -> None:
        for handle, expected in self.open_handles.items():
            assert seen(handle.read()) == expected

    @invariant()
    def every_sn_is_exact_or_refused(self) -> None:
        trace = self.arrangement.trace
        for sn in range(self.model.upper + 1):
            try:
                read = trace.read(sn)
            except CompactedError:
                assert sn < trace.since
                continue
            expected = self.model.read(sn)
            assert seen(read) == sorted(expected)
            assert len(read) == len(expected)
            assert read.graphs.tolist() == sorted({quad[0] for quad in expected})
            graphs, subjects, predicates, objects = columns(UNIVERSE)
            held = mark_held(read.descriptors, graphs, predicates, subjects, objects)
            assert held.tolist() == [quad in expected for quad in UNIVERSE]
        assert len(self.arrangement) == len(self.model.read(self.model.upper))


def test_updates_with_little_fuel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "FUEL_MIN", 1)
    run_state_machine_as_test(UpdateMachine, settings=fuzzed(60, steps=40))


def test_updates_as_they_are_merged() -> None:
    run_state_machine_as_test(UpdateMachine, settings=fuzzed(20, steps=30))


@pytest.mark.nojit
def test_updates_on_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "FUEL_MIN", 1)
    run_state_machine_as_test(UpdateMachine, settings=fuzzed(3, steps=8))


@pytest.mark.nojit
def test_a_merged_graph_without_any_of_its_triples() -> None:
    """Whatever is deleted of the same values in two graphs that FROM merges, before anything is merged."""
    subject, predicate, _ = wanted = UNIVERSE[0][1:]
    quads = [(graph, subject, predicate, object_) for graph in GRAPHS[1:] for object_ in OBJECTS]
    for numbers in itertools.product([False, True], repeat=len(quads)):
        gone = [quad for quad, is_gone in zip(quads, numbers, strict=True) if is_gone]
        trace = Trace("g", fuel_per_row=0)
        trace.seal(0, batch_of(quads))
        trace._entries[0].merging = True  # else a merge might take the tombstones away
        trace.seal(1, batch_of([]), batch_of(gone))
        left = sorted({(GRAPHS[0], *quad[1:]) for quad in quads if quad not in gone})
        bound = (True, True, False)
        assert matched_in(MERGED, DEFAULT, trace.read(1), (0, *wanted), bound, "out") == left


# --- subtraction and the merge of differences, against sets -----------------------------------------------------------

FUELS = st.lists(st.sampled_from([1, 2, 3, 10, 100, 10_000]), min_size=1, max_size=6)


def worked(steps: Fuelled[Result], fuels: list[int], size: int) -> Result:
    """Work in steps of these fuels, over and over."""
    count = 0
    while steps.result is None:
        fuel = fuels[count % len(fuels)]
        left = steps.work(fuel)
        assert 0 <= left <= fuel
        count += 1
        assert count <= 60 + 20 * size, "it goes on for ever"
    return steps.result


def subtraction(batch: Batch, tombstones: Batch) -> Fuelled[Batch]:
    return Fuelled(partial(subtract_in_steps, batch, tombstones))


@given(SHAPES, st.floats(0, 1), FUELS, st.sampled_from(UNLISTED_SIZES))
@fuzzed(60)
def test_a_subtraction_is_the_batch_of_what_is_left(
    quads: list[Quad], share: float, fuels: list[int], unlisted: tuple[int, int]
) -> None:
    with unlisted_up_to(*unlisted):
        check_subtraction(quads, share, fuels)


@pytest.mark.nojit
def test_small_subtractions() -> None:
    for share, unlisted in zip((0.0, 0.3, 1.0), UNLISTED_SIZES, strict=True):
        with unlisted_up_to(*unlisted):
            check_subtraction(UNIVERSE, share, [3])


def check_subtraction(quads: list[Quad], share: float, fuels: list[int]) -> None:
    held = sorted(set(quads))
    gone = held[:: max(1, round(1 / share))] if share > 0.01 else []
    tombstones = batch_of([*gone, (spread(900), spread(1), spread(2), spread(3))])
    left = worked(subtraction(batch_of(held), tombstones), fuels, len(held))
    assert_same_batch(left, batch_of(set(held) - set(gone)))


PAID = ((tombstones_module, "subtract_side"), (tombstones_module, "subtract_vertices"), (merge_module, "fill_fences"))


@given(SHAPES, st.floats(0, 1))
@fuzzed(20)
def test_the_fuel_of_a_subtraction_pays_for_all_that_is_copied(quads: list[Quad], share: float) -> None:
    """A value of each side and a code of a vertex take one unit; fences are counted where they are written."""
    held = sorted(set(quads))
    gone = [quad for at, quad in enumerate(held) if at % 7 < 7 * share]
    with unlisted_up_to(-1, -1):
        batch, minus = batch_of(held), batch_of(gone)
    paid = dict.fromkeys((name for _, name in PAID), 0)

    def watched(name: str, kernel: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            left = int(kernel(*arguments))
            assert 0 <= left <= arguments[-1] <= 5
            paid[name] += arguments[-1] - left
            return left

        return call

    with ExitStack() as stack:
        stack.enter_context(unlisted_up_to(-1, -1))
        for module, name in PAID:
            stack.enter_context(patch.object(module, name, watched(name, getattr(module, name))))
        left = worked(subtraction(batch, minus), [5], len(held))
    fences = sum(map(len, (left.out.fences, left.in_.fences, left.vertex_index.fence)))
    assert paid["subtract_side"] == 2 * len(held)
    assert paid["subtract_vertices"] == len(batch.vertex_index.codes)
    assert fences <= FENCE_ENTRIES_PER_FUEL * paid["fill_fences"]


@given(
    st.lists(st.sampled_from("+-+ "), min_size=2 * len(UNIVERSE), max_size=2 * len(UNIVERSE)),
    FUELS,
    st.sampled_from(UNLISTED_SIZES),
)
@fuzzed(60)
def test_a_merge_adds_up_differences(signs: list[str], fuels: list[int], unlisted: tuple[int, int]) -> None:
    """The older and the newer entry hold an addition, a tombstone or nothing of each tuple, in turn."""
    with unlisted_up_to(*unlisted):
        check_differences(signs, fuels)


def check_differences(signs: list[str], fuels: list[int]) -> None:
    entries: list[dict[str, set[Quad]]] = [{"+": set(), "-": set()}, {"+": set(), "-": set()}]
    total = dict.fromkeys(UNIVERSE, 0)
    for at, quad in enumerate(UNIVERSE):
        last = ""
        for entry, sign in zip(entries, signs[2 * at : 2 * at + 2], strict=True):
            if sign != " " and sign != last:
                last = sign
                entry[sign].add(quad)
                total[quad] += 1 if sign == "+" else -1
    (older, newer), batches = entries, [[batch_of(entry[sign]) for sign in "+-"] for entry in entries]
    merge = DifferenceMerge(Difference(*batches[0]), Difference(*batches[1]))
    additions, tombstones = worked(merge, fuels, len(UNIVERSE))
    assert_same_batch(additions, batch_of(quad for quad, sum_ in total.items() if sum_ == 1))
    left = [quad for quad, sum_ in total.items() if sum_ == -1]
    assert (tombstones is None) == (not left)
    if tombstones is not None:
        assert_same_batch(tombstones, batch_of(left))
    assert quads_of(batches[0][0]) == sorted(older["+"]), "the inputs of a merge stay as they are"
    assert quads_of(batches[1][1]) == sorted(newer["-"])
