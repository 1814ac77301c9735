"""Journal: the way of all changes of an engine. A durable engine logs them here before they hold.

Every change is made under the engine's lock, in one of two ways:

* `prepare()`, then `note(message, then)`: tuples and progress of streams, often. The tuples wait under their stream
  batches at once; `then`, which moves the stream on, is called once the record is safe. The caller waits for that
  without the lock.
* `commit(change)`: everything else, seldom. Returns once the record, and so all before it, is safe and applied; the
  caller then makes the change, still under the lock.

So nothing becomes visible in a snapshot or a window before it is safe. An engine in memory has a Journal, where all of
this is immediate; wukongs.durable.durability has the durable one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from wukongs.errors import StorageError
from wukongs.live.pieces import Told
from wukongs.store.encoded import Encoded
from wukongs.store.quads import Quads

Change: TypeAlias = dict[str, Any]


class Journal:
    """The journal of an engine in memory: nothing is logged, and every change holds at once."""

    def prepare(self) -> None:
        """Be ready for `note`. Called with the engine's lock held, before anything is changed. Raises StorageError."""

    def note(self, message: Told, then: Callable[[], None]) -> int:
        """Log what was just taken; `then` is called once it is safe. Return its LSN, to wait for.

        Called with the engine's lock held, after prepare() and without letting go of the lock in between."""
        then()
        return 0

    def note_load(self, number: int, encoded: Encoded, goes: bool = False) -> None:
        """Log a chunk of loaded triples, before its terms are confirmed. It counts once the load is committed.

        goes: it is what an update deletes."""

    def note_quads(self, number: int, quads: Quads, goes: bool = False) -> None:
        """Log quads whose terms are known, as note_load does: an update stores them or, with goes, deletes them."""

    def abandon_load(self, number: int) -> None:
        """Forget the chunks of a load that has failed."""

    def commit(self, change: Change | Told) -> int:
        """Log a change and return its LSN when it, and everything before it, is safe; the caller applies it then.

        Called with the engine's lock held. Raises StorageError; then the change must not be made."""
        return 0

    def wait(self, lsn: int | None = None) -> None:
        """Wait until the record `lsn` (default: every record so far) is safe and holds. Called without the lock.

        Raises StorageError."""

    def fired(self, query_lsn: int, at_ms: int, needs_ms: Mapping[str, int], is_compared: bool) -> None:
        """Note that a query has picked the batches of a firing. needs_ms: it reads, of each stream, what came after
        this.

        is_compared: its next firing is compared with this one. Called with the lock held."""

    def acknowledge(self, query_lsn: int, end_ms: int) -> None:
        """Note that the windows of a query up to a time were taken. From any thread."""

    def forget_query(self, query_lsn: int, lsn: int) -> None:
        """Note that a query was closed by record lsn. Called with the lock held."""

    def sealed_late(self, sn: int) -> None:
        """Note that tuples of a stream that began late were sealed at an SN that is not that of their time."""

    def checkpoint(self) -> None:
        """Write what is stored to the data folder. Called without the lock. Raises StorageError."""

    def backup(self, target: Path) -> None:
        """Copy the data folder. Called without the lock. Raises StorageError (there is none; no room)."""
        raise StorageError("this engine is in memory: only one with a data_dir is backed up; dump() writes its graphs")

    def stats(self) -> dict[str, Any]:
        """Return counts and sizes of the log and the checkpoints."""
        return {}

    def close(self) -> None:
        """End, with a last checkpoint. Called without the lock, when nothing is taken any more."""
