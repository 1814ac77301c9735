"""Do thousands of named graphs cost what they hold, or something for each graph?

The same triples are spread over 1 ... 10,000 named graphs with ten predicates each: bytes, building, merging, and
queries whose answers do not grow, with the directory rows that each visits (the last matches in every graph).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from wukongs.bench.harness import Report, median_cpu_seconds
from wukongs.bench.kernels.social import random_ids
from wukongs.csparql.algebra import DEFAULT, DatasetClause, GraphRef, TermOrVariable, TriplePattern
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans import span_kernels
from wukongs.query.plans.cardinalities import DatasetCardinalities
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowering import lower, with_parts
from wukongs.query.plans.plan_runner import run
from wukongs.store.batch import Batch, build_batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.directory_kernels import row_of_graph
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, Int64Array
from wukongs.store.merge import merge_batches

GRAPH_COUNTS = (10, 100, 1000, 10_000)
GRAPH_COUNTS_QUICK = (10, 40)
TRIPLES = 1_000_000
TRIPLES_QUICK = 2_000
PREDICATES = 10
REPEATS = 9
S, P, O_, G = (Variable(name) for name in "spog")
ONE_SUBJECT, ONE_PREDICATE, ONE_GRAPH, RARE = Term("<s>"), Term("<p>"), Term("<g>"), Term("<rare>")
"""RARE: a predicate of three graphs."""
QUERIES: dict[str, tuple[TermOrVariable, TermOrVariable, TermOrVariable, GraphRef]] = {
    "{ ?s ?p ?o }": (S, P, O_, DEFAULT),
    "{ <s> ?p ?o }": (ONE_SUBJECT, P, O_, DEFAULT),
    "GRAPH <g> { <s> ?p ?o }": (ONE_SUBJECT, P, O_, ONE_GRAPH),
    "GRAPH ?g { <s> :p ?o }": (ONE_SUBJECT, ONE_PREDICATE, O_, G),
    "GRAPH ?g { <s> ?p ?o }": (ONE_SUBJECT, P, O_, G),
    "GRAPH ?g { ?s :rare ?o }": (S, RARE, O_, G),
    "GRAPH ?g { ?s :p ?o }": (S, ONE_PREDICATE, O_, G),
}


class Graphs:
    """The same triples in some number of named graphs; the last ten thousandth is in the default graph."""

    def __init__(self, triple_count: int, graph_count: int) -> None:
        rng = np.random.default_rng(3)
        terms, predicates = random_ids(triple_count // 10, rng), random_ids(PREDICATES + 1, rng)
        names = random_ids(10_001, rng)
        self.default, self.names = int(names[0]), names[1 : graph_count + 1]
        subjects, objects = rng.choice(terms, triple_count), rng.choice(terms, triple_count)
        of = rng.choice(predicates[:PREDICATES], triple_count)
        graphs = self.names[np.arange(triple_count) * graph_count // triple_count]
        graphs[-100:] = self.default
        step = triple_count // graph_count
        of[1 : 3 * step : step] = predicates[PREDICATES]
        subject = terms[0]
        subjects[:: triple_count // 10], of[:: triple_count // 10] = subject, predicates[0]
        subjects[-3:], of[-3:] = subject, predicates[0]
        self.columns = graphs, subjects, of, objects
        self.ids = {
            f"<{DEFAULT_GRAPH_IRI}>": self.default,
            ONE_SUBJECT.text: int(subject),
            ONE_PREDICATE.text: int(predicates[0]),
            RARE.text: int(predicates[PREDICATES]),
            ONE_GRAPH.text: int(graphs[0]),
        }

    def batch(self, part: slice = slice(None)) -> Batch:
        return build_batch(*(column[part] for column in self.columns))

    def dataset(self, batch: Batch) -> Dataset:
        return Dataset(DatasetClause(), BatchSet.of((batch,), True), {}, lambda term: self.ids[term.text])

    def expected(self, query: str) -> int:
        """Count the rows of a query with numpy."""
        quads = np.unique(np.stack(self.columns, axis=1), axis=0)
        subject, predicate, _, graph = QUERIES[query]
        held = quads[:, 0] == self.default if graph == DEFAULT else quads[:, 0] != self.default
        for part, column in ((subject, 1), (predicate, 2), (graph, 0)):
            if isinstance(part, Term):
                held &= quads[:, column] == self.ids[part.text]
        return int(held.sum())


def ask(pattern: TriplePattern, dataset: Dataset) -> int:
    """Plan, lower and run one pattern; return its rows."""
    sizes = DatasetCardinalities(dataset)
    predicate = pattern.predicate if isinstance(pattern.predicate, Term) else None
    sizes.edges(pattern.graph, predicate)
    if isinstance(pattern.subject, Term):
        sizes.degree(pattern.graph, predicate, "out", pattern.subject)
    plan = lower([PlanStep(pattern, "out", 1.0)], (), dataset)
    return run(plan, BindingTable.unit(), dataset, Limits()).length


def rows_visited(pattern: TriplePattern, dataset: Dataset) -> int:
    """Count the directory rows that one pattern looks at, by running the collecting kernels in plain Python."""
    plan = lower([PlanStep(pattern, "out", 1.0)], (), dataset)
    (step,), parts = with_parts(plan, dataset)
    spans = np.empty((65_536, layout.SPAN_WIDTH), np.int64)
    part_rows = np.full(len(parts), layout.SEARCH)
    known = [
        int(step[reference]) if step[kind] == layout.CONSTANT else -1
        for kind, reference in ((layout.KEY_KIND, layout.KEY), (layout.PREDICATE_KIND, layout.PREDICATE))
    ]
    arguments = step, parts, part_rows, dataset.descriptors, dataset.default_graph
    with _counted() as visited:
        if known[0] >= 0:
            _plain(span_kernels.collect_values)(*arguments, *known, -1, spans)
        else:
            _plain(span_kernels.collect_keys)(*arguments, known[1], -1, spans)
    return visited[0]


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Count the directory rows whose graph the collecting kernels look at; their callees run uncompiled meanwhile."""
    count = [0]
    report: Any = _plain(span_kernels.reported_graph)
    jump: Any = row_of_graph

    def counted_report(*arguments: Any) -> int:
        count[0] += 1
        return int(report(*arguments))

    def counted_jump(*arguments: Any) -> Any:
        count[0] += 1
        return jump(*arguments)

    with mock.patch.multiple(
        span_kernels,
        reported_graph=counted_report,
        row_of_graph=counted_jump,
        search_values=_plain(span_kernels.search_values),
    ):
        yield count


def _names(batch: Batch) -> Int64Array:
    return BatchSet.of((batch,), True).graphs


def _ask_anew(pattern: TriplePattern, graphs: Graphs, batch: Batch) -> int:
    return ask(pattern, graphs.dataset(batch))


def _plain(kernel: Any) -> Any:
    return getattr(kernel, "py_func", kernel)


def measure(found: Report, quick: bool) -> None:
    """Per number of graphs: bytes, build, merge, names; per query: directory rows visited, and time with planning."""
    triple_count, counts = (TRIPLES_QUICK, GRAPH_COUNTS_QUICK) if quick else (TRIPLES, GRAPH_COUNTS)
    for count in counts:
        graphs = Graphs(triple_count, count)
        batch = graphs.batch()
        older, newer = graphs.batch(slice(0, None, 2)), graphs.batch(slice(1, None, 2))
        found.check(f"{count} graphs, triples after merging", len(batch), len(merge_batches(older, newer)))
        read = BatchSet.of((batch,), True)
        found.check(f"{count} graphs, names", np.unique(graphs.columns[0]).tolist() == read.graphs.tolist(), True)
        build_s = median_cpu_seconds(graphs.batch, 3)
        merge_s = median_cpu_seconds(partial(merge_batches, older, newer), 3)
        names_s = median_cpu_seconds(partial(_names, batch), 5)
        found.add(
            f"{triple_count:,} triples",
            {
                "graphs": count,
                "directory rows": len(batch.graphs),
                "bytes a triple": batch.size_bytes / len(batch),
                "build ms": build_s * 1e3,
                "merge ms": merge_s * 1e3,
                "names of all graphs ms": names_s * 1e3,
            },
        )
        for query, parts in QUERIES.items():
            pattern = TriplePattern(*parts)
            rows = ask(pattern, graphs.dataset(batch))
            found.check(f"{count} graphs, {query}", graphs.expected(query), rows)
            visited = rows_visited(pattern, graphs.dataset(batch))
            seconds = median_cpu_seconds(partial(_ask_anew, pattern, graphs, batch), REPEATS)
            row = {"query": query, "graphs": count, "rows": rows, "directory rows visited": visited}
            found.add("Queries, planned and run (CPU time)", {**row, "us": seconds * 1e6})


def plot(found: Report, path: Path) -> None:
    """Directory rows visited and time of each query, and bytes a triple, over the number of graphs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = found.tables["Queries, planned and run (CPU time)"]
    figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    for axis, column in zip(axes, ("directory rows visited", "us"), strict=False):
        for query in dict.fromkeys(row["query"] for row in rows):
            points = [(row["graphs"], max(1, row[column])) for row in rows if row["query"] == query]
            axis.loglog(*zip(*points, strict=True), "o-", label=query)
        axis.set(xlabel="named graphs", ylabel=column, ylim=(1, None))
    axes[0].legend(fontsize=8)
    (about,) = (table for title, table in found.tables.items() if title.endswith("triples"))
    for column in ("bytes a triple", "build ms", "merge ms"):
        axes[2].loglog([row["graphs"] for row in about], [row[column] for row in about], "o-", label=column)
    axes[2].set(xlabel="named graphs")
    axes[2].legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
