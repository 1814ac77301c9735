"""Links between pages, from README, ARCHITECTURE and all of docs/: files and headings that they name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]*)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`|^ {4}.*?$", re.MULTILINE | re.DOTALL)


def links_in(text: str) -> list[str]:
    return [link for link in LINK.findall(CODE.sub("", text)) if not re.match(r"[a-z]+:", link)]


def anchors_of(text: str) -> set[str]:
    """Return the anchors that both GitHub and MkDocs give to the headings of a page."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    heads = [re.sub(r"`|\*\*", "", head) for head in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)]
    github = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
    return github & {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    lost = []
    for link in links_in(text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target.read_text("utf-8"))):
            lost.append(link)
    assert lost == []


def test_lost_links_are_seen() -> None:
    assert links_in("[a](b.md#c) `[x](y)` [w](https://e.org)\n```\n[z](z)\n```\n[d](#e)") == ["b.md#c", "#e"]
    assert anchors_of("# The `A` of b\n```\n# no\n```\n## C, d\n") == {"the-a-of-b", "c-d"}
    assert anchors_of("## Back up, restore\n## A - b\n") == {"back-up-restore"}


def test_every_page_of_the_site_is_in_its_navigation() -> None:
    """MkDocs says so, too; this test does without it."""
    named = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if ROOT / "docs" in page.parents}
    made = {name for name in named if name.startswith("reference/")}
    assert named - made == {name for name in pages if not name.startswith("decisions/")}
