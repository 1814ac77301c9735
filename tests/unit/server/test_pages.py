"""The console's page and files, as they are sent; tests/browser tries what they do."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.unit.server.asking import Client, served
from wukongs.engine import Engine
from wukongs.server import pages


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Engine() as engine, served(engine) as client:
        yield client


def test_the_page_may_run_only_what_this_server_sends(client: Client) -> None:
    first, second = client.ask("GET", "/"), client.ask("GET", "/")
    assert (first.status, first.kind) == (200, "text/html")
    policy = first.headers["Content-Security-Policy"]
    (nonce,) = re.findall(r"script-src 'nonce-([\w-]+)' 'self';", policy)
    assert first.text.count(f'nonce="{nonce}"') == 2
    assert f'nonce="{nonce}"' not in second.text, "a nonce is used once"
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for source in re.findall(r'(?:src|href)="([^"#]+)"', first.text):
        assert client.ask("GET", f"/{source}").status == 200, source


def test_every_module_that_a_script_imports_is_there(client: Client) -> None:
    scripts = list(pages.FOLDER.glob("*.js"))
    assert scripts
    for script in scripts:
        for name in re.findall(r'from "\./([^"]+)"', script.read_text("utf-8")):
            answer = client.ask("GET", f"/console/{name}")
            assert (answer.status, answer.kind) == (200, "text/javascript"), (script.name, name)


def test_a_file_that_a_browser_has_is_not_sent_again(client: Client) -> None:
    answer = client.ask("GET", "/console/main.js")
    again = client.ask("GET", "/console/main.js", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "path",
    ["../pages.py", "..%2fpages.py", "%2e%2e/pages.py", "vendor/lock.txt", "vendor", "", "nothing.js", "main.js/"],
)
def test_nothing_but_the_files_of_the_console_is_sent(client: Client, path: str) -> None:
    assert client.ask("GET", f"/console/{path}").status == 404


def test_stats_are_those_of_the_engine(client: Client) -> None:
    client.update("INSERT DATA { <http://ex/a> <http://ex/p> 1, 2 }")
    told = client.ask("GET", "/stats").json
    assert (told["stored_triples"], told["updates"]["requests"]) == (2, 1)


def test_parts_of_the_stats(client: Client) -> None:
    told = client.ask("GET", "/stats", [("only", "streams"), ("only", "held_back_by")]).json
    assert told == {"streams": {}, "held_back_by": {}}


def test_a_plan_is_told_in_the_place_of_the_result(client: Client) -> None:
    query = "SELECT * { ?s <http://ex/q> ?o . ?o <http://ex/q> ?q }"
    plan = client.direct(query, ("explain", "plan"))
    assert (plan.status, plan.kind) == (200, "text/plain")
    assert "Project ?s ?o ?q\n" in plan.text
    assert "Project ?s ?o ?q  [0 rows, " in client.direct(query, ("explain", "analyze")).text
    assert client.get(query, ("explain", "plan")).text == plan.text
    wrong = client.direct(query, ("explain", "rows"))
    assert (wrong.status, wrong.text) == (400, "Refused: explain=rows: expected plan or analyze, of a query\n")
    assert client.direct("CLEAR ALL", ("explain", "plan"), kind="application/sparql-update").status == 400
    assert client.direct("SELEC", ("explain", "plan")).status == 400


def _luminance(colour: str) -> float:
    digits = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
    parts = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_texts_stand_out_from_what_is_behind_them_in_light_and_dark() -> None:
    """WCAG 2.1, 1.4.3: a ratio of 4.5 at least."""
    css = (pages.FOLDER / "style.css").read_text("utf-8")
    pairs = re.findall(r"--([\w-]+): light-dark\(#(\w+), #(\w+)\)", css)
    colours = {name: tuple(map(_luminance, pair)) for name, *pair in pairs}
    behind = ("back", "field", "good")
    texts = ("text", "soft", "main", "warn", "bad", "keyword", "name", "string", "numeral", "variable")
    for front, back in [*((text, one) for text in texts for one in behind), ("on-main", "main")]:
        for one, other in zip(colours[front], colours[back], strict=True):
            assert (max(one, other) + 0.05) / (min(one, other) + 0.05) >= 4.5, (front, back)
