"""A path as a finite automaton: states, and steps along triples between them.

A path leads from one node to another if some walk through the graph spells a word of the path's language. So the search
for `(:a/:b|^:c)*` visits pairs of node and state, each once, however the path is nested. The automaton has no empty
steps (Glushkov's construction: a state for the beginning and one for each link of the path). States from which the same
steps lead on are merged, so `:p*` has a single one.

`:p{2,4}` has a state for each step. `:p{1,1000}` is `:p+` with a greatest number of steps: a search comes to each node
by as few steps as possible, so it has to visit a node only once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from wukongs.csparql.cardinality import Direction
from wukongs.csparql.clock import look
from wukongs.csparql.paths import (
    Alternative,
    Inverse,
    NegatedSet,
    OneOrMore,
    Path,
    PathSequence,
    Repeated,
    ZeroOrMore,
    ZeroOrOne,
    counts_steps,
)
from wukongs.csparql.terms import Term

AUTOMATA_MAX = 256


@dataclass(frozen=True, slots=True)
class Link:
    """One triple of a walk. excluded None: its predicate is `predicate`; else it is none of `excluded`."""

    direction: Direction
    predicate: Term | None
    excluded: tuple[Term, ...] | None = None

    def terms(self) -> tuple[Term, ...]:
        return (self.predicate,) if self.predicate is not None else self.excluded or ()


@dataclass(frozen=True, slots=True)
class Automaton:
    """State 0 is the beginning; accepting: where a walk may end; edges[s]: (link, next state) from state s; steps_max:
    the most links that a walk may have."""

    accepting: tuple[bool, ...]
    edges: tuple[tuple[tuple[Link, int], ...], ...]
    steps_max: int | None = None

    @property
    def is_nullable(self) -> bool:
        """Whether a walk of no length is one."""
        return self.accepting[0]

    @property
    def repeats_links(self) -> bool:
        """Whether all walks of some links, at least one, are walks of the path, up to steps_max."""
        last = len(self.edges) - 1
        return (
            last <= 1
            and self.accepting[last]
            and len(self.edges[0]) > 0
            and set(self.edges[0]) == set(self.edges[last])
            and all(after == last for _, after in self.edges[0])
        )

    def links(self) -> tuple[Link, ...]:
        """Return the distinct links of all edges."""
        return tuple(dict.fromkeys(link for edges in self.edges for link, _ in edges))

    def first_links(self) -> tuple[Link, ...]:
        """Return the distinct links that a walk may begin with."""
        return tuple(dict.fromkeys(link for link, _ in self.edges[0]))


@dataclass(slots=True)
class _Part:
    """A part of the path: whether it may be empty, the links that may stand first and last in it, by number."""

    nullable: bool
    first: tuple[int, ...]
    last: tuple[int, ...]


class _Positions:
    """Numbers the links of a path from 1, and notes which may follow which."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.following: list[dict[int, None]] = [{}]

    def part(self, path: Path, inverted: bool) -> _Part:
        match path:
            case Term():
                return self._one([Link("in" if inverted else "out", path)])
            case NegatedSet(forward=forward, inverse=inverse):
                along: Direction = "in" if inverted else "out"
                against: Direction = "out" if inverted else "in"
                sets = ((along, forward), (against, inverse))
                return self._one([Link(way, None, excluded) for way, excluded in sets if excluded is not None])
            case Inverse(path=inner):
                return self.part(inner, not inverted)
            case Alternative(first=first, second=second):
                one, other = self.part(first, inverted), self.part(second, inverted)
                return _Part(one.nullable or other.nullable, one.first + other.first, one.last + other.last)
            case PathSequence(first=first, second=second):
                if inverted:
                    first, second = second, first
                return self._sequence(self.part(first, inverted), self.part(second, inverted))
            case ZeroOrOne(path=inner):
                found = self.part(inner, inverted)
                return _Part(True, found.first, found.last)
            case ZeroOrMore(path=inner) | OneOrMore(path=inner):
                found = self.part(inner, inverted)
                self._follow(found.last, found.first)
                return _Part(found.nullable or isinstance(path, ZeroOrMore), found.first, found.last)
            case Repeated(path=inner, low=low, high=high):
                return self._repeated(inner, low, high, inverted)

    def _repeated(self, inner: Path, low: int, high: int | None, inverted: bool) -> _Part:
        """Write a repetition out: `low` parts, then further ones that are optional from the first on."""
        if high is None:
            whole, low = self.part(OneOrMore(inner) if low else ZeroOrMore(inner), inverted), max(low - 1, 0)
        else:
            whole = _Part(True, (), ())
            for _ in range(high - low):
                further = self._sequence(self.part(inner, inverted), whole)
                whole = _Part(True, further.first, further.last)
        for _ in range(low):
            whole = self._sequence(self.part(inner, inverted), whole)
        return whole

    def _one(self, links: list[Link]) -> _Part:
        """A walk along one of these links."""
        numbers = tuple(range(len(self.following), len(self.following) + len(links)))
        self.links += links
        self.following += [{} for _ in links]
        return _Part(False, numbers, numbers)

    def _sequence(self, one: _Part, other: _Part) -> _Part:
        self._follow(one.last, other.first)
        first = one.first + other.first if one.nullable else one.first
        last = one.last + other.last if other.nullable else other.last
        return _Part(one.nullable and other.nullable, first, last)

    def _follow(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        for number in before:
            look()
            self.following[number].update(dict.fromkeys(after))


@lru_cache(AUTOMATA_MAX)
def automaton_of(path: Path) -> Automaton:
    """Return the automaton of a path, made once for the many executions of a query."""
    return automaton(path)


@lru_cache(AUTOMATA_MAX)
def written_out(path: Path) -> Automaton:
    """Return the automaton of a path whose walks it has whole: it counts no steps, and has a state for each."""
    positions = _Positions()
    return _made(positions, positions.part(path, False))


def automaton(path: Path) -> Automaton:
    """Return the automaton of a path from its subject on; for the way back ask for that of Inverse(path)."""
    base, inverted, steps_max = path, False, None
    while isinstance(base, Inverse):
        base, inverted = base.path, not inverted
    if counts_steps(base):
        assert isinstance(base, ZeroOrOne | Repeated)
        steps_max = 1 if isinstance(base, ZeroOrOne) else base.high
        base = OneOrMore(base.path) if isinstance(base, Repeated) and base.low else ZeroOrMore(base.path)
    positions = _Positions()
    return replace(_made(positions, positions.part(base, inverted)), steps_max=steps_max)


def _made(positions: _Positions, whole: _Part) -> Automaton:
    """Return the automaton of the positions of a path."""
    positions.following[0].update(dict.fromkeys(whole.first))
    ending = set(whole.last) | ({0} if whole.nullable else set())
    accepting = [number in ending for number in range(len(positions.following))]
    edges = [tuple((positions.links[after - 1], after) for after in one) for one in positions.following]
    return _merged(accepting, edges)


def _merged(accepting: list[bool], edges: list[tuple[tuple[Link, int], ...]]) -> Automaton:
    """Merge states that accept alike and lead alike, until no two do; state 0 stays the first."""
    classes = [int(not accepts) for accepts in accepting]
    while True:
        signatures = []
        for state, edges_of in enumerate(edges):
            look()
            signatures.append((classes[state], frozenset((link, classes[after]) for link, after in edges_of)))
        numbers: dict[tuple[int, frozenset[tuple[Link, int]]], int] = {}
        refined = [numbers.setdefault(signature, len(numbers)) for signature in signatures]
        if len(numbers) == len(set(classes)):
            break
        classes = refined
    classes = refined
    firsts = [classes.index(number) for number in range(len(numbers))]
    return Automaton(
        tuple(accepting[state] for state in firsts),
        tuple(tuple(dict.fromkeys((link, classes[after]) for link, after in edges[state])) for state in firsts),
    )
