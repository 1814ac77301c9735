"""Filters over the product of two lists: the answers of two nested loops, with the pairs held only block by block."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterator

import pytest

import wukongs
from wukongs import settings
from wukongs.query.operators import operators
from wukongs.query.plans import plan_runner

WORDS, PARTS, NUMBERS = 300, 240, 3000
PREFIX = "PREFIX : <http://e/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> "
SOURCE = random.Random("products")
WORD = ["".join(SOURCE.choices("abc", k=9)) for _ in range(WORDS)]
PART = ["".join(SOURCE.choices("abc", k=4)) for _ in range(PARTS)]
SMALL = [SOURCE.randrange(10**6) for _ in range(NUMBERS)]
LARGE = [SOURCE.randrange(10**6) for _ in range(NUMBERS)]
PAIRS = Counter((word, part) for word in WORD for part in PART if part in word and word[0] == "a")


@pytest.fixture(scope="module")
def engine() -> Iterator[wukongs.Engine]:
    lists = (("word", WORD), ("part", PART))
    lines = [
        f'<http://e/{name}{at}> <http://e/{name}> "{text}" .' for name, texts in lists for at, text in enumerate(texts)
    ]
    for name, numbers in (("small", SMALL), ("large", LARGE)):
        for at, number in enumerate(numbers):
            lines.append(
                f'<http://e/{name}{at}> <http://e/{name}> "{number}"^^<http://www.w3.org/2001/XMLSchema#integer> .'
            )
    with wukongs.Engine(settings=settings.Settings(query_bytes_max=48 << 20)) as made:
        made.load(io.BytesIO("\n".join(lines).encode()), format="nt")
        yield made


WORD_LIST = " ".join(f'"{word}"' for word in WORD)
PART_LIST = " ".join(f'"{part}"' for part in PART)
FILTERS = "FILTER(CONTAINS(?x, ?y)) FILTER(STRSTARTS(?x, 'a'))"
FIRST = "{ SELECT ?a ?x { ?a :word ?x } ORDER BY ?a }"
STARTS = "EXISTS { ?a :word ?z FILTER(STRSTARTS(?z, 'a')) }"
SHAPES = {
    "patterns": f"?a :word ?x . ?b :part ?y {FILTERS}",
    "groups": f"{{ ?a :word ?x }} {{ ?b :part ?y }} {FILTERS}",
    "subqueries": f"{FIRST} {{ SELECT ?b ?y {{ ?b :part ?y }} ORDER BY ?b }} {FILTERS}",
    "values": f"VALUES ?x {{ {WORD_LIST} }} VALUES ?y {{ {PART_LIST} }} {FILTERS}",
    "values and a pattern": f"VALUES ?x {{ {WORD_LIST} }} ?b :part ?y {FILTERS}",
    "a subquery and two patterns": f"{{ SELECT ?x {{ ?a :word ?x }} ORDER BY ?x }} ?b :part ?y ; ?p ?y {FILTERS}",
    "a union": f"?a :word ?x {{ ?b :part ?y }} UNION {{ ?b :nothing ?y }} {FILTERS}",
    "a pattern in the filter": f"?a :word ?x . ?b :part ?y FILTER(CONTAINS(?x, ?y) && {STARTS})",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_answers_are_those_of_two_loops(engine: wukongs.Engine, shape: str) -> None:
    assert len(PAIRS) > 100
    rows = engine.query(f"{PREFIX} SELECT ?x ?y {{ {SHAPES[shape]} }}")
    assert Counter((str(x), str(y)) for x, y in rows) == PAIRS


def test_optional_keeps_rows_without_a_partner(engine: wukongs.Engine) -> None:
    rows = engine.query(f"{PREFIX} SELECT ?x ?y {{ ?a :word ?x OPTIONAL {{ ?b :part ?y FILTER(CONTAINS(?x, ?y)) }} }}")
    expected = [(word, part) for word in WORD for part in ([p for p in PART if p in word] or ["None"])]
    assert Counter((str(x), str(y)) for x, y in rows) == Counter(expected)


def test_rows_wanted_end_the_search(engine: wukongs.Engine) -> None:
    for limit in (1, 70, 5000):
        rows = engine.query(f"{PREFIX} SELECT ?x ?y {{ {SHAPES['patterns']} }} LIMIT {limit}")
        found = Counter((str(x), str(y)) for x, y in rows)
        assert found.total() == min(limit, PAIRS.total())
        assert found <= PAIRS


@pytest.mark.parametrize(
    "body",
    [
        "?a :small ?x . ?b :large ?y FILTER(?x + 999000 < ?y)",
        "{ SELECT ?x { ?a :small ?x } ORDER BY ?x } { SELECT ?y { ?a :large ?y } ORDER BY ?y } "
        "FILTER(?x + 999000 < ?y)",
        "{ SELECT ?x { ?a :small ?x } ORDER BY ?x } ?b :large ?y FILTER(?x + 999000 < ?y)",
    ],
)
def test_nine_million_pairs_take_little_memory(engine: wukongs.Engine, body: str) -> None:
    rows = engine.query(f"{PREFIX} SELECT ?x ?y {{ {body} }}")
    expected = Counter((x, y) for x in SMALL if x < 1000 for y in LARGE if x + 999000 < y)
    assert expected
    assert Counter((int(x), int(y)) for x, y in rows) == expected


def test_blocks_of_any_size_give_the_same_rows(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 4097, 10**9):
        monkeypatch.setattr(plan_runner, "BLOCK_ROWS", size)
        monkeypatch.setattr(operators, "BLOCK_ROWS", size)
        for shape in ("patterns", "subqueries", "a union"):
            rows = engine.query(f"{PREFIX} SELECT ?x ?y {{ {SHAPES[shape]} }}")
            assert Counter((str(x), str(y)) for x, y in rows) == PAIRS
