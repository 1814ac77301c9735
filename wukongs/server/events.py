"""Events: the windows and reports of registered queries as subscribers get them, and their JSON."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


class KeptEvents(Generic[Id]):
    """The newest events of a feed, within its bounds."""

    def __init__(self, bounds: FeedBounds) -> None:
        self.events: deque[Event[Id]] = deque()
        self.first = 0
        """The number of the oldest one that is kept, counted from the feed's first event."""
        self._bytes, self._bounds = 0, bounds

    def add(self, event: Event[Id]) -> Id | None:
        """Keep an event; forget the oldest ones that are too many then. Return the id of the last of these."""
        self.events.append(event)
        self._bytes += event.size_bytes
        lost_to, bounds = None, self._bounds
        while len(self.events) > 1 and (len(self.events) > bounds.windows_max or self._bytes > bounds.bytes_max):
            dropped = self.events.popleft()
            self.first += 1
            self._bytes -= dropped.size_bytes
            lost_to = dropped.id
        return lost_to


class Subscribers:
    """The subscribers of a feed. Used from the event loop alone."""

    def __init__(self) -> None:
        self.count = 0
        self.left_s = time.monotonic()
        """When the last one left."""
        self.check_count = 0
        """How often they had to look whether they may still read."""
        self.changed = asyncio.get_running_loop().create_future()
        """Done at the next `wake`."""

    def wake(self) -> None:
        """Wake all of them. They share a future: nothing is made for each."""
        self.changed.set_result(None)
        self.changed = self.changed.get_loop().create_future()

    def check(self) -> None:
        """Have all of them look whether they may still read."""
        self.check_count += 1
        self.wake()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count one subscriber more during the block."""
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1
            self.left_s = time.monotonic()

    @property
    def are_expected(self) -> bool:
        """Whether there are some, or were a while ago."""
        return self.count > 0 or time.monotonic() < self.left_s + IDLE_S


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
