"""The store under measurement: one module per question, each with a table, checks, JSON and a plot.

A question is a module of this package with `measure(found, quick)`, which checks and fills a Report, and `plot(found,
path)`, which draws the tables that measure left.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

from wukongs.bench import store
from wukongs.bench.harness import Report, WrongAnswer

_NO_QUESTION = {"run"}


def questions() -> list[str]:
    """Return the names of all questions."""
    names = [module.name for module in pkgutil.iter_modules(store.__path__)]
    return [name for name in names if name not in _NO_QUESTION and not name.endswith("_kernels")]


def main(report: Path | None = None, quick: bool = False, wanted: Sequence[str] = ()) -> int:
    """Measure the questions asked for (default: all); with a folder, write JSON, Markdown and plots. Returns the exit
    status."""
    for name in wanted or questions():
        module = importlib.import_module(f"wukongs.bench.store.{name}")
        found = Report(f"store-{name}", {"question": (module.__doc__ or name).strip().splitlines()[0]})
        try:
            module.measure(found, quick)
        except WrongAnswer as error:
            print(f"wukongs: {error}", file=sys.stderr)
            return 1
        found.publish(report)
        if report is not None:
            module.plot(found, report / f"{found.name}.png")
    return 0
