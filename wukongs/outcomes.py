"""Outcomes: the results of the changes that clients have asked for, so that one which is asked for again is not done
again (docs/decisions/0070-outcomes-and-repeats.md).

A client numbers what it asks for. The number goes into the log with the change, and its outcome is kept until the
client needs it no more. The table depends on the log alone: whoever reads the same log has the same table.

* A number that has an outcome, or that its client did not need any more, is never done again.
* CLIENTS_MAX clients are remembered: those whose changes came last. Of each, at most as many numbers as it has under
  way at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple, TypeAlias

from msgspec import Meta

CLIENTS_MAX = 1024
NEEDED_MAX = 1024
"""Numbers that one client may have under way."""
_Int64: TypeAlias = Annotated[int, Meta(ge=1 - (1 << 63), le=(1 << 63) - 1)]
Found: TypeAlias = Mapping[str, int]
"""An outcome: of a change of the stored graph, its SN under ""; of a push, by stream how many tuples were taken."""


class Asked(NamedTuple):
    """One change of a client. needed: the numbers that the client had under way when it asked, this one among them."""

    client: str
    number: int
    needed: tuple[int, ...]

    @staticmethod
    def of(client: str, number: int, needed: tuple[int, ...] = ()) -> Asked:
        """needed: () for a client that has one change under way at a time."""
        return Asked(client, number, needed or (number,))

    @staticmethod
    def of_json(found: Any) -> Asked | None:
        """Return what a log has of it."""
        return None if found is None else Asked(found[0], found[1], tuple(found[2]))


@dataclass(frozen=True, slots=True)
class OfClient:
    """needed: the numbers under way when it last asked; last: where its last change stands in the log."""

    needed: tuple[_Int64, ...] = ()
    last: _Int64 = 0
    found: Mapping[_Int64, Mapping[str, _Int64]] = field(default_factory=dict)

    def needs(self, number: int) -> bool:
        return number in self.needed or number > max(self.needed, default=0)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """All that is remembered, by client. A value: `noted` gives another one."""

    clients: Mapping[str, OfClient] = field(default_factory=dict)

    def of(self, asked: Asked | None) -> Found | None:
        """Return what is known of a change, None if it was not done."""
        client = None if asked is None else self.clients.get(asked.client)
        return None if client is None or asked is None else client.found.get(asked.number)

    def is_over(self, asked: Asked) -> bool:
        """Whether a change was done already, or its client has given it up: then it must not be done any more. Numbers
        begin with 1."""
        client = self.clients.get(asked.client)
        return asked.number < 1 or (
            client is not None and (asked.number in client.found or not client.needs(asked.number))
        )

    def noted(self, asked: Asked, found: Found, at: int) -> Outcomes:
        """Return the table with one more outcome, or with more of one. at: its place in the log."""
        client = self.clients.get(asked.client, OfClient())
        before, now = (max(needed, default=0) for needed in (client.needed, asked.needed))
        needed = asked.needed if now > before else client.needed
        if now == before:
            needed = tuple(number for number in client.needed if number in asked.needed)
        known = {**client.found, asked.number: {**client.found.get(asked.number, {}), **found}}
        client = replace(client, needed=needed, last=at)
        client = replace(client, found={number: one for number, one in known.items() if client.needs(number)})
        clients = {**self.clients, asked.client: client}
        if len(clients) > CLIENTS_MAX:
            del clients[min(clients, key=lambda name: (clients[name].last, name))]
        return Outcomes(clients)

    def joined(self, other: Outcomes) -> Outcomes:
        """Return the table with what another one knows as well, which has read a part of the same log."""
        clients = dict(self.clients)
        for name, theirs in other.clients.items():
            mine = clients.get(name, OfClient())
            newest = max(mine, theirs, key=lambda one: (max(one.needed, default=0), one.last))
            known = {**theirs.found, **mine.found}
            found = {number: one for number, one in known.items() if newest.needs(number)}
            clients[name] = OfClient(newest.needed, max(mine.last, theirs.last), found)
        kept = sorted(clients, key=lambda name: (clients[name].last, name))[-CLIENTS_MAX:]
        return Outcomes({name: clients[name] for name in kept})

    def as_json(self) -> dict[str, Any]:
        """Return the table as JSON: what of_json takes."""
        return {
            name: [one.needed, one.last, [[number, found] for number, found in one.found.items()]]
            for name, one in self.clients.items()
        }

    @staticmethod
    def of_json(found: Mapping[str, Any]) -> Outcomes:
        return Outcomes(
            {name: OfClient(tuple(needed), last, dict(known)) for name, (needed, last, known) in found.items()}
        )


class _Current(threading.local):
    asked: Asked | None = None


_CURRENT = _Current()


def asked() -> Asked | None:
    """Return the client's change that this thread works for."""
    return _CURRENT.asked


@contextmanager
def asking(by: Asked | None) -> Iterator[None]:
    """Let this thread work for a client's change."""
    before, _CURRENT.asked = _CURRENT.asked, by
    try:
        yield
    finally:
        _CURRENT.asked = before
