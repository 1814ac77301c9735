"""The picture of DESIGN.md, section 2, held by reading the imports of every module; nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("csparql", "store", "wukongs", "adapters", "bench")
"""The folders of what is imported; all but wukongs itself are imported as wukongs.<folder>."""
MAY_IMPORT = {
    "csparql": {"csparql"},
    "store": {"store"},
    "wukongs": {"wukongs", "csparql", "store"},
    "adapters": {"adapters", "wukongs", "store"},
    "bench": {"bench", "adapters", "wukongs", "csparql", "store"},
}
PARTS = (
    "protocol",
    "wire",
    "terms",
    "plans",
    "output",
    "functions",
    "streams",
    "expressions",
    "operators",
    "paths",
    "execution",
    "sharded",
    "continuous",
    "injection",
    "updates",
    "durable",
    "loading",
    "remote",
    "nodes",
    "cli",
)
"""The packages inside of wukongs/: each imports only what stands before it, and modules of wukongs/ itself."""
LEAF = "wukongs.errors"
ONLY_HOME = {
    "pyspark": ("adapters/",),
    "zmq": (
        "wukongs/wire/context.py",
        "wukongs/wire/transport.py",
        "wukongs/wire/bound_socket.py",
        "wukongs/wire/doorkeeper.py",
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
            # Each name may be a module of that package: `from store import dtypes` imports store.dtypes.
            found.append(Import(module, node.lineno, at_top))
            found.extend(Import(f"{module}.{alias.name}", node.lineno, at_top) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.body:
                visit(statement, False)
            for statement in node.orelse:
                visit(statement, at_top)
        else:
            inner = at_top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                visit(child, inner)

    visit(ast.parse(source), True)
    return found


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return imported_as(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


def package_of(path: Path) -> str:
    return imported_as(".".join(path.relative_to(ROOT).parent.parts))


def imported_as(name: str) -> str:
    return name if name.split(".")[0] == "wukongs" else f"wukongs.{name}"


def folder_of(module: str) -> str:
    """Return the folder of PACKAGES that a module is in; for one of somebody else, its first name."""
    first, _, rest = module.partition(".")
    second = rest.partition(".")[0]
    return second if first == "wukongs" and second in PACKAGES else first


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def every_import() -> Iterator[tuple[str, Import]]:
    for path in sources(*PACKAGES):
        for imported in imports_of(path.read_text("utf-8"), package_of(path)):
            yield path.relative_to(ROOT).as_posix(), imported


def forbidden(file: str, imported: Import) -> str | None:
    """Return why a file of ours may not import this, or None."""
    package = file.split("/")[0]
    target = folder_of(imported.module)
    if imported.module.split(".")[0] in PACKAGES[:2] + PACKAGES[3:]:
        return f"it is imported as wukongs.{imported.module}"
    if target in ONLY_HOME and not any(file.startswith(home) for home in ONLY_HOME[target]):
        return f"{target} is imported in {' and '.join(ONLY_HOME[target])} only"
    if target not in PACKAGES or target in MAY_IMPORT[package]:
        return None
    if imported.module == LEAF or imported.module.startswith(LEAF + "."):
        return None
    if package in ("csparql", "store") and imported.module == "wukongs":
        return None if file_imports_only_the_leaf(file, imported.line) else "of wukongs, only wukongs.errors"
    if file.startswith("wukongs/cli/") and target in ("adapters", "bench"):
        return "commands import adapters and bench inside of functions" if imported.at_top else None
    return f"{package} may import {', '.join(sorted(MAY_IMPORT[package]))}, not {target}"


def file_imports_only_the_leaf(file: str, line: int) -> bool:
    """Tell whether the statement on this line is `from wukongs import errors`."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return any(
        isinstance(node, ast.ImportFrom) and node.lineno == line and [alias.name for alias in node.names] == ["errors"]
        for node in ast.walk(tree)
    )


def test_imports_point_down_only() -> None:
    wrong = [
        f"{file}:{imported.line} imports {imported.module}: {reason}"
        for file, imported in every_import()
        if (reason := forbidden(file, imported))
    ]
    assert not wrong, "\n".join(wrong)


def test_parts_of_the_engine_import_parts_before_them() -> None:
    folders = {path.parent.name for path in (ROOT / "wukongs").glob("*/__init__.py") if not path.parent.is_symlink()}
    assert folders == set(PARTS), "a part has its place in PARTS"
    wrong = [
        f"{file}:{imported.line} imports {imported.module}"
        for file, imported in every_import()
        if imported.at_top  # for types, or when a function runs, it may be the other way round
        and (importer := _part(file.removesuffix(".py").replace("/", "."))) is not None
        and (target := _part(imported.module)) is not None
        and PARTS.index(target) > PARTS.index(importer)
    ]
    assert not wrong, "\n".join(wrong)


def _part(module: str) -> str | None:
    names = module.split(".")
    return names[1] if len(names) > 1 and names[0] == "wukongs" and names[1] in PARTS else None


def test_the_leaf_of_errors_imports_nothing() -> None:
    path = ROOT / "wukongs" / "errors.py"
    assert {found.module.split(".")[0] for found in imports_of(path.read_text("utf-8"), "wukongs")} == {"__future__"}


def test_no_module_imports_itself_in_a_circle() -> None:
    modules = {module_name(path): path for path in sources(*PACKAGES)}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        targets = {found.module for found in imports_of(path.read_text("utf-8"), package_of(path)) if found.at_top}
        # Our own package's __init__ is not counted: Python has it half-built by then, and it holds no names of ours.
        graph[name] = {target for target in targets if target in modules and target not in map(imported_as, PACKAGES)}
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


def test_every_folder_with_python_is_a_package() -> None:
    folders = {path.parent for path in sources(*PACKAGES, "tests")}
    bare = [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").is_file()]
    assert not bare, f"no __init__.py in {', '.join(bare)}"


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("csparql/parser.py", "import wukongs.store.dtypes"),
        ("csparql/parser.py", "from wukongs.engine import Engine"),
        ("csparql/parser.py", "def f():\n    from wukongs.query.output.results import Result"),
        ("store/batch.py", "from wukongs.csparql.terms import Term"),
        ("store/batch.py", "import numba"),
        ("wukongs/engine.py", "from wukongs.adapters.replay import Replay"),
        ("wukongs/engine.py", "def f():\n    import wukongs.adapters"),
        ("wukongs/cli/run.py", "from wukongs.adapters.run import run"),
        ("wukongs/node.py", "import zmq"),
        ("wukongs/node.py", "from numba import njit"),
        ("wukongs/node.py", "import pyspark.sql"),
        ("adapters/replay.py", "from wukongs.csparql.parser import parse_query"),
        ("adapters/replay.py", "from store.encoder import encode_columns"),
        ("tests/conftest.py", "import bench"),
        ("adapters/replay.py", "from ..wukongs_of_none import x\nimport wukongs.bench"),
    ],
)
def test_an_arrow_that_points_up_is_seen(file: str, statement: str) -> None:
    package = imported_as(file.rpartition("/")[0].replace("/", "."))
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
    package = imported_as(file.rpartition("/")[0].replace("/", "."))
    assert not any(forbidden(file, found) for found in imports_of(statement, package)), statement


def test_relative_imports_are_followed() -> None:
    assert imports_of("from ..b import c", "a.x.y")[0].module == "a.x.b"
    assert imports_of("from . import c", "a.x")[1].module == "a.x.c"


def test_imports_for_types_only_make_no_circle() -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\nelse:\n    import b\n"
    found = {imported.module: imported.at_top for imported in imports_of(source, "x")}
    assert found["a"] is False
    assert found["b"] is True


def test_a_circle_is_found() -> None:
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert find_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None
