"""A copy of a data folder that did not end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stored_graph import StoredGraph
from wukongs.durable import backup
from wukongs.errors import CorruptionError
from wukongs.store.checkpoint import CheckpointStore


class Crash(BaseException):
    """The process is gone: nobody handles this."""


@pytest.mark.parametrize("copied", [1, 2, 3])
def test_a_copy_that_did_not_end_is_named(copied: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log alone would open, without what the checkpoint holds."""
    graph = StoredGraph()
    with CheckpointStore(tmp_path / "data") as store:
        store.open()
        graph.absorb([("<http://s>", "<http://p>", "<http://o>")], sn=1)
        graph.commit(store)
    (tmp_path / "data" / "log").mkdir()
    (tmp_path / "data" / "log" / f"{1:020d}.log").write_bytes(b"")
    left = copied

    def copy(source: Path, target: Path) -> None:
        nonlocal left
        if not left:
            raise Crash
        left -= 1
        target.write_bytes(source.read_bytes())

    monkeypatch.setattr(backup, "_link", copy)
    monkeypatch.setattr(backup, "_copy", copy)
    with pytest.raises(Crash):
        backup.copy_folder(tmp_path / "data", tmp_path / "copy")
    with CheckpointStore(tmp_path / "copy") as store, pytest.raises(CorruptionError, match="it is missing"):
        store.open()
