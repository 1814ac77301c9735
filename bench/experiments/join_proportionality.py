"""join-proportionality (figure 5f of the paper on shared arrangements): does joining k keys with ten million stored
ones cost O(k)?

One plan step from k seed rows that are all stored, k from one to a million: `kernel` is the plan's own kernel,
`execution` the same through run() with all of its Python, both in CPU time of the thread. The other side of the join
is as large in every case. Each call has other seeds, so that few of them are found in the cache no more than many
are. The paper's figure has no numbers in its text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from wukongs.bench.experiments.session import Session
from wukongs.bench.harness import repeat
from wukongs.bench.kernels.loop_kernels import run_group
from wukongs.bench.kernels.social import NAMESPACE, name_id
from wukongs.bench.kernels.steps import planned
from wukongs.bench.peers import WUKONGS
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans.plan_runner import run as run_plan
from wukongs.store.batch import build_batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI

EXPERIMENT = "join-proportionality"
QUERY = "join"
KEYS = 10_000_000
SEEDS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
CHECKED = "plain arrays"


def run(session: Session) -> None:
    """Join from each number of seeds that is not done."""
    count = 2_000 if session.is_quick else KEYS
    session = session.with_case(stored=count)
    cases = {k: {**session.case, "seeds": k} for k in SEEDS if k <= count}
    open_ = [k for k, case in cases.items() if session.open(EXPERIMENT, QUERY, (WUKONGS,), case, "execution")]
    if not open_ or not session.wants(QUERY):
        return
    rng = np.random.default_rng(6)
    keys = np.unique(rng.integers(1, 1 << 62, count, np.int64)) << 1
    graphs = np.full(len(keys), name_id(DEFAULT_GRAPH_IRI), np.int64)
    predicates = np.full(len(keys), name_id("knows"), np.int64)
    # The value of keys[i] is keys[-1 - i]: so every match can be checked.
    stored = BatchSet.of((build_batch(graphs, keys, predicates, keys[::-1].copy()),), disjoint=True)
    prepared = planned(f"PREFIX : <{NAMESPACE}> SELECT * WHERE {{ ?user :knows ?friend }}", "user", stored)
    for k in open_:
        session.begin(f"{EXPERIMENT}: {k:,} keys with {len(keys):,}")
        key = (EXPERIMENT, QUERY, WUKONGS, cases[k])
        numbers = rng.integers(0, len(keys), k)
        table = BindingTable((prepared.seed,), (keys[numbers],), k)
        result = run_plan(prepared.plan, table, prepared.dataset, Limits())
        of_kernel = int(run_group(*prepared.arguments(keys[numbers])))
        if result.length != k or of_kernel != k or not np.array_equal(result.columns[1], keys[len(keys) - 1 - numbers]):
            told = f"{k} rows expected ({CHECKED}), {result.length} found, {of_kernel} by the kernel, or others"
            session.record.skipped(*key, f"answers otherwise: {told}")
            continue
        others = [keys[rng.integers(0, len(keys), k)] for _ in range(200 if k <= 1000 else 7)]
        tables = [BindingTable((prepared.seed,), (ids,), k) for ids in others]
        calls: dict[str, Sequence[Callable[[], object]]] = {
            "kernel": [partial(run_group, *prepared.arguments(ids)) for ids in others],
            "execution": [partial(run_plan, prepared.plan, one, prepared.dataset, Limits()) for one in tables],
        }
        took = {metric: _cpu_us_of(of_metric) for metric, of_metric in calls.items()}
        busy = session.busy()
        for metric, values in took.items():
            session.record.measured(*key, metric, values, unit="us", rows=k, checked=CHECKED, busy=busy)


def _cpu_us_of(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Return the CPU time of calls that are each made once."""
    rest = iter(calls)
    return [1e6 * seconds for seconds in repeat(lambda: next(rest)(), len(calls), 0, time.thread_time)]
