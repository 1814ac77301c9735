"""Whether rows stand in the order that a query's own ORDER BY asks for, wherever SPARQL 1.1 says which comes first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from tests.fuzzing.answers import term_of
from tests.fuzzing.trees import Tree
from tests.oracles.values import Undefined, order_terms

Row = tuple[str | None, ...]
_KEY = re.compile(r"(DESC\( )?\?(\w+)")


def order_fault(query: Tree, rows: Sequence[Row], names: Sequence[str]) -> str:
    """Say which rows stand the wrong way round; '' if none. Looks at neighbours, and at keys that are shown."""
    clauses = [part for part in query.parts if isinstance(part, Tree) and part.operator == "ORDER BY"]
    if not clauses or any(isinstance(part, Tree) for part in clauses[0].parts):
        return ""  # of a condition that comes first, only what it decides on is shown
    found = [_KEY.match(key) for key in re.findall(r"DESC\( \?\w+ \)|\?\w+|\w+\( \?\w+ \)", str(clauses[0]))]
    keys = []
    for key in found:
        if key is None or key[2] not in names:
            break  # what comes behind only decides where this does not
        keys.append((names.index(key[2]), bool(key[1])))
    for one, other in pairwise(rows):
        for place, is_descending in keys:
            sign = _sign(one[place], other[place])
            if sign is None or (sign != 0 and (sign < 0) != is_descending):
                break
            if sign:
                return f"{one} stands before {other}"
    return ""


def _sign(one: str | None, other: str | None) -> int | None:
    try:
        return order_terms(*(None if text is None else term_of(text) for text in (one, other)))
    except (Undefined, TypeError):  # of dateTimes with and without a zone datetime says TypeError
        return None
