"""README, tutorial and how-to pages: every snippet is run as it stands, and prints what the page says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.pages import Reader, blocks_of, is_like, snippets_in
from wukongs.adapters.run_config import load_run_config

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GUIDES = [ROOT / "README.md", DOCS / "index.md", DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md"))]
PAGES = [*GUIDES, DOCS / "live-views.md", DOCS / "rules.md", DOCS / "explanations" / "snapshots.md"]
NOT_RUN_MAX = 10
REASONS = (
    "takes packages from the index",
    "needs a broker of Kafka",
    "needs Docker",
    "needs tokens and a certificate of yours",
    "it does not end",
)


def marks_of(page: Path) -> list[pytest.MarkDecorator]:
    text = page.read_text("utf-8")
    spark = [pytest.mark.spark] if "<!-- slow: Spark" in text else []
    return [*spark, *([pytest.mark.slow] if "<!-- slow" in text else [])]


@pytest.mark.parametrize("page", [pytest.param(one, marks=marks_of(one), id=one.stem) for one in PAGES])
def test_the_snippets_of_a_page_run(page: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    if re.search(r"^curl", text, re.MULTILINE) and shutil.which("curl") is None:
        pytest.skip("curl is not here")
    Reader(tmp_path, ROOT / "examples").follow(text)


def test_few_snippets_are_not_run_and_each_says_why() -> None:
    found = [(page, one.reason) for page, one in blocks_of(ROOT, PAGES) if one.reason is not None]
    assert len(found) <= NOT_RUN_MAX, found
    assert {reason for _, reason in found} <= set(REASONS), found


def test_each_page_has_snippets() -> None:
    run = {page for page, one in blocks_of(ROOT, PAGES) if one.reason is None}
    assert {str(page.relative_to(ROOT)) for page in PAGES} - run == {"docs/how-to/docker.md"}


def test_the_run_file_of_the_page_about_kafka_is_one(tmp_path: Path) -> None:
    """A broker is not here: the file is read, with the files that it names."""
    [file] = [one for one in snippets_in((DOCS / "how-to" / "kafka.md").read_text("utf-8")) if one.file is not None]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "trips.toml").write_text(file.text)
    config = load_run_config(tmp_path / "trips.toml")
    assert [source.kind for stream in config.streams for source in stream.live_sources] == ["kafka"]
    assert [query.name for query in config.queries] == ["fares"]


def test_explanations_that_have_snippets_are_run() -> None:
    others = [page for page in (DOCS / "explanations").glob("*.md") if page not in PAGES]
    assert others
    assert not list(blocks_of(ROOT, others))


def test_marks_stand_before_blocks() -> None:
    """A mark that stands elsewhere, or a block that a reader would run and that has no kind, would be passed over."""
    for page in PAGES:
        text = page.read_text("utf-8")
        marked = [one for one in snippets_in(text) if one.reason is not None]
        assert text.count("<!-- not run") == len(marked), page.name
        kinds = set(re.findall(r"^```(\S+)", text, re.MULTILINE))
        assert kinds <= {"python", "sh", "text", "sparql", "toml", "csv", "turtle", "ebnf"}, page.name
        assert not re.search(r"^    (?:wukongs|curl|pip|\.venv)", text, re.MULTILINE), page.name


def test_blocks_are_read_as_the_page_says() -> None:
    page = 'a\n```sh\nx\n```\n\nb\n```text\n1\n```\n<!-- not run: why -->\n```sh\ny\n```\n```toml title="f"\nz\n```\n'
    assert [(one.kind, one.text, one.file, one.reason, one.printed) for one in snippets_in(page)] == [
        ("sh", "x\n", None, None, "1\n"),
        ("sh", "y\n", None, "why", None),
        ("toml", "z\n", "f", None, None),
    ]
    assert is_like("a ... c\n", "a b\nb c")
    assert not is_like("a ... c\n", "a b")


def test_a_snippet_that_fails_or_prints_something_else_is_seen(tmp_path: Path) -> None:
    for number, page in enumerate(
        ["```sh\nfalse\n```\n", "```python\nprint(1)\n```\n```text\n2\n```\n", "```sh\necho 1\n```\n```text\n2\n```\n"]
    ):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(AssertionError, match="line 1"):
            Reader(tmp_path / str(number), ROOT / "examples").follow(page)
