"""Places in a text: line and column, and the line that an error is about, with the offending text underlined.

    3 | SELECT ?x WEHRE { ?x a ex:T }
      |           ^^^^^

Tabs are shown as one blank, controls as \\uXXXX; of a long line, a part around the place is shown.
"""

from __future__ import annotations

import re

from wukongs.csparql.cells import display_width, visible

_CHARACTERS_MAX = 96
_BEFORE_MAX = 48
_MORE = "…"
_LINE_END = re.compile(r"\r\n|\n|\r")


def place(text: str, offset: int) -> tuple[int, int]:
    """Return line and column, both from 1, of a character; columns count characters."""
    line, line_start, _ = line_around(text, offset)
    return line, offset - line_start + 1


def line_around(text: str, offset: int) -> tuple[int, int, int]:
    """Return the line, from 1, that a character stands in, and where that line starts and ends (its end excluded)."""
    line, line_start = 1, 0
    for match in _LINE_END.finditer(text, 0, offset):
        line, line_start = line + 1, match.end()
    following = _LINE_END.search(text, offset)
    return line, line_start, following.start() if following else len(text)


def excerpt(text: str, start: int, length: int) -> str:
    """Return two lines without a line end: the text around text[start : start + length], and the marks under it.

    A place that ends after its line is underlined up to the line's end. A place without length gets one mark.
    """
    number, line_start, line_end = line_around(text, start)
    end = min(max(start + length, start), line_end)
    left = line_start if line_end - line_start <= _CHARACTERS_MAX else max(line_start, start - _BEFORE_MAX)
    right = min(line_end, left + _CHARACTERS_MAX)
    before = _shown(text[left:start])
    marked = _shown(text[start : min(end, right)])
    after = _shown(text[min(end, right) : right])
    if left > line_start:
        before = _MORE + before
    if right < line_end:
        after += _MORE
    gutter = f"{number} | "
    marks = "^" * max(display_width(marked), 1)
    shown = f"{gutter}{before}{marked}{after}".rstrip()
    return f"{shown}\n{' ' * (len(gutter) - 2)}| {' ' * display_width(before)}{marks}"


def _shown(text: str) -> str:
    return visible(text.replace("\t", " "))
