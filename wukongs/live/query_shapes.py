"""Shape: a registered query without its constants, equal for all queries that differ only in these, in the names of
their variables, and in the order in which triple patterns stand.

The constants taken out are the subjects and objects of triple patterns and the ends of paths. Predicates, classes,
graphs and what stands in expressions belong to the shape: a plan for others is another one. So do the names of
variables where there is a LIMIT, which cuts rows that ORDER BY leaves equal in the order of these names. In the place
of each constant stands a variable, a hole. Holes are filled for many queries at once
(query/execution/argument_rows.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from wukongs.csparql.algebra import Bgp, PathPattern, Query, Slice, Timestamp, TripleParts, TriplePattern
from wukongs.csparql.terms import RDF_TYPE, Term, Variable
from wukongs.csparql.walk import field_names, parts_of, per_row_function

_ENDS = ("subject", "object")


@dataclass(frozen=True, slots=True)
class Shape:
    """query: the query with holes, and with names of variables that do not depend on the text; constants: the terms of
    its holes `hole(0)`, `hole(1)`, ..., in order."""

    query: Query
    constants: tuple[Term, ...]


def hole(number: int) -> Variable:
    """Return the variable that stands for a constant."""
    return Variable(f"c{number}")


def shape_of(query: Query) -> Shape | None:
    """Return the shape of a registered query, None if it is not fired with others.

    Only a SELECT is, over windows of time, with a constant at least. Functions that draw values belong to one query,
    and so do times of tuples."""
    registration = query.registration
    assert registration is not None
    is_plain = query.form == "select" and not registration.is_stream
    if not is_plain or not {"window close", "non-empty result"}.issuperset(registration.report):
        return None
    if any(window.is_counted for window in query.dataset.windows):
        return None
    if per_row_function(query.pattern) is not None:
        return None
    if any(isinstance(part, Timestamp | TripleParts) for part in parts_of(query.pattern)):
        return None
    walk = _Walk(keeps_names=any(isinstance(part, Slice) for part in parts_of(query.pattern)))
    pattern = walk.changed(query.pattern)
    if not walk.constants:
        return None
    windows = tuple(replace(window, line=0, column=0) for window in query.dataset.windows)
    shaped = replace(
        query,
        pattern=pattern,
        variables=tuple(walk.named(Variable(name)).name for name in query.variables),
        dataset=replace(query.dataset, windows=windows),
        registration=replace(registration, name="", report=tuple(sorted(registration.report))),
    )
    return Shape(shaped, tuple(walk.constants))


class _Walk:
    """A way through a query: it names variables in the order in which it meets them, and numbers constants.

    keeps_names: variables have their own names behind one letter, so that they are in the same order."""

    def __init__(self, *, keeps_names: bool) -> None:
        self.constants: list[Term] = []
        self._keeps_names = keeps_names
        self._names: dict[Variable, Variable] = {}

    def named(self, variable: Variable) -> Variable:
        known = self._names.get(variable)
        if known is None:
            own = variable.name.removeprefix(".") if self._keeps_names else len(self._names)
            name = f"{'.' if variable.is_blank else ''}v{own}"
            known = self._names[variable] = Variable(name)
        return known

    def changed(self, part: Any) -> Any:
        if isinstance(part, Variable):
            return self.named(part)
        if isinstance(part, tuple):
            return tuple(map(self.changed, part))
        if isinstance(part, Bgp):
            return Bgp(tuple(map(self.changed, sorted(part.patterns, key=_place))))
        names = field_names(type(part))
        if not names:
            return part
        ends = _ENDS if isinstance(part, TriplePattern | PathPattern) else ()
        found = {}
        for name in names:
            value = getattr(part, name)
            is_hole = name in ends and isinstance(value, Term) and not _is_class(part, name)
            found[name] = self._hole(value) if is_hole else self.changed(value)
        return replace(part, **found)

    def _hole(self, term: Term) -> Variable:
        self.constants.append(term)
        return hole(len(self.constants) - 1)


def _is_class(part: Any, end: str) -> bool:
    return end == "object" and isinstance(part, TriplePattern) and part.predicate == RDF_TYPE


def _place(pattern: TriplePattern) -> tuple[str, str, bool, str]:
    """Return where a pattern stands among those that hold together, whatever its variables and constants are called."""
    class_ = str(pattern.object) if _is_class(pattern, "object") else str(isinstance(pattern.object, Term))
    predicate = "" if isinstance(pattern.predicate, Variable) else str(pattern.predicate)
    graph = "" if isinstance(pattern.graph, Variable) else str(pattern.graph)
    return graph, predicate, isinstance(pattern.subject, Term), class_
