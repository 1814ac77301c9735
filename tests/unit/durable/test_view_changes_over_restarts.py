"""What is done with a live view in a data folder holds after the engine was killed: options, changes of the text,
pauses, arguments, cursors, and what it has put into a stream."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import wukongs
from tests.inside import core_of
from tests.unit.durable.test_views_over_restarts import EX, cuts, rows_of
from wukongs.durable.log_records import POSITIONS
from wukongs.live.views import kept_views
from wukongs.live.views.runner import Views
from wukongs.live.views.view_state import ViewState
from wukongs.store.wal import WriteAheadLog

PAIRS = "SELECT ?a ?b WHERE { ?a :p ?b }"
CLOCK, MADE, GRAPH = "http://ex/clock", "http://ex/made", "http://ex/derived"


class Folder:
    """A data folder with an engine, which is killed and opened again."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "0"
        self.engine = wukongs.Engine(self.path)
        self.lives = 0

    def kill(self, *, has_checkpoint: bool = False) -> None:
        """Go on with a copy of the folder as it is now."""
        if has_checkpoint:
            self.engine.checkpoint()
        self.lives += 1
        copy = self.path.with_name(str(self.lives))
        shutil.copytree(self.path, copy)
        self.engine.close()
        self.path, self.engine = copy, wukongs.Engine(copy)

    def register(self, text: str = PAIRS, **options: Any) -> Any:
        found = self.engine.register(f"{EX} REGISTER QUERY v AS {text}", **options)
        self.engine.settle(60)
        return found

    def insert(self, *triples: str) -> None:
        self.engine.update(f"{EX} INSERT DATA {{ {' . '.join(triples)} }}")
        self.engine.settle(60)


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    found = Folder(tmp_path)
    yield found
    found.engine.close()


def name_of(term: Any) -> str:
    return str(term).rpartition("/")[2]


def text_of(report: Any) -> str:
    rows = sorted(f"{weight:+d} {' '.join(map(name_of, row))}" for row, weight in report.changes())
    return ("reset: " if report.is_reset else "") + ", ".join(rows)


def shown(view: Any, **options: Any) -> list[str]:
    """Return what a reader gets now, a text for each report."""
    return [text_of(report) for report in view.results(timeout_s=0, **options)]


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_view_goes_on_for_whoever_registers_it_again(folder: Folder, has_checkpoint: bool) -> None:
    folder.insert(":a :p :b")
    view = folder.register()
    assert shown(view) == ["reset: +1 a b"]
    folder.insert(":b :p :c")  # with it, the log has that the reset was read
    folder.kill(has_checkpoint=has_checkpoint)
    folder.insert(":c :p :d")
    assert [one.name for one in folder.engine.queries()] == ["v"]
    for other in ({"keep": True}, {"text": "SELECT ?a WHERE { ?a :p ?b }"}, {"bindings": [{"a": "<http://ex/a>"}]}):
        with pytest.raises(wukongs.StreamError, match="in the data folder with another text, options or bindings"):
            folder.register(**other)
    view = folder.register()
    assert shown(view) == ["+1 b c", "+1 c d"] if has_checkpoint else ["+1 b c, +1 c d"]
    assert len(view.content()) == 3
    with pytest.raises(wukongs.StreamError, match="registered already"):
        folder.register()
    view.close()
    folder.kill(has_checkpoint=has_checkpoint)
    assert shown(folder.register("SELECT ?a WHERE { ?a :p :b }")) == ["reset: +1 a"]


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_each_kind_of_cursor_goes_on(folder: Folder, has_checkpoint: bool) -> None:
    """Neither the report that on_result has returned from, nor those that were acknowledged, are handed out again."""
    called = list[str]()
    view = folder.register(on_result=lambda report: called.append(text_of(report)), snapshot=False)
    for name in ("own", "one", "two"):
        assert shown(view, **({} if name == "own" else {"group": name})) == []
    folder.insert(":a :p :b")
    assert shown(view, group="one") == shown(view) == ["+1 a b"]
    folder.engine.settle(60)
    assert called == ["+1 a b"]
    folder.insert(":b :p :c")
    assert shown(view, group="one") == ["+1 b c"]
    reading = view.results(timeout_s=0, group="two")
    assert text_of(next(reading)) == "+1 a b"  # and is not acknowledged
    folder.insert(":z :q :z")
    folder.kill(has_checkpoint=has_checkpoint)
    view = folder.register(on_result=lambda report: called.append(text_of(report)), snapshot=False)
    folder.insert(":c :p :d")
    assert called == ["+1 a b", "+1 b c", "+1 c d"]
    assert shown(view, group="one") == ["+1 c d"]
    assert shown(view) == ["+1 b c", "+1 c d"] or shown(view) == ["+1 b c, +1 c d"]
    assert shown(view, group="two")[0] == "+1 a b"
    assert shown(view, group="new") == []


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_another_text_and_pauses_hold(folder: Folder, has_checkpoint: bool) -> None:
    folder.insert(":a :p :b", ":a :q :c")
    view = folder.register()
    assert shown(view) == ["reset: +1 a b"]
    view.replace(f"{EX} REGISTER QUERY v AS SELECT ?b WHERE {{ :a :q ?b }}")
    folder.kill(has_checkpoint=has_checkpoint)
    view = folder.register("SELECT ?b WHERE { :a :q ?b }", base=None)
    assert shown(view) == ["reset: +1 c"]
    folder.insert(":a :q :d")
    assert shown(view) == ["+1 d"]
    view.pause()
    folder.insert(":a :q :e")
    folder.kill(has_checkpoint=has_checkpoint)
    view = folder.register("SELECT ?b WHERE { :a :q ?b }")
    assert view.is_paused
    assert shown(view) == []
    view.resume()
    folder.kill(has_checkpoint=has_checkpoint)
    view = folder.register("SELECT ?b WHERE { :a :q ?b }")
    assert not view.is_paused
    assert shown(view) == ["reset: +1 c, +1 d, +1 e"]


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_numbers_of_arguments_are_never_used_again(folder: Folder, has_checkpoint: bool) -> None:
    table = [{"a": f"<http://ex/{name}>"} for name in "ab"]
    text = "SELECT ?b WHERE { ?a :p ?b }"
    folder.insert(":a :p :x", ":b :p :y", ":c :p :z")
    view = folder.register(text, bindings=table)
    assert len(shown(view)) == 1
    assert view.bind([{"a": "<http://ex/c>"}, {"a": "_:blank"}]).tolist() == [2, 3]
    assert view.unbind([2, 3]).tolist() == [2, 3]
    for number in range(2):
        folder.kill(has_checkpoint=has_checkpoint)
        view = folder.register(text, bindings=table)
        assert view.bind([{"a": "<http://ex/c>"}]).tolist() == [4 + number]
    assert view.unbind([{"a": "<http://ex/a>"}]).tolist() == [0]
    with pytest.raises(wukongs.DataError, match="no argument has the number 2"):
        view.unbind(2)
    folder.engine.settle(60)
    assert sorted(" ".join(row) for row in rows_of(view.content())) == [
        "1 http://ex/y",
        "4 http://ex/z",
        "5 http://ex/z",
    ]


def test_records_that_a_checkpoint_has_are_not_taken_twice(folder: Folder) -> None:
    """Windows that nobody has read keep the log behind the checkpoint."""
    stream = folder.engine.stream(CLOCK, batch_ms=100, timing=True)
    window = f"FROM STREAM <{CLOCK}> [RANGE 100ms STEP 100ms]"
    folder.engine.register(f"{EX} REGISTER QUERY w AS SELECT * {window} WHERE {{ ?s ?p ?o }}")
    folder.insert(":a :p :x", ":b :p :y")
    view = folder.register("SELECT ?b WHERE { ?a :p ?b }", bindings=[{"a": "<http://ex/a>"}])
    assert shown(view, group="one") == ["reset: +1 0 x"]
    folder.engine.checkpoint()
    stream.advance(300)
    folder.engine.settle(60)
    assert view.bind([{"a": "<http://ex/b>"}]).tolist() == [1]
    folder.engine.settle(60)
    assert shown(view, group="one") == ["+1 1 y"]
    assert view.unbind(0).tolist() == [0]
    folder.engine.settle(60)
    assert shown(view, group="one") == ["-1 0 x"]
    lsn = folder.engine.stats()["durability"]["lsn"]
    for number in range(2):
        folder.kill(has_checkpoint=True)
        assert folder.engine.stats()["durability"]["log_start_lsn"] < lsn - 3, "the records are in the log"
        view = folder.register("SELECT ?b WHERE { ?a :p ?b }", bindings=[{"a": "<http://ex/a>"}])
        assert sorted(rows_of(view.content())) == [("1", "http://ex/y"), ("1", "http://ex/z0")][: 1 + number]
        assert view.stats()["arguments"] == 1
        folder.insert(f":b :p :z{number}")
        assert shown(view, group="one") == [f"+1 1 z{number}"]


@pytest.mark.parametrize(
    ("output", "expected"),
    [("istream", ["+1 c d"]), ("dstream", ["-1 a b"]), ("rstream", ["reset: +1 b c, +1 c d"])],
)
def test_an_operator_of_output_goes_on(folder: Folder, output: Any, expected: list[str]) -> None:
    folder.insert(":a :p :b", ":b :p :c")
    view = folder.register(output=output, snapshot=False)
    folder.engine.update(f"{EX} DELETE DATA {{ :a :p :b }} ; INSERT DATA {{ :c :p :d }}")
    folder.kill()
    view = folder.register(output=output, snapshot=False)
    assert shown(view) == expected


def test_blank_nodes_of_templates_and_computed_terms_stay_the_same(folder: Folder) -> None:
    text = "CONSTRUCT { _:pair :of ?a . _:pair :text ?t } WHERE { ?a :p ?b BIND(CONCAT('of ', STR(?b)) AS ?t) }"
    folder.insert(":a :p :b")
    view = folder.register(text)
    (report,) = view.results(timeout_s=0)
    inserted = sorted(tuple(map(str, row)) for row, _ in report.changes())
    folder.engine.update(f"{EX} INSERT DATA {{ :b :p :c }}")
    folder.engine.settle(60)
    folder.kill(has_checkpoint=True)
    view = folder.register(text)
    folder.engine.update(f"{EX} DELETE DATA {{ :a :p :b }}")
    folder.engine.settle(60)
    unread, deleted = view.results(timeout_s=0)
    assert len(list(unread.changes())) == 2
    assert sorted(tuple(map(str, row)) for row, weight in deleted.changes() if weight < 0) == inserted


def test_reports_that_no_checkpoint_can_hold_become_a_reset(folder: Folder) -> None:
    view = folder.register()
    assert shown(view) == ["reset: "]
    folder.insert(":a :p :b")
    with patch.object(kept_views, "REPORTS_BYTES_MAX", 100):
        folder.kill(has_checkpoint=True)
    assert shown(folder.register()) == ["reset: +1 a b"]


def test_a_report_that_the_log_cannot_note_is_not_handed_out(folder: Folder) -> None:
    view = folder.register()
    assert shown(view, group="one") == ["reset: "]
    folder.insert(":a :p :b")
    journal = core_of(folder.engine).journal
    with (
        patch.object(journal.wal, "append", side_effect=wukongs.StorageError("no room")),
        pytest.raises(wukongs.StorageError, match="no room"),
    ):
        shown(view, group="one")
    assert shown(view, group="one") == ["+1 a b"]
    view.pause()
    view.resume()
    with (
        patch.object(journal.wal, "append", side_effect=wukongs.StorageError("no room")),
        pytest.raises(wukongs.StorageError, match="no room"),
    ):
        shown(view, group="one")
    assert shown(view, group="one") == ["reset: +1 a b"]


def test_on_result_waits_until_the_log_can_be_written(folder: Folder) -> None:
    called = list[str]()
    folder.register(on_result=lambda report: called.append(text_of(report)), snapshot=False)
    original, refused = WriteAheadLog.append, list[int]()

    def append(self: WriteAheadLog, kind: int, payload: Any, sn: int) -> int:
        if kind == POSITIONS and len(refused) < 2:
            refused.append(kind)
            raise wukongs.StorageError("no room")
        return original(self, kind, payload, sn)

    with patch.object(WriteAheadLog, "append", append):
        folder.engine.update(f"{EX} INSERT DATA {{ :a :p :b }}")
        deadline_s = time.monotonic() + 30
        while not called and time.monotonic() < deadline_s:
            time.sleep(0.02)
    assert (called, len(refused)) == (["+1 a b"], 2)


def test_a_folder_whose_views_are_not_there_yet_keeps_them(folder: Folder) -> None:
    """A view that cannot go on ends the opening, and nothing is written."""
    folder.insert(":a :p :b")
    folder.register()
    folder.engine.close()
    with (
        patch.object(Views, "_restore", side_effect=wukongs.StorageError("cannot be read")),
        pytest.raises(wukongs.StorageError, match="cannot be read"),
    ):
        wukongs.Engine(folder.path)
    folder.engine = wukongs.Engine(folder.path)
    assert [one.name for one in folder.engine.queries()] == ["v"]


def test_a_version_that_cannot_be_read_becomes_a_reset(folder: Folder) -> None:
    view = folder.register()
    assert shown(view) == ["reset: "]
    folder.insert(":a :p :b")
    with patch.object(ViewState, "positions", lambda _: set()):
        folder.kill()
    assert shown(folder.register()) == ["reset: +1 a b"]


def test_a_view_that_was_not_registered_again_can_be_read_and_closed(folder: Folder) -> None:
    folder.register()
    folder.kill()
    folder.insert(":a :p :b")
    (view,) = folder.engine.queries()
    assert shown(view) == ["reset: +1 a b"]
    view.close()
    folder.kill()
    assert folder.engine.queries() == []


def test_a_backup_is_restored_with_its_views(folder: Folder, tmp_path: Path) -> None:
    """Numbers of arguments and positions of readers begin anew."""
    folder.insert(":a :p :x", ":b :p :y")
    text = "SELECT ?b WHERE { ?a :p ?b }"
    view = folder.register(text, bindings=[{"a": "<http://ex/a>"}], keep=True)
    view.bind([{"a": "<http://ex/b>"}])
    view.unbind(0)
    folder.engine.backup(tmp_path / "backup")
    with wukongs.Engine() as engine:
        engine.restore(tmp_path / "backup")
        engine.settle(60)
        again = engine.register(f"{EX} REGISTER QUERY v AS {text}", bindings=[{"a": "<http://ex/b>"}], keep=True)
        assert rows_of(again.content()) == [("0", "http://ex/y")]


def test_a_rule_goes_on_for_whoever_registers_its_query_again(folder: Folder) -> None:
    text = "CONSTRUCT { ?a :r ?c } WHERE { ?a :p ?b . ?b :p ?c }"
    folder.register(text, into=GRAPH)
    folder.insert(":a :p :b", ":b :p :c")
    folder.kill()
    with pytest.raises(wukongs.RuleError, match="a name that no other rule has"):
        folder.register("CONSTRUCT { ?a :r ?c } WHERE { ?a :p ?c }", into=GRAPH)
    sn = folder.engine.stats()["sn"]
    rule = folder.register(text, into=GRAPH)
    assert folder.engine.stats()["sn"] == sn
    folder.insert(":c :p :d")
    assert len(folder.engine.query(f"SELECT * {{ GRAPH <{GRAPH}> {{ ?s ?p ?o }} }}")) == 2
    with pytest.raises(wukongs.RuleError, match="a name that no other rule has"):
        folder.register(text, into=GRAPH)
    rule.close()
    assert folder.engine.rules() == []


# --- into a stream ----------------------------------------------------------------------------------------------------

CONSTRUCT = "CONSTRUCT { ?a :reaches ?c } WHERE { ?a :p ?b . ?b :p ?c }"


class Maker:
    """An engine with a view that makes a stream, and a query over its windows."""

    def __init__(self, path: Path, *, joins: bool) -> None:
        self.engine = wukongs.Engine(path)
        is_new = not self.engine.stats()["streams"]
        self.clock = self.engine.stream(CLOCK, batch_ms=50, timing=True)
        if is_new:
            self.clock.advance(0)  # else periods are of wall time
        options: dict[str, Any] = {"into": GRAPH} if joins else {"timing": True}
        self.engine.stream(MADE, batch_ms=100, **options)
        self.view: Any = self.engine.register(f"{EX} REGISTER QUERY v AS {CONSTRUCT}", into=MADE, every_ms=100)
        window = f"FROM STREAM <{MADE}> [RANGE 100ms STEP 100ms]"
        text = f"{EX} REGISTER QUERY w AS SELECT * {window} WHERE {{ ?s ?p ?o }}"
        self.windows = None if joins else self.engine.register(text)

    def advance(self, time_ms: int) -> None:
        self.clock.advance(time_ms)
        self.engine.settle(60)

    def read(self, found: dict[int, list[Any]]) -> None:
        """Read windows; each is reported with the same rows whenever it is."""
        assert self.windows is not None
        for window in self.windows.results(timeout_s=0):
            rows = sorted(rows_of(window))
            assert found.setdefault(window.end_ms, rows) == rows

    def expected(self) -> set[Any]:
        found = self.engine.query(f"{EX} SELECT ?a ?c WHERE {{ ?a :p ?b . ?b :p ?c }}")
        return {(a, "http://ex/reaches", c) for a, c in rows_of(found)}


@pytest.mark.parametrize(
    ("joins", "has_checkpoint", "seed"), [(False, False, 1), (False, True, 2), (True, False, 3), (True, True, 4)]
)
def test_each_triple_is_in_one_period_wherever_the_engine_is_killed(
    tmp_path: Path, joins: bool, has_checkpoint: bool, seed: int
) -> None:
    rng = random.Random(seed)
    maker, count = Maker(tmp_path / "data", joins=joins), 12
    for number in range(1, count + 1):
        triple = f":n{rng.randrange(6)} :p :n{rng.randrange(6)}"
        delete = f"DELETE WHERE {{ :n{rng.randrange(6)} :p ?o }} ; " if joins and rng.random() < 0.5 else ""
        maker.engine.update(f"{EX} {delete} INSERT DATA {{ {triple} }}")
        maker.advance(50 * number)
        if number == 2 and not has_checkpoint:  # a reader that stays behind what the stream has
            assert [report.is_reset for report in maker.view.results(timeout_s=0, group="slow")] == [True]
        if number == 4 and has_checkpoint:
            maker.view.pause()
        if number == 6 and has_checkpoint:
            maker.view.resume()
        if has_checkpoint and number == 7:
            maker.engine.checkpoint()
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    maker.engine.close()
    for path, lsn in cuts(tmp_path / "killed", rng, 2, after_lsn=9):
        again = Maker(path, joins=joins)
        found = dict[int, list[Any]]()
        again.engine.settle(60)
        if again.view.is_paused:
            again.view.resume()
        for step in range(1, 4):
            again.engine.update(f"{EX} INSERT DATA {{ :n{rng.randrange(6)} :p :m{step} }}")
            again.advance(50 * count + 100 * step)
        if joins:
            stored = rows_of(again.engine.query(f"SELECT ?s ?p ?o {{ GRAPH <{GRAPH}> {{ ?s ?p ?o }} }}"))
            assert set(stored) == again.expected(), f"seed {seed}, the log ends with record {lsn}"
        else:
            again.read(found)
            given = Counter(row for rows in found.values() for row in rows)
            assert set(given) == again.expected(), f"seed {seed}, the log ends with record {lsn}"
            assert set(given.values()) <= {1}, f"seed {seed}, the log ends with record {lsn}"
        again.engine.close()
