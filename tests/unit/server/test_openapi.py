"""/openapi.json: it tells of each path and method that is answered, and of no other."""

from __future__ import annotations

from urllib.parse import quote

import pytest

import wukongs
from tests.unit.server.asking import QUERY, Client
from wukongs.server.openapi import CALLS

S = "http://ex/s"
METHODS = ("get", "put", "post", "delete")


@pytest.fixture
def stocked(client: Client, engine: wukongs.Engine) -> Client:
    engine.stream(S, batch_ms=100)
    text = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{S}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"
    assert client.ask("POST", "/queries", body=text, content_type=QUERY).status == 201
    return client


def test_it_is_whole_and_names_this_server(client: Client) -> None:
    told = client.ask("GET", "/openapi.json").json
    assert told["openapi"].startswith("3.1")
    assert told["servers"] == [{"url": client.address}]
    calls = [call for path in told["paths"].values() for call in path.values()]
    names = [call["operationId"] for call in calls]
    assert len(names) == len(set(names)) > 25
    for path, methods in told["paths"].items():
        for call in methods.values():
            named = [one["name"] for one in call.get("parameters", ()) if one["in"] == "path"]
            assert named == (["name"] if "{name}" in path else [])


@pytest.mark.parametrize("path", CALLS)
def test_each_method_is_answered_and_others_are_not(stocked: Client, path: str) -> None:
    name = quote(S, "") if path.startswith("/streams") else "q"
    for method in METHODS:
        answer = stocked.ask(method.upper(), path.replace("{name}", name), {"timeout": "0.01"})
        is_told = method in CALLS[path]
        assert (answer.status == 405) != is_told, (method, answer.status)
        if not is_told:
            assert {one.lower() for one in answer.headers["Allow"].split(", ")} - {"head"} == {*CALLS[path]}
        if method == "delete":
            return  # what it names is gone
