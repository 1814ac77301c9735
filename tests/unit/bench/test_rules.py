"""The benchmark of rules: its data have the closures that it says, and it runs at a tiny size."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.oracles.rules import RDF_TYPE, Body, Pattern, Program, Rule, Triple
from tests.unit.bench.test_nodes import in_process
from wukongs.bench.__main__ import main
from wukongs.bench.rules import run
from wukongs.bench.rules.__main__ import main as main_of_rules
from wukongs.bench.rules.data import EDGE, EX, RDFS, START, ClassTree, Edges, node
from wukongs.bench.rules.paths import PATHS, Forest

SUB = f"<{RDFS}subClassOf>"
CLOSURE = Rule("closure", (Pattern("?x", EDGE, "?z"),), (Body((Pattern("?x", EDGE, "?y"), Pattern("?y", EDGE, "?z"))),))
REACHED = Rule(
    "reached",
    (Pattern(START, "<reached>", "?y"),),
    (Body((Pattern(START, EDGE, "?y"),)), Body((Pattern(START, "<reached>", "?x"), Pattern("?x", EDGE, "?y")))),
)


def triples_of(edges: Edges) -> set[Triple]:
    there = edges.there()
    found = {tuple(row.values()) for row in edges.table(there).to_pylist()}
    assert len(found) == len(there), "no pair twice"
    return found


def test_the_closure_of_a_forest_is_counted() -> None:
    edges = Edges.forest(60, 12)
    assert len(edges.there()) == 60
    for _ in edges.changes(3, 8):
        closure = Program.of([CLOSURE]).closure({"": triples_of(edges)})
        assert len(closure.all()) == edges.closure_count() > 60


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_is_reached_in_a_random_graph_is_counted(seed: int) -> None:
    edges = Edges.random_graph(20 + seed, 40, 10)
    for _ in edges.changes(3, 10):
        closure = Program.of([REACHED]).closure({"": triples_of(edges)})
        reached = {triple[2] for triple in closure.only_inferred()}
        assert len(reached) == edges.reached_count() > 0


def test_a_chain_is_one_way() -> None:
    edges = Edges.chain(5)
    assert triples_of(edges) == {(node(at), EDGE, node(at + 1)) for at in range(5)}
    assert edges.reached_count() == 5


def test_a_tree_of_classes_is_counted() -> None:
    tree = ClassTree.of_triples(160)
    lines = tree.lines().decode().splitlines()
    assert len(lines) == len(set(lines)) == tree.triple_count
    triples = {tuple(line.removesuffix(" .").split(" ", 2)) for line in lines}
    rules = [
        Rule("sub", (Pattern("?c", SUB, "?e"),), (Body((Pattern("?c", SUB, "?d"), Pattern("?d", SUB, "?e"))),)),
        Rule(
            "is", (Pattern("?x", RDF_TYPE, "?d"),), (Body((Pattern("?x", RDF_TYPE, "?c"), Pattern("?c", SUB, "?d"))),)
        ),
        Rule(
            "domain",
            (Pattern("?x", RDF_TYPE, "?c"),),
            (Body((Pattern("?p", f"<{RDFS}domain>", "?c"), Pattern("?x", "?p", "?y"))),),
        ),
    ]
    found = Program.of(rules).closure({"": triples}).only_inferred()
    assert sum(one[1] == RDF_TYPE for one in found) == tree.type_count
    assert sum(one[1] == SUB for one in found) == tree.subclass_count
    assert (f"{node(0)}", RDF_TYPE, f"<{EX}Measured>") in found


def test_the_walks_of_a_forest_are_counted() -> None:
    forest = Forest.of_edges(50)
    root = node(0)
    for _ in range(3):
        gone, come = forest.moved(5)
        assert len(gone) == len(come) == 5
        triples = {forest.triple(child) for child, parent in enumerate(forest.parents.tolist()) if parent >= 0}
        assert len(triples) == 50
        walks = {(one, other) for one, _, other in triples}
        while more := {(one, last) for one, other in walks for first, last in walks if other == first} - walks:
            walks |= more
        assert forest.counts() == (len(walks), sum(one == root for one, _ in walks))


def test_rounds_are_drawn(tmp_path: Path) -> None:
    run.plot({"closure": [1.0, 2.0, 30.0], "no rules": list(np.arange(1, 4.0))}, tmp_path / "rules.png")
    assert (tmp_path / "rules.png").stat().st_size > 10_000


def test_sizes_are_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main_of_rules(["--edges", "0"])
    assert "from 1 on" in capsys.readouterr().err


@pytest.mark.slow
def test_nodes_are_asked_the_same(tmp_path: Path) -> None:
    assert run.main(tmp_path, True, ["nodes"], open_cluster=in_process) == 0
    rows = json.loads((tmp_path / "rules.json").read_text(encoding="utf-8"))["tables"][run.NODES]
    assert [row["nodes"] for row in rows] == ["embedded"] * 4 + ["1"] * 4 + ["2"] * 4
    assert [row["by"] for row in rows] == ["apply", "apply", "stream", "stream"] * 3
    assert [row["inferred"] for row in rows[:4]] == [row["inferred"] for row in rows[-4:]]
    assert rows[-3]["reads of others"] > rows[0]["reads of others"] == 0


@pytest.mark.slow
def test_every_question_is_checked_and_timed(tmp_path: Path) -> None:
    questions = [name for name in run.QUESTIONS if name != "nodes"]
    assert main(["rules", "--quick", "--report", str(tmp_path), "--only", *questions]) == 0
    found = json.loads((tmp_path / "rules.json").read_text(encoding="utf-8"))
    assert set(found["tables"]) == {run.REST, run.MOVING, run.CHAIN, PATHS, run.COST, run.UNIVERSITIES, run.BESIDE}
    assert len(found["tables"][PATHS]) == 4
    assert [row["graph"] for row in found["tables"][run.MOVING]] == ["closure", "reachability", "no rules"]
    assert all(0 < row["p50"] <= row["p99"] for row in found["tables"][run.MOVING])
    assert all(row["inferred"] > 0 for row in found["tables"][run.REST])
    assert (tmp_path / "rules.png").stat().st_size > 10_000


def test_a_wrong_answer_reports_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ClassTree, "type_count", 3)
    assert main_of_rules(["--quick", "--only", "classes", "--report", str(tmp_path)]) == 1
    assert "No time is reported" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
