"""Paths of any kind, with bounds too, in the places of a query where they may stand, against the definitions of section
18.4 (tests/oracles/paths.py): alone, beside rows, in EXISTS and MINUS, for rows of arguments."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterable

import pytest

import wukongs
from tests.fuzz import SEED, TIER, scaled
from tests.oracles import paths as oracle
from tests.oracles.paths import Path, Triples, Var

PREDICATES = ("<http://e/p>", "<http://e/q>", "<http://e/r>")
NODES = tuple(f"<http://e/{number}>" for number in range(6))
STRANGERS = ("<http://e/nowhere>", '"text"', "<http://e/p>")
GRAPHS = ("", "<http://e/g>", "<http://e/0>")
Row = tuple[str | None, ...]
WORLDS = 4 if TIER == "fast" else scaled(40)
PATTERNS = 25


def random_path(rng: random.Random, depth: int) -> Path:
    match rng.choice("ll^/|!{{" if depth else "ll!"):
        case "l":
            return "link", rng.choice(PREDICATES)
        case "!":
            return "!", tuple(rng.sample(PREDICATES, rng.choice((1, 2)))), None
        case "^":
            return "^", random_path(rng, depth - 1)
        case "{":
            return repeated(rng, random_path(rng, depth - 1))
        case kind:
            return kind, random_path(rng, depth - 1), random_path(rng, depth - 1)


def repeated(rng: random.Random, inner: Path) -> Path:
    if rng.random() < 0.3:
        return rng.choice("*+?"), inner
    low = rng.choice((0, 0, 1, 1, 1, 2, 3))
    return "{", inner, low, rng.choice((None, low, low + 1, low + 2, low + 4))


def text_of(path: Path) -> str:
    match path:
        case ("link", predicate):
            return str(predicate)
        case ("!", excluded, _):
            return f"!({'|'.join(excluded)})"
        case ("^", inner):
            return f"^({text_of(inner)})"
        case ("{", inner, low, high):
            return f"({text_of(inner)}){{{low},{'' if high is None else high}}}"
        case ("/" | "|", first, second):
            return f"({text_of(first)}{path[0]}{text_of(second)})"
        case (suffix, inner):
            return f"({text_of(inner)}){suffix}"
    raise AssertionError(path)


def solutions(path: Path, ends: tuple[str, str], triples: Triples, given: dict[str, str] | None = None) -> list[Row]:
    """Return (?x, ?y) of each solution, where given terms stand in the place of variables."""
    given = given or {}
    known = [given.get(end, end) for end in ends]
    found = oracle.evaluate(path, *(Var(end) if end.startswith("?") else end for end in known), triples)
    return [tuple(given.get(name, row.get(name)) for name in ("?x", "?y")) for row in found]  # type: ignore[misc]


def joined(rows: Iterable[Row], others: Iterable[Row]) -> Counter[Row]:
    """Join on what both bind; the columns that only the second have come behind."""
    return Counter(
        (*(one if one is not None else two for one, two in zip(row, other, strict=False)), *other[len(row) :])
        for other in others
        for row in rows
        if all(one is None or two is None or one == two for one, two in zip(row, other, strict=False))
    )


class Case:
    """A world of three graphs, and one engine that has it."""

    def __init__(self, rng: random.Random, engine: wukongs.Engine) -> None:
        self.rng, self.engine = rng, engine
        count = rng.choice((3, 6, 10))
        self.graphs: dict[str, Triples] = {
            name: {
                (rng.choice(NODES), rng.choice(PREDICATES), rng.choice((*NODES, *NODES, '"text"'))) for _ in range(size)
            }
            for name, size in zip(GRAPHS, (count, count, 2), strict=True)
        }
        lines = [f"{s} {p} {o} {name} .\n" for name, triples in self.graphs.items() for s, p, o in sorted(triples)]
        engine.load(io.BytesIO("".join(lines).encode()), format="nq")

    def ask(self, where: str, variables: str = "?x ?y") -> Counter[Row]:
        return Counter(self.engine.query(f"SELECT {variables} {{ {where} }}", timeout_s=60).texts())

    def check(self) -> None:
        rng = self.rng
        path = repeated(rng, random_path(rng, 1)) if rng.random() < 0.7 else random_path(rng, 2)
        ends = tuple(rng.choice((name, name, rng.choice((*NODES, *STRANGERS)))) for name in ("?x", "?y"))
        if rng.random() < 0.1:
            ends = "?x", "?x"
        if ends[0].startswith('"'):
            ends = "?x", ends[1]
        name = rng.choice(("", "", GRAPHS[1], "?g"))
        block = f"{ends[0]} {text_of(path)} {ends[1]}"
        block = f"GRAPH {name} {{ {block} }}" if name else block

        names = [graph for graph in GRAPHS if graph] if name == "?g" else [name]
        alone = [(*row, graph) for graph in names for row in solutions(path, ends, self.graphs[graph])]
        shown = "?x ?y ?g" if name == "?g" else "?x ?y"
        expected = alone if name == "?g" else [row[:2] for row in alone]
        assert self.ask(block, shown) == Counter(expected), block

        terms = (*NODES, *NODES, *STRANGERS)
        rows = [(rng.choice(terms), rng.choice(terms)) for _ in range(rng.choice((1, 3, 50)))]
        values = f"VALUES (?x ?y) {{ {' '.join(f'({x} {y})' for x, y in rows)} }}"
        assert self.ask(f"{values} {block}", shown) == joined(rows, expected), (values, block)
        subtracted = [row for row in rows if not (joined([row], expected) and any(end[0] == "?" for end in ends))]
        assert self.ask(f"{values} MINUS {{ {block} }}") == Counter(subtracted), (values, block)

        def has(x: str, y: str) -> bool:
            given = {"?x": x, "?y": y}
            return any(solutions(path, ends, self.graphs[graph], given) for graph in names)

        there = [row for row in rows if has(*row)]
        assert self.ask(f"{values} FILTER EXISTS {{ {block} }}") == Counter(there), (values, block)
        if ends == ("?x", "?y"):
            prepared = self.engine.prepare(f"SELECT (1 AS ?one) {{ {block} }}")
            found = set(prepared.many([{"x": x, "y": y} for x, y in rows])["argument"].to_pylist())
            assert found == {number for number, row in enumerate(rows) if has(*row)}, (rows, block)


@pytest.mark.parametrize("number", range(WORLDS))
def test_random_paths_in_patterns(number: int) -> None:
    rng = random.Random(f"path patterns {'tests' if SEED is None else SEED}/{number}")
    with wukongs.Engine() as engine:
        case = Case(rng, engine)
        for _ in range(PATTERNS):
            case.check()
