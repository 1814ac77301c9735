"""Contents that rows are looked up in: kept beside the stored graph, or in the stored graph itself.

`begin` evaluates a content once; after it, `change` is called once per change of the stored graph, children first. Then
`matching` joins rows with the content before or after that change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import wraps
from typing import Protocol, TypeVar

from wukongs.csparql.algebra import Node
from wukongs.csparql.scope import certain_variables, possible_variables
from wukongs.csparql.terms import Variable
from wukongs.incremental.arranged import Arranged
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.operators import operators as tables
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import UNBOUND


class Side(Enum):
    """One end of the change under way."""

    BEFORE = 0
    AFTER = 1


class Operator(Protocol):
    """A part of a query with its content, and what has changed in it."""

    @property
    def children(self) -> tuple[Operator, ...]:
        """The operators below it."""

    @property
    def kind(self) -> str:
        """Its name, for explain."""

    @property
    def kept_bytes(self) -> int:
        """The bytes that it keeps itself."""

    @property
    def keeps(self) -> bool:
        """Whether it keeps something itself, so that `begin` comes before the first `change`."""

    touched: int
    """The rows of its last change."""

    def begin(self, stored: BatchSet) -> ZSet:
        """Return the content over a stored graph, and keep what its changes need."""

    def change(self, change: Change) -> ZSet:
        """Return the difference of the content, consolidated."""


class Whole(Operator, Protocol):
    """An operator whose content can be had after a change, without evaluating what is below it."""

    def content(self, stored: BatchSet) -> ZSet:
        """Return the content. stored: the graph after the change."""


_Changing = TypeVar("_Changing", bound=Operator)


def noted(change: Callable[[_Changing, Change], ZSet]) -> Callable[[_Changing, Change], ZSet]:
    """Have an operator's `change` write down how many rows it has returned."""

    @wraps(change)
    def changed(operator: _Changing, of: Change) -> ZSet:
        found = change(operator, of)
        operator.touched = len(found)
        return found

    return changed


def install(operator: Operator, stored: BatchSet) -> None:
    """Evaluate over a stored graph what an operator and those below it keep; nothing else."""
    if operator.keeps:
        operator.begin(stored)
    else:
        for child in operator.children:
            install(child, stored)


def keeps_any(operator: Operator) -> bool:
    """Return whether an operator, or one below it, keeps something."""
    return operator.keeps or any(map(keeps_any, operator.children))


class LookUp(Operator, Protocol):
    """An operator whose content rows can be looked up in, at both ends of the change that it has taken last."""

    def matching(self, rows: ZSet, change: Change, side: Side) -> ZSet:
        """Join rows with the content."""

    def compatible_with(self, keys: BindingTable, change: Change, side: Side) -> ZSet:
        """Return the rows of the content that are compatible with some row of a table."""


def stored_at(change: Change, side: Side) -> BatchSet:
    return change.before if side is Side.BEFORE else change.after


@dataclass(slots=True)
class Kept:
    """Keeps the content of an operator, for rules that look rows up in it.

    keys: the variables by which rows are looked up; every row binds them, if they are those of a join.
    before, after: the content at both ends of the change that was taken last."""

    below: Operator
    keys: tuple[Variable, ...] = ()
    before: Arranged = field(init=False)
    after: Arranged = field(init=False)
    touched: int = field(default=0, init=False)
    kind = "kept"
    keeps = True

    def __post_init__(self) -> None:
        self.before = self.after = Arranged(self.keys)

    @property
    def children(self) -> tuple[Operator, ...]:
        return (self.below,)

    @property
    def kept_bytes(self) -> int:
        return self.after.size_bytes

    def forget(self) -> None:
        """Keep nothing until `begin`."""
        self.before = self.after = Arranged(self.keys)

    def begin(self, stored: BatchSet) -> ZSet:
        found = self.below.begin(stored).consolidated()
        self.before = self.after = Arranged(self.keys).plus(found)
        return found

    @noted
    def change(self, change: Change) -> ZSet:
        found = self.below.change(change)
        self.before, self.after = self.after, self.after.plus(found)
        return found

    def content(self, stored: BatchSet) -> ZSet:
        return self.after.rows()

    def at(self, side: Side) -> Arranged:
        return self.before if side is Side.BEFORE else self.after

    def matching(self, rows: ZSet, change: Change, side: Side) -> ZSet:
        return rows.joined(self._near(rows.table, side))

    def compatible_with(self, keys: BindingTable, change: Change, side: Side) -> ZSet:
        return self._near(keys, side).compatible_with(keys)

    def with_keys(self, rows: BindingTable, change: Change, side: Side) -> ZSet:
        """Return the rows of the content whose key is that of some row of a table."""
        return self.at(side).with_keys(rows)

    def _near(self, rows: BindingTable, side: Side) -> ZSet:
        """Return the rows of the content that may be compatible with some row of a table."""
        has_keys = {*rows.variables}.issuperset(self.keys)
        if not has_keys or any((rows.column(key) == UNBOUND).any() for key in self.keys):
            return self.at(side).rows()
        return self.at(side).with_keys(rows)


@dataclass(slots=True)
class Explored:
    """Looks rows up in the stored graph, for a part that can be explored and of which nothing is kept."""

    node: Node
    below: Operator
    evaluation: Evaluation
    keys: tuple[Variable, ...] = ()
    touched: int = field(default=0, init=False)
    kind = "explored"
    keeps = False
    kept_bytes = 0

    @property
    def children(self) -> tuple[Operator, ...]:
        return (self.below,)

    def begin(self, stored: BatchSet) -> ZSet:
        return self.below.begin(stored)

    @noted
    def change(self, change: Change) -> ZSet:
        return self.below.change(change)

    def matching(self, rows: ZSet, change: Change, side: Side) -> ZSet:
        if not len(rows):
            names = (*rows.variables, *sorted(possible_variables(self.node), key=str))
            return ZSet.empty(tuple(dict.fromkeys(names)))
        return ZSet.of_weighted(self.evaluation.explored(self.node, rows.weighted(), stored_at(change, side)))

    def compatible_with(self, keys: BindingTable, change: Change, side: Side) -> ZSet:
        own, stored = possible_variables(self.node), stored_at(change, side)
        asked = tables.distinct(tables.project(keys, [variable for variable in keys.variables if variable in own]))
        certain = certain_variables(self.node)
        bound = [v for v in asked.variables if v in certain and not (asked.column(v) == UNBOUND).any()]
        if not bound and asked.variables:
            return ZSet.of(self.evaluation.run(self.node, stored)).compatible_with(asked)
        # Exploring would bind what a row leaves unbound, and find rows again that are compatible with several keys.
        # From distinct seeds, all bound, each row is found once.
        seeds = asked if len(bound) == len(asked.variables) else tables.distinct(tables.project(asked, bound))
        found = self.matching(ZSet.of(seeds), change, side)
        return found if seeds is asked else found.compatible_with(asked)

    def with_keys(self, rows: BindingTable, change: Change, side: Side) -> ZSet:
        """Return the rows of the content that may have the key of some row of a table: all rows of such a key."""
        return self.compatible_with(tables.project(rows, self.keys), change, side)
