"""Random lives of continuous queries over windows of hundreds to thousands of tuples, made for each mechanism.

A firing finds its answer by one of many mechanisms (wukongs/query/mechanisms.py). A mix makes queries, data and stored
graphs for some of them. In each life these are forced on, forced off, or left to the engine's own limits. Each window
is compared with what pyoxigraph finds over the same triples: those of the window, as a set, and those stored by then.

A life counts which mechanisms have found its windows. `faults` tells which were used too rarely: in less than
SHARE_MIN of the windows of a mix that is made for them, or in less than SHARE_ALL_MIN of all.
"""

from __future__ import annotations

import logging
import random
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import pyoxigraph as ox

import wukongs
from tests.fuzzing.window_queries import (
    BATCH_MS,
    GRAPHS,
    OTHER,
    STREAM,
    Asked,
    Clause,
    E,
    Triple,
    aggregated,
    beside_stored,
    beyond,
    chain,
    clause_of,
    existing,
    graphs_of,
    iri,
    layered,
    links,
    observation,
    pairs,
    ranked,
    readings,
    reduced,
    singles,
    states,
    stored_facts,
    within,
)
from wukongs.incremental import cuts, maintained
from wukongs.live import answering, joined_queries, query_firings, query_windows
from wukongs.query.mechanisms import Mechanism as M
from wukongs.query.paths import kept_paths
from wukongs.query.plans import deltas
from wukongs.query.programs import program
from wukongs.store import membership

SHARE_MIN, SHARE_ALL_MIN = 0.05, 0.005
OPENED_MAX = 3
"""So many windows of one life that disagree are told."""
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
Rows = Counter[str]
"""Rows as lines of CSV, each with how often it is there."""


@dataclass
class Plan:
    """A life before it is lived. ticks: the tuples of each stream batch of STREAM; timeless: those of OTHER, which are
    stored for ever; updates: triples that are deleted and inserted just before a tick; settles: ticks at whose end the
    engine is waited for; forced: constants of the engine to be changed, by their modules."""

    queries: list[Asked]
    ticks: list[list[Triple]]
    timeless: dict[int, list[Triple]] = field(default_factory=dict)
    updates: dict[int, tuple[list[Triple], list[Triple]]] = field(default_factory=dict)
    settles: frozenset[int] = frozenset()
    timing: Any = True
    forced: list[tuple[Any, str, Any]] = field(default_factory=list)

    @property
    def has_graphs(self) -> bool:
        return any(query.clause.has_graphs for query in self.queries)

    def update(self, tick: int) -> Iterator[str]:
        """Iterate over the requests that change the stored graphs before a tick."""
        for kind, triples in zip(("DELETE", "INSERT"), self.updates[tick], strict=True):
            blocks = [" ".join(" ".join(one) + " ." for one in triples)]
            if self.has_graphs:
                for name in GRAPHS:
                    own = " ".join(" ".join(one) + " ." for one in triples if name in graphs_of(one))
                    blocks.append(f"GRAPH <{name}> {{ {own} }}")
            if triples:
                yield f"{kind} DATA {{ {' '.join(blocks)} }}"


# --- mixes ------------------------------------------------------------------------------------------------------------


def drawn(seed: str, count: int) -> list[str]:
    """Return the names of so many lives' mixes: all of them in turn, by their weights."""
    names = [name for name, mix in MIXES.items() for _ in range(mix.weight)]
    random.Random(seed).shuffle(names)
    return [names[at % len(names)] for at in range(count)]


@dataclass(frozen=True)
class Mix:
    """make: makes a life; targets: the mechanisms that it is made for; weight: how often it is drawn."""

    make: Callable[[random.Random], Plan]
    targets: tuple[M, ...]
    weight: int = 1


def forced(rng: random.Random, is_on: float = 0.7, is_off: float = 0.1) -> list[tuple[Any, str, Any]]:
    """Force the mechanisms on or off, or leave them as they are."""
    drawn = rng.random()
    if drawn < is_on:
        found: list[tuple[Any, str, Any]] = [
            (deltas, "ROWS_MIN", 0.0),
            (kept_paths, "ROWS_MIN", 0),
            (maintained, "STAY_MIN", rng.choice([0, 0, 1, 3])),
            (maintained, "JOINED_MIN", 0),
            (maintained, "MARKED_MIN", 0),
            (maintained, "COMPARED_MIN", 0),
            (maintained, "CUT_MIN", 0),
            (maintained, "CUT_NUMBERS_MIN", 0),
        ]
    elif drawn < is_on + is_off:
        found = [(deltas, "ROWS_MIN", 1e18), (kept_paths, "ROWS_MIN", 1 << 60)]
    else:
        found = []
    if rng.random() < 0.4:
        found.append((membership, "WAITING_TUPLES_MIN", rng.choice([0, 50, 200])))
    if rng.random() < 0.3:
        found.append((membership, "ENTRIES_MIN", 64))
    return found


def life(rng: random.Random, plan: Plan, sensors: int = 0) -> Plan:
    """Add what changes beside the windows: updates of the stored graph, and timeless tuples."""
    ticks = len(plan.ticks)
    every = rng.choice([1, 1, 3, 10, ticks])
    if sensors:
        known = stored_facts(rng, sensors)
        plan.updates[0] = [], known
        for tick in range(1, ticks):
            if rng.random() < 0.15:
                out = rng.sample(known, rng.choice([0, 1, 4]))
                come = [(one, predicate, rng.choice(known)[2]) for one, predicate, _ in rng.sample(known, 3)]
                come = [row for row in come if row[2].startswith("<") and row[1] in (iri("in"), iri("part"))]
                plan.updates[tick] = out, come
            if rng.random() < 0.1:
                plan.timeless[tick] = [(iri(f"s{rng.randrange(sensors)}"), iri("in"), iri(f"room{rng.randrange(3)}"))]
        every = rng.choice([1, 1, 3])
    plan.settles = frozenset({*range(0, ticks, every), *(tick - 1 for tick in plan.updates)})
    return plan


def sensor_life(
    rng: random.Random, make: Callable[[Clause, int], Asked], forced_by: list[Any], ranges: Sequence[int], count: int
) -> Plan:
    """Return a life of some queries over readings."""
    sensors, kind = rng.choice([60, 120, 240]), rng.choice(["integer", "integer", "decimal", "double"])
    rate = rng.choice([10, 20, 40, 60])
    stored = rng.choice([0.0, 0.0, 1.0])
    clauses = [clause_of(rng, ranges, stored) for _ in range(2)]
    queries = [make(rng.choice(clauses), number) for number in range(count)]
    is_stored = any(query.clause.reads_stored for query in queries)
    ticks = readings(rng, rng.choice([30, 40]), rate, sensors, kind)
    return life(rng, Plan(queries, ticks, forced=forced_by), sensors if is_stored else 0)


def _selected(rng: random.Random, output: Sequence[str] = ("QUERY",)) -> Callable[[Clause, int], Asked]:
    def make(clause: Clause, number: int) -> Asked:
        variables, where = pairs(rng, clause)
        return Asked(f"q{number}", clause, " ".join(variables), where, output=rng.choice(output))

    return make


def make_bindings(rng: random.Random) -> Plan:
    if rng.random() < 0.3:
        clauses = [clause_of(rng, (4, 6, 8, 12), 0.0) for _ in range(2)]
        queries = []
        for number in range(4):
            clause = rng.choice(clauses)
            variables, where = chain(rng, clause)
            queries.append(Asked(f"q{number}", clause, " ".join(variables[:3]), where))
        return life(rng, Plan(queries, links(rng, 40, rng.choice([20, 40]), 150), forced=forced(rng)))
    return sensor_life(rng, _selected(rng), forced(rng), (3, 5, 8, 12), 4)


def make_changes(rng: random.Random) -> Plan:
    def make(clause: Clause, number: int) -> Asked:
        output, kind = rng.choice(["ISTREAM", "DSTREAM"]), rng.random()
        if kind < 0.25:
            return aggregated(rng, clause, number, output)
        variables, where = pairs(rng, clause) if kind < 0.7 else singles(rng, clause)
        head = " ".join(variables)
        if rng.random() < 0.3:
            head = f"DISTINCT {variables[0]} {variables[-1]}"
        return Asked(f"q{number}", clause, head, where, output=output)

    return sensor_life(rng, make, forced(rng), (3, 5, 8), 4)


def make_distinct(rng: random.Random) -> Plan:
    def make(clause: Clause, number: int) -> Asked:
        variables, where = rng.choice([pairs, singles, states, states, beyond])(rng, clause)
        chosen = rng.sample(variables, rng.randint(1, min(2, len(variables))))
        return Asked(f"q{number}", clause, f"DISTINCT {' '.join(chosen)}", where, is_computed=True)

    return sensor_life(rng, make, forced(rng, 0.8), (8, 12, 25), 4)


def make_groups(rng: random.Random) -> Plan:
    return sensor_life(rng, lambda clause, number: aggregated(rng, clause, number), forced(rng), (4, 8, 12), 5)


def make_slices(rng: random.Random) -> Plan:
    """Groups and distinct rows of one pattern over one window, of which no row is kept."""

    def make(clause: Clause, number: int) -> Asked:
        return reduced(rng, clause, number, rng.choice(["QUERY", "QUERY", "ISTREAM", "DSTREAM"]))

    return sensor_life(rng, make, forced(rng, 0.8), (2, 3, 5, 8, 25), 5)


def make_executor(rng: random.Random) -> Plan:
    def make(clause: Clause, number: int) -> Asked:
        variables, where = beyond(rng, clause)
        tail = f"ORDER BY {' '.join(variables)} LIMIT 7" if rng.random() < 0.2 else ""
        return Asked(f"q{number}", clause, " ".join(variables), where, tail, is_computed=True)

    return sensor_life(rng, make, forced(rng), (4, 8), 4)


def make_joins(rng: random.Random) -> Plan:
    """What follows the change of parts below it; groups and DISTINCT above."""

    def make(clause: Clause, number: int) -> Asked:
        variables, where = layered(rng, clause)
        head, tail, kind = " ".join(variables), "", rng.random()
        if kind < 0.2:
            head = f"DISTINCT {' '.join(rng.sample(variables, rng.randint(1, 2)))}"
        elif kind < 0.45:
            head = f"?s (COUNT(*) AS ?n) (COUNT({variables[-1]}) AS ?m) (MAX({variables[-1]}) AS ?most)"
            tail = "GROUP BY ?s"
        output = rng.choice(["QUERY", "QUERY", "ISTREAM", "DSTREAM"])
        return Asked(f"q{number}", clause, head, where, tail, output, is_computed=True)

    return sensor_life(rng, make, forced(rng, 0.8), (5, 8, 12), 3)


def make_exists(rng: random.Random) -> Plan:
    """EXISTS in expressions."""

    def make(clause: Clause, number: int) -> Asked:
        return existing(rng, clause, number, rng.choice(["QUERY", "QUERY", "ISTREAM", "DSTREAM"]))

    return sensor_life(rng, make, forced(rng, 0.8), (3, 5), 3)


def make_limits(rng: random.Random) -> Plan:
    """The first rows in an order of all variables."""

    def make(clause: Clause, number: int) -> Asked:
        variables, where = rng.choice([singles, pairs, layered])(rng, clause)
        keys = [rng.choice(["?%s", "DESC(?%s)"]) % name[1:] for name in rng.sample(variables, len(variables))]
        cut = f"LIMIT {rng.choice([3, 10])}{rng.choice(['', ' OFFSET 2'])}"
        output = rng.choice(["QUERY", "QUERY", "ISTREAM", "DSTREAM"])
        tail = f"ORDER BY {' '.join(keys)} {cut}"
        return Asked(f"q{number}", clause, " ".join(variables), where, tail, output, is_computed=True)

    plan = sensor_life(rng, make, forced(rng, 0.8), (5, 8, 12), 3)
    plan.forced.append((cuts, "MARGIN", rng.choice([0, 4, 64])))
    return plan


def make_ranked(rng: random.Random) -> Plan:
    """The first groups, and the first distinct rows."""

    def make(clause: Clause, number: int) -> Asked:
        return ranked(rng, clause, number, rng.choice(["QUERY", "QUERY", "ISTREAM", "DSTREAM"]))

    plan = sensor_life(rng, make, forced(rng, 0.8), (5, 8, 12), 3)
    plan.forced.append((cuts, "MARGIN", rng.choice([0, 4, 64])))
    return plan


def make_stored(rng: random.Random) -> Plan:
    """Parts over stored graphs alone beside windows."""
    sensors = rng.choice([60, 120])
    clauses = []
    for _ in range(2):
        clause = clause_of(rng, (5, 8, 12), 1.0)
        has_graphs = rng.random() < 0.5
        names = (None, None) if has_graphs else (STREAM, f"{E}w2")
        windows = tuple(replace(window, name=name) for window, name in zip(clause.windows, names, strict=False))
        clauses.append(replace(clause, windows=windows, reads_stored=not has_graphs, has_graphs=has_graphs))
    queries = []
    for number in range(3):
        variables, where = beside_stored(rng, clause := rng.choice(clauses))
        head, tail, kind = " ".join(variables), "", rng.random()
        if kind < 0.2:
            head, tail = f"?s (COUNT(*) AS ?n) (MAX({variables[-1]}) AS ?most)", "GROUP BY ?s"
        output = rng.choice(["QUERY", "QUERY", "ISTREAM", "DSTREAM"])
        queries.append(Asked(f"q{number}", clause, head, where, tail, output, is_computed=True))
    ticks = readings(rng, rng.choice([30, 40]), rng.choice([10, 20]), sensors, rng.choice(["integer", "decimal"]))
    return life(rng, Plan(queries, ticks, forced=forced(rng, 0.9)), sensors)


def make_paths(rng: random.Random) -> Plan:
    def make(clause: Clause, number: int) -> Asked:
        path = rng.choice([":knows+", ":knows+", ":knows", "(:knows|:likes)+", ":likes/:knows+", "(:knows/:likes)+"])
        both = f"?a {path} ?b ."
        pattern = rng.choice([both, both, f":n{rng.randrange(9)} {path} ?b .", f"?a {path} :n1 ."])
        where = within(rng, clause, pattern)
        variables = [name for name in ("?a", "?b") if name in where]
        output = rng.choice(["QUERY", "QUERY", "QUERY", "ISTREAM"])
        return Asked(f"q{number}", clause, " ".join(variables), where, output=output)

    return path_life(rng, make, forced(rng))


def make_hosted(rng: random.Random) -> Plan:
    """Programs with parts that the executor evaluates: paths from rows, EXISTS in expressions."""

    def exists(clause: Clause, number: int) -> Asked:
        return existing(rng, clause, number, "QUERY")

    def paths(clause: Clause, number: int) -> Asked:
        path = rng.choice([":knows+", ":knows*", ":knows?", "(:knows|:likes)+", "^:knows/:likes*"])
        pattern = rng.choice([f"?a :likes ?b . ?b {path} ?c .", f"?b :likes ?a . ?c {path} ?b ."])
        where = within(rng, clause, pattern)
        where += rng.choice(["", " FILTER(?c != ?a)", " FILTER(STR(?c) > STR(?b))"])
        if rng.random() < 0.5:
            return Asked(f"q{number}", clause, "?a (COUNT(DISTINCT ?c) AS ?n)", where, "GROUP BY ?a")
        return Asked(f"q{number}", clause, "DISTINCT ?a ?c", where)

    unkept = forced(rng, 0.0, 0.9)
    if rng.random() < 0.5:
        return sensor_life(rng, exists, unkept, (1, 2, 3), 3)
    return path_life(rng, paths, unkept)


def make_slow(rng: random.Random) -> Plan:
    """Queries that count as slow, and are no programs."""

    def make(clause: Clause, number: int) -> Asked:
        kind = rng.randrange(4)
        if kind == 0:
            return existing(rng, clause, number, "QUERY")
        if kind == 1:
            return aggregated(rng, clause, number, "QUERY")
        variables, where = rng.choice([pairs, beyond, layered])(rng, clause)
        head = rng.choice(["DISTINCT ", "", ""]) + " ".join(variables)
        return Asked(f"q{number}", clause, head, where, is_computed=True)

    constants = [*forced(rng, 0.0, 0.9), (query_windows, "ARENA_CELLS", 1 << 62)]
    constants += [(query_firings, "SLOW_US", rng.choice([-1.0, -1.0, 2000.0])), (query_firings, "SLOW_COUNT", 1)]
    return sensor_life(rng, make, constants, (1, 2, 3), 3)


def path_life(rng: random.Random, make: Callable[[Clause, int], Asked], constants: list[tuple[Any, str, Any]]) -> Plan:
    """Return a life of queries over links."""
    clauses = [clause_of(rng, (5, 10, 20), rng.choice([0.0, 0.5])) for _ in range(2)]
    nodes = rng.choice([60, 120])
    queries = [make(rng.choice(clauses), number) for number in range(3)]
    plan = Plan(queries, links(rng, 30, rng.choice([3, 6]), nodes), forced=constants)
    if any(query.clause.reads_stored for query in queries):
        known = [(iri(f"n{rng.randrange(nodes)}"), iri("knows"), iri(f"n{rng.randrange(nodes)}")) for _ in range(20)]
        plan.updates[0] = [], known
        for tick in range(1, 30):
            if rng.random() < 0.2:
                fresh = (iri(f"n{rng.randrange(nodes)}"), iri("knows"), iri(f"n{rng.randrange(nodes)}"))
                plan.updates[tick] = [rng.choice(known)], [fresh]
                known.append(fresh)
    return life(rng, plan)


def make_compiled(rng: random.Random) -> Plan:
    """One query of patterns, which shares no kernel call with others."""

    def make(clause: Clause, number: int) -> Asked:
        variables, where = rng.choice([pairs, states, states])(rng, clause)
        return Asked(f"q{number}", clause, " ".join(variables), where)

    plan = sensor_life(rng, make, forced(rng, 0.0, 0.8), (2, 3, 4), 1)
    plan.ticks += plan.ticks[: len(plan.ticks) // 2]  # what has come long ago comes again
    return plan


def make_program(rng: random.Random) -> Plan:
    """Operators above and beside the patterns of small windows."""

    def make(clause: Clause, number: int) -> Asked:
        output, kind = rng.choice(["QUERY", "QUERY", "QUERY", "ISTREAM"]), rng.randrange(5)
        if kind == 0:
            return aggregated(rng, clause, number, output)
        if kind == 1:
            return ranked(rng, clause, number, output)
        variables, where = rng.choice([beyond, layered, layered])(rng, clause)
        tail = ""
        if kind == 2:
            keys = [rng.choice(["?%s", "DESC(?%s)"]) % name[1:] for name in rng.sample(variables, len(variables))]
            tail = f"ORDER BY {' '.join(keys)} LIMIT {rng.choice([3, 10])}{rng.choice(['', ' OFFSET 2'])}"
        head = rng.choice(["DISTINCT ", "", ""]) + " ".join(variables)
        return Asked(f"q{number}", clause, head, where, tail, output, is_computed=True)

    plan = sensor_life(rng, make, forced(rng, 0.0, 0.8), (1, 2, 3, 4), 4)
    plan.ticks += plan.ticks[: len(plan.ticks) // 2]  # what has come long ago comes again
    return plan


def make_together(rng: random.Random) -> Plan:
    def make(clause: Clause, number: int) -> Asked:
        variables, where = rng.choice([pairs, singles])(rng, clause)
        return Asked(f"q{number}", clause, " ".join(variables), where)

    constants = [*forced(rng, 0.0, 0.9), (program, "TOGETHER_S", rng.choice([program.TOGETHER_S, 60.0, 60.0]))]
    return sensor_life(rng, make, constants, (2, 3, 4), 6)


def alike(rng: random.Random, clause: Clause, count: int, shape: str) -> list[Asked]:
    """Return queries that differ in constants alone."""
    found, first = [], replace(clause, windows=clause.windows[:1])
    output = rng.choice(["QUERY", "QUERY", "ISTREAM", "DSTREAM"])
    for number in range(count):
        where = within(rng, first, shape.replace("?s ", f":s{rng.randrange(20)} "))
        head = " ".join(name for name in ("?o1", "?v1", "?o2", "?v2", "?x") if name in where)
        found.append(Asked(f"q{number}", clause, head, where, output=output, is_computed=True))
    return found


SHAPES = [
    "?o1 :p ?s . ?o1 :r ?b1 . ?b1 :f ?v1 . FILTER(STRLEN(STR(?v1)) > 1)",
    "?o1 :p ?s . ?o1 :k :T . ?o1 :r ?b1 . ?b1 :f ?v1 . BIND(?v1 * 2 AS ?x)",
    "?o1 :p ?s . ?o1 :k :T . OPTIONAL { ?o1 :r ?b1 . ?b1 :f ?v1 . }",
    "?o1 :p ?s . ?o1 :r ?b1 . ?b1 :f ?v1 . MINUS { ?o1 :k :U }",
]


def make_joined(rng: random.Random) -> Plan:
    clause = clause_of(rng, (3, 5, 8), 0.0)
    plain = "?o1 :p ?s . ?o1 :r ?b1 . ?b1 :f ?v1 . FILTER(?v1 > 60)"
    queries = alike(rng, clause, rng.randint(6, 12), rng.choice([*SHAPES, plain, plain]))
    ticks = readings(rng, 30, rng.choice([20, 40]), 20, "integer")
    alone = [] if rng.random() < 0.1 else [(joined_queries, "ALONE_MAX", rng.choice([1, 2]))]
    return life(rng, Plan(queries, ticks, forced=[*forced(rng), *alone]))


def make_arguments(rng: random.Random) -> Plan:
    sensors = rng.choice([20, 500])
    clause = clause_of(rng, (2, 3, 6), 0.0)
    queries = []
    for number in range(2):
        shape = rng.choice([*SHAPES, "?o1 :p ?s . ?o1 :r ?b1 . ?b1 :f ?v1 . ?o2 :p ?s ."])
        where = within(rng, replace(clause, windows=clause.windows[:1]), shape)
        head = " ".join(name for name in ("?o1", "?v1", "?o2", "?x") if name in where)
        count = rng.choice([3, sensors, sensors])
        terms = tuple(iri(f"s{one}") for one in rng.sample(range(sensors), count))
        queries.append(Asked(f"q{number}", clause, head, where, bindings=("s", terms), is_computed=True))
    of_executor = [(answering, "ARGUMENTS_MAX", 0)] if rng.random() < 0.7 else []
    ticks = readings(rng, 30, rng.choice([16, 32]), sensors, "integer")
    return life(rng, Plan(queries, ticks, forced=[*forced(rng), *of_executor]))


def make_twins(rng: random.Random) -> Plan:
    clause = clause_of(rng, (3, 5, 8), 0.0)
    variables, where = rng.choice([pairs, singles, beyond])(rng, clause)
    head = " ".join(variables)
    queries = [Asked(f"q{number}", clause, head, where, is_computed=True) for number in range(3)]
    other, there = singles(rng, clause)
    queries.append(Asked("q3", clause, " ".join(other), there))
    unlike = "(COUNT(DISTINCT *) AS ?n)"
    queries.append(Asked("q4", clause, unlike, where, is_computed=True))
    for number, own in enumerate((variables[0], variables[-1]), 5):
        queries.append(Asked(f"q{number}", clause, f"{own} {unlike}", where, f"GROUP BY {own}", is_computed=True))
    queries.append(Asked("q7", clause, f"DISTINCT {variables[0]} {variables[-1]}", where, is_computed=True))
    return life(
        rng, Plan(queries, readings(rng, 30, rng.choice([12, 24]), 40, "integer"), forced=forced(rng, 0.4, 0.4))
    )


def make_silence(rng: random.Random) -> Plan:
    """Few stream batches have tuples, and the engine is waited for after many of them."""

    def make(clause: Clause, number: int) -> Asked:
        if rng.random() < 0.6:  # that the executor evaluates
            variables, where = beyond(rng, clause)
            return Asked(f"q{number}", clause, " ".join(variables), where, is_computed=True)
        output = rng.choice(["QUERY", "ISTREAM"])
        return Asked(f"q{number}", clause, "?o1 ?v1", within(rng, clause, observation(rng, 1)), output=output)

    clauses = [clause_of(rng, (2, 4, 10), 0.0) for _ in range(2)]
    queries = [make(rng.choice(clauses), number) for number in range(4)]
    ticks: list[list[Triple]] = [[] for _ in range(90)]
    for begin in range(0, 90, rng.choice([15, 30])):
        for tick, rows in enumerate(readings(rng, rng.choice([1, 2, 4]), 30, 40, "integer")):
            ticks[begin + tick] = rows
    plan = Plan(queries, ticks, forced=forced(rng))
    every = rng.choice([1, 20, 45, 90])
    plan.settles = frozenset(range(every - 1, 90, every))
    return plan


def make_begun(rng: random.Random) -> Plan:
    """The stored graph loses triples at every other firing or so: matches of before are of no use then."""

    def make(clause: Clause, number: int) -> Asked:
        variables, where = rng.choice([pairs, singles])(rng, clause)
        return Asked(f"q{number}", replace(clause, reads_stored=True), " ".join(variables), f"{where} ?s :in ?lives .")

    sensors = 60
    clauses = [clause_of(rng, (3, 5, 8), 1.0) for _ in range(2)]
    queries = [make(rng.choice(clauses), number) for number in range(3)]
    plan = life(
        rng, Plan(queries, readings(rng, 30, rng.choice([10, 20]), sensors, "integer"), forced=forced(rng, 0.9))
    )
    known = stored_facts(rng, sensors)
    plan.updates = {0: ([], known)}
    for tick in range(1, 30):
        if rng.random() < 0.4:
            out = rng.sample(known, 2)
            known = [triple for triple in known if triple not in out]
            plan.updates[tick] = out, []
    plan.settles |= {tick - 1 for tick in plan.updates}
    return plan


MIXES: dict[str, Mix] = {
    "bindings": Mix(make_bindings, (M.BINDINGS,), 4),
    "changes": Mix(make_changes, (M.CHANGES, M.BINDINGS), 3),
    "distinct": Mix(make_distinct, (M.DISTINCT,), 3),
    "groups": Mix(make_groups, (M.GROUPS,), 4),
    "slices": Mix(make_slices, (M.SLICES,), 3),
    "executor": Mix(make_executor, (M.EXECUTOR, M.BINDINGS), 2),
    "joins": Mix(make_joins, (M.JOINS, M.CHANGES), 2),
    "exists": Mix(make_exists, (M.JOINS, M.CHANGES), 2),
    "limits": Mix(make_limits, (M.LIMITS, M.CHANGES), 2),
    "ranked": Mix(make_ranked, (M.LIMITS, M.GROUPS, M.DISTINCT), 2),
    "stored": Mix(make_stored, (M.JOINS, M.CHANGES, M.SEARCHED), 5),
    "paths": Mix(make_paths, (M.PATHS,), 3),
    "compiled": Mix(make_compiled, (M.PROGRAM,), 3),
    "program": Mix(make_program, (M.PROGRAM, M.TOGETHER, M.DIRECT), 4),
    "slow": Mix(make_slow, (M.SLOW_LANE, M.EXECUTOR), 2),
    "hosted": Mix(make_hosted, (M.HOSTED,), 2),
    "together": Mix(make_together, (M.TOGETHER, M.DIRECT), 1),
    "joined": Mix(make_joined, (M.JOINED,), 1),
    "arguments": Mix(make_arguments, (M.ROWS_FIRST, M.ROWS_PROBED), 3),
    "twins": Mix(make_twins, (M.CACHED,), 1),
    "silence": Mix(make_silence, (M.CACHED,), 1),
    "begun": Mix(make_begun, (M.BINDINGS_ANEW,), 1),
}


# --- a life -----------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """windows, used: of each mix, its windows and how many of them each mechanism has found; opened: what disagrees."""

    windows: Counter[str] = field(default_factory=Counter)
    tuples: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    used: dict[str, Counter[M]] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.windows += other.windows
        self.tuples += other.tuples
        self.rows += other.rows
        for mix, counts in other.used.items():
            self.used[mix] = self.used.get(mix, Counter()) + counts
        self.opened += other.opened

    def faults(self, share_min: float = SHARE_MIN, share_all_min: float = SHARE_ALL_MIN) -> list[str]:
        """Return a sentence for each mechanism that was used too rarely."""
        total, found = sum(self.windows.values()), []
        for name, mix in MIXES.items():
            for target in mix.targets if self.windows[name] else ():
                share = self.used.get(name, Counter())[target] / self.windows[name]
                if share < share_min:
                    found.append(f"{target} has found {share:.2%} of the windows of mix {name}, which is made for it")
        for mechanism in M if total else ():
            share = sum(counts[mechanism] for counts in self.used.values()) / total
            if share < share_all_min:
                found.append(f"{mechanism} has found {share:.2%} of all windows")
        return found

    def shown(self) -> str:
        """Return the table of mechanisms: windows that each has found, by mix and in all."""
        total = sum(self.windows.values())
        names = [name for name in MIXES if self.windows[name]]
        mean = sum(self.tuples.values()) / max(1, total)
        lines = [f"{total} windows of {mean:.0f} triples on average, {self.rows} rows compared"]
        lines.append(f"{'mechanism':22}{'all':>8}{'share':>8}  " + "".join(f"{name:>11}" for name in names))
        for mechanism in M:
            counts = [self.used.get(name, Counter())[mechanism] for name in names]
            shares = "".join(
                f"{f'{count / self.windows[name]:.0%}' if count else '-':>10}"
                + ("*" if mechanism in MIXES[name].targets else " ")
                for name, count in zip(names, counts, strict=True)
            )
            lines.append(f"{mechanism:22}{sum(counts):8}{sum(counts) / max(1, total):8.1%}  {shares}")
        lines.append(f"{'windows':22}{total:8}{'':8}  " + "".join(f"{self.windows[name]:>10} " for name in names))
        lines.append("* the mix is made for this mechanism")
        return "\n".join(lines)


def fuzz_life(seed: str, mix: str) -> Tally:
    """Live one life of a mix, and compare all its windows."""
    tally, plan = Tally(), MIXES[mix].make(random.Random(f"{seed} {mix}"))
    try:
        found, tally.used[mix] = lived(plan)
        opened = judged(plan, found, tally, mix)
    except Exception:  # a life that cannot be lived is a fault, too
        opened = [traceback.format_exc()]
    tally.opened += [f"seed {seed}\nmix {mix}\n{each}" for each in opened[:OPENED_MAX]]
    return tally


Windows = dict[str, dict[int, Rows | str]]
"""The rows of each query by the end of the window; in their place the name of an error."""


def lived(plan: Plan) -> tuple[Windows, Counter[M]]:
    """Return the windows of each query, and how many of them each mechanism has found."""
    found: Windows = {query.name: {} for query in plan.queries}
    used: Counter[M] = Counter()
    with ExitStack() as stack:
        for module, name, constant in plan.forced:
            stack.enter_context(mock.patch.object(module, name, constant))
        stack.enter_context(quiet())
        engine = stack.enter_context(wukongs.Engine())
        stream = engine.stream(STREAM, timing=plan.timing, batch_ms=BATCH_MS)
        other = engine.stream(OTHER, timing=False, batch_ms=BATCH_MS) if plan.timeless else None
        streams = [one for one in (stream, other) if one is not None]
        for one in streams:
            one.advance(0)
        handles: dict[str, Any] = {}
        for query in plan.queries:
            table = None
            if query.bindings is not None:
                variable, terms = query.bindings
                table = [{variable: term} for term in terms]
            handles[query.name] = engine.register(query.text(), bindings=table)
        for tick, tuples in enumerate(plan.ticks):
            if tick in plan.updates:
                for request in plan.update(tick):
                    engine.update(request)
            end_ms = BATCH_MS * (tick + 1)
            if tuples:
                stream.push([(*one, end_ms - BATCH_MS // 2) for one in tuples])
            if other is not None and tick in plan.timeless:
                other.push([(*one, end_ms - BATCH_MS // 2) for one in plan.timeless[tick]])
            for one in streams:
                one.advance(end_ms)
            if tick in plan.settles or tick == len(plan.ticks) - 1:
                engine.settle(120)
                for name, handle in handles.items():
                    for window in _windows(handle):
                        found[name][window[0]] = window[1]
        for handle in handles.values():
            used += Counter({M(name): count for name, count in handle.stats()["found_by"].items()})
    return found, used


def _windows(handle: Any) -> Iterator[tuple[int, Rows | str]]:
    results = handle.results(timeout_s=0)
    while True:
        try:
            window = next(results, None)
        except wukongs.WukongsError as error:
            yield -1, type(error).__name__
            results = handle.results(timeout_s=0)
            continue
        if window is None:
            return
        yield window.end_ms, lines_of(window.serialize("csv").encode())


def lines_of(csv: bytes) -> Rows:
    return Counter(csv.decode().split("\r\n")[1:-1])


def normal(rows: Rows) -> Rows:
    """Return rows with computed numbers as all systems would write them."""
    found: Rows = Counter()
    for line, count in rows.items():
        cells = [f"{float(cell):.9g}" if _NUMBER.fullmatch(cell) else cell for cell in line.split(",")]
        found[",".join(cells)] += count
    return found


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the log quiet: it warns of predicates that have not come yet."""
    log = logging.getLogger("wukongs")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


# --- the oracle -------------------------------------------------------------------------------------------------------

Quad = tuple[str | None, Triple]


class Oracle:
    """The triples of a clause, from firing to firing, in a store of pyoxigraph."""

    def __init__(self, clause: Clause, known: dict[Quad, ox.Quad]) -> None:
        self._clause, self._known = clause, known
        self._store, self._has = ox.Store(), set[Quad]()

    def stand(self, at_ms: int, plan: Plan, stored: Iterable[Triple], updated: Iterable[Triple]) -> int:
        """Hold what the clause reads at a time; return how many triples that is. updated: those that named graphs have,
        too."""
        wanted: set[Quad] = set()
        for window in self._clause.windows:
            closes_ms = at_ms // window.step_ms * window.step_ms
            first = max(0, (closes_ms - window.range_ms) // BATCH_MS)
            for tuples in plan.ticks[first : closes_ms // BATCH_MS]:
                wanted.update((window.name, triple) for triple in tuples)
        if self._clause.reads_stored:
            wanted.update((None, triple) for triple in stored)
        if self._clause.has_graphs:
            wanted.update((name, triple) for triple in updated for name in graphs_of(triple))
        for quad in self._has - wanted:
            self._store.remove(self._quad(quad))
        self._store.extend([self._quad(quad) for quad in wanted - self._has])
        self._has = wanted
        return len(wanted)

    def rows(self, text: str) -> Rows:
        found: Any = self._store.query(text)
        return lines_of(found.serialize(format=ox.QueryResultsFormat.CSV))

    def _quad(self, quad: Quad) -> ox.Quad:
        made = self._known.get(quad)
        if made is None:
            name, (subject, predicate, object_) = quad
            graph = ox.DefaultGraph() if name is None else ox.NamedNode(name)
            made = ox.Quad(_node(subject), _node(predicate), _node(object_), graph)
            self._known[quad] = made
        return made


def _node(text: str) -> Any:
    if text.startswith("<"):
        return ox.NamedNode(text[1:-1])
    lexical, datatype = text[1:].split('"^^<')
    return ox.Literal(lexical, datatype=ox.NamedNode(datatype[:-1]))


def judged(
    plan: Plan, found: Mapping[str, Mapping[int, Rows | str]], tally: Tally, mix: str, fails: bool = False
) -> list[str]:
    """Compare all windows with pyoxigraph's answers; return what disagrees. fails: firings may fail. They have no
    window, and behind them ISTREAM and DSTREAM begin anew."""
    opened: list[str] = []
    known: dict[Quad, ox.Quad] = {}
    oracles = {clause: Oracle(clause, known) for clause in {query.clause for query in plan.queries}}
    before: dict[str, Rows] = {query.name: Counter() for query in plan.queries}
    stored, updated = set[Triple](), set[Triple]()
    for tick in range(len(plan.ticks)):
        out, come = plan.updates.get(tick, ((), ()))
        updated = (updated - set(out)) | set(come)
        stored = (stored - set(out)) | set(come) | set(plan.timeless.get(tick, ()))
        at_ms = BATCH_MS * (tick + 1)
        for clause, oracle in oracles.items():
            if at_ms % clause.every_ms:
                continue
            count = oracle.stand(at_ms, plan, stored, updated)
            for query in plan.queries:
                if query.clause != clause:
                    continue
                window = found[query.name].get(at_ms)
                if window is None and fails:
                    before[query.name] = Counter()
                    continue
                rows = oracle.rows(query.oracle_text())
                expected = normal(rows) if query.is_computed else rows
                last, before[query.name] = before[query.name], expected
                if query.output == "ISTREAM":
                    expected = expected - last
                elif query.output == "DSTREAM":
                    expected = last - expected
                if window is None and found[query.name].get(-1) == "GapError":
                    continue  # it was too large to wait for its reader
                tally.windows[mix] += 1
                tally.tuples[mix] += count
                if window is None:
                    opened.append(f"{query.text()}\nno window at {at_ms}; errors: {found[query.name].get(-1)}")
                    continue
                assert not isinstance(window, str)
                tally.rows += sum(window.values())
                ours = normal(window) if query.is_computed else window
                if ours != expected:
                    lacks, has = expected - ours, ours - expected
                    opened.append(
                        f"{query.text()}\nwindow at {at_ms}: {ours.total()} rows, pyoxigraph {expected.total()}\n"
                        f"lacks {list(lacks.items())[:4]}\nhas {list(has.items())[:4]}"
                    )
    return opened
