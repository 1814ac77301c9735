"""injection and memory (tables 6 and 7 of the Wukong+S paper): stream batches of 100 ms at its rates, and their bytes.

`total` is from encoded columns to visible in the stored graph, in CPU time of the one thread that does it; `later` is
the merging that is left for the time after the firings. Memory is that of a minute: `data` of what is stored for ever
(of GPS: of slices), `index` of the blocks that windows are read through. Strings are in neither.
"""

from __future__ import annotations

from typing import Any

from wukongs.bench.experiments.session import Session
from wukongs.bench.harness import Report, WrongAnswer
from wukongs.bench.lsbench.data import LsbenchData
from wukongs.bench.peers import WUKONGS
from wukongs.bench.record import say
from wukongs.bench.store.injection import FREE, HELD, RATES, STORED, bench_injection, grow

ALL = "all streams"
QUERIES = (*RATES, ALL)
EXPERIMENTS = ("injection", "memory")


def run(session: Session, data: LsbenchData) -> None:
    """Measure both, if one of them is not done: the one needs the other."""
    queries = tuple(name for name in QUERIES if session.wants(name))
    stored = 3000 if session.is_quick else STORED
    here = session.with_case(stored=stored)
    is_open = any(
        here.open(experiment, query, (WUKONGS,), here.case) for experiment in EXPERIMENTS for query in queries
    )
    if not queries or not is_open:
        return
    here.begin(f"injection, memory: storing {stored:,} triples, then stream batches at the paper's rates")
    counts = Report("injection", {})
    try:
        core = grow(counts, data, stored)
        say(f"  {len(core.arrangement):,} triples are stored")
        sizes = (14, 10, 200) if here.is_quick else (160, 20, 1)
        found = bench_injection(counts, data, core, *sizes)
    except WrongAnswer as error:
        for experiment in EXPERIMENTS:
            for query in queries:
                here.record.skipped(experiment, query, WUKONGS, here.case, f"answers otherwise: {error}")
        return
    about: dict[str, Any] = {"checked": "counts of distinct triples", "busy": here.busy()}
    samples = {**found.apart, ALL: [*found.together[HELD], *found.together[FREE]]}
    sums = {**found.memory_mb, ALL: found.all_memory_mb()}
    tuples = {**found.sizes, ALL: sum(found.sizes.values())}
    for query in queries:
        for metric in ("total", "later"):
            values = [one[metric] for one in samples[query]]
            here.record.measured("injection", query, WUKONGS, here.case, metric, values, rows=tuples[query], **about)
        for metric, size in sums[query].items():
            here.record.measured("memory", query, WUKONGS, here.case, metric, [size], unit="MB/min", **about)
