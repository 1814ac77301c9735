"""The display of a run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TextIO

from wukongs.adapters.replay import PipelineReport
from wukongs.query.output.results import Result, WindowResult

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from wukongs.engine import Engine
    from wukongs.live.backend import RegisteredQuery
    from wukongs.remote.client import RemoteEngine
    from wukongs.remote.query import RemoteQuery

REFRESHES_PER_S = 4
RATE_OVER_S = 3.0
DATED_FROM_MS, DATED_TO_MS = 31_536_000_000, 253_402_300_799_999


def event_time(time_ms: int) -> str:
    """Return an event time as date and time (UTC), or in seconds if it is within a year of 1970: so not of a clock."""
    if not DATED_FROM_MS <= time_ms <= DATED_TO_MS:
        return f"{time_ms / 1000:,.0f} s of event time"
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


class RunProgress:
    """The sources of a display: the engine, its queries and the newest report of the pipeline."""

    def __init__(self, engine: Engine | RemoteEngine, queries: Sequence[RegisteredQuery | RemoteQuery]) -> None:
        self.engine = engine
        self.queries = queries
        self.report = PipelineReport()
        self.stored_before = self.stored()
        self._began_s = 0.0
        self._counted: deque[tuple[float, int]] = deque()

    def note(self, report: PipelineReport) -> bool:
        """Take over the newest report; tell whether it is the first with tuples."""
        is_first = self._began_s == 0 and report.triples > 0
        if is_first:
            self._began_s = time.monotonic()
            self._counted.append((self._began_s, report.triples))
        self.report = report
        return is_first

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

    def windows(self) -> int:
        """Return how many windows the queries have reported."""
        return sum(query.stats()["windows"] for query in self.queries)

    def state_line(self) -> str:
        """Say how much came in, in how many seconds, up to which event time, and what came of it."""
        streamed_s = time.monotonic() - self._began_s if self._began_s else 0.0
        reached, waiting = self.report.complete_ms, self.report.waiting
        return (
            f"{streamed_s:.0f} s: {self.report.triples:,} tuples in ({self.tuples_per_s():,.0f}/s), "
            f"{f'{waiting:,} records waiting, ' if waiting else ''}"
            f"{'' if reached is None else f'up to {event_time(reached)}, '}{self.windows():,} windows reported, "
            f"{self.stored():,} triples stored"
        )

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Return per query: name, windows reported, rows of the last one, median and p99 of the execution time."""
        found = []
        for query in self.queries:
            stats = query.stats()
            times = [f"{stats[f'execution_us_p{part}'] / 1e3:.3f}" if stats["windows"] else "-" for part in (50, 99)]
            found.append((query.name, f"{stats['windows']:,}", f"{stats['last_rows']:,}", times[0], times[1]))
        return found


COLUMNS = ("query", "windows", "rows of last", "median exec. ms", "p99 exec. ms")


class Display(Protocol):
    """The engine's thread calls window. The pipeline's and the main thread call phase and note; the main thread calls
    the rest."""

    def phase(self, text: str) -> None: ...

    def note(self, text: str) -> None:
        """Show a line that stays."""

    def window(self, window: WindowResult) -> None: ...

    def asked(self, when: str, name: str, result: Result) -> None: ...

    def start(self, progress: RunProgress) -> None: ...

    def update(self) -> None:
        """Raises BrokenPipeError when nobody reads the results any more."""

    def stop(self) -> None: ...

    def summary(self, progress: RunProgress, lines: Sequence[str]) -> None: ...


def answer_size(result: Result) -> str:
    """Say how large an answer is: yes or no, triples, or rows."""
    if result.kind == "ask":
        return "yes" if result.boolean else "no"
    return f"{len(result):,} {'triple' if result.is_graph else 'row'}{'' if len(result) == 1 else 's'}"


class PlainDisplay:
    """Lines: results on standard output, phases on standard error.

    each_window: one line per window with up to rows_shown of its rows. A line of state comes every seconds_apart, by
    default 2, or 5 between windows.
    """

    def __init__(
        self,
        each_window: bool,
        rows_shown: int = 0,
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
        self._said_s = 0.0
        self._reader_left = False

    def phase(self, text: str) -> None:
        print(text, file=self._err, flush=True)

    note = phase

    def window(self, window: WindowResult) -> None:
        if not self._each_window:
            return
        note = " partial" if window.partial else ""
        lines = [f"{window.query}\t({window.start_ms}, {window.end_ms}]\t{answer_size(window)}{note}"]
        if self._rows_shown and not window.is_graph and window.kind == "select":
            lines += ["\t" + "\t".join(text or "" for text in row) for row in window.texts()[: self._rows_shown]]
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
        self._said_s = time.monotonic()

    def update(self) -> None:
        if self._reader_left:
            raise BrokenPipeError
        now = time.monotonic()
        if self._progress is None or now - self._said_s < self._seconds_apart:
            return
        if self._progress.report.triples:
            self._said_s = now
            print(self._progress.state_line(), file=self._err, flush=True)

    def stop(self) -> None:
        self._progress = None

    def summary(self, progress: RunProgress, lines: Sequence[str]) -> None:
        table = [COLUMNS, *progress.rows()] if progress.queries else []
        widths = [max(len(row[at]) for row in table) for at in range(len(COLUMNS))] if table else []
        for row in table:
            cells = [row[0].ljust(widths[0]), *(row[at].rjust(widths[at]) for at in range(1, len(COLUMNS)))]
            self._print("  ".join(cells))
        for line in lines:
            self._print(line)


class LiveDisplay:
    """A table that is drawn anew in place, on a terminal; under it the phase, and for how long it has gone on."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console()
        self._live: Live | None = None
        self._progress: RunProgress | None = None
        self._phase = ""
        self._phase_began_s = 0.0

    def phase(self, text: str) -> None:
        self._phase, self._phase_began_s = text, time.monotonic()
        if self._live is None:
            self._console.print(text, style="dim", highlight=False, markup=False)

    def note(self, text: str) -> None:
        self._console.print(text, style="yellow", highlight=False, markup=False)  # above the table, if there is one

    def window(self, window: WindowResult) -> None:
        pass

    def asked(self, when: str, name: str, result: Result) -> None:
        self._console.print(f"{name}, {when}: {answer_size(result)}", highlight=False, markup=False)

    def start(self, progress: RunProgress) -> None:
        from rich.live import Live

        self._progress = progress
        self._live = Live(
            get_renderable=self._drawn,
            console=self._console,
            refresh_per_second=REFRESHES_PER_S,
            transient=True,
        )
        self._live.start()

    def update(self) -> None:
        pass

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._live = None

    def summary(self, progress: RunProgress, lines: Sequence[str]) -> None:
        if progress.queries:
            self._console.print(_table(progress, None))
        for line in lines:
            self._console.print(line, highlight=False, markup=False)

    def _drawn(self) -> Table:
        assert self._progress is not None
        waited = time.monotonic() - self._phase_began_s
        state = self._progress.state_line() if self._progress.report.triples else f"{self._phase} {waited:.0f} s"
        return _table(self._progress, state)


def _table(progress: RunProgress, caption: str | None) -> Table:
    from rich.table import Table

    table = Table(caption=caption, caption_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "query" else "right")
    for row in progress.rows():
        table.add_row(*row)
    return table


def choose_display(plain: bool, each_window: bool, rows_shown: int = 0) -> Display:
    """Return the live table on a terminal, else (or if asked for) plain lines."""
    if plain or not sys.stdout.isatty():
        return PlainDisplay(each_window, rows_shown)
    return LiveDisplay()
