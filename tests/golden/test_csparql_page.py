"""docs/csparql.md: its queries parse and register, its example prints what it says, its table answers so."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import wukongs
from wukongs.csparql.parser import parse_query
from wukongs.live.continuous import QuerySource
from wukongs.live.declarations import parse_continuous

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "csparql.md").read_text("utf-8")
BASE = "http://e/"
WINDOW = "[RANGE 1s STEP 1s]"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def dataset_rows() -> list[tuple[str, str, str]]:
    table = PAGE.split("| clause | pattern | ?x |\n|---|---|---|\n")[1].split("\n\n")[0]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in table.splitlines()]
    return [(row[0].replace("[...]", WINDOW), row[1], row[2] if len(row) > 2 else "") for row in cells]


@pytest.mark.parametrize("text", blocks("sparql"))
def test_each_query_can_be_registered(text: str) -> None:
    query = parse_continuous(QuerySource(text))
    assert query.registration is not None


def test_the_example_prints_what_the_page_says() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(blocks("python")[0], {})
    assert printed.getvalue() == blocks("text")[0]


def test_the_table_is_read() -> None:
    assert len(dataset_rows()) == 22
    assert {row[2] for row in dataset_rows()} == {"d", "g", "s", "", "d s", "g s"}


@pytest.mark.parametrize("row", dataset_rows(), ids=lambda row: f"{row[0]} {row[1]}".strip())
def test_the_table_of_dataset_clauses(row: tuple[str, str, str]) -> None:
    clause, pattern, expected = row
    with wukongs.Engine() as engine:
        for name, graph in (("d", None), ("g", BASE + "g")):
            line = f"<{BASE}{name}> <{BASE}p> <{BASE}o> .\n".encode()
            engine.load(io.BytesIO(line), graph=graph, format="nt")
        select = f"SELECT DISTINCT ?x {clause} WHERE {pattern}"
        if not parse_query(select, BASE).dataset.windows:
            found = list(engine.query(select, base=BASE))
        else:
            stream = engine.stream(BASE + "s", batch_ms=1000, timing=True)
            stream.advance(0)
            query = engine.register(f"REGISTER QUERY q AS {select}", base=BASE)
            stream.push([(f"<{BASE}s>", f"<{BASE}p>", f"<{BASE}o>", 500)])
            stream.advance(1000)
            engine.settle(timeout_s=60)
            (window,) = query.results(timeout_s=0.05)
            found = list(window)
    assert " ".join(sorted(str(term).removeprefix(BASE) for (term,) in found)) == expected
