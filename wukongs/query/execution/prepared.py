"""PreparedQueries: the algebra and the plans of texts that were asked before.

Two things are kept: the rewritten algebra, which the text alone decides, and plans, which are made anew when sizes
change much (plan_memo.py). Both are kept for the text as it is, and for each set of its variables that terms were given
for: hidden variables stand for these, so plans do not depend on the terms. The data decide the rest, so each execution
looks it up: the ids of constants, the graphs, the snapshot.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from wukongs.csparql.algebra import DatasetClause, Query
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import rewrite
from wukongs.csparql.scope import mentioned_variables
from wukongs.csparql.terms import Variable
from wukongs.csparql.tokens import check_text
from wukongs.csparql.warnings import UnseenNames, unbound
from wukongs.query.execution.answer import within
from wukongs.query.execution.argument_rows import BoundQuery
from wukongs.query.execution.bindings import where_clause
from wukongs.query.limits import Limits, limits_of, scheduled
from wukongs.query.plans.dataset import restricted
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.settings import Settings

TEXT_CHARACTERS_MAX = 1 << 14
"""A longer text is parsed each time: it holds data (a long VALUES) and is not likely to come again."""
_SEPARATORS = " \n\t,;.(){}"
_TOKEN_BYTES = 256
"""The bytes of objects that a word of a text becomes, where it lists terms or triples."""

BOUND_MAX = 16
"""Plans are kept for so many sets of given variables of one text."""


_Key: TypeAlias = tuple[str, str | None, DatasetClause | None, tuple[str, ...] | None]


@dataclass(slots=True)
class BoundPlans:
    """A query for given terms of some variables, and its plans. is_asked: it was asked before; compiled, compiled_many:
    its plan as the caller keeps it, for one row of terms and for many."""

    bound: BoundQuery
    memo: PlanMemo = field(default_factory=PlanMemo)
    is_asked: bool = False
    compiled: object = None
    compiled_many: object = None


@dataclass(frozen=True)
class Prepared:
    """A parsed and rewritten query, and its plans. asked: as it was parsed; _bound: by the given variables."""

    query: Query
    asked: Query
    memo: PlanMemo = field(default_factory=PlanMemo)
    _bound: dict[tuple[str, ...], BoundPlans] = field(default_factory=dict)

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names of the variables that terms can be given for."""
        return bindable(self.query)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Likely mistakes of the text, a sentence each."""
        return unbound(self.asked)

    @cached_property
    def unseen(self) -> UnseenNames:
        """The names of the text that no data had when somebody looked."""
        return UnseenNames.of(self.asked)

    def bound(self, names: tuple[str, ...]) -> BoundPlans:
        """Return the query for given terms of some variables, with its plans."""
        found = self._bound.get(names)
        if found is None:
            if len(self._bound) >= BOUND_MAX:
                self._bound.clear()
            bound = BoundQuery(self.query, tuple(map(Variable, names)))
            found = self._bound.setdefault(names, BoundPlans(bound, PlanMemo() if names else self.memo))
        return found


def bindable(query: Query) -> frozenset[str]:
    """Return the names of a query's variables, which terms can be given for."""
    described = (part.name for part in query.described if isinstance(part, Variable))
    inside = (variable.name for variable in mentioned_variables(where_clause(query)))
    # One with a dot in its name was made by the parser or a rule: for a blank node, or inside of a subquery.
    return frozenset(name for name in (*inside, *query.variables, *described) if "." not in name)


def while_read(text: str, settings: Settings, timeout_s: float | None) -> AbstractContextManager[object]:
    """Return a context in which a long text is parsed and rewritten within the limits of its execution. timeout_s: as
    Engine.query has it."""
    check_text(text)
    if len(text) <= TEXT_CHARACTERS_MAX:
        return nullcontext()
    limits = scheduled(limits_of(settings, timeout_s))
    limits.operator = "the reading of its text"
    return _reading(text, limits)


@contextmanager
def _reading(text: str, limits: Limits) -> Iterator[None]:
    with within(limits):
        hold_parsed(text, limits)
        yield


def hold_parsed(text: str, limits: Limits) -> None:
    """Hold what a long text becomes when it is parsed, until the execution ends. Raises BudgetExceeded."""
    if len(text) > TEXT_CHARACTERS_MAX:
        limits.keep(4 * len(text) + _TOKEN_BYTES * sum(map(text.count, _SEPARATORS)))


class PreparedQueries:
    """The most recently used queries by text, base and dataset, at most count_max. May be used from any thread."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.hit_count = 0
        self._known: OrderedDict[_Key, Prepared] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def prepare(
        self,
        text: str,
        base: str | None,
        dataset: DatasetClause | None = None,
        only: tuple[str, ...] | None = None,
    ) -> Prepared:
        """Return the prepared query of a text; parse it if it is new. dataset: in the place of its own, unless it has
        windows; only: the graphs that it may read, sorted (None: all).

        Raises QuerySyntaxError, UnsupportedFeatureError; a text that is refused is not kept."""
        key = text, base, dataset, only
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                self.hit_count += 1
                return found
        query = parse_query(text, base)
        if dataset is not None and not query.dataset.windows:
            query = replace(query, dataset=dataset)
        query = replace(query, dataset=restricted(query.dataset, only))
        made = Prepared(rewrite(query), query)
        if len(text) > TEXT_CHARACTERS_MAX:
            return made
        with self._lock:
            # Another thread may have parsed the same text meanwhile: one of the two is kept, with its plans.
            found = self._known.setdefault(key, made)
            while len(self._known) > self.count_max:
                self._known.popitem(last=False)
        return found
