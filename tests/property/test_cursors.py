"""Random lives of a window log and its cursors against the model, a plain list per reader."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.oracles.cursors import Entry, Log
from wukongs.errors import GapError
from wukongs.live.stretch import Stretch
from wukongs.live.window_log import Come, Cursor, Gap, LoggedWindow, UnreadBudget, WindowLog

BYTES_MAX = 100
KEPT = ("own", "group")


class Cursors(RuleBasedStateMachine):
    """A crash forgets what is in memory. Windows that the slowest kept reader had not confirmed are put again, as by a
    replay; the others are not."""

    def __init__(self) -> None:
        super().__init__()
        self.put_sizes: dict[int, int | None] = {}
        """The windows so far, of those that are alike the last; None: it is lost."""
        self.firsts: dict[int, int] = {}
        """The last of windows that are alike -> the first."""
        self.end_ms = 0
        self.come: dict[str, Come] = {}
        self.had: dict[str, int] = {}
        self.number = 0
        self.open({})

    def open(self, come: dict[str, Come]) -> None:
        self.log = WindowLog("q", UnreadBudget(1 << 30), BYTES_MAX)
        self.model = Log(BYTES_MAX)
        self.cursors: dict[str, Cursor] = {}
        self.taken: list[tuple[str, LoggedWindow]] = []
        for name in KEPT:
            self.begin_kept(name, come.get(name))

    def begin_kept(self, name: str, come: Come | None) -> None:
        self.cursors[name] = self.log.cursor(come, lambda found: self.come.__setitem__(name, found))
        self.model.begin(name)
        if come is not None:
            reader = self.model.readers[name]
            reader.through_ms = self.had[name] = come.through_ms
            if come.gap is not None:
                reader.waiting.append(tuple(come.gap))  # type: ignore[arg-type]

    @rule(size_bytes=st.integers(1, 60), count=st.sampled_from([1, 1, 2, 4]))
    def put(self, size_bytes: int, count: int) -> None:
        first_ms = self.end_ms + 100
        self.end_ms += 100 * count
        self.put_sizes[self.end_ms], self.firsts[self.end_ms] = size_bytes, first_ms
        self._put(self.end_ms)

    @rule(count=st.integers(1, 3))
    def lose(self, count: int) -> None:
        first_ms = self.end_ms + 100
        self.end_ms += 100 * count
        ends = range(first_ms, self.end_ms + 1, 100)
        self.put_sizes.update(dict.fromkeys(ends))
        self._lose(ends[0], ends[-1])

    def _put(self, end_ms: int) -> None:
        window: Any = end_ms
        size_bytes = self.put_sizes[end_ms]
        if size_bytes is None:
            self._lose(end_ms, end_ms)
        else:
            first_ms = self.firsts[end_ms]
            self.log.put(end_ms, window, size_bytes, Stretch(first_ms, end_ms, 100) if first_ms < end_ms else None)
            self.model.put(list(range(first_ms, end_ms + 1, 100)), size_bytes, self.had)

    def _lose(self, first_ms: int, last_ms: int) -> None:
        self.log.lose(first_ms, last_ms, 100)
        self.model.lose(first_ms, last_ms, 100, self.had)

    @rule()
    def begin(self) -> None:
        self.number += 1
        name = f"client {self.number}"
        self.cursors[name] = self.log.cursor()
        self.model.begin(name)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.cursors)))
        found, expected = self.cursors[name].fetch(0), self.model.take(name)
        assert (None if found is None else entry_of(found)) == expected
        if found is not None:
            self.taken.append((name, found))

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        name, taken = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        self.cursors[name].confirm(taken)
        self.model.confirm(name, entry_of(taken))

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        name, taken = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        self.cursors[name].give_back(taken)
        self.model.give_back(name, entry_of(taken))

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        clients = sorted(set(self.cursors) - set(KEPT))
        if clients:
            name = data.draw(st.sampled_from(clients))
            self.cursors.pop(name).close()
            self.model.leave(name)
            self.taken = [(other, taken) for other, taken in self.taken if other != name]

    @rule()
    def crash(self) -> None:
        come = dict(self.come)
        self.had = {}
        self.open(come)
        slowest = min(self.had.get(name, -1) for name in KEPT)
        for end_ms in [end_ms for end_ms in self.put_sizes if end_ms > slowest]:
            self._put(end_ms)

    @invariant()
    def all_is_bounded_and_counted(self) -> None:
        held = self.model.held
        assert self.log.size_bytes == self.log.budget.size_bytes == sum(held.values())
        assert self.log.size_bytes <= BYTES_MAX or self.model.count == 1

    @invariant()
    def each_reader_stands_where_the_model_says(self) -> None:
        for name, reader in self.model.readers.items():
            assert len(self.cursors[name]) == len(reader.waiting)
            come = self.come.get(name)
            if come is not None:
                at_ms, gap = reader.come()
                assert (come.through_ms, come.gap and tuple(come.gap)) == (at_ms, gap) or name not in KEPT

    def teardown(self) -> None:
        """What is not confirmed is given back, and all is read to the end: nothing is missing, nothing comes twice."""
        for name, taken in self.taken:
            self.cursors[name].give_back(taken)
            self.model.give_back(name, entry_of(taken))
        self.taken = []
        for name, cursor in self.cursors.items():
            found = []
            while (taken := cursor.fetch(0)) is not None:
                found.append(entry_of(taken))
                cursor.confirm(taken)
            assert found == self.model.readers[name].waiting
        assert self.log.size_bytes == 0


def entry_of(window: LoggedWindow) -> Entry:
    if isinstance(window.item, GapError):
        assert window.gap == Gap(window.item.from_ms, window.item.to_ms, window.item.count, window.item.gone)
        return tuple(window.gap)  # type: ignore[return-value]
    return window.end_ms


TestCursors = Cursors.TestCase
TestCursors.settings = settings(deadline=None, stateful_step_count=60)
