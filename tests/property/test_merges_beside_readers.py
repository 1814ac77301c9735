"""Readers beside an engine that merges outside of its lock: each answer is that of one snapshot, whole.

One thread changes the graph by tables and keeps what plain sets hold after each change. Others read the newest
snapshot, old ones, and prepared queries. Batches are merged in very small steps, so that merges are always under way.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import wukongs
from tests.fuzz import SEED, scaled
from wukongs import CompactedError
from wukongs.live import merger
from wukongs.store import trace

NAMES = [f"<http://e/{number}>" for number in range(30)]
PREDICATES = [f"<http://e/p{number}>" for number in range(3)]
GRAPHS = [None, None, "<http://e/g>", "<http://e/h>"]
ALL = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
TURN_S = 0.01
Quad = tuple[str | None, str, str, str]
State = frozenset[Quad]


def random_quad(rng: random.Random) -> Quad:
    return rng.choice(GRAPHS), rng.choice(NAMES), rng.choice(PREDICATES), rng.choice([*NAMES, '"a long literal é"'])


def table(rng: random.Random, quads: list[Quad]) -> pa.Table:
    columns = {
        name: [quad[at] for quad in quads] for at, name in enumerate(("graph", "subject", "predicate", "object"))
    }
    arrays = {name: pa.array(column, pa.string()) for name, column in columns.items()}
    return pa.table(
        {name: array.dictionary_encode() if rng.random() < 0.5 else array for name, array in arrays.items()}
    )


def rows(answer: Any) -> frozenset[Any]:
    return frozenset(tuple(row.values()) for row in answer.arrow().to_pylist())


class Life:
    """states: what is stored after each change, with its SN; the last one may not be stored yet (SN None)."""

    def __init__(self, engine: wukongs.Engine, rng: random.Random) -> None:
        self.engine, self.rng = engine, rng
        self.states: list[tuple[int | None, State]] = [(engine.query("ASK {}").snapshot, frozenset())]
        self.is_over = threading.Event()

    def change(self, count: int) -> None:
        rng, hot = self.rng, [random_quad(self.rng) for _ in range(6)]
        try:
            for _ in range(count):
                state = self.states[-1][1]
                come = [random_quad(rng) for _ in range(rng.choice([0, 1, 30, 200]))] + rng.sample(hot, 2)
                gone = [random_quad(rng), *rng.sample(hot, 2)]
                gone += rng.sample(sorted(state, key=str), min(len(state), rng.choice([0, 1, 100])))
                state = (state - frozenset(gone)) | frozenset(come)
                self.states.append((None, state))
                self.states[-1] = self.engine.apply(inserts=table(rng, come), deletes=table(rng, gone)), state
                time.sleep(TURN_S * rng.random())
        finally:
            self.is_over.set()

    def read(self, ask: Callable[[], Any], of: Callable[[Quad], Any]) -> None:
        """Ask while the graph changes. of: the row that a quad gives, None for none."""
        while not self.is_over.is_set():
            first = len(self.states) - 1 - (self.states[-1][0] is None)
            found = rows(ask())
            possible = [state for _, state in self.states[first:]]
            assert any(found == frozenset(filter(None, map(of, state))) for state in possible), found
            time.sleep(TURN_S)

    def read_old(self, rng: random.Random) -> None:
        while not self.is_over.is_set():
            sn, state = rng.choice(self.states[-8:])
            if sn is not None:
                with suppress(CompactedError):
                    assert rows(self.engine.query(ALL, at=sn)) == state
            time.sleep(TURN_S)


@pytest.mark.parametrize("hash_bits", [62, 5])
@pytest.mark.parametrize("is_durable", [False, True])
def test_answers_beside_merges_are_those_of_one_snapshot(
    is_durable: bool, hash_bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"STEP_FUEL": 200, "QUIET_S": 0.01, "QUIET_FUEL": 200}.items():
        monkeypatch.setattr(merger, name, value)
    monkeypatch.setattr(trace, "FUEL_MIN", 16)
    folder, settings = tmp_path / "data" if is_durable else None, wukongs.Settings(hash_bits=hash_bits)
    rng = random.Random(SEED)
    with wukongs.Engine(folder, settings=settings) as engine:
        life, prepared = Life(engine, rng), engine.prepare("SELECT ?s ?o { ?s ?p ?o }")
        p = PREDICATES[0]

        def of_prepared(quad: Quad) -> Any:
            return (quad[1], quad[3]) if quad[0] is None and quad[2] == p else None

        with ThreadPoolExecutor(4) as pool:
            changes = pool.submit(life.change, scaled(200))
            reads = [
                pool.submit(life.read, lambda: engine.query(ALL), lambda quad: quad),
                pool.submit(life.read, lambda: prepared(p=p), of_prepared),
                pool.submit(life.read_old, random.Random(SEED)),
            ]
            if is_durable:
                while not life.is_over.wait(0.05):
                    engine.checkpoint()
        for each in (changes, *reads):
            each.result()
        assert rows(engine.query(ALL)) == life.states[-1][1]
    if is_durable:
        with wukongs.Engine(folder, settings=settings) as engine:
            assert rows(engine.query(ALL)) == life.states[-1][1]
