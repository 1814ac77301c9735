"""Which paths have walks that may be kept, as far as their text says it."""

from __future__ import annotations

from wukongs.csparql.algebra import GraphVersion, Node, PathPattern
from wukongs.csparql.paths import (
    Alternative,
    Inverse,
    OneOrMore,
    Path,
    PathSequence,
    Repeated,
    ZeroOrMore,
    ZeroOrOne,
    is_nullable,
    links_count,
    repeated,
)
from wukongs.csparql.terms import Variable

LINKS_MAX = 64
"""The walks of a path with more links, once its repetitions are written out, are not kept."""


def is_walkable(node: Node) -> bool:
    """Return whether a part is a path whose walks may be kept. They are not of paths that ask for lengths, that lead
    back to where they began (`?x :p+ ?x`), of those over any graph, of those of no length from an argument, and of
    those without a link (`:p{0}`)."""
    if not isinstance(node, PathPattern) or node.length is not None or isinstance(node.graph, GraphVersion | Variable):
        return False
    ends = (node.subject, node.object)
    if isinstance(node.subject, Variable) and node.subject == node.object:
        return False
    if is_nullable(node.path) and any(isinstance(end, Variable) and end.is_argument for end in ends):
        return False
    path = walked(node.path)
    return path is not None and 0 < links_count(path, False) <= LINKS_MAX


def walked(path: Path) -> Path | None:
    """Return a path that has the walks of another one that are not of no length; None where there are no others."""
    if not is_nullable(path):
        return path
    match path:
        case ZeroOrMore(path=inner) | OneOrMore(path=inner):
            below = _once(inner)
            return None if below is None else OneOrMore(below)
        case ZeroOrOne(path=inner):
            return walked(inner)
        case Repeated(path=inner, high=high):
            below = walked(inner) if high != 0 else None
            return None if below is None else repeated(below, 1, high)
        case Inverse(path=inner):
            below = walked(inner)
            return None if below is None else Inverse(below)
        case Alternative(first=first, second=second):
            return _either(walked(first), walked(second))
        case PathSequence(first=first, second=second):
            begun = walked(first)
            return _either(None if begun is None else PathSequence(begun, second), walked(second))
    raise AssertionError(path)


def _once(path: Path) -> Path | None:
    """Return a path that has, repeated, the walks of another one repeated: the parts of a sequence each by itself, if
    all of them may have no length."""
    if isinstance(path, PathSequence) and is_nullable(path):
        return _either(_once(path.first), _once(path.second))
    if isinstance(path, Inverse) and is_nullable(path):
        below = _once(path.path)
        return None if below is None else Inverse(below)
    return walked(path)


def _either(first: Path | None, second: Path | None) -> Path | None:
    """Return the alternative of the paths that there are."""
    return Alternative(first, second) if first is not None and second is not None else first or second
