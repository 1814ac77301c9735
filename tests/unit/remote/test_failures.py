"""Nodes that stop or start anew, answers that are lost: each call ends in its answer or a named error, done once."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, at, register_text, subjects, windows
from tests.unit.remote.served import Once, Wire, connected, count, served, silent, windows_until
from wukongs.errors import NodeUnavailable, SettingsError
from wukongs.remote import kinds
from wukongs.remote.client import RemoteEngine
from wukongs.wire.packets import Packet

INSERT = "INSERT DATA { <http://ex/a> <http://ex/p> <http://ex/b> }"
LINES = b"".join(b"<http://ex/s%d> <http://ex/p> <http://ex/o%d> .\n" % (n, n % 7) for n in range(2000))


@contextmanager
def two_nodes() -> Iterator[tuple[wukongs.Engine, wukongs.Engine, Wire, Wire]]:
    with wukongs.Engine() as one, wukongs.Engine() as two, served(one) as (_, first), served(two) as (_, second):
        yield one, two, first, second


# --- answers that are lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["asked", "answer"])
def test_an_update_whose_answer_is_lost_is_applied_once(engine: RemoteEngine, wire: Wire, lost: str) -> None:
    """The second INSERT would be one more snapshot, and the DELETE would find what it has itself inserted."""
    engine.update(INSERT)
    text = "DELETE { ?s ?p ?o } INSERT { ?o ?p ?s } WHERE { ?s ?p ?o }"
    hook = Once("update", silent)
    if lost == "asked":
        wire.on_ask = hook
    else:
        wire.on_answer = hook  # type: ignore[assignment]
    assert engine.update(text) == 2
    assert hook.is_done
    assert subjects(engine) == ["b"]  # type: ignore[arg-type]


def test_a_push_whose_answer_is_lost_is_taken_once(engine: RemoteEngine, wire: Wire) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms", select="(COUNT(*) AS ?n)"))
    wire.on_answer = Once("stream.push", silent)  # type: ignore[assignment]
    assert stream.push([at("a", 50), at("b", 60)]) == 2
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["2"]}
    assert engine.stats()["streams"][A]["tuples"] == 2


def test_a_load_whose_parts_are_lost_is_taken_once(
    engine: RemoteEngine, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wukongs.remote.sending.PART_BYTES", 1000)
    turns = iter(range(10**6))
    refused: list[int] = []

    def now_and_then(asked: Packet, answer: Packet) -> Packet | None:
        if asked.kind == kinds.PART and next(turns) % 5 == 3 and len(refused) < 10:
            refused.append(1)
            raise NodeUnavailable("no answer")
        return None

    wire.on_answer = now_and_then
    assert engine.load(io.BytesIO(LINES), format="nt") == 1
    assert len(refused) == 10
    assert count(engine) == 2000
    assert engine.stats()["sn"] == 1


def test_a_window_whose_answer_is_lost_comes_once(engine: RemoteEngine, wire: Wire) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("a", 50), at("b", 150)])
    stream.advance(500)
    engine.settle(timeout_s=60)
    turns = iter(range(10**6))

    def every_other(asked: Packet, answer: Packet) -> Packet | None:
        if asked.kind == kinds.WINDOW and answer.kind == kinds.WINDOW and next(turns) % 2 == 0:
            raise NodeUnavailable("no answer")
        return None

    wire.on_answer = every_other
    assert windows_until(query, 500) == {100: ["a"], 200: ["b"], 300: [], 400: [], 500: []}


# --- nodes that stop --------------------------------------------------------------------------------------------------


def calls() -> dict[str, Callable[[RemoteEngine], object]]:
    return {
        "query": lambda engine: engine.query("ASK {}"),
        "explain": lambda engine: engine.explain("ASK {}"),
        "update": lambda engine: engine.update(INSERT),
        "load": lambda engine: engine.load(io.BytesIO(LINES), format="nt"),
        "graph": lambda engine: engine.graph(),
        "graph_names": lambda engine: engine.graph_names(),
        "dump": lambda engine: engine.dump("nowhere.nt"),
        "stream": lambda engine: engine.stream(A + "2"),
        "push": lambda engine: engine.test_stream.push([at("a", 50)]),  # type: ignore[attr-defined]
        "advance": lambda engine: engine.test_stream.advance(100),  # type: ignore[attr-defined]
        "end": lambda engine: engine.test_stream.close(),  # type: ignore[attr-defined]
        "drop_stream": lambda engine: engine.drop_stream(A),
        "register": lambda engine: engine.register(register_text("RANGE 100ms STEP 100ms", name="other")),
        "results": lambda engine: list(engine.test_query.results(timeout_s=30)),  # type: ignore[attr-defined]
        "stats of a query": lambda engine: engine.test_query.stats(),  # type: ignore[attr-defined]
        "close of a query": lambda engine: engine.test_query.close(),  # type: ignore[attr-defined]
        "settle": lambda engine: engine.settle(),
        "queries": lambda engine: engine.queries(),
        "streams": lambda engine: engine.streams(),
        "stats": lambda engine: engine.stats(),
        "checkpoint": lambda engine: engine.checkpoint(),
        "backup": lambda engine: engine.backup("nowhere"),
        "listen": lambda engine: (engine.stats, engine._connection.call("stats", {})),
    }


@pytest.mark.parametrize("call", calls())
@pytest.mark.parametrize("moment", ["before", "meanwhile"])
def test_a_node_that_dies_ends_every_call_by_name(
    embedded: wukongs.Engine, call: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with served(embedded) as (_, wire), connected(wire, silence_s=0.05) as client:
        client.test_stream = client.stream(A)  # type: ignore[attr-defined]
        client.test_query = client.register(register_text("RANGE 100ms STEP 100ms"))  # type: ignore[attr-defined]

        def die(*_: Packet) -> None:
            wire.is_dead = True
            raise NodeUnavailable("the node has died")

        if moment == "before":
            wire.on_ask = die
        else:
            wire.on_answer = die
        started = time.monotonic()
        with pytest.raises(NodeUnavailable, match=r"no node answers|whether it was done"):
            calls()[call](client)
        assert time.monotonic() - started < 10


def test_no_node_at_all(wire: Wire) -> None:
    wire.is_dead = True
    with pytest.raises(NodeUnavailable, match=r"no node answers: the node does not answer$"):
        connected(wire, silence_s=0.1)
    with pytest.raises(SettingsError, match="expected the address of a node"):
        connected()


def test_threads_that_wait_for_the_same_search_do_not_search_again(wire: Wire) -> None:
    client = connected(wire, silence_s=0.5)
    wire.is_dead = True
    failures: list[Exception] = []

    def ask() -> None:
        try:
            client.stats()
        except NodeUnavailable as error:
            failures.append(error)

    started = time.monotonic()
    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(failures) == 20
    assert time.monotonic() - started < 8  # one after the other would take ten seconds
    wire.is_dead = False
    assert client.stats()["sn"] == 0


def test_a_client_goes_on_with_the_next_node() -> None:
    with two_nodes() as (_, two, first, second):
        two.update(INSERT)
        with connected(first, second, silence_s=0.5) as client:
            assert count(client) == 0
            first.is_dead = True
            assert count(client) == 1
            client.update("CLEAR ALL")
            assert count(two) == 0


def test_an_update_that_may_have_been_applied_is_not_done_again_elsewhere() -> None:
    with two_nodes() as (one, two, first, second), connected(first, second, silence_s=0.5) as client:

        def die(asked: Packet, answer: Packet) -> Packet | None:
            if asked.fields.get("method") == "update":
                first.is_dead = True
                raise NodeUnavailable("gone")
            return None

        first.on_answer = die
        with pytest.raises(NodeUnavailable, match="stopped answering while it did 'update', and whether it was do"):
            client.update(INSERT)
        assert (count(one), count(two)) == (1, 0)
        client.update(INSERT)
        assert count(two) == 1


def test_streams_and_queries_are_named_to_the_next_node() -> None:
    with two_nodes() as (_, two, first, second), connected(first, second, silence_s=0.5) as client:
        stream = client.stream(A, batch_ms=100)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50)])
        stream.advance(200)
        client.settle(60)
        taken = query.results(timeout_s=5)
        assert [next(taken).end_ms, next(taken).end_ms] == [100, 200]
        first.is_dead = True
        assert client.graph_names() == []
        stream.push([at("b", 50), at("c", 250)])  # another engine, where all of it is new
        stream.advance(300)
        client.settle(60)
        # Those up to 200 ms were taken: the client goes on behind them.
        assert windows(query) == {300: ["c"]}
        assert [one.name for one in two.queries()] == ["q"]


def test_a_node_that_begins_anew_is_told_what_it_needs(tmp_path: Path) -> None:
    handlers: dict[str, Any] = {}
    wire = Wire(handlers)
    with wukongs.Engine(tmp_path / "db") as first, served(first) as (service_, _):
        handlers.update(service_.handlers)
        client = connected(wire)
        stream = client.stream(A, batch_ms=100)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50), at("b", 150), at("c", 250)])
        stream.advance(300)
        client.settle(60)
        assert next(query.results(timeout_s=60)).end_ms == 100
    with wukongs.Engine(tmp_path / "db") as again, served(again) as (service_, _), client:
        handlers.update(service_.handlers)
        assert windows_until(query, 300) == {200: ["b"], 300: ["c"]}
        stream.push([at("d", 350)])
        stream.advance(400)
        client.settle(60)
        assert windows(query) == {400: ["d"]}


def test_readers_of_a_group_and_other_clients_go_on_at_a_node_that_begins_anew(tmp_path: Path) -> None:
    handlers: dict[str, Any] = {}
    wire = Wire(handlers)
    with wukongs.Engine(tmp_path / "db") as first, served(first) as (service_, _):
        handlers.update(service_.handlers)
        client, other = connected(wire), connected(wire)
        stream = client.stream(A, batch_ms=100)
        client.register(register_text("RANGE 100ms STEP 100ms"))
        group = client.queries()[0].results(timeout_s=60, group="g")
        (watching,) = other.queries()
        watched = watching.results(timeout_s=60)
        stream.push([at("a", 50), at("b", 150), at("c", 250)])
        stream.advance(300)
        client.settle(60)
        assert [next(group).end_ms, next(group).end_ms] == [100, 200]
        assert [next(watched).end_ms, next(watched).end_ms] == [100, 200]
    with wukongs.Engine(tmp_path / "db") as again, served(again) as (service_, _), client, other:
        handlers.update(service_.handlers)
        assert next(group).end_ms == 300  # the second was not confirmed, and this reader has had it
        assert next(watched).end_ms == 300
        group.close()
        assert windows_until(client.queries()[0], 300) == {100: ["a"], 200: ["b"], 300: ["c"]}
        rest = other.queries()[0].results(timeout_s=60, group="g")
        assert next(rest).end_ms == 300


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_client_that_has_replaced_a_query_names_its_new_text(tmp_path: Path, is_replaced: bool) -> None:
    handlers: dict[str, Any] = {}
    wire = Wire(handlers)
    with wukongs.Engine(tmp_path / "db") as first, served(first) as (service_, _):
        handlers.update(service_.handlers)
        client = connected(wire)
        stream = client.stream(A, batch_ms=100)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        if is_replaced:
            query.replace(register_text("RANGE 200ms STEP 100ms"))
        stream.push([at("a", 50)])
        stream.advance(100)
        client.settle(60)
    with wukongs.Engine(tmp_path / "db") as again, served(again) as (service_, _), client:
        handlers.update(service_.handlers)
        stream.push([at("b", 150)])
        stream.advance(200)
        assert windows_until(query, 200) == {100: ["a"], 200: ["a", "b"] if is_replaced else ["b"]}


def test_a_session_that_was_silent_is_begun_anew(embedded: wukongs.Engine) -> None:
    with served(embedded, silent_s=0.1) as (service_, wire), connected(wire) as client:
        stream = client.stream(A, batch_ms=100)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50), at("b", 150)])
        stream.advance(200)
        assert next(query.results(timeout_s=60)).end_ms == 100
        deadline = time.monotonic() + 60
        while service_.session_count:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        stream.push([at("c", 250)])
        stream.advance(300)
        assert query.why().startswith("q ")
        assert windows_until(query, 300) == {200: ["b"], 300: ["c"]}
        assert len(client.queries()) == len(client.streams()) == 1
        with connected(wire) as other:
            (watching,) = other.queries()
            fill = watching.results(timeout_s=60)
            stream.push([at("d", 350), at("e", 450)])
            stream.advance(500)
            assert next(fill).end_ms == 400
            deadline = time.monotonic() + 60
            while service_.session_count:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert next(fill).end_ms == 500


def test_a_query_that_was_closed_meanwhile_is_not_registered_again(embedded: wukongs.Engine) -> None:
    with served(embedded, silent_s=0.1) as (service_, wire), connected(wire) as client:
        client.stream(A)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        embedded.queries()[0].close()
        deadline = time.monotonic() + 60
        while service_.session_count:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert query.why() == "q is closed"
        assert embedded.queries() == []
        query.close()
        assert list(query.results(timeout_s=5)) == []


def test_numbers_of_a_client_that_does_not_say_which_are_under_way_may_pass_each_other(engine: RemoteEngine) -> None:
    """A client of a version before: its changes count as they come."""
    engine.update(INSERT)
    joined = engine._connection.joined()
    for number in (1007, 1005):
        text = f"INSERT DATA {{ <http://ex/c{number}> <http://ex/p> 1 }}"
        call = {"number": number, "done": 1, "finished": [], "method": "update", "args": {"text": text}}
        answer = engine._connection.ask(joined, kinds.CALL, call)
        assert answer.kind == kinds.ANSWER, answer.fields
    assert count(engine) == 3
