"""Streams over HTTP: declared, pushed to in three formats, ended, dropped; all of a push is taken, or nothing."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pyarrow
import pytest

import wukongs
from tests.unit.server.asking import Answer, Client, served

S = "http://ex/s"
PATH = f"/streams/{quote(S, '')}"
LINES = """# tuples of a test
<http://ex/a> <http://ex/p> "x y" . 100
_:b <http://ex/p> "n\\"o . 7"@en-GB .\t200

<http://ex/c> <http://ex/p> "3"^^<http://www.w3.org/2001/XMLSchema#integer> <http://ex/g> . 300
"""
WINDOW = f"REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <{S}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"


def declare(client: Client, **options: Any) -> Answer:
    told = json.dumps({"iri": S, "batch_ms": 100, **options})
    return client.ask("POST", "/streams", body=told, content_type="application/json")


def push(client: Client, body: bytes | str, kind: str = "text/plain", **fields: str) -> Answer:
    return client.ask("POST", PATH, fields, body=body, content_type=kind)


@pytest.fixture
def stream(client: Client) -> Client:
    assert declare(client).status == 201
    return client


def objects(engine: wukongs.Engine) -> list[str]:
    return sorted(
        text for (text,) in engine.query("SELECT ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }").texts()
    )


# --- declared and dropped ---------------------------------------------------------------------------------------------


def test_a_stream_is_declared_listed_and_dropped(client: Client, engine: wukongs.Engine) -> None:
    answer = declare(client, timing=["http://ex/p"], into="http://ex/g")
    assert (answer.status, answer.json["timing"], answer.json["into"]) == (201, ["http://ex/p"], "http://ex/g")
    assert engine.streams() == [S]
    assert client.ask("GET", answer.headers["Location"].removeprefix(client.address)).json["iri"] == S
    (listed,) = client.ask("GET", "/streams").json
    assert (listed["iri"], listed["tuples"]) == (S, 0)
    assert client.ask("DELETE", PATH).status == 204
    assert (engine.streams(), client.ask("GET", PATH).status) == ([], 404)
    assert "Declared: none" in client.ask("GET", PATH).text


def test_late_tuples_of_an_open_stream_are_counted(client: Client) -> None:
    answer = declare(client, timing=True, late="open")
    assert (answer.status, answer.json["late"]) == (201, "open")
    lines = "".join(f"<http://ex/a> <http://ex/p> <http://ex/o> . {time_ms}\n" for time_ms in (950, 150))
    pushed = push(client, lines)
    assert (pushed.status, pushed.json) == (200, {"pushed": 2})
    counts = client.ask("GET", PATH).json
    assert (counts["carried"], counts["dropped"]) == (1, 0)


def test_a_name_that_ends_with_a_slash_is_another_one(client: Client, engine: wukongs.Engine) -> None:
    declare(client)
    assert client.ask("DELETE", f"/streams/{S}/").status != 204
    assert engine.streams() == [S]
    engine.stream(f"{S}/", batch_ms=100)
    assert client.ask("DELETE", f"/streams/{S}/").status == 204
    assert engine.streams() == [S]


def test_declared_again_with_the_same_options_it_is_the_same(client: Client) -> None:
    assert declare(client, timing=True).status == 201
    assert declare(client, timing=True).status == 200
    refused = declare(client, timing=False)
    assert refused.status == 409
    assert "is declared already" in refused.text


def test_one_that_follows_the_wall_clock_says_so(client: Client, engine: wukongs.Engine) -> None:
    options = {"idle_timeout_ms": 3_600_000, "idle_advance": "wall"}
    answer = declare(client, **options)
    assert (answer.status, {name: answer.json[name] for name in options}) == (201, options)
    assert declare(client, **options).status == 200
    assert declare(client, idle_timeout_ms=3_600_000).status == 409
    (listed,) = client.ask("GET", "/streams").json
    assert (listed["idle_advance"], listed["idle_hold"], listed["is_idle"]) == ("wall", None, False)
    assert engine.declared(S).options["idle_advance"] == "wall"


@pytest.mark.parametrize("options", [{"idle_advance": "wall"}, {"idle_advance": 5}, {"idle_advance": "event"}])
def test_an_idle_advance_that_says_nothing_is_refused(client: Client, options: dict[str, Any]) -> None:
    answer = declare(client, **options)
    assert answer.status == 400
    assert "idle_advance" in answer.text
    assert client.ask("GET", "/streams").json == []


def test_a_stream_of_the_program_is_pushed_to(client: Client, engine: wukongs.Engine) -> None:
    late: list[pyarrow.Table] = []
    engine.stream(S, batch_ms=100, on_late=late.append)
    assert push(client, LINES, advance_ms="1000").json == {"pushed": 3}
    assert push(client, '<http://ex/l> <http://ex/p> "late" . 5').json == {"pushed": 0}
    assert [table.num_rows for table in late] == [1]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], "the body = []: expected an object with iri"),
        ({}, "iri = null: expected the IRI of the stream"),
        ({"iri": S, "batch": 1}, "batch: expected options timing, batch_ms"),
        ({"iri": S, "batch_ms": "1"}, 'batch_ms = "1": expected milliseconds'),
        ({"iri": S, "batch_ms": True}, "batch_ms = true: expected milliseconds"),
        ({"iri": S, "timing": [1]}, "timing = 1: expected IRIs"),
        ({"iri": S, "batch_ms": 0}, "batch_ms = 0"),
        ({"iri": "a b"}, "expected an IRI"),
    ],
)
def test_a_wrong_declaration_is_refused(client: Client, engine: wukongs.Engine, told: Any, expected: str) -> None:
    answer = client.ask("POST", "/streams", body=json.dumps(told), content_type="application/json")
    assert answer.status == 400, answer.text
    assert expected in answer.text
    assert engine.streams() == []


# --- tuples -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text/plain", "application/n-quads; charset=utf-8"])
def test_lines_with_times(stream: Client, engine: wukongs.Engine, kind: str) -> None:
    assert push(stream, LINES, kind, advance_ms="1000").json == {"pushed": 3}
    engine.settle(10)
    assert objects(engine) == ['"3"^^<http://www.w3.org/2001/XMLSchema#integer>', '"n"o . 7"@en-GB', '"x y"']
    assert engine.graph_names() == ["http://ex/g"]


def test_lines_of_n_triples_name_no_graph(stream: Client, engine: wukongs.Engine) -> None:
    """RDF 1.1 N-Triples, 2: a line has three terms."""
    triples, quad = LINES[: LINES.rindex("<http://ex/c>")], LINES[LINES.rindex("<http://ex/c>") :]
    refused = push(stream, triples + quad, "application/n-triples")
    line = triples.count("\n") + 1
    assert (refused.status, f"the body, line {line}, column 77: expected '.'" in refused.text) == (400, True), (
        refused.text
    )
    assert engine.stats()["streams"][S]["tuples"] == 0
    assert push(stream, triples, "application/n-triples").json == {"pushed": 2}


def test_json_as_lists_and_as_objects(stream: Client, engine: wukongs.Engine) -> None:
    rows: list[Any] = [
        ["<http://ex/a>", "<http://ex/p>", '"1"', 100],
        {
            "subject": "_:b",
            "predicate": "<http://ex/p>",
            "object": '"2"',
            "timestamp_ms": 100,
            "graph": "<http://ex/g>",
        },
    ]
    assert push(stream, json.dumps(rows), "application/json", advance_ms="1000").json == {"pushed": 2}
    gone = {"subject": "<http://ex/a>", "predicate": "<http://ex/p>", "object": '"1"', "timestamp_ms": 1100, "op": "-"}
    rows = [gone, ["<http://ex/a>", "<http://ex/p>", '"3"', 1100]]
    assert push(stream, json.dumps(rows), "application/json", advance_ms="2000").status == 200
    engine.settle(10)
    assert objects(engine) == ['"2"', '"3"']


def test_an_arrow_stream(stream: Client, engine: wukongs.Engine) -> None:
    table = pyarrow.table(
        {"subject": ["<http://ex/a>"], "predicate": ["<http://ex/p>"], "object": ['"1"'], "timestamp_ms": [100]}
    )
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = bytes(sink.getvalue())
    assert push(stream, body, "application/vnd.apache.arrow.stream", advance_ms="1000").json == {"pushed": 1}
    engine.settle(10)
    assert objects(engine) == ['"1"']
    assert push(stream, body[:40], "application/vnd.apache.arrow.stream").status == 400


def test_a_stream_only_advances_and_is_closed(stream: Client, engine: wukongs.Engine) -> None:
    engine.register(WINDOW)
    assert stream.ask("POST", PATH, {"advance_ms": "2000"}).json == {"pushed": 0}
    engine.settle(10)
    assert engine.stats()["queries"]["q"]["windows"] > 0
    assert stream.ask("POST", PATH + "/close").status == 204
    assert push(stream, LINES).status == 409


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (LINES + "<http://ex/a> <http://ex/p> 'no' . 400\n", "text/plain", "the body, line 6, column 29: expected an"),
        (
            "<http://ex/a> <http://ex/p> <http://ex/o> .",
            "text/plain",
            "expected a timestamp, an integer in milliseconds",
        ),
        (
            "<http://ex/a> <http://ex/p> <http://ex/o> . 99999999999999999999",
            "text/plain",
            "expected a timestamp, an integer",
        ),
        ('<http://ex/a> <http://ex/p> "\\x" . 1', "text/plain", ""),
        (
            b'<http://ex/a> <http://ex/p> "\xff" . 1',
            "text/plain",
            "the body, line 1, column 30: this is not valid UTF-8: byte 0xFF",
        ),
        ("[", "application/json", "expected JSON"),
        ("{}", "application/json", "expected a list of tuples, found dict"),
        ('[["<http://ex/a>", "<http://ex/p>", "<http://ex/o>"]]', "application/json", "tuple 0: expected subject"),
        ('[["<http://ex/a>", "<http://ex/p>", "<http://ex/o>", 1.5]]', "application/json", "tuple 0, timestamp_ms"),
        ('[["<http://ex/a>", "<http://ex/p>", 1, 1]]', "application/json", "tuple 0, object: expected a term"),
        (f'[["<http://ex/a>", "<http://ex/p>", "<http://ex/o>", {1 << 70}]]', "application/json", "64 bits"),
        ('[["a", "<http://ex/p>", "<http://ex/o>", 1]]', "application/json", ""),
    ],
)
def test_a_wrong_push_is_refused_and_nothing_taken(
    stream: Client, engine: wukongs.Engine, body: bytes | str, kind: str, expected: str
) -> None:
    answer = push(stream, body, kind)
    assert answer.status == 400, answer.text
    assert expected in answer.text
    assert engine.stats()["streams"][S]["tuples"] == 0


def test_other_refusals(stream: Client) -> None:
    assert push(stream, "<a/>", "application/xml").status == 415
    assert push(stream, LINES, advance_ms="soon").status == 400
    assert push(stream, LINES, advance_ms=str(1 << 63)).status == 400
    unknown = stream.ask("POST", "/streams/" + quote("http://ex/t", ""), body=LINES, content_type="text/plain")
    assert (unknown.status, f"Declared: {S}" in unknown.text) == (404, True)
    assert push(stream, LINES).status == 200
    assert push(stream, LINES).status == 409, "time does not fall"


def test_a_stream_that_is_read_is_not_dropped(stream: Client, engine: wukongs.Engine) -> None:
    engine.register(WINDOW)
    refused = stream.ask("DELETE", PATH)
    assert (refused.status, "close these first" in refused.text) == (409, True)


def test_streams_of_a_data_folder_are_there_again(tmp_path: Any) -> None:
    with wukongs.Engine(tmp_path / "db") as engine, served(engine) as client:
        declare(client)
        assert push(client, LINES).json == {"pushed": 3}
    with wukongs.Engine(tmp_path / "db") as engine, served(engine) as client:
        assert client.ask("GET", PATH).json["tuples"] == 3
        assert push(client, '<http://ex/a> <http://ex/p> "new" . 400', advance_ms="1000").json == {"pushed": 1}
        engine.settle(10)
        assert len(objects(engine)) == 4
