"""Which paths have walks that may be kept, as far as their text says it."""

from __future__ import annotations

from wukongs.csparql.algebra import GraphVersion, Node, PathPattern
from wukongs.csparql.paths import (
    Inverse,
    OneOrMore,
    Path,
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
    return walked(node.path) is not None and 0 < links_count(node.path, False) <= LINKS_MAX


def walked(path: Path) -> Path | None:
    """Return a path that has the same pairs of two nodes as another one, and fewer that lead from a node to itself,
    where there is one; None for a path that has no others."""
    match path:
        case ZeroOrMore(path=inner):
            return OneOrMore(inner)
        case ZeroOrOne(path=inner):
            return inner
        case Repeated(high=0):
            return None
        case Repeated(path=inner, low=0, high=high):
            return repeated(inner, 1, high)
        case Inverse(path=inner) if is_nullable(inner):
            below = walked(inner)
            return None if below is None else Inverse(below)
        case OneOrMore(path=inner) if is_nullable(inner):
            below = walked(inner)
            return None if below is None else OneOrMore(below)
    return path
