"""EXPLAIN of a query over a dataset: its plan, and what the plan did when it was run."""

from __future__ import annotations

from csparql.algebra import Query
from csparql.explain import Figures, explain
from wukongs.dataset import Dataset, DatasetCardinalities


def explain_over(query: Query, dataset: Dataset, figures: Figures | None = None) -> str:
    """Return the text of a query's plan over a dataset. figures: what an execution over it did."""
    return explain(query, DatasetCardinalities(dataset), figures)
