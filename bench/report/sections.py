"""The parts of a report: the run, a table for each metric, the aims, and all that was not measured or not checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from wukongs.bench.idle import IDLE_SHARE
from wukongs.bench.published import AIMS, COVERS, EXPERIMENTS, P99, PUBLISHED, Aim, Published, Source
from wukongs.bench.report.document import LOUD, Document, bounds, number, percent
from wukongs.bench.report.groups import (
    USUAL,
    Group,
    Line,
    case_key,
    has,
    natural,
    published_beside,
    size_of,
    words,
)
from wukongs.bench.report.reading import (
    OURS,
    Bounded,
    Figure,
    Results,
    convert,
    is_rate,
    is_time,
    ratio_of,
)

_SLOWED = "streams on above off"
_CASES_SHOWN = 12


def warn(document: Document, results: Results) -> None:
    """Say first what must not be overlooked."""
    about, figures = results.about, list(results.figures.values())
    if not results.is_complete:
        ended = f"it ended {about['ended']}" if about.get("ended") else "it has not ended, or was killed"
        document.say(
            f"{LOUD}PARTIAL: this run did not do all that it was to do; {ended}. What is missing was not measured."
        )
    if (about.get("settings") or {}).get("is_quick"):
        document.say(
            f"{LOUD}QUICK: tiny sizes, which only show that everything runs. No figure here says how fast it is."
        )
    if not figures:
        document.say(f"{LOUD}Nothing was measured.")
    busy = [figure for figure in figures if (figure.busy or 0.0) > IDLE_SHARE]
    if busy:
        most = percent(max(figure.busy or 0.0 for figure in busy))
        document.say(
            f"{LOUD}BUSY MACHINE: others took more than {percent(IDLE_SHARE)} of the cores, up to {most}, while "
            f"{len(busy)} of {len(figures)} figures were measured. They are marked. Do not rely on their times."
        )
    open_figures = sum(_is_unchecked(figure) for figure in figures)
    if open_figures:
        document.say(
            f"{LOUD}NOT CHECKED: the answers behind {open_figures} of {len(figures)} figures. They are marked."
        )
    if str(about.get("commit") or "").endswith("+"):
        document.say(f"{LOUD}The files of the checkout differed from its commit.")
    document.say(*(f"{LOUD}{note}." for note in results.notes))


def describe(document: Document, results: Results) -> None:
    """Machine, load, commit, versions, data and settings."""
    about = results.about
    document.heading("The run")
    machine = {**(about.get("machine") or {})}
    load = machine.pop("load_before", None)
    shares = [figure.busy for figure in results.figures.values() if figure.busy is not None]
    ended = about.get("ended") or "not yet, or the run was killed"
    rows = [("benchmark", about.get("benchmark")), ("began", about.get("began")), ("ended", ended)]
    rows += [("commit", about.get("commit"))]
    rows += [("machine", ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine.items()))]
    rows += [("load before", load)]
    if shares:
        rows += [
            ("cores that others took", f"median {percent(float(np.median(shares)))}, at most {percent(max(shares))}")
        ]
    for part in ("versions", "data", "settings"):
        rows += [(part, ", ".join(f"{name} {_value(value)}" for name, value in (about.get(part) or {}).items()))]
    document.table(
        ("", "of this run"), [(name, "not known" if value in (None, "") else str(value)) for name, value in rows]
    )


def _value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def tabulate(document: Document, group: Group, sources: dict[Source, int]) -> None:
    """The tables of a metric: ours, the peers and the published figures, one table for each case. Very many cases, and
    figures of ours alone, have one table with a row for each case. sources: gets a number for each one named."""
    document.heading(group.unit if group.metric == group.unit else f"{group.metric}, {group.unit}", 3)
    if covers := COVERS.get(group.experiment, {}).get(group.metric):
        document.say(f"{covers[0].upper()}{covers[1:]}.")
    beside = published_beside(group)
    cases = group.cases
    if len(cases) > _CASES_SHOWN or (len(cases) > 1 and all(line.engine == OURS for line in group.lines)):
        _tabulate_cases(document, group)
        cases = sorted({line.case for line, _ in beside}, key=case_key)
    if cases and (beside or any(line.engine != OURS for line in group.lines)):
        better = "Above 1 is better for wukongs." if is_rate(group.unit) else "Below 1 is better for wukongs."
        document.say(f"The ratio is wukongs ÷ that engine, with its 95 % interval. {better}")
    for names in dict.fromkeys(tuple(one.query for one in line.members) for line in group.lines if _is_mean(line)):
        document.say(f"The geometric mean is that of {', '.join(names)}.")
    if beside:
        document.say(
            "A number in brackets marks a published figure, of another machine and other data: see the sources."
        )
    for case in cases:
        if case:
            document.say(f"Case: {words(case)}.")
        rows: list[tuple[str, ...]] = []
        told = None
        for line in (line for line in group.lines if line.case == case):
            ours = group.of(line.query, case)
            ratio = ratio_of(list(zip(ours.members, line.members, strict=True))) if ours and ours is not line else None
            name = line.query if line.query != told else ""
            told = line.query
            rows.append((name, line.engine, *_measured_cells(line), *_ratio_cells(ratio), _remark(line)))
            for figure in (figure for other, figure in beside if other is line):
                at = sources.setdefault(figure.source, len(sources) + 1)
                rows.append(("", f"{figure.engine} ({at})", *_published_cells(line, figure, group.unit), ""))
        names = (
            "query",
            "engine",
            "median",
            "95 % interval",
            "p99",
            "samples",
            "rows",
            "ratio",
            "its interval",
            "remark",
        )
        document.table(names, rows)


def _is_mean(line: Line) -> bool:
    return len(line.members) > 1


def _tabulate_cases(document: Document, group: Group) -> None:
    """A row for each case, a column for each query and engine; of very many cases some, evenly from first to last."""
    queries = list(dict.fromkeys((line.query, line.engine) for line in group.lines))
    cases = group.cases
    if len(cases) > _CASES_SHOWN:
        shown = np.linspace(0, len(cases) - 1, _CASES_SHOWN).round().astype(int)
        document.say(f"{_CASES_SHOWN} of {len(cases)} cases; results.jsonl has all.")
        cases = [cases[place] for place in shown]
    is_ours = all(engine == OURS for _, engine in queries)
    document.say(f"Medians{' of wukongs' if is_ours else ''}, in brackets their 95 % intervals.")
    rows = []
    for case in cases:
        found = [group.of(query, case, engine) for query, engine in queries]
        cells = ["" if line is None else _bracketed(line.median, line.low, line.high) for line in found]
        busy = max(line.busy for line in found if line is not None)
        open_cells = any(_is_unchecked(member) for line in found if line is not None for member in line.members)
        rows.append((words(case), *cells, _remark_of(busy, open_cells)))
    document.table(("case", *(query if is_ours else f"{query}, {engine}" for query, engine in queries), "remark"), rows)


def _bracketed(value: float, low: float | None, high: float | None) -> str:
    told = bounds(low, high)
    return f"{number(value)} ({told})" if told else number(value)


def _measured_cells(line: Line) -> tuple[str, ...]:
    one = line.members[0] if len(line.members) == 1 else None
    count, rows = ("", "") if one is None else (f"{one.count:,}", "" if one.rows is None else f"{one.rows:,}")
    return number(line.median), bounds(line.low, line.high), number(line.p99), count, rows


def _published_cells(line: Line, figure: Published, unit: str) -> tuple[str, ...]:
    value = convert(figure.value, figure.unit, unit)
    if value is None:
        return f"{number(figure.value)} {figure.unit}", "", "", "", "", "", ""
    is_p99 = figure.metric.endswith(P99)
    ours = line.p99 if is_p99 else line.median
    low, high = (
        (None, None) if is_p99 or line.low is None or line.high is None else (line.low / value, line.high / value)
    )
    ratio = None if ours is None else Bounded(ours / value, low, high)
    told = ("", "", number(value)) if is_p99 else (number(value), "", "")
    return *told, "", "", *_ratio_cells(ratio)


def _ratio_cells(ratio: Bounded | None) -> tuple[str, str]:
    return ("", "") if ratio is None else (number(ratio.value), bounds(ratio.low, ratio.high))


def _remark(line: Line) -> str:
    return _remark_of(line.busy, any(map(_is_unchecked, line.members)))


def _remark_of(busy: float, is_unchecked: bool) -> str:
    told = [f"busy {percent(busy)}"] if busy > IDLE_SHARE else []
    told += ["not checked"] if is_unchecked else []
    return LOUD + ", ".join(told) if told else ""


def _is_unchecked(figure: Figure) -> bool:
    return figure.checked is None and (is_time(figure.unit) or is_rate(figure.unit))


def name_sources(document: Document, sources: Mapping[Source, int]) -> None:
    """The published figures' papers, hardware and definitions, by their numbers."""
    if sources:
        document.heading("Where published figures come from")
        document.say("Other machines, networks and data: these ratios tell the order of magnitude, no more.")
        rows = [(str(at), one.place, one.hardware, one.data, one.definition) for one, at in sources.items()]
        document.table(("", "source", "hardware", "data", "what it covers"), rows)


def list_unmeasured(document: Document, results: Results, groups: Sequence[Group]) -> None:
    """All that was left out, with the reason, and all that has none."""
    document.heading("Not measured")
    told: dict[tuple[str, str, str, str], list[str]] = {}
    for one in sorted(results.skipped.values(), key=lambda one: (one.experiment, one.engine, natural(one.query))):
        told.setdefault((one.experiment, one.engine, words(one.case), one.why), []).append(one.query)
    for experiment, query, engine, case in _gaps(results, groups):
        told.setdefault((experiment, engine, case, f"{LOUD}no figure, and no reason given"), []).append(query)
    rows = [
        (experiment, engine, ", ".join(names), case, why) for (experiment, engine, case, why), names in told.items()
    ]
    document.table(("experiment", "engine", "queries", "case", "why"), rows)
    done = {group.experiment for group in groups} | {one.experiment for one in results.skipped.values()}
    missing = [f"{name} ({about})" for name, about in EXPERIMENTS.items() if name not in done]
    if missing:
        document.say(f"Experiments of the papers that are not in this run: {', '.join(missing)}.")
    beside = {id(figure) for group in groups for _, figure in published_beside(group)}
    alone = [one for one in PUBLISHED if one.experiment in done and id(one) not in beside]
    if alone:
        by_engine: dict[tuple[str, str], list[str]] = {}
        for figure in alone:
            by_engine.setdefault((figure.experiment, figure.engine), []).append(figure.query)
        named = [
            (f"{experiment}: {engine}", ", ".join(dict.fromkeys(queries)))
            for (experiment, engine), queries in by_engine.items()
        ]
        document.say("Published figures of these experiments without one of ours in the same case:")
        document.table(("published", "queries"), named)
    if not (rows or missing or alone):
        document.say("Nothing was left out.")


def _gaps(results: Results, groups: Sequence[Group]) -> Iterator[tuple[str, str, str, str]]:
    """Yield (experiment, query, engine, case) where an engine lacks a figure of a metric that it has figures of, and
    another engine has it; nothing where the reason is given."""
    told = {(one.experiment, one.query, one.engine, one.case) for one in results.skipped.values()}
    for group in groups:
        lines = [line for line in group.lines if len(line.members) == 1]
        places = dict.fromkeys((line.query, line.case) for line in lines)
        for engine in dict.fromkeys(line.engine for line in lines):
            for query, case in places:
                place = (group.experiment, query, engine, case)
                if place not in told and group.of(query, case, engine) is None:
                    told.add(place)
                    yield group.experiment, query, engine, words(case)


def list_checks(document: Document, results: Results) -> None:
    """With what the answers were compared."""
    by_check: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    for figure in results.figures.values():
        if figure.checked is not None or _is_unchecked(figure):
            by = figure.checked or f"{LOUD}nothing"
            by_check.setdefault((figure.experiment, by), {})[figure.query, figure.engine] = None
    rows = []
    for (experiment, by), found in by_check.items():
        engines: dict[str, list[str]] = {}
        for query, engine in sorted(found, key=lambda one: natural(one[0])):
            engines.setdefault(engine, []).append(query)
        rows += [(experiment, engine, ", ".join(queries), by) for engine, queries in engines.items()]
    if rows:
        document.heading("Which answers were checked, and with what")
        document.table(("experiment", "engine", "queries", "compared with"), rows)


def list_aims(document: Document, results: Results, groups: Sequence[Group]) -> None:
    """The figures to reach, beside those reached."""
    document.heading("Aims and what was reached")
    document.say(
        "The aims are of two cores and 24 GiB, idle. A figure stands here if this run has it: at the usual rates, with "
        "the most data it was measured with. A verdict is open where the 95 % interval holds the aim. There is none if "
        "the run had less data than the aim speaks of."
    )
    rows, missing = [], []
    for aim in AIMS:
        wanted = f"{aim.way} {number(aim.value)} {aim.unit}"
        found = _reached(aim, groups, results.about.get("data") or {})
        if found is None:
            missing.append((aim.what, aim.others, wanted))
        else:
            rows.append((aim.what, aim.others, wanted, *found))
    document.table(("what", "others", "aim", "reached", "case", "verdict"), rows)
    if missing:
        document.say("Aims that this run has no figure for:")
    document.table(("what", "others", "aim"), missing)


def _reached(aim: Aim, groups: Sequence[Group], data: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return what was reached, in which case, and a verdict; None if that was not measured."""
    case = {**USUAL, **aim.case, **({"streams": "on"} if aim.statistic == _SLOWED else {})}
    found = [
        (line, group)
        for group in groups
        if (group.experiment, group.metric) == (aim.experiment, aim.metric)
        for line in group.lines
        if (line.engine, line.query) == (OURS, aim.query) and has(line.case, case)
    ]
    if not found:
        return None
    line, group = max(found, key=lambda one: size_of(one[0].case))
    bounded = _slowed(line, group) if aim.statistic == _SLOWED else _in_unit(line, group.unit, aim)
    if bounded is None:
        return None
    verdict = _verdict(aim, bounded, data)
    if line.busy > IDLE_SHARE:
        verdict += f", busy {percent(line.busy)}"
    return f"{_bracketed(bounded.value, bounded.low, bounded.high)} {aim.unit}", words(line.case), verdict


def _verdict(aim: Aim, bounded: Bounded, data: Mapping[str, Any]) -> str:
    for name, least in aim.needs.items():
        found = data.get(name)
        if not isinstance(found, int | float) or found < least:
            told = f"{name} {number(found)}" if isinstance(found, int | float) else f"{name} not known"
            return f"not judged: {told}"
    verdicts = {_is_met(aim, one) for one in (bounded.value, bounded.low, bounded.high) if one is not None}
    return "open" if len(verdicts) == 2 else "reached" if verdicts == {True} else f"{LOUD}missed"


def _in_unit(line: Line, unit: str, aim: Aim) -> Bounded | None:
    """Return the aim's statistic in its unit, with its interval."""
    scale = convert(1.0, unit, aim.unit)
    value, low, high = (line.p99, None, None) if aim.statistic == "p99" else (line.median, line.low, line.high)
    if value is None or scale is None:
        return None
    return Bounded(value * scale, *(None if one is None else one * scale for one in (low, high)))


def _slowed(on: Line, group: Group) -> Bounded | None:
    """Return by how many percent a line is above the same one without streams, with its interval."""
    off = group.of(on.query, tuple((name, "off" if name == "streams" else value) for name, value in on.case))
    ratio = None if off is None else ratio_of(list(zip(on.members, off.members, strict=True)))
    if ratio is None:
        return None
    low, high = (None if one is None else 100 * (one - 1) for one in (ratio.low, ratio.high))
    return Bounded(100 * (ratio.value - 1), low, high)


def _is_met(aim: Aim, value: float) -> bool:
    return value <= aim.value if aim.way == "at most" else value >= aim.value
