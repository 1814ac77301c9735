"""Live views with arguments: bind, unbind, numbers, reports, contents, refusals."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import wukongs
from wukongs.live.views import following_view
from wukongs.store import trace

EX = "PREFIX : <http://ex/> "
PAIRS = "SELECT ?x ?z WHERE { ?x :p ?y . ?y :p ?z }"
COUNT = "SELECT (COUNT(*) AS ?n) WHERE { ?x :p ?y }"
Row = tuple[Any, ...]


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as found:
        found.update(EX + "INSERT DATA { :a :p :b . :b :p :c }")
        yield found


def given(*names: str) -> list[dict[str, str]]:
    return [{"x": f"<http://ex/{name}>"} for name in names]


def register(engine: wukongs.Engine, text: str, *names: str, head: str = "REGISTER QUERY", **options: Any) -> Any:
    return engine.register(f"{EX}{head} v AS {text}", bindings=given(*names), **options)


def update(engine: wukongs.Engine, text: str) -> int:
    return engine.update(EX + text)


def rows(report: Any) -> dict[Row, int]:
    """Return the weights by (number of the argument, names of the terms)."""
    weights = getattr(report, "weights", np.ones(len(report), np.int64)).tolist()
    found = Counter[Row]()
    for (argument, *row), weight in zip(report, weights, strict=True):
        found[int(argument), *(None if cell is None else str(cell).rpartition("/")[2] for cell in row)] += weight
    return dict(found)


def read(engine: wukongs.Engine, view: Any, **options: Any) -> list[Any]:
    engine.settle(30)
    return list(view.results(timeout_s=0, **options))


def test_reports_carry_the_number_of_the_argument(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS, "a", "b", "a")
    [first] = read(engine, view)
    assert first.is_reset
    assert first.vars == ["argument", "x", "z"]
    assert rows(first) == {(0, "a", "c"): 1, (2, "a", "c"): 1}
    update(engine, "INSERT DATA { :c :p :d }")
    [report] = read(engine, view)
    assert rows(report) == {(1, "b", "d"): 1}
    assert report.arrow().column_names == ["argument", "x", "z", "weight"]
    assert rows(view.content()) == {(0, "a", "c"): 1, (1, "b", "d"): 1, (2, "a", "c"): 1}
    assert view.explain().startswith("for each of 3 arguments\n")


def test_what_is_bound_is_a_report_of_its_content(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS, "b", snapshot=False)
    numbers = view.bind(given("a", "unknown", "a"))
    assert numbers.tolist() == [1, 2, 3]
    [report] = read(engine, view)
    assert rows(report) == {(1, "a", "c"): 1, (3, "a", "c"): 1}
    assert (report.after, report.snapshot) == (1, 1), "no triple has changed"
    update(engine, "INSERT DATA { :unknown :p :b }")
    [report] = read(engine, view)
    assert rows(report) == {(2, "unknown", "c"): 1}
    assert view.unbind([3]).tolist() == [3]
    [report] = read(engine, view)
    assert rows(report) == {(3, "a", "c"): -1}
    assert view.bind(given("a")).tolist() == [4], "a number is never used again"


def test_a_row_unbinds_the_oldest_equal_argument(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS, "a", "b", "a", "a", snapshot=False)
    assert view.unbind(given("a")).tolist() == [0]
    assert view.unbind(pa.table({"x": ["<http://ex/a>", "<http://ex/a>"]})).tolist() == [2, 3]
    with pytest.raises(wukongs.DataError, match=r"fewer than there are such rows, has \?x = <http://ex/b>"):
        view.unbind(given("b", "b"))
    with pytest.raises(wukongs.DataError, match=r"no argument, .* has \?x = <http://ex/a>"):
        view.unbind(given("b", "a"))
    assert view.stats()["arguments"] == 1, "a call that is refused unbinds nothing"
    total = Counter[Row]()
    for report in read(engine, view):
        total.update(rows(report))
    assert total == {(0, "a", "c"): -1, (2, "a", "c"): -1, (3, "a", "c"): -1}


@pytest.mark.parametrize("numbers", [1, [1], (1,), {1}, range(1, 2), np.array([1])])
def test_numbers_may_be_any_collection_of_integers(engine: wukongs.Engine, numbers: Any) -> None:
    view = register(engine, PAIRS, "b", "a")
    assert view.unbind(numbers).tolist() == [1]
    assert rows(read(engine, view)[0]) == {}


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ([7], "no argument has the number 7"),
        ([0, 0], "no argument has the number 0, or it is there twice"),
        ([-1], "no argument has the number -1"),
        ("01", "expected numbers of arguments, or a table"),
        ([True], "expected numbers of arguments, or a table"),
        ([[0, 1], [0]], "expected numbers of arguments, or a table"),
        ([1 << 62], "no argument has the number 4611686018427387904"),
        ([{"y": "<http://ex/a>"}], "registered with the columns 'x', found 'y'"),
        ([{"x": None}], "row 0, column 'x': a value is missing"),
    ],
)
def test_what_is_not_bound_is_refused_by_name(engine: wukongs.Engine, wanted: Any, error: str) -> None:
    view = register(engine, PAIRS, "a")
    with pytest.raises(wukongs.WukongsError, match=error):
        view.unbind(wanted)
    assert view.stats()["arguments"] == 1


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ([{"x": "<http://ex/a>", "y": "<http://ex/a>"}], "registered with the columns 'x', found 'x', 'y'"),
        ([{"x": "no term"}], "column 'x'"),
        ([{"x": None}], "row 0, column 'x': a value is missing"),
        ("x", "expected an Arrow table, or a list of dictionaries"),
    ],
)
def test_a_table_that_does_not_fit_binds_nothing(engine: wukongs.Engine, table: Any, error: str) -> None:
    view = register(engine, PAIRS, "a")
    with pytest.raises(wukongs.WukongsError, match=error):
        view.bind(table)
    assert view.stats()["arguments"] == 1


@pytest.mark.parametrize(
    ("text", "bindings", "error"),
    [
        (PAIRS, [{"w": "<http://ex/a>"}], "column 'w' is no variable in the WHERE clause"),
        (
            "SELECT DISTINCT ?x (COUNT(*) AS ?n) { ?x :p ?y } GROUP BY ?x ORDER BY ?n LIMIT 2",
            [{"n": '"1"'}],
            "column 'n' is no variable in the WHERE clause",
        ),
        ("SELECT ?argument { ?argument :p ?x }", given("a"), r"reports \?argument itself"),
        ("ASK { ?x :p ?y }", given("a"), "ASK in queries with bindings"),
        (PAIRS, [{"x": None}], "a value is missing"),
        (PAIRS, [], "expected a table with a column"),
    ],
)
def test_what_cannot_have_arguments_is_refused_by_name(
    engine: wukongs.Engine, text: str, bindings: Any, error: str
) -> None:
    with pytest.raises(wukongs.WukongsError, match=error):
        engine.register(f"{EX}REGISTER QUERY v AS {text}", bindings=bindings)
    assert engine.queries() == []


def test_a_view_without_arguments_binds_none(engine: wukongs.Engine) -> None:
    view: Any = engine.register(f"{EX}REGISTER QUERY v AS {PAIRS}")
    for call in (view.bind, view.unbind):
        with pytest.raises(wukongs.StreamError, match="view v has no arguments: register it with bindings="):
            call(given("a"))
    nothing = pa.table({"x": pa.array([], pa.string())})
    other: Any = engine.register(f"{EX}REGISTER QUERY w AS {PAIRS}", bindings=nothing)
    assert rows(read(engine, other)[0]) == {}
    other.bind(given("a"))
    assert rows(read(engine, other)[0]) == {(0, "a", "c"): 1}
    assert other.bind([]).tolist() == []
    assert other.unbind([]).tolist() == []
    other.close()
    with pytest.raises(wukongs.StreamError, match="view w is closed"):
        other.bind(given("a"))


def test_each_argument_has_a_group(engine: wukongs.Engine) -> None:
    view = register(engine, COUNT, "a", "nothing", snapshot=False)
    view.bind(given("nothing", "b"))
    assert rows(read(engine, view)[0]) == {(2, "0"): 1, (3, "1"): 1}
    update(engine, "INSERT DATA { :nothing :p :a } ; DELETE DATA { :b :p :c }")
    expected = {(1, "0"): -1, (1, "1"): 1, (2, "0"): -1, (2, "1"): 1, (3, "1"): -1, (3, "0"): 1}
    assert rows(read(engine, view)[0]) == expected
    view.unbind([1, 3])
    assert rows(read(engine, view)[0]) == {(1, "1"): -1, (3, "0"): -1}


def test_limit_and_distinct_mean_the_rows_of_one_argument(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { :a :p :c , :d . :b :p :d }")
    view = register(engine, "SELECT DISTINCT ?y WHERE { ?x :p ?y } ORDER BY ?y LIMIT 1", "a", "b", "a")
    assert rows(read(engine, view)[0]) == {(0, "b"): 1, (1, "c"): 1, (2, "b"): 1}
    update(engine, "DELETE DATA { :a :p :b }")
    assert rows(read(engine, view)[0]) == {(0, "b"): -1, (0, "c"): 1, (2, "b"): -1, (2, "c"): 1}


def test_a_path_is_followed_from_each_argument(engine: wukongs.Engine) -> None:
    view = register(engine, "SELECT ?y WHERE { ?x :p+ ?y }", "a", snapshot=False)
    assert "iterate" in view.explain()
    view.bind(given("b"))
    assert rows(read(engine, view)[0]) == {(1, "c"): 1}
    update(engine, "INSERT DATA { :c :p :d }")
    assert rows(read(engine, view)[0]) == {(0, "d"): 1, (1, "d"): 1}


def test_a_path_that_may_have_no_length_is_followed_from_each_argument(engine: wukongs.Engine) -> None:
    view = register(engine, "SELECT ?y WHERE { ?x :p* ?y }", "a", snapshot=False)
    assert "iterate" in view.explain()
    view.bind(given("e"))
    assert rows(read(engine, view)[0]) == {(1, "e"): 1}, "also where the graph does not know it"
    update(engine, "INSERT DATA { :c :p :d }")
    assert rows(read(engine, view)[0]) == {(0, "d"): 1}


def test_a_change_touches_the_arguments_that_it_concerns(engine: wukongs.Engine) -> None:
    names = [f"n{at}" for at in range(2000)]
    texts = (
        "SELECT ?y WHERE { ?x :p ?y . ?y :q ?z }",
        "SELECT ?y ?z WHERE { ?x :p ?y OPTIONAL { ?y :q ?z } }",
        "SELECT ?y WHERE { ?x :p ?y FILTER NOT EXISTS { ?y :q ?z } }",
        "SELECT ?y WHERE { ?x :p ?y MINUS { ?y :q ?z } }",
        "SELECT (COUNT(*) AS ?n) WHERE { ?x :p ?y . ?y :q ?z }",
    )
    update(engine, "INSERT DATA { :n3 :p :y . :n5 :p :y . :n7 :p :y . :n8 :p :other }")
    for text in texts:
        view: Any = register(engine, text, *names, snapshot=False)
        engine.settle(30)
        update(engine, "INSERT DATA { :y :q :z }")
        [report] = read(engine, view)
        assert {row[0] for row in rows(report)} == {3, 5, 7}
        analyzed = view.explain(analyze=True)
        assert max(int(line.partition(": ")[2].partition(" ")[0]) for line in analyzed.splitlines()[1:]) <= 6, analyzed
        view.close()
        update(engine, "DELETE DATA { :y :q :z }")


def test_arguments_follow_updates_in_the_order_of_the_calls(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS, "a", every_ms=3_600_000, snapshot=False)
    view.bind(given("a"))
    update(engine, "INSERT DATA { :b :p :d }")
    view.unbind([0])
    assert read(engine, view) == [], "the period has not ended"
    assert rows(view.content()) == {(0, "a", "c"): 1}
    assert rows(view.content(at=2)) == {(0, "a", "c"): 1, (0, "a", "d"): 1}


def test_a_pause_keeps_the_arguments_and_a_text_takes_their_columns(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS, "a", "b")
    view.pause()
    view.bind(given("a"))
    view.unbind([1])
    view.resume()
    [report] = read(engine, view)
    assert (report.is_reset, rows(report)) == (True, {(0, "a", "c"): 1, (2, "a", "c"): 1})
    with pytest.raises(wukongs.SettingsError, match="column 'x' is no variable"):
        view.replace(f"{EX}REGISTER QUERY v AS SELECT ?y WHERE {{ ?y :p ?z }}")
    view.replace(f"{EX}REGISTER QUERY v AS SELECT ?y WHERE {{ ?y :p ?x }}")
    assert rows(read(engine, view)[0]) == {}
    view.bind(given("b"))
    assert rows(read(engine, view)[0]) == {(3, "a"): 1}


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("REGISTER ISTREAM", [{(1, "a", "c"): 1}]),
        ("REGISTER DSTREAM", [{(0, "a", "c"): -1}]),
        ("REGISTER RSTREAM", [{(0, "a", "c"): 1, (1, "a", "c"): 1}, {(1, "a", "c"): 1}]),
    ],
)
def test_an_operator_says_what_is_reported(engine: wukongs.Engine, head: str, expected: list[dict[Row, int]]) -> None:
    view = register(engine, PAIRS, "a", head=head, snapshot=False)
    engine.settle(30)
    found = []
    for call, changed in ((view.bind, given("a")), (view.unbind, [0])):
        call(changed)
        found += [rows(report) for report in read(engine, view)]
    assert found == expected


def test_progress_says_that_an_argument_without_rows_was_bound(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS, "a", snapshot=False)
    engine.settle(30)
    view.bind(given("nothing"))
    [report] = read(engine, view, progress=True)
    assert (report.is_progress, report.minor) == (True, 2)


def test_a_change_that_is_not_known_has_the_arguments_of_both_ends(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "SEALED_ROWS_MAX", 1)
    view = register(engine, PAIRS, "a", "b", snapshot=False)
    engine.settle(30)
    with engine._core.lock:  # both are one move
        update(engine, "INSERT DATA { :c :p :d , :e . :d :p :f }")
        view.unbind([0])
        view.bind(given("c"))
    assert rows(read(engine, view)[0]) == {(0, "a", "c"): -1, (1, "b", "d"): 1, (1, "b", "e"): 1, (2, "c", "f"): 1}


def test_a_view_that_has_failed_begins_again_when_arguments_change(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following_view, "RETRY_MAX_S", 0.0)
    view = register(engine, PAIRS, "a")
    read(engine, view)

    def fail(self: Any, *given: Any) -> Any:
        raise wukongs.BudgetExceeded("no room")

    with monkeypatch.context() as patch:
        patch.setattr(following_view.View, "advance", fail)
        view.bind(given("a"))
        engine.settle(30)
    with pytest.raises(wukongs.BudgetExceeded, match="no room"):
        read(engine, view)
    assert rows(read(engine, view)[0]) == {(0, "a", "c"): 1}, "where it stood"
    view.unbind([0])
    *_, report = read(engine, view)
    assert (report.is_reset, rows(report)) == (True, {(1, "a", "c"): 1})
    view.unbind([1])
    [report] = read(engine, view)
    assert rows(report) == {(1, "a", "c"): -1}


def test_arguments_are_read_beside_a_list_of_graphs(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { GRAPH :g { :a :p :other . :other :p :more } }")
    text = "SELECT ?z WHERE { ?x :p ?y . ?y :p ?z }"
    view = register(engine, text, "a", graphs=["default"])
    view.bind(given("a"))
    update(engine, "INSERT DATA { :b :p :d . GRAPH :g { :other :p :most } }")
    found = Counter[Row]()
    for report in read(engine, view):
        found.update(rows(report))
    assert found == {(0, "c"): 1, (0, "d"): 1, (1, "c"): 1, (1, "d"): 1}
    text = f"{EX}REGISTER QUERY w AS SELECT ?g ?z FROM NAMED :g WHERE {{ GRAPH ?g {{ ?x :p ?z }} }}"
    named: Any = engine.register(text, bindings=given("other"))
    assert rows(read(engine, named)[0]) == {(0, "g", "more"): 1, (0, "g", "most"): 1}


def test_texts_of_arguments_outlive_the_terms_that_a_view_forgets(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following_view, "COMPUTED_MIN", 0)
    view = register(engine, "SELECT ?x (CONCAT(STR(?y), '!') AS ?z) WHERE { ?x :p ?y }", "a", snapshot=False)
    view.bind(given("only_here", "b"))
    assert rows(read(engine, view)[0]) == {(2, "b", "c!"): 1}
    update(engine, "INSERT DATA { :a :p :c }")
    assert rows(read(engine, view)[0]) == {(0, "a", "c!"): 1}
    assert view.stats()["rebuilt"] > 0
    view.unbind(given("only_here"))
    view.unbind(given("a"))
    assert rows(read(engine, view)[0]) == {(0, "a", "b!"): -1, (0, "a", "c!"): -1}


def test_threads_bind_and_unbind_beside_updates(engine: wukongs.Engine) -> None:
    view = register(engine, PAIRS, "a", snapshot=False)
    engine.settle(30)

    def change(name: str) -> None:
        for _ in range(20):
            [number] = view.bind(given(name)).tolist()
            view.unbind([number])
        view.bind(given(name))

    threads = [threading.Thread(target=change, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for at in range(20):
        update(engine, f"INSERT DATA {{ :c :p :n{at} }}")
    for thread in threads:
        thread.join(60)
    total = Counter({(0, "a", "c"): 1})
    for report in read(engine, view):
        total.update(rows(report))
    total = Counter({row: weight for row, weight in total.items() if weight})
    assert total == Counter(rows(view.content()))
    assert sorted(Counter(row[1] for row in total).values()) == [2, 20]


def test_what_a_log_says_is_unbound_whatever_the_limits_are() -> None:
    """They bound what is asked; a node of a cluster with other limits has to do what the log says."""
    with wukongs.Engine(settings=wukongs.Settings(rows_max=1)) as engine:
        view = register(engine, PAIRS, "a", "b", "c")
        with pytest.raises(wukongs.BudgetExceeded):
            view.unbind([0, 1, 2])
        with engine._core.lock:
            view.take_arguments("unbind", [0, 1, 2])
        assert view.stats()["arguments"] == 0


NAMED = (
    *(f"<http://ex/{name}>" for name in ("g", "h", "unknown")),
    *(f"<urn:x-wukongs:{name}>" for name in ("default", "explicit", "inferred", "explicit:http://ex/g")),
    *('"g"', '"1"^^<http://www.w3.org/2001/XMLSchema#integer>'),
)
"""Terms for the variable of GRAPH: named graphs, and terms that name none."""


@pytest.mark.parametrize("clause", ["", "FROM NAMED :g FROM NAMED <urn:x-wukongs:explicit>", "FROM :g FROM NAMED :h"])
@pytest.mark.parametrize(
    "pattern",
    [
        "GRAPH ?g { ?s :q ?o }",
        "GRAPH ?g { }",
        "GRAPH ?g { ?s :q* ?o }",
        "GRAPH ?g { { SELECT (COUNT(*) AS ?n) { ?s ?p ?o } } }",
        "?s :p ?o FILTER NOT EXISTS { GRAPH ?g { ?o :q ?s } }",
        "?s :p ?o OPTIONAL { GRAPH ?g { ?o :q ?x } }",
        "?s :q ?o MINUS { GRAPH ?g { ?s :q ?o } }",
    ],
)
def test_an_argument_names_a_graph_as_a_term_of_a_query_does(engine: wukongs.Engine, pattern: str, clause: str) -> None:
    engine.add_rules(EX + "RULE back: CONSTRUCT { ?y :q ?x } WHERE { ?x :p ?y }")
    text = f"SELECT * {clause} {{ {pattern} }}"
    view = engine.register(f"{EX}REGISTER QUERY v AS {text}", bindings=[{"g": term} for term in NAMED])
    total = Counter[Row]()
    for change in (
        "INSERT DATA { GRAPH :g { :a :p :b . :b :q :a } GRAPH :h { :c :q :b } }",
        "DELETE DATA { :a :p :b . GRAPH :h { :c :q :b } } ; INSERT DATA { :b :q :a }",
        "INSERT DATA { :a :p :b . GRAPH :unknown { :b :q :a } }",
        "DELETE DATA { :b :q :a . GRAPH :g { :b :q :a } }",
    ):
        update(engine, change)
        for report in read(engine, view):
            if report.is_reset:
                total.clear()
            for row, weight in zip(report.texts(), report.weights.tolist(), strict=True):
                total[row] += weight
        asked = Counter(
            (f'"{number}"^^<http://www.w3.org/2001/XMLSchema#integer>', *row)
            for number, term in enumerate(NAMED)
            for row in engine.query(EX + text, {"g": term}).texts()
        )
        assert +total == asked, change
        assert Counter(map(tuple, view.content().texts())) == asked, change
