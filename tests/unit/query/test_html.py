"""Results, engines and queries in a notebook: escaped tables of bounded size, and a view that changes with windows."""

from __future__ import annotations

import asyncio
import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import wukongs
from tests.unit.remote.served import connected, served
from wukongs.query.output.live_view import line_chart

ATTACK = '"<script>alert(1)</script><img src=x onerror=alert(2)>\\"&amp;"'
WINDOWS = "REGISTER QUERY q AS SELECT ?o FROM STREAM <http://ex/s> [RANGE 100ms STEP 100ms] WHERE { ?s ?p ?o }"


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.titles: dict[str, str] = {}
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self._title = dict(attrs).get("title")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._title is not None:
            self.titles[data] = self._title


def shown(thing: Any) -> Tags:
    found = Tags(thing._repr_html_())
    assert set(found.tags) <= {"div", "b", "table", "thead", "tbody", "tr", "th", "td"}
    assert found.attributes <= {"style", "title"}
    return found


@pytest.fixture
def engine() -> Any:
    with wukongs.Engine() as engine:
        yield engine


def test_terms_are_escaped_and_numbers_are_bare_and_to_the_right(engine: Any) -> None:
    engine.update(f"INSERT DATA {{ <http://ex/a> <http://ex/p> {ATTACK}, 5, 2.5, <http://ex/b&c> }}")
    result = engine.query("SELECT ?s ?o ?none { ?s ?p ?o }")
    found = shown(result)
    assert found.tags.count("td") == 12
    assert {"s", "o", "none", "5", "2.5", "<http://ex/a>", "<http://ex/b&c>", ATTACK} <= set(found.texts)
    assert '<td style="text-align:right">5</td>' in result._repr_html_()
    assert "<script" not in result._repr_html_()
    assert repr(result).startswith("<Result select ?s ?o ?none: 4 rows")


PREFIX = "PREFIX ex: <http://ex/> "


def test_iris_are_shortened_by_the_prefixes_of_the_query_and_whole_in_their_titles(engine: Any) -> None:
    engine.update("INSERT DATA { <http://ex/a> a <http://ex/b/c>, <http://other/d>, 'http://ex/text' }")
    found = shown(engine.query(PREFIX + "SELECT * { ?s ?p ?o }"))
    assert found.titles == {
        "ex:a": "<http://ex/a>",
        "rdf:type": "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>",
    }
    assert {"<http://ex/b/c>", "<http://other/d>", '"http://ex/text"'} <= set(found.texts)
    given = engine.query(PREFIX + "SELECT ?s ?p { ?s ?p ?o }", {"o": "<http://other/d>"})
    assert found.titles == shown(given).titles
    graph = shown(engine.query(PREFIX + "CONSTRUCT { ?s ?p <<( ?s ?p ?o )>> } WHERE { ?s ?p ?o }"))
    assert "ex:a" in graph.titles
    assert shown(engine.query("SELECT ?s { ?s ?p ?o }")).titles == {}


def test_prefixes_and_titles_are_escaped(engine: Any) -> None:
    engine.update("INSERT DATA { <http://ex/x'onmouseover='alert(1)> <http://ex/&amp;> 1 }")
    text = "PREFIX a: <http://ex/x'onmouseover='> SELECT * { ?s ?p ?o }"
    found = shown(engine.query(text))
    assert found.titles == {}
    assert "<http://ex/x'onmouseover='alert(1)>" in found.texts
    engine.update("INSERT DATA { <http://ex/'&quot;#b> <http://ex/p> 1 }")
    found = shown(engine.query("PREFIX a: <http://ex/'&quot;#> SELECT ?s { ?s <http://ex/p> ?o }"))
    assert found.titles == {"a:b": "<http://ex/'&quot;#b>"}


def test_windows_have_the_prefixes_of_their_query(engine: Any) -> None:
    text = PREFIX + WINDOWS.replace("SELECT ?o", "SELECT ?s")
    stream, query = engine.stream("http://ex/s", batch_ms=100), engine.register(text)
    stream.push([("<http://ex/a>", "<http://ex/p>", 7, 50)])
    stream.advance(100)
    window = next(query.results(10))
    assert shown(window).titles == {"ex:a": "<http://ex/a>"}


def test_results_of_a_node_are_shortened_too() -> None:
    with wukongs.Engine() as engine, served(engine) as (_, wire), connected(wire) as client:
        test_windows_have_the_prefixes_of_their_query(client)
        engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
        assert "ex:p" in shown(client.query(PREFIX + "SELECT * { ?s ?p ?o }")).titles


def test_rows_and_texts_are_bounded(engine: Any) -> None:
    engine.update("INSERT DATA { " + " . ".join(f"<http://ex/{n}> <http://ex/p> {n}" for n in range(60)) + " }")
    found = shown(engine.query("SELECT ?o { ?s ?p ?o }"))
    assert found.tags.count("td") == 50
    assert "... 10 more" in found.texts
    long = shown(engine.query('SELECT ("' + "x" * 100_000 + '" AS ?o) {}'))
    assert max(map(len, long.texts)) < 400


def test_other_forms_of_results(engine: Any) -> None:
    engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    assert "ask: true" in shown(engine.query("ASK { ?s ?p ?o }")).texts
    graph = shown(engine.query("CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }"))
    assert {"subject", "predicate", "object", "1"} <= set(graph.texts)
    assert "select: 1 row" in shown(engine.query("SELECT * {}")).texts


def test_an_engine_its_streams_and_queries(engine: Any) -> None:
    stream = engine.stream("http://ex/s", batch_ms=100)
    query = engine.register(WINDOWS)
    stream.push([("<http://ex/a>", "<http://ex/p>", 7, 50)])
    stream.advance(100)
    engine.settle(60)
    assert {"stream http://ex/s", "1 tuples, closed up to 100 ms", "query q"} <= set(shown(engine).texts)
    assert {"Stream http://ex/s", "tuples", "1"} <= set(shown(stream).texts)
    assert {"ContinuousQuery q", WINDOWS, "windows"} <= set(shown(query).texts)
    assert "7" in shown(next(query.results(1))).texts
    assert repr(engine) == "<Engine 1 streams, 1 queries>"
    engine.close()
    assert repr(engine) == "<Engine closed>"
    shown(engine), shown(stream), shown(query)


def test_a_chart_is_well_formed_and_has_gaps() -> None:
    drawn = line_chart([(0, 1.0), (100, 3.0), (200, None), (300, 2.0)], "<script>")
    root = ElementTree.fromstring(f"<div>{drawn}</div>")
    (path,) = (one for one in root.iter() if one.tag == "path")
    assert [step[0] for step in path.attrib["d"].replace("L", " L").replace("M", " M").split() if step[0] in "LM"] == [
        "M",
        "L",
        "M",
    ]
    assert "script: 2, from 1 to 3" in "".join(root.itertext()).replace("<", "").replace(">", "")
    for odd in ([(0, 1.0)], [(0, -1e308), (1, 1e308)], [(0, 5.0), (0, 5.0)]):
        assert "nan" not in line_chart(odd, "n")
        assert "inf " not in line_chart(odd, "n")
    assert "no numbers yet" in line_chart([(0, None)], "n")


def displayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets all that is displayed from now on."""
    shown_html: list[str] = []

    class Handle:
        def update(self, html: Any) -> None:
            shown_html.append(html.data)

    module = pytest.importorskip("IPython.display", reason="IPython is not installed")
    monkeypatch.setattr(module, "display", lambda html, display_id: Handle())
    return shown_html


def test_a_view_shows_the_newest_window_and_its_chart(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown_html = displayed(monkeypatch)
    stream = engine.stream("http://ex/s", batch_ms=100)
    query = engine.register(WINDOWS)
    for n in range(1, 6):
        stream.push([("<http://ex/a>", "<http://ex/p>", n, 100 * n)])
    stream.advance(500)
    engine.settle(60)
    assert asyncio.run(wukongs.live_view(query, "?o", timeout_s=0.1)) == 5
    assert "<svg" in shown_html[-1]
    assert ">5</td>" in shown_html[-1]
    assert "o: 5, from 1 to 5 in the last 5 windows" in shown_html[-1]
    stream.advance(600)
    engine.settle(60)
    with pytest.raises(wukongs.SettingsError, match=r"chart = 'x': expected a variable of query q, which has: o"):
        asyncio.run(wukongs.live_view(query, "x", timeout_s=1))


@pytest.mark.parametrize("is_remote", [False, True])
def test_the_content_of_a_live_view_follows_its_changes(
    engine: Any, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    shown_html = displayed(monkeypatch)
    text = "REGISTER QUERY v AS SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"

    async def follow(view: Any) -> int:
        """Each change is made once the one before is shown; the view is closed behind the last."""
        showing = asyncio.ensure_future(wukongs.live_view(view, "n", timeout_s=60))
        for number in range(4):
            while not (shown_html and f"n: {number}, from" in shown_html[-1]):
                await asyncio.sleep(0.01)
            if number < 3:
                engine.update(f"INSERT DATA {{ <http://ex/a> <http://ex/p> {number} }}")
        view.close()
        return await showing

    with served(engine) as (_, wire), connected(wire) as client:
        view = (client if is_remote else engine).register(text)
        assert asyncio.run(follow(view)) == 4, "a reset and three changes"
        assert "n: 3, from" in shown_html[-1]
        assert ">3</td>" in shown_html[-1]
        view = (client if is_remote else engine).register(text)
        with pytest.raises(wukongs.SettingsError, match="chart = 'x': expected a variable of query v, which has: n"):
            asyncio.run(wukongs.live_view(view, "x", timeout_s=1))


@pytest.mark.parametrize(
    ("module", "call", "extra"),
    [
        ("pandas", lambda engine: engine.query("SELECT * {}").to_pandas(), "pandas"),
        ("IPython.display", lambda engine: asyncio.run(wukongs.live_view(engine.register(WINDOWS))), "notebook"),
    ],
)
def test_a_missing_package_is_named(
    engine: Any, monkeypatch: pytest.MonkeyPatch, module: str, call: Any, extra: str
) -> None:
    engine.stream("http://ex/s", batch_ms=100)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(wukongs.SettingsError, match=rf'is not installed: pip install "wukongs\[{extra}\]"'):
        call(engine)


@pytest.mark.slow
def test_the_example_notebook_runs(project_root: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    nbformat = pytest.importorskip("nbformat")
    path = project_root / "examples" / "live.ipynb"
    assert all(len(json.dumps(cell.get("outputs", []))) < 3000 for cell in json.loads(path.read_text("utf-8"))["cells"])
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = [json.dumps(cell["outputs"]) for cell in notebook.cells if cell["cell_type"] == "code"]
    assert any("<svg" in one for one in outputs)
    assert "highest" in outputs[-2]
