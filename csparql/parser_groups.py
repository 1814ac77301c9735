"""Group graph patterns, translated into the algebra as they are read (SPARQL 1.1, section 18.2.2).

A group inside of a GRAPH block is evaluated once per graph. Here its triple patterns carry the graph instead, and where
no triple pattern would see to it that the graph exists (and binds its variable), a `GraphNames` stands before what
depends on it: `GRAPH ?g { OPTIONAL { P } }` is LeftJoin(GraphNames(?g), P in ?g).

SPARQL binds ?g only after the block is evaluated: an expression, a MINUS or a subquery inside of it does not see it. So
the block is read with a hidden variable for its graph, and only where nothing of the kind is in it this becomes ?g.
"""

from __future__ import annotations

from wukongs.csparql.algebra import (
    DEFAULT,
    Bgp,
    Call,
    DefaultGraph,
    Expression,
    Extend,
    Filter,
    GraphNames,
    Join,
    LeftJoin,
    Minus,
    Node,
    PerGraph,
    Union,
)
from wukongs.csparql.joining import UNIT, join
from wukongs.csparql.nesting import DEPTH_MAX, PATTERNS_MAX
from wukongs.csparql.parser_expressions import Mention, balanced
from wukongs.csparql.parser_values import ValuesParser
from wukongs.csparql.scope import always_matches_in, certain_variables, possible_variables, renamed
from wukongs.csparql.terms import Variable
from wukongs.csparql.tokens import Token
from wukongs.errors import UnsupportedFeatureError


class GroupParser(ValuesParser):
    """Reads group graph patterns."""

    def __init__(self, text: str, base: str | None, source: str) -> None:
        super().__init__(text, base, source)
        self.graph_places: dict[str, Token] = {}
        """The IRIs of GRAPH blocks, with the first token of each."""
        self.refused: UnsupportedFeatureError | None = None
        """What is grammar and cannot be answered: said when somebody asks for answers."""

    graph_count = 0
    hides_graph = False
    """Whether the GRAPH block that we are in has a part to which its variable must not be known."""
    is_per_graph = False
    """Whether the GRAPH block that we are in counts or cuts rows, so that it must be evaluated graph by graph."""

    def subselect(self) -> Node:
        """Read a subquery; the parser of queries does it."""
        raise NotImplementedError

    def group(self) -> Node:
        """Read `{ ... }`, with its filters around it."""
        pattern, condition = self._group_parts()
        return pattern if condition is None else Filter(condition, pattern)

    def nested_group(self) -> Node:
        """Read `{ ... }` for EXISTS or MINUS: what it names comes into scope nowhere else, and the basic graph pattern
        around it goes on behind it."""
        in_scope, scope_number, mention_count = self.in_scope, self.scope_number, len(self.mentions)
        aggregates_allowed, self.aggregates_allowed = self.aggregates_allowed, False
        self.in_scope = {}
        node = self.group()
        self.in_scope, self.scope_number, self.aggregates_allowed = in_scope, scope_number, aggregates_allowed
        del self.mentions[mention_count:]
        self.hides_graph = True
        return node

    def graph_key(self, by_rows: bool) -> tuple[Variable, ...]:
        """Return what a subquery must keep apart besides its own keys: the graph, if it is a variable here.

        by_rows : whether it is enough to look at each row's graph; else the block is evaluated graph by graph.
        """
        if not isinstance(self.graph, Variable):
            return ()
        self.is_per_graph = self.is_per_graph or not by_rows
        return (self.graph,) if by_rows else ()

    def _group_parts(self) -> tuple[Node, Expression | None]:
        """Read `{ ... }`; return its pattern, and what its filters ask for: OPTIONAL takes that as its condition."""
        self.expect("{", "'{'")
        outer = self.patterns, self.path_nodes, self.triple_terms, self.paths_allowed
        self.patterns, self.path_nodes, self.triple_terms, self.paths_allowed = [], [], [], True
        self.new_scope()
        node: Node = UNIT
        conditions: list[Expression] = []
        elements = 0
        if self.token.kind == "SELECT":
            node = self.subselect()
            self.hides_graph = True
            if self.token.kind != "}":
                raise self.error("'}' to close the subquery")
        while self.token.kind != "}":
            if self.at_triples():
                self.triples_block()
            elif self.accept("FILTER"):
                conditions.append(self.constraint("FILTER"))
                self.accept(".")
            elif self.token.kind == "end":
                raise self.error("'}' to close the group")
            else:
                elements += 1
                if elements > DEPTH_MAX:
                    raise self.error(f"at most {DEPTH_MAX} parts of one group that are no triples or filters")
                node = self._element(self._flush(node))
                self.accept(".")
                self.new_scope()
        self.advance()
        node = self._anchored(self._flush(node))
        self.patterns, self.path_nodes, self.triple_terms, self.paths_allowed = outer
        self.new_scope()
        return node, balanced("&&", conditions) if conditions else None

    def _flush(self, node: Node) -> Node:
        """Join the triple patterns and paths read so far to the group."""
        if self.patterns or self.triple_terms:
            if len(self.patterns) > PATTERNS_MAX:
                raise self.error(f"at most {PATTERNS_MAX} triple patterns side by side", found=f"{len(self.patterns)}")
            patterns, self.patterns = tuple(self.patterns), []
            if self.triple_terms:
                path_nodes, self.path_nodes = self.path_nodes, []
                return join(node, self.with_triple_terms(patterns, path_nodes))
            node = join(node, Bgp(patterns))
        for path_node in self.path_nodes:
            node = join(node, path_node)
        self.path_nodes = []
        return node

    def _anchored(self, node: Node) -> Node:
        """See to it that each solution rests on the graph of the GRAPH block that we are in."""
        graph = self.graph
        if isinstance(graph, DefaultGraph) or always_matches_in(node, graph):
            return node
        return join(GraphNames(graph), node)

    def _element(self, node: Node) -> Node:
        """Read one part of a group that is neither triples nor FILTER, and combine it with what stands before it."""
        kind = self.token.kind
        if kind == "{":
            return join(node, self._union())
        if kind == "OPTIONAL":
            self.advance()
            pattern, condition = self._group_parts()
            return LeftJoin(self._anchored(node), pattern, condition)
        if kind == "MINUS":
            self.advance()
            return Minus(self._anchored(node), self.nested_group())
        if kind == "GRAPH":
            self.advance()
            return join(node, self._graph_block())
        if kind == "BIND":
            self.advance()
            return self._bind(node)
        if kind == "VALUES":
            self.advance()
            return join(node, self.data_block())
        if kind == "SERVICE":
            return join(node, self._service())
        raise self.error("a triple pattern, FILTER, OPTIONAL, UNION, MINUS, GRAPH, BIND, VALUES, a group or '}'")

    def _union(self) -> Node:
        branches = [self.group()]
        while self.accept("UNION"):
            branches.append(self.group())
        return _balanced_union(branches)

    def _bind(self, node: Node) -> Node:
        self.expect("(", "'(' after BIND")
        expression, token = self.expression_as()
        variable = self.named(token)
        if variable in possible_variables(node):
            raise self.error("a variable after AS that the group has not used before", token)
        self.in_scope[variable] = None
        self.mentions.append(Mention(variable, token))  # the variable of a GRAPH block around it is another one
        return Extend(self._anchored(node), variable, expression)

    def _graph_block(self) -> Node:
        outer_graph = self.graph
        if self.token.kind == "var":
            node = self._variable_graph(self.named(self.token))
        else:
            token = self.token
            self.graph = self.iri("an IRI or a variable after GRAPH")
            self.graph_places.setdefault(self.graph.text[1:-1], token)
            node = self.group()
        self.graph = outer_graph
        return node

    def _service(self) -> Node:
        token = self.advance()
        if self.refused is None:
            self.refused = self.unsupported("SERVICE", token, "load what the other endpoint has, and match it here")
        self.accept("SILENT")
        if self.token.kind == "var":
            self.in_scope[self.named(self.advance())] = None
        else:
            self.iri("an IRI or a variable after SERVICE")
        outer_graph, self.graph = self.graph, DEFAULT
        node = self.group()
        self.graph = outer_graph
        return node

    def _variable_graph(self, name: Variable) -> Node:
        self.advance()
        self.in_scope[name] = None
        outer_hides, outer_per_graph = self.hides_graph, self.is_per_graph
        self.hides_graph = self.is_per_graph = False
        mention_count = len(self.mentions)
        self.graph_count += 1
        hidden = Variable(f".graph{self.graph_count}")
        self.graph = hidden
        node = self.group()
        hides, per_graph = self.hides_graph, self.is_per_graph
        self.hides_graph, self.is_per_graph = outer_hides or hides, outer_per_graph
        if per_graph:
            node = PerGraph(hidden, node)
        elif not hides and all(mention.variable != name for mention in self.mentions[mention_count:]):
            return renamed(node, hidden, name)
        if name not in possible_variables(node):
            return Extend(node, name, hidden)
        if name in certain_variables(node):
            return Filter(Call("SAMETERM", (name, hidden)), node)
        return Join(node, Extend(GraphNames(hidden), name, hidden))


def _balanced_union(branches: list[Node]) -> Node:
    """Chain the branches, in their order, as a tree of logarithmic depth."""
    if len(branches) == 1:
        return branches[0]
    half = (len(branches) + 1) // 2
    return Union(_balanced_union(branches[:half]), _balanced_union(branches[half:]))
