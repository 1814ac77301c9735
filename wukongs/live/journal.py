"""Journal: where a record is before it is acknowledged: nowhere, in the log of this data folder, or in a cluster's log.

Every change is made under the engine's lock, in one of two ways:

* `prepare()`, then `note(message, then)`: tuples and progress of streams, often. The tuples wait under their stream
  batches at once; `then`, which moves the stream on, is called once the record is safe. The caller waits for that
  without the lock.
* `commit(change)`: everything else, seldom. Returns once the record, and so all before it, is safe and applied; the
  caller then makes the change, still under the lock. The tuples of a load or an update come before it, in chunks.

So nothing becomes visible in a snapshot or a window before it is safe. An engine in memory has NoJournal, where all of
this is immediate; wukongs.durable.durability has the journal of a data folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from wukongs.live.pieces import Pushed, Told
from wukongs.live.stretch import Stretch
from wukongs.live.views.recovered_views import RecoveredViews
from wukongs.live.window_log import Come, Reported, WindowLog
from wukongs.store.encoded import Encoded

Change: TypeAlias = dict[str, Any]


class FiredAsOne(Protocol):
    """Queries that fire as one."""

    def taken_ms(self, taken_of: Callable[[int], int | None]) -> int:
        """Return the time up to which all of them have taken their windows. taken_of: tells it of a query that was
        read, by its LSN; None: of none that is known. Called with the engine's lock held."""


class ReportedBy(Protocol):
    """A registered query that reports windows by itself. lsn: the record that registered it."""

    @property
    def lsn(self) -> int: ...
    @property
    def log(self) -> WindowLog: ...
    def remembered(self) -> dict[str, Any] | None:
        """Return, as JSON, the firing with which its next one is compared, None if it is not compared."""


class Deliveries(Protocol):
    """Firings, and who has taken their windows. Queries are named by their LSN. Called with the engine's lock held,
    except for acknowledge."""

    def fired(
        self, query_lsn: int, at_ms: int, last_ms: int, needs_ms: Mapping[str, int], is_compared: bool, is_stored: bool
    ) -> None:
        """Note that a query has picked the batches of a firing, and of those behind it, up to last_ms, that read the
        same. needs_ms: it reads, of each stream, what came after
        this. is_compared: its next firing is compared with this one, so this one is evaluated again if that one is;
        is_stored: it reads stored graphs, and so waits for their clock."""

    def reported(self, query: ReportedBy, end_ms: int, item: Reported, stretch: Stretch | None) -> None:
        """Note a window, or the error in its place, before anybody reads it. Called without the engine's lock.

        end_ms, stretch: as WindowLog.put has them."""

    def acknowledge(self, query_lsn: int, cursor: str, come: Come) -> None:
        """Note how far a cursor of a query has come: a named one, or OWN. From any thread."""

    def gather(self, group: FiredAsOne) -> int:
        """Return a number by which queries fire that fire as one; no query has it as its LSN."""

    def hand_on(self, from_lsn: int, to_lsn: int, since_ms: int) -> None:
        """Note that the firings of a number, from a time on, are those of another one as well."""

    def forget(self, query_lsn: int) -> None:
        """Forget the firings of a query that was closed, or of queries that fire as one no more."""


class Journal(Protocol):
    """A record is known by its number, the LSN. Raises StorageError where a record cannot be kept. keeps_windows:
    whether the windows themselves are kept for named groups of readers, so that a query has to report them alone."""

    keeps_windows: bool

    @property
    def delivery(self) -> Deliveries: ...

    def prepare(self) -> None:
        """Be ready for `note`. Called with the engine's lock held, before anything is changed."""

    def note(self, message: Told | Pushed, then: Callable[[], None]) -> int:
        """Log what was just taken; `then` is called once it is safe. Return its LSN, to wait for.

        Called with the engine's lock held, after prepare() and without letting go of the lock in between."""

    def wait(self, lsn: int | None = None) -> None:
        """Wait until the record `lsn` (default: every record so far) is safe and holds. Called without the lock."""

    def note_chunks(self, number: int, chunks: Iterable[Encoded], goes: bool = False) -> None:
        """Log tuples of a load or an update, before their terms are confirmed. They count once it is committed.

        number: of the load or update. chunks: read only if they are logged. goes: the update deletes them."""

    def abandon(self, number: int) -> None:
        """Forget the chunks of a load or an update that has failed."""

    def commit(self, change: Change | Told | Pushed) -> int:
        """Log a change and return its LSN when it, and everything before it, is safe; the caller applies it then.

        Called with the engine's lock held. After an error the change must not be made."""


class HasStats(Protocol):
    def stats(self) -> dict[str, Any]:
        """Return counts and sizes of the log and the checkpoints."""


class ViewRecords(Protocol):
    """The live views of an engine, for the log and the checkpoints of its data folder. Called with the engine's lock
    held."""

    def take_news(self) -> dict[int, Any]:
        """Return how far readers of views have got since the last call, in JSON types, by the views' records."""

    def states(self) -> Callable[[], list[dict[str, Any]]]:
        """Return what says, without the lock, what the views are now, in JSON types."""


class DataFolder(HasStats, Protocol):
    """The data folder that an engine holds, apart from its Journal. Called without the lock. Raises StorageError.

    views: the live views that were found in it."""

    views: RecoveredViews

    def keep_views(self, views: ViewRecords) -> None:
        """Have checkpoints and the log hold the engine's live views from now on; before, there is no checkpoint."""

    def note_positions(self, news: dict[int, Any]) -> int:
        """Log how far readers of views have got, as ViewRecords.take_news has it. Return the record to wait for, 0:
        there is none. Called with the engine's lock held."""

    def checkpoint(self) -> None:
        """Write what is stored to the folder, and cut the log."""

    def backup(self, target: Path) -> None:
        """Copy the folder to another one."""

    def close(self) -> None:
        """End, with a last checkpoint. Called when nothing is taken any more."""


class NoDeliveries:
    """Nothing is noted: what nobody has taken does not come again, or comes from a log that stays as it is."""

    def fired(
        self, query_lsn: int, at_ms: int, last_ms: int, needs_ms: Mapping[str, int], is_compared: bool, is_stored: bool
    ) -> None:
        pass

    def reported(self, query: ReportedBy, end_ms: int, item: Reported, stretch: Stretch | None) -> None:
        pass

    def acknowledge(self, query_lsn: int, cursor: str, come: Come) -> None:
        pass

    def gather(self, group: FiredAsOne) -> int:
        return 0

    def hand_on(self, from_lsn: int, to_lsn: int, since_ms: int) -> None:
        pass

    def forget(self, query_lsn: int) -> None:
        pass


class NoJournal:
    """The journal of an engine that logs nothing by itself: every change holds at once.

    delivery: keeps windows of named groups for a node with a data folder; begin: notes a new group there, by its query,
    its name and how far it has come. None: the engine is in memory, or its node is."""

    def __init__(
        self, delivery: Deliveries | None = None, begin: Callable[[int, str, Come], object] | None = None
    ) -> None:
        self.delivery: Deliveries = delivery or NoDeliveries()
        self.keeps_windows = begin is not None
        self._begin = begin

    def prepare(self) -> None:
        pass

    def note(self, message: Told | Pushed, then: Callable[[], None]) -> int:
        then()
        return 0

    def wait(self, lsn: int | None = None) -> None:
        pass

    def note_chunks(self, number: int, chunks: Iterable[Encoded], goes: bool = False) -> None:
        pass

    def abandon(self, number: int) -> None:
        pass

    def commit(self, change: Change | Told | Pushed) -> int:
        if self._begin is not None and isinstance(change, dict) and change["op"] == "cursor":
            self._begin(change["of"], change["group"], Come(*change["come"]))
        return 0
