"""View: one query whose answer follows the stored graph, from SN to SN."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from wukongs.csparql.algebra import Query
from wukongs.csparql.terms import Variable
from wukongs.incremental.lookups import Operator
from wukongs.incremental.operators import operator_of, operators_of
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.zset import ZSet
from wukongs.store.batch_set import BatchSet
from wukongs.store.trace import TraceEntry


@dataclass(slots=True)
class View:
    """query: parsed and rewritten; a SELECT. evaluation: of the graph as it is when the view is made; whoever moves the
    view renews its ids, terms and limits before. sn: the snapshot at which it stands."""

    query: Query
    evaluation: Evaluation
    sn: int
    _stored: BatchSet
    top: Operator = field(init=False)
    variables: tuple[Variable, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.variables = tuple(Variable(name) for name in self.query.variables)
        self.top = operator_of(self.query.pattern, self.evaluation)

    def begin(self) -> ZSet:
        """Return the content at the SN at which it was made, and keep what changes need."""
        return self.top.begin(self._stored).project(self.variables).consolidated()

    def advance(self, sn: int, stored: BatchSet, sealed: Iterable[TraceEntry]) -> ZSet:
        """Move to a later SN; return the difference of the contents. stored: the graph there; sealed: what the trace
        has sealed since (Trace.between)."""
        assert sn >= self.sn, (sn, self.sn)
        change = Change.of(self._stored, stored, sealed)
        found = ZSet.empty(self.variables) if change.is_empty else self.top.change(change)
        self.sn, self._stored = sn, stored
        return found.project(self.variables).consolidated()

    def explain(self) -> str:
        """Return its operators as text: a line each, with what they keep."""
        lines = (
            f"{'  ' * depth}{operator.kind}{f', {operator.kept_bytes} bytes kept' if operator.kept_bytes else ''}"
            for depth, operator in operators_of(self.top)
        )
        return "\n".join(lines)
