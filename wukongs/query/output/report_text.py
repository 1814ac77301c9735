"""Reports of live views as text: JSON on one line, which HTTP sends, and a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wukongs.query.output.serialize import serialize
from wukongs.query.output.table_cells import TRIPLE_COLUMNS, cell_writer, is_number
from wukongs.query.output.view_report import ViewReport
from wukongs.query.terms.rdf_terms import to_ntriples
from wukongs.query.terms.text_table import TableLayout


def report_facts(report: ViewReport) -> dict[str, Any]:
    """Return what a report says beside its rows."""
    facts = {"query": report.query, "after": report.after, "snapshot": report.snapshot, "time_ms": report.time_ms}
    return facts | ({"minor": report.minor} if report.minor else {})


def report_json(report: ViewReport, rows_max: int | None = None) -> str:
    """Return a report as JSON on one line.

    `changes` has an object for each row: `weight`, and `binding` as in SPARQL JSON results, or `triple` as three
    N-Triples terms. rows_max: the most rows that are written; `row_count` has the number of all, if that is more."""
    facts, rows = report_facts(report), report
    if rows_max is not None and len(report) > rows_max:
        facts["row_count"] = len(report)
        rows = report.first(rows_max)
    if report.kind == "ask":
        facts["boolean"] = report.boolean
        name, texts = "binding", ["{}"] * len(rows)
    elif report.is_graph:
        name, texts = "triple", [json.dumps([to_ntriples(term) for term in triple]) for triple in rows.triples()]
    else:
        facts["head"] = {"vars": list(report.vars)}
        # a row is a line, since line ends in terms are escaped
        lines = serialize(rows, "json").split("\n")[1:-2] if len(rows) else []
        name, texts = "binding", [line.removesuffix(",") for line in lines]
    weights = rows.weights.tolist()
    changes = [f'{{"weight": {weight}, "{name}": {text}}}' for weight, text in zip(weights, texts, strict=True)]
    return f'{json.dumps(facts)[:-1]}, "changes": [{", ".join(changes)}]}}'


def report_table(report: ViewReport, prefixes: Mapping[str, str], width: int | None = None) -> str:
    """Return the rows of a report as a table, whose first column has their weights.

    prefixes: shorten IRIs. width: cells of a line; None: any."""
    names = TRIPLE_COLUMNS if report.is_graph else tuple(f"?{name}" for name in report.vars)
    cell = cell_writer(prefixes)
    chunks = report.cell_chunks([cell] * len(names))
    columns: list[list[str | None]] = [[f"{weight:+d}" for weight in report.weights.tolist()], *([] for _ in names)]
    for found, _ in chunks:
        for column, cells in zip(columns[1:], found, strict=True):
            column += cells
    layout = TableLayout(("", *names), is_number)
    layout.measure(columns)
    return layout.head(width) + layout.lines(columns, len(report))
