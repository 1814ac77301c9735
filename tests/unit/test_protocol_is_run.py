"""The arguments about the protocol are about code that nodes run: no symbol of it is called by tests alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import PROJECT_ROOT

PROTOCOL = PROJECT_ROOT / "wukongs" / "protocol"
CHECKED = "*Checked:*"


def read_names(folder: Path) -> set[str]:
    """Return the names that the code in a folder reads, each outside of what it defines: variables and attributes."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        waiting: list[tuple[ast.AST, frozenset[str]]] = [(ast.parse(path.read_text("utf-8")), frozenset())]
        while waiting:
            node, inside = waiting.pop()
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                inside |= {node.name}
            name = None
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                name = node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                name = node.attr
            if name is not None and name not in inside:
                found.add(name)
            waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found


def quoted(text: str) -> set[str]:
    """Return the names in backticks, of `a.b` the last one. Files, and what is no name, are left out."""
    found = [one.split("(")[0].rsplit(".", 1) for one in re.findall(r"`([^`\n]+)`", text)]
    return {parts[-1] for parts in found if parts[-1].isidentifier() and parts[-1] not in ("py", "txt")}


def defined(path: Path) -> Iterator[str]:
    """Return the functions, methods and classes of a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("__"):
            yield node.name


@pytest.fixture(scope="module")
def run_by_nodes() -> set[str]:
    return read_names(PROJECT_ROOT / "wukongs")


def test_all_of_the_protocol_is_called_by_the_product(run_by_nodes: set[str]) -> None:
    unused = {f"{path.stem}.{name}" for path in PROTOCOL.glob("*.py") for name in defined(path)}
    unused = {name for name in unused if name.partition(".")[2] not in run_by_nodes}
    assert not unused, f"only tests call {sorted(unused)}: let nodes use them, or delete them"


def test_the_page_names_what_nodes_run_and_what_checks_it(run_by_nodes: set[str]) -> None:
    page = (PROJECT_ROOT / "docs" / "protocol.md").read_text("utf-8")
    assert page.count(CHECKED) >= 8
    checking = read_names(PROJECT_ROOT / "tests" / "sim")
    checking |= {name for path in (PROJECT_ROOT / "tests" / "sim").glob("*.py") for name in defined(path)}
    checking |= {path.stem for path in (PROJECT_ROOT / "tests" / "model").glob("*.py")}
    for paragraph in page.split("\n\n"):
        said, _, checked = paragraph.partition(CHECKED)
        assert quoted(said) <= run_by_nodes, f"no node runs {sorted(quoted(said) - run_by_nodes)}"
        assert quoted(checked) <= checking, f"nothing in tests is called {sorted(quoted(checked) - checking)}"


@pytest.mark.parametrize("path", sorted(PROTOCOL.glob("*.py")), ids=lambda path: path.stem)
def test_docstrings_of_the_protocol_name_what_nodes_run(path: Path, run_by_nodes: set[str]) -> None:
    module = ast.parse(path.read_text("utf-8"))
    documented = [module, *(one for one in ast.walk(module) if isinstance(one, ast.FunctionDef | ast.ClassDef))]
    names = {name for one in documented for name in quoted(ast.get_docstring(one) or "")}
    assert names <= run_by_nodes, f"no node runs {sorted(names - run_by_nodes)}"


def test_a_name_that_nobody_reads_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def alone(n):\n    return alone(n - 1) + n.used\n\ndef other():\n    return n\n")
    assert read_names(tmp_path) == {"used", "n"}
    assert quoted("`Model.at`, `step(node, event) -> (node, actions)`, `tests/sim`, `terms.py`") == {"at", "step"}
