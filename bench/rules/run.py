"""Rules: closures of data at rest, and closures that follow a graph which changes all the time.

A tree of classes and LSBench's network under RDFS; a closure and reachability over many edges, of which some come and
go every 10 ms; an edge that leaves a long chain; what rules cost where they conclude nothing; memory. Counts are
compared with what the data's own rules, or a plain search, say.
"""

from __future__ import annotations

import gc
import io
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from wukongs import Engine
from wukongs.bench.harness import Report, WrongAnswer, repeat, summary
from wukongs.bench.lsbench.data import find_folder, generate_lsbench, read_lsbench
from wukongs.bench.memory import resident_bytes
from wukongs.bench.nodes.engines import OpenBench, embedded, processes, since
from wukongs.bench.rules.data import CLOSURE, EDGE, EX, RDFS, REACHABILITY, REACHED, TYPE, ClassTree, Edges, node
from wukongs.bench.rules.paths import bench_paths
from wukongs.bench.rules.universities import RULES, Universities

ROUND_S = 0.01
BATCH_MS = 100
SETTLE_S = 60.0
SLICE = 500_000
FROM_INFERRED = "FROM <urn:x-wukongs:inferred>"
UNRELATED = f"RULE unrelated: CONSTRUCT {{ ?x <{EX}other> ?y }} WHERE {{ ?x <{EX}never> ?y }}"
REST = "Closures of data at rest"
MOVING = "Changes in rounds of 10 ms, half of them deletions, ms a round"
CHAIN = "One edge of a chain goes, and comes again, ms"
COST = "Loading and queries with and without rules"
UNIVERSITIES = "Universities: questions with and without what follows"
NODES = "The closure of a forest on nodes, ms a change of so many edges, half of them deletions"
BESIDE = "Beside owlrl, RDFS of a tree of classes"


@dataclass(frozen=True, slots=True)
class Sizes:
    """triples: of the tree of classes; edges: of each graph; changes: in a round; small: triples for owlrl;
    universities: how many; path_edges: of the forest with paths; window_steps: in so many its window turns over."""

    triples: int = 10_000_000
    edges: int = 1_000_000
    rounds: int = 1000
    changes: int = 200
    chain: int = 10_000
    small: int = 5_000
    universities: int = 10
    repeats: int = 20
    path_edges: int = 100_000
    window_steps: int = 60


QUICK = Sizes(
    triples=600, edges=400, rounds=6, changes=10, chain=40, small=300, universities=2, repeats=2, path_edges=2000
)


def main(
    report: Path | None = None,
    quick: bool = False,
    only: Sequence[str] = (),
    sizes: Sizes | None = None,
    open_cluster: OpenBench = processes,
) -> int:
    """Run the questions asked for; return the exit status, 1 for a wrong answer."""
    sizes = sizes or (QUICK if quick else Sizes())
    results = Report("rules", {name: getattr(sizes, name) for name in Sizes.__dataclass_fields__})
    samples: dict[str, list[float]] = {}
    try:
        for name in only or QUESTIONS:
            _ask(name, results, sizes, quick, samples, open_cluster)
            gc.collect()
    except WrongAnswer as error:
        print(f"wukongs: bench rules: {error}", file=sys.stderr)
        return 1
    results.publish(report)
    if report is not None and samples:
        plot(samples, report / "rules.png")
    return 0


QUESTIONS = ("classes", "lsbench", "moving", "chain", "paths", "cost", "universities", "owlrl", "nodes")


def _ask(
    name: str,
    results: Report,
    sizes: Sizes,
    quick: bool,
    samples: dict[str, list[float]],
    open_cluster: OpenBench,
) -> None:
    match name:
        case "classes":
            _classes(results, sizes)
        case "lsbench":
            _lsbench(results, quick)
        case "moving":
            samples |= _moving(results, sizes)
        case "chain":
            _chain(results, sizes)
        case "paths":
            bench_paths(results, sizes.path_edges, sizes.repeats, sizes.changes // 2, sizes.window_steps)
        case "cost":
            _cost(results, sizes)
        case "universities":
            _universities(results, sizes)
        case "nodes":
            _nodes(results, sizes, open_cluster)
        case _:
            _owlrl(results, sizes)


# --- data at rest -----------------------------------------------------------------------------------------------------


def _opened(**options: Any) -> Any:
    return Engine(**options)


def _count(engine: Any, where: str, dataset: str = "") -> int:
    [[count]] = engine.query(f"SELECT (COUNT(*) AS ?n) {dataset} {{ {where} }}")
    return int(count)


def _inferred(engine: Any) -> int:
    return _count(engine, "?s ?p ?o", FROM_INFERRED)


def _load(engine: Any, lines: bytes) -> float:
    began = time.perf_counter()
    engine.load(io.BytesIO(lines), format="nt")
    return time.perf_counter() - began


def _closure(name: str, engine: Any, triples: int) -> dict[str, Any]:
    """Add RDFS to a loaded engine; return a row about it."""
    memory, stored = resident_bytes(), engine.stats()["stored_bytes"]
    began, cpu = time.perf_counter(), time.process_time()
    engine.add_rules("rdfs")
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    count = _inferred(engine)
    row: dict[str, Any] = {"data": name, "way": "rules added", "triples": triples, "inferred": count, "s": seconds}
    row |= {"inferred/s": count / seconds, "inferred/s of CPU": count / max(cpu_s, 1e-9)}
    row["resident B an inference"] = (resident_bytes() - memory) / max(count, 1)
    row["stored B an inference"] = (engine.stats()["stored_bytes"] - stored) / max(count, 1)
    return row


def _classes(results: Report, sizes: Sizes) -> None:
    _compile()
    tree = ClassTree.of_triples(sizes.triples)
    lines = tree.lines()
    with _opened() as engine:
        _load(engine, lines)
        row = _closure("tree of classes", engine, tree.triple_count)
        _check_tree(results, engine, tree)
        results.add(REST, row)
    with _opened(rules="rdfs") as engine:
        seconds = _load(engine, lines)
        _check_tree(results, engine, tree)
        count = _inferred(engine)
    row = {
        "data": "tree of classes",
        "way": "loaded under rules, the load included",
        "triples": tree.triple_count,
        "inferred": count,
    }
    results.add(REST, {**row, "s": seconds, "inferred/s": count / seconds})


def _check_tree(results: Report, engine: Any, tree: ClassTree) -> None:
    types = _count(engine, f"?x <{EX}value> ?v . ?x {TYPE} ?c")
    results.check("types of instances, of the leaf too", tree.type_count + tree.instances, types)
    above = _count(engine, f"?c <{RDFS}subClassOf> ?d FILTER (!sameTerm(?c, ?d) && STRSTARTS(STR(?d), '{EX}'))")
    results.check("classes and those above", tree.subclass_count + tree.classes - 1, above)


def _lsbench(results: Report, quick: bool) -> None:
    """The network's own names below names of a small schema."""
    folder = None if quick else find_folder(None)
    data = generate_lsbench() if folder is None else read_lsbench(folder)
    with _opened() as engine:
        _load(engine, data.stored)
        names = (row[0] for row in engine.query("SELECT DISTINCT ?p { ?s ?p ?o }").texts())
        classes = (row[0] for row in engine.query(f"SELECT DISTINCT ?c {{ ?s {TYPE} ?c }}").texts())
        schema = [f"{one} <{RDFS}subPropertyOf> <{EX}related> ." for one in names if one != TYPE]
        schema += [f"{one} <{RDFS}subClassOf> <{EX}Entity> ." for one in classes]
        schema.append(f"<{EX}related> <{RDFS}domain> <{EX}Subject> .")
        others = f"{{ ?s ?p ?o FILTER (?p != {TYPE}) }}"
        pairs = _count(engine, f"{{ SELECT DISTINCT ?s ?o {others} }}")
        subjects = _count(engine, f"{{ SELECT DISTINCT ?s {others} }}")
        _load(engine, "\n".join(schema).encode() + b"\n")
        row = _closure(data.source, engine, data.stored_count + len(schema))
        results.check("related pairs", pairs, _count(engine, f"?s <{EX}related> ?o"))
        results.check("their subjects", subjects, _count(engine, f"?s {TYPE} <{EX}Subject>"))
        results.add(REST, row)


def _compile() -> None:
    """Let all kernels of rules be compiled before times are taken."""
    with _opened(rules=[CLOSURE, REACHABILITY]) as engine:
        edges = Edges.chain(8)
        engine.apply(edges.table(edges.there()))
        engine.apply(deletes=edges.table(np.array([3])))
        engine.add_rules("rdfs")
        _load(engine, ClassTree(2, 8).lines())


# --- a graph that moves -----------------------------------------------------------------------------------------------


def _moving(results: Report, sizes: Sizes) -> dict[str, list[float]]:
    _compile()
    spare = max(sizes.edges // 10, sizes.changes)
    graphs: tuple[tuple[str, str, Edges, Callable[[Edges], int], str], ...] = (
        ("closure", CLOSURE, Edges.forest(sizes.edges, spare), Edges.closure_count, f"?x {EDGE} ?y"),
        (
            "reachability",
            REACHABILITY,
            Edges.random_graph(max(sizes.edges // 2, 2), sizes.edges, spare),
            Edges.reached_count,
            f"?x {REACHED} ?y",
        ),
        ("no rules", "", Edges.forest(sizes.edges, spare), lambda edges: len(edges.there()), f"?x {EDGE} ?y"),
    )
    samples = {}
    for name, rules, edges, count_of, where in graphs:
        with _opened() as engine:
            there = edges.there()
            for first in range(0, len(there), SLICE):
                engine.apply(edges.table(there[first : first + SLICE]))
            began = time.perf_counter()
            if rules:
                engine.add_rules(rules)
            row: dict[str, Any] = {"graph": name, "edges": len(there), "closure s": time.perf_counter() - began}
            results.check(f"{name} before changes", count_of(edges), _count(engine, where))
            took, late = _rounds(engine, list(edges.changes(sizes.rounds, sizes.changes)))
            results.check(f"{name} after changes", count_of(edges), _count(engine, where))
            if rules:
                row["inferred"] = _inferred(engine)
            found, behind = summary(took), summary(late)
            row |= {
                "changes/s": sizes.changes / ROUND_S,
                "p50": found["median"],
                "p99": found["p99"],
                "max": found["max"],
            }
            results.add(MOVING, {**row, "due to readable p50": behind["median"], "due to readable p99": behind["p99"]})
            samples[name] = took
    return samples


def _rounds(engine: Any, changes: list[tuple[Any, Any]]) -> tuple[list[float], list[float]]:
    """Apply each round when it is due; return how long each took, and how long after it was due it was readable."""
    took, late = [], []
    gc.collect()
    start = time.perf_counter()
    for number, (come, gone) in enumerate(changes):
        due = start + number * ROUND_S
        time.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        engine.apply(come, gone)
        ended = time.perf_counter()
        took.append((ended - began) * 1e3)
        late.append((ended - due) * 1e3)
    return took, late


def _chain(results: Report, sizes: Sizes) -> None:
    _compile()
    edges = Edges.chain(sizes.chain)
    with _opened() as engine:
        engine.apply(edges.table(edges.there()))
        engine.add_rules(REACHABILITY)
        results.check("the chain is reached", sizes.chain, _count(engine, f"?x {REACHED} ?y"))
        for below in sorted({1, 10, 100, 1000, sizes.chain // 2, sizes.chain} & set(range(1, sizes.chain + 1))):
            one = edges.table(np.array([sizes.chain - below]))
            gone, come = [], []
            for _ in range(sizes.repeats):
                began = time.perf_counter()
                engine.apply(deletes=one)
                gone.append((time.perf_counter() - began) * 1e3)
                results.check(f"{below} are not reached", sizes.chain - below, _count(engine, f"?x {REACHED} ?y"))
                began = time.perf_counter()
                engine.apply(one)
                come.append((time.perf_counter() - began) * 1e3)
            results.check("all are reached again", sizes.chain, _count(engine, f"?x {REACHED} ?y"))
            row = {"inferences that go": below, "goes": summary(gone)["median"], "comes": summary(come)["median"]}
            results.add(CHAIN, row)


# --- cost, and others -------------------------------------------------------------------------------------------------


def _cost(results: Report, sizes: Sizes) -> None:
    tree = ClassTree.of_triples(max(sizes.triples // 10, 300))
    lines, asked = tree.lines(), f"SELECT ?x {{ ?x {TYPE} ?c . ?x <{EX}value> ?v }}"
    some = f"SELECT ?c {{ {node(7)} {TYPE} ?c }}"
    for name, rules in (("no rules", ()), ("a rule that meets nothing", UNRELATED), ("rdfs", "rdfs")):
        with _opened() as engine:
            if rules:
                engine.add_rules(rules)
            seconds = _load(engine, lines)
            rows = len(engine.query(asked).texts())
            results.check(f"rows, {name}", tree.instances + (tree.type_count if name == "rdfs" else 0), rows)
            many = _asked(engine, asked, sizes.repeats)
            few = _asked(engine, some, 10 * sizes.repeats)
            row = {"rules": name, "triples": tree.triple_count, "loaded/s": tree.triple_count / seconds, "rows": rows}
            results.add(COST, {**row, "query ms": many * 1e3, "one instance us": few * 1e6})


def _universities(results: Report, sizes: Sizes) -> None:
    data = Universities(sizes.universities)
    with _opened() as engine:
        _load(engine, data.lines())
        plain = {name: len(engine.query(text)) for name, (text, _) in data.questions.items()}
        explicit, began = _count(engine, "?s ?p ?o"), time.perf_counter()
        engine.add_rules("rdfs")
        engine.add_rules(RULES)
        seconds, inferred = time.perf_counter() - began, _inferred(engine)
        results.notes.append(
            f"{sizes.universities} universities: {explicit:,} triples, {inferred:,} inferred in {seconds:.2f} s"
        )
        for name, (text, rows) in data.questions.items():
            results.check(name, rows, len(engine.query(text)))
            took = _asked(engine, text, sizes.repeats) * 1e3
            results.add(UNIVERSITIES, {"question": name, "rows without": plain[name], "rows": rows, "ms": took})


def _asked(engine: Any, text: str, repeats: int) -> float:
    """Return the median of the seconds that an answer takes."""
    return summary(repeat(lambda: engine.query(text).arrow(ids=True), repeats))["median"]


def _owlrl(results: Report, sizes: Sizes) -> None:
    try:
        import owlrl
    except ImportError:
        results.notes.append("owlrl is not installed: nothing beside it")
        return
    import rdflib

    tree = ClassTree.of_triples(sizes.small)
    graph = rdflib.Graph()
    graph.parse(data=tree.lines().decode(), format="nt")
    before = len(graph)
    began = time.perf_counter()
    owlrl.DeductiveClosure(owlrl.RDFS_Semantics, axiomatic_triples=False, datatype_axioms=False).expand(graph)
    others_s = time.perf_counter() - began
    _compile()
    with _opened() as engine:
        _load(engine, tree.lines())
        row = _closure("owlrl", engine, tree.triple_count)
        _check_tree(results, engine, tree)
        ours = {(str(s), str(o)) for s, o in engine.query(f"SELECT ?s ?o {{ ?s {TYPE} ?o . ?s <{EX}value> ?v }}")}
        theirs = {
            (str(s), str(o))
            for s, o in graph.subject_objects(rdflib.RDF.type)
            if str(s).startswith(f"{EX}n") and str(o).startswith(EX)
        }
        results.check("types of instances as owlrl has them", len(theirs), len(ours & theirs))
        added = len(graph) - before
        results.add(BESIDE, {"engine": "owlrl", "triples": before, "inferred": added, "inferred/s": added / others_s})
        results.add(
            BESIDE, {"engine": "wukongs", **{name: row[name] for name in ("triples", "inferred", "inferred/s")}}
        )


# --- nodes ------------------------------------------------------------------------------------------------------------


def _nodes(results: Report, sizes: Sizes, open_cluster: OpenBench) -> None:
    """The closure of a forest, where one engine, one node and two nodes hold it: one change after the other, by `apply`
    and by a stream that stores them."""
    count = max(sizes.edges // 20, 40)
    for opened in (embedded(), open_cluster(1), open_cluster(2)):
        edges = Edges.forest(count, max(count // 10, sizes.changes))
        with opened as bench:
            engine = bench.engine
            warm = Edges.chain(8)
            engine.apply(warm.table(warm.there()))
            engine.add_rules(CLOSURE)
            engine.apply(deletes=warm.table(warm.there()))
            engine.drop_rules("closure")
            engine.apply(edges.table(edges.there()))
            began = time.perf_counter()
            engine.add_rules(CLOSURE)
            row: dict[str, Any] = {"nodes": bench.name, "edges": count, "closure s": time.perf_counter() - began}
            stream = engine.stream(f"{EX}edges", batch_ms=BATCH_MS)
            stream.advance(time_ms := BATCH_MS)
            engine.settle(SETTLE_S)
            for by, changes in [(by, count) for by in ("apply", "stream") for count in sorted({2, sizes.changes})]:
                before, took = bench.counters(), list[float]()
                for come, gone in edges.changes(max(sizes.rounds // 20, 5), changes):
                    began = time.perf_counter()
                    if by == "apply":
                        engine.apply(come, gone)
                    else:
                        stream.push_arrow(_signed(come, gone, time_ms + 1))
                        stream.advance(time_ms := time_ms + BATCH_MS)
                        engine.settle(SETTLE_S)
                    took.append((time.perf_counter() - began) * 1e3)
                found, spent = summary(took), since(before, bench.counters())
                results.check("closure after changes", edges.closure_count(), _count(engine, f"?x {EDGE} ?y"))
                reads = spent["requests"] / len(took)
                shown = {
                    "by": by,
                    "changes": changes,
                    "p50": found["median"],
                    "p99": found["p99"],
                    "reads of others": reads,
                }
                results.add(NODES, {**row, **shown, "inferred": _inferred(engine)})


def _signed(come: pa.Table, gone: pa.Table, time_ms: int) -> pa.Table:
    """Return tuples and retractions of one time."""
    signs = pa.array(["+"] * len(come) + ["-"] * len(gone))
    both = pa.concat_tables([come, gone]).append_column("op", signs)
    return both.append_column("timestamp_ms", pa.array([time_ms] * len(both)))


def plot(samples: dict[str, list[float]], path: Path) -> None:
    """Draw the time of each round."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (over_time, shares) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
    for name, took in samples.items():
        over_time.plot([number * ROUND_S for number in range(len(took))], took, ".", markersize=2, label=name)
        shares.plot(np.linspace(0, 100, len(took)), np.sort(took), label=name)
    for axes in (over_time, shares):
        axes.axhline(ROUND_S * 1e3, color="red", linestyle=":", label="a round")
        axes.set(yscale="log", ylabel="ms")
        axes.legend(fontsize="x-small")
    over_time.set(xlabel="seconds", title="insertions and deletions, readable with all that follows")
    shares.set(xlabel="% of the rounds", title="no slower than")
    figure.savefig(path, dpi=120)
    plt.close(figure)
