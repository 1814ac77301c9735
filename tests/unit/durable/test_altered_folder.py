"""A byte of a data folder that has changed is named, or does no harm: no other answer comes of it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import at, rows
from tests.fuzz import slow

STREAM = "http://ex/s"
OTHER = "http://ex/other"
QUERY = f"REGISTER QUERY all AS SELECT * FROM STREAM <{STREAM}> [RANGE 1s STEP 500ms] WHERE {{ ?s ?p ?o }}"
ALL = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
PLACES = 25
SAFE_NAMES = ("LOCK",)
SETTINGS = wukongs.Settings(log_segment_bytes=1 << 12)


def fill(engine: wukongs.Engine) -> None:
    """Leave all kinds of records: loads, updates, streams, queries, tuples, windows that nobody took."""
    for number in range(12):
        engine.update(
            f"INSERT DATA {{ <http://ex/{number}> <http://ex/p> 'a text that is too long for an id {number}' }}"
        )
    stream = engine.stream(STREAM, timing=["http://ex/seen"], batch_ms=100, history_ms=60_000)
    engine.stream(OTHER, timing=True, batch_ms=50)
    engine.register(QUERY)
    for at_ms in (100, 450, 730, 1300):
        stream.push([at("a", at_ms, "seen", "b")])
    stream.advance(1500)
    engine.settle(timeout_s=60)


def last_segment(folder: Path) -> Path:
    return max(folder.glob("log/*.log"))


def closed(engine: wukongs.Engine, target: Path, folder: Path) -> int:
    engine.close()
    shutil.copytree(folder, target)
    return last_segment(folder).stat().st_size


def killed(engine: wukongs.Engine, target: Path, folder: Path) -> int:
    """Leave what a crash leaves; return the bytes of the log before what was written last: nobody says of that that it
    was safe, so that altered bytes there look like those that a crash has torn."""
    engine.checkpoint()
    engine.update("DELETE WHERE { <http://ex/0> ?p ?o }")
    size = last_segment(folder).stat().st_size
    engine.update("INSERT DATA { <http://ex/late> <http://ex/p> 1 }")
    shutil.copytree(folder, target)
    engine.close()
    return size


def answers(folder: Path) -> Any:
    """Return all that an engine tells of a folder. Raises WukongsError."""
    with wukongs.Engine(folder, settings=SETTINGS) as engine:
        declared = sorted(engine.streams())
        stored = sorted(map(str, rows(engine.query(ALL))))
        queries = [(query.name, query.source) for query in engine.queries()]
        stream = engine.stream(STREAM, timing=["http://ex/seen"], batch_ms=100, history_ms=60_000)
        engine.stream(OTHER, timing=True, batch_ms=50)
        query = engine.register(QUERY)
        stream.advance(2000)
        engine.drop_stream(OTHER)
        engine.settle(timeout_s=60)
        told = [(window.end_ms, sorted(map(str, rows(window)))) for window in query.results(timeout_s=0)]
        return declared, stored, queries, told


@pytest.mark.parametrize(("leave", "places"), [(closed, 6), slow(closed, PLACES), slow(killed, PLACES)])
def test_a_byte_that_has_changed_is_named_or_harmless(
    leave: Callable[[wukongs.Engine, Path, Path], int], places: int, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    engine = wukongs.Engine(tmp_path / "first", settings=SETTINGS)
    fill(engine)
    log_size = leave(engine, folder, tmp_path / "first")
    shutil.copytree(folder, tmp_path / "whole")
    expected = answers(tmp_path / "whole")
    rng = random.Random(12)
    files = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    assert len([path for path in files if path.name not in SAFE_NAMES]) >= 4, files
    harmless, named = 0, 0
    for file in files:
        size = log_size if folder / file == last_segment(folder) else (folder / file).stat().st_size
        for place in sorted({0, size - 1, *(rng.randrange(size) for _ in range(places))}) if size else ():
            altered = tmp_path / "altered"
            shutil.copytree(folder, altered)
            data = bytearray((altered / file).read_bytes())
            data[place] ^= rng.choice((1, 4, 32, 255))
            (altered / file).write_bytes(data)
            try:
                found = answers(altered)
            except (wukongs.CorruptionError, wukongs.StorageError) as error:
                found = str(error)
            if isinstance(found, str):
                assert file.name in found, (file, place)
                named += 1
            else:
                assert found == expected, (file, place)
                harmless += 1
            shutil.rmtree(altered)
    assert named > harmless


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"[RANGE 1s", b"[RANGE 3s"), (b"60000", b"90000"), (b"ex/other", b"ex/otter"), (b"too long", b"too wrong"[:8])],
)
def test_a_definition_that_has_changed_is_named(old: bytes, new: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    engine = wukongs.Engine(tmp_path / "first", settings=SETTINGS)
    fill(engine)
    closed(engine, folder, tmp_path / "first")
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and old in path.read_bytes()]
    assert found
    for file in found:
        altered = tmp_path / "altered"
        shutil.copytree(folder, altered)
        (altered / file).write_bytes((altered / file).read_bytes().replace(old, new))
        with pytest.raises(wukongs.CorruptionError, match=file.name):
            answers(altered)
        shutil.rmtree(altered)


def test_a_log_that_is_gone_before_the_first_checkpoint_is_missed(tmp_path: Path) -> None:
    """As in a copy by a tool that leaves out files named *.log."""
    with wukongs.Engine(tmp_path / "db") as engine:
        engine.update("INSERT DATA { <http://ex/s> <http://ex/p> <http://ex/o> }")
        shutil.copytree(tmp_path / "db", tmp_path / "whole")
        shutil.copytree(tmp_path / "db", tmp_path / "copy", ignore=shutil.ignore_patterns("*.log"))
    with pytest.raises(wukongs.CorruptionError, match="segment 1 of the log is missing"):
        wukongs.Engine(tmp_path / "copy")
    with wukongs.Engine(tmp_path / "whole") as engine:
        assert len(engine.query(ALL)) == 1
