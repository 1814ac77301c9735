"""The walks of a path without that of no length, against regular expressions."""

from __future__ import annotations

import random
import re
from itertools import product

import pytest

from wukongs.csparql.paths import (
    Alternative,
    Inverse,
    OneOrMore,
    Path,
    PathSequence,
    Repeated,
    ZeroOrMore,
    ZeroOrOne,
    is_nullable,
    links_count,
)
from wukongs.csparql.terms import Term
from wukongs.incremental.walkable import walked

LINKS = {Term(f"<http://e/{letter}>"): letter for letter in "pq"}
WORDS = ["".join(letters) for length in range(5) for letters in product("pqPQ", repeat=length)]
"""Walks of up to four links; a capital is a link against its direction."""


def random_path(rng: random.Random, depth: int) -> Path:
    kind = rng.choice(("link", "*", "+", "?", "{}", "^", "|", "/", "/")) if depth else "link"
    if kind == "link":
        return rng.choice([*LINKS])
    inner = random_path(rng, depth - 1)
    match kind:
        case "*":
            return ZeroOrMore(inner)
        case "+":
            return OneOrMore(inner)
        case "?":
            return ZeroOrOne(inner)
        case "^":
            return Inverse(inner)
        case "{}":
            low = rng.randint(0, 2)
            return Repeated(inner, low, rng.choice((None, low, low + 1)))
    return (Alternative if kind == "|" else PathSequence)(inner, random_path(rng, depth - 1))


def regular(path: Path, *, is_inverse: bool = False) -> str:
    """Return the regular expression of the walks of a path."""
    match path:
        case Term():
            return LINKS[path].upper() if is_inverse else LINKS[path]
        case Inverse(path=inner):
            return regular(inner, is_inverse=not is_inverse)
        case Alternative() | PathSequence():
            sides = [regular(one, is_inverse=is_inverse) for one in (path.first, path.second)]
            if isinstance(path, Alternative):
                return f"(?:{'|'.join(sides)})"
            return "".join(reversed(sides) if is_inverse else sides)
        case Repeated(low=low, high=high):
            often = f"{{{low},{'' if high is None else high}}}"
        case _:
            often = {ZeroOrMore: "*", OneOrMore: "+", ZeroOrOne: "?"}[type(path)]
    return f"(?:{regular(path.path, is_inverse=is_inverse)}){often}"


def words(path: Path) -> set[str]:
    found = re.compile(regular(path))
    return {word for word in WORDS if found.fullmatch(word)}


@pytest.mark.parametrize("seed", range(6))
def test_a_walked_path_has_all_walks_but_that_of_no_length(seed: int) -> None:
    rng = random.Random(f"walked {seed}")
    for _ in range(60):
        path = random_path(rng, rng.randint(1, 4))
        found, wanted = walked(path), words(path)
        assert ("" in wanted) is is_nullable(path), path
        if found is None:
            assert wanted == {""}, path
        else:
            assert not is_nullable(found), path
            assert words(found) == wanted - {""}, path


def test_repeated_sequences_have_no_more_links() -> None:
    path: Path = ZeroOrOne(next(iter(LINKS)))
    for _ in range(5):
        path = PathSequence(path, path)
    found = walked(ZeroOrMore(path))
    assert found is not None
    assert links_count(found) == 32
