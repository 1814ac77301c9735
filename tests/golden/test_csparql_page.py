"""docs/csparql.md: its queries parse and register, its example prints what it says, its tables hold."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import wukongs
from wukongs.csparql.parser import parse_query
from wukongs.live.declarations import check_continuous, parse_registered
from wukongs.live.query_source import QuerySource
from wukongs.live.views.options import ViewOptions, check_view

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "csparql.md").read_text("utf-8")
BASE = "http://e/"
WINDOW = "[RANGE 1s STEP 1s]"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def uneven_rows() -> list[list[str]]:
    """The rows of the table of two streams: how A stands, how B stands, batch_ms of B, and what four queries do."""
    table = PAGE.split("| A | B | `batch_ms` of B | A | A and B | A, stored | A and B, stored |\n")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]


def dataset_rows() -> list[tuple[str, str, str]]:
    table = PAGE.split("| clause | pattern | ?x |\n|---|---|---|\n")[1].split("\n\n")[0]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in table.splitlines()]
    return [(row[0].replace("[...]", WINDOW), row[1], row[2] if len(row) > 2 else "") for row in cells]


@pytest.mark.parametrize("text", blocks("sparql"))
def test_each_query_can_be_registered(text: str) -> None:
    source = QuerySource(text)
    query = parse_registered(source)
    assert query.registration is not None
    if query.dataset.windows:
        check_continuous(query, source)
    else:
        check_view(query, source, ViewOptions())


@pytest.mark.parametrize("place", range(len(blocks("python"))))
def test_the_examples_print_what_the_page_says(place: int) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(blocks("python")[place], {})
    assert printed.getvalue() == blocks("text")[place]


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
            (window,) = query.results(timeout_s=0)
            found = list(window)
    assert " ".join(sorted(str(term).removeprefix(BASE) for (term,) in found)) == expected


def test_the_table_of_two_streams_is_read() -> None:
    rows = uneven_rows()
    assert len(rows) == 23
    assert {row[2] for row in rows} == {"100", "1000"}
    assert {" ".join(re.findall("[a-z]+", cell)) for row in rows for cell in row[:2]} == {
        "not begun",
        "closed",
        "late closed",
        "ended",
        "ended not begun",
    }
    assert {cell for row in rows for cell in row[3:]} == {"fires", "waits", "never"}


@pytest.mark.parametrize("row", uneven_rows(), ids=lambda row: f"A {row[0]}, B {row[1]}, {row[2]} ms")
def test_the_table_of_two_streams(row: list[str]) -> None:
    stands = dict(zip("AB", row[:2], strict=True))
    sizes = {"A": "[RANGE 500ms STEP 500ms]", "B": "[RANGE 1s STEP 500ms]" if row[2] == "100" else WINDOW}
    with wukongs.Engine() as engine:
        streams = {
            name: engine.stream(BASE + name, batch_ms=int(length), timing=True)
            for name, length in (("A", "100"), ("B", row[2]))
        }
        queries = []
        for number, (read, also) in enumerate((("A", ""), ("AB", ""), ("A", "stored"), ("AB", "stored"))):
            clause = " ".join(f"FROM STREAM <{BASE}{name}> {sizes[name]}" for name in read)
            stored = "FROM <urn:x-wukongs:default>" if also else ""
            text = f"REGISTER QUERY q{number} COMPUTED EVERY 500ms AS SELECT * {clause} {stored} WHERE {{ ?s ?p ?o }}"
            queries.append(engine.register(text))
        found: list[set[int]] = [set() for _ in queries]

        def look() -> list[bool]:
            """Tell which queries have fired at 1500 so far."""
            engine.settle(timeout_s=60)
            for query, ends in zip(queries, found, strict=True):
                ends.update(window.end_ms for window in query.results(timeout_s=0.01))
            return [1500 in ends for ends in found]

        begun = [name for name, stand in stands.items() if "not begun" not in stand]
        for name in begun:
            if "late" not in stands[name]:
                streams[name].advance(0)
        if "late" in stands["B"]:
            streams["A"].advance(1400)
            streams["B"].advance(0)
        for name in begun:
            streams[name].advance(int(stands[name].split()[-1]))
        for name, stand in stands.items():
            if "ended" in stand:
                streams[name].close()
        assert look() == [cell == "fires" for cell in row[3:]]
        goes_on = [streams[name] for name, stand in stands.items() if "ended" not in stand]
        for time_ms in (0, 2000):
            for stream in goes_on:
                stream.advance(time_ms)
        assert look() == [cell != "never" for cell in row[3:]]
