"""Equal patterns of several queries over the same windows are explored once (compiled.SharedRows)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wukongs
from wukongs.query.plans import compiled
from wukongs.query.plans.compiled import SharedRows
from wukongs.query.programs.program import Program

EX = "http://ex/"
FROM = f"FROM STREAM <{EX}s> [RANGE 300ms STEP 100ms]"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[wukongs.Engine]:
    """An engine whose executor evaluates the queries: programs explore their patterns by themselves."""
    monkeypatch.setattr(Program, "run", lambda *_, **__: None)
    with wukongs.Engine() as found:
        found.stream(f"{EX}s", batch_ms=100, timing=True)
        yield found


def tick(engine: wukongs.Engine, number: int, *edges: str) -> None:
    """Push edges such as "ab" into a stream batch, and close it."""
    tuples = [(f"<{EX}{a}>", f"<{EX}p>", f"<{EX}{b}>", number * 100 - 50) for a, b in edges]
    stream = engine.declared(f"{EX}s")
    stream.push(tuples)
    stream.advance(number * 100)
    engine.settle(30)


def register(engine: wukongs.Engine, name: str, head: str, where: str, tail: str = "") -> Any:
    return engine.register(f"PREFIX : <{EX}> REGISTER QUERY {name} AS SELECT {head} {FROM} WHERE {{ {where} }} {tail}")


def rows(query: Any) -> list[list[str]]:
    """Return the rows of each window that waits: the last letter of an IRI, the digits of a number."""
    return [
        sorted(
            " ".join(cell.split('"')[1] if cell.startswith('"') else cell[-2] for cell in row) for row in one.texts()
        )
        for one in query.results(timeout_s=0)
    ]


def test_they_are_explored_once_whatever_stands_above_them(engine: wukongs.Engine) -> None:
    queries = [
        register(engine, "counted", "?a (COUNT(*) AS ?n)", "?a :p ?b . ?b :p ?c", "GROUP BY ?a"),
        register(engine, "ordered", "?x ?z", "?x :p ?y . ?y :p ?z", "ORDER BY DESC(?z) DESC(?x) LIMIT 1"),
        register(engine, "filtered", "?a ?c", f'?a :p ?b . ?b :p ?c FILTER(STR(?c) > "{EX}c")'),
    ]
    for number, edges in enumerate((["ab", "bc"], ["cd"], ["bd"], ["xy"], ["dc"]), 1):
        tick(engine, number, *edges)
    assert [rows(query) for query in queries] == [
        [["a 1"], ["a 1", "b 1"], ["a 2", "b 1"], [], ["b 1"]],
        [["a c"], ["b d"], ["b d"], [], ["b c"]],
        [[], ["b d"], ["a d", "b d"], [], []],
    ]
    shared = [query.stats()["found_by"].get("shared_patterns", 0) for query in queries]
    assert shared[0] == 0
    assert min(shared[1:]) >= 3


def test_only_the_windows_that_they_read_tell_them_apart(engine: wukongs.Engine) -> None:
    """How often other windows of the queries were written says nothing, whichever stands first."""
    windows = {name: f"FROM NAMED STREAM <{EX}{name}> [RANGE 300ms STEP 100ms]" for name in "stu"}
    for name in "tu":
        engine.stream(f"{EX}{name}", batch_ms=100, timing=True)

    def registered(head: str, *names: str) -> Any:
        others = " ".join(f"OPTIONAL {{ GRAPH :{name} {{ ?x :q ?y }} }}" for name in names if name != "s")
        where = f"{{ GRAPH :s {{ ?a :p ?b . ?b :p ?c }} {others} }} GROUP BY ?a"
        froms = " ".join(windows[name] for name in names)
        text = f"PREFIX : <{EX}> REGISTER QUERY {'_'.join(names)} AS SELECT {head} {froms} WHERE {where}"
        return engine.register(text)

    def move(number: int, *edges: str) -> None:
        for name in "tu":
            stream = engine.declared(f"{EX}{name}")
            stream.push([(f"<{EX}k{number}>", f"<{EX}r>", f"<{EX}k>", number * 100 - 50)])
            stream.advance(number * 100)
        tick(engine, number, *edges)

    for name in "su":
        registered("?a (MIN(?c) AS ?n)", *dict.fromkeys(("s", name)))
        move("su".index(name) + 1, "zz")
    queries = [registered("?a (COUNT(*) AS ?n)", "s", "t"), registered("?a (MAX(?c) AS ?n)", "u", "s")]
    for number, edges in enumerate((["ab", "bc"], ["cd"], ["bd"], ["xy"], ["dc"]), 5):
        move(number, *edges)
    assert rows(queries[0])[2:] == [["a 1"], ["a 1", "b 1"], ["a 2", "b 1"], [], ["b 1"]]
    assert rows(queries[1])[2:] == [["a c"], ["a c", "b d"], ["a d", "b d"], [], ["b c"]]
    assert queries[0].stats()["found_by"].get("shared_patterns", 0) >= 3


def test_the_row_to_start_from_tells_them_apart(engine: wukongs.Engine) -> None:
    queries = [
        register(engine, f"from_{start}", "?b (COUNT(*) AS ?n)", f"VALUES ?a {{ :{start} }} ?a :p ?b", "GROUP BY ?b")
        for start in ("a", "x")
    ]
    for number in range(1, 4):
        tick(engine, number, "ab", "xy")
    assert [rows(query) for query in queries] == [[["b 1"]] * 3, [["y 1"]] * 3]


def test_no_more_is_kept_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "SHARED_BYTES_MAX", 100)
    monkeypatch.setattr(compiled, "PLANS_SHARED_MAX", 2)
    shared, found = SharedRows(), np.zeros((1, 10), np.int64)
    assert shared.get("p", (1,)) is None
    shared.put("p", found)
    assert shared.get("p", (1,)) is None, "nobody else had asked for it"
    shared.put("p", found)
    assert shared.get("p", (1,)) is found
    assert shared.get("p", (2,)) is None, "its windows have other tuples"
    shared.put("p", found)
    assert shared.get("p", (2,)) is found
    shared.get("q", (2,))
    shared.get("q", (2,))
    shared.put("q", found)
    assert shared.get("p", (2,)) is None, "both have more bytes than are kept"
    for name in "abc":
        shared.get(name, ())
    assert len(shared._known) <= 2
