"""`wukongs watch`: the windows of queries, and the changes of live views, that a running node reports."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from wukongs.cli import DONE, say
from wukongs.cli.parsers import CommandParser
from wukongs.cli.query import parse_seconds, print_result
from wukongs.cli.server import add_server_options, connect_to
from wukongs.errors import GapError, StreamError, WukongsError
from wukongs.query.output.formats import FORMATS

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from wukongs.query.output.results import WindowResult
    from wukongs.query.output.view_report import ViewReport
    from wukongs.remote.client import RemoteEngine
    from wukongs.remote.query import RemoteQuery

COUNTS_APART_S = 1.0

_EPILOG = """examples:
  wukongs watch --server tcp://127.0.0.1:7411 traffic
  wukongs watch --server tcp://127.0.0.1:7411 traffic parking
  wukongs watch --server tcp://127.0.0.1:7411 --all
  wukongs watch --server tcp://127.0.0.1:7411 traffic --format csv --windows 10 > rows.csv
  wukongs watch --server tcp://127.0.0.1:7411 friends --format json | jq .changes

On a terminal the newest rows of each query stand above its counts, which are those of `wukongs stats`. Elsewhere, and
with --plain, each window is printed as a whole. It begins with the oldest window that the node still holds, and each
who watches gets every window.

A live view is printed as rows with weights, +n inserted and -n deleted: first its whole content, then each change. With
--format json each report is one object on a line.

Ctrl-C ends it and leaves what is shown; the queries go on. Any node of a cluster does.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs watch",
        usage="wukongs watch --server URL [options] NAME...\n       wukongs watch --server URL [options] --all",
        description="Show the windows of registered queries as they come, until Ctrl-C or the end of the queries.",
        epilog=_EPILOG,
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="the name that a query was registered under")
    parser.add_argument("--all", action="store_true", help="all queries that are registered now")
    add_server_options(parser, required=True)
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="table",
        help="of the windows (default: table; ttl and nt for CONSTRUCT); another one than table is for one query, and "
        "which window it is stands on standard error; of a live view table or json",
    )
    parser.add_argument("--plain", action="store_true", help="print each window, also on a terminal")
    parser.add_argument("--windows", type=_count, metavar="N", help="end after N windows, or reports, of each query")
    parser.add_argument("--timeout", type=parse_seconds, metavar="SECONDS", help="end when no window comes for so long")
    return parser


def _count(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected an integer from 1 on, found {text!r}")


def main(argv: Sequence[str]) -> int:
    from wukongs.remote.query import RemoteView
    from wukongs.remote.watching import watched

    parser = make_parser()
    options = parser.parse_args(list(argv))
    if options.all == bool(options.names):
        parser.error("name the queries to watch, or give --all" if not options.all else "--all leaves nothing to name")
    if options.format != "table" and (options.all or len(options.names) > 1):
        parser.error(f"--format {options.format}: one query can be watched so: name one")
    with connect_to(options) as node:
        queries = _chosen(node.queries(), options.names)
        has_view = any(isinstance(query, RemoteView) for query in queries)
        if has_view and options.format not in ("table", "json"):
            parser.error(f"--format {options.format}: the changes of a live view are written as table or json")
        is_drawn = options.format == "table" and not (options.plain or has_view) and sys.stdout.isatty()
        shown: Shown = _Drawn(node, queries) if is_drawn else _Printed(queries, options.format)
        with shown:
            for item in watched(queries, options.timeout, options.windows):
                shown.show(item)
    return DONE


def _chosen(found: Sequence[RemoteQuery], names: Sequence[str]) -> list[RemoteQuery]:
    """Return the queries of these names, each once, or all of them. Raises StreamError (one is not there, or none)."""
    by_name = {query.name: query for query in found}
    missing = next((name for name in names if name not in by_name), None)
    if missing is not None:
        known = ", ".join(sorted(by_name)) or "none"
        raise StreamError(f"no query named {missing} is registered: register it first. Registered: {known}")
    if not by_name:
        raise StreamError("no query is registered: register one first, with `wukongs register`")
    return [by_name[name] for name in dict.fromkeys(names)] or list(found)


# --- how they are shown -----------------------------------------------------------------------------------------------


class Shown(Protocol):
    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, item: WindowResult | ViewReport | GapError | None) -> None:
        """Show a window or report, a gap, or that time goes on."""


class _Printed:
    """Each window, one after the other."""

    def __init__(self, queries: Sequence[RemoteQuery], format: str) -> None:
        self._texts = {query.name: query.text for query in queries}
        self._format = format

    def __enter__(self) -> _Printed:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, item: WindowResult | ViewReport | GapError | None) -> None:
        from wukongs.adapters.display import answer_size
        from wukongs.query.output.view_report import ViewReport

        if item is None:
            return
        if isinstance(item, GapError):
            print(item, file=sys.stderr, flush=True)
            return
        if isinstance(item, ViewReport):
            self._show_report(item)
            return
        partial = ", partial" if item.partial else ""
        head = f"{item.query} ({item.start_ms}, {item.end_ms}] ms{partial}, {answer_size(item)}"
        if self._format == "table":
            say(head + "\n")
        else:
            print(head, file=sys.stderr, flush=True)
        print_result(item, self._format, self._texts[item.query])
        say("\n" if self._format == "table" else "")

    def _show_report(self, report: ViewReport) -> None:
        from wukongs.adapters.display import answer_size
        from wukongs.query.output.report_text import report_json, report_table
        from wukongs.query.output.table_cells import declared_prefixes

        if self._format == "json":
            say(report_json(report) + "\n")
            return
        kind = "reset" if report.is_reset else "change"
        say(f"{report.query} ({report.after}, {report.snapshot}] {kind}, {answer_size(report)}\n")
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        say(report_table(report, declared_prefixes(self._texts[report.query]), width) + "\n")


class _Drawn:
    """The newest rows and the counts of all queries, drawn anew in place on a terminal. The last state stays."""

    def __init__(self, node: RemoteEngine, queries: Sequence[RemoteQuery]) -> None:
        from rich.console import Console

        from wukongs.adapters.display import NewestAnswers

        self._node, self._names = node, [query.name for query in queries]
        self._newest = NewestAnswers()
        self._newest.know({query.name: query.text for query in queries})
        self._counts: Mapping[str, Mapping[str, Any]] = {}
        self._counted_s, self._apart_s = 0.0, COUNTS_APART_S
        self._note = ""
        self._is_last = False
        self._console = Console()
        self._live: Live | None = None

    def __enter__(self) -> _Drawn:
        from rich.live import Live

        from wukongs.adapters.display import REFRESHES_PER_S

        self._count()
        self._live = Live(get_renderable=self._draw, console=self._console, refresh_per_second=REFRESHES_PER_S)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._live is not None
        with suppress(WukongsError):  # of a node that has gone: the counts stay as they were
            self._count()
        self._is_last = True
        self._live.stop()

    def show(self, item: WindowResult | ViewReport | GapError | None) -> None:
        from wukongs.query.output.results import WindowResult

        if isinstance(item, GapError):
            self._note = str(item)
        elif isinstance(item, WindowResult):  # views are printed
            self._newest.take(item)
        if time.monotonic() - self._counted_s >= self._apart_s:
            self._count()

    def _count(self) -> None:
        """Ask for the counts. Where there are so many queries that it takes long, it is done more rarely."""
        began_s = time.monotonic()
        self._counts = self._node.stats()["queries"]
        self._counted_s = time.monotonic()
        self._apart_s = max(COUNTS_APART_S, 10 * (self._counted_s - began_s))

    def _draw(self) -> Table:
        from wukongs.adapters.display import count_cells, drawn_state

        size = self._console.size
        counts = [count_cells(name, self._counts.get(name, {})) for name in self._names]
        height = None if self._is_last else size.height
        return drawn_state(self._newest.all(self._names), counts, self._note, size.width, height)
