"""Events: the windows and reports of registered queries as subscribers get them, and their JSON."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from wukongs.query.output.report_text import report_json
from wukongs.query.output.results import Result, WindowResult
from wukongs.query.output.row_formats import json_term
from wukongs.query.output.serialize import serialize
from wukongs.query.output.view_report import ViewReport
from wukongs.query.terms.rdf_terms import to_ntriples

FETCHED_MAX = 64
"""Windows or reports that a feed reads at a time."""
FORMS_MAX = 3
"""Forms of an event that are kept beside its JSON: as a message of a WebSocket, as Arrow, its first rows."""
IDLE_S = 300.0
"""Time without a subscriber after which a feed ends that reads for its subscribers alone."""
_DATA = b"\ndata: "
_SENT = b"id: %b\nevent: %b\ndata: %b\n\n"
Row = tuple[str | None, ...]
Id = TypeVar("Id")


@dataclass(frozen=True, slots=True)
class FeedBounds:
    """Bounds of the windows or reports that are kept of each query; the last one is kept in any case."""

    windows_max: int = 1024
    bytes_max: int = 16 << 20


Kind = Literal["window", "gap", "error", "changes", "change", "reset", "progress"]


@dataclass(frozen=True, slots=True, eq=False)
class Event(Generic[Id]):
    """A window, windows that were lost, the report of a live view, or an error in the place of one.

    id: where a reader who has it goes on. Of windows: the end of the last firing that it stands for, in milliseconds.
    sent: it as a server-sent event, with its JSON on one line.
    result: the window or report; None: it is neither.
    changes: the rows inserted and deleted since the window before; None: not known."""

    kind: Kind
    id: Id
    sent: bytes
    result: WindowResult | ViewReport | None = None
    changes: Event[Id] | None = None
    _made: dict[object, asyncio.Future[Any]] = field(default_factory=dict)

    async def made(self, form: object, make: Callable[[], Any]) -> Any:
        """Return what make() returns. It is called in a thread, once for each of the first FORMS_MAX forms: subscribers
        share those."""
        if form not in self._made:
            if len(self._made) >= FORMS_MAX:
                return await asyncio.to_thread(make)
            self._made[form] = asyncio.ensure_future(asyncio.to_thread(make))
        return await asyncio.shield(self._made[form])

    @staticmethod
    def of(
        kind: Kind,
        id: Id,
        text: str,
        result: WindowResult | ViewReport | None = None,
        changes: Event[Id] | None = None,
    ) -> Event[Id]:
        """text: JSON on one line."""
        return Event(kind, id, _SENT % (str(id).encode(), kind.encode(), text.encode()), result, changes)

    def first_rows(self, rows_max: int) -> Event[Id]:
        """Return it with the first rows only."""
        result = self.result
        assert result is not None
        text = report_json(result, rows_max) if isinstance(result, ViewReport) else window_json(result, rows_max)
        return Event.of(self.kind, self.id, text)

    @property
    def json_id(self) -> str:
        """Its id as JSON: that of a window is a number."""
        return json.dumps(self.id if isinstance(self.id, int) else str(self.id))

    @property
    def text(self) -> bytes:
        """Its JSON."""
        return self.sent[self.sent.index(_DATA) + len(_DATA) : -2]

    @property
    def size_bytes(self) -> int:
        changes = 0 if self.changes is None else len(self.changes.sent)
        return len(self.sent) + changes + (0 if self.result is None else self.result.size_bytes)


def window_json(window: WindowResult, rows_max: int | None = None) -> str:
    """Return a window as JSON on one line: its facts, and its rows as SPARQL JSON results have them. rows_max: of more
    rows the first ones, and how many there are."""
    told = _facts(window)
    rows: Result = window
    if rows_max is not None and len(window) > rows_max:
        told["row_count"] = len(window)
        first, names = tuple(window.ids(0, rows_max)), tuple(window.vars)
        rows = Result(window.kind, names, first, window.reader, window.snapshot, length=rows_max)
    facts = json.dumps(told)
    if window.is_graph:
        triples = json.dumps([[to_ntriples(term) for term in triple] for triple in rows.triples()])
        return f'{facts[:-1]}, "triples": {triples}}}'
    return f"{facts[:-1]}, {serialize(rows, 'json').replace(chr(10), '').removeprefix('{')}"


def changes_json(window: WindowResult, added: Counter[Row], removed: Counter[Row]) -> str:
    """Return the facts of a window as JSON on one line, with the rows that have come and gone since the one before."""
    rows = {"added": _bindings(window, added), "removed": _bindings(window, removed)}
    return json.dumps({**_facts(window), **rows})


def _facts(window: WindowResult) -> dict[str, Any]:
    return {
        "query": window.query,
        "start_ms": window.start_ms,
        "end_ms": window.end_ms,
        "windows": window.windows,
        "partial": window.partial,
        "snapshot": window.snapshot,
        "latency_us": round(window.latency_us),
    }


def _bindings(result: Result, rows: Counter[Row]) -> list[Any]:
    if result.is_graph:
        return [[to_ntriples(str(term)) for term in row] for row in rows.elements()]
    return [
        {name: json.loads(json_term(term)) for name, term in zip(result.vars, row, strict=True) if term is not None}
        for row in rows.elements()
    ]
