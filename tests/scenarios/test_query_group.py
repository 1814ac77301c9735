"""One registration of a query for each row of a table: what its windows hold, what is refused, what a restart keeps."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rdflib

import wukongs
from tests.faces import Face

EX, STREAM = "http://ex/", "http://ex/stream"
CLAUSE = f"FROM STREAM <{STREAM}> [RANGE 200ms STEP 100ms]"
POSTS = "{ ?u <http://ex/posts> ?p }"
USERS = 10
Rows = list[tuple[int, str, str]]


def table(*users: int) -> pa.Table:
    return pa.table({"u": [f"<{EX}u{user}>" for user in users]})


def text(where: str = POSTS, head: str = "SELECT ?u ?p", kind: str = "QUERY", clause: str = CLAUSE) -> str:
    return f"REGISTER {kind} g AS {head} {clause} WHERE {where}"


def begin(engine: Any) -> Any:
    return engine.stream(STREAM, timing=True, batch_ms=100)


def push(engine: Any, stream: Any, begin_ms: int, end_ms: int) -> None:
    """In stream batch n user n posts twice, and user n + 1 once."""
    for number in range(begin_ms // 100, end_ms // 100):
        posts = [(number, "a"), (number, "b"), (number + 1, "c")]
        stream.push([(f"<{EX}u{u}>", f"<{EX}posts>", f"<{EX}p{number}{p}>", number * 100 + 50) for u, p in posts])
    stream.advance(end_ms)
    engine.settle(60)


def posted(user: int, end_ms: int) -> set[str]:
    batches = [end_ms // 100 - 2, end_ms // 100 - 1]
    own = {f"p{one}{name}" for one in batches if one == user >= 0 for name in "ab"}
    return own | {f"p{one}c" for one in batches if one + 1 == user and one >= 0}


def read(query: Any) -> list[tuple[int, Rows]]:
    return [(window.end_ms, [plain(row) for row in window]) for window in query.results(timeout_s=0)]


def plain(row: tuple[Any, ...]) -> Any:
    return (int(row[0]), *(None if term is None else str(term).removeprefix(EX) for term in row[1:]))


def expected(users: list[int], end_ms: int) -> Rows:
    return [(number, f"u{user}", post) for number, user in enumerate(users) for post in sorted(posted(user, end_ms))]


def test_a_window_holds_the_rows_of_all_queries(engine: Any) -> None:
    """Some rows of the table are equal; most queries have no row at a time, and the last window has none at all."""
    stream = begin(engine)
    users = [2, 0, 7, 2, 1]
    group = engine.register(text(), bindings=table(*users))
    push(engine, stream, 0, 400)
    stream.advance(700)
    engine.settle(60)
    found = read(group)
    assert [end_ms for end_ms, _ in found] == [100, 200, 300, 400, 500, 600, 700]
    for end_ms, rows in found[:4]:
        assert sorted(rows) == expected(users, end_ms)
        assert [number for number, *_ in rows] == sorted(number for number, *_ in rows)
    assert [rows for _, rows in found[5:]] == [[], []]
    assert group.stats()["queries"] == 5
    assert "5 queries" in group.explain()
    assert group.why().startswith("g waits")
    assert [query.name for query in engine.queries()] == ["g"]


def test_dictionaries_of_terms_do_as_well(engine: Any) -> None:
    stream = begin(engine)
    rows = [{"u": rdflib.URIRef(EX + "u0")}, {"?u": f"<{EX}u1>"}]
    with pytest.raises(wukongs.DataError, match="row 0, column 'u': a value is missing"):
        engine.register(text(), bindings=[{"p": f"<{EX}p>"}, {"u": f"<{EX}u>", "p": f"<{EX}p>"}])
    with pytest.raises(wukongs.SettingsError, match="'u' is there twice"):
        engine.register(text(), bindings=rows)
    group = engine.register(text(), bindings=[rows[0], {"u": rows[1]["?u"]}])
    push(engine, stream, 0, 200)
    assert [sorted(rows) for _, rows in read(group)] == [expected([0, 1], 100), expected([0, 1], 200)]


def test_every_query_counts_for_itself(engine: Any) -> None:
    """An aggregate without GROUP BY has a row for each query, LIMIT keeps one row of each."""
    stream = begin(engine)
    users = [0, 1, 5]
    counts = engine.register(text(head="SELECT (COUNT(?p) AS ?n)"), bindings=table(*users))
    engine.register(
        text(head="SELECT ?p").replace("QUERY g", "QUERY first") + " ORDER BY DESC(?p) LIMIT 1", bindings=table(*users)
    )
    push(engine, stream, 0, 100)
    assert read(counts) == [(100, [(0, "2"), (1, "1"), (2, "0")])]
    first = next(query for query in engine.queries() if query.name == "first")
    assert read(first) == [(100, [(0, "p0b"), (1, "p0c")])]


def test_stored_data_and_several_columns(engine: Any) -> None:
    lines = "".join(f"<{EX}u{i}> <{EX}knows> <{EX}u{(i + 1) % USERS}> .\n" for i in range(USERS))
    engine.load(io.BytesIO(lines.encode()), format="nt")
    stream = begin(engine)
    bindings = pa.table({"u": [f"<{EX}u{i}>" for i in range(USERS)], "least": [f'"p{i}c"' for i in range(USERS)]})
    where = "{ ?u <http://ex/knows> ?f . ?f <http://ex/posts> ?p FILTER(STRENDS(STR(?p), ?least)) }"
    clause = f"FROM <urn:x-wukongs:default> {CLAUSE}"
    group = engine.register(text(where, "SELECT ?f ?p", clause=clause), bindings=bindings)
    push(engine, stream, 0, 300)
    # User i knows user i + 1, who posts p<i>c in stream batch i.
    assert read(group) == [
        (100, [(0, "u1", "p0c")]),
        (200, [(0, "u1", "p0c"), (1, "u2", "p1c")]),
        (300, [(1, "u2", "p1c"), (2, "u3", "p2c")]),
    ]


@pytest.mark.parametrize("kind", ["ISTREAM", "DSTREAM"])
def test_the_rows_that_come_and_go(engine: Any, kind: str) -> None:
    stream = begin(engine)
    group = engine.register(text(kind=kind), bindings=table(0, 1))
    push(engine, stream, 0, 200)
    stream.advance(400)
    engine.settle(60)
    shown = {end_ms: set(rows) for end_ms, rows in read(group)}
    whole = {end_ms: set(expected([0, 1], end_ms)) if end_ms < 400 else set() for end_ms in (0, 100, 200, 300, 400)}
    whole[300] = {row for row in whole[200] if row[2].startswith("p1")}
    for end_ms in (100, 200, 300, 400):
        now, before = whole[end_ms], whole[end_ms - 100]
        assert shown[end_ms] == (now - before if kind == "ISTREAM" else before - now), end_ms


def test_pausing_closing_and_a_name_that_is_taken(engine: Any) -> None:
    stream = begin(engine)
    group = engine.register(text(), bindings=table(0, 1))
    with pytest.raises(wukongs.StreamError, match="named g is registered already"):
        engine.register(text(), bindings=table(0, 2))
    push(engine, stream, 0, 100)
    group.pause()
    push(engine, stream, 100, 200)
    group.resume()
    group.replace(text(head="SELECT ?p"))
    push(engine, stream, 200, 300)
    assert [(end_ms, len(rows[0])) for end_ms, rows in read(group)] == [(100, 3), (300, 2)]
    with pytest.raises(wukongs.SettingsError, match="'u' is no variable"):
        group.replace(text("{ ?a <http://ex/posts> ?p }", "SELECT ?p"))
    group.close()
    again = engine.register(text(), bindings=table(3))
    push(engine, stream, 300, 400)
    assert [end_ms for end_ms, rows in read(again) if rows] == [400]


REFUSED = [
    (text(), {"x": ["<a:b>"]}, wukongs.SettingsError, "column 'x' is no variable in the WHERE clause of query g"),
    (text(head="SELECT (COUNT(?p) AS ?n)"), {"n": ["<a:b>"]}, wukongs.SettingsError, "'n' is no variable"),
    (text(), {"argument": ["<a:b>"]}, wukongs.SettingsError, "no column may have the name 'argument'"),
    (text(head="SELECT (?p AS ?argument)"), {"u": ["<a:b>"]}, wukongs.SettingsError, "reports .argument itself"),
    (text(), {"u": pa.array([], pa.string())}, wukongs.SettingsError, "each row is a query"),
    (text(), {}, wukongs.SettingsError, "each row is a query"),
    (text(), {"u": ["<a:b>", None]}, wukongs.DataError, "row 1, column 'u': a value is missing"),
    (text(), {"u": ["<a:b>", "a b"]}, wukongs.DataError, "row 1, column 'u', character 1"),
    (text(), {"u": [[1]]}, wukongs.DataError, "column 'u': expected "),
    (text(head="ASK"), {"u": ["<a:b>"]}, wukongs.UnsupportedFeatureError, "ASK in queries with bindings"),
    (text(head="CONSTRUCT { ?u ?u ?p }"), {"u": ["<a:b>"]}, wukongs.UnsupportedFeatureError, "CONSTRUCT in queries"),
    (
        text(head="CONSTRUCT { ?u ?u ?p }", kind="STREAM"),
        {"u": ["<a:b>"]},
        wukongs.UnsupportedFeatureError,
        "REGISTER STREAM in queries",
    ),
    (
        text("{ ?u <http://ex/posts> ?p BIND(RAND() AS ?r) }"),
        {"u": ["<a:b>"]},
        wukongs.UnsupportedFeatureError,
        r"RAND\(\) in queries",
    ),
]


@pytest.mark.parametrize(("query", "columns", "error", "message"), REFUSED)
def test_refused_by_name(
    engine: Any, query: str, columns: dict[str, Any], error: type[Exception], message: str
) -> None:
    begin(engine)
    with pytest.raises(error, match=message):
        engine.register(query, bindings=pa.table(columns))
    assert engine.queries() == []


def test_rows_count_for_each_query_and_bytes_for_all(face: Face) -> None:
    """A query has three rows at most, all of them more."""
    engine = face.open(wukongs.Settings(rows_max=4))
    stream = begin(engine)
    users = list(range(USERS)) * 3
    group = engine.register(text(), bindings=table(*users))
    push(engine, stream, 0, 200)
    assert [len(rows) for _, rows in read(group)] == [9, 18]
    engine = face.open(wukongs.Settings(query_bytes_max=1 << 20))
    stream = begin(engine)
    head = " ".join(f"(COUNT(*) AS ?n{at})" for at in range(10))
    group = engine.register(text(head=f"SELECT {head}"), bindings=table(*range(8000)))
    push(engine, stream, 0, 100)
    with pytest.raises(wukongs.BudgetExceeded):
        next(group.results(timeout_s=0))
    assert group.stats()["errors"] == 1


@pytest.mark.faces("durable")
@pytest.mark.parametrize("by_checkpoint", [False, True])
def test_a_group_goes_on_after_a_restart(face: Face, by_checkpoint: bool) -> None:
    engine = face.open()
    stream = begin(engine)
    users = [1, 5, 1, 2]
    group = engine.register(text(), bindings=table(*users))
    push(engine, stream, 0, 200)
    assert next(group.results(timeout_s=0)).end_ms == 100
    if by_checkpoint:
        engine.checkpoint()
    engine = face.reopen(engine)
    with pytest.raises(wukongs.StreamError, match="with another text or other bindings"):
        engine.register(text(), bindings=table(1, 5))
    with pytest.raises(wukongs.StreamError, match="with another text or other bindings"):
        engine.register(text())
    group = engine.register(text(), bindings=table(*users).cast(pa.schema([("u", pa.large_string())])))
    stream = begin(engine)
    push(engine, stream, 200, 300)
    found = read(group)
    assert [end_ms for end_ms, _ in found if end_ms > 100] == [200, 300]
    assert all(sorted(rows) == expected(users, end_ms) for end_ms, rows in found)
    group.close()
    assert face.reopen(engine).queries() == []


@pytest.mark.faces("embedded")
def test_a_blank_node_is_the_one_that_was_reported(engine: Any, tmp_path: Path) -> None:
    stream = begin(engine)
    stream.push([("_:a", f"<{EX}posts>", f"<{EX}p1>", 50), ("_:b", f"<{EX}posts>", f"<{EX}p2>", 50)])
    stream.advance(100)
    alone = engine.register(text().replace("QUERY g", "QUERY all"))
    engine.settle(60)
    push(engine, stream, 100, 200)
    (label,) = {row[0] for window in alone.results(timeout_s=0) for row in window.texts() if row[1] == f"<{EX}p1>"}
    assert label is not None
    group = engine.register(text(), bindings=pa.table({"u": [label, f"<{EX}u1>"]}))
    stream.push([("_:a", f"<{EX}posts>", f"<{EX}p3>", 250), ("_:b", f"<{EX}posts>", f"<{EX}p4>", 250)])
    stream.advance(300)
    engine.settle(60)
    (found,) = (window for window in group.results(timeout_s=0) if window.end_ms == 300)
    assert {(int(number), str(post)) for number, _, post in found} >= {(0, EX + "p3")}
    assert not any(str(post) == EX + "p4" for _, _, post in found)
