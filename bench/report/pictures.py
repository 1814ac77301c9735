"""The pictures of a metric: medians side by side, distributions of latencies, and curves over rates, users or time.

They are SVG on no ground, whose text has the colour of the page around it, so that they are legible on white and on
black. Drawing needs matplotlib (the extra `plots`); without it a report has its tables only.
"""

from __future__ import annotations

import importlib.util
import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wukongs.bench.harness import SAMPLES_MIN
from wukongs.bench.published import GEOMETRIC_MEAN, P99, Published
from wukongs.bench.report.document import Picture, number
from wukongs.bench.report.groups import USUAL, Group, Line, has, natural, published_beside, title_of, words
from wukongs.bench.report.reading import OURS, Case, convert, is_count, is_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

HOW_TO_GET = (
    "This report has no pictures, since matplotlib is not installed: `pip install 'wukongs[plots]'`, then "
    "`wukongs bench report DIR` writes it again."
)
_INK = "#010203"
"""The colour that stands for `currentColor` while matplotlib draws."""
_COLOURS = ("#2f81f7", "#d9730d", "#2da44e", "#bf4bbf", "#c93c37", "#8f7a00", "#0aa2a8", "#8a8f98")
"""Each is legible on white and on black; ours has the first."""
_MARKERS = "osD^vPX*"
_WIDTH, _PANEL_HEIGHT = 10.0, 2.7
_PANELS, _COLUMNS = 12, 3
_POINTS = 60
_LONG = re.compile(r"\b(\d+\.\d\d)\d+")
"""A coordinate with more digits than anybody sees, in points of 1/72 inch."""
_FONTS = re.compile(r"font-family: 'DejaVu Sans'[^;]*;")
"""All that matplotlib knows, at each text."""
_TIMES = ("minute", "minutes", "second", "seconds", "hour", "hours")
_STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.18,
    "lines.linewidth": 1.8,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color"), _INK
    ),
}


def can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def draw(group: Group) -> Iterator[Picture]:
    """Yield the pictures that the lines of a metric give: those of one value give none."""
    import matplotlib

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": title_of(group)}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's own fonts have it
        yield from _medians(group)
        yield from _distributions(group)
        yield from _curves(group)


# --- medians ----------------------------------------------------------------------------------------------------------


def _medians(group: Group) -> Iterator[Picture]:
    """Medians with their intervals, a row for each query, published figures hollow beside them."""
    case = group.main_case()
    lines = [line for line in group.lines if line.case == case and line.median > 0]
    if any(name in _TIMES for name, _ in case):
        return
    queries = _queries(lines)
    beside = {
        (line.query, figure.engine): (line, figure)
        for line, figure in sorted(published_beside(group), key=lambda one: one[0].case == case)
        if line.query in queries and has(case, {**USUAL, **figure.case}) and not figure.metric.endswith(P99)
    }
    if len(lines) + len(beside) < 2 or (is_count(group.unit) and len(_engines(lines)) == 1):
        return
    drawing, axes = _panels(1, _WIDTH, 0.8 + 0.42 * len(queries))
    place = {query: len(queries) - at for at, query in enumerate(queries)}
    engines = _engines(group.lines)
    for engine in _engines(lines):
        at = engines.index(engine)
        ours = [line for line in lines if line.engine == engine]
        shift = 0.5 * (len(engines) / 2 - at - 0.5) / max(len(engines), 3)
        whiskers = np.array([_whiskers(line) for line in ours]).T
        heights = [place[line.query] + shift for line in ours]
        style: dict[str, Any] = {
            "color": _colour(engines, engine),
            "marker": _MARKERS[at % len(_MARKERS)],
            "label": engine,
        }
        medians = [line.median for line in ours]
        axes[0].errorbar(medians, heights, xerr=whiskers, linestyle="", markersize=6, **style)
    _add_published(axes[0], group, [(figure, place[line.query]) for line, figure in beside.values()], is_across=True)
    axes[0].set_yticks(list(place.values()), [_short(query, 2) for query in place])
    axes[0].set_ylim(0.4, len(queries) + 0.6)
    axes[0].set_xlabel(f"{group.metric}, median with its 95 % interval, {group.unit}")
    _scale(axes[0], "x", _plotted(axes[0], 0), from_zero=False)
    yield _picture(drawing, axes, group, "medians", f"Medians{_of(case)}")


def _whiskers(line: Line) -> tuple[float, float]:
    if line.low is None or line.high is None:
        return 0.0, 0.0
    return max(0.0, line.median - line.low), max(0.0, line.high - line.median)


# --- distributions ----------------------------------------------------------------------------------------------------


def _distributions(group: Group) -> Iterator[Picture]:
    """The share of samples up to each value, a panel for each query, one line for each engine."""
    if not is_time(group.unit):
        return
    case = group.main_case()
    lines = [one for one in group.lines if one.case == case and len(one.members) == 1]
    lines = [line for line in lines if len(line.members[0].values) >= 4 * SAMPLES_MIN]
    engines = _engines(group.lines)
    for part, queries in enumerate(_parts(_queries(lines))):
        drawing, axes = _panels(len(queries))
        for panel, query in zip(axes, queries, strict=False):
            values = []
            for line in (line for line in lines if line.query == query):
                ordered = np.sort(np.asarray(line.members[0].values))
                count = len(ordered)
                places = np.unique(np.linspace(0, count - 1, min(count, _POINTS)).round().astype(int))
                at, shares = [ordered[0], *ordered[places]], [0.0, *((places + 1) / count)]
                values += [float(value) for value in at]
                style: dict[str, Any] = {"color": _colour(engines, line.engine), "label": line.engine}
                panel.plot(at, shares, drawstyle="steps-post", linestyle=_dash(engines, line.engine), **style)
            panel.set(title=_short(query, len(axes)), xlabel=f"{group.metric}, {group.unit}", ylim=(0, 1.02))
            panel.set_yticks([0, 0.25, 0.5, 0.75, 0.9, 1.0], ["0", "25 %", "50 %", "", "90 %", ""])
            _scale(panel, "x", values, from_zero=False)
        for panel in axes[::_COLUMNS]:
            panel.set_ylabel("share of samples")
        name = "distribution" if part == 0 else f"distribution-{part + 1}"
        yield _picture(drawing, axes, group, name, f"Distribution{_of(case)}")


# --- curves -----------------------------------------------------------------------------------------------------------


def _curves(group: Group) -> Iterator[Picture]:
    """Medians over each number that cases differ in, a panel for each query."""
    names = dict.fromkeys(name for case in group.cases for name, value in case if _is_number(value))
    for name in names:
        by_rest: dict[Case, list[Line]] = {}
        for line in group.lines:
            if _is_number(dict(line.case).get(name)):
                by_rest.setdefault(tuple(item for item in line.case if item[0] != name), []).append(line)
        if not by_rest:
            continue
        rest = max(by_rest, key=lambda one: sum(line.median > 0 for line in by_rest[one]))
        lines = by_rest[rest]
        if len({dict(line.case)[name] for line in lines}) < 2:
            continue
        engines = _engines(group.lines)
        for part, queries in enumerate(_parts(_queries(lines))):
            drawing, axes = _panels(len(queries))
            for panel, query in zip(axes, queries, strict=False):
                _curve(panel, len(axes), group, name, [line for line in lines if line.query == query], engines)
            told = f"over-{name}" if part == 0 else f"over-{name}-{part + 1}"
            yield _picture(drawing, axes, group, told, f"Over {name}{_of(rest)}")


def _curve(panel: Axes, panels: int, group: Group, name: str, lines: Sequence[Line], engines: Sequence[str]) -> None:
    """Add one query to one of several panels."""
    for engine in _engines(lines):
        points = sorted((float(dict(line.case)[name]), line) for line in lines if line.engine == engine)
        at = [place for place, _ in points]
        style: dict[str, Any] = {
            "color": _colour(engines, engine),
            "marker": _MARKERS[engines.index(engine) % len(_MARKERS)],
        }
        panel.plot(at, [line.median for _, line in points], markersize=5 if len(at) < 30 else 0, label=engine, **style)
        low = [line.median if line.low is None else line.low for _, line in points]
        high = [line.median if line.high is None else line.high for _, line in points]
        panel.fill_between(at, low, high, color=style["color"], alpha=0.2, linewidth=0)
    beside = [
        (figure, float(dict(line.case)[name]))
        for line, figure in published_beside(group)
        if line in lines and not figure.metric.endswith(P99)
    ]
    _add_published(panel, group, beside)
    is_clock = name in _TIMES
    panel.set(title=_short(lines[0].query, panels), xlabel=name, ylabel=f"{group.metric}, {group.unit}")
    _scale(panel, "x", _plotted(panel, 0), from_zero=is_clock, most=math.inf if is_clock else 10)
    _scale(panel, "y", _plotted(panel, 1), from_zero=True, most=100 if is_clock else 10)


# --- parts of all pictures --------------------------------------------------------------------------------------------


def _panels(count: int, width: float = _WIDTH, height: float | None = None) -> tuple[Drawing, list[Axes]]:
    from matplotlib.figure import Figure

    columns = min(count, _COLUMNS)
    rows = math.ceil(count / columns)
    size = (width, (0.3 + _PANEL_HEIGHT * rows) if height is None else height)
    drawing = Figure(figsize=size, layout="constrained")
    axes = list(drawing.subplots(rows, columns, squeeze=False).flat)
    for empty in axes[count:]:
        empty.set_visible(False)
    return drawing, axes[:count]


def _add_published(
    panel: Axes, group: Group, figures: Sequence[tuple[Published, float]], is_across: bool = False
) -> None:
    """Add published figures with their places on the other axis as hollow marks, the same ones in all panels."""
    names = sorted({figure.engine for _, figure in published_beside(group)}, key=natural)
    for name in dict.fromkeys(figure.engine for figure, _ in figures):
        values = [(convert(one.value, one.unit, group.unit), at) for one, at in figures if one.engine == name]
        known = [(value, at) for value, at in values if value is not None]
        style: dict[str, Any] = {
            "linestyle": "",
            "marker": _MARKERS[-1 - names.index(name) % len(_MARKERS)],
            "markerfacecolor": "none",
            "markeredgecolor": _INK,
            "markersize": 7,
            "label": name if "measured here" in name else f"{name}, published",
        }
        points = [[value for value, _ in known], [at for _, at in known]]
        panel.plot(*(points if is_across else reversed(points)), **style)


def _scale(axes: Axes, way: str, values: Sequence[float], from_zero: bool, most: float = 10) -> None:
    """Choose a logarithmic axis where values range over more than a factor of `most`, with plain numbers on it."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = axes.xaxis if way == "x" else axes.yaxis
    spread = max(values) / min(values) if values and min(values) > 0 else 1.0
    if spread > most:
        (axes.set_xscale if way == "x" else axes.set_yscale)("log")
        axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if spread < 100 else (1,), numticks=8))
        axis.set_minor_formatter(NullFormatter())
    elif from_zero:
        (axes.set_xlim if way == "x" else axes.set_ylim)(0, None)
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def _tick(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{number(value / size)} {letter}"
    return number(value)


def _short(text: str, panels: int = 1) -> str:
    """Return the beginning of a text that is too long for its panel, or for a legend."""
    most = 60 if panels == 1 else 84 // min(panels, _COLUMNS)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _plotted(axes: Axes, column: int) -> list[float]:
    """Return the coordinates of all lines drawn so far."""
    return [float(value) for line in axes.lines for value in np.asarray(line.get_xydata())[:, column]]


def _picture(drawing: Drawing, axes: Sequence[Axes], group: Group, name: str, title: str) -> Picture:
    """Return the drawing with one legend below all panels."""
    labels: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            labels.setdefault(label, handle)
    engines = _engines(group.lines)
    labels = dict(sorted(labels.items(), key=lambda one: engines.index(one[0]) if one[0] in engines else len(engines)))
    if len(labels) > 1 or OURS not in labels:
        names = [_short(label) for label in labels]
        columns = min(len(labels), 3, max(1, 110 // (8 + max(map(len, names)))))
        drawing.set_figheight(drawing.get_figheight() + 0.2 * (1 + math.ceil(len(labels) / columns)))
        drawing.legend(list(labels.values()), names, loc="outside lower center", ncols=columns)
    text = io.StringIO()
    drawing.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = _FONTS.sub("font-family: sans-serif;", _LONG.sub(r"\1", svg[svg.index("<svg") :])).replace(
        _INK, "currentColor"
    )
    file = re.sub(r"[^\w-]+", "-", f"{group.experiment}-{group.metric}-{name}")
    return Picture(file, f"{group.experiment}, {group.metric}. {title}", svg)


def _of(case: Case) -> str:
    return f": {words(case)}" if case else ""


def _queries(lines: Sequence[Line]) -> list[str]:
    found = sorted({line.query for line in lines}, key=natural)
    return [query for query in found if query != GEOMETRIC_MEAN] + [GEOMETRIC_MEAN] * (GEOMETRIC_MEAN in found)


def _parts(queries: Sequence[str]) -> list[Sequence[str]]:
    return [queries[at : at + _PANELS] for at in range(0, len(queries), _PANELS)]


def _engines(lines: Sequence[Line]) -> list[str]:
    return sorted({line.engine for line in lines}, key=lambda engine: (engine != OURS, natural(engine)))


def _colour(engines: Sequence[str], engine: str) -> str:
    return _COLOURS[engines.index(engine) % len(_COLOURS)]


def _dash(engines: Sequence[str], engine: str) -> str:
    """Return a style of lines; engines that share a colour have different ones."""
    at = engines.index(engine)
    return ("-", "--", "-.", ":")[(at + at // len(_COLOURS)) % 4]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
