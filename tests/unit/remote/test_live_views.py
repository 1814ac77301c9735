"""Live views of an engine in another process: as those of an engine of this one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow
import pytest

import wukongs
from tests.unit.remote.served import Once, Wire, connected, served
from wukongs.remote.client import RemoteEngine
from wukongs.remote.query import RemoteQuery, RemoteView

EX = "http://ex/"
TEXT = "REGISTER QUERY v AS SELECT ?s ?o WHERE { ?s <http://ex/p> ?o }"


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as engine:
        change(engine, "a")
        yield engine


@pytest.fixture
def wire(engine: wukongs.Engine) -> Iterator[Wire]:
    with served(engine) as (_, wire):
        yield wire


@pytest.fixture
def client(wire: Wire) -> Iterator[RemoteEngine]:
    with connected(wire) as client:
        yield client


def change(engine: Any, *names: str) -> None:
    """Insert a triple for each name, or delete that of a name behind a minus sign, at one snapshot."""
    parts = [("DELETE" if name.startswith("-") else "INSERT", name.lstrip("-")) for name in names]
    engine.update(";".join(f"{verb} DATA {{ <{EX}{name}> <{EX}p> <{EX}o> }}" for verb, name in parts))
    engine.settle(10)


def register(client: RemoteEngine, text: str = TEXT, **options: Any) -> RemoteView:
    view: Any = client.register(text, **options)
    assert isinstance(view, RemoteView)
    return view


def told(report: Any) -> tuple[str, list[tuple[str, int]]]:
    """Return the kind of a report, and (first column, weight) of its rows."""
    kind = "reset" if report.is_reset else "progress" if report.is_progress else "change"
    return kind, sorted((str(row[0]).removeprefix(EX), weight) for row, weight in report.changes())


def waiting(view: Any, **options: Any) -> list[tuple[str, list[tuple[str, int]]]]:
    return [told(report) for report in view.results(timeout_s=0.3, **options)]


def test_reports_are_those_of_an_embedded_view(client: RemoteEngine, engine: wukongs.Engine) -> None:
    view = register(client)
    own: Any = engine.register(TEXT.replace("QUERY v", "QUERY w"))
    for names in ("b", "c -a", "d d"):
        change(client, *names.split())
        reports, others = list(view.results(timeout_s=0.3)), list(own.results(timeout_s=0))
        assert [told(one) for one in reports] == [told(one) for one in others]
        for one, other in zip(reports, others, strict=True):
            assert (one.after, one.snapshot, one.time_ms) == (other.after, other.snapshot, other.time_ms)
            assert one.arrow().equals(other.arrow())
    assert (view.name, view.text, view.is_stream, view.stats()["kind"]) == ("v", TEXT, False, "view")


def test_a_report_of_many_rows_crosses_in_chunks(client: RemoteEngine, engine: wukongs.Engine) -> None:
    view = register(client)
    assert waiting(view) == [("reset", [("a", 1)])]
    count = 20_000
    engine.update("INSERT DATA {" + "".join(f"<{EX}{n}> <{EX}p> {n}." for n in range(count)) + "}")
    (report,) = view.results(timeout_s=5)
    found = {str(row[0]).removeprefix(EX): str(row[1]) for row, _ in report.changes()}
    assert (len(report), set(report.weights.tolist())) == (count, {1})
    assert found == {str(n): str(n) for n in range(count)}
    engine.update("CLEAR DEFAULT")
    (report,) = view.results(timeout_s=5)
    assert int(report.weights.sum()) == -count - 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ASK { ?s <http://ex/p> ?o }", [((), 1)]),
        (
            "CONSTRUCT { ?o <http://ex/q> ?s } WHERE { ?s <http://ex/p> ?o }",
            [((f"{EX}o", f"{EX}q", f"{EX}a"), 1)],
        ),
        ("SELECT (COUNT(*) AS ?n) WHERE { ?s <http://ex/p> ?o }", [(("1",), 1)]),
    ],
)
def test_the_kinds_of_queries(client: RemoteEngine, text: str, expected: list[Any]) -> None:
    view = register(client, f"REGISTER QUERY v AS {text}")
    (report,) = view.results(timeout_s=0.3)
    rows = [(tuple(str(term).strip("<>") for term in row), weight) for row, weight in report.changes()]
    assert rows == expected
    assert report.boolean is (True if text.startswith("ASK") else None)


def test_progress_and_content(client: RemoteEngine, engine: wukongs.Engine) -> None:
    view = register(client)
    assert waiting(view, progress=True) == [("reset", [("a", 1)])]
    engine.update("INSERT DATA { <http://ex/x> <http://ex/q> <http://ex/y> }")
    engine.settle(10)
    assert waiting(view) == []
    assert waiting(view, progress=True) == [("progress", [])]
    at = engine.stats()["sn"]
    change(engine, "b")
    assert sorted(str(row[0]) for row in view.content()) == [f"{EX}a", f"{EX}b"]
    assert [str(row[0]) for row in view.content(at=at, timeout_s=5)] == [f"{EX}a"]
    own: Any = engine.queries()[0]
    assert "delta join" in view.explain()
    assert "is complete up to SN" in view.why()
    assert "<http://ex/a> <http://ex/p> <http://ex/o>" in str(view.why({"s": f"<{EX}a>"}))
    assert str(view.why([f"<{EX}a>", f"<{EX}o>"])) == str(own.why({"s": f"<{EX}a>", "o": f"<{EX}o>"}))
    with pytest.raises(wukongs.DataError, match="has no row with"):
        view.why({"s": f"<{EX}z>"})


def test_arguments(client: RemoteEngine, engine: wukongs.Engine) -> None:
    view = register(client, bindings=[{"s": f"<{EX}a>"}])
    assert waiting(view) == [("reset", [("0", 1)])]
    change(engine, "b", "c")
    assert view.bind([{"s": f"<{EX}b>"}, {"s": f"<{EX}c>"}]).tolist() == [1, 2]
    assert view.bind([]).tolist() == []
    engine.settle(10)
    assert waiting(view) == [("change", [("1", 1), ("2", 1)])]
    assert view.unbind(np.array([0])).tolist() == [0]
    assert view.unbind(pyarrow.table({"s": [f"<{EX}b>"]})).tolist() == [1]
    engine.settle(10)
    assert sorted(str(row[0]) for row in view.content()) == ["2"]
    with pytest.raises(wukongs.DataError, match="no argument has the number 7"):
        view.unbind([7])
    numbers: Any = ["x"]
    with pytest.raises(wukongs.SettingsError, match="expected numbers of arguments"):
        view.unbind(numbers)


def test_each_client_gets_every_report(client: RemoteEngine, engine: wukongs.Engine, wire: Wire) -> None:
    view = register(client)
    with connected(wire) as other, connected(wire) as third:
        again = register(other)
        assert again.readers == 2
        (found,) = third.queries()
        assert isinstance(found, RemoteView)
        views = view, again, found
        assert [waiting(one) for one in views] == [[("reset", [("a", 1)])]] * 3
        change(engine, "b")
        assert [waiting(one) for one in views] == [[("change", [("b", 1)])]] * 3
    with pytest.raises(wukongs.StreamError, match="registered already"):
        client.register(TEXT)
    with pytest.raises(wukongs.StreamError, match="registered already"):
        client.register(TEXT, keep=True)


def test_one_reader_of_a_group_reads_and_another_goes_on(client: RemoteEngine, engine: wukongs.Engine) -> None:
    view = register(client)
    first, second = (view.results(timeout_s=0.5, group="g") for _ in range(2))
    assert told(next(first)) == ("reset", [("a", 1)])
    assert next(second, None) is None, "another one reads"
    change(engine, "b")
    assert told(next(first)) == ("change", [("b", 1)])
    first.close()  # type: ignore[attr-defined]
    assert waiting(view, group="g") == [("change", [("b", 1)])], "it was not finished"
    own: Any = engine.queries()[0]
    assert [told(one) for one in own.results(timeout_s=0, group="g")] == []


def test_on_result_and_settle(client: RemoteEngine) -> None:
    found: list[tuple[str, list[tuple[str, int]]]] = []
    register(client, on_result=lambda report: found.append(told(report)))
    client.settle(10)
    change(client, "b")
    assert found == [("reset", [("a", 1)]), ("change", [("b", 1)])]


def test_in_an_event_loop(client: RemoteEngine, engine: wukongs.Engine) -> None:
    view = register(client)

    async def follow() -> list[tuple[str, list[tuple[str, int]]]]:
        found = []
        async for report in view.aresults(5):
            found.append(told(report))
            if len(found) == 1:
                await asyncio.to_thread(change, engine, "b")
            if len(found) == 2:
                break
        return found

    assert asyncio.run(follow()) == [("reset", [("a", 1)]), ("change", [("b", 1)])]


def test_pause_replace_and_close(client: RemoteEngine, engine: wukongs.Engine) -> None:
    view = register(client)
    assert waiting(view) == [("reset", [("a", 1)])]
    view.pause()
    change(engine, "b")
    assert waiting(view) == []
    view.resume()
    assert waiting(view) == [("reset", [("a", 1), ("b", 1)])]
    view.replace(TEXT.replace("?s <http://ex/p> ?o", "?o <http://ex/p> ?s"))
    assert waiting(view) == [("reset", [("o", 1), ("o", 1)])]
    view.close()
    assert engine.queries() == []
    assert waiting(view) == []


def test_a_view_without_snapshot_begins_with_changes(client: RemoteEngine, engine: wukongs.Engine) -> None:
    view = register(client, snapshot=False)
    change(engine, "b")
    assert waiting(view) == [("change", [("b", 1)])]


def test_a_lost_session_begins_with_a_reset(engine: wukongs.Engine, wire: Wire) -> None:
    """Also where the view begins without one: reports may be lost."""
    with served(engine) as (other, second), connected(wire, second) as client:
        view = register(client, snapshot=False)
        change(engine, "b")
        assert waiting(view) == [("change", [("b", 1)])]
        wire.is_dead = True
        change(engine, "c")
        assert waiting(view) == [("reset", [("a", 1), ("b", 1), ("c", 1)])]
        assert other.session_count == 1


def test_a_lost_answer_is_sent_again(client: RemoteEngine, engine: wukongs.Engine, wire: Wire) -> None:
    view = register(client)
    assert waiting(view) == [("reset", [("a", 1)])]

    def lose() -> None:
        raise wukongs.NodeUnavailable("the answer is lost")

    wire.on_answer = Once("window", lose)
    change(engine, "b")
    assert waiting(view) == [("change", [("b", 1)])]
    change(engine, "c")
    assert waiting(view) == [("change", [("c", 1)])]


def test_errors_are_raised_to_each_reader(client: RemoteEngine, engine: wukongs.Engine) -> None:
    view = register(client)
    assert waiting(view) == [("reset", [("a", 1)])]
    own: Any = engine.queries()[0]
    own.log.begin_again(own.position, wukongs.QueryTimeout("it took too long"))
    with pytest.raises(wukongs.QueryTimeout, match="it took too long"):
        next(view.results(timeout_s=2))
    assert waiting(view) == [("reset", [("a", 1)])]


def test_wrong_options(client: RemoteEngine, engine: wukongs.Engine) -> None:
    with pytest.raises(wukongs.StreamError, match="Into a stored graph a query is a rule"):
        client.register(TEXT, into="http://ex/g")
    with pytest.raises(wukongs.SettingsError, match="every_ms = 0"):
        client.register(TEXT, every_ms=0)
    engine.stream("http://ex/s", timing=True, batch_ms=100)
    window = "REGISTER QUERY w AS SELECT * FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?s ?p ?o }"
    with pytest.raises(wukongs.SettingsError, match="only for live views"):
        client.register(window, keep=True)
    assert isinstance(client.register(window), RemoteQuery)


def test_a_reader_waits_for_the_next_change(client: RemoteEngine, engine: wukongs.Engine) -> None:
    view = register(client)
    assert waiting(view) == [("reset", [("a", 1)])]
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(told(next(view.results(timeout_s=20)))))
    thread.start()
    change(engine, "b")
    thread.join(10)
    assert found == [("change", [("b", 1)])]
