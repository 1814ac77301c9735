"""A home of a query is gone: another node fires the same windows with the same rows, and none is missed. The oracle is
an embedded engine that was told the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

import wukongs
from tests.clusters import READY_S, cluster, start_again
from tests.fuzz import first_and_slow, slow
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.times import first_tick_of
from wukongs.csparql.warnings import STORED
from wukongs.engine import Engine
from wukongs.live.window_log import Cursor
from wukongs.protocol.messages import Delivered
from wukongs.protocol.records import Role
from wukongs.query.output.results import WindowResult
from wukongs.settings import Settings

EX = "http://ex/"
Rows = list[tuple[str, ...]]


def text(what: str = "QUERY", name: str = "q", windows: str = "RANGE 400ms STEP 200ms", report: str = "") -> str:
    return f"REGISTER {what} {name} {report} AS SELECT ?s ?o FROM STREAM <{EX}s> [{windows}] WHERE {{ ?s <{EX}p> ?o }}"


class Told:
    """A cluster of three, and an engine that is told the same."""

    def __init__(self, nodes: list[ClusterNode], engine: Engine) -> None:
        self.nodes, self.engine = nodes, engine
        self.at_ms = 10_000
        self.far = [node.engine.stream(EX + "s", batch_ms=100) if node.me.node == 0 else None for node in nodes]
        self.near = engine.stream(EX + "s", batch_ms=100)
        self.home = 2

    def both(self, change: Callable[[Engine], object]) -> None:
        change(self.engine)
        change(self.nodes[0].engine)

    def push(self, count: int) -> None:
        """Push tuples, one each 50 ms, and time."""
        rows = [(f"<{EX}a{at % 7}>", f"<{EX}p>", f"<{EX}b{at}>", at) for at in self._times(count)]
        for stream in (self.far[0], self.near):
            assert stream is not None
            stream.push(rows)
            stream.advance(self.at_ms)
        self.settle()

    def _times(self, count: int) -> Iterator[int]:
        for _ in range(count):
            self.at_ms += 50
            yield self.at_ms - 25

    def settle(self) -> None:
        for engine in (self.engine, self.nodes[0].engine):
            engine.settle(READY_S)

    def lose(self) -> None:
        """End the home, as if it was killed."""
        self.nodes[self.home].close()
        host = self.nodes[0].host
        host.wait_until(lambda node: node.control.members[self.home].role is Role.OUT, READY_S, "it is out")

    def homes(self, name: str = "q") -> set[int]:
        return set(self.nodes[0].host.node.control.queries[name].nodes)

    def taken_over(self, name: str = "q") -> ClusterNode:
        """Wait until another node runs a query; return it."""
        deadline, gone = time.monotonic() + READY_S, self.nodes[self.home]
        while time.monotonic() < deadline:
            homes = self.homes(name)
            if self.home not in homes or self.nodes[self.home] is not gone:
                (home,) = homes
                if self.nodes[home].store.query(name) is not None:
                    self.nodes[0].engine.settle(READY_S)
                    return self.nodes[home]
            time.sleep(0.02)
        raise AssertionError(f"nobody has taken over {name}")


@contextmanager
def told(settings: Settings | None = None) -> Iterator[Told]:
    with cluster(3, 2, settings) as nodes, Engine(settings=settings) as engine:
        yield Told(nodes, engine)


def items(cursor: Cursor, count: int | None = None) -> list[WindowResult | wukongs.GapError]:
    """Take what waits, or so many windows."""
    found: list[WindowResult | wukongs.GapError] = []
    while count is None or len(found) < count:
        try:
            window = cursor.take(0.3)
        except wukongs.GapError as gap:
            found.append(gap)
            continue
        if window is None:
            break
        found.append(window)
    return found


def rows_of(found: list[WindowResult | wukongs.GapError]) -> dict[int, Rows]:
    windows = [one for one in found if isinstance(one, WindowResult)]
    assert len({one.end_ms for one in windows}) == len(windows)
    assert [one.end_ms for one in windows] == sorted(one.end_ms for one in windows)
    return {one.end_ms: sorted(tuple(map(str, row)) for row in one) for one in windows}


def same(found: dict[int, Rows], expected: dict[int, Rows], from_ms: int) -> None:
    wanted = {end_ms: rows for end_ms, rows in expected.items() if end_ms >= from_ms}
    assert wanted
    assert {end_ms: rows for end_ms, rows in found.items() if end_ms >= from_ms} == wanted
    assert all(expected[end_ms] == rows for end_ms, rows in found.items())


@pytest.mark.slow
@pytest.mark.parametrize("taken", [0, slow(4)])
@pytest.mark.parametrize("what", ["RSTREAM", "ISTREAM", slow("DSTREAM")])
def test_another_node_fires_the_windows_that_readers_lack(what: str, taken: int) -> None:
    with told() as of:
        of.push(4)
        here = of.nodes[2].engine.register(text(what))
        beside = of.engine.register(text(what))
        of.push(40)
        had = items(here.cursor(), taken) if taken else []
        time.sleep(1)  # so long until the others know
        of.lose()
        of.push(20)
        node = of.taken_over()
        of.push(20)
        moved = node.store.query("q")
        assert moved is not None
        expected = rows_of(items(beside.cursor()))
        found = items(moved.cursor())
        assert all(isinstance(one, WindowResult) for one in found), found
        begin_ms = 0 if not had else max(one.end_ms for one in had if isinstance(one, WindowResult)) + 1
        same(rows_of(found), expected, begin_ms)


@pytest.mark.slow
def test_firings_are_compared_with_the_last_that_was_not_left_out() -> None:
    """The windows between were empty, and nobody knows of them but the home."""
    report = "REPORT ON NON EMPTY CONTENT"
    with told() as of:
        of.push(4)
        here = of.nodes[2].engine.register(text("ISTREAM", report=report))
        beside = of.engine.register(text("ISTREAM", report=report))
        for at_ms in (11_050, 14_050, 18_050):
            for stream in (of.far[0], of.near):
                assert stream is not None
                stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", at_ms)])
                stream.advance(at_ms + 2000)
            of.settle()
            if at_ms == 14_050:
                assert items(here.cursor())
                time.sleep(1)
                of.lose()
        moved = of.taken_over().store.query("q")
        assert moved is not None
        expected, found = rows_of(items(beside.cursor())), rows_of(items(moved.cursor()))
        assert [len(rows) for end_ms, rows in expected.items() if end_ms > 11_200] == [0] * 5
        same(found, expected, 16_100)


@pytest.mark.slow
def test_windows_whose_slices_are_gone_are_told_as_a_gap() -> None:
    with told(Settings(history_ms=1000)) as of:
        of.push(4)
        here = of.nodes[2].engine.register(text())
        beside = of.engine.register(text())
        of.push(100)
        assert len(rows_of(items(here.cursor(), 3))) == 3
        time.sleep(1)
        of.lose()
        of.push(20)
        moved = of.taken_over().store.query("q")
        of.push(4)
        assert moved is not None
        expected, found = rows_of(items(beside.cursor())), items(moved.cursor())
        gap = found.pop(0)
        assert isinstance(gap, wukongs.GapError)
        assert gap.from_ms <= sorted(expected)[3]
        assert gap.count == (gap.to_ms - gap.from_ms) // 200 + 1 == gap.gone
        windows = rows_of(found)
        assert windows
        same(windows, expected, gap.to_ms + 1)


def test_windows_begin_with_their_stream_though_their_home_said_last_what_readers_had_before_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a stream begins, a moment is exposed at the beginning of all times. Windows of all that time are none."""
    with told() as of:
        for engine in (of.nodes[of.home].engine, of.engine):
            engine.register(text())
        store, host = of.nodes[of.home].store, of.nodes[0].host
        held, early = store.held, first_tick_of(100)
        monkeypatch.setattr(store, "held", lambda: replace(held(), delivered=early))
        of.push(8)
        said = Delivered(early, host.node.control.index)
        host.wait_until(lambda node: node.progress.latest[of.home].delivered == said, READY_S, "what readers have")
        of.lose()
        moved = of.taken_over().store.query("q")
        of.push(8)
        assert moved is not None
        same(rows_of(items(moved.cursor(), 40)), rows_of(items(of.engine.queries()[0].cursor())), 0)


@pytest.mark.slow
def test_a_window_longer_than_the_history_is_whole_at_the_new_home() -> None:
    """All nodes have kept its slices: the home needed them for its next firing."""
    with told(Settings(history_ms=500)) as of:
        of.push(4)
        windows = "RANGE 3s STEP 1s"
        here = of.nodes[2].engine.register(text(windows=windows))
        beside = of.engine.register(text(windows=windows))
        of.push(100)
        had = rows_of(items(here.cursor()))
        time.sleep(1)
        of.lose()
        of.push(40)
        moved = of.taken_over().store.query("q")
        of.push(40)
        assert moved is not None
        expected, found = rows_of(items(beside.cursor())), items(moved.cursor())
        assert all(isinstance(one, WindowResult) and not one.partial for one in found), found
        same(rows_of(found), expected, max(had) + 1)


@pytest.mark.slow
@pytest.mark.parametrize("count", first_and_slow([6, 20]))
def test_queries_are_spread_and_each_fires_on(count: int) -> None:
    """Some in a group of their shape, some alone."""
    with told() as of:
        of.push(4)
        names = [f"q{number}" for number in range(count)]
        here = {name: of.nodes[2].engine.register(text(name=name)) for name in names}
        beside = {name: of.engine.register(text(name=name)) for name in names}
        of.push(20)
        for name in names[::2]:
            assert items(here[name].cursor())
        time.sleep(1)
        of.lose()
        of.push(10)
        nodes = {name: of.taken_over(name) for name in names}
        of.push(10)
        assert {node.me.node for node in nodes.values()} == {0, 1}
        for name in names:
            moved = nodes[name].store.query(name)
            assert moved is not None
            expected = rows_of(items(beside[name].cursor()))
            same(rows_of(items(moved.cursor())), expected, 0 if name not in names[::2] else of.at_ms - 1000)


@pytest.mark.slow
def test_a_query_of_the_stored_graph_reads_the_snapshots_of_then() -> None:
    joined = (
        f"REGISTER QUERY q AS SELECT ?s ?o ?k FROM STREAM <{EX}s> [RANGE 200ms STEP 200ms] FROM {STORED} "
        f"WHERE {{ ?s <{EX}p> ?o . <{EX}x> <{EX}k> ?k }}"
    )
    with told() as of:
        of.both(lambda engine: engine.update(f"INSERT DATA {{ <{EX}x> <{EX}k> 0 }}"))
        of.push(4)
        of.nodes[2].engine.register(joined)
        beside = of.engine.register(joined)
        for number in range(8):
            of.push(4)
            of.both(lambda engine, n=number: engine.update(f"INSERT DATA {{ <{EX}x> <{EX}k> {n + 1} }}"))  # type: ignore[misc]
        time.sleep(1)
        of.lose()
        of.push(8)
        moved = of.taken_over().store.query("q")
        of.push(8)
        assert moved is not None
        expected, found = rows_of(items(beside.cursor())), items(moved.cursor())
        assert len({len(rows) for rows in expected.values()}) > 5
        same(rows_of(found), expected, 0)


@pytest.mark.slow
def test_the_stream_that_a_query_makes_goes_on_without_repeats() -> None:
    maker = (
        f"REGISTER STREAM <{EX}made> AS CONSTRUCT {{ ?s <{EX}had> ?o }} FROM STREAM <{EX}s> [RANGE 400ms STEP 200ms] "
        f"WHERE {{ ?s <{EX}p> ?o }}"
    )
    reader = (
        f"REGISTER QUERY r AS SELECT ?s (COUNT(*) AS ?n) FROM STREAM <{EX}made> [RANGE 600ms STEP 600ms] "
        f"WHERE {{ ?s <{EX}had> ?o }} GROUP BY ?s"
    )
    with told() as of:
        of.push(4)
        of.nodes[2].engine.register(maker)
        near_reader = [of.engine.register(maker), of.engine.register(reader)][1]
        far_reader = of.nodes[0].engine.register(reader)
        of.push(40)
        of.lose()
        of.push(20)
        of.taken_over(EX + "made")
        of.push(40)
        expected = rows_of(items(near_reader.cursor()))
        assert len(expected) > 5
        same(rows_of(items(far_reader.cursor())), expected, 0)


@pytest.mark.slow
def test_a_group_of_readers_goes_on_at_the_new_home() -> None:
    """Nobody reads by its name when the home goes, and the others have all windows."""
    with told() as of:
        of.push(4)
        here = of.nodes[2].engine.register(text())
        beside = of.engine.register(text())
        group = here.cursor("g")
        of.push(20)
        assert items(here.cursor())
        had = rows_of(items(group, 2))
        time.sleep(1)
        assert of.nodes[0].host.node.control.queries["q"].groups == ("g",)
        of.lose()
        of.push(20)
        moved = of.taken_over().store.query("q")
        assert moved is not None
        items(moved.cursor())
        of.push(20)
        items(moved.cursor())
        found, expected = rows_of(items(moved.cursor("g"))), rows_of(items(beside.cursor()))
        same(found, expected, max(had) + 1)


@pytest.mark.slow
def test_another_text_is_not_taken_for_the_one_before() -> None:
    with told() as of:
        of.push(4)
        here = of.nodes[2].engine.register(text())
        beside = of.engine.register(text())
        of.push(20)
        other = text().replace(f"<{EX}p> ?o", f"<{EX}p> ?o FILTER (?s = <{EX}a1>)")
        here.replace(other)
        beside.replace(other)
        altered_ms = of.at_ms
        of.push(10)
        time.sleep(1)
        of.lose()
        of.push(20)
        moved = of.taken_over().store.query("q")
        of.push(20)
        assert moved is not None
        expected, found = rows_of(items(beside.cursor())), items(moved.cursor())
        gaps = [one for one in found if isinstance(one, wukongs.GapError)]
        assert len(gaps) == 1, found
        assert gaps[0].to_ms == altered_ms
        same(rows_of(found), expected, altered_ms + 1)


@pytest.mark.slow
def test_a_home_that_comes_back_does_not_fire_too() -> None:
    with told() as of:
        of.push(4)
        of.nodes[2].engine.register(text())
        of.push(20)
        of.lose()
        start_again(of.nodes, 2, replica_count=2)
        home = of.taken_over()
        of.push(20)
        assert home.me.node != 2
        assert of.nodes[2].store.query("q") is None
        assert of.homes() == {home.me.node}
        # and its next home goes, before the one that came back has heard much
        of.home = home.me.node
        if of.home == 0:
            return
        of.lose()
        assert of.taken_over().me.node in (0, 2)
