"""Hosting: what Python needs to evaluate operations in the place of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from wukongs.query.execution.executor import Executor
from wukongs.query.terms.query_terms import QueryTerms


class Hosting:
    """The evaluation of operations by Python during one run of a program."""

    def __init__(self, terms: QueryTerms, make_executor: Callable[[QueryTerms], Executor]) -> None:
        self.terms, self._make_executor = terms, make_executor

    @cached_property
    def executor(self) -> Executor:
        """The executor over the windows of now."""
        return self._make_executor(self.terms)
