"""Nodes that are slow or have too much to do, and clients that do not wait to the end."""

from __future__ import annotations

import io
import threading
import time
from typing import Any

import pytest

import wukongs
from tests.unit.remote.served import Once, Wire, connected, count, served
from wukongs.errors import NodeUnavailable, QueryTimeout
from wukongs.remote import connection, kinds, service
from wukongs.remote.client import RemoteEngine
from wukongs.store.encoded import MalformedLine
from wukongs.wire.packets import Packet

INSERT = "INSERT DATA { <http://ex/a> <http://ex/p> <http://ex/b> }"
LINES = b"".join(b"<http://ex/s%d> <http://ex/p> <http://ex/o%d> .\n" % (n, n % 7) for n in range(2000))


@pytest.fixture
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connection, service, kinds):
        monkeypatch.setattr(module, "POLL_S", 0.05)


def test_a_call_may_last_longer_than_a_silence(
    embedded: wukongs.Engine, short_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = embedded.update

    def slowly(*args: Any, **options: Any) -> int:
        time.sleep(0.5)
        return update(*args, **options)

    monkeypatch.setattr(embedded, "update", slowly)
    with served(embedded) as (_, wire), connected(wire, silence_s=0.2) as client:
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
    with served(embedded) as (_, wire), connected(wire, silence_s=0.3) as client:
        busy = iter([True, True])
        wire.on_ask = lambda packet: Packet(kinds.BUSY) if next(busy, False) else None
        assert client.update(INSERT) == 1
        wire.on_ask = lambda packet: Packet(kinds.BUSY)
        with pytest.raises(NodeUnavailable, match=r"the node has had too much to do for 0\.3 s"):
            client.update(INSERT)


def test_too_many_calls_of_one_client_are_put_off(
    embedded: wukongs.Engine, short_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wukongs.remote.sessions.CALLS_MAX", 2)
    with served(embedded) as (_, wire), connected(wire) as client:
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
