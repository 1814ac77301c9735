"""Queries that fire as one, over the end of a process."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.inside import core_of
from wukongs.live import joined_queries
from wukongs.live.joined_group import JoinedGroup
from wukongs.live.query_firings import QueryFirings

S = "http://e/s"
SILENT = " REPORT NON EMPTY RESULT"


@pytest.fixture(autouse=True)
def _together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_queries, "ALONE_MAX", 0)


def text_of(number: int, report: str = "") -> str:
    return (
        f"REGISTER QUERY q{number}{report} AS SELECT ?o FROM STREAM <{S}> [RANGE 100ms STEP 100ms] "
        f"WHERE {{ <http://e/u{number}> <http://e/p> ?o }}"
    )


class Folder:
    """An engine in a folder with queries of one shape; `crash` and `restart` open it anew."""

    def __init__(self, path: Path, count: int, report: str = "", **settings: Any) -> None:
        self.path, self.count, self.report, self.lives = path, count, report, 0
        self.settings = wukongs.Settings(**settings)
        self.open(path / "0")

    def open(self, folder: Path) -> None:
        self.folder = folder
        self.engine = wukongs.Engine(folder, settings=self.settings)
        self.stream = self.engine.stream(S, timing=True, batch_ms=100, history_ms=0)
        self.queries = [self.engine.register(text_of(number, self.report)) for number in range(self.count)]

    def copied(self) -> Path:
        self.lives += 1
        with core_of(self.engine).journal._turn:
            return Path(shutil.copytree(self.folder, self.path / str(self.lives)))

    def crash(self) -> None:
        copy = self.copied()
        self.engine.close()
        self.open(copy)

    def restart(self) -> None:
        self.engine.close()
        self.open(self.folder)

    def fill(self, first: int, last: int, rows: int = 1, users: int | None = None) -> None:
        """Give each of so many users some rows in the windows from one number to another."""
        for number in range(first, last + 1):
            for user in range(self.count if users is None else users):
                objects = (f'"{number} {row}"' for row in range(rows))
                row = (f"<http://e/u{user}>", "<http://e/p>")
                self.stream.push([(*row, o, number * 100 - 50) for o in objects])
            self.stream.advance(number * 100)
        self.engine.settle(60)

    def oldest_ms(self) -> int | None:
        found: int | None = self.engine.stats()["durability"]["oldest_unacknowledged_ms"]
        return found

    def groups(self) -> int:
        leads = core_of(self.engine), self.engine._injector.queries.values()
        return sum(isinstance(query.text.group, JoinedGroup) for query in leads[1])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path, 3)
    yield made
    made.engine.close()


def read(query: Any, group: str | None = None) -> list[Any]:
    """Return the ends of windows, and gaps as their first end and their count."""
    found: list[Any] = []
    while True:
        try:
            found.extend(window.end_ms for window in query.results(timeout_s=0, group=group))
            return found
        except wukongs.GapError as gap:
            found.append((gap.from_ms, gap.count))


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("report", ["", SILENT])
def test_each_goes_on_where_it_stood(tmp_path: Path, report: str, checkpoint: bool) -> None:
    folder = Folder(tmp_path, 4, report)
    folder.fill(1, 5)
    few = folder.queries[0].results(timeout_s=0)
    assert [next(few).end_ms for _ in range(3)] == [100, 200, 300]  # the third is not confirmed
    assert read(folder.queries[1]) == [100, 200, 300, 400, 500]
    assert read(folder.queries[3], "g") == [100, 200, 300, 400, 500]
    folder.stream.advance(501)  # what was confirmed goes along
    if checkpoint:
        folder.engine.checkpoint()
    folder.crash()
    folder.fill(6, 6)
    assert folder.groups() == 1
    assert [query.stats()["results_waiting"] for query in folder.queries] == [4, 1, 6, 6]
    for _ in range(2):
        assert folder.oldest_ms() == 100
        folder.restart()
    assert read(folder.queries[0]) == [300, 400, 500, 600]
    assert read(folder.queries[1]) == [600]
    assert read(folder.queries[3], "g") == [600]
    assert folder.oldest_ms() == 100
    for query in folder.queries[2:]:
        assert read(query) == [100, 200, 300, 400, 500, 600]
    assert folder.oldest_ms() is None
    folder.restart()
    folder.fill(7, 7)
    assert [read(query) for query in folder.queries] == [[700]] * 4
    folder.engine.close()


def test_the_same_text_goes_on_and_another_is_refused(folder: Folder) -> None:
    folder.fill(1, 2)
    folder.engine.close()
    heard: list[int] = []
    with wukongs.Engine(folder.folder) as engine:
        assert {query.name for query in engine.queries()} == {"q0", "q1", "q2"}
        with pytest.raises(wukongs.StreamError, match="in the data folder with another text"):
            engine.register(text_of(0, SILENT))
        engine.register(text_of(0), lambda window: heard.append(window.end_ms))
        with pytest.raises(wukongs.StreamError, match="q0 is registered already: close it first"):
            engine.register(text_of(0))
        engine.settle(60)
        assert heard == [100, 200]
        assert not engine.register(text_of(1)).is_closed


def test_a_query_that_was_closed_does_not_come_back(folder: Folder) -> None:
    folder.fill(1, 2)
    folder.queries[1].close()
    assert read(folder.queries[1]) == [100, 200]
    folder.engine.close()
    with wukongs.Engine(folder.folder) as engine:
        assert {query.name for query in engine.queries()} == {"q0", "q2"}
        for query in engine.queries():
            query.close()
        assert engine.stats()["durability"]["oldest_unacknowledged_ms"] is None
    with wukongs.Engine(folder.folder) as engine:
        assert engine.queries() == []


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_query_that_leaves_takes_its_unread_windows_along(folder: Folder, checkpoint: bool) -> None:
    folder.fill(1, 3)
    folder.queries[0].pause()
    assert read(folder.queries[1]) == read(folder.queries[2]) == [100, 200, 300]
    assert folder.oldest_ms() == 100
    folder.fill(4, 4)
    if checkpoint:
        folder.engine.checkpoint()
    folder.crash()
    folder.queries[0].resume()
    folder.fill(5, 5)
    assert read(folder.queries[0]) == [100, 200, 300, 500]
    assert read(folder.queries[1]) == [400, 500]


@pytest.mark.parametrize("report", ["", SILENT])
def test_windows_that_were_lost_unread_stay_lost(tmp_path: Path, report: str) -> None:
    """A query that nobody reads is told of the gap, also after two more lives, and one that has read is not."""
    folder = Folder(tmp_path, 3, report, results_bytes_max=1 << 18)
    folder.fill(1, 3, 500)
    assert read(folder.queries[0]) == [100, 200, 300]
    folder.fill(4, 30, 500)
    left_ms = folder.oldest_ms()
    assert left_ms is not None
    assert left_ms > 400
    for _ in range(2):
        folder.engine.checkpoint()
        folder.crash()
        assert folder.groups() == 1
        assert folder.oldest_ms() == left_ms
    for query, first_ms in zip(folder.queries, (400, 100, 100), strict=True):
        (from_ms, count), end_ms, *_ = read(query)  # what others take out takes room, too
        assert (from_ms, from_ms + count * 100) == (first_ms, end_ms)
        assert left_ms <= end_ms < 3000
    assert folder.oldest_ms() is None
    folder.engine.close()


def test_an_alert_that_was_read_once_holds_nothing_back(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 3, SILENT)
    folder.fill(1, 1)
    assert [read(query) for query in folder.queries] == [[100]] * 3
    folder.fill(2, 5, users=1)
    assert read(folder.queries[0]) == [200, 300, 400, 500]
    assert folder.oldest_ms() is None
    folder.engine.close()


def test_parts_of_a_group_that_was_divided_keep_the_firing(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 4, query_bytes_max=1 << 20)
    folder.fill(1, 1)
    folder.fill(2, 2, 20_000, users=1)
    folder.fill(3, 3)
    assert folder.groups() == 3
    assert folder.oldest_ms() == 100
    assert [read(query) for query in folder.queries[2:]] == [[100, 200, 300]] * 2
    folder.engine.checkpoint()
    folder.crash()
    with pytest.raises(wukongs.BudgetExceeded):
        read(folder.queries[0])
    assert read(folder.queries[0]) == [300]
    assert [read(query) for query in folder.queries[1:]] == [[100, 200, 300], [], []]
    assert folder.oldest_ms() is None
    folder.engine.close()


def test_a_checkpoint_during_a_firing_keeps_it(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    execute, copies = QueryFirings._execute, []

    def and_checkpoint(self: Any, firing: Any, due_at_s: float) -> Any:
        if firing.at_ms == 300 and not copies:
            folder.engine.checkpoint()
            copies.append(folder.copied())
        return execute(self, firing, due_at_s)

    folder.fill(1, 2)
    assert [read(query) for query in folder.queries] == [[100, 200]] * 3
    monkeypatch.setattr(QueryFirings, "_execute", and_checkpoint)
    folder.fill(3, 3)
    folder.engine.close()
    folder.open(copies[0])
    folder.engine.settle(60)
    assert [[len(window) for window in query.results(timeout_s=0)] for query in folder.queries] == [[1]] * 3


def test_a_checkpoint_says_once_what_is_true_of_many(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 50)
    folder.fill(1, 2, users=2)
    read(folder.queries[7])
    folder.engine.checkpoint()
    about = json.loads((folder.folder / "MANIFEST").read_text().partition("\n")[2] or "{}")
    journal = about.get("about", about).get("journal", {})
    assert [come for come, _ in journal["acknowledged_alike"]] == [[99]]
    assert len(journal["acknowledged_alike"][0][1]) == 49
    assert len(journal["acknowledged"]) == 1
    folder.engine.close()


def test_a_query_of_a_folder_that_reads_what_another_makes_joins(tmp_path: Path) -> None:
    """The stream goes with its last reader, also if that was in a group."""
    make = f"REGISTER STREAM <http://e/m> AS CONSTRUCT {{ ?s <http://e/q> ?o }} FROM STREAM <{S}> "
    make += "[RANGE 100ms STEP 100ms] WHERE { ?s <http://e/p> ?o }"
    texts = [make, *(text_of(n).replace(S, "http://e/m").replace("e/p", "e/q") for n in range(2))]
    for life in range(2):
        with wukongs.Engine(tmp_path / "data") as engine:
            stream = engine.stream(S, timing=True, batch_ms=100)
            queries = [engine.register(text) for text in texts]
            stream.push([(f"<http://e/u{u}>", "<http://e/p>", f'"{life}"', life * 100 + 50) for u in range(2)])
            stream.advance(life * 100 + 100)
            engine.settle(60)
            assert [len(window) for window in queries[2].results(timeout_s=0)] == [1]
    with wukongs.Engine(tmp_path / "data") as engine:
        for query in engine.queries():
            query.close()
        assert set(engine.stats()["streams"]) == {S}


def test_readers_come_and_go_while_checkpoints_are_made(tmp_path: Path) -> None:
    """Each window of a query comes once in a life, in order, and again after a crash only if it was not confirmed."""
    folder = Folder(tmp_path, 12, log_segment_bytes=1 << 14, results_bytes_max=1 << 30)
    found: list[list[int]] = [[] for _ in folder.queries]
    failures: list[BaseException] = []
    is_over = threading.Event()

    def work(number: int) -> None:
        try:
            while not is_over.is_set():
                for at in range(number, 9, 3):
                    few = folder.queries[at].results(timeout_s=0)
                    found[at] += [window.end_ms for _, window in zip(range(5), few, strict=False)]
                if number == 0:
                    folder.engine.checkpoint()
                elif number == 1:
                    folder.queries[10].pause()
                    folder.queries[10].resume()
                else:
                    folder.queries[11].close()
                    folder.queries[11] = folder.engine.register(text_of(11))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    folder.fill(1, 40, users=2)
    is_over.set()
    for thread in threads:
        thread.join()
    assert not failures
    folder.crash()
    folder.engine.settle(60)
    for at, query in enumerate(folder.queries[:10]):
        again = read(query)
        assert found[at] == list(range(100, 100 * len(found[at]) + 1, 100))
        assert again == list(range(again[0], 4001, 100)) if again else len(found[at]) == 40
        assert not again or again[0] <= (found[at] or [0])[-1] + 100
    assert read(folder.queries[9]) == []
    folder.engine.close()
