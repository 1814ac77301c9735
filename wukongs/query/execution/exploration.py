"""Exploration: the solutions of a pattern that join with given rows, found from these rows.

Join(T, P) is the same as P explored from each row of T. The cost grows with the triples that the rows lead to, not with
the graph. Triple patterns run in the kernel, and paths are searched. Filters, unions and BINDs come after the parts
below them:
Join(T, Union(A, B)) = Union(Join(T, A), Join(T, B)), and Join(T, Filter(c, A)) = Filter(c, Join(T, A)) where A binds
all that c mentions (csparql.exploration_order.is_explorable, which also says when BIND may wait).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from wukongs.csparql.algebra import Expression, Extend, Filter, Join, Node, PathPattern, Project, TripleParts, Union
from wukongs.csparql.explain import Moved
from wukongs.csparql.functions import PER_ROW, calls_any
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import exists_patterns, possible_variables
from wukongs.csparql.terms import Variable
from wukongs.csparql.walk import join_operands
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.execution.profile import Profile, StepFigures
from wukongs.query.expressions.expressions import evaluate
from wukongs.query.limits import Limits
from wukongs.query.operators import operators
from wukongs.query.operators.triple_parts import tied
from wukongs.query.paths.kept_paths import KeptPaths
from wukongs.query.paths.path_machine import PathPlan
from wukongs.query.paths.paths import PathExplorer
from wukongs.query.plans import plan_runner
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo, Route, Segment

Keep = Callable[[Expression, BindingTable], BindingTable]
"""(condition, table) -> the rows in which it holds"""


def is_row_wise(condition: Expression) -> bool:
    """Tell whether a condition may be asked of some rows at a time: not if it draws random values, whose sequence shows
    all rows, and not if it evaluates patterns, for all bindings at once."""
    return not calls_any(condition, PER_ROW) and not exists_patterns(condition)


@dataclass(slots=True)
class Exploration:
    """The exploration of one execution. keep: applies a condition to a table; profile: notes the figures of each step,
    if there is one; paths: those that are kept from firing to firing."""

    dataset: Dataset
    terms: TermSpace
    limits: Limits
    memo: PlanMemo
    keep: Keep
    profile: Profile | None = None
    paths: KeptPaths | None = None
    substituted: Collection[Variable] = ()
    """The variables in whose place EXISTS puts terms, while its pattern is evaluated."""

    def explore(self, node: Node, table: BindingTable, rows_wanted: int | None = None) -> BindingTable:
        """Join a table with an explorable node. rows_wanted: more rows than these are not needed.

        Raises QueryTimeout, BudgetExceeded."""
        self.limits.check()
        filtered = FilteredBgp.of(node)
        if filtered is not None:
            return self.match(filtered, table, rows_wanted)
        started_s = 0.0 if self.profile is None else time.perf_counter()
        found = self._explored(node, table, rows_wanted)
        if self.profile is not None:
            self.profile.ran(node, found.length, time.perf_counter() - started_s, table.length)
        return found

    def _explored(self, node: Node, table: BindingTable, rows_wanted: int | None) -> BindingTable:
        match node:
            case PathPattern():
                plan = self.memo.kept(node, lambda: PathPlan(node))
                path = PathExplorer(plan, self.dataset, self.terms, self.limits, self.substituted, self.paths)
                return self._from_classes(node, table, lambda seeds: path.explore(seeds, rows_wanted))
            case TripleParts():
                return self._from_classes(node, table, lambda seeds: tied(node, seeds, self.terms, self.limits))
            case Filter(condition=condition, pattern=pattern):
                return self.keep(condition, self.explore(pattern, table))
            case Extend(pattern=pattern, variable=variable, expression=expression):
                found = self.explore(pattern, table)
                return operators.with_column(found, variable, evaluate(expression, found, self.terms))
            case Project(pattern=pattern, variables=variables):
                found = self.explore(pattern, table, rows_wanted)
                bound = (variable for variable in variables if variable in found.variables)  # BIND may make the others
                return operators.project(found, tuple(dict.fromkeys((*table.variables, *bound))))
            case Union(left=left, right=right):
                sides = self.explore(left, table, rows_wanted), self.explore(right, table, rows_wanted)
                return operators.union(*sides, self.limits.rows_max)
            case Join():
                return self.explore_all(tuple(join_operands(node)), table)
        raise AssertionError(f"{type(node).__name__} cannot be explored")

    def explore_all(
        self, operands: tuple[Node, ...], table: BindingTable, conditions: tuple[Expression, ...] = ()
    ) -> BindingTable:
        """Join a table with explorable nodes, in the order that is cheapest; keep the rows that fulfil conditions."""
        found: BindingTable | None = None
        tied_to = {v for node in operands if isinstance(node, TripleParts) for v in node.variables()}
        # From which side a triple term is tied to its parts depends on which of them the rows bind.
        for seeds in operators.by_bound(table, [variable for variable in table.variables if variable in tied_to]):
            rows = self._explored_all(operands, seeds, conditions)
            found = rows if found is None else operators.union(found, rows, self.limits.rows_max)
        assert found is not None
        return found

    def _explored_all(
        self, operands: tuple[Node, ...], table: BindingTable, conditions: tuple[Expression, ...]
    ) -> BindingTable:
        mark = self.limits.mark()
        parts = self.ordered(operands, table)
        last = FilteredBgp.of(parts[-1]) if conditions and parts else None
        for part in parts if last is None else parts[:-1]:
            table = self.explore(part, table)
            self.limits.back_to(mark, table.size_bytes)
        if last is None:
            return self._kept(conditions, table)
        return self.match(FilteredBgp(last.bgp, (*last.filters, *conditions)), table)

    def ordered(self, operands: tuple[Node, ...], table: BindingTable) -> tuple[Node, ...]:
        """Return explorable nodes in the order that is cheapest from the rows of a table."""
        return self.memo.order(operands, frozenset(table.variables), table.length, self.dataset)

    def match(self, wanted: FilteredBgp, table: BindingTable, rows_wanted: int | None = None) -> BindingTable:
        """Join a table with triple patterns where filters hold. Filters may mention variables that only the table
        binds."""
        return self._from_classes(wanted.bgp, table, lambda seeds: self._match(wanted, seeds, rows_wanted))

    def _match(self, wanted: FilteredBgp, seeds: BindingTable, rows_wanted: int | None) -> BindingTable:
        if seeds.length == 0:
            missing = possible_variables(wanted.bgp) - set(seeds.variables)
            return BindingTable.empty((*seeds.variables, *missing))
        if not wanted.bgp.patterns:
            return self._kept(wanted.filters, seeds)
        route = self.memo.route(wanted, seeds.variables, seeds.length, self.dataset)
        if self.profile is None:
            return self._run(route, seeds, rows_wanted)
        started_s = time.perf_counter()
        figures = StepFigures()
        table = self._run(route, seeds, rows_wanted, figures)
        self.profile.explored(wanted.bgp, route.plan, seeds, figures, time.perf_counter() - started_s)
        return table

    def match_in_pieces(self, wanted: FilteredBgp, table: BindingTable, rows: int) -> Iterator[BindingTable]:
        """Do the same as match, and yield about so many rows at a time (plan_runner). Only where neither kept rows nor
        other nodes take part."""
        assert self.dataset.completion is None, wanted
        variables = possible_variables(wanted.bgp)
        for seeds in operators.by_bound(table, [variable for variable in table.variables if variable in variables]):
            route = self.memo.route(wanted, seeds.variables, seeds.length, self.dataset)
            start = self._kept(route.plan.filters, self._with_constants(route, seeds))
            yield from self._segments(route.segments, start, rows)

    def _segments(self, segments: tuple[Segment, ...], table: BindingTable, rows: int) -> Iterator[BindingTable]:
        if not segments:
            yield table
        elif table.length == 0:
            yield BindingTable.empty(segments[-1].lowered.variables)
        else:
            first, *rest = segments
            for found in plan_runner.run_in_pieces(first.lowered, table, self.dataset, self.limits, rows):
                mark = self.limits.mark()
                kept = self._kept(first.filters, found)
                cost = self.limits.mark() - mark
                yield from self._segments(tuple(rest), kept, rows)
                self.limits.give_back(cost)

    def _run(
        self, route: Route, seeds: BindingTable, rows_wanted: int | None, figures: StepFigures | None = None
    ) -> BindingTable:
        """Run the segments of a route, with the filters between them."""
        mark = self.limits.mark()
        completion = self.dataset.completion
        run = plan_runner.run if completion is None else completion.run
        rows_of_steps = None if figures is None else figures.rows
        table = self._kept(route.plan.filters, self._with_constants(route, seeds))
        for segment in route.segments:
            if table.length == 0:
                table = BindingTable.empty(segment.lowered.variables)
                if rows_of_steps is not None:
                    rows_of_steps += [0] * len(segment.lowered.steps)
                if figures is not None and completion is not None:
                    figures.moved += [Moved()] * len(segment.lowered.steps)
                continue
            filters, is_last = segment.filters, segment is route.segments[-1]
            last_wanted = rows_wanted if is_last and not filters else None
            if completion is None and filters and all(map(is_row_wise, filters)):
                keep, wanted = partial(self._kept, filters), rows_wanted if is_last else None
                lowered, limits = segment.lowered, self.limits
                table = plan_runner.run(lowered, table, self.dataset, limits, wanted, rows_of_steps, keep)
            else:
                table = run(segment.lowered, table, self.dataset, self.limits, last_wanted, rows_of_steps)
                table = self._kept(filters, table)
            if figures is not None and completion is not None:
                figures.moved += completion.moved
            self.limits.back_to(mark, table.size_bytes)
        return table

    def _with_constants(self, route: Route, seeds: BindingTable) -> BindingTable:
        if not route.plan.constants:
            return seeds
        variables, terms = zip(*route.plan.constants, strict=True)
        columns = (np.full(seeds.length, number, np.int64) for number in self.terms.ids([term.text for term in terms]))
        return BindingTable((*seeds.variables, *variables), (*seeds.columns, *columns), seeds.length)

    def _kept(self, conditions: tuple[Expression, ...], table: BindingTable) -> BindingTable:
        for condition in conditions:
            table = self.keep(condition, table)
        return table

    def _from_classes(
        self, node: Node, table: BindingTable, explore: Callable[[BindingTable], BindingTable]
    ) -> BindingTable:
        """Explore from each class of rows apart. Rows of one class leave the same variables of the node unbound."""
        if not table.variables:
            return explore(table)
        gathered: BindingTable | None = None
        variables = possible_variables(node)
        # What a row leaves unbound the pattern is to bind.
        for seeds in operators.by_bound(table, [variable for variable in table.variables if variable in variables]):
            found = explore(seeds)
            gathered = found if gathered is None else operators.union(gathered, found, self.limits.rows_max)
        assert gathered is not None
        return gathered
