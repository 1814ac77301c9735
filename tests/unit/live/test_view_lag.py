"""Live views that are behind by view_lag_max: they begin again, and hold back no merge."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import wukongs
from wukongs.incremental.view import View

EX = "PREFIX : <http://ex/> "
GROUPS = "SELECT ?y (COUNT(*) AS ?n) WHERE { ?x :p ?y } GROUP BY ?y"
Register = Callable[..., wukongs.Engine]


@pytest.fixture
def opened() -> Iterator[Register]:
    engines = []

    def make(**settings: int) -> wukongs.Engine:
        engine = wukongs.Engine(settings=settings)
        engines.append(engine)
        engine.update(EX + "INSERT DATA { :a :p :b . :b :p :c }")
        return engine

    yield make
    for engine in engines:
        engine.close()


class Slow:
    """arrived: a view is in the middle of a change; moved: the views that were moved by changes; killed: those whose
    move was ended before."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.moved, self.killed = list[str](), list[str]()

    def wait(self) -> None:
        assert self.arrived.wait(30)


@contextmanager
def slow(monkeypatch: pytest.MonkeyPatch, engine: wukongs.Engine, name: str = "v") -> Iterator[Slow]:
    """Have a view wait in the middle of its next changes, until the end of the block; then settle."""
    found, let_go, advance = Slow(), threading.Event(), View.advance

    def wait(self: Any, *given: Any) -> Any:
        found.moved.append(self.scope)
        if self.scope == name:
            found.arrived.set()
            assert let_go.wait(30)
        try:
            self.evaluation.limits.check()
        except wukongs.QueryKilled:
            found.killed.append(self.scope)
            raise
        return advance(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(View, "advance", wait)
        try:
            yield found
        finally:
            let_go.set()
        engine.settle(30)


def register(engine: wukongs.Engine, text: str, name: str = "v", **options: Any) -> Any:
    return engine.register(f"{EX}REGISTER QUERY {name} AS {text}", **options)


def insert(engine: wukongs.Engine, first: int, count: int = 10) -> int:
    triples = " ".join(f":n{number} :p :o{number % 3} ." for number in range(first, first + count))
    return engine.update(f"{EX}INSERT DATA {{ {triples} }}")


def sns(engine: wukongs.Engine) -> list[int]:
    return [handle["sn"] for handle in engine.stats()["handles"]]


def merged_to_one(engine: wukongs.Engine) -> bool:
    with engine._core.lock:
        trace = engine._core.arrangement.trace
        trace.merge_all()
        return trace.batch_count == 1


class Sum:
    """What a reader keeps: the sum of the reports since the last reset."""

    def __init__(self, view: Any) -> None:
        self.view = view
        self.rows = Counter[tuple[str | None, ...]]()
        self.resets = 0

    def read(self) -> None:
        for report in self.view.results(timeout_s=0):
            if report.is_reset:
                self.rows.clear()
                self.resets += 1
            for row, weight in zip(report.texts(), report.weights.tolist(), strict=True):
                self.rows[row] += weight
        assert +self.rows == Counter(self.view.content().texts())
        assert min(self.rows.values(), default=0) >= 0


@pytest.mark.parametrize("text", [GROUPS, "SELECT ?x ?z WHERE { ?x :p ?y . ?y :p ?z }"])
def test_a_view_that_is_too_many_rows_behind_begins_again_and_holds_no_merge_back(
    opened: Register, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    engine = opened(view_lag_max_rows=25)
    view = register(engine, text)
    engine.settle(30)
    kept = Sum(view)
    kept.read()
    stood = view.sn
    with slow(monkeypatch, engine) as moving:
        first = insert(engine, 0)
        moving.wait()
        insert(engine, 10)
        assert stood in sns(engine), "20 rows are not too many"
        assert view.stats()["resets_for_lag"] == 0
        newest = insert(engine, 20)
        assert set(sns(engine)) == {newest}
        assert merged_to_one(engine)
        for sn in (stood, first):
            with pytest.raises(wukongs.CompactedError):
                view.content(at=sn)
        [report] = view.results(timeout_s=0)
        assert (report.is_reset, report.snapshot) == (True, newest)
        assert Counter(report.texts()) == Counter(view.content().texts())
    assert moving.killed == ["v"]
    assert (view.stats()["resets_for_lag"], view.stats()["errors"]) == (1, 0)
    assert "30 rows behind, more than view_lag_max_rows = 25" in view.why()
    assert f"began again at SN {newest}" in view.why()
    kept = Sum(view)
    kept.rows.update(report.texts())
    insert(engine, 30)
    engine.settle(30)
    engine.update(EX + "DELETE WHERE { ?x :p :o1 }")
    engine.settle(30)
    kept.read()
    assert kept.resets == 0


def test_the_reports_that_were_not_read_are_replaced_by_the_reset(
    opened: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(view_lag_max_rows=15)
    view = register(engine, GROUPS, snapshot=False)
    insert(engine, 0)
    engine.settle(30)
    assert view.stats()["unread_reports"] == 1
    with slow(monkeypatch, engine) as moving:
        insert(engine, 10)
        moving.wait()
        insert(engine, 20)
    engine.settle(30)
    assert (view.stats()["unread_reports"], view.stats()["unread_bytes"]) == (0, 0)
    kept = Sum(view)
    kept.read()
    assert kept.resets == 1


def test_a_view_that_waits_for_another_one_is_bounded_too(opened: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened(view_lag_max_rows=15)
    slow_one = register(engine, GROUPS)
    other = register(engine, GROUPS, "other")
    engine.settle(30)
    sums = [Sum(slow_one), Sum(other)]
    for one in sums:
        one.read()
    with slow(monkeypatch, engine) as moving:
        insert(engine, 0)
        moving.wait()
        newest = insert(engine, 10)
        assert set(sns(engine)) == {newest}
        assert merged_to_one(engine)
    assert moving.moved == moving.killed == ["v"], "the move of the other one is not begun"
    for one in sums:
        one.read()
        assert (one.resets, one.view.stats()["resets_for_lag"], one.view.sn) == (2, 1, newest)
    insert(engine, 20, 3)
    engine.settle(30)
    for one in sums:
        one.read()
        assert one.resets == 2


def test_a_view_may_be_behind_for_so_long(opened: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, clock = opened(view_lag_max_s=60), [1000.0]
    engine._core.now_s = lambda: clock[0]
    view = register(engine, GROUPS)
    engine.settle(30)
    clock[0] += 1000  # it is at the newest snapshot, however long
    with slow(monkeypatch, engine) as moving:
        insert(engine, 0)
        moving.wait()
        clock[0] += 60
        insert(engine, 10)
        assert view.stats()["resets_for_lag"] == 0
        clock[0] += 1
        newest = insert(engine, 20)
        assert set(sns(engine)) == {newest}
    engine.settle(30)
    assert "61 s behind, more than view_lag_max_s = 60" in view.why()
    Sum(view).read()


def test_a_kept_content_is_that_of_the_newest_snapshot(opened: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened(view_lag_max_rows=15)
    register(engine, GROUPS)
    other = register(engine, GROUPS, "other", keep=True)
    engine.settle(30)
    with slow(monkeypatch, engine) as moving:
        insert(engine, 0)
        moving.wait()
        newest = insert(engine, 10)
        content = other.content()
        assert content.snapshot == newest
        assert Counter(content.texts()) == Counter(engine.query(EX + GROUPS).texts())


def test_bounds_of_zero_are_none(opened: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, clock = opened(view_lag_max_s=0, view_lag_max_rows=0), [1000.0]
    engine._core.now_s = lambda: clock[0]
    view = register(engine, GROUPS)
    engine.settle(30)
    stood = view.sn
    with slow(monkeypatch, engine) as moving:
        insert(engine, 0)
        moving.wait()
        clock[0] += 1e9
        insert(engine, 10, 1000)
        assert stood in sns(engine)
    engine.settle(30)
    assert view.stats()["resets_for_lag"] == 0


def test_a_period_is_no_lag_until_it_has_ended(opened: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, clock = opened(view_lag_max_s=60), [1000.0]
    engine._core.now_s = lambda: clock[0]
    stream = engine.stream("http://ex/s", batch_ms=10)
    stream.advance(0)
    engine.settle(30)
    view = register(engine, GROUPS, every_ms=100)
    engine.settle(30)
    kept = Sum(view)
    kept.read()
    insert(engine, 0)
    clock[0] += 1000
    insert(engine, 10)
    with slow(monkeypatch, engine) as moving:
        stream.advance(100)
        moving.wait()
        insert(engine, 20)
        assert view.stats()["resets_for_lag"] == 0, "the period has just ended"
        clock[0] += 61
        newest = insert(engine, 30)
        assert set(sns(engine)) - {newest} == set(sns(engine)) & {engine._core._held.sn}  # type: ignore[union-attr]
        assert view.stats()["resets_for_lag"] == 1
    stream.advance(200)
    engine.settle(30)
    kept.read()
    assert kept.resets == 2
    insert(engine, 40)
    stream.advance(300)
    engine.settle(30)
    kept.read()
    assert (kept.resets, view.stats()["resets_for_lag"]) == (2, 1)


def test_a_period_with_too_many_rows_is_divided(opened: Register) -> None:
    engine = opened(view_lag_max_rows=15)
    stream = engine.stream("http://ex/s", batch_ms=10)
    stream.advance(0)
    engine.settle(30)
    view = register(engine, GROUPS, every_ms=100)
    engine.settle(30)
    kept = Sum(view)
    kept.read()
    insert(engine, 0)
    newest = insert(engine, 10)
    assert view.sn == newest
    engine.settle(30)
    kept.read()
    insert(engine, 20)
    stream.advance(100)
    engine.settle(30)
    kept.read()
    assert (kept.resets, view.stats()["resets_for_lag"]) == (2, 1)


def test_a_view_is_paused_or_closed_while_its_move_is_too_late(
    opened: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(view_lag_max_rows=15)
    views = [register(engine, GROUPS, name) for name in ("v", "paused", "closed")]
    engine.settle(30)
    with slow(monkeypatch, engine) as moving:
        insert(engine, 0)
        moving.wait()
        insert(engine, 10)
        views[1].pause()
        views[2].close()
    engine.settle(30)
    assert sns(engine) == [views[0].sn]
    views[1].resume()
    engine.settle(30)
    for view in views[:2]:
        Sum(view).read()
    views[0].close()
    views[1].close()
    assert sns(engine) == []


@pytest.mark.parametrize("change", ["pause", "replace"])
def test_a_move_that_was_prepared_before_the_view_began_again_is_void(
    opened: Register, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """It would take the view back behind a reset that a reader has, or beyond it without a report."""
    engine = opened()
    register(engine, GROUPS)
    other = register(engine, GROUPS, "other")
    engine.settle(30)
    kept = Sum(other)
    kept.read()
    with slow(monkeypatch, engine) as moving:
        insert(engine, 0)
        moving.wait()
        insert(engine, 10)
        if change == "pause":
            other.pause()
            other.resume()
        else:
            other.replace(f"{EX}REGISTER QUERY other AS SELECT ?x ?y WHERE {{ ?x :p ?y }}")
        kept.read()
        assert kept.resets == 2
        insert(engine, 20)
    kept.read()
    insert(engine, 30)
    engine.settle(30)
    kept.read()
    assert kept.resets == 2
    assert set(sns(engine)) == {other.sn}


@pytest.mark.parametrize(("change", "is_moving"), [("lag", True), ("lag", False), ("pause", False), ("replace", False)])
def test_what_was_bound_meanwhile_is_not_lost_with_a_void_move(
    opened: Register, monkeypatch: pytest.MonkeyPatch, change: str, *, is_moving: bool
) -> None:
    """is_moving: the view is in the middle of its move, for which pause and replace wait; else the move is prepared."""
    engine = opened(view_lag_max_rows=15 if change == "lag" else 0)
    texts = [f"SELECT ?y {where}" for where in ("{ ?x :p ?y }", "{ ?x :p ?y . FILTER(?y != :o0) }")]
    if not is_moving:
        register(engine, GROUPS)
    names = [{"x": f"<http://ex/n{number}>"} for number in range(30)]
    view = register(engine, texts[0], "v" if is_moving else "other", bindings=names[:2])
    engine.settle(30)
    kept = Sum(view)
    kept.read()
    with slow(monkeypatch, engine) as moving:
        insert(engine, 0)
        view.bind(names[2:5])
        moving.wait()
        view.unbind([0, 2])
        if change == "pause":
            view.pause()
            view.resume()
        elif change == "replace":
            view.replace(f"{EX}REGISTER QUERY {view.name} AS {texts[1]}")
        view.bind(names[5:7])
        insert(engine, 10)
        kept.read()
        assert kept.resets == 2
    kept.read()
    text, bound = EX + texts[change == "replace"], {1: 1, 3: 3, 4: 4, 5: 5, 6: 6}
    view.bind(names[20:21])
    insert(engine, 20, 3)
    engine.settle(30)
    kept.read()
    bound[7] = 20
    expected = Counter(
        (f'"{number}"^^<http://www.w3.org/2001/XMLSchema#integer>', *row)
        for number, name in bound.items()
        for row in engine.query(text, bindings=names[name]).texts()
    )
    assert +kept.rows == expected != Counter()
    assert (kept.resets, view.stats()["resets_for_lag"]) == (2, change == "lag")
