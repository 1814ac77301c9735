"""Every imported module is called wukongs, wherever it comes from: a checkout, a wheel or an editable install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest

FOLDERS = ("wukongs", "store", "csparql", "adapters", "bench", "src")
USERS_OWN = ("store", "csparql", "adapters", "bench")


@dataclass(frozen=True)
class Installed:
    """A Python that finds wukongs. on_path: the folders to put into PYTHONPATH."""

    python: Path
    on_path: tuple[Path, ...] = ()

    def run(self, *arguments: str, cwd: Path) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if self.on_path:
            environment["PYTHONPATH"] = os.pathsep.join(map(str, self.on_path))
        done = subprocess.run(
            [str(self.python), *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def copy(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone named wukongs, to build in."""
    folder = tmp_path_factory.mktemp("above") / "wukongs"
    folder.mkdir()
    for name in FOLDERS:
        shutil.copytree(project_root / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(project_root / name, folder)
    for name in ("page.html", "parts/page.js", "parts/page.css"):
        file = folder / "wukongs" / "server" / "console" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("made by a test\n")
    return folder


@pytest.fixture(scope="module")
def wheel(copy: Path) -> Path:
    return built(copy, "wheel")


def built(copy: Path, kind: str) -> Path:
    """Build a wheel or an editable wheel as pip does, without a network."""
    program = f"from setuptools import build_meta; build_meta.build_{kind}('dist-{kind}')"
    (copy / f"dist-{kind}").mkdir()
    subprocess.run([sys.executable, "-c", program], cwd=copy, capture_output=True, check=True)
    [found] = (copy / f"dist-{kind}").glob("*.whl")
    return found


def environment_with(wheel: Path, folder: Path) -> Installed:
    """Unpack a wheel into an environment of its own, which finds the other packages where this one has them."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # A line of a .pth file adds a folder, but does not read the .pth files in it: our own install stays out.
    (packages / "others.pth").write_text(f"{Path(numpy.__file__).parents[1]}\n")
    return Installed(folder / "bin" / "python")


@pytest.fixture(scope="module", params=["checkout", "wheel", "editable"])
def installed(
    request: pytest.FixtureRequest, copy: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    if request.param == "checkout":
        return Installed(Path(sys.executable), on_path=(copy,))
    folder = tmp_path_factory.mktemp(request.param)
    return environment_with(wheel if request.param == "wheel" else built(copy, "editable"), folder)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A user's folder with modules that are named like folders of ours."""
    for name in USERS_OWN:
        (tmp_path / f"{name}.py").write_text("IS_THE_USERS = True\n")
    return tmp_path


def test_a_wheel_brings_one_name_and_all_packages(wheel: Path, copy: Path, project_root: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in names} == {"wukongs"}
    ours = {path.relative_to(project_root) for path in (project_root / "wukongs").rglob("*.py")}
    linked = {
        Path("wukongs", path.relative_to(project_root))
        for folder in ("store", "csparql", "adapters", "bench")
        for path in (project_root / folder).rglob("*.py")
    }
    console = {path.relative_to(copy) for path in (copy / "wukongs/server/console").rglob("*") if path.is_file()}
    assert Path("wukongs/server/console/parts/page.js") in console
    rules = {path.relative_to(copy) for path in (copy / "wukongs/rules/library").glob("*.rules")}
    assert Path("wukongs/rules/library/rdfs.rules") in rules
    tpch = {
        Path("wukongs/bench/views/tpch", f"q{number:02d}.{end}") for number in range(1, 23) for end in ("rq", "sql")
    }
    queries = {Path("wukongs", path.relative_to(copy)) for path in copy.glob("bench/*/queries/*.rq")}
    assert Path("wukongs/bench/lsbench/queries/L1.rq") in queries
    peers = {"README.md", "jena/JenaPeer.java", "jena/jars.txt"}
    peers |= {f"dd/{name}" for name in ("Cargo.toml", "Cargo.lock", "src/main.rs", "src/views.rs")}
    peers |= {f"rsp_js/{name}" for name in ("package.json", "package-lock.json", "peer.cjs")}
    others = {Path("wukongs/py.typed"), *(Path("wukongs/bench/peers", name) for name in peers)}
    assert {Path(name) for name in names} == ours | linked | console | rules | queries | tpch | others


@pytest.mark.rare
@pytest.mark.slow
def test_an_installed_package_runs_benchmarks(
    wheel: Path, users: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    installed = environment_with(wheel, tmp_path_factory.mktemp("bench"))
    told = installed.run("-m", "wukongs", "bench", "lsbench", "--quick", "--experiment", "latency,one-shot", cwd=users)
    assert "commit none" in told
    assert "| L6 | wukongs | users 60, rate 1.0 | latency, ms |" in told
    assert "| S6 | wukongs | users 60 | execution, ms |" in told


@pytest.mark.slow
def test_a_users_own_modules_keep_their_names(installed: Installed, users: Path) -> None:
    (users / "main.py").write_text(
        "import store, csparql, adapters, bench\n"
        "assert store.IS_THE_USERS and csparql.IS_THE_USERS and adapters.IS_THE_USERS and bench.IS_THE_USERS\n"
        "import wukongs, wukongs.adapters.run, wukongs.csparql.parser, wukongs.store.trace\n"
        "print(len(wukongs.parse_query('SELECT * { ?s ?p ?o }').variables), wukongs.Engine.__name__)\n"
    )
    assert installed.run("main.py", cwd=users) == "3 Engine\n"


def test_a_spawned_process_finds_it(installed: Installed, users: Path) -> None:
    (users / "main.py").write_text(
        "import multiprocessing\n"
        "from wukongs.csparql.terms import iri\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.apply(iri, ('http://e/a',)).text)\n"
    )
    assert installed.run("main.py", cwd=users) == "<http://e/a>\n"


@pytest.mark.slow
def test_it_is_found_beside_a_clone_that_is_named_wukongs(installed: Installed, copy: Path) -> None:
    program = "import wukongs, wukongs.store.terms; print(wukongs.Engine.__name__)"
    assert installed.run("-c", program, cwd=copy.parent) == "Engine\n"


def test_our_folders_are_no_names_of_their_own(installed: Installed, tmp_path: Path) -> None:
    if installed.on_path:
        pytest.skip("who puts a checkout into PYTHONPATH has put its folders there")
    program = (
        "import importlib.util, wukongs\n"
        f"print([name for name in {(*USERS_OWN, 'tests', 'tools', 'docs')} if importlib.util.find_spec(name)])"
    )
    assert installed.run("-c", program, cwd=tmp_path) == "[]\n"


def test_no_module_is_loaded_under_two_names(project_root: Path) -> None:
    """Import every module that there is, from the root of the checkout, where `import store` would work too."""
    program = (
        "import importlib, os, pkgutil, sys, wukongs\n"
        "for found in pkgutil.walk_packages(wukongs.__path__, 'wukongs.'):\n"
        "    if not found.name.endswith('__main__'):\n"
        "        importlib.import_module(found.name)\n"
        "files = {}\n"
        "for name, module in list(sys.modules.items()):\n"
        "    if getattr(module, '__file__', None):\n"
        "        files.setdefault(os.path.realpath(module.__file__), set()).add(module.__name__)\n"
        f"ours = {{file: names for file, names in files.items() if file.startswith({str(project_root)!r} + os.sep)}}\n"
        "print(len(ours) > 400, [names for names in ours.values() if len(names) > 1])\n"
        f"print([name for name in {USERS_OWN} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=project_root, capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n[]\n"


@pytest.mark.slow
@pytest.mark.spark
def test_the_pipeline_finds_it_beside_a_users_own_modules(users: Path) -> None:
    for name in USERS_OWN:
        (users / f"{name}.py").write_text("raise RuntimeError('this is not the module that you look for')\n")
    command = [sys.executable, "-m", "wukongs", "demo", "--plain", "--users", "30", "--seconds", "2"]
    done = subprocess.run(command, cwd=users, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
