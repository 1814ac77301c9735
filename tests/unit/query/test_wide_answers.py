"""Queries with hundreds of variables: plans and answers take little memory, and writing them looks at the clock."""

from __future__ import annotations

import json
import time

import pytest

import wukongs
from wukongs.errors import QueryTimeout
from wukongs.query.limits import Limits
from wukongs.query.output import results
from wukongs.query.plans.plan_runner import TABLE_CELLS, Workspace

COUNT = 150
LINKS = "|".join(f"<http://e/p{at}>" for at in range(400))
UNION = " UNION ".join(f"{{ ?s <http://e/p> {at} }}" for at in range(5_000))


@pytest.fixture
def engine() -> wukongs.Engine:
    engine = wukongs.Engine()
    engine.update("INSERT DATA { <http://e/a> <http://e/p> 1 . <http://e/b> <http://e/p> 2 }")
    return engine


def test_an_answer_of_many_columns_is_written_in_chunks_of_few_cells(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    branches = " UNION ".join(f"{{ ?s{at} <http://e/p> 1 }}" for at in range(COUNT))
    result = engine.query(f"SELECT * {{ {branches} }}")
    whole = {format: result.serialize(format) for format in ("json", "csv", "xml", "table")}
    monkeypatch.setattr(results, "_CHUNK_CELLS", 1000)
    assert max(count for _, count in result.id_chunks()) == 1000 // COUNT
    assert sum(count for _, count in result.id_chunks()) == COUNT
    assert whole == {format: result.serialize(format) for format in whole}
    rows = json.loads(whole["json"])["results"]["bindings"]
    assert rows == [{f"s{at}": {"type": "uri", "value": "http://e/a"}} for at in range(COUNT)]


def test_chunks_of_an_answer_look_at_the_clock(engine: wukongs.Engine) -> None:
    result = engine.query("SELECT ?s { ?s ?p ?o }")
    with Limits(deadline_s=time.monotonic() - 1, timeout_s=1), pytest.raises(QueryTimeout):
        result.serialize("csv")
    assert result.serialize("csv").count("http://e/") == 2


def test_a_plan_of_many_steps_has_small_tables(engine: wukongs.Engine) -> None:
    workspace = Workspace()
    assert workspace.tables_for(9, 20).shape == (9, 512, 20)
    wide = workspace.tables_for(999, 1001)
    assert wide.nbytes <= 8 * TABLE_CELLS
    assert wide.shape == (999, TABLE_CELLS // (999 * 1001), 1001)
    star = " . ".join(f"?s <http://e/p> ?o{at}" for at in range(COUNT))
    found = engine.query(f"SELECT ?s ?o0 ?o{COUNT - 1} {{ {star} }}").texts()
    integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    expected = [(f"<http://e/{name}>", *[f'"{value}"{integer}'] * 2) for name, value in (("a", 1), ("b", 2))]
    assert sorted(found) == expected


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"SELECT * {{ {UNION} }}", "the reading of its text"),
        (f"SELECT * {{ ?s ({LINKS})* ?o }}", "a property path"),
    ],
)
def test_texts_and_automata_are_made_within_the_time_of_the_query(
    engine: wukongs.Engine, text: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time passes by itself: a step of the clock for each look."""
    ticks = iter(range(1_000_000))
    monkeypatch.setattr("wukongs.query.limits.time.monotonic", lambda: next(ticks) / 100)
    with pytest.raises(QueryTimeout, match=f"timeout_s = 0.5, at last in {place}"):
        engine.query(text, timeout_s=0.5)
    with pytest.raises(QueryTimeout, match=r"timeout_s = 0.5, at last in"):
        engine.update(f"INSERT {{ ?s <http://e/q> 1 }} WHERE {{ {text} }}", timeout_s=0.5)
    assert engine.query("ASK { ?s <http://e/q> 1 }").boolean is False
