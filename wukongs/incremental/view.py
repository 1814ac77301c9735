"""View: one query whose answer follows the stored graph, from SN to SN."""

from __future__ import annotations

from dataclasses import dataclass, field

from wukongs.csparql.algebra import Distinct, Project, Query
from wukongs.csparql.terms import Variable
from wukongs.incremental.counted import Counted
from wukongs.incremental.interests import Interests
from wukongs.incremental.iterate import Reached
from wukongs.incremental.leaves import names_of
from wukongs.incremental.lookups import Kept, Operator, install
from wukongs.incremental.operators import operator_lines, operator_of, operators_of
from wukongs.incremental.templates import TRIPLE, Template
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.zset import ZSet
from wukongs.store.batch_set import BatchSet


@dataclass(slots=True)
class View:
    """A tree of operators that moves from one SN to the next.

    query: parsed and rewritten; a SELECT, an ASK or a CONSTRUCT.
    evaluation: of the graph as it is when the view is made; whoever moves the view renews its ids, terms and limits
    before.
    sn: the snapshot of its content.
    stored: the graph there.
    scope: names the blank nodes of a template.
    keeps_content: the content is kept as a whole.
    interests: the changes that it has to take.

    A select has the rows of its variables, a construct triples, each with weight 1; an ask has the empty row, with
    weight 1, as long as its pattern has a solution."""

    query: Query
    evaluation: Evaluation
    sn: int
    stored: BatchSet
    scope: str = ""
    keeps_content: bool = False
    variables: tuple[Variable, ...] = field(init=False)
    top: Operator = field(init=False)
    interests: Interests = field(init=False)

    def __post_init__(self) -> None:
        query, evaluation = self.query, self.evaluation
        if query.form == "ask":
            self.variables = ()
            top = operator_of(Distinct(Project(query.pattern, ())), evaluation)
        elif query.form == "construct":
            self.variables = TRIPLE
            below = operator_of(query.pattern, evaluation)
            if Template.has_blanks(query):
                below = Kept(below, names_of(query.pattern))
            filled = Template(query, (below,), evaluation, self.scope)
            top = Counted(TRIPLE, (filled,))
        else:
            self.variables = tuple(Variable(name) for name in query.variables)
            top = operator_of(query.pattern, evaluation)
        if self.keeps_content and not isinstance(top, Counted):
            top = Counted(self.variables, (top,), is_distinct=False)
        self.top = top
        self.interests = Interests(query.pattern, evaluation)

    def install(self) -> None:
        """Evaluate what its operators keep, once, before the first change."""
        self.evaluation.span = self.sn, self.sn
        install(self.top, self.stored)

    def begin(self) -> ZSet:
        """Return the content, and keep what changes need."""
        self.evaluation.span = self.sn, self.sn
        return self._shown(self.top.begin(self.stored))

    def content(self) -> ZSet:
        """Return the content at the SN; the view keeps it."""
        assert isinstance(self.top, Counted), self.keeps_content
        return self._shown(self.top.content(self.stored))

    def advance(self, sn: int, change: Change) -> ZSet:
        """Move to a later SN; return the difference of the contents. change: of the graph between the two."""
        assert sn >= self.sn, (sn, self.sn)
        found = ZSet.empty(self.variables)
        if not change.is_empty and self.interests(change):
            with self.evaluation.of_change(self.sn, sn):
                found = self._shown(self.top.change(change))
        else:
            for _, operator in operators_of(self.top):
                if isinstance(operator, Reached):
                    operator.skip(sn)
        self.sn, self.stored = sn, change.after
        return found

    def advance_anew(self, sn: int, stored: BatchSet) -> ZSet:
        """Move to a later SN where the change is not known; return the difference of both contents, evaluated.

        stored: the graph at the later SN."""
        before = self.begin()
        self.sn, self.stored = sn, stored
        return self.begin().plus(before.negated()).consolidated()

    def _shown(self, rows: ZSet) -> ZSet:
        return rows.project(self.variables).consolidated()

    @property
    def kept_bytes(self) -> int:
        """The bytes that all operators keep."""
        return sum(operator.kept_bytes for _, operator in operators_of(self.top))

    @property
    def takes_each(self) -> bool:
        """Whether some operator has to know of each SN, whatever has changed up to there."""
        return any(isinstance(operator, Reached) for _, operator in operators_of(self.top))

    def explain(self, *, analyze: bool = False) -> str:
        """Return its operators as text, a line each. analyze: with the bytes that each keeps, and the rows of its last
        change."""
        return "\n".join(operator_lines(self.top, analyze=analyze))
