"""Live views on clusters that make streams: each triple is pushed once, wherever the view stands, and none is lost."""

from __future__ import annotations

import random
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.clusters import PATIENT, cluster
from tests.fuzz import first_and_slow
from tests.unit.cluster.wires import EX, WAIT_S, until
from wukongs.cluster.claims import Claims
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.node_disk import NodeDisk
from wukongs.cluster.pushing import Writers
from wukongs.errors import DataError, NodeUnavailable
from wukongs.live.views import logged_givings
from wukongs.live.views.following_view import FollowingView
from wukongs.live.views.given import Given
from wukongs.live.views.live_view import LiveView
from wukongs.live.views.logged_givings import Giving, LoggedGivings
from wukongs.live.views.snapshots import Snapshot
from wukongs.protocol.events import Submitted
from wukongs.protocol.records import MoveQuery

PREFIX = f"PREFIX : <{EX}> "
MADE = f"{EX}made"
SEEN = "CONSTRUCT { ?x :seen ?y } WHERE { ?x :p ?y }"
ENDS = "CONSTRUCT { ?y :end :yes } WHERE { ?x :p ?y MINUS { ?y :p ?z } }"
WINDOWS = f"REGISTER QUERY w AS SELECT ?s ?p ?o FROM STREAM <{MADE}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
Facts = set[tuple[str | None, ...]]


class Periods:
    """A cluster with a stream that gives the event time, and a view whose period is 100 ms, at some node."""

    def __init__(self, nodes: list[ClusterNode], text: str = SEEN, *, snapshot: bool = True, **options: Any) -> None:
        self.nodes, self.text, self.now_ms, self.sum = nodes, text, 0, Facts()
        self.engine = nodes[0].engine
        self.clock = self.engine.stream(f"{EX}clock", batch_ms=10)
        self.clock.advance(0)
        self.engine.settle(WAIT_S)
        self.engine.stream(MADE, batch_ms=100, **options)
        register = nodes[-1].engine.register
        register(f"{PREFIX}REGISTER QUERY q AS {text}", into=MADE, every_ms=100, snapshot=snapshot)
        self.windows: Any = self.engine.register(WINDOWS)

    @property
    def home(self) -> int:
        (home,) = self.nodes[0].host.node.control.queries["q"].nodes
        return home

    @property
    def view(self) -> Any:
        return next(one for one in self.engine.queries() if one.name == "q")

    def move(self, to: int) -> None:
        self.nodes[0].host.submit(Submitted(MoveQuery("q", (to,), (self.home,))), WAIT_S)

    def update(self, text: str) -> None:
        self.engine.update(PREFIX + text)

    def end(self) -> None:
        """End a period."""
        self.now_ms += 100
        self.clock.advance(self.now_ms)
        self.engine.settle(WAIT_S)

    def content(self) -> Facts:
        return set(self.engine.query(PREFIX + self.text).texts())

    def graph(self) -> Facts:
        return set(self.engine.query(f"SELECT * {{ GRAPH <{EX}g> {{ ?s ?p ?o }} }}").texts())

    def pushed(self, wait_s: float = 0.0) -> dict[int, Facts]:
        """Return the triples of each window that has come, by its end."""
        found = dict[int, Facts]()
        for window in self.windows.results(timeout_s=wait_s):
            rows = window.texts()
            assert len(set(rows)) == len(rows)
            assert window.end_ms not in found
            found[window.end_ms] = set(rows)
        return found

    def check(self, before: Facts, *, is_signed: bool) -> None:
        """Check what the last period has pushed. before: the content at the end of the one before."""
        deadline = 100
        content, found = self.content(), dict[int, Facts]()
        while self.now_ms not in found and deadline:
            found |= self.pushed(0.1)
            deadline -= 1
        assert found[self.now_ms] == content - before, self.now_ms
        assert not any(rows for end_ms, rows in found.items() if end_ms < self.now_ms)
        if is_signed:
            until(lambda: self.graph() == content)


def random_update(chance: random.Random) -> str:
    parts = []
    for _ in range(chance.choice((1, 1, 4))):
        word = chance.choice(("INSERT", "INSERT", "DELETE"))
        parts.append(f"{word} DATA {{ :{chance.choice('abcd')} :p :{chance.choice('abcd')} }}")
    return " ; ".join(parts)


@pytest.mark.parametrize("seed", first_and_slow(range(12)))
@pytest.mark.parametrize("is_signed", [False, True])
def test_pushes_are_the_differences_of_the_contents_wherever_the_view_stands(
    seed: int, is_signed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged_givings, "TOGETHER_BYTES_MIN", 2000)
    chance = random.Random(f"{seed} {is_signed}")
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        options: dict[str, Any] = {"into": f"{EX}g"} if is_signed else {"timing": True}
        periods = Periods(nodes, chance.choice((SEEN, ENDS)), **options)
        before = Facts()
        for _ in range(12 if seed == 0 else 30):
            event = chance.choice(("move", "move", "pause", "replace", "none", "none"))
            if event == "move":
                periods.move(chance.choice([one for one in range(3) if one != periods.home]))
            if chance.random() < 0.8:
                periods.update(random_update(chance))
            if event == "pause":
                periods.view.pause()
                periods.update(random_update(chance))
                periods.view.resume()
            if event == "replace":
                periods.text = ENDS if periods.text == SEEN else SEEN
                periods.view.replace(f"{PREFIX}REGISTER QUERY q AS {periods.text}")
            periods.end()
            periods.check(before, is_signed=is_signed)
            before = periods.content()


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("reaches", [False, True])
def test_what_the_log_has_and_the_stream_may_not_is_given_again(
    is_signed: bool, reaches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node of the view says what a period gives, and does not hear whether the stream has it, before the view goes
    on at another node; there the period counts as it was, though the stored graph has changed since."""
    with cluster(2, 2, silence_pulses_max=PATIENT) as nodes:
        periods = Periods(nodes, **({"into": f"{EX}g"} if is_signed else {"timing": True}))
        periods.update("INSERT DATA { :a :p :b . :b :p :c }")
        periods.end()
        first = periods.content()
        periods.check(Facts(), is_signed=is_signed)
        decide, lost = Writers.decide, list[int]()

        def lose(writers: Writers, stream: str, at_ms: int, *args: Any) -> None:
            if writers is not nodes[1].backend._sink._writers:
                return decide(writers, stream, at_ms, *args)
            if reaches and not lost:
                decide(writers, stream, at_ms, *args)
            lost.append(at_ms)
            raise NodeUnavailable("gone")

        monkeypatch.setattr(Writers, "decide", lose)
        periods.update("INSERT DATA { :c :p :d } ; DELETE DATA { :a :p :b }")
        content = periods.content()
        periods.clock.advance(200)
        until(lambda: len(lost) > 1)
        periods.update("INSERT DATA { :d :p :e } ; DELETE DATA { :b :p :c }")
        periods.move(0)
        until(lambda: nodes[0].store.query("q") is not None)
        found = dict[int, Facts]()
        until(lambda: found.update(periods.pushed()) or 200 in found)
        assert found[200] == content - first
        periods.now_ms = 200
        periods.end()
        periods.check(content, is_signed=is_signed)


@pytest.mark.parametrize("update", ["INSERT DATA { :a :p :b }", "INSERT DATA { :a :q :b }"])
def test_a_node_that_has_the_view_no_more_pushes_nothing(update: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It notices that late: what it says of the period then is void, also that it has changed nothing."""
    with cluster(2, 2, silence_pulses_max=PATIENT) as nodes:
        periods, decided = Periods(nodes, timing=True), list[int]()
        decide, log = Writers.decide, FollowingView._log_giving

        def logged(view: FollowingView, *args: Any) -> Any:
            if not decided:
                decided.append(-1)
                periods.move(0)
                until(lambda: nodes[1].host.node.control.queries["q"].nodes.keys() == {0})
                view.has_moved = False
            return log(view, *args)

        def counted(writers: Writers, stream: str, at_ms: int, *args: Any) -> None:
            if writers is nodes[1].backend._sink._writers:
                decided.append(at_ms)
            decide(writers, stream, at_ms, *args)

        monkeypatch.setattr(FollowingView, "_log_giving", logged)
        monkeypatch.setattr(Writers, "decide", counted)
        periods.update(update)
        periods.end()
        periods.check(Facts(), is_signed=False)
        assert decided == [-1]


def test_the_sum_of_the_changes_stays_in_the_log_behind_what_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_givings, "TOGETHER_BYTES_MIN", 0)
    with cluster(2, 2, silence_pulses_max=PATIENT) as nodes:
        nodes[0].engine.update(f"{PREFIX}INSERT DATA {{ :z :p :z }}")
        periods = Periods(nodes, snapshot=False, timing=True)
        periods.engine.settle(WAIT_S)
        before = periods.content()
        for number in range(8):
            periods.update(f"INSERT DATA {{ :n{number} :p :b }}")
            periods.end()
            periods.check(before, is_signed=False)
            before = periods.content()
        periods.move(0)
        periods.update("INSERT DATA { :c :p :d }")
        periods.end()
        periods.check(before, is_signed=False)


def test_a_view_that_comes_back_is_not_held_by_what_it_would_have_given_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had computed what a period gives when it moved to the other node, which has given that meanwhile."""
    with cluster(2, 2, silence_pulses_max=PATIENT) as nodes:
        periods, give = Periods(nodes, timing=True), FollowingView._give_by_log
        has_moved = list[bool]()

        def moved(view: FollowingView, *args: Any) -> None:
            if not has_moved:
                has_moved.append(True)
                periods.move(0)
                until(lambda: view.has_moved)
            give(view, *args)

        monkeypatch.setattr(FollowingView, "_give_by_log", moved)
        periods.update("INSERT DATA { :a :p :b }")
        periods.end()
        periods.check(Facts(), is_signed=False)
        before = periods.content()
        periods.move(1)
        periods.update("INSERT DATA { :c :p :d }")
        periods.end()
        periods.check(before, is_signed=False)


def test_what_was_there_before_is_in_the_log_though_its_texts_were_not_to_be_had_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written_rows, lost = Given.written_rows, list[bool]()

    def lose(given: Given) -> str:
        if not lost:
            lost.append(True)
            raise NodeUnavailable("gone")
        return written_rows(given)

    monkeypatch.setattr(Given, "written_rows", lose)
    with cluster(2, 2, silence_pulses_max=PATIENT) as nodes:
        nodes[0].engine.update(f"{PREFIX}INSERT DATA {{ :z :p :z }}")
        periods = Periods(nodes, snapshot=False, timing=True)
        periods.engine.settle(WAIT_S)
        assert lost
        before = periods.content()
        for name in "ab":
            periods.update(f"INSERT DATA {{ :{name} :p :b }}")
            periods.end()
            periods.check(before, is_signed=False)
            before = periods.content()
            periods.move(0 if name == "a" else 1)


@pytest.mark.slow
@pytest.mark.parametrize("snapshot", [True, False])
def test_nothing_is_lost_when_all_nodes_start_again(tmp_path: Path, snapshot: bool) -> None:
    before = Facts()
    for life in range(3):
        with cluster(2, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
            engine = nodes[0].engine
            if not life:
                engine.update(f"{PREFIX}INSERT DATA {{ :z :p :z }}")
                clock = engine.stream(f"{EX}clock", batch_ms=10)
                clock.advance(0)
                engine.settle(WAIT_S)
                engine.stream(MADE, batch_ms=100, into=f"{EX}g")
                text = f"{PREFIX}REGISTER QUERY q AS {SEEN}"
                nodes[1].engine.register(text, into=MADE, every_ms=100, snapshot=snapshot)
                engine.settle(WAIT_S)
                before = set() if snapshot else {(f"<{EX}z>", f"<{EX}seen>", f"<{EX}z>")}
            clock = nodes[0].backend.declared(f"{EX}clock")
            for at in range(3):
                text = f"INSERT DATA {{ :n{life}{at} :p :b }} ; DELETE DATA {{ :n{life - 1}{at} :p :b }}"
                engine.update(PREFIX + text)
                if at < 2:
                    clock.advance(1000 * life + 100 * at + 100)
                    engine.settle(WAIT_S)
    with cluster(2, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        engine = nodes[0].engine
        nodes[0].backend.declared(f"{EX}clock").advance(4000)
        engine.settle(WAIT_S)
        content = set(engine.query(PREFIX + SEEN).texts())
        graph = f"SELECT * {{ GRAPH <{EX}g> {{ ?s ?p ?o }} }}"
        until(lambda: set(engine.query(graph).texts()) == content - before)
        tuples = engine.stats()["streams"][MADE]["tuples"]
        assert tuples == 9 + snapshot, "each insert is pushed once, and :z with the first period if at all"


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_what_the_log_has_beyond_what_a_disk_knows_to_be_committed_is_not_given_twice(
    has_checkpoint: bool, is_signed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that loses its power has its records of the log, but nothing may say of the last ones that a majority has
    them. It knows that once the others answer again."""
    with cluster(2, 2, silence_pulses_max=PATIENT, folder=tmp_path / "before") as nodes:
        periods = Periods(nodes, **({"into": f"{EX}g"} if is_signed else {"timing": True}))
        periods.update("INSERT DATA { :a :p :b }")
        periods.end()
        periods.check(Facts(), is_signed=is_signed)
        if has_checkpoint:
            periods.engine.checkpoint()
        with monkeypatch.context() as patch:
            patch.setattr(NodeDisk, "commit", lambda *_: None)
            before = periods.content()
            for name in "cd":
                periods.update(f"INSERT DATA {{ :{name} :p :b }}")
                periods.end()
                periods.check(before, is_signed=is_signed)
                before = periods.content()
            shutil.copytree(tmp_path / "before", tmp_path / "after")
    with cluster(2, 2, silence_pulses_max=PATIENT, folder=tmp_path / "after") as nodes:
        engine = nodes[0].engine
        engine.update(f"{PREFIX}INSERT DATA {{ :e :p :b }}")
        nodes[0].backend.declared(f"{EX}clock").advance(1000)
        engine.settle(WAIT_S)
        until(lambda: engine.stats()["streams"][MADE]["tuples"] >= 4)
        assert engine.stats()["streams"][MADE]["tuples"] == 4


def test_a_view_that_is_closed_ends_its_stream() -> None:
    with cluster(2, 1, silence_pulses_max=PATIENT) as nodes:
        periods = Periods(nodes, timing=True)
        periods.update("INSERT DATA { :a :p :b }")
        periods.end()
        periods.view.close()
        periods.engine.settle(WAIT_S)
        until(lambda: periods.engine._core.stream(MADE).is_ended)
        assert periods.pushed() == {100: periods.content()}
        with pytest.raises(wukongs.StreamError, match="has ended with the query that made it"):
            periods.engine.register(f"{PREFIX}REGISTER QUERY q AS {SEEN}", into=MADE, every_ms=100)


def test_another_text_has_come_to_the_view_once_replace_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node takes some time; what is done behind the call follows the other text."""
    follow = LiveView._follow

    def late(view: LiveView, *args: Any) -> None:
        time.sleep(0.3)
        follow(view, *args)

    monkeypatch.setattr(LiveView, "_follow", late)
    with cluster(2, 1, silence_pulses_max=PATIENT) as nodes:
        periods = Periods(nodes, timing=True)
        assert periods.home == 1
        periods.update("INSERT DATA { :a :p :b }")
        periods.text = ENDS
        periods.view.replace(f"{PREFIX}REGISTER QUERY q AS {ENDS}")
        periods.end()
        periods.check(Facts(), is_signed=False)


def test_a_period_is_reported_though_another_text_comes_before_its_move_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Event time may go no further for long."""
    is_begun, is_replaced, advance = threading.Event(), threading.Event(), FollowingView.advance

    def held(view: FollowingView, to: Snapshot, change: Any, reader: Any, time_ms: int | None) -> None:
        if time_ms == 100:
            is_begun.set()
            assert is_replaced.wait(WAIT_S)
        advance(view, to, change, reader, time_ms)

    monkeypatch.setattr(FollowingView, "advance", held)
    with cluster(2, 1, silence_pulses_max=PATIENT) as nodes:
        periods = Periods(nodes, timing=True)
        periods.update("INSERT DATA { :a :p :b }")
        periods.clock.advance(100)
        assert is_begun.wait(WAIT_S)
        periods.text, periods.now_ms = ENDS, 100
        periods.view.replace(f"{PREFIX}REGISTER QUERY q AS {ENDS}")
        is_replaced.set()
        periods.check(Facts(), is_signed=False)


def test_of_two_views_that_are_registered_at_once_the_first_makes_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster(2, 1, silence_pulses_max=PATIENT) as nodes:
        first, second = (node.engine for node in nodes)
        first.stream(MADE, batch_ms=100, timing=True)
        settle_texts, is_first = Claims.settle_texts, [True]

        def meanwhile(claims: Claims, *args: Any) -> Any:
            if is_first:
                is_first.clear()
                second.register(f"{PREFIX}REGISTER QUERY r AS {ENDS}", into=MADE, every_ms=100)
            return settle_texts(claims, *args)

        monkeypatch.setattr(Claims, "settle_texts", meanwhile)
        with pytest.raises(wukongs.StreamError, match=f"stream {MADE} is made by query r"):
            first.register(f"{PREFIX}REGISTER QUERY q AS {SEEN}", into=MADE, every_ms=100)
        until(lambda: all([one.name for one in engine.queries()] == ["r"] for engine in (first, second)))


def test_a_view_whose_name_was_taken_meanwhile_leaves_the_one_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster(2, 1, silence_pulses_max=PATIENT) as nodes:
        engine = nodes[0].engine
        engine.stream(MADE, batch_ms=100, timing=True)
        settle_texts, is_first = Claims.settle_texts, [True]

        def meanwhile(claims: Claims, *args: Any) -> Any:
            if is_first:
                is_first.clear()
                engine.register(f"{PREFIX}REGISTER QUERY q AS {ENDS}")
            return settle_texts(claims, *args)

        monkeypatch.setattr(Claims, "settle_texts", meanwhile)
        with pytest.raises(wukongs.StreamError, match="a query named q is registered already"):
            engine.register(f"{PREFIX}REGISTER QUERY q AS {SEEN}", into=MADE, every_ms=100)
        engine.update(f"{PREFIX}INSERT DATA {{ :a :p :b }}")
        engine.settle(WAIT_S)
        assert [one.name for one in engine.queries()] == ["q"]


# --- the records ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_what_the_log_has_is_the_sum_of_all_changes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of rows are lists of names here. A view may be taken over behind each record."""
    monkeypatch.setattr(logged_givings, "TOGETHER_BYTES_MIN", 20)
    chance, log, given = random.Random(seed), dict[str, str](), list[str]()
    logged = LoggedGivings({})
    if seed % 2:
        given.append("base")
        log.update([logged.begin("base")])
    for number in range(1, 60):
        rows = None if chance.random() < 0.3 else f"r{number}"
        before = "+".join(given)
        records = logged.next(100 * number, rows, lambda whole=before: whole)  # type: ignore[misc]
        for name, text in records:
            log[name] = text
            found = LoggedGivings(log)
            is_last = (name, text) == records[-1]
            want = [*given, rows] if is_last and rows is not None else given
            assert "+".join(found.rows) == "+".join(want)
            if is_last:
                assert found.last == Giving(number, 100 * number, rows)
        given += [] if rows is None else [rows]
        if chance.random() < 0.2:
            logged = LoggedGivings({**log, "group g": "[]"})
    assert len(log) < 30


@pytest.mark.parametrize("text", ["", "[]", "[1, 2]", '["a", 1, null]', "{}", "[1, 2, 3]"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(DataError, match="expected what a live view gives its stream"):
        LoggedGivings({"into none": text})
