"""The benchmark of clusters runs, with nodes in this process, at a size that says nothing of times."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clusters import cluster
from wukongs.bench.harness import Report, WrongAnswer
from wukongs.bench.nodes import one_node, run, soak
from wukongs.bench.nodes.control import SAID
from wukongs.bench.nodes.engines import Bench, embedded
from wukongs.bench.nodes.one_shot import ANSWERED, LOADED, report_one_shot, run_one_shot
from wukongs.bench.nodes.windows import LATENCY, MOVED


@contextmanager
def in_process(node_count: int) -> Iterator[Bench]:
    with cluster(node_count) as nodes:
        engines = [node.engine for node in nodes]
        yield Bench(str(node_count), engines[0], engines)


@contextmanager
def with_folders(node_count: int, options: Sequence[str]) -> Iterator[Bench]:
    """Nodes with two replicas, and data folders in the folder that the options name last."""
    with cluster(node_count, 2, folder=Path(options[-1])) as nodes:
        engines = [node.engine for node in nodes]
        yield Bench(str(node_count), engines[0], engines, pids=[os.getpid()])


@pytest.mark.slow
def test_it_runs_and_compares_every_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(tmp_path, None, True, in_process) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "nodes.json").read_text(encoding="utf-8"))
    tables = found["tables"]
    assert {row["nodes"] for row in tables[LATENCY]} == {"embedded", "1", "2"}
    assert [row["query"] for row in tables[LATENCY] if row["nodes"] == "2"] == ["L1", "L2", "L3", "L4", "L5", "L6"]
    assert all(row["rows median"] > 0 for row in tables[LATENCY] if row["query"] in ("L3", "L4")), tables[LATENCY]
    assert sum(row["rows"] > 0 for row in tables[ANSWERED] if row["nodes"] == "2" and "rows" in row) >= 4
    moved = {(row["query"], row["nodes"]): row for row in tables[MOVED]}
    assert moved["L5", "2"]["requests of the query"] > 0, "the stored graph is divided"
    assert all(row["requests of the query"] == 0 for (_, nodes), row in moved.items() if nodes == "1")
    assert moved["L1", "2"]["all messages"] > moved["L1", "2"]["of them protocol"] > 0
    assert {(row["nodes"], row["streams"]) for row in tables[SAID]} == {("1", 0), ("1", 1), ("2", 0), ("2", 1)}
    assert all((row["protocol messages"] > 0) == (row["nodes"] == "2") for row in tables[SAID]), tables[SAID]
    assert len(tables[LOADED]) == 3


@pytest.mark.slow
def test_no_time_is_reported_for_another_answer() -> None:
    data = run.generate_lsbench(run.QUICK_DATA)
    with embedded() as bench:
        runs = run_one_shot(bench, data, 1)
    less = {name: type(one)(one.bag - type(one.bag)(list(one.bag)[:1]), [], {}) for name, one in runs.queries.items()}
    report = Report("nodes", {})
    with pytest.raises(WrongAnswer, match="S1, embedded: rows"):
        report_one_shot(report, bench, runs, less)
    assert not report.tables


@pytest.mark.slow
def test_a_soak_tells_what_it_sampled_and_stops_at_a_wrong_window(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert soak.main(tmp_path, True, 0.05, None, with_folders) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "nodes-soak.json").read_text(encoding="utf-8"))
    rows = found["tables"][soak.OVER_TIME]
    assert len(rows) == len((tmp_path / "nodes-soak.jsonl").read_text(encoding="utf-8").splitlines()) >= 3
    assert all(row["window ms p50"] > 0 and row["folders MB"] > 0 and row["node 0 MB"] > 0 for row in rows)
    assert {row["what"] for row in found["tables"][soak.FLAT]} == set(rows[0]) - {"minute"}
    assert (tmp_path / "nodes-soak.png").stat().st_size > 10_000
    monkeypatch.setattr(soak, "rows_of", lambda tsv: [(b"another row",)])
    assert soak.main(None, True, 0.05, None, with_folders) == 1
    assert "other rows than stream batch" in capsys.readouterr().err


@pytest.mark.slow
def test_a_cluster_of_one_is_measured_beside_the_embedded_engine(tmp_path: Path) -> None:
    assert one_node.main(tmp_path, None, True) == 0
    found = json.loads((tmp_path / "one-node.json").read_text())
    rows = found["tables"]["Medians; ratio and difference by rounds"]
    assert {row["what"].split(":")[0] for row in rows} >= {"L1", "L2", "L3", "L4", "L5", "L6", "tick"}
    assert all(row["embedded"] > 0 and row["cluster of one"] > 0 for row in rows)
