"""The same queries over windows: what a dataset holds is pushed into streams, and a window over all of it must answer
what the stored dataset answers.

The default graph is a stream that is read with FROM STREAM, each named graph one of its own name that is read with FROM
NAMED STREAM; so the text of a query stays as it is, but for its dataset clause.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager

import wukongs
from tests.fuzzing import answers
from tests.fuzzing.answers import Answer
from tests.fuzzing.graphs import EX, Data
from tests.fuzzing.judge import Open
from tests.fuzzing.queries import text_of
from tests.fuzzing.trees import Tree, operators

DEFAULT_STREAM = f"<{EX}stream>"
WINDOW = "[RANGE 1s STEP 1s]"


def fits(query: Tree) -> bool:
    """Whether a query can be asked of windows: it has no dataset clause of its own."""
    return not operators(query) & {"FROM", "FROM NAMED"}


def disagreements(data: Data, asked: list[tuple[Tree, Answer]], rng: random.Random) -> list[tuple[Tree, Open]]:
    """Register queries over windows on the data (without blank nodes) and compare with what they answered before."""
    found = []
    with _without_warnings(), wukongs.Engine() as engine:
        streams = {graph: graph or DEFAULT_STREAM for graph in data}
        handles = {graph: engine.stream(name[1:-1], batch_ms=100, timing=True) for graph, name in streams.items()}
        clause = " ".join(f"FROM {'NAMED ' * bool(graph)}STREAM {name} {WINDOW}" for graph, name in streams.items())
        registered = []
        for number, (query, expected) in enumerate(asked):
            try:
                handle = engine.register(f"REGISTER QUERY fuzz{number} AS {text_of(query, clause)}")
                registered.append((query, expected, handle))
            except wukongs.WukongsError as error:
                found.append((query, Open(f"not registered: {type(error).__name__}: {error}")))
        for graph, triples in data.items():
            times = sorted(rng.randint(1, 1000) for _ in triples)
            handles[graph].push([(*triple, time) for triple, time in zip(triples, times, strict=True)])
        for each in handles.values():
            each.advance(1000)
        engine.settle(timeout_s=60)
        for query, expected, handle in registered:
            try:
                window = next(iter(handle.results(timeout_s=5)), None)
            except wukongs.WukongsError as error:
                found.append((query, Open(f"the firing fails: {type(error).__name__}: {error}")))
                continue
            ours = None if window is None else answers.of_engine(window)
            if ours is None or not answers.same(ours, expected, "SELECT REDUCED" in operators(query)):
                shown = f"window {answers.shown(ours)}\none-shot {answers.shown(expected)}"
                found.append((query, Open(f"a window answers otherwise\n{shown}")))
    return found


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep the log quiet: it warns of graphs that no query declares."""
    log = logging.getLogger("wukongs")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
