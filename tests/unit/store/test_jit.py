"""Where compiled kernels are kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


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
