"""Runs a parsed query over a dataset and makes what its result object needs: columns, a truth or triples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from csparql.algebra import Query, TriplePattern
from csparql.terms import Term, Variable
from store.dtypes import Int64Array
from store.terms import blank_node
from wukongs.binding_table import BindingTable
from wukongs.dataset import Dataset
from wukongs.decoding import column_texts
from wukongs.describe import describe
from wukongs.errors import BudgetExceeded
from wukongs.executor import Executor
from wukongs.limits import OBJECT_BYTES, Limits, current
from wukongs.ordering import canonical
from wukongs.plan_memo import PlanMemo
from wukongs.profile import Profile
from wukongs.query_terms import QueryTerms


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query answers; of columns, boolean and triples, the two that its form has not are empty or None."""

    columns: tuple[Int64Array, ...]
    length: int
    boolean: bool | None
    triples: list[tuple[str, str, str]] | None


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
) -> Answer:
    """Run a query. scope: names the blank nodes that a CONSTRUCT makes; in_order, profile: see Executor; by_solution:
    equal solutions make blank nodes of equal names in each execution with that scope (else they go by row).

    Raises QueryTimeout, BudgetExceeded.
    """
    with limits:
        try:
            return _answer(query, dataset, terms, limits, memo, scope, in_order, by_solution, profile)
        except MemoryError as error:
            raise BudgetExceeded(
                f"{limits.operator} found no memory in this process, beside {limits.held} bytes that the query holds: "
                "make it narrower, or end other work; query_bytes_max says what a query may take"
            ) from error


def _answer(
    query: Query,
    dataset: Dataset,
    terms: QueryTerms,
    limits: Limits,
    memo: PlanMemo,
    scope: str,
    in_order: bool,
    by_solution: bool,
    profile: Profile | None,
) -> Answer:
    executor = Executor(dataset, terms, limits, memo, in_order, profile)
    table = executor.run(query.pattern, 1 if query.form == "ask" else None)
    if query.form == "ask":
        return Answer((), 0, table.length > 0, None)
    limits.operator = {"construct": "CONSTRUCT", "describe": "DESCRIBE"}.get(query.form, limits.operator)
    if query.form == "construct":
        if in_order:
            table = canonical(table)  # a blank node is named by its row
        return Answer((), 0, None, _construct(query.template, table, terms, scope, by_solution))
    if query.form == "describe":
        return Answer((), 0, None, _described(query, table, executor, terms))
    columns = tuple(table.column(Variable(name)) for name in query.variables)
    return Answer(columns, table.length, None, None)


def _construct(
    template: Sequence[TriplePattern], table: BindingTable, terms: QueryTerms, scope: str, by_solution: bool
) -> list[tuple[str, str, str]]:
    """Fill a template with every row; triples with an unbound or misplaced term are left out (SPARQL 16.2)."""
    needed = {part for pattern in template for part in pattern.variables() if not part.is_blank}
    texts = {variable: column_texts(table.column(variable), terms) for variable in needed}
    blank_scope = f"construct:{scope}".encode()
    has_blanks = any(part.is_blank for pattern in template for part in pattern.variables())
    names = _solution_names(table, terms) if by_solution and has_blanks else list(map(str, range(table.length)))

    def text(part: Term | Variable, row: int) -> str | None:
        if isinstance(part, Term):
            return part.text
        if part.is_blank:
            return blank_node(blank_scope, f"{part.name[1:]}r{names[row]}")
        return texts[part][row]

    limits = current()
    made: list[tuple[str, str, str]] = []
    for row in limits.polled(range(table.length)):
        before = len(made)
        for pattern in template:
            subject, predicate, object_ = (text(p, row) for p in (pattern.subject, pattern.predicate, pattern.object))
            if subject is None or predicate is None or object_ is None:
                continue
            if subject.startswith(("<", "_")) and predicate.startswith("<"):
                made.append((subject, predicate, object_))
        if len(made) > before:
            limits.check_rows(len(made), "Let its pattern have fewer solutions")
            limits.hold(OBJECT_BYTES * (len(made) - before))
    return list(dict.fromkeys(made))


def _solution_names(table: BindingTable, terms: QueryTerms) -> list[str]:
    """Name each row by what it binds; the n-th of equal rows by that and n."""
    order = sorted(range(len(table.variables)), key=lambda place: table.variables[place].name)
    rows = zip(*(column_texts(table.columns[place], terms) for place in order), strict=True)
    seen: Counter[bytes] = Counter()
    names = []
    for row in rows if order else [()] * table.length:
        name = repr(row).encode("utf-8", "surrogatepass")
        seen[name] += 1
        names.append(f"{blake2b(name, digest_size=12).hexdigest()}n{seen[name]}")
    return names


def _described(query: Query, table: BindingTable, executor: Executor, terms: QueryTerms) -> list[tuple[str, str, str]]:
    columns = [table.column(part) for part in query.described if isinstance(part, Variable)]
    if table.length:
        columns.append(terms.ids([part.text for part in query.described if isinstance(part, Term)]))
    found = describe(np.concatenate([np.empty(0, np.int64), *columns]), executor, terms)
    current().hold(OBJECT_BYTES * len(found[0]))
    subjects, predicates, objects = (column_texts(column, terms) for column in found)
    return [
        (subject, predicate, object_)
        for subject, predicate, object_ in zip(subjects, predicates, objects, strict=True)
        if subject is not None and predicate is not None and object_ is not None
    ]
