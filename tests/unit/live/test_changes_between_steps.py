"""Changes of a registered query between any two steps of the injector: the windows are the same at each of them.

The engine has no thread of its own here: a test takes each step. A change is asked for between two of them, and more
tuples are pushed as soon as its event time is decided. By docs/decisions/0112-event-time-of-changes.md windows that are
due when the change is asked for go by the state before it, all later ones by the state after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import EX, A, B, at, names, register_text
from tests.inside import SteppedInjector
from tests.lives import crash_and_open
from wukongs.live import continuous, joined_queries
from wukongs.live.joined_query import JoinedQuery

P = EX + "made"
STORED = "FROM <urn:x-wukongs:default>"
Windows = dict[int, list[str]]


@dataclass(frozen=True)
class Case:
    """A query and its streams, of which the tests know the windows.

    streams: with their options, and how far each is closed by the first and by the second feed.
    others: texts that are registered before the query.
    text: of the query, by the number of stream batches in its window.
    changed: the query that is changed, if it is another one than the query that is read.
    due, later: ends of the windows that are due by the first feed, and of those that the second one makes due.
    rows: what the window that ends at a time holds, by the number of stream batches in it.
    """

    streams: dict[str, tuple[dict[str, Any], int, int]]
    text: Callable[[int], str]
    due: Iterable[int]
    later: Iterable[int]
    rows: Callable[[int, int], list[str]]
    others: tuple[str, ...] = ()
    changed: str | None = None


def single(width: int, name: str = "q", stream: str = A, also: str = "", where: str = "{ ?s ?p ?o }") -> str:
    text = register_text(f"RANGE {width}00ms STEP 100ms", name=name, stream=stream, where=where)
    return text.replace(" WHERE", f" {also} WHERE")


def held(end_ms: int, width: int) -> list[str]:
    """One tuple in each stream batch."""
    last = end_ms // 100
    return [f"s{number}" for number in range(max(1, last - width + 1), last + 1)]


def of_shape(width: int, name: str = "q") -> str:
    """A query that is put into a group with others of its shape."""
    return single(width, name, where=f"{{ ?s <{EX}p> <{EX}o> . ?s ?p <{EX}o> }}")


def counted(width: int) -> str:
    return f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE TRIPLES {width} STEP 1] WHERE {{ ?s ?p ?o }}"


def made(stream: str) -> str:
    return (
        f"REGISTER STREAM <{P}> AS CONSTRUCT {{ ?s <{EX}seen> ?o }} FROM STREAM <{stream}> [RANGE 100ms STEP 100ms] "
        "WHERE { ?s ?p ?o }"
    )


FIRST, SECOND = range(100, 501, 100), range(600, 901, 100)
ONE = {A: ({}, 500, 900)}
CASES = {
    "windows alone": Case(ONE, single, FIRST, SECOND, held),
    "with the stored graph": Case(
        ONE, lambda width: single(width, also=STORED), FIRST, SECOND, lambda end_ms, _: held(end_ms, 9)
    ),
    "two streams": Case(
        {A: ({}, 500, 900), B: ({}, 300, 700)},
        lambda width: single(width, also=f"FROM STREAM <{B}> [RANGE 100ms STEP 100ms]"),
        range(100, 301, 100),
        range(400, 701, 100),
        held,
    ),
    "ahead of the clock": Case(
        {A: ({}, 500, 900), B: ({}, 100, 200)},
        single,
        FIRST,
        SECOND,
        held,
        others=(single(1, "slow", B, STORED),),
    ),
    "windows that count": Case(ONE, counted, FIRST, SECOND, held),
    "a reader of a made stream": Case(
        ONE, lambda width: single(width, stream=P), FIRST, SECOND, held, others=(made(A),)
    ),
    "behind the clock": Case(
        {A: ({}, 500, 900), B: ({}, 400, 800)},
        lambda width: single(width, stream=B, also=STORED.replace("FROM", "FROM NAMED")),
        range(100, 401, 100),
        range(500, 801, 100),
        held,
    ),
    "in a group": Case(ONE, of_shape, FIRST, SECOND, held, others=(of_shape(1, "r"), of_shape(1, "s"))),
    "the maker of a stream": Case(
        ONE, lambda width: single(1, stream=P), FIRST, SECOND, held, others=(made(A),), changed=P
    ),
}


def feed(engine: Any, case: Case, which: int) -> None:
    for stream, (_, *closed) in case.streams.items():
        first = 1 if which == 0 else closed[0] // 100 + 1
        last = closed[which] // 100
        found = engine._backend.declared(stream)
        # Tuples of the other streams are the same ones: a window is a set.
        found.push([at(f"s{number}", number * 100 - 50) for number in range(first, last + 1)])
        found.advance(closed[which])


def is_decided(query: Any) -> bool:
    """Tell whether a change of a query has its event time, and waits for the firings before it."""
    if not isinstance(query, JoinedQuery):
        return query is not None and query.changes.is_any
    group = query._group
    return (group is not None and group.lead.changes.is_any) or is_decided(query._alone)


class Story:
    """One engine that is told a case, with a change after some moments of the first feed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, case: Case, folder: Path | None = None) -> None:
        self.case, self.engine = case, wukongs.Engine() if folder is None else wukongs.Engine(folder)
        self.injector = SteppedInjector(monkeypatch, self.engine)
        for stream, (options, *_) in case.streams.items():
            self.engine.stream(stream, batch_ms=100, **options)
        for text in case.others:
            self.engine.register(text)
        self.query: Any = None

    def run(self, change: str, moment: int) -> bool:
        """Make the change after some moments; return whether there are as many."""
        if change != "register":
            self.query = self.engine.register(self.case.text(1))
        if change == "resume":
            self._changed().pause()
        feed(self.engine, self.case, 0)
        moments = self.injector.moments()
        is_there = any(number == moment for number, _ in enumerate(moments))
        changed = self._changed()
        changing = threading.Thread(target=self._change, args=(change,), daemon=True)
        changing.start()
        while changing.is_alive() and not is_decided(changed):
            changing.join(0.002)
            if changing.is_alive() and not is_decided(changed):
                next(moments, None)  # it waits for a firing of the group that it leaves, or for slices to count from
        feed(self.engine, self.case, 1)
        for _ in moments:
            pass
        while changing.is_alive():
            for _ in self.injector.moments():
                pass
        for _ in self.injector.moments():
            pass
        return is_there

    def _changed(self) -> Any:
        return self.query if self.case.changed is None else self.engine._injector.queries[self.case.changed]

    def _change(self, change: str) -> None:
        match change:
            case "update":
                self.engine.update(f"INSERT DATA {{ <{EX}s0> <{EX}p> <{EX}o> }}")
            case "register":
                self.query = self.engine.register(self.case.text(1))
            case "replace":
                self._changed().replace(self.case.text(2) if self.case.changed is None else made(A))
            case _:
                getattr(self._changed(), change)()


def read(query: Any) -> Windows:
    return {window.end_ms: names(window) for window in query.results(timeout_s=0)}


def expected(case: Case, change: str) -> Windows:
    before = {end_ms: case.rows(end_ms, 1) for end_ms in case.due}
    if change == "update":
        return before | {end_ms: ["s0", *case.rows(end_ms, 1)] for end_ms in case.later}
    width = 2 if change == "replace" and case.changed is None else 1
    after = {end_ms: case.rows(end_ms, width) for end_ms in case.later}
    return {"pause": before, "close": before, "replace": before | after, "resume": after, "register": after}[change]


def moments_of(change: str, case: Case) -> bool:
    return not (case.changed is not None and change in ("resume", "register"))


PAIRS = [
    pytest.param(name, change, id=f"{name}-{change}")
    for name, case in CASES.items()
    for change in ("pause", "resume", "replace", "close", "register")
    if moments_of(change, case)
]
PAIRS.append(pytest.param("with the stored graph", "update", id="an update"))


@pytest.fixture(autouse=True)
def _in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_queries, "ALONE_MAX", 0)


def test_the_case_of_a_group_is_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with Story(monkeypatch, CASES["in a group"]).engine as engine:
        assert isinstance(engine.register(of_shape(1)), JoinedQuery)


@pytest.mark.parametrize(("name", "change"), PAIRS)
def test_a_change_between_any_two_steps(monkeypatch: pytest.MonkeyPatch, name: str, change: str) -> None:
    case = CASES[name]
    for moment in count():
        story = Story(monkeypatch, case)
        with story.engine:
            is_there = story.run(change, moment)
            assert read(story.query) == expected(case, change), f"moment {moment}"
        if not is_there:
            break
    assert moment > 5, "a tick has several steps"


DURABLE_MOMENTS = (0, 3, 8)


@pytest.mark.parametrize(("name", "change"), PAIRS)
def test_a_replay_gives_the_same_windows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, change: str
) -> None:
    """Nothing was read before the end of the process, so all windows are reported anew."""
    case = CASES[name]
    for moment in DURABLE_MOMENTS:
        folder, copy = tmp_path / f"{moment}", tmp_path / f"copy{moment}"
        with monkeypatch.context() as patched:
            story = Story(patched, case, folder)
            story.run(change, moment)
            reader = story.query.name
        with crash_and_open(folder, copy)(story.engine) as again:
            again.settle(timeout_s=60)
            found = {query.name: query for query in again.queries()}
            if change == "close" and case.changed is None:
                assert reader not in found
            else:
                assert read(found[reader]) == expected(case, change), f"moment {moment}"


def begun(monkeypatch: pytest.MonkeyPatch) -> Story:
    """A query with five windows that are due, none of them reported."""
    story = Story(monkeypatch, CASES["windows alone"])
    story.query = story.engine.register(single(1))
    feed(story.engine, story.case, 0)
    return story


def test_a_close_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuous, "CLOSE_S", 0.02)
    story = begun(monkeypatch)
    with story.engine:
        moments = story.injector.moments()
        while story.query.stats()["windows"] < 2:
            next(moments)
        commit, logged = story.engine._core.journal.commit, list[Any]()
        monkeypatch.setattr(
            story.engine._core.journal, "commit", lambda change: logged.append(change) or commit(change)
        )
        story.query.close()
        assert logged == [{"op": "close", "query": "q", "from_ms": 200}], "it names the last window that was reported"
        assert read(story.query) == {100: ["s1"], 200: ["s2"]}


def test_a_change_that_cannot_be_logged_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    story = begun(monkeypatch)
    errors = list[str]()

    def fail(_: Any) -> int:
        raise wukongs.StorageError("the disk is full")

    def change() -> None:
        for make in (story.query.pause, story.query.close, lambda: story.query.replace(single(2))):
            try:
                make()
            except wukongs.StorageError as error:
                errors.append(str(error))

    with story.engine:
        changing = threading.Thread(target=change, daemon=True)
        with monkeypatch.context() as patched:
            patched.setattr(story.engine._core.journal, "commit", fail)
            changing.start()
            while changing.is_alive():
                for _ in story.injector.moments():
                    pass
        assert errors == ["the disk is full"] * 3
        assert not story.query.is_paused
        assert not story.query.is_closed
        feed(story.engine, story.case, 1)
        for _ in story.injector.moments():
            pass
        assert read(story.query) == {end_ms: held(end_ms, 1) for end_ms in (*FIRST, *SECOND)}
