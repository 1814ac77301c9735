"""The disk of a node that stops, fills up, or loses power at any step: what was safe is there again."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from tests.failing_disk import CountingDisk, Crash, CrashingDisk, FullDisk
from tests.fuzz import first_and_slow
from tests.unit.cluster.wires import STREAM, encoded
from wukongs.cluster.feeding import pieces_packet
from wukongs.cluster.node_disk import MET, NODE_FILE, NodeDisk, NodeFolder, Note, Owner
from wukongs.cluster.node_terms import NodeRegistry
from wukongs.durable.log_records import framed
from wukongs.errors import StorageError
from wukongs.live.pieces import Piece
from wukongs.protocol import events as ev
from wukongs.protocol.control import genesis
from wukongs.store.disk import Disk
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.codec import TELL, to_frames
from wukongs.wire.packets import Packet
from wukongs.wire.protocol_codec import encode

GENESIS = genesis(2, 2, SHARD_COUNT)
PART = "part"
RECORDS, PARTS = 6, 3


class Life:
    """One life of a node with a disk: records 1, 2, 3 ..., and checkpoints that have how many there were.

    safe: the last record that was said to be safe; tried: the last one that may be there."""

    def __init__(self, folder: Path, disk: Disk, sync_interval_ms: int = 0, safe: int = 0) -> None:
        self.safe = self.tried = safe
        opened = NodeFolder(folder, 0, "shape", disk)
        try:
            opened.give_to(Owner(0, 0, 1, "shape"))
            self.disk = NodeDisk(opened, sync_interval_ms)
        except BaseException:
            opened.close()
            raise

    def found(self) -> int:
        """Return the last record that the folder has; there has to be all before it, and all parts of a checkpoint."""
        recorded = self.disk.scan(GENESIS)
        count = 0 if recorded is None else int(recorded.facts.get("count", 0))
        parts = 0
        for number, packet in self.disk.replay():
            assert isinstance(packet, Packet)
            if packet.kind == PART and packet.fields["of"] == self.disk.start:
                parts += 1
            elif packet.kind == MET and number > self.disk.start and packet.fields["disk"] > count:
                assert packet.fields["disk"] == count + 1
                count += 1
        if recorded is not None and recorded.facts:
            assert parts == PARTS
        self.tried = count
        return count

    def run(self, between: Callable[[], object] = lambda: None) -> None:
        self.disk.begin()
        for _ in range(2):
            for _ in range(RECORDS):
                self.add()
                self.disk.sync()
                self.safe = self.tried
            start = self.disk.begin(0, {"count": self.tried})
            for number in range(PARTS):
                self.disk.add(Packet(PART, {"of": start, "number": number}))
                if number == 1:
                    self.add()
            between()
            self.disk.complete(start, 0, [], 1, NodeRegistry(62))
            self.add()
        self.disk.sync()
        self.safe = self.tried

    def add(self) -> None:
        self.tried += 1
        self.disk.add(Packet(MET, {"node": 1, "disk": self.tried}))


def steps(folder: Path, sync_interval_ms: int) -> int:
    disk = CountingDisk()
    life = Life(folder, disk, sync_interval_ms)
    life.run()
    life.disk.close()
    return len(disk.steps)


@pytest.mark.parametrize("sync_interval_ms", [0, 60_000])
def test_power_is_cut_at_any_step(tmp_path: Path, sync_interval_ms: int) -> None:
    count = steps(tmp_path / "whole", sync_interval_ms)
    for at in range(count):
        folder, disk = tmp_path / f"{at}", CrashingDisk(at, random.Random(at))
        safe = tried = 0
        with suppress(Crash):
            life = Life(folder, disk, sync_interval_ms)
            with suppress(Crash):
                life.run()
            safe, tried = life.safe, life.tried
            life.disk.folder.close()
        disk.lose_power()
        again = Life(folder, CountingDisk(), sync_interval_ms)
        found = again.found()
        assert found <= tried, at
        if not sync_interval_ms:
            assert found >= safe, at
        again.run()
        again.disk.close()
        last = Life(folder, CountingDisk())
        assert last.found() == again.tried, at
        last.disk.close()


def test_records_that_come_while_a_checkpoint_is_made_safe_are_not_taken_for_safe(tmp_path: Path) -> None:
    """The node is killed when the checkpoint is complete, before its next round."""
    life: list[Life] = []

    class Beside(CountingDisk):
        """Another thread adds a record while the log is synced."""

        def fsync(self, file: BinaryIO) -> None:
            super().fsync(file)
            if is_completing:
                life[0].add()

    is_completing = False
    life.append(Life(tmp_path, Beside()))
    disk = life[0].disk
    disk.begin()
    start = disk.begin(0, {"count": 0})
    for number in range(PARTS):
        disk.add(Packet(PART, {"of": start, "number": number}))
    is_completing = True
    disk.complete(start, 0, [], 1, NodeRegistry(62))
    disk.folder.close()
    again = Life(tmp_path, CountingDisk())
    assert again.found() <= life[0].tried
    again.run()
    again.disk.close()


def test_a_disk_is_full_at_any_step(tmp_path: Path) -> None:
    """The life ends by that; with room again, the next one goes on."""
    for at in range(steps(tmp_path / "whole", 0)):
        folder, safe = tmp_path / f"{at}", 0
        with suppress(StorageError):
            life = Life(folder, FullDisk(at))
            with suppress(StorageError):
                life.run()
            safe = life.safe
            with suppress(StorageError):
                life.disk.close()
            life.disk.folder.close()
        again = Life(folder, CountingDisk())
        assert again.found() >= safe, at
        again.run()
        again.disk.close()


@pytest.mark.parametrize("step", first_and_slow([5, 1]))
def test_the_log_is_torn_at_any_byte_of_its_last_records(tmp_path: Path, step: int) -> None:
    life = Life(tmp_path / "whole", CountingDisk())
    life.disk.begin()
    life.add()
    life.disk.sync()
    (log,) = (tmp_path / "whole" / "log").iterdir()
    safe_bytes = log.stat().st_size
    life.add()
    life.add()
    life.disk.close()
    whole = log.read_bytes()
    for size in range(safe_bytes, len(whole) + 1, step):
        folder = tmp_path / f"{size}"
        (folder / "log").mkdir(parents=True)
        (folder / NODE_FILE).write_bytes((tmp_path / "whole" / NODE_FILE).read_bytes())
        (folder / "log" / log.name).write_bytes(whole[:size])
        torn = Life(folder, CountingDisk())
        found = torn.found()
        assert 1 <= found <= 3
        torn.run()
        torn.disk.close()
        again = Life(folder, CountingDisk())
        assert again.found() == torn.tried
        again.disk.close()


def piece(first: int, *tuples: tuple[str, int]) -> Piece:
    found, count = encoded(*tuples), len(tuples)
    return Piece(STREAM, "", 7, first, first + count, 0, 1, found, np.zeros(count, np.bool_))


def offered(one: Piece | None, rows: tuple[int, int]) -> ev.PieceOffered:
    return ev.PieceOffered(STREAM, "", 7, 1, *rows, view=3, piece=one)


def begun(folder: Path) -> NodeDisk:
    opened = NodeFolder(folder, 0, "shape")
    opened.give_to(Owner(0, 0, 1, "shape"))
    disk = NodeDisk(opened)
    disk.begin()
    return disk


def told(note: Note) -> object:
    """A note as a value."""
    if isinstance(note, ev.PieceOffered) and note.piece is not None:
        one = note.piece
        rows = one.encoded.subjects.tolist(), one.encoded.timestamps.tolist(), one.encoded.terms.texts()
        return replace(note, piece=(one.stream, one.epoch, one.first_offset, one.end_offset, *rows))
    return (note.kind, dict(note.fields), sorted(note.arrays)) if isinstance(note, Packet) else note


def notes_of(folder: Path) -> list[tuple[int, object]]:
    disk = NodeDisk(NodeFolder(folder, 0, "shape"))
    try:
        assert disk.scan(GENESIS) is not None
        return [(lsn, told(note)) for lsn, note in disk.replay() if lsn > disk.start]
    finally:
        disk.close()


def test_all_notes_of_a_round_are_one_record_and_come_back_in_their_order(tmp_path: Path) -> None:
    disk = begun(tmp_path)
    first, second = piece(0, ("a", 50), ("b", 60)), piece(2, ("c", 70))
    marker = ev.Marker(STREAM, "", 7, 1, 3)
    arrays = Packet("agreed", {}, {"column": np.arange(3)})
    disk.add(Packet("pushed", {"stream": STREAM}))
    disk.taken(offered(first, (0, 2)))
    disk.add(Packet("fed", {"late": 0}), is_awaited=False)
    disk.taken(offered(None, (2, 2)))
    disk.taken(offered(second, (2, 3)))
    disk.taken(marker)
    disk.sync()
    disk.add(Packet("met", {"node": 1, "disk": 2}), is_awaited=False)
    disk.add(arrays)
    disk.add(Packet("fed", {"late": 1}))
    disk.close()
    events = [
        replace(offered(one, rows), view=None) for one, rows in ((first, (0, 2)), (None, (2, 2)), (second, (2, 3)))
    ]
    assert notes_of(tmp_path) == [
        (2, ("pushed", {"stream": STREAM}, [])),
        (2, told(events[0])),
        (2, ("fed", {"late": 0}, [])),
        (2, events[1]),
        (2, told(events[2])),
        (2, marker),
        (3, ("met", {"node": 1, "disk": 2}, [])),
        (4, ("agreed", {}, ["column"])),
        (5, ("fed", {"late": 1}, [])),
    ]


def test_folders_with_a_record_for_each_note_are_read(tmp_path: Path) -> None:
    disk = begun(tmp_path)
    one, marker = piece(0, ("a", 50)), ev.Marker(STREAM, "", 7, 1, 3)
    said = encode(replace(offered(None, (0, 1)), view=None))
    packets = [
        pieces_packet("piece", [one], said=said, stream=STREAM, partition="", epoch=7),
        pieces_packet("piece", [], said=said, stream=STREAM, partition="", epoch=7),
        Packet("marker", encode(marker)),
        Packet("fed", {"late": 0}),
    ]
    for packet in packets:
        disk._wal.append(17, framed(to_frames(packet, TELL, 1)), 0)
    disk.close()
    event = replace(offered(None, (0, 1)), view=None)
    notes = [told(replace(event, piece=one)), event, marker, ("fed", {"late": 0}, [])]
    assert notes_of(tmp_path) == list(enumerate(notes, 2))
