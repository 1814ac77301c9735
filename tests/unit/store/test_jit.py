"""Where compiled kernels are kept."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from wukongs.store import jit


@pytest.mark.parametrize("first", ["numba, wukongs.store.jit", "wukongs.store.jit, numba"])
def test_kernels_are_kept_in_the_folder_of_the_user_whoever_has_imported_numba(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WUKONGS_KERNEL_CACHE", str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    program = (
        f"import {first}; from numba import config; print(config.CACHE_DIR); print(wukongs.store.jit.KERNEL_CACHE)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    used, wanted = done.stdout.split()
    assert used == wanted
    assert Path(wanted).parent == tmp_path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, where the user's own one for kernels cannot be written."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WUKONGS_KERNEL_CACHE", str(tmp_path / "file" / "kernels"))
    (tmp_path / "tmp").mkdir(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp" / f"wukongs-kernels-{os.geteuid()}"


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.lstat().st_mode)


def test_kernels_that_cannot_be_kept_with_the_user_are_kept_in_a_temporary_folder_of_the_user(temporary: Path) -> None:
    before = os.umask(0)
    try:
        folder = jit._cache_folder()
    finally:
        os.umask(before)
    assert (folder.parent, mode_of(temporary)) == (temporary, 0o700)
    assert jit._cache_folder() == folder
    temporary.chmod(0o755)  # as an earlier release has made it
    assert jit._cache_folder() == folder


@pytest.mark.parametrize(
    "whose", ["another user's", "writable by a group", "writable by all", "a link", "no link's end"]
)
def test_kernels_in_a_folder_that_others_can_write_are_not_run(
    temporary: Path, whose: str, caplog: pytest.LogCaptureFixture
) -> None:
    target = temporary.parent.parent / "target"
    if "link" in whose:
        temporary.symlink_to(target)
    if whose != "no link's end":
        (target if "link" in whose else temporary).mkdir(0o700)
    if whose == "another user's":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder to another user")
        os.chown(temporary, 12345, 12345)
    if "writable" in whose:
        temporary.chmod(0o770 if "group" in whose else 0o707)
    if temporary.exists():
        planted = temporary / jit._cache_key()
        planted.mkdir()
    folder = jit._cache_folder()
    assert folder.parent.parent == temporary.parent
    assert folder.parent != temporary
    assert (folder.parent.is_symlink(), mode_of(folder.parent), list(folder.iterdir())) == (False, 0o700, [])
    assert f"{temporary}: this folder for compiled kernels is another user's" in caplog.text
    assert jit._cache_folder() == folder, "a process that is started has the same one"
    jit._remove(str(folder.parent), os.getpid() + 1)
    assert folder.exists()
    jit._remove(str(folder.parent), os.getpid())
    assert not folder.parent.exists()
