"""Quiet views: a change moves the views that it may concern, and all others at once; each is right at every SN."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from tests.fuzz import first_and_slow
from wukongs.incremental.view import View
from wukongs.live.views.live_view import LiveView

EX = "PREFIX : <http://ex/> "


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as found:
        found.update(EX + "INSERT DATA { :a :p :b . :b :p :c . :b :q :a }")
        yield found


def register(engine: wukongs.Engine, name: str, text: str, **options: Any) -> Any:
    return engine.register(f"{EX}REGISTER QUERY {name} AS SELECT {text}", **options)


def moved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each view that moves by itself, or gets its rows from those of its shape."""
    found = list[str]()
    for name, call in (("advance", LiveView.advance), ("put_share", LiveView.put_share)):

        def noted(self: LiveView, *given: Any, call: Any = call) -> None:
            found.append(self.name)
            call(self, *given)

        monkeypatch.setattr(LiveView, name, noted)
    return found


def sum_of(view: Any, content: Counter[Any]) -> Counter[Any]:
    for report in view.results(timeout_s=0):
        if report.is_reset:
            content.clear()
        for cells, weight in zip(report.texts(), report.weights.tolist(), strict=True):
            content[cells] += weight
    return +content


def test_a_change_moves_the_views_that_it_concerns_alone(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        register(engine, f"s{number}", f"?x {{ :n{number} :p ?x }}", snapshot=False)
        register(engine, f"o{number}", f"?x {{ ?x :p :n{number} FILTER(?x != :n1) }}", snapshot=False)
    register(engine, "all", "(COUNT(*) AS ?n) { ?x :p ?y }", snapshot=False)
    register(engine, "any", "?p { :n5 ?p ?x }", snapshot=False)
    engine.settle(30)
    names = moved(monkeypatch)
    for text, expected in (
        ("INSERT DATA { :n5 :p :n7 }", {"s5", "o7", "all", "any"}),
        ("INSERT DATA { :n5 :q :n7 }", {"any"}),
        ("INSERT DATA { :n6 :q :n7 . :other :r 5 }", set[str]()),
        ("DELETE DATA { :n5 :p :n7 }", {"s5", "o7", "all", "any"}),
    ):
        names.clear()
        engine.update(EX + text)
        engine.settle(30)
        assert set(names) == expected
        assert len(names) == len(expected)


def test_a_large_change_concerns_whatever_it_may(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    view = register(engine, "v", "?x { :n5 :p ?x }", snapshot=False)
    engine.settle(30)
    monkeypatch.setattr("wukongs.live.views.quiet_views.TRIPLES_MAX", 3)
    monkeypatch.setattr("wukongs.incremental.interests.TRIPLES_MAX", 3)
    names = moved(monkeypatch)
    engine.update(EX + "INSERT DATA { :n5 :p :a, :b, :c, :d }")
    engine.settle(30)
    assert names == ["v"]
    assert sum_of(view, Counter()).total() == 4


def test_a_quiet_view_is_complete_up_to_the_newest_sn(engine: wukongs.Engine) -> None:
    view = register(engine, "v", "?x { :n5 :p ?x }")
    engine.settle(30)
    assert [report.is_reset for report in view.results(timeout_s=0)] == [True]
    sn = engine.update(EX + "INSERT DATA { :n6 :p :a }")
    engine.settle(30)
    [mark] = list(view.results(timeout_s=0, progress=True))
    assert (mark.is_reset, len(mark), mark.snapshot, view.stats()["sn"], view.content().snapshot) == (
        False,
        0,
        sn,
        sn,
        sn,
    )
    sn = engine.update(EX + "INSERT DATA { :n5 :p :a }")
    engine.settle(30)
    [report] = list(view.results(timeout_s=0, progress=True))
    assert (report.after, report.snapshot, report.weights.tolist()) == (mark.snapshot, sn, [1])


def test_who_waits_for_progress_is_woken(engine: wukongs.Engine) -> None:
    view = register(engine, "v", "?x { :n5 :p ?x }", snapshot=False)
    engine.settle(30)
    for _ in range(3):
        found = list[int]()
        reader = threading.Thread(
            target=lambda found=found: found.append(next(view.results(timeout_s=30, progress=True)).snapshot)
        )
        reader.start()
        sn = engine.update(EX + f"INSERT DATA {{ :n6 :p {random.random()} }}")
        reader.join(20)
        assert found == [sn]


def test_a_term_that_was_unknown_wakes(engine: wukongs.Engine) -> None:
    view = register(engine, "v", "?x { ?x :never :seen }", snapshot=False)
    engine.settle(30)
    engine.update(EX + "INSERT DATA { :n6 :p :a }")
    engine.settle(30)
    engine.update(EX + "INSERT DATA { :new :never :seen }")
    engine.settle(30)
    assert sum_of(view, Counter()) == {("<http://ex/new>",): 1}


@pytest.mark.parametrize("change", ["pause", "replace", "close"])
def test_a_quiet_view_is_changed_by_its_user(engine: wukongs.Engine, change: str) -> None:
    view = register(engine, "v", "?x { :n5 :p ?x }")
    other = register(engine, "other", "?x { :n5 :p ?x }")
    engine.settle(30)
    engine.update(EX + "INSERT DATA { :n6 :p :a }")
    engine.settle(30)
    kept = sum_of(view, Counter())
    if change == "pause":
        view.pause()
        engine.update(EX + "INSERT DATA { :n5 :p :a }")
        view.resume()
    elif change == "replace":
        view.replace(f"{EX}REGISTER QUERY v AS SELECT ?x {{ :n6 :p ?x }}")
    else:
        view.close()
    engine.update(EX + "INSERT DATA { :n5 :p :b . :n6 :p :b }")
    engine.settle(30)
    expected = {"pause": {"a": 1, "b": 1}, "replace": {"a": 1, "b": 1}, "close": {}}[change]
    assert sum_of(view, kept) == {(f"<http://ex/{name}>",): count for name, count in expected.items()}
    assert sum_of(other, Counter()).total() == (2 if change == "pause" else 1)


def test_a_view_that_fails_does_not_stay_quiet(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    view = register(engine, "v", "?x { :n5 :p ?x }", snapshot=False)
    engine.settle(30)
    advance = View.advance
    monkeypatch.setattr(View, "advance", lambda *_: (_ for _ in ()).throw(wukongs.QueryTimeout("too long")))
    engine.update(EX + "INSERT DATA { :n5 :p :a }")
    engine.settle(30)
    monkeypatch.setattr(View, "advance", advance)
    with pytest.raises(wukongs.QueryTimeout):
        list(view.results(timeout_s=0))
    engine.update(EX + "INSERT DATA { :n6 :p :a }")
    kept, deadline_s = Counter[Any](), time.monotonic() + 30
    while sum_of(view, kept) != {("<http://ex/a>",): 1}:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


TEXTS = (
    "?x { :n% :p ?x }",
    "?x { ?x :q :n% }",
    "?x ?y { :n% :p ?x . ?x :q ?y }",
    "?x ?y { :n% :p ?x OPTIONAL { ?x :q ?y } }",
    "(COUNT(*) AS ?n) { ?x :p :n% }",
    "?x { ?x :p :n% FILTER NOT EXISTS { ?x :q :n& } }",
    "?p ?x { :n% ?p ?x }",
    "?x { { ?x :p :n% } UNION { ?x :q :n& } }",
    "?x { :n% :p+ ?x }",
    "?x { ?x :p ?y MINUS { ?x :q :n& } }",
    "?g { GRAPH ?g { ?x :p :n% } }",
    "?x { ?x :p :n% } ORDER BY ?x LIMIT 2",
)


@pytest.mark.parametrize("seed", first_and_slow(range(4)))
def test_random_views_are_right_at_each_sn(engine: wukongs.Engine, seed: int) -> None:
    """The sum of the reports is what the text says, of views that are quiet for most of the time."""
    rng = random.Random(seed)
    views = list[tuple[str, Any, Counter[Any]]]()

    def node() -> str:
        return f":n{rng.randrange(8)}"

    def add(number: int) -> None:
        text = rng.choice(TEXTS).replace(":n%", node()).replace(":n&", node())
        views.append((text, register(engine, f"v{number}", text), Counter()))

    for number in range(40):
        add(number)
    for step in range(30):
        triples = " ".join(f"{node()} {rng.choice((':p', ':q', ':r'))} {node()} ." for _ in range(rng.randrange(1, 4)))
        where = f"GRAPH {node()} {{ {triples} }}" if rng.random() < 0.2 else triples
        engine.update(f"{EX}{rng.choice(('INSERT', 'DELETE'))} DATA {{ {where} }}")
        if rng.random() < 0.3:
            add(40 + step)
        engine.settle(30)
        for text, view, kept in views:
            assert sum_of(view, kept) == Counter(engine.query(f"{EX}SELECT {text}").texts()), text
