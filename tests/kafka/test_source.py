"""Topics of Kafka as sources: what a broker has is what the nodes get, once, by whatever way a run comes to its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.golden.run_output import run_wukongs
from tests.kafka.conftest import Broker, NewTopic
from tests.kafka.producing import Sent, produce
from tests.unit.adapters.conftest import Listen
from tests.unit.adapters.helpers import SCOPE
from tests.unit.adapters.receiver import RecordingNode, StreamSettings
from tests.unit.wire.conftest import wait_until
from wukongs import Engine
from wukongs.adapters.feeds import kafka
from wukongs.adapters.feeds.decoder import Decoder
from wukongs.adapters.mapping.times import TimeFormat
from wukongs.adapters.replay import PipelineReport, replay
from wukongs.adapters.run_config import RdfSource, RunConfig, load_run_config
from wukongs.adapters.source import NO_TIME, RowRange
from wukongs.errors import SettingsError
from wukongs.wire.link import IngestLink

MAPPING = """
subject = "http://ex/{id}"

[time]
column = "at"
format = "epoch_ms"

[[triple]]
predicate = "http://ex/p"
value = "{v}"
"""


def run_text(bootstrap: str, topic: str, more: str = "follow = false") -> str:
    return f"""
[[stream]]
iri = "http://ex/s"
batch_ms = 100

[stream.source]
kind = "kafka"
bootstrap = "{bootstrap}"
topic = "{topic}"
format = "jsonl"
mapping = "m.toml"
{more}
"""


def loaded(folder: Path, text: str, mapping: str = MAPPING) -> RunConfig:
    (folder / "m.toml").write_text(mapping)
    (folder / "run.toml").write_text(text)
    return load_run_config(folder / "run.toml")


def record(id: Any, at: int, v: Any = 1) -> bytes:
    return json.dumps({"id": str(id), "at": at, "v": v}).encode()


def run(config: RunConfig, address: str, say: Callable[[str], None] = print, **options: Any) -> PipelineReport:
    with IngestLink([address], timeout_s=20) as link:
        return replay(config.streams, link, config.pipeline, say=say, **options)


@contextmanager
def following(config: RunConfig, address: str, say: Callable[[str], None] = print) -> Iterator[None]:
    """Let a run go on beside a test, which ends it."""
    stop, errors = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            run(config, address, say, stop=stop)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def had(node: RecordingNode) -> Counter[tuple[int, str, str]]:
    """Time, last part of the subject, and text of the object of all tuples."""
    return Counter((at, s.rpartition("/")[2].rstrip(">"), o) for at, (s, _, o) in node.tuples["http://ex/s"])


def test_partitions_of_json_with_their_cells(broker: Broker, topic: NewTopic, listen: Listen, tmp_path: Path) -> None:
    name = topic(3)
    values = {(number % 3, number // 3): number for number in range(60)}
    produce(
        broker.bootstrap,
        name,
        [
            (
                partition,
                json.dumps({"v": number, "_id": -number}).encode(),
                {"timestamp": 1000 + number, "key": f"k{number}"},
            )
            for (partition, _), number in values.items()
        ],
    )
    mapping = """
subject = "http://ex/{_key}"
time = { column = "_time", format = "epoch_ms" }
[[triple]]
predicate = "http://ex/p"
value = "{_topic} {_partition} {_offset} {_row} {v} {_id}"
"""
    node = RecordingNode(s=StreamSettings(100))
    report = run(loaded(tmp_path, run_text(broker.bootstrap, name), mapping), listen(node))
    assert had(node) == Counter(
        (1000 + number, f"k{number}", f'"{name} {partition} {offset} {offset} {number} {-number}"')
        for (partition, offset), number in values.items()
    )
    assert (report.finished, report.set_aside, node.finished()) == (True, 0, {f"{name}/{one}" for one in range(3)})


def test_members_of_keys_in_json_and_headers_are_cells(
    broker: Broker, topic: NewTopic, listen: Listen, tmp_path: Path
) -> None:
    name = topic(1)
    key = json.dumps({"user": {"name": "ann"}, "n": 3, "l": [1]})
    messages: list[Sent] = [
        (0, record(1, 10), {"key": key, "headers": [("kind", b"x")]}),
        (0, record(2, 11), {"key": "no json"}),
        (0, record(3, 12), {"key": b"\xff"}),
        (0, record(4, 13), {}),
    ]
    produce(broker.bootstrap, name, messages)
    cells = ("_key.user.name", "_key.n", "_key.l", "_header.kind", "_key")
    triples = "".join(
        f'[[triple]]\npredicate = "http://ex/{place}"\nvalue = "{{{cell}}}"\n' for place, cell in enumerate(cells)
    )
    mapping = f'subject = "http://ex/{{id}}"\ntime = {{ column = "at", format = "epoch_ms" }}\n{triples}'
    node = RecordingNode(s=StreamSettings(100))
    run(loaded(tmp_path, run_text(broker.bootstrap, name), mapping), listen(node))
    found = {(s[-2], p[-2], o.replace("\\", "")) for _, (s, p, o) in node.tuples["http://ex/s"]}
    assert found == {
        ("1", "0", '"ann"'),
        ("1", "1", '"3"'),
        ("1", "3", '"x"'),
        ("1", "4", f'"{key}"'),
        ("2", "4", '"no json"'),
        ("3", "4", '"xff"'),
    }


def test_values_of_rdf_have_the_times_of_their_messages(
    broker: Broker, topic: NewTopic, listen: Listen, tmp_path: Path
) -> None:
    name = topic(2)
    lines = b"<http://ex/%d> <http://ex/p> _:b .\n_:b <http://ex/q> <http://ex/o> .\n"
    produce(broker.bootstrap, name, [(one % 2, lines % one, {"timestamp": 5000 + one}) for one in range(10)])
    text = run_text(broker.bootstrap, name).replace('"jsonl"\nmapping = "m.toml"', '"nt"\ntime = { column = "_time" }')
    node = RecordingNode(s=StreamSettings(100))
    run(loaded(tmp_path, text), listen(node))
    tuples = node.tuples["http://ex/s"]
    assert Counter(at for at, _ in tuples) == {5000 + one: 2 for one in range(10)}
    assert {at: o for at, (_, p, o) in tuples if p == "<http://ex/p>"} == {
        at: s for at, (s, p, _) in tuples if p == "<http://ex/q>"
    }
    assert len({s for _, (s, p, _) in tuples if p == "<http://ex/q>"}) == 10


def test_bad_messages_are_named_by_topic_partition_and_offset(
    broker: Broker, topic: NewTopic, listen: Listen, tmp_path: Path
) -> None:
    name = topic(2)
    values = [record("a", 100), b"{broken", None, b"", record("b", 50), b"[1]", record("c", 200), b"\xff\xfe"]
    produce(broker.bootstrap, name, [(1, value, {}) for value in values])
    node = RecordingNode(s=StreamSettings(100))
    told: list[tuple[str, int, int | None, int | None]] = []
    report = run(
        loaded(tmp_path, run_text(broker.bootstrap, name)),
        listen(node),
        on_bad=lambda part, had_good: told.extend((one.file, one.line, one.row, one.time_ms) for one in part.rows),
    )
    assert [subject for _, subject, _ in had(node)] == ["a", "c"]
    assert sorted(told) == [
        (f"{name}/1, offset {row}", 1, row, time_ms) for row, time_ms in ((1, None), (4, 50), (5, None), (7, None))
    ]
    assert str(report.examples[0]).startswith(f"{name}/1, offset 1, line 1, column 2: ")


def test_a_later_run_goes_on_where_the_nodes_are(
    broker: Broker, topic: NewTopic, listen: Listen, tmp_path: Path
) -> None:
    name = topic(2)
    node = RecordingNode(s=StreamSettings(100))
    address, config = listen(node), loaded(tmp_path, run_text(broker.bootstrap, name))
    produce(broker.bootstrap, name, [(one % 2, record(one, one), {}) for one in range(20)])
    assert run(config, address).triples == 20
    assert run(config, address).triples == 0
    produce(broker.bootstrap, name, [(one % 2, record(one, one), {}) for one in range(20, 30)])
    assert run(config, address).triples == 10
    assert had(node) == Counter((one, str(one), '"1"') for one in range(30))
    assert node.repeats == 0


def test_what_waits_is_counted(broker: Broker, topic: NewTopic, listen: Listen, tmp_path: Path) -> None:
    name, waiting = topic(2), list[int]()
    produce(broker.bootstrap, name, [(one % 2, record(one, one), {}) for one in range(50)])
    config = loaded(tmp_path, "[pipeline]\nrows_per_epoch = 20\n" + run_text(broker.bootstrap, name))
    address = listen(RecordingNode(s=StreamSettings(100)))
    run(config, address, on_progress=lambda report: waiting.append(report.waiting))
    assert waiting == [30, 10, 0]


def test_the_end_is_the_start_of_a_first_run_only(
    broker: Broker, topic: NewTopic, listen: Listen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, begun = kafka.KafkaFeed.begin, list[int]()

    def noted(feed: kafka.KafkaFeed, row: int, had: Sequence[int] = ()) -> int:
        begun.append(found := begin(feed, row, had))
        return found

    monkeypatch.setattr(kafka.KafkaFeed, "begin", noted)
    name = topic(1)
    node = RecordingNode(s=StreamSettings(100))
    address = listen(node)
    config = loaded(tmp_path, run_text(broker.bootstrap, name, 'start = "end"'))
    produce(broker.bootstrap, name, [(0, record(one, one), {}) for one in range(5)])
    with following(config, address):
        wait_until(lambda: begun == [5], "it knows where it begins")
        produce(broker.bootstrap, name, [(0, record(one, one), {}) for one in range(5, 10)])
        wait_until(lambda: len(had(node)) == 5, "arrived")
    produce(broker.bootstrap, name, [(0, record(one, one), {}) for one in range(10, 15)])
    with following(config, address):
        wait_until(lambda: len(had(node)) == 10, "arrived")
    assert had(node) == Counter((one, str(one), '"1"') for one in range(5, 15))


@pytest.mark.slow
def test_a_run_that_was_killed_is_taken_up(broker: Broker, topic: NewTopic, listen: Listen, tmp_path: Path) -> None:
    name, count = topic(3), 3000
    produce(broker.bootstrap, name, [(one % 3, record(one, one), {}) for one in range(count)])
    node = RecordingNode(s=StreamSettings(100))
    address = listen(node)
    text = "[pipeline]\nrows_per_epoch = 30\n" + run_text(broker.bootstrap, name, "follow = false")
    loaded(tmp_path, text)
    program = (
        "import sys; from pathlib import Path; from tests.kafka.test_source import run; "
        "from wukongs.adapters.run_config import load_run_config; run(load_run_config(Path(sys.argv[1])), sys.argv[2])"
    )
    lives, kept = 0, 0
    while not node.finished():
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "run.toml"), address],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        if lives < 2:
            wait_until(lambda kept=kept: sum(had(node).values()) >= kept + 200, "arrived", timeout_s=60)
            process.send_signal(signal.SIGKILL)
        assert process.wait(60) == (0 if lives >= 2 else -signal.SIGKILL)
        kept, lives = sum(had(node).values()), lives + 1
    assert lives == 3
    assert had(node) == Counter((one, str(one), '"1"') for one in range(count))


def test_a_silent_partition_does_not_hold_windows(broker: Broker, topic: NewTopic, tmp_path: Path) -> None:
    name, ends = topic(2), list[int]()
    config = loaded(tmp_path, run_text(broker.bootstrap, name, "idle_ms = 300"))
    with Engine() as engine:
        engine.stream("http://ex/s", batch_ms=100)
        engine.register(
            "REGISTER QUERY q AS SELECT ?s FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?s ?p ?o }",
            on_result=lambda window: ends.append(window.end_ms),
        )
        with following(config, engine.listen()):
            for one in range(40):
                produce(broker.bootstrap, name, [(0, record(one, 1000 + one * 100), {})])
                time.sleep(0.02)
            wait_until(lambda: bool(ends) and max(ends) >= 4000, "arrived")


def test_a_broker_that_goes_and_comes_back(broker: Broker, topic: NewTopic, listen: Listen, tmp_path: Path) -> None:
    name, said = topic(1), list[str]()
    node = RecordingNode(s=StreamSettings(100))
    config = loaded(tmp_path, run_text(broker.bootstrap, name, ""))
    with following(config, listen(node), said.append):
        produce(broker.bootstrap, name, [(0, record(1, 1), {})])
        wait_until(lambda: len(had(node)) == 1, "arrived")
        broker.down()
        try:
            wait_until(lambda: len(said) == 1, "arrived", timeout_s=30)
        finally:
            broker.up()
        wait_until(lambda: len(said) == 2, "arrived", timeout_s=60)
        produce(broker.bootstrap, name, [(0, record(2, 2), {})])
        wait_until(lambda: len(had(node)) == 2, "arrived", timeout_s=30)
    where = f"http://ex/s, topic {name} at {broker.bootstrap}: "
    assert said[0].startswith(f"{where}no answer (")
    assert said[1] == f"{where}the broker answers again"
    assert len(said) == 2


def test_a_run_ends_when_it_is_told_to_in_the_middle_of_an_epoch_without_a_broker(
    broker: Broker, topic: NewTopic, listen: Listen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, node, stop = topic(1), RecordingNode(s=StreamSettings(100)), threading.Event()
    produce(broker.bootstrap, name, [(0, record(1, 1), {})])
    config, address = loaded(tmp_path, run_text(broker.bootstrap, name, "")), listen(node)

    class Silent:
        def consume(self, count: int, timeout_s: float) -> list[Any]:
            stop.set()
            return []

        def assign(self, partitions: Any) -> None:
            pass

        def close(self) -> None:
            pass

    read = kafka._Cursor.read

    def silent(cursor: Any, first: int, end: int) -> Any:
        cursor._consumer = Silent()
        return read(cursor, first, end)

    monkeypatch.setattr(kafka._Cursor, "read", silent)
    report = run(config, address, stop=stop)
    assert (report.finished, report.rows, had(node)) == (False, 0, Counter())


def test_what_the_broker_has_let_go_of_is_told(broker: Broker, topic: NewTopic, listen: Listen, tmp_path: Path) -> None:
    name, said = topic(1), list[str]()
    node = RecordingNode(s=StreamSettings(100))
    address, config = listen(node), loaded(tmp_path, run_text(broker.bootstrap, name))
    produce(broker.bootstrap, name, [(0, record(one, one), {}) for one in range(3)])
    run(config, address)
    produce(broker.bootstrap, name, [(0, record(one, one), {}) for one in range(3, 6)])
    broker.drop(name, 0)
    produce(broker.bootstrap, name, [(0, record(9, 9), {})])
    run(config, address, said.append)
    assert had(node) == Counter((one, str(one), '"1"') for one in (0, 1, 2, 9))
    (line,) = said
    assert line.startswith(f"http://ex/s, {name}/0: offsets 3 to ")
    assert line.endswith(" were deleted before they were read")
    options = config.streams[0].sources[0].options  # type: ignore[union-attr]
    nt = RdfSource(paths=(), predicate="", time_format=TimeFormat(), format="nt")
    source = kafka.KafkaSource(options, 0, Decoder("p/0", "p/0", nt))
    rows = source.read(RowRange(1, 5, 0, 0, NO_TIME), SCOPE, 62)
    assert (len(rows.encoded), rows.newest_ms) == (0, NO_TIME)
    assert [(one.file, one.row, one.reason[:22]) for one in rows.malformed] == [
        ("p/0, offset 1", 1, "offsets 1 to 4 were de")
    ]
    kafka._forget(source.key(SCOPE))


def test_ranges_are_read_again_and_in_any_order(broker: Broker, topic: NewTopic) -> None:
    name = topic(1)
    values = [b"<http://ex/%d> <http://ex/p> <http://ex/o> ." % one for one in range(500)]
    produce(broker.bootstrap, name, [(0, value, {"timestamp": 1 + one}) for one, value in enumerate(values)])
    nt = RdfSource(paths=(), predicate="", time_format=TimeFormat(), format="nt")
    source = kafka.KafkaSource(kafka.KafkaOptions(broker.bootstrap, name), 0, Decoder("p/0", "p/0", nt))
    for first, end in ((0, 10), (10, 20), (10, 20), (100, 500), (5, 7), (7, 8), (300, 301)):
        rows = source.read(RowRange(first, end, 0, 0, NO_TIME), SCOPE, 62)
        assert rows.offsets.tolist() == list(range(first, end))
        assert rows.encoded.timestamps.tolist() == list(range(first + 1, end + 1))
    kafka._forget(source.key(SCOPE))


def test_a_topic_that_was_made_anew_is_refused(broker: Broker, topic: NewTopic, listen: Listen, tmp_path: Path) -> None:
    name = topic(1)
    node = RecordingNode(s=StreamSettings(100, resume={f"{name}/0": 50}))
    with pytest.raises(SettingsError, match=r"the nodes have 50 offsets of it, .* has 0: it is another topic"):
        run(loaded(tmp_path, run_text(broker.bootstrap, name)), listen(node))


def test_topics_and_properties_that_will_not_do(
    broker: Broker, listen: Listen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = listen(RecordingNode(s=StreamSettings(100)))
    for text, reason in (
        (run_text(broker.bootstrap, "no.such"), "topic no.such at .*Unknown topic or partition"),
        (run_text(broker.bootstrap, "t", 'kafka = { "no.such" = 1 }'), 'No such configuration property: "no.such"'),
        (run_text("127.0.0.1:1", "t"), "topic t at 127.0.0.1:1: .*refused"),
    ):
        monkeypatch.setattr(kafka, "OPEN_S", 3.0 if '"127.0.0.1:1"' in text else 30.0)
        with pytest.raises(SettingsError, match=reason):
            run(loaded(tmp_path, text), address)


@pytest.mark.spark
@pytest.mark.slow
def test_windows_are_equal_in_process_and_through_spark(broker: Broker, topic: NewTopic, tmp_path: Path) -> None:
    name = topic(3)
    times = [7 * one for one in range(1200)]
    produce(broker.bootstrap, name, [(one % 3, record(one, at, one % 5), {}) for one, at in enumerate(times)])
    query = '''
[[query]]
name = "q"
text = """
REGISTER QUERY q AS SELECT ?v (COUNT(?s) AS ?n)
FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?s <http://ex/p> ?v } GROUP BY ?v
"""
'''
    loaded(tmp_path, run_text(broker.bootstrap, name) + query)
    expected: dict[int, Counter[str]] = {}
    for one, at in enumerate(times):
        expected.setdefault(-(-at // 1000) * 1000, Counter())[f'"{one % 5}"'] += 1
    for options in (("--local",), ()):
        output = run_wukongs(tmp_path / "run.toml", "--rows", "100", *options)
        found = {end: {v: int(n.split('"')[1]) for v, n in rows} for (_, end), rows in output.rows.items() if rows}
        assert found == {end: dict(counts) for end, counts in expected.items()}, options
