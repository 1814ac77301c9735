"""Reckoning: the work of clusters of up to 100 nodes, from what the experiment `nodes` has counted on one machine.

Nodes that share the cores of one machine tell what work there is. The cost of a tuple grows with the share of data
that lies elsewhere, (N - 1) / N; that of the protocol, and of a firing, which may ask all nodes, with the other nodes,
N - 1. So a figure at N nodes is a + b (N - 1) / N or a + b (N - 1), by least squares over the sizes that were
measured, b not below 0. No figure of time is reckoned: it would be that of another network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from wukongs.bench.report.document import Document, number
from wukongs.bench.report.reading import OURS, Figure, Results

NODES = (1, 2, 4, 8, 16, 32, 64, 100)
RATE = 133_000
"""Tuples a second of all streams together (Wukong+S, section 6.1)."""
TRIPLES, TRIPLE_BYTES = 1_000_000_000, 36
"""Bytes of a stored triple, merged, with all indexes (decision 0011)."""
STREAMS = 5
QUERIES = tuple(f"L{place}" for place in range(1, 7))


def reckon(document: Document, results: Results) -> None:
    """Add the section, if the run has two sizes of clusters or more."""
    cases = [dict(figure.case) for figure in results.figures.values() if figure.experiment == "nodes"]
    sizes = sorted({int(case["nodes"]) for case in cases})
    if len(sizes) < 2:
        return
    tuples = {metric: _fitted(results, "tuples", metric, _elsewhere) for metric in ("CPU", "all moved", "all messages")}
    protocol = {metric: _fitted(results, "protocol", metric, _others) for metric in ("CPU", "messages", "bytes")}
    firings = [fit for query in QUERIES if (fit := _fitted(results, query, "CPU", _others)) is not None]
    moved = [fit for query in QUERIES if (fit := _fitted(results, query, "all moved", _others)) is not None]
    document.heading("nodes: beyond one machine, reckoned")
    document.say(
        f"From {', '.join(map(str, sizes))} nodes on this machine. Tuples: a + b (N - 1) / N; the protocol and "
        "firings: a + b (N - 1); least squares, where nothing falls. There are "
        f"{RATE:,} tuples a second in {STREAMS} streams, and {TRIPLES:,} triples at {TRIPLE_BYTES} bytes, terms apart, "
        "without replicas. CPU is that of this machine's cores. A firing is the mean of L1 to L6 as they were "
        "measured: with N times the data on N nodes those of L4 to L6 have N times the rows. What is not in it: time, "
        "and nodes that are busier than others."
    )
    document.table(
        (
            "nodes",
            "tuple: CPU, us",
            "tuple: bytes",
            "tuple: messages",
            "cores busy with tuples",
            "of a node, %",
            "protocol of a node: messages/s",
            "KB/s",
            "CPU, %",
            "firing: CPU of all, ms",
            "firing: KB",
            "graph of a node, GB",
        ),
        [_row(count, tuples, protocol, firings, moved) for count in NODES],
    )


Fit = Callable[[int], float]


def _row(
    count: int,
    tuples: dict[str, Fit | None],
    protocol: dict[str, Fit | None],
    firings: Sequence[Fit],
    moved: Sequence[Fit],
) -> list[str]:
    def at(fit: Fit | None, factor: float = 1.0) -> str:
        return "" if fit is None else number(factor * fit(count))

    cpu = tuples["CPU"]
    cores = None if cpu is None else RATE * cpu(count) / 1e3
    return [
        str(count),
        at(cpu, 1e3),
        at(tuples["all moved"]),
        at(tuples["all messages"]),
        "" if cores is None else number(cores),
        "" if cores is None else number(100 * cores / count),
        at(protocol["messages"]),
        at(protocol["bytes"], 1e-3),
        at(protocol["CPU"], 0.1),
        "" if not firings else number(float(np.mean([fit(count) for fit in firings]))),
        "" if not moved else number(float(np.mean([fit(count) for fit in moved])) / 1e3),
        number(TRIPLES * TRIPLE_BYTES / count / 1e9),
    ]


def _elsewhere(nodes: int) -> float:
    return (nodes - 1) / nodes


def _others(nodes: int) -> float:
    return nodes - 1.0


def _fitted(results: Results, query: str, metric: str, growth: Callable[[int], float]) -> Fit | None:
    """Return a figure as a function of the number of nodes; None if fewer than two sizes have it."""
    found = {nodes: figure.median for nodes, figure in _figures(results, query, metric)}
    if len(found) < 2:
        return None
    xs, ys = np.array([growth(nodes) for nodes in found]), np.array(list(found.values()))
    spread = xs - xs.mean()
    slope = max(0.0, float(spread @ ys) / float(spread @ spread))
    start = float(ys.mean() - slope * xs.mean())
    return lambda nodes: max(0.0, start + slope * growth(nodes))


def _figures(results: Results, query: str, metric: str) -> Iterator[tuple[int, Figure]]:
    for figure in results.figures.values():
        case = dict(figure.case)
        is_it = (figure.experiment, figure.query, figure.engine, figure.metric) == ("nodes", query, OURS, metric)
        if is_it and case.get("streams", STREAMS) == STREAMS:
            yield int(case["nodes"]), figure
