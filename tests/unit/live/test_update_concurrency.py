"""What comes between an update's reading and its storing, looked at from inside: merged, killed, with old handles.

What users see of it: tests/scenarios/test_update_concurrency.py."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, at, subjects
from wukongs.live.update_request import UpdateRequest

PREFIX = "PREFIX : <http://ex/> "
TIMEOUT_S = 60


def update(engine: wukongs.Engine, text: str) -> int:
    return engine.update(PREFIX + text)


def during_updates(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Any]) -> None:
    """Let something happen when an update has read and not stored yet."""
    real = UpdateRequest.run

    def run(self: UpdateRequest, place: int, operation: Any) -> None:
        real(self, place, operation)
        monkeypatch.setattr(UpdateRequest, "run", real)
        action()

    monkeypatch.setattr(UpdateRequest, "run", run)


def load(engine: wukongs.Engine, *lines: str, graph: str | None = None) -> int:
    text = "".join(f"{line} .\n" for line in lines).replace(":", "http://ex/") if lines else ""
    return engine.load(io.BytesIO(text.encode()), format="nt", graph=graph)


# --- what is stored meanwhile -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("DELETE DATA { :new :p :o . :old :p :o }", ["new", "other"]),
        ("DELETE WHERE { ?s :p :o }", ["new", "other"]),
        ("CLEAR DEFAULT", ["new", "other"]),
        ("CLEAR ALL ; INSERT DATA { :new :p :o }", ["new", "other"]),
        ("INSERT DATA { :new :p :o }", ["new", "old", "other"]),
        ("MOVE DEFAULT TO :g", ["new", "other"]),  # or they would be in neither graph
        ("DELETE { ?s :p :o } INSERT { ?s :p :o } WHERE { ?s :p :o }", ["new", "old", "other"]),
    ],
)
@pytest.mark.parametrize("source", ["stream", "load"])
@pytest.mark.parametrize("is_durable", [False, True])
def test_what_comes_between_reading_and_storing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, left: list[str], source: str, is_durable: bool
) -> None:
    """An update deletes what its snapshot held; what has come since stays."""
    engine = wukongs.Engine(tmp_path / "db" if is_durable else None)
    load(engine, "<:old> <:p> <:o>")
    stream = engine.stream(A, batch_ms=100)

    def come() -> None:
        if source == "load":
            load(engine, "<:new> <:p> <:o>", "<:other> <:p> <:o>")
            return
        stream.push([at("new", 50), at("other", 60), at("old", 70)])
        stream.advance(100)
        engine.settle(timeout_s=TIMEOUT_S)

    during_updates(monkeypatch, come)
    update(engine, text)
    assert subjects(engine) == left
    assert engine.stats()["stored_triples"] == len(left) + (1 if "MOVE" in text else 0)
    with engine._core.lock:  # the injector merges in idle time
        engine._core.arrangement.trace.merge_all()
    assert subjects(engine) == left
    if is_durable:
        shutil.copytree(tmp_path / "db", tmp_path / "killed")
        with wukongs.Engine(tmp_path / "killed") as other:
            assert subjects(other) == left
    engine.close()


def test_a_long_update_holds_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """handle_age_max_s takes readers' handles away, not that of an update, which could not store its change then."""
    with wukongs.Engine(settings=wukongs.Settings(handle_age_max_s=1)) as engine:
        load(engine, "<:old> <:p> <:o>")

        def waits() -> None:
            for handle in engine._core.arrangement.trace.handles():
                handle.opened_at_s -= 100
            load(engine, "<:new> <:p> <:o>")
            load(engine, "<:newer> <:p> <:o>")

        during_updates(monkeypatch, waits)
        update(engine, "DELETE WHERE { ?s :p :o } ; INSERT { :x :is ?s } WHERE { ?s :p :o }")
        assert subjects(engine) == ["new", "newer"]
