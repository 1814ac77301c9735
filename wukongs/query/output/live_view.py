"""A registered query in a notebook: a table of its newest window, or of the content of a live view, and a line chart of
one of its columns."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from html import escape
from typing import Any, Protocol

from wukongs.errors import SettingsError, StreamError
from wukongs.query.output.results import Result, WindowResult
from wukongs.query.output.view_report import ViewReport
from wukongs.query.terms.values import to_float64, value_of

BETWEEN_S = 0.2
"""So long one display stays at least: windows that come faster are in the chart."""
WIDTH, HEIGHT, MARGIN = 640, 160, 8


class Windows(Protocol):
    """A registered query, or a live view, of an engine of this process or of another one. A view has `content()`."""

    name: str

    def aresults(
        self, timeout_s: float | None = None, *, group: str | None = None
    ) -> AsyncIterator[WindowResult | ViewReport]: ...


async def live_view(
    query: Windows,
    chart: str | None = None,
    *,
    windows: int = 200,
    timeout_s: float | None = None,
    group: str | None = None,
) -> int:
    """Show the newest window of a registered query in a notebook, until the query is closed, timeout_s seconds pass
    without a window, or the task is cancelled; return how many windows came. chart: a variable, whose number in the
    first row of each window is drawn, for so many windows back. group: as in results(); without one, it reads the
    windows in the place of results(). Of a live view the content is shown as it was after the newest report.

    Raises SettingsError (no IPython, a variable that the windows do not have), and what the query's windows raise."""
    try:
        from IPython.display import HTML, display
    except ImportError:
        raise SettingsError(
            'live_view shows windows by IPython, which is not installed: pip install "wukongs[notebook]"'
        ) from None
    if isinstance(windows, bool) or not isinstance(windows, int) or windows < 1:
        raise SettingsError(f"windows = {windows!r}: expected how many windows the chart goes back, at least 1")
    points: deque[tuple[int, float | None]] = deque(maxlen=windows)
    handle: Any = display(HTML(f"<div>{escape(query.name)}: no window yet</div>"), display_id=True)
    loop, count, shown_s = asyncio.get_running_loop(), 0, -math.inf
    newest: Result | None = None
    timer: asyncio.TimerHandle | None = None
    is_behind = False
    """Reports of a live view have arrived since its content was read."""
    refreshing: asyncio.Future[None] | None = None

    def show() -> None:
        nonlocal shown_s, timer
        shown_s, timer = time.monotonic(), None
        if newest is not None and handle is not None:
            drawn = "" if chart is None else line_chart(points, chart)
            handle.update(HTML(newest._repr_html_() + drawn))

    async def refresh() -> None:
        nonlocal newest, is_behind
        while is_behind:
            await asyncio.sleep(max(0.0, shown_s + BETWEEN_S - time.monotonic()))
            is_behind = False
            with suppress(StreamError):  # the view is closed, or paused
                newest = await asyncio.to_thread(query.content)  # type: ignore[attr-defined]
            if chart is not None and newest is not None:
                points.append((round(1000 * time.time()), _number(newest, chart, query.name)))
            show()

    try:
        async for window in query.aresults(timeout_s, group=group):
            count += 1
            if isinstance(window, ViewReport):
                is_behind = True
                if refreshing is None or refreshing.done():
                    if refreshing is not None:
                        refreshing.result()  # its error
                    refreshing = asyncio.ensure_future(refresh())
                continue
            newest = window
            if chart is not None:
                points.append((window.end_ms, _number(window, chart, query.name)))
            if timer is None:
                timer = loop.call_later(max(0.0, shown_s + BETWEEN_S - time.monotonic()), show)
        if refreshing is not None:
            await refreshing
    finally:
        if refreshing is not None:
            refreshing.cancel()
        if timer is not None:
            timer.cancel()
            show()
    return count


def _number(window: Result, name: str, query: str) -> float | None:
    """Return the number of a variable in the first row, None where there is none. Raises SettingsError."""
    if name.lstrip("?$") not in window.vars:
        known = ", ".join(window.vars) or "none"
        raise SettingsError(f"chart = {name!r}: expected a variable of query {query}, which has: {known}")
    text = window.head(1)[window.vars.index(name.lstrip("?$"))] if len(window) else []
    value = value_of(text[0]) if text and text[0] is not None else None
    if value is None or not value.is_numeric:
        return None
    number = to_float64(value.number)
    return number if math.isfinite(number) else None


def line_chart(points: Sequence[tuple[int, float | None]], name: str) -> str:
    """Return numbers over times as an SVG: a line that has gaps where there is no number."""
    numbers = [number for _, number in points if number is not None]
    if not numbers:
        return f"<div>{escape(name)}: no numbers yet</div>"
    low, high, first, last = min(numbers), max(numbers), points[0][0], points[-1][0]
    width, height = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def part(value: float, low: float, high: float) -> float:
        return 0.5 if high == low else value / (high - low) - low / (high - low)

    steps, is_on = list[str](), False
    for time_ms, number in points:
        if number is not None:
            x = MARGIN + width * part(time_ms, first, last)
            y = MARGIN + height * (1 - part(number, low, high))
            steps.append(f"{'L' if is_on else 'M'}{x:.1f} {y:.1f}")
        is_on = number is not None
    last_x, _, last_y = steps[-1][1:].partition(" ")
    told = f"{escape(name)}: {numbers[-1]:g}, from {low:g} to {high:g} in the last {len(points)} windows"
    return (
        f'<div>{told}</div><svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">'
        f'<path d="{"".join(steps)}" fill="none" stroke="steelblue" stroke-width="2"/>'
        f'<circle cx="{last_x}" cy="{last_y}" r="3" fill="steelblue"/></svg>'
    )
