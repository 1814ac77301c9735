"""The results of one run, in a folder from which it can go on.

`run.json` says what was run, where and on what; `results.jsonl` has one line for each figure, or for what was not
measured and why. Invariants:
* A line is written, and flushed, once its answers were checked and all its repetitions are done.
* (experiment, query, engine, case) is done when it has the line that is written last. A run that goes on does not
  measure it again; a line about a missing engine is taken out at that moment, since it may have come meanwhile.
* A folder has one run: other data, settings, commit or machine are refused.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wukongs.bench.harness import (
    P99_SAMPLES_MIN,
    SAMPLES_MIN,
    Row,
    bootstrap_medians,
    commit,
    interval,
    machine,
    markdown_table,
    versions,
)
from wukongs.errors import WukongsError

SAMPLES_MAX = 1000
MISSING = "missing: "
"""How the reason begins why an engine that is not there was not measured."""
Case = Mapping[str, Any]


class BenchError(WukongsError):
    """A benchmark cannot run as it was asked to: what, where, what next."""


def _thinned(values: Sequence[float]) -> list[float]:
    """Return at most SAMPLES_MAX of the values, evenly from first to last."""
    if len(values) <= SAMPLES_MAX:
        return [float(value) for value in values]
    at = np.linspace(0, len(values) - 1, SAMPLES_MAX).astype(np.int64)
    return [float(values[place]) for place in at.tolist()]


@dataclass(slots=True)
class Record:
    """The lines of a run, by key. folder: None keeps them in memory only."""

    folder: Path | None
    about: dict[str, Any]
    lines: dict[str, Row] = field(default_factory=dict)

    @staticmethod
    def open(folder: Path | None, benchmark: str, data: Mapping[str, Any], settings: Mapping[str, Any]) -> Record:
        """Begin a run, or go on with the one that a folder has. Raises BenchError (it has another one), OSError."""
        about = {
            "version": 1,
            "benchmark": benchmark,
            "began": _now(),
            "ended": None,
            "commit": commit(),
            "machine": machine(),
            "versions": versions(),
            "data": dict(data),
            "settings": dict(settings),
            "is_complete": False,
        }
        record = Record(folder, about)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / "run.json").exists():
                record._go_on(folder)
            (folder / "results.jsonl").touch()
            record._write_about()
        return record

    def _go_on(self, folder: Path) -> None:
        try:
            before = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            compared = {
                name: _compared(before, name) for name in ("benchmark", "commit", "data", "settings", "machine")
            }
        except (ValueError, TypeError, KeyError, AttributeError):
            raise BenchError(f"{folder / 'run.json'}: no run that can go on: give another folder") from None
        for name, found in compared.items():
            if found != _compared(self.about, name):
                raise BenchError(
                    f"{folder} has a run of another {name} ({_differences(found, _compared(self.about, name))}): "
                    "give another folder, or the same arguments"
                )
        self.about["began"] = before["began"]
        self.about["versions"] = {**before.get("versions", {}), **self.about["versions"]}  # peers that were done
        path = folder / "results.jsonl"
        for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                line = json.loads(text)
                key = _key(line)
            except (ValueError, TypeError, KeyError):
                continue  # the line that was being written when the run ended
            if not str(line.get("skipped", "")).startswith(MISSING):
                self.lines[key] = line
        self._write_lines(path)

    def forget(self, experiment: str) -> None:
        """Take out all lines of an experiment that begins anew."""
        self.lines = {key: line for key, line in self.lines.items() if line["experiment"] != experiment}
        if self.folder is not None:
            self._write_lines(self.folder / "results.jsonl")

    def _write_lines(self, path: Path) -> None:
        part = path.with_suffix(".part")
        part.write_text("".join(json.dumps(line) + "\n" for line in self.lines.values()), encoding="utf-8")
        os.replace(part, path)

    def is_done(self, experiment: str, query: str, engine: str, case: Case, last: str | None = None) -> bool:
        """Tell whether there is a line already. last: the metric that is written last, where there are several."""
        wanted = [experiment, query, engine, dict(case)]
        return any(
            [line[name] for name in ("experiment", "query", "engine", "case")] == wanted
            and (last is None or "skipped" in line or line["metric"] == last)
            for line in self.lines.values()
        )

    def median(self, experiment: str, query: str, engine: str, case: Case, metric: str) -> float | None:
        """Return the median of a figure, None if there is none yet."""
        line = {"experiment": experiment, "query": query, "engine": engine, "case": dict(case), "metric": metric}
        found = self.lines.get(_key(line))
        return None if found is None else float(found["median"])

    def why_skipped(self, experiment: str, query: str, engine: str, case: Case) -> str:
        """Return why something was not measured, empty if it was, or was not tried."""
        line = {"experiment": experiment, "query": query, "engine": engine, "case": dict(case)}
        return str(self.lines.get(_key(line), {}).get("skipped", ""))

    def measured(
        self,
        experiment: str,
        query: str,
        engine: str,
        case: Case,
        metric: str,
        values: Sequence[float],
        *,
        unit: str = "ms",
        rows: int | None = None,
        checked: str,
        busy: float = 0.0,
    ) -> None:
        """Write a figure down. checked: with which engine or figures its answers were compared; busy: the share of the
        cores that others took meanwhile."""
        assert len(values), (experiment, query, engine, metric)
        samples = _thinned(values)
        low, high = interval(bootstrap_medians(samples))
        line: Row = {"experiment": experiment, "query": query, "engine": engine, "case": dict(case), "metric": metric}
        line |= {"unit": unit, "values": [float(f"{value:.6g}") for value in samples], "count": len(values)}
        line |= {"median": float(np.median(values)), "low": low, "high": high, "p99": float(np.percentile(values, 99))}
        self._add({**line, "rows": rows, "checked": checked, "busy": round(busy, 4)})

    def skipped(self, experiment: str, query: str, engine: str, case: Case, why: str) -> None:
        """Write down why something was not measured."""
        say(f"  {query}, {engine}: not measured: {why}")
        line = {"experiment": experiment, "query": query, "engine": engine, "case": dict(case), "skipped": why}
        self._add(line)

    def finish(self, is_complete: bool) -> None:
        """Write when the run ended, and whether all of it was done."""
        self.about |= {"ended": _now(), "is_complete": is_complete}
        self._write_about()

    def _add(self, line: Row) -> None:
        self.lines[_key(line)] = line
        if self.folder is not None:
            with (self.folder / "results.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def _write_about(self) -> None:
        if self.folder is not None:
            part = self.folder / "run.part"
            part.write_text(json.dumps(self.about, indent=1) + "\n", encoding="utf-8")
            os.replace(part, self.folder / "run.json")

    def to_text(self) -> str:
        """Return a Markdown table for each experiment, and what was not measured."""
        about, hardware = self.about, self.about["machine"]
        data = ", ".join(f"{name} {value}" for name, value in about["data"].items())
        lines = [
            f"# {about['benchmark']}",
            "",
            f"{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB; "
            f"commit {about['commit'] or 'none'}; {about['began']}",
            "",
            f"Data: {data}.",
        ]
        for experiment in dict.fromkeys(line["experiment"] for line in self.lines.values()):
            of_it = [line for line in self.lines.values() if line["experiment"] == experiment]
            rows = [_shown(line) for line in of_it if "skipped" not in line]
            lines += ["", f"## {experiment}", "", *(markdown_table(rows) if rows else [])]
            skipped = [line for line in of_it if "skipped" in line]
            lines += [""] * bool(rows and skipped)
            lines += [
                f"- {line['query']}, {line['engine']}, {_words(line['case'])}: {line['skipped']}" for line in skipped
            ]
        return "\n".join(lines) + "\n"


def say(text: str) -> None:
    """Tell how far the run is, at once."""
    print(text, file=sys.stderr, flush=True)


def _shown(line: Row) -> Row:
    row = {name: line[name] for name in ("query", "engine")}
    row |= {"case": _words(line["case"]), "metric": f"{line['metric']}, {line['unit']}"}
    row |= {"median": line["median"]}
    for names, least in ((("low", "high"), SAMPLES_MIN), (("p99",), P99_SAMPLES_MIN)):
        row |= {name: line[name] if line["count"] >= least else "" for name in names}
    row |= {"count": line["count"]}
    rows = "" if line["rows"] is None else line["rows"]
    return {**row, "rows": rows, "checked with": line["checked"], "busy": f"{line['busy']:.0%}"}


def _words(case: Case) -> str:
    return ", ".join(f"{name} {value}" for name, value in case.items())


def _key(line: Row) -> str:
    return json.dumps(
        [line["experiment"], line["query"], line["engine"], line["case"], line.get("metric")], sort_keys=True
    )


def _compared(about: Mapping[str, Any], name: str) -> Any:
    """Return what must be the same in a run that goes on."""
    return settled(json.loads(json.dumps(about[name])))


def settled(value: Any) -> Any:
    """Return what is to be alike in two runs: of the machine, without its load at that moment."""
    return {name: one for name, one in value.items() if name != "load_before"} if isinstance(value, dict) else value


def _differences(there: Any, here: Any) -> str:
    if not isinstance(there, dict) or not isinstance(here, dict):
        return f"{there} there, {here} here"
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    return "; ".join(f"{name}: {there.get(name)} there, {here.get(name)} here" for name in names)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
