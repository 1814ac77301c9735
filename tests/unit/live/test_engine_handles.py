"""Handles as users see them: by owner in stats(), and taken from a reader that keeps one too long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, at, names, register_text, windows
from wukongs.errors import CompactedError
from wukongs.settings import Settings


def leak(engine: wukongs.Engine, owner: str, age_s: float = 0) -> Any:
    """Open a handle that nobody closes, `age_s` ago."""
    core: Any = engine._core
    handle = core.arrangement.open(core.sn, owner)
    handle.opened_at_s -= age_s
    return handle


def load(engine: wukongs.Engine, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.nt"
    path.write_text(f"<http://ex/{name}> <http://ex/p> <http://ex/o> .\n")
    engine.load(path)


def test_a_leaked_handle_is_seen_by_its_owner(tmp_path: Path) -> None:
    with wukongs.Engine() as engine:
        load(engine, tmp_path, "a")
        handle = leak(engine, "report 7", 90)
        (seen,) = engine.stats()["handles"]
        assert (seen["owner"], seen["sn"]) == ("report 7", handle.sn)
        assert seen["age_s"] >= 90


@pytest.mark.parametrize(("age_max_s", "is_taken"), [(60, True), (3600, False), (0, False)])
def test_a_handle_past_its_age_is_taken_at_the_next_load(tmp_path: Path, age_max_s: int, is_taken: bool) -> None:
    with wukongs.Engine(settings=Settings(handle_age_max_s=age_max_s)) as engine:
        load(engine, tmp_path, "a")
        old, young = leak(engine, "old", 90), leak(engine, "young")
        load(engine, tmp_path, "b")
        assert [h["owner"] for h in engine.stats()["handles"]] == (["young"] if is_taken else ["old", "young"])
        assert len(young.read()) == 1
        if is_taken:
            with pytest.raises(CompactedError, match=r"handle of old at SN .* past its maximum age.* open a new one"):
                old.read()


def test_the_handle_of_the_firings_has_no_age() -> None:
    """Time may stand still for longer than a handle may live; what fires then still reads its snapshot."""
    with wukongs.Engine(settings=Settings(handle_age_max_s=1)) as engine:
        stream = engine.stream(A)
        query = engine.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50)])
        stream.advance(100)
        engine.settle(60)
        core: Any = engine._core
        for handle in core.arrangement.trace.handles():
            handle.opened_at_s -= 1000
        leak(engine, "old", 1000)
        stream.push([at("b", 150)])
        stream.advance(200)
        engine.settle(60)
        assert [h["owner"] for h in engine.stats()["handles"]] == ["the firings"]
        assert windows(query) == {100: ["a"], 200: ["b"]}
        assert names(engine.query("SELECT ?s { ?s ?p ?o }")) == ["a", "b"]
