"""register(into=) a stream: what each period of a live view has inserted, as tuples of a declared stream."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wukongs
from wukongs.incremental.view import View
from wukongs.live.views import following_view

EX = "PREFIX : <http://ex/> "
MADE = "http://ex/made"
SEEN = "CONSTRUCT { ?x :seen ?y } WHERE { ?x :p ?y }"
Triple = tuple[str, str, str]
Facts = set[Triple]


class Periods:
    """An engine with a stream that gives the event time, and a view whose period is 100 ms."""

    def __init__(self, **settings: int) -> None:
        self.engine = wukongs.Engine(settings=settings)
        self.clock = self.engine.stream("http://ex/clock", batch_ms=10)
        self.now_ms = 0
        self.advance(0)

    def declare(self, **options: Any) -> Any:
        return self.engine.stream(MADE, batch_ms=100, **options)

    def register(self, text: str = SEEN, name: str = "q", into: str = MADE, **options: Any) -> Any:
        return self.engine.register(f"{EX}REGISTER QUERY {name} AS {text}", into=into, every_ms=100, **options)

    def windows(self, stream: str = MADE) -> Any:
        window = f"FROM STREAM <{stream}> [RANGE 100ms STEP 100ms]"
        return self.engine.register(f"REGISTER QUERY windows AS SELECT ?s ?p ?o {window} WHERE {{ ?s ?p ?o }}")

    def update(self, text: str) -> None:
        self.engine.update(EX + text)

    def advance(self, to_ms: int) -> None:
        self.now_ms = to_ms
        self.clock.advance(to_ms)
        self.engine.settle(30)

    def graph(self, name: str = "http://ex/g") -> Facts:
        return {shown(row) for row in self.engine.query(f"SELECT * {{ GRAPH <{name}> {{ ?s ?p ?o }} }}").texts()}


def shown(row: tuple[str | None, ...]) -> Triple:
    subject, predicate, object_ = (str(cell).replace("http://ex/", "").strip("<>") for cell in row)
    return subject, predicate, object_


def pushed(windows: Any) -> dict[int, Facts]:
    """Return the triples of each window, by its end."""
    found = dict[int, Facts]()
    for window in windows.results(timeout_s=0):
        rows = [shown(row) for row in window.texts()]
        assert len(set(rows)) == len(rows)
        found[window.end_ms] = set(rows)
    return found


@pytest.fixture
def periods() -> Iterator[Periods]:
    found = Periods()
    yield found
    found.engine.close()


# --- what is pushed ---------------------------------------------------------------------------------------------------


def test_a_period_pushes_what_it_has_inserted_with_its_end_as_time(periods: Periods) -> None:
    periods.update("INSERT DATA { :a :p :b }")
    made = periods.declare(timing=True)
    periods.register()
    windows = periods.windows()
    periods.update("INSERT DATA { :b :p :c . :c :p :d }")
    periods.update("DELETE DATA { :c :p :d }")
    periods.advance(100)
    periods.update("INSERT DATA { :d :p :e } ; DELETE DATA { :a :p :b }")
    periods.advance(250)
    periods.advance(500)
    first, second, *others = pushed(windows).items()
    assert first == (100, {("a", "seen", "b"), ("b", "seen", "c")}), "the content of the beginning, too"
    assert second == (200, {("d", "seen", "e")})
    assert all(not found for _, found in others)
    assert others[-1][0] == 500, "a quiet period closes the stream, too"
    with pytest.raises(wukongs.StreamError, match="is made by a registered query: nothing else is pushed"):
        made.push([("<http://ex/s>", "<http://ex/p>", "<http://ex/o>", 600)])


def test_without_the_snapshot_the_first_period_has_its_own_inserts_alone(periods: Periods) -> None:
    periods.update("INSERT DATA { :a :p :b }")
    periods.declare(timing=True)
    periods.register(snapshot=False)
    windows = periods.windows()
    periods.update("INSERT DATA { :b :p :c }")
    periods.advance(100)
    assert pushed(windows) == {100: {("b", "seen", "c")}}


def test_the_text_may_say_the_period(periods: Periods) -> None:
    periods.declare(timing=True)
    periods.engine.register(f"{EX}REGISTER QUERY q COMPUTED EVERY 100ms AS {SEEN}", into=MADE)
    windows = periods.windows()
    periods.update("INSERT DATA { :b :p :c }")
    periods.advance(100)
    assert pushed(windows) == {100: {("b", "seen", "c")}}


def test_blank_nodes_of_a_template_keep_their_names(periods: Periods) -> None:
    periods.declare(into="http://ex/g")
    periods.register("CONSTRUCT { _:n :of ?x } WHERE { ?x :p ?y }")
    periods.update("INSERT DATA { :a :p :b . :b :p :c }")
    periods.advance(100)
    assert len(periods.graph()) == 2
    periods.update("DELETE DATA { :a :p :b }")
    periods.advance(200)
    [(name, _, of)] = periods.graph()
    assert (name[:2], of) == ("_:", "b")


LABELS = "CONSTRUCT { ?x :label ?t } WHERE { ?x :p ?y BIND(CONCAT(STR(?y), '!') AS ?t) }"


def test_computed_terms_stay_the_same_triples(periods: Periods, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view forgets its ids of computed terms now and then, and when it goes on after a pause."""
    monkeypatch.setattr(following_view, "COMPUTED_MIN", 5)
    periods.declare(into="http://ex/g")
    view = periods.register(LABELS)
    for number in range(1, 15):
        periods.update(f"DELETE {{ :a :p ?y }} INSERT {{ :a :p :n{number} . :b{number % 5} :p :c }} WHERE {{}}")
        periods.update(f"DELETE WHERE {{ :b{number % 3} :p ?y }} ; DELETE DATA {{ :a :p :n{number - 1} }}")
        if number % 5 == 0:
            view.pause()
            view.resume()
        periods.advance(100 * number)
        asked = periods.engine.query(EX + LABELS).texts()
        assert periods.graph() == {shown(row) for row in asked}, number
    assert view.stats()["rebuilt"] > 1


@pytest.mark.parametrize("hash_bits", [62, 6])
def test_computed_terms_that_are_not_stored_are_not_pushed_again(
    hash_bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids of terms are hashes; of those that clash, they depend on what was computed before."""
    monkeypatch.setattr(following_view, "COMPUTED_MIN", 5)
    periods = Periods(hash_bits=hash_bits)
    periods.declare(timing=True, history_ms=0)
    view = periods.register(LABELS)
    windows = periods.windows()
    before: Facts = set()
    for number in range(1, 25):
        periods.update(f"INSERT DATA {{ :a{number % 4} :p :n{number % 9}, :n{number} }}")
        periods.update(f"DELETE WHERE {{ :a{number % 3} :p ?y }}")
        periods.advance(100 * number)
        content = {shown(row) for row in periods.engine.query(EX + LABELS).texts()}
        assert pushed(windows) == {100 * number: content - before}
        before = content
    assert view.stats()["rebuilt"] > 1
    periods.engine.close()


@pytest.mark.parametrize("options", [{"timing": True}, {"into": "http://ex/g"}])
def test_what_is_deleted_takes_no_room_in_the_stream(periods: Periods, options: dict[str, Any]) -> None:
    triples = " ".join(f":a :p :n{number} ." for number in range(30))
    periods.update(f"INSERT DATA {{ {triples} }}")
    periods.declare(history_ms=0, **options)
    periods.register(LABELS, snapshot=False)
    windows = periods.windows()
    for number in range(1, 25):
        periods.update(f"DELETE DATA {{ :a :p :n{number} }}")
        periods.advance(100 * number)
    assert not any(pushed(windows).values())
    assert len(periods.engine._core.registry.transient) < 5


def test_timing_predicates_are_not_stored(periods: Periods) -> None:
    periods.declare(timing=["http://ex/seen"], into="http://ex/g")
    periods.register("CONSTRUCT { ?x :seen ?y . ?x :holds ?y } WHERE { ?x :p ?y }")
    windows = periods.windows()
    periods.update("INSERT DATA { :a :p :b . :c :p :d }")
    periods.advance(100)
    assert periods.graph() == {("a", "holds", "b"), ("c", "holds", "d")}
    periods.update("DELETE DATA { :a :p :b } ; INSERT DATA { :e :p :f }")
    periods.advance(200)
    assert periods.graph() == {("e", "holds", "f"), ("c", "holds", "d")}
    assert pushed(windows)[200] == {("e", "seen", "f"), ("e", "holds", "f")}
    periods.update("DELETE WHERE { ?x :p ?y }")
    periods.advance(300)
    assert (periods.graph(), pushed(windows)) == (set(), {300: set()})


def test_readers_get_reports_of_the_same_view(periods: Periods) -> None:
    periods.declare(timing=True)
    view = periods.register()
    [reset] = view.results(timeout_s=0)
    periods.update("INSERT DATA { :b :p :c }")
    periods.advance(100)
    [change] = view.results(timeout_s=0)
    assert (reset.is_reset, len(reset), change.time_ms, change.weights.tolist()) == (True, 0, 100, [1])


def test_a_query_reads_what_a_view_makes_and_a_view_what_that_stores(periods: Periods) -> None:
    """View q -> stream made -> query far -> its stream, which joins a graph -> view last; settle waits for all."""
    engine = periods.engine
    engine.stream("http://ex/far", batch_ms=100, into="http://ex/h")
    periods.declare(timing=True)
    periods.register()
    window = f"FROM STREAM <{MADE}> [RANGE 100ms STEP 100ms]"
    engine.register(f"{EX}REGISTER STREAM :far AS CONSTRUCT {{ ?x :far ?y }} {window} WHERE {{ ?x :seen ?y }}")
    last: Any = engine.register(f"{EX}REGISTER QUERY last AS SELECT ?x WHERE {{ GRAPH :h {{ ?x :far ?y }} }}")
    periods.update("INSERT DATA { :b :p :c }")
    periods.advance(100)
    periods.advance(200)
    assert [shown((*row, "", ""))[0] for row in last.content().texts()] == ["b"]
    assert last.sn == engine.query("ASK {}").snapshot


def test_periods_of_wall_time(periods: Periods) -> None:
    with wukongs.Engine() as engine:
        engine.stream(MADE, batch_ms=50, timing=True)
        window = f"FROM STREAM <{MADE}> [RANGE 50ms STEP 50ms]"
        windows: Any = engine.register(f"REGISTER QUERY w AS SELECT ?s ?p ?o {window} WHERE {{ ?s ?p ?o }}")
        engine.register(f"{EX}REGISTER QUERY q AS {SEEN}", into=MADE, every_ms=50)
        engine.update(EX + "INSERT DATA { :b :p :c }")
        for found in windows.results(timeout_s=10):
            if len(found):
                assert [shown(row) for row in found.texts()] == [("b", "seen", "c")]
                break


# --- against an oracle ------------------------------------------------------------------------------------------------


def _seen(facts: Facts) -> Facts:
    return {(x, "seen", y) for x, p, y in facts if p == "p"}


def _ends(facts: Facts) -> Facts:
    """Everything that leads to something without a successor."""
    has_more = {x for x, p, _ in facts if p == "p"}
    return {(y, "end", "yes") for _, p, y in facts if p == "p" and y not in has_more}


def _counts(facts: Facts) -> Facts:
    subjects = {x for x, p, _ in facts if p == "p"}
    number = '"{}"^^<http://www.w3.org/2001/XMLSchema#integer'
    return {(x, "count", number.format(sum(y == x and p == "p" for y, p, _ in facts))) for x in subjects}


TEXTS: list[tuple[str, Callable[[Facts], Facts]]] = [
    (SEEN, _seen),
    ("CONSTRUCT { ?y :end :yes } WHERE { ?x :p ?y MINUS { ?y :p ?z } }", _ends),
    ("CONSTRUCT { ?x :count ?n } WHERE { SELECT ?x (COUNT(*) AS ?n) WHERE { ?x :p ?y } GROUP BY ?x }", _counts),
]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
@pytest.mark.parametrize("is_signed", [False, True])
def test_pushes_are_the_differences_of_the_contents_at_the_ends_of_periods(
    is_signed: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle keeps the triples of the default graph, evaluates the text by loops at the end of each period, and
    knows nothing of pauses, other texts, errors and views that lag: none of them may lose or repeat a triple."""
    chance, names = random.Random(f"{is_signed} {seed}"), "abcd"
    monkeypatch.setattr(following_view, "RETRY_MAX_S", 0.0)
    advance, is_failing = View.advance, [False]

    def fail(self: Any, *given: Any) -> Any:
        found = advance(self, *given)
        if is_failing[0]:
            is_failing[0] = False
            raise wukongs.BudgetExceeded("no room")
        return found

    monkeypatch.setattr(View, "advance", fail)
    periods = Periods(view_lag_max_rows=12)
    engine, (text, expected) = periods.engine, chance.choice(TEXTS)
    periods.declare(**{"into": "http://ex/g"} if is_signed else {"timing": True})
    windows = periods.windows()
    view, given, facts = periods.register(text), Facts(), Facts()
    is_paused, events = False, set[str]()
    for number in range(1, 31):
        for _ in range(chance.choice((0, 1, 3, 15))):
            triple = chance.choice(names), chance.choice("ppq"), chance.choice(names)
            is_insert = chance.random() < 0.55
            data = " ".join(f":{part}" for part in triple)
            periods.update(f"{'INSERT' if is_insert else 'DELETE'} DATA {{ {data} }}")
            (facts.add if is_insert else facts.discard)(triple)
        late = [(f"<http://ex/{chance.choice(names)}>", "<http://ex/p>", "<http://ex/z>", 100 * number - 5)]
        if chance.random() < 0.3:
            periods.clock.push(late)
            facts |= {shown(row[:3]) for row in late}
        event = chance.choice(("pause", "replace", "fail", "", "", ""))
        events.add(event)
        if event == "pause":
            (view.resume if is_paused else view.pause)()
            is_paused = not is_paused
        elif event == "replace" and not is_paused:
            text, expected = chance.choice(TEXTS)
            view.replace(f"{EX}REGISTER QUERY q AS {text}")
        is_failing[0] = event == "fail"
        lost = view.stats()["errors"]
        periods.advance(100 * number)
        is_failing[0] = False
        if is_paused or view.stats()["errors"] > lost:
            continue
        content = expected(facts)
        if is_signed:
            assert periods.graph() == content, number
        assert pushed(windows).get(100 * number, Facts()) == content - given, number
        given = content
    assert seed or {"pause", "replace", "fail"} <= events
    engine.close()


# --- the view and the stream ------------------------------------------------------------------------------------------


def test_closing_the_view_ends_the_stream(periods: Periods) -> None:
    periods.declare(timing=True)
    view = periods.register()
    windows = periods.windows()
    periods.update("INSERT DATA { :b :p :c }")
    periods.advance(100)
    with pytest.raises(wukongs.StreamError, match="stream http://ex/made is read by windows"):
        periods.engine.drop_stream(MADE)
    view.close()
    periods.engine.settle(30)
    assert pushed(windows)[100] == {("b", "seen", "c")}
    with pytest.raises(wukongs.StreamError, match="has ended with the query that made it"):
        periods.register()
    windows.close()
    periods.engine.drop_stream(MADE)
    periods.declare(timing=True)
    periods.register()


def test_a_paused_view_says_so_to_the_readers_of_its_stream(periods: Periods) -> None:
    periods.declare(timing=True)
    view = periods.register()
    windows = periods.windows()
    periods.advance(100)
    view.pause()
    periods.advance(200)
    assert f"the query that makes {MADE} is paused" in windows.why()
    view.resume()
    periods.advance(300)
    assert 300 in pushed(windows)


def test_updates_do_not_wait_for_a_view_that_makes_a_stream(periods: Periods, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    periods.declare(timing=True)
    view, let_go, advance = periods.register(), threading.Event(), View.advance
    periods.engine.settle(30)
    monkeypatch.setattr(View, "advance", lambda *given: let_go.wait(30) and advance(*given))
    periods.update("INSERT DATA { :b :p :c }")
    periods.clock.advance(100)
    periods.update("INSERT DATA { :c :p :d }")
    assert view.stats()["reports"] == 0
    let_go.set()
    periods.engine.settle(30)
    assert view.stats()["reports"] == 1


def test_what_event_time_has_not_reached_is_pushed_later(caplog: pytest.LogCaptureFixture) -> None:
    """Periods are of wall time until some stream closes something: the stream that the view makes stands there then."""
    with wukongs.Engine() as engine:
        engine._core.wall_ms = lambda: wall[0]
        wall = [5000]
        engine.stream(MADE, batch_ms=100, into="http://ex/g")
        view: Any = engine.register(f"{EX}REGISTER QUERY q AS {SEEN}", into=MADE, every_ms=100)
        [reset] = view.results(timeout_s=0)
        engine.update(EX + "INSERT DATA { :a :p :b . :late :p :z }")
        wall[0] = 5100
        engine.update(EX + "INSERT DATA { :wakes :the :thread }")
        report = next(view.results(timeout_s=10))
        assert (len(reset), report.time_ms, len(report)) == (0, 5100, 2)
        engine.settle(30)
        ask = "SELECT * { GRAPH <http://ex/g> { ?s ?p ?o } }"
        assert {shown(row) for row in engine.query(ask).texts()} == {("a", "seen", "b"), ("late", "seen", "z")}
        clock = engine.stream("http://ex/clock", batch_ms=10)
        clock.advance(0)
        engine.update(EX + "DELETE DATA { :a :p :b }")
        clock.advance(100)
        engine.settle(30)
        assert "stands at 5100 ms, and gets nothing before" in view.why()
        clock.advance(200)
        engine.settle(30)
        [said] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert "view q: the stream that it makes stands at 5100 ms, by wall time, and event time is at 100 ms" in said
        assert len(engine.query(ask)) == 2
        engine.update(EX + "INSERT DATA { :c :p :d }")
        clock.advance(5300)
        engine.settle(30)
        assert {shown(row) for row in engine.query(ask).texts()} == {("c", "seen", "d"), ("late", "seen", "z")}
        assert "gets nothing" not in view.why()


def test_a_stream_does_not_stand_at_wall_time_while_event_time_is_still_to_begin() -> None:
    with wukongs.Engine() as engine:
        engine._core.wall_ms = lambda: wall[0]
        wall = [1_000_000]
        clock = engine.stream("http://ex/clock", batch_ms=10)
        engine.stream(MADE, batch_ms=100, into="http://ex/g")
        view: Any = engine.register(f"{EX}REGISTER QUERY q AS {SEEN}", into=MADE, every_ms=100)
        other: Any = engine.register(f"{EX}REGISTER QUERY other AS {SEEN}", every_ms=100)
        assert len([*view.results(timeout_s=0)]) == len([*other.results(timeout_s=0)]) == 1
        for number in range(3):
            wall[0] += 150
            engine.update(f"{EX}INSERT DATA {{ :a :p :n{number} }}")
            engine.settle(30)
        assert [*other.results(timeout_s=0)], "a view without a stream follows wall time"
        clock.advance(0)
        engine.update(f"{EX}DELETE DATA {{ :a :p :n0 }}")
        clock.advance(100)
        engine.settle(30)
        assert [report.time_ms for report in view.results(timeout_s=0)] == [100]
        assert "gets nothing" not in view.why()
        found = {shown(row) for row in engine.query("SELECT * { GRAPH <http://ex/g> { ?s ?p ?o } }").texts()}
        assert found == {("a", "seen", "n1"), ("a", "seen", "n2")}


def test_a_stream_without_a_tuple_does_not_stand_at_wall_time() -> None:
    """Streams of event time may be declared later; the first period that changes something begins the stream."""
    with wukongs.Engine() as engine:
        engine._core.wall_ms = lambda: wall[0]
        wall = [1_000_000]
        engine.stream(MADE, batch_ms=100, into="http://ex/g")
        view: Any = engine.register(f"{EX}REGISTER QUERY q AS {SEEN}", into=MADE, every_ms=100)
        for _ in range(3):
            wall[0] += 150
            engine.update(f"{EX}INSERT DATA {{ :wakes :the :thread{wall[0]} }}")
            engine.settle(30)
        assert engine.stats()["streams"][MADE]["closed_ms"] is None
        clock = engine.stream("http://ex/clock", batch_ms=10)
        clock.advance(0)
        engine.settle(30)  # the clock stands before the change comes
        engine.update(f"{EX}INSERT DATA {{ :a :p :b }}")
        clock.advance(100)
        engine.settle(30)
        assert "gets nothing" not in view.why()
        assert {shown(row) for row in engine.query("SELECT * { GRAPH <http://ex/g> { ?s ?p ?o } }").texts()} == {
            ("a", "seen", "b")
        }


def test_what_finds_no_room_is_pushed_later() -> None:
    periods = Periods(queued_bytes_max=1 << 10)
    periods.declare(into="http://ex/g")
    periods.register()
    windows: Any = periods.windows()
    triples = " ".join(f":a :p :n{number} ." for number in range(100))
    periods.update(f"INSERT DATA {{ {triples} }}")
    periods.advance(100)
    assert periods.graph() == set()
    with pytest.raises(wukongs.BudgetExceeded):
        pushed(windows)
    few = " ".join(f":a :p :n{number} ." for number in range(95))
    periods.update(f"DELETE DATA {{ {few} }}")
    periods.advance(200)
    content = {("a", "seen", f"n{number}") for number in range(95, 100)}
    assert periods.graph() == content
    assert pushed(windows) == {200: content}
    periods.engine.close()


def test_another_text_has_the_same_period(periods: Periods) -> None:
    periods.declare(timing=True)
    view: Any = periods.engine.register(f"{EX}REGISTER QUERY q COMPUTED EVERY 100ms AS {SEEN}", into=MADE)
    for head, error in (
        ("REGISTER QUERY q COMPUTED EVERY 50ms", "a period of 50 ms, and the stream that it makes batch_ms = 100"),
        ("REGISTER QUERY q", "it is a stream, which takes what a period has inserted"),
    ):
        with pytest.raises(wukongs.WukongsError, match=error):
            view.replace(f"{EX}{head} AS {SEEN}")
    with pytest.raises(wukongs.UnsupportedFeatureError, match="into= of SELECT"):
        view.replace(f"{EX}REGISTER QUERY q COMPUTED EVERY 100ms AS SELECT ?x WHERE {{ ?x :p ?y }}")
    view.replace(f"{EX}REGISTER QUERY q COMPUTED EVERY 100ms AS {LABELS}")


def test_a_view_for_some_graphs_pushes_to_none_other(periods: Periods) -> None:
    periods.declare(into="http://ex/g")
    for graphs, missing in ((["default", MADE], "http://ex/g"), (["default", "http://ex/g"], MADE)):
        with pytest.raises(wukongs.AccessError, match=f"may not push to <{missing}>"):
            periods.register(graphs=graphs)
    periods.register(graphs=["default", "http://ex/g", MADE])


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "options", "error"),
    [
        ({"timing": True}, {"every_ms": None}, "it is a stream, which takes what a period has inserted.*EVERY"),
        ({"timing": True}, {"every_ms": 50}, "query q fires every 50 ms.*batch_ms = 100, which has to be the same"),
        ({"timing": True}, {"output": "istream"}, "output = 'istream': into= a stream pushes what was inserted"),
        ({"timing": True, "lateness_ms": 5}, {}, "and the query q would make it.*without lateness_ms"),
        ({"retractions": "event_time", "into": "http://ex/g"}, {}, "without lateness_ms, late, retractions"),
    ],
)
def test_what_cannot_make_a_stream_is_refused_by_name(
    periods: Periods, stream: dict[str, Any], options: dict[str, Any], error: str
) -> None:
    periods.declare(**stream)
    with pytest.raises(wukongs.WukongsError, match=error):
        periods.engine.register(f"{EX}REGISTER QUERY q AS {SEEN}", into=MADE, **{"every_ms": 100, **options})
    assert periods.engine.queries() == []


def test_a_stream_has_one_maker(periods: Periods) -> None:
    engine = periods.engine
    periods.declare(timing=True)
    view = periods.register()
    with pytest.raises(wukongs.StreamError, match="stream http://ex/made is made by query q: close that one first"):
        periods.register(name="other")
    window = "FROM STREAM :clock [RANGE 100ms STEP 100ms]"
    with pytest.raises(wukongs.StreamError, match="is made by query q"):
        engine.register(f"{EX}REGISTER STREAM :made AS CONSTRUCT {{ ?x :q ?y }} {window} WHERE {{ ?x :p ?y }}")
    with pytest.raises(wukongs.StreamError, match="is made by view q: close that one first"):
        engine.drop_stream(MADE)
    assert [one.name for one in engine.queries()] == ["q"]
    view.close()
    engine.stream("http://ex/far", batch_ms=100, timing=True)
    engine.register(f"{EX}REGISTER STREAM :far AS CONSTRUCT {{ ?x :q ?y }} {window} WHERE {{ ?x :p ?y }}")
    with pytest.raises(wukongs.StreamError, match="is made by query http://ex/far"):
        periods.register(into="http://ex/far")


def test_a_stream_that_was_pushed_to_is_not_made(periods: Periods) -> None:
    periods.declare(timing=True).push([("<http://ex/s>", "<http://ex/p>", "<http://ex/o>", 50)])
    with pytest.raises(wukongs.StreamError, match="goes with a stream that nobody has pushed to"):
        periods.register()


# --- cycles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("into", "text", "is_cycle"),
    [
        (None, SEEN, True),
        ("http://ex/g", SEEN, False),
        ("http://ex/g", "CONSTRUCT { ?x :seen ?y } WHERE { GRAPH :g { ?x :p ?y } }", True),
        ("http://ex/g", "CONSTRUCT { ?x :seen ?y } WHERE { GRAPH ?g { ?x :p ?y } }", True),
        (None, "CONSTRUCT { ?x :seen ?y } WHERE { GRAPH ?g { ?x :p ?y } }", False),
        ("http://ex/g", "CONSTRUCT { ?x :seen ?y } FROM :g WHERE { ?x :p ?y }", True),
        ("http://ex/g", "CONSTRUCT { ?x :seen ?y } FROM NAMED :h WHERE { GRAPH ?g { ?x :p ?y } }", False),
        ("http://ex/g", "CONSTRUCT { ?x :seen ?y } WHERE { ?x :p ?y FILTER EXISTS { GRAPH :g { ?x :q ?y } } }", True),
        ("http://ex/g", "CONSTRUCT { ?x :seen ?y } WHERE { GRAPH :g { ?x :p+ ?y } }", True),
    ],
)
def test_a_view_does_not_read_what_its_stream_stores(
    periods: Periods, into: str | None, text: str, is_cycle: bool
) -> None:
    periods.declare(into=into)
    if not is_cycle:
        periods.register(text)
        return
    place = "the default graph" if into is None else "graph http://ex/g"
    with pytest.raises(wukongs.StreamError, match=f"a cycle: view q into stream {MADE}, stream {MADE} into {place}"):
        periods.register(text)
    assert periods.engine.queries() == []


def test_a_cycle_by_a_rule_is_refused_whatever_is_last(periods: Periods) -> None:
    rule = EX + "RULE back: CONSTRUCT { ?x :p ?y } WHERE { GRAPH :g { ?x :seen ?y } }"
    error = f"view q into stream {MADE}, stream {MADE} into graph http://ex/g, rule back into the default graph"
    periods.declare(into="http://ex/g")
    view = periods.register()
    with pytest.raises(wukongs.StreamError, match=error):
        periods.engine.add_rules(rule)
    assert periods.engine.rules() == []
    with pytest.raises(wukongs.StreamError, match="rule back into the default graph"):
        periods.engine.register(
            f"{EX}REGISTER QUERY back AS CONSTRUCT {{ ?x :p ?y }} WHERE {{ GRAPH :g {{ ?x :seen ?y }} }}",
            into="default",
        )
    view.close()
    periods.engine.drop_stream(MADE)
    periods.engine.add_rules(rule)
    periods.declare(into="http://ex/g")
    with pytest.raises(wukongs.StreamError, match=error):
        periods.register()


def test_a_cycle_by_a_query_with_windows_is_refused_whatever_is_last(periods: Periods) -> None:
    engine = periods.engine
    engine.stream("http://ex/far", batch_ms=100)
    periods.declare(timing=True)
    window = f"FROM STREAM <{MADE}> [RANGE 100ms STEP 100ms]"
    far = f"{EX}REGISTER STREAM :far AS CONSTRUCT {{ ?x :p ?y }} {window} WHERE {{ ?x :seen ?y }}"
    view = periods.register()
    error = f"view q into stream {MADE}, query http://ex/far into stream http://ex/far, stream http://ex/far into the d"
    with pytest.raises(wukongs.StreamError, match=error):
        engine.register(far)
    view.close()
    engine.drop_stream(MADE)
    periods.declare(timing=True)
    query = engine.register(far)
    with pytest.raises(wukongs.StreamError, match=error):
        periods.register()
    query.close()


def test_another_text_of_a_query_with_windows_closes_no_cycle(periods: Periods) -> None:
    engine = periods.engine
    engine.stream("http://ex/far", batch_ms=100)
    periods.declare(timing=True)
    head = f"{EX}REGISTER STREAM :far AS CONSTRUCT {{ ?x :p ?y }} FROM STREAM"
    query = engine.register(f"{head} :clock [RANGE 100ms STEP 100ms] WHERE {{ ?x :seen ?y }}")
    periods.register()
    with pytest.raises(wukongs.StreamError, match="query http://ex/far into stream http://ex/far"):
        query.replace(f"{head} <{MADE}> [RANGE 100ms STEP 100ms] WHERE {{ ?x :seen ?y }}")
    assert ":clock" in query.source.text


def test_a_cycle_of_two_views_and_by_another_text_is_refused(periods: Periods) -> None:
    periods.engine.stream("http://ex/other", batch_ms=100, into="http://ex/h")
    periods.declare(into="http://ex/g")
    view = periods.register("CONSTRUCT { ?x :seen ?y } WHERE { GRAPH :k { ?x :p ?y } }")
    other = periods.register("CONSTRUCT { ?x :p ?y } WHERE { GRAPH :g { ?x :seen ?y } }", "other", "http://ex/other")
    with pytest.raises(wukongs.StreamError, match="view q would read what is made of its own triples, a cycle"):
        view.replace(EX + "REGISTER QUERY q AS CONSTRUCT { ?x :seen ?y } WHERE { GRAPH :h { ?x :p ?y } }")
    assert "GRAPH :k" in view.source.text
    other.close()
    view.replace(EX + "REGISTER QUERY q AS CONSTRUCT { ?x :seen ?y } WHERE { GRAPH :h { ?x :p ?y } }")
