"""What a run shows while it goes on: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

from adapters.replay import PipelineReport
from wukongs.results import Result, WindowResult

if TYPE_CHECKING:
    from rich.table import Table

    from wukongs.continuous import ContinuousQuery
    from wukongs.engine import Engine

REFRESHES_PER_S = 4


@dataclass(slots=True)
class Progress:
    """What a display draws from: the engine, its queries and the newest report of the pipeline."""

    engine: Engine
    queries: Sequence[ContinuousQuery]
    report: PipelineReport
    began_s: float

    def tuples_per_s(self) -> float:
        """Tuples in per second since the pipeline sent its first."""
        return self.report.triples / max(time.monotonic() - self.began_s, 1e-3) if self.report.triples else 0.0

    def state_line(self) -> str:
        """Say how much came in and how large the stored graph is."""
        stats = self.engine.stats()
        return (
            f"{self.report.triples:,} tuples in ({self.tuples_per_s():,.0f}/s), "
            f"{stats['stored_triples']:,} triples stored in {stats['stored_batches']} batches"
        )

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Return per query: name, windows reported, rows of the last one, median and p99 of the execution time."""
        found = []
        for query in self.queries:
            stats = query.stats()
            median, p99 = stats["execution_us_p50"] / 1e3, stats["execution_us_p99"] / 1e3
            found.append(
                (query.name, f"{stats['windows']:,}", f"{stats['last_rows']:,}", f"{median:.3f}", f"{p99:.3f}")
            )
        return found


COLUMNS = ("query", "windows", "rows of the last", "median ms", "p99 ms")


class Display(Protocol):
    """phase, asked and summary are called by the main thread; window by the engine's."""

    def phase(self, text: str) -> None: ...

    def window(self, window: WindowResult) -> None: ...

    def asked(self, when: str, name: str, result: Result) -> None: ...

    def start(self, progress: Progress) -> None: ...

    def update(self) -> None: ...

    def stop(self) -> None: ...

    def summary(self, progress: Progress, lines: Sequence[str]) -> None: ...


def answer_size(result: Result) -> str:
    """Say how large an answer is: yes or no, triples, or rows."""
    if result.kind == "ask":
        return "yes" if result.boolean else "no"
    return f"{len(result):,} {'triples' if result.is_graph else 'rows'}"


class PlainDisplay:
    """Lines: results on standard output, phases on standard error.

    each_window: one line per window with up to rows_shown of its rows; else a line of state every seconds_apart.
    """

    def __init__(
        self,
        each_window: bool,
        rows_shown: int = 0,
        seconds_apart: float = 2.0,
        out: TextIO | None = None,
        err: TextIO | None = None,
    ) -> None:
        self._each_window = each_window
        self._rows_shown = rows_shown
        self._seconds_apart = seconds_apart
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._said_s = 0.0

    def phase(self, text: str) -> None:
        print(text, file=self._err, flush=True)

    def window(self, window: WindowResult) -> None:
        if not self._each_window:
            return
        note = " partial" if window.partial else ""
        lines = [f"{window.query}\t({window.start_ms}, {window.end_ms}]\t{answer_size(window)}{note}"]
        if self._rows_shown and not window.is_graph and window.kind == "select":
            lines += ["\t" + "\t".join(text or "" for text in row) for row in window.texts()[: self._rows_shown]]
        with self._lock:
            print("\n".join(lines), file=self._out, flush=True)

    def asked(self, when: str, name: str, result: Result) -> None:
        with self._lock:
            print(f"{name}\t{when}\t{answer_size(result)}", file=self._out, flush=True)

    def start(self, progress: Progress) -> None:
        self._progress = progress
        self._said_s = time.monotonic()

    def update(self) -> None:
        now = time.monotonic()
        if self._each_window or self._progress is None or now - self._said_s < self._seconds_apart:
            return
        self._said_s = now
        shown = "  ".join(f"{name} {windows}w/{rows}r" for name, windows, rows, _, _ in self._progress.rows())
        print(f"{self._progress.state_line()}  {shown}", file=self._err, flush=True)

    def stop(self) -> None:
        self._progress = None

    def summary(self, progress: Progress, lines: Sequence[str]) -> None:
        table = [COLUMNS, *progress.rows()]
        widths = [max(len(row[at]) for row in table) for at in range(len(COLUMNS))]
        with self._lock:
            for row in table:
                cells = [row[0].ljust(widths[0]), *(row[at].rjust(widths[at]) for at in range(1, len(COLUMNS)))]
                print("  ".join(cells), file=self._out)
            for line in lines:
                print(line, file=self._out)
            self._out.flush()


class LiveDisplay:
    """A table that is drawn anew in place, on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console()
        self._live: object | None = None
        self._progress: Progress | None = None
        self._phase = ""

    def phase(self, text: str) -> None:
        self._phase = text
        if self._live is None:
            self._console.print(text, style="dim", highlight=False)

    def window(self, window: WindowResult) -> None:
        pass

    def asked(self, when: str, name: str, result: Result) -> None:
        self._console.print(f"[bold]{name}[/bold] {when}: {answer_size(result)}", highlight=False)

    def start(self, progress: Progress) -> None:
        from rich.live import Live

        self._progress = progress
        live = Live(
            get_renderable=self._table,
            console=self._console,
            refresh_per_second=REFRESHES_PER_S,
            transient=True,
        )
        live.start()
        self._live = live

    def update(self) -> None:
        pass

    def stop(self) -> None:
        from rich.live import Live

        if isinstance(self._live, Live):
            self._live.stop()
        self._live = None

    def summary(self, progress: Progress, lines: Sequence[str]) -> None:
        self._progress = progress
        self._phase = ""
        self._console.print(self._table())
        for line in lines:
            self._console.print(line, highlight=False)

    def _table(self) -> Table:
        from rich.table import Table

        assert self._progress is not None
        caption = self._progress.state_line()
        table = Table(title=self._phase or None, caption=caption, title_justify="left", caption_justify="left")
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "query" else "right")
        for row in self._progress.rows():
            table.add_row(*row)
        return table


def choose_display(plain: bool, each_window: bool, rows_shown: int = 0) -> Display:
    """Return the live table on a terminal, else (or if asked for) plain lines."""
    if plain or not sys.stdout.isatty():
        return PlainDisplay(each_window, rows_shown)
    return LiveDisplay()
