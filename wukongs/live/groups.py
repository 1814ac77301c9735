"""Groups: the firings of queries of one template at one time, explored together: over a cluster, also asked together.

The constants in which the queries differ become variables, and each row of the starting table binds them for one query
(or for several with the same constants). So the kernel runs once, a node is sent the rows of all queries in one
request, and what is fetched is fetched once. Then each query goes on with its own rows.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from wukongs.csparql.algebra import Node
from wukongs.csparql.terms import Term, Variable
from wukongs.errors import WukongsError
from wukongs.live.core import Core
from wukongs.live.firing import Firing
from wukongs.live.query_templates import Template, with_constants
from wukongs.live.reading import terms_of
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.executor import Executor
from wukongs.query.limits import limits_of
from wukongs.query.memory import Kind
from wukongs.query.operators import operators
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.rows import stable_order

log = logging.getLogger("wukongs")
FIRINGS_MAX = 100
"""So many are picked under one hold of the engine's lock, and explored together."""
SHARED_MAX = 1000
"""Plans are kept for so many templates; with one more all are forgotten."""
ALONE_MAX = 64
_ROW = Variable(".row")


@dataclass(slots=True)
class _Shared:
    """The exploration of a group. node: the core, with variables in the place of the constants that differ; failures:
    in a row; alone: for so many more firings the queries are explored alone."""

    node: Node
    plans: PlanMemo = field(default_factory=lambda: PlanMemo(is_patient=True))
    failures: int = 0
    alone: int = 0

    def has_failed(self) -> None:
        self.failures += 1
        self.alone = min(1 << self.failures, ALONE_MAX)


@dataclass(frozen=True, slots=True)
class _Start:
    """Where the exploration of some firings starts. numbers: of each firing the row of the table that is its own."""

    shared: _Shared
    table: BindingTable
    numbers: tuple[int, ...]


class Groups:
    """The groups of one engine. Called by the injector's thread."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._shared: dict[tuple[Hashable, tuple[Term | int, ...]], _Shared] = {}

    def explore(self, firings: Sequence[Firing], stale: list[PlanMemo]) -> None:
        """Find the matches of the patterns of firings of one template at one time, as far as there is something to
        share. If that fails, each finds its own error. stale: plans to be renewed are added to it."""
        firings = [firing for firing in firings if not (firing.is_repeated or _goes_alone(firing))]
        if len(firings) < 2:
            return
        first = firings[0]  # all read the same windows
        if first.query.template is None or first.whole is not None:
            return  # these are run together because they are compiled
        if first.reading.error is not None or first.is_over_nothing():
            return
        shared: _Shared | None = None
        try:
            start = self._start(firings)
            shared = start.shared
            if shared.alone:
                shared.alone -= 1
                return
            tables = self._explore(first, start)
            for firing in firings:
                if firing.maintained is not None:
                    firing.maintained.estimate()
        except Exception as error:
            # One without a name is a mistake of ours, which each query tells of if it meets it again.
            is_named = isinstance(error, WukongsError | MemoryError)
            text = f"{len(firings)} queries of one template could not be explored together"
            log.log(logging.DEBUG if is_named else logging.ERROR, text, exc_info=True)
            if shared is not None:
                shared.has_failed()
            return
        finally:
            if shared is not None and shared.plans.is_stale:
                stale.append(shared.plans)
        shared.failures = 0
        for firing, table in zip(firings, tables, strict=True):
            firing.explored = table

    def _start(self, firings: Sequence[Firing]) -> _Start:
        templates = [_template(firing) for firing in firings]
        of_row = {template.constants: firing for template, firing in zip(templates, firings, strict=True)}
        rows = {constants: number for number, constants in enumerate(of_row)}
        places = list(zip(*rows, strict=True))
        varying = list(dict.fromkeys(place for place in places if len(set(place)) > 1))
        variables = [Variable(f".constant{number}") for number in range(len(varying))]
        key = templates[0].shape, tuple(varying.index(place) if place in varying else place[0] for place in places)
        shared = self._shared.get(key)
        if shared is None:
            if len(self._shared) >= SHARED_MAX:
                self._shared.clear()
            ends = tuple(variables[end] if isinstance(end, int) else end for end in key[1])
            shared = self._shared[key] = _Shared(with_constants(templates[0].core, ends))
        resolves = [firing.dataset.resolve for firing in of_row.values()]
        ids = [np.array([resolve(t) for resolve, t in zip(resolves, place, strict=True)]) for place in varying]
        table = BindingTable((_ROW, *variables), (np.arange(len(rows)), *ids), len(rows))
        return _Start(shared, table, tuple(rows[template.constants] for template in templates))

    def _explore(self, first: Firing, start: _Start) -> list[BindingTable]:
        """Return what each firing's patterns match. first: any of them, since all read the same."""
        limits = limits_of(self._core.settings, None, kind=Kind.FIRING)
        terms = terms_of(self._core, first.reader, first.moment())
        with limits:
            executor = Executor(first.dataset, terms, limits, start.shared.plans, in_order=True, compiled=first.plans)
            parts = _divided(executor.explore(start.shared.node, start.table), start.table)
        return [parts[number] for number in start.numbers]


def _goes_alone(firing: Firing) -> bool:
    """Tell whether a firing is evaluated by itself: it has its matches from the firing before, or it is not known yet
    whether it might."""
    return firing.maintained is not None and (firing.is_maintained or not firing.maintained.is_estimated)


def _template(firing: Firing) -> Template:
    assert firing.query.template is not None
    return firing.query.template


def _divided(found: BindingTable, start: BindingTable) -> list[BindingTable]:
    """Return what each row of the starting table has become, without its columns."""
    order = stable_order([found.column(_ROW)])
    bounds = np.searchsorted(found.column(_ROW)[order], np.arange(start.length + 1)).tolist()
    kept = operators.project(found, [variable for variable in found.variables if variable not in start.variables])
    return [kept.take(order[lo:hi]) for lo, hi in pairwise(bounds)]
