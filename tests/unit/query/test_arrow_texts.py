"""Columns of texts: cut into parts and put together again, and counted before they are made."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import wukongs
from tests.unit.query.test_budgets import DOUBLED, PREFIX, check_health
from tests.unit.query.test_budgets import engine as engine
from wukongs.query.limits import Limits, current
from wukongs.query.terms import arrow_texts
from wukongs.query.terms.arrow_texts import TEXT, byte_lengths, cuts, in_parts, parts_of, taken

TEXTS = ["", "a", "äöü", "x" * 40, "", "yy", "z" * 9]


def column(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, TEXT)


@pytest.mark.parametrize("bytes_max", [1, 16, 60, 1 << 20])
def test_what_is_cut_is_put_together_again(bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_texts, "PART_BYTES", bytes_max)
    for array in (column(TEXTS), column(TEXTS).slice(2, 3), column([])):
        texts = array.to_pylist()
        assert [text for part in parts_of(array) for text in part.to_pylist()] == texts
        assert in_parts(pc.utf8_upper, array).to_pylist() == [text.upper() for text in texts]
        places = np.arange(3 * len(texts), dtype=np.int64) * 5 % max(1, len(texts))
        assert taken(array, places).to_pylist() == [texts[place] for place in places]


def test_parts_have_so_many_bytes_or_one_text() -> None:
    assert list(cuts(np.array([1, 1, 100, 1]), 20)) == [(0, 2), (2, 3), (3, 4)]
    assert list(cuts(np.array([], np.int64), 20)) == []
    assert byte_lengths(column(TEXTS)).tolist() == [0, 1, 6, 40, 0, 2, 9]


def test_a_text_that_many_rows_share_is_not_copied_beyond_the_budget() -> None:
    """A terabyte, if it were made."""
    with (
        Limits(bytes_max=1 << 24) as limits,
        pytest.raises(wukongs.BudgetExceeded, match="a column of texts would"),
    ):
        taken(column(["x" * (1 << 20)]), np.zeros(1 << 20, np.int64))
    assert limits.peak == 0


def test_what_a_function_makes_is_held() -> None:
    with Limits(bytes_max=1 << 20) as limits:
        made = in_parts(pc.utf8_upper, column(["x" * 1000] * 100))
        assert made.nbytes <= limits.held < 2 * made.nbytes
        before = limits.held
        assert limits.peak == before, "one part is not copied"
    with Limits(bytes_max=1 << 14), pytest.raises(wukongs.BudgetExceeded, match="a column of texts would"):
        in_parts(lambda part: column(["y" * 10_000] * len(part)), column(["x"] * 2))
    assert current().bytes_max is None


@pytest.mark.parametrize(
    "condition",
    [
        "CONTAINS(CONCAT(STR(?a), ?x20), STR(?b))",
        "STRSTARTS(?x20, STR(?b))",
        "STRBEFORE(?x20, STR(?a)) = STR(?b)",
        "CONCAT(?x20, STR(?a)) < CONCAT(?x20, STR(?b))",
        "REPLACE(CONCAT(STR(?a), ?x20), 'a', 'b') = STR(?b)",
    ],
)
def test_queries_on_a_long_text_in_many_rows_end_in_a_named_error(engine: wukongs.Engine, condition: str) -> None:
    """300 rows of 3 MB, with 200 MB at hand."""
    doubled = DOUBLED.partition("BIND(CONCAT(?x20")[0]
    with pytest.raises(wukongs.BudgetExceeded, match="query_bytes_max = 209715200"):
        engine.query(f"{PREFIX}ASK {{ ?a :p ?b BIND('abc' AS ?x0) {doubled} FILTER({condition}) }}", timeout_s=0)
    check_health(engine)
