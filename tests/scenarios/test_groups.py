"""Queries that are equal but for constants: each gets its own rows, though they fire as one."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

import wukongs
from tests.faces import Face

EX, STREAM = "http://ex/", "http://ex/stream"
WINDOW = f"FROM <urn:x-wukongs:default> FROM STREAM <{STREAM}> [RANGE 200ms STEP 100ms]"
FRIENDS = "{ <http://ex/u%d> <http://ex/knows> ?f . ?f <http://ex/posts> ?p }"
USERS = 30


def begin(engine: wukongs.Engine) -> wukongs.Stream:
    """Each user knows the next three; the stream is there."""
    pairs = ((i, (i + step) % USERS) for i in range(USERS) for step in (1, 2, 3))
    data = "".join(f"<{EX}u{i}> <{EX}knows> <{EX}u{j}> .\n" for i, j in pairs)
    engine.load(io.BytesIO(data.encode()), format="nt")
    return engine.stream(STREAM, timing=True, batch_ms=100)


def register(
    engine: wukongs.Engine,
    name: str,
    where: str,
    head: str = "SELECT ?f ?p",
    on_result: Callable | None = None,
    output: str = "QUERY",
) -> wukongs.ContinuousQuery:
    return engine.register(f"REGISTER {output} {name} AS {head} {WINDOW} WHERE {where}", on_result)


def push(engine: wukongs.Engine, stream: wukongs.Stream, end_ms: int, begin_ms: int = 0) -> None:
    """In each stream batch every third user posts once."""
    for number in range(begin_ms // 100, end_ms // 100):
        posts = range(number % 3, USERS, 3)
        stream.push([(f"<{EX}u{i}>", f"<{EX}posts>", f"<{EX}p{i}n{number}>", number * 100 + 50) for i in posts])
    stream.advance(end_ms)
    engine.settle(60)


def posted(user: int, number: int) -> set[tuple[str, str]]:
    """The posts of a user's friends in the stream batch and in the one before it."""
    known = [(user + step) % USERS for step in (1, 2, 3)]
    batches = [one for one in (number - 1, number) if one >= 0]
    return {(f"<{EX}u{i}>", f"<{EX}p{i}n{one}>") for i in known for one in batches if i % 3 == one % 3}


def windows(query: wukongs.ContinuousQuery) -> list[set[tuple[str, ...]]]:
    return [set(map(tuple, window.texts())) for window in query.results(timeout_s=0)]


def test_each_query_gets_its_own_rows(engine: wukongs.Engine) -> None:
    """Two hundred queries, some of them twice."""
    stream = begin(engine)
    queries = [register(engine, f"q{n}", FRIENDS % (n % USERS)) for n in range(200)]
    push(engine, stream, 400)
    for n, query in enumerate(queries):
        assert windows(query) == [posted(n % USERS, number) for number in range(4)]
        assert n < 8 or query.stats()["explored_together"] == 4
    assert "queries of one shape together" in queries[100].explain()


def test_a_query_that_is_closed_or_paused_by_another_reports_nothing_more(engine: wukongs.Engine) -> None:
    seen: list[tuple[str, int]] = []
    stream = begin(engine)
    queries: dict[str, wukongs.ContinuousQuery] = {}

    def note(name: str) -> Callable[[wukongs.WindowResult], None]:
        def on_result(window: wukongs.WindowResult) -> None:
            seen.append((name, window.end_ms))
            if (name, window.end_ms) == ("q0", 100):
                queries["q1"].close()
                queries["q2"].pause()
            if (name, window.end_ms) == ("q0", 200):
                queries["q2"].resume()

        return on_result

    for n in range(4):
        queries[f"q{n}"] = register(engine, f"q{n}", FRIENDS % n, on_result=note(f"q{n}"))
    for end_ms in (100, 200, 300):
        push(engine, stream, end_ms, end_ms - 100)
    assert {end_ms for name, end_ms in seen if name == "q1"} <= {100}
    assert {end_ms for name, end_ms in seen if name == "q2"} - {100} == {300}
    assert [end_ms for name, end_ms in seen if name == "q3"] == [100, 200, 300]


def test_what_is_too_much_together_is_no_fault_of_one(face: Face) -> None:
    """Five rows are allowed: each query has at most six in its window, all of them sixty."""
    engine = face.open(wukongs.Settings(rows_max=8))
    stream = begin(engine)
    queries = [register(engine, f"q{n}", FRIENDS % n) for n in range(USERS)]
    wide = register(engine, "wide", "{ ?u <http://ex/knows> ?f . ?f <http://ex/posts> ?p }")
    push(engine, stream, 200)
    for n, query in enumerate(queries):
        assert windows(query) == [posted(n, number) for number in range(2)]
    with pytest.raises(wukongs.BudgetExceeded):
        windows(wide)
