"""Two analyses of a program as rules, beside differential dataflow (one worker): where null values flow to, and what
may point to the same memory (Graspan's dataflow and points-to analyses).

The program is drawn: procedures of a few variables, assignments from earlier variables of the procedure, calls that
assign to the first variable of another one. Of points-to, each fifth edge is a dereference of a variable, whose memory
is loaded from or stored to. All triples that follow are compared by the hashes of their rows before a time is written;
then assignments are removed one by one, and each correction is compared."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.bench.experiments.session import Session
from wukongs.bench.peers.dataflow import NAME, VERSION
from wukongs.bench.record import say
from wukongs.bench.rules.data import EDGE, EX
from wukongs.bench.views.beside_rules import CORRECTION, Relation, Sides
from wukongs.bench.views.figures import Figures, measure
from wukongs.store.dtypes import Int64Array

EXPERIMENT = "program"
DATAFLOW, POINTS_TO = "dataflow", "points-to"
QUERIES = (DATAFLOW, POINTS_TO)
EDGES, QUICK_EDGES = 10_000_000, 300
REMOVED, QUICK_REMOVED = 1000, 5
VARIABLES = 5
"""The variables of a procedure."""
CALLED = 0.2
"""The share of the procedures that another one calls."""
P = f"PREFIX : <{EX}> "
NULLS = f"""{P}
RULE nulls: CONSTRUCT {{ ?n :reached ?x }} WHERE {{ ?n :null ?x }}
RULE flow: CONSTRUCT {{ ?n :reached ?y }} WHERE {{ ?n :reached ?x . ?x :edge ?y }}"""
POINTERS = f"""{P}
RULE sources: CONSTRUCT {{ ?x :flows ?x }} WHERE {{ {{ ?x :edge ?y }} UNION {{ ?x :dereference ?y }} }}
RULE ends: CONSTRUCT {{ ?y :flows ?y }} WHERE {{ {{ ?x :edge ?y }} UNION {{ ?x :dereference ?y }} }}
RULE step: CONSTRUCT {{ ?x :step ?y }} WHERE {{ ?x :edge ?y }}
RULE through: CONSTRUCT {{ ?x :step ?y }} WHERE {{ ?x :edge ?z . ?z :alias ?y }}
RULE flow: CONSTRUCT {{ ?x :flows ?y }} WHERE {{ ?x :flows ?z . ?z :step ?y }}
RULE points: CONSTRUCT {{ ?v :points ?x }} WHERE {{ ?v :flows ?z . ?z :dereference ?x }}
RULE same: CONSTRUCT {{ ?x :alias ?y }} WHERE {{ ?v :points ?x . ?v :points ?y }}
RULE aliased: CONSTRUCT {{ ?x :alias ?y }} WHERE {{ ?v :points ?x . ?v :alias ?w . ?w :points ?y }}"""


@dataclass(frozen=True, slots=True)
class Program:
    """assignments: variables that are assigned, and to which; second: (null value, variable) or (variable, memory);
    nodes: how many there are.

    assignments, second : int64[n, 2]."""

    assignments: Int64Array
    second: Int64Array
    nodes: int

    @staticmethod
    def of_nulls(edges: int) -> Program:
        """Each twentieth edge is the assignment of a null value."""
        nulls = max(edges // 20, 1)
        random = np.random.default_rng(31)
        assignments, variables = _assignments(random, edges - nulls)
        values = variables + np.arange(nulls)
        return Program(assignments, np.stack([values, random.integers(0, variables, nulls)], 1), variables + nulls)

    @staticmethod
    def of_pointers(edges: int) -> Program:
        """Each fifth edge is a dereference, another fifth loads or stores."""
        count = max(edges // 5, 1)
        random = np.random.default_rng(37)
        assignments, variables = _assignments(random, edges - 2 * count)
        pointers, memory = random.integers(0, variables, count), variables + np.arange(count)
        others = pointers // VARIABLES * VARIABLES + random.integers(0, VARIABLES, count)
        others = np.minimum(others, variables - 1)
        is_load = random.random(count) < 0.5
        moved = np.stack([np.where(is_load, memory, others), np.where(is_load, others, memory)], 1)
        return Program(np.concatenate([assignments, moved]), np.stack([pointers, memory], 1), variables + count)

    def names(self) -> pa.Array:
        """Return the IRIs of the nodes."""
        numbers = pa.array(np.arange(self.nodes)).cast(pa.string())
        return pc.binary_join_element_wise(f"<{EX}n", numbers, ">", "")


def _assignments(random: np.random.Generator, count: int) -> tuple[Int64Array, int]:
    """Return about the wanted number of distinct assignments, and the number of variables."""
    procedures = max(round(count / (VARIABLES - 1 + CALLED)), 2)
    first = np.repeat(np.arange(procedures) * VARIABLES, VARIABLES - 1)
    place = np.tile(np.arange(1, VARIABLES), procedures)
    inside = np.stack([first + random.integers(0, place), first + place], 1)
    calls = max(count - len(inside), 1)
    callers = random.integers(0, procedures * VARIABLES, calls)
    called = random.integers(0, procedures, calls) * VARIABLES
    edges = np.concatenate([inside, np.stack([callers, called], 1)])
    return np.unique(edges, axis=0), procedures * VARIABLES


def edges_of(edges: int | None, is_quick: bool) -> int:
    return edges or (QUICK_EDGES if is_quick else EDGES)


def run(session: Session, edges: int) -> None:
    """edges: of each program, assignments and others together."""
    session = session.with_case(edges=edges)
    session.record.about["versions"][NAME] = VERSION
    for name in QUERIES:
        measure(session, EXPERIMENT, name, f"{NAME} {VERSION}", CORRECTION, partial(_measure, edges=edges))


def _measure(figures: Figures, edges: int) -> None:
    is_nulls = figures.query == DATAFLOW
    program = Program.of_nulls(edges) if is_nulls else Program.of_pointers(edges)
    relations = [Relation("reached")] if is_nulls else [Relation("flows"), Relation("alias", 1 << 32)]
    view, rules = ("reached", NULLS) if is_nulls else ("points-to", POINTERS)
    other = f"<{EX}{'null' if is_nulls else 'dereference'}>"
    names = program.names()
    with Sides.open(relations, view, may_build=not figures.session.is_quick) as sides:
        tables = [_table(names, program.assignments, EDGE), _table(names, program.second, other)]
        say(f"  {sum(map(len, tables)):,} edges, {program.nodes:,} nodes")
        sides.close_both(figures, rules, tables, _pairs(program.assignments), _pairs(program.second))
        count = QUICK_REMOVED if figures.session.is_quick else REMOVED
        random = np.random.default_rng(41)
        chosen = program.second if is_nulls else program.assignments
        for place in random.choice(len(chosen), min(count, len(chosen)), replace=False).tolist():
            one = chosen[place : place + 1]
            pairs = _pairs(one)
            gone = (_table(names, one, other if is_nulls else EDGE), () if is_nulls else pairs)
            sides.correct(figures, (None, ()), gone, pairs if is_nulls else ())
        sides.write_corrections(figures)


def _pairs(edges: Int64Array) -> list[tuple[int, int]]:
    return list(zip(edges[:, 0].tolist(), edges[:, 1].tolist(), strict=True))


def _table(names: pa.Array, edges: Int64Array, predicate: str) -> pa.Table:
    """Return edges as Engine.apply takes them."""
    ends = [names.take(pa.array(edges[:, place])) for place in range(2)]
    predicates = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(edges), np.int32)), pa.array([predicate]))
    return pa.table([ends[0], predicates, ends[1]], ["subject", "predicate", "object"])
