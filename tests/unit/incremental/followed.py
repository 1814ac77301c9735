"""A view over the stored graph of an engine, and the same text asked once, for tests."""

from __future__ import annotations

from collections import Counter

import wukongs
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import rewrite
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.view import View
from wukongs.incremental.zset import ZSet
from wukongs.live.reading import ids_of, terms_of
from wukongs.query.execution.answer import answer, within
from wukongs.query.limits import Limits
from wukongs.query.plans.dataset import Dataset, name_graphs
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.query_terms import ConstantIds

Row = tuple[str | None, ...]


class Followed:
    """A view of an engine in memory. contents: the sum of its reports so far."""

    def __init__(self, engine: wukongs.Engine, text: str) -> None:
        self._core = engine._core
        self._trace = self._core.arrangement.trace
        self._watcher = self._trace.watch()
        self.query = rewrite(parse_query(text, None))
        self._terms = terms_of(self._core)
        self._handle = self._trace.open(self._core.sn, "view", expires=False)
        evaluation = Evaluation(self.query.dataset, self._ids(), self._terms, Limits())
        self.view = View(self.query, evaluation, self._core.sn, self._handle.read())
        with within(evaluation.limits):
            self.sum = self._rows(self.view.begin())

    def _ids(self) -> ConstantIds:
        return ConstantIds(ids_of(self._core), self._core.reserved)

    def _rows(self, found: ZSet) -> Counter[Row]:
        columns = [self._texts(column) for column in found.table.columns]
        rows = zip(*columns, strict=True) if columns else [()] * len(found)
        counted = Counter[Row]()
        for row, weight in zip(rows, found.weights.tolist(), strict=True):
            counted[tuple(row)] += weight
        return counted

    def _texts(self, column: object) -> list[str | None]:
        bound = column != -1
        texts = iter(self._terms.texts(column[bound]))  # type: ignore[index]
        return [next(texts) if one else None for one in bound.tolist()]  # type: ignore[attr-defined]

    def advance(self) -> Counter[Row]:
        """Move to the newest SN; return the report."""
        core, view = self._core, self.view
        with core.lock:
            core.finish_tick()
            sn = core.sn
            handle = self._trace.open(sn, "view", expires=False)
            sealed = self._trace.between(view.sn, sn)
            stored = handle.read()
        assert sealed is not None
        self._terms = self._terms.renewed(core.registry.snapshot_reader())
        evaluation = view.evaluation
        evaluation.resolve, evaluation.terms, evaluation.limits = self._ids(), self._terms, Limits()
        with within(evaluation.limits):
            report = self._rows(view.advance(sn, Change.of(view.stored, stored, sealed)))
        self._handle.close()
        self._handle = handle
        self.sum.update(report)
        return report

    @property
    def content(self) -> Counter[Row]:
        """The sum of all reports. Raises AssertionError if a row has a weight below 0."""
        assert all(weight >= 0 for weight in self.sum.values()), self.sum
        return +self.sum

    def asked(self) -> Counter[Row]:
        """The answer of the whole text at the view's SN, evaluated from scratch."""
        terms, limits = terms_of(self._core), Limits()
        dataset = Dataset(self.query.dataset, self._handle.read(), {}, self._ids())
        name_graphs(self.query.dataset, terms)
        found = answer(self.query, dataset, terms, limits, PlanMemo(), "view", in_order=True)
        before, self._terms = self._terms, terms
        with within(limits):
            columns = [self._texts(column) for column in found.columns]
        self._terms = before
        return Counter(map(tuple, zip(*columns, strict=True))) if columns else Counter({(): found.length})

    def close(self) -> None:
        self._handle.close()
        self._trace.watchers.discard(self._watcher)
