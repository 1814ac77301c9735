"""A victim's work: operation i of a seed. It is the same for every caller, so that the killer knows which data must be
there."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.oracles import update_ast
from tests.oracles.durable import Triple
from tests.oracles.query_ast import Bgp, Group, Var
from tests.oracles.rdf import iri

EX = "http://ex/"
STREAMS = (EX + "a", EX + "b")
TIMING = EX + "seen"
UPDATED = iri(EX + "updated")
BATCH_MS = 100
STEP_MS = 200
RANGE_MS = 600
LATENESS_MS = {STREAMS[0]: 40, STREAMS[1]: 0}
"""The first stream sorts: its tuples come out of order, and one of each push is late."""
MADE = EX + "made"
CHAINED_MS = 2 * STEP_MS
QUERIES = {
    "first": (STREAMS[0], RANGE_MS),
    "second": (STREAMS[1], RANGE_MS),
    MADE: (STREAMS[0], RANGE_MS),
    "chained": (STREAMS[0], RANGE_MS + CHAINED_MS - STEP_MS),
}
"""Which tuples the window of a query holds in the end: the last one reads two windows of the one before it."""


@dataclass(frozen=True)
class Operation:
    """kind: push, load, update, checkpoint. Tuples of a push are later than all before on that stream, but for late.

    An update has a predicate of its own, so that nothing else depends on it; applied twice it is as if applied once."""

    kind: str
    stream: str = ""
    triples: tuple[Triple, ...] = ()
    time_ms: int = 0
    request: tuple[update_ast.Operation, ...] = ()
    late: tuple[Triple, ...] = ()

    def rows(self) -> list[tuple[Triple, int]]:
        """The tuples of a push that are on time, with their times, in the order in which they come."""
        lateness_ms = LATENESS_MS[self.stream]
        offsets = [place * 13 % lateness_ms if lateness_ms else 0 for place in range(len(self.triples))]
        return [(triple, self.time_ms - offset) for triple, offset in zip(self.triples, offsets, strict=True)]

    def text(self) -> str:
        return " ; ".join(update_ast.text_of(part) for part in self.request)


def operation(seed: int, number: int) -> Operation:
    """Operation `number` (from 1) of a seed."""
    rng = random.Random(seed * 1_000_003 + number)
    names = [EX + f"n{rng.randrange(40)}" for _ in range(12)]
    predicates = [EX + "p", EX + "q", TIMING]
    triples = tuple(
        (rng.choice(names), rng.choice(predicates), rng.choice([*names, EX + f"new{number}"]))
        for _ in range(rng.randrange(1, 20))
    )
    kind = rng.choices(["push", "load", "update", "checkpoint"], [12, 2, 4, 1])[0]
    if kind == "update":
        return Operation(kind, request=_request(rng, number))
    stream = STREAMS[number % 2]
    late = ((EX + f"late{number}", EX + "p", EX + "o"),) if kind == "push" and LATENESS_MS[stream] else ()
    return Operation(kind, stream, triples if kind != "checkpoint" else (), 40 * number, late=late)


def _request(rng: random.Random, number: int) -> tuple[update_ast.Operation, ...]:
    graphs = [iri(EX + name) for name in ("g", "h")]

    def data() -> tuple[update_ast.QuadPattern, ...]:
        names = [iri(EX + f"n{rng.randrange(12)}") for _ in range(rng.randrange(1, 8))] + [iri(EX + f"new{number}")]
        return tuple((rng.choice([None, None, *graphs]), (name, UPDATED, rng.choice(names))) for name in names)

    found = (None, (Var("s"), UPDATED, Var("o")))
    into = (graphs[0], (Var("s"), UPDATED, Var("o")))
    insert, delete = update_ast.Data("INSERT", data()), update_ast.Data("DELETE", data())
    move = update_ast.Modify((found,), (into,), Group((Bgp((found[1],)),)))
    copy = update_ast.Transfer("COPY", rng.choice(graphs), graphs[1], silent=True)
    clear = update_ast.Whole("CLEAR", rng.choice(graphs), silent=False)
    return rng.choice(
        [(delete, insert), (clear, insert), (move,), (insert, copy), (move, copy, delete), (insert, clear)]
    )


def query_text(name: str) -> str:
    stream, range_ms = (MADE, CHAINED_MS) if name == "chained" else QUERIES[name]
    head = f"STREAM <{MADE}> AS CONSTRUCT {{ ?s ?p ?o }}" if name == MADE else f"QUERY {name} AS SELECT ?s ?p ?o"
    return f"REGISTER {head} FROM STREAM <{stream}> [RANGE {range_ms}ms STEP {STEP_MS}ms] WHERE {{ ?s ?p ?o }}"
