"""Registered queries over HTTP: their life, and their windows by four ways, all of them for each subscriber."""

from __future__ import annotations

import http.client
import io
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pyarrow
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

import wukongs
from tests.unit.remote.served import connected, windows_until
from tests.unit.remote.served import served as served_to_clients
from tests.unit.server.asking import QUERY, Client, served
from wukongs.server.events import FeedBounds
from wukongs.server.face import Bounds
from wukongs.server.http_server import HttpServer, HttpSettings

S = "http://ex/s"
EVENTS, ARROW = "text/event-stream", "application/vnd.apache.arrow.stream"


def text_of(name: str = "q", predicate: str = "p") -> str:
    window = "[RANGE 1s STEP 1s]"
    return f"REGISTER QUERY {name} AS SELECT ?s ?o FROM STREAM <{S}> {window} WHERE {{ ?s <http://ex/{predicate}> ?o }}"


@pytest.fixture
def stream(engine: wukongs.Engine) -> Any:
    return engine.stream(S, timing=True, batch_ms=100)


@pytest.fixture
def registered(client: Client, stream: Any) -> Client:
    assert client.ask("POST", "/queries", body=text_of(), content_type=QUERY).status == 201
    return client


def fill(engine: wukongs.Engine, *ends: int) -> None:
    """Let the windows with these ends (in seconds) have one row each, the second and the end; and all come."""
    for end in ends:
        row = (f"<http://ex/{end}>", "<http://ex/p>", f'"{end}"', end * 1000 - 500)
        engine.push_many({S: [row]}, advance_ms=end * 1000)
    engine.settle(10)


def subjects(data: Any) -> list[str]:
    return sorted(row["s"]["value"].removeprefix("http://ex/") for row in data["results"]["bindings"])


PATIENCE_S = 120.0
"""So long an event may take, on a busy machine."""


class Events:
    """Server-sent events, as they come."""

    def __init__(self, client: Client, path: str, **headers: str) -> None:
        self.response = urlopen(Request(client.address + path, headers={"Accept": EVENTS, **headers}), timeout=30)
        assert self.response.headers.get_content_type() == EVENTS
        self._lines = io.TextIOWrapper(self.response, "utf-8")

    def __iter__(self) -> Iterator[tuple[str, int | None, Any]]:
        fields: dict[str, str] = {}
        deadline = time.monotonic() + PATIENCE_S
        for line in self._lines:
            name, _, value = line.rstrip("\n").partition(": ")
            assert time.monotonic() < deadline, "only signs of life have come for too long"
            if name:
                fields[name] = value
            elif "event" in fields:
                yield fields["event"], int(fields["id"]) if "id" in fields else None, json.loads(fields["data"])
                fields = {}
                deadline = time.monotonic() + PATIENCE_S

    def take(self, count: int) -> list[tuple[str, int | None, Any]]:
        every = iter(self)
        return [next(every) for _ in range(count)]


@contextmanager
def socket(client: Client, path: str, **options: Any) -> Iterator[ClientConnection]:
    with connect(client.address.replace("http", "ws", 1) + path, **options) as connection:
        yield connection


# --- their life -------------------------------------------------------------------------------------------------------


def test_a_query_is_registered_listed_replaced_and_closed(registered: Client, engine: wukongs.Engine) -> None:
    (one,) = registered.ask("GET", "/queries").json
    assert (one["name"], one["text"], one["is_stream"], one["is_paused"]) == ("q", text_of(), False, False)
    fill(engine, 1)
    told = registered.ask("GET", "/queries/q").json
    assert (told["stats"]["windows"], told["stats"]["rows"]) == (1, 1)
    assert "q waits to report the window ending at 2000 ms" in registered.ask("GET", "/queries/q/why").text
    assert "Project ?s ?o" in registered.ask("GET", "/queries/q/explain").text
    replaced = registered.ask("PUT", "/queries/q", body=text_of(predicate="other"), content_type=QUERY)
    assert replaced.json["text"] == text_of(predicate="other")
    assert registered.ask("POST", "/queries/q/pause").status == 204
    assert registered.ask("GET", "/queries/q").json["is_paused"] is True
    assert registered.ask("POST", "/queries/q/resume").status == 204
    assert registered.ask("DELETE", "/queries/q").status == 204
    gone = registered.ask("GET", "/queries/q")
    assert (gone.status, "there is no query named q. Registered: none" in gone.text) == (404, True)
    assert engine.queries() == []


def test_a_query_by_json_with_bindings(client: Client, engine: wukongs.Engine, stream: Any) -> None:
    bindings = [{"s": "<http://ex/1>"}, {"s": "<http://ex/2>"}]
    body = json.dumps({"text": text_of(), "bindings": bindings, "unread": "end"})
    answer = client.ask("POST", "/queries", body=body, content_type="application/json")
    assert (answer.status, answer.headers["Location"]) == (201, client.address + "/queries/q")
    fill(engine, 1, 2)
    events = client.ask("GET", "/queries/q/windows", {"after": "1000"}).json["events"]
    rows = events[0]["data"]["results"]["bindings"]
    assert [row["argument"]["value"] for row in rows] == ["1"]


@pytest.mark.parametrize(
    ("body", "kind", "status", "expected"),
    [
        ("REGISTER QUERY q AS SELECT", QUERY, 400, "line 1, column"),
        ("SELECT * { ?s ?p ?o }", QUERY, 409, "expected REGISTER QUERY name AS"),
        (text_of().replace(S, "http://ex/t"), QUERY, 409, "unknown stream http://ex/t"),
        (text_of(), "text/csv", 415, "expected application/sparql-query or application/json"),
        ('{"text": 1}', "application/json", 400, "text = 1: expected the text of a query"),
        ('{"text": "x", "on_result": 1}', "application/json", 400, "on_result: expected text and base"),
        ("[", "application/json", 400, "the body is no JSON"),
    ],
)
def test_a_wrong_registration_is_refused(
    client: Client, engine: wukongs.Engine, stream: Any, body: str, kind: str, status: int, expected: str
) -> None:
    answer = client.ask("POST", "/queries", body=body, content_type=kind)
    assert (answer.status, expected in answer.text) == (status, True), answer.text
    assert engine.queries() == []


def test_a_name_is_taken_once(registered: Client) -> None:
    again = registered.ask("POST", "/queries", body=text_of(predicate="r"), content_type=QUERY)
    assert (again.status, "is registered already" in again.text) == (409, True)


def test_a_query_that_is_registered_again_goes_on_with_its_windows(registered: Client, engine: wukongs.Engine) -> None:
    """Clients of HTTP, and one of a socket, read all windows of it."""
    fill(engine, 1, 2)
    events = Events(registered, "/queries/q/windows")
    with closing(events.response):
        assert [end_ms for _, end_ms, _ in events.take(2)] == [1000, 2000]
        again = registered.ask("POST", "/queries", body=text_of(), content_type=QUERY)
        assert (again.status, again.json["name"], again.json["readers"]) == (200, "q", 1)
        assert again.headers["Location"].endswith("/queries/q")
        with served_to_clients(engine) as (_, wire), connected(wire) as client:
            query = client.register(text_of())
            fill(engine, 3)
            assert windows_until(query, 3000) == {3000: ["3"]}, "the server of HTTP has confirmed those before"
        assert [end_ms for _, end_ms, _ in events.take(1)] == [3000]


def test_a_group_that_is_registered_again_has_the_same_bindings(client: Client, stream: Any) -> None:
    def register(subject: int) -> int:
        told = {"text": text_of(), "bindings": [{"s": f"<http://ex/{subject}>"}]}
        answer = client.ask("POST", "/queries", body=json.dumps(told), content_type="application/json")
        return answer.status

    assert [register(1), register(1), register(2)] == [201, 200, 409]


def test_a_stream_that_a_query_makes_has_its_iri_as_name(client: Client, engine: wukongs.Engine, stream: Any) -> None:
    made = "http://ex/windows/why"
    text = (
        f"REGISTER STREAM <{made}> AS CONSTRUCT {{ ?s <http://ex/q> ?o }} FROM STREAM <{S}> [RANGE 1s STEP 1s] "
        "WHERE { ?s ?p ?o }"
    )
    answer = client.ask("POST", "/queries", body=text, content_type=QUERY)
    assert answer.status == 201
    path = answer.headers["Location"].removeprefix(client.address)
    assert path == f"/queries/{quote(made, '')}"
    assert client.ask("GET", path).json["is_stream"] is True
    fill(engine, 1)
    (event,) = client.ask("GET", path + "/windows").json["events"]
    assert event["data"]["triples"] == [["<http://ex/1>", "<http://ex/q>", '"1"']]


# --- windows ----------------------------------------------------------------------------------------------------------


def test_every_subscriber_gets_every_window(registered: Client, engine: wukongs.Engine) -> None:
    fill(engine, 1)
    first, second = (Events(registered, "/queries/q/windows") for _ in range(2))
    with socket(registered, "/queries/q/windows") as third:
        fill(engine, 2, 3)
        for one in (first, second):
            found = one.take(3)
            assert [(kind, end, subjects(data)) for kind, end, data in found] == [
                ("window", 1000, ["1"]),
                ("window", 2000, ["2"]),
                ("window", 3000, ["3"]),
            ]
        messages = [json.loads(third.recv(timeout=10)) for _ in range(3)]
    assert [(one["event"], one["id"], subjects(one["data"])) for one in messages] == [
        ("window", 1000, ["1"]),
        ("window", 2000, ["2"]),
        ("window", 3000, ["3"]),
    ]
    data = messages[1]["data"]
    assert (data["query"], data["start_ms"], data["end_ms"], data["partial"]) == ("q", 1000, 2000, False)
    assert data["windows"] == {S: [1000, 2000]}
    assert engine.query("ASK {}", at=data["snapshot"]).boolean


def test_one_who_comes_back_goes_on_behind_its_last_window(registered: Client, engine: wukongs.Engine) -> None:
    fill(engine, 1, 2, 3)
    ends = [end for _, end, _ in Events(registered, "/queries/q/windows", **{"Last-Event-ID": "1000"}).take(2)]
    assert ends == [2000, 3000]
    now = Events(registered, "/queries/q/windows?after=now")
    fill(engine, 4)
    assert [end for _, end, _ in now.take(1)] == [4000]


def test_changes_follow_a_whole_window(registered: Client, engine: wukongs.Engine) -> None:
    fill(engine, 1)
    one = Events(registered, "/queries/q/windows?changes&after=now")
    fill(engine, 2)
    engine.push_many({S: [(f"<http://ex/{s}>", "<http://ex/p>", '"2"', 2500) for s in (2, 9)]}, advance_ms=3000)
    engine.settle(10)
    whole, change = one.take(2)
    assert (whole[0], subjects(whole[2])) == ("window", ["2"])
    assert (change[0], change[1]) == ("changes", 3000)
    assert [row["s"]["value"] for row in change[2]["added"]] == ["http://ex/9"]
    assert change[2]["removed"] == []
    again = Events(registered, "/queries/q/windows?changes", **{"Last-Event-ID": "2000"}).take(1)
    assert again == [change], "it knows the window before"
    late = Events(registered, "/queries/q/windows?changes").take(1)
    assert late[0][0] == "window", "it knows none"


def test_of_a_window_the_first_rows_and_how_many_there_are(registered: Client, engine: wukongs.Engine) -> None:
    rows = [(f"<http://ex/{at}>", "<http://ex/p>", f'"{at}"', 500) for at in range(20)]
    engine.push_many({S: rows}, advance_ms=1000)
    fill(engine, 2)
    whole, few = registered.windows("q", 2, rows_max="5")
    assert (whole["data"]["row_count"], len(whole["data"]["results"]["bindings"])) == (20, 5)
    assert (few["data"].get("row_count"), subjects(few["data"])) == (None, ["2"])
    with socket(registered, "/queries/q/windows?rows_max=7") as connection:
        told = json.loads(connection.recv())["data"]
        assert (told["row_count"], len(told["results"]["bindings"])) == (20, 7)
    ((_, _, event),) = Events(registered, "/queries/q/windows?rows_max=19").take(1)
    assert (event["row_count"], len({*subjects(event)})) == (20, 19)
    ((_, _, event),) = Events(registered, "/queries/q/windows?rows_max=20").take(1)
    assert (event.get("row_count"), len({*subjects(event)})) == (None, 20)
    for wrong in ("0", "-1", "x"):
        assert registered.ask("GET", "/queries/q/windows", {"rows_max": wrong}).status == 400


def test_of_a_window_of_triples_the_first_ones(client: Client, engine: wukongs.Engine, stream: Any) -> None:
    text = text_of().replace("SELECT ?s ?o", "CONSTRUCT { ?s <http://ex/q> ?o }")
    assert client.ask("POST", "/queries", body=text, content_type=QUERY).status == 201
    rows = [(f"<http://ex/{at}>", "<http://ex/p>", f'"{at}"', 500) for at in range(20)]
    engine.push_many({S: rows}, advance_ms=1000)
    engine.settle(10)
    (event,) = client.ask("GET", "/queries/q/windows", {"rows_max": "3"}).json["events"]
    assert (event["data"]["row_count"], len({*map(tuple, event["data"]["triples"])})) == (20, 3)


def test_a_list_of_names_alone(registered: Client) -> None:
    assert registered.ask("GET", "/queries", {"brief": ""}).json == [
        {"name": "q", "is_view": False, "is_paused": False}
    ]


def test_long_poll_answers_what_has_come_or_waits(registered: Client, engine: wukongs.Engine) -> None:
    assert registered.ask("GET", "/queries/q/windows", {"timeout": "0.05"}).json == {
        "after": None,
        "ended": False,
        "events": [],
    }
    fill(engine, 1, 2)
    assert [event["id"] for event in registered.windows("q", 2)] == [1000, 2000]
    told = registered.ask("GET", "/queries/q/windows").json
    assert (told["after"], [event["id"] for event in told["events"]]) == (2000, [1000, 2000])
    timer = threading.Timer(0.3, fill, (engine, 3))
    timer.start()
    told = registered.ask("GET", "/queries/q/windows", {"after": "2000"}).json
    assert [subjects(event["data"]) for event in told["events"]] == [["3"]]
    timer.join()
    engine.queries()[0].close()
    assert registered.ask("GET", "/queries/q/windows").status == 404


def test_windows_as_arrow(registered: Client, engine: wukongs.Engine) -> None:
    fill(engine, 1, 2)
    answer = registered.ask("GET", "/queries/q/windows", {"after": "1000"}, accept=ARROW)
    assert (answer.kind, answer.headers["Wukongs-Window"]) == (ARROW, "2000")
    table = pyarrow.ipc.open_stream(answer.body).read_all()
    assert table.to_pylist() == [{"s": "<http://ex/2>", "o": '"2"'}]
    facts = json.loads(table.schema.metadata[b"wukongs.window"])
    assert (facts["query"], facts["end_ms"]) == ("q", 2000)
    none = registered.ask("GET", "/queries/q/windows", {"after": "2000", "timeout": "0.05"}, accept=ARROW)
    assert (none.status, none.body) == (204, b"")
    with socket(registered, "/queries/q/windows?format=arrow") as connection:
        messages = [connection.recv(timeout=10) for _ in range(2)]
    tables = [pyarrow.ipc.open_stream(message).read_all() for message in messages]
    assert [table.column("s").to_pylist() for table in tables] == [["<http://ex/1>"], ["<http://ex/2>"]]


def test_a_query_that_is_closed_ends_its_subscribers(registered: Client, engine: wukongs.Engine) -> None:
    events = Events(registered, "/queries/q/windows")
    with socket(registered, "/queries/q/windows") as connection:
        fill(engine, 1)
        assert registered.ask("DELETE", "/queries/q").status == 204
        assert [kind for kind, _, _ in events] == ["window", "end"]
        connection.recv(timeout=10)
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=10)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1000, "the query has ended")


def test_its_name_may_be_that_of_another_query_later(registered: Client, engine: wukongs.Engine) -> None:
    fill(engine, 1)
    assert registered.ask("GET", "/queries/q/windows").json["after"] == 1000
    registered.ask("DELETE", "/queries/q")
    registered.ask("POST", "/queries", body=text_of(), content_type=QUERY)
    fill(engine, 2)
    told = registered.ask("GET", "/queries/q/windows").json
    assert [subjects(event["data"]) for event in told["events"]] == [["2"]], "windows of its own"


def test_what_is_not_kept_any_more_is_told(engine: wukongs.Engine, stream: Any) -> None:
    with served(engine, Bounds(feed=FeedBounds(windows_max=2))) as client:
        client.ask("POST", "/queries", body=text_of(), content_type=QUERY)
        fill(engine, 1, 2, 3, 4)
        assert client.ask("GET", "/queries/q/windows", {"after": "3000"}).json["after"] == 4000, "all are read"
        told = client.ask("GET", "/queries/q/windows", {"after": "1000"}).json
        assert [(event["event"], event["id"]) for event in told["events"]] == [
            ("gap", 2000),
            ("window", 3000),
            ("window", 4000),
        ]
        assert told["events"][0]["data"]["to_ms"] == 2000
        told = client.ask("GET", "/queries/q/windows", {"after": "2000"}).json
        assert [event["id"] for event in told["events"]] == [3000, 4000], "it has lost nothing"


def test_an_error_stands_in_the_place_of_its_window(client: Client, engine: wukongs.Engine, stream: Any) -> None:
    with wukongs.Engine(settings=wukongs.Settings(rows_max=10)) as small, served(small) as client:
        small.stream(S, timing=True, batch_ms=100)
        client.ask("POST", "/queries", body=text_of(), content_type=QUERY)
        rows = [(f"<http://ex/{n}>", "<http://ex/p>", '"x"', 500) for n in range(11)]
        small.push_many({S: rows}, advance_ms=1000)
        fill(small, 2)
        found = Events(client, "/queries/q/windows").take(2)
    assert [(kind, end) for kind, end, _ in found] == [("error", 1000), ("window", 2000)]
    assert found[0][2]["title"] == "BudgetExceeded"


@pytest.mark.parametrize("accept", [EVENTS, "application/json", ARROW])
def test_head_of_windows_waits_for_none(registered: Client, accept: str) -> None:
    connection = http.client.HTTPConnection(registered.host, registered.port, timeout=10)
    with closing(connection):
        for _ in range(2):  # the second one is answered once the first one is
            connection.request("HEAD", "/queries/q/windows", headers={"Accept": accept})
            answer = connection.getresponse()
            assert (answer.status, answer.headers.get_content_type(), answer.read()) == (200, accept, b"")
        connection.request("HEAD", "/queries/q/windows?after=x", headers={"Accept": accept})
        assert connection.getresponse().status == 400


def test_refusals_of_subscribers(registered: Client) -> None:
    assert registered.ask("GET", "/queries/x/windows", accept=EVENTS).status == 404
    assert registered.ask("GET", "/queries/q/windows", accept="text/html").status == 406
    assert registered.ask("GET", "/queries/q/windows", {"after": "x"}).status == 400
    answer = registered.ask("GET", "/queries/q/windows", headers={"Last-Event-ID": "x"})
    assert (answer.status, "Last-Event-ID = 'x': expected an integer" in answer.text) == (400, True)
    with socket(registered, "/queries/x/windows") as connection:
        told = json.loads(connection.recv(timeout=10))
        assert (told["event"], told["data"]["status"]) == ("refused", 404)
        with pytest.raises(ConnectionClosed):
            connection.recv(timeout=10)


def test_windows_that_waited_in_a_data_folder_are_told_and_wait_no_more(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path / "db") as engine:
        engine.stream(S, timing=True, batch_ms=100)
        engine.register(text_of())
        fill(engine, 1, 2)
    for waited in ([1000, 2000], []):
        with wukongs.Engine(tmp_path / "db") as engine:
            server = HttpServer(engine, HttpSettings(port=0), owns_queries=True)
            told = Client(server.address).ask("GET", "/queries/q/windows", {"timeout": "1"}).json
            assert [event["id"] for event in told["events"]] == waited
            server.close()


def test_subscribers_come_again_when_the_server_does(engine: wukongs.Engine, stream: Any) -> None:
    with served(engine) as client:
        client.ask("POST", "/queries", body=text_of(), content_type=QUERY)
        events = Events(client, "/queries/q/windows")
        fill(engine, 1)
        assert [end for _, end, _ in events.take(1)] == [1000]
    assert [kind for kind, _, _ in events] == [], "no end: the query goes on"
    fill(engine, 2)
    with served(engine) as client:
        again = Events(client, "/queries/q/windows", **{"Last-Event-ID": "1000"}).take(1)
        assert [(kind, end) for kind, end, _ in again] == [("window", 2000)]
