"""StoredReads answers one-shot queries by one kernel call each, over the stored graph as it is now.

The stored graph is the only window of a table of its own (EngineWindows.now), which is written once for each snapshot.
So such a query makes no dataset, opens no handle and runs no executor: it resolves the given terms, runs its plan and
decodes what comes out.

All of it is done with the engine's lock held, so only short plans are run here. Longer ones, and queries that are not
for kernels alone, go the usual way (reading.py: ask). Both run the same plan by the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wukongs.csparql.algebra import Extend, Project
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import possible_variables
from wukongs.csparql.terms import Term, Variable
from wukongs.live.core import Core
from wukongs.query.execution.argument_rows import BoundQuery
from wukongs.query.execution.prepared import BoundPlans
from wukongs.query.output.results import Result
from wukongs.query.plans.compiled import Columns, CompiledQuery, Windows, Workspace
from wukongs.query.plans.conditions import conditions_of
from wukongs.query.plans.dataset import reads_explicit
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.store.dtypes import NO_MATCH

ROWS_MAX = 1 << 12
"""A plan that makes more rows, by its estimates or in truth, is not run with the lock held."""


class StoredReads:
    """Called with the core's lock held, of a core that holds the graph whole."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._workspace = Workspace()

    def answer(self, plans: BoundPlans, texts: Sequence[str], text: str) -> Result | None:
        """Answer a query for one row of terms, None if it has to go the usual way. texts: canonical;
        text: of the query.

        Raises WukongsError (the engine is closed, or has failed)."""
        core, read = self._core, plans.compiled
        if not isinstance(read, _Read):
            read = plans.compiled = _Read.of(plans.bound, plans.memo, core.windows.now, self._workspace, core)
        if read.query is None:
            return None
        core.check_is_open()
        core.finish_tick()
        core.windows.write_now()
        rows_max = min(ROWS_MAX, core.settings.rows_max)
        ids = [core.registry.resolve(text) for text in texts]
        # To the kernel this is no term but a free place. The usual way gives such a term an id of its own.
        columns = None if NO_MATCH in ids else read.run(ids, rows_max)
        if columns is None:
            return None
        core.query_count += 1
        return Result("select", read.names, columns, core.registry.snapshot_reader(), core.sn, text=text)


@dataclass(slots=True)
class _Read:
    """A query for a row of terms, compiled. query: None if it is none for kernels alone; constants: its terms, with the
    ids for which it is."""

    names: tuple[str, ...]
    query: CompiledQuery | None
    constants: dict[Term, int]
    resolve: Callable[[Term], int]

    @staticmethod
    def of(bound: BoundQuery, memo: PlanMemo, windows: Windows, workspace: Workspace, core: Core) -> _Read:
        query, constants = bound.query, dict[Term, int]()

        def resolve(term: Term) -> int:
            reserved = core.reserved.get(term)
            return core.registry.resolve(term.text) if reserved is None else reserved

        def noted(term: Term) -> int:
            found = constants[term] = resolve(term)
            return found

        found = _patterns(bound)
        if found is None:
            return _Read(query.variables, None, constants, resolve)
        wanted, variables = found
        seeds = tuple(bound.hidden.values())
        compiled = CompiledQuery(query.dataset, variables, wanted, seeds, windows, noted, memo, workspace)
        return _Read(query.variables, compiled, constants, resolve)

    def run(self, ids: Sequence[int], rows_max: int) -> Columns | None:
        """Return the columns of the answer for some terms; None if it has to be found in another way."""
        query = self.query
        assert query is not None
        if any(self.resolve(term) != known for term, known in self.constants.items()):
            self.constants.clear()
            query.forget()
        return query.run_once(ids, rows_max)


def _patterns(bound: BoundQuery) -> tuple[FilteredBgp, tuple[Variable, ...]] | None:
    """Return the triple patterns and filters of a SELECT of no more than these, and the variables of its columns."""
    query, node = bound.query, bound.query.pattern
    clause = query.dataset
    if clause.named_graphs or clause.only is not None:
        return None
    if query.form != "select" or not isinstance(node, Project) or reads_explicit(query):
        return None
    node, own = node.pattern, dict[Variable, Variable]()
    while isinstance(node, Extend) and node.expression in bound.hidden.values():
        assert isinstance(node.expression, Variable), node
        own[node.variable] = node.expression
        node = node.pattern
    wanted = FilteredBgp.of(node)
    if wanted is None or not wanted.bgp.patterns:
        return None
    variables = tuple(own.get(Variable(name), Variable(name)) for name in query.variables)
    known = possible_variables(wanted.bgp)
    # The text of a term that no triple has cannot be read, so it must not be among the columns.
    is_read = variables and known.issuperset(variables) and conditions_of(wanted.filters, known) is not None
    return (wanted, variables) if is_read else None
