"""The benchmark of live views: its graphs and own answers, and that a tiny run is checked and measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from wukongs.bench.peers import PeerMissing
from wukongs.bench.peers.dataflow import Change, numbers_of, program
from wukongs.bench.published import TPCH_QUERIES
from wukongs.bench.rules.data import Edges
from wukongs.bench.runs import _BENCHMARKS
from wukongs.bench.views import anew, dataflow, many, recursion
from wukongs.bench.views import program as program_analysis
from wukongs.cli import main

NEEDS_PEER = ("dataflow", "recursion", "program")


def bench(folder: Path, *more: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Run at a tiny size; return the lines by experiment and query."""
    assert main(["bench", "views", "--quick", "--report", str(folder), *more]) == 0
    found = dict[tuple[str, str], list[dict[str, Any]]]()
    for text in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        found.setdefault((line["experiment"], line["query"]), []).append(line)
    return found


def has_peer() -> bool:
    try:
        program(may_build=False)
    except PeerMissing:
        return False
    return True


@pytest.mark.slow
def test_each_view_is_checked_and_measured_and_the_page_says_so(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    found = bench(tmp_path)
    assert {query for _, query in found} >= set(_BENCHMARKS["views"].queries)
    for (experiment, query), lines in found.items():
        of_us = [line for line in lines if line["engine"] == "wukongs"]
        if experiment in NEEDS_PEER and not has_peer() and "(" not in query:
            assert of_us[0]["skipped"].startswith(("missing: differential-dataflow", "left out: ")), query
        elif query in recursion.TOO_MANY:
            assert of_us[0]["skipped"].startswith("left out: ")
        else:
            assert all(line["median"] >= 0 for line in of_us), (query, of_us)
    latencies = [line for line in found["anew", "one hop"] if line["metric"] == anew.LATENCY]
    assert {(line["engine"], line["case"]["changes"]) for line in latencies} == {
        (engine, count) for engine in ("wukongs", anew.OURS_ANEW, anew.OXIGRAPH_ANEW) for count in anew.QUICK.batches
    }
    assert [line["case"]["views"] for line in found["many", many.MANY]] == [200, 200]
    told = {line["case"]["asked"]: line["rows"] for line in found["tpch", "geometric mean"]}
    assert told["wukongs"] == told["DuckDB"] == len(TPCH_QUERIES)
    assert told["pyoxigraph"] >= 20
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "# Benchmark report: views" in page
    assert "22 TPC-H views, batches of 1,000 rows, beside pyoxigraph asked anew" in page
    assert "times as fast as asked anew" in page
    assert "1,000,000,000 triples follow" in page
    for picture in ("tpch-up-to-date-medians", "anew-up-to-date-medians"):
        assert f"](report-pictures/{picture}.svg)" in page
        assert "<svg" in (tmp_path / "report-pictures" / f"{picture}.svg").read_text(encoding="utf-8")
    assert bench(tmp_path) == found, "nothing is measured again"


@pytest.mark.slow
@pytest.mark.skipif(not has_peer(), reason="differential-dataflow is not built: a run without --quick builds it")
def test_views_and_rules_beside_differential_dataflow(tmp_path: Path) -> None:
    found = bench(tmp_path, "--experiment", ",".join(NEEDS_PEER), "--edges", "200")
    for experiment, queries, metric in (
        ("dataflow", dataflow.QUERIES, dataflow.LATENCY),
        ("recursion", (*recursion.CLOSED, recursion.REACH), recursion.CORRECTION),
        ("program", program_analysis.QUERIES, recursion.CORRECTION),
    ):
        for query in queries:
            lines = [line for line in found[experiment, query] if line["metric"] == metric]
            both = Counter(line["engine"] for line in lines)
            assert both["wukongs"] == both["differential-dataflow"] > 0, query
    assert {line["case"]["edges"] for line in found["program", "points-to"]} == {200}


def test_a_wrong_answer_has_no_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anew, "_asked", lambda *_: Counter([("1",)]))
    [line] = bench(tmp_path, "--experiment", "anew", "--queries", "one hop")["anew", "one hop"]
    assert line["skipped"].startswith("answers otherwise: and what pyoxigraph says, rows: expected -1, found ")


def test_peers_of_views_are_always_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "views", "--peers", "rdflib"]) == 2
    assert "--peers is of lsbench, citybench, interactive and all, not of views" in capsys.readouterr().err
    assert main(["bench", "views", "--experiment", "anew", "--edges", "1000"]) == 2
    assert "--edges is of program, which is not run" in capsys.readouterr().err


# --- the benchmark's own answers --------------------------------------------------------------------------------------


def test_a_change_is_the_sum_of_its_rows() -> None:
    firsts, seconds = np.array([1, 2, 1, 3, 2], np.uint64), np.array([5, 6, 5, 7, 7], np.uint64)
    found = Change.of(firsts, seconds, np.array([1, 1, 1, 2, -1], np.int64))
    assert found.rows == 4
    assert found == Change.of(firsts[1:], seconds[1:], np.array([1, 2, 2, -1], np.int64))
    assert found != Change.of(firsts[1:], seconds[1:], np.array([1, 2, 2, 1], np.int64))
    assert Change.of(firsts[:3], seconds[:3], np.array([1, 0, -1], np.int64)) == Change(0, 0)


def test_numbers_of_terms() -> None:
    terms = ["<http://bench.example/n12>", '"3"^^<http://www.w3.org/2001/XMLSchema#integer>', "<http://e/n0>"]
    for column in (pa.array(terms), pa.array(terms).dictionary_encode()):
        assert numbers_of(pa.chunked_array([column, column[:1], column[:0]])).tolist() == [12, 3, 0, 12]
    assert not len(numbers_of(pa.chunked_array([], pa.string())))


def pairs_of(edges: Edges) -> set[tuple[int, int]]:
    return set(zip(edges.sources.tolist(), edges.targets.tolist(), strict=True))


def graphs() -> Iterator[Edges]:
    yield recursion.tree(3, 25)
    yield recursion.grid(3)
    yield from (Edges.random_graph(12, 20 + seed, 0) for seed in range(3))


def test_trees_and_grids_have_their_shape() -> None:
    tree = recursion.tree(11, 71_391)
    assert abs(len(tree.sources) - 71_390) < 20
    assert len(set(tree.targets.tolist())) == len(tree.targets)
    assert (tree.sources < tree.targets).all()
    assert len(pairs_of(recursion.grid(150))) == 45_300


def test_what_top_down_answers_are_compared_with() -> None:
    for edges in graphs():
        pairs = pairs_of(edges)
        forward = recursion._Adjacent.of(edges.sources, edges.targets)
        backward = recursion._Adjacent.of(edges.targets, edges.sources)
        closure = set(pairs)
        while more := {(a, d) for a, b in closure for c, d in pairs if b == c} - closure:
            closure |= more
        same = {(b, d) for a, b in pairs for c, d in pairs if a == c}
        while more := {(b, d) for x, y in same for a, b in pairs if a == x for c, d in pairs if c == y} - same:
            same |= more
        for number in {one for pair in pairs for one in pair}:
            assert recursion.reached(forward, number) == {b for a, b in closure if a == number}
            assert recursion.reached(backward, number) == {a for a, b in closure if b == number}
            assert recursion.same_generation(forward, backward, number) == {b for a, b in same if a == number}


def test_moves_keep_edges_there_and_gone_apart() -> None:
    edges = recursion.tree(3, 30)
    for number, (come, gone) in enumerate(recursion.moves(edges, 4, 6)):
        assert (len(come), len(gone)) == (3 if number else 0, 3)
        assert not set(come.tolist()) & set(gone.tolist())
        assert edges.is_there[come].all()
        assert not edges.is_there[gone].any()


@pytest.mark.parametrize("make", [program_analysis.Program.of_nulls, program_analysis.Program.of_pointers])
def test_programs_have_about_the_edges_asked_for(make: Any) -> None:
    made = make(10_000)
    assert len(made.assignments) + len(made.second) == pytest.approx(10_000, rel=0.05)
    assert made.assignments.max() < made.nodes
    assert made.second.max() < made.nodes
    assert len(made.names()) == made.nodes
    assert made.names()[7].as_py() == "<http://bench.example/n7>"
