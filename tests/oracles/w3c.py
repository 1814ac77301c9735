"""The W3C's test suite as data: its tests, the files they name, and the answers that they expect.

Answers are read with pyoxigraph, which shares no code with us; result sets that are written in RDF are put together
from their triples here. Every file's IRI is `BASE` and its path in the suite.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.oracles.rdf import Term, Triple
from tests.oracles.triple_terms import spread_graph, spread_row

SUITE = Path(__file__).resolve().parents[3] / "shared" / "w3c"
BASE = "http://w3c.example/"
_RS = "http://www.w3.org/2001/sw/DataAccess/tests/result-set#"


@dataclass(frozen=True, slots=True)
class W3cTest:
    """One test of tests.json; data and graphs are files of the suite, `graphs` by name."""

    id: str
    suite: str
    category: str
    kind: str
    text: str
    data: tuple[str, ...]
    graphs: dict[str, str] = field(hash=False)
    result: str | list[str] | None = field(hash=False)
    result_graphs: dict[str, str] = field(hash=False)

    @property
    def base(self) -> str:
        return BASE + self.text

    @property
    def short_id(self) -> str:
        return f"{self.suite}/{self.category}/{self.id.rpartition('#')[2]}"

    def source(self) -> str:
        return (SUITE / self.text).read_bytes().decode("utf-8")


@dataclass(frozen=True, slots=True)
class Rows:
    """variables : names in order. rows : one term or None for each variable."""

    variables: tuple[str, ...]
    rows: list[tuple[Term | None, ...]]


Expected = Rows | bool | set[Triple]


@cache
def all_tests() -> tuple[W3cTest, ...]:
    """Every test of the suite, in its order; none at all where the suite is not beside the project."""
    if not (SUITE / "tests.json").is_file():
        return ()
    listed = json.loads((SUITE / "tests.json").read_text(encoding="utf-8"))
    return tuple(
        W3cTest(
            each["id"],
            each["suite"],
            each["category"],
            each["kind"],
            each["text"],
            tuple(each.get("data") or ()),
            {graph_name(name): path for name, path in (each.get("graphs") or {}).items()},
            each.get("result"),
            {graph_name(name): path for name, path in (each.get("result_graphs") or {}).items()},
        )
        for each in listed
    )


def graph_name(name: str) -> str:
    return BASE + name.removeprefix("file:") if name.startswith("file:") else name


def expected_answer(path: str) -> Expected:
    """Read a result file: rows, a truth or a graph."""

    suffix = path.rpartition(".")[2]
    content = (SUITE / path).read_bytes()
    if suffix in ("srx", "srj", "tsv"):
        return read_result(content, suffix)
    graph = graph_of(path)
    if any(object_.value == _RS + "ResultSet" for _, _, object_ in graph):
        return _result_set(graph)
    return graph


def read_result(content: bytes, kind: str, variables: tuple[str, ...] | None = None) -> Rows | bool:
    """Read an answer in srx, srj or tsv; variables: the order of the columns (default: that of the file)."""
    import pyoxigraph as ox

    kinds = {"srx": ox.QueryResultsFormat.XML, "srj": ox.QueryResultsFormat.JSON, "tsv": ox.QueryResultsFormat.TSV}
    found = ox.parse_query_results(content, format=kinds[kind])
    if isinstance(found, ox.QueryBoolean):
        return bool(found)
    assert isinstance(found, ox.QuerySolutions)
    names = variables or tuple(variable.value for variable in found.variables)
    return Rows(names, [spread_row(row[name] for name in names) for row in found])


def graph_of(path: str) -> set[Triple]:
    """Read a file of triples."""
    import pyoxigraph as ox

    kinds = {"ttl": ox.RdfFormat.TURTLE, "rdf": ox.RdfFormat.RDF_XML, "nt": ox.RdfFormat.N_TRIPLES}
    return spread_graph(
        ox.parse((SUITE / path).read_bytes(), format=kinds[path.rpartition(".")[2]], base_iri=BASE + path)
    )


def csv_rows(content: bytes) -> tuple[list[str], list[tuple[tuple[str, ...], ...]]]:
    """Read a CSV answer: header, and rows of comparable cells, in which only blank nodes are known as such."""
    header, *lines = csv.reader(io.StringIO(content.decode("utf-8")))
    return header, [
        tuple(("bnode", cell) if cell.startswith("_:") else ("text", cell) for cell in line) for line in lines
    ]


def _result_set(graph: set[Triple]) -> Expected:
    """Put a result set together that is written in the test vocabulary; rows by rs:index where they have one."""

    def objects(subject: Term, name: str) -> Iterator[Term]:
        return (o for s, p, o in graph if s == subject and p.value == _RS + name)

    (result,) = {s for s, _, o in graph if o.value == _RS + "ResultSet"}
    for truth in objects(result, "boolean"):
        return truth.value == "true"
    names = tuple(sorted(variable.value for variable in objects(result, "resultVariable")))
    rows = []
    for solution in objects(result, "solution"):
        row: dict[str, Term] = {}
        for binding in objects(solution, "binding"):
            (name,), (value,) = objects(binding, "variable"), objects(binding, "value")
            row[name.value] = value
        index = next((int(number.value) for number in objects(solution, "index")), 0)
        rows.append((index, tuple(row.get(name) for name in names)))
    rows.sort(key=lambda pair: pair[0])
    return Rows(names, [row for _, row in rows])
