"""timestamp(?x) and timestamp(?s, ?p, ?o): calls of C-SPARQL's function become variables that a Timestamp node binds.

`timestamp(?x)` is the newest time of the tuples of windows that bind ?x in a solution. These tuples are the matches of
the triple patterns below the expression that mention ?x and can be matched in a window. A pattern that need not match
in each solution (in a branch of UNION, to the right of OPTIONAL) notes its times there, under a hidden variable; they
only count in the solutions that come from there. Tuples that bind ?x to the right of MINUS, in a subquery or in a
property path of arbitrary length cannot be told.

`timestamp(?s, ?p, ?o)` is the newest time of that tuple in any window of the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from wukongs.csparql.algebra import (
    Aggregate,
    Bgp,
    Call,
    DatasetClause,
    DefaultGraph,
    Exists,
    Expression,
    Extend,
    Filter,
    GraphRef,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    Query,
    Timestamp,
    TriplePattern,
    Union,
)
from wukongs.csparql.scope import node_expressions
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.csparql.walk import map_arguments, map_children, map_expressions

TIMESTAMP = "TIMESTAMP"
TIMESTAMP_IRI = "<http://larkc.eu/csparql/sparql/jena/ext#timestamp>"
NAMES = frozenset((TIMESTAMP, TIMESTAMP_IRI))
Refuse = Callable[[Call, str], Exception]
"""(the call, the text that was expected in its place) -> the error with its place."""


def resolve_timestamps(query: Query, refuse: Refuse) -> Query:
    """Put variables in the place of all calls of timestamp(), bound below where they stand.

    Raises the error that `refuse` makes for a call that can have no value: without a window, of a variable that no
    triple pattern in a window binds, of anything but variables and terms, inside of EXISTS.
    """
    return replace(query, pattern=_Resolver(query.dataset, refuse).node(query.pattern))


def in_window(graph: GraphRef, dataset: DatasetClause) -> bool:
    """Tell whether a pattern in this graph can be matched in a window."""
    if isinstance(graph, DefaultGraph):
        return any(not window.named for window in dataset.windows)
    if isinstance(graph, Variable):
        return any(window.named for window in dataset.windows)
    return any(graph == iri(window.name) for window in dataset.windows)


class _Resolver:
    def __init__(self, dataset: DatasetClause, refuse: Refuse) -> None:
        self._dataset = dataset
        self._refuse = refuse
        self._count = 0

    def node(self, node: Node) -> Node:
        """Resolve the calls in a node and below."""
        calls = [call for expression in node_expressions(node) for call in self._calls(expression)]
        node = map_children(node, self.node)
        if not calls:
            return node
        made: dict[Call, Variable] = {}
        for call in dict.fromkeys(calls):
            variable = made[call] = self._fresh()
            if isinstance(node, LeftJoin):
                # The condition sees both sides: the tuples on the right, if there are any, stand nearer to it.
                if len(call.arguments) > 1 or self._binds(node.right, call):
                    node = replace(node, right=self._bound(node.right, call, variable))
                else:
                    node = replace(node, left=self._bound(node.left, call, variable))
            else:
                assert isinstance(node, Filter | Extend | Group | OrderBy), node
                node = replace(node, pattern=self._bound(node.pattern, call, variable))

        def changed(expression: Expression) -> Expression:
            if isinstance(expression, Call) and expression in made:
                return made[expression]
            return map_arguments(expression, changed)

        return map_expressions(node, changed)

    def _fresh(self) -> Variable:
        self._count += 1
        return Variable(f".time{self._count}")

    def _calls(self, expression: Expression, within_exists: bool = False) -> Iterator[Call]:
        match expression:
            case Call(op=op) if op in NAMES:
                if within_exists:
                    raise self._refuse(expression, "no timestamp() inside of EXISTS")
                yield expression
            case Call():
                for argument in expression.arguments:
                    yield from self._calls(argument, within_exists)
            case Aggregate(argument=argument) if argument is not None:
                yield from self._calls(argument, within_exists)
            case Exists() if not within_exists:  # map_children reaches those inside of others
                self._refuse_in(expression.pattern)

    def _refuse_in(self, node: Node) -> None:
        for expression in node_expressions(node):
            for _ in self._calls(expression, within_exists=True):
                pass

        def look(child: Node) -> Node:
            self._refuse_in(child)
            return child

        map_children(node, look)

    def _binds(self, node: Node, call: Call) -> bool:
        argument = call.arguments[0] if call.arguments else None
        if not isinstance(argument, Variable):
            return False
        _, patterns, times = self._collected(node, argument)
        return bool(patterns or times)

    def _bound(self, node: Node, call: Call, variable: Variable) -> Node:
        """Return the node with the call's value bound to a variable."""
        if not self._dataset.windows:
            raise self._refuse(call, "a window for timestamp() to read, such as FROM STREAM <s> [RANGE 10s STEP 1s]")
        arguments = call.arguments
        if not all(isinstance(argument, Variable | Term) for argument in arguments) or len(arguments) not in (1, 3):
            raise self._refuse(call, "timestamp(?x), or timestamp of three variables, IRIs or literals")
        if len(arguments) == 3:
            pattern = TriplePattern(*arguments)  # type: ignore[arg-type]
            return Timestamp(node, variable, (pattern,), everywhere=True)
        if not isinstance(arguments[0], Variable):
            raise self._refuse(call, "a variable in timestamp(?x)")
        group = _group_of(node)
        if group is not None:
            raise self._refused_in(group, call, arguments[0])
        node, patterns, times = self._collected(node, arguments[0])
        if not patterns and not times:
            raise self._refuse(
                call,
                f"a variable in timestamp() that a triple pattern of this group binds in a window, not {arguments[0]}",
            )
        return Timestamp(node, variable, patterns, times)

    def _refused_in(self, group: Group, call: Call, argument: Variable) -> Exception:
        """Make the error for a call over groups, with the variable that the text names."""
        aggregates = dict(group.aggregates)
        written = aggregates[argument].argument if argument in aggregates else argument
        if not isinstance(written, Variable):
            return self._refuse(call, "a variable in timestamp(), not an aggregate")
        return self._refuse(
            Call(call.op, (written,)),
            f"an aggregate around timestamp({written}), such as MAX(timestamp({written})): each row here is a group of "
            "tuples",
        )

    def _collected(self, node: Node, wanted: Variable) -> tuple[Node, tuple[TriplePattern, ...], tuple[Variable, ...]]:
        """Return three things: a node; the patterns that bind `wanted` by a tuple of a window in each of its solutions;
        the hidden variables that the node binds to times where only some solutions have such a tuple."""
        match node:
            case Bgp():
                found = (p for p in node.patterns if wanted in p.variables() and in_window(p.graph, self._dataset))
                return node, tuple(found), ()
            case Join():
                left, patterns, times = self._collected(node.left, wanted)
                right, more_patterns, more_times = self._collected(node.right, wanted)
                return replace(node, left=left, right=right), patterns + more_patterns, times + more_times
            case LeftJoin():
                left, patterns, times = self._collected(node.left, wanted)
                right, noted = self._noted(node.right, wanted)
                return replace(node, left=left, right=right), patterns, times + noted
            case Union():
                left, times = self._noted(node.left, wanted)
                right, noted = self._noted(node.right, wanted)
                return replace(node, left=left, right=right), (), times + noted
            case Minus():
                left, patterns, times = self._collected(node.left, wanted)
                return replace(node, left=left), patterns, times
            case Filter() | Extend() | Timestamp():
                pattern, patterns, times = self._collected(node.pattern, wanted)
                return replace(node, pattern=pattern), patterns, times
            case _:
                return node, (), ()

    def _noted(self, node: Node, wanted: Variable) -> tuple[Node, tuple[Variable, ...]]:
        """Return a node that binds the times of its tuples to a hidden variable, and that variable, if it has such
        tuples."""
        node, patterns, times = self._collected(node, wanted)
        if not patterns:
            return node, times
        variable = self._fresh()
        return Timestamp(node, variable, patterns, times), (variable,)


def _group_of(node: Node) -> Group | None:
    """Return the Group whose rows a node has; None if they are those of a pattern."""
    while isinstance(node, Filter | Extend | Timestamp | OrderBy):
        node = node.pattern
    return node if isinstance(node, Group) else None
