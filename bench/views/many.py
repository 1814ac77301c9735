"""Many live views: thousands of them over one graph, of which a change concerns a few; and a view of many arguments.

A time is from the call of `apply` to the columns of all reports. Each report is compared with what the text says anew
before a time is written, and no view that a change does not concern has a report."""

from __future__ import annotations

import io
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

import wukongs
from wukongs.bench.harness import Report, Row, WrongAnswer, summary
from wukongs.bench.views.run import EX, PREFIX, SETTLE_S
from wukongs.errors import WukongsError

MANY, ARGUMENTS = "Views of 100 shapes, a change that concerns 10 of them", "A view of many arguments"
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
    """triples: stored; views, arguments: registered and bound; changes: how many."""

    triples: int
    views: int
    arguments: int
    changes: int


FULL, QUICK = Size(1_000_000, 10_000, 1_000_000, 100), Size(2_000, 200, 500, 3)


def main(report: Path | None = None, quick: bool = False) -> int:
    """Run the benchmark. quick: a tiny graph. Returns the exit status: 1 for a wrong answer, or no answer."""
    size = QUICK if quick else FULL
    found = Report("views-many", {"triples": size.triples, "views": size.views, "arguments": size.arguments})
    try:
        with wukongs.Engine() as engine:
            rng = random.Random(1)
            engine.load(io.BytesIO(_lines(size, rng)), format="nt")
            _many(found, engine, size, rng)
        with wukongs.Engine() as engine:
            engine.load(io.BytesIO(_lines(size, random.Random(1))), format="nt")
            _arguments(found, engine, size)
    except (WrongAnswer, OSError, WukongsError) as error:
        print(f"wukongs: bench views-many: {error}", file=sys.stderr)
        return 1
    found.publish(report)
    return 0


def _lines(size: Size, rng: random.Random) -> bytes:
    """Make triples of the nodes that views begin with (n) and of others (m), all with others as objects: so a change of
    the first ones concerns the views that begin there alone."""
    nodes = size.views // SHAPES
    return "".join(
        f"<{EX}{rng.choice('nm')}{rng.randrange(10 * nodes)}> <{EX}p{rng.randrange(SHAPES)}> "
        f"<{EX}m{rng.randrange(10 * nodes)}> .\n"
        for _ in range(size.triples)
    ).encode()


def _many(found: Report, engine: wukongs.Engine, size: Size, rng: random.Random) -> None:
    texts = [
        "SELECT "
        + BODIES[number % SHAPES % len(BODIES)].format(
            node=number // SHAPES, shape=number % SHAPES, other=(7 * number + 1) % SHAPES
        )
        for number in range(size.views)
    ]
    print(f"bench views-many: {len(texts):,} views", file=sys.stderr, flush=True)
    began_s = time.perf_counter()
    views: list[Any] = [
        engine.register(f"{PREFIX}REGISTER QUERY v{number} AS {text}", snapshot=False)
        for number, text in enumerate(texts)
    ]
    registered_us = 1e6 * (time.perf_counter() - began_s) / len(views)
    engine.settle(SETTLE_S)
    times = list[float]()
    for step in range(size.changes):
        chosen = rng.sample(range(size.views // 2), CONCERNED)
        before = [Counter(engine.query(PREFIX + texts[number]).texts()) for number in chosen]
        rows = [(f"<{EX}n{one // SHAPES}>", f"<{EX}p{one % SHAPES}>", f"<{EX}new{step}>") for one in chosen]
        inserts = pa.table(dict(zip(("subject", "predicate", "object"), zip(*rows, strict=True), strict=True)))
        began_s = time.perf_counter()
        engine.apply(inserts, None)
        engine.settle(SETTLE_S)
        reports = [list(views[number].results(timeout_s=0)) for number in chosen]
        for one in chain.from_iterable(reports):
            one.ids(0, len(one))
        times.append(1e3 * (time.perf_counter() - began_s))
        for number, content, changes in zip(chosen, before, reports, strict=True):
            for one in changes:
                for cells, weight in zip(one.texts(), one.weights.tolist(), strict=True):
                    content[cells] += weight
            anew = Counter(engine.query(PREFIX + texts[number]).texts())
            found.check(f"view {number} after change {step}", True, +content == anew)
    reported = sum(view.stats()["reports"] for view in views)
    found.check("no other view has a report", True, reported <= CONCERNED * size.changes)
    row: Row = {"views": size.views, "registered in, us": registered_us}
    found.add(MANY, row | {f"{name}, ms": summary(times)[name] for name in ("median", "p99")})


def _arguments(found: Report, engine: wukongs.Engine, size: Size) -> None:
    print(f"bench views-many: {size.arguments:,} arguments", file=sys.stderr, flush=True)
    table = pa.table({"x": [f"<{EX}n{number}>" for number in range(size.arguments)]})
    began_s = time.perf_counter()
    view: Any = engine.register(
        f"{PREFIX}REGISTER QUERY v AS SELECT ?y {{ ?x :p1 ?y }}", bindings=table, snapshot=False
    )
    engine.settle(SETTLE_S)
    bound_us = 1e6 * (time.perf_counter() - began_s) / size.arguments
    times = list[float]()
    for step in range(size.changes):
        began_s = time.perf_counter()
        engine.apply(
            pa.table({"subject": [f"<{EX}n{step}>"], "predicate": [f"<{EX}p1>"], "object": [f"<{EX}new>"]}), None
        )
        engine.settle(SETTLE_S)
        [report] = list(view.results(timeout_s=0))
        times.append(1e3 * (time.perf_counter() - began_s))
        [(number, value)] = report.texts()
        found.check(f"argument {step}", (str(step), f"<{EX}new>"), (number.split('"')[1], value))
    stats = view.stats()
    kept = (stats["arguments_bytes"] + stats["kept_bytes"]) / size.arguments
    row: Row = {"arguments": size.arguments, "bytes an argument": kept, "bound in, us each": bound_us}
    found.add(ARGUMENTS, row | {f"{name}, ms": summary(times)[name] for name in ("median", "p99")})
