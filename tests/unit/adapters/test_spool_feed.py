"""Messages on their way into a spool: what is said to be safe is there, whatever the disk and the end of a run do."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from tests.unit.adapters.spooled import Putter, spooled
from tests.unit.wire.conftest import wait_until
from wukongs.store.disk import Disk


class FullDisk(Disk):
    """A disk that takes no bytes of records as long as it is full; heads of segments are begun before that."""

    def __init__(self) -> None:
        self.is_full = False

    def write(self, file: BinaryIO, data: Any) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(file, data)


def test_messages_are_safe_with_their_cells_and_the_state_that_belongs_to_them(tmp_path: Path) -> None:
    texts = [f"message {number}" for number in range(1000)]
    reader = Putter(texts)
    with spooled(tmp_path / "spool", reader) as one:
        wait_until(lambda: len(reader.safe) == len(texts), "all safe")
        assert one.messages() == [(text, {"cell": "m"}) for text in texts]
    assert reader.safe == texts
    with spooled(tmp_path / "spool", Putter([])) as one:
        assert one.feed.state == {"last": texts[-1]}
        assert one.texts() == texts


def test_what_waits_for_room_at_the_end_of_a_run_is_not_said_to_be_safe(tmp_path: Path) -> None:
    reader = Putter(["first"])
    with spooled(tmp_path / "spool", reader, bytes_max=1) as one:
        one.wait_for(1)
        for text in ("second", "third"):
            one.feed.put(text.encode(), then=partial(reader.safe.append, text))
    with spooled(tmp_path / "spool", Putter([])) as one:
        assert one.texts() == reader.safe == ["first"]


def test_a_disk_with_room_again_takes_what_has_waited(tmp_path: Path) -> None:
    disk, reader = FullDisk(), Putter([])
    with spooled(tmp_path / "spool", reader, disk) as one:
        disk.is_full = True
        one.feed.put(b"one", then=lambda: reader.safe.append("one"))
        one.wait_until_said("cannot be written (No space left on device)")
        assert reader.safe == one.texts() == []
        disk.is_full = False
        one.wait_for(1)
        wait_until(lambda: reader.safe == ["one"], "safe")
    assert [text for text in one.said if "No space" in text] == one.said
    assert len(one.said) == 1


def test_the_end_of_a_run_on_a_full_disk_says_of_nothing_that_it_is_safe(tmp_path: Path) -> None:
    disk, reader = FullDisk(), Putter([])
    with spooled(tmp_path / "spool", reader, disk) as one:
        disk.is_full = True
        one.feed.put(b"one", then=lambda: reader.safe.append("one"))
        one.wait_until_said("No space left")
    assert reader.safe == []
    with spooled(tmp_path / "spool", Putter([])) as one:
        assert one.texts() == []
        assert one.feed.state == {}
