"""EXPLAIN of a query over a dataset: its plan, and what the plan did when it was run."""

from __future__ import annotations

from functools import partial

from wukongs.csparql.algebra import Query
from wukongs.csparql.explain import Figures, explain
from wukongs.query.execution.answer import answer
from wukongs.query.execution.profile import Profile
from wukongs.query.limits import Limits
from wukongs.query.plans.cardinalities import DatasetCardinalities
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.query_terms import QueryTerms


def explain_over(query: Query, dataset: Dataset, figures: Figures | None = None) -> str:
    """Return the text of a query's plan over a dataset. figures: what an execution over it did."""
    completion = dataset.completion
    ways = None if completion is None else partial(completion.way, dataset)
    return explain(query, DatasetCardinalities(dataset), figures, ways)


def profiled(query: Query, dataset: Dataset, terms: QueryTerms, limits: Limits, memo: PlanMemo, scope: str) -> Profile:
    """Run a registered query as a firing would, for nothing but what its plan does. Raises BudgetExceeded."""
    profile = Profile()
    answer(query, dataset, terms, limits, memo, scope, in_order=True, profile=profile)
    return profile
