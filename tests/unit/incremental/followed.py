"""A view over the stored graph of an engine, and the same text asked once, for tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

import wukongs
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import rewrite
from wukongs.csparql.terms import XSD, Variable
from wukongs.incremental.arguments import Arguments, with_arguments
from wukongs.incremental.lifted import Lifted, reserved_ids
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.view import View
from wukongs.incremental.zset import ZSet
from wukongs.live.reading import ids_of, terms_of
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.answer import answer, within
from wukongs.query.execution.argument_rows import BoundQuery
from wukongs.query.limits import Limits
from wukongs.query.paths.reach import PathIndexes
from wukongs.query.plans.dataset import Dataset, name_graphs
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.query_terms import ConstantIds
from wukongs.store.term_ids import integer_ids

Row = tuple[str | None, ...]


class Followed:
    """A view of an engine in memory. contents: the sum of its reports so far. given: the variables that arguments give
    terms for; rows: the arguments that are bound, by their numbers; paths: the indexes that it shares."""

    def __init__(
        self,
        engine: wukongs.Engine,
        text: str,
        given: Sequence[str] = (),
        paths: PathIndexes | None = None,
    ) -> None:
        self.text, self.given = text, tuple(given)
        self._core = engine._core
        self._trace = self._core.arrangement.trace
        self._watcher = self._trace.watch()
        self.query = rewrite(parse_query(text, None))
        self._lifted = Lifted(BoundQuery(self.query, tuple(map(Variable, given)))) if given else None
        self._arguments = Arguments(self._lifted.hidden) if self._lifted else None
        self._bound = [ZSet.empty()]
        self.rows: dict[int, tuple[str, ...]] = {}
        self._terms = terms_of(self._core)
        self._handle = self._trace.open(self._core.sn, "view", expires=False)
        ids, indexes = self._ids(), paths or PathIndexes()
        evaluation = Evaluation(self.query.dataset, ids, self._terms, Limits(), lifted=self._lifted, paths=indexes)
        query = self._lifted.query if self._lifted else self.query
        self.view = View(query, evaluation, self._core.sn, self._handle.read())
        with within(evaluation.limits):
            self.sum = self._rows(self.view.begin())

    def _ids(self) -> ConstantIds:
        return ConstantIds(ids_of(self._core), self._core.reserved | reserved_ids(len(self.given)))

    def bind(self, rows: Sequence[tuple[str, ...]]) -> None:
        """Bind arguments, from the next version on."""
        assert self._arguments is not None
        first = self._arguments.next_number
        columns = tuple(self._core.registry.keep_all(list(column)) for column in zip(*rows, strict=True))
        bound = self._arguments.numbered(BindingTable(self._arguments.hidden, columns, len(rows)))
        self._arguments = self._arguments.plus(bound)
        self._bound.append(bound)
        self.rows |= {first + at: row for at, row in enumerate(rows)}

    def unbind(self, numbers: Collection[int]) -> None:
        """Unbind arguments, from the next version on."""
        assert self._arguments is not None
        rows = self._arguments.rows()
        wanted = np.flatnonzero(np.isin(rows.columns[0], integer_ids(np.array([*numbers], np.int64))))
        assert len(wanted) == len(numbers), (numbers, self.rows)
        gone = ZSet.of(rows.take(wanted), -1)
        self._arguments = self._arguments.plus(gone)
        self._bound.append(gone)
        self.rows = {number: row for number, row in self.rows.items() if number not in numbers}

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
        change = Change.of(view.stored, stored, sealed)
        if self._arguments is not None:
            first, *others = self._bound
            bound, self._bound = first.plus(*others).consolidated(), [ZSet.empty()]
            change = with_arguments(change, view.stored, self._arguments.over(stored), bound)
        self._terms = self._terms.renewed(core.registry.snapshot_reader())
        evaluation = view.evaluation
        evaluation.resolve, evaluation.terms, evaluation.limits = self._ids(), self._terms, Limits()
        with within(evaluation.limits):
            report = self._rows(view.advance(sn, change))
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
        """The answer of the whole text at the view's SN, evaluated from scratch; with arguments, that of the text asked
        once for each, with its number."""
        if self.given:
            return Counter(
                (f'"{number}"^^<{XSD}integer>', *row)
                for number, arguments in self.rows.items()
                for row in self._asked(arguments).elements()
            )
        return self._asked()

    def _asked(self, arguments: tuple[str, ...] | None = None) -> Counter[Row]:
        terms, limits = terms_of(self._core), Limits()
        dataset = Dataset(self.query.dataset, self._handle.read(), {}, self._ids())
        name_graphs(self.query.dataset, terms)
        query, row = self.query, None
        if arguments is not None:
            bound = BoundQuery(query, tuple(map(Variable, self.given)))
            with within(limits):
                query, row = bound.query, bound.given(arguments, terms)
        found = answer(query, dataset, terms, limits, PlanMemo(), "view", in_order=True, given=row)
        before, self._terms = self._terms, terms
        with within(limits):
            columns = [self._texts(column) for column in found.columns]
        self._terms = before
        return Counter(map(tuple, zip(*columns, strict=True))) if columns else Counter({(): found.length})

    def close(self) -> None:
        self._handle.close()
        self._trace.watchers.discard(self._watcher)
