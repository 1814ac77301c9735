from __future__ import annotations

from collections.abc import Sequence

import pytest

from wukongs.csparql.cells import display_width, visible
from wukongs.query.terms.text_table import TableLayout, cut


def render_table(head: Sequence[str], rows: Sequence[Sequence[str | None]], width: int | None = None) -> str:
    """Write a table, each row a chunk of its own."""
    layout = TableLayout(head)
    chunks = [[[cell] for cell in row] for row in rows]
    for chunk in chunks:
        layout.measure(chunk)
    return layout.head(width) + "".join(layout.lines(chunk, 1) for chunk in chunks)


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("abc", 3), ("é", 1), ("e\u0301", 1), ("日本", 4), ("ａ", 2), ("a\u200bb", 2), ("\U0001f600", 2)],
)
def test_width_in_cells(text: str, width: int) -> None:
    assert display_width(text) == width


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("日本語", 5, "日本…"), ("日本語", 4, "日…"), ("日本語", 6, "日本語")],
)
def test_cut(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown
    assert display_width(shown) <= width


def test_what_moves_the_cursor_is_shown_by_its_number() -> None:
    assert visible("a\tb\x1b[0m\u2028\x9b") == "a\\u0009b\\u001B[0m\\u2028\\u009B"
    assert visible("é日") == "é日"


def test_columns_align_by_cells() -> None:
    assert render_table(["a", "bb"], [["日", "x"], ["yyy", ""]]) == "a    bb\n───  ──\n日   x\nyyy\n"


def test_the_widest_columns_are_cut_first_and_none_below_eight_cells() -> None:
    head, rows = ["a", "b", "c"], [["x" * 50, "y" * 20, "z" * 5]]
    assert render_table(head, rows, 49).splitlines()[2] == "x" * 19 + "…  " + "y" * 20 + "  zzzzz"
    assert render_table(head, rows, 10).splitlines()[2] == "xxxxxxx…  yyyyyyy…  zzzzz"


def test_a_table_without_columns_or_rows() -> None:
    assert render_table(["a"], []) == "a\n─\n"
    assert render_table([], [[], []]) == "\n\n\n\n"
