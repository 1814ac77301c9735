"""CatchingUp: hands records and SNs of the protocol on to the store. A node that joins first takes over what came
before; until then they are kept back here."""

from __future__ import annotations

from typing import Protocol

from wukongs.protocol import actions as act
from wukongs.protocol.control import THE_FIRST, Control
from wukongs.protocol.records import Record, Sn, Vts


class Store(Protocol):
    """The part of a node's data that is brought forward."""

    def apply(self, index: int, record: Record, sn: Sn | None) -> object: ...

    def pass_over(self, record: Record) -> object: ...

    def expose(self, sn: Sn, vts: Vts) -> object: ...


class CatchingUp:
    """The catching up of one node. Called by the protocol's thread. is_installed: whether the store has what came
    before.

    least_sn: the data that is taken over has to be as new as this, because this node was sent no record before it."""

    def __init__(self, store: Store, is_installed: bool) -> None:
        self.is_installed = is_installed
        self.least_sn = THE_FIRST
        self._store = store
        self._records: list[tuple[int, Record, Sn | None]] = []
        self._exposed: act.Expose | None = None

    def apply(self, index: int, record: Record, sn: Sn | None) -> None:
        """Carry out Apply."""
        if self.is_installed:
            self._store.apply(index, record, sn)
        else:
            self._records.append((index, record, sn))

    def expose(self, exposed: act.Expose) -> None:
        """Carry out Expose."""
        if self.is_installed:
            self._store.expose(exposed.sn, exposed.vts)
        else:
            self._exposed = exposed

    def jump(self, control: Control) -> None:
        """Note that this node goes on from a control state, without the records before it. It gets their effects from
        other nodes, and shows nothing until then."""
        self.is_installed = False
        for _, record, _ in self._records:
            self._store.pass_over(record)  # It is before that state.
        self._records = []
        self.least_sn = control.last_sn

    def go_on(self, sn: Sn) -> None:
        """The store has taken over what came up to an SN: hand on the records behind it."""
        self.is_installed = True
        for index, record, at in self._records:
            if at is None or at > sn:
                self._store.apply(index, record, at)
            else:
                self._store.pass_over(record)
        self._records = []

    def show(self) -> None:
        """Let the store come to what is exposed."""
        exposed, self._exposed = self._exposed, None
        if exposed is not None:
            self._store.expose(exposed.sn, exposed.vts)
