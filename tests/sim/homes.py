"""Registered queries as a node runs them: each stream batch that an SN shows is a window, which its home fires and a
reader takes some time later. A crash forgets what was fired and not taken; a lost disk also what was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wukongs.protocol.control import Registered
from wukongs.protocol.records import Sn, Vts

if TYPE_CHECKING:
    from tests.sim.machine import Machine

NAME = "home of "
"""The queries with such names have windows here."""
TAKING = 25.0
"""How long a reader may take for a window."""


class Homes:
    """The disk's come: by query and the record that brought it to this node, the last window that its reader has."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._fired: dict[tuple[str, int], int] = {}

    def _mine(self) -> dict[str, Registered]:
        queries = self._machine.stored.queries.items()
        return {name: one for name, one in queries if name.startswith(NAME) and self._machine.number in one.nodes}

    def note(self) -> None:
        """Keep from which window on queries fire that come here by a record. Those that ran here in an earlier life,
        whose disk is lost, go on with what is shown next."""
        control, come = self._machine.stored, self._machine.disk.come
        for name, query in self._mine().items() if self._machine.disk.is_installed else ():
            if (name, query.placed) not in come:
                (key,) = query.streams
                begun = control.streams[key].batch_before(query.come or 0)
                come[name, query.placed] = max(begun, control.vts_at(query.since).get(key, 0))

    def expose(self, sn: Sn, vts: Vts) -> None:
        """Fire what an SN shows."""
        machine = self._machine
        for name, query in self._mine().items():
            if query.nodes[machine.number] > sn:
                continue
            place, shown = (name, query.placed), vts.get(query.streams[0], 0)
            machine.disk.come.setdefault(place, shown)
            if shown > max(machine.disk.come[place], self._fired.get(place, 0)):
                machine.tell(machine.number, "fire", query=name, batch=shown, sn=sn)
                self._fired[place] = shown
        self._let_take()

    def _let_take(self) -> None:
        machine = self._machine
        for place, batch in self._fired.items():
            if batch > machine.disk.come[place]:
                taken = machine.alive(lambda place=place, batch=batch: self._take(place, batch))  # type: ignore[misc]
                machine.agenda.after(machine.own.uniform(0, TAKING), taken)

    def _take(self, place: tuple[str, int], to: int) -> None:
        machine, (name, _) = self._machine, place
        if (after := machine.disk.come[place]) < to:
            machine.tell(machine.number, "take", query=name, after=after, batch=to)
            machine.disk.come[place] = to

    def delivered(self) -> int:
        """Return the tick up to which readers have all windows."""
        machine = self._machine
        control, exposed = machine.stored, machine.exposed
        ends = [
            control.streams[query.streams[0]].end_of(machine.disk.come.get((name, query.placed), 0))
            for name, query in self._mine().items()
        ]
        return min([*ends, 0 if exposed is None else exposed.tick])
