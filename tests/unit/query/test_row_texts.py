"""Terms as the results formats write them: eight bytes at a time, and what has to be escaped, wherever it stands."""

from __future__ import annotations

import csv
import io
import json

import pyoxigraph
import pytest

import wukongs

NAME = "<http://example.org/name>"
SPECIAL = ['"', "\\", "\n", "\r", "\t", "\x0b", "é", "日", "\U0001f600", ",", "&", "<"]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    found = ["", "plain", *SPECIAL, '"' * 17]
    for special in SPECIAL:
        found += [f"{'x' * before}{special}{'y' * after}" for before in range(10) for after in (0, 1, 7, 8, 9)]
    return found


@pytest.fixture(scope="module")
def result(texts: list[str]) -> wukongs.Result:
    with wukongs.Engine() as engine:
        lines = "".join(f"_:b {NAME} {pyoxigraph.Literal(text)} .\n" for text in texts)
        engine.load(io.BytesIO(lines.encode()), format="nt")
        return engine.query(f"SELECT ?text {{ ?x {NAME} ?text }}")


def test_each_format_gives_the_text_back(result: wukongs.Result, texts: list[str]) -> None:
    expected = sorted(set(texts))
    bindings = json.loads(result.serialize("json"))["results"]["bindings"]
    assert sorted(row["text"]["value"] for row in bindings) == expected
    rows = csv.reader(io.StringIO(str(result.serialize("csv")), newline=""))
    assert sorted(row[0] if row else "" for row in list(rows)[1:]) == expected
    for terms in (result.arrow().column(0), result.arrow(dictionary=True).column(0)):
        graph = "".join(f"<e:s> <e:p> {term} .\n" for term in terms.to_pylist())
        found = pyoxigraph.parse(graph.encode(), format=pyoxigraph.RdfFormat.N_TRIPLES)
        assert sorted(quad.object.value for quad in found) == expected
