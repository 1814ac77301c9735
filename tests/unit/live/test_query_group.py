"""A group of queries: the memory of a query, what its terms leave behind, and the two ways to find rows."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

import wukongs
from wukongs.live.query_group import bindings_table, bindings_text
from wukongs.query.execution import argument_rows

QUERIES = 20_000
TEXT = "REGISTER QUERY g AS SELECT ?u ?p FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?u <http://ex/posts> ?p }"


def users(count: int) -> pa.Table:
    return pa.table({"u": [f"<http://ex/users/user{at:06d}>" for at in range(count)]})


def test_equal_tables_have_one_text() -> None:
    terms = users(20)["u"].to_pylist()
    expected = bindings_text(pa.table({"u": terms[5:15]}))
    column = pa.chunked_array([terms[5:8], terms[8:15]])
    assert expected == bindings_text([{"u": term} for term in terms[5:15]])
    assert expected == bindings_text(users(20).slice(5, 10))
    assert expected == bindings_text(pa.table({"?u": column}))
    assert expected == bindings_text(pa.table({"u": column.dictionary_encode()}))
    assert expected == bindings_text(pa.table({"u": column.cast(pa.large_string())}))
    assert expected == bindings_text(pa.record_batch({"u": column.combine_chunks()}))
    assert expected == bindings_text(bindings_table(expected))
    assert expected != bindings_text(users(20).slice(4, 10))


@pytest.mark.parametrize("text", ["", "no base64", "bm8gdGFibGU="])
def test_a_text_that_holds_no_table(text: str) -> None:
    with pytest.raises(wukongs.DataError, match="bindings: expected an Arrow IPC stream"):
        bindings_table(text)


@pytest.mark.parametrize("bindings", [[], {}, "<a:b>", [("<a:b>",)], 5, [{}]])
def test_bindings_that_are_no_table(bindings: Any) -> None:
    with pytest.raises(wukongs.SettingsError, match="bindings: expected"):
        bindings_text(bindings)


def test_a_query_takes_less_than_a_kilobyte() -> None:
    with wukongs.Engine() as engine:
        engine.stream("http://ex/s", timing=True, batch_ms=1000)
        engine.register(TEXT, bindings=users(10)).close()
        table = users(QUERIES)
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            group = engine.register(TEXT, bindings=table)
            gc.collect()
            taken = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert group.text.group is not None
        assert taken / QUERIES < 512
        assert group.text.group.arguments.rows.size_bytes / QUERIES < 128


def test_the_terms_of_a_table_go_with_the_group() -> None:
    with wukongs.Engine() as engine:
        engine.stream("http://ex/s", timing=True, batch_ms=1000)
        before = engine.stats()["terms"]
        group = engine.register(TEXT, bindings=users(1000))
        assert engine.stats()["terms"] >= before + 1000
        group.replace(TEXT + " LIMIT 5")
        assert engine.stats()["terms"] >= before + 1000
        group.close()
        assert engine.stats()["terms"] == before


@pytest.mark.parametrize(("queries", "tuples", "is_probed"), [(5000, 10, True), (2, 3000, False)])
def test_the_smaller_side_is_where_it_begins(
    queries: int, tuples: int, is_probed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = []
    cut = argument_rows._Core._cut
    monkeypatch.setattr(argument_rows._Core, "_cut", lambda *args: cuts.append(1) or cut(*args))
    with wukongs.Engine() as engine:
        stream = engine.stream("http://ex/s", timing=True, batch_ms=1000)
        group = engine.register(TEXT, bindings=users(queries))
        stream.push([(f"<http://ex/users/user{at:06d}>", "<http://ex/posts>", f'"{at}"', 500) for at in range(tuples)])
        stream.advance(1000)
        engine.settle(60)
        (window,) = group.results(timeout_s=0)
        assert len(window) == min(queries, tuples)
    assert bool(cuts) == is_probed
