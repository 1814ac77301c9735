"""Jumps in event time: windows that hold the same are evaluated once, and made when they are read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import EX, A, B, at, names, node, rows
from wukongs.errors import GapError
from wukongs.live.query_firings import QueryFirings

DAY_MS = 86_400_000
WINDOW = f"FROM STREAM <{A}> [RANGE 1s STEP 100ms]"
ROWS = f"SELECT ?s {WINDOW} WHERE {{ ?s <{EX}p> ?o }}"
COUNT = f"SELECT (COUNT(*) AS ?n) {WINDOW} WHERE {{ ?s <{EX}p> ?o }}"
STORED = f"SELECT ?s FROM STREAM <{A}> [RANGE 1s STEP 100ms] FROM <urn:x-wukongs:default> WHERE {{ ?s <{EX}q> ?o }}"


def registered(text: str, name: str = "q", output: str = "QUERY", report: str = "") -> str:
    return f"REGISTER {output} {name} {report} AS {text}"


@contextmanager
def counted_firings() -> Iterator[list[int]]:
    """Count the firings that are run."""
    found: list[int] = []
    run = QueryFirings.run

    def noted(self: QueryFirings, firing: Any, due_at_s: float) -> None:
        found.append(firing.at_ms)
        run(self, firing, due_at_s)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(QueryFirings, "run", noted)
        yield found


def begun(engine: wukongs.Engine, **options: Any) -> wukongs.Stream:
    stream = engine.stream(A, batch_ms=100, **options)
    stream.advance(0)
    return stream


def jump(engine: wukongs.Engine, stream: wukongs.Stream, until_ms: int = DAY_MS) -> None:
    stream.push([at("a", 50), at("b", 250)])
    stream.advance(until_ms)
    engine.settle(timeout_s=60)


@pytest.mark.parametrize(
    ("text", "row_count"),
    [(ROWS, 20), (COUNT, DAY_MS // 100), (f"{ROWS} GROUP BY ?s", 20), (f"ASK {WINDOW} {{ ?s ?p ?o }}", 0)],
)
def test_a_day_is_a_few_firings_and_a_few_kilobytes(engine: wukongs.Engine, text: str, row_count: int) -> None:
    stream = begun(engine)
    query = engine.register(registered(text))
    with counted_firings() as firings:
        jump(engine, stream)
    stats = query.stats()
    assert (stats["windows"], stats["rows"]) == (864_000, row_count)
    assert stats["results_waiting"] == 864_000
    assert len(firings) <= 6
    assert stats["unread_bytes"] < 10_000


def test_a_jump_is_read_lazily_by_all_who_read(engine: wukongs.Engine) -> None:
    stream = begun(engine)
    query = engine.register(registered(ROWS))
    jump(engine, stream)
    own = query.results(timeout_s=0)
    found = [next(own) for _ in range(20)]
    assert [window.end_ms for window in found] == list(range(100, 2100, 100))
    assert [names(window) for window in found] == [["a"]] * 2 + [["a", "b"]] * 8 + [["b"]] * 2 + [[]] * 8
    assert [(window.start_ms, window.windows[A]) for window in found] == [
        (t - 1000, (t - 1000, t)) for t in range(100, 2100, 100)
    ]
    assert len({window.snapshot for window in found}) == 20
    one, other = (query.results(timeout_s=0, group="g") for _ in range(2))
    taken = [next(reader).end_ms for _ in range(10) for reader in (one, other)]
    assert taken == list(range(2000, 4000, 100))  # the own reader has not confirmed the window at 2000
    del one  # gives back the last window that it has not confirmed
    assert next(other).end_ms == 3800
    assert next(other).end_ms == 4000
    assert query.stats()["results_waiting"] == 864_000 - 20


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("ISTREAM", {100: ["a"], 300: ["b"]}),
        ("DSTREAM", {1100: ["a"], 1300: ["b"]}),
    ],
)
def test_what_came_and_what_went_is_told_once(
    engine: wukongs.Engine, output: str, expected: dict[int, list[str]]
) -> None:
    stream = begun(engine)
    query = engine.register(registered(ROWS, output=output))
    with counted_firings() as firings:
        jump(engine, stream, 100_000)
    found = {window.end_ms: names(window) for window in query.results(timeout_s=0)}
    assert list(found) == list(range(100, 100_100, 100))
    assert {end_ms: told for end_ms, told in found.items() if told} == expected
    assert len(firings) <= 10


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("REPORT NON EMPTY CONTENT", list(range(100, 1300, 100))),
        ("REPORT CONTENT CHANGE", [100, 300, 1100, 1300]),
        ("REPORT NON EMPTY RESULT", list(range(100, 1300, 100))),
    ],
)
def test_windows_that_are_not_reported_are_counted(engine: wukongs.Engine, report: str, expected: list[int]) -> None:
    stream = begun(engine)
    query = engine.register(registered(ROWS, report=report.replace("NON EMPTY", "NON-EMPTY")))
    jump(engine, stream)
    assert [window.end_ms for window in query.results(timeout_s=0)] == expected
    assert query.stats()["not_reported"] == 864_000 - len(expected)


def test_functions_of_the_moment_are_evaluated_each_time(engine: wukongs.Engine) -> None:
    stream = begun(engine)
    query = engine.register(registered(f"SELECT (NOW() AS ?t) {WINDOW} WHERE {{ OPTIONAL {{ ?s <{EX}p> ?o }} }}"))
    jump(engine, stream, 10_000)
    assert len({row for window in query.results(timeout_s=0) for row in rows(window)}) == 100


def test_the_stored_graph_cuts_a_stretch(engine: wukongs.Engine) -> None:
    """Another stream's timeless tuples join the stored graph in the middle of a jump."""
    stream, other = begun(engine), engine.stream(B, batch_ms=100)
    query = engine.register(registered(STORED))
    other.push([at("x", 5_050, "q"), at("y", 7_050, "q")])
    with counted_firings() as firings:
        stream.advance(20_000)
        other.advance(20_000)
        engine.settle(timeout_s=60)
    found = {window.end_ms: names(window) for window in query.results(timeout_s=0)}
    assert found == {t: ["x"] * (t > 5_000) + ["y"] * (t > 7_000) for t in range(100, 20_100, 100)}
    assert len(firings) < 10


def test_counted_windows_hold_what_they_held(engine: wukongs.Engine) -> None:
    stream = begun(engine)
    text = ROWS.replace("100ms]", f"100ms] FROM NAMED STREAM <{A}> [RANGE TRIPLES 1]").replace(
        "WHERE {", f"WHERE {{ GRAPH <{A}> {{ ?last ?p2 ?o2 }} OPTIONAL {{"
    )
    query = engine.register(registered(text.replace("SELECT ?s", "SELECT ?last ?s") + " }"))
    with counted_firings() as firings:
        jump(engine, stream, 100_000)
    found = list(query.results(timeout_s=0))
    assert [rows(window) for window in found[-2:]] == [[("b", "")]] * 2
    assert len(found) == 1000
    assert len(firings) < 10


def test_a_stretch_that_is_dropped_is_one_gap(engine: wukongs.Engine) -> None:
    stream = begun(engine)
    query = engine.register(registered(ROWS), unread_bytes_max=3_000)
    reader = query.results(timeout_s=0)
    jump(engine, stream, 100_000)
    assert query.stats()["results_dropped"] == 10
    stream.push([at("c", 100_050)])
    stream.advance(100_500)
    engine.settle(timeout_s=60)
    with pytest.raises(GapError) as gap:
        next(reader)
    assert gap.value.from_ms == 100
    assert gap.value.count == (gap.value.to_ms - 100) // 100 + 1 == query.stats()["results_dropped"]


def test_on_result_is_called_for_each(engine: wukongs.Engine) -> None:
    stream, found = begun(engine), []
    engine.register(registered(ROWS), on_result=lambda window: found.append(window.end_ms))
    jump(engine, stream, 100_000)
    assert found == list(range(100, 100_100, 100))


def test_a_pause_passes_over_a_jump(engine: wukongs.Engine) -> None:
    stream = begun(engine)
    query = engine.register(registered(ROWS, output="ISTREAM"))
    jump(engine, stream, 1_000)
    query.pause()
    stream.advance(DAY_MS)
    engine.settle(timeout_s=60)
    query.resume()
    stream.push([at("c", DAY_MS + 50)])
    stream.advance(DAY_MS + 10_000)
    engine.settle(timeout_s=60)
    found = {window.end_ms: names(window) for window in query.results(timeout_s=0)}
    assert list(found) == [*range(100, 1_100, 100), *range(DAY_MS + 100, DAY_MS + 10_100, 100)]
    assert [t for t, told in found.items() if told] == [100, 300, DAY_MS + 100]


@pytest.mark.parametrize("where", [f"?s <{EX}p> ?o", ""])
def test_a_stream_that_is_made_goes_on_as_if_each_had_fired(engine: wukongs.Engine, where: str) -> None:
    """where: empty: each window makes a triple, so each is one firing."""
    stream = begun(engine)
    template = "?s ?p ?o" if where else f"<{EX}x> <{EX}p> 1"
    body = "?s ?p ?o" if where else ""
    engine.register(f"REGISTER STREAM <{B}> AS CONSTRUCT {{ {template} }} {WINDOW} WHERE {{ {body} }}")
    query = engine.register(
        f"REGISTER QUERY r AS SELECT ?s FROM STREAM <{B}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
    )
    with counted_firings() as firings:
        jump(engine, stream, 20_000)
    found = {window.end_ms: names(window) for window in query.results(timeout_s=0)}
    if where:
        assert {t: told for t, told in found.items() if told} == {
            t: ["a"] * (t <= 1000) + ["b"] * (t >= 300) for t in range(100, 1300, 100)
        }
        assert len(firings) < 40
    else:
        assert set(map(tuple, found.values())) == {("x",)}
    assert list(found) == list(range(100, 20_100, 100))


def test_a_group_of_queries_jumps_as_one(engine: wukongs.Engine) -> None:
    stream = begun(engine)
    text = f"SELECT ?o {WINDOW} WHERE {{ %s <{EX}p> ?o }}"
    queries = [engine.register(registered(text % node(f"s{i}"), f"q{i}")) for i in range(30)]
    with counted_firings() as firings:
        stream.push([at("s20", 50)])
        stream.advance(DAY_MS)
        engine.settle(timeout_s=60)
    assert len(firings) < 60  # eight are alone
    for query in queries[19:22]:
        stats = query.stats()
        assert (stats["windows"], stats["results_waiting"]) == (864_000, 864_000)
        reader = query.results(timeout_s=0)
        found = [next(reader) for _ in range(15)]
        assert [window.end_ms for window in found] == list(range(100, 1600, 100))
        assert [len(window) for window in found] == [int(query is queries[20])] * 10 + [0] * 5


@pytest.mark.parametrize("output", ["QUERY", "ISTREAM", "DSTREAM"])
def test_windows_that_were_taken_do_not_come_again(tmp_path: Path, output: str) -> None:
    """Processes end in the middle of a stretch."""
    found: dict[int, list[str]] = {}
    for life in range(3):
        with counted_firings() as firings, wukongs.Engine(tmp_path) as engine:
            stream = engine.stream(A, batch_ms=100)
            query = engine.register(registered(ROWS, output=output))
            if not life:
                jump(engine, stream)
            engine.settle(timeout_s=60)
            reader = query.results(timeout_s=0)
            taken = [next(reader) for _ in range(20)]
            reader.close()
            assert query.stats()["results_waiting"] == 864_000 - 19 * life - 20
        assert [window.end_ms for window in taken] == list(range(1_900 * life + 100, 1_900 * life + 2_100, 100))
        for window in taken:
            assert found.setdefault(window.end_ms, names(window)) == names(window)
        assert len(firings) < 20
    a, b = ({t for t, told in found.items() if name in told} for name in "ab")
    expected = {"QUERY": (range(100, 1_100, 100), range(300, 1_300, 100)), "ISTREAM": ([100], [300])}
    assert (a, b) == tuple(map(set, expected.get(output, ([1_100], [1_300]))))


def test_who_waits_is_given_each_window_of_a_stretch(engine: wukongs.Engine) -> None:
    stream = begun(engine)
    query = engine.register(registered(COUNT))
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.extend(w.end_ms for w in islice(query.results(timeout_s=60), 500)))
    reader.start()
    jump(engine, stream, 50_000)
    reader.join()
    assert found == list(range(100, 50_100, 100))
