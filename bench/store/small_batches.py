"""Small batches beside a large one: how much longer a search takes that finds most of its keys in the large one.

A search of four hops from a node goes over one large batch; over the same and twelve small ones, with and without their
key filters; and over all of it merged. The shapes take turns.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from wukongs.bench.harness import Report, repeat, summary
from wukongs.bench.kernels.loop_kernels import count_passing, run_each
from wukongs.bench.kernels.social import NAMESPACE, name_id, random_ids
from wukongs.bench.kernels.steps import Prepared, planned
from wukongs.store.batch import build_batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, Int64Array
from wukongs.store.quads import without_held
from wukongs.store.trace import Trace

EDGES, DEGREE, SMALL_COUNT = 3_000_000, 8, 12
SMALL_EDGES = (100, 1_000, 10_000)
TITLE = "Four hops, microseconds a search"
HOPS = "?a :knows ?b . ?b :knows ?c . ?c :knows ?d . ?d :knows ?e"
QUERY = f"PREFIX : <{NAMESPACE}> SELECT * WHERE {{ {HOPS} }}"


def measure(found: Report, quick: bool) -> None:
    """Search in each shape, by the size of the small batches."""
    rng = np.random.default_rng(6)
    edges = 3_000 if quick else EDGES
    nodes = random_ids(edges // DEGREE, rng)
    large = _edges(nodes, edges, rng)
    found.data = {**found.data, "edges": edges, "small batches": SMALL_COUNT, "clock": "CPU time of one thread"}
    for size in SMALL_EDGES[:2] if quick else SMALL_EDGES:
        size = size // 10 if quick else size
        trace = Trace("measured", fuel_per_row=0)
        for sn, columns in enumerate([large, *(_edges(nodes, size, rng) for _ in range(SMALL_COUNT))], 1):
            trace.seal(sn, without_held(build_batch(*columns), trace.read(sn - 1)), fuel=0)
        read = trace.read(trace.upper)
        plain = tuple(build_batch(*batch.triples()) for batch in read.batches)
        whole = build_batch(*(np.concatenate(column) for column in zip(*(one.triples() for one in plain), strict=True)))
        shapes = {
            "large batch alone": BatchSet.of(plain[:1], disjoint=True),
            "with small batches": read,
            "without filters": BatchSet.of(plain, disjoint=True),
            "merged": BatchSet.of((whole,), disjoint=True),
        }
        starts = rng.choice(nodes, 5 if quick else 100)
        calls = {name: partial(_rows, planned(QUERY, "a", stored), starts) for name, stored in shapes.items()}
        for name in ("with small batches", "without filters"):
            found.check(f"{size:,} edges, {name}: rows", calls["merged"](), calls[name]())
        took: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(1 if quick else 15):
            for name, call in calls.items():
                took[name] += repeat(call, 1, 0)
        medians = {name: summary(times)["median"] / len(starts) * 1e6 for name, times in took.items()}
        absent = random_ids(1_000, rng)
        passing = sum(int(count_passing(one.descriptor, 0, absent)) for one in read.batches[1:])
        row = {"edges of a small batch": size, **medians, "rows": calls["merged"]() / len(starts)}
        row |= {"to merged": medians["with small batches"] / medians["merged"]}
        found.add(TITLE, {**row, "absent keys that pass %": passing / SMALL_COUNT / len(absent) * 100})


def _edges(nodes: Int64Array, count: int, rng: np.random.Generator) -> tuple[Int64Array, ...]:
    graphs, predicates = (np.full(count, name_id(name), np.int64) for name in (DEFAULT_GRAPH_IRI, "knows"))
    return graphs, rng.choice(nodes, count), predicates, rng.choice(nodes, count)


def _rows(prepared: Prepared, starts: Int64Array) -> int:
    return int(run_each(*prepared.arguments(starts)))


def plot(found: Report, path: Path) -> None:
    """Draw the time of a search in each shape."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = found.tables[TITLE]
    figure, axes = plt.subplots(figsize=(6.5, 4.2))
    for at, name in enumerate(("large batch alone", "merged", "with small batches", "without filters")):
        axes.bar([n + at * 0.2 for n in range(len(rows))], [row[name] for row in rows], 0.19, label=name)
    axes.set_xticks([n + 0.3 for n in range(len(rows))], [f"{row['edges of a small batch']:,}" for row in rows])
    axes.set(xlabel=f"edges of each of {SMALL_COUNT} small batches", ylabel="us a search")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
