"""wukongs.connect over real sockets, to an engine in this process and to one in another that is killed."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import wukongs
from tests.engine_helpers import A, at, register_text, rows, windows
from tests.inside import core_of, ingest_of
from wukongs.errors import NodeUnavailable, SettingsError
from wukongs.remote.service import Service
from wukongs.wire.client_socket import ClientSocket


@contextmanager
def listening(engine: wukongs.Engine, address: str = "tcp://127.0.0.1:0") -> Iterator[str]:
    """Serve an engine at an address."""
    service = Service(engine, core_of(engine).settings)
    socket = ClientSocket(address, service.handlers, ingest_of(engine), quick=service.quick)
    try:
        yield socket.address
    finally:
        service.close()
        socket.close()


def test_a_whole_story(embedded: wukongs.Engine) -> None:
    with listening(embedded) as address, wukongs.connect(address) as client:
        assert client.update("INSERT DATA { <http://ex/a> <http://ex/p> 'a text that is not inlined', 5 }") == 1
        assert client.load(io.BytesIO(b"<http://ex/b> <http://ex/p> <http://ex/c> .\n" * 3), format="nt") == 2
        result = client.query("SELECT ?s ?o { ?s ?p ?o }")
        assert rows(result) == [("a", "5"), ("a", "a text that is not inlined"), ("b", "c")]
        assert rows(result) == rows(embedded.query("SELECT ?s ?o { ?s ?p ?o }"))
        stream = client.stream(A, batch_ms=100)
        seen: list[int] = []
        client.register(register_text("RANGE 100ms STEP 100ms", name="told"), on_result=lambda w: seen.append(w.end_ms))
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50), at("b", 150)])
        stream.advance(300)
        client.settle(timeout_s=60)
        assert windows(query) == {100: ["a"], 200: ["b"], 300: []}
        assert seen == [100, 200, 300]
        assert client.listen() == address
        with pytest.raises(wukongs.QuerySyntaxError) as caught:
            client.query("SELECT ?s\nWHERE { ?s ?p }")
        assert (caught.value.line, caught.value.column) == (2, 15)
        assert "'}'" in caught.value.found


def test_large_results_come_in_chunks(embedded: wukongs.Engine) -> None:
    line = b'<http://ex/s%d> <http://ex/p> "%s%d" .\n'
    lines = b"".join(line % (n, b"long" * (n % 50), n % 1000) for n in range(50_000))
    embedded.load(io.BytesIO(lines), format="nt")
    with listening(embedded) as address, wukongs.connect(address) as client:
        text = "SELECT * { ?s ?p ?o }"
        assert client.query(text).texts() == embedded.query(text).texts()


def test_clients_of_many_threads(embedded: wukongs.Engine) -> None:
    embedded.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    with listening(embedded) as address, wukongs.connect(address) as client:
        failures: list[BaseException] = []

        def ask() -> None:
            try:
                for _ in range(20):
                    assert len(client.query("SELECT * { ?s ?p ?o }")) == 1
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []


@pytest.mark.slow
def test_a_node_that_stops_and_one_that_is_there(embedded: wukongs.Engine) -> None:
    with wukongs.Engine() as other, listening(other) as there:
        with listening(embedded) as address:
            client = wukongs.connect(f"{address}, {there}", silence_s=8.0)
            client.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
        assert not client.query("ASK { ?s ?p ?o }")
        client.close()
    with pytest.raises(NodeUnavailable, match="no node answers"):
        wukongs.connect([address, there], silence_s=0.3)


def test_an_address_that_is_none() -> None:
    with pytest.raises(SettingsError, match="expected the form tcp://127"):
        wukongs.connect("localhost")
    with pytest.raises(SettingsError, match="expected the address of a node"):
        wukongs.connect("")
