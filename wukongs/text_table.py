"""Aligned tables for terminals and text files: columns as wide as what they show, measured in terminal cells."""

from __future__ import annotations

from collections.abc import Sequence

from csparql.cells import cell_count, display_width, visible

_BETWEEN = "  "
_CUT = "…"
_NARROWEST_CELLS = 8


def cut(text: str, width: int) -> str:
    """Return the text, or its longest start that fits into `width` cells with a mark of the cut."""
    if display_width(text) <= width:
        return text
    left = width - 1
    kept = []
    for character in text:
        left -= cell_count(character)
        if left < 0:
            break
        kept.append(character)
    return "".join(kept) + _CUT


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Return head, a rule and the rows, one line each. width: cells that a line may take; None is any.

    A table that is too wide has its widest columns cut, none below 8 cells.
    """
    head = [visible(name) for name in head]
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [
        max(display_width(name), max((display_width(row[place]) for row in rows), default=0))
        for place, name in enumerate(head)
    ]
    if width is not None:
        widths = _narrowed(widths, width - len(_BETWEEN) * (len(widths) - 1))
    rule = ["─" * cells for cells in widths]
    return "".join(_line(line, widths) + "\n" for line in [head, rule, *rows])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = [cut(cell, cells_max) for cell, cells_max in zip(cells, widths, strict=True)]
    padded = [text + " " * (cells_max - display_width(text)) for text, cells_max in zip(shown, widths, strict=True)]
    return _BETWEEN.join(padded).rstrip()


def _narrowed(widths: list[int], total: int) -> list[int]:
    """Return widths that sum to at most total where possible: the widest columns are lowered to one common width."""
    common = max(widths, default=0)
    while common > _NARROWEST_CELLS and sum(min(cells, common) for cells in widths) > total:
        common -= 1
    return [min(cells, common) for cells in widths]
