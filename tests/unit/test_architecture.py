"""ARCHITECTURE.md walks the four ways as the code does, and the pages name files that exist."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "ARCHITECTURE.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OF_USERS = {"store.py", "adapters.py"}
"""Files that a user may have, and that we have not."""
LINES_MAX = 300
WAYS = ("(a)", "(b)", "(c)", "(d)")
STEP = re.compile(r"\d+\. (?:\*(?P<by>[^*]+):\* )?`(?P<file>[^`: ]+): (?P<name>[\w.]+)` \S.*[.:]")
FOLDERS = ("wukongs", "csparql", "store", "adapters", "bench", "tests", "docs", "examples", "tools")


@dataclass(frozen=True)
class Step:
    """One function of a way. by: who calls it, where that is no step before: another thread, Spark, another node."""

    by: str | None
    file: str
    name: str


def ways_in(text: str) -> dict[str, list[Step]]:
    """Return the steps under each heading `### (x) ...`. Raises ValueError for a numbered line that is no step."""
    ways: dict[str, list[Step]] = {}
    steps: list[Step] | None = None
    for line in text.splitlines():
        if line.startswith(("# ", "## ", "### ")):
            steps = ways.setdefault(line[4:7], []) if line.startswith("### (") else None
        elif steps is not None and re.match(r"\d+\.", line):
            found = STEP.fullmatch(line)
            if found is None:
                raise ValueError(f"expected 'n. `file: function` sentence.', found {line!r}")
            steps.append(Step(found["by"], found["file"], found["name"]))
    return ways


@cache
def definition(file: str, name: str) -> ast.AST | None:
    """Return the function or class of a file, `Class.method` for a method; None if it is not there."""
    node: ast.AST = ast.parse((ROOT / file).read_text("utf-8"))
    for part in name.split("."):
        body = getattr(node, "body", [])
        inside = [one for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == part]
        if not inside:
            return None
        node = inside[0]
    return node


def names_read(node: ast.AST) -> set[str]:
    """Return the names that a function or class reads, of attributes the last part."""
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    return names | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def is_there(path: str, page: Path) -> bool:
    """Tell whether a page names a file or folder: from the root, from wukongs/, from its own folder, or by its name."""
    if any((start / path).exists() for start in (ROOT, ROOT / "wukongs", page.parent)):
        return True
    return "/" not in path and path in file_names()


@cache
def file_names() -> set[str]:
    return {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")}


def paths_in(text: str) -> set[str]:
    """Return what a text names, in backticks or as a link, and is a path of the repository by its looks."""
    quoted = {one.partition(": ")[0] for one in re.findall(r"`([^`\n]+)`", text)}
    linked = set(re.findall(r"\]\(([^)#:\n]+)\)", text))
    is_path = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./-]*|[\w./-]+\.(?:py|md|toml|txt)")
    return {one for one in quoted if is_path.fullmatch(one)} | linked


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text("utf-8")


def test_the_page_is_short(page: str) -> None:
    assert len(page.splitlines()) <= LINES_MAX


def test_every_file_that_is_named_exists(page: str) -> None:
    paths = paths_in(page)
    assert len(paths) > 100
    missing = sorted(path for path in paths if not (ROOT / path).exists())
    assert not missing, f"ARCHITECTURE.md names {', '.join(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_file_that_another_page_names_exists(page: Path) -> None:
    paths = paths_in(page.read_text("utf-8"))
    missing = sorted(path for path in paths - OF_USERS if not is_there(path, page))
    assert not missing, f"{page.name} names {', '.join(missing)}"


def test_every_function_of_the_four_ways_is_where_it_is_said_to_be(page: str) -> None:
    ways = ways_in(page)
    assert tuple(ways) == WAYS
    lost = [
        f"{way} {step.file}: {step.name}"
        for way, steps in ways.items()
        for step in steps
        if not (ROOT / step.file).is_file() or definition(step.file, step.name) is None
    ]
    assert not lost, "\n".join(lost)


def test_every_function_of_the_four_ways_is_named_in_one_before_it(page: str) -> None:
    """A step that something else calls (a thread, Spark, another node) begins with who that is, in italics."""
    for way, steps in ways_in(page).items():
        assert len(steps) > 15, way
        assert steps[0].by is None, way
        known: set[str] = set()
        for number, step in enumerate(steps):
            called = step.name.rpartition(".")[2]
            assert number == 0 or step.by is not None or called in known, f"{way} {step}: no step before names it"
            node = definition(step.file, step.name)
            assert node is not None, step
            known |= names_read(node)


def test_a_step_and_its_caller_are_read() -> None:
    text = "### (a) One\n1. `a/b.py: run` begins.\n2. *a thread:* `a/b.py: C.go` goes on.\n## Two\n1. no step\n"
    assert ways_in(text) == {"(a)": [Step(None, "a/b.py", "run"), Step("a thread", "a/b.py", "C.go")]}
    with pytest.raises(ValueError, match=r"expected 'n\. `file: function` sentence\.'"):
        ways_in("### (a) One\n1. run begins\n")


def test_paths_are_told_from_other_words() -> None:
    text = "`wukongs/live/` and `store/trace.py: Trace`, [a page](docs/wire.md), `Engine.query`, [w](https://a.b/c)"
    assert paths_in(text) == {"wukongs/live/", "store/trace.py", "docs/wire.md"}
