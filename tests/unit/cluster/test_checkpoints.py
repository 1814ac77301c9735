"""When a node makes a checkpoint: once it takes much off the log, and not while that would only be written again."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import cluster
from tests.unit.cluster.wires import until
from wukongs.cluster.changes import Changes
from wukongs.settings import Settings

LINES = "".join(f"<http://e/{row}> <http://e/p> <http://e/{row + 1}> .\n" for row in range(2000)).encode()
SETTINGS = Settings(checkpoint_bytes=50_000)


def test_what_is_staged_is_no_reason_for_a_checkpoint_until_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(1, settings=SETTINGS, folder=tmp_path) as (node,):
        assert node.checkpoints is not None
        assert node._disk is not None
        checkpoints, disk = node.checkpoints, node._disk
        checkpoints.give_up()  # they are made here, by hand
        staged = list[bool]()
        submit = Changes._submit

        def looked(changes: Changes, *args: Any, **options: Any) -> Any:
            checkpoints.make()
            disk.sync()
            assert disk.bytes_since_checkpoint + node.store.staging.size_bytes > 50_000
            staged.append(checkpoints._is_long())
            return submit(changes, *args, **options)

        monkeypatch.setattr(Changes, "_submit", looked)
        node.engine.load(io.BytesIO(LINES), format="nt")
        assert staged == [False]
        assert checkpoints._is_long(), "it would take the load off the log"
        checkpoints.make()
        assert not checkpoints._is_long()
        assert disk.stats()["log_bytes"] < 50_000


def test_a_long_log_of_the_life_before_is_a_reason_for_a_checkpoint(tmp_path: Path) -> None:
    long = Settings(checkpoint_bytes=1 << 40)
    with cluster(1, settings=long, folder=tmp_path) as (node,):
        assert node.checkpoints is not None
        node.engine.load(io.BytesIO(LINES), format="nt")
        node.checkpoints.give_up()
        node.checkpoints.close = lambda: None  # type: ignore[method-assign]
    with cluster(1, settings=SETTINGS, folder=tmp_path) as (node,):
        disk = node._disk
        assert disk is not None
        until(lambda: disk.stats()["checkpoints"] == 1)
        assert disk.stats()["log_bytes"] < 50_000
        assert sum(1 for _ in node.engine.query("SELECT ?s { ?s ?p ?o }")) == 2000
