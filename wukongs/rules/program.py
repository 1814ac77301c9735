"""Program: rules in an order in which they can be followed, made of the CONSTRUCT queries of rule files.

A query becomes plain `Rule`s: one triple as the head, and a body that is a list of patterns with conditions. Two head
triples make two rules, and so do the branches of a UNION. Nothing of a group's nesting is left, so a nested group of a
list may say only what means the same without its braces:

* A filter reads variables that its own group binds; so does a BIND, of what stands before it.
* A NOT EXISTS shares with the rest of the rule only variables that its own group binds.
* A variable of BIND stands in no pattern.

A body with OPTIONAL, MINUS, EXISTS, a path that repeats, UNDEF, or a UNION below GROUP BY is no list. It stays a part
of a query (`Rule.where`), and means what it means there.

A rule feeds another one if its head may match a pattern there. The rules that feed each other in a circle are one
stratum (a strongly connected component), and the strata are in an order in which each reads only itself and those
before it. So a stratum may ask what is absent, and may count, if that is concluded by strata before it: a circle
through anything but patterns that simply hold is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from wukongs.csparql.algebra import (
    DEFAULT,
    Aggregate,
    Bgp,
    Call,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    GraphNames,
    GraphRef,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    PathPattern,
    Project,
    TermOrVariable,
    TriplePattern,
    Union,
    Values,
)
from wukongs.csparql.automaton import automaton_of
from wukongs.csparql.parser_rules import ParsedRule
from wukongs.csparql.scope import (
    exists_patterns,
    expression_variables,
    mentioned_variables,
    node_expressions,
    possible_variables,
)
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.csparql.walk import map_children, parts_of
from wukongs.errors import RuleError
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI

BRANCHES_MAX = 64
"""How many rules the UNIONs of one text may become, for each triple of its head."""
OWN_GRAPHS = "<urn:x-wukongs:"
"""The begin of the names of graphs that are no graphs of users."""

STORED_DEFAULT = iri(DEFAULT_GRAPH_IRI)
"""The stored default graph, in patterns of rules that conclude into another one."""

Bind = tuple[Variable, Expression]


@dataclass(frozen=True, slots=True, eq=False)
class Aggregation:
    """A body that groups: its keys; its aggregates; what is bound after grouping, in order; the conditions of HAVING,
    which read keys and aggregates."""

    keys: tuple[Variable, ...]
    aggregates: tuple[tuple[Variable, Aggregate], ...]
    binds: tuple[Bind, ...]
    conditions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One head triple and one body without alternatives.

    patterns: at least one, each in DEFAULT (the graph `into`) or in a graph that it names
    tables: VALUES without UNDEF
    binds: in their order, after the patterns
    conditions: FILTERs without EXISTS, after the binds
    absent: NOT EXISTS, each a Bgp with Filters above it
    aggregation: if it is there, then the fields above are what is grouped
    into: the graph of the head, None for the default graph
    where: None for a list. Else the whole body with its groups, each pattern in the graph that it reads; then
    `patterns` are those that every solution matches, and tables, binds, conditions and absent are empty.

    Every variable of the head, the binds and the conditions of a list is bound by what stands before, unless the
    expression of a bind fails.
    """

    name: str
    head: TriplePattern
    patterns: tuple[TriplePattern, ...]
    tables: tuple[Values, ...]
    binds: tuple[Bind, ...]
    conditions: tuple[Expression, ...]
    absent: tuple[Exists, ...]
    aggregation: Aggregation | None
    into: Term | None
    where: Node | None = None

    def graphs(self) -> set[Term | None]:
        """Return the graphs that the rule reads or concludes into; None is the default graph."""
        return {self.into, *(_graph_of(self, pattern) for pattern, _, _ in reads_of(self))}


@dataclass(frozen=True, slots=True, eq=False)
class Stratum:
    """Rules that are followed together. is_recursive: whether one of them feeds itself, or another that feeds it."""

    rules: tuple[Rule, ...]
    is_recursive: bool


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Rules by strata, in an order in which each stratum reads only itself and those before it."""

    strata: tuple[Stratum, ...]

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> Program:
        """Put rules into strata; those of a stratum keep their order.

        Raises RuleError: a circle of rules through what has to be complete."""
        rules = tuple(rules)
        edges = _edges(rules)
        strata = []
        for members in _components(edges):
            inside = [edge for index in members for edge in edges[index] if edge.target in members]
            for edge in inside:
                if edge.is_strict:
                    raise _circle(rules, edges, members, edge)
            strata.append(Stratum(tuple(rules[index] for index in sorted(members)), bool(inside)))
        return cls(tuple(strata))

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(rule for stratum in self.strata for rule in stratum.rules)


# --- queries become rules ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Body:
    """A list of what holds together. Each condition and each absent pattern comes with the variables that its own group
    binds."""

    patterns: tuple[TriplePattern, ...] = ()
    tables: tuple[Values, ...] = ()
    binds: tuple[Bind, ...] = ()
    conditions: tuple[tuple[Expression, frozenset[Variable]], ...] = ()
    absent: tuple[tuple[Exists, frozenset[Variable]], ...] = ()

    def joined(self, other: _Body) -> _Body:
        return _Body(
            self.patterns + other.patterns,
            self.tables + other.tables,
            self.binds + other.binds,
            self.conditions + other.conditions,
            self.absent + other.absent,
        )

    def matched(self) -> frozenset[Variable]:
        """Return the variables of patterns and tables."""
        in_patterns = possible_variables(Bgp(self.patterns))
        return in_patterns.union(*(table.variables for table in self.tables))

    def bound(self) -> frozenset[Variable]:
        return self.matched().union(variable for variable, _ in self.binds)


def rules_of(parsed: ParsedRule, into: Term | None = None, reads: Term | None = None) -> tuple[Rule, ...]:
    """Make the rules that a parsed rule stands for. into: the graph that it concludes into; None is the default graph.
    reads: the graph that it reads where it names none (STORED_DEFAULT: the default graph); None: that of `into`.

    Raises RuleError: a body that no list of patterns says, a variable of the head that the body does not bind."""
    node, aggregation = _without_group(parsed, parsed.query.pattern)
    if not parsed.query.template:
        raise parsed.error("a triple in the template of a rule", "none", token=parsed.first("CONSTRUCT"))
    if not _is_list(node, aggregation):
        return tuple(_rules_of_parts(parsed, node, aggregation, into, reads))
    rules, bodies = [], _bodies(parsed, node)
    for body in bodies:
        _check_body(parsed, body)
        bound = body.bound()
        if aggregation is not None:
            _check_aggregation(parsed, aggregation, bound)
            bound = frozenset(aggregation.keys).union(variable for variable, _ in aggregation.binds)
        for head in dict.fromkeys(parsed.query.template):
            _check_head(parsed, head, bound, len(bodies) > 1)
            rules.append(
                Rule(
                    parsed.name,
                    head,
                    tuple(_matched(_reading(Bgp(body.patterns), reads))),
                    body.tables,
                    body.binds,
                    tuple(condition for condition, _ in body.conditions),
                    tuple(replace(absent, pattern=_reading(absent.pattern, reads)) for absent, _ in body.absent),
                    aggregation,
                    into,
                )
            )
    return tuple(rules)


def _is_list(node: Node, aggregation: Aggregation | None) -> bool:
    """Return whether a body is triple patterns, FILTERs, BINDs, VALUES, NOT EXISTS of patterns, and UNIONs of these."""
    more: tuple[type, ...] = (LeftJoin, Minus, PathPattern, GraphNames)
    parts, absent = list(parts_of(node)), set[int]()
    for part in parts:
        for condition in _conjuncts(part.condition) if isinstance(part, Filter) else ():
            inner = (Exists, Extend, Values, Group)
            if isinstance(condition, Exists) and not any(isinstance(one, inner) for one in parts_of(condition.pattern)):
                absent |= {id(condition)} if condition.negated else set()
    if any(isinstance(part, Exists) and id(part) not in absent for part in parts):
        return False
    if any(isinstance(part, Values) and any(None in row for row in part.rows) for part in parts):
        return False
    return not any(isinstance(part, more if aggregation is None else (*more, Union)) for part in parts)


def _rules_of_parts(
    parsed: ParsedRule, node: Node, aggregation: Aggregation | None, into: Term | None, reads: Term | None
) -> Iterator[Rule]:
    """Yield the rules of a body that is no list; those of its branches that are lists as such."""
    branches = _branches(node) if aggregation is None else [_grouped(parsed.query.pattern)]
    if aggregation is not None:
        _check_aggregation(parsed, aggregation, possible_variables(node))
    _check_count(parsed, len(branches))
    for branch in branches:
        if aggregation is None and _is_list(branch, None):
            alone = replace(parsed, query=replace(parsed.query, pattern=branch))
            yield from rules_of(alone, into, reads)
            continue
        parts = list(parts_of(branch))
        _check_graphs(parsed, [part for part in parts if isinstance(part, TriplePattern | PathPattern | GraphNames)])
        if not any(isinstance(part, TriplePattern | PathPattern) for part in parts):
            raise _no_pattern(parsed)
        where = _reading(branch, into if reads is None else reads)
        for head in dict.fromkeys(parsed.query.template):
            _check_head(parsed, head, possible_variables(where), len(branches) > 1)
            yield Rule(parsed.name, head, tuple(_matched(where)), (), (), (), (), aggregation, into, where)


def body_of(rule: Rule) -> Node:
    """Return the body of a rule as a part of a query, with its groups. Each pattern has the graph that it reads."""
    if rule.where is not None:
        return rule.where
    node: Node = Bgp(rule.patterns)
    for table in rule.tables:
        node = Join(table, node)
    assigned = frozenset(variable for variable, _ in rule.binds)
    late = [one for one in rule.conditions if expression_variables(one) & assigned]
    for condition in rule.conditions:
        if condition not in late:
            node = Filter(condition, node)
    node = _bound(node, rule.binds)
    for condition in (*late, *rule.absent):
        node = Filter(condition, node)
    if (grouped := rule.aggregation) is not None:
        node = _bound(Group(node, grouped.keys, grouped.aggregates), grouped.binds)
        for condition in grouped.conditions:
            node = Filter(condition, node)
    return _reading(node, rule.into)


def _bound(node: Node, binds: Iterable[Bind]) -> Node:
    for variable, expression in binds:
        node = Extend(node, variable, expression)
    return node


def _branches(node: Node) -> list[Node]:
    """Return parts without a UNION where each solution has one branch of it; the union of these is the node."""
    match node:
        case Union():
            return [*_branches(node.left), *_branches(node.right)]
        case Join():
            return [Join(left, right) for left, right in product(_branches(node.left), _branches(node.right))]
        case LeftJoin() | Minus():
            return [replace(node, left=left) for left in _branches(node.left)]
        case Filter() | Extend():
            return [replace(node, pattern=pattern) for pattern in _branches(node.pattern)]
        case _:
            return [node]


def _grouped(node: Node) -> Node:
    """Return a SELECT with groups without its projection."""
    while isinstance(node, Distinct | Project):
        node = node.pattern
    return node


def _matched(node: Node) -> Iterator[TriplePattern]:
    """Yield the patterns that every solution of a part matches."""
    match node:
        case Bgp(patterns=patterns):
            yield from patterns
        case Join():
            yield from _matched(node.left)
            yield from _matched(node.right)
        case LeftJoin() | Minus():
            yield from _matched(node.left)
        case Filter() | Extend() | Group():
            yield from _matched(node.pattern)


def _reading(node: Node, graph: Term | None) -> Node:
    """Return a part whose patterns read a graph where they name none; None: as they are."""
    match node:
        case Bgp(patterns=patterns) if graph is not None:
            return Bgp(tuple(replace(p, graph=graph) if p.graph == DEFAULT else p for p in patterns))
        case PathPattern() if graph is not None and node.graph == DEFAULT:
            return replace(node, graph=graph)
    return node if graph is None else map_children(node, lambda child: _reading(child, graph))


def _without_group(parsed: ParsedRule, node: Node) -> tuple[Node, Aggregation | None]:
    """Take the aggregate off a body that is one."""
    select = parsed.first("SELECT")
    if select is None:
        grouping = parsed.first("GROUP", "HAVING")
        if grouping is not None:
            expected = "a group in a rule as WHERE { SELECT ... WHERE { ... } GROUP BY ... }"
            raise parsed.error(expected, f"'{grouping.text}'", token=grouping)
        return node, None
    binds: list[Bind] = []
    conditions: list[Expression] = []
    node = _grouped(node)
    while isinstance(node, Extend):
        binds.insert(0, (node.variable, node.expression))
        node = node.pattern
    while isinstance(node, Filter):
        conditions[:0] = _conjuncts(node.condition)
        node = node.pattern
    if not isinstance(node, Group) or not node.keys:
        hint = "without groups, write the pattern in WHERE itself; a count of all rows has no key: choose one"
        raise parsed.error("SELECT ... GROUP BY ?key, and nothing beside it, in a rule", "another SELECT", hint, select)
    return node.pattern, Aggregation(node.keys, node.aggregates, tuple(binds), tuple(conditions))


def _bodies(parsed: ParsedRule, node: Node) -> list[_Body]:
    """Return what a pattern says as lists: one for each choice of branches."""
    match node:
        case Bgp():
            _check_graphs(parsed, node.patterns)
            return [_Body(node.patterns)]
        case Values():
            return [_Body(tables=(node,))]
        case Join():
            left, right = _bodies(parsed, node.left), _bodies(parsed, node.right)
            _check_count(parsed, len(left) * len(right))
            return [one.joined(other) for one, other in product(left, right)]
        case Union():
            found = [*_bodies(parsed, node.left), *_bodies(parsed, node.right)]
            _check_count(parsed, len(found))
            return found
        case Filter():
            return [_filtered(parsed, body, node.condition) for body in _bodies(parsed, node.pattern)]
        case Extend():
            return [_extended(parsed, body, node) for body in _bodies(parsed, node.pattern)]
        case _:
            expected = "triple patterns, GRAPH <iri>, FILTER, NOT EXISTS, BIND, VALUES and UNION in a rule"
            raise parsed.error(expected, type(node).__name__)


def _no_pattern(parsed: ParsedRule) -> RuleError:
    hint = "put what always holds into the graph itself, by INSERT DATA"
    return parsed.error("a triple pattern outside of NOT EXISTS in a rule", "none", hint)


def _check_count(parsed: ParsedRule, count: int) -> None:
    if count > BRANCHES_MAX:
        expected = f"at most {BRANCHES_MAX} choices of UNION branches in a rule"
        raise parsed.error(expected, f"{count}", "write several rules", parsed.first("UNION"))


def _check_graphs(parsed: ParsedRule, patterns: Iterable[TriplePattern | PathPattern | GraphNames]) -> None:
    for pattern in patterns:
        if isinstance(pattern.graph, Term) and pattern.graph.text.startswith(OWN_GRAPHS):
            hint = "a pattern without GRAPH reads the graph that the rule is installed into"
            expected = "a graph of your own after GRAPH in a rule"
            raise parsed.error(expected, pattern.graph.text, hint, parsed.first("GRAPH"))


def _filtered(parsed: ParsedRule, body: _Body, condition: Expression) -> _Body:
    bound = body.bound()
    conditions, absent = list(body.conditions), list(body.absent)
    for part in _conjuncts(condition):
        if isinstance(part, Exists):
            absent += [(Exists(node, negated=True), bound) for node in _absent(parsed, part.pattern, bound)]
        else:
            conditions.append((part, bound))
    return replace(body, conditions=tuple(conditions), absent=tuple(absent))


def _absent(parsed: ParsedRule, node: Node, outer: frozenset[Variable]) -> list[Node]:
    """Return the patterns that must all be absent: one for each branch of a NOT EXISTS."""
    made: list[Node] = []
    for body in _bodies(parsed, node):
        if not body.patterns:
            hint = "leave it out: a pattern without triples has a solution always, or never"
            raise parsed.error("a triple pattern in NOT EXISTS of a rule", "none", hint, parsed.first("EXISTS"))
        inner: Node = Bgp(body.patterns)
        for condition, seen in body.conditions:
            _check_bound(parsed, expression_variables(condition), seen | outer, "FILTER")
            inner = Filter(condition, inner)
        made.append(inner)
    return made


def _extended(parsed: ParsedRule, body: _Body, node: Extend) -> _Body:
    _check_bound(parsed, expression_variables(node.expression), body.bound(), "BIND")
    return replace(body, binds=(*body.binds, (node.variable, node.expression)))


def _conjuncts(condition: Expression) -> list[Expression]:
    if isinstance(condition, Call) and condition.op == "&&":
        return [part for argument in condition.arguments for part in _conjuncts(argument)]
    return [condition]


def warnings_of(rules: Iterable[Rule]) -> list[str]:
    """Say which rules conclude nothing new, whatever the data are."""
    found = []
    for rule in rules:
        if any(not table.rows for table in rule.tables):
            found.append(f"rule {rule.name} concludes nothing: its VALUES has no row")
        elif rule.aggregation is None and any(
            (one.subject, one.predicate, one.object) == (rule.head.subject, rule.head.predicate, rule.head.object)
            and one.graph in (DEFAULT, rule.into)
            for one in rule.patterns
        ):
            found.append(f"rule {rule.name} concludes nothing new: {_shown(rule.head)} is one of its patterns")
    return found


# --- what a rule must keep --------------------------------------------------------------------------------------------


def _check_body(parsed: ParsedRule, body: _Body) -> None:
    if not body.patterns:
        raise _no_pattern(parsed)
    matched, bound = body.matched(), body.bound()
    names = [variable for variable, _ in body.binds]
    for name in names:
        if name in matched or names.count(name) > 1:
            hint = "bind another variable, and compare the two in a FILTER"
            expected = "a variable after AS that stands nowhere else as a value"
            raise parsed.error(expected, f"?{name.name}", hint, parsed.mention(name.name, "BIND"))
    for condition, seen in body.conditions:
        _check_bound(parsed, expression_variables(condition), seen, "FILTER")
    for absent, seen in body.absent:
        _check_bound(parsed, mentioned_variables(absent.pattern) & bound, seen, "FILTER")


def _check_bound(parsed: ParsedRule, read: Iterable[Variable], bound: frozenset[Variable], word: str) -> None:
    for variable in sorted(set(read) - bound, key=str):
        hint = f"let a pattern of the same group (and of each UNION branch) bind it, before {word}"
        expected = f"variables in {word} that its group binds"
        raise parsed.error(expected, f"?{variable.name}", hint, parsed.mention(variable.name, word))


def _check_aggregation(parsed: ParsedRule, found: Aggregation, bound: frozenset[Variable]) -> None:
    _check_bound(parsed, found.keys, bound, "GROUP")
    for _, aggregate in found.aggregates:
        if aggregate.name == "SAMPLE":  # made by the parser
            hint = "name the key or the aggregate that is meant"
            token = parsed.first("HAVING")
            raise parsed.error("keys and aggregates only in HAVING", "another variable", hint, token)
        if aggregate.argument is not None:
            _check_bound(parsed, expression_variables(aggregate.argument), bound, "SELECT")


def _check_head(parsed: ParsedRule, head: TriplePattern, bound: frozenset[Variable], has_branches: bool) -> None:
    for variable in head.variables():
        if variable not in bound:
            where = "in each branch of UNION" if has_branches else "in WHERE"
            hint = f"bind it {where}, outside of NOT EXISTS, or leave the triple out"
            token = parsed.mention(variable.name)
            raise parsed.error("variables in the template that every solution binds", f"?{variable.name}", hint, token)


# --- strata -----------------------------------------------------------------------------------------------------------


_ANY = Variable("")
"""The predicate of a head that may have any."""


@dataclass(frozen=True, slots=True)
class _Edge:
    """A rule, by its index, that reads what another one concludes, and how; is_strict: it has to know all of it."""

    target: int
    is_strict: bool
    by: str


def may_feed(head: TriplePattern, head_graph: Term | None, pattern: TriplePattern, pattern_graph: Term | None) -> bool:
    """Tell whether a conclusion may match a pattern. A pattern_graph is that of the rule, if the pattern names none."""
    pairs = (
        (head.predicate, pattern.predicate),
        (head.object, pattern.object),
        (head.subject, pattern.subject),
    )
    return head_graph == pattern_graph and all(
        one == other or isinstance(one, Variable) or isinstance(other, Variable) for one, other in pairs
    )


def _edges(rules: Sequence[Rule]) -> list[list[_Edge]]:
    """Return, for each rule, those that read what it concludes."""
    heads: dict[tuple[Term | None, TermOrVariable], list[int]] = {}
    for index, rule in enumerate(rules):
        predicate = rule.head.predicate
        heads.setdefault((rule.into, _ANY if isinstance(predicate, Variable) else predicate), []).append(index)
    edges: list[list[_Edge]] = [[] for _ in rules]
    for target, rule in enumerate(rules):
        for pattern, is_strict, by in reads_of(rule):
            graph = _graph_of(rule, pattern)
            for source in _feeders(heads, graph, pattern.predicate):
                if may_feed(rules[source].head, rules[source].into, pattern, graph):
                    edges[source].append(_Edge(target, is_strict, by))
    return edges


def _graph_of(rule: Rule, pattern: TriplePattern) -> Term | None:
    """Return the graph that a pattern of a rule reads; None is the default graph."""
    graph = pattern.graph
    if not isinstance(graph, Term):
        return rule.into
    return None if graph == STORED_DEFAULT else graph


def _feeders(
    heads: dict[tuple[Term | None, TermOrVariable], list[int]], graph: Term | None, predicate: TermOrVariable
) -> list[int]:
    if isinstance(predicate, Variable):
        return [index for (into, _), found in heads.items() if into == graph for index in found]
    return [*heads.get((graph, predicate), ()), *heads.get((graph, _ANY), ())]


_FROM, _BY, _TO = Variable("from"), Variable("by"), Variable("to")
"""The parts of the triples that a path or the existence of a graph reads."""
Reads = Iterator[tuple[TriplePattern, bool, str]]


def reads_of(rule: Rule) -> Reads:
    """Yield each pattern of a rule, whether it has to be complete, and the pattern in words. A path is a pattern for
    each of its links; if it may have no length, and both ends may be any node, it reads all triples of its graph. So
    does a block of GRAPH that begins with something else than triples: it asks whether there is such a graph."""
    is_grouped = rule.aggregation is not None
    if rule.where is not None:
        yield from _reads_in(rule.where, "a group of" if is_grouped else "", frozenset())
        return
    for pattern in rule.patterns:
        yield pattern, is_grouped, f"a group of {_shown(pattern)}" if is_grouped else _shown(pattern)
    for absent in rule.absent:
        yield from _reads_in(absent.pattern, "NOT EXISTS", frozenset())


def _reads_in(node: Node, word: str, nodes: frozenset[tuple[GraphRef, Variable]]) -> Reads:
    """word: by what it has to be complete, empty if it has not. nodes: the variables of the solutions around it that
    are nodes of graphs."""
    known = nodes | _nodes_in(node)
    match node:
        case Bgp(patterns=patterns):
            yield from ((pattern, bool(word), _words(word, _shown(pattern))) for pattern in patterns)
        case PathPattern(path=path, graph=graph):
            automaton = automaton_of(path)
            predicates = [link.predicate or _BY for link in automaton.links()]
            ends = [end for end in (node.subject, node.object) if isinstance(end, Variable)]
            if automaton.is_nullable and len(ends) == 2 and not any((graph, end) in nodes for end in ends):
                predicates.append(_BY)
            for predicate in dict.fromkeys(predicates):
                pattern = TriplePattern(_FROM, predicate, _TO, graph)
                yield pattern, True, _words(word or "a path of", _shown(pattern))
        case GraphNames(graph=graph):
            pattern = TriplePattern(_FROM, _BY, _TO, graph)
            yield pattern, True, _words(word or "the existence of", _shown(pattern))
        case Join() | Union():
            inner = known if isinstance(node, Join) else nodes
            yield from _reads_in(node.left, word, inner)
            yield from _reads_in(node.right, word, inner)
        case LeftJoin() | Minus():
            yield from _reads_in(node.left, word, nodes)
            yield from _reads_in(node.right, word or ("MINUS" if isinstance(node, Minus) else "OPTIONAL"), known)
        case Filter(pattern=pattern) | Extend(pattern=pattern) | Group(pattern=pattern):
            yield from _reads_in(pattern, word, nodes)
    for expression in node_expressions(node):
        for exists in exists_patterns(expression):
            yield from _reads_in(exists.pattern, "NOT EXISTS" if exists.negated else "EXISTS", known)


def _nodes_in(node: Node) -> frozenset[tuple[GraphRef, Variable]]:
    """Return the variables that are nodes of a graph in every solution, as far as triple patterns say so."""
    match node:
        case Bgp(patterns=patterns):
            ends = [(one.graph, end) for one in patterns for end in (one.subject, one.object)]
            return frozenset((graph, end) for graph, end in ends if isinstance(end, Variable))
        case Join():
            return _nodes_in(node.left) | _nodes_in(node.right)
        case LeftJoin() | Minus():
            return _nodes_in(node.left)
        case Filter(pattern=pattern) | Extend(pattern=pattern):
            return _nodes_in(pattern)
    return frozenset()


def _words(word: str, shown: str) -> str:
    return f"{word} {shown}" if word.endswith("of") else f"{word} {{ {shown} }}" if word else shown


def _shown(pattern: TriplePattern) -> str:
    triple = " ".join(map(_name, (pattern.subject, pattern.predicate, pattern.object)))
    return triple if pattern.graph in (DEFAULT, STORED_DEFAULT) else f"GRAPH {pattern.graph} {{ {triple} }}"


def _name(part: TermOrVariable) -> str:
    """Return a part of a triple as its rule has it: a variable of a subquery is called `?name.1`, one without a name
    begins with a dot."""
    if isinstance(part, Variable) and "." in part.name:
        return "[]" if part.is_blank else f"?{part.name.partition('.')[0]}"
    return str(part)


def _components(edges: Sequence[Sequence[_Edge]]) -> list[set[int]]:
    """Return the strongly connected components, each after those that it reads (Tarjan, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    waiting: list[int] = []
    is_waiting: set[int] = set()
    found: list[set[int]] = []
    for root in reversed(range(len(edges))):
        if root in order:
            continue
        path = [(root, iter(edges[root]))]
        order[root] = low[root] = len(order)
        waiting.append(root)
        is_waiting.add(root)
        while path:
            index, left = path[-1]
            edge = next(left, None)
            if edge is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[index])
                if low[index] == order[index]:
                    at = waiting.index(index)
                    members = set(waiting[at:])
                    del waiting[at:]
                    is_waiting -= members
                    found.append(members)
            elif edge.target not in order:
                order[edge.target] = low[edge.target] = len(order)
                waiting.append(edge.target)
                is_waiting.add(edge.target)
                path.append((edge.target, iter(edges[edge.target])))
            elif edge.target in is_waiting:
                low[index] = min(low[index], order[edge.target])
    return found[::-1]  # found from the last reader on


def _circle(rules: Sequence[Rule], edges: Sequence[Sequence[_Edge]], members: set[int], edge: _Edge) -> RuleError:
    """Say how a rule is read, through others, by one that must know all that it concludes."""
    source = next(index for index in members if edge in edges[index])
    came_by: dict[int, tuple[int, _Edge]] = {}
    reached = [edge.target]
    for index in reached:
        for step in edges[index]:
            if step.target in members and step.target not in came_by:
                came_by[step.target] = index, step
                reached.append(step.target)
    told: list[str] = []
    at = source
    while at != edge.target:
        at, step = came_by[at]
        told.insert(0, f"feeds {rules[step.target].name} by {step.by}")
    text = f"{rules[source].name} feeds {rules[edge.target].name} by {edge.by}"
    return RuleError(
        "rules without a circle through NOT EXISTS, EXISTS, OPTIONAL, MINUS, GROUP BY or a path",
        ", which ".join([text, *told]),
        suggestion="a rule may ask what is absent, count, or search a path, only where none of its conclusions can "
        "matter",
    )
