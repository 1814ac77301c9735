"""Install the locked packages and the project itself into the environment of this Python: part of `make setup`.

uv does it in a quarter of pip's time, with the same hashes checked. It is installed by pip, from requirements-uv.lock.
Where that fails, or uv does, pip installs all. uv takes from pip's settings where packages come from, unless its own
variables say so.

    .venv/bin/python tools/install_packages.py
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
PIP = (sys.executable, "-m", "pip")
QUIET = ("--quiet", "--disable-pip-version-check")
LOCKED = ("--require-hashes", "--no-deps", "-r", "requirements.lock")
"""The lock file has all that its packages need: nothing has to be asked of the registry about that."""
ITSELF = ("--no-deps", "--no-build-isolation", "--editable", ".")
SAME = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
"""uv's variables that mean what options of pip do."""
OLDER = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}
"""Variables by which a user may have said the same to uv."""


def main() -> int:
    print("installing the locked packages into .venv (half a minute) ...", file=sys.stderr, flush=True)
    failed = install_by_uv()
    if failed:
        print(f"{failed}: pip installs the packages, in a minute or two ...", file=sys.stderr, flush=True)
        install_by_pip()
    return 0


def install_by_uv() -> str | None:
    """Return None if all is installed, otherwise a line that says what has failed."""
    bootstrap = [*PIP, "install", *QUIET, "--require-hashes", "-r", "requirements-uv.lock"]
    done = subprocess.run(bootstrap, cwd=PROJECT, capture_output=True, text=True)
    if done.returncode:
        return f"uv cannot be installed ({last_line(done.stderr)})"
    uv = str(Path(sys.executable).with_name("uv"))
    told = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True).stdout
    # Files are linked from the cache, which has to be on the same file system, and not in the user's home: it is 3 GB.
    cache = Path(sys.prefix) / ".uv-cache"
    environment = {**os.environ, **uv_variables(told, os.environ), "UV_CACHE_DIR": str(cache)}
    try:
        for what in (LOCKED, ITSELF):
            command = [uv, "pip", "install", "--quiet", "--no-config", "--python", sys.executable, *what]
            done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
            if done.returncode:
                return f"uv cannot install the packages ({last_line(done.stderr)})"
    except OSError as error:
        return f"uv does not start ({error})"
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    return None


def install_by_pip() -> None:
    for what in (LOCKED, ITSELF):
        done = subprocess.run([*PIP, "install", *QUIET, *what], cwd=PROJECT)
        if done.returncode:
            raise SystemExit(done.returncode)


def uv_variables(told: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which uv gets the settings of pip, as `pip config list` prints them.

    The environment of pip wins over its files; there the section of the command wins over the global one."""
    found: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):
        for line in told.splitlines():
            name, _, value = line.partition("=")
            variable = SAME.get(name.removeprefix(section)) if name.startswith(section) else None
            if variable is not None:
                found[variable] = " ".join(str(ast.literal_eval(value)).split())
    if "UV_FIND_LINKS" in found:  # whose places uv has between commas
        found["UV_FIND_LINKS"] = found["UV_FIND_LINKS"].replace(" ", ",")
    if "UV_INDEX" in found:  # pip takes the best from all of them; the hashes say which files may come
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {
        name: value
        for name, value in found.items()
        if name not in environment and OLDER.get(name, name) not in environment
    }


def last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()


if __name__ == "__main__":
    sys.exit(main())
