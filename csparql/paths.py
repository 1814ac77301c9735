"""Property paths (SPARQL 1.1, section 9): the syntax tree of a path in the place of a predicate, its text, and whether
it may have no length.

A predicate alone is a `Term`. Everything else is one of the nodes below; a triple pattern whose path is a `Term` or a
variable is a `TriplePattern` of the algebra, never a `PathPattern`.
"""

from __future__ import annotations

from dataclasses import dataclass

from wukongs.csparql.terms import RDF_TYPE, Term

LINKS_MAX = 256
"""A path has at most so many links once its repetitions with bounds are written out, as its automaton has them."""


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
class Repeated:
    """`path{low,high}`, an extension: each pair once that low to high times the path lead between. high None: or more
    often."""

    path: Path
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class NegatedSet:
    """`!(a|b|^c)`: one edge whose predicate is none of `forward`, or one against its direction that is none of
    `inverse`. A side that the text does not name is None, and matches nothing."""

    forward: tuple[Term, ...] | None
    inverse: tuple[Term, ...] | None


Path = Term | Inverse | PathSequence | Alternative | ZeroOrOne | ZeroOrMore | OneOrMore | Repeated | NegatedSet

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
        case Repeated(path=inner, low=low, high=high):
            bounds = str(low) if low == high else f"{low},{'' if high is None else high}"
            text, level = f"{_format(inner, 3)}{{{bounds}}}", 2
        case _:
            text, level = f"{_format(path.path, 3)}{_SUFFIXES[type(path)]}", 2
    return f"({text})" if level < tightness else text


def is_nullable(path: Path) -> bool:
    """Tell whether a path may have no length: then it leads from every node of the graph to itself."""
    match path:
        case ZeroOrMore() | ZeroOrOne() | Repeated(low=0):
            return True
        case Inverse() | OneOrMore() | Repeated():
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
        case ZeroOrMore() | ZeroOrOne() | Repeated(low=0):
            return from_constant or to_constant
        case OneOrMore(path=inner) | Repeated(path=inner):
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


def repeated(path: Path, low: int, high: int | None) -> Path:
    """Return `path{low,high}`, as one of `*`, `+` and `?` where it means the same."""
    match low, high:
        case 0, None:
            return ZeroOrMore(path)
        case 1, None:
            return OneOrMore(path)
        case 0, 1:
            return ZeroOrOne(path)
    return Repeated(path, low, high)


def is_repetition(path: Path) -> bool:
    """Tell whether a path is one of `*`, `+`, `?` and `{n,m}`, or the inverse of one."""
    while isinstance(path, Inverse):
        path = path.path
    return isinstance(path, ZeroOrOne | ZeroOrMore | OneOrMore | Repeated)


def repeats_on(path: Path) -> bool:
    """Tell whether a walk of a path that begins where another one ends makes one walk of the path with it."""
    while isinstance(path, Inverse):
        path = path.path
    return isinstance(path, ZeroOrMore | OneOrMore | Repeated) and getattr(path, "high", None) is None


def is_link(path: Path) -> bool:
    """Tell whether all walks of a path have one link."""
    match path:
        case Term() | NegatedSet():
            return True
        case Inverse():
            return is_link(path.path)
        case Alternative():
            return is_link(path.first) and is_link(path.second)
        case _:
            return False


def counts_steps(path: Path) -> bool:
    """Tell whether a path is a link repeated so that a search only has to count its steps: not below a number that is
    above 1, for which a walk may have to go round in a circle."""
    match path:
        case ZeroOrOne() | Repeated(low=0 | 1):
            return is_link(path.path)
        case _:
            return False


def links_count(path: Path, is_whole: bool = True) -> int:
    """Return how many links the automata of a path have, with repetitions written out. is_whole: the path is not a part
    of another repetition."""
    match path:
        case Term() | NegatedSet():
            return 1
        case Alternative() | PathSequence():
            return links_count(path.first, is_whole) + links_count(path.second, is_whole)
        case Inverse():
            return links_count(path.path, is_whole)
        case Repeated(path=inner, low=low, high=high) if not (is_whole and counts_steps(path)):
            return links_count(inner, False) * (max(low, 1) if high is None else high)
        case _:
            return links_count(path.path, False)
