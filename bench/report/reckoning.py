"""Reckoning: the work of clusters of up to 100 nodes, from what the experiment `nodes` has counted on one machine.

Nodes that share the cores of one machine tell what work there is:

* *The protocol of a node*: as measured, with lines between. With more nodes than were measured a node says no more, as
  it tells three others at a pulse (docs/decisions/0021): at most TOLD_MAX messages a stream batch. A message tells of
  all nodes, so bytes and CPU grow with these: CPU by what a message and a report cost.
* *A tuple*: what was measured without the protocol of its stream batches. CPU and bytes grow with the share of data
  that lies elsewhere, (N - 1) / N; messages, one of its writer to each other node, with N - 1.
* *A firing*, which may ask all nodes, without the protocol of its stream batch: with N - 1.

Growth is by least squares over the sizes that were measured, and never below 0. No figure of time is reckoned: it would
be that of another network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from wukongs.bench.report.document import Document, number
from wukongs.bench.report.reading import OURS, Figure, Results

NODES = (1, 2, 4, 8, 16, 32, 64, 100)
RATE = 133_000
"""Tuples a second of all streams together (Wukong+S, section 6.1)."""
BATCHES = 10
"""Stream batches a second."""
TRIPLES, TRIPLE_BYTES = 1_000_000_000, 36
"""Bytes of a stored triple, merged, with all indexes (decision 0011)."""
STREAMS = 5
TOLD_MAX = 20
"""Messages of a node for a stream batch: three at each of five pulses and at a report between, and the leader's."""
REPORTS_MAX = 256
"""Reports of a message."""
REPORT_MS = 0.025
"""CPU of writing, reading and taking in one report (`python -m tests.sim.traffic 32:5 64:5 100:5`)."""
QUERIES = tuple(f"L{place}" for place in range(1, 7))


def reckon(document: Document, results: Results) -> None:
    """Add the section, if the run has two sizes of clusters or more."""
    cases = [dict(figure.case) for figure in results.figures.values() if figure.experiment == "nodes"]
    sizes = sorted({int(case["nodes"]) for case in cases})
    if len(sizes) < 2:
        return
    said = {metric: _measured(results, "protocol", metric) for metric in ("CPU", "messages", "bytes")}
    protocol = _protocol(said)
    a_batch = float((results.about.get("data") or {}).get("tuples_per_s", 0)) / BATCHES
    tuples = {
        metric: _fitted(_without(_measured(results, "tuples", metric), said[part], a_batch), growth)
        for metric, part, growth in (
            ("CPU", "CPU", _elsewhere),
            ("all moved", "bytes", _elsewhere),
            ("all messages", "messages", _others),
        )
    }
    firings, moved = (
        [
            fit
            for query in QUERIES
            if (fit := _fitted(_without(_measured(results, query, metric), said[part], 1), _others)) is not None
        ]
        for metric, part in (("CPU", "CPU"), ("all moved", "bytes"))
    )
    document.heading("nodes: beyond one machine, reckoned")
    document.say(
        f"From {', '.join(map(str, sizes))} nodes on this machine. The protocol: as measured; with more nodes at most "
        f"{TOLD_MAX * BATCHES} messages a second with a report of each node, and {1e3 * REPORT_MS:g} us of CPU for a "
        "report. Without the protocol of their stream batches, and never below what it is on the fewest nodes: tuples, "
        "CPU and bytes a + b (N - 1) / N; their messages, and firings, a + b (N - 1); by least squares, where nothing "
        f"falls. There are {RATE:,} tuples a second in {STREAMS} streams, and {TRIPLES:,} triples at {TRIPLE_BYTES} "
        "bytes, terms apart, without replicas, each at the node of its subject and at that of its object. CPU is that "
        "of this machine's cores. A firing is the mean of L1 to L6 as they were measured: with N times the data on N "
        "nodes those of L4 to L6 have N times the rows. What is not in it: time, and nodes that are busier than others."
    )
    document.table(
        (
            "nodes",
            "tuple: CPU, us",
            "tuple: bytes",
            "cores busy with tuples",
            "of a node, %",
            "tuples: messages/s of all",
            "protocol of a node: messages/s",
            "KB/s",
            "CPU, %",
            "firing: CPU of all, ms",
            "firing: KB",
            "graph of a node, GB",
        ),
        [_row(count, a_batch, tuples, protocol, firings, moved) for count in NODES],
    )


Fit = Callable[[int], float]


def _row(
    count: int,
    a_batch: float,
    tuples: Mapping[str, Fit | None],
    protocol: Mapping[str, Fit | None],
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
        "" if cores is None else number(cores),
        "" if cores is None else number(100 * cores / count),
        at(tuples["all messages"], a_batch * BATCHES) if a_batch else "",
        at(protocol["messages"]),
        at(protocol["bytes"], 1e-3),
        at(protocol["CPU"], 0.1),
        "" if not firings else number(float(np.mean([fit(count) for fit in firings]))),
        "" if not moved else number(float(np.mean([fit(count) for fit in moved])) / 1e3),
        number(TRIPLES * TRIPLE_BYTES * (2 - 1 / count) / count / 1e9),
    ]


def _elsewhere(nodes: int) -> float:
    return (nodes - 1) / nodes


def _others(nodes: int) -> float:
    return nodes - 1.0


def _protocol(said: Mapping[str, Mapping[int, float]]) -> dict[str, Fit | None]:
    """Return what a node says in a second, and its milliseconds of CPU, as functions of the number of nodes."""
    messages, sizes, cpu = (_between(said[metric]) for metric in ("messages", "bytes", "CPU"))
    if messages is None:
        return {"messages": None, "bytes": None, "CPU": None}
    last = max(said["messages"])

    def told(nodes: int) -> float:
        return messages(nodes) if nodes <= last else max(messages(last), TOLD_MAX * BATCHES)

    def reports(nodes: int) -> float:
        return told(nodes) * min(nodes - 1, REPORTS_MAX)

    def bytes_at(nodes: int) -> float:
        assert sizes is not None
        return sizes(nodes) if nodes <= last else sizes(last) / max(1.0, reports(last)) * reports(nodes)

    def cpu_at(nodes: int) -> float:
        assert cpu is not None
        if nodes <= last:
            return cpu(nodes)
        before = max((one for one in said["messages"] if one < last), default=last)
        more = told(last) - told(before)
        a_message = max(0.0, cpu(last) - cpu(before)) / more if more > 0 else 0.0
        return cpu(last) + a_message * (told(nodes) - told(last)) + REPORT_MS * (reports(nodes) - reports(last))

    return {
        "messages": told,
        "bytes": None if sizes is None else bytes_at,
        "CPU": None if cpu is None else cpu_at,
    }


def _between(known: Mapping[int, float]) -> Fit | None:
    """Return the lines through what was measured."""
    if len(known) < 2:
        return None
    sizes = sorted(known)
    values = [known[size] for size in sizes]
    return lambda nodes: float(np.interp(nodes, sizes, values))


def _without(whole: Mapping[int, float], protocol: Mapping[int, float], a_batch: float) -> dict[int, float]:
    """Return what something takes without the protocol of its stream batch, which all nodes speak; of more nodes not
    less than of the fewest. protocol: of a node in a second; a_batch: how many such there are in a stream batch."""
    if not (a_batch and whole):
        return dict(whole)
    own = {nodes: each - nodes * protocol.get(nodes, 0.0) / BATCHES / a_batch for nodes, each in whole.items()}
    least = max(0.0, own[min(own)])
    return {nodes: max(least, each) for nodes, each in own.items()}


def _fitted(known: Mapping[int, float], growth: Callable[[int], float]) -> Fit | None:
    """Return a figure as a function of the number of nodes; None if fewer than two sizes have it."""
    if len(known) < 2:
        return None
    xs, ys = np.array([growth(nodes) for nodes in known]), np.array(list(known.values()))
    spread = xs - xs.mean()
    slope = max(0.0, float(spread @ ys) / float(spread @ spread))
    start = float(ys.mean() - slope * xs.mean())
    return lambda nodes: max(0.0, start + slope * growth(nodes))


def _measured(results: Results, query: str, metric: str) -> dict[int, float]:
    """Return the medians of a figure by the number of nodes."""
    return {nodes: figure.median for nodes, figure in _figures(results, query, metric)}


def _figures(results: Results, query: str, metric: str) -> Iterator[tuple[int, Figure]]:
    for figure in results.figures.values():
        case = dict(figure.case)
        is_it = (figure.experiment, figure.query, figure.engine, figure.metric) == ("nodes", query, OURS, metric)
        if is_it and case.get("streams", STREAMS) == STREAMS:
            yield int(case["nodes"]), figure
