"""Lifted: a query that is asked for each of the arguments of a view, with the patterns of these arguments in it.

Each solution then has the number and the terms of its argument. A term is substituted (query/execution/bindings.py):
hidden variables take its place, and are left free here. Where a part of the query is the same for all arguments, or
binds the terms by its own triple patterns, it is left as it is: the part beside it has the number. So a triple that
only such a part reads leads to the arguments that it concerns, and not to all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from wukongs.csparql.algebra import (
    Bgp,
    Call,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    GraphNames,
    GraphVersion,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    PerGraph,
    Project,
    Query,
    Slice,
    TermOrVariable,
    TripleParts,
    TriplePattern,
    Union,
    WrittenGraph,
)
from wukongs.csparql.paths import is_nullable, links_count, reaches_outside
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import (
    certain_variables,
    exists_patterns,
    expression_variables,
    mentioned_variables,
    node_expressions,
)
from wukongs.csparql.terms import XSD, Term, Variable, iri
from wukongs.incremental.walkable import LINKS_MAX, walked
from wukongs.query.execution.argument_rows import NUMBER, BoundQuery
from wukongs.store.hidden_graphs import ARGUMENTS_GRAPH, ARGUMENTS_IRI
from wukongs.store.term_ids import integer_ids

ARGUMENTS = iri(ARGUMENTS_IRI)
_NO_LENGTH = f'"0"^^<{XSD}integer>'


def _predicate(column: int) -> Term:
    return iri(f"column {column} of {ARGUMENTS_IRI}")


def reserved_ids(width: int) -> dict[Term, int]:
    """Return the ids of the hidden graph of arguments, and of the predicates of its columns."""
    ids = integer_ids(np.arange(width, dtype=np.int64)).tolist()
    return {ARGUMENTS: ARGUMENTS_GRAPH} | {_predicate(column): id_ for column, id_ in enumerate(ids)}


@dataclass(slots=True)
class Lifted:
    """A query with the patterns of its arguments.

    query: its solutions have NUMBER and the hidden variables beside their own; NUMBER is its first variable.
    bound: the query with hidden variables in the place of those that arguments give terms for.
    arguments: the part whose solutions are the arguments.
    free: parts that were left as they are, with the terms of all arguments and others, and whose content may
    be kept."""

    bound: BoundQuery
    query: Query = field(init=False)
    arguments: Bgp = field(init=False)
    free: list[Node] = field(default_factory=list)
    _originals: dict[int, tuple[Node, Node]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arguments = Bgp(
            tuple(
                TriplePattern(NUMBER, _predicate(column), variable, ARGUMENTS)
                for column, variable in enumerate(self.hidden)
            )
        )
        query = self.bound.query
        self.query = replace(query, pattern=self._lift(query.pattern), variables=(NUMBER.name, *query.variables))

    @property
    def hidden(self) -> tuple[Variable, ...]:
        return tuple(self.bound.hidden.values())

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The columns of arguments as rows."""
        return (NUMBER, *self.hidden)

    def original(self, node: Node) -> Node | None:
        """Return the part of the bound query that a part of `query` was made of; None: it was left as it is."""
        found = self._originals.get(id(node))
        return None if found is None else found[1]

    def is_leaf(self, node: Node) -> bool:
        """Whether a part is evaluated for given arguments, and is no join of others."""
        return isinstance(self.original(node), PerGraph)

    def _lift(self, node: Node) -> Node:
        """Return a part with the number and the terms of an argument in each solution."""
        lifted = self._lifted(node)
        self._originals[id(lifted)] = lifted, node  # the node is held, so that no other has its id
        return lifted

    def _lifted(self, node: Node) -> Node:
        match node:
            case Bgp(patterns=patterns):
                return Bgp((*patterns, *self.arguments.patterns))
            case Join(left=left, right=right):
                needs = self._needs(left), self._needs(right)
                if not any(needs):
                    is_left = self._is_better(left, right)
                    needs = is_left, not is_left
                sides = (self._side(one, need) for one, need in zip((left, right), needs, strict=True))
                return Join(*sides)
            case LeftJoin(left=left, right=right) | Minus(left=left, right=right):
                return replace(node, left=self._lift(left), right=self._side(right, self._needs(right)))
            case Union(left=left, right=right):
                return Union(self._lift(left), self._lift(right))
            case Group(pattern=pattern, keys=keys):
                return replace(node, pattern=self._lift(pattern), keys=(*self.variables, *keys))
            case Project(pattern=pattern, variables=variables):
                return Project(self._lift(pattern), (*variables, *self.variables))
            case Filter() | Extend() | Distinct() | OrderBy() | Slice():
                return replace(node, pattern=self._lift(node.pattern))
            case PathPattern():
                return self._lifted_path(node)
            case _:
                return Join(self.arguments, node)

    def _side(self, node: Node, needs: bool) -> Node:
        if needs:
            return self._lift(node)
        if FilteredBgp.of(node) is None and not mentioned_variables(node).isdisjoint(self.hidden):
            self.free.append(node)
        return node

    def _lifted_path(self, node: PathPattern) -> Node:
        """Return a path with the number and the terms of an argument.

        A path leads from a term as from any node, but that it may lead from one that the graph does not know to itself,
        if it may have no length. So walks between two nodes and those of no length are parts of their own."""
        ends = node.subject, node.object
        if not is_nullable(node.path) or not any(isinstance(end, Variable) and end.is_argument for end in ends):
            return Join(self.arguments, node)
        path, nowhere = walked(node.path), self._of_no_length(node)
        if path is None or node.subject == node.object:
            return nowhere
        if links_count(path, False) > LINKS_MAX:
            path = node.path
        walks = Join(self.arguments, Filter(Call("!", (Call("SAMETERM", ends),)), replace(node, path=path)))
        return Union(walks, nowhere)

    def _of_no_length(self, node: PathPattern) -> Node:
        """Return the solutions of a path that lead from a term of an argument to itself."""
        assert not isinstance(node.graph, GraphVersion), node
        found: Node = self.arguments
        if isinstance(node.graph, Variable):
            found = Join(found, GraphNames(node.graph))
        bound = {*self.variables, node.graph}
        ends = (node.subject, node.object) if node.subject in bound else (node.object, node.subject)
        given = (isinstance(end, Term) or end.is_argument for end in (node.subject, node.object))
        if not reaches_outside(node.path, *given):
            found = Filter(_is_node(ends[0], node.graph), found)
        for known, other in (ends, (Term(_NO_LENGTH), node.length)):
            if isinstance(other, Variable) and other not in bound:
                found = Extend(found, other, known)
                bound.add(other)
            elif other is not None and other != known:
                found = Filter(Call("SAMETERM", (known, other)), found)
        return found

    def _needs(self, node: Node) -> bool:
        """Whether a part that is joined with one of each argument is not the same for all, and does not bind the terms
        itself."""
        return not mentioned_variables(node).isdisjoint(self.hidden) and not self._is_closed(node)

    def _is_closed(self, node: Node) -> bool:
        """Whether the solutions for an argument are those that bind its terms, with the hidden variables left free."""
        match node:
            case Bgp() | TripleParts() | GraphNames():
                return True
            case Filter(pattern=pattern) | Extend(pattern=pattern):
                [expression] = node_expressions(node)
                given = expression_variables(expression).intersection(self.hidden)
                is_plain = not exists_patterns(expression) and given <= certain_variables(pattern)
                return is_plain and self._is_closed(pattern)
            case Join(left=left, right=right):
                return self._is_closed(left) and self._is_closed(right)
        return mentioned_variables(node).isdisjoint(self.hidden)

    def _is_better(self, left: Node, right: Node) -> bool:
        """Whether the left side of a join is rather the one that is lifted: it mentions more of the terms."""
        counts = [len(mentioned_variables(side).intersection(self.hidden)) for side in (left, right)]
        if counts[0] != counts[1]:
            return counts[0] > counts[1]
        return isinstance(left, Bgp) or not isinstance(right, Bgp)


def _is_node(term: TermOrVariable, graph: WrittenGraph) -> Expression:
    """Return the condition that a graph has a triple of a term."""
    predicate, other = Variable(".predicate"), Variable(".other")
    triples = (TriplePattern(term, predicate, other, graph), TriplePattern(other, predicate, term, graph))
    return Call("||", tuple(Exists(Bgp((triple,))) for triple in triples))
