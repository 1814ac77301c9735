"""The benchmark of interactive queries: its answers are those of plain arrays, and a wrong one has no times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wukongs.bench.interactive.graph import RandomGraph
from wukongs.cli import main


def test_the_graph_as_arrays() -> None:
    graph = RandomGraph.of(40, 200)
    for come, gone in graph.changes(5, 20):
        assert come.num_rows == gone.num_rows == 10
    there = {(s, t) for s, t, is_there in zip(graph.sources, graph.targets, graph.is_there, strict=True) if is_there}
    assert len(there) == int(graph.is_there.sum()), "no pair twice"
    assert len(set(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))) == len(graph.sources)
    for number in range(40):
        near = {t for s, t in there if s == number}
        assert set(graph.neighbours(number)) == near
        assert graph.two_hops(number) == {
            far: sum((one, far) in there for one in near)
            for far in range(40)
            if any((one, far) in there for one in near)
        }
        assert graph.is_near(number, int(next(iter(near))), 1) if near else True


def test_a_wrong_answer_has_no_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RandomGraph, "neighbours", lambda *_: [0, 1, 2])
    arguments = ("--quick", "--queries", "one hop,path", "--peers", "pyoxigraph", "--report", str(tmp_path))
    assert main(["bench", "interactive", *arguments]) == 0
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    of_hops = {line["engine"]: line["skipped"] for line in lines if line["query"] == "one hop"}
    assert of_hops["wukongs"].startswith("answers otherwise: one hop from <http://e/n")
    assert of_hops["pyoxigraph"].startswith("answers otherwise: 3 rows expected (plain arrays), ")
    assert not [line for line in lines if "values" in line]
