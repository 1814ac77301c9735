"""The benchmark of the pipeline, at sizes that say nothing of times: it runs, and checks what it says it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wukongs.bench.__main__ import main
from wukongs.bench.harness import Report, WrongAnswer
from wukongs.bench.pipeline import sink, start, streaming
from wukongs.bench.pipeline.data import record
from wukongs.bench.pipeline.processes import ENGINE, JVM, WORKERS, CpuOfTree

QUERIES = ["L1", "L2", "L3", "L4", "L5", "L6"]


def tables_of(folder: Path, *only: str) -> dict[str, Any]:
    assert main(["pipeline", "--quick", "--only", *only, "--report", str(folder)]) == 0
    found: dict[str, Any] = json.loads((folder / "pipeline.json").read_text(encoding="utf-8"))["tables"]
    assert (folder / "pipeline.png").stat().st_size > 0
    return found


@pytest.mark.slow
def test_runs_without_spark_are_checked_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "ENGINES", ("local",))
    tables = tables_of(tmp_path, "latency", "rate", "stall")
    latency = tables[streaming.LATENCY]
    assert [row["query"] for row in latency] == ["all", *QUERIES]
    assert [row["windows"] for row in latency] == [6 * 28, *[28] * 6], "of 40 stream batches the first 12 warm up"
    (rate,) = tables[streaming.RATE]
    assert rate["K tuples/s"] > 0
    assert rate["epochs"] > 0
    assert [row["rates"] for row in tables[streaming.CPU]] == ["paper's rates", "as fast as it goes"]
    stalls = tables[streaming.STALL]
    assert [row["stopped"] for row in stalls] == ["engine", "readers"]
    assert all(row["largest epoch after"] <= row["rows_per_epoch"] for row in stalls)


@pytest.mark.slow
def test_no_time_is_reported_for_another_answer(tmp_path: Path) -> None:
    recording = record(tmp_path, 5_000, 12, 50)
    run = streaming.run_once(recording, tmp_path, {"engine": "local", "speed": 0.0})
    query, end_ms, tsv = run.notes.newest[-1]
    run.notes.newest[-1] = query, end_ms, tsv + "<http://ex/a>\t" * 4 + "\n"
    report = Report("pipeline", {})
    with pytest.raises(WrongAnswer, match=f"local: {query}, window ending at {end_ms} ms"):
        streaming.check_run(report, recording, run)
    assert not report.tables


def test_processes_below_the_jvm_are_workers() -> None:
    looking = CpuOfTree(10)
    parents = {10: 2, 11: 10, 12: 11, 13: 12, 14: 10, 15: 2}
    names = {10: "python", 11: "java", 12: "python", 13: "python", 14: "sh", 15: "java"}
    kinds = {process: looking.kind(process, parents, names) for process in parents}
    assert kinds == {10: ENGINE, 11: JVM, 12: WORKERS, 13: WORKERS, 14: ENGINE, 15: None}


def test_an_unknown_question_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "--quick", "--only", "speed"]) == 2
    assert "no question 'speed'" in capsys.readouterr().err


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.spark
def test_through_spark_it_passes_all_milestones_and_counts_all_rows(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, "start", "latency", "sink")
    assert [row["milestone"] for row in tables[start.PASSED]] == list(start.MILESTONES)
    assert all(row["median"] >= 0 for row in tables[start.PARTS])
    found = [(row["through"], row["query"], row["windows"]) for row in tables[streaming.LATENCY]]
    expected = [("all", 6 * 28), *((query, 28) for query in QUERIES)]
    assert found == [(engine, *one) for engine in ("spark", "local") for one in expected]
    assert [row["columns"] for row in tables[sink.SINK]] == [sink.TRIPLES, sink.TEXT]
    assert all(row["rows"] > 10_000 for row in tables[sink.SINK]), "40 stream batches of 267 tuples, the last ones less"
