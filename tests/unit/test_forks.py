"""Engines, clients and links in forked children: the child is refused by name, the parent and its folder are unharmed.

Other threads of the parent are in the middle of calls while it is forked, so that their locks are held."""

from __future__ import annotations

import asyncio
import concurrent.futures
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import wukongs
from tests.engine_helpers import A, at, register_text, subjects
from tests.faces import served
from tests.inside import ingest_of
from wukongs.wire.link import IngestLink

CHILD_S = 60
FORKED = "this process was forked from the one that"


def in_child(work: Callable[[], Any]) -> Any:
    """Return what a function returns in a forked child, or the error that it raises."""
    out, into = os.pipe()
    process = os.fork()
    if process == 0:
        signal.alarm(CHILD_S)
        try:
            os.close(out)
            try:
                found = work()
            except Exception as error:
                found = error
            with os.fdopen(into, "wb") as pipe:
                pickle.dump(found, pipe)
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(process, 0)
    assert status == 0, f"the child has ended with {status}"
    return pickle.loads(told)


def refusals(calls: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """Return the calls that a child was not refused, by their names, with what they returned or raised."""

    def called() -> dict[str, str]:
        wrong = {}
        for name, call in calls.items():
            try:
                wrong[name] = f"returned {call()!r:.200}"
            except wukongs.ForkError as error:
                if not str(error).startswith(FORKED):
                    wrong[name] = str(error)
            except BaseException as error:
                wrong[name] = repr(error)
        return wrong

    found = in_child(called)
    assert isinstance(found, dict), found
    return found


@contextmanager
def busy(*works: Callable[[], Any]) -> Iterator[None]:
    """Have threads do something over and over meanwhile."""
    is_over = threading.Event()

    def run(work: Callable[[], Any]) -> None:
        while not is_over.is_set():
            work()

    threads = [threading.Thread(target=run, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def calls_of(engine: Any, stream: Any, query: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    """Return calls of an engine or a client, of a stream and of a registered query."""
    file = folder / "in.nt"
    file.write_text("<a:a> <a:b> <a:c> .\n")
    triples = pyarrow.table({"subject": ["<a:a>"], "predicate": ["<a:b>"], "object": ["<a:c>"]})
    waiting = query.results(timeout_s=5)
    prepared = engine.prepare("SELECT ?s { ?s ?p ?o }")
    return {
        "load": lambda: engine.load(file),
        "update": lambda: engine.update("INSERT DATA { <a:a> <a:b> <a:c> }"),
        "apply": lambda: engine.apply(triples),
        "query": lambda: engine.query("SELECT ?s { ?s ?p ?o }"),
        "query with bindings": lambda: engine.query("SELECT ?s { ?s ?p ?o }", {"s": "<a:a>"}),
        "aquery": lambda: asyncio.run(engine.aquery("SELECT ?s { ?s ?p ?o }")),
        "prepared": lambda: prepared(s="<a:a>") if callable(prepared) else prepared.query({"s": "<a:a>"}),
        "explain": lambda: engine.explain("SELECT ?s { ?s ?p ?o }"),
        "warnings": lambda: engine.warnings("SELECT ?s { ?s ?p ?o }"),
        "graph_names": engine.graph_names,
        "graph": engine.graph,
        "dump": lambda: engine.dump(folder / "out.nq"),
        "stream": lambda: engine.stream("http://ex/more", batch_ms=100),
        "declared": lambda: engine.declared(A).push([at("x", 10**6)]),
        "push": lambda: stream.push([at("x", 10**6)]),
        "push_many": lambda: engine.push_many({A: [at("x", 10**6)]}),
        "advance": lambda: stream.advance(10**6),
        "close of a stream": stream.close,
        "drop_stream": lambda: engine.drop_stream(A),
        "register": lambda: engine.register(register_text("RANGE 100ms STEP 100ms", name="more")),
        "results": lambda: list(query.results(timeout_s=5)),
        "results of before": lambda: list(waiting),
        "results of a group": lambda: list(query.results(timeout_s=5, group="g")),
        "pause": query.pause,
        "resume": query.resume,
        "replace": lambda: query.replace(register_text("RANGE 200ms STEP 100ms")),
        "close of a query": query.close,
        "why": query.why,
        "explain of a query": query.explain,
        "stats of a query": query.stats,
        "add_rules": lambda: engine.add_rules("rdfs"),
        "rules": engine.rules,
        "drop_rules": lambda: engine.drop_rules("r"),
        "listen": engine.listen,
        "settle": engine.settle,
        "queries": engine.queries,
        "running": engine.running,
        "kill": lambda: engine.kill(1),
        "streams": engine.streams,
        "stats": engine.stats,
        "checkpoint": engine.checkpoint,
        "backup": lambda: engine.backup(folder / "backup"),
    }


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_child_is_refused_all_that_an_engine_does(tmp_path: Path, is_durable: bool) -> None:
    folder = tmp_path / "db" if is_durable else None
    with wukongs.Engine(folder) as engine:
        stream = engine.stream(A, timing=True, batch_ms=100)
        stream.advance(0)
        query = engine.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("x", 150)])
        stream.advance(300)
        engine.settle()
        calls = calls_of(engine, stream, query, tmp_path)
        numbers = iter(range(10**9))

        def update() -> None:
            engine.update(f"INSERT DATA {{ <http://ex/n{next(numbers)}> <http://ex/p> 1 }}")

        with busy(
            update, lambda: engine.query("SELECT ?s { ?s ?p ?o }"), lambda: next(query.results(timeout_s=0.01), 0)
        ):
            for _ in range(3):
                assert refusals(calls) == {}
                assert in_child(engine.close) is None
                assert in_child(lambda: repr(engine)) == "<Engine of another process>"
        count = len(subjects(engine))
        assert count > 0
    if folder is not None:
        with wukongs.Engine(folder) as opened:
            assert len(subjects(opened)) == count
            assert opened.declared(A).push([at("y", 350)]) == 1


def test_a_child_that_lives_on_does_not_keep_the_folder(tmp_path: Path) -> None:
    engine = wukongs.Engine(tmp_path / "db")
    engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    process = os.fork()
    if process == 0:
        time.sleep(CHILD_S)
        os._exit(0)
    try:
        assert isinstance(in_child(lambda: wukongs.Engine(tmp_path / "db")), wukongs.StorageError), "it is in use"
        engine.close()
        with wukongs.Engine(tmp_path / "db") as again:
            assert subjects(again) == ["a"]
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def test_a_child_may_have_an_engine_of_its_own(tmp_path: Path) -> None:
    def own() -> list[str]:
        with wukongs.Engine(tmp_path / "own") as other:
            other.update("INSERT DATA { <http://ex/b> <http://ex/p> 1 }")
            return subjects(other)

    with wukongs.Engine(tmp_path / "db") as engine:
        engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
        assert in_child(own) == ["b"]
        assert subjects(engine) == ["a"]


def test_a_child_is_refused_all_that_a_client_does(tmp_path: Path) -> None:
    with (
        wukongs.Engine() as engine,
        served(engine, engine.settings, ingest_of(engine)) as address,
        wukongs.connect(address) as client,
    ):
        stream = client.stream(A, timing=True, batch_ms=100)
        stream.advance(0)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        calls = calls_of(client, stream, query, tmp_path)
        with busy(lambda: client.query("SELECT ?s { ?s ?p ?o }"), lambda: next(query.results(timeout_s=0.01), 0)):
            assert refusals(calls) == {}
            assert in_child(client.close) is None
            assert in_child(lambda: len(wukongs.connect(address).query("SELECT ?s { ?s ?p ?o }"))) == 0
        client.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
        assert subjects(engine) == ["a"]


def test_a_child_is_refused_the_link_of_its_parent() -> None:
    with wukongs.Engine() as engine:
        engine.stream(A, timing=True, batch_ms=100)
        with IngestLink(engine.listen().split(",")) as link:
            link.open(A, "0", 1)
            assert refusals({"open": lambda: link.open(A, "0", 2)}) == {}
            assert link.open(A, "0", 3).resume_offset == 0


engine_of_parent: wukongs.Engine | None = None


def _asked(_: int) -> str:
    try:
        assert engine_of_parent is not None
        return str(len(subjects(engine_of_parent)))
    except Exception as error:
        return type(error).__name__


def test_workers_that_are_forked_before_they_are_used() -> None:
    """As servers do that load an application once, and fork their workers then."""
    global engine_of_parent
    with wukongs.Engine() as engine:
        engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
        engine_of_parent = engine
        try:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert set(pool.map(_asked, range(4))) == {"ForkError"}
        finally:
            engine_of_parent = None
        assert subjects(engine) == ["a"]


def _own(folder: str) -> list[str]:
    with wukongs.Engine(folder) as engine:
        engine.update("INSERT DATA { <http://ex/b> <http://ex/p> 1 }")
        return subjects(engine)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_processes_with_engines_of_their_own(tmp_path: Path, method: str) -> None:
    with wukongs.Engine(tmp_path / "db") as engine:
        context = multiprocessing.get_context(method)
        with concurrent.futures.ProcessPoolExecutor(2, context) as pool:
            assert list(pool.map(_own, [str(tmp_path / "one"), str(tmp_path / "two")])) == [["b"], ["b"]]
        engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
        assert subjects(engine) == ["a"]
