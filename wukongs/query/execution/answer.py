"""Runs a parsed query over a dataset and makes the parts of its result: columns, a truth or triples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from wukongs.csparql.algebra import Distinct, Query, Slice, TriplePattern
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.describe import describe, distinct
from wukongs.query.execution.executor import Executor, Explored
from wukongs.query.execution.profile import OPERATOR_NAMES, Profile
from wukongs.query.execution.templates import fill_template
from wukongs.query.limits import Limits, named_lack_of_memory
from wukongs.query.operators import operators
from wukongs.query.operators.ordering import canonical, canonical_order
from wukongs.query.paths.kept_paths import KeptPaths
from wukongs.query.plans.compiled import Columns
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import Int64Array


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a query: columns of its variables; or of a graph's triples, each triple once; or a boolean."""

    columns: tuple[Int64Array, ...]
    length: int
    boolean: bool | None = None


def answer(
    query: Query,
    dataset: Dataset,
    terms: QueryTerms,
    limits: Limits,
    memo: PlanMemo,
    scope: str,
    in_order: bool = False,
    by_solution: bool = False,
    profile: Profile | None = None,
    explored: Sequence[Explored] = (),
    given: BindingTable | None = None,
    paths: KeptPaths | None = None,
) -> Answer:
    """Run a query. scope: names the blank nodes that a CONSTRUCT makes; in_order, profile, explored, given, paths:
    see Executor;
    by_solution: equal solutions make blank nodes of equal names in each execution with that scope; else each row makes
    its own.

    Raises QueryTimeout, BudgetExceeded.
    """
    with within(limits):
        executor = Executor(
            dataset,
            terms,
            limits,
            memo,
            in_order,
            profile,
            explored,
            given,
            paths=paths,
        )
        return _answer(query, executor, dataset, terms, limits, scope, in_order, by_solution)


def modified(columns: Columns, modifiers: Sequence[Distinct | Slice], limits: Limits) -> Answer:
    """Apply DISTINCT, LIMIT and OFFSET to the rows of a compiled query, as the executor does in a firing: LIMIT cuts in
    canonical order.

    Raises QueryTimeout, BudgetExceeded."""
    table = BindingTable(tuple(Variable(f".column{at}") for at in range(len(columns))), columns, len(columns[0]))
    with within(limits):
        limits.hold(table.size_bytes)
        for node in modifiers:
            limits.operator = OPERATOR_NAMES[type(node)]
            if isinstance(node, Distinct):
                table = operators.distinct(table)
            else:
                wanted = None if node.limit is None else node.offset + node.limit
                table = operators.slice_rows(table.take(canonical_order(table, wanted)), node.offset, node.limit)
    return Answer(table.columns, table.length)


@contextmanager
def within(limits: Limits) -> Iterator[None]:
    """Execute within limits. Raises BudgetExceeded where the process has no memory."""

    def describe() -> str:
        return f"{limits.operator} found no memory in this process, beside {limits.held} bytes that the query holds"

    with limits, named_lack_of_memory(describe):
        yield


def _answer(
    query: Query,
    executor: Executor,
    dataset: Dataset,
    terms: QueryTerms,
    limits: Limits,
    scope: str,
    in_order: bool,
    by_solution: bool,
) -> Answer:
    if query.form == "ask":
        return Answer((), 0, executor.run_all(query.pattern, 1).length > 0)
    table = executor.run_all(query.pattern)
    limits.operator = {"construct": "CONSTRUCT", "describe": "DESCRIBE"}.get(query.form, limits.operator)
    if query.form == "construct":
        return constructed(query.template, table, terms, scope, in_order, by_solution)
    if query.form == "describe":
        return _described(query, table, dataset, executor, terms)
    if query.variables == tuple(variable.name for variable in table.variables):
        return Answer(table.columns, table.length)
    columns = tuple(table.column(Variable(name)) for name in query.variables)
    return Answer(columns, table.length)


def constructed(
    template: Sequence[TriplePattern],
    table: BindingTable,
    terms: QueryTerms,
    scope: str,
    in_order: bool = False,
    by_solution: bool = False,
) -> Answer:
    """Return the triples of a template for some solutions. Parameters are those of `answer`."""
    if in_order:
        table = canonical(table)  # a blank node is named by its row
    rows, triples = fill_template(template, table, terms, scope, by_solution=by_solution)
    order = np.argsort(rows, kind="stable")
    return _graph(distinct([column[order] for column in triples]))


_NO_IDS = np.empty(0, np.int64)


def _graph(columns: Sequence[Int64Array]) -> Answer:
    return Answer(tuple(columns), len(columns[0]))


def _described(query: Query, table: BindingTable, dataset: Dataset, executor: Executor, terms: QueryTerms) -> Answer:
    columns = [table.column(part) for part in query.described if isinstance(part, Variable)]
    if table.length:
        columns.append(terms.ids([part.text for part in query.described if isinstance(part, Term)]))
    return _graph(describe(np.concatenate([_NO_IDS, *columns]), dataset, executor, terms))
