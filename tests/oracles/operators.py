"""The operators of SPARQL 1.1, section 18.5, on lists of solution mappings: loops over dicts, term by term.

A solution mapping has an entry for each variable of its domain and none for the others. A condition is a function from
a solution mapping to its effective boolean value, None for an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Solution = dict[str, str]
Condition = Callable[[Solution], bool | None]


def compatible(one: Solution, other: Solution) -> bool:
    return all(other[name] == term for name, term in one.items() if name in other)


def merge(one: Solution, other: Solution) -> Solution:
    return {**one, **other}


def join(left: Sequence[Solution], right: Sequence[Solution]) -> list[Solution]:
    return [merge(one, other) for one in left for other in right if compatible(one, other)]


def filtered(condition: Condition, solutions: Sequence[Solution]) -> list[Solution]:
    return [solution for solution in solutions if condition(solution) is True]


def difference(left: Sequence[Solution], right: Sequence[Solution], condition: Condition) -> list[Solution]:
    """Diff: the solutions of left for which no compatible solution of right makes the condition true."""
    return [
        one
        for one in left
        if all(not compatible(one, other) or condition(merge(one, other)) is not True for other in right)
    ]


def left_join(left: Sequence[Solution], right: Sequence[Solution], condition: Condition) -> list[Solution]:
    return filtered(condition, join(left, right)) + difference(left, right, condition)


def union(left: Sequence[Solution], right: Sequence[Solution]) -> list[Solution]:
    return [*left, *right]


def extend(solutions: Sequence[Solution], name: str, expression: Callable[[Solution], str | None]) -> list[Solution]:
    extended = []
    for solution in solutions:
        value = expression(solution)
        extended.append(solution if value is None else {**solution, name: value})
    return extended


def project(solutions: Sequence[Solution], names: Sequence[str]) -> list[Solution]:
    return [{name: solution[name] for name in names if name in solution} for solution in solutions]


def distinct(solutions: Sequence[Solution]) -> list[Solution]:
    kept: list[Solution] = []
    for solution in solutions:
        if solution not in kept:
            kept.append(solution)
    return kept


def slice_rows(solutions: Sequence[Solution], offset: int, limit: int | None) -> list[Solution]:
    return [
        solution
        for number, solution in enumerate(solutions)
        if number >= offset and (limit is None or number < offset + limit)
    ]


def group(solutions: Sequence[Solution], names: Sequence[str]) -> list[tuple[Solution, list[Solution]]]:
    """The groups, each with its key; no names at all is one group, even of no solution."""
    groups: list[tuple[Solution, list[Solution]]] = [] if names else [({}, [])]
    for solution in solutions:
        key = {name: solution[name] for name in names if name in solution}
        for known, members in groups:
            if known == key:
                members.append(solution)
                break
        else:
            groups.append((key, [solution]))
    return groups


def count(members: Sequence[Solution], name: str | None, is_distinct: bool) -> int:
    """COUNT(?name), or COUNT(*) without a name."""
    if name is None:
        return len(distinct(members)) if is_distinct else len(members)
    terms = [solution[name] for solution in members if name in solution]
    return len(set(terms)) if is_distinct else len(terms)
