"""A change that is in the log and could not be stored takes nothing away from those after it."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import wukongs
from tests.engine_helpers import A, at, node, subjects
from tests.inside import core_of


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
