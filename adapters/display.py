"""The display of a run: answers first, then counts. A table that is drawn anew on a terminal, plain lines elsewhere.

A quantity has the name that it has in `stats()`: windows, rows, last rows, execution p50 and p99, stored triples.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from wukongs.adapters.replay import PipelineReport
from wukongs.query.output.results import Result, WindowResult
from wukongs.query.output.table_cells import TRIPLE_COLUMNS, cell_writer, declared_prefixes, is_number
from wukongs.query.output.view_report import ViewReport
from wukongs.query.terms.rdf_terms import to_ntriples
from wukongs.query.terms.text_table import TableLayout
from wukongs.store.dtypes import UNBOUND

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from wukongs.engine import Engine
    from wukongs.live.backend import RegisteredQuery
    from wukongs.remote.client import RemoteEngine
    from wukongs.remote.query import RemoteQuery

REFRESHES_PER_S = 4
RATE_OVER_S = 3.0
ROWS_MAX = 3
"""So many of the newest rows of a query are shown, if there is room."""
QUERIES_MAX = 50
"""The newest rows of so many queries are shown, where a terminal is no bound."""
QUERIES_NOW, ROWS_NOW = 10, 2
"""So many queries and rows come now and then among plain lines, at first with each line of state, later more rarely."""
ANSWERS_APART_S = 60.0
"""They come at least so often."""
DATED_FROM_MS, DATED_TO_MS = 31_536_000_000, 253_402_300_799_999


def event_time(time_ms: int) -> str:
    """Return an event time as date and time (UTC), or in seconds if it is within a year of 1970: so not of a clock."""
    if not DATED_FROM_MS <= time_ms <= DATED_TO_MS:
        return f"{time_ms / 1000:,.0f} s of event time"
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _window_end(end_ms: int) -> str:
    if not DATED_FROM_MS <= end_ms <= DATED_TO_MS:
        return f"{end_ms / 1000:,.1f} s"
    return f"{event_time(end_ms)}.{end_ms % 1000:03}"


# --- answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answers:
    """The first rows of a window or report, as people read them.

    place: the end of the window, or the SN of the report.
    size: how many rows there are, with their word."""

    query: str
    place: str
    size: str
    head: list[str]
    rows: list[list[str | None]]


class NewestAnswers:
    """The newest answers of each query. Any thread calls take, which costs next to nothing: terms become texts when
    somebody looks. A window is held until then, or until the next one of its query comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, WindowResult | ViewReport] = {}
        self._shown: dict[str, Answers] = {}
        self._prefixes: dict[str, Mapping[str, str]] = {}

    def know(self, texts: Mapping[str, str]) -> None:
        """Note the texts of queries, by name: their prefixes shorten the terms."""
        self._prefixes.update({name: declared_prefixes(text) for name, text in texts.items()})

    def take(self, window: WindowResult | ViewReport) -> None:
        if len(window) or window.kind == "ask":
            with self._lock:
                self._waiting[window.query] = window

    def news(self) -> list[Answers]:
        """Return those that have come since the last look."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        found = [self._answers(window) for window in waiting.values()]
        self._shown.update({one.query: one for one in found})
        order = {name: place for place, name in enumerate(self._prefixes)}
        return sorted(found, key=lambda one: order.get(one.query, len(order)))

    def all(self, names: Sequence[str]) -> list[Answers]:
        """Return the newest answers of queries, in the order of their names; those without any have none."""
        self.news()
        return [self._shown[name] for name in names if name in self._shown]

    def _answers(self, window: WindowResult | ViewReport) -> Answers:
        rows = _first_rows(window, ROWS_MAX, cell_writer(self._prefixes.get(window.query, {})))
        head = _head_of(window)
        if isinstance(window, WindowResult):
            return Answers(window.query, _window_end(window.end_ms), answer_size(window), head, rows)
        weights = [f"{weight:+d}" for weight in window.weights[:ROWS_MAX].tolist()]
        weighted = [[weight, *row] for weight, row in zip(weights, rows, strict=True)]
        return Answers(window.query, f"SN {window.snapshot}", answer_size(window), ["", *head], weighted)


def _head_of(result: Result) -> list[str]:
    """Return the heads of a result's columns; an ask has one column, of its answer."""
    if result.kind == "ask":
        return ["ASK"]
    return list(TRIPLE_COLUMNS) if result.is_graph else [f"?{name}" for name in result.vars]


def _first_rows(result: Result, count: int, cell: Callable[[str], str]) -> list[list[str | None]]:
    """Return the first rows of a result as cells, None where unbound. No other term is looked up."""
    if result.kind == "ask":
        return [[str(bool(result.boolean)).lower()]]
    count, columns = min(count, len(result)), list[list[str | None]]()
    for ids in result.ids(0, count):
        texts = iter(result.shown.texts(ids[ids != UNBOUND]))
        columns.append([None if one == UNBOUND else cell(next(texts)) for one in ids.tolist()])
    return list(map(list, zip(*columns, strict=True))) if columns else [[] for _ in range(count)]


def answer_lines(answers: Sequence[Answers], rows_max: int, width: int | None) -> list[list[str]]:
    """Return lines for each query: its name beside the variables, and below these its rows beside the end of their
    window. width: cells of a line; None is any."""
    widest = max((len(text) for one in answers for text in (one.query, one.place, one.size)), default=0)
    lines = []
    for one in answers:
        rows = one.rows[:rows_max]
        beside = [one.place, one.size, *[""] * len(rows)][: len(rows)]
        columns: list[Sequence[str | None]] = [beside, *map(list, zip(*rows, strict=True))]
        layout = TableLayout([one.query.ljust(widest), *one.head], is_number)
        layout.measure(columns)
        lines.append([layout.head(width).splitlines()[0], *layout.lines(columns, len(rows)).splitlines()])
    return lines


def texts_of(queries: Sequence[RegisteredQuery | RemoteQuery]) -> dict[str, str]:
    """Return the text of each query, by its name."""
    from wukongs.remote.query import RemoteReader

    return {query.name: query.text if isinstance(query, RemoteReader) else query.source.text for query in queries}


def answer_size(result: Result) -> str:
    """Say how large an answer is: yes or no, triples, or rows."""
    if result.kind == "ask":
        return "yes" if result.boolean else "no"
    return f"{len(result):,} {'triple' if result.is_graph else 'row'}{'' if len(result) == 1 else 's'}"


# --- counts -----------------------------------------------------------------------------------------------------------


COLUMNS = ("query", "windows", "rows", "last rows", "execution p50", "execution p99")
"""Counts of a query by their names in its stats(); times in ms."""


def count_cells(name: str, stats: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of COLUMNS. stats: of a query; empty where they are not known. A live view has no windows."""
    counts = (f"{stats[key]:,}" if key in stats else "-" for key in ("windows", "rows", "last_rows"))
    times = (f"{stats[f'execution_us_p{part}'] / 1e3:.3f} ms" if stats.get("windows") else "-" for part in (50, 99))
    return (name, *counts, *times)


def count_table(rows: Sequence[Sequence[str]]) -> Table:
    """Return cells of COLUMNS as a table for a terminal."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "query" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


class RunProgress:
    """The sources of a display: the engine, its queries and the newest report of the pipeline."""

    def __init__(self, engine: Engine | RemoteEngine, queries: Sequence[RegisteredQuery | RemoteQuery]) -> None:
        self.engine = engine
        self.queries = queries
        self.report = PipelineReport()
        self.is_over = False
        self.stored_before = self.stored()
        self._began_s = 0.0
        self._counted: deque[tuple[float, int]] = deque()

    def note(self, report: PipelineReport) -> bool:
        """Take over the newest report; tell whether it is the first with tuples."""
        is_first = self._began_s == 0 and report.triples > 0
        if is_first:
            now = time.monotonic()
            self._began_s = now - report.seconds
            self._counted.append((now, report.triples))
        self.report = report
        return is_first

    def end(self, report: PipelineReport) -> None:
        """Take over the last report."""
        self.report, self.is_over = report, True

    def stored(self) -> int:
        """Return how many triples the stored graph has now."""
        return int(self.engine.stats()["stored_triples"])

    def tuples_per_s(self) -> float:
        """Tuples in per second, over the last RATE_OVER_S seconds; 0 before the first ones."""
        if not self._counted:
            return 0.0
        now, triples = time.monotonic(), self.report.triples
        self._counted.append((now, triples))
        while len(self._counted) > 2 and self._counted[1][0] <= now - RATE_OVER_S:
            self._counted.popleft()
        began_s, began = self._counted[0]
        return (triples - began) / max(now - began_s, 1e-3)

    def mean_rate(self) -> str:
        """Tuples in per second, from the beginning to the last report."""
        return f"{self.report.triples / max(self.report.seconds, 1e-3):,.0f}/s"

    def windows(self) -> int:
        """Return how many windows the queries have reported."""
        return sum(query.stats().get("windows", 0) for query in self.queries)

    def state_line(self) -> str:
        """Say how much came in, in how many seconds, up to which event time, and what came of it."""
        report, reached, waiting = self.report, self.report.complete_ms, self.report.waiting
        streamed_s = report.seconds if self.is_over else time.monotonic() - self._began_s if self._began_s else 0.0
        rate = f"{self.mean_rate()} on average" if self.is_over else f"{self.tuples_per_s():,.0f}/s now"
        windows = f"{self.windows():,} windows reported, " if self.queries else ""
        return (
            f"{streamed_s:.0f} s: {report.triples:,} tuples ({rate}), "
            f"{f'{waiting:,} records waiting, ' if waiting else ''}"
            f"{'' if reached is None else f'up to {event_time(reached)}, '}{windows}"
            f"{self.stored():,} stored triples"
        )

    def rows(self) -> list[tuple[str, ...]]:
        """Return the counts of each query, as cells of COLUMNS."""
        return [count_cells(query.name, query.stats()) for query in self.queries]

    def names(self) -> list[str]:
        return [query.name for query in self.queries]


# --- displays ---------------------------------------------------------------------------------------------------------


class Display(Protocol):
    """The engine's thread calls window. The pipeline's and the main thread call phase and note; the main thread calls
    the rest."""

    def phase(self, text: str) -> None: ...

    def note(self, text: str) -> None:
        """Show a line that stays."""

    def window(self, window: WindowResult | ViewReport) -> None:
        """Take a window, or the report of a live view."""

    def asked(self, when: str, name: str, result: Result) -> None: ...

    def start(self, progress: RunProgress) -> None: ...

    def update(self) -> None:
        """Raises BrokenPipeError when nobody reads the results any more."""

    def stop(self) -> None: ...

    def summary(self, progress: RunProgress, lines: Sequence[str]) -> None: ...


class PlainDisplay:
    """Lines: results on standard output, phases on standard error.

    each_window: one line per window, with up to rows_shown of its rows as N-Triples. None: no rows there, but now and
    then the newest ones of each query that has any, as people read them. So often, every seconds_apart, comes a line
    of state, too: by default 2, or 5 between windows.
    """

    def __init__(
        self,
        each_window: bool,
        rows_shown: int | None = None,
        seconds_apart: float | None = None,
        out: TextIO | None = None,
        err: TextIO | None = None,
    ) -> None:
        self._each_window = each_window
        self._rows_shown = rows_shown
        self._seconds_apart = (5.0 if each_window else 2.0) if seconds_apart is None else seconds_apart
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._lock = threading.Lock()
        self._progress: RunProgress | None = None
        self._newest = NewestAnswers()
        self._answers_apart_s = self._seconds_apart
        self._said_s = self._answers_said_s = 0.0
        self._reader_left = False

    def phase(self, text: str) -> None:
        print(text, file=self._err, flush=True)

    note = phase

    def window(self, window: WindowResult | ViewReport) -> None:
        self._newest.take(window)
        if not self._each_window:
            return
        if isinstance(window, WindowResult):
            note, weights = " partial" if window.partial else "", None
            lines = [f"{window.query}\t({window.start_ms}, {window.end_ms}]\t{answer_size(window)}{note}"]
        else:
            note, weights = " in all" if window.is_reset else " changed", window.weights.tolist()
            lines = [f"{window.query}\t({window.after}, {window.snapshot}]\t{answer_size(window)}{note}"]
        if self._rows_shown and not window.is_graph and window.kind == "select":
            for place, row in enumerate(window.texts()[: self._rows_shown]):
                weight = "" if weights is None else f"\t{weights[place]:+d}"
                lines.append(weight + "".join(f"\t{'' if text is None else to_ntriples(text)}" for text in row))
        self._print("\n".join(lines))

    def asked(self, when: str, name: str, result: Result) -> None:
        self._print(f"{name}\t{when}\t{answer_size(result)}")

    def _print(self, text: str) -> None:
        """Print whole lines; a reader of them that has left is remembered, for the main thread to end the run."""
        with self._lock:
            try:
                print(text, file=self._out, flush=True)
            except BrokenPipeError:
                self._reader_left = True

    def start(self, progress: RunProgress) -> None:
        self._progress = progress
        self._newest.know(texts_of(progress.queries))
        self._said_s = self._answers_said_s = time.monotonic()

    def update(self) -> None:
        if self._reader_left:
            raise BrokenPipeError
        now = time.monotonic()
        if self._progress is None or now - self._said_s < self._seconds_apart:
            return
        if self._progress.report.triples:
            self._said_s = now
            if now - self._answers_said_s >= self._answers_apart_s and (news := self._newest.news()):
                self._answers_said_s, self._answers_apart_s = now, min(2 * self._answers_apart_s, ANSWERS_APART_S)
                self._print_answers(news[:QUERIES_NOW], ROWS_NOW)
            print(self._progress.state_line(), file=self._err, flush=True)

    def stop(self) -> None:
        self._progress = None

    def _print_answers(self, answers: Sequence[Answers], rows_max: int) -> None:
        if self._rows_shown is None and answers:
            lines = answer_lines(answers, rows_max, None)
            self._print("\n".join(chain.from_iterable(lines)))

    def summary(self, progress: RunProgress, lines: Sequence[str]) -> None:
        self._newest.know(texts_of(progress.queries))
        self._print_answers(self._newest.all(progress.names())[:QUERIES_MAX], ROWS_MAX)
        table = [COLUMNS, *progress.rows()] if progress.queries else []
        widths = [max(len(row[at]) for row in table) for at in range(len(COLUMNS))] if table else []
        for row in table:
            cells = [row[0].ljust(widths[0]), *(row[at].rjust(widths[at]) for at in range(1, len(COLUMNS)))]
            self._print("  ".join(cells))
        for line in lines:
            self._print(line)


class LiveDisplay:
    """Answers and counts that are drawn anew in place, on a terminal; under them the phase, and for how long it has
    gone on. The last state stays."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console()
        self._live: Live | None = None
        self._progress: RunProgress | None = None
        self._newest = NewestAnswers()
        self._is_last = False
        self._phase = ""
        self._phase_began_s = 0.0

    def phase(self, text: str) -> None:
        self._phase, self._phase_began_s = text, time.monotonic()
        if self._live is None:
            self._console.print(text, style="dim", highlight=False, markup=False)

    def note(self, text: str) -> None:
        self._console.print(text, style="yellow", highlight=False, markup=False)  # above the table, if there is one

    def window(self, window: WindowResult | ViewReport) -> None:
        self._newest.take(window)

    def asked(self, when: str, name: str, result: Result) -> None:
        self._console.print(f"{name}, {when}: {answer_size(result)}", highlight=False, markup=False)

    def start(self, progress: RunProgress) -> None:
        from rich.live import Live

        self._progress = progress
        self._newest.know(texts_of(progress.queries))
        self._live = Live(get_renderable=self._drawn, console=self._console, refresh_per_second=REFRESHES_PER_S)
        self._live.start()

    def update(self) -> None:
        pass

    def stop(self) -> None:
        if self._live is not None:
            self._is_last = True
            self._live.stop()
        self._live = None

    def summary(self, progress: RunProgress, lines: Sequence[str]) -> None:
        if progress.queries and not self._is_last:  # else they stand above
            self._console.print(self._state(progress, ""))
        for line in lines:
            self._console.print(line, highlight=False, markup=False)

    def _drawn(self) -> Table:
        assert self._progress is not None
        waited = time.monotonic() - self._phase_began_s
        line = self._progress.state_line() if self._progress.report.triples else f"{self._phase} {waited:.0f} s"
        return self._state(self._progress, line)

    def _state(self, progress: RunProgress, caption: str) -> Table:
        height = None if self._is_last or self._live is None else self._console.size.height
        answers = self._newest.all(progress.names())
        return drawn_state(answers, progress.rows(), caption, self._console.size.width, height)


def drawn_state(
    answers: Sequence[Answers], counts: Sequence[Sequence[str]], caption: str, width: int, height: int | None
) -> Table:
    """Return answers with counts below them, for a terminal. height: lines that there are; None: any number. Where not
    all has room, each query has fewer rows, and then some have none, which is said."""
    from rich.table import Table
    from rich.text import Text

    counted, shown, rows_max = len(counts), min(len(answers), QUERIES_MAX), ROWS_MAX
    if height is not None:
        counted = min(counted, max(height // 2 - 3, 1))
        lines = -(-len(caption) // width)
        left = height - counted - lines - 2  # the head of the counts, the cursor
        left -= counted < len(counts) or left // 2 < shown  # what is left out is told on a line
        shown = max(min(shown, left // 2), 0)
        rows_max = max(min(ROWS_MAX, left // max(shown, 1) - 1), 1)
    drawn = Table.grid()
    for head, *rows in answer_lines(answers[:shown], rows_max, width):
        for line, style in ((head, "bold"), *((row, "") for row in rows)):
            drawn.add_row(Text(line, style, no_wrap=True, overflow="ellipsis"))
    drawn.add_row(count_table(counts[:counted]))
    if left_out := max(len(counts) - counted, len(answers) - shown):
        drawn.add_row(Text(f"{left_out} queries more have no room here", "dim"))
    if caption:
        drawn.add_row(Text(caption, "dim"))
    return drawn


def choose_display(plain: bool, each_window: bool, rows_shown: int | None = None) -> Display:
    """Return the live table on a terminal, else (or if asked for) plain lines."""
    if plain or not sys.stdout.isatty():
        return PlainDisplay(each_window, rows_shown)
    return LiveDisplay()
