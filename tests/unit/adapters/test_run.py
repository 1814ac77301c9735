"""`wukongs run` from its file to its exit status, with a pipeline that stands in for Spark."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.clusters import PATIENT, cluster
from tests.faces import served, served_node
from tests.inside import ingest_of
from tests.processes import child
from tests.unit.wire.conftest import wait_until
from wukongs.adapters.replay import PipelineReport, replay
from wukongs.adapters.run import run
from wukongs.adapters.run_config import load_run_config
from wukongs.engine import Engine
from wukongs.errors import DataError, SettingsError, StreamError
from wukongs.remote.client import connect
from wukongs.remote.service import Service
from wukongs.settings import Settings
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.link import IngestLink

TUPLES = "".join(f"<http://ex/{time_ms}> <http://ex/p> <http://ex/o> . {time_ms}\n" for time_ms in (100, 900, 1500))
STREAM = '[[stream]]\niri = "http://ex/s"\nbatch_ms = 100\nsource = { kind = "timestamped", path = "s.nt" }\n'
QUERY = """[[query]]
name = "q"
text = "REGISTER QUERY q AS SELECT ?s FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?s ?p ?o } ORDER BY ?s"
"""
ASK = '[[ask]]\nname = "all"\ntext = "SELECT ?s { ?s ?p ?o }"\n'


def replay_without_spark(
    streams: Any,
    addresses: Any,
    config: Any,
    *,
    starting: None,
    token: str | None,
    keys: Any,
    checkpoint: str | None = None,
    **options: Any,
) -> PipelineReport:
    with IngestLink(addresses, token=token, keys=keys) as link:
        return replay(streams, link, config, **options)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("wukongs.adapters.spark.pipeline.run_pipeline", replay_without_spark)
    monkeypatch.setattr("wukongs.adapters.spark.session.start_early", lambda parallelism: None)
    monkeypatch.setattr("sys.setswitchinterval", lambda seconds: None)
    (tmp_path / "s.nt").write_text(TUPLES)
    return tmp_path


def run_text(folder: Path, text: str, **options: Any) -> int:
    (folder / "run.toml").write_text(text)
    return run(folder / "run.toml", **options)


def test_a_run_prints_windows_and_answers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_text(folder, STREAM + QUERY + ASK, rows_shown=1) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[:6] == [
        "all\tbefore\t0 rows",
        "q\t(0, 1000]\t2 rows",
        "\t<http://ex/100>",
        "q\t(1000, 2000]\t1 row",
        "\t<http://ex/1500>",
        "all\tafter\t3 rows",
    ]
    assert lines[-1] == "stored triples: 0 before, 3 after"
    assert err == "starting local Spark ...\nstreaming\n"


def test_a_query_without_a_window_reports_changes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its reports may be of several epochs, but their sum is the content."""
    text = QUERY.replace("?s FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE", "?s WHERE").replace("ORDER BY ?s", "")
    assert run_text(folder, STREAM + text, rows_shown=10) == 0
    lines = capsys.readouterr().out.splitlines()
    reports = [line for line in lines if line.startswith("q\t")]
    assert reports
    assert all(line.endswith((" in all", " changed")) for line in reports)
    rows = [line.split("\t")[1:] for line in lines if line.startswith("\t")]
    assert sorted(rows) == [["+1", f"<http://ex/{time_ms}>"] for time_ms in (100, 1500, 900)]
    assert lines[-1] == "stored triples: 0 before, 3 after"


@pytest.mark.parametrize(("head", "is_local"), [('[pipeline]\nengine = "local"\n', False), ("", True)])
def test_a_run_without_spark_needs_no_java_and_gives_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, head: str, is_local: bool
) -> None:
    assert run_text(folder, STREAM + QUERY + ASK, rows_shown=1) == 0
    through_spark = capsys.readouterr().out.splitlines()

    def refuse(*_arguments: object, **_options: object) -> PipelineReport:
        raise AssertionError("there is no Spark here")

    monkeypatch.setattr("wukongs.adapters.spark.pipeline.run_pipeline", refuse)
    monkeypatch.setattr("wukongs.adapters.spark.session.start_early", refuse)
    assert run_text(folder, head + STREAM + QUERY + ASK, rows_shown=1, is_local=is_local) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[:6] == through_spark[:6]
    assert out.splitlines()[-1] == through_spark[-1]
    assert err == "reading the sources ...\nstreaming\n"


def test_where_java_is_missing_the_error_names_the_way_without(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(parallelism: int) -> None:
        raise SettingsError("the pipeline needs Java 17 or newer, found none")

    monkeypatch.setattr("wukongs.adapters.spark.session.start_early", missing)
    with pytest.raises(
        SettingsError, match=r"found none\. Without Java: `wukongs run --local`, or engine = .*run\.toml"
    ):
        run_text(folder, STREAM)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("", SettingsError, r"run\.toml: expected at least one \[\[stream\]\] or \[\[ask\]\], found neither"),
        (
            STREAM + 'into = "no iri"\n',
            SettingsError,
            r"run\.toml, line 5, stream\[0\]\.into: expected an IRI, .* found 'no iri'",
        ),
        (
            STREAM + QUERY.replace("RANGE 1s", "RANGE 150ms"),
            StreamError,
            r"run\.toml, line 7, column 65: RANGE of 150 ms .* no multiple of its batch_ms = 100",
        ),
        (
            STREAM + QUERY.replace("REGISTER QUERY q AS", ""),
            StreamError,
            r"run\.toml, \[\[query\]\] q: expected REGISTER QUERY name AS",
        ),
    ],
)
def test_what_the_engine_refuses_is_said_with_its_place(
    folder: Path, text: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        run_text(folder, text)


@pytest.mark.parametrize("is_local", [False, True])
def test_rows_that_are_set_aside_are_shown_and_kept(
    folder: Path, capsys: pytest.CaptureFixture[str], is_local: bool
) -> None:
    lines = [f"<http://ex/{row}> <http://ex/p> <http://ex/o> . {row * 100}\n" for row in range(30)]
    lines[3], lines[20] = "what is this\n", lines[20].replace("2000", "5")
    (folder / "s.nt").write_text("".join(lines))
    assert run_text(folder, STREAM + QUERY, is_local=is_local) == 0
    out, err = capsys.readouterr()
    path = folder / "run.dead.jsonl"
    assert f"2 rows set aside (1 malformed, 1 late), written to {path}, such as:" in out.splitlines()
    assert [line for line in err.splitlines() if line.startswith("set aside: ")] == [
        f"set aside: {folder}/s.nt, line 4, column 1: expected a subject: an IRI in <> or a blank node: what is this",
        f"set aside: {folder}/s.nt, line 21, column 1: its time 5 ms is before 1900 ms: {lines[20].strip()}",
    ]
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first.pop("run") == second.pop("run")
    assert first == {
        "kind": "malformed",
        "reason": "expected a subject: an IRI in <> or a blank node",
        "stream": "http://ex/s",
        "file": f"{folder}/s.nt",
        "line": 4,
        "column": 1,
        "row": 3,
        "byte": len("".join(lines[:3])),
        "text": "what is this",
    }
    assert (second["kind"], second["row"], second["byte"], second["time_ms"]) == (
        "late",
        20,
        len("".join(lines[:20])),
        5,
    )
    assert run_text(folder, STREAM + QUERY, is_local=is_local) == 0
    assert len(path.read_text().splitlines()) == 4


def test_a_run_without_bad_rows_makes_no_file_of_them(folder: Path) -> None:
    assert run_text(folder, STREAM + QUERY) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["run.toml", "s.nt"]


@pytest.mark.parametrize("is_local", [False, True])
def test_too_many_bad_records_fail_the_run_after_its_summary(
    folder: Path, capsys: pytest.CaptureFixture[str], is_local: bool
) -> None:
    (folder / "s.nt").write_text(TUPLES + "oops\n# no record\n")
    with pytest.raises(
        DataError, match=r"s\.nt \(stream http://ex/s\): 1 of 4 records are bad \(25\.0%, .* All are in"
    ):
        run_text(folder, STREAM + QUERY, is_local=is_local)
    assert "q\t(1000, 2000]\t1 row" in capsys.readouterr().out.splitlines()
    assert run_text(folder, "[pipeline]\nbad_records_max = 0.25\n" + STREAM, is_local=is_local) == 0


@pytest.mark.parametrize("is_local", [False, True])
def test_a_file_of_which_nothing_can_be_read_stops_the_run(folder: Path, is_local: bool) -> None:
    (folder / "s.nt").write_text("1;2;3\n" * 200_000)
    text = '[pipeline]\ndead_letters = "bad.jsonl"\n' + STREAM
    expected = (
        r"s\.nt: the first 1,000 records are all bad: nothing of it could be read\. Check .* For example .*, line 1,"
    )
    with pytest.raises(DataError, match=expected):
        run_text(folder, text, is_local=is_local)
    assert len((folder / "bad.jsonl").read_text().splitlines()) == 1000


def test_an_error_of_the_pipeline_ends_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> PipelineReport:
        raise DataError("cannot be read any more", "s.nt")

    monkeypatch.setattr("wukongs.adapters.spark.pipeline.run_pipeline", fail)
    with pytest.raises(DataError, match=r"s\.nt: cannot be read any more"):
        run_text(folder, STREAM)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_pipeline_before_the_run_ends(folder: Path, number: int, status: int) -> None:
    (folder / "run.toml").write_text(STREAM)
    program = """
import sys, time, wukongs.adapters.spark.pipeline, wukongs.adapters.spark.session, wukongs.cli
from wukongs.adapters.replay import PipelineReport
def wait(streams, addresses, config, *, starting, checkpoint, token, keys, stop, on_progress, on_bad, say):
    print("waiting", flush=True)
    stop.wait()
    time.sleep(0.3)
    print("stopped", flush=True)
    return PipelineReport()
wukongs.adapters.spark.pipeline.run_pipeline = wait
wukongs.adapters.spark.session.start_early = lambda parallelism: None
sys.exit(wukongs.cli.main(sys.argv[1:]))
"""
    command = [sys.executable, "-c", program, "run", str(folder / "run.toml")]
    with child(command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (status, "stopped\n")
    assert err.splitlines()[-2:] == ["interrupted: stopping Spark, which may take some seconds ...", "interrupted"]
    assert "Traceback" not in err


def test_sigterm_ends_a_run_that_loads_and_means_afterwards_what_it_meant(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def load(*_arguments: object) -> None:
        assert signal.getsignal(signal.SIGTERM) != before
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("wukongs.adapters.run._load", load)
    assert run_text(folder, STREAM) == 143
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_local_run_with_whole_epochs_a_summary_and_no_folder(
    folder: Path, number: int, status: int
) -> None:
    lines = (f"<http://ex/{row}> <http://ex/p> <http://ex/o> . {row * 10}\n" for row in range(20_000))
    (folder / "s.nt").write_text("".join(lines))
    (folder / "run.toml").write_text("[pipeline]\nspeed = 10\n" + STREAM + QUERY + ASK)
    (folder / "tmp").mkdir()
    set_folder = "import os, sys; os.environ['TMPDIR'] = sys.argv.pop(1); import wukongs.cli; "
    program = set_folder + "sys.exit(wukongs.cli.main(sys.argv[1:]))"
    command = [
        sys.executable,
        "-c",
        program,
        str(folder / "tmp"),
        "run",
        "--local",
        "--plain",
        str(folder / "run.toml"),
    ]
    with child(command) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("q\t"):
            pass
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert "Traceback" not in err
    assert err.splitlines()[-2:] == ["interrupted: stopping ...", "interrupted: what was done until then"]
    (tuples,) = (line.split(" tuples in ")[0] for line in out.splitlines() if " tuples in " in line)
    (after,) = (line.split("\t")[2] for line in out.splitlines() if line.startswith("all\tafter"))
    assert 0 < int(tuples.replace(",", "")) < 20_000
    assert (int(tuples.replace(",", "")) - 1) % 10 == 0
    assert after == f"{tuples} rows"
    assert list((folder / "tmp").iterdir()) == []


@pytest.mark.parametrize("is_local", [False, True])
def test_a_run_at_a_cluster_gives_the_windows_and_totals_of_an_engine(
    folder: Path, capsys: pytest.CaptureFixture[str], is_local: bool
) -> None:
    def told() -> tuple[list[str], list[str]]:
        captured = capsys.readouterr()
        windows = [line for line in captured.out.splitlines() if line.startswith(("q\t", "\t"))]
        return windows, [line for line in (captured.out + captured.err).splitlines() if "stored triples:" in line]

    assert run_text(folder, STREAM + QUERY, rows_shown=3) == 0
    expected = told()
    assert [len(lines) for lines in expected] == [5, 1]
    with cluster(2, silence_pulses_max=PATIENT) as nodes, ExitStack() as stack:
        addresses = []
        for node in nodes:
            service = Service(node.engine, Settings(), node.backend)
            stack.callback(service.close)
            socket = ClientSocket("tcp://127.0.0.1:*", service.handlers, node.intake)
            stack.callback(socket.close)
            addresses.append(socket.address)
        for node in nodes:
            node.backend.ingest_addresses = tuple(addresses)
        assert (
            run_text(folder, STREAM + QUERY, rows_shown=3, connect=lambda: connect(addresses[1]), is_local=is_local)
            == 0
        )
        assert nodes[1].engine.queries() == []
        wait_until(lambda: nodes[0].engine.queries() == [], "the other node has heard that the query is closed")
    assert told() == expected


@pytest.mark.parametrize("node_count", [0, 2])
def test_a_newer_retraction_by_event_time_stays_whatever_a_run_brings_later(folder: Path, node_count: int) -> None:
    """node_count: of the cluster, 0: an engine alone."""
    text = STREAM.replace("batch_ms = 100", 'batch_ms = 100\nretractions = "event_time"')
    with ExitStack() as stack:
        if node_count:
            nodes = stack.enter_context(cluster(node_count, silence_pulses_max=PATIENT))
            addresses, engine = [stack.enter_context(served_node(node, Settings())) for node in nodes], nodes[1].engine
            for node in nodes:
                node.backend.ingest_addresses = tuple(addresses)
        else:
            engine = stack.enter_context(Engine())
            addresses = [stack.enter_context(served(engine, Settings(), ingest_of(engine)))]
        other = engine.stream("http://ex/other", batch_ms=100, retractions="event_time")
        gone = {"subject": ["<http://ex/900>"], "predicate": ["<http://ex/p>"], "object": ["<http://ex/o>"]}
        other.push_arrow(pa.table({**gone, "timestamp_ms": [950], "op": ["-"]}))
        other.advance(3000)
        engine.settle(timeout_s=60)
        assert run_text(folder, text + QUERY, connect=lambda: connect(addresses[-1]), is_local=True) == 0
        assert engine.declared("http://ex/s").options["retractions"] == "event_time"
        engine.settle(timeout_s=60)
        found = [str(subject) for (subject,) in engine.query("SELECT ?s { ?s ?p ?o } ORDER BY ?s")]
        assert found == ["http://ex/100", "http://ex/1500"]


def test_a_run_goes_on_with_the_queries_of_one_that_was_killed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, though the node cannot know yet that the other one was killed."""
    with ExitStack() as stack:
        engine = stack.enter_context(Engine())
        service = Service(engine, Settings(), silent_s=60)
        stack.callback(service.close)
        socket = ClientSocket("tcp://127.0.0.1:*", service.handlers, ingest_of(engine))
        stack.callback(socket.close)
        killed = connect(socket.address)
        killed.stream("http://ex/s", batch_ms=100)
        (folder / "run.toml").write_text(STREAM + QUERY)
        killed.register(load_run_config(folder / "run.toml").queries[0].text)
        assert run_text(folder, STREAM + QUERY, connect=lambda: connect(socket.address), is_local=True) == 0
        assert engine.queries() == []
    out, err = capsys.readouterr()
    assert "q\t(0, 1000]\t2 rows" in out
    assert "query q: 2 clients have registered it, and each gets every window" in err


@pytest.mark.parametrize("is_there", [False, True])
def test_a_source_that_follows_the_wall_clock_feeds_a_stream_that_is_there_with_it_too(
    folder: Path, is_there: bool
) -> None:
    """Else the engine's stream is no idle one: it would be closed up to now before the source is read."""
    text = """
[[stream]]
iri = "http://ex/s"
batch_ms = 100
idle_timeout_ms = 3_600_000
idle_advance = "wall"
source = { kind = "stdin", format = "timestamped" }
"""
    with Engine() as engine, ExitStack() as stack:
        service = Service(engine, Settings())
        stack.callback(service.close)
        socket = ClientSocket("tcp://127.0.0.1:*", service.handlers, ingest_of(engine))
        stack.callback(socket.close)
        if is_there:
            client = stack.enter_context(connect(socket.address))
            client.stream("http://ex/s", batch_ms=100, idle_timeout_ms=3_600_000, idle_advance="wall")
        assert run_text(folder, text, connect=lambda: connect(socket.address), is_local=True) == 0
        assert engine.declared("http://ex/s").options.get("idle_advance") == ("wall" if is_there else None)
        other = text.replace("3_600_000", "3_500_000")
        with pytest.raises(SettingsError, match="is declared already"):
            run_text(folder, other.replace("batch_ms = 100", "batch_ms = 200"), connect=lambda: connect(socket.address))
