"""Conjunctive plans in the kernel against nested loops, with buffers so small that it stops and resumes everywhere."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.oracles.plan import PlanModel, Solution, Triple
from tests.property.test_slice_ring import add
from tests.quads import UNLISTED_SIZES, Quad, batch_of, filtered_of, spread, unlisted_up_to
from wukongs.csparql.algebra import DEFAULT, DatasetClause, GraphRef, StreamWindow, TriplePattern
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans import plan_layout, plan_runner
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowering import lower
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, NO_MATCH
from wukongs.store.slice_ring import SliceRing

DEFAULT_ID = spread(2000)
VERTICES = [spread(i) for i in range(5)]
LITERALS = [spread(i, 1) for i in range(20, 22)]
GRAPHS = [DEFAULT_ID, spread(1001), VERTICES[1]]
PREDICATES = [spread(500), spread(501), VERTICES[0]]
STREAMS = ["777", "778"]
NAMES = {f"<{number}>": number for number in [*VERTICES, *LITERALS, *GRAPHS, *PREDICATES]}
NAMES |= {f"<{DEFAULT_GRAPH_IRI}>": DEFAULT_ID, "<777>": spread(777), "<778>": VERTICES[2]}
"""Ids by canonical form; a stream's id may stand in the data as a vertex, as a graph's may."""
ABCD = [Variable(name) for name in "abcd"]


def term(number: int) -> Term:
    return Term(f"<{number}>")


def resolve(wanted: Term) -> int:
    return NAMES.get(wanted.text, NO_MATCH)


@dataclass
class Case:
    """A dataset in batches and in sets, a pattern, seeds, and an order and direction of its steps."""

    dataset: Dataset
    model: PlanModel
    patterns: list[TriplePattern]
    steps: tuple[PlanStep, ...]
    seed_variables: tuple[Variable, ...]
    seeds: list[Solution]

    def table(self) -> BindingTable:
        columns = tuple(np.array([row[v] for row in self.seeds], np.int64) for v in self.seed_variables)
        return BindingTable(self.seed_variables, columns, len(self.seeds))

    def run(self, rows_wanted: int | None = None) -> BindingTable:
        lowered = lower(self.steps, self.seed_variables, self.dataset)
        return plan_runner.run(lowered, self.table(), self.dataset, Limits(), rows_wanted)


class Maker:
    """Random cases from one seed."""

    def __init__(self, seed: int, size: int) -> None:
        self.rng = random.Random(seed)
        self.size = size
        self.unlisted = random.Random(seed).choice(UNLISTED_SIZES)
        """Which batches list no vertices."""

    def triples(self, n: int) -> list[Triple]:
        pick = self.rng.choice
        return [(pick(VERTICES), pick(PREDICATES), pick(VERTICES * 2 + LITERALS)) for _ in range(n)]

    def stored(self) -> tuple[BatchSet, dict[int, set[Triple]]]:
        """Batches as a trace has them: disjoint, or with tombstones in between."""
        quads: list[Quad] = [
            (self.rng.choice([*GRAPHS, DEFAULT_ID]), *triple)
            for triple in self.triples(self.rng.randrange(self.size // 4, self.size))
        ]
        distinct = sorted(set(quads))
        self.rng.shuffle(distinct)
        n = self.rng.randrange(1, 4)
        found, batches = (
            self.updated(distinct, n)
            if self.rng.random() < 0.5
            else (
                distinct,
                BatchSet.of(tuple((batch_of, filtered_of)[part % 2](distinct[part::n]) for part in range(n)), True),
            )
        )
        graphs = {g: {quad[1:] for quad in found if quad[0] == g} for g in GRAPHS}
        return batches, graphs

    def updated(self, quads: list[Quad], n: int) -> tuple[list[Quad], BatchSet]:
        """Entries that add, delete and add again; return what is left in the end, too."""
        added, deleted = [], []
        seen: set[Quad] = set()
        for _ in range(n + 1):
            gone = set(self.rng.sample(sorted(seen), len(seen) * self.rng.choice([0, 1, 2, 4]) // 4))
            new = {quad for quad in quads if quad not in seen and self.rng.random() < 0.6}
            seen = (seen - gone) | new
            added.append(filtered_of(new))
            deleted.append(batch_of(gone) if gone else None)
        return sorted(seen), BatchSet.of(tuple(added), True, deleted)

    def window(self, ring: SliceRing, slices: dict[int, set[Triple]]) -> tuple[BatchSet, set[Triple]]:
        to = self.rng.randrange(0, 22)
        after = to - self.rng.randrange(1, 12)
        inside = [held for number, held in slices.items() if after < number <= to]
        return ring.window(after, to), set().union(*inside)

    def ring(self) -> tuple[SliceRing, dict[int, set[Triple]]]:
        """Blocks that overlap: a triple may stand in many."""
        ring, slices = SliceRing(), {}
        ring.index_windows(8)
        for number in range(self.rng.randrange(0, 20)):
            triples = self.triples(self.rng.randrange(0, 2 + self.size // 10))
            add(ring, number, [(triple, number) for triple in triples])
            slices[number] = set(triples)
            ring.close(number)
        return ring, slices

    def clause(self) -> DatasetClause:
        rng = self.rng
        names = [str(graph) for graph in GRAPHS]
        kind = rng.choice(["none", "none", "graphs", "windows", "both", "both", "both"])
        if kind == "none":
            return DatasetClause()
        graphs = kind != "windows"
        windows = tuple(
            StreamWindow(rng.choice(STREAMS), 100 * i + 100, 100, rng.random() < 0.4, line=i)
            for i in range(0 if kind == "graphs" else rng.randrange(1, 4))
        )
        default = tuple(rng.sample([*names, "nowhere"], rng.choice([0, 1, 2, 3, 4]))) if graphs else ()
        named = tuple(rng.sample(names[1:] + STREAMS[1:], rng.choice([0, 1, 2, 3]))) if graphs else ()
        return DatasetClause(default, named, windows)

    def pattern(self, clause: DatasetClause) -> TriplePattern:
        pick, rng = self.rng.choice, self.rng

        def part(numbers: list[int], share_of_variables: float, variables: list[Variable] = ABCD) -> Term | Variable:
            if rng.random() < share_of_variables:
                return pick(variables)
            return term(pick(numbers)) if rng.random() < 0.98 else Term("<of no data>")

        graph: GraphRef = pick([DEFAULT] * 5 + [Variable("g")] * 3 + [pick(ABCD), self.name(clause)])
        predicate = part(PREDICATES, 0.4, [Variable("p")] * 4 + ABCD[:1])
        return TriplePattern(part(VERTICES, 0.9), predicate, part(VERTICES + LITERALS, 0.85), graph)

    def name(self, clause: DatasetClause) -> Term:
        """A name for GRAPH: more often than not one that the clause declares."""
        streams = [window.stream for window in clause.windows]
        declared = [*clause.named_graphs, *streams] * 3 + [*clause.default_graphs, "778"]
        return Term(f"<{self.rng.choice(declared)}>")

    def case(self) -> Case:
        rng = self.rng
        with unlisted_up_to(*self.unlisted):
            stored, graphs = self.stored()
            clause = self.clause()
            rings = {stream: self.ring() for stream in STREAMS}
            found = {window: self.window(*rings[window.stream]) for window in clause.windows}
        dataset = Dataset(clause, stored, {window: batches for window, (batches, _) in found.items()}, resolve)
        sets = {window: triples for window, (_, triples) in found.items()}
        patterns = [self.pattern(clause) for _ in range(rng.randrange(1, 4))]
        order = rng.sample(patterns, len(patterns))
        variables = tuple(rng.sample([*ABCD, Variable("elsewhere")], rng.choice([0, 0, 1, 2])))
        values = [*VERTICES * 4, *LITERALS, *GRAPHS, *PREDICATES]
        seeds = [{variable: rng.choice(values) for variable in variables} for _ in range(rng.randrange(1, 6))]
        return Case(
            dataset,
            PlanModel(clause, graphs, sets, NAMES, DEFAULT_ID),
            patterns,
            tuple(PlanStep(pattern, rng.choice(["out", "in"]), 1.0) for pattern in order),
            variables,
            seeds if variables else [{}],
        )


def shrink_buffers(monkeypatch: pytest.MonkeyPatch, chunk: int, out: int, calls: int, spans: int) -> None:
    monkeypatch.setattr(plan_runner, "CHUNK_ROWS", chunk)
    monkeypatch.setattr(plan_runner, "OUT_ROWS", out)
    monkeypatch.setattr(plan_runner, "CHUNKS_PER_CALL", calls)
    monkeypatch.setattr(plan_runner, "FUEL", calls)
    room = [np.empty((*shape, plan_layout.SPAN_WIDTH), np.int64) for shape in ((0, spans), (spans,))]
    workspace = plan_runner.Workspace(spans=room[0], value_spans=room[1])
    monkeypatch.setattr(plan_runner._OWN, "workspace", workspace)


def check(case: Case) -> int | None:
    """Compare a case with nested loops; return how many solutions it has, None if too many."""
    expected = case.model.solutions(case.patterns, case.seeds)
    if expected is None:
        return None
    found = case.run()
    assert set(found.variables) == {v for p in case.patterns for v in p.variables()} | set(case.seed_variables)
    rows = list(zip(*(column.tolist() for column in found.columns), strict=True)) or [()] * found.length
    assert found.length == len(rows)
    assert Counter(rows) == Counter(tuple(solution[v] for v in found.variables) for solution in expected)
    return len(expected)


BUFFERS = st.tuples(st.sampled_from([1, 3, 8]), st.sampled_from([1, 5]), st.sampled_from([1, 7]), st.just(2))


@given(st.integers(0, 2**32), st.sampled_from([10, 90, 90, 150]), BUFFERS)
@fuzzed(500)
def test_plans_match_as_nested_loops_do(seed: int, size: int, buffers: tuple[int, int, int, int]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink_buffers(monkeypatch, *buffers)
        check(Maker(seed, size).case())


@pytest.mark.nojit
def test_a_few_plans_match_as_nested_loops_do(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = 0
    for seed in range(60):
        shrink_buffers(monkeypatch, 3, 5, 7, 2)
        solved += check(Maker(seed, 60).case()) not in (None, 0)
    assert solved > 15, "most cases have no solution: they prove little"


def test_every_way_of_stopping_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """The random cases above do stop and resume in all the ways that there are, at all kinds of steps."""
    met: Counter[int] = Counter()
    run_plan = plan_runner.run_plan

    def spy(*arguments: object) -> int:
        status: int = run_plan(*arguments)
        met[status] += 1
        return status

    monkeypatch.setattr(plan_runner, "run_plan", spy)
    for seed in range(80):
        shrink_buffers(monkeypatch, 3, 5, 7, 2)
        check(Maker(seed, 110).case())
    stops = (plan_layout.DONE, plan_layout.FULL, plan_layout.NEED_SPANS, plan_layout.PAUSED)
    assert all(met[status] >= 20 for status in stops), met


@given(st.integers(0, 2**32), st.integers(1, 12))
@fuzzed(80)
def test_rows_wanted_are_solutions_and_enough(seed: int, wanted: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink_buffers(monkeypatch, 3, 5, 7, 2)
        case = Maker(seed, 90).case()
        expected = case.model.solutions(case.patterns, case.seeds)
        if expected is None:
            return
        found = case.run(wanted)
        assert found.length >= min(wanted, len(expected))
        everything = Counter(tuple(solution[v] for v in found.variables) for solution in expected)
        rows = list(zip(*(column.tolist() for column in found.columns), strict=True)) or [()] * found.length
        assert not Counter(rows) - everything
