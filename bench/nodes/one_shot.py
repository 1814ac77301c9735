"""S1-S6 on a cluster, from the text of the query to its rows at the client."""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from wukongs.bench.harness import repeat
from wukongs.bench.nodes.engines import Bench, since
from wukongs.bench.nodes.windows import Bag


@dataclass(frozen=True, slots=True)
class Run:
    """bag: the rows; seconds: per query; moved: per query."""

    bag: Bag
    seconds: list[float]
    moved: dict[str, float]


@dataclass(frozen=True, slots=True)
class Runs:
    """load_s: of all triples; call_s: calls that ask nothing of the node; queries: by name."""

    load_s: float
    call_s: list[float]
    queries: dict[str, Run]


def run_one_shot(bench: Bench, triples: bytes, texts: Mapping[str, str], repeats: int) -> Runs:
    """Load N-Triples, and ask each query `repeats` times, after one unseen."""
    began_s = time.perf_counter()
    bench.engine.load(io.BytesIO(triples), format="nt")
    load_s = time.perf_counter() - began_s
    runs = {}
    for name, text in texts.items():
        bag = Counter(bench.engine.query(text).texts())
        before = bench.counters()
        seconds = repeat(partial(bench.engine.query, text), repeats, 0)
        moved = since(before, bench.counters())
        runs[name] = Run(bag, seconds, {what: count / repeats for what, count in moved.items()})
    return Runs(load_s, repeat(bench.engine.streams, repeats), runs)
