"""Query texts as trees: a text is the parts of its tree in order, so a failing case can be made smaller piece by piece.

A tree may be replaced by a tree below it of the same sort. A tree of a sort in OPTIONAL_SORTS may also go. Some smaller
texts are no queries: shrinking drops texts that nobody can parse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

OPTIONAL_SORTS = frozenset(("element", "modifier", "cell row", "dataset", "column", "more"))
_CONSTANTS = ("1", "true", "?a")


@dataclass(frozen=True, slots=True)
class Tree:
    """operator: what is counted as tried, such as OPTIONAL or STRLEN; '' counts nothing."""

    sort: str
    operator: str
    parts: tuple[str | Tree, ...]

    def __str__(self) -> str:
        return " ".join(text for part in self.parts if (text := str(part)))


def tree(sort: str, operator: str, *parts: str | Tree | list[Tree]) -> Tree:
    """Make a tree; a list among the parts stands for its members."""
    flat: list[str | Tree] = []
    for part in parts:
        flat.extend(part if isinstance(part, list) else [part])
    return Tree(sort, operator, tuple(flat))


def below(root: Tree) -> Iterator[Tree]:
    """Iterate over a tree and all trees in it."""
    yield root
    for part in root.parts:
        if isinstance(part, Tree):
            yield from below(part)


def operators(root: Tree) -> set[str]:
    return {each.operator for each in below(root) if each.operator}


def smaller(root: Tree) -> Iterator[Tree]:
    """Iterate over trees with one piece less, large pieces first."""
    for other in below(root):
        if other is not root and other.sort == root.sort:
            yield other
    if root.sort == "expression" and len(root.parts) > 1:
        yield from (Tree("expression", "", (constant,)) for constant in _CONSTANTS)
    for at, part in enumerate(root.parts):
        if isinstance(part, Tree):
            if part.sort in OPTIONAL_SORTS:
                yield replace(root, parts=root.parts[:at] + root.parts[at + 1 :])
            for changed in smaller(part):
                yield replace(root, parts=(*root.parts[:at], changed, *root.parts[at + 1 :]))


def shrunk(root: Tree, fails: Callable[[Tree], bool], tries: int = 3000) -> Tree:
    """Return a tree that still fails and of which no piece can go, as far as that many tries tell."""
    while True:
        for candidate in smaller(root):
            tries -= 1
            if tries < 0:
                return root
            if len(str(candidate)) < len(str(root)) and fails(candidate):
                root = candidate
                break
        else:
            return root
