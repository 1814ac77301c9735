"""YASGUI, unchanged, in a page of another origin that the server lets in: it asks, and shows the rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import wukongs
from tests.browser.conftest import Page, page  # noqa: F401
from wukongs.server.http_server import HttpServer, HttpSettings

pytestmark = pytest.mark.slow
PAGE = """<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="yasgui.min.css">
<script src="yasgui.min.js"></script><div id="yasgui"></div><script>
localStorage.clear();
const yasgui = new Yasgui(document.getElementById("yasgui"), { requestConfig: { endpoint: "ENDPOINT" } });
const query = (text) => { yasgui.getTab().setQuery(text); yasgui.getTab().yasqe.query().catch(() => {}); };
</script>"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other_site(node_modules: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A site of another origin with YASGUI's files: its address, and its folder."""
    for name in ("yasgui.min.js", "yasgui.min.css"):
        (tmp_path / name).symlink_to(node_modules / "@triply" / "yasgui" / "build" / name)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", tmp_path
    server.shutdown()
    thread.join()
    server.server_close()


def test_yasgui_asks_and_shows_rows_and_errors(page: Page, other_site: tuple[str, Path]) -> None:  # noqa: F811
    address, folder = other_site
    with wukongs.Engine() as engine:
        engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 'one', 'two' }")
        server = HttpServer(engine, HttpSettings(port=0, origins=(address,)))
        try:
            (folder / "index.html").write_text(PAGE.replace("ENDPOINT", f"{server.address}/sparql"))
            page.open(f"{address}/index.html")
            page.driver.execute_script("query('SELECT ?o { ?s ?p ?o } ORDER BY ?o')")
            page.until(lambda: page.text(".yasr tbody").count("\n") >= 1, "rows")
            assert {"one", "two"} <= set(page.text(".yasr tbody").replace('"', "").split())
            page.driver.execute_script("query('ASK { ?s ?p \\'three\\' }')")
            page.until(lambda: "false" in page.text(".yasr").lower(), "the answer of ASK")
            page.driver.execute_script("query('CONSTRUCT { ?s <http://ex/of> ?o } { ?s ?p ?o }')")
            page.until(lambda: "http://ex/of" in page.text(".yasr"), "triples")
            page.driver.execute_script("query('SELECT ?o { ?s ?p ')")
            page.until(lambda: "QuerySyntaxError" in page.text(".yasr"), "the error")
        finally:
            server.close()
