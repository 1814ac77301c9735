"""Many live views: thousands of them over one graph, of which a change concerns a few; and a view of many arguments.

A time is from the call of `apply` to the columns of all reports. Each report is compared with what the text says anew
before a time is written, and no view that a change does not concern has a report. And a plain pattern over ten million
triples, registered: `install` is without parsing its text and without its content."""

from __future__ import annotations

import io
import random
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import wukongs
from wukongs.bench.experiments.session import Session
from wukongs.bench.interactive.graph import TO, RandomGraph
from wukongs.bench.peers import WUKONGS
from wukongs.bench.views.figures import SETTLE_S, Figures, followed, measure
from wukongs.bench.views.graph import EX, PREFIX
from wukongs.csparql import parse_query

EXPERIMENT = "many"
MANY, ARGUMENTS, PLAIN = "views of 100 shapes", "arguments of one view", "a plain pattern"
CHUNK = 500_000
QUERIES = (MANY, ARGUMENTS, PLAIN)
BODIES = (
    "?x {{ :n{node} :p{shape} ?x }}",
    "?x ?y {{ :n{node} :p{shape} ?x . ?x :p{other} ?y }}",
    "(COUNT(*) AS ?n) {{ :n{node} :p{shape} ?x }}",
    "?x ?y {{ :n{node} :p{shape} ?x OPTIONAL {{ ?x :p{other} ?y }} }}",
    "?x {{ :n{node} :p{shape} ?x FILTER NOT EXISTS {{ ?x :p{other} :none }} }}",
)
SHAPES, CONCERNED = 100, 10


@dataclass(frozen=True, slots=True)
class Size:
    """triples: stored; views, arguments: registered and bound; changes: how many; plain: triples below a plain
    pattern."""

    triples: int
    views: int
    arguments: int
    changes: int
    plain: int


FULL, QUICK = Size(1_000_000, 10_000, 1_000_000, 100, 10_000_000), Size(2_000, 200, 500, 3, 2_000)


def run(session: Session) -> None:
    size = QUICK if session.is_quick else FULL
    anew = f"{WUKONGS} asked anew"
    measure(session, EXPERIMENT, MANY, anew, "latency", partial(_many, size=size), views=size.views)
    body = partial(_arguments, size=size)
    measure(session, EXPERIMENT, ARGUMENTS, "the triples inserted", "latency", body, arguments=size.arguments)
    measure(session, EXPERIMENT, PLAIN, anew, "kept", partial(_plain, size=size), stored=size.plain)


def _lines(size: Size, rng: random.Random) -> bytes:
    """Make triples of the nodes that views begin with (n) and of others (m), all with others as objects: so a change of
    the first ones concerns the views that begin there alone."""
    nodes = size.views // SHAPES
    return "".join(
        f"<{EX}{rng.choice('nm')}{rng.randrange(10 * nodes)}> <{EX}p{rng.randrange(SHAPES)}> "
        f"<{EX}m{rng.randrange(10 * nodes)}> .\n"
        for _ in range(size.triples)
    ).encode()


def _many(figures: Figures, size: Size) -> None:
    rng = random.Random(1)
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(_lines(size, rng)), format="nt")
        texts = [
            "SELECT "
            + BODIES[number % SHAPES % len(BODIES)].format(
                node=number // SHAPES, shape=number % SHAPES, other=(7 * number + 1) % SHAPES
            )
            for number in range(size.views)
        ]
        began_s = time.perf_counter()
        views: list[Any] = [
            engine.register(f"{PREFIX}REGISTER QUERY v{number} AS {text}", snapshot=False)
            for number, text in enumerate(texts)
        ]
        registered_ms = 1e3 * (time.perf_counter() - began_s) / len(views)
        engine.settle(SETTLE_S)
        times = list[float]()
        for step in range(size.changes):
            chosen = rng.sample(range(size.views // 2), CONCERNED)
            before = [Counter(engine.query(PREFIX + texts[number]).texts()) for number in chosen]
            rows = [(f"<{EX}n{one // SHAPES}>", f"<{EX}p{one % SHAPES}>", f"<{EX}new{step}>") for one in chosen]
            inserts = pa.table(dict(zip(("subject", "predicate", "object"), zip(*rows, strict=True), strict=True)))
            concerned = [views[number] for number in chosen]
            _, all_ms, reports = followed(engine, concerned, partial(engine.apply, inserts, None))
            times.append(all_ms)
            for number, content, changes in zip(chosen, before, reports, strict=True):
                for one in changes:
                    for cells, weight in zip(one.texts(), one.weights.tolist(), strict=True):
                        content[cells] += weight
                anew = Counter(engine.query(PREFIX + texts[number]).texts())
                figures.check(f"view {number} after change {step}", True, +content == anew)
        reported = sum(view.stats()["reports"] for view in views)
        figures.check("no other view has a report", True, reported <= CONCERNED * size.changes)
    figures.add("register", [registered_ms], views=size.views)
    figures.add("latency", times, views=size.views)


def _arguments(figures: Figures, size: Size) -> None:
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(_lines(size, random.Random(1))), format="nt")
        table = pa.table({"x": [f"<{EX}n{number}>" for number in range(size.arguments)]})
        began_s = time.perf_counter()
        view: Any = engine.register(
            f"{PREFIX}REGISTER QUERY v AS SELECT ?y {{ ?x :p1 ?y }}", bindings=table, snapshot=False
        )
        engine.settle(SETTLE_S)
        bound_us = 1e6 * (time.perf_counter() - began_s) / size.arguments
        times = list[float]()
        for step in range(size.changes):
            inserts = pa.table({"subject": [f"<{EX}n{step}>"], "predicate": [f"<{EX}p1>"], "object": [f"<{EX}new>"]})
            _, all_ms, [[report]] = followed(engine, [view], partial(engine.apply, inserts, None))
            times.append(all_ms)
            [(number, value)] = report.texts()
            figures.check(f"argument {step}", (str(step), f"<{EX}new>"), (number.split('"')[1], value))
        stats = view.stats()
    kept = (stats["arguments_bytes"] + stats["kept_bytes"]) / size.arguments
    figures.add("bind", [bound_us], "us", arguments=size.arguments)
    figures.add("size", [kept], "bytes", arguments=size.arguments)
    figures.add("latency", times, arguments=size.arguments)


def _plain(figures: Figures, size: Size) -> None:
    graph = RandomGraph.of(max(size.plain // 6, 2), size.plain)
    samples = list[float]()
    with wukongs.Engine() as engine:
        for first in range(0, len(graph.sources), CHUNK):
            engine.apply(graph.edges(np.arange(first, min(first + CHUNK, len(graph.sources)), dtype=np.int64)))
        for number in range(21):
            text = f"REGISTER QUERY v{number} AS SELECT ?x{number} ?y {{ ?x{number} {TO} ?y }}"
            began_s = time.perf_counter()
            parse_query(text)
            parsed_s = time.perf_counter()
            view: Any = engine.register(text, snapshot=False)
            ended_s = time.perf_counter()
            samples.append(1e3 * max(0.0, (ended_s - parsed_s) - (parsed_s - began_s)))
        figures.check("rows", len(graph.sources), len(view.content()))
        kept = view.stats()["kept_bytes"]
    figures.add("install", samples[1:], stored=size.plain)  # the first one compiles
    figures.add("kept", [kept], "bytes", stored=size.plain)
