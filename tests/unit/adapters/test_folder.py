"""A folder that is looked at step by step: which lines of its files are read, through rotation and packing."""

from __future__ import annotations

import gzip
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from wukongs.adapters.feeds import folder
from wukongs.adapters.feeds.folder import FolderOptions, FolderReader
from wukongs.adapters.mapping.mapping import Csv

pytestmark = pytest.mark.nojit


@dataclass
class ListInlet:
    """Keeps the lines and the state."""

    read: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    is_heard: bool = True
    is_stopped: bool = False

    def wait(self, seconds: float) -> bool:
        return False

    def say(self, text: str) -> None:
        self.said.append(text)

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
        self.read += data.decode().splitlines()
        for name, value in (state or {}).items():
            self.state[name] = value
            if value is None:
                del self.state[name]

    def put(self, *args: Any, **named: Any) -> None:
        raise AssertionError("lines only")


class Watched:
    """A folder with a log in it, and a reader of both whose clock is set."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.log = path, path / "app.log"
        self.written: list[str] = []
        self.inlet = ListInlet()
        self.now_s = 1000.0
        monkeypatch.setattr(folder, "monotonic", lambda: self.now_s)
        self.start()

    def start(self) -> None:
        """Begin a new life, of which only the inlet is left."""
        self.reader = FolderReader(FolderOptions(str(self.path), settle_ms=1000), None)

    def append(self, count: int, path: Path | None = None) -> None:
        lines = [f"line {len(self.written) + one} {'x' * 40}" for one in range(count)]
        self.written += lines
        with (path or self.log).open("a") as file:
            file.write("".join(f"{one}\n" for one in lines))

    def look(self, count: int = 1) -> None:
        for _ in range(count):
            self.reader.look(self.inlet)
            self.now_s += 0.1

    def settle(self) -> None:
        self.look(20)
        assert sorted(self.inlet.read) == sorted(self.written)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    (tmp_path / "in").mkdir()
    return Watched(tmp_path / "in", monkeypatch)


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("is_seen_between", [True, False])
def test_a_copy_of_a_log_that_is_cut_is_read_on(watched: Watched, count: int, is_seen_between: bool) -> None:
    """As logrotate's copytruncate makes it. Lines that came last are in the copy alone."""
    watched.append(count)
    watched.look()
    watched.append(5)
    shutil.copyfile(watched.log, watched.path / "app.log.1")
    if is_seen_between:
        watched.look()
    watched.log.write_bytes(b"")
    watched.append(3)
    watched.settle()
    assert len(watched.inlet.said) == 1


def test_a_copy_is_known_while_it_is_written(watched: Watched) -> None:
    watched.append(2000)
    watched.look()
    data = watched.log.read_bytes()
    copy = watched.path / "app.log.1"
    for size in (0, 10_000, 50_000, len(data)):
        copy.write_bytes(data[:size])
        watched.look()
    watched.log.write_bytes(b"")
    watched.settle()


def test_a_copy_that_lacks_the_last_lines_of_its_log_is_not_read(watched: Watched) -> None:
    """They were written, and read, between the copy and the cut."""
    watched.append(100)
    watched.look()
    shutil.copyfile(watched.log, watched.path / "app.log.1")
    watched.append(10)
    watched.look()
    watched.log.write_bytes(b"")
    watched.append(1)
    watched.settle()


def test_a_log_that_is_cut_between_the_look_for_copies_and_its_reading(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.append(100)
    watched.look()
    watched.append(5)
    shutil.copyfile(watched.log, watched.path / "app.log.1")
    take_up = watched.reader._take_up_copies

    def take_up_then_cut(*args: Any) -> set[str]:
        held = take_up(*args)
        watched.log.write_bytes(b"")
        watched.append(7)
        return held

    with monkeypatch.context() as patched:
        patched.setattr(watched.reader, "_take_up_copies", take_up_then_cut)
        watched.look()
    watched.settle()


def test_a_log_that_is_packed_is_not_read_again(watched: Watched) -> None:
    watched.append(3000)
    watched.look()
    watched.append(5)
    old, packed = watched.path / "app.log.1", watched.path / "app.log.1.gz"
    watched.log.rename(old)
    watched.append(4)
    whole = gzip.compress(old.read_bytes())
    for size in (0, len(whole) // 2, len(whole)):
        packed.write_bytes(whole[:size])
        watched.look()
    old.unlink()
    watched.settle()


def test_the_next_life_knows_a_copy(watched: Watched) -> None:
    watched.append(100)
    watched.look()
    watched.append(5)
    shutil.copyfile(watched.log, watched.path / "app.log.1")
    watched.log.write_bytes(b"")
    watched.append(300)
    watched.start()
    watched.settle()


@pytest.mark.parametrize("count", [1, 100])
def test_a_file_that_is_equal_to_another_one_is_read(watched: Watched, count: int) -> None:
    """It waits until it can be no copy of one that is about to be cut."""
    watched.append(count)
    watched.look()
    shutil.copyfile(watched.log, watched.path / "other.log")
    watched.look()
    assert watched.inlet.read == watched.written
    watched.written *= 2
    watched.settle()
    assert not watched.inlet.said


def test_a_file_that_begins_as_another_one_is_read_while_it_grows(watched: Watched) -> None:
    watched.append(30)
    watched.look()
    other = watched.path / "other.log"
    shutil.copyfile(watched.log, other)
    watched.written *= 2
    for _ in range(5):
        watched.append(1, other)
        watched.look()
        assert len(watched.inlet.read) == len(watched.written)


def test_a_file_that_is_as_one_that_was_cut_long_ago_is_read(watched: Watched) -> None:
    watched.append(100)
    watched.look()
    text = watched.log.read_text()
    watched.log.write_bytes(b"")
    watched.append(2)
    watched.settle()
    (watched.path / "again.log").write_text(text)
    watched.written += watched.written[:100]
    watched.settle()


@pytest.mark.parametrize("seed", range(20))
def test_each_line_is_read_once_whatever_rotates_when(watched: Watched, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(60):
        for _ in range(rng.randrange(3)):
            watched.append(rng.choice((1, 5, 60)))
            watched.look(rng.randrange(2))
        if rng.random() < 0.1:
            watched.start()
        watched.look()
        watched.append(rng.randrange(3))
        if not watched.log.exists() or not watched.log.stat().st_size:
            continue
        old, way = watched.path / f"app.log.{number}", rng.choice(("copy", "rename", "pack", ""))
        if way == "copy":
            shutil.copyfile(watched.log, old)
            watched.look(rng.randrange(2))
            watched.log.write_bytes(b"")
        elif way:
            watched.log.rename(old)
            if way == "pack":
                (watched.path / f"{old.name}.gz").write_bytes(gzip.compress(old.read_bytes()))
                watched.look(rng.randrange(2))
                old.unlink()
    watched.settle()


def test_files_that_cannot_be_read_do_not_keep_others_from_their_ends(tmp_path: Path) -> None:
    """What is left out of the start is not looked at: a file of another kind, and one that is being packed."""
    (tmp_path / "a.csv").write_text("id,v\n1,2\n")
    (tmp_path / "notes.bin").write_bytes(b"\n\xff")
    packed = gzip.compress("".join(f"id,v\n{one},{one * 7919 % 1000}\n" for one in range(3000)).encode())
    (tmp_path / "b.csv.gz").write_bytes(packed[:2000])
    reader = FolderReader(FolderOptions(str(tmp_path), "*.csv*", follow=False, from_end=True), Csv())
    inlet = ListInlet()
    reader.run(inlet)
    assert inlet.read == []
    (tmp_path / "a.csv").write_text("id,v\n1,2\n3,4\n")
    reader.look(inlet)
    assert inlet.read == ["3,4"]


@pytest.mark.parametrize("text", ["id,v", "id,v\n", "id,v\r", "id,v\r1,2\r3,4", "id,v\r1,2\r3,4\r"])
def test_a_header_is_none_of_the_records_whatever_ends_its_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode())
    reader = FolderReader(FolderOptions(str(tmp_path), follow=False), Csv())
    inlet = ListInlet()
    reader.run(inlet)
    assert inlet.read == (["1,2", "3,4"] if "1" in text else [])
    assert inlet.said == []
