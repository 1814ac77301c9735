"""Docstrings of the product begin with their subject: no sentence with Who or What, no docstring with Of or As."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("wukongs", "csparql", "store", "adapters", "bench", "tools")
SENTENCE = re.compile(r"(?:^|[.!?]\s+|^\s*\* )(?:Who|Whom|Whose|What)\b", re.MULTILINE)
OPENING = re.compile(r"(?:Of|As)\b")


def docstrings_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring: of the module, a class or a function, and below an assignment."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


def is_plain(text: str) -> bool:
    """Tell whether a docstring keeps the rule. A line in the midst of a sentence is no beginning."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n\s*(?=[*|] )", text)]
    return OPENING.match(text) is None and not any(SENTENCE.search(part) for part in paragraphs)


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_begin_with_their_subject(room: str) -> None:
    files = sorted(path for path in (ROOT / room).rglob("*.py") if not any(p.is_symlink() for p in path.parents))
    assert files
    odd = [
        f"{path.relative_to(ROOT)}:{line}: {text[:100]}"
        for path in files
        for line, text in docstrings_in(path.read_text("utf-8"))
        if not is_plain(text)
    ]
    assert odd == []


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("What a reader holds.", False),
        ("The view of a reader. Who closes it twice does no harm.", False),
        ("Rules:\n\n* Who votes tells nobody.", False),
        ("Of this life.", False),
        ("As njit, for small functions.", False),
        ("Tell\nWho is there.", True),
        ("Return the view that tells what is there.\n\nOf two readers, the older one goes.", True),
        ("Whatever comes is counted.", True),
        ("Offsets of the rows. Assume nothing.", True),
    ],
)
def test_the_rule_is_held_as_it_says(text: str, plain: bool) -> None:
    assert is_plain(text) is plain
