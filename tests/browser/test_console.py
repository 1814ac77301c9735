"""The console in front of a server: a person registers, watches, asks why nothing comes, updates, and reconnects."""

from __future__ import annotations

import math
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.browser.conftest import Page
from tests.processes import child
from tests.unit.server.asking import Client, served
from wukongs.cli.ports import free_ports
from wukongs.engine import Engine
from wukongs.server import pages
from wukongs.server.http_server import HttpServer, HttpSettings

pytestmark = pytest.mark.slow
EX = "http://example.org/"
DATA = Path(__file__).resolve().parents[2] / "examples" / "xlab.ttl"
ROOMS = ("kitchen", "hall", "attic", "cellar")
QUERY = f"""PREFIX ex: <{EX}>
REGISTER QUERY temperatures AS
SELECT ?room (AVG(?t) AS ?mean) (COUNT(*) AS ?n)
FROM STREAM <{EX}sensors> [RANGE 2s STEP 500ms]
WHERE {{ ?room ex:temperature ?t }}
GROUP BY ?room
"""


class Sensors(threading.Thread):
    """Pushes a temperature of each room every 100 ms of event time, which is the clock's, until it is stopped."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self._client, self._stopped = client, threading.Event()

    def run(self) -> None:
        path = f"/streams/{EX}sensors".replace(EX, "http%3A%2F%2Fexample.org%2F")
        for count in range(10_000):
            now_ms = int(time.time() * 1000)
            lines = [
                f'<{EX}{room}> <{EX}temperature> "{18 + 3 * at + 2 * math.sin(count / 9 + at):.2f}"^^'
                f"<http://www.w3.org/2001/XMLSchema#decimal> . {now_ms}"
                for at, room in enumerate(ROOMS)
            ]
            self._client.ask(
                "POST", path, {"advance_ms": str(now_ms)}, body="\n".join(lines), content_type="text/plain"
            )
            if self._stopped.wait(0.1):
                return

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@contextmanager
def serving(folder: Path, port: int) -> Iterator[Client]:
    command = [sys.executable, "-m", "wukongs", "serve", "--data-dir", str(folder), "--port", str(port)]
    with child(command) as process:
        assert process.stdout is not None
        yield Client(process.stdout.readline().strip())
        process.send_signal(signal.SIGKILL)


def declare(client: Client, name: str) -> None:
    told = f'{{"iri": "{EX}{name}", "batch_ms": 100, "timing": true}}'
    assert client.ask("POST", "/streams", body=told, content_type="application/json").status == 201


def test_a_person_registers_watches_asks_why_updates_and_comes_back_after_a_kill(page: Page, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with ExitStack() as stack:
        client = stack.enter_context(serving(tmp_path / "db", port))
        assert (
            client.ask("POST", "/store", [("default", "")], body=DATA.read_bytes(), content_type="text/turtle").status
            < 300
        )
        declare(client, "sensors")
        page.open(client.address)
        page.sees("connected", "#state")

        page.write(QUERY)
        page.press("Run")
        page.sees(f"temperatures waits for the first tuple or advance of {EX}sensors")

        sensors = Sensors(client)
        sensors.start()
        seen: set[str] = set()

        def ten_windows() -> bool:
            seen.add(page.text(".facts strong"))
            return len(seen - {""}) >= 10

        page.until(ten_windows, "ten windows")
        assert {one.text for one in page.all("tbody td:first-child")} == {f"ex:{room}" for room in ROOMS}
        page.driver.execute_script("const one = document.querySelector('select'); one.value = 'mean'; one.onchange?.()")
        page.until(lambda: len(page.all("polyline")) == len(ROOMS), "a line of each room")
        page.picture("console-live")
        page.be_phone(400)
        page.picture("console-phone")
        page.be_phone(0)
        page.press("Plan with rows")
        page.sees("Bgp of 1")

        page.press("Streams")
        page.sees("runs")
        page.until(lambda: 10 < float(page.text("tbody td:nth-child(3)").replace("–", "0")) < 100, "a rate")
        page.picture("console-streams")
        page.press("Engine")
        page.sees("temperatures")
        page.picture("console-engine")

        page.press("Query")
        page.write(f"INSERT DATA {{ <{EX}kitchen> <{EX}floor> 1 }}")
        page.press("Run")
        page.sees("Applied at snapshot")
        page.write(f"SELECT ?floor WHERE {{ <{EX}kitchen> <{EX}floor> ?floor }}")
        page.press("Run")
        page.sees("1 rows at snapshot")
        assert page.text("tbody td") == "1"

        page.press("Live")
        page.until(lambda: page.text(".facts strong"))
        sensors.stop()
        stack.close()
        page.sees("cannot be reached", "#state")
        client = stack.enter_context(serving(tmp_path / "db", port))
        page.sees("connected", "#state")
        before = page.text(".facts strong")
        sensors = Sensors(client)
        sensors.start()
        page.until(lambda: page.text(".facts strong") not in ("", before), "a window after the server came back")
        sensors.stop()
        assert page.complaints() == []


@pytest.fixture
def client() -> Iterator[Client]:
    with Engine() as engine, served(engine) as client:
        engine.load(DATA)
        yield client


def test_errors_are_underlined_where_they_are_and_say_what_would_do(page: Page, client: Client) -> None:
    page.open(client.address)
    page.write("SELECT ?s\nWHERE { ?s ex:x ?o }", "\x1b")
    page.press("Run")
    page.sees("QuerySyntaxError query, line 2, column 12")
    page.until(lambda: page.text(".cm-lintRange-error, .token-error") == "ex:x")
    page.picture("console-error")
    page.write("SELECT ?p WHERE { ?s ?o ?q }")
    page.press("Run")
    page.until(lambda: "?p" in page.text(".warning"), "a warning")
    assert page.complaints() == []


def test_predicates_streams_and_variables_are_completed(page: Page, client: Client) -> None:
    if not (pages.FOLDER / "vendor").is_dir():
        pytest.skip("the editor's packages were not fetched")
    declare(client, "sensors")
    page.open(client.address)
    for text, wanted in (
        ("SELECT * { ?s <", {f"<{EX}po>", f"<{EX}fo>", f"<{EX}sensors>"}),
        (f"PREFIX ex: <{EX}>\nSELECT * {{ ?s ex:", {"ex:po", "ex:fo"}),
        ("SELECT ?subject { ?s", {"?subject"}),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <", {f"<{EX}sensors>"}),
        ("PREFIX fo", {"foaf: <http://xmlns.com/foaf/0.1/>"}),
    ):
        page.write(text, "\x1b")
        from selenium.webdriver.common.keys import Keys

        page.all(".cm-content")[0].send_keys(Keys.CONTROL, " ")
        page.until(
            lambda wanted=wanted: wanted <= {one.text for one in page.all(".cm-completionLabel")},  # type: ignore[misc]
            f"{text}: {wanted}",
        )
        if "PREFIX ex" in text:
            page.picture("console-completion")
    page.write("SELECT * { ?s ", "\x1b")
    assert page.complaints() == []


def test_without_packages_the_editor_is_a_plain_field_with_the_same_colours(
    page: Page, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(pages.FOLDER, tmp_path / "console", ignore=shutil.ignore_patterns("vendor"))
    monkeypatch.setattr(pages, "FOLDER", tmp_path / "console")
    pages.forget()
    try:
        page.open(client.address)
        page.write("SELECT ?s\nWHERE { ?s ex:x ?o }")
        assert page.text(".token-keyword").split("\n") == ["SELECT", "WHERE"]
        page.press("Run")
        page.until(lambda: page.text(".token-error") == "ex:x")
        page.write("ASK {}")
        page.press("Run")
        page.sees("1 rows")
        assert page.text("tbody td") == "true"
    finally:
        pages.forget()


def test_what_data_bring_is_text_never_markup(page: Page, client: Client) -> None:
    """Literals, IRIs, names of streams and queries that try to be markup or scripts."""
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    client.update(f"INSERT DATA {{ <http://ex/?%3Cscript%3E> <http://ex/javascript:alert(1)> '''{evil}''' }}")
    client.update("INSERT DATA { <javascript:alert(1)> <http://ex/p> '<b>bold</b>'@en }")
    page.open(client.address)
    page.write("SELECT * { ?s ?p ?o FILTER(CONTAINS(?o, '<')) }")
    page.press("Run")
    page.sees(evil)
    page.sees("<b>bold</b>")
    assert not [one for one in page.all("main a") if one.get_attribute("href").startswith("javascript:")]
    page.press("Graph")
    page.until(lambda: page.all("svg.graph"))
    assert page.all("main script, main img, main b") == []
    page.press("Table")
    assert page.complaints() == []


@pytest.mark.parametrize("width", [360, 500])
def test_every_view_fits_a_phone_in_light_and_dark(page: Page, client: Client, width: int) -> None:
    declare(client, "a-stream-with-a-name-that-is-rather-long-for-a-phone-" + "x" * 40)
    text = QUERY.replace("temperatures", "a_query_with_a_name_that_is_rather_long_for_a_phone").replace("sensors", "s")
    declare(client, "s")
    client.ask("POST", "/queries", body=text, content_type="application/sparql-query")
    page.be_phone(width)
    page.open(client.address)
    back = "return getComputedStyle(document.body).backgroundColor"
    found = set()
    for _ in range(3):  # automatic, light, dark
        for view in ("Query", "Live", "Streams", "Engine"):
            page.press(view)
            page.until(lambda view=view: page.driver.title.startswith(view))  # type: ignore[misc]
            if view == "Query":
                page.press("Run")
                page.sees("rows at snapshot")
            else:
                page.until(lambda: page.all("table, .why:not(:empty)"))
            assert page.driver.execute_script("return document.documentElement.scrollWidth") <= width, view
        found.add(page.driver.execute_script(back))
        page.all("#theme")[0].click()
    assert len(found) == 2


def test_it_works_by_keyboard_alone(page: Page, client: Client) -> None:
    """Tab, Enter, Ctrl-Enter and Alt with a number; what has the focus can be seen."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    page.open(client.address)
    page.until(lambda: page.all(".cm-content, .plain-editor textarea"))

    def send(*keys: str) -> None:
        ActionChains(page.driver).send_keys(*keys).perform()

    def focused() -> str:
        told = (
            "const one = document.activeElement; return one.innerText || one.getAttribute('aria-label') || one.tagName"
        )
        return str(page.driver.execute_script(told)).strip()

    order = []
    for _ in range(12):
        send(Keys.TAB)
        order.append(focused().split("\n")[0])
    wanted = ["Skip to content", "Query", "Live", "Streams", "Engine", "Auto"]
    assert order[: len(wanted)] == wanted
    assert "Run" in order, "the editor lets Tab pass"
    ActionChains(page.driver).key_down(Keys.ALT).send_keys("3").key_up(Keys.ALT).perform()
    page.sees("No stream is declared")
    ActionChains(page.driver).key_down(Keys.ALT).send_keys("1").key_up(Keys.ALT).perform()
    page.until(lambda: page.all(".cm-content, .plain-editor textarea"))
    while focused().split("\n")[0] != "Plan":
        send(Keys.TAB)
    outline = page.driver.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    send(Keys.ENTER)
    page.sees("The plan, with estimated rows")


def test_a_server_with_tokens_asks_for_one(page: Page, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("open-sesame-open-sesame\n")
    with Engine() as engine:
        server = HttpServer(engine, HttpSettings(port=0, tokens_file=str(tmp_path / "tokens")))
        try:
            page.open(server.address)
            page.sees("needs a token", "#state")
            page.all("#state input")[0].send_keys("open-barley-open-barley")
            page.press("Use")
            page.sees("does not know that token", "#state")
            page.all("#state input")[0].send_keys("open-sesame-open-sesame")
            page.press("Use")
            page.sees("connected", "#state")
            page.press("Run")
            page.sees("0 rows at snapshot")
        finally:
            server.close()


def test_large_windows_are_shown_at_once_and_stay_as_they_are_sorted(page: Page, client: Client) -> None:
    declare(client, "s")
    text = f"REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <{EX}s> [RANGE 1s STEP 1s] WHERE {{ ?s <{EX}p> ?o }}"
    client.ask("POST", "/queries", body=text, content_type="application/sparql-query")

    def push(second: int) -> None:
        number = "http://www.w3.org/2001/XMLSchema#integer"
        lines = [
            f'<{EX}{at}> <{EX}p> "{at}"^^<{number}> . {second * 1000 + 500}' for at in range(second, second + 5000)
        ]
        path = f"/streams/{EX}s".replace(EX, "http%3A%2F%2Fexample.org%2F")
        told = {"advance_ms": str(second * 1000 + 1000)}
        assert client.ask("POST", path, told, body="\n".join(lines), content_type="text/plain").status == 200

    page.open(client.address)
    page.press("Live")
    page.sees("waits for")
    push(1)
    page.sees("1 s – 2 s: 5000 rows", ".facts")
    page.press("o")
    page.press("o")
    assert page.text("tbody tr:first-child td:last-child") == "5000"
    began = time.monotonic()
    push(2)
    page.sees("2 s – 3 s: 5000 rows, 1 new, 1 gone", ".facts")
    assert time.monotonic() - began < 10
    assert page.text("tbody tr:first-child td:last-child") == "5001"
    assert page.driver.execute_script("return document.activeElement.innerText") == "o"
    move = (
        "const one = document.querySelector('input[type=range]'); one.value = 0; one.dispatchEvent(new Event('input'))"
    )
    page.driver.execute_script(move)
    page.sees("1 s – 2 s: 5000 rows", ".facts")
    page.driver.execute_script("document.querySelector('.skip').click()")
    assert page.driver.current_url.endswith("#live/q")
    assert page.complaints() == []


def test_a_live_view_is_a_table_whose_rows_appear_and_fade(page: Page, client: Client) -> None:
    def update(text: str) -> None:
        assert client.update(f"PREFIX ex: <{EX}> {text}").status == 204

    update("INSERT DATA { ex:ann ex:follows ex:bob . ex:bob ex:follows ex:cem }")
    page.open(client.address)
    page.sees("connected", "#state")
    page.write(
        f"PREFIX ex: <{EX}>\nREGISTER QUERY reach AS SELECT ?a ?c WHERE {{ ?a ex:follows ?b . ?b ex:follows ?c }}"
    )
    page.press("Run")
    page.sees("reach (view)")
    page.sees("is complete up to SN")
    page.sees("1 rows", ".facts strong")
    assert [one.text for one in page.all("tbody td")] == ["ex:ann", "ex:cem"]
    assert page.all("tr.new") == []

    update("INSERT DATA { ex:cem ex:follows ex:dia }")
    page.until(lambda: page.text("tr.new td") == "ex:bob\nex:dia", "a row appears")
    update("DELETE DATA { ex:ann ex:follows ex:bob }")
    page.until(lambda: page.text("tr.gone td") == "ex:ann\nex:cem", "a row fades")
    page.picture("console-view")
    page.until(lambda: page.text("tbody td") == "ex:bob\nex:dia" and not page.all("tr.gone, tr.new"), "it is gone")
    page.sees("1 rows", ".facts strong")
    page.until(lambda: page.all("polyline"), "a chart")

    page.press("Pause")
    page.sees("is paused at SN")
    update("INSERT DATA { ex:dia ex:follows ex:eve }")
    page.press("Resume")
    page.sees("ex:eve", "tbody")
    page.press("Plan with rows")
    page.sees("delta join")
    assert page.complaints() == []


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("ASK { ?s ex:no ?o }", "false"),
        ("CONSTRUCT { ?o ex:back ?s } WHERE { ?s ex:no ?o }", "ex:b\nex:back\nex:a"),
        ("SELECT (COUNT(*) AS ?n) WHERE { ?s ex:no ?o }", "0"),
        ("SELECT ?p WHERE { ?s ?p ?o FILTER(?p = ex:no) }", "ex:no\n2"),
    ],
)
def test_the_kinds_of_live_views(page: Page, client: Client, form: str, expected: str) -> None:
    prefix = f"PREFIX ex: <{EX}> "
    body = f"{prefix} REGISTER QUERY v AS {form}"
    inserted = f"{prefix} INSERT DATA {{ ex:a ex:no ex:b }}"
    if form.startswith(("CONSTRUCT", "SELECT ?p")):
        assert client.update(inserted).status == 204
    if form.startswith("SELECT ?p"):
        assert client.update(f"{prefix} INSERT DATA {{ ex:c ex:no ex:b }}").status == 204
    assert client.ask("POST", "/queries", body=body, content_type="application/sparql-query").status == 201
    page.open(client.address + "/#live/v")
    page.until(lambda: page.text("tbody td") == expected, f"{expected}")
    if form.startswith("ASK"):
        assert client.update(inserted).status == 204
        page.until(lambda: page.text("tr:not(.gone) td") == "true", "the other answer")
    assert page.complaints() == []
