"""Runs a parsed query over a dataset and makes the parts of its result: columns, a truth or triples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from wukongs.csparql.algebra import Distinct, Query, Slice, TriplePattern
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.describe import describe, distinct
from wukongs.query.execution.executor import Executor, Explored
from wukongs.query.execution.profile import OPERATOR_NAMES, Profile
from wukongs.query.limits import OBJECT_BYTES, Limits, current, named_lack_of_memory
from wukongs.query.operators import operators
from wukongs.query.operators.ordering import canonical, canonical_order
from wukongs.query.paths.kept_paths import KeptPaths
from wukongs.query.plans.compiled import Columns
from wukongs.query.plans.compiled_plans import CompiledPlans
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.rows import numbered
from wukongs.query.terms.decoding import column_texts
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import UNBOUND, Int64Array, UInt8Array
from wukongs.store.terms import blank_node


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a query: columns of its variables; or of a graph's triples, each triple once; or a boolean.
    moves: the rows that came and went since the firing before, if that is known."""

    columns: tuple[Int64Array, ...]
    length: int
    boolean: bool | None = None
    moves: tuple[Answer, Answer] | None = None


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
    explored: Explored | None = None,
    compiled: CompiledPlans | None = None,
    by_moves: bool = False,
    given: BindingTable | None = None,
    paths: KeptPaths | None = None,
) -> Answer:
    """Run a query. scope: names the blank nodes that a CONSTRUCT makes; in_order, profile, explored, compiled, given,
    paths: see Executor;
    by_solution: equal solutions make blank nodes of equal names in each execution with that scope; else each row makes
    its own; by_moves: Answer.moves is asked for, and the terms of what went can still be read.

    Raises QueryTimeout, BudgetExceeded.
    """
    with within(limits):
        known = () if explored is None else (explored,)
        executor = Executor(
            dataset,
            terms,
            limits,
            memo,
            in_order,
            profile,
            known,
            given,
            compiled=compiled,
            by_moves=by_moves,
            paths=paths,
        )
        found = _answer(query, executor, dataset, terms, limits, scope, in_order, by_solution)
        moved = executor.moved(query.pattern) if by_moves and query.form == "select" else None
        if moved is None:
            return found
        came, went = (Answer(table.columns_of(tuple(map(Variable, query.variables))), table.length) for table in moved)
        return replace(found, moves=(came, went))


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
                table = operators.slice_rows(table.take(canonical_order(table)), node.offset, node.limit)
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
        if in_order:
            table = canonical(table)  # a blank node is named by its row
        return _construct(query.template, table, terms, scope, by_solution)
    if query.form == "describe":
        return _described(query, table, dataset, executor, terms)
    if query.variables == tuple(variable.name for variable in table.variables):
        return Answer(table.columns, table.length)
    columns = tuple(table.column(Variable(name)) for name in query.variables)
    return Answer(columns, table.length)


def _construct(
    template: Sequence[TriplePattern], table: BindingTable, terms: QueryTerms, scope: str, by_solution: bool
) -> Answer:
    """Fill a template with every row; triples with an unbound or misplaced term are left out (SPARQL 16.2)."""
    columns: dict[Term | Variable, Int64Array] = {}
    first_bytes: dict[Term | Variable, UInt8Array] = {}
    parts = dict.fromkeys(part for pattern in template for part in _parts(pattern))
    limits, suffixes = current(), list[str]()
    if blanks := sum(isinstance(part, Variable) and part.is_blank for part in parts):
        limits.hold(OBJECT_BYTES * (1 + blanks) * table.length)
        suffixes = _solution_names(table, terms) if by_solution else list(map(str, range(table.length)))
    for part in parts:
        limits.check()
        if isinstance(part, Term):
            columns[part] = np.full(table.length, terms.ids([part.text])[0], np.int64)
        elif part.is_blank:
            labels = [f"{part.name[1:]}r{suffix}" for suffix in suffixes]
            columns[part] = terms.ids([blank_node(f"construct:{scope}".encode(), label) for label in labels])
        else:
            columns[part] = table.column(part)
        first_bytes[part] = _first_bytes(columns[part], terms)
    made = []
    for pattern in template:
        limits.check()
        limits.hold(_TRIPLE_BYTES * table.length)
        subject, predicate, object_ = _parts(pattern)
        fits = np.isin(first_bytes[subject], (_BRACKET, _UNDERSCORE)) & (first_bytes[predicate] == _BRACKET)
        rows = np.flatnonzero(fits & (first_bytes[object_] != 0))
        made.append([rows, *(columns[part][rows] for part in (subject, predicate, object_))])
    limits.check_rows(sum(len(rows) for rows, *_ in made), "Let its pattern have fewer solutions")
    rows, *triples = (np.concatenate(column) for column in zip(*made, strict=True)) if made else [_NO_IDS] * 4
    order = np.argsort(rows, kind="stable")
    return _graph(distinct([column[order] for column in triples]))


def _parts(pattern: TriplePattern) -> tuple[Term | Variable, ...]:
    return pattern.subject, pattern.predicate, pattern.object


_BRACKET, _UNDERSCORE = ord("<"), ord("_")
_NO_IDS = np.empty(0, np.int64)
_TRIPLE_BYTES = 100
"""The bytes that a triple of a template takes for each row, as it is made, put in order and compared."""


def _first_bytes(column: Int64Array, terms: QueryTerms) -> UInt8Array:
    """Return the first byte of each term's canonical form, 0 where there is none."""
    places, firsts = numbered([column], len(column))
    distinct = column[firsts]
    found = np.zeros(len(distinct), np.uint8)
    bound = np.flatnonzero(distinct != UNBOUND)
    found[bound] = terms.first_bytes(distinct[bound])
    return found[places]


def _graph(columns: Sequence[Int64Array]) -> Answer:
    return Answer(tuple(columns), len(columns[0]))


def _solution_names(table: BindingTable, terms: QueryTerms) -> list[str]:
    """Name each row by its bindings; the n-th of equal rows by these and n."""
    order = sorted(range(len(table.variables)), key=lambda place: table.variables[place].name)
    rows = zip(*(column_texts(table.columns[place], terms) for place in order), strict=True)
    seen: Counter[bytes] = Counter()
    names = []
    for row in rows if order else [()] * table.length:
        name = repr(row).encode("utf-8", "surrogatepass")
        seen[name] += 1
        names.append(f"{blake2b(name, digest_size=12).hexdigest()}n{seen[name]}")
    return names


def _described(query: Query, table: BindingTable, dataset: Dataset, executor: Executor, terms: QueryTerms) -> Answer:
    columns = [table.column(part) for part in query.described if isinstance(part, Variable)]
    if table.length:
        columns.append(terms.ids([part.text for part in query.described if isinstance(part, Term)]))
    return _graph(describe(np.concatenate([_NO_IDS, *columns]), dataset, executor, terms))
