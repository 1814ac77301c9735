"""Property paths: their grammar (SPARQL 1.1, productions 88 to 96), and their translation (18.2.2.3, 18.2.2.4, 18.4).

What joins and unions of triple patterns can say is said by them, so that it is planned with all other triple patterns:
a sequence becomes patterns that share a fresh variable, `^` turns its ends round, `|` is a Union, and a negated set a
filter on the predicate. Repetition and `?` are left to the search, as PathPatterns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wukongs.csparql.algebra import (
    DEFAULT,
    Bgp,
    Call,
    Filter,
    GraphRef,
    Join,
    Node,
    PathPattern,
    TermOrVariable,
    TriplePattern,
    Union,
)
from wukongs.csparql.parser_expressions import ExpressionParser
from wukongs.csparql.paths import Alternative, Inverse, NegatedSet, OneOrMore, Path, Sequence, ZeroOrMore, ZeroOrOne
from wukongs.csparql.terms import RDF, Term, Variable, iri

RDF_TYPE = iri(RDF + "type")
_A_PATH = "a property path: an IRI, 'a', '^', '!' or '('"
_IN_A_SET = "an IRI, 'a' or '^' with one of them, in the negated property set"
_REPETITIONS: dict[str, Callable[[Path], Path]] = {"*": ZeroOrMore, "+": OneOrMore, "?": ZeroOrOne}


class PathParser(ExpressionParser):
    """Reads property paths. Patterns go to `patterns`, and what is no triple pattern to `path_nodes`."""

    def __init__(self, text: str, base: str | None, source: str) -> None:
        super().__init__(text, base, source)
        self.graph: GraphRef = DEFAULT
        self.patterns: list[TriplePattern] = []
        self.path_nodes: list[Node] = []
        self.paths_allowed = False
        """Whether triples may have paths: those of a WHERE clause, not those of a template."""
        self.blank_count = 0

    def fresh_blank(self) -> Variable:
        self.blank_count += 1
        return Variable(f".blank{self.blank_count}")

    def path(self) -> Path:
        """Read a path; a single IRI is one too."""
        token = self.token
        found = self._path_alternative()
        if not isinstance(found, Term) and not self.paths_allowed:
            raise self.error("an IRI, a variable or 'a' as the predicate of a template", token, "a property path")
        return found

    def _path_alternative(self) -> Path:
        branches = [self._path_sequence()]
        while self.accept("|"):
            branches.append(self._path_sequence())
        return _balanced(Alternative, branches)

    def _path_sequence(self) -> Path:
        parts = [self._path_element()]
        while self.accept("/"):
            parts.append(self._path_element())
        return _balanced(Sequence, parts)

    def _path_element(self) -> Path:
        if self.accept("^"):
            return Inverse(self._path_repeated())
        return self._path_repeated()

    def _path_repeated(self) -> Path:
        found = self._path_primary()
        make = _REPETITIONS.get(self.token.kind)
        if make is None or self.at_signed_number():
            return found
        self.advance()
        return make(found)

    def _path_primary(self) -> Path:
        if self.accept("!"):
            return self._negated_set()
        if self.accept("("):
            found = self._path_alternative()
            self.expect(")", "')', or '/', '|', '*', '+' or '?' to go on with the path")
            return found
        return self._path_link(_A_PATH)

    def _path_link(self, expected: str) -> Term:
        if self.token.text == "a":
            self.advance()
            return RDF_TYPE
        if self.at_iri():
            return self.iri(expected)
        raise self.error(expected)

    def _negated_set(self) -> NegatedSet:
        members: list[tuple[bool, Term]] = []
        if not self.accept("("):
            members.append(self._set_member())
        elif not self.accept(")"):
            members.append(self._set_member())
            while self.accept("|"):
                members.append(self._set_member())
            self.expect(")", "')' or '|' in the negated property set")
        forward = tuple(dict.fromkeys(term for is_inverse, term in members if not is_inverse))
        inverse = tuple(dict.fromkeys(term for is_inverse, term in members if is_inverse))
        return NegatedSet(forward if forward or not inverse else None, inverse or None)

    def _set_member(self) -> tuple[bool, Term]:
        is_inverse = self.accept("^")
        return is_inverse, self._path_link(_IN_A_SET)

    # --- translation --------------------------------------------------------------------------------------------------

    def add_path(self, subject: TermOrVariable, path: Path, object_: TermOrVariable) -> None:
        """Add what a path between two ends stands for to the group that is being read."""
        for part in self._translated(subject, path, object_):
            if isinstance(part, TriplePattern):
                self.patterns.append(part)
            else:
                self.path_nodes.append(part)

    def _translated(
        self, subject: TermOrVariable, path: Path, object_: TermOrVariable
    ) -> Iterable[TriplePattern | Node]:
        match path:
            case Term():
                return (TriplePattern(subject, path, object_, self.graph),)
            case Inverse(path=inner):
                return self._translated(object_, inner, subject)
            case Sequence(first=first, second=second):
                between = self.fresh_blank()
                return (*self._translated(subject, first, between), *self._translated(between, second, object_))
            case Alternative(first=first, second=second):
                branches = self._translated(subject, first, object_), self._translated(subject, second, object_)
                return (Union(*map(_joined, branches)),)
            case NegatedSet(forward=forward, inverse=inverse):
                sides = []
                if forward is not None:
                    sides.append(self._other_than(subject, forward, object_))
                if inverse is not None:
                    sides.append(self._other_than(object_, inverse, subject))
                return (sides[0] if len(sides) == 1 else Union(*sides),)
            case _:
                return (PathPattern(subject, path, object_, self.graph),)

    def _other_than(self, subject: TermOrVariable, excluded: tuple[Term, ...], object_: TermOrVariable) -> Node:
        """One solution for each triple whose predicate is not excluded."""
        predicate = self.fresh_blank()
        triple = Bgp((TriplePattern(subject, predicate, object_, self.graph),))
        return Filter(Call("NOTIN", (predicate, *excluded)), triple) if excluded else triple


def _joined(parts: Iterable[TriplePattern | Node]) -> Node:
    """Join triple patterns, as one Bgp, and other nodes."""
    parts = tuple(parts)
    patterns = tuple(part for part in parts if isinstance(part, TriplePattern))
    nodes: list[Node] = [Bgp(patterns)] if patterns else []
    nodes += [part for part in parts if not isinstance(part, TriplePattern)]
    node = nodes[0]
    for other in nodes[1:]:
        node = Join(node, other)
    return node


def _balanced(make: Callable[[Path, Path], Path], parts: list[Path]) -> Path:
    """Combine the parts, in their order, as a tree of logarithmic depth."""
    if len(parts) == 1:
        return parts[0]
    half = (len(parts) + 1) // 2
    return make(_balanced(make, parts[:half]), _balanced(make, parts[half:]))
