"""The benchmark of interactive queries: its answers are those of plain arrays, and a wrong one reports no time."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from wukongs.bench.__main__ import main
from wukongs.bench.harness import Report
from wukongs.bench.interactive import run
from wukongs.bench.interactive.graph import RandomGraph


@pytest.mark.slow
def test_all_classes_are_checked_and_timed(tmp_path: Path) -> None:
    assert main(["interactive", "--quick", "--report", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "interactive.json").read_text(encoding="utf-8"))
    assert set(found["tables"]) == {run.LOADED, run.INSTALLED, run.ALONE, run.AT_ONCE, run.CHANGED, run.BESIDE}
    assert len(found["tables"][run.ALONE]) == 4
    assert [row["changes/s"] for row in found["tables"][run.BESIDE]] == [20_000] * 4 + [100_000] * 4


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


def test_a_wrong_answer_reports_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(RandomGraph, "neighbours", lambda *_: np.arange(3).tolist())
    assert main(["interactive", "--quick", "--report", str(tmp_path)]) == 1
    assert "No time is reported" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def peer(*lines: str) -> str:
    return shlex.join([sys.executable, "-c", f"print({chr(10).join(lines)!r})"])


def test_figures_of_another_engine_stand_beside_ours() -> None:
    results = Report("interactive", {})
    results.check("one", 1, 1)
    results.add(run.ALONE, {"class": "look-up", "median": 20.0})
    run._add_peer(
        results, peer(json.dumps({"table": run.ALONE, "engine": "e", "class": "look-up", "median": 54})), 9, 9
    )
    assert results.tables[run.ALONE][1] == {"class": "look-up", "median": 54, "engine": "e"}


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (peer("{}"), "line 1: expected a JSON object with table and engine, found '{}'"),
        (peer("", "x"), "line 1: expected"),
        (peer('{"table": "T", "engine": "e"}'), f"there is no table 'T': expected one of {run.ALONE!r}"),
        ("/nowhere/engine", "/nowhere/engine"),
        (shlex.join([sys.executable, "-c", "raise SystemExit(3)"]), "exit status 3"),
    ],
)
def test_a_peer_that_fails_is_told(command: str, told: str) -> None:
    results = Report("interactive", {})
    results.check("one", 1, 1)
    results.add(run.ALONE, {"class": "look-up", "median": 20.0})
    with pytest.raises(run.PeerFailed, match=re.escape(told)):
        run._add_peer(results, command, 9, 9)
