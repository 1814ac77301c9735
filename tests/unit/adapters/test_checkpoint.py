"""The folder of a kept checkpoint: it belongs to the sources that it was made for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wukongs.adapters.source import PreparedSource, RowRange, Rows, SourceIndex
from wukongs.adapters.spark.pipeline import MARK, claim_checkpoint
from wukongs.errors import SettingsError


class Named:
    """A source that is never read."""

    partition = "a"

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        raise AssertionError


def _prepared(stream: str) -> list[PreparedSource]:
    return [PreparedSource(stream, Named(), SourceIndex(np.arange(2, dtype=np.int64), np.arange(3, dtype=np.int64)))]


def test_a_checkpoint_is_of_the_sources_that_it_was_made_for(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "checkpoint"
    claim_checkpoint(folder, _prepared("http://ex/s"))
    claim_checkpoint(folder, _prepared("http://ex/s"))
    with pytest.raises(SettingsError, match="it is of another run file"):
        claim_checkpoint(folder, _prepared("http://ex/t"))


def test_other_files_and_a_broken_mark_are_named(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(SettingsError, match="expected an empty folder or a checkpoint, found other files"):
        claim_checkpoint(tmp_path, _prepared("http://ex/s"))
    (tmp_path / MARK).write_text("{")
    with pytest.raises(SettingsError, match="Give another folder, or delete this one"):
        claim_checkpoint(tmp_path, _prepared("http://ex/s"))
