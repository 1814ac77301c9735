"""Queries that fire as one: which have one shape, what a firing makes, offenders, unread windows, threads."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from tests.scenarios.test_groups import FRIENDS, begin, posted, push, register, windows
from wukongs.csparql.parser import parse_query
from wukongs.live import continuous, joined_queries, joined_windows, query_firings
from wukongs.live.query_changes import QueryChanges
from wukongs.live.query_firings import QueryFirings
from wukongs.live.query_shapes import shape_of

HEAD = "REGISTER QUERY %s AS SELECT ?a ?b FROM STREAM <http://e/s> [RANGE 1s STEP 1s] WHERE "


@pytest.fixture(autouse=True)
def _together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_queries, "ALONE_MAX", 0)


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as engine:
        yield engine


def shape(text: str) -> Any:
    found = shape_of(parse_query(text))
    return None if found is None else found.query


FIRST = HEAD % "q" + "{ <http://e/u> <http://e/p> ?a . ?a <http://e/q> ?b }"
ALIKE = [
    HEAD % "other" + "{ ?a <http://e/q> ?b . <http://e/v> <http://e/p> ?a }",
    FIRST.replace("?a", "?x").replace("?b", "?y"),
]
OTHERS = [
    FIRST.replace("e/p", "e/r"),
    FIRST.replace("RANGE 1s", "RANGE 2s"),
    FIRST.replace("SELECT ?a ?b", "SELECT ?b"),
    FIRST.replace("q AS", "q REPORT NON EMPTY RESULT AS"),
    FIRST.replace(" }", " FILTER(?b > 1) }"),
    FIRST.replace("REGISTER QUERY", "REGISTER ISTREAM"),
    FIRST.replace("REGISTER QUERY", "REGISTER DSTREAM"),
]
ALONE = [
    HEAD % "q" + "{ ?a <http://e/q> ?b }",
    FIRST.replace("q AS", "q REPORT CONTENT CHANGE AS"),
    FIRST.replace("[RANGE 1s STEP 1s]", "[RANGE TRIPLES 3]"),
    FIRST.replace(" }", " BIND(RAND() AS ?r) }"),
]


def test_shapes() -> None:
    first = shape(FIRST)
    assert [shape(text) for text in ALIKE] == [first, first]
    found = [shape(text) for text in OTHERS]
    assert None not in found
    assert len({first, *found}) == 1 + len(OTHERS)
    assert [shape(text) for text in ALONE] == [None] * len(ALONE)


@pytest.mark.parametrize("first_ms", [-500, 0, 500])
def test_a_query_that_comes_later_has_no_gap_before_its_first_window(engine: wukongs.Engine, first_ms: int) -> None:
    stream = engine.stream("http://e/s", batch_ms=100)
    text = (HEAD % "%s" + "{ <http://e/%s> <http://e/p> ?a }").replace("1s", "100ms").replace(" ?b", "")
    stream.advance(-1001)
    first = engine.register(text % ("first", "u"))
    stream.push([("<http://e/u>", "<http://e/p>", "<http://e/v>", first_ms)])
    later = engine.register(text % ("later", "v"))
    stream.advance(700)
    engine.settle(60)
    assert [window.end_ms for window in first.results(timeout_s=0)] == list(range(-1000, 701, 100))
    assert [window.end_ms for window in later.results(timeout_s=0)] == list(range(first_ms, 701, 100))


def test_a_firing_makes_nothing_for_a_query_that_nobody_reads(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Counted(wukongs.WindowResult):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            made.append(1)
            super().__init__(*arguments, **named)

    monkeypatch.setattr(query_firings, "WindowResult", Counted)
    monkeypatch.setattr(joined_windows, "WindowResult", Counted)
    stream = begin(engine)
    queries = [register(engine, f"q{n}", FRIENDS % (n % 30)) for n in range(300)]
    push(engine, stream, 400)
    assert len(made) == 4
    assert windows(queries[7]) == [posted(7, number) for number in range(4)]
    assert len(made) == 8
    terms = engine.stats()["terms"]
    for query in queries:
        query.close()
    assert windows(queries[8]) == [posted(8, number) for number in range(4)]
    assert engine.stats()["queries"] == {}
    assert engine.stats()["terms"] <= terms
    assert engine._core.unread.size_bytes == 0


def test_a_query_that_joins_may_have_rows_in_windows_without_tuples(engine: wukongs.Engine) -> None:
    """A path of no length leads from a term to itself, and to no other."""
    stream = engine.stream("http://e/s", timing=True, batch_ms=1000)
    where = "{ <http://e/u%d> <http://e/p>* <http://e/u%d> }"
    found = []
    for end_ms, ends in ((1000, (1, 2)), (2000, (3, 3)), (3000, (4, 5))):
        query = engine.register(HEAD.replace("?a ?b", "*") % f"q{end_ms}" + where % ends)
        stream.advance(end_ms)
        engine.settle(60)
        found.append([len(window) for window in query.results(timeout_s=0)])
    assert found == [[0], [1], [0]]


def test_why_tells_of_the_last_window_also_in_a_group(engine: wukongs.Engine) -> None:
    stream = begin(engine)
    queries = [register(engine, f"q{n}", FRIENDS % n) for n in range(2)]
    push(engine, stream, 300)
    later = register(engine, "later", FRIENDS % 2)
    for _ in range(2):
        assert "the window ending at 300 ms was evaluated anew" in queries[0].why()
        queries[0].pause()
        queries[0].resume()
    assert "the window ending at 400 ms was evaluated anew" in later.why()


def test_a_group_is_divided_until_the_offender_is_alone() -> None:
    """One of them knows so many that its rows take more bytes than a query may."""
    with wukongs.Engine(settings=wukongs.Settings(query_bytes_max=1 << 20)) as engine:
        stream = begin(engine)
        many = "".join(f"<http://ex/u13> <http://ex/knows> <http://ex/z{n}> .\n" for n in range(60_000))
        engine.load(io.BytesIO(many.encode()), format="nt")
        where = "{ <http://ex/u%d> <http://ex/knows> ?f . ?a <http://ex/posts> ?p }"
        queries = [register(engine, f"q{n}", where % n) for n in range(30)]
        push(engine, stream, 300)
        for n, query in enumerate(queries):
            if n == 13:
                for _ in range(3):
                    with pytest.raises(wukongs.BudgetExceeded):
                        next(query.results(timeout_s=0))
            else:
                assert [len(window) for window in query.results(timeout_s=0)] == [30, 60, 60]
        for query in queries:
            query.close()
        assert engine._core.unread.size_bytes == 0
        assert not engine._core.unread._holders


def read(query: Any) -> list[Any]:
    """Return the ends of windows, and gaps as their first end and their count."""
    found: list[Any] = []
    while True:
        try:
            found += [window.end_ms for window in query.results(timeout_s=0)]
            return found
        except wukongs.GapError as gap:
            found.append((gap.from_ms, gap.count))


def test_a_silent_window_is_lost_for_those_who_have_not_taken_it() -> None:
    """One reads all windows as they come, another none, and a third is closed before it is read."""
    with wukongs.Engine(settings=wukongs.Settings(results_bytes_max=1 << 19)) as engine:
        stream = engine.stream("http://e/s", timing=True, batch_ms=100)
        text = "REGISTER QUERY q%d REPORT NON EMPTY RESULT AS SELECT ?o FROM STREAM <http://e/s> "
        text += "[RANGE 100ms STEP 100ms] WHERE { <http://e/u%d> ?p ?o }"
        reads, waits, closes = (engine.register(text % (n, n)) for n in range(3))
        found: list[Any] = []
        for at in range(60):
            pairs = [(u, f'"{at} {n}"') for u in range(3) for n in range(500)]
            stream.push([(f"<http://e/u{u}>", "<http://e/p>", o, at * 100 + 50) for u, o in pairs])
            stream.advance(at * 100 + 100)
            engine.settle(60)
            found += read(reads)
        closes.close()
        assert found == list(range(100, 6100, 100))
        for query in (waits, closes):
            (first, count), *ends = read(query)
            assert (first, ends) == (100, list(range(100 + 100 * count, 6100, 100)))


@pytest.mark.parametrize("report", ["", " REPORT NON EMPTY RESULT"])
def test_windows_that_are_dropped_unread_are_a_gap(report: str) -> None:
    with wukongs.Engine(settings=wukongs.Settings(results_bytes_max=1 << 20)) as engine:
        stream = engine.stream("http://e/s", timing=True, batch_ms=100)
        text = "REGISTER QUERY q%d%s AS SELECT ?o FROM STREAM <http://e/s> [RANGE 100ms STEP 100ms] "
        text += "WHERE { <http://e/u%d> ?p ?o }"
        queries = [engine.register(text % (n, report, n)) for n in range(3)]
        for number in range(60):
            tuples = [("<http://e/u0>", "<http://e/p>", f'"{number} {n}"', number * 100 + 50) for n in range(4000)]
            stream.push(tuples[: 4000 if number < 50 else 1] + [("<http://e/u1>", *tuples[0][1:])] * (number == 3))
            stream.advance(number * 100 + 100)
        engine.settle(60)
        found = [read(query) for query in queries]
        if report:
            assert found[1:] == [[(400, 1)], []]
            del found[1:]
        for told in found:  # a window that one has taken takes room, too
            (first, count), *ends = told
            assert (first, 100 * count) == (100, ends[0] - 100)
            assert ends == list(range(ends[0], 6100, 100))


@pytest.mark.parametrize("report", ["", " REPORT NON EMPTY RESULT"])
def test_counts_are_those_that_each_has_alone(report: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One query has too many rows, the on_result of another fails; some are read, paused or closed."""
    keys = ("windows", "rows", "last_rows", "not_reported", "errors", "results_waiting", "results_dropped")

    def lived(alone_max: int) -> list[list[list[int]]]:
        monkeypatch.setattr(joined_queries, "ALONE_MAX", alone_max)
        found = []
        with wukongs.Engine(settings=wukongs.Settings(rows_max=5)) as engine:
            stream = engine.stream("http://e/s", timing=True, batch_ms=100)
            text = f"REGISTER QUERY q%d{report} AS SELECT ?o FROM STREAM <http://e/s> [RANGE 100ms STEP 100ms] "
            text += "WHERE { <http://e/u%d> <http://e/p> ?o }"
            queries = [engine.register(text % (n, n)) for n in range(6)]

            def failing(_: wukongs.WindowResult) -> None:
                raise ValueError("on_result")

            queries.append(engine.register(text % (6, 1), on_result=failing))
            for at in range(4):
                pairs = [(u, o) for u in range(6) for o in range(2 * u * (at % 2 + 1) % 9)]
                stream.push([(f"<http://e/u{u}>", "<http://e/p>", f"<http://e/o{o}>", at * 100 + 50) for u, o in pairs])
                stream.advance(at * 100 + 100)
                engine.settle(60)
                for n in (1, 5):
                    next(queries[n].results(timeout_s=0), None)
                if at == 2:
                    queries[2].pause()
                    queries[3].close()
                stats = [query.stats() for query in queries]
                found.append([[one[key] for key in keys] for one in stats])
        return found

    assert lived(0) == lived(1 << 30)


def test_a_query_that_rather_ends_is_not_ended_by_a_reader_who_holds_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that are taken out of blocks are too much for the engine. To end a query takes the engine's lock, which
    comes before that of the logs."""
    is_free: list[bool] = []
    end_unread = continuous.ContinuousQuery._end_unread

    def ending(self: Any) -> None:
        lock = self._core.unread.lock
        other = threading.Thread(target=lambda: is_free.append(lock.acquire(blocking=False) and not lock.release()))
        other.start()
        other.join()
        end_unread(self)

    monkeypatch.setattr(continuous.ContinuousQuery, "_end_unread", ending)
    with wukongs.Engine(settings=wukongs.Settings(results_bytes_max=1 << 19)) as engine:
        stream = engine.stream("http://e/s", timing=True, batch_ms=100)
        text = "REGISTER QUERY q%d AS SELECT ?o FROM STREAM <http://e/s> [RANGE 100ms STEP 100ms] "
        text += "WHERE { <http://e/u%d> <http://e/p> ?o }"
        ends = engine.register(text % (9, 9), unread="end")
        queries = [engine.register(text % (n, n)) for n in range(2)]
        for at in range(24):
            counts = {9: 1150, 0: 500}
            pairs = [(u, f'"{at} {n}"') for u, count in counts.items() for n in range(count)]
            stream.push([(f"<http://e/u{u}>", "<http://e/p>", o, at * 100 + 50) for u, o in pairs])
            stream.advance(at * 100 + 100)
        engine.settle(60)
        held = engine._core.unread.size_bytes
        results = queries[0].results(timeout_s=0)
        next(results)
        stream.advance(2500)
        engine.settle(60)
        assert ends.is_closed, held
        assert is_free == [True]
        assert [window.end_ms for window in results] == list(range(200, 2600, 100))


@pytest.mark.parametrize("alone_max", [0, 8])
def test_shapes_of_closed_queries_are_forgotten(alone_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_queries, "ALONE_MAX", alone_max)
    monkeypatch.setattr(joined_queries, "SWEPT_MIN", 16)
    where = "{ <http://e/u> <http://e/p> ?a FILTER(?a > %d) }"
    with wukongs.Engine() as engine:
        engine.stream("http://e/s", timing=True, batch_ms=1000)
        for at in range(100):
            query = engine.register(HEAD % f"q{at}" + where % at)
            if at % 20:
                query.close()
        joined = engine._backend.joined
        assert len(joined._alone) + len(joined._groups) <= 24
        assert len(engine.stats()["queries"]) == 5


def test_a_stream_that_a_query_makes_goes_with_its_last_reader(engine: wukongs.Engine) -> None:
    stream = engine.stream("http://e/s", timing=True, batch_ms=100)
    maker = engine.register(
        "REGISTER STREAM <http://e/m> COMPUTED EVERY 100ms AS CONSTRUCT { ?a <http://e/p> ?b } "
        "FROM STREAM <http://e/s> [RANGE 100ms STEP 100ms] WHERE { ?a <http://e/p> ?b }"
    )
    text = "REGISTER QUERY q%d AS SELECT ?b FROM STREAM <http://e/m> [RANGE 100ms STEP 100ms] "
    text += "WHERE { <http://e/u%d> ?p ?b }"
    readers = [engine.register(text % (n, n)) for n in range(3)]
    stream.push([("<http://e/u1>", "<http://e/p>", "<http://e/o>", 50)])
    stream.advance(200)
    engine.settle(60)
    assert [len(window) for window in readers[1].results(timeout_s=0)] == [1, 0]
    maker.close()
    readers[0].close()
    with pytest.raises(wukongs.StreamError, match="is read by q1 and 1 queries of its shape: close"):
        engine.drop_stream("http://e/m")
    readers[1].close()
    with pytest.raises(wukongs.StreamError, match="is read by q2: close"):
        engine.drop_stream("http://e/m")
    readers[2].close()
    assert list(engine.stats()["streams"]) == ["http://e/s"]


@pytest.mark.parametrize("windows", [0, 1])
def test_readers_are_told_that_the_engine_has_failed(windows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = wukongs.Engine()
    stream = begin(engine)
    query = register(engine, "q", FRIENDS % 1)
    for number in range(windows):
        stream.advance(number * 100 + 100)
        engine.settle(60)

    def failing(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(engine._core, "seal", failing)
    stream.push([("<http://ex/u1>", "<http://ex/posts>", "<http://ex/p>", windows * 100 + 50)])
    stream.advance(1000)
    results = query.results(timeout_s=60)
    assert [len(next(results)) for _ in range(windows)] == [0] * windows
    with pytest.raises(wukongs.WukongsError, match="broken"):
        next(results)
    assert list(query.results(timeout_s=0)) == []


def test_a_query_is_paused_while_the_engine_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is marked closed while the group fires, and a pause waits for that."""
    engine = wukongs.Engine()
    stream = begin(engine)
    query = register(engine, "q", FRIENDS % 1)
    is_firing, goes_on = threading.Event(), threading.Event()
    run = QueryFirings._run

    def slow(self: Any, *arguments: Any) -> None:
        is_firing.set()
        assert goes_on.wait(60)
        run(self, *arguments)

    monkeypatch.setattr(QueryFirings, "_run", slow)
    is_waiting = threading.Event()
    wait_for_firing = QueryChanges.wait_for_firing

    def waits(self: Any) -> None:
        is_waiting.set()
        wait_for_firing(self)

    monkeypatch.setattr(QueryChanges, "wait_for_firing", waits)
    stream.advance(100)
    assert is_firing.wait(60)
    errors: list[str] = []

    def pause() -> None:
        try:
            query.pause()
        except wukongs.WukongsError as error:
            errors.append(str(error))

    pausing, closing = (threading.Thread(target=work, daemon=True) for work in (pause, engine.close))
    pausing.start()
    assert is_waiting.wait(60)
    closing.start()
    pausing.join(60)  # it sees the mark, though the group still fires
    assert not pausing.is_alive()
    goes_on.set()
    closing.join(60)
    assert not closing.is_alive()
    assert ["engine is closed" in error for error in errors] == [True]


@pytest.mark.parametrize("report", ["", " REPORT NON EMPTY RESULT"])
def test_readers_who_wait_are_woken(engine: wukongs.Engine, report: str) -> None:
    """By a window, in a thread and in an event loop, and by the end of the query."""
    stream = engine.stream("http://e/s", timing=True, batch_ms=100)
    text = f"REGISTER QUERY q%d{report} AS SELECT ?o FROM STREAM <http://e/s> [RANGE 100ms STEP 100ms] "
    text += "WHERE { <http://e/u%d> <http://e/p> ?o }"
    queries = [engine.register(text % (n, n)) for n in range(3)]
    found: dict[str, list[int]] = {"thread": [], "loop": []}

    def read() -> None:
        found["thread"] += [window.end_ms for window in queries[0].results()]

    async def aread() -> None:
        async for window in queries[1].aresults():
            found["loop"].append(window.end_ms)

    threads = [threading.Thread(target=work, daemon=True) for work in (read, lambda: asyncio.run(aread()))]
    for thread in threads:
        thread.start()
    for at in range(5):
        stream.push([(f"<http://e/u{n}>", "<http://e/p>", "<http://e/o>", at * 100 + 50) for n in range(3)])
        stream.advance(at * 100 + 100)
        engine.settle(60)
        time.sleep(0.02)
    for query in queries[:2]:
        query.close()
    for thread in threads:
        thread.join(60)
    assert not [thread for thread in threads if thread.is_alive()]
    assert found == {"thread": list(range(100, 600, 100)), "loop": list(range(100, 600, 100))}
    assert [window.end_ms for window in queries[2].results(timeout_s=0)] == list(range(100, 600, 100))
    queries[2].close()
    assert engine._core.unread.size_bytes == 0


def test_an_on_result_closes_and_pauses_others_of_its_group(engine: wukongs.Engine) -> None:
    stream = begin(engine)
    queries: list[Any] = []
    seen: list[int] = []

    def note(window: wukongs.WindowResult) -> None:
        seen.append(window.end_ms)
        if window.end_ms == 100:
            queries[1].close()
            queries[2].pause()
            queries.append(register(engine, "new", FRIENDS % 4))
        if window.end_ms == 300:
            queries[2].resume()
            queries[0].close()

    queries += [register(engine, f"q{n}", FRIENDS % n, on_result=None if n else note) for n in range(4)]
    for at in range(5):
        push(engine, stream, at * 100 + 100, at * 100)
    assert seen == [100, 200, 300]
    ends = [[window.end_ms for window in query.results(timeout_s=0)] for query in queries[1:]]
    assert ends == [[100], [100, 400, 500], [100, 200, 300, 400, 500], [200, 300, 400, 500]]
    assert windows(register(engine, "q0", FRIENDS % 0)) == []


def test_readers_come_and_go_while_tuples_are_pushed(engine: wukongs.Engine) -> None:
    stream = begin(engine)
    errors: list[BaseException] = []
    is_over = threading.Event()

    def work(number: int) -> None:
        try:
            for at in range(1_000_000):
                if is_over.is_set():
                    return
                query = register(engine, f"q{number}n{at}", FRIENDS % (at % 30))
                if at % 3 == 0:
                    for _ in query.results(timeout_s=0.05):
                        break
                if at % 5 == 0:
                    query.pause()
                    query.resume()
                query.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    stays = [register(engine, f"stays{n}", FRIENDS % n) for n in range(5)]
    first = max((window.end_ms for window in stays[0].results(timeout_s=0)), default=0)
    for number in range(30):
        push(engine, stream, number * 100 + 100, number * 100)
    is_over.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert first == 0
    for n, query in enumerate(stays):
        assert windows(query) == [posted(n, number) for number in range(30)]
        query.close()
    assert engine._core.unread.size_bytes == 0
    assert not [name for name in engine._injector.queries if name.startswith("group")]
