"""Programs in arenas of every size: the right answer or none, and no cell is written behind the arena."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

import wukongs
from wukongs.query.programs.arena import Arena
from wukongs.query.programs.program import Program

BEHIND = 256
"""Cells behind an arena that are looked at."""
MARK = 0x5EED
SIZES = (*range(160), *range(160, 500, 7), *range(500, 3000, 97))
FACTS = " ".join(
    f":n{at} :knows :n{at * 5 % 8} ; :name 'a name that is not inlined {at}' ; :age {at % 5}, {at}.5 ."
    for at in range(8)
)
TEXTS = {
    "patterns": "SELECT * { ?a :knows ?b . ?b :knows ?c }",
    "a filter over texts": "SELECT * { ?a :name ?n FILTER(?n < 'a name that is not inlined 5') }",
    "a filter over two texts": "SELECT * { ?a :knows ?b . ?a :name ?n . ?b :name ?m FILTER(?n < ?m) }",
    "a filter by a memo": "SELECT * { ?a :name ?n FILTER(STRLEN(?n) > 3 && CONTAINS(?n, 'name')) }",
    "bind": "SELECT * { ?a :name ?n BIND(UCASE(?n) AS ?x) }",
    "optional": "SELECT * { ?a :knows ?b OPTIONAL { ?b :age ?x FILTER(?x > 2) } }",
    "union": "SELECT * { { ?a :knows ?b } UNION { ?a :age ?b } }",
    "exists": "SELECT * { ?a :knows ?b FILTER NOT EXISTS { ?b :age 3 } }",
    "exists of nothing": "SELECT * { ?a :none ?b FILTER EXISTS { ?c :knows ?d } }",
    "exists apart": "SELECT * { ?a :knows ?b FILTER EXISTS { ?c :knows ?d } }",
    "minus": "SELECT * { ?a :knows ?b MINUS { ?b :age 3 } }",
    "values": "SELECT * { VALUES (?a ?x) { (:n1 1) (:n2 UNDEF) (UNDEF 3) } ?a :age ?x }",
    "groups": "SELECT ?b (SUM(?x) AS ?s) (COUNT(DISTINCT ?x) AS ?d) { ?a :knows ?b ; :age ?x } GROUP BY ?b",
    "extremes": "SELECT ?b (MIN(?n) AS ?l) (SAMPLE(?n) AS ?s) { ?a :knows ?b ; :name ?n } GROUP BY ?b",
    "texts of groups": "SELECT ?b (GROUP_CONCAT(?n) AS ?t) { ?a :knows ?b ; :name ?n } GROUP BY ?b",
    "distinct": "SELECT DISTINCT ?x { ?a :age ?x }",
    "distinct solutions": "SELECT (COUNT(DISTINCT *) AS ?n) { { ?a :knows ?b } UNION { ?b :age ?x } }",
    "order": "SELECT ?a ?x { ?a :age ?x } ORDER BY DESC(?x) ?a LIMIT 5",
    "order of texts": "SELECT ?a ?n { ?a :name ?n } ORDER BY DESC(?n) LIMIT 3",
    "order of all": "SELECT ?a ?x { { ?a :age ?x } UNION { ?a :name ?x } } ORDER BY ?x ?a OFFSET 2",
}


class Guarded(Arena):
    """An arena with marked cells behind it."""

    def __init__(self, cells: int) -> None:
        super().__init__(cells + BEHIND)
        self._count = cells
        self.cells[cells:] = MARK

    def __len__(self) -> int:
        return self._count

    @property
    def is_whole(self) -> bool:
        return bool((self.cells[self._count :] == MARK).all())


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as found:
        found.update(f"PREFIX : <http://e/> INSERT DATA {{ {FACTS} }}")
        yield found


@pytest.mark.parametrize("text", TEXTS)
def test_an_arena_of_any_size_gives_the_answer_or_none(
    text: str, engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, ran = f"PREFIX : <http://e/> {TEXTS[text]}", Counter[bool]()
    expected = Counter(engine.query(query).texts())  # the first call has no program
    run = Program.run

    def counted(*given: object, **options: object) -> object:
        found = run(*given, **options)  # type: ignore[arg-type]
        ran[found is not None] += 1
        return found

    monkeypatch.setattr(Program, "run", counted)
    for cells in SIZES:
        arena = Guarded(cells)
        monkeypatch.setattr(engine._reads, "_arena", arena)
        for _ in range(2):
            assert Counter(engine.query(f"{query} # {cells}").texts()) == expected, cells
        assert arena.is_whole, cells
    assert ran[True] > 10, ran
    assert ran[False] > 10, ran
    assert np.array_equal(arena.cells[-BEHIND:], np.full(BEHIND, MARK))
