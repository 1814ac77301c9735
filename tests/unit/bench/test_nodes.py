"""The benchmark of clusters runs, with nodes in this process, at a size that says nothing of times."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import PATIENT, cluster
from wukongs.bench.experiments import nodes
from wukongs.bench.nodes import folders, one_node, soak
from wukongs.bench.nodes.engines import Bench
from wukongs.cli import main


@contextmanager
def in_process(node_count: int) -> Iterator[Bench]:
    with cluster(node_count, silence_pulses_max=PATIENT) as nodes:
        engines = [node.engine for node in nodes]
        yield Bench(str(node_count), engines[0], engines)


@contextmanager
def with_folders(node_count: int, options: Sequence[str]) -> Iterator[Bench]:
    """Nodes with two replicas, and data folders in the folder that the options name last."""
    with cluster(node_count, 2, silence_pulses_max=PATIENT, folder=Path(options[-1])) as nodes:
        engines = [node.engine for node in nodes]
        yield Bench(str(node_count), engines[0], engines, pids=[os.getpid()])


def measured(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    told = main(["bench", "lsbench", "--quick", "--experiment", "nodes", "--report", str(folder), *arguments])
    assert told == 0
    return [json.loads(line) for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_clusters_are_measured_and_every_answer_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "processes", in_process)
    lines = measured(tmp_path)
    assert not [line for line in lines if "skipped" in line]
    found = {(line["query"], line["metric"], line["case"]["nodes"]): line for line in lines}
    queries = [f"{kind}{number}" for kind in "SL" for number in range(1, 7)]
    assert {(query, count) for query, metric, count in found if metric == "execution"} == {
        (query, count) for query in (*queries, "a call") for count in (1, 2)
    }
    assert all(found[query, "execution", 2]["checked"] == "pyoxigraph and the embedded engine" for query in queries)
    assert all(found[query, "latency", 2]["rows"] > 0 for query in ("L3", "L4")), "nothing would be measured"
    assert sum(found[f"S{number}", "execution", 2]["rows"] > 0 for number in range(1, 7)) >= 4
    assert found["L6", "requests", 2]["median"] > 0, "the stored graph is divided"
    assert all(found[query, "requests", 1]["median"] == 0 for query in queries)
    assert found["tuples", "all messages", 2]["median"] > 0
    assert found["stored", "load", 2]["unit"] == "triples/s"
    said = {
        (line["case"]["nodes"], line["case"]["streams"]): line["median"]
        for line in lines
        if (line["query"], line["metric"]) == ("protocol", "messages")
    }
    assert set(said) == {(1, 0), (1, 1), (2, 0), (2, 1)}
    assert all((messages > 0) == (count == 2) for (count, _), messages in said.items()), said


@pytest.mark.slow
def test_queries_that_were_not_asked_for_at_first_are_measured_when_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "processes", in_process)
    for queries in ("S1", "S1,L1"):
        lines = measured(tmp_path, "--nodes", "1", "--queries", queries)
        assert {line["query"] for line in lines} & {"S1", "L1"} == set(queries.split(","))
    newest = {(line["query"], line["metric"], line["case"].get("streams")): line for line in lines}
    assert measured(tmp_path, "--nodes", "1", "--queries", "L1") == list(newest.values()), "nothing is measured again"


@pytest.mark.slow
def test_an_answer_that_differs_has_no_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def less(node_count: int) -> Iterator[Bench]:
        """A cluster that has lost what S1 asks for."""
        with in_process(node_count) as bench:
            whole = bench.engine.load
            monkeypatch.setattr(bench.engine, "load", lambda file, format: whole(first_half(file), format=format))
            yield bench

    def first_half(file: io.BytesIO) -> io.BytesIO:
        lines = file.read().splitlines(keepends=True)
        return io.BytesIO(b"".join(lines[: len(lines) // 2]))

    monkeypatch.setattr(nodes, "processes", less)
    lines = measured(tmp_path, "--nodes", "1", "--queries", "S6,L1")
    of_s6 = [line for line in lines if line["query"] == "S6"]
    assert [line["skipped"].startswith("answers otherwise: ") for line in of_s6] == [True]
    assert "(the embedded engine), " in of_s6[0]["skipped"]
    assert {line["metric"] for line in lines if line["query"] == "L1"} >= {"execution", "latency"}


def test_a_cluster_that_does_not_start_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(node_count: int) -> AbstractContextManager[Bench]:
        raise RuntimeError(f"a cluster of {node_count} nodes did not start within 1 s")

    monkeypatch.setattr(nodes, "processes", refused)
    arguments = ["bench", "lsbench", "--quick", "--experiment", "nodes", "--queries", "S1", "--nodes", "3"]
    assert main(arguments) == 1
    told = "wukongs: lsbench: nodes: a cluster of 3 nodes did not start within 1 s: give fewer --nodes\n"
    assert told in capsys.readouterr().err


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


@pytest.mark.slow
def test_data_folders_are_measured_by_pushes_and_restarts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert folders.main(tmp_path, True) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "nodes-folders.json").read_text(encoding="utf-8"))
    assert [row["ratio"] > 0 for row in found["tables"]["A push"]] == [True] * len(folders.KINDS)
    log, checkpoint = found["tables"]["A restart"]
    assert log["triples"] == checkpoint["triples"] >= folders.QUICK_TRIPLES // 2
