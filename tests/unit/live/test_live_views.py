"""Live views of an engine in memory: reports, cursors, progress, periods, operators of output, contents, refusals."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from tests.live_views import EX, FIRST, PAIRS, Row, joining, read, register, rows, update
from wukongs.incremental import cuts
from wukongs.live.views import following_view, live_view, runner
from wukongs.query.execution import argument_rows
from wukongs.store import trace


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as found:
        found.update(FIRST)
        yield found


# --- reports ----------------------------------------------------------------------------------------------------------


def test_a_count_keeps_no_rows(engine: wukongs.Engine) -> None:
    triples = " ".join(f":n{number} :p :o{number % 7} ." for number in range(5000))
    update(engine, f"INSERT DATA {{ {triples} }}")
    count = register(engine, "SELECT (COUNT(*) AS ?n) (COUNT(DISTINCT ?y) AS ?m) WHERE { ?x :p ?y }", snapshot=False)
    engine.settle(30)
    update(engine, "INSERT DATA { :new :p :o1 }")
    [report] = read(count)
    assert sorted(rows(report).values()) == [-1, 1]
    assert count.stats()["kept_bytes"] < 5000
    assert [line.strip() for line in count.explain().splitlines()][-2:] == ["groups", "delta join"]


@pytest.mark.parametrize("order", ["", "ORDER BY ?y"])
def test_a_limit_whose_rows_have_all_gone_gets_others(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(cuts, "MARGIN", 0)
    update(engine, "INSERT DATA { :d :q 4 . :e :q 5 . :f :q 6 }")
    view = register(engine, f"SELECT ?x ?none WHERE {{ ?x :q ?y }} {order} LIMIT 2", snapshot=False)
    update(engine, "DELETE WHERE { ?x :q ?y }")
    read(view)
    update(engine, "INSERT DATA { :c :q 3 . :a :q 1 . :b :q 2 }")
    [report] = read(view)
    assert len(rows(report)) == 2
    assert Counter(tuple(row) for row in report.texts()) == Counter(view.content().texts())
    assert all(row[0] is not None and row[1] is None for row in report.texts())


def test_a_row_behind_the_first_ones_does_not_become_one_before_its_turn(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuts, "MARGIN", 1)
    update(engine, "INSERT DATA { :a :q 1 . :b :q 5 . :c :q 7 }")
    view = register(engine, "SELECT ?x WHERE { ?x :q ?y } ORDER BY ?y LIMIT 1", snapshot=False)
    engine.settle(30)
    for change in ("INSERT DATA { :d :q 9 }", "DELETE DATA { :a :q 1 }", "DELETE DATA { :b :q 5 }"):
        update(engine, change)
    assert [rows(report) for report in read(view)] == [{("<a>",): -1, ("<b>",): 1}, {("<b>",): -1, ("<c>",): 1}]


def test_periods_are_of_event_time_from_the_first_stream_batch_on(engine: wukongs.Engine) -> None:
    view = register(engine, "SELECT ?x WHERE { ?x :p ?y }", every_ms=3_600_000, snapshot=False)
    engine.settle(30)
    stream = engine.stream("http://ex/s", batch_ms=10)
    stream.push(joining(("s1", 5)))
    stream.advance(3_599_990)
    engine.settle(30)
    assert read(view) == []
    stream.advance(3_600_000)
    engine.settle(30)
    [report] = read(view)
    assert (report.time_ms, rows(report)) == (3_600_000, {("<s1>",): 1})


# --- readers ----------------------------------------------------------------------------------------------------------


def test_a_report_that_is_being_read_is_not_summed_with_later_ones(engine: wukongs.Engine) -> None:
    view = register(engine, "SELECT ?x WHERE { ?x :p ?y }", unread_bytes_max=8192, snapshot=False)
    update(engine, "INSERT DATA { :first :p :o }")
    reading = view.results(timeout_s=0)
    found = rows(next(reading))
    for number in range(40):
        update(engine, f"INSERT DATA {{ :n{number} :p :o }}")
    for report in reading:
        assert not report.is_reset
        found.update(rows(report))
    assert found == {("<first>",): 1} | {(f"<n{number}>",): 1 for number in range(40)}
    assert view.stats()["reports_summed"] > 20
    assert view.stats()["unread_bytes"] == 0


def test_reports_are_not_summed_over_the_position_of_a_reader(engine: wukongs.Engine) -> None:
    view = register(engine, "SELECT ?x WHERE { ?x :p ?y }", unread_bytes_max=8192, snapshot=False)
    read(view, group="ahead")
    update(engine, "INSERT DATA { :first :p :o }")
    [report] = read(view, group="ahead")
    found = rows(report)
    sn = update(engine, "INSERT DATA { :other :q :o }")
    [report] = read(view, group="ahead", progress=True)
    assert report.snapshot == sn
    for number in range(40):
        update(engine, f"INSERT DATA {{ :n{number} :p :o }}")
    for report in read(view, group="ahead"):
        found.update(rows(report))
    assert found == {("<first>",): 1} | {(f"<n{number}>",): 1 for number in range(40)}
    behind = Counter[Row]()
    for report in read(view):
        assert not report.is_reset
        behind.update(rows(report))
    assert behind == found


def test_a_cursor_has_one_reader_in_event_loops_too(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS)

    async def read_beside() -> tuple[list[bool], list[bool]]:
        first = view.aresults(timeout_s=10, group="one")
        found = [(await anext(first)).is_reset]
        assert [report async for report in view.aresults(timeout_s=0.03, group="one")] == [], "the first one reads"
        await asyncio.to_thread(update, engine, "INSERT DATA { :c :p :d }")
        await first.aclose()
        others = [report.is_reset async for report in view.aresults(timeout_s=0.1, group="one")]
        return found, others

    assert asyncio.run(read_beside()) == ([True], [True]), "the reset was not finished"


# --- content, changes of the view -------------------------------------------------------------------------------------


def test_a_kept_content_is_not_evaluated_anew(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    view = register(engine, "SELECT ?y (COUNT(*) AS ?n) WHERE { ?x :p ?y } GROUP BY ?y", keep=True)
    other = engine.register(f"{EX}REGISTER QUERY other AS SELECT ?x WHERE {{ ?x :p ?y }}")
    update(engine, "INSERT DATA { :c :p :b }")

    def fail(*given: Any, **options: Any) -> Any:
        raise wukongs.QueryTimeout("evaluated")

    monkeypatch.setattr(following_view, "answer", fail)
    number = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    expected = {("<b>", f'"2"{number}'): 1, ("<c>", f'"1"{number}'): 1}
    [first] = read(view)
    assert (first.is_reset, rows(first)) == (True, expected)
    assert len(view.content()) == 2
    with pytest.raises(wukongs.QueryTimeout, match="evaluated"):
        read(other)
    monkeypatch.undo()
    assert [report.is_reset for report in read(other)] == [True]


def test_a_content_has_a_timeout_of_its_own(engine: wukongs.Engine) -> None:
    triples = " ".join(f":n{number} :p :o ." for number in range(1200))
    update(engine, f"INSERT DATA {{ {triples} }}")
    view = register(
        engine, "SELECT (COUNT(*) AS ?n) WHERE { ?a :p ?x . ?b :p ?y FILTER (STR(?a) < STR(?b)) }", keep=False
    )
    view.pause()
    view.resume()
    with pytest.raises(wukongs.QueryTimeout):
        view.content(timeout_s=0.001)


def test_a_plain_pattern_keeps_nothing(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS)
    update(engine, "INSERT DATA { :c :p :d }")
    assert view.stats()["kept_bytes"] == 0
    assert view.explain() == "linear\n  delta join"
    assert "delta join: 1 rows changed last, 0 bytes kept" in view.explain(analyze=True)


def test_what_was_read_while_another_text_was_given_is_of_one_text(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, evaluate = register(engine, PAIRS), following_view.answer

    def replaced(*given: Any, **options: Any) -> Any:
        monkeypatch.undo()
        found = evaluate(*given, **options)
        view.replace(EX + "REGISTER QUERY v AS SELECT ?x WHERE { ?x :p ?y }")
        return found

    monkeypatch.setattr(following_view, "answer", replaced)
    before, after = read(view)
    assert (before.vars, rows(before), after.vars, len(after)) == (["x", "z"], {("<a>", "<c>"): 1}, ["x"], 2)


def test_a_closed_view_gives_all_back(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS)
    update(engine, "INSERT DATA { :c :p :d }")
    view.close()
    view.close()
    assert engine.stats()["handles"] == []
    assert engine._core.arrangement.trace.watchers == set()
    assert engine.queries() == []
    with pytest.raises(wukongs.StreamError, match="view v is closed"):
        view.content()
    register(engine, PAIRS).close()


def test_a_change_that_fails_is_told_and_followed_by_a_reset(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following_view, "RETRY_MAX_S", 0.0)
    view = register(engine, "SELECT ?x (COUNT(*) AS ?n) WHERE { ?x :p ?y } GROUP BY ?x")
    read(view)
    advance = following_view.View.advance

    def fail(self: Any, *given: Any) -> Any:
        advance(self, *given)
        raise wukongs.BudgetExceeded("no room")

    monkeypatch.setattr(following_view.View, "advance", fail)
    update(engine, "INSERT DATA { :a :p :x }")
    monkeypatch.undo()
    with pytest.raises(wukongs.BudgetExceeded, match="no room"):
        read(view)
    update(engine, "INSERT DATA { :a :p :y }")
    *_, report = read(view)
    assert report.is_reset
    assert ("<a>", '"3"^^<http://www.w3.org/2001/XMLSchema#integer>') in rows(report)
    update(engine, "DELETE DATA { :a :p :y }")
    [report] = read(view)
    assert sorted(rows(report).values()) == [-1, 1]


def test_computed_terms_that_nobody_needs_are_forgotten(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following_view, "COMPUTED_MIN", 20)
    view = register(
        engine, "SELECT ?t (COUNT(*) AS ?n) WHERE { ?x :p ?y BIND(CONCAT(STR(?y), 'x') AS ?t) } GROUP BY ?t"
    )
    found = Counter[Row]()
    for number in range(100):
        update(engine, f"DELETE {{ :a :p ?y }} INSERT {{ :a :p :n{number} }} WHERE {{ :a :p ?y }}")
        for report in read(view):
            if report.is_reset:
                found.clear()
            found.update(rows(report))
    assert view.stats()["computed_terms"] <= 42
    assert view.stats()["rebuilt"] > 1
    assert +found == {tuple(row): 1 for row in view.content().texts()} or len(+found) == len(view.content())
    assert set((+found).values()) == {1}


@pytest.mark.parametrize(
    "text",
    [
        PAIRS,
        "SELECT ?x (COUNT(*) AS ?n) WHERE { ?x :p ?y } GROUP BY ?x",
        "SELECT DISTINCT ?y WHERE { ?x :p ?y OPTIONAL { ?y :p ?z } } ORDER BY ?y LIMIT 3",
        "SELECT ?x WHERE { ?x :p ?y FILTER NOT EXISTS { ?y :p ?z } }",
        "SELECT ?y WHERE { :a :p+ ?y }",
    ],
)
@pytest.mark.parametrize("is_compared", [False, True])
def test_a_change_of_more_triples_than_are_kept_is_followed_or_compares_two_contents(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch, text: str, *, is_compared: bool
) -> None:
    monkeypatch.setattr(trace, "SEALED_ROWS_MAX", 2)
    monkeypatch.setattr(runner, "is_large", lambda change, before: is_compared and change > 2)
    view, anew = register(engine, text), list[int]()
    right = following_view.View.advance_anew

    def compare(self: Any, sn: int, stored: Any) -> Any:
        anew.append(sn)
        return right(self, sn, stored)

    monkeypatch.setattr(following_view.View, "advance_anew", compare)
    found = Counter[Row]()
    for change in (
        "INSERT DATA { :b :p :d . :d :p :e, :f . :g :p :a }",
        "DELETE DATA { :d :p :e } ; INSERT DATA { :e :p :f, :g, :h }",
        "INSERT DATA { :k :p :a }",
    ):
        update(engine, change)
        for report in read(view):
            if report.is_reset:
                found.clear()
            found.update(rows(report))
        content = view.content().texts()
        assert +found == Counter(tuple(cell and cell.replace("http://ex/", "") for cell in row) for row in content)
    assert len(anew) == (2 if is_compared else 0)


def test_an_update_does_not_wait_for_views(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    view, let_go = register(engine, PAIRS), threading.Event()
    engine.settle(30)
    advance = following_view.View.advance

    def wait(self: Any, *given: Any) -> Any:
        let_go.wait(30)
        return advance(self, *given)

    monkeypatch.setattr(following_view.View, "advance", wait)
    sn = engine.update(EX + "INSERT DATA { :c :p :d }")
    assert len(engine.query(EX + PAIRS)) == 2
    assert view.sn < sn
    with pytest.raises(wukongs.StreamError, match="views v are not at SN"):
        engine.settle(0.05)
    assert "stands at SN" in view.why()
    let_go.set()
    engine.settle(30)
    assert view.sn == sn
    assert "the newest" in view.why()


def test_an_engine_whose_views_cannot_go_on_has_failed(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    view = register(engine, PAIRS)
    engine.settle(30)

    def fail(self: Any, sn: int) -> None:
        raise MemoryError

    def change() -> None:
        engine.update(EX + "INSERT DATA { :c :p :d }")  # refused, if a tick of the engine's own comes first
        engine.settle(30)

    monkeypatch.setattr(live_view.LiveView, "due", fail)
    with pytest.raises(wukongs.WukongsError, match="the engine has stopped: MemoryError"):
        change()
    with pytest.raises(wukongs.WukongsError, match="the engine has stopped"):
        list(view.results())


def test_without_arguments_nothing_is_looked_for(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argument_rows, "_work", lambda plan, rows: -rows)  # patterns first, then the arguments
    view = register(engine, "SELECT ?y WHERE { ?x :p ?y }", bindings=[{"x": "<http://ex/a>"}])
    assert len(view.content()) == 1
    view.unbind([0])
    engine.settle(30)
    assert list(view.content()) == []


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_refusal_of_a_rule_has_its_place(engine: wukongs.Engine) -> None:
    with pytest.raises(wukongs.UnsupportedFeatureError) as error:
        register(engine, "\nSELECT * WHERE { ?x :p ?y }", into="http://ex/g")
    assert (error.value.line, error.value.column) == (2, 1)
    assert error.value.excerpt.splitlines()[1].count("^") == len("SELECT")
