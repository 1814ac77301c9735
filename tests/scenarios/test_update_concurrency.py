"""Updates beside streams, firings, loads, queries and other updates."""

from __future__ import annotations

import errno
import io
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import wukongs
from tests.engine_helpers import A, B, at, register_text, rows, subjects, windows
from tests.faces import Face

PREFIX = "PREFIX : <http://ex/> "
TIMEOUT_S = 60


def update(engine: wukongs.Engine, text: str) -> int:
    return engine.update(PREFIX + text)


def load(engine: wukongs.Engine, *lines: str) -> int:
    text = "".join(f"{line} .\n" for line in lines).replace(":", "http://ex/")
    return engine.load(io.BytesIO(text.encode()), format="nt")


READING_S = 0.02
"""A line is written to a pipe as often as that: by then a reader with un-jitted kernels has read the one before."""


@contextmanager
def under_way(engine: wukongs.Engine, text: str, folder: Path) -> Iterator[None]:
    """Run an update that has read its snapshot when the block begins, and stores its change after the block: it also
    LOADs a file, into the graph :late, which is a pipe that nobody writes before."""
    pipe, errors = folder / "late.nt", list[BaseException]()
    os.mkfifo(pipe)

    def run() -> None:
        try:
            update(engine, f"{text} ; LOAD <{pipe.as_uri()}> INTO GRAPH :late")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    writer = opened(pipe, thread)
    try:
        yield
    finally:
        while writer is not None:  # a cluster evaluates an update again if another change came first
            with suppress(BrokenPipeError):  # its last reader may end in between
                os.write(writer, b"<http://ex/late> <http://ex/p> <http://ex/o> .\n")
            os.close(writer)
            time.sleep(READING_S)  # the reader finds the end in it, or would be given more for ever
            writer = opened(pipe, thread)
        thread.join(TIMEOUT_S)
    assert not errors, errors


def opened(pipe: Path, reader: threading.Thread) -> int | None:
    """Open a pipe for writing once somebody reads it; None if the reader ends."""
    while reader.is_alive():
        try:
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(writer, True)
            return writer
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            time.sleep(0.001)
    return None


# --- other updates ----------------------------------------------------------------------------------------------------


def test_updates_are_serial(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { :counter :is 0 }")
    text = "DELETE { :counter :is ?n } INSERT { :counter :is ?m } WHERE { :counter :is ?n BIND (?n + 1 AS ?m) }"
    threads = [threading.Thread(target=lambda: [update(engine, text) for _ in range(15)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert rows(engine.query("SELECT ?o { ?s ?p ?o }")) == [("60",)]
    assert engine.stats()["sn"] == 61


def test_queries_go_on_while_an_update_is_under_way(engine: wukongs.Engine, tmp_path: Path) -> None:
    update(engine, "INSERT DATA { :a :p 1 }")
    with under_way(engine, "INSERT DATA { :b :p 2 }", tmp_path):
        assert subjects(engine) == ["a"]
    assert subjects(engine) == ["a", "b"]


def test_an_update_under_way_keeps_its_snapshot_readable(engine: wukongs.Engine, tmp_path: Path) -> None:
    first = load(engine, "<:a> <:p> <:o>")
    with under_way(engine, "DELETE WHERE { ?s :p :o }", tmp_path):
        load(engine, "<:b> <:p> <:o>")
        last = load(engine, "<:c> <:p> <:o>")
        assert rows(engine.query("SELECT ?s { ?s ?p ?o }", at=first)) == [("a",)]
        assert rows(engine.query("SELECT ?s { ?s ?p ?o }", at=last)) == [("a",), ("b",), ("c",)]


# --- what is stored meanwhile -----------------------------------------------------------------------------------------

REQUESTS = [
    ("DELETE DATA { :new :p :o . :old :p :o }", ["new", "other"]),
    ("DELETE WHERE { ?s :p :o }", ["new", "other"]),
    ("CLEAR DEFAULT", ["new", "other"]),
    ("DROP DEFAULT", ["new", "other"]),
    ("CLEAR ALL ; INSERT DATA { :new :p :o }", ["new", "other"]),
    ("INSERT DATA { :new :p :o }", ["new", "old", "other"]),
    ("MOVE DEFAULT TO :g", ["new", "other"]),  # or they would be in neither graph
    ("DELETE { ?s :p :o } INSERT { ?s :p :o } WHERE { ?s :p :o }", ["new", "old", "other"]),
]


def check_what_streams_bring(engine: wukongs.Engine, text: str, left: list[str], folder: Path) -> None:
    load(engine, "<:old> <:p> <:o>")
    stream = engine.stream(A, batch_ms=100)
    with under_way(engine, text, folder):
        stream.push([at("new", 50), at("other", 60), at("old", 70)])
        stream.advance(100)
        engine.settle(timeout_s=TIMEOUT_S)
        assert subjects(engine) == ["new", "old", "other"]
    assert subjects(engine) == left
    stored = rows(engine.query("SELECT ?s { GRAPH ?g { ?s ?p ?o } }"))
    assert stored == ([("late",), ("old",)] if "MOVE" in text else [("late",)])


@pytest.mark.parametrize(("text", "left"), REQUESTS)
def test_what_a_stream_brings_while_an_update_is_under_way_stays(
    engine: wukongs.Engine, tmp_path: Path, text: str, left: list[str]
) -> None:
    """An update deletes what its snapshot held; what has come since stays. So do CLEAR, DROP and MOVE, or a MOVE would
    lose some (decisions 0012 and 0027)."""
    check_what_streams_bring(engine, text, left, tmp_path)


def signed(*rows: tuple[str, str, int]) -> pa.Table:
    """(sign, name, time) of tuples <name> <p> <o>."""
    signs, names, times = map(list, zip(*rows, strict=True))
    alike = {"predicate": ["<http://ex/p>"] * len(rows), "object": ["<http://ex/o>"] * len(rows)}
    return pa.table({"subject": [f"<http://ex/{name}>" for name in names], **alike, "timestamp_ms": times, "op": signs})


RETRACTED_MEANWHILE = [
    ("DELETE DATA { :gone :p :o }", ["back", "kept"]),
    ("INSERT DATA { :gone :p :o }", ["back", "gone", "kept"]),
    ("DELETE { ?s :p :o } INSERT { ?s :p :o } WHERE { ?s :p :o FILTER(?s != :kept) }", ["back", "gone", "kept"]),
    ("CLEAR DEFAULT", ["new"]),
    ("CLEAR DEFAULT ; INSERT DATA { :gone :p :o }", ["gone", "new"]),
]


@pytest.mark.parametrize(("text", "left"), RETRACTED_MEANWHILE)
def test_what_a_stream_retracts_while_an_update_is_under_way(
    engine: wukongs.Engine, tmp_path: Path, text: str, left: list[str]
) -> None:
    """The update inserts triples that its snapshot held; it cannot delete what is gone."""
    check_retractions(engine, text, left, tmp_path)


def check_retractions(engine: wukongs.Engine, text: str, left: list[str], folder: Path) -> None:
    load(engine, "<:gone> <:p> <:o>", "<:back> <:p> <:o>", "<:kept> <:p> <:o>")
    stream = engine.stream(A, batch_ms=100)
    with under_way(engine, text, folder):
        stream.push_arrow(signed(("-", "gone", 50), ("-", "back", 50)))
        stream.advance(100)
        stream.push_arrow(signed(("+", "back", 150), ("+", "new", 150)))
        stream.advance(200)
        engine.settle(timeout_s=TIMEOUT_S)
        assert subjects(engine) == ["back", "kept", "new"]
    assert subjects(engine) == sorted({*left, "new"})


@pytest.mark.faces("durable")
@pytest.mark.parametrize(("text", "left"), RETRACTED_MEANWHILE)
def test_what_was_retracted_while_an_update_was_under_way_is_replayed(
    face: Face, tmp_path: Path, text: str, left: list[str]
) -> None:
    engine = face.open()
    check_retractions(engine, text, left, tmp_path)
    shutil.copytree(face.folder / "data1", tmp_path / "crashed")
    with wukongs.Engine(tmp_path / "crashed") as again:
        assert subjects(again) == sorted({*left, "new"})


@pytest.mark.parametrize(("text", "left"), REQUESTS)
def test_what_is_loaded_while_an_update_is_under_way_stays(
    engine: wukongs.Engine, tmp_path: Path, text: str, left: list[str]
) -> None:
    load(engine, "<:old> <:p> <:o>")
    with under_way(engine, text, tmp_path):
        load(engine, "<:new> <:p> <:o>", "<:other> <:p> <:o>")
    assert subjects(engine) == left


@pytest.mark.faces("embedded", "durable", "connect")  # in a cluster only once all nodes have told it: see settle()
def test_an_update_sees_what_was_closed_before_it(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    for number in range(1, 30):
        stream.push([at(f"s{number}", 100 * number)])
        stream.advance(100 * number)
        update(engine, "DELETE WHERE { ?s :p :o }")
        assert subjects(engine) == []


def test_a_deleted_triple_comes_again_with_the_stream(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 200ms STEP 100ms"))
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=TIMEOUT_S)
    update(engine, "DELETE WHERE { ?s ?p ?o }")
    stream.push([at("b", 150)])
    stream.advance(200)
    engine.settle(timeout_s=TIMEOUT_S)
    assert windows(query)[200] == ["a", "b"]  # windows are not touched
    assert subjects(engine) == ["b"]
    stream.push([at("a", 250)])
    stream.advance(300)
    engine.settle(timeout_s=TIMEOUT_S)
    assert subjects(engine) == ["a", "b"]


def test_what_streams_join_is_read_with_its_graph(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100, into="http://ex/g")
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=TIMEOUT_S)
    update(engine, "WITH :g DELETE { ?s ?p ?o } INSERT { ?s :q ?o } WHERE { ?s ?p ?o }")
    assert rows(engine.query("SELECT ?g ?s ?p { GRAPH ?g { ?s ?p ?o } }")) == [("g", "a", "q")]


# --- firings ----------------------------------------------------------------------------------------------------------

STORED = (
    f"REGISTER QUERY q AS SELECT ?x FROM <urn:x-wukongs:default> FROM NAMED STREAM <{A}> [RANGE 100ms STEP 100ms] "
    f"WHERE {{ GRAPH <{A}> {{ ?s <http://ex/seen> ?o }} ?s <http://ex/is> ?x }}"
)


def test_a_firing_reads_the_snapshot_of_its_time(engine: wukongs.Engine) -> None:
    """An update after t is seen by the next firing, not by the one at t, however late that fires; as loads are."""
    a, b = (engine.stream(name, batch_ms=100, timing=True) for name in (A, B))
    query = engine.register(STORED)
    update(engine, "INSERT DATA { :a :is :before }")
    a.push([at("a", 100, "seen")])
    a.advance(100)
    b.advance(100)
    engine.settle(timeout_s=TIMEOUT_S)
    update(engine, "DELETE DATA { :a :is :before } ; INSERT DATA { :a :is :after }")
    a.push([at("a", 150, "seen"), at("a", 250, "seen")])
    a.advance(300)  # but b holds it back
    update(engine, "INSERT DATA { :a :is :later }")
    b.advance(300)
    engine.settle(timeout_s=TIMEOUT_S)
    assert windows(query) == {100: ["before"], 200: ["after", "later"], 300: ["after", "later"]}


def test_an_update_from_on_result(engine: wukongs.Engine) -> None:
    """The injector's thread updates while other threads do: nobody waits for ever."""
    stream = engine.stream(A, batch_ms=100)
    sns: list[int] = []

    def on_result(window: Any) -> None:
        sns.append(update(engine, f"INSERT DATA {{ :window :ends {window.end_ms} }}"))

    engine.register(register_text("RANGE 100ms STEP 100ms"), on_result=on_result)
    errors: list[BaseException] = []

    def many() -> None:
        try:
            for number in range(10):
                update(engine, f"INSERT DATA {{ GRAPH :g {{ :other :n {number} }} }}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=many) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1, 11):
        stream.push([at("a", 100 * number)])
        stream.advance(100 * number)
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    engine.settle(timeout_s=TIMEOUT_S)
    assert not errors
    assert len(rows(engine.query(PREFIX + "SELECT ?t { :window :ends ?t }"))) == len(set(sns)) == 10
