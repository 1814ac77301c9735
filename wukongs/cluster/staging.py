"""Staging: this node's shares of loads and updates, from their arrival until the record that makes them count.

A share that never gets a record goes STAGED_AGE_MAX_S after its last part has come: its coordinator has given up long
before, or is gone. If it has not, and sends more, it is refused. Late repetitions of a share that was taken or let go
are passed over. Nothing grows old while a member is silent: the record may wait there.

An update that deletes or clears holds the snapshot that it has read, from its last chunk until it is applied or let go:
it removes what was there, and nothing that has come since (decision 0027). Another update that comes into the log first
makes it void: then it goes at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from wukongs.cluster.building import Building
from wukongs.errors import BudgetExceeded, QueryTimeout
from wukongs.store.encoded import Encoded
from wukongs.store.trace import Handle

STAGED_AGE_MAX_S = 3600.0
KEPT = float("inf")
OVER_MAX = 1024
"""Changes that are over and remembered."""
_BYTES_PER_ROW = 40


def _size_of(chunk: Encoded) -> int:
    return len(chunk) * _BYTES_PER_ROW + len(chunk.terms.text) + len(chunk.clashes.text)


@dataclass(slots=True)
class StagedChange:
    """chunks: number -> (quads, whether they go); count: how many there are to be, None: not known yet."""

    staged_at_s: float
    chunks: dict[int, tuple[Encoded, bool]] = field(default_factory=dict)
    count: int | None = None
    size_bytes: int = 0
    read: Handle | None = None
    """The snapshot that an update has read; None: what it says does not depend on one."""
    read_at: int | None = None
    """The SN of that snapshot, while this node has not come to it again after a restart."""
    cleared: Sequence[str | None] = ()
    """The graphs of which that update removes all that the snapshot has."""
    building: Building | None = None
    """The rows that are put in order already; None: nothing is done before its record."""
    is_adopted: bool = False
    """Other nodes had begun to keep it for this one, which counts its chunks in another way."""

    @property
    def is_complete(self) -> bool:
        return self.is_adopted or (self.count is not None and len(self.chunks) == self.count)

    def encoded(self, goes: bool) -> list[Encoded]:
        """Return the quads that go, or that come, in the order of their chunks."""
        return [chunk for _, (chunk, does_go) in sorted(self.chunks.items()) if does_go == goes and len(chunk)]


class Staging:
    """The owner serialises the calls. bytes_max: of all changes together."""

    def __init__(self, bytes_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._bytes_max: float = bytes_max
        self._clock = clock
        self._changes: dict[str, StagedChange] = {}
        self._over: dict[str, bool] = {}
        """Name of a change that is not here any more -> whether it was too old."""

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def size_bytes(self) -> int:
        return sum(change.size_bytes for change in self._changes.values())

    def add(
        self,
        name: str,
        number: int,
        chunk: Encoded,
        goes: bool,
        is_last: bool,
        build: Callable[[], Building] | None = None,
    ) -> None:
        """Keep a chunk; pass over a repeated one. build: begins a building of it, if it may be built
        ahead. Raises
        BudgetExceeded, QueryTimeout (what came before is gone)."""
        self.drop_old()
        change = self._changes.get(name)
        if self._over.get(name):
            raise QueryTimeout(
                f"change {name}: it was let go, since nothing came of it for {STAGED_AGE_MAX_S:g} s. Begin it anew"
            )
        if name in self._over or (change is not None and number in change.chunks):
            return
        size = _size_of(chunk)
        if self.size_bytes + size > self._bytes_max:
            raise BudgetExceeded(
                f"change {name}: {self.size_bytes + size} bytes of loads and updates that wait for their records would "
                f"exceed load_bytes_max = {self._bytes_max}. Wait for others to end, load in smaller parts, or raise "
                "load_bytes_max"
            )
        if change is None:
            change = self._changes[name] = StagedChange(self._clock())
            change.building = build() if build is not None else None
        if change.building is not None:
            change.building.add(chunk, goes)
        change.chunks[number] = chunk, goes
        change.size_bytes += size
        change.staged_at_s = max(change.staged_at_s, self._clock())
        if is_last:
            change.count = number + 1

    def finish(self, name: str) -> Building | None:
        """Return the building of a change whose chunks have all arrived, None if it is not built ahead."""
        change = self._changes.get(name)
        if change is None or change.building is None:
            return None
        if not change.building.finish(change.read, change.cleared):
            change.building = None
        return change.building

    @contextmanager
    def unbounded(self) -> Iterator[None]:
        """Stage chunks of a log without a bound of bytes: some of them belong to changes that were abandoned since."""
        bytes_max, self._bytes_max = self._bytes_max, math.inf
        try:
            yield
        finally:
            self._bytes_max = bytes_max

    def hold(self, name: str, open_read: Callable[[], Handle], cleared: Sequence[str | None]) -> None:
        """Let a change hold the snapshot that it has read; nothing if it does so already, or is over."""
        change = self._changes.get(name)
        if change is not None and change.read is None:
            change.read, change.cleared = open_read(), cleared

    def hold_at(self, name: str, read_sn: int, cleared: Sequence[str | None]) -> None:
        """Let a change hold the snapshot that it has read once this node has come there again (`come_to`)."""
        change = self._changes.get(name)
        if change is not None and change.read is None:
            change.read_at, change.cleared = read_sn, cleared

    @property
    def awaited(self) -> int | None:
        """The oldest SN that a change waits for, None if none does."""
        return min((one.read_at for one in self._changes.values() if one.read_at is not None), default=None)

    def come_to(self, sn: int, open_read: Callable[[int], Handle]) -> None:
        """Let the changes that have waited for an SN up to this one hold it."""
        for change in self._changes.values():
            if change.read_at is not None and change.read_at <= sn:
                change.read, change.read_at = open_read(change.read_at), None

    def changes(self) -> dict[str, StagedChange]:
        """Return all changes that wait, by their names."""
        return dict(self._changes)

    def adopt(self, name: str, chunks: Sequence[tuple[Encoded, bool]]) -> None:
        """Keep what another node has kept of a change for this one, beside what has come here; nothing of one that is
        over."""
        if name in self._over:
            return
        change = self._changes.setdefault(name, StagedChange(self._clock()))
        change.is_adopted = True
        if change.building is not None:
            change.building.give_up()
            change.building = None
        first = min([0, *change.chunks]) - len(chunks)
        for number, (chunk, goes) in enumerate(chunks, first):
            change.chunks[number] = chunk, goes
            change.size_bytes += _size_of(chunk)

    def forget(self, name: str) -> None:
        """Drop a change that will have no record; one whose record is here stays."""
        change = self._changes.get(name)
        if change is None or change.staged_at_s < KEPT:
            self._let_go(name)

    def _end(self, name: str, is_too_old: bool = False) -> StagedChange | None:
        self._over[name] = is_too_old
        if len(self._over) > OVER_MAX:
            del self._over[next(iter(self._over))]
        return self._changes.pop(name, None)

    def _let_go(self, name: str, is_too_old: bool = False) -> None:
        change = self._end(name, is_too_old)
        if change is not None and change.read is not None:
            change.read.close()
        if change is not None and change.building is not None:
            change.building.give_up()

    def take(self, name: str) -> StagedChange:
        """Take out a change whose record is here; the caller closes its `read`. It was staged on all nodes before the
        record was proposed."""
        change = self._end(name)
        assert change is not None, f"change {name} has a record, but was never staged here, or too long ago"
        assert change.is_complete, f"change {name} has a record, but {len(change.chunks)} of {change.count} chunks"
        return change

    def keep(self, name: str) -> None:
        """Let a change wait for as long as it takes: its record is here, and is not exposed yet."""
        if name in self._changes:
            self._changes[name].staged_at_s = KEPT

    def forget_void(self, sn: int) -> None:
        """Drop the updates without a record that have not read what another update has stored at this SN."""
        for name, change in self.changes().items():
            read_sn = change.read_at if change.read is None else change.read.sn
            if read_sn is not None and read_sn < sn:
                self.forget(name)

    def renew(self) -> None:
        """Let the age of all changes begin anew."""
        for change in self._changes.values():
            change.staged_at_s = max(change.staged_at_s, self._clock())

    def drop_old(self) -> None:
        """Drop the changes that nothing came of for STAGED_AGE_MAX_S."""
        oldest = self._clock() - STAGED_AGE_MAX_S
        for name in [name for name, change in self._changes.items() if change.staged_at_s < oldest]:
            self._let_go(name, is_too_old=True)
