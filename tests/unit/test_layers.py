"""The rooms and their order (DESIGN.md, section 2), held by reading every import of every module; nothing is executed.

Imports inside of functions and imports for types count as much as others: they tie modules together just the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("csparql", "store", "wukongs", "adapters", "bench")
"""The folders of what is imported; all but wukongs itself are imported as wukongs.<folder>."""
ROOMS = (
    "errors",
    "outcomes",
    "consistency",
    "forks",
    "csparql",
    "store",
    "settings",
    "query.scheduler",
    "query.memory",
    "query.limits",
    "query.spill_files",
    "query.mechanisms",
    "query.refusals",
    "query.rows_kernels",
    "query.rows",
    "query.counted_rows_kernels",
    "query.counted_rows",
    "query.terms",
    "query.binding_table",
    "query.plans",
    "query.reach",
    "query.output",
    "query.functions",
    "query.expressions",
    "query.operators",
    "query.paths",
    "query.execution",
    "query.programs",
    "incremental",
    "rules",
    "live",
    "durable",
    "protocol",
    "wire",
    "remote",
    "engine",
    "cluster.reads",
    "cluster",
    "adapters",
    "server",
    "cli",
    "bench",
)
"""From the ground up: a module imports its own room and rooms above it in this list."""
IMPORTS_ONLY = {
    "errors": set[str](),
    "outcomes": set[str](),
    "consistency": {"errors"},
    "forks": {"errors"},
    "csparql": {"errors"},
    "store": {"errors", "forks"},
    "settings": {"errors"},
    "protocol": {"errors", "outcomes"},
}
"""Rooms that import less than all that stands above them."""
AT_ROOT = {"__init__", "__main__", "consistency", "engine", "errors", "forks", "outcomes", "settings"}
BY_FUNCTIONS_ONLY = {("cli", "adapters"), ("cli", "bench")}
"""(importer, imported): only inside of functions, so that `wukongs --help` is there at once."""
ONLY_HOME = {
    "pyspark": ("adapters/",),
    "zmq": (
        "wukongs/wire/context.py",
        "wukongs/wire/transport.py",
        "wukongs/wire/bound_socket.py",
        "bench/wire/",
    ),
    "numba": ("store/jit.py", "store/addresses.py"),
}


@dataclass(frozen=True)
class Import:
    """One imported module. at_top: runs when the importing module is imported (not in a function, not for types)."""

    module: str
    line: int
    at_top: bool


def imports_of(source: str, package: str) -> list[Import]:
    """Return what a module imports; package: the dotted name that relative imports start from."""
    found: list[Import] = []

    def visit(node: ast.AST, at_top: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, at_top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            # A name may be a module of that package: `from wukongs.store import dtypes` imports wukongs.store.dtypes.
            found.extend(
                Import(full if is_module(full := f"{module}.{alias.name}") else module, node.lineno, at_top)
                for alias in node.names
            )
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for statement in node.body:
                visit(statement, False)
            for statement in node.orelse:
                visit(statement, at_top)
        else:
            inner = at_top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):  # no expression imports anything
                    visit(child, inner)

    visit(ast.parse(source), True)
    return found


def imported_as(file: str) -> str:
    """Return the dotted name under which a file or folder of ours, relative to the root, is imported."""
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if name.split(".")[0] == "wukongs" else f"wukongs.{name}"


def sources(*folders: str) -> list[str]:
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


MODULES = {imported_as(file): file for file in sources(*FOLDERS)}


def is_module(name: str) -> bool:
    return name in MODULES


@cache
def imports_in(file: str) -> list[Import]:
    package = imported_as(file if file.endswith("__init__.py") else file.rpartition("/")[0])
    return imports_of((ROOT / file).read_text("utf-8"), package)


def every_import() -> Iterator[tuple[str, Import]]:
    for file in MODULES.values():
        for imported in imports_in(file):
            yield file, imported


def room_of(module: str) -> str | None:
    """Return the room of a module of ours; None for others, for the public face and for packages of several rooms."""
    name = module.removeprefix("wukongs.")
    found = [room for room in ROOMS if name == room or name.startswith(f"{room}.")]
    return max(found, key=len) if found and module.startswith("wukongs.") else None


def forbidden(file: str, imported: Import) -> str | None:
    """Return why a file of ours may not import this, or None."""
    first = imported.module.split(".")[0]
    if first in FOLDERS and first != "wukongs":
        return f"it is imported as wukongs.{imported.module}"
    if first in ONLY_HOME and not any(file.startswith(home) for home in ONLY_HOME[first]):
        return f"{first} is imported in {' and '.join(ONLY_HOME[first])} only"
    room, target = room_of(imported_as(file)), room_of(imported.module)
    if room is None or target is None or target == room:
        return None
    if (room, target) in BY_FUNCTIONS_ONLY and imported.at_top:
        return f"{room} imports {target} inside of functions"
    if ROOMS.index(target) > ROOMS.index(room) or target not in IMPORTS_ONLY.get(room, {target}):
        return f"{room} may not import {target}"
    return None


def test_imports_point_one_way() -> None:
    wrong = [
        f"{file}:{imported.line} imports {imported.module}: {reason}"
        for file, imported in every_import()
        if (reason := forbidden(file, imported))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_module_has_a_room() -> None:
    homeless = [
        file
        for module, file in MODULES.items()
        if room_of(module) is None and not file.endswith(("__init__.py", "__main__.py"))
    ]
    assert not homeless, f"no room for {', '.join(homeless)}"


def test_the_root_of_wukongs_stays_small() -> None:
    at_root = {path.stem for path in (ROOT / "wukongs").glob("*.py")}
    rooms = {room.split(".")[0] for room in ROOMS}
    folders = {path.parent.name for path in (ROOT / "wukongs").glob("*/__init__.py")}
    assert at_root | {"settings"} == AT_ROOT
    assert folders == rooms - {"errors", "outcomes", "consistency", "forks", "engine"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for module, file in MODULES.items():
        if not file.endswith("__init__.py"):
            targets = {imported.module for imported in imports_in(file)} & MODULES.keys() - {module}
            graph[module] = {target for target in targets if not MODULES[target].endswith("__init__.py")}
    circle = find_circle(graph)
    assert circle is None, " -> ".join(circle or [])


def find_circle(graph: dict[str, set[str]]) -> list[str] | None:
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str] | None:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        for target in sorted(graph[name]):
            circle = walk(target, [*path, name])
            if circle:
                return circle
        done.add(name)
        return None

    return next((circle for name in sorted(graph) if (circle := walk(name, []))), None)


def bases_of(source: str) -> list[tuple[str, str]]:
    """Return the classes of a source with the names of their bases, as they are imported: (class, module.name)."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found = []
    for node in ast.walk(tree):
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            first, _, rest = ast.unparse(base).partition(".")
            found.append((node.name, imported.get(first, first) + (f".{rest}" if rest else "")))
    return found


def inherited_from_an_engine(source: str) -> list[str]:
    """Return the classes of a source that inherit from a class of live/ or from Engine."""
    return [name for name, base in bases_of(source) if base.startswith(("wukongs.live.", "wukongs.engine."))]


def test_no_class_of_the_cluster_inherits_from_one_of_an_engine() -> None:
    files = sources("wukongs/cluster")
    assert len(files) > 20
    wrong = [f"{file}: {name}" for file in files for name in inherited_from_an_engine((ROOT / file).read_text("utf-8"))]
    assert not wrong, "\n".join(wrong)


def test_a_class_that_inherits_from_one_of_an_engine_is_seen() -> None:
    assert inherited_from_an_engine("from wukongs.live.core import Core as Base\nclass A(Base): pass") == ["A"]
    assert inherited_from_an_engine("from wukongs.live import core\nclass A(core.Core): pass") == ["A"]
    assert inherited_from_an_engine("import wukongs.engine\nclass A(wukongs.engine.Engine): pass") == ["A"]
    assert inherited_from_an_engine("from wukongs.live.core import Core\nclass A:\n    core: Core") == []


PUBLIC_MODULES = {"wukongs", "wukongs.errors", "wukongs.settings"}
"""The modules of the product that a scenario may import: those that users import, and values."""


def private_names(source: str) -> list[tuple[int, str]]:
    """Return where a source reads, or names as a text to patch, an attribute that begins with one underscore."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            found.append((node.lineno, node.attr))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"_[a-z]\w*", node.value):
            found.append((node.lineno, node.value))
    return found


def beyond_the_public_face(source: str) -> list[str]:
    """Return what a source imports of the product that a user does not."""
    modules = (found.module for found in imports_of(source, "tests.scenarios"))
    return [name for name in modules if name.split(".")[0] in FOLDERS and name not in PUBLIC_MODULES]


def test_scenarios_reach_the_product_by_its_public_names() -> None:
    wrong = []
    for file in sources("tests/scenarios"):
        source = (ROOT / file).read_text("utf-8")
        wrong += [f"{file}:{line} uses {name}" for line, name in private_names(source)]
        wrong += [f"{file} imports {module}" for module in beyond_the_public_face(source)]
    assert not wrong, "\n".join(wrong)


def test_a_private_name_is_seen() -> None:
    assert not beyond_the_public_face("from wukongs import Engine\nfrom wukongs.settings import Settings")
    assert beyond_the_public_face("from wukongs import cluster\nfrom wukongs.engine import Engine") == [
        "wukongs.cluster",
        "wukongs.engine",
    ]
    assert private_names("engine._core.lock") == [(1, "_core")]
    assert private_names("self._x\nsetattr(engine, '_y', 1)") == [(1, "_x"), (2, "_y")]
    assert private_names("f(engine.core, __file__, 'a _b', '_:b', x.__class__)") == []


def test_every_folder_with_python_is_a_package() -> None:
    folders = {(ROOT / file).parent for file in sources(*FOLDERS, "tests")}
    bare = [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").is_file()]
    assert not bare, f"no __init__.py in {', '.join(bare)}"


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("csparql/parser.py", "import wukongs.store.dtypes"),
        ("csparql/parser.py", "from wukongs.engine import Engine"),
        ("csparql/parser.py", "def f():\n    from wukongs.query.output.results import Result"),
        ("csparql/parser.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import wukongs.live.core"),
        ("store/batch.py", "from wukongs.csparql.terms import Term"),
        ("store/batch.py", "import numba"),
        ("wukongs/errors.py", "from wukongs.settings import Settings"),
        ("wukongs/settings/toml_reader.py", "from wukongs.store.dtypes import UNBOUND"),
        ("wukongs/query/plans/dataset.py", "from wukongs.query.execution import answer"),
        ("wukongs/live/core.py", "def f():\n    from wukongs.durable.durability import DurableJournal"),
        ("wukongs/protocol/node.py", "from wukongs.store.dtypes import UNBOUND"),
        ("wukongs/remote/client.py", "from wukongs.engine import Engine"),
        ("wukongs/engine.py", "from wukongs.cluster.cluster_backend import ClusterBackend"),
        ("wukongs/engine.py", "from wukongs.adapters.replay import Replay"),
        ("wukongs/engine.py", "def f():\n    import wukongs.adapters.run"),
        ("wukongs/cli/run.py", "from wukongs.adapters.run import run"),
        ("wukongs/remote/client.py", "import zmq"),
        ("wukongs/engine.py", "from numba import njit"),
        ("wukongs/engine.py", "import pyspark.sql"),
        ("adapters/replay.py", "from store.encoder import encode_columns"),
        ("adapters/replay.py", "from ..cli import query"),
        ("adapters/replay.py", "import wukongs.bench.harness"),
    ],
)
def test_an_arrow_that_points_up_is_seen(file: str, statement: str) -> None:
    package = imported_as(file.rpartition("/")[0])
    assert any(forbidden(file, found) for found in imports_of(statement, package)), statement


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("csparql/parser.py", "from wukongs.errors import QuerySyntaxError"),
        ("store/jit.py", "import numba"),
        ("store/batch.py", "from .dtypes import UNBOUND"),
        ("wukongs/cli/run.py", "def f():\n    from wukongs.adapters.run import run"),
        ("wukongs/wire/transport.py", "import zmq"),
        ("adapters/spark/session.py", "from pyspark.sql import SparkSession"),
        ("bench/lsbench/run.py", "from wukongs.csparql.parser import parse_query\nimport wukongs.adapters.replay"),
    ],
)
def test_an_arrow_that_points_down_is_let_through(file: str, statement: str) -> None:
    package = imported_as(file.rpartition("/")[0])
    assert not any(forbidden(file, found) for found in imports_of(statement, package)), statement


def test_relative_imports_are_followed() -> None:
    assert imports_of("from ..store.batch import Batch", "wukongs.live")[0].module == "wukongs.store.batch"
    assert imports_of("from . import dtypes", "wukongs.store")[0].module == "wukongs.store.dtypes"


def test_imports_for_types_and_in_functions_are_told_apart() -> None:
    source = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\nelse:\n    import b\n"
        "def f():\n    import c\n"
    )
    found = {imported.module: imported.at_top for imported in imports_of(source, "x")}
    assert found == {"typing": True, "a": False, "b": True, "c": False}


def test_a_circle_is_found() -> None:
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert find_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None
