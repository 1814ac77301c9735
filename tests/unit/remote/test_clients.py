"""Several clients of one node, one after the other and at the same time; connections that end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

import wukongs
from tests.engine_helpers import A, B, at, register_text, windows
from tests.unit.remote.served import Wire, connected, served, windows_until
from wukongs.errors import GapError, NodeUnavailable, SettingsError, StreamError, WukongsError
from wukongs.live.stream import Stream
from wukongs.remote import kinds
from wukongs.remote.watching import watched


def test_two_clients_share_streams_and_queries(embedded: wukongs.Engine) -> None:
    with served(embedded) as (_, wire), connected(wire) as one, connected(wire) as two:
        stream, same = one.stream(A, batch_ms=100), two.stream(A, batch_ms=100)
        with pytest.raises(StreamError, match="declared already"):
            two.stream(A, batch_ms=100)
        with pytest.raises(StreamError, match="declared already"):
            two.stream(A, batch_ms=200)
        text = register_text("RANGE 100ms STEP 100ms")
        first = one.register(text)
        with pytest.raises(StreamError, match="registered already"):
            one.register(text)
        second = two.register(text)
        assert (first.readers, second.readers, first.stats()["readers"]) == (1, 2, 2)
        assert first.warnings()[-1].startswith("2 clients have registered this query, and each gets every window")
        stream.push([at("a", 50)])
        same.push([at("b", 150)])
        two.settle(60) if stream.advance(200) is None else None
        with connected(wire) as three:
            expected = {100: ["a"], 200: ["b"]}
            assert windows(three.queries()[0]) == windows(first) == windows(second) == expected


def test_a_push_to_several_streams_is_one_request(embedded: wukongs.Engine) -> None:
    with served(embedded) as (_, wire), connected(wire) as client:
        client.stream(A, batch_ms=100)
        client.stream(B, batch_ms=100)
        asked = wire.asked.count(kinds.CALL)
        assert client.push_many({A: [at("a", 50)], B: None}, advance_ms=100) == {A: 1, B: 0}
        assert wire.asked.count(kinds.CALL) == asked + 1
        assert [one["closed_ms"] for one in embedded.stats()["streams"].values()] == [100, 100]


@dataclass
class Node:
    """wukongs.remote.calls.InCluster of a cluster with one stream."""

    stream: Stream
    ingest_addresses: Sequence[str] = ()

    def declared(self, name: str) -> Stream:
        assert name == self.stream.iri
        return self.stream

    @staticmethod
    def home_of(name: str, source: object, wait_s: float) -> None:
        """It runs all queries."""


def test_streams_and_queries_of_another_node_are_found(embedded: wukongs.Engine) -> None:
    """The engine knows streams and queries that were declared elsewhere, as in a cluster; this service does not."""
    declared = embedded.stream(A, timing=["http://ex/p"], batch_ms=100)
    text = register_text("RANGE 100ms STEP 100ms")
    embedded.register(text)
    with served(embedded, node=Node(declared)) as (_, wire), connected(wire) as client:
        with pytest.raises(StreamError, match="declared already"):
            client.stream(A, batch_ms=100)
        stream = client.stream(A, batch_ms=100, timing=["<http://ex/p>"])
        with pytest.raises(StreamError, match="declared already"):
            client.stream(A, batch_ms=100, timing=["<http://ex/p>"])
        assert client.register(text).readers == 1, "nobody has read it so far"
        again, _ = client._connection.call("register", {"text": text, "is_again": True, "life": "elsewhere"})
        assert again.fields["value"]["name"] == "q"
        stream.push([at("a", 50)])
        stream.advance(100)
        client.settle(60)
        assert windows(client.queries()[0]) == {100: ["a"]}


def test_a_query_goes_on_for_who_registers_the_same_text_later(embedded: wukongs.Engine) -> None:
    text = register_text("RANGE 100ms STEP 100ms")
    with served(embedded) as (_, wire):
        with connected(wire) as one:
            stream = one.stream(A, batch_ms=100)
            query = one.register(text)
            stream.push([at("a", 50), at("b", 150)])
            stream.advance(200)
            one.settle(60)
            assert next(query.results(timeout_s=60)).end_ms == 100  # never confirmed
        with connected(wire) as two:
            assert two.streams() == [A]
            with pytest.raises(StreamError, match="registered already"):
                two.register(register_text("RANGE 200ms STEP 100ms"))
            assert windows(two.register(text)) == {100: ["a"], 200: ["b"]}


def told(client: wukongs.RemoteEngine, ms: int, name: str) -> None:
    """Push a tuple into the stream batch before a time, and close that."""
    client.declared(A).push([at(name, ms - 50)])
    client.declared(A).advance(ms)
    client.settle(60)


def test_clients_that_have_registered_a_query_all_go_on_when_one_leaves_or_returns(embedded: wukongs.Engine) -> None:
    """Each gets what no other one has confirmed to its node by then, and all that is behind it."""
    text = register_text("RANGE 100ms STEP 100ms")
    with served(embedded) as (service, wire), connected(wire) as one, connected(wire) as two:
        one.stream(A, batch_ms=100)
        first = one.register(text)
        told(one, 100, "a")
        told(one, 200, "b")
        reading = first.results(timeout_s=60)
        assert next(reading).end_ms == 100
        second = two.register(text)
        told(one, 300, "c")
        assert windows(second) == {100: ["a"], 200: ["b"], 300: ["c"]}, "the first one may have crashed"
        assert [next(reading).end_ms for _ in range(2)] == [200, 300], "and it may have not"
        told(two, 400, "d")
        (session,) = (held for held in service._sessions.values() if held.client == one._connection._client)
        service._end(session)
        assert next(reading).end_ms == 400, "its session is another one by now"
        assert windows(second) == {400: ["d"]}, "and it has taken nothing of the second one"
        two.close()
        told(one, 500, "e")
        assert next(reading).end_ms == 500
        with connected(wire) as three:
            third = three.register(text)
            assert windows(third) == {500: ["e"]}, "which nobody has read by the query's own cursor"
            told(one, 600, "f")
            assert windows(third) == {600: ["f"]}
        assert next(reading).end_ms == 600


def test_clients_that_have_registered_a_query_all_go_on_when_its_node_begins_anew(tmp_path: Path) -> None:
    text = register_text("RANGE 100ms STEP 100ms")
    with ExitStack() as stack:
        before = stack.enter_context(wukongs.Engine(tmp_path))
        wire = Wire(stack.enter_context(served(before))[0].handlers)
        clients = [stack.enter_context(connected(wire)) for _ in range(3)]
        clients[0].stream(A, batch_ms=100)
        queries = [client.register(text) for client in clients[:2]]
        told(clients[2], 100, "a")
        assert [windows(query) for query in queries] == [{100: ["a"]}] * 2
        before.close()
        after = stack.enter_context(wukongs.Engine(tmp_path))
        wire.handlers = stack.enter_context(served(after))[0].handlers
        told(clients[2], 200, "b")
        assert windows_until(queries[0], 200) == {200: ["b"]}
        with pytest.raises(GapError, match="1 windows, those ending from 200 to 200 ms, are lost"):  # all had read it
            windows_until(queries[1], 200)
        told(clients[2], 300, "c")
        assert [windows(query) for query in queries] == [{300: ["c"]}] * 2


def test_a_client_that_crashed_leaves_no_cursor(embedded: wukongs.Engine) -> None:
    text = register_text("RANGE 100ms STEP 100ms")
    with served(embedded, silent_s=0.2) as (service, wire), connected(wire) as stays:
        stays.stream(A, batch_ms=100)
        crashed = connected(wire)
        query = crashed.register(text)
        told(stays, 100, "a")
        assert next(query.results(timeout_s=60)).end_ms == 100
        back = stays.register(text)
        log = embedded.queries()[0].log
        assert len(log._cursors) == 2
        deadline = time.monotonic() + 60
        while service.session_count > 1 or len(log._cursors) > 1:
            assert stays.streams() == [A]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert windows(back) == {100: ["a"]}
        assert log.count_held == 0
        assert back.stats()["readers"] == 1


def test_each_client_gets_every_window(embedded: wukongs.Engine) -> None:
    with served(embedded) as (_, wire), connected(wire) as stays:
        stream = stays.stream(A, batch_ms=100)
        query = stays.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50)])
        stream.advance(100)
        stays.settle(60)
        with connected(wire) as leaves:
            assert next(leaves.queries()[0].results(timeout_s=60)).end_ms == 100
            with connected(wire) as other:
                assert windows(other.queries()[0]) == {100: ["a"]}
        assert windows_until(query, 100) == {100: ["a"]}


def test_one_thread_serves_all_queries_with_on_result(embedded: wukongs.Engine) -> None:
    before = set(threading.enumerate())
    with served(embedded) as (_, wire), connected(wire) as client:
        stream = client.stream(A, batch_ms=100)
        seen: dict[str, list[int]] = {}

        def note(window: wukongs.WindowResult) -> None:
            seen.setdefault(window.query, []).append(window.end_ms)
            if window.query == "q3":
                raise LookupError("a mistake of the user")

        queries = [
            client.register(register_text("RANGE 100ms STEP 100ms", name=f"q{n}"), on_result=note) for n in range(40)
        ]
        assert [one.name for one in set(threading.enumerate()) - before].count("wukongs-listener") == 1
        stream.advance(100)  # the first window ends at the first advance
        stream.advance(500)
        client.settle(60)
        assert seen == {f"q{n}": [100, 200, 300, 400, 500] for n in range(40)}
        queries[0].close()
        stream.advance(600)
        client.settle(60)
        assert (len(seen["q0"]), len(seen["q1"])) == (5, 6)
        assert list(queries[1].results(timeout_s=0)) == []


def test_a_slow_on_result_holds_up_its_own_query_only(embedded: wukongs.Engine) -> None:
    with served(embedded) as (_, wire), connected(wire) as client:
        stream = client.stream(A, batch_ms=100)
        going_on, quick_is_done = threading.Event(), threading.Event()
        seen: list[int] = []

        def slow(window: wukongs.WindowResult) -> None:
            going_on.wait(60)
            seen.append(window.end_ms)

        def quick(window: wukongs.WindowResult) -> None:
            if window.end_ms == 500:
                quick_is_done.set()

        client.register(register_text("RANGE 100ms STEP 100ms", name="slow"), on_result=slow)
        client.register(register_text("RANGE 100ms STEP 100ms", name="quick"), on_result=quick)
        stream.advance(100)
        stream.advance(500)
        try:
            assert quick_is_done.wait(30)
            assert seen == []
            with pytest.raises(wukongs.StreamError, match="not settled"):
                client.settle(timeout_s=0.3)
        finally:
            going_on.set()
        client.settle(60)
        assert seen == [100, 200, 300, 400, 500]


def test_one_who_takes_long_for_a_window_is_not_taken_for_a_silence(embedded: wukongs.Engine) -> None:
    with served(embedded) as (_, wire), connected(wire) as client:
        stream = client.stream(A, batch_ms=100)
        client.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50)])
        stream.advance(300)
        client.settle(60)
        ends = list[int]()
        for item in watched(client.queries(), timeout_s=0.2):  # type: ignore[arg-type]
            if isinstance(item, wukongs.WindowResult):
                ends.append(item.end_ms)
                time.sleep(0.3)
        assert ends == [100, 200, 300]


def test_an_error_in_the_place_of_a_window_waits_beside_on_result(embedded: wukongs.Engine) -> None:
    with served(embedded) as (_, wire), connected(wire) as client:
        stream = client.stream(A, batch_ms=100)
        seen: list[int] = []
        query = client.register(register_text("RANGE 100ms STEP 100ms"), on_result=lambda w: seen.append(w.end_ms))
        (there,) = embedded.queries()
        there.log.put(50, wukongs.BudgetExceeded("too much"))
        stream.advance(100)
        client.settle(60)
        assert seen == [100]
        with pytest.raises(wukongs.BudgetExceeded, match="too much"):
            next(query.results(timeout_s=60))


def test_a_client_is_not_called_inline(embedded: wukongs.Engine) -> None:
    text = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
    with served(embedded) as (_, wire), connected(wire) as client:
        with pytest.raises(SettingsError, match="inline: the thread that fires is in the process of the engine"):
            client.register(text, print, inline=True)
        assert not client.queries()


def test_where_pipelines_find_the_nodes(embedded: wukongs.Engine) -> None:
    with served(embedded) as (_, wire), connected(wire) as client:
        assert client.listen() == "tcp://127.0.0.1:0"
    node = Node(embedded.stream(A), ("tcp://a:1", "tcp://b:2"))
    with served(embedded, node=node) as (_, wire), connected(wire) as client:
        assert client.listen() == "tcp://a:1,tcp://b:2"
        with pytest.raises(SettingsError, match="a node opens its sockets as its own file says"):
            client.listen("tcp://127.0.0.1:0")


def test_a_closed_connection_refuses_all_work(wire: Wire) -> None:
    client = connected(wire)
    stream = client.stream(A)
    query = client.register(register_text("RANGE 100ms STEP 100ms"))
    client.close()
    client.close()
    stream.close()
    query.close()
    assert list(query.results()) == []
    for work in (lambda: client.query("ASK {}"), lambda: stream.push([at("a", 50)]), client.stats, query.why):
        with pytest.raises(WukongsError, match=r"this connection is closed: make a new one with wukongs\.connect"):
            work()


def test_readers_end_with_their_connection(embedded: wukongs.Engine) -> None:
    with served(embedded) as (_, wire):
        client = connected(wire)
        stream = client.stream(A, batch_ms=100)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50)])
        stream.advance(100)
        of_group = query.results(group="g")
        assert next(of_group).end_ms == 100
        client.close()
        assert list(of_group) == []
        assert list(query.results()) == []


def test_a_node_that_closes_ends_its_clients(embedded: wukongs.Engine) -> None:
    with served(embedded) as (_, wire):
        client = connected(wire, silence_s=0.2)
        embedded.stream(A)
    with pytest.raises(NodeUnavailable, match="this node stops"):
        client.stats()
    client.close()


def test_a_window_of_a_reader_that_is_cancelled_is_kept_for_the_next(embedded: wukongs.Engine) -> None:
    with served(embedded) as (_, wire), connected(wire) as client:
        stream = client.stream(A, batch_ms=100)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        asked = threading.Event()
        wire.on_ask = lambda packet: asked.set() if packet.kind == kinds.WINDOW else None

        async def read() -> None:
            async for _ in query.aresults():
                raise AssertionError

        async def cancelled() -> None:
            reading = asyncio.create_task(read())
            while not asked.is_set():
                await asyncio.sleep(0.01)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            # The request is still under way, in a thread: it takes the window.
            stream.push([at("a", 50)])
            stream.advance(100)
            client.settle(60)

        asyncio.run(cancelled())
        assert windows_until(query, 100) == {100: ["a"]}

        async def all_of() -> list[int]:
            return [window.end_ms async for window in query.aresults(timeout_s=0.5)]

        stream.advance(300)
        client.settle(60)
        assert asyncio.run(all_of()) == [200, 300]
