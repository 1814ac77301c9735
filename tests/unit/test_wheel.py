"""The wheel, installed by pip into an environment of its own: it is imported, asked and served, without Java, too.

The other packages are those of this environment, and kernels run un-jitted: at a new place all of them would have to be
compiled. `make wheel-clean` sets WUKONGS_WHEEL=clean: then pip takes the packages from the index, into an environment
that has nothing else, and kernels are compiled.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy
import pytest

import wukongs
from tests.processes import child

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
IS_CLEAN = os.environ.get("WUKONGS_WHEEL") == "clean"
INSTALL_S = 1800
RUN_S = 300


@dataclass(frozen=True)
class Environment:
    """An environment with the wheel, and a user's folder. PATH has its programs, the system's, and no Java."""

    programs: Path
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "JAVA_HOME")}
        compiled = {} if IS_CLEAN else {"NUMBA_DISABLE_JIT": "1"}
        return {**kept, **compiled, "PATH": f"{self.programs}:{self.folder / 'system'}"}

    def run(self, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        command = [str(self.programs / words[0]), *words[1:]]
        done = subprocess.run(
            command, cwd=self.folder, env=self.variables, capture_output=True, text=True, timeout=RUN_S, check=False
        )
        assert done.returncode == status, done.stderr
        return done


def built_wheel(folder: Path) -> Path:
    """Build the wheel as `make wheel` does, but in a copy, so that no build/ of the checkout is taken into it."""
    copy = folder / "source"
    left_out = shutil.ignore_patterns(".git", ".venv", "build", "dist", "__pycache__", "*.egg-info", ".*_cache")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=left_out)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        "wheels",
        ".",
    ]
    subprocess.run(command, cwd=copy, check=True, capture_output=True, timeout=RUN_S)
    [wheel] = (copy / "wheels").glob("wukongs-*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("wheel")
    wheel = built_wheel(folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=RUN_S)
    python = folder / "venv" / "bin" / "python"
    without_packages = [] if IS_CLEAN else ["--no-deps"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *without_packages, wheel],
        check=True,
        capture_output=True,
        timeout=INSTALL_S,
    )
    if not IS_CLEAN:
        packages = sysconfig.get_path("purelib", vars={"base": str(folder / "venv"), "platbase": str(folder / "venv")})
        # A line of a .pth file adds a folder, but does not read the .pth files in it: our own install stays out.
        (Path(packages) / "others.pth").write_text(f"{Path(numpy.__file__).parents[1]}\n")
    users = folder / "users"
    (users / "system").mkdir(parents=True)
    for name in ("sh", "env"):
        (users / "system" / name).symlink_to(str(shutil.which(name)))
    (users / "rooms.ttl").write_text("<http://ex/s1> <http://ex/in> <http://ex/kitchen> .\n")
    return Environment(folder / "venv" / "bin", users)


def test_it_is_imported_from_the_environment(installed: Environment) -> None:
    program = "import wukongs; print(wukongs.__file__, wukongs.Engine.__name__, len(wukongs.Engine().streams()))"
    file, name, count = installed.run("python", "-c", program).stdout.split()
    assert Path(file).is_relative_to(installed.programs.parent)
    assert (name, count) == ("Engine", "0")


def test_it_knows_its_version(installed: Environment) -> None:
    assert installed.run("wukongs", "--version").stdout == f"wukongs {wukongs.__version__}\n"
    program = "from importlib.metadata import version; print(version('wukongs'))"
    assert installed.run("python", "-c", program).stdout.strip() == wukongs.__version__


def test_types_come_with_it(installed: Environment) -> None:
    program = "import wukongs, pathlib; print((pathlib.Path(wukongs.__file__).parent / 'py.typed').exists())"
    assert installed.run("python", "-c", program).stdout == "True\n"


def test_there_is_no_java(installed: Environment) -> None:
    program = "import shutil, os; print(shutil.which('java'), os.environ.get('JAVA_HOME'))"
    assert installed.run("python", "-c", program).stdout == "None None\n"


def test_it_answers_a_query(installed: Environment) -> None:
    query = "SELECT ?room { ?sensor <http://ex/in> ?room }"
    done = installed.run("wukongs", "query", "--data", "rooms.ttl", "--format", "csv", query)
    assert done.stdout.split() == ["room", "http://ex/kitchen"]


def test_a_run_needs_no_java_if_it_is_local(installed: Environment) -> None:
    examples = ROOT / "examples"
    done = installed.run("wukongs", "run", "--local", "--plain", str(examples / "tweets.toml"))
    assert "QC" in done.stdout
    done = installed.run("wukongs", "run", "--plain", str(examples / "tweets.toml"), status=2)
    assert "needs Java" in done.stderr
    assert "wukongs run --local" in done.stderr


@pytest.fixture
def address(installed: Environment) -> Iterator[str]:
    command = [str(installed.programs / "wukongs"), "serve", "--data", "rooms.ttl", "--port", "0"]
    with child(command, cwd=installed.folder, env=installed.variables) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


def test_it_serves(address: str) -> None:
    query = quote("ASK { <http://ex/s1> <http://ex/in> <http://ex/kitchen> }")
    with urllib.request.urlopen(f"{address}/sparql?query={query}&format=json", timeout=RUN_S) as answer:
        assert json.load(answer)["boolean"] is True
