"""Group graph patterns, translated into the algebra as they are read (SPARQL 1.1, section 18.2.2).

A group inside of a GRAPH block is evaluated once per graph. Here its triple patterns carry the graph instead, and where
no triple pattern would see to it that the graph exists (and binds its variable), a `GraphNames` stands before what
depends on it: `GRAPH ?g { OPTIONAL { P } }` is LeftJoin(GraphNames(?g), P in ?g).
"""

from __future__ import annotations

from csparql.algebra import (
    Bgp,
    Call,
    DefaultGraph,
    Expression,
    Extend,
    Filter,
    GraphNames,
    Join,
    LeftJoin,
    Node,
    TermOrVariable,
    Union,
)
from csparql.nesting import DEPTH_MAX
from csparql.parser_expressions import balanced
from csparql.parser_triples import TriplesParser
from csparql.scope import always_matches_in, certain_variables, possible_variables
from csparql.terms import Variable

UNIT = Bgp(())
_UNSUPPORTED_ELEMENTS = {
    "MINUS": "MINUS",
    "VALUES": "VALUES",
    "SERVICE": "SERVICE",
    "SELECT": "a subquery",
}


class GroupParser(TriplesParser):
    """Reads group graph patterns."""

    def group(self) -> Node:
        """Read `{ ... }`, with its filters around it."""
        pattern, condition = self._group_parts()
        return pattern if condition is None else Filter(condition, pattern)

    def _group_parts(self) -> tuple[Node, Expression | None]:
        """Read `{ ... }`; return its pattern, and what its filters ask for: OPTIONAL takes that as its condition."""
        self.expect("{", "'{'")
        if self.token.kind == "SELECT":
            raise self.unsupported("a subquery")
        outer = self.patterns, self.path_nodes, self.paths_allowed
        self.patterns, self.path_nodes, self.paths_allowed = [], [], True
        self.scope_number += 1
        node: Node = UNIT
        conditions: list[Expression] = []
        elements = 0
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
                self.scope_number += 1
        self.advance()
        node = self._anchored(self._flush(node))
        self.patterns, self.path_nodes, self.paths_allowed = outer
        self.scope_number += 1
        return node, balanced("&&", conditions) if conditions else None

    def _flush(self, node: Node) -> Node:
        """Join the triple patterns and paths read so far to the group."""
        if self.patterns:
            node = join(node, Bgp(tuple(self.patterns)))
            self.patterns = []
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
        if kind == "GRAPH":
            self.advance()
            return join(node, self._graph_block())
        if kind == "BIND":
            self.advance()
            return self._bind(node)
        if kind in _UNSUPPORTED_ELEMENTS:
            raise self.unsupported(_UNSUPPORTED_ELEMENTS[kind])
        raise self.unexpected("a triple pattern, FILTER, OPTIONAL, UNION, GRAPH, BIND, a group or '}'")

    def _union(self) -> Node:
        branches = [self.group()]
        while self.accept("UNION"):
            branches.append(self.group())
        return _balanced_union(branches)

    def _bind(self, node: Node) -> Node:
        self.expect("(", "'(' after BIND")
        expression, token = self.expression_as()
        variable = Variable(token.text[1:])
        if variable in possible_variables(node):
            raise self.error("a variable after AS that the group has not used before", token)
        self.in_scope[variable] = None
        return Extend(self._anchored(node), variable, expression)

    def _graph_block(self) -> Node:
        outer_graph = self.graph
        name: TermOrVariable
        if self.token.kind == "var":
            name = self._variable()
            node = self._variable_graph(name)
        else:
            self.graph = self.iri("an IRI or a variable after GRAPH")
            node = self.group()
        self.graph = outer_graph
        return node

    def _variable_graph(self, name: Variable) -> Node:
        """Read the block of `GRAPH ?name`.

        SPARQL binds ?name only after the block is evaluated: an expression inside of it does not see it. Where there is
        such an expression, the block is read again with a hidden variable for its graph.
        """
        start, labels, mention_count = self.index, dict(self.labels), len(self.mentions)
        self.graph = name
        node = self.group()
        if all(token.text[1:] != name.name for token in self.mentions[mention_count:]):
            return node
        self.rewind(start)
        self.labels = labels
        hidden = self.fresh_blank()
        self.graph = hidden
        node = self.group()
        if name not in possible_variables(node):
            return Extend(node, name, hidden)
        if name in certain_variables(node):
            return Filter(Call("SAMETERM", (name, hidden)), node)
        raise self.unsupported(
            f"a GRAPH ?{name.name} block that has both an expression with ?{name.name} and an optional pattern with it",
            self.tokens[start - 1],
            "use another variable inside of the block",
        )


def join(left: Node, right: Node) -> Node:
    """Join two patterns; the empty pattern vanishes and neighbouring triple patterns become one Bgp."""
    if left == UNIT:
        return right
    if right == UNIT:
        return left
    if isinstance(right, Bgp):
        if isinstance(left, Bgp):
            return Bgp(left.patterns + right.patterns)
        if isinstance(left, Join) and isinstance(left.right, Bgp):
            return Join(left.left, Bgp(left.right.patterns + right.patterns))
    return Join(left, right)


def _balanced_union(branches: list[Node]) -> Node:
    """Chain the branches, in their order, as a tree of logarithmic depth."""
    if len(branches) == 1:
        return branches[0]
    half = (len(branches) + 1) // 2
    return Union(_balanced_union(branches[:half]), _balanced_union(branches[half:]))
