"""CompiledPlans: one registered query over the windows of a table.

A query of triple patterns alone is compiled as a whole (CompiledPatterns), any other one becomes a program
(query/programs). Where the executor evaluates it, or a part of it, that is over the batches that the windows have then.
"""

from __future__ import annotations

from dataclasses import replace

from wukongs.csparql.algebra import Bgp, DatasetClause, Distinct, Project, Query, Slice, Timestamp
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import possible_variables
from wukongs.csparql.walk import parts_of
from wukongs.query.plans.compiled import CompiledPatterns, Windows, Workspace
from wukongs.query.plans.dataset import Dataset, Resolve, reads_explicit
from wukongs.query.plans.plan_memo import PlanMemo


def _without_modifiers(query: Query) -> tuple[tuple[Distinct | Slice, ...], Query]:
    """Return DISTINCT, LIMIT and OFFSET that are right above a projection, from the inside out, and the rest."""
    modifiers, node = list[Distinct | Slice](), query.pattern
    while isinstance(node, Distinct | Slice):
        modifiers.insert(0, node)
        node = node.pattern
    if not isinstance(node, Project) or tuple(variable.name for variable in node.variables) != query.variables:
        return (), query
    return tuple(modifiers), replace(query, pattern=node)


class CompiledPlans:
    """Used by the thread that fires, while the table of windows is unchanged."""

    def __init__(
        self,
        query: Query,
        windows: Windows,
        resolve: Resolve,
        memo: PlanMemo,
        workspace: Workspace,
        *,
        has_arguments: bool = False,
    ) -> None:
        """resolve: the ids of the query's constants, which never change; memo: plans for all sizes that come;
        has_arguments: the query is asked for rows of arguments."""
        self._clause: DatasetClause = query.dataset
        self.windows = windows
        self._resolve = resolve
        self._memo = memo
        self._workspace = workspace
        self.modifiers, bare = _without_modifiers(query)
        self.is_distinct = bool(self.modifiers) and isinstance(self.modifiers[0], Distinct)
        """Whether the first of these is DISTINCT."""
        self.whole = None if has_arguments else CompiledPatterns.of(bare, windows, resolve, memo, workspace)
        """The query but for its modifiers, if kernels answer it alone."""

    @staticmethod
    def is_for(query: Query) -> bool:
        """Return whether a query reads graphs as they are. DESCRIBE and TIMESTAMP read windows in other ways."""
        has_times = any(isinstance(part, Timestamp) for part in parts_of(query.pattern))
        return query.form != "describe" and not has_times and not reads_explicit(query)

    @property
    def sizes(self) -> list[int] | None:
        """Numbers that change when the size of a window has changed by a factor; None while plans for others do."""
        return None if self._memo.is_stale else self.windows.changes()

    def estimated_rows(self, wanted: FilteredBgp) -> float:
        """Return the rows of all steps of the plan of some patterns, estimated."""
        route = self._memo.route(wanted, (), 1, self.dataset())
        return sum(step.estimated_rows for step in route.plan.steps)

    def matches_of(self, bgp: Bgp) -> CompiledPatterns:
        """Return the query for all matches of some patterns, which have a variable."""
        variables = tuple(sorted(possible_variables(bgp), key=lambda variable: variable.name))
        given = self.windows, self._resolve, self._memo, self._workspace
        return CompiledPatterns(self._clause, variables, FilteredBgp(bgp), *given)

    def dataset(self) -> Dataset:
        """Return what the windows and the stored graph have now."""
        return self.windows.dataset(self._clause, self._resolve)[0]
