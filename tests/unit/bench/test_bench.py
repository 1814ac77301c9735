"""The benchmarks at a tiny size: JSON comes out, and answers were checked. Speed is never asserted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wukongs.bench.__main__ import main
from wukongs.bench.continuous.ticks import SHAPES
from wukongs.bench.harness import Report, WrongAnswer, markdown_table, repeat, summary
from wukongs.bench.lsbench.data import DAY_MS, StreamData, rename_entities


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--quick", "--report", str(folder)]) == 0
    name = arguments[0]
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    assert (folder / f"{name}.md").read_text().startswith(f"# {name}\n")
    assert {"benchmark", "commit", "date", "machine", "versions", "data", "checks", "tables"} <= set(found)
    assert found["machine"]["cores"] >= 1
    assert found["versions"]["numba"]
    assert found["checks"]
    return found


@pytest.mark.slow
def test_continuous_checks_rows_and_reports_every_part(tmp_path: Path) -> None:
    found = run(tmp_path, "continuous")
    once, shares, operators, ticks, mixed, compiled, registration, sharing = found["tables"].values()
    assert [row["query"] for row in once] == ["L1", "L2", "L3"]
    assert all(0 < row["engine part p50"] < row["firing p50"] for row in once)
    assert all(0 < row["1 %"] <= row["50 %"] <= row["100 %"] for row in shares)
    assert [row["operator"] for row in operators] == list(SHAPES)
    assert all(0 < row["execution p50"] < row["firing p50"] and row["rows"] > 0 for row in operators)
    cases = ["nothing comes", "streams", "streams", "L1", "L4", "6 queries", "200 queries", "COUNT(*)"]
    found_cases = [row["tick"] for row in ticks if row["thread"] == "all"]
    assert [at.startswith(case) for at, case in zip(found_cases, cases, strict=True)] == [True] * len(cases)
    assert all(row["executions/s"] > 0 for row in mixed)
    assert [row["kernel calls"] for row in sharing] == [30, 1, 30, 1, 2], (
        "of a group some stay alone, and are run together"
    )
    assert [row["query"] for row in compiled] == ["L1", "L2", "L3"]
    assert [row["query"] for row in registration] == ["number 1", "number 10", "number 30"]
    assert all(row["bytes a query"] > 0 for row in registration)
    checked = [check["what"] for check in found["checks"]]
    assert sum("as sets" in what for what in checked) >= 20
    assert any(check["value"] for check in found["checks"] if check["what"].startswith("L3, rows")), "all were empty"
    assert (tmp_path / "continuous.png").stat().st_size > 10_000


@pytest.mark.slow
def test_paced_checks_rows_and_reports_every_part(tmp_path: Path) -> None:
    found = run(tmp_path, "paced")
    in_memory, in_folder, execution, ranges, one_shot, taken = found["tables"].values()
    for rows in (in_memory, in_folder):
        assert [row["query"] for row in rows] == ["L1", "L2", "L3", "L4", "L5", "L6"]
        assert all(0 < row["latency p50"] <= row["latency p99"] for row in rows)
    assert [(row["query"], row["rate"]) for row in execution][:3] == [("L4", 0.25), ("L5", 0.25), ("L6", 0.25)]
    assert {row["query"] for row in ranges} == {"L4", "L5", "L6", "GROUP BY"}
    assert [row["query"] for row in one_shot] == ["S1", "S2", "S3", "S4", "S5", "S6"]
    assert [row["way"] for row in taken] == ["in memory", "data folder"]
    for query in ("L1", "L2", "L3", "L4", "L5", "L6"):
        assert any(check["value"] for check in found["checks"] if check["what"].startswith(f"{query}, rows")), query
    assert (tmp_path / "paced.png").stat().st_size > 10_000


@pytest.mark.slow
def test_kernels_check_and_report_every_structure(tmp_path: Path) -> None:
    found = run(tmp_path, "kernels")
    assert [title.split(" over")[0] for title in found["tables"]] == ["Plans", "find_key", "build_batch", "Merge"]
    assert {row["plan"] for row in next(iter(found["tables"].values()))} == {"one step", "three steps"}


def test_a_report_takes_no_time_before_a_check() -> None:
    report = Report("some", {})
    with pytest.raises(AssertionError, match="nothing was checked"):
        report.add("table", {"us": 1})
    with pytest.raises(WrongAnswer, match="some: rows: expected 2, found 3"):
        report.check("rows", 2, 3)
    report.check("rows", 2, 2)
    report.add("table", {"us": 1})
    assert json.loads(report.to_json())["tables"] == {"table": [{"us": 1}]}


def test_summary_names_the_percentiles() -> None:
    found = summary([*range(1, 100), 1000])
    assert (found["median"], found["min"], found["max"], found["count"]) == (50.5, 1, 1000, 100)
    assert 99 < found["p99"] < 1000
    assert summary([])["count"] == 0


def test_repeat_does_not_count_the_warm_up() -> None:
    calls: list[int] = []
    assert len(repeat(lambda: calls.append(1), 3, 2)) == 3
    assert len(calls) == 5


def test_a_table_has_every_column_of_its_rows() -> None:
    assert markdown_table([{"a": 1, "b": 0.25}, {"a": 12_345, "c": "x"}]) == [
        "| a | b | c |",
        "|---|---|---|",
        "| 1 | 0.25 |  |",
        "| 12,345 |  | x |",
    ]


def test_a_stream_becomes_the_columns_that_push_takes() -> None:
    lines = b'<a:s> <a:p> "two words" .\n<a:t> <a:p> <a:o> .\n'
    stream = StreamData(lines, np.array([0, DAY_MS], np.int64))
    assert stream.table().to_pylist() == [
        {"subject": "<a:s>", "predicate": "<a:p>", "object": '"two words"', "timestamp_ms": 0},
        {"subject": "<a:t>", "predicate": "<a:p>", "object": "<a:o>", "timestamp_ms": DAY_MS},
    ]


def test_a_copy_renames_entities_but_no_vocabulary() -> None:
    line = b"<http://www.ins.cwi.nl/sib/user/u1> <http://www.ins.cwi.nl/sib/vocabulary/like> <http://x/y> .\n"
    assert rename_entities(line, 0) == line
    assert rename_entities(line, 3) == line.replace(b"u1>", b"u1x3>")
