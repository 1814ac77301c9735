"""Property paths (SPARQL 1.1, section 9): the syntax tree of a path in the place of a predicate, its text, and whether
it may have no length.

A predicate alone is a `Term`. Everything else is one of the nodes below; a triple pattern whose path is a `Term` or a
variable is a `TriplePattern` of the algebra, never a `PathPattern`.
"""

from __future__ import annotations

from dataclasses import dataclass

from wukongs.csparql.terms import RDF_TYPE, Term


@dataclass(frozen=True, slots=True)
class Inverse:
    """`^path`: from object to subject."""

    path: Path


@dataclass(frozen=True, slots=True)
class PathSequence:
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


Path = Term | Inverse | PathSequence | Alternative | ZeroOrOne | ZeroOrMore | OneOrMore | NegatedSet

_SUFFIXES = {ZeroOrMore: "*", OneOrMore: "+", ZeroOrOne: "?"}


def format_path(path: Path) -> str:
    """Return a path as SPARQL writes it, with the parentheses that it needs."""
    return _format(path, 0)


def _format(path: Path, tightness: int) -> str:
    """tightness: 0 anything may stand here, 1 no alternative, 2 no sequence either, 3 nothing but a primary."""
    match path:
        case Term():
            return "a" if path == RDF_TYPE else path.text
        case NegatedSet():
            members: list[Path] = [*(path.forward or ()), *(Inverse(each) for each in path.inverse or ())]
            inside = "|".join(_format(member, 2) for member in members)
            return f"!{inside}" if len(members) == 1 else f"!({inside})"
        case Alternative(first=first, second=second):
            text, level = f"{_format(first, 0)}|{_format(second, 1)}", 0
        case PathSequence(first=first, second=second):
            text, level = f"{_format(first, 1)}/{_format(second, 2)}", 1
        case Inverse(path=inner):
            text, level = f"^{_format(inner, 3 if isinstance(inner, Inverse) else 2)}", 2
        case _:
            text, level = f"{_format(path.path, 3)}{_SUFFIXES[type(path)]}", 2
    return f"({text})" if level < tightness else text


def is_nullable(path: Path) -> bool:
    """Tell whether a path may have no length: then it leads from every node of the graph to itself."""
    match path:
        case ZeroOrMore() | ZeroOrOne():
            return True
        case Inverse() | OneOrMore():
            return is_nullable(path.path)
        case PathSequence():
            return is_nullable(path.first) and is_nullable(path.second)
        case Alternative():
            return is_nullable(path.first) or is_nullable(path.second)
        case _:
            return False


def reaches_outside(path: Path, from_constant: bool, to_constant: bool) -> bool:
    """Tell whether a path of no length leads from a term that the graph does not know to itself.

    It does so only next to a constant of the query (18.4: ZeroLengthPath): variables range over the graph's nodes, and
    between the two parts of a sequence there is a variable. from_constant, to_constant: whether this end is a constant.
    """
    match path:
        case ZeroOrMore() | ZeroOrOne():
            return from_constant or to_constant
        case OneOrMore(path=inner):
            # Searched from the constant end; from the subject, if both are (18.4: ALP).
            return reaches_outside(inner, from_constant, to_constant and not from_constant)
        case Inverse(path=inner):
            return reaches_outside(inner, to_constant, from_constant)
        case PathSequence(first=first, second=second):
            return reaches_outside(first, from_constant, False) and reaches_outside(second, False, to_constant)
        case Alternative(first=first, second=second):
            return reaches_outside(first, from_constant, to_constant) or reaches_outside(
                second, from_constant, to_constant
            )
        case _:
            return False
