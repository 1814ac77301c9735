"""A clock as a source: which ticks there are, over runs, clocks that are set, and other intervals."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wukongs
from tests.engine_helpers import rows
from tests.unit.adapters.helpers import triples_of
from tests.unit.adapters.test_live_run import feeding, wait_until
from wukongs.adapters.feeds.clock import AT_ONCE_MAX, ClockFeed, ClockSource, date_time
from wukongs.adapters.feeds.feed import Look
from wukongs.adapters.feeds.kinds import KINDS
from wukongs.adapters.feeds.opening import open_feeds
from wukongs.adapters.live_planner import LivePlanner, LivePosition
from wukongs.adapters.push import push_item
from wukongs.adapters.replay import PipelineReport, replay
from wukongs.adapters.run_config import PipelineConfig, load_run_config
from wukongs.adapters.source import NO_TIME
from wukongs.cli import main
from wukongs.errors import SettingsError
from wukongs.live.wall_clock import DAY_MS
from wukongs.wire.link import IngestLink
from wukongs.wire.messages import Opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = 1_790_000_000_000
"""2026-09-21T14:13:20Z"""
S = "http://ex/s"
SOURCE = ClockSource("clock", f"<{S}>", "<urn:x-wukongs:tick>", 1000)
RUN = """
[[stream]]
iri = "http://ex/s"
batch_ms = 100
timing = true
source = { kind = "clock", every_ms = 100 }
"""
QUERY = f"REGISTER QUERY q AS SELECT ?now FROM STREAM <{S}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?now }}"


class Hand:
    """A clock that a test sets."""

    def __init__(self, ms: int = T0) -> None:
        self.ms = ms
        self.said: list[str] = []

    def feed(self, row: int = 0, every_ms: int = 1000) -> ClockFeed:
        source = ClockSource("clock", f"<{S}>", "<urn:x-wukongs:tick>", every_ms)
        feed = ClockFeed(S, source, self.said.append, lambda: self.ms)
        self.first = feed.begin(row)
        return feed


def times_between(feed: ClockFeed, first: int, end: int) -> list[int]:
    """The times of the ticks of some rows."""
    found: list[int] = []
    for part in feed.ranges(first, end, NO_TIME):
        read = feed.source.read(part, S.encode(), 62)
        assert not read.malformed
        found += read.encoded.timestamps.tolist()
    return found


# --- ticks ------------------------------------------------------------------------------------------------------------


def test_a_tick_is_a_triple_with_its_time() -> None:
    hand = Hand(T0 + 1)
    feed = hand.feed()
    hand.ms += 2500
    look = feed.look()
    assert look == Look(hand.first + 2, is_open=True, is_heard=True, complete_ms=T0 + 2501)
    [part] = feed.ranges(hand.first, look.end_row, NO_TIME)
    read = feed.source.read(part, S.encode(), 62)
    assert triples_of(read.encoded) == [
        (
            f"<{S}>",
            "<urn:x-wukongs:tick>",
            f'"2026-09-21T14:13:{second}Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>',
        )
        for second in (21, 22)
    ]
    assert read.encoded.timestamps.tolist() == [T0 + 1000, T0 + 2000]
    assert read.newest_ms == T0 + 2000


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (T0 + 5, "2026-09-21T14:13:20.005Z"),
        (T0 + 500, "2026-09-21T14:13:20.5Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_is_written_in_its_canonical_form(time_ms: int, text: str) -> None:
    """XSD 1.1, 3.3.7.2: no zeros at the end of fractional seconds, and Z for UTC."""
    assert date_time(time_ms) == text


def test_the_first_tick_is_the_next_one() -> None:
    hand = Hand(T0)
    feed = hand.feed()
    assert feed.look().end_row == hand.first
    hand.ms = T0 + 999
    assert feed.look().end_row == hand.first
    hand.ms = T0 + 1000
    assert times_between(feed, hand.first, feed.look().end_row) == [T0 + 1000]


def test_a_run_that_was_held_up_makes_up_for_its_ticks() -> None:
    hand = Hand()
    feed = hand.feed()
    hand.ms += 5000
    assert times_between(feed, hand.first, feed.look().end_row) == [T0 + 1000 * n for n in range(1, 6)]


def test_a_clock_that_is_set_ahead_gives_one_tick() -> None:
    hand = Hand()
    feed = hand.feed()
    hand.ms += 1000 * (AT_ONCE_MAX + 1)
    assert feed.look().end_row == hand.first + 1
    assert times_between(feed, hand.first, hand.first + 1) == [T0 + 1000 * (AT_ONCE_MAX + 1)]
    assert hand.said == [f"{S}, clock: the clock is ahead by 100,001 ticks: all but one are left out"]
    hand.ms += 2000
    end = feed.look().end_row
    assert times_between(feed, hand.first, end) == [T0 + 1000 * (AT_ONCE_MAX + n) for n in (1, 2, 3)]


def test_a_clock_that_is_set_back_gives_no_tick_twice() -> None:
    hand = Hand()
    feed = hand.feed()
    hand.ms += 5000
    end = feed.look().end_row
    hand.ms -= 3000
    assert feed.look().end_row == end
    hand.ms += 4000
    assert times_between(feed, end, feed.look().end_row) == [T0 + 6000]


def test_ticks_between_two_runs_are_left_out() -> None:
    hand = Hand()
    feed = hand.feed()
    hand.ms += 3000
    end = feed.look().end_row
    hand.ms += 10_500
    feed = hand.feed(end)
    assert hand.said == [f"{S}, clock: 10 ticks since the last run are left out"]
    hand.ms += 1000
    assert times_between(feed, hand.first, feed.look().end_row) == [T0 + 14_000]


def test_an_epoch_of_an_earlier_run_has_the_ticks_that_it_had() -> None:
    """Spark repeats what it has planned: the clock may have been set back since then."""
    hand = Hand()
    feed = hand.feed()
    hand.ms += 3000
    end = feed.look().end_row
    before = times_between(feed, end - 3, end)
    hand.ms -= 2000
    feed = hand.feed(end - 1)
    last = "no ticks until 2026-09-21T14:13:22Z, the last one of an earlier run: the clock was set back"
    assert hand.said == [f"{S}, clock: {last}"]
    assert times_between(feed, end - 1, end) == before[-1:]
    assert feed.look().end_row == end - 1
    hand.ms += 2000
    assert times_between(feed, end - 1, feed.look().end_row) == before[-1:]


def test_another_interval_goes_on_from_now() -> None:
    hand = Hand()
    feed = hand.feed()
    hand.ms += 3000
    end = feed.look().end_row
    slower = hand.feed(end, 60_000)
    assert hand.first == end
    hand.ms += 120_000
    found = times_between(slower, end, slower.look().end_row)
    assert found == [(T0 // 60_000 + n) * 60_000 for n in (1, 2)]
    faster = hand.feed(slower.look().end_row, 100)
    hand.ms += 200
    found = times_between(faster, hand.first, faster.look().end_row)
    assert len(found) == 2
    assert found[0] > T0 + 120_000


def test_a_tick_that_is_not_behind_what_is_complete_is_set_aside() -> None:
    hand = Hand()
    feed = hand.feed()
    hand.ms += 3000
    [part] = feed.ranges(hand.first, feed.look().end_row, T0 + 2500)
    read = feed.source.read(part, S.encode(), 62)
    assert read.encoded.timestamps.tolist() == [T0 + 3000]
    assert [one.time_ms for one in read.backwards] == [T0 + 1000, T0 + 2000]
    assert "its time" in str(read.backwards[0])


# --- planned ----------------------------------------------------------------------------------------------------------


class Node:
    """Takes what is sent, and tells where it stands."""

    sent_bytes = 0

    def __init__(self) -> None:
        self.end, self.complete_ms, self.times = 0, None, list[int]()

    def opened(self) -> Opened:
        return Opened(1000, None, True, self.end, 62, self.complete_ms)

    def send(self, piece: Any) -> None:
        assert piece.first_offset == self.end
        assert self.complete_ms is None or piece.encoded.timestamps.min() > self.complete_ms
        self.times += piece.encoded.timestamps.tolist()
        self.end = piece.end_offset

    def close_batches(
        self, stream: str, partition: str, epoch: int, end_offset: int, complete_ms: int, carried_count: int = 0
    ) -> None:
        self.end = max(self.end, end_offset)
        self.complete_ms = max(complete_ms, complete_ms if self.complete_ms is None else self.complete_ms)


def stepped(planner: LivePlanner, node: Node, position: LivePosition) -> LivePosition:
    """Plan and push until there is nothing to do."""
    while True:
        following = planner.next(position, 0.0)
        if following == position:
            return position
        for item in planner.items(position, following):
            planner.taken(push_item(item, node))  # type: ignore[arg-type]
        position = following


def test_time_goes_on_between_two_ticks() -> None:
    """A clock of minutes holds no one back for a minute: nothing comes before its next tick."""
    hand, node = Hand(T0), Node()
    planner = LivePlanner([hand.feed(every_ms=60_000)], [node.opened()], 1, PipelineConfig(), wall_ms=lambda: hand.ms)
    position = stepped(planner, node, planner.start)
    assert (node.complete_ms, node.times) == (T0, [])
    hand.ms += 1900
    position = stepped(planner, node, position)
    assert (node.complete_ms, node.times) == (T0 + 1000, [])
    tick_ms = (T0 // 60_000 + 1) * 60_000
    hand.ms = tick_ms
    position = stepped(planner, node, position)
    assert (node.complete_ms, node.times) == (tick_ms, [tick_ms])


def test_runs_that_follow_each_other_give_no_tick_twice() -> None:
    hand, node, told = Hand(), Node(), list[int]()
    for run in range(1, 6):
        feed = hand.feed(node.end)
        planner = LivePlanner([feed], [node.opened()], run, PipelineConfig(), wall_ms=lambda: hand.ms)
        position = planner.start
        for ms in (400, 1000, 2300):
            hand.ms += ms
            position = stepped(planner, node, position)
        told.append(hand.ms)
        hand.ms += 1500 if run % 2 else -1500
    assert node.times == sorted(set(node.times))
    assert all(ms % 1000 == 0 for ms in node.times)
    assert node.times[-1] == told[-1] // 1000 * 1000


# --- a run file -------------------------------------------------------------------------------------------------------


def config_of(folder: Path, text: str = RUN) -> Any:
    (folder / "run.toml").write_text(text)
    return load_run_config(folder / "run.toml")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("every_ms = 0", r"source\.every_ms: expected an integer >= 1"),
        ('subject = "a b"', r"source\.subject: expected an IRI"),
        ("predicate = 5", r"source\.predicate: expected"),
        ('format = "jsonl"', r"source: .*found the unknown key 'format'|found the unknown key 'format'"),
        ("lateness_ms = 5", r"found the unknown key 'lateness_ms'"),
    ],
)
def test_what_will_not_do_is_refused(tmp_path: Path, keys: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        config_of(tmp_path, f'[[stream]]\niri = "http://ex/s"\nsource = {{ kind = "clock", {keys} }}\n')


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("every_ms = 100", 'every_ms = 100, predicate = "tick"', "predicate <tick>: expected an absolute IRI"),
        ('iri = "http://ex/s"', 'iri = "s"', "stream s, .*: subject <s>: expected an absolute IRI"),
    ],
)
def test_its_iris_are_absolute(tmp_path: Path, old: str, new: str, message: str) -> None:
    """N-Triples, 2.2: IRIs are absolute."""
    config = config_of(tmp_path, RUN.replace(old, new))
    with pytest.raises(SettingsError, match=message):
        open_feeds(config.streams, config.pipeline, tmp_path, print, threading.Event())


@pytest.mark.parametrize("key", ["speed = 2.0", "rate = 5", "start_ms = 5"])
def test_a_clock_is_live_only(tmp_path: Path, key: str) -> None:
    with pytest.raises(SettingsError, match="expected none beside a source that goes on while it is read"):
        config_of(tmp_path, RUN + f"[pipeline]\n{key}\n")


def test_check_shows_its_ticks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config_of(tmp_path)
    assert main(["run", "--check", str(tmp_path / "run.toml")]) == 0
    assert "  clock: " in capsys.readouterr().out


def test_the_help_of_run_names_all_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    words = set(re.findall(r"\w+", capsys.readouterr().out))
    assert set(KINDS) <= words


def ticks_of(query: Any) -> dict[int, list[str]]:
    return {window.end_ms: [row[0] for row in rows(window)] for window in query.results(timeout_s=0)}


def check_ticks(found: dict[int, list[str]]) -> None:
    """Each window of 100 ms has the tick at its end, but for those before the first one and between two runs."""
    ticks = {end: texts for end, texts in found.items() if texts}
    assert len(ticks) > 3
    assert {end: [date_time(end)] for end in ticks} == ticks


def run_twice(folder: Path, fed: Callable[[wukongs.Engine, Any], AbstractContextManager[list[Any]]]) -> tuple[int, int]:
    """Feed two runs, each until windows of some ticks are reported; how many ticks were reported, and how many sent."""
    config = config_of(folder)
    found: dict[int, list[str]] = {}
    with wukongs.Engine(folder / "db") as engine:
        engine.stream(S, batch_ms=100, timing=True)
        query = engine.register(QUERY)

        def reported() -> int:
            found.update(ticks_of(query))
            return sum(map(len, found.values()))

        for _ in range(2):
            enough = reported() + 4
            with fed(engine, config) as report:
                wait_until(lambda enough=enough: reported() >= enough, 60)  # type: ignore[misc]
            assert isinstance(report[0], PipelineReport), report
            assert report[0].set_aside == 0
        engine.settle()
        check_ticks(found)
        return reported(), engine.stats()["streams"][S]["tuples"]


def test_runs_at_a_node_that_keeps_its_stream(tmp_path: Path) -> None:
    reported, sent = run_twice(tmp_path, feeding)
    assert reported == sent


@pytest.mark.slow
def test_runs_through_spark(tmp_path: Path, spark: SparkSession) -> None:
    reported, sent = run_twice(tmp_path, lambda engine, config: feeding(engine, config, spark))
    # Spark ends a task between its tuples and their Close: the next run closes their batches.
    assert 8 <= reported <= sent


def test_a_clock_lets_windows_of_a_silent_stream_come(tmp_path: Path) -> None:
    """The two together: ticks to join with, and a stream that follows the wall clock."""
    (tmp_path / "in").mkdir()
    config = config_of(
        tmp_path,
        RUN
        + """
[[stream]]
iri = "http://ex/readings"
batch_ms = 100
timing = true
idle_timeout_ms = 200
idle_advance = "wall"
[stream.source]
kind = "folder"
path = "in"
format = "timestamped"
""",
    )
    with wukongs.Engine() as engine:
        engine.stream(S, batch_ms=100, timing=True)
        engine.stream("http://ex/readings", batch_ms=100, timing=True, idle_timeout_ms=200, idle_advance="wall")
        query = engine.register(
            f"REGISTER QUERY q AS SELECT ?now FROM STREAM <{S}> [RANGE 100ms STEP 100ms] "
            "FROM NAMED STREAM <http://ex/readings> [RANGE 1s STEP 100ms] WHERE { ?clock <urn:x-wukongs:tick> ?now "
            "FILTER NOT EXISTS { GRAPH <http://ex/readings> { ?x <http://ex/v> ?v } } }"
        )
        with feeding(engine, config):
            now_ms = time.time_ns() // 1_000_000
            (tmp_path / "in" / "a.nt").write_text(f"<http://ex/x> <http://ex/v> <http://ex/1> . {now_ms}\n")
            found: dict[int, list[str]] = {}
            wait_until(lambda: found.update(ticks_of(query)) or sum(map(bool, found.values())) > 3, 60)
        silent = [end for end, texts in found.items() if texts and end >= now_ms]
        assert min(silent) > now_ms + 900


def test_a_run_ends_where_it_is_told_to(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with wukongs.Engine() as engine, IngestLink([engine.listen()]) as link:
        engine.stream(S, batch_ms=100, timing=True)
        report = replay(config.streams, link, config.pipeline, stop=stop)
        assert not report.finished
        assert report.triples == engine.stats()["streams"][S]["tuples"] > 1


def test_a_day_of_ticks_is_no_jump() -> None:
    """A machine that slept for a night makes up for its ticks of a second each."""
    hand = Hand()
    feed = hand.feed()
    hand.ms += DAY_MS
    assert feed.look().end_row == hand.first + DAY_MS // 1000
