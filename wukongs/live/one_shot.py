"""Answers one query over one stored snapshot."""

from __future__ import annotations

from wukongs.csparql.algebra import Query
from wukongs.errors import CompactedError
from wukongs.live.core import Core
from wukongs.live.reading import dataset_of, terms_of
from wukongs.query.execution.answer import answer
from wukongs.query.execution.profile import Profile
from wukongs.query.limits import Limits
from wukongs.query.output.results import Result
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo


def ask(
    core: Core,
    query: Query,
    memo: PlanMemo,
    limits: Limits,
    owner: str,
    at: int | None = None,
    profile: Profile | None = None,
) -> tuple[Result, Dataset]:
    """Answer a query over the newest stable snapshot, or that of SN `at`; return also what it read.

    owner: who holds the snapshot meanwhile, for stats(); profile: takes down what the plan did.
    Raises QueryTimeout, BudgetExceeded, CompactedError (at).
    """
    with core.lock:
        core.check_is_open()
        if at is not None and not (isinstance(at, int) and 0 <= at <= core.sn):
            raise CompactedError(f"at = {at!r}: expected a snapshot number from 0 to {core.sn}, the newest stable one")
        handle = core.arrangement.open(core.sn if at is None else at, owner)
        stored = handle.read()
        terms = terms_of(core)
        core.query_count += 1
        scope = f"query {core.query_count}"
    try:
        dataset = dataset_of(core, query.dataset, stored, handle.sn)
        with limits:
            terms.ids([f"<{name}>" for name in query.dataset.named_graphs])  # GRAPH ?g names them, whatever they hold
        found = answer(query, dataset, terms, limits, memo, scope, profile=profile)
    finally:
        with core.lock:
            handle.close()
    result = Result(query.form, query.variables, found.columns, terms, handle.sn, found.boolean, found.length)
    return result, dataset
