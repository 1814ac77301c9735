"""A data folder that this user may only read is opened for reading."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rdflib  # noqa: F401 (before anybody without rights to read its files asks for it)

import wukongs
from tests.engine_helpers import A, B, at, register_text, subjects, windows
from wukongs.cli.engine_load import open_load
from wukongs.cli.folder_query import open_folder

NOBODY = 65534
TRIPLE = b"<s:s> <p:p> <o:o> ."
CHANGE = "INSERT DATA { <s:s> <p:p> <o:o> }"
REFUSED = "opened for reading only, since this user may not write to it"
WINDOW = register_text("RANGE 100ms STEP 100ms")
VIEW = "REGISTER QUERY v AS SELECT ?p WHERE { ?s ?p ?o }"


@contextlib.contextmanager
def may_only_read(folder: Path) -> Iterator[None]:
    """Take away the permission to write, also from root."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.fixture
def folder() -> Iterator[Path]:
    """The folder of a killed engine, with windows that nobody took, and a record that is torn."""
    root = Path(tempfile.mkdtemp(prefix="wukongs-"))  # not below tmp_path, which nobody else may enter
    root.chmod(0o755)
    with wukongs.Engine(root / "first") as engine:
        stream = engine.stream(A, batch_ms=100)
        engine.register(WINDOW)
        view = engine.register(VIEW, bindings=[{"s": "<s:s>"}])
        assert [report.is_reset for report in view.results(timeout_s=0)] == [True]
        stream.push([at("a", 50)])
        engine.checkpoint()
        stream.push([at("b", 150)])
        stream.advance(200)
        engine.settle(timeout_s=60)
        shutil.copytree(root / "first", root / "data")
    last = max((root / "data" / "log").glob("*.log"))
    last.write_bytes(last.read_bytes() + b"torn")
    with wukongs.Engine(root / "first") as engine:  # so that all kernels are there that nobody may keep
        engine.load(io.BytesIO(TRIPLE), format="nt")
        engine.update(CHANGE)
        engine.update("CLEAR ALL")
        subjects(engine)
    yield root / "data"
    shutil.rmtree(root)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_live_views_are_read_and_refuse_changes_by_name(folder: Path) -> None:
    with may_only_read(folder), wukongs.Engine(folder) as engine:
        view: Any = engine.register(VIEW, bindings=[{"s": "<s:s>"}])
        engine.settle(timeout_s=60)
        assert len(view.content()) == 0
        assert [report.is_reset for report in view.results(timeout_s=0, group="new")] == [True]
        for change in (view.pause, view.close, lambda: view.bind([{"s": "<s:t>"}]), lambda: view.unbind(0)):
            with pytest.raises(wukongs.StorageError, match=REFUSED):
                change()
        assert view.stats()["arguments"] == 1
        with pytest.raises(wukongs.StorageError, match=REFUSED):
            engine.register(VIEW.replace("QUERY v", "QUERY other"), bindings=[{"s": "<s:s>"}])


def test_an_engine_answers_and_refuses_changes_by_name(folder: Path) -> None:
    before = contents(folder)
    with may_only_read(folder), wukongs.Engine(folder) as engine:
        assert subjects(engine) == ["a", "b"]
        stream, query = engine.stream(A, batch_ms=100), engine.register(WINDOW)
        assert windows(query) == {100: ["a"], 200: ["b"]}
        refused: list[Callable[[], Any]] = [
            lambda: stream.push([at("c", 250)]),
            lambda: stream.advance(300),
            stream.close,
            lambda: engine.stream(B),
            query.close,
            lambda: engine.register(register_text("RANGE 100ms STEP 100ms", name="more")),
            lambda: engine.load(io.BytesIO(TRIPLE), format="nt"),
            lambda: engine.update(CHANGE),
            lambda: engine.update("CLEAR ALL"),
            engine.checkpoint,
        ]
        for change in refused:
            with pytest.raises(wukongs.StorageError, match=REFUSED):
                change()
        assert subjects(engine) == ["a", "b"]
        with wukongs.Engine(folder) as other:  # readers share a folder
            assert subjects(other) == ["a", "b"]
    assert contents(folder) == before
    with wukongs.Engine(folder) as engine:
        assert windows(engine.register(WINDOW)) == {100: ["a"], 200: ["b"]}
        engine.update("INSERT DATA { <s:s> <p:p> <o:o> }")


def test_a_command_asks_a_folder_that_it_may_only_read(folder: Path) -> None:
    (folder / "LOCK").unlink()
    before = contents(folder)
    with may_only_read(folder), open_folder(folder) as engine:  # what `wukongs query --data-dir` asks
        assert subjects(engine) == ["a", "b"]
    assert contents(folder) == before


def test_a_folder_that_an_engine_writes_to_is_not_read(folder: Path) -> None:
    in_use = pytest.raises(wukongs.StorageError, match="in use by this process")
    with wukongs.Engine(folder), may_only_read(folder), in_use:
        wukongs.Engine(folder)


def test_an_empty_folder_that_may_only_be_read_is_refused(folder: Path) -> None:
    empty = folder / "empty"
    empty.mkdir()
    refused = pytest.raises(wukongs.StorageError, match="Name a folder that this user may write to")
    with may_only_read(folder), refused:
        wukongs.Engine(empty)


def test_a_load_into_it_is_refused_by_name(folder: Path) -> None:
    with may_only_read(folder), pytest.raises(wukongs.StorageError, match="may only read it: nothing can be loaded"):
        open_load(folder, wukongs.Settings())


@pytest.mark.parametrize("open_it", [wukongs.Engine, open_folder])
def test_a_folder_that_may_not_be_entered_is_refused_by_name(folder: Path, open_it: Callable[[Path], Any]) -> None:
    with may_only_read(folder):
        uid = os.geteuid()
        os.seteuid(0)
        folder.chmod(0o600)
        os.seteuid(uid)
        with pytest.raises(wukongs.StorageError, match=r"cannot open .*: Permission denied\. Have its owner"):
            open_it(folder)
