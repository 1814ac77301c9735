"""An engine that is served over HTTP, empty or with some graphs, and a client that sends raw requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import wukongs
from tests.unit.server.asking import Client
from wukongs.server.http_server import HttpServer, HttpSettings

FILLED = """PREFIX : <http://ex/> INSERT DATA {
  :d :in :default .
  GRAPH :g1 { :a :in :one }
  GRAPH :g2 { :b :in :two }
  GRAPH :g3 { :c :in :three }
}"""


@pytest.fixture(scope="session")
def aside() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Do something while the next tests run: the end of a server takes longer than most of them."""
    with ThreadPoolExecutor(8) as pool:
        under_way: list[Future[None]] = []
        yield lambda work: under_way.append(pool.submit(work))
        for one in under_way:
            one.result()


@pytest.fixture
def later(aside: Callable[[Callable[[], None]], None]) -> Iterator[ExitStack]:
    """A stack of what is closed when the test is over."""
    stack = ExitStack()
    yield stack
    aside(stack.close)


@pytest.fixture
def engine(later: ExitStack) -> wukongs.Engine:
    return later.enter_context(wukongs.Engine())


@pytest.fixture
def client(engine: wukongs.Engine, later: ExitStack) -> Client:
    server = HttpServer(engine, HttpSettings(port=0))
    later.callback(server.close)
    return Client(server.address)


@pytest.fixture
def filled(client: Client, engine: wukongs.Engine) -> Client:
    """A client of a server with one triple in the default graph and one in each of three named graphs."""
    engine.update(FILLED)
    return client
