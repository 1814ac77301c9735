"""One-step and three-step plans: alone through plan_runner.run, alone in a compiled loop, and grouped in one call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wukongs.bench.harness import Report, median_cpu_seconds, summary
from wukongs.bench.kernels.loop_kernels import run_each, run_group
from wukongs.bench.kernels.social import NAMESPACE, STREAM, Social, make_social, name_id
from wukongs.csparql.algebra import Bgp, Project
from wukongs.csparql.parser import parse_query
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.rules import rewrite
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.query.plans.lowering import with_parts
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.plans.plan_runner import CHUNK_ROWS, OUT_ROWS, SPANS, run
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import Int64Array

ONE_STEP = "GRAPH <{stream}> {{ ?user :creator_of ?post }}"
THREE_STEPS = "?user :account_of ?person . ?user :knows ?friend . GRAPH <{stream}> {{ ?friend :creator_of ?post }}"
SEEDS_SINGLE = 10_000
SEEDS_GROUP = 400_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A lowered plan over a dataset whose seeds bind one variable."""

    plan: LoweredPlan
    dataset: Dataset
    seed: Variable

    def arguments(self, ids: Int64Array) -> tuple[Any, ...]:
        """Return fresh arguments of run_plan with these seeds."""
        steps, parts = with_parts(self.plan, self.dataset)
        n, width = len(steps), len(self.plan.variables)
        seeds = np.empty((len(ids), width), np.int64)
        seeds[:, 0] = ids
        return (
            steps,
            parts,
            np.empty(len(parts), np.int64),
            self.dataset.descriptors,
            self.dataset.default_graph,
            seeds,
            np.empty((n - 1, CHUNK_ROWS, width), np.int64),
            np.empty((OUT_ROWS, width), np.int64),
            np.zeros((n + 1, layout.STATE_WIDTH), np.int64),
            np.empty((n, SPANS, layout.SPAN_WIDTH), np.int64),
            np.empty((SPANS, layout.SPAN_WIDTH), np.int64),
            np.zeros(2, np.int64),
        )


def prepare(where: str, seed: str, social: Social, stored: BatchSet) -> Prepared:
    """Parse, plan and lower a query over stored batches and the window, with one variable bound beforehand."""
    text = (
        f"PREFIX : <{NAMESPACE}> REGISTER QUERY q AS SELECT * FROM <urn:x-wukongs:default> "
        f"FROM NAMED STREAM <{STREAM}> [RANGE 1s STEP 100ms] WHERE {{ {where.format(stream=STREAM)} }}"
    )
    return planned(text, seed, stored, social.window)


def planned(text: str, seed: str, stored: BatchSet, *windows: BatchSet) -> Prepared:
    """Parse, plan and lower a query of one basic graph pattern, with one variable bound beforehand. windows: what each
    of its windows holds."""
    query = rewrite(parse_query(text))
    pattern = query.pattern
    while isinstance(pattern, Project):
        pattern = pattern.pattern
    assert isinstance(pattern, Bgp)

    def resolve(term: Term) -> int:
        return name_id(term.text[1:-1])

    dataset = Dataset(query.dataset, stored, dict(zip(query.dataset.windows, windows, strict=True)), resolve)
    variable = Variable(seed)
    lowered = PlanMemo().route(FilteredBgp(pattern), (variable,), 1, dataset).segments[0].lowered
    return Prepared(lowered, dataset, variable)


def expected_rows(social: Social, numbers: Int64Array, is_one_step: bool) -> int:
    """Count the rows of many queries with numpy. numbers: of the users (or their persons) that the queries start at."""
    posts = np.bincount(social.posters, minlength=len(social.users))
    if is_one_step:
        return int(posts[numbers].sum())
    by_friends = np.zeros(len(social.users), np.int64)
    np.add.at(by_friends, social.knows[:, 0], posts[social.knows[:, 1]])
    return int(by_friends[numbers].sum())


def bench_steps(report: Report, edge_count: int, degrees: tuple[int, ...], rng: np.random.Generator) -> None:
    """Add one row per plan, degree and layout of the stored graph."""
    for degree in degrees:
        social = make_social(edge_count, degree, rng)
        shapes = {f"{len(social.stored.batches)} live batches": social.stored, "merged": social.merged}
        for where, seed in ((ONE_STEP, "user"), (THREE_STEPS, "person")):
            is_one_step = where is ONE_STEP
            for shape, stored in shapes.items():
                if is_one_step and stored is not social.stored:
                    continue  # a plan over the window alone does not see the stored graph
                prepared = prepare(where, seed, social, stored)
                row = _measure(
                    report, social, prepared, is_one_step, min(SEEDS_GROUP // degree, 4 * len(social.users)), rng
                )
                title = f"Plans over {edge_count:,} stored triples and 10 stream batches"
                about = {"plan": "one step" if is_one_step else "three steps", "friends": degree, "stored": shape}
                report.add(title, {**about, "blocks": len(social.window.batches), **row})


def _measure(
    report: Report, social: Social, prepared: Prepared, is_one_step: bool, group: int, rng: np.random.Generator
) -> dict[str, float]:
    # Half of the one-step queries start at someone who posted, so that hits and misses both count.
    numbers = rng.integers(0, len(social.users), group)
    if is_one_step:
        numbers[::2] = rng.choice(social.posters, len(numbers[::2]))
    ids = (social.users if is_one_step else social.persons)[numbers]
    what = f"{'one step' if is_one_step else 'three steps'}, {len(prepared.dataset.descriptors)} batches"
    single = min(SEEDS_SINGLE, group)
    report.check(
        f"{what}, rows of {single:,} single queries",
        expected_rows(social, numbers[:single], is_one_step),
        int(run_each(*prepared.arguments(ids[:single]))),
    )
    report.check(
        f"{what}, rows of a group of {group:,}",
        expected_rows(social, numbers, is_one_step),
        int(run_group(*prepared.arguments(ids))),
    )
    each = _cpu_seconds(run_each, prepared, ids[:single]) / single
    grouped = _cpu_seconds(run_group, prepared, ids) / group
    python = _python_samples(prepared, ids[: min(2000, single)])
    return {
        "kernel us": each * 1e6,
        "run() us": summary(python)["median"] * 1e6,
        "run() p99 us": summary(python)["p99"] * 1e6,
        "grouped us": grouped * 1e6,
        "grouped M/s": 1 / grouped / 1e6,
    }


def _cpu_seconds(kernel: Callable[..., Any], prepared: Prepared, ids: Int64Array) -> float:
    arguments = prepared.arguments(ids)
    return median_cpu_seconds(lambda: kernel(*arguments), 5)


def _python_samples(prepared: Prepared, ids: Int64Array) -> list[float]:
    limits = Limits()
    samples = []
    for at in range(len(ids)):
        seeds = BindingTable((prepared.seed,), (ids[at : at + 1],), 1)
        began = time.thread_time()
        run(prepared.plan, seeds, prepared.dataset, limits)
        samples.append(time.thread_time() - began)
    return samples
