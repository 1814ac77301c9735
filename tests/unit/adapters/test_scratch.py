"""Temporary folders that a killed process leaves behind are removed by the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.unit.adapters.helpers import PROJECT
from wukongs.adapters.scratch import ScratchFolder

SCRIPT = """
import time
from wukongs.adapters.scratch import ScratchFolder

folder = ScratchFolder("killed")
(folder.path / "file").touch()
print(folder.path, flush=True)
time.sleep(60)
"""


def test_a_folder_goes_when_it_is_closed() -> None:
    with ScratchFolder("test") as folder:
        (folder / "inside").mkdir()
        (folder / "inside" / "file").touch()
    assert not folder.exists()


def test_a_folder_of_a_killed_process_is_removed_and_those_in_use_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "wukongs-scratch-link").symlink_to(PROJECT)
    child = subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child:
        left = Path(child.stdout.readline().strip())
        with ScratchFolder("mine") as mine:
            assert (left / "file").exists()
            child.send_signal(signal.SIGKILL)
            child.wait()
            assert (left / "file").exists()
            with ScratchFolder("next") as following:
                assert not left.exists()
                assert mine.exists()
                assert following.exists()
    assert (PROJECT / "pyproject.toml").exists()


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    make, made = tempfile.mkdtemp, []

    def taken_away(prefix: str) -> str:
        made.append(make(prefix=prefix))
        if len(made) == 1:
            Path(made[0]).rmdir()
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", taken_away)
    with ScratchFolder("test") as folder:
        assert str(folder) == made[1]
