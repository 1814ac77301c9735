"""Nodes that are slow or have too much to do, and clients that do not wait to the end."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import wukongs
from tests.unit.remote.served import Once, Wire, connected, count, served, silent
from wukongs.errors import NodeUnavailable, QueryKilled, QueryTimeout
from wukongs.remote import connection, kinds, service, sessions
from wukongs.remote.client import RemoteEngine
from wukongs.remote.sessions import SessionCall
from wukongs.store.encoded import MalformedLine
from wukongs.wire.packets import Packet

INSERT = "INSERT DATA { <http://ex/a> <http://ex/p> <http://ex/b> }"
ENDLESS = "SELECT (COUNT(*) AS ?n) { ?a ?p ?b . ?c ?p ?d . ?e ?p ?f . ?g ?p ?h FILTER(?a != ?d && ?c != ?f) }"
"""It takes hours over a few hundred triples."""
LINES = b"".join(b"<http://ex/s%d> <http://ex/p> <http://ex/o%d> .\n" % (n, n % 7) for n in range(2000))


@pytest.fixture
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connection, service, kinds):
        monkeypatch.setattr(module, "POLL_S", 0.05)


def test_a_call_may_last_longer_than_a_silence(
    embedded: wukongs.Engine, short_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, asked = embedded.update, list[str]()

    def slowly(*args: Any, **options: Any) -> int:
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + (0.5 if asked.count(kinds.WAIT) > 2 else 60):
            time.sleep(0.01)
        return update(*args, **options)

    monkeypatch.setattr(embedded, "update", slowly)
    with served(embedded) as (_, wire), connected(wire, silence_s=0.2) as client:
        asked = wire.asked
        assert client.update(INSERT) == 1
        assert wire.asked.count(kinds.WAIT) > 2
    assert count(embedded) == 1


def test_a_query_without_an_outcome_ends_after_its_time(
    embedded: wukongs.Engine, short_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wukongs.remote.connection.MARGIN_S", 0.1)
    go_on = threading.Event()
    query = embedded.query
    monkeypatch.setattr(embedded, "query", lambda *args, **options: (go_on.wait(60), query(*args, **options))[1])
    with served(embedded) as (_, wire), connected(wire) as client:
        with pytest.raises(QueryTimeout, match=r"no outcome of 'query' within 0\.3 s, though the node answers"):
            client.query("ASK {}", timeout_s=0.2)
        assert kinds.CANCEL in wire.asked
        go_on.set()
        assert not client.query("ASK { ?s ?p ?o }")


def test_a_node_with_too_much_to_do_is_waited_for_and_then_given_up(
    embedded: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        served(embedded) as (_, wire),
        connected(wire, silence_s=60.0) as patient,
        connected(wire, silence_s=0.3) as client,
    ):
        busy = iter([True, True])
        wire.on_ask = lambda packet: Packet(kinds.BUSY) if next(busy, False) else None
        assert patient.update(INSERT) == 1
        wire.on_ask = lambda packet: Packet(kinds.BUSY)
        with pytest.raises(NodeUnavailable, match=r"the node has had too much to do for 0\.3 s"):
            client.update(INSERT)


def test_too_many_calls_of_one_client_are_put_off(
    embedded: wukongs.Engine, short_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wukongs.remote.sessions.CALLS_MAX", 2)
    with served(embedded) as (_, wire), connected(wire, silence_s=60.0) as client:
        texts = [f"INSERT DATA {{ <s:{n}> <p:p> 1 }}" for n in range(8)]
        threads = [threading.Thread(target=client.update, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert count(client) == 8


def test_ctrl_c_stops_a_call_and_the_next_one_works(engine: RemoteEngine, wire: Wire) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    wire.on_answer = Once("update", interrupt)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        engine.update(INSERT)
    assert count(engine) == 1
    wire.on_ask = Once(kinds.PART, interrupt)
    with pytest.raises(KeyboardInterrupt):
        engine.load(io.BytesIO(LINES), format="nt")
    assert wire.asked[-1] == kinds.CANCEL
    assert count(engine) == 1


def test_a_callback_that_fails_stops_the_load(engine: RemoteEngine) -> None:
    def refuse(file: str, line: MalformedLine) -> None:
        raise LookupError(f"{file} {line.line}")

    for content in (b"oops\n" + LINES, LINES + b"oops\n"):
        with pytest.raises(LookupError, match=r"<stream> (1|2001)"):
            engine.load(io.BytesIO(content), format="nt", on_malformed=refuse)
        assert count(engine) == 0
    seen: list[tuple[str, int]] = []
    content = b"oops\n" * 3 + LINES
    engine.load(io.BytesIO(content), format="nt", on_malformed=lambda file, line: seen.append((file, line.line)))
    assert seen == [("<stream>", 1), ("<stream>", 2), ("<stream>", 3)]
    assert count(engine) == 2000


# --- clients that are gone --------------------------------------------------------------------------------------------


@pytest.fixture
def killed(embedded: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries of an engine with some triples that were killed."""
    embedded.load(io.BytesIO(b"".join(LINES.splitlines(keepends=True)[:300])), format="nt")
    found, query = list[str](), embedded.query

    def noted(text: str, **options: Any) -> Any:
        try:
            return query(text, **options)
        except QueryKilled:
            found.append(text)
            raise

    monkeypatch.setattr(embedded, "query", noted)
    return found


def begin(wire: Wire, method: str, text: str) -> dict[str, Any]:
    """Call as a client that then dies; return what names the call."""
    connect = Packet(kinds.CONNECT, {"version": kinds.VERSION, "client": "c"})
    told = {"session": wire.ask(connect, 1).fields["session"], "number": 1, "done": 1}
    call = Packet(kinds.CALL, {**told, "method": method, "args": {"text": text, "timeout_s": 0}})
    assert wire.ask(call, 1).kind == kinds.WORKING
    return told


def outcome(wire: Wire, told: dict[str, Any]) -> Packet:
    while (answer := wire.ask(Packet(kinds.WAIT, told), 1)).kind == kinds.WORKING:
        pass
    return answer


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_query_for_which_nobody_waits_any_more_ends_and_is_begun_anew_if_it_is_asked_again(
    embedded: wukongs.Engine, killed: list[str], short_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "UNASKED_S", 0.2)
    with served(embedded) as (_, wire):
        told = begin(wire, "query", ENDLESS)
        until(lambda: killed == [ENDLESS])
        assert outcome(wire, told).kind == kinds.LOST
        assert begin(wire, "query", ENDLESS) == told
        until(lambda: killed == [ENDLESS, ENDLESS])


def test_a_read_goes_on_while_somebody_waits_and_a_while_longer() -> None:
    call, told, now_s = SessionCall(is_read=True), list[str](), time.monotonic()
    for _ in range(5):
        now_s += 2 * sessions.UNASKED_S
        call.tell(lambda answer: told.append(answer.kind), kinds.POLL_S)
        call.look(now_s)
    call.look(now_s + sessions.UNASKED_S)
    call.tell(lambda answer: told.append(answer.kind), 0)
    assert told == 6 * [kinds.WORKING]
    call.look(now_s + sessions.UNASKED_S + 1)
    call.tell(lambda answer: told.append(answer.kind), kinds.POLL_S)
    assert told[6:] == [kinds.LOST]


def test_a_query_that_somebody_kills_is_not_taken_for_one_that_nobody_waits_for(
    embedded: wukongs.Engine, killed: list[str], short_polls: None
) -> None:
    with served(embedded) as (_, wire):
        told = begin(wire, "query", ENDLESS)
        until(embedded.running)
        embedded.kill(embedded.running()[0].number)
        assert outcome(wire, told).fields["error"] == "QueryKilled"


@pytest.mark.parametrize("end", ["leave", "silence", "close"])
def test_the_queries_of_a_session_end_with_it(
    embedded: wukongs.Engine, killed: list[str], short_polls: None, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(service, "_END_S", 0.1)
    with served(embedded, silent_s=0.2 if end == "silence" else 60) as (service_, wire):
        told, answers = begin(wire, "query", ENDLESS), list[Packet]()
        waiting = threading.Thread(target=lambda: answers.append(outcome(wire, told)))
        if end != "silence":
            waiting.start()
        if end == "leave":
            wire.ask(Packet(kinds.LEAVE, told), 1)
        elif end == "close":
            service_.close()
        until(lambda: killed == [ENDLESS])
        if end != "silence":
            waiting.join(60)
            assert [answer.kind for answer in answers] == [kinds.LOST]


def test_an_update_goes_on_though_its_client_is_gone(
    embedded: wukongs.Engine, short_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "UNASKED_S", 0.1)
    go_on, update = threading.Event(), embedded.update
    monkeypatch.setattr(embedded, "update", lambda *args, **options: (go_on.wait(60), update(*args, **options))[1])
    with served(embedded, silent_s=0.3) as (service_, wire):
        begin(wire, "update", INSERT)
        until(lambda: not service_.session_count)
        go_on.set()
        until(lambda: count(embedded))


def test_a_client_that_is_cut_off_for_a_while_gets_its_answer(
    embedded: wukongs.Engine, killed: list[str], short_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "UNASKED_S", 0.2)
    query, first = embedded.query, [ENDLESS]
    monkeypatch.setattr(embedded, "query", lambda text, **options: query(first.pop() if first else text, **options))

    def cut_off() -> None:
        until(lambda: killed)
        silent()

    with served(embedded) as (_, wire), connected(wire, silence_s=60) as client:
        wire.on_ask = Once(kinds.WAIT, cut_off)
        assert client.query("ASK { ?s ?p ?o }", timeout_s=0)
        assert killed == [ENDLESS]
