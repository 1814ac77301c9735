"""A spool against a plain list: appends, releases, restarts and torn ends; ranges of it, wherever they are cut."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.unit.adapters.helpers import PROJECT
from tests.unit.adapters.spooled import Putter, spooled
from tests.unit.wire.conftest import wait_until
from wukongs.adapters.feeds import spool as spool_module
from wukongs.adapters.feeds.spool import Frame, Spool, read_range, starts_of
from wukongs.errors import SettingsError

Record = tuple[int, bytes, int, str, int, int, tuple[str, ...], str | None]
"""Its number, its bytes, when it came, its file, line and byte, the names of its fields, its cell."""


def frame_of(
    texts: list[bytes], time_ms: int = 0, file: str = "", columns: tuple[str, ...] = (), has_cells: bool = False
) -> Frame:
    lengths = np.array([len(one) for one in texts], np.int64)
    cells: dict[str, list[str | None]] = {"c": [one.decode() or None for one in texts]} if has_cells else {}
    place = (file, 7, 100) if file else ("", 0, 0)
    return Frame(0, time_ms, lengths, b"".join(texts), *place, columns, cells)


def records_of(frame: Frame, first_row: int) -> list[Record]:
    """What a reader should find."""
    found, at = [], 0
    for number, length in enumerate(frame.lengths.tolist()):
        line, byte = (frame.line + number, frame.byte + at) if frame.file else (0, 0)
        cell = frame.cells["c"][number] if frame.cells else None
        text = bytes(frame.data[at : at + length])
        found.append((first_row + number, text, frame.time_ms, frame.file, line, byte, frame.columns, cell))
        at += length
    return found


def read(spool: Spool, first: int, end: int) -> list[Record]:
    """Read a range as workers do."""
    found: list[Record] = []
    ranges = spool.ranges(first, end, 5)
    ends = [(one.first_offset, one.end_offset) for one in ranges]
    assert [low for low, _ in ends] == [first, *[high for _, high in ends[:-1]]][: len(ends)], "ranges tile the rows"
    for one in ranges:
        assert one.first_offset < one.end_offset
        assert one.floor_ms == 5
        frames = list(read_range(spool.folder, one))
        assert len({frame.columns for frame in frames}) == 1
        for frame in frames:
            for at, (begin, stop) in enumerate(pairwise(starts_of(frame.lengths).tolist())):
                line, byte = (frame.line + at, frame.byte + begin) if frame.file else (0, 0)
                cell = frame.cells["c"][at] if frame.cells else None
                text = bytes(frame.data[begin:stop])
                found.append((frame.first_row + at, text, frame.time_ms, frame.file, line, byte, frame.columns, cell))
    return found


TEXTS = st.lists(st.sampled_from([b"", b"x", b"some text", b"x" * 60]), max_size=5)
FRAMES = st.builds(
    frame_of,
    TEXTS,
    st.integers(0, 9),
    st.sampled_from(["", "a.csv"]),
    st.sampled_from([(), ("a", "b"), ("b",)]),
    st.booleans(),
)
STATES = st.none() | st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 9), max_size=2)
STEPS = st.lists(
    st.one_of(
        *[st.tuples(st.just("append"), FRAMES, STATES)] * 4,
        st.tuples(st.just("release"), st.floats(0, 1)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("tear"), st.floats(0, 1)),
        st.tuples(st.just("skip"), st.integers(1, 5)),
        st.tuples(st.just("read"), st.floats(0, 1), st.floats(0, 1)),
    ),
    max_size=30,
)


@dataclass
class Life:
    """Each append so far: its records and the state after it."""

    appended: list[tuple[list[Record], dict[str, Any]]] = field(default_factory=list)
    skipped_to: int = 0
    released: int = 0

    @property
    def state(self) -> dict[str, Any]:
        return self.appended[-1][1] if self.appended else {}

    @property
    def records(self) -> list[Record]:
        return [one for records, _ in self.appended for one in records]


def last_segment(folder: Path) -> Path:
    return max((folder / "log").glob("*.log"))


def check(spool: Spool, life: Life) -> None:
    assert spool.state == life.state
    records = [one for one in life.records if one[0] >= max(spool.first_row, life.skipped_to)]
    end = records[-1][0] + 1 if records else life.skipped_to
    assert spool.end_row == max(end, life.skipped_to, spool.first_row)
    assert spool.first_row <= max(life.released, life.skipped_to)
    first = max(spool.first_row, life.skipped_to)
    assert read(spool, first, spool.end_row) == records if first < spool.end_row else not records


@fuzzed(200)
@given(steps=STEPS, segment_bytes=st.sampled_from([1, 200, 1000, 1 << 20]))
def test_a_spool_holds_what_was_appended(steps: list[tuple[Any, ...]], segment_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder, patch.object(spool_module, "SEGMENT_BYTES", segment_bytes):
        spool, life = Spool(Path(folder)), Life()
        try:
            for step in steps:
                if step[0] == "append":
                    spool.append(step[1], step[2])
                    first = max(life.records[-1][0] + 1 if life.records else 0, life.skipped_to)
                    changed = {**life.state, **(step[2] or {})}
                    state = {name: value for name, value in changed.items() if value is not None}
                    life.appended.append((records_of(step[1], first), state))
                elif step[0] == "release":
                    row = spool.first_row + round(step[1] * (spool.end_row - spool.first_row))
                    spool.release(row)
                    life.released = max(life.released, row)
                elif step[0] == "skip":
                    life.skipped_to = spool.end_row + step[1]
                    spool.skip_to(life.skipped_to)
                elif step[0] == "read":
                    low = max(spool.first_row, life.skipped_to)
                    first, end = sorted(low + round(part * (spool.end_row - low)) for part in step[1:])
                    if first < end:
                        assert read(spool, first, end) == [one for one in life.records if first <= one[0] < end]
                else:
                    spool.close()
                    if step[0] == "tear":
                        tear(last_segment(Path(folder)), step[1], life)
                    spool = Spool(Path(folder))
                check(spool, life)
        finally:
            spool.close()


def tear(path: Path, part: float, life: Life) -> None:
    """Cut the last segment somewhere behind its head. Appends whose bytes are not whole are not there any more."""
    data = path.read_bytes()
    ends = [8]
    while ends[-1] < len(data):
        size = int.from_bytes(data[ends[-1] + 4 : ends[-1] + 8], "little")
        ends.append(ends[-1] + spool_module.RECORD_HEADER_BYTES + size)
    cut = ends[1] + round(part * (len(data) - ends[1]))
    path.write_bytes(data[:cut])
    for _ in range(sum(end > cut for end in ends)):
        life.appended.pop()


def test_records_that_begin_nowhere_are_in_no_range(tmp_path: Path) -> None:
    """A change of the state without records, among records of other columns."""
    spool = Spool(tmp_path)
    for texts, columns in (([b"one"], ("a",)), ([], ()), ([b"two"], ("b",))):
        spool.append(frame_of(texts, columns=columns), {"at": len(texts)})
    assert [(one.first_offset, one.end_offset) for one in spool.ranges(0, 2, 0)] == [(0, 1), (1, 2)]
    spool.close()


def test_another_process_is_refused_by_the_name_of_the_spool(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "one")
    with pytest.raises(SettingsError, match=f"spool {tmp_path / 'one'}: another process has it open"):
        Spool(tmp_path / "one")
    code = "import sys, pathlib; from wukongs.adapters.feeds.spool import Spool; Spool(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path / "one")]
    refused = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert f"spool {tmp_path / 'one'}: another process has it open" in refused.stderr
    spool.close()
    assert subprocess.run(command, cwd=PROJECT, capture_output=True, check=False).returncode == 0


def test_a_full_spool_holds_its_reader_back_until_the_nodes_have_the_records(tmp_path: Path) -> None:
    reader = Putter(["a" * 100])
    with spooled(tmp_path, reader, bytes_max=100) as one:
        wait_until(lambda: len(reader.safe) == 1, "the first")
        one.feed.put(b"second", then=lambda: reader.safe.append("second"))
        assert not one.spool.wait_for_room(0.05)
        assert len(one.texts()) == 1
        one.feed.release(1)
        wait_until(lambda: reader.safe[1:] == ["second"], "the second")


def test_what_the_nodes_have_holds_no_reader_back_after_a_restart(tmp_path: Path) -> None:
    with spooled(tmp_path, Putter(["a" * 100]), bytes_max=100) as one:
        one.wait_for(1)
        one.feed.release(1)
    reader = Putter(["second"])
    with spooled(tmp_path, reader, bytes_max=100, begin=1):
        wait_until(lambda: reader.safe == ["second"], "the second")


def test_appends_and_releases_at_once(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with patch.object(spool_module, "SEGMENT_BYTES", 1):
        spool = Spool(tmp_path, 3_600_000)
        is_done = threading.Event()

        def release() -> None:
            try:
                while not is_done.is_set():
                    spool.release(spool.end_row - 100)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=release)
        thread.start()
        try:
            for _ in range(200):
                spool.append(frame_of([b"x"]))
        finally:
            is_done.set()
            thread.join()
            sys.setswitchinterval(interval)
            spool.close()
    assert errors == []
