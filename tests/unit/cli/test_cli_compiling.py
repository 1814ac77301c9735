"""Kernels are compiled before a node serves, once for each installation."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wukongs.cli import compiling
from wukongs.store import jit

ROOT = Path(__file__).resolve().parents[3]
USED = """
import sys
def used():
    for name, module in list(sys.modules.items()):
        for one in vars(module).values() if name.startswith("wukongs") else ():
            if hasattr(one, "py_func"):
                for signature in one.signatures:
                    yield f"{one.py_func.__module__}.{one.py_func.__name__} {signature}"
"""
AHEAD = (
    USED
    + """
from wukongs.cli.compiling import use_kernels
use_kernels()
print(*sorted(set(used())), sep="\\n")
"""
)
SERVED = (
    USED
    + """
from tests.unit.bench.test_nodes import with_folders
from wukongs.bench.nodes import soak

print, show = (lambda *_, **__: None), print
assert soak.main(None, True, 0.05, None, with_folders) == 0
show(*sorted(set(used())), sep="\\n")
"""
)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The mark that all kernels are compiled, which is not there. The kernels are where they are for all tests."""
    monkeypatch.setattr(jit, "KERNEL_CACHE", tmp_path)
    monkeypatch.setattr(jit, "COMPILING", tmp_path / "compiling")
    monkeypatch.setattr(jit, "COMPILED", tmp_path / "compiled")
    return tmp_path / "compiled"


@pytest.mark.slow
def test_it_is_done_once(mark: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    compiling.compile_first()
    assert capsys.readouterr().err == "compiling kernels, once (about two minutes) ...\n"
    compiling.compile_first()
    assert capsys.readouterr().err == ""
    mark.unlink()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    compiling.compile_first()
    assert not mark.exists(), "it failed: the next node tries again"
    assert compiling.compile_behind() == 1


def test_one_process_compiles_behind_others(mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    monkeypatch.setattr(os, "nice", lambda _: 0)
    with (mark.parent / "compiling").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        assert compiling.compile_behind() == jit.WAITS_FOR_ANOTHER
        assert not mark.exists()
    assert compiling.compile_behind() == 0
    assert mark.exists()


@pytest.mark.slow
def test_a_cluster_with_lsbenchs_queries_compiles_nothing_more() -> None:
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}

    def run(text: str) -> set[str]:
        ran = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, env=environment, check=False, timeout=900
        )
        assert ran.returncode == 0, ran.stderr
        return {line for line in ran.stdout.splitlines() if line.startswith("wukongs.")}

    served, ahead = run(SERVED), run(AHEAD)
    assert len(served) > 30
    assert not served - ahead
