"""Property paths to the letter of SPARQL 1.1, section 18.4, over plain sets of triples. Slow and simple on purpose.

A path is a tuple: ('link', p), ('^', P), ('/', P, Q), ('|', P, Q), ('*', P), ('+', P), ('?', P), ('{', P, low, high),
and ('!', forward, inverse), tuples of predicates or None for a direction that the set does not name; high may be None.
An end is a `Var` or a term; terms are anything that can be compared and hashed. The standard has no ('{', ...): it goes
from the end that is known, as `+` does, and each node that it is at after low to high times P is a solution once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, NamedTuple

Path = tuple[Any, ...]
Solution = dict[str, Hashable]
Triples = set[tuple[Any, Any, Any]]


class Var(NamedTuple):
    name: str


def evaluate(path: Path, subject: Hashable, object_: Hashable, triples: Triples) -> list[Solution]:
    """eval(Path(subject, path, object)): a multiset of solutions."""
    if isinstance(subject, Var) and subject == object_:
        fresh = Var(f"{subject.name}'")
        found = evaluate(path, subject, fresh, triples)
        return [{subject.name: s[subject.name]} for s in found if s[subject.name] == s[fresh.name]]
    kind = path[0]
    if kind == "link":
        return [s for a, p, b in triples if p == path[1] for s in _matches(subject, a, object_, b)]
    if kind == "^":
        return evaluate(path[1], object_, subject, triples)
    if kind == "/":
        return _sequence(path, subject, object_, triples)
    if kind == "|":
        return evaluate(path[1], subject, object_, triples) + evaluate(path[2], subject, object_, triples)
    if kind == "!":
        return [
            *(s for a, p, b in triples if _is_other(p, path[1]) for s in _matches(subject, a, object_, b)),
            *(s for a, p, b in triples if _is_other(p, path[2]) for s in _matches(object_, a, subject, b)),
        ]
    if kind == "?":
        return _distinct(evaluate(path[1], subject, object_, triples) + _zero_length(subject, object_, triples))
    return _repeated(path, subject, object_, triples)


def _sequence(path: Path, subject: Hashable, object_: Hashable, triples: Triples) -> list[Solution]:
    between = Var(f"{len(str(path))}between{subject}{object_}")
    left = evaluate(path[1], subject, between, triples)
    right = evaluate(path[2], between, object_, triples)
    joined = [{**one, **other} for one in left for other in right if _compatible(one, other)]
    return [{name: value for name, value in s.items() if name != between.name} for s in joined]


def _repeated(path: Path, subject: Hashable, object_: Hashable, triples: Triples) -> list[Solution]:
    """ZeroOrMorePath and OneOrMorePath."""
    reach: Callable[[Hashable, Path, Triples], set[Hashable]]
    reach = {"+": _one_or_more, "*": _arbitrary_length}.get(path[0]) or partial(_counted, path[2], path[3])
    if isinstance(subject, Var) and not isinstance(object_, Var):
        return _repeated((path[0], ("^", path[1]), *path[2:]), object_, subject, triples)
    if not isinstance(subject, Var):
        reached = reach(subject, path[1], triples)
        if isinstance(object_, Var):
            return [{object_.name: node} for node in reached]
        return [{}] if object_ in reached else []
    assert isinstance(object_, Var)
    return [
        {subject.name: start, object_.name: node} for start in nodes(triples) for node in reach(start, path[1], triples)
    ]


def _arbitrary_length(start: Hashable, path: Path, triples: Triples) -> set[Hashable]:
    """ALP(x:term, P:path)."""
    visited: set[Hashable] = set()
    _visit(start, path, visited, triples)
    return visited


def _one_or_more(start: Hashable, path: Path, triples: Triples) -> set[Hashable]:
    visited: set[Hashable] = set()
    for node in _next(start, path, triples):
        _visit(node, path, visited, triples)
    return visited


def _counted(low: int, high: int | None, start: Hashable, path: Path, triples: Triples) -> set[Hashable]:
    found: set[Hashable] = set()
    nodes_now = {start}  # after `count` times the path
    before: list[set[Hashable]] = []
    for count in itertools.count():
        if (high is not None and count > high) or (count >= low and nodes_now in before):
            return found
        if count >= low:
            found |= nodes_now
            before.append(nodes_now)
        nodes_now = {after for node in nodes_now for after in _next(node, path, triples)}
    raise AssertionError(count)


def _visit(node: Hashable, path: Path, visited: set[Hashable], triples: Triples) -> None:
    if node in visited:
        return
    visited.add(node)
    for after in _next(node, path, triples):
        _visit(after, path, visited, triples)


def _next(node: Hashable, path: Path, triples: Triples) -> list[Hashable]:
    return [solution["v"] for solution in evaluate(path, node, Var("v"), triples)]


def _zero_length(subject: Hashable, object_: Hashable, triples: Triples) -> list[Solution]:
    if isinstance(subject, Var) and isinstance(object_, Var):
        return [{subject.name: node, object_.name: node} for node in nodes(triples)]
    if isinstance(subject, Var):
        return [{subject.name: object_}]
    if isinstance(object_, Var):
        return [{object_.name: subject}]
    return [{}] if subject == object_ else []


Lengths = dict[tuple[Any, Any], int]


def lengths(path: Path, triples: Triples, others: set[Any]) -> Lengths:
    """The number of triples of a shortest walk, for each pair of ends of one. others: nodes beside those of the
    graph."""
    kind = path[0]
    none = {(node, node): 0 for node in nodes(triples) | others}
    if kind == "link":
        return {(a, b): 1 for a, p, b in triples if p == path[1]}
    if kind == "!":
        along = {(a, b): 1 for a, p, b in triples if _is_other(p, path[1])}
        return along | {(b, a): 1 for a, p, b in triples if _is_other(p, path[2])}
    inner = lengths(path[1], triples, others)
    if kind == "^":
        return {(b, a): count for (a, b), count in inner.items()}
    if kind == "/":
        return _one_after_the_other(inner, lengths(path[2], triples, others))
    if kind == "|":
        return _shorter(inner, lengths(path[2], triples, others))
    low, high = {"?": (0, 1), "*": (0, None), "+": (1, None), "{": path[2:]}[kind]
    found = none
    for _ in range(low):
        found = _one_after_the_other(found, inner)
    further, before, count = found, None, low
    while before != found and (high is None or count < high):
        further = _one_after_the_other(further, inner)
        before, found, count = found, _shorter(found, further), count + 1
    return found


def _one_after_the_other(first: Lengths, second: Lengths) -> Lengths:
    found: Lengths = {}
    for (a, b), count in first.items():
        for (b2, c), more in second.items():
            if b == b2:
                found[a, c] = min(count + more, found.get((a, c), count + more))
    return found


def _shorter(one: Lengths, other: Lengths) -> Lengths:
    return {pair: min(lengths[pair] for lengths in (one, other) if pair in lengths) for pair in {*one, *other}}


def nodes(triples: Triples) -> set[Hashable]:
    """nodes(G): the subjects and objects."""
    return {node for a, _, b in triples for node in (a, b)}


def _matches(subject: Hashable, a: Hashable, object_: Hashable, b: Hashable) -> Iterator[Solution]:
    solution: Solution = {}
    for end, node in ((subject, a), (object_, b)):
        if isinstance(end, Var):
            solution[end.name] = node
        elif end != node:
            return
    yield solution


def _is_other(predicate: Hashable, excluded: tuple[Hashable, ...] | None) -> bool:
    return excluded is not None and predicate not in excluded


def _compatible(one: Solution, other: Solution) -> bool:
    return all(other.get(name, value) == value for name, value in one.items())


def _distinct(solutions: list[Solution]) -> list[Solution]:
    return [dict(each) for each in dict.fromkeys(tuple(sorted(s.items())) for s in solutions)]


def is_nullable(path: Path) -> bool:
    """Whether the path may have no length."""
    kind = path[0]
    if kind in "*?" or (kind == "{" and path[2] == 0):
        return True
    if kind == "/":
        return is_nullable(path[1]) and is_nullable(path[2])
    if kind == "|":
        return is_nullable(path[1]) or is_nullable(path[2])
    return kind in "^+{" and is_nullable(path[1])


def may_repeat(path: Path) -> bool:
    """Whether one triple, or two between the same nodes, may be found twice: by `|`, or by both sides of a set."""
    kind = path[0]
    if kind in "/^":
        return any(map(may_repeat, path[1:]))
    return kind == "|" or (kind == "!" and None not in path[1:])


def text(path: Path, write: Callable[[Any], str]) -> str:
    """The path in SPARQL, with all parentheses. write: a predicate's text."""
    kind = path[0]
    if kind == "link":
        return write(path[1])
    if kind == "^":
        return f"^({text(path[1], write)})"
    if kind == "!":
        members = [*map(write, path[1] or ()), *(f"^{write(each)}" for each in path[2] or ())]
        return f"!({'|'.join(members)})"
    if kind in "/|":
        return f"({text(path[1], write)}){kind}({text(path[2], write)})"
    if kind == "{":
        low, high = path[2:]
        return f"({text(path[1], write)}){{{low},{'' if high is None else high}}}"
    return f"({text(path[1], write)}){kind}"
