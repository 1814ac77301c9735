"""The runs of `wukongs bench` on tiny data: what is written, what is refused, and how a run goes on."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.bench.test_peers import stub
from wukongs.bench import runs
from wukongs.bench.__main__ import main as parts_main
from wukongs.bench.compare import as_tables
from wukongs.bench.experiments import latency, one_shot, session, soak, through_spark
from wukongs.bench.experiments.soak import slope_percent
from wukongs.bench.lsbench.data import QUICK_DATA, STREAMS, generate_lsbench
from wukongs.bench.lsbench.replay import feed_of
from wukongs.bench.peers import Rows
from wukongs.bench.peers.in_process import Oxigraph
from wukongs.bench.record import BenchError, Record
from wukongs.cli import main
from wukongs.errors import SettingsError

Line = dict[str, Any]
METRICS = {"latency": {"latency", "execution"}, "one-shot": {"execution"}}


def bench(*arguments: str) -> int:
    return main(["bench", *arguments, "--quick"])


def lines_in(folder: Path) -> list[Line]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()]


def about(folder: Path) -> Line:
    found: Line = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return found


def of_engine(lines: list[Line], engine: str) -> list[Line]:
    return [line for line in lines if line["engine"] == engine]


@contextmanager
def wrong_oxigraph(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[None]:
    """One answer of pyoxigraph, counted from 0, has a row too many."""
    whole, count = Oxigraph.select, [0]

    def select(self: Oxigraph, text: str) -> Rows:
        count[0] += 1
        rows = whole(self, text)
        return [*rows, ("<http://e/none>",)] if count[0] == at + 1 else rows

    with monkeypatch.context() as patched:
        patched.setattr(Oxigraph, "select", select)
        yield


# --- what is measured -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_engines_are_measured_and_checked_in_the_same_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("lsbench", "--queries", "L2,S1", "--experiment", "latency,one-shot", "--report", str(tmp_path))
    assert bench(*arguments, "--peers", "pyoxigraph,rdflib", "--peers", f"stub={stub('right')}") == 0
    out, err = capsys.readouterr()
    lines = lines_in(tmp_path)
    engines = {"wukongs": "pyoxigraph", "pyoxigraph": "wukongs", "rdflib": "pyoxigraph", "stub": "pyoxigraph"}
    found = {(line["experiment"], line["query"], line["engine"], line["metric"]) for line in lines}
    queries = {"latency": "L2", "one-shot": "S1"}
    assert found == {
        (experiment, query, engine, metric)
        for experiment, query in queries.items()
        for engine in engines
        for metric in METRICS[experiment]
    }
    for line in lines:
        assert line["checked"] == engines[line["engine"]]
        assert line["unit"] == "ms"
        assert 0 < line["low"] <= line["median"] <= line["high"] <= 1.001 * max(line["values"])
        assert line["count"] == len(line["values"]) >= 1
        assert line["rows"] > 0, "nothing would be measured"
        assert 0 <= line["busy"] <= 1
    assert lines[0]["case"] == {"users": 60, "rate": 1.0}
    run = about(tmp_path)
    assert (run["version"], run["benchmark"], run["is_complete"]) == (1, "lsbench", True)
    assert run["began"] <= run["ended"]
    assert run["data"]["users"] == 60
    assert "| L2 | stub | users 60, rate 1.0 | latency, ms |" in out
    assert "latency: L2: wukongs, pyoxigraph, rdflib, stub\n" in err


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `wukongs bench all --quick --peers pyoxigraph --report`."""
    folder = tmp_path_factory.mktemp("all")
    assert bench("all", "--peers", "pyoxigraph", "--report", str(folder)) == 0
    return folder


@pytest.mark.rare
@pytest.mark.slow
def test_every_experiment_of_lsbench_runs(whole: Path) -> None:
    lines = lines_in(whole / "lsbench")
    measured = {(line["experiment"], line["query"]) for line in of_engine(lines, "wukongs") if "skipped" not in line}
    of_windows, one_shot = ([f"{kind}{number}" for number in range(1, 7)] for kind in "LS")
    assert measured == {
        *(("latency", f"L{number}") for number in range(1, 13)),
        *((name, query) for name in ("one-shot", "one-shot-with-streams") for query in one_shot),
        *(("rate", query) for query in (*of_windows, "all")),
        ("load", "stored"),
        *((name, query) for name in ("injection", "memory") for query in (*STREAMS, "all streams")),
        *(("scalarization", query) for query in ("bounded", "not bounded")),
        *(("fault-tolerance", query) for query in ("off", "on", "synced later", "logging", "recovery")),
        *(("throughput", query) for query in ("L1-L3", "L1-L6")),
        *(("throughput", f"{query} of L1-L3") for query in of_windows[:3]),
        *(("throughput", f"{query} of L1-L6") for query in of_windows),
        *(("queries", way) for way in ("from a table", "one by one")),
        ("soak", "everything"),
        *(("scale", query) for query in ("graph", *one_shot)),
    }
    ways = {line["case"]["streams"] for line in lines if line["experiment"] == "one-shot-with-streams"}
    assert ways == {"on", "off"}
    skipped = [line for line in lines if "skipped" in line]
    assert {(line["experiment"], line["engine"]) for line in skipped} == {("one-shot-with-streams", "pyoxigraph")}


@pytest.mark.rare
@pytest.mark.slow
def test_a_soak_tells_what_it_had_over_time_and_what_grew(whole: Path) -> None:
    lines = [line for line in lines_in(whole / "lsbench") if line["experiment"] == "soak"]
    metrics = {"latency", "subscriber", "one-shot", "memory", "folder", "files", "behind"}
    over_time = [line for line in lines if "minute" in line["case"]]
    assert {line["metric"] for line in over_time} == metrics
    minutes = [line["case"]["minute"] for line in over_time if line["metric"] == "memory"]
    assert len(minutes) >= 3
    assert minutes == sorted(minutes)
    assert all(line["median"] > 0 for line in over_time if line["metric"] in metrics - {"folder", "behind"})
    growth = {line["metric"] for line in lines if "minute" not in line["case"]}
    always = {f"growth of {metric}" for metric in ("memory", "folder", "files")}
    others = {f"growth of {metric}" for metric in ("latency", "subscriber", "one-shot")}
    assert always <= growth <= always | others, "a busy machine may have too few samples with windows for a slope"


def test_a_slope_is_that_of_the_line_without_the_first_fifth() -> None:
    minutes = [float(minute) for minute in range(1, 61)]
    rising = [100.0 if minute <= 12 else 50 + minute for minute in minutes]
    assert slope_percent(minutes, rising) == pytest.approx(60 / np.median(rising[12:]) * 100)
    assert slope_percent(minutes, [1000.0] * 12 + [7.0] * 48) == pytest.approx(0)
    assert slope_percent(minutes[:2], [1.0, 2.0]) is None


def test_a_sample_in_which_no_window_came_has_no_latency(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    record = Record.open(None, "lsbench", {}, {})
    here = session.Session(record, {}, {}, (), 1, True, session.Machine(0.0))
    workload: Any = SimpleNamespace(posters=["u1"])
    run = soak._Soak(here, Any, workload, tmp_path)  # type: ignore[arg-type]
    reader: Any = SimpleNamespace(latency_s=[], came=0)
    run._readers["L1"] = reader
    run._sample(1.0, 0.0)
    run._asked_s.append(0.002)
    run._sample(2.0, 0.0)
    found = [(line["case"]["minute"], line["metric"]) for line in record.lines.values()]
    always = ["memory", "folder", "files", "behind"]
    assert found == [*((1.0, metric) for metric in always), *((2.0, metric) for metric in ("one-shot", *always))]
    assert soak.medians_of("one-shot", run.minutes, run.samples) == [(2.0, 2.0)]
    assert soak.medians_of("latency", run.minutes, run.samples) == []


@pytest.mark.rare
@pytest.mark.slow
def test_many_queries_are_measured_from_tables_and_one_by_one(whole: Path) -> None:
    lines = [line for line in lines_in(whole / "lsbench") if line["experiment"] == "queries"]
    ways = {"from a table": {"register", "close", "size", "latency", "tick"}}
    ways["one by one"] = ways["from a table"] - {"latency"}
    for count in (1, 200):
        for way, metrics in ways.items():
            found = [line for line in lines if (line["query"], line["case"]) == (way, {"queries": count})]
            assert {line["metric"] for line in found} == metrics
            assert all(line["rows"] == 200 for line in found), "as many rows, however many queries"


def test_an_experiment_that_begins_anew_has_no_lines_of_its_first_try(tmp_path: Path) -> None:
    record = Record.open(tmp_path, "lsbench", {}, {})
    for experiment in ("soak", "latency"):
        record.measured(experiment, "L1", "wukongs", {"minute": 1}, "latency", [1.0], checked="nothing")
    record.forget("soak")
    assert [line["experiment"] for line in lines_in(tmp_path)] == ["latency"]
    record.measured("soak", "L1", "wukongs", {"minute": 2}, "latency", [1.0], checked="nothing")
    assert [line["experiment"] for line in Record.open(tmp_path, "lsbench", {}, {}).lines.values()] == [
        "latency",
        "soak",
    ]


def test_long_experiments_run_only_if_they_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    one = runs._BENCHMARKS["lsbench"]
    noting = {name: lambda *_, name=name: ran.append(name) for name in one.experiments}
    monkeypatch.setitem(
        runs._BENCHMARKS, "lsbench", replace(one, experiments=noting, read=lambda options: ({}, {}, None))
    )
    runs.run("lsbench", runs.Options())
    usual = [name for name in noting if name not in (*runs.LONG, *runs.ON_REQUEST)]
    assert ran == usual
    ran.clear()
    runs.run("lsbench", runs.Options(experiments=("soak",), minutes=1))
    assert ran == ["soak"]
    with pytest.raises(SettingsError, match="--minutes is of lsbench and all, not of citybench"):
        runs.run("citybench", runs.Options(minutes=1))


@pytest.mark.slow
def test_rates_beyond_the_one_that_is_too_much_are_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wukongs.bench.experiments.rate.BEHIND_MS", -1.0)
    arguments = ("lsbench", "--experiment", "rate", "--queries", "L1", "--rate", "1,0.5", "--report", str(tmp_path))
    assert bench(*arguments) == 0
    lines = {(line["case"]["rate"], line["query"], line.get("metric")): line for line in lines_in(tmp_path)}
    shares = {key for key in lines if str(key[2]).startswith("busy: ")}
    assert {(0.5, "all", f"busy: {part}") for part in ("pushing", "sealing and firing", "of it firings")} <= shares
    assert set(lines) - shares == {
        (0.5, "L1", "latency"),
        (0.5, "all", "tuples"),
        (0.5, "all", "behind"),
        (1, "all", None),
    }
    why = lines[1, "all", None]["skipped"]
    assert why.startswith("not tried: the engine fell behind at rate 0.5, where ")
    assert why.endswith(" % of the time")
    assert "fell behind" in capsys.readouterr().err
    assert bench(*arguments) == 0
    assert len(lines_in(tmp_path)) == len(lines), "nothing is measured again"
    assert {line["case"]["queries"] for line in lines.values()} == {"L1"}, "it is no figure of L1-L6 together"


@pytest.mark.slow
def test_many_queries_are_drawn_checked_and_told_by_their_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("lsbench", "--experiment", "throughput", "--queries", "L1-L3", "--report")
    assert bench(*arguments, str(tmp_path / "right")) == 0
    lines = lines_in(tmp_path / "right")
    assert {line["case"]["registered"] for line in lines} == {40, 80}
    of_80 = {(line["query"], line["metric"]): line for line in lines if line["case"]["registered"] == 80}
    classes = [f"L{number} of L1-L3" for number in (1, 2, 3)]
    assert set(of_80) == {
        *((query, metric) for query in (*classes, "L1-L3") for metric in ("latency", "execution")),
        ("L1-L3", "register"),
        ("L1-L3", "throughput"),
    }
    firings = of_80["L1-L3", "throughput"]["count"]
    counts = [of_80[query, "latency"]["count"] // firings for query in classes]
    assert sum(counts) == of_80["L1-L3", "latency"]["count"] // firings == 80, "each query has a reader"
    assert counts[0] == counts[2] < counts[1] < 1.4 * counts[0], "L2 comes as much oftener as it is quicker"
    assert of_80["L1-L3", "throughput"]["unit"] == "queries/s"
    assert of_80["L1-L3", "register"]["count"] == 80
    assert of_80[classes[2], "execution"]["rows"] > 0, "nothing would be measured"
    with wrong_oxigraph(monkeypatch, 0):
        assert bench(*arguments, str(tmp_path / "wrong")) == 0
    wrong, *right = lines_in(tmp_path / "wrong")
    assert wrong["skipped"].startswith("answers otherwise: ")
    assert {line["case"]["registered"] for line in right} == {80}, "the other number is measured"


@pytest.mark.slow
def test_scalar_snapshots_are_measured_beside_what_vectors_would_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("lsbench", "--experiment", "scalarization", "--report")
    assert bench(*arguments, str(tmp_path / "right")) == 0
    found = {
        (line["query"], line["metric"], line["case"]["streams"], line["case"]["snapshots"]): line["median"]
        for line in lines_in(tmp_path / "right")
    }
    keys = found["bounded", "keys", 2, 2]
    assert 0 < keys < 2 * (3177 + 2826 + 344 + 702 + 152)
    for streams, kept in ((2, 2), (2, 3), (5, 2)):
        more = found["not bounded", "size", streams, kept] - found["bounded", "size", streams, kept]
        assert more * 1e6 == pytest.approx(8 * keys * streams * kept, rel=1e-3)
    assert found["bounded", "size", 2, 2] == found["bounded", "size", 5, 2], "streams are not in the store"
    monkeypatch.setattr("wukongs.store.batch.Batch.__len__", lambda batch: 1)
    assert bench(*arguments, str(tmp_path / "wrong")) == 0
    assert all(line["skipped"].startswith("answers otherwise: ") for line in lines_in(tmp_path / "wrong"))


@pytest.mark.slow
def test_the_cost_of_durability_and_recovery_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("lsbench", "--experiment", "fault-tolerance", "--report")
    assert bench(*arguments, str(tmp_path / "right")) == 0
    found = {(line["query"], line["metric"]): line for line in lines_in(tmp_path / "right")}
    ways, metrics = ("off", "on", "synced later"), ("latency", "execution", "push", "throughput")
    assert set(found) == {
        *((way, metric) for way in ways for metric in metrics),
        *(("logging", metric) for metric in ("a stream batch", "log", "syncs")),
        *(("recovery", metric) for metric in ("restart", "first answer")),
    }
    assert found["logging", "log"]["median"] > 10, "bytes of a tuple"
    assert found["logging", "syncs"]["median"] > 0
    assert 0 < found["recovery", "restart"]["median"] < found["recovery", "first answer"]["median"]
    assert {line["checked"] for line in found.values()} == {"pyoxigraph", "the engine that was copied"}
    copytree = shutil.copytree

    def without_log(source: Path, target: Path, *rest: Any, **named: Any) -> None:
        copytree(source, target, *rest, **named)
        for path in Path(target).rglob("*"):  # a log alone would be missed
            if path.is_file():
                path.unlink()

    monkeypatch.setattr("wukongs.bench.experiments.fault_tolerance.shutil.copytree", without_log)
    assert bench(*arguments, str(tmp_path / "wrong"), "--queries", "recovery") == 0
    (line,) = lines_in(tmp_path / "wrong")
    assert line["skipped"].startswith("answers otherwise: ")


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.spark
def test_a_composite_of_spark_and_a_store_answers_as_the_engine_does(tmp_path: Path) -> None:
    assert bench("lsbench", "--experiment", "composite", "--queries", "L1,L3", "--report", str(tmp_path)) == 0
    lines = lines_in(tmp_path)
    engines = ("wukongs", "Spark + pyoxigraph", "Spark + wukongs")
    assert {(line["query"], line["engine"], line.get("metric")) for line in lines} == {
        (query, engine, metric) for query in ("L1", "L3") for engine in engines for metric in ("latency", "execution")
    }, [line.get("skipped") for line in lines]
    assert len({line["rows"] for line in lines if line["query"] == "L3"}) == 1
    assert all(line["rows"] > 0 for line in lines), "nothing would be measured"


def test_without_java_the_composite_is_told_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert bench("lsbench", "--experiment", "composite", "--queries", "L2", "--report", str(tmp_path / "run")) == 0
    lines = lines_in(tmp_path / "run")
    assert [line["metric"] for line in of_engine(lines, "wukongs")] == ["latency", "execution"]
    for engine in ("Spark + pyoxigraph", "Spark + wukongs"):
        (line,) = of_engine(lines, engine)
        assert line["skipped"].startswith("missing: Spark: the pipeline needs Java ")


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.spark
def test_streams_that_enter_through_spark_are_measured_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("lsbench", "--through", "spark", "--queries", "L3", "--report")
    assert bench(*arguments, str(tmp_path / "right"), "--experiment", "rate") == 0
    lines = {(line["query"], line.get("metric")): line for line in lines_in(tmp_path / "right")}
    assert set(lines) == {("L3", "latency"), ("all", "tuples"), ("all", "behind")}
    case = {"users": 60, "rate": 1.0, "through": "spark", "queries": "L3"}
    assert all(line["case"] == case for line in lines.values())
    assert lines["L3", "latency"]["rows"] > 0, "nothing would be measured"
    with wrong_oxigraph(monkeypatch, 0):
        assert bench(*arguments, str(tmp_path / "wrong"), "--experiment", "latency") == 0
    (line,) = lines_in(tmp_path / "wrong")
    assert line["skipped"].startswith("answers otherwise: ")


def test_windows_that_do_not_come_through_spark_are_told() -> None:
    feed = feed_of(generate_lsbench(QUICK_DATA))
    assert feed.last_ms == 1400
    assert through_spark._lost(feed, 900, [1000, 1100, 1200, 1300, 1400]) == ""
    told = "answers otherwise: 5 windows expected behind 950 ms, {} found"
    assert through_spark._lost(feed, 950, [1000, 1100, 1200, 1300]) == told.format(4)
    assert through_spark._lost(feed, 950, []) == told.format(0)
    assert through_spark._lost(feed, 950, [1000, 1100, 1200, 1300, 1300]) == told.format(5)


def test_without_java_nothing_goes_through_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    arguments = ("lsbench", "--through", "spark", "--queries", "L2", "--experiment", "latency,rate")
    assert bench(*arguments, "--report", str(tmp_path / "run")) == 0
    lines = lines_in(tmp_path / "run")
    assert {(line["experiment"], line["query"]) for line in lines} == {
        ("latency", "L2"),
        ("rate", "L2"),
        ("rate", "all"),
    }
    assert all(line["skipped"].startswith("missing: Spark: the pipeline needs Java ") for line in lines)


def test_streams_that_are_too_short_for_a_rate_are_told(tmp_path: Path) -> None:
    arguments = ("lsbench", "--queries", "L1", "--rate", "50", "--report", str(tmp_path))
    assert bench(*arguments, "--experiment", "latency,rate") == 0
    lines = {(line["experiment"], line["query"]): line for line in lines_in(tmp_path)}
    assert set(lines) == {("latency", "L1"), ("rate", "all")}
    assert all(line["skipped"].startswith("the streams are too short: 0 ms at this rate") for line in lines.values())


@pytest.mark.rare
@pytest.mark.slow
def test_interactive_queries_are_measured_and_checked(whole: Path) -> None:
    everything = lines_in(whole / "interactive")
    lines = [line for line in everything if line["experiment"] == "interactive"]
    ours = {(line["query"], line["metric"]) for line in of_engine(lines, "wukongs")}
    classes = ("look-up", "one hop", "two hops", "path")
    assert ours == {
        *((query, metric) for query in classes for metric in ("install", "execution", "at once", "latency")),
        *(("graph", metric) for metric in ("load", "size", "changes")),
    }
    peers = {line["query"]: line for line in of_engine(lines, "pyoxigraph")}
    assert peers.keys() == set(classes)
    assert "skipped" in peers["path"]
    assert peers["two hops"]["checked"] == "plain arrays"
    assert bench("interactive", "--peers", "pyoxigraph", "--report", str(whole / "interactive")) == 0
    assert lines_in(whole / "interactive") == everything, "nothing is measured again"


@pytest.mark.rare
@pytest.mark.slow
def test_shared_arrangements_are_measured_and_checked(whole: Path) -> None:
    found: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines_in(whole / "interactive"):
        assert "skipped" not in line or line["engine"] != "wukongs", line
        found.setdefault((line["experiment"], line["query"], line.get("metric", "")), []).append(line)
    ways = ("shared", "not shared")
    for metric in ("latency", "memory", "resident"):
        shared, apart = ({line["case"]["queries"]: line for line in found["sharing", way, metric]} for way in ways)
        assert list(shared) == list(apart) == [1, 3]
    (one, three), (one_apart, three_apart) = (
        [line["median"] for line in found["sharing", way, "memory"]] for way in ways
    )
    assert three < 1.2 * one, "the graph is there once"
    assert three_apart > 2.5 * one_apart
    assert [line["case"]["queries"] for line in found["install", "shared", "install"]] == [1, 10]
    assert found["install", "not shared", "install"][0]["median"] > 0
    for fuel in ("eager", "default", "lazy"):
        assert found["fuel", fuel, "insert"][0]["count"] == 30
        assert found["fuel", fuel, "batches"][-1]["case"]["seals"] == 30
    assert [line["case"]["seeds"] for line in found["join-proportionality", "join", "execution"]] == [1, 10, 100, 1000]


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.parametrize("benchmark", ["lsbench", "citybench", "interactive", "views"])
def test_the_page_of_a_run_has_a_table_and_pictures_of_each_experiment(whole: Path, benchmark: str) -> None:
    page = (whole / benchmark / "report.html").read_text(encoding="utf-8")
    markdown = (whole / benchmark / "report.md").read_text(encoding="utf-8")
    parts = {part.split("\n", 1)[0].split(":")[0]: part for part in markdown.split("\n## ")[1:]}
    for experiment in {line["experiment"] for line in lines_in(whole / benchmark) if "skipped" not in line}:
        assert "\n|" in parts[experiment], f"{experiment} has no table"
        assert "![" in parts[experiment] or experiment == "load", f"{experiment} has no picture"
    pictures = list((whole / benchmark / "report-pictures").glob("*.svg"))
    assert page.count("<svg") == len(pictures) == markdown.count("![")
    assert "QUICK" in page.upper()


def test_all_run_what_can_be_run_each_in_a_folder_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_city(_: int) -> None:
        raise BenchError("citybench: no city today")

    monkeypatch.setattr("wukongs.bench.citybench.data.make_city", no_city)
    assert bench("all", "--queries", "S1,look-up", "--experiment", "one-shot", "--report", str(tmp_path)) == 1
    assert "wukongs: citybench: no city today\n" in capsys.readouterr().err
    assert [line["query"] for line in lines_in(tmp_path / "lsbench")] == ["S1"]
    assert about(tmp_path / "interactive")["is_complete"] is True


# --- wrong answers, and engines that are not there --------------------------------------------------------------------


@pytest.mark.slow
def test_a_wrong_answer_has_no_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("lsbench", "--queries", "L2,L3", "--experiment", "latency", "--report", str(tmp_path))
    with wrong_oxigraph(monkeypatch, 0):
        assert bench(*arguments, "--peers", "pyoxigraph,rdflib") == 0
    lines = lines_in(tmp_path)
    of_l2 = {line["engine"]: line.get("skipped", "measured") for line in lines if line["query"] == "L2"}
    assert of_l2["wukongs"].startswith("answers otherwise: ")
    assert "first difference, missing: <http://e/none> (window that ends at 1000 ms)" in of_l2["wukongs"]
    assert of_l2["rdflib"].startswith("answers otherwise: ")
    assert of_l2["pyoxigraph"].startswith("answers otherwise")
    assert len([line for line in lines if line["query"] == "L3"]) == 6, "other queries are measured"


def test_a_wrong_answer_to_a_one_shot_query_has_no_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with wrong_oxigraph(monkeypatch, 0):
        assert bench("lsbench", "--queries", "S2", "--experiment", "one-shot", "--report", str(tmp_path)) == 0
    (line,) = lines_in(tmp_path)
    assert line["skipped"].startswith("answers otherwise: ")
    assert "values" not in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("less", r"answers otherwise: \d+ rows expected \(pyoxigraph\), \d+ found; first difference, missing: <"),
        ("dies", r"failed: stub: ended at '\w+' with status 1: out of ideas"),
    ],
)
def test_an_engine_that_is_wrong_or_dies_is_reported_and_others_are_measured(
    tmp_path: Path, way: str, told: str
) -> None:
    arguments = ("lsbench", "--queries", "L2", "--experiment", "latency", "--report", str(tmp_path))
    assert bench(*arguments, "--peers", f"stub={stub(way)}") == 0
    lines = lines_in(tmp_path)
    (line,) = of_engine(lines, "stub")
    assert re.match(told, line["skipped"]), line["skipped"]
    assert len(of_engine(lines, "wukongs")) == 2


@pytest.mark.slow
def test_an_engine_that_is_missing_is_told_and_asked_again_when_the_run_goes_on(tmp_path: Path) -> None:
    arguments = ("lsbench", "--queries", "L2", "--experiment", "latency", "--report", str(tmp_path), "--peers")
    assert bench(*arguments, "stub=/nowhere/engine") == 0
    (line,) = of_engine(lines_in(tmp_path), "stub")
    assert line["skipped"].startswith("missing: stub: ")
    assert "give a command" in line["skipped"]
    assert bench(*arguments, f"stub={stub('right')}") == 0
    lines = lines_in(tmp_path)
    assert [line.get("metric") for line in of_engine(lines, "stub")] == ["latency", "execution"]
    assert len(of_engine(lines, "wukongs")) == 2, "it was not measured again"
    for _ in range(2):
        assert about(tmp_path)["versions"]["stub"] == "1"
        assert bench(*arguments, f"stub={stub('right')}") == 0


# --- going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("lsbench", "--queries", "L1,L2,L3", "--experiment", "latency", "--report", str(tmp_path))
    run_ours, calls = latency.run_ours, [0]

    def interrupted(*given: Any, **named: Any) -> None:
        calls[0] += 1
        if calls[0] == 3:  # each query runs once to compile
            raise KeyboardInterrupt
        run_ours(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(latency, "run_ours", interrupted)
        assert bench(*arguments) == 130
    assert f"interrupted: 2 results are in {tmp_path}; the same command goes on" in capsys.readouterr().err
    before = lines_in(tmp_path)
    assert {line["query"] for line in before} == {"L1"}
    assert about(tmp_path)["is_complete"] is False
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"experiment": "latency", "query": "L2", "eng')  # as if it was killed while it wrote
    assert bench(*arguments) == 0
    lines = lines_in(tmp_path)
    assert lines[:2] == before
    assert [line["query"] for line in lines] == ["L1", "L1", "L2", "L2", "L3", "L3"]
    assert about(tmp_path)["is_complete"] is True
    assert f"going on in {tmp_path}, which has 2 results" in capsys.readouterr().err


@pytest.mark.slow
def test_a_folder_with_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("lsbench", "--queries", "S1", "--experiment", "one-shot", "--report", str(tmp_path))
    assert bench(*arguments) == 0
    before = lines_in(tmp_path)
    capsys.readouterr()
    assert bench(*arguments, "--repeat", "3") == 1
    told = f"wukongs: {tmp_path} has a run of another settings (repeat: 1 there, 3 here): give another folder"
    assert told in capsys.readouterr().err
    assert lines_in(tmp_path) == before
    (tmp_path / "run.json").write_text("[]")
    assert bench(*arguments) == 1
    assert "run.json: no run that can go on: give another folder" in capsys.readouterr().err


def test_a_later_line_takes_the_place_of_one_with_its_key(tmp_path: Path) -> None:
    record = Record.open(tmp_path, "lsbench", {}, {})
    key = ("latency", "L1", "wukongs", {"rate": 1.0})
    record.measured(*key, "latency", [3.0, 1.0, 2.0], checked="hand")
    record.measured(*key, "latency", [5.0], checked="hand")
    record.measured(*key, "rows", range(5000), unit="rows", checked="hand")
    assert record.is_done(*key)
    assert record.is_done(*key, last="rows")
    assert not record.is_done(*key, last="execution")
    record.skipped("latency", "L2", "wukongs", {}, "no time")
    assert record.is_done("latency", "L2", "wukongs", {}, last="execution")
    assert not record.is_done("latency", "L1", "wukongs", {"rate": 2.0})
    again = Record.open(tmp_path, "lsbench", {}, {})
    assert [(line["metric"], line["median"], line["count"]) for line in list(again.lines.values())[:2]] == [
        ("latency", 5.0, 1),
        ("rows", 2499.5, 5000),
    ]
    values = list(again.lines.values())[1]["values"]
    assert (len(values), values[0], values[-1]) == (1000, 0, 4999)
    with pytest.raises(BenchError, match="another data"):
        Record.open(tmp_path, "lsbench", {"users": 3}, {})


def test_few_samples_have_no_interval_and_no_p99_in_the_table_of_a_run() -> None:
    record = Record.open(None, "lsbench", {}, {})
    for query, count in (("L1", 1), ("L2", 5), ("L3", 100)):
        record.measured("latency", query, "wukongs", {}, "latency", [2.0] * count, checked="hand")
    rows = [line.split(" | ")[4:9] for line in record.to_text().splitlines() if line.startswith("| L")]
    assert rows == [["2", "", "", "", "1"], ["2", "2", "2", "", "5"], ["2", "2", "2", "2", "100"]]


def test_the_machine_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(session, "wait_until_idle", lambda seconds: bool(waited.append(seconds)))
    machine = session.Machine(30.0)
    machine.begin()
    machine.begin()
    assert waited == [30.0]
    assert 0 <= machine.busy() <= 1


def test_a_turn_of_one_shot_queries_begins_behind_the_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    monkeypatch.setattr("gc.collect", lambda: clock.__setitem__(0, clock[0] + 5 * one_shot.TURN_S))

    def select(text: str) -> Rows:
        clock[0] += one_shot.TURN_S / 100
        return []

    peer: Any = SimpleNamespace(select=select)
    took_ms: list[float] = []
    one_shot._ask(session.Guest("wukongs", peer), "SELECT", took_ms, one_shot.CALLS)
    assert took_ms == pytest.approx([10 * one_shot.TURN_S] * one_shot.CALLS)


def test_runs_can_be_compared_as_reports_are() -> None:
    line = {"experiment": "latency", "query": "L1", "engine": "wukongs", "case": {"rate": 1.0}}
    told = as_tables(
        [{**line, "metric": "latency", "unit": "ms", "median": 2.0, "rows": 7}, {**line, "skipped": "why"}]
    )
    assert told["tables"] == {"latency": [{"figure": "L1, wukongs, rate 1.0", "latency, ms": 2.0}]}
    assert told["checks"] == [{"what": "latency, L1, wukongs, rate 1.0: rows", "value": 7}]


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("lsbench", "--queries", "L1,L13"), "no query 'L13' of lsbench: did you mean L3? It is one of L1, L2, "),
        (
            ("lsbench", "--experiment", "through"),
            "'through' of lsbench: did you mean throughput? It is one of latency, ",
        ),
        (
            ("lsbench", "--experiment", "speed"),
            "no experiment 'speed' of lsbench: expected some of latency, one-shot, ",
        ),
        (("citybench", "--queries", "L1"), "no query 'L1' of citybench"),
        (("lsbench", "--queries", ""), "argument --queries: expected names with commas between, found ''"),
        (("lsbench", "--experiment", ","), "argument --experiment: expected names with commas between, found ','"),
        (("lsbench", "--peers", "blazegraph"), "no peer 'blazegraph': expected some of pyoxigraph, rdflib, jena, "),
        (("lsbench", "--peers", "jena=x"), "no peer 'jena=x'"),
        (("lsbench", "--peers", "wukongs=x"), "no peer 'wukongs=x'"),
        (("citybench", "--users", "100"), "--users is of lsbench and all, not of citybench: leave it out"),
        (("all", "--data", "."), "--data is of lsbench, citybench and views, not of all: leave it out"),
        (
            ("lsbench", "--rate", "0"),
            "argument --rate: expected numbers from 0.01 to 1000 with commas between, found '0'",
        ),
        (("lsbench", "--rate", "a,1"), "found 'a,1'"),
        (("lsbench", "--nodes", "1,0"), "argument --nodes: expected integers from 1 to 64 with commas between, found"),
        (("citybench", "--nodes", "2"), "--nodes is of lsbench and all, not of citybench: leave it out"),
        (("citybench", "--through", "spark"), "--through is of lsbench and all, not of citybench: leave it out"),
        (("lsbench", "--minutes", "1", "--experiment", "rate"), "--minutes is of soak, which is not run: name it"),
        (("all", "--nodes", "2", "--experiment", "rate"), "--nodes is of nodes, which is not run: name it"),
        (
            ("lsbench", "--through", "spark", "--experiment", "load"),
            "--through is of latency or rate, which is not run: name it",
        ),
        (("lsbench", "--through", "kafka"), "argument --through: invalid choice: 'kafka'"),
        (("lsbench", "--repeat", "0"), "argument --repeat: expected an integer from 1 on, found '0'"),
        (("lsbench", "--users", "5"), "argument --users: expected an integer from 10 on, found '5'"),
        (("tpch",), "invalid choice: 'tpch'"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(*arguments) == 2
    assert told in capsys.readouterr().err


def test_queries_that_no_experiment_has_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("lsbench", "--experiment", "load,composite", "--queries", "S1,L12") == 1
    told = (
        "wukongs: lsbench: nothing was measured: none of the experiments has these queries (experiments: load, "
        "composite; queries: S1, L12): leave one of --experiment and --queries out\n"
    )
    assert told in capsys.readouterr().err


def test_data_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench("lsbench", "--data", str(tmp_path)) == 1
    told = f"wukongs: lsbench: {tmp_path}: no rdfPostStream*.nt or rdfPostStream*.nt.gz: give a folder"
    assert told in capsys.readouterr().err
    assert bench("citybench", "--data", str(tmp_path / "none")) == 1
    assert "give a folder of CityBench's files with --data" in capsys.readouterr().err
    monkeypatch.setenv("CITYBENCH_DATA", str(tmp_path / "named"))
    assert main(["bench", "citybench"]) == 1
    assert f"{tmp_path / 'named'}" in capsys.readouterr().err
    monkeypatch.setenv("LSBENCH_DATA", str(tmp_path))
    assert main(["bench", "lsbench"]) == 1
    assert f"wukongs: lsbench: {tmp_path}: no rdfPostStream" in capsys.readouterr().err


def test_the_benchmarks_of_parts_are_called_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parts_main(["tpch"])
    told = capsys.readouterr().err
    assert "'lsbench'" in told
    assert "'paced'" in told
    assert parts_main(["lsbench", "--queries", "L99", "--quick"]) == 2
    assert "no query 'L99' of lsbench" in capsys.readouterr().err
