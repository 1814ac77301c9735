"""A change that is in the log and could not be stored takes nothing away from those after it."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import wukongs
from tests.engine_helpers import A, at, node, register_text, subjects
from tests.inside import core_of


@pytest.mark.parametrize("is_crash", [False, True])
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_query_that_could_not_be_registered_is_not_there_after_a_restart(
    error: type[BaseException], *, is_crash: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when Ctrl-C comes while a long table of bindings is taken."""

    def fail(*_: object) -> None:
        raise error

    with wukongs.Engine(tmp_path / "db") as engine:
        engine.stream(A, batch_ms=100)
        with monkeypatch.context() as patch:
            patch.setattr("wukongs.live.embedded.register_query", fail)
            with pytest.raises(error):
                engine.register(register_text("RANGE 100ms STEP 100ms", name="failed"))
        engine.register(register_text("RANGE 100ms STEP 100ms", name="there"))
        shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with wukongs.Engine(tmp_path / ("copy" if is_crash else "db")) as engine:
        assert [query.name for query in engine.queries()] == ["there"]
        engine.register(register_text("RANGE 200ms STEP 100ms", name="failed"))


def load(engine: wukongs.Engine, _: wukongs.Stream) -> None:
    engine.load(io.BytesIO(f"{node('failed')} {node('p')} {node('o')} .\n".encode()), format="nt")


def update(engine: wukongs.Engine, _: wukongs.Stream) -> None:
    engine.update(f"INSERT DATA {{ {node('failed')} {node('p')} {node('o')} }}")


def push_late(_: wukongs.Engine, stream: wukongs.Stream) -> None:
    stream.push([at("failed", 10)])


@pytest.mark.parametrize("change", [load, update, push_late])
def test_the_next_change_is_there_after_a_crash(
    change: Callable[[wukongs.Engine, wukongs.Stream], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wukongs.Engine(tmp_path / "db") as engine:
        stream = engine.stream(A, batch_ms=100, lateness_ms=100)
        stream.push([at("begin", 1000)])
        stream.advance(1000)
        engine.settle(60)
        with monkeypatch.context() as patch:

            def no_memory(*_: object) -> None:
                raise MemoryError

            patch.setattr(core_of(engine).arrangement.trace, "seal", no_memory)
            with pytest.raises(MemoryError):
                change(engine, stream)
        engine.update(f"INSERT DATA {{ {node('stored')} {node('p')} {node('o')} }}")
        assert subjects(engine) == ["begin", "stored"]
        shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with wukongs.Engine(tmp_path / "copy") as engine:
        assert subjects(engine) == ["begin", "failed", "stored"]
