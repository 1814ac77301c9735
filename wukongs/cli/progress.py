"""How far a load is: a bar on a terminal, a line now and then elsewhere, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import rich.progress

LINE_SECONDS = 10.0


def short_bytes(size: float) -> str:
    """Return a size with its unit: 1.5 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


class LoadProgress(Protocol):
    """Is told how far a load is."""

    def show(self, done_bytes: int, size_bytes: int, triples: int) -> None:
        """done_bytes of size_bytes (0: unknown) of the file are read; triples: of it that were read just now."""


class _Lines:
    """One line every LINE_SECONDS: short loads say nothing."""

    def __init__(self, name: str, start_bytes: int) -> None:
        self._name, self._start_bytes = name, start_bytes
        self._began_s = self._shown_s = time.monotonic()
        self._triples = 0

    def show(self, done_bytes: int, size_bytes: int, triples: int) -> None:
        self._triples += triples
        now_s = time.monotonic()
        if now_s - self._shown_s < LINE_SECONDS:
            return
        self._shown_s = now_s
        text = f"{self._name}: {_rate(self._triples, now_s - self._began_s)}"
        if size_bytes:
            left_s = (now_s - self._began_s) * (size_bytes - done_bytes) / max(done_bytes - self._start_bytes, 1)
            text += f", {100 * done_bytes // size_bytes} % of {short_bytes(size_bytes)}, about {left_s:.0f} s left"
        print(text, file=sys.stderr, flush=True)


class _Bar:
    """A bar with rate and time left."""

    def __init__(self, bar: rich.progress.Progress, task: rich.progress.TaskID) -> None:
        self._bar, self._task = bar, task
        self._began_s = time.monotonic()
        self._triples = 0

    def show(self, done_bytes: int, size_bytes: int, triples: int) -> None:
        self._triples += triples
        rate = _rate(self._triples, time.monotonic() - self._began_s)
        self._bar.update(self._task, completed=done_bytes, total=size_bytes or None, rate=rate)


def _rate(triples: int, seconds: float) -> str:
    return f"{triples / max(seconds, 1e-9) / 1e6:.2f} M triples/s"


@contextmanager
def make_progress(name: str, start_bytes: int = 0) -> Iterator[LoadProgress]:
    """Show the progress of one file, begun at start_bytes, while the block runs."""
    if not sys.stderr.isatty():
        yield _Lines(name, start_bytes)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar, bar.add_task(name, total=None, completed=start_bytes, rate=""))
