"""Hooks of MkDocs: pages that are made of the code, and links that leave docs/.

`mkdocs.yml` names this file. The pages are made at build time, so they cannot fall behind: commands of their help
texts, settings of their fields, docstrings of the public names.
"""

from __future__ import annotations

import html
import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest import mock

import wukongs
from wukongs.cli import COMMANDS, help_text
from wukongs.cli.completion import all_parsers
from wukongs.live.continuous import ContinuousQuery
from wukongs.live.stream import Stream
from wukongs.settings import Settings, variable_of

ROOT = Path(__file__).resolve().parent.parent
CLASSES = (wukongs.Engine, Stream, ContinuousQuery, wukongs.Result, wukongs.WindowResult)
FUNCTIONS = (wukongs.connect, wukongs.restore, wukongs.parse_query, wukongs.parse_update)
HELP_COLUMNS = "110"
NOT_WORDS = re.compile(r"(?<!^)([*_\[\]])|^([*_](?! ))|([<>&])", re.MULTILINE)


# --- what MkDocs calls ------------------------------------------------------------------------------------------------


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    from mkdocs.structure.files import File

    for path, text in made_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to ARCHITECTURE.md, which lies beside docs/, lead to the page that is made of it."""
    return markdown.replace("](../ARCHITECTURE.md", "](reference/architecture.md")


# --- the pages --------------------------------------------------------------------------------------------------------


def made_pages() -> dict[str, str]:
    """Return the text of each page that is made, by its path in docs/."""
    return {
        "reference/commands.md": commands(),
        "reference/settings.md": settings(),
        "reference/python.md": docstrings(),
        "reference/decisions.md": decisions(),
        "reference/architecture.md": (ROOT / "ARCHITECTURE.md").read_text("utf-8").replace("](docs/", "](../"),
        "reference/changes.md": (ROOT / "CHANGELOG.md").read_text("utf-8").replace("](docs/", "](../"),
    }


def commands() -> str:
    """Return the help texts of all commands."""
    parts = ["# Commands", "Made of the help texts.", _text_block(help_text())]
    with mock.patch.dict(os.environ, COLUMNS=HELP_COLUMNS):
        for words, parser in all_parsers():
            parts.append(f"{'#' * (1 + len(words))} wukongs {' '.join(words)}")
            parts += [f"{COMMANDS[words[0]].capitalize()}."] * (len(words) == 1)
            parts.append(_text_block(parser.format_help()))
    return "\n\n".join(parts) + "\n"


def settings() -> str:
    """Return the table of the options of an engine."""
    lines = [
        "# Settings",
        "",
        'Options of an engine: of the program, as in `Engine(settings={"batch_ms": 50})`; under `[engine]` in',
        "the files of `wukongs run` and `wukongs node`; or of the environment. The program wins over the environment.",
        "",
        "| option, variable | default | unit | from, to | meaning |",
        "|---|---|---|---|---|",
    ]
    for option in fields(Settings):
        about = option.metadata
        default = f"{option.default:,}" if "low" in about else "none"
        bounds = f"{about['low']:,} to {about['high']:,}" if "low" in about else ""
        name = f"`{option.name}`<br>`{variable_of(option.name)}`"
        lines.append(f"| {name} | {default} | {about['unit']} | {bounds} | {as_markdown(about['doc'])} |")
    return "\n".join(lines) + "\n"


def docstrings() -> str:
    """Return signatures and docstrings of the public classes and functions, and those of the errors."""
    parts = ["# Docstrings", "Made of the code. [The Python API](../api.md) says more about how calls work together."]
    for owner in CLASSES:
        parts += [f"## {owner.__name__}", as_markdown(inspect.getdoc(owner) or "")]
        for name, member in _members(owner):
            parts.append(f"### {owner.__name__}.{name}")
            if callable(member):
                parts.append(_code_block(f"{name}{_signature(member)}"))
            parts.append(as_markdown(inspect.getdoc(member) or ""))
    for function in FUNCTIONS:
        name = f"wukongs.{function.__name__}"
        parts += [
            f"## {name}",
            _code_block(f"{name}{_signature(function)}"),
            as_markdown(inspect.getdoc(function) or ""),
        ]
    parts.append("## Errors")
    for error in (getattr(wukongs, name) for name in wukongs.__all__ if name.endswith("Error") or _is_error(name)):
        bases = ", ".join(base.__name__ for base in error.__bases__)
        parts.append(f"**{error.__name__}** ({bases}): {as_markdown(inspect.getdoc(error) or '')}")
    return "\n\n".join(part for part in parts if part) + "\n"


def decisions() -> str:
    """Return the list of the decisions, with their titles."""
    lines = ["# Decisions", "", "Each says the problem, the choice, what else was weighed, and what follows.", ""]
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        title = path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"* [{as_markdown(title)}](../decisions/{path.name})")
    return "\n".join(lines) + "\n"


# --- parts ------------------------------------------------------------------------------------------------------------


def as_markdown(text: str) -> str:
    """Return plain text as Markdown that shows it: marks stand for themselves, but for code in backticks and lists."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part.startswith("`") else NOT_WORDS.sub(_escaped, part) for part in parts)


def _escaped(found: re.Match[str]) -> str:
    return html.escape(found[3]) if found[3] else "\\" + found[0]


def _members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the methods of a class that docs/api.md lists, and its public properties."""
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    listed = re.findall(rf"^{owner.__name__}\.(\w+)\(", page, re.MULTILINE)
    for name, member in vars(owner).items():
        if name in listed or (isinstance(member, property) and f"`{name}`" in page):
            yield name, member


def _signature(call: Any) -> str:
    signature = inspect.signature(call)
    own = [one for one in signature.parameters.values() if one.name != "self"]
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature.replace(parameters=own)))


def _is_error(name: str) -> bool:
    value = getattr(wukongs, name)
    return isinstance(value, type) and issubclass(value, wukongs.WukongsError)


def _text_block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


def _code_block(text: str) -> str:
    return f"```python\n{text}\n```"
