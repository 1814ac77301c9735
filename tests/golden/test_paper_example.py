"""The paper's own example: Q_C over two streams and the stored graph, Q_S before and after the streams are absorbed.

Times are seconds of the paper: 802 is 802,000 ms. Logan's post of 802 is in the windows (t - 10 s, t] that close from
802 to 811, Erik's like of 806 in the windows (t - 5 s, t] from 806 to 810: Q_C reports the row from 806 to 810.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wukongs

pytestmark = pytest.mark.nojit

HERE = Path(__file__).parent / "paper_example"
XLAB = "http://example.org/xlab/"
GRAPH = XLAB + "X-Lab"
TWEETS, LIKES = XLAB + "Tweet_Stream", XLAB + "Like_Stream"
START = 801  # the first sign of life of both streams
ROW = ("Logan", "Erik", "T-15")
ASK_POSITION = f"ASK {{ {{ ?x <{XLAB}ga> ?place }} UNION {{ GRAPH ?g {{ ?x <{XLAB}ga> ?place }} }} }}"


def tuples(name: str, after: int, until: int) -> list[tuple[str, str, str, int]]:
    """The tuples of one stream with after < timestamp <= until, in seconds."""
    found = []
    for line in (HERE / name).read_text().splitlines():
        time, triple = line.split("\t")
        if after * 1000 < int(time) <= until * 1000:
            subject, predicate, term = triple.removesuffix(" .").split(" ", 2)
            found.append((subject, predicate, term, int(time)))
    return found


class Life:
    """An engine with X-Lab and both streams, and how far they have come."""

    def __init__(self, first_stream: str = TWEETS) -> None:
        self.engine = wukongs.Engine()
        self.engine.load(str(HERE / "xlab.ttl"), graph=GRAPH)
        self.streams: dict[str, Any] = {}
        for iri in [TWEETS, LIKES] if first_stream == TWEETS else [LIKES, TWEETS]:
            timing = [XLAB + "ga"] if iri == TWEETS else []
            self.streams[iri] = self.engine.stream(iri, timing=timing, batch_ms=1000, into=GRAPH)
        self.now = START - 1

    def play(self, until: int) -> None:
        """Push all tuples up to a time, second by second, and let both streams stand there."""
        for second in range(self.now + 1, until + 1):
            for iri, name in ((TWEETS, "tweet_stream.tsv"), (LIKES, "like_stream.tsv")):
                found = tuples(name, second - 1, second)
                if found:
                    self.streams[iri].push(found)
                self.streams[iri].advance(second * 1000)
        self.now = until
        self.engine.settle(timeout_s=60)

    def ask(self) -> list[tuple[str, ...]]:
        return rows(self.engine.query((HERE / "q_s.rq").read_text()))


def rows(result: Any) -> list[tuple[str, ...]]:
    return sorted(tuple(str(term).removeprefix(XLAB) for term in row) for row in result)


def reported(query: Any) -> dict[int, list[tuple[str, ...]]]:
    """Window end in seconds -> its rows, for all windows that are due."""
    found: dict[int, list[tuple[str, ...]]] = {}
    for window in query.results(timeout_s=0):
        assert not window.partial
        assert window.end_ms % 1000 == 0
        assert window.end_ms // 1000 not in found
        found[window.end_ms // 1000] = rows(window)
    return found


def q_c(tweet_range: int = 10, like_range: int = 5) -> str:
    text = (HERE / "q_c.rq").read_text()
    assert "RANGE 10s" in text
    assert "RANGE 5s" in text
    return text.replace("RANGE 5s", f"RANGE {like_range}s").replace("RANGE 10s", f"RANGE {tweet_range}s")


@pytest.fixture
def life() -> Iterator[Life]:
    life = Life()
    yield life
    life.engine.close()


def test_q_c_registered_at_809_reports_the_row_for_810_and_no_longer(life: Life) -> None:
    life.play(809)
    query = life.engine.register(q_c())
    life.play(813)
    assert reported(query) == {810: [ROW], 811: [], 812: [], 813: []}


def test_q_c_registered_before_any_tuple_reports_the_same_windows_from_there_on(life: Life) -> None:
    query = life.engine.register(q_c())
    life.play(809)
    life.play(813)
    windows = reported(query)
    assert list(windows) == list(range(START, 814))
    assert {end: found for end, found in windows.items() if found} == {end: [ROW] for end in range(806, 811)}


@pytest.mark.parametrize("first_stream", [TWEETS, LIKES])
def test_the_order_of_declaring_the_streams_changes_nothing(first_stream: str) -> None:
    life = Life(first_stream)
    with life.engine:
        life.play(809)
        query = life.engine.register(q_c())
        life.play(811)
        assert reported(query) == {810: [ROW], 811: []}


@pytest.mark.parametrize("registered_first", [True, False])
@pytest.mark.parametrize(("tweet_range", "like_range"), [(10, 5), (5, 5), (10, 10), (5, 10), (9, 4), (8, 3)])
def test_each_stream_keeps_a_window_of_its_own_size(tweet_range: int, like_range: int, registered_first: bool) -> None:
    """One window for all streams of a query, as C-SPARQL keeps it, would be wrong in every case of different sizes."""
    life = Life()
    with life.engine:
        query = life.engine.register(q_c(tweet_range, like_range)) if registered_first else None
        life.play(803)
        query = query or life.engine.register(q_c(tweet_range, like_range))
        life.play(820)
        post_is_in = set(range(802, 802 + tweet_range))
        like_is_in = set(range(806, 806 + like_range))
        windows = reported(query)
        assert {end for end, found in windows.items() if found} == post_is_in & like_is_in
        assert all(found in ([], [ROW]) for found in windows.values())
        assert set(range(804, 821)) <= set(windows)


def test_q_s_gives_t_13_before_and_t_13_and_t_15_after(life: Life) -> None:
    assert life.ask() == [("T-13",)]
    life.play(805)
    assert life.ask() == [("T-13",)]
    life.play(809)
    assert life.ask() == [("T-13",), ("T-15",)]


def test_no_one_shot_query_ever_sees_the_position(life: Life) -> None:
    assert not life.engine.query(ASK_POSITION).boolean
    for until in (802, 803, 806, 812, 900):
        life.play(until)
        assert not life.engine.query(ASK_POSITION).boolean
    absorbed = f"ASK {{ GRAPH <{GRAPH}> {{ <{XLAB}T-15> <{XLAB}ht> <{XLAB}sosp17> }} }}"
    assert life.engine.query(absorbed).boolean


def test_a_window_does_see_the_position(life: Life) -> None:
    window = f"FROM STREAM <{TWEETS}> [RANGE 2s STEP 1s]"
    query = life.engine.register(f"REGISTER QUERY places AS SELECT ?p {window} WHERE {{ ?x <{XLAB}ga> ?p }}")
    life.play(805)
    places = {end: [row[0] for row in found] for end, found in reported(query).items() if found}
    assert places == {802: ["31,121"], 803: ["31,121"]}


def test_the_streams_are_absorbed_into_x_lab_and_nowhere_else(life: Life) -> None:
    life.play(812)
    assert not life.engine.query("ASK { ?s ?p ?o }").boolean
    graphs = rows(life.engine.query("SELECT DISTINCT ?g { GRAPH ?g { ?s ?p ?o } }"))
    assert graphs == [("X-Lab",)]
    counted = life.engine.query(f"SELECT (COUNT(*) AS ?n) FROM <{GRAPH}> WHERE {{ ?s ?p ?o }}")
    assert rows(counted) == [("16",)]  # 8 stored, 2 timeless tuples of the post, 6 likes
