"""A commit that stops or fails at any step, and files that are not what was written."""

from __future__ import annotations

import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.failing_disk import CountingDisk, Crash, CrashingDisk, FullDisk
from tests.fuzz import TIER, scaled
from tests.quads import batch_of, spread
from tests.stored_graph import Row, StoredGraph, reopen
from wukongs.errors import CorruptionError, StorageError
from wukongs.store import column_file
from wukongs.store.checkpoint import CheckpointStore
from wukongs.store.column_file import PAGE_BYTES


def rows(start: int, stop: int) -> list[Row]:
    return [(f"<http://s/{n}>", f"<http://p/{n % 3}>", f'"text {n % 7}"@en') for n in range(start, stop)]


OLD, NEW = sorted(rows(0, 30)), sorted(rows(0, 50))


def restore(folder: Path, store: CheckpointStore) -> StoredGraph:
    graph = StoredGraph(hash_bits=5)
    restored = store.open()
    if restored is not None:
        restored.into(graph.trace, graph.registry)
        assert restored.about["count"] == len(graph.texts())
    return graph


@pytest.fixture(scope="module")
def old_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one commit, of OLD; hardly any term has the id of its hash."""
    folder = tmp_path_factory.mktemp("old")
    with CheckpointStore(folder) as store:
        graph = restore(folder, store)
        graph.absorb(rows(0, 25))
        graph.absorb(rows(25, 30))
        graph.commit(store, {"count": 30})
    return folder


def add_and_commit(graph: StoredGraph, store: CheckpointStore) -> None:
    """Make OLD NEW: new batches, a merge, new terms, new exceptions."""
    graph.absorb(rows(30, 49))
    graph.trace.merge_all()
    graph.absorb(rows(49, 50))
    graph.commit(store, {"count": 50})


def steps_of_a_commit(folder: Path) -> list[str]:
    disk = CountingDisk()
    with CheckpointStore(folder, disk) as store:
        graph = restore(folder, store)
        disk.steps.clear()
        add_and_commit(graph, store)
    return disk.steps


def some_steps(steps: list[str]) -> list[int]:
    """Every step that is not one of the many writes, and a few of these; all of them in the last tier."""
    return [at for at, name in enumerate(steps) if name != "write" or at % 9 == 0 or TIER == "all"]


def test_a_crash_at_any_step_leaves_the_old_state_or_the_new(old_folder: Path, tmp_path: Path) -> None:
    steps = steps_of_a_commit(shutil.copytree(old_folder, tmp_path / "count"))
    assert [name for name in steps if name not in ("write", "unlink")][-2:] == ["rename", "fsync_folder"]
    outcomes = set()
    for at in some_steps(steps):
        folder = shutil.copytree(old_folder, tmp_path / str(at))
        disk = CrashingDisk(1 << 30, random.Random(at))
        with CheckpointStore(folder, disk) as store:
            graph = restore(folder, store)
            disk.at = len(disk.steps) + at
            with pytest.raises(Crash):
                add_and_commit(graph, store)
        disk.lose_power()
        with CheckpointStore(folder) as store:
            found = restore(folder, store)
            assert found.texts() in (OLD, NEW), f"stopped before step {at}, {steps[at]}"
            outcomes.add(found.texts() == NEW)
            found.absorb(rows(0, 60))
            found.commit(store, {"count": 60})
        assert reopen(folder, 5)[0].texts() == sorted(rows(0, 60))
        shutil.rmtree(folder)
    assert outcomes == {True, False}


def test_a_crash_in_the_first_commit_leaves_nothing_or_all(tmp_path: Path) -> None:
    def begin(folder: Path, disk: CrashingDisk) -> None:
        with CheckpointStore(folder, disk) as store:
            graph = restore(folder, store)
            graph.absorb(rows(0, 30))
            graph.commit(store, {"count": 30})

    whole = CrashingDisk(1 << 30, random.Random(0))
    begin(tmp_path / "count", whole)
    for at in some_steps(whole.steps):
        folder = tmp_path / str(at)
        disk = CrashingDisk(at, random.Random(at))
        with pytest.raises(Crash):
            begin(folder, disk)
        disk.lose_power()
        assert reopen(folder, 5)[0].texts() in ([], OLD)


def test_a_full_disk_leaves_the_old_state_and_the_next_commit_works(old_folder: Path, tmp_path: Path) -> None:
    steps = steps_of_a_commit(shutil.copytree(old_folder, tmp_path / "count"))
    before = {path.name for path in old_folder.iterdir()}
    for at in some_steps(steps):
        if steps[at] == "unlink":
            continue
        folder = shutil.copytree(old_folder, tmp_path / str(at))
        disk = FullDisk(1 << 30)
        with CheckpointStore(folder, disk) as store:
            graph = restore(folder, store)
            disk.at = len(disk.steps) + at
            with pytest.raises(StorageError, match=r"No space left on device.*then retry"):
                add_and_commit(graph, store)
            assert graph.texts() == NEW, "reads go on"
            if at < steps.index("rename"):
                assert {path.name for path in folder.iterdir()} == before, "room is given back"
            copy = shutil.copytree(folder, tmp_path / f"{at}-copy")
            assert reopen(copy, 5)[0].texts() in (OLD, NEW)
            disk.at = 1 << 30
            graph.commit(store, {"count": 50})
        assert reopen(folder, 5)[0].texts() == NEW
        shutil.rmtree(folder)
        shutil.rmtree(copy)


def test_a_disk_that_is_full_from_the_first_commit_on_does_not_spoil_the_folder(tmp_path: Path) -> None:
    disk = FullDisk(0, fails=1)
    with CheckpointStore(tmp_path, disk) as store:
        graph = restore(tmp_path, store)
        graph.absorb(rows(0, 30))
        with pytest.raises(StorageError):
            graph.commit(store, {"count": 30})
        stopping = CrashingDisk(12, random.Random(1))
        store._disk = stopping
        with pytest.raises(Crash):
            graph.commit(store, {"count": 30})
    assert list(tmp_path.glob("batch-*")), "it stopped in a file of the first commit"
    assert reopen(tmp_path, 5)[0].texts() == []


def test_a_disk_that_is_really_full(old_folder: Path, tmp_path: Path) -> None:
    """The system's own limit for the size of a file stands for the disk."""
    folder = shutil.copytree(old_folder, tmp_path / "x")
    before = {path.name for path in folder.iterdir()}
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    with CheckpointStore(folder) as store:
        graph = restore(folder, store)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, most))
        try:
            with pytest.raises(StorageError, match="File too large"):
                add_and_commit(graph, store)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        assert {path.name for path in folder.iterdir()} == before
        graph.commit(store, {"count": 50})
    assert reopen(folder, 5)[0].texts() == NEW


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def shorten(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def lengthen(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randint(1, 5000)))


def tear(path: Path, rng: random.Random) -> None:
    """A sector was never written, or with something else."""
    data = bytearray(path.read_bytes())
    at = rng.randrange(0, len(data), 512)
    size = min(512, len(data) - at)
    torn = rng.choice([bytes(size), rng.randbytes(size)])
    data[at : at + size] = torn if torn != data[at : at + size] else b"\1" * size
    path.write_bytes(data)


def lose(path: Path, rng: random.Random) -> None:
    path.unlink()


@pytest.mark.parametrize("alter", [flip, shorten, lengthen, tear, lose])
def test_an_altered_file_is_named_and_never_answered_from(
    old_folder: Path, tmp_path: Path, alter: Callable[[Path, random.Random], None]
) -> None:
    names = sorted(path.name for path in old_folder.iterdir() if path.name != "LOCK")
    assert len(names) == 4, "two batches, the dictionary, the manifest"
    for name in names:
        for seed in range(scaled(12)):
            folder = shutil.copytree(old_folder, tmp_path / f"{name}-{seed}")
            alter(folder / name, random.Random(seed))
            # A manifest whose version is not ours any more is refused as such.
            with pytest.raises((CorruptionError, StorageError) if name == "MANIFEST" else CorruptionError) as caught:
                reopen(folder, 5)[0].texts()
            assert str(folder / name) in str(caught.value), seed
            shutil.rmtree(folder)


def test_files_that_changed_places_are_seen(old_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(old_folder, tmp_path / "x")
    one, other = sorted(folder.glob("batch-*"))
    one.rename(tmp_path / "held")
    other.rename(one)
    (tmp_path / "held").rename(other)
    with pytest.raises(CorruptionError):
        reopen(folder, 5)[0].texts()


def large_graph(folder: Path) -> tuple[StoredGraph, Path]:
    graph = StoredGraph()
    graph.trace.seal(3, batch_of([(0, spread(n), spread(n % 3), spread(n % 1000)) for n in range(150_000)]))
    with CheckpointStore(folder) as store:
        store.open()
        graph.commit(store)
    (path,) = folder.glob("batch-*")
    assert path.stat().st_size > 4 * PAGE_BYTES
    return graph, path


def test_a_page_is_verified_on_first_touch_and_named(tmp_path: Path) -> None:
    _, path = large_graph(tmp_path)
    data = bytearray(path.read_bytes())
    data[2 * PAGE_BYTES + 77] ^= 4
    path.write_bytes(data)
    found, _ = reopen(tmp_path)
    assert len(found.trace) == 150_000, "a count comes from the description of the columns"
    for _ in range(2):
        with pytest.raises(CorruptionError, match=r"page 2 of \d+ \(column .*out.values") as caught:
            found.trace.read(3)
        assert caught.value.page == 2
    found.trace.seal(7, batch_of([(0, 2, 4, 6)]))
    with pytest.raises(CorruptionError):
        found.trace.merge_all()


def test_a_page_is_verified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, path = large_graph(tmp_path)
    found, _ = reopen(tmp_path)
    monkeypatch.setattr(column_file, "hash_pages", None)
    with pytest.raises(TypeError):
        found.trace.read(3)
    monkeypatch.undo()
    found.trace.read(3)
    monkeypatch.setattr(column_file, "hash_pages", None)
    path.unlink()
    found.trace.seal(7, batch_of([(0, 2, 4, 6)]))
    found.trace.merge_all()
    assert len(found.trace.read(7)) == len(graph.trace) + 1 == 150_001
