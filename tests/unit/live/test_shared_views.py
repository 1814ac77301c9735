"""Views of one shape: one tree of operators moves them, and each is what it would be alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.fuzz import first_and_slow
from tests.unit.cluster.wires import until
from tests.unit.live.test_quiet_views import EX, moved, register, sum_of
from wukongs.incremental.view import View
from wukongs.live.views import shared_views
from wukongs.live.views.live_view import LiveView
from wukongs.live.views.shared_views import SharedViews

TEXTS = (
    "?x { :n% :p ?x }",
    "?x { ?x :q :n% }",
    "?x ?y { :n% :p ?x . ?x :q ?y }",
    "?y ?x { :n% :p ?x OPTIONAL { ?x :q ?y } }",
    "(COUNT(*) AS ?n) { ?x :p :n% }",
    "?y (COUNT(?x) AS ?n) { ?x :p :n% ; :q ?y } GROUP BY ?y",
    'DISTINCT ?v { :n% :p ?x . ?x :q ?y BIND(CONCAT("of ", STR(?y)) AS ?v) }',
    "?x { ?x :p :n% FILTER NOT EXISTS { ?x :q :n& } }",
    "?x ?q { :n% ?q ?x FILTER(?q != :q) }",
    "?x { { ?x :p :n% } UNION { ?x :q :n& } }",
    "?x { ?x :p ?y MINUS { ?x :q :n& } }",
    "?g { GRAPH ?g { ?x :p :n% } }",
    "?x ?n { :n% :p ?x { SELECT ?x (COUNT(?y) AS ?n) { ?x :q ?y } GROUP BY ?x } }",
    "?x { :n% :p+ ?x }",
    "?x { ?x :p :n% } ORDER BY ?x LIMIT 2",
    "?y ?x { ?x :p :n% . ?x :q ?y } ORDER BY ?y ?x LIMIT 1 OFFSET 1",
)


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as found:
        found.update(EX + "INSERT DATA { :n1 :p :n2 . :n2 :p :n3 . :n2 :q :n1 }")
        yield found


def many(engine: wukongs.Engine, text: str, count: int = 8, **options: Any) -> list[Any]:
    views = [register(engine, f"v{number}", text.replace("%", str(number)), **options) for number in range(count)]
    engine.settle(30)
    return views


def test_one_move_serves_all_views_of_a_shape(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    views = many(engine, "?x ?y { :n% :p ?x . ?x :q ?y }", snapshot=False)
    moves, advance = list[int](), SharedViews.advance

    def noted(self: SharedViews[Any], *given: Any) -> Any:
        moves.append(len(self.members))
        return advance(self, *given)

    monkeypatch.setattr(SharedViews, "advance", noted)
    names = moved(monkeypatch)
    sn = engine.update(EX + "INSERT DATA { :n3 :p :n2 . :n4 :p :n2 . :n2 :q :n5 }")
    engine.settle(30)
    assert (moves, sorted(names)) == ([8], ["v1", "v3", "v4"])
    for number, expected in ((1, 1), (3, 2), (4, 2), (5, 0)):
        reports = list(views[number].results(timeout_s=0))
        assert [(len(one), one.snapshot, one.query) for one in reports] == [(expected, sn, f"v{number}")] * bool(
            expected
        )
    assert {view.stats()["sn"] for view in views} == {sn}
    assert views[0].explain().startswith("one of 8 views of a shape\n")
    assert views[0].stats()["kept_bytes"] < 1000


def test_a_few_views_of_a_shape_move_by_themselves(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    views = many(engine, "?x { :n% :p ?x }", shared_views.ALONE_MAX, snapshot=False)
    monkeypatch.setattr(SharedViews, "advance", None)
    engine.update(EX + "INSERT DATA { :n3 :p :n2 }")
    engine.settle(30)
    assert [sum_of(view, Counter()).total() for view in views] == [0, 0, 0, 1]


def test_views_of_other_options_move_by_themselves(engine: wukongs.Engine) -> None:
    for text, options in (
        ("?x { :n% :p ?x }", {"keep": True}),
        ("?x { :n% :p ?x }", {"output": "rstream"}),
        ("?x { :n% :p ?x }", {"every_ms": 1000}),
        ("?x { :n% :p+ ?x }", {}),
        ("?x { ?x :p ?y }", {}),
        (f"?x {{ {' UNION '.join(f'{{ :n% :p{number} ?x }}' for number in range(17))} }}", {}),
    ):
        views = many(engine, text, **options)
        assert not any(view.explain().startswith("one of") for view in views), text
        for view in views:
            view.close()


def test_limit_cuts_equal_rows_by_the_names_of_each_text(engine: wukongs.Engine) -> None:
    """Equal rows are cut in the order of the names of variables: texts with other names are of other shapes."""
    patterns = "{{ :n% :p ?{0} . ?{0} :q ?{1} }} ORDER BY STRLEN(STR(?{0})) LIMIT 2"
    texts = [f"* {patterns.format(*names)}" for names in (("a", "b"), ("b", "a"), ("x", "y"))]
    views = [
        register(engine, f"v{at} of {kind}".replace(" ", ""), text.replace("%", str(at)))
        for kind, text in enumerate(texts)
        for at in range(6)
    ]
    kept, is_other = [Counter[Any]() for _ in views], False
    engine.settle(30)
    for view, content in zip(views, kept, strict=True):
        sum_of(view, content)
        assert view.explain().startswith("one of 6 views of a shape\n")
    for change in (
        "INSERT DATA { :n1 :p :k1, :k2, :k3 . :k1 :q :m3 . :k2 :q :m2 . :k3 :q :m1 . :n4 :p :k1, :k2 }",
        "INSERT DATA { :k0 :q :m4 . :n1 :p :k0 . :k4 :q :m0 . :n1 :p :k4 }",
        "DELETE DATA { :k0 :q :m4 . :k4 :q :m0 . :n4 :p :k1 }",
    ):
        engine.update(EX + change)
        engine.settle(30)
        for view, content in zip(views, kept, strict=True):
            assert sum_of(view, content) == Counter(map(tuple, view.content().texts())), change
        is_other |= +kept[1] != +kept[7]
    assert {len(content) for content in kept} >= {0, 2}
    assert is_other, "names decide which rows are left"


def test_what_cannot_be_found_for_all_is_found_by_each(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget is that of one view, and no reader begins again when all of them together are beyond it."""
    views = many(engine, "(COUNT(*) AS ?n) { ?x :p :n% }")
    kept = [Counter[Any]() for _ in views]
    for view, content in zip(views, kept, strict=True):
        sum_of(view, content)
    advance = View.advance

    def fails(self: View, *given: Any) -> Any:
        if self.evaluation.lifted is not None:
            raise wukongs.BudgetExceeded("too many rows")
        return advance(self, *given)

    for _ in range(2):
        monkeypatch.setattr(View, "advance", fails)
        engine.update(f"{EX}INSERT DATA {{ :n{random.random()} :p :n3 }}".replace("0.", ""))
        engine.settle(30)
        monkeypatch.setattr(View, "advance", advance)
        engine.update(f"{EX}INSERT DATA {{ :n{random.random()} :p :n5 }}".replace("0.", ""))
        engine.settle(30)
        for number, view in enumerate(views):
            reports = list(view.results(timeout_s=0))
            assert not any(report.is_reset for report in reports)
            for report in reports:
                for cells, weight in zip(report.texts(), report.weights.tolist(), strict=True):
                    kept[number][cells] += weight
            assert +kept[number] == Counter(engine.query(f"{EX}SELECT (COUNT(*) AS ?n) {{ ?x :p :n{number} }}").texts())
    assert all(view.stats()["errors"] == 0 for view in views)


def test_views_that_come_and_go_are_bound_and_unbound(engine: wukongs.Engine) -> None:
    """What is kept for a shape has the rows of a view that comes later, and not those of one that has left."""
    text = "(COUNT(*) AS ?n) { ?x :p :n% }"
    views = many(engine, text)
    engine.update(EX + "INSERT DATA { :a :p :n3, :n9 . :b :p :n9 }")
    engine.settle(30)
    late = register(engine, "late", text.replace("%", "9"), snapshot=False)
    engine.settle(30)
    shape = late.shared
    for step in range(3):
        engine.update(f"{EX}INSERT DATA {{ :c{step} :p :n9 }}")
        engine.settle(30)
        assert sum_of(late, Counter()) == {(f'"{step + 3}"^^<http://www.w3.org/2001/XMLSchema#integer>',): 1}
    arguments, kept = shape.arguments_count, shape.size_bytes
    for view in views[:4]:
        view.close()
    engine.update(f"{EX}INSERT DATA {{ :d :p :n9 ; :q :n3 }}")
    engine.settle(30)
    assert (arguments, shape.arguments_count) == (9, 5)
    assert shape.size_bytes < kept
    assert late.stats()["errors"] == 0


@pytest.mark.parametrize("word", ["OPTIONAL", "MINUS"])
def test_what_is_kept_for_all_constants_is_there_for_a_view_that_comes_later(engine: wukongs.Engine, word: str) -> None:
    counts = "{ SELECT ?x (COUNT(?y) AS ?n) { ?x :r ?y } GROUP BY ?x }"
    text = f"?x ?n {{ :n% :p ?x {word} {{ ?x :q :n& {counts} }} }}"
    engine.update(EX + "INSERT DATA { :n1 :p :a, :b . :a :r 1, 2 . :b :r 1 }")
    many(engine, text.replace("&", "2"))
    for change in ("INSERT DATA { :n3 :p :a . :a :q :n2 }", "INSERT DATA { :b :q :n7 }"):  # :n7 is of no view yet
        engine.update(EX + change)
        engine.settle(30)
    text = text.replace("%", "1").replace("&", "7")
    late, content = register(engine, "late", text), Counter[Any]()
    engine.settle(30)
    until(lambda: late.explain().startswith("one of 9"))
    for change in ("INSERT DATA { :b :r 2 }", "INSERT DATA { :a :q :n7 }", "DELETE DATA { :b :q :n7 }"):
        sum_of(late, content)
        engine.update(EX + change)
        engine.settle(30)
        assert sum_of(late, content) == Counter(engine.query(f"{EX}SELECT {text}").texts()), change


@pytest.mark.parametrize("word", ["", "DISTINCT "])
def test_computed_terms_that_no_view_needs_are_forgotten(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(shared_views, "COMPUTED_MIN", 10)
    views = many(engine, word + '?v { :n% :p ?x BIND(CONCAT("of ", STR(?x)) AS ?v) }')
    counts = list[int]()
    for step in range(40):
        was, now = (f":n3 :p :x{one}, :y{one}" for one in (step - 1, step))
        engine.update(f"{EX}DELETE DATA {{ {was} }} ; INSERT DATA {{ {now} }}")
        engine.settle(30)
        counts.append(views[3].shared._view.evaluation.terms.computed_count)
    assert max(counts) <= 20, counts
    assert sum_of(views[3], Counter()).total() == 2


def test_a_view_that_leaves_during_a_move_gets_nothing_of_it(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = many(engine, "?x { ?x :p :n% }", snapshot=False)
    advance = SharedViews.advance

    def paused(self: SharedViews[Any], *given: Any) -> Any:
        found = advance(self, *given)
        monkeypatch.setattr(SharedViews, "advance", advance)
        views[3].pause()
        views[4].close()
        return found

    monkeypatch.setattr(SharedViews, "advance", paused)
    engine.update(EX + "INSERT DATA { :a :p :n2, :n3, :n4 }")
    engine.settle(30)
    assert [view.stats()["reports"] for view in views[2:5]] == [1, 0, 0]
    views[3].resume()
    engine.settle(30)
    [report] = list(views[3].results(timeout_s=0))
    assert (report.is_reset, len(report)) == (True, 2 if ("<http://ex/n2>",) in report.texts() else 1)
    engine.update(EX + "INSERT DATA { :b :p :n3 }")
    engine.settle(30)
    assert sum_of(views[3], Counter()) == {("<http://ex/b>",): 1}


def test_a_change_that_is_not_known_is_found_by_both_contents(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = many(engine, "?x { ?x :p :n% }", snapshot=False)
    monkeypatch.setattr("wukongs.live.views.runner.Views._change_here", lambda *_: lambda: None)
    moves, advance_anew = list[int](), View.advance_anew

    def noted(self: View, *given: Any) -> Any:
        moves.append(1)
        return advance_anew(self, *given)

    monkeypatch.setattr(View, "advance_anew", noted)
    engine.update(EX + "INSERT DATA { :a :p :n2, :n3, :n4 . :b :p :n4 } ; DELETE DATA { :n1 :p :n2 }")
    engine.settle(30)
    assert [sum_of(view, Counter()).total() for view in views] == [0, 0, 1, 1, 2, 0, 0, 0]
    assert views[2].stats()["reports"] == 1
    assert 1 <= len(moves) <= 2


def test_shared_views_go_on_after_a_restart(tmp_path: Path) -> None:
    text, kept = "(COUNT(*) AS ?n) { ?x :p :n% }", [Counter[Any]() for _ in range(8)]
    for life in range(3):
        with wukongs.Engine(data_dir=tmp_path) as engine:
            views = many(engine, text)
            for number, view in enumerate(views):
                reports = list(view.results(timeout_s=0))
                assert any(report.is_reset for report in reports) == (life == 0)
                for report in reports:
                    for cells, weight in zip(report.texts(), report.weights.tolist(), strict=True):
                        kept[number][cells] += weight
                asked = engine.query(f"{EX}SELECT {text.replace('%', str(number))}").texts()
                assert +kept[number] == Counter(asked), (life, number)
            assert views[0].explain().startswith("one of")
            engine.update(f"{EX}INSERT DATA {{ :a{life} :p :n3, :n4 . :b :q :n{life} }}")
            engine.settle(30)
            engine.update(f"{EX}DELETE DATA {{ :a{life} :p :n4 }}")


@pytest.mark.parametrize("alone_max", [0, 2])
@pytest.mark.parametrize("seed", first_and_slow(range(6)))
def test_random_views_of_shapes_are_right_at_each_sn(
    engine: wukongs.Engine, seed: int, alone_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views come and go, are paused and get other texts between the changes."""
    rng = random.Random(seed)
    monkeypatch.setattr(shared_views, "ALONE_MAX", alone_max)
    texts = rng.sample(TEXTS, 6)
    views, numbers = dict[str, tuple[str, Any, Counter[Any]]](), iter(range(10_000))
    shared = set[str]()

    def node() -> str:
        return f":n{rng.randrange(8)}"

    def text() -> str:
        return rng.choice(texts).replace(":n%", node()).replace(":n&", node())

    def add() -> None:
        name, chosen = f"v{next(numbers)}", text()
        views[name] = chosen, register(engine, name, chosen), Counter()

    for _ in range(30):
        add()
    for _ in range(30):
        triples = " ".join(f"{node()} {rng.choice((':p', ':q', ':r'))} {node()} ." for _ in range(rng.randrange(1, 4)))
        where = f"GRAPH {node()} {{ {triples} }}" if rng.random() < 0.2 else triples
        engine.update(f"{EX}{rng.choice(('INSERT', 'DELETE'))} DATA {{ {where} }}")
        name = rng.choice(list(views))
        match rng.randrange(6):
            case 0:
                add()
            case 1:
                views.pop(name)[1].close()
            case 2:
                views[name][1].pause()
                views[name][1].resume()
            case 3:
                chosen = text()
                views[name][1].replace(f"{EX}REGISTER QUERY {name} AS SELECT {chosen}")
                views[name] = chosen, *views[name][1:]
        engine.settle(30)
        for chosen, view, kept in views.values():
            assert sum_of(view, kept) == Counter(engine.query(f"{EX}SELECT {chosen}").texts()), chosen
            if isinstance(view, LiveView) and view.shared is not None:
                shared.add(chosen)
    assert len(shared) > 5
