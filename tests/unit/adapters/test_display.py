"""The display of a run: its lines, its table, its figures."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from types import SimpleNamespace

import pytest
from rich.console import Console

from wukongs import Engine
from wukongs.adapters import display
from wukongs.adapters.display import (
    COLUMNS,
    Answers,
    Display,
    LiveDisplay,
    NewestAnswers,
    PlainDisplay,
    RunProgress,
    answer_lines,
    answer_size,
    choose_display,
    count_cells,
    drawn_state,
    texts_of,
)
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


def test_rows_of_windows_are_ntriples_on_one_line() -> None:
    out, text = io.StringIO(), r'"a\t\"b\"\n\\"'
    shown = PlainDisplay(each_window=True, rows_shown=1, out=out, err=io.StringIO())
    with Engine() as engine:
        stream = engine.stream(EX + "s", batch_ms=1000)
        engine.register(QUERY, on_result=shown.window)
        stream.push([(f"<{EX}a>", f"<{EX}p>", text, 500)])
        stream.advance(1000)
        engine.settle()
    assert out.getvalue() == f"q\t(0, 1000]\t1 row\n\t{text}\n"


def test_a_summary_has_a_row_for_each_query(played: Played) -> None:
    out, err = io.StringIO(), io.StringIO()
    shown = PlainDisplay(each_window=False, out=out, err=err)
    shown.summary(played(shown), ["the end"])
    *answers, head, row, last = out.getvalue().splitlines()
    assert answers == ["q      ?o", "2.0 s  z"]  # answers come first
    assert re.split("  +", head) == ["query", "windows", "rows", "last rows", "execution p50", "execution p99"]
    cells = re.split("  +", row)
    assert cells[:4] == ["q", "2", "3", "1"]
    assert 0 < float(cells[4].removesuffix(" ms")) <= float(cells[5].removesuffix(" ms"))
    assert last == "the end"


def test_figures_have_one_name(played: Played) -> None:
    """A count is called as stats() calls it, and has its value."""
    progress = played(PlainDisplay(each_window=False, out=io.StringIO(), err=io.StringIO()))
    (query,), (cells,) = progress.queries, progress.rows()
    stats = query.stats()
    names = [name.replace(" ", "_") for name in COLUMNS[1:4]]
    assert [int(cell) for cell in cells[1:4]] == [stats[name] for name in names]
    times = [f"execution_us_{name.rpartition(' ')[2]}" for name in COLUMNS[4:]]
    assert cells[4:] == tuple(f"{stats[name] / 1000:.3f} ms" for name in times)
    assert f"{progress.windows()} windows reported, {progress.engine.stats()['stored_triples']} stored triples" in (
        progress.state_line()
    )


def test_the_newest_rows_come_now_and_then(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time those that are new since the last, unless rows of all windows are asked for."""
    now = [100.0]
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for rows_shown, expected in ((None, ["q      ?o", "2.0 s  z"]), (0, [])):
        out = io.StringIO()
        shown = PlainDisplay(each_window=False, rows_shown=rows_shown, out=out, err=io.StringIO())
        with Engine() as engine:
            stream = engine.stream(EX + "s", batch_ms=1000)
            progress = RunProgress(engine, [engine.register(QUERY, on_result=shown.window)])
            shown.start(progress)
            progress.note(PipelineReport(triples=3))
            stream.push([(f"<{EX}a>", f"<{EX}p>", '"z"', 1500)])
            stream.advance(3000)  # the last window has no rows
            engine.settle()
            for _ in range(2):
                now[0] += 2
                shown.update()
        assert out.getvalue().splitlines() == expected


def test_answers_have_the_prefixes_of_their_query_and_few_rows() -> None:
    text = f"PREFIX ex: <{EX}> {QUERY.replace('SELECT', 'SELECT ?s')}"
    newest = NewestAnswers()
    with Engine() as engine:
        stream = engine.stream(EX + "s", batch_ms=1000)
        query = engine.register(text, on_result=newest.take)
        newest.know(texts_of([query]))
        integer = "<http://www.w3.org/2001/XMLSchema#integer>"
        stream.push([(f"<{EX}a>", f"<{EX}p>", f'"{number}"^^{integer}', 1_406_851_200_100) for number in range(8, 13)])
        stream.advance(1_406_851_201_000)
        engine.settle()
        (lines,) = answer_lines(newest.all(["other", "q"]), 2, None)
    assert lines == [
        "q                        ?s    ?o",
        "2014-08-01 00:00:01.000  ex:a   8",
        "5 rows                   ex:a   9",
    ]


def test_answers_that_are_no_rows() -> None:
    newest = NewestAnswers()
    with Engine() as engine:
        stream = engine.stream(EX + "s", batch_ms=1000)
        window = f"FROM STREAM <{EX}s> [RANGE 1s STEP 1s]"
        for name, form in (("a", "ASK"), ("c", "CONSTRUCT { ?s <x:p> 1 }"), ("n", "SELECT *")):
            text = f"REGISTER QUERY {name} AS {form} {window} WHERE {{ ?s ?p {'<x:none>' if name == 'n' else '?o'} }}"
            engine.register(text, on_result=newest.take)
        stream.push([("<x:s>", "<x:p>", "<x:o>", 500)])
        stream.advance(1000)
        engine.settle()
        assert list(chain.from_iterable(answer_lines(newest.all(["a", "c", "n"]), 3, None))) == [
            "a          ASK",
            "1.0 s     true",
            "c         subject  predicate  object",
            "1.0 s     <x:s>    <x:p>           1",
        ]


@pytest.mark.parametrize(
    ("height", "blocks", "rows", "counted"), [(None, 9, 3, 9), (24, 5, 1, 9), (60, 9, 3, 9), (12, 2, 1, 3)]
)
def test_a_low_terminal_has_fewer_rows_and_then_fewer_queries(
    height: int | None, blocks: int, rows: int, counted: int
) -> None:
    answers = [Answers(f"q{one}", "1.0 s", "3 rows", ["?s"], [["a"], ["b"], ["c"]]) for one in range(9)]
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(drawn_state(answers, [count_cells(one.query, {}) for one in answers], "the phase", 80, height))
    lines = console.export_text().rstrip("\n").splitlines()
    assert sum(line.endswith("?s") for line in map(str.rstrip, lines)) == blocks
    assert sum(line.rstrip().endswith((" a", " b", " c")) for line in lines) == blocks * rows
    assert sum("   -" in line for line in lines) == counted
    assert lines[-1].rstrip() == "the phase"
    assert height is None or len(lines) < height
    left_out = 9 - min(blocks, counted)
    assert (f"{left_out} queries more have no room here" in "\n".join(lines)) == (left_out > 0)


def test_a_query_without_windows_has_no_times() -> None:
    with Engine() as engine:
        engine.stream(EX + "s")
        assert RunProgress(engine, [engine.register(QUERY)]).rows() == [("q", "0", "0", "0", "-", "-")]


def test_a_reader_that_leaves_ends_the_run_and_not_the_window(played: Played) -> None:
    shown = PlainDisplay(each_window=True, out=LeavingReader(1), err=io.StringIO())
    progress = played(shown)
    assert [query.stats()["windows"] for query in progress.queries] == [2]
    shown.start(progress)
    with pytest.raises(BrokenPipeError):
        shown.update()


def test_the_rate_is_that_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with Engine() as engine:
        progress, report = RunProgress(engine, []), PipelineReport()
        assert not progress.note(report)
        assert progress.state_line() == "0 s: 0 tuples (0/s now), 0 stored triples"
        report.triples = 500
        assert progress.note(report)
        for second in range(1, 11):
            now[0] = 100 + second
            report.triples += 1000 if second <= 5 else 200
            assert not progress.note(report)
            line = progress.state_line()
            if second == 5:
                assert line == "5 s: 5,500 tuples (1,000/s now), 0 stored triples"
                report.complete_ms = 1_406_851_200_500
        assert line == "10 s: 6,500 tuples (200/s now), up to 2014-08-01 00:00:00, 0 stored triples"


def test_a_state_line_comes_now_and_then_also_between_windows(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = played(PlainDisplay(each_window=False))
    now = [100.0]
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=lambda: now[0]))
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
        assert ", up to 2 s of event time, 2 windows reported, 3 stored triples" in lines[-1]


def test_the_summary_says_what_was_set_aside_and_where() -> None:
    with Engine() as engine:
        progress = RunProgress(engine, [])
        progress.report = PipelineReport(triples=10, timing_triples=4, malformed=1, backwards=2, seconds=2.0)
        progress.report.examples.append(SetAside("a.nt", 3, 1, "expected a subject", "nonsense"))
        assert summary_lines(progress, "run.dead.jsonl") == [
            "10 tuples in 2.0 s (5/s on average); 4 are timing: in windows only",
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
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out).splitlines()
    assert "starting [bold] ..." in lines[0]
    assert [line for line in lines if "set aside: [1, 2]" in line]
    answers = [at for at, line in enumerate(lines) if line.split() == ["q", "?o"]][-1]
    counts = [at for at, line in enumerate(lines) if line.split()[:4] == ["q", "2", "3", "1"]][-1]
    assert answers < counts
    assert lines[answers + 1].split() == ["2.0", "s", "z"]
    assert all("…" not in line for line in lines)
    shown.summary(progress, ["the end"])
    assert capsys.readouterr().out == "the end\n"  # the last state has stayed


def test_no_terminal_has_plain_lines() -> None:
    assert isinstance(choose_display(plain=False, each_window=True), PlainDisplay)
