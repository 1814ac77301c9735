"""Rules by plain sets: every rule over everything, round after round, until nothing new comes.

A term is its N-Triples text, a variable a text that begins with `?`, a triple three of them. The stored graphs are
sets by name, "" for the default graph. A rule has heads, and bodies of which each is tried alone (UNION). A rule
installed `into` a graph reads that graph where a pattern names none, and concludes into it.

A conclusion whose subject is a literal, or whose predicate is no IRI, or that lacks a term, is not drawn. Rules are
evaluated by levels: what NOT EXISTS, EXISTS, OPTIONAL, MINUS, a path or an aggregate reads has a lower level than the
rule. A program without such levels has a cycle (`Unstratified`). Which head may feed which pattern is told by graph,
predicate, and, for rdf:type with a constant class, the class; a variable may equal anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

RDF_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
INTEGER = "<http://www.w3.org/2001/XMLSchema#integer>"

Triple = tuple[str, str, str]
Bindings = dict[str, str]
Graphs = dict[str, frozenset[Triple]]
"""Graph name -> its triples; "" is the default graph."""


class Unstratified(Exception):
    """A rule reads, through what has to be complete, something that hangs on its own conclusions."""


def integer(value: int) -> str:
    return f'"{value}"^^{INTEGER}'


def number_of(term: str | None) -> int | None:
    """The value of an xsd:integer, None of anything else."""
    return int(term[1 : term.index('"', 1)]) if term is not None and term.endswith(f"^^{INTEGER}") else None


def is_variable(term: str) -> bool:
    return term.startswith("?")


# --- rules ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pattern:
    """graph: the IRI of GRAPH <iri> { ... }, None without GRAPH."""

    subject: str
    predicate: str
    object: str
    graph: str | None = None

    @property
    def terms(self) -> Triple:
        return self.subject, self.predicate, self.object

    @property
    def variables(self) -> set[str]:
        return {term for term in self.terms if is_variable(term)}

    def text(self) -> str:
        triple = " ".join(self.terms) + " ."
        return triple if self.graph is None else f"GRAPH {self.graph} {{ {triple} }}"


@dataclass(frozen=True)
class Filter:
    """text: the SPARQL expression; holds: the same over bindings. An error of an expression is False."""

    text: str
    holds: Callable[[Bindings], bool]


@dataclass(frozen=True)
class Bind:
    """value: the term, None for an error, which leaves the variable unbound."""

    variable: str
    text: str
    value: Callable[[Bindings], str | None]


def _group(patterns: tuple[Pattern, ...], filters: tuple[Filter, ...], more: tuple[str, ...] = ()) -> str:
    inside = [*(one.text() for one in patterns), *(f"FILTER ({one.text})" for one in filters), *more]
    return f"{{ {' '.join(inside)} }}"


@dataclass(frozen=True)
class Absent:
    """FILTER NOT EXISTS { patterns, filters, and further ones of its kind }; is_there: FILTER EXISTS."""

    patterns: tuple[Pattern, ...]
    filters: tuple[Filter, ...] = ()
    inner: tuple[Absent, ...] = ()
    is_there: bool = False

    def text(self) -> str:
        word = "EXISTS" if self.is_there else "NOT EXISTS"
        return f"FILTER {word} {_group(self.patterns, self.filters, tuple(one.text() for one in self.inner))}"

    def all_patterns(self) -> Iterator[Pattern]:
        yield from self.patterns
        for one in self.inner:
            yield from one.all_patterns()


@dataclass(frozen=True)
class Optional:
    """OPTIONAL { patterns, filters }. is_minus: MINUS instead, whose filters mention its own variables only."""

    patterns: tuple[Pattern, ...]
    filters: tuple[Filter, ...] = ()
    is_minus: bool = False

    def text(self) -> str:
        return f"{'MINUS' if self.is_minus else 'OPTIONAL'} {_group(self.patterns, self.filters)}"


@dataclass(frozen=True)
class Walk:
    """A path of one predicate. mark: + * or ?."""

    subject: str
    predicate: str
    mark: str
    object: str

    def text(self) -> str:
        return f"{self.subject} {self.predicate}{self.mark} {self.object} ."


@dataclass(frozen=True)
class Body:
    """values: a variable and the terms of its VALUES. optional: one after the other."""

    patterns: tuple[Pattern, ...]
    filters: tuple[Filter, ...] = ()
    absent: tuple[Absent, ...] = ()
    binds: tuple[Bind, ...] = ()
    values: tuple[str, tuple[str, ...]] | None = None
    walks: tuple[Walk, ...] = ()
    optional: tuple[Optional, ...] = ()

    @property
    def is_list(self) -> bool:
        """Whether it has no part that only a part of a query says."""
        return not (self.walks or self.optional or any(one.inner or one.is_there for one in self.absent))

    def text(self) -> str:
        parts = [one.text() for one in self.patterns]
        parts += [one.text() for one in self.walks]
        if self.values is not None:
            parts.append(f"VALUES {self.values[0]} {{ {' '.join(self.values[1])} }}")
        parts += [one.text() for one in self.optional]
        parts += [f"BIND ({one.text} AS {one.variable})" for one in self.binds]
        parts += [f"FILTER ({one.text})" for one in self.filters]
        parts += [one.text() for one in self.absent]
        return " ".join(parts)


@dataclass(frozen=True)
class Group:
    """function: COUNT, SUM or MAX, of xsd:integer for the latter two; at_least: HAVING (?result >= at_least)."""

    keys: tuple[str, ...]
    function: str
    argument: str
    result: str
    at_least: int | None = None

    def text(self, body: Body) -> str:
        keys = " ".join(self.keys)
        call = f"{self.function}({self.argument})"
        having = "" if self.at_least is None else f" HAVING ({call} >= {self.at_least})"
        return f"SELECT {keys} ({call} AS {self.result}) WHERE {{ {body.text()} }} GROUP BY {keys}{having}"

    def value(self, terms: list[str]) -> int:
        if self.function == "COUNT":
            return len(terms)
        numbers = [number for number in map(number_of, terms) if number is not None]
        assert len(numbers) == len(terms), f"{self.function} of something else than integers: {terms}"
        return sum(numbers) if self.function == "SUM" else max(numbers)


@dataclass(frozen=True)
class Rule:
    name: str
    heads: tuple[Pattern, ...]
    bodies: tuple[Body, ...]
    group: Group | None = None

    def where(self) -> str:
        if self.group is not None:
            [body] = self.bodies
            return self.group.text(body)
        if len(self.bodies) == 1:
            return self.bodies[0].text()
        return " UNION ".join(f"{{ {body.text()} }}" for body in self.bodies)

    def construct(self) -> str:
        """The rule as a CONSTRUCT query."""
        template = " ".join(head.text() for head in self.heads)
        return f"CONSTRUCT {{ {template} }} WHERE {{ {self.where()} }}"

    def text(self) -> str:
        return f"RULE {self.name}: {self.construct()}"


def text_of(rules: Iterable[Rule]) -> str:
    """The rules as a rule file."""
    return "".join(f"{rule.text()}\n" for rule in rules)


# --- levels -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Unit:
    """One head with one body, and the graph that it is installed into ("" for the default graph)."""

    rule: Rule
    head: Pattern
    body: Body
    into: str

    def reads(self) -> Iterator[tuple[Pattern, bool]]:
        """Yield each pattern of the body, and whether what it reads has to be known completely before."""
        for pattern in self.body.patterns:
            yield pattern, self.rule.group is not None
        for absent in self.body.absent:
            for pattern in absent.all_patterns():
                yield pattern, True
        for optional in self.body.optional:
            for pattern in optional.patterns:
                yield pattern, True
        for walk in self.body.walks:
            yield Pattern("?from", walk.predicate, "?to"), True
            if walk.mark != "+" and self._is_free(walk):
                yield Pattern("?from", "?by", "?to"), True

    def _is_free(self, walk: Walk) -> bool:
        """Whether a walk of no length begins and ends at any node that there is."""
        ends = [pattern for pattern in self.body.patterns if pattern.graph is None]
        known = {end for pattern in ends for end in (pattern.subject, pattern.object)}
        return all(is_variable(end) and end not in known for end in (walk.subject, walk.object))

    def feeds(self, other: _Unit, pattern: Pattern) -> bool:
        if self.into != (other.into if pattern.graph is None else pattern.graph):
            return False
        if not _may_equal(self.head.predicate, pattern.predicate):
            return False
        is_type = RDF_TYPE in (self.head.predicate, pattern.predicate)
        return not is_type or _may_equal(self.head.object, pattern.object)


def _may_equal(one: str, other: str) -> bool:
    return is_variable(one) or is_variable(other) or one == other


def _levels(units: list[_Unit]) -> list[list[_Unit]]:
    level = dict.fromkeys(units, 0)
    edges = [
        (reader, feeder, int(is_strict))
        for reader in units
        for pattern, is_strict in reader.reads()
        for feeder in units
        if feeder.feeds(reader, pattern)
    ]
    changed = True
    while changed:
        changed = False
        for reader, feeder, step in edges:
            if level[reader] < level[feeder] + step:
                level[reader] = level[feeder] + step
                changed = True
                if level[reader] > len(units):
                    raise Unstratified(reader.rule.name)
    return [[unit for unit in units if level[unit] == at] for at in range(max(level.values(), default=-1) + 1)]


# --- evaluation -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Support:
    """Why a triple was concluded first: the rule, and the triples that its patterns matched, with their graphs."""

    rule: str
    premises: frozenset[tuple[str, Triple]]


@dataclass(frozen=True)
class Tree:
    """A derivation. rule is None: the triple is explicit, and there are no premises. left_out: how many more there
    are."""

    graph: str
    triple: Triple
    rule: str | None = None
    premises: tuple[Tree, ...] = ()
    left_out: int = 0


@dataclass
class Program:
    """Rules by the graph that they are installed into. Raises Unstratified."""

    rules: tuple[tuple[str, Rule], ...]
    """Pairs of the graph ("" for the default graph) and a rule."""
    _levels: list[list[_Unit]] = field(init=False)

    def __post_init__(self) -> None:
        units = [
            _Unit(rule, head, body, into) for into, rule in self.rules for head in rule.heads for body in rule.bodies
        ]
        self._levels = _levels(units)

    @staticmethod
    def of(rules: Iterable[Rule], into: str = "") -> Program:
        return Program(tuple((into, rule) for rule in rules))

    def closure(self, explicit: Mapping[str, Iterable[Triple]]) -> Closure:
        found = Closure({graph: frozenset(triples) for graph, triples in explicit.items()})
        for level in self._levels:
            is_new = True
            while is_new:
                is_new = False
                for unit in level:
                    for triple, support in list(_conclusions(unit, found)):
                        is_new |= found.add(unit.into, triple, support)
        return found

    def is_derivable_at_once(self, closure: Closure, graph: str, triple: Triple) -> bool:
        """Whether some rule concludes the triple from what the closure holds."""
        return any(
            unit.into == graph and concluded == triple
            for unit in chain.from_iterable(self._levels)
            for concluded, _ in _conclusions(unit, closure)
        )

    def holds(self, closure: Closure, tree: Tree) -> bool:
        """Whether a derivation is one: each step is a rule's, leaves are explicit, no triple stands on itself."""
        return self._holds(closure, tree, frozenset(), {})

    def _holds(
        self,
        closure: Closure,
        tree: Tree,
        above: frozenset[tuple[str, Triple]],
        concluded: dict[tuple[str, str], dict[Triple, list[Support]]],
    ) -> bool:
        """concluded: what each rule, by its graph, concludes, of those that were asked for so far."""
        key = tree.graph, tree.triple
        if key in above:
            return False
        if tree.rule is None:
            return not tree.premises and tree.triple in closure.explicit.get(tree.graph, ())
        if (tree.rule, tree.graph) not in concluded:
            found = concluded[tree.rule, tree.graph] = {}
            for unit in chain.from_iterable(self._levels):
                if (unit.rule.name, unit.into) == (tree.rule, tree.graph):
                    for triple, support in _conclusions(unit, closure):
                        found.setdefault(triple, []).append(support)
        premises = frozenset((one.graph, one.triple) for one in tree.premises)
        is_step = any(
            premises <= support.premises and len(support.premises - premises) == tree.left_out
            for support in concluded[tree.rule, tree.graph].get(tree.triple, ())
        )
        return is_step and all(self._holds(closure, one, above | {key}, concluded) for one in tree.premises)


@dataclass
class Closure:
    """All triples of all graphs, told apart: explicit ones, and those that rules conclude besides."""

    explicit: Graphs
    inferred: dict[str, set[Triple]] = field(default_factory=dict)
    first: dict[tuple[str, Triple], Support] = field(default_factory=dict)
    """Per inferred triple the support that it was found by; its premises were there before."""
    _by_predicate: dict[str, dict[str, set[Triple]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for graph, triples in self.explicit.items():
            for triple in triples:
                self._by_predicate.setdefault(graph, {}).setdefault(triple[1], set()).add(triple)

    def add(self, graph: str, triple: Triple, support: Support) -> bool:
        """Add a conclusion; return whether it is new."""
        known = self._by_predicate.setdefault(graph, {}).setdefault(triple[1], set())
        if triple in known:
            return False
        known.add(triple)
        self.inferred.setdefault(graph, set()).add(triple)
        self.first[graph, triple] = support
        return True

    def all(self, graph: str = "") -> frozenset[Triple]:
        return frozenset(chain.from_iterable(self._by_predicate.get(graph, {}).values()))

    def only_inferred(self, graph: str = "") -> frozenset[Triple]:
        return frozenset(self.inferred.get(graph, ()))

    def matching(self, graph: str, predicate: str) -> Iterable[Triple]:
        by_predicate = self._by_predicate.get(graph, {})
        return chain.from_iterable(by_predicate.values()) if is_variable(predicate) else by_predicate.get(predicate, ())

    def derivation(self, graph: str, triple: Triple) -> Tree | None:
        """A derivation of a triple, None if it is not there."""
        if triple in self.explicit.get(graph, ()):
            return Tree(graph, triple)
        support = self.first.get((graph, triple))
        if support is None:
            return None
        premises = tuple(self.derivation(*premise) for premise in sorted(support.premises))
        return Tree(graph, triple, support.rule, tuple(one for one in premises if one is not None))


def _conclusions(unit: _Unit, closure: Closure) -> Iterator[tuple[Triple, Support]]:
    for bindings, premises in _solutions(unit, closure):
        triple = tuple(bindings.get(term) if is_variable(term) else term for term in unit.head.terms)
        if None in triple or triple[0].startswith('"') or not triple[1].startswith("<"):
            continue
        yield triple, Support(unit.rule.name, premises)


def _solutions(unit: _Unit, closure: Closure) -> Iterator[tuple[Bindings, frozenset[tuple[str, Triple]]]]:
    found = list(_of_body(unit.body, unit.into, closure))
    group = unit.rule.group
    if group is None:
        yield from found
        return
    groups: dict[tuple[str, ...], list[tuple[Bindings, frozenset[tuple[str, Triple]]]]] = {}
    for bindings, premises in found:
        groups.setdefault(tuple(bindings[key] for key in group.keys), []).append((bindings, premises))
    for keys, members in groups.items():
        value = group.value([bindings[group.argument] for bindings, _ in members])
        if group.at_least is None or value >= group.at_least:
            premises = frozenset(chain.from_iterable(premises for _, premises in members))
            yield dict(zip(group.keys, keys, strict=True)) | {group.result: integer(value)}, premises


def _of_body(body: Body, into: str, closure: Closure) -> Iterator[tuple[Bindings, frozenset[tuple[str, Triple]]]]:
    for bindings, premises in _of_parts(body, into, closure):
        for bind in body.binds:
            value = bind.value(bindings)
            if value is not None:
                bindings = {**bindings, bind.variable: value}
        if all(one.holds(bindings) for one in body.filters) and not any(
            _exists(absent, into, closure, bindings) != absent.is_there for absent in body.absent
        ):
            yield bindings, premises


def _of_parts(body: Body, into: str, closure: Closure) -> Iterator[tuple[Bindings, frozenset[tuple[str, Triple]]]]:
    """The solutions before BIND and FILTER."""
    found = [
        (bindings, premises)
        for matched, premises in _matches(body.patterns, into, closure, {})
        for walked in _with_walks(body.walks, into, closure, matched)
        for bindings in _with_values(body, walked)
    ]
    for part in body.optional:
        if part.is_minus:
            others = [one for one, _ in _matches(part.patterns, into, closure, {}) if _passes(part.filters, one)]
            found = [(one, premises) for one, premises in found if not any(_excludes(other, one) for other in others)]
            continue
        extended = []
        for bindings, premises in found:
            more = [
                (one, premises | others)
                for one, others in _matches(part.patterns, into, closure, bindings)
                if _passes(part.filters, one)
            ]
            extended += more or [(bindings, premises)]
        found = extended
    yield from found


def _passes(filters: tuple[Filter, ...], bindings: Bindings) -> bool:
    return all(one.holds(bindings) for one in filters)


def _excludes(one: Bindings, other: Bindings) -> bool:
    shared = one.keys() & other.keys()
    return bool(shared) and all(one[variable] == other[variable] for variable in shared)


def _with_walks(walks: tuple[Walk, ...], into: str, closure: Closure, bindings: Bindings) -> Iterator[Bindings]:
    if not walks:
        yield bindings
        return
    walk, *others = walks
    for first, last in _walked(walk, into, closure):
        found = _bound(Pattern(walk.subject, walk.predicate, walk.object), (first, walk.predicate, last), bindings)
        if found is not None:
            yield from _with_walks(tuple(others), into, closure, found)


def _walked(walk: Walk, into: str, closure: Closure) -> set[tuple[str, str]]:
    """All pairs of a path, those of no length of all nodes and of the path's own ends."""
    steps = {(subject, object_) for subject, _, object_ in closure.matching(into, walk.predicate)}
    found = set(steps)
    while walk.mark != "?":
        more = {(first, last) for first, middle in found for at, last in steps if at == middle} - found
        if not more:
            break
        found |= more
    if walk.mark != "+":
        found |= {(end, end) for triple in closure.all(into) for end in (triple[0], triple[2])}
        found |= {(end, end) for end in (walk.subject, walk.object) if not is_variable(end)}
    return found


def _with_values(body: Body, bindings: Bindings) -> Iterator[Bindings]:
    if body.values is None:
        yield bindings
        return
    variable, terms = body.values
    for term in terms:
        if bindings.get(variable, term) == term:
            yield {**bindings, variable: term}


def _exists(absent: Absent, into: str, closure: Closure, outside: Bindings) -> bool:
    return any(
        _passes(absent.filters, bindings)
        and all(_exists(one, into, closure, bindings) == one.is_there for one in absent.inner)
        for bindings, _ in _matches(absent.patterns, into, closure, outside)
    )


def _matches(
    patterns: tuple[Pattern, ...], into: str, closure: Closure, bindings: Bindings
) -> Iterator[tuple[Bindings, frozenset[tuple[str, Triple]]]]:
    if not patterns:
        yield bindings, frozenset()
        return
    pattern, *others = patterns
    graph = into if pattern.graph is None else pattern.graph
    for triple in list(closure.matching(graph, bindings.get(pattern.predicate, pattern.predicate))):
        found = _bound(pattern, triple, bindings)
        if found is not None:
            for more, premises in _matches(tuple(others), into, closure, found):
                yield more, premises | {(graph, triple)}


def _bound(pattern: Pattern, triple: Triple, bindings: Bindings) -> Bindings | None:
    found = bindings
    for term, value in zip(pattern.terms, triple, strict=True):
        if not is_variable(term):
            if term != value:
                return None
        elif term not in found:
            found = {**found, term: value}
        elif found[term] != value:
            return None
    return found
