"""Run the snippets of a page as a reader would: shell, Python and files, in order, in a folder of their own.

* A block of `python` runs; the blocks of a page share their names. A block of `sh` runs in bash, which stops at the
  first error. A block with `title="FILE"` is written to that file.
* If a `sh` block ends with `&`, it is a server: it is started, and its first line waited for. It ends with the page.
* The next block of `text` is what the block before it prints; `...` stands for anything.
* `<!-- not run: REASON -->` before a block leaves it out, `<!-- slow -->` anywhere lets the page run in the slow tier.
* Ports that begin with 74 are replaced by free ones.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.processes import child
from wukongs.cli.ports import free_ports
from wukongs.engine import Engine

BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^\n]*?) -->\n)?^```(?P<kind>\w*)"
    r"(?: title=\"(?P<file>[^\"\n]+)\")?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PORT = re.compile(r"\b74\d\d\b")
LIMIT_S = 300


@dataclass(frozen=True, slots=True)
class Snippet:
    """A block of a page. line: where it stands; printed: what it prints, None if the page does not say."""

    kind: str
    text: str
    line: int
    file: str | None = None
    reason: str | None = None
    printed: str | None = None


def snippets_in(page: str) -> list[Snippet]:
    """Return the blocks of a page that are run, written, or marked as not run."""
    found: list[Snippet] = []
    for block in BLOCK.finditer(page):
        line = page.count("\n", 0, block.start("kind")) + 1
        if block["kind"] == "text" and block["file"] is None:
            if found and found[-1].printed is None and found[-1].reason is None:
                found[-1] = replace(found[-1], printed=block["text"])
        elif block["file"] is not None or block["kind"] in ("python", "sh"):
            found.append(Snippet(block["kind"], block["text"], line, block["file"], block["reason"]))
    return found


def is_like(expected: str, printed: str) -> bool:
    """Tell whether a text is what a page shows, where `...` stands for anything."""
    parts = [re.escape(part) for part in expected.strip().split("...")]
    return re.fullmatch(".*".join(parts), printed.strip(), re.DOTALL) is not None


class Reader:
    """A reader who follows a page in a folder, where `wukongs`, `python` and examples/ are."""

    def __init__(self, folder: Path, examples: Path) -> None:
        self.folder = folder
        (folder / "examples").symlink_to(examples)
        programs = folder / ".programs"
        programs.mkdir()
        for name, words in {"wukongs": "-m wukongs", "python": ""}.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
            (programs / name).chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(examples.parent / "src"),
            "PYSPARK_PYTHON": sys.executable,
            "COLUMNS": "100",
        }
        self._names: dict[str, Any] = {"__name__": "page"}
        self._ports: dict[str, str] = {}
        self._servers = contextlib.ExitStack()

    def follow(self, page: str) -> None:
        """Run the snippets of a page. Raises AssertionError, which names the line of the one that fails."""
        page = self._with_free_ports(page)
        with self._servers, contextlib.chdir(self.folder):
            try:
                for snippet in snippets_in(page):
                    if snippet.reason is None:
                        printed = self._done(snippet)
                        wanted = snippet.printed
                        assert wanted is None or is_like(wanted, printed), f"line {snippet.line} prints\n{printed}"
            finally:
                for engine in [one for one in self._names.values() if isinstance(one, Engine)]:
                    engine.close()

    def _with_free_ports(self, page: str) -> str:
        """Neighbours stay neighbours: a cluster takes the ports behind its first one."""
        ports = sorted(set(PORT.findall(page)))
        if not ports:
            return page
        width = int(ports[-1]) - int(ports[0]) + 10
        base = next(port for port in free_ports(200) if port + width < 30_000)
        return PORT.sub(lambda found: str(base + int(found[0]) - int(ports[0])), page)

    def _done(self, snippet: Snippet) -> str:
        if snippet.file is not None:
            Path(snippet.file).write_text(snippet.text)
            return ""
        if snippet.kind == "python":
            return self._python(snippet)
        if snippet.text.rstrip().endswith("&"):
            return self._server(snippet)
        assert not re.search(r" &\s*(?:#|$)", snippet.text, re.MULTILINE), (
            f"line {snippet.line}: end a server's block with &"
        )
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", snippet.text],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"line {snippet.line}: {done.stdout}{done.stderr}"
        return done.stdout

    def _python(self, snippet: Snippet) -> str:
        printed = io.StringIO()
        code = compile(textwrap.dedent(snippet.text), f"line {snippet.line}", "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, self._names)
        return printed.getvalue()

    def _server(self, snippet: Snippet) -> str:
        command = "exec " + snippet.text.strip().removesuffix("&").replace("\\\n", " ")
        process = self._servers.enter_context(child(["bash", "-c", command], env=self._environment))
        assert process.stdout is not None
        return str(process.stdout.readline())


def blocks_of(folder: Path, pages: list[Path]) -> Iterator[tuple[str, Snippet]]:
    """Yield the snippets of several pages, each with the name of its page."""
    for page in pages:
        for snippet in snippets_in(page.read_text("utf-8")):
            yield str(page.relative_to(folder)), snippet
