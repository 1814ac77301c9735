"""Logs of commands: one JSON object a line, text, or bare warnings; never tokens, parameters or texts of queries."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.processes import child
from tests.unit.server.asking import Client

pytestmark = pytest.mark.slow
SECRET, TEXT = "a-token-of-sixteen", "SELECT%20%3Fsecret%20%7B%20%3Fsecret%20%3Fp%20%3Fo%20%7D"


@contextmanager
def serving(*options: str) -> Iterator[tuple[Client, list[str]]]:
    """Serve; at the end the list has the lines of standard error."""
    lines = list[str]()
    with child([sys.executable, "-m", "wukongs", "serve", "--port", "0", *options]) as process:
        assert process.stdout is not None
        yield Client(process.stdout.readline().strip()), lines
        process.send_signal(signal.SIGTERM)
        lines += process.communicate(timeout=60)[1].splitlines()


def ask(client: Client) -> None:
    headers = {"Authorization": f"Bearer {SECRET}", "X-Request-Id": "mine.1"}
    answer = client.ask("GET", f"/sparql?query={TEXT}", headers=headers)
    assert (answer.status, answer.headers["X-Request-Id"]) == (200, "mine.1")
    other = client.ask("GET", "/none", headers={"X-Request-Id": "not a name"})
    assert re.fullmatch("[0-9a-f]{16}", other.headers["X-Request-Id"])


def test_requests_as_json() -> None:
    with serving("--log-format", "json", "--access-log") as (client, lines):
        ask(client)
    told: list[dict[str, Any]] = [json.loads(line) for line in lines if line.startswith("{")]
    first, second = (one for one in told if one["logger"] == "wukongs.access")
    assert (first["level"], first["message"], first["request"]) == ("info", "GET /sparql 200", "mine.1")
    assert (first["method"], first["path"], first["status"], first["client"]) == ("GET", "/sparql", 200, "127.0.0.1")
    assert (second["path"], second["status"]) == ("/none", 404)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert first["ms"] > 0
    assert not [line for line in lines if SECRET in line or "secret" in line]


def test_requests_as_text() -> None:
    with serving("--log-format", "text", "--access-log") as (client, lines):
        ask(client)
    assert [line.split(" ", 1)[1] for line in lines if "wukongs.access" in line] == [
        "INFO wukongs.access: GET /sparql 200",
        "INFO wukongs.access: GET /none 404",
    ]


def test_no_request_is_logged_unless_that_is_asked_for() -> None:
    with serving("--log-level", "debug") as (client, lines):
        ask(client)
    assert not [line for line in lines if "/sparql" in line]
