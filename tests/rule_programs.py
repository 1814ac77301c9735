"""Random small rule programs and the terms that they are about. Few names, so that rules feed each other.

Objects are nodes, classes, predicates and integers. SUM and MAX take integers only; no rule counts without a bound.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.oracles.rules import (
    RDF_TYPE,
    Absent,
    Bind,
    Bindings,
    Body,
    Filter,
    Group,
    Optional,
    Pattern,
    Program,
    Rule,
    Triple,
    Unstratified,
    Walk,
    integer,
    is_variable,
    number_of,
)

EX = "http://ex/"


def a(name: str) -> str:
    return f"<{EX}{name}>"


GRAPH = a("graph")
NODES = [a(f"n{at}") for at in range(5)]
CLASSES = [a(f"C{at}") for at in range(3)]
PREDICATES = [a(name) for name in "pqr"]
SIZE, SUB, COUNTED = a("size"), a("sub"), a("counted")
X, Y, Z, N, P = "?x", "?y", "?z", "?n", "?p"


def random_triple(random: Random) -> Triple:
    kind = random.random()
    if kind < 0.6:
        return random.choice(NODES), random.choice(PREDICATES), random.choice(NODES)
    if kind < 0.75:
        return random.choice(NODES), RDF_TYPE, random.choice(CLASSES)
    if kind < 0.9:
        return random.choice(NODES), SIZE, integer(random.randrange(4))
    return random.choice(PREDICATES), SUB, random.choice(PREDICATES)


def random_rules(random: Random, prefix: str = "r", lists_only: bool = False) -> list[Rule]:
    """Return two to seven rules, named after the prefix; they may be unstratified. lists_only: without OPTIONAL, MINUS,
    EXISTS and paths."""
    rules = [_rule(random, f"{prefix}{at}") for at in range(random.randint(2, 7))]
    return rules if lists_only else [_extended(random, one) for one in rules]


def _extended(random: Random, rule: Rule) -> Rule:
    """Give some of the bodies of a rule parts that no list of patterns has."""
    if random.random() < 0.65:
        return rule
    bodies = tuple(_with_parts(random, body) for body in rule.bodies)
    ends = [{v for walk in body.walks for v in (walk.subject, walk.object) if is_variable(v)} for body in bodies]
    more = [{v for part in body.optional if not part.is_minus for v in _variables(part.patterns)} for body in bodies]
    new = sorted(set.intersection(*(one | other for one, other in zip(ends, more, strict=True))))
    if not new or rule.group is not None or random.random() < 0.5:
        return replace(rule, bodies=bodies)
    heads = (replace(rule.heads[0], object=random.choice(new)), *rule.heads[1:])
    return replace(rule, heads=heads, bodies=bodies)


def _with_parts(random: Random, body: Body) -> Body:
    bound = sorted(_bound(body) - {P})
    walks, optional, absent = list[Walk](), list[Optional](), list(body.absent)
    for _ in range(random.choice([1, 1, 2])):
        kind = random.random()
        if kind < 0.35:
            names = [
                random.choice(bound),
                *random.choice([["?o"], ["?o", random.choice(bound)], [random.choice(NODES)]]),
            ]
            patterns = [_pattern(random, names[:1], names[1:], may_vary=False)]
            if random.random() < 0.3:
                patterns.append(_pattern(random, ["?o"], ["?o2", *names[:1]], may_vary=False))
            filters = (_unlike("?o", random.choice(bound)),) if random.random() < 0.3 else ()
            optional.append(Optional(tuple(patterns), filters))
        elif kind < 0.55:
            patterns = [_pattern(random, [random.choice(bound)], ["?m", random.choice(bound)], may_vary=False)]
            optional.append(Optional(tuple(patterns), is_minus=True))
        elif kind < 0.8:
            subject = random.choice([*bound * 3, random.choice(NODES)])
            walks.append(Walk(subject, random.choice(PREDICATES), random.choice("++*?"), random.choice([*bound, "?w"])))
        else:
            one = _absent(random, bound)
            inner = (_absent(random, sorted(_variables(one.patterns))),)
            absent.append(replace(one, is_there=random.random() < 0.5, inner=inner if random.random() < 0.4 else ()))
    return replace(body, walks=tuple(walks), optional=tuple(optional), absent=tuple(absent))


def fitting(installed: list[tuple[str, Rule]], rules: list[tuple[str, Rule]]) -> list[tuple[str, Rule]]:
    """Return those rules, one after the other, that leave what is installed stratified."""
    found: list[tuple[str, Rule]] = []
    for one in rules:
        try:
            Program((*installed, *found, one))
        except Unstratified:
            continue
        found.append(one)
    return found


def _rule(random: Random, name: str) -> Rule:
    kind = random.random()
    if kind < 0.45:
        return replace(random.choice(KNOWN), name=name)
    if kind < 0.6:
        return _group(random, name)
    body = _body(random)
    heads = tuple(_head(random, body) for _ in range(random.choice([1, 1, 1, 2])))
    bodies = [body]
    wanted = {variable for head in heads for variable in head.variables}
    if random.random() < 0.25:
        for _ in range(20):
            other = _body(random)
            if wanted <= _bound(other):
                bodies.append(other)
                break
    return Rule(name, heads, tuple(bodies))


def _bound(body: Body) -> set[str]:
    return _variables(body.patterns)


def _variables(patterns: tuple[Pattern, ...]) -> set[str]:
    return {variable for pattern in patterns for variable in pattern.variables}


def _pattern(random: Random, subjects: list[str], objects: list[str], may_vary: bool = True) -> Pattern:
    subject = random.choice(subjects)
    graph = GRAPH if random.random() < 0.05 else None
    kind = random.random()
    if kind < 0.2:
        return Pattern(subject, RDF_TYPE, random.choice([*CLASSES, *objects[:1]]), graph)
    if kind < 0.3 and may_vary:
        return Pattern(subject, P, random.choice(objects), graph)
    predicate = random.choice([*PREDICATES * 3, SIZE, SUB])
    return Pattern(subject, predicate, random.choice([*objects * 3, random.choice(NODES)]), graph)


def _body(random: Random) -> Body:
    patterns = [_pattern(random, [X], [Y, Z, Y])]
    for _ in range(random.choice([0, 1, 1, 2])):
        bound = sorted({v for one in patterns for v in one.variables if v != P})
        may_vary = all(P not in one.variables for one in patterns)
        patterns.append(_pattern(random, [*bound * 2, random.choice(NODES)], [X, Y, Z], may_vary))
    bound = sorted({variable for one in patterns for variable in one.variables})
    filters = []
    if random.random() < 0.2 and len(bound) > 1:
        filters.append(_unlike(*random.sample(bound, 2)))
    if random.random() < 0.1:
        filters.append(_is_iri(random.choice(bound)))
    absent = tuple(_absent(random, bound) for _ in range(random.choice([0, 0, 0, 0, 1, 1, 2])))
    values = None
    if random.random() < 0.1:
        values = (random.choice(bound), tuple(random.sample([*NODES, *PREDICATES, *CLASSES], 4)))
    return Body(tuple(patterns), tuple(filters), absent, values=values)


def _absent(random: Random, bound: list[str]) -> Absent:
    patterns = [_pattern(random, [random.choice(bound)], ["?f", random.choice(bound)], may_vary=False)]
    if random.random() < 0.2:
        patterns.append(_pattern(random, [random.choice(bound)], ["?f"], may_vary=False))
    free = sorted({variable for one in patterns for variable in one.variables} - set(bound))
    if free and random.random() < 0.4:
        return Absent(tuple(patterns), (_unlike(random.choice(free), random.choice(bound)),))
    return Absent(tuple(patterns))


def _head(random: Random, body: Body) -> Pattern:
    bound = sorted(_bound(body))
    ends = [variable for variable in bound if variable != P]
    if P in bound and random.random() < 0.5:
        return Pattern(random.choice(ends), P, random.choice(ends))
    kind = random.random()
    if kind < 0.2:
        return Pattern(random.choice(bound), RDF_TYPE, random.choice([*CLASSES, random.choice(ends)]))
    if kind < 0.3:
        return Pattern(random.choice(bound), random.choice(PREDICATES), random.choice([*NODES, integer(7)]))
    return Pattern(random.choice(ends), random.choice(PREDICATES), random.choice(ends))


def _group(random: Random, name: str) -> Rule:
    function = random.choice(["COUNT", "COUNT", "SUM", "MAX"])
    patterns = [Pattern(X, random.choice(PREDICATES), Y)]
    filters = []
    if function != "COUNT":
        patterns.append(Pattern(Y, SIZE, N))
        filters.append(_is_numeric(N))
    elif random.random() < 0.5:
        patterns.append(_pattern(random, [Y], [Z], may_vary=False))
    argument = N if function != "COUNT" else random.choice(sorted({v for one in patterns for v in one.variables} - {X}))
    at_least = random.choice([None, None, 1, 2])
    group = Group((X,), function, argument, "?value", at_least)
    absent = (_absent(random, [X, Y]),) if random.random() < 0.15 else ()
    kind = random.random()
    if kind < 0.3:
        head = Pattern(X, RDF_TYPE, random.choice(CLASSES))
    else:
        head = Pattern(X, COUNTED if kind < 0.7 else SIZE, "?value")
    return Rule(name, (head,), (Body(tuple(patterns), tuple(filters), absent),), group)


def _unlike(one: str, other: str) -> Filter:
    def holds(bindings: Bindings) -> bool:
        return one in bindings and other in bindings and bindings[one] != bindings[other]

    return Filter(f"!sameTerm({one}, {other})", holds)


def _is_iri(variable: str) -> Filter:
    return Filter(f"isIRI({variable})", lambda bindings: bindings[variable].startswith("<"))


def _is_numeric(variable: str) -> Filter:
    return Filter(f"isNumeric({variable})", lambda bindings: number_of(bindings[variable]) is not None)


def below(variable: str, bound: int) -> Filter:
    def holds(bindings: Bindings) -> bool:
        number = number_of(bindings.get(variable))
        return number is not None and number < bound

    return Filter(f"isNumeric({variable}) && {variable} < {bound}", holds)


def one_more(variable: str, result: str) -> Bind:
    def value(bindings: Bindings) -> str | None:
        number = number_of(bindings.get(variable))
        return None if number is None else integer(number + 1)

    return Bind(result, f"{variable} + 1", value)


def _simple(head: tuple[str, str, str], *patterns: tuple[str, str, str]) -> Rule:
    return Rule("-", (Pattern(*head),), (Body(tuple(Pattern(*one) for one in patterns)),))


KNOWN = [
    _simple((X, PREDICATES[0], Z), (X, PREDICATES[0], Y), (Y, PREDICATES[0], Z)),
    _simple((X, PREDICATES[1], Z), (X, PREDICATES[0], Y), (Y, PREDICATES[1], Z)),
    _simple((X, PREDICATES[1], Y), (X, PREDICATES[0], Y)),
    _simple((Y, PREDICATES[2], X), (X, PREDICATES[2], Y)),
    _simple((X, "?q", Y), (X, P, Y), (P, SUB, "?q")),
    _simple((P, SUB, "?q"), (P, SUB, Y), (Y, SUB, "?q")),
    _simple((Y, RDF_TYPE, CLASSES[0]), (X, PREDICATES[0], Y), (X, RDF_TYPE, CLASSES[0])),
    _simple((X, RDF_TYPE, CLASSES[1]), (X, RDF_TYPE, CLASSES[0])),
    Rule(
        "-",
        (Pattern(X, RDF_TYPE, CLASSES[2]),),
        (Body((Pattern(X, RDF_TYPE, CLASSES[0]),), absent=(Absent((Pattern(X, PREDICATES[2], Y),)),)),),
    ),
    Rule(
        "-",
        (Pattern(X, SIZE, "?m"),),
        (Body((Pattern(X, SIZE, N),), filters=(below(N, 4),), binds=(one_more(N, "?m"),)),),
    ),
    Rule(
        "-",
        (Pattern(X, PREDICATES[0], Y), Pattern(Y, PREDICATES[1], X)),
        (Body((Pattern(X, PREDICATES[2], Y),)), Body((Pattern(Y, PREDICATES[1], X, GRAPH),))),
    ),
]
"""Shapes that random patterns rarely make: transitive, by way of another, symmetric, of predicates, counting up."""

assert all(is_variable(variable) for variable in (X, Y, Z, N, P))
