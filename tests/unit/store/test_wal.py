"""The write-ahead log: order, group commit, torn ends, altered records, failing disks."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.failing_disk import FullDisk
from wukongs.errors import CorruptionError, StorageError
from wukongs.store.disk import Disk
from wukongs.store.wal import WriteAheadLog


def opened(folder: Path, **options: Any) -> tuple[WriteAheadLog, list[tuple[int, int, int, bytes]]]:
    """A log that is ready to be written, and the records that it had."""
    log = WriteAheadLog(folder, **options)
    found = [(record.lsn, record.sn, record.kind, bytes(record.payload)) for record in log.read(first(folder))]
    log.begin(1, [b"head"], 0)
    return log, found


def first(folder: Path) -> int:
    return min(WriteAheadLog(folder).segments(), default=1)


def written(folder: Path, count: int) -> Path:
    """A log of one segment: its head and `count` records, each synced; return the segment's file."""
    log, _ = opened(folder)
    for number in range(count):
        log.wait(log.append(2, [b"record", bytes([number])], number))
    log.close()
    return log.path(1)


def test_records_come_back_in_the_order_in_which_they_were_appended(tmp_path: Path) -> None:
    log, found = opened(tmp_path)
    assert found == []
    lsns = [log.append(kind, [b"a" * kind, memoryview(b"b")], 10 * kind) for kind in (2, 3, 4)]
    assert lsns == [2, 3, 4]
    log.wait(lsns[-1])
    assert log.durable_lsn == 4
    log.append(5, [b"never waited for, and kept by close"], 50)
    log.close()
    with pytest.raises(StorageError, match="the log is closed"):
        log.append(6, [], 0)
    log, found = opened(tmp_path)
    assert found == [
        (1, 0, 1, b"head"),
        *((kind, 10 * kind, kind, b"a" * kind + b"b") for kind in (2, 3, 4)),
        (5, 50, 5, b"never waited for, and kept by close"),
    ]
    assert log.append(2, [], 0) == 7
    log.close()


def test_a_record_that_is_too_long_for_the_log_is_refused_and_the_log_goes_on(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    never_touched = memoryview(np.zeros(1 << 32, np.uint8))
    for write in (log.append, log.commit):
        with pytest.raises(StorageError, match=r"a change of 4294967298 bytes: .* at most 4294967295\. Nothing of it"):
            write(2, [b"ab", never_touched], 10)
    log.commit(3, [b"c"], 20)
    log.close()
    assert opened(tmp_path)[1] == [(1, 0, 1, b"head"), (2, 20, 3, b"c")]


def test_one_sync_serves_all_who_wait(tmp_path: Path) -> None:
    class SlowDisk(Disk):
        def fsync(self, file: Any) -> None:
            if is_slow.is_set():
                reached.set()
                assert may_go_on.wait(60)
            super().fsync(file)

    is_slow, reached, may_go_on = threading.Event(), threading.Event(), threading.Event()
    log, _ = opened(tmp_path, disk=SlowDisk())
    is_slow.set()
    leader = threading.Thread(target=log.wait, args=(log.append(2, [b"first"], 0),))
    leader.start()
    assert reached.wait(60)
    before = log.sync_count
    lsns = [log.append(2, [bytes([number])], 0) for number in range(20)]  # appending goes on meanwhile
    threads = [threading.Thread(target=log.wait, args=(lsn,)) for lsn in lsns]
    for thread in threads:
        thread.start()
    is_slow.clear()
    may_go_on.set()
    for thread in [leader, *threads]:
        thread.join(60)
    assert log.durable_lsn == lsns[-1]
    assert log.sync_count == before + 2  # the leader's, and one for the other twenty
    log.close()


def test_with_an_interval_groups_are_written_but_seldom_synced(tmp_path: Path) -> None:
    log, _ = opened(tmp_path, sync_interval_ms=60_000)
    before = log.sync_count
    for _ in range(10):
        log.wait(log.append(2, [b"x"], 0))
    assert log.sync_count == before
    assert log.path(1).read_bytes().count(b"x") == 10
    log.close()


def test_a_log_cut_at_any_byte_keeps_all_whole_records(tmp_path: Path) -> None:
    path = written(tmp_path / "log", 3)
    whole = path.read_bytes()
    size = (len(whole) - 8) // 4
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        log = WriteAheadLog(tmp_path / "log")
        kept = [record.lsn for record in log.read(1)]
        assert kept == list(range(1, len(kept) + 1))
        assert len(kept) >= (cut - 8) // (size + 8)
        assert log.next_lsn == len(kept) + 1
        assert [record.lsn for record in WriteAheadLog(tmp_path / "log").read(1)] == kept  # it is cut for good
    assert len(kept) == 3


def test_an_altered_record_before_synced_ones_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, 3)
    whole = path.read_bytes()
    last = whole.rindex(b"record") - 33
    for place in range(8, last):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :])
        with pytest.raises(CorruptionError, match=r"record .* is altered") as caught:
            list(WriteAheadLog(tmp_path).read(1))
        assert str(path) in str(caught.value)
    path.write_bytes(b"x" + whole[1:])
    with pytest.raises(CorruptionError, match="expected a log segment"):
        list(WriteAheadLog(tmp_path).read(1))


def test_a_hole_in_a_group_that_was_never_synced_is_a_torn_end(tmp_path: Path) -> None:
    """Pages of one write reach the disk in any order: what follows the hole does not know of any sync behind it."""
    log, _ = opened(tmp_path)
    log.wait(log.append(2, [b"synced"], 0))
    lsns = [log.append(2, [b"group"], 0) for _ in range(3)]
    log.wait(lsns[-1])
    log.close()
    whole = log.path(1).read_bytes()
    hole = whole.index(b"group")
    log.path(1).write_bytes(whole[:hole] + b"\0\0\0\0\0" + whole[hole + 5 :])
    assert [record.lsn for record in WriteAheadLog(tmp_path).read(1)] == [1, 2]


def test_a_hole_in_groups_of_one_interval_is_a_torn_end(tmp_path: Path) -> None:
    """What was written within sync_interval_ms may be lost with the machine: also before a group that is there."""
    log, _ = opened(tmp_path, sync_interval_ms=60_000)
    for number in range(4):
        log.wait(log.append(2, [b"group", bytes([number])], 0))
    whole = log.path(1).read_bytes()
    hole = whole.index(b"group\1")
    log.path(1).write_bytes(whole[:hole] + b"\0\0\0\0\0" + whole[hole + 5 :])
    assert [record.lsn for record in WriteAheadLog(tmp_path).read(1)] == [1, 2]


def test_what_a_killed_process_has_not_synced_is_synced_before_it_is_built_upon(tmp_path: Path) -> None:
    class NotingDisk(Disk):
        def sync(self, path: Path) -> None:
            super().sync(path)
            synced.append(path)

    synced: list[Path] = []
    log, _ = opened(tmp_path, sync_interval_ms=60_000)
    log.wait(log.append(2, [b"written"], 0))
    again = WriteAheadLog(tmp_path, disk=NotingDisk())
    assert [record.lsn for record in again.read(1)] == [1, 2]
    assert synced == [log.path(1)]


@pytest.mark.parametrize("is_commit", [False, True])
def test_a_sync_that_is_interrupted_has_not_failed(is_commit: bool, tmp_path: Path) -> None:
    """As by Ctrl-C while push waits for the disk."""

    class InterruptedDisk(Disk):
        def fsync(self, file: Any) -> None:
            super().fsync(file)
            if interrupts:
                raise interrupts.pop()

    interrupts = list[BaseException]()
    log, _ = opened(tmp_path, disk=InterruptedDisk())
    log.wait(log.append(2, [b"before"], 0))
    interrupts.append(KeyboardInterrupt())
    lsn = 0 if is_commit else log.append(2, [b"interrupted"], 0)
    with pytest.raises(KeyboardInterrupt):
        log.wait(lsn) if lsn else log.commit(2, [b"interrupted"], 0)
    log.check()
    log.wait(log.append(2, [b"after"], 0))
    interrupts.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        log.begin(1, [b"head"], 0)
    log.begin(1, [b"head"], 0)
    log.wait(log.append(2, [b"last"], 0))
    log.close()
    kept = [b"head", b"before", *([] if is_commit else [b"interrupted"]), b"after", b"head", b"last"]
    assert [bytes(record.payload) for record in WriteAheadLog(tmp_path).read(1)] == kept


def test_an_interrupt_when_the_record_of_a_change_is_safe_already_ends_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread has written it. Its change is not made here, so nothing may be logged behind it."""
    log, _ = opened(tmp_path)
    wait = log._wait

    def interrupted(lsn: int) -> None:
        wait(lsn)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(log, "_wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.commit(2, [b"safe"], 0)
    with pytest.raises(StorageError, match=r"\(KeyboardInterrupt\).*open the folder again"):
        log.commit(2, [b"behind"], 0)
    log.close()
    assert [bytes(record.payload) for record in WriteAheadLog(tmp_path).read(1)] == [b"head", b"safe"]


def test_a_missing_or_shortened_segment_is_named(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    log.append(2, [b"x"], 0)
    assert log.begin(1, [b"head"], 0) == 3
    log.append(2, [b"y"], 0)
    assert log.begin(1, [b"head"], 0) == 5
    log.close()
    middle = log.path(3).read_bytes()
    log.path(3).write_bytes(middle[:-1])
    with pytest.raises(CorruptionError, match="record 4 at byte"):
        list(WriteAheadLog(tmp_path).read(1))
    log.path(3).unlink()
    with pytest.raises(CorruptionError, match="begins with record 5, but the one before it ends with 2"):
        list(WriteAheadLog(tmp_path).read(1))
    with pytest.raises(CorruptionError, match="segment 3 of the log is missing"):
        list(WriteAheadLog(tmp_path).read(3))
    assert [record.lsn for record in WriteAheadLog(tmp_path).read(5)] == [5]


def test_segments_before_a_checkpoint_are_removed(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    for _ in range(3):
        log.append(2, [b"x"], 0)
        log.begin(1, [b"head"], 0)
    assert log.segments() == [1, 3, 5, 7]
    log.trim(5)
    assert log.segments() == [5, 7]
    log.close()


class TroubledDisk(Disk):
    """A disk with too little room, or one that fails to sync."""

    is_full = False
    is_broken = False

    def write(self, file: Any, data: Any) -> None:
        if self.is_full:
            file.write(bytes(data)[:10])  # as much as fits
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(file, data)

    def fsync(self, file: Any) -> None:
        if self.is_broken:
            raise OSError(errno.EIO, "Input/output error")
        super().fsync(file)


def test_a_sync_that_fails_ends_the_writing(tmp_path: Path) -> None:
    disk = TroubledDisk()
    log, _ = opened(tmp_path, disk=disk)
    log.wait(log.append(2, [b"safe"], 0))
    disk.is_broken = True
    with pytest.raises(StorageError, match=r"cannot be written .*mend the disk and open the folder again"):
        log.wait(log.append(2, [b"not safe"], 0))
    log.wait(2)  # what was safe before still is
    disk.is_broken = False
    for refused in (log.append, log.commit, log.begin):
        with pytest.raises(StorageError, match="open the folder again"):
            refused(2, [b"later"], 0)
    log.close()
    log, found = opened(tmp_path)
    assert [payload for *_, payload in found][:2] == [b"head", b"safe"]
    log.close()


def test_a_full_disk_that_has_room_again_is_written_on(tmp_path: Path) -> None:
    disk = TroubledDisk()
    log, _ = opened(tmp_path, disk=disk)
    log.wait(log.append(2, [b"safe"], 0))
    disk.is_full = True
    with pytest.raises(StorageError, match=r"cannot be written .*make room on the disk, and writing goes on"):
        log.wait(log.append(2, [b"waits"], 0))
    with pytest.raises(StorageError, match="make room"):
        log.commit(2, [b"is none"], 0)
    with pytest.raises(StorageError, match="make room"):
        log.begin(1, [b"no head"], 0)
    with pytest.raises(StorageError, match="make room"):
        log.check()
    assert isinstance(log.lack, OSError)
    assert [bytes(record.payload) for record in WriteAheadLog(tmp_path).read(1)] == [b"head", b"safe"]
    disk.is_full = False
    log.check()
    assert (log.lack, log.failure) == (None, None)
    assert log.commit(2, [b"later"], 0) == 4
    assert log.begin(1, [b"second head"], 0) == 5
    log.close()
    log, found = opened(tmp_path)
    assert [payload for *_, payload in found] == [b"head", b"safe", b"waits", b"later", b"second head"]
    log.close()


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_whatever_step_finds_the_disk_full_nothing_acknowledged_is_lost(tmp_path: Path, fails: int) -> None:
    """And nothing that was refused comes back, nor does anything come in another order."""
    step, is_done = 0, False
    while not is_done:
        folder, disk = tmp_path / str(step), FullDisk(step, fails)
        folder.mkdir()
        log = WriteAheadLog(folder, disk=disk)
        assert not list(log.read(1))
        safe, refused, waiting = [], [], []
        for number, way in enumerate(
            ["begin", "append", "commit", "commit", "append", "begin", "append", "commit"] * 2
        ):
            payload = b"%d" % number
            try:
                if way == "append":
                    log.check()
                    waiting.append(payload)
                    log.wait(log.append(2, [payload], 0))
                else:
                    getattr(log, way)(2, [payload], 0)
                    waiting.append(payload)
                safe += waiting
                waiting = []
            except StorageError:
                if number == 0:
                    break  # nothing is written before a segment has begun
                if way != "append":
                    refused.append(payload)
        is_done, failure = len(disk.steps) <= step, log.failure
        log.close()
        found = [bytes(record.payload) for record in WriteAheadLog(folder).read(1)]
        assert found[: len(safe)] == safe, step
        assert found == sorted(found, key=int), step
        if failure is not None:  # what a group had is unknown after its sync has failed
            assert "fsync" in disk.steps[step] or fails > 1, disk.steps[step]
        else:
            assert not set(found) & set(refused), step
            assert found == [*safe, *waiting][: len(found)], step
            assert len(found) == len(safe) + len(waiting) or not disk.fails, step
        step += 1
    assert step > 20


def test_a_crash_while_a_segment_begins_leaves_the_one_before_it(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    log.append(2, [b"x"], 0)
    log.begin(1, [b"head"], 0)
    log.close()
    whole = log.path(3).read_bytes()
    for cut in range(len(whole)):
        log.path(3).write_bytes(whole[:cut])
        reader = WriteAheadLog(tmp_path)
        assert [record.lsn for record in reader.read(1)] == [1, 2]
        assert reader.segments() == [1]
