"""The documentation as a site: it is built without a warning, and its pages ask no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path

import pytest

import wukongs
from wukongs.cli import COMMANDS
from wukongs.settings import Settings

pytest.importorskip("mkdocs")
pytest.importorskip("material")
ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = re.compile(r"(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    given = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Loaded(HTMLParser):
    """What a browser loads for a page: links that are followed by a click are not among it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        if tag == "link" and given.get("rel") != "canonical":
            self.found.append(given.get("href") or "")
        elif tag != "a":
            self.found += [given.get(name) or "" for name in ("src", "srcset", "data", "poster") if name in given]


def loaded_by(page: str) -> list[str]:
    parser = Loaded()
    parser.feed(page)
    return parser.found


def pages_of(site: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(site.rglob("*.html")):
        yield str(path.relative_to(site)), path.read_text("utf-8")


@pytest.mark.slow
def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = dict(pages_of(site))
    assert len(pages) > 100
    assert {name: one for name, text in pages.items() for one in loaded_by(text) if ELSEWHERE.match(one)} == {}
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text("utf-8")), style
    # The theme's script fetches a library for such blocks, and counts for such a source: there are none.
    assert not any('class="mermaid"' in text or "md-source" in text for text in pages.values())


@pytest.mark.slow
def test_the_search_index_and_what_is_loaded_are_there(site: Path) -> None:
    assert (site / "search" / "search_index.json").stat().st_size > 100_000
    for name, text in pages_of(site):
        for one in loaded_by(text):
            path = one.partition("?")[0].partition("#")[0]
            if path and not path.startswith(("data:", "/")):
                assert ((site / name).parent / path).exists(), f"{name}: {one}"


@pytest.mark.slow
def test_the_pages_that_are_made_have_everything(site: Path) -> None:
    pages = dict(pages_of(site))
    for command in COMMANDS:
        assert f'id="wukongs-{command}"' in pages["reference/commands.html"]
    assert 'id="wukongs-cluster-drain"' in pages["reference/commands.html"]
    for option in fields(Settings):
        assert f"<code>{option.name}</code>" in pages["reference/settings.html"]
    for name in ("Engine.load", "Stream.push", "ContinuousQuery.why", "Result.arrow", "wukongs.connect"):
        assert f'id="{name.lower().replace(".", "")}"' in pages["reference/python.html"], name
    assert "restore_progress" not in pages["reference/python.html"], "a method that docs/api.md does not list"
    for name in wukongs.__all__:
        if name.endswith("Error"):
            assert name in pages["reference/python.html"]
    for decision in (ROOT / "docs" / "decisions").glob("*.md"):
        assert f"../decisions/{decision.stem}.html" in pages["reference/decisions.html"]


def test_what_a_page_loads_is_told_from_where_it_leads() -> None:
    page = '<a href="https://a.org"></a><link rel="stylesheet" href="//b.org/c.css"><script src="d.js"></script>'
    assert loaded_by(page) == ["//b.org/c.css", "d.js"]
    assert [bool(ELSEWHERE.match(one)) for one in loaded_by(page)] == [True, False]
