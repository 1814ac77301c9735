"""The packages of package-lock.json, installed once into build/."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build"
INSTALL_S = 300
NODE_MIN = 20


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the installed packages; skips where Node.js or the registry is missing."""
    if shutil.which("npm") is None or (version := _version()) < NODE_MIN:
        found = "none" if shutil.which("npm") is None else f"{version}"
        pytest.skip(f"needs Node.js {NODE_MIN} or newer with npm, found {found}")
    lock = (HERE / "package-lock.json").read_bytes()
    folder = BUILD / f"npm-{hashlib.sha256(lock).hexdigest()[:12]}"
    if not folder.exists():
        making = tmp_path_factory.mktemp("npm")
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, making)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            done = subprocess.run(command, cwd=making, capture_output=True, text=True, timeout=INSTALL_S)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm has not fetched its packages in {INSTALL_S} s")
        if done.returncode:
            pytest.skip(f"npm cannot fetch its packages: {done.stderr.strip()[-300:]}")
        BUILD.mkdir(exist_ok=True)
        shutil.move(making, folder)
    return folder / "node_modules"


def _version() -> int:
    told = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    return int(told.lstrip("v").partition(".")[0])
