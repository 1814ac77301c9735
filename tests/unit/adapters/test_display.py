"""The display of a run: its lines, its table, its figures."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator

import pytest

from wukongs import Engine
from wukongs.adapters import display
from wukongs.adapters.display import Display, LiveDisplay, PlainDisplay, RunProgress, answer_size, choose_display
from wukongs.adapters.replay import PipelineReport
from wukongs.adapters.run import summary_lines
from wukongs.adapters.source import SetAside

EX = "http://ex/"
QUERY = f"REGISTER QUERY q AS SELECT ?o FROM STREAM <{EX}s> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }} ORDER BY ?o"
Played = Callable[[Display], RunProgress]


@pytest.fixture
def played() -> Iterator[Played]:
    """Push three tuples through an engine, to a display: the windows up to 1 s and 2 s have two rows and one."""
    with Engine() as engine:

        def play(shown: Display) -> RunProgress:
            stream = engine.stream(EX + "s", batch_ms=1000)
            progress = RunProgress(engine, [engine.register(QUERY, on_result=shown.window)])
            stream.push([(f"<{EX}a>", f"<{EX}p>", f'"{name}"', time_ms) for name, time_ms in (("x", 1), ("y", 1000))])
            stream.push([(f"<{EX}a>", f"<{EX}p>", '"z"', 1500)])
            stream.advance(2000)
            engine.settle()
            return progress

        yield play


class LeavingReader(io.StringIO):
    """Takes some lines, then is gone."""

    def __init__(self, line_count: int) -> None:
        super().__init__()
        self._line_count = line_count

    def write(self, text: str) -> int:
        if self.getvalue().count("\n") >= self._line_count:
            raise BrokenPipeError
        return super().write(text)


@pytest.mark.parametrize(
    ("question", "size"),
    [
        ("ASK {}", "yes"),
        ("ASK { ?s ?p ?o }", "no"),
        ("SELECT ?s { ?s ?p ?o }", "0 rows"),
        ("SELECT (1 AS ?one) {}", "1 row"),
        ("CONSTRUCT { <http://a> <http://b> <http://c> } WHERE {}", "1 triple"),
        ("CONSTRUCT { <http://a> <http://b> 1, 2 } WHERE {}", "2 triples"),
    ],
)
def test_the_size_of_an_answer(question: str, size: str) -> None:
    with Engine() as engine:
        assert answer_size(engine.query(question)) == size


def test_each_window_is_a_line_with_its_first_rows(played: Played) -> None:
    out, err = io.StringIO(), io.StringIO()
    played(PlainDisplay(each_window=True, rows_shown=1, out=out, err=err))
    assert out.getvalue() == 'q\t(0, 1000]\t2 rows\n\t"x"\nq\t(1000, 2000]\t1 row\n\t"z"\n'
    assert err.getvalue() == ""


def test_a_summary_has_a_row_for_each_query(played: Played) -> None:
    out, err = io.StringIO(), io.StringIO()
    shown = PlainDisplay(each_window=False, out=out, err=err)
    shown.summary(played(shown), ["the end"])
    head, row, last = out.getvalue().splitlines()
    assert head.split("  ") == ["query", "windows", "rows of last", "median exec. ms", "p99 exec. ms"]
    assert row.split()[:3] == ["q", "2", "1"]
    assert 0 < float(row.split()[3]) <= float(row.split()[4])
    assert last == "the end"


def test_a_query_without_windows_has_no_times() -> None:
    with Engine() as engine:
        engine.stream(EX + "s")
        assert RunProgress(engine, [engine.register(QUERY)]).rows() == [("q", "0", "0", "-", "-")]


def test_a_reader_that_leaves_ends_the_run_and_not_the_window(played: Played) -> None:
    shown = PlainDisplay(each_window=True, out=LeavingReader(1), err=io.StringIO())
    progress = played(shown)
    assert [query.stats()["windows"] for query in progress.queries] == [2]
    shown.start(progress)
    with pytest.raises(BrokenPipeError):
        shown.update()


def test_the_rate_is_that_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    with Engine() as engine:
        progress, report = RunProgress(engine, []), PipelineReport()
        assert not progress.note(report)
        assert progress.state_line() == "0 s: 0 tuples in (0/s), 0 windows reported, 0 triples stored"
        report.triples = 500
        assert progress.note(report)
        for second in range(1, 11):
            now[0] = 100 + second
            report.triples += 1000 if second <= 5 else 200
            assert not progress.note(report)
            line = progress.state_line()
            if second == 5:
                assert line == "5 s: 5,500 tuples in (1,000/s), 0 windows reported, 0 triples stored"
                report.complete_ms = 1_406_851_200_500
        assert line == "10 s: 6,500 tuples in (200/s), up to 2014-08-01 00:00:00, 0 windows reported, 0 triples stored"


def test_a_state_line_comes_now_and_then_also_between_windows(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = played(PlainDisplay(each_window=False))
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    for each_window, seconds in ((True, 5), (False, 2)):
        err = io.StringIO()
        shown = PlainDisplay(each_window=each_window, out=io.StringIO(), err=err)
        shown.start(progress)
        progress.note(PipelineReport(triples=3, complete_ms=1500))
        for _ in range(20):
            now[0] += 0.5
            shown.update()
        lines = err.getvalue().splitlines()
        assert len(lines) == 10 // seconds
        assert ", up to 2 s of event time, 2 windows reported, 3 triples stored" in lines[-1]


def test_the_summary_says_what_was_set_aside_and_where() -> None:
    with Engine() as engine:
        progress = RunProgress(engine, [])
        progress.report = PipelineReport(triples=10, timing_triples=4, malformed=1, backwards=2, seconds=2.0)
        progress.report.examples.append(SetAside("a.nt", 3, 1, "expected a subject", "nonsense"))
        assert summary_lines(progress, "run.dead.jsonl") == [
            "10 tuples in 2.0 s (5/s); 4 are timing: in windows only",
            "stored triples: 0 before, 0 after",
            "3 rows set aside (1 malformed, 2 late), written to run.dead.jsonl, such as:",
            "  a.nt, line 3, column 1: expected a subject: nonsense",
        ]
        progress.report.examples *= 20
        assert len(summary_lines(progress, "run.dead.jsonl")) == 3 + 5
        assert len(summary_lines(progress)) == 3 + 20


def test_a_terminal_has_a_table_that_fits_into_80_columns(
    played: Played, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = choose_display(plain=False, each_window=True)
    assert isinstance(shown, LiveDisplay)
    progress = played(shown)
    shown.phase("starting [bold] ...")
    shown.start(progress)
    shown.update()
    shown.note("set aside: [1, 2]")
    shown.stop()
    shown.summary(progress, ["the end"])
    lines = capsys.readouterr().out.splitlines()
    assert "starting [bold] ..." in lines[0]
    assert "the end" in lines[-1]
    assert [line for line in lines if "set aside: [1, 2]" in line]
    rows = [line.strip("│ ").split("│") for line in lines if line.startswith("│ q")]
    assert [cell.strip() for cell in rows[-1]][:3] == ["q", "2", "1"]
    assert all("…" not in line for line in lines)


def test_no_terminal_has_plain_lines() -> None:
    assert isinstance(choose_display(plain=False, each_window=True), PlainDisplay)
