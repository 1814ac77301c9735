"""From the text of L3 to its lowered plan: what each part takes, beside rdflib's parser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rdflib.plugins.sparql

import wukongs
from wukongs.bench.harness import Report, repeat, summary
from wukongs.bench.lsbench.queries import QUERIES
from wukongs.csparql.algebra import Node
from wukongs.csparql.parser import parse_query
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.planner import plan_filtered
from wukongs.csparql.rules import rewrite
from wukongs.csparql.terms import Variable
from wukongs.csparql.tokens import tokenize
from wukongs.csparql.walk import map_children
from wukongs.query.plans.cardinalities import DatasetCardinalities
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.query_terms import ConstantIds

NOTHING: frozenset[Variable] = frozenset()
_L3 = next(query for query in QUERIES if query.name == "L3")
TITLE = "L3 from text to plan, medians in microseconds"


def bench_parse(report: Report, engine: wukongs.Engine, repeats: int) -> None:
    """Add the times of each part for L3 as plain SPARQL over the stored graph of an engine."""
    text = _L3.select_text("u864", "p864").replace("GRAPH <http://www.ins.cwi.nl/sib/stream/post> ", "")
    core = engine._core
    stored = core.arrangement.trace.read(core.sn)
    query = rewrite(parse_query(text))

    def dataset() -> Dataset:
        return Dataset(query.dataset, stored, {}, ConstantIds(core.registry, core.reserved))

    (wanted,) = _filtered(query.pattern)
    steps = plan_filtered(wanted, NOTHING, DatasetCardinalities(dataset())).steps
    report.check("L3, steps of its plan", 3, len(steps))
    parts: dict[str, Callable[[], Any]] = {
        "tokens": lambda: tokenize(text),
        "parse (with tokens)": lambda: parse_query(text),
        "rewrite": lambda: rewrite(query),
        "plan": lambda: plan_filtered(wanted, NOTHING, DatasetCardinalities(dataset())),
        "plan and lower": lambda: PlanMemo().route(wanted, (), 1, dataset()),
        "all": lambda: PlanMemo().route(_filtered(rewrite(parse_query(text)).pattern)[0], (), 1, dataset()),
        "rdflib's parser alone": lambda: rdflib.plugins.sparql.prepareQuery(text),
    }
    for name, call in parts.items():
        few = max(3, repeats // 100) if name.startswith("rdflib") else repeats
        report.add(
            TITLE, {"part": name, **{k: v * 1e6 for k, v in summary(repeat(call, few, 3)).items() if k != "count"}}
        )


def _filtered(node: Node) -> list[FilteredBgp]:
    found: list[FilteredBgp] = []

    def visit(node: Node) -> Node:
        filtered = FilteredBgp.of(node)
        if filtered is None:
            return map_children(node, visit)
        found.append(filtered)
        return node

    visit(node)
    return found
