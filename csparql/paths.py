"""Property paths (SPARQL 1.1, section 9): the syntax tree of what may stand in the place of a predicate.

A predicate alone is a `Term`. Everything else is one of the nodes below; a triple pattern whose path is a `Term` or a
variable is a `TriplePattern` of the algebra, never a `PathPattern`.
"""

from __future__ import annotations

from dataclasses import dataclass

from csparql.terms import Term


@dataclass(frozen=True, slots=True)
class Inverse:
    """`^path`: from object to subject."""

    path: Path


@dataclass(frozen=True, slots=True)
class Sequence:
    """`first/second`."""

    first: Path
    second: Path


@dataclass(frozen=True, slots=True)
class Alternative:
    """`first|second`: a pair that both join counts twice."""

    first: Path
    second: Path


@dataclass(frozen=True, slots=True)
class ZeroOrOne:
    """`path?`: each pair once."""

    path: Path


@dataclass(frozen=True, slots=True)
class ZeroOrMore:
    """`path*`: each pair once."""

    path: Path


@dataclass(frozen=True, slots=True)
class OneOrMore:
    """`path+`: each pair once."""

    path: Path


@dataclass(frozen=True, slots=True)
class NegatedSet:
    """`!(a|b|^c)`: one edge whose predicate is none of `forward`, or one against its direction that is none of
    `inverse`. A side that the text does not name is None, and matches nothing."""

    forward: tuple[Term, ...] | None
    inverse: tuple[Term, ...] | None


Path = Term | Inverse | Sequence | Alternative | ZeroOrOne | ZeroOrMore | OneOrMore | NegatedSet
