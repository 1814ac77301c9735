"""Template: the triples of a CONSTRUCT."""

from __future__ import annotations

from dataclasses import dataclass, field

from wukongs.csparql.algebra import Query
from wukongs.csparql.terms import Variable
from wukongs.incremental.leaves import names_of
from wukongs.incremental.lookups import Kept, Operator, Side, noted
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.templates import fill_template
from wukongs.store.batch_set import BatchSet

TRIPLE = (Variable(".subject"), Variable(".predicate"), Variable(".object"))
"""The variables of a triple; no query can name them."""


@dataclass(slots=True)
class Template:
    """Fills the template with the rows that were inserted and deleted. Equal triples of several rows add up.

    A template's blank node is named by its row, and by a number among rows equal to it. So where there are some, the
    rows below are kept, and those equal to a changed one are filled before and after."""

    query: Query
    children: tuple[Operator] | tuple[Kept]
    evaluation: Evaluation
    scope: str
    touched: int = field(default=0, init=False)
    kind = "template"
    kept_bytes = 0
    keeps = False

    @staticmethod
    def has_blanks(query: Query) -> bool:
        """Whether rows make blank nodes."""
        parts = (part for triple in query.template for part in (triple.subject, triple.predicate, triple.object))
        return any(isinstance(part, Variable) and part.is_blank for part in parts)

    def begin(self, stored: BatchSet) -> ZSet:
        rows = self.children[0].begin(stored).consolidated()
        return self._filled(ZSet.of(rows.repeated())).consolidated()

    @noted
    def change(self, change: Change) -> ZSet:
        (below,) = self.children
        changed = below.change(change)
        if not isinstance(below, Kept):
            return self._filled(changed).consolidated()
        touched = (below.at(side).with_keys(changed.table) for side in (Side.AFTER, Side.BEFORE))
        after, before = (ZSet.of(rows.repeated()) for rows in touched)
        return self._filled(after).plus(self._filled(before).negated()).consolidated()

    def _filled(self, rows: ZSet) -> ZSet:
        if not len(rows):
            return ZSet.empty(TRIPLE)
        table = rows.project(names_of(self.query.pattern)).table
        places, triples = fill_template(self.query.template, table, self.evaluation.terms, self.scope, by_solution=True)
        return ZSet(BindingTable(TRIPLE, tuple(triples), len(places)), rows.weights[places])
