"""What a victim does: operation i of a seed, the same whoever asks, so that the one who kills it can tell what must be
there."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.oracles.durable import Triple

EX = "http://ex/"
STREAMS = (EX + "a", EX + "b")
TIMING = EX + "seen"
BATCH_MS = 100
STEP_MS = 200
RANGE_MS = 600
QUERIES = {name: STREAMS[at] for at, name in enumerate(("first", "second"))}


@dataclass(frozen=True)
class Operation:
    """kind: push, load, checkpoint, pause. Tuples of a push have one time, later than all before on that stream."""

    kind: str
    stream: str = ""
    triples: tuple[Triple, ...] = ()
    time_ms: int = 0


def operation(seed: int, number: int) -> Operation:
    """Operation `number` (from 1) of a seed."""
    rng = random.Random(seed * 1_000_003 + number)
    names = [EX + f"n{rng.randrange(40)}" for _ in range(12)]
    predicates = [EX + "p", EX + "q", TIMING]
    triples = tuple(
        (rng.choice(names), rng.choice(predicates), rng.choice([*names, EX + f"new{number}"]))
        for _ in range(rng.randrange(1, 20))
    )
    kind = rng.choices(["push", "load", "checkpoint"], [12, 2, 1])[0]
    return Operation(kind, STREAMS[number % 2], triples if kind != "checkpoint" else (), 40 * number)


def query_text(name: str) -> str:
    window = f"[RANGE {RANGE_MS}ms STEP {STEP_MS}ms]"
    return f"REGISTER QUERY {name} AS SELECT ?s ?p ?o FROM STREAM <{QUERIES[name]}> {window} WHERE {{ ?s ?p ?o }}"
