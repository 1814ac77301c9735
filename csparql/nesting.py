"""Limits of nesting in a query, so that every walk over tokens or algebra may be a plain recursion.

* Brackets stand in each other at most BRACKETS_MAX deep; so do signs and negations that follow each other (`!!!?x`).
* The algebra of a query, expressions included, is a tree of at most DEPTH_MAX levels: each OPTIONAL, MINUS, BIND of a
  group adds one, and so does each operand of a sum or product. UNION, && and || are balanced: they add a logarithm.
* Python's recursion limit, which all threads share, is raised to RECURSION_LIMIT when this module is imported, and
  again if somebody has lowered it and a query may need it. The parser spends about nine frames on a pair of
  parentheses, a walk over the algebra at most four on a level. Twice that many frames, all of them through C, were seen
  to fit into a thread's usual stack of 8 MB.
* A query has at most TOKENS_MAX tokens, and at most PATTERNS_MAX triple patterns side by side, since the planner
  compares each with each. An update may have more tokens: its data, which are bounded by UPDATE_CHARACTERS_MAX. Those
  that csparql/data_runs.py reads, which is nearly all of large data, never become tokens.

A text with at most SMALL tokens cannot reach these limits, and is not checked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from wukongs.csparql.algebra import TriplePattern
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.tokens import Token

BRACKETS_MAX = 256
DEPTH_MAX = 500
RECURSION_LIMIT = 5_000
TOKENS_MAX = 300_000
PATTERNS_MAX = 1_000
UPDATE_CHARACTERS_MAX = 1 << 28
SMALL = 64

_OPENING = frozenset(("(", "{", "[", "<<", "<<(", "{|"))
_CLOSING = frozenset((")", "}", "]", ">>", ")>>", "|}"))
_SIGNS = frozenset(("!", "-", "+", "^"))


def make_room() -> None:
    """Let Python recurse as deep as the limits above ask for; never lowered, since other threads may be down there."""
    if sys.getrecursionlimit() < RECURSION_LIMIT:
        sys.setrecursionlimit(RECURSION_LIMIT)


def too_deep_token(tokens: Sequence[Token]) -> Token | None:
    """Return the first token that stands deeper than BRACKETS_MAX; None if there is none."""
    depth = signs = 0
    for token in tokens:
        kind = token.kind
        signs = signs + 1 if kind in _SIGNS else 0
        if kind in _OPENING:
            depth += 1
        elif kind in _CLOSING:
            depth = max(depth - 1, 0)
        if depth > BRACKETS_MAX or signs > BRACKETS_MAX:
            return token
    return None


def algebra_depth(tree: object) -> int:
    """Return the levels of an algebra (or of an update). Iterative: it tells whether a recursion would be safe."""
    deepest = 0
    waiting: list[tuple[object, int]] = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting.extend((part, depth + 1) for part in _parts(node))
    return deepest


def _parts(node: object) -> Iterable[object]:
    """Iterate over the parts of an algebra node, tuples opened up. Triples, terms and variables have no parts."""
    fields = [getattr(node, name) for name in getattr(type(node), "__slots__", ())]
    while fields:
        part = fields.pop()
        if isinstance(part, tuple):
            fields.extend(part)
        elif not isinstance(part, TriplePattern | Term | Variable | str | int | float | None):
            yield part


make_room()
