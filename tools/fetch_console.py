"""Fetch the editor of the console: the packages of tools/console/package-lock.json, by npm, into
wukongs/server/console/vendor. Part of `make setup` and `make demo`. Without npm the console has a plain field.

    python tools/fetch_console.py
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
LOCKED = PROJECT / "tools" / "console"
VENDOR = PROJECT / "wukongs" / "server" / "console" / "vendor"
_MARK = "lock.txt"
"""Names what is there, by the hash of the lock file."""
_FETCH_S = 120


def main() -> int:
    mark = hashlib.sha256((LOCKED / "package-lock.json").read_bytes()).hexdigest()
    if (VENDOR / _MARK).is_file() and (VENDOR / _MARK).read_text() == mark:
        return 0
    npm = shutil.which("npm")
    if npm is None:
        return _without("npm is not there")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(LOCKED / file, folder)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_S)
        except subprocess.TimeoutExpired:
            return _without(f"npm has not fetched it within {_FETCH_S} s")
        if done.returncode:
            return _without(f"npm cannot fetch it: {done.stderr.strip()[-300:]}")
        made = folder / "vendor"
        for package in _packages():
            _take(folder / "node_modules" / package, made / package)
        (made / _MARK).write_text(mark)
        shutil.rmtree(VENDOR, ignore_errors=True)
        shutil.copytree(made, VENDOR)
    return 0


def _packages() -> list[str]:
    lock = json.loads((LOCKED / "package-lock.json").read_text("utf-8"))
    return [path.removeprefix("node_modules/") for path in lock["packages"] if path]


def _take(package: Path, to: Path) -> None:
    """Copy the module of a package, which imports others by their names, and its licence."""
    told = json.loads((package / "package.json").read_text("utf-8"))
    to.mkdir(parents=True)
    shutil.copy(package / told["exports"]["import"], to / "index.js")
    (licence,) = (file for file in package.iterdir() if file.name.upper().startswith("LICENSE"))
    shutil.copy(licence, to / "LICENSE")


def _without(reason: str) -> int:
    print(f"the console's editor is a plain field: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
