"""Modules of the console by themselves, called in the browser that is to run them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.conftest import Page
from tests.unit.server.asking import Client, served
from wukongs.engine import Engine

pytestmark = pytest.mark.slow
XSD = "http://www.w3.org/2001/XMLSchema#"


@pytest.fixture
def client() -> Iterator[Client]:
    with Engine() as engine, served(engine) as client:
        yield client


def run(page: Page, module: str, code: str, *given: Any) -> Any:
    """Return the value of a piece of code that has the module as `m` and what is given as `a`, `b`."""
    told = (
        "const [a, b] = arguments, done = arguments[arguments.length - 1];"
        f"import('/console/{module}').then(async (m) => done(await ({code}))).catch((error) => done(`${{error}}`))"
    )
    return page.driver.execute_async_script(told, *given)


def test_terms_are_read_as_they_are_written(page: Page, client: Client) -> None:
    page.open(client.address)
    cells = [
        '""',
        "",
        r'"a\tb\nc\"d\\"',
        '"x"@en--ltr',
        '"5"^^<' + XSD + "integer>",
        "_:b1",
        '<<( <http://ex/a> <http://ex/p> <<( _:b <http://ex/q> "(>> )>>" )>> )>>',
    ]
    found = run(
        page, "terms.js", "m.cellsOf(a).map((one) => one === null ? null : m.textOf(one, {}))", "\t".join(cells)
    )
    nested = "<<( http://ex/a http://ex/p <<( _:b http://ex/q (>> )>> )>> )>>"
    assert found == ["", None, 'a\tb\nc"d\\', "x", "5", "_:b1", nested]
    assert run(page, "terms.js", "m.termsOf(a).length", '<http://ex/a> <http://ex/p> "1. " .') == 3
    tag = "m.shown(m.termsOf(a)[0], {}).textContent"
    assert run(page, "terms.js", tag, '"x"@en--ltr') == "x@en--ltr"
    long = "123456789012.12345678"
    assert run(page, "terms.js", tag, f'"{long}"^^<{XSD}decimal>') == long
    spaces = f'"{" " * 100_000}x{" " * 100_000}"'
    assert (
        run(
            page,
            "terms.js",
            "(() => { const t = performance.now(); m.termsOf(a); return performance.now() - t })()",
            spaces,
        )
        < 500
    )


def test_what_a_text_is_does_not_depend_on_how_it_is_written(page: Page, client: Client) -> None:
    page.open(client.address)
    for text, kind in {
        "# INSERT\nPREFIX a:<http://ex/#>ASK{}": "query",
        "prefix # REGISTER\n : <http://ex/>\n\tinsert data { :a :b '#' }": "update",
        "BASE <http://ex/#a>\r\nREGISTER QUERY select AS SELECT * {}": "register",
        "# it's \"so\nCONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }": "query",
        "\ufeff  WITH <http://ex/g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }": "update",
        'VERSION "1.2" INSERT DATA {}': "update",
        "": "query",
    }.items():
        assert run(page, "query.js", "m.kindOf(a)", text) == kind, text


def test_the_place_of_an_error_is_counted_in_characters(page: Page, client: Client) -> None:
    text = 'SELECT * { "😀😀" ex:x ?o }'
    page.open(client.address)
    told = client.direct(text, accept="application/json, application/problem+json").json
    found = run(page, "sparql.js", "(({ from, to }) => a.slice(from, to))(m.placeOf(a, b))", text, told)
    assert found == "ex:x"


def test_buttons_that_a_role_may_not_use_are_disabled_with_the_reason(page: Page, client: Client) -> None:
    page.open(client.address)
    code = """(() => {
      const one = m.button("Old", null, { "data-needs": "admin" });
      document.body.append(one);
      m.setRole("write");
      const made = (text, role) => m.button(text, null, { "data-needs": role });
      const all = [one, made("Drop", "admin"), made("Push", "write")];
      const found = all.map((each) => [each.disabled, each.title]);
      m.setRole("admin");
      return [...found, [one.disabled, one.title]];
    })()"""
    refused = [True, "This needs a token of the role admin; this one has write."]
    assert run(page, "dom.js", code) == [refused, refused, [False, ""], [False, ""]]
