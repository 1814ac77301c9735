"""The model of cursors: of each reader a plain list of what it still has to be given, in order.

An entry is the end of a window, or a gap: (the first end, the last, how many, how many of them were never made)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Gap: TypeAlias = tuple[int, int, int, int]
Entry: TypeAlias = int | Gap


def joined(gaps: list[Gap]) -> Gap | None:
    """One gap for all of some."""
    if not gaps:
        return None
    firsts, lasts, counts, gone = zip(*gaps, strict=True)
    return min(firsts), max(lasts), sum(counts), sum(gone)


def join(entries: list[Entry], place: int, taken: list[Entry]) -> None:
    """Make one gap of that in a place and its neighbours, but over no window that was taken."""
    for at in (place + 1, place):
        if 0 < at < len(entries):
            before, after = entries[at - 1], entries[at]
            if isinstance(before, int) or isinstance(after, int):
                continue
            if not any(isinstance(one, int) and before[1] < one < after[0] for one in taken):
                entries[at - 1 : at + 1] = [joined([before, after]) or after]


def end_of(entry: Entry) -> int:
    return entry if isinstance(entry, int) else entry[1]


@dataclass
class Reader:
    """waiting: in order; taken: given to somebody and not confirmed; through_ms: the last end that was confirmed or
    lost."""

    waiting: list[Entry] = field(default_factory=list)
    taken: list[Entry] = field(default_factory=list)
    through_ms: int = -1

    def come(self) -> tuple[int, Gap | None]:
        """How far it has come, as a log would keep it: a time, and one gap for all untold ones before it."""
        windows = [entry for entry in self.waiting + self.taken if isinstance(entry, int)]
        at_ms = min([self.through_ms, *(end_ms - 1 for end_ms in windows)])
        gaps = [entry for entry in self.waiting + self.taken if not isinstance(entry, int) and entry[1] <= at_ms]
        return at_ms, joined(gaps)

    def go_on(self) -> None:
        """Note that what comes next is lost."""
        for entry in self.waiting:
            if isinstance(entry, int):
                return
            self.through_ms = max(self.through_ms, entry[1])


class Log:
    """The windows of one query. All readers are here from the beginning, or begin with what is held."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held: dict[int, int] = {}
        """End -> bytes, of the windows that some reader waits for or has taken, unless they were dropped. Of windows
        that are alike the last one has the bytes, or the one that is left of them."""
        self.alike: dict[int, list[int]] = {}
        """End -> the ends of all that are alike with a window."""
        self.readers: dict[str, Reader] = {}

    def begin(self, name: str) -> None:
        through_ms = min(self.held, default=0) - 1
        self.readers[name] = Reader(list(self.held), [], through_ms)

    def put(self, ends: list[int], size_bytes: int, had: dict[str, int]) -> None:
        """Windows that are alike. had: the time up to which a reader had all before the last restart."""
        for end_ms in ends:
            wanting = [one for name, one in self.readers.items() if end_ms > had.get(name, -1)]
            for reader in wanting:
                reader.waiting.append(end_ms)
            self.alike[end_ms] = ends
            if wanting:
                self.held[end_ms] = 0
        self._weigh(ends, size_bytes)
        while sum(self.held.values()) > self.bytes_max and self.count > 1:
            for end_ms in self.alike[min(self.held)]:
                if end_ms in self.held:
                    self._drop(end_ms)

    @property
    def count(self) -> int:
        """How many entries there are: windows that are alike are one."""
        return len({self.alike[end_ms][-1] for end_ms in self.held})

    def _weigh(self, ends: list[int], size_bytes: int) -> None:
        left = [end_ms for end_ms in ends if end_ms in self.held]
        if left:
            self.held[left[-1]] = size_bytes

    def _drop(self, end_ms: int) -> None:
        del self.held[end_ms]
        for reader in self.readers.values():
            if end_ms in reader.waiting:
                place = reader.waiting.index(end_ms)
                reader.waiting[place] = (end_ms, end_ms, 1, 0)
                join(reader.waiting, place, reader.taken)
                reader.through_ms = max(reader.through_ms, end_ms)
                reader.go_on()

    def lose(self, first_ms: int, last_ms: int, step_ms: int, had: dict[str, int]) -> None:
        """Windows that are not made. had: as of put."""
        for name, reader in self.readers.items():
            ends = [end_ms for end_ms in range(first_ms, last_ms + 1, step_ms) if end_ms > had.get(name, -1)]
            if ends:
                reader.waiting.append((ends[0], ends[-1], len(ends), len(ends)))
                join(reader.waiting, len(reader.waiting) - 1, reader.taken)
                reader.go_on()

    def take(self, name: str) -> Entry | None:
        reader = self.readers[name]
        if not reader.waiting:
            return None
        reader.taken.append(reader.waiting.pop(0))
        return reader.taken[-1]

    def confirm(self, name: str, entry: Entry) -> None:
        reader = self.readers[name]
        reader.taken.remove(entry)
        reader.through_ms = max(reader.through_ms, end_of(entry))
        reader.go_on()
        self._forget()

    def give_back(self, name: str, entry: Entry) -> None:
        reader = self.readers[name]
        reader.taken.remove(entry)
        reader.waiting = sorted([*reader.waiting, entry], key=end_of)
        join(reader.waiting, reader.waiting.index(entry), reader.taken)

    def leave(self, name: str) -> None:
        del self.readers[name]
        self._forget()

    def _forget(self) -> None:
        wanted = {entry for reader in self.readers.values() for entry in reader.waiting + reader.taken}
        before, self.held = self.held, {end_ms: size for end_ms, size in self.held.items() if end_ms in wanted}
        for end_ms, size_bytes in before.items():
            if size_bytes and end_ms not in self.held:
                self._weigh(self.alike[end_ms], size_bytes)
