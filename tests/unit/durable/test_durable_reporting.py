"""ISTREAM, DSTREAM and REPORT over a restart: what the first firing is compared with, and what counts as taken."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, at, register_text
from tests.scenarios.test_reporting import LIFE, STEP, registered, told
from wukongs.durable.catalogue import Definition, definitions_at, read_definitions
from wukongs.live.window_log import Come


def crashed(engine: wukongs.Engine, folder: Path) -> Path:
    copy = folder.with_name(folder.name + "-crashed")
    shutil.copytree(folder, copy)
    engine.close()
    return copy


@pytest.mark.parametrize("output", ["istream", "dstream"])
@pytest.mark.parametrize("taken", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_first_firing_after_a_restart_is_compared_with_the_one_before(
    tmp_path: Path, output: Any, taken: int, checkpoint: bool
) -> None:
    whole = {
        "istream": {100: ["a"], 200: ["b"], 300: [], 400: [], 500: ["c"], 600: [], 700: []},
        "dstream": {100: [], 200: [], 300: ["a"], 400: [], 500: ["b"], 600: [], 700: ["c"]},
    }[output]
    folder = tmp_path / "data"
    engine = wukongs.Engine(folder)
    stream = engine.stream(A, batch_ms=100, timing=True, history_ms=0)
    stream.advance(0)
    query = engine.register(register_text(STEP), output=output)
    stream.push(LIFE[:3])
    stream.advance(400)
    engine.settle(timeout_s=60)
    read = query.results(timeout_s=0)
    for _ in range(taken):
        next(read)
    read.close()
    if taken:
        query._readers.own._acknowledge(Come(taken * 100))
    if checkpoint:
        engine.checkpoint()
    else:
        stream.advance(401)  # the acknowledgement goes to the log with the next record
    with wukongs.Engine(crashed(engine, folder)) as engine:
        stream = engine.stream(A, batch_ms=100, timing=True, history_ms=0)
        with pytest.raises(wukongs.StreamError, match="in the data folder with another text"):
            engine.register(register_text(STEP))
        query = engine.register(register_text(STEP), output=output)
        found = told(engine, stream, query, LIFE[3:], 700)
        assert found == {end: names for end, names in whole.items() if end > taken * 100}


def test_unreported_firings_count_as_taken_with_the_window_before_them(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    engine = wukongs.Engine(folder)
    text = register_text(STEP).replace(" AS S", " REPORT NON EMPTY CONTENT AS S")
    stream, query = registered(engine, text)
    assert told(engine, stream, query, [at("a", 50)], 700) == {100: ["a"], 200: ["a"]}
    assert engine.stats()["durability"]["oldest_unacknowledged_ms"] is None
    stream.advance(701)  # the acknowledgement goes to the log with the next record
    with wukongs.Engine(crashed(engine, folder)) as engine:
        query = engine.register(text)
        stream = engine.stream(A, batch_ms=100, timing=True)
        assert told(engine, stream, query, [at("b", 750)], 800) == {800: ["b"]}


@pytest.mark.parametrize("policy", ["NON EMPTY CONTENT", "ON CONTENT CHANGE", "NON EMPTY RESULT"])
@pytest.mark.parametrize("is_crashed", [True, False])
def test_a_folder_opens_whose_log_has_firings_that_are_not_reported(
    tmp_path: Path, policy: str, is_crashed: bool
) -> None:
    """They count as taken when they come again, before there is a segment that could say so."""
    folder = tmp_path / "data"
    engine = wukongs.Engine(folder)
    text = register_text(STEP).replace(" AS S", f" REPORT {policy} AS S")
    stream, _ = registered(engine, text)
    stream.advance(0)
    stream.advance(500)
    engine.settle(timeout_s=60)
    if is_crashed:
        folder = crashed(engine, folder)
    else:
        stream.advance(100_000)
        engine.close()
    for _ in range(2):
        with wukongs.Engine(folder) as engine:
            query = engine.register(text)
            stream = engine.stream(A, batch_ms=100, timing=True)
    with wukongs.Engine(folder) as engine:
        query, stream = engine.register(text), engine.stream(A, batch_ms=100, timing=True)
        assert told(engine, stream, query, [at("b", 200_050)], 200_100)[200_100] == ["b"]


def test_a_catalogue_without_outputs_is_read(tmp_path: Path) -> None:
    """The state that older folders have, which were written before there were any."""
    with closing(sqlite3.connect(tmp_path / "catalogue.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE streams (lsn INTEGER PRIMARY KEY, iri TEXT, options TEXT, until INTEGER)")
        connection.execute(
            "CREATE TABLE queries (lsn INTEGER PRIMARY KEY, name TEXT, text TEXT, base TEXT, until INTEGER)"
        )
        connection.execute("INSERT INTO queries VALUES (1, 'q', 'text', NULL, NULL)")
    (found,) = read_definitions(tmp_path, {}, 5)
    assert found == Definition(1, "q", None, "text")
    about = {"definitions": definitions_at([replace(found, output="istream")], 5)}
    assert [each.output for each in read_definitions(tmp_path, about, 5)] == ["istream"]
