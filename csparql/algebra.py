"""The algebra of SPARQL 1.1 (section 18), with each triple pattern carrying the graph or window that it is matched in.

A group's adjacent triple patterns are one `Bgp`, whatever graphs they name: the planner orders patterns over stored
graphs and windows together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal as Choice

from wukongs.csparql.paths import Path
from wukongs.csparql.terms import Term, Variable
from wukongs.errors import UnsupportedFeatureError


@dataclass(frozen=True, slots=True)
class DefaultGraph:
    """Where a pattern outside of any GRAPH block is matched."""

    def __str__(self) -> str:
        return "default"


WrittenGraph = DefaultGraph | Term | Variable


@dataclass(frozen=True, slots=True)
class GraphVersion:
    """A graph reference that is read at another version than the rest of a dataset (Dataset.versions). No text has it.

    graph: what it is a version of; a variable is bound to the name of the graph here, too.
    version: tells the versions of one graph reference apart."""

    graph: WrittenGraph
    version: str


DEFAULT = DefaultGraph()
GraphRef = WrittenGraph | GraphVersion
TermOrVariable = Term | Variable


def graph_variable(graph: GraphRef) -> Variable | None:
    """Return the variable that a match binds to the name of its graph, None if there is none."""
    named = graph.graph if isinstance(graph, GraphVersion) else graph
    return named if isinstance(named, Variable) else None


# --- expressions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function applied to arguments.

    op is one of: = != < > <= >= + - * / && || ! (unary) NEGATE (unary minus) IN NOTIN (first argument, then the list);
    the name of a function in upper case, BOUND or one of csparql/functions.py; or the IRI of one in angle brackets.
    The base of the query, if it has one, is a second argument of IRI.
    """

    op: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over the rows of a group: COUNT SUM MIN MAX AVG SAMPLE GROUP_CONCAT. argument None is COUNT(*)."""

    name: str
    argument: Expression | None
    distinct: bool = False
    separator: str = " "


@dataclass(frozen=True, slots=True)
class Exists:
    """EXISTS or NOT EXISTS: whether pattern has a solution (or none), given the bindings of the row at hand."""

    pattern: Node
    negated: bool = False


Expression = Term | Variable | Call | Aggregate | Exists
"""An Aggregate stands only in a Group's aggregates: everywhere else the parser has put a variable in its place."""


# --- patterns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TriplePattern:
    subject: TermOrVariable
    predicate: TermOrVariable
    object: TermOrVariable
    graph: GraphRef = DEFAULT

    def variables(self) -> tuple[Variable, ...]:
        """The distinct variables, in the order subject, predicate, object, graph."""
        parts = (self.subject, self.predicate, self.object, graph_variable(self.graph))
        return tuple(dict.fromkeys(part for part in parts if isinstance(part, Variable)))


@dataclass(frozen=True, slots=True)
class Bgp:
    """Triple patterns that hold together; none at all is the one empty solution."""

    patterns: tuple[TriplePattern, ...]


UNIT = Bgp(())


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A property path between two ends. A walk stays in one graph: graph says in which, or that each is tried. length:
    the number of triples of a shortest walk, if the text asks for it."""

    subject: TermOrVariable
    path: Path
    object: TermOrVariable
    graph: GraphRef = DEFAULT
    length: TermOrVariable | None = None

    def variables(self) -> tuple[Variable, ...]:
        """The distinct variables, in the order subject, object, graph, length."""
        parts = (self.subject, self.object, self.graph, self.length)
        return tuple(dict.fromkeys(part for part in parts if isinstance(part, Variable)))


@dataclass(frozen=True, slots=True)
class TripleParts:
    """The variable is the triple term of these parts (SPARQL 1.2). This node only stands in joins with patterns that
    bind the variable, or all of the parts: the variable gives the parts, and the parts give the variable."""

    variable: Variable
    subject: TermOrVariable
    predicate: TermOrVariable
    object: TermOrVariable

    def parts(self) -> tuple[TermOrVariable, ...]:
        return self.subject, self.predicate, self.object

    def variables(self) -> tuple[Variable, ...]:
        """The distinct variables, that of the whole first."""
        parts = (part for part in self.parts() if isinstance(part, Variable))
        return tuple(dict.fromkeys((self.variable, *parts)))


@dataclass(frozen=True, slots=True)
class Values:
    """VALUES: these solutions. A row has one cell for each variable; None (UNDEF) leaves it unbound."""

    variables: tuple[Variable, ...]
    rows: tuple[tuple[Term | None, ...], ...]


@dataclass(frozen=True, slots=True)
class GraphNames:
    """`GRAPH g {}`: one solution for each named graph of the dataset (g a variable), or one if g is named in it."""

    graph: TermOrVariable


@dataclass(frozen=True, slots=True)
class Service:
    """SERVICE: the solutions of a group at another endpoint, or at each endpoint that a variable is bound to. text: the
    group as it is written, in braces; prologue: the prefixes around it; names: of its variables in the text; variables:
    what they stand for here, one each."""

    endpoint: TermOrVariable
    text: str
    prologue: str
    names: tuple[str, ...]
    variables: tuple[TermOrVariable, ...]
    is_silent: bool


@dataclass(frozen=True, slots=True)
class Join:
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class LeftJoin:
    """OPTIONAL: condition sees the variables of both sides; None is true."""

    left: Node
    right: Node
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class Minus:
    """The solutions of left without those that are compatible with one of right and share a bound variable with it."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Union:
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class PerGraph:
    """`GRAPH ?graph { pattern }` evaluated once for each named graph, as section 18.6 says.

    It is used only where this makes a difference: if a pattern cuts or counts the rows of a graph (LIMIT, aggregates
    without GROUP BY), its triple patterns cannot range over all graphs at once. Everywhere else triple patterns carry
    the variable.
    """

    graph: Variable
    pattern: Node


@dataclass(frozen=True, slots=True)
class Filter:
    condition: Expression
    pattern: Node


@dataclass(frozen=True, slots=True)
class Extend:
    """Bind variable to expression's value; an error leaves it unbound."""

    pattern: Node
    variable: Variable
    expression: Expression


@dataclass(frozen=True, slots=True)
class Timestamp:
    """Bind variable to a time (ms): the newest at which a stream brought one of the tuples that the patterns become in
    a solution. Only tuples in the windows where a pattern is matched count; everywhere: those in any window of the
    query. `times` are variables that the pattern may bind to such times, which count too. Unbound if there is no time.
    (csparql/timestamps.py)"""

    pattern: Node
    variable: Variable
    patterns: tuple[TriplePattern, ...]
    times: tuple[Variable, ...] = ()
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """GROUP BY: keys, each a variable that the pattern already binds; aggregates, each under a variable of its own.

    No keys at all is one group of all rows, also when there are none.
    """

    pattern: Node
    keys: tuple[Variable, ...]
    aggregates: tuple[tuple[Variable, Aggregate], ...]


@dataclass(frozen=True, slots=True)
class Project:
    pattern: Node
    variables: tuple[Variable, ...]


@dataclass(frozen=True, slots=True)
class Distinct:
    pattern: Node


@dataclass(frozen=True, slots=True)
class OrderBy:
    """conditions: (expression, descending)."""

    pattern: Node
    conditions: tuple[tuple[Expression, bool], ...]


@dataclass(frozen=True, slots=True)
class Slice:
    pattern: Node
    offset: int
    limit: int | None


Node = (
    Bgp
    | PathPattern
    | TripleParts
    | Values
    | GraphNames
    | Service
    | Join
    | LeftJoin
    | Minus
    | Union
    | PerGraph
    | Filter
    | Extend
    | Timestamp
    | Group
    | Project
    | Distinct
    | OrderBy
    | Slice
)
"""A subquery is a Project, with the nodes above it, inside of a pattern. Its own variables have names of their own
there (`csparql/parser_patterns.py`), so a name means one thing all through a query."""


# --- queries ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamWindow:
    """`FROM [NAMED] STREAM <stream> [RANGE range_ms STEP step_ms]`; TUMBLING has step_ms = range_ms.

    `[RANGE TRIPLES range_triples STEP step_triples]` counts arrivals instead: both are above 0 then, and range_ms and
    step_ms are 0. own_name: the IRI that `FROM [NAMED] WINDOW <own_name> ON <stream>` gives the window.
    """

    stream: str
    range_ms: int
    step_ms: int
    named: bool
    line: int = 0
    column: int = 0
    range_triples: int = 0
    step_triples: int = 0
    own_name: str | None = None

    @property
    def name(self) -> str:
        """The IRI by which GRAPH and WINDOW reach it."""
        return self.stream if self.own_name is None else self.own_name

    @property
    def is_counted(self) -> bool:
        """Whether the window is so many arrivals, and not so much time."""
        return self.range_triples > 0


@dataclass(frozen=True, slots=True)
class DatasetClause:
    """The graphs and windows that FROM, FROM NAMED and FROM [NAMED] STREAM declare, IRIs without brackets. A query
    without such a clause has empty fields. only: the graphs and streams that may be read, sorted; None: all."""

    default_graphs: tuple[str, ...] = ()
    named_graphs: tuple[str, ...] = ()
    windows: tuple[StreamWindow, ...] = ()
    only: tuple[str, ...] | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.default_graphs or self.named_graphs or self.windows)


Output = Choice["rstream", "istream", "dstream"]
"""The rows that a firing reports: all; those that the firing before it did not have; or those that only that firing
had."""
ReportPolicy = Choice["window close", "content change", "non-empty content", "non-empty result"]


@dataclass(frozen=True, slots=True)
class Registration:
    """`REGISTER QUERY | STREAM | RSTREAM | ISTREAM | DSTREAM name [COMPUTED EVERY n unit] [REPORT policies] AS`.

    report: the policies that must all hold for a firing to be reported; is_stream: REGISTER STREAM; has_operator: the
    text names RSTREAM, ISTREAM or DSTREAM.
    """

    name: str
    computed_every_ms: int | None = None
    output: Output = "rstream"
    report: tuple[ReportPolicy, ...] = ()
    is_stream: bool = False
    has_operator: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query.

    pattern: the algebra with solution modifiers; variables: the names that a SELECT reports, in order; template: the
    triples of CONSTRUCT (graph is DEFAULT; blank nodes are variables with is_blank); described: the IRIs and variables
    of DESCRIBE; graph_places: the IRIs of GRAPH blocks, with line and column of the first; having_aliases: for each
    alias of SELECT that HAVING asks for, the name, the expression as written, line and column; refused: the first
    feature of the grammar that we cannot answer.
    """

    form: Choice["select", "ask", "construct", "describe"]
    pattern: Node
    variables: tuple[str, ...]
    template: tuple[TriplePattern, ...]
    dataset: DatasetClause
    registration: Registration | None = None
    described: tuple[TermOrVariable, ...] = ()
    graph_places: tuple[tuple[str, int, int], ...] = field(default=(), compare=False)
    having_aliases: tuple[tuple[str, str, int, int], ...] = field(default=(), compare=False)
    refused: UnsupportedFeatureError | None = field(default=None, compare=False)
