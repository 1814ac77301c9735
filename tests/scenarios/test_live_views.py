"""Live views: reports, readers, contents, options and refusals, on every face."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from typing import Any

import pytest

import wukongs
from tests.faces import Face
from tests.live_views import EX, FIRST, PAIRS, Row, read, register, rows, rows_of, update


@pytest.fixture
def engine(face: Face) -> Any:
    found = face.open()
    found.update(FIRST)
    return found


def test_a_view_begins_with_its_content_and_follows_with_changes(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS)
    [first] = read(view)
    assert (first.is_reset, first.query, first.vars, rows(first)) == (True, "v", ["x", "z"], {("<a>", "<c>"): 1})
    sn = update(engine, "INSERT DATA { :c :p :d }")
    [report] = read(view)
    assert (report.is_reset, report.after, report.snapshot, report.time_ms) == (False, first.snapshot, sn, None)
    assert rows(report) == {("<b>", "<d>"): 1}
    update(engine, "DELETE DATA { :b :p :c }")
    [report] = read(view)
    assert [(row[0].n3(), weight) for row, weight in sorted(report.changes())] == [  # type: ignore[union-attr]
        ("<http://ex/a>", -1),
        ("<http://ex/b>", -1),
    ]
    assert read(view) == []


def test_a_row_that_occurs_twice_has_weight_two(engine: wukongs.Engine) -> None:
    view = register(engine, "SELECT ?x WHERE { ?x :p ?y }", snapshot=False)
    update(engine, "INSERT DATA { :s :p :t, :u }")
    [report] = read(view)
    assert rows(report) == {("<s>",): 2}
    assert report.arrow().to_pydict() == {"x": ["<http://ex/s>"], "weight": [2]}
    assert len(list(view.content())) == 4


def test_a_view_counts_nothing_as_one_row(engine: wukongs.Engine) -> None:
    view = register(engine, "SELECT (COUNT(*) AS ?n) WHERE { ?x :q ?y }")
    [first] = read(view)
    assert [cell for row in rows(first) for cell in row] == ['"0"^^<http://www.w3.org/2001/XMLSchema#integer>']
    update(engine, "INSERT DATA { :a :q :b }")
    [report] = read(view)
    assert sorted(rows(report).values()) == [-1, 1]


def test_sums_that_cannot_be_kept_exactly_are_evaluated_anew(engine: wukongs.Engine) -> None:
    view = register(engine, "SELECT ?x (SUM(?y) AS ?s) WHERE { ?x :value ?y } GROUP BY ?x", snapshot=False)
    found = Counter[Row]()
    for text in (
        "INSERT DATA { :a :value 1, 2.5 . :b :value 4 }",
        "INSERT DATA { :a :value 0.5e0 }",
        "INSERT DATA { :a :value 'no number' . :b :value 5 }",
        "DELETE DATA { :a :value 'no number' }",
        "DELETE DATA { :a :value 0.5e0, 1 . :b :value 4, 5 }",
    ):
        update(engine, text)
        for report in read(view):
            found.update(rows(report))
        assert +found == rows_of(view.content()), text
    assert "kept" in view.explain()


def test_an_emptied_group_is_deleted(engine: wukongs.Engine) -> None:
    view = register(engine, "SELECT ?x (COUNT(*) AS ?n) WHERE { ?x :p ?y } GROUP BY ?x", snapshot=False)
    update(engine, "DELETE DATA { :a :p :b }")
    [report] = read(view)
    assert list(rows(report).values()) == [-1]


def test_an_ask_reports_when_its_answer_flips(engine: wukongs.Engine) -> None:
    view = register(engine, "ASK { ?x :q ?y }")
    [first] = read(view)
    assert (first.is_reset, first.boolean, len(first)) == (True, False, 0)
    update(engine, "INSERT DATA { :a :q :b }")
    update(engine, "INSERT DATA { :b :q :c }")
    update(engine, "DELETE DATA { :a :q :b . :b :q :c }")
    found = read(view)
    assert [(report.boolean, list(report.changes())) for report in found] == [(True, [((), 1)]), (False, [((), -1)])]
    assert found[0].arrow().to_pydict() == {"ask": [True], "weight": [1]}
    assert view.content().boolean is False


def test_a_triple_of_a_construct_changes_when_its_first_row_comes_and_its_last_one_goes(engine: wukongs.Engine) -> None:
    view = register(engine, "CONSTRUCT { :all :has ?y } WHERE { ?x :p ?y }", snapshot=False)
    update(engine, "INSERT DATA { :z :p :b }")
    assert read(view) == []
    update(engine, "DELETE DATA { :z :p :b . :a :p :b }")
    [report] = read(view)
    assert rows(report) == {("<all>", "<has>", "<b>"): -1}


def test_blank_nodes_of_a_template_have_the_same_names_when_they_go(engine: wukongs.Engine) -> None:
    view = register(engine, "CONSTRUCT { _:n :of ?x } WHERE { ?x :p ?y }", snapshot=False)
    update(engine, "INSERT DATA { :s :p :t }")
    update(engine, "DELETE DATA { :s :p :t }")
    came, went = read(view)
    assert [(row, -weight) for row, weight in rows(came).items()] == list(rows(went).items())


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("REGISTER RSTREAM", [{"<a>": 1, "<c>": 1}, {"<c>": 1}]),
        ("REGISTER ISTREAM", [{"<c>": 1}]),
        ("REGISTER DSTREAM", [{"<a>": -1}]),
    ],
)
def test_an_operator_says_what_is_reported(engine: wukongs.Engine, head: str, expected: list[dict[str, int]]) -> None:
    update(engine, "DELETE DATA { :b :p :c }")
    view = register(engine, "SELECT ?x WHERE { ?x :p ?y }", head, snapshot=False)
    update(engine, "INSERT DATA { :c :p :d }")
    update(engine, "DELETE DATA { :a :p :b }")
    reports = read(view)
    assert [{row[0]: weight for row, weight in rows(report).items()} for report in reports] == expected
    assert [report.is_reset for report in reports] == [head.endswith("RSTREAM")] * len(reports)


def test_a_period_gives_its_net_change_and_ends_by_event_time(engine: wukongs.Engine) -> None:
    stream = engine.stream("http://ex/s", batch_ms=10)
    stream.advance(0)
    engine.settle(30)
    view = engine.register(f"{EX}REGISTER QUERY v COMPUTED EVERY 100ms AS SELECT ?x WHERE {{ ?x :p ?y }}")
    engine.settle(30)
    read(view)
    stream.push(
        [
            ("<http://ex/s1>", "<http://ex/p>", "<http://ex/o>", 35),
            ("<http://ex/s2>", "<http://ex/p>", "<http://ex/o>", 40),
        ]
    )
    stream.advance(60)
    engine.settle(30)  # on a cluster an update does not wait for streams
    update(engine, "DELETE DATA { :s1 :p :o }")
    assert read(view) == []
    stream.push(
        [
            ("<http://ex/s3>", "<http://ex/p>", "<http://ex/o>", 95),
            ("<http://ex/s4>", "<http://ex/p>", "<http://ex/o>", 105),
        ]
    )
    stream.advance(130)
    engine.settle(30)
    [report] = read(view)
    assert (report.time_ms, rows(report)) == (100, {("<s2>",): 1, ("<s3>",): 1})
    stream.advance(200)
    engine.settle(30)
    [report] = read(view)
    assert (report.time_ms, rows(report)) == (200, {("<s4>",): 1})


@pytest.mark.slow_on("cluster-3")
@pytest.mark.parametrize("every", ["COMPUTED EVERY 1s", ""])
def test_a_period_is_one_report_at_its_end(engine: Any, every: str) -> None:
    stream = engine.stream("http://ex/s", batch_ms=100)
    options: dict[str, Any] = {} if every else {"every_ms": 1000}
    stream.push([("<http://ex/c>", "<http://ex/p>", "<http://ex/d>", 50)])
    stream.advance(100)
    engine.settle(30)
    view = engine.register(f"{EX}REGISTER QUERY v {every} AS {PAIRS}", **options)
    reports = list(view.results(timeout_s=0.2))
    for at in range(1, 41):
        ends = f"<http://ex/n{at % 7}>", f"<http://ex/n{at % 5}>"
        stream.push([(ends[0], "<http://ex/p>", ends[1], 100 * at + 50)])
        stream.advance(100 * at + 100)
        if at % 4 == 0:
            engine.update(EX + f"DELETE WHERE {{ :n{at % 7} :p ?x }}")
        if at % 10 == 0:
            engine.settle(30)
            reports += view.results(timeout_s=0.2)
            content = view.content()
            assert content.snapshot == reports[-1].snapshot
            total = Counter[Row]()
            for report in reports:
                total.update(rows(report))
            assert +total == rows_of(content)
    assert [report.is_reset for report in reports] == [True] + [False] * (len(reports) - 1)
    assert [report.time_ms for report in reports[1:]] == [1000, 2000, 3000, 4000]
    assert all(report.after == before.snapshot for before, report in itertools.pairwise(reports))


def test_a_period_of_wall_time_ends_without_streams(engine: wukongs.Engine) -> None:
    view = register(engine, "SELECT ?x WHERE { ?x :p ?y }", every_ms=50, snapshot=False)
    for number in range(5):
        engine.update(f"{EX}INSERT DATA {{ :n{number} :p :o }}")
    found = Counter[Row]()
    for report in view.results(timeout_s=10):
        found.update(rows(report))
        if found.total() == 5:
            break
    assert set(found.values()) == {1}


MADE = "http://ex/made"
SEEN = "CONSTRUCT { ?x :seen ?y } WHERE { ?x :p ?y }"


@pytest.mark.parametrize("options", [{"timing": True}, {"into": "http://ex/g"}])
def test_a_period_pushes_what_it_has_inserted(engine: Any, options: dict[str, Any]) -> None:
    """A stream that joins the stored graph gets what was deleted, too: its graph has the content of the view."""
    clock = engine.stream("http://ex/clock", batch_ms=100)
    clock.advance(0)
    engine.settle(30)
    engine.stream(MADE, batch_ms=1000, **options)
    register(engine, SEEN, "REGISTER QUERY", into=MADE, every_ms=1000)
    windows = engine.register(
        f"REGISTER QUERY w AS SELECT ?s ?o FROM STREAM <{MADE}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"
    )
    found, graphs = dict[int, set[Row]](), list[set[Row]]()
    for end_ms, text in enumerate(
        (
            "INSERT DATA { :c :p :d . :d :p :e } ; DELETE DATA { :d :p :e }",
            "DELETE DATA { :a :p :b } ; INSERT DATA { :d :p :e }",
            "DELETE DATA { :c :p :d }",
            "INSERT DATA { :a :p :b, :e }",
        ),
        start=1,
    ):
        update(engine, text)
        clock.advance(1000 * end_ms)
        engine.settle(30)
        found |= {window.end_ms: set(rows_of(window)) for window in windows.results(timeout_s=0.2)}
        graphs.append(set(rows_of(engine.query("SELECT ?s ?o { GRAPH <http://ex/g> { ?s ?p ?o } }"))))
    assert found == {
        1000: {("<a>", "<b>"), ("<b>", "<c>"), ("<c>", "<d>")},
        2000: {("<d>", "<e>")},
        3000: set(),
        4000: {("<a>", "<b>"), ("<a>", "<e>")},
    }
    if "into" in options:
        content = engine.query(EX + "SELECT ?x ?y { ?x :p ?y }")
        assert graphs[0] == found[1000]
        assert graphs[1] == {("<b>", "<c>"), ("<c>", "<d>"), ("<d>", "<e>")}
        assert graphs[2] == {("<b>", "<c>"), ("<d>", "<e>")}
        assert graphs[3] == set(rows_of(content))


def test_a_stream_that_a_view_makes_is_no_others(engine: Any) -> None:
    clock = engine.stream("http://ex/clock", batch_ms=100)
    clock.advance(0)
    made = engine.stream(MADE, batch_ms=1000, into="http://ex/g")
    with pytest.raises(wukongs.StreamError, match="fires every 500 ms, and the stream that it makes is declared with"):
        register(engine, SEEN, into=MADE, every_ms=500)
    with pytest.raises(wukongs.StreamError, match=f"a cycle: view v into stream {MADE}, stream {MADE} into graph"):
        register(engine, "CONSTRUCT { ?x :seen ?y } WHERE { GRAPH ?g { ?x :p ?y } }", into=MADE, every_ms=1000)
    view = register(engine, SEEN, into=MADE, every_ms=1000)
    with pytest.raises(wukongs.StreamError, match="is made by a registered query: nothing else is pushed"):
        made.push([("<http://ex/s>", "<http://ex/p>", "<http://ex/o>", 600)])
    with pytest.raises(wukongs.StreamError, match="is made by view v: close that one first"):
        engine.drop_stream(MADE)
    with pytest.raises(wukongs.StreamError, match="is made by query v: close that one first"):
        engine.register(f"{EX}REGISTER QUERY other AS {SEEN}", into=MADE, every_ms=1000)
    with pytest.raises(wukongs.StreamError, match=f"a cycle: view v into stream {MADE}.*rule back into the default"):
        engine.add_rules(EX + "RULE back: CONSTRUCT { ?x :p ?y } WHERE { GRAPH :g { ?x :seen ?y } }")
    assert engine.rules() == []
    window = "FROM STREAM <http://ex/made> [RANGE 1s STEP 1s] WHERE { ?x ?p ?y }"
    engine.stream("http://ex/far", batch_ms=1000)
    with pytest.raises(wukongs.StreamError, match="query http://ex/far into stream http://ex/far"):
        engine.register(f"{EX}REGISTER STREAM :far AS CONSTRUCT {{ ?x :p ?y }} {window}")
    view.close()
    engine.settle(30)
    engine.drop_stream(MADE)
    engine.add_rules(EX + "RULE back: CONSTRUCT { ?x :p ?y } WHERE { GRAPH :g { ?x :seen ?y } }")


def test_what_a_stream_adds_and_rules_conclude_is_reported(engine: wukongs.Engine) -> None:
    view = register(engine, "SELECT ?x ?z WHERE { ?x :q ?z }")
    read(view)
    engine.add_rules(EX + "RULE far: CONSTRUCT { ?x :q ?z } WHERE { ?x :p ?y . ?y :p ?z }")
    engine.settle(30)
    [report] = read(view)
    assert rows(report) == {("<a>", "<c>"): 1}
    stream = engine.stream("http://ex/s", batch_ms=10)
    stream.push([("<http://ex/c>", "<http://ex/p>", "<http://ex/d>", 5)])
    stream.advance(10)
    engine.settle(30)
    [report] = read(view)
    assert rows(report) == {("<b>", "<d>"): 1}
    assert 9 <= report.time_ms < 20, "all up to the end of its stream batch is closed, or of the next one"
    engine.drop_rules("far")
    engine.settle(30)
    [report] = read(view)
    assert set(rows(report).values()) == {-1}


def test_progress_says_up_to_where_a_quiet_view_is_complete(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS)
    read(view)
    sn = update(engine, "INSERT DATA { :a :other :b }")
    assert read(view) == []
    [report] = read(view, progress=True)
    assert (report.is_progress, report.snapshot, list(report.changes())) == (True, sn, [])
    assert read(view, progress=True) == []


def test_each_named_cursor_gets_every_change_and_has_one_reader(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS)
    assert [report.is_reset for report in read(view, group="one")] == [True]
    update(engine, "INSERT DATA { :c :p :d }")
    first = view.results(timeout_s=0, group="one")
    assert rows(next(first)) == {("<b>", "<d>"): 1}
    assert read(view, group="one") == [], "another one reads"
    first.close()
    assert [rows(report) for report in read(view, group="one")] == [{("<b>", "<d>"): 1}], "it was not done with"
    unfinished = view.results(timeout_s=0, group="other")
    assert next(unfinished).is_reset
    unfinished.close()
    assert [report.is_reset for report in read(view, group="other")] == [True], "it was not done with either"
    assert [report.is_reset for report in read(view)] == [True]


def test_unread_reports_are_summed_and_never_dropped(engine: wukongs.Engine) -> None:
    view = register(engine, "SELECT ?x WHERE { ?x :p ?y }", unread_bytes_max=8192, snapshot=False)
    for number in range(40):
        update(engine, f"INSERT DATA {{ :n{number} :p :o }}")
    update(engine, "DELETE DATA { :n3 :p :o }")
    found = Counter[Row]()
    for report in read(view):
        assert not report.is_reset
        found.update(rows(report))
    assert +found == {(f"<n{number}>",): 1 for number in range(40) if number != 3}
    assert view.stats()["reports_summed"] > 20


def test_what_passes_the_budget_becomes_a_reset(engine: wukongs.Engine) -> None:
    view = register(engine, "SELECT ?x ?y WHERE { ?x :p ?y }", unread_bytes_max=4096, snapshot=False)
    for number in range(400):
        engine.update(f"{EX}INSERT DATA {{ :n{number} :p :o }}")
    engine.settle(30)
    [report] = read(view)
    assert report.is_reset
    assert len(report) == 402
    assert view.stats()["resets_for_memory"] > 0


def test_on_result_is_called_with_each_report(engine: wukongs.Engine) -> None:
    found: list[Any] = []
    register(engine, PAIRS, on_result=found.append)
    engine.settle(30)
    update(engine, "INSERT DATA { :c :p :d }")
    assert [(report.is_reset, len(report)) for report in found] == [(True, 1), (False, 1)]


def test_a_reader_waits_in_the_event_loop(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS)

    async def read_two() -> list[bool]:
        found = []
        async for report in view.aresults(timeout_s=10):
            found.append(report.is_reset)
            if len(found) == 2:
                break
            await asyncio.to_thread(engine.update, EX + "INSERT DATA { :c :p :d }")
        return found

    assert asyncio.run(read_two()) == [True, False]


def test_a_reader_waits_for_a_change_and_ends_with_the_view(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS)
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.extend(view.results()))
    reader.start()
    while not found:
        time.sleep(0.001)
    update(engine, "INSERT DATA { :c :p :d }")
    view.close()
    reader.join(10)
    assert not reader.is_alive()
    assert [report.is_reset for report in found] == [True, False]


@pytest.mark.parametrize("keep", [False, True])
def test_the_content_is_a_multiset_at_the_snapshot_of_the_view(engine: wukongs.Engine, keep: bool) -> None:
    view = register(engine, "SELECT ?y WHERE { ?x :p ?y }", keep=keep)
    sn = update(engine, "INSERT DATA { :c :p :b }")
    content = view.content()
    assert (content.snapshot, sorted(content.texts())) == (sn, [("<http://ex/b>",)] * 2 + [("<http://ex/c>",)])
    assert len(view.content(at=sn - 1)) == 2
    assert (view.stats()["kept_bytes"] > 0) is keep


def test_a_paused_view_holds_nothing_back_and_goes_on_with_a_reset(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS)
    read(view)
    view.pause()
    update(engine, "INSERT DATA { :c :p :d }")
    deadline_s = time.monotonic() + 10  # other nodes of a cluster hear of it
    while held := [handle for handle in engine.stats()["handles"] if "view" in handle["owner"]]:
        assert time.monotonic() < deadline_s, held
        time.sleep(0.01)
    assert read(view) == []
    assert "paused" in view.why()
    with pytest.raises(wukongs.StreamError, match="is paused, and holds no content"):
        view.content()
    view.resume()
    [report] = read(view)
    assert (report.is_reset, len(report)) == (True, 2)


def test_a_view_follows_another_text_from_a_reset_on(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS)
    read(view)
    view.replace(EX + "REGISTER QUERY v AS SELECT ?x WHERE { ?x :p ?y }")
    [report] = read(view)
    assert (report.is_reset, report.vars, len(report)) == (True, ["x"], 2)
    with pytest.raises(wukongs.StreamError, match="registered as other"):
        view.replace(EX + "REGISTER QUERY other AS SELECT ?x WHERE { ?x :p ?y }")


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        ("REGISTER QUERY v AS SELECT (NOW() AS ?t) WHERE {}", {}, r"NOW\(\) in a live view"),
        ("REGISTER QUERY v AS SELECT * WHERE { ?x :p ?y FILTER (RAND() > 0.5) }", {}, r"RAND\(\) in a live view"),
        ("REGISTER QUERY v AS DESCRIBE :a", {}, "DESCRIBE in a live view"),
        ("REGISTER STREAM v AS CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y }", {}, "REGISTER STREAM without a window"),
        ("REGISTER QUERY v AS SELECT * WHERE { SERVICE :e { ?x :p ?y } }", {}, "SERVICE in a continuous query"),
        ("REGISTER QUERY v REPORT NON EMPTY CONTENT AS SELECT * WHERE { ?x :p ?y }", {}, "REPORT in a live view"),
        ("REGISTER QUERY v AS SELECT * WHERE { ?x :p ?y }", {"unread": "end"}, "a live view sums its unread reports"),
        ("REGISTER QUERY v AS SELECT * WHERE { ?x :p ?y }", {"every_ms": 0}, "every_ms = 0"),
        ("REGISTER QUERY v AS SELECT * WHERE { ?x :p ?y }", {"keep": 1}, "keep = 1: expected True or False"),
        ("REGISTER QUERY v COMPUTED EVERY 1s AS SELECT * WHERE { ?x :p ?y }", {"every_ms": 5}, "COMPUTED EVERY 1000ms"),
        ("REGISTER ISTREAM v AS SELECT * WHERE { ?x :p ?y }", {"output": "dstream"}, "itself says ISTREAM"),
        ("SELECT * WHERE { ?x :p ?y }", {}, "expected REGISTER QUERY name AS"),
    ],
)
def test_what_no_view_can_be_is_refused_by_name(
    engine: wukongs.Engine, text: str, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(wukongs.WukongsError, match=error):
        engine.register(EX + text, **options)
    assert engine.queries() == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("REGISTER QUERY now AS\nSELECT * WHERE {\n  ?x :p ?now # NOW(\n  FILTER(?now < now ())\n}", (4, 17, "now")),
        ("REGISTER QUERY v AS SELECT ?x\nWHERE { ?x :p ?y BIND(STRUUID() AS ?z) }", (2, 23, "STRUUID")),
        ("REGISTER QUERY v AS\n  DESCRIBE :a", (2, 3, "DESCRIBE")),
        ("REGISTER\nSTREAM v AS CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y }", (2, 1, "STREAM")),
    ],
)
def test_a_refusal_has_its_place(engine: wukongs.Engine, text: str, place: tuple[int, int, str]) -> None:
    with pytest.raises(wukongs.UnsupportedFeatureError) as error:
        engine.register(f"{EX.strip()}\n{text}")
    line, column, word = place
    assert (error.value.line, error.value.column) == (line + 1, column)
    assert error.value.excerpt.splitlines()[1].count("^") == len(word)


def test_a_name_is_taken_by_a_view_or_a_query_with_windows(engine: wukongs.Engine) -> None:
    register(engine, PAIRS)
    window = "FROM NAMED STREAM <http://ex/s> [RANGE 100ms STEP 100ms] WHERE { GRAPH <http://ex/s> { ?x :p ?y } }"
    engine.stream("http://ex/s", batch_ms=100)
    with pytest.raises(wukongs.StreamError, match=r"a (live view|query) named v is registered already"):
        register(engine, f"SELECT ?x {window}")
    with pytest.raises(wukongs.StreamError, match="a query named v is registered already"):
        register(engine, PAIRS)
    with pytest.raises(wukongs.SettingsError, match="keep = True: only for live views"):
        engine.register(f"{EX}REGISTER QUERY w AS SELECT ?x {window}", keep=True)


# --- arguments --------------------------------------------------------------------------------------------------------


def test_arguments_come_and_go(engine: wukongs.Engine) -> None:
    """Each argument is a query of its own: an implicit group is there for each, and equal ones are told apart."""
    view = register(engine, "SELECT (COUNT(?y) AS ?n) WHERE { ?x :p ?y }", bindings=[{"x": "<http://ex/a>"}])
    [first] = read(view)
    assert (first.is_reset, numbered(first)) == (True, {(0, "1"): 1})
    assert view.bind([{"x": "<http://ex/none>"}, {"x": "<http://ex/a>"}]).tolist() == [1, 2]
    engine.settle(30)
    [report] = read(view)
    assert numbered(report) == {(1, "0"): 1, (2, "1"): 1}
    update(engine, "INSERT DATA { :a :p :d . :none :p :d }")
    [report] = read(view)
    assert numbered(report) == {(0, "1"): -1, (0, "2"): 1, (1, "0"): -1, (1, "1"): 1, (2, "1"): -1, (2, "2"): 1}
    assert view.unbind([{"x": "<http://ex/a>"}]).tolist() == [0], "the oldest of equal ones"
    assert view.unbind([1]).tolist() == [1]
    engine.settle(30)
    gone = Counter[tuple[int, str]]()
    for report in read(view):
        gone.update(numbered(report))
    assert gone == {(0, "2"): -1, (1, "1"): -1}
    assert view.bind([{"x": "<http://ex/b>"}]).tolist() == [3], "numbers are not used again"
    engine.settle(30)
    assert sorted((int(row[0]), int(row[1])) for row in view.content()) == [(2, 2), (3, 1)]
    with pytest.raises(wukongs.DataError, match="no argument has the number 0"):
        view.unbind([0])


def test_a_limit_is_of_each_argument(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { :a :q 1, 2, 3 . :b :q 5, 4 }")
    terms = [{"x": "<http://ex/a>"}, {"x": "<http://ex/b>"}]
    view = register(engine, "SELECT ?y WHERE { ?x :q ?y } ORDER BY ?y LIMIT 1", bindings=terms)
    [first] = read(view)
    assert numbered(first) == {(0, "1"): 1, (1, "4"): 1}
    update(engine, "DELETE DATA { :b :q 4 }")
    [report] = read(view)
    assert numbered(report) == {(1, "4"): -1, (1, "5"): 1}


def test_arguments_that_are_bound_during_a_pause_are_there_after_it(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS, bindings=[{"x": "<http://ex/b>"}])
    read(view)
    view.pause()
    assert view.bind([{"x": "<http://ex/a>"}]).tolist() == [1]
    view.resume()
    engine.settle(30)
    [report] = read(view)
    assert (report.is_reset, [int(row[0]) for row in report]) == (True, [1])
    assert view.stats()["arguments"] == 2


def numbered(report: Any) -> Counter[tuple[int, str]]:
    """Return the weights of rows of an argument's number and a number."""
    found = Counter[tuple[int, str]]()
    for (number, value), weight in report.changes():
        found[int(number), str(value)] += weight
    return found


# --- why a row is there -----------------------------------------------------------------------------------------------

RULE = EX + "RULE two: CONSTRUCT { ?x :r ?z } WHERE { ?x :p ?y . ?y :p ?z }"


def triples(support: Any) -> set[str]:
    return {"".join(term.rpartition("/")[2] for term in part.triple) + (part.graph or "") for part in support.parts}


@pytest.mark.slow_on("cluster-3")
@pytest.mark.parametrize(
    ("text", "row", "expected"),
    [
        ("SELECT ?x ?z WHERE { ?x :r ?y . ?y :p ?z }", ("<http://ex/a>", "<http://ex/d>"), {"a>r>c>", "c>p>d>"}),
        ("SELECT ?x (COUNT(*) AS ?n) WHERE { ?x :p ?y } GROUP BY ?x", {"n": 2}, {"c>p>d>", "c>p>e>"}),
        ("SELECT ?x ?y FROM :g FROM :h WHERE { ?x :p ?y }", ("<http://ex/a>", "<http://ex/b>"), {"a>p>b>http://ex/h"}),
        ("SELECT ?x WHERE { GRAPH ?g { ?x :p ?y } }", {"x": "<http://ex/a>"}, {"a>p>b>http://ex/h"}),
        ("CONSTRUCT { ?z :back ?x } WHERE { ?x :p ?y . ?y :p ?z }", {"subject": "<http://ex/c>"}, {"a>p>b>", "b>p>c>"}),
        ("SELECT ?x ?z WHERE { ?x :p+ ?z }", {"x": "<http://ex/a>", "z": "<http://ex/e>"}, set()),
    ],
)
def test_a_row_rests_on_triples(engine: Any, text: str, row: Any, expected: set[str]) -> None:
    engine.add_rules(RULE)
    engine.update(EX + "INSERT DATA { :c :p :d, :e . GRAPH :h { :a :p :b } }")
    view = engine.register(f"{EX}REGISTER QUERY v AS {text}")
    engine.settle(30)
    engine.update(EX + "INSERT DATA { :e :q :f }")
    engine.settle(30)
    found = view.why(row)
    assert triples(found) == expected
    assert (found.query, found.more, found.is_partial) == ("v", 0, "+" in text)
    by_rule = [part for part in found.parts if part.triple[1].endswith("r>")]
    assert all(triples(one) == {"a>p>b>", "b>p>c>"} and one.rule == "two" for one in by_rule)
    assert len(by_rule) == sum("r>" in triple for triple in expected)
    with pytest.raises(wukongs.DataError, match="view v has no row with"):
        view.why({next(iter(found.row)): "<http://ex/none>"})


def test_a_row_of_an_argument_rests_on_triples(engine: Any) -> None:
    engine.update(EX + "INSERT DATA { :b :p :d }")
    view = engine.register(
        f"{EX}REGISTER QUERY v AS {PAIRS}", bindings=[{"x": "<http://ex/b>"}, {"x": "<http://ex/a>"}]
    )
    engine.settle(30)
    assert triples(view.why({"argument": 1, "z": "<http://ex/d>"})) == {"a>p>b>", "b>p>d>"}
    with pytest.raises(wukongs.DataError, match="has no row with"):
        view.why({"argument": 0})
