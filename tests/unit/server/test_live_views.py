"""Live views over HTTP: their life, their reports by four ways, their content, and who may read them."""

from __future__ import annotations

import io
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import wukongs
from tests.unit.server.asking import QUERY, Client, served
from tests.unit.server.test_queries import ARROW, Events, socket
from wukongs.server.events import FeedBounds
from wukongs.server.face import Bounds
from wukongs.server.http_server import HttpServer, HttpSettings

EX = "http://ex/"
CHANGES = "/queries/v/changes"
TOKENS = {"ann": "", "lea": " read", "log": " read http://ex/logs", "gus": " admin http://ex/logs"}
TEXT = "REGISTER QUERY v AS SELECT ?s ?o WHERE { ?s <http://ex/p> ?o }"


def change(engine: wukongs.Engine, *names: str) -> None:
    """Insert a triple for each name, or delete that of a name behind a minus sign, at one snapshot."""
    parts = [("DELETE" if name.startswith("-") else "INSERT", name.lstrip("-")) for name in names]
    engine.update(";".join(f"{verb} DATA {{ <{EX}{name}> <{EX}p> <{EX}o> }}" for verb, name in parts))
    engine.settle(10)


def rows_of(data: Any) -> list[tuple[str, int]]:
    """Return (subject without its namespace, weight) of a report, sorted."""
    return sorted((one["binding"]["s"]["value"].removeprefix(EX), one["weight"]) for one in data["changes"])


def apply(content: Counter[str], kind: str, data: Any) -> None:
    """Do what a reader does with an event."""
    if kind == "reset":
        content.clear()
    for name, weight in rows_of(data):
        content[name] += weight


def inserted(content: Counter[str]) -> list[str]:
    assert all(weight >= 0 for weight in content.values())
    return sorted((+content).elements())


@pytest.fixture
def registered(client: Client, engine: wukongs.Engine) -> Client:
    change(engine, "a")
    answer = client.ask("POST", "/queries", body=TEXT, content_type=QUERY)
    assert answer.status == 201, answer.text
    return client


def register(client: Client, **options: Any) -> Any:
    told = json.dumps({"text": TEXT, **options})
    return client.ask("POST", "/queries", body=told, content_type="application/json")


# --- their life -------------------------------------------------------------------------------------------------------


def test_a_view_is_registered_listed_replaced_and_closed(registered: Client, engine: wukongs.Engine) -> None:
    (one,) = registered.ask("GET", "/queries").json
    assert (one["name"], one["text"], one["is_view"], one["is_paused"]) == ("v", TEXT, True, False)
    assert registered.ask("GET", "/queries?brief").json == [{"name": "v", "is_view": True, "is_paused": False}]
    assert registered.ask("GET", "/queries/v").json["stats"]["kind"] == "view"
    assert "is complete up to SN" in registered.ask("GET", "/queries/v/why").text
    assert "delta join" in registered.ask("GET", "/queries/v/explain").text
    other = TEXT.replace("?s ?o WHERE", "?s WHERE")
    assert registered.ask("PUT", "/queries/v", body=other, content_type=QUERY).json["text"] == other
    assert registered.ask("POST", "/queries/v/pause").status == 204
    assert registered.ask("GET", "/queries/v").json["is_paused"] is True
    paused = registered.ask("GET", "/queries/v/content")
    assert (paused.status, "is paused, and holds no content" in paused.text) == (409, True)
    assert registered.ask("POST", "/queries/v/resume").status == 204
    assert registered.ask("DELETE", "/queries/v").status == 204
    assert engine.queries() == []


def test_a_view_is_registered_again_with_the_same_text_and_options(client: Client) -> None:
    assert [register(client, keep=keep).status for keep in (True, True, False)] == [201, 200, 409]
    assert client.ask("DELETE", "/queries/v").status == 204
    bindings = [{"s": f"<{EX}a>"}]
    assert [register(client, bindings=given).status for given in (bindings, None, bindings)] == [201, 409, 409]


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [
        ({"text": TEXT.replace("SELECT ?s ?o", "DESCRIBE ?s")}, 400, "DESCRIBE in a live view"),
        ({"every_ms": 0}, 400, "every_ms = 0"),
        ({"keep": 1}, 400, "keep = 1: expected of a live view"),
        ({"into": "http://ex/g"}, 400, "Into a stored graph a query is a rule"),
        ({"unread": "end"}, 400, "a live view sums its unread reports"),
    ],
)
def test_a_wrong_registration_is_refused(
    client: Client, engine: wukongs.Engine, options: dict[str, Any], status: int, expected: str
) -> None:
    answer = register(client, **options)
    assert (answer.status, expected in answer.text) == (status, True), answer.text
    assert engine.queries() == []


def test_an_engine_with_a_data_folder_says_what_it_cannot(tmp_path: Path) -> None:
    """The server has no list of its own of what engines can."""
    with wukongs.Engine(data_dir=tmp_path) as engine, served(engine) as client:
        try:
            engine.register(TEXT)
            status, told = 200, '"name":"v"'
        except wukongs.StreamError as error:
            status, told = 409, str(error)
        answer = client.ask("POST", "/queries", body=TEXT, content_type=QUERY)
        assert (answer.status, told in answer.text) == (status, True)


def test_a_server_that_owns_the_queries_leaves_views_alone(engine: wukongs.Engine) -> None:
    view: Any = engine.register(TEXT)
    server = HttpServer(engine, HttpSettings(port=0), owns_queries=True)
    try:
        change(engine, "a")
        (event,) = Client(server.address).ask("GET", CHANGES).json["events"]
        assert rows_of(event["data"]) == [("a", 1)]
        assert [report.is_reset for report in view.results(timeout_s=0)] == [True], "its own cursor is where it was"
    finally:
        server.close()


def test_windows_and_changes_are_not_mixed_up(registered: Client, engine: wukongs.Engine) -> None:
    asked = registered.ask("GET", "/queries/v/windows")
    assert (asked.status, "ask for /queries/v/changes" in asked.text) == (409, True)
    engine.stream("http://ex/s", timing=True, batch_ms=100)
    engine.register("REGISTER QUERY w AS SELECT * FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?s ?p ?o }")
    for path in ("changes", "content"):
        asked = registered.ask("GET", f"/queries/w/{path}")
        assert (asked.status, "ask for /queries/w/windows" in asked.text) == (409, True)


def test_metrics_have_views(registered: Client, engine: wukongs.Engine) -> None:
    registered.ask("GET", CHANGES)
    view: Any = engine.queries()[0]
    list(view.results(timeout_s=0))
    change(engine, "b")
    told = registered.ask("GET", "/metrics").text
    assert 'wukongs_view_reports_total{view="v"} 1.0' in told
    assert "wukongs_all_views_rows_total 1.0" in told
    assert f'wukongs_view_snapshot{{view="v"}} {float(view.sn)}' in told
    assert 'path="/queries/changes"' in told


# --- reports ----------------------------------------------------------------------------------------------------------


def test_a_subscriber_gets_a_reset_and_then_changes(registered: Client, engine: wukongs.Engine) -> None:
    events = Events(registered, CHANGES)
    with closing(events.response):
        (first,) = take(events, 1)
        assert (first[0], rows_of(first[2]), first[2]["head"]) == ("reset", [("a", 1)], {"vars": ["s", "o"]})
        change(engine, "b", "-a")
        change(engine, "c")
        second, third = take(events, 2)
        assert [(kind, rows_of(data)) for kind, _, data in (second, third)] == [
            ("change", [("a", -1), ("b", 1)]),
            ("change", [("c", 1)]),
        ]
        assert first[2]["snapshot"] == second[2]["after"] < second[2]["snapshot"] == third[2]["after"]
        assert second[2]["time_ms"] is None


def take(events: Events, count: int) -> list[tuple[str, str, Any]]:
    """Return the next events: (kind, id, data)."""
    found: list[tuple[str, str, Any]] = []
    fields: dict[str, str] = {}
    for line in events._lines:
        name, _, value = line.rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "event" in fields:
            found.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
            fields = {}
            if len(found) == count:
                break
    return found


def test_a_subscriber_goes_on_behind_its_last_report(registered: Client, engine: wukongs.Engine) -> None:
    content, after = Counter[str](), None
    for names in ("b", "c -a", "d"):
        change(engine, *names.split())
        headers: dict[str, str] = {} if after is None else {"Last-Event-ID": after}
        events = Events(registered, CHANGES, **headers)
        with closing(events.response):
            ((kind, next_after, data),) = take(events, 1)
        assert kind == ("reset" if after is None else "change")
        apply(content, kind, data)
        after = next_after
    assert inserted(content) == ["b", "c", "d"]


def test_an_id_of_another_life_begins_with_a_reset(registered: Client, engine: wukongs.Engine) -> None:
    """The view is registered anew, or replaced, at the same SN: what a subscriber has is of another text."""
    (event,) = registered.ask("GET", CHANGES).json["events"]
    assert registered.ask("GET", CHANGES, {"after": event["id"], "timeout": "0.1"}).json["events"] == []
    other = TEXT.replace("?s <http://ex/p> ?o", "?o <http://ex/p> ?s")
    assert registered.ask("PUT", "/queries/v", body=other, content_type=QUERY).status == 200
    (replaced,) = registered.ask("GET", CHANGES, {"after": event["id"]}).json["events"]
    assert (replaced["event"], rows_of(replaced["data"])) == ("reset", [("o", 1)])
    assert registered.ask("DELETE", "/queries/v").status == 204
    assert registered.ask("POST", "/queries", body=TEXT, content_type=QUERY).status == 201
    (anew,) = registered.ask("GET", CHANGES, {"after": replaced["id"]}).json["events"]
    assert (anew["event"], rows_of(anew["data"])) == ("reset", [("a", 1)])


def test_one_who_falls_behind_what_is_kept_begins_with_a_reset(engine: wukongs.Engine) -> None:
    with served(engine, Bounds(feed=FeedBounds(windows_max=2))) as client:
        assert register(client).status == 201
        (event,) = client.ask("GET", CHANGES).json["events"]
        for name in "abc":
            change(engine, name)
        assert client.ask("GET", CHANGES, {"after": "now", "timeout": "0.05"}).status == 200, "all are read"
        (after_a,) = client.ask("GET", CHANGES, {"after": event["id"]}).json["events"]
        assert (after_a["event"], rows_of(after_a["data"])) == ("reset", [("a", 1), ("b", 1), ("c", 1)])


def test_progress_is_reported_to_whom_asks_for_it(registered: Client, engine: wukongs.Engine) -> None:
    (event,) = registered.ask("GET", CHANGES).json["events"]
    engine.update("INSERT DATA { <http://ex/x> <http://ex/q> <http://ex/y> }")
    engine.settle(10)
    (progress,) = registered.ask("GET", CHANGES, {"after": event["id"], "progress": ""}).json["events"]
    facts = {"query": "v", "after": event["data"]["snapshot"], "snapshot": engine.stats()["sn"], "time_ms": None}
    assert (progress["event"], progress["data"]) == ("progress", facts)
    assert registered.ask("GET", CHANGES, {"after": event["id"], "timeout": "0.1"}).json["events"] == []
    change(engine, "b")
    (last,) = registered.ask("GET", CHANGES, {"after": progress["id"]}).json["events"]
    assert (last["event"], last["data"]["after"]) == ("change", progress["data"]["snapshot"])


def test_a_subscriber_may_begin_now(registered: Client, engine: wukongs.Engine) -> None:
    answer = registered.ask("GET", CHANGES, {"after": "now", "timeout": "0.1"}).json
    assert answer["events"] == []
    change(engine, "b")
    (event,) = registered.ask("GET", CHANGES, {"after": answer["after"]}).json["events"]
    assert (event["event"], rows_of(event["data"])) == ("change", [("b", 1)])


def test_a_view_without_snapshot_begins_with_changes(client: Client, engine: wukongs.Engine) -> None:
    change(engine, "a")
    assert register(client, snapshot=False).status == 201
    after = client.ask("GET", CHANGES, {"timeout": "0.1"}).json["after"]
    assert after is None
    with socket(client, CHANGES) as connection:
        deadline_s = time.monotonic() + 10
        while client.ask("GET", "/metrics").text.count("wukongs_feed_subscribers 1.0") == 0:
            assert time.monotonic() < deadline_s
        change(engine, "b")
        told = json.loads(connection.recv(10))
    assert (told["event"], rows_of(told["data"])) == ("change", [("b", 1)])


def test_reports_over_a_websocket(registered: Client, engine: wukongs.Engine) -> None:
    with socket(registered, CHANGES) as connection, socket(registered, f"{CHANGES}?format=arrow") as binary:
        told = json.loads(connection.recv(10))
        assert (told["event"], rows_of(told["data"])) == ("reset", [("a", 1)])
        assert pyarrow.ipc.open_stream(binary.recv(10)).read_all().column("weight").to_pylist() == [1]
        change(engine, "-a")
        told = json.loads(connection.recv(10))
        assert (told["event"], rows_of(told["data"])) == ("change", [("a", -1)])
        assert pyarrow.ipc.open_stream(binary.recv(10)).read_all().column("weight").to_pylist() == [-1]
        after = told["id"]
    change(engine, "b")
    with socket(registered, f"{CHANGES}?after={after}") as connection:
        told = json.loads(connection.recv(10))
        assert (told["event"], rows_of(told["data"])) == ("change", [("b", 1)])


def test_a_report_as_arrow(registered: Client) -> None:
    answer = registered.ask("GET", CHANGES, accept=ARROW)
    table = pyarrow.ipc.open_stream(io.BytesIO(answer.body)).read_all()
    assert table.to_pydict() == {"s": [f"<{EX}a>"], "o": [f"<{EX}o>"], "weight": [1]}
    facts = json.loads(table.schema.metadata[b"wukongs.report"])
    assert (facts["query"], facts["is_reset"], facts["kind"]) == ("v", True, "select")
    after = answer.headers["Wukongs-Report"]
    assert registered.ask("GET", CHANGES, {"after": after, "timeout": "0.1"}, accept=ARROW).status == 204


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ASK { ?s <http://ex/p> ?o }", [{"weight": 1, "binding": {}}]),
        (
            "CONSTRUCT { ?o <http://ex/q> ?s } WHERE { ?s <http://ex/p> ?o }",
            [{"weight": 1, "triple": ["<http://ex/o>", "<http://ex/q>", "<http://ex/a>"]}],
        ),
        (
            "SELECT (COUNT(*) AS ?n) (CONCAT('a\\n\"', 'b') AS ?t) WHERE { ?s <http://ex/p> ?o }",
            [
                {
                    "weight": 1,
                    "binding": {
                        "n": {
                            "type": "literal",
                            "value": "1",
                            "datatype": "http://www.w3.org/2001/XMLSchema#integer",
                        },
                        "t": {"type": "literal", "value": 'a\n"b'},
                    },
                }
            ],
        ),
    ],
)
def test_the_kinds_of_queries(client: Client, engine: wukongs.Engine, text: str, expected: list[Any]) -> None:
    change(engine, "a")
    assert client.ask("POST", "/queries", body=f"REGISTER QUERY v AS {text}", content_type=QUERY).status == 201
    (event,) = client.ask("GET", CHANGES).json["events"]
    assert (event["event"], event["data"]["changes"]) == ("reset", expected)
    assert event["data"].get("boolean") == (True if text.startswith("ASK") else None)


def test_rows_beyond_a_bound_are_counted(registered: Client, engine: wukongs.Engine) -> None:
    change(engine, "b", "c")
    (event,) = registered.ask("GET", CHANGES, {"rows_max": "2"}).json["events"]
    assert (len(event["data"]["changes"]), event["data"]["row_count"]) == (2, 3)


def test_a_pause_ends_with_a_reset(registered: Client, engine: wukongs.Engine) -> None:
    events = Events(registered, CHANGES)
    with closing(events.response):
        assert [kind for kind, _, _ in take(events, 1)] == ["reset"]
        assert registered.ask("POST", "/queries/v/pause").status == 204
        other = Events(registered, CHANGES)
        change(engine, "b")
        assert registered.ask("POST", "/queries/v/resume").status == 204
        for one in (events, other):
            found: list[tuple[str, int]] = []
            while found != [("a", 1), ("b", 1)]:
                ((kind, _, data),) = take(one, 1)
                assert kind == "reset"
                found = rows_of(data)
        other.response.close()


def test_the_end_of_a_view_ends_its_subscribers(registered: Client) -> None:
    events = Events(registered, CHANGES)
    with closing(events.response):
        assert take(events, 1)[0][0] == "reset"
        assert registered.ask("DELETE", "/queries/v").status == 204
        assert take(events, 1)[0][0] == "end"


def test_an_error_is_an_event_before_the_reset(client: Client, engine: wukongs.Engine) -> None:
    """It is evaluated anew with the next change, and while it fails its subscribers are not flooded."""
    text = "REGISTER QUERY v AS SELECT ?s ?o WHERE { ?s <http://ex/p> ?o } ORDER BY ?s"
    assert client.ask("POST", "/queries", body=text, content_type=QUERY).status == 201
    view = engine.queries()[0]
    events = Events(client, CHANGES)
    with closing(events.response):
        assert take(events, 1)[0][0] == "reset"
        view.log.begin_again(view.position, wukongs.QueryTimeout("it took too long"))  # type: ignore[attr-defined]
        (failed, anew) = take(events, 2)
        assert (failed[0], failed[2]["title"], anew[0]) == ("error", "QueryTimeout", "reset")


def test_many_subscribers_each_have_the_content_in_the_end(registered: Client, engine: wukongs.Engine) -> None:
    """They begin at any time, and connect again at any event."""
    contents = [Counter[str]() for _ in range(6)]

    def follow(content: Counter[str], reconnect_every: int) -> None:
        after: str | None = None
        while True:
            headers = {} if after is None else {"Last-Event-ID": after}
            events = Events(registered, CHANGES, **headers)
            with closing(events.response):
                for _ in range(reconnect_every):
                    ((kind, after, data),) = take(events, 1)
                    apply(content, kind, data)
                    if content["end"] > 0:
                        return

    threads = [threading.Thread(target=follow, args=(one, 1 + place)) for place, one in enumerate(contents)]
    for thread in threads:
        thread.start()
    for number in range(60):
        change(engine, f"n{number}", *([f"-n{number - 3}"] if number >= 3 else []))
    change(engine, "end")
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    expected = sorted(str(row[0]).removeprefix(EX) for row in engine.query("SELECT ?s { ?s <http://ex/p> ?o }"))
    assert [inserted(one) for one in contents] == [expected] * len(contents)


# --- content and arguments --------------------------------------------------------------------------------------------


def test_the_content_is_written_in_every_format(registered: Client) -> None:
    assert registered.ask("GET", "/queries/v/content").values == ["a", "o"]
    assert registered.ask("GET", "/queries/v/content", accept="text/csv").text == "s,o\r\nhttp://ex/a,http://ex/o\r\n"
    tsv = registered.ask("GET", "/queries/v/content", {"format": "tsv"})
    assert tsv.text == "?s\t?o\n<http://ex/a>\t<http://ex/o>\n"
    assert registered.ask("GET", "/queries/v/content", accept="image/png").status == 406


def test_changes_follow_a_content(registered: Client, engine: wukongs.Engine) -> None:
    content = registered.ask("GET", "/queries/v/content")
    change(engine, "b")
    after = content.headers["Wukongs-Report"]
    (event,) = registered.ask("GET", CHANGES, {"after": after}).json["events"]
    assert (event["event"], event["data"]["after"]) == ("change", content.snapshot)
    assert rows_of(event["data"]) == [("b", 1)]
    older = registered.ask("GET", "/queries/v/content", {"at": str(content.snapshot)})
    assert (older.values, older.headers["Wukongs-Report"]) == (["a", "o"], None)


def test_arguments_are_bound_and_unbound(client: Client, engine: wukongs.Engine) -> None:
    change(engine, "a", "b")
    assert register(client, bindings=[{"s": f"<{EX}a>"}]).status == 201
    (event,) = client.ask("GET", CHANGES).json["events"]
    assert event["data"]["changes"][0]["binding"]["argument"]["value"] == "0"
    told = [{"s": f"<{EX}b>"}, {"s": f"<{EX}c>"}]
    kind = "application/json"
    assert client.ask("POST", "/queries/v/bind", body=json.dumps(told), content_type=kind).json == {"numbers": [1, 2]}
    (bound,) = client.ask("GET", CHANGES, {"after": event["id"]}).json["events"]
    assert (bound["event"], bound["data"]["minor"]) == ("change", 2)
    assert [one["binding"]["argument"]["value"] for one in bound["data"]["changes"]] == ["1"]
    content = client.ask("GET", "/queries/v/content")
    assert content.headers["Wukongs-Report"] == bound["id"]
    for unbound, numbers in (([1], [1]), (told[1:], [2])):
        answer = client.ask("POST", "/queries/v/unbind", body=json.dumps(unbound), content_type=kind)
        assert answer.json == {"numbers": numbers}
    missing = client.ask("POST", "/queries/v/unbind", body="[1]", content_type=kind)
    assert (missing.status, "no argument has the number 1" in missing.text) == (400, True)
    wrong = client.ask("POST", "/queries/v/bind", body='{"s": 1}', content_type=kind)
    assert (wrong.status, "expected a list of objects" in wrong.text) == (400, True)


# --- who may read them ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[wukongs.Engine, Client]]:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text("".join(f"{one}-0123456789abcdef{more}\n" for one, more in TOKENS.items()))
    with wukongs.Engine() as engine:
        server = HttpServer(engine, HttpSettings(port=0, tokens_file=str(tokens)))
        try:
            yield engine, Client(server.address)
        finally:
            server.close()


def test_roles_and_graphs_of_tokens(guarded: tuple[wukongs.Engine, Client]) -> None:
    engine, client = guarded
    change(engine, "a")

    def status(token: str, method: str, path: str, body: str | None = None) -> int:
        headers = {"Authorization": f"Bearer {token}-0123456789abcdef"}
        kind = None if body is None else "application/json" if body.startswith("[") else QUERY
        return client.ask(method, path, body=body, content_type=kind, headers=headers).status

    assert status("lea", "POST", "/queries", TEXT) == 403
    assert status("ann", "POST", "/queries", TEXT) == 201
    assert [status(one, "GET", f"{CHANGES}?timeout=0.1") for one in ("ann", "lea", "log", "gus")] == [
        200,
        200,
        404,
        404,
    ]
    assert [status(one, "GET", "/queries/v/content") for one in ("lea", "log")] == [200, 404]
    assert status("lea", "POST", "/queries/v/bind", "[]") == 403
    logs = "REGISTER QUERY w AS SELECT ?s WHERE { ?s ?p ?o }"
    assert status("gus", "POST", "/queries", logs) == 201, "it reads a dataset of its graphs alone"
    assert (
        client.ask("GET", "/queries/w/content", headers={"Authorization": "Bearer log-0123456789abcdef"}).values == []
    )
    assert [status(one, "GET", "/queries/w/content") for one in ("log", "lea", "ann")] == [200, 200, 200]
