"""Streams that stand at different times: which windows come, what is in them, and the stored graph that they read.

DESIGN.md section 6. S has *covered* t when it has closed its latest stream-batch end at or before t. Each test is told
to every face; a durable engine also ends, or crashes, before each of its steps.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

import wukongs
from tests.engine_helpers import EX, A, B
from tests.faces import Face
from tests.lives import Life, close_and_open, crash_and_open

C, D = EX + "streamC", EX + "streamD"
TICK = "RANGE 100ms STEP 100ms"
STORED = "FROM <urn:x-wukongs:default>"
Story = Callable[[Life], None]
STORIES: list[Story] = []


def story(test: Story) -> Story:
    """Note a test that a durable engine also lives through with ends in between."""
    STORIES.append(test)
    return test


@pytest.fixture
def life(face: Face) -> Life:
    return Life(face.open())


def over(name: str, *windows: tuple[str, str], also: str = "", every: str = "") -> str:
    """A query whose first column shows all that its dataset holds. windows: streams and sizes."""
    clause = " ".join(f"FROM STREAM <{stream}> [{size}]" for stream, size in windows)
    computed = f"COMPUTED EVERY {every} " if every else ""
    return f"REGISTER QUERY {name} {computed}AS SELECT ?s {clause} {also} WHERE {{ ?s ?p ?o }}"


def each(first: int, last: int, *held: str, step: int = 100) -> dict[int, list[str]]:
    """The same rows at every multiple of a step from first to last."""
    return {t: sorted(held) for t in range(first, last + 1, step)}


# --- a query waits for its own streams --------------------------------------------------------------------------------


@story
def test_two_streams_that_are_pushed_whole_one_after_the_other(life: Life) -> None:
    life.stream(A)
    life.stream(B)
    life.register("q", over("q", (A, TICK), (B, TICK)))
    life.register("b", over("b", (B, TICK)))
    life.register("stored", over("stored", (B, TICK), also=STORED))
    life.push(A, ("a1", 50), ("a2", 150), ("a3", 250), ("a9", 850))
    life.advance(A, 900)
    assert life.windows("q") == {}
    assert life.windows("b") == {}
    life.push(B, ("b1", 60), ("b2", 160), ("b3", 260), ("b9", 860))
    life.advance(B, 900)
    both = {100: ["a1", "b1"], 200: ["a2", "b2"], 300: ["a3", "b3"], **each(400, 800), 900: ["a9", "b9"]}
    alone = {100: ["b1"], 200: ["b2"], 300: ["b3"], **each(400, 800), 900: ["b9"]}
    assert life.windows("q") == both
    assert life.windows("b") == alone
    assert life.windows("stored") == alone
    assert life.partial == {"q": [], "b": [], "stored": []}


@story
def test_a_query_comes_after_the_first_tuple_of_a_late_stream(life: Life) -> None:
    """No stream batch of it is closed by then. Its windows begin with this tuple, behind the clock."""
    life.stream(A)
    life.stream(B)
    life.register("first", over("first", (B, TICK), also=STORED))
    life.advance(A, 1000)
    life.push(B, ("b1", 50))
    life.register("second", over("second", (B, TICK), also=STORED))
    life.advance(B, 300)
    assert life.windows("first") == life.windows("second") == {100: ["b1"], **each(200, 300)}


@story
def test_a_stream_pushed_whole_waits_for_the_other_beyond_its_history(life: Life) -> None:
    """What the first windows need is held, however long the other one takes to begin."""
    life.stream(A, history_ms=0)
    life.stream(B, history_ms=0)
    life.register("q", over("q", (A, "RANGE 2s STEP 1s"), (B, "RANGE 2s STEP 1s")))
    life.push(A, *((f"a{k}", 1000 * k) for k in range(1, 100)))
    life.advance(A, 100_000)
    life.push(B, *((f"b{k}", 1000 * k) for k in range(1, 100)))
    life.advance(B, 100_000)

    def held(k: int) -> list[str]:
        return sorted(f"{name}{n}" for n in (k - 1, k) for name in "ab" if 0 < n < 100)

    assert life.windows("q") == {1000 * k: held(k) for k in range(1, 101)}
    assert life.partial == {"q": []}


@story
def test_streams_pushed_whole_before_their_queries_come(life: Life) -> None:
    """The same queries as above, from then on."""
    life.stream(A)
    life.stream(B)
    life.push(A, ("a1", 50), ("a2", 150))
    life.advance(A, 200)
    life.push(B, ("b1", 60), ("b2", 160))
    life.advance(B, 200)
    life.register("q", over("q", (A, "RANGE 200ms STEP 100ms"), (B, TICK)))
    life.register("stored", over("stored", (B, "RANGE 200ms STEP 100ms"), also=STORED))
    life.push(A, ("a3", 250), ("a4", 350))
    life.advance(A, 400)
    life.push(B, ("b3", 260), ("b4", 360))
    life.advance(B, 400)
    assert life.windows("q") == {300: ["a2", "a3", "b3"], 400: ["a3", "a4", "b4"]}
    assert life.windows("stored") == {300: ["b2", "b3"], 400: ["b3", "b4"]}
    assert life.partial == {"q": [], "stored": []}


@story
def test_one_of_two_streams_is_silent_at_registration(life: Life) -> None:
    """No window is skipped, wherever the other one begins."""
    life.stream(A)
    life.stream(B)
    life.advance(A, 300)
    life.register("q", over("q", (A, TICK), (B, TICK)))
    life.push(A, ("a4", 350), ("a10", 950))
    life.advance(A, 1000)
    assert life.windows("q") == {}
    life.push(B, ("b9", 850))
    assert life.windows("q") == {400: ["a4"], **each(500, 800)}
    life.advance(B, 1000)
    assert life.windows("q") == {400: ["a4"], **each(500, 800), 900: ["b9"], 1000: ["a10"]}


@story
def test_the_silent_one_begins_ahead_of_the_other(life: Life) -> None:
    life.stream(A)
    life.stream(B)
    life.advance(A, 300)
    life.register("q", over("q", (A, TICK), (B, TICK)))
    life.push(B, ("b12", 1150))
    assert life.windows("q") == {}
    life.push(A, ("a4", 350), ("a10", 950))
    life.advance(A, 1000)
    assert life.windows("q") == {400: ["a4"], **each(500, 900), 1000: ["a10"]}


@story
def test_with_no_stream_begun_the_earliest_first_tuple_counts(life: Life) -> None:
    """Though that stream begins last, and behind the other."""
    life.stream(A)
    life.stream(B)
    life.register("q", over("q", (A, TICK), (B, TICK)))
    life.push(A, ("a9", 850))
    life.advance(A, 900)
    assert life.windows("q") == {}
    life.push(B, ("b4", 350))
    assert life.windows("q") == {}  # 400 is the first one, and B has closed 300
    life.advance(B, 900)
    assert life.windows("q") == {400: ["b4"], **each(500, 800), 900: ["a9"]}


@story
def test_a_first_advance_begins_a_stream_too(life: Life) -> None:
    life.stream(A)
    life.stream(B)
    life.register("q", over("q", (A, TICK), (B, TICK)))
    life.push(A, ("a4", 350))
    life.advance(A, 400)
    life.advance(B, 150)
    assert life.windows("q") == {}
    life.advance(B, 400)
    assert life.windows("q") == {**each(200, 300), 400: ["a4"]}


@story
def test_a_query_over_windows_alone_is_held_back_by_its_own_streams_only(life: Life) -> None:
    """C has begun and lags, D is declared and never begins."""
    for iri in (A, B, C, D):
        life.stream(iri)
    life.advance(C, 0)
    life.register("a", over("a", (A, TICK)))
    life.register("ab", over("ab", (A, TICK), (B, TICK)))
    life.register("ac", over("ac", (A, TICK), (C, TICK)))
    life.register("ad", over("ad", (A, TICK), (D, TICK)))
    life.push(A, ("a1", 100), ("a3", 300))
    life.advance(A, 400)
    assert life.windows("a") == {100: ["a1"], 200: [], 300: ["a3"], 400: []}
    life.push(B, ("b1", 100), ("b2", 200))
    assert life.windows("ab") == {100: ["a1", "b1"]}
    life.advance(B, 300)
    assert life.windows("ab") == {100: ["a1", "b1"], 200: ["b2"], 300: ["a3"]}
    assert life.windows("ac") == {}
    assert life.windows("ad") == {}
    life.advance(C, 200)
    assert life.windows("ac") == {100: ["a1"], 200: []}
    assert life.windows("ad") == {}


@story
def test_each_query_says_whom_it_waits_for(life: Life) -> None:
    for iri in (A, B, C):
        life.stream(iri)
    life.advance(B, 0)
    life.register("ab", over("ab", (A, TICK), (B, TICK)))
    life.register("ac", over("ac", (A, TICK), (C, TICK)))
    life.register("stored", over("stored", (A, TICK), also=STORED))
    life.push(A, ("a1", 100))
    life.advance(A, 400)
    assert B in life.why("ab")
    assert A not in life.why("ab")
    assert C in life.why("ac")
    assert B not in life.why("ac")
    assert B in life.why("stored")
    assert C not in life.why("stored")


# --- the clock of the stored graph ------------------------------------------------------------------------------------


@story
def test_a_query_that_reads_stored_graphs_waits_for_the_clock(life: Life) -> None:
    """At t it sees what all streams that count have brought up to t, and nothing later."""
    life.stream(A)
    life.stream(B, timing=False)
    life.stream(D)
    life.advance(B, 0)
    life.register("alone", over("alone", (A, TICK)))
    life.register("stored", over("stored", (A, TICK), also=STORED))
    life.push(A, ("a1", 100), ("a2", 200), ("a3", 300))
    life.advance(A, 400)
    assert life.windows("alone") == {100: ["a1"], 200: ["a2"], 300: ["a3"], 400: []}
    assert life.windows("stored") == {}
    life.push(B, ("b1", 100), ("b2", 200))
    assert life.windows("stored") == {100: ["a1", "b1"]}
    assert life.subjects() == ["b1"]
    life.load("loaded")
    life.push(B, ("b3", 300), ("b9", 900))
    assert life.windows("stored") == {
        100: ["a1", "b1"],
        200: ["a2", "b1", "b2", "loaded"],
        300: ["a3", "b1", "b2", "b3", "loaded"],
        400: ["b1", "b2", "b3", "loaded"],
    }
    assert life.subjects() == ["b1", "b2", "b3", "loaded"]


@story
def test_named_windows_alone_read_the_stored_default_graph(life: Life) -> None:
    """So such a query waits for the clock. With a stored graph that is NAMED it does as well."""
    life.stream(A)
    life.stream(B, timing=False)
    life.advance(B, 0)
    window = f"FROM NAMED STREAM <{A}> [{TICK}]"
    life.register("default", f"REGISTER QUERY default AS SELECT ?s {window} WHERE {{ ?s ?p ?o }}")
    graph = f"FROM NAMED <{EX}g>"
    where = f"{{ GRAPH <{A}> {{ ?s ?p ?o }} }}"
    life.register("named", f"REGISTER QUERY named AS SELECT ?s {window} {graph} WHERE {where}")
    life.push(A, ("a1", 100))
    life.advance(A, 200)
    assert (life.windows("default"), life.windows("named")) == ({}, {})
    life.push(B, ("b1", 50))
    life.advance(B, 100)
    assert life.windows("default") == {100: ["b1"]}
    assert life.windows("named") == {100: ["a1"]}


@story
def test_patterns_in_named_windows_alone_wait_for_no_clock(life: Life) -> None:
    """No pattern reads the default graph, so such a query is one over windows alone (decision 0033)."""
    life.stream(A)
    life.stream(B, timing=False)
    life.advance(B, 0)
    where = f"{{ GRAPH <{A}> {{ ?s ?p ?o }} }}"
    life.register("alone", f"REGISTER QUERY alone AS SELECT ?s FROM NAMED STREAM <{A}> [{TICK}] WHERE {where}")
    life.push(A, ("a1", 100))
    life.advance(A, 200)
    assert life.windows("alone") == {100: ["a1"], 200: []}


@story
def test_an_update_is_seen_from_the_clock_on(life: Life) -> None:
    life.stream(A)
    life.stream(B)
    life.advance(A, 0)
    life.advance(B, 0)
    life.load("old")
    life.register("stored", over("stored", (A, TICK), also=STORED))
    life.push(A, ("a1", 100), ("a5", 500))
    life.advance(A, 500)
    life.advance(B, 200)
    life.update("DELETE DATA { :old :p :o } ; INSERT DATA { :new :p :o }")
    life.advance(B, 500)
    assert life.windows("stored") == {
        100: ["a1", "old"],
        200: ["old"],
        **each(300, 400, "new"),
        500: ["a5", "new"],
    }


@story
def test_a_stream_that_ends_lets_the_clock_go_on(life: Life) -> None:
    life.stream(A)
    life.stream(B, timing=False)
    life.advance(B, 0)
    life.register("stored", over("stored", (A, TICK), also=STORED))
    life.push(A, ("a1", 100), ("a2", 200))
    life.advance(A, 400)
    life.push(B, ("b1", 50), ("b2", 150))
    assert life.windows("stored") == {100: ["a1", "b1"]}
    life.end(B)
    assert life.windows("stored") == {100: ["a1", "b1"], 200: ["a2", "b1", "b2"], **each(300, 400, "b1", "b2")}


# --- a stream that lags -----------------------------------------------------------------------------------------------


@story
def test_a_range_over_a_stream_that_lags_beside_one_that_does_not(life: Life) -> None:
    """What the windows of A need is held until B has come so far, though A keeps no history."""
    life.stream(A, history_ms=0)
    life.stream(B, history_ms=0)
    life.advance(A, 0)
    life.advance(B, 0)
    life.register("q", over("q", (A, "RANGE 300ms STEP 100ms"), (B, "RANGE 200ms STEP 100ms")))
    life.push(A, *((f"a{k}", 100 * k) for k in range(1, 21)))
    life.advance(A, 10_000)
    life.push(B, *((f"b{k}", 100 * k) for k in range(1, 21)))

    def held(k: int) -> list[str]:
        return sorted([f"a{n}" for n in range(max(k - 2, 1), k + 1)] + [f"b{n}" for n in range(max(k - 1, 1), k + 1)])

    assert life.windows("q") == {100 * k: held(k) for k in range(1, 20)}
    life.advance(B, 2000)
    assert life.windows("q")[2000] == held(20)
    assert life.partial == {"q": []}


@story
def test_a_stream_that_begins_an_hour_late_and_catches_up(life: Life) -> None:
    """A firing with a window on it reads the stored graph as of the record that brought its last stream batch; it
    holds nobody back, until it has reached the clock."""
    minute = 60_000
    ten = "RANGE 10m STEP 10m"
    life.stream(A, batch_ms=1000, timing=False)
    life.stream(B, batch_ms=1000, timing=False)
    life.register("b", over("b", (B, ten)))
    life.register("stored", over("stored", (B, ten), also=STORED))
    life.register("ahead", over("ahead", (A, ten), also=STORED))
    life.push(A, ("a1", minute), ("a60", 60 * minute))
    life.advance(A, 60 * minute)
    life.load("first")
    assert life.windows("ahead") == {10 * minute: ["a1"], **each(20 * minute, 50 * minute, "a1", step=10 * minute)} | {
        60 * minute: ["a1", "a60"]
    }
    life.push(B, ("b1", minute))
    life.load("second")
    life.push(B, ("b11", 11 * minute))  # closes up to 10:59
    assert life.windows("b") == {10 * minute: ["b1"]}
    stored = {10 * minute: ["a1", "a60", "b1", "first", "second"]}
    assert life.windows("stored") == stored
    life.load("third")
    life.advance(B, 20 * minute)
    stored[20 * minute] = ["a1", "a60", "b1", "b11", "first", "second", "third"]
    assert life.windows("stored") == stored
    life.push(A, ("a70", 70 * minute))
    life.advance(A, 70 * minute)  # nobody waits for B
    facts = ["a1", "a60", "a70", "b1", "b11", "first", "second", "third"]
    assert life.subjects() == facts
    assert life.windows("ahead")[70 * minute] == facts
    life.push(B, ("b70", 70 * minute))
    life.advance(B, 70 * minute)  # it has reached the clock, which waits for it from now on
    assert life.windows("stored") | stored == life.windows("stored")
    assert list(life.windows("stored")) == [10 * k * minute for k in range(1, 8)]
    assert life.windows("stored")[70 * minute] == sorted([*facts, "b70"])
    life.push(A, ("a80", 80 * minute))
    life.advance(A, 80 * minute)
    assert list(life.windows("ahead")) == [10 * k * minute for k in range(1, 8)]
    life.advance(B, 80 * minute)
    assert life.windows("ahead")[80 * minute] == sorted([*facts, "a80", "b70"])
    assert life.windows("stored")[80 * minute] == sorted([*facts, "a80", "b70"])
    assert life.windows("b") == {
        10 * minute: ["b1"],
        20 * minute: ["b11"],
        **each(30 * minute, 60 * minute, step=10 * minute),
        70 * minute: ["b70"],
        80 * minute: [],
    }
    assert life.partial == {"b": [], "stored": [], "ahead": []}


@story
def test_before_its_first_tuple_a_late_stream_is_read_as_of_its_beginning(life: Life) -> None:
    """Firings that waited for it to begin read the stored graph of that moment, not that of a load before or after."""
    life.stream(A, timing=False)
    life.stream(B)
    life.advance(A, 1000)
    life.register("q", over("q", (A, TICK), (B, TICK), also=STORED))
    life.push(A, ("a11", 1100), ("a20", 2000))
    life.advance(A, 2000)
    life.load("first")
    assert life.windows("q") == {}
    life.push(B, ("b15", 1450))
    life.load("second")
    assert life.windows("q") == each(1100, 1400, "a11", "a20", "first")
    life.advance(B, 1600)
    assert life.windows("q") == {
        **each(1100, 1400, "a11", "a20", "first"),
        1500: ["a11", "a20", "b15", "first", "second"],
        1600: ["a11", "a20", "first", "second"],
    }


@story
def test_a_stream_that_begins_ahead_of_the_clock_counts_at_once(life: Life) -> None:
    life.stream(A)
    life.stream(B, timing=False)
    life.advance(A, 100)
    life.register("stored", over("stored", (A, TICK), also=STORED))
    life.push(B, ("b3", 250))
    life.load("first")
    life.push(A, ("a2", 150), ("a4", 350))
    life.advance(A, 400)
    assert life.windows("stored") == {200: ["a2", "first"]}
    life.load("second")
    life.advance(B, 400)
    assert life.windows("stored") == {
        200: ["a2", "first"],
        300: ["b3", "first", "second"],
        400: ["a4", "b3", "first", "second"],
    }


@story
def test_a_late_stream_holds_only_the_queries_with_a_window_on_it(life: Life) -> None:
    life.stream(A)
    life.stream(B, timing=False)
    life.register("a", over("a", (A, TICK), also=STORED))
    life.register("ab", over("ab", (A, TICK), (B, TICK)))
    life.advance(A, 1000)
    life.push(B, ("b1", 150))
    life.push(A, ("a11", 1050))
    life.advance(A, 1200)
    assert life.windows("a") == {1000: [], 1100: ["a11"], 1200: []}
    assert life.windows("ab") == {}
    life.advance(B, 300)
    assert life.subjects() == ["b1"]
    assert life.windows("ab") == {200: ["b1"], 300: []}
    life.advance(A, 1300)
    assert life.windows("a")[1300] == ["b1"]


@story
def test_a_stream_that_passes_the_clock_in_one_push_is_seen_whole(life: Life) -> None:
    """Its stream batches behind the clock have joined when a firing beyond it reads the stored graph."""
    life.stream(A, batch_ms=1000)
    life.stream(B, timing=False)
    life.advance(A, 1200)
    life.register("stored", over("stored", (B, TICK), also=STORED, every="250ms"))
    life.end(A)
    life.push(B, ("b14", 1433), ("b23", 2335))
    assert life.windows("stored") == each(1500, 2250, "b14", step=250)


@story
def test_a_late_stream_that_passes_the_clock_after_the_other_has_ended(life: Life) -> None:
    life.stream(A, timing=False)
    life.stream(B, batch_ms=500, timing=False)
    life.register("stored", over("stored", (A, TICK), (B, "RANGE 500ms STEP 500ms"), also=STORED, every="250ms"))
    life.push(A, ("a20", 2031))
    life.push(B, ("b14", 1400))
    life.end(A)
    life.push(B, ("b23", 2353), ("b29", 2953), ("b32", 3203))
    found = life.windows("stored")
    assert list(found) == list(range(1500, 3251, 250))
    assert [found[t] for t in (2500, 3000)] == [["a20", "b14", "b23"], ["a20", "b14", "b23", "b29"]]


# --- stream batches of different length -------------------------------------------------------------------------------


@story
def test_stream_batches_of_different_length(life: Life) -> None:
    """At 1500, A has closed 1500 and B has closed 1000, its latest end before: that is due."""
    life.stream(A, batch_ms=100)
    life.stream(B, batch_ms=1000)
    windows = (A, "RANGE 500ms STEP 500ms"), (B, "RANGE 1s STEP 1s")
    life.register("q", over("q", *windows))
    life.register("stored", over("stored", *windows, also=STORED))
    expected = {500: ["a4"], 1000: ["b9"], 1500: ["a12", "b9"], 2000: ["a17", "b12"]}
    until_1500 = {t: held for t, held in expected.items() if t < 2000}
    life.push(A, ("a4", 400), ("a12", 1200), ("a17", 1700))
    life.push(B, ("b9", 900), ("b12", 1200))
    assert (life.windows("q"), life.windows("stored")) == (until_1500, until_1500)
    life.advance(A, 2000)
    life.advance(B, 1999)
    assert (life.windows("q"), life.windows("stored")) == (until_1500, until_1500)
    life.advance(B, 2000)
    assert (life.windows("q"), life.windows("stored")) == (expected, expected)


@story
def test_a_period_that_no_stream_batch_ends_at(life: Life) -> None:
    """COMPUTED EVERY 150ms: at 150 the stream has closed 100, its latest end before."""
    life.stream(A)
    life.register("q", over("q", (A, TICK), every="150ms"))
    life.register("stored", over("stored", (A, TICK), also=STORED, every="150ms"))
    life.push(A, ("a1", 80), ("a2", 180))
    for name in ("q", "stored"):
        assert life.windows(name) == {150: ["a1"]}
    life.advance(A, 400)
    for name in ("q", "stored"):
        assert life.windows(name) == {150: ["a1"], 300: [], 450: []}


@story
def test_the_clock_stands_between_ends_of_the_longer_stream_batches(life: Life) -> None:
    """B has closed 1000, and so covers all up to 1999: what A brings up to there is visible."""
    life.stream(A, timing=False)
    life.stream(B, batch_ms=1000, timing=False)
    life.advance(A, 1000)
    life.advance(B, 1000)
    life.register("stored", over("stored", (A, TICK), also=STORED))
    life.push(A, ("a11", 1100), ("a19", 1900), ("a20", 2000))
    assert life.subjects() == ["a11", "a19"]
    assert life.windows("stored") == {1100: ["a11"], **each(1200, 1800, "a11"), 1900: ["a11", "a19"]}
    life.load("loaded")
    life.push(B, ("b20", 2000))
    life.advance(A, 2000)
    assert life.subjects() == ["a11", "a19", "loaded"]
    life.advance(B, 2000)
    assert life.windows("stored")[2000] == ["a11", "a19", "a20", "b20", "loaded"]


@story
def test_a_stream_has_begun_while_its_first_stream_batch_is_open(life: Life) -> None:
    """B brings a tuple at 3030, so it has closed 3000, and covers all up to 3999. C brings one at 50: it has closed
    what ends at 0, and covers all up to 999."""
    life.stream(A)
    life.stream(B, batch_ms=1000)
    life.stream(C, batch_ms=1000)
    life.register("b", over("b", (A, TICK), (B, "RANGE 1s STEP 1s"), every="100ms"))
    life.register("c", over("c", (A, TICK), (C, "RANGE 1s STEP 1s"), every="100ms"))
    life.push(A, ("a1", 80), ("a2", 180))
    life.advance(A, 300)
    assert (life.windows("b"), life.windows("c")) == ({}, {})
    life.push(B, ("b31", 3030))
    life.push(C, ("c1", 50))
    expected = {100: ["a1"], 200: ["a2"], 300: []}
    assert (life.windows("b"), life.windows("c")) == (expected, expected)
    life.pause("b")
    life.push(A, ("a3", 380))
    life.advance(A, 400)
    life.resume("b")
    life.advance(A, 500)
    assert life.windows("b") == {**expected, 500: []}
    assert life.windows("c") == {**expected, 400: ["a3"], 500: []}


# --- streams that end -------------------------------------------------------------------------------------------------


@story
def test_the_last_firing_is_at_or_after_the_greatest_end(life: Life) -> None:
    """An ended stream has closed every later time. C, which goes on, holds back those that read stored graphs."""
    for iri in (A, B, C):
        life.stream(iri)
    life.advance(C, 0)
    three = "RANGE 300ms STEP 300ms"
    life.register("ab", over("ab", (A, three), (B, three)))
    life.register("a", over("a", (A, three)))
    life.register("stored", over("stored", (A, three), (B, three), also=STORED))
    life.push(A, ("a1", 150))
    life.end(A)
    assert life.windows("a") == {300: ["a1"]}
    life.push(B, ("b2", 250), ("b5", 450))
    assert life.windows("ab") == {300: ["a1", "b2"]}
    life.end(B)
    assert life.windows("ab") == {300: ["a1", "b2"], 600: ["b5"]}
    assert life.windows("stored") == {}
    life.advance(C, 500)
    assert life.windows("stored") == {300: ["a1", "b2"]}
    life.end(C)
    assert life.windows("stored") == {300: ["a1", "b2"], 600: ["b5"]}
    assert life.windows("a") == {300: ["a1"]}


@story
def test_the_last_firing_reads_what_was_loaded_before_it(life: Life) -> None:
    life.stream(A)
    life.advance(A, 1900)
    life.register("stored", over("stored", (A, TICK), also=STORED, every="700ms"))
    life.load("loaded")
    life.end(A)
    assert life.windows("stored") == {2100: ["loaded"]}


@story
def test_nothing_fires_behind_the_end_of_long_stream_batches(life: Life) -> None:
    """While the stream goes on, it covers all up to 5999 once it has closed 5000. With its end nothing covers more."""
    life.stream(B, batch_ms=1000)
    life.register("q", over("q", (B, "RANGE 1s STEP 1s"), every="150ms"))
    life.push(B, ("b48", 4802))
    assert life.windows("q") == {4950: []}
    life.end(B)
    assert life.windows("q") == {4950: [], 5100: ["b48"]}


@story
def test_firings_behind_the_end_of_a_late_stream_read_what_it_has_brought(life: Life) -> None:
    life.stream(A, timing=False)
    life.stream(B, batch_ms=200, timing=False)
    life.push(A, ("a20", 1930))
    life.register("stored", over("stored", (A, TICK), (B, "RANGE 600ms STEP 400ms"), also=STORED, every="700ms"))
    life.push(B, ("b3", 250), ("b5", 500))
    life.advance(B, 591)
    life.push(B, ("b10", 943))
    life.push(A, ("a27", 2632))
    life.advance(B, 1043)
    life.load("loaded")
    life.end(A)
    assert life.windows("stored") == {}
    life.end(B)
    held = ["a20", "a27", "b10", "b3", "b5", "loaded"]
    assert life.windows("stored") == {2100: held, 2800: held}


@story
def test_an_end_on_a_multiple_is_the_last_firing(life: Life) -> None:
    life.stream(A)
    life.register("q", over("q", (A, "RANGE 300ms STEP 300ms")))
    life.push(A, ("a6", 550))
    life.end(A)
    assert life.windows("q") == {600: ["a6"]}


@story
def test_a_stream_that_ends_before_it_begins_is_waited_for_no_more(life: Life) -> None:
    life.stream(A)
    life.stream(B)
    life.register("q", over("q", (A, TICK), (B, TICK)))
    life.push(A, ("a1", 50))
    life.advance(A, 200)
    assert life.windows("q") == {}
    life.end(B)
    assert life.windows("q") == {100: ["a1"], 200: []}


@story
def test_a_stream_that_begins_after_all_others_have_ended(life: Life) -> None:
    """The clock stands at the greatest end; one that begins behind it is late, and joins all the same."""
    life.stream(A, timing=False)
    life.stream(B, timing=False)
    life.register("stored", over("stored", (B, TICK), also=STORED))
    life.push(A, ("a9", 850))
    life.end(A)
    life.push(B, ("b1", 50), ("b2", 150))
    assert life.windows("stored") == {100: ["a9", "b1"]}
    life.load("loaded")
    life.advance(B, 200)
    assert life.windows("stored") == {100: ["a9", "b1"], 200: ["a9", "b1", "b2", "loaded"]}
    life.push(B, ("b10", 950))
    life.end(B)
    assert life.windows("stored")[1000] == ["a9", "b1", "b10", "b2", "loaded"]
    assert list(life.windows("stored")) == list(range(100, 1001, 100))


@story
def test_a_query_that_comes_after_the_end_reports_nothing(life: Life) -> None:
    life.stream(A)
    life.push(A, ("a1", 50))
    life.end(A)
    life.register("q", over("q", (A, TICK)))
    life.stream(B)
    life.advance(B, 500)
    assert life.windows("q") == {}


# --- registering, pausing ---------------------------------------------------------------------------------------------


@story
def test_a_query_that_comes_later_reports_the_same_windows_from_then_on(life: Life) -> None:
    """B is behind A. The one that comes later begins after what the slower of its streams has closed."""
    life.stream(A)
    life.stream(B)
    life.advance(A, 0)
    life.advance(B, 0)
    sizes = (A, "RANGE 300ms STEP 100ms"), (B, "RANGE 200ms STEP 100ms")
    life.register("before", over("before", *sizes))
    life.push(A, *((f"a{k}", 100 * k) for k in range(1, 9)))
    life.push(B, *((f"b{k}", 100 * k) for k in range(1, 5)))
    life.register("after", over("after", *sizes))
    life.register("stored", over("stored", *sizes, also=STORED))
    life.advance(A, 900)
    life.push(B, *((f"b{k}", 100 * k) for k in range(5, 9)))
    life.advance(B, 900)
    before = life.windows("before")
    assert list(before) == list(range(100, 901, 100))
    assert before[600] == ["a4", "a5", "a6", "b5", "b6"]
    from_then_on = {t: held for t, held in before.items() if t > 300}
    assert life.windows("after") == from_then_on
    assert life.windows("stored") == from_then_on
    assert life.partial == {"before": [], "after": [], "stored": []}


@story
def test_what_closes_while_a_query_is_paused_is_skipped_and_nothing_else(life: Life) -> None:
    life.stream(A)
    life.stream(B)
    life.advance(A, 0)
    life.advance(B, 0)
    life.register("q", over("q", (A, TICK), (B, TICK)))
    life.push(A, *((f"a{k}", 100 * k) for k in range(1, 10)))
    life.advance(B, 200)
    life.pause("q")
    life.advance(B, 400)
    life.resume("q")
    life.advance(B, 600)
    assert life.windows("q") == {t: [f"a{t // 100}"] for t in (100, 200, 500, 600)}


@story
def test_a_pause_takes_back_nothing_that_was_due(life: Life) -> None:
    life.stream(A, batch_ms=500)
    life.push(A, ("a1", 101))
    life.register("q", over("q", (A, "RANGE 500ms STEP 500ms"), every="150ms"))
    life.pause("q")
    life.resume("q")
    life.advance(A, 1000)
    assert life.windows("q") == {
        **each(150, 450, step=150),
        **each(600, 900, "a1", step=150),
        **each(1050, 1350, step=150),
    }


# --- recovery in the middle -------------------------------------------------------------------------------------------


TELLING = (
    test_two_streams_that_are_pushed_whole_one_after_the_other,
    test_with_no_stream_begun_the_earliest_first_tuple_counts,
    test_a_query_that_reads_stored_graphs_waits_for_the_clock,
    test_before_its_first_tuple_a_late_stream_is_read_as_of_its_beginning,
    test_the_clock_stands_between_ends_of_the_longer_stream_batches,
    test_a_stream_that_begins_after_all_others_have_ended,
    test_a_query_that_comes_later_reports_the_same_windows_from_then_on,
    test_what_closes_while_a_query_is_paused_is_skipped_and_nothing_else,
)
"""One of each kind: with ends in between, the fast tier has these alone."""


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(told, id=told.__name__.removeprefix("test_"), marks=[] if told in TELLING else [pytest.mark.slow])
        for told in STORIES
    ],
)
@pytest.mark.parametrize("ends", ["closed", pytest.param("crashed", marks=pytest.mark.slow)])
def test_a_durable_engine_ends_before_any_step_and_goes_on(told: Story, ends: str, tmp_path: Path) -> None:
    for cut in count(1):
        folder = tmp_path / f"data{cut}"
        again = close_and_open(folder) if ends == "closed" else crash_and_open(folder, tmp_path / f"copy{cut}")
        life = Life(wukongs.Engine(folder), again, cut)
        try:
            told(life)
        except AssertionError as error:
            error.add_note(f"the engine was {ends} before step {cut}")
            raise
        finally:
            life.engine.close()
        if cut >= life.steps:
            break


@story
def test_a_query_that_comes_when_a_late_stream_has_joined_reads_no_snapshot_of_before(life: Life) -> None:
    """At 150 ms it would read the stored graph as of the moment at which the late stream has joined up to 100."""
    life.stream(A)
    life.stream(B)
    life.push(A, ("a1", 50))
    life.advance(A, 300)
    life.push(B, ("b1", 60), ("b2", 160))
    life.push(A, ("a4", 450))
    life.advance(A, 600)
    life.register("q", over("q", (B, TICK), also=STORED, every="50ms"))
    life.advance(B, 200)
    assert life.windows("q") == each(200, 250, "b2", step=50)
