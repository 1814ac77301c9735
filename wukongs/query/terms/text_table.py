"""Aligned tables for terminals and text files: columns as wide as their texts, measured in terminal cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wukongs.csparql.cells import cell_count, display_width, visible

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


class TableLayout:
    """The columns of a table that is written in chunks of rows: all chunks are measured, then each is shown.

    A table that is too wide has its widest columns cut, none below 8 cells. is_number: tells of a cell whether it is
    one; a column of such cells alone is aligned at its right.
    """

    def __init__(self, names: Sequence[str], is_number: Callable[[str], bool] = lambda _: False) -> None:
        self._is_number = is_number
        self._kinds: list[set[bool]] = [set() for _ in names]
        """Whether the cells of each column are numbers."""
        self._names = [visible(name) for name in names]
        self._widths = [display_width(name) for name in self._names]

    def measure(self, columns: Sequence[Sequence[str | None]]) -> None:
        """Widen the columns as these cells need it."""
        for place, cells in enumerate(columns):
            distinct = {cell for cell in cells if cell is not None}
            self._widths[place] = max(self._widths[place], *(display_width(visible(cell)) for cell in distinct), 0)
            if False not in self._kinds[place]:
                self._kinds[place].update(map(self._is_number, distinct))

    def head(self, width: int | None = None) -> str:
        """Return names and a rule, once all is measured. width: cells that a line may take; None is any."""
        if width is not None:
            self._widths = _narrowed(self._widths, width - len(_BETWEEN) * (len(self._widths) - 1))
        rule = ["─" * cells for cells in self._widths]
        return self._line(self._names) + self._line(rule)

    def lines(self, columns: Sequence[Sequence[str | None]], count: int) -> str:
        """Return so many rows, given by columns, one line each; None is an empty cell."""
        if not columns:
            return "\n" * count
        rows = zip(*columns, strict=True)
        return "".join(self._line([visible(cell or "") for cell in row]) for row in rows)

    def _line(self, cells: Sequence[str]) -> str:
        shown = [cut(cell, width) for cell, width in zip(cells, self._widths, strict=True)]
        gaps = [" " * (width - display_width(text)) for text, width in zip(shown, self._widths, strict=True)]
        padded = [
            gap + text if kinds == {True} else text + gap
            for text, gap, kinds in zip(shown, gaps, self._kinds, strict=True)
        ]
        return _BETWEEN.join(padded).rstrip() + "\n"


def _narrowed(widths: list[int], total: int) -> list[int]:
    """Return widths that sum to at most total where possible: the widest columns are lowered to one common width."""
    common = max(widths, default=0)
    while common > _NARROWEST_CELLS and sum(min(cells, common) for cells in widths) > total:
        common -= 1
    return [min(cells, common) for cells in widths]
