"""Compiled queries in an engine: as the executor answers, by few calls, and with nothing left of queries that go."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import wukongs
from tests.scenarios.test_groups import FRIENDS, begin, posted, push, register, windows
from wukongs.live import joined_queries
from wukongs.query.plans import compiled
from wukongs.query.plans.compiled import CompiledQueries, CompiledQuery

STREAM = "http://ex/stream"
HEADS = ("SELECT ?f ?p", "SELECT ?p", "SELECT ?p ?f")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let queries of one shape stay alone."""
    monkeypatch.setattr(joined_queries, "ALONE_MAX", 1 << 30)


def test_windows_are_those_of_the_executor() -> None:
    """Rows and their order; queries that are alike and that are not, over windows alone and with stored data."""
    found = []
    for is_compiled in (True, False):
        with wukongs.Engine() as engine, pytest.MonkeyPatch.context() as patch:
            if not is_compiled:
                patch.setattr(CompiledQuery, "is_for", staticmethod(lambda query, seeds=(): False))
            stream = begin(engine)
            queries = [register(engine, f"q{n}", FRIENDS % n, HEADS[n % 3]) for n in range(30)]
            queries += [
                register(engine, f"all{n}", "{ ?f <http://ex/posts> ?p }", head) for n, head in enumerate(HEADS)
            ]
            queries += [register(engine, "none", "{ ?f <http://ex/nothing> ?p }")]
            push(engine, stream, 1000)
            found.append([[window.texts() for window in query.results(timeout_s=0)] for query in queries])
            assert [query.compiled is not None for query in queries] == [is_compiled] * len(queries)
    assert found[0] == found[1]
    assert any(found[0][0])


def test_one_call_runs_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    run_calls = compiled.run_calls

    def counted(*arguments: Any) -> Any:
        calls.append(len(arguments[0]))
        return run_calls(*arguments)

    monkeypatch.setattr(compiled, "run_calls", counted)
    with wukongs.Engine() as engine:
        stream = begin(engine)
        queries = [register(engine, f"q{n}", FRIENDS % (n % 30), HEADS[n % 3]) for n in range(200)]
        push(engine, stream, 300)
        assert calls == [100] * 6
        assert windows(queries[0]) == [posted(0, number) for number in range(3)]
        assert queries[7].stats()["explored_together"] == 3


def test_an_offender_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes more than the workspace holds, and more rows than it may."""
    monkeypatch.setattr(compiled, "OUT_CELLS", 64)
    with wukongs.Engine(settings=wukongs.Settings(rows_max=100)) as engine:
        stream = begin(engine)
        alike = [register(engine, f"q{n}", FRIENDS % n) for n in range(5)]
        offender = register(engine, "offender", "{ ?f <http://ex/posts> ?p . ?g <http://ex/posts> ?q }", "SELECT ?p ?q")
        push(engine, stream, 200)
        for n, query in enumerate(alike):
            assert windows(query) == [posted(n, number) for number in range(2)]
        assert len(next(offender.results(timeout_s=0))) == 100
        with pytest.raises(wukongs.BudgetExceeded, match="rows_max = 100"):
            list(offender.results(timeout_s=0))


@pytest.mark.parametrize("error", [MemoryError, ValueError])
def test_what_fails_for_many_is_met_by_each_alone(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory, and a mistake of ours."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(CompiledQueries, "run", fail)
    with wukongs.Engine() as engine:
        stream = begin(engine)
        queries = [register(engine, f"q{n}", FRIENDS % n) for n in range(3)]
        push(engine, stream, 200)
        for n, query in enumerate(queries):
            assert windows(query) == [posted(n, number) for number in range(2)]
            assert query.stats()["explored_together"] == 0


def test_nothing_is_left_of_a_query_that_goes() -> None:
    with wukongs.Engine() as engine:
        stream = begin(engine)
        kept = register(engine, "kept", FRIENDS % 0)
        wide = engine.register(
            f"REGISTER QUERY wide AS SELECT ?f FROM STREAM <{STREAM}> [RANGE 1s STEP 100ms] WHERE {FRIENDS % 1}"
        )
        push(engine, stream, 300)
        assert wide.compiled is not None
        seen = weakref.ref(wide.compiled.memo)
        core = engine._core
        numbers = set(wide.compiled.windows.numbers.values())
        wide.close()
        del wide
        push(engine, stream, 500, 300)
        gc.collect()
        assert seen() is None
        assert kept.compiled is not None
        table = kept.compiled.windows.table
        with core.lock:
            core.windows.tidy()
            assert all(not len(table.batches(number)) for number in numbers)


def test_a_replaced_query_is_compiled_anew() -> None:
    with wukongs.Engine() as engine:
        stream = begin(engine)
        query = register(engine, "q", FRIENDS % 0)
        push(engine, stream, 200)
        engine.settle(60)
        query.replace(query.source.text.replace("u0>", "u1>"))
        push(engine, stream, 400, 200)
        assert windows(query) == [posted(0, 0), posted(0, 1), posted(1, 2), posted(1, 3)]
