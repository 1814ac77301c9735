"""Windows as intervals of stream batches, and the times at which queries fire."""

from __future__ import annotations

import pytest

from tests.engine_helpers import A, register_text
from wukongs.csparql.algebra import StreamWindow
from wukongs.csparql.parser import parse_query
from wukongs.errors import StreamError
from wukongs.live.stream_state import StreamState, batch_number
from wukongs.live.windows import check_clause, check_window, firing_step, first_multiple, interval
from wukongs.settings import Settings


def window(range_ms: int, step_ms: int) -> StreamWindow:
    return StreamWindow(A, range_ms, step_ms, False, 3, 7)


@pytest.mark.parametrize(
    ("range_ms", "step_ms", "at_ms", "start_ms", "end_ms"),
    [
        (1000, 1000, 1000, 0, 1000),
        (1000, 1000, 1999, 0, 1000),
        (1000, 300, 1000, -100, 900),
        (500, 200, 0, -500, 0),
        (500, 200, -1, -700, -200),
        (500, 200, -200, -700, -200),
        (500, 200, -399, -900, -400),
        (100, 700, 1300, 600, 700),
    ],
)
def test_a_window_is_its_latest_closing(range_ms: int, step_ms: int, at_ms: int, start_ms: int, end_ms: int) -> None:
    found = interval(window(range_ms, step_ms), 100, at_ms)
    assert (found.start_ms, found.end_ms) == (start_ms, end_ms)
    assert (found.after, found.to) == (start_ms // 100, end_ms // 100)


@pytest.mark.parametrize("at_ms", range(-2500, 2500, 70))
def test_a_tuple_is_in_the_window_exactly_when_its_stream_batch_is(at_ms: int) -> None:
    """(start, end] in ms and after < k <= to in stream batches say the same, on both sides of zero."""
    for batch_ms in (1, 50, 100):
        found = interval(window(700, 300), batch_ms, at_ms)
        for time_ms in {found.start_ms + d for d in (-1, 0, 1)} | {found.end_ms + d for d in (-1, 0, 1)}:
            number = batch_number(time_ms, batch_ms)
            assert (found.start_ms < time_ms <= found.end_ms) == (found.after < number <= found.to)


@pytest.mark.parametrize(
    ("time_ms", "at_or_after", "after"),
    [(0, 0, 100), (1, 100, 100), (99, 100, 100), (100, 100, 200), (-1, 0, 0), (-100, -100, 0), (-101, -100, -100)],
)
def test_first_multiples(time_ms: int, at_or_after: int, after: int) -> None:
    assert first_multiple(100, time_ms, is_strict=False) == at_or_after
    assert first_multiple(100, time_ms, is_strict=True) == after


@pytest.mark.parametrize(
    ("time_ms", "number"), [(0, 0), (1, 1), (100, 1), (101, 2), (-1, 0), (-99, 0), (-100, -1), (-101, -1)]
)
def test_stream_batch_numbers(time_ms: int, number: int) -> None:
    assert batch_number(time_ms, 100) == number


def test_a_query_fires_at_its_smallest_step_or_when_it_says() -> None:
    two = register_text("RANGE 2s STEP 2s").replace("WHERE", f"FROM STREAM <{A}2> [RANGE 3s STEP 500ms] WHERE")
    assert firing_step(parse_query(two, None)) == 500
    every = two.replace("REGISTER QUERY q", "REGISTER QUERY q COMPUTED EVERY 4s")
    assert firing_step(parse_query(every, None)) == 4000


@pytest.mark.parametrize(
    ("range_ms", "step_ms", "name", "advice"),
    [(250, 100, "RANGE of 250 ms", "200 or 300"), (300, 50, "STEP of 50 ms", "Use 100 ms")],
)
def test_a_window_that_cuts_stream_batches_is_refused(range_ms: int, step_ms: int, name: str, advice: str) -> None:
    state = StreamState(A, 100, True, 0, None, 0, Settings())
    with pytest.raises(StreamError) as caught:
        check_window(window(range_ms, step_ms), state)
    text = str(caught.value)
    assert text.startswith("query, line 3, column 7: ")
    assert name in text
    assert advice in text
    assert "batch_ms = 100" in text
    check_window(window(300, 100), state)


def test_two_named_windows_of_one_stream_are_refused() -> None:
    def text(first: str, second: str) -> str:
        windows = f"FROM {first} <{A}> [RANGE 1s STEP 1s] FROM {second} <{A}> [RANGE 2s STEP 1s]"
        return f"REGISTER QUERY q AS SELECT ?s {windows} WHERE {{ ?s ?p ?o }}"

    with pytest.raises(StreamError, match=r"line 1, column \d+: FROM NAMED STREAM <http://ex/streamA> stands twice"):
        check_clause(parse_query(text("NAMED STREAM", "NAMED STREAM"), None))
    check_clause(parse_query(text("NAMED STREAM", "STREAM"), None))
    check_clause(parse_query(text("STREAM", "STREAM"), None))
