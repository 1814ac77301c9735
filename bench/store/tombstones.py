"""The cost of deletions for a reader, before and after they are merged away, and the cost of merging them.

Random triples, of which a share is deleted in one update. Four plan steps are run over the plain graph, over the
graph beside its tombstones, and over the graph once these are merged; the rows are checked against numpy's.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from wukongs.bench.harness import Report, median_cpu_seconds
from wukongs.bench.kernels.batches import random_triples
from wukongs.csparql.algebra import DEFAULT, DatasetClause, TriplePattern
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.query.plans.lowering import lower
from wukongs.query.plans.plan_runner import run
from wukongs.store.arrangement import Arrangement
from wukongs.store.batch import build_batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import Int64Array
from wukongs.store.merge import merge_batches
from wukongs.store.tombstones import Difference, DifferenceMerge

TRIPLES = 2_000_000
TRIPLES_QUICK = 5_000
SHARES = (0.0, 0.001, 0.01, 0.1)
SEEDS = 100_000
REPEATS = 7
ENDS = (Variable("s"), Variable("p"), Variable("o"))


class Reader:
    """Four plans over one read: from bound subjects, of bound pairs, of one predicate's index, of everything."""

    def __init__(self, read: BatchSet, graph: int, predicate: int, subjects: Int64Array, objects: Int64Array) -> None:
        self.dataset = Dataset(DatasetClause(), read, {}, lambda term: graph if "default" in term.text else predicate)
        s, p, o = ENDS
        one = TriplePattern(s, Term("<p>"), o, DEFAULT)
        self.plans: dict[str, tuple[LoweredPlan, BindingTable]] = {}
        self._add("expand", one, BindingTable((s,), (subjects,), len(subjects)))
        self._add("check", one, BindingTable((s, o), (subjects, objects), len(subjects)))
        self._add("index scan", one, BindingTable.unit())
        self._add("scan of everything", TriplePattern(s, p, o, DEFAULT), BindingTable.unit())

    def _add(self, name: str, pattern: TriplePattern, seeds: BindingTable) -> None:
        self.plans[name] = lower([PlanStep(pattern, "out", 1.0)], seeds.variables, self.dataset), seeds

    def rows(self, name: str) -> int:
        plan, seeds = self.plans[name]
        return run(plan, seeds, self.dataset, Limits()).length


def measure(found: Report, quick: bool) -> None:
    """Per share of deleted triples and state of the trace, the time of each plan; and the rates of merges."""
    rng = np.random.default_rng(7)
    count, seeds = (TRIPLES_QUICK, 500) if quick else (TRIPLES, SEEDS)
    graphs, subjects, predicates, objects = _distinct(random_triples(count, rng))
    asked = rng.integers(0, len(subjects), seeds)
    for share in SHARES:
        gone = np.zeros(len(subjects), np.bool_)
        gone[rng.permutation(len(subjects))[: int(share * len(subjects))]] = True
        arrangement = Arrangement("bench")
        arrangement.absorb(1, graphs, subjects, predicates, objects)
        deletes = graphs[gone], subjects[gone], predicates[gone], objects[gone]
        nothing = (np.empty(0, np.int64),) * 4
        arrangement.open(1, "bench")  # keeps the two entries apart
        arrangement.apply(2, deletes, nothing)
        expected = _expected(subjects, predicates, objects, gone, asked)
        for state in ("before merging", "merged"):
            if state == "merged":
                arrangement.trace.revoke(0.0)
                arrangement.trace.merge_all()
                found.check(f"tombstones after merging {share:.1%}", 0, arrangement.trace.tombstone_count)
            read = arrangement.trace.read(2)
            reader = Reader(read, int(graphs[0]), int(predicates[0]), subjects[asked], objects[asked])
            for name, rows in expected.items():
                found.check(f"{name}, {share:.1%} deleted, {state}, rows", rows, reader.rows(name))
                seconds = median_cpu_seconds(partial(reader.rows, name), REPEATS)
                row = {"plan": name, "deleted %": 100 * share, "read": state, "rows": rows, "ms": seconds * 1e3}
                found.add("Reads (CPU time)", row)
        if share:
            _measure_merge(found, graphs, subjects, predicates, objects, gone, share)


def _distinct(columns: tuple[Int64Array, ...]) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Leave repeats out; the rest in random order."""
    batch = build_batch(*columns)
    order = np.random.default_rng(1).permutation(len(batch))
    graphs, subjects, predicates, objects = (column[order] for column in batch.triples())
    return graphs, subjects, predicates, objects


def _expected(
    subjects: Int64Array, predicates: Int64Array, objects: Int64Array, gone: Any, asked: Int64Array
) -> dict[str, int]:
    """Count the rows of each plan with numpy."""
    of_one = (predicates == predicates[0]) & ~gone
    keys, counts = np.unique(subjects[of_one], return_counts=True)
    at = np.minimum(np.searchsorted(keys, subjects[asked]), len(keys) - 1)
    pairs = set(zip(subjects[of_one].tolist(), objects[of_one].tolist(), strict=True))
    return {
        "expand": int(counts[at][keys[at] == subjects[asked]].sum()),
        "check": sum(pair in pairs for pair in zip(subjects[asked].tolist(), objects[asked].tolist(), strict=True)),
        "index scan": len(of_one.nonzero()[0]),
        "scan of everything": int((~gone).sum()),
    }


def _measure_merge(
    found: Report,
    graphs: Int64Array,
    subjects: Int64Array,
    predicates: Int64Array,
    objects: Int64Array,
    gone: Any,
    share: float,
) -> None:
    """A merge with tombstones beside one with as many additions."""
    old = build_batch(graphs, subjects, predicates, objects)
    deleted = build_batch(graphs[gone], subjects[gone], predicates[gone], objects[gone])
    kept = build_batch(graphs[~gone], subjects[~gone], predicates[~gone], objects[~gone])
    empty = build_batch(*(np.empty(0, np.int64),) * 4)

    def subtract() -> int:
        return len(DifferenceMerge(Difference(old, None), Difference(empty, deleted)).finish().additions)

    found.check(f"triples left of {share:.1%} deleted", len(kept), subtract())
    for name, work in (("tombstones", subtract), ("additions", partial(merge_batches, kept, deleted))):
        seconds = median_cpu_seconds(work, 3)
        row = {"merging": name, "share %": 100 * share, "ms": seconds * 1e3, "M rows/s": len(old) / seconds / 1e6}
        found.add("Merges with the oldest batch (CPU time)", row)


def plot(found: Report, path: Path) -> None:
    """Per plan, time over the share deleted, against the plain graph."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = found.tables["Reads (CPU time)"]
    plans = list(dict.fromkeys(row["plan"] for row in rows))
    figure, axes = plt.subplots(1, len(plans), figsize=(4 * len(plans), 3.6), layout="constrained")
    for axis, plan in zip(axes, plans, strict=True):
        for state, marker in (("before merging", "o-"), ("merged", "s--")):
            points = [(row["deleted %"], row["ms"]) for row in rows if row["plan"] == plan and row["read"] == state]
            shares = [f"{share:g}" for share, _ in points]
            axis.plot(shares, [ms for _, ms in points], marker, label=state)
        axis.set(title=plan, xlabel="deleted (% of triples)", ylabel="CPU time (ms)", ylim=(0, None))
        axis.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
