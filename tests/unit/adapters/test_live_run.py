"""Sources that go on while they are read, from a folder or a pipe to the windows of a real engine."""

from __future__ import annotations

import gzip
import json
import os
import random
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wukongs
from tests.oracles.lateness import OpenArrivals
from tests.processes import child
from tests.unit.adapters.helpers import PROJECT
from tests.unit.adapters.spooled import Putter, spooled
from tests.unit.cluster.test_pipelines import fed_cluster
from wukongs.adapters.feeds.feed import Inlet, Kind, Waits
from wukongs.adapters.feeds.kinds import KINDS
from wukongs.adapters.feeds.spool import NO_BOUND, read_range
from wukongs.adapters.mapping.mapping import Csv
from wukongs.adapters.replay import PipelineReport, replay
from wukongs.adapters.run_config import LiveSource, PipelineConfig, load_run_config
from wukongs.cli import main
from wukongs.cli.ports import free_ports
from wukongs.errors import SettingsError, StreamError
from wukongs.live.pieces import Open
from wukongs.wire.ingest_service import IngestService
from wukongs.wire.link import IngestLink
from wukongs.wire.messages import Opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = """
[[stream]]
iri = "http://ex/s"
batch_ms = 100
[stream.source]
format = "jsonl"
%s
[stream.source.mapping]
subject = "http://ex/{id}"
time = { column = "t", format = "epoch_ms" }
[[stream.source.mapping.triple]]
predicate = "http://ex/p"
value = "{v}"
"""
QUERY = "REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?s <http://ex/p> ?o }"

PUSHER = """
import sys
from wukongs.adapters.replay import replay
from wukongs.adapters.run_config import load_run_config
from wukongs.wire.link import IngestLink
config = load_run_config(sys.argv[1])
with IngestLink([sys.argv[2]]) as link:
    replay(config.streams, link, config.pipeline)
"""

Record = tuple[int, int]
"""Its id and its time."""


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def text_of(records: list[Record]) -> str:
    return "".join(json.dumps({"id": one, "t": time_ms, "v": f"v{one}"}) + "\n" for one, time_ms in records)


def expected(records: list[Record]) -> dict[int, list[str]]:
    windows: dict[int, list[str]] = defaultdict(list)
    for one, time_ms in records:
        windows[-(-time_ms // 1000) * 1000].append(f"http://ex/{one}")
    return {end: sorted(names) for end, names in windows.items()}


def windows_of(query: Any) -> dict[int, list[str]]:
    found = {}
    for result in query.results(0):
        assert result.end_ms not in found, "a window is reported once"
        found[result.end_ms] = sorted(str(row[0]).strip("<>") for row in result.texts())
    return {end: names for end, names in found.items() if names}


def tuples_of(engine: wukongs.Engine) -> int:
    """Return how many tuples of the stream have come."""
    count: int = engine.stats()["streams"]["http://ex/s"]["tuples"]
    return count


def config_of(folder: Path, source: str, pipeline: str = "") -> Any:
    (folder / "run.toml").write_text(STREAM % source + pipeline)
    return load_run_config(folder / "run.toml")


@contextmanager
def feeding(at: wukongs.Engine | list[str], config: Any, spark: SparkSession | None = None) -> Iterator[list[Any]]:
    """Run the pipeline of a configuration in a thread until the block ends; the report, or the error, is put in. at:
    an engine, or the addresses of nodes."""
    stop, found = threading.Event(), list[Any]()
    addresses = at if isinstance(at, list) else [at.listen()]

    def run() -> None:
        try:
            if spark is None:
                with IngestLink(addresses) as link:
                    found.append(replay(config.streams, link, config.pipeline, stop=stop))
            else:
                from wukongs.adapters.spark.pipeline import run_pipeline

                found.append(run_pipeline(config.streams, addresses, config.pipeline, session=spark, stop=stop))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def grow(folder: Path, records: list[Record], rng: random.Random, count: Callable[[], int]) -> None:
    """Write records as others write into a folder: appended in parts that cut lines, renamed in, rotated, packed.

    count: how many have come. Another file is written only once all were seen: their records are in the order of
    time."""
    at, number = 0, 0
    log = folder / "app.jsonl"
    while at < len(records):
        part = records[at : at + rng.randint(1, 60)]
        at += len(part)
        text, way = text_of(part), rng.choice(("append", "rename", "pack", "rotate"))
        number += 1
        if way in ("append", "rotate"):
            cut = rng.randrange(len(text))
            for piece in (text[:cut], text[cut:]):
                with log.open("a") as file:
                    file.write(piece)
                time.sleep(0.01)
            if way == "rotate":
                log.rename(folder / f"app-{number}.jsonl")
        else:
            hidden = folder / f".{number}"
            hidden.write_bytes(text.encode() if way == "rename" else gzip.compress(text.encode()))
            hidden.rename(folder / f"part-{number}.jsonl{'' if way == 'rename' else '.gz'}")
        wait_until(lambda at=at: count() == at, 60)  # type: ignore[misc]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_a_folder_that_grows_gives_each_record_once(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    records = [(number, 10 * number) for number in range(1, 600)]
    (tmp_path / "in").mkdir()
    config = config_of(tmp_path, 'kind = "folder"\npath = "in"\nsettle_ms = 60000')
    with wukongs.Engine() as engine:
        engine.stream("http://ex/s", batch_ms=100)
        query = engine.register(QUERY)
        with feeding(engine, config) as found:
            grow(tmp_path / "in", records, rng, lambda: tuples_of(engine))
            engine.settle()
            assert not found, "it waits for more"
            assert windows_of(query) == {end: names for end, names in expected(records).items() if end < 5990}
        assert isinstance(found[0], PipelineReport), found
        assert (found[0].triples, found[0].set_aside) == (len(records), 0)


@pytest.mark.slow
def test_a_folder_that_grows_goes_through_spark(tmp_path: Path, spark: SparkSession) -> None:
    records = [(number, 10 * number) for number in range(1, 600)]
    (tmp_path / "in").mkdir()
    config = config_of(tmp_path, 'kind = "folder"\npath = "in"\nsettle_ms = 60000')
    with wukongs.Engine() as engine:
        engine.stream("http://ex/s", batch_ms=100)
        query = engine.register(QUERY)
        with feeding(engine, config, spark) as found:
            grow(tmp_path / "in", records, random.Random(5), lambda: tuples_of(engine))
            assert not found
            (tmp_path / "in" / "last.jsonl").write_text(text_of([(9999, 7000)]))
            wait_until(lambda: engine.stats()["streams"]["http://ex/s"]["tuples"] == len(records) + 1, 60)
            wait_until(lambda: query.stats()["windows"] >= len(expected(records)), 60)  # time is told after the tuples
            engine.settle()
            assert windows_of(query) == expected(records)
    assert found[0].set_aside == 0


def test_what_is_there_already_is_read_in_the_order_of_its_last_change(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    records = [(number, 10 * number) for number in range(1, 400)]
    for place, name in enumerate(("z", "m.gz", "a")):
        path = tmp_path / "in" / f"{name}"
        text = text_of(records[place * 133 : (place + 1) * 133]).encode()[: -1 if name == "a" else None]
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        os.utime(path, (1000 + place, 1000 + place))
    config = config_of(tmp_path, 'kind = "folder"\npath = "in"\nfollow = false')
    with wukongs.Engine() as engine, IngestLink([engine.listen()]) as link:
        engine.stream("http://ex/s", batch_ms=100)
        query = engine.register(QUERY)
        report = replay(config.streams, link, config.pipeline)
        engine.settle()
        assert windows_of(query) == expected(records)
    assert (report.finished, report.triples, report.set_aside) == (True, 399, 0)


def test_silent_for_three_days_and_then_right_times(tmp_path: Path) -> None:
    """A gap is no reason to doubt a time; being ahead of the wall clock is. What is set aside moves no watermark."""
    (tmp_path / "in").mkdir()
    now, day = time.time_ns() // 1_000_000, 86_400_000
    right = [
        *((one, now - 3 * day + one) for one in range(5)),
        *((one, now - 9000 + 1000 * one) for one in range(5, 9)),
    ]
    wrong = (99, now + 3 * day)
    (tmp_path / "in" / "a.jsonl").write_text(text_of([*right[:5], wrong, *right[5:], (10, now + 3_600_000)]))
    config = config_of(tmp_path, 'kind = "folder"\npath = "in"\nfollow = false', "[pipeline]\nbad_records_max = 1.0\n")
    with wukongs.Engine() as engine:
        engine.stream("http://ex/s", timing=True, batch_ms=100)
        query = engine.register(QUERY.replace(" q AS", " q REPORT NON EMPTY CONTENT AS"))
        with IngestLink([engine.listen()]) as link:
            report = replay(config.streams, link, config.pipeline)
        engine.settle()
        assert (report.rows, report.malformed, report.backwards) == (11, 1, 0)
        (aside,) = report.examples
        assert f"its time {wrong[1]} ms is ahead of the clock" in aside.reason
        assert windows_of(query) == expected([*right, (10, now + 3_600_000)])


def test_what_a_spool_has_decided_stays_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, day = 1_800_000_000_000, 86_400_000
    clock = [now]
    monkeypatch.setattr("wukongs.adapters.feeds.spool_feed.time.time_ns", lambda: clock[0] * 1_000_000)
    with spooled(tmp_path, Putter(["a", "b"]), waits=Waits(jump_max_ms=day)) as one:
        one.wait_for(2)
    clock[0] = now + 30 * day
    with spooled(tmp_path, Putter(["c"]), waits=Waits(jump_max_ms=0)) as one:
        one.wait_for(3)
        (rows,) = one.spool.ranges(0, 2, 0)
        assert {frame.latest_ms for frame in read_range(one.spool.folder, rows)} == {now + day}
        last = [frame.latest_ms for at in one.spool.ranges(2, 3, 0) for frame in read_range(one.spool.folder, at)]
        assert last == [NO_BOUND]


def test_late_rows_within_the_bound_are_in_their_windows(tmp_path: Path) -> None:
    rng = random.Random(3)
    records = [(number, 5 * number + rng.randint(0, 300)) for number in range(1, 1000)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "all.jsonl").write_text(text_of(records))
    for lateness_ms in (300, 100):
        newest, kept = 0, []
        for one, time_ms in records:
            if time_ms >= newest - lateness_ms:
                kept.append((one, time_ms))
            newest = max(newest, time_ms)
        config = config_of(tmp_path, f'kind = "folder"\npath = "in"\nfollow = false\nlateness_ms = {lateness_ms}')
        with wukongs.Engine() as engine, IngestLink([engine.listen()]) as link:
            engine.stream("http://ex/s", batch_ms=100)
            query = engine.register(QUERY)
            pipeline = PipelineConfig(rows_per_epoch=70, bad_records_max=1)
            report = replay(config.streams, link, pipeline)
            engine.settle()
            assert windows_of(query) == expected(kept)
        assert report.backwards == len(records) - len(kept)
        assert (report.backwards == 0) == (lateness_ms == 300)


@pytest.mark.parametrize("lateness_ms", [0, 100])
def test_late_rows_of_an_open_stream_are_in_the_windows_that_are_not_closed(tmp_path: Path, lateness_ms: int) -> None:
    """By the rule of DESIGN.md, section 6 (tests/oracles/lateness.py), also after a restart of the engine."""
    rng = random.Random(4)
    records = [(number, 5 * number + rng.choice([0, 0, -300, -1500])) for number in range(400, 1400)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "all.jsonl").write_text(text_of(records))
    arrivals = OpenArrivals(lateness_ms, history_ms=1000)
    arrivals.push(records)
    assert arrivals.late
    assert arrivals.carried
    options = f'kind = "folder"\npath = "in"\nfollow = false\nlateness_ms = {lateness_ms}'
    text = (STREAM % options).replace("batch_ms = 100", 'batch_ms = 100\nhistory_ms = 1000\nlate = "open"')
    (tmp_path / "run.toml").write_text(text)
    config = load_run_config(tmp_path / "run.toml")
    query_text = QUERY.replace("RANGE 1s STEP 1s", "RANGE 2s STEP 1s")
    with wukongs.Engine(tmp_path / "data") as engine, IngestLink([engine.listen()]) as link:
        engine.stream("http://ex/s", batch_ms=100, history_ms=1000, late="open")
        report = replay(config.streams, link, PipelineConfig(rows_per_epoch=70, bad_records_max=1))
        engine.register(query_text)
    with wukongs.Engine(tmp_path / "data") as engine:
        found = windows_of(engine.register(query_text))
        counts = engine.stats()["streams"]["http://ex/s"]
    with wukongs.Engine() as engine, IngestLink([engine.listen()]) as link:
        engine.stream("http://ex/s", batch_ms=100, history_ms=1000, late="open")
        query = engine.register(query_text)
        replay(config.streams, link, PipelineConfig(rows_per_epoch=70, bad_records_max=1))
        engine.settle()
        live = windows_of(query)
        assert engine.stats()["streams"]["http://ex/s"]["carried"] == len(arrivals.carried)
    assert counts["late"] == counts["carried"] == len(arrivals.carried)
    assert report.backwards == len(arrivals.late)
    ends = range(1000, max(live) + 1, 1000)
    assert live == {end: names for end in ends if (names := names_of(arrivals.window(end - 2000, end)))}
    assert found == {end: names for end, names in live.items() if end in found}


def names_of(records: list[Any]) -> list[str]:
    return sorted(f"http://ex/{one}" for one, _ in records)


def test_a_recording_carries_no_late_rows(tmp_path: Path) -> None:
    text = (STREAM % 'kind = "jsonl"\npath = "x.jsonl"').replace('format = "jsonl"\n', "")
    (tmp_path / "x.jsonl").write_text(text_of([(1, 1)]))
    (tmp_path / "run.toml").write_text(text.replace("batch_ms = 100", 'batch_ms = 100\nlate = "open"'))
    with pytest.raises(SettingsError, match="since the source is a recording"):
        load_run_config(tmp_path / "run.toml")


def test_late_rows_need_the_lengths_that_decide_on_them(tmp_path: Path) -> None:
    text = (STREAM % 'kind = "stdin"').replace("batch_ms = 100", 'batch_ms = 100\nlate = "open"')
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(SettingsError, match=r"history_ms: expected an integer, in milliseconds, since late = .open."):
        load_run_config(tmp_path / "run.toml")


def test_a_silent_source_does_not_hold_the_windows_of_another_one(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "quiet").mkdir()
    (tmp_path / "quiet" / "one.jsonl").write_text(text_of([(1, 150)]))
    text = STREAM % 'kind = "folder"\npath = "in"\nidle_ms = 300'
    quiet = (STREAM % 'kind = "folder"\npath = "quiet"\nidle_ms = 300').replace("http://ex/s", "http://ex/quiet")
    (tmp_path / "run.toml").write_text(text + quiet)
    config = load_run_config(tmp_path / "run.toml")
    both = QUERY.replace("WHERE { ?s", "FROM STREAM <http://ex/quiet> [RANGE 1s STEP 1s] WHERE { ?s")
    with wukongs.Engine() as engine:
        for name in ("s", "quiet"):
            engine.stream(f"http://ex/{name}", batch_ms=100)
        query = engine.register(both)
        with feeding(engine, config) as found:
            for number in range(1, 40):
                with (tmp_path / "in" / "all.jsonl").open("a") as file:
                    file.write(text_of([(number, 100 * number)]))
                time.sleep(0.03)
            wait_until(lambda: query.stats()["windows"] >= 3)
            assert not found
        engine.settle()
        ends = [one.end_ms for one in query.results(0)]
    assert ends[:3] == [1000, 2000, 3000]


WALL = """
[[stream]]
iri = "http://ex/s"
batch_ms = 100
timing = true
idle_timeout_ms = %d
idle_advance = "wall"
source = { kind = "folder", path = "in", format = "timestamped", lateness_ms = %d }
"""


def check_silence(
    folder: Path,
    engine: Any,
    feed: Callable[[Any], AbstractContextManager[list[Any]]],
    idle_ms: int = 300,
    lateness_ms: int = 2000,
) -> None:
    """A row comes, then none: windows follow the wall clock. A row behind that is set aside, one ahead of it is not."""
    (folder / "in").mkdir()
    (folder / "run.toml").write_text(WALL % (idle_ms, lateness_ms))
    config = load_run_config(folder / "run.toml")
    engine.stream("http://ex/s", batch_ms=100, timing=True)
    query = engine.register(QUERY.replace("RANGE 1s STEP 1s", "RANGE 100ms STEP 100ms"))

    def put(name: str, time_ms: int) -> None:
        (folder / "in" / f".{name}").write_text(f"<http://ex/{name}> <http://ex/p> <http://ex/o> . {time_ms}\n")
        (folder / "in" / f".{name}").rename(folder / "in" / name)

    began_ms, found = time.time_ns() // 1_000_000, dict[int, list[str]]()

    def has(end_ms: int) -> bool:
        found.update({one.end_ms: sorted(str(row[0]).strip("<>") for row in one.texts()) for one in query.results(0)})
        return max(found, default=0) >= end_ms

    put("first", began_ms)
    with feed(config) as report:
        wait_until(lambda: has(began_ms + 3000) or bool(report), 60)
        put("late", began_ms + 1)
        put("later", ahead_ms := time.time_ns() // 1_000_000 + 5000)
        wait_until(lambda: has(ahead_ms + 500) or bool(report), 60)
        assert not report
    rows = {end: names for end, names in found.items() if names}
    assert rows == {
        -(-ms // 100) * 100: [f"http://ex/{name}"] for name, ms in (("first", began_ms), ("later", ahead_ms))
    }
    ends = sorted(found)
    assert ends == list(range(ends[0], ends[-1] + 100, 100))
    assert max(ends) <= time.time_ns() // 1_000_000 - lateness_ms
    assert report[0].backwards == 1


def test_a_silent_source_follows_the_wall_clock(tmp_path: Path) -> None:
    with wukongs.Engine() as engine:
        check_silence(tmp_path, engine, lambda config: feeding(engine, config))


@pytest.mark.slow
def test_a_silent_source_follows_the_wall_clock_through_spark(tmp_path: Path, spark: SparkSession) -> None:
    with wukongs.Engine() as engine:
        check_silence(tmp_path, engine, lambda config: feeding(engine, config, spark))


@pytest.mark.slow
def test_a_silent_source_of_a_cluster_follows_the_wall_clock(tmp_path: Path) -> None:
    with fed_cluster(3, 2) as (nodes, addresses):
        check_silence(tmp_path, nodes[0].engine, lambda config: feeding(addresses, config), 5000, 0)


def test_lines_come_over_tcp_from_several_clients(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    config = config_of(tmp_path, f'kind = "tcp"\nlisten = "127.0.0.1:{port}"\nlateness_ms = 100000\nfollow = false')
    records = [(number, number) for number in range(1, 301)]
    with wukongs.Engine() as engine:
        engine.stream("http://ex/s", batch_ms=100)
        query = engine.register(QUERY)
        with feeding(engine, config) as found:
            clients = [_connected(port) for _ in range(3)]
            for place, client in enumerate(clients):
                client.sendall(text_of(records[place::3]).encode())
            for client in clients:
                client.close()
            wait_until(lambda: bool(found), 20)
        engine.settle()
        assert windows_of(query) == expected(records)
    assert found[0].finished


def _connected(port: int) -> socket.socket:
    for _ in range(1200):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise AssertionError("nobody listens")


def test_a_server_of_lines_that_goes_away_is_found_again(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    config = config_of(tmp_path, f'kind = "tcp"\nconnect = "127.0.0.1:{port}"')
    with wukongs.Engine() as engine:
        engine.stream("http://ex/s", batch_ms=100)
        with feeding(engine, config) as found:
            for first in (1, 101):
                with socket.create_server(("127.0.0.1", port)) as server:
                    server.settimeout(20)
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(text_of([(one, one) for one in range(first, first + 100)]).encode())
            wait_until(lambda: engine.stats()["streams"]["http://ex/s"]["tuples"] == 200, 20)
            assert not found


@pytest.mark.parametrize("garbage", [b"", b"\xff\n"])
def test_a_connection_that_brings_nothing_is_lost_and_one_of_garbage_is_told(tmp_path: Path, garbage: bytes) -> None:
    (port,) = free_ports(1)
    config = config_of(tmp_path, f'kind = "tcp"\nconnect = "127.0.0.1:{port}"')
    stream = config.streams[0]
    (live,) = stream.live_sources
    live = replace(live, format=replace(live.format, kind="csv"))
    config = replace(config, streams=(replace(stream, sources=(live,)),))
    with wukongs.Engine() as engine:
        engine.stream("http://ex/s", batch_ms=100)
        with feeding(engine, config) as found:
            for text in (garbage, b"id,t,v\n1,1,x\n"):
                with socket.create_server(("127.0.0.1", port)) as server:
                    server.settimeout(20)
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(text)
                if garbage:
                    break
            wait_until(lambda: bool(found) or engine.stats()["streams"]["http://ex/s"]["tuples"] == 1, 20)
            assert [str(one) for one in found] == (
                [f"127.0.0.1:{port}, line 1: expected a header in UTF-8"] if garbage else []
            )


def test_a_header_with_a_column_twice_is_told_and_its_file_passed_over(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "twice.csv").write_text("id,t,v,v\n1,10,a,b\n")
    (tmp_path / "in" / "other.csv").write_text("id,x,x,t,v\n2,20,1,2,c\n")
    config_of(tmp_path, 'kind = "folder"\npath = "in"\nfollow = false')
    text = (tmp_path / "run.toml").read_text().replace('"jsonl"', '"csv"')
    (tmp_path / "run.toml").write_text(text)
    config, said = load_run_config(tmp_path / "run.toml"), list[str]()
    with wukongs.Engine() as engine, IngestLink([engine.listen()]) as link:
        engine.stream("http://ex/s", batch_ms=100)
        report = replay(config.streams, link, config.pipeline, say=said.append)
    assert (report.triples, report.set_aside) == (1, 0)
    (line,) = said
    assert "twice.csv, line 1: expected one column 'v' in the header, found several" in line
    assert line.endswith("it is passed over until it is changed")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('kind = "folder"\npath = "nowhere"', r"source\.path: expected a folder, found .*nowhere, which is none"),
        ('kind = "folder"', r"source\.path: expected a folder, found nothing"),
        ('kind = "folder"\npath = "."\nstart = "now"', r"source\.start: expected one of 'beginning', 'end'"),
        ('kind = "tcp"', r"source\.connect: expected either connect or listen, as host:port, found neither"),
        ('kind = "tcp"\nlisten = "7000"', r"source\.listen: expected host:port, found '7000'"),
        ('kind = "stdin"\npath = "x"', r"found the unknown key 'path'"),
        ('kind = "stdin"\nlateness_ms = -1', r"source\.lateness_ms: expected an integer >= 0"),
    ],
)
def test_what_will_not_do_in_a_run_file_is_refused(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        config_of(tmp_path, source)


def test_what_is_for_recordings_is_refused_beside_a_live_source(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"pipeline\.speed: expected none beside a source that goes on"):
        config_of(tmp_path, 'kind = "stdin"', "[pipeline]\nspeed = 2.0\n")


def test_the_kind_of_the_page_works_and_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (PROJECT / "docs" / "sources.md").read_text()
    code = textwrap.dedent(page[page.index("    @dataclass") : page.rindex("    )\n") + 6])
    names: dict[str, Any] = {"dataclass": dataclass, "Kind": Kind, "Csv": Csv, "Inlet": Inlet}
    exec(code, names)
    monkeypatch.setitem(KINDS, "counter", names["KIND"])
    source = """
[[stream]]
iri = "http://ex/s"
source = { kind = "counter", limit = %d, format = "jsonl", mapping = "m.toml" }
[pipeline]
spool = "spool"
"""
    (tmp_path / "m.toml").write_text(
        'subject = "http://ex/{n}"\ntime = { column = "_time", format = "epoch_ms" }\n'
        '[[triple]]\npredicate = "http://ex/parity"\nvalue = "{_parity}"\n'
    )
    for limit, before in ((10, 0), (25, 10)):
        (tmp_path / "run.toml").write_text(source % limit)
        config = load_run_config(tmp_path / "run.toml")
        assert isinstance(config.streams[0].sources[0], LiveSource)
        goes_on = replace(config.streams[0].sources[0], waits=Waits(is_last=False))
        with wukongs.Engine(tmp_path / "db") as engine, IngestLink([engine.listen()]) as link:
            engine.stream("http://ex/s", batch_ms=100)
            report = replay([replace(config.streams[0], sources=(goes_on,))], link, config.pipeline)
            assert report.triples == limit - before
            assert engine.stats()["streams"]["http://ex/s"]["tuples"] == limit


def test_check_reads_what_a_run_finds_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(text_of([(1, 100), (2, 200)]) + "oops\n")
    config_of(tmp_path, 'kind = "folder"\npath = "in"\nfollow = false')
    assert main(["run", "--check", str(tmp_path / "run.toml")]) == 1
    out = capsys.readouterr().out
    assert "  in: 3 records; the first 3 give 2 triples" in out
    assert "a.jsonl, line 3, column 1: expected JSON" in out
    config_of(tmp_path, 'kind = "stdin"')
    assert main(["run", "--check", str(tmp_path / "run.toml")]) == 0
    assert "stdin: not looked at, a run would not find again what was read" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "run.toml"]


# --- wukongs push -----------------------------------------------------------------------------------------------------


def timed(records: list[Record]) -> str:
    return "".join(f'<http://ex/{one}> <http://ex/p> "v{one}" . {time_ms}\n' for one, time_ms in records)


def pushed(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wukongs", "push", "--data-dir", str(folder / "db"), "--stream", "http://ex/s"]
    return subprocess.run([*command, *options], input=text, text=True, capture_output=True, timeout=120)


@pytest.mark.slow
def test_pipes_that_follow_each_other_push_to_one_stream(tmp_path: Path) -> None:
    first = pushed(tmp_path, timed([(1, 100), (2, 250)]), "--batch-ms", "100", "-")
    assert first.returncode == 0, first.stderr
    late = pushed(tmp_path, timed([(3, 100), *((number, 300) for number in range(4, 24))]), "-")
    assert late.returncode == 0, late.stderr
    assert "its time 100 ms is before 250 ms" in late.stderr
    with wukongs.Engine(tmp_path / "db") as engine:
        assert engine.stats()["streams"]["http://ex/s"]["tuples"] == 22
        assert len(engine.query("SELECT ?s { ?s ?p ?o }")) == 1, "the stream batches up to 250 and 300 ms are open"
    (tmp_path / "more.nt").write_text(timed([(30, 400)]))
    last = pushed(tmp_path, "", "--end", "--format", "timestamped", str(tmp_path / "more.nt"))
    assert last.returncode == 0, last.stderr
    with wukongs.Engine(tmp_path / "db") as engine:
        assert len(engine.query("SELECT ?s { ?s ?p ?o }")) == 23
    ended = pushed(tmp_path, timed([(40, 500)]), "-")
    assert (ended.returncode, "is closed" in ended.stderr) == (1, True), ended.stderr


@pytest.mark.slow
def test_a_push_with_a_mapping_takes_the_time_of_arrival(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(
        'subject = "http://ex/{id}"\n[[triple]]\npredicate = "http://ex/p"\nvalue = "{v}"\n'
    )
    began = time.time_ns() // 1_000_000
    found = pushed(
        tmp_path,
        "id,v\n1,a\n2,b\n",
        "--format",
        "csv",
        "--mapping",
        str(tmp_path / "m.toml"),
        "--arrival",
        "--end",
        "-",
    )
    assert found.returncode == 0, found.stderr
    with wukongs.Engine(tmp_path / "db") as engine:
        assert len(engine.query("SELECT ?s { ?s ?p ?o }")) == 2
        closed = engine.stats()["streams"]["http://ex/s"]["closed_ms"]
    assert began <= closed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-"], "no --data-dir and no --server"),
        (["--data-dir", "db", "--format", "jsonl", "-"], "expected --mapping FILE"),
        (["--data-dir", "db", "--format", "fax", "-"], "--format fax: expected one of timestamped, csv"),
        (["--data-dir", "db", "--format", "ttl", "-"], "expected --time-predicate IRI or --arrival"),
        (["--data-dir", "db", "--arrival", "-"], "each line has its time"),
    ],
)
def test_wrong_options_of_push_are_named(
    tmp_path: Path,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["push", "--stream", "http://ex/s", *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "db").exists()


def test_push_names_the_lines_of_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.toml").write_text(
        'subject = "http://ex/{id}"\n[[triple]]\npredicate = "http://ex/p"\nvalue = "{id}"\n'
        '[time]\ncolumn = "t"\nformat = "epoch_ms"\n'
    )
    (tmp_path / "a.csv").write_text("id,t\n" + "1,5\n" * 50)
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbfid,t\r\n1,6\r\n2,soon\r\n")
    push = [
        "push",
        "--data-dir",
        str(tmp_path / "db"),
        "--stream",
        "http://ex/s",
        "--mapping",
        str(tmp_path / "m.toml"),
    ]
    dead = tmp_path / "dead.jsonl"
    assert main([*push, "--dead-letters", str(dead), str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]) == 0
    assert f"set aside: {tmp_path / 'b.csv'}, line 3, column 3: expected a time" in capsys.readouterr().err
    assert json.loads(dead.read_text())["byte"] == 14


def test_the_stream_of_push_may_stand_in_angle_brackets(tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text('<http://ex/a> <http://ex/p> "1" . 1000\n')
    push = ["push", "--data-dir", str(tmp_path / "db"), "--stream", "<http://ex/s>", "--format", "timestamped"]
    assert main([*push, str(tmp_path / "a.nt")]) == 0


def test_a_second_writer_of_one_partition_locks_the_first_one_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_partition, opened = IngestService.open_partition, list[Open]()

    def noted(service: IngestService, message: Open) -> Opened:
        found = open_partition(service, message)
        opened.append(message)
        return found

    monkeypatch.setattr(IngestService, "open_partition", noted)
    (tmp_path / "in").mkdir()
    config = config_of(tmp_path, 'kind = "folder"\npath = "in"')
    with wukongs.Engine() as engine:
        engine.stream("http://ex/s", batch_ms=100)
        with feeding(engine, config) as first:
            wait_until(lambda: len(opened) == 1)
            with feeding(engine, config) as second:
                wait_until(lambda: len(opened) == 2)
                (tmp_path / "in" / "a.jsonl").write_text(text_of([(1, 100)]))
                wait_until(lambda: bool(first))
                assert isinstance(first[0], StreamError)
                assert "locked out by the newer writer" in str(first[0])
                assert not second


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_pipelines_with_a_spool_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    records = [(number, number) for number in range(1, 20_001)]
    (tmp_path / "in").mkdir()
    config_of(tmp_path, 'kind = "folder"\npath = "in"', '[pipeline]\nspool = "spool"\n')
    with wukongs.Engine(tmp_path / "db") as engine:
        stream = engine.stream("http://ex/s", batch_ms=100)
        query = engine.register(QUERY)
        command = [sys.executable, "-c", PUSHER, str(tmp_path / "run.toml"), engine.listen()]
        at = 0
        while at < len(records):
            with child(command):  # it is killed at the end of the block
                for _ in range(rng.randint(1, 4)):
                    part = records[at : at + 1000]
                    if not part:
                        break
                    at += len(part)
                    (tmp_path / "in" / ".new").write_text(text_of(part))
                    (tmp_path / "in" / ".new").rename(tmp_path / "in" / f"{at:06}.jsonl")
                    time.sleep(rng.uniform(0.2, 1.2))
        with child(command):
            wait_until(lambda: engine.stats()["streams"]["http://ex/s"]["tuples"] >= len(records), 60)
            time.sleep(0.5)
        stream.close()
        engine.settle()
        assert engine.stats()["streams"]["http://ex/s"]["tuples"] == len(records)
        assert windows_of(query) == expected(records)


def test_files_of_different_shapes_feed_one_stream(tmp_path: Path) -> None:
    """Each source has its own mapping, and their records meet in one window."""
    time = '[time]\ncolumn = "%s"\nformat = "epoch_s"\n[[triple]]\npredicate = "%s"\nvalue = "%s"'
    mapping = 'subject = "http://ex/{%s}"\n' + time
    (tmp_path / "heat.toml").write_text(mapping % ("id", "t", "http://ex/heat", "{v}"))
    (tmp_path / "gate.toml").write_text(mapping % ("gate", "at", "http://ex/is", "open"))
    (tmp_path / "heat.csv").write_text("id,t,v\na,1,20\nb,3,21\n")
    (tmp_path / "gates.jsonl").write_text('{"gate":"g1","at":2}\n{"gate":"g2","at":4}\n')
    (tmp_path / "run.toml").write_text(
        '[[stream]]\niri = "http://ex/s"\n'
        '[[stream.source]]\nkind = "csv"\npath = "heat.csv"\nmapping = "heat.toml"\n'
        '[[stream.source]]\nkind = "jsonl"\npath = "gates.jsonl"\nmapping = "gate.toml"\n'
    )
    config = load_run_config(tmp_path / "run.toml")
    with wukongs.Engine() as engine:
        engine.stream("http://ex/s", batch_ms=1000, timing=True)
        query = engine.register(
            "REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <http://ex/s> [RANGE 4s TUMBLING] WHERE { ?s ?p ?o }"
        )
        with engine.link() as link:
            report = replay(config.streams, link, config.pipeline)
        engine.settle(timeout_s=60)
        (window,) = query.results(timeout_s=0)
    assert report.finished
    assert sorted(window.texts()) == [
        ("<http://ex/a>", '"20"'),
        ("<http://ex/b>", '"21"'),
        ("<http://ex/g1>", '"open"'),
        ("<http://ex/g2>", '"open"'),
    ]
