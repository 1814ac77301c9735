"""Peers that are fetched by locked lists into the user's cache: jars from Maven Central, packages from npm.

* A jar stands under its name only once its SHA-256 was that of the list; the folder of npm's packages only once `npm
  ci` has checked and unpacked all of them. So what is there is whole, and a fetch that was interrupted goes on.
* The name of a folder has the hash of its list: another list is another folder.
* Nothing is fetched unless somebody asks for it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from wukongs.errors import WukongsError

CENTRAL = "https://repo1.maven.org/maven2"
TRIES, AT_ONCE = 3, 8
JAR_S, NPM_S = 120.0, 600.0
NODE_MIN = 18


class FetchError(WukongsError):
    """Something cannot be fetched: what, from where, what next."""


def cache() -> Path:
    """Return the folder for what is fetched: WUKONGS_PEERS, or wukongs/peers in the user's cache."""
    named = os.environ.get("WUKONGS_PEERS")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "wukongs/peers").expanduser()


@dataclass(frozen=True, slots=True)
class Jars:
    """The jars of a list, of which each line has a SHA-256 and a path in the repository. size: of all, for people."""

    name: str
    listed: Path
    size: str

    @property
    def origin(self) -> str:
        return "Maven Central"

    @property
    def folder(self) -> Path:
        return _folder_for(self.name, self.listed)

    def are_there(self) -> bool:
        return all((self.folder / Path(path).name).is_file() for _, path in read_jars(self.listed))

    def fetch(self, told: Callable[[str], None]) -> None:
        """Bring what is not there, and tell how far it is. Raises FetchError, OSError."""
        fetch_jars(self.listed, self.folder, lambda text: told(f"{self.name}: {text}"))


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages of npm that package-lock.json in a folder names. size: of all, for people."""

    name: str
    listed: Path
    size: str

    @property
    def origin(self) -> str:
        return "npm"

    @property
    def folder(self) -> Path:
        return _folder_for(self.name, self.listed / "package-lock.json")

    def are_there(self) -> bool:
        return self.folder.is_dir()

    def fetch(self, told: Callable[[str], None]) -> None:
        """Bring what is not there, and tell how far it is. Raises FetchError, OSError."""
        if self.are_there():
            return
        npm = shutil.which("npm")
        if npm is None:
            raise FetchError(f"{self.name}: npm is not there: install Node.js {NODE_MIN} or newer with npm")
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        told(f"{self.name}: npm ci, {self.size}")
        with tempfile.TemporaryDirectory(prefix=f"{self.name}-", dir=self.folder.parent) as name:
            making = Path(name) / "made"
            making.mkdir()
            for file in ("package.json", "package-lock.json"):
                shutil.copy(self.listed / file, making)
            command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            try:
                done = subprocess.run(command, cwd=making, capture_output=True, text=True, timeout=NPM_S)
            except subprocess.TimeoutExpired:
                raise FetchError(f"{self.name}: npm has not fetched it in {NPM_S:g} s: try again") from None
            if done.returncode:
                why = " ".join(done.stderr.split())[-300:]
                raise FetchError(f"{self.name}: npm cannot fetch it ({why}): is its registry reachable?")
            if not self.are_there():  # another process may have been faster
                making.rename(self.folder)


Fetched = Jars | Packages


def _folder_for(name: str, listed: Path) -> Path:
    return cache() / f"{name}-{hashlib.sha256(listed.read_bytes()).hexdigest()[:12]}"


def read_jars(listed: Path) -> list[tuple[str, str]]:
    """Return the SHA-256 and the path of each jar of a list."""
    lines = (line for line in listed.read_text("utf-8").splitlines() if line and not line.startswith("#"))
    return [(digest, path) for digest, path in map(str.split, lines)]


def fetch_jars(listed: Path, folder: Path, told: Callable[[str], None]) -> None:
    """Bring the jars of a list into a folder, those that are not there or not right. WUKONGS_MAVEN is another
    repository to fetch them from. Raises FetchError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    repository = os.environ.get("WUKONGS_MAVEN", CENTRAL).rstrip("/")
    wanted = [(digest, path) for digest, path in read_jars(listed) if _digest(folder / Path(path).name) != digest]
    if wanted:
        told(f"{len(wanted)} jars from {repository}")
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        under_way = {pool.submit(_fetch_jar, repository, digest, path, folder): path for digest, path in wanted}
        for count, done in enumerate(as_completed(under_way), 1):
            done.result()
            told(f"{count} of {len(wanted)}: {Path(under_way[done]).name}")
    finally:
        pool.shutdown(cancel_futures=True)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _fetch_jar(repository: str, digest: str, path: str, folder: Path) -> None:
    for attempt in range(1, TRIES + 1):
        try:
            with urllib.request.urlopen(f"{repository}/{path}", timeout=JAR_S) as answer:
                data: bytes = answer.read()
            break
        except (OSError, ValueError) as error:
            if attempt == TRIES or isinstance(error, ValueError):
                raise FetchError(
                    f"{path} cannot be fetched from {repository} ({error}): WUKONGS_MAVEN names another repository"
                ) from None
            time.sleep(attempt)
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise FetchError(f"{path} from {repository}: expected the SHA-256 {digest}, found {found}: try again")
    part = folder / f"{Path(path).name}.{os.getpid()}.part"
    try:
        part.write_bytes(data)
        part.replace(folder / Path(path).name)
    finally:
        part.unlink(missing_ok=True)
