"""The judge of answers: the plain evaluator decides, rdflib and pyoxigraph check it wherever they can be asked.

Readings. Where the strict and the open reading of SPARQL 1.1 (values.py) give different answers, each is allowed, and
so are the answers of both libraries (a system may take the strict reading for dates and the open one for languages).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.oracles import libraries
from tests.oracles.compare import cells, cut_fault, exact_cut, order_fault, same_graph, same_rows
from tests.oracles.libraries import Answer
from tests.oracles.query_ast import Aggregate, Query
from tests.oracles.rdf import Triple
from tests.oracles.sparql_oracle import Dataset, Evaluator, Row


class NoVerdict(Exception):
    """The oracles disagree where no specification decides; the example is given up."""


@dataclass
class Verdict:
    """The answers that are allowed: before ORDER BY, LIMIT and OFFSET for rows."""

    query: Query
    allowed: list[Answer]

    def fault(self, answer: Answer, cut: bool = True) -> str:
        """Why an answer is wrong; '' if it is right. cut: whether the answer is after LIMIT and OFFSET."""
        if self.query.kind != "select":
            return "" if any(_same(self.query, answer, each) for each in self.allowed) else self._text(answer)
        assert isinstance(answer, list)
        wrong_order = order_fault(answer, self.query) if self.query.order_by else ""
        if wrong_order:
            return wrong_order
        if not cut or (self.query.limit is None and not self.query.offset):
            return "" if any(_same(self.query, answer, each) for each in self.allowed) else self._text(answer)
        faults = [self._cut_fault(answer, each) for each in self.allowed if isinstance(each, list)]
        return "" if "" in faults else faults[0]

    def _cut_fault(self, answer: list[Row], full: list[Row]) -> str:
        exact = exact_cut(full, self.query) if self.query.order_by else None
        if exact is not None:
            return "" if _same(self.query, answer, exact) else f"got {answer!r}, expected {exact!r}"
        return cut_fault(cells(answer, self.query), cells(full, self.query), self.query)

    def _text(self, answer: Answer) -> str:
        return f"got {answer!r}, expected {' or '.join(map(repr, self.allowed[:2]))}"


def judge(dataset: Dataset, query: Query, ask_rdflib: bool = True) -> Verdict:
    """The verdict on one query over one exact dataset.

    Raises
    ------
    NoVerdict, TooBig, Undefined : the example decides nothing.
    AssertionError : pyoxigraph contradicts the plain evaluator: one of the oracles is wrong.
    """
    whole = replace(query, limit=None, offset=0)
    strict, open_ = (_evaluate(Evaluator(dataset, reading), whole) for reading in (True, False))
    clear = _same(query, strict, open_)
    allowed: list[Answer] = [strict] if clear else [strict, open_]
    follows = libraries.oxigraph_follows_paths(query)
    knows = libraries.keeps_lexical_forms(dataset) and not libraries.oxigraph_subtracts_dates(dataset, whole)
    oxigraph = libraries.oxigraph_answer(dataset, whole) if follows and knows else None
    if oxigraph is not None and clear and not _same(query, oxigraph, strict):
        extended = [_evaluate(Evaluator(dataset, reading, orders_itself=True), whole) for reading in (True, False)]
        fault = f"pyoxigraph: {oxigraph!r}, plain evaluator: {strict!r}\n{query.text()}"
        assert any(_same(query, oxigraph, each) for each in extended), fault
    if oxigraph is not None and not clear:
        allowed.append(oxigraph)
    if ask_rdflib and follows and _rdflib_is_asked(query, strict):
        theirs = libraries.rdflib_answer(dataset, whole)
        if theirs is not None and not clear:
            allowed.append(theirs)
        if theirs is not None and clear and not _same(query, theirs, _as_rdflib_shows(strict)) and oxigraph is None:
            raise NoVerdict(f"rdflib: {theirs!r}, plain evaluator: {strict!r}\n{query.text()}")
    return Verdict(query, allowed)


def _evaluate(evaluator: Evaluator, query: Query) -> Answer:
    if query.kind == "ask":
        return evaluator.ask(query)
    return evaluator.construct(query) if query.kind == "construct" else evaluator.select(query)


def _rdflib_is_asked(query: Query, answer: Answer) -> bool:
    functions = {c.expression.function for c in query.columns if isinstance(c.expression, Aggregate)}
    return functions <= {"COUNT"} and not (query.group_by and not answer)


def _as_rdflib_shows(answer: Answer) -> Answer:
    return libraries.drops_empty_rows(answer) if isinstance(answer, list) else answer


def _same(query: Query, left: Answer, right: Answer) -> bool:
    if query.kind == "ask":
        return left == right
    if query.kind == "construct":
        assert isinstance(left, set)
        assert isinstance(right, set)
        return same_graph(left, right)
    assert isinstance(left, list)
    assert isinstance(right, list)
    return same_rows(cells(left, query), cells(right, query))


__all__ = ["NoVerdict", "Triple", "Verdict", "judge"]
