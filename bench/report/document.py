"""A report as a list of blocks, written as Markdown or as one HTML page that needs nothing from elsewhere."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

LOUD = "⚠ "
"""The beginning of a cell or a paragraph that nobody should overlook."""
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --soft: #57606a; --line: #d0d7de; --shade: #f6f8fa;
  --loud-ink: #7a2e00; --loud: #fff1e5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --soft: #9aa4ae; --line: #3d444d;
  --shade: #161b22; --loud-ink: #ffb98a; --loud: #3a2212; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 66rem;
  margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.25; margin: 2rem 0 0.5rem; }
h2 { border-bottom: 1px solid var(--line); padding-bottom: 0.25rem; }
.table { overflow-x: auto; margin: 0.75rem 0; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid var(--line); padding: 0.25rem 0.5rem; text-align: left; vertical-align: top; }
th { background: var(--shade); }
td.number { text-align: right; white-space: nowrap; }
p.loud, td.loud { background: var(--loud); color: var(--loud-ink); font-weight: 600; }
p.loud { border-left: 4px solid currentColor; padding: 0.5rem 0.75rem; }
td.name, td.loud { white-space: nowrap; }
figure { margin: 1rem 0; }
figure svg { width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: 13px; }
@media print { body { max-width: none; } figure, tr { break-inside: avoid; } }
"""
_NAME_LENGTH = 24
_NUMBER = re.compile(r"-?[\d.,]+( to -?[\d.,]+)?")


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing. name: of its file, without `.svg`; svg: text in the colour `currentColor` on no ground."""

    name: str
    title: str
    svg: str

    def alone(self) -> str:
        """Return it as a file of its own, with the ink of the reader's light or dark page."""
        style = "<style>svg{color:#1b1f24}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}</style>"
        head, bracket, rest = self.svg.partition(">")
        return f"{head}{bracket}{style}{rest}"


@dataclass(frozen=True, slots=True)
class _Heading:
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class _Table:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(slots=True)
class Document:
    """Blocks in the order in which they were added. All texts are plain: both writers escape them."""

    title: str
    blocks: list[_Heading | _Table | Picture | str] = field(default_factory=list)

    def heading(self, text: str, level: int = 2) -> None:
        self.blocks.append(_Heading(level, text))

    def say(self, *texts: str) -> None:
        """Add paragraphs; one that begins with LOUD is set apart."""
        self.blocks += texts

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table without the columns that are empty in all rows; nothing if there are no rows."""
        full = [place for place in range(len(columns)) if any(row[place] for row in rows)]
        if rows:
            self.blocks.append(_Table([columns[at] for at in full], [[row[at] for at in full] for row in rows]))

    def picture(self, picture: Picture) -> None:
        """Add a picture, under another name if there is one of its name already."""
        taken = {one.name for one in self.pictures}
        names = (f"{picture.name}-{number}" for number in range(2, len(taken) + 3))
        name = picture.name if picture.name not in taken else next(one for one in names if one not in taken)
        self.blocks.append(replace(picture, name=name))

    @property
    def pictures(self) -> list[Picture]:
        return [block for block in self.blocks if isinstance(block, Picture)]

    def to_markdown(self, folder: str) -> str:
        """Return Markdown; folder: where the pictures are, from there."""
        parts = [f"# {_plain(self.title)}"]
        for block in self.blocks:
            if isinstance(block, _Heading):
                parts.append(f"{'#' * block.level} {_plain(block.text)}")
            elif isinstance(block, _Table):
                rows = (block.columns, ["---"] * len(block.columns), *block.rows)
                lines = ["| " + " | ".join(map(_plain, row)) + " |" for row in rows]
                parts.append("\n".join(lines))
            elif isinstance(block, Picture):
                parts.append(f"![{_plain(block.title)}]({folder}/{block.name}.svg)")
            else:
                parts.append(f"**{_plain(block)}**" if block.startswith(LOUD) else _plain(block))
        return "\n\n".join(parts) + "\n"

    def to_text(self) -> str:
        """Return text for a terminal, with aligned columns, without pictures."""
        parts = [self.title]
        for block in self.blocks:
            if isinstance(block, _Heading):
                parts.append(block.text)
            elif isinstance(block, _Table):
                rows = [[" ".join(cell.split()) for cell in row] for row in (block.columns, *block.rows)]
                widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
                lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
                parts.append("\n".join(f"  {line}" for line in lines))
            elif isinstance(block, str):
                parts.append(block)
        return "\n\n".join(parts) + "\n"

    def to_html(self) -> str:
        """Return a whole page: style and pictures are in it."""
        title = html.escape(self.title)
        parts = [f"<h1>{title}</h1>"]
        for block in self.blocks:
            if isinstance(block, _Heading):
                parts.append(f"<h{block.level}>{html.escape(block.text)}</h{block.level}>")
            elif isinstance(block, _Table):
                parts.append(_html_table(block))
            elif isinstance(block, Picture):
                caption = html.escape(block.title)
                parts.append(
                    f'<figure role="img" aria-label="{caption}">{block.svg}<figcaption>{caption}</figcaption></figure>'
                )
            else:
                parts.append(
                    f'<p class="loud">{html.escape(block)}</p>'
                    if block.startswith(LOUD)
                    else f"<p>{html.escape(block)}</p>"
                )
        head = (
            '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{title}</title><style>{_STYLE}</style>"
        )
        return (
            f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(parts) + "\n</body></html>\n"
        )


def _plain(text: str) -> str:
    """Return text in which Markdown sees no marks of its own."""
    return re.sub(r"([\\`*_|\[\]])", r"\\\1", " ".join(text.split())).replace("&", "&amp;").replace("<", "&lt;")


def _html_table(table: _Table) -> str:
    filled = [[row[place] for row in table.rows if row[place]] for place in range(len(table.columns))]
    are_numbers = [all(_NUMBER.fullmatch(cell) for cell in cells) for cells in filled]

    are_names = all(len(cell) <= _NAME_LENGTH for cell in filled[0])

    def cell(text: str, place: int) -> str:
        kind = "name" if place == 0 and are_names else "number" if are_numbers[place] else ""
        kind = "loud" if text.startswith(LOUD) else kind
        return f'<td class="{kind}">{html.escape(text)}</td>' if kind else f"<td>{html.escape(text)}</td>"

    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    rows = "\n".join("<tr>" + "".join(map(cell, row, range(len(row)))) + "</tr>" for row in table.rows)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>'


# --- numbers as text --------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Return three digits of a number, all digits before the point."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if 0 < abs(value) < 1e-6:
        return f"{value:.3g}"
    return np.format_float_positional(value, precision=3, fractional=False, trim="-")


def bounds(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None or low == high else f"{number(low)} to {number(high)}"


def percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")
