"""Life: an engine that is told one step after the other, and that may end and come back between any two of them."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import wukongs
from tests.engine_helpers import EX, at, node, rows
from tests.inside import core_of
from wukongs.settings import Settings

SETTLE_S = 60.0
Rows = list[tuple[str, ...]]


@dataclass
class Life:
    """Each method that tells the engine something is a step, and the engine has settled after it: so the order of the
    steps is the order of the log. Before the step of number `cut`, the engine is given to `end_and_begin`, which
    returns the one that goes on."""

    engine: Any
    end_and_begin: Callable[[Any], Any] | None = None
    cut: int | None = None
    steps: int = 0
    found: dict[str, dict[int, Rows]] = field(default_factory=dict)
    """Per query: each window that was read, by its end."""
    partial: dict[str, list[int]] = field(default_factory=dict)
    """Per query: the ends of its windows that were partial."""
    _options: dict[str, dict[str, Any]] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    _streams: dict[str, Any] = field(default_factory=dict)
    _queries: dict[str, Any] = field(default_factory=dict)

    # --- steps --------------------------------------------------------------------------------------------------------

    def stream(self, iri: str, **options: Any) -> None:
        self._begin_step()
        self._options[iri] = {"batch_ms": 100, "timing": True, **options}
        self._streams[iri] = self.engine.stream(iri, **self._options[iri])
        self._settle()

    def push(self, iri: str, *tuples: tuple[str, int]) -> None:
        """Push tuples with these subjects, at these times."""
        self._begin_step()
        self._streams[iri].push([at(name, t) for name, t in tuples])
        self._settle()

    def advance(self, iri: str, t: int) -> None:
        self._begin_step()
        self._streams[iri].advance(t)
        self._settle()

    def end(self, iri: str) -> None:
        self._begin_step()
        self._streams[iri].close()
        self._settle()

    def load(self, name: str) -> None:
        """Load one triple with this subject."""
        self._begin_step()
        line = f"{node(name)} {node('p')} {node('o')} .\n"
        self.engine.load(io.BytesIO(line.encode()), format="nt")
        self._settle()

    def update(self, text: str) -> None:
        self._begin_step()
        self.engine.update(f"PREFIX : <{EX}> {text}")
        self._settle()

    def register(self, name: str, text: str) -> None:
        self._begin_step()
        self._texts[name] = text
        self._queries[name] = self.engine.register(text)
        self.found[name], self.partial[name] = {}, []
        self._settle()

    def pause(self, name: str) -> None:
        self._begin_step()
        self._queries[name].pause()
        self._settle()

    def resume(self, name: str) -> None:
        self._begin_step()
        self._queries[name].resume()
        self._settle()

    def close(self, name: str) -> None:
        self._begin_step()
        self._queries.pop(name).close()
        del self._texts[name]
        self._settle()

    # --- looks --------------------------------------------------------------------------------------------------------

    def windows(self, name: str) -> dict[int, list[str]]:
        """Return the first column of all windows of a query so far, by their ends: an engine that has settled has
        reported all that are due. Each comes once in each life of the engine, in order, and with the same rows in all
        of them."""
        last = None
        for window in self._queries[name].results(timeout_s=0):
            assert last is None or window.end_ms > last, f"{name}: window {window.end_ms} came after {last}"
            last = window.end_ms
            is_new = last not in self.found[name]
            found = rows(window)
            assert is_new or self.cut is not None, f"{name}: window {last} came twice"
            assert self.found[name].setdefault(last, found) == found, f"{name}: window {last} came again, otherwise"
            if window.partial and is_new:
                self.partial[name].append(last)
        return {t: [row[0] for row in found] for t, found in sorted(self.found[name].items())}

    def why(self, name: str) -> str:
        """The first line of why(): tells for what a query waits."""
        return str(self._queries[name].why()).split("\n", 1)[0]

    def subjects(self) -> list[str]:
        """Return the subjects in the stored default graph."""
        return [row[0] for row in rows(self.engine.query("SELECT ?s { ?s ?p ?o }"))]

    # --- its ends -----------------------------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        if self.steps == self.cut and self.end_and_begin is not None:
            self.engine = self.end_and_begin(self.engine)
            self._streams = {iri: self.engine.stream(iri, **options) for iri, options in self._options.items()}
            self._queries = {name: self.engine.register(text) for name, text in self._texts.items()}
            self._settle()
        self.steps += 1

    def _settle(self) -> None:
        self.engine.settle(timeout_s=SETTLE_S)


def close_and_open(folder: Path, settings: Settings | None = None) -> Callable[[Any], Any]:
    """Return a way to end the durable engine of a folder and to open it again."""

    def again(engine: wukongs.Engine) -> wukongs.Engine:
        engine.close()
        return wukongs.Engine(folder, settings=settings)

    return again


def crash_and_open(folder: Path, copy: Path, settings: Settings | None = None) -> Callable[[Any], Any]:
    """Return a way to go on with a copy of a folder, made while its engine ran: what a crash leaves behind."""

    def again(engine: wukongs.Engine) -> wukongs.Engine:
        with core_of(engine).journal._turn:  # no checkpoint meanwhile: a copy takes time, a crash does not
            shutil.copytree(folder, copy)
        engine.close()
        return wukongs.Engine(copy, settings=settings)

    return again
