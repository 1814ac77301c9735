"""Requests that fail in a way that nobody foresaw: a request id in the answer, and a trace under it in the log."""

from __future__ import annotations

import http.client
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from tests.unit.server.asking import JSON, Client
from wukongs.server import requests, sparql

pytestmark = pytest.mark.slow
TEXT = "SELECT ?s { ?s ?p ?o }"


class Unforeseen(Exception):
    """No error of ours."""


def traces(caplog: pytest.LogCaptureFixture, name: str) -> list[type[BaseException] | None]:
    """The kinds of errors that are logged with their trace under the name of a request."""
    found = [one for one in caplog.records if getattr(one, "request", None) == name and one.levelno == logging.ERROR]
    assert all(name in one.getMessage() for one in found)
    return [one.exc_info[0] for one in found if one.exc_info]


@pytest.mark.parametrize("accept", ["application/json", "text/plain"])
def test_an_unforeseen_error_is_named_by_its_request(
    client: Client,
    engine: wukongs.Engine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    accept: str,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise Unforeseen("secret")

    monkeypatch.setattr(engine, "query", fails)
    answer = client.get(TEXT, accept=accept)
    name = answer.headers["X-Request-Id"]
    assert answer.status == 500
    assert name in answer.text
    assert "secret" not in answer.text
    assert traces(caplog, name) == [Unforeseen]
    if accept == "application/json":
        assert answer.json["request"] == name


def test_a_lack_of_memory_is_a_named_error(
    client: Client, engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(engine, "query", fails)
    answer = client.get(TEXT, accept=JSON)
    assert (answer.status, answer.json["title"]) == (422, "BudgetExceeded")
    assert "the request found no memory in this process" in answer.json["detail"]


def test_an_answer_that_is_cut_is_logged(
    client: Client, engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def parts(*_: Any) -> Iterator[bytes]:
        yield b"x" * requests.PART_BYTES
        raise Unforeseen

    monkeypatch.setattr(sparql, "written", parts)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        client.get(TEXT, **{"X-Request-Id": "cut.1"})
    assert traces(caplog, "cut.1") == [Unforeseen]


@pytest.mark.parametrize("kind", [JSON, "text/csv", "text/plain", "application/vnd.apache.arrow.stream"])
def test_writing_an_answer_is_within_the_time_of_its_query(
    client: Client, engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Before, it went on for as long as it took, whatever the timeout was."""
    query = engine.query

    def slow(*given: Any, **options: Any) -> Any:
        result = query(*given, **options)
        time.sleep(0.3)
        return result

    monkeypatch.setattr(engine, "query", slow)
    engine.update("INSERT DATA { <http://e/a> <http://e/p> 1 }")
    assert client.get(TEXT, ("timeout", "20"), accept=kind).status == 200
    answer = client.get(TEXT, ("timeout", "0.2"), accept=kind)
    assert answer.status == 503
    assert "QueryTimeout" in answer.text
    assert "at last in the writing of its answer" in answer.text
