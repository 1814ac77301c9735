"""What queries have made for others is there after a restart, also if it was not in the log when the engine ended."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import EX, A, at, node, register_text, windows
from tests.lives import crash_and_open
from wukongs.live.made_streams import MadeStream

MADE = f"{EX}made"
TICK = "RANGE 100ms STEP 100ms"


def begun(folder: Path) -> tuple[wukongs.Engine, wukongs.Stream]:
    engine = wukongs.Engine(folder)
    stream = engine.stream(A, batch_ms=100, timing=True)
    construct = f"CONSTRUCT {{ ?s {node('has')} ?o }} FROM STREAM <{A}> [{TICK}] WHERE {{ ?s ?p ?o }}"
    engine.register(f"REGISTER STREAM <{MADE}> AS {construct}")
    engine.register(register_text(TICK, stream=MADE))
    return engine, stream


def query_of(engine: wukongs.Engine, name: str) -> Any:
    return next(query for query in engine.queries() if query.name == name)


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_made_and_taken_is_read_after_two_restarts(
    is_killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first life ends before it has logged what it has made, and the second one, too."""
    first, second, third = (tmp_path / name for name in "123")
    with monkeypatch.context() as patch:
        patch.setattr(MadeStream, "decide", lambda *_: None)
        patch.setattr(MadeStream, "go_on", lambda _: False)
        engine, stream = begun(first)
        stream.push([at(f"s{number}", number * 100 - 50) for number in range(1, 7)])
        stream.advance(600)
        engine.settle(60)
        engine = crash_and_open(first, second)(engine)
    with monkeypatch.context() as patch:
        patch.setattr(MadeStream, "go_on", lambda _: False)
        taken = query_of(engine, MADE).results(timeout_s=0)
        assert [window.end_ms for window in taken] == [100, 200, 300, 400, 500, 600]
        engine.stream(A, batch_ms=100, timing=True).push([at("s7", 650)])  # what was taken is logged with it
        if is_killed:
            shutil.copytree(second, third)
        engine.close()
    with wukongs.Engine(third if is_killed else second) as engine:
        engine.settle(60)
        assert windows(query_of(engine, "q")) == {number * 100: [f"s{number}"] for number in range(1, 7)}
