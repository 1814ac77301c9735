"""Feed: a source partition that goes on while it is read, as the planner sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from wukongs.adapters.feeds.spool import Frame
from wukongs.adapters.mapping.mapping import Csv
from wukongs.adapters.source import PreparedSource, RowRange, Rows, StreamSource
from wukongs.live.lateness import CarryRule
from wukongs.live.wall_clock import IdleAdvance
from wukongs.settings.toml_reader import TableReader


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a feed: there are rows up to end_row. is_open: more may come; is_heard: nothing stands between us and
    the source, so that its silence means that it has nothing. complete_ms: no row behind these is of this time or an
    earlier one, as the source itself knows; None: it does not know. Such a source holds nobody back."""

    end_row: int
    is_open: bool
    is_heard: bool
    complete_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a feed is waited for. lateness_ms: how far a row may lie behind the latest time; carry_rule: how stream
    batches carry rows that are later, None: these are set aside; idle_timeout_ms: after so long
    without a row it holds nobody back any more (0: it always does); is_last: its end is that of its source partition,
    so nothing of it is waited for any more; idle_advance: "wall": then it follows the wall clock less lateness_ms, and
    not the other feeds; jump_max_ms: how far the time of a row may be ahead of the wall clock when it comes (0: as far
    as it says)."""

    lateness_ms: int = 0
    idle_timeout_ms: int = 5000
    is_last: bool = True
    idle_advance: IdleAdvance | None = None
    jump_max_ms: int = 0
    carry_rule: CarryRule | None = None


WAITS = Waits(jump_max_ms=86_400_000)
"""Defaults of a source that goes on."""
NO_WAITS = Waits(idle_timeout_ms=0)
"""The waits of a source whose silence says nothing: a file, or one that knows itself up to when it is complete."""


class Feed(Protocol):
    """Its rows are numbered from 0; a row that was there once can be read again until it is released."""

    @property
    def stream(self) -> str: ...

    @property
    def source(self) -> StreamSource:
        """The workers' side of it."""

    @property
    def waits(self) -> Waits: ...

    def begin(self, row: int, had: Sequence[int] = ()) -> int:
        """Take up the source at a row; return the first row from there on that can be read.

        had : the row up to which each node has the rows, ascending; a source may have lost rows before the last one
        """

    def look(self) -> Look:
        """Never waits. Raises: why the source cannot be read any more."""

    def ranges(self, first: int, end: int, floor_ms: int) -> Sequence[RowRange]:
        """Return rows [first, end) as ranges to read. floor_ms: see RowRange."""

    def release(self, row: int) -> None:
        """Let go of all rows before this one: the nodes have them."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class FileFeed:
    """A file that is all there, beside feeds that are not."""

    prepared: PreparedSource
    waits: Waits = NO_WAITS

    @property
    def stream(self) -> str:
        return self.prepared.stream

    @property
    def source(self) -> StreamSource:
        return self.prepared.source

    def begin(self, row: int, had: Sequence[int] = ()) -> int:
        return row

    def look(self) -> Look:
        return Look(len(self.prepared.index), is_open=False, is_heard=True)

    def ranges(self, first: int, end: int, floor_ms: int) -> Sequence[RowRange]:
        rows = self.prepared.index.range(first, end)
        return [replace(rows, floor_ms=max(rows.floor_ms, floor_ms))]

    def release(self, row: int) -> None:
        pass

    def close(self) -> None:
        pass


class Inlet(Protocol):
    """Where a reader puts what it reads. All methods may be called by any thread."""

    is_heard: bool
    """To be set False by a reader while it has lost its source."""

    @property
    def state(self) -> Mapping[str, Any]:
        """All that the reader has said about how far it is, also in earlier lives: values by name."""

    @property
    def is_stopped(self) -> bool:
        """Whether the reader is to return."""

    def wait(self, seconds: float) -> bool:
        """Wait; tell whether the reader is to return."""

    def say(self, text: str) -> None:
        """Say a line to the user, such as that a connection was lost."""

    def lines(
        self,
        data: bytes,
        state: dict[str, Any] | None = None,
        *,
        file: str = "",
        line: int = 0,
        byte: int = 0,
        columns: Sequence[str] = (),
    ) -> None:
        """Put lines, of which the last may lack its end, and what has changed in the state (None: gone); return when
        they are safe.

        file, line, byte: where they begin; columns: the names of their fields, where a header says them."""

    def put(
        self,
        message: bytes,
        cells: dict[str, str | None] | None = None,
        state: dict[str, Any] | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Put a message and what belongs to it; returns at once, or waits for room. then: called when it is safe."""


class Reader(Protocol):
    """Reads one source into an inlet, which keeps what it reads; a thread of its own runs it."""

    def run(self, inlet: Inlet) -> None:
        """Read until there is no more, or the inlet is stopped. It finds a source that it has lost again by itself.

        Raises: DataError, SettingsError (a source that cannot be read: what, and what to do)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of source that cannot be read again, and so goes through a spool. options: reads its own keys of a run
    file, each with its checks; reader: makes its reader (csv: how lines are written that a header names the fields of,
    None for others); name: what its source partition is called if the run file does not say it; can_look: whether a
    reader takes nothing away from those that come later; is_recording: whether it ends with what was there, by its
    options."""

    options: Callable[[TableReader], Any]
    reader: Callable[[Any, Csv | None], Reader]
    name: Callable[[Any], str]
    can_look: bool = False
    is_recording: Callable[[Any], bool] = lambda options: False


class MessageDecoder(Protocol):
    """Makes rows of the messages of one source partition."""

    @property
    def partition(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The cells that a mapping reads."""

    def rows(self, frames: Sequence[Frame], floor_ms: int, scope: bytes, hash_bits: int) -> Rows:
        """Return the rows of messages in their order. floor_ms: the latest time of all rows before."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Holds all that a kind needs to open feeds of its own. name: of the source ("": as the kind has it); decoder: that
    of a source partition; say: shows a line to the user."""

    stream: str
    options: Any
    name: str
    waits: Waits
    decoder: Callable[[str], MessageDecoder]
    say: Callable[[str], None]
    stop: threading.Event


@dataclass(frozen=True, slots=True)
class FeedKind:
    """A kind of source that keeps what it has, so that workers can read it where it is, again and again. options,
    is_recording: as of Kind; feeds: opens a feed of each source partition, without reading yet; has_messages: whether
    its rows are messages of a format that the run file says, with lateness_ms and idle_timeout_ms."""

    options: Callable[[TableReader], Any]
    feeds: Callable[[Opening], list[Feed]]
    has_messages: bool = True
    is_recording: Callable[[Any], bool] = lambda options: False
