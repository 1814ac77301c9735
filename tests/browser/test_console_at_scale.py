"""The console in front of much: very many rows, queries, streams, windows and tabs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow
import pytest

from tests.browser.conftest import Page
from tests.unit.server.asking import Client, served
from wukongs.engine import Engine
from wukongs.server.http_server import HttpServer, HttpSettings

pytestmark = pytest.mark.slow
EX = "http://example.org/"
BLOCKED_MAX_MS = 1500
"""So long the page may not answer a key at most: much of it is for busy processes beside the browser."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


@pytest.fixture
def client(engine: Engine) -> Iterator[Client]:
    with served(engine) as client:
        yield client


def table(count: int, time_ms: int | None = None, first: int = 0) -> pyarrow.Table:
    number = "http://www.w3.org/2001/XMLSchema#integer"
    columns = {
        "subject": [f"<{EX}{at}>" for at in range(count)],
        "predicate": [f"<{EX}p>"] * count,
        "object": [f'"{first + at}"^^<{number}>' for at in range(count)],
    }
    if time_ms is not None:
        columns["timestamp_ms"] = [time_ms] * count  # type: ignore[list-item]
    return pyarrow.table(columns)


def register(engine: Engine, name: str, stream: str = "s", to: str = "?o") -> None:
    engine.register(
        f"REGISTER QUERY {name} AS SELECT ?s {to} FROM STREAM <{EX}{stream}> [RANGE 1s STEP 1s] "
        f"WHERE {{ ?s <{EX}p> {to} }}"
    )


def watch_how_long_it_is_blocked(page: Page) -> None:
    page.driver.execute_script(
        "window.blocked = 0; let last = performance.now(); setInterval(() => {"
        "window.blocked = Math.max(window.blocked, performance.now() - last); last = performance.now() }, 10)"
    )


def blocked_ms(page: Page) -> float:
    return float(page.driver.execute_script("const found = window.blocked; window.blocked = 0; return found"))


def node_count(page: Page) -> int:
    return int(page.driver.execute_script("return document.getElementsByTagName('*').length"))


def test_a_million_rows_are_shown_in_part_with_a_way_to_all(page: Page, engine: Engine, client: Client) -> None:
    engine.apply(table(1_000_000))
    engine.query("SELECT * { ?s ?p ?o }")
    page.open(client.address)
    page.sees("connected", "#state")
    watch_how_long_it_is_blocked(page)
    page.write("SELECT ?s ?o { ?s ?p ?o }")
    page.press("Run")
    page.sees("more than 10000 rows at snapshot")
    assert blocked_ms(page) < BLOCKED_MAX_MS
    assert node_count(page) < 2000
    page.press("Graph")
    page.sees("nodes are drawn")
    assert node_count(page) < 2000
    links = {one.text: one.get_attribute("href") for one in page.all("a[download]")}
    assert [*links] == ["CSV", "JSON", "TSV"]
    path = links["CSV"].removeprefix(client.address)
    assert client.ask("GET", path).text.count("\n") == 1_000_001
    page.write("SELECT (COUNT(*) AS ?n) { ?a ?p ?x . ?b ?q ?y FILTER(?x + ?y = 3) }")
    page.press("Run")
    page.until(engine.running)
    page.press("Stop")
    page.sees("Stopped.")
    page.until(lambda: not engine.running(), "the query ends at the server, too")
    page.write("CONSTRUCT { ?s ?p ?o } { ?s ?p ?o }")
    page.press("Run")
    page.sees("more than 10000 triples at snapshot")
    assert [one.text for one in page.all("a[download]")] == ["N-Triples", "Turtle"]
    page.write("SELECT ?s ?o { ?s ?p ?o }" + " " * 9000)
    page.press("Run")
    page.sees("curl -H 'Content-Type: application/sparql-query' --data-binary @query.rq")
    assert page.complaints() == []


def test_long_texts_do_not_fill_the_page(page: Page, engine: Engine, client: Client) -> None:
    texts = [f'"{at}{"x" * 1_000_000}"' for at in range(60)]
    columns = {"subject": [f"<{EX}a>"] * 60, "predicate": [f"<{EX}p>"] * 60, "object": texts}
    engine.apply(pyarrow.table(columns))
    page.open(client.address)
    page.sees("connected", "#state")
    watch_how_long_it_is_blocked(page)
    page.write("SELECT ?o { ?s ?p ?o }")
    page.press("Run")
    page.sees("more than 19 rows")
    assert blocked_ms(page) < BLOCKED_MAX_MS


def test_who_has_a_token_is_told_the_command_for_all_rows(page: Page, engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("open-sesame-open-sesame\n")
    engine.stream(f"{EX}s", batch_ms=100)
    register(engine, "q")
    engine.apply(table(20_000))
    server = HttpServer(engine, HttpSettings(port=0, tokens_file=str(file)))
    try:
        page.open(server.address)
        page.sees("needs a token", "#state")
        page.all("#state input")[0].send_keys("open-sesame-open-sesame")
        page.press("Use")
        page.sees("connected", "#state")
        page.write("SELECT ?s ?o { ?s ?p ?o }")
        page.press("Run")
        page.sees("more than 10000 rows")
        assert page.all("a[download]") == []
        assert 'curl -H "Authorization: Bearer $TOKEN"' in page.text(".files")
        page.press("Live")
        page.sees("waits for")
        engine.push_many({f"{EX}s": table(3, 500)}, advance_ms=1000)
        page.sees("0 s – 1 s: 3 rows", ".facts")
    finally:
        server.close()


def test_a_thousand_queries_and_two_hundred_streams(page: Page, engine: Engine, client: Client) -> None:
    for at in range(200):
        engine.stream(f"{EX}stream/{at:03}", batch_ms=100)
    for at in range(1000):
        register(engine, f"q{at:04}", f"stream/{at % 200:03}")
    page.open(client.address)
    page.press("Live")
    page.sees("900 more of 1000", ".list")
    watch_how_long_it_is_blocked(page)
    assert len(page.all(".list li")) == 101
    page.all("input[type=search]")[0].send_keys("Q09")
    page.until(lambda: len(page.all(".list a")) == 101, "those of the part, and the one that is watched")
    page.all("input[type=search]")[0].send_keys("99")
    page.until(lambda: [one.text for one in page.all(".list a")] == ["q0000", "q0999"])
    page.press("q0999")
    page.sees("q0999", "h3")
    page.sees("900 more of 1000", ".list")
    assert page.all(".list a")[0].text == "q0999", "the one that is watched can be seen"

    page.press("Streams")
    page.sees("100 more of 200")
    page.all("input[type=search]")[0].send_keys("/17")
    page.until(lambda: len(page.all("tbody tr")) == 10)

    page.press("Engine")
    page.sees("900 more of 1000")
    assert node_count(page) < 2500
    page.all("input[type=search]")[0].send_keys("q0123")
    page.until(lambda: [one.text for one in page.all("tbody td:first-child")][:1] == ["q0123"])
    time.sleep(3)  # it is looked at again meanwhile
    assert page.all("input[type=search]")[0].get_attribute("value") == "q0123"
    assert blocked_ms(page) < BLOCKED_MAX_MS
    assert page.complaints() == []


def asked_paths(page: Page) -> list[str]:
    """Return what the page has asked for since it was asked last."""
    found = page.driver.execute_script(
        "const found = performance.getEntriesByType('resource').map((one) => one.name);"
        "performance.clearResourceTimings(); return found"
    )
    return [unquote(one) for one in found]


def test_seven_tabs_are_live_at_once_and_hidden_ones_ask_nothing(page: Page, engine: Engine, client: Client) -> None:
    engine.stream(f"{EX}s", batch_ms=100)
    for at in range(8):
        register(engine, f"q{at}")
    handles = []
    for at in range(8):
        if at:
            page.driver.switch_to.new_window("window" if at % 2 else "tab")
        handles.append(page.driver.current_window_handle)
        page.open(f"{client.address}/#live/q{at}")
        page.sees(f"q{at} waits for")
    engine.push_many({f"{EX}s": table(3, 500)}, advance_ms=1000)
    for handle in handles:
        page.driver.switch_to.window(handle)
        page.sees("0 s – 1 s: 3 rows", ".facts")
    page.press("Query")
    page.write("ASK {}")
    page.press("Run")
    page.sees("1 rows at snapshot")

    page.driver.switch_to.window(handles[0])
    page.driver.execute_script("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    time.sleep(2.5)
    asked_paths(page)
    engine.push_many({f"{EX}s": table(4, 1500)}, advance_ms=2000)
    time.sleep(4)
    assert asked_paths(page) == []
    assert "0 s – 1 s: 3 rows" in page.text(".facts")
    page.driver.execute_script("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.sees("1 s – 2 s: 4 rows", ".facts")


def test_a_query_that_is_closed_and_registered_again_goes_on(page: Page, engine: Engine, client: Client) -> None:
    engine.stream(f"{EX}s", batch_ms=100)
    register(engine, "q")
    page.open(f"{client.address}/#live/q")
    page.sees("q waits for")
    engine.push_many({f"{EX}s": table(3, 500)}, advance_ms=1000)
    page.sees("0 s – 1 s: 3 rows", ".facts")
    (query,) = engine.queries()
    query.close()
    page.sees("The query has ended.", ".error")
    page.sees("there is no query named q", ".why")
    register(engine, "q", to="?other")
    page.until(lambda: "ended" not in page.text(".error"))
    engine.push_many({f"{EX}s": table(5, 1500)}, advance_ms=2000)
    page.sees("1 s – 2 s: 5 rows", ".facts")
    assert page.text("thead").split() == ["s", "other"]
    assert page.complaints() == []


def test_windows_of_a_hundred_thousand_rows_are_shown_in_part(page: Page, engine: Engine, client: Client) -> None:
    stream = engine.stream(f"{EX}s", batch_ms=1000, timing=True)
    register(engine, "q")
    page.open(f"{client.address}/#live/q")
    page.sees("q waits for")
    watch_how_long_it_is_blocked(page)
    for second in range(1, 5):
        stream.push_arrow(table(100_000, second * 1000 + 500, second))
        stream.advance((second + 1) * 1000)
        page.sees(f"{second} s – {second + 1} s: 100000 rows, of which the first 5000 are here", ".facts")
    assert blocked_ms(page) < BLOCKED_MAX_MS
    assert node_count(page) < 2000
    assert page.complaints() == []


def test_the_answers_of_an_ask_are_shown(page: Page, engine: Engine, client: Client) -> None:
    engine.stream(f"{EX}s", batch_ms=100)
    engine.register(f"REGISTER QUERY q AS ASK FROM STREAM <{EX}s> [RANGE 1s STEP 1s] WHERE {{ ?s <{EX}p> ?o }}")
    page.open(f"{client.address}/#live/q")
    page.sees("q waits for")
    engine.push_many({f"{EX}s": table(3, 500)}, advance_ms=1000)
    page.until(lambda: page.text("tbody td") == "true")
    assert page.complaints() == []
