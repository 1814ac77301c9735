"""Folders of results, made up for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RUN: Mapping[str, Any] = {
    "version": 1,
    "benchmark": "lsbench",
    "began": "2026-11-27T10:00:00+00:00",
    "ended": "2026-11-27T11:00:00+00:00",
    "commit": "0123abc",
    "machine": {"cpu": "a processor", "cores": 2, "memory_gib": 24.0, "system": "Linux", "load_before": 0.25},
    "versions": {"python": "3.11.7", "pyoxigraph": "0.5.1"},
    "data": {"users": 1000, "stored": 209336},
    "settings": {"repeat": 5},
    "is_complete": True,
}


def measured(query: str, engine: str, values: Sequence[float], **more: Any) -> dict[str, Any]:
    """A line of results.jsonl: of the experiment latency, metric execution in ms, unless `more` says otherwise."""
    ordered = sorted(values)
    line = {"experiment": "latency", "query": query, "engine": engine, "case": {"users": 1000, "rate": 1.0}}
    line |= {"metric": "execution", "unit": "ms", "values": list(values), "count": len(values)}
    line |= {"median": (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2, "low": ordered[0]}
    line |= {"high": ordered[-1], "p99": ordered[-1], "rows": 7, "checked": "pyoxigraph", "busy": 0.01}
    return line | more


def skipped(query: str, engine: str, why: str, **more: Any) -> dict[str, Any]:
    line = {"experiment": "latency", "query": query, "engine": engine, "case": {"users": 1000, "rate": 1.0}}
    return {**line, "skipped": why, **more}


def write_folder(folder: Path, lines: Sequence[Mapping[str, Any]], tail: str = "", **run: Any) -> Path:
    """Write run.json and results.jsonl; tail: behind the last line, as a run that was killed leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({**RUN, **run}), encoding="utf-8")
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines) + tail
    (folder / "results.jsonl").write_text(text, encoding="utf-8")
    return folder
