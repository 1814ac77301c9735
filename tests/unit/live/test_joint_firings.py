"""Programs in an engine: as the executor answers, by few calls, and with nothing left of queries that go."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import pytest

import wukongs
from tests.scenarios.test_groups import FRIENDS, WINDOW, begin, posted, push, register, windows
from wukongs.csparql import filter_placement
from wukongs.live import joined_queries, joint_firings, query_windows
from wukongs.live.engine_windows import EngineWindows
from wukongs.live.query_firings import QueryFirings
from wukongs.query.plans import compiled, deltas
from wukongs.query.plans.compiled_plans import CompiledPlans
from wukongs.query.programs import program
from wukongs.store import window_table

STREAM = "http://ex/stream"
HEADS = ("SELECT ?f ?p", "SELECT ?p", "SELECT ?p ?f")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries of one shape stay alone, and each program runs with others however long its first runs take."""
    monkeypatch.setattr(joined_queries, "ALONE_MAX", 1 << 30)
    monkeypatch.setattr(program, "TOGETHER_S", 60.0)


def test_windows_are_those_of_the_executor() -> None:
    """Rows and their order; queries that are alike and that are not, over windows alone and with stored data."""
    found = []
    for is_compiled in (True, False):
        with wukongs.Engine() as engine, pytest.MonkeyPatch.context() as patch:
            if not is_compiled:
                patch.setattr(CompiledPlans, "is_for", staticmethod(lambda query: False))
            stream = begin(engine)
            queries = [register(engine, f"q{n}", FRIENDS % n, HEADS[n % 3]) for n in range(30)]
            queries += [
                register(engine, f"all{n}", "{ ?f <http://ex/posts> ?p }", head) for n, head in enumerate(HEADS)
            ]
            queries += [register(engine, "none", "{ ?f <http://ex/nothing> ?p }")]
            push(engine, stream, 1000)
            found.append([[window.texts() for window in query.results(timeout_s=0)] for query in queries])
            assert [query.text.answering.compiled is not None for query in queries] == [is_compiled] * len(queries)
    assert found[0] == found[1]
    assert any(found[0][0])


def test_one_call_runs_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    run_programs = program.run_programs

    def counted(*arguments: Any) -> Any:
        if len(arguments[0]) > 1:
            calls.append(len(arguments[0]))
        return run_programs(*arguments)

    monkeypatch.setattr(program, "run_programs", counted)
    with wukongs.Engine() as engine:
        stream = begin(engine)
        queries = [register(engine, f"q{n}", FRIENDS % (n % 30), HEADS[n // 30 % 3]) for n in range(200)]
        push(engine, stream, 400)
        assert calls == [90] * 3, "of two hundred, 110 are equal to others; in the first firing each is compiled"
        assert windows(queries[0]) == [posted(0, number) for number in range(4)]
        assert queries[7].stats()["explored_together"] == 3
        assert queries[7].stats()["found_by"] == {"program": 4, "program_batch": 3, "direct": 3}


def test_an_offender_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes more than the workspace holds, and more rows than it may."""
    monkeypatch.setattr(compiled, "OUT_CELLS", 64)
    monkeypatch.setattr(query_windows, "OUT_CELLS", 64)
    with wukongs.Engine(settings=wukongs.Settings(rows_max=100)) as engine:
        stream = begin(engine)
        alike = [register(engine, f"q{n}", FRIENDS % n) for n in range(5)]
        offender = register(engine, "offender", "{ ?f <http://ex/posts> ?p . ?g <http://ex/posts> ?q }", "SELECT ?p ?q")
        push(engine, stream, 200)
        for n, query in enumerate(alike):
            assert windows(query) == [posted(n, number) for number in range(2)]
        assert len(next(offender.results(timeout_s=0))) == 100
        with pytest.raises(wukongs.BudgetExceeded, match="rows_max = 100"):
            list(offender.results(timeout_s=0))


@pytest.mark.parametrize("error", [MemoryError, ValueError])
def test_what_fails_for_many_is_met_by_each_alone(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory, and a mistake of ours."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(joint_firings, "run_together", fail)
    with wukongs.Engine() as engine:
        stream = begin(engine)
        queries = [register(engine, f"q{n}", FRIENDS % n) for n in range(3)]
        push(engine, stream, 200)
        for n, query in enumerate(queries):
            assert windows(query) == [posted(n, number) for number in range(2)]
            assert query.stats()["explored_together"] == 0


def test_a_program_that_takes_long_is_run_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "TOGETHER_S", 0.0)
    with wukongs.Engine() as engine:
        stream = begin(engine)
        queries = [register(engine, f"q{n}", FRIENDS % n) for n in range(3)]
        push(engine, stream, 400)
        assert [query.stats()["found_by"] for query in queries] == [{"program": 4}] * 3


def test_one_program_beside_others_that_have_none_is_run_by_itself() -> None:
    with wukongs.Engine() as engine:
        stream = begin(engine)
        one = register(engine, "one", FRIENDS % 0)
        other = register(engine, "other", "{ ?f <http://ex/posts> ?p BIND(RAND() AS ?n) }", "SELECT *")
        push(engine, stream, 400)
        assert one.stats()["found_by"] == {"program": 4, "direct": 3}
        assert one.stats()["explored_together"] == 0
        assert "program" not in other.stats()["found_by"]


def test_the_time_of_a_joint_run_is_shared_by_its_firings(monkeypatch: pytest.MonkeyPatch) -> None:
    run = joint_firings.run_together

    def slow(*given: Any) -> Any:
        time.sleep(0.05)
        return run(*given)

    monkeypatch.setattr(joint_firings, "run_together", slow)
    with wukongs.Engine() as engine:
        stream = begin(engine)
        queries = [register(engine, f"q{n}", FRIENDS % n) for n in range(5)]
        push(engine, stream, 600)
        assert {query.stats()["found_by"]["program_batch"] for query in queries} == {5}
        assert all(query.stats()["execution_us_p50"] > 10_000 for query in queries)


def test_nothing_is_left_of_a_query_that_goes() -> None:
    with wukongs.Engine() as engine:
        stream = begin(engine)
        kept = register(engine, "kept", FRIENDS % 0)
        wide = engine.register(
            f"REGISTER QUERY wide AS SELECT ?f FROM STREAM <{STREAM}> [RANGE 1s STEP 100ms] WHERE {FRIENDS % 1}"
        )
        push(engine, stream, 300)
        assert wide.text.answering.compiled is not None
        seen = weakref.ref(wide.text.answering.plans)
        core = engine._core
        numbers = set(wide.text.answering.compiled.windows.numbers.values())
        wide.close()
        del wide
        push(engine, stream, 500, 300)
        gc.collect()
        assert seen() is None
        assert kept.text.answering.compiled is not None
        table = kept.text.answering.compiled.windows.table
        with core.lock:
            core.windows.tidy()
            assert all(not len(table.batches(number)) for number in numbers)


def test_a_replaced_query_is_compiled_anew() -> None:
    with wukongs.Engine() as engine:
        stream = begin(engine)
        query = register(engine, "q", FRIENDS % 0)
        push(engine, stream, 200)
        engine.settle(60)
        query.replace(query.source.text.replace("u0>", "u1>"))
        push(engine, stream, 400, 200)
        assert windows(query) == [posted(0, 0), posted(0, 1), posted(1, 2), posted(1, 3)]


VALUES = "{ <http://ex/u1> <http://ex/knows> ?f . ?f <http://ex/value> ?v %s }"
ABOVE_PATTERNS = [
    ("SELECT ?f ?v", VALUES % "FILTER(?v > 1)"),
    ("SELECT ?f ?v", VALUES % "FILTER(?v > 1 && ?f != <http://ex/u2>) FILTER(BOUND(?nothing) || ?v < 9)"),
    ("SELECT ?f ?v", VALUES % "FILTER(?v / 0 > 1)"),
    ("SELECT ?f ?v", VALUES % "FILTER(STR(?f) < STR(?v) || STRLEN(STR(?f)) > ?v)"),
    ("SELECT ?f ?v", VALUES % "FILTER(?f = <http://ex/u2>)"),
    ("SELECT ?f ?v", VALUES % "FILTER(1 = 2)"),
    ("SELECT ?f ?v", VALUES % "FILTER(NOW() > '2000-01-01T00:00:00Z'^^<http://www.w3.org/2001/XMLSchema#dateTime>)"),
    ("SELECT ?f ?v", VALUES % "FILTER(RAND() > 0.5)"),
    ("SELECT ?f ?v", VALUES % "FILTER EXISTS { ?f <http://ex/knows> <http://ex/u3> }"),
    ("SELECT DISTINCT ?f", VALUES % ""),
    ("SELECT REDUCED ?f", VALUES % ""),
    ("SELECT DISTINCT ?v ?f", VALUES % "FILTER(?v < 3)"),
    ("SELECT DISTINCT ?v", VALUES % "" + " LIMIT 2"),
    ("SELECT ?f ?v", VALUES % "" + " LIMIT 2 OFFSET 1"),
    ("SELECT ?v ?f", VALUES % "FILTER(?v != 1)" + " OFFSET 2"),
    ("SELECT ?f", VALUES % "" + " LIMIT 0"),
    ("SELECT DISTINCT *", VALUES % "" + " LIMIT 3"),
    ("SELECT ?f ?v", VALUES % "" + " ORDER BY DESC(?v) ?f LIMIT 3"),
    (
        "SELECT ?f ?w ?b ?r ?n",
        VALUES % "BIND(?v * 2 AS ?w) BIND(BNODE(STR(?v)) AS ?b) BIND(RAND() AS ?r) BIND(NOW() AS ?n)",
    ),
    ("SELECT ?f ?w", VALUES % "BIND(?v / (?v - 1) AS ?w)"),
    ("SELECT (COUNT(*) AS ?n)", VALUES % ""),
    ("SELECT ?f (AVG(?v) AS ?n) (GROUP_CONCAT(?v) AS ?all)", VALUES % "" + " GROUP BY ?f HAVING (COUNT(*) > 1)"),
    ("SELECT (SUM(?v) AS ?n)", "{ ?f <http://ex/nothing> ?v }"),
    ("SELECT (COUNT(*) AS ?n)", "{ <http://ex/u1> <http://ex/knows> <http://ex/u2> }"),
    ("ASK", VALUES % ""),
    ("ASK", VALUES % "FILTER(?v > 2)"),
    ("CONSTRUCT { ?f <http://ex/is> [ <http://ex/a> ?v ] }", VALUES % ""),
    ("SELECT *", VALUES % "OPTIONAL { ?f <http://ex/knows> ?g . ?g <http://ex/value> ?w FILTER(?w > ?v) }"),
    (
        "SELECT *",
        "{ { ?f <http://ex/value> 1 } UNION { <http://ex/u1> <http://ex/knows> ?f } ?f <http://ex/value> ?v }",
    ),
    ("SELECT *", VALUES % "MINUS { ?f <http://ex/value> 2 }"),
    ("SELECT *", VALUES % "VALUES (?f ?v) { (<http://ex/u2> UNDEF) (UNDEF 3) }"),
    ("SELECT *", "{ ?f <http://ex/knows> ?g { SELECT ?g (MAX(?v) AS ?m) { ?g <http://ex/value> ?v } GROUP BY ?g } }"),
    (
        "SELECT *",
        "{ ?a <http://ex/value> ?v FILTER(?v > 0) ?a <http://ex/knows> ?b . ?b <http://ex/knows> ?c FILTER(?c != ?a) }",
    ),
]


def push_values(engine: wukongs.Engine, stream: wukongs.Stream) -> None:
    """Most stream batches have a value of each user, some have none, and of one the values are no numbers."""
    for number in range(8):
        rows = []
        for user in range(0 if number in (3, 4, 5) else 12):
            value = '"none"' if number == 6 else f'"{(user + number) % 4}"^^<http://www.w3.org/2001/XMLSchema#integer>'
            rows.append((f"<http://ex/u{user}>", "<http://ex/value>", value, number * 100 + 50))
        stream.push(rows)
        stream.advance((number + 1) * 100)
    engine.settle(60)


@pytest.mark.parametrize("output", ["QUERY", "ISTREAM"])
@pytest.mark.parametrize("split_rows", [filter_placement.SPLIT_ROWS, -1e12])
def test_all_that_stands_above_patterns_gives_the_windows_of_the_executor(
    output: str, split_rows: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """split_rows: the cost of a filter between two steps; below 0 each is put as early as it can be."""
    monkeypatch.setattr(filter_placement, "SPLIT_ROWS", split_rows)
    found = []
    for is_compiled in (True, False):
        if not is_compiled:
            monkeypatch.setattr(CompiledPlans, "is_for", staticmethod(lambda query: False))
        with wukongs.Engine() as engine:
            stream = begin(engine)
            queries = []
            for number, (head, where) in enumerate(ABOVE_PATTERNS):
                kind = output if head.startswith("SELECT") else "QUERY"
                queries.append(engine.register(f"REGISTER {kind} q{number} AS {head} {WINDOW} WHERE {where}"))
            push_values(engine, stream)
            found.append(
                [
                    [
                        (window.end_ms, bool(window) if head == "ASK" else window.texts())
                        for window in query.results(timeout_s=0)
                    ]
                    for (head, _), query in zip(ABOVE_PATTERNS, queries, strict=True)
                ]
            )
            assert {query.text.answering.compiled is not None for query in queries} == {is_compiled}
    for (head, where), here, there in zip(ABOVE_PATTERNS, *found, strict=True):
        assert here == there, (head, where)
        assert len(here) == 8


@pytest.mark.parametrize("setting", [{"rows_max": 100}, {"query_bytes_max": 1 << 20}])
def test_budgets_hold_above_patterns_too(setting: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The next window is reported again, and its rows come in several pieces."""
    monkeypatch.setattr(compiled, "OUT_CELLS", 64)
    monkeypatch.setattr(query_windows, "OUT_CELLS", 64)
    with wukongs.Engine(settings=wukongs.Settings(**setting)) as engine:
        stream = begin(engine)
        head, where = (
            "SELECT (COUNT(*) AS ?n)",
            "{ ?f <http://ex/posts> ?p . ?g <http://ex/posts> ?q FILTER(?p != ?f) }",
        )
        query = engine.register(
            f"REGISTER QUERY q AS {head} FROM STREAM <{STREAM}> [RANGE 100ms STEP 100ms] WHERE {where}"
        )
        for number, count in enumerate((9, 200, 8)):
            stream.push([(f"<http://ex/u{n}>", "<http://ex/posts>", f'"{n}"', 100 * number + 50) for n in range(count)])
            stream.advance(100 * number + 100)
        engine.settle(60)
        assert query.text.answering.compiled is not None
        assert next(query.results(timeout_s=0)).texts() == [('"81"^^<http://www.w3.org/2001/XMLSchema#integer>',)]
        with pytest.raises(wukongs.BudgetExceeded, match=next(iter(setting))):
            list(query.results(timeout_s=0))
        assert next(query.results(timeout_s=0)).texts() == [('"64"^^<http://www.w3.org/2001/XMLSchema#integer>',)]


def test_idle_time_leaves_the_last_stream_batch_of_a_window_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def noted(name: str) -> None:
        kernel = getattr(window_table, name)

        def write(*args: Any) -> Any:
            written.append(name)
            return kernel(*args)

        monkeypatch.setattr(window_table, name, write)

    noted("append_batch")
    noted("write_window")
    look_ahead = EngineWindows.look_ahead
    monkeypatch.setattr(EngineWindows, "look_ahead", lambda windows: None)
    with wukongs.Engine() as engine:
        stream = begin(engine)
        where = "{ ?f <http://ex/posts> ?p }"
        text = f"SELECT ?f ?p FROM STREAM <{STREAM}> [RANGE 1s STEP 100ms] WHERE {where}"
        query = engine.register(f"REGISTER QUERY q AS {text}")
        push(engine, stream, 300)
        list(query.results(timeout_s=0))
        for turn in range(3, 30):
            written.clear()
            if turn != 15:
                look_ahead(engine._core.windows)
            foreseen = len(written)
            push(engine, stream, 100 + 100 * turn, 100 * turn)
            (window,) = query.results(timeout_s=0)
            assert len(window) == 10 * min(10, turn + 1)
            assert written[foreseen:] == ["write_window" if turn == 15 else "append_batch"]


def test_those_that_are_answered_together_wait_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that goes by deltas comes last, although it was registered first."""
    ran: list[tuple[str, bool]] = []
    run = QueryFirings.run

    def noted(query: QueryFirings, firing: Any, due_at_s: float) -> None:
        ran.append((query.name, firing.is_maintained))
        run(query, firing, due_at_s)

    monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
    monkeypatch.setattr(QueryFirings, "run", noted)
    with wukongs.Engine() as engine:
        stream = engine.stream(STREAM, batch_ms=100)
        for name, range_ms in (("kept", 300), ("first", 100), ("second", 100)):
            window = f"FROM STREAM <{STREAM}> [RANGE {range_ms}ms STEP 100ms]"
            head = "SELECT ?a ?b" if name != "second" else "SELECT ?b"
            engine.register(f"REGISTER QUERY {name} AS {head} {window} {{ ?a <http://ex/p> ?b }}")
        for number in range(6):
            stream.push([("<http://ex/a>", "<http://ex/p>", f"<http://ex/b{number}>", number * 100 + 50)])
            stream.advance(number * 100 + 100)
            engine.settle(60)
    assert ran[-3:] == [("first", False), ("second", False), ("kept", True)]
